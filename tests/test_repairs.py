"""A wrong kernel -> the line on which a small change of its PTX makes all tried cases right; and that no line is named
where no such change does."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy
import passed_before
import pytest
from facts import has

from grader.compile import source_like as again
from grader.compile.changes import (
    ALL_WAITS,
    EDGE_WORDS,
    OF_CALLS,
    SOURCE_KINDS,
    Change,
    changes_of,
    kernels_of,
    lines_behind,
    never_of,
    origin_of,
    parameter_types,
    without,
)
from grader.compile.edit_writer import Edited
from grader.compile.insertions import exchanged_of, guarded_of, missing_of, moved_of, scaled_of, valued_of
from grader.content.catalog import load_catalog
from grader.content.functions import Code, relatives_of
from grader.content.spec import load_spec
from grader.devices import Finding, Limits
from grader.grade import Options, grade, prepare
from grader.judge import built_variants, repairs
from grader.judge.case import CaseKey
from grader.judge.cause import without_refuted
from grader.judge.comparison import Compared
from grader.judge.lab import Judged
from grader.judge.remainders import fixed_remainders, zero_quotients
from grader.judge.repair_words import Names
from grader.judge.repairs import MOVED_ALONE, SPOILT, UNMOVED, Trial, doubt, in_turn
from grader.verdict import Clue, Kind, Verdict

pytestmark = [passed_before.REPOSITORY, pytest.mark.usefixtures("forked_children")]

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(ROOT)
CASE = SimpleNamespace(shape="n=1")

PTX = """
.file 1 "/a/kata.cu"
.file 2 "/cuda/math.hpp"
.visible .entry k(
	.param .u64 k_param_0,
	.param .u32 k_param_1,
	.param .u32 k_param_2
)
{
	.loc 1 3 0
	ld.param.u32 	%r1, [k_param_1];
	ld.param.u32 	%r2, [k_param_2];
	mov.f32 	%f1, 0f3F800000;
	.loc 1 4 9
	mov.u32 	%r3, %tid.x;
	setp.ge.s32 	%p1, %r3, %r1;
	@%p1 bra 	$L__BB0_2;
	.loc 1 5 9
	add.f32 	%f2, %f1, %f3;
	.loc 2 99 1, function_name $L__info_string0, inlined_at 1 6 5
	max.f32 	%f4, %f2, %f3;
}
"""


def lines(words: str) -> set[int]:
    return {change.line for change in changes_of(PTX, "kata.cu") if words in change.words}


def test_a_change_has_the_line_of_the_file() -> None:
    assert lines("opposite where both sides are equal") == {4}
    assert lines("its maximum is a minimum") == {6}  # a header's function, inlined there
    assert lines("threadIdx.x is threadIdx.y") == {4}
    assert lines("parameter 3 of the kernel is in the place of parameter 2") == {4}


def test_a_member_of_a_struct_is_no_parameter() -> None:
    assert [change for change in changes_of(PTX, "kata.cu") if "parameters 2 and 3" in change.words]
    struct = PTX.replace("[k_param_2]", "[k_param_2+4]")
    named = [change.words for change in changes_of(struct, "kata.cu") if "parameter" in change.words]
    assert named == ["parameter 2 of the kernel is compared with, in the place of another number, on the left"]


def test_a_start_value_belongs_to_the_first_line_that_reads_it() -> None:
    assert lines("the value that it starts from is 0 in place of 1") == {5}


def test_a_change_replaces_its_instructions_alone() -> None:
    text = PTX.split("\n")
    for change in changes_of(PTX, "kata.cu"):
        different = {n for n, (a, b) in enumerate(zip(text, change.applied(text), strict=True)) if a != b}
        assert different == set(change.lines) and different


# As nvcc makes it without optimisation: variables in local memory, a function that is called, inline assembly.
SOURCE_LIKE = """
.file 1 "/a/kata.cu"
.func (.param .b32 func_retval0) twice(
	.param .b32 twice_param_0
)
{
	.loc 1 2 0
	ld.param.f32 	%f1, [twice_param_0];
	.loc 1 3 5
	add.f32 	%f2, %f1, %f1;
	st.param.f32 	[func_retval0+0], %f2;
	ret;
}
.visible .entry a(
	.param .u32 a_param_0
)
{
	.loc 1 5 0
	ld.param.u32 	%r1, [a_param_0];
	.loc 1 6 9
	mov.u32 	%r2, %tid.x;
	.loc 1 7 9
	{
	.reg .pred p;
}
	.loc 1 8 9
	add.s32 	%r3, %r2, 4;
	setp.lt.s32 	%p1, %r3, %r1;
	.loc 1 9 9
	ld.f32 	%f3, [%SP+8];
	ld.f32 	%f4, [%SP+16];
	mul.f32 	%f5, %f3, %f4;
	.loc 1 10 9
	st.f32 	[%SP+8], %f5;
	st.u32 	[%SP+4], %r3;
}
.visible .entry b(
	.param .u32 b_param_0
)
{
	.loc 1 12 0
	ret;
}
"""


def source_like(words: str) -> set[tuple[int, str]]:
    kinds = [kind for step in SOURCE_KINDS for kind in step]
    changes = [change for change in changes_of(SOURCE_LIKE, "kata.cu", kinds) if words in change.words]
    return {(change.line, text.strip()) for change in changes for text in change.lines.values()}


def test_another_variable_is_read() -> None:
    assert (9, "ld.f32 %f4, [%SP+8];") in source_like("a variable or element that it reads is another")


def test_a_variable_is_compared_with_in_the_place_of_a_constant() -> None:
    """Inline assembly does not end the kernel: its lines are known, too."""
    assert (8, "add.s32 %r3, %r2, %r1;") in source_like("parameter 1 of the kernel, in the place of 4")


def test_a_factor_is_missing() -> None:
    assert any(line == 8 and "mul.lo.s32 %r3, %r3, 8;" in text for line, text in source_like("its result is times 8"))


def test_functions_that_are_called_change_too() -> None:
    assert (3, "mul.f32 %f2, %f1, %f1;") in source_like("its sum is a product")


def test_kernels_that_are_not_launched_are_left_out() -> None:
    lines = SOURCE_LIKE.split("\n")
    kept = [line for number, line in enumerate(lines) if number not in {*without(SOURCE_LIKE, [True, False])}]
    assert kept == [*lines[: lines.index(".visible .entry b(")], ""]
    assert not list(without(SOURCE_LIKE, [True]))


# Wrappers of one instruction, inlined into the lines that call them.
WRAPPERS = """
.file 1 "/a/kata.cu"
.visible .entry w(
	.param .u32 w_param_0
)
{
	.loc 1 10 0
	ld.param.u32 	%r1, [w_param_0];
	.loc 1 3 5, function_name $L__info_string0, inlined_at 1 11 9
	cp.async.wait_group 1;
	.loc 1 4 5, function_name $L__info_string1, inlined_at 1 12 9
	mbarrier.try_wait.parity.shared::cta.b64 p, [%r2], %r1;
	.loc 1 5 5, function_name $L__info_string2, inlined_at 1 13 9
	mbarrier.init.shared::cta.b64 [%r2], 1;
	.loc 1 14 9
	shfl.sync.bfly.b32 	%r3|%p1, %r1, 16, 31, 65535;
	.loc 1 15 9
	and.b32  	%r4, %r3, 7;
}
"""


@pytest.mark.parametrize(
    ("line", "words", "text"),
    [
        (11, "the wait leaves 0 groups in flight, not 1", "cp.async.wait_group 0;"),
        (12, "the wait is for the phase of the other parity", "xor.b32 %other, %r1, 1;"),
        (13, "a phase needs 256 arrivals, not 1", "mbarrier.init.shared::cta.b64 [%r2], 256;"),
        (14, "the mask names all 32 lanes", "shfl.sync.bfly.b32 %r3|%p1, %r1, 16, 31, -1;"),
        (15, "the constant is 15 in place of 7", "and.b32 %r4, %r3, 15;"),
    ],
)
def test_what_lanes_and_copies_wait_for_changes(line: int, words: str, text: str) -> None:
    """A wrapper's instruction belongs to the line that calls it, where the learner did not write the wrapper."""
    changes = changes_of(WRAPPERS, "kata.cu", within={*range(10, 16)}, constants={"THREADS": 256})
    found = [change for change in changes if change.line == line and change.words == words]
    assert len(found) == 1
    assert any(text in changed for changed in found[0].lines.values())


