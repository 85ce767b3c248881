"""A file -> its statements and expressions, edits of these in one text, and the PTX of that text without edits."""

from __future__ import annotations

import re

import pytest

from grader.compile.chosen import chosen
from grader.compile.edit_writer import HEAD, MOST_OF_LINE, Edit, Edited, Refused
from grader.compile.source_edits import edited
from grader.compile.source_like import _refused
from grader.compile.source_tree import Statement, trees_of

FILE = """\
#include "kata.cuh"

constexpr int STEP = 4;
template <int D>
constexpr int LANES = D / 8;

struct Part {
    float max, sum;
};

__device__ inline int place_of(int row, int col) {
    return col ^ row;
}

template <int D>
__global__ void k(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[STEP][STEP];
    const int row = threadIdx.y;
    const int col = threadIdx.x % LANES<D> + 1;
    Part part = {0.0f, 0.0f};
    float sum = 0.0f;
    float most = 0.0f;
    for (int i = 0; i < cols; i += STEP) {
        const float max = fmaxf(most, x[i]);
        most = max;
        sum += __expf(x[i] - max);
    }
    if (row < rows) tile[row][col] = sum;
    __syncthreads();
    asm volatile("mma %0, %1;" : "+f"(sum) : "f"(x[0]), "f"(x[1]), "n"(STEP));
    y[row * cols + col] = tile[row][place_of(row, col)] + part.max;
}
"""
LINES = FILE.split("\n")


def line_of(text: str) -> int:
    [line] = [number for number, each in enumerate(LINES, 1) if text in each]
    return line


def words_on(text: str) -> list[str]:
    line = line_of(text)
    return [each.words for each in edited(FILE, {line}).edits]


def kinds_of(one: Statement) -> list[str]:
    return [one.kind, *(kind for part in one.parts for kind in kinds_of(part))]


def test_all_statements_are_read() -> None:
    place, kernel = trees_of(FILE)
    assert kinds_of(place.body) == ["block", "return"]
    assert "other" not in kinds_of(kernel.body)
    assert [kinds_of(kernel.body).count(kind) for kind in ("declaration", "loop", "if", "asm")] == [7, 1, 1, 1]


def test_a_hexadecimal_fraction_is_one_number() -> None:
    text = "__global__ void k(float* y) {\n    y[0] = y[1] - 0x1.8p-1f + 0x7f;\n}\n"
    words = {edit.words for edit in edited(text, {2}).edits}
    assert "`0x1.8p-1f` is `2.0f * 0x1.8p-1f`" in words and not any("`1f`" in each for each in words)


def test_what_is_not_known_is_left_out_alone() -> None:
    [tree] = trees_of("__global__ void k(int* x) { auto [a, b] = f(); x[0] = a; }")
    assert kinds_of(tree.body) == ["block", "other", "simple"]


def test_a_template_is_no_comparison() -> None:
    assert not [words for words in words_on("LANES<D>") if "<=" in words]
    assert "`threadIdx.x` is `threadIdx.y`" in words_on("LANES<D>")


def test_another_variable_that_is_visible() -> None:
    words = words_on("if (row < rows)")
    assert "`row` is `col`" in words and "`rows` is `cols`" in words
    assert not [each for each in words if "`i`" in each]  # of the loop
    assert "`row` and `col` are exchanged" in words


def test_operands_of_assembly_are_exchanged_but_none_that_the_compiler_must_know() -> None:
    assert "`x[0]` and `x[1]` are exchanged" in words_on("asm volatile")
    assert not [each for each in words_on("asm volatile") if "STEP" in each]


def test_a_missing_rescale() -> None:
    assert "`sum *= __expf(most - max);` stands before `most = max;`" in words_on("most = max;")


def test_a_sum_that_begins_every_round_at_0() -> None:
    assert "`sum` is set to 0 at the start of each round of the loop" in words_on("for (int i")


def test_an_array_without_a_size_is_not_set_to_0() -> None:
    sums = (
        "__global__ void k(float* y) {\n    %s\n    for (int i = 0; i < 4; ++i) {\n        part[0] += y[i];\n    }\n}\n"
    )
    for declared, is_set in (("extern __shared__ float part[];", False), ("__shared__ float part[4];", True)):
        words = {edit.words for edit in edited(sums % declared, {3}).edits}
        assert ("`part` is set to 0 at the start of each round of the loop" in words) is is_set


def test_the_line_that_makes_nvcc_read_a_template_is_at_fault() -> None:
    log = """\
kata.cu(10): error: incomplete type "float []" is not allowed
          detected during instantiation of "void kata_zero(T &) [with T=float []]" at line 59
kata.cu(12): error: identifier "z" is undefined
"""
    assert _refused(log) == ({10, 59}, {"z"})
    log = """\
kata.cu(87): warning #179-D: right operand of "%" is zero
          detected during instantiation of "int swizzle<COLS>(int, int) [with COLS=2]" at line 123
kata.cu(12): error: identifier "z" is undefined
"""
    assert _refused(log) == (set(), {"z"})
    assert _refused(log, {"z"}) == ({12}, set())  # it is still there, though no edit should have it


