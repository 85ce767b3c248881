"""Exact references: bit patterns -> bit patterns, through rational numbers, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary floating point format: ``precision`` counts the implicit bit."""

    name: str
    bits: int
    precision: int
    emax: int

    @property
    def emin(self) -> int:
        return 1 - self.emax

    @property
    def inf(self) -> int:
        return (2 * self.emax + 1) << (self.precision - 1)

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def largest(self) -> int:
        return self.inf - 1


F16 = Format("f16", 16, 11, 15)
BF16 = Format("bf16", 16, 8, 127)
F32 = Format("f32", 32, 24, 127)
F64 = Format("f64", 64, 53, 1023)
FORMATS = {f.name: f for f in (F16, BF16, F32, F64)}


def is_nan(f: Format, bits: int) -> bool:
    return (bits & ~f.sign) > f.inf


def is_inf(f: Format, bits: int) -> bool:
    return (bits & ~f.sign) == f.inf


def value(f: Format, bits: int) -> Fraction:
    """Of a finite pattern."""
    magnitude = bits & ~f.sign
    exponent, fraction = magnitude >> (f.precision - 1), magnitude & ((1 << (f.precision - 1)) - 1)
    significand = fraction | (1 << (f.precision - 1) if exponent else 0)
    result = Fraction(significand) * Fraction(2) ** (max(exponent, 1) - f.emax - f.precision + 1)
    return -result if bits & f.sign else result


def _rounded(x: Fraction, mode: str, negative: bool) -> int:
    low = math.floor(x)  # of a magnitude
    rest = x - low
    if mode == "rn":
        return low + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1))
    up = {"rz": False, "rm": negative, "rp": not negative}[mode]
    return low + (up and rest > 0)


def encode(f: Format, x: Fraction, mode: str = "rn", *, negative_zero: bool = False) -> int:
    """The pattern of x rounded once."""
    negative = x < 0 or (x == 0 and negative_zero)
    sign = f.sign if negative else 0
    x = abs(x)
    if x == 0:
        return sign
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > x
    exponent = max(exponent, f.emin)
    significand = _rounded(x / Fraction(2) ** (exponent - f.precision + 1), mode, negative)
    pattern = significand + ((exponent - f.emin) << (f.precision - 1))
    if pattern >= f.inf:
        to_largest = mode == "rz" or (mode == "rm" and not negative) or (mode == "rp" and negative)
        pattern = f.largest if to_largest else f.inf
    return sign | pattern


NAN = -1  # any pattern that is not a number


def _special(f: Format, bits: int) -> float | None:
    if is_nan(f, bits):
        return math.nan
    return (-math.inf if bits & f.sign else math.inf) if is_inf(f, bits) else None


def _pattern(f: Format, x: float) -> int:
    if math.isnan(x):
        return NAN
    return f.inf | (f.sign if x < 0 else 0)


def _approximate(f: Format, bits: int) -> float:
    """Good enough to work out which infinity comes out: the sign, zero or not, finite or not."""
    special = _special(f, bits)
    if special is not None:
        return special
    magnitude = 0.0 if not bits & ~f.sign else 1.0
    return math.copysign(magnitude, -1 if bits & f.sign else 1)


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))


def _sum(terms: list[float]) -> float:
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def arithmetic(
    f: Format, mode: str, exact: Callable[..., Fraction], terms: Callable[..., list[float]]
) -> Callable[..., int]:
    """``exact`` is for finite operands; ``terms``, what is added up, for signs of zeros, infinities and NaN."""

    def reference(*operands: int) -> int:
        parts = terms(*(_approximate(f, bits) for bits in operands))
        total = _sum(parts)
        if not math.isfinite(total):
            return _pattern(f, total)
        signs = {math.copysign(1, part) for part in parts}
        if any(_special(f, bits) is not None for bits in operands):
            return encode(f, Fraction(0), negative_zero=signs == {-1})
        x = exact(*(value(f, bits) for bits in operands))
        # An exact zero of addends of both signs is +0, and -0 when rounding down (IEEE 754, 6.3).
        return encode(f, x, mode, negative_zero=mode == "rm" if len(signs) == 2 else signs == {-1})

    return reference


OPERATIONS: dict[str, tuple[int, Callable[..., Fraction], Callable[..., list[float]]]] = {
    "add": (2, lambda a, b: a + b, lambda a, b: [a, b]),
    "sub": (2, lambda a, b: a - b, lambda a, b: [a, -b]),
    "mul": (2, lambda a, b: a * b, lambda a, b: [a * b]),
    "fma": (3, lambda a, b, c: a * b + c, lambda a, b, c: [a * b, c]),
    "div": (2, lambda a, b: a / b, lambda a, b: [_divide(a, b)]),
}


def convert(source: Format, target: Format, mode: str, bits: int) -> int:
    if is_nan(source, bits):
        return NAN
    if is_inf(source, bits):
        return target.inf | (target.sign if bits & source.sign else 0)
    return encode(target, value(source, bits), mode, negative_zero=bool(bits & source.sign))


def to_integer(source: Format, mode: str, low: int, high: int, bits: int) -> int:
    if is_nan(source, bits):  # as the card has it: zero only where both sides have at most 32 bits
        width = (high - low).bit_length()
        return 1 << (width - 1) if 64 in (width, source.bits) else 0
    if is_inf(source, bits):
        return low if bits & source.sign else high
    x = value(source, bits)
    nearest = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode](x)
    return min(max(nearest, low), high)
