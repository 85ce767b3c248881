"""rms_norm: y[row, col] = x[row, col] / sqrt(mean over j of x[row, j]^2 + eps) * weight[col], 1 <= cols <= 16384.

The mean is over cols elements, eps stands inside the root. torch's rms_norm says what hard values give: a nan makes its
whole row nan, an infinity makes itself nan and the rest of its row 0, and no other row.

rms_norm_*_f16: the sum of squares of 16384 elements of x stays below 65504. A chain of thousands of additions in half
has no correct digit left, so it is wrong. A thread of a block of 256 may add its share of a row one by one. Then a tree
of some 10 steps combines the threads.

The bound. The squares are positive, so rounding their sum of cols terms is worth at most g(cols) u of it, and half of
that after the root; the root and two or three products add a few u more. All of this is a share of |y|.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.spec import (
    Accumulated,
    Fill,
    InputKind,
    Operations,
    Parameter,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    normal,
)

if TYPE_CHECKING:
    from numpy import ndarray

EPS = 1e-5


def reference(x: ndarray, weight: ndarray, sizes: Sizes) -> ndarray:
    return x * ((x**2).mean(axis=1, keepdims=True) + EPS) ** -0.5 * weight


def magnitude(x: ndarray, weight: ndarray, sizes: Sizes) -> ndarray:
    return abs(reference(x, weight, sizes))


def scales(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of very different size: eps dominates the smallest; half cannot hold the squares of the largest."""
    return rng.normal(shape) * rng.choice((shape[0], 1), (1.0e-3, 1.0e-2, 1.0, 30.0, 1000.0))