LOADED = """\
constexpr int CHUNK = 8;
__device__ void load(const half (&tile)[64][64], const float (&next_factor)[2], const float (&factor)[2], float* y) {
    const int lane_id = threadIdx.x % 32;
    const int row = lane_id % 16;
    const half* from = &tile[row][lane_id / 16 * CHUNK];
    ldmatrix_x4(from);
    raise(y, next_factor);
}
"""


def test_the_second_and_third_matrix_of_a_load_are_exchanged() -> None:
    found = {each.words: each.line for each in edited(LOADED, {4, 5}).edits}
    words = (
        "the addresses of lanes 8 to 15 and of lanes 16 to 23 are exchanged here and on line 5: the second and third"
    )
    assert found[f"{words} matrix"] == 4
    assert not any("matrix" in each.words for each in edited(LOADED, {4}).edits)
    assert not any("matrix" in each.words for each in edited(LOADED.replace("ldmatrix", "load"), {4, 5}).edits)


def test_an_array_whose_name_has_a_word_more_is_likely_in_the_place_of_another() -> None:
    found = {each.words: each.rank for each in edited(LOADED, {7}).edits}
    assert found["`next_factor` is `factor`"] == 1


def test_statements_in_another_order() -> None:
    words = words_on("most = max;")
    assert "`most = max;` is left out" in words
    assert not [each for each in words if "before `const float max" in each]  # it needs that
    assert not [each for each in words_on("__syncthreads") if "left out" in each]


def test_a_permutation_on_one_side_alone() -> None:
    assert "`col` is `place_of(row, col)`" in words_on("if (row < rows)")
    assert "`place_of(row, col)` is `col` alone" in words_on("y[row * cols + col]")


def test_a_term_of_an_address_is_too_much() -> None:
    text = "__global__ void k(float* y, int row) {\n    atomicAdd(y + row + threadIdx.x, 1.0f);\n}\n"
    assert "`y + row` is `y` alone" in {edit.words for edit in edited(text, {2}).edits}


def test_a_member_in_the_place_of_another() -> None:
    assert "`part.max` is `part.sum`" in words_on("+ part.max")


def test_lines_stay_where_they_are_and_no_refused_one_is_edited() -> None:
    every = set(range(1, len(LINES) + 1))
    whole = edited(FILE, every)
    assert whole.text.count("\n") == FILE.count("\n")
    assert whole.text.index(HEAD) > whole.text.index("#include")
    without = edited(FILE, every, Refused(frozenset({line_of("most = max;")})))
    assert {each.line for each in whole.edits} - {each.line for each in without.edits} == {line_of("most = max;")}


def test_a_name_that_nvcc_does_not_know_is_in_no_edit() -> None:
    text = "__global__ void f(int* x, int a, int b) {\n    x[a] = 1;\n    x[b] = 2;\n}\n"
    words = {(each.line, each.words) for each in edited(text, {2, 3}).edits}
    left = {(each.line, each.words) for each in edited(text, {2, 3}, Refused(names=frozenset({"b"}))).edits}
    assert (2, "`a` is `b`") in words and (3, "`b` is `a`") in left
    assert not any("b" in re.findall(r"\w+", said) for line, said in left if line == 2)


def test_a_condition_that_nvcc_decides_has_no_edits() -> None:
    text = "__global__ void f(float* y) {\n    if constexpr (sizeof(y) > 1) y[0] = 1.0f;\n    y[1] = 2.0f;\n}\n"
    assert {each.line for each in edited(text, range(1, 5)).edits} == {2, 3}


def test_nothing_is_changed_where_nothing_is_edited() -> None:
    assert edited(FILE, set()) == Edited(FILE.replace("constexpr int STEP", f"{HEAD}constexpr int STEP", 1), ())


WORDS = """\
#include "kata.cuh"

constexpr int COLS = 64;
constexpr int CHUNK = 16;
constexpr int PIECE = COLS / 2;
constexpr int VEC = 4;

struct Group {
    int row, rows;
};

__global__ void k(const float* x, float* y, int cols, int hidden, int OH, int OW, int H, int W) {
    const int lane = threadIdx.x % 32;
    const int slot = blockIdx.x * PIECE + lane;
    Group group = {lane, slot};
    int end = 0;
    end = group.rows;
    const int head = slot / CHUNK;
    const int64_t first = (slot * OH + H - 1) / H;
    const int64_t last = ((slot + 1) * OH + H - 1) / H;
    const int below = lane / 2 * 8;
    const int right = lane % 2 * 8;
    float sum = 0.0f;
    for (int col = threadIdx.x * VEC; col < cols; col += blockDim.x) {
        if (threadIdx.x == end) sum += x[head * COLS + col];
        sum = logf(sum);
    }
    if (slot < hidden && lane < cols)
        y[first * CHUNK + last + below + right + slot] = fmaxf(sum, 0.0f);
}
"""


def edits_on(text: str) -> dict[str, int]:
    """Of the line of WORDS with a text: what they say, and their rank."""
    [line] = [number for number, each in enumerate(WORDS.split("\n"), 1) if text in each]
    within = {line - 1, line, line + 1}
    return {each.words: each.rank for each in edited(WORDS, within).edits if each.line == line}


