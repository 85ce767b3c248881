"""Forms that a warp's lanes execute together: full masks, and masks of two halves that have gone apart."""

from __future__ import annotations

from collections.abc import Iterator

from operands import random_bytes, slots
from program import Program, lines

FULL = "0xffffffff"
APART = 13  # lanes below it take one branch


class _Results:
    """Lines of a body, each of whose results is kept in the next 8 bytes of the lane: value, predicate."""

    def __init__(self, *setup: str) -> None:
        self.body, self.bytes = list(setup), 0

    def add(self, instruction: str, *, value: str = "%r9", truth: str = "%p9") -> None:
        self.body += [
            instruction,
            f"selp.u32 %r8, 1, 0, {truth};" if truth else "mov.u32 %r8, 0;",
            f"st.global.b32 [%to+{self.bytes}], {value}; st.global.b32 [%to+{self.bytes + 4}], %r8;",
        ]
        self.bytes += 8

    def program(self, form: str, given: bytes, *, variant: str = "", threads: int = 32) -> Program:
        return Program(
            form, lines(*self.body), given, variant, in_stride=16, out_stride=self.bytes, threads=threads, shared=1024
        )


def _apart(instruction: str) -> str:
    """The instruction with MASK, executed by two groups of lanes one after the other."""
    low = (1 << APART) - 1
    return lines(
        "{", f"setp.lt.u32 %p19, %t, {APART};", "@%p19 bra LOW;", instruction.replace("MASK", f"{~low & 0xFFFFFFFF}"),
        "bra BOTH;", "LOW:", instruction.replace("MASK", f"{low}"), "BOTH:", f"bar.warp.sync {FULL};", "}",
    )  # fmt: skip


_OFFSETS = ("0", "1", "3", "8", "16", "31", "33", "%r2")
_BOUNDS = ("0x1f", "0", "0x1c1f", "0x1c00", "0x1803", "0x101f", "0x1e01", "%r3")  # segments and clamps


def shuffle(form: str) -> Iterator[Program]:
    results = _Results(
        "ld.global.b32 %r1, [%from]; ld.global.b32 %r2, [%from+8]; ld.global.b32 %r3, [%in+12];",
        "setp.eq.u32 %p9, %r1, 0;",
    )
    for offset in _OFFSETS:
        for bound in _BOUNDS:
            results.add(f"{form} %r9|%p9, %r1, {offset}, {bound}, {FULL};")
    results.add(f"{form} %r9, %r1, 1, 0x1f, {FULL};", truth="")
    yield results.program(form, random_bytes("shuffle", 32 * 16))
    halves = _Results("ld.global.b32 %r1, [%from]; setp.lt.u32 %p8, %t, 16; selp.b32 %r4, 0xffff, 0xffff0000, %p8;")
    for offset in ("0", "1", "7", "15"):  # segments of 16 lanes: no source lies in the other half
        halves.add(f"{form} %r9|%p9, %r1, {offset}, {'0x1000' if '.up.' in form else '0x101f'}, %r4;")
    yield halves.program(form, random_bytes("shuffle", 32 * 16), variant="halves")


def vote(form: str) -> Iterator[Program]:
    setup = "ld.global.b32 %r1, [%from]; and.b32 %r2, %r1, 1; setp.ne.u32 %p1, %r2, 0; setp.lt.u32 %p2, %t, 13;"
    results = _Results(setup, "setp.eq.u32 %p3, %r1, %r1; setp.ne.u32 %p4, %r1, %r1; mov.u32 %r9, 0;")
    target, truth = ("%r9", "") if "ballot" in form else ("%p9", "%p9")
    for source in ("%p1", "!%p1", "%p2", "%p3", "%p4", "!%p4"):
        results.add(f"{form} {target}, {source}, {FULL};", truth=truth)
        results.add(_apart(f"{form} {target}, {source}, MASK;"), truth=truth)
    yield results.program(form, random_bytes("vote", 32 * 16))


def match(form: str) -> Iterator[Program]:
    letter, width = ("d", 64) if form.endswith("64") else ("r", 32)
    value = f"%{letter}7"
    results = _Results(f"ld.global.b{width} %{letter}1, [%from];")
    target, truth = ("%r9|%p9", "%p9") if ".all." in form else ("%r9", "")
    for kept in ("0", "1", "3", "7", "0xC0000001" if width == 32 else "0xC000000000000001"):
        results.body.append(f"and.b{width} {value}, %{letter}1, {kept};")
        results.add(f"{form} {target}, {value}, {FULL};", truth=truth)
        results.add(_apart(f"{form} {target}, {value}, MASK;"), truth=truth)
    yield results.program(form, random_bytes("match", 32 * 16))


def reduce(form: str) -> Iterator[Program]:
    results = _Results("ld.global.b32 %r1, [%from]; ld.global.b32 %r2, [%from+8];")
    for source in ("%r1", "%r2"):
        results.add(f"{form} %r9, {source}, {FULL};", truth="")
        results.add(_apart(f"{form} %r9, {source}, MASK;"), truth="")
    yield results.program(form, slots("redux", (4, 4), 32))


def elect(form: str) -> Iterator[Program]:
    results = _Results()
    results.add(f"{form} %r9|%p9, {FULL};")
    results.add(_apart(f"{form} %r9|%p9, MASK;"))
    yield results.program(form, b"")


def active_mask(form: str) -> Iterator[Program]:
    results = _Results()
    results.add(f"{form} %r9;", truth="")
    yield results.program(form, b"", threads=40)


def warp_barrier(form: str) -> Iterator[Program]:
    """Every lane writes, and reads what another lane wrote."""
    results = _Results("mov.u32 %r1, tile; mad.lo.u32 %r2, %t, 4, %r1; ld.global.b32 %r3, [%from];")
    results.body.append(f"st.shared.u32 [%r2], %r3; {form} {FULL}; xor.b32 %r4, %t, 21; mad.lo.u32 %r4, %r4, 4, %r1;")
    results.add("ld.shared.u32 %r9, [%r4];", truth="")
    yield results.program(form, random_bytes("warp", 32 * 16))


PROGRAMS = {
    "shfl.": shuffle,
    "vote.": vote,
    "match.": match,
    "redux.": reduce,
    "elect.": elect,
    "activemask.": active_mask,
    "bar.warp.": warp_barrier,
}