def test_one_arrival_is_no_plural() -> None:
    text = WRAPPERS.replace("[%r2], 1;", "[%r2], 128;")
    words = [change.words for change in changes_of(text, "kata.cu", within={13}, kinds=OF_CALLS)]
    assert "a phase needs 1 arrival, not 128" in words and "a phase needs 256 arrivals, not 128" in words


def test_the_wait_that_leaves_most_in_flight_comes_first() -> None:
    text = WRAPPERS.replace("wait_group 1", "wait_group 2")
    words = [change.words for change in changes_of(text, "kata.cu", within={*range(10, 16)}) if change.line == 11]
    fewer = [next(int(part) for part in each.split() if part.isdigit()) for each in words if "in flight" in each]
    assert fewer[:3] == [1, 0, 3]


@pytest.mark.parametrize(
    ("repaired", "stays"),
    [
        ("the wait leaves 1 group in flight, not 2", True),
        ("the wait leaves 0 groups in flight, not 2", False),
        ("", False),
    ],
)
def test_a_wait_that_a_note_proposes_is_that_of_the_repair(repaired: str, stays: bool) -> None:
    note = Clue("copies", "the copy is number 2 from the newest: cp.async.wait_group 1 there would wait for it")
    said = without_refuted([Clue("repair", f"right if on line 7 {repaired}")] if repaired else [], note)
    assert has(said.text, "number 2") and ("wait_group 1" in said.text) == stays
    other = Clue("index", "i = 3")
    assert without_refuted([], other) == other


WHOLE = """
.file 1 "/a/kata.cu"
.visible .entry s(
	.param .u64 s_param_0,
	.param .u32 s_param_1
)
{
	.loc 1 2 0
	ld.param.u64 	%rd1, [s_param_0];
	ld.param.u32 	%r1, [s_param_1];
	.loc 1 3 9
	mov.u32 	%r2, %tid.x;
	.loc 1 4 9
	st.shared.u32 	[%rd1], %r2;
	.loc 1 5 9
	bar.sync 	0;
	.loc 1 6 9
	ld.shared.u32 	%r3, [%rd1+4];
	add.s32 	%r4, %r3, %r2;
	.loc 1 7 9
	st.global.u32 	[%rd1], %r4;
}
"""


PRODUCTS = """
.file 1 "/a/kata.cu"
.visible .entry k()
{
	.loc 1 10 0
	wgmma.fence.sync.aligned;
	.loc 1 11 9
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 %f1, %rd1;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 %f1, %rd2;
	.loc 1 12 9
	wgmma.wait_group.sync.aligned 1;
	.loc 1 13 9
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 %f1, %rd3;
	.loc 1 14 9
	wgmma.commit_group.sync.aligned;
}
"""


def test_a_commit_is_put_behind_the_products_of_a_line() -> None:
    found = missing_of(PRODUCTS, "kata.cu", {11}, [], "the wgmma on line 11 may still read")
    assert found[0].words == "a commit of the wgmma group stands after line 11"
    [text] = found[0].lines.values()
    assert "%rd2" in text
    assert text.endswith("; wgmma.commit_group.sync.aligned;")
    assert not any("commit" in each.words for each in missing_of(PRODUCTS, "kata.cu", {11}, [], "no barrier"))


def test_of_elements_that_nothing_writes_lines_that_compare_are_looked_at() -> None:
    text = "a = b;\nif (a) b();\nlast = old == n - 1;\nfloat4* p = cast<float4*>(x);  // a < b\nc = a ? 1 : 2;"
    assert repairs._deciding(text) == {2, 3, 5}


def test_a_barrier_is_put_between_two_lines() -> None:
    said = "thread (0,0,0) writes it on line 4, thread (1,0,0) reads it on line 6, with no barrier between"
    first = missing_of(WHOLE, "kata.cu", {6}, [6, 4], said)[0]
    assert first.words == "a `__syncthreads()` stands before line 6"
    assert [text.split() for text in first.lines.values()] == [["bar.sync", "0;", "ld.shared.u32", "%r3,", "[%rd1+4];"]]
    assert not missing_of(WHOLE, "kata.cu", {90}, [6, 4], said)


def test_a_barrier_is_put_elsewhere() -> None:
    words = {change.words for change in moved_of(WHOLE, "kata.cu", {4, 5, 6})}
    assert {"the barrier of line 5 is left out", "the barrier of line 5 stands before line 4 instead"} <= words


# As nvcc makes it without optimisation: a loop in a loop, and behind them a function that is inlined.
NESTED = """
.file 1 "/a/kata.cu"
.visible .entry n(
	.param .u64 n_param_0,
	.param .u32 n_param_1
)
{
	.loc 1 10 0
	ld.param.u64 	%rd1, [n_param_0];
	.loc 1 11 9
	mov.u32 	%r9, 0;
	bra.uni 	$L__BB0_1;
$L__BB0_1:
	.loc 1 12 9
	st.shared.u32 	[%rd1], %r9;
	.loc 1 13 9
	bra.uni 	$L__BB0_2;
$L__BB0_2:
	setp.gt.s32 	%p1, %r8, 3;
	@%p1 bra 	$L__BB0_3;
	.loc 1 14 9
	ld.shared.u32 	%r8, [%rd1+4];
	.loc 1 13 30
	bra.uni 	$L__BB0_2;
$L__BB0_3:
	.loc 1 11 30
	add.s32 	%r9, %r9, 1;
	setp.lt.s32 	%p2, %r9, 4;
	@%p2 bra 	$L__BB0_1;
	.loc 1 16 9
	mov.u32 	%r5, %r8;
	.loc 1 3 5, function_name $L__info_string0, inlined_at 1 17 9
	st.global.u32 	[%rd1], %r5;
	.loc 1 17 20
	mov.u32 	%r6, %r5;
	.loc 1 18 9
	st.global.u32 	[%rd1], %r6;
}
"""


def loops_around(ptx: str, within: set[int]) -> dict[str, int]:
    """Where a barrier may be missing, and in how many loops that is."""
    noun = "a `__syncthreads()` stands "
    changes = missing_of(ptx, "kata.cu", within, [*within], "no barrier between")
    return {each.words.removeprefix(noun): each.loops for each in changes if each.words.startswith(noun)}


def test_a_barrier_at_the_end_of_a_loop_is_not_in_the_one_that_it_has_inside() -> None:
    found = loops_around(NESTED, {*range(10, 19)})
    assert found["after the loop of line 13, at the end of the loop of line 11"] == 1
    assert (found["before line 14"], found["before line 13"], found["before line 16"]) == (2, 1, 0)
    [end] = [
        each for each in missing_of(NESTED, "kata.cu", {13}, [13], "no barrier") if "the loop of line 11" in each.words
    ][:1]
    assert ["".join(text.split()) for text in end.lines.values()] == ["bar.sync0;add.s32%r9,%r9,1;"]


def test_a_barrier_is_put_before_the_call_of_an_inlined_function() -> None:
    """Not once more where the line goes on behind the function."""
    [change] = [
        each
        for each in missing_of(NESTED, "kata.cu", {17}, [17], "no barrier")
        if "(" in each.words and "line 17" in each.words
    ][:1]
    assert change.words == "a `__syncthreads()` stands before line 17"
    assert ["".join(text.split()) for text in change.lines.values()] == ["bar.sync0;st.global.u32[%rd1],%r5;"]


