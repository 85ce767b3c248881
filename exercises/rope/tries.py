"""A trial of three TODOs: the angle at far positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

HIDDEN, THETA = 4096, 10000.0
POSITIONS, PAIRS = (0, 1, 1000, 65537, 131071), (0, 1, 100, 2047)
X = (0.75, -0.5)  # the pair that is rotated
ENOUGH = 2e-6  # of both coordinates: their own rounding, and 2^-26 turns

CODE = """
__global__ void trial_kernel(float* re, float* im) {
    constexpr int POSITIONS[5] = {0, 1, 1000, 65537, 131071};
    constexpr int PAIRS[4] = {0, 1, 100, 2047};
    const double log2_step = -2.0 * 13.287712379549449 / 4096.0;
    for (int at = 0; at < 20; ++at) {
        const float2 y = rotate({0.75f, -0.5f}, POSITIONS[at / 4], frequency(PAIRS[at % 4], log2_step));
        re[at] = y.x;
        im[at] = y.y;
    }
}

KATA_EXPORT void trial(float* re, float* im, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(re, im);
}
"""


def errors(arrays: Mapping[str, ndarray]) -> ndarray:
    """How far the rotated pair X is from its place, by position and pair."""
    import numpy

    angles = numpy.outer(POSITIONS, THETA ** (-2.0 * numpy.array(PAIRS) / HIDDEN))
    found: ndarray = abs(arrays["re"] + 1j * arrays["im"] - complex(*X) * numpy.exp(1j * angles))
    return found


def rotated(arrays: Mapping[str, ndarray]) -> str:
    found = errors(arrays)
    for at, position in enumerate(POSITIONS):
        for place, pair in enumerate(PAIRS):
            if not found[at, place] <= ENOUGH:
                return (
                    f"position {position}, pair {pair} of hidden = {HIDDEN}: {X} is rotated to "
                    f"({arrays['re'][at, place]:.6f}, {arrays['im'][at, place]:.6f}), off by "
                    f"{found[at, place]:.2g}. At most {ENOUGH:g} is right."
                )
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    head = "position" + "".join(f"{f'pair {pair}':>12}" for pair in PAIRS)
    rows = [
        f"{p:>8}" + "".join(f"{value:>12.1e}" for value in row)
        for p, row in zip(POSITIONS, errors(arrays), strict=True)
    ]
    return [f"how far the pair {X} is from its place after the rotation:", "", head, *rows]


TRIES = (
    Trial(
        katas=("rope_f32",),
        todos=(1, 2, 3),
        about="pairs rotated at positions up to 131071",
        code=CODE,
        outputs=(Tensor("re", (5, 4), "f32"), Tensor("im", (5, 4), "f32")),
        judge=rotated,
        picture=picture,
    ),
)
