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
from grader.judge.guards import of_barrier, of_skipped_wait
from grader.judge.indices import of_finding, of_launch, of_shared
from grader.judge.loops import of_loop
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


ACCESSES = dedent(
    """\
    struct Tile {
        int off_m, end;
    };
    __device__ inline void put(const Tile& tile, float* Y, int N) {
        const int row = tile.off_m + threadIdx.y;
        const int col = threadIdx.x * 2;
        if (row < tile.end && col < N) *reinterpret_cast<float2*>(&Y[int64_t{row} * N + col]) = float2{};
    }
    __global__ void kernel(const float* a, float* y, int m, int width) {
        const int idx = (blockIdx.x * 32 + threadIdx.x) * 2;
        const bool whole = idx + 1 < width;
        if (idx >= m) return;
        if (m - idx >= 2) {
            for (int step = 0; step < 4; ++step) {
                const int i = (step * 32 + threadIdx.x) * 2;
                y[0] = *reinterpret_cast<const float*>(a + i);
            }
        }
        for (int r = 0; r < 8; ++r) {
            const float* from = a + r * width + idx;
            if (whole) y[idx] = *reinterpret_cast<const float*>(from);
        }
        put(Tile{idx, m}, y, width);
    }
    KATA_EXPORT void f(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
        kernel<<<1, dim3(32, 4)>>>(x, y, rows, cols);
    }
    """
)


def told(words: str, *, callers: Sequence[str] = (), thread: tuple[int, int, int] = (1, 0, 0), file: str = ACCESSES,
         **fields: object) -> list[str]:  # fmt: skip
    placed = {"kernel": "kernel", "block": (0, 0, 0), "thread": thread, **fields}
    lines = [line_with(each, file) for each in (words, *callers)]
    finding = replace(FOUND, line=lines[0], callers=tuple(lines[1:]), **placed)
    return [clue.text for clue in of_finding(file, finding, (Launched("kernel", (1, 1, 1), (32, 4, 1), 0),), CALL)]


def test_the_guard_that_let_the_thread_through() -> None:
    """The condition whose block the access is in, or the exit that is not taken; of a variable what it is set to."""
    assert told("(a + i)", buffer="x", index=194) == [
        "step = 3 in the loop of line 14",
        "i = (step * 32 + threadIdx.x) * 2 = 194",
        "the guard on line 13: `m - idx >= 2` is 7 >= 2 (idx = 2)",
    ]
    assert told("(from)", buffer="x", index=82, kind="misaligned") == [
        "idx = (blockIdx.x * 32 + threadIdx.x) * 2 = 2",
        "whole = idx + 1 < width = 1",
        "r = 2 in the loop of line 19",
        "the guard on line 21: `whole`, that is `idx + 1 < width`, is 3 < 40 (idx = 2)",
    ]
    unguarded = ACCESSES.replace("if (whole) ", "")
    assert told("(from)", file=unguarded, buffer="x", index=82)[-1] == (
        "the exit on line 12: `idx >= m` is false, 2 >= 9"
    )
    assert not any("guard" in each or "exit" in each for each in told("(from)", buffer="x", index=82, kind="race"))
    assert told("(a + i)", thread=(3, 0, 0)) == ["the guard on line 13: `m - idx >= 2` is 3 >= 2 (idx = 6)"]
    assert told("(a + i)", thread=(4, 0, 0)) == []  # the values make the guard false


def test_the_condition_of_a_wait_that_was_not_reached() -> None:
    """Of the line in the kernel, where the wait is in a helper; nothing where it is under none or there are several."""
    file = ACCESSES.replace("y[idx] = *rein", "wait_all(), y[idx] = *rein").replace("if (whole) ", "if (r < width) ")
    line = line_with("wait_all()", file)

    def said(words: str) -> list[str]:
        message = f"reads y: since it issued the copy, its thread has not come to cp.async.wait_all {words}"
        return [clue.text for clue in of_skipped_wait(file, Finding("race", message, kernel="kernel", line=1))]

    told_so = [f"the wait there is under the condition `r < width` of line {line}"]
    assert said(f"on line {line}") == said(f"on line 3 (called on line {line})") == told_so
    assert said(f"on line {line_with('put(Tile', file)}") == said(f"on line {line} or on line 3") == []


