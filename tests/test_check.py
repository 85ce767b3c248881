"""Kata + sandbox -> verdict, with a sandbox that computes in Python and has the bug that a test gives it.

What is tested is the search: that the smallest failing shape is found, which values and calls are tried, and in
what order. No compiler and no device is needed.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from facts import has

from grader.content.catalog import Kata
from grader.content.dtype import DTYPES
from grader.content.spec import (
    Accumulated,
    Exact,
    InputKind,
    Parameter,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    integers,
    normal,
)
from grader.devices import Call, Finding, Outcome
from grader.devices.counters import CallCounters, Launched, Writer
from grader.judge import case as case_module
from grader.judge import comparison as comparison_module
from grader.judge.case import Case, CaseKey, Expected
from grader.judge.check import check, prepare, prepare_drawn
from grader.judge.comparison import compare
from grader.judge.encoding import stored
from grader.judge.search import CALLS, FINDING_WORK, Search, SearchBudget, budget_for, named_keys, try_shape
from grader.sandbox.parent import Sandbox, SandboxError
from grader.verdict import Kind, Verdict

Arrays = dict[str, numpy.ndarray]
Answer = Callable[[Arrays, dict[str, Any]], Arrays]


@dataclass
class FakeSandbox:
    """A launcher written in Python. ``answer`` computes the outputs, ``bug`` may turn an outcome into another."""

    answer: Answer
    bug: Callable[[Call, Outcome, dict[str, Any]], Outcome] = lambda call, outcome, sizes: outcome
    printed: str = ""
    calls: list[Call] = field(default_factory=list)
    program: Any = field(
        default_factory=lambda: SimpleNamespace(device="none", source=Path(os.devnull), ptx=Path(os.devnull))
    )

    def call(self, call: Call) -> Outcome:
        self.calls.append(call)
        sizes = {scalar.name: scalar.value for scalar in call.scalars}
        inputs = {
            buffer.name: stored(bytes(buffer.given), DTYPES[buffer.dtype]).reshape(buffer.shape)
            for buffer in call.buffers
            if buffer.role == "in"
        }
        with numpy.errstate(all="ignore"):
            outputs = {name: value.tobytes() for name, value in self.answer(inputs, sizes).items()}
        return self.bug(call, Outcome(outputs=outputs), sizes)

    def close(self) -> None:
        """A launcher in Python keeps nothing, unless a test says so."""

    @property
    def shapes(self) -> list[tuple[float, ...]]:
        """The sizes of every case in the order in which they were first tried."""
        return list(dict.fromkeys(tuple(scalar.value for scalar in call.scalars) for call in self.calls))


def kata(*, multiples: Mapping[str, int] | None = None, elem: str = "f32") -> Kata:
    return Kata(
        name=f"add_{elem}", family="add", level="easy", elem=elem, root=Path("/nowhere"), multiples=multiples or {}
    )


def spec(**changes: Any) -> Spec:
    """c = a + b for n in 0..1000."""
    fields: dict[str, Any] = {
        "computes": "c = a + b",
        "inputs": (Tensor("a", ("n",)), Tensor("b", ("n",))),
        "outputs": (Tensor("c", ("n",)),),
        "sizes": {"n": Size(0, 1000)},
        "values": (InputKind("normal", normal()), InputKind("whole numbers", integers(1, 9))),
        "reference": lambda a, b, sizes: a + b,
        "tolerance": Exact(),
        "named_sizes": tuple({"n": n} for n in (0, 1, 2, 7, 33, 255, 256, 257, 999)),
        "work": lambda sizes: sizes["n"],
    }
    return Spec(**{**fields, **changes})


def add(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
    return {"c": inputs["a"] + inputs["b"]}


QUICK = SearchBudget(examples=10, shrink_work=1 << 40)


def run(
    sandbox: FakeSandbox,
    *,
    the_spec: Spec | None = None,
    the_kata: Kata | None = None,
    budget: SearchBudget = QUICK,
    **more: Any,
) -> Verdict:
    return check(the_kata or kata(), the_spec or spec(), sandbox, budget, **more)  # type: ignore[arg-type]


def broken(fails: Callable[[int], bool]) -> FakeSandbox:
    """Right, but for the last element wherever ``fails(n)``."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        c = inputs["a"] + inputs["b"]
        if fails(sizes["n"]):
            c[-1:] += 1
        return {"c": c}

    return FakeSandbox(answer)


# -- a right kernel --------------------------------------------------------------------------------------------------


def test_right_kernel_passes() -> None:
    sandbox = FakeSandbox(add)
    verdict = run(sandbox)
    assert verdict.passed and verdict.kind is Kind.PASS
    assert verdict.cases >= len(spec().named_sizes)
    assert len(sandbox.calls) == CALLS * verdict.cases


def test_named_shapes_come_first_and_in_order() -> None:
    sandbox = FakeSandbox(add)
    run(sandbox)
    edges = [(sizes["n"],) for sizes in spec().named_sizes]
    assert sandbox.shapes[: len(edges)] == edges


