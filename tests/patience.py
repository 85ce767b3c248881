"""Waiting for what must happen. A test waits for a fact, for minutes if need be: only a fault makes it wait so long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PATIENCE_S = 240.0  # for what takes a second or two on a machine that does nothing else


def wait_for(condition: Callable[[], Any], what: str) -> None:
    """Return when the condition holds."""
    stop = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < stop, f"waited in vain for {what}"
        time.sleep(0.02)


def wait_for_the_end_of(pids: Iterable[int]) -> None:
    """Return when none of these processes is there; one that ended and that nobody has waited for is none."""
    listed = list(pids)
    wait_for(lambda: not any(map(runs, listed)), f"the end of the processes {listed}")


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