def test_a_pointer_that_nothing_has_set() -> None:
    """The elements whose condition is false in that thread; nothing of an array that is set elsewhere, too."""
    file = ACCESSES.replace(
        "    put(Tile{",
        "    const float* from[4];\n    for (int r = 0; r < 4; ++r)\n"
        "        if (idx + r < m) from[r] = a;\n    for (int r = 0; r < 4; ++r) y[0] += from[r][0];\n    put(Tile{",
    )
    said = {"file": file, "thread": (3, 0, 0), "message": "reads 4 bytes at address 0x0, a null pointer"}
    line = line_with("from[r] = a;", file)
    assert told("from[r][0]", **said)[-1] == (
        f"from[r] is set on line {line} where `idx + r < m`, which is false for r = 3"
    )
    assert not any("is set" in each for each in told("from[r][0]", **{**said, "thread": (1, 0, 0)}))  # all are
    assert not any("is set" in each for each in told("from[r][0]", **{**said, "message": "reads a[9]"}))
    twice = file.replace("from[r] = a;", "from[r] = a; else from[r] = y;")
    assert not any("is set" in each for each in told("from[r][0]", **{**said, "file": twice}))


def test_a_guard_of_the_column_tells_the_row_from_it() -> None:
    """The row is made of what has no value, and the place in the buffer is row * N + col, with col < N."""
    file = ACCESSES.replace("threadIdx.x * 2", "tile.off_m * 2")
    words = told("int64_t{row}", callers=["put(Tile"], file=file, buffer="y", index=5 * 40 + 6)
    assert words[-3:] == [
        "row = tile.off_m + threadIdx.y = 5",
        "col = tile.off_m * 2 = 6",
        "the guard on line 7: `row < tile.end` is 5 < tile.end and `col < N` is 6 < 40",
    ]
    no_guard = file.replace(" && col < N", "")
    assert not any(
        each.startswith("row =")
        for each in told("int64_t{row}", callers=["put(Tile"], file=no_guard, buffer="y", index=206)
    )


def test_two_lanes_of_one_instruction_are_told_what_is_the_same_for_both() -> None:
    file = ACCESSES.replace("y[0] = *rein", "tile[i / 128 + threadIdx.x % 8][threadIdx.x / 2 % 4] = *rein")
    message = "race: thread (1,0,0) and thread (9,0,0) write it by one instruction, on line 16: no barrier"
    chunk = file.replace("const int i =", "const int chunk = step + threadIdx.x / 2 % 4;\n            const int i =")
    chunk = chunk.replace("threadIdx.x / 2 % 4] =", "chunk] =")
    assert told("][chunk]", file=chunk, kind="race", message=message)[-1] == (
        "the same for both threads: chunk = step + threadIdx.x / 2 % 4"
    )
    other = message.replace("(9,0,0)", "(3,0,0)")
    assert not any("both" in each for each in told("][chunk]", file=chunk, kind="race", message=other))


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


SLICES = dedent(
    """\
    constexpr int VEC = 8;
    constexpr int STEP = 256 * VEC;
    __global__ void kernel(const half* __restrict__ x, half* y, int n, int slices) {
        __shared__ float tile[2][256];
        const int tid = threadIdx.x;
        const int idx = tid * VEC;
        int64_t begin = 0;
        const int64_t per_slice = (static_cast<int64_t>(n) + slices - 1) / slices;
        const int64_t slice = blockIdx.x % slices;
        begin = slice * per_slice;
        for (int64_t k = begin + tid * VEC; k < n; k += STEP) {
            load(reinterpret_cast<const Pack*>(x + k));
        }
        if (idx < n) {
            const half2* from = reinterpret_cast<const half2*>(x) + idx;
            put(from[0]);
        }
        for (int64_t off = 0; off < n; off += VEC) {
            const int stage = off % 2;
            tile[stage][tid] = 0.0f;
        }
        if (tid < n / 2) {
            put(tile);
            __syncthreads();
        }
        if (n > 2) __syncthreads();
    }
    KATA_EXPORT void f(const half* x, half* y, int n, cudaStream_t stream) {
        kernel<<<4, 256, 0, stream>>>(x, y, n, 4);
    }
    """
)
OF_SLICES = Finding("misaligned", "", "kernel", "kata.cu", 1, (1, 0, 0), (2, 0, 0))
HALVES = Call(
    "f",
    (Buffer("x", "in", "f16", 2, (40,), b"\0" * 80), Buffer("y", "out", "f16", 2, (40,), Poison(1, 80))),
    (Scalar("n", "int", 40),),
)


def of_slices(words: str, *, file: str = SLICES, **fields: object) -> list[str]:
    """What the clues on places say of a finding on the line with these words."""
    finding = replace(OF_SLICES, line=line_with(words, file), **fields)
    launched = (Launched("kernel", (4, 1, 1), (256, 1, 1), 0),)
    found = [*of_finding(file, finding, launched, HALVES), *of_barrier(file, finding, launched, HALVES)]
    return [clue.text for clue in found if clue.about == "place"]