def test_the_place_in_the_fewest_loops_is_preferred() -> None:
    code = Code("void f() {\n1;\n2;\n3;\n}\nvoid g() {\n7;\n}\n")
    first = Change(3, "a `__syncthreads()` stands before line 3", {}, loops=2)
    others = [
        Change(2, "a `__syncthreads()` stands before line 2", {}, loops=1),
        Change(4, "a `__syncthreads()` stands before line 4", {}),
        Change(7, "a `__syncthreads()` stands before line 7", {}),  # in another function
        Change(2, "a `__syncwarp()` stands before line 2", {}),
    ]
    assert [each.line for each in repairs._further_out(first, [first, *others], code, [])] == [4, 2]
    assert [each.line for each in repairs._further_out(first, [first, *others], code, [7])] == [4, 7, 2]  # it calls f


def test_a_wait_between_a_product_and_what_reads_its_sums() -> None:
    said = (
        "reads the accumulator of the wgmma on line 117 (called on line 253) before wgmma.wait_group has waited for it"
    )
    finding = Finding(Kind.RACE, said, line=198, callers=(259,))
    assert repairs._between(finding) == {*range(253, 259)}
    later = replace(finding, callers=(250,))  # in a later round of a loop: the wait may be meant for another product
    assert not repairs._between(later) and not repairs._between(replace(finding, message="race"))
    assert not repairs._between(None)


def test_a_wait_for_products_leaves_none() -> None:
    text = (
        ".visible .entry k()\n{\n.loc 1 7 5\nwgmma.wait_group.sync.aligned 1;\n"
        '.loc 1 8 5\nwgmma.wait_group.sync.aligned 0;\nret;\n}\n.file 1 "kata.cu"\n'
    )
    [change] = changes_of(text, "kata.cu", ALL_WAITS)
    assert change.line == 7 and change.words == "the wait leaves 0 groups in flight, not 1"


def test_the_line_is_shown_where_several_numbers_are_the_one_that_changes() -> None:
    change = Change(3, "`2` is `1`", {}, then="for (int i = 0; i < VEC / 2; i += 1)")
    names = Names("\n\n    for (int i = 0; i < VEC / 2; i += 2)\n")
    assert repairs._way(change, names) == "on line 3 `2` is `1`, which gives `for (int i = 0; i < VEC / 2; i += 1)`"
    assert repairs._way(replace(change, then=""), names) == "on line 3 `2` is `1`"
    several = Change(3, "the quotients of lines 3 to 6 are rounded up", {})
    assert repairs._way(several, names) == several.words


def test_a_parity_is_shown_as_it_would_be() -> None:
    names = Names("constexpr int SLOTS = 4;\nwait(&full[s], k % 2);\nwait(&full[k % 3], k % 2);\nwait(s, 3 * k % 2);\n")
    words = "the parity that the wait is for changes once in 4 rounds"
    assert names.named(words, 2) == f"{words}: `k / SLOTS % 2`, not `k % 2`"
    assert names.named(words, 3) == names.named(words, 4) == words


def test_what_a_function_is_given_has_its_parameter_s_name() -> None:
    text = (
        "__device__ float relu(float x) {\n    return x > 0 ? x : 0;\n}\n"
        "__global__ void k(float* y) {\n    f(\n        y[0]);\n}\n"
        "__device__ float of(float x, float z) {\n    return x * z;\n}\n"
    )
    assert Names(text).named("what line 6 reads and 0 are exchanged", 2) == "`x` and 0 are exchanged"
    assert "line 6" in Names(text).named("what line 6 reads and 0 are exchanged", 9)


def test_all_behind_a_line_is_executed_only_where_a_number_of_the_thread_is_small() -> None:
    said = "line 6 and all behind it are executed only where what line 3 computes < parameter 2 of the kernel"
    [change] = [each for each in guarded_of(WHOLE, "kata.cu", {6}, [6], {}) if each.words == said]
    assert "setp.ge.s32 %other, %r2, %limit; @%other ret;" in "".join(change.lines.values())


def test_a_line_gets_a_guard_and_what_it_sets_is_0_without() -> None:
    [change] = [
        each
        for each in guarded_of(WHOLE, "kata.cu", {6}, [6], {})
        if each.words == "line 6 is executed only where what line 3 computes < parameter 2 of the kernel"
    ]
    text = "\n".join(change.lines.values())
    assert "setp.ge.s32 %other, %r2, %limit; @%other bra $other_" in text
    assert "mov.u32 %r4, 0;" in text  # line 7 uses it
    assert "mov.u32 %r3, 0;" not in text


CONSTANTS = """
.file 1 "/a/kata.cu"
.visible .entry c(
	.param .u32 c_param_0
)
{
	.loc 1 5 0
	ld.param.u32 	%r1, [c_param_0];
	.loc 1 6 9
	mul.lo.s32 	%r2, %r1, 64;
	.loc 1 7 9
	add.s32 	%r3, %r2, 256;
	setp.gt.s32 	%p1, %r3, %r1;
	setp.gt.s32 	%p2, %r2, %r1;
	mul.f32 	%f1, %f2, 0f43000000;
}
"""


def test_a_constant_changes_on_all_lines_that_use_it() -> None:
    """Its products change with it."""
    [double] = [each for each in scaled_of(CONSTANTS, "kata.cu", [("STEP", 3, {6, 7})]) if "2 times" in each.words]
    assert (double.line, double.words) == (3, "`STEP` is 2 times as large")
    assert [text.split()[-1] for text in double.lines.values()] == ["128;", "512;"]
    whole = valued_of(CONSTANTS, "kata.cu", [("STEP", 64, 3, [6])])
    assert [each.words for each in whole][:3] == [f"`STEP` is {value} in place of 64" for value in (65, 63, 128)]
    real = valued_of(CONSTANTS, "kata.cu", [("LARGEST", 128.0, 3, [7])])
    assert any("0f42FE0000" in text for each in real for text in each.lines.values())  # 127


MOVES = """
.file 1 "/a/kata.cu"
.visible .entry m(
	.param .u32 m_param_0
)
{
	.loc 1 5 0
	ld.param.u32 	%r1, [m_param_0];
	.loc 1 6 9
	st.u32 	[%SP+0], %r1;
	.loc 1 7 9
	ld.u32 	%r2, [%SP+0];
	st.u32 	[%SP+4], %r2;
	.loc 1 3 5, function_name $L__info_string0, inlined_at 1 8 9
	cp.async.commit_group;
	.loc 1 9 9
	rem.s32 	%r3, %r1, 2;
	.loc 1 4 5, function_name $L__info_string1, inlined_at 1 9 9
	mbarrier.try_wait.parity.shared::cta.b64 p, [%r4], %r3;
	.loc 1 10 9
	st.u32 	[%SP+8], %r3;
	add.s64 	%rd2, %rd1, 256;
	mov.u64 	%rd1, %rd2;
}
"""


def test_two_lines_are_exchanged() -> None:
    [change] = [each for each in exchanged_of(MOVES, "kata.cu", {6, 7}) if each.line == 6]
    assert change.words == "line 7 comes before line 6"
    before = MOVES.split("\n")
    for declared, used in (("const int s = k % 2;", "wait(&full[s], 1);"), ("float* p = q;", "p[0] = 1.0f;")):
        source = "\n" * 5 + f"{declared}\n{used}"
        assert not [each for each in exchanged_of(MOVES, "kata.cu", {6, 7}, source) if each.line == 6]
    for first in ("s = k % 2;", "const int t = k % 2;", "return s;"):
        assert [
            each for each in exchanged_of(MOVES, "kata.cu", {6, 7}, "\n" * 5 + f"{first}\ny = s;") if each.line == 6
        ]
    after = change.applied(before)
    assert sorted(after) == sorted(before)
    assert after.index("\tld.u32 \t%r2, [%SP+0];") < after.index("\tst.u32 \t[%SP+0], %r1;")


