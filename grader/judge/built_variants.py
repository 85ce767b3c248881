"""Files with a launcher, a constant or a type that is as in the solution -> those with which every tried case is right.

Each is built as the learner's file was, and runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from grader.compile.changes import Change
from grader.compile.variants import variants
from grader.judge.case import Case, CaseKey
from grader.judge.lab import Lab, judged
from grader.sandbox.child import SandboxError
from grader.sandbox.parent import Program, Sandbox
from grader.verdict import Kind

MOST_INSTRUCTIONS = 3_000_000  # of one case
MOST_LINES = 4  # that are named together, where no one of them is enough
LEAST_RIGHT = 6  # of the cases, where the larger ones take more

Build = Callable[[str], "Program | None"]


def right_variants(lab: Lab, build: Build, text: str, solution: str, cases: Sequence[CaseKey]) -> list[Change]:
    """At most one: the first that makes all right, if the one with all that is other does; else all together."""
    whole, ones = variants(text, solution)
    if not ones or not _is_right(lab, build, whole, cases):
        return []
    for each in ones:
        if len(ones) == 1 or _is_right(lab, build, each.text, cases):
            return [Change(each.line, each.words, {})]
    first, *more = sorted({each.line for each in ones})
    if not more or len(more) >= MOST_LINES:
        return []
    lines = f"lines {', '.join(map(str, (first, *more[:-1])))} and {more[-1]}"
    return [Change(first, f"{lines} are as in the solution", {})]


def _is_right(lab: Lab, build: Build, text: str, cases: Sequence[CaseKey]) -> bool:
    """Whether all cases are right, but for those that take too many instructions."""
    if (program := build(text)) is None:
        return False
    limits = replace(lab.limits, instructions=min(MOST_INSTRUCTIONS, lab.limits.instructions))
    count = 0
    with suppress(SandboxError), Sandbox(program.device) as sandbox:
        sandbox.load(program)
        for key in cases:
            case = Case(lab.kata, lab.spec, key)
            outcome = sandbox.call(case.call(nth=0, limits=limits))
            if any(finding.kind == Kind.TIME_OUT for finding in outcome.findings) and key != cases[0]:
                continue
            if outcome.findings or judged(case, outcome).wrong:
                return False
            count += 1
    return count >= min(len(cases), LEAST_RIGHT)
