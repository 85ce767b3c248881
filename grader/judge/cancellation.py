"""Wrong answers near 0 -> whether they are differences of numbers near 1, whose other digits are lost.

The difference of two f32 numbers between 1/2 and 2 is a whole multiple of 2^-24, however small it is. A number near 0
that was computed in another way has 24 bits of its own, and is such a multiple only by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from grader.judge.lab import Judged, Lab

if TYPE_CHECKING:
    from numpy import ndarray

STEP = 2.0**-24
SMALL = 2.0**-10  # an answer that is asked about
OFF = 4  # steps that it may be off by
SUPPORT = 6  # answers


def cancelled(lab: Lab, one: Judged) -> Iterator[str]:
    """In words, at most once."""
    import numpy

    place = one.first_wrong
    tensor, dtype = one.expected[place].tensor, one.expected[place].dtype
    if not dtype.is_float or dtype.itemsize != 4:
        return
    pairs = [_small(each, place) for each in lab.judged.values() if each.wrong and each.first_wrong == place]
    got, want = (numpy.concatenate(each) for each in zip(*pairs, strict=True))
    if numpy.unique(want).size < SUPPORT or not bool((abs(got - want) <= OFF * STEP).all()):
        return
    if bool((got / STEP == numpy.rint(got / STEP)).all()):
        yield (
            f"every wrong element of {tensor.name} near 0 is a whole multiple of 2^-24, as the difference of two f32 "
            "numbers near 1 is: the digits below are lost where one is taken from the other (cancellation)"
        )


def _small(one: Judged, place: int) -> tuple[ndarray, ndarray]:
    """The wrong elements near 0: got, and expected."""
    found, want = one.compared[place], one.expected[place].value
    chosen = found.wrong & ~found.unwritten & (abs(want) < SMALL)
    return found.got[chosen].astype(float), want[chosen]
