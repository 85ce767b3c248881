"""Kata + sandbox with a bug -> clues: what is said of the cause, and that nothing is said which is not so.

The launchers are written in Python, as in test_check.py: no compiler and no device is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import passed_before
import pytest
from facts import has
from test_check import Arrays, FakeSandbox

from grader.content.catalog import Kata, load_catalog
from grader.content.spec import Accumulated, Exact, InputKind, Size, Spec, Tensor, integers, load_spec, normal
from grader.devices import Call, Finding, Limits, Outcome
from grader.devices.counters import CallCounters, Launched, Writer
from grader.judge import cause
from grader.judge import lab as lab_module
from grader.judge.case import Case, CaseKey
from grader.judge.check import check
from grader.judge.comparison import compared
from grader.judge.encoding import encode
from grader.judge.lab import Judged, Lab, in_order
from grader.judge.near_misses import answers_of, near_miss
from grader.judge.neighbours import describe_sizes
from grader.judge.search import SearchBudget
from grader.judge.writers import told_apart
from grader.verdict import Clue, Kind, Verdict

pytestmark = passed_before.REPOSITORY

BUDGET = SearchBudget(examples=10, shrink_work=1 << 40, diagnose=True)
VALUES = (InputKind("normal", normal(mean=1.0)), InputKind("whole numbers", integers(1, 4), exact=True))


def of_sum(**more: Any) -> Spec:
    """y = sum of x, n in 1..400."""
    fields: dict[str, Any] = {
        "computes": "y = sum of x",
        "inputs": (Tensor("x", ("n",)),),
        "outputs": (Tensor("y", (1,)),),
        "sizes": {"n": Size(1, 400)},
        "values": VALUES,
        "reference": lambda x, sizes: x.sum().reshape(1),
        "tolerance": Accumulated(terms=lambda sizes: sizes["n"], magnitude=lambda x, sizes: abs(x).sum().reshape(1)),
        "named_sizes": tuple({"n": n} for n in (1, 2, 3, 31, 32, 33, 64, 65, 256, 257)),
        "work": lambda sizes: sizes["n"],
    }
    return Spec(**{**fields, **more})


def of_product(**more: Any) -> Spec:
    """C = A @ B."""
    fields: dict[str, Any] = {
        "computes": "C = A @ B",
        "inputs": (Tensor("A", ("M", "K")), Tensor("B", ("K", "N"))),
        "outputs": (Tensor("C", ("M", "N")),),
        "sizes": {"M": Size(1, 40), "N": Size(1, 40), "K": Size(1, 40)},
        "values": VALUES,
        "reference": lambda A, B, sizes: A @ B,
        "tolerance": Accumulated(terms=lambda sizes: sizes["K"], magnitude=lambda A, B, sizes: abs(A) @ abs(B)),
        "named_sizes": tuple({"M": m, "N": n, "K": k} for m, n, k in ((1, 1, 1), (3, 5, 7), (16, 16, 16), (33, 8, 20))),
        "work": lambda sizes: sizes["M"] * sizes["N"] * sizes["K"],
    }
    return Spec(**{**fields, **more})


def of_copy(**more: Any) -> Spec:
    """y = x transposed."""
    fields: dict[str, Any] = {
        "computes": "y = x transposed",
        "inputs": (Tensor("x", ("M", "N")),),
        "outputs": (Tensor("y", ("N", "M")),),
        "sizes": {"M": Size(1, 60), "N": Size(1, 60)},
        "values": (InputKind("normal", normal(mean=1.0)),),
        "reference": lambda x, sizes: x.T,
        "tolerance": Exact(signed_zeros=True),
        "named_sizes": tuple({"M": m, "N": n} for m, n in ((1, 1), (1, 7), (4, 4), (5, 9), (33, 34))),
        "work": lambda sizes: sizes["M"] * sizes["N"],
    }
    return Spec(**{**fields, **more})


def of_softmax(**more: Any) -> Spec:
    def softmax(x: numpy.ndarray, sizes: Mapping[str, int]) -> numpy.ndarray:
        weight = numpy.exp(x - x.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def base_two(x: numpy.ndarray, sizes: Mapping[str, int]) -> numpy.ndarray:
        weight = numpy.exp2(x - x.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    fields: dict[str, Any] = {
        "computes": "y = softmax of the rows of x",
        "inputs": (Tensor("x", ("rows", "cols")),),
        "outputs": (Tensor("y", ("rows", "cols")),),
        "sizes": {"rows": Size(1, 9), "cols": Size(1, 70)},
        "values": (InputKind("normal", normal(mean=1.0)),),
        "reference": softmax,
        "tolerance": Accumulated(terms=lambda sizes: 8, magnitude=lambda x, sizes: softmax(x, sizes)),
        "named_sizes": tuple({"rows": m, "cols": n} for m, n in ((1, 1), (2, 3), (4, 33))),
        "work": lambda sizes: sizes["rows"] * sizes["cols"],
        "near_misses": {
            "powers of 2 in place of e": base_two,
            "powers of 2, once more": lambda x, sizes: base_two(x, sizes) * 1.5,
            "the scale left out": lambda x, sizes: softmax(2 * x, sizes),
        },
    }
    return Spec(**{**fields, **more})


def told(answer: Callable[[Arrays, dict[str, Any]], Arrays], spec: Spec, *, elem: str = "f32", **more: Any) -> Verdict:
    """The verdict on a launcher that is wrong."""
    kata = Kata(name="mine", family="mine", level="easy", elem=elem, root=Path("/nowhere"))
    sandbox = FakeSandbox(answer, **more)
    verdict = check(kata, spec, sandbox, BUDGET)  # type: ignore[arg-type]
    assert verdict.kind is Kind.WRONG_ANSWER
    assert len(sandbox.calls) < 2 * lab_module.CALLS + 400
    return verdict


def clue(verdict: Verdict, about: str) -> str:
    """What all clues about something say; empty where there is none."""
    return "\n".join(each.text for each in verdict.clues if each.about == about)


def f32(value: numpy.ndarray) -> numpy.ndarray:
    return numpy.ascontiguousarray(value.astype(numpy.float32))


# -- sums ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "n", "facts"),
    [
        (lambda n: numpy.arange(n) < 128, 129, ["x[128] is not in the sum", "y[0]"]),
        (lambda n: numpy.arange(n) != 3, 4, ["x[3] is not in the sum"]),
        (lambda n: 1 + (numpy.arange(n) == 0), 1, ["x[0] counts 2 times"]),
        (lambda n: 1 + (numpy.arange(n) // 32 == 1), 33, ["x[32] counts 2 times"]),
    ],
)
def test_terms_of_a_sum(weights: Callable[[int], numpy.ndarray], n: int, facts: list[str]) -> None:
    verdict = told(lambda inputs, sizes: {"y": f32((inputs["x"] * weights(sizes["n"])).sum().reshape(1))}, of_sum())
    assert dict(verdict.sizes) == {"n": n}
    assert has(clue(verdict, "probe"), *facts)


def test_a_sum_that_begins_with_something_else() -> None:
    verdict = told(lambda inputs, sizes: {"y": f32(inputs["x"].sum().reshape(1) + 5)}, of_sum())
    assert has(clue(verdict, "probe"), "with x all 0", "y[0] is 5")
    assert has(clue(verdict, "relation"), "5 too large", "cases")


def test_a_sum_whose_terms_are_right_gets_no_clue_about_them() -> None:
    """What is wrong appears with other values only: no probe shows it, and none is taken for its cause."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"y": f32(numpy.sqrt((inputs["x"].astype(float) ** 2).sum()).reshape(1))}

    assert clue(told(answer, of_sum()), "probe") == ""


