"""softmax_rows: y = softmax of each row of x, for short, middle and long rows; and dx = y * (dy - sum of y * dy).

softmax_warp_f32, softmax_block_*: torch.softmax says what hard values give. An element of -inf gives 0, a row of only
-inf gives nan, and one nan or +inf makes its whole row nan, and no other row. The answer must not depend on whether
exp(x) itself overflows.

softmax_backward_*: the sum is over the row. y is an input, and the kernel does not check it.

SPECS has a variant for each kata: a warp takes up to 1024 columns, shared memory on every card since sm_80 holds 24576
(96 KB), and the others take any number.

The bound of y. With m the row's maximum, e = exp(x - m) and y = e / sum of e: the distance x - m is rounded, and again
as it is scaled for the exponential of base 2; the exponential turns an absolute error of its argument into a relative
one, so e is off by some u (1 + |x - m|), as a share of itself. The sum is off by the mean of these shares, weighted by
y, and rounding its cols terms, all positive, adds g(cols) u. Hence |y| (1 + |x - m| + sum of y |x - m| + g(cols)). A
sum that is rescaled as the maximum rises is off by as much again at most: the steps up to m add up to the distance.
What is below the smallest normal number may be flushed to 0, as the fast exponential does.

The bound of dx. Rounding the sum of cols products is worth g(cols) u times the sum of |y dy|; the difference, the
product and those before add a few u of |y| (|dy| + sum of |y dy|).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.formulas import softmax
from grader.content.rows import MISSES_OF_ROWS, huge, masked, poisoned, shifted, softmax_bound
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
    growth,
    integers,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray


# -- y ---------------------------------------------------------------------------------------------------------------


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    return softmax(x)


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    return softmax_bound(x, x.max(axis=-1, keepdims=True))


def rising(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Sorted: every element is a new maximum, and the earlier sum must be rescaled."""
    import numpy

    return numpy.sort(rng.normal(shape, std=4.0))


