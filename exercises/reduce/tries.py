"""A trial of one TODO: the last six steps of the tree in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial, cells

if TYPE_CHECKING:
    from numpy import ndarray

PLACES = 64

CODE = """
__global__ void trial_kernel(float* sums) {
    __shared__ float partial_smem[64];
    const int lane = threadIdx.x;
    for (int from = 0; from < 64; ++from) {
        partial_smem[lane] = lane == from ? 1.0f : 0.0f;
        partial_smem[lane + 32] = lane + 32 == from ? 1.0f : 0.0f;
        __syncwarp();
        warp_reduce_smem(partial_smem, lane);
        __syncwarp();
        if (lane == 0) sums[from] = partial_smem[0];
        __syncwarp();
    }
}

KATA_EXPORT void trial(float* sums, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(sums);
}
"""


def reduced(arrays: Mapping[str, ndarray]) -> str:
    """sums[p]: what arrives at place 0 if only place p holds a 1."""
    wrong = [(place, got) for place, got in enumerate(arrays["sums"].tolist()) if got != 1.0]
    if not wrong:
        return ""
    place, got = wrong[0]
    others = f" So do {len(wrong) - 1} other places." if len(wrong) > 1 else ""
    return f"place {place} must reach place 0 once. It arrives {got:g} times.{others}"


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    halves = cells(arrays["sums"].reshape(2, 32), "half")
    return ["how often each place reaches place 0 (#: once), 0 to 31 and 32 to 63:", "", *halves]


TRIES = (
    Trial(
        katas=("reduce_unroll_last_warp_f32", "reduce_unroll_full_f32", "reduce_multi_add_f32"),
        todos=(1,),
        about="the last six steps: all of 64 places reach place 0 once",
        code=CODE,
        outputs=(Tensor("sums", (PLACES,), "f32"),),
        judge=reduced,
        picture=picture,
    ),
)
