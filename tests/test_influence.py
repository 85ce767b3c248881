"""Wrong answers of norms, of sums behind an exponential, and of whole numbers -> what is said of their cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy
import passed_before
import pytest
from facts import has
from test_check import Arrays
from test_diagnosis import clue, f32, of_softmax, of_sum, told

from grader.content.spec import Accumulated, Exact, InputKind, Parameter, Size, Spec, Tensor, integers, normal
from grader.judge import impulses, probes
from grader.judge.influence import _Search
from grader.judge.target import Element, Part
from grader.verdict import Verdict

pytestmark = passed_before.GRADER

Array = numpy.ndarray
EPS = 1e-5


def probed(verdict: Verdict) -> str:
    return clue(verdict, "probe")


# -- norms -----------------------------------------------------------------------------------------------------------


def norm(x: Array, weight: Array, bias: Array, **of: Any) -> Array:
    mean = of["mean"](x) if "mean" in of else x.mean(axis=1, keepdims=True)
    variance = of["variance"](x - mean) if "variance" in of else ((x - mean) ** 2).mean(axis=1, keepdims=True)
    y: Array = (x - mean) / numpy.sqrt(variance + of.get("eps", EPS)) * weight + bias
    return y


def of_norm(**more: Any) -> Spec:
    """The layer norm of the rows of x."""
    fields: dict[str, Any] = {
        "computes": "y = layer norm of the rows of x",
        "inputs": (Tensor("x", ("rows", "cols")), Tensor("weight", ("cols",)), Tensor("bias", ("cols",))),
        "outputs": (Tensor("y", ("rows", "cols")),),
        "parameters": (Parameter("eps", "float", EPS),),
        "sizes": {"rows": Size(1, 9), "cols": Size(1, 70)},
        "values": (InputKind("normal", normal(mean=1.0)), InputKind("small", normal(std=0.004))),
        "reference": lambda x, weight, bias, sizes: norm(x, weight, bias),
        "tolerance": Accumulated(terms=lambda sizes: 20, magnitude=lambda x, weight, bias, sizes: 4 + 0 * x),
        "named_sizes": tuple({"rows": m, "cols": n} for m, n in ((1, 1), (2, 3), (4, 33), (3, 67))),
        "work": lambda sizes: sizes["rows"] * sizes["cols"],
    }
    return Spec(**{**fields, **more})


def of_a_norm(**of: Any) -> str:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        x, weight, bias = (inputs[name].astype(float) for name in ("x", "weight", "bias"))
        return {"y": f32(norm(x, weight, bias, **of))}

    return probed(told(answer, of_norm()))


def test_a_mean_over_too_many_elements() -> None:
    words = of_a_norm(mean=lambda x: x.sum(axis=1, keepdims=True) / 1024)
    assert has(words, "(x - m) s", "times what it must be: cols / 1024")


def test_a_variance_over_too_many_elements() -> None:
    words = of_a_norm(variance=lambda d: (d**2).sum(axis=1, keepdims=True) / 1024)
    assert has(words, "1 / s^2", "variance", "times what it must be: cols / 1024")


def test_elements_past_the_row_that_count_as_0() -> None:
    def variance(d: Array) -> Array:
        """Of a row of 128, whose other elements are 0 before the mean is taken off; about the right mean of x."""
        squares: Array = ((d**2).sum(axis=1, keepdims=True) + (128 - d.shape[1]) * shared[-1] ** 2) / d.shape[1]
        return squares

    shared: list[Array] = []

    def mean(x: Array) -> Array:
        shared.append(x.mean(axis=1, keepdims=True))
        return shared[-1]

    assert re.search(
        r"in 1 / s\^2, (\d+) elements of 0 count beside the row's \d+$", of_a_norm(mean=mean, variance=variance)
    )


@pytest.mark.parametrize(("eps", "words"), [(0.0, "no eps is"), (EPS / 2, "0.5 times"), (3 * EPS, "3 times")])
def test_another_eps(eps: float, words: str) -> None:
    assert has(of_a_norm(eps=eps), words, "in 1 / s^2")


def test_means_of_warps() -> None:
    def mean(x: Array) -> Array:
        whole = numpy.repeat(x.mean(axis=1, keepdims=True), x.shape[1], axis=1)
        whole[:, 32:] *= 0.75 if x.shape[1] >= 40 else 1.0
        return whole

    def spread(d: Array) -> Array:
        """As large as it is about the right mean."""
        squares: Array = ((d - d.mean(axis=1, keepdims=True)) ** 2).mean(axis=1, keepdims=True)
        return squares

    words = of_a_norm(mean=mean, variance=spread)
    assert has(words, "more than one m", "columns 0..31", "columns 32..63")


def test_a_norm_whose_statistics_are_right_is_not_accused() -> None:
    """The weights are wrong: with weights of 1 nothing is."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        x, weight, bias = (inputs[name].astype(float) for name in ("x", "weight", "bias"))
        return {"y": f32(norm(x, numpy.roll(weight, 1), bias))}

    assert "(x - m) s" not in probed(told(answer, of_norm()))


