"""A learner's file -> Source: what was read of it, once. Nothing hangs on what stands in its place.

A grade reads the file once and passes on what was read: the verdict, its lines and its digest are of one state of the
file, even where the learner saves it meanwhile.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)

HELPER_LINES = 8  # of a function, its head and braces included, that only wraps an instruction or an access
ASM_LINES = 16  # of one that wraps an instruction of PTX, which has a line for each list of operands
LARGEST_BYTES = 1 << 20  # of a kata's file; the longest solution has a fiftieth of it


@dataclass(frozen=True)
class Source:
    """A file as it was when it was read. ``problem`` says why it could not be; then it is empty and has no digest."""

    path: Path
    data: bytes = b""
    problem: str = ""

    @cached_property
    def text(self) -> str:
        return self.data.decode(errors="replace")

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal."""
        return "" if self.problem else hashlib.sha256(self.data).hexdigest()

    def line(self, number: int) -> str:
        """One line, counted from 1, without its indentation; empty where there is none."""
        return self._lines[number - 1].strip() if 0 < number <= len(self._lines) else ""

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()


def source_of(path: Path) -> Source:
    """What is in a file now."""
    try:
        return Source(path, read_source(path))
    except OSError as error:
        return Source(path, problem=error.strerror or str(error))


def digest_of(path: Path) -> str:
    """The SHA-256 of what is in a file now; empty where it cannot be read."""
    return source_of(path).digest


def read_source(path: Path) -> bytes:
    """What is in a file. Raises OSError, also for what is not a regular file and for one that is too large."""
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if status.st_size > LARGEST_BYTES:
            size = f"it has {status.st_size:,} bytes, and a kata's file at most {LARGEST_BYTES:,}"
            raise OSError(errno.EFBIG, size)
        return file.read()


def first_line_with(word: str, text: str) -> int | None:
    """The first of lines_with(), if there is one."""
    return next(iter(lines_with(word, text)), None)


def lines_with(word: str, text: str) -> list[int]:
    """The lines, from 1, that have the word in their code: not in a comment, a string or a directive."""
    code = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    return [
        number
        for number, line in enumerate(code.splitlines(), 1)
        if pattern.search(line) and not line.lstrip().startswith("#")
    ]


def is_helper(text: str, number: int) -> bool:
    """Whether a line, from 1, stands in a short function other than a kernel. Functions begin and end in column 0."""
    lines = text.splitlines()
    first = last = number - 1
    if not 0 <= first < len(lines):
        return False
    while first > 0 and (not lines[first] or lines[first][0] in " \t}"):
        first -= 1
    while last < len(lines) - 1 and not lines[last].rstrip().endswith("}"):
        last += 1
    while last < len(lines) - 1 and lines[first] != lines[last] and not lines[last].startswith("}"):
        last += 1
    while first > 0 and lines[first - 1].strip() and lines[first - 1][0] not in " \t}/#":
        first -= 1  # a head of several lines
    body = lines[first : last + 1]
    most = ASM_LINES if any(re.search(r"\basm\b", line) for line in body) else HELPER_LINES
    return last - first < most and not any("__global__" in line for line in body)
