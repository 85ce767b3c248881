"""Mutants from which nvcc makes the same device code as from the solution: they are right because the solution is."""

from __future__ import annotations

import re

# What names the file, and what numbers functions and labels in the order of the file.
_PLACES = re.compile(r"^\s*(?:\.loc|\.file|//).*\n|^\s*\n", re.MULTILINE)
_DEBUG = re.compile(r"^\s*\.section\s+\.debug.*?^\s*\}\n", re.MULTILINE | re.DOTALL)
_TAGS = re.compile(r"unit_[0-9a-f]{16}|_GLOBAL__N__[0-9a-f]{8}(?:_\d+_\w+?_cu_[0-9a-f]{8})?(?:_\d+)?")
_LABEL = re.compile(r"(?<=\$L__)BB\d+(?=_)|\b__(?:local_depot|func_retval|unnamed_)\d+\b|\bcallseq \d+")
# The head of a function that runs on the device alone; a body begins in the first column, and ends there.
_DEVICE, _HOST = re.compile(r"\b__(?:global|device)__\b"), re.compile(r"\b__host__\b")


def same_code(ptx: str, other: str) -> bool:
    """Whether two files of PTX differ in names, places and comments alone."""
    return _bare(ptx) == _bare(other)


def _bare(ptx: str) -> str:
    seen: dict[str, str] = {}
    text = _TAGS.sub("tag", _PLACES.sub("", _DEBUG.sub("", ptx)))
    return _LABEL.sub(lambda label: seen.setdefault(label[0], f"label{len(seen)}"), text)


def on_device_alone(text: str, line: int) -> bool:
    """Whether a line is inside of a function that no host code calls: one of a launcher changes more than PTX."""
    lines = text.split("\n")
    top = line - 1
    while top > 0 and not _begins(lines[top]):
        top -= 1
    first = top
    while first > 0 and lines[first - 1].strip() and not lines[first - 1].startswith(("}", "//", "#")):
        first -= 1
    head = " ".join(lines[first : line - 1]).partition("{")[0]
    return top < line - 1 and bool(_DEVICE.search(head)) and not _HOST.search(head)


def _begins(line: str) -> bool:
    return bool(line) and not line[0].isspace() and not line.startswith(("}", "//", "#"))
