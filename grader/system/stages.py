"""Work in stages -> the seconds that each stage took.

The seconds of a stage do not include those of a stage inside it: together they are the seconds of all of the work.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar

REST = "the rest"  # what no stage covers
_RECORDING: ContextVar[_Recording | None] = ContextVar("recording", default=None)


class _Recording:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open = [REST]
        self._since = time.monotonic()

    def enter(self, name: str) -> None:
        self.account()
        self._open.append(name)

    def leave(self) -> None:
        self.account()
        self._open.pop()

    def account(self) -> None:
        """Add the time that has passed to the innermost stage."""
        now, name = time.monotonic(), self._open[-1]
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


@contextlib.contextmanager
def recorded() -> Iterator[dict[str, float]]:
    """The seconds of each stage of what this thread does in the block; complete when the block has ended."""
    recording = _Recording()
    token = _RECORDING.set(recording)
    try:
        yield recording.seconds
    finally:
        recording.account()
        _RECORDING.reset(token)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage of what is being recorded; without effect where nothing is. Also a decorator of functions."""
    recording = _RECORDING.get()
    if recording is None:
        yield
        return
    recording.enter(name)
    try:
        yield
    finally:
        recording.leave()