def test_a_name_of_another_kind_of_variable() -> None:
    words = edits_on("if (threadIdx.x == end)")
    assert words["`threadIdx.x` is `lane`"] < words["`threadIdx.x` is `blockIdx.x`"]
    assert words["`COLS` is `cols`"] <= 2
    assert {"`COLS` is `blockDim.x`", "`head` is `threadIdx.x`", "`COLS` is `PIECE`"} <= words.keys()
    assert {"`blockDim.x` is `VEC`", "`blockDim.x` is `cols`"} <= edits_on("for (int col").keys()


def test_a_name_is_another_one_in_several_places() -> None:
    words = edits_on("first = (")
    assert "`OH` is `OW` and `H` is `W` here and on line 20" in words
    assert "`H` is `W` everywhere in this line" in words
    whole = edited(WORDS, {19, 20})
    [number] = [each.number for each in whole.edits if each.words.startswith("`OH` is `OW` and `H` is `W` here")]
    assert whole.text.count(f"(kata_edit=={number}u?") == 6
    assert not [each for each in edited(WORDS, {19}).edits if "on line 20" in each.words]


def test_a_factor_that_is_missing_or_too_much() -> None:
    assert "`blockDim.x` is `blockDim.x * VEC`" in edits_on("for (int col")
    assert "`threadIdx.x * VEC` is `threadIdx.x` alone" in edits_on("for (int col")
    assert "`below` is `below * 2`" in edits_on("y[first * CHUNK")


def test_a_remainder_that_is_missing_or_too_much() -> None:
    assert {"`slot` is `slot % PIECE`", "`slot / CHUNK` is `slot` alone"} <= edits_on("head = slot").keys()
    assert "`slot` is `slot % CHUNK`" in edits_on("y[first * CHUNK")
    assert "`threadIdx.x` is `threadIdx.x % CHUNK`" in edits_on("lane = threadIdx.x")


def test_a_term_that_is_missing() -> None:
    assert "`group.rows` is `group.rows + group.row`" in edits_on("end = group.rows")


def test_two_operators_or_bounds_are_exchanged() -> None:
    assert edits_on("below =")["`lane / 2` and `lane % 2` of line 22 are exchanged"] <= 2
    assert edits_on("if (slot < hidden")["`hidden` and `cols` are exchanged"] <= 2


def test_another_function() -> None:
    assert "`logf` is `log2f`" in edits_on("sum = logf")
    assert "`fmaxf` is `fminf`" in edits_on("y[first * CHUNK")


def test_a_pointer_to_rows_does_not_hide_their_length() -> None:
    text = "template <int COLS> __device__ void f(float (*tile)[COLS], int cols) {\n tile[cols * COLS][cols] = 0;\n}"
    assert "`COLS` is `cols`" in [each.words for each in edited(text, {2}).edits]


def test_what_was_there_is_joined_with_what_is_assigned() -> None:
    assert "`most` is `fmaxf(most, ...)`" in words_on("most = max;")


def test_a_matrix_is_stored_the_other_way_round() -> None:
    assert "`row * cols + col` is `col * rows + row`" in words_on("y[row * cols + col]")


def test_a_pointer_lacks_a_term() -> None:
    text = "__global__ void k(float* x, int n) {\nint i = threadIdx.x;\nconst float* from = x + n;\nx[0] = *from;\n}\n"
    assert "`x + n` is `x + n + i`" in [each.words for each in edited(text, {3}).edits]


def test_what_a_lane_gives_is_not_exchanged_with_its_number() -> None:
    text = "__global__ void k(int* x, int a, int b) {\nx[0] = __shfl_sync(~0u, a, b);\nx[1] = max(a, b);\n}\n"
    words = [(each.line, each.words) for each in edited(text, {2, 3}).edits if "exchanged" in each.words]
    assert words == [(3, "`a` and `b` are exchanged")]


def test_a_constant_that_no_kernel_uses_is_likely() -> None:
    text = FILE.replace("constexpr int STEP = 4;", "constexpr int STEP = 4; constexpr int PIECE = 8;")
    ranks = {each.words: each.rank for each in edited(text, {line_of("i += STEP")}).edits}
    assert ranks["`STEP` is `PIECE`"] == 2


def test_a_constant_is_no_other_that_has_nothing_to_do_with_it() -> None:
    text = """\
constexpr int VEC = 4;
constexpr int STEP = 64 * VEC;
constexpr int MOST = 8192;
__device__ int sums[MOST];
__global__ void k(int* x, int n) {
    const int i = threadIdx.x;
    if (i < VEC) x[i * VEC] = n + STEP;
}
"""
    words = [each.words for each in edited(text, {7}).edits]
    assert "`VEC` is `STEP`" in words and "`VEC` is `MOST`" not in words
    assert words.count("`i` is `STEP`") == 1  # in the index: the condition would never change
    assert words.count("`i` is `n`") == 2


def test_of_too_many_those_of_a_line_without_doubt() -> None:
    kernel = "__global__ void k(int* x, int a, int b) {\n" + "x[a * b + a] = a + b * a;\n" * 100 + "}\n"
    of_line = [sum(each.line == 90 for each in edited(kernel, range(102), doubts={90: by}).edits) for by in (9.0, -9.0)]
    assert of_line[0] < of_line[1]


