"""softmax: y[row, col] = exp(x[row, col]) / sum over j of exp(x[row, j]), any rows, cols >= 1.

torch.softmax says what hard values give: an element of -inf gives 0, a row of only -inf gives nan, and one nan
or +inf makes its whole row nan, and no other row. The answer must not depend on whether exp(x) itself overflows.

SPECS has two variants. The katas without the maximum get x of at most 20 in size, or -inf, or nan. The katas named
fence get the same, and take all of x as one vector.

The bound. With m the row's maximum, e = exp(x - m) and y = e / sum of e: the distance x - m is rounded, and again as it
is scaled for the exponential of base 2; the exponential turns an absolute error of its argument into a relative one, so
e is off by some u (1 + |x - m|), as a share of itself. The sum is off by the mean of these shares, weighted by y, and
rounding its cols terms, all positive, adds g(cols) u. Hence |y| (1 + |x - m| + sum of y |x - m| + g(cols)). Where no
maximum is subtracted, m is 0. What is below the smallest normal number may be flushed to 0, as the fast exponential
does.
"""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

from grader.content.formulas import logsumexp, softmax
from grader.content.rows import huge, masked, not_rescaled, overflowing, poisoned, shifted, softmax_bound, top, total
from grader.content.spec import Accumulated, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, normal

if TYPE_CHECKING:
    from numpy import ndarray


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    return softmax(x)


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    return softmax_bound(x, x.max(axis=-1, keepdims=True))


def magnitude_unshifted(x: ndarray, sizes: Sizes) -> ndarray:
    return softmax_bound(x, 0.0)


