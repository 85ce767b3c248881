"""Wrong whole numbers, of all cases that were tried -> what they have in common: places in a row, and counts.

A column that is chosen among equal ones is told by the input's values at both columns. Anything else is a rule that all
wrong elements follow and no right one, over several cases: a difference, a remainder, a place from which all are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grader.judge.case import CaseKey, largest_within
from grader.judge.lab import Judged, Lab
from grader.judge.target import LEAST_CASES

if TYPE_CHECKING:
    from numpy import ndarray

SUPPORT = 4  # wrong elements, of all cases together
STEPS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)  # elements of a warp, a block or a step, for remainders
MOST_WORK = 1_000_000  # of a case that is tried beside the others
FARTHEST = 4  # places that a whole output may be moved by


@dataclass(frozen=True)
class _Seen:
    """An output of one case: got and expected of all elements, and which are wrong."""

    one: Judged
    got: ndarray
    want: ndarray
    wrong: ndarray


def of_integers(lab: Lab, one: Judged) -> Iterator[str]:
    """At most one clue, on the first wrong output; none where it is not of whole numbers."""
    output = one.first_wrong
    if one.expected[output].dtype.is_float:
        return
    name = one.expected[output].tensor.name
    if (sizes := largest_within(lab.kata, lab.spec, MOST_WORK)) is not None:
        lab.try_key(CaseKey.of(lab.spec, sizes, lab.spec.values[0].name, 1))
    largest = max(
        (each for each in lab.judged.values() if each.wrong and each.first_wrong == output),
        key=lambda each: sum(value.size for value in each.case.inputs.values()),
    )
    for values in lab.spec.values:  # which rule it is shows with values whose answers lie elsewhere
        lab.try_key(replace(largest.case.shape, values=values.name))
    seen = [
        _Seen(each, each.compared[output].got, each.expected[output].value, each.compared[output].wrong)
        for each in lab.judged.values()
        if not bool(each.compared[output].unwritten.any()) and each.compared[output].got.size
    ]
    failed = [each for each in seen if bool(each.wrong.any())]
    many = len(failed) >= LEAST_CASES
    rules = (_ties, _twice, _moved, _total) if are_places(lab, output) else (_moved, _total)
    for rule in rules:
        if words := rule(lab, name, failed):
            yield f"{words} (in {len(failed)} wrong {'cases' if len(failed) > 1 else 'case'} that were tried)"
            return
    shapes = {each.one.case.shape.sizes for each in failed}
    comparable = [each for each in seen if each.one.case.shape.sizes in shapes]
    own = one.case.shape.values
    of_kind = [each for each in comparable if each.one.case.shape.values == own or not each.wrong.any()]
    for chosen, where in ((comparable, ""), (of_kind, f", values: {own}")):
        if many and (words := _rule(name, chosen)):
            number = sum(bool(each.wrong.any()) for each in chosen)
            yield f"{words} (in {number} wrong cases that were tried{where})"
            return


def _joined(seen: Sequence[_Seen], of: Callable[[_Seen], ndarray]) -> ndarray:
    import numpy

    return numpy.concatenate([of(each).reshape(-1) for each in seen])


# -- rules for single elements ---------------------------------------------------------------------------------------


def _rule(name: str, seen: Sequence[_Seen]) -> str | None:
    """What all wrong elements follow; of the right ones none may."""
    import numpy

    wrong = _joined(seen, lambda each: each.wrong).astype(bool)
    got, want = (_joined(seen, of) for of in (lambda each: each.got, lambda each: each.want))
    if wrong.sum() < SUPPORT or numpy.unique(want[wrong]).size < 2:
        return None
    off = got[wrong] - want[wrong]
    if bool((off == off[0]).all()) and bool(wrong.all()):
        return f"every wrong element of {name} is {abs(int(off[0]))} too {'large' if off[0] > 0 else 'small'}"
    fitting = [
        step
        for step in STEPS
        if bool((want[wrong] >= step).all() and (got[wrong] == want[wrong] % step).all())
        and bool((want[~wrong] < step).all())
    ]
    right = want[~wrong]
    least = int(want[wrong].min())
    if len(fitting) == 1 or least in fitting:
        step = fitting[0] if len(fitting) == 1 else least
        return f"every wrong element of {name} is what it must be, modulo {step}"
    if least in STEPS and right.size >= SUPPORT and bool((right < least).all()):
        return f"{name} is wrong exactly where it must be {least} or more"
    return None


def are_places(lab: Lab, output: int) -> bool:
    """Whether the output's elements are places in rows of an input, or -1, in all cases that were tried."""
    for one in lab.judged.values():
        want = one.expected[output].value
        row = _row_input(_Seen(one, want, want, want))
        if row is None or bool((want < -1).any()) or bool((want >= row.shape[-1]).any()):
            return False
    return True


