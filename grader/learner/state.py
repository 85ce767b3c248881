"""Kata, its file and progress -> State: how far the learner is with it, and whether it may be begun."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grader.content import skeleton
from grader.content.catalog import ROLES, Catalog, Kata
from grader.content.source_file import digest_of
from grader.content.start import SKELETON, is_untouched
from grader.learner.progress import Event, History

NOT_STARTED, WRITTEN, FAILED, PASSED = WORDS = ("not started", "written", "failed", "passed")


@dataclass(frozen=True)
class State:
    """What is known of a kata. Its file is read where ``word`` or ``text`` is asked for: there are hundreds of them."""

    kata: Kata
    progress: History

    @property
    def word(self) -> str:
        """One of WORDS. Raises SkeletonError if the kata's solution is malformed."""
        return self._words[0]

    @property
    def text(self) -> str:
        """The word in full: ``failed: race, 2026-03-31; edited since``. Raises as ``word`` does."""
        return self._words[1]

    @cached_property
    def _words(self) -> tuple[str, str]:
        return _words(self.kata, self.progress, self.last, self.start)

    @property
    def unlocked(self) -> bool:
        """Whether all that comes before it is passed."""
        return all(self.progress.passed(name) for name in self.kata.requires)

    @property
    def passed(self) -> Event | None:
        """The first pass: where there is one, ``word`` is PASSED."""
        return self.progress.passed(self.kata.name)

    @property
    def last(self) -> Event | None:
        """The last grade."""
        return next(reversed(self.progress.grades(self.kata.name)), None)

    @property
    def hints(self) -> tuple[int, ...]:
        """The strengths that were shown."""
        return tuple(self.progress.hints(self.kata.name))

    @property
    def solution_seen(self) -> Event | None:
        return self.progress.solution_seen(self.kata.name)

    @property
    def start(self) -> str:
        """What the learner's file was started from: one of STARTS."""
        kata = self.kata
        return self.progress.started_from(kata.name) if kata.own_path == kata.work_path else SKELETON

    @property
    def passed_from(self) -> tuple[str, ...]:
        """The starts that it was passed from."""
        return self.progress.passed_from(self.kata.name)

    def record(self) -> dict[str, Any]:
        """What `--json` gives of a kata."""
        kata = self.kata
        facts = {name: getattr(kata, name) for name in ("name", "family", "level", "elem", "acc", "role", "requires")}
        return {
            **facts,
            "state": self.word,
            "unlocked": self.unlocked,
            "passed": self.passed and self.passed.time,
            "last_verdict": self.last and self.last.verdict,
            "last_grade": self.last and self.last.time,
            "hints": self.hints,
            "solution_seen": self.solution_seen and self.solution_seen.time,
            "start": self.start,
            "passed_from": self.passed_from,
            "file": str(kata.own_path),
            "lesson": str(kata.lesson_path),
        }


def states(catalog: Catalog, progress: History) -> Mapping[str, State]:
    """The state of every kata, by name, in the order to solve them."""
    return {kata.name: State(kata, progress) for kata in catalog.katas.values()}


def _words(kata: Kata, progress: History, last: Event | None, start: str) -> tuple[str, str]:
    """The word for a state, and the words. A pass stands, even where the file was reset to solve it again."""
    passed = progress.passed(kata.name)
    if passed and last:
        hardest = progress.passed_from(kata.name)[-1]
        how = "" if hardest == SKELETON else f" from a {hardest}"
        since = "" if last.passed else f"; last grade: {last.verdict}, {last.date}"
        return PASSED, f"passed{how}, {passed.date}{since}"
    try:
        text = skeleton.read(kata.own_path)
    except OSError as error:
        back = skeleton.reset_hint(kata, kata.own_path)
        return WRITTEN, f"{WRITTEN}; the file cannot be read ({error.strerror}): {back}"
    if is_untouched(kata, text):
        return NOT_STARTED, NOT_STARTED if start == SKELETON else f"{NOT_STARTED}: a {start} file"
    if last:
        edited = "" if last.digest == digest_of(kata.own_path) else "; edited since"
        return FAILED, f"failed: {last.verdict}, {last.date}{edited}"
    empty = [str(todo.number) for todo in skeleton.todos(text) if todo.empty]
    return WRITTEN, f"{WRITTEN}; TODO {', '.join(empty)} open" if empty else WRITTEN


def next_ones(chosen: Iterable[State]) -> list[State]:
    """What may be solved next, in this order: what is open and not passed, of the core before any drill."""
    left = (state for state in chosen if state.unlocked and state.passed is None)
    return sorted(left, key=lambda state: ROLES.index(state.kata.role))