def test_a_commit_stands_elsewhere() -> None:
    """That of a wrapper belongs to the line that calls it."""
    words = {each.words for each in moved_of(MOVES, "kata.cu", {*range(5, 11)}, ["the commit"])}
    assert {"the commit of line 8 is left out", "the commit of line 8 stands before line 10 instead"} <= words


def test_a_parity_changes_less_often() -> None:
    changes = changes_of(MOVES, "kata.cu", within={9}, constants={})
    [found] = [each for each in changes if "once in 4 rounds" in each.words]
    assert "div.u32 %other, %r1, 4; and.b32 %other, %other, 1;" in "".join(found.lines.values())


def test_the_step_of_a_loop_changes_by_a_factor() -> None:
    kinds = [kind for step in SOURCE_KINDS for kind in step]
    words = {each.words for each in changes_of(MOVES, "kata.cu", kinds, {10})}
    assert {"the step is 4 times as large", "the step is half as large"} <= words


def test_comparisons_are_turned_one_at_a_time() -> None:
    kinds = [kind for step in SOURCE_KINDS for kind in step]
    turned = [each for each in changes_of(CONSTANTS, "kata.cu", kinds) if "comparison is the other" in each.words]
    assert [len(each.lines) for each in turned] == [1, 1]


PARTS = """
.file 1 "/a/kata.cu"
.visible .entry p(
	.param .u32 p_param_0
)
{
	.loc 1 2 0
	ld.param.u32 	%r1, [p_param_0];
	.loc 1 3 9
	mov.u32 	%r2, %tid.x;
	shr.u32 	%r3, %r2, 5;
	.loc 1 4 9
	and.b32 	%r4, %r2, 31;
	.loc 1 5 9
	add.s32 	%r5, %r3, %r4;
	setp.ge.s32 	%p1, %r5, %r1;
	@%p1 bra 	$L__BB0_2;
	.loc 1 6 9
	mul.lo.s32 	%r6, %r5, 64;
$L__BB0_2:
}
"""


def test_a_number_that_its_line_goes_on_with_is_not_called_its_result() -> None:
    [kernel] = kernels_of(PARTS, "kata.cu")
    assert origin_of(kernel, "%r2") == "a number of line 3"
    assert (origin_of(kernel, "%r3"), origin_of(kernel, "%r5")) == ("what line 3 computes", "what line 5 computes")


def test_indices_that_are_exchanged_are_named() -> None:
    words = {each.words for each in changes_of(PARTS, "kata.cu") if each.line == 5}
    assert "what line 3 computes and what line 4 computes are exchanged" in words
    assert "a number that it uses is what line 4 computes, in the place of what line 3 computes" in words


def test_a_constant_is_no_other_that_has_nothing_to_do_with_it() -> None:
    kinds = [kind for step in SOURCE_KINDS for kind in step]
    constants = {"STEP": 64, "STEPS": 96, "MOST": 8192}
    relatives = relatives_of("constexpr int STEP = 64;\nconstexpr int STEPS = STEP + 32;\nconstexpr int MOST = 8192;\n")
    for known, found in (({}, {96, 8192}), (relatives, {96})):
        words = [each.words for each in changes_of(PARTS, "kata.cu", kinds, {6}, constants, known)]
        numbers = {int(said[1]) for each in words if (said := re.search(r"constant is (\d+) in", each))}
        assert numbers & {96, 8192} == found


def test_the_return_of_a_line_is_left_out() -> None:
    changes = never_of(PARTS, "kata.cu", 5)
    assert {"".join(change.lines.values()).strip() for change in changes} == {"", "bra $L__BB0_2;"}
    assert {change.words for change in changes} == {"line 5 is left out"}
    assert never_of(PARTS, "kata.cu", 6) == []


def test_words_have_the_names_of_the_file() -> None:
    names = Names(
        "__global__ void s(int* x,\n                  int n) {\n    const int i = threadIdx.x;\n"
        "    if (i <= n) x[i] =\n        i;\n}\n"
    )
    edge = "the comparison gives the opposite where both sides are equal"
    assert names.named(edge, 4) == "`<=` is `<`"
    with_number = Names("__global__ void s(int n) {\n    if (n < 2) n = 0;\n    if (n <= 1) n = 0;\n}\n")
    turned = "the comparison with 1 is the other way round"  # of compiled code: the first line is skipped where n > 1
    assert (with_number.named(turned, 2), with_number.named(turned, 3)) == ("the comparison is another", "`<=` is `>=`")
    edge_of_1 = edge.replace("comparison", "comparison with 1")
    assert with_number.named(edge_of_1, 2) == "the comparison is off by one"
    assert with_number.named(edge_of_1, 3) == "`<=` is `<`"
    computed = "the constant is 3 in place of 2"
    assert not with_number.has_number("the constant is 9 in place of 8", 2)
    assert with_number.has_number(computed, 2) and not with_number.has_number(computed, 3)
    assert names.named("parameter 2 of the kernel", 1) == names.named("parameter 2 of the kernel", 4) == "`n`"
    assert names.named("a number that it uses is what line 3 computes", 4) == "it uses `i` (line 3)"
    assert names.named("what line 6 computes", 4) == "what line 6 computes"
    size = "its product with a power of two is 4 times as large"  # of an element, where the line has no product
    pointers = Names("const float4 a = *reinterpret_cast<const float4*>(x + i);\nx[4 * i] = 0;\n")
    assert pointers.named(size, 1) == "an offset that it computes is 4 times as large"
    assert pointers.named(size, 2) == size
    assert names.named("a barrier stands before line 5", 5) == "a barrier stands before line 4"


ALONE = Options(device="sim", last_failure=False)
TOGETHER = replace(ALONE, together=True)


def spoilt(name: str, right: str, by: str, folder: Path) -> tuple[Path, int]:
    """A solution with one mistake, and the line of that."""
    text = CATALOG.katas[name].solution_path.read_text()
    assert text.count(right) == 1
    file = folder / f"{name}.cu"
    file.write_text(text.replace(right, by))
    return file, text[: text.index(right)].count("\n") + 1


@pytest.fixture(autouse=True)
def without_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests plant in solutions, a comparison with the solution would find before all that is tested here."""
    monkeypatch.setattr(again, "towards", lambda text, solution, without: Edited(text, ()))
    monkeypatch.setattr(built_variants, "variants", lambda text, solution: ("", []))


def wrong(
    name: str, right: str, by: str, tmp_path: Path, kind: Kind = Kind.WRONG_ANSWER, options: Options = ALONE
) -> tuple[Verdict, int]:
    """The verdict on a solution with one mistake, and the line of that."""
    file, line = spoilt(name, right, by, tmp_path)
    [verdict] = grade(CATALOG.katas[name], options, source=file).verdicts
    assert verdict.kind is kind
    return verdict, line


@pytest.fixture(scope="module")
def compiled_together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Few runs of nvcc for the files of all tests that are found in the code that runs, or in the launcher: of files
    that share a unit there is no other code."""
    work = []
    for item in request.session.items:
        if item.path == request.path and "compiled_together" in getattr(item, "fixturenames", ()):
            name, right, by = (item.callspec.params[each] for each in ("name", "right", "by"))  # type: ignore[attr-defined]
            work.append((CATALOG.katas[name], spoilt(name, right, by, tmp_path_factory.mktemp("together"))[0]))
    prepare(work, TOGETHER)


def of_repair(verdict: Verdict) -> str:
    return "\n".join(clue.text for clue in verdict.clues if clue.about == "repair")


