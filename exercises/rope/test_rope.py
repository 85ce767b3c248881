"""rope: rotary position embedding of x [seq_len, hidden], hidden even, at the positions that are given for its rows.

Row s has position p = position[s]. Its pair (x[s, 2i], x[s, 2i+1]), read as a complex number, is multiplied by
exp(j p theta^(-2i / hidden)), theta = 10000. Positions lie in 0..131072 and come in any order, as a server has them.

The angle reaches 131072 radians, where neighbouring floats are 1/128 apart. The answer must be as accurate as with
the exact angle: it may be off by a few roundings of the pair's own length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from grader.content.spec import Accumulated, InputKind, Operations, Parameter, Rng, Size, Sizes, Spec, Tensor, normal

if TYPE_CHECKING:
    from numpy import ndarray

THETA = 10000.0
LAST_POSITION = 131072


def reference(x: ndarray, position: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    pair = numpy.arange(sizes["hidden"] // 2)
    angle = numpy.outer(position, THETA ** (-2.0 * pair / sizes["hidden"]))
    pairs = x.view(numpy.complex128)
    return (pairs * numpy.exp(1j * angle)).view(numpy.float64)


def magnitude(x: ndarray, position: ndarray, sizes: Sizes) -> ndarray:
    """|x[2i]| + |x[2i+1]| for both elements of the pair: an angle that is off moves each by a share of the other."""
    return (abs(x[:, 0::2]) + abs(x[:, 1::2])).repeat(2, axis=1)


def from_zero(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """0, 1, 2, ...: a prompt."""
    import numpy

    return numpy.arange(shape[0])


def far(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Anywhere, in any order, the last position among them: a batch of tokens from as many sequences."""
    drawn = rng.integers(shape, 0, LAST_POSITION)
    drawn[:1] = LAST_POSITION
    return drawn


