"""block_all_reduce: y[0] = x[0] + x[1] + ... + x[n-1], any n >= 0; the sum of no elements is 0.

The order of the additions is free, and with float atomics it differs from call to call. So the answer may be off by
what rounding can do to a sum of n terms, in the precision that the kata's name ends in. Whole numbers whose sum fits
the significant bits need no rounding: these must be exact, and they show a single lost element.

block_all_reduce_*_f16, block_all_reduce_*_bf16: only a tree-shaped sum means anything in 16 bits. The bound counts the
additions that an element goes through in a tree, not n.

block_all_reduce_i8*: sums of integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

from grader.content.spec import (
    Accumulated,
    Exact,
    Fill,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    normal,
)

if TYPE_CHECKING:
    from numpy import ndarray

EXACT = {"f32": 2**24, "f16": 2**11, "bf16": 2**8}  # up to here each format has all whole numbers
SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "fp8_e4m3": 2.0**-9, "fp8_e5m2": 2.0**-16}  # denormal number

# Around a vector of 2 or 4, a warp (32), and a block (256, 512 or 1024 elements); then several blocks.
SHORT = (*range(6), 7, 31, 32, 33, 63, 127, 255, 256, 257, 511, 1023, 1024, 1025, 1027, 2049, 3001, 4099)
# Around a vector of 4, 8 or 16, the elements that a block of a grid-stride kernel loads in one step (256, 1024, 2048 or
# 4096) and in four; then several blocks.
LONG = (*range(6), 7, 8, 9, 15, 16, 17, 33, 255, 257, 1025, 2049, 4095, 4097, 8191, 8193, 12_289, 16_387, 40_009)


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    return x.sum().reshape(1)


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    return abs(x).sum().reshape(1)


def every_element(sizes: Sizes) -> int:
    return sizes["n"]


def depth_of_tree(sizes: Sizes) -> int:
    """Additions that an element goes through: some alone, 5 in its warp, 5 across warps, then one for each block."""
    return 20 + sizes["n"] // 256


def whole_numbers(total: int, *, most: int = 8, unit: float = 1.0) -> Fill:
    """From 1 to ``most``, or less for large n, in units, so that no partial sum passes ``total``: every element shows.

    Where n is larger than that, ``total`` ones are strewn over zeros, and the last element is always one of them.
    """

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        n = sizes["n"]
        if n <= total:
            return rng.integers(shape, 1, min(most, total // max(1, n))) * unit
        drawn = rng.uniform(shape, 0.0, 0.0)
        drawn[rng.integers((total - 1,), 0, n - 1)] = unit
        drawn[-1] = unit
        return drawn

    return fill


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Terms of either sign from about 2^-12 to 2^12."""
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -12, 12)


def bounded_offset(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Around 4, or less for large n: the sum stays near 16384, a quarter of what a half can hold."""
    mean = min(4.0, 16384 / max(1, sizes["n"]))
    return rng.normal(shape, mean=mean, std=mean / 4)


def bounded_large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Terms of either sign over eight powers of two, smaller ones for large n: their sum stays in the range of half."""
    scale = min(1.0, 200 / sqrt(max(1, sizes["n"])))
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -4, 4) * scale


