"""Two modules of one file -> the first with kernels of the second."""

from __future__ import annotations

import pytest

from grader.compile.entries import Entries

CLOSE = """\
.global .align 4 .u32 kata_edit;
.global .align 16 .b8 states[64];

.func  (.param .b32 func_retval0) half_of(
	.param .b32 half_of_param_0
)
;
.func  (.param .b32 func_retval0) half_of(
	.param .b32 half_of_param_0
)
{
	shr.u32 	%r1, %r2, 1;
	ret;
}
.visible .entry first(
	.param .u32 first_param_0
)
{
	{ // callseq 0, 0
	call.uni (retval0),
	half_of,
	(
	param0
	);
	} // callseq 0
	ret;
}
.visible .entry second()
{
	mov.u32 	%r1, 2;
	ret;
}"""
FAST = """\
.global .align 16 .b8 states[64];
.visible .entry first(
	.param .u32 first_param_0
)
{
	.loc	1 3 0
	mov.u32 	%r1, 11;
	ret;
}

.visible .entry second()
{
	mov.u32 	%r1, 22;
	ret;
}"""
LINES = CLOSE.split("\n")


def line(text: str) -> int:
    return next(number for number, each in enumerate(LINES) if text in each)


@pytest.mark.parametrize(
    ("changed", "others"), [("mov.u32", {"first"}), ("callseq 0, 0", {"second"}), ("shr.u32", {"second"})]
)
def test_kernels_without_a_changed_line_are_the_others(changed: str, others: set[str]) -> None:
    """Nor with one in a function that they call."""
    assert Entries(CLOSE, FAST).replaced([line(changed)]) == others


def test_a_kernel_stands_where_the_other_stood_without_lines_of_the_source() -> None:
    entries = Entries(CLOSE, FAST)
    found = "\n".join(text for _, text in entries.with_others(enumerate(LINES), {"first"}))
    assert "mov.u32 \t%r1, 11;" in found
    assert "callseq" not in found
    assert "mov.u32 \t%r1, 2;" in found
    assert ".loc" not in found
    assert found.count(".entry first(") == 1


def test_no_kernel_is_taken_from_a_file_with_other_variables() -> None:
    assert not Entries(CLOSE, FAST.replace("states[64]", "states[32]")).replaced([line("mov.u32")])
    assert not Entries(CLOSE, FAST.replace("mov.u32 \t%r1, 11;", "call.uni other, ();")).replaced([line("mov.u32")])