def _row_input(each: _Seen) -> ndarray | None:
    """The only input with a row for each row of the output, and one dimension more or another last one."""
    outer = each.got.shape if each.got.ndim == 1 else each.got.shape[:-1]
    found = [
        value
        for value in each.one.case.inputs.values()
        if value.ndim == len(outer) + 1 and value.shape[:-1] == outer and value.dtype.kind == "f"
    ]
    return found[0] if len(found) == 1 else None


# -- columns that were chosen ----------------------------------------------------------------------------------------


def _ties(lab: Lab, name: str, failed: Sequence[_Seen]) -> str | None:
    """Every wrong element is the column of a value that equals the one at the right column."""
    import numpy

    pairs, zeros = [], True
    for each in failed:
        row = _row_input(each)
        if row is None or row.shape == each.got.shape:
            return None
        places = zip(*each.wrong.nonzero(), strict=True)
        for index in places:
            outer = index if each.got.ndim == 1 else index[:-1]
            got, want = int(each.got[index]), int(each.want[index])
            if not 0 <= got < row.shape[-1] or not 0 <= want < row.shape[-1] or row[outer][got] != row[outer][want]:
                return None
            pairs.append((got, want))
            zeros = zeros and row[outer][got] == 0 and bool(numpy.signbit(row[outer][got] * row[outer][want]))
    if len(pairs) < SUPPORT:
        return None
    side = "higher" if all(got > want for got, want in pairs) else "lower" if all(a < b for a, b in pairs) else "other"
    values = "0 and -0, which are equal" if zeros else "equal values"
    return f"every wrong element of {name} is the {side} of two places with {values}"


def _twice(lab: Lab, name: str, failed: Sequence[_Seen]) -> str | None:
    """A row with a place twice, where all must differ."""
    import numpy

    for each in failed:
        if each.got.ndim < 2 or _row_input(each) is None:
            return None
    for each in failed:
        for got, want in zip(_rows(each.got), _rows(each.want), strict=True):
            kept = want >= 0
            values, times = numpy.unique(got[got >= 0], return_counts=True)
            if numpy.unique(want[kept]).size == kept.sum() and bool((times > 1).any()):
                return f"a row of {name} has the place {int(values[times.argmax()])} {int(times.max())} times"
    return None


def _rows(values: ndarray) -> ndarray:
    return values.reshape(-1, values.shape[-1])


# -- whole outputs ---------------------------------------------------------------------------------------------------


def _moved(lab: Lab, name: str, failed: Sequence[_Seen]) -> str | None:
    """Every element is what another one, a few places on, must be."""
    import numpy

    found = set()
    for each in failed:
        got, want = each.got.reshape(-1), each.want.reshape(-1)
        if got.size < 3 * FARTHEST or numpy.unique(want).size < SUPPORT:
            continue
        inner = slice(FARTHEST, got.size - FARTHEST)
        found.add(
            next(
                (
                    by
                    for by in (*range(-FARTHEST, 0), *range(1, FARTHEST + 1))
                    if bool((got[inner] == numpy.roll(want, -by)[inner]).all())
                ),
                0,
            )
        )
    if len(found) != 1 or 0 in found:
        return None
    by = found.pop()
    return f"{name}[i] has what {name}[i {'+' if by > 0 else '-'} {abs(by)}] must have"


def _total(lab: Lab, name: str, failed: Sequence[_Seen]) -> str | None:
    """Counts: what they add up to, where that must be the number of an input's elements."""
    for each in failed:
        whole = [value.size for value in each.one.case.inputs.values()]
        if each.want.ndim != 1 or each.want.sum() not in whole or bool((each.want < 0).any()):
            return None
    off = [int(each.got.sum() - each.want.sum()) for each in failed]
    if len(failed) < LEAST_CASES or all(each.want.size < 2 for each in failed):
        return None
    if not (all(each < 0 for each in off) or all(each > 0 for each in off)):
        return None
    most = max(failed, key=lambda each: int(each.want.sum()))
    words = f"the elements of {name} add up to {'more' if off[0] > 0 else 'less'} than all that is counted"
    return f"{words}: at {most.one.case.shape}, to {int(most.got.sum())} of {int(most.want.sum())}"
