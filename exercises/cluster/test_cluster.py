"""cluster: blocks that exchange data through distributed shared memory; each kata continues another family's ladder.

cluster_exchange_f32: the difference of a group's rows is one operation, so the answer is exact.

cluster_histogram_i32: counts are exact in any order of the threads.

cluster_reduce_f32: a sum of n terms in any order, off by what rounding can do. Where clusters add to y by float
atomics, two calls need not agree in their last bits. Whole numbers are exact and show a single lost element.

cluster_softmax_row_*: an element of -inf gives 0, a row of only -inf gives nan, and one nan or +inf makes its whole row
nan, and no other row.

The bound of softmax. With m the row's maximum, e = exp(x - m) and y = e / sum of e, the distance x - m is rounded, and
again as it is scaled for the exponential of base 2. So e is off by some u (1 + |x - m|), as a share of itself. The sum
is off by the mean of these shares, weighted by y, and rounding its cols terms adds g(cols) u. Hence |y| (1 + |x - m| +
sum of y |x - m| + g(cols)). What is below the smallest normal number may be flushed to 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

from grader.content.formulas import softmax
from grader.content.rows import huge, masked, per_row, poisoned, shifted, softmax_bound, top, total
from grader.content.spec import (
    Accumulated,
    Exact,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    edge_values,
    integers,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

GROUP = 4  # rows of the exchange
RANKS = 8  # blocks per cluster of the other solutions


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


# -- the exchange ----------------------------------------------------------------------------------------------------


def row_before(rows: int, *, steps: int = 1) -> ndarray:
    """The index of the row ``steps`` before each row, round its group."""
    import numpy

    row = numpy.arange(rows)
    first = row // GROUP * GROUP
    return first + (row - first - steps) % numpy.minimum(GROUP, rows - first)


def row_before_of_all(rows: int) -> ndarray:
    """The index of the row before each row; before the first comes the last."""
    import numpy

    return (numpy.arange(rows) - 1) % rows


EXCHANGE = Spec(
    computes="y = x - the row before it, round each group of 4 rows",
    operations=Operations(
        "y = x - z, z = the row before in its group",
        "1 per element: the subtraction",
        lambda sizes: sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")),),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 24), "cols": Size(1, 5000)},
    values=(
        InputKind("normal", normal(mean=1.0)),
        InputKind("whole numbers", integers(-1000, 1000)),
        InputKind("edge values", edge_values()),
    ),
    reference=lambda x, sizes: x - x[row_before(len(x))],
    near_misses={
        "x - the row after it": lambda x, sizes: x - x[row_before(len(x), steps=-1)],
        "the row before - x": lambda x, sizes: x[row_before(len(x))] - x,
        "the row before alone": lambda x, sizes: x[row_before(len(x))],
        "the sum with the row before": lambda x, sizes: x + x[row_before(len(x))],
        "x - the row before, round all rows": lambda x, sizes: x - x[row_before_of_all(len(x))],
        "x - the row two before": lambda x, sizes: x - x[row_before(len(x), steps=2)],
        "x - x": lambda x, sizes: x - x,
    },
    tolerance=Exact(),
    # Around a vector, a warp, a block and a tile (4096 columns); last groups of 1, 2, 3 and 4 rows.
    named_sizes=(
        shape(1, 1),
        shape(2, 1),
        shape(3, 2),
        shape(4, 3),
        shape(5, 4),
        shape(6, 31),
        shape(7, 32),
        shape(4, 33),
        shape(9, 255),
        shape(6, 1024),
        shape(3, 1025),
        shape(5, 4095),
        shape(4, 4096),
        shape(7, 4097),
        shape(6, 4100),
        shape(6, 8200),
        shape(4, 12_301),
    ),
    large=(shape(4099, 1031), shape(1030, 8200), shape(257, 16_384), shape(300_007, 40), shape(3, 1_000_003)),
    work=lambda sizes: (sizes["rows"] + 3) * (12_000 + 12 * sizes["cols"]),
)


# -- counts ----------------------------------------------------------------------------------------------------------


def counts(a: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return numpy.bincount(a, minlength=sizes["bins"])


def uniform(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Every bin equally often."""
    return rng.integers(shape, 0, sizes["bins"] - 1)


