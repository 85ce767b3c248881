"""scan: y[i] = x[0] + ... + x[i], the inclusive prefix sum, of rows or of one long array; and what is made of it.

scan_warp_i32, scan_block_*: each row by itself.

scan_three_kernels_i32, scan_chained_i32, scan_lookback_i32, scan_lookback_ahead_i32: one array of any length n >= 0.

scan_*: all values keep every partial sum of the array within 32 bits, so the answer is exact.

scan_segmented_i32: the sum begins again at every place whose byte in head is not 0. The elements before the first such
place are summed from place 0 on.

partition_lookback_i32: the elements > 0 stand at the front of y in their order. The others stand at its back, the first
of them last: y[n - 1], y[n - 2], ... count[0] is how many elements are > 0; 0 where n is 0. The elements use all of 32
bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.spec import Exact, Fill, InputKind, Operations, Periodic, Rng, Size, Sizes, Spec, Tensor

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

LARGEST = 2**31 - 1
BLOCK = 1 << 16  # elements that are worked out at a time: a processor's cache holds them


def most_of(length: int) -> int:
    """The largest number of which ``length`` have a sum within 32 bits."""
    return LARGEST // max(1, length)


def bounded(low: int, high: int) -> Fill:
    """Whole numbers from low to high, or closer to 0 in a last dimension so long that their sum would need 33 bits."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        most = most_of(shape[-1])
        return rng.integers(shape, max(-most, min(low, most)), max(-most, min(high, most)))

    return fill


