"""Output bytes + Expected -> what is wrong with them: how many elements, the first few, and what they have in common.

A NaN never passes for a number, and an element that still holds the poison was never written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log2
from typing import TYPE_CHECKING

from grader.content.dtype import Dtype
from grader.content.formulas import side_by_side
from grader.devices import Contents
from grader.judge.case import Expected
from grader.judge.encoding import decode, encode, ends, stored
from grader.judge.pattern import describe
from grader.system.stages import stage
from grader.verdict import Mismatch

if TYPE_CHECKING:
    from numpy import ndarray

SHOWN = 5  # wrong elements that a verdict lists
BLOCK = 1 << 18  # elements that are compared at a time


@dataclass(frozen=True)
class Comparison:
    """One output against its expected value. ``error_share``: largest error over what is allowed; inf: wrong bits."""

    wrong: int
    count: int
    mismatches: tuple[Mismatch, ...]
    pattern: str | None
    error_share: float


@dataclass(frozen=True)
class Compared:
    """One output: its elements in float64 or int64, which of them are wrong, and which were never written."""

    got: ndarray
    wrong: ndarray
    unwritten: ndarray


@stage("comparison")
def compare(data: Contents, expected: Expected) -> Comparison:
    """Judge one output, element by element."""
    raw = stored(data, expected.dtype).reshape(expected.value.shape)
    wrong, share = _compared(raw, expected)
    if not wrong.any():
        return Comparison(0, raw.size, (), None, share)
    got, unwritten = decode(raw, expected.dtype), _unwritten(raw, expected)
    wrong = _with_unwritten(wrong, unwritten, expected)
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
        pattern = describe(wrong, never, expected.tensor.name, expected.tensor.shape)
        if expected.dtype.is_float and not never:
            pattern = _describe_values(wrong, _as_stored(expected), pattern)
    return Comparison(int(wrong.sum()), got.size, mismatches, pattern, share)


def compared(data: Contents, expected: Expected) -> Compared:
    """One output with what is wrong in it, element by element."""
    raw = stored(data, expected.dtype).reshape(expected.value.shape)
    unwritten = _unwritten(raw, expected)
    wrong = _with_unwritten(_compared(raw, expected)[0], unwritten, expected)
    return Compared(decode(raw, expected.dtype), wrong, unwritten)


def _with_unwritten(wrong: ndarray, unwritten: ndarray, expected: Expected) -> ndarray:
    """The wrong elements with those that were not written either and hide, because the poison is a nan and so is the
    right answer. Where no other element is unwritten, a kernel wrote these bits: that of a negated nan, say."""
    import numpy

    if not expected.dtype.is_float or not bool((wrong & unwritten).any()):
        return wrong
    found: ndarray = wrong | (unwritten & numpy.isnan(expected.value))
    return found


def _unwritten(raw: ndarray, expected: Expected) -> ndarray:
    """Which elements still hold the poison."""
    import numpy

    found = (raw.reshape(-1).view(numpy.uint8).reshape(-1, raw.itemsize) == expected.dtype.poison).all(axis=1)
    shaped: ndarray = found.reshape(raw.shape)
    return shaped


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

    if not expected.dtype.is_float and not expected.before_rounding:
        wrong = got != expected.value.astype(numpy.int64)
        return wrong, inf if wrong.any() else 0.0
    rounded = _as_stored(expected)
    equal = (got == rounded) & expected.dtype.is_float
    if expected.signed_zeros:
        equal &= numpy.signbit(got) == numpy.signbit(rounded)
    same = equal | (numpy.isnan(got) & numpy.isnan(rounded))
    if expected.bound is None:
        return ~same, inf if not same.all() else 0.0
    error = beyond_cell(expected.value, got, expected.dtype) if expected.before_rounding else abs(got - expected.value)
    finite = numpy.isfinite(rounded) & numpy.isfinite(got)
    ok = same | (finite & (error <= expected.bound))
    share = numpy.where(finite & ~same, error / expected.bound, 0.0)
    worst = float(numpy.nan_to_num(share, nan=inf, posinf=inf).max()) if share.size else 0.0
    return ~ok, worst if finite[~ok].all() else inf


def beyond_cell(value: ndarray, got: ndarray, dtype: Dtype) -> ndarray:
    """How far each value is from the nearest number that the dtype rounds to ``got``: 0 inside of its cell.

    A cell reaches half way to the neighbours of ``got``, and without end where there is no neighbour.
    """
    import numpy

    below, above = numpy.full(got.shape, 0.5), numpy.full(got.shape, 0.5)
    if dtype.is_float:
        digits, smallest = -int(log2(dtype.roundoff)), int(log2(dtype.tiny))
        mantissa, exponent = numpy.frexp(abs(got))
        gap = numpy.ldexp(1.0, numpy.maximum(exponent - 1, smallest) - (digits - 1))
        inner = numpy.where((mantissa == 0.5) & (exponent - 1 > smallest), gap / 4, gap / 2)  # towards zero
        below, above = numpy.where(got > 0, inner, gap / 2), numpy.where(got < 0, inner, gap / 2)
    if dtype.name == "fp8_e4m3" or not dtype.is_float:  # these saturate
        first, last = ends(dtype)
        below, above = numpy.where(got == first, inf, below), numpy.where(got == last, inf, above)
    distance: ndarray = numpy.maximum(numpy.maximum(got - below - value, value - got - above), 0.0)
    return distance


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