def test_further_shapes_are_drawn() -> None:
    sandbox = FakeSandbox(add)
    run(sandbox, budget=replace(QUICK, examples=30))
    drawn = sandbox.shapes[len(spec().named_sizes) :]
    assert len(drawn) >= 10 and all(0 <= n <= 1000 for (n,) in drawn)


def test_all_values_have_their_turn() -> None:
    """From shape to shape, between the first and the largest of them, which get every kind."""
    sandbox = FakeSandbox(add)
    run(sandbox)
    middle = {sizes["n"] for sizes in spec().named_sizes[2:-1]}
    whole = [
        bool((numpy.frombuffer(call.buffers[0].given, dtype=numpy.float32) % 1 == 0).all())
        for call in sandbox.calls[: CALLS * len(spec().named_sizes) : CALLS]
        if call.buffers[0].shape[0] in middle
    ]
    assert whole == [False, True, False, True, False, True]


def test_first_named_shape_with_elements_sees_all_values() -> None:
    sandbox = FakeSandbox(add)
    run(sandbox, budget=replace(QUICK, examples=1))
    calls = Counter(call.scalars[0].value for call in sandbox.calls)
    assert (calls[0], calls[1], calls[2]) == (CALLS, 2 * CALLS, CALLS)


def test_largest_named_shape_sees_all_values() -> None:
    sandbox = FakeSandbox(add)
    run(sandbox, budget=replace(QUICK, examples=1))
    last = spec().named_sizes[-1]["n"]
    contents = {bytes(call.buffers[0].data) for call in sandbox.calls if call.buffers[0].shape == (last,)}
    assert len(contents) >= len(spec().values)


def test_work_limit_leaves_large_shapes_out_of_what_is_drawn() -> None:
    sandbox = FakeSandbox(add)
    assert run(sandbox, budget=replace(QUICK, work_limit=100, examples=40)).passed
    assert max({*sandbox.shapes} - {(sizes["n"],) for sizes in spec().named_sizes}) <= (100,)


def test_large_shapes_are_for_those_who_ask() -> None:
    large = spec(large=({"n": 5000},))
    sandbox = FakeSandbox(add)
    run(sandbox, the_spec=large)
    assert (5000,) not in sandbox.shapes
    run(sandbox, the_spec=large, budget=replace(QUICK, large=True))
    assert (5000,) in sandbox.shapes


def test_exact_values_are_for_large_shapes_with_longer_sums() -> None:
    """Of two large shapes, only that with the longest sum also gets every kind that must be exact."""
    of = spec(
        inputs=(Tensor("a", ("n", "k")), Tensor("b", ("n", "k"))),
        sizes={"n": Size(0, 1000), "k": Size(1, 100)},
        values=(InputKind("normal", normal()), *(InputKind(name, integers(1, 9), exact=True) for name in "xyz")),
        tolerance=Accumulated(terms=lambda sizes: sizes["k"], magnitude=lambda a, b, sizes: abs(a)),
        named_sizes=tuple({"n": n, "k": 5} for n in (1, 2, 3, 4)),
        large=({"n": 5000, "k": 5}, {"n": 10, "k": 6}),
    )
    keys = list(named_keys(Search(kata(), of, FakeSandbox(add), replace(QUICK, large=2))))
    assert [(key.sizes[0][1], key.values) for key in keys if key.sizes[0][1] > 9] == [
        (5000, "normal"), (10, "x"), (10, "y"), (10, "z"),
    ]  # fmt: skip
    longer = replace(of, tolerance=Exact())  # without terms, there is one of each element
    keys = list(named_keys(Search(kata(), longer, FakeSandbox(add), replace(QUICK, large=1))))
    assert [key.values for key in keys if key.sizes[0][1] == 5000] == ["normal", "x", "y", "z"]


def test_only_as_many_named_shapes_as_asked_for() -> None:
    sandbox = FakeSandbox(add)
    run(sandbox, budget=replace(QUICK, named_sizes=3, examples=1))
    assert sandbox.shapes[:3] == [(0,), (1,), (2,)] and len(sandbox.shapes) <= 4


def test_a_gpu_tries_more_than_a_simulator() -> None:
    assert budget_for("gpu").large and not budget_for("sim").large
    assert budget_for("gpu").work_limit > budget_for("sim").work_limit
    assert budget_for("sim").thorough().examples > budget_for("sim").examples


def test_multiples_are_respected() -> None:
    """Named shapes that are no multiple are left out, drawn ones are multiples, and so is the smallest."""
    eights = kata(multiples={"n": 8})
    sandbox = FakeSandbox(add)
    assert run(sandbox, the_kata=eights).passed
    assert sandbox.shapes and all(n % 8 == 0 for (n,) in sandbox.shapes)
    assert run(broken(lambda n: n > 100), the_kata=eights).sizes == {"n": 104}


