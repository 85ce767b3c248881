"""wgmma_types: C = A @ B^T on Hopper's Tensor Cores in types other than half, A [M, K], B [N, K], C [M, N], row-major.

C[i, j] = sum over k of A[i, k] * B[j, k]. The order of the K additions is free.

wgmma_best_tn_bf16: bf16, sums in float, rounded once.

wgmma_tf32_tn: float. Each element is first rounded to the nearest number with 11 significant bits; no element of a case
lies between two of them. Sums in float.

wgmma_fp8_tn: e4m3, C bf16. The Tensor Cores add 32 products and the sum before them at a time. Each of these 33 terms
loses what lies more than 13 bits below the exponent of the largest of them, and so does the new sum. The largest term
is at most the sum of all sizes, m. So a step loses at most 34 * 2^-13 m, and K / 32 steps that many times as much.
Whole numbers of 14 bits are exact.

wgmma_fp8_promoted_tn: the same product, but after 128 k, at the latest, a sum continues in float. So at most four steps
lose anything of a product, for any K: 136 * 2^-13 m.

wgmma_fp8_block_scaled_tn: C[m, n] = sum over blocks b of 128 k of sa[b, m] sb[n / 128, b] (sum of A[m, k] B[n, k] over
the block), with the same bound for m, the sum of the sizes of scaled products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.fragments import other_scales
from grader.content.spec import (
    Accumulated,
    Fill,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    doubled,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

UNIT = 2.0**-24  # roundoff of f32
STEP, LOST = 32, 34 * 2.0**-13  # k of a product of e4m3; what its 33 terms and their sum lose, of the largest of them
BLOCK = 128  # k after which sums of e4m3 continue in float, and that share their scales


# -- values ----------------------------------------------------------------------------------------------------------


def signs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """1 and -1: every partial sum is a whole number, and no product is 0."""
    return rng.choice(shape, (1.0, -1.0))


def one_of(*values: float) -> Fill:
    return lambda rng, shape, sizes: rng.choice(shape, values)


def between(low: float, high: float) -> Fill:
    return lambda rng, shape, sizes: rng.uniform(shape, low, high)


def powers(low: int, high: int) -> Fill:
    """Powers of two from 2^low to 2^high: a product with one of them is exact."""
    return lambda rng, shape, sizes: 2.0 ** rng.integers(shape, low, high)


def scaled_normal(low: int, high: int) -> Fill:
    """Normal draws times powers of two from 2^low to 2^high."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        return rng.repeated(shape, lambda count: rng.normal([count]) * 2.0 ** rng.integers([count], low, high))

    return fill


def odd(low: int, high: int) -> Fill:
    """Odd numbers from ``low`` to ``high`` of either sign, in some 200 places of every row and zeros elsewhere."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        def draw(count: int) -> ndarray:
            drawn = (2 * rng.integers([count], low // 2, high // 2) + 1) * rng.choice([count], (1.0, -1.0))
            return drawn * (rng.uniform([count], 0.0, 1.0) < 200.0 / shape[-1])

        return rng.repeated(shape, draw)

    return fill


def whole_numbers(low: int, high: int) -> Fill:
    return lambda rng, shape, sizes: rng.integers(shape, low, high)


# -- 16 bits ---------------------------------------------------------------------------------------------------------


def product(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return A @ B.T


def product_of_sizes(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return abs(A) @ abs(B).T


def torch_mm(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, through torch; it keeps the sums in f32, and reads B as it lies."""
    import torch

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return lambda: torch.mm(A, B.T, out=C)


def shape(M: int, N: int, K: int) -> Sizes:
    return {"M": M, "N": N, "K": K}