def torch_softmax(x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.softmax(x, -1, out=y)


# -- dx --------------------------------------------------------------------------------------------------------------


def gradient(y: ndarray, dy: ndarray, sizes: Sizes) -> ndarray:
    return y * (dy - (y * dy).sum(axis=-1, keepdims=True))


def gradient_magnitude(y: ndarray, dy: ndarray, sizes: Sizes) -> ndarray:
    terms = abs(y * dy).sum(axis=-1, keepdims=True)
    return abs(y) * (4 * abs(dy) + (4 + growth(sizes["cols"])) * terms)


def shares(std: float) -> Fill:
    """Rows that add up to 1, as softmax makes them: the larger std, the more of a row a few of its elements take."""
    return lambda rng, shape, sizes: softmax(rng.normal(shape, std=std))


def torch_softmax_backward(y: torch.Tensor, dy: torch.Tensor, dx: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.ops.aten._softmax_backward_data.out(dy, y, -1, torch.float32, grad_input=dx)


# -- specs -----------------------------------------------------------------------------------------------------------


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


# Around every vector, a warp, what each kernel for short rows holds (128, 256, 512, 1024), the warps of a block.
SHORT = (
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
    shape(3, 127),
    shape(6, 128),
    shape(3, 132),
    shape(3, 255),
    shape(2, 256),
    shape(5, 257),
    shape(2, 512),
    shape(2, 516),
    shape(3, 1000),
    shape(5, 1022),
    shape(2, 1023),
    shape(9, 1024),
)


SPEC = Spec(
    computes="y = softmax of each row of x, rows of up to 1024 elements",
    operations=Operations(
        "y = exp(x - m) / s, m = maximum of the row, s = sum of exp(x - m)",
        "5 per element: comparison for m, subtraction, exp, addition to s, division",
        lambda sizes: 5 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")),),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 24), "cols": Size(1, 1024)},
    values=(
        InputKind("normal", normal(mean=1.0, std=2.0)),
        InputKind("shifted", shifted),
        InputKind("masked", masked),
        InputKind("poisoned", poisoned(float("nan"), float("inf"), mean=1.0, std=3.0)),
        InputKind("rising", rising),
        InputKind("huge", huge),
    ),
    reference=reference,
    near_misses=MISSES_OF_ROWS,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude),
    named_sizes=SHORT,
    large=(shape(4099, 1023), shape(300_007, 40), shape(70_001, 512)),
    work=lambda sizes: sizes["rows"] * (15_000 + 40 * sizes["cols"]),
    slice_dim="rows",
    baselines={"torch.softmax": torch_softmax},
)

# Around a batch of a block: 512 columns of one warp, 16 384 of the largest block; and the most that must fit.
MIDDLE = replace(
    SPEC,
    computes="y = softmax of each row of x, rows of up to 24576 elements",
    sizes={"rows": Size(1, 24), "cols": Size(1, 3000)},
    named_sizes=(
        *SHORT[:13:2],
        shape(3, 255),
        shape(2, 256),
        shape(5, 511),
        shape(2, 513),
        shape(3, 1020),
        shape(3, 1023),
        shape(2, 1025),
        shape(2, 1032),
        shape(4, 2053),
        shape(2, 4100),
        shape(1, 16_384),
        shape(1, 16_388),
        shape(1, 20_011),
        shape(2, 24_575),
        shape(2, 24_576),
    ),
    large=(shape(4099, 1031), shape(1030, 8200), shape(257, 16_384), shape(300_007, 40), shape(133, 24_576)),
)

# The last ones are longer than the shared memory of every card up to sm_90, 227 KB. One of 65 537 columns has one
# more than whole batches of the largest block.
LONG = replace(
    MIDDLE,
    computes="y = softmax of each row of x, rows of any length",
    named_sizes=(
        *MIDDLE.named_sizes[:16],
        shape(2, 16_401),
        shape(1, 25_000),
        shape(1, 58_049),
        shape(1, 60_000),
        shape(1, 65_537),
        shape(2, 70_000),
    ),
    small_shared=64 << 10,  # rows of 16 400 elements are too long for it already
    large=(
        shape(257, 16_384),
        shape(40, 131_075),
        shape(4099, 1031),
        shape(300_007, 40),
        shape(3, 1_000_003),
        shape(1, 20_000_000),
    ),
)


def in_sum(terms: ndarray, width: int) -> ndarray:
    """The first of each vector, where a row is whole vectors; else all."""
    return terms[:, ::width] if terms.shape[1] % width == 0 else terms


# What is computed in place of it by a usual mistake.
NEAR_MISSES_GRADIENT = {
    "y * dy, without the sum": lambda y, dy, sizes: y * dy,
    "the sum of dy in place of that of y * dy": lambda y, dy, sizes: y * (dy - dy.sum(axis=-1, keepdims=True)),
    "the mean of y * dy in place of the sum": lambda y, dy, sizes: y * (dy - (y * dy).mean(axis=-1, keepdims=True)),
    "without the factor y": lambda y, dy, sizes: dy - (y * dy).sum(axis=-1, keepdims=True),
    "the sum is added": lambda y, dy, sizes: y * (dy + (y * dy).sum(axis=-1, keepdims=True)),
    "the sum without the factor y": lambda y, dy, sizes: y * dy - (y * dy).sum(axis=-1, keepdims=True),
    "the sum has the first of each 4 columns alone, in rows of whole vectors of 4": lambda y, dy, sizes: (
        y * (dy - in_sum(y * dy, 4).sum(axis=-1, keepdims=True))
    ),
    "the sum has the first of each 2 columns alone, in rows of whole vectors of 2": lambda y, dy, sizes: (
        y * (dy - in_sum(y * dy, 2).sum(axis=-1, keepdims=True))
    ),
    "y (1 - y) dy: the diagonal of the derivative alone": lambda y, dy, sizes: y * (1 - y) * dy,
    "dy and y exchanged": lambda y, dy, sizes: dy * (y - (y * dy).sum(axis=-1, keepdims=True)),
    "the gradient of the softmax's logarithm": lambda y, dy, sizes: dy - y * dy.sum(axis=-1, keepdims=True),
    "the sum of y * y in place of that of y * dy": lambda y, dy, sizes: y * (dy - (y * y).sum(axis=-1, keepdims=True)),
    "with the opposite sign": lambda y, dy, sizes: -gradient(y, dy, sizes),
    "the sum down the columns": lambda y, dy, sizes: y * (dy - (y * dy).sum(axis=0)),
}

GRADIENT = replace(
    LONG,
    computes="dx = y * (dy - sum of y * dy), row by row",
    operations=Operations(
        "dx = y * (dy - s), s = sum of y * dy over the row",
        "4 per element: a multiplication and an addition for s, subtraction, multiplication",
        lambda sizes: 4 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("y", ("rows", "cols")), Tensor("dy", ("rows", "cols"))),
    outputs=(Tensor("dx", ("rows", "cols")),),
    values=(
        InputKind("normal", {"y": shares(2.0), "dy": normal(mean=1.0, std=2.0)}),
        InputKind("whole numbers", {"y": integers(0, 1), "dy": integers(-2, 3)}, exact=True),
        InputKind("peaked", {"y": shares(10.0), "dy": normal(mean=-1.0)}),
        InputKind("poisoned", {"y": shares(2.0), "dy": poisoned(float("nan"), float("inf"), mean=1.0, std=2.0)}),
    ),
    reference=gradient,
    near_misses=NEAR_MISSES_GRADIENT,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=gradient_magnitude),
    named_sizes=(
        *SHORT[:13:2],
        shape(3, 255),
        shape(2, 256),
        shape(5, 511),
        shape(2, 513),
        shape(3, 1020),
        shape(2, 1025),
        shape(4, 2053),
        shape(2, 4100),
        shape(1, 8195),
        shape(1, 16_384),
        shape(2, 16_388),
        shape(1, 29_041),
        shape(1, 30_011),
        shape(1, 36_002),
        shape(2, 40_000),
    ),
    baselines={"torch._softmax_backward_data": torch_softmax_backward},
)

# A row of 14 600 columns takes two blocks of the largest card, so 400 of them are more than it holds at a time:
# blocks go on to another row. One such shape is worth what it costs.
SPLIT = replace(
    GRADIENT,
    named_sizes=(*GRADIENT.named_sizes[:-1], shape(400, 14_600), GRADIENT.named_sizes[-1]),
    # The shape of 400 rows is for a full card: a small one would go round 200 times, and blocks that wait execute, too.
    work=lambda sizes: GRADIENT.work(sizes) // 32,
)

SPECS: dict[str, Spec] = {
    "softmax_warp_f32": SPEC,
    "softmax_block_smem_f32": MIDDLE,
    "softmax_block_uncached_f32": LONG,
    "softmax_backward_f32": GRADIENT,
    "softmax_backward_split_f32": SPLIT,
}
