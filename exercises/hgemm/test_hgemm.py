"""hgemm: C = A @ B, A [M, K], B [K, N], C [M, N], row-major half, any M, N, K >= 1 that the kata's multiples allow.

C[i, j] = sum over k of A[i, k] * B[k, j], kept in half or in float as the kata's acc says. The order of the K additions
is free, and products may be fused with additions: the answer may be off by what rounding can do to a sum of K products.
That is much where the sum is kept in half, so lost and surplus products show in sums that need no rounding: products
are 1 or -1, and the partial sums stay far below 2^11, up to which a half holds every whole number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grader.spec import Accumulated, Numbers, Size, Sizes, Spec, Tensor, Values, normal

if TYPE_CHECKING:
    import torch


def reference(A: torch.Tensor, B: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    return A @ B


def magnitude(A: torch.Tensor, B: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    return A.abs() @ B.abs()


def signs(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """1 and -1: partial sums of K products in any order stay within some 6 sqrt(K), and no product is 0."""
    return numbers.choice(shape, (1.0, -1.0))


def large_and_small(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """Elements of either sign from about 2^-4 to 2^4."""
    return numbers.normal(shape) * 2.0 ** numbers.integers(shape, -4, 4)


def shape(M: int, N: int, K: int) -> Sizes:
    return {"M": M, "N": N, "K": K}


SPEC = Spec(
    computes="C = A @ B",
    inputs=(Tensor("A", ("M", "K")), Tensor("B", ("K", "N"))),
    outputs=(Tensor("C", ("M", "N")),),
    sizes={"M": Size(1, 80), "N": Size(1, 80), "K": Size(1, 80)},
    values=(
        Values("offset", normal(mean=1.0)),
        Values("signs", signs, exact=True),
        Values("large and small", large_and_small),
    ),
    reference=reference,
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=magnitude),
    # Tiny; K = 1; flat and tall; one past and one short of a tile of 32, in each dimension alone; primes. Then
    # multiples of 4, 8 and 16 for katas that ask for these: one, two, three and more slices of K, whole and ragged,
    # and more than one tile of 128 in each direction.
    edges=(
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
)

# Fragments are loaded straight from A and B, and load_matrix_sync asks for 32 bytes of alignment.
_DIRECT = replace(SPEC, inputs=(Tensor("A", ("M", "K"), align=32), Tensor("B", ("K", "N"), align=32)))
SPECS: dict[str, Spec] = {
    "hgemm_wmma_m16n16k16_naive": _DIRECT,
    "hgemm_wmma_m16n16k16_mma4x2_direct": _DIRECT,
}
