"""A wrong output element that no other probe explains -> what one input element alone makes of it.

Where the reference is linear in an input, all of that input is 0 but one element: what the launcher makes of it, next
to what the reference makes, is the factor of that element. The lines by which it gets there are where the factor is.

If it is any other function, all elements are 0 but one: where the reference stands out at the place of that
one alone, the launcher's answer must, too. Norms are such: each of their elements has a term of its own. For all
others, only the lines are told by which the element of the same place gets to the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.judge.lab import Judged, Lab
from grader.judge.target import Element, Observed, Part, Target, floats, range_words, target_of

if TYPE_CHECKING:
    from numpy import ndarray

MOST = 1 << 14  # elements of an input
TRIED = 24  # elements, to find those that the target depends on
SHOWN = 2  # elements
OWN_TRIED, LEAST = 6, 3  # elements that are asked for their own term; of an output, in which one can stand out
APART = 3.0  # times as far as the next
CLOSE = 0.004  # of a factor, as a share: a half has 11 bits, a bfloat 8
IsLinear = Callable[[Target, str, Mapping[str, "ndarray"]], bool]


def impulses(lab: Lab, one: Judged, is_linear: IsLinear) -> Iterator[Observed]:
    """At most one clue. ``is_linear`` says whether the reference is linear in an input, the others being as given."""
    import numpy

    target = target_of(lab, one)
    extents = {tensor.name: tensor.extent(target.case.sizes) for tensor in floats(target, narrow=True)}
    ones = {name: numpy.ones(extent) for name, extent in extents.items()}
    for name, extent in extents.items():
        if int(numpy.prod(extent)) > MOST or not is_linear(target, name, ones):
            continue
        said = [*_factors(target, name, extent, ones)]
        wrong = [each for each in said if each[3]]
        if not wrong:
            continue
        shown = wrong[:1] + [each for each in said if each is not wrong[0]][: SHOWN - 1]
        words = [_words(target, name, extent, flat, got, want) for flat, got, want, _ in shown]
        more = f", and all other {name} 0" if int(numpy.prod(extent)) > 1 else ""
        part = Part.LACKING if wrong[0][1] == 0 else Part.WEIGHED
        elements = (Element(name, wrong[0][0], part),)
        yield Observed(f"with one {name} 1{more}: {'; '.join(words)}", target, elements)
        return
    for name in (name for name, extent in extents.items() if tuple(extent) == target.shape):
        yield next(_own_terms(lab, one, name), Observed("", target, (Element(name, target.flat, Part.WEIGHED),)))
        return


def _own_terms(lab: Lab, one: Judged, name: str) -> Iterator[Observed]:
    """What the largest wrong answer shows of them: in the smallest no element may stand out."""
    wrong = [each for each in lab.judged.values() if each.wrong and each.first_wrong == one.first_wrong]
    wrong = [each for each in wrong if LEAST <= each.compared[one.first_wrong].got.size <= MOST]
    lab.calls = max(lab.calls, OWN_TRIED)  # the probes before may have made all of theirs
    for each in sorted(wrong, key=lambda each: -each.compared[one.first_wrong].got.size)[:1]:
        for found in _misplaced(target_of(lab, each), name):
            yield found if each is one else replace(found, words=f"at {each.case.shape}: {found.words}")


def _misplaced(target: Target, name: str) -> Iterator[Observed]:
    """An element whose own term is at another place of the output, or at none."""
    import numpy

    ones = {tensor.name: numpy.ones(tensor.extent(target.case.sizes)) for tensor in floats(target, narrow=True)}
    if name not in ones or ones[name].shape != target.shape:  # too large, or two sizes were the same by chance
        return
    size = int(numpy.prod(target.shape))
    places = numpy.linspace(0, size - 1, min(size, OWN_TRIED)).astype(int).tolist()
    for flat in dict.fromkeys(places):
        values = numpy.zeros(size)  # what a thread has not loaded may be 0, too
        values[flat] = 1.0
        inputs = {**ones, name: values.reshape(target.shape)}
        if _outstanding(target.reference(inputs)) != flat:
            return
        answer = target.answer(inputs)
        if answer is None or not bool(numpy.isfinite(answer).all()):
            return
        if (found := _outstanding(answer)) in (None, flat):
            continue
        own = replace(target, flat=flat)
        alone = range_words(name, target.shape, [flat])
        words = f"{own.words} must have a term of {alone} that no other element has; {target.at(found)} has it"
        yield Observed(words, own, (Element(name, flat, Part.PLACED),))
        return


def _outstanding(output: ndarray) -> int | None:
    """The place of the element that is by far farthest from what most are."""
    import numpy

    away = abs(output - numpy.median(output))
    second, first = numpy.argsort(away)[-2:].tolist()
    is_far = away[first] > APART * away[second] and away[first] > CLOSE * float(abs(output).max())
    return int(first) if is_far else None


def _words(target: Target, name: str, extent: Sequence[int], flat: int, got: float, want: float) -> str:
    expected = f", expected {want:.6g}" if abs(got - want) > CLOSE * abs(want) else ", which is right"
    return f"{range_words(name, extent, [flat])} makes {target.words} {got:.6g}{expected}"


def _factors(
    target: Target, name: str, extent: Sequence[int], ones: Mapping[str, ndarray]
) -> Iterator[tuple[int, float, float, bool]]:
    """Elements that the target depends on, the first and the last: what each makes, must make, and whether that is
    wrong. None where all 0 do not make 0."""
    import numpy

    size = int(numpy.prod(extent))
    own = [target.flat] if tuple(extent) == target.shape else []
    spread = numpy.linspace(0, size - 1, min(size, TRIED)).astype(int).tolist()
    found = []
    for flat in dict.fromkeys([*own, *spread]):
        values = numpy.zeros(size)
        values[flat] = 1.0
        inputs = {**ones, name: values.reshape(extent)}
        if (want := float(target.reference(inputs)[target.flat])) != 0:
            found.append((flat, inputs, want))
    nothing = target.answer({**ones, name: numpy.zeros(extent)}) if found else None
    if nothing is None or nothing[target.flat] != 0:
        return
    for flat, inputs, want in [*found[:1], *found[-1:]][: len(found)]:
        answer = target.answer(inputs)
        got = float("nan") if answer is None else float(answer[target.flat])
        if numpy.isfinite(got):
            yield flat, got, want, abs(got - want) > max(CLOSE, 8 * target.roundoff) * abs(want)
