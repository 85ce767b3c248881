"""A trial of one TODO: where the vectors of a channel are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

IMAGES, CHANNELS, VECS = 2, 3, 4  # vecs: vectors of a plane

CODE = """
__global__ void trial_kernel(int* places) {
    const int channel = threadIdx.x / 8, vec = threadIdx.x % 8;
    places[threadIdx.x] = static_cast<int>(place(vec, channel, 3, 4));
}

KATA_EXPORT void trial(int* places, int n, cudaStream_t stream) {
    trial_kernel<<<1, 24, 0, stream>>>(places);
}
"""


def placed(arrays: Mapping[str, ndarray]) -> str:
    """Vector v of a channel is in image v / vecs."""
    for channel in range(CHANNELS):
        for vec in range(IMAGES * VECS):
            image, at = divmod(vec, VECS)
            right, got = (image * CHANNELS + channel) * VECS + at, int(arrays["places"][channel, vec])
            if got != right:
                return (
                    f"with C = {CHANNELS} and vecs = {VECS}: vector {vec} of channel {channel} is vector {at} of its "
                    f"plane in image {image}. Its index must be {right}. It is {got}."
                )
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    """All vectors in the order of memory, each with the channel that names it."""
    owner = {int(place): channel for channel in range(CHANNELS) for place in arrays["places"][channel]}
    names = [str(owner.get(place, "-")) for place in range(IMAGES * CHANNELS * VECS)]
    planes = [" ".join(names[at : at + VECS]) for at in range(0, len(names), VECS)]
    rows = [f"image {image}  " + "  |  ".join(planes[image * CHANNELS :][:CHANNELS]) for image in range(IMAGES)]
    return ["the channel whose vector is at each place of x (-: none), plane by plane:", "", *rows]


TRIES = (
    Trial(
        katas=("batch_norm_add_relu_f32",),
        todos=(1,),
        about="the vectors of a channel, plane after plane",
        code=CODE,
        outputs=(Tensor("places", (CHANNELS, IMAGES * VECS), "i32"),),
        judge=placed,
        picture=picture,
    ),
)
