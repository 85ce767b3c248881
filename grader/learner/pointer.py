"""Grade that is not a pass -> the line and the TODO that its verdict points at, and the lesson's rows on its kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from grader.content.catalog import Kata
from grader.content.skeleton import todo_at, todos
from grader.content.symptoms import Symptom, load_symptoms
from grader.verdict import Grade, Kind, Verdict

KINDS = tuple(str(kind) for kind in Kind)


@dataclass(frozen=True)
class Pointer:
    """``line`` and ``todo`` are of the learner's file, None where the verdict points at none.

    ``rows`` are those of the lesson's table "If you see" that are on the verdict's kind.
    """

    line: int | None = None
    todo: int | None = None
    rows: tuple[Symptom, ...] = ()


def rows_on(kata: Kata, kind: str) -> tuple[Symptom, ...]:
    """The rows of the family's lesson on this kind of verdict."""
    return tuple(row for row in load_symptoms(kata.lesson_path) if kind in row.kinds(KINDS))


def point(graded: Grade) -> Pointer:
    verdict = graded.verdict
    if verdict.passed or verdict.kind is Kind.NOT_STARTED:
        return Pointer()
    rows = rows_on(graded.kata, str(verdict.kind))
    text = graded.source.text
    if verdict.open_todos:
        number = verdict.open_todos[0]
        line = next((todo.line for todo in todos(text) if todo.number == number), None)
        return Pointer(verdict.line or line, number, rows)
    lines = [*_lines(verdict)]
    for line in lines:
        if (todo := todo_at(text, line)) is not None:
            return Pointer(line, todo.number, rows)
    return Pointer(lines[0] if lines else None, None, rows)


def _lines(verdict: Verdict) -> Iterator[int]:
    """The lines that a verdict names, those that tell most first."""
    if verdict.line is not None:
        yield verdict.line
        yield from verdict.finding.callers if verdict.finding else ()
    yield from (clue.line for clue in verdict.clues if clue.line is not None)
    for mismatch in verdict.mismatches:
        yield from map(int, re.findall(r"line (\d+)", mismatch.writer or ""))
