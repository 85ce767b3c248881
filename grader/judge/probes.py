"""A wrong output element -> which inputs it is made of, asked of the launcher with inputs of the grader's choice.

Where the reference is linear in an input (the others at 1), an output element is a sum over that input's elements, each
with a coefficient. Inputs that are 0 outside of a range show the coefficients of the range: which terms are missing,
are there twice, or do not belong. Where two inputs are multiplied, one of them with a single 1, the other with labels,
shows with which element of the other it meets. Where outputs are copies of inputs, labels show what was copied.

A kernel that is not what the probe takes it for says so by the answers not adding up: then there is no clue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.judge.impulses import impulses
from grader.judge.influence import influences
from grader.judge.integers import of_integers
from grader.judge.lab import Judged, Lab, element, place
from grader.judge.mixtures import mixture
from grader.judge.normalisers import normaliser
from grader.judge.target import Element, Observed, Part, Target, floats, range_words, target_of
from grader.judge.trails import ways
from grader.verdict import Clue

if TYPE_CHECKING:
    from numpy import ndarray

Make = Callable[[Mapping[str, "ndarray"]], "ndarray | None"]
LABELS = 200  # are whole numbers in every type of 8 bits of mantissa and more
WEIGHTS = (1.0, 2.0, 3.0)
ROUNDINGS = 4  # of the output, that a sum may be off by
ASKED = 44  # calls, at most, for the coefficients of one input
# References, at most, that are worked out to know of what an element is a sum; and elements of their inputs together.
STEPS, READ = 600, 4_000_000
PARTNERS = 4  # elements whose partners are asked for
RANGES = 3  # that a clue lists
MOST_TIMES = 8  # that a term counts: a larger number is none, but a sum that is wrong for another reason
CLOSE = 0.02  # of a multiple, as a share, where the terms have other factors
LARGER = 3  # wrong cases, beside the smallest
MOST_OF_ONE = 2  # elements of a clue, that are followed through memory


def probe(lab: Lab, one: Judged) -> Iterator[Clue]:
    """At most two clues, of copies, or else of sums and of products; and one on the way of the elements in them."""
    found = list(_copies(lab, one)) or list(mixture(target_of(lab, one))) or list(_larger_copies(lab, one))
    if not found and (found := [Observed(words) for words in normaliser(lab, one)]):
        found = list(influences(lab, one)) or found  # elements that are left out say more than a sum that lacks them
    target = target_of(lab, one)
    if not found and _is_silent(one, target):
        found = list(_silence(lab, one))
    found = found or [*_sums(target), *_products(target)]
    found = found or [Observed(words) for words in of_integers(lab, one)] or list(influences(lab, one))
    found = found or list(impulses(lab, one, _is_linear))
    yield from (Clue("probe", each.words) for each in found[:2] if each.words)
    followed = [each for each in found[:2] if each.elements]
    if followed and (about := followed[0].target) is not None:
        yield from ways(about, [each for one in followed if one.target is about for each in one.elements[:MOST_OF_ONE]])


# -- what the launcher and the reference make of inputs --------------------------------------------------------------


def _ones(target: Target) -> dict[str, ndarray]:
    import numpy

    return {tensor.name: numpy.ones(tensor.extent(target.case.sizes)) for tensor in floats(target)}


def _is_linear(target: Target, name: str, base: Mapping[str, ndarray], *, alone: bool = False) -> bool:
    """Whether the reference is linear in an input, whether the others are as in ``base`` or, if not ``alone``, other
    numbers."""
    import numpy

    rng = numpy.random.default_rng(7)
    shape = base[name].shape
    first, second = (rng.choice((-3.0, -1.0, 1.0, 2.0), shape) for _ in range(2))
    drawn = {each: rng.choice((-1.0, 1.0, 2.0, 3.0), value.shape) for each, value in base.items()}
    for others in (base,) if alone else (base, drawn):
        made = [target.reference({**others, name: value}) for value in (first, second, first + second, 0 * first)]
        if not all(bool(numpy.isfinite(each).all()) for each in made) or bool(made[3].any()):
            return False
        if not any(bool(each.any()) for each in made[:2]):
            return False
        if not numpy.allclose(made[0] + made[1], made[2], rtol=1e-6, atol=1e-6):
            return False
    return True


def _other_factors(base: Mapping[str, ndarray]) -> dict[str, ndarray]:
    """Other numbers in the place of 1: small, whole and positive, so that no sum of products is 0."""
    import numpy

    rng = numpy.random.default_rng(19)
    return {name: rng.choice(WEIGHTS, value.shape) for name, value in base.items()}


# -- an element that is 0 --------------------------------------------------------------------------------------------


def _is_silent(one: Judged, target: Target) -> bool:
    """Whether the element is 0 for all inputs that are tried, and there are several: a product is 0 as soon as one of
    its factors is, and no experiment with another one tells which."""
    numbers = floats(target)
    if len(numbers) < 2 or _got(one, target) != 0 or _are_alike(target, numbers):
        return False
    for inputs in (_ones(target), _other_factors(_ones(target))):
        answer = target.answer(inputs)
        if answer is None or answer[target.flat] != 0 or target.reference(inputs)[target.flat] == 0:
            return False
    return True


def _got(one: Judged, target: Target) -> float:
    return float(one.compared[one.first_wrong].got.reshape(-1)[target.flat])


def _silence(lab: Lab, one: Judged) -> Iterator[Observed]:
    """What is said of the element in a larger wrong case, where it is not 0; else of its largest input alone."""
    target = target_of(lab, one)
    wrong = [each for each in lab.judged.values() if each.wrong and each.first_wrong == one.first_wrong]
    seen = {each.case.shape.sizes: each for each in wrong if _got(each, target_of(lab, each)) != 0}
    for each in sorted(seen.values(), key=lambda each: each.compared[one.first_wrong].got.size)[:LARGER]:
        other = target_of(lab, each)
        if found := [*_sums(other), *_products(other)]:
            yield from (replace(clue, words=f"at {each.case.shape}: {clue.words}") for clue in found)
            return
    numbers = sorted(floats(target), key=lambda tensor: -target.case.inputs[tensor.name].size)
    names = [tensor.name for tensor in target.lab.spec.inputs if tensor in numbers]
    own = [each for each in numbers if tuple(each.extent(target.case.sizes)) == target.shape]
    elements = tuple(Element(each.name, target.flat, Part.OWN) for each in own)
    words = f"{target.words} is 0 for all {', '.join(names[:-1])} and {names[-1]} that were tried"
    yield Observed(words, target, elements)


def _are_alike(target: Target, numbers: Sequence[Tensor]) -> bool:
    """Whether the element is a sum of products of two inputs, neither of which only scales it: then a term that lacks
    one lacks both."""
    ones = _ones(target)
    named = {sum(isinstance(dim, str) for dim in each.shape) for each in numbers}
    if len(numbers) != 2 or len(target.lab.spec.inputs) != 2 or len(named) != 1:
        return False
    if not all(_is_linear(target, each.name, ones) for each in numbers):
        return False
    first, second = (_support(target, each.name, ones) for each in numbers)
    return first is not None and second is not None and len(first) == len(second)


# -- copies ----------------------------------------------------------------------------------------------------------


def _copies(lab: Lab, one: Judged) -> Iterator[Observed]:
    """Where every output element is a copy of an input's: which one was copied in place of which."""
    import numpy

    target = target_of(lab, one)
    for tensor in floats(target):
        name, shape = tensor.name, tensor.extent(one.case.sizes)
        others = {each.name: numpy.zeros(each.extent(one.case.sizes)) for each in floats(target) if each is not tensor}
        # With the others as they are, and at 0: they may be added.
        for base in ({}, others) if others else ({},):
            want = _sources(target, name, shape, _with(target.reference, base))
            if want is not None:
                break
        else:
            continue
        got = _sources(target, name, shape, _with(target.answer, base), every=False)
        if got is None:
            return
        wrong = (got != want) & (got >= 0)
        if not bool(wrong.any()):
            return
        first = int(wrong.argmax())
        origin = element(name, shape, int(got[first]))
        words = f"{target.at(first)} got {origin}, expected {element(name, shape, int(want[first]))}"
        if shift := _shift(shape, got[wrong], want[wrong]):
            words += f"; {shift}"
        elif int(wrong.sum()) > 1:
            last = int(numpy.flatnonzero(wrong)[-1])
            other = f"{target.at(last)} got {element(name, shape, int(got[last]))}"
            words += f"; {other}, expected {element(name, shape, int(want[last]))}"
        taken, right = int(got[first]), int(want[first])
        elements = (Element(name, taken, Part.FOREIGN), Element(name, right, Part.LACKING))
        yield Observed(words, replace(target, flat=first), elements)
        return


