"""torch.ops.kata.<name>: the launchers as torch operators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from facts import all_of

from grader.content.catalog import load_catalog
from grader.content.spec import load_spec
from grader.notebook.ops import KataError, register, schema

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", autouse=True)
def solutions() -> None:
    """The clone's own files are skeletons; here the operators call the solutions."""
    register(ROOT, solutions=True)


def test_every_kata_is_an_operator_with_a_schema() -> None:
    katas = load_catalog(ROOT).katas.values()
    for kata in katas:
        found = getattr(torch.ops.kata, kata.name).default._schema
        assert found == torch._C.parse_schema("kata::" + schema(kata, load_spec(kata)))
    histogram = load_catalog(ROOT).katas["histogram_i32"]
    assert schema(histogram, load_spec(histogram)) == "histogram_i32(Tensor a, int bins) -> Tensor"


def test_on_cpu_tensors_it_runs_on_the_simulator() -> None:
    a, b = torch.randn(1000), torch.randn(1000)
    assert torch.equal(torch.ops.kata.elementwise_f32(a, b), a + b)
    assert torch.equal(torch.ops.kata.elementwise_f16x8_pack(a.half(), b.half()), a.half() + b.half())
    values = torch.randint(0, 17, (501,), dtype=torch.int32)
    assert torch.equal(torch.ops.kata.histogram_i32x4(values, 17), values.bincount(minlength=17).int())
    left, right = torch.randn(33, 20), torch.randn(20, 47)
    torch.testing.assert_close(torch.ops.kata.sgemm_sliced_k_f32(left, right), left @ right)


def test_empty_tensors_and_views_work() -> None:
    empty = torch.empty(0)
    assert torch.ops.kata.elementwise_f32(empty, empty).shape == (0,)
    a = torch.randn(64)[::2]
    assert torch.equal(torch.ops.kata.elementwise_f32(a, a), a + a)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("elementwise_f32", (torch.ones(3), torch.ones(4)), all_of("b", "[n] f32", "n=3")),
        ("elementwise_f32", (torch.ones(3), torch.ones(3).half()), all_of("b", "[n] f32", "[3]", "torch.float16")),
        ("elementwise_f32", (torch.ones(3, 1), torch.ones(3)), all_of("a", "[n] f32", "[3, 1]")),
        ("sgemm_naive_f32", (torch.ones(3, 4), torch.ones(5, 2)), all_of("K=4")),
    ],
)
def test_wrong_arguments_are_one_sentence(name: str, arguments: tuple[torch.Tensor, ...], said: str) -> None:
    with pytest.raises(KataError, match=said):
        getattr(torch.ops.kata, name)(*arguments)


def test_shapes_are_known_without_running() -> None:
    a = torch.empty(7, device="meta")
    assert torch.ops.kata.elementwise_f32(a, a).shape == (7,)


def test_a_learners_wrong_file_is_an_error_and_not_a_crash() -> None:
    script = "import torch, grader.ops; torch.ops.kata.elementwise_f32(torch.ones(3), torch.ones(3))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1) and "Segmentation" not in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_cuda_tensors_it_runs_on_the_gpu_and_the_current_stream() -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        a, b = torch.randn(1_000_003, device="cuda"), torch.randn(1_000_003, device="cuda")
        c = torch.ops.kata.elementwise_f32x4(a, b)
    stream.synchronize()
    assert torch.equal(c, a + b)
    values = torch.randint(0, 100, (100_000,), dtype=torch.int32, device="cuda")
    assert torch.equal(torch.ops.kata.histogram_i32(values, 100), values.bincount(minlength=100).int())
