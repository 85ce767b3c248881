"""Trials of single TODOs: swizzles, the online softmax, the causal mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import InputKind, Rng, Sizes, Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

ROWS, COLS, CHUNK = 16, 64, 8  # of a tile; halves in one access of 16 bytes

SWIZZLE = """
__global__ void trial_kernel(int* places) {
    const int row = threadIdx.x / 8;
    const int chunk = threadIdx.x % 8;
    places[threadIdx.x] = swizzle<64>(row, chunk * 8);
}

KATA_EXPORT void trial(int* places, int n, cudaStream_t stream) {
    trial_kernel<<<1, 128, 0, stream>>>(places);
}
"""


def swizzle(arrays: Mapping[str, ndarray]) -> str:
    """Every row keeps its chunks, and eight rows at one column touch eight different groups of four banks."""
    places = arrays["places"]
    wanted = list(range(0, COLS, CHUNK))
    for row in range(ROWS):
        if sorted(places[row].tolist()) != wanted:
            return f"row {row} must hold each of its chunks once: columns 0, 8, ..., 56. It has {places[row].tolist()}."
    for chunk in range(COLS // CHUNK):
        for first in range(0, ROWS, 8):
            groups = places[first : first + 8, chunk] // CHUNK  # of banks: a row of 64 halves is 128 bytes, all 32
            if len(set(groups.tolist())) < 8:
                return (
                    f"rows {first} to {first + 7} at column {chunk * CHUNK} are in bank groups {groups.tolist()}. "
                    "One ldmatrix reads these eight chunks, so all eight must differ."
                )
    return ""


def banks(arrays: Mapping[str, ndarray]) -> list[str]:
    yield_rows = [
        f"row {row:>2}  " + " ".join(str(place // CHUNK) for place in arrays["places"][row]) for row in range(8)
    ]
    return ["bank group (of 8, 16 bytes each) of the chunks 0 to 7 of each row:", *yield_rows]


ONLINE = """
__global__ void trial_kernel(const float* S, float* P, float* state) {
    const int lane = threadIdx.x % LANES;
    float row_max = -INFINITY, row_sum = 0.0f;
    for (int tile = 0; tile < 3; ++tile) {
        float S_rmem[KEYS];
        for (int key = 0; key < KEYS; ++key) S_rmem[key] = S[tile * BLOCK_KV + key * LANES + lane];
        float factor = -1.0f;
        online_softmax(S_rmem, row_max, row_sum, factor, 1.0f);
        for (int key = 0; key < KEYS; ++key)
            if (threadIdx.x < LANES) P[tile * BLOCK_KV + key * LANES + lane] = S_rmem[key];
        const float sum = group_sum(row_sum);
        if (threadIdx.x == 0) {
            state[tile * 3] = row_max;
            state[tile * 3 + 1] = factor;
            state[tile * 3 + 2] = sum;
        }
    }
}

KATA_EXPORT void trial(const float* S, float* P, float* state, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(S, P, state);
}
"""


def logits(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Three tiles of 32 keys: the maximum rises in the second, and not in the third."""
    import numpy

    return rng.normal(shape) + numpy.array([[0.0], [4.0], [-4.0]])


def online(arrays: Mapping[str, ndarray]) -> str:
    import numpy

    S, P, state = arrays["S"], arrays["P"], arrays["state"]
    old, total = -numpy.inf, 0.0
    for tile in range(3):
        top = max(old, S[tile].max())
        factor = 2.0 ** (old - top)
        weights = 2.0 ** (S[tile] - top)
        total = total * factor + weights.sum()
        wanted = {"row_max": top, "the factor that rescales": factor, "the sum over the lanes of row_sum": total}
        for place, (name, value) in enumerate(wanted.items()):
            if not abs(state[tile, place] - value) <= 1e-4 * max(1.0, abs(value)):
                return f"after tile {tile}, {name} must be {value:.6g}. It is {state[tile, place]:.6g}."
        if not numpy.allclose(P[tile], weights, rtol=1e-4, atol=1e-6):
            key = int(numpy.argmax(~numpy.isclose(P[tile], weights, rtol=1e-4, atol=1e-6)))
            return f"in tile {tile}, the weight of key {key} must be {weights[key]:.6g}. It is {P[tile, key]:.6g}."
        old = top
    return ""


def rescaled(arrays: Mapping[str, ndarray]) -> list[str]:
    head = "tile  largest S   row_max    factor    sum"
    rows = [
        f"{tile:>4}  {arrays['S'][tile].max():>9.4f} {state[0]:>9.4f} {state[1]:>9.4f} {state[2]:>8.3f}"
        for tile, state in enumerate(arrays["state"])
    ]
    return [head, *rows]


MASK = """
__global__ void trial_kernel(float* S) {
    const int lane_id = threadIdx.x;
    Sums S_rmem[TILES_KV];
    for (int n = 0; n < TILES_KV; ++n)
        for (int i = 0; i < 2; ++i) set_row(S_rmem[n], i, {1.0f, 1.0f});
    mask_keys(S_rmem, 3 + lane_id / 4);
    for (int n = 0; n < TILES_KV; ++n) {
        for (int i = 0; i < 2; ++i) {
            const float2 s = get_row(S_rmem[n], i);
            float* const to = S + (lane_id / 4 + i * 8) * BLOCK_KV + n * MMA_N + lane_id % 4 * 2;
            to[0] = s.x;
            to[1] = s.y;
        }
    }
}

KATA_EXPORT void trial(float* S, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(S);
}
"""


def masked(arrays: Mapping[str, ndarray]) -> str:
    S = arrays["S"]
    for row in range(S.shape[0]):
        for key in range(S.shape[1]):
            seen = key <= 3 + row
            if (S[row, key] == 1.0) != seen:
                verb = "sees" if seen else "must not see"
                return f"query {3 + row} (row {row} of the fragment) {verb} key {key}; S is {S[row, key]:g} there."
    return ""


def triangle(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = ["".join("#" if value == 1.0 else "." for value in row[:32]) for row in arrays["S"]]
    return ["keys 0 to 31 that each query sees (#):", *(f"query {3 + at:>2}  {row}" for at, row in enumerate(rows))]


TRIES = (
    Trial(
        katas=(
            "flash_attn_mma_stages_split_q_*_swizzle_q",
            "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv",
        ),
        todos=(1,),
        about="the swizzle: eight rows at one column are in different banks",
        code=SWIZZLE,
        outputs=(Tensor("places", (ROWS, COLS // CHUNK), "i32"),),
        judge=swizzle,
        picture=banks,
    ),
    Trial(
        katas=("flash_attn_online_f16",),
        todos=(1, 2),
        about="the online softmax of three tiles of one row",
        code=ONLINE,
        inputs=(Tensor("S", (3, 32), "f32"),),
        outputs=(Tensor("P", (3, 32), "f32"), Tensor("state", (3, 3), "f32")),
        values=InputKind("rising", logits),
        judge=online,
        picture=rescaled,
    ),
    Trial(
        katas=("flash_attn_mma_causal_f16",),
        todos=(1,),
        about="the keys that the queries of a fragment see",
        code=MASK,
        outputs=(Tensor("S", (16, 64), "f32"),),
        judge=masked,
        picture=triangle,
    ),
)
