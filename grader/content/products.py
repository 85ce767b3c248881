"""What is computed in place of a product of matrices, or of a matrix and a vector, by a usual mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import ndarray


def last_slice(A: ndarray, B: ndarray, step: int) -> ndarray:
    """The last slice alone: the accumulators begin at 0 in each."""
    first = (A.shape[1] - 1) // step * step
    product: ndarray = A[:, first:] @ B[first:]
    return product


# In place of C = A B, of A that is [M, K] and B that is [K, N].
MISSES_OF_MATRICES: dict[str, Callable[..., ndarray]] = {
    "the last k is missing": lambda A, B, sizes: A[:, :-1] @ B[:-1],
    "the first k is missing": lambda A, B, sizes: A[:, 1:] @ B[1:],
    "only the first 8 k": lambda A, B, sizes: A[:, :8] @ B[:8],
    "only the first 16 k": lambda A, B, sizes: A[:, :16] @ B[:16],
    "only the first 32 k": lambda A, B, sizes: A[:, :32] @ B[:32],
    "only whole slices of 8 k": lambda A, B, sizes: A[:, : sizes["K"] // 8 * 8] @ B[: sizes["K"] // 8 * 8],
    "only whole slices of 16 k": lambda A, B, sizes: A[:, : sizes["K"] // 16 * 16] @ B[: sizes["K"] // 16 * 16],
    "only whole slices of 32 k": lambda A, B, sizes: A[:, : sizes["K"] // 32 * 32] @ B[: sizes["K"] // 32 * 32],
    "twice the product": lambda A, B, sizes: 2 * (A @ B),
    "B as if it were stored by columns": lambda A, B, sizes: A @ B.reshape(B.shape[::-1]).T,
    "A as if it were stored by columns": lambda A, B, sizes: A.reshape(A.shape[::-1]).T @ B,
    "only whole slices of 64 k": lambda A, B, sizes: A[:, : sizes["K"] // 64 * 64] @ B[: sizes["K"] // 64 * 64],
    "C stored by columns": lambda A, B, sizes: (A @ B).T.reshape(sizes["M"], sizes["N"]),
    "the sum over k of A + B": lambda A, B, sizes: A.sum(axis=1, keepdims=True) + B.sum(axis=0),
    "the last slice of 8 k alone": lambda A, B, sizes: last_slice(A, B, 8),
    "the last slice of 16 k alone": lambda A, B, sizes: last_slice(A, B, 16),
    "the last slice of 32 k alone": lambda A, B, sizes: last_slice(A, B, 32),
}

# In place of y = A x, of A that is [M, K].
MISSES_OF_VECTORS: dict[str, Callable[..., ndarray]] = {
    "the last column is missing": lambda A, x, sizes: A[:, :-1] @ x[:-1],
    "the first column is missing": lambda A, x, sizes: A[:, 1:] @ x[1:],
    "the sums of the rows, without x": lambda A, x, sizes: A.sum(axis=1),
    "only the first 32 columns": lambda A, x, sizes: A[:, :32] @ x[:32],
    "x[0] in place of x[k]": lambda A, x, sizes: A.sum(axis=1) * x[:1],
    "row 0 for every row": lambda A, x, sizes: (A[:1] @ x).repeat(sizes["M"]),
    "only whole vectors of 4 columns": lambda A, x, sizes: A[:, : sizes["K"] // 4 * 4] @ x[: sizes["K"] // 4 * 4],
    "only whole steps of 32 columns": lambda A, x, sizes: A[:, : sizes["K"] // 32 * 32] @ x[: sizes["K"] // 32 * 32],
    "A as if it were stored by columns": lambda A, x, sizes: A.reshape(A.shape[::-1]).T @ x,
    "twice the product": lambda A, x, sizes: 2 * (A @ x),
    "32 times the product: each lane adds it": lambda A, x, sizes: 32 * (A @ x),
    "the mean, the sum over K": lambda A, x, sizes: A @ x / sizes["K"],
    "the product of both sums": lambda A, x, sizes: A.sum(axis=1) * x.sum(),
}