def test_the_likeliest_of_too_many() -> None:
    more = " ".join(["end += first * CHUNK + last + slot;"] * 40)
    many = WORDS.replace("    float sum = 0.0f;", f"{more} float sum = 0.0f;")
    line = 1 + WORDS[: WORDS.index("    float sum")].count("\n")
    whole, few = edited(many, {line}), edited(WORDS, {line})
    assert len(few.edits) < MOST_OF_LINE == len(whole.edits)
    assert max(each.rank for each in whole.edits) < 5


# `x + (kata_edit-3u<2u?(kata_edit==3u?y:z):x)`, as nvcc makes it without optimisation, and a question without a branch.
PTX = """\
.visible .entry k(
)
{
	mov.u64 	%rd1, kata_edit;
	cvta.global.u64 	%rd2, %rd1;
	ld.u32 	%r1, [%rd2];
	sub.s32 	%r2, %r1, 3;
	setp.lt.u32 	%p1, %r2, 2;
	not.pred 	%p2, %p1;
	@%p2 bra 	$L_5;
	bra.uni 	$L_1;

$L_1:
	mov.u64 	%rd3, kata_edit;
	cvta.global.u64 	%rd4, %rd3;
	ld.u32 	%r3, [%rd4];
	setp.eq.s32 	%p3, %r3, 3;
	not.pred 	%p4, %p3;
	@%p4 bra 	$L_3;
	bra.uni 	$L_2;

$L_2:
	mov.u32 	%r9, 33;
	bra.uni 	$L_6;

$L_3:
	mov.u32 	%r9, 44;
	bra.uni 	$L_6;

$L_5:
	mov.u32 	%r9, 55;
	bra.uni 	$L_6;

$L_6:
	mov.u64 	%rd5, kata_edit;
	cvta.global.u64 	%rd6, %rd5;
	ld.u32 	%r5, [%rd6];
	setp.eq.s32 	%p5, %r5, 7;
	selp.u32 	%r6, 1, 0, %p5;
	ret;
}"""
EDITS = [Edit(number, 12, f"edit {number}", 1) for number in (3, 4, 7, 8)]


def runs(lines: list[str]) -> list[str]:
    """The numbers that code comes to: what ``mov`` gives ``%r9`` and ``%r5``."""
    at, found = lines.index("{") + 1, []
    places = {line.strip().rstrip(":"): number for number, line in enumerate(lines) if line.startswith("$")}
    while True:
        line = lines[at].strip()
        if line.startswith("ret"):
            return found
        assert "setp" not in line or "%r5" in line, "a question with a branch is answered"
        if line.startswith("bra.uni"):
            at = places[line.split()[1].rstrip(";")]
            continue
        if line.startswith("mov.u32"):
            found.append(line.split()[-1].rstrip(";"))
        at += 1


def test_the_code_without_edits_comes_to_none() -> None:
    code = chosen(PTX, EDITS)
    text = code.text.split("\n")
    assert runs(text) == ["55", "0"]
    assert "33" not in code.text and "44" not in code.text


def test_each_edit_is_a_change_of_it() -> None:
    code = chosen(PTX, EDITS)
    text = code.text.split("\n")
    found = {edit.number: runs(change.applied(text)) for edit, change in code.changes}
    assert found == {3: ["33", "0"], 4: ["44", "0"], 7: ["55", "7"]}  # 8 is not in the code
    assert {change.line for _, change in code.changes} == {12}


def test_a_bit_that_goes_to_64_bits_is_shifted_in_64() -> None:
    def words_of(statement: str) -> list[str]:
        lines = ["uint64_t bits = 0;", "unsigned few = 0;", statement, "y[0] = bits >> 33;", "y[1] = few;"]
        text = "\n".join(["__global__ void k(unsigned* y, int b) {", *lines, "}", ""])
        return [each.words for each in edited(text, {4}).edits if "uint64_t" in each.words]

    assert words_of("bits |= 1u << b;") == ["`1u << b` is `uint64_t{1} << b`"] == words_of("bits |= (1u << b);")
    assert words_of("few |= 1u << b;") == [] == words_of("bits |= 2u << b;")


def ranks_of(body: str, line: str) -> dict[str, int]:
    """The edits of a line of a kernel's body, and their ranks."""
    text = f"""\
constexpr int LOADS = 2;
template <class T> constexpr int VEC = sizeof(T);
template <class Pack>
__global__ void k(float* y, const unsigned (&p)[2][2], int number, int cols, unsigned long long known) {{
{body}
}}
"""
    [place] = [number for number, each in enumerate(text.split("\n"), 1) if line in each]
    edits = sorted(edited(text, {place}).edits, key=lambda each: -each.rank)
    return {each.words: each.rank for each in edits}


def test_a_step_lacks_what_the_loop_inside_counts_up_to() -> None:
    body = "for (int v = 0; v < cols; v += number) {{\nfor (int i = 0; i < {}; ++i) y[v + i * number] = 0;\n}}"
    assert ranks_of(body.format("LOADS"), "v += number")["`number` is `number * LOADS`"] == 1
    assert ranks_of(body.format("cols"), "v += number").get("`number` is `number * LOADS`", 3) == 3


