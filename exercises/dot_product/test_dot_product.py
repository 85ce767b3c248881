"""dot_product: y[0] = a[0] * b[0] + ... + a[n-1] * b[n-1], any n >= 0; the sum of no products is 0.

Products and sums are kept in float. The order of the additions is free, with float atomics it differs from call to
call, and a product may be fused with its addition: the answer may be off by what rounding can do to a sum of n
products. The product of two halves is exact in float. Sums of whole numbers up to 2^24 need no rounding: these must be
exact, and they show a single lost product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isqrt
from typing import TYPE_CHECKING

from grader.content.spec import Accumulated, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, normal

if TYPE_CHECKING:
    from numpy import ndarray

# Around a vector of 2 or 4, a warp (32), and a block (256 or 512 products); then several blocks.
SHORT = (*range(6), 7, 31, 32, 33, 63, 127, 255, 256, 257, 511, 513, 1023, 1024, 1025, 2049, 3001, 4099)
# Around a vector of 4 or 8, the products that a block of a grid-stride kernel computes in one step (1024 or 2048) and
# in two or four; then several blocks.
LONG = (*range(6), 7, 8, 9, 15, 17, 31, 33, 255, 257, 1023, 1025, 2047, 2049, 4095, 4097, 8193, 12_289, 20_011)


def reference(a: ndarray, b: ndarray, sizes: Sizes) -> ndarray:
    return (a * b).sum().reshape(1)


def magnitude(a: ndarray, b: ndarray, sizes: Sizes) -> ndarray:
    return abs(a * b).sum().reshape(1)


def whole_numbers(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From 1 up to 2047, or less for large n, so that no partial sum of products passes 2^24: every product shows.

    Halves hold all of them. Products of two need up to 22 bits and pass 65504, where half ends.
    """
    return rng.integers(shape, 1, min(2047, isqrt(2**24 // max(1, sizes["n"]))))


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Factors of either sign from about 2^-12 to 2^12."""
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -12, 12)


def one_special(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Normal draws, and somewhere among them inf, -inf, nan or -0."""
    drawn = rng.normal(shape)
    if sizes["n"] > 0:
        drawn[rng.integers((1,), 0, sizes["n"] - 1)] = rng.choice(
            (1,), (float("inf"), float("-inf"), float("nan"), -0.0)
        )
    return drawn


def shapes(sizes: tuple[int, ...]) -> tuple[Sizes, ...]:
    return tuple({"n": n} for n in sizes)


def rounded_products(vec: int) -> Callable[[ndarray, ndarray, Sizes], ndarray]:
    """The sum of products that are rounded to half, but for those after the last whole vector."""

    def of_inputs(a: ndarray, b: ndarray, sizes: Sizes) -> ndarray:
        import numpy

        products, whole = a * b, a.size // vec * vec
        products[:whole] = products[:whole].astype(numpy.float16)
        return products.sum().reshape(1)

    return of_inputs


def in_vectors(width: int) -> Callable[..., ndarray]:
    """The products of whole vectors alone."""
    return lambda a, b, sizes: reference(a[: len(a) // width * width], b[: len(b) // width * width], sizes)


def tail_from_front(a: ndarray, b: ndarray, width: int) -> ndarray:
    """The products of as many pairs as the tail has, from the one whose index is the number of vectors."""
    first, count = len(a) // width, len(a) % width
    return (a[first : first + count] * b[first : first + count]).sum().reshape(1)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "the sum of a * a": lambda a, b, sizes: reference(a, a, sizes),
    "the sum of b * b": lambda a, b, sizes: reference(b, b, sizes),
    "the sum of a + b": lambda a, b, sizes: (a + b).sum().reshape(1),
    "the sum of a": lambda a, b, sizes: a.sum().reshape(1),
    "the sum of b": lambda a, b, sizes: b.sum().reshape(1),
    "each product is rounded to half": rounded_products(1),
    "each product of a whole vector of 2 is rounded to half": rounded_products(2),
    "each product of a whole vector of 8 is rounded to half": rounded_products(8),
    "the product of both sums": lambda a, b, sizes: (a.sum() * b.sum()).reshape(1),
    "the last pair is missing": lambda a, b, sizes: reference(a[:-1], b[:-1], sizes),
    "the first pair is missing": lambda a, b, sizes: reference(a[1:], b[1:], sizes),
    "the mean, the sum over n": lambda a, b, sizes: reference(a, b, sizes) / sizes["n"],
    "the products of whole vectors of 4 alone": in_vectors(4),
    "the products of whole vectors of 8 alone": in_vectors(8),
    "twice the sum": lambda a, b, sizes: 2 * reference(a, b, sizes),
    "32 times the sum: each lane adds it": lambda a, b, sizes: 32 * reference(a, b, sizes),
    "b from the last to the first": lambda a, b, sizes: reference(a, b[::-1], sizes),
    "the tail after whole vectors of 8 begins at n / 8, not at n / 8 * 8": lambda a, b, sizes: (
        in_vectors(8)(a, b, sizes) + tail_from_front(a, b, 8)
    ),
    "the tail after whole vectors of 4 begins at n / 4, not at n / 4 * 4": lambda a, b, sizes: (
        in_vectors(4)(a, b, sizes) + tail_from_front(a, b, 4)
    ),
}

SPEC = Spec(
    computes="y = sum of a * b",
    operations=Operations(
        "y = sum of a * b", "2 per element: a multiplication and an addition", lambda sizes: 2 * sizes["n"]
    ),
    inputs=(Tensor("a", ("n",)), Tensor("b", ("n",))),
    outputs=(Tensor("y", (1,), "acc"),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("offset", normal(mean=4.0)),
        InputKind("whole numbers", whole_numbers, exact=True),
        InputKind("large and small", large_and_small),
        InputKind("one special", {"a": normal(mean=1.0), "b": one_special}),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["n"], magnitude=magnitude),
    named_sizes=shapes(SHORT),
    # At most 2^24 products, so that the whole numbers stay exact.
    large=shapes((300_007, 16_777_213)),
    work=lambda sizes: 60 * sizes["n"],
    deterministic=False,
)

# A block of a grid-stride kernel computes more.
WALKED = replace(
    SPEC,
    sizes={"n": Size(0, 20_000)},
    named_sizes=shapes((*LONG, 2_100_007)),  # more blocks than a block has threads
    large=shapes((1_000_003, 16_777_213)),
    work=lambda sizes: 20 * sizes["n"],
)

SPECS = {
    "dot_product_f32x4": WALKED,
    # About a hundred blocks, called twice: the same bits can then not be chance.
    "dot_product_f32x4_last_block": replace(
        WALKED, deterministic=True, repeatable=True, named_sizes=shapes((*LONG, 99_991, 2_100_007))
    ),
    "dot_product_f16x8_pack_f32": WALKED,
}
