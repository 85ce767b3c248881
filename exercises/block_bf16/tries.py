"""Trials of single TODOs: a gate's silu and its derivative, and the words of Philox."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

GATES = (0.0, 1.0, -1.0, -1.2785, 4.0, -20.0, -100.0, 100.0, -inf)

SLOPES = """
__global__ void trial_kernel(float* silu, float* slope) {
    const float GATES[9] = {0, 1, -1, -1.2785f, 4, -20, -100, 100, -INFINITY};
    for (int i = 0; i < 9; ++i) {
        const Gate gate = gate_of(GATES[i]);
        silu[i] = gate.silu;
        slope[i] = gate.slope;
    }
}

KATA_EXPORT void trial(float* silu, float* slope, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(silu, slope);
}
"""


def silu_and_slope(g: float) -> tuple[float, float]:
    s = 1 / (1 + exp(-g)) if g > -700 else 0.0
    return (g * s, s * (1 + g * (1 - s))) if g > -inf else (0.0, 0.0)


def derived(arrays: Mapping[str, ndarray]) -> str:
    for place, g in enumerate(GATES):
        for name, right in zip(("silu", "slope"), silu_and_slope(g), strict=True):
            got = float(arrays[name][place])
            if not abs(got - right) <= 1e-5 * max(1.0, abs(right)):
                return f"g = {g:g}: {name} must be {right:g}. It is {got:g}."
    return ""


def slopes(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [
        f"{g:>8g} {silu:>9.5f} {slope:>9.5f}"
        for g, silu, slope in zip(GATES, arrays["silu"].tolist(), arrays["slope"].tolist(), strict=True)
    ]
    return ["       g      silu     slope", *rows]


# (counter, key, the block's words): the answers that the authors of Philox publish for these two.
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
)

WORDS = """
__global__ void trial_kernel(int64_t* words) {
    for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t all = 0u - i;
        uint4 blocks[1] = {make_uint4(all, all, all, all)};
        philox(blocks, make_uint2(all, all));
        words[4 * i] = blocks[0].x;
        words[4 * i + 1] = blocks[0].y;
        words[4 * i + 2] = blocks[0].z;
        words[4 * i + 3] = blocks[0].w;
    }
}

KATA_EXPORT void trial(int64_t* words, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(words);
}
"""


def known(arrays: Mapping[str, ndarray]) -> str:
    for (counter, _, words), drawn in zip(KNOWN, arrays["words"].tolist(), strict=True):
        for place, (right, got) in enumerate(zip(words, drawn, strict=True)):
            if got != right:
                return f"counter and key {counter[0]:#x} each: word {place} must be {right:#010x}. It is {got:#010x}."
    return ""


def hexadecimal(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = [
        f"{counter[0]:#010x}  " + " ".join(f"{word:#010x}" for word in drawn)
        for (counter, _, _), drawn in zip(KNOWN, arrays["words"].tolist(), strict=True)
    ]
    return ["Each word of counter and key is the number on the left. The block of four words:", "", *rows]


TRIES = (
    Trial(
        katas=("swiglu_backward_bf16",),
        todos=(1,),
        about="silu of a gate and its derivative",
        code=SLOPES,
        outputs=(Tensor("silu", (len(GATES),), "f32"), Tensor("slope", (len(GATES),), "f32")),
        judge=derived,
        picture=slopes,
    ),
    Trial(
        katas=("bias_gelu_dropout_bf16",),
        todos=(1,),
        about="four words of Philox4x32-10 for two counters whose answers are known",
        code=WORDS,
        outputs=(Tensor("words", (len(KNOWN), 4), "i64"),),
        judge=known,
        picture=hexadecimal,
    ),
)