def test_nothing_is_compared_with_itself() -> None:
    words = ranks_of("const int lane = cols;\nif (lane == 0) y[lane] = cols;", "if (lane == 0)")
    assert "`lane == 0` holds always" in words and "`0` is `lane`" not in words
    assert "`0` is `number`" in words


def test_a_sum_is_divided_by_a_size_in_the_place_of_a_product() -> None:
    words = ranks_of("const int width = 4;\ny[0] = y[1] / (blockDim.x * width);", "y[0] =")
    assert words["`blockDim.x * width` is `cols`"] <= 2


def test_the_middle_registers_of_a_fragment_are_exchanged_first() -> None:
    words = ranks_of("const unsigned a[4] = {p[0][0], p[1][0], p[0][1], p[1][1]};\ny[0] = a[0];", "a[4] =")
    assert words["`p[1][0]` and `p[0][1]` are exchanged"] == 0 == min(words.values())
    assert 0 not in ranks_of("const unsigned a[2] = {p[0][0], p[1][0]};\ny[0] = a[0];", "a[2] =").values()


def test_a_sign_does_not_fill_the_upper_half() -> None:
    words = ranks_of("y[0] = known << 32 | number;", "y[0] =")
    assert words["`number` is `static_cast<unsigned>(number)`"] == 1
    assert not [each for each in ranks_of("y[0] = known << 16 | number;", "y[0] =") if "static_cast" in each]


def test_a_register_s_number_is_rounded_down_as_another_loop_does() -> None:
    first = "for (int i = 0; i < cols; i += VEC<Pack>) y[i * number] = 1;\n"
    words = ranks_of(first + "for (int i = 0; i < cols; ++i) y[i * number + 1] = 0;", "++i")
    assert words["`i` is `i / VEC<Pack> * VEC<Pack>`"] == 2
    assert "`i` is `i / VEC<Pack> * VEC<Pack>`" not in ranks_of(first, "y[i * number] = 1")


def test_lanes_of_a_row_follow_each_other_or_are_a_stride_apart() -> None:
    words = ranks_of("const int lane = threadIdx.x % 32;\ny[lane % 8] = 0;", "y[lane")
    assert words["`lane % 8` is `lane / 4`"] == 1 < words["`lane % 8` is `lane / 2`"] == 2
    loop = "for (int i = 0; i < 64; ++i) y[i % LOADS] = 0;"
    assert ranks_of(loop, "y[i")["`i % LOADS` is `i / 2`"] == 1
    assert "`cols % LOADS` is `cols / 4`" not in ranks_of("y[cols % LOADS] = 0;", "y[cols")  # a size


def test_a_number_of_vectors_becomes_one_of_elements() -> None:
    words = ranks_of("const int lane = threadIdx.x;\nconst int tail = cols / LOADS + lane;", "tail =")
    assert words["`cols / LOADS` is `cols / LOADS * LOADS`"] == 2


def test_the_middle_registers_of_four_are_exchanged_by_their_number() -> None:
    loop = "unsigned w[4];\nfor (int r = 0; r < 4; ++r) {{\n{}w[r] = number;\n}}\ny[0] = w[0];"
    assert ranks_of(loop.format(""), "w[r]")["`r` is `r % 2 * 2 + r / 2`"] == 1
    made = "const int row = r / 2, col = r % 2;\n"  # of which one is at fault more often
    assert ranks_of(loop.format(made), "w[r]")["`r` is `r % 2 * 2 + r / 2`"] == 3
    assert "`r` is `r % 2 * 2 + r / 2`" not in ranks_of(loop.replace("w[4]", "w[8]").format(""), "w[r]")


def test_two_rows_of_a_lane() -> None:
    mask = "for (int i = 0; i < 8; ++i) {{\nconst int key = i / 4 * 8;\nif (key > number) y[i] = 0; // mma\n}}"
    words = ranks_of(mask, "if (key")
    assert words["`number` is `number + i / 2 % 2 * 8`"] == 1 and "`key` is `key + i / 2 % 2 * 8`" not in words
    assert "`number` is `number + i / 2 % 2 * 8`" not in ranks_of(mask.replace("mma", ""), "if (key")
    sums = "const float low = 1, high = 2;\nfor (int i = 0; i < 4; i += 2) {{\n{}y[i + 1] += high; // mma\n}}"
    text = f"""__global__ void k(float* y) {{\n{sums.format("y[i] += low;")}\n}}\n""".replace("{{", "{").replace(
        "}}", "}"
    )
    [edit] = [each for each in edited(text, range(1, 9)).edits if "both" in each.words]
    assert edit.words == "`low` here and `high` on line 4 are both `i / 2 % 2 == 0 ? low : high`"


def test_an_early_return_is_left_out() -> None:
    words = ranks_of("if (number >= cols) return;\ny[0] = 1;", "if (number")
    assert words["`if (number >= cols) return;` is left out"] == 1 == min(words.values())
    assert not [each for each in ranks_of("if (number >= cols) y[0] = 1;", "if (number") if each.startswith("`if (n")]
    words = ranks_of("if (number >= cols || cols > 9) return;\ny[0] = 1;", "if (number")
    assert words["`number >= cols || cols > 9` is `cols > 9` alone"] == 1