def test_least_size_is_respected() -> None:
    sandbox = FakeSandbox(add)
    run(sandbox, the_spec=spec(sizes={"n": Size(5, 50)}, named_sizes=({"n": 5},)))
    assert all(5 <= n <= 50 for (n,) in sandbox.shapes)


# -- the smallest failing shape --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fails", "smallest"),
    [
        (lambda n: n >= 1, 1),
        (lambda n: n >= 257, 257),
        (lambda n: n % 8 != 0, 1),
        (lambda n: n > 7 and n % 2 == 1, 9),
        (lambda n: n >= 225, 225),
        (lambda n: n >= 300, 300),
        (lambda n: n == 999, 999),
    ],
)
def test_smallest_failing_shape(fails: Callable[[int], bool], smallest: int) -> None:
    verdict = run(broken(fails))
    assert verdict.kind is Kind.WRONG_ANSWER
    assert verdict.sizes == {"n": smallest}
    assert verdict.mismatches[0].index == (smallest - 1,)


def test_shape_that_only_a_drawn_one_shows() -> None:
    """No named shape fails: hypothesis draws one, and makes it smaller."""
    verdict = run(broken(lambda n: 500 < n < 900), budget=replace(QUICK, examples=40))
    assert verdict.kind is Kind.WRONG_ANSWER and verdict.sizes == {"n": 501}


def test_smallest_of_two_sizes() -> None:
    two = spec(
        inputs=(Tensor("a", ("M", "N")), Tensor("b", ("M", "N"))),
        outputs=(Tensor("c", ("M", "N")),),
        sizes={"M": Size(1, 80), "N": Size(1, 80)},
        named_sizes=({"M": 1, "N": 1}, {"M": 64, "N": 70}),
        work=lambda sizes: sizes["M"] * sizes["N"],
    )

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        c = inputs["a"] + inputs["b"]
        c[:, 33:] = 0
        return {"c": c}

    verdict = run(FakeSandbox(answer), the_spec=two)
    assert verdict.sizes == {"M": 1, "N": 34}


def test_kind_stays_the_same_while_shapes_get_smaller() -> None:
    """A wrong answer for small n must not take the place of the crash that was found first."""

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        if sizes["n"] >= 100:
            return Outcome(findings=(Finding("crash", "trap", kernel="add_kernel"),))
        return outcome if sizes["n"] in (0, 1, 2, 7, 33) else Outcome(outputs={"c": b"\0" * len(outcome.outputs["c"])})

    verdict = run(FakeSandbox(add, bug))
    assert verdict.kind is Kind.CRASH and verdict.sizes == {"n": 100}


def test_time_out_is_not_made_smaller() -> None:
    """Every step would wait for the limit again."""

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return Outcome(findings=(Finding("time-out", "endless"),)) if sizes["n"] > 40 else outcome

    sandbox = FakeSandbox(add, bug)
    verdict = run(sandbox)
    assert verdict.kind is Kind.TIME_OUT and verdict.sizes == {"n": 255}
    assert sum(call.buffers[0].shape[0] > 40 for call in sandbox.calls) == 1


def test_smaller_shapes_are_sought_among_the_smaller_and_with_the_same_values() -> None:
    """Shape 7 has whole numbers; 3 is the smallest that fails with them, and no larger one is tried on the way."""
    sandbox = broken(lambda n: n >= 3)
    verdict = run(sandbox)
    assert (verdict.sizes, verdict.values) == ({"n": 3}, "whole numbers")
    assert max(sandbox.shapes) == (7,)


def executing(instructions: int, sandbox: FakeSandbox) -> FakeSandbox:
    """The same sandbox, each call of which executes so many warp instructions."""

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return replace(outcome, counters=CallCounters(1, instructions, instructions))

    return replace(sandbox, bug=bug)


@pytest.mark.parametrize(("instructions", "shrink_work"), [(0, 300), (1000, 4000)])
def test_search_for_a_smaller_shape_ends_after_so_much_work(instructions: int, shrink_work: int) -> None:
    """The smallest that was found by then is the answer, and it is one that fails."""
    only = spec(named_sizes=({"n": 999},))
    to_the_end = broken(lambda n: n > 20)
    assert run(to_the_end, the_spec=only).sizes == {"n": 21}
    sandbox = executing(instructions, broken(lambda n: n > 20))
    verdict = run(sandbox, the_spec=only, budget=replace(QUICK, shrink_work=shrink_work))
    assert verdict.kind is Kind.WRONG_ANSWER and 21 < verdict.sizes["n"] <= 999
    assert len(sandbox.calls) < len(to_the_end.calls)


def test_search_for_a_smaller_shape_counts_findings_alike() -> None:
    """How many instructions the other blocks had executed by then is left to chance."""

    def search(executed: Callable[[], int]) -> list[tuple[float, ...]]:
        def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
            findings = (Finding("race", "", kernel="add"),) if sizes["n"] > 20 else ()
            counters = CallCounters(1, executed() if findings else 1, 1)
            return replace(outcome, findings=findings, counters=counters)

        sandbox = FakeSandbox(add, bug)
        run(sandbox, the_spec=spec(named_sizes=({"n": 999},)), budget=replace(QUICK, shrink_work=5 * FINDING_WORK))
        return sandbox.shapes

    random = Random(1)
    assert search(lambda: 0) == search(lambda: random.getrandbits(40))


