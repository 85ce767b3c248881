"""hgemv: y = A x, A [M, K] row-major, x [K], y [M], half, any M, K >= 0.

y[i] = sum over k of A[i, k] * x[k], kept in float and rounded to half once; the sum of no products is 0. The order of
the K additions is free, and a product may be fused with its addition: the answer may be off by what rounding can do to
a sum of K products. Sums of whole numbers up to 2^24 need no rounding before the last: these must be exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.products import MISSES_OF_VECTORS
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


def reference(A: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
    return A @ x


def magnitude(A: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
    return abs(A) @ abs(x)


def whole_numbers(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Both signs, up to 128 for K = 1 and less for a larger K: a row's sum is around 5000 for any K.

    Products and sums are too large for the 11 bits of a half, exact in float, and the answer fits a half.
    """
    top = round(128 / max(sizes["K"], 1) ** 0.25)
    return rng.repeated(
        shape, lambda count: (rng.integers([count], 1, top) * rng.choice([count], (1.0, -1.0))).astype("int16")
    )


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Elements of either sign from about 2^-4 to 2^4."""
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -4, 4)


def torch_mv(A: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, through torch."""
    import torch

    return lambda: torch.mv(A, x, out=y)


def shape(M: int, K: int) -> Sizes:
    return {"M": M, "K": K}


SPEC = Spec(
    computes="y = A x",
    operations=Operations(
        "y = A x", "2 per element of A: a multiplication and an addition", lambda sizes: 2 * sizes["M"] * sizes["K"]
    ),
    inputs=(Tensor("A", ("M", "K")), Tensor("x", ("K",))),
    outputs=(Tensor("y", ("M",)),),
    sizes={"M": Size(0, 80), "K": Size(0, 600)},
    values=(
        # Sums of millions of products, as speed is measured on, still fit a half.
        InputKind("offset", {"A": normal(mean=1.0), "x": normal(mean=1 / 64, std=1 / 64)}),
        InputKind("whole numbers", whole_numbers, exact=True),
        InputKind("cancelling", {"A": cancelling(large_and_small), "x": doubled(large_and_small)}),
    ),
    reference=reference,
    near_misses=MISSES_OF_VECTORS,
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=magnitude),
    # Nothing; tiny; one short of and one past what half a warp, a warp and a block take in one step, an element or a
    # vector at a time, in K; the same for the rows of a block, in M; primes; more slices in a row than lanes in a warp.
    # From the 25th on: the same again with other neighbours.
    named_sizes=(
        shape(0, 5),
        shape(1, 0),
        shape(1, 1),
        shape(1, 2),
        shape(3, 5),
        shape(2, 16),
        shape(3, 17),
        shape(1, 33),
        shape(33, 1),
        shape(7, 32),
        shape(9, 36),
        shape(5, 132),
        shape(67, 16),
        shape(2, 511),
        shape(31, 67),
        shape(257, 8),
        shape(3, 1032),
        shape(1021, 3),
        shape(1, 4096),
        shape(3, 4100),
        shape(61, 520),
        shape(1, 8191),
        shape(2, 20_011),
        shape(1, 40_008),
        shape(0, 0),
        shape(37, 0),
        shape(2, 15),
        shape(1, 31),
        shape(17, 16),
        shape(3, 127),
        shape(3, 128),
        shape(1, 1021),
        shape(3, 512),
        shape(65, 33),
        shape(2, 1024),
        shape(5, 2056),
        shape(2, 8192),
        shape(9, 8200),
    ),
    # The first two are tried on a GPU by default.
    large=(
        shape(1021, 8200),
        shape(2_097_169, 16),
        shape(3, 40_009),
        shape(4096, 4099),
    ),
    work=lambda sizes: 6 * sizes["M"] * (sizes["K"] + 64),
    slice_dim="M",
    baselines={"torch.mv": torch_mv},
)

# More rows than there is room for slices of rows: no row is cut, and no slice may be kept.
CUT = replace(SPEC, named_sizes=(*SPEC.named_sizes[:-1], shape(8197, 2), SPEC.named_sizes[-1]))

SPECS = {"hgemv_k2048_f16x8_pack_split_k": CUT}
