"""How the threads of a grade on a GPU share one interpreter."""

from __future__ import annotations

import sys

SWITCH_S = 0.0005


def switch_soon() -> None:
    """A thread that waits for the interpreter gets it after half a millisecond, not after 5.

    Some threads work out answers, and one speaks with the child process: each small call takes it three turns of the
    interpreter. With six grades at a time, such a call took up to 0.4 s, and takes 3 ms alone.
    """
    sys.setswitchinterval(SWITCH_S)
