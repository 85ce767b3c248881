"""A learner's file beside the solution: what stands for what, where they differ, and what of that makes all right."""

from __future__ import annotations

from pathlib import Path

import passed_before
import pytest

from grader.compile.differences import Comparison
from grader.compile.edit_writer import Refused
from grader.compile.expression_edits import changed_words
from grader.compile.solution_edits import comparisons, towards
from grader.compile.variants import Variant, variants
from grader.content.catalog import load_catalog
from grader.grade import Options, grade
from grader.judge import built_variants, repairs
from grader.verdict import Kind, Verdict

pytestmark = [passed_before.REPOSITORY, pytest.mark.usefixtures("forked_children")]

CATALOG = load_catalog(Path(__file__).resolve().parent.parent)
SOLUTION = """\
constexpr int TILE = 32;

__device__ inline float half_of(float x) {
    return x / 2;
}

__global__ void scaled(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[TILE][TILE];
    const int row = blockIdx.x * TILE + threadIdx.y;
    const int col = threadIdx.x;
    // TODO(1): Load the tile. (~1 line)
    if (row < rows && col < cols) tile[threadIdx.y][col] = x[row * cols + col];
    // END TODO(1)
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < TILE; ++i) sum += tile[i][col];
    y[col] = half_of(sum);
}

KATA_EXPORT void launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    const int blocks = (rows - 1) / TILE + 1;
    scaled<<<blocks, dim3(TILE, TILE), 0, stream>>>(x, y, rows, cols);
}
"""
# The same in other words.
OWN = """\
constexpr int SIDE = 32;

__device__ inline float halved(float v) {
    return v / 2;
}

__global__ void my_kernel(const float* in, float* out, int R, int C) {
    __shared__ float buffer[SIDE][SIDE];
    const int c = threadIdx.x;
    const int r = threadIdx.y + SIDE * blockIdx.x;
    // TODO(1): Load the tile. (~1 line)
    if (C > c && r < R) buffer[threadIdx.y][c] = in[c + r * C];
    // END TODO(1)
    __syncthreads();
    float total = 0.0f;
    for (int k = 0; k < SIDE; k++) {
        total += buffer[k][c];
    }
    out[c] = halved(total);
}

KATA_EXPORT void launch(const float* in, float* out, int R, int C, cudaStream_t s) {
    const int n = (R - 1) / SIDE + 1;
    my_kernel<<<n, dim3(SIDE, SIDE), 0, s>>>(in, out, R, C);
}
"""


def words(right: str, by: str, own: str = OWN) -> dict[str, int]:
    """What the edits of the file with one mistake say, and their ranks."""
    assert right in own
    return {each.words: each.rank for each in towards(own.replace(right, by), SOLUTION).edits}


def of_variants(right: str, by: str, own: str = OWN) -> list[tuple[int, str]]:
    assert right in own
    return [(each.line, each.words) for each in variants(own.replace(right, by), SOLUTION)[1]]


def test_the_same_in_other_words_has_no_difference() -> None:
    """Names, parentheses, the order of terms and of both sides of a comparison, ``k++`` and ``++i``, and a variable for
    a value say nothing."""
    assert not towards(OWN, SOLUTION).edits
    assert variants(OWN, SOLUTION) == ("", [])
    assert not towards(OWN.replace("c + r * C]", "(c + (C * r))]"), SOLUTION).edits
    assert not towards(
        OWN.replace("in[c + r * C]", "in[place]").replace("    if (C", "    int place = r * C + c;\n    if (C"),
        SOLUTION,
    ).edits


