"""A trial of one TODO: which lanes add up their sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial, cells

if TYPE_CHECKING:
    from numpy import ndarray

LANES, SHARING = 32, 16  # of a warp; that share a row

CODE = """
__global__ void trial_kernel(float* sums) {
    const int lane = threadIdx.x;
    for (int from = 0; from < 32; ++from) sums[from * 32 + lane] = row_reduce_sum(lane == from ? 1.0f : 0.0f);
}

KATA_EXPORT void trial(float* sums, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(sums);
}
"""


def shared(arrays: Mapping[str, ndarray]) -> str:
    """Row r of sums: what each lane gets if only lane r has a 1."""
    for start in range(LANES):
        for lane in range(LANES):
            got, right = arrays["sums"][start, lane], float(start // SHARING == lane // SHARING)
            if got != right:
                whose = "share a row" if right else "have different rows"
                return (
                    f"lanes {start} and {lane} {whose}: lane {lane} must get the value of lane {start} "
                    f"{right:g} times. It gets it {got:g} times."
                )
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    return ["the lanes (columns 0 to 31) that get the value of each lane (#: once):", *cells(arrays["sums"], "lane")]


TRIES = (
    Trial(
        katas=("hgemv_k16_f16",),
        todos=(1,),
        about="16 lanes add up their parts of a row, and no lane of the other row",
        code=CODE,
        outputs=(Tensor("sums", (LANES, LANES), "f32"),),
        judge=shared,
        picture=picture,
    ),
)
