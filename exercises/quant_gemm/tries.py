"""Trials of single TODOs: bytes and nibbles of a word as halves, pairs of x, and the fragments that a packed word
holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

BYTES = """
__global__ void trial_kernel(float* weights) {
    for (uint32_t word = 0; word < 64; ++word) {
        const uint32_t first = 4 * word;
        half2 pairs[2];
        widen(pairs, first | (first + 1) << 8 | (first + 2) << 16 | (first + 3) << 24);
        for (int i = 0; i < 2; ++i) {
            weights[first + 2 * i] = __low2float(pairs[i]);
            weights[first + 2 * i + 1] = __high2float(pairs[i]);
        }
    }
}

KATA_EXPORT void trial(float* weights, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(weights);
}
"""


def signed(byte: int) -> int:
    return byte - 256 if byte >= 128 else byte


def widened_bytes(arrays: Mapping[str, ndarray]) -> str:
    """Word w has the bytes 4 w to 4 w + 3, in this order from its lower end."""
    for byte, got in enumerate(arrays["weights"].tolist()):
        if got != signed(byte):
            first = byte // 4 * 4
            return (
                f"word 0x{first + 3:02x}{first + 2:02x}{first + 1:02x}{first:02x}: byte {byte % 4} is 0x{byte:02x}, so "
                f"half {byte % 2} of pairs[{byte % 4 // 2}] must be {signed(byte)}. It is {got:g}."
            )
    return ""


def some_bytes(arrays: Mapping[str, ndarray]) -> list[str]:
    shown = (0x00, 0x01, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
    weights = arrays["weights"].tolist()
    return ["byte  weight", *(f"0x{byte:02x} {weights[byte]:>7g}" for byte in shown)]


NIBBLES = """
__global__ void trial_kernel(float* weights) {
    for (uint32_t first = 0; first < 16; ++first) {
        uint32_t word = 0;
        for (uint32_t i = 0; i < 8; ++i) word |= (first + i) % 16 << (4 * i);
        half2 pairs[4];
        widen(pairs, word);
        for (int i = 0; i < 4; ++i) {
            weights[first * 8 + i] = __low2float(pairs[i]);
            weights[first * 8 + i + 4] = __high2float(pairs[i]);
        }
    }
}

KATA_EXPORT void trial(float* weights, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(weights);
}
"""


def word_of(first: int) -> int:
    return sum((first + i) % 16 << 4 * i for i in range(8))


def widened_nibbles(arrays: Mapping[str, ndarray]) -> str:
    """Row f: of the word whose nibble i is f + i, modulo 16, the weights of nibbles 0 to 7."""
    for first, row in enumerate(arrays["weights"].tolist()):
        for i, got in enumerate(row):
            right = (first + i) % 16 - 8
            if got != right:
                which = "upper" if i > 3 else "lower"
                return (
                    f"word 0x{word_of(first):08x}: nibble {i} is {right + 8}, so the {which} half of pairs[{i % 4}] "
                    f"must be {right}. It is {got:g}."
                )
    return ""


def some_nibbles(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = arrays["weights"].tolist()
    return [
        "word        weights of nibbles 0 to 7",
        *(f"0x{word_of(first):08x}  " + " ".join(f"{got:>5g}" for got in rows[first]) for first in (0, 5, 8, 15)),
    ]


FRAGMENTS = """
__global__ void trial_kernel(float* weights) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; ++i) word |= (i + 1) << (4 * i);
    uint32_t W[2][2];
    dequantise(W, word, {__float2half(2.0f), __float2half(0.5f)});
    for (int i = 0; i < 4; ++i) {
        const half2 pair = reinterpret_cast<const half2&>(W[i / 2][i % 2]);
        weights[2 * i] = __low2float(pair);
        weights[2 * i + 1] = __high2float(pair);
    }
}

