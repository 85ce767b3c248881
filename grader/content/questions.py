"""exercises/<family>/interview.yaml -> the questions that follow a kata in an interview, each with its rubric.

questions:                       # of every kata of the family, at least four
  - question: What bounds it?
    points: [...]                # what a good answer has: two to four, each marked 0, 1 or 2
    follow_up: And on a card with twice the bandwidth?
katas:                           # optional: asked first, of this one kata
  square_f32: [...]
pool:                            # optional: katas that an interview draws, to be written from a blank file
  square_f32:
    minutes: 20                  # an estimate
    opening: {shapes: ..., alignment: ..., bound: ..., bytes: ..., operations: ...}  # what a strong answer says
    follow_ups:                  # two or more, asked after a pass, the easiest first
      - {ask: ..., weak: ..., good: ..., strong: ...}
readings:                        # optional: a kernel or a profile to read, on paper
  - kind: kernel                 # the code of a solution without its name; `replace` and `by` plant a bug in it
    kata: square_f32
    questions: [...]
  - {kind: profile, kata: square_f32, show: a text, questions: [...]}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.content import rung
from grader.content.catalog import Catalog, CatalogError, Kata
from grader.content.yaml_fields import MANY, Field, Value, close_to, number, one_of, record, root_value, several, words

FILE = "interview.yaml"
LEAST = 4  # questions of a family
POINTS = range(2, 5)  # of a question
MOST = 2  # marks for a point
LEAST_LINES = 20  # of kernel code in the solution of a kata of the pool
LONGEST = 240.0  # minutes for a blank file
OPENING = {  # what the first five minutes ask, in this order
    "shapes": "Shapes and types",
    "alignment": "Alignment and layout",
    "bound": "What bounds it",
    "bytes": "Bytes",
    "operations": "Operations",
}
KERNEL, PROFILE = "kernel", "profile"


@dataclass(frozen=True)
class Question:
    """One question, what a good answer to it has, and what to ask then."""

    question: str
    points: tuple[str, ...]
    follow_up: str


@dataclass(frozen=True)
class FollowUp:
    """What to ask after a pass, and how a weak, a good and a strong answer sound."""

    ask: str
    weak: str
    good: str
    strong: str


@dataclass(frozen=True)
class Pooled:
    """A kata of the pool. ``minutes``: an estimate, for a blank file. ``opening``: strong answers by OPENING's keys."""

    minutes: float
    opening: Mapping[str, str] = field(hash=False)
    follow_ups: tuple[FollowUp, ...]


@dataclass(frozen=True)
class Reading:
    """A text to read on paper, and its questions. ``show``: the text; empty for a kernel, which ``shown`` works out."""

    kind: str
    kata: str
    questions: tuple[Question, ...]
    show: str = ""
    replace: str = ""
    by: str = ""


@dataclass(frozen=True)
class Interview:
    """What a family's file says."""

    questions: tuple[Question, ...]
    own: Mapping[str, tuple[Question, ...]] = field(hash=False)
    pool: Mapping[str, Pooled] = field(hash=False)
    readings: tuple[Reading, ...]


def questions_path(kata: Kata) -> Path:
    return kata.lesson_path.with_name(FILE)


def load_interview(kata: Kata, family: Collection[str] = ()) -> Interview:
    """The whole file of the kata's family. ``family``: the names of its katas, which entries may stand under.

    Raises CatalogError naming the file, the line, the question and the fix.
    """
    path = questions_path(kata)
    purpose = f"Every family has one: {LEAST} questions for an interview or more."
    root = root_value(path, "interview", CatalogError, purpose)
    if root is None:
        raise CatalogError(f"{path}: is empty. {purpose}")
    found = record(root, _FILE)
    named = [(item.name, item.key) for item in (*found["katas"].values(), *found["pool"].values())]
    for name, key in [*named, *((item.kata, key) for item, key in found["readings"])]:
        if family and name not in family:
            raise key.error(f"no kata of this family.{close_to(name, family)} Correct the name or remove it.")
    return Interview(
        found["questions"],
        {name: item.entry for name, item in found["katas"].items()},
        {name: item.entry for name, item in found["pool"].items()},
        tuple(item for item, _ in found["readings"]),
    )


