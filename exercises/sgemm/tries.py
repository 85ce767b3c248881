"""A trial of one TODO: the swizzle of a transposed tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

CODE = """
__global__ void trial_kernel(int* places) {
    for (int i = threadIdx.x; i < 16 * 128; i += 128) places[i] = swizzle(i / 128, i % 128);
}

KATA_EXPORT void trial(int* places, int n, cudaStream_t stream) {
    trial_kernel<<<1, 128, 0, stream>>>(places);
}
"""


def swizzle(arrays: Mapping[str, ndarray]) -> str:
    """Slices keep their elements and their packs; a store of a warp has four packs of slices and eight rows of A."""
    places = arrays["places"]
    for k, row in enumerate(places.tolist()):
        if sorted(row) != list(range(128)):
            return f"slice {k} must hold each element once. Element 0 is at {row[0]}, element 1 at {row[1]}."
        split = next(
            (m for m in range(0, 128, 4) if row[m : m + 4] != list(range(row[m], row[m] + 4)) or row[m] % 4), None
        )
        if split is not None:
            return f"slice {k}: elements {split} to {split + 3} are one pack. They are at {row[split : split + 4]}."
    for m in range(0, 128, 8):
        banks = [place % 32 for k in (0, 4, 8, 12) for place in places[k, m : m + 8].tolist()]
        if len(set(banks)) < 32:
            return (
                f"slices 0, 4, 8 and 12, elements {m} to {m + 7}, are the 32 words of one store. They touch "
                f"{len(set(banks))} banks, and must touch 32."
            )
    return ""


def banks(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [
        f"slice {k:>2}   " + " ".join(f"{place % 32:>2}" for place in arrays["places"][k, :8]) for k in (0, 4, 8, 12)
    ]
    return ["banks of elements 0 to 7 of four slices:", *rows]


TRIES = (
    Trial(
        katas=("sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf",),
        todos=(1,),
        about="the swizzle: four slices and eight elements are in 32 banks",
        code=CODE,
        outputs=(Tensor("places", (16, 128), "i32"),),
        judge=swizzle,
        picture=banks,
    ),
)
