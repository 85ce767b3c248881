"""Barriers, fences and branches of a block: what a thread wrote before is what another reads after."""

from __future__ import annotations

from collections.abc import Iterator

from operands import random_bytes
from program import Program, lines

THREADS = 128

_OWN = "mov.u32 %r1, tile; mad.lo.u32 %r2, %t, 4, %r1; ld.global.b32 %r3, [%from];"
_OTHER = f"add.u32 %r4, %t, 37; and.b32 %r4, %r4, {THREADS - 1}; mad.lo.u32 %r4, %r4, 4, %r1;"
_GIVEN = random_bytes("block", THREADS * 4)


def _program(form: str, *body: str, out_stride: int = 16, variant: str = "", head: str = "") -> Program:
    return Program(
        form, lines(*body), _GIVEN, variant, in_stride=4, out_stride=out_stride, threads=THREADS, shared=4 * THREADS,
        head=head,
    )  # fmt: skip


def _exchange(form: str, first: str, second: str) -> Program:
    return _program(
        form, _OWN, _OTHER,
        f"st.shared.u32 [%r2], %r3; {first} ld.shared.u32 %r5, [%r4]; {second}",
        f"st.shared.u32 [%r2], %r5; {first} ld.shared.u32 %r6, [%r4];",
        "st.global.b32 [%to], %r5; st.global.b32 [%to+4], %r6;",
    )  # fmt: skip


def barrier(form: str) -> Iterator[Program]:
    yield _exchange(form, f"{form} 1;", f"mov.u32 %r7, 15; {form} %r7, {THREADS};")


def arrive(form: str) -> Iterator[Program]:
    """Two warps write and arrive, two wait and read."""
    wait = form.replace("arrive", "sync")
    yield _program(
        form, _OWN, "setp.ge.u32 %p1, %t, 64; @%p1 bra READ;",
        f"st.shared.u32 [%r2], %r3; {form} 2, {THREADS}; mov.u32 %r5, 0; bra DONE;",
        f"READ: {wait} 2, {THREADS}; ld.shared.u32 %r5, [%r2+-256];",
        "DONE: st.global.b32 [%to], %r5;",
    )  # fmt: skip


def reduction(form: str) -> Iterator[Program]:
    """Of the predicates of all 128 threads; then of two warps' alone."""
    counts = ".popc" in form
    target = "%r5" if counts else "%p5"
    shown = "" if counts else "selp.u32 %r5, 1, 0, %p5;"
    body = ["ld.global.b32 %r3, [%from]; and.b32 %r4, %r3, 1; setp.ne.u32 %p1, %r4, 0; setp.eq.u32 %p2, %t, %t;"]
    body.append("setp.lt.u32 %p3, %t, 64; mov.u32 %r7, 3; @%p3 mov.u32 %r7, 4;")
    for place, operands in enumerate(
        ("1, %p1", "1, !%p1", f"2, {THREADS}, %p2", "0, !%p2", "%r7, 64, %p3", "%r7, 64, %p1")
    ):
        body.append(f"{form} {target}, {operands}; {shown} st.global.b32 [%to+{4 * place}], %r5;")
    yield _program(form, *body, out_stride=32)


def cluster_barrier(form: str) -> Iterator[Program]:
    """A launch without clusters has one block in each."""
    aligned = ".aligned" if form.endswith(".aligned") else ""
    arrives = form if ".arrive" in form else f"barrier.cluster.arrive{aligned}"
    waits = form if ".wait" in form else f"barrier.cluster.wait{aligned}"
    order = "fence.acq_rel.cluster; " if ".relaxed" in form else ""
    both = f"{order}{arrives}; {waits};"
    yield _exchange(form, both, both)


def fence(form: str) -> Iterator[Program]:
    """A fence leaves memory as it was; a barrier after it orders the threads."""
    both = f"{form}; bar.sync 0;"
    yield _exchange(form, both, both)


def no_result(form: str) -> Iterator[Program]:
    """Nothing that a program can see: registers and memory stay as they were."""
    operand = {"nanosleep.u32": " 20", "pmevent": " 7", "pmevent.mask": " 7"}.get(form, "")
    operand = " 56" if form.startswith("setmaxnreg.dec") else " 64" if form.startswith("setmaxnreg") else operand
    yield _exchange(form, f"{form}{operand}; bar.sync 0;", "bar.sync 0;")


# -- branches --------------------------------------------------------------------------------------------------------


def branch(form: str) -> Iterator[Program]:
    condition = "setp.gt.s32 %p1, %r3, 0; @!%p1" if form == "bra" else ""
    yield _program(
        form, _OWN, f"mov.u32 %r5, 1; {condition} {form} SKIP; mov.u32 %r5, 2;", "SKIP: st.global.b32 [%to], %r5;"
    )


def branch_table(form: str) -> Iterator[Program]:
    index = "and.b32 %r4, %r3, 3;" if form == "brx.idx" else "mov.u32 %r4, 2;"
    ways = " ".join(f"WAY{way}: mov.u32 %r5, {way * way + 7}; bra DONE;" for way in range(4))
    yield _program(
        form, _OWN, index, "TABLE: .branchtargets WAY0, WAY1, WAY2, WAY3;", f"{form} %r4, TABLE;", ways,
        "DONE: st.global.b32 [%to], %r5;",
    )  # fmt: skip


def _function(leave: str) -> str:
    return (
        ".func (.param .b32 result) ENTRY_f(.param .b32 number) {\n.reg .b32 %r<9>; .reg .pred %p<3>;\n"
        "ld.param.b32 %r1, [number]; mad.lo.u32 %r2, %r1, %r1, 5; st.param.b32 [result], %r2;\n"
        f"{leave}\n}}\n"
    )


_INDIRECT = "mov.u64 %d1, ENTRY_f; PROTO: .callprototype (.param .b32 _) _ (.param .b32 _);"


def call(form: str) -> Iterator[Program]:
    indirect = form == "call.indirect"
    to = "call (result), %d1, (number), PROTO;" if indirect else f"{form} (result), ENTRY_f, (number);"
    yield _program(
        form, _OWN, _INDIRECT if indirect else "",
        "{ .param .b32 number; .param .b32 result; st.param.b32 [number], %r3;", to,
        "ld.param.b32 %r5, [result]; } st.global.b32 [%to], %r5;", head=_function("ret;"),
    )  # fmt: skip


def ret(form: str) -> Iterator[Program]:
    """From a function, in one branch and at its end; from the kernel."""
    leave = f"setp.gt.s32 %p1, %r1, 0; @%p1 bra POSITIVE; {form}; POSITIVE: st.param.b32 [result], %r1; {form};"
    [program] = call("call")
    body = program.body + f"\n{form};"
    yield _program(form, body, head=_function(leave))


def leave(form: str) -> Iterator[Program]:
    yield _program(form, _OWN, f"setp.gt.s32 %p1, %r3, 0; @%p1 {form};", "st.global.b32 [%to], %r3;")


PROGRAMS = {
    **{f"{name}.sync": barrier for name in ("bar", "barrier", "barrier.cta")},
    **{f"{name}.arrive": arrive for name in ("bar", "barrier", "barrier.cta")},
    **{f"{name}.red": reduction for name in ("bar", "barrier", "barrier.cta", "bar.cta")},
    "barrier.cluster.": cluster_barrier,
    **{name: fence for name in ("membar.", "fence.", "griddepcontrol.")},
    **{name: no_result for name in ("nanosleep.", "pmevent", "setmaxnreg.")},
    "bra": branch,
    "brx.idx": branch_table,
    "call": call,
    "ret": ret,
    "exit": leave,
}
