"""warp_reduce: y[w, l] = the sum of x[w, 0..31] (in max_f32 the largest), the same in every lane l, any warps >= 0.

warp_reduce_sum_f*, warp_reduce_sum_bf*: one row is one value for each lane of a warp. A butterfly is a tree five
additions deep, and each of them rounds once: that is how far a sum may be off, in the precision that the kata's name
ends in. Small whole numbers and small multiples of the smallest denormal need no rounding, so they must be exact. A nan
makes the sum of its row nan.

warp_reduce_sum_i*: sums of integers must be exact.

warp_reduce_max_f32: the largest must be exact. As in torch, nan wins over everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grader.content.formulas import e4m3_as_e5m2
from grader.content.spec import (
    Accumulated,
    Exact,
    Fill,
    InputKind,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    edge_values,
    integers,
    normal,
)

if TYPE_CHECKING:
    from numpy import ndarray

LANES = 32
STEPS = 5  # additions that a value goes through


def total(x: ndarray, sizes: Sizes) -> ndarray:
    return x.sum(axis=1, keepdims=True).repeat(LANES, axis=1)


def largest(x: ndarray, sizes: Sizes) -> ndarray:
    return x.max(axis=1, keepdims=True).repeat(LANES, axis=1)


def spread(row: ndarray) -> ndarray:
    return row.repeat(LANES, axis=1)


def running(x: ndarray) -> ndarray:
    """The largest up to each lane."""
    import numpy

    return numpy.maximum.accumulate(x, axis=1)


def shuffled_down(x: ndarray) -> ndarray:
    """Five steps of adding what is 16, 8, 4, 2, 1 lanes above; past the warp's end a lane gets its own."""
    import numpy

    lanes, y = numpy.arange(LANES), x
    for offset in (16, 8, 4, 2, 1):
        y = y + y[:, numpy.where(lanes + offset < LANES, lanes + offset, lanes)]
    return y


def in_lane_0(y: ndarray, others: ndarray) -> ndarray:
    import numpy

    return numpy.where(numpy.arange(LANES) == 0, y, others)


# What is computed in place of it by a usual mistake. A lane l has what is said of it.
NEAR_MISSES = {
    "the sum of the lane's half of the warp": lambda x, sizes: (
        x.reshape(-1, 2, 16).sum(axis=2, keepdims=True).repeat(16, axis=2).reshape(x.shape)
    ),
    "the sum of a pair of lanes": lambda x, sizes: (
        x.reshape(-1, 16, 2).sum(axis=2, keepdims=True).repeat(2, axis=2).reshape(x.shape)
    ),
    "the sum of every second lane: partners 1 apart never meet": lambda x, sizes: (
        x.reshape(-1, 16, 2).sum(axis=1, keepdims=True).repeat(16, axis=1).reshape(x.shape)
    ),
    "the sum of every fourth lane": lambda x, sizes: (
        x.reshape(-1, 8, 4).sum(axis=1, keepdims=True).repeat(8, axis=1).reshape(x.shape)
    ),
    "x itself": lambda x, sizes: x,
    "the mean": lambda x, sizes: spread(x.mean(axis=1, keepdims=True)),
    "twice the sum": lambda x, sizes: 2 * total(x, sizes),
    "the running sum up to the lane": lambda x, sizes: x.cumsum(axis=1),
    "the largest": largest,
    "what shuffles down give: lane 0 alone has the whole sum": lambda x, sizes: shuffled_down(x),
    "the sum without the lane's own element": lambda x, sizes: total(x, sizes) - x,
    "lane 0 has the sum, and the others have x": lambda x, sizes: in_lane_0(total(x, sizes), x),
    "lane 0 has the sum, and the others have 0": lambda x, sizes: in_lane_0(total(x, sizes), 0 * x),
}


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    return total(abs(x), sizes)


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Terms of either sign from about 2^-6 to 2^6. Their sums stay far below 65504, the largest half."""
    return rng.normal(shape) * 2.0 ** rng.integers(shape, -6, 6)


def a_few_special(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """One lane in 32 holds inf, -inf, nan or a zero of either sign: so every third row has none of them."""
    import numpy

    hard, plain = rng.choice(shape, (float("inf"), float("-inf"), float("nan"), 0.0, -0.0)), rng.normal(shape)
    return numpy.where(rng.integers(shape, 0, 31) > 0, plain, hard)


def negative(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Nothing above 0, so that a 0 out of nowhere would be the largest."""
    return -rng.uniform(shape, 1.0, 9.0)


