"""What kernels report of where their threads came -> the lines of the file that no case reached."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from grader.devices.counters import KernelCoverage
from grader.verdict import Coverage

ONCE, AGAIN = 1, 2
# After these the next statement need not run; a label may be jumped to.
_LEAVES = re.compile(r"\s*(return|break|continue|goto|throw|case|default|else|do)\b|.*\b(exit|trap)\b|\s*\w+:(?!:)")


def joined(reports: Iterable[KernelCoverage], text: str) -> Coverage:
    """The coverage of all kernels, of all processes that calls ran in. A kernel may be in it several times.

    ``text`` is the file. nvcc may keep a statement in two copies and count all that runs of it to other lines: one that
    stands beside a statement that ran has run.
    """
    launched: dict[str, bool] = defaultdict(bool)
    lines: dict[int, int] = defaultdict(int)
    loops: dict[int, int] = defaultdict(int)
    for report in reports:
        launched[report.kernel] |= report.launched
        _raise(lines, report.lines)
        _raise(loops, report.loops)
    raise_neighbours(lines, text.splitlines())
    return Coverage(
        tuple(sorted(name for name, was in launched.items() if not was)),
        _below(lines, ONCE),
        tuple(line for line in _below(loops, AGAIN) if lines[line]),
    )


def _raise(most: dict[int, int], found: Iterable[tuple[int, int]]) -> None:
    for line, state in found:
        most[line] = max(most[line], state)


def _below(most: Mapping[int, int], state: int) -> tuple[int, ...]:
    return tuple(sorted(line for line, reached in most.items() if reached < state))


def raise_neighbours(most: dict[int, int], text: Sequence[str]) -> None:
    """Statements in a row, each on a line of its own, run together."""
    open_, reached = (
        [line for line, state in most.items() if not state],
        {line for line, state in most.items() if state},
    )
    while open_:
        ran = [line for line in open_ if any(_together(text, first, reached) for first in (line - 1, line))]
        if not ran:
            return
        most.update(dict.fromkeys(ran, ONCE))
        reached.update(ran)
        open_ = [line for line in open_ if line not in reached]


def _together(text: Sequence[str], first: int, reached: set[int]) -> bool:
    """Whether one of a line and the next has run, and both are whole statements of one block."""
    if reached.isdisjoint((first, first + 1)) or first < 2 or first >= len(text):
        return False
    before, one, other = (line.partition("//")[0].rstrip() for line in text[first - 2 : first + 1])
    starts = before.endswith((";", "{", "}")) or not before.strip()
    margins = {len(line) - len(line.lstrip()) for line in (one, other)}
    return starts and all(map(_is_plain, (one, other))) and len(margins) == 1


def _is_plain(line: str) -> bool:
    """A statement that ends on its line and always goes on to the next one."""
    return line.endswith(";") and not _LEAVES.match(line) and not re.match(r"\s*(if|for|while|switch)\b", line)