def skewed(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Most values in the first few bins: many threads of a warp meet in one."""
    return rng.uniform(shape, 0.0, 1.0) ** 4 * sizes["bins"] // 1


def all_equal(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All threads meet in one bin."""
    return rng.integers((1,), 0, sizes["bins"] - 1).repeat(shape[0])


def runs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Sorted: neighbours are equal, and the last element is in the last bin."""
    values = rng.integers(shape, 0, sizes["bins"] - 1)
    values.sort()
    values[-1:] = sizes["bins"] - 1
    return values


def of_bins(n: int, bins: int) -> Sizes:
    return {"n": n, "bins": bins}


HISTOGRAM = Spec(
    computes="counts[v] = how often v occurs in a",
    operations=Operations("counts[a] += 1", "1 per value: the addition", lambda sizes: sizes["n"]),
    inputs=(Tensor("a", ("n",)),),
    outputs=(Tensor("counts", ("bins",)),),
    sizes={"n": Size(0, 5000), "bins": Size(1, 3000)},
    values=(
        InputKind("uniform", uniform),
        InputKind("skewed", skewed),
        InputKind("all equal", all_equal),
        InputKind("runs", runs),
    ),
    reference=counts,
    near_misses={
        "each value is added in place of 1": lambda a, sizes: counts(a, sizes) * bin_numbers(sizes),
        "the last value is not counted": lambda a, sizes: counts(a[:-1], sizes),
        "the first value is not counted": lambda a, sizes: counts(a[1:], sizes),
        "every value is counted twice": lambda a, sizes: 2 * counts(a, sizes),
        "every value is counted 8 times": lambda a, sizes: RANKS * counts(a, sizes),
        "0 or 1: whether a value occurs": lambda a, sizes: (counts(a, sizes) > 0) * 1,
    },
    tolerance=Exact(),
    # Around a vector, a chunk of bins, the chunks of a cluster (64 bins), a block's step (2048 values); and more bins
    # than the 8 blocks have room for.
    named_sizes=(
        of_bins(0, 1),
        of_bins(0, 257),
        of_bins(1, 1),
        of_bins(2, 1),
        of_bins(3, 2),
        of_bins(4, 300),
        of_bins(5, 8),
        of_bins(7, 9),
        of_bins(33, 63),
        of_bins(255, 64),
        of_bins(257, 65),
        of_bins(1023, 255),
        of_bins(2049, 1000),
        of_bins(4099, 256),
        of_bins(16_387, 5000),
        of_bins(33_001, 97),
        of_bins(2500, 98_304),
        of_bins(2501, 98_305),
        of_bins(2502, 98_306),
        of_bins(2503, 120_011),
    ),
    # Here all values are in one bin; more than a grid that fills the GPU takes in one step; many bins.
    large=(of_bins(300_007, 1), of_bins(4_194_304, 65_536), of_bins(1_000_003, 1_000_003), of_bins(20_000_003, 1000)),
    work=lambda sizes: 1_000_000 + 20 * sizes["n"] + 8 * min(sizes["bins"], 98_304),
)


def bin_numbers(sizes: Sizes) -> ndarray:
    import numpy

    return numpy.arange(sizes["bins"])


# -- the sum ---------------------------------------------------------------------------------------------------------

EXACT = 2**24  # up to here float has all whole numbers


def total_of(x: ndarray, sizes: Sizes) -> ndarray:
    return x.sum().reshape(1)


def whole_numbers(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From 1 to 8, or less for large n, so that no partial sum passes 2^24: every element shows.

    Where n is larger than that, 2^24 ones are strewn over zeros, and the last element is always one of them.
    """
    n = sizes["n"]
    if n <= EXACT:
        return rng.integers(shape, 1, min(8, EXACT // max(1, n)))
    drawn = rng.uniform(shape, 0.0, 0.0)
    drawn[rng.integers((EXACT - 1,), 0, n - 1)] = 1.0
    drawn[-1] = 1.0
    return drawn


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Terms of either sign from about 2^-12 to 2^12."""
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -12, 12)


def one_special(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Normal draws, and somewhere among them inf, -inf, nan or -0."""
    drawn = rng.normal(shape)
    if sizes["n"] > 0:
        place = rng.integers((1,), 0, sizes["n"] - 1)
        drawn[place] = rng.choice((1,), (float("inf"), float("-inf"), float("nan"), -0.0))
    return drawn


# Around a vector of 4, a block's step (1024 elements), what a cluster takes in all (16 384); several clusters; and more
# than the 256 that the solution launches.
SUMS = (*range(6), 7, 31, 33, 255, 257, 1025, 8191, 8193, 16_383, 16_384, 16_385, 16_389, 65_539, 256 * 16_384 + 40_005)

REDUCE = Spec(
    computes="y = sum of x",
    operations=Operations("y = sum of x", "1 per element: the addition", lambda sizes: sizes["n"]),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", (1,), "acc"),),
    sizes={"n": Size(0, 40_000)},
    values=(
        InputKind("offset", normal(mean=4.0)),
        InputKind("whole numbers", whole_numbers, exact=True),
        InputKind("cancelling", cancelling(large_and_small)),
        InputKind("one special", one_special),
    ),
    reference=total_of,
    near_misses={
        "the sum of x^2": lambda x, sizes: total_of(x**2, sizes),
        "the sum of |x|": lambda x, sizes: total_of(abs(x), sizes),
        "the mean, the sum over n": lambda x, sizes: total_of(x, sizes) / sizes["n"],
        "the last element is missing": lambda x, sizes: total_of(x[:-1], sizes),
        "the first element is missing": lambda x, sizes: total_of(x[1:], sizes),
        "the first element alone": lambda x, sizes: total_of(x[:1], sizes),
        "twice the sum": lambda x, sizes: 2 * total_of(x, sizes),
        "8 times the sum: each block of a cluster adds it": lambda x, sizes: RANKS * total_of(x, sizes),
        "32 times the sum: each lane adds it": lambda x, sizes: 32 * total_of(x, sizes),
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["n"], magnitude=lambda x, sizes: total_of(abs(x), sizes)),
    named_sizes=tuple({"n": n} for n in SUMS),
    large=({"n": 4_194_305}, {"n": 40_000_003}),
    work=lambda sizes: 400_000 + 5 * sizes["n"],
    deterministic=False,
)


# -- softmax ---------------------------------------------------------------------------------------------------------


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    return softmax_bound(x, x.max(axis=-1, keepdims=True))


def slopes(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows that rise or fall by 20 from end to end: the maximum and most of the sum are in one block's share."""
    import numpy

    slope = per_row(rng, shape, (20.0, -20.0))
    return rng.normal(shape) + slope * numpy.arange(shape[-1]) / shape[-1]


def torch_softmax(x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.softmax(x, -1, out=y)


SOFTMAX = Spec(
    computes="y = softmax of each row of x, rows of up to 458752 elements",
    operations=Operations(
        "y = exp(x - m) / s, m = maximum of the row, s = sum of exp(x - m)",
        "5 per element: comparison for m, subtraction, exp, addition to s, division",
        lambda sizes: 5 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")),),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 6), "cols": Size(1, 3000)},
    values=(
        InputKind("normal", normal(mean=1.0, std=2.0)),
        InputKind("slopes", slopes),
        InputKind("shifted", shifted),
        InputKind("masked", masked),
        InputKind("poisoned", poisoned(float("nan"), float("inf"), mean=1.0, std=3.0)),
        InputKind("huge", huge),
    ),
    reference=lambda x, sizes: softmax(x),
    # The sums are those of exp(x - max).
    near_misses={
        "powers of 2 in place of e": lambda x, sizes: softmax(x * log(2)),
        "the exponentials are not divided by their sum": lambda x, sizes: softmax(x) * total(x),
        "the exponentials are multiplied by their sum": lambda x, sizes: softmax(x) * total(x) ** 2,
        "x - max in place of its exponential, over the sum": lambda x, sizes: (x - top(x)) / total(x),
        "softmax of -x": lambda x, sizes: softmax(-x),
        "each eighth of a row is a softmax of its own": lambda x, sizes: by_eighths(x),
    },
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude),
    # Around a vector (4), a share of 4 columns per block (32), a share of 1024 (8192); then shares of more than the
    # 8192 that a block loads at a time.
    named_sizes=(
        shape(1, 1),
        shape(1, 2),
        shape(3, 3),
        shape(2, 4),
        shape(3, 7),
        shape(2, 31),
        shape(3, 32),
        shape(2, 33),
        shape(2, 100),
        shape(3, 257),
        shape(5, 1000),
        shape(2, 1023),
        shape(3, 4096),
        shape(2, 8193),
        shape(2, 8200),
        shape(1, 20_011),
        shape(1, 66_003),
        shape(2, 70_000),
    ),
    large=(
        shape(257, 16_384),
        shape(40, 131_075),
        shape(4099, 1031),
        shape(70_007, 40),
        shape(64, 262_144),
        shape(5, 458_751),
        shape(7, 458_752),
    ),
    work=lambda sizes: sizes["rows"] * (1_500_000 + 40 * sizes["cols"]) // 4,
    slice_dim="rows",
    baselines={"torch.softmax": torch_softmax},
)


def by_eighths(x: ndarray) -> ndarray:
    """Each block's share of a row by itself."""
    import numpy

    share = ((x.shape[1] - 1) // RANKS // 4 + 1) * 4
    return numpy.concatenate([softmax(x[:, off : off + share]) for off in range(0, x.shape[1], share)], axis=1)


# Rows of whole vectors, around a share of one chunk per block (32 768 columns), and around what a ring of 14 chunks
# holds of a share. On the small card, one cluster takes all rows, one after the other: 17 rows go round the ring. That
# shape is worth what it costs.
ASYNC = replace(
    SOFTMAX,
    sizes={"rows": Size(1, 6), "cols": Size(4, 3000)},
    named_sizes=(
        shape(1, 4),
        shape(2, 8),
        shape(3, 28),
        shape(3, 32),
        shape(2, 36),
        shape(3, 256),
        shape(5, 1000),
        shape(2, 1024),
        shape(17, 2052),
        shape(3, 4096),
        shape(2, 8196),
        shape(3, 32_772),
        shape(2, 100_004),
    ),
    large=(
        shape(257, 16_384),
        shape(40, 131_076),
        shape(4099, 1032),
        shape(70_007, 40),
        shape(64, 262_144),
        shape(130, 458_748),
        shape(37, 458_752),
    ),
    work=lambda sizes: SOFTMAX.work(sizes) // 2,
)

SPECS: dict[str, Spec] = {
    "cluster_exchange_f32": EXCHANGE,
    "cluster_reduce_f32": REDUCE,
    "cluster_histogram_i32": HISTOGRAM,
    "cluster_softmax_row_f32": SOFTMAX,
    "cluster_softmax_row_async_f32": ASYNC,
}
