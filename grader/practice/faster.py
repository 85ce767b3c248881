"""Kata -> a slower rung's solution to start from, and a goal: the kata's threshold on a GPU, or counters without one.

Counters are a proxy for speed. They say how much work a kernel gives the memory and the schedulers, not how long that
takes: latency, occupancy and clocks are not in them. No counter may be more than ROOM above the solution's.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.content import skeleton
from grader.content.catalog import WORK, Catalog, Kata
from grader.content.rung import before
from grader.content.spec import load_spec
from grader.fault import Fault
from grader.output import speeds
from grader.storage.whole_file import write_whole
from grader.verdict import CaseCounters

PLACE = Path(WORK, "faster")
STARTED = "started"  # what progress keeps of a file that was written
ROOM = 0.10  # a counter may be so much above the solution's
COUNTERS: Mapping[str, str] = {
    "sectors": "sectors of global memory",
    "wavefronts": "wavefronts of shared memory",
    "warp_instructions": "warp instructions",
    "barriers": "barriers",
}


class FasterError(Fault):
    """No slower rung fits, or the file cannot be written; the message says what to do."""


@dataclass(frozen=True)
class Challenge:
    """``goal`` is the kata whose speed is asked for, ``start`` the rung whose solution the file holds at first."""

    goal: Kata
    start: Kata

    @property
    def path(self) -> Path:
        return self.goal.root / PLACE / f"{self.goal.name}_faster.cu"

    @property
    def text(self) -> str:
        """The file at first: the start's solution as a launcher of the goal's name."""
        lines = skeleton.unmarked(self.start.solution_path.read_text(encoding="utf-8")).split("\n")
        head = sum(1 for _ in _header(lines))
        code = "\n".join(lines[head:])
        renamed = _renamed(code, self.start.name, self.goal.name)
        words = [
            f"{self.goal.name}: {load_spec(self.goal).computes}",
            f"The solution of {self.start.name}, to be made faster. Goal: {self.threshold}.",
            f"`kata faster grade {self.goal.name}` grades this file.",
        ]
        about = [f"// {line}" for said in words for line in textwrap.wrap(said, 117, break_on_hyphens=False)]
        return "\n".join([*about, "//", *lines[2:head], renamed])

    @property
    def threshold(self) -> str:
        """The goal in words."""
        speed = self.goal.speed
        assert speed is not None
        asked = ", ".join(f"{each.percent:g} % of {speed.baseline} on {arch}" for arch, each in speed.percent.items())
        proxy = f"at most {100 * ROOM:g} % above the solution in each counter, a proxy"
        return f"{asked}; without a GPU, {proxy}" if asked else proxy


def challenge(catalog: Catalog, goal: Kata, start: str | None) -> Challenge:
    """The challenge to reach ``goal`` from ``start``, or else from the nearest rung that is slower.

    Raises FasterError if no rung fits.
    """
    if goal.speed is None:
        why = "difficulty.yaml gives it no `speed`"
        raise FasterError(f"{goal.name} is not timed: {why}. `kata faster` lists the katas to choose from.")
    rungs = list(slower_rungs(catalog, goal))
    if start is not None:
        found = next((rung for rung in rungs if rung.name == start), None)
    else:
        arch, ratios = ratios_of(catalog)
        asked = goal.speed.percent.get(arch)
        wanted = asked.percent / 100 if asked else ratios.get(goal.name, 0.0)
        found = next((rung for rung in rungs if not wanted or ratios.get(rung.name, 0.0) < wanted), None)
    if found is None:
        names = ", ".join(rung.name for rung in rungs)
        if start:
            known = f" There are: {names}." if rungs else ""
            raise FasterError(f"{start} is not a rung before {goal.name} with the same signature.{known}")
        if not rungs:
            raise FasterError(f"no rung before {goal.name} has the same signature. `kata faster` lists all pairs.")
        fast = f"as measured, each rung before {goal.name} is as fast as it asks: {names}."
        raise FasterError(f"{fast} `kata faster {goal.name} --from {rungs[0].name}` starts from it anyway.")
    return Challenge(goal, found)


def slower_rungs(catalog: Catalog, goal: Kata) -> Iterator[Kata]:
    """The rungs before a kata whose solutions are right answers to it, the nearest first."""
    rung = before(goal, catalog)
    seen = {goal.name}
    while rung is not None and rung.name not in seen:
        seen.add(rung.name)
        if _fits(rung, goal):
            yield rung
        rung = before(rung, catalog)


def _fits(rung: Kata, goal: Kata) -> bool:
    if rung.family != goal.family or rung.libraries or rung.capability > goal.capability:
        return False
    ours, theirs = load_spec(rung), load_spec(goal)
    same = ours.signature(rung).replace(rung.name, goal.name, 1) == theirs.signature(goal)
    steps = all(goal.multiples.get(name, 1) % step == 0 for name, step in rung.multiples.items())
    return same and steps and ours.computes == theirs.computes and (rung.acc or rung.elem) == (goal.acc or goal.elem)


def ratios_of(catalog: Catalog) -> tuple[str, Mapping[str, float]]:
    """The architecture on which solutions were measured, as thresholds name it, and their speed as a share of their
    baseline, by kata; empty without solutions/speeds.json."""
    file = catalog.root / speeds.FILE
    if not file.is_file():
        return "", {}
    known = speeds.read(file)
    found: dict[str, float] = {}
    for row in known.rows:
        found.setdefault(row.kata, row.ratio)
    return known.machine["arch"].removesuffix("a"), found


def write(wanted: Challenge) -> None:
    """Write the file that the challenge begins with. Raises FasterError, also if a file is there."""
    if wanted.path.exists():
        raise FasterError(f"{wanted.path} is there. Move it away to start again.")
    try:
        wanted.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(wanted.path, wanted.text)
    except OSError as error:
        raise FasterError(f"{wanted.path} cannot be written ({error.strerror}). Make the folder writable.") from None


# -- the proxy ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """One counter of the learner's file, of the goal's solution, and the most that is enough."""

    name: str
    mine: int
    solution: int

    @property
    def most(self) -> int:
        return int(self.solution * (1 + ROOM))

    @property
    def enough(self) -> bool:
        return self.mine <= self.most


def compared(mine: CaseCounters, solution: CaseCounters) -> tuple[Count, ...]:
    return tuple(Count(name, mine.total(name), solution.total(name)) for name in COUNTERS)


def _header(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("//"):
            return
        yield line


def _renamed(code: str, old: str, new: str) -> str:
    """The code with the launcher's name: of the whole word, so that kernels keep theirs."""
    return re.sub(rf"\b{re.escape(old)}\b", new, code)