KATA_EXPORT void trial(float* weights, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(weights);
}
"""
SCALES = (2.0, 0.5)


def right_fragments() -> list[float]:
    """The word 0x87654321: nibble p, then nibble p + 4, for p = 0 to 3. Two p are the fragment of an mma tile."""
    return [(nibble + 1 - 8) * SCALES[p // 2] for p in range(4) for nibble in (p, p + 4)]


def fragments(arrays: Mapping[str, ndarray]) -> str:
    for place, (got, right) in enumerate(zip(arrays["weights"].ravel().tolist(), right_fragments(), strict=True)):
        if got != right:
            p, odd = place // 2, place % 2
            nibble = p + 4 * odd
            return (
                f"word 0x87654321, scales 2 and 0.5: half {odd} of W[{p // 2}][{p % 2}] is nibble {nibble}, which is "
                f"{nibble + 1}. So it must be {right:g}. It is {got:g}."
            )
    return ""


def some_fragments(arrays: Mapping[str, ndarray]) -> list[str]:
    got = arrays["weights"].ravel().tolist()
    return [f"W[{p // 2}][{p % 2}]  {got[2 * p]:>6g} {got[2 * p + 1]:>6g}" for p in range(4)]


OPERAND = FRAGMENTS.replace("uint32_t W[2][2]", "uint32_t W[4]").replace("W[i / 2][i % 2]", "W[i]")
PAIR_OF_REGISTER = (0, 2, 1, 3)  # both columns at the first k, then both at the k eight further


def right_operand() -> list[float]:
    right = right_fragments()
    return [right[2 * p + odd] for p in PAIR_OF_REGISTER for odd in range(2)]


def operand(arrays: Mapping[str, ndarray]) -> str:
    for place, (got, right) in enumerate(zip(arrays["weights"].ravel().tolist(), right_operand(), strict=True)):
        if got != right:
            register, odd = place // 2, place % 2
            nibble = PAIR_OF_REGISTER[register] + 4 * odd
            return (
                f"word 0x87654321, scales 2 and 0.5: half {odd} of W[{register}] is nibble {nibble}, which is "
                f"{nibble + 1}. So it must be {right:g}. It is {got:g}."
            )
    return ""


def some_operand(arrays: Mapping[str, ndarray]) -> list[str]:
    got = arrays["weights"].ravel().tolist()
    return [f"W[{i}]  {got[2 * i]:>6g} {got[2 * i + 1]:>6g}" for i in range(4)]


PAIRS = """
__global__ void trial_kernel(float* elements) {
    alignas(uint4) half x[8];
    for (int i = 0; i < 8; ++i) x[i] = __float2half(static_cast<float>(i));
    half2 pairs[4];
    pair_up(pairs, reinterpret_cast<const uint4&>(x));
    for (int i = 0; i < 4; ++i) {
        elements[2 * i] = __low2float(pairs[i]);
        elements[2 * i + 1] = __high2float(pairs[i]);
    }
}

KATA_EXPORT void trial(float* elements, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(elements);
}
"""


def paired(arrays: Mapping[str, ndarray]) -> str:
    for place, got in enumerate(arrays["elements"].ravel().tolist()):
        pair, odd = place // 2, place % 2
        right = pair + 4 * odd
        if got != right:
            return f"x is 0 to 7: half {odd} of pairs[{pair}] must be x[{right}]. It is {got:g}."
    return ""


def some_pairs(arrays: Mapping[str, ndarray]) -> list[str]:
    got = arrays["elements"].ravel().tolist()
    return ["x is 0 to 7", *(f"pairs[{i}]  {got[2 * i]:>6g} {got[2 * i + 1]:>6g}" for i in range(4))]


TRIES = (
    Trial(
        katas=("w8a16_gemv_f16",),
        todos=(1,),
        about="four int8 of a word become halves",
        code=BYTES,
        outputs=(Tensor("weights", (256,), "f32"),),
        judge=widened_bytes,
        picture=some_bytes,
    ),
    Trial(
        katas=("w4a16_gemv_f16",),
        todos=(1,),
        about="eight nibbles of a word become halves",
        code=NIBBLES,
        outputs=(Tensor("weights", (16, 8), "f32"),),
        judge=widened_nibbles,
        picture=some_nibbles,
    ),
    Trial(
        katas=("w4a16_gemm_f16",),
        todos=(1,),
        about="a word of packed weights becomes the fragments of two mma tiles",
        code=FRAGMENTS,
        outputs=(Tensor("weights", (8,), "f32"),),
        judge=fragments,
        picture=some_fragments,
    ),
    Trial(
        katas=("w4a16_gemv_mma_f16",),
        todos=(1,),
        about="eight elements of x become pairs in the order of the nibbles",
        code=PAIRS,
        outputs=(Tensor("elements", (8,), "f32"),),
        judge=paired,
        picture=some_pairs,
    ),
    Trial(
        katas=("w4a16_gemm_wgmma_f16",),
        todos=(2,),
        about="a word of packed weights becomes a lane's part of operand a",
        code=OPERAND,
        outputs=(Tensor("weights", (8,), "f32"),),
        judge=operand,
        picture=some_operand,
    ),
)