def product(change: Callable[[numpy.ndarray, numpy.ndarray], numpy.ndarray]) -> Callable[..., Arrays]:
    return lambda inputs, sizes: {"C": f32(change(inputs["A"].astype(float), inputs["B"].astype(float)))}


def test_a_term_of_a_product_that_is_missing() -> None:
    verdict = told(product(lambda A, B: A[:, :4] @ B[:4]), of_product())
    assert has(clue(verdict, "probe"), "is not in the sum for C[0, 0]", "A[0, ")


def test_a_product_with_another_row() -> None:
    """Row 4 of B is taken where row 0 is meant, and the other way round: no term is missing."""

    def swapped(A: numpy.ndarray, B: numpy.ndarray) -> numpy.ndarray:
        order = [*range(len(B))]
        if len(B) > 4:
            order[0], order[4] = 4, 0
        return A @ B[order]

    verdict = told(product(swapped), of_product())
    assert verdict.sizes["K"] == 5
    assert has(clue(verdict, "probe"), "A[0, 0] is multiplied with B[4, 0], not with B[0, 0]")


# -- copies ----------------------------------------------------------------------------------------------------------


def test_a_copy_of_another_element() -> None:
    verdict = told(lambda inputs, sizes: {"y": f32(inputs["x"].reshape(sizes["N"], sizes["M"]))}, of_copy())
    assert has(clue(verdict, "probe"), "y[0, 1] got x[0, 1], expected x[1, 0]")


def test_a_copy_that_is_off_by_one_everywhere() -> None:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"y": f32(numpy.roll(inputs["x"], -1, axis=1).T if sizes["N"] > 4 else inputs["x"].T)}

    verdict = told(answer, of_copy())
    assert has(clue(verdict, "probe"), "y[0, 0] got x[0, 1], expected x[0, 0]")


def test_a_copy_that_is_added_to() -> None:
    """y = x transposed + b: with b at 0 the copies show."""
    spec = of_copy(
        inputs=(Tensor("x", ("M", "N")), Tensor("b", ("M",))),
        reference=lambda x, b, sizes: x.T + b,
        tolerance=Accumulated(terms=lambda sizes: 2, magnitude=lambda x, b, sizes: abs(x.T) + abs(b)),
    )
    verdict = told(lambda inputs, sizes: {"y": f32(numpy.roll(inputs["x"].T, 1, axis=1) + inputs["b"])}, spec)
    assert "y[0, 0] got x[1, 0], expected x[0, 0]" in clue(verdict, "probe")


