"""A wrong output element -> input elements that change it and must not, or that must change it and do not.

One element of an input gets another value. Where that changes the reference by far more than rounding, it must change
the launcher's answer. This needs no formula: it works for sums behind a root, an exponential or a logarithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.judge.case import Case
from grader.judge.displacements import displaced
from grader.judge.integers import are_places
from grader.judge.lab import Judged, Lab
from grader.judge.target import Element, Observed, Part, Target, floats, range_words, target_of

if TYPE_CHECKING:
    from numpy import ndarray

MOST = 1200  # elements of an input that are asked about
MOST_PLACES = 1 << 14
CALLS = 30  # of the launcher, for one input
NOISE, LEAST_NOISE = 2.0, 2.0**-21  # roundings of an answer that nothing was changed for; and as a share
TELLING = 50  # times that noise, that the reference must change by
RISE = 16.0  # of an element
LOWEST, STEPS = 0.5, 128  # all elements are whole 128ths from 0.5 on, below 1.5
CONTENTS = 3  # other ones of the inputs that are not drawn here
ORDERS = 2  # inputs that alone are not 1
LARGER = 3  # wrong cases, beside the smallest
TOGETHER = 16  # elements that are asked about at once


def influences(lab: Lab, one: Judged) -> Iterator[Observed]:
    """At most one clue, of the smallest wrong case or of a larger one."""
    import numpy

    wrong = [each for each in lab.judged.values() if each.wrong and each.first_wrong == one.first_wrong]
    most = MOST if one.expected[one.first_wrong].dtype.is_float else MOST_PLACES
    small = [each for each in wrong if max(value.size for value in each.case.inputs.values()) <= most]
    small = [each for each in small if bool(numpy.isfinite(each.compared[each.first_wrong].got).all())]
    sizes = {each.case.shape.sizes: each for each in small if each.case.shape.sizes != one.case.shape.sizes}
    larger = sorted(sizes.values(), key=lambda each: -sum(value.size for value in each.case.inputs.values()))
    for each in (one, *larger[:LARGER]):
        if bool(each.compared[each.first_wrong].unwritten.any()):
            continue
        target = target_of(lab, each)
        places = not target.is_float and are_places(lab, one.first_wrong)
        if each is one and (words := _among_ones(target)):
            yield Observed(words)
            return
        for tensor in floats(target):
            if found := _of_input(target, tensor.name, places=places):
                words = found.words if each is one else f"at {each.case.shape}: {found.words}"
                yield replace(found, words=words)
                return


def _among_ones(target: Target) -> str | None:
    """Whether the wrong elements are right ones of other places, where all numbers but those of one input are 1: scales
    and the like, which each element has of its own place, then change nothing."""
    import numpy

    numbers = floats(target, narrow=True)
    if not target.is_float or len(numbers) < 2:
        return None
    ones = {each.name: numpy.ones(each.extent(target.case.sizes)) for each in numbers}
    for name in [each.name for each in numbers][:ORDERS]:
        drawn = LOWEST + numpy.random.default_rng(23).integers(0, STEPS, ones[name].shape) / STEPS
        inputs = {**ones, name: drawn}
        got = target.answer(inputs)
        if got is None:
            return None
        want = target.reference(inputs)
        wrong = abs(got - want) > TELLING * target.roundoff * abs(want).max()
        got, want, wrong = (each.reshape(target.shape) for each in (got, want, wrong))
        if words := displaced(target.name, got, want, wrong, target.roundoff):
            return f"with all numbers 1 but those of {name}: {words}"
    return None


def _of_input(target: Target, name: str, *, places: bool) -> Observed | None:
    import numpy

    extent = next(tensor for tensor in target.lab.spec.inputs if tensor.name == name).extent(target.case.sizes)
    size = int(numpy.prod(extent))
    if not 1 < size <= (MOST_PLACES if places else MOST):
        return None
    search = _Search(target, name, extent, places=places)
    if not search.is_finite:
        return None
    if places:
        raised = search.raised(name, extent)
        return None if raised is None else Observed(raised)
    must, others = search.effects(size)
    if not must:
        return None
    own = [target.flat] if tuple(extent) == target.shape else []
    if (lacking := search.without_influence(must)) not in (None, own):  # its own element may cancel itself
        which = range_words(name, extent, lacking or []) + " and perhaps more" * search.is_cut
        named = tuple(Element(name, flat, Part.LACKING) for flat in (lacking or [])[:1])
        return Observed(f"{target.words} does not depend on {which}, and must", target, named)
    if (foreign := search.foreign(others)) is not None:
        factor = search.has_factor_0(foreign)
        why = "though what multiplies it there is 0" if factor else "and must not"
        words = f"{range_words(name, extent, [foreign])} changes {target.words}, {why}"
        # What multiplies it is at fault, not its own way.
        return Observed(words, target, () if factor else (Element(name, foreign, Part.FOREIGN),))
    return None


class _Search:
    """Asks the reference and the launcher what some elements change."""

    def __init__(self, target: Target, name: str, extent: Sequence[int], *, places: bool) -> None:
        import numpy

        self.target, self.name, self.extent = target, name, extent
        self.calls, self.sign, self.is_cut = CALLS, 1, False
        self.is_factor_wrong = False  # an element changes nothing only where its factor is 0 by chance
        self.base: ndarray
        self.others: dict[str, ndarray]
        self._draw(13)
        if places:  # no two of them have equal values
            self.base = numpy.random.default_rng(13).permutation(self.base.size) / RISE
            self.right, self.got = self.reference_at([]), self._answer([])
        self.is_finite = self.got is not None and bool(numpy.isfinite([self.right, self.got]).all())

    def _inputs(self, risen: Sequence[int]) -> dict[str, ndarray]:
        import numpy

        values = self.base.copy()
        # Not all by the same number, which may change nothing.
        values[list(risen)] += self.sign * RISE + numpy.arange(len(risen)) % 4
        return {**self.others, self.name: values.reshape(self.extent)}

    def _answer(self, risen: Sequence[int]) -> float | None:
        self.calls -= 1
        answer = None if self.calls < 0 else self.target.answer(self._inputs(risen))
        return None if answer is None else float(answer[self.target.flat])

    def _noise(self, *values: float) -> float:
        return max(NOISE * self.target.roundoff, LEAST_NOISE) * max(map(abs, values)) + LEAST_NOISE * RISE

    def reference_at(self, risen: Sequence[int]) -> float:
        return float(self.target.reference(self._inputs(risen))[self.target.flat])

    def must_change(self, risen: Sequence[int]) -> bool:
        """By so much that no rounding hides it."""
        return self._is_telling(self.reference_at(risen))

    def _is_telling(self, now: float) -> bool:
        return abs(now - self.right) > TELLING * self._noise(now, self.right)

    def effects(self, size: int) -> tuple[list[int], list[int]]:
        """The elements that must change the output, by so much that no rounding hides it, and those that must not
        change it at all. The second are mostly beside each other: several are asked about at once."""
        must, others = list[int](), list[int]()
        for first in range(0, size, TOGETHER):
            beside = range(first, min(first + TOGETHER, size))
            if self.reference_at(beside) == self.right:
                others += beside
                continue
            for each in beside:
                now = self.reference_at([each])
                if self._is_telling(now):
                    must.append(each)
                elif now == self.right:
                    others.append(each)
        return must, others

    def changes(self, risen: Sequence[int]) -> bool | None:
        """Whether the answer changes by more than it may by rounding."""
        import numpy

        now = self._answer(risen)
        if now is None or self.got is None or not numpy.isfinite(now):
            return None
        return abs(now - self.got) > self._noise(now, self.got)

    def raised(self, name: str, extent: Sequence[int]) -> str | None:
        """The place of the largest element of a row, of a row with one that is larger than all others."""
        if self.got != self.right:
            return None
        for at in _spread(self.base.size):
            self.base[at] += self.base.size
            got, right = self._answer([]), self.reference_at([])
            self.base[at] -= self.base.size
            if got is None:
                return None
            if got != right and right != self.right:
                larger = f"with {range_words(name, extent, [at])} larger than all others"
                return f"{larger}, {self.target.words} is {got:g}, and must be {right:g}"
        return None

    def _elsewhere(self, element: int) -> list[tuple[bool, bool | None]]:
        """Whether one element must change the output, and does: raised, lowered, and among other numbers."""
        kept, found = (self.base, self.others, self.got, self.right), []
        for sign, seed in ((1, 0), (-1, 0), (1, 29)):
            if seed:
                self._draw(seed)
            self.sign = sign
            found.append((self.must_change([element]), self.changes([element])))
        self.base, self.others, self.got, self.right = kept
        self.sign = 1
        return found

    def _is_without(self, element: int) -> bool:
        """Whether it changes nothing wherever it must; also where codes, masks and the like are others: what multiplies
        it may be wrong, and 0 by chance."""
        if not all(changes is False for must, changes in self._elsewhere(element) if must):
            return False
        given = {each.name for each in floats(self.target)}
        if given >= {each.name for each in self.target.lab.spec.inputs}:
            return True
        kept, key = (self.target, self.got, self.right), self.target.case.shape
        self.calls += 2 * CONTENTS  # not of those for the search
        found = []
        for more in range(1, CONTENTS + 1):
            case = Case(self.target.lab.kata, self.target.lab.spec, replace(key, seed=key.seed + more))
            self.target = replace(kept[0], case=case)
            self.right, self.got = self.reference_at([]), self._answer([])
            found.append((self.must_change([element]), self.changes([element])))
            if found[-1] == (True, True):
                self.is_factor_wrong = True
                break
        self.target, self.got, self.right = kept
        return all(changes is False for must, changes in found if must)

    def has_factor_0(self, element: int) -> bool:
        """Whether it is a term of the sum for other codes, masks and the like: the reference then follows it in a
        straight line. Here its factor is 0."""
        lab, key = self.target.lab, self.target.case.shape
        for more in range(1, CONTENTS + 1):
            case = Case(lab.kata, lab.spec, replace(key, seed=key.seed + more))
            found = []
            for rise in (-RISE, 0.0, RISE):
                values = self.base.copy()
                values[element] += rise
                inputs = {**self.others, self.name: values.reshape(self.extent)}
                found.append(float(replace(self.target, case=case).reference(inputs)[self.target.flat]))
            low, middle, high = found
            if high != middle:
                return abs(high - 2 * middle + low) <= self._noise(*found)
        return False

    def _draw(self, seed: int) -> None:
        """Numbers for all inputs, no two of them with the same difference: what is 0 by chance hides what depends on
        it."""
        import numpy

        rng, sizes = numpy.random.default_rng(seed), self.target.case.sizes
        names = {each.name: each.extent(sizes) for each in floats(self.target) if each.name != self.name}
        self.others = {name: LOWEST + rng.integers(0, STEPS, extent) / STEPS for name, extent in names.items()}
        self.base = LOWEST + rng.integers(0, STEPS, int(numpy.prod(self.extent))) / STEPS
        self.right, self.got = self.reference_at([]), self._answer([])

    def without_influence(self, must: Sequence[int]) -> list[int] | None:
        """A run of these elements that change nothing."""
        for at in _spread(len(must)):
            changed = self.changes([must[at]])
            if changed is None:
                return None
            if not changed and self._is_without(must[at]):
                others = [each for each in must if each != self.target.flat]  # the element of its own place may count
                if self.must_change(others) and self.changes(others) is False:
                    return others
                first = self._grown(must, at, -1)
                return list(must[first : self._grown(must, at, 1) + 1])
            if self.is_factor_wrong:
                return None
        return None

    def _grown(self, must: Sequence[int], at: int, step: int) -> int:
        """How far from one element on the next ones change nothing, either."""
        end = 0 if step < 0 else len(must) - 1
        known, width = at, abs(end - at)
        while width > 0:
            to = known + step * min(width, abs(end - known))
            inside = must[min(known, to) : max(known, to) + 1]
            changes = self.changes(inside) if to != known and self.must_change(inside) else True
            if changes is None:  # enough was tried: the border is not known
                self.is_cut = True
                return known
            known = known if changes else to
            width = 0 if width == 1 else (width + 1) // 2
        return known

    def foreign(self, others: Sequence[int]) -> int | None:
        """One of these elements that changes the answer: none of them may."""
        if not others or not self.changes(others):
            return None
        while len(others) > 1:
            half = others[: len(others) // 2]
            changed = self.changes(half)
            if changed is None:
                return None
            others = half if changed else others[len(others) // 2 :]
        told = [must or not changes for must, changes in self._elsewhere(others[0])]
        return None if any(told) else others[0]


def _spread(count: int) -> list[int]:
    """Some of so many places: the ends, and where a warp or half of them ends."""
    places = [count - 1, 0, count // 2, count - 2, 1, count // 4, 3 * count // 4, 33]
    return [*dict.fromkeys(min(max(each, 0), count - 1) for each in places)]
