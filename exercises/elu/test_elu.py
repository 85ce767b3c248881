"""elu: y[i] = x[i] where x[i] > 0, else exp(x[i]) - 1, for all i in 0..n-1, any n >= 0; nan where x[i] is nan.

This is torch's elu with alpha = 1. The answer may be off by what rounding does to a few operations and to x[i] itself.
The difference exp(x) - 1 has no right to more: near 0 the answer is nearly x, and must be as precise as x there.
"""

from __future__ import annotations

from math import e, log
from typing import TYPE_CHECKING

from grader.content.spec import Accumulated, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, edge_values, normal

if TYPE_CHECKING:
    from numpy import ndarray


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return numpy.where(x > 0, x, numpy.expm1(x))


def positive_or(x: ndarray, other: ndarray) -> ndarray:
    import numpy

    return numpy.where(x > 0, x, other)


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    """|f| + |x f'|, f' = min(exp(x), 1)."""
    import numpy

    return abs(reference(x, sizes)) + abs(x) * numpy.exp(numpy.minimum(x, 0.0))


def wide(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Past where the answer is -1, on one side; past where exp(x) overflows, on the other."""
    return rng.uniform(shape, -110.0, 110.0)


def near_zero(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Mostly negative, from 1 down to f16's smallest number, all magnitudes equally likely."""
    import numpy

    return numpy.sign(rng.normal(shape, mean=-1.0, std=0.5)) * 2.0 ** rng.uniform(shape, -24.0, 0.0)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "exp(x) without the - 1 on the negative side": lambda x, sizes: positive_or(x, e**x),
    "0 on the negative side, as relu": lambda x, sizes: positive_or(x, 0.0 * x),
    "powers of 2 in place of e": lambda x, sizes: positive_or(x, 2.0**x - 1),
    "exp(-x) - 1 on the negative side": lambda x, sizes: positive_or(x, e**-x - 1),
    "1 - exp(x) on the negative side": lambda x, sizes: positive_or(x, 1 - e**x),
    "exp(x) - 1 on both sides": lambda x, sizes: e**x - 1,
    "x itself": lambda x, sizes: x,
    "the two sides exchanged": lambda x, sizes: positive_or(e**x - 1, x),
    "the factor log2(e) twice": lambda x, sizes: positive_or(x, e ** (x / log(2)) - 1),
    "exp(x - 1) on the negative side": lambda x, sizes: positive_or(x, e ** (x - 1)),
    "x (exp(x) - 1) on the negative side": lambda x, sizes: positive_or(x, x * (e**x - 1)),
    "exp(|x|) - 1 on both sides": lambda x, sizes: e ** abs(x) - 1,
}

SPEC = Spec(
    computes="y = x for x > 0, else exp(x) - 1",
    operations=Operations(
        "y = x for x > 0, else exp(x) - 1", "3 per element: comparison, exp, subtraction", lambda sizes: 3 * sizes["n"]
    ),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("normal", normal(std=2.0)),
        InputKind("near zero", near_zero),
        InputKind("special", edge_values()),
        InputKind("wide", wide),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 4, magnitude=magnitude),
    # Around every vector (2, 4, 8), warp (32) and block (256, 512, 1024 or 2048 elements) of the family's katas.
    named_sizes=tuple(
        {"n": n} for n in (*range(10), 15, 31, 33, 127, 255, 256, 257, 511, 1023, 1025, 2047, 2048, 2049, 4099)
    ),
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 50 * sizes["n"],
    slice_dim="n",
)
