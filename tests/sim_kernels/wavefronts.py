"""Wavefronts of a warp's access to shared memory, as an H200 counts them: 866 patterns.

Each was one launch of one warp with one ld.shared or st.shared, under
`ncu --metrics l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{ld,st}.sum` (CUDA 13, driver 580.159.04, 2026-11-22).
The patterns are made again here; what was counted is in COUNTED, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

LANES = range(32)
NONE = -1  # the lane has no part in the access


@dataclass(frozen=True)
class Pattern:
    """``at`` has each lane's first byte."""

    name: str
    is_load: bool
    bytes: int
    at: tuple[int, ...]
    counted: int


# In words of the access's own size.
WORDS: dict[str, Callable[[int], int]] = {
    "one for all": lambda n: 0,
    "n": lambda n: n,
    "n / 16": lambda n: n // 16,
    "n / 8": lambda n: n // 8,
    "n / 4": lambda n: n // 4,
    "n / 2": lambda n: n // 2,
    "n % 2": lambda n: n % 2,
    "n % 4": lambda n: n % 4,
    "n % 8": lambda n: n % 8,
    "n % 16": lambda n: n % 16,
    "n ^ 1": lambda n: n ^ 1,
    "n and n ^ 2 agree": lambda n: n // 4 * 2 + n % 2,
    "n and n ^ 4 agree": lambda n: n // 8 * 4 + n % 4,
}
PARTS: dict[str, Callable[[int], int]] = {
    "first half": lambda n: n if n < 16 else NONE,
    "first quarter": lambda n: n if n < 8 else NONE,
    "even lanes": lambda n: NONE if n % 2 else n,
    "each fourth lane": lambda n: NONE if n % 4 else n,
    "each eighth lane": lambda n: NONE if n % 8 else n,
    "one lane": lambda n: NONE if n else 0,
    "first half, one for all": lambda n: 0 if n < 16 else NONE,
    "even lanes, dense": lambda n: NONE if n % 2 else n // 2,
    "n, then one for all": lambda n: n if n < 16 else 0,
    "n / 2, then n": lambda n: n // 2 if n < 16 else n,
    "n / 2, then n ^ 2": lambda n: n // 2 if n < 16 else n // 4 * 2 + n % 2,
}
APART = {"n / 2, 128 bytes apart": 128, "n / 2, 64 bytes apart": 64}
RANDOM = {4: 20, 8: 110, 16: 170}  # patterns of each width


class _Dice:
    """The generator that the measured program had."""

    def __init__(self) -> None:
        self.state = 7

    def __call__(self, n: int) -> int:
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        return (self.state >> 8) % n