class Hectic:
    """A clock that is far ahead whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e4
        return self.now


@pytest.mark.parametrize("fails", [lambda n: False, lambda n: n > 77, lambda n: 500 < n < 900])
def test_no_clock_decides_anything(fails: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    at_ease, in_haste = broken(fails), broken(fails)
    expected = run(at_ease, budget=replace(QUICK, examples=40))
    with monkeypatch.context() as patch:
        for name in ("monotonic", "perf_counter", "time", "process_time"):
            patch.setattr(time, name, Hectic())
        verdict = run(in_haste, budget=replace(QUICK, examples=40))
    assert (verdict, in_haste.shapes) == (expected, at_ease.shapes)


def test_all_named_shapes_are_tried_however_many() -> None:
    """And however large: one that is more work than a drawn one may be is called once."""
    many = spec(named_sizes=tuple({"n": n} for n in range(0, 800, 7)))
    sandbox = FakeSandbox(add)
    verdict = run(sandbox, the_spec=many, budget=replace(QUICK, work_limit=300, examples=1))
    assert sandbox.shapes[: len(many.named_sizes)] == [(sizes["n"],) for sizes in many.named_sizes]
    calls = Counter(call.scalars[0].value for call in sandbox.calls)
    assert verdict.left_out == "" and {calls[n] for n in range(301, 800) if n % 7 == 0} == {1} and calls[14] == CALLS


def test_a_pass_says_which_named_shapes_were_left_out() -> None:
    verdict = run(FakeSandbox(add), budget=replace(QUICK, named_sizes=6))
    assert verdict.passed and has(verdict.left_out, "3 of 9", "n=256", "GPU")


def test_more_instructions_than_a_check_may_take_are_a_time_out() -> None:
    sandbox = executing(1_000_000, FakeSandbox(add))
    assert run(sandbox, budget=replace(QUICK, instructions=10**9)).passed
    sandbox.calls.clear()
    verdict = run(sandbox, budget=replace(QUICK, instructions=7_000_000))
    assert verdict.kind is Kind.TIME_OUT and has(verdict.summary, "4 cases", "7 million")
    assert len(sandbox.calls) == 8


def test_same_seed_same_search() -> None:
    first, second = FakeSandbox(add), FakeSandbox(add)
    run(first)
    run(second)
    assert first.calls == second.calls
    third = FakeSandbox(add)
    run(third, budget=replace(QUICK, seed=1))
    assert [call.buffers[0].data for call in third.calls] != [call.buffers[0].data for call in first.calls]


# -- verdicts --------------------------------------------------------------------------------------------------------


def test_what_is_drawn_does_not_depend_on_imported_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[tuple[float, ...]]:
        sandbox = FakeSandbox(add)
        assert run(sandbox, budget=replace(QUICK, examples=200)).passed
        return sandbox.shapes

    before = drawn()
    (tmp_path / "with_constants.py").write_text(f"NUMBERS = {[*range(500, 900, 3)]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("with_constants")
    assert drawn() == before


def test_finding_becomes_the_verdict() -> None:
    finding = Finding("out of bounds", "writes c[7]", kernel="add", line=12, block=(0, 0, 0), thread=(7, 0, 0), index=7)

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return replace(outcome, findings=(finding,)) if sizes["n"] == 7 else outcome

    verdict = run(FakeSandbox(add, bug, printed="hello"))
    assert (verdict.kind, verdict.summary, verdict.line) == (Kind.OUT_OF_BOUNDS, "writes c[7]", 12)
    assert (verdict.sizes, verdict.finding, verdict.printed) == ({"n": 7}, finding, "hello")


def test_notes_of_the_simulator_become_clues() -> None:
    notes = ("written so far: tile[0] to tile[31], the last on line 7", "the copy on line 9 has not arrived")
    found = Finding("uninitialised", "reads tile[32]", notes=notes)
    budget = SearchBudget(examples=1, diagnose=True)
    verdict = check(kata(), spec(), FakeSandbox(add, lambda *_: Outcome(findings=(found,))), budget)  # type: ignore[arg-type]
    assert {clue.about: clue.text for clue in verdict.clues} == {
        "written": "so far: tile[0] to tile[31], the last on line 7",
        "copies": notes[1],
    }


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.PASS, Kind.WRONG_ANSWER)])
def test_every_kind_of_finding(kind: Kind) -> None:
    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return Outcome(findings=(Finding(kind.value, "so it is"),))

    assert run(FakeSandbox(add, bug)).kind is kind


def test_right_answer_does_not_excuse_a_finding() -> None:
    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return replace(outcome, findings=(Finding("modified its input", "wrote to a[0]"),)) if sizes["n"] else outcome

    verdict = run(FakeSandbox(add, bug))
    assert verdict.kind is Kind.MODIFIED_INPUT and verdict.sizes == {"n": 1}


def twice_other_bits(outcome: Outcome, **about: Any) -> Verdict:
    """Both answers are within the tolerance, and two calls on the same input give different bits."""
    wide = spec(tolerance=Accumulated(terms=lambda sizes: 1000, magnitude=lambda a, b, sizes: abs(a) + abs(b)))
    seen: dict[bytes, int] = {}

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        c = inputs["a"] + inputs["b"]
        key = inputs["a"].tobytes()
        seen[key] = seen.get(key, 0) + 1
        return {"c": c * (1 + 2.0**-22) if seen[key] == 2 and sizes["n"] >= 3 else c}

    def seen_by(call: Call, made: Outcome, sizes: dict[str, Any]) -> Outcome:
        return replace(made, counters=outcome.counters, order=outcome.order)

    explain = about.pop("explain", None)
    return run(FakeSandbox(answer, seen_by), the_spec=replace(wide, **about), explain=explain)


ATOMICS = Writer("kernel", "kata.cu", 12)
COUNTED = CallCounters(1, 10, 320)


def test_other_bits_that_no_atomic_explains_are_a_race() -> None:
    verdict = twice_other_bits(Outcome(counters=COUNTED))
    assert verdict.kind is Kind.RACE and "different bits" in verdict.summary


def test_other_bits_of_atomics_are_a_pass_with_a_remark() -> None:
    verdict = twice_other_bits(Outcome(counters=COUNTED, order=ATOMICS))
    assert verdict.passed and has(verdict.remark, "not repeatable", "atomics", "line 12")


def test_other_bits_where_the_kata_asks_for_the_same() -> None:
    verdict = twice_other_bits(Outcome(counters=COUNTED, order=ATOMICS), repeatable=True)
    assert (verdict.kind, verdict.line) == (Kind.NOT_REPEATABLE, 12)


def test_other_bits_that_the_kata_means_are_not_spoken_of() -> None:
    verdict = twice_other_bits(Outcome(counters=COUNTED), deterministic=False)
    assert verdict.passed and not verdict.remark


def test_a_gpu_asks_the_simulator_why_bits_differ() -> None:
    asked: list[CaseKey] = []

    def explain(shape: CaseKey) -> Outcome | None:
        asked.append(shape)
        return answers.pop()

    race = Outcome(findings=(Finding("race", "race on y[0]", file="kata.cu", line=7),))
    answers: list[Outcome | None] = [Outcome(order=ATOMICS)] * 99
    assert has(twice_other_bits(Outcome(), explain=explain).remark, "line 12")
    assert asked
    answers = [race] * 99
    verdict = twice_other_bits(Outcome(), explain=explain)
    assert (verdict.kind, verdict.line) == (Kind.RACE, 7)
    answers = [Outcome()] * 99
    assert twice_other_bits(Outcome(), explain=explain).kind is Kind.RACE
    answers = [None] * 99
    assert has(twice_other_bits(Outcome(), explain=explain).remark, "not known")


def test_second_call_is_judged_too() -> None:
    """A kernel that works only on its first call."""
    counts: dict[bytes, int] = {}

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        key = inputs["a"].tobytes()
        counts[key] = counts.get(key, 0) + 1
        return {"c": inputs["a"] + inputs["b"] if counts[key] % 2 else numpy.zeros_like(inputs["a"])}

    assert run(FakeSandbox(answer)).kind is Kind.WRONG_ANSWER


def test_launcher_that_computes_nothing() -> None:
    """What comes back is what the grader itself had put there."""

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return Outcome(outputs={buffer.name: bytes(buffer.data) for buffer in call.buffers if buffer.role == "out"})

    verdict = run(FakeSandbox(add, bug))
    assert verdict.kind is Kind.WRONG_ANSWER and verdict.sizes == {"n": 1}
    assert verdict.mismatches[0].got is None and verdict.pattern is None


def test_nan_never_passes() -> None:
    nan = FakeSandbox(lambda inputs, sizes: {"c": inputs["a"] * float("nan")})
    loose = spec(tolerance=Accumulated(terms=lambda sizes: 1, magnitude=lambda a, b, sizes: abs(a + b) + 1e30))
    assert run(nan).kind is Kind.WRONG_ANSWER
    assert run(nan, the_spec=loose).kind is Kind.WRONG_ANSWER


def test_broken_sandbox_is_an_exception() -> None:
    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        raise SandboxError("no engine")

    with pytest.raises(SandboxError, match="no engine"):
        run(FakeSandbox(add, bug))


def test_passing_share_is_the_largest_seen() -> None:
    bound = spec(
        tolerance=Accumulated(terms=lambda sizes: 1, magnitude=lambda a, b, sizes: abs(a) + abs(b) + 1, c=1.0),
        values=(InputKind("whole numbers", integers(1, 1)),),
    )
    # 2 +- 2^-24 * (2 + 3) is right; half of that is off by a half of what is allowed.
    half = FakeSandbox(lambda inputs, sizes: {"c": inputs["a"] + inputs["b"] + (2.0**-22 if sizes["n"] == 7 else 0.0)})
    verdict = run(half, the_spec=bound)
    assert verdict.passed and verdict.error_share == pytest.approx(2.0**-22 / (5 * 2.0**-24))


def test_wrong_answer_tells_its_share() -> None:
    bound = spec(tolerance=Accumulated(terms=lambda sizes: 1, magnitude=lambda a, b, sizes: abs(a) + abs(b), c=4.0))
    far = FakeSandbox(
        lambda inputs, sizes: {"c": (inputs["a"] + inputs["b"]).astype(numpy.float16).astype(numpy.float32)}
    )
    verdict = run(far, the_spec=bound)
    assert verdict.kind is Kind.WRONG_ANSWER and 4.0 <= verdict.error_share < 2.0**14


def test_who_waits_hears_of_a_failure_before_its_cause_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of a pass, nor where no cause is looked for."""
    said: list[Verdict] = []
    off = FakeSandbox(lambda inputs, sizes: {"c": inputs["a"] - inputs["b"]})
    monkeypatch.setattr(
        "grader.judge.cause.with_cause", lambda search, shape, verdict: replace(verdict, summary="late")
    )
    for box, budget in ((off, replace(QUICK, diagnose=True)), (FakeSandbox(add), QUICK), (off, QUICK)):
        check(kata(), spec(), box, budget, on_failure=said.append)  # type: ignore[arg-type]
    [heard] = said
    assert heard.kind is Kind.WRONG_ANSWER and heard.sizes and heard.summary != "late"


