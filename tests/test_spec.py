"""A family's spec file -> the spec of each of its katas."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy
import passed_before
import pytest
import torch
from facts import all_of

from grader.content.attention import magnitude
from grader.content.catalog import Kata, load_catalog
from grader.content.dtype import DTYPES
from grader.content.formulas import softmax
from grader.content.spec import (
    PERIOD,
    Accumulated,
    InputKind,
    Rng,
    Size,
    Spec,
    SpecError,
    Tensor,
    integers,
    load_spec,
    normal,
)
from grader.devices import Limits
from grader.judge import case as case_module
from grader.judge.case import Case, CaseKey
from grader.judge.encoding import encode

pytestmark = passed_before.REPOSITORY

KATAS = load_catalog(Path(__file__).resolve().parent.parent).katas

FILE = """
from grader.content.spec import Exact, Size, Spec, Tensor, InputKind, normal


def spec(computes):
    return Spec(
        computes=computes,
        inputs=(Tensor("x", ("n",)),),
        outputs=(Tensor("y", ("n",)),),
        sizes={"n": Size(0, 10)},
        values=(InputKind("normal", normal()),),
        reference=lambda x, sizes: x,
        tolerance=Exact(),
        named_sizes=({"n": 0},),
        work=lambda sizes: sizes["n"],
    )


"""


def kata(root: Path, name: str, text: str) -> Kata:
    made = Kata(name=name, family="family", level="easy", elem="f32", root=root)
    made.spec_path.parent.mkdir(parents=True, exist_ok=True)
    made.spec_path.write_text(FILE + text)
    return made


def test_a_kata_has_its_own_spec_or_its_familys(tmp_path: Path) -> None:
    text = 'SPEC = spec("rows")\nSPECS = {"whole_f32": spec("the whole")}\n'
    assert load_spec(kata(tmp_path, "rows_f32", text)).computes == "rows"
    assert load_spec(kata(tmp_path, "whole_f32", text)).computes == "the whole"


def test_a_kata_without_any_spec_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=all_of("SPEC", "SPECS", "rows_f32")):
        load_spec(kata(tmp_path, "rows_f32", 'SPECS = {"whole_f32": spec("the whole")}\n'))
    with pytest.raises(SpecError, match=all_of("no SPEC")):
        load_spec(kata(tmp_path / "empty", "rows_f32", ""))


IN_PLACE = """from dataclasses import replace

SPEC = replace(spec("rows"), outputs=(Tensor("x", ("n",){dtype}),))
"""


def test_an_input_and_an_output_of_one_name_are_one_pointer(tmp_path: Path) -> None:
    rows = kata(tmp_path, "rows_f32", IN_PLACE.format(dtype=""))
    found = load_spec(rows)
    assert found.updated == {"x"} and found.written == ()
    assert found.signature(rows) == "void rows_f32(float* x, int n, cudaStream_t stream)"
    case = Case(rows, found, CaseKey((("n", 4),), "normal", 0))
    (buffer,) = case.call(nth=0, limits=Limits()).buffers
    assert (buffer.name, buffer.role, bytes(buffer.given)) == ("x", "updated", case.inputs["x"].tobytes())
    (answer,) = case.expected
    assert (answer.tensor.name, answer.value.tolist()) == ("x", case.inputs["x"].tolist())


def test_one_pointer_has_one_shape_and_one_dtype(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=all_of("x", "the same memory", "dtype")):
        load_spec(kata(tmp_path, "rows_f32", IN_PLACE.format(dtype=', "i32"')))


def test_what_rounding_does_to_denormals_is_allowed_for() -> None:
    """Near 0 an error of half a denormal's step is the least that a format can make, however small the answer."""
    spec = Spec(
        computes="y = x / 1024",
        inputs=(Tensor("x", ("n",), "f32"),),
        outputs=(Tensor("y", ("n",)),),
        sizes={"n": Size(0, 10)},
        values=(InputKind("tiny", lambda numbers, shape, sizes: numpy.full(shape, 2.0**-13)),),
        reference=lambda x, sizes: x / 1024,
        tolerance=Accumulated(terms=lambda sizes: 0, magnitude=lambda x, sizes: x),
        named_sizes=({"n": 0},),
        work=lambda sizes: sizes["n"],
    )
    kata_f16 = Kata(name="y_f16", family="y", level="easy", elem="f16", root=Path())
    case = Case(kata_f16, spec, CaseKey((("n", 3),), "tiny", 0))
    bound = case.expected[0].bound
    assert bound is not None
    step = 2.0**-24  # between f16's denormals
    assert bound.max().item() == pytest.approx(4 * (step / 2 + 2.0**-11 * 2.0**-23))


def test_tiny_is_torchs() -> None:
    for dtype in DTYPES.values():
        if dtype.is_float and dtype.name != "tf32":
            info = torch.finfo(getattr(torch, dtype.torch_name))
            assert (dtype.tiny, dtype.roundoff) == (info.smallest_normal, info.eps / 2)


