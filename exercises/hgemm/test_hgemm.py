"""hgemm: C = A @ B, A [M, K], B [K, N], C [M, N], row-major half, any M, N, K >= 1 that the kata's multiples allow.

C[i, j] = sum over k of A[i, k] * B[k, j]. It may be kept in half where sums may round as in f16. Elsewhere it must be
kept in float. The order of the K additions is free, and products may be fused with additions: the answer may be off by
what rounding can do to a sum of K products. That is much where the sum is kept in half, so lost and surplus products
show in sums that need no rounding: products are 1 or -1, and the partial sums stay far below 2^11, up to which a half
holds every whole number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.products import MISSES_OF_MATRICES
from grader.content.spec import (
    Accumulated,
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


def reference(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return A @ B


def magnitude(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return abs(A) @ abs(B)


def signs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """1 and -1: partial sums of K products in any order stay within some 6 sqrt(K), and no product is 0."""
    return rng.choice(shape, (1.0, -1.0))


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Elements of either sign from about 2^-4 to 2^4."""
    return rng.repeated(shape, lambda count: rng.normal([count]) * 2.0 ** rng.integers([count], -4, 4))


def torch_mm(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, through torch; it keeps the sums in f32."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return lambda: torch.mm(A, B, out=C)


def shape(M: int, N: int, K: int) -> Sizes:
    return {"M": M, "N": N, "K": K}


def of_rows_of_B(miss: Callable[..., ndarray]) -> Callable[..., ndarray]:
    """The same of a B that is [N, K]."""
    return lambda A, B, sizes: miss(A, B.T, sizes)


SPEC = Spec(
    computes="C = A @ B",
    operations=Operations(
        "C = A @ B", "2 per product: a multiplication and an addition, for each of M * N * K products"
    ),
    inputs=(Tensor("A", ("M", "K")), Tensor("B", ("K", "N"))),
    outputs=(Tensor("C", ("M", "N")),),
    sizes={"M": Size(1, 80), "N": Size(1, 80), "K": Size(1, 80)},
    values=(
        InputKind("offset", normal(mean=1.0)),
        InputKind("signs", signs, exact=True),
        InputKind("cancelling", {"A": cancelling(large_and_small), "B": doubled(large_and_small, axis=0)}),
    ),
    reference=reference,
    near_misses=MISSES_OF_MATRICES,
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=magnitude),
    # Tiny; K = 1; flat and tall; one past and one short of a tile of 32, in each dimension alone; primes. Then
    # multiples of 4, 8 and 16 for katas that ask for these: one, two, three and more slices of K, whole and ragged,
    # and more than one tile of 128 in each direction.
    named_sizes=(
        shape(1, 1, 1),
        shape(1, 1, 2),
        shape(2, 3, 5),
        shape(1, 1, 33),
        shape(1, 97, 3),
        shape(97, 1, 3),
        shape(7, 11, 13),
        shape(3, 5, 67),
        shape(16, 8, 16),
        shape(32, 32, 1),
        shape(37, 41, 1),
        shape(3, 129, 17),
        shape(129, 3, 17),
        shape(31, 32, 32),
        shape(32, 31, 32),
        shape(32, 32, 31),
        shape(33, 32, 32),
        shape(32, 33, 32),
        shape(32, 32, 33),
        shape(16, 16, 257),
        shape(1, 300, 257),
        shape(300, 1, 257),
        shape(64, 96, 48),
        shape(61, 67, 71),
        shape(5, 4, 4),
        shape(131, 4, 12),
        shape(3, 132, 20),
        shape(8, 8, 8),
        shape(8, 16, 24),
        shape(16, 8, 40),
        shape(8, 8, 264),
        shape(136, 8, 56),
        shape(8, 136, 72),
        shape(264, 8, 88),
        shape(8, 264, 104),
        shape(136, 136, 48),
        shape(16, 16, 16),
        shape(80, 16, 32),
        shape(16, 48, 80),
        shape(144, 272, 16),
    ),
    # The first two are tried on a GPU by default. M and N of the second and the fourth have more tiles than the y of a
    # grid can count (65535).
    large=(
        shape(1023, 1025, 1027),
        shape(2_097_169, 1, 3),
        shape(7, 5, 20_011),
        shape(1, 2_097_169, 3),
        shape(1024, 1024, 1024),
    ),
    work=lambda sizes: 4 * sizes["M"] * sizes["N"] * sizes["K"],
    flops=lambda sizes: 2 * sizes["M"] * sizes["N"] * sizes["K"],
    slice_dim="M",
    baselines={"torch.mm": torch_mm},
)


