"""The simulator reads PTX as other compilers may write it, and says where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import passed_before
import pytest
from cost import cheapest_cpu_s
from facts import all_of, has
from sim_kernels.harness import HERE, build, engine, given, open_device, run, unpack, wanted

from grader.devices import Finding
from grader.devices.sim import SimDevice, supported_instructions
from grader.devices.sim.engine import EngineError, engine_library

pytestmark = passed_before.GRADER

HOST = """
#include "kata.cuh"
extern "C" __global__ void step(const int* x, int* y, int n) { y[threadIdx.x] = x[0] + n; }
KATA_EXPORT void go(const int* x, int* y, int n, cudaStream_t s) { step<<<1, 32, 0, s>>>(x, y, n); }
"""
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
ENTRY = ".visible .entry step(.param .u64 .ptr .global .align 4 px, .param .u64 py, .param .u32 pn)\n"
LOAD = """
    .reg .b64 %rx, %ry, %ra; .reg .b32 %rn, %rt, %rv<4>; .reg .pred %p, %q;
    ld.param.u64 %rx, [px]; ld.param.u64 %ry, [py]; ld.param.u32 %rn, [pn];
    mov.u32 %rt, %tid.x; mad.wide.u32 %ra, %rt, 4, %ry; ld.global.u32 %rv0, [%rx];