def _larger_copies(lab: Lab, one: Judged) -> Iterator[Observed]:
    """The same in the largest wrong answer that was seen: in the smallest there may be nothing else to copy."""
    wrong = [each for each in lab.judged.values() if each.wrong and each.first_wrong == one.first_wrong]
    wrong = [each for each in wrong if max(value.size for value in each.case.inputs.values()) <= LABELS**2]
    largest = max(wrong, key=lambda each: each.compared[each.first_wrong].got.size, default=one)
    if largest is not one and not bool(largest.compared[largest.first_wrong].unwritten.any()):
        for found in _copies(lab, largest):
            yield replace(found, words=f"at {largest.case.shape}: {found.words}")


def _with(make: Callable[[Mapping[str, ndarray]], ndarray | None], base: Mapping[str, ndarray]) -> Make:
    return lambda more: make({**base, **more})


def _sources(target: Target, name: str, shape: Sequence[int], make: Make, *, every: bool = True) -> ndarray | None:
    """For each output element the input element whose labels it has, -1 where it has none's.

    None where the reference, or the launcher, does not copy this input: the labellings do not agree on any; or, if
    ``every`` element must be a copy, on one.
    """
    import numpy

    size = int(numpy.prod(shape))
    digits = 1 if size <= LABELS else 2 if size <= LABELS**2 else 0
    if not digits:
        return None
    found = []
    # In other orders, since the labels of several elements may have that of another one as their mean.
    for order in _orders(size):
        back = numpy.argsort(order)
        total = 0
        for digit in range(digits):
            labels = order // LABELS**digit % LABELS + 1.0
            made = make({name: labels.reshape(shape)})
            if made is None:
                return None
            whole = numpy.isfinite(made) & (made == numpy.rint(made)) & (made >= 1) & (made <= LABELS)
            total = total + numpy.where(whole, made - 1, numpy.nan) * LABELS**digit
        valid = numpy.isfinite(total) & (numpy.nan_to_num(total) < size)
        places = numpy.where(valid, numpy.nan_to_num(total), 0).astype(int)
        found.append(numpy.where(valid, back[places], -1))
    same = numpy.where((numpy.array(found) == found[0]).all(axis=0), found[0], -1)
    if every and bool((same < 0).any()):
        return None
    return same if bool((same >= 0).any()) else None


