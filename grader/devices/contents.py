"""A number -> the contents of one timed call: each input rotated, some of its values replaced, a part of it negated.

No timed call gets contents that an earlier call got, so that an answer can only be remembered in vain. A call's seed
comes from a timing run's secret, which the process that judges keeps. The one that times is told the seed before the
call, and nothing that would say another call's; it makes the contents on the card, from one master of each input. The
one that judges makes the same on the CPU.

A rotation alone would keep what does not depend on order: a sum, a maximum, a histogram. So in inputs of the kata's own
elements some values are replaced by others of the same input. A long sum would still be right within what rounding may
do to it, so where values have both signs a part of them is negated. Indices, masks and lengths are only rotated: they
decide how much work there is.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import ndarray

ROTATION_BYTES, ROTATIONS = 256, 4096  # an input is rotated by a multiple of so many bytes, and by less than so many
REPLACED = 256  # values of an input, one in each of as many parts of it
JUDGED = 3  # timed answers of a timing run that are compared with the reference
JUDGED_BESIDE = 1  # the same beside a baseline that is not graded
DIFFERENT = 3  # large timed answers that come back because an untimed call gave other bits

_WORD = (1 << 64) - 1


def mixed(number: int, nth: int) -> int:
    """The nth of a sequence of 64-bit numbers that ``number`` starts: SplitMix64 (Steele, Lea and Flood, 2014)."""
    word = (number + (nth + 1) * 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def seed_of(secret: int, call: int) -> int:
    """What the contents of a timing run's nth call follow from. The secret does not follow from any number of these."""
    return int.from_bytes(hashlib.blake2b(f"{secret} {call}".encode(), digest_size=8).digest(), "little")


def number_of(seed: int, position: int) -> int:
    """What those of the input at ``position`` follow from."""
    return mixed(seed, position)


def rotation(number: int) -> int:
    """By how many bytes an input is rotated to the left."""
    return ROTATION_BYTES * (mixed(number, 0) % ROTATIONS)


def replaced(number: int, elements: int) -> tuple[ndarray, ndarray]:
    """(places, sources), int64: places[i] of the rotated input gets the value of sources[i] of the one before."""
    import numpy

    count = min(REPLACED, elements)
    part = elements // max(count, 1)
    places = [nth * part + mixed(number, 2 * nth + 1) % part for nth in range(count)]
    sources = [mixed(number, 2 * nth + 2) % elements for nth in range(count)]
    return numpy.array(places, dtype=numpy.int64), numpy.array(sources, dtype=numpy.int64)


def negated(number: int, elements: int) -> tuple[int, int]:
    """(first, last): the values in [first, last) have the other sign, after all else."""
    half = elements // 2
    first, last = (mixed(number, 2 * REPLACED + nth) for nth in (1, 2))
    return first % (half + 1), half + last % (elements - half + 1)


def chosen(secret: int, run: int, calls: int, most: int = JUDGED) -> list[int]:
    """Which of so many timed calls are judged, in order. A timing run may begin again: that is another ``run``."""
    return sorted(run * calls + nth for nth in Random(f"{secret} {run}").sample(range(calls), min(most, calls)))
