"""quantise: bf16 numbers become codes of one byte and a scale, q = code(x / s), and back, y = q s.

A group is 128 neighbours of a row. All tensors with groups are [rows, groups, 128], and s[groups, rows] is transposed.

dequant_fp8_block: y = bf16(q s), one product in f32 and one rounding. A nan code gives nan.

quant_*: s = max(max |x|, 1e-10) / 448, or / 127 for int8: over all of x, over a row, or over a group. q = x / s,
rounded to nearest even. Both divisions are those of IEEE f32, so every bit of s and q is fixed. x is finite.

rms_norm_quant_fp8: y = x / sqrt(mean of x^2 + eps) w over the whole row, in f32, is what is quantised. The order of the
sum is free, and a code may differ by one from the reference's where y / s is close to a tie. How close: y and the
maximum of its group have the same factor 1 / sqrt(..), whose error cancels in y / s. What remains are two roundings of
y, two of the maximum, and two divisions: 6 u. s has the error of the sum, too: u (growth(cols) / 2 + 6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import TYPE_CHECKING

from grader.content.spec import (
    Exact,
    Fill,
    InputKind,
    Operations,
    Parameter,
    Rng,
    Rounded,
    Size,
    Sizes,
    Spec,
    Tensor,
    growth,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

GROUP = 128
FP8_MAX, INT8_MAX = 448.0, 127.0
MIN_AMAX = 1e-10
EPS = 1e-6

# -- numbers ---------------------------------------------------------------------------------------------------------


def f32(x: ndarray | float) -> ndarray:
    import numpy

    return numpy.asarray(x, numpy.float32)


def wide(x: ndarray) -> ndarray:
    import numpy

    return x.astype(numpy.float64)


def size(x: ndarray) -> ndarray:
    """The largest |x| along the last dimension."""
    largest: ndarray = abs(x).max(axis=-1, initial=0.0)
    return largest


def scale_of(amax: ndarray, most: float) -> ndarray:
    import numpy

    scale: ndarray = numpy.maximum(f32(amax), f32(MIN_AMAX)) / f32(most)
    return scale


def over(x: ndarray, scale: ndarray) -> ndarray:
    """x / scale as f32 has it, before it is rounded to a code."""
    return wide(f32(x) / f32(scale))


def truncated(x: ndarray) -> ndarray:
    """Numbers of four significant bits, as e4m3 has them, rounded toward zero."""
    import numpy

    exponent = numpy.maximum(numpy.frexp(x)[1] - 1, -6) - 3
    toward_zero: ndarray = numpy.ldexp(numpy.trunc(numpy.ldexp(x, -exponent)), exponent)
    return toward_zero


# -- dequant_fp8_block -----------------------------------------------------------------------------------------------


def dequantised(q: ndarray, s: ndarray, sizes: Sizes) -> ndarray:
    return wide(f32(q) * f32(s)[..., None])


def all_codes(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All 256 codes in turn: every number of e4m3, both zeros, and nan of either sign."""
    import numpy

    code = (numpy.arange(numpy.prod(shape, dtype=int)) * 37 + rng.integers((1,), 0, 255)[0]) % 256
    exponent, mantissa = code >> 3 & 15, code & 7
    number = numpy.where(exponent > 0, numpy.ldexp(8.0 + mantissa, exponent - 10), numpy.ldexp(1.0 * mantissa, -9))
    number[code & 127 == 127] = nan
    return numpy.where(code < 128, number, -number).reshape(shape)


