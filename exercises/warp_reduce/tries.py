"""A trial of two TODOs: the largest of a warp, also with nan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial, cells

if TYPE_CHECKING:
    from numpy import ndarray

LANES = 32
NAMES = ("1 and 2", "2 and 1", "nan and 1", "1 and nan")  # the arguments of max_or_nan

CODE = """
__global__ void trial_kernel(float* pairs, float* largest) {
    const int lane = threadIdx.x;
    const float nan = nanf("");
    if (lane == 0) {
        pairs[0] = max_or_nan(1.0f, 2.0f);
        pairs[1] = max_or_nan(2.0f, 1.0f);
        pairs[2] = max_or_nan(nan, 1.0f);
        pairs[3] = max_or_nan(1.0f, nan);
    }
    __syncwarp();
    for (int at = 0; at < 32; ++at) {
        largest[at * 32 + lane] = warp_reduce_max(lane == at ? 1.0f : -1.0f - lane);
        largest[(32 + at) * 32 + lane] = warp_reduce_max(lane == at ? nan : 1.0f * lane);
    }
}

KATA_EXPORT void trial(float* pairs, float* largest, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(pairs, largest);
}
"""


def largest(arrays: Mapping[str, ndarray]) -> str:
    for place, (name, got) in enumerate(zip(NAMES, arrays["pairs"].tolist(), strict=True)):
        is_right = got == 2.0 if place < 2 else got != got
        if not is_right:
            return f"of {name} the result must be {'2' if place < 2 else 'nan'}. It is {got:g}."
    for at in range(LANES):
        for lane in range(LANES):
            if arrays["largest"][at, lane] != 1.0:
                return f"the largest is in lane {at}: lane {lane} must get 1. It gets {arrays['largest'][at, lane]:g}."
            if (got := arrays["largest"][LANES + at, lane]) == got:
                return f"lane {at} has a nan: lane {lane} must get nan. It gets {got:g}."
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    import numpy

    found, nans = arrays["largest"][:LANES] == 1.0, numpy.isnan(arrays["largest"][LANES:])
    return [
        "the lanes (columns 0 to 31) that get the largest value from each lane, and next to it a nan (#):",
        *(f"{a}    {b[9:]}" for a, b in zip(cells(found, "lane"), cells(nans, "lane"), strict=True)),
    ]


TRIES = (
    Trial(
        katas=("warp_reduce_max_f32",),
        todos=(1, 2),
        about="the largest of a warp in every lane, or nan if any lane has one",
        code=CODE,
        outputs=(Tensor("pairs", (4,), "f32"), Tensor("largest", (2 * LANES, LANES), "f32")),
        judge=largest,
        picture=picture,
    ),
)