def few(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """About one element in 64 is not 0: the sum stays the same for long."""
    most = most_of(shape[-1])
    return rng.integers(shape, -most, most) * (rng.integers(shape, 0, 63) == 0)


SUMMED = (
    InputKind("whole numbers", bounded(1, 8)),
    InputKind("either sign", bounded(-LARGEST, LARGEST)),
    InputKind("all highest", bounded(LARGEST, LARGEST)),
    InputKind("few", few),
)


def exclusive(x: ndarray) -> ndarray:
    return x.cumsum(axis=-1) - x


def restarted(x: ndarray, length: int) -> ndarray:
    """The inclusive scan of each piece of ``length`` along the last axis."""
    import numpy

    sums = x.cumsum(axis=-1)
    place = numpy.arange(x.shape[-1])
    first = place // length * length
    return sums - numpy.where(first > 0, sums[..., numpy.maximum(first, 1) - 1], 0)


def in_32_bits(miss: Callable[..., ndarray]) -> Callable[..., ndarray]:
    """The same sums as they come out of 32 bits."""
    return lambda x, sizes: (miss(x, sizes) - LARGEST - 1) % 2**32 - LARGEST - 1


def doubling(x: ndarray) -> ndarray:
    """Steps 1, 2, 4, ... of which each place without a left neighbour adds itself."""
    y = x.copy()
    offset = 1
    while offset < x.shape[-1]:
        y = y + x_shifted(y, offset)
        offset *= 2
    return y


def x_shifted(y: ndarray, offset: int) -> ndarray:
    import numpy

    return numpy.concatenate([y[..., :offset], y[..., :-offset]], axis=-1)


def of_piece(x: ndarray, length: int) -> ndarray:
    """For each place the sum of its own piece of ``length``."""
    import numpy

    place = numpy.arange(x.shape[-1])
    return restarted(x, length)[..., numpy.minimum(place // length * length + length, len(place)) - 1]


def running_maximum(x: ndarray) -> ndarray:
    import numpy

    return numpy.maximum.accumulate(x, axis=-1)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "the exclusive scan: its own element is missing": lambda x, sizes: exclusive(x),
    "a copy of x": lambda x, sizes: x,
    "the sum of the element itself and all after it": lambda x, sizes: x[..., ::-1].cumsum(axis=-1)[..., ::-1],
    "the element itself added twice": in_32_bits(lambda x, sizes: x.cumsum(axis=-1) + x),
    "the sum of each warp's 32 elements alone": lambda x, sizes: restarted(x, 32),
    "the sum of each 128 elements alone": lambda x, sizes: restarted(x, 128),
    "the sum of its own 32 elements is added once more": in_32_bits(
        lambda x, sizes: x.cumsum(axis=-1) + of_piece(x, 32)
    ),
    "the sum of its own 128 elements is added once more": in_32_bits(
        lambda x, sizes: x.cumsum(axis=-1) + of_piece(x, 128)
    ),
    "the running maximum": lambda x, sizes: running_maximum(x),
}
WARP_MISSES = {
    **{words: miss for words, miss in NEAR_MISSES.items() if not {"alone", "128"} & {*words.split()}},
    "steps whose lowest lanes add themselves": in_32_bits(lambda x, sizes: doubling(x)),
    "four steps: the sum of the last 16 elements": lambda x, sizes: x.cumsum(axis=-1) - last_from(x, 16),
    "the row's sum": lambda x, sizes: x.cumsum(axis=-1) * 0 + x.sum(axis=-1, keepdims=True),
}
ARRAY_MISSES = {
    **NEAR_MISSES,
    "the sum of each 4096 elements alone": lambda x, sizes: restarted(x, 4096),
    "the sum of its own 4096 elements is added once more": in_32_bits(
        lambda x, sizes: x.cumsum(axis=-1) + of_piece(x, 4096)
    ),
}


def last_from(x: ndarray, length: int) -> ndarray:
    """What a place's sum has of elements ``length`` or more before it."""
    sums = 0 * x
    sums[..., length:] = x.cumsum(axis=-1)[..., :-length]
    return sums


def torch_cumsum(x: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.cumsum(x, dim=-1, dtype=torch.int32)


def matrix(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


SCAN_WARP = Spec(
    computes="y[w, i] = x[w, 0] + ... + x[w, i]",
    operations=Operations("y_i = y_(i-1) + x_i", "1 per element: the addition", lambda sizes: 32 * sizes["warps"]),
    inputs=(Tensor("x", ("warps", 32)),),
    outputs=(Tensor("y", ("warps", 32)),),
    sizes={"warps": Size(0, 300)},
    values=SUMMED,
    reference=lambda x, sizes: x.cumsum(axis=-1),
    near_misses=WARP_MISSES,
    tolerance=Exact(),
    # Around the rows of a warp (4, 8), of a block (8, 32, 64), and several blocks.
    named_sizes=tuple({"warps": warps} for warps in (0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 64, 65, 257, 1000)),
    large=({"warps": 100_003}, {"warps": 2_000_003}),
    work=lambda sizes: 40 * 32 * sizes["warps"],
    slice_dim="warps",
)

ROWS = Spec(
    computes="y[r, i] = x[r, 0] + ... + x[r, i]",
    operations=Operations(
        "y_i = y_(i-1) + x_i",
        "1 per element: the addition",
        lambda sizes: sizes["cols"] * sizes["rows"],
    ),
    inputs=(Tensor("x", ("rows", "cols")),),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 6), "cols": Size(1, 1024)},
    values=SUMMED,
    reference=lambda x, sizes: x.cumsum(axis=-1),
    near_misses=NEAR_MISSES,
    tolerance=Exact(),
    # Around powers of two and one step past them, a warp (32), and the longest row (1024).
    named_sizes=(
        matrix(1, 1),
        matrix(1, 2),
        matrix(2, 3),
        matrix(3, 4),
        matrix(1, 7),
        matrix(2, 31),
        matrix(5, 32),
        matrix(2, 33),
        matrix(1, 63),
        matrix(2, 64),
        matrix(1, 65),
        matrix(2, 127),
        matrix(1, 128),
        matrix(2, 129),
        matrix(1, 255),
        matrix(1, 257),
        matrix(2, 500),
        matrix(1, 513),
        matrix(1, 1000),
        matrix(2, 1023),
        matrix(5, 1024),
    ),
    large=(matrix(3001, 1024), matrix(70_001, 777)),
    work=lambda sizes: 300 * sizes["rows"] * sizes["cols"],
    slice_dim="rows",
    baselines={"torch.cumsum": torch_cumsum},
)

LONG_ROWS = replace(
    ROWS,
    sizes={"rows": Size(1, 4), "cols": Size(1, 8192)},
    near_misses={**NEAR_MISSES, "the sum of each 512 elements alone": lambda x, sizes: restarted(x, 512)},
    # Around a vector (4), a warp's elements (32, 128, 512), a block of one element per thread (1024), the longest row.
    named_sizes=(
        matrix(1, 1),
        matrix(2, 3),
        matrix(3, 4),
        matrix(2, 5),
        matrix(1, 31),
        matrix(5, 32),
        matrix(2, 33),
        matrix(2, 127),
        matrix(3, 128),
        matrix(1, 129),
        matrix(2, 511),
        matrix(2, 512),
        matrix(1, 513),
        matrix(1, 1000),
        matrix(2, 1023),
        matrix(1, 1024),
        matrix(1, 1025),
        matrix(1, 4095),
        matrix(2, 4096),
        matrix(1, 4097),
        matrix(2, 8191),
        matrix(3, 8192),
    ),
    large=(matrix(3001, 4096), matrix(7001, 7777)),
    work=lambda sizes: 40 * sizes["rows"] * sizes["cols"],
)

# Around a vector (4), a warp (32), what a warp or a block takes (128, 256, 512, 1024, 2048, 4096, 8192).
SHORT = (*range(6), 7, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 1025, 2047, 2049, 4095, 4096, 4097)
ARRAY = (*SHORT, 8191, 8193, 65_537)
BORDERS = (4095, 4096, 4097, 8191, 8192, 8193)


def lengths(*n: int) -> tuple[Sizes, ...]:
    return tuple({"n": length} for length in n)


SPEC = Spec(
    computes="y[i] = x[0] + ... + x[i]",
    operations=Operations("y_i = y_(i-1) + x_i", "1 per element: the addition", lambda sizes: sizes["n"]),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 40_000)},
    values=SUMMED,
    reference=lambda x, sizes: x.cumsum(),
    near_misses=ARRAY_MISSES,
    tolerance=Exact(),
    # The last two have more than 1024 tiles of 4096, and more than 2048: a block with one tile's sum per thread scans
    # them in two steps, and in three.
    named_sizes=lengths(*ARRAY, 1_000_003, 1024 * 4096 + 1, 2 * 1024 * 4096 + 1),
    large=lengths(300_007, 40_000_003),
    work=lambda sizes: 7 * sizes["n"],
    baselines={"torch.cumsum": torch_cumsum},
)

