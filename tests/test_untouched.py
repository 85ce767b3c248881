"""What kept threads from an element that none touches: of the file's text, and the launch."""

from __future__ import annotations

import passed_before
import pytest
from facts import has
from sim_kernels.harness import LIMITS, given

from grader.devices import Call, Scalar
from grader.devices.counters import Launched, Writer
from grader.judge.untouched import Untouched, why_untouched

pytestmark = passed_before.REPOSITORY

KERNEL = """
constexpr int THREADS = 32;
__device__ void load(float* to, const float* from, int cols, int off) {
    for (int i = threadIdx.x; i < 8; i += THREADS)
        to[i] = off + i < cols ? from[off + i] : 0.0f;
}
__global__ void copy_kernel(const float* x, const int* idx, float* y, int n) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    BODY
}
void copy(const float* x, const int* idx, float* y, int n, cudaStream_t stream) {
    const int blocks = GRID;
    copy_kernel<<<blocks, THREADS, 0, stream>>>(x, idx, y, n);
}
"""


def why(
    body: str, n: int, buffer: str, flat: int, *, grid: str = "(n - 1) / THREADS + 1", alone: bool = False
) -> Untouched | None:
    text = KERNEL.replace("BODY", body).replace("GRID", grid)
    buffers = tuple(given(each, "f32", [0.0] * n) for each in ("x", "idx", "y"))
    call = Call("copy", buffers, (Scalar("n", "int", n),), limits=LIMITS)
    by = Writer("copy_kernel", "mine.cu", 9, (0, 0, 0), (0, 0, 0))
    launched = [Launched("copy_kernel", (1, 1, 1), (32, 1, 1), 0)]
    return why_untouched(text, call, launched, buffer, flat, "read", by, alone=alone)


GUARD = "const int last = n / 4 * 4;\n    if (i < last) y[i] = x[i];"
EXIT = "if (i + 1 >= n) return;\n    y[i] = x[i];"
LOOP = "const int steps = n / 32;\n    for (int s = 0; s < steps; ++s) y[s * 32 + i] = x[s * 32 + threadIdx.x];"
HELPER = "float to[8];\n    for (int k = 0; k < n / 8; ++k) load(to, x, n, k * 8);"
ROWS = "for (int c = threadIdx.x; c < n; c += 32) y[blockIdx.x * n * 2 + c] = x[blockIdx.x * n * 2 + c];"
TERNARY = "int row = 0;\n    row = i * 2;\n    y[i] = row + 2 < n ? x[row] : 0.0f;"
LISTED = "if (i * 4 < n && i > 0) y[i] = x[idx[i]];"


@pytest.mark.parametrize(
    ("body", "n", "flat", "line", "facts"),
    [
        (GUARD, 6, 5, 10, ("thread (5,0,0) would", "`i < last` is 5 < 4", "last = n / 4 * 4 = 4, on line 9")),
        (EXIT, 6, 5, 9, ("the exit on line 9 comes first", "`i + 1 >= n` is 6 >= 6")),
        (LOOP, 40, 33, 10, ("with s = 1", "the loop on line 10 ends before", "`s < steps` is 1 < 1")),
        (HELPER, 4, 3, 10, ("on line 5", "the loop on line 10 ends before", "`k < n / 8` is 0 < 0")),
        (TERNARY, 4, 2, 11, ("thread (1,0,0) would", "the condition on line 11 is false", "`row + 2 < n` is 4 < 4")),
        (LISTED, 4, 2, 9, ("thread (0,0,0) would", "`i > 0` is 0 > 0")),
    ],
)
def test_the_condition_that_keeps_threads_from_an_element(
    body: str, n: int, flat: int, line: int, facts: tuple[str, ...]
) -> None:
    said = why(body, n, "x", flat)
    assert said is not None and said.line == line
    assert has(said.words, *facts)


def test_a_grid_that_has_too_few_blocks() -> None:
    said = why("if (i < n) y[i] = x[i];", 40, "x", 33, grid="n / THREADS")
    assert said is not None and said.line == 12
    assert has(said.words, "block (1,0,0) thread (1,0,0)", "`blocks` = n / THREADS = 1, on line 12")