def outliers(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """One element per row, anywhere in it, is most of the mean."""
    import numpy

    place = numpy.floor(rng.uniform((shape[0], 1), 0.0, 1.0) * shape[1])
    plain = rng.normal(shape, mean=0.5)
    return numpy.where(numpy.arange(shape[1]) != place, plain, plain * 100 + 500)


def poisoned(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """One nan or infinity in some rows, anywhere; of the other rows some are all 0."""
    import numpy

    place = numpy.floor(rng.uniform((shape[0], 1), 0.0, 1.0) * shape[1])
    plain = rng.normal(shape) * rng.choice((shape[0], 1), (0.0, 1.0, 1.0))
    poison = rng.choice((shape[0], 1), (float("nan"), float("inf"), float("-inf"), 1.0, 2.0))
    return numpy.where(numpy.arange(shape[1]) != place, plain, poison)


def values(**x: Fill) -> tuple[InputKind, ...]:
    """Named ways to fill x. The weights are near 1 and all different."""
    return tuple(InputKind(name, {"x": fill, "weight": normal(mean=1.0, std=0.5)}) for name, fill in x.items())


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


def mean_square(x: ndarray) -> ndarray:
    return (x**2).mean(axis=1, keepdims=True)


def by_row(columns: ndarray, x: ndarray) -> ndarray:
    """The element of each row's number, in place of each column's; they repeat."""
    import numpy

    return numpy.resize(columns, x.shape[0])[:, None]


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "without eps": lambda x, weight, sizes: x * mean_square(x) ** -0.5 * weight,
    "eps is added to the root": lambda x, weight, sizes: x / (mean_square(x) ** 0.5 + EPS) * weight,
    "eps is added to 1 / root": lambda x, weight, sizes: x * (mean_square(x) ** -0.5 + EPS) * weight,
    "eps is added to the sum, before it is divided by cols": lambda x, weight, sizes: (
        x * (mean_square(x) + EPS / sizes["cols"]) ** -0.5 * weight
    ),
    "the weight of the row's number": lambda x, weight, sizes: reference(x, 0 * weight + 1, sizes) * by_row(weight, x),
    "the sum of x^2 in place of the mean": lambda x, weight, sizes: (
        x * (mean_square(x) * sizes["cols"] + EPS) ** -0.5 * weight
    ),
    "the mean is over cols - 1": lambda x, weight, sizes: (
        x * (mean_square(x) * sizes["cols"] / (sizes["cols"] - 1) + EPS) ** -0.5 * weight
    ),
    "the mean is over 256 elements, the block's threads": lambda x, weight, sizes: (
        x * (mean_square(x) * sizes["cols"] / 256 + EPS) ** -0.5 * weight
    ),
    "multiplied by the root": lambda x, weight, sizes: x * (mean_square(x) + EPS) ** 0.5 * weight,
    "divided by mean + eps, not by its root": lambda x, weight, sizes: x / (mean_square(x) + EPS) * weight,
    "without weight": lambda x, weight, sizes: x * (mean_square(x) + EPS) ** -0.5,
    "the variance in place of the mean of x^2": lambda x, weight, sizes: (
        x * (x.var(axis=1, keepdims=True) + EPS) ** -0.5 * weight
    ),
    "the mean of |x|": lambda x, weight, sizes: x / (abs(x).mean(axis=1, keepdims=True) + EPS) * weight,
    "1 + weight in place of weight": lambda x, weight, sizes: reference(x, 1 + weight, sizes),
    "layer_norm: the mean is subtracted": lambda x, weight, sizes: (
        (x - x.mean(axis=1, keepdims=True)) * (x.var(axis=1, keepdims=True) + EPS) ** -0.5 * weight
    ),
    "the norm of x * weight": lambda x, weight, sizes: reference(x * weight, 0 * weight + 1, sizes),
    "the mean of x^2 of the columns": lambda x, weight, sizes: x * ((x**2).mean(axis=0) + EPS) ** -0.5 * weight,
    "the mean of x^2 of all rows": lambda x, weight, sizes: x * ((x**2).mean() + EPS) ** -0.5 * weight,
    "the square of the mean in place of the mean of squares": lambda x, weight, sizes: (
        x * (x.mean(axis=1, keepdims=True) ** 2 + EPS) ** -0.5 * weight
    ),
    "the mean is over 32 elements, a warp's lanes": lambda x, weight, sizes: (
        x * (mean_square(x) * sizes["cols"] / 32 + EPS) ** -0.5 * weight
    ),
    "the mean is over 1024 elements": lambda x, weight, sizes: (
        x * (mean_square(x) * sizes["cols"] / 1024 + EPS) ** -0.5 * weight
    ),
}

SPEC = Spec(
    computes="y = x / sqrt(mean of x^2 + eps) * weight, row by row",
    operations=Operations(
        "y = x * r * weight, r = 1 / sqrt(sum of x * x / cols + eps)",
        "4 per element: x * x and its sum, times r, times weight",
        lambda sizes: 4 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")), Tensor("weight", ("cols",))),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 24), "cols": Size(1, 3000)},
    values=values(
        small=normal(mean=0.005, std=0.01),  # x^2 is some 1e-4: eps is a tenth of that
        normal=normal(mean=0.5),
        scales=scales,
        outliers=outliers,
        poisoned=poisoned,
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["cols"] + 8, magnitude=magnitude),
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
        shape(1, 16_383),
        shape(2, 16_384),
    ),
    large=(shape(4099, 1031), shape(257, 16_384), shape(300_007, 40), shape(1030, 8200)),
    parameters=(Parameter("eps", "float", EPS),),
    work=lambda sizes: sizes["rows"] * (15_000 + 60 * sizes["cols"]),
    slice_dim="rows",
)

IN_HALF = replace(
    SPEC,
    values=values(
        normal=normal(mean=0.5),
        wide=normal(std=1.5),
        narrow=normal(mean=0.25, std=0.125),
        small=normal(mean=0.006, std=0.002),  # x^2 is some 4e-5: eps is a quarter of that
    ),
    tolerance=Accumulated(terms=lambda sizes: 10 + sizes["cols"] // 256, magnitude=magnitude),
)

SPECS: dict[str, Spec] = {
    "rms_norm_f16_f16": IN_HALF,
    "rms_norm_f16x2_f16": IN_HALF,
    "rms_norm_f16x8_f16": IN_HALF,
    "rms_norm_f16x8_pack_f16": IN_HALF,
}
