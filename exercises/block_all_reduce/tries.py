"""A trial of one TODO: the partial sums of all warps reach the first warp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial, cells

if TYPE_CHECKING:
    from numpy import ndarray

WARPS, LANES = 8, 32

CODE = """
__global__ void trial_kernel(float* sums) {
    for (int warp = 0; warp < WARPS; ++warp) {
        const float sum = block_reduce_sum(threadIdx.x / WARP_SIZE == warp ? 1.0f : 0.0f);
        if (threadIdx.x < WARP_SIZE) sums[warp * WARP_SIZE + threadIdx.x] = sum / WARP_SIZE;
        __syncthreads();
    }
}

KATA_EXPORT void trial(float* sums, int n, cudaStream_t stream) {
    trial_kernel<<<1, THREADS, 0, stream>>>(sums);
}
"""


def summed(arrays: Mapping[str, ndarray]) -> str:
    """Row w of sums: what each lane of the first warp gets of the warp w, as a share of what it must get."""
    for warp in range(WARPS):
        for lane in range(LANES):
            if (got := arrays["sums"][warp, lane]) != 1.0:
                return f"lane {lane} of warp 0 must get 32, the sum of warp {warp}'s lanes. It gets {32 * got:g}."
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    return ["the lanes of warp 0 that get the sum of each warp (#: once):", *cells(arrays["sums"], "warp")]


TRIES = (
    Trial(
        katas=("block_all_reduce_f32_grid_stride_f32",),
        todos=(1,),
        about="one partial sum per warp, and their sum in the first warp",
        code=CODE,
        outputs=(Tensor("sums", (WARPS, LANES), "f32"),),
        judge=summed,
        picture=picture,
    ),
)
