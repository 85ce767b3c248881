"""A trial of one TODO: the outer products of a chunk's keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import InputKind, Rng, Sizes, Tensor
from grader.content.trial import Trial, cells

if TYPE_CHECKING:
    from numpy import ndarray

TOKENS, COLS, TILE = 32, 64, 4  # of a chunk; of K and V; rows and columns of S in a cell of the picture

CODE = """
__global__ void __launch_bounds__(THREADS) trial_kernel(const float* K, const float* V, float* S) {
    alignas(16) __shared__ float K_smem[CHUNK][D + PAD];
    alignas(16) __shared__ float V_smem[CHUNK][D];
    for (int i = threadIdx.x; i < CHUNK * D; i += THREADS) {
        K_smem[i / D][i % D] = K[i];
        V_smem[i / D][i % D] = V[i];
    }
    __syncthreads();
    float S_rmem[ROWS_S][VEC];
    for (int i = 0; i < ROWS_S; ++i)
        for (int j = 0; j < VEC; ++j) S_rmem[i][j] = 1.0f;
    add_kv(S_rmem, K_smem, V_smem);
    for (int i = 0; i < ROWS_S; ++i)
        for (int j = 0; j < VEC; ++j) S[(thread_row() * ROWS_S + i) * D + thread_col() * VEC + j] = S_rmem[i][j];
}

KATA_EXPORT void trial(const float* K, const float* V, float* S, int n, cudaStream_t stream) {
    trial_kernel<<<1, THREADS, 0, stream>>>(K, V, S);
}
"""


def whole(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.integers(shape, 1, 9)


def wanted(arrays: Mapping[str, ndarray]) -> ndarray:
    """S was 1 everywhere before."""
    found: ndarray = 1.0 + arrays["K"].T @ arrays["V"]
    return found


def added(arrays: Mapping[str, ndarray]) -> str:
    import numpy

    wrong = numpy.argwhere(arrays["S"] != wanted(arrays))
    if not len(wrong):
        return ""
    row, col = wrong[0].tolist()
    lost = wanted(arrays)[row, col] - arrays["S"][row, col]
    terms = (arrays["K"][:, row] * arrays["V"][:, col]).tolist()
    hint = f" Token {terms.index(lost)} alone would explain that." if terms.count(lost) == 1 else ""
    return (
        f"S[{row}, {col}] was 1, and the sum over the tokens of K[token, {row}] V[token, {col}] must be added: "
        f"{wanted(arrays)[row, col]:g}. It is {arrays['S'][row, col]:g}.{hint}"
    )


def picture(arrays: Mapping[str, ndarray]) -> list[str]:
    right = (arrays["S"] == wanted(arrays)).reshape(COLS // TILE, TILE, COLS // TILE, TILE).all(axis=(1, 3))
    return ["cells of 4 x 4 elements of S that are right (#):", *cells(right, "rows 4 x")]


TRIES = (
    Trial(
        katas=("linear_attention_causal_f32",),
        todos=(1,),
        about="S += K^T V for the 32 tokens of a chunk",
        code=CODE,
        inputs=(Tensor("K", (TOKENS, COLS), "f32"), Tensor("V", (TOKENS, COLS), "f32")),
        outputs=(Tensor("S", (COLS, COLS), "f32"),),
        values=InputKind("whole numbers", whole),
        judge=added,
        picture=picture,
    ),
)