@pytest.mark.parametrize(
    ("right", "by", "said"),
    [
        ("c + r * C]", "c + r * R]", "`R` is `C`"),
        ("SIDE * blockIdx.x", "blockIdx.x", "`blockIdx.x` is `blockIdx.x * SIDE`"),
        ("r < R)", "r <= R)", "`r <= R` is `r < R`"),
        ("buffer[k][c]", "buffer[c][k]", "`buffer[c][k]` is `buffer[k][c]`"),
        ("total += ", "total = ", "`total = buffer[k][c];` is `total += buffer[k][c];`"),
        ("v / 2", "v / 3", "`3` is `2`"),
        (
            "    __syncthreads();\n",
            "",
            "`__syncthreads();` stands behind `if (C > c && r < R) buffer[threadIdx.y][c] = in[c + r * C];`",
        ),
        ("        total += ", "        __syncthreads();\n        total += ", "`__syncthreads();` is left out"),
        (
            "if (C > c && r < R) buffer",
            "buffer",
            "`buffer[threadIdx.y][c] = in[c + r * C];` is executed only where `r < R && c < C`",
        ),
        ("out[c] = halved(total)", "out[c] = total", "`total` is `halved(total)`"),
        ("c + r * C]", "c + r]", "line 12, the answer to TODO(1), is as in the solution"),
    ],
)
def test_a_difference_is_told_in_the_words_of_the_file(right: str, by: str, said: str) -> None:
    assert said in words(right, by)


def test_the_smallest_difference_comes_first() -> None:
    found = words("c + r * C]", "c + r * R]")
    assert found["`R` is `C`"] < found["`r * R` is `r * C`"] < found["`c + r * R` is `r * C + c`"]


def test_what_stands_elsewhere_is_moved() -> None:
    barrier = "    __syncthreads();\n    float total = 0.0f;\n"
    own = OWN.replace(barrier, "    float total = 0.0f;\n").replace(
        "    out[c] =", "    __syncthreads();\n    out[c] ="
    )
    assert any(each.words.startswith("`__syncthreads();` stands") for each in towards(own, SOLUTION).edits)
    assert "`__syncthreads();` is left out" in {each.words for each in towards(own, SOLUTION).edits}


def test_a_sum_that_is_declared_too_far_out_begins_again() -> None:
    right = SOLUTION.replace(
        "    float sum = 0.0f;\n    for (int i = 0; i < TILE; ++i) sum += tile[i][col];\n    y[col] = half_of(sum);\n",
        """\
    for (int row = 0; row < rows; ++row) {
        float sum = 0.0f;
        for (int i = 0; i < TILE; ++i) sum += tile[i][col];
        y[col] += half_of(sum);
    }
""",
    )
    own = right.replace("        float sum = 0.0f;\n", "").replace(
        "    for (int row", "    float sum = 0.0f;\n    for (int row"
    )
    assert "`sum = {};` stands before `for (int i = 0; i < TILE; ++i) sum += tile[i][col];`" in {
        each.words for each in towards(own, right).edits
    }


def test_two_differences_are_tried_together_and_all_of_a_function() -> None:
    own = OWN.replace("c + r * C]", "c + r * R]").replace("buffer[k][c]", "buffer[c][k]").replace("= 0.0f", "= 1.0f")
    found = {each.words: each.rank for each in towards(own, SOLUTION).edits}
    pair = next(rank for said, rank in found.items() if ", and " in said)
    every = next(rank for said, rank in found.items() if "more places of the function" in said)
    body = next(rank for said, rank in found.items() if "the body of `my_kernel`" in said)
    assert max(rank for said, rank in found.items() if said == "`R` is `C`") < pair < body < every


def test_a_name_that_only_the_solution_has_is_not_used() -> None:
    """A helper that the file lacks, and a variable that stands for none of the file's."""
    own = OWN.replace(OWN[OWN.index("__device__") : OWN.index("__global__")], "").replace("halved(total)", "total / 3")
    assert not [
        each.words for each in towards(own, SOLUTION).edits if "half_of" in each.words or "halved" in each.words
    ]


def test_lines_that_nvcc_refused_have_no_edit() -> None:
    own = OWN.replace("c + r * C]", "c + r * R]")
    line = own[: own.index("r * R")].count("\n") + 1
    assert line in {each.line for each in towards(own, SOLUTION).edits}
    assert line not in {each.line for each in towards(own, SOLUTION, Refused(frozenset({line}))).edits}


