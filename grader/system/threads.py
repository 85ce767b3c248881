"""How the threads of a grade on a GPU share one interpreter."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

SWITCH_S = 0.0005


def switch_soon() -> None:
    """A thread that waits for the interpreter gets it after half a millisecond, not after 5.

    Some threads work out answers, and one speaks with the child process: each small call takes it three turns of the
    interpreter. With six grades at a time, such a call took up to 0.4 s, and takes 3 ms alone.
    """
    sys.setswitchinterval(SWITCH_S)


class Break:
    """Threads that work ahead pause where they ``wait``, while another is at what they would slow down."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._is_over.set()

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
        self._is_over.clear()
        try:
            yield
        finally:
            self._is_over.set()

    def wait(self) -> None:
        self._is_over.wait()
