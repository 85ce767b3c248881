"""exercises/<family>/interview.yaml -> the questions that follow a kata in an interview, each with its rubric.

questions:                       # of every kata of the family, at least four
  - question: What bounds it?
    points: [...]                # what a good answer has: two to four, each marked 0, 1 or 2
    follow_up: And on a card with twice the bandwidth?
katas:                           # optional: asked first, of this one kata
  square_f32: [...]
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grader.content.catalog import CatalogError, Kata

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

    Raises CatalogError naming the file, the question and the fix.
    """
    path = questions_path(kata)
    try:
        found = _parsed(path.read_text())
    except OSError as error:
        raise CatalogError(
            f"{path} cannot be read ({error.strerror}). Every family has one: {LEAST} questions for an interview or "
            "more, each `question`, `points` and `follow_up`."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not set(found) <= {"questions", "katas"}:
        raise CatalogError(f"{path}: expected `questions: [...]` and, if there are any, `katas: {{name: [...]}}`.")
    general = list(_questions(path, "questions", found.get("questions")))
    if len(general) < LEAST:
        raise CatalogError(f"{path}: questions: has {len(general)}, and a family needs {LEAST} at least. Add some.")
    own = found.get("katas") or {}
    if not isinstance(own, dict):
        raise CatalogError(f"{path}: katas: expected `name: [...]` lines.")
    for name in own:
        if family and name not in family:
            raise CatalogError(f"{path}: katas: {name}: no kata of this family. Correct the name or remove it.")
    return (*_questions(path, f"katas: {kata.name}", own.get(kata.name, [])), *general)


@functools.cache
def _parsed(text: str) -> Any:
    """A family's whole file: its katas ask for it one after the other, and YAML is slow to read."""
    return yaml.safe_load(text)


def _questions(path: Path, where: str, entries: Any) -> Iterator[Question]:
    if not isinstance(entries, list):
        raise CatalogError(f"{path}: {where}: expected a list of questions.")
    for number, entry in enumerate(entries, 1):
        place = f"{path}: {where}: number {number}"
        if not isinstance(entry, dict) or set(entry) != {"question", "points", "follow_up"}:
            raise CatalogError(f"{place}: needs `question`, `points` and `follow_up`, and nothing else.")
        points = entry["points"]
        if not isinstance(points, list) or len(points) not in POINTS:
            raise CatalogError(f"{place}: needs {POINTS[0]} to {POINTS[-1]} points that a good answer has.")
        words = [entry["question"], *points, entry["follow_up"]]
        if not all(isinstance(text, str) and text.strip() for text in words):
            raise CatalogError(f"{place}: question, points and follow_up are words. Quote what YAML takes for another.")
        question, *short, follow_up = (" ".join(text.split()) for text in words)
        yield Question(question, tuple(short), follow_up)