def test_what_is_added_is_weighed_or_of_all_elements() -> None:
    sums = "float w[4], sum = 0;\nfor (int i = 0; i < 4; ++i) w[i] = 1;\nfor (int i = 0; i < 4; i += {}) sum += y[i];"
    assert ranks_of(sums.format(1), "sum +=")["`y[i]` is `y[i] * w[i]`"] == 3
    words = "`sum += ...` adds the elements from `i` to `i + LOADS - 1`, not the first alone"
    assert ranks_of(sums.format("LOADS"), "sum +=")[words] == 1
    assert not [each for each in ranks_of(sums.replace("i += {}", "++i"), "sum +=") if "..." in each]
    of_vector = "const float4 v = first(y);\nfloat sum = 0;\nsum += v.x * v.x;"
    assert ranks_of(of_vector, "sum +=")["`sum += ...` adds what `.y`, `.z`, `.w` have, too"] == 3
    assert not [each for each in ranks_of(of_vector.replace("v.x;", "v.y;"), "sum +=") if "..." in each]


def test_the_quotients_of_a_run_of_lines_are_rounded_up() -> None:
    run = "const int a = number * LOADS / cols;\nconst int b = (number + 1) * LOADS / cols;\ny[a] = b;\n"
    text = "constexpr int LOADS = 2;\n__global__ void k(float* y, int number, int cols) {\n" + run + "}\n"
    [edit] = [each for each in edited(text, range(1, 9)).edits if each.words.startswith("the quotients")]
    assert (edit.line, edit.words) == (3, "the quotients of lines 3 to 4 are rounded up")
    assert not [each for each in edited(text, {3}).edits if each.words.startswith("the quotients")]


def test_a_packed_number_is_the_negative() -> None:
    body = "const half2 edge = __float2half2_rn(1.0f);\ny[0] = __hltu2_mask({}, edge);"
    assert ranks_of(body.format("edge"), "y[0] =")["`edge` is `-edge`"] == 4
    assert "`edge` is `-edge`" not in ranks_of(body.replace("__hltu2_mask({}, ", "static_cast<int>("), "y[0] =")


def test_a_line_with_an_edit_is_shown_where_its_words_do_not_say_which_place() -> None:
    text = "__global__ void k(float* y) {\nfor (int i = 0; i < 8 / 2; i += 2) y[i] = 1; // 2\ny[3] = 2;\n}\n"
    shown = {(each.line, each.then) for each in edited(text, range(1, 9)).edits if each.words == "`2` is `1`"}
    assert (2, "for (int i = 0; i < 8 / 2; i += 1) y[i] = 1;") in shown and (3, "") in shown


COMBINING = """\
struct Add {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
template <typename Op>
__device__ float warp_reduce(float value, Op op) {
    for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}
template <typename Op>
__device__ float block_reduce(float value, float neutral, Op op) {
    value = warp_reduce(value, op);
    __syncthreads();
    return value;
}
__device__ float twice(float value) {
    return 2.0f * value;
}
__global__ void k(const float* x, const float* weight, float* y, int n, float eps) {
    float max = -INFINITY, sum = 0.0f;
    for (int i = 0; i < n; ++i) max = fmaxf(max, x[i]);
    for (int i = 0; i < n; ++i) sum += expf(x[i] - max);
    sum = warp_reduce(sum, Add());
    y[n] = rsqrtf(sum / n);
    const float scale = sum;
    y[0] = block_reduce(x[0], 0.0f, Add()) * scale;
    max = twice(max);
}
"""


def of_combining(text: str) -> dict[str, int]:
    """The edits of a line, with their least ranks."""
    [line] = [number for number, each in enumerate(COMBINING.split("\n"), 1) if text in each]
    return least_ranks(COMBINING, line)


def least_ranks(text: str, line: int) -> dict[str, int]:
    edits = sorted(edited(text, {line}).edits, key=lambda each: -each.rank)
    return {each.words: each.rank for each in edits}


def test_what_a_thread_has_summed_up_is_combined_with_that_of_others() -> None:
    found = of_combining("max = fmaxf(max, x[i])")
    behind = "stands behind `for (int i = 0; i < n; ++i) max = fmaxf(max, x[i]);`"
    assert found[f"`max = warp_reduce(max, Max());` {behind}"] == found[f"`max = warp_reduce(max, Add());` {behind}"]
    assert f"`max = block_reduce(max, -INFINITY, Max());` {behind}" in found
    assert not [words for words in found if "-INFINITY, Add()" in words or "twice" in words]
    assert not [words for words in of_combining("value = op(value") if "reduce" in words]  # it is not known there
    assert "`warp_reduce(sum, Add())` is `block_reduce(sum, 0.0f, Add())`" in of_combining("sum = warp_reduce")
    assert not [words for words in of_combining("value = warp_reduce") if "block_reduce" in words]  # it calls itself