def swing(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """32 in the first half of every row, -32 in the second, and 1 more in some 16 places of it."""
    row = (rng.uniform(shape, 0.0, 1.0) < 16.0 / shape[-1]) + 32.0
    row[..., shape[-1] // 2 :] -= 64.0
    return row


def thirty_three(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice(shape, (33.0,))


def odd(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Odd numbers from 15 to 31 of either sign, in some 200 places of every row and zeros elsewhere."""

    def draw(count: int) -> ndarray:
        drawn = (2 * rng.integers([count], 7, 15) + 1) * rng.choice([count], (1.0, -1.0))
        return drawn * (rng.uniform([count], 0.0, 1.0) < 200.0 / shape[-1])

    return rng.repeated(shape, draw)


# "half taken back": whole numbers whose sum is small, while partial sums are up to K / 2 * 32 * 33 away from it. Floats
# hold them all up to K = 31000, halves do not from the second product of fragments on. "rounded once": sums beyond
# 2048, of which halves hold every second, fourth, eighth number: who cuts off, or rounds twice, is seen. The Tensor
# Core katas keep their sums in float, all but one.
FLOAT = replace(
    SPEC,
    values=(
        *SPEC.values,
        InputKind("half taken back", {"A": swing, "B": thirty_three}, exact=True),
        InputKind("rounded once", {"A": odd, "B": odd}, exact=True),
    ),
)

# The mma.sync katas move 16 bytes at a time: rows of 8 k halves. A tile of C is up to 128x256, a slice of K up to 64.
# Smallest first: less than one tile; K of one, of an odd and of an even number of slices, fewer and more of them than
# a ring has slots; one past and one short of a tile in M, 8 past and 8 short in N.
MMA = replace(
    FLOAT,
    named_sizes=(
        shape(1, 8, 8),
        shape(16, 8, 16),
        shape(15, 16, 8),
        shape(17, 8, 24),
        shape(33, 40, 40),
        shape(8, 8, 264),
        shape(1, 136, 80),
        shape(129, 8, 72),
        shape(64, 32, 48),
        shape(3, 264, 56),
        shape(257, 8, 88),
        shape(16, 24, 520),
        shape(127, 120, 16),
        shape(128, 128, 32),
        shape(65, 72, 136),
        shape(130, 136, 56),
    ),
    large=(
        shape(1023, 1032, 1032),
        shape(2_097_169, 8, 8),
        shape(7, 8, 20_008),
        shape(1, 2_097_176, 8),
        shape(1024, 1024, 1024),
    ),
)


def torch_mm_tn(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """The same on B [N, K], which cuBLAS reads as it lies."""
    return torch_mm(A, B.T, C)


def reference_tn(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return A @ B.T


def magnitude_tn(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return abs(A) @ abs(B).T


CANCELLING_TN = InputKind("cancelling", {"A": cancelling(large_and_small), "B": doubled(large_and_small)})

# B is [N, K]: what C = A @ B^T multiplies a row of A with is a row of B in memory ("TN" in the words of BLAS).
MMA_TN = replace(
    MMA,
    computes="C = A @ B^T",
    operations=Operations(
        "C = A @ B^T", "2 per product: a multiplication and an addition, for each of M * N * K products"
    ),
    inputs=(Tensor("A", ("M", "K")), Tensor("B", ("N", "K"))),
    values=tuple(CANCELLING_TN if kind.name == CANCELLING_TN.name else kind for kind in MMA.values),
    reference=reference_tn,
    near_misses={
        "A @ B, B as if it were stored by rows": lambda A, B, sizes: A @ B.reshape(sizes["K"], sizes["N"]),
        **{
            words: of_rows_of_B(of)
            for words, of in MISSES_OF_MATRICES.items()
            if "B as if" not in words and "of 8 k" not in words
        },
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=magnitude_tn),
    baselines={"torch.mm": torch_mm_tn},
)

# cuBLAS takes any size. A sum of 4000 products is long enough to tell one that is kept in half.
CUBLAS = replace(FLOAT, named_sizes=(*SPEC.named_sizes, shape(8, 8, 4104)))
CUBLAS_TN = replace(MMA_TN, named_sizes=CUBLAS.named_sizes, large=CUBLAS.large)

# A tile of the CuTe kata takes 256 x 128 elements of C and 64 steps of K: less than one tile, one past and one short of
# it, and more tiles of K than its ring has stages; few shapes, for each is the work of whole tiles.
CUTE = replace(
    MMA_TN,
    named_sizes=(
        shape(1, 8, 8),
        shape(16, 8, 16),
        shape(33, 40, 72),
        shape(8, 8, 264),
        shape(257, 8, 56),
        shape(3, 136, 24),
        shape(255, 120, 136),
        shape(256, 128, 64),
        shape(258, 136, 200),
    ),
)


def in_strips(spec: Spec, instead: Sizes, past: int) -> Spec:
    """For katas whose blocks take tiles in strips: more than 8 tiles of 128 or 256 columns. First with whole tiles of
    rows, then with whole tiles of columns and ``past`` rows more than a tile has."""
    assert instead in spec.named_sizes
    named = [shape(256, 2072, 8) if sizes == instead else sizes for sizes in spec.named_sizes]
    return replace(spec, named_sizes=(*named[:-1], shape(128 + past, 2304, 8), named[-1]))


FLOAT_IN_STRIPS = in_strips(FLOAT, shape(8, 264, 104), past=8)
MMA_IN_STRIPS = in_strips(MMA, shape(3, 264, 56), past=1)
MMA_TN_IN_STRIPS = in_strips(MMA_TN, shape(3, 264, 56), past=1)

# A tile takes 256 x 256 elements of C: two tiles in M and three in N, more than their sum.
WIDE = replace(SPEC, named_sizes=(*SPEC.named_sizes[:-1], shape(264, 520, 8), SPEC.named_sizes[-1]))

# Fragments are loaded straight from A and B, and load_matrix_sync asks for 32 bytes of alignment.
WMMA_DIRECT = replace(FLOAT, inputs=(Tensor("A", ("M", "K"), align=32), Tensor("B", ("K", "N"), align=32)))

SPECS = {
    "hgemm_wmma_m16n16k16_naive": WMMA_DIRECT,
    "hgemm_wmma_m16n16k16_mma4x2_direct": WMMA_DIRECT,
    "hgemm_wmma_m16n16k16_mma4x2": FLOAT,
    "hgemm_wmma_m16n16k16_mma4x2_warp2x4": FLOAT,
    "hgemm_wmma_m16n16k16_mma4x2_warp2x4_dbuf_async": FLOAT,
    "hgemm_wmma_m32n8k16_mma2x4_warp2x4_dbuf_async": FLOAT,
    "hgemm_wmma_m16n16k16_mma4x2_warp2x4_dbuf_async_padded": FLOAT,
    "hgemm_wmma_m16n16k16_mma4x2_warp2x4_stages": FLOAT,
    "hgemm_wmma_m16n16k16_mma4x2_warp2x4_stages_block_swizzle": FLOAT_IN_STRIPS,
    "hgemm_wmma_m16n16k16_mma2x2_warp4x4_stages_dsmem_block_swizzle": FLOAT_IN_STRIPS,
    "hgemm_wmma_m16n16k16_mma2x2_warp4x4_stages_dsmem_block_swizzle_rdbuf": FLOAT_IN_STRIPS,
    "hgemm_wmma_m16n16k16_mma4x4_warp4x4_stages_dsmem": WIDE,
    "hgemm_mma_m16n8k16_naive": MMA,
    "hgemm_mma_m16n8k16_mma2x4": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4_pad": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4_pack": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4_stages": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_block_swizzle": MMA_IN_STRIPS,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_rr": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_swizzle": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_swizzle_x4": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_dsmem_tn": MMA_TN,
    "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_tn_swizzle_x4": MMA_TN,
    "hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_swizzle_x4": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_swizzle_x4_spread": MMA,
    "hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_swizzle_x4_block_swizzle": MMA_IN_STRIPS,
    "hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_tn_swizzle_x4_block_swizzle": MMA_TN_IN_STRIPS,
    "hgemm_mma_stages_block_swizzle_tn_cute": CUTE,
    "hgemm_mma_cublas_nn": CUBLAS,
    "hgemm_mma_cublas_tn": CUBLAS_TN,
}