def load_questions(kata: Kata, family: Collection[str] = ()) -> tuple[Question, ...]:
    """The kata's own questions, then its family's. ``family`` and errors: as for ``load_interview``."""
    found = load_interview(kata, family)
    return (*found.own.get(kata.name, ()), *found.questions)


def load_pool(catalog: Catalog) -> Mapping[str, Pooled]:
    """The katas to draw for a blank file. Raises CatalogError, as ``load_interview`` does."""
    return {name: item for katas in catalog.by_family.values() for name, item in load_interview(katas[0]).pool.items()}


def shown(reading: Reading, kata: Kata) -> str:
    """What the candidate reads: a profile, or a kernel without its name, its comments and what says what it is for.

    Raises CatalogError where `replace` is not once in the solution.
    """
    if reading.kind == PROFILE:
        return reading.show
    solution = kata.solution_path.read_text()
    if reading.replace:
        if (times := solution.count(reading.replace)) != 1:
            problem = f"readings: {kata.name}: {reading.replace!r} is {times} times in the solution, not once."
            raise CatalogError(f"{questions_path(kata)}: {problem} Correct `replace`.")
        solution = solution.replace(reading.replace, reading.by)
    return "\n".join(rung.code_of(solution)).replace(kata.name, "operation")


def pool_problems(kata: Kata, family: Collection[str]) -> list[str]:
    """What is wrong with a kata's entry in the pool and with the readings about it. Raises CatalogError."""
    found = load_interview(kata, family)
    for reading in found.readings:
        if reading.kata == kata.name:
            shown(reading, kata)
    lines = rung.kernel_lines(kata.solution_path.read_text()) if kata.name in found.pool else LEAST_LINES
    if lines >= LEAST_LINES:
        return []
    where = f"{questions_path(kata)}: pool: {kata.name}"
    return [f"{where}: its solution has {lines} lines of kernel code; a blank file asks {LEAST_LINES}. Remove it."]


# Reading: the tables of fields


@dataclass(frozen=True)
class _Own:
    """What belongs to one kata. ``key`` is where its name stands."""

    name: str
    key: Value
    entry: Any


_QUESTION = {
    "question": Field(words, required=True),
    "points": Field(several(words, POINTS, "points that a good answer has"), required=True),
    "follow_up": Field(words, required=True),
}
_FOLLOW_UP = {name: Field(words, required=True) for name in ("ask", "weak", "good", "strong")}
_OPENING = {name: Field(words, required=True) for name in OPENING}
_POOLED = {
    "minutes": Field(number(0, LONGEST), required=True),
    "opening": Field(lambda value: record(value, _OPENING), required=True),
    "follow_ups": Field(
        several(lambda value: FollowUp(**record(value, _FOLLOW_UP)), range(2, MANY), "follow-ups"), required=True
    ),
}


def _question(value: Value) -> Question:
    return Question(**record(value, _QUESTION))


def _own(value: Value) -> dict[str, _Own]:
    read = several(_question, range(MANY), "questions")
    return {name: _Own(name, key, read(item)) for name, key, item in value.items()}


def _pool(value: Value) -> dict[str, _Own]:
    return {name: _Own(name, key, Pooled(**record(item, _POOLED))) for name, key, item in value.items()}


def _text(value: Value) -> str:
    """A text as it is, with its line breaks."""
    found: str = value.scalar(str, "a text: `show: |` and indented lines")
    return found.rstrip("\n")


_READING = {
    "kind": Field(one_of((KERNEL, PROFILE)), required=True),
    "kata": Field(words, required=True),
    "questions": Field(several(_question, range(1, MANY), "questions"), required=True),
    "show": Field(_text, ""),
    "replace": Field(_text, ""),
    "by": Field(_text, ""),
}


def _reading(value: Value) -> tuple[Reading, Value]:
    found = Reading(**record(value, _READING))
    if (found.kind == PROFILE) != bool(found.show):
        raise value.error("a profile has a text to `show`, and a kernel has none: it is the kata's solution.")
    return found, value


_FILE = {
    "questions": Field(several(_question, range(LEAST, MANY), "questions"), required=True),
    "katas": Field(_own, {}),
    "pool": Field(_pool, {}),
    "readings": Field(several(_reading, range(1, MANY), "readings"), ()),
}
