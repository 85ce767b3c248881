"""Numbers <-> the bits of a dtype, as numpy arrays. Encoding rounds once, from float64: to nearest, ties to even.

numpy has no bf16 and no fp8: their bits are held as unsigned integers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import log2
from typing import TYPE_CHECKING

from grader.content.dtype import Dtype
from grader.content.formulas import side_by_side, tiled
from grader.content.spec import PERIOD

if TYPE_CHECKING:
    from numpy import ndarray

BLOCK = 1 << 18  # elements that are converted at a time
_E4M3_NAN = 0x7F  # the only one, but for its sign; there is no infinity (OCP 8-bit floating point, table 1)


def encode(values: ndarray, dtype: Dtype) -> ndarray:
    """float64 or int64 -> the dtype's storage, contiguous. What is too large becomes inf.

    e4m3 has no inf: there it becomes the largest number, as where CUDA converts with __NV_SATFINITE (cuda_fp8.h).
    """
    flat = values.reshape(-1)
    if _repeats(flat, PERIOD):
        return tiled(_in_blocks(_encoded, flat[:PERIOD], dtype, dtype.storage), flat.size).reshape(values.shape)
    return _in_blocks(_encoded, values, dtype, dtype.storage)


def _repeats(flat: ndarray, period: int) -> bool:
    """Whether these many numbers of 8 bytes are those of one period again and again, as a large draw mostly is."""
    if flat.size < 2 * period or flat.itemsize != 8 or not flat.flags.c_contiguous:
        return False
    words = flat.view("u8")

    def same(first: int) -> bool:
        block = words[first : first + period]
        return bool((block == words[: block.size]).all())

    if not (words[period : period + BLOCK] == words[:BLOCK]).all():
        return False
    return all(side_by_side(same, [(first,) for first in range(period, flat.size, period)]))


def _in_blocks(function: Callable[[ndarray, Dtype], ndarray], values: ndarray, dtype: Dtype, result: str) -> ndarray:
    """The function of all elements, as numbers of numpy's type ``result``: of large arrays several blocks at once."""
    import numpy

    if values.size <= BLOCK:
        return function(values.reshape(-1), dtype).reshape(values.shape)
    flat, out = values.reshape(-1), numpy.empty(values.size, result)

    def fill(first: int) -> None:
        out[first : first + BLOCK] = function(flat[first : first + BLOCK], dtype)

    side_by_side(fill, [(first,) for first in range(0, flat.size, BLOCK)])
    return out.reshape(values.shape)


def _encoded(values: ndarray, dtype: Dtype) -> ndarray:
    import numpy

    with numpy.errstate(all="ignore"):
        if dtype.name == "bf16":
            bits = _rounded(values, dtype).astype(numpy.float32).view(numpy.uint32)
            return (bits >> 16).astype(numpy.uint16)
        if dtype.name == "fp8_e5m2":  # the upper byte of a half
            return (_rounded(values, dtype).astype(numpy.float16).view(numpy.uint16) >> 8).astype(numpy.uint8)
        if dtype.name == "fp8_e4m3":
            return _e4m3(_rounded(values, dtype))
        return values.astype(dtype.storage)


def decode(raw: ndarray, dtype: Dtype) -> ndarray:
    """The dtype's storage -> float64 or int64."""
    return _in_blocks(_decoded, raw, dtype, "float64" if dtype.is_float else "int64")


def _decoded(raw: ndarray, dtype: Dtype) -> ndarray:
    import numpy

    if dtype.name == "fp8_e4m3":
        values: ndarray = _e4m3_values()[raw]
        return values
    if dtype.name == "bf16":
        raw = (raw.astype(numpy.uint32) << 16).view(numpy.float32)
    if dtype.name == "fp8_e5m2":
        raw = (raw.astype(numpy.uint16) << 8).view(numpy.float16)
    with numpy.errstate(invalid="ignore"):  # a signalling nan
        return raw.astype(numpy.float64 if dtype.is_float else numpy.int64)


def ends(dtype: Dtype) -> tuple[float, float]:
    """The smallest and the largest number that the dtype holds."""
    import numpy

    if dtype.name == "fp8_e4m3":
        return -float(_e4m3_values()[_E4M3_NAN - 1]), float(_e4m3_values()[_E4M3_NAN - 1])
    if dtype.is_float:
        most = (2.0 - 2.0 * dtype.roundoff) * 2.0 ** (1 - log2(dtype.tiny))
        return -most, most
    limits = numpy.iinfo(dtype.storage)
    return float(limits.min), float(limits.max)


def has_negative(raw: ndarray, dtype: Dtype) -> bool:
    """Whether any number is below 0. Where some are, the first block mostly has one."""
    flat = raw.reshape(-1)
    return any(bool((decode(flat[first : first + BLOCK], dtype) < 0).any()) for first in range(0, flat.size, BLOCK))


def stored(data: bytes | bytearray | memoryview, dtype: Dtype) -> ndarray:
    """Bytes as the dtype's storage, without a copy."""
    import numpy

    return numpy.frombuffer(data, dtype=dtype.storage)


def _rounded(values: ndarray, dtype: Dtype) -> ndarray:
    """float64 with as many digits as the dtype has, fewer below its smallest normal number; no value is too large."""
    import numpy

    digits, smallest = -int(log2(dtype.roundoff)), int(log2(dtype.tiny))
    wide = values.astype(numpy.float64)
    exponent = numpy.maximum(numpy.frexp(wide)[1] - 1, smallest) - (digits - 1)
    rounded: ndarray = numpy.ldexp(numpy.rint(numpy.ldexp(wide, -exponent)), exponent)
    return rounded


def _e4m3(rounded: ndarray) -> ndarray:
    import numpy

    finite = _e4m3_values()[:_E4M3_NAN]  # of the numbers that are not negative
    bits = numpy.searchsorted(finite, numpy.minimum(numpy.abs(rounded), finite[-1])).astype(numpy.uint8)
    bits = numpy.where(numpy.isnan(rounded), _E4M3_NAN, bits)
    sign = numpy.signbit(rounded).astype(numpy.uint8) << 7
    return numpy.asarray(bits | sign, dtype=numpy.uint8)


@functools.cache
def _e4m3_values() -> ndarray:
    """The number that each byte stands for: sign, 4 bits of exponent with bias 7, 3 bits of mantissa."""
    import numpy

    byte = numpy.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    size = numpy.where(exponent > 0, numpy.ldexp(8.0 + mantissa, exponent - 10), numpy.ldexp(1.0 * mantissa, -9))
    size[byte & _E4M3_NAN == _E4M3_NAN] = numpy.nan
    values: ndarray = numpy.where(byte < 128, size, -size)
    return values
