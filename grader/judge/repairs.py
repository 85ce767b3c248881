"""A wrong answer -> the one line of the file where a small change of the compiled code makes every tried case right.

The simulator runs PTX. So a change of one comparison, constant or operator costs no run of nvcc: the changed PTX is
loaded in place of the file's own, and the failing case is called again. A change that makes it right is tried on the
other cases, those that fail first. All instructions of a line that have the same form change together: the compiler
unrolls loops, and turns a loop's condition round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from grader.compile.changes import Change, changes_of
from grader.content.skeleton import todos
from grader.judge.case import Case, CaseKey, largest_within
from grader.judge.lab import Lab, judged
from grader.sandbox.child import SandboxError
from grader.sandbox.parent import Program, Sandbox
from grader.verdict import Clue

LARGEST = 1 << 20  # bytes of PTX
CHANGES = 280  # that are tried on the failing case
INSTRUCTIONS = 4_000_000  # warp instructions of all these calls together
BYTES = 24 << 20  # of PTX that is loaded, in all
ROUNDS = 8  # times the instructions of the file's own call, that one call of changed code may take
LEAST = 2_000
MOST_LOST = 20_000  # that a call is taken for which does not say how many it took
WRONG, RIGHT = 6, 6  # other cases that must be right, too: of those that failed, and of those that passed
ELEMENTS = 8  # of an output: a case with fewer is right by chance
WORK = 1_000_000  # of the largest case
LINES = 2  # that a clue names, at most


@dataclass
class _Trial:
    """Calls of changed code, with a count of what they take."""

    lab: Lab
    sandbox: Sandbox
    folder: Path
    text: list[str]
    instructions: int = INSTRUCTIONS
    bytes: int = BYTES
    changes: int = CHANGES
    limit: int = 0  # of the instructions that a call on the failing case may take

    def write(self, number: int, change: Change) -> Path:
        path = self.folder / f"{number}.ptx"
        path.write_text("\n".join(change.applied(self.text)))
        self.bytes -= path.stat().st_size
        return path

    def is_right(self, key: CaseKey, ptx: Path, limit: int) -> bool:
        case = Case(self.lab.kata, self.lab.spec, key)
        limits = replace(self.lab.limits, instructions=limit)
        outcome = self.sandbox.call(replace(case.call(nth=0, limits=limits), ptx=str(ptx)))
        self.instructions -= outcome.executed or min(limit, MOST_LOST)
        return not outcome.findings and not judged(case, outcome).wrong


def repair(lab: Lab, failed: CaseKey, program: Program | None) -> Iterator[Clue]:
    """At most one clue; none where changes on more than LINES lines do, or the file is too large to try."""
    if program is None or program.device != "sim" or program.ptx.stat().st_size > LARGEST:
        return
    text = program.ptx.read_text(errors="replace")
    cases = _cases(lab, failed)
    if sum(prod(tensor.extent(dict(key.sizes))) for key in cases for tensor in lab.spec.outputs) < ELEMENTS:
        return
    with suppress(SandboxError, OSError), TemporaryDirectory() as folder, Sandbox(program.device) as sandbox:
        sandbox.load(program)
        trial = _Trial(lab, sandbox, Path(folder), text.split("\n"))
        blocks = todos(program.source.read_text(errors="replace"))
        own = {line for todo in blocks for line in range(todo.line, todo.end)}  # where a learner writes
        changes = changes_of(text, program.source.name)
        found = list(_right_ones(trial, [change for change in changes if change.line in own], cases))
        if not found:
            found = list(_right_ones(trial, [change for change in changes if change.line not in own], cases))
        lines = sorted({change.line for change in found})
        if 1 <= len(lines) <= LINES:
            yield Clue("repair", _words(found, len(cases)), line=lines[0] if len(lines) == 1 else None)


def _cases(lab: Lab, failed: CaseKey) -> list[CaseKey]:
    """The failing case, then the largest others that failed, then some that passed, each of other sizes if possible."""
    work = {key: lab.spec.work(dict(key.sizes)) for key in lab.known}
    chosen = {key for key in lab.known if work[key] <= WORK and key.card == failed.card and key != failed}
    largest = largest_within(lab.kata, lab.spec, WORK)
    named = [] if largest is None else [CaseKey.of(lab.spec, largest, lab.spec.values[0].name, 1)]
    found = [failed]
    for values in lab.spec.values:  # a change may be right for numbers of one kind alone
        keys = [key for key in chosen if key.values == values.name]
        found += sorted(keys, key=lambda key: (not lab.known[key], -work[key]))[:1]
    for is_wrong, most in ((True, WRONG), (False, RIGHT)):
        keys = sorted((key for key in chosen if lab.known[key] == is_wrong), key=lambda key: -work[key])
        found += [*_of_other_sizes(keys), *keys][:most]
    return [*dict.fromkeys([*found, *named])]


def _of_other_sizes(keys: Iterable[CaseKey]) -> list[CaseKey]:
    return [*{key.sizes: key for key in reversed([*keys])}.values()][::-1]


def _right_ones(trial: _Trial, changes: Sequence[Change], cases: Sequence[CaseKey]) -> Iterator[Change]:
    """The changes with which all cases are right."""
    failed, limit = cases[0], trial.lab.limits.instructions
    if not trial.limit:
        own = trial.sandbox.call(Case(trial.lab.kata, trial.lab.spec, failed).call(nth=0, limits=trial.lab.limits))
        if own.findings:
            return
        trial.limit = ROUNDS * own.executed + LEAST
    lines: set[int] = set()
    for change in changes:
        if min(trial.instructions, trial.bytes, trial.changes) <= 0 or len(lines) > LINES:
            return
        trial.changes -= 1
        ptx = trial.write(trial.changes, change)
        if trial.is_right(failed, ptx, trial.limit) and all(trial.is_right(key, ptx, limit) for key in cases[1:]):
            lines.add(change.line)
            yield change
        ptx.unlink()


def _words(found: Sequence[Change], cases: int) -> str:
    """``all 9 cases that were tried are right if line 12's comparison holds where both sides are equal``"""
    first = {change.line: change for change in reversed(found)}
    ways = [f"on line {line} {first[line].words}" for line in sorted(first)]
    return f"all {cases} cases that were tried are right if {', or if '.join(ways)}"