def test_a_quotient_that_is_not_rounded_is_named_for_a_misaligned_access() -> None:
    message = "reads 16 bytes at x[26]: the address is 4 bytes past a multiple of 16"
    [words] = of_slices("(x + k)", message=message, buffer="x", index=26)
    assert "`per_slice = (static_cast<int64_t>(n) + slices - 1) / slices` is 10 on line 8" in words
    assert "multiple of 8 elements" in words
    both = SLICES.replace("* VEC; k <", "* VEC + slices; k <").replace("slices = 4", "slices = 5")
    assert of_slices("(x + k)", file=both, message=message, buffer="x", index=26) == []
    even = SLICES.replace("/ slices;", "/ slices / VEC * VEC;")
    assert of_slices("(x + k)", file=even, message=message, buffer="x", index=26) == []


def test_a_pointer_that_counts_wider_elements_is_named_where_the_offset_would_be_inside() -> None:
    fields = {"kind": "out of bounds", "message": "reads x[48..49]", "buffer": "x", "index": 48}
    [words] = of_slices("from[0]", thread=(3, 0, 0), **fields)
    assert words == "from on line 15 counts in half2, each of which is 2 elements of x: `idx` = 24 there is element 48"
    assert of_slices("from[0]", thread=(6, 0, 0), **(fields | {"index": 96})) == []  # 48 halves are outside, too


def test_buffers_that_do_not_alternate_are_named() -> None:
    race = {"kind": "race", "message": "race on tile[0][2]"}
    [words] = of_slices("tile[stage]", **race)
    assert "`stage = off % 2` is 0 in every round of the loop on line 18, where off is 0, 8, 16, ..." in words
    assert of_slices("tile[stage]", file=SLICES.replace("off % 2", "off / VEC % 2"), **race) == []
    assert of_slices("tile[stage]", file=SLICES.replace("off += VEC", "off += 3"), **race) == []
    assert of_slices("tile[stage]", file=SLICES.replace("off += VEC", "off += 2 * step"), **race) == []


def test_the_condition_of_the_thread_that_a_barrier_is_under_is_named() -> None:
    message = "128 threads of the block wait at the barrier on line 24, 128 threads exited without reaching it"
    [words] = of_slices("    __syncthreads", kind="deadlock", message=message)
    assert "under the condition `tid < n / 2` of line 22" in words
    same = SLICES.replace("tid < n / 2", "blockIdx.x < n / 2")
    assert of_slices("    __syncthreads", file=same, kind="deadlock", message=message) == []
    assert of_slices("    __syncthreads", kind="deadlock", message="waits at the mbarrier") == []


def test_the_condition_that_holds_for_the_first_element_of_an_access_alone_is_named() -> None:
    file = SLICES.replace(
        "put(from[0]);", "for (int i = idx; i < n; i += 2) put(*reinterpret_cast<const half2*>(x + i));"
    )
    fields = {
        "kind": "out of bounds",
        "message": "reads x[39..40] (4 bytes), one element past",
        "buffer": "x",
        "index": 39,
    }
    [words] = of_slices("i += 2", file=file, **fields)
    assert (
        words == "`i < n` on line 16 holds for x[39], the first of the 2 elements: it must hold for the last one, x[40]"
    )
    assert of_slices("i += 2", file=file, **(fields | {"message": "reads x[40..41]", "index": 40})) == []


LOOPS = dedent(
    """\
    __global__ void kernel(int* flags, float* y, int n) {
        for (int i = threadIdx.x; i < n; i += 32) {
            for (int offset = 16; offset > 0;) {
                y[i] += offset;
            }
            while (true) {
                const int flag = flags[i];
                if (flag != 0) break;
                __nanosleep(20);
            }
            for (int j = 0; j < n; ++j) y[j] = 0.0f;
            while (*flags == 0) {
                y[0] += 1.0f;
            }
        }
    }
    """
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("+= offset", ["nothing in the loop on line 3 changes what `offset > 0` is made of: it never ends"]),
        ("nanosleep", ["the loop on line 6 is left only where `flag != 0` (line 8) is true"]),
        ("y[j] = 0", []),
        ("+= 1.0f", []),  # another thread may change it
    ],
)
def test_the_loop_of_a_kernel_that_does_not_end_is_named(words: str, said: list[str]) -> None:
    finding = Finding("time-out", "still running", "kernel", "kata.cu", line_with(words, LOOPS), (0, 0, 0), (0, 0, 0))
    assert [clue.text for clue in of_loop(LOOPS, finding)] == said
    assert of_loop(LOOPS, replace(finding, kind="race")) == []