def _random(dice: _Dice, size: int) -> list[int]:
    """Few words or many, dense or apart; lanes that agree with n ^ 1, 2, 4 or 8 or with none; some without a part."""
    pool = 1 << dice(9)
    step = 1 if dice(3) else 128 // size if dice(2) else 2
    is_same = dice(3)
    first = dice(5)
    pairing = (first, first if is_same else dice(5))
    at = [0] * 32
    for n in LANES:
        apart = 1 << (pairing[n // 16] - 1) if pairing[n // 16] else 0
        partner = n & ~apart
        at[n] = at[partner] if partner != n else dice(pool) * step % (32768 // size) * size
    if dice(4) == 0:
        odd = dice(32)
        at[odd] = dice(pool) * size
    parts = dice(5)
    if parts == 1:
        at = [NONE if dice(2) else place for place in at]
    if parts == 2:
        at = [NONE if dice(8) == 0 else place for place in at]
    return at


def _made(dice: _Dice, size: int) -> Iterator[tuple[str, list[int]]]:
    for name, word in WORDS.items():
        yield name, [word(n) * size for n in LANES]
    for stride in range(2, 33):
        if stride * 4 % size == 0:
            yield f"stride {stride}", [n * stride * 4 for n in LANES]
    for name, word in PARTS.items():
        yield name, [word(n) * size if word(n) != NONE else NONE for n in LANES]
    for name, apart in APART.items():
        yield name, [n // 2 * apart for n in LANES]
    for number in range(RANDOM[size]):
        yield f"random {number}", _random(dice, size)


def patterns() -> Iterator[Pattern]:
    dice, counted = _Dice(), iter(COUNTED.split())
    for size in (4, 8, 16):
        for is_load in (True, False):
            for name, at in _made(dice, size):
                yield Pattern(name, is_load, size, tuple(at), int(next(counted)))


COUNTED = """
    1 1 1 1 1 1 1 1 1 1 1 1 1 2 1 4 1 2 1 8 1 2 1 4 1 2 1 16 1 2 1 4 1 2 1 8 1 2 1 4 1 2 1 32 1 1 1 1 1 1 1 1 1 1 1
    16 8 2 1 3 1 3 7 1 1 1 1 13 1 1 2 2 1 2 1 1 1
    1 1 1 1 1 1 1 1 1 1 1 1 1 2 1 4 1 2 1 8 1 2 1 4 1 2 1 16 1 2 1 4 1 2 1 8 1 2 1 4 1 2 1 32 1 1 1 1 1 1 1 1 1 1 1
    16 8 1 1 1 1 2 1 11 2 2 1 15 1 2 1 1 1 2 27 1 2
    1 2 1 1 1 1 1 2 2 2 2 1 2 2 4 2 8 2 4 2 16 2 4 2 8 2 4 2 32 1 1 2 2 2 1 1 1 2 2 2 16 8 2 4 3 5 2 1 2 2 5 2 2 5 2
    2 4 5 3 4 1 2 1 1 5 13 7 2 2 6 1 5 2 2 2 1 2 4 6 1 10 3 2 1 2 4 1 4 2 3 2 2 2 6 1 1 1 2 4 3 16 8 5 2 2 2 2 1 2 4
    4 5 4 4 2 2 2 1 11 3 2 4 4 2 4 3 7 2 1 4 3 1 13 1 2 18 3 1 4 2 3 2 2 4 2 1 2 2 3 4 12 1
    2 2 2 2 2 2 2 2 2 2 2 2 2 2 4 2 8 2 4 2 16 2 4 2 8 2 4 2 32 1 1 2 2 2 1 1 2 2 2 2 16 8 2 4 2 2 2 4 16 2 2 2 2 2
    14 2 2 2 2 2 3 3 2 3 2 2 2 4 4 24 22 2 2 3 28 2 2 2 4 4 2 2 16 4 2 2 6 2 2 2 15 16 2 3 4 4 3 2 6 5 2 4 16 2 4 2
    4 7 2 2 2 16 2 2 2 7 2 4 3 15 4 2 2 8 2 4 2 2 4 5 16 4 2 15 2 2 2 2 4 2 2 15 2 3 2 4 4 2 15 16 2 4
    2 4 2 2 2 2 2 4 4 4 4 2 4 4 8 4 16 4 8 4 32 2 1 4 4 4 1 1 2 4 4 4 16 8 8 32 2 16 15 2 7 10 2 11 9 6 9 2 13 6 7 4
    4 4 3 9 6 7 2 5 10 24 8 2 11 4 2 9 16 6 2 2 7 2 4 10 4 2 4 4 5 11 4 4 5 6 2 15 4 14 16 2 4 4 4 7 4 4 9 8 2 22 15
    2 7 4 4 14 2 15 10 4 3 4 4 7 4 2 16 6 2 4 4 4 4 6 4 13 4 6 4 4 4 4 4 2 24 31 10 7 4 6 4 12 4 5 4 5 13 7 7 6 13 4
    4 4 4 9 8 9 8 6 8 15 8 5 2 10 4 6 13 12 4 10 4 6 5 6 2 6 3 7 5 10 2 7 4 6 8 4 2 8 8 2 30 7 4 4 10 8 2 5 5 7
    4 4 4 4 4 4 4 4 4 4 4 4 4 4 8 4 16 4 8 4 32 2 1 4 4 4 1 2 4 4 4 4 16 8 12 4 7 6 5 4 8 4 10 16 7 10 6 6 4 4 5 9 6
    16 10 7 6 29 4 5 11 4 5 10 4 4 10 11 16 6 4 7 4 6 4 4 16 17 10 5 11 5 14 4 11 4 7 10 15 4 5 4 4 16 7 6 6 4 25 4
    4 4 8 8 13 24 5 12 14 4 10 8 9 4 4 6 4 4 11 14 11 4 6 4 9 4 7 7 4 4 28 9 21 4 22 25 7 4 4 4 7 9 9 12 4 6 10 13 6
    6 8 8 7 5 4 4 7 4 4 8 16 14 4 9 5 8 8 10 8 4 4 8 4 24 16 9 9 5 15 6 23 4 5 6 4 8 15 4 4 16 5 11 4 4 4 6 8 7 4 4
    4 4 7 4
"""
