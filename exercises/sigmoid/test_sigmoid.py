"""sigmoid: y[i] = 1 / (1 + exp(-x[i])) for all i in 0..n-1, any n >= 0; 0 at -inf, 1 at inf, nan where x[i] is nan.

The answer may be off by what rounding does to a few operations, and by what it does to the exponent -x[i]: far to the
left y is nearly exp(x), and a relative error in x becomes |x| times that in y. It is never off by more. The answer
becomes 0 where the tensors' dtype has nothing smaller left: in f32 below x = -103.97, in f16 below x = -17.33.
"""

from __future__ import annotations

from math import e, log
from typing import TYPE_CHECKING

from grader.content.spec import Accumulated, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, edge_values, normal

if TYPE_CHECKING:
    from numpy import ndarray


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return 1 / (1 + numpy.exp(-x))


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    """|f| + |x f'|, f' = f (1 - f)."""
    return reference(x, sizes) * (1.0 + abs(x) * reference(-x, sizes))


def wide(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """As far as the answer differs from 0 in f32, and further: exp(88.8) and exp(104) both overflow there."""
    return rng.uniform(shape, -110.0, 110.0)


def tails(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Where the answer is denormal: in f32 for the one, in f16 for the other half of the elements. Not to the very end,
    where the tolerance has no room for a wrong answer between 0 and the smallest number."""
    import numpy

    f32 = rng.uniform(shape, -101.0, -85.0)
    f16 = rng.uniform(shape, -14.0, -8.0)
    return numpy.where(rng.integers(shape, 0, 1) > 0, f32, f16)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "the sign of x is the wrong one: 1 / (1 + exp(x))": lambda x, sizes: reference(-x, sizes),
    "|x| in place of x": lambda x, sizes: reference(abs(x), sizes),
    "-|x| in place of x": lambda x, sizes: reference(-abs(x), sizes),
    "powers of 2 in place of e": lambda x, sizes: 1 / (1 + 2.0**-x),
    "exp(-x) without 1 + and 1 /": lambda x, sizes: e**-x,
    "1 + exp(-x) without 1 /": lambda x, sizes: 1 + e**-x,
    "x sigmoid(x): swish": lambda x, sizes: x * reference(x, sizes),
    "tanh in place of the sigmoid": lambda x, sizes: 2 * reference(2 * x, sizes) - 1,
    "the factor log2(e) twice": lambda x, sizes: reference(x / log(2), sizes),
    "exp(x) / (1 + exp(-x)): the two forms mixed": lambda x, sizes: e**x / (1 + e**-x),
    "the derivative s (1 - s)": lambda x, sizes: reference(x, sizes) * reference(-x, sizes),
    "1 / (1 - exp(-x))": lambda x, sizes: 1 / (1 - e**-x),
}

SPEC = Spec(
    computes="y = 1 / (1 + exp(-x))",
    operations=Operations(
        "y = 1 / (1 + exp(-x))", "3 per element: exp, addition, division", lambda sizes: 3 * sizes["n"]
    ),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("normal", normal(std=4.0)),
        InputKind("wide", wide),
        InputKind("special", edge_values()),
        InputKind("tails", tails),
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