def test_findings_at_other_sizes_leave_the_failing_one_its_probe() -> None:
    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        if sizes["M"] * sizes["N"] <= 7:
            return outcome
        return Outcome(findings=(Finding(kind=Kind.RACE.value, message="race on y[0]"),))

    kata = Kata(name="mine", family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    spec = of_copy(named_sizes=({"M": 1, "N": 7},), sizes={"M": Size(1, 1), "N": Size(2, 60)})
    sandbox = FakeSandbox(lambda inputs, sizes: {"y": f32(numpy.roll(inputs["x"].T, 1, axis=0))}, bug=bug)
    verdict = check(kata, spec, sandbox, BUDGET)  # type: ignore[arg-type]
    assert verdict.kind is Kind.WRONG_ANSWER
    assert "expected x[0, 0]" in clue(verdict, "probe")


def test_a_copy_whose_smallest_case_has_nothing_else_to_copy() -> None:
    """Elements that lie past the input become 0: only a larger case shows where they are taken from."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        later = numpy.zeros_like(inputs["x"])
        later[:-3] = inputs["x"][3:]
        return {"y": f32(later.T)}

    words = clue(told(answer, of_copy()), "probe")
    assert "got x[3, 0], expected x[0, 0]" in words and words.startswith("at M=")


def test_terms_of_a_sum_that_is_added_to_something() -> None:
    spec = of_sum(
        inputs=(Tensor("b", (1,)), Tensor("x", ("n",))),
        reference=lambda b, x, sizes: b + x.sum(),
        tolerance=Accumulated(terms=lambda sizes: sizes["n"], magnitude=lambda b, x, sizes: abs(b) + abs(x).sum()),
    )
    verdict = told(lambda inputs, sizes: {"y": f32(inputs["b"] + inputs["x"].sum() + inputs["x"][2:3].sum())}, spec)
    assert "x[2] counts 2 times in y[0]" in clue(verdict, "probe")


def of_scaled(**more: Any) -> Spec:
    """y = the sum of q * k, times v."""
    return of_sum(
        inputs=(Tensor("q", ("n",)), Tensor("k", ("n",)), Tensor("v", (4,))),
        outputs=(Tensor("y", (4,)),),
        reference=lambda q, k, v, sizes: (q * k).sum() * v,
        tolerance=Accumulated(
            terms=lambda sizes: sizes["n"], magnitude=lambda q, k, v, sizes: abs(q * k).sum() * abs(v) + 1e-3
        ),
        **more,
    )


def scaled(change: Callable[..., numpy.ndarray], spec: Spec | None = None) -> str:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"y": f32(change(*(inputs[name].astype(float) for name in ("q", "k", "v"))))}

    return clue(told(answer, spec or of_scaled()), "probe")


def test_a_coefficient_of_as_many_is_no_coefficient_of_each() -> None:
    """Of n = 4, the sum of q * k is 4 where all are 1, which is what v[0] to v[3] would give if each counted once."""
    spec = of_scaled(named_sizes=tuple({"n": n} for n in (4, 8, 16)))
    spec = replace(spec, inputs=tuple(reversed(spec.inputs)), sizes={"n": Size(4, 40)})
    assert scaled(lambda q, k, v: 2 * (q * k).sum() * v, spec) == "v[0] counts 2 times in y[0]"


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: 1227 * (q * k).sum() * v,
        lambda q, k, v: (q * k).sum() * v + q[0] * k[0] ** 3 * v**2,  # twice where all are 1
    ],
)
def test_a_number_that_is_no_count_is_not_said(change: Callable[..., numpy.ndarray]) -> None:
    assert "counts" not in scaled(change)


def test_of_a_product_that_is_0_no_factor_is_blamed() -> None:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        q, k, v = (inputs[name].astype(float) for name in ("q", "k", "v"))
        return {"y": f32((q * k).sum() * v * (numpy.arange(4) != 1))}

    words = clue(told(answer, of_scaled()), "probe")
    assert words == "y[1] is 0 for all q, k and v that were tried"


def test_a_product_that_is_0_in_small_cases_alone_is_asked_about_in_a_larger_one() -> None:
    """The scale of the row eight below is taken, and past the last row it is 0."""
    spec = of_sum(
        inputs=(Tensor("s", ("n",)), Tensor("t", (1,))),
        outputs=(Tensor("y", ("n",)),),
        sizes={"n": Size(1, 20)},
        reference=lambda s, t, sizes: s * t,
        tolerance=Accumulated(terms=lambda sizes: 1, magnitude=lambda s, t, sizes: abs(s * t)),
        named_sizes=tuple({"n": n} for n in (1, 2, 7, 20)),
    )

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        later = numpy.concatenate([inputs["s"][8:], numpy.zeros(8)])[: sizes["n"]]
        return {"y": f32(later * inputs["t"])}

    words = clue(told(answer, spec), "probe")
    assert "s[8]" in words and "t[0]" not in words


# -- formulas --------------------------------------------------------------------------------------------------------


def rows(power: Callable[[numpy.ndarray], numpy.ndarray], scale: float = 1.0) -> Callable[..., Arrays]:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        weight = power(inputs["x"].astype(float))
        return {"y": f32(scale * weight / weight.sum(axis=1, keepdims=True))}

    return answer


def test_a_usual_mistake_is_named() -> None:
    verdict = told(rows(numpy.exp2), of_softmax())
    assert has(clue(verdict, "formula"), "powers of 2 in place of e") and verdict.clues[0].about == "formula"


def test_a_mistake_that_no_formula_is_equal_to_is_not_named() -> None:
    assert clue(told(rows(lambda x: 3.0**x), of_softmax()), "formula") == ""


def test_of_formulas_that_are_equal_for_most_values_the_one_that_is_right_for_all_is_named() -> None:
    """Those differ where an element is exactly 1: in one kind of values, which no failing case needs."""
    spec = of_sum(
        outputs=(Tensor("y", ("n",)),),
        values=(*VALUES[:1], InputKind("ones", lambda rng, shape, sizes: rng.choice(shape, (1.0, 0.3)))),
        reference=lambda x, sizes: 0 * x,
        tolerance=Exact(),
        near_misses={"x": lambda x, sizes: x, "x but for 1": lambda x, sizes: x * (x != 1)},
    )
    verdict = told(lambda inputs, sizes: {"y": f32(inputs["x"] * (inputs["x"] != 1))}, spec)
    assert "x but for 1 (" in clue(verdict, "formula")


def test_two_formulas_that_fit_equally_are_not_named() -> None:
    base_two = of_softmax().near_misses["powers of 2 in place of e"]
    spec = of_softmax(near_misses={"one": base_two, "the same in other words": base_two})
    assert clue(told(rows(numpy.exp2), spec), "formula") == ""


def test_one_factor_of_a_scalar_in_all_cases() -> None:
    verdict = told(lambda inputs, sizes: {"y": f32(0.5 * inputs["x"].sum().reshape(1))}, of_sum())
    assert has(clue(verdict, "relation"), "0.5 times", "y")


# -- sizes, values, outputs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right", "rule"),
    [
        ([8, 16, 24], [4, 7, 9, 12], "wrong only at multiples of 8"),
        ([8, 16, 24], [7, 9, 15], None),  # the even ones, or multiples of 4
        ([2, 3, 5, 7], [4, 8, 12], "right only at multiples of 4"),
        ([33, 34, 64], [31, 32], "wrong from 33 on"),
        ([2, 7, 1023], [1024, 1025], "right from 1024 on"),
        ([226, 227], [0, 31], None),  # what is between is not known
        ([8], [7], None),
    ],
)
def test_sizes_in_words(wrong: list[int], right: list[int], rule: str | None) -> None:
    text = describe_sizes("n", {**dict.fromkeys(wrong, True), **dict.fromkeys(right, False)}, wrong[0])
    assert text is not None and has(text, str(wrong[0]), str(right[0]))
    assert (rule is None and "(" not in text) or (rule is not None and rule in text)


def test_sizes_that_take_turns_by_no_rule_are_not_named() -> None:
    assert describe_sizes("n", {112: True, 120: False, 128: False, 136: True, 144: False}, 112) is None
    assert describe_sizes("n", {7: False, 8: True, 9: False}, 8) is not None  # one size alone
    assert describe_sizes("n", {1: True, 2: False, 3: True, 4: True}, 1) is None


def test_all_sizes_fail() -> None:
    assert describe_sizes("n", {1: True, 2: True}, 1) is None


def test_sizes_near_the_failing_one_that_pass() -> None:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"y": f32(inputs["x"].sum().reshape(1) + (sizes["n"] % 8 == 0))}

    assert has(clue(told(answer, of_sum()), "sizes"), "wrong only at multiples of 8", "7", "9")


def test_sizes_that_pass_by_chance_are_not_named() -> None:
    """Wrong where the first number is below 0, whatever the size is."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"y": f32(inputs["x"].sum().reshape(1) + (inputs["x"][0] < 0))}

    assert clue(told(answer, of_sum()), "sizes") == ""
    assert describe_sizes("n", {1: True, 2: True, 3: False}, 1) is not None
    assert describe_sizes("n", {1: True, 2: True, 3: False}, 1, by_rule=True) is None


def test_values_that_pass_are_named() -> None:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        fractions = bool((inputs["x"] != numpy.rint(inputs["x"])).any())
        return {"y": f32(inputs["x"].sum().reshape(1) + fractions)}

    assert has(clue(told(answer, of_sum()), "values"), "wrong: normal", "right: whole numbers")


def of_two_outputs() -> Spec:
    def both(x: numpy.ndarray, sizes: Mapping[str, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
        return x / x.mean(), x.mean().reshape(1)

    return of_sum(
        outputs=(Tensor("y", ("n",)), Tensor("mean", (1,))),
        computed=("mean", "y"),
        reference=both,
        tolerance=Accumulated(terms=lambda sizes: 400, magnitude=lambda x, sizes: (abs(x) + 1, abs(x[:1]) + 1)),
    )


def test_every_output_is_right_or_wrong_in_the_order_of_computing() -> None:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        mean = inputs["x"].sum() / (sizes["n"] + 1)
        return {"y": f32(inputs["x"] / mean), "mean": f32(mean.reshape(1))}

    verdict = told(answer, of_two_outputs())
    assert verdict.mismatches[0].buffer == "mean"
    assert clue(verdict, "outputs").index("mean wrong") < clue(verdict, "outputs").index("y wrong")


def test_values_with_most_wrong_elements_are_shown() -> None:
    """Of whole numbers one element is wrong, of others all are: those are shown."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        wrong = numpy.zeros(sizes["n"]) if sizes["n"] < 8 else (inputs["x"] != 1).astype(float)
        return {"y": f32(inputs["x"] + wrong)}

    spec = of_sum(
        outputs=(Tensor("y", ("n",)),),
        reference=lambda x, sizes: x,
        tolerance=Exact(),
        values=(
            InputKind("ones", lambda rng, shape, sizes: numpy.ones(shape) + (numpy.arange(shape[0]) == 7)),
            *VALUES,
        ),
    )
    verdict = told(answer, spec)
    assert (verdict.values, dict(verdict.sizes), verdict.wrong_count) == ("normal", {"n": 8}, 8)
    assert verdict.mismatches[0].inputs.keys() == {"x"}


# -- what is not looked into -----------------------------------------------------------------------------------------


def test_probes_that_find_other_errors_say_nothing() -> None:
    """A launcher that fails otherwise as soon as it is asked something: there is no clue, and it is not asked long."""
    finding = Finding("race", "two threads")

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        x = numpy.frombuffer(bytes(call.buffers[0].given), numpy.float32)
        return Outcome(findings=(finding,)) if (x == 0).any() else outcome

    verdict = told(lambda inputs, sizes: {"y": f32(inputs["x"].sum().reshape(1) + 5)}, of_sum(), bug=bug)
    assert clue(verdict, "probe") == ""


def test_no_more_instructions_than_allowed() -> None:
    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return Outcome(outcome.outputs, counters=CallCounters(1, lab_module.INSTRUCTIONS // 3, 32))

    verdict = told(lambda inputs, sizes: {"y": f32(inputs["x"].sum().reshape(1) + 5)}, of_sum(), bug=bug)
    assert clue(verdict, "probe") == "" and verdict.launched == ()


def test_what_was_launched_is_kept() -> None:
    launched = (Launched("mine_kernel<4>", (2, 1, 1), (256, 1, 1), 0),)

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return Outcome(outcome.outputs, counters=CallCounters(1, 1, 32), launched=launched)

    verdict = told(lambda inputs, sizes: {"y": f32(inputs["x"].sum().reshape(1) + 5)}, of_sum(), bug=bug)
    assert verdict.launched == launched


def test_what_a_finding_knows_of_mbarriers_and_of_copies_is_told_in_that_order() -> None:
    finding = Finding("race", "two threads", notes=("the last wait",), phases=("phase 0", "phase 1"))

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        return Outcome(findings=(finding,))

    kata = Kata(name="mine", family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    sandbox = FakeSandbox(lambda inputs, sizes: {"y": f32(inputs["x"].sum().reshape(1))}, bug)
    verdict = check(kata, of_sum(), sandbox, BUDGET)  # type: ignore[arg-type]
    told_of = [(each.about, each.text) for each in verdict.clues]
    assert told_of == [("mbarrier", "phase 0"), ("mbarrier", "phase 1"), ("copies", "the last wait")]


def of_two_kernels(*, last: str) -> Callable[[Call, Outcome, dict[str, Any]], Outcome]:
    """A launcher whose second kernel fails from n = 5 on; ``last`` is the kernel that writes y at the end."""

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        launched = (Launched("first", (1, 1, 1), (32, 1, 1), 0), Launched("second", (1, 1, 1), (32, 1, 1), 0))
        found = Finding("race", "two threads", kernel="second") if sizes["n"] >= 5 else None
        by = Writer("first" if found else last, "mine.cu", 17, (0, 0, 0), (0, 0, 0))
        writers = {f"{name}[{index}]": by for name, index in call.watch}
        counters = CallCounters(2, 1, 32)
        return Outcome(outcome.outputs, (found,) if found else (), counters, writers, launched=launched)

    return bug


@pytest.mark.parametrize(("last", "said"), [("first", True), ("second", False)])
def test_what_was_wrong_before_a_finding(last: str, said: bool) -> None:
    """Where the second kernel writes the output, too, it is not wrong before that: it is not done."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"y": f32(inputs["x"].sum().reshape(1) + (7 if sizes["n"] >= 5 else 0))}

    kata = Kata(name="mine", family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    sandbox = FakeSandbox(answer, of_two_kernels(last=last))
    verdict = check(kata, of_sum(), sandbox, BUDGET)  # type: ignore[arg-type]
    assert (verdict.kind, dict(verdict.sizes)) == (Kind.RACE, {"n": 5})
    if said:
        assert has(clue(verdict, "first"), "y[0]", "already wrong", "first", "line 17")
    else:
        assert verdict.clues == ()


def writer(thread: int, *, line: int = 9, block: int = 0) -> Writer:
    return Writer("k", "mine.cu", line, (block, 0, 0), (thread, 0, 0))


@pytest.mark.parametrize(
    ("wrong", "right", "facts"),
    [
        ([writer(i, line=20) for i in range(4)], [writer(i, line=30) for i in range(4)], ["line 20", "line 30"]),
        ([writer(i) for i in range(32, 64)], [writer(i) for i in range(32)], ["warp 1", "warp 0"]),
        ([writer(i) for i in range(16, 32)], [writer(i) for i in range(16)], ["lanes 16 to 31", "lanes 0 to 15"]),
        ([writer(i, block=1) for i in range(64)], [writer(i) for i in range(64)], ["block (1,0,0)", "block (0,0,0)"]),
        ([writer(i) for i in range(64)], [writer(i) for i in range(64)], None),
    ],
)
def test_who_wrote_what_is_wrong(wrong: list[Writer], right: list[Writer], facts: list[str] | None) -> None:
    found = told_apart(wrong, right, (64, 1, 1))
    assert (found is None) if facts is None else (found is not None and has(found, *facts))


def test_lanes_of_a_row_of_threads_are_not_told_where_rows_are_wrong() -> None:
    wrong, right = (
        [Writer("k", "mine.cu", 7, (0, 0, 0), (x, y, 0)) for x in range(9) for y in rows] for rows in ((0, 2), (1, 3))
    )
    assert told_apart(wrong, right, (16, 4, 1)) == "written by lanes 0 to 8; the right ones by lanes 16 to 24"
    assert told_apart(wrong, right, (16, 4, 1), by_rows=True) is None


# -- the usual mistakes that the families list -----------------------------------------------------------------------

SHAPES = 10  # that are tried
CATALOG = load_catalog(Path(__file__).resolve().parent.parent)
SPECS_WITH_MISSES = {
    (kata.family, *map(id, spec.near_misses.values())): (kata, spec)  # families may share them
    for kata in CATALOG.katas.values()
    if (spec := load_spec(kata)).near_misses
}


@pytest.mark.parametrize(
    ("kata", "spec"), SPECS_WITH_MISSES.values(), ids=[kata.name for kata, _ in SPECS_WITH_MISSES.values()]
)
def test_usual_mistakes_give_other_answers(kata: Kata, spec: Spec) -> None:
    """Each has the answer's shape, and on some shape another value than the reference and than every other mistake."""
    small = [sizes for sizes in spec.named_sizes if all(sizes.values()) and spec.work(sizes) < 3_000_000]
    small = small[:: max(1, len(small) // SHAPES)] or [spec.named_sizes[0]]
    same = set(combinations(("", *spec.near_misses), 2))  # as far as is known
    for place, sizes in sorted(enumerate(small), key=lambda one: spec.work(one[1])):
        case = Case(kata, spec, CaseKey.of(spec, sizes, spec.values[place % len(spec.values)].name, place))
        told = {"": tuple(each.value for each in in_order(spec, case.expected))}
        for words in {each for pair in same for each in pair if each}:
            given = answers_of(spec.near_misses[words], case)
            assert given is not None, words
            assert [each.shape for each in given] == [each.shape for each in told[""]], words
            told[words] = given
        same = {pair for pair in same if _are_close(*(told.get(each, told[""]) for each in pair))}
        if not same:
            break
    assert not same, min(same)


def _are_close(one: Sequence[numpy.ndarray], other: Sequence[numpy.ndarray]) -> bool:
    return all(numpy.allclose(a, b, rtol=1e-6, equal_nan=True) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("kata", "words"),
    [
        ("gelu_erf_f32", "erf(sqrt(2 / pi) x): the constant of the approximation by tanh"),
        ("hardswish_f32", "clipped at 6 after the division by 6, where the end is 1"),
        ("hardshrink_f32", "x stays where x > 0.5 or x < 0.5, for -0.5: all but 0.5 do"),
        ("block_all_reduce_i8_i32", "the bytes of whole vectors of 16 are read as unsigned"),
        (
            "online_safe_softmax_f32",
            "the sum is not rescaled when the maximum rises, in threads that take every 256th column",
        ),
        ("rms_norm_backward_f32", "the mean of dy * x_hat in place of g * x_hat in dx, without weight"),
        ("layer_norm_cluster_f16", "moments are merged as if both had equally many elements"),
        ("sample_gumbel_f32", "Philox's key is raised before each round, not after it"),
        ("wgmma_fp8_block_scaled_tn", "sa by lane % 8, not by lane / 4"),
    ],
)
def test_a_launcher_with_a_usual_mistake_is_told_which(kata: str, words: str) -> None:
    """Its answers fit that mistake alone, of all that the spec lists."""
    spec = load_spec(CATALOG.katas[kata])
    named = next(each for each in spec.near_misses if words in each)
    lab = Lab(CATALOG.katas[kata], spec, lambda call: Outcome(), Limits(), calls=0)  # all calls have been made
    sizes = sorted((sizes for sizes in spec.named_sizes if 0 < spec.work(sizes) < 300_000), key=spec.work)[-12::3]
    for key in (CaseKey.of(spec, each, kind.name, 1) for each in sizes for kind in spec.values):
        case = Case(lab.kata, spec, key)
        given, expected = answers_of(spec.near_misses[named], case), in_order(spec, case.expected)
        assert given is not None
        got = [encode(value, each.dtype).tobytes() for value, each in zip(given, expected, strict=True)]
        lab.judged[key] = Judged(case, expected, tuple(map(compared, got, expected)))
    assert [named in each.text for each in near_miss(lab)] == [True]


def test_inputs_of_an_experiment_are_stored_as_they_are() -> None:
    """An input that is the same as before is not encoded again; -0 is not 0, a nan is itself, and what is written to an
    array afterwards does not count."""
    kata = CATALOG.katas["scale_f32"]
    lab = Lab(kata, load_spec(kata), lambda call: Outcome(), Limits())
    case = Case(kata, lab.spec, CaseKey.of(lab.spec, {"n": 3}, "normal", 1))
    values = numpy.array([0.0, numpy.nan, 1.0])
    first, again = (lab.with_inputs(case, {"x": values}).inputs["x"] for _ in range(2))
    assert first is again
    other = lab.with_inputs(case, {"x": numpy.array([-0.0, numpy.nan, 1.0])}).inputs["x"]
    assert numpy.signbit(other).tolist() == [True, False, False]
    values[2] = 2.0
    assert lab.with_inputs(case, {"x": values}).inputs["x"].tolist()[::2] == [0.0, 2.0]
    assert first.tolist()[2] == 1.0


def test_every_family_lists_usual_mistakes() -> None:
    listed = {kata.family for kata, _ in SPECS_WITH_MISSES.values()}
    assert {kata.family for kata in CATALOG.katas.values()} == listed


def of_rows(change: Callable[[numpy.ndarray, numpy.ndarray], numpy.ndarray]) -> str:
    """What is said of the relation where a softmax's rows are changed, given x and the right answer."""
    spec = of_softmax(near_misses={})
    right = spec.reference
    verdict = told(lambda inputs, sizes: {"y": f32(change(inputs["x"].astype(float), right(inputs["x"], sizes)))}, spec)
    return clue(verdict, "relation")


def test_one_factor_or_one_difference_for_each_row_is_named() -> None:
    words = of_rows(lambda x, y: y * (1.0 + abs(x[:, :1])))
    assert (
        has(words, "of one row are the same multiple", " times in row 0, ", " times in row 1") and "column" not in words
    )
    assert has(of_rows(lambda x, y: y + x[:, :1]), "of one row are equally far", " in row 1")
    assert has(of_rows(lambda x, y: y + x[:1, :]), "of one column are equally far", " in column 1")
    assert of_rows(lambda x, y: y * (1.0 + abs(x))) == "" == of_rows(lambda x, y: numpy.roll(y, 1, axis=1) + 0.5 * x)


# -- what a file keeps from call to call -----------------------------------------------------------------------------


class Keeping(FakeSandbox):
    """Each process keeps what ``answer`` may look at: how many calls there were before, and the largest n."""

    kept: dict[str, int]

    def close(self) -> None:
        self.kept = {"calls": 0, "most": 0}

    def call(self, call: Call) -> Outcome:
        outcome = super().call(call)
        n = next(int(scalar.value) for scalar in call.scalars if scalar.name == "n")
        self.kept = {"calls": self.kept["calls"] + 1, "most": max(self.kept["most"], n)}
        return outcome


def keeping(wrong: Callable[[dict[str, int], int], bool], *, watch: bool = True) -> str:
    """What is said of a sum that is wrong where what the process has kept, and n, say so."""
    box = Keeping(lambda inputs, sizes: {"y": f32(inputs["x"].sum().reshape(1) + wrong(box.kept, sizes["n"]))})
    box.close()
    kata = Kata(name="mine", family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    verdict = check(kata, of_sum(), box, replace(BUDGET, watch=watch))  # type: ignore[arg-type]
    assert verdict.kind is Kind.WRONG_ANSWER
    return clue(verdict, "calls")


def test_a_call_that_is_wrong_because_of_an_earlier_one_is_told_from_others() -> None:
    assert has(keeping(lambda kept, n: kept["calls"] > 0), "right in call 1", "wrong in call 2")
    assert has(
        keeping(lambda kept, n: kept["most"] > n > 30),
        "right in call 1",
        "after a call with n=",
    )
    assert keeping(lambda kept, n: n > 32) == "" == keeping(lambda kept, n: True)
    assert keeping(lambda kept, n: kept["calls"] > 0, watch=False) == ""  # on a GPU it may be chance


def test_the_case_that_is_shown_fails_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """n from 100 on fails; a smaller one, from 31 on, fails after such a call alone. Where a line is found that makes
    all right, that is its consequence."""
    box = Keeping(
        lambda inputs, sizes: {
            "y": f32(inputs["x"].sum().reshape(1) + (sizes["n"] >= (31 if box.kept["most"] >= 100 else 100)))
        }
    )
    box.close()
    verdict = told_steadily(box, of_sum())
    assert verdict.sizes is not None and verdict.sizes["n"] >= 100
    assert has(clue(verdict, "calls"), "is right in call 1 of a process, wrong after a call with this shape")
    monkeypatch.setattr("grader.judge.cause.repair", lambda *given: iter([Clue("repair", "all are right", line=3)]))
    box.close()
    verdict = told_steadily(box, of_sum())
    assert (clue(verdict, "repair"), clue(verdict, "calls")) == ("all are right", "")


def told_steadily(box: FakeSandbox, spec: Spec) -> Verdict:
    """The verdict, on a device that runs the same call in the same way each time."""
    kata = Kata(name="mine", family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    verdict = check(kata, spec, box, replace(BUDGET, watch=True))  # type: ignore[arg-type]
    assert verdict.kind is Kind.WRONG_ANSWER
    return verdict


@pytest.mark.parametrize("by_order", [True, False])
def test_a_case_that_fails_in_the_second_call_alone_is_looked_into(by_order: bool) -> None:
    """Elements from 128 on are lost where the seed is odd, or where x begins at another place."""

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        second = call.seed % 2 == 1 if by_order else call.buffers[0].offset_bytes == second_at
        x = numpy.frombuffer(bytes(call.buffers[0].given), numpy.float32)
        return replace(outcome, outputs={"y": f32(x[:128].sum().reshape(1)).tobytes()}) if second else outcome

    case = Case(
        Kata(name="mine", family="mine", level="easy", elem="f32", root=Path("/nowhere")),
        of_sum(),
        CaseKey.of(of_sum(), {"n": 1}, "normal", 0),
    )
    second_at = case.call(nth=1, limits=BUDGET.limits).buffers[0].offset_bytes
    verdict = told_steadily(
        FakeSandbox(lambda inputs, sizes: {"y": f32(inputs["x"].sum().reshape(1))}, bug=bug), of_sum()
    )
    assert has(clue(verdict, "probe"), "x[128]", "y[0]")
    assert ("order" in clue(verdict, "order")) == by_order


@pytest.mark.parametrize("keeps", [True, False])
def test_calls_with_one_input_that_differ_are_named_and_no_writers(keeps: bool) -> None:
    """y = x, but the elements from 32 on are wrong; and those from 16 on, after a call with a larger n."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        y = inputs["x"].copy()
        if len(y) >= 40:
            y[16 if keeps and box.kept["most"] > len(y) + 20 else 32 :] += 1
        return {"y": f32(y)}

    def bug(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
        lines = {f"{name}[{i}]": Writer("k", "mine.cu", 20 + i // 32, (0, 0, 0), (i, 0, 0)) for name, i in call.watch}
        return replace(outcome, writers=lines, launched=(Launched("k", (1, 1, 1), (400, 1, 1), 0),))

    spec = of_sum(outputs=(Tensor("y", ("n",)),), reference=lambda x, sizes: x, tolerance=Exact())
    box = Keeping(answer, bug)
    box.close()
    verdict = told_steadily(box, spec)
    assert ("same call" in clue(verdict, "calls")) == keeps
    assert ("line 21" in clue(verdict, "writers")) == (not keeps)


@pytest.mark.parametrize("where", ["diagnose", "repair", "_of_calls"])
def test_a_mistake_of_the_grader_does_not_cost_the_verdict(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def broken(*given: object, **more: object) -> None:
        raise ValueError("cannot reshape array")

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"y": f32(inputs["x"].sum().reshape(1) + 1)}

    monkeypatch.setattr(cause, where, broken)
    monkeypatch.delenv("KATA_CI", raising=False)
    assert has(clue(told(answer, of_sum()), "grader"), "ValueError", "cannot reshape array", "line", "verdict stands")
    monkeypatch.setenv("KATA_CI", "1")
    with pytest.raises(ValueError, match="cannot reshape array"):
        told(answer, of_sum())
