"""batch_norm_add_relu: y = relu((x - mean) / sqrt(variance + eps) * weight + bias + residual), channel by channel.

x, residual and y are [N, C, octets, 8]: planes of 8 * octets pixels, which are what H * W are elsewhere. mean and the
biased variance of a channel are those of its N planes, n = N * octets * 8 elements. Beside y comes what the backward
pass needs: mean, rstd = 1 / sqrt(variance + eps), and mask, where bit j of byte i says whether y[..., i, j] > 0. A nan
of x makes its whole channel nan, relu keeps it, and it is not above 0. Other channels are not affected. Every bit of
mask must be right: no sum before relu is near 0. A channel whose mean is large compared with its spread must be right
too: a variance that is the difference of two large sums is not.

The bound, with r for rstd and g for g(n). As in layer_norm, rounding the sum puts the mean off by d <= g u mean|x|, and
for all of y that makes g u (|weight| r (mean|x| + |x - mean|) + |bias| + |residual|). relu never increases the distance
of two numbers. An error d of the mean adds d^2 to the variance, which is off by a further g u of itself: together they
move r by at most g u r (1 + g u (r mean|x|)^2) / 2.

A bit of mask has no tolerance. So no sum before relu may be near 0: either residual is 12 or more in magnitude, and the
other terms together are less (a normal draw beyond 6 does not occur, weight is below 1.5, and |bias| below 1); or x has
two levels, equally often in every octet, so that the normalised x is 1 or -1 apart from eps; bias is an odd multiple of
1/8, and weight and residual are multiples of 1/4.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
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
    import torch
    from numpy import ndarray

EPS = 1e-5
CHUNK = 1024  # vectors of a channel whose statistics the katas compute at a time
ROUNDOFF = 2.0**-24
BITS = tuple(1 << j for j in range(8))


def per_channel(value: ndarray) -> ndarray:
    """[C] -> [1, C, 1, 1]"""
    return value[None, :, None, None]


def statistics(x: ndarray) -> tuple[ndarray, ndarray]:
    mean = x.mean(axis=(0, 2, 3))
    return mean, (((x - per_channel(mean)) ** 2).mean(axis=(0, 2, 3)) + EPS) ** -0.5


def reference(x: ndarray, residual: ndarray, weight: ndarray, bias: ndarray, sizes: Sizes) -> tuple[ndarray, ...]:
    import numpy

    mean, rstd = statistics(x)
    y = (x - per_channel(mean)) * per_channel(rstd * weight) + per_channel(bias) + residual
    return numpy.maximum(y, 0.0), ((y > 0) * BITS).sum(axis=3), mean, rstd


def terms(sizes: Sizes) -> int:
    return sizes["N"] * sizes["octets"] * 8 + 8


def magnitude(x: ndarray, residual: ndarray, weight: ndarray, bias: ndarray, sizes: Sizes) -> tuple[ndarray, ...]:
    import numpy

    mean, rstd = statistics(x)
    size = abs(x).mean(axis=(0, 2, 3))
    reach = per_channel(size) + abs(x - per_channel(mean))
    y = per_channel(abs(weight) * rstd) * reach + per_channel(abs(bias)) + abs(residual)
    growth = min(terms(sizes), 8 * sqrt(terms(sizes)))
    return y, numpy.zeros(x.shape[:3]), size, rstd * (1 + growth * ROUNDOFF * (rstd * size) ** 2) / 2


def channels(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1, shape[1], 1, 1)


def offset(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Channels far from 0 beside their spread: their squares agree in all digits that a float has, and more."""
    return rng.normal(shape) + rng.choice(channels(shape), (30_000.0, -30_000.0, 1000.0))


