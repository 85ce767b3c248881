"""What was asked for -> the parts of an interview: which kata, for how many minutes.

Katas are drawn with the interview's seed: first from those that the learner neither passed nor saw the solution of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from grader.content.catalog import LEVELS, Catalog, Kata
from grader.content.start import BLANK, SKELETON, STARTS
from grader.content.yaml_fields import MANY, Field, number, one_of, record, root_value, several, words
from grader.fault import Fault
from grader.learner.progress import History

PLANS = Path(__file__).with_name("plans.yaml")
MINUTES = 45.0
MOST_MINUTES = 600.0


class InterviewError(Fault):
    """What was asked for cannot be done; the message says why and what to do."""


@dataclass(frozen=True)
class PartRequest:
    """One part as it was asked for. What is None is left to the seed; ``kata`` leaves nothing to it. ``start``, one of
    STARTS, is the file to hand out."""

    minutes: float
    level: str | None = None
    family: str | None = None
    kata: str | None = None
    start: str = BLANK


@dataclass(frozen=True)
class Plan:
    """A named plan."""

    name: str
    about: str
    parts: tuple[PartRequest, ...]


@dataclass(frozen=True)
class Part:
    """One part of an interview: a kata and its minutes. ``known``: what the learner had of it before, in words.
    ``start``: the file that is handed out; a log that does not say it is from when that was always the skeleton."""

    kata: str
    minutes: float
    known: str = ""
    start: str = SKELETON


_PART = {
    "minutes": Field(number(0, MOST_MINUTES), required=True),
    "level": Field(one_of(LEVELS)),
    "family": Field(words),
    "kata": Field(words),
    "start": Field(one_of(STARTS), BLANK),
}
_PLAN = {
    "about": Field(words, required=True),
    "parts": Field(several(lambda value: PartRequest(**record(value, _PART)), range(1, MANY), "parts"), required=True),
}


def load_plans(place: Path = PLANS) -> Mapping[str, Plan]:
    """All named plans. Raises InterviewError naming the file, the line, the plan and the fix."""
    root = root_value(place, "plans", InterviewError, "It must name at least one plan.")
    plans = {name: Plan(name, **record(value, _PLAN)) for name, _, value in root.items()} if root else {}
    if not plans:
        raise InterviewError(f"{place}: is empty. Name at least one plan: `name: {{about: ..., parts: [...]}}`.")
    return plans


def draw(
    requests: Sequence[PartRequest], catalog: Catalog, progress: History, seed: int, runs: Callable[[Kata], bool]
) -> tuple[Part, ...]:
    """A kata for every request, none twice. ``runs``: whether this machine can grade it. Raises InterviewError."""
    random = Random(seed)
    parts: list[Part] = []
    for request in requests:
        kata = _drawn(request, catalog, progress, random, runs, {part.kata for part in parts})
        parts.append(Part(kata.name, request.minutes, known(kata, progress), request.start))
    return tuple(parts)


def _drawn(
    request: PartRequest,
    catalog: Catalog,
    progress: History,
    random: Random,
    runs: Callable[[Kata], bool],
    taken: Collection[str],
) -> Kata:
    if request.kata is not None:
        (kata,) = _named(request.kata, catalog)
        if request.level not in (None, kata.level) or request.family not in (None, kata.family):
            raise InterviewError(f"{kata.name} is {kata.level}, of the family {kata.family}. Leave out what differs.")
        return kata
    if request.family is not None and request.family not in catalog.families:
        raise InterviewError(f"no family is called {request.family!r}; there are: {', '.join(catalog.families)}.")
    fits = [
        kata
        for kata in catalog.katas.values()
        if request.level in (None, kata.level) and request.family in (None, kata.family) and kata.name not in taken
    ]
    able = [kata for kata in fits if runs(kata)]
    if not able:
        asked = " ".join(word for word in (request.level, request.family) if word)
        why = "this machine can grade none of these katas" if fits else "no kata matches"
        raise InterviewError(f"cannot draw a kata ({asked}): {why}. `kata list` shows all katas.")
    fresh = [kata for kata in able if not known(kata, progress)]
    return random.choice(fresh or able)


def _named(name: str, catalog: Catalog) -> tuple[Kata]:
    katas = catalog.select([name])
    if len(katas) != 1:
        raise InterviewError(
            f"--kata is for one kata, but {name!r} names {len(katas)}; --family takes any of a family."
        )
    return (katas[0],)


def known(kata: Kata, progress: History) -> str:
    """What the learner had of a kata before, in words; empty for nothing."""
    passed, seen = progress.passed(kata.name), progress.solution_seen(kata.name)
    hints = progress.hints(kata.name)
    words = (
        f"passed, {passed.date}" if passed else "",
        f"solution looked at, {seen.date}" if seen else "",
        f"hints {', '.join(map(str, hints))} shown" if hints else "",
    )
    return "; ".join(filter(None, words))
