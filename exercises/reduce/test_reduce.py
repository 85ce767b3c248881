"""reduce: y[0] = x[0] + x[1] + ... + x[n-1], any n >= 0; the sum of no elements is 0.

Sums are kept in float. The order of the additions is free: the answer may be off by what rounding can do to a sum of n
terms. Whole numbers whose sum is at most 2^24 need no rounding: these must be exact, and they show a single lost
element. Without float atomics, two calls with the same x agree in every bit. With them, a pass has a note.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.spec import Accumulated, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, cancelling, normal

if TYPE_CHECKING:
    from numpy import ndarray

EXACT = 2**24  # up to here float has all whole numbers

# Around a warp (32), two warps (64, what the last warp adds), and a block (256 or 512 elements); then several blocks,
# and enough for their sums to need more than a block, too (65536 in blocks of 256, 262144 in blocks of 512).
FEW = (*range(4), 31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 511, 512, 513, 769, 1025, 4099)
TREES, TREES_OF_512 = (*FEW, 65_537), (*FEW, 262_145)
# Around a vector of 4, what a block adds in one step (256 or 1024 elements) and in all (2048); then several blocks.
WALKS = (*range(6), 7, 8, 31, 33, 255, 257, 1023, 1025, 2047, 2048, 2049, 4095, 4097, 8193, 12_289, 40_009)


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    return x.sum().reshape(1)


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    return abs(x).sum().reshape(1)


def whole_numbers(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From 1 to 8, or less for large n, so that no partial sum passes 2^24: every element shows.

    Where n is larger than that, 2^24 ones are strewn over zeros, and the last element is always one of them.
    """
    n = sizes["n"]
    if n <= EXACT:
        return rng.integers(shape, 1, min(8, EXACT // max(1, n)))
    drawn = rng.uniform(shape, 0.0, 0.0)
    drawn[rng.integers((EXACT - 1,), 0, n - 1)] = 1.0
    drawn[-1] = 1.0
    return drawn


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Terms of either sign from about 2^-12 to 2^12."""
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


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "the sum of x^2": lambda x, sizes: (x**2).sum().reshape(1),
    "the sum of |x|": lambda x, sizes: abs(x).sum().reshape(1),
    "the mean, the sum over n": lambda x, sizes: x.sum().reshape(1) / sizes["n"],
    "the last element is missing": lambda x, sizes: x[:-1].sum().reshape(1),
    "the first element is missing": lambda x, sizes: x[1:].sum().reshape(1),
    "the first element alone": lambda x, sizes: x[:1].sum().reshape(1),
    "twice the sum": lambda x, sizes: 2 * x.sum().reshape(1),
    "32 times the sum: each lane adds it": lambda x, sizes: 32 * x.sum().reshape(1),
    "the sum of whole vectors of 4 alone": lambda x, sizes: x[: sizes["n"] // 4 * 4].sum().reshape(1),
    "the sum with the opposite sign": lambda x, sizes: -x.sum().reshape(1),
    "half of the sum": lambda x, sizes: 0.5 * x.sum().reshape(1),
}

SPEC = Spec(
    computes="y = sum of x",
    operations=Operations("y = sum of x", "1 per element: the addition", lambda sizes: sizes["n"]),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", (1,), "acc"),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("offset", normal(mean=4.0)),
        InputKind("whole numbers", whole_numbers, exact=True),
        InputKind("cancelling", cancelling(large_and_small)),
        InputKind("one special", one_special),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["n"], magnitude=magnitude),
    named_sizes=shapes(TREES),
    large=shapes((300_007, 16_777_213)),
    work=lambda sizes: 60 * sizes["n"],
)

FIRST_ADDED = replace(SPEC, named_sizes=shapes(TREES_OF_512))

# The grid is bounded, and a block adds more.
WALKED = replace(
    SPEC,
    sizes={"n": Size(0, 40_000)},
    named_sizes=shapes(WALKS),
    large=shapes((4_194_305, 40_000_003)),
    work=lambda sizes: 20 * sizes["n"],
)

SPECS = {
    "reduce_first_add_f32": FIRST_ADDED,
    "reduce_multi_add_f32": WALKED,
    "reduce_shuffle_f32": WALKED,
    "reduce_shuffle_f32x4": WALKED,
    "reduce_unroll_full_f32": FIRST_ADDED,
    "reduce_unroll_last_warp_f32": FIRST_ADDED,
}
