"""What kernels report of where their threads came -> the lines of the file that no case reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from grader.devices.counters import KernelCoverage
from grader.verdict import Coverage

ONCE, AGAIN = 1, 2


def joined(reports: Iterable[KernelCoverage]) -> Coverage:
    """The coverage of all kernels, of all processes that calls ran in. A kernel may be in it several times."""
    launched: dict[str, bool] = defaultdict(bool)
    lines: dict[int, int] = defaultdict(int)
    loops: dict[int, int] = defaultdict(int)
    for report in reports:
        launched[report.kernel] |= report.launched
        _raise(lines, report.lines)
        _raise(loops, report.loops)
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
