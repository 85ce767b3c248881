"""A line -> the lines that its values come from."""

from __future__ import annotations

from grader.judge.origins import lines_of_values

TEXT = """
__device__ void other(int idx) { int row = idx; }
__global__ void kernel(const float* x, float* y, int n) {
    const int idx = blockIdx.x * blockDim.x;
    int row = idx / 2;
    int unused = idx;
    for (int col = 0; col < n;
         col += 4) {
        if (col < n) row += 1;
        if (unused) {
            unused = 3;
        }
        y[row] = x[col];
    }
}
"""


def line(words: str) -> int:
    return TEXT[: TEXT.index(words)].count("\n") + 1


def test_values_come_from_assignments_and_from_the_loops_around() -> None:
    found = lines_of_values(TEXT, [line("y[row]")])
    wanted = {"const int idx", "int row = idx / 2", "for (int col", "col += 4", "row += 1"}
    assert found >= {line(words) for words in wanted}
    assert found.isdisjoint({line("int unused"), line("unused = 3"), line("__device__")})


def test_a_line_outside_of_functions_has_none() -> None:
    assert not lines_of_values(TEXT, [1])
