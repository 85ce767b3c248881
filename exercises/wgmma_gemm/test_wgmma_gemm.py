"""wgmma_gemm: C = A @ B^T, A [M, K], B [N, K], C [M, N], row-major half, sums in float; M >= 1, N and K multiples of 8.

C[i, j] = sum over k of A[i, k] * B[j, k]. The order of the K additions is free. Tensor Cores cut off what a sum has
below its last bits, so the answer may be off by what rounding can do to a sum of K products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

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


def signs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """1 and -1: every partial sum is a whole number, and no product is 0."""
    return rng.choice(shape, (1.0, -1.0))


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Elements of either sign from about 2^-4 to 2^4."""
    return rng.repeated(shape, lambda count: rng.normal([count]) * 2.0 ** rng.integers([count], -4, 4))


def odd(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Odd numbers from 15 to 31 of either sign, in some 200 places of every row and zeros elsewhere."""

    def draw(count: int) -> ndarray:
        drawn = (2 * rng.integers([count], 7, 15) + 1) * rng.choice([count], (1.0, -1.0))
        return drawn * (rng.uniform([count], 0.0, 1.0) < 200.0 / shape[-1])

    return rng.repeated(shape, draw)


def torch_mm(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, through torch; it keeps the sums in f32, and reads B as it lies."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return lambda: torch.mm(A, B.T, out=C)


def shape(M: int, N: int, K: int) -> Sizes:
    return {"M": M, "N": N, "K": K}


def first_steps(A: ndarray, B: ndarray) -> ndarray:
    """The descriptors are not moved on within a slice."""
    import numpy

    k = numpy.arange(A.shape[1])
    first = k[k % 64 < 16]
    return 4 * (A[:, first] @ B[:, first].T)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "the last k is missing": lambda A, B, sizes: A[:, :-1] @ B[:, :-1].T,
    "only the first 16 k": lambda A, B, sizes: A[:, :16] @ B[:, :16].T,
    "only the first 64 k": lambda A, B, sizes: A[:, :64] @ B[:, :64].T,
    "only whole slices of 64 k": lambda A, B, sizes: A[:, : sizes["K"] // 64 * 64] @ B[:, : sizes["K"] // 64 * 64].T,
    "twice the product": lambda A, B, sizes: 2 * (A @ B.T),
    "A @ B, B as if it were stored by rows": lambda A, B, sizes: A @ B.reshape(sizes["K"], sizes["N"]),
    "the first k is missing": lambda A, B, sizes: A[:, 1:] @ B[:, 1:].T,
    "only the first 32 k": lambda A, B, sizes: A[:, :32] @ B[:, :32].T,
    "only whole steps of 16 k": lambda A, B, sizes: A[:, : sizes["K"] // 16 * 16] @ B[:, : sizes["K"] // 16 * 16].T,
    "the last slice of 64 k alone": lambda A, B, sizes: (
        A[:, (sizes["K"] - 1) // 64 * 64 :] @ B[:, (sizes["K"] - 1) // 64 * 64 :].T
    ),
    "the first step of 16 k of each slice of 64, four times": lambda A, B, sizes: first_steps(A, B),
    "C stored by columns": lambda A, B, sizes: (A @ B.T).T.reshape(sizes["M"], sizes["N"]),
}

# A block's tile is up to 128 x 256 or 256 x 128, a slice of K 64, a ring up to 4 stages. Less than a tile; one past and
# one short of a tile in M, 8 past and 8 short in N; K of part of a slice, of one, of fewer and more slices than a ring
# has stages, and more than three times as many; more than one tile in each direction.
SPEC = Spec(
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
        InputKind("cancelling", {"A": cancelling(large_and_small), "B": doubled(large_and_small)}),
        InputKind("rounded once", odd, exact=True),
    ),
    reference=lambda A, B, sizes: A @ B.T,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=lambda A, B, sizes: abs(A) @ abs(B).T),
    named_sizes=(
        shape(1, 8, 8),
        shape(64, 64, 16),
        shape(17, 24, 64),
        shape(63, 56, 72),
        shape(65, 72, 136),
        shape(129, 8, 264),
        shape(3, 264, 320),
        shape(130, 136, 56),
        shape(8, 16, 840),
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

# More tiles of 128 x 256 than SMs, also more pairs of them than pairs of SMs: a block computes several. On a card of
# two or three SMs that is so of few rows, with four slices: a block's second tile needs the stages of the first. On an
# H200 it takes many rows, for a launcher that does not ask; with two slices the second tile begins mid-ring.
FEW_SMS, FULL = shape(385, 8, 200), shape(17_025, 8, 72)
OF_FEW = (*SPEC.named_sizes[:-1], FEW_SMS, SPEC.named_sizes[-1])
PERSISTENT = replace(SPEC, named_sizes=(*OF_FEW, FULL))

# On an H200, columns in all parts that a tile is stored in: more parts than slices.
LATE = replace(SPEC, named_sizes=(*OF_FEW, shape(17_025, 200, 72)))

# Two strips of tiles, the second one of less than the full height, with several tiles in each row, of one slice.
BACK = replace(LATE, named_sizes=(*LATE.named_sizes, shape(2600, 520, 8)))

# Four tiles of 256 x 256 in each direction: a curve of two levels. Four in M and two in N: two squares, one below the
# other, with a curve of one level each.
HILBERT = replace(PERSISTENT, named_sizes=(*PERSISTENT.named_sizes, shape(1000, 1000, 8), shape(1000, 304, 8)))


def torch_mm_nn(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """The same on B [K, N]."""
    return torch_mm(A, B.T, C)


# B is [K, N]: the columns are adjacent, and K is the slow dimension.
NN = replace(
    SPEC,
    computes="C = A @ B",
    operations=Operations(
        "C = A @ B", "2 per product: a multiplication and an addition, for each of M * N * K products"
    ),
    inputs=(Tensor("A", ("M", "K")), Tensor("B", ("K", "N"))),
    values=tuple(
        InputKind("cancelling", {"A": cancelling(large_and_small), "B": doubled(large_and_small, axis=0)})
        if kind.name == "cancelling"
        else kind
        for kind in SPEC.values
    ),
    reference=lambda A, B, sizes: A @ B,
    near_misses={
        "only whole slices of 64 k": lambda A, B, sizes: A[:, : sizes["K"] // 64 * 64] @ B[: sizes["K"] // 64 * 64],
        "A @ B^T, B as if it were [N, K]": lambda A, B, sizes: A @ B.reshape(sizes["N"], sizes["K"]).T,
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=lambda A, B, sizes: abs(A) @ abs(B)),
    baselines={"torch.mm": torch_mm_nn},
)

SPECS = {
    "wgmma_tma_128x128_nn_f16": NN,
    "wgmma_persistent_tn_f16": PERSISTENT,
    "wgmma_one_arrival_tn_f16": PERSISTENT,
    "wgmma_tma_store_tn_f16": PERSISTENT,
    "wgmma_multicast_tn_f16": PERSISTENT,
    "wgmma_hilbert_tn_f16": HILBERT,
    "wgmma_late_store_tn_f16": LATE,
    "wgmma_early_release_tn_f16": LATE,
    "wgmma_alternate_tn_f16": LATE,
    "wgmma_there_and_back_tn_f16": BACK,
    "wgmma_best_nn_f16": replace(NN, named_sizes=BACK.named_sizes),
}
