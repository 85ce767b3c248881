"""A family's lesson, "If you see" -> its rows: what the grader says, the usual cause, what to do; and which row fits.

The first cell of a row begins with one or several kinds of verdict, then it says what tells this row from others of
the same kind: names, sizes and words that a verdict of it has. So a family's lesson alone decides what its verdicts
point to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

HEADING = "If you see"
LEAST_WORD = 4  # letters of a word that tells something
NAME, CODE_NAME, WORD = 4, 2, 1  # how much a name and a word in common tell

_SECTION = re.compile(rf"^## {HEADING}\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_CELLS = re.compile(r"(?<!\\)\|")
_SIZE = re.compile(r"\b([A-Za-z]\w*) ?= ?(\d+)\b")
_NAMES = re.compile(r"`([^`]+)`|\b(\w*_\w+|nan|inf|never written)\b|\bon ([A-Za-z]\w*)\b")
_VALUE = re.compile(r"\b(expect|got)\w* (nan|-?inf|-?\d[\d.]*)\b")  # as "expected nan, got 0"
_WORDS = re.compile(r"[A-Za-z]+")
# Words of the language and of every verdict: they do not tell one row from another.
_COMMON = frozenset(
    {"with", "from", "that", "this", "than", "then", "they", "only", "every", "where", "which", "because", "into"}
    | {"does", "have", "other", "some", "each", "after", "before", "wrong", "answer", "element", "elements", "reads"}
    | {"read", "writes", "written", "when", "place", "line", "right", "rows", "columns", "first", "values"}
)


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


def fitting(
    symptoms: Sequence[Symptom], kind: str, kinds: Collection[str], facts: str, code: str = "", least: int | None = None
) -> list[Symptom]:
    """The rows on this kind of verdict that fit best its ``facts``: its sentences, names and sizes; and the ``code`` of
    the lines that it names, in which a name tells less.

    Several, where nothing tells which; none, where the lesson has none of this kind. ``least``: how much must tell that
    a row fits, for a kind of verdict that has many causes.
    """
    same = [row for row in symptoms if kind in row.kinds(kinds)]
    scores = [_score(row, kinds, facts, code) for row in same]
    best = max(scores, default=0)
    if least is not None and best < least:
        return []
    return [row for row, score in zip(same, scores, strict=True) if score == best]


def _score(row: Symptom, kinds: Collection[str], facts: str, code: str) -> int:
    """How much of what tells this row from others is in the facts. A name that is missing there counts against it."""
    rest = row.sees
    for kind in kinds:
        rest = re.sub(rf"`?\b{re.escape(kind)}\b`?", " ", rest)
    score = 0
    for name, size in _SIZE.findall(rest):
        score += WORD if re.search(rf"\b{name} ?= ?{size}\b", facts) else -WORD
    for verb, value in _VALUE.findall(rest):
        score += NAME if re.search(rf"\b{verb}\w* {re.escape(value)}(?!\S)", facts) else -NAME
    rest = _VALUE.sub(" ", _SIZE.sub(" ", rest))
    for found in _NAMES.finditer(rest):
        name = (found[1] or found[2] or found[3]).rstrip("()")
        if found[3] and len(name) > 2 and not _is_name(name, facts + code) and found[3].islower() and "_" not in name:
            continue  # "on the", "on whole numbers": a word, not a name
        score += NAME if _is_name(name, facts) else CODE_NAME if _is_name(name, code) else -NAME
    words = {word.lower() for word in _WORDS.findall(_NAMES.sub(" ", rest)) if len(word) >= LEAST_WORD}
    known = {word.lower() for word in _WORDS.findall(facts + code)}
    return score + WORD * sum(_stem(word) in {_stem(each) for each in known} for word in words - _COMMON)


def _is_name(name: str, facts: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", facts) is not None


def _stem(word: str) -> str:
    """A plural and its singular are one."""
    return word[:-1] if word.endswith("s") and len(word) > LEAST_WORD else word
