"""What was asked for -> the parts of an interview: which kata, for how many minutes.

Everything is drawn with the interview's seed: a family first, then a kata of it, so that a family of 40 katas comes no
more often than one of two. Katas come first that the learner neither passed nor saw the solution of, and of these the
ones of the pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from grader.content.catalog import LEVELS, Catalog, Kata
from grader.content.questions import KERNEL, PROFILE, Pooled, load_interview, load_pool
from grader.content.start import BLANK, SKELETON, STARTS
from grader.content.tracks import track_of
from grader.content.yaml_fields import MANY, Field, number, one_of, record, root_value, several, words
from grader.fault import Fault
from grader.learner.progress import History
from grader.maintain import wrong_kernel
from grader.verdict import Kind

PLANS = Path(__file__).with_name("plans.yaml")
MINUTES = 45.0  # for a kata that has no estimate
MOST_MINUTES = 600.0
OPENING_MINUTES = 5.0  # for questions and estimates, before the file is handed out
CODE, DEBUG = "code", "debug"
PAPER = (KERNEL, PROFILE)
KINDS = (CODE, DEBUG, *PAPER)  # of a part
BUG = "bug"  # the start of a part to debug
NOT_BUGS = {Kind.PASS, Kind.DOES_NOT_COMPILE, Kind.NOT_ALLOWED, Kind.UNSUPPORTED}


class InterviewError(Fault):
    """What was asked for cannot be done; the message says why and what to do."""


@dataclass(frozen=True)
class PartRequest:
    """One part as it was asked for. What is None is left to the seed; ``kata`` leaves nothing to it. ``start``, one of
    STARTS, is the file to hand out. ``minutes`` None: the estimate of what is drawn. ``kind``: one of KINDS. Without
    ``opening``, the file is handed out at once."""

    minutes: float | None
    level: str | None = None
    family: str | None = None
    kata: str | None = None
    start: str = BLANK
    track: str | None = None
    kind: str = CODE
    opening: bool = True


@dataclass(frozen=True)
class Plan:
    """A named plan."""

    name: str
    about: str
    parts: tuple[PartRequest, ...]


@dataclass(frozen=True)
class Part:
    """One part of an interview: a kata and its minutes. ``known``: what the learner had of it before, in words.
    ``start``: the file that is handed out; a log that does not say it is from when that was always the skeleton.
    ``opening``: minutes for questions and estimates before that, in addition. ``item``: the bug's name, or the number
    of the reading in its family's list."""

    kata: str
    minutes: float
    known: str = ""
    start: str = SKELETON
    kind: str = CODE
    opening: float = 0.0
    item: str = ""

    @property
    def on_paper(self) -> bool:
        return self.kind in PAPER