"""
STORE = "    st.global.u32 [%ra], %rv1; ret;\n}\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("ptx") / "step.cu"
    path.write_text(HOST)
    build(path)
    return path


def outcome_of(source: Path, ptx: str) -> tuple[tuple[Finding, ...], list[float]]:
    path = source.with_suffix(".ptx")
    path.write_text(ptx)
    outcome = run(open_device(source, ptx=path), "go", given("x", "i32", [40]), wanted("y", "i32", 32), 2)
    return outcome.findings, unpack("i32", outcome.outputs["y"]) if "y" in outcome.outputs else []


BODIES = {
    "plain": ("add.s32 %rv1, %rv0, %rn;", 42),
    "nested scope hides a name": ("{ .reg .b32 %rv1; mov.u32 %rv1, 7; } mov.u32 %rv1, 5;", 5),
    "comments": ("/* a\n b */ add.s32 %rv1, %rv0, /* c */ %rn; // d\n", 42),
    "pair and sink": ("setp.lt.s32 %p|%q, %rv0, %rn; selp.b32 %rv1, 1, 2, %q;", 1),
    "negated predicate": ("setp.lt.and.s32 %p, %rn, %rv0, !%q; @!%p mov.u32 %rv1, 3; @%p mov.u32 %rv1, 4;", None),
    "vector pack": ("mov.b64 %ra, {%rv0, %rn}; mov.b64 {_, %rv1}, %ra; mad.wide.u32 %ra, %rt, 4, %ry;", 2),
    "octal and binary": ("add.u32 %rv1, 010, 0b101;", 13),
    "single and double": (
        "{.reg .f32 f; .reg .f64 d; mov.f32 f, 0f40400000; cvt.f64.f32 d, f; add.f64 d, d, 0d4000000000000000;"
        " cvt.rzi.s32.f64 %rv1, d;}",
        5,
    ),
    "decimal fraction": ("{.reg .f32 f; mov.f32 f, 2.5; mul.f32 f, f, 4.0; cvt.rni.s32.f32 %rv1, f;}", 10),
    "wider register": (
        "{.reg .b64 w; cvt.u64.u32 w, %rv0; shl.b64 w, w, 32; shr.u64 w, w, 31; cvt.u32.u64 %rv1, w;}",
        80,
    ),
    "branch table": (
        "ts: .branchtargets L0, L1; {.reg .b32 i; and.b32 i, %rt, 1; brx.idx i, ts;}"
        " L0: mov.u32 %rv1, 9; bra.uni LE; L1: mov.u32 %rv1, 9; LE:",
        9,
    ),
    "one label in two scopes": (
        "mov.u32 %rv1, 0; { bra L; add.u32 %rv1, %rv1, 1; L: add.u32 %rv1, %rv1, 2; }"
        " { bra L; add.u32 %rv1, %rv1, 4; L: add.u32 %rv1, %rv1, 8; }",
        10,
    ),
    "an inner label hides an outer one": (
        "mov.u32 %rv1, 0; { bra L; { bra L; add.u32 %rv1, %rv1, 1; L: add.u32 %rv1, %rv1, 2; }"
        " add.u32 %rv1, %rv1, 4; L: add.u32 %rv1, %rv1, 8; } bra L; add.u32 %rv1, %rv1, 16; L:",
        8,
    ),
    "branch out of two scopes": ("mov.u32 %rv1, 1; { { bra L; } mov.u32 %rv1, 2; } L: add.u32 %rv1, %rv1, 4;", 5),
    "one branch table in two scopes": (
        "mov.u32 %rv2, 1; { T: .branchtargets A, B; brx.idx %rv2, T; A: mov.u32 %rv1, 1; bra E;"
        " B: mov.u32 %rv1, 2; E: } { T: .branchtargets A, E; brx.idx %rv2, T; A: mov.u32 %rv1, 3;"
        " E: add.u32 %rv1, %rv1, 4; }",
        6,
    ),
    "pragma and loc": ('.pragma "nounroll"; .loc 1 3 1; add.s32 %rv1, %rv0, 1;', 41),
    "no blank between directives": ("{.reg.b32 w; mov.u32 w, 8; mov.u32 %rv1, w;}", 8),
    "carry": ("mov.u32 %rv2, -1; add.cc.u32 %rv2, %rv2, %rn; addc.cc.u32 %rv3, %rn, 0; addc.u32 %rv1, %rv3, 0;", 3),
    "borrow": ("mov.u32 %rv2, 1; sub.cc.u32 %rv2, %rv2, %rn; subc.u32 %rv1, %rv0, 0;", 39),
    "wide product": ("mad.lo.cc.u32 %rv2, -1, -1, -1; madc.hi.u32 %rv1, -1, -1, 3;", 2),
    "hints": ("ld.global.L1::no_allocate.L2::128B.u32 %rv1, [%rx+0];", 40),
    "strong": ("ld.acquire.gpu.global.u32 %rv1, [%rx]; fence.acq_rel.gpu;", 40),
    # A card keeps the inverted borrow: tests/differential has each kind of chain by itself.
    "borrow, then addc": ("sub.cc.u32 %rv2, 1, %rn; addc.u32 %rv1, %rv0, 0;", 40),
    "no borrow, then addc": ("sub.cc.u32 %rv2, 3, %rn; addc.u32 %rv1, %rv0, 0;", 41),
    "no carry, then subc": ("add.cc.u32 %rv2, 3, %rn; subc.u32 %rv1, %rv0, 0;", 39),
    "carry, then subc": ("add.cc.u32 %rv2, -1, %rn; subc.u32 %rv1, %rv0, 0;", 40),
    "wide borrow, then madc": ("{.reg .u64 w; sub.cc.u64 w, 1, 2;} madc.lo.u32 %rv1, 2, 3, %rv0;", 46),
    "a global and a constant of the function's own": (
        ".global .u32 g[2] = {5, 6}; .const .u32 c = 7; { .global .u32 g = 8; ld.global.u32 %rv2, [g]; }"
        " ld.global.u32 %rv1, [g+4]; add.u32 %rv1, %rv1, %rv2; ld.const.u32 %rv2, [c]; add.u32 %rv1, %rv1, %rv2;",
        21,
    ),
    "shared and local by name alone": (
        ".shared .u32 s[32]; .local .u32 l[2]; {.reg .u32 a; shl.b32 a, %rt, 2; mov.u32 %rv2, s; add.u32 a, a, %rv2;"
        " st.shared.u32 [a], %rn;} bar.sync 0; ld.u32 %rv2, [s+4]; st.u32 [l+4], 3; ld.u32 %rv3, [l+4];"
        " atom.add.u32 %rv1, [s], 0; add.u32 %rv1, %rv1, %rv2; add.u32 %rv1, %rv1, %rv3;",
        7,
    ),
    "register and number": ("st.global.u32 [%ra], %rn + 5; ld.global.u32 %rv1, [%ra]; add.u32 %rv1, %rv1+-1, 2;", 8),
    "vector register": (
        "{.reg .v2 .u32 v, w<2>; mov.u32 v.x, %rn; mov.u32 v.g, 9; mov.v2.u32 v, {v.y, v.x}; mov.v2.u32 w1, v;"
        " sub.u32 %rv1, w1.r, w1.y;}",
        7,
    ),
    "vector register of four": (
        "{.reg .v4 .u16 v; .reg .u16 h; .reg .b64 w; mov.b64 w, 0x0004000300020001; mov.b64 v, w; mov.v4.u16 v,"
        " {v.w, v.z, v.y, v.x}; mov.b64 w, v; mov.b64 {_, %rv1}, w;}",
        0x00010002,
    ),
    "vector register in memory": (
        "{.reg .v2 .u32 v; .local .align 8 .u32 l[2]; mov.u32 v.x, 3; mov.u32 v.y, 4; st.local.v2.u32 [l], v;"
        " ld.local.v2.u32 v, [l]; mad.lo.u32 %rv1, v.x, 10, v.y;}",
        34,
    ),
    "modifiers in another order": (
        "{.reg .f32 f; mov.f32 f, 0f40400000; div.ftz.rn.f32 f, f, 0f3F000000; fma.sat.ftz.rn.f32 f, f, 0f3E000000, 0;"
        " cvt.rni.s32.f32 %rv1, f; setp.ftz.lt.f32 %p, f, 1.0; @%p mov.u32 %rv1, 6; shfl.idx.sync.b32 %rv1, %rv1, 0, 31"
        ", -1;}",
        6,
    ),
    "policy of caching, uniform load": (
        "{.reg .b64 c; createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 c, 1.0;"
        " ld.global.L2::cache_hint.u32 %rv2, [%rx], c; ldu.global.u32 %rv1, [%rx]; add.u32 %rv1, %rv1, %rv2;}",
        80,
    ),
    "set of half precision": (
        "{.reg .b16 a, b, n; mov.b16 a, 0x3c00; mov.b16 b, 0x4000; mov.b16 n, 0x7e00; set.lt.u32.f16 %rv1, a, b;"
        " set.gtu.s32.f16 %rv2, n, b; and.b32 %rv1, %rv1, %rv2; set.gt.and.u32.bf16 %rv2, b, a, !%q;"
        " add.u32 %rv1, %rv1, %rv2; setp.ne.u32 %q, %rn, %rn;}",
        None,
    ),
    "set to half precision": (
        "{.reg .b16 a; .reg .f32 f; set.lt.f16.s32 a, %rn, %rv0; cvt.u32.u16 %rv1, a; set.ge.f32.u16 f, a, a;"
        " cvt.rni.u32.f32 %rv2, f; set.eq.bf16.f32 a, f, f; add.u32 %rv1, %rv1, %rv2; cvt.u32.u16 %rv2, a;"
        " add.u32 %rv1, %rv1, %rv2;}",
        0x3C00 + 1 + 0x3F80,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_body_runs(source: Path, name: str) -> None:
    body, expected = BODIES[name]
    if name == "negated predicate":
        body, expected = "setp.ne.s32 %q, %rn, %rn; " + body, 4
    if name == "set of half precision":
        body, expected = "setp.ne.s32 %q, %rn, %rn; " + body, -2
    findings, values = outcome_of(source, HEADER + ENTRY + "{" + LOAD + body + STORE)
    assert findings == () and values == [expected] * 32


def test_functions_variables_and_sections(source: Path) -> None:
    module = """