def test_a_name_that_nvcc_did_not_know_is_in_no_edit() -> None:
    own = OWN.replace("c + r * C]", "c + r * R]")
    known = {each.words for each in towards(own, SOLUTION).edits}
    assert "`R` is `C`" in known
    left = {each.words for each in towards(own, SOLUTION, Refused(names=frozenset({"C"}))).edits}
    assert left < known and not any("is `C`" in each for each in left)


def test_the_lines_of_a_file_stay_where_they_are() -> None:
    own = OWN.replace("c + r * C]", "c + r * R]").replace("    __syncthreads();\n", "")
    made = towards(own, SOLUTION)
    assert made.text.count("\n") == own.count("\n")
    whole, ones = variants(own.replace("(R - 1) / SIDE + 1", "R / SIDE"), SOLUTION)
    assert whole.count("\n") == ones[0].text.count("\n") == own.count("\n")


@pytest.mark.parametrize(
    ("right", "by", "line", "said"),
    [
        ("(R - 1) / SIDE + 1", "R / SIDE + 1", 23, "`R` is `R - 1`"),
        ("float total", "int total", 15, "`total` is declared as `float`, not as `int`"),
        ("buffer[SIDE][SIDE]", "buffer[SIDE][SIDE + 1]", 8, "`buffer[SIDE][SIDE+1]` is `buffer[SIDE][SIDE]`"),
    ],
)
def test_launchers_constants_and_types_have_files_of_their_own(right: str, by: str, line: int, said: str) -> None:
    assert (line, said) in of_variants(right, by)


def test_a_constant_of_the_same_name_has_the_solutions_value() -> None:
    own = OWN.replace("SIDE", "TILE").replace("TILE = 32", "TILE = 16")
    assert [(each.line, each.words) for each in variants(own, SOLUTION)[1]] == [(1, "`TILE` is `32`, not `16`")]


def test_a_value_of_another_type_is_a_difference() -> None:
    """It is the same, but for what it is rounded to; whole numbers are not."""
    text = "__global__ void k(float* y, int n) {{\n    const {0} scale = 1.0f / n;\n    y[n] = scale * {1};\n}}\n"
    of = {each: text.format(each, "n") for each in ("half", "float", "int64_t", "int")}
    assert [(each.line, each.words) for each in variants(of["half"], of["float"])[1]] == [
        (2, "`scale` is declared as `const float`, not as `const half`")
    ]
    assert variants(of["int"], of["int64_t"]) == variants(of["float"], of["float"]) == ("", [])


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("a + b", "a  -\n b", "`a + b` is `a - b`"),
        ("sum + x", "sum + x * scale", "`sum + x` is `sum + x * scale`"),
        (
            "copy(shared_rows + row, rows + row, bytes)",
            "copy(shared_rows + row, rows + row, 16)",
            "`... row, bytes)` is `... row, 16)`",
        ),
        ("a" * 50, "a" * 50 + "b", f"`...{'a' * 6}` is `...{'a' * 6}b`"),
    ],
)
def test_a_long_text_shows_what_changes(before: str, after: str, said: str) -> None:
    assert changed_words(before, after, 30) == said


def test_a_string_has_no_names() -> None:
    """The constraint of an operand, and a variable of the same name."""
    asm = '__global__ void k(const float* x, int {0}, int n) {{\n    asm volatile("add %0;" : : "r"({0} {1}));\n}}\n'
    own, solution = asm.format("q", "- n"), asm.format("r", "+ n")
    [said] = {each.words for each in towards(own, solution).edits if "asm" in each.words}
    assert said.endswith('is `asm volatile("add %0;" : : "r"(q + n));`')