# -- influence -------------------------------------------------------------------------------------------------------


def softmax_over(rows: Callable[[Array], Array]) -> str:
    """What is said where the sum of a softmax is over other elements."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        weight = numpy.exp(inputs["x"].astype(float))
        return {"y": f32(weight / rows(weight))}

    return probed(told(answer, of_softmax(near_misses={})))


def test_elements_that_change_nothing() -> None:
    words = softmax_over(lambda weight: weight[:, :32].sum(axis=1, keepdims=True))
    assert words == "y[0, 0] does not depend on x[0, 32], and must"


def test_elements_of_another_row() -> None:
    words = softmax_over(lambda weight: weight.sum(axis=1, keepdims=True) + weight[-1:, :1] * (len(weight) > 1))
    assert has(words, "x[", ", 0] changes y[0, 0], and must not") and "x[0" not in words


def test_a_factor_is_no_influence() -> None:
    assert "does not" not in softmax_over(lambda weight: 1.5 * weight.sum(axis=1, keepdims=True))
    assert "must not" not in softmax_over(lambda weight: 1.5 * weight.sum(axis=1, keepdims=True))


def test_elements_that_hardly_count_are_not_accused() -> None:
    """Of a row of 70, each element moves the output by less than rounding to 8 bits: nothing is known of it."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        weight = numpy.exp(inputs["x"].astype(float))
        return {"y": f32(0.5 + numpy.rint(weight / weight.sum(axis=1, keepdims=True) * 16) / 16)}

    assert "must not" not in probed(told(answer, of_softmax(near_misses={})))


def test_all_elements_but_its_own_that_change_nothing() -> None:
    """Those before the last ones are named, too: the sum has none of the weights."""

    def gradient(x: Array, w: Array, in_sum: Array) -> Array:
        found: Array = x * w - x * (x * x * in_sum).mean(axis=1, keepdims=True)
        return found

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        x, w = inputs["x"].astype(float), inputs["w"].astype(float)
        return {"y": f32(gradient(x, w, 0 * w + 1))}

    spec = of_softmax(
        inputs=(Tensor("x", ("rows", "cols")), Tensor("w", ("cols",))),
        reference=lambda x, w, sizes: gradient(x, w, w),
        tolerance=Accumulated(terms=lambda sizes: 8, magnitude=lambda x, w, sizes: abs(x) + 1),
        near_misses={},
    )
    assert has(probed(told(answer, spec)), "does not depend on w[", "..", "and must")


def test_an_element_whose_factor_is_0_is_said_to_have_one() -> None:
    """Codes of the next element are taken: where a code is 0, x must not count here, and does with other codes."""
    spec = of_sum(
        inputs=(Tensor("x", ("n",)), Tensor("code", ("n",), "i8")),
        values=(InputKind("codes", {"x": normal(), "code": integers(-1, 1)}),),
        reference=lambda x, code, sizes: (x * code).sum().reshape(1),
        tolerance=Accumulated(terms=lambda sizes: 400, magnitude=lambda x, code, sizes: abs(x).sum().reshape(1)),
    )

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        x, code = inputs["x"].astype(float), inputs["code"].astype(float)
        return {"y": f32((x**3 * numpy.roll(code, 1)).sum().reshape(1))}

    words = probed(told(answer, spec))
    assert "must not" not in words and "does not depend" not in words and "multiplies it there is 0" in words


