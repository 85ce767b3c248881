"""A line -> the lines that its values come from."""

from __future__ import annotations

from grader.judge.origins import blocks_of, lines_of_values, loops_of

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


def test_a_block_that_only_wrong_cases_come_to_has_lines_that_nvcc_gives_none() -> None:
    inner = line("unused = 3")
    assert blocks_of(TEXT, {inner}, {line("y[row]")}) == {inner - 1, inner, inner + 1}
    assert not blocks_of(TEXT, {inner}, {inner + 1})


def test_the_lines_of_a_loop() -> None:
    first = line("for (int col")
    assert loops_of(TEXT, {first + 1}) == {*range(first + 1, line("y[row]") + 2)}
    assert not loops_of(TEXT, {first + 4})
