"""A call that fails -> whether it is right as the first call of a process: then the file keeps something between calls.

The second call that is compared is the same to the last pointer, and blocks that wait for each other take turns in the
same order. Only what the file itself has kept can make it another: a variable of the device or of the host, or memory
that it did not free. Other blocks run side by side: what is found must be found again in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from grader.devices import Call, Limits, Outcome
from grader.judge.case import Case
from grader.judge.lab import judged
from grader.verdict import Clue

SECONDS = 3.0  # of a launcher, in one call
AGAIN = 3  # times that it must be found again
BEFORE = 2  # other shapes that are called first


@dataclass(frozen=True)
class Process:
    """``restart`` gives the launcher a process of its own; ``call`` calls it there."""

    call: Callable[[Call], Outcome]
    restart: Callable[[], None]
    limits: Limits

    def fails(self, case: Case) -> bool:
        limits = replace(self.limits, seconds=min(SECONDS, self.limits.seconds))
        outcome = self.call(case.call(nth=0, limits=limits))
        return bool(outcome.findings) or judged(case, outcome).wrong


def of_calls(process: Process, failed: Case, others: Iterable[Case]) -> tuple[Clue, ...]:
    """A clue if the case is right in the first call of a process and fails in the second; or fails after one of the
    ``others`` alone, of which only a few are tried."""
    process.restart()
    if process.fails(failed):
        return ()
    try:
        if process.fails(failed):
            words = "right in call 1 of a process, wrong in call 2, which is the same call"
            return _clue(words) if _is_found_again(process, failed, failed) else ()
        for other in [*others][:BEFORE]:
            process.restart()
            process.fails(other)
            if process.fails(failed):
                words = f"right in call 1 of a process, wrong after a call with {other.shape}"
                return _clue(words) if _is_found_again(process, other, failed) else ()
        return ()
    finally:
        process.restart()


def after(process: Process, first: Case, other: Case) -> tuple[Clue, ...]:
    """A clue if ``other``, which is right by itself, fails after a call with ``first``, which fails by itself."""
    if not _is_found_again(process, first, other):
        return ()
    words = (
        f"{other.shape} is right in call 1 of a process, wrong after a call with this shape, which fails in call 1, too"
    )
    return _clue(words)


def _clue(words: str) -> tuple[Clue, ...]:
    return (Clue("calls", f"{words}: the file keeps something from call to call"),)


def _is_found_again(process: Process, first: Case, failed: Case) -> bool:
    """Whether the case is right as the first call of each of some processes, and fails after another call in each."""
    for _ in range(AGAIN):
        process.restart()
        if process.fails(failed):
            return False
        if first is not failed:
            process.restart()
            process.fails(first)
        if not process.fails(failed):
            return False
    return True
