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
LEAST_RIGHT = 6  # of the cases, where the larger ones take more

Build = Callable[[str], "Program | None"]


def right_variants(lab: Lab, build: Build, text: str, solution: str, cases: Sequence[CaseKey]) -> list[Change]:
    """At most one: the first that makes all right, if the one with all that is other does."""
    whole, ones = variants(text, solution)
    if not ones or not (right := _right(lab, build, whole, cases)):
        return []
    if len(ones) == 1:
        return [Change(ones[0].line, ones[0].words, {})]
    for each in ones if right else ():
        if _right(lab, build, each.text, cases):
            return [Change(each.line, each.words, {})]
    return []


def _right(lab: Lab, build: Build, text: str, cases: Sequence[CaseKey]) -> int:
    """How many cases are right; 0 where one is wrong."""
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
