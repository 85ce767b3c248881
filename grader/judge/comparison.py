"""Output bytes + Expected -> what is wrong with them: how many elements, the first few, and what they have in common.

A NaN never passes for a number, and an element that still holds the poison was never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from grader.content.formulas import side_by_side
from grader.devices import Contents
from grader.judge.case import Expected
from grader.judge.encoding import decode, encode, stored
from grader.system.stages import stage
from grader.verdict import Mismatch

if TYPE_CHECKING:
    from numpy import ndarray

SHOWN = 5  # wrong elements that a verdict lists
BLOCK = 1 << 18  # elements that are compared at a time
BLOCK_SIZES = (1024, 512, 256, 128, 64, 32)


@dataclass(frozen=True)
class Comparison:
    """One output against its expected value. ``error_share``: largest error over what is allowed; inf: wrong bits."""

    wrong: int
    count: int
    mismatches: tuple[Mismatch, ...]
    pattern: str | None
    error_share: float


@stage("comparison")
def compare(data: Contents, expected: Expected) -> Comparison:
    """Judge one output, element by element."""
    import numpy

    raw = stored(data, expected.dtype).reshape(expected.value.shape)
    wrong, share = _compared(raw, expected)
    if not wrong.any():
        return Comparison(0, raw.size, (), None, share)
    got = decode(raw, expected.dtype)
    unwritten = (raw.reshape(-1).view(numpy.uint8).reshape(-1, raw.itemsize) == expected.dtype.poison).all(axis=1)
    unwritten = unwritten.reshape(got.shape)
    places = list(zip(*(axis[:SHOWN].tolist() for axis in wrong.nonzero()), strict=True))
    mismatches = tuple(
        Mismatch(
            expected.tensor.name, place, expected.value[place].item(), None if unwritten[place] else got[place].item()
        )
        for place in places
    )
    pattern = None
    if got.size > 1:
        never = bool(unwritten[wrong].all())
        pattern = describe(wrong, never, expected.tensor.shape)
        if expected.dtype.is_float and not never:
            pattern = _describe_values(wrong, _as_stored(expected), pattern)
    return Comparison(int(wrong.sum()), got.size, mismatches, pattern, share)


def _compared(raw: ndarray, expected: Expected) -> tuple[ndarray, float]:
    """(which elements are wrong, largest error as a share of the bound), block by block, several at the same time."""
    import numpy

    value, bound = expected.value.reshape(-1), None if expected.bound is None else expected.bound.reshape(-1)
    flat = raw.reshape(-1)

    def of_block(first: int) -> tuple[ndarray, float]:
        block = slice(first, first + BLOCK)
        part = replace(expected, value=value[block], bound=None if bound is None else bound[block])
        return _wrong(decode(flat[block], expected.dtype), part)

    found = side_by_side(of_block, [(first,) for first in range(0, max(flat.size, 1), BLOCK)])
    return numpy.concatenate([wrong for wrong, _ in found]).reshape(raw.shape), max(share for _, share in found)


def _as_stored(expected: Expected) -> ndarray:
    """The right answer rounded to the output's dtype, as float64."""
    return decode(encode(expected.value, expected.dtype), expected.dtype)


def _wrong(got: ndarray, expected: Expected) -> tuple[ndarray, float]:
    """(which elements are wrong, largest error as a share of the bound). ``got`` is float64 or int64."""
    import numpy

    if not expected.dtype.is_float:
        wrong = got != expected.value.astype(numpy.int64)
        return wrong, inf if wrong.any() else 0.0
    rounded = _as_stored(expected)
    equal = got == rounded
    if expected.signed_zeros:
        equal &= numpy.signbit(got) == numpy.signbit(rounded)
    same = equal | (numpy.isnan(got) & numpy.isnan(rounded))
    if expected.bound is None:
        return ~same, inf if not same.all() else 0.0
    error = abs(got - expected.value)
    finite = numpy.isfinite(rounded) & numpy.isfinite(got)
    ok = same | (finite & (error <= expected.bound))
    share = numpy.where(finite & ~same, error / expected.bound, 0.0)
    worst = float(numpy.nan_to_num(share, nan=inf, posinf=inf).max()) if share.size else 0.0
    return ~ok, worst if finite[~ok].all() else inf


def describe(wrong: ndarray, unwritten: bool, names: Sequence[str | int]) -> str:
    """What the wrong elements have in common, as a guess. ``names`` are the dimensions' names."""
    what = "never written" if unwritten else "wrong"
    if bool(wrong.all()):
        return f"every element is {what}"
    if wrong.ndim > 1:
        return _describe_axes(wrong, what, names) or f"{int(wrong.sum())} of {wrong.size} elements are {what}"
    return _describe_line(wrong, what)


def _describe_values(wrong: ndarray, values: ndarray, places: str) -> str:
    """``places``, unless what must be there, ``values`` in the output's type, explains it: nan, or an infinity."""
    infinite = abs(values) == inf
    kinds = (("nan", values != values), ("inf", values == inf), ("-inf", values == -inf), ("infinite", infinite))
    for name, special in kinds:
        if bool((wrong == special).all()):
            return f"every element that must be {name} is wrong, and no other"
        if not bool((wrong & ~special).any()):
            return f"{places}; what must be there is {name}"
    return places


def _describe_axes(wrong: ndarray, what: str, names: Sequence[str | int]) -> str | None:
    """One axis explains it: whole rows, whole columns, a last strip of either."""
    import numpy

    for axis, name in enumerate(names):
        others = tuple(other for other in range(wrong.ndim) if other != axis)
        lines = numpy.asarray(wrong.any(axis=others))
        if bool((wrong.all(axis=others) == lines).all()):
            return f"along {name} (axis {axis}, all of axis {others[0]}): {_describe_line(lines, what)}"
    return None


def _describe_line(wrong: ndarray, what: str) -> str:
    (places,) = wrong.nonzero()
    count, first, last = int(wrong.size), int(places[0]), int(places[-1])
    run = last - first + 1 == len(places)
    if len(places) == 1:
        return f"only element {first} is {what}" + (" (the last)" if first == count - 1 else "")
    if run and last == count - 1:
        return f"every element from {first} on is {what}{_boundary(first, count)}"
    if run:
        return f"elements {first} to {last} are {what}"
    return _describe_steps(wrong, places, what) or f"{len(places)} of {count} elements are {what}"


def _boundary(first: int, count: int) -> str:
    """Names the multiple that the first wrong element stands at: of a vector's width, or of a block."""
    for width in (8, 4, 2):
        if count % width and first == count - count % width and count - first < width:
            return f": every element after the last multiple of {width}"
    for size in BLOCK_SIZES:
        if first % size == 0:
            return f", a multiple of {size}"
    return ""


def _describe_steps(wrong: ndarray, places: ndarray, what: str) -> str | None:
    for step in (2, 3, 4, 8, 16, 32):
        remainders = sorted(set((places % step).tolist()))
        if len(remainders) == 1 and bool(wrong[remainders[0] :: step].all()):
            return f"every element whose index is {remainders[0]} modulo {step} is {what}"
    return None