def test_exact_values_have_no_tolerance() -> None:
    loose = spec(
        tolerance=Accumulated(terms=lambda sizes: 1000, magnitude=lambda a, b, sizes: abs(a) + abs(b), c=1e6),
        values=(InputKind("whole numbers", integers(1, 9), exact=True),),
    )
    off = FakeSandbox(lambda inputs, sizes: {"c": (inputs["a"] + inputs["b"]) * (1 + 2.0**-20)})
    verdict = run(off, the_spec=loose)
    assert verdict.kind is Kind.WRONG_ANSWER and verdict.sizes == {"n": 1}


@pytest.mark.parametrize(("launches", "written", "named"), [(0, False, True), (1, False, False), (0, True, False)])
def test_a_launcher_that_launches_nothing_is_told_so(launches: int, written: bool, named: bool) -> None:
    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        fill = 1 if written else DTYPES["f32"].poison
        outputs = {name: bytes([fill]) * len(data) for name, data in outcome.outputs.items()}
        launched = (Launched("add_kernel", (1, 1, 1), (32, 1, 1), 0),) * launches
        return replace(outcome, outputs=outputs, counters=CallCounters(launches, 0, 0), launched=launched)

    verdict = run(FakeSandbox(add, bug))
    assert verdict.kind is Kind.WRONG_ANSWER and verdict.sizes == {"n": 1}
    assert ("launches no kernel" in verdict.summary) is named