def _orders(size: int) -> list[ndarray]:
    """The labels of all elements, several times: more where there are few, and chance would do more."""
    import numpy

    rng = numpy.random.default_rng(3)
    return [numpy.arange(size), *(rng.permutation(size) for _ in range(2 if size <= LABELS else 1))]


def _shift(shape: Sequence[int], got: ndarray, want: ndarray) -> str | None:
    """How far the copied element is from the right one, where that is the same everywhere."""
    import numpy

    if got.size < 4:
        return None
    away = numpy.array(
        [numpy.subtract(place(shape, int(a)), place(shape, int(b))) for a, b in zip(got, want, strict=True)]
    )
    if bool((away == away[0]).all()):
        steps = ", ".join(f"{step:+d}" if step else "0" for step in away[0].tolist())
        return f"the index is off by ({steps}) in all {len(away)} wrong elements"
    return None


# -- sums ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """Input elements ``first`` to ``last`` of the list that is asked about, which all count ``times`` in the sum."""

    first: int
    last: int
    times: int


def _sums(target: Target) -> Iterator[Observed]:
    import numpy

    asked, tensors = ASKED, floats(target, narrow=True)  # all of them hold the weights
    ones = {tensor.name: numpy.ones(tensor.extent(target.case.sizes)) for tensor in tensors}
    zeros = {name: numpy.zeros_like(value) for name, value in ones.items()}
    for tensor in tensors:
        before, found = target.lab.calls, list[Observed]()
        if _is_linear(target, tensor.name, ones):
            found = list(_terms(target, tensor.name, ones, asked))
        elif len(zeros) > 1 and _is_linear(target, tensor.name, zeros, alone=True):  # the others may be added to it
            found = list(_terms(target, tensor.name, zeros, asked))
        asked -= before - target.lab.calls
        yield from found
        if any(each.is_whole for each in found):  # then so do those of every other factor
            return


