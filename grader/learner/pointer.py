"""Grade that is not a pass -> the line, the TODO and the row of the family's lesson that its verdict points at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from grader.content.skeleton import todo_at, todos
from grader.content.symptoms import Symptom, fitting, load_symptoms
from grader.verdict import Grade, Kind, Verdict, format_sizes

LEAST = 2  # a wrong answer has many causes: so much must tell that a row of the lesson is about this one
KINDS = tuple(str(kind) for kind in Kind)


@dataclass(frozen=True)
class Pointer:
    """``line`` and ``todo`` are of the learner's file, None where the verdict points at none.

    ``rows`` are those of the lesson's table "If you see" that fit best, several where nothing tells which.
    """

    line: int | None = None
    todo: int | None = None
    rows: tuple[Symptom, ...] = ()

    @property
    def row(self) -> Symptom | None:
        """The row that fits, if it is one."""
        return self.rows[0] if len(self.rows) == 1 else None


def point(graded: Grade) -> Pointer:
    verdict = graded.verdict
    if verdict.passed or verdict.kind is Kind.NOT_STARTED:
        return Pointer()
    symptoms = load_symptoms(graded.kata.lesson_path)
    least = LEAST if verdict.kind is Kind.WRONG_ANSWER else None
    rows = fitting(symptoms, str(verdict.kind), KINDS, _facts(verdict), _code(graded, verdict), least)
    text = graded.source.text
    if verdict.open_todos:
        number = verdict.open_todos[0]
        line = next((todo.line for todo in todos(text) if todo.number == number), None)
        return Pointer(verdict.line or line, number, tuple(rows))
    lines = [*_lines(verdict)]
    for line in lines:
        if (todo := todo_at(text, line)) is not None:
            return Pointer(line, todo.number, tuple(rows))
    return Pointer(lines[0] if lines else None, None, tuple(rows))


def _lines(verdict: Verdict) -> Iterator[int]:
    """The lines that a verdict names, those that tell most first."""
    if verdict.line is not None:
        yield verdict.line
        yield from verdict.finding.callers if verdict.finding else ()
    yield from (clue.line for clue in verdict.clues if clue.line is not None)
    for mismatch in verdict.mismatches:
        yield from map(int, re.findall(r"line (\d+)", mismatch.writer or ""))


def _code(graded: Grade, verdict: Verdict) -> str:
    """What is on the lines that a verdict names."""
    return "\n".join(graded.source.line(line) for line in _lines(verdict))


def _facts(verdict: Verdict) -> str:
    """All that a verdict says."""
    finding = verdict.finding
    words = [verdict.summary, verdict.pattern or "", format_sizes(verdict.sizes), verdict.values or ""]
    words += [finding.kernel or "", finding.buffer or ""] if finding else []
    words += [clue.text for clue in verdict.clues if clue.about not in ("outputs", "sizes", "values")]
    words += [item.kernel for item in verdict.launched or ()]
    for mismatch in verdict.mismatches:
        got = "never written" if mismatch.got is None else f"got {mismatch.got:.9g}"
        inputs = (f"{name} {value:.9g}" for name, value in mismatch.inputs.items())
        words.append(f"{mismatch.buffer} expected {mismatch.expected:.9g} {got} {' '.join(inputs)}")
    return "\n".join(words)
