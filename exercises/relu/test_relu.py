"""relu: y[i] = max(x[i], 0) for all i in 0..n-1, any n >= 0; nan where x[i] is nan.

Nothing is rounded: the answer is x[i] or 0, to the bit (any nan stands for any other, a zero of either sign for 0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.content.spec import (
    Exact,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    edge_values,
    integers,
    normal,
)

if TYPE_CHECKING:
    from numpy import ndarray


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    return x.clip(min=0.0)


def extremes(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The ends of both formats: the largest numbers, the smallest normal ones, denormals."""
    f32 = (3.0e38, -3.0e38, 1.0e-40, -1.0e-40, 1.2e-38, -1.2e-38)
    f16 = (65504.0, -65504.0, 6.0e-8, -6.0e-8, 6.1e-5, -6.1e-5)
    return rng.choice(shape, (*f32, *f16))


def nan_lost(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return numpy.where(x > 0, x, 0.0)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "min(x, 0)": lambda x, sizes: x.clip(max=0.0),
    "|x|": lambda x, sizes: abs(x),
    "x itself": lambda x, sizes: x,
    "max(-x, 0)": lambda x, sizes: (-x).clip(min=0.0),
    "max(x, 1)": lambda x, sizes: x.clip(min=1.0),
    "nan becomes 0, as a comparison with nan is false": nan_lost,
    "relu6: at most 6": lambda x, sizes: x.clip(0.0, 6.0),
    "1 where x > 0, 0 elsewhere": lambda x, sizes: (x > 0) * 1.0,
    "leaky: 0.01 x below 0": lambda x, sizes: x.clip(0.0) + 0.01 * x.clip(max=0.0),
}

SPEC = Spec(
    computes="y = max(x, 0)",
    operations=Operations("y = max(x, 0)", "1 per element: the maximum", lambda sizes: sizes["n"]),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("normal", normal(mean=0.5)),
        InputKind("whole numbers", integers(-100, 100)),
        InputKind("special", edge_values()),
        InputKind("extremes", extremes),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(),
    # Around every vector (2, 4, 8), warp (32) and block (256, 512, 1024 or 2048 elements) of the family's katas; 40,001
    # because a block for each of so many elements would have more threads than an int can count.
    named_sizes=tuple(
        {"n": n} for n in (*range(10), 15, 31, 33, 127, 255, 256, 257, 511, 1023, 1025, 2047, 2048, 2049, 40_001, 4099)
    ),
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 20 * sizes["n"],
    slice_dim="n",
)