.global .align 8 .u64 where = generic(words+4);
.global .align 4 .u32 words[3] = {1, 20, 300};
.const .align 4 .f32 half = 0f3F000000;
.func (.param .b32 out) twice(.param .b32 in) { .reg .b32 %r<2>; ld.param.u32 %r0, [in]; add.u32 %r1, %r0, %r0;
    st.param.b32 [out+0], %r1; ret; }
"""
    body = """
    .reg .b64 %rp; ld.global.u64 %rp, [where]; ld.u32 %rv2, [%rp];
    { .param .b32 a; st.param.b32 [a+0], %rv2; .param .b32 r; call.uni (r), twice, (a); ld.param.b32 %rv1, [r+0]; }
    add.u32 %rv1, %rv1, %rn;
"""
    section = '.section .debug_str { $L: .b8 95,90\n.b8 0 }\n.file 1 "step.cu"\n'
    findings, values = outcome_of(source, HEADER + module + ENTRY + "{" + LOAD + body + STORE + section)
    assert findings == () and values == [42] * 32


# What functions hand over in registers, as people write it: numbers, predicates, vectors, several results.
IN_REGISTERS = """
.func (.reg .u32 sum, .reg .pred big) add(.reg .u32 a, .reg .u32 b) {
    add.u32 sum, a, b; setp.gt.u32 big, sum, 9; { .reg .u32 sum; mov.u32 sum, 77; @big ret; } add.u32 sum, sum, 100;
}
.func (.reg .v2 .u32 out) swapped(.reg .v2 .u32 in) { mov.v2.u32 out, {in.y, in.x}; ret; }
.func (.reg .u32 out) sum_to(.reg .u32 n) {
    .reg .pred p; .reg .u32 rest; mov.u32 out, 0; setp.eq.u32 p, n, 0; @p ret; sub.u32 rest, n, 1;
    call (rest), sum_to, (rest); add.u32 out, n, rest; ret;
}
.func (.param .b32 out) twice(.param .b32 in) { .reg .b32 r; ld.param.b32 r, [in]; shl.b32 r, r, 1;
    st.param.b32 [out], r; ret; }
