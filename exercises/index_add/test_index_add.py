"""index_add: out = base, then out[index[j], :] += source[j, :] for all j in 0..n-1; any n >= 0, rows, dim >= 1.

That is torch's `out = base.clone(); out.index_add_(0, index, source)`. Every value of index lies in 0..rows-1. An index
may come several times, and then all its rows are added; a row that no index names is base's row.

An element of out is a sum of up to n + 1 terms in any order. The bound is that of such a sum in float: it grows with
the base's and the sources' absolute values, added up in the same way. Whole numbers whose sums stay below 2^24 need no
rounding: these must be exact, and they show a single row that was lost or added twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.spec import (
    Accumulated,
    Fill,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    normal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy import ndarray


def reference(base: ndarray, index: ndarray, source: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    total = base.copy()
    if len(index) <= source.shape[1]:
        for row, added in zip(index, source, strict=True):
            total[row] += added
        return total
    for column in range(source.shape[1]):
        total[:, column] += numpy.bincount(index, source[:, column], len(base))
    return total


def magnitude(base: ndarray, index: ndarray, source: ndarray, sizes: Sizes) -> ndarray:
    return reference(abs(base), index, abs(source), sizes)


def uniform(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Every row equally often, in any order, some of them several times."""
    return rng.integers(shape, 0, sizes["rows"] - 1)


def in_order(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Sorted: the same row comes several times in succession."""
    drawn = uniform(rng, shape, sizes)
    drawn.sort()
    return drawn


def all_equal(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All of source is added to one row."""
    return rng.integers((1,), 0, sizes["rows"] - 1).repeat(shape[0])


def last_row(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All of source is added to the last row of out, so that a store too far is past the end of out."""
    return rng.integers(shape, sizes["rows"] - 1, sizes["rows"] - 1)


def whole_numbers(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Up to 1000, or less for large n, so that no partial sum passes 2^24."""
    return rng.integers(shape, 1, min(1000, 2**24 // (sizes["n"] + 1)))


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Terms of either sign from about 2^-12 to 2^12."""
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -12, 12)


def with_index(index: Fill, fill: Fill) -> dict[str, Fill]:
    return {"base": fill, "index": index, "source": fill}


def shape(n: int, rows: int, dim: int) -> Sizes:
    return {"n": n, "rows": rows, "dim": dim}


def torch_index_add(
    base: torch.Tensor, index: torch.Tensor, source: torch.Tensor, out: torch.Tensor
) -> Callable[[], object]:
    def run() -> object:
        out.copy_(base)
        return out.index_add_(0, index, source)

    return run


def stored(base: ndarray, index: ndarray, source: ndarray, sizes: Sizes) -> ndarray:
    total = base.copy()
    total[index] = source
    return total


def added_once(base: ndarray, index: ndarray, source: ndarray, sizes: Sizes) -> ndarray:
    total = base.copy()
    total[index] = base[index] + source
    return total


def numbered(index: ndarray) -> ndarray:
    """0, 1, 2, ..."""
    import numpy

    return numpy.arange(len(index))


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "rows are stored, not added": stored,
    "of equal indices the last alone is added": added_once,
    "without base": lambda base, index, source, sizes: reference(0 * base, index, source, sizes),
    "base itself: nothing is added": lambda base, index, source, sizes: base,
    "subtracted in place of added": lambda base, index, source, sizes: reference(base, index, -source, sizes),
    "base is added twice": lambda base, index, source, sizes: reference(2 * base, index, source, sizes),
    "each row of source is added twice": lambda base, index, source, sizes: reference(base, index, 2 * source, sizes),
    "source's rows in their own order, index is not used": lambda base, index, source, sizes: reference(
        base, numbered(index) % max(1, len(base)), source, sizes
    ),
    "the first of equal indices alone is added": lambda base, index, source, sizes: added_once(
        base, index[::-1], source[::-1], sizes
    ),
}

MANY = Spec(
    computes="out = base, then out[index[j], :] += source[j, :]",
    operations=Operations(
        "out = base, then out[index[j], :] += source[j, :]",
        "1 per element of source: the addition",
        lambda sizes: sizes["n"] * sizes["dim"],
    ),
    inputs=(Tensor("base", ("rows", "dim")), Tensor("index", ("n",), "i64"), Tensor("source", ("n", "dim"))),
    outputs=(Tensor("out", ("rows", "dim")),),
    sizes={"n": Size(0, 200), "rows": Size(1, 60), "dim": Size(1, 300)},
    values=(
        InputKind("uniform", with_index(uniform, normal(mean=1.0))),
        InputKind("last row", with_index(last_row, whole_numbers), exact=True),
        InputKind("all equal", {**with_index(all_equal, cancelling(large_and_small, axis=0)), "base": normal()}),
        InputKind("sorted", with_index(in_order, large_and_small)),
        InputKind("whole numbers", with_index(uniform, whole_numbers), exact=True),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["n"] + 1, magnitude=magnitude),
    # Nothing to add, more rows than indices and fewer; around a warp of indices (32), around the rows of source that a
    # block takes (4 to 1024), the indices that it looks at in one step (32 to 1024) and the columns that it takes (256
    # or 2048). The kata that needs a multiple of 4 gets those that are one.
    named_sizes=(
        shape(0, 1, 1),
        shape(0, 3, 8),
        shape(1, 1, 1),
        shape(1, 1, 4),
        shape(2, 1, 3),
        shape(3, 2, 4),
        shape(1, 5, 8),
        shape(5, 3, 7),
        shape(7, 7, 12),
        shape(9, 1, 33),
        shape(31, 4, 16),
        shape(32, 3, 4),
        shape(33, 5, 8),
        shape(17, 13, 65),
        shape(64, 2, 20),
        shape(65, 6, 4),
        shape(3, 2, 255),
        shape(6, 3, 256),
        shape(5, 2, 257),
        shape(129, 11, 12),
        shape(4, 2, 2048),
        shape(3, 1, 2052),
        shape(300, 50, 2),
        shape(200, 9, 36),
        shape(257, 3, 4),
        shape(1030, 2, 8),
    ),
    large=(shape(100_003, 1000, 64), shape(16, 33, 400_004), shape(1_000_003, 77, 8), shape(3, 100_003, 36)),
    work=lambda sizes: 30 * sizes["n"] * (sizes["dim"] + 32) + 512,
    deterministic=False,
    slice_dim="dim",
    baselines={"torch.index_add": torch_index_add},
)


def work_of_asking(sizes: Sizes) -> int:
    """A block of 256 threads for each row and 2048 columns, however few there are, asks for 32 indices at a time."""
    blocks = sizes["dim"] // 2048 + 1
    return 256 * blocks * (sizes["rows"] * (60 + sizes["n"] // 2) + 25 * sizes["n"])


SPECS = {
    "index_add_few_f32": replace(MANY, work=work_of_asking, deterministic=True),
    "index_add_many_f32": MANY,
}