def _terms(target: Target, name: str, base: Mapping[str, ndarray], asked: int) -> Iterator[Observed]:
    """Terms of one input that the element lacks, has several times, or that do not belong to it."""
    import numpy

    shape = base[name].shape
    weights = numpy.random.default_rng(11).choice(WEIGHTS, base[name].size)
    zeros = numpy.zeros_like(weights)
    nothing = target.answer({**base, name: zeros.reshape(shape)})
    if nothing is None:
        return
    if nothing[target.flat] != 0:
        if numpy.isfinite(nothing[target.flat]):
            found = f"{target.words} is {nothing[target.flat]:.6g}, expected 0"
            yield Observed(f"with {name} all 0, {found}: it has terms without {name}")
        return
    support = _support(target, name, base)
    if support is None:
        return
    for places, belongs in ((support, True), (numpy.setdiff1d(numpy.arange(weights.size), support), False)):
        search = _Terms(target, name, base, weights, places, asked, belongs)
        runs = search.runs()
        asked = search.asked
        if runs and not belongs and any(_may_belong(target, name, int(places[run.first])) for run in runs[:RANGES]):
            return
        if runs:
            words = _terms_words(target, name, shape, places, runs, belongs)
            whole = (
                belongs
                and len(runs) == 1
                and runs[0].times > 1
                and (runs[0].first, runs[0].last + 1) == (0, len(places))
            )
            elements = tuple(_element(name, places, run, belongs) for run in runs[:RANGES])
            yield Observed(words, target, elements, whole)
        elif search.failed:
            return


def _may_belong(target: Target, name: str, flat: int) -> bool:
    """Whether the element changes the target where the other inputs have other numbers: with those that were asked
    with, its coefficient is 0 by chance."""
    inputs = {each: 0.5 * value for each, value in _other_factors(_ones(target)).items()}
    if name not in inputs:
        return True  # it is known of no element
    risen = {**inputs, name: inputs[name].copy()}
    risen[name].reshape(-1)[flat] += 1.0
    before, after = (target.reference(each)[target.flat] for each in (inputs, risen))
    return bool(before != after)


def _element(name: str, places: ndarray, run: Run, belongs: bool) -> Element:
    """The first of a range."""
    part = Part.FOREIGN if not belongs else Part.LACKING if run.times == 0 else Part.REPEATED
    return Element(name, int(places[run.first]), part, run.times)


