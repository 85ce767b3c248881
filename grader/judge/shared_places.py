"""A race of two writes on one line -> what its address lacks, so that they meet: the block, the thread, or the round.

The address is followed in the PTX. Nothing is said where any part of it is not known, or where one of the line's
addresses has that part.
"""

from __future__ import annotations

from grader.compile.addresses import BLOCK, LARGEST, ROUND, THREAD, UNKNOWN, Address, written_by
from grader.compile.nvcc_log import SOURCE
from grader.devices import Finding, Side
from grader.sandbox.parent import Program
from grader.verdict import Clue, Kind

WRITE = ("writes", "copies", "updates")


def of_shared_place(program: Program | None, finding: Finding) -> list[Clue]:
    """At most one clue."""
    if program is None or finding.kind != Kind.RACE or len(finding.sides) != 2:
        return []
    one, other = finding.sides
    if one.line is None or one.does not in WRITE or other.does not in WRITE:
        return []
    if (one.line, one.callers, one.file, one.kernel) != (other.line, other.callers, other.file, other.kernel):
        return []
    try:
        if program.ptx.stat().st_size > LARGEST:
            return []
        ptx = program.ptx.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    name = program.source.name if (one.file or SOURCE).rpartition("/")[2] == program.source.name else ""
    addresses = written_by(ptx, name, one.line, one.callers) if name else []
    words = in_words(one, other, addresses)
    line = one.callers[-1] if one.callers else one.line
    return [Clue("place", f"line {line} {words}", line)] if words else []


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
