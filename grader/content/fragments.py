"""Which lane has which element of a Tensor Core's sums -> products whose scales are taken by the usual wrong rules.

Of 16 rows and 8 columns of sums, of mma.sync and of wgmma, lane l has columns 2 (l % 4) and the next, in rows l / 4 and
l / 4 + 8. What is scaled by row must follow that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from grader.content.spec import Sizes

if TYPE_CHECKING:
    from numpy import ndarray

# The row whose scale an element gets, by its own row and column.
OTHER_ROWS: dict[str, Callable[[ndarray, ndarray], ndarray]] = {
    "sums 1 and 2 of each four have the row of the other: 0 and 1 are one row, 2 and 3 are eight below": (
        lambda row, col: row // 16 * 16 + row % 8 + col % 2 * 8
    ),
    "rows 8 to 15 of each 16 have sa of the row eight above": lambda row, col: row - row // 8 % 2 * 8,
    "rows 0 to 7 of each 16 have sa of the row eight below": lambda row, col: row // 16 * 16 + row % 8 + 8,
    "rows 0 to 7 and 8 to 15 of each 16 have each other's sa": lambda row, col: row - row // 8 % 2 * 16 + 8,
    "sa by lane % 8, not by lane / 4": lambda row, col: row // 8 * 8 + row % 2 * 4 + col % 8 // 2,
    "sa by lane % 4, not by lane / 4": lambda row, col: row // 8 * 8 + col % 8 // 2,
    "sa by the column, not by the row": lambda row, col: 0 * row + col,
}


def scaled_by(row_of: Callable[[ndarray, ndarray], ndarray]) -> Callable[..., ndarray]:
    """C of A [M, blocks, k], sa [blocks, M], B [N, columns, blocks, k] and sb [N, blocks], with sa of other rows; past
    the last row it is 0."""

    def of_inputs(A: ndarray, sa: ndarray, B: ndarray, sb: ndarray, sizes: Sizes) -> ndarray:
        import numpy

        count, columns = len(A), B.shape[0] * B.shape[1]
        rows = row_of(numpy.arange(count)[:, None], numpy.arange(columns)[None])
        scales = numpy.concatenate((sa, numpy.zeros((len(sa), 1))), axis=1)
        C = numpy.zeros((count, columns))
        for block in range(A.shape[1]):
            weights = (B[:, :, block] * sb[:, None, block, None]).reshape(columns, -1)
            C += A[:, block] @ weights.T * scales[block][numpy.minimum(rows, count)]
        return C.reshape(count, *B.shape[:2])

    return of_inputs


def other_scales() -> dict[str, Callable[..., ndarray]]:
    return {words: scaled_by(row_of) for words, row_of in OTHER_ROWS.items()}
