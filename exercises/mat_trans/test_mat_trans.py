"""mat_trans: y[j, i] = x[i, j], x [M, N], y [N, M], row-major float, any M, N >= 1.

Elements are moved, not computed: the answer must match to the bit, the sign of a zero included (any nan stands for any
other).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.content.spec import Exact, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, edge_values, normal

if TYPE_CHECKING:
    from numpy import ndarray


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    return x.T


def own_place(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Every element holds its own offset, so a wrong one tells where it is from.

    Offsets start again from 0 after 2^24, up to which a float holds every whole number.
    """
    import numpy

    return numpy.arange(shape[0] * shape[1]) % 2**24


def shape(M: int, N: int) -> Sizes:
    return {"M": M, "N": N}


# What is written in place of it by a usual mistake.
NEAR_MISSES = {
    "the elements in the order of x: nothing is transposed": lambda x, sizes: x.reshape(x.shape[::-1]),
    "x transposed, its rows from the last to the first": lambda x, sizes: x[::-1].T,
    "x transposed, its columns from the last to the first": lambda x, sizes: x[:, ::-1].T,
}

SPEC = Spec(
    computes="y = x transposed",
    operations=Operations("y = x transposed", "0: elements are moved", lambda sizes: 0),
    inputs=(Tensor("x", ("M", "N")),),
    outputs=(Tensor("y", ("N", "M")),),
    sizes={"M": Size(1, 200), "N": Size(1, 200)},
    values=(
        InputKind("own place", own_place),
        InputKind("normal", normal(mean=1.0)),
        InputKind("special", edge_values()),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(signed_zeros=True),
    # One row, one column; multiples of 4 in neither, either and both dimensions; one short of and one past a tile (16,
    # 32, 64) in each dimension alone; primes; several tiles, more along one dimension than along the other.
    named_sizes=(
        shape(1, 1),
        shape(1, 2),
        shape(2, 1),
        shape(2, 3),
        shape(4, 4),
        shape(4, 5),
        shape(5, 4),
        shape(1, 257),
        shape(257, 1),
        shape(7, 11),
        shape(15, 17),
        shape(17, 15),
        shape(16, 16),
        shape(31, 33),
        shape(33, 31),
        shape(32, 36),
        shape(36, 32),
        shape(64, 63),
        shape(65, 64),
        shape(8, 300),
        shape(300, 8),
        shape(61, 131),
        shape(131, 193),
        shape(132, 196),
    ),
    # More tiles of 16, 32 or 64 along one dimension than the y of a grid can count (65535), with and without vectors.
    large=(shape(4_194_308, 4), shape(3, 4_194_305), shape(4096, 8192), shape(8191, 4093)),
    work=lambda sizes: 20 * sizes["M"] * sizes["N"],
    slice_dim="M",
)
