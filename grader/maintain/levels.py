"""Katas -> whether a level fits the answer: the part of the rule in difficulty.yaml's head that lines can show."""

from __future__ import annotations

from collections.abc import Iterator

from grader.content import skeleton
from grader.content.catalog import LEVELS, Catalog, Kata
from grader.content.rung import code_of

LARGEST = {3: "medium", 9: "hard"}  # lines of an answer -> the highest level that it can have
LONG, LEAST = 40, "hard"  # an answer of so many lines is at least of this level


def problems(catalog: Catalog) -> list[str]:
    return [problem for kata in catalog.katas.values() for problem in _problems(kata)]


def _problems(kata: Kata) -> Iterator[str]:
    lines, place = answer_size(kata), LEVELS.index(kata.level)
    for most, level in LARGEST.items():
        if lines <= most and place > LEVELS.index(level):
            yield f"difficulty.yaml: {kata.name} is {kata.level}, but its answer has {lines} lines: {level} at most."
            return
    if lines >= LONG and place < LEVELS.index(LEAST):
        yield f"difficulty.yaml: {kata.name} is {kata.level}, but its answer has {lines} lines: {LEAST} at least."


def answer_size(kata: Kata) -> int:
    """The lines of code in the answers of a kata, without comments."""
    text = kata.solution_path.read_text()
    lines = text.split("\n")
    return len(code_of("\n".join(lines[number - 1] for number in sorted(skeleton.answer_lines(text)))))
