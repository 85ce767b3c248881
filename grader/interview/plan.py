"""What was asked for -> the parts of an interview: which kata, for how many minutes.

Katas are drawn with the interview's seed: first from those that the learner neither passed nor saw the solution of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from grader.content.catalog import LEVELS, Catalog, Kata
from grader.fault import Fault
from grader.learner.progress import Progress

PLANS = Path(__file__).with_name("plans.yaml")
MINUTES = 45.0
MOST_MINUTES = 600.0


class InterviewError(Fault):
    """What was asked for cannot be done; the message says why and what to do."""


@dataclass(frozen=True)
class Wish:
    """One part as it was asked for. What is None is left to the seed; ``kata`` leaves nothing to it."""

    minutes: float
    level: str | None = None
    family: str | None = None
    kata: str | None = None


@dataclass(frozen=True)
class Plan:
    """A named plan."""

    name: str
    about: str
    parts: tuple[Wish, ...]


@dataclass(frozen=True)
class Part:
    """One part of an interview: a kata and its minutes. ``known``: what the learner had of it before, in words."""

    kata: str
    minutes: float
    known: str = ""


def load_plans(place: Path = PLANS) -> Mapping[str, Plan]:
    """All named plans. Raises InterviewError naming the file, the plan and the fix."""
    import yaml

    try:
        found = yaml.safe_load(place.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InterviewError(f"{place} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not found:
        raise InterviewError(f"{place}: must name at least one plan: `name: {{about: ..., parts: [...]}}`.")
    return {name: _plan(place, name, entry) for name, entry in found.items()}


def _plan(place: Path, name: str, entry: Any) -> Plan:
    def refuse(problem: str) -> InterviewError:
        return InterviewError(f"{place}: {name}: {problem}.")

    if not isinstance(entry, dict) or set(entry) != {"about", "parts"} or not isinstance(entry["parts"], list):
        raise refuse("needs `about: words` and `parts: [{level: ..., minutes: ...}, ...]`")
    parts = []
    for number, item in enumerate(entry["parts"], 1):
        if not isinstance(item, dict) or not set(item) <= {"level", "minutes", "family", "kata"}:
            raise refuse(f"part {number} may have level, family, kata and minutes, and nothing else")
        minutes = item.get("minutes")
        if not isinstance(minutes, (int, float)) or isinstance(minutes, bool) or not 0 < minutes <= MOST_MINUTES:
            raise refuse(f"part {number}: minutes must be a number above 0, up to {MOST_MINUTES:.0f}")
        if item.get("level", LEVELS[0]) not in LEVELS:
            raise refuse(f"part {number}: level must be one of {', '.join(LEVELS)}")
        parts.append(Wish(float(minutes), item.get("level"), item.get("family"), item.get("kata")))
    if not parts:
        raise refuse("has no part. Add `{level: easy, minutes: 10}`")
    return Plan(name, str(entry["about"]), tuple(parts))


def draw(
    wishes: Sequence[Wish], catalog: Catalog, progress: Progress, seed: int, runs: Callable[[Kata], bool]
) -> tuple[Part, ...]:
    """A kata for every wish, none twice. ``runs``: whether this machine can grade it. Raises InterviewError."""
    random = Random(seed)
    parts: list[Part] = []
    for wish in wishes:
        kata = _drawn(wish, catalog, progress, random, runs, {part.kata for part in parts})
        parts.append(Part(kata.name, wish.minutes, known(kata, progress)))
    return tuple(parts)


def _drawn(
    wish: Wish,
    catalog: Catalog,
    progress: Progress,
    random: Random,
    runs: Callable[[Kata], bool],
    taken: Collection[str],
) -> Kata:
    if wish.kata is not None:
        (kata,) = _named(wish.kata, catalog)
        if wish.level not in (None, kata.level) or wish.family not in (None, kata.family):
            raise InterviewError(f"{kata.name} is {kata.level}, of the family {kata.family}. Leave out what differs.")
        return kata
    if wish.family is not None and wish.family not in catalog.families:
        raise InterviewError(f"no family is called {wish.family!r}; there are: {', '.join(catalog.families)}.")
    fits = [
        kata
        for kata in catalog.katas.values()
        if wish.level in (None, kata.level) and wish.family in (None, kata.family) and kata.name not in taken
    ]
    able = [kata for kata in fits if runs(kata)]
    if not able:
        asked = " ".join(word for word in (wish.level, wish.family) if word)
        why = "this machine can grade none of those there are" if fits else "there is none"
        raise InterviewError(f"a kata was asked for ({asked}), and {why}. `kata list` shows what there is.")
    fresh = [kata for kata in able if not known(kata, progress)]
    return random.choice(fresh or able)


def _named(name: str, catalog: Catalog) -> tuple[Kata]:
    katas = catalog.select([name])
    if len(katas) != 1:
        raise InterviewError(
            f"--kata is for one kata, but {name!r} names {len(katas)}; --family takes any of a family."
        )
    return (katas[0],)


def known(kata: Kata, progress: Progress) -> str:
    """What the learner had of a kata before, in words; empty for nothing."""
    passed, seen = progress.passed(kata.name), progress.solution_seen(kata.name)
    hints = progress.hints(kata.name)
    words = (
        f"passed, {passed.date}" if passed else "",
        f"solution looked at, {seen.date}" if seen else "",
        f"hints {', '.join(map(str, hints))} shown" if hints else "",
    )
    return "; ".join(filter(None, words))
