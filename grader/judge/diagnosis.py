"""A wrong answer -> clues: what further calls on the same launcher show of its cause.

A clue states what was observed. It names a cause only if the experiments leave no other: see the modules that it asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.judge.cancellation import cancelled
from grader.judge.case import CaseKey, allowed, largest_within
from grader.judge.displacements import displaced
from grader.judge.first_nan import first_nan
from grader.judge.lab import Judged, Lab, element, judged
from grader.judge.near_misses import near_miss
from grader.judge.neighbours import beside_sizes, beside_values
from grader.judge.pattern import describe_lines, describe_swizzle, describe_values
from grader.judge.probes import probe
from grader.judge.untouched import why_untouched
from grader.judge.writers import of_writers
from grader.verdict import CLUES, Clue

if TYPE_CHECKING:
    from numpy import ndarray

LARGER, LARGER_WORK = 2, 1_000_000  # cases, and the most work of each
ROWS = 8  # of a swizzle, and the chunks in each
MOST_ELEMENTS = 1 << 16  # of a case's output, for which wrong answers are looked into


def diagnose(lab: Lab, failed: CaseKey) -> tuple[CaseKey, tuple[Clue, ...]]:
    """The failing case with the kind of values in which most elements are wrong, and what was found out about it."""
    first = _first(lab, failed)
    if first is None:
        return failed, ()
    order = [*_order(lab, first)]
    kinds = [lab.try_key(replace(failed, values=values.name)) for values in lab.spec.values]
    wrong = [each for each in kinds if each is not None and each.wrong]
    richest = max([first, *wrong], key=lambda each: (each.first_wrong == first.first_wrong, _shown(each)))
    if _shown(richest) <= _shown(first):
        richest = first
    clues = [*order, *_clues(lab, richest), *_of_repeats(lab, richest)]
    return richest.case.shape, sorted_clues(clues)


def _first(lab: Lab, failed: CaseKey) -> Judged | None:
    """The failing case as it failed: in the first of its calls, or in the second, which the lab then makes from here.
    None where neither is wrong."""
    first = lab.try_key(failed)
    if first is not None and not first.wrong:
        lab.nth = 1
        del lab.judged[failed]
        first = lab.try_key(failed)
    return first if first is not None and first.wrong else None


def _order(lab: Lab, first: Judged) -> Iterator[Clue]:
    """Whether a case that is wrong in its second call alone is right in that call with the first one's order of warps
    and blocks, and again wrong without."""
    if not lab.nth or not lab.steady:
        return
    states = []
    for order in (0, 1, 0, 1):
        outcome = lab.run(first.case, order=order)
        states.append(None if outcome is None else judged(first.case, outcome).wrong)
    if states == [False, True, False, True]:
        words = (
            "the same call is right if its warps and blocks run in another order: the answer depends on which is first"
        )
        yield Clue("order", words)


def _of_repeats(lab: Lab, one: Judged) -> Iterator[Clue]:
    """Whether other elements are wrong now than when the case was first called: then the file keeps something. That is
    said only if the same call then gives the same answer twice, and no atomics that may take turns made it."""
    import numpy

    if not lab.steady or lab.nth:
        return
    again = [outcome for outcome in (lab.run(one.case), lab.run(one.case)) if outcome is not None]
    if len(again) < 2 or again[0].outputs != again[1].outputs or any(outcome.order for outcome in again):
        return
    for expected, before, after in zip(one.expected, one.compared, judged(one.case, again[0]).compared, strict=True):
        if not numpy.array_equal(before.wrong, after.wrong):
            first, then = (int(found.wrong.sum()) for found in (before, after))
            what = f"{first} elements of {expected.tensor.name} were wrong, then {then}{' others' * (first == then)}"
            yield Clue(
                "calls", f"the same call gave other answers ({what}): the file keeps something from call to call"
            )
            return


def sorted_clues(clues: Iterable[Clue]) -> tuple[Clue, ...]:
    """The most telling first."""
    order = list(CLUES)
    return tuple(sorted(clues, key=lambda clue: order.index(clue.about)))


def _shown(one: Judged) -> int:
    """How many elements of the first wrong output differ by a finite number: those tell most."""
    import numpy

    place = one.first_wrong
    found, want = one.compared[place], one.expected[place].value
    return int((found.wrong & numpy.isfinite(found.got) & numpy.isfinite(want)).sum())


def _clues(lab: Lab, one: Judged) -> Iterator[Clue]:
    yield from _outputs(one)
    yield from first_nan(lab, one)
    yield from beside_values(lab, one.case.shape)
    yield from beside_sizes(lab, one.case.shape)
    for key in _larger(lab):
        lab.try_key(key)
    # Cases that fail may all have one row or one index: a formula must hold on the largest named shape, too.
    if (sizes := largest_within(lab.kata, lab.spec, LARGER_WORK)) is not None:
        lab.try_key(CaseKey.of(lab.spec, sizes, lab.spec.values[0].name, 1))
    named = list(near_miss(lab))
    yield from named
    small = sum(each.got.size for each in one.compared) <= MOST_ELEMENTS
    if named:
        # A formula has no line: those of an element's way do not say another cause.
        yield from (each for each in probe(lab, one) if small and each.about == "path" and each.line is not None)
        return
    yield from _relation(lab, one)
    yield from (Clue("relation", words) for words in cancelled(lab, one))
    yield from _of_unwritten(lab, one)
    if small and not _unwritten(one):
        yield from of_writers(lab, one)
        lab.findings = max(lab.findings, 1)  # other sizes may have had findings; this one has an answer
        yield from probe(lab, one)


def _larger(lab: Lab) -> list[CaseKey]:
    """The largest of the cases that failed in the search: there formulas differ that are equal on the smallest."""
    failed = [key for key, wrong in lab.known.items() if wrong and key not in lab.judged]
    work = {key: lab.spec.work(dict(key.sizes)) for key in failed}
    return sorted((key for key in failed if work[key] <= LARGER_WORK), key=lambda key: -work[key])[:LARGER]


def _unwritten(one: Judged) -> bool:
    """Whether all wrong elements of the first wrong output were never written: then nothing is wrong with values."""
    found = one.compared[one.first_wrong]
    return bool(found.unwritten[found.wrong].all())


def _of_unwritten(lab: Lab, one: Judged) -> Iterator[Clue]:
    """What kept threads from writing the first element that none writes."""
    found, tensor = one.compared[one.first_wrong], one.expected[one.first_wrong].tensor
    missing = (found.wrong & found.unwritten).reshape(-1)
    outcome = lab.run(one.case) if bool(missing.any()) else None
    if outcome is None:
        return
    flat, call = int(missing.argmax()), one.case.call(nth=lab.nth, limits=lab.limits)
    if (why := why_untouched(lab.text, call, outcome.launched, tensor.name, flat, "write")) is not None:
        yield Clue("path", f"no thread writes {element(tensor.name, found.got.shape, flat)}: {why.words}", why.line)


def _outputs(one: Judged) -> Iterator[Clue]:
    """Which of several outputs are right and which are wrong."""
    if len(one.expected) < 2:
        return
    words = []
    for expected, found in zip(one.expected, one.compared, strict=True):
        wrong = int(found.wrong.sum())
        state = f"wrong ({wrong} of {found.wrong.size})" if wrong else "right"
        words.append(f"{expected.tensor.name} {state}")
    yield Clue("outputs", f"in the order in which they are computed: {', '.join(words)}")


def _relation(lab: Lab, one: Judged) -> Iterator[Clue]:
    """One number that explains the wrong values: of an output, or of a single element in several cases."""
    place = one.first_wrong
    name = one.expected[place].tensor.name
    if not one.expected[place].dtype.is_float:
        return
    roundoff = one.expected[place].dtype.roundoff
    if words := _swizzled(lab, one, place):
        yield Clue("relation", f"{name}, {words}")
        return
    if words := _displaced(lab, one, place, roundoff):
        yield Clue("relation", words)
        return
    got, want = _written(one, place)
    words = describe_values(got, want, roundoff, one.case.sizes)
    if words is not None:
        yield Clue("relation", f"{name}: {words}")
        return
    if words := _line_by_line(lab, place, roundoff):
        yield Clue("relation", f"{name}, {words}")
        return
    if one.compared[place].wrong.size > 1:
        return
    cases = [each for each in lab.judged.values() if each.compared[place].wrong.all() and each.wrong]
    words = describe_values(*_joined([_written(each, place) for each in cases]), roundoff, {})
    if words is not None:
        words = words.replace("every wrong element", f"{name}, in {len(cases)} cases that were tried,")
        yield Clue("relation", words)


def _swizzled(lab: Lab, one: Judged, place: int) -> str | None:
    """Chunks of 16 bytes that are in the places of a swizzle, in a case that has all of them: the smallest has one."""
    expected = one.expected[place]
    shape, vector = expected.tensor.shape, 16 // expected.dtype.itemsize
    if len(shape) != 2 or not all(each in one.case.sizes for each in shape) or vector < 1:
        return None
    least = dict(zip(shape, (ROWS, ROWS * vector), strict=True))
    sizes = {name: max(size, least.get(name, size)) for name, size in one.case.sizes.items()}
    if not allowed(lab.kata, sizes) or lab.spec.work(sizes) > LARGER_WORK:
        return None
    found = lab.try_key(CaseKey.of(lab.spec, sizes, lab.spec.values[0].name, 1))
    if found is None or not found.wrong or found.first_wrong != place:
        return None
    compared, roundoff = found.compared[place], expected.dtype.roundoff
    words = describe_swizzle(compared.got, found.expected[place].value, compared.wrong, roundoff, vector)
    return words and f"at {found.case.shape}: {words}"


def _displaced(lab: Lab, one: Judged, place: int, roundoff: float) -> str | None:
    """Right values at wrong places, in this case or in the largest wrong answer: in the smallest all may come from
    outside."""
    wrong = [each for each in lab.judged.values() if each.wrong and each.first_wrong == place]
    largest = max(wrong, key=lambda each: each.compared[place].got.size, default=one)
    for each in (one, largest):
        found, expected = each.compared[place], each.expected[place]
        if bool(found.unwritten.any()):
            continue
        words = displaced(expected.tensor.name, found.got.astype(float), expected.value, found.wrong, roundoff)
        if words is not None:
            return words if each is one else f"at {each.case.shape}: {words}"
    return None


def _line_by_line(lab: Lab, place: int, roundoff: float) -> str | None:
    """A number for each row or each column, in the largest wrong answer: the smallest may have one row."""
    wrong = [each for each in lab.judged.values() if each.wrong and each.first_wrong == place]
    if not wrong:
        return None
    largest = max(wrong, key=lambda each: each.compared[place].got.size)
    found = largest.compared[place]
    if found.got.size > MOST_ELEMENTS or bool(found.unwritten.any()):
        return None
    words = describe_lines(found.got, largest.expected[place].value, found.wrong, roundoff)
    return words and f"at {largest.case.shape}: {words}"


def _written(one: Judged, place: int) -> tuple[ndarray, ndarray]:
    """The wrong elements of an output that were written: got, and expected."""
    found = one.compared[place]
    chosen = found.wrong & ~found.unwritten
    return found.got[chosen], one.expected[place].value[chosen]


def _joined(pairs: Sequence[tuple[ndarray, ndarray]]) -> tuple[ndarray, ndarray]:
    import numpy

    return numpy.concatenate([got for got, _ in pairs]), numpy.concatenate([want for _, want in pairs])
