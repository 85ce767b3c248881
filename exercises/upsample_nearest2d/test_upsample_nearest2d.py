"""upsample_nearest2d: y[n, c, oy, ox] = x[n, c, oy * H / OH, ox * W / OW], the divisions rounded down; its gradient.

Any N >= 0, all other sizes >= 1. OH and OW may be any numbers, also below H and W: then elements of x are left out.
The divisions are those of whole numbers. (torch multiplies by H / OH as a float and rounds down. For whole factors up
to 40 that is the same; at 41, from 2 columns to 82, and from 14 to 46 it falls short once.)

upsample_nearest2d_f32, upsample_nearest2d_f16: a copy, which must match to the bit (any nan stands for any other),
denormals, inf and the sign of a zero included.

upsample_nearest2d_backward_*: for each element of x, dx is the sum of the gradients of all its copies, in float and in
any order; where it has none, the gradient is 0. So dx may be off by what rounding can do to a sum of as many terms as
an element has copies at most, ceil(OH / H) * ceil(OW / W), and by one rounding to its own dtype. Sums of whole numbers
only by the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from grader.content.spec import (
    Accumulated,
    Exact,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    edge_values,
    integers,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray


def sources(sizes: Sizes) -> tuple[ndarray, ndarray]:
    """The row of x that each row of y shows, and the column that each column shows."""
    import numpy

    oy, ox = numpy.arange(sizes["OH"]), numpy.arange(sizes["OW"])
    return oy * sizes["H"] // sizes["OH"], ox * sizes["W"] // sizes["OW"]


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    rows, cols = sources(sizes)
    return x[:, :, rows][:, :, :, cols]


def backward(dy: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    rows, cols = sources(sizes)
    N, C, H, W = (sizes[name] for name in "NCHW")
    tall, dx = numpy.zeros((N, C, H, sizes["OW"])), numpy.zeros((N, C, H, W))
    for oy, row in enumerate(rows):
        tall[:, :, row] += dy[:, :, oy]
    for ox, col in enumerate(cols):
        dx[:, :, :, col] += tall[:, :, :, ox]
    return dx


def without_last(dy: ndarray, sizes: Sizes) -> ndarray:
    rest = dy.copy()
    rest[:, :, -1] = rest[:, :, :, -1] = 0
    return backward(rest, sizes)


def magnitude(dy: ndarray, sizes: Sizes) -> ndarray:
    return backward(abs(dy), sizes)


def copies(sizes: Sizes) -> int:
    """How often the most copied element of x stands in y."""
    return -(-sizes["OH"] // sizes["H"]) * -(-sizes["OW"] // sizes["W"])


def one_special(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Normal draws, and somewhere among them inf, -inf or nan: what has no part in it stays finite."""
    drawn = rng.normal(shape, mean=4.0)
    if drawn.size > 0:
        place = rng.integers((1,), 0, drawn.size - 1)
        drawn.flat[place] = rng.choice((1,), (float("inf"), float("-inf"), float("nan")))
    return drawn