def test_functions_stand_for_each_other_by_name_then_by_likeness() -> None:
    pairs: list[Comparison] = comparisons(OWN, SOLUTION)[0]
    assert {(each.own.tree.function.name, each.other.tree.function.name) for each in pairs} == {
        ("halved", "half_of"),
        ("my_kernel", "scaled"),
    }


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ({"first", "whole"}, [(3, "first")]),
        ({"second", "whole"}, [(5, "second")]),
        ({"whole"}, [(3, "lines 3, 5 and 8 are as in the solution")]),
        ({"first"}, []),  # which is right by chance: not so what has all that is other
    ],
)
def test_one_file_that_is_right_or_all_lines_are_named(
    right: set[str], said: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ones = [Variant("first", 3, "first"), Variant("second", 5, "second"), Variant("third", 8, "third")]
    monkeypatch.setattr(built_variants, "variants", lambda text, solution: ("whole", ones))
    monkeypatch.setattr(built_variants, "_right_cases", lambda lab, build, text, cases: 7 * (text in right))
    found, count = built_variants.right_variants(None, None, "", "", [])  # type: ignore[arg-type]
    assert [(each.line, each.words) for each in found] == said and count == 7 * bool(said)


# -- graded ------------------------------------------------------------------------------------------------------------


def of_repair(name: str, changes: dict[str, str], tmp_path: Path, kind: Kind = Kind.WRONG_ANSWER) -> str:
    """What the verdict on a solution with a mistake says of its line."""
    kata = CATALOG.katas[name]
    text = kata.solution_path.read_text()
    for right, by in changes.items():
        assert right in text
        text = text.replace(right, by)
    file = tmp_path / f"{name}.cu"
    file.write_text(text)
    verdict: Verdict = grade(kata, Options(device="sim", last_failure=False), source=file).verdict
    assert verdict.kind is kind
    return "\n".join(clue.text for clue in verdict.clues if clue.about == "repair")


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        # Of the kernel: nothing else in the file says which distance the first must be.
        ("scan_block_brent_i32", {"PLACES / 4": "cols / 4"}, "on line 44 `cols` is `PLACES`"),
        # Of a constant, and of a function's parameter: no condition can choose between two of either.
        ("gelu_f16", {"OVER_PI = 0.7978845608f": "OVER_PI = 0.8862269f"}, "`SQRT_2_OVER_PI` is `0.7978845608f`"),
        ("hgemv_k32_f16", {"warp_reduce_sum(float sum)": "warp_reduce_sum(half sum)"}, "warp_reduce_sum(float sum)`"),
        # Two mistakes, neither of which is right without the other.
        (
            "gelu_f16",
            {"fmaf(0.044715f": "fmaf(0.0715f", "fdividef(x,": "fdividef(0.9f * x,"},
            "`0.0715f` is `0.044715f`, and on line 20 `0.9f * x` is `x`",
        ),
    ],
)
def test_what_makes_all_right_is_named(name: str, changes: dict[str, str], said: str, tmp_path: Path) -> None:
    assert said in of_repair(name, changes, tmp_path)


def test_after_a_finding_the_line_that_is_other_in_the_solution_is_named_and_nothing_else_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "_of_code", lambda *_, **__: pytest.fail("other changes are tried"))
    changes = {"atomicAdd(&counts[a[idx]], 1);": "counts[a[idx]] += 1;"}
    said = of_repair("histogram_i32", changes, tmp_path, kind=Kind.RACE)
    assert "`counts[a[idx]] += 1;` is `atomicAdd(&counts[a[idx]], 1);`" in said


def test_an_answer_in_other_words_is_named_as_a_whole(tmp_path: Path) -> None:
    """No statement of it stands for one of the solution, and it lacks a factor."""
    text = CATALOG.katas["softmax_block_smem_f32"].solution_path.read_text()
    begin = text.index("\n", text.index("(~11 lines)")) + 1
    answer = """\
        float peak = row.max;
#pragma unroll
        for (int v = 0; v < BATCH / VEC<Pack>; ++v) {
            const int64_t c = begin + (v * threads + tid) * VEC<Pack>;
            if (c < cols) store<Pack>(row_smem + c, &x_rmem[v * VEC<Pack>]);
        }
#pragma unroll
        for (int e = 0; e < BATCH; ++e) peak = fmaxf(peak, x_rmem[e]);
        float sum = row.sum;
#pragma unroll
        for (int e = 0; e < BATCH; ++e) sum += __expf(x_rmem[e] - peak);
        row = {peak, sum};
"""
    own = text[begin : text.index("        // END TODO(2)")]
    said = of_repair("softmax_block_smem_f32", {own: answer}, tmp_path)
    assert "the answer to TODO(2), are as in the solution" in said
