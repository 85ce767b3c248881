"""cross_entropy: loss = log(sum of exp(x)) - x[target] for each row of logits x [rows, V], and its gradient.

x is bf16, and a row begins wherever the row before ends: only where V is a multiple of 8 are all rows aligned to 16
bytes. A target lies in 0..V-1, and its logit is finite. Other logits may be -inf: their exponential is 0. One nan or
+inf makes the loss of its row nan, as in torch, and no other.

ce_backward_bf16: the gradient (exp(x - lse) - [column = target]) g takes the place of x. lse and g are given per row.

ce_smooth_ignore_bf16: a row with target -100 does not count, and its gradient is 0. With e = smoothing, the loss of
another row is (1 - e) (lse - x[target]) + e (lse - mean of x). mean_loss is the mean of these, 0 where no row counts.
Its gradient (exp(x - lse) - (1 - e) [column = target] - e / V) / (rows that count) takes the place of x.

ce_cluster_bf16: loss as above, and the gradient (exp(x - lse) - [column = target]) g, in place of x. One nan or +inf
makes its whole row of the gradient nan.

ce_linear_tiled_bf16: the logits are h W^T, f32 sums that are not rounded to bf16 and not written to memory.

The bound of loss and lse. With m the row's maximum, p = exp(x - m) / sum of exp(x - m): the distance x - m is rounded,
and again as it is scaled for the exponential of base 2, which turns an absolute error of its argument into a relative
one. So the sum is off by u (1 + sum of p |x - m| + 2 sqrt V), as a share of itself, and its logarithm by as much,
absolutely. lse = m + log(sum) is rounded to u |lse|, and loss may be worked out as lse - x[target].

The bound of the gradient (p - [j = target]) g with p = exp(x - lse): p is off by u (1 + |x - lse|), as a share of
itself, and the difference by another u of the larger of p and 1. Where lse is not given, p is off by what lse is off,
too, as a share of itself.

Targets are spread over the columns by a formula, so that the functions that fill x know which logit must be finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, log, nan
from typing import TYPE_CHECKING

from grader.content.formulas import side_by_side
from grader.content.rows import FLUSHED, per_row, poisoned
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
    growth,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

BLOCK = 1 << 18  # logits whose statistics are worked out at a time


def walk(terms: int) -> float:
    """The same for positive terms of similar size: rounding errors of random sign, and no cancellation."""
    return min(terms, 2 * terms**0.5)


# -- the loss --------------------------------------------------------------------------------------------------------


def by_rows(of: Callable[..., ndarray], *arrays: ndarray, axis: int = -1) -> ndarray:
    """``of`` of every row of the arrays, some rows at a time: what is in between stays in a processor's cache.

    What it returns has the rows as its last dimension, or as ``axis``.
    """
    import numpy

    step = max(1, BLOCK // arrays[0].shape[1])
    parts = [tuple(array[first : first + step] for array in arrays) for first in range(0, len(arrays[0]), step)]
    return numpy.concatenate(side_by_side(of, parts), axis=axis)


def statistics(x: ndarray) -> ndarray:
    """Each row's maximum, log(sum of exp(x - max)), and sum of p |x - max|; [3, rows]."""
    import numpy

    top = x.max(axis=1, initial=-inf)
    distance = top[:, None] - x
    weight = numpy.exp(-distance)
    total = weight.sum(axis=1)
    distance[weight == 0.0] = 0.0  # -inf, whose product with 0 would be nan
    return numpy.stack([top, numpy.log(total), (weight * distance).sum(axis=1) / total])


def at_target(x: ndarray, target: ndarray) -> ndarray:
    import numpy

    logit: ndarray = numpy.take_along_axis(x, target[:, None], axis=1)[:, 0]
    return logit


def loss_of(x: ndarray, target: ndarray, sizes: Sizes) -> ndarray:
    return loss_and_lse(x, target, sizes)[0]


