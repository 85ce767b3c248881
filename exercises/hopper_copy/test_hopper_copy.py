"""hopper_copy: copies, a scaling, transposes, a stencil and a sum, all bound by memory, all moved by the copy engine.

Where elements are moved or multiplied once, the answer must match to the bit, the sign of a zero included (any nan
stands for any other).

tma_halo_stencil_f32, tma_reduce_add_f32: float sums in any order, off by what rounding can do to a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from grader.content.spec import (
    Accumulated,
    Exact,
    InputKind,
    Operations,
    Parameter,
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
    from numpy import ndarray

A = 1.625  # a product with a half is exact in f32, so it is rounded once


def own_place(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Every element holds its own offset, so a wrong one tells where it is from.

    Offsets start again from 0 after 2^24, up to which a float holds every whole number.
    """
    import numpy

    return (numpy.arange(numpy.prod(shape)) % 2**24).reshape(shape)


def own_place_half(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The same up to 2039, a prime: a half holds every whole number up to 2048."""
    import numpy

    return (numpy.arange(numpy.prod(shape)) % 2039).reshape(shape)


def moved(fill: Callable[[Rng, tuple[int, ...], Sizes], ndarray]) -> tuple[InputKind, ...]:
    return (
        InputKind("own place", fill),
        InputKind("normal", normal(mean=1.0)),
        InputKind("special", edge_values()),
    )


# ---- bytes in a row


def last_floats_left_out(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    whole = sizes["n"] // 4 * 4
    return numpy.where(numpy.arange(sizes["n"]) < whole, x, 0)


BYTES = Spec(
    computes="y = x",
    operations=Operations("y = x", "0: elements are moved", lambda sizes: 0),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(1, 60_000)},
    values=moved(own_place),
    reference=lambda x, sizes: x,
    near_misses={
        "x, its last one to three floats 0": last_floats_left_out,
        "x, from the last to the first": lambda x, sizes: x[::-1],
    },
    tolerance=Exact(signed_zeros=True),
    # Around 16 bytes and a tile of 4096; several tiles per block, on the small cards four times around a ring.
    named_sizes=tuple({"n": n} for n in (1, 2, 3, 4, 5, 7, 33, 4095, 4096, 4097, 4100, 8191, 40_003, 520_003)),
    large=tuple({"n": n} for n in (9_000_001, 67_108_867)),
    work=lambda sizes: sizes["n"],
    slice_dim="n",
)

# ---- boxes of a matrix


def shape(M: int, N: int) -> Sizes:
    return {"M": M, "N": N}


# Smaller than a box, a box, one past it along one dimension; several boxes, the last ones hanging over.
BOXES_F16 = (
    shape(1, 8),
    shape(2, 16),
    shape(31, 8),
    shape(32, 256),
    shape(33, 256),
    shape(32, 264),
    shape(5, 512),
    shape(70, 24),
    shape(97, 520),
)


def fallen_into_place(x: ndarray, sizes: Sizes) -> ndarray:
    """Rows taken to be as long as a box: element i of y is the element at the same place of the wrong rows."""
    import numpy

    width = min(256, sizes["N"])
    rows, cols = numpy.indices(x.shape)
    return x.ravel()[(rows * width + cols) % x.size]


TILE_COPY = Spec(
    computes="y = x, a matrix",
    operations=Operations("y = x", "0: elements are moved", lambda sizes: 0),
    inputs=(Tensor("x", ("M", "N")),),
    outputs=(Tensor("y", ("M", "N")),),
    sizes={"M": Size(1, 100), "N": Size(8, 600)},
    values=moved(own_place_half),
    reference=lambda x, sizes: x,
    near_misses={"x with rows that begin too early or too late": fallen_into_place},
    tolerance=Exact(signed_zeros=True),
    named_sizes=BOXES_F16,
    large=(shape(1, 1_000_000), shape(1_000_003, 8), shape(8191, 4104)),
    work=lambda sizes: sizes["M"] * sizes["N"],
    slice_dim="M",
)
TILE_SCALE = Spec(
    computes="y = a * x, a matrix",
    operations=Operations("y = a * x", "1 per element", lambda sizes: sizes["M"] * sizes["N"]),
    inputs=(Tensor("x", ("M", "N")),),
    outputs=(Tensor("y", ("M", "N")),),
    sizes={"M": Size(1, 100), "N": Size(8, 600)},
    parameters=(Parameter("a", "float", A),),
    values=moved(own_place_half),
    reference=lambda x, sizes: A * x,
    near_misses={
        "x itself": lambda x, sizes: x,
        "a * (a * x)": lambda x, sizes: A * (A * x),
        "a + x": lambda x, sizes: A + x,
    },
    tolerance=Exact(signed_zeros=True),
    named_sizes=BOXES_F16,
    large=(shape(1, 1_000_000), shape(1_000_003, 8), shape(8191, 4104)),
    work=lambda sizes: 3 * sizes["M"] * sizes["N"],
    slice_dim="M",
)

# ---- transposes


def boxes_not_turned(x: ndarray, sizes: Sizes) -> ndarray:
    """Boxes of 32 x 32 at their places in y, their elements as in x."""
    import numpy

    M, N = sizes["M"], sizes["N"]
    rows, cols = numpy.indices((N, M))
    m = cols // 32 * 32 + rows % 32
    n = rows // 32 * 32 + cols % 32
    return numpy.where((m < M) & (n < N), x[numpy.minimum(m, M - 1), numpy.minimum(n, N - 1)], 0)


TRANSPOSE = Spec(
    computes="y = x transposed",
    operations=Operations("y = x transposed", "0: elements are moved", lambda sizes: 0),
    inputs=(Tensor("x", ("M", "N")),),
    outputs=(Tensor("y", ("N", "M")),),
    sizes={"M": Size(4, 300), "N": Size(4, 200)},
    values=moved(own_place),
    reference=lambda x, sizes: x.T,
    near_misses={
        "the elements in the order of x: nothing is transposed": lambda x, sizes: x.reshape(x.shape[::-1]),
        "x transposed, its rows from the last to the first": lambda x, sizes: x[::-1].T,
        "the boxes of 32 x 32 are in their new places, with their elements as in x": boxes_not_turned,
    },
    tolerance=Exact(signed_zeros=True),
    # One box, less than one, one past it in each dimension; several tiles of 64 x 64, the last boxes wholly outside.
    named_sizes=(
        shape(4, 4),
        shape(4, 8),
        shape(8, 4),
        shape(32, 32),
        shape(28, 36),
        shape(36, 28),
        shape(64, 64),
        shape(68, 60),
        shape(60, 132),
        shape(296, 100),
        shape(132, 1284),
    ),
    large=(shape(4_194_308, 4), shape(4, 4_194_304), shape(4096, 8192), shape(8188, 4092)),
    work=lambda sizes: 6 * sizes["M"] * sizes["N"],
    slice_dim="M",
)

# ---- a stencil


def shifted(x: ndarray, down: int, right: int) -> ndarray:
    """x[i - down, j - right], 0 outside of x."""
    import numpy

    padded = numpy.pad(x, 1)
    return padded[1 - down : 1 - down + x.shape[0], 1 - right : 1 - right + x.shape[1]]


def neighbours(x: ndarray) -> ndarray:
    return shifted(x, 1, 0) + shifted(x, -1, 0) + shifted(x, 0, 1) + shifted(x, 0, -1)


def edges_repeated(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    padded = numpy.pad(x, 1, mode="edge")
    return padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] - 4 * x


def around_the_edges(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    rolls = [numpy.roll(x, step, axis) for axis in (0, 1) for step in (1, -1)]
    return sum(rolls) - 4 * x


STENCIL = Spec(
    computes="y = the sum of the four neighbours - 4 x, with zeros around x",
    operations=Operations(
        "x[i-1,j] + x[i+1,j] + x[i,j-1] + x[i,j+1] - 4 x[i,j]",
        "5 per element",
        lambda sizes: 5 * sizes["M"] * sizes["N"],
    ),
    inputs=(Tensor("x", ("M", "N")),),
    outputs=(Tensor("y", ("M", "N")),),
    sizes={"M": Size(1, 100), "N": Size(4, 300)},
    values=(
        InputKind("whole numbers", integers(-100, 100), exact=True),
        InputKind("normal", normal(mean=1.0)),
    ),
    reference=lambda x, sizes: neighbours(x) - 4 * x,
    near_misses={
        "the sum of the neighbours, without - 4 x": lambda x, sizes: neighbours(x),
        "with the opposite sign": lambda x, sizes: 4 * x - neighbours(x),
        "with the edges of x repeated around it, instead of zeros": edges_repeated,
        "with the other side of x around it, instead of zeros": around_the_edges,
        "the rows above and below alone": lambda x, sizes: shifted(x, 1, 0) + shifted(x, -1, 0) - 4 * x,
    },
    tolerance=Accumulated(terms=lambda sizes: 5, magnitude=lambda x, sizes: neighbours(abs(x)) + 4 * abs(x)),
    # Edges on all sides of one tile; one short of and one past a tile of 32 x 128; several tiles.
    named_sizes=(
        shape(1, 4),
        shape(2, 8),
        shape(3, 4),
        shape(31, 124),
        shape(32, 128),
        shape(33, 132),
        shape(40, 260),
        shape(97, 388),
    ),
    large=(shape(4096, 4096), shape(8191, 4100), shape(1, 1_000_000), shape(1_000_003, 4)),
    work=lambda sizes: 12 * sizes["M"] * sizes["N"],
)

# ---- a sum over slices


def slices(S: int, M: int, N: int) -> Sizes:
    return {"S": S, "M": M, "N": N}


REDUCE = Spec(
    computes="y = the sum of all slices of x",
    operations=Operations(
        "y[m, n] = sum of x[s, m, n] over s",
        "1 per element of x",
        lambda sizes: sizes["S"] * sizes["M"] * sizes["N"],
    ),
    inputs=(Tensor("x", ("S", "M", "N")),),
    outputs=(Tensor("y", ("M", "N")),),
    sizes={"S": Size(1, 40), "M": Size(1, 20), "N": Size(4, 200)},
    values=(
        InputKind("whole numbers", integers(-100, 100), exact=True),
        InputKind("normal", normal(mean=1.0)),
    ),
    reference=lambda x, sizes: x.sum(axis=0),
    near_misses={
        "the first sixteen slices alone": lambda x, sizes: x[:16].sum(axis=0),
        "the last up to sixteen slices alone": lambda x, sizes: x[(sizes["S"] - 1) // 16 * 16 :].sum(axis=0),
        "the first slice": lambda x, sizes: x[0],
        "the mean of the slices": lambda x, sizes: x.mean(axis=0),
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["S"], magnitude=lambda x, sizes: abs(x).sum(axis=0)),
    deterministic=False,
    # One slice; a box of 16 x 4 x 128, one past it in each dimension; several boxes of slices on the same box of y.
    named_sizes=(
        slices(1, 1, 4),
        slices(2, 3, 8),
        slices(16, 4, 128),
        slices(17, 4, 128),
        slices(15, 5, 132),
        slices(33, 20, 60),
        slices(64, 5, 260),
    ),
    large=(slices(1000, 64, 256), slices(3, 2049, 2052), slices(100_003, 1, 8)),
    work=lambda sizes: 3 * sizes["S"] * sizes["M"] * sizes["N"] + 2000,
)

SPECS = {
    "bulk_copy_f32": BYTES,
    "bulk_copy_ring_f32": BYTES,
    "tma_tile_copy_f16": TILE_COPY,
    "tma_tile_scale_f16": TILE_SCALE,
    "tma_transpose_f32": TRANSPOSE,
    "tma_transpose_swizzle_f32": TRANSPOSE,
    "tma_transpose_ring_f32": TRANSPOSE,
    "tma_halo_stencil_f32": STENCIL,
    "tma_reduce_add_f32": REDUCE,
}
