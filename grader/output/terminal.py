"""Lines -> a screen, and keys one by one: a terminal that is given back as it was, however the program ends.

It draws a screen of plain text with a little colour, or without colour if NO_COLOR is set.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import termios
import textwrap
import tty
from collections.abc import Sequence
from types import FrameType

KEYS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b": "escape", "\n": "escape", "\r": "escape", "\x04": "q"}
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32"}
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO.|.", re.DOTALL)

Line = tuple[str, str]  # text, and a name of STYLES or ""


def is_usable() -> bool:
    """Whether keys can be read and lines drawn."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Terminal:
    """A context: inside, keys come one by one and without an echo. Ctrl-C and Ctrl-Z do what they always do."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._before = termios.tcgetattr(self._input)
        self._drawn: Sequence[Line] | None = None
        self._colour = "NO_COLOR" not in os.environ

    def __enter__(self) -> Terminal:
        tty.setcbreak(self._input, termios.TCSANOW)
        self._handlers = {
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._suspend),
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._resized),
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._restore()
        with contextlib.suppress(OSError):
            os.write(self._output, b"\n")

    def fileno(self) -> int:
        return self._input

    def pressed(self) -> list[str]:
        """The keys that were pressed: a character, or a name in KEYS. "q" where the terminal is gone."""
        try:
            data = os.read(self._input, 1024)
        except OSError:
            return ["q"]
        if not data:
            return ["q"]
        return [KEYS.get(key, key) for key in _KEY.findall(data.decode(errors="replace"))]

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            found = os.get_terminal_size(self._output)
        except OSError:
            return 80, 24
        return max(20, found.columns or 80), max(6, found.lines or 24)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines, each of which fits the width. Writes nothing if they are already on the screen."""
        if lines == self._drawn:
            return
        head = "\x1b[2J\x1b[H" if self._drawn is None else "\x1b[H"
        text = head + "\x1b[K\n".join(self._styled(*line) for line in lines) + "\x1b[K\x1b[J"
        data = text.encode(errors="replace")
        with contextlib.suppress(OSError):  # a terminal that is gone is noticed when a key is read
            while data:
                data = data[os.write(self._output, data) :]
        self._drawn = list(lines)

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and self._colour else text

    def _restore(self) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._input, termios.TCSANOW, self._before)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        tty.setcbreak(self._input, termios.TCSANOW)  # continued: perhaps much later, on another size
        self._drawn = None

    def _resized(self, number: int, frame: FrameType | None) -> None:
        self._drawn = None


def is_terminal() -> bool:
    """Whether what print() writes goes to a terminal."""
    return sys.stdout.isatty()


def line_width(otherwise: int) -> int:
    """How many characters of a line print() shows: ``otherwise`` where output goes to no terminal."""
    return max(20, shutil.get_terminal_size((otherwise, 24)).columns) if is_terminal() else otherwise


def plain(text: str) -> str:
    """Any text as one line. Characters that a terminal would obey become escapes, ``\\x1b``, also a new line and the
    marks that change the direction of writing. Tabs stay."""
    return "".join(letter if letter.isprintable() or letter == "\t" else repr(letter)[1:-1] for letter in text)


def wrapped(text: str, columns: int) -> list[str]:
    """A line as lines that fit, in plain text."""
    lines = textwrap.wrap(plain(text.expandtabs(4)), columns, replace_whitespace=False, break_on_hyphens=False)
    return lines or [""]


def painted(text: str, style: str) -> str:
    """A text for print(): with its style where output goes to a terminal that shows it, else plain."""
    colourless = (
        not style or "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb" or not sys.stdout.isatty()
    )
    return text if colourless else f"\x1b[{STYLES[style]}m{text}\x1b[0m"