def test_shuffles_go_over_the_lanes_of_a_row() -> None:
    assert of_combining("offset = 16")["`16` is `2`"] == 0
    assert least_ranks("__device__ void f(int v) {\n__shfl_xor_sync(~0u, v, 1);\n}", 2)["`1` is `2`"] == 0


def test_what_a_kernel_is_given_and_does_not_use_is_a_term() -> None:
    assert of_combining("rsqrtf(sum / n)")["`sum / n` is `sum / n + eps`"] == 1
    assert not [words for words in of_combining("sum += expf") if "+ eps`" in words and "sum +=" in words]
    assert "`x[i] * w[i]` is `x[i] * w[i] * b[i]`" in {
        each.words
        for each in edited(
            "__global__ void k(float* y, float* x, float* w, float* b, int i) {\ny[i] = x[i] * w[i];\n}", {2}
        ).edits
    }


def test_a_reciprocal_and_half_of_a_number() -> None:
    assert of_combining("scale = sum")["`sum` is `1.0f / sum`"] == 3
    text = (
        "__device__ float of(int pair) {\n return pair;\n}\n__global__ void k(float* y, int col) {\ny[0] = of(col);\n}"
    )
    assert "`col` is `col / 2`" in {each.words for each in edited(text, {5}).edits}


def test_what_a_comment_says_is_no_element() -> None:
    text = "__global__ void k(int* y, const int* x, int n) {\n// all of x[0..n-1]\ny[0] = x[n - 1] + n;\n}\n"
    assert not [each.words for each in edited(text, {3}).edits if ".." in each.words]


def test_a_quotient_is_rounded_up_to_a_multiple_of_what_the_todo_names() -> None:
    text = """\
constexpr int VEC = 8;
__global__ void k(int* y, int n, int parts) {
    // TODO(1): Parts of a multiple of VEC. (~1 line)
    const int part = (n + parts - 1) / parts;
    // END TODO(1)
    y[0] = part + VEC;
}
"""
    assert least_ranks(text, 4)["`(n + parts - 1) / parts` is rounded up to a multiple of `VEC`"] == 1


def test_the_bits_of_a_swizzle_and_the_rounds_of_a_loop() -> None:
    text = "__device__ int f(int row, int c) {\nreturn c ^ (row / 2 % 4);\n}\n"
    assert least_ranks(text, 2)["`row / 2 % 4` is `row % 8`"] == 1
    loop = "__global__ void k(int* y, int n) {\nfor (int i = 0; i < n; i += 8) {\ny[i % 2] = 0;\n}\n}\n"
    assert least_ranks(loop, 3)["`i % 2` is `i / 8 % 2`"] == 0


def test_usual_forms_of_numbers() -> None:
    text = "__device__ float f(float x) {\nreturn expf(x) - 1.0f;\n}\n"
    assert least_ranks(text, 2)["`expf(x) - 1.0f` is `expm1f(x)`"] == 1
    lanes = "__device__ int f(unsigned x) {\nint a = __ffs(x) - 1;\nreturn 31 - __clz(x);\n}\n"
    assert "`__ffs(x) - 1` is `31 - __clz(x)`" in least_ranks(lanes, 2)
    assert "`31 - __clz(x)` is `__ffs(x) - 1`" in least_ranks(lanes, 3)
    turns = "__device__ void f(float x, float* y) {\nsincospif(x, y, y + 1);\n}\n"
    assert least_ranks(turns, 2)["`x` is `2.0f * x`"] == 3
    pairs = "__device__ half2 f(float a, float b) {\nreturn __halves2half2(__float2half(a), __float2half(b));\n}\n"
    assert "`__float2half(a)` and `__float2half(b)` are exchanged" in least_ranks(pairs, 2)


def test_what_counts_elements_is_added_to_pointers_to_vectors() -> None:
    text = """\
__global__ void k(const half* x, half* y, int i) {
    const half2* from = reinterpret_cast<const half2*>(x) + i;
    half2* to = reinterpret_cast<half2*>(y) + i;
    *to = *from;
}
"""
    found = [each.words for each in edited(text, {2, 3}).edits]
    assert "`i` is `i / 2` here and on line 3" in found


def test_the_place_within_a_part_is_a_remainder() -> None:
    text = "constexpr int N = 4;\n__device__ float f(float a[2][4], int k) {\nreturn a[k / N][k];\n}\n"
    assert least_ranks(text, 3)["`k` is `k % N`"] == 0


def test_registers_of_two_calls_are_exchanged() -> None:
    text = "__device__ void f(unsigned* v) {\nmma(v[0], v[2]);\nmma(v[1], v[3]);\n}\n"
    assert "`v[2]` and `v[1]` of line 3 are exchanged" in {each.words for each in edited(text, {2, 3}).edits}


def test_what_was_computed_once_is_computed_where_it_is_used() -> None:
    text = """\
__global__ void k(const float* s, float* y) {
    const int first = threadIdx.x;
    const float scale = s[first / 4];
    for (int i = 0; i < 4; ++i) {
        const int v = first + i;
        y[v] = scale;
    }
}
"""
    ranks = least_ranks(text, 6)
    assert ranks["`scale` is `s[v / 4]`"] == 2 and "`v` is `threadIdx.x`" in ranks