# -- the memory ----------------------------------------------------------------------------------------------------


def test_failed_shape_is_tried_first_the_next_time(tmp_path: Path) -> None:
    fails = lambda n: 500 < n < 900  # noqa: E731
    budget = replace(QUICK, examples=40)
    assert run(broken(fails), budget=budget, last_failure=tmp_path / "db").sizes == {"n": 501}
    again = broken(fails)
    assert run(again, budget=budget, last_failure=tmp_path / "db").sizes == {"n": 501}
    assert again.shapes[0] == (501,)


def test_shape_that_fails_no_more_is_forgotten_without_harm(tmp_path: Path) -> None:
    budget = replace(QUICK, examples=40)
    run(broken(lambda n: 500 < n < 900), budget=budget, last_failure=tmp_path / "db")
    assert run(FakeSandbox(add), budget=budget, last_failure=tmp_path / "db").passed


def test_failure_of_a_named_shape_is_remembered_too(tmp_path: Path) -> None:
    run(broken(lambda n: n >= 257), last_failure=tmp_path / "db")
    again = broken(lambda n: n >= 257)
    run(again, last_failure=tmp_path / "db")
    assert again.shapes[0] == (257,)


def test_database_that_was_made_for_other_shapes_is_no_obstacle(tmp_path: Path) -> None:
    run(broken(lambda n: n >= 257), last_failure=tmp_path / "db")
    assert run(FakeSandbox(add), the_kata=kata(multiples={"n": 8}), last_failure=tmp_path / "db").passed


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"sizes": [["m", 1]], "values": "normal", "seed": 0}']
)
def test_memory_that_means_nothing_is_no_obstacle(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(content)
    assert run(FakeSandbox(add), last_failure=tmp_path / "db").passed
    (tmp_path / "db").write_bytes(content)
    assert run(broken(lambda n: n >= 257), last_failure=tmp_path / "db").sizes == {"n": 257}


def test_memory_that_cannot_be_kept_is_no_obstacle(tmp_path: Path) -> None:
    """A file stands where its folder should be."""
    (tmp_path / "file").touch()
    assert run(broken(lambda n: n >= 257), last_failure=tmp_path / "file" / "db").sizes == {"n": 257}
    assert run(FakeSandbox(add), last_failure=tmp_path / "file" / "db").passed


# -- one case --------------------------------------------------------------------------------------------------------


def calls_of(shape: CaseKey, **more: Any) -> list[Call]:
    sandbox = FakeSandbox(add)
    verdict = try_shape(Search(kata(), more.pop("the_spec", spec()), sandbox, QUICK), shape)  # type: ignore[arg-type]
    assert verdict.passed
    return sandbox.calls


def test_two_calls_on_the_same_contents_with_other_pointers_and_order() -> None:
    first, second = calls_of(CaseKey((("n", 100),), "normal", 3))
    assert [buffer.data for buffer in first.buffers] == [buffer.data for buffer in second.buffers]
    assert all(a.offset_bytes != b.offset_bytes for a, b in zip(first.buffers, second.buffers, strict=True))
    assert first.seed != second.seed


def test_pointers_are_aligned_as_promised_and_to_no_more() -> None:
    for align in (4, 16, 32):
        aligned = spec(inputs=(Tensor("a", ("n",), align=align), Tensor("b", ("n",), align=align)))
        for call in calls_of(CaseKey((("n", 9),), "normal", 0), the_spec=aligned):
            assert [buffer.offset_bytes % align for buffer in call.buffers[:2]] == [0, 0]
            assert all(buffer.offset_bytes % (2 * align) for buffer in call.buffers[:2])


def test_outputs_come_poisoned() -> None:
    (c,) = [buffer for buffer in calls_of(CaseKey((("n", 4),), "normal", 0))[0].buffers if buffer.role == "out"]
    assert bytes(c.data) == b"\xff" * 16
    assert numpy.isnan(numpy.frombuffer(bytes(c.data), dtype=numpy.float32)).all()


def test_arguments_in_the_order_of_the_signature() -> None:
    with_factor = spec(
        sizes={"n": Size(0, 9), "m": Size(0, 9)},
        named_sizes=({"n": 1, "m": 2},),
        parameters=(Parameter("eps", "float", 0.5),),
    )
    call = calls_of(CaseKey((("n", 3), ("m", 2)), "normal", 0), the_spec=with_factor)[0]
    assert [buffer.name for buffer in call.buffers] == ["a", "b", "c"]
    assert [(scalar.name, scalar.ctype, scalar.value) for scalar in call.scalars] == [
        ("n", "int", 3),
        ("m", "int", 2),
        ("eps", "float", 0.5),
    ]


def test_inputs_are_rounded_before_the_reference_sees_them() -> None:
    """In half, 1/3 is not 1/3: the reference adds what the kernel adds."""
    half = kata(elem="f16")
    third = spec(values=(InputKind("thirds", lambda numbers, shape, sizes: numpy.full(shape, 1 / 3)),))
    case = Case(half, third, CaseKey((("n", 2),), "thirds", 0))
    assert case.expected[0].value.tolist() == [2 * float(numpy.float16(1 / 3))] * 2
    assert case.inputs["a"].dtype == numpy.float16


@pytest.mark.parametrize("elem", ["f32", "f64"])
def test_a_reference_cannot_write_to_what_it_gets(elem: str) -> None:
    """So nothing that the kernel gets is spoilt, and no bound."""

    def careless(a: numpy.ndarray, b: numpy.ndarray, sizes: Sizes) -> numpy.ndarray:
        a += b
        return a

    case = Case(kata(elem=elem), spec(reference=careless), CaseKey((("n", 50),), "normal", 1))
    with pytest.raises(ValueError, match="read-only"):
        case.expected  # noqa: B018


def test_tolerance_is_what_the_formula_says() -> None:
    summed = spec(
        outputs=(Tensor("c", (1,), "acc"),),
        reference=lambda a, b, sizes: (a + b).sum().reshape(1),
        tolerance=Accumulated(
            terms=lambda sizes: sizes["n"], magnitude=lambda a, b, sizes: (abs(a) + abs(b)).sum().reshape(1)
        ),
        values=(InputKind("ones", integers(1, 1)), InputKind("exact", integers(1, 1), exact=True)),
    )
    for n, growth in ((9, 9.0), (64, 64.0), (400, 160.0)):
        bound = Case(kata(), summed, CaseKey((("n", n),), "ones", 0)).expected[0].bound
        assert bound is not None
        assert bound.item() == pytest.approx(4 * (2.0**-24 * 2 * n + growth * 2.0**-24 * 2 * n))
    assert Case(kata(), summed, CaseKey((("n", 9),), "exact", 0)).expected[0].bound is None


def test_a_large_answer_is_worked_out_and_compared_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    tolerance = Accumulated(terms=lambda sizes: 4, magnitude=lambda a, b, sizes: abs(a) + abs(b))
    sliced = spec(tolerance=tolerance, slice_dim="n")
    key = CaseKey((("n", 1000),), "normal", 1)
    (whole,) = Case(kata(), spec(tolerance=tolerance), key).expected
    calls: list[int] = []
    reference = sliced.reference

    def counted(**inputs: Any) -> Any:
        calls.append(inputs["sizes"]["n"])
        return reference(**inputs)

    monkeypatch.setattr(case_module, "LARGE_ELEMENTS", 500)
    monkeypatch.setattr(case_module, "SLICE_ELEMENTS", 300)
    monkeypatch.setattr(comparison_module, "BLOCK", 128)
    (slices,) = Case(kata(), replace(sliced, reference=counted), key).expected
    assert sorted(calls) == [100, 300, 300, 300]
    assert numpy.array_equal(slices.value, whole.value) and numpy.array_equal(slices.bound, whole.bound)
    answer = whole.value.astype(numpy.float32)
    assert compare(answer.tobytes(), slices).wrong == 0
    answer[[3, 700]] += 1
    found = compare(answer.tobytes(), slices)
    assert (found.wrong, [item.index for item in found.mismatches]) == (2, [(3,), (700,)]) and found.error_share > 1e3


def test_seed_gives_the_same_numbers() -> None:
    shape = CaseKey((("n", 20),), "normal", 5)
    first, second = (Case(kata(), spec(), shape).inputs["a"] for _ in range(2))
    assert numpy.array_equal(first, second)
    assert not numpy.array_equal(first, Case(kata(), spec(), replace(shape, seed=6)).inputs["a"])
    assert numpy.array_equal(Rng(1).normal((3,)), Rng(1).normal((3,)))


def test_sandbox_has_what_the_check_uses() -> None:
    """The stand-in of these tests offers no more than the real one."""
    assert hasattr(Sandbox("sim"), "call") and hasattr(Sandbox("sim"), "printed")


def test_wrong_elements_are_watched_once_more_and_name_their_writer() -> None:
    def wrong(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        writers = {f"{name}[{index}]": WRITER for name, index in call.watch}
        return Outcome({"c": b"\0" * len(outcome.outputs["c"])}, writers=writers)

    sandbox = FakeSandbox(lambda arrays, sizes: {"c": arrays["a"] + arrays["b"]}, wrong)
    verdict = check(kata(), spec(named_sizes=({"n": 3},)), sandbox, SearchBudget(watch=True))  # type: ignore[arg-type]
    assert {item.writer for item in verdict.mismatches} == {"block (1,0,0) thread (2,0,0), line 17"}
    assert sandbox.calls[-1].watch == tuple(("c", item.index[0]) for item in verdict.mismatches)
    assert sum(bool(call.watch) for call in sandbox.calls) == 1


WRITER = Writer("add_kernel", "kata.cu", 17, (1, 0, 0), (2, 0, 0))


def test_answers_that_were_prepared_are_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[CaseKey] = []
    original = Case._worked_out

    def noted(case: Case) -> tuple[Expected, ...]:
        worked.append(case.shape)
        return original(case)

    monkeypatch.setattr(Case, "_worked_out", noted)
    the_spec, turns = spec(), iter([True, True, False])
    prepare(kata(), the_spec, QUICK, lambda: next(turns))
    assert len(worked) == 2
    prepare(kata(), the_spec, QUICK, lambda: True)
    prepared = [*worked]
    assert len(prepared) == len(set(prepared)) >= len(the_spec.named_sizes)
    assert check(kata(), the_spec, FakeSandbox(add), QUICK).passed  # type: ignore[arg-type]
    assert len(worked) > len(prepared) and not set(worked[len(prepared) :]) & set(prepared)  # the drawn ones alone
    other = replace(QUICK, seed=7)
    turns = iter([True, True])
    worked.clear()
    prepare_drawn(kata(), the_spec, other, lambda: next(turns, False))
    assert next(turns, None) is None and 1 <= len(worked) <= 2, "it ends in the middle, too"
    prepare_drawn(kata(), the_spec, other, lambda: True)
    prepare(kata(), the_spec, other, lambda: True)
    prepared = [*worked]
    assert check(kata(), the_spec, FakeSandbox(add), other).passed and worked == prepared  # type: ignore[arg-type]


def test_the_first_search_of_a_process_leaves_the_heap_as_it_was_and_warns_of_nothing() -> None:
    """hypothesis warns of a random that nothing refers to, and finds no references in what is frozen."""
    script = "import gc, warnings, hypothesis, numpy; from grader.judge.search import rehearse; "
    script += "warnings.simplefilter('error'); rehearse(); print(gc.get_freeze_count())"
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