def far_apart(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Scales from 2^-60 to 2^60 that are not powers of two: that of a neighbour is another one."""
    scale: ndarray = rng.uniform(shape, 1.0, 2.0) * 2.0 ** rng.integers(shape, -60, 60)
    return scale


def shape_of(rows: int, groups: int) -> Sizes:
    return {"rows": rows, "groups": groups}


def torch_dequant(q: torch.Tensor, s: torch.Tensor, y: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: (q.to(torch.float32) * s[..., None]).to(torch.bfloat16)


DEQUANT = Spec(
    computes="y = q * s, group by group of 128 codes that share a scale",
    operations=Operations("y = q * s", "1 per code", lambda sizes: sizes["rows"] * sizes["groups"] * GROUP),
    inputs=(Tensor("q", ("rows", "groups", GROUP)), Tensor("s", ("rows", "groups"), "acc")),
    outputs=(Tensor("y", ("rows", "groups", GROUP), "bf16"),),
    sizes={"rows": Size(0, 40), "groups": Size(1, 10)},
    values=(
        InputKind("normal", {"q": normal(std=40.0), "s": normal(mean=0.02, std=0.005)}),
        InputKind("all codes", {"q": all_codes, "s": normal(mean=1.0, std=0.25)}),
        InputKind("large scales", {"q": all_codes, "s": normal(mean=3000.0, std=1000.0)}),
        InputKind("scales far apart", {"q": all_codes, "s": far_apart}),
        InputKind("largest", {"q": lambda rng, shape, sizes: rng.choice(shape, (448.0, -448.0)), "s": far_apart}),
        InputKind(
            "special scales",
            {"q": all_codes, "s": lambda rng, shape, sizes: rng.choice(shape, (0.0, -1.0, 1e38, 1e-40, inf, nan))},
        ),
    ),
    reference=dequantised,
    near_misses={
        "q, without the scale": lambda q, s, sizes: q,
        "q / s": lambda q, s, sizes: q / s[..., None],
        "q times the scale of the next group": lambda q, s, sizes: dequantised(
            q, s.ravel().take(range(1, s.size + 1), mode="wrap").reshape(s.shape), sizes
        ),
        "q times the scale of the row's first group": lambda q, s, sizes: dequantised(
            q, s[:, :1].repeat(s.shape[1], axis=1), sizes
        ),
        "codes of a pair in the wrong order": lambda q, s, sizes: dequantised(
            q.reshape(*q.shape[:2], -1, 2)[..., ::-1].reshape(q.shape), s, sizes
        ),
    },
    tolerance=Exact(signed_zeros=True),
    # Around what a block of threads takes: 64 groups.
    named_sizes=tuple(
        shape_of(*sizes)
        for sizes in (
            (0, 1),
            (1, 1),
            (3, 1),
            (1, 2),
            (2, 3),
            (5, 8),
            (1, 63),
            (1, 64),
            (13, 5),
            (65, 1),
            (130, 3),
            (3, 56),
        )
    ),
    large=(shape_of(4099, 7), shape_of(1031, 56), shape_of(70_001, 1)),
    work=lambda sizes: 20 * sizes["rows"] * sizes["groups"] * GROUP,
    slice_dim="rows",
    baselines={"torch's kernels": torch_dequant},
)

# -- quant_fp8_tensor_bf16 -------------------------------------------------------------------------------------------


def by_scale(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Each run of 128 elements has its own size, from 2^-12 to 2^12."""
    last = max(1, -(-shape[-1] // GROUP))
    size = 2.0 ** rng.integers((*shape[:-1], last), -12, 12)
    drawn: ndarray = rng.normal(shape) * size.repeat(GROUP, axis=-1)[..., : shape[-1]]
    return drawn


def outliers(low: float, high: float) -> Fill:
    """Normal draws and one outlier in each run of 1 to 128 elements, anywhere in it, of either sign."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        drawn = rng.normal(shape)
        length = min(shape[-1], GROUP)
        if drawn.size == 0:
            return drawn
        whole = drawn[..., : shape[-1] // length * length].reshape(*shape[:-1], -1, length)
        place = rng.integers(whole.shape[:-1], 0, length - 1)[..., None]
        number = rng.uniform(place.shape, low, high) * rng.choice(place.shape, (-1.0, 1.0))
        numpy.put_along_axis(whole, place, number, axis=-1)
        drawn[..., : whole.shape[-2] * length] = whole.reshape(*shape[:-1], -1)
        return drawn

    return fill


def ends(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The largest of a run of 128 is its first element or its last one, and so it is with the whole row."""
    drawn = rng.normal(shape)
    drawn[..., ::GROUP] = -50.0
    drawn[..., GROUP - 1 :: GROUP] = 60.0
    if shape[-1]:
        drawn[..., -1] = -70.0
    return drawn


def ties(most: float) -> Fill:
    """Numbers half way between two codes, for scales that are powers of two; of either sign, the largest too."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        if most == INT8_MAX:
            number = (rng.integers(shape, 0, 125) + 0.5) * rng.choice(shape, (-1.0, 1.0))
        else:  # 17 to 31 sixteenths: a bit more than e4m3 has
            number = (2 * rng.integers(shape, 8, 15) + 1) / 16.0 * 2.0 ** rng.integers(shape, -8, 7)
            number *= rng.choice(shape, (-1.0, 1.0))
        number[..., ::97] = most
        number[..., 5::97] = -most
        return number * 2.0 ** rng.integers((*shape[:-1], 1), -20, 20)

    return fill


def times(factor: float, fill: Fill) -> Fill:
    return lambda rng, shape, sizes: fill(rng, shape, sizes) * factor


def zeros(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice(shape, (0.0, -0.0))


def tiny(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From denormal numbers to some 1e-8: around the smallest maximum that has a scale of its own."""
    exponent = rng.choice((*shape[:-1], 1), (-132.0, -100.0, -40.0, -34.0, -33.0, -32.0, -27.0))
    return rng.normal(shape) * 2.0**exponent


def finite(most: float) -> tuple[InputKind, ...]:
    return (
        InputKind("normal", normal(std=3.0)),
        InputKind("negative", normal(mean=-5.0)),
        InputKind("ties", ties(most)),
        InputKind("outliers", outliers(100.0, 10_000.0)),
        InputKind("sizes far apart", by_scale),
        InputKind("ends", ends),
        InputKind("zeros", zeros),
        InputKind("tiny", tiny),
        InputKind("huge", times(2.0**120, outliers(1.0, 100.0))),
    )


Quantised = tuple["ndarray", "ndarray"]


def per_tensor(x: ndarray, sizes: Sizes) -> Quantised:
    s = scale_of(size(x)[None], FP8_MAX)
    return over(x, s), wide(s)


Both = Callable[..., Quantised]


def to_power_of_two(s: ndarray) -> ndarray:
    import numpy

    return 2.0 ** numpy.ceil(numpy.log2(s))


def mistakes(right: Both, scaled: Callable[..., ndarray], most: float) -> dict[str, Both]:
    """Usual mistakes of every quantizer. ``scaled`` spreads s over the elements of x."""

    def codes(of: Callable[[ndarray, ndarray], ndarray]) -> Both:
        def instead(x: ndarray, sizes: Sizes) -> Quantised:
            s = right(x, sizes)[1]
            return of(f32(x), f32(scaled(s, x))), s

        return instead

    def scales(of: Callable[[ndarray], ndarray]) -> Both:
        return lambda x, sizes: (right(x, sizes)[0], of(right(x, sizes)[1]))

    return {
        "x itself, not divided by the scale": codes(lambda x, s: wide(x)),
        "x * s in place of x / s": codes(lambda x, s: wide(x * s)),
        "the reciprocal of s": scales(lambda s: wide(f32(1.0) / f32(s))),
        "the maximum in place of s": scales(lambda s: wide(f32(s) * f32(most))),
        "s halved": scales(lambda s: s / 2),
        "s doubled": scales(lambda s: s * 2),
        "s is rounded up to a power of two": scales(to_power_of_two),
        "the maximum / 240 in s alone": scales(lambda s: s * most / 240),
        "the maximum / 57344 in s alone": scales(lambda s: s * most / 57344),
    }


TENSOR = Spec(
    computes="s = max(max |x|, 1e-10) / 448, q = x / s",
    operations=Operations(
        "s = max |x| / 448, q = x / s",
        "2 per element: comparison for the maximum, division",
        lambda sizes: 2 * sizes["n"],
    ),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("q", ("n",), "fp8_e4m3"), Tensor("s", (1,), "acc")),
    sizes={"n": Size(0, 5000)},
    values=finite(FP8_MAX),
    reference=per_tensor,
    near_misses={
        **mistakes(per_tensor, lambda s, x: s, FP8_MAX),
        "codes rounded toward zero": lambda x, sizes: (truncated(per_tensor(x, sizes)[0]), per_tensor(x, sizes)[1]),
        "the scale of the largest x, not of the largest |x|": lambda x, sizes: (
            over(x, scale_of(x.max(initial=0.0)[None], FP8_MAX)),
            wide(scale_of(x.max(initial=0.0)[None], FP8_MAX)),
        ),
        "the scale of int8, maximum / 127": lambda x, sizes: (
            over(x, scale_of(size(x)[None], INT8_MAX)),
            wide(scale_of(size(x)[None], INT8_MAX)),
        ),
    },
    tolerance=Exact(),
    computed=("s", "q"),
    repeatable=True,
    named_sizes=tuple(
        {"n": n}
        for n in (*range(4), 7, 8, 9, 31, 33, 127, 128, 129, 255, 257, 1000, 2048, 4099, 8191, 8192, 8193, 30_001)
    ),
    large=({"n": 1_000_003}, {"n": 30_000_007}),
    work=lambda sizes: 20_000 + 70 * sizes["n"],
)

# -- quant_int8_token_bf16 -------------------------------------------------------------------------------------------


def per_row(x: ndarray, sizes: Sizes) -> Quantised:
    import numpy

    s = scale_of(size(x), INT8_MAX)
    return numpy.rint(over(x, s[:, None])), wide(s)


def per_row_before(x: ndarray, sizes: Sizes) -> ndarray:
    return over(x, scale_of(size(x), INT8_MAX)[:, None])


def away(x: ndarray) -> ndarray:
    """Rounded to whole numbers, halves away from zero."""
    import numpy

    rounded: ndarray = numpy.trunc(x + numpy.copysign(0.5, x))
    return rounded


def rounded(x: ndarray) -> ndarray:
    import numpy

    return numpy.clip(numpy.rint(x), -128, 127)


def rounded_by(rule: str, x: ndarray, sizes: Sizes) -> Quantised:
    """By another rule than to the nearest."""
    import numpy

    before = per_row_before(x, sizes)
    codes = {
        "floor": numpy.floor(before),
        "ceil": numpy.ceil(before),
        "half_up": numpy.floor(before + 0.5),
        "half_cut": numpy.trunc(before + 0.5),
    }[rule]
    return numpy.clip(codes, -128, 127), per_row(x, sizes)[1]


def with_scale(x: ndarray, s: ndarray) -> Quantised:
    import numpy

    return numpy.clip(numpy.rint(over(x, s[:, None])), -128, 127), wide(s)


def rows_and_cols(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


TOKEN = Spec(
    computes="s = max(max |x|, 1e-10) / 127, q = round(x / s), row by row",
    operations=Operations(
        "s = max |x| / 127, q = round(x / s)",
        "2 per element: comparison for the maximum, division",
        lambda sizes: 2 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")),),
    outputs=(Tensor("q", ("rows", "cols"), "i8"), Tensor("s", ("rows",), "acc")),
    sizes={"rows": Size(1, 24), "cols": Size(1, 3000)},
    values=finite(INT8_MAX),
    reference=per_row,
    near_misses={
        "truncated, not rounded": lambda x, sizes: (wide(per_row_before(x, sizes)).astype(int), per_row(x, sizes)[1]),
        "halves rounded away from zero, not to even": lambda x, sizes: (
            away(per_row_before(x, sizes)),
            per_row(x, sizes)[1],
        ),
        "the maximum / 128": lambda x, sizes: with_scale(x, scale_of(size(x), 128.0)),
        "the maximum / 255": lambda x, sizes: with_scale(x, scale_of(size(x), 255.0)),
        "rounded down": lambda x, sizes: rounded_by("floor", x, sizes),
        "rounded up": lambda x, sizes: rounded_by("ceil", x, sizes),
        "x + 0.5 cut to a whole number, also below 0": lambda x, sizes: rounded_by("half_cut", x, sizes),
        "x + 0.5 rounded down: halves go up": lambda x, sizes: rounded_by("half_up", x, sizes),
        "x itself, not divided by s": lambda x, sizes: (
            rounded(x),
            per_row(x, sizes)[1],
        ),
        "x * s in place of x / s": lambda x, sizes: (
            rounded(x * per_row(x, sizes)[1][:, None]),
            per_row(x, sizes)[1],
        ),
        "the scale of all rows": lambda x, sizes: with_scale(
            x, scale_of(size(x).max(keepdims=True).repeat(len(x)), INT8_MAX)
        ),
        "the scale of the largest x, not of the largest |x|": lambda x, sizes: with_scale(
            x, scale_of(x.max(axis=1, initial=0.0), INT8_MAX)
        ),
        "the maximum in place of s": lambda x, sizes: (
            per_row(x, sizes)[0],
            wide(f32(per_row(x, sizes)[1]) * f32(INT8_MAX)),
        ),
        "the reciprocal of s": lambda x, sizes: (per_row(x, sizes)[0], wide(f32(1.0) / f32(per_row(x, sizes)[1]))),
    },
    tolerance=Exact(),
    computed=("s", "q"),
    repeatable=True,
    # Around a vector, a warp, what a warp holds (1024 elements), and the longest row; aligned rows and others.
    named_sizes=tuple(
        rows_and_cols(*sizes)
        for sizes in (
            *((1, 1), (3, 1), (1, 2), (2, 7), (5, 8), (3, 9), (2, 31), (5, 33), (3, 128), (2, 255), (3, 257)),
            *((2, 1000), (3, 1023), (2, 1024), (3, 1025), (2, 1032), (2, 4099), (17, 40), (1, 16_383), (2, 16_384)),
        )
    ),
    large=(rows_and_cols(4099, 1031), rows_and_cols(257, 16_384), rows_and_cols(70_001, 40), rows_and_cols(1030, 8200)),
    work=lambda sizes: sizes["rows"] * (15_000 + 60 * sizes["cols"]),
    slice_dim="rows",
)

# -- quant_fp8_block_bf16 --------------------------------------------------------------------------------------------


def per_group(x: ndarray, sizes: Sizes) -> Quantised:
    s = scale_of(size(x), FP8_MAX)
    return over(x, s[..., None]), wide(s).T


def by_scales(x: ndarray, s: ndarray) -> Quantised:
    return over(x, s[..., None]), wide(s).T


def turned(s: ndarray) -> ndarray:
    """The memory of [rows, groups] taken for [groups, rows]."""
    return s.T.reshape(s.shape)


BLOCKS = Spec(
    computes="s = max(max |x|, 1e-10) / 448, q = x / s, group by group of 128; s is transposed",
    operations=Operations(
        "s = max |x| / 448, q = x / s",
        "2 per element: comparison for the maximum, division",
        lambda sizes: 2 * sizes["rows"] * sizes["groups"] * GROUP,
    ),
    inputs=(Tensor("x", ("rows", "groups", GROUP)),),
    outputs=(Tensor("q", ("rows", "groups", GROUP), "fp8_e4m3"), Tensor("s", ("groups", "rows"), "acc")),
    sizes={"rows": Size(0, 40), "groups": Size(1, 10)},
    values=finite(FP8_MAX),
    reference=per_group,
    near_misses={
        **mistakes(per_group, lambda s, x: s.T[..., None], FP8_MAX),
        "codes rounded toward zero": lambda x, sizes: (truncated(per_group(x, sizes)[0]), per_group(x, sizes)[1]),
        "the scales not transposed": lambda x, sizes: (per_group(x, sizes)[0], turned(per_group(x, sizes)[1])),
        "the scale of the whole row": lambda x, sizes: by_scales(
            x, scale_of(size(x).max(axis=1, keepdims=True).repeat(x.shape[1], axis=1), FP8_MAX)
        ),
        "the scale of the largest x, not of the largest |x|": lambda x, sizes: by_scales(
            x, scale_of(x.max(axis=-1, initial=0.0), FP8_MAX)
        ),
    },
    tolerance=Exact(),
    computed=("s", "q"),
    repeatable=True,
    # Around 8 rows, which a team takes, and around 16 teams, which a block of threads has.
    named_sizes=tuple(
        shape_of(*sizes)
        for sizes in (
            (0, 1),
            (1, 1),
            (3, 1),
            (1, 2),
            (4, 2),
            (8, 1),
            (7, 3),
            (9, 2),
            (16, 15),
            (8, 17),
            (130, 3),
            (3, 56),
        )
    ),
    large=(shape_of(4099, 7), shape_of(1031, 56), shape_of(70_001, 1)),
    work=lambda sizes: 70 * (sizes["rows"] + 8) * sizes["groups"] * GROUP,
    slice_dim="rows",
)

# -- rms_norm_quant_fp8 ----------------------------------------------------------------------------------------------


def normalised(x: ndarray, w: ndarray, *, eps: float = EPS) -> ndarray:
    y: ndarray = x * ((x * x).mean(axis=(1, 2), keepdims=True) + eps) ** -0.5 * w
    return y


def quantised(y: ndarray, scales_from: ndarray | None = None) -> Quantised:
    """The codes and scales of y in float64, without a rounding."""
    import numpy

    s = numpy.maximum(size(y if scales_from is None else scales_from), MIN_AMAX) / FP8_MAX
    return y / s[..., None], s.T


def norm_and_quant(x: ndarray, w: ndarray, sizes: Sizes) -> Quantised:
    return quantised(normalised(x, w))


def norm_magnitude(x: ndarray, w: ndarray, sizes: Sizes) -> Quantised:
    """The bounds of the docstring above, over the roundoff. 2^-149 is what may be lost of a denormal y."""
    q, s = quantised(normalised(x, w))
    lost = 2.0**-149 / 2.0**-24
    rows = 6.0 + growth(sizes["groups"] * GROUP) / 2
    clamped = s <= MIN_AMAX / FP8_MAX * (1 + 1e-4)  # then the error of the sum does not cancel
    import numpy

    return abs(q) * numpy.where(clamped.T, rows, 6.0)[..., None] + lost / s.T[..., None], s * rows


def bf16(y: ndarray) -> ndarray:
    """Rounded to 8 significant bits."""
    import numpy

    exponent = numpy.frexp(y)[1] - 8
    rounded: ndarray = numpy.ldexp(numpy.rint(numpy.ldexp(y, -exponent)), exponent)
    return rounded


def rows_far_apart(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Whole rows of 2^-12 to 2^12, and of some rows only zeros."""
    size = 2.0 ** rng.integers((shape[0], 1, 1), -12, 12) * rng.choice((shape[0], 1, 1), (1.0, 1.0, 1.0, 0.0))
    drawn: ndarray = rng.normal(shape) * size
    return drawn


def bare(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice(shape, (1.0,))


WEIGHT = normal(mean=1.0, std=0.25)
NORM_VALUES = (
    InputKind("normal", {"x": normal(mean=0.5), "w": WEIGHT}),
    InputKind("small", {"x": normal(std=1e-3), "w": WEIGHT}),  # x^2 is some 1e-6, as eps is
    InputKind("weights far apart", {"x": normal(), "w": by_scale}),
    InputKind("negative", {"x": normal(mean=-3.0), "w": normal(mean=2.0, std=0.5)}),
    InputKind("outliers", {"x": outliers(100.0, 1000.0), "w": WEIGHT}),
    InputKind("rows far apart", {"x": rows_far_apart, "w": WEIGHT}),
    InputKind("groups far apart", {"x": by_scale, "w": bare}),
    InputKind(
        "weights of zero",
        {
            "x": normal(),
            "w": lambda rng, shape, sizes: rng.choice((*shape[:1], 1), (0.0, 1.0, 1e-12)).repeat(GROUP, 1),
        },
    ),
)


def shaped(w: ndarray, x: ndarray) -> ndarray:
    return w + 0 * x


NORM = replace(
    BLOCKS,
    computes="y = x / sqrt(mean of x^2 + eps) * w, row by row; s = max(max |y|, 1e-10) / 448, q = y / s, by groups",
    operations=Operations(
        "y = x * r * w, r = 1 / sqrt(sum of x * x / cols + eps), s = max |y| / 448, q = y / s",
        "6 per element: x * x and its sum, times r, times w, comparison for the maximum, division",
        lambda sizes: 6 * sizes["rows"] * sizes["groups"] * GROUP,
    ),
    inputs=(Tensor("x", ("rows", "groups", GROUP)), Tensor("w", ("groups", GROUP))),
    sizes={"rows": Size(1, 16), "groups": Size(1, 20)},
    values=NORM_VALUES,
    reference=norm_and_quant,
    near_misses={
        "without eps": lambda x, w, sizes: quantised(normalised(x, w, eps=0.0)),
        "without w": lambda x, w, sizes: quantised(normalised(x, 0 * w + 1)),
        "x itself is quantised": lambda x, w, sizes: quantised(x),
        "the scale of x / rms, without w": lambda x, w, sizes: quantised(normalised(x, w), normalised(x, 0 * w + 1)),
        "y rounded to bf16 first": lambda x, w, sizes: quantised(bf16(normalised(x, w))),
        "codes rounded toward zero": lambda x, w, sizes: (
            truncated(norm_and_quant(x, w, sizes)[0]),
            norm_and_quant(x, w, sizes)[1],
        ),
        "the scales not transposed": lambda x, w, sizes: (
            norm_and_quant(x, w, sizes)[0],
            turned(norm_and_quant(x, w, sizes)[1]),
        ),
        "the sum of x^2 in place of the mean": lambda x, w, sizes: quantised(
            x * ((x * x).sum(axis=(1, 2), keepdims=True) + EPS) ** -0.5 * w
        ),
    },
    tolerance=Rounded(magnitude=norm_magnitude, c=4.0),
    parameters=(Parameter("eps", "float", EPS),),
    # Around what a warp holds (8 groups), blocks of threads of every size up to the longest row.
    named_sizes=tuple(
        shape_of(*sizes)
        for sizes in (
            (1, 1),
            (3, 1),
            (1, 2),
            (4, 3),
            (5, 7),
            (2, 8),
            (3, 9),
            (17, 5),
            (2, 15),
            (3, 17),
            (1, 56),
            (2, 64),
        )
    ),
    large=(shape_of(4099, 7), shape_of(1031, 56), shape_of(20_001, 1)),
    work=lambda sizes: sizes["rows"] * (15_000 + 100 * sizes["groups"] * GROUP),
)

SPECS = {
    "dequant_fp8_block": DEQUANT,
    "quant_fp8_tensor_bf16": TENSOR,
    "quant_int8_token_bf16": TOKEN,
    "quant_fp8_block_bf16": BLOCKS,
    "rms_norm_quant_fp8": NORM,
}
