"""A finding and the text of a file -> the index variables on its line, with their values in that thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import dedent

import passed_before
import pytest

from grader.content.expressions import UNSIGNED, Number, Unknown, evaluate, parse
from grader.content.functions import Code
from grader.devices import Buffer, Call, Finding, Poison, Scalar
from grader.devices.counters import Launched
from grader.judge.indices import of_finding, of_launch, of_shared
from grader.verdict import Kind

pytestmark = passed_before.REPOSITORY

FILE = dedent(
    """\
    #include "kata.cuh"
    constexpr int ROWS = 4;  // int row = 7;
    template <int STEP>
    __device__ inline float at(const float* X, int row, int cols, int place) {
        const int where = row * cols + place * STEP;
        return X[where];
    }
    __device__ inline float first_of(const float* address) { return *address; }
    __host__ __device__ inline int blocks_for(int n, int each) { return (n + each - 1) / each; }
    template <int WIDTH, bool FLIP>
    __global__ void kernel(const float* a, float* y, int m, int width) {
        const unsigned tid = threadIdx.x;
        const int row = blockIdx.x * ROWS + threadIdx.y;
        int col = static_cast<int>(tid) - 1, first = WIDTH;
        {
            const int row = m + 1000;
            y[row] = 0.0f;
        }
        int moved = 3;
        moved += 2;
        if (row < m) y[row * width + moved] = 1.0f;
        for (int k = tid; k < width; k += WIDTH) y[row * width + k] = a[first + k];
        y[0] = first_of(a + row * width + moved);
        y[row * width + blocks_for(col, 2)] = at<2 * ROWS>(a, row, width, blocks_for(width, 8));
    }
    KATA_EXPORT void f(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
        const dim3 threads(32, ROWS);
        const int grid = blocks_for(rows, ROWS), last = cols;
        kernel<16, true><<<grid, threads, 0, stream>>>(x, y, rows, last);
    }
    """
)
ROW = "row = blockIdx.x * ROWS + threadIdx.y = 9"
CALL = Call(
    "f",
    (Buffer("x", "in", "f32", 4, (8,), b"\0" * 32), Buffer("y", "out", "f32", 4, (8,), Poison(1, 32))),
    (Scalar("rows", "int", 9), Scalar("cols", "int", 40)),
)
LAUNCHED = (Launched("kernel<16, true>", (3, 1, 1), (32, 4, 1), 0),)
FOUND = Finding(
    "out of bounds", "", "kernel<16, true>", "kata.cu", 17, (2, 0, 0), (5, 1, 0), buffer="y", index=None
)  # fmt: skip


def line_with(words: str, file: str = FILE) -> int:
    return next(number for number, line in enumerate(file.splitlines(), 1) if words in line)


def said(words: str, *, callers: Sequence[str] = (), file: str = FILE, **fields: object) -> list[str]:
    """What is said of a finding on the line with these words."""
    lines = [line_with(each, file) for each in (words, *callers)]
    finding = replace(FOUND, line=lines[0], callers=tuple(lines[1:]), **fields)
    return [clue.text for clue in of_finding(file, finding, LAUNCHED, CALL)]


def test_a_row_of_the_block_and_the_thread() -> None:
    """``width`` and ``m`` are other names for the launcher's ``cols`` and ``rows``, which the shape has."""
    m, width, row = of_finding(FILE, replace(FOUND, line=line_with("row < m")), LAUNCHED, CALL)
    assert (row.about, row.text, row.line) == ("index", ROW, line_with("const int row = block"))
    assert (m.text, width.text) == ("m = 9, passed on line 29", "width = 40, passed on line 29")


def test_an_inner_variable_hides_an_outer_one_in_its_block_alone() -> None:
    assert said("y[row] =")[-1] == "row = m + 1000 = 1009"
    assert said("row < m")[-1] == ROW


def test_what_is_assigned_again_has_no_value() -> None:
    assert said("row < m")[2:] == [ROW]
    another = FILE.replace("int moved = 3;", "const int moved = row - 2;").replace("moved += 2;", "")
    assert said("row < m", file=another)[2:] == [ROW, "moved = row - 2 = 7"]
    assert said("row < m", file=another.replace("const int moved", "int moved"))[2:] == [ROW, "moved = row - 2 = 7"]


def test_the_place_in_the_buffer_gives_a_loops_variable_away() -> None:
    words = said("int k = tid", index=9 * 40 + 21)
    assert "k = 21 in the loop of line 22" in words and ROW in words
    for index in (9 * 40 + 22, 9 * 40 + 4, 9 * 40 + 53):  # between two steps, before the first, past the last
        assert not any(word.startswith("k = ") for word in said("int k = tid", index=index))
    assert "k = 5 in the loop of line 22" in said("int k = tid", buffer="x", index=21)


def test_a_helper_has_the_values_of_its_call() -> None:
    words = said("return X[where]", callers=["at<2"], buffer="x", index=9 * 40 + 40)
    assert words == [
        "row = 9, passed on line 24",
        "place = 5, passed on line 24",
        "where = row * cols + place * STEP = 400",
    ]


def test_a_wrapper_leaves_it_to_the_line_that_calls_it() -> None:
    words = said("return *address", callers=["first_of(a"], buffer="a")
    assert words == ["width = 40, passed on line 29", ROW]


