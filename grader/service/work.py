"""Task -> answer, in the fork: what is done with a task, and what its answer says."""

from __future__ import annotations

from grader.compile.request import Tell
from grader.content.catalog import Catalog, CatalogError, Kata
from grader.grade import grade
from grader.learner import progress
from grader.output import verdict_text
from grader.output.grade_json import record
from grader.service.task import Answer, Task
from grader.verdict import Grade


def graded(task: Task, catalog: Catalog, tell: Tell) -> Answer:
    """A grade that leaves no trace: "grade", its record, and "lines", what `kata grade` says of it."""
    return _answer(_grade(task, catalog, tell))


def kept(task: Task, catalog: Catalog, tell: Tell) -> Answer:
    """A learner's own grade, kept as progress: also "warning", where it could not be kept."""
    found = _grade(task, catalog, tell)
    return {**_answer(found), "warning": progress.keep_grade(found)}


def kata_of(task: Task, catalog: Catalog) -> Kata:
    """Raises CatalogError where the kata is gone from the catalogue."""
    if task.kata not in catalog.katas:
        raise CatalogError(f"{task.kata} is no longer in difficulty.yaml.")
    return catalog.katas[task.kata]


def _grade(task: Task, catalog: Catalog, tell: Tell) -> Grade:
    return grade(kata_of(task, catalog), task.options, source=task.source, tell=tell)


def _answer(found: Grade) -> Answer:
    if found.passed:
        lines = [
            f"{found.kata.name}: {verdict_text.outcome(found)}",
            *verdict_text.printed(found),
            *verdict_text.costs(found),
        ]
    else:
        lines = verdict_text.explanation(found).splitlines()
    return {"grade": record(found), "lines": lines}