def torch_upsample(x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.ops.aten.upsample_nearest2d(x, y.shape[2:], None, None, out=y)


def torch_backward(dy: torch.Tensor, dx: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.ops.aten.upsample_nearest2d_backward(dy, dy.shape[2:], dx.shape, None, None, grad_input=dx)


def shape(N: int, C: int, H: int, W: int, OH: int, OW: int) -> Sizes:
    return {"N": N, "C": C, "H": H, "W": W, "OH": OH, "OW": OW}


def doubled(N: int, C: int, H: int, W: int) -> Sizes:
    return shape(N, C, H, W, 2 * H, 2 * W)


# Factor 2, with rows of whole vectors and without, around a warp's and a block's share of a row; only one of the two
# factors 2; other whole factors; factors between 1 and 2 and far above; below 1; 1; primes. Rows of y with and without
# a whole number of vectors. Planes whose rows do not end with a block. A long row
# and a long column: a place times a length passes 2^31.
EDGES = (
    doubled(0, 1, 2, 2),
    doubled(1, 1, 1, 1),
    shape(1, 1, 1, 1, 1, 1),
    doubled(1, 1, 1, 2),
    doubled(1, 1, 2, 1),
    shape(1, 1, 1, 1, 2, 3),
    shape(1, 2, 2, 2, 1, 1),
    doubled(1, 2, 2, 4),
    doubled(2, 1, 3, 5),
    shape(1, 2, 2, 4, 4, 4),
    shape(2, 1, 2, 2, 2, 4),
    shape(1, 2, 3, 4, 5, 8),
    doubled(1, 3, 3, 6),
    shape(2, 2, 2, 4, 6, 12),
    shape(1, 3, 4, 3, 7, 5),
    shape(2, 1, 5, 7, 3, 4),
    doubled(2, 2, 5, 8),
    shape(1, 1, 2, 14, 3, 46),
    shape(1, 1, 1, 50_000, 1, 50_004),
    shape(1, 1, 50_000, 1, 50_001, 1),
    shape(2, 3, 7, 16, 3, 8),
    shape(3, 1, 4, 8, 5, 13),
    doubled(1, 1, 3, 67),
    shape(1, 2, 5, 8, 12, 40),
    doubled(2, 3, 4, 32),
    doubled(1, 2, 7, 62),
    shape(1, 1, 3, 40, 6, 300),
    shape(1, 2, 1, 1, 16, 16),
    shape(3, 2, 6, 10, 6, 32),
    doubled(1, 1, 2, 516),
    doubled(3, 2, 7, 36),
    doubled(1, 1, 300, 1),
    shape(2, 2, 9, 33, 10, 64),
    shape(1, 1, 2, 500, 1, 333),
    shape(2, 1, 2, 2, 40, 40),
    shape(1, 1, 2, 3, 9, 24),
    shape(1, 1, 2, 2, 82, 4),
    shape(1, 1, 1, 257, 3, 514),
)

SIZES = {"N": Size(0, 4), "C": Size(1, 5), "H": Size(1, 20), "W": Size(1, 40), "OH": Size(1, 40), "OW": Size(1, 80)}


def other_source(row: Callable[[ndarray, Sizes, str], ndarray]) -> Callable[..., ndarray]:
    """y with other rows and columns of x: a function of those of y, the sizes, and "H" or "W"."""

    def of_inputs(x: ndarray, sizes: Sizes) -> ndarray:
        import numpy

        rows = row(numpy.arange(sizes["OH"]), sizes, "H").clip(0, sizes["H"] - 1)
        cols = row(numpy.arange(sizes["OW"]), sizes, "W").clip(0, sizes["W"] - 1)
        return x[:, :, rows][:, :, :, cols]

    return of_inputs


def of_ranges(begin: Callable[[ndarray, int, int], ndarray]) -> Callable[..., ndarray]:
    """The gradient as sums over ranges of rows and of columns of dy: each begins where the one before it ends, at a
    function of the row or the column of x and both lengths."""

    def of_inputs(dy: ndarray, sizes: Sizes) -> ndarray:
        import numpy

        dx = dy
        for axis, name in ((2, "H"), (3, "W")):
            small, large = sizes[name], sizes["O" + name]
            begins = begin(numpy.arange(small + 1), small, large).clip(0, large)
            empty = numpy.expand_dims(begins[1:] <= begins[:-1], axis=tuple({0, 1, 2, 3} - {axis}))
            ends = [(0, 1) if each == axis else (0, 0) for each in range(4)]
            sums = numpy.add.reduceat(numpy.pad(dx, ends), begins, axis=axis).take(range(small), axis=axis)
            dx = numpy.where(empty, 0.0, sums)
        return dx

    return of_inputs


def copies_of(sizes: Sizes) -> tuple[ndarray, ndarray]:
    """How many rows of y show each row of x, and how many columns each column."""
    import numpy

    rows, cols = sources(sizes)
    return numpy.bincount(rows, minlength=sizes["H"]), numpy.bincount(cols, minlength=sizes["W"])


def mean_of_copies(dy: ndarray, sizes: Sizes) -> ndarray:
    rows, cols = (counts.clip(min=1) for counts in copies_of(sizes))
    return backward(dy, sizes) / rows[:, None] / cols


def first_copies(dy: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    rows, cols = sources(sizes)
    firsts = [numpy.diff(each, prepend=-1) > 0 for each in (rows, cols)]
    return backward(dy * firsts[0][:, None] * firsts[1], sizes)


# What is shown in place of it by a usual mistake.
NEAR_MISSES = {
    "sources are rounded up": other_source(lambda at, sizes, name: -(-at * sizes[name] // sizes["O" + name])),
    "sources are rounded to the nearest": other_source(
        lambda at, sizes, name: (2 * at * sizes[name] + sizes["O" + name]) // (2 * sizes["O" + name])
    ),
    "oy / (OH / H), with a whole quotient": other_source(
        lambda at, sizes, name: at // max(1, sizes["O" + name] // sizes[name])
    ),
    "oy % H: x is repeated": other_source(lambda at, sizes, name: at % sizes[name]),
    "oy % 2: each 2 x 2 patch is repeated": other_source(lambda at, sizes, name: at % 2),
    "half of the row and of the column, for all sizes": other_source(lambda at, sizes, name: at // 2),
    "the next source": other_source(lambda at, sizes, name: at * sizes[name] // sizes["O" + name] + 1),
    "rows and columns with the factors of the corners: (H - 1) / (OH - 1)": other_source(
        lambda at, sizes, name: at * (sizes[name] - 1) // max(1, sizes["O" + name] - 1)
    ),
}

SPEC = Spec(
    computes="y = x, every element as often as the sizes ask for",
    operations=Operations(
        "y = x, every element as often as the sizes ask for", "0: elements are copied", lambda sizes: 0
    ),
    inputs=(Tensor("x", ("N", "C", "H", "W")),),
    outputs=(Tensor("y", ("N", "C", "OH", "OW")),),
    sizes=SIZES,
    values=(
        InputKind("normal", normal()),
        InputKind("special", edge_values()),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(signed_zeros=True),
    named_sizes=EDGES,
    large=(
        doubled(3, 5, 129, 131),
        shape(2, 3, 100, 100, 333, 1000),
        doubled(70_001, 1, 1, 4),
        doubled(2, 8, 512, 512),
        shape(2, 7, 1001, 999, 500, 520),
    ),
    work=lambda sizes: 15 * sizes["N"] * sizes["C"] * (sizes["H"] * sizes["W"] + sizes["OH"] * sizes["OW"]) + 2000,
    slice_dim="N",
    baselines={"torch.upsample_nearest2d": torch_upsample},
)

BACKWARD = Spec(
    computes="dx = the sum of the gradients of all copies",
    operations=Operations(
        "dx = the sum of the gradients of all copies",
        "1 per element of dy: it is added once",
        lambda sizes: sizes["N"] * sizes["C"] * sizes["OH"] * sizes["OW"],
    ),
    inputs=(Tensor("dy", ("N", "C", "OH", "OW")),),
    outputs=(Tensor("dx", ("N", "C", "H", "W")),),
    sizes=SIZES,
    values=(
        # All that half holds exactly; sums of two need not be, and a sum that is rounded on the way shows.
        InputKind("whole numbers", integers(-2047, 2047), exact=True),
        InputKind("offset", normal(mean=4.0)),
        InputKind("one special", one_special),
    ),
    reference=backward,
    near_misses={
        "the last row and column of dy are missing": without_last,
        "rows of dy from row * OH / H to (row + 1) * OH / H, rounded down, not up, and such columns": of_ranges(
            lambda at, small, large: at * large // small
        ),
        "the range of the rows of dy begins and ends half a row early, rounded to the nearest": of_ranges(
            lambda at, small, large: (2 * at * large + small) // (2 * small)
        ),
        "the rows of dy from row * (OH / H) on, with a whole quotient": of_ranges(
            lambda at, small, large: at * (large // small)
        ),
        "the first copy alone, not the sum of all": first_copies,
        "the mean over the copies": mean_of_copies,
        "4 copies of each element, at twice its row and column": of_ranges(lambda at, small, large: 2 * at),
    },
    tolerance=Accumulated(terms=copies, magnitude=magnitude),
    named_sizes=EDGES,
    large=SPEC.large,
    work=SPEC.work,
    slice_dim="N",
    baselines={"torch.upsample_nearest2d_backward": torch_backward},
)

SPECS = {"upsample_nearest2d_backward_f32": BACKWARD, "upsample_nearest2d_backward_f16": BACKWARD}
