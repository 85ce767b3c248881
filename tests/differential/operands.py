"""Seeded operands: hard values of every width first, then numbers of usual size, then random bits."""

from __future__ import annotations

import random
import struct

_HALVES = (
    *(0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00),
    0x3555,
)
_BRAINS = (0x3F80, 0xBF80, 0x0080, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0x4049, 0x007F)
_SINGLES = (
    0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x3F7FFFFF, 0x3F000000, 0x4B000000, 0xCF000000, 0x4F000000, 0x5F000000,
    0x40490FDB, 0x3EAAAAAB, 0x477FF000, 0x33000000, 0x387FE000, 0xC2FC0000, 0x42FE0000,
)  # fmt: skip
_DOUBLES = (
    *(0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1.0, -1.0, 1.7976931348623157e308, 0.1, 0.5, 2.5, -3.5),
    *(1e10, 65520.0),
)
_INTEGERS = (0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF)


_POOLS = {
    2: (_HALVES, _BRAINS, _INTEGERS),
    4: (_SINGLES, _INTEGERS, tuple(low | high << 16 for low, high in zip(_HALVES, _HALVES[3:], strict=False))),
    8: (tuple(struct.unpack("<Q", struct.pack("<d", value))[0] for value in _DOUBLES), _INTEGERS),
}


def operand(size: int, source: random.Random) -> int:
    """One operand of ``size`` bytes, 0 a predicate, as an integer."""
    bits = {0: 1, 1: 8, 2: 16, 4: 32, 8: 64}[size]
    pools = _POOLS.get(size, (_INTEGERS,))
    choice = source.random()
    if choice < 0.4:
        value = source.choice(source.choice(pools))
        return (-value if source.random() < 0.2 and value in _INTEGERS else value) % (1 << bits)
    if choice < 0.7:  # numbers of usual size, of the float format that fits the width
        number = source.uniform(-8, 8)
        packed = {2: "<e", 4: "<f", 8: "<d"}.get(size)
        if packed is not None:
            return int.from_bytes(struct.pack(packed, number), "little")
    return source.getrandbits(bits)


def slots(seed: str, sizes: tuple[int, ...], count: int) -> bytes:
    """For each of ``count`` threads one slot of 8 bytes for each size; narrower operands stand in its low bytes."""
    source = random.Random(seed)
    return b"".join(struct.pack("<Q", operand(size, source)) for _ in range(count) for size in sizes)


def random_bytes(seed: str, count: int) -> bytes:
    return random.Random(seed).randbytes(count)
