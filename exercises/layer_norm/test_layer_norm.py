"""layer_norm: y = (x - mean) / sqrt(variance + eps) * weight + bias, each row by its own mean, 1 <= cols <= 16384.

The variance is the biased one, the mean of the squared distances from the mean over cols elements, and eps stands
inside the root. torch's layer_norm says what hard values give: a nan or an infinity makes its whole row nan, and no
other row. A row whose mean is large compared with its spread must be right too: a variance that is the difference of
two large sums is not.

layer_norm_*_f16: all sums of 16384 elements of x stay below 65504. A chain of thousands of additions in half has no
correct digit left, so it is wrong. A thread of a block of 256 may add its share of a row one by one. Then a tree of
some 10 steps combines the threads.

The bound. Let r = 1 / sqrt(variance + eps). Rounding the sum of a row puts the mean off by at most g(cols) u mean|x|,
and with it every distance x - mean, which is rounded once more. The squared distances are positive, so the variance is
off by g(cols) u of itself (an error d of the mean only adds d^2), and r by half of that share. Hence, for all of y,
g(cols) u (|weight| r (mean|x| + |x - mean|) + |bias|). A row whose mean is large beside its spread is allowed its
mean|x|, but not the mean|x|^2 that a variance found as a difference of two large sums would need.
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
    cancelling,
    normal,
)

if TYPE_CHECKING:
    from numpy import ndarray

EPS = 1e-5


def centred(x: ndarray) -> tuple[ndarray, ndarray]:
    """Each row's distances from its mean, and its 1 / sqrt(variance + eps)."""
    distance = x - x.mean(axis=1, keepdims=True)
    return distance, ((distance**2).mean(axis=1, keepdims=True) + EPS) ** -0.5


def reference(x: ndarray, weight: ndarray, bias: ndarray, sizes: Sizes) -> ndarray:
    distance, scale = centred(x)
    return distance * scale * weight + bias


def magnitude(x: ndarray, weight: ndarray, bias: ndarray, sizes: Sizes) -> ndarray:
    distance, scale = centred(x)
    return abs(weight) * scale * (abs(x).mean(axis=1, keepdims=True) + abs(distance)) + abs(bias)