def test_results_at_other_places_are_seen_without_the_scales_of_their_places() -> None:
    def scaled(x: numpy.ndarray, scale: numpy.ndarray) -> numpy.ndarray:
        return numpy.cumsum(x) ** 2 * scale

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        x, scale = inputs["x"].astype(float), inputs["scale"].astype(float)
        return {"y": f32(scale * numpy.roll(scaled(x, 1 + 0 * scale), 3))}

    spec = of_sum(
        inputs=(Tensor("x", ("n",)), Tensor("scale", ("n",))),
        outputs=(Tensor("y", ("n",)),),
        sizes={"n": Size(16, 128)},
        named_sizes=({"n": 64}, {"n": 128}),
        values=(InputKind("normal", {"x": normal(), "scale": normal()}),),
        reference=lambda x, scale, sizes: scaled(x, scale),
        tolerance=Accumulated(terms=lambda sizes: 8, magnitude=lambda x, scale, sizes: abs(scaled(abs(x), scale))),
        near_misses={},
    )
    assert has(probed(told(answer, spec)), "with all numbers 1 but those of x", "is what must be at y[0..")


# -- whole numbers ---------------------------------------------------------------------------------------------------


def of_argmax() -> Spec:
    return of_sum(
        inputs=(Tensor("x", ("rows", "cols")),),
        outputs=(Tensor("idx", ("rows",), "i32"),),
        sizes={"rows": Size(1, 8), "cols": Size(1, 200)},
        values=(
            InputKind("normal", normal()),
            InputKind("whole numbers", integers(1, 4)),
            InputKind("rising", lambda rng, shape, sizes: numpy.sort(rng.normal(shape))),
        ),
        reference=lambda x, sizes: x.argmax(axis=1),
        tolerance=Exact(),
        named_sizes=tuple({"rows": m, "cols": n} for m, n in ((1, 1), (2, 3), (4, 33), (8, 150))),
        work=lambda sizes: sizes["rows"] * sizes["cols"],
    )


