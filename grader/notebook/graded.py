"""Grade -> what a notebook shows of it. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from grader.output import verdict_text
from grader.verdict import Grade


@dataclass(frozen=True, repr=False)
class Graded:
    """A grade that shows itself as text, as in a notebook."""

    grade: Grade

    @property
    def passed(self) -> bool:
        return self.grade.passed

    def __repr__(self) -> str:
        if self.passed:
            return f"{self.grade.kata.name}: {verdict_text.outcome(self.grade)}"
        return verdict_text.explanation(self.grade)
