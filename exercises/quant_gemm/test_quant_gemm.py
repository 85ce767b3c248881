"""quant_gemm: products of quantized matrices. A weight is a small whole number times a scale that its neighbours share.

w8a16_gemv_f16: y[m] = s[m] sum of q[m, k] x[k], q int8.

w4a16_gemv_f16: y[m] = sum of s[m, k / 128] (u[m, k] - 8) x[k], u of 4 bits, eight in a word, K = 128 groups. The scale
is multiplied in float.

w4a16_gemm_f16: y = x W^T for T rows of x, W[n, k] = s[k / 128, n] (u[n, k] - 8). The words are in the order in which
the lanes of mma.sync need them; ``unpacked`` has it. W may be rounded to half, or not.

w8a8_gemm_i8: C[m, n] = sa[m] sb[n] sum of A[m, k] B[n, k], both int8. The sum is an exact integer.

fp8_block_gemm: C[m, n] = sum over blocks b of 128 k of sa[b, m] sb[n / 128, b] (sum of A[m, k] B[n, k] over the block),
A and B e4m3.

Sums of products of floats are kept in float and rounded once: the bound is that of hgemv's. Where W may be rounded,
each product is off by up to h = 2^-11, independently of the others, so the root of the sum of (W x)^2, times h, is
added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from grader.content.formulas import side_by_side
from grader.content.fragments import other_scales
from grader.content.spec import (
    Accumulated,
    Fill,
    InputKind,
    Operations,
    Periodic,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    doubled,
    growth,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

GROUP = 128  # weights that share a scale
UNIT, HALF = 2.0**-24, 2.0**-11  # roundoff of f32, of half
BLOCK = 1 << 18  # weights that are unpacked at a time


def without(scales: ndarray, place: int) -> ndarray:
    """The scales of one group or block are 0."""
    kept = scales.copy()
    kept[place] = 0
    return kept


def in_chunks(of: Callable[[slice], ndarray], count: int, weights: int, axis: int) -> ndarray:
    """``of`` for slices of range(count), several at once, joined along ``axis``. One of the range has so many weights.

    What a slice is unpacked to stays in a processor's cache.
    """
    import numpy

    step = max(1, BLOCK // max(1, weights))
    chunks = [(slice(first, first + step),) for first in range(0, max(1, count), step)]
    return numpy.concatenate(side_by_side(of, chunks), axis=axis)


# -- values ----------------------------------------------------------------------------------------------------------


def one_of(*values: float) -> Fill:
    return Periodic(lambda rng, shape: rng.choice(shape, values))


def between(low: float, high: float) -> Fill:
    return lambda rng, shape, sizes: rng.uniform(shape, low, high)


def powers(low: int, high: int) -> Fill:
    """Powers of two from 2^low to 2^high: a product with one of them is exact."""
    return lambda rng, shape, sizes: 2.0 ** rng.integers(shape, low, high)


def signed(high: int) -> Fill:
    """Whole numbers of either sign, 1 to ``high``."""
    return Periodic(lambda rng, shape: rng.integers(shape, 1, high) * rng.choice(shape, (1.0, -1.0)))


def bytes_of(low: int, high: int) -> Fill:
    """Whole numbers in [low, high], drawn as int8: a large matrix takes as many bytes here as on the GPU."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        return rng.repeated(shape, lambda count: rng.integers([count], low, high).astype("int8"))

    return fill


def bytes_about(mean: float, std: float) -> Fill:
    """Normal draws, rounded to int8."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        return rng.repeated(
            shape, lambda count: rng.normal([count], mean=mean, std=std).round().clip(-128, 127).astype("int8")
        )

    return fill


def bytes_at_ends(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The lowest int8 and the highest."""
    return rng.repeated(shape, lambda count: rng.choice([count], (-128.0, 127.0)).astype("int8"))


