"""A trial of one TODO: which bin a counter of a block is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

RANKS, SLOTS, CHUNK = 8, 32, 8  # blocks, counters of each, neighbouring bins of one block

CODE = """
__global__ void trial_kernel(int* bins) {
    bins[threadIdx.x] = bin_of(threadIdx.x / 32, threadIdx.x % 32);
}

KATA_EXPORT void trial(int* bins, int n, cudaStream_t stream) {
    trial_kernel<<<1, 256, 0, stream>>>(bins);
}
"""


def inverted(arrays: Mapping[str, ndarray]) -> str:
    """8 blocks with 32 counters each have the bins 0 to 255, each once."""
    for rank in range(RANKS):
        for slot in range(SLOTS):
            found, wanted = int(arrays["bins"][rank][slot]), (slot // CHUNK * RANKS + rank) * CHUNK + slot % CHUNK
            if found != wanted:
                return (
                    f"block {rank} counts bin {wanted} in counter {slot}: the chunk {wanted // CHUNK} of 8 bins is its "
                    f"chunk {slot // CHUNK}. bin_of({rank}, {slot}) gives {found}."
                )
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [(rank, arrays["bins"][rank].tolist()) for rank in range(RANKS)]
    starts = range(0, SLOTS, CHUNK)
    head = "block  " + "".join(f"{f'counters {at}..{at + CHUNK - 1}':>18}" for at in starts)
    lines = [
        f"{rank:<7}" + "".join(f"{f'{bins[at]}..{bins[at + CHUNK - 1]}':>18}" for at in starts) for rank, bins in rows
    ]
    return ["the bins of each block's counters:", "", head, *lines]


TRIES = (
    Trial(
        katas=("cluster_histogram_i32",),
        todos=(1,),
        about="the bin of a counter: chunks of 8 bins go round the blocks",
        code=CODE,
        outputs=(Tensor("bins", (RANKS, SLOTS), "i32"),),
        judge=inverted,
        picture=picture,
    ),
)