def rising(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Sorted: every element is a new maximum, and the earlier sum must be rescaled."""
    import numpy

    return numpy.sort(rng.normal(shape, std=4.0))


def limited(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From -20 to 20, so that exp(x) neither overflows nor vanishes, nor does a sum of them."""
    return rng.uniform(shape, -20.0, 20.0)


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


# What is computed in place of it by a usual mistake. The sums are those of exp(x - max).
NEAR_MISSES = {
    "powers of 2 in place of e": lambda x, sizes: softmax(x * log(2)),
    "powers of 2 in the sum, and powers of e over it": lambda x, sizes: softmax(x) * total(x) / total(x * log(2)),
    "powers of e in the sum, and powers of 2 over it": lambda x, sizes: (
        softmax(x * log(2)) * total(x * log(2)) / total(x)
    ),
    "the exponentials are not divided by their sum": lambda x, sizes: softmax(x) * total(x),
    "the exponentials are multiplied by their sum": lambda x, sizes: softmax(x) * total(x) ** 2,
    "x - max in place of its exponential, over the sum": lambda x, sizes: (x - top(x)) / total(x),
    "x - max in place of its exponential, times the sum": lambda x, sizes: (x - top(x)) * total(x),
    "softmax of -x": lambda x, sizes: softmax(-x),
    "the factor log2(e) twice": lambda x, sizes: softmax(x / log(2)),
    "the logarithm of the softmax": lambda x, sizes: x - logsumexp(x)[..., None],
    "the sum begins at 1, not at 0": lambda x, sizes: softmax(x) * total(x) / (total(x) + 1),
    "the exponentials over the root of their sum": lambda x, sizes: softmax(x) * total(x) ** 0.5,
    "the exponentials over their mean, not their sum": lambda x, sizes: softmax(x) * x.shape[-1],
}
# Those of rows: of all of x as one vector some would be the same.
NEAR_MISSES_OF_ROWS = {
    **NEAR_MISSES,
    "softmax of the columns, not of the rows": lambda x, sizes: softmax(x, axis=0),
    "no maximum is subtracted, and the exponentials overflow": overflowing,
    "the sum is not rescaled when the maximum rises, in threads that take every 32nd column": not_rescaled(32),
    "the sum is not rescaled when the maximum rises, in threads that take every 256th column": not_rescaled(256),
    "the sum is not rescaled when the maximum rises, in threads that take 4 columns of 1024": not_rescaled(256, 4),
    "the sum is not rescaled when the maximum rises, in the order of the columns": not_rescaled(1),
}

SPEC = Spec(
    computes="y = softmax of each row of x",
    operations=Operations(
        "y = exp(x - m) / s, m = maximum of the row, s = sum of exp(x - m)",
        "5 per element: comparison for m, subtraction, exp, addition to s, division",
        lambda sizes: 5 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")),),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 24), "cols": Size(1, 3000)},
    values=(
        InputKind("normal", normal(mean=1.0, std=2.0)),
        InputKind("shifted", shifted),
        InputKind("masked", masked),
        InputKind("poisoned", poisoned(float("nan"), float("inf"))),
        InputKind("rising", rising),
        InputKind("huge", huge),
    ),
    reference=reference,
    near_misses=NEAR_MISSES_OF_ROWS,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude),
    # Around every vector (2, 4, 8), a warp (32), a block (256), what a warp holds in registers (1024 elements) and what
    # the largest block holds (16384); rows that are 16-byte aligned, 4-byte aligned, and not at all.
    named_sizes=(
        shape(1, 1),
        shape(1, 2),
        shape(3, 1),
        shape(2, 3),
        shape(3, 4),
        shape(4, 7),
        shape(5, 8),
        shape(7, 16),
        shape(3, 31),
        shape(2, 32),
        shape(5, 33),
        shape(9, 100),
        shape(3, 255),
        shape(2, 256),
        shape(5, 257),
        shape(2, 1000),
        shape(3, 1022),
        shape(2, 1024),
        shape(3, 1025),
        shape(2, 1032),
        shape(4, 2053),
        shape(2, 4100),
        shape(1, 16_384),
        shape(1, 17_009),
        shape(2, 16_401),
    ),
    large=(
        shape(4099, 1031),
        shape(257, 16_384),
        shape(300_007, 40),
        shape(1030, 8200),
        shape(3, 1_000_003),
        shape(1, 20_000_000),
    ),
    work=lambda sizes: sizes["rows"] * (15_000 + 60 * sizes["cols"]),
    slice_dim="rows",
)

# No maximum is subtracted, so x must stay where exp(x) does.
UNSHIFTED = replace(
    SPEC,
    operations=Operations(
        "y = exp(x) / s, s = sum of exp(x)",
        "3 per element: exp, addition to s, division",
        lambda sizes: 3 * sizes["rows"] * sizes["cols"],
    ),
    values=(
        InputKind("normal", normal(mean=1.0, std=2.0)),
        InputKind("limited", limited),
        InputKind("masked", masked),
        InputKind("poisoned", poisoned(float("nan"))),
    ),
    near_misses={words: miss for words, miss in NEAR_MISSES_OF_ROWS.items() if miss is not overflowing},
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude_unshifted),
)

# All of x as one vector, spread over the grid.
WHOLE = replace(
    UNSHIFTED,
    computes="y = softmax of all of x",
    operations=Operations(
        "y = exp(x) / s, s = sum of exp(x)", "3 per element: exp, addition to s, division", lambda sizes: 3 * sizes["n"]
    ),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    named_sizes=tuple(
        {"n": n}
        for n in (
            *range(7),
            31,
            32,
            33,
            127,
            255,
            256,
            257,
            511,
            1023,
            1024,
            1025,
            1027,
            2049,
            3001,
            4099,
            9001,
            70_003,
            270_001,
        )
    ),
    # The last ones have more blocks than fit on any GPU.
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 25_000 + 100 * sizes["n"],
    near_misses=NEAR_MISSES,
    slice_dim=None,
)

SPECS: dict[str, Spec] = {
    "softmax_f32": UNSHIFTED,
    "softmax_f32x4": UNSHIFTED,
    "softmax_f32_fence": WHOLE,
    "softmax_f32x4_fence": WHOLE,
}