def _support(target: Target, name: str, base: Mapping[str, ndarray]) -> ndarray | None:
    """The input elements that the output element is a sum of, by the reference: found by halving, which is quick on
    shapes that fail. None where it takes too many steps."""
    import numpy

    shape, size = base[name].shape, base[name].size

    def counts_once(first: int, last: int) -> bool:
        """Whether each of these does: one of them, times their number, gives the same where all are 1."""
        values = numpy.zeros(size)
        values[first:last] = numpy.random.default_rng(first).integers(1, 1000, last - first)
        part = float(target.reference({**base, name: values.reshape(shape)})[target.flat])
        return abs(part - float(values.sum())) < 1e-9 * float(values.sum())

    found: list[int] = []
    todo, steps = [(0, size)], min(STEPS, READ // sum(value.size for value in target.case.inputs.values()))
    while todo:
        first, last = todo.pop()
        steps -= 1
        if steps < 0:
            return None
        mask = numpy.zeros(size)
        mask[first:last] = 1.0
        part = target.reference({**base, name: mask.reshape(shape)})[target.flat]
        if part == 0:
            continue
        if last - first == 1 or (abs(part - (last - first)) < 1e-9 and counts_once(first, last)):
            found += range(first, last)
            continue
        todo += [(first, (first + last) // 2), ((first + last) // 2, last)]
    return numpy.array(sorted(found))


class _Terms:
    """Asks for the sums of ranges, and halves those that are wrong."""

    def __init__(
        self, target: Target, name: str, base: Mapping[str, ndarray], weights: ndarray, places: ndarray, asked: int,
        belongs: bool,
    ) -> None:  # fmt: skip
        self.target, self.name, self.base, self.weights, self.places = target, name, base, weights, places
        self.asked, self.failed, self.belongs = asked, False, belongs
        self.rounding = ROUNDINGS * target.roundoff
        self.others = weights % len(WEIGHTS) + 1  # for each place another one

    def runs(self) -> list[Run]:
        """The ranges whose terms do not count as they must, in order; empty where all do or it does not add up."""
        found: list[Run] = []
        todo = [(0, len(self.places))]
        while todo and not self.failed:
            first, last = todo.pop(0)
            if first == last:
                continue
            pair = self._sums(first, last)
            if pair is None:
                return _merged(found) if self.asked < 0 else []
            got, want = pair
            if want and not self.belongs:  # coefficients that cancel each other hid these elements: nothing is known
                self.failed = True
                return []
            times = round(got / want) if want else 0
            unit = want != 0 and abs(got - times * want) <= self.rounding * abs(got)
            if (unit and times == 1) or (want == 0 and got == 0):
                continue
            if unit and 0 <= times <= MOST_TIMES and (last - first == 1 or times == 0 or last - first > 4):
                if want and not self._again(first, last, times):
                    return []
                found.append(Run(first, last - 1, times))
            elif last - first == 1:
                if want:
                    self.failed = True
                    return []
                found.append(Run(first, first, 1))
            else:
                middle = (first + last) // 2
                todo[:0] = [(first, middle), (middle, last)]
            if len(found) > 6 * RANGES:
                break
        return _merged(found)

    def _again(self, first: int, last: int, times: int) -> bool:
        """Whether the range counts as often with other weights, and with other factors: one sum may be a multiple by
        chance, and what multiplies a term may be wrong itself."""
        pair = self._sums(first, last, self.others)
        if pair is None or abs(pair[0] - times * pair[1]) > self.rounding * abs(pair[0]):
            self.failed = True
            return False
        if any(bool(value.any()) for name, value in self.base.items() if name != self.name):
            pair = self._sums(first, last, self.others, _other_factors(self.base))
            if pair is None or abs(pair[0] - times * pair[1]) > max(self.rounding, CLOSE) * abs(pair[1]):
                self.failed = True
        return not self.failed

    def _sums(
        self, first: int, last: int, weights: ndarray | None = None, base: Mapping[str, ndarray] | None = None
    ) -> tuple[float, float] | None:
        """(got, expected) with the input 0 outside of the range; None if that fails, or enough was asked."""
        import numpy

        self.asked -= 1
        if self.asked < 0:
            self.failed = True
            return None
        values = numpy.zeros(self.weights.size)
        chosen = self.places[first:last]
        values[chosen] = (self.weights if weights is None else weights)[chosen]
        inputs = {**(base or self.base), self.name: values.reshape(self.base[self.name].shape)}
        answer = self.target.answer(inputs)
        if answer is None or not numpy.isfinite(answer[self.target.flat]):
            self.failed = True
            return None
        return float(answer[self.target.flat]), float(self.target.reference(inputs)[self.target.flat])


def _merged(runs: Sequence[Run]) -> list[Run]:
    found: list[Run] = []
    for run in sorted(runs, key=lambda each: each.first):
        if found and found[-1].last + 1 == run.first and found[-1].times == run.times:
            found[-1] = Run(found[-1].first, run.last, run.times)
        else:
            found.append(run)
    return found


def _terms_words(
    target: Target, name: str, shape: Sequence[int], places: ndarray, runs: Sequence[Run], belongs: bool
) -> str:
    """``A[0, 4..7] is not in the sum for C[0, 0]; A[0, 0] counts 2 times``"""
    said = []
    for run in runs[:RANGES]:
        which = range_words(name, shape, places[run.first : run.last + 1].tolist())
        if not belongs:
            said.append(f"{which} is added to {target.words}, and does not belong there")
        elif run.times == 0:
            said.append(f"{which} is not in the sum for {target.words}")
        else:
            said.append(f"{which} counts {run.times} times in {target.words}")
    return "; ".join(said) + ("; and more" if len(runs) > RANGES else "")


# -- products --------------------------------------------------------------------------------------------------------


def _products(target: Target) -> Iterator[Observed]:
    """Where two inputs are multiplied: elements of the first that meet others of the second than they must."""
    base = _ones(target)
    pair = [tensor for tensor in floats(target) if _is_linear(target, tensor.name, base)]
    if len(pair) != 2:
        return
    first, second = (tensor.name for tensor in pair)
    support = _support(target, first, base)
    if support is None or not len(support):
        return
    count = len(support)
    spread = dict.fromkeys([0, 1, count // 2, count - 1, count // 4, 4 % count])
    chosen = [int(support[each]) for each in spread if each < count]
    said, elements = [], list[Element]()
    for flat in chosen[: PARTNERS + 2]:
        partners = _partner(target, first, second, flat, base)
        if partners is None:
            return
        got, want = partners
        if got != want:
            met, right = (element(second, base[second].shape, each) for each in (got, want))
            said.append(f"{element(first, base[first].shape, flat)} is multiplied with {met}, not with {right}")
            elements += [Element(name, place, Part.MET) for name, place in ((first, flat), (second, got))]
    if said:
        yield Observed(f"{target.words}: " + "; ".join(said[:2]), target, tuple(elements[:2]))


def _partner(target: Target, first: str, second: str, flat: int, base: Mapping[str, ndarray]) -> tuple[int, int] | None:
    """(the element of ``second`` that ``first``'s element meets in the target, the one that it must meet)."""
    import numpy

    single = numpy.zeros(base[first].size)
    single[flat] = 1.0
    inputs = {**base, first: single.reshape(base[first].shape)}
    shape = base[second].shape

    def of(make: Make) -> ndarray | None:
        def made(more: Mapping[str, ndarray]) -> ndarray | None:
            answer = make({**inputs, **more})
            return None if answer is None else answer[target.flat : target.flat + 1]

        return _sources(target, second, shape, made, every=False)

    want, got = of(target.reference), of(target.answer)
    if want is None or got is None or want[0] < 0 or got[0] < 0:
        return None
    return int(got[0]), int(want[0])
