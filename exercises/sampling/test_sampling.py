"""sampling: from a row of logits to a token. argmax: the lowest column with the row's maximum. top-k: the k largest.
Draws: a column with the probabilities softmax(x / T), of all columns or of those that a threshold keeps.

x is f32 [rows, columns]. 0 and -0 are equal. Columns and counts must match exactly. Values leave room for rounding
where a draw depends on sums or logarithms.

argmax_row_f32: a nan counts as larger than any number, and the first nan wins, as in torch.

topk_warp_f32: values fall, and of equal values the lower column comes first. There is no nan, and -inf is a value
like any other. Where a row has fewer than k columns, the places past them hold -inf and column -1.

topk_radix_select_f32: kth is the k-th largest value. idx has the columns of the k largest in rising order; of the
values that equal the k-th, those with the lowest columns. There is no nan, and -inf is a value like any other. Where
a row has fewer than k columns, kth is -inf, and the places past the columns hold -1.

sample_gumbel_f32: token is the lowest column with the largest x / T - log(-log u). u = ((w >> 9) + 0.5) / 2^23, where
w is word j % 4 of Philox4x32-10 for column j. The counter's words are (j / 4, row, the low half of seed[1], 0), the
key's are (the low half of seed[0], its high half). A round makes of counter (x, y, z, w) and key (k, m) the counter
(hi(z * 0xcd9e8d57) ^ y ^ k, lo(z * 0xcd9e8d57), hi(x * 0xd2511f53) ^ w ^ m, lo(x * 0xd2511f53)), of products of 64
bits. After each of the ten rounds 0x9e3779b9 is added to k and 0xbb67ae85 to m. Counter and key 0 give the words
6627e8d5 e169c58d bc57ac4c 9b00dbd8. Where T is 0, token is the lowest column with the largest x.

sample_min_p_f32: column j is kept if x[j] / T >= max(x) / T + log(min_p). token is the first kept column at which the
running sum of exp(x / T) over the kept columns exceeds u times their whole sum.

sample_top_p_f32: column j is kept if p[j] >= t, with p = softmax(x / T) and t the largest number for which the kept p
sum to at least top_p. So columns that equal the least kept one are all kept. top_p = 1 keeps every finite logit, and
-inf is never kept. count is how many columns are kept. token is drawn from them by u, as in sample_min_p_f32: the
first kept column at which the running sum of exp(x / T) over the kept columns exceeds u times their whole sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, isqrt, log, nan, prod
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from grader.content.formulas import side_by_side, tiled
from grader.content.rows import per_row
from grader.content.spec import (
    PERIOD,
    Exact,
    Fill,
    InputKind,
    Operations,
    Periodic,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

BLOCK = 1 << 18  # elements whose order is worked out at a time


def by_parts(of: Callable[..., ndarray], x: ndarray, *per_row: ndarray) -> ndarray:
    """``of`` of every row and its numbers, some rows at a time: what is in between stays in a processor's cache."""
    import numpy

    step = max(1, BLOCK // x.shape[1])
    parts = [tuple(array[first : first + step] for array in (x, *per_row)) for first in range(0, len(x), step)]
    return numpy.concatenate(side_by_side(of, parts))


# -- argmax ----------------------------------------------------------------------------------------------------------


def argmax(x: ndarray, sizes: Sizes) -> ndarray:
    return by_parts(lambda part: part.argmax(axis=1), x)


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
        InputKind("tiny", normal(std=1e-30)),  # what is added to a value before it is compared makes them equal
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


def highest(x: ndarray, k: int) -> ndarray:
    """The columns of the k largest of each row, falling, of equal values the lower column first."""
    import numpy

    rows, cols = x.shape
    apart = isqrt(cols // k)
    if apart < 4:
        return numpy.argsort(-x, axis=1, kind="stable")[:, :k]
    count = cols // apart  # groups of columns: the k-th of their maxima is not above the k-th of the row
    maxima = x[:, : count * apart].reshape(rows, apart, count).max(axis=1)
    row, column = (x >= numpy.partition(maxima, count - k, axis=1)[:, count - k, None]).nonzero()
    order = numpy.lexsort((-x[row, column], row))
    first = numpy.searchsorted(row, numpy.arange(rows))
    return column[order[first[:, None] + numpy.arange(k)]]


def topk(x: ndarray, sizes: Sizes, *, last_first: bool = False) -> tuple[ndarray, ndarray]:
    """(values, columns) of the k largest of each row. ``last_first``: of equal values the higher column first."""
    import numpy

    k, cols = sizes["k"], sizes["cols"]

    def order(part: ndarray) -> ndarray:
        if last_first:
            return cols - 1 - highest(part[:, ::-1], k)
        return highest(part, k)

    idx = by_parts(order, x)
    values = numpy.take_along_axis(x, idx, axis=1)
    past = ((0, 0), (0, k - idx.shape[1]))
    return numpy.pad(values, past, constant_values=-inf), numpy.pad(idx, past, constant_values=-1)


def reversed_k(x: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    values, idx = topk(x, sizes)
    return values[:, ::-1], idx[:, ::-1]


def torch_topk(x: torch.Tensor, idx: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    k = idx.shape[1]
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

# -- radix select ----------------------------------------------------------------------------------------------------


def columns_of_largest(x: ndarray, sizes: Sizes, *, last_first: bool = False) -> tuple[ndarray, ndarray]:
    """(the k-th largest, the columns of the k largest in rising order); past cols: -inf and -1."""
    import numpy

    values, idx = topk(x, sizes, last_first=last_first)
    kept = numpy.where(idx < 0, sizes["cols"], idx)
    kept.sort(axis=1)
    return values[:, -1], numpy.where(kept == sizes["cols"], -1, kept)


def nearly_equal(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Values that differ in the last 8 bits of their floats only, of either sign row by row."""
    return per_row(rng, shape, (1.0, -1.0)) * (1.5 + rng.integers(shape, 0, 255) * 2.0**-23)


def next_digit(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All digits of 8 bits take few values: each histogram has more than one bin, and many elements are equal."""
    import numpy

    bits = numpy.zeros(shape, dtype=numpy.int64)
    for shift, low, high in ((24, 0x3F, 0x40), (16, 0x7E, 0x81), (8, 0, 2), (0, 0xFE, 0xFF)):
        bits |= rng.integers(shape, low, high) << shift
    values = bits.astype(numpy.uint32).view(numpy.float32).astype(numpy.float64)
    return values * rng.choice(shape, (1.0, -1.0))


def late(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """-inf, but for some of the last 40 columns: the k-th of all columns before them is -inf."""
    drawn = rng.choice(shape, (-inf,))
    drawn[:, -40:] = rng.choice(drawn[:, -40:].shape, (-inf, 1.0, 2.0))
    return drawn


RADIX_SELECT = replace(
    TOPK,
    computes="kth = the k-th largest value of each row; idx = the columns of its k largest, rising",
    operations=Operations(
        "kth, idx = the k largest of x[row, :]",
        "1 per element: a comparison with the k-th largest so far",
        lambda sizes: sizes["rows"] * sizes["cols"],
    ),
    outputs=(Tensor("kth", ("rows",)), Tensor("idx", ("rows", "k"), "i32")),
    sizes={"rows": Size(1, 6), "cols": Size(1, 24_000), "k": Size(1, 2048)},
    values=(
        InputKind("normal", normal()),
        InputKind("two values", few(-1.0, 2.0)),
        InputKind("zeros", few(0.0, -0.0, -1.0)),
        InputKind("minus infinity", few(-inf, -inf, 1.0)),
        InputKind("numbers after minus infinity", late),
        InputKind("last 8 bits", nearly_equal),
        InputKind("few digits", next_digit),
        InputKind("rising", rising),
        InputKind("falling", falling),
        InputKind("negative", normal(mean=-50.0)),
    ),
    reference=columns_of_largest,
    near_misses={
        "of those that equal the k-th the highest columns": lambda x, sizes: columns_of_largest(
            x, sizes, last_first=True
        ),
        "the k smallest": lambda x, sizes: (
            -columns_of_largest(-x, sizes)[0],
            columns_of_largest(-x, sizes)[1],
        ),
        "the k largest absolute values": lambda x, sizes: columns_of_largest(abs(x), sizes),
        "the columns from the largest value to the smallest": lambda x, sizes: (
            columns_of_largest(x, sizes)[0],
            topk(x, sizes)[1],
        ),
        "the largest value in place of the k-th": lambda x, sizes: (
            topk(x, sizes)[0][:, 0],
            columns_of_largest(x, sizes)[1],
        ),
    },
    # Around a tile of 4096 to 8192 elements, a list of it and 2048, and rows in which the list fills more than once.
    named_sizes=(
        k_shape(1, 1, 1),
        k_shape(2, 3, 8),
        k_shape(3, 31, 31),
        k_shape(2, 32, 1),
        k_shape(3, 257, 256),
        k_shape(2, 1000, 1000),
        k_shape(1, 2047, 2048),
        k_shape(2, 2048, 2048),
        k_shape(1, 2049, 2048),
        k_shape(2, 6143, 100),
        k_shape(1, 6144, 2048),
        k_shape(1, 6145, 2),
        k_shape(1, 8193, 2048),
        k_shape(2, 10_007, 31),
        k_shape(1, 12_289, 1000),
        k_shape(1, 20_481, 2048),
        k_shape(1, 65_537, 1000),
        k_shape(1, 20_480, 2048),
    ),
    large=(k_shape(257, 8192, 2048), k_shape(1031, 10_007, 31), k_shape(3, 1_000_003, 2048), k_shape(2, 5_000_011, 1)),
    work=lambda sizes: sizes["rows"] * (400_000 + 40 * sizes["cols"]),
    sampled=True,
)

# -- Gumbel noise ----------------------------------------------------------------------------------------------------

GAP = 2.0**-9  # by which a row's largest key exceeds the others at least: more than keys in f32 are off

HIGHEST = 17.0  # more than the noise of any word

# Two int64 each. Row 1 of NEXT_TO_1 has u = 1 - 2^-24 in column 35, row 1 of NEXT_TO_0 has u = 2^-24 in column 13.
SEED = (0x1234_5678_9ABC_DEF0, 42)
HIGH_SEED = (-0x7FED_CBA9_0000_0001, (3 << 32) + 77)
NEXT_TO_1 = (16_318, 7)
NEXT_TO_0 = (20_404, 7)


def philox(
    counter: tuple[ndarray, ...],
    key: tuple[int, int],
    rounds: int = 10,
    *,
    raised: int = 0,
    weyl_step: int = 1,
    weyls: tuple[int, int] = (0x9E3779B9, 0xBB67AE85),
    factors: tuple[int, int] = (0xD2511F53, 0xCD9E8D57),
    crossed: bool = True,
) -> tuple[ndarray, ...]:
    """Four words for each counter of four words, uint64 arrays that hold 32 bits. ``raised``: how often the key is
    before the first round; ``weyl_step``: how often after each; ``crossed``: a product goes to the other half."""
    import numpy

    low, half = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    x, y, z, w = counter
    for step in range(rounds):
        k, m = (numpy.uint64((key[i] + (raised + step * weyl_step) * weyls[i]) % 2**32) for i in (0, 1))
        left, right = x * numpy.uint64(factors[0]), z * numpy.uint64(factors[1])
        if not crossed:
            left, right = right, left
        x, y, z, w = (right >> half) ^ y ^ k, right & low, (left >> half) ^ w ^ m, left & low
    return x, y, z, w


def double_logarithm(u: ndarray) -> ndarray:
    import numpy

    noise: ndarray = -numpy.log(-numpy.log(u))
    return noise


def gumbel(
    seed: tuple[int, int],
    rows: ndarray,
    V: int,
    *,
    of: Callable[..., tuple[ndarray, ...]] = philox,
    places: Sequence[int] = (0, 1, 2, 3),
    words_taken: Sequence[int] = (0, 1, 2, 3),
    noise_of: Callable[[ndarray], ndarray] = double_logarithm,
) -> ndarray:
    """The noise of these rows and all their columns. ``places`` are those in the counter of a group's number, the row,
    seed[1] and 0; ``words_taken``: by the four columns of a group."""
    import numpy

    shape = (len(rows), (V + 3) // 4)
    column, row = numpy.arange(shape[1], dtype=numpy.uint64), rows.astype(numpy.uint64)[:, None]
    counter = (
        numpy.broadcast_to(column, shape),
        numpy.broadcast_to(row, shape),
        numpy.full(shape, seed[1] % 2**32, dtype=numpy.uint64),
        numpy.zeros(shape, dtype=numpy.uint64),
    )
    words = of(tuple(counter[place] for place in places), (seed[0] % 2**32, (seed[0] >> 32) % 2**32))
    word = numpy.stack([words[each] for each in words_taken], axis=2).reshape(len(rows), 4 * shape[1])[:, :V]
    return noise_of(((word >> numpy.uint64(9)).astype(numpy.float64) + 0.5) * 2.0**-23)


def gumbel_of_columns(seed: tuple[int, int], rows: ndarray, V: int) -> ndarray:
    """The same by mistake: the counter has each column's own number in the place of its group's."""
    import numpy

    every_fourth = gumbel(seed, rows, 4 * V).reshape(len(rows), V, 4)
    column = numpy.arange(V)
    noise: ndarray = every_fourth[:, column, column % 4]
    return noise


Keys = Callable[["ndarray", "ndarray", "ndarray"], "ndarray"]


def with_noise(x: ndarray, T: ndarray, noise: ndarray) -> ndarray:
    import numpy

    hot = T[:, None] > 0
    keys: ndarray = numpy.where(hot, x / numpy.where(hot, T[:, None], 1.0) + noise, x)
    return keys


def drawn(
    x: ndarray,
    T: ndarray,
    seed: ndarray,
    sizes: Sizes,
    rows: ndarray | None,
    keys: Keys = with_noise,
    words: Callable[[tuple[int, int]], tuple[int, int]] = lambda seed: seed,
    of_row: Callable[[ndarray], ndarray] = lambda row: row,
    noise: Callable[..., ndarray] = gumbel,
) -> ndarray:
    """The columns with the largest keys. ``words``: what is used as the seed; ``of_row``: as the row."""
    import numpy

    used = words((int(seed[0]), int(seed[1])))

    def part(x: ndarray, T: ndarray, rows: ndarray) -> ndarray:
        found: ndarray = keys(x, T, noise(used, of_row(rows), x.shape[1])).argmax(axis=1)
        return found

    return by_parts(part, x, T, numpy.arange(len(x)) if rows is None else rows)


def temperatures(*values: float) -> Fill:
    """One of the values for each row, in turn, so that what fills x knows which."""
    return lambda rng, shape, sizes: of_rows(shape[0], values)


def of_rows(rows: int, values: tuple[float, ...]) -> ndarray:
    import numpy

    return numpy.array(values)[numpy.arange(rows) % len(values)]


def seeded(seed: tuple[int, int]) -> Fill:
    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        return numpy.array(seed, dtype=numpy.int64)

    return fill


def rounded(x: ndarray) -> ndarray:
    import numpy

    return x.astype(numpy.float32).astype(numpy.float64)


def in_f32(fill: Fill, rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """What ``fill`` draws, in f32: of a draw that repeats, one period is made."""
    import numpy

    count = prod(shape)
    if isinstance(fill, Periodic) and count > PERIOD:
        return tiled(fill(rng, (PERIOD,), sizes).astype(numpy.float32), count).reshape(shape)
    return fill(rng, shape, sizes).astype(numpy.float32)


def apart(fill: Fill, seed: tuple[int, int], T: tuple[float, ...]) -> Fill:
    """What ``fill`` draws, but with no key within GAP of a row's largest: such logits are lowered."""

    def fill_apart(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        def moved(x: ndarray, rows: ndarray, T: ndarray) -> ndarray:
            x, hot = x.astype(numpy.float64), T > 0
            keys = x[hot] / T[hot, None] + gumbel(seed, rows[hot], shape[1])
            best = keys.argmax(axis=1)[:, None]
            close = keys > numpy.take_along_axis(keys, best, axis=1) - GAP
            numpy.put_along_axis(close, best, False, axis=1)
            row, column = close.nonzero()
            x[numpy.flatnonzero(hot)[row], column] -= 4 * GAP * T[hot][row]
            return x.astype(numpy.float32)

        return by_parts(moved, in_f32(fill, rng, shape, sizes), numpy.arange(shape[0]), of_rows(shape[0], T))

    return fill_apart


def contested(seed: tuple[int, int], near: float, *, by: float) -> Fill:
    """Rows in which the column whose noise is next to ``near`` wins by little or loses by little, in turn.

    Keys in f32 are off by some 1e-5 at most, with an exact logarithm or a series where it is not exact.
    """

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        x = rng.normal(shape)
        noise = gumbel(seed, numpy.arange(shape[0]), shape[1])
        column = abs(noise - near).argmin(axis=1)
        row = numpy.arange(shape[0])
        keys = x + noise
        keys[row, column] = -inf
        best = keys.max(axis=1)
        # The extreme words are in row 1: the highest noise must not be infinite there, and the lowest must not be -inf.
        wins = numpy.where((row % 2 == 1) == (near > 0), -by, by)
        x[row, column] = numpy.where(best > -inf, best, 0.0) - noise[row, column] + wins
        return x

    return fill


def peaked(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """One column has nearly all of the row's probability, as where a model is sure of the next token.

    It is the same column in every row, and no logit is negative, so it stays one per row in timed calls. No two keys of
    a row come close there, where nothing moves them apart.
    """
    import numpy

    x = in_f32(Periodic(lambda rng, shape: numpy.maximum(rng.normal(shape, mean=6.0), 0.0)), rng, shape, sizes)
    x[:, shape[1] // 2] = 26.0
    return x


def one_finite(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All -inf but one or two logits."""
    import numpy

    place = (numpy.arange(shape[0])[:, None] * 7919 + shape[1] // 3) % shape[1]
    column = numpy.arange(shape[1])
    finite = (column == place) | (column == shape[1] - 1) & (numpy.arange(shape[0])[:, None] % 2 == 1)
    return numpy.where(finite, rng.normal(shape, std=3.0), -inf)


def masked(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Two of three logits -inf, but not the last."""
    import numpy

    keep = (rng.integers(shape, 0, 2) == 0) | (numpy.arange(shape[1]) == shape[1] - 1)
    return numpy.where(keep, rng.normal(shape), -inf)


def draw(name: str, x: Fill, seed: tuple[int, int], *T: float) -> InputKind:
    return InputKind(name, {"x": apart(x, seed, T), "T": temperatures(*T), "seed": seeded(seed)})


def torch_multinomial(x: torch.Tensor, T: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """On a temperature of 1, which saves torch a pass."""
    import torch

    return lambda: torch.multinomial(torch.softmax(x, dim=1), 1)


def v_shape(rows: int, V: int) -> Sizes:
    return {"rows": rows, "V": V}


GUMBEL = Spec(
    computes="token = the lowest column with the largest x / T + noise of seed, row and column; T = 0: of x",
    operations=Operations(
        "token = argmax of x[row, :] / T - log(-log(u))",
        "7 per element: the division, two logarithms, two signs' difference and sum with x, u's scaling, a comparison",
        lambda sizes: 7 * sizes["rows"] * sizes["V"],
    ),
    inputs=(Tensor("x", ("rows", "V")), Tensor("T", ("rows",), "f32"), Tensor("seed", (2,), "i64")),
    outputs=(Tensor("token", ("rows",), "i32"),),
    sizes={"rows": Size(1, 12), "V": Size(1, 3000)},
    values=(
        draw("peaked", peaked, SEED, 1.0),
        draw("normal", normal(), SEED, 1.0, 0.7, 1.5),
        draw("greedy", few(-1.0, 2.0), SEED, 0.0),
        draw("mixed temperatures", normal(std=3.0), HIGH_SEED, 0.0, 0.1, 1.0, 10.0),
        draw("hot", normal(std=20.0), SEED, 10.0),
        draw("one finite", one_finite, SEED, 1.0, 0.0),
        draw("masked", masked, HIGH_SEED, 1.0),
        draw("negative", normal(mean=-50.0), HIGH_SEED, 1.0, 0.5),
        InputKind(
            "u next to 1",
            {"x": contested(NEXT_TO_1, HIGHEST, by=0.25), "T": temperatures(1.0), "seed": seeded(NEXT_TO_1)},
        ),
        InputKind(
            "close",
            {"x": contested(SEED, log(48.0), by=2.0**-14), "T": temperatures(1.0), "seed": seeded(SEED)},
        ),
        InputKind(
            "u next to 0",
            {"x": contested(NEXT_TO_0, -HIGHEST, by=0.25), "T": temperatures(1.0), "seed": seeded(NEXT_TO_0)},
        ),
    ),
    reference=drawn,
    near_misses={
        "the column of the largest logit, without noise": lambda x, T, seed, sizes, rows: argmax(x, sizes),
        "noise of the opposite sign": partial(drawn, keys=lambda x, T, noise: with_noise(x, T, -noise)),
        "logits times T": partial(drawn, keys=lambda x, T, noise: x * T[:, None] + noise * (T[:, None] > 0)),
        "noise divided by T, too": partial(drawn, keys=lambda x, T, noise: x + noise * (T[:, None] > 0)),
        "noise where T is 0, too": partial(drawn, keys=lambda x, T, noise: with_noise(x, T + (T == 0), noise)),
        "the same noise in every row": partial(drawn, of_row=lambda row: 0 * row),
        "the counter has the column, not its group of four": partial(drawn, noise=gumbel_of_columns),
        **{
            words: partial(drawn, noise=partial(gumbel, of=partial(philox, **of)))
            for words, of in {
                "seven rounds of Philox": {"rounds": 7},
                "nine rounds of Philox": {"rounds": 9},
                "eleven rounds of Philox": {"rounds": 11},
                "Philox's key is raised before each round, not after it": {"raised": 1},
                "Philox's key is never raised": {"weyl_step": 0},
                "Philox's key is raised twice in each round": {"weyl_step": 2},
                "the two constants that Philox's key is raised by are exchanged": {"weyls": (0xBB67AE85, 0x9E3779B9)},
                "Philox's two factors are exchanged": {"factors": (0xCD9E8D57, 0xD2511F53)},
                "the words of Philox's two products are not crossed": {"crossed": False},
            }.items()
        },
        **{
            words: partial(drawn, noise=partial(gumbel, **of))
            for words, of in {
                "row and group of columns are exchanged in the counter": {"places": (1, 0, 2, 3)},
                "seed[1] is the counter's last word, not its third": {"places": (0, 1, 3, 2)},
                "the four columns of a group take Philox's words in reverse order": {"words_taken": (3, 2, 1, 0)},
                "the four columns of a group take the same word of Philox, the first": {"words_taken": (0, 0, 0, 0)},
                "the four columns of a group take Philox's words one later": {"words_taken": (1, 2, 3, 0)},
                "-log(u), one logarithm": {"noise_of": lambda u: -logarithm(u)},
                "1 - u in place of u": {"noise_of": lambda u: double_logarithm(1 - u)},
                "u itself in place of -log(-log(u))": {"noise_of": lambda u: u},
                "logarithms of base 2": {"noise_of": lambda u: (double_logarithm(u) + log(log(2))) / log(2)},
            }.items()
        },
        "the low half of seed[0] alone": partial(drawn, words=lambda seed: (seed[0] % 2**32, seed[1])),
        "the halves of seed[0] exchanged": partial(
            drawn, words=lambda seed: ((seed[0] % 2**32 << 32) + (seed[0] >> 32) % 2**32, seed[1])
        ),
        "a seed without seed[1]": partial(drawn, words=lambda seed: (seed[0], 0)),
    },
    tolerance=Exact(),
    # Rows of every length modulo a group of 4, around a warp, a block's groups, a step of them.
    named_sizes=(
        v_shape(1, 1),
        v_shape(2, 2),
        v_shape(3, 3),
        v_shape(5, 4),
        v_shape(4, 5),
        v_shape(3, 36),
        v_shape(2, 127),
        v_shape(5, 128),
        v_shape(3, 129),
        v_shape(4, 1000),
        v_shape(3, 2047),
        v_shape(2, 2048),
        v_shape(3, 2049),
        v_shape(2, 4099),
        v_shape(17, 40),
        v_shape(1, 8200),
        v_shape(3, 32_003),
    ),
    large=(v_shape(65, 128_256), v_shape(70_001, 33), v_shape(3, 1_000_003), v_shape(1031, 1031)),
    work=lambda sizes: sizes["rows"] * (60_000 + 60 * sizes["V"]),
    slice_dim="rows",
    sampled=True,
    reference_takes_rows=True,
    baselines={"softmax and torch.multinomial": torch_multinomial},
)

# -- a threshold, and one number per row -----------------------------------------------------------------------------

LAST = 1.0 - 2.0**-24  # the largest f32 below 1
STEP = 2.0**-17  # of the running sum of probabilities: a token with less is not aimed at where another has more
LOGITS: WeakKeyDictionary[Rng, ndarray] = WeakKeyDictionary()  # what was drawn as x, for what fills u


def min_p_weights(x: ndarray, T: ndarray, min_p: ndarray) -> ndarray:
    """exp((x - max) / T) of the kept columns, 0 of the others."""
    import numpy

    distance = (x - x.max(axis=1, keepdims=True)) / T[:, None]
    weights: ndarray = numpy.where(distance >= numpy.log(min_p)[:, None], numpy.exp(distance), 0.0)
    return weights


def of_all(x: ndarray, T: ndarray) -> ndarray:
    """softmax(x / T)."""
    import numpy

    weights = numpy.exp((x - x.max(axis=1, keepdims=True)) / T[:, None])
    probabilities: ndarray = weights / weights.sum(axis=1, keepdims=True)
    return probabilities


def logarithm(of: ndarray) -> ndarray:
    import numpy

    logarithms: ndarray = numpy.log(of)
    return logarithms


def totals(x: ndarray, T: ndarray, min_p: ndarray) -> ndarray:
    total: ndarray = min_p_weights(x, T, min_p).sum(axis=1)
    return total


def at_share(weights: ndarray, u: ndarray) -> ndarray:
    """The first column at which the running sum of the weights exceeds u of their sum, or the last with a weight."""
    import numpy

    sums = weights.cumsum(axis=1)
    past = sums > (u * sums[:, -1])[:, None]
    last = weights.shape[1] - 1 - (weights[:, ::-1] > 0).argmax(axis=1)
    return numpy.where(past.any(axis=1), past.argmax(axis=1), last)


def min_p_token(x: ndarray, T: ndarray, min_p: ndarray, u: ndarray, sizes: Sizes) -> ndarray:
    return by_parts(lambda x, T, min_p, u: at_share(min_p_weights(x, T, min_p), u), x, T, min_p, u)


def min_p_apart(fill: Fill, T: tuple[float, ...], min_p: tuple[float, ...]) -> Fill:
    """What ``fill`` draws, but with no logit within GAP T of the threshold, unless it is the maximum."""

    def fill_apart(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        def moved(x: ndarray, T: ndarray, min_p: ndarray) -> ndarray:
            x = x.astype(numpy.float64)
            room, top = GAP * T, x.max(axis=1)
            least = top + T * numpy.log(min_p)
            row, column = ((abs(x - least[:, None]) < room[:, None]) & (x < top[:, None])).nonzero()
            x[row, column] = (least - 2 * room)[row]
            return x.astype(numpy.float32)

        rows = shape[0]
        LOGITS[rng] = by_parts(moved, in_f32(fill, rng, shape, sizes), of_rows(rows, T), of_rows(rows, min_p))
        return LOGITS[rng]

    return fill_apart


def in_steps(weights_of: Callable[[ndarray, ndarray], ndarray]) -> Fill:
    """For each row the middle of a step of the running sum, the token drawn with its probability. ``weights_of`` gets
    logits and the indices of their rows."""

    def middles(logits: ndarray, rows: ndarray, drawn: ndarray) -> ndarray:
        import numpy

        weights = weights_of(logits.astype(numpy.float64), rows)
        weights /= weights.sum(axis=1, keepdims=True)
        tokens, each = at_share(weights, drawn), numpy.arange(len(rows))
        tokens = numpy.where(weights[each, tokens] < STEP, weights.argmax(axis=1), tokens)
        before = numpy.array([row[:token].sum() for row, token in zip(weights, tokens, strict=True)])
        middle: ndarray = before + weights[each, tokens] / 2
        return middle

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        drawn = rng.uniform(shape, 0.0, 1.0)
        if rng not in LOGITS:  # u alone is drawn, as an example of its values
            return drawn
        return by_parts(middles, LOGITS[rng], numpy.arange(shape[0]), drawn)

    return fill


def early(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Likely columns in the first three fifths of the row alone: running sums are complete long before its end."""
    import numpy

    return rng.normal(shape, std=1.5) - 40.0 * (numpy.arange(shape[1]) >= 0.6 * shape[1])


def min_p_kind(name: str, x: Fill, T: tuple[float, ...], min_p: tuple[float, ...], u: Fill | None = None) -> InputKind:
    import numpy

    def weights(logits: ndarray, rows: ndarray) -> ndarray:
        return min_p_weights(logits, numpy.array(T)[rows % len(T)], numpy.array(min_p)[rows % len(min_p)])

    fills = {"x": min_p_apart(x, T, min_p), "T": temperatures(*T), "min_p": temperatures(*min_p)}
    return InputKind(name, {**fills, "u": u or in_steps(weights)})


@Periodic
def in_levels(rng: Rng, shape: tuple[int, ...]) -> ndarray:
    """Few likely columns, whose weights are 1, 1/2, 1/4, 1/8 and 1/16 of the largest, and many that are far below.

    No logit is negative, so that timed calls get no others. Their rows are other parts of the same logits. They fit the
    same u: its product with a sum of few such weights is not close to a whole number of the smallest.
    """
    import numpy

    likely = 26.0 - log(2.0) * rng.integers(shape, 0, 4)
    return numpy.where(rng.integers(shape, 0, 4095) == 0, likely, numpy.maximum(rng.normal(shape, mean=6.0), 0.0))


# 0, the largest below 1, and numbers that no fraction with a small denominator comes close to.
ANY_ROW = temperatures(0.6180339887, 0.0, 0.4142135624, LAST, 0.3819660113, 0.7320508076)


def torch_top_p(x: torch.Tensor, top_p: torch.Tensor, u: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """On a temperature of 1."""
    import torch

    def run() -> torch.Tensor:
        values, columns = torch.softmax(x, dim=1).sort(dim=1, descending=True)
        sums = values.cumsum(dim=1)
        sums = torch.where(sums - values < top_p[:, None], sums, 0.0)
        share = u[:, None] * sums.amax(dim=1, keepdim=True)
        return columns.gather(1, (sums > share).int().argmax(dim=1, keepdim=True))

    return run


MIN_P = Spec(
    computes="token = the first kept column at which the running sum of softmax(x / T) over the kept exceeds u",
    operations=Operations(
        "token = draw from softmax(x[row, :] / T) where x / T >= max(x / T) + log(min_p)",
        "2 per element: a maximum and a comparison; the kept columns are few",
        lambda sizes: 2 * sizes["rows"] * sizes["V"],
    ),
    inputs=(
        Tensor("x", ("rows", "V")),
        Tensor("T", ("rows",), "f32"),
        Tensor("min_p", ("rows",), "f32"),
        Tensor("u", ("rows",), "f32"),
    ),
    outputs=(Tensor("token", ("rows",), "i32"),),
    sizes={"rows": Size(1, 12), "V": Size(1, 4000)},
    values=(
        min_p_kind("levels", in_levels, (1.0,), (0.1,), ANY_ROW),
        min_p_kind("normal", normal(std=2.0), (1.0, 0.7, 1.5), (0.1, 0.02, 0.3)),
        min_p_kind("all kept", normal(), (1.0, 2.0), (1e-6,)),
        min_p_kind("only maxima", few(-1.0, 2.0), (1.0, 0.5), (1.0,)),
        min_p_kind("equal", few(3.0), (1.0, 0.1, 10.0), (0.5, 1.0)),
        min_p_kind("u = 0", normal(std=2.0), (1.0, 0.5), (0.05,), temperatures(0.0)),
        min_p_kind("u below 1", early, (1.0, 0.5), (0.02, 0.1), temperatures(LAST)),
        min_p_kind("hot and cold", normal(std=3.0), (0.1, 10.0), (0.2, 0.6)),
        min_p_kind("masked", masked, (1.0,), (0.05, 0.4)),
        min_p_kind("one finite", one_finite, (1.0, 0.3), (0.05,)),
        min_p_kind("far from 0", normal(mean=-300.0, std=2.0), (1.0,), (0.1,)),
    ),
    reference=min_p_token,
    near_misses={
        "a draw from all columns": lambda x, T, min_p, u, sizes: min_p_token(x, T, 0 * min_p + 1e-30, u, sizes),
        "the likeliest column": lambda x, T, min_p, u, sizes: argmax(x, sizes),
        "the columns kept by p >= min_p, not by its ratio to the largest p": lambda x, T, min_p, u, sizes: by_parts(
            lambda x, T, min_p, u: at_share(of_all(x, T) * (of_all(x, T) >= min_p[:, None]), u), x, T, min_p, u
        ),
        "u of the sum over all columns": lambda x, T, min_p, u, sizes: by_parts(
            lambda x, T, min_p, u: at_share(
                min_p_weights(x, T, min_p), u * totals(x, T, 0 * min_p + 1e-30) / totals(x, T, min_p)
            ),
            x,
            T,
            min_p,
            u,
        ),
        "a threshold without T": lambda x, T, min_p, u, sizes: by_parts(
            lambda x, T, min_p, u: at_share(
                of_all(x, T) * (x >= x.max(axis=1, keepdims=True) + logarithm(min_p)[:, None]), u
            ),
            x,
            T,
            min_p,
            u,
        ),
        "the softmax without T": lambda x, T, min_p, u, sizes: by_parts(
            lambda x, T, min_p, u: at_share(of_all(x, T * 0 + 1) * (min_p_weights(x, T, min_p) > 0), u), x, T, min_p, u
        ),
        "the column before it": lambda x, T, min_p, u, sizes: min_p_token(x, T, min_p, u, sizes) - 1,
        "the running sum from the last column down": lambda x, T, min_p, u, sizes: (
            x.shape[1] - 1 - min_p_token(x[:, ::-1], T, min_p, u, sizes)
        ),
    },
    tolerance=Exact(),
    # Rows of every length modulo a vector, around a warp, a segment, all segments of a row (512 of 128).
    named_sizes=(
        v_shape(1, 1),
        v_shape(2, 2),
        v_shape(3, 3),
        v_shape(5, 4),
        v_shape(4, 33),
        v_shape(6, 127),
        v_shape(5, 128),
        v_shape(6, 129),
        v_shape(6, 1000),
        v_shape(3, 1023),
        v_shape(4, 4099),
        v_shape(17, 40),
        v_shape(40, 4100),
        v_shape(1, 8200),
        v_shape(3, 32_003),
        v_shape(1, 65_537),
    ),
    large=(v_shape(65, 128_256), v_shape(70_001, 33), v_shape(3, 1_000_003), v_shape(1031, 1031)),
    work=lambda sizes: sizes["rows"] * (300_000 + 30 * sizes["V"]),
    slice_dim="rows",
    sampled=True,
    baselines={"softmax and torch.multinomial": torch_multinomial},
)

# -- a threshold that depends on the sum above it --------------------------------------------------------------------

SHARES: WeakKeyDictionary[Rng, ndarray] = WeakKeyDictionary()  # what was drawn as top_p, for what fills u


def top_p_kept(x: ndarray, T: ndarray, top_p: ndarray) -> ndarray:
    """exp((x - max) / T) of the kept columns, 0 of the others; all finite ones where top_p is 1."""
    import numpy

    weights = numpy.exp((x - x.max(axis=1, keepdims=True)) / T[:, None])
    falling = -numpy.sort(-x, axis=1)
    sums = numpy.exp((falling - falling[:, :1]) / T[:, None]).cumsum(axis=1)
    enough = sums >= (top_p * sums[:, -1])[:, None]
    least = numpy.take_along_axis(falling, enough.argmax(axis=1)[:, None], axis=1)
    least = numpy.where(top_p[:, None] >= 1.0, numpy.finfo(numpy.float32).min, least)
    kept: ndarray = numpy.where(x >= least, weights, 0.0)
    return kept


def top_p_answer(kept: ndarray, u: ndarray) -> ndarray:
    """[rows, 2]: how many columns have a weight, and the token."""
    import numpy

    return numpy.stack([(kept > 0).sum(axis=1), at_share(kept, u)], axis=1)


def top_p_drawn(
    x: ndarray,
    T: ndarray,
    top_p: ndarray,
    u: ndarray,
    sizes: Sizes,
    kept: Callable[[ndarray, ndarray, ndarray], ndarray] = top_p_kept,
) -> tuple[ndarray, ndarray]:
    both = by_parts(lambda x, T, top_p, u: top_p_answer(kept(x, T, top_p), u), x, T, top_p, u)
    return both[:, 0], both[:, 1]


def one_less(x: ndarray, T: ndarray, top_p: ndarray) -> ndarray:
    """Without the least of the kept columns: their sum stays below top_p."""
    import numpy

    kept = top_p_kept(x, T, top_p)
    least = numpy.where(kept > 0, kept, inf).min(axis=1, keepdims=True)
    return numpy.where((kept > least) | (kept == kept.max(axis=1, keepdims=True)), kept, 0.0)


def as_min_p(x: ndarray, T: ndarray, top_p: ndarray) -> ndarray:
    return min_p_weights(x, T, top_p)


def noted(fill: Fill) -> Fill:
    """What ``fill`` draws as x, for what fills top_p and u."""

    def fill_noted(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        LOGITS[rng] = in_f32(fill, rng, shape, sizes)
        return LOGITS[rng]

    return fill_noted


def between_sums(T: tuple[float, ...], aims: tuple[float, ...]) -> Fill:
    """Shares near the aims, each in the middle between two sums that thresholds keep; an aim of 1 stays 1."""

    def between(logits: ndarray, T: ndarray, shares: ndarray) -> ndarray:
        import numpy

        falling = -numpy.sort(-logits.astype(numpy.float64), axis=1)
        sums = numpy.exp((falling - falling[:, :1]) / T[:, None]).cumsum(axis=1)
        sums /= sums[:, -1:]
        other, edge = falling[:, 1:] != falling[:, :-1], numpy.ones((len(logits), 1), bool)
        starts, ends = numpy.hstack([edge, other]), numpy.hstack([other, edge])  # of equal logits
        start = numpy.maximum.accumulate(numpy.where(starts, numpy.arange(logits.shape[1]), 0), axis=1)
        before = numpy.where(start > 0, numpy.take_along_axis(sums, numpy.maximum(start, 1) - 1, axis=1), 0.0)
        good = ends & (sums - before > 2 * STEP) & (sums >= shares[:, None])
        at = numpy.where(good.any(axis=1), good.argmax(axis=1), ends.argmax(axis=1))
        each = numpy.arange(len(logits))
        return numpy.where(shares >= 1.0, shares, (before[each, at] + sums[each, at]) / 2)

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        shares = of_rows(shape[0], aims)
        if rng not in LOGITS:  # top_p alone is drawn, as an example of its values
            return shares
        SHARES[rng] = rounded(by_parts(between, LOGITS[rng], of_rows(shape[0], T), shares))
        return SHARES[rng]

    return fill


def in_kept_steps(T: tuple[float, ...]) -> Fill:
    """For each row the middle of a step of the running sum over what its top_p keeps."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:

        if rng not in SHARES:
            return rng.uniform(shape, 0.0, 1.0)

        def weights(logits: ndarray, rows: ndarray) -> ndarray:
            return top_p_kept(logits, of_rows(shape[0], T)[rows], SHARES[rng][rows])

        return in_steps(weights)(rng, shape, sizes)

    return fill


def top_p_kind(name: str, x: Fill, T: tuple[float, ...], top_p: tuple[float, ...], u: Fill | None = None) -> InputKind:
    fills = {"x": noted(x), "T": temperatures(*T), "top_p": between_sums(T, top_p)}
    return InputKind(name, {**fills, "u": u or in_kept_steps(T)})


@Periodic
def in_high_levels(rng: Rng, shape: tuple[int, ...]) -> ndarray:
    """As in_levels, with the likely columns so far above the others that these have no part in any sum."""
    import numpy

    likely = 40.0 - log(2.0) * rng.integers(shape, 0, 4)
    return numpy.where(rng.integers(shape, 0, 4095) == 0, likely, numpy.maximum(rng.normal(shape, mean=6.0), 0.0))


TOP_P = replace(
    MIN_P,
    computes="count = how many of the likeliest columns have the probability top_p; token = a draw from these",
    operations=Operations(
        "t = the largest with sum of (p_j >= t) >= top_p; token = draw from p[row, :] where p >= t",
        "3 per element: a maximum, an exponential and a sum; the columns above the bounds of t are few",
        lambda sizes: 3 * sizes["rows"] * sizes["V"],
    ),
    inputs=(
        Tensor("x", ("rows", "V")),
        Tensor("T", ("rows",), "f32"),
        Tensor("top_p", ("rows",), "f32"),
        Tensor("u", ("rows",), "f32"),
    ),
    outputs=(Tensor("count", ("rows",), "i32"), Tensor("token", ("rows",), "i32")),
    values=(
        InputKind(
            "levels",
            {
                "x": in_high_levels,
                "T": temperatures(1.0),
                "top_p": temperatures(0.7320508076),
                "u": ANY_ROW,
            },
        ),
        top_p_kind("normal", normal(std=3.0), (1.0, 0.7, 1.5), (0.9, 0.5, 0.99)),
        top_p_kind("flat", normal(), (1.0, 2.0), (0.9, 0.3)),
        top_p_kind("few values", few(-1.0, 0.0, 0.5, 2.0), (1.0, 0.5), (0.2, 0.7, 0.95)),
        top_p_kind("equal", few(3.0), (1.0, 0.1, 10.0), (0.5, 1e-6)),
        top_p_kind("all", normal(std=2.0), (1.0, 0.5), (1.0,)),
        top_p_kind("the likeliest", normal(std=2.0), (1.0, 0.5), (1e-6,)),
        top_p_kind("one above all", peaked, (1.0, 2.0), (0.5, 0.999)),
        top_p_kind("neighbours", nearly_equal, (1.0, 0.5), (0.6, 0.1)),
        top_p_kind("u = 0", normal(std=2.0), (1.0, 0.5), (0.8,), temperatures(0.0)),
        top_p_kind("u below 1", early, (1.0, 0.5), (0.8, 0.4), temperatures(LAST)),
        top_p_kind("hot and cold", normal(std=3.0), (0.1, 10.0), (0.9, 0.6)),
        top_p_kind("masked", masked, (1.0,), (0.9, 1.0)),
        top_p_kind("one finite", one_finite, (1.0, 0.3), (0.9, 1.0)),
        top_p_kind("far from 0", normal(mean=-300.0, std=2.0), (1.0,), (0.8,)),
    ),
    reference=top_p_drawn,
    near_misses={
        "one column too few: their sum is below top_p": lambda x, T, top_p, u, sizes: top_p_drawn(
            x, T, top_p, u, sizes, one_less
        ),
        "a draw from all columns": lambda x, T, top_p, u, sizes: top_p_drawn(x, T, 0 * top_p + 1, u, sizes),
        "the likeliest column alone": lambda x, T, top_p, u, sizes: top_p_drawn(x, T, 0 * top_p + 1e-30, u, sizes),
        "min-p: columns at least top_p times as likely as the likeliest": lambda x, T, top_p, u, sizes: top_p_drawn(
            x, T, top_p, u, sizes, as_min_p
        ),
    },
    named_sizes=(
        v_shape(1, 1),
        v_shape(2, 2),
        v_shape(3, 3),
        v_shape(5, 4),
        v_shape(4, 33),
        v_shape(6, 127),
        v_shape(5, 128),
        v_shape(6, 129),
        v_shape(6, 1000),
        v_shape(3, 1023),
        v_shape(4, 4099),
        v_shape(17, 40),
        v_shape(40, 4100),
        v_shape(1, 8200),
        v_shape(3, 32_003),
        v_shape(1, 65_537),
    ),
    work=lambda sizes: sizes["rows"] * (900_000 + 400 * sizes["V"]),
    baselines={"softmax, torch.sort and cumsum": torch_top_p},
)

SPECS: dict[str, Spec] = {
    "argmax_row_f32": ARGMAX,
    "topk_warp_f32": TOPK,
    "topk_radix_select_f32": RADIX_SELECT,
    "sample_gumbel_f32": GUMBEL,
    "sample_min_p_f32": MIN_P,
    "sample_top_p_f32": TOP_P,
}