@pytest.mark.parametrize(
    ("name", "right", "by", "facts"),
    [
        ("scan_block_kogge_i32", "if (tid >= offset)", "if (tid > offset)", ["`>` is `>=`"]),
        ("elementwise_f32x4", "a4.y + b4.y", "a4.y + b4.x", ["`.x` is `.y`"]),
        ("reduce_shuffle_f32", "lane_id < WARPS ?", "lane_id < WARPS / 2 ?", ["the constant is", "in place of"]),
        ("safe_softmax_f32", "float max = -INFINITY", "float max = 0.0f", ["starts from", "-inf in place of 0"]),
        ("scan_warp_i32", "__shfl_up_sync", "__shfl_xor_sync", ["`up` in place of `xor`"]),
    ],
)
@pytest.mark.usefixtures("compiled_together")
def test_the_line_is_named(name: str, right: str, by: str, facts: list[str], tmp_path: Path) -> None:
    verdict, line = wrong(name, right, by, tmp_path, options=TOGETHER)
    said = of_repair(verdict)
    assert has(said, *facts, "cases that were tried are right")
    named = int(re.findall(r"on line (\d+)", said)[0])
    assert 0 <= named - line <= 2  # a value that a variable starts from is named where it is first read


def test_a_return_that_is_too_much_is_named(tmp_path: Path) -> None:
    """A change of its condition with which it never holds is right, too, and says less."""
    right = "    float sum = 0.0f;\n"
    verdict, line = wrong("reduce_shuffle_f32", right, f"    if (first >= n) return;\n{right}", tmp_path)
    assert has(of_repair(verdict), f"line {line} is left out")


def test_a_usual_mistake_has_its_line(tmp_path: Path) -> None:
    """What the kernel is given and uses nowhere is tried as a term."""
    verdict, line = wrong("rms_norm_f32", "/ cols + eps)", "/ cols)", tmp_path)
    assert [clue.text for clue in verdict.clues if clue.about == "formula" and "without eps" in clue.text]
    assert has(of_repair(verdict), f"on line {line}", "/ cols + eps`")


def test_a_change_that_is_right_for_some_values_alone_is_not_named(tmp_path: Path) -> None:
    """Without the maximum in either place the quotients are right, until an exponential overflows."""
    verdict, _ = wrong("safe_softmax_f32", "__expf(x_row[col] - max) * scale", "__expf(x_row[col]) * scale", tmp_path)
    assert of_repair(verdict) == ""


@pytest.mark.parametrize(
    ("name", "right", "by"), [("index_add_few_f32", "first + lane_id < n &&", "first + lane_id < n - 1 &&")]
)
@pytest.mark.usefixtures("compiled_together")
def test_a_usual_mistake_must_be_that_of_larger_cases_too(name: str, right: str, by: str, tmp_path: Path) -> None:
    """With one index, to leave out the last is to add nothing; with more it is not."""
    verdict, line = wrong(name, right, by, tmp_path, options=TOGETHER)
    assert not [clue for clue in verdict.clues if clue.about == "formula"]
    assert has(of_repair(verdict), f"on line {line}", "`<` is `<=`")


@pytest.mark.parametrize(
    ("name", "right", "by"),
    [("rope_f32", "make_float2(x.x * cosine - x.y * sine,", "make_float2(x.x * cosine + x.y * sine,")],
)
@pytest.mark.usefixtures("compiled_together")
def test_the_second_of_two_sums_on_a_line_changes_alone(name: str, right: str, by: str, tmp_path: Path) -> None:
    """The compiler repeats the line for eight rows, and each has a difference and a sum."""
    verdict, line = wrong(name, right, by, tmp_path, options=TOGETHER)
    assert has(of_repair(verdict), f"on line {line}", "its product is subtracted")


@pytest.mark.parametrize(
    ("name", "right", "by", "facts"),
    [
        ("dot_product_f16x2_f32", "a2.y * b2.y", "a2.y * b2.x", ["`b2.x` is `b2.y`"]),
        ("hardswish_f16x8_pack", "for (int i = idx; i < n", "for (int i = idx + 1; i < n", ["0 in place of 1"]),
        ("rope_f32", "position[row], freq)", "position[first_row], freq)", ["`first_row` is `row`"]),
    ],
)
def test_the_line_is_named_by_code_close_to_the_source(
    name: str, right: str, by: str, facts: list[str], tmp_path: Path
) -> None:
    """What the compiler merged, unrolled or moved out of a loop has no single instruction that could be changed."""
    verdict, line = wrong(name, right, by, tmp_path)
    assert has(of_repair(verdict), f"on line {line}", *facts)


@pytest.mark.parametrize(
    ("name", "right", "by", "kind", "facts"),
    [
        (
            "index_add_few_f32",
            "first + __ffs(named) - 1",
            "first + __ffs(named)",
            Kind.OUT_OF_BOUNDS,
            ["0 in place of 1"],
        ),
        (
            "wgmma_ring_tn_f16",
            "min(AHEAD, slices)",
            "min(AHEAD - 1, slices)",
            Kind.DEADLOCK,
            ["3 (`AHEAD`) in place of 2"],
        ),
    ],
)
@pytest.mark.usefixtures("compiled_together")
def test_the_line_at_fault_is_named_where_a_finding_has_another(
    name: str, right: str, by: str, kind: Kind, facts: list[str], tmp_path: Path
) -> None:
    verdict, line = wrong(name, right, by, tmp_path, kind, TOGETHER)
    said = of_repair(verdict)
    assert has(said, *facts)
    assert 0 <= int(re.findall(r"on line (\d+)", said)[0]) - line <= 2


@pytest.mark.parametrize(
    ("name", "right", "by", "facts"),
    [
        ("histogram_i32", "cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);", "", ["counts", "set to 0"]),
        (
            "scan_lookback_i32",
            "states, 0, (tiles + 1)",
            "states, 0, tiles",
            ["cudaMemsetAsync", "4 more bytes"],
        ),
        ("histogram_i32x4_grid_stride", "(counts, 0, bins *", "(counts, 0, n *", ["about bins elements of 4 bytes"]),
    ],
)
@pytest.mark.usefixtures("compiled_together")
def test_what_the_launcher_sets_is_named(name: str, right: str, by: str, facts: list[str], tmp_path: Path) -> None:
    kinds = {"scan_lookback_i32": Kind.UNINITIALISED}
    verdict, _ = wrong(name, right, by, tmp_path, kinds.get(name, Kind.WRONG_ANSWER), TOGETHER)
    assert has(of_repair(verdict), *facts)


@pytest.mark.parametrize(
    ("name", "right", "by", "facts"),
    [
        ("scale_f32", "(x, y, n, a);", "(x, y, a, n);", ["argument 3", "is n", "argument 4", "is a"]),
        ("rms_norm_f32_held", "<<<rows, warps * WARP_SIZE", "<<<rows, warps", ["block", "32 times as many threads"]),
        ("rope_f32x4_pack", "std::log2(static_cast", "std::log(static_cast", ["log2_step", "times log2(e)"]),
    ],
)
def test_what_the_launcher_gives_a_kernel_is_named(
    name: str, right: str, by: str, facts: list[str], tmp_path: Path
) -> None:
    kinds = {"scale_f32": Kind.OUT_OF_BOUNDS, "rms_norm_f32_held": Kind.UNINITIALISED}
    verdict, _ = wrong(name, right, by, tmp_path, kinds.get(name, Kind.WRONG_ANSWER))
    assert has(of_repair(verdict), *facts)


