"""A wrong kernel -> the line on which a small change of its PTX makes all tried cases right; and that no line is named
where no such change does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from facts import has

from grader.compile.changes import changes_of
from grader.content.catalog import load_catalog
from grader.grade import Options, grade
from grader.verdict import Kind, Verdict

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(ROOT)

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


def wrong(name: str, right: str, by: str, tmp_path: Path) -> tuple[Verdict, int]:
    """The verdict on a solution with one mistake, and the line of that."""
    kata = CATALOG.katas[name]
    text = kata.solution_path.read_text()
    assert text.count(right) == 1
    line = text[: text.index(right)].count("\n") + 1
    file = tmp_path / f"{name}.cu"
    file.write_text(text.replace(right, by))
    [verdict] = grade(kata, Options(device="sim"), source=file).verdicts
    assert verdict.kind is Kind.WRONG_ANSWER
    return verdict, line


def of_repair(verdict: Verdict) -> str:
    return "\n".join(clue.text for clue in verdict.clues if clue.about == "repair")


@pytest.mark.parametrize(
    ("name", "right", "by", "facts"),
    [
        ("scan_block_kogge_i32", "if (tid >= offset)", "if (tid > offset)", ["both sides are equal"]),
        ("elementwise_f32x4", "a4.y + b4.y", "a4.y + b4.x", ["`.x` is `.y`"]),
        ("reduce_shuffle_f32", "lane_id < WARPS ?", "lane_id < WARPS / 2 ?", ["7 in place of 3"]),
        ("safe_softmax_f32", "float max = -INFINITY", "float max = 0.0f", ["starts from", "-inf in place of 0"]),
        ("scan_warp_i32", "__shfl_up_sync", "__shfl_xor_sync", ["`up` in place of `xor`"]),
    ],
)
def test_the_line_is_named(name: str, right: str, by: str, facts: list[str], tmp_path: Path) -> None:
    verdict, line = wrong(name, right, by, tmp_path)
    said = of_repair(verdict)
    assert has(said, *facts, "cases that were tried are right")
    named = int(re.findall(r"on line (\d+)", said)[0])
    assert 0 <= named - line <= 2  # a value that a variable starts from is named where it is first read


def test_a_change_that_is_right_for_some_values_alone_is_not_named(tmp_path: Path) -> None:
    """Without the maximum in either place the quotients are right, until an exponential overflows."""
    verdict, _ = wrong("safe_softmax_f32", "__expf(x_row[col] - max) * scale", "__expf(x_row[col]) * scale", tmp_path)
    assert of_repair(verdict) == ""


def test_a_usual_mistake_must_be_that_of_larger_cases_too(tmp_path: Path) -> None:
    """With one index, to leave out the last is to add nothing; with more it is not."""
    verdict, line = wrong("index_add_few_f32", "first + lane_id < n &&", "first + lane_id < n - 1 &&", tmp_path)
    assert not [clue for clue in verdict.clues if clue.about == "formula"]
    assert has(of_repair(verdict), f"on line {line}", "both sides are equal")


def test_the_second_of_two_sums_on_a_line_changes_alone(tmp_path: Path) -> None:
    """The compiler repeats the line for eight rows, and each has a difference and a sum."""
    right = "make_float2(x.x * cosine - x.y * sine,"
    verdict, line = wrong("rope_f32", right, "make_float2(x.x * cosine + x.y * sine,", tmp_path)
    assert has(of_repair(verdict), f"on line {line}", "subtracted")