def scales(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Channels of very different spread, with elements that are all equal among them."""
    return rng.normal(shape, mean=0.5) * rng.choice(channels(shape), (0.0, 1.0e-3, 1.0e-2, 30.0, 1000.0))


def drift(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From 3 below to 3 above, on the way through the batch: any part of it has another mean than the whole."""
    import numpy

    steps = numpy.linspace(-3.0, 3.0, shape[0] * shape[2])
    return rng.normal(shape) + steps.reshape(shape[0], 1, shape[2], 1)


def one_nan(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    drawn = rng.normal(shape, mean=0.5)
    drawn.flat[rng.integers((1,), 0, drawn.size - 1)] = float("nan")
    return drawn


def two_levels(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Four elements of each octet as far above the channel's mean as the other four are below it."""
    signs = 2.0 * (rng.uniform(shape, 0.0, 1.0).argsort(axis=3) < 4) - 1.0
    spread = rng.choice(channels(shape), (0.5, 1.0, 8.0))
    return signs * spread + rng.choice(channels(shape), (0.0, 1.0, -64.0))


def decided(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """12 to 20, of either sign: it decides the sign of the sum, for all values of the other terms."""
    return rng.uniform(shape, 12.0, 20.0) * rng.choice(shape, (1.0, -1.0))


def uniform(low: float, high: float) -> Fill:
    return lambda rng, shape, sizes: rng.uniform(shape, low, high)


def chosen(*values: float) -> Fill:
    return lambda rng, shape, sizes: rng.choice(shape, values)


def values(**x: Fill) -> tuple[InputKind, ...]:
    """Named ways to fill x, where residual decides about every bit."""
    others = {"residual": decided, "weight": uniform(0.5, 1.5), "bias": uniform(-1.0, 1.0)}
    return tuple(InputKind(name, {"x": fill, **others}) for name, fill in x.items())


LEVELS = InputKind(
    "two levels",
    {
        "x": two_levels,
        "residual": chosen(-2.5, -1.5, -0.5, -0.25, 0.0, 0.25, 0.5, 1.5, 2.5),
        "weight": chosen(-1.0, -0.5, 0.5, 1.0, 2.0),
        "bias": chosen(-0.375, 0.125, 0.625),
    },
)

# The sum is exactly 0 in every way to work it out: relu is not above 0 there, and the bit is not set.
DEAD = InputKind("dead", {"x": normal(mean=0.5), **dict.fromkeys(("residual", "weight", "bias"), chosen(0.0))})


def torch_chain(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    y: torch.Tensor,
    mask: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> Callable[[], object]:
    """Three of torch's operators; none of them leaves bits, so mask stays as it is."""
    import torch

    def run() -> None:
        normalised = torch.ops.aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, EPS)[0]
        torch.add(normalised, residual, out=y)
        y.relu_()

    return run


def shape(N: int, C: int, octets: int) -> Sizes:
    return {"N": N, "C": C, "octets": octets}


def moved(sizes: Sizes, itemsize: int) -> int:
    """Bytes: x twice, since its last element has a part in the first of y, residual and y once; a bit per element."""
    count = sizes["N"] * sizes["C"] * sizes["octets"] * 8
    return 4 * count * itemsize + count // 8


def normed(
    x: ndarray,
    residual: ndarray,
    weight: ndarray,
    bias: ndarray,
    *,
    less: int = 0,
    eps: float = EPS,
    outside: float = 0.0,
    early: bool = False,
    apart: int = 0,
    of_means: bool = False,
) -> tuple[ndarray, ...]:
    """A norm over count - ``less``, with another eps or one ``outside`` of the root, or with relu before residual.
    ``apart``: vectors of a channel whose squares are around their own mean, not the channel's. ``of_means``: its mean
    is that of the chunks' means, of which the last may have fewer elements."""
    import numpy

    mean, _ = statistics(x)
    if of_means:
        vectors = x.swapaxes(0, 1).reshape(x.shape[1], -1, x.shape[3])
        chunks = [vectors[:, at : at + CHUNK] for at in range(0, vectors.shape[1], CHUNK)]
        mean = numpy.mean([part.mean(axis=(1, 2)) for part in chunks], axis=0)
    squares = ((x - per_channel(mean)) ** 2).sum(axis=(0, 2, 3))
    if apart:
        vectors = x.swapaxes(0, 1).reshape(x.shape[1], -1, x.shape[3])
        chunks = [vectors[:, at : at + apart] for at in range(0, vectors.shape[1], apart)]
        squares = sum(part.var(axis=(1, 2)) * part[0].size for part in chunks)
    rstd = 1 / (numpy.sqrt(squares / (x.size // x.shape[1] - less) + eps) + outside)
    y = (x - per_channel(mean)) * per_channel(rstd * weight) + per_channel(bias)
    y = numpy.maximum(y, 0.0) + residual if early else y + residual
    return (y if early else numpy.maximum(y, 0.0)), ((y > 0) * BITS).sum(axis=3), mean, rstd


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "the variance is over one element less": lambda x, residual, weight, bias, sizes: normed(
        x, residual, weight, bias, less=1
    ),
    "without eps": lambda x, residual, weight, bias, sizes: normed(x, residual, weight, bias, eps=0.0),
    "eps outside of the root": lambda x, residual, weight, bias, sizes: normed(
        x, residual, weight, bias, eps=0.0, outside=EPS
    ),
    "the squares of each chunk are around its own mean: the distance between the means is missing": (
        lambda x, residual, weight, bias, sizes: normed(x, residual, weight, bias, apart=CHUNK)
    ),
    "the mean is that of the chunks' means, though the last chunk may have fewer elements": (
        lambda x, residual, weight, bias, sizes: normed(x, residual, weight, bias, of_means=True)
    ),
    "relu before the residual is added": lambda x, residual, weight, bias, sizes: normed(
        x, residual, weight, bias, early=True
    ),
    "without the residual": lambda x, residual, weight, bias, sizes: reference(x, 0 * residual, weight, bias, sizes),
    "without bias": lambda x, residual, weight, bias, sizes: reference(x, residual, weight, 0 * bias, sizes),
    "without weight": lambda x, residual, weight, bias, sizes: reference(x, residual, 0 * weight + 1, bias, sizes),
    "without relu": lambda x, residual, weight, bias, sizes: (
        (x - per_channel(statistics(x)[0])) * per_channel(statistics(x)[1] * weight) + per_channel(bias) + residual,
        *reference(x, residual, weight, bias, sizes)[1:],
    ),
    "weight and bias exchanged": lambda x, residual, weight, bias, sizes: reference(x, residual, bias, weight, sizes),
    "the residual is subtracted": lambda x, residual, weight, bias, sizes: reference(x, -residual, weight, bias, sizes),
    "rstd is the root itself, not 1 over it": lambda x, residual, weight, bias, sizes: (
        *reference(x, residual, weight, bias, sizes)[:3],
        1 / statistics(x)[1],
    ),
    "rstd is the variance": lambda x, residual, weight, bias, sizes: (
        *reference(x, residual, weight, bias, sizes)[:3],
        statistics(x)[1] ** -2 - EPS,
    ),
    "the bits of a mask's byte are in reverse order": lambda x, residual, weight, bias, sizes: (
        reference(x, residual, weight, bias, sizes)[0],
        ((reference(x, residual, weight, bias, sizes)[0] > 0) * BITS[::-1]).sum(axis=3),
        *statistics(x),
    ),
    "a mask's bits say where y is 0": lambda x, residual, weight, bias, sizes: (
        reference(x, residual, weight, bias, sizes)[0],
        255 - reference(x, residual, weight, bias, sizes)[1],
        *statistics(x),
    ),
}

SPEC = Spec(
    computes="y = relu(batch_norm(x) + residual), channel by channel",
    operations=Operations(
        "d = x - mean, y = max(d * rstd * weight + bias + residual, 0), mask = y > 0, mean = sum of x / n, "
        "rstd = 1 / sqrt(sum of d * d / n + eps)",
        "10 per element: sum of x, d, d * d and its sum, times rstd, times weight, two additions, the maximum, y > 0",
        lambda sizes: 80 * sizes["N"] * sizes["C"] * sizes["octets"],
        moved="x twice, since its last element has a part in the first of y; residual, y and a bit per element once",
    ),
    inputs=(
        Tensor("x", ("N", "C", "octets", 8)),
        Tensor("residual", ("N", "C", "octets", 8)),
        Tensor("weight", ("C",)),
        Tensor("bias", ("C",)),
    ),
    outputs=(
        Tensor("y", ("N", "C", "octets", 8)),
        Tensor("mask", ("N", "C", "octets"), "u8"),
        Tensor("mean", ("C",)),
        Tensor("rstd", ("C",)),
    ),
    sizes={"N": Size(1, 6), "C": Size(1, 6), "octets": Size(1, 40)},
    values=(
        *values(normal=normal(mean=0.5)),
        LEVELS,
        DEAD,
        *values(offset=offset, drift=drift, scales=scales, one_nan=one_nan),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    computed=("mean", "rstd", "y"),
    tolerance=Accumulated(terms=terms, magnitude=magnitude),
    # One octet; planes shorter and longer than a warp's 16 octets and a block's 128; around a piece of 512 octets and a
    # chunk of 1024, in one plane and in several; in the middle of a plane; more chunks than a warp has lanes; primes.
    named_sizes=(
        shape(1, 1, 1),
        shape(1, 2, 1),
        shape(2, 1, 1),
        shape(1, 1, 2),
        shape(3, 5, 1),
        shape(1, 3, 7),
        shape(2, 2, 15),
        shape(1, 1, 16),
        shape(2, 3, 17),
        shape(4, 2, 33),
        shape(1, 7, 31),
        shape(3, 1, 64),
        shape(1, 1, 127),
        shape(2, 2, 129),
        shape(5, 3, 49),
        shape(1, 97, 1),
        shape(1, 1, 513),
        shape(1, 1, 1024),
        shape(1, 2, 1025),
        shape(37, 1, 31),
        shape(150, 2, 3),
        shape(7, 2, 149),
        shape(2, 1, 1023),
        shape(1, 1, 2049),
        shape(5, 2, 450),
        shape(1, 1, 33_800),  # with a mean that drifts: the chunks of a lane are far from the first
        shape(1, 257, 1),
        shape(300, 1, 7),
        shape(1, 3, 2047),
    ),
    large=(shape(64, 67, 98), shape(3, 1030, 131), shape(1000, 3, 7), shape(2, 2, 400_000)),
    parameters=(Parameter("eps", "float", EPS),),
    work=lambda sizes: 250 * sizes["N"] * sizes["C"] * sizes["octets"] + 10_000 * sizes["C"],
    min_bytes=moved,
    slice_dim="C",
    baselines={"torch.batch_norm_add_relu": torch_chain},
)
