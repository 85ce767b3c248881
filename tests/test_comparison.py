"""Output bytes -> what is wrong with them: rules for nan, inf, poison and tolerance, and guesses at a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan, sqrt
from types import SimpleNamespace

import numpy
import passed_before
import pytest
from facts import has

from grader.content.dtype import DTYPES
from grader.content.spec import Tensor
from grader.judge.case import Expected
from grader.judge.comparison import SHOWN, Comparison, compare, compared
from grader.judge.encoding import decode, encode, stored
from grader.judge.pattern import describe, describe_swizzle, describe_values, without_chance, without_last

pytestmark = passed_before.GRADER


def judged(
    got: list[float] | numpy.ndarray,
    want: list[float] | numpy.ndarray,
    *,
    dtype: str = "f32",
    bound: float | None = None,
    signed_zeros: bool = False,
) -> Comparison:
    """Compare a one-dimensional answer; ``bound`` is the same for all elements."""
    value = numpy.asarray(want, dtype=numpy.float64 if DTYPES[dtype].is_float else numpy.int64)
    answer = encode(numpy.asarray(got, dtype=value.dtype), DTYPES[dtype])
    names = ("n",) if value.ndim == 1 else ("M", "N", "K")[: value.ndim]
    bounds = None if bound is None else numpy.full_like(value, bound)
    return compare(answer.tobytes(), Expected(Tensor("y", names), DTYPES[dtype], value, bounds, signed_zeros))


# -- exact answers ---------------------------------------------------------------------------------------------------


def test_right_answer() -> None:
    result = judged([1.0, -2.5], [1.0, -2.5])
    assert (result.wrong, result.count, result.mismatches, result.pattern, result.error_share) == (0, 2, (), None, 0.0)


def test_answer_without_elements() -> None:
    assert judged([], []).wrong == 0


def test_reference_is_rounded_once_to_the_output() -> None:
    third = 1.0 / 3.0
    assert judged([third], [third], dtype="f16").wrong == 0
    below = numpy.nextafter(numpy.float32([third]), numpy.float32(0.0))
    assert judged(below, [third]).wrong == 1
    assert judged(below, [third]).error_share == inf


def test_zeros_of_either_sign_are_equal() -> None:
    assert judged([0.0, -0.0], [-0.0, 0.0]).wrong == 0


def test_zeros_of_either_sign_differ_where_the_spec_says_so() -> None:
    values = [0.0, -0.0, 1.0, -1.0, inf, -inf, nan, -nan]
    assert judged(values, values, signed_zeros=True).wrong == 0
    result = judged([0.0, -0.0, 0.0, nan], [-0.0, -0.0, 0.0, -nan], signed_zeros=True)
    assert (result.wrong, result.error_share) == (1, inf)
    assert [str(mismatch.expected) for mismatch in result.mismatches] == ["-0.0"]
    assert judged([0], [0], dtype="i32", signed_zeros=True).wrong == 0


def test_overflow_of_the_output_is_infinite() -> None:
    assert judged([inf], [70000.0], dtype="f16").wrong == 0
    assert judged([65504.0], [70000.0], dtype="f16").wrong == 1


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        (nan, nan, True),
        (inf, inf, True),
        (-inf, inf, False),
        (nan, 1.0, False),
        (nan, inf, False),
        (1.0, nan, False),
        (inf, nan, False),
        (1.0, inf, False),
        (3.0e38, inf, False),
        (inf, 1.0, False),
    ],
)
@pytest.mark.parametrize("bound", [None, 0.5, inf])
def test_what_is_not_finite(got: float, want: float, right: bool, bound: float | None) -> None:
    """The same with and without a tolerance, however wide: a nan is no number, and an infinity no large number."""
    result = judged([got], [want], bound=bound)
    assert result.wrong == (0 if right else 1)
    assert result.error_share == (0.0 if right else inf)


def test_integers() -> None:
    assert judged([1, -7], [1, -7], dtype="i32").wrong == 0
    result = judged([1, -7], [1, 7], dtype="i32")
    assert (result.wrong, result.error_share) == (1, inf)
    assert (result.mismatches[0].index, result.mismatches[0].expected, result.mismatches[0].got) == ((1,), 7, -7)


def test_count_that_does_not_fit_the_output_is_wrong() -> None:
    """The reference is 64 bits wide: an answer that wrapped is not right for being equal in the low 32."""
    assert judged([1], [1 + 2**32], dtype="i32").wrong == 1


# -- tolerance -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "right"), [(0.0, True), (0.25, True), (0.5, True), (-0.5, True), (0.75, False), (-8.0, False)]
)
def test_tolerance(error: float, right: bool) -> None:
    result = judged([4.0 + error], [4.0], bound=0.5)
    assert result.wrong == (0 if right else 1)
    assert result.error_share == abs(error) / 0.5


def test_share_is_the_largest_of_all_elements() -> None:
    assert judged([1.0, 2.25, 3.125], [1.0, 2.0, 3.0], bound=1.0).error_share == 0.25


def test_no_tolerance_at_all() -> None:
    """A bound of 0, as for a sum of zeros: the right bits pass, others are infinitely far off."""
    assert judged([0.0], [0.0], bound=0.0).error_share == 0.0
    assert judged([1.0e-30], [0.0], bound=0.0).wrong == 1
    assert judged([1.0e-30], [0.0], bound=0.0).error_share == inf


def test_rounded_reference_passes_whatever_the_bound() -> None:
    third = 1.0 / 3.0
    assert judged(numpy.float32([third]), [third], bound=0.0).wrong == 0


# -- codes: a tolerance before the rounding --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "value", "right"),
    [
        ("fp8_e4m3", 1.0, (1.0,)),
        ("fp8_e4m3", 1.0624, (1.0, 1.125)),  # the tie between 1 and 1.125 is 1.0625
        ("fp8_e4m3", 1.0626, (1.0, 1.125)),
        ("fp8_e4m3", 1.05, (1.0,)),
        ("fp8_e4m3", -1.0626, (-1.0, -1.125)),
        ("fp8_e4m3", 0.9687, (0.9375, 1.0)),  # below a power of two the distance is half as large
        ("fp8_e4m3", 0.99, (1.0,)),
        ("fp8_e4m3", 2.0**-10, (0.0, 2.0**-9)),
        ("fp8_e4m3", 480.0, (448.0,)),  # saturates
        ("fp8_e4m3", -1.0e6, (-448.0,)),
        ("i8", 2.4999, (2.0, 3.0)),
        ("i8", 2.45, (2.0,)),
        ("i8", -2.6, (-3.0,)),
        ("i8", 200.0, (127.0,)),
    ],
)
def test_codes_may_differ_only_close_to_a_tie(dtype: str, value: float, right: tuple[float, ...]) -> None:
    codes = numpy.arange(256, dtype=numpy.uint8)
    numbers = decode(codes.view(DTYPES[dtype].storage), DTYPES[dtype])
    wanted = numpy.full(256, value)
    # 2 ^ -10 is a tie, and the others are within 0.0002 of one or further than 0.005 from any.
    expected = Expected(Tensor("q", ("n",)), DTYPES[dtype], wanted, numpy.full(256, 0.0002), before_rounding=True)
    passes = [
        float(number)
        for code, number in zip(codes, numbers, strict=True)
        if compare(bytes([code]), replace(expected, value=wanted[:1], bound=expected.bound[:1])).wrong == 0  # type: ignore[index]
    ]
    assert sorted(set(passes)) == sorted(right)


def test_share_before_the_rounding_is_the_distance_from_the_tie() -> None:
    """1.1 is 0.0375 past the tie between 1 and 1.125."""
    expected = Expected(
        Tensor("q", ("n",)), DTYPES["fp8_e4m3"], numpy.array([1.1]), numpy.array([0.05]), before_rounding=True
    )
    found = compare(encode(numpy.array([1.0]), DTYPES["fp8_e4m3"]).tobytes(), expected)
    assert found.wrong == 0 and found.error_share == pytest.approx(0.0375 / 0.05)


def test_nan_is_not_a_code_of_a_number() -> None:
    expected = Expected(
        Tensor("q", ("n",)), DTYPES["fp8_e4m3"], numpy.array([1.0]), numpy.array([1e9]), before_rounding=True
    )
    assert compare(bytes([0x7F]), expected).wrong == 1


# -- poison ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "i32", "i64", "i8", "u8"])
def test_element_that_was_never_written(dtype: str) -> None:
    facts = DTYPES[dtype]
    data = bytes([1] * facts.itemsize + [facts.poison] * facts.itemsize)
    value = decode(stored(data, facts), facts)
    value[1] = 1
    result = compare(data, Expected(Tensor("y", ("n",)), facts, value, None))
    assert [(mismatch.index, mismatch.got) for mismatch in result.mismatches] == [((1,), None)]
    assert said_in(result.pattern) == ([1], {"only", "written"})


def test_nan_that_a_kernel_wrote_counts_as_written() -> None:
    result = judged([nan], [1.0])
    assert result.mismatches[0].got is not None


def test_unwritten_elements_whose_right_answer_is_nan_are_counted_with_the_others() -> None:
    poison, written = bytes([0xFF] * 2), bytes([0x00, 0x7E])
    want = numpy.array([nan] * 4 + [1.0, nan, 1.0, nan])
    expected = Expected(Tensor("y", ("n",)), DTYPES["f16"], want, None)
    result = compare(written * 4 + poison * 4, expected)
    assert [(mismatch.index, mismatch.got) for mismatch in result.mismatches] == [((i,), None) for i in range(4, 8)]
    assert result.wrong == 4 and result.pattern is not None and has(result.pattern, "every", "4", "written")
    assert compared(written * 4 + poison * 4, expected).wrong.tolist() == [False] * 4 + [True] * 4


def test_a_nan_with_the_bits_of_poison_may_be_an_answer() -> None:
    data, want = bytes([0xFF] * 2 + [0, 0]), numpy.array([nan, 1.0])
    expected = Expected(Tensor("y", ("n",)), DTYPES["f16"], want, None)
    assert compare(data, expected).wrong == int(compared(data, expected).wrong.sum()) == 1


def test_partly_poisoned_element_counts_as_written() -> None:
    data = bytes([0x9D, 0x9D, 0x9D, 0x00])
    result = compare(data, Expected(Tensor("y", ("n",)), DTYPES["i32"], numpy.array([0]), None))
    assert result.mismatches[0].got == 0x009D9D9D


# -- what is shown ---------------------------------------------------------------------------------------------------


def test_first_wrong_elements_in_order() -> None:
    result = judged([9.0] * 100, [float(i) for i in range(100)])
    assert (result.wrong, result.count) == (99, 100)
    assert [mismatch.index for mismatch in result.mismatches] == [(i,) for i in range(SHOWN)]
    assert [mismatch.expected for mismatch in result.mismatches] == [float(i) for i in range(SHOWN)]
    assert {mismatch.buffer for mismatch in result.mismatches} == {"y"}


def test_index_in_two_dimensions() -> None:
    want = numpy.zeros((3, 4))
    got = want.copy()
    got[1, 2] = 5.0
    assert [(mismatch.index, mismatch.got) for mismatch in judged(got, want).mismatches] == [((1, 2), 5.0)]


# -- patterns --------------------------------------------------------------------------------------------------------


def pattern(count: int, wrong: range | list[int], *, unwritten: bool = False) -> str:
    places = numpy.zeros(count, dtype=bool)
    places[list(wrong)] = True
    return describe(places, unwritten, "y", ("n",))


# The words that say what the wrong elements have in common; all others are free.
NOUNS = ("every", "only", "from", "last", "multiple", "modulo", "written", "nan", "inf", "infinite", "other")


def said_in(text: str | None) -> tuple[list[int], set[str]]:
    """The numbers of a pattern in their order, and its words of NOUNS."""
    assert text is not None
    return list(map(int, re.findall(r"\d+", text))), set(re.findall(r"\w+", text)) & set(NOUNS)


@pytest.mark.parametrize(
    ("count", "wrong", "numbers", "nouns"),
    [
        (5, range(5), [], {"every"}),
        (1, range(1), [], {"every"}),
        (10, [3], [3], {"only"}),
        (10, [9], [9], {"only", "last"}),
        (10, range(8, 10), [8, 8], {"every", "from", "last", "multiple"}),
        (15, range(12, 15), [12, 4], {"every", "from", "last", "multiple"}),
        (300, range(256, 300), [256, 256], {"every", "from", "multiple"}),
        (2000, range(1024, 2000), [1024, 1024], {"every", "from", "multiple"}),
        (100, range(37, 100), [37], {"every", "from"}),
        (100, range(10, 20), [10, 19], set()),
        (100, range(0, 50), [0, 49], set()),
        (100, range(1, 100, 2), [1, 2], {"every", "modulo"}),
        (100, range(2, 100, 4), [2, 4], {"every", "modulo"}),
        (200, range(31, 200, 32), [31, 32], {"every", "modulo"}),
        (100, range(31, 100, 32), [3, 100], set()),  # three places support no rule
        (8, [1, 4, 7], [3, 8], set()),
        (2, [1], [1], {"only"}),
        (100, [1, 2, 50], [3, 100], set()),
        (64, [each for each in range(64) if each % 16 > 7 and each != 9], [8, 15, 16, 31, 32], {"modulo"}),
        (64, [each for each in range(32, 64) if each not in (33, 40)], [32, 30, 32, 32], {"from", "multiple"}),
        (64, [each for each in range(64) if each not in (0, 5, 40)], [1, 61, 63], {"from"}),
        (64, [each for each in range(64) if each not in (5, 40)], [62, 64], {"every"}),
    ],
)
def test_pattern_along_a_line(count: int, wrong: range | list[int], numbers: list[int], nouns: set[str]) -> None:
    assert said_in(pattern(count, wrong)) == (numbers, nouns)


@pytest.mark.parametrize(
    ("others", "is_chance"),
    [
        ([{"m": 3, "n": 12}], True),
        ([{"m": 3, "n": 7}, {"m": 3, "n": 16}], True),
        ([{"m": 3, "n": 18}], False),  # no whole number of vectors either
        ([{"m": 1, "n": 12}], False),  # two sizes are others
    ],
)
def test_a_rest_of_vectors_is_chance_where_whole_vectors_fail_too(
    others: list[dict[str, int]], is_chance: bool
) -> None:
    words = pattern(14, [12, 13])
    assert "last multiple of 4" in words
    said = without_chance(words, {"m": 3, "n": 14}, others)
    assert ("last multiple" not in said) == is_chance and said.split(":")[0] == words.split(":")[0]


def test_whole_vectors_along_another_axis_say_nothing() -> None:
    words = f"along n (axis 1), {pattern(14, [12, 13])}"
    assert without_chance(words, {"m": 3, "n": 14}, [{"m": 4, "n": 14}]) == words


@pytest.mark.parametrize(("larger", "is_last"), [([8192, 8193], False), ([8193], True), ([], True)])
def test_the_first_of_a_tile_is_not_the_last_by_chance(larger: list[int], is_last: bool) -> None:
    wrong, other = (numpy.isin(numpy.arange(count), which) for count, which in ((8193, [8192]), (8194, larger)))
    words = describe(wrong, False, "y", ("n",))
    assert has(words, "element 8192", "last", "multiple of 1024")
    said = without_last(words, wrong, [wrong, other])
    assert has(said, "element 8192", "multiple of 1024") and ("last" in said) == is_last
    two = [numpy.stack([each, each]) for each in (wrong, other)]
    words = describe(two[0], False, "y", ("m", "n"))
    assert "last" in words and ("last" in without_last(words, two[0], two)) == is_last


def test_pattern_of_what_was_never_written() -> None:
    numbers, nouns = said_in(pattern(10, range(8, 10), unwritten=True))
    assert numbers[0] == 8 and nouns >= {"every", "from", "written"}


@pytest.mark.parametrize(
    ("got", "want", "numbers", "nouns"),
    [
        ([1.0, 0.0, 0.0], [1.0, nan, nan], [], {"every", "nan", "other"}),
        ([0.0, 0.0], [nan, nan], [], {"every", "nan", "other"}),
        ([0.0, 2.0, nan], [inf, 2.0, inf], [], {"every", "inf", "other"}),
        ([-inf, 0.0, inf], [-inf, -inf, inf], [1], {"only", "inf"}),
        ([0.0, 2.0, inf], [inf, 2.0, -inf], [], {"every", "infinite", "other"}),
        ([nan, 0.0, 3.0], [nan, nan, 3.0], [1], {"only", "nan"}),
        ([0.0, 0.0, 3.0], [nan, 1.0, 3.0], [0, 1], set()),
        ([nan, nan, 3.0], [nan, 1.0, 3.0], [1], {"only"}),
    ],
)
def test_pattern_of_what_must_be_there(
    got: list[float], want: list[float], numbers: list[int], nouns: set[str]
) -> None:
    found = judged(got, want, bound=0.5).pattern
    assert said_in(found) == (numbers, nouns)
    assert ("-inf" in str(found)) == (want[0] == -inf)
    if "every" in nouns:
        assert judged([got, got], [want, want], dtype="f16").pattern == found


def test_pattern_of_what_overflows_the_output() -> None:
    assert said_in(judged([65504.0, 1.0], [70000.0, 1.0], dtype="f16").pattern) == ([], {"every", "inf", "other"})


def test_some_of_a_residue_is_no_pattern() -> None:
    """Three of the fifty odd elements: that they are odd explains nothing."""
    assert said_in(pattern(100, [1, 5, 11])) == ([3, 100], set())


def filled(shape: tuple[int, ...], *regions: tuple[slice | int, ...], right: list[tuple[int, ...]]) -> str:
    """The pattern of regions that are wrong but for some elements, which are right by chance."""
    wrong = numpy.zeros(shape, dtype=bool)
    for region in regions:
        wrong[region] = True
    for place in right:
        wrong[place] = False
    return describe(wrong, False, "C", ("B", "M", "N")[-len(shape) :])


ALL = slice(None)


@pytest.mark.parametrize(
    ("shape", "region", "right", "facts"),
    [
        ((4, 6), (ALL, ALL), [], ["every element"]),
        ((4, 6), (slice(2, None), ALL), [], ["C[2.., *]", "all its 12", "along M"]),
        ((4, 6), (ALL, 5), [], ["C[*, 5]", "all its 4", "along N", "the last"]),
        ((4, 8), (ALL, slice(1, None, 2)), [], ["C[*, 1 modulo 2]", "all its 16"]),
        ((17, 32), (16, ALL), [(16, 3)], ["C[16, *]", "31 of its 32"]),
        (
            (3, 40, 64),
            (ALL, slice(32, None), ALL),
            [(0, 32, 1), (2, 35, 60)],
            ["C[*, 32.., *]", "along M", "multiple of 32"],
        ),
        ((2, 64, 64), (1, slice(16, 32), slice(8, 16)), [(1, 17, 9)], ["C[1, 16..31, 8..15]", "127 of its 128"]),
        ((32, 32), (slice(8, None, 16), slice(0, 16)), [], ["C[8, 24, 0..15]", "all its 32"]),
        ((64, 64), (slice(3, None, 16), ALL), [], ["C[3 modulo 16, *]", "all its 256"]),
        ((4, 6), (2, 3), [], ["only C[2, 3]"]),
        ((8, 8), (ALL, ALL), [(each, each) for each in range(8)], ["off the diagonal"]),
        ((40, 40), (ALL, ALL), [(1, 2), (3, 3)], ["nearly every", "1598 of 1600"]),
        ((1, 1, 64), (0, 0, slice(0, 63)), [(0, 0, 5), (0, 0, 40), (0, 0, 41)], ["nearly every", "60 of 64"]),
        ((1, 1, 64), (0, 0, slice(0, 48)), [(0, 0, 5)], ["C[*, *, 0..47]", "47 of its 48"]),
        ((40, 40), (slice(1, 39, 13), slice(0, 30, 7)), [(1, 0)], ["14 of 1600"]),
    ],
)
def test_pattern_by_where_wrong_elements_lie(
    shape: tuple[int, ...], region: tuple[slice | int, ...], right: list[tuple[int, ...]], facts: list[str]
) -> None:
    assert has(filled(shape, region, right=right), *facts)


def test_sides_of_the_diagonal() -> None:
    above = ~numpy.tri(9, dtype=bool)
    assert has(describe(above, False, "C", ("M", "N")), "every", "above the diagonal")
    assert has(describe(above.T, False, "C", ("M", "N")), "every", "below the diagonal")
    above[0, 3] = False
    assert has(describe(above, False, "C", ("M", "N")), "35 of 36", "above the diagonal")


@pytest.mark.parametrize(
    ("got", "sizes", "facts"),
    [
        (lambda want: 0.5 * want, {"n": 16}, ["0.5 times"]),
        (lambda want: want * sqrt(7 / 8), {"n": 8}, ["0.935414 times", "sqrt((n - 1) / n)"]),
        (lambda want: want / sqrt(64), {"D": 64}, ["0.125 times", "1 / sqrt(D)"]),
        (lambda want: -want, {"n": 8}, ["-1 times"]),
        (lambda want: want + 3.0, {"n": 8}, ["3 too large"]),
        (lambda want: want - 0.25, {"n": 8}, ["0.25 too small"]),
        (lambda want: 0 * want, {"n": 8}, ["element is 0"]),
        (lambda want: 0 * want + nan, {"n": 8}, ["element is nan"]),
    ],
)
def test_one_number_that_explains_all_wrong_values(
    got: Callable[[numpy.ndarray], numpy.ndarray], sizes: dict[str, int], facts: list[str]
) -> None:
    want = numpy.float32([1.0, -2.5, 3.75, 0.125, 9.0]).astype(float)
    found = describe_values(got(want).astype(numpy.float32).astype(float), want, 2.0**-24, sizes)
    assert found is not None and has(found, *facts)


def test_values_that_no_number_explains() -> None:
    want = numpy.array([1.0, -2.5, 3.75, 0.125, 9.0])
    assert describe_values(want**2, want, 2.0**-24, {"n": 5}) is None
    assert describe_values(want[:3] * 2, want[:3], 2.0**-24, {"n": 5}) is None, "three elements are too few"
    same = numpy.full(8, 2.0)
    assert describe_values(same + 1, same, 2.0**-24, {"n": 8}) is None, "a factor, or a difference"


def test_pattern_of_three_dimensions() -> None:
    wrong = numpy.zeros((2, 3, 4), dtype=bool)
    wrong[:, 2] = True
    assert has(describe(wrong, False, "O", ("B", "H", "S")), "H", "axis 1", "O[*, 2, *]")


def test_expected_value_may_be_a_view() -> None:
    """A reference returns what it likes: here a transposed view."""
    want = numpy.arange(6.0).reshape(2, 3).T
    assert judged(want, want).wrong == 0


def test_tensor_is_only_read_for_its_name_and_shape() -> None:
    stand_in = SimpleNamespace(name="z", shape=("n",))
    result = compare(bytes([0, 0, 128, 63]), Expected(stand_in, DTYPES["f32"], numpy.zeros(1), None))  # type: ignore[arg-type]
    assert result.mismatches[0].buffer == "z"


def test_chunks_in_the_places_of_a_swizzle_are_told_from_other_orders() -> None:
    want = numpy.random.default_rng(5).normal(size=(16, 64))
    rows, cols = numpy.indices(want.shape)

    def said(turn: numpy.ndarray) -> str | None:
        found = want[rows, cols ^ turn * 8]
        return describe_swizzle(found, want, found != want, 2.0**-11, 8)

    assert has(said(rows % 8) or "", "8 columns", "chunk c ^ (r % 8)", "on one side alone")
    assert has(said(rows // 2 % 4) or "", "chunk c ^ (r / 2 % 4)")
    assert said(rows % 8 ^ 1) is None and said(0 * rows + 1) is None
    few = want[rows, cols ^ rows % 8 * 8]
    few[3, 5] += 1
    assert describe_swizzle(few, want, few != want, 2.0**-11, 8) is None