def one_special(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Normal draws, and somewhere among them inf, -inf, nan or -0."""
    drawn = rng.normal(shape)
    if sizes["n"] > 0:
        drawn[rng.integers((1,), 0, sizes["n"] - 1)] = rng.choice(
            (1,), (float("inf"), float("-inf"), float("nan"), -0.0)
        )
    return drawn


def bytes_in_range(low: int, high: int) -> Fill:
    """Whole numbers from low to high, or closer to 0 for n so large that their sum would not fit 32 bits."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        most = (2**31 - 1) // max(1, sizes["n"])
        return rng.integers(shape, max(-most, min(low, most)), max(-most, min(high, most)))

    return fill


def shapes(sizes: tuple[int, ...]) -> tuple[Sizes, ...]:
    return tuple({"n": n} for n in sizes)


def whole_vectors(x: ndarray, width: int) -> ndarray:
    return x[: len(x) // width * width].reshape(-1, width)


def unsigned(x: ndarray, width: int) -> ndarray:
    """x with the bytes of its whole vectors from 0 to 255."""
    read = x.copy()
    read[: len(x) // width * width] %= 256
    return read


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
    "the sum of whole vectors of 2 alone": lambda x, sizes: x[: sizes["n"] // 2 * 2].sum().reshape(1),
    "the sum of whole vectors of 4 alone": lambda x, sizes: x[: sizes["n"] // 4 * 4].sum().reshape(1),
    "the sum of whole vectors of 8 alone": lambda x, sizes: x[: sizes["n"] // 8 * 8].sum().reshape(1),
    "the sum of whole vectors of 16 alone": lambda x, sizes: x[: sizes["n"] // 16 * 16].sum().reshape(1),
    "the sum with the opposite sign": lambda x, sizes: -x.sum().reshape(1),
    "half of the sum": lambda x, sizes: 0.5 * x.sum().reshape(1),
}


def sum_in(
    acc: str,
    *,
    values: tuple[InputKind, ...],
    most: int = 8,
    terms: Callable[[Sizes], int] = every_element,
) -> Spec:
    """The spec of the sums that are kept in ``acc``, for kernels with a block for every few elements."""
    return Spec(
        computes="y = sum of x",
        operations=Operations("y = sum of x", "1 per element: the addition", lambda sizes: sizes["n"]),
        inputs=(Tensor("x", ("n",)),),
        outputs=(Tensor("y", (1,), "acc"),),
        sizes={"n": Size(0, 5000)},
        values=(
            values[0],
            InputKind("whole numbers", whole_numbers(EXACT[acc], most=most), exact=True),
            *values[1:],
            InputKind("one special", one_special),
        ),
        reference=reference,
        near_misses=NEAR_MISSES,
        tolerance=Accumulated(terms=terms, magnitude=magnitude),
        named_sizes=shapes(SHORT),
        large=shapes((300_007, 16_777_213)),
        work=lambda sizes: 60 * sizes["n"],
        deterministic=False,
    )


def in_float(*, most: int = 8) -> Spec:
    return sum_in(
        "f32",
        values=(InputKind("offset", normal(mean=4.0)), InputKind("cancelling", cancelling(large_and_small))),
        most=most,
    )


def in_half(elem: str, acc: str) -> Spec:
    """Half or bfloat16: values whose sum stays in range, and multiples of the smallest denormal, which are exact."""
    return sum_in(
        acc,
        values=(
            InputKind("offset", bounded_offset),
            InputKind("cancelling", cancelling(bounded_large_and_small)),
            InputKind("denormals", whole_numbers(EXACT[acc], unit=SMALLEST[elem]), exact=True),
        ),
        terms=depth_of_tree,
    )


def walked(spec: Spec, *, a_block: int, ordered: bool = False) -> Spec:
    """The same for a grid-stride kernel; ``ordered`` where no atomics decide the order.

    A block of the solution takes ``a_block`` elements or more. The last shapes have more blocks than a block has
    threads, and more than 2048, the most that the solution launches.
    """
    return replace(
        spec,
        sizes={"n": Size(0, 40_000)},
        named_sizes=shapes((*LONG, 2 * 256 * a_block + 5, 2048 * a_block + 3 * a_block // 2 + 7)),
        large=shapes((1_000_003, 40_000_003)),
        work=lambda sizes: 20 * sizes["n"],
        deterministic=ordered,
    )


SPEC = in_float()

IN_INT = replace(
    SPEC,
    values=(
        InputKind("whole numbers", bytes_in_range(1, 8)),
        InputKind("whole range", bytes_in_range(-128, 127)),
        InputKind("all lowest", bytes_in_range(-128, -128)),
        InputKind("all highest", bytes_in_range(127, 127)),
    ),
    near_misses={
        **NEAR_MISSES,
        "each byte is read as unsigned: -1 counts 255": lambda x, sizes: unsigned(x, 1).sum().reshape(1),
        "the bytes of whole words of 4 are read as unsigned": lambda x, sizes: unsigned(x, 4).sum().reshape(1),
        "the bytes of whole vectors of 16 are read as unsigned": lambda x, sizes: unsigned(x, 16).sum().reshape(1),
        "sums of 4 bytes are kept in a byte": lambda x, sizes: (
            ((whole_vectors(x, 4).sum(axis=1) + 128) % 256 - 128).sum() + x[len(x) // 4 * 4 :].sum()
        ).reshape(1),
        "the sum is kept in a byte": lambda x, sizes: (x.sum().reshape(1) + 128) % 256 - 128,
        "the sum is kept in 16 bits": lambda x, sizes: (x.sum().reshape(1) + 2**15) % 2**16 - 2**15,
    },
    tolerance=Exact(),
    deterministic=True,
)

# Whole numbers that need all bits of the element show a pair that was added in the element's own type.
SPECS = {
    "block_all_reduce_f32_grid_stride_f32": walked(SPEC, a_block=1024),
    "block_all_reduce_f32x4_f32": walked(SPEC, a_block=4096),
    "block_all_reduce_f32x4_last_block_f32": replace(walked(SPEC, a_block=4096, ordered=True), repeatable=True),
    "block_all_reduce_f16_f16": in_half("f16", "f16"),
    "block_all_reduce_f16_f32": in_float(most=2**11),
    "block_all_reduce_f16x2_f16": in_half("f16", "f16"),
    "block_all_reduce_f16x2_f32": in_float(most=2**11),
    "block_all_reduce_f16x2_last_block_f16": walked(in_half("f16", "f16"), a_block=2048, ordered=True),
    "block_all_reduce_f16x8_pack_f16": walked(in_half("f16", "f16"), a_block=8192, ordered=True),
    "block_all_reduce_f16x8_pack_f32": walked(in_float(most=2**11), a_block=8192),
    "block_all_reduce_bf16_bf16": in_half("bf16", "bf16"),
    "block_all_reduce_bf16_f32": in_float(most=2**8),
    "block_all_reduce_bf16x2_bf16": in_half("bf16", "bf16"),
    "block_all_reduce_bf16x2_f32": in_float(most=2**8),
    "block_all_reduce_bf16x8_pack_bf16": walked(in_half("bf16", "bf16"), a_block=8192, ordered=True),
    "block_all_reduce_bf16x8_pack_f32": walked(in_float(most=2**8), a_block=8192),
    "block_all_reduce_fp8_e4m3_f16": in_half("fp8_e4m3", "f16"),
    "block_all_reduce_fp8_e5m2_f16": in_half("fp8_e5m2", "f16"),
    "block_all_reduce_fp8_e4m3x16_pack_f16": walked(in_half("fp8_e4m3", "f16"), a_block=16384, ordered=True),
    "block_all_reduce_fp8_e5m2x16_pack_f16": walked(in_half("fp8_e5m2", "f16"), a_block=16384, ordered=True),
    "block_all_reduce_i8_i32": IN_INT,
    "block_all_reduce_i8x16_pack_i32": walked(IN_INT, a_block=16384, ordered=True),
}
