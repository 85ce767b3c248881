"""A trial of one TODO: which boxes overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import InputKind, Rng, Sizes, Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

CASES = (  # two boxes (x1, y1, x2, y2), and their intersection over their union in words
    ((0, 0, 4, 4), (0, 0, 4, 4), "the same box"),
    ((0, 0, 4, 4), (0, 1, 4, 5), "3/5"),
    ((0, 0, 4, 4), (0, 0, 4, 2), "1/2, not above the threshold"),
    ((0, 0, 6, 4), (2, 0, 8, 4), "1/2, side by side"),
    ((0, 0, 4, 4), (1, 1, 3, 3), "1/4, one inside the other"),
    ((0, 0, 4, 4), (4, 0, 8, 4), "0, they touch"),
    ((0, 0, 2, 2), (5, 5, 9, 9), "0, apart in x and in y"),
    ((0, 0, 4, 4), (9, 1, 13, 5), "0, apart in x"),
    ((1, 1, 1, 1), (1, 1, 1, 1), "0/0, two empty boxes"),
)

CODE = """
__global__ void trial_kernel(const float4* boxes, int* over) {
    over[threadIdx.x] = overlap(boxes[2 * threadIdx.x], boxes[2 * threadIdx.x + 1], 0.5f);
}

KATA_EXPORT void trial(const float* boxes, int* over, int n, cudaStream_t stream) {
    trial_kernel<<<1, 9, 0, stream>>>(reinterpret_cast<const float4*>(boxes), over);
}
"""


def boxes(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.array([[a, b] for a, b, _ in CASES], dtype=float)


def is_over(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether the intersection is more than half of the union, in whole numbers."""
    width, height = (max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]), 0) for i in (0, 1))
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return 2 * width * height > both - width * height


def judged(arrays: Mapping[str, ndarray]) -> str:
    for (a, b, words), got in zip(CASES, arrays["over"].tolist(), strict=True):
        if bool(got) != is_over(a, b):
            right = "true" if is_over(a, b) else "false"
            return f"boxes {a} and {b} ({words}) with threshold 1/2: the result must be {right}."
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = zip(CASES, arrays["over"].tolist(), strict=True)
    return ["boxes (x1, y1, x2, y2), and whether they overlap by more than 1/2:"] + [
        f"{a!s:<14} {b!s:<14} {'yes' if got else 'no':<4} {words}" for (a, b, words), got in rows
    ]


TRIES = (
    Trial(
        katas=("nms_f32",),
        todos=(1,),
        about="intersection over union, compared with a threshold of 1/2",
        code=CODE,
        inputs=(Tensor("boxes", (len(CASES), 2, 4), "f32"),),
        outputs=(Tensor("over", (len(CASES),), "i32"),),
        values=InputKind("pairs", boxes),
        judge=judged,
        picture=picture,
    ),
)
