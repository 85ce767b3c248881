"""Trials of single TODOs: the elements of a fragment, where a lane stores its sums, a swizzle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

LANES = 32

FRAGMENT = """
__global__ void trial_kernel(int* elements) {
    alignas(16) __shared__ half smem[16][16];
    for (int i = threadIdx.x; i < 256; i += 32) smem[i / 16][i % 16] = __int2half_rn(i);
    __syncthreads();
    const int lane = threadIdx.x;
    uint32_t regs[4] = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
    ldmatrix_x4(regs, &smem[lane % 16][lane / 16 * 8]);
    for (int i = 0; i < 4; ++i) {
        const half2 pair = reinterpret_cast<const half2&>(regs[i]);
        elements[lane * 8 + 2 * i] = __half2int_rn(pair.x);
        elements[lane * 8 + 2 * i + 1] = __half2int_rn(pair.y);
    }
}

KATA_EXPORT void trial(int* elements, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(elements);
}
"""


def of_lane(lane: int) -> list[tuple[int, int]]:
    """(row, column) of the eight elements of A that a lane holds: PTX ISA, fragment A of mma.m16n8k16."""
    row, col = lane // 4, lane % 4 * 2
    return [(row + down, col + right + k) for right in (0, 8) for down in (0, 8) for k in (0, 1)]


def fragment(arrays: Mapping[str, ndarray]) -> str:
    for lane, held in enumerate(arrays["elements"].tolist()):
        for place, (got, (row, col)) in enumerate(zip(held, of_lane(lane), strict=True)):
            if got != row * 16 + col:
                where = f"A[{got // 16}, {got % 16}]" if 0 <= got < 256 else f"the number {got}"
                return (
                    f"lane {lane}: half {place % 2} of regs[{place // 2}] must be A[{row}, {col}]. It is {where}: the "
                    "four matrices go to regs[0] to regs[3] in order."
                )
    return ""


def fragments(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = []
    for lane in (0, 1, 4, 31):
        held = [f"A[{value // 16:>2},{value % 16:>2}]" for value in arrays["elements"][lane].tolist()]
        rows.append(f"lane {lane:>2}  " + "   ".join(" ".join(held[at : at + 2]) for at in range(0, 8, 2)))
    return ["         regs[0]         regs[1]         regs[2]         regs[3]", *rows]


STORE = """
__global__ void trial_kernel(half* C) {
    const int lane = threadIdx.x;
    float c[4];
    for (int i = 0; i < 4; ++i) c[i] = 1.0f + lane * 4 + i;
    store_tile(C, c, 0, 0, 15, 16);
}

KATA_EXPORT void trial(half* C, int n, cudaStream_t stream) {
    cudaMemsetAsync(C, 0, 256 * sizeof(half), stream);
    trial_kernel<<<1, 32, 0, stream>>>(C);
}
"""


def stored(arrays: Mapping[str, ndarray]) -> str:
    """A matrix of 15 rows and 16 columns in memory of 16 rows: the last row of the tile is outside."""
    for row in range(16):
        for col in range(16):
            lane, i = row % 8 * 4 + col % 8 // 2, row // 8 * 2 + col % 2
            right = 1.0 + lane * 4 + i if row < 15 and col < 8 else 0.0
            got = arrays["C"][row, col]
            if got != right:
                if right == 0.0:
                    return f"C[{row}, {col}] is outside the tile or the matrix (15 rows), and was written."
                return f"C[{row}, {col}] must be c[{i}] of lane {lane}, {right:g}. It is {got:g}."
    return ""


def owner(value: float) -> str:
    """The lane and the sum that a value names; the value itself if it is none of theirs, such as NaN."""
    if value == 0:
        return "  --  "
    return f"{int(value - 1) // 4:>2}c[{int(value - 1) % 4}]" if 1 <= value <= 4 * LANES else f"{value:^6.4g}"[:6]


def owners(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = []
    for row, values in enumerate(arrays["C"][:, :8].tolist()):
        rows.append(f"row {row:>2}  " + " ".join(map(owner, values)))
    return ["lane and sum that each element of the tile came from:", *rows]


SWIZZLE = """
__global__ void trial_kernel(int* narrow, int* wide) {
    const int row = threadIdx.x / 8;
    const int chunk = threadIdx.x % 8;
    if (chunk < 4) narrow[row * 4 + chunk] = swizzle<32>(row, chunk * 8);
    wide[threadIdx.x] = swizzle<128>(row, chunk * 8);
}

KATA_EXPORT void trial(int* narrow, int* wide, int n, cudaStream_t stream) {
    trial_kernel<<<1, 128, 0, stream>>>(narrow, wide);
}
"""


def swizzle(arrays: Mapping[str, ndarray]) -> str:
    for name, cols in (("narrow", 32), ("wide", 128)):
        places = arrays[name]
        for row in range(places.shape[0]):
            if sorted(places[row].tolist()) != list(range(0, places.shape[1] * 8, 8)):
                return f"rows of {cols} halves: row {row} must hold each chunk once. It has {places[row].tolist()}."
        for first in range(0, 16, 8):
            for chunk in range(places.shape[1]):
                groups = [(row * cols + int(places[row, chunk])) // 8 % 8 for row in range(first, first + 8)]
                if len(set(groups)) < 8:
                    return (
                        f"rows of {cols} halves: rows {first} to {first + 7} at column {chunk * 8} are in bank groups "
                        f"{groups}. One ldmatrix reads these eight chunks, so all eight must differ."
                    )
    return ""


def banks(arrays: Mapping[str, ndarray]) -> list[str]:
    rows = []
    for row in range(8):
        groups = [(row * 32 + int(place)) // 8 % 8 for place in arrays["narrow"][row]]
        rows.append(f"row {row}  " + " ".join(map(str, groups)))
    return ["bank group (of 8, 16 bytes each) of the chunks of rows of 32 halves:", *rows]


TRIES = (
    Trial(
        katas=("hgemm_mma_m16n8k16_naive",),
        todos=(1,),
        about="the elements of A that ldmatrix gives to each lane",
        code=FRAGMENT,
        outputs=(Tensor("elements", (LANES, 8), "i32"),),
        judge=fragment,
        picture=fragments,
    ),
    Trial(
        katas=("hgemm_mma_m16n8k16_naive",),
        todos=(3,),
        about="where each lane stores its four sums",
        code=STORE,
        outputs=(Tensor("C", (16, 16), "f16"),),
        judge=stored,
        picture=owners,
    ),
    Trial(
        katas=("hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_swizzle",),
        todos=(1,),
        about="the swizzle: eight rows at one column are in different banks, for rows of 64 and of 256 bytes",
        code=SWIZZLE,
        outputs=(Tensor("narrow", (16, 4), "i32"), Tensor("wide", (16, 8), "i32")),
        judge=swizzle,
        picture=banks,
    ),
)