_PART = {
    "minutes": Field(number(0, MOST_MINUTES), required=True),
    "level": Field(one_of(LEVELS)),
    "family": Field(words),
    "kata": Field(words),
    "start": Field(one_of(STARTS), BLANK),
    "track": Field(words),
    "kind": Field(one_of(KINDS), CODE),
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
    """A part for every request, no kata twice. ``runs``: whether this machine can grade it. Raises InterviewError."""
    drawing = _Drawing(catalog, progress, Random(seed), runs, [])
    for request in requests:
        kinds = {CODE: _code, DEBUG: _debug, KERNEL: _reading, PROFILE: _reading}
        drawing.parts.append(kinds[request.kind](request, drawing))
    return tuple(drawing.parts)


@dataclass
class _Drawing:
    """What is drawn from, and the parts so far."""

    catalog: Catalog
    progress: History
    random: Random
    runs: Callable[[Kata], bool]
    parts: list[Part]

    def pick(self, katas: Sequence[Kata]) -> Kata:
        """One that the learner does not know, if there is one; of a family that has no part yet, if there is one."""
        fresh = [kata for kata in katas if not known(kata, self.progress)] or list(katas)
        taken = {self.catalog.katas[part.kata].family for part in self.parts}
        left = [kata for kata in fresh if kata.family not in taken] or fresh
        family = self.random.choice(list(dict.fromkeys(kata.family for kata in left)))
        return self.random.choice([kata for kata in left if kata.family == family])


def _code(request: PartRequest, drawing: _Drawing) -> Part:
    """A kata to write."""
    catalog = drawing.catalog
    if request.kata is not None:
        (kata,) = _named(request.kata, catalog)
        if request.level not in (None, kata.level) or request.family not in (None, kata.family):
            raise InterviewError(f"{kata.name} is {kata.level}, of the family {kata.family}. Leave out what differs.")
        pooled = load_interview(kata).pool.get(kata.name)
    else:
        pool = load_pool(catalog)
        kata = drawing.pick(_suited(request, drawing, pool))
        pooled = pool.get(kata.name)
    minutes = request.minutes or (pooled.minutes if pooled else MINUTES)
    opening = OPENING_MINUTES if pooled and request.opening else 0.0
    return Part(kata.name, minutes, known(kata, drawing.progress), request.start, opening=opening)


def _suited(request: PartRequest, drawing: _Drawing, pool: Mapping[str, Pooled]) -> Sequence[Kata]:
    """Katas of the pool that fit into the minutes; failing these, those without an estimate; failing these, all.
    Those that the learner does not know come first in this order."""
    able = _able(request, drawing)
    minutes = math.inf if request.minutes is None else request.minutes
    short = [kata for kata in able if kata.name in pool and pool[kata.name].minutes <= minutes]
    tiers = [short, [kata for kata in able if kata.name not in pool], able]
    fresh = [[kata for kata in tier if not known(kata, drawing.progress)] for tier in tiers]
    return next(filter(None, [*fresh, *tiers]))


def _able(request: PartRequest, drawing: _Drawing) -> list[Kata]:
    """Every kata that fits what was asked for and that this machine can grade. Raises InterviewError if none does."""
    catalog = drawing.catalog
    if request.family is not None and request.family not in catalog.families:
        raise InterviewError(f"no family is called {request.family!r}; there are: {', '.join(catalog.families)}.")
    taken = {part.kata for part in drawing.parts}
    track = track_of(catalog, request.track).by_name if request.track else catalog.katas
    fits = [
        kata
        for kata in catalog.katas.values()
        if request.level in (None, kata.level)
        and request.family in (None, kata.family)
        and kata.name in track
        and kata.name not in taken
    ]
    able = [kata for kata in fits if drawing.runs(kata)]
    if not able:
        asked = " ".join(word for word in (request.level, request.family, request.track) if word)
        why = "this machine can grade none of these katas" if fits else "no kata matches"
        raise InterviewError(f"cannot draw a kata ({asked}): {why}. `kata list` shows all katas.")
    return able


def _debug(request: PartRequest, drawing: _Drawing) -> Part:
    """A solution with one bug in it, which its kata's tests have planted before."""
    pool = load_pool(drawing.catalog)  # its minutes are for writing, not for a fix
    able = {kata.name for kata in _suited(replace(request, minutes=None), drawing, pool)}
    bugs = [bug for bug in every_bug(drawing.catalog).values() if bug.kata.name in able]
    if not bugs:
        raise InterviewError("cannot draw a bug: tests/wrong_kernels has none for these katas. Restore that folder.")
    kata = drawing.pick(list(dict.fromkeys(bug.kata for bug in bugs)))
    bug = drawing.random.choice([bug for bug in bugs if bug.kata.name == kata.name])
    return Part(kata.name, request.minutes or MINUTES, known(kata, drawing.progress), BUG, DEBUG, item=bug.name)


def every_bug(catalog: Catalog) -> Mapping[str, wrong_kernel.WrongKernel]:
    """The wrong kernels that are edits of a solution and that the simulator finds, by name."""
    found = wrong_kernel.load(catalog, catalog.root / wrong_kernel.FOLDER)
    return {bug.name: bug for bug in found if bug.edits and not set(bug.sim.kinds) & NOT_BUGS}


def _reading(request: PartRequest, drawing: _Drawing) -> Part:
    """A kernel or a profile to read, of a kata of the level and the track that were asked for."""
    catalog = drawing.catalog
    taken = {(part.kata, part.item) for part in drawing.parts}
    track = track_of(catalog, request.track).by_name if request.track else catalog.katas
    found = [
        (catalog.katas[reading.kata], str(place))
        for katas in catalog.by_family.values()
        for place, reading in enumerate(load_interview(katas[0]).readings)
        if reading.kind == request.kind and (reading.kata, str(place)) not in taken
    ]
    suited = [(kata, item) for kata, item in found if request.level in (None, kata.level) and kata.name in track]
    if not suited:
        asked = " ".join(word for word in (request.level, request.kind, request.track) if word)
        raise InterviewError(f"cannot draw a {request.kind} to read ({asked}): no interview.yaml has another one.")
    kata = drawing.pick(list(dict.fromkeys(kata for kata, _ in suited)))
    item = drawing.random.choice([item for other, item in suited if other == kata])
    minutes = request.minutes or MINUTES
    return Part(kata.name, minutes, known(kata, drawing.progress), "", request.kind, item=item)


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