# 32768 elements are a tile of the solution. The last shape has 8 of them, more than a small card holds at a time.
CHAINED = replace(SPEC, named_sizes=lengths(*ARRAY, 32_767, 32_768, 32_769, 7 * 32_768 + 1))

# Tiles of 4096 or 8192: as many as a window of look-back has (32), one more, two windows and one more.
LOOKBACK = replace(
    SPEC,
    named_sizes=lengths(*ARRAY, 32 * 4096, 32 * 8192 + 1, 1_000_003, 65 * 8192 + 5),
    near_misses={
        **ARRAY_MISSES,
        "the sum of each 8192 elements alone": lambda x, sizes: restarted(x, 8192),
        "the sum of its own 8192 elements is added once more": in_32_bits(
            lambda x, sizes: x.cumsum(axis=-1) + of_piece(x, 8192)
        ),
    },
)

# -- scan_segmented --------------------------------------------------------------------------------------------------


def segment_first(head: ndarray) -> ndarray:
    """For each place the last place up to it that has a head, or 0."""
    import numpy

    return numpy.maximum.accumulate(numpy.where(head != 0, numpy.arange(len(head)), 0))


def segmented(x: ndarray, head: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    y, carried = numpy.empty_like(x), numpy.zeros(1, x.dtype)
    for start in range(0, len(x), BLOCK):
        part = x[start : start + BLOCK]
        sums, places = part.cumsum(), head[start : start + BLOCK].nonzero()[0]
        before = numpy.concatenate([-carried, sums[places] - part[places]])  # each segment: what sums has too much
        sums -= before.repeat(numpy.diff(places, prepend=0, append=len(part)))
        y[start : start + BLOCK], carried = sums, sums[-1:]
    return y


def behind_head(x: ndarray, head: ndarray, sizes: Sizes) -> ndarray:
    """The sum begins at the place after the head."""
    first = segment_first(head)
    sums = x.cumsum()
    return sums - sums[first] + (x * (head == 0))[first]


def heads(one_in: int) -> Fill:
    """Any byte but 0 in one place of ``one_in``, drawn at random; 0: nowhere."""

    def fill(rng: Rng, shape: tuple[int, ...]) -> ndarray:
        drawn = rng.integers(shape, 1, 255)
        if one_in == 0:
            return drawn * 0
        return drawn * (rng.integers(shape, 0, one_in - 1) == 0)

    return Periodic(fill)


def heads_at(*places: int) -> Fill:
    """Heads at these places alone."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        drawn = rng.integers(shape, 0, 0)
        for place in places:
            drawn[place : place + 1] = rng.integers((1,), 1, 255)
        return drawn

    return fill


# Before, at and after the borders of vectors, warps, chunks and tiles of many lengths.
AT_BORDERS = tuple(sorted({k * piece + d for piece in (4, 32, 128, 512, 4096) for k in (1, 2, 7) for d in (-1, 0, 1)}))

SEGMENTED = replace(
    SPEC,
    computes="y[i] = x[j] + ... + x[i], j the last place up to i with a head",
    operations=Operations(
        "y_i = x_i, or y_(i-1) + x_i where head_i is 0",
        "2 per element: the comparison and the addition",
        lambda sizes: 2 * sizes["n"],
    ),
    inputs=(Tensor("x", ("n",)), Tensor("head", ("n",), "u8")),
    values=(
        InputKind("one in 3", {"x": bounded(1, 8), "head": heads(3)}),
        InputKind("one in 1000", {"x": bounded(-LARGEST, LARGEST), "head": heads(1000)}),
        InputKind("no head", {"x": bounded(1, 8), "head": heads(0)}),
        InputKind("all heads", {"x": bounded(-LARGEST, LARGEST), "head": heads(1)}),
        InputKind("head at 0", {"x": bounded(1, 8), "head": heads_at(0)}),
        InputKind("heads at borders", {"x": bounded(1, 8), "head": heads_at(*AT_BORDERS)}),
    ),
    reference=segmented,
    near_misses={
        "the scan without heads": lambda x, head, sizes: x.cumsum(),
        "the exclusive scan: its own element is missing": lambda x, head, sizes: segmented(x, head, sizes) - x,
        "a sum that begins after the head": behind_head,
        "heads of the byte 1 alone": lambda x, head, sizes: segmented(x, head == 1, sizes),
        "a copy of x": lambda x, head, sizes: x,
    },
    named_sizes=lengths(*SHORT, *BORDERS[3:], 33 * 4096 + 1, 1_000_003, 65 * 4096 + 5),
    work=lambda sizes: 7 * sizes["n"],
    baselines={},
)

# -- partition_lookback ----------------------------------------------------------------------------------------------


def partitioned(x: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    import numpy

    y, count, last = numpy.empty_like(x), 0, len(x)
    for start in range(0, len(x), BLOCK):
        part = x[start : start + BLOCK]
        kept, others = part[part > 0], part[part <= 0]
        y[count : count + len(kept)] = kept
        y[last - len(others) : last] = others[::-1]
        count, last = count + len(kept), last - len(others)
    return y, numpy.array([count])


def in_rising_order(x: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    import numpy

    kept = x > 0
    return numpy.concatenate([x[kept], x[~kept]]), kept.sum().reshape(1)


def zeros_kept(x: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    import numpy

    kept = x >= 0
    return numpy.concatenate([x[kept], x[~kept][::-1]]), kept.sum().reshape(1)


def others_counted(x: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    return partitioned(x, sizes)[0], (x <= 0).sum().reshape(1)


@Periodic
def any_number(rng: Rng, shape: tuple[int, ...]) -> ndarray:
    """All of 32 bits, and one in eight of 0, 1 and -1."""
    import numpy

    small = rng.integers(shape, -1, 1)
    return numpy.where(rng.integers(shape, 0, 7) == 0, small, rng.integers(shape, -LARGEST - 1, LARGEST))


def signed(sign: Callable[[ndarray], ndarray]) -> Fill:
    """Any number up to 32 bits, made > 0 where ``sign`` of its place is true, < 0 elsewhere."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        drawn = rng.integers(shape, 1, LARGEST)
        return numpy.where(sign(numpy.arange(sizes["n"])), drawn, -drawn)

    return fill


PARTITION = replace(
    SPEC,
    computes="y = the elements of x > 0, then the others in reverse; count = how many are > 0",
    operations=Operations("x_i > 0", "1 per element: the comparison", lambda sizes: sizes["n"]),
    outputs=(Tensor("y", ("n",)), Tensor("count", (1,))),
    values=(
        InputKind("any number", any_number),
        InputKind("all > 0", signed(lambda place: place >= 0)),
        InputKind("none > 0", signed(lambda place: place < 0)),
        InputKind("every other", signed(lambda place: place % 2 == 0)),
        InputKind("only the first > 0", signed(lambda place: place == 0)),
        InputKind("runs of 100", signed(lambda place: place // 100 % 2 == 1)),
    ),
    reference=partitioned,
    near_misses={
        "the others in rising order": in_rising_order,
        "0 among the elements > 0": zeros_kept,
        "the count of the others": others_counted,
        "a copy of x": lambda x, sizes: (x, (x > 0).sum().reshape(1)),
    },
    named_sizes=lengths(*SHORT, *BORDERS[3:], 33 * 6144 + 1, 1_000_003, 65 * 6144 + 5),
    work=lambda sizes: 7 * sizes["n"],
    baselines={"torch.masked_select": lambda x, **_: lambda: x.masked_select(x > 0)},
)

SPECS = {
    "scan_warp_i32": SCAN_WARP,
    "scan_block_kogge_i32": ROWS,
    "scan_block_brent_i32": ROWS,
    "scan_block_coarse_i32": LONG_ROWS,
    "scan_chained_i32": CHAINED,
    "scan_lookback_i32": LOOKBACK,
    "scan_lookback_ahead_i32": LOOKBACK,
    "partition_lookback_i32": PARTITION,
    "scan_segmented_i32": SEGMENTED,
}