.func nothing() { ret; }
"""
CALLS = {
    "numbers and a predicate": ("call (%rv1, %p), add, (%rv0, 2); @!%p mov.u32 %rv1, 0;", 42),
    "another way out": ("call (%rv1, %p), add, (%rn, 2); @%p mov.u32 %rv1, 0;", 104),
    "a result that is not wanted": ("call (%rv1, _), add, (%rn, 2);", 104),
    "vectors": (
        "{.reg .v2 .u32 v; mov.v2.u32 v, {%rn, %rv0}; call (v), swapped, (v); mad.lo.u32 %rv1, v.x, 10, v.y;}",
        402,
    ),
    "recursion": ("call (%rv1), sum_to, (%rv0);", 820),
    "registers for variables": ("call (%rv1), twice, (%rv0);", 80),
    "under a guard": ("mov.u32 %rv1, 1; setp.ne.u32 %p, %rn, 2; @%p call (%rv1), twice, (%rv0); call nothing;", 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_handed_over_in_registers(source: Path, name: str) -> None:
    body, expected = CALLS[name]
    findings, values = outcome_of(source, HEADER + IN_REGISTERS + ENTRY + "{" + LOAD + body + STORE)
    assert findings == () and values == [expected] * 32


def test_directives_of_an_entry(source: Path) -> None:
    directives = ".maxntid 64, 1, 1\n.minnctapersm 2\n.maxnreg 32\n.noreturn\n"
    findings, values = outcome_of(source, HEADER + ENTRY + directives + "{" + LOAD + "mov.u32 %rv1, %rn;" + STORE)
    assert findings == () and values == [2] * 32
    findings, _ = outcome_of(source, HEADER + ENTRY + ".maxntid 16\n{" + LOAD + STORE)
    assert [found.kind for found in findings] == ["launch failed"]
    assert has(findings[0].message, "__launch_bounds__", "16")


# As clang writes it: labels with $, a depot and two stack pointers, parameters named after the kernel, debug sections.
CLANG = """//
// Generated by LLVM NVPTX Back-End
//
.version 6.0
.target sm_50
.address_size 64

	// .globl	step                    // -- Begin function step