def of_chosen(change: Callable[[Array, Array], Array]) -> str:
    """What is said of an argmax, given x and the right columns."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        right = inputs["x"].argmax(axis=1)
        return {"idx": change(inputs["x"], right).astype(numpy.int32)}

    return probed(told(answer, of_argmax()))


def test_the_other_one_of_equal_values() -> None:
    words = of_chosen(lambda x, right: x.shape[1] - 1 - x[:, ::-1].argmax(axis=1))
    assert has(words, "every wrong element of idx is the higher of two places with equal values")


def test_a_column_that_is_off_by_one() -> None:
    assert has(of_chosen(lambda x, right: right + 1), "every wrong element of idx is 1 too large")


def test_a_column_of_the_step() -> None:
    assert has(of_chosen(lambda x, right: right % 64), "what it must be, modulo 64")


def test_a_last_step_that_is_left_out() -> None:
    words = of_chosen(lambda x, right: numpy.where(right < 128, right, 0 * right + 5))
    assert has(words, "idx is wrong exactly where it must be 128 or more")


def test_a_last_element_that_is_left_out() -> None:
    words = of_chosen(lambda x, right: x[:, : max(x.shape[1] - 1, 1)].argmax(axis=1))
    assert re.search(r"with x\[0, (\d+)\] larger than all others, idx\[0\] is \d+, and must be \1$", words)


def test_an_element_that_is_never_chosen() -> None:
    def without(x: Array, right: Array) -> Array:
        others = x.copy()
        others[:, x.shape[1] // 2 : x.shape[1] // 2 + (x.shape[1] > 2)] = -numpy.inf
        chosen: Array = others.argmax(axis=1)
        return chosen

    assert has(of_chosen(without), "with x[0, ", "] larger than all others, idx[0] is ", " and must be ")


def test_columns_without_a_rule_get_none() -> None:
    assert of_chosen(lambda x, right: (right * 7 + 3) % 11) == ""


def of_histogram() -> Spec:
    def counts(a: Array, sizes: Mapping[str, int]) -> Array:
        return numpy.bincount(a.astype(int), minlength=sizes["bins"])

    def drawn(rng: Any, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Array:
        found: Array = rng.integers(shape, 0, sizes["bins"] - 1)
        return found

    return of_sum(
        inputs=(Tensor("a", ("n",), "i32"),),
        outputs=(Tensor("counts", ("bins",), "i32"),),
        sizes={"n": Size(1, 400), "bins": Size(1, 40)},
        values=(InputKind("uniform", drawn),),
        reference=counts,
        tolerance=Exact(),
        named_sizes=tuple({"n": n, "bins": bins} for n, bins in ((1, 1), (4, 3), (65, 8), (400, 40))),
    )


def of_counts(change: Callable[[Array, int], Array]) -> str:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"counts": change(inputs["a"], sizes["bins"]).astype(numpy.int32)}

    return probed(told(answer, of_histogram()))


def test_counts_that_lack_an_element() -> None:
    words = of_counts(lambda a, bins: numpy.bincount(a[:-1], minlength=bins))
    assert has(words, "add up to less than all that is counted", "to 399 of 400")


def test_counts_of_the_bin_before() -> None:
    words = of_counts(lambda a, bins: numpy.bincount(numpy.maximum(a - 1, 0), minlength=bins))
    assert has(words, "counts[i] has what counts[i + 1] must have")


def test_a_place_twice() -> None:
    def smallest(x: Array, sizes: Mapping[str, int]) -> Array:
        order: Array = numpy.argsort(-x, axis=1, kind="stable")[:, :3]
        return order

    spec = replace(
        of_argmax(),
        outputs=(Tensor("idx", ("rows", "k"), "i32"),),
        sizes={"rows": Size(1, 8), "cols": Size(3, 60), "k": Size(3, 3)},
        reference=smallest,
        values=(InputKind("normal", normal()),),
        named_sizes=tuple({"rows": m, "cols": n, "k": 3} for m, n in ((1, 3), (4, 33))),
    )

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        found = smallest(inputs["x"], sizes).copy()
        found[:, 2] = found[:, 0]
        return {"idx": found.astype(numpy.int32)}

    assert has(probed(told(answer, spec)), "a row of idx has the place", "2 times")


def test_whole_numbers_that_are_summed() -> None:
    spec = of_sum(
        inputs=(Tensor("x", ("n",), "i32"),),
        outputs=(Tensor("y", (1,), "i32"),),
        values=(InputKind("whole numbers", integers(1, 9)),),
        tolerance=Exact(),
    )

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        weighed = inputs["x"] * (1 + (numpy.arange(sizes["n"]) == 40))
        return {"y": weighed.sum().reshape(1).astype(numpy.int32)}

    assert "x[40] counts 2 times in y[0]" in probed(told(answer, spec))


# -- what is 0 by chance ---------------------------------------------------------------------------------------------


def scaled(x: Array, weight: Array) -> Array:
    """The rows of x over their root mean square, times the weights."""
    y: Array = x / numpy.sqrt((x**2).mean(axis=1, keepdims=True) + EPS) * weight
    return y


def of_scaled(reference: Callable[[Array, Array], Array], *, shape: tuple[str, ...] = ("cols",)) -> Spec:
    return of_norm(
        inputs=(Tensor("x", ("rows", "cols")), Tensor("weight", shape)),
        parameters=(),
        reference=lambda x, weight, sizes: reference(x, weight),
        tolerance=Accumulated(terms=lambda sizes: 20, magnitude=lambda x, weight, sizes: 4 + abs(x * weight)),
    )


@pytest.mark.parametrize("factor", [0.0, 3.0])
def test_an_element_that_is_0_for_all_inputs(factor: float) -> None:
    """Not the weight that it lacks, too, is said to be the cause."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        y = scaled(*(inputs[name].astype(float) for name in ("x", "weight")))
        y[0, 0] *= factor
        return {"y": f32(y)}

    words = probed(told(answer, of_scaled(scaled)))
    assert (words == "y[0, 0] is 0 for all x and weight that were tried") is (factor == 0), words


def test_a_factor_whose_coefficient_is_0_by_chance_may_belong() -> None:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        return {"y": f32(inputs["x"].astype(float) * inputs["weight"])}

    words = probed(told(answer, of_scaled(lambda x, weight: (x - 1) * weight, shape=("rows", "cols"))))
    assert "does not belong" not in words


