"""norms_cluster: rms_norm and layer_norm for rows that are too long for one block, 8 <= cols <= 131072.

rms_norm_*: y = x / sqrt(mean of x^2 + eps) * weight, and eps stands inside the root. torch says what hard values give:
a nan makes its whole row nan, an infinity makes itself nan and the rest of its row 0, and no other row.

layer_norm_*: y = (x - mean) / sqrt(variance + eps) * weight + bias, with the biased variance, the mean of the squared
distances from the mean. eps stands inside the root. torch says what hard values give: a nan or an infinity makes its
whole row nan, and no other row. A row whose mean is large compared with its spread must be right too: a variance that
is the difference of two large sums is not.

The bounds are those of rms_norm and layer_norm. Squares are positive, so rounding their sum of cols terms is worth at
most g(cols) u of it, and half of that after the root: a share of |y|. With r = 1 / sqrt(variance + eps), rounding the
sum of a row puts the mean off by at most g(cols) u mean|x|, and with it every distance x - mean, which is rounded once
more. Hence for all of layer_norm's y, g(cols) u (|weight| r (mean|x| + |x - mean|) + |bias|). The merge of two means by
their distance rounds no more than a sum of their elements does.
"""

from __future__ import annotations

from collections.abc import Callable
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
RANKS = 8  # blocks of the solutions' largest cluster


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