def all_zero(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.zeros(shape, dtype=numpy.int64)


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Elements of either sign from about 2^-12 to 2^12, both in one pair too."""
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -12, 12)


def shape(seq_len: int, hidden: int) -> Sizes:
    return {"seq_len": seq_len, "hidden": hidden}


def range_of(count: int) -> ndarray:
    import numpy

    return numpy.arange(count)


def turned(
    x: ndarray,
    position: ndarray,
    sizes: Sizes,
    *,
    sign: float = 1.0,
    base: float = THETA,
    step: float = 2.0,
    of_vector: bool = False,
) -> ndarray:
    """The pairs turned by sign * position / base^(step * pair / hidden). ``of_vector``: a vector's two pairs count from
    its first column, not from its first pair."""
    import numpy

    pair = numpy.arange(sizes["hidden"] // 2)
    pair += of_vector * (pair - pair % 2)
    angle = sign * numpy.outer(position, base ** (-step * pair / sizes["hidden"]))
    return (x.view(numpy.complex128) * numpy.exp(1j * angle)).view(numpy.float64)


def forgetful(x: ndarray, position: ndarray, sizes: Sizes) -> ndarray:
    """The second element is made of the first one's new value."""
    right, old = reference(x, position, sizes).copy(), x.copy()
    import numpy

    pair = numpy.arange(sizes["hidden"] // 2)
    angle = numpy.outer(position, THETA ** (-2.0 * pair / sizes["hidden"]))
    right[:, 1::2] = right[:, 0::2] * numpy.sin(angle) + old[:, 1::2] * numpy.cos(angle)
    return right


def of_pairs(
    x: ndarray, position: ndarray, sizes: Sizes, matrix: Callable[[ndarray, ndarray], tuple[ndarray, ...]]
) -> ndarray:
    """y0 = m00 x0 + m01 x1, y1 = m10 x0 + m11 x1: a function of cosine and sine."""
    import numpy

    angle = numpy.outer(position, THETA ** (-2.0 * range_of(sizes["hidden"] // 2) / sizes["hidden"]))
    m = matrix(numpy.cos(angle), numpy.sin(angle))
    y, first, second = numpy.empty_like(x), x[:, 0::2], x[:, 1::2]
    y[:, 0::2], y[:, 1::2] = m[0] * first + m[1] * second, m[2] * first + m[3] * second
    return y


def in_halves(x: ndarray, position: ndarray, sizes: Sizes) -> ndarray:
    """Column i of the first half is turned together with column i of the second."""
    import numpy

    half = sizes["hidden"] // 2
    y = turned(numpy.ascontiguousarray(x.reshape(len(x), 2, half).swapaxes(1, 2)).reshape(x.shape), position, sizes)
    return y.reshape(len(x), half, 2).swapaxes(1, 2).reshape(x.shape)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "turned the other way round: the sign of the sine": lambda x, position, sizes: turned(
        x, position, sizes, sign=-1.0
    ),
    "the exponent is pair / hidden, without the 2": lambda x, position, sizes: turned(x, position, sizes, step=1.0),
    "the exponent is 4 * pair / hidden: the column in place of the pair": lambda x, position, sizes: turned(
        x, position, sizes, step=4.0
    ),
    "a vector's two pairs are column and column + 1, not column / 2 and column / 2 + 1": lambda x, position, sizes: (
        turned(x, position, sizes, of_vector=True)
    ),
    "all pairs turn by the same angle": lambda x, position, sizes: turned(x, position, sizes, step=0.0),
    "the second element is made of the first one's new value": forgetful,
    "position + 1": lambda x, position, sizes: turned(x, position + 1, sizes),
    "the row's number in place of position": lambda x, position, sizes: turned(
        x, 0 * position + range_of(position.size), sizes
    ),
    "x itself": lambda x, position, sizes: x,
    "pairs are hidden / 2 apart, not neighbours": in_halves,
    "sine and cosine exchanged": lambda x, position, sizes: of_pairs(x, position, sizes, lambda c, s: (s, -c, c, s)),
    "the two elements of the result exchanged": lambda x, position, sizes: of_pairs(
        x, position, sizes, lambda c, s: (s, c, c, -s)
    ),
    "the first element alone is turned": lambda x, position, sizes: of_pairs(
        x, position, sizes, lambda c, s: (c, -s, 0 * c, 0 * c + 1)
    ),
    "pairs count from 1": lambda x, position, sizes: turned(x, position * THETA ** (-2.0 / sizes["hidden"]), sizes),
    "twice the angle": lambda x, position, sizes: turned(x, 2 * position, sizes),
    "the base is 1000": lambda x, position, sizes: turned(x, position, sizes, base=1000.0),
    "the base is 500000": lambda x, position, sizes: turned(x, position, sizes, base=500_000.0),
}

SPEC = Spec(
    computes="y = x rotated pair by pair by its position",
    operations=Operations(
        "y0 = x0 cos(a) - x1 sin(a), y1 = x0 sin(a) + x1 cos(a), a = position * frequency, for every pair of a row",
        "9 per pair: the angle, its cosine and sine, four multiplications, an addition, a subtraction",
        lambda sizes: 9 * sizes["seq_len"] * sizes["hidden"] // 2,
    ),
    inputs=(Tensor("x", ("seq_len", "hidden")), Tensor("position", ("seq_len",), "i32")),
    outputs=(Tensor("y", ("seq_len", "hidden")),),
    sizes={"seq_len": Size(0, 80), "hidden": Size(2, 160)},
    values=(
        InputKind("prompt", {"x": normal(mean=1.0), "position": from_zero}),
        InputKind("far positions", {"x": normal(mean=1.0), "position": far}),
        # A rotation by nothing: every element comes back as it was.
        InputKind("position 0", {"x": normal(), "position": all_zero}, exact=True),
        InputKind("large and small", {"x": large_and_small, "position": far}),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    # Two products and their sum; an angle off by 2^-26 turns, that is by 1.6 times 2^-24 radians; sine and cosine.
    tolerance=Accumulated(terms=lambda sizes: 4, magnitude=magnitude),
    # No row, one pair; hidden with and without a whole number of vectors; around 8 rows; around a block's 256 threads.
    named_sizes=(
        shape(0, 2),
        shape(0, 64),
        shape(1, 2),
        shape(2, 2),
        shape(1, 4),
        shape(3, 6),
        shape(7, 4),
        shape(8, 8),
        shape(9, 10),
        shape(17, 2),
        shape(1, 510),
        shape(2, 514),
        shape(1, 1030),
        shape(5, 62),
        shape(8, 64),
        shape(15, 66),
        shape(16, 128),
        shape(31, 34),
        shape(257, 2),
        shape(300, 4),
        shape(33, 130),
        shape(67, 128),
    ),
    large=(shape(131_073, 130), shape(4099, 4096), shape(1_000_003, 2), shape(3, 65_538)),
    parameters=(Parameter("theta", "float", THETA),),
    work=lambda sizes: 60 * sizes["seq_len"] * sizes["hidden"],
    slice_dim="seq_len",
)