def offset(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows far from 0 relative to their spread: their squares agree in all digits that a float has, and more."""
    return rng.normal(shape) + rng.choice((shape[0], 1), (30_000.0, -30_000.0, 1000.0))


def scales(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of very different spread: eps dominates the smallest; half cannot hold the squares of the largest."""
    return rng.normal(shape, mean=0.5) * rng.choice((shape[0], 1), (1.0e-3, 1.0e-2, 1.0, 30.0, 1000.0))


def poisoned(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """One nan or infinity in some rows, anywhere; of the other rows some are all equal."""
    import numpy

    place = numpy.floor(rng.uniform((shape[0], 1), 0.0, 1.0) * shape[1])
    plain = rng.normal(shape) * rng.choice((shape[0], 1), (0.0, 1.0, 1.0)) + 2.0
    poison = rng.choice((shape[0], 1), (float("nan"), float("inf"), float("-inf"), 2.0, 2.0))
    return numpy.where(numpy.arange(shape[1]) != place, plain, poison)


def values(**x: Fill) -> tuple[InputKind, ...]:
    """Named ways to fill x. The weights are near 1, the biases near 0, and all are different."""
    columns = {"weight": normal(mean=1.0, std=0.5), "bias": normal()}
    return tuple(InputKind(name, {"x": fill, **columns}) for name, fill in x.items())


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


def normed(
    x: ndarray, weight: ndarray, bias: ndarray, *, less: int = 0, inside: float = EPS, outside: float = 0.0
) -> ndarray:
    """A norm whose variance is a sum over cols - ``less``, with an eps ``inside`` the root and one ``outside``."""
    distance = x - x.mean(axis=1, keepdims=True)
    variance = (distance**2).sum(axis=1, keepdims=True) / (x.shape[1] - less)
    return distance / ((variance + inside) ** 0.5 + outside) * weight + bias


def by_row(columns: ndarray, x: ndarray) -> ndarray:
    """The element of each row's number, in place of each column's; they repeat."""
    import numpy

    return numpy.resize(columns, x.shape[0])[:, None]


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "without eps": lambda x, weight, bias, sizes: normed(x, weight, bias, inside=0.0),
    "eps outside of the root": lambda x, weight, bias, sizes: normed(x, weight, bias, inside=0.0, outside=EPS),
    "eps is added to the sum, before it is divided by cols": lambda x, weight, bias, sizes: normed(
        x, weight, bias, inside=EPS / x.shape[1]
    ),
    "the bias of the row's number": lambda x, weight, bias, sizes: normed(x, weight, by_row(bias, x)),
    "the weight of the row's number": lambda x, weight, bias, sizes: normed(x, by_row(weight, x), bias),
    "the variance is over cols - 1": lambda x, weight, bias, sizes: normed(x, weight, bias, less=1),
    "the mean is not subtracted from x": lambda x, weight, bias, sizes: x * centred(x)[1] * weight + bias,
    "the mean of x^2 in place of the variance": lambda x, weight, bias, sizes: (
        centred(x)[0] * ((x**2).mean(axis=1, keepdims=True) + EPS) ** -0.5 * weight + bias
    ),
    "rms_norm: no mean is subtracted": lambda x, weight, bias, sizes: (
        x * ((x**2).mean(axis=1, keepdims=True) + EPS) ** -0.5 * weight + bias
    ),
    "divided by variance + eps, not by its root": lambda x, weight, bias, sizes: (
        centred(x)[0] * centred(x)[1] ** 2 * weight + bias
    ),
    "multiplied by sqrt(variance + eps)": lambda x, weight, bias, sizes: centred(x)[0] / centred(x)[1] * weight + bias,
    "the variance is not divided by cols": lambda x, weight, bias, sizes: normed(
        x, weight, bias, less=sizes["cols"] - 1
    ),
    "without weight": lambda x, weight, bias, sizes: centred(x)[0] * centred(x)[1] + bias,
    "without bias": lambda x, weight, bias, sizes: centred(x)[0] * centred(x)[1] * weight,
    "without weight and bias": lambda x, weight, bias, sizes: centred(x)[0] * centred(x)[1],
    "weight and bias swapped": lambda x, weight, bias, sizes: centred(x)[0] * centred(x)[1] * bias + weight,
    "(y + bias) * weight": lambda x, weight, bias, sizes: (centred(x)[0] * centred(x)[1] + bias) * weight,
    "1 + weight in place of weight": lambda x, weight, bias, sizes: reference(x, 1 + weight, bias, sizes),
    "the bias is subtracted": lambda x, weight, bias, sizes: reference(x, weight, -bias, sizes),
    "mean and variance are those of the columns": lambda x, weight, bias, sizes: (
        (x - x.mean(axis=0)) * (x.var(axis=0) + EPS) ** -0.5 * weight + bias
    ),
    "mean and variance are those of all rows": lambda x, weight, bias, sizes: (
        (x - x.mean()) * (x.var() + EPS) ** -0.5 * weight + bias
    ),
    "the mean is added to x": lambda x, weight, bias, sizes: (2 * x - centred(x)[0]) * centred(x)[1] * weight + bias,
    "the distances are divided by their mean size, not by the root": lambda x, weight, bias, sizes: (
        centred(x)[0] / (abs(centred(x)[0]).mean(axis=1, keepdims=True) + EPS) * weight + bias
    ),
    "the square of the mean alone under the root": lambda x, weight, bias, sizes: (
        centred(x)[0] * (x.mean(axis=1, keepdims=True) ** 2 + EPS) ** -0.5 * weight + bias
    ),
}

SPEC = Spec(
    computes="y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row",
    operations=Operations(
        "d = x - mean, y = d * r * weight + bias, mean = sum of x / cols, r = 1 / sqrt(sum of d * d / cols + eps)",
        "7 per element: sum of x, d, d * d and its sum, times r, times weight, plus bias",
        lambda sizes: 7 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")), Tensor("weight", ("cols",)), Tensor("bias", ("cols",))),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 24), "cols": Size(1, 3000)},
    values=values(
        offset=offset,
        small=normal(mean=0.005, std=0.01),  # the variance is some 1e-4: eps is a tenth of that
        normal=normal(mean=0.5),
        scales=scales,
        poisoned=poisoned,
        balanced=cancelling(normal(mean=1.0)),  # a mean near 0 of elements near 1 and -1
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
    work=lambda sizes: sizes["rows"] * (15_000 + 80 * sizes["cols"]),
    slice_dim="rows",
)

IN_HALF = replace(
    SPEC,
    values=values(
        normal=normal(mean=0.5),
        wide=normal(std=1.5),
        narrow=normal(mean=0.25, std=0.25),
        small=normal(std=0.006),  # the variance is some 4e-5: eps is a quarter of that
        balanced=cancelling(normal(mean=1.0, std=0.5)),
    ),
    tolerance=Accumulated(terms=lambda sizes: 10 + sizes["cols"] // 256, magnitude=magnitude),
)

SPECS: dict[str, Spec] = {
    "layer_norm_f16_f16": IN_HALF,
    "layer_norm_f16x2_f16": IN_HALF,
    "layer_norm_f16x8_f16": IN_HALF,
    "layer_norm_f16x8_pack_f16": IN_HALF,
}