def first_eighth(x: ndarray) -> ndarray:
    """The columns of the first block of a cluster of 8."""
    return x[:, : ((x.shape[1] - 1) // RANKS // 8 + 1) * 8]


# -- rms_norm --------------------------------------------------------------------------------------------------------


def mean_square(x: ndarray) -> ndarray:
    return (x**2).mean(axis=1, keepdims=True)


def rms(x: ndarray, weight: ndarray, sizes: Sizes) -> ndarray:
    return x * (mean_square(x) + EPS) ** -0.5 * weight


def scales(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of very different size: eps dominates the smallest; half cannot hold the squares of the largest."""
    return rng.normal(shape, mean=0.5) * rng.choice((shape[0], 1), (1.0e-3, 1.0e-2, 1.0, 30.0, 1000.0))


def outliers(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """One element per row, anywhere in it, is most of the mean: one block of a cluster has it."""
    import numpy

    place = numpy.floor(rng.uniform((shape[0], 1), 0.0, 1.0) * shape[1])
    plain = rng.normal(shape, mean=0.5)
    return numpy.where(numpy.arange(shape[1]) != place, plain, plain * 100 + 500)


def poisoned(mean: float) -> Fill:
    """One nan or infinity in some rows, anywhere; of the other rows some are all equal."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        place = numpy.floor(rng.uniform((shape[0], 1), 0.0, 1.0) * shape[1])
        plain = rng.normal(shape) * rng.choice((shape[0], 1), (0.0, 1.0, 1.0)) + mean
        poison = rng.choice((shape[0], 1), (float("nan"), float("inf"), float("-inf"), mean, mean))
        return numpy.where(numpy.arange(shape[1]) != place, plain, poison)

    return fill


def values(*columns: str, **x: Fill) -> tuple[InputKind, ...]:
    """Named ways to fill x. The weights are near 1, the biases near 0, and all are different."""
    fills = {"weight": normal(mean=1.0, std=0.5), "bias": normal()}
    return tuple(
        InputKind(name, {"x": fill, **{column: fills[column] for column in columns}}) for name, fill in x.items()
    )


RMS = Spec(
    computes="y = x / sqrt(mean of x^2 + eps) * weight, row by row, rows of up to 131072 elements",
    operations=Operations(
        "y = x * r * weight, r = 1 / sqrt(sum of x * x / cols + eps)",
        "4 per element: x * x and its sum, times r, times weight",
        lambda sizes: 4 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")), Tensor("weight", ("cols",))),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 8), "cols": Size(8, 3000)},
    values=values(
        "weight",
        small=normal(mean=0.005, std=0.01),  # x^2 is some 1e-4: eps is a tenth of that
        normal=normal(mean=0.5),
        scales=scales,
        outliers=outliers,
        poisoned=poisoned(0.0),
    ),
    reference=rms,
    near_misses={
        "without eps": lambda x, weight, sizes: x * mean_square(x) ** -0.5 * weight,
        "eps is added to the root": lambda x, weight, sizes: x / (mean_square(x) ** 0.5 + EPS) * weight,
        "the sum of x^2 in place of the mean": lambda x, weight, sizes: (
            x * (mean_square(x) * sizes["cols"] + EPS) ** -0.5 * weight
        ),
        "multiplied by the root": lambda x, weight, sizes: x * (mean_square(x) + EPS) ** 0.5 * weight,
        "divided by mean + eps, not by its root": lambda x, weight, sizes: x / (mean_square(x) + EPS) * weight,
        "without weight": lambda x, weight, sizes: x * (mean_square(x) + EPS) ** -0.5,
        "the sum of x^2 of the row's first eighth": lambda x, weight, sizes: (
            x * ((first_eighth(x) ** 2).sum(axis=1, keepdims=True) / x.shape[1] + EPS) ** -0.5 * weight
        ),
    },
    tolerance=Accumulated(
        terms=lambda sizes: sizes["cols"] + 8,
        magnitude=lambda x, weight, sizes: abs(rms(x, weight, sizes)),
    ),
    # Around a warp's share (1024), and rows for 1, 2, 4 and 8 blocks (16384, 32768, 65536, 131072).
    named_sizes=(
        shape(1, 8),
        shape(3, 16),
        shape(5, 32),
        shape(3, 40),
        shape(9, 104),
        shape(5, 256),
        shape(3, 1016),
        shape(3, 1024),
        shape(2, 1032),
        shape(4, 2056),
        shape(2, 4104),
        shape(1, 16_384),
        shape(5, 16_392),
        shape(1, 32_776),
        shape(2, 65_544),
    ),
    large=(
        shape(4099, 1032),
        shape(257, 16_392),
        shape(300_007, 40),
        shape(1030, 33_008),
        shape(200, 65_536),
        shape(40, 131_064),
        shape(265, 131_072),
    ),
    parameters=(Parameter("eps", "float", EPS),),
    work=lambda sizes: sizes["rows"] * (30_000 + 20 * sizes["cols"]),
    slice_dim="rows",
)


# -- layer_norm ------------------------------------------------------------------------------------------------------


def centred(x: ndarray) -> tuple[ndarray, ndarray]:
    """Each row's distances from its mean, and its 1 / sqrt(variance + eps)."""
    distance = x - x.mean(axis=1, keepdims=True)
    return distance, ((distance**2).mean(axis=1, keepdims=True) + EPS) ** -0.5


def layer(x: ndarray, weight: ndarray, bias: ndarray, sizes: Sizes) -> ndarray:
    distance, scale = centred(x)
    return distance * scale * weight + bias


def layer_magnitude(x: ndarray, weight: ndarray, bias: ndarray, sizes: Sizes) -> ndarray:
    distance, scale = centred(x)
    return abs(weight) * scale * (abs(x).mean(axis=1, keepdims=True) + abs(distance)) + abs(bias)


def offset(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows far from 0 relative to their spread: their squares agree in all digits that a float has, and more."""
    drawn = rng.normal(shape)
    drawn += rng.choice((shape[0], 1), (30_000.0, -30_000.0, 1000.0))
    return drawn


def steps(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Each eighth of a row has a mean of its own: most of the variance is between the blocks' means."""
    import numpy

    step = numpy.arange(shape[1]) * 8 // shape[1]
    return rng.normal(shape) + 4.0 * step


def by_eighths(x: ndarray) -> ndarray:
    """The variance without what the blocks' means contribute: the squared distances from each eighth's own mean."""
    import numpy

    share = ((x.shape[1] - 1) // RANKS // 8 + 1) * 8
    parts = [x[:, off : off + share] for off in range(0, x.shape[1], share)]
    squares = numpy.array([((part - part.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for part in parts]).sum(axis=0)
    return squares[:, None] / x.shape[1]


Moments = tuple["ndarray", "ndarray", "ndarray"]  # counts, means, sums of squared distances
Weights = Callable[["ndarray", "ndarray"], "ndarray"]


def merged_by(part: Weights, apart: Callable[[ndarray, ndarray, ndarray], ndarray]) -> Callable[..., ndarray]:
    """layer_norm by another merge of the moments of threads, warps and blocks, in layer_norm_cluster_f16's order.
    ``part`` makes of both counts the weight of the second mean, ``apart`` of both counts and the distance of the means
    what the squares get in addition."""

    def merge(a: Moments, b: Moments) -> Moments:
        distance = b[1] - a[1]
        return a[0] + b[0], a[1] + distance * part(a[0], b[0]), a[2] + b[2] + apart(a[0], b[0], distance)

    def of_lanes(moments: Moments) -> Moments:
        """32 of the last axis at a time; what is past its end has no elements."""
        import numpy

        count = moments[0].shape[-1]
        ends = [(0, 0)] * (moments[0].ndim - 1) + [(0, -count % 32)]
        lanes = [numpy.pad(each, ends).reshape(*each.shape[:-1], -1, 32) for each in moments]
        while lanes[0].shape[-1] > 1:
            half = lanes[0].shape[-1] // 2
            lanes = [*merge(*(tuple(each[..., some] for each in lanes) for some in (slice(half), slice(half, None))))]
        return lanes[0][..., 0], lanes[1][..., 0], lanes[2][..., 0]

    def of_inputs(x: ndarray, weight: ndarray, bias: ndarray, sizes: Sizes) -> ndarray:
        count, mean, squares = of_lanes(of_lanes(of_threads(x)))  # of blocks
        _, mean, squares = of_lanes((count[..., 0], mean[..., 0], squares[..., 0]))  # of rows
        return (x - mean) * (squares / x.shape[1] + EPS) ** -0.5 * weight + bias

    return of_inputs


def of_threads(x: ndarray) -> Moments:
    """[rows, blocks, threads]: a thread has up to four vectors of 8 columns of its block's share."""
    import numpy

    cols, ranks = x.shape[1], 1
    while ranks < RANKS and ranks * 512 * 32 < cols:
        ranks *= 2
    share = ((cols - 1) // ranks // 8 + 1) * 8
    threads = ((share - 1) // (32 * 32) + 1) * 32
    held = numpy.zeros((len(x), ranks, 4 * threads * 8))
    there = numpy.zeros(held.shape[1:], dtype=bool)
    for rank in range(ranks):
        own = x[:, rank * share : (rank + 1) * share]
        held[:, rank, : own.shape[1]], there[rank, : own.shape[1]] = own, True
    turned = held.reshape(len(x), ranks, 4, threads, 8), there.reshape(1, ranks, 4, threads, 8)
    count = turned[1].sum(axis=(2, 4)) + 0.0 * turned[0][:, :, 0, :, 0]
    mean = turned[0].sum(axis=(2, 4)) / count.clip(min=1)
    distance = numpy.where(turned[1], turned[0] - mean[:, :, None, :, None], 0.0)
    return count, mean, (distance**2).sum(axis=(2, 4))


def share_of_second(a: ndarray, b: ndarray) -> ndarray:
    return b / (a + b).clip(min=1)


def of_both(a: ndarray, b: ndarray, distance: ndarray) -> ndarray:
    return distance**2 * a * b / (a + b).clip(min=1)


# By the moments that are merged, of which either may have no elements.
MERGED = {
    "moments are merged as if both had equally many elements": merged_by(
        lambda a, b: 0.5 + 0 * a, lambda a, b, distance: distance**2 * (a + b) / 4
    ),
    "the merged mean is the mean of both means: they are not weighted by their counts": merged_by(
        lambda a, b: 0.5 + 0 * a, of_both
    ),
    "the merged mean has each mean with the count of the other": merged_by(
        lambda a, b: a / (a + b).clip(min=1), of_both
    ),
    "the merged squares lack the distance of the means": merged_by(
        share_of_second, lambda a, b, distance: 0 * distance
    ),
    "the merged squares have the distance of the means, not its square": merged_by(
        share_of_second, lambda a, b, distance: distance * a * b / (a + b).clip(min=1)
    ),
    "the merged squares have the squared distance times both counts, not over their sum": merged_by(
        share_of_second, lambda a, b, distance: distance**2 * a * b
    ),
    "the merged squares have the squared distance, without the counts": merged_by(
        share_of_second, lambda a, b, distance: distance**2 * (a > 0) * (b > 0)
    ),
}

LAYER = Spec(
    computes="y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row, rows of up to 131072 elements",
    operations=Operations(
        "d = x - mean, y = d * r * weight + bias, mean = sum of x / cols, r = 1 / sqrt(sum of d * d / cols + eps)",
        "7 per element: sum of x, d, d * d and its sum, times r, times weight, plus bias",
        lambda sizes: 7 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")), Tensor("weight", ("cols",)), Tensor("bias", ("cols",))),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(1, 8), "cols": Size(8, 3000)},
    values=values(
        "weight",
        "bias",
        offset=offset,
        small=normal(mean=0.005, std=0.01),  # the variance is some 1e-4: eps is a tenth of that
        steps=steps,
        scales=scales,
        poisoned=poisoned(2.0),
        balanced=cancelling(normal(mean=1.0)),  # the means of the first and of the last blocks
    ),
    reference=layer,
    near_misses={
        "without eps": lambda x, weight, bias, sizes: (
            centred(x)[0] * (centred(x)[0] ** 2).mean(axis=1, keepdims=True) ** -0.5 * weight + bias
        ),
        "the variance is over cols - 1": lambda x, weight, bias, sizes: (
            centred(x)[0] * (x.var(axis=1, keepdims=True, ddof=1) + EPS) ** -0.5 * weight + bias
        ),
        "the mean is not subtracted from x": lambda x, weight, bias, sizes: x * centred(x)[1] * weight + bias,
        "rms_norm: no mean is subtracted": lambda x, weight, bias, sizes: (
            x * (mean_square(x) + EPS) ** -0.5 * weight + bias
        ),
        "the variance without that of the blocks' means": lambda x, weight, bias, sizes: (
            centred(x)[0] * (by_eighths(x) + EPS) ** -0.5 * weight + bias
        ),
        "the mean of the row's first eighth": lambda x, weight, bias, sizes: (
            (x - first_eighth(x).mean(axis=1, keepdims=True)) * centred(x)[1] * weight + bias
        ),
        "without weight": lambda x, weight, bias, sizes: centred(x)[0] * centred(x)[1] + bias,
        "without bias": lambda x, weight, bias, sizes: centred(x)[0] * centred(x)[1] * weight,
        "weight and bias swapped": lambda x, weight, bias, sizes: centred(x)[0] * centred(x)[1] * bias + weight,
        "(y + bias) * weight": lambda x, weight, bias, sizes: (centred(x)[0] * centred(x)[1] + bias) * weight,
        "eps outside of the root": lambda x, weight, bias, sizes: (
            centred(x)[0] / ((centred(x)[0] ** 2).mean(axis=1, keepdims=True) ** 0.5 + EPS) * weight + bias
        ),
        "the variance is not divided by cols": lambda x, weight, bias, sizes: (
            centred(x)[0] * ((centred(x)[0] ** 2).sum(axis=1, keepdims=True) + EPS) ** -0.5 * weight + bias
        ),
        "divided by variance + eps, not by its root": lambda x, weight, bias, sizes: (
            centred(x)[0] * centred(x)[1] ** 2 * weight + bias
        ),
        **MERGED,
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["cols"] + 8, magnitude=layer_magnitude),
    named_sizes=RMS.named_sizes,
    large=RMS.large,
    parameters=(Parameter("eps", "float", EPS),),
    work=lambda sizes: sizes["rows"] * (30_000 + 25 * sizes["cols"]),
    slice_dim="rows",
)

# -- both, a row ahead -----------------------------------------------------------------------------------------------

# Around a warp's slice (2048), and clusters of 1, 2 and 4 blocks (32768, 65536, 131072). One of two blocks, and blocks
# of two warps, with as many rows as their inboxes have places, or more; of the latter so many that a place is used a
# third time.
AHEAD_SIZES = (
    shape(1, 8),
    shape(3, 16),
    shape(2, 40),
    shape(5, 248),
    shape(3, 264),
    shape(9, 2048),
    shape(2, 2056),
    shape(3, 4096),
    shape(2, 32_768),
    shape(36, 2056),
    shape(4, 32_776),
    shape(1, 65_536),
    shape(2, 65_544),
    shape(1, 131_072),
    shape(400, 8),
)
RMS_AHEAD = replace(RMS, sizes={"rows": Size(1, 20), "cols": Size(8, 6000)}, named_sizes=AHEAD_SIZES)
LAYER_AHEAD = replace(LAYER, sizes=RMS_AHEAD.sizes, named_sizes=AHEAD_SIZES)

SPECS: dict[str, Spec] = {
    "rms_norm_cluster_f16": RMS,
    "layer_norm_cluster_f16": LAYER,
    "rms_norm_cluster_ahead_f16": RMS_AHEAD,
    "layer_norm_cluster_ahead_f16": LAYER_AHEAD,
}
