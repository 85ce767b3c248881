"""A sandbox that is wanted later -> its child, started meanwhile by a thread: one that must have torch is seconds in
coming."""

from __future__ import annotations

import contextlib
import threading

from grader.sandbox.parent import Program, Sandbox


class Early:
    """One sandbox, which no other thread uses until it is asked for. Who asks waits for its child."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox, self._lock = sandbox, threading.Lock()
        self._thread: threading.Thread | None = None
        self._starts = self._closed = False
        self._program: Program | None = None

    def begin(self, contents_bytes: int = 0) -> None:
        """Let its child be started, with memory ready for contents of so many bytes. Where that fails, who uses the
        sandbox hears of it."""
        self._starts = True
        self._thread = threading.Thread(target=self._start, args=(contents_bytes,), daemon=True)
        self._thread.start()

    def _start(self, contents_bytes: int) -> None:
        with contextlib.suppress(Exception):
            self._sandbox.start()
            if contents_bytes:
                self._sandbox.reserve(contents_bytes)
        with self._lock:
            self._starts = False
            if self._closed:
                self._sandbox.close()
            if self._program is not None:
                self._sandbox.load(self._program)

    def load(self, program: Program) -> None:
        """As a sandbox's, without waiting for its child."""
        with self._lock:
            self._program = program
            if not self._starts:
                self._sandbox.load(program)

    def close(self) -> None:
        """End its child, also one that is still to come, without waiting for that."""
        with self._lock:
            self._closed = True
            if not self._starts:
                self._sandbox.close()

    def sandbox(self) -> Sandbox:
        """The sandbox, once its child has been started where that was begun."""
        if self._thread is not None:
            self._thread.join()
        return self._sandbox
