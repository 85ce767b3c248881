"""The simulator's cuBLAS: the products it computes, and what it says of arguments that no product has.

Variants of a solution, each graded as the kata; the likely slips stand in tests/wrong_kernels.
"""

from __future__ import annotations

from pathlib import Path

import passed_before
import pytest
from facts import has

from grader.content.catalog import load_catalog
from grader.grade import Options, grade, prepare
from grader.output.verdict_text import explanation
from grader.verdict import Kind

pytestmark = passed_before.REPOSITORY

KATA = load_catalog(Path(__file__).resolve().parent.parent).katas["hgemm_mma_cublas_nn"]
SOLUTION = KATA.solution_path.read_text()
START = SOLUTION.index("    cublasGemmEx(")
CALL = SOLUTION[START : SOLUTION.index(";", START) + 1]
OPTIONS = Options(device="sim", together=True)


RIGHT = {
    "transposed where it lies": (CALL.replace("CUBLAS_COMPUTE_32F", "CUBLAS_COMPUTE_32F_PEDANTIC"),),
    "alpha of the device": (
        f"""    float* numbers;
    const float one_and_zero[] = {{1.0f, 0.0f}};
    cudaMalloc(&numbers, sizeof one_and_zero);
    cudaMemcpyAsync(numbers, one_and_zero, sizeof one_and_zero, cudaMemcpyHostToDevice, stream);
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
{CALL.replace("&alpha", "numbers").replace("&beta", "numbers + 1")}
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
    cudaFree(numbers);
    (void)alpha, (void)beta;""",
    ),
    "a half of the sum, twice": (
        "    const float half_of_it = 0.5f, one = 1.0f;\n"
        + CALL.replace("&alpha", "&half_of_it")
        + CALL.replace("&alpha", "&half_of_it").replace("&beta", "&one")
        + "\n    (void)alpha;",
    ),
}


WRONG = {
    "C is read and was never written": (
        ("beta = 0.0f", "beta = 1.0f"),
        Kind.UNINITIALISED,
        ["reads", "column 0", "C", "written"],
    ),
    "no handle": (
        ("= shared_handle();", "= nullptr;"),
        Kind.LAUNCH_FAILED,
        ["CUBLAS_STATUS_NOT_INITIALIZED"],
    ),
    "A is written": (
        ("&beta, C, CUDA_R_16F, N", "&beta, const_cast<half*>(A), CUDA_R_16F, N"),
        Kind.MODIFIED_INPUT,
        ["writes", "A", "input"],
    ),
    "sums in half of alpha in float": (
        ("CUBLAS_COMPUTE_32F", "CUBLAS_COMPUTE_16F"),
        Kind.WRONG_ANSWER,
        ["C", "wrong"],
    ),
    "no such product": (
        ("B, CUDA_R_16F", "B, CUDA_R_32F"),
        Kind.LAUNCH_FAILED,
        ["CUBLAS_STATUS_NOT_SUPPORTED"],
    ),
    "a type it does not have": (
        ("B, CUDA_R_16F", "B, CUDA_R_8I"),
        Kind.UNSUPPORTED,
        ["simulator", "cuBLAS", "matrices"],
    ),
    "C past its end": (
        ("C, CUDA_R_16F, N", "C + 1, CUDA_R_16F, N"),
        Kind.OUT_OF_BOUNDS,
        ["writes 2 bytes", "byte 2 of C", "has 2 bytes"],
    ),
    "a negative size": (
        ("CUBLAS_OP_N, N, M, K", "CUBLAS_OP_N, N, -M, K"),
        Kind.LAUNCH_FAILED,
        ["size", "negative"],
    ),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, forked_children: None) -> dict[str, Path]:
    """A file of each variant, by its name; most of them in one run of nvcc."""
    texts = {name: SOLUTION.replace(CALL, call) for name, (call,) in RIGHT.items()}
    texts |= {name: SOLUTION.replace(old, new, 1) for name, ((old, new), *_) in WRONG.items()}
    folder, files = tmp_path_factory.mktemp("cublas"), {}
    for number, (name, text) in enumerate(texts.items()):
        assert text != SOLUTION, name
        files[name] = folder / f"{number}.cu"
        files[name].write_text(text)
    prepare([(KATA, file) for file in files.values()], OPTIONS)
    return files


@pytest.mark.parametrize("name", list(RIGHT)[:2])
def test_right_product(name: str, sources: dict[str, Path]) -> None:
    result = grade(KATA, OPTIONS, source=sources[name])
    assert result.passed, explanation(result)


def test_beta_adds_to_what_is_there(sources: dict[str, Path]) -> None:
    """Two halves of the product, each rounded to half: not right to the last bit, but no other kind of wrong."""
    verdict = grade(KATA, OPTIONS, source=sources["a half of the sum, twice"]).verdict
    assert verdict.kind in (Kind.PASS, Kind.WRONG_ANSWER) and verdict.error_share < 4


@pytest.mark.parametrize("name", WRONG)
def test_wrong_call(name: str, sources: dict[str, Path]) -> None:
    _, kind, facts = WRONG[name]
    verdict = grade(KATA, OPTIONS, source=sources[name]).verdict
    assert verdict.kind is kind
    assert has(verdict.summary, *facts)