def loss_and_lse(x: ndarray, target: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    top, log_total, _ = by_rows(statistics, x)
    return log_total + (top - at_target(x, target)), log_total + top


def magnitude(x: ndarray, target: ndarray, sizes: Sizes) -> ndarray:
    """The bound of the docstring above, over the roundoff; the same for loss and lse."""
    top, log_total, distance = by_rows(statistics, x)
    bound: ndarray = 1 + abs(top) + abs(log_total) + distance + walk(sizes["V"])
    return bound


def magnitudes(x: ndarray, target: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    both = magnitude(x, target, sizes)
    return both, both


def in_base_2(x: ndarray, target: ndarray, sizes: Sizes) -> ndarray:
    top, log_total, _ = by_rows(statistics, x)
    loss: ndarray = log_total / log(2.0) + (top - at_target(x, target))
    return loss


def to_the_maximum(x: ndarray, target: ndarray, sizes: Sizes) -> ndarray:
    loss: ndarray = x.max(axis=1) - at_target(x, target)
    return loss


# -- values ----------------------------------------------------------------------------------------------------------


def spread(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Targets all over the row, another for each row."""
    import numpy

    target: ndarray = (numpy.arange(shape[0], dtype=numpy.int64) * 7919 + 5) % sizes["V"]
    return target


def ends(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The last column and the first, in turn."""
    import numpy

    target: ndarray = (numpy.arange(shape[0], dtype=numpy.int64) + 1) % 2 * (sizes["V"] - 1)
    return target


def shifted(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Whole rows near 300, 1000, -300 or -1000: every exponential of theirs overflows, or vanishes, unless shifted."""
    return rng.normal(shape, std=6.0) + per_row(rng, shape, (300.0, 1000.0, -300.0, -1000.0))


def masked(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Two of three logits -inf; of some rows all but the target's, or all but the last quarter and the target's."""
    import numpy

    plain = rng.normal(shape, mean=-2.0, std=3.0)
    kind = per_row(rng, shape, (0.0, 0.0, 1.0, 2.0))
    columns = numpy.arange(shape[1])
    keep = (kind == 0) & (rng.integers(shape, 0, 2) == 0) | (kind == 1) & (columns >= 0.75 * shape[1])
    keep |= columns == spread(rng, shape, sizes)[:, None]
    return numpy.where(keep, plain, -inf)


def rising(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Sorted: every logit is a new maximum, and the earlier sum must be rescaled."""
    import numpy

    return numpy.sort(rng.normal(shape, std=4.0))


def falling(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rising(rng, shape, sizes)[:, ::-1]


VALUES = (
    InputKind("normal", {"x": normal(mean=1.0, std=2.0), "target": spread}),
    InputKind("ends", {"x": normal(mean=-1.0, std=3.0), "target": ends}),
    InputKind("shifted", {"x": shifted, "target": spread}),
    InputKind("masked", {"x": masked, "target": spread}),
    InputKind("wide", {"x": normal(std=80.0), "target": spread}),  # exp of most logits minus the maximum underflows
    InputKind("poisoned", {"x": poisoned(nan, inf, mean=1.0), "target": spread}),
    InputKind("rising", {"x": rising, "target": ends}),
    InputKind("falling", {"x": falling, "target": spread}),
)


# -- baselines -------------------------------------------------------------------------------------------------------


def torch_loss(x: torch.Tensor, target: torch.Tensor, loss: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.nn.functional.cross_entropy(x, target, reduction="none")


# -- specs -----------------------------------------------------------------------------------------------------------


def shape(rows: int, V: int) -> Sizes:
    return {"rows": rows, "V": V}


def rolled(target: ndarray) -> ndarray:
    import numpy

    return numpy.roll(target, -1)


def exponential(x: ndarray) -> ndarray:
    import numpy

    return numpy.exp(x)


# What is computed in place of it by a usual mistake.
NEAR_MISSES: dict[str, Callable[..., ndarray]] = {
    "lse, without the target's logit": lambda x, target, sizes: loss_and_lse(x, target, sizes)[1],
    "lse plus the target's logit": lambda x, target, sizes: loss_and_lse(x, target, sizes)[1] + at_target(x, target),
    "the loss of column target + 1": lambda x, target, sizes: loss_of(x, (target + 1) % sizes["V"], sizes),
    "the loss of column target - 1": lambda x, target, sizes: loss_of(x, (target - 1) % sizes["V"], sizes),
    "the loss of the first row's target": lambda x, target, sizes: loss_of(x, target[:1].repeat(len(x)), sizes),
    "the loss with a logarithm of base 2": in_base_2,
    "minus the loss": lambda x, target, sizes: -loss_of(x, target, sizes),
    "the loss over rows": lambda x, target, sizes: loss_of(x, target, sizes) / sizes["rows"],
    "max minus the target's logit": to_the_maximum,
    "the loss without the maximum: it is not added back": lambda x, target, sizes: (
        loss_of(x, target, sizes) - x.max(axis=1)
    ),
    "the loss of target's row, one later": lambda x, target, sizes: loss_of(x, rolled(target), sizes),
    "the mean of x in place of the target's logit": lambda x, target, sizes: (
        loss_and_lse(x, target, sizes)[1] - x.mean(axis=1)
    ),
    "the loss times the logarithm's 1 / ln 2, all of it": lambda x, target, sizes: loss_of(x, target, sizes) / log(2.0),
    "the probability of the target, not its logarithm": lambda x, target, sizes: exponential(
        -loss_of(x, target, sizes)
    ),
}

# Rows of every length modulo a vector, around a warp, a block's vectors, a step of all of them.
NAMED = (
    shape(1, 1),
    shape(1, 2),
    shape(3, 1),
    shape(5, 7),
    shape(2, 8),
    shape(3, 9),
    shape(2, 31),
    shape(5, 33),
    shape(3, 255),
    shape(2, 256),
    shape(5, 257),
    shape(2, 1000),
    shape(3, 1023),
    shape(2, 4099),
    shape(17, 40),
    shape(1, 8200),
    shape(1, 33_003),
)

FORWARD = Spec(
    computes="loss = log(sum of exp(x)) - x[target], row by row",
    operations=Operations(
        "loss = log(s) + m - x[target], m = maximum of the row, s = sum of exp(x - m)",
        "4 per logit: comparison for m, subtraction, exp, addition to s",
        lambda sizes: 4 * sizes["rows"] * sizes["V"],
    ),
    inputs=(Tensor("x", ("rows", "V")), Tensor("target", ("rows",), "i64")),
    outputs=(Tensor("loss", ("rows",), "acc"),),
    sizes={"rows": Size(1, 20), "V": Size(1, 2000)},
    values=VALUES,
    reference=loss_of,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude),
    named_sizes=NAMED,
    large=(
        shape(257, 50_257),
        shape(4099, 1031),
        shape(70_001, 33),
        shape(5, 1_000_003),
        shape(2, 9_000_007),
    ),
    work=lambda sizes: sizes["rows"] * (150_000 + 25 * sizes["V"]),
    slice_dim="rows",
    baselines={"torch.cross_entropy": torch_loss},
)

ONLINE = replace(
    FORWARD,
    computes="lse = log(sum of exp(x)) and loss = lse - x[target], row by row",
    operations=Operations(
        "loss = log(s) + m - x[target], lse = log(s) + m, m = maximum of the row, s = sum of exp(x - m)",
        "4 per logit: comparison for m, subtraction, exp, addition to s",
        lambda sizes: 4 * sizes["rows"] * sizes["V"],
    ),
    outputs=(Tensor("loss", ("rows",), "acc"), Tensor("lse", ("rows",), "acc")),
    reference=loss_and_lse,
    near_misses={
        name: lambda x, target, sizes, of=of: (of(x, target, sizes), loss_and_lse(x, target, sizes)[1])
        for name, of in NEAR_MISSES.items()
    },
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitudes),
    # Rows that are split over blocks, whose last part is short, and one of more parts than a warp has lanes; so many
    # rows that two parts of each would be too many.
    named_sizes=(
        *NAMED,
        shape(1, 4096),
        shape(3, 8191),
        shape(2, 8193),
        shape(64, 20),
        shape(1, 20_011),
        shape(1, 68_003),
        shape(513, 4096),
    ),
    large=(*FORWARD.large, shape(64, 151_936), shape(1, 128_256), shape(1023, 8191), shape(1500, 16_385)),
    work=lambda sizes: sizes["rows"] * (40_000 + 25 * sizes["V"]),
)

# -- the gradient ----------------------------------------------------------------------------------------------------


def one_hot(x: ndarray, target: ndarray) -> ndarray:
    import numpy

    hot: ndarray = numpy.arange(x.shape[1]) == target[:, None]
    return hot


def gradient(x: ndarray, target: ndarray, lse: ndarray, g: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    dx: ndarray = (numpy.exp(x - lse[:, None]) - one_hot(x, target)) * g[:, None]
    return dx


def gradient_magnitude(x: ndarray, target: ndarray, lse: ndarray, g: ndarray, sizes: Sizes) -> ndarray:
    """The bound of the docstring above, over the roundoff."""
    import numpy

    distance = x - lse[:, None]
    p = numpy.exp(distance)
    distance[p == 0.0] = 0.0  # -inf, whose product with 0 would be nan
    bound: ndarray = abs(g)[:, None] * (p * (1 + abs(distance)) + one_hot(x, target) + FLUSHED)
    return bound


def near_total(spare: float) -> Fill:
    """lse for logits of ``normal(mean=1, std=2)``: log(V) + 3, and up to ``spare`` more or less."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        return numpy.log(sizes["V"]) + 3.0 + rng.uniform(shape, -spare, spare)

    return fill


def one_of(*values: float) -> Fill:
    return lambda rng, shape, sizes: rng.choice(shape, values)


def shifted_together(of: str) -> Fill:
    """x and lse near 1000 or -1000, the same in both: row by row in turn."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        shift = 1000.0 - 2000.0 * (numpy.arange(shape[0]) % 2)
        if of == "lse":
            return shift + rng.uniform(shape, 0.0, 8.0)
        return shift[:, None] + rng.normal(shape, std=6.0)

    return fill


G = normal(mean=1.0, std=0.5)
GRADIENT_VALUES = (
    InputKind("normal", {"x": normal(mean=1.0, std=2.0), "target": spread, "lse": near_total(0.5), "g": G}),
    InputKind(
        "one hot",  # no logit has a share that is left in f32
        {"x": normal(), "target": ends, "lse": one_of(1000.0, 400.0), "g": one_of(1.0, -3.0, 0.25, 0.0)},
        exact=True,
    ),
    InputKind(
        "scaled",
        {"x": normal(std=3.0), "target": spread, "lse": near_total(2.0), "g": one_of(0.0, -1.0, 1e-6, 1e4)},
    ),
    InputKind(
        "shifted",
        {"x": shifted_together("x"), "target": spread, "lse": shifted_together("lse"), "g": G},
    ),
    InputKind("masked", {"x": masked, "target": spread, "lse": near_total(1.0), "g": G}),
    InputKind("ends", {"x": normal(mean=2.0), "target": ends, "lse": near_total(0.0), "g": normal(mean=-2.0)}),
    InputKind("poisoned", {"x": poisoned(nan, inf, mean=1.0), "target": spread, "lse": near_total(0.0), "g": G}),
)

NEAR_MISSES_GRADIENT: dict[str, Callable[..., ndarray]] = {
    "the softmax, without the one-hot": lambda x, target, lse, g, sizes: gradient(x, target * 0 - 1, lse, g, sizes),
    "without the factor g": lambda x, target, lse, g, sizes: gradient(x, target, lse, g * 0 + 1, sizes),
    "the one-hot not multiplied by g": lambda x, target, lse, g, sizes: (
        gradient(x, target * 0 - 1, lse, g, sizes) - one_hot(x, target)
    ),
    "the one-hot one column late": lambda x, target, lse, g, sizes: gradient(x, target + 1, lse, g, sizes),
    "exp(x), without lse": lambda x, target, lse, g, sizes: gradient(x, target, lse * 0, g, sizes),
    "the one-hot minus the softmax": lambda x, target, lse, g, sizes: -gradient(x, target, lse, g, sizes),
    "the target of the first row in every row": lambda x, target, lse, g, sizes: gradient(
        x, target[:1].repeat(len(x)), lse, g, sizes
    ),
    "the one-hot one column early": lambda x, target, lse, g, sizes: gradient(x, target - 1, lse, g, sizes),
    "the one-hot is added": lambda x, target, lse, g, sizes: (
        gradient(x, target, lse, g, sizes) + 2 * one_hot(x, target) * g[:, None]
    ),
    "1 is subtracted in every column": lambda x, target, lse, g, sizes: (
        gradient(x, target * 0 - 1, lse, g, sizes) - g[:, None]
    ),
    "minus the one-hot alone": lambda x, target, lse, g, sizes: -1.0 * one_hot(x, target) * g[:, None],
    "g squared": lambda x, target, lse, g, sizes: gradient(x, target, lse, g * g, sizes),
    "g of the first row for all": lambda x, target, lse, g, sizes: gradient(x, target, lse, 0 * g + g[:1], sizes),
    "lse of the first row for all": lambda x, target, lse, g, sizes: gradient(x, target, 0 * lse + lse[:1], g, sizes),
    "powers of 2 in place of e": lambda x, target, lse, g, sizes: gradient(
        x * log(2.0), target, lse * log(2.0), g, sizes
    ),
}


def torch_gradient(
    x: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, g: torch.Tensor, **_: torch.Tensor
) -> Callable[[], object]:
    """torch's two kernels behind the backward pass of cross_entropy: of the gathered loss, then of log_softmax."""
    import torch

    log_p = torch.log_softmax(x, -1)

    def run() -> object:
        dlog_p = torch.zeros_like(x).scatter_(1, target[:, None], -g[:, None].to(x.dtype))
        return torch.ops.aten._log_softmax_backward_data(dlog_p, log_p, -1, x.dtype)

    return run


BACKWARD = replace(
    FORWARD,
    computes="x becomes (exp(x - lse) - [column = target]) * g, row by row",
    operations=Operations(
        "dx = (exp(x - lse) - [column = target]) * g",
        "5 per logit: subtraction, exp, comparison with the target, subtraction, multiplication",
        lambda sizes: 5 * sizes["rows"] * sizes["V"],
    ),
    inputs=(
        Tensor("x", ("rows", "V")),
        Tensor("target", ("rows",), "i64"),
        Tensor("lse", ("rows",), "acc"),
        Tensor("g", ("rows",), "acc"),
    ),
    outputs=(Tensor("x", ("rows", "V")),),
    values=GRADIENT_VALUES,
    reference=gradient,
    near_misses=NEAR_MISSES_GRADIENT,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=gradient_magnitude),
    named_sizes=(*NAMED[:16], shape(3, 8193), shape(2, 16_400), shape(1, 33_003)),
    work=lambda sizes: sizes["rows"] * (10_000 + 40 * sizes["V"]),
    baselines={"torch's kernels": torch_gradient},
)

# -- loss and gradient at once ---------------------------------------------------------------------------------------

IGNORED = -100
SMOOTHING = 0.1


def counted(target: ndarray) -> ndarray:
    """Which rows count."""
    here: ndarray = target != IGNORED
    return here


def losses(x: ndarray, target: ndarray, smoothing: float = SMOOTHING) -> ndarray:
    """The smoothed loss of each row, 0 for one that does not count."""
    import numpy

    label = numpy.where(counted(target), target, 0)
    loss, lse = loss_and_lse(x, label, {})
    return numpy.where(counted(target), (1 - smoothing) * loss + smoothing * (lse - x.mean(axis=1)), 0.0)


def smooth(
    x: ndarray, target: ndarray, sizes: Sizes, *, smoothing: float = SMOOTHING, over: int | None = None
) -> tuple[ndarray, ndarray]:
    """(gradient, mean loss), both divided by ``over``: the number of rows that count."""
    import numpy

    valid = max(1, int(counted(target).sum())) if over is None else over

    def gradients(x: ndarray, target: ndarray) -> ndarray:
        top, log_total, _ = statistics(x)
        dx = numpy.exp(x - (log_total + top)[:, None]) - (1 - smoothing) * one_hot(x, target) - smoothing / sizes["V"]
        return numpy.where(counted(target)[:, None], dx / valid, 0.0)

    return by_rows(gradients, x, target, axis=0), losses(x, target, smoothing).sum(keepdims=True) / valid


def smooth_magnitude(x: ndarray, target: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    """p is off by what lse is off and by the rounding of x - lse. The mean of the logits is another sum of V."""
    import numpy

    here, columns = counted(target), sizes["V"]
    valid = max(1, int(here.sum()))

    def gradients(x: ndarray, target: ndarray) -> ndarray:
        top, log_total, _ = statistics(x)
        distance = x - (log_total + top)[:, None]
        p = numpy.exp(distance)
        off = p * (1 + abs(distance) + magnitude(x, target, sizes)[:, None])
        off += one_hot(x, target) + SMOOTHING / columns + FLUSHED
        return numpy.where(counted(target)[:, None], off / valid, 0.0)

    row = magnitude(x, target, sizes)
    sizes_of_logits = by_rows(lambda x: abs(x).mean(axis=1), x)
    row = row + SMOOTHING * growth(columns) * sizes_of_logits + growth(sizes["rows"]) * abs(losses(x, target))
    return by_rows(gradients, x, target, axis=0), numpy.where(here, row, 0.0).sum(keepdims=True) / valid


def ignoring(which: Callable[[ndarray, int], ndarray]) -> Fill:
    """Targets all over the row, but ``which(row, rows)`` do not count."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        row = numpy.arange(shape[0])
        return numpy.where(which(row, shape[0]), IGNORED, spread(rng, shape, sizes))

    return fill


LOGITS = normal(mean=1.0, std=2.0)
SMOOTH_VALUES = (
    InputKind("normal", {"x": LOGITS, "target": spread}),
    InputKind("every other ignored", {"x": LOGITS, "target": ignoring(lambda row, rows: row % 2 == 0)}),
    InputKind("all ignored", {"x": LOGITS, "target": ignoring(lambda row, rows: row >= 0)}, exact=True),
    InputKind("first ignored", {"x": normal(std=30.0), "target": ignoring(lambda row, rows: row == 0)}),
    InputKind("last ignored", {"x": shifted, "target": ignoring(lambda row, rows: row == rows - 1)}),
    InputKind("one counts", {"x": normal(mean=-3.0), "target": ignoring(lambda row, rows: row != rows // 2)}),
    InputKind("ends", {"x": rising, "target": ends}),
)

NEAR_MISSES_SMOOTH: dict[str, Callable[..., tuple[ndarray, ndarray]]] = {
    "divided by all rows": lambda x, target, sizes: smooth(x, target, sizes, over=sizes["rows"]),
    "the loss divided by all rows": lambda x, target, sizes: (
        smooth(x, target, sizes)[0],
        smooth(x, target, sizes, over=sizes["rows"])[1],
    ),
    "the gradient divided by all rows": lambda x, target, sizes: (
        smooth(x, target, sizes, over=sizes["rows"])[0],
        smooth(x, target, sizes)[1],
    ),
    "the sums, not divided": lambda x, target, sizes: smooth(x, target, sizes, over=1),
    "without smoothing": lambda x, target, sizes: smooth(x, target, sizes, smoothing=0.0),
    "the loss without smoothing": lambda x, target, sizes: (
        smooth(x, target, sizes)[0],
        smooth(x, target, sizes, smoothing=0.0)[1],
    ),
    "the gradient without smoothing": lambda x, target, sizes: (
        smooth(x, target, sizes, smoothing=0.0)[0],
        smooth(x, target, sizes)[1],
    ),
    "the whole smoothing in every column": lambda x, target, sizes: (
        smooth(x, target, {**sizes, "V": 1})[0],
        smooth(x, target, sizes)[1],
    ),
    "the gradient of the sum of the losses": lambda x, target, sizes: (
        smooth(x, target, sizes, over=1)[0],
        smooth(x, target, sizes)[1],
    ),
}


def torch_smooth(x: torch.Tensor, target: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """torch's loss and what autograd makes of it, which returns the gradient in memory of its own."""
    import torch

    x = x.detach().requires_grad_()

    def run() -> object:
        loss = torch.nn.functional.cross_entropy(x, target, ignore_index=IGNORED, label_smoothing=SMOOTHING)
        return torch.autograd.grad(loss, x)

    return run


SMOOTH = replace(
    FORWARD,
    computes="x becomes the gradient of mean_loss, the mean of the smoothed losses of the rows with target != -100",
    operations=Operations(
        "dx = (exp(x - lse) - (1 - e) [column = target] - e / V) / valid, lse = log(s) + m, s = sum of exp(x - m)",
        "10 per logit: comparison for m, subtraction, exp, addition to s, addition to the sum of the logits; "
        "subtraction, exp, subtraction, comparison with the target, multiplication",
        lambda sizes: 10 * sizes["rows"] * sizes["V"],
    ),
    outputs=(Tensor("x", ("rows", "V")), Tensor("mean_loss", (1,), "acc")),
    parameters=(Parameter("smoothing", "float", SMOOTHING),),
    values=SMOOTH_VALUES,
    reference=smooth,
    near_misses=NEAR_MISSES_SMOOTH,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=smooth_magnitude),
    computed=("mean_loss", "x"),
    repeatable=True,
    # The last ones are longer than shared memory, on a full card and on a small one.
    named_sizes=(*NAMED[:15], shape(520, 2), shape(3, 8203), shape(2, 20_011)),
    small_shared=16 << 10,
    large=(shape(257, 50_257), shape(4099, 1031), shape(70_001, 33), shape(5, 1_000_003), shape(133, 128_256)),
    work=lambda sizes: sizes["rows"] * (120_000 + 50 * sizes["V"]),
    slice_dim=None,
    baselines={"torch.cross_entropy with backward": torch_smooth},
)

# -- a row in the registers of a cluster ------------------------------------------------------------------------------


def both(x: ndarray, target: ndarray, g: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    """(gradient, loss)."""
    loss, lse = loss_and_lse(x, target, sizes)
    return gradient(x, target, lse, g, sizes), loss


def both_magnitude(x: ndarray, target: ndarray, g: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    import numpy

    _, lse = loss_and_lse(x, target, sizes)
    row = magnitude(x, target, sizes)
    distance = x - lse[:, None]
    p = numpy.exp(distance)
    distance[p == 0.0] = 0.0  # -inf, whose product with 0 would be nan
    off = p * (1 + abs(distance) + row[:, None])
    return abs(g)[:, None] * (off + one_hot(x, target) + FLUSHED), row


def with_g(kind: InputKind, g: Fill = G) -> InputKind:
    return replace(kind, fill={"x": kind.for_input("x"), "target": kind.for_input("target"), "g": g})


def another_loss(of: Callable[..., ndarray]) -> Callable[..., tuple[ndarray, ndarray]]:
    return lambda x, target, g, sizes: (both(x, target, g, sizes)[0], of(x, target, sizes))


def another_gradient(of: Callable[..., ndarray]) -> Callable[..., tuple[ndarray, ndarray]]:
    """``of`` gets lse as well."""

    def computed(x: ndarray, target: ndarray, g: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
        loss, lse = loss_and_lse(x, target, sizes)
        return of(x, target, lse, g, sizes), loss

    return computed


def torch_both(x: torch.Tensor, target: torch.Tensor, g: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """torch's loss of each row and what autograd makes of it, which returns the gradient in memory of its own."""
    import torch

    x = x.detach().requires_grad_()

    def run() -> object:
        loss = torch.nn.functional.cross_entropy(x, target, reduction="none")
        return torch.autograd.grad(loss, x, g.to(loss.dtype))

    return run


CLUSTER = replace(
    FORWARD,
    computes="loss = log(sum of exp(x)) - x[target], and x becomes (exp(x - lse) - [column = target]) * g, row by row",
    operations=Operations(
        "loss = log(s) + m - x[target], dx = (exp(x - lse) - [column = target]) * g, lse = log(s) + m",
        "9 per logit: comparison for m, subtraction, exp, addition to s; subtraction, exp, comparison with the target, "
        "subtraction, multiplication",
        lambda sizes: 9 * sizes["rows"] * sizes["V"],
    ),
    inputs=(Tensor("x", ("rows", "V")), Tensor("target", ("rows",), "i64"), Tensor("g", ("rows",), "acc")),
    outputs=(Tensor("x", ("rows", "V")), Tensor("loss", ("rows",), "acc")),
    sizes={"rows": Size(1, 20), "V": Size(8, 4000)},
    values=(
        *(with_g(kind) for kind in VALUES if kind.name != "wide"),
        with_g(InputKind("wide", {"x": normal(std=80.0), "target": spread}), one_of(0.0, -1.0, 1e-6, 1e4)),
    ),
    reference=both,
    near_misses={
        **{name: another_loss(of) for name, of in NEAR_MISSES.items()},
        **{name: another_gradient(of) for name, of in NEAR_MISSES_GRADIENT.items() if "lse" not in name},
    },
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=both_magnitude),
    computed=("loss", "x"),
    repeatable=True,
    # Clusters of 1, 2, 4 and 8 blocks, with a last block that has few columns or none; more rows than clusters.
    named_sizes=(
        shape(1, 8),
        shape(3, 16),
        shape(2, 40),
        shape(5, 248),
        shape(3, 264),
        shape(9, 1024),
        shape(2, 1032),
        shape(3, 4096),
        shape(2, 16_384),
        shape(5, 16_392),
        shape(1, 32_776),
        shape(3, 33_000),
        shape(1, 65_544),
        shape(2, 131_072),
        shape(400, 8),
    ),
    large=(shape(257, 50_264), shape(4099, 1032), shape(70_001, 40), shape(133, 128_256), shape(999, 65_544)),
    work=lambda sizes: sizes["rows"] * (60_000 + 45 * sizes["V"]),
    slice_dim="rows",
    baselines={"torch.cross_entropy with backward": torch_both},
)

AHEAD = replace(
    CLUSTER,
    sizes={"rows": Size(1, 20), "V": Size(8, 6000)},
    # Clusters of 1, 2, 4 and 8 blocks. One of two blocks, and blocks of two warps, with as many rows as their inboxes
    # have places, or more; of the latter so many that a place is used a third time.
    named_sizes=(
        shape(1, 8),
        shape(3, 16),
        shape(2, 40),
        shape(5, 248),
        shape(3, 264),
        shape(9, 2048),
        shape(2, 2056),
        shape(3, 4096),
        shape(36, 2400),  # normal: row 5 has its target at the start of the second warp's slice
        shape(2, 32_768),
        shape(4, 32_776),
        shape(1, 65_544),
        shape(3, 66_000),
        shape(1, 131_080),
        shape(1, 262_144),
        shape(400, 8),
    ),
    large=(*CLUSTER.large, shape(70, 256_000)),
    work=lambda sizes: sizes["rows"] * (10_000 + 30 * sizes["V"]),
)

# -- the logits as a product -----------------------------------------------------------------------------------------


def linear(h: ndarray, W: ndarray, target: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    return loss_and_lse(h @ W.T, target, sizes)


def linear_magnitude(h: ndarray, W: ndarray, target: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    """A logit is off by g(H) u sum of |h| |W|; lse by the mean of that, weighted by p, and by what sums do to it."""
    import numpy

    logits, off = h @ W.T, growth(sizes["H"]) * (abs(h) @ abs(W).T)
    top, log_total, _ = by_rows(statistics, logits)
    p = numpy.exp(logits - (log_total + top)[:, None])
    lse = magnitude(logits, target, sizes) + (p * off).sum(axis=1)
    return lse + at_target(off, target), lse


def scaled(std: float, mean: float = 0.0) -> Fill:
    """Rows whose products with rows of size 1 have this mean and this deviation, for any H."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        return rng.normal(shape, mean=mean / sizes["H"], std=std / sizes["H"] ** 0.5)

    return fill


def one_nan(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """nan in every third row of h."""
    drawn = scaled(2.0)(rng, shape, sizes)
    drawn[::3, -1] = nan
    return drawn


def linear_shape(T: int, V: int, H: int) -> Sizes:
    return {"T": T, "V": V, "H": H}


def linear_misses() -> dict[str, Callable[..., tuple[ndarray, ndarray]]]:
    def tile(sizes: Sizes) -> int:
        return -sizes["V"] % 256

    def with_zeros(h: ndarray, W: ndarray, target: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
        import numpy

        return loss_and_lse(numpy.pad(h @ W.T, ((0, 0), (0, tile(sizes)))), target, sizes)

    return {
        "with logits of 0 for the columns past V": with_zeros,
        "without the target's logit": lambda h, W, target, sizes: (linear(h, W, target, sizes)[1],) * 2,
        "the loss of column target + 1": lambda h, W, target, sizes: (
            linear(h, W, (target + 1) % sizes["V"], sizes)[0],
            linear(h, W, target, sizes)[1],
        ),
        "of the first slice of H alone": lambda h, W, target, sizes: linear(h[:, :64], W[:, :64], target, sizes),
    }


def torch_product(h: torch.Tensor, W: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """The bare product, as cuBLAS computes it, with its logits rounded to bf16 in memory."""
    import torch

    out = torch.empty((h.shape[0], W.shape[0]), dtype=h.dtype, device=h.device)
    return lambda: torch.mm(h, W.t(), out=out)


def torch_linear(h: torch.Tensor, W: torch.Tensor, target: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.nn.functional.cross_entropy(torch.mm(h, W.t()), target, reduction="none")


W_ROWS = normal()
LINEAR = replace(
    FORWARD,
    computes="lse = log(sum over v of exp(h . W[v])) and loss = lse - h . W[target], row by row of h",
    operations=Operations(
        "logits = h W^T, then loss = log(s) + m - logit of the target, s = sum of exp(logit - m)",
        "2 H per logit, and 4 more: comparison for m, subtraction, exp, addition to s",
        lambda sizes: sizes["T"] * sizes["V"] * (2 * sizes["H"] + 4),
    ),
    flops=lambda sizes: 2 * sizes["T"] * sizes["V"] * sizes["H"],
    inputs=(Tensor("h", ("T", "H")), Tensor("W", ("V", "H")), Tensor("target", ("T",), "i64")),
    outputs=(Tensor("loss", ("T",), "acc"), Tensor("lse", ("T",), "acc")),
    sizes={"T": Size(1, 150), "V": Size(1, 400), "H": Size(64, 192)},
    values=(
        InputKind("normal", {"h": scaled(2.0), "W": W_ROWS, "target": spread}),
        InputKind("ends", {"h": scaled(1.0), "W": W_ROWS, "target": ends}),
        # Logits near -60: a column of zeros that is not there would take all.
        InputKind("below zero", {"h": scaled(0.5, mean=-60.0), "W": normal(mean=1.0, std=0.1), "target": spread}),
        InputKind("large", {"h": scaled(20.0, mean=150.0), "W": normal(mean=1.0), "target": spread}),
        InputKind("poisoned", {"h": one_nan, "W": W_ROWS, "target": spread}),
    ),
    reference=linear,
    near_misses=linear_misses(),
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=linear_magnitude),
    named_sizes=(
        linear_shape(1, 1, 64),
        linear_shape(16, 8, 64),
        linear_shape(17, 63, 128),
        linear_shape(64, 64, 64),
        linear_shape(3, 257, 192),
        linear_shape(65, 129, 192),
        linear_shape(130, 65, 64),
        linear_shape(129, 300, 64),
        linear_shape(2, 1000, 128),
        linear_shape(1, 8200, 64),  # more tiles than a warp has lanes
    ),
    large=(linear_shape(257, 5003, 320), linear_shape(1000, 32_000, 256), linear_shape(130, 128_256, 64)),
    work=lambda sizes: (-(-sizes["T"] // 128)) * (-(-sizes["V"] // 256)) * (1_000_000 + 12_000 * sizes["H"]),
    slice_dim="T",
    sampled=True,
    baselines={"torch.mm": torch_product, "torch.mm and cross_entropy": torch_linear},
)

SPECS: dict[str, Spec] = {
    "ce_forward_bf16": FORWARD,
    "ce_online_bf16": ONLINE,
    "ce_backward_bf16": BACKWARD,
    "ce_smooth_ignore_bf16": SMOOTH,
    "ce_cluster_bf16": CLUSTER,
    "ce_cluster_ahead_bf16": AHEAD,
    "ce_linear_tiled_bf16": LINEAR,
}
