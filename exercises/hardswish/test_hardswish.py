"""hardswish: y[i] = x[i] * min(max(x[i] + 3, 0), 6) / 6 for all i in 0..n-1, any n >= 0, as torch has it.

So 0 (of either sign) up to -3, x from 3 on, and a parabola in between; nan for nan, and for -inf, which meets a 0. The
answer may be off by the rounding of four operations: x + 3 adds nothing to that where it cancels, because there it is
exact. No intermediate result may overflow: the largest number of the dtype gives itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.content.spec import Accumulated, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, edge_values, normal

if TYPE_CHECKING:
    from numpy import ndarray


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    return x * (x + 3).clip(0, 6) / 6


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    return abs(reference(x, sizes))


def parabola(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Between and around the ends of the middle part."""
    return rng.uniform(shape, -4.0, 4.0)


def extremes(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The two joints with their neighbours in half, and the ends of both formats."""
    joints = (3.0, -3.0, 3.001953125, 2.998046875, -2.998046875, -3.001953125)
    return rng.choice(shape, (*joints, 3.0e38, -3.0e38, 1.0e-40, 60000.0, -60000.0, 6.0e-8, -1.5, 0.0))


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "without the + 3": lambda x, sizes: x * x.clip(0, 6) / 6,
    "without the / 6": lambda x, sizes: x * (x + 3).clip(0, 6),
    "without the upper end 6": lambda x, sizes: x * (x + 3).clip(0) / 6,
    "without the factor x: hardsigmoid": lambda x, sizes: (x + 3).clip(0, 6) / 6,
    "clipped at 3 in place of 6": lambda x, sizes: x * (x + 3).clip(0, 3) / 6,
    "divided by 3": lambda x, sizes: x * (x + 3).clip(0, 6) / 3,
    "clipped at 6 after the division by 6, where the end is 1": lambda x, sizes: x * ((x + 3) / 6).clip(0, 6),
    "without the lower end 0": lambda x, sizes: x * (x + 3).clip(max=6) / 6,
    "x - 3 in place of x + 3": lambda x, sizes: x * (x - 3).clip(0, 6) / 6,
    "x clipped, and 3 added after that": lambda x, sizes: x * (x.clip(0, 6) + 3) / 6,
    "x clipped to -3 and 3, without the + 3": lambda x, sizes: x * x.clip(-3, 3) / 6,
    "the factor x + 3 in place of x": lambda x, sizes: (x + 3) * (x + 3).clip(0, 6) / 6,
    "clipped at 1, before the division by 6": lambda x, sizes: x * (x + 3).clip(0, 1) / 6,
}

SPEC = Spec(
    computes="y = x * min(max(x + 3, 0), 6) / 6",
    operations=Operations(
        "y = x * min(max(x + 3, 0), 6) / 6",
        "5 per element: addition, maximum, minimum, multiplication, division",
        lambda sizes: 5 * sizes["n"],
    ),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("normal", normal(std=3.0)),
        InputKind("parabola", parabola),
        InputKind("special", edge_values()),
        InputKind("extremes", extremes),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 4, magnitude=magnitude),
    # Around every vector (2, 4, 8), warp (32) and block (256, 512, 1024 or 2048 elements) of the family's katas.
    named_sizes=tuple(
        {"n": n} for n in (*range(10), 15, 31, 33, 127, 255, 256, 257, 511, 1023, 1025, 2047, 2048, 2049, 4099)
    ),
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 25 * sizes["n"],
    slice_dim="n",
)
