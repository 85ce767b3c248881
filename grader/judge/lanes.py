"""A wrong answer of a file with volatile shared memory -> two lanes of a warp that touch one place in no order.

A volatile access is a relaxed one (PTX ISA, "Memory Consistency Model"): two of them cannot make a data race, and order
nothing between lanes, which may run apart. The case is called once more, on a device that holds such accesses for plain
ones: its race is what the lanes lack an order for. A __syncwarp between the two takes it away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from grader.devices import Finding
from grader.devices.counters import Launched
from grader.judge.cards import WARP
from grader.judge.case import Case, CaseKey
from grader.judge.lab import Lab
from grader.sandbox.parent import Program
from grader.verdict import Clue, Kind

_VOLATILE = re.compile(r"(?<!asm )(?<!__asm__ )\bvolatile\b")


def of_lanes(lab: Lab, failed: CaseKey, program: Program | None) -> Iterator[Clue]:
    """At most one clue."""
    if program is None or not uses_volatile(program):
        return
    call = Case(lab.kata, lab.spec, failed).call(nth=lab.nth, limits=lab.limits)
    outcome = lab.call(replace(call, distrust_volatile=True))
    for finding in outcome.findings[:1]:
        if finding.kind == Kind.RACE and (words := in_words(finding, outcome.launched)):
            yield Clue("lanes", words, finding.line)


def uses_volatile(program: Program) -> bool:
    """Whether anything but an asm statement is volatile."""
    return bool(_VOLATILE.search(program.source.read_text(encoding="utf-8", errors="replace")))


def in_words(finding: Finding, launched: tuple[Launched, ...]) -> str:
    """Empty where the race is not of two lanes of one warp."""
    blocks = {item.block for item in launched if item.kernel == finding.kernel}
    if len(finding.sides) != 2 or len(blocks) != 1:
        return ""
    (block,) = blocks
    warps, said = set[tuple[object, int]](), list[str]()
    for side in finding.sides:
        x, y, z = side.thread or (0, 0, 0)
        warps.add((side.block, (x + block[0] * (y + block[1] * z)) // WARP))
        what = f"{finding.place} in shared memory" if not said else "it"
        called = f" (called on line {side.callers[0]})" if side.callers else ""
        said.append(f"thread ({x},{y},{z}) {side.does} {what} on line {side.line}{called}")
    if len(warps) != 1 or finding.buffer is not None or finding.sides[0].thread == finding.sides[1].thread:
        return ""
    why = "two lanes of one warp, in no order: volatile orders nothing between lanes, and no __syncwarp stands between"
    return f"{' and '.join(said)}, {why}"
