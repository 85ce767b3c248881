"""exercises/<family>/interview.yaml -> the questions that follow a kata in an interview, each with its rubric.

questions:                       # of every kata of the family, at least four
  - question: What bounds it?
    points: [...]                # what a good answer has: two to four, each marked 0, 1 or 2
    follow_up: And on a card with twice the bandwidth?
katas:                           # optional: asked first, of this one kata
  square_f32: [...]
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from grader.content.catalog import CatalogError, Kata
from grader.content.yaml_fields import MANY, Field, Value, close_to, record, root_value, several, words

FILE = "interview.yaml"
LEAST = 4  # questions of a family
POINTS = range(2, 5)  # of a question
MOST = 2  # marks for a point


@dataclass(frozen=True)
class Question:
    """One question, what a good answer to it has, and what to ask then."""

    question: str
    points: tuple[str, ...]
    follow_up: str


def questions_path(kata: Kata) -> Path:
    return kata.lesson_path.with_name(FILE)


def load_questions(kata: Kata, family: Collection[str] = ()) -> tuple[Question, ...]:
    """The kata's own questions, then its family's. ``family``: the names that a kata's own may stand under.

    Raises CatalogError naming the file, the line, the question and the fix.
    """
    path = questions_path(kata)
    purpose = f"Every family has one: {LEAST} questions for an interview or more."
    root = root_value(path, "interview", CatalogError, purpose)
    if root is None:
        raise CatalogError(f"{path}: is empty. {purpose}")
    found = record(root, _FILE)
    for own in found["katas"].values():
        if family and own.name not in family:
            raise own.key.error(f"no kata of this family.{close_to(own.name, family)} Correct the name or remove it.")
    own = found["katas"].get(kata.name)
    return (*(own.questions if own else ()), *found["questions"])


# Reading: the tables of fields


@dataclass(frozen=True)
class _Own:
    """The questions of one kata. ``key`` is where its name stands."""

    name: str
    key: Value
    questions: tuple[Question, ...]


_QUESTION = {
    "question": Field(words, required=True),
    "points": Field(several(words, POINTS, "points that a good answer has"), required=True),
    "follow_up": Field(words, required=True),
}


def _question(value: Value) -> Question:
    return Question(**record(value, _QUESTION))


def _own(value: Value) -> dict[str, _Own]:
    read = several(_question, range(MANY), "questions")
    return {name: _Own(name, key, read(item)) for name, key, item in value.items()}


_FILE = {
    "questions": Field(several(_question, range(LEAST, MANY), "questions"), required=True),
    "katas": Field(_own, {}),
}
