"""Elements of matrices -> their bits: small integers, numbers of usual size, and any bits at all."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping

BYTES = {"s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1, "f16": 2, "bf16": 2, "tf32": 4, "f32": 4, "s32": 4, "f64": 8}


def _float8(exponent_bits: int, fraction_bits: int) -> dict[float, int]:
    """The finite positive values of an 8-bit format, and their bits."""
    bias, values = (1 << (exponent_bits - 1)) - 1, {}
    for bits in range(0x7F if exponent_bits == 4 else 0x7C):
        exponent, fraction = bits >> fraction_bits, bits & ((1 << fraction_bits) - 1)
        scale = 2.0 ** (max(exponent, 1) - bias - fraction_bits)
        values[(fraction + (bool(exponent) << fraction_bits)) * scale] = bits
    return values


_FLOAT8 = {"e4m3": _float8(4, 3), "e5m2": _float8(5, 2)}


def encode(kind: str, number: float) -> bytes:
    """A number that the type has, or the one nearest to it where that is not unique."""
    if kind in _FLOAT8:
        values = _FLOAT8[kind]
        nearest = min(values, key=lambda value: abs(value - abs(number)))
        return bytes([values[nearest] | (0x80 if math.copysign(1, number) < 0 else 0)])
    code = {"f16": "<e", "f32": "<f", "tf32": "<f", "f64": "<d", "s8": "<b", "u8": "<B", "s32": "<i"}
    return struct.pack("<f", number)[2:] if kind == "bf16" else struct.pack(code[kind], number)


def _small(kind: str, source: random.Random) -> bytes:
    return encode(kind, source.randrange(0 if kind == "u8" else -4, 5))


def _usual(kind: str, source: random.Random) -> bytes:
    """Whole bytes for integers, normal draws for floats."""
    if kind in ("s8", "u8"):
        return source.randbytes(1)
    return struct.pack("<i", source.getrandbits(31) - 2**30) if kind == "s32" else encode(kind, source.gauss(0, 1))


def _wide(kind: str, source: random.Random) -> bytes:
    """As usual, but floats of many magnitudes: in a sum some lose bits."""
    if kind in ("s8", "u8", "s32"):
        return _usual(kind, source)
    return encode(kind, source.gauss(0, 1) * 2.0 ** source.randrange(-6, 7))


def _any(kind: str, source: random.Random) -> bytes:
    """Every exponent, denormals among them; one element in 64 may be zero, infinite or no number."""
    if kind in ("s8", "u8", "s32"):
        return source.choice((b"\x00", b"\x7f", b"\x80", b"\xff")) * BYTES[kind]
    hard = (0.0, -0.0, float("inf"), float("-inf"), float("nan"))
    if kind not in _FLOAT8 and source.random() < 1 / 64:
        return encode(kind, source.choice(hard))
    while not _is_finite(kind, bits := source.randbytes(BYTES[kind])):
        pass
    return bits


def _denormal(kind: str, source: random.Random) -> bytes:
    """Many denormal numbers, and large ones that they are multiplied by; sums are small."""
    if kind == "f32":
        return encode(kind, source.gauss(0, 1) * 2.0**-16)
    if kind not in _MANTISSAS:
        return _usual(kind, source)
    bits, mantissa = 8 * BYTES[kind], _MANTISSAS[kind]
    sign, choice = source.getrandbits(1) << (bits - 1), source.random()
    if choice < 0.7:
        return (sign | source.getrandbits(mantissa)).to_bytes(BYTES[kind], "little")
    if choice < 0.8:
        return encode(kind, source.choice((-1, 1)) * 2.0 ** source.randrange(5, 8))
    return encode(kind, source.gauss(0, 1) * 2.0**-5)


def _vanishing(kind: str, source: random.Random) -> bytes:
    """Numbers whose products are about half of the least number of a result."""
    factor = source.choice((-1.0, 1.0)) * source.choice((0, 1, 1.5, 2, 3, 4))
    return encode(kind, factor * 2.0 ** _VANISHING[kind])


def _tie(kind: str, source: random.Random) -> bytes:
    """Numbers whose sums lie halfway between two halves, or a little beside that."""
    return encode(kind, source.choice((0, 0, 0, 0, 1, -1, 2**-12)))


def _odd(kind: str, source: random.Random) -> bytes:
    """Half of a last place of a half, and in single precision a little more or less."""
    beside = source.choice((-(2**-24), 0, 2**-24)) if kind == "f32" else 0
    return encode(kind, (source.randrange(-1023, 1024, 2) * 2**-11) + beside)


def _small_tie(kind: str, source: random.Random) -> bytes:
    """The same for denormal halves."""
    return encode(kind, source.choice((0, 0, 0, 0, 2**-12, -(2**-13), 2**-20, -(2**-20))))


def _least(kind: str, source: random.Random) -> bytes:
    """Zeros of both signs, and the least numbers of the type."""
    return encode(kind, source.choice((-1.0, 1.0)) * source.choice((0, 1, 2, 3)) * 2.0 ** _LEAST[kind])


def _zero(kind: str, source: random.Random) -> bytes:
    return encode(kind, source.choice((-0.0, 0.0)))


def _minus_zero(kind: str, _: random.Random) -> bytes:
    return encode(kind, -0.0)


def _plus_zero(kind: str, _: random.Random) -> bytes:
    return encode(kind, 0.0)


_VANISHING = {"f16": -14, "e5m2": -14, "e4m3": -9, "bf16": -76, "tf32": -76, "f64": -539}
_LEAST = {"f16": -24, "f32": -149, "f64": -1074}
_MANTISSAS = {"f16": 10, "e4m3": 3, "e5m2": 2}


def _is_finite(kind: str, bits: bytes) -> bool:
    if kind in _FLOAT8:
        return bits[0] & 0x7F in _FLOAT8[kind].values()
    code = {"f16": "<e", "f64": "<d"}.get(kind, "<f")
    return math.isfinite(struct.unpack(code, b"\0\0" + bits if kind == "bf16" else bits)[0])


VALUES: Mapping[str, Callable[[str, random.Random], bytes]] = {
    "integers": _small, "normal": _usual, "wide": _wide, "any": _any,
}  # fmt: skip


MORE_VALUES = {**VALUES, "denormal": _denormal}
SMALLEST: Mapping[str, tuple[Callable[[str, random.Random], bytes], ...]] = {  # values of a, b and c
    "vanishing": (_vanishing, _vanishing, _least), "zeros": (_minus_zero, _plus_zero, _zero),
    "ties": (_tie, _tie, _odd), "small ties": (_small_tie, _small_tie, _least),
}  # fmt: skip


def smallest(result: str) -> list[str]:
    """Those for results of a type."""
    return [] if result[0] != "f" else [name for name in SMALLEST if "ties" not in name or result == "f16"]


def elements(seed: str, kind: str, count: int, values: str, operand: str = "") -> bytes:
    source = random.Random(seed + kind + values)
    draw = SMALLEST[values]["abc".index(operand)] if values in SMALLEST else MORE_VALUES[values]
    return b"".join(draw(kind, source) for _ in range(count))
