"""A trial of one TODO: two parts of a head's keys become one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

PAIRS = ((1.0, 4.0), (4.0, 1.0), (2.0, 2.0), (None, 3.0), (3.0, None), (None, None))  # maxima; None: it saw no keys

CODE = """
__global__ void trial_kernel(float* joined) {
    constexpr float MAXIMA[6][2] = {{1, 4}, {4, 1}, {2, 2}, {NO_KEYS, 3}, {3, NO_KEYS}, {NO_KEYS, NO_KEYS}};
    for (int pair = 0; pair < 6; ++pair) {
        Part parts[2] = {};
        for (int i = 0; i < 2; ++i) {
            parts[i].max = MAXIMA[pair][i];
            if (parts[i].max == NO_KEYS) continue;
            parts[i].sum = 2.0f + i;
            for (int at = 0; at < VEC; ++at) parts[i].o[at] = 1.0f + at + 10 * i;
        }
        join(parts[0], parts[1]);
        float* const to = joined + pair * 4;
        to[0] = parts[0].max == NO_KEYS ? -1.0f : parts[0].max;
        to[1] = parts[0].sum;
        to[2] = parts[0].o[0];
        to[3] = parts[0].o[VEC - 1];
    }
}

KATA_EXPORT void trial(float* joined, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(joined);
}
"""


def wanted(maxima: tuple[float | None, float | None]) -> list[float]:
    """The maximum (-1 without keys), the sum, and the first and last column of the merged part."""
    seen = [top for top in maxima if top is not None]
    if not seen:
        return [-1.0, 0.0, 0.0, 0.0]
    found = [max(seen), 0.0, 0.0, 0.0]
    for place, top in enumerate(maxima):
        if top is not None:
            share = 2.0 ** (top - found[0])
            for at, value in enumerate((2.0 + place, 1.0 + 10 * place, 8.0 + 10 * place), 1):
                found[at] += share * value
    return found


def joined(arrays: Mapping[str, ndarray]) -> str:
    names = ("the maximum", "the sum", "column 0 of o", "column 7 of o")
    for pair, row in zip(PAIRS, arrays["joined"], strict=True):
        for name, got, right in zip(names, row, wanted(pair), strict=True):
            if not abs(got - right) <= 1e-4 * max(1.0, abs(right)):
                parts = " and ".join("no keys" if top is None else f"maximum {top:g}" for top in pair)
                return f"parts with {parts}: {name} must be {right:g}. It is {got:g}."
    return ""


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    head = "maxima          max      sum     o[0]     o[7]"
    rows = []
    for pair, row in zip(PAIRS, arrays["joined"], strict=True):
        parts = " + ".join("none" if top is None else f"{top:g}" for top in pair)
        rows.append(f"{parts:<12}" + "".join(f"{value:>9.4g}" for value in row))
    return [head, *rows]


TRIES = (
    Trial(
        katas=("decode_attention_kv_cache_f16", "decode_attention_kv_cache_last_block_f16"),
        todos=(1,),
        about="two parts become one, rescaled to the larger maximum",
        code=CODE,
        outputs=(Tensor("joined", (6, 4), "f32"),),
        judge=joined,
        picture=picture,
    ),
)