def multiples(unit: float) -> Fill:
    """1 to 8 times the unit: sums of 32 are exact in any float that has the unit as its smallest denormal."""
    return lambda rng, shape, sizes: rng.integers(shape, 1, 8) * unit


def constant(value: int) -> Fill:
    return lambda rng, shape, sizes: rng.integers(shape, value, value)


def float_sum(smallest: float) -> Spec:
    """The sum of floats whose smallest denormal is ``smallest``."""
    return Spec(
        computes="y = sum over the lanes of x, in every lane",
        inputs=(Tensor("x", ("warps", LANES)),),
        outputs=(Tensor("y", ("warps", LANES), "acc"),),
        sizes={"warps": Size(0, 150)},
        values=(
            InputKind("offset", normal(mean=4.0)),
            InputKind("whole numbers", integers(1, 8), exact=True),
            InputKind("cancelling", cancelling(large_and_small)),
            InputKind("denormals", multiples(smallest), exact=True),
            InputKind("a few special", a_few_special),
        ),
        reference=total,
        near_misses=NEAR_MISSES,
        tolerance=Accumulated(terms=lambda sizes: STEPS, magnitude=magnitude),
        # Around a block (8 warps), and several blocks.
        named_sizes=tuple({"warps": warps} for warps in (*range(6), 7, 8, 9, 11, 15, 16, 17, 23, 31, 33, 64, 65, 127)),
        large=({"warps": 10_007}, {"warps": 1_000_003}),
        work=lambda sizes: 60 * LANES * sizes["warps"],
        slice_dim="warps",
    )


def integer_sum(low: int, high: int) -> Spec:
    """The sum of integers in [low, high], both ends of which come often."""
    return replace(
        SPEC,
        values=(
            InputKind("whole numbers", integers(1, 8)),
            InputKind("whole range", integers(low, high)),
            InputKind("all lowest", constant(low)),
            InputKind("all highest", constant(high)),
        ),
        tolerance=Exact(),
    )


SPEC = float_sum(smallest=2.0**-149)

SPECS = {
    "warp_reduce_sum_f16_f16": float_sum(smallest=2.0**-24),
    "warp_reduce_sum_f16_f32": float_sum(smallest=2.0**-24),
    "warp_reduce_sum_bf16_bf16": float_sum(smallest=2.0**-133),
    "warp_reduce_sum_bf16_f32": float_sum(smallest=2.0**-133),
    "warp_reduce_sum_fp8_e4m3_f16": replace(
        float_sum(smallest=2.0**-9),
        near_misses={
            **NEAR_MISSES,
            "each byte is read as e5m2, not as e4m3": lambda x, sizes: total(e4m3_as_e5m2(x), sizes),
        },
    ),
    "warp_reduce_sum_fp8_e5m2_f16": float_sum(smallest=2.0**-16),
    "warp_reduce_sum_i8_i32": integer_sum(-(2**7), 2**7 - 1),
    "warp_reduce_sum_i32_i32": integer_sum(-(2**26), 2**26 - 1),  # 32 of them fit 32 bits
    "warp_reduce_max_f32": replace(
        SPEC,
        computes="y = largest over the lanes of x, in every lane",
        values=(
            InputKind("normal", normal()),
            InputKind("negative", negative),
            InputKind("a few special", a_few_special),
            InputKind("special", edge_values(at_end=False)),
        ),
        reference=largest,
        near_misses={
            "the sum": total,
            "the largest, but at least 0": lambda x, sizes: largest(x, sizes).clip(0),
            "the smallest": lambda x, sizes: spread(x.min(axis=1, keepdims=True)),
            "the largest absolute value": lambda x, sizes: largest(abs(x), sizes),
            "the largest of the lane and those after it, as shuffles down give": lambda x, sizes: running(x[:, ::-1])[
                :, ::-1
            ],
            "the largest up to the lane": lambda x, sizes: running(x),
            "the largest of the lane's half of the warp": lambda x, sizes: (
                x.reshape(-1, 2, 16).max(axis=2, keepdims=True).repeat(16, axis=2).reshape(x.shape)
            ),
            "the largest of a pair of lanes": lambda x, sizes: (
                x.reshape(-1, 16, 2).max(axis=2, keepdims=True).repeat(2, axis=2).reshape(x.shape)
            ),
            "lane 0 has the largest, and the others have x": lambda x, sizes: in_lane_0(largest(x, sizes), x),
            "x itself": lambda x, sizes: x,
        },
        tolerance=Exact(),
    ),
}
