"""first_steps: y[i] = a * x[i] for all i in 0..n-1, any n >= 0, with a = 2.5.

One multiplication, rounded once to the nearest float, as IEEE 754 defines it. So the answer must match to the bit (any
nan stands for any other).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.content.spec import Exact, InputKind, Parameter, Size, Sizes, Spec, Tensor, edge_values, integers, normal

if TYPE_CHECKING:
    from numpy import ndarray

A = 2.5


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    return A * x


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "x itself": lambda x, sizes: x,
    "a + x": lambda x, sizes: A + x,
    "a alone": lambda x, sizes: 0 * x + A,
    "x / a": lambda x, sizes: x / A,
    "x * x": lambda x, sizes: x * x,
    "a cut to a whole number, 2": lambda x, sizes: int(A) * x,
}

SPEC = Spec(
    computes="y = a * x",
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    parameters=(Parameter("a", "float", A),),
    values=(
        InputKind("whole numbers", integers(-100, 100)),
        InputKind("normal", normal(mean=1.0)),
        InputKind("special", edge_values()),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(signed_zeros=True),
    # Around a warp and a block of 256 threads. The last has 1025 blocks: too many for a launch that takes the number of
    # blocks for the number of threads.
    named_sizes=tuple({"n": n} for n in (0, 1, 2, 3, 31, 33, 127, 255, 256, 257, 511, 512, 513, 1023, 1025, 262_145)),
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 20 * sizes["n"],
    slice_dim="n",
)
