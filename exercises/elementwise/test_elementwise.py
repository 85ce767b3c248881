"""elementwise: c[i] = a[i] + b[i] for all i in 0..n-1, any n >= 0; elementwise_functor has three functions of its own.

Each result is one operation, rounded once, as IEEE 754 defines it: to the nearest number of the result's dtype, inf,
nan, denormals and the sign of a zero included. So the answer must match to the bit (any nan stands for any other).

elementwise_functor: h[0, i] = p[0, i] + p[1, i], a sum of halves. h[1, i] = x[i], rounded to half. chosen[i] = a[i]
where mask[i] is any byte but 0, otherwise b[i]. The tensors begin at multiples of 16 bytes, the second rows of p and h
wherever n puts them: at a multiple of 16 bytes, of 8, of 4, or only of an element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.spec import (
    Exact,
    Fill,
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


def reference(a: ndarray, b: ndarray, sizes: Sizes) -> ndarray:
    return a + b


def extremes(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The ends of both formats: sums that overflow, sums that are denormal, terms that the other one absorbs."""
    f32 = (3.0e38, -3.0e38, 1.0e-40, -1.0e-40, 1.2e-38, -1.2e-38)
    f16 = (65504.0, -65504.0, 6.0e-8, -6.0e-8, 6.1e-5, -6.1e-5)
    return rng.choice(shape, (*f32, *f16, 1.0, -1.0, 1.0009765625, 2048.0))


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "a - b": lambda a, b, sizes: a - b,
    "a * b": lambda a, b, sizes: a * b,
    "a + a, b is not used": lambda a, b, sizes: a + a,
    "b + b, a is not used": lambda a, b, sizes: b + b,
    "a alone": lambda a, b, sizes: a,
    "b alone": lambda a, b, sizes: b,
}

SPEC = Spec(
    computes="c = a + b",
    operations=Operations("c = a + b", "1 per element: the addition", lambda sizes: sizes["n"]),
    inputs=(Tensor("a", ("n",)), Tensor("b", ("n",))),
    outputs=(Tensor("c", ("n",)),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("normal", normal(mean=1.0)),
        InputKind("whole numbers", integers(-100, 100)),
        InputKind("special", edge_values()),
        InputKind("extremes", extremes),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(signed_zeros=True),
    # Around every vector (2, 4, 8), warp (32) and block (256, 512, 1024 or 2048 elements) of the family's katas. The
    # last has 1025 blocks of 256: too many for a launch that takes the number of blocks for the number of threads.
    named_sizes=tuple(
        {"n": n} for n in (*range(10), 15, 31, 33, 127, 255, 256, 257, 511, 1023, 1025, 2047, 2048, 2049, 4099, 262_145)
    ),
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 20 * sizes["n"],
)


def functor_reference(
    x: ndarray, p: ndarray, mask: ndarray, a: ndarray, b: ndarray, sizes: Sizes
) -> tuple[ndarray, ndarray]:
    import numpy

    return numpy.stack((p[0] + p[1], x)), numpy.where(mask != 0, a, b)


def any_byte(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """As often 0 as not, and where it is not 0, any other byte: in some of these the lowest bit is 0."""
    return rng.choice(shape, (0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 128.0, 255.0))


def of_floats(fill: Fill) -> dict[str, Fill]:
    return {"x": fill, "p": fill, "mask": any_byte, "a": fill, "b": fill}


FUNCTOR = replace(
    SPEC,
    computes="h[0] = p[0] + p[1], h[1] = x in half, chosen = mask ? a : b",
    operations=Operations(
        "h[0] = p[0] + p[1], h[1] = x in half, chosen = a where mask != 0, b elsewhere",
        "2 per column: the addition of p[0] and p[1], the comparison of mask",
        lambda sizes: 2 * sizes["n"],
    ),
    inputs=(
        Tensor("x", ("n",)),
        Tensor("p", (2, "n"), "f16"),
        Tensor("mask", ("n",), "u8"),
        Tensor("a", ("n",)),
        Tensor("b", ("n",)),
    ),
    outputs=(Tensor("h", (2, "n"), "f16"), Tensor("chosen", ("n",))),
    values=(
        InputKind("normal", of_floats(normal(mean=1.0))),
        InputKind("whole numbers", of_floats(integers(-100, 100))),
        InputKind("special", of_floats(edge_values())),
        InputKind("extremes", of_floats(extremes)),
    ),
    # The grid is no larger than the card, here a small one. So its size does not grow with n.
    named_sizes=(*SPEC.named_sizes[:-1], {"n": 30_001}),
    reference=functor_reference,
    near_misses={
        "chosen is a where the mask is 0": lambda x, p, mask, a, b, sizes: functor_reference(x, p, mask, b, a, sizes),
        "the mask's lowest bit alone is looked at": lambda x, p, mask, a, b, sizes: functor_reference(
            x, p, mask % 2, a, b, sizes
        ),
        "h[0] = p[0]": lambda x, p, mask, a, b, sizes: functor_reference(x, p * [[1], [0]], mask, a, b, sizes),
    },
    # Three launches.
    work=lambda sizes: 60 * sizes["n"],
    slice_dim="n",
)

SPECS = {"elementwise_functor": FUNCTOR}
