"""atomic_add: y[c] = sum over r of a[r, c] * b[r, c], every sum kept in half; any rows >= 0, cols >= 1.

The products are rounded to half and added one by one, in any order: with atomics it differs from call to call. Each of
the rows roundings is off by at most 2^-11 of what the sum has become, so the bound counts rows additions in half. For a
thousand rows it allows an error of half of the sum over |a b|, and beyond that it says next to nothing, because such a
sum means next to nothing: from 2048 on, a half no longer changes when 1 is added.

So the kind of values that decides is that of whole numbers whose sums stay at 2048 or below. No partial sum of these
needs rounding, in any order: they must be exact, and they show a single lost product. Where there are too many rows for
that, a's ones are strewn over zeros.
"""

from __future__ import annotations

from math import isqrt, sqrt
from typing import TYPE_CHECKING

from grader.content.spec import (
    Accumulated,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    doubled,
    normal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy import ndarray

WHOLE = 2048  # up to here half has all whole numbers
DENSE_ROWS = 128  # more, and what is left for a product is too small to tell much
ONES = 600  # of a column, where they are strewn: with factors 1 and 2, their sum stays far below WHOLE


def reference(a: ndarray, b: ndarray, sizes: Sizes) -> ndarray:
    return (a * b).sum(axis=0)


def magnitude(a: ndarray, b: ndarray, sizes: Sizes) -> ndarray:
    return abs(a * b).sum(axis=0)


def whole_a(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From 1 up, as far as the sum of all products allows; for many rows some 600 ones, the last row all ones."""
    rows = max(1, sizes["rows"])
    if rows <= DENSE_ROWS:
        return rng.integers(shape, 1, isqrt(WHOLE // rows))
    drawn = (rng.uniform(shape, 0.0, 1.0) < ONES / rows).astype(float)
    drawn[-1] = 1.0
    return drawn


def whole_b(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    rows = max(1, sizes["rows"])
    return rng.integers(shape, 1, isqrt(WHOLE // rows) if rows <= DENSE_ROWS else 2)


def bounded_offset(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Around 4, or less for many rows: with factors around 1, the sum stays near 4096, far from the end of half."""
    mean = min(4.0, 4096 / max(1, sizes["rows"]))
    return rng.normal(shape, mean=mean, std=mean / 4)


def bounded_large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Factors of either sign from about 2^-4 to 2^4, smaller for many rows: the sums stay in the range of half."""
    scale = min(1.0, 200 / sqrt(max(1, sizes["rows"])))
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -4, 4) * scale


def one_special(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Around 1, and in one element inf, -inf, nan or -0: no other column may notice."""
    drawn = rng.normal(shape, mean=1.0)
    if sizes["rows"] > 0:
        row, col = rng.integers((1,), 0, sizes["rows"] - 1), rng.integers((1,), 0, sizes["cols"] - 1)
        drawn[row, col] = rng.choice((1,), (float("inf"), float("-inf"), float("nan"), -0.0))
    return drawn


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


def torch_mul_sum(a: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    """Two kernels, the second of which adds in float and needs no atomics."""
    import torch

    return lambda: torch.sum(a * b, dim=0, out=y)


def paired(y: ndarray) -> ndarray:
    """The two columns of a pair added up; a last one alone."""
    return y + exchanged(y) * (y.size > 1)


def exchanged(y: ndarray) -> ndarray:
    """The two columns of each pair exchanged; a last one as it is."""
    turned = y.copy()
    whole = y.size // 2 * 2
    turned[0:whole:2], turned[1:whole:2] = y[1:whole:2], y[0:whole:2]
    return turned


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "the last row is missing": lambda a, b, sizes: reference(a[:-1], b[:-1], sizes),
    "the sum of a": lambda a, b, sizes: a.sum(axis=0),
    "the sum of a + b": lambda a, b, sizes: (a + b).sum(axis=0),
    "the sum of a * a": lambda a, b, sizes: reference(a, a, sizes),
    "the last row's product alone: stored, not added": lambda a, b, sizes: (a * b)[-1],
    "twice the sum": lambda a, b, sizes: 2 * reference(a, b, sizes),
    "the first row is missing": lambda a, b, sizes: reference(a[1:], b[1:], sizes),
    "the sum of b": lambda a, b, sizes: b.sum(axis=0),
    "the mean, the sum over rows": lambda a, b, sizes: reference(a, b, sizes) / max(1, len(a)),
    "the sum of the columns' pairs: both halves get the same": lambda a, b, sizes: paired(reference(a, b, sizes)),
    "the halves of a pair exchanged": lambda a, b, sizes: exchanged(reference(a, b, sizes)),
}

SPEC = Spec(
    computes="y = sum over the rows of a * b, added in half",
    operations=Operations(
        "y[c] = sum over the rows of a * b",
        "2 per element of a: a multiplication and an addition",
        lambda sizes: 2 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("a", ("rows", "cols")), Tensor("b", ("rows", "cols"))),
    outputs=(Tensor("y", ("cols",)),),
    sizes={"rows": Size(0, 300), "cols": Size(1, 40)},
    values=(
        InputKind("offset", {"a": normal(mean=1.0, std=0.25), "b": bounded_offset}),
        InputKind("whole numbers", {"a": whole_a, "b": whole_b}, exact=True),
        InputKind("cancelling", {"a": doubled(normal(), axis=0), "b": cancelling(bounded_large_and_small, axis=0)}),
        InputKind("one special", {"a": one_special, "b": normal(mean=1.0, std=0.25)}),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    # The product is rounded once more, before it is added.
    tolerance=Accumulated(terms=lambda sizes: sizes["rows"] + 1, magnitude=magnitude),
    # One column, a pair, an odd one beside pairs; a warp, a block and several blocks of rows and of columns. The kata
    # that needs an even number of columns gets those that are.
    named_sizes=(
        shape(0, 1),
        shape(0, 34),
        shape(1, 1),
        shape(1, 2),
        shape(2, 1),
        shape(2, 3),
        shape(3, 2),
        shape(5, 4),
        shape(7, 5),
        shape(1, 8),
        shape(31, 1),
        shape(33, 2),
        shape(17, 7),
        shape(3, 33),
        shape(2, 64),
        shape(1, 257),
        shape(129, 2),
        shape(257, 1),
        shape(4, 514),
        shape(5, 1030),
        shape(700, 3),
        shape(1031, 2),
        shape(130, 31),
        shape(300, 16),
    ),
    # The first two are tried on a GPU: all products in two sums; many rows and many columns.
    large=(shape(300_007, 2), shape(4099, 4098), shape(1_000_003, 1), shape(3, 4_000_003)),
    work=lambda sizes: 30 * sizes["rows"] * (sizes["cols"] + 2),
    deterministic=False,
    slice_dim="cols",
    baselines={"torch.mul_sum": torch_mul_sum},
)