.extern .func  (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0,
	.param .b64 vprintf_param_1
);
.visible .entry step(
	.param .u64 step_param_0,
	.param .u64 step_param_1,
	.param .u32 step_param_2
)
{
	.local .align 4 .b8 	__local_depot0[4];
	.reg .b64 	%SP;
	.reg .b64 	%SPL;
	.reg .pred 	%p<2>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<6>;
	.loc	1 3 0
$L__func_begin0:
	mov.u64 	%SPL, __local_depot0;
	cvta.local.u64 	%SP, %SPL;
	ld.param.u32 	%r1, [step_param_2];
	ld.param.u64 	%rd1, [step_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	ld.param.u64 	%rd3, [step_param_1];
	cvta.to.global.u64 	%rd4, %rd3;
	mov.u32 	%r2, %tid.x;
	st.u32 	[%SP+0], %r1;
	setp.gt.s32 	%p1, %r2, 31;
	@%p1 bra 	$L__BB0_2;
	bra.uni 	$L__BB0_1;
$L__BB0_1:                              // %if.then
	.loc	1 3 41
	ld.global.u32 	%r3, [%rd2];
	ld.u32 	%r4, [%SP+0];
	add.s32 	%r5, %r3, %r4;
	mul.wide.s32 	%rd5, %r2, 4;
	add.s64 	%rd5, %rd4, %rd5;
	st.global.u32 	[%rd5], %r5;
	bra.uni 	$L__BB0_2;
$L__BB0_2:
	ret;
$L__func_end0:
                                        // -- End function
}
	.file	1 "/src/step.cu"
	.section	.debug_abbrev
	{
.b8 1                                   // Abbreviation Code
.b8 17,1,37,8
	}
	.section	.debug_loc	{	}
"""

# As nvcc of CUDA 5 wrote it: other sizes of one value, files with a time and a size, plain labels, parentheses in call.
OLD_NVCC = """.version 3.2
.target sm_20
.address_size 64
	.file	1 "/src/step.cu", 1363891340, 211
.func (.param .b32 func_retval0) _Z4plusii(.param .b32 _Z4plusii_param_0, .param .b32 _Z4plusii_param_1)
{
	.reg .s32 	%r<4>;
	ld.param.u32 	%r1, [_Z4plusii_param_0];
	ld.param.u32 	%r2, [_Z4plusii_param_1];
	add.s32 	%r3, %r2, %r1;
	st.param.b32	[func_retval0+0], %r3;
	ret;
}
.visible .entry step(.param .u64 step_param_0, .param .u64 step_param_1, .param .u32 step_param_2)
.maxntid 256, 1, 1
{
	.pragma "nounroll";
	.reg .pred 	%p<2>;
	.reg .s32 	%r<8>;
	.reg .s64 	%rl<6>;
	ld.param.u64 	%rl1, [step_param_0];
	ld.param.u64 	%rl2, [step_param_1];
	ld.param.u32 	%r1, [step_param_2];
	cvta.to.global.u64 	%rl3, %rl2;
	.loc 1 3 1
	mov.u32 	%r2, %tid.x;
	mul.wide.s32 	%rl4, %r2, 4;
	add.s64 	%rl5, %rl3, %rl4;
	ld.global.u32 	%r3, [%rl1];
	// Callseq Start 0
	{
	.reg .b32 temp_param_reg;
	.param .b32 param0;
	st.param.b32	[param0+0], %r3;
	.param .b32 param1;
	st.param.b32	[param1+0], %r1;
	.param .b32 retval0;
	call.uni (retval0),
	_Z4plusii,
	(
	param0,
	param1
	);
	ld.param.b32	%r4, [retval0+0];
	}
	// Callseq End 0
	bar.sync 	0;
	setp.lt.s32	%p1, %r2, 32;
	@!%p1 bra 	BB1_2;
	st.global.u32 	[%rl5], %r4;
BB1_2:
	ret;
}
"""


@pytest.mark.parametrize("ptx", [CLANG, OLD_NVCC], ids=["clang", "nvcc of CUDA 5"])
def test_ptx_of_other_compilers(source: Path, ptx: str) -> None:
    findings, values = outcome_of(source, ptx)
    assert findings == () and values == [42] * 32


BAD_CALLS = {
    "a shared variable": ("{ .param .b32 r; .shared .b32 s; call.uni (r), twice, (s); }", ["call", "s"]),
    "the kernel's own": ("{ .param .b32 r; call.uni (r), twice, (pn); }", ["call", "pn"]),
    "too small": ("{ .param .b8 a; .param .b32 r; call.uni (r), twice, (a); }", ["call", "a"]),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_call_with_what_is_no_parameter_is_refused(source: Path, name: str) -> None:
    twice = ".func (.param .b32 out) twice(.param .b32 in) { ret; }\n"
    body, facts = BAD_CALLS[name]
    findings, _ = outcome_of(source, HEADER + twice + ENTRY + "{" + LOAD + body + STORE)
    assert [found.kind for found in findings] == ["unsupported"] and has(findings[0].message, *facts, "parameter")


BROKEN = {
    "brackets without end": (HEADER + ENTRY + "{" * 100000, ["brackets"]),
    "a size without end": (HEADER + ".global .b8 x[4294967296][4294967296];", ["size", "4294967296"]),
    "no alignment": (HEADER + ".global .align 0 .b8 x[4];", ["alignment", "'0'"]),
    "truncated": (HEADER + ENTRY + "{" + LOAD, ["'}'", "end of a function"]),
    "no semicolon": (HEADER + ENTRY + "{ ret }", ["'}'"]),
    "bad immediate": (HEADER + ENTRY + "{ mov.f32 %f, 0f40; }", ["8 or 16", "digits", "'0f40'"]),
    "unknown directive": (HEADER + ".nonsense x;", ["directive", "'.nonsense'"]),
    "undeclared guard": (HEADER + ENTRY + "{\n\n@%z ret; }", ["PTX line 7", "predicate"]),
    "open comment": (HEADER + "/* x", ["end", "comment"]),
    "empty": ("", ["step", "not in the PTX"]),
    "no body": (HEADER + ENTRY + ";", ["kernel", "step", "not in the PTX"]),
    "unknown label": (HEADER + ENTRY + "{ bra NOWHERE; }", ["label", "NOWHERE"]),
    "undeclared register": (HEADER + ENTRY + "{ mov.u32 %a, %b; }", ["not supported"]),
    "unknown instruction": (HEADER + ENTRY + "{" + LOAD + "frobnicate.u32 %rv1, %rv0;" + STORE, ["frobnicate.u32"]),
    "missing operand": (HEADER + ENTRY + "{" + LOAD + "add.u32 %rv1, %rv0;" + STORE, ["add.u32", "2 operands"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_ptx_is_named(source: Path, name: str) -> None:
    ptx, facts = BROKEN[name]
    findings, _ = outcome_of(source, ptx)
    assert [f.kind for f in findings] == ["unsupported"]
    assert has(findings[0].message, *facts)


def test_cut_anywhere_ptx_never_crashes(source: Path) -> None:
    whole = (build(source) / "kata.ptx").read_text()
    for end in range(0, len(whole), max(1, len(whole) // 60)):
        outcome_of(source, whole[:end])
        outcome_of(source, whole[:end] + "%!{[,;" + whole[end + 3 :])


# %r12 is of the first range and not of the second, %r04 of none. The %r4 of the inner scope is another one.
RANGES = """
    .reg .b32 %rv1, %r<13>, %r1<2>, %r04; .reg .b64 %rx, %ry, %ra; .reg .v2 .b32 %w<2>;
    ld.param.u64 %rx, [px]; ld.param.u64 %ry, [py];
    mov.u32 %r0, %tid.x; mad.wide.u32 %ra, %r0, 4, %ry;
    ld.global.u32 %r4, [%rx]; mov.u32 %r04, 100; mov.u32 %r12, 1000;
    { .reg .b32 %r<5>; mov.u32 %r4, 7; mov.u32 %r3, 8; }
    mov.b32 %w1.x, %r4; add.u32 %rv1, %w1.x, %r04; add.u32 %rv1, %rv1, %r12;
"""


def test_registers_of_a_range(source: Path) -> None:
    findings, values = outcome_of(source, HEADER + ENTRY + "{" + RANGES + STORE)
    assert findings == () and values == [1140] * 32


@pytest.mark.parametrize("name", ["%r5", "%r05", "%r", "%r1x", "%r99999999"])
def test_a_register_beyond_its_range_is_not_declared(source: Path, name: str) -> None:
    text = HEADER + ENTRY + "{\n.reg .b32 %r<5>;\nadd.u32 %r1, %r2, " + name + "; ret; }"
    assert [finding.kind for finding in outcome_of(source, text)[0]] == ["unsupported"]


def test_older_architecture(source: Path) -> None:
    outcome = run(open_device(source, arch="80"), "go", given("x", "i32", [40]), wanted("y", "i32", 32), 2)
    assert outcome.findings == () and unpack("i32", outcome.outputs["y"]) == [42] * 32


def test_table_of_instructions() -> None:
    forms = supported_instructions(engine())
    assert len(forms) == len(set(forms)) > 1500
    assert {"add.f32", "mad.wide.s32", "ld.v4.f32", "setp.lt.and.s32", "shfl.sync.bfly.b32"} <= set(forms)


def test_a_child_imports_nothing_that_is_installed_and_costs_little_more_than_python(source: Path) -> None:
    folder, library = build(source), engine()
    program = (
        "from pathlib import Path; from grader.devices.sim import SimDevice; import sys\n"
        f"SimDevice(engine=Path({str(library)!r}), library=Path({str(folder / 'kata.so')!r}),"
        f" ptx=Path({str(folder / 'kata.ptx')!r}), source=Path({str(source)!r}), arch='sm_90a', threads=2)\n"
        "print([name for name, module in sys.modules.items()\n"
        "       if '/site-packages/' in (getattr(module, '__file__', None) or '') and 'editable' not in name])\n"
    )

    def child(text: str) -> str:
        command = [sys.executable, "-c", text]
        return subprocess.run(command, cwd=HERE.parent.parent, capture_output=True, text=True, check=True).stdout

    assert child(program).strip() in ("[]", "['_distutils_hack']")  # neither torch nor numpy
    python_s, child_s = cheapest_cpu_s(
        lambda: child("import ctypes, dataclasses, json, pathlib"), lambda: child(program)
    )
    assert child_s < 6 * python_s


def test_engine_needs_a_compiler(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="not on PATH"):
        engine_library(tmp_path, compiler="no-such-compiler")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'x.cpp:1: error: no' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(EngineError, match=all_of("does not compile", "g++ 9")):
        engine_library(tmp_path / "cache", compiler=str(broken), jobs=1)
    assert os.listdir(tmp_path / "cache" / "staging") == []


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("x.s: Fatal error: can't write: No space left on device", ["No space left", "KATA_CACHE"]),
        ("cc1plus: out of memory allocating 65536 bytes", ["out of memory", "close"]),
        ("g++: fatal error: Killed signal terminated program cc1plus", ["killed signal", "close"]),
    ],
)
def test_a_machine_that_is_full_is_not_asked_for_its_compiler(tmp_path: Path, said: str, facts: list[str]) -> None:
    full = tmp_path / "full"
    full.write_text(f"#!/bin/sh\necho 'x.cpp:1: error: no more' >&2\necho \"{said}\" >&2\nexit 1\n")
    full.chmod(0o755)
    with pytest.raises(EngineError) as caught:
        engine_library(tmp_path / "cache", compiler=str(full), jobs=1)
    assert has(str(caught.value), *facts) and "g++ 9" not in str(caught.value)


def test_engine_is_built_once() -> None:
    first = engine()
    stamp = first.stat().st_mtime_ns
    assert engine() == first and first.stat().st_mtime_ns == stamp


def test_process_serves_one_kata_after_another(source: Path) -> None:
    for _ in range(2):
        device: SimDevice = open_device(source)
        outcome = run(device, "go", given("x", "i32", [1]), wanted("y", "i32", 32), 1)
        assert unpack("i32", outcome.outputs["y"]) == [2] * 32
