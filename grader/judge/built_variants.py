"""Files with a launcher, a constant or a type that is as in the solution -> those with which every tried case is right.

Each is built as the learner's file was, and runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from grader.compile.changes import Change
from grader.compile.differences import AS_SOLVED
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


def right_variants(
    lab: Lab, build: Build, text: str, solution: str, cases: Sequence[CaseKey]
) -> tuple[list[Change], int]:
    """At most one: the first that makes all right, if the one with all that is other does; else all together. And the
    number of cases that are right with it."""
    whole, ones = variants(text, solution)
    if not ones or not (every := _right_cases(lab, build, whole, cases)):
        return [], 0
    for each in ones:
        if count := every if len(ones) == 1 else _right_cases(lab, build, each.text, cases):
            return [Change(each.line, each.words, {})], count
    first, *more = sorted({each.line for each in ones})
    if not more or len(more) >= MOST_LINES:
        return [], 0
    lines = f"lines {', '.join(map(str, (first, *more[:-1])))} and {more[-1]}"
    return [Change(first, f"{lines} are {AS_SOLVED}", {})], every


def _right_cases(lab: Lab, build: Build, text: str, cases: Sequence[CaseKey]) -> int:
    """How many cases are right, without those that take too many instructions; 0 where one is wrong."""
    if (program := build(text)) is None:
        return 0
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
                return 0
            count += 1
    return count if count >= min(len(cases), LEAST_RIGHT) else 0
