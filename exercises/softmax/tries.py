"""Trials of single TODOs: the partial results of an online softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

LANES = 32
PAIRS = ((1.0, 4.0), (4.0, 1.0), (2.0, 2.0), (-80.0, 80.0), (None, 3.0), (3.0, None), (None, None))  # None: no elements

MERGE = """
__global__ void trial_kernel(float* merged) {
    constexpr float MAXIMA[7][2] = {{1, 4}, {4, 1}, {2, 2}, {-80, 80}, {0, 3}, {3, 0}, {0, 0}};
    constexpr int EMPTY[7] = {0, 0, 0, 0, 1, 2, 3};  // bit i: part i has no elements
    for (int pair = 0; pair < 7; ++pair) {
        const Partial a = EMPTY[pair] & 1 ? nothing() : Partial{MAXIMA[pair][0], 2.0f};
        const Partial b = EMPTY[pair] & 2 ? nothing() : Partial{MAXIMA[pair][1], 3.0f};
        const Partial both = merge(a, b);
        merged[pair * 2] = both.sum == 0.0f ? 0.0f : both.max;
        merged[pair * 2 + 1] = both.sum;
    }
}

KATA_EXPORT void trial(float* merged, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(merged);
}
"""


def wanted(pair: tuple[float | None, float | None]) -> tuple[float, float]:
    """The maximum and the sum of both parts, whose sums are 2 and 3; (0, 0) without elements."""
    import math

    seen = [(top, weight) for top, weight in zip(pair, (2.0, 3.0), strict=True) if top is not None]
    top = max((each for each, _ in seen), default=0.0)
    return top, sum(weight * math.exp(each - top) for each, weight in seen)


def merged(arrays: Mapping[str, ndarray]) -> str:
    for pair, row in zip(PAIRS, arrays["merged"].tolist(), strict=True):
        for name, got, right in zip(("maximum", "sum"), row, wanted(pair), strict=True):
            if not abs(got - right) <= 1e-4 * max(1.0, abs(right)):
                parts = " and ".join("no elements" if top is None else f"maximum {top:g}" for top in pair)
                return f"parts with {parts}, and sums of 2 and 3: the {name} must be {right:g}. It is {got:g}."
    return ""


def parts(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = []
    for pair, (top, total) in zip(PAIRS, arrays["merged"].tolist(), strict=True):
        a, b = ("none" if each is None else f"{each:g}" for each in pair)
        rows.append(f"{a:>5} + {b:<5} {top:>8g} {total:>10.6f}")
    return ["maxima          max        sum", *rows]


BUTTERFLY = """
__global__ void trial_kernel(float* results) {
    const int lane = threadIdx.x;
    const Partial all = warp_reduce({0.25f * (lane * lane % 37), 1.0f});
    results[lane * 2] = all.max;
    results[lane * 2 + 1] = all.sum;
}

KATA_EXPORT void trial(float* results, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(results);
}
"""


def exchanged(arrays: Mapping[str, ndarray]) -> str:
    """Lane n has x = (n^2 % 37) / 4."""
    import math

    x = [lane * lane % 37 / 4 for lane in range(LANES)]
    right = (max(x), sum(math.exp(each - max(x)) for each in x))
    for lane, row in enumerate(arrays["results"].tolist()):
        for name, got, value in zip(("maximum", "sum"), row, right, strict=True):
            if not abs(got - value) <= 1e-4 * value:
                return f"lane {lane}: the {name} over 32 lanes must be {value:g}. It is {got:g}."
    return ""


def lanes(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [f"{lane:>4}  {lane * lane % 37 / 4:>5.2f} {row[0]:>8.3f} {row[1]:>9.5f}"
            for lane, row in enumerate(arrays["results"].tolist()) if lane % 4 == 0]  # fmt: skip
    return ["lane      x      max       sum", *rows]


TRIES = (
    Trial(
        katas=("online_safe_softmax_f32_two_reductions",),
        todos=(1,),
        about="two partial results become one, rescaled to the larger maximum",
        code=MERGE,
        outputs=(Tensor("merged", (len(PAIRS), 2), "f32"),),
        judge=merged,
        picture=parts,
    ),
    Trial(
        katas=("online_safe_softmax_f32",),
        todos=(1,),
        about="the partial results of 32 lanes, merged in every lane",
        code=BUTTERFLY,
        outputs=(Tensor("results", (LANES, 2), "f32"),),
        judge=exchanged,
        picture=lanes,
    ),
)
