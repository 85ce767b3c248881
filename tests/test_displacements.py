"""Right values at wrong places of an output."""

from __future__ import annotations

import numpy
import passed_before
import pytest
from facts import has

from grader.judge.displacements import displaced

pytestmark = passed_before.REPOSITORY

ROUNDOFF = 2.0**-11


def said(got: numpy.ndarray, want: numpy.ndarray) -> str:
    return displaced("y", got, want, abs(got - want) > 1e-2 * abs(want), ROUNDOFF) or ""


def drawn(*shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(5).normal(size=shape)


def test_results_that_are_all_equally_far_away() -> None:
    want = drawn(8, 16)
    got = numpy.vstack([want[1:], drawn(1, 16) + 9])
    assert has(said(got, want), "y[0, 0] is what must be at y[1, 0]: 112 of 128 wrong elements", "off by (+1, 0)")


def test_tiles_in_another_order_whose_scales_are_those_of_their_places() -> None:
    want = drawn(2, 64)
    tiles = want.reshape(2, 8, 8)
    got = tiles[:, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(2, 64) * (1 + 2.0**-13)
    assert has(
        said(got, want), "y[0, 8..15] is what must be at y[0, 16..23]; y[0, 16..23] is what must be at y[0, 32..39]"
    )


@pytest.mark.parametrize("factor", [1.02, -1.0])
def test_wrong_values_are_not_taken_for_others(factor: float) -> None:
    want = drawn(2, 64)
    assert said(want * factor, want) == ""


def test_equal_values_tell_nothing() -> None:
    want = numpy.arange(64.0) % 4 + 1
    assert said(numpy.roll(want, 1), want) == ""