def bytes_taken_back(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The second half of each row is minus the first, give or take 2: the sum is small, and its parts are not."""
    drawn = rng.integers(shape, -120, 120)
    half = shape[-1] // 2
    drawn[..., half : 2 * half] = rng.integers(drawn[..., :half].shape, -2, 2) - drawn[..., :half]
    return drawn


# -- w8a16_gemv_f16 --------------------------------------------------------------------------------------------------


def w8(q: ndarray, s: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
    return s * in_chunks(lambda rows: q[rows] @ x, len(q), len(x), 0)


def w8_magnitude(q: ndarray, s: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
    return abs(s) * in_chunks(lambda rows: abs(q[rows]) @ abs(x), len(q), len(x), 0)


def w8_in_words(change: Callable[[ndarray], ndarray]) -> Callable[..., ndarray]:
    """With the four bytes of each word changed."""

    def of_inputs(q: ndarray, s: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
        words = q.reshape(sizes["M"], -1, 4)
        return w8(change(words).reshape(q.shape), s, x, sizes)

    return of_inputs


def torch_mv_of_bytes(q: torch.Tensor, s: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    """cuBLAS with the weights as halves, which are made before the clock runs. Their scales are left out."""
    import torch

    A = q.to(torch.float16)
    return lambda: torch.mv(A, x, out=y)


def vector_shape(M: int, K: int) -> Sizes:
    return {"M": M, "K": K}


# What is computed in place of it by a usual mistake.
W8_NEAR_MISSES: dict[str, Callable[..., ndarray]] = {
    "weights as unsigned bytes: -1 is 255": lambda q, s, x, sizes: w8(q % 256, s, x, sizes),
    "weights + 128: the offset of the unsigned byte is not subtracted": lambda q, s, x, sizes: w8(q + 128, s, x, sizes),
    "weights + 1152: neither 1024 nor 128 is subtracted": lambda q, s, x, sizes: w8(q + 1152, s, x, sizes),
    "weights whose upper bit is the other one": w8_in_words(lambda words: words % 256 - 128.0),
    "without the scale": lambda q, s, x, sizes: q @ x,
    "the scale squared": lambda q, s, x, sizes: s * w8(q, s, x, sizes),
    "the scale of row 0 for every row": lambda q, s, x, sizes: w8(q, s[:1], x, sizes),
    "the bytes of each word in reverse order": w8_in_words(lambda words: words[:, :, ::-1]),
    "bytes 1 and 2 of each word exchanged": w8_in_words(lambda words: words[:, :, [0, 2, 1, 3]]),
    "the last 16 columns are missing": lambda q, s, x, sizes: w8(q[:, :-16], s, x[:-16], sizes),
    "only the first 16 columns": lambda q, s, x, sizes: w8(q[:, :16], s, x[:16], sizes),
    "only the first 512 columns": lambda q, s, x, sizes: w8(q[:, :512], s, x[:512], sizes),
    "row 0 for every row": lambda q, s, x, sizes: w8(q * 0 + q[:1], s, x, sizes),
}

W8 = Spec(
    computes="y[m] = s[m] sum of q[m, k] x[k]",
    operations=Operations(
        "y[m] = s[m] sum of q[m, k] x[k]",
        "2 per weight: a multiplication and an addition. The scale counts once per row: it is left out",
        lambda sizes: 2 * sizes["M"] * sizes["K"],
    ),
    inputs=(Tensor("q", ("M", "K"), "i8"), Tensor("s", ("M",), "f32"), Tensor("x", ("K",))),
    outputs=(Tensor("y", ("M",)),),
    sizes={"M": Size(0, 80), "K": Size(0, 1200)},
    values=(
        # Sums of millions of products, as speed is measured on, still fit a half.
        InputKind("offset", {"q": bytes_about(12, 40), "s": between(2.0**-11, 2.0**-9), "x": normal(mean=0.25)}),
        InputKind("whole numbers", {"q": bytes_of(-128, 127), "s": powers(-5, -3), "x": signed(8)}, exact=True),
        InputKind("lowest and highest", {"q": bytes_at_ends, "s": powers(-4, -1), "x": signed(2)}, exact=True),
        InputKind("taken back", {"q": bytes_taken_back, "s": between(0.001, 0.1), "x": doubled(normal())}),
    ),
    reference=w8,
    near_misses=W8_NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=w8_magnitude),
    # Nothing; tiny; one vector of 16, around what a warp takes in one load and in several; rows around those of a warp
    # and a block. From the 17th on: the same again with other neighbours.
    named_sizes=(
        vector_shape(0, 32),
        vector_shape(1, 0),
        vector_shape(1, 16),
        vector_shape(2, 32),
        vector_shape(3, 48),
        vector_shape(31, 16),
        vector_shape(33, 80),
        vector_shape(7, 496),
        vector_shape(5, 512),
        vector_shape(2, 528),
        vector_shape(17, 272),
        vector_shape(3, 1008),
        vector_shape(2, 1040),
        vector_shape(100, 112),
        vector_shape(3, 2064),
        vector_shape(1, 4096),
        vector_shape(2, 8208),
        vector_shape(0, 0),
        vector_shape(37, 0),
        vector_shape(15, 1024),
        vector_shape(257, 16),
        vector_shape(1, 20_016),
    ),
    # The first two are tried on a GPU by default.
    large=(vector_shape(1021, 8208), vector_shape(1_000_003, 16), vector_shape(3, 400_016), vector_shape(4099, 4096)),
    work=lambda sizes: 8 * sizes["M"] * (sizes["K"] + 64),
    slice_dim="M",
    baselines={"torch.mv": torch_mv_of_bytes},
)


# -- weights of 4 bits -----------------------------------------------------------------------------------------------


def any_words(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Words of eight random nibbles."""
    return rng.repeated(shape, lambda count: rng.integers([count], -(2**31), 2**31 - 1).astype("int32"))


def equal_nibbles(*nibbles: int) -> Fill:
    """Words whose eight nibbles are all one of these."""

    def fill(rng: Rng, shape: tuple[int, ...]) -> ndarray:
        words = rng.choice(shape, nibbles).astype("int64") * 0x11111111
        return (words + 2**31) % 2**32 - 2**31

    return Periodic(fill)


def words_taken_back(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Words [M, groups, 16] whose weights in the second half of the groups are minus those in the first, but for 1 in
    some places: u becomes 16 - u."""
    first = rng.integers((*shape, 8), 2, 15)
    half = shape[-2] // 2
    first[:, half : 2 * half] = 16 - first[:, :half] - (rng.uniform(first[:, :half].shape, 0, 1) < 0.06)
    return packed(first)


def packed(nibbles: ndarray) -> ndarray:
    """[..., 8] numbers from 0 to 15 as words: number i in bits 4 i to 4 i + 3."""
    import numpy

    words = (nibbles << numpy.arange(0, 32, 4)).sum(axis=-1)
    result: ndarray = (words + 2**31) % 2**32 - 2**31
    return result


def nibbles_of(words: ndarray) -> ndarray:
    """Words as [..., 8] numbers from 0 to 15."""
    import numpy

    result: ndarray = words[..., None] >> numpy.arange(0, 32, 4) & 15
    return result


# -- w4a16_gemv_f16 --------------------------------------------------------------------------------------------------


def w4_weights(q: ndarray) -> ndarray:
    """u - 8 of words [M, groups, 16], [M, groups, 128]."""
    return (nibbles_of(q) - 8.0).reshape(*q.shape[:2], GROUP)


def w4_sum(weights: ndarray, s: ndarray, x: ndarray) -> ndarray:
    result: ndarray = (weights * s[..., None]).reshape(len(weights), x.size) @ x.reshape(-1)
    return result


def w4(q: ndarray, s: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
    return in_chunks(lambda rows: w4_sum(w4_weights(q[rows]), s[rows], x), len(q), x.size, 0)


def w4_magnitude(q: ndarray, s: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
    return in_chunks(lambda rows: w4_sum(abs(w4_weights(q[rows])), abs(s[rows]), abs(x)), len(q), x.size, 0)


def w4_in_order(order: tuple[int, ...]) -> Callable[..., ndarray]:
    """Element i of x with nibble order[i] of the word."""

    def of_inputs(q: ndarray, s: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
        weights = w4_weights(q).reshape(*q.shape, 8)[..., list(order)]
        return w4_sum(weights.reshape(*q.shape[:2], GROUP), s, x)

    return of_inputs


def w4_of(change: Callable[[ndarray], ndarray]) -> Callable[..., ndarray]:
    """With the weights u - 8 changed."""
    return lambda q, s, x, sizes: w4_sum(change(w4_weights(q)), s, x)


def odd_times_16(weights: ndarray) -> ndarray:
    """16 u - 8 in place of u - 8 for every second nibble."""
    changed = weights.copy()
    changed[..., 1::2] = 16 * (changed[..., 1::2] + 8) - 8
    return changed


def w4_top_nibble(q: ndarray, s: ndarray, x: ndarray, sizes: Sizes) -> ndarray:
    """The uppermost nibble of a word with the sign of the word in front of it: 15 is -1."""
    nibbles = nibbles_of(q) - 8.0
    nibbles[..., 7] -= 16.0 * (nibbles[..., 7] >= 0.0)
    return w4_sum(nibbles.reshape(*q.shape[:2], GROUP), s, x)


def torch_mv_of_nibbles(q: torch.Tensor, s: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    """cuBLAS with the weights as halves, which are made before the clock runs."""
    import torch

    M, groups, _ = q.shape
    A = torch.empty(M, groups, 16, 8, dtype=torch.float16, device=q.device)
    for i in range(8):
        A[..., i] = ((q >> 4 * i & 15) - 8).to(torch.float16) * s[..., None]
    A, flat = A.reshape(M, groups * GROUP), x.reshape(-1)
    return lambda: torch.mv(A, flat, out=y)


def group_shape(M: int, groups: int) -> Sizes:
    return {"M": M, "groups": groups}


W4_NEAR_MISSES: dict[str, Callable[..., ndarray]] = {
    "nibbles in the order 0, 4, 1, 5, 2, 6, 3, 7, x in its own": w4_in_order((0, 4, 1, 5, 2, 6, 3, 7)),
    "nibbles in the order 0, 2, 4, 6, 1, 3, 5, 7": w4_in_order((0, 2, 4, 6, 1, 3, 5, 7)),
    "nibbles in reverse order": w4_in_order((7, 6, 5, 4, 3, 2, 1, 0)),
    "the two nibbles of each byte exchanged": w4_in_order((1, 0, 3, 2, 5, 4, 7, 6)),
    "u in place of u - 8": w4_of(lambda weights: weights + 8),
    "u + 1024 in place of u - 8": w4_of(lambda weights: weights + 1032),
    "the weights of nibbles 1, 3, 5, 7 are 16 u - 8": w4_of(odd_times_16),
    "the uppermost nibble with the sign of the word": w4_top_nibble,
    "8 subtracted after the scale": lambda q, s, x, sizes: w4_sum(w4_weights(q) + 8, s, x) - 8 * x.sum(),
    "without the scales": lambda q, s, x, sizes: w4_sum(w4_weights(q), s * 0 + 1, x),
    "the scale of the row's first group for all of them": lambda q, s, x, sizes: w4_sum(w4_weights(q), s[:, :1], x),
    "the scales of row 0 for every row": lambda q, s, x, sizes: w4_sum(w4_weights(q), s[:1], x),
    "the last group is missing": lambda q, s, x, sizes: w4(q[:, :-1], s[:, :-1], x[:-1], sizes),
    "only the first group": lambda q, s, x, sizes: w4(q[:, :1], s[:, :1], x[:1], sizes),
    "row 0 for every row": lambda q, s, x, sizes: w4_sum(w4_weights(q * 0 + q[:1]), s, x),
}

W4 = Spec(
    computes="y[m] = sum of s[m, k / 128] (u[m, k] - 8) x[k]",
    operations=Operations(
        "y[m] = sum of s[m, k / 128] (u[m, k] - 8) x[k]",
        "3 per weight: the subtraction of 8, a multiplication and an addition. A scale counts once per group: left out",
        lambda sizes: 3 * sizes["M"] * sizes["groups"] * GROUP,
    ),
    inputs=(
        Tensor("q", ("M", "groups", GROUP // 8), "i32"),
        Tensor("s", ("M", "groups")),
        Tensor("x", ("groups", GROUP)),
    ),
    outputs=(Tensor("y", ("M",)),),
    sizes={"M": Size(0, 40), "groups": Size(0, 12)},
    values=(
        InputKind("offset", {"q": any_words, "s": between(2.0**-8, 2.0**-6), "x": normal(mean=1.0)}),
        # Products of more than 11 bits: a half cannot hold them.
        InputKind("whole numbers", {"q": any_words, "s": powers(-6, -4), "x": signed(2047)}, exact=True),
        InputKind("equal nibbles", {"q": equal_nibbles(0, 7, 8, 15), "s": powers(-4, -1), "x": signed(8)}, exact=True),
        InputKind("taken back", {"q": words_taken_back, "s": one_of(0.71), "x": doubled(normal(std=4.0), axis=0)}),
        InputKind("scales far apart", {"q": any_words, "s": powers(-10, 0), "x": normal(mean=0.5)}),
    ),
    reference=w4,
    near_misses=W4_NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["groups"] * GROUP, magnitude=w4_magnitude),
    # Nothing; one group; around the 8 groups that a warp takes in one load; rows around those of a warp and a block.
    named_sizes=(
        group_shape(0, 1),
        group_shape(1, 0),
        group_shape(1, 1),
        group_shape(2, 2),
        group_shape(3, 1),
        group_shape(5, 3),
        group_shape(15, 1),
        group_shape(17, 2),
        group_shape(2, 7),
        group_shape(3, 8),
        group_shape(4, 9),
        group_shape(64, 1),
        group_shape(65, 3),
        group_shape(1, 16),
        group_shape(3, 17),
        group_shape(2, 32),
        group_shape(0, 0),
        group_shape(37, 0),
        group_shape(7, 15),
        group_shape(130, 2),
        group_shape(1, 157),
    ),
    # The first two are tried on a GPU by default.
    large=(group_shape(1021, 65), group_shape(500_009, 1), group_shape(3, 3001), group_shape(4099, 32)),
    work=lambda sizes: 8 * sizes["M"] * (GROUP * sizes["groups"] + 256),
    slice_dim="M",
    sampled=True,
    baselines={"torch.mv": torch_mv_of_nibbles},
)


# -- w4a16_gemm_f16 --------------------------------------------------------------------------------------------------


def unpacked(q: ndarray) -> ndarray:
    """u - 8 of words [groups, 8, tiles, 32, 4], as [K, N]: the order that the headers give."""
    groups, steps, tiles = q.shape[:3]
    # A lane is a column of an mma tile and a pair of k. A nibble is a k of the pair, an mma tile, and 8 k or the next.
    nibbles = nibbles_of(q).reshape(groups * steps, tiles, 8, 4, 4, 2, 2, 2) - 8.0
    step, tile, column, pair, word, odd, right, upper = range(8)
    order = (step, upper, pair, odd, tile, word, right, column)
    result: ndarray = nibbles.transpose(order).reshape(groups * GROUP, tiles * 64)
    return result


def w4_matrix(q: ndarray, s: ndarray) -> ndarray:
    """W, not rounded: [K, N]."""
    groups = q.shape[0]
    by_group = unpacked(q).reshape(groups, GROUP, -1) * s.reshape(groups, 1, -1)
    matrix: ndarray = by_group.reshape(groups * GROUP, -1)
    return matrix


def w4_product(x: ndarray, W: ndarray) -> ndarray:
    rows = x.reshape(len(x), -1)
    product: ndarray = (rows @ W).reshape(len(x), -1, 64)
    return product


def w4_gemm(x: ndarray, q: ndarray, s: ndarray, sizes: Sizes) -> ndarray:
    def of_tiles(tiles: slice) -> ndarray:
        return w4_product(x, w4_matrix(q[:, :, tiles], s[:, tiles]))

    return in_chunks(of_tiles, q.shape[2], x[0].size * 64, 1)


def w4_gemm_magnitude(x: ndarray, q: ndarray, s: ndarray, sizes: Sizes) -> ndarray:
    """Sums of absolute values, and what rounding W to half adds, as the module's docstring says."""

    def of_tiles(tiles: slice) -> ndarray:
        W = w4_matrix(q[:, :, tiles], s[:, tiles])
        rounded = HALF * w4_product(x**2, W**2) ** 0.5 / UNIT / growth(sizes["groups"] * GROUP)
        magnitude: ndarray = w4_product(abs(x), abs(W)) + rounded
        return magnitude

    return in_chunks(of_tiles, q.shape[2], x[0].size * 64, 1)


def w4_permuted(order: tuple[int, ...]) -> Callable[..., ndarray]:
    """Nibble i of a word as if it were nibble order[i]."""

    def of_inputs(x: ndarray, q: ndarray, s: ndarray, sizes: Sizes) -> ndarray:
        return w4_gemm(x, packed(nibbles_of(q)[..., list(order)]), s, sizes)

    return of_inputs


def w4_rows_of_words(x: ndarray, q: ndarray, s: ndarray, sizes: Sizes) -> ndarray:
    """The words in the order of w4a16_gemv_f16, W row by row: [N, K / 8]."""
    import numpy

    groups, tiles = sizes["groups"], sizes["tiles"]
    weights = (nibbles_of(q.reshape(tiles * 64, groups * 16)) - 8.0).reshape(tiles * 64, groups * GROUP)
    scales = numpy.repeat(s.reshape(groups, -1).T, GROUP, axis=1)
    return w4_product(x, (weights * scales).T)


def torch_mm_of_nibbles(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    """cuBLAS with W as halves, [N, K], made before the clock runs; it keeps the sums in f32."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    groups, _, tiles = q.shape[:3]
    # [tile, word, mma tile of the word, column, step, 8 k, pair, k of the pair]
    W = torch.empty(tiles, 4, 2, 8, groups * 8, 2, 4, 2, dtype=torch.float16, device=q.device)
    words = q.reshape(groups * 8, tiles, 8, 4, 4).permute(1, 4, 2, 0, 3)  # [tile, word, column, step, pair]
    for nibble in range(8):
        odd, right, upper = nibble >> 2, nibble >> 1 & 1, nibble & 1
        W[:, :, right, :, :, upper, :, odd] = ((words >> 4 * nibble & 15) - 8).to(torch.float16)
    W = W.view(tiles * 64, groups, GROUP)
    W *= s.reshape(groups, -1).T[..., None]
    W, rows, out = W.view(tiles * 64, -1), x.reshape(len(x), -1), y.view(len(x), -1)
    return lambda: torch.mm(rows, W.T, out=out)


def gemm_shape(T: int, tiles: int, groups: int) -> Sizes:
    return {"T": T, "tiles": tiles, "groups": groups}


W4_GEMM = Spec(
    computes="y = x W^T, W[n, k] = s[k / 128, n] (u[n, k] - 8)",
    operations=Operations(
        "y = x W^T",
        "2 per product: a multiplication and an addition, for each of T * N * K products. The making of W is left out",
        lambda sizes: 2 * sizes["T"] * sizes["tiles"] * 64 * sizes["groups"] * GROUP,
    ),
    inputs=(
        Tensor("x", ("T", "groups", GROUP)),
        Tensor("q", ("groups", GROUP // 16, "tiles", 32, 4), "i32"),
        Tensor("s", ("groups", "tiles", 64)),
    ),
    outputs=(Tensor("y", ("T", "tiles", 64)),),
    sizes={"T": Size(1, 64), "tiles": Size(1, 6), "groups": Size(1, 6)},
    values=(
        InputKind("offset", {"x": normal(mean=1.0), "q": any_words, "s": between(2.0**-8, 2.0**-6)}),
        InputKind("whole numbers", {"x": signed(16), "q": any_words, "s": powers(-2, 0)}, exact=True),
        InputKind("equal nibbles", {"x": signed(4), "q": equal_nibbles(0, 7, 8, 15), "s": powers(-3, 0)}, exact=True),
        InputKind("scales far apart", {"x": normal(mean=0.5), "q": any_words, "s": powers(-9, 0)}),
    ),
    reference=w4_gemm,
    near_misses={
        "u in place of u - 8": lambda x, q, s, sizes: (
            w4_gemm(x, q, s, sizes) - w4_gemm(x, q * 0, s, sizes)  # of zeros: -8
        ),
        "nibbles p and p + 4 exchanged": w4_permuted((4, 5, 6, 7, 0, 1, 2, 3)),
        "k 0 to 7 and 8 to 15 of a step exchanged": w4_permuted((1, 0, 3, 2, 5, 4, 7, 6)),
        "the two mma tiles of a word exchanged": w4_permuted((2, 3, 0, 1, 6, 7, 4, 5)),
        "the nibbles of a word in the order of their k": w4_permuted((0, 2, 4, 6, 1, 3, 5, 7)),
        "words in reverse order": lambda x, q, s, sizes: w4_gemm(x, q[..., ::-1], s, sizes),
        "words as they are in w4a16_gemv_f16": w4_rows_of_words,
        "without the scales": lambda x, q, s, sizes: w4_gemm(x, q, s * 0 + 1, sizes),
        "the scales of the first group for all": lambda x, q, s, sizes: w4_gemm(x, q, s[:1] + s * 0, sizes),
        "the scales of the first column of each mma tile for all eight": lambda x, q, s, sizes: w4_gemm(
            x, q, (s.reshape(-1, 8)[:, :1] + s.reshape(-1, 8) * 0).reshape(s.shape), sizes
        ),
        "the last group is missing": lambda x, q, s, sizes: w4_gemm(x, q, without(s, -1), sizes),
        "the first group is missing": lambda x, q, s, sizes: w4_gemm(x, q, without(s, 0), sizes),
        "only the first group": lambda x, q, s, sizes: w4_gemm(x[:, :1], q[:1], s[:1], sizes),
        "row 0 of x for every row": lambda x, q, s, sizes: w4_gemm(x[:1] + x * 0, q, s, sizes),
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["groups"] * GROUP, magnitude=w4_gemm_magnitude),
    # Rows around the 16, 32 and 64 of the kernels; one tile, and around the four of a block; groups fewer and more than
    # a ring has slots, and enough to split.
    named_sizes=(
        gemm_shape(1, 1, 1),
        gemm_shape(7, 1, 2),
        gemm_shape(8, 2, 1),
        gemm_shape(15, 3, 2),
        gemm_shape(16, 1, 3),
        gemm_shape(17, 1, 5),
        gemm_shape(33, 2, 2),
        gemm_shape(64, 1, 1),
        gemm_shape(32, 5, 2),
        gemm_shape(2, 4, 7),
        gemm_shape(31, 3, 5),
        gemm_shape(63, 5, 4),
        gemm_shape(48, 4, 1),
        gemm_shape(3, 7, 9),
        gemm_shape(18, 2, 8),
        gemm_shape(40, 1, 13),
    ),
    # The first two are tried on a GPU by default.
    large=(gemm_shape(16, 897, 9), gemm_shape(61, 131, 33), gemm_shape(32, 2112, 2), gemm_shape(1, 8, 301)),
    work=lambda sizes: sizes["tiles"] * sizes["groups"] * (40_000 + 600 * sizes["T"]),
    flops=lambda sizes: 2 * sizes["T"] * sizes["tiles"] * 64 * sizes["groups"] * GROUP,
    slice_dim="tiles",
    baselines={"torch.mm": torch_mm_of_nibbles},
)


# -- w8a8_gemm_i8 ----------------------------------------------------------------------------------------------------


def w8a8(A: ndarray, B: ndarray, sa: ndarray, sb: ndarray, sizes: Sizes) -> ndarray:
    return whole_product(A, B) * sa[:, None] * sb


def whole_product(A: ndarray, B: ndarray) -> ndarray:
    """A B^T of whole numbers, by the matrix product of floats: exact up to 2^53."""
    product: ndarray = A.astype("float64") @ B.astype("float64").T
    return product


def w8a8_magnitude(A: ndarray, B: ndarray, sa: ndarray, sb: ndarray, sizes: Sizes) -> ndarray:
    """The sum is exact. Its conversion to float and two products are three roundings."""
    return 3 * abs(w8a8(A, B, sa, sb, sizes))


def torch_int_mm(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """cuBLASLt. Its sums are 32-bit integers, 4 bytes each, and no scale is applied."""
    import torch

    return lambda: torch._int_mm(A, B.T)


def product_shape(M: int, N: int, K: int) -> Sizes:
    return {"M": M, "N": N, "K": K}


W8A8 = Spec(
    computes="C[m, n] = sa[m] sb[n] sum of A[m, k] B[n, k]",
    operations=Operations(
        "C[m, n] = sa[m] sb[n] sum of A[m, k] B[n, k]",
        "2 per product: a multiplication and an addition, for each of M * N * K products. The scales are left out",
    ),
    inputs=(
        Tensor("A", ("M", "K")),
        Tensor("B", ("N", "K")),
        Tensor("sa", ("M",), "f32"),
        Tensor("sb", ("N",), "f32"),
    ),
    outputs=(Tensor("C", ("M", "N"), "f16"),),
    sizes={"M": Size(1, 80), "N": Size(1, 80), "K": Size(64, 256)},
    values=(
        InputKind(
            "offset",
            {"A": bytes_about(8, 40), "B": bytes_about(8, 40), "sa": between(0.01, 0.03), "sb": between(0.001, 0.003)},
        ),
        InputKind(
            "whole numbers",
            {"A": bytes_of(-128, 127), "B": bytes_of(-9, 9), "sa": powers(-3, 0), "sb": powers(-3, 0)},
            exact=True,
        ),
        # Every product is 16384: sums above 2^24 from K = 1088 on, and above the largest half from K = 64 on.
        InputKind(
            "lowest",
            {"A": bytes_of(-128, -128), "B": bytes_of(-128, -128), "sa": powers(-12, -9), "sb": powers(-7, -5)},
            exact=True,
        ),
        InputKind(
            "taken back",
            {
                "A": bytes_taken_back,
                "B": doubled(bytes_of(-128, 127)),
                "sa": between(0.01, 0.1),
                "sb": between(0.1, 1.0),
            },
        ),
    ),
    reference=w8a8,
    near_misses={
        "without sa": lambda A, B, sa, sb, sizes: w8a8(A, B, sa * 0 + 1, sb, sizes),
        "without sb": lambda A, B, sa, sb, sizes: w8a8(A, B, sa, sb * 0 + 1, sizes),
        "without both scales": lambda A, B, sa, sb, sizes: whole_product(A, B),
        "sa[0] for every row": lambda A, B, sa, sb, sizes: w8a8(A, B, sa * 0 + sa[:1], sb, sizes),
        "sb[0] for every column": lambda A, B, sa, sb, sizes: w8a8(A, B, sa, sb * 0 + sb[:1], sizes),
        "A as unsigned bytes": lambda A, B, sa, sb, sizes: w8a8(A % 256, B, sa, sb, sizes),
        "B as unsigned bytes": lambda A, B, sa, sb, sizes: w8a8(A, B % 256, sa, sb, sizes),
        "only the first 64 k": lambda A, B, sa, sb, sizes: w8a8(A[:, :64], B[:, :64], sa, sb, sizes),
        "the last 32 k are missing": lambda A, B, sa, sb, sizes: w8a8(A[:, :-32], B[:, :-32], sa, sb, sizes),
        "only whole slices of 128 k": lambda A, B, sa, sb, sizes: w8a8(
            A[:, : sizes["K"] // 128 * 128], B[:, : sizes["K"] // 128 * 128], sa, sb, sizes
        ),
        "B as if it were stored by rows": lambda A, B, sa, sb, sizes: w8a8(
            A, B.reshape(sizes["K"], sizes["N"]).T, sa, sb, sizes
        ),
        "twice the product": lambda A, B, sa, sb, sizes: 2 * w8a8(A, B, sa, sb, sizes),
    },
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=w8a8_magnitude),
    # Less than a tile; one k slice that is half empty, whole ones, several; columns of any remainder; tiles of 128 x
    # 256 with one row or column more and less.
    named_sizes=(
        product_shape(1, 8, 64),
        product_shape(1, 1, 64),
        product_shape(16, 8, 128),
        product_shape(17, 63, 64),
        product_shape(15, 7, 192),
        product_shape(33, 64, 128),
        product_shape(63, 33, 320),
        product_shape(128, 16, 64),
        product_shape(2, 255, 64),
        product_shape(130, 9, 128),
        product_shape(3, 258, 192),
        product_shape(129, 257, 64),
        product_shape(5, 6, 1152),
        product_shape(40, 129, 640),
    ),
    # The first two are tried on a GPU by default. Strips of eight tiles: a whole one and a part of one.
    large=(
        product_shape(1023, 1025, 1088),
        product_shape(257, 2305, 192),
        product_shape(70_001, 9, 64),
        product_shape(7, 70_001, 64),
        product_shape(5, 3, 131_008),
    ),
    work=lambda sizes: 4 * sizes["M"] * sizes["N"] * sizes["K"] + 2_000_000,
    flops=lambda sizes: 2 * sizes["M"] * sizes["N"] * sizes["K"],
    slice_dim="M",
    baselines={"torch._int_mm": torch_int_mm},
)


# -- fp8_block_gemm --------------------------------------------------------------------------------------------------


def fp8(A: ndarray, sa: ndarray, B: ndarray, sb: ndarray, sizes: Sizes) -> ndarray:
    def of_columns(blocks: slice) -> ndarray:
        scaled = B[blocks] * sb[blocks, None, :, None]
        columns = scaled.reshape(-1, B[0, 0].size)
        return (rows @ columns.T).reshape(len(A), -1, GROUP)

    rows = (A * sa.T[..., None]).reshape(len(A), -1)
    return in_chunks(of_columns, len(B), B[0].size if len(B) else 1, 1)


def fp8_magnitude(A: ndarray, sa: ndarray, B: ndarray, sb: ndarray, sizes: Sizes) -> ndarray:
    return fp8(abs(A), abs(sa), abs(B), abs(sb), sizes)


def torch_mm_bf16(
    A: torch.Tensor, sa: torch.Tensor, B: torch.Tensor, sb: torch.Tensor, C: torch.Tensor
) -> Callable[[], object]:
    """cuBLAS with both matrices as bf16, scaled, which are made before the clock runs."""
    import torch

    M, blocks_k, _ = A.shape
    left = (A.to(torch.bfloat16) * sa.T[..., None].to(torch.bfloat16)).reshape(M, -1)
    right = B.to(torch.bfloat16)
    right *= sb[:, None, :, None].to(torch.bfloat16)
    right = right.reshape(-1, blocks_k * GROUP)
    out = C.view(M, -1)
    return lambda: torch.mm(left, right.T, out=out)


def torch_scaled_mm(
    A: torch.Tensor, sa: torch.Tensor, B: torch.Tensor, sb: torch.Tensor, C: torch.Tensor
) -> Callable[[], object]:
    """cuBLASLt in fp8, with one scale for all of A and one for all of B in place of those of the blocks."""
    import torch

    left, right, one = A.reshape(len(A), -1), B.reshape(-1, A[0].numel()), torch.ones((), device=A.device)
    return lambda: torch._scaled_mm(left, right.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def block_shape(M: int, blocks_n: int, blocks_k: int) -> Sizes:
    return {"M": M, "blocks_n": blocks_n, "blocks_k": blocks_k}


E4M3 = normal(mean=0.5, std=2.0)

FP8 = Spec(
    computes="C[m, n] = sum over blocks b of sa[b, m] sb[n / 128, b] (sum of A[m, k] B[n, k] over the 128 k of b)",
    operations=Operations(
        "C[m, n] = sum over blocks b of sa[b, m] sb[n / 128, b] (sum of A[m, k] B[n, k] over the 128 k of b)",
        "2 per product: a multiplication and an addition, for each of M * N * K products. The scales are left out",
        lambda sizes: 2 * sizes["M"] * sizes["blocks_n"] * GROUP * sizes["blocks_k"] * GROUP,
    ),
    inputs=(
        Tensor("A", ("M", "blocks_k", GROUP)),
        Tensor("sa", ("blocks_k", "M"), "f32"),
        Tensor("B", ("blocks_n", GROUP, "blocks_k", GROUP)),
        Tensor("sb", ("blocks_n", "blocks_k"), "f32"),
    ),
    outputs=(Tensor("C", ("M", "blocks_n", GROUP), "bf16"),),
    sizes={"M": Size(1, 80), "blocks_n": Size(1, 3), "blocks_k": Size(1, 5)},
    values=(
        InputKind("offset", {"A": E4M3, "B": E4M3, "sa": between(0.001, 0.003), "sb": between(0.01, 0.03)}),
        InputKind(
            "whole numbers", {"A": signed(8), "B": signed(4), "sa": powers(-3, 3), "sb": powers(-3, 3)}, exact=True
        ),
        InputKind(
            "largest",
            {"A": one_of(448.0), "B": one_of(448.0, -448.0, 416.0), "sa": powers(-8, -4), "sb": powers(-9, -5)},
            exact=True,
        ),
        # From 2^-9, the smallest number, up: most are denormal in e4m3.
        InputKind(
            "small",
            {"A": normal(std=2.0**-7), "B": normal(mean=1.0), "sa": between(100.0, 300.0), "sb": between(1.0, 3.0)},
        ),
        InputKind("scales far apart", {"A": E4M3, "B": E4M3, "sa": powers(-12, 4), "sb": powers(-12, 4)}),
    ),
    reference=fp8,
    near_misses={
        "without sa": lambda A, sa, B, sb, sizes: fp8(A, sa * 0 + 1, B, sb, sizes),
        "without sb": lambda A, sa, B, sb, sizes: fp8(A, sa, B, sb * 0 + 1, sizes),
        "without both scales": lambda A, sa, B, sb, sizes: fp8(A, sa * 0 + 1, B, sb * 0 + 1, sizes),
        "sa of the first block for all": lambda A, sa, B, sb, sizes: fp8(A, sa * 0 + sa[:1], B, sb, sizes),
        "sa of the last block for all": lambda A, sa, B, sb, sizes: fp8(A, sa * 0 + sa[-1:], B, sb, sizes),
        "sb of the first block of K for all": lambda A, sa, B, sb, sizes: fp8(A, sa, B, sb * 0 + sb[:, :1], sizes),
        "sb of the first 128 columns for all": lambda A, sa, B, sb, sizes: fp8(A, sa, B, sb * 0 + sb[:1], sizes),
        "all scales of the last block": lambda A, sa, B, sb, sizes: fp8(
            A, sa * 0 + sa[-1:], B, sb * 0 + sb[:, -1:], sizes
        ),
        "sa of row 0 for every row": lambda A, sa, B, sb, sizes: fp8(A, sa * 0 + sa[:, :1], B, sb, sizes),
        "sa read as [M, K / 128]": lambda A, sa, B, sb, sizes: fp8(A, sa.reshape(sa.shape[::-1]).T, B, sb, sizes),
        "sb read as [K / 128, N / 128]": lambda A, sa, B, sb, sizes: fp8(A, sa, B, sb.reshape(sb.shape[::-1]).T, sizes),
        "the last block is missing": lambda A, sa, B, sb, sizes: fp8(A, without(sa, -1), B, sb, sizes),
        "only the first block": lambda A, sa, B, sb, sizes: fp8(A[:, :1], sa[:1], B[:, :, :1], sb[:, :1], sizes),
        "only the last block": lambda A, sa, B, sb, sizes: fp8(A[:, -1:], sa[-1:], B[:, :, -1:], sb[:, -1:], sizes),
        **other_scales(),
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["blocks_k"] * GROUP, magnitude=fp8_magnitude),
    # Rows around 16, 32, 64 and above; one block of columns, two, three: a tile that is half empty; blocks of K fewer
    # and more than a ring has slots.
    named_sizes=(
        block_shape(1, 1, 1),
        block_shape(8, 1, 2),
        block_shape(16, 2, 1),
        block_shape(17, 1, 3),
        block_shape(15, 3, 2),
        block_shape(33, 1, 1),
        block_shape(32, 2, 2),
        block_shape(3, 1, 7),
        block_shape(64, 1, 2),
        block_shape(31, 3, 4),
        block_shape(65, 2, 3),
        block_shape(130, 1, 2),
    ),
    # The first two are tried on a GPU by default.
    large=(block_shape(32, 57, 9), block_shape(1023, 9, 5), block_shape(1, 1031, 2), block_shape(20_001, 1, 1)),
    work=lambda sizes: (-(-sizes["M"] // 16)) * sizes["blocks_n"] * sizes["blocks_k"] * 400_000,
    flops=lambda sizes: 2 * sizes["M"] * sizes["blocks_n"] * GROUP * sizes["blocks_k"] * GROUP,
    slice_dim="blocks_n",
    baselines={"torch.mm": torch_mm_bf16, "torch._scaled_mm": torch_scaled_mm},
)

SPECS = {
    "w8a16_gemv_f16": W8,
    "w4a16_gemv_f16": W4,
    "w4a16_gemv_mma_f16": W4,
    "w4a16_gemm_f16": W4_GEMM,
    "w4a16_gemm_wgmma_f16": W4_GEMM,
    "w8a8_gemm_i8": W8A8,
    "fp8_block_gemm": FP8,
}
