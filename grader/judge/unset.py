"""The build of a file whose answer is wrong -> what in it is used before anything sets it."""

from __future__ import annotations

from collections.abc import Iterator

from grader.compile.unset import Unset, unset_lines, warned
from grader.sandbox.parent import Program
from grader.verdict import Clue

LOG = "log.txt"  # beside the PTX: what nvcc said
MOST = 3  # lines that are named
LARGEST = 4 << 20  # bytes of PTX


def of_unset(program: Program | None) -> Iterator[Clue]:
    """At most one clue: nvcc's own warning, or else the lines whose registers nothing has written."""
    if program is None:
        return
    try:
        log = program.ptx.with_name(LOG).read_text(errors="replace")
        found = warned(log)
        if not found and program.ptx.stat().st_size <= LARGEST:
            found = unset_lines(program.ptx.read_text(errors="replace"), program.source.name)
    except OSError:
        return
    if found:
        yield Clue("unset", _words(found), line=found[0].line)


def _words(found: list[Unset]) -> str:
    if found[0].warning:
        return f"nvcc warns on line {found[0].line}: {found[0].warning}"
    lines = ", ".join(str(each.line) for each in found[:MOST])
    more = ", ..." if len(found) > MOST else ""
    plural = "s" if len(found) > 1 else ""
    return (
        f"line{plural} {lines}{more}: a register is read that nothing has written: a variable is not set before its use"
    )
