"""A race of two accesses on one line -> what the address of its writes lacks, so that they meet: the block, the thread,
or the round; or that it changes what other threads change, too.

The address is followed in the PTX. Nothing is said where any part of it is not known, or where one of the line's
addresses has that part.
"""

from __future__ import annotations

from collections.abc import Sequence

from grader.compile.addresses import BLOCK, LARGEST, ROUND, THREAD, UNKNOWN, Address, updated_by, written_by
from grader.compile.nvcc_log import SOURCE
from grader.devices import Finding, Side
from grader.sandbox.parent import Program
from grader.verdict import Clue, Kind

UPDATED = (
    "reads a value, changes it and writes it back to the same place, and other threads do so, too. Between the read "
    "and the write another thread's value gets lost: it takes an atomic update, or a place of its own for each thread"
)
WRITE = ("writes", "copies", "updates")


def of_shared_place(program: Program | None, finding: Finding) -> list[Clue]:
    """At most one clue."""
    if program is None or finding.kind != Kind.RACE or len(finding.sides) != 2:
        return []
    one, other = finding.sides
    if one.line is None or (one.line, one.callers, one.file, one.kernel) != (
        other.line,
        other.callers,
        other.file,
        other.kernel,
    ):
        return []
    try:
        if program.ptx.stat().st_size > LARGEST:
            return []
        ptx = program.ptx.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    name = program.source.name
    if (one.file or SOURCE).rpartition("/")[2] != name:
        return []
    line = one.callers[-1] if one.callers else one.line
    if one.does in WRITE and other.does in WRITE:
        words = in_words(one, other, written_by(ptx, name, one.line, one.callers))
    else:
        words = UPDATED if {one.does, other.does} == {"reads", "writes"} else ""
        words = words if words and updated_by(ptx, name, one.line, one.callers) else ""
    return [Clue("place", f"line {line} {words}", line)] if words else []


def without_order(clues: Sequence[Clue]) -> list[Clue]:
    """The clues, without those on one place of several threads: for a race that a barrier alone takes away."""
    return [clue for clue in clues if clue.about != "place" or " to the same place" not in clue.text]


def in_words(one: Side, other: Side, addresses: list[Address]) -> str:
    """Empty where the addresses do not show it."""
    parts = {part for each in addresses for part in each.parts}
    if not addresses or UNKNOWN in parts:
        return ""
    if one.block != other.block:
        if BLOCK in parts:
            return ""
        return (
            "writes to the same place from every block: neither blockIdx nor the block's rank is in its address. "
            "Each block needs a place of its own, or one atomic update"
        )
    if one.thread != other.thread:
        if THREAD in parts:
            return ""
        return (
            "writes to the same place from every thread that comes to it: threadIdx is not in its address. Each thread "
            "needs a place of its own, or one thread alone writes"
        )
    if ROUND in parts or len({each.same for each in addresses}) > 1:
        return ""
    return (
        "writes to the same place each time that its thread comes to it: nothing that changes from round to round of "
        "its loop is in its address"
    )
