"""hardshrink: y[i] = 0 where |x[i]| <= 0.5, x[i] elsewhere, for all i in 0..n-1, any n >= 0: torch's, lambda = 0.5.

0.5 and -0.5 themselves become 0; nan stays nan. Nothing is computed, so the answer must match to the bit (any nan
stands for any other, and a zero of either sign).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.content.spec import Exact, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, edge_values, normal

if TYPE_CHECKING:
    from numpy import ndarray

LAMBDA = 0.5


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return numpy.where(abs(x) <= LAMBDA, 0.0, x)


def zero_where(chosen: ndarray, x: ndarray) -> ndarray:
    import numpy

    return numpy.where(chosen, 0.0, x)


def ends(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Both ends of the range that becomes 0, with their neighbours in half and in float."""
    half = (0.5 + 2.0**-11, 0.5 - 2.0**-12)  # between powers of two numbers are evenly spaced, wider above 0.5
    single = (0.5 + 2.0**-24, 0.5 - 2.0**-25)
    positive = (LAMBDA, LAMBDA, *half, *single)
    return rng.choice(shape, (*positive, *(-value for value in positive)))


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "x becomes 0 only where |x| < 0.5: the ends themselves must, too": lambda x, sizes: zero_where(abs(x) < LAMBDA, x),
    "all x <= 0.5 become 0: |x| is meant": lambda x, sizes: zero_where(x <= LAMBDA, x),
    "|x| > 0.5 becomes 0, and the others stay": lambda x, sizes: zero_where(abs(x) > LAMBDA, x),
    "softshrink: 0.5 is subtracted": lambda x, sizes: zero_where(abs(x) <= LAMBDA, x - LAMBDA * (2 * (x > 0) - 1)),
    "x itself": lambda x, sizes: x,
    "x stays where x > 0.5 or x < 0.5, for -0.5: all but 0.5 do": lambda x, sizes: zero_where(x == LAMBDA, x),
    "x stays where it is above 0.5 and below -0.5: nowhere": lambda x, sizes: zero_where(x == x, x),
    "all x >= -0.5 become 0: the side above 0.5 is missing": lambda x, sizes: zero_where(x >= -LAMBDA, x),
    "0.5 itself stays": lambda x, sizes: zero_where((x < LAMBDA) & (x >= -LAMBDA), x),
    "-0.5 itself stays": lambda x, sizes: zero_where((x <= LAMBDA) & (x > -LAMBDA), x),
    "nan becomes 0": lambda x, sizes: zero_where(~(abs(x) > LAMBDA), x),
    "|x| in place of x": lambda x, sizes: zero_where(abs(x) <= LAMBDA, abs(x)),
    "0 where |x| <= 1": lambda x, sizes: zero_where(abs(x) <= 1, x),
}

SPEC = Spec(
    computes="y = 0 where |x| <= 0.5, x elsewhere",
    operations=Operations(
        "y = 0 where |x| <= 0.5, x elsewhere", "1 per element: the comparison", lambda sizes: sizes["n"]
    ),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("normal", normal()),
        InputKind("ends", ends),
        InputKind("special", edge_values(std=1.0)),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(),
    # Around every vector (2, 4, 8), warp (32) and block (256, 512, 1024 or 2048 elements) of the family's katas.
    named_sizes=tuple(
        {"n": n} for n in (*range(10), 15, 31, 33, 127, 255, 256, 257, 511, 1023, 1025, 2047, 2048, 2049, 4099)
    ),
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 20 * sizes["n"],
    slice_dim="n",
)
