"""sampling: from a row of logits to a token. argmax: the lowest column with the row's maximum. top-k: the k largest.

x is f32 [rows, cols]. 0 and -0 are equal. Nothing is rounded, so values and columns must match exactly.

argmax_row_f32: a nan counts as larger than any number, and the first nan wins, as in torch.

topk_warp_f32: values fall, and of equal values the lower column comes first. There is no nan, and -inf is a value like
any other. Where a row has fewer than k columns, the places past them hold -inf and column -1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import TYPE_CHECKING

from grader.content.formulas import side_by_side
from grader.content.rows import per_row
from grader.content.spec import Exact, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, normal

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

BLOCK = 1 << 18  # elements whose order is worked out at a time


def chosen(of: Callable[[ndarray], ndarray], x: ndarray) -> ndarray:
    """``of`` of every row, some rows at a time: what is in between stays in a processor's cache."""
    import numpy

    step = max(1, BLOCK // x.shape[1])
    return numpy.concatenate(side_by_side(of, [(x[first : first + step],) for first in range(0, len(x), step)]))


# -- argmax ----------------------------------------------------------------------------------------------------------


def argmax(x: ndarray, sizes: Sizes) -> ndarray:
    return chosen(lambda part: part.argmax(axis=1), x)


def last_of_equals(x: ndarray, sizes: Sizes) -> ndarray:
    return sizes["cols"] - 1 - argmax(x[:, ::-1], sizes)


def nan_never_wins(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return argmax(numpy.where(numpy.isnan(x), -inf, x), sizes)


def by_bits(x: ndarray, sizes: Sizes) -> ndarray:
    """The bits of a float compared as an unsigned integer."""
    import numpy

    return numpy.asarray(x.astype(numpy.float32).view(numpy.uint32).argmax(axis=1))


def at_random(*wins: float) -> Callable[[Rng, tuple[int, ...], Sizes], ndarray]:
    """One of ``wins`` in each of two columns of a row, anywhere; negative numbers elsewhere."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        drawn = -abs(rng.normal(shape, mean=3.0)) - 1.0
        for _ in range(2):
            place = numpy.floor(rng.uniform((shape[0], 1), 0.0, 1.0) * shape[1])
            drawn = numpy.where(numpy.arange(shape[1]) == place, per_row(rng, shape, wins), drawn)
        return drawn

    return fill


def few(*values: float) -> Callable[[Rng, tuple[int, ...], Sizes], ndarray]:
    return lambda rng, shape, sizes: rng.choice(shape, values)


def rising(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.sort(rng.normal(shape))


def falling(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rising(rng, shape, sizes)[:, ::-1]


def torch_argmax(x: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    return lambda: x.argmax(dim=1)


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


# Rows of every length modulo a vector, around a warp, a block's vectors, and a step of them.
NAMED = (
    shape(1, 1),
    shape(2, 2),
    shape(3, 1),
    shape(5, 3),
    shape(2, 4),
    shape(3, 7),
    shape(2, 32),
    shape(5, 33),
    shape(3, 128),
    shape(2, 255),
    shape(5, 257),
    shape(3, 1000),
    shape(2, 1023),
    shape(3, 1025),
    shape(2, 4096),
    shape(2, 4099),
    shape(17, 40),
    shape(1, 8200),
)

ARGMAX = Spec(
    computes="idx = the lowest column that has the maximum, row by row; nan is larger than any number",
    operations=Operations(
        "idx = argmax of x[row, :]", "1 per element: a comparison", lambda sizes: sizes["rows"] * sizes["cols"]
    ),
    inputs=(Tensor("x", ("rows", "cols")),),
    outputs=(Tensor("idx", ("rows",), "i32"),),
    sizes={"rows": Size(1, 20), "cols": Size(1, 3000)},
    values=(
        InputKind("normal", normal()),
        InputKind("negative", normal(mean=-50.0)),
        InputKind("two values", few(-1.0, 2.0)),
        InputKind("zeros", few(0.0, -0.0, -1.0)),
        InputKind("minus infinity", few(-inf)),
        InputKind("one in a row", at_random(7.0, -0.5, inf)),
        InputKind("nan", at_random(nan, inf, nan)),
        InputKind("rising", rising),
    ),
    reference=argmax,
    near_misses={
        "the last of equal maxima": last_of_equals,
        "the largest number, as if nan were the smallest": nan_never_wins,
        "the column of the largest bits": by_bits,
        "the column of the minimum": lambda x, sizes: argmax(-x, sizes),
        "the column of the largest absolute value": lambda x, sizes: argmax(abs(x), sizes),
    },
    tolerance=Exact(),
    named_sizes=NAMED,
    large=(shape(257, 128_256), shape(70_001, 33), shape(3, 5_000_003), shape(4099, 1031)),
    work=lambda sizes: sizes["rows"] * (40_000 + 15 * sizes["cols"]),
    slice_dim="rows",
    baselines={"torch.argmax": torch_argmax},
)

# -- top-k -----------------------------------------------------------------------------------------------------------


def topk(x: ndarray, sizes: Sizes, *, last_first: bool = False) -> tuple[ndarray, ndarray]:
    """(values, columns) of the k largest of each row. ``last_first``: of equal values the higher column first."""
    import numpy

    k, cols = sizes["k"], sizes["cols"]

    def order(part: ndarray) -> ndarray:
        if last_first:
            return cols - 1 - numpy.argsort(-part[:, ::-1], axis=1, kind="stable")[:, :k]
        return numpy.argsort(-part, axis=1, kind="stable")[:, :k]

    idx = chosen(order, x)
    values = numpy.take_along_axis(x, idx, axis=1)
    past = ((0, 0), (0, k - idx.shape[1]))
    return numpy.pad(values, past, constant_values=-inf), numpy.pad(idx, past, constant_values=-1)


def reversed_k(x: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    values, idx = topk(x, sizes)
    return values[:, ::-1], idx[:, ::-1]


def torch_topk(x: torch.Tensor, values: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    k = values.shape[1]
    return lambda: x.topk(k, dim=1)


def k_shape(rows: int, cols: int, k: int) -> Sizes:
    return {"rows": rows, "cols": cols, "k": k}


TOPK = replace(
    ARGMAX,
    computes="values and idx: the k largest elements of each row, falling, and their columns",
    operations=Operations(
        "values, idx = the k largest of x[row, :]",
        "1 per element: a comparison with the k-th largest so far",
        lambda sizes: sizes["rows"] * sizes["cols"],
    ),
    outputs=(Tensor("values", ("rows", "k")), Tensor("idx", ("rows", "k"), "i32")),
    sizes={"rows": Size(1, 12), "cols": Size(1, 1500), "k": Size(1, 32)},
    values=(
        InputKind("normal", normal()),
        InputKind("two values", few(-1.0, 2.0)),
        InputKind("zeros", few(0.0, -0.0, -1.0)),
        InputKind("minus infinity", few(-inf, -inf, 1.0)),
        InputKind("rising", rising),
        InputKind("falling", falling),
        InputKind("negative", normal(mean=-50.0)),
    ),
    reference=topk,
    near_misses={
        "of equal values the higher column first": lambda x, sizes: topk(x, sizes, last_first=True),
        "the k smallest": lambda x, sizes: (-topk(-x, sizes)[0], topk(-x, sizes)[1]),
        "the k largest, rising": reversed_k,
        "the k largest absolute values": lambda x, sizes: topk(abs(x), sizes),
    },
    named_sizes=(
        k_shape(1, 1, 1),
        k_shape(1, 3, 8),
        k_shape(2, 8, 8),
        k_shape(3, 9, 8),
        k_shape(5, 31, 2),
        k_shape(2, 32, 32),
        k_shape(3, 33, 32),
        k_shape(4, 64, 31),
        k_shape(5, 100, 1),
        k_shape(2, 255, 8),
        k_shape(3, 257, 32),
        k_shape(2, 1000, 8),
        k_shape(1, 4100, 32),
        k_shape(9, 40, 5),
    ),
    large=(k_shape(4099, 1031, 8), k_shape(70_001, 33, 32), k_shape(257, 8192, 32), k_shape(3, 1_000_003, 5)),
    work=lambda sizes: sizes["rows"] * (20_000 + 300 * sizes["cols"]),
    baselines={"torch.topk": torch_topk},
)

SPECS: dict[str, Spec] = {
    "argmax_row_f32": ARGMAX,
    "topk_warp_f32": TOPK,
}
