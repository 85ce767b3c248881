"""swish: y[i] = x[i] / (1 + exp(-x[i])) for all i in 0..n-1, any n >= 0: torch's silu. -inf gives nan, as there.

The answer may be off by what a few roundings do: to the exponential, the sum, the quotient, and to an argument of the
exponential. An exponential that is denormal is rounded to a multiple of the smallest denormal, and
is then multiplied by x. That is all: an answer of 1e-37 must not be 0.
"""

from __future__ import annotations

from math import e, log
from typing import TYPE_CHECKING

from grader.content.spec import Accumulated, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, edge_values, normal

if TYPE_CHECKING:
    from numpy import ndarray

TINY = 2.0**-126  # the smallest normal float


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return x / (1 + numpy.exp(-x))


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    """|y| + |x y'|, y' = s + x s (1 - s) with s = sigmoid(x); and the rounding of a denormal, times x."""
    import numpy

    s = 1 / (1 + numpy.exp(-x))
    return abs(x * s) + abs(x * s * (1 + x * (1 - s))) + TINY * abs(x)


def sweep(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From where the answer is the smallest denormal float to where it is x, exp(-x) passing the largest float."""
    return rng.uniform(shape, -110.0, 110.0)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "sigmoid(x), without the factor x": lambda x, sizes: 1 / (1 + e**-x),
    "x sigmoid(-x)": lambda x, sizes: x / (1 + e**x),
    "powers of 2 in place of e": lambda x, sizes: x / (1 + 2.0**-x),
    "|x| in the exponential": lambda x, sizes: x / (1 + e ** -abs(x)),
    "x (1 + exp(-x)), multiplied in place of divided": lambda x, sizes: x * (1 + e**-x),
    "x sigmoid(1.702 x)": lambda x, sizes: x / (1 + e ** (-1.702 * x)),
    "the factor log2(e) twice": lambda x, sizes: x / (1 + e ** (-x / log(2))),
    "x^2 sigmoid(x)": lambda x, sizes: x * x / (1 + e**-x),
    "x tanh(x)": lambda x, sizes: x * (2 / (1 + e ** (-2 * x)) - 1),
    "x / exp(-x), without 1 +": lambda x, sizes: x / e**-x,
}

SPEC = Spec(
    computes="y = x / (1 + exp(-x))",
    operations=Operations(
        "y = x / (1 + exp(-x))", "3 per element: exp, addition, division", lambda sizes: 3 * sizes["n"]
    ),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("normal", normal(mean=-1.0, std=3.0)),
        InputKind("sweep", sweep),
        InputKind("special", edge_values()),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 4, magnitude=magnitude),
    # Around every vector (2, 4, 8), warp (32) and block (256, 512, 1024 or 2048 elements) of the family's katas.
    named_sizes=tuple(
        {"n": n} for n in (*range(10), 15, 31, 33, 127, 255, 256, 257, 511, 1023, 1025, 2047, 2048, 2049, 4099)
    ),
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 60 * sizes["n"],
    slice_dim="n",
)