def test_nothing_is_said_where_the_values_lead_elsewhere() -> None:
    assert said("return X[where]", callers=["at<2"], buffer="x", index=399) == []
    assert said("return X[where]", callers=["at<2"], buffer="y", index=399) != []  # X is x


@pytest.mark.parametrize(
    "fields", [{"block": None}, {"kind": "deadlock"}, {"file": "kata.cuh"}, {"kernel": "another"}, {"line": 2}]
)
def test_nothing_is_said_of_other_findings(fields: dict[str, object]) -> None:
    assert said("row < m") and of_finding(FILE, replace(FOUND, **fields), LAUNCHED, CALL) == []


def test_launches_with_other_arguments_leave_parameters_without_a_value() -> None:
    twice = FILE.replace(
        "(x, y, rows, last);", "(x, y, rows, last);\n    kernel<16, true><<<1, threads>>>(x, y, 1, 1);"
    )
    assert said("row < m", file=twice) == [ROW]


NUMBERS = {"t": Number(3, UNSIGNED), "n": Number(-7)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n / 2 * 2 + n % 2", -7),
        ("t - 4", 2**32 - 1),
        ("(int)(t - 4)", -1),
        ("static_cast<int64_t>(t) * 100000 * 100000", 30_000_000_000),
        ("-n < t ? 1 : 2", 2),
        ("n < t", 0),  # -7 becomes unsigned
        ("0 && missing", 0),
        ("1 + 2 << 3 & 24", 24),
        ("min(n, 0x10)", -7),
        ("010 + 1'000u", 1008),
        ("1 << 31", None),
        ("65536 * 65536", None),
        ("1 / 0", None),
        ("1.5f", None),
        ("missing + 1", None),
        ("x->y", None),
        ("t, 1", None),
    ],
)
def test_expressions_have_the_value_that_cpp_gives_them(text: str, value: int | None) -> None:
    def names(name: str) -> Number:
        if name not in NUMBERS:
            raise Unknown
        return NUMBERS[name]

    def calls(name: str, given: Sequence[Number]) -> Number:
        raise Unknown

    try:
        found: int | None = evaluate(parse(text), names, calls).value
    except Unknown:
        found = None
    assert found == value


def test_functions_are_found_with_their_parameters() -> None:
    found = {each.name: each for each in Code(FILE).functions}
    assert list(found) == ["at", "first_of", "blocks_for", "kernel", "f"] and found["kernel"].is_kernel
    assert found["kernel"].templates == ("WIDTH", "FLIP")
    assert [each.name for each in found["at"].parameters] == ["X", "row", "cols", "place"]


@pytest.mark.parametrize(
    ("grid", "words", "line"),
    [
        ("grid", "grid = rows / 64 = 0", "grid = "),
        ("rows / 16", "the grid is rows / 16 = 0", "<<<"),
        ("dim3(last, 1)", None, ""),  # of 40 blocks
        ("threads", "grid = rows / 64 = 0", "grid = "),
    ],
)
def test_of_a_launch_without_blocks_the_quotient_is_shown(grid: str, words: str | None, line: str) -> None:
    text = FILE.replace("blocks_for(rows, ROWS), last", "rows / 64, last").replace(
        "threads(32, ROWS)", "threads(grid, 1)"
    )
    text = text.replace("<<<grid,", f"<<<{grid},")
    finding = Finding(Kind.LAUNCH_FAILED, "", kernel="kernel<16, true>")
    launched = (replace(LAUNCHED[0], grid=(0, 1, 1)),)
    found = of_launch(text, finding, launched, CALL)
    place = text[: text.index(line, text.index("KATA_EXPORT"))].count("\n") + 1
    assert [(each.text, each.line) for each in found] == ([(f"{words}, on line {place}", place)] if words else [])
    assert not of_launch(text, finding, LAUNCHED, CALL)


SHARED = dedent(
    """\
    KATA_EXPORT void f(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
        int held = cols;
        const int room = most_bytes() / 16 * 4;
        held = std::min(cols, room);
        const int smem_bytes = held * static_cast<int>(sizeof(float));
        kernel<4><<<rows, 32, smem_bytes, stream>>>(x, y);
    }
    """
)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", ["smem_bytes = held * static_cast<int>(sizeof(float)) = 160, 5", "held = std::min(cols, room), 4"]),
        ("    held =", "    if (rows > 9) held =", ["smem_bytes = held * static_cast<int>(sizeof(float)) = 160, 5"]),
        ("smem_bytes, stream", "160, stream", []),
        ("(x, y);\n", "(x, y);\n    other<<<1, 32, cols, stream>>>(x);\n", []),
    ],
)
def test_of_a_launch_with_too_much_shared_memory_its_sum_is_shown(old: str, new: str, words: list[str]) -> None:
    finding = Finding("launch failed", "launched with 160 bytes of shared memory a block", kernel="kernel<4>")
    launched = [Launched("kernel<4>", (1, 1, 1), (32, 1, 1), 160)]
    said = [
        f"{each.text.partition(', on line')[0]}, {each.line}"
        for each in of_shared(SHARED.replace(old, new), finding, launched)
    ]
    assert said[:2] == words
