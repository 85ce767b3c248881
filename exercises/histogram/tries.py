"""A trial of one TODO: which counter a value raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

OWN, BINS, EACH = 8, 16, 32  # bins with a counter of the block's own; all bins; how often each value occurs

CODE = """
__global__ void trial_kernel(int* own, int* counts) {
    __shared__ int counts_smem[8];
    if (threadIdx.x < 8) counts_smem[threadIdx.x] = 0;
    __syncthreads();
    count_value(threadIdx.x % 16, counts_smem, counts, 8);
    __syncthreads();
    if (threadIdx.x < 8) own[threadIdx.x] = counts_smem[threadIdx.x];
}

KATA_EXPORT void trial(int* own, int* counts, int n, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, 16 * sizeof(int), stream);
    trial_kernel<<<1, 512, 0, stream>>>(own, counts);
}
"""


def counted(arrays: Mapping[str, ndarray]) -> str:
    """512 threads count the values 0 to 15, each 32 times; the block has counters of its own for 0 to 7."""
    for value in range(BINS):
        own = int(arrays["own"][value]) if value < OWN else 0
        shared = int(arrays["counts"][value])
        if (own, shared) != ((EACH, 0) if value < OWN else (0, EACH)):
            place = "counts_smem" if value < OWN else "counts"
            return (
                f"value {value} occurs {EACH} times, and own_bins is {OWN}: {place}[{value}] must be {EACH}. "
                f"counts_smem has {own}, counts has {shared}."
            )
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [("counts_smem", arrays["own"].tolist()), ("counts", arrays["counts"].tolist())]
    head = "value        " + "".join(f"{value:>4}" for value in range(BINS))
    return ["the counters after 512 threads:", "", head, *(f"{a:<13}" + "".join(f"{x:>4}" for x in b) for a, b in rows)]


TRIES = (
    Trial(
        katas=("histogram_i32_privatized",),
        todos=(1,),
        about="a value's counter: the block's own, or the one in global memory",
        code=CODE,
        outputs=(Tensor("own", (OWN,), "i32"), Tensor("counts", (BINS,), "i32")),
        judge=counted,
        picture=picture,
    ),
)
