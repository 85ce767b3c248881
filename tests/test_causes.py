"""Where a nan or an infinity was made, and what nothing has set: from the engine and from nvcc's PTX to the clue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, LIMITS, build, given, line_of, open_device, wanted
from test_diagnosis import clue, f32, of_sum, told

from grader.compile.unset import Unset, unset_lines, warned
from grader.content.spec import Exact, InputKind, Tensor
from grader.devices import Call, Outcome, Scalar
from grader.devices.counters import Birth, Writer
from grader.devices.sim import SimDevice
from grader.judge.first_nan import operation
from grader.judge.lanes import in_words, uses_volatile
from grader.judge.unset import of_unset

pytestmark = passed_before.REPOSITORY

CAUSES = HERE / "causes.cu"
N = 64


@pytest.fixture(scope="module")
def device() -> Iterator[SimDevice]:
    yield open_device(CAUSES)


def births(device: SimDevice, launcher: str, *, noted: bool = True) -> tuple[Birth, ...]:
    buffers = (given("x", "f32", [float(i) for i in range(N)]), wanted("y", "f32", N))
    return device.call(Call(launcher, buffers, (Scalar("n", "int", N),), limits=LIMITS, births=noted)).births


def test_a_nan_is_made_of_operands_that_are_none(device: SimDevice) -> None:
    (made,) = births(device, "difference_of_infinities")
    assert (made.result, made.operands, made.by.line) == (
        "nan",
        ("-inf", "-inf"),
        line_of(CAUSES, "difference_of_infinities"),
    )
    assert (made.by.block, made.by.thread) == ((0, 0, 0), (0, 0, 0))
    assert births(device, "difference_of_infinities", noted=False) == ()


def test_what_another_lane_of_the_row_has_is_noted_where_matrices_are_multiplied(device: SimDevice) -> None:
    made = next(each for each in births(device, "maximum_of_one_lane") if each.operands == ("-inf", "-inf"))
    assert made.by.line == line_of(CAUSES, "maximum_of_one_lane")
    assert made.by.thread == (1, 0, 0) and made.other is not None
    assert (made.other.thread, made.other_operands) == ((3, 0, 0), ("-inf", "1"))
    (made,) = births(device, "difference_of_infinities")
    assert (made.other, made.other_operands) == (None, ())


def test_an_infinity_comes_before_the_nan_that_is_made_of_it(device: SimDevice) -> None:
    first, second = births(device, "overflow")
    assert (first.result, first.by.line, first.by.thread) == ("inf", line_of(CAUSES, "overflow"), (32, 0, 0))
    assert (second.result, second.by.line) == ("nan", line_of(CAUSES, "quotient"))
    assert float(first.operands[0]) == 128.0 and set(second.operands) <= {"inf", "0"}


@pytest.mark.parametrize(("launcher", "operands"), [("too_large_for_a_half", ("66000",)), ("product_in_half", ())])
def test_what_does_not_fit_into_a_half(device: SimDevice, launcher: str, operands: tuple[str, ...]) -> None:
    made = births(device, launcher)[0]
    assert (made.result, made.operands, made.by.line) == ("inf", operands, line_of(CAUSES, launcher))


def test_what_is_passed_on_is_not_made(device: SimDevice) -> None:
    assert births(device, "passed_on") == ()


def exchanged(device: SimDevice, launcher: str, *, distrusted: bool = True) -> Outcome:
    buffers = (given("x", "f32", [float(i) for i in range(N)]), wanted("y", "f32", N))
    return device.call(Call(launcher, buffers, (Scalar("n", "int", N),), limits=LIMITS, distrust_volatile=distrusted))


def test_lanes_that_exchange_by_volatile_without_meeting_are_named(device: SimDevice) -> None:
    """Volatile accesses are no data race, so that is only asked after a wrong answer."""
    assert exchanged(device, "volatile_in_no_order", distrusted=False).findings == ()
    outcome = exchanged(device, "volatile_in_no_order")
    [found] = outcome.findings
    words = in_words(found, outcome.launched)
    read, write = (line_of(CAUSES, marker) for marker in ("volatile's read", "volatile's write"))
    assert has(words, f"on line {read}", f"on line {write}", "tile[", "of one warp", "__syncwarp"), words
    assert exchanged(device, "volatile_and_meeting").findings == ()


def test_warps_that_wait_for_each_other_by_volatile_are_not_named(device: SimDevice) -> None:
    outcome = exchanged(device, "volatile_between_warps")
    assert all(in_words(found, outcome.launched) == "" for found in outcome.findings)


@pytest.mark.parametrize(
    ("source", "asks"),
    [("volatile float* p = s;", True), ('asm volatile("bar.sync 0;");', False), ("float* p = s;", False)],
)
def test_only_a_file_with_volatile_memory_is_asked(tmp_path: Path, source: str, asks: bool) -> None:
    file = tmp_path / "kata.cu"
    file.write_text(source)
    assert uses_volatile(SimpleNamespace(source=file)) is asks


# -- the clue --------------------------------------------------------------------------------------------------------


def made(form: str, result: str, operands: tuple[str, ...], line: int) -> Birth:
    return Birth(form, result, operands, Writer("k", "kata.cu", line, (0, 0, 0), (7, 0, 0)))


def said(found: list[Birth], in_a_pass: list[Birth], wrong: float = numpy.nan) -> str:
    """The clue on a sum that is ``wrong`` from 33 elements on, where calls note these births."""

    def answer(inputs: Any, sizes: Any) -> Any:
        return {"y": f32(inputs["x"].sum().reshape(1) if sizes["n"] <= 32 else numpy.array([wrong]))}

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        noted = (found if sizes["n"] > 32 else in_a_pass) if call.births else []
        return replace(outcome, births=tuple(noted))

    return clue(told(answer, of_sum(), bug=bug), "nan")


INFINITY, NAN = made("ex2.approx.f32", "inf", ("130",), 30), made("sub.f32", "nan", ("inf", "inf"), 37)
OTHER = made("lg2.approx.f32", "nan", ("-1",), 20)


def test_the_clue_names_the_first_nan_and_the_infinity_that_it_is_made_of() -> None:
    words = said([INFINITY, NAN], [])
    assert has(words, "line 37", "inf - inf", "sub.f32", "(7,0,0)", "line 30", "2^130")
    assert words.index("37") < words.index("30")


def test_the_clue_says_what_another_lane_of_the_row_has() -> None:
    other = replace(NAN.by, thread=(4, 0, 0))
    alone = made("sub.f32", "nan", ("-inf", "-inf"), 37)
    words = said([replace(alone, other=other, other_operands=("-inf", "1.5"))], [])
    assert has(words, "-inf - -inf (sub.f32)", "; thread (4,0,0), one of the four lanes", "has -inf - 1.5 there")
    assert "four lanes" not in said([replace(alone, other=other, other_operands=("-inf", "-inf"))], [])
    assert "four lanes" not in said([alone], [])


def test_what_a_case_that_passes_makes_too_is_not_named() -> None:
    assert "line 37" in said([OTHER, NAN], [OTHER]) and "line 20" in said([OTHER, NAN], [])
    assert said([OTHER], [OTHER]) == said([], []) == ""


def test_an_infinity_is_asked_for_where_no_element_is_nan() -> None:
    assert has(said([NAN, INFINITY], [], wrong=numpy.inf), "infinity", "line 30")
    assert said([NAN, INFINITY], [], wrong=5.0) == ""


@pytest.mark.parametrize("has_nan", [False, True])
def test_a_nan_in_the_place_of_an_infinity_is_not_one_that_must_be(has_nan: bool) -> None:
    """y = x that is nan for inf. Another element must be nan, which line 37 makes: line 20 is asked for without it."""

    def special(rng: Any, shape: Any, sizes: Any) -> numpy.ndarray:
        return numpy.resize([1.0, numpy.nan if has_nan else 2.0, numpy.inf, 3.0], shape)

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        x = numpy.frombuffer(bytes(call.buffers[0].given), numpy.float32)
        found = [NAN] * bool(numpy.isnan(x).any()) + [OTHER] * bool(numpy.isinf(x).any())
        return replace(outcome, births=tuple(found if call.births else ()))

    spec = of_sum(
        outputs=(Tensor("y", ("n",)),),
        values=(InputKind("special", special),),
        reference=lambda x, sizes: x,
        tolerance=Exact(),
    )
    verdict = told(
        lambda inputs, sizes: {"y": f32(numpy.where(numpy.isinf(inputs["x"]), numpy.nan, inputs["x"]))}, spec, bug=bug
    )
    assert (
        verdict.sizes == {"n": 3}
        and has(clue(verdict, "nan"), "first nan", "line 20")
        and "37" not in clue(verdict, "nan")
    )


@pytest.mark.parametrize(
    ("form", "operands", "words"),
    [
        ("fma.rn.f32", ("inf", "0", "1"), "inf * 0 + 1"),
        ("sqrt.approx.ftz.f32", ("-2",), "sqrt(-2)"),
        ("cvt.rn.f16x2.f32", ("70000",), "70000 converted to f16x2"),
        ("sin.approx.f32", ("inf",), "sin(inf)"),
    ],
)
def test_an_operation_with_its_values(form: str, operands: tuple[str, ...], words: str) -> None:
    assert operation(form, operands) == f"{words} ({form})"


# -- what nothing has set --------------------------------------------------------------------------------------------


def test_registers_that_are_read_and_never_set_before() -> None:
    """Not those that are set and read under one condition."""
    found = unset_lines((build(CAUSES) / "kata.ptx").read_text(), CAUSES.name)
    lines = [each.line for each in found]
    text = CAUSES.read_text().splitlines()
    kernel = next(number for number, line in enumerate(text, 1) if "unset_fragment_kernel" in line)
    assert {line_of(CAUSES, "unset_sum"), line_of(CAUSES, "unset_sum_stored")} <= set(lines)
    last = next(number for number, line in enumerate(text, 1) if "LAUNCHER(unset_fragment" in line)
    assert any(kernel < line < last for line in lines)
    assert max(lines) < last


def test_nvccs_warning_comes_first(tmp_path: Path) -> None:
    log = 'kata.cu(12): warning #549-D: variable "sum" is used before its value is set\n      sum += x[i];\n'
    assert warned(log + log) == [Unset(12, 'variable "sum" is used before its value is set')]
    program: Any = SimpleNamespace(ptx=tmp_path / "kata.ptx", source=CAUSES)
    assert [*of_unset(program)] == []
    program.ptx.write_text((build(CAUSES) / "kata.ptx").read_text())
    (tmp_path / "log.txt").write_text("")
    (found,) = of_unset(program)
    assert found.about == "unset" and found.line == line_of(CAUSES, "unset_sum")
    (tmp_path / "log.txt").write_text(log)
    (found,) = of_unset(program)
    assert (found.about, found.line) == ("unset", 12) and has(found.text, "sum", "12")