@pytest.mark.parametrize(
    ("name", "right", "by", "kind", "facts"),
    [
        ("reduce_shuffle_f32", "    __syncthreads();\n", "", Kind.RACE, ["`__syncthreads()`", "before line"]),
        (  # in the loop before the one that is found, at its end
            "reduce_unroll_last_warp_f32",
            "        __syncthreads();\n    }\n    if (tid < WARP_SIZE)",
            "    }\n    if (tid < WARP_SIZE)",
            Kind.RACE,
            ["`__syncthreads()`", "after line", "at the end of the loop of line"],
        ),
        (
            "scan_block_brent_i32",
            "if (i < cols) sums_smem[padded(i)] += sums_smem[padded(i - offset)];\n    }\n    // END TODO(2)",
            "sums_smem[padded(i)] += sums_smem[padded(i - offset)];\n    }\n    // END TODO(2)",
            Kind.UNINITIALISED,
            ["executed only where `i`", "< `cols`"],
        ),
        (
            "reduce_sequential_f32",
            "        if (tid < offset) partial_smem[tid] += partial_smem[tid + offset];\n"
            "        // The next step reads what this one wrote.\n        __syncthreads();\n",
            "        if (tid < offset) {\n            partial_smem[tid] += partial_smem[tid + offset];\n"
            "            __syncthreads();\n        }\n",
            Kind.DEADLOCK,
            ["the barrier of line", "instead"],
        ),
        # Not the comparison of the line before, which is as nvcc made it of both.
        (
            "relu_f16x2",
            "for (int i = idx; i < n; ++i) y[i] = relu(x[i]);",
            "if (n - idx < VEC) {\n        y[idx] = relu(x[idx]);\n    }",
            Kind.OUT_OF_BOUNDS,
            ["is executed only where `idx`", "< `n`"],
        ),
        (
            "scale_f32",
            "blockIdx.x * blockDim.x",
            "blockIdx.x * gridDim.x",
            Kind.RACE,
            ["`gridDim.x` is `blockDim.x`"],
        ),
        ("quant_int8_token_bf16", "F = 127.0f", "F = 128.0f", Kind.WRONG_ANSWER, ["`INT8_MAX_F` is 127"]),
        ("swish_f16x8_pack", "swish(x2.y));", "swish(x2.x));", Kind.WRONG_ANSWER, ["`x2.x` is `x2.y`"]),
        ("hardswish_f32x4", "(1.0f / 6.0f)", "(1 / 6)", Kind.WRONG_ANSWER, ["`1 / 6`", "whole numbers", "0"]),
        (
            "upsample_nearest2d_backward_f32",
            "(row * OH + H - 1) / H;\n    const int64_t end_q = ((row + 1) * OH + H - 1) / H;",
            "row * OH / H;\n    const int64_t end_q = (row + 1) * OH / H;",
            Kind.WRONG_ANSWER,
            ["its quotient is rounded up, and on line"],
        ),
    ],
)
def test_what_is_missing_or_stands_elsewhere_is_named(
    name: str, right: str, by: str, kind: Kind, facts: list[str], tmp_path: Path
) -> None:
    verdict, _ = wrong(name, right, by, tmp_path, kind)
    assert has(of_repair(verdict), *facts)


@pytest.mark.parametrize(
    ("name", "right", "by", "kind", "facts"),
    [
        (
            "scale_f32",
            "blockIdx.x * blockDim.x + threadIdx.x",
            "threadIdx.x * blockDim.x + blockIdx.x",
            Kind.WRONG_ANSWER,
            ["threadIdx.x and blockIdx.x are exchanged"],
        ),
        ("warp_reduce_sum_f32", "FULL_MASK = 0xffffffff", "FULL_MASK = 0xffff", Kind.DEADLOCK, ["all 32 lanes"]),
    ],
)
@pytest.mark.usefixtures("compiled_together")
def test_what_threads_are_numbered_and_masked_by_is_named(
    name: str, right: str, by: str, kind: Kind, facts: list[str], tmp_path: Path
) -> None:
    verdict, _ = wrong(name, right, by, tmp_path, kind, TOGETHER)
    assert has(of_repair(verdict), *facts)


def test_more_blocks_are_not_named_where_the_kernel_leaves_elements_out(tmp_path: Path) -> None:
    right = "const int idx = blockIdx.x * THREADS + threadIdx.x;\n    if ("
    by = "const int idx = blockIdx.x * (THREADS - 1) + threadIdx.x;\n    if (threadIdx.x < THREADS - 1 && "
    verdict, _ = wrong("elementwise_f32", right, by, tmp_path)
    assert "grid" not in of_repair(verdict)


@pytest.mark.parametrize(("name", "right", "by"), [("tma_transpose_f32", "matrix_map(y, N, M,", "matrix_map(y, M, N,")])
@pytest.mark.usefixtures("compiled_together")
def test_a_number_of_a_tensor_map_is_named(name: str, right: str, by: str, tmp_path: Path) -> None:
    verdict, line = wrong(name, right, by, tmp_path, options=TOGETHER)
    assert has(of_repair(verdict), f"on line {line}", "rows and columns of y_map", "exchanged")


def test_two_places_are_named_where_each_makes_more_elements_right(tmp_path: Path) -> None:
    right = "a4.y + b4.y, a4.z + b4.z, a4.w + b4.w"
    verdict, line = wrong("elementwise_f32x4", right, "a4.y + b4.x, a4.z + b4.z, a4.w - b4.w", tmp_path)
    assert has(of_repair(verdict), f"on line {line}", "and on line", "its difference is a sum")


def test_lines_behind_an_access_are_known() -> None:
    assert lines_behind(SOURCE_LIKE, "kata.cu", [10]) == {6, 8, 9, 10}


def test_types_of_parameters_are_known() -> None:
    struct = ".visible .entry b(\n\t.param .align 64 .b8 b_param_0[128],\n\t.param .f32 b_param_1\n)\n{\n}"
    assert parameter_types(PTX + struct) == [("u64", "u32", "u32"), ("b8", "f32")]


@pytest.mark.parametrize(
    ("name", "right", "by"),
    [("fp8_block_gemm", "(blocks_n * SCALED - 1) / BLOCK_N + 1;", "blocks_n * SCALED / BLOCK_N;")],
)
@pytest.mark.usefixtures("compiled_together")
def test_few_shapes_whose_grid_is_empty_name_no_other_grid(name: str, right: str, by: str, tmp_path: Path) -> None:
    """Six cases fail. A grid that follows another size is right in all of them, by chance. No kernel runs."""
    verdict, line = wrong(name, right, by, tmp_path, Kind.LAUNCH_FAILED, TOGETHER)
    [index] = [clue.text for clue in verdict.clues if clue.about == "index"]
    assert has(index, "tiles_n", "= 0", f"line {line}") and not of_repair(verdict)