@pytest.mark.parametrize(
    ("body", "n", "flat"),
    [
        ("if (i < n) y[i] = x[i];", 6, 5),  # a thread comes there: the text is not what runs
        ("if (i < n - 1 && i < 4) y[i] = x[i];\n    if (i > 5) y[i] = x[i];", 6, 5),  # two conditions
        ("if (i < n - 1) y[i] = x[i];\n    if (i > 5 && i < 5) y[0] += x[i];", 6, 5),
        (ROWS, 3, 4),  # in the row after that of block 0, whose loop ends at the row's end
        ("for (int k = i; k < 4; k *= 2) y[k] = x[k];", 6, 5),  # a loop that does not step
    ],
)
def test_where_the_text_does_not_tell_nothing_is_said(body: str, n: int, flat: int) -> None:
    assert why(body, n, "x", flat) is None


def test_what_keeps_the_thread_from_it_that_must_read_it() -> None:
    body = "for (int k = 0; k < n / 2; ++k) y[i] += x[k + i];"  # thread 1 reads x[2]
    said = why(body, 4, "x", 2, alone=True)
    assert said is not None and has(said.words, "thread (0,0,0) would", "with k = 2", "`k < n / 2` is 2 < 2")
    assert why(body, 4, "x", 2) is None


VECTORS = """for (int v = i; v < n / 4; v += STEP * gridDim.x)
        reinterpret_cast<float4*>(y)[v] = reinterpret_cast<const float4*>(x)[v];
    if (i < n % 4) y[n - 1 - i] = x[n - 1 - i];"""
PAIRS = """for (int v = i; v < n / 4; v += 2 * THREADS * gridDim.x)
        for (int k = 0; k < 2; ++k) {
            const int at = v * 2 + k;
            if (at < n / 4) reinterpret_cast<float4*>(y)[at] = reinterpret_cast<const float4*>(x)[at];
        }
    if (i < n % 4) y[n - 1 - i] = x[n - 1 - i];"""


@pytest.mark.parametrize(
    ("body", "n", "flat", "line", "facts"),
    [
        (VECTORS.replace("STEP", "2 * THREADS"), 133, 128, 9, ("line 10 would read it with v = 32", "`v < n / 4`")),
        (PAIRS, 269, 260, 11, ("with at = 65", "no thread has that: at = v * 2 + k, on line 11; v begins with i and")),
    ],
)
def test_a_place_that_no_thread_has_though_its_conditions_let_it_pass(
    body: str, n: int, flat: int, line: int, facts: tuple[str, ...]
) -> None:
    said = why(body, n, "x", flat)
    assert said is not None and said.line == line
    assert has(said.words, *facts)


def test_where_threads_go_on_over_the_grid_it_is_not_too_small() -> None:
    body = "for (int k = i; k < n / 2; k += THREADS * gridDim.x) y[k] = x[k];"
    said = why(body, 68, "x", 40)
    assert said is not None and "the loop on line 9 ends before" in said.words
    assert why(VECTORS.replace("float4", "Half8").replace("STEP", "THREADS"), 133, "x", 132) is None  # of any width
    assert (
        why(
            "const float4* x4 = reinterpret_cast<const float4*>(x);\n    if (i < n % 4) y[i] = x[n - 1 - i];",
            133,
            "x",
            124,
        )
        is None
    )


SLICES = """int end = n;
    end = (blockIdx.x + 1) * (n / 8 / 2 * 8);
    for (int k = blockIdx.x * (n / 8 / 2 * 8) + threadIdx.x * 2; k < end; k += 2 * sizeof(float))
        for (int j = 0; j < 2; ++j)
            if (k + j < end) y[i] += x[k + j];"""


def test_a_bound_that_all_conditions_compare_with() -> None:
    said = why(SLICES, 23, "x", 16)
    assert said is not None and said.line == 10
    assert has(said.words, "is 16 < 8 (end = (blockIdx.x + 1) * (n / 8 / 2 * 8) = 8, on line 10")
    assert why(SLICES.replace("k + j < end", "k + j < n - 8"), 23, "x", 16) is None  # two bounds
