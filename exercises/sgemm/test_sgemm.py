"""sgemm: C = A @ B, A [M, K], B [K, N], C [M, N], row-major float, any M, N, K >= 1 that the kata's multiples allow.

C[i, j] = sum over k of A[i, k] * B[k, j], kept in float. The order of the K additions is free, and a product may be
fused with its addition: the answer may be off by what rounding can do to a sum of K products. Sums of whole numbers
up to 2^24 need no rounding: these must be exact.

sgemm_wmma_*, sgemm_mma_*: Tensor Cores compute in TF32. Each element of A and B is first rounded to 11 significant
bits, to the nearest, ties away from zero. Products of two such are exact in float, and the sums are kept in float.
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
    integers,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray


def reference(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return A @ B


def magnitude(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return abs(A) @ abs(B)


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Elements of either sign from about 2^-8 to 2^8."""
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -8, 8)


def twelve_bits(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Odd whole numbers from 2049 to 4095 of either sign: a float has room for them, TF32 and half have not."""
    return (2 * rng.integers(shape, 1024, 2047) + 1) * rng.choice(shape, (1.0, -1.0))


def signs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice(shape, (1.0, -1.0))


def torch_mm(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, through torch; sums of f32 products in f32, not in TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    return lambda: torch.mm(A, B, out=C)


def torch_mm_tf32(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, through torch, on Tensor Cores: products of f32 elements rounded to TF32, sums in f32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    return lambda: torch.mm(A, B, out=C)


def shape(M: int, N: int, K: int) -> Sizes:
    return {"M": M, "N": N, "K": K}


def rounded(x: ndarray) -> ndarray:
    """The nearest numbers with 11 significant bits, ties away from zero, of float64 that hold float32: TF32."""
    import numpy

    bits = x.astype(numpy.float32).view(numpy.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(numpy.float32).astype(numpy.float64)


def cut(x: ndarray) -> ndarray:
    """Rounded towards zero, as a Tensor Core takes what is not rounded before."""
    import numpy

    return (x.astype(numpy.float32).view(numpy.int32) & ~0x1FFF).view(numpy.float32).astype(numpy.float64)


def of_rounded(of: Callable[..., ndarray]) -> Callable[..., ndarray]:
    return lambda A, B, sizes: of(rounded(A), rounded(B), sizes)


def reference_tf32(A: ndarray, B: ndarray, sizes: Sizes) -> ndarray:
    return rounded(A) @ rounded(B)


SPEC = Spec(
    computes="C = A @ B",
    operations=Operations(
        "C = A @ B", "2 per product: a multiplication and an addition, for each of M * N * K products"
    ),
    inputs=(Tensor("A", ("M", "K")), Tensor("B", ("K", "N"))),
    outputs=(Tensor("C", ("M", "N"), dtype="acc"),),
    sizes={"M": Size(1, 80), "N": Size(1, 80), "K": Size(1, 80)},
    values=(
        InputKind("offset", normal(mean=1.0)),
        InputKind("whole numbers", integers(1, 4), exact=True),  # no zeros: every product shows
        InputKind("cancelling", {"A": cancelling(large_and_small), "B": doubled(large_and_small, axis=0)}),
        # Partial sums of either sign stay far below 2^24, up to which a float holds every whole number.
        InputKind("twelve bits", {"A": twelve_bits, "B": signs}, exact=True),
    ),
    reference=reference,
    near_misses=MISSES_OF_MATRICES,
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=magnitude),
    # Tiny; K = 1; flat and tall; one past and one short of a tile of 32, in each dimension alone; primes.
    named_sizes=(
        shape(1, 1, 1),
        shape(1, 1, 2),
        shape(2, 3, 5),
        shape(1, 1, 33),
        shape(1, 97, 3),
        shape(97, 1, 3),
        shape(7, 11, 13),
        shape(3, 5, 67),
        shape(32, 32, 1),
        shape(37, 41, 1),
        shape(3, 129, 17),
        shape(129, 3, 17),
        shape(31, 32, 32),
        shape(32, 31, 32),
        shape(32, 32, 31),
        shape(32, 32, 32),
        shape(33, 32, 32),
        shape(32, 33, 32),
        shape(32, 32, 33),
        shape(16, 16, 257),
        shape(1, 300, 257),
        shape(300, 1, 257),
        shape(64, 96, 33),
        shape(61, 67, 71),
        # For katas that take packs of four: tiny, one pack past and one short of tiles of 128 x 128, odd and even
        # numbers of slices of 8 and of 16, one of them short.
        shape(1, 4, 4),
        shape(5, 12, 8),
        shape(3, 132, 20),
        shape(129, 4, 12),
        shape(127, 124, 40),
        shape(128, 128, 16),
        shape(130, 136, 60),
        shape(70, 260, 36),
        # For Tensor Cores, whose fragments are 16 x 16: one more and one fewer than the tile of 128 x 128 has.
        shape(16, 16, 4),
        shape(16, 48, 20),
        shape(112, 144, 28),
        shape(144, 112, 40),
        shape(128, 256, 72),
        shape(16, 272, 36),
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
    baselines={"torch.mm": torch_mm, "torch.mm_tf32": torch_mm_tf32},
)
# What is multiplied is A and B rounded to TF32, which the reference does too: the sums are as exact as in float.
TF32 = replace(
    SPEC,
    computes="C = A @ B, A and B rounded to TF32",
    reference=reference_tf32,
    near_misses={
        "A and B are not rounded to TF32": reference,
        "A and B are cut to TF32, not rounded": lambda A, B, sizes: cut(A) @ cut(B),
        **{words: of_rounded(of) for words, of in MISSES_OF_MATRICES.items()},
    },
)
# Fragments are stored straight to C, and store_matrix_sync asks for 32 bytes of alignment.
WMMA = replace(TF32, outputs=(Tensor("C", ("M", "N"), dtype="acc", align=32),))


def in_strips(spec: Spec, past: int) -> Spec:
    """For katas whose blocks take tiles in strips: more than 8 tiles of 128 or 256 columns. First with whole tiles of
    rows, then with whole tiles of columns and ``past`` rows more than a tile has."""
    named = [shape(256, 2064, 8) if sizes == shape(144, 112, 40) else sizes for sizes in spec.named_sizes]
    return replace(spec, named_sizes=(*named[:-1], shape(128 + past, 2304, 8), named[-1]))


SPECS = {
    "sgemm_t_8x16_k16_warp_rbuf_serpentine_hoisted_block_swizzle": in_strips(SPEC, past=1),
    "sgemm_wmma_m16n16k8_mma4x2_warp2x4": WMMA,
    "sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages": WMMA,
    "sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages_block_swizzle": in_strips(WMMA, past=16),
    "sgemm_wmma_m16n16k8_mma2x4_warp4x4_stages_dsmem_round_once": WMMA,
    "sgemm_mma_m16n8k8_mma2x4_warp4x8_stages_rbuf": TF32,
    "sgemm_mma_m16n8k8_mma2x4_warp4x8_k32_stages_dsmem_round_once": TF32,
}
