"""A family's lesson, "If you see" -> its rows: what the grader says, the usual cause, what to do.

The first cell of a row begins with one or several kinds of verdict, then it says what tells this row from others of
the same kind. Which of them fits is left to the reader: a race on shared memory and a race on the output share most of
their words.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

HEADING = "If you see"

_SECTION = re.compile(rf"^## {HEADING}\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Symptom:
    """One row. ``sees`` is its first cell, as plain text."""

    sees: str
    cause: str
    remedy: str

    def kinds(self, known: Collection[str]) -> list[str]:
        """The kinds of verdict that the row is about."""
        return [kind for kind in known if re.search(rf"\b{re.escape(kind)}\b", plain(self.sees))]


def load_symptoms(lesson: Path) -> tuple[Symptom, ...]:
    """The rows of a lesson; none where it has no such section or cannot be read."""
    try:
        section = _SECTION.search(lesson.read_text())
    except (OSError, UnicodeDecodeError):
        return ()
    rows = [line for line in (section[1] if section else "").splitlines() if line.startswith("|")]
    cells = [[cell.strip().replace(r"\|", "|") for cell in _CELLS.split(row)[1:-1]] for row in rows[2:]]
    return tuple(Symptom(*row) for row in cells if len(row) == 3)


def plain(cell: str) -> str:
    """A cell without the marks of code."""
    return cell.replace("`", "")


def problems(lesson: Path, kinds: Collection[str]) -> list[str]:
    """What keeps a lesson's rows from being found by a verdict."""
    found = load_symptoms(lesson)
    if not found:
        columns = "what the grader says, the usual cause, what to do"
        return [f"{lesson} has no section '## {HEADING}' with a table of three columns: {columns}."]
    return [
        f"{lesson}: {HEADING}: the row {row.sees!r} names no kind of verdict. Begin it with one: {', '.join(kinds)}."
        for row in found
        if not row.kinds(kinds)
    ]