def test_long_tensors_repeat_their_values_and_short_ones_do_not() -> None:
    drawn = Rng(3).normal((2, (PERIOD + 5) // 2), mean=1.0).flatten()
    assert len(drawn) == PERIOD + 5
    assert numpy.array_equal(drawn[PERIOD:], drawn[:5]) and numpy.unique(drawn[:1000]).size == 1000
    whole = Rng(3).integers((PERIOD + 1,), -2, 2)
    assert whole[PERIOD] == whole[0] and set(whole[:100].tolist()) == {-2, -1, 0, 1, 2}


def test_the_header_says_where_the_same_bits_are_asked_for() -> None:
    katas = load_catalog(Path(__file__).resolve().parent.parent).katas.values()
    asked = [kata for kata in katas if load_spec(kata).repeatable]
    assert asked
    for kata in asked:
        assert "same bits" in kata.solution_path.read_text().partition("#include")[0], kata.name


def test_fragments_straight_from_or_to_a_tensor_have_its_base_on_32_bytes() -> None:
    """CUDA C++ Programming Guide, "Warp Matrix Functions": what they load from or store to is 256-bit aligned."""
    katas = load_catalog(Path(__file__).resolve().parent.parent).katas.values()
    moved = re.compile(r"(?:store_matrix_sync\(|load_matrix_sync\([^&\n]+, )&([ABC])\[")
    found = [(kata, name) for kata in katas for name in set(moved.findall(kata.solution_path.read_text()))]
    assert found
    for kata, name in found:
        spec = load_spec(kata)
        tensor = next(tensor for tensor in (*spec.inputs, *spec.outputs) if tensor.name == name)
        assert tensor.align == 32, f"{kata.name}: {name}"


def with_cancelling_sums() -> list[Kata]:
    """One kata of each spec that has such values and adds up with no weights."""
    found = {}
    for kata in load_catalog(Path(__file__).resolve().parent.parent).katas.values():
        spec = load_spec(kata)
        weighted = "V" in {tensor.name for tensor in spec.inputs}
        if not weighted and any(kind.name == "cancelling" for kind in spec.values):
            found.setdefault(id(spec), kata)
    return list(found.values())


def test_sums_that_cancel_are_small_beside_their_terms() -> None:
    """But for those of few terms, and of the middle one, which an odd number of terms has alone."""
    katas = with_cancelling_sums()
    assert {kata.family for kata in katas} >= {
        "reduce",
        "warp_reduce",
        "sgemv",
        "hgemv",
        "sgemm",
        "hgemm",
    }
    for kata in katas:
        spec = load_spec(kata)
        sizes = next(sizes for sizes in spec.named_sizes if spec.work(sizes) > 100_000 and min(sizes.values()) > 1)
        sizes = {name: size - size % 2 if name in ("n", "K", "rows") else size for name, size in sizes.items()}
        case = Case(kata, spec, CaseKey.of(spec, sizes, "cancelling", 1))
        assert isinstance(spec.tolerance, Accumulated)
        found = spec.tolerance.magnitude(**case._wide(), sizes=sizes)
        terms = found[0] if isinstance(found, tuple) else found
        values = case.expected[0].value
        assert 0 < abs(values).sum() < terms.sum() / 20, kata.name


@pytest.mark.parametrize("kind, is_seen", [("offset", False), ("cancelling", True)])
def test_partial_sums_in_half_are_seen_where_the_whole_cancels(kind: str, is_seen: bool) -> None:
    """Of sums that are kept in float and stored in half; ``offset`` leaves them inside of the bound."""
    kata = load_catalog(Path(__file__).resolve().parent.parent).katas["hgemv_k32_f16"]
    spec = load_spec(kata)
    case = Case(kata, spec, CaseKey.of(spec, {"M": 61, "K": 520}, kind, 1))
    inputs = case._wide()
    lanes = (inputs["A"] * inputs["x"]).reshape(61, -1, 8).sum(axis=1).astype(numpy.float16).astype(float)
    (right,) = case.expected
    assert right.bound is not None
    wrong = abs(lanes.sum(axis=1).astype(numpy.float16) - right.value) > right.bound
    assert wrong.any() == is_seen


ATTENTION = {
    "flash_attn_mma_fragments_f16": {"B": 1, "H": 1, "N": 256, "D": 64},
    "decode_attention_kv_cache_f16": {"B": 2, "H": 2, "N": 512, "D": 64},
}


@pytest.mark.parametrize("kind, is_seen", [("normal", False), ("cancelling", True)])
@pytest.mark.parametrize("name", ATTENTION)
def test_partial_outputs_in_half_are_seen_where_the_values_cancel(name: str, kind: str, is_seen: bool) -> None:
    """Of an attention that rounds its output to half after every 64 keys; ``normal`` leaves that within the bound."""
    kata, sizes = load_catalog(Path(__file__).resolve().parent.parent).katas[name], ATTENTION[name]
    case = Case(kata, load_spec(kata), CaseKey.of(load_spec(kata), sizes, kind, 1))
    inputs, (right,) = case._wide(), case.expected
    queries = inputs["Q"] if "Q" in inputs else inputs["q"][:, :, None]
    weights = softmax(queries @ inputs["K"].swapaxes(-1, -2) / sizes["D"] ** 0.5)
    tiles = (slice(first, first + 64) for first in range(0, sizes["N"], 64))
    output = numpy.zeros(queries.shape)
    for tile in tiles:
        output = (output + weights[..., tile] @ inputs["V"][..., tile, :]).astype(numpy.float16).astype(float)
    assert right.bound is not None
    assert (abs(output.reshape(right.value.shape) - right.value) > right.bound).any() == is_seen


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_one_period_of_a_draw_says_all_of_it(dtype: str) -> None:
    """The inputs of a large case are what was drawn in full and then rounded, also where an earlier case had the same
    draws and where a draw of another kind comes in between."""
    fills = {"x": normal(mean=1.0), "i": integers(-9, 9), "u": lambda rng, shape, sizes: rng.uniform(shape, 0, 1)}
    names = ("x", "i", "u", "z")
    values = InputKind("some", {**fills, "z": normal()})
    spec = replace(
        load_spec(KATAS["elementwise_f32"]),
        inputs=tuple(Tensor(name, ("n",)) for name in names),
        sizes={"n": Size(0, 10)},
        values=(values,),
    )
    of = replace(KATAS["elementwise_f32"], elem=dtype)
    for n in (PERIOD + 11, PERIOD + 5):
        rng = Rng(7)
        drawn = {name: encode(values.for_input(name)(rng, (n,), {}), DTYPES[dtype]) for name in names}
        inputs = Case(of, spec, CaseKey.of(spec, {"n": n}, "some", 7)).inputs
        assert all(drawn[name].tobytes() == inputs[name].tobytes() for name in names)


BATCHES = {name: spec for name, kata in KATAS.items() if (spec := load_spec(kata)).batch}


def test_a_batch_comes_first() -> None:
    assert len(BATCHES) > 30
    for name, spec in BATCHES.items():
        assert all(tensor.shape[: len(spec.batch)] == spec.batch for tensor in spec.outputs), name
        for tensor in spec.inputs:
            assert tensor.shape[: len(spec.batch)] == spec.batch or not {*tensor.shape} & {*spec.batch}, name
        assert spec.slice_dim not in spec.batch


@pytest.mark.parametrize(
    "name",
    ["flash_attn_mma_stages_split_q", "flash_attn_mma_causal_f16", "flash_attn_mma_lse_f16", "flash_attn_mma_gqa_f16",
     "fa_wgmma_fp8"],
)  # fmt: skip
def test_answers_in_groups_of_a_batch_are_those_of_all_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all rows and in some, of which the last group has fewer heads than the others."""
    kata, spec = KATAS[name], BATCHES[name]
    sizes = {**spec.named_sizes[0], "N": 130, spec.batch[0]: 3, spec.batch[1]: 5}
    case = Case(kata, spec, CaseKey.of(spec, sizes, spec.values[0].name, 1))
    case = Case(kata, spec, case.shape, case.inputs)  # whose answer is not kept
    rows = numpy.array([0, 3, sizes["N"] - 1])
    whole = [*case.expected, *case.part(rows).expected]
    most = max(array.size for array in case.inputs.values())
    monkeypatch.setattr(case_module, "GROUP_ELEMENTS", 2 * most // 15)
    assert [group.sizes[spec.batch[1]] for (group,) in case._groups() or []] == [2] * 7 + [1]
    parts = [*Case(kata, spec, case.shape, case.inputs).expected, *case.part(rows).expected]
    for one, other in zip(whole, parts, strict=True):
        assert one.value.shape == other.value.shape and one.bound is not None and other.bound is not None
        assert numpy.allclose(one.value, other.value, rtol=0, atol=1e-13 * abs(one.value).max())
        assert numpy.allclose(one.bound, other.bound, rtol=1e-4)


@pytest.mark.parametrize(("acc", "values"), [("f16", "normal"), ("f32", "cancelling"), ("f32", "large")])
def test_a_bound_in_float32_is_that_of_float64(acc: str, values: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "flash_attn_mma_stages_split_q" + "_acc_f32" * (acc == "f32")
    kata, spec = KATAS[name], BATCHES[name]
    case = Case(kata, spec, CaseKey.of(spec, {"B": 1, "H": 2, "N": 150, "D": 64}, values, 3))
    wide = case._wide()
    found = magnitude(acc)(**wide, sizes=case.sizes)
    monkeypatch.setattr(numpy, "float32", numpy.float64)
    right = magnitude(acc)(**wide, sizes=case.sizes)
    assert found.dtype == right.dtype == numpy.float64 and not numpy.array_equal(found, right)
    assert numpy.allclose(found, right, rtol=4e-3 if values == "large" else 3e-4, atol=0)
