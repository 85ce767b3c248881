"""A process -> the seconds that its work takes, on a machine that may have other work to do.

They are those in which it computes and those in which all of it sleeps. While it could compute and has no processor,
the stopwatch stands still. Where the system has no /proc, it is as any other.
"""

from __future__ import annotations

import time

from grader.system.processes import can_run, processor_s


class Stopwatch:
    """Begins when it is made. A sleep is seen by looking: one between two looks is not."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._computed_s = processor_s(pid)
        self._slept_s = 0.0
        self._looked_s = time.monotonic()
        self._slept = False  # at the last look

    def seconds(self) -> float:
        """How many have passed up to now."""
        now, sleeps = time.monotonic(), not can_run(self._pid)
        if sleeps and self._slept:
            self._slept_s += now - self._looked_s
        self._looked_s, self._slept = now, sleeps
        return processor_s(self._pid) - self._computed_s + self._slept_s
