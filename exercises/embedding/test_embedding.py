"""embedding: out[i, :] = weight[idx[i], :] for all i in 0..n-1, weight [vocab, dim], any n >= 0, vocab, dim >= 1.

Every value of idx lies in 0..vocab-1. A copy changes nothing, so the answer must match to the bit (any nan stands for
any other), denormals, inf and the sign of a zero included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.content.spec import Exact, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, edge_values, normal

if TYPE_CHECKING:
    from numpy import ndarray


def reference(idx: ndarray, weight: ndarray, sizes: Sizes) -> ndarray:
    return weight[idx]


def uniform(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Unsorted, with repetitions: every row equally often."""
    return rng.integers(shape, 0, sizes["vocab"] - 1)


def in_order(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Sorted: neighbouring tokens want the same row or neighbouring ones."""
    drawn = uniform(rng, shape, sizes)
    drawn.sort()
    return drawn


def all_equal(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All tokens want one row."""
    return rng.integers((1,), 0, sizes["vocab"] - 1).repeat(shape[0])


def last_row(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All tokens name the row that ends where weight ends: a kernel that reads too far reads past it."""
    return rng.integers(shape, sizes["vocab"] - 1, sizes["vocab"] - 1)


def shape(n: int, vocab: int, dim: int) -> Sizes:
    return {"n": n, "vocab": vocab, "dim": dim}


# What is copied in place of it by a usual mistake.
NEAR_MISSES = {
    "row i of weight, idx is not used": lambda idx, weight, sizes: weight.take(range(sizes["n"]), axis=0, mode="clip"),
    "row idx[0] for every token": lambda idx, weight, sizes: weight[idx[:1].repeat(sizes["n"])],
    "the row after that of idx": lambda idx, weight, sizes: weight[(idx + 1) % sizes["vocab"]],
    "row 0 for every token": lambda idx, weight, sizes: weight[0 * idx],
    "the row before that of idx": lambda idx, weight, sizes: weight[(idx - 1) % sizes["vocab"]],
    "the row of the next token": lambda idx, weight, sizes: weight[[*idx[1:], *idx[:1]]],
    "the row of the last token": lambda idx, weight, sizes: weight[idx[-1:].repeat(sizes["n"])],
}

SPEC = Spec(
    computes="out[i, :] = weight[idx[i], :]",
    operations=Operations(
        "out[i, :] = weight[idx[i], :]",
        "0: rows are copied",
        lambda sizes: 0,
        moved="idx once, and of weight one row for each index, as if none came twice; out once",
    ),
    inputs=(Tensor("idx", ("n",), "i64"), Tensor("weight", ("vocab", "dim"))),
    outputs=(Tensor("out", ("n", "dim")),),
    sizes={"n": Size(0, 300), "vocab": Size(1, 200), "dim": Size(1, 600)},
    values=(
        InputKind("uniform", {"idx": uniform, "weight": normal()}),
        InputKind("last row", {"idx": last_row, "weight": normal()}),
        InputKind("sorted", {"idx": in_order, "weight": edge_values()}),
        InputKind("all equal", {"idx": all_equal, "weight": edge_values()}),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(signed_zeros=True),
    # Every index, the rows that they name, and the rows of out.
    min_bytes=lambda sizes, itemsize: sizes["n"] * (8 + 2 * sizes["dim"] * itemsize),
    # Rows of every length modulo a vector, around what a block takes in one step (256, 512, 2048 or 4096 elements), and
    # more tokens than a block takes. The katas that need a multiple of 2, 4 or 8 get those that are one.
    named_sizes=(
        shape(0, 1, 8),
        shape(1, 1, 1),
        shape(2, 1, 2),
        shape(1, 2, 3),
        shape(3, 2, 4),
        shape(1, 3, 8),
        shape(3, 5, 7),
        shape(5, 3, 8),
        shape(2, 3, 16),
        shape(9, 1, 33),
        shape(7, 13, 64),
        shape(1, 2, 257),
        shape(2, 3, 255),
        shape(3, 2, 264),
        shape(5, 7, 256),
        shape(17, 4, 128),
        shape(2, 2, 1027),
        shape(9, 5, 520),
        shape(65, 9, 8),
        shape(257, 10, 8),
        shape(2, 3, 2056),
        shape(5, 3, 4104),
        shape(100, 200, 96),
        shape(300, 3, 16),
    ),
    large=(shape(4099, 50_021, 768), shape(100_003, 1_000, 64), shape(1_000_003, 77, 8), shape(3, 2, 4_000_008)),
    work=lambda sizes: 12 * sizes["n"] * (sizes["dim"] + 256),
    slice_dim="n",
)
