"""What references need and numpy lacks, for float64 arrays."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from numpy import ndarray

BLOCK = 1 << 15  # elements at a time, which stay in a processor's cache
MANY_PROCESSORS = 4  # of more, two are left to kernels that are timed meanwhile

T = TypeVar("T")


_THREAD = threading.local()


@contextlib.contextmanager
def one_by_one() -> Iterator[None]:
    """In this thread, what could be worked out side by side is not: there are other threads enough, and those that wait
    for the interpreter keep it from one another."""
    before = getattr(_THREAD, "one_by_one", False)
    _THREAD.one_by_one = True
    try:
        yield
    finally:
        _THREAD.one_by_one = before


def side_by_side(function: Callable[..., T], parts: Sequence[tuple[Any, ...]]) -> list[T]:
    """``function`` of each part's arguments. Several parts are worked out at once: numpy's own loops use one processor,
    and leave the others to other threads. What is in turn made of parts of such a part goes one by one."""
    import numpy

    def of(part: tuple[Any, ...]) -> T:
        with numpy.errstate(all="ignore"), one_by_one():  # each thread has its own
            return function(*part)

    if len(parts) < 2 or getattr(_THREAD, "one_by_one", False):
        with numpy.errstate(all="ignore"):
            return [function(*part) for part in parts]
    processors = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(processors - 2 if processors > MANY_PROCESSORS else processors) as pool:
        return list(pool.map(of, parts))


def tiled(period: ndarray, count: int) -> ndarray:
    """The values of one dimension again and again, ``count`` in all."""
    import numpy

    out = numpy.empty(count, period.dtype)

    def fill(first: int) -> None:
        out[first : first + period.size] = period[: count - first]

    side_by_side(fill, [(first,) for first in range(0, count, period.size)])
    return out


def softmax(x: ndarray, axis: int = -1) -> ndarray:
    """exp(x) over its sum along the axis; the maximum is subtracted first. Where all are -inf the answer is nan."""
    import numpy

    with numpy.errstate(invalid="ignore"):
        weight: ndarray = x - x.max(axis=axis, keepdims=True, initial=-inf)
        numpy.exp(weight, out=weight)
    weight /= weight.sum(axis=axis, keepdims=True)
    return weight


def logsumexp(x: ndarray, axis: int = -1) -> ndarray:
    """log(sum of exp(x)) along the axis, which is dropped."""
    import numpy

    top = x.max(axis=axis, keepdims=True)
    shift = numpy.where(numpy.isfinite(top), top, 0.0)
    with numpy.errstate(divide="ignore", over="ignore"):
        total: ndarray = numpy.log(numpy.exp(x - shift).sum(axis=axis, keepdims=True)) + shift
    return total.squeeze(axis)


# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969), tables II to IV: the
# numerator and the denominator, the highest power first.
_SMALL = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e0,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
_LARGE = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip
_ONE_BY_SQRT_PI = 5.6418958354775628695e-1


def erf(x: ndarray) -> ndarray:
    """The error function, to 10^-15 of its value."""
    return _in_blocks(_erf, x)


def erfc(x: ndarray) -> ndarray:
    """1 - erf(x), to 10^-15 of its value, which erf(x) near 1 would not leave."""
    return _in_blocks(_erfc, x)


def _in_blocks(function: Callable[[ndarray], ndarray], x: ndarray) -> ndarray:
    import numpy

    flat = numpy.ascontiguousarray(x).reshape(-1)
    out = numpy.empty_like(flat)
    with numpy.errstate(all="ignore"):
        for start in range(0, flat.size, BLOCK):
            out[start : start + BLOCK] = function(flat[start : start + BLOCK])
    return out.reshape(x.shape)


def _erf(x: ndarray) -> ndarray:
    import numpy

    rest = numpy.copysign(1.0 - _tail(abs(x)), x)
    return numpy.asarray(numpy.where(abs(x) <= 0.46875, x * _ratio(_SMALL, x * x), rest))


def _erfc(x: ndarray) -> ndarray:
    import numpy

    tail = _tail(abs(x))
    rest = numpy.where(x < 0, 2.0 - tail, tail)
    return numpy.asarray(numpy.where(abs(x) <= 0.46875, 1.0 - x * _ratio(_SMALL, x * x), rest))


def _tail(y: ndarray) -> ndarray:
    """erfc(y) for y above 0.46875. exp(-y^2) is split, since a rounding of y^2 would count y^2 times."""
    import numpy

    step = numpy.trunc(y * 16) / 16
    fall = numpy.exp(-step * step) * numpy.exp(-(y - step) * (y + step))
    square = 1.0 / (y * y)
    large = (_ONE_BY_SQRT_PI - square * _ratio(_LARGE, square)) / y
    tail = numpy.where(y <= 4.0, _ratio(_MIDDLE, y), large) * fall
    return numpy.asarray(numpy.where(y > 27.0, 0.0, tail))  # below the smallest number that float64 has


def _ratio(of: tuple[Sequence[float], Sequence[float]], x: ndarray) -> ndarray:
    import numpy

    quotient: ndarray = numpy.polyval(of[0], x) / numpy.polyval(of[1], x)
    return quotient


def e4m3_as_e5m2(x: ndarray) -> ndarray:
    """What the bytes of fp8 numbers, 4 bits of exponent and 3 of mantissa, are if they are read as 5 and 2 (PTX ISA,
    "Alternate floating point data formats")."""
    import numpy

    fraction, exponent = numpy.frexp(abs(x))
    is_normal = (exponent > -6) & (x != 0)  # the smallest normal number is 2^-6
    raw = numpy.where(is_normal, (exponent + 6) * 8 + (2 * fraction - 1) * 8, abs(x) * 2.0**9)
    raw = numpy.where(numpy.isnan(x), 127, raw)
    upper, lower = raw // 4, raw % 4
    number = numpy.where(upper == 0, lower * 2.0**-16, (1 + lower / 4) * 2.0 ** (upper - 15))
    special = numpy.where(lower == 0, inf, numpy.nan)
    signed: ndarray = numpy.copysign(numpy.where(upper == 31, special, number), x)
    return signed
