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
from typing import TYPE_CHECKING

from grader.content.formulas import softmax
from grader.content.rows import (
    MISSES_OF_ROWS,
    MISSES_OF_SOFTMAX,
    huge,
    masked,
    overflowing,
    poisoned,
    shifted,
    softmax_bound,
)
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
    near_misses=MISSES_OF_ROWS,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude),
    # Around every vector (2, 4, 8), a warp (32), a block (256), what a warp holds in registers (1024 elements) and what
    # the largest block holds (16384), with whole vectors and with single elements behind it; rows that are 16-byte
    # aligned, 4-byte aligned, and not at all.
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
        shape(1, 17_008),
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
    near_misses={words: miss for words, miss in MISSES_OF_ROWS.items() if miss is not overflowing},
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
    near_misses=MISSES_OF_SOFTMAX,
    slice_dim=None,
)

SPECS: dict[str, Spec] = {
    "softmax_f32": UNSHIFTED,
    "softmax_f32x4": UNSHIFTED,
    "softmax_f32_fence": WHOLE,
    "softmax_f32x4_fence": WHOLE,
}