def near_misses(step: int, block: int) -> dict[str, Callable[..., ndarray]]:
    """What is computed in place of it by a usual mistake, with ``step`` k per wgmma and ``block`` per slice."""
    return {
        "the last k is missing": lambda A, B, sizes: A[:, :-1] @ B[:, :-1].T,
        f"only the first {step} k": lambda A, B, sizes: A[:, :step] @ B[:, :step].T,
        f"only the first {block} k": lambda A, B, sizes: A[:, :block] @ B[:, :block].T,
        f"only whole slices of {block} k": lambda A, B, sizes: (
            A[:, : sizes["K"] // block * block] @ B[:, : sizes["K"] // block * block].T
        ),
        "twice the product": lambda A, B, sizes: 2 * (A @ B.T),
        "A @ B, B as if it were stored by rows": lambda A, B, sizes: A @ B.reshape(sizes["K"], sizes["N"]),
    }


# A block's tile is 128 x 256, a cluster's 256 x 256, a slice of K 64, the ring 4 stages. Less than a tile; one past and
# one short of a tile in M, 8 past and 8 short in N; K of part of a slice, of one, of fewer and more slices than a ring
# has stages, and more than twice as many. More tiles than there are clusters: a cluster computes several. On a card of
# two or three SMs that is so of two tiles, which go round the ring; on an H200 of many rows, with fewer slices than a
# tile has parts that are stored. Two strips of tiles, the second one lower than the first, of one slice.
BF16 = Spec(
    computes="C = A @ B^T",
    operations=Operations(
        "C = A @ B^T", "2 per product: a multiplication and an addition, for each of M * N * K products"
    ),
    inputs=(Tensor("A", ("M", "K")), Tensor("B", ("N", "K"))),
    outputs=(Tensor("C", ("M", "N")),),
    sizes={"M": Size(1, 200), "N": Size(1, 300), "K": Size(1, 200)},
    values=(
        InputKind("offset", normal(mean=1.0)),
        InputKind("signs", signs, exact=True),
        InputKind("cancelling", {"A": cancelling(scaled_normal(-4, 4)), "B": doubled(scaled_normal(-4, 4))}),
        InputKind("rounded once", odd(15, 31), exact=True),
        # Up to 2^84, and sums down to nothing of half's range.
        InputKind("beyond the range of half", {"A": scaled_normal(20, 40), "B": scaled_normal(20, 40)}),
        InputKind("below the range of half", {"A": scaled_normal(-40, -20), "B": scaled_normal(-40, -20)}),
    ),
    reference=product,
    near_misses=near_misses(16, 64),
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=product_of_sizes),
    named_sizes=(
        shape(1, 8, 8),
        shape(64, 64, 16),
        shape(17, 24, 64),
        shape(63, 56, 72),
        shape(65, 72, 136),
        shape(129, 8, 264),
        shape(3, 264, 320),
        shape(130, 136, 56),
        shape(8, 16, 584),
        shape(385, 8, 200),
        shape(8, 16, 840),
        shape(17_025, 200, 72),
        shape(2600, 520, 8),
    ),
    large=(
        shape(1023, 1032, 1032),
        shape(7, 8, 20_008),
        shape(70_001, 8, 72),
        shape(1, 70_008, 8),
        shape(1024, 1024, 1024),
    ),
    work=lambda sizes: 4 * sizes["M"] * sizes["N"] * sizes["K"],
    flops=lambda sizes: 2 * sizes["M"] * sizes["N"] * sizes["K"],
    slice_dim="M",
    baselines={"torch.mm": torch_mm},
)


# -- wgmma_tf32_tn ---------------------------------------------------------------------------------------------------