@pytest.mark.parametrize(
    ("name", "right", "by", "most", "options"),
    [
        ("scan_block_kogge_i32", "if (tid >= offset)", "if (tid > offset)", repairs.FEWEST - 1, TOGETHER),
        (
            "upsample_nearest2d_backward_f32",
            "first_o = (col * OW",
            "first_o = (col * OH",
            repairs.EDIT_CASES - 1,
            ALONE,
        ),
    ],
)
def test_a_few_cases_prove_nothing(
    name: str, right: str, by: str, most: int, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a change nor an edit, which other tests see named where there is one case more."""
    all_of = repairs._cases
    monkeypatch.setattr(repairs, "_cases", lambda lab, failed: all_of(lab, failed)[:most])
    monkeypatch.setattr(repairs, "_failing", lambda trial, cases: iter(()))
    verdict, _ = wrong(name, right, by, tmp_path, options=options)
    assert of_repair(verdict) == ""


@pytest.mark.parametrize(
    ("name", "right", "by", "fact"),
    [
        ("upsample_nearest2d_backward_f32", "first_o = (col * OW", "first_o = (col * OH", "`OH` is `OW`"),
        # With wgmma, of few cases: the others are such as fail.
        (
            "wgmma_multicast_tn_f16",
            "B[turn.s][rank * PART_N * BLOCK_K]",
            "B[turn.s][rank * PART_N]",
            "`rank * PART_N` is `rank * PART_N * BLOCK_K`",
        ),
        # A right call takes more than the one that a finding ends.
        (
            "sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf_async",
            "inside ? &X[(off_row + row) * cols",
            "inside ? &X[(off_row + row) * COLS",
            "`COLS` is `cols`",
        ),
        ("tma_transpose_swizzle_f32", "x_smem[b][r][place_of(r, c)]", "x_smem[b][r][c]", "`c` is `place_of(r, c)`"),
        (
            "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_swizzle",
            '"r"(a[0]), "r"(a[1]), "r"(a[2])',
            '"r"(a[0]), "r"(a[2]), "r"(a[1])',
            "`a[2]` and `a[1]` are exchanged",
        ),
        ("hgemv_k2048_f16x8_pack_split_k", "row * slices + i", "i * M + row", "`i * M + row` is `row * slices + i`"),
        # Vectors that follow each other, where they are a stride apart; a place that is counted from a later one.
        ("dot_product_f16x8_pack_f32", "v + i * stride", "v * LOADS + i", "`v * LOADS + i` is `v + i * stride`"),
        (
            "ce_backward_bf16",
            "head + (v + i * THREADS) * VEC",
            "(v + i * THREADS) * VEC",
            "`(v + i * THREADS) * VEC` is",
        ),
        ("wgmma_ring_tn_f16", "m * MMA_M * BLOCK_K", "m * MMA_M", "`m * MMA_M` is `m * MMA_M * BLOCK_K`"),
        # What a shuffle gives to the lanes that it does not reach, a magnitude, a part of a swizzle, no elements.
        (
            "scan_warp_i32",
            "sum, offset);\n        if (lane_id >= offset) sum += below;",
            "sum, offset);\n        sum += below;",
            "`__shfl_up_sync(FULL_MASK, sum, offset)` is 0 in lanes below `offset`",
        ),
        ("rms_norm_quant_fp8", "fmaxf(amax, fabsf(element))", "fmaxf(amax, element)", "`element` is `fabsf(element)`"),
        ("mat_trans_f32_tiled_swizzled", "tile_smem[tx][i ^ tx]", "tile_smem[tx][i + tx]", "`i + tx` is `i ^ tx`"),
        ("online_safe_softmax_f32", "return {-FLT_MAX, 0.0f};", "return {0.0f, 0.0f};", "`0.0f` is `-FLT_MAX`"),
        (
            "ce_online_bf16",
            "    mine.sum *= __expf(mine.max - max);\n",
            "",
            "`mine.sum *= __expf(mine.max - max);` stands",
        ),
    ],
)
def test_an_edit_of_the_source_makes_all_right(name: str, right: str, by: str, fact: str, tmp_path: Path) -> None:
    kinds = {
        "wgmma_multicast_tn_f16": Kind.RACE,
        "sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf_async": Kind.OUT_OF_BOUNDS,
        "mat_trans_f32_tiled_swizzled": Kind.UNINITIALISED,
    }
    verdict, line = wrong(name, right, by, tmp_path, kinds.get(name, Kind.WRONG_ANSWER))
    assert f"on line {line} {fact}" in of_repair(verdict)


@pytest.mark.parametrize(
    ("name", "right", "by", "facts"),
    [
        # The TODO asks for a name that its code lacks.
        ("dot_product_f16x8_pack_f32", "v + i * stride", "v + i * THREADS", ["`THREADS` is `stride`"]),
        # A comparison with nan is false.
        ("warp_reduce_max_f32", "if (a > b || isnan(a)) larger", "if (!(a <= b)) larger", ["&& !isnan(b)"]),
        # nvcc compares with 127, which the line does not have.
        (
            "reduce_unroll_last_warp_f32",
            "offset > WARP_SIZE; offset",
            "offset >= WARP_SIZE; offset",
            ["`offset >= WARP_SIZE` is `offset > WARP_SIZE`"],
        ),
        # No comparison of the lane with itself.
        (
            "warp_reduce_max_f32",
            "    y[idx] = warp_reduce_max",
            "    if (lane_id == 0) y[idx] = warp_reduce_max",
            ["the condition `lane_id == 0` is left out"],
        ),
        # Of a product of three, which one is too much.
        ("gelu_f32", "fmaf(0.044715f * x, x, 1.0f)", "fmaf(0.044715f, x * x * x, 1.0f)", ["is `x * x` alone"]),
        # A step that takes two loads, where one of each would be right, too.
        ("dot_product_f16x8_pack_f32", "v += LOADS * stride", "v += stride", ["`stride` is `stride * LOADS`"]),
        # A distance of 32 would leave the shuffle out, and the constant would not say so.
        ("quant_fp8_block_bf16", "offset = LANES / 2", "offset = LANES", ["is 8 in place of 16"]),
    ],
)
def test_what_the_text_asks_for_is_tried_first(
    name: str, right: str, by: str, facts: list[str], tmp_path: Path
) -> None:
    verdict, line = wrong(name, right, by, tmp_path, Kind.DEADLOCK if "lane_id == 0" in by else Kind.WRONG_ANSWER)
    assert has(of_repair(verdict), f"on line {line}", *facts)


def test_the_instance_that_ran_is_the_one_that_is_changed(tmp_path: Path) -> None:
    """The file has four kernels, and one of them is launched: the others are left out of changed code."""
    right = "    const float mine = exp2_approx(part.max - max);\n"
    verdict, line = wrong("decode_attention_kv_cache_f16", right, f"    part.max = max;\n{right}", tmp_path)
    assert f"line {line + 1} comes before line {line}" in of_repair(verdict)


class Fake(Trial):
    """Calls that are not made: what is said of them is."""

    wrong_cases: tuple[str, ...] = ()
    going_round: tuple[tuple[int, int], ...] = ()

    def call(self, key: object, ptx: object, prepared: object = None, **more: object) -> tuple[object, object]:  # type: ignore[override]
        coverage = [SimpleNamespace(lines=((5, 1),), loops=self.going_round)]
        return key, SimpleNamespace(findings=(), executed=10, coverage=coverage, outputs={})


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A trial with two named shapes; a case is wrong where it says so."""
    values = (SimpleNamespace(name="normal"),)
    spec = SimpleNamespace(named_sizes=({"n": 8}, {"n": 900}), work=lambda sizes: sizes["n"], values=values)
    lab = SimpleNamespace(kata=None, spec=spec, limits=Limits())
    made = Fake(lab, None, tmp_path, "kata.cu", PARTS, Kind.WRONG_ANSWER, wrong=1)  # type: ignore[arg-type]
    monkeypatch.setattr(repairs, "allowed", lambda kata, sizes: True)
    monkeypatch.setattr(CaseKey, "of", lambda spec, sizes, values, seed: f"n={sizes['n']}")
    monkeypatch.setattr(
        repairs,
        "judged",
        lambda case, outcome: SimpleNamespace(
            wrong=case in made.wrong_cases, wrong_count=int(case in made.wrong_cases)
        ),
    )
    monkeypatch.setattr(repairs, "doubt", lambda first, now: 0.0)
    made.calls["failing"] = None  # type: ignore[index,assignment]
    return made


def test_a_change_that_larger_cases_refute_is_not_named(fake: Fake) -> None:
    """It makes the failing case right, and the others that were tried."""
    fake.least, fake.larger = 2, []
    changes = [Change(6, "its product is a sum", {20: ""})]
    assert [*repairs._right_ones(fake, changes, ["failing", "other"])] == changes  # type: ignore[list-item]
    fake.wrong_cases = ("n=900",)
    assert [*repairs._right_ones(fake, changes, ["failing", "other"])] == []  # type: ignore[list-item]
    fake.wrong_cases, fake.larger = ("n=257",), ["n=257"]  # type: ignore[list-item]
    assert [*repairs._right_ones(fake, changes, ["failing", "other"])] == []  # type: ignore[list-item]


def test_a_larger_case_that_fails_too_is_looked_for() -> None:
    """As large as the spec draws a size, with each kind of values: 257 bins are wrong, and 300 in another way."""
    kata = CATALOG.katas["histogram_i32_privatized"]
    spec = load_spec(kata)
    lab = SimpleNamespace(kata=kata, spec=spec)
    key = CaseKey.of(spec, {"n": 1024, "bins": 257}, "runs", 1)
    found = [*repairs._at_most(lab, key, "bins")]  # type: ignore[arg-type]
    assert [dict(each.sizes) for each in found] == [{"n": 1024, "bins": 300}] * len(spec.values)
    assert [each.values for each in found] == [each.name for each in spec.values]


def test_a_change_that_ends_a_loop_early_is_not_named(fake: Fake) -> None:
    """The loop of line 5 goes round in the failing case: with the change it does in none."""
    fake.repeated = frozenset({5})
    assert not fake.stays_right(PARTS.split("\n"))
    fake.going_round = ((5, 1),)  # it is come to
    assert not fake.stays_right(PARTS.split("\n"))
    fake.going_round = ((5, 2),)
    assert fake.stays_right(PARTS.split("\n"))


def test_a_condition_is_left_out_where_that_is_right_too(fake: Fake) -> None:
    fake.source = "void f(int n) {\n\n\n\n    if (i >= n) return;\n    x = i * 64;\n}\n"
    fake.least = 1
    other = Change(5, "it uses what line 3 computes", {})
    said = [repairs._left_out(fake, each, ["failing"], 10) for each in (other, replace(other, line=6))]  # type: ignore[list-item]
    assert [each and each.words for each in said] == ["line 5 is left out", None]
    assert repairs._left_out(fake, replace(other, words=f"the comparison {EDGE_WORDS}"), ["failing"], 10) is None  # type: ignore[list-item]
    fake.wrong_cases = ("failing",)
    assert repairs._left_out(fake, other, ["failing"], 10) is None  # type: ignore[list-item]


def test_what_a_constant_counts_is_not_reduced_to_one(fake: Fake) -> None:
    fake.source = (
        "constexpr int LOADS = 2;\nuint4 held[LOADS];\nfor (int i = 0; i < LOADS; ++i) {\n"
        "i + 2 * LOADS;\nfor (int i = 0; i < n; ++i) {\nx = 1;\n"
    )

    def leaves_one(line: int, new: int, value: int) -> bool:
        return fake.leaves_one(Change(line, f"the constant is {new} in place of {value}", {}))

    assert leaves_one(3, 1, 2) and leaves_one(3, 2, 1)  # one round of the loop is left
    assert not leaves_one(3, 4, 2) and not leaves_one(5, 2, 1) and not leaves_one(6, 0, 1)
    assert not leaves_one(4, 1, 2)  # the number itself stands there
    fake.least = 1
    assert [*repairs._right_ones(fake, [Change(3, "the constant is 1 in place of 2", {5: ""})], ["failing"])] == []  # type: ignore[list-item]


def test_a_comparison_with_itself_is_none() -> None:
    itself = Change(5, "it uses `lane` in the place of 0", {9: "\tsetp.eq.s32 %p5, %r1, %r1;"})
    other = replace(itself, lines={9: "\tsetp.eq.s32 %p5, %r1, %r2;"})
    assert repairs._is_of_itself(itself) and not repairs._is_of_itself(other)


def test_of_several_values_that_are_right_none_is_said() -> None:
    found = [Change(4, f"`k / 2` is `k * {name}`", {}) for name in ("A", "B", "C")]
    assert repairs._specific(found[0], found[:2]) == found[0]
    assert repairs._specific(found[0], found).words == "`k / 2` has another value"


def test_a_statement_that_may_stand_in_several_places_is_said_once() -> None:
    at_4, at_5 = (Change(line, f"`m = all(m);` stands behind `line {line}`", {}) for line in (4, 5))
    other = Change(6, "`warp(m)` is `all(m)`", {})
    assert repairs._once([at_5, at_4]) == [at_5]
    assert repairs._once([at_4, other, at_5]) == [other]


def test_words_of_registers_are_vague_and_those_of_the_file_are_not() -> None:
    for words in ("every step or factor is half as large", "an argument is 1 more", "it uses what line 4 reads"):
        assert repairs._VAGUE.search(words)
    for words in ("`<` is `<=`", "it uses `row` (line 4), in the place of `col`", "the constant is 2 in place of 1"):
        assert not repairs._VAGUE.search(words)


def test_a_loop_s_variable_is_not_replaced_in_its_own_head() -> None:
    trial = replace(trial_of(), source="int all = 4;\nfor (int i = 0; i < n; i += all) {\nx = i;\nint i = 0;\n}\n")
    words = "a number that it uses is what line 1 computes, in the place of what line {} computes"
    assert trial.replaces_counter(Change(2, words.format(2), {}))
    assert not trial.replaces_counter(Change(3, words.format(4), {}))


def test_more_cases_are_called_as_long_as_instructions_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit below 0 would be none at all."""
    spec = SimpleNamespace(
        named_sizes=[{"n": n} for n in range(9)], work=lambda sizes: 1, values=[SimpleNamespace(name="")]
    )
    late = SimpleNamespace(executed=repairs.LARGE_INSTRUCTIONS + 1, findings=[SimpleNamespace(kind=Kind.TIME_OUT)])
    called = []
    lab = SimpleNamespace(spec=spec, kata=None, limits=Limits())
    monkeypatch.setattr(repairs, "allowed", lambda kata, sizes: True)
    monkeypatch.setattr(repairs.CaseKey, "of", lambda *_: "")
    monkeypatch.setattr(Trial, "call", lambda self, *_, limits: (None, called.append(limits.instructions) or late))
    assert replace(trial_of(), lab=lab).more_are_right(None) and called == [repairs.LARGE_INSTRUCTIONS]


def test_a_remainder_that_is_always_0_is_known() -> None:
    text = """\
constexpr int STEP = 8;
for (int k = 0; k < n; k += STEP) {
    const int stage = k % 2;
    const int other = k / STEP % 2, third = k % 3;
}
for (int k = 0; k < n; k += 1) stage = k % 2;
"""
    assert [*fixed_remainders(text)] == [3]
    assert [*zero_quotients("x = 1 / 6;\ny = 6 / 1;")] == [(1, "1 / 6")]


def test_cases_that_take_long_are_called_as_long_as_the_failing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, called = [CaseKey((("n", n),), "any", 1) for n in range(8)], list[tuple[CaseKey, int]]()
    trial = trial_of()
    trial.lab, trial.executed, trial.least = SimpleNamespace(known={keys[5]: True}), 4_000_000, 8  # type: ignore[assignment]

    def is_right(key: CaseKey, ptx: Path, limit: int) -> bool:
        called.append((key, limit))
        trial.seconds -= 0.2
        return True

    monkeypatch.setattr(trial, "is_right", is_right)
    assert trial._right_cases(keys, Path(), 1_500_000) == 8
    assert called[1][0] == keys[5] and {limit for _, limit in called} == {8_000_000}
    trial.seconds = -1.0
    assert trial._right_cases(keys, Path(), 1_500_000) < 8


def given(*elements: float) -> Judged:
    """An answer on one case, where 0 is right."""
    got = numpy.array(elements)
    compared = Compared(got, got != 0, numpy.zeros(got.shape, bool))
    return Judged(CASE, (), (compared,))  # type: ignore[arg-type]


def test_what_a_change_says_of_its_line() -> None:
    first = given(1, 2, 0)
    assert doubt(first, given(0, 3, 0)) == -MOVED_ALONE
    assert doubt(first, given(1, 2, 5)) == SPOILT
    assert doubt(first, given(1, 2, 0)) == UNMOVED
    assert doubt(first, given(0, 2, 5)) == 0
    assert doubt(given(1, 2), given(3, 4)) == 0  # nothing is right that the change could leave so
    assert doubt(given(float("nan"), 0), given(float("nan"), 0)) == UNMOVED


def trial_of(first: Judged | None = None) -> Trial:
    return Trial(None, None, Path(), "", "", Kind.WRONG_ANSWER, first=first)  # type: ignore[arg-type]


def test_lines_take_turns_and_one_at_fault_comes_first() -> None:
    changes = [Change(line, f"{line} {nth}", {}) for line in (7, 9) for nth in range(3)]
    trial = trial_of(given(1, 0))
    assert [change.line for _, change in in_turn(trial, changes, [1.0] * 6)] == [7, 9] * 3
    trial.doubts[9] = -2.0
    assert [change.line for _, change in in_turn(trial, changes, [1.0] * 6)] == [9] * 3 + [7] * 3
    assert [change.line for _, change in in_turn(trial_of(), changes, [1.0] * 6)] == [7] * 3 + [9] * 3  # of a finding
