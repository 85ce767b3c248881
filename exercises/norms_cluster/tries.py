"""A trial of one TODO: the moments of two parts of a row, merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

# Two parts, each as its elements.
PAIRS = (
    ((1.0, 3.0), (1.0, 3.0)),
    ((1.0, 3.0), (5.0, 7.0)),
    ((0.0,), (2.0, 4.0, 6.0)),
    ((), (2.0, 6.0)),
    ((2.0, 6.0), ()),
    ((), ()),
)

CODE = """
__global__ void trial_kernel(float* merged) {
    const Moments a[6] = {{2, 2, 2}, {2, 2, 2}, {1, 0, 0}, {0, 0, 0}, {2, 4, 8}, {0, 0, 0}};
    const Moments b[6] = {{2, 2, 2}, {2, 6, 2}, {3, 4, 8}, {2, 4, 8}, {0, 0, 0}, {0, 0, 0}};
    const Moments both = merge(a[threadIdx.x], b[threadIdx.x]);
    merged[threadIdx.x * 3] = both.count;
    merged[threadIdx.x * 3 + 1] = both.mean;
    merged[threadIdx.x * 3 + 2] = both.squares;
}

KATA_EXPORT void trial(float* merged, int n, cudaStream_t stream) {
    trial_kernel<<<1, 6, 0, stream>>>(merged);
}
"""


def moments(part: tuple[float, ...]) -> tuple[float, float, float]:
    mean = sum(part) / len(part) if part else 0.0
    return float(len(part)), mean, sum((x - mean) ** 2 for x in part)


def joined(arrays: Mapping[str, ndarray]) -> str:
    """Six pairs of parts, some of them empty."""
    for (a, b), got in zip(PAIRS, arrays["merged"].tolist(), strict=True):
        for name, found, wanted in zip(("count", "mean", "squares"), got, moments(a + b), strict=True):
            if not abs(found - wanted) < 1e-4:
                return f"the parts {list(a)} and {list(b)}: {name} must be {wanted:g}, and is {found:g}."
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [f"{'a':<14}{'b':<18}{'count':>7}{'mean':>7}{'squares':>9}", ""]
    for (a, b), (count, mean, squares) in zip(PAIRS, arrays["merged"].tolist(), strict=True):
        rows.append(f"{list(a)!s:<14}{list(b)!s:<18}{count:>7g}{mean:>7g}{squares:>9g}")
    return ["merged moments of two parts:", "", *rows]


TRIES = (
    Trial(
        katas=("layer_norm_cluster_f16",),
        todos=(1,),
        about="the moments of two parts: count, mean, squared distances",
        code=CODE,
        outputs=(Tensor("merged", (6, 3), "f32"),),
        judge=joined,
        picture=picture,
    ),
)
