"""Trials of single TODOs: a batch of logits that joins a pair of maximum and sum, and the gradient by one logit."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, log
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

# (what the pair has seen, the batch): a logit each, -inf where there is none. The batch has one logit that is not -inf.
JOINED = ((-inf, 3.0), (3.0, -inf), (-inf, -inf), (1.0, 4.0), (4.0, 1.0), (-80.0, 80.0), (80.0, -80.0))

BATCH = """
__global__ void trial_kernel(float* lse) {
    const float BEFORE[7] = {-INFINITY, 3, -INFINITY, 1, 4, -80, 80};
    const float ADDED[7] = {3, -INFINITY, -INFINITY, 4, 1, 80, -80};
    for (int pair = 0; pair < 7; ++pair) {
        Partial mine = nothing();
        if (BEFORE[pair] != -INFINITY) mine = {BEFORE[pair], 2.0f};
        alignas(uint4) __nv_bfloat16 logits[LOADS][VEC];
        for (auto& vector : logits)
            for (auto& logit : vector) logit = __float2bfloat16(-INFINITY);
        logits[LOADS - 1][VEC - 3] = __float2bfloat16(ADDED[pair]);
        logits[0][1] = __float2bfloat16(ADDED[pair]);
        uint4 x_rmem[LOADS];
        for (int i = 0; i < LOADS; ++i) x_rmem[i] = *reinterpret_cast<const uint4*>(logits[i]);
        add_batch(mine, x_rmem);
        lse[pair] = mine.sum == 0.0f ? -INFINITY : mine.max + logf(mine.sum);
    }
}

KATA_EXPORT void trial(float* lse, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(lse);
}
"""


def total(before: float, added: float) -> float:
    """log of the sum of exp of two logits ``before`` and two logits ``added``."""
    top = max(before, added)
    return top if top == -inf else top + log(2 * exp(before - top) + 2 * exp(added - top))


def joined(arrays: Mapping[str, ndarray]) -> str:
    for (before, added), got in zip(JOINED, arrays["lse"].tolist(), strict=True):
        right = total(before, added)
        if not (got == right or abs(got - right) <= 1e-4 * max(1.0, abs(right))):
            seen = "no logits" if before == -inf else f"two logits of {before:g}"
            batch = "only logits of -inf" if added == -inf else f"two logits of {added:g}, all others -inf"
            return f"{seen}, and a batch with {batch}: max + log(sum) must be {right:g}. It is {got:g}."
    return ""


def sums(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [
        f"{before:>6g} {added:>6g} {got:>10.5f}"
        for (before, added), got in zip(JOINED, arrays["lse"].tolist(), strict=True)
    ]
    return ["before  batch  max + log(sum)", *rows]


COLUMNS, LSE, G, TARGET = 6, 1.5, -2.0, 4

GRADIENT = """
__global__ void trial_kernel(float* dx) {
    const Row row = {1.5f, -2.0f, 4};
    for (int col = 0; col < 6; ++col) dx[col] = gradient(0.5f * col - 1.0f, col, row);
}

KATA_EXPORT void trial(float* dx, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(dx);
}
"""


def gradient_at(col: int) -> float:
    return (exp(0.5 * col - 1.0 - LSE) - (col == TARGET)) * G


def derived(arrays: Mapping[str, ndarray]) -> str:
    for col, got in enumerate(arrays["dx"].tolist()):
        right = gradient_at(col)
        if not abs(got - right) <= 1e-4 * max(1.0, abs(right)):
            where = "the target's column" if col == TARGET else f"column {col}, target {TARGET}"
            return f"{where}, logit {0.5 * col - 1:g}, lse {LSE:g}, g {G:g}: dx must be {right:g}. It is {got:g}."
    return ""


def slopes(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [f"{col:>6} {0.5 * col - 1:>6.2f} {got:>9.5f}" for col, got in enumerate(arrays["dx"].tolist())]
    return ["column  logit        dx", *rows]


TRIES = (
    Trial(
        katas=("ce_online_bf16",),
        todos=(1,),
        about="a batch of logits joins the maximum and the sum of those before it",
        code=BATCH,
        outputs=(Tensor("lse", (len(JOINED),), "f32"),),
        judge=joined,
        picture=sums,
    ),
    Trial(
        katas=("ce_backward_bf16",),
        todos=(1,),
        about="the gradient of a row's loss by one logit",
        code=GRADIENT,
        outputs=(Tensor("dx", (COLUMNS,), "f32"),),
        judge=derived,
        picture=slopes,
    ),
)