def rounded(x: ndarray) -> ndarray:
    """The nearest numbers with 11 significant bits of float64 that hold float32 and none between two of them: TF32."""
    import numpy

    bits = x.astype(numpy.float32).view(numpy.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(numpy.float32).astype(numpy.float64)


def cut(x: ndarray) -> ndarray:
    """Rounded towards zero, as a Tensor Core takes what is not rounded before."""
    import numpy

    return (x.astype(numpy.float32).view(numpy.int32) & ~0x1FFF).view(numpy.float32).astype(numpy.float64)


def untied(fill: Fill) -> Fill:
    """With the last bit of every float32 set, so that none lies in the middle of two with fewer bits."""

    def with_last_bit(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        bits = fill(rng, shape, sizes).astype(numpy.float32).view(numpy.int32) | 1
        return bits.view(numpy.float32).astype(numpy.float64)

    return with_last_bit


def just_below(fill: Fill) -> Fill:
    """Whole numbers times 1 - 2^-18. The whole number is the nearest one that has 11 bits."""
    return lambda rng, shape, sizes: fill(rng, shape, sizes) * (1.0 - 2.0**-18)


def of_rounded(of: Callable[..., ndarray]) -> Callable[..., ndarray]:
    return lambda A, B, sizes: of(rounded(A), rounded(B), sizes)


def torch_mm_tf32(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, through torch, on Tensor Cores: products of f32 elements as TF32, sums in f32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    return lambda: torch.mm(A, B.T, out=C)


TF32 = replace(
    BF16,
    outputs=(Tensor("C", ("M", "N"), "acc"),),
    values=(
        InputKind("offset", untied(normal(mean=1.0))),
        InputKind("signs", signs, exact=True),
        InputKind(
            "cancelling", {"A": untied(cancelling(scaled_normal(-4, 4))), "B": untied(doubled(scaled_normal(-4, 4)))}
        ),
        InputKind("just below whole numbers", just_below(odd(15, 31)), exact=True),
        InputKind("beyond the range of half", untied(scaled_normal(20, 40))),
    ),
    reference=of_rounded(product),
    near_misses={
        **{name: of_rounded(miss) for name, miss in near_misses(8, 32).items()},
        "13 bits of each element are cut off, not rounded": lambda A, B, sizes: cut(A) @ cut(B).T,
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=of_rounded(product_of_sizes)),
    # The same with half of the k: a slice is 32 of them.
    named_sizes=(
        shape(1, 4, 4),
        shape(64, 64, 8),
        shape(17, 12, 32),
        shape(63, 60, 36),
        shape(65, 68, 68),
        shape(129, 4, 132),
        shape(3, 260, 160),
        shape(130, 132, 28),
        shape(8, 12, 292),
        shape(385, 4, 100),
        shape(8, 12, 420),
        shape(17_025, 200, 36),
        shape(2600, 520, 4),
    ),
    large=(
        shape(1023, 1028, 1028),
        shape(7, 4, 20_004),
        shape(70_001, 4, 36),
        shape(1, 70_004, 4),
        shape(1024, 1024, 1024),
    ),
    baselines={"torch.mm_tf32": torch_mm_tf32},
)


# -- e4m3 ------------------------------------------------------------------------------------------------------------


def torch_scaled_mm(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLASLt in fp8, its sums as they come out of the Tensor Cores; both scales are 1."""
    import torch

    one = torch.ones((), device=A.device)
    return lambda: torch._scaled_mm(
        A, B.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True, out=C
    )


def torch_scaled_mm_promoted(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLASLt in fp8, its sums continued in float; both scales are 1."""
    import torch

    one = torch.ones((), device=A.device)
    return lambda: torch._scaled_mm(
        A, B.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False, out=C
    )


def torch_mm_bf16(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS with both matrices as bf16, which are made before the clock runs."""
    import torch

    left, right = A.to(torch.bfloat16), B.to(torch.bfloat16)
    return lambda: torch.mm(left, right.T, out=C)


def plain_loss(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    """What all steps may lose, in roundoffs of f32."""
    steps = -(-sizes["K"] // STEP)
    result: ndarray = steps * LOST / UNIT * product_of_sizes(A, B, sizes)
    return result


def promoted_loss(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    """What the steps of 128 k may lose, in roundoffs of f32."""
    steps = min(BLOCK // STEP, -(-sizes["K"] // STEP))
    result: ndarray = steps * LOST / UNIT * product_of_sizes(A, B, sizes)
    return result


# Normal draws, of which a sum of 32 terms or more is seldom small.
E4M3 = normal(mean=0.5, std=2.0)

# Twice the k of BF16: a slice is 128 of them, and an element is a byte.
FP8 = replace(
    BF16,
    outputs=(Tensor("C", ("M", "N"), "bf16"),),
    values=(
        InputKind("offset", E4M3),
        InputKind("signs", signs, exact=True),
        # Up to 14 bits, of which bf16 keeps 8.
        InputKind("rounded once", odd(9, 15), exact=True),
        # The largest product is 200 704, beyond the range of half, and so is each sum.
        InputKind("largest", {"A": one_of(448.0, 416.0), "B": one_of(448.0, 416.0)}),
        # From 2^-9, the smallest number, up: most are denormal in e4m3.
        InputKind("small", {"A": normal(std=2.0**-7), "B": normal(mean=1.0)}),
    ),
    near_misses=near_misses(32, 128),
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=plain_loss, c=1.0),
    named_sizes=(
        shape(1, 8, 16),
        shape(64, 64, 32),
        shape(17, 24, 128),
        shape(63, 56, 144),
        shape(65, 72, 272),
        shape(129, 8, 528),
        shape(3, 264, 640),
        shape(130, 136, 112),
        shape(8, 16, 1168),
        shape(257, 8, 400),
        shape(8, 16, 1680),
        shape(17_025, 200, 144),
        shape(2600, 520, 16),
    ),
    large=(
        shape(1023, 1032, 1040),
        shape(7, 8, 12_016),
        shape(70_001, 8, 144),
        shape(1, 70_008, 16),
        shape(1024, 1024, 1024),
    ),
    baselines={"torch._scaled_mm": torch_scaled_mm, "torch.mm": torch_mm_bf16},
)

# Sums of 128 products of up to 121 have 14 bits, longer ones have more.
PROMOTED = replace(
    FP8,
    values=(*FP8.values[:3], InputKind("whole numbers", whole_numbers(8, 11), exact=True), *FP8.values[3:]),
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=promoted_loss, c=1.0),
    named_sizes=(*FP8.named_sizes, shape(8, 16, 2064)),
    baselines={"torch._scaled_mm": torch_scaled_mm_promoted, "torch.mm": torch_mm_bf16},
)


# -- wgmma_fp8_block_scaled_tn ---------------------------------------------------------------------------------------


def scaled(A: ndarray, sa: ndarray, B: ndarray, sb: ndarray, sizes: Sizes) -> ndarray:
    rows = (A * sa.T[..., None]).reshape(len(A), -1)
    columns = (B * sb[:, None, :, None]).reshape(-1, rows.shape[1])
    result: ndarray = (rows @ columns.T).reshape(len(A), -1, BLOCK)
    return result


def scaled_loss(A: ndarray, sa: ndarray, B: ndarray, sb: ndarray, sizes: Sizes) -> ndarray:
    """What the four steps of a block may lose, in roundoffs of f32."""
    result: ndarray = BLOCK // STEP * LOST / UNIT * scaled(abs(A), abs(sa), abs(B), abs(sb), sizes)
    return result


def without(scales: ndarray, place: int) -> ndarray:
    """The scales of one block are 0."""
    kept = scales.copy()
    kept[place] = 0
    return kept


def torch_scaled_mm_blocks(
    A: torch.Tensor, sa: torch.Tensor, B: torch.Tensor, sb: torch.Tensor, C: torch.Tensor
) -> Callable[[], object]:
    """cuBLASLt in fp8 with the same scales, which it has from CUDA 12.9 on."""
    import torch

    left, right, out = A.reshape(len(A), -1), B.reshape(-1, A[0].numel()), C.view(len(A), -1)
    return lambda: torch._scaled_mm(left, right.T, scale_a=sa.T, scale_b=sb.T, out_dtype=torch.bfloat16, out=out)


def torch_mm_bf16_blocks(
    A: torch.Tensor, sa: torch.Tensor, B: torch.Tensor, sb: torch.Tensor, C: torch.Tensor
) -> Callable[[], object]:
    """cuBLAS with both matrices as bf16, without their scales; they are made before the clock runs."""
    return torch_mm_bf16(A.reshape(len(A), -1), B.reshape(-1, A[0].numel()), C.view(len(A), -1))


def block_shape(M: int, blocks_n: int, blocks_k: int) -> Sizes:
    return {"M": M, "blocks_n": blocks_n, "blocks_k": blocks_k}


BLOCK_SCALED = Spec(
    computes="C[m, n] = sum over blocks b of sa[b, m] sb[n / 128, b] (sum of A[m, k] B[n, k] over the 128 k of b)",
    operations=Operations(
        "C[m, n] = sum over blocks b of sa[b, m] sb[n / 128, b] (sum of A[m, k] B[n, k] over the 128 k of b)",
        "2 per product: a multiplication and an addition, for each of M * N * K products. The scales are left out",
        lambda sizes: 2 * sizes["M"] * sizes["blocks_n"] * BLOCK * sizes["blocks_k"] * BLOCK,
    ),
    inputs=(
        Tensor("A", ("M", "blocks_k", BLOCK)),
        Tensor("sa", ("blocks_k", "M"), "f32"),
        Tensor("B", ("blocks_n", BLOCK, "blocks_k", BLOCK)),
        Tensor("sb", ("blocks_n", "blocks_k"), "f32"),
    ),
    outputs=(Tensor("C", ("M", "blocks_n", BLOCK), "bf16"),),
    sizes={"M": Size(1, 200), "blocks_n": Size(1, 3), "blocks_k": Size(1, 4)},
    values=(
        InputKind("offset", {"A": E4M3, "B": E4M3, "sa": between(0.001, 0.003), "sb": between(0.01, 0.03)}),
        # Sums of 128 have 14 bits, and scales differ by up to 2^6.
        InputKind(
            "whole numbers",
            {"A": whole_numbers(8, 11), "B": whole_numbers(8, 11), "sa": powers(-1, 2), "sb": powers(-1, 2)},
            exact=True,
        ),
        InputKind(
            "largest",
            {"A": one_of(448.0), "B": one_of(448.0, -448.0, 416.0), "sa": powers(-8, -6), "sb": powers(-9, -7)},
            exact=True,
        ),
        InputKind(
            "small",
            {"A": normal(std=2.0**-7), "B": normal(mean=1.0), "sa": between(100.0, 300.0), "sb": between(1.0, 3.0)},
        ),
        InputKind("scales far apart", {"A": E4M3, "B": E4M3, "sa": powers(-12, 4), "sb": powers(-12, 4)}),
    ),
    reference=scaled,
    near_misses={
        "without sa": lambda A, sa, B, sb, sizes: scaled(A, sa * 0 + 1, B, sb, sizes),
        "without sb": lambda A, sa, B, sb, sizes: scaled(A, sa, B, sb * 0 + 1, sizes),
        "without both scales": lambda A, sa, B, sb, sizes: scaled(A, sa * 0 + 1, B, sb * 0 + 1, sizes),
        "sa of the first block for all": lambda A, sa, B, sb, sizes: scaled(A, sa * 0 + sa[:1], B, sb, sizes),
        "sb of the first block of K for all": lambda A, sa, B, sb, sizes: scaled(A, sa, B, sb * 0 + sb[:, :1], sizes),
        "sb of the first 128 columns for all": lambda A, sa, B, sb, sizes: scaled(A, sa, B, sb * 0 + sb[:1], sizes),
        "sa of row 0 for every row": lambda A, sa, B, sb, sizes: scaled(A, sa * 0 + sa[:, :1], B, sb, sizes),
        "sa read as [M, K / 128]": lambda A, sa, B, sb, sizes: scaled(A, sa.reshape(sa.shape[::-1]).T, B, sb, sizes),
        "sb read as [K / 128, N / 128]": lambda A, sa, B, sb, sizes: scaled(
            A, sa, B, sb.reshape(sb.shape[::-1]).T, sizes
        ),
        "the last block is missing": lambda A, sa, B, sb, sizes: scaled(A, without(sa, -1), B, sb, sizes),
        "only the first block": lambda A, sa, B, sb, sizes: scaled(A[:, :1], sa[:1], B[:, :, :1], sb[:, :1], sizes),
        **other_scales(),
    },
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=scaled_loss, c=1.0),
    # Rows around those of a half, a tile and a cluster's tile; one block of columns, two, three: a tile that is half
    # empty; blocks of K fewer and more than the ring has stages; more tiles than there are clusters; two strips.
    named_sizes=(
        block_shape(4, 1, 1),
        block_shape(4, 2, 3),
        block_shape(64, 2, 1),
        block_shape(20, 1, 2),
        block_shape(68, 3, 2),
        block_shape(132, 1, 3),
        block_shape(4, 3, 5),
        block_shape(260, 2, 2),
        block_shape(8, 1, 9),
        block_shape(8, 1, 17),
        block_shape(17_028, 1, 3),
        block_shape(2600, 3, 1),
    ),
    large=(block_shape(1024, 9, 5), block_shape(4, 7, 150), block_shape(70_004, 1, 2), block_shape(4, 531, 1)),
    work=lambda sizes: 4 * sizes["M"] * sizes["blocks_n"] * BLOCK * sizes["blocks_k"] * BLOCK,
    flops=lambda sizes: 2 * sizes["M"] * sizes["blocks_n"] * BLOCK * sizes["blocks_k"] * BLOCK,
    slice_dim="M",
    baselines={"torch._scaled_mm": torch_scaled_mm_blocks, "torch.mm": torch_mm_bf16_blocks},
)

SPECS = {
    "wgmma_best_tn_bf16": BF16,
    "wgmma_tf32_tn": TF32,
    "wgmma_fp8_tn": FP8,
    "wgmma_fp8_promoted_tn": PROMOTED,
    "wgmma_fp8_block_scaled_tn": BLOCK_SCALED,
}
