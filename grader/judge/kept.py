"""A call that fails -> whether it is right as the first call of a process: then the file keeps something between calls.

The second call that is compared is the same to the last pointer. Blocks that wait for each other take turns in the same
order in both, and what other blocks do at the same time must not matter: it has to be so twice. What is left is what
the file itself has kept: a variable of the device or of the host, or memory that it did not free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from grader.devices import Call, Limits, Outcome
from grader.judge.case import Case
from grader.judge.lab import judged
from grader.verdict import Clue

SECONDS = 3.0  # of a launcher, in one call
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

    def fails_after(first: Case) -> bool:
        """Whether the case fails after a call with ``first`` in a new process; of ``failed``, if that one is right."""
        process.restart()
        is_wrong = process.fails(first)
        return process.fails(failed) and not (is_wrong and first is failed)

    process.restart()
    if process.fails(failed):
        return ()
    kept = "the file keeps something from call to call"
    try:
        if process.fails(failed):
            words = "right in call 1 of a process, wrong in call 2, which is the same call"
            return (Clue("calls", f"{words}: {kept}"),) if fails_after(failed) else ()
        for other in [*others][:BEFORE]:
            if fails_after(other) and fails_after(other):
                words = f"right in call 1 of a process, wrong after a call with {other.shape}"
                return (Clue("calls", f"{words}: {kept}"),)
        return ()
    finally:
        process.restart()
