"""Wrong elements that have the right values of other elements -> which elements' values are where.

A result at the wrong place is told from a wrong one by its value: the reference has it once, elsewhere. One element may
have another's value by chance; so many may not, or not all of them equally far away.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from grader.judge.lab import element, place

if TYPE_CHECKING:
    from numpy import ndarray

MOST = 1 << 15  # elements of an output
LEAST = 8  # wrong elements whose values are found elsewhere
SHARE, OF_SHIFT = 0.95, 0.6  # of the wrong elements: in any order; equally far away, where some come from outside
ROUNDINGS = 2.0  # that two equal values may differ by
RUNS = 3  # that are named
NONE, SEVERAL = -1, -2


def displaced(name: str, got: ndarray, want: ndarray, wrong: ndarray, roundoff: float) -> str | None:
    """In words; None where the wrong values are not others' right ones. The arrays are whole outputs in float64."""
    import numpy

    places = numpy.flatnonzero(wrong)
    if got.size > MOST or places.size < LEAST or not numpy.isfinite(got).all() or not numpy.isfinite(want).all():
        return None
    sources, all_wrong = _sources(got.reshape(-1)[places], want.reshape(-1), roundoff, places), places.size
    none = int((sources == NONE).sum())
    places, found = places[sources >= 0], sources[sources >= 0]
    if places.size < max(LEAST, OF_SHIFT * all_wrong) or not (found != places).all():
        return None
    shape = want.shape
    away = numpy.stack(numpy.unravel_index(found, shape)) - numpy.stack(numpy.unravel_index(places, shape))
    if bool((away == away[:, :1]).all()):
        steps = ", ".join(f"{step:+d}" if step else "0" for step in away[:, 0].tolist())
        first, other = (element(name, shape, int(each[0])) for each in (places, found))
        count = "all" if places.size == all_wrong else f"{places.size} of"
        return f"{first} is what must be at {other}: {count} {all_wrong} wrong elements are off by ({steps})"
    if none > (1 - SHARE) * all_wrong or len({*found.tolist()}) < SHARE * found.size:
        return None
    said = _runs(name, shape, places.tolist(), found.tolist())
    return f"the wrong elements are right ones at other places: {'; '.join(said)}" if said else None


def _sources(got: ndarray, want: ndarray, roundoff: float, places: ndarray) -> ndarray:
    """For each value the element that must have it: the only one, or else the one behind its neighbour's; NONE where
    none must, and SEVERAL."""
    import numpy

    order = numpy.argsort(want)
    values, allowed = want[order], ROUNDINGS * roundoff * abs(got)
    low = numpy.searchsorted(values, got - allowed, "left")
    high = numpy.searchsorted(values, got + allowed, "right")
    one = numpy.where(high == low, NONE, order[numpy.minimum(low, want.size - 1)])
    found = numpy.where((high - low > 1) | (got == 0), SEVERAL, one)
    for at in numpy.flatnonzero(found == SEVERAL):
        behind = found[at - 1] + 1
        is_beside = at > 0 and places[at - 1] + 1 == places[at] and 0 < behind < want.size
        if is_beside and abs(want[behind] - got[at]) <= allowed[at]:
            found[at] = behind
    return found


def _runs(name: str, shape: Sequence[int], places: Sequence[int], found: Sequence[int]) -> list[str]:
    """``y[0, 8..15] is what must be at y[0, 32..39]``: neighbours of a row that come from neighbours."""
    ends = [0, *(at for at in range(1, len(places)) if not _are_beside(shape, places, found, at)), len(places)]
    if len(ends) - 1 > len(places) // 2:
        return []
    return [
        f"{_range(name, shape, places[first], places[end - 1])} is what must be at "
        f"{_range(name, shape, found[first], found[end - 1])}"
        for first, end in pairwise(ends[: RUNS + 1])
    ]


def _are_beside(shape: Sequence[int], places: Sequence[int], found: Sequence[int], at: int) -> bool:
    return all(each[at] == each[at - 1] + 1 and each[at] % shape[-1] for each in (places, found))


def _range(name: str, shape: Sequence[int], first: int, last: int) -> str:
    *outer, begin = place(shape, first)
    end = begin + last - first
    return f"{name}[{', '.join(map(str, [*outer, begin if begin == end else f'{begin}..{end}']))}]"
