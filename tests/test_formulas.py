"""What references need and numpy lacks, beside Python's own and torch's."""

from __future__ import annotations

import math
import threading

import numpy
import passed_before
import pytest
import torch

from grader.content import formulas
from grader.content.dtype import DTYPES
from grader.content.formulas import one_by_one, side_by_side
from grader.judge.encoding import decode

pytestmark = passed_before.GRADER

ODD = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.46875, -0.46875, 4.0, -4.0, 1e-300, 26.5, 28.0, -28.0]


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_the_error_function_is_pythons(name: str) -> None:
    drawn = numpy.random.default_rng(0).uniform(-6.5, 26.0, 3 * formulas.BLOCK // 2)
    x = numpy.concatenate([drawn, drawn / 100, ODD])
    expected = numpy.array([getattr(math, name)(value) for value in x])
    numpy.testing.assert_allclose(getattr(formulas, name)(x), expected, rtol=2e-15)
    assert getattr(formulas, name)(x[:6].reshape(2, 3)).shape == (2, 3)


def test_softmax_is_torchs() -> None:
    x = numpy.random.default_rng(0).standard_normal((7, 5)) * 100
    x[0, 1], x[1, :4], x[2], x[3, 2] = -math.inf, -math.inf, -math.inf, math.nan
    for axis in (0, 1):
        expected = torch.from_numpy(x).softmax(dim=axis).numpy()
        numpy.testing.assert_allclose(formulas.softmax(x, axis), expected, rtol=1e-14)
    assert formulas.softmax(numpy.zeros(0)).shape == (0,)


def test_the_logarithm_of_a_sum_of_exponentials_is_torchs() -> None:
    x = numpy.random.default_rng(0).standard_normal((7, 5)) * 1000
    x[0, 1], x[2], x[3, 2] = -math.inf, -math.inf, math.inf
    for axis in (0, 1):
        expected = torch.from_numpy(x).logsumexp(dim=axis).numpy()
        numpy.testing.assert_allclose(formulas.logsumexp(x, axis), expected, rtol=1e-14)


def test_parts_side_by_side_are_joined_in_their_order() -> None:
    x = numpy.arange(24.0).reshape(6, 4)
    parts = [(x[row : row + 2], x[row]) for row in range(0, 6, 2)]
    joined = numpy.concatenate(formulas.side_by_side(lambda some, one: some / one, parts))  # 0 / 0 warns of nothing
    assert joined.shape == (6, 4) and numpy.isnan(joined[0, 0]) and (joined[2] == 1).all()
    assert (formulas.side_by_side(lambda some, one: some + one, parts[1:2])[0] == x[2:4] + x[2]).all()


def test_parts_of_a_part_are_worked_out_one_by_one() -> None:
    """By the thread that works the part out; and all by the caller's own where it asks for that."""
    threads: list[set[int]] = []

    def inner(_: int) -> int:
        return threading.get_ident()

    def outer(number: int) -> int:
        threads.append({*side_by_side(inner, [(each,) for each in range(4)])})
        return threading.get_ident()

    outers = side_by_side(outer, [(number,) for number in range(3)])
    assert {frozenset(each) for each in threads} == {frozenset([each]) for each in outers}
    assert threading.get_ident() not in outers
    with one_by_one():
        assert {*side_by_side(inner, [(1,), (2,)])} == {threading.get_ident()}
    assert threading.get_ident() not in side_by_side(inner, [(1,), (2,)])


def test_the_bytes_of_one_fp8_format_are_numbers_of_the_other() -> None:
    raw = numpy.arange(256, dtype=numpy.uint8)
    e4m3, e5m2 = (decode(raw, DTYPES[name]) for name in ("fp8_e4m3", "fp8_e5m2"))
    numpy.testing.assert_array_equal(formulas.e4m3_as_e5m2(e4m3), e5m2)