def test_a_running_sum_is_rescaled_before_a_maximum_grows() -> None:
    text = """\
__device__ void f(const float* x, float max, float sum, int n) {
    for (int i = 0; i < n; ++i) {
        max = fmaxf(max, x[i]);
        sum += __expf(x[i] - max);
    }
}
"""
    words = "`sum *= __expf(max - fmaxf(max, x[i]));` stands before `max = fmaxf(max, x[i]);`"
    assert words in least_ranks(text, 3)


def test_a_pointer_to_a_matrix_that_is_stored_the_other_way_round() -> None:
    head = "__global__ void k(const float* a, float* y, int rows, int cols, int r, int c)"
    text = f"{head} {{\ny[0] = *(a + r * cols + c);\n}}\n"
    assert least_ranks(text, 2)["`a + r * cols + c` is `a + c * rows + r`"] == 1


def test_a_parameter_begins_every_round_as_it_was_given() -> None:
    text = """\
__device__ void f(uint2 key, int n, const int* x) {
    for (int b = 0; b < n; ++b) {
        key.x += 3u;
    }
}
"""
    words = "`key` is what the function is given, at the start of each round of the loop"
    assert least_ranks(text, 2)[words] == 1
    assert "const auto kata_given_key=key;" in edited(text, {2}).text
    assert not [each for each in least_ranks(text, 2) if each.startswith("`n` is what")]


def test_a_block_without_statements() -> None:
    text = "__device__ void f(int a, int b, int* y) {\n{}\ny[0] = a + b > 0;\n}\n"
    assert least_ranks(text, 3)["`a + b` is `b` alone"] == 6


NUMBERED = """\
constexpr int LOADS = 2;
constexpr int VEC = 4;
constexpr int HELD = 8;

__global__ void k(const float* x, float* y, int K, int cols, int slices) {
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const int stride = gridDim.x * 32;
    const int head = cols % VEC;
    const float* x_part = x + head;
    const int64_t each = K / VEC / slices;
    const int64_t end = tid + each * VEC;
    float max = x[0], sum = 0.0f, best = 0.0f;
    int place = 0;
    for (int v = tid; v < cols; v += LOADS * stride) {
        for (int i = 0; i < LOADS; ++i) {
            const int at = v * LOADS + i;
            if (at < cols) sum += x_part[at];
        }
        const int begin = v * VEC;
        y[begin] = sum;
        sum += x[v];
    }
    for (int i = 0; i < HELD; i += VEC) {
        const int col = i * threads + tid * VEC;
        sum += x[col];
    }
    for (int i = 0; i < HELD; ++i) {
        const bool is_in = tid * HELD + i < cols;
        max = fmaxf(max, x[i]);
    }
    for (int i = 0; i < HELD; ++i) max = fmaxf(max, x[i]);
    const float held_max = max;
    max = 2.0f * max;
    const float other = x[1];
    const int other_place = 1;
    if (other > best) {
        best = other;
        place = other_place;
    }
    y[tid] = sum * __expf(x[0]);
    y[place] = sum * 2.0f;
    float run = 0.0f;
    for (int i = 0; i < HELD; ++i) {
        run += x[i];
        if (i % 2 == 1) atomicAdd(&y[i], run);
    }
}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("at = v * LOADS + i", "`v * LOADS + i` is `v + i * stride`"),
        (
            "is_in = tid",
            "`tid * HELD + i` is `(i / VEC * VEC) * threads + tid * VEC + i % VEC`",
        ),
        ("begin = v * VEC", "`v * VEC` is `head + v * VEC`"),
        ("y[begin] = sum", "`y[begin] = sum;` stands behind `sum += x[v];`"),
        ("each = K", "`K / VEC / slices` is rounded up, and `tid + each * VEC` on line 12 is at most `K`"),
        ("other > best", "`other > best` is `other > best || (other == best && other_place < place)`"),
        ("y[place] = sum", "`sum * 2.0f` is `sum * 2.0f * __expf(held_max - max)`"),
        ("atomicAdd", "`run = 0.0f;` stands behind `atomicAdd(&y[i], run);`"),
    ],
)
def test_statements_and_numbers_that_belong_together_have_edits(text: str, words: str) -> None:
    [line] = [number for number, each in enumerate(NUMBERED.split("\n"), 1) if text in each]
    assert words in {each.words for each in edited(NUMBERED, {*range(100)}).edits if each.line == line}


def test_what_stands_before_all_of_a_loop_is_in_the_loop() -> None:
    made = edited(NUMBERED, {*range(100)})
    number, *_ = [
        each.number
        for each in made.edits
        if each.words.startswith("`sum *= ") and "++i) max" in NUMBERED.split("\n")[each.line - 1]
    ]
    assert re.search(rf"\+\+i\) \{{if\(kata_edit=={number}u\)", made.text)


def test_a_sum_of_other_variables_is_no_formula_for_another() -> None:
    file = NUMBERED.replace("tid * HELD + i < cols", "K * HELD + i < cols")
    assert not any("threads + tid * VEC + i % VEC" in each.words for each in edited(file, {*range(100)}).edits)
