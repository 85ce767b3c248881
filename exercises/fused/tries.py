"""A trial of one TODO: the sums that a scan leaves in each lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial, cells

if TYPE_CHECKING:
    from numpy import ndarray

LANES = 32

CODE = """
__global__ void trial_kernel(int* sums) {
    const int lane = threadIdx.x;
    for (int from = 0; from < 32; ++from) sums[from * 32 + lane] = warp_scan(lane == from ? 1 : 0);
}

KATA_EXPORT void trial(int* sums, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(sums);
}
"""


def scanned(arrays: Mapping[str, ndarray]) -> str:
    """Row r of sums: what each lane gets if only lane r has a 1."""
    for start in range(LANES):
        for lane in range(LANES):
            got, right = int(arrays["sums"][start, lane]), int(start <= lane)
            if got != right:
                return (
                    f"lane {lane} gets the sum over lanes 0 to {lane}: the value of lane {start} must be in it "
                    f"{right} times. It is in it {got} times."
                )
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    return ["the lanes (columns 0 to 31) that get the value of each lane (#: once):", *cells(arrays["sums"], "lane")]


TRIES = (
    Trial(
        katas=("remove_padding_f16",),
        todos=(1,),
        about="the scan of a warp: lane i gets the sum over lanes 0 to i",
        code=CODE,
        outputs=(Tensor("sums", (LANES, LANES), "i32"),),
        judge=scanned,
        picture=picture,
    ),
)