def test_a_run_without_influence_reaches_its_end() -> None:
    class Deaf(_Search):
        """All but the first element change nothing."""

        def __init__(self) -> None:
            pass

        def must_change(self, risen: Sequence[int]) -> bool:
            return True

        def changes(self, risen: Sequence[int]) -> bool | None:
            return 0 in risen

    for size in (2, 3, 64, 100, 1000, 1024):
        assert Deaf()._grown(range(size), size - 1, -1) == 1
        assert Deaf()._grown(range(size), 1, 1) == size - 1


# -- one element alone -----------------------------------------------------------------------------------------------


def test_terms_of_a_mean_that_do_not_count_equally() -> None:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        x = inputs["x"].astype(float)
        parts = [x[at : at + 32].mean() for at in range(0, len(x), 32)]
        return {"y": f32(numpy.array([sum(parts) / len(parts)]))}

    near = Accumulated(terms=lambda sizes: 8, magnitude=lambda x, sizes: abs(x).mean().reshape(1))
    spec = of_sum(reference=lambda x, sizes: x.mean().reshape(1), tolerance=near)
    words = probed(told(answer, spec))
    assert has(words, "with one x 1, and all other x 0", "x[0] makes y[0] 0.015625, expected 0.030303", "x[32]")


@pytest.mark.parametrize(("counts", "part"), [(0.0, Part.LACKING), (0.5, Part.WEIGHED)])
def test_an_element_that_makes_0_is_followed_as_one_that_is_lacking(
    counts: float, part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    """y = the mean of x, but of the last element so much, and of each other one a rounding too much."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        x = inputs["x"].astype(float)
        return {"y": f32(numpy.array([(x[:-1].sum() * (1 + 2**-15) + counts * x[-1]) / len(x)]))}

    followed = list[Element]()
    monkeypatch.setattr(probes, "ways", lambda target, found: iter(followed.extend(found) or ()))
    near = Accumulated(terms=lambda sizes: 8, magnitude=lambda x, sizes: abs(x).mean().reshape(1))
    told(answer, of_sum(reference=lambda x, sizes: x.mean().reshape(1), tolerance=near))
    assert [each.part for each in followed] == [part]


def test_a_norm_whose_elements_are_at_other_places() -> None:
    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        x, weight, bias = (inputs[name].astype(float) for name in ("x", "weight", "bias"))
        return {"y": f32(norm(numpy.roll(x, 1, axis=1), weight, bias))}

    assert has(
        probed(told(answer, of_norm())), "y[0, 0] must have a term of x[0, 0] that no other element has; y[0, 1]"
    )


def test_numbers_near_0_that_lost_their_digits() -> None:
    values = (InputKind("near 0", normal(std=1e-4)), InputKind("normal", normal(mean=1.0)))
    near = Accumulated(terms=lambda sizes: 4, magnitude=lambda x, sizes: abs(numpy.expm1(x)))
    outputs = (Tensor("y", ("n",)),)
    spec = of_sum(outputs=outputs, values=values, reference=lambda x, sizes: numpy.expm1(x), tolerance=near)
    lost = told(lambda inputs, sizes: {"y": numpy.exp(inputs["x"]) - numpy.float32(1)}, spec)
    assert has(clue(lost, "relation"), "whole multiple of 2^-24", "cancellation")
    other = told(lambda inputs, sizes: {"y": f32(numpy.expm1(inputs["x"].astype(float)) * (1 + 1e-4))}, spec)
    assert "cancellation" not in clue(other, "relation")


def test_an_input_has_the_outputs_shape_in_the_case_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """x [m, k] looks like y [m, n] where k = n by chance. Another case is then not asked."""
    monkeypatch.setattr(impulses, "floats", lambda target, narrow: [Tensor("x", ("m", "k"))])
    target = SimpleNamespace(case=SimpleNamespace(sizes={"m": 3, "k": 5}), shape=(3, 4))
    assert [*impulses._misplaced(target, "x")] == []  # type: ignore[arg-type]
    monkeypatch.setattr(impulses, "floats", lambda target, narrow: [])  # there it is too large
    assert [*impulses._misplaced(target, "x")] == []  # type: ignore[arg-type]
