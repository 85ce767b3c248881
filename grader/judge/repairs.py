"""A wrong answer or a finding -> the one line of the file where a small change of the compiled code makes every tried
case right.

The simulator runs PTX. So a change of one comparison, constant or operator costs no run of nvcc: the changed PTX is
loaded in place of the file's own, and the failing case is called again. A change that makes it right is tried on the
other cases, those that fail first. All instructions of a line that have the same form change together: the compiler
unrolls loops, and turns a loop's condition round.

An optimised kernel has no instruction for what the compiler merged, unrolled or moved out of a loop. So nvcc then
makes PTX of the file once more, without optimisation. There each operand of the file is one of the PTX.

Where no change of compiled code does, the file's own lines are edited: nvcc makes PTX of all edits at once, and each is
tried alone.

Only lines that the learner wrote are changed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import islice
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grader.compile.changes import (
    ALL_WAITS,
    EDGE_WORDS,
    KINDS,
    MORE_KINDS,
    OF_CALLS,
    SOURCE_KINDS,
    WAITS,
    Change,
    changes_of,
    kernels_of,
    lines_behind,
    never_of,
    parameter_types,
    without,
)
from grader.compile.changes import Kind as Kinds
from grader.compile.chosen import chosen
from grader.compile.differences import AS_SOLVED
from grader.compile.edit_writer import Edit
from grader.compile.entries import Entries
from grader.compile.insertions import exchanged_of, guarded_of, missing_of, moved_of, scaled_of, valued_of
from grader.compile.solution_edits import OF_ANSWER
from grader.content.functions import Code, all_constants_of, constants_of, relatives_of
from grader.content.skeleton import read, skeleton_of
from grader.content.source_file import is_helper, lines_with
from grader.devices import Call, Finding, Outcome
from grader.devices.counters import Launched
from grader.judge.built_variants import LEAST_RIGHT, Build, right_variants
from grader.judge.case import Case, CaseKey, allowed, largest_within
from grader.judge.coverage import AGAIN, ONCE, raise_neighbours
from grader.judge.lab import Judged, Lab, judged
from grader.judge.launcher_changes import LauncherChange, launcher_changes, roomier
from grader.judge.origins import blocks_of, lines_of_values, loops_of
from grader.judge.remainders import fixed_remainders, zero_quotients
from grader.judge.repair_words import Names
from grader.judge.search import Compiler
from grader.sandbox.child import SandboxError
from grader.sandbox.parent import Program, Sandbox
from grader.verdict import Clue, Kind

LARGEST = 2 << 20  # bytes of PTX
# What all calls of changed code may cost, in seconds of a usual machine, worked out from counts and not from a clock.
SECONDS = 1.0
LAUNCHER_SECONDS = 0.6  # for changes of the launcher
SOURCE_SECONDS = 1.0  # for code that is close to the source
WHOLE_SECONDS = 0.6  # of these, for statements as wholes
EDIT_SECONDS = 2.0  # for edits of the source
SOLUTION_SECONDS = 2.0  # for edits that the solution tells
BRIEF, BRIEF_EDITS = 0.6, 1.4  # for changes of PTX and edits, where it is known what is wrong, or in which lines
EDIT_RANKS = 2  # behind one that is right, only those of so many ranks are tried, too
FEWEST = 7  # cases that a change makes right: with 5 and 6, causes were named that were none
EDIT_CASES = 8  # that an edit must make right, at least: there are many, and some are right by chance
FAR = 1000  # lines from a finding: of a line that none of its values come from
OF_LESS_SUSPECTED = 1  # ranks that an edit is after others, on a line that some cases come to that are right
OF_OTHER_LINE = 2  # ranks that an edit is after others, on a line that is not suspected
EDIT_ROUNDS = 3  # times the instructions of the call without edits: a loop that does not end is stopped early
FARTHER, LONGER = 1_200_000, 5  # instructions of a call again, where a finding ended the one without: how many may be
LARGEST_EDITED = 6 << 20  # bytes of PTX with all edits
OF_CHOSEN = 1.5e-7  # what it costs to read a byte of them
PAIR_SECONDS = 0.4  # for two changes at once, in either code
FIRSTS, IMPROVED = 3, 0.75  # changes that others are tried with: how many, and what they leave of the wrong elements
BESIDE, TWINS = 2, 4  # lines between two that are changed in the same way, and how many such pairs are tried
PAIR_CASES = 8  # that two changes at once must make right, at least
OF_CALL, OF_BYTE, OF_INSTRUCTION = 3.5e-3, 3.5e-8, 8e-8  # what a call, a byte of PTX and a warp instruction cost
OF_CLOSE_CALL, OF_CLOSE_INSTRUCTION = 4e-3, 7e-8  # of code that is close to the source: most of it copies
OF_SHARED_BYTE = 1.5e-8  # of all blocks that a call launches
LEAST_SHARED, MOST_SHARED = 1 << 12, 1 << 23  # of a block, and of all, since not all are there at the same time
OF_SECOND_CHOICE = 0.2  # for PTX that was made in vain
ROUNDS = 8  # times the instructions of the file's own call, that one call of changed code may take
LEAST = 2_000
UNKNOWN = 200_000  # of a call whose finding ended it
MOST_LOST = 5_000  # that a call is taken for which does not say how many it took
OF_OTHERS, MOST_OF_OTHERS = 1_500_000, 3_000_000  # that a call on another case may take: where the failing one does
TOO_LONG = 2  # cases
AS_MANY = 2  # times the instructions of the failing case, that one on another may take even so
MOST_OVER = 2.0  # seconds that a change which is right on a failing case of so many may take more than there are
MOST_CONFIRMING = 0.8  # seconds of cases that confirm one change, where enough are right
LEAST_CASES = 4  # on fewer, a change is right by chance
WRONG, RIGHT = 6, 6  # other cases that must be right, too: of those that failed, and of those that passed
ELEMENTS = 8  # of an output: a case with fewer is right by chance
MOST_LARGER = 6  # cases that are called to find one that is larger in a size, and fails
MIXED = 16  # cases that are called to find such as fail, where the sizes that the spec names give too few
WORK = 1_000_000  # of the largest case
LARGE_WORK, LARGE_INSTRUCTIONS = 20_000_000, 2_000_000  # of more cases, for a change that all others are right with
CONFIRMED, CONFIRMED_SEED = 12, 100  # of these cases: how many, and the seed of the first
LINES = 2  # that a clue names, at most
MANY_VALUES = 3  # in the place of one that are right: then none of them is known to be meant
# Code that can be called.
RUNS = (Kind.OUT_OF_BOUNDS, Kind.MISALIGNED, Kind.UNINITIALISED, Kind.RACE, Kind.DEADLOCK, Kind.CRASH)
MOVED = {  # what may stand at another place -> what a race is said to lack
    "the commit": r"cp\.async|bulk copy|wgmma",
    "the arrival": "bulk copy|wgmma|mbarrier",
    "the barrier": "no barrier",
    "the wait": r"cp\.async|bulk copy|wgmma",
}
# What a change of a line adds to its doubt, in ranks of edits: nothing moved; only right elements did; only wrong ones.
UNMOVED, SPOILT, MOVED_ALONE = 0.3, 0.6, 2.0
LEAST_DOUBT, MOST_DOUBT = -4.0, 1.5
OF_TRUSTED = 0.25  # of this: where another change of the line moved wrong elements alone
OF_NEXT, LAST = 0.1, 9  # ranks that a change is after that of its line and rank before it, of so many
OF_ORDER = (Kind.RACE, Kind.UNINITIALISED, Kind.DEADLOCK)  # findings that a barrier may take away

_LEFT_ONE = re.compile(r"\bthe constant is [01] in place of (\d+)\b")
_STEP = re.compile(r"\bthe constant is (\d+) in place of 1(?![.\d])")
_COUNTING = re.compile(r"\bfor\s*\([^;]*;[^;<]*<\s*(\w+)\s*;\s*(?:\+\+\w+|\w+\+\+)\s*\)")
_COUNTER = re.compile(r"\bfor\s*\([^;]*?\b(\w+)\s*=(?!=)[^;]*;")
_ALWAYS = re.compile(r"`([^`]+)` holds always")
# What is said of an instruction, or of a register: an edit of the line says it better, in the line's own terms.
_VAGUE = re.compile(
    r"\bits (?:product|sum|difference) is its (?:first|second) part alone|\bthe comparison is another"
    r"|\bits (?:quotient|remainder)(?: by \d+)? is (?:a|the) (?:remainder|quotient)"
    r"|\ban offset that it computes|\bits (?:product with|quotient by) a power of two|\bevery step or factor"
    r"|\bthe whole number that becomes a float|\bbecomes a float, in the place|\ban argument is|\bits result is"
    r"|\b(?:what|a number of|a number that) line \d+|\banother value\b|\ba variable or element that it reads"
)
_COMPARED = re.compile(r"\bsetp\.\S+ %p\d+(?:\|%p\d+)?, (%\w+), (%\w+);")
_LEAVING = re.compile(r"^\s*if\s*\(.*\)\s*(?:return|continue|break);\s*(?://.*)?$")
# A product whose sums are read while it is in flight, and the line that calls its wrapper.
_COMPARES = re.compile(r"^[^/]*(?:\b(?:if|for|while)\b|\s(?:[<>]=?|[!=]=|&&|\|\|)\s|\s\?\s)")
_EARLY = re.compile(r"accumulator of the wgmma on line \d+ \(called on line (\d+)\) before wgmma\.wait_group")
_VALUE = re.compile(r"(`[^`]+`) is `")
_ADDS_ORDER = re.compile(r"`[^`]*(?i:sync|fence|wait|arrive|commit|barrier)[^`]*` stands ")
_ADDED = re.compile(r"`([^`]+);` stands behind `")
_INSTEAD = re.compile(r"`([^`]+\))` is `([^`]+\))`")
_WHOLE = re.compile(r"\bconstexpr\s+(?:unsigned|u?int\w*)\s+(\w+)\s*=")
_REAL = re.compile(r"\bconstexpr\s+float\s+(\w+)\s*=\s*(-?\d[\d.]*(?:e-?\d+)?)f;")


Coming = Future[tuple[Path, Sequence[Edit]] | None]  # code with edits, which nvcc is making
Prepared = Callable[[Call], "Call | None"]  # a case's call -> with another number; None: that changes nothing


@dataclass
class _Base:
    """Code of which some kernels are of other code of the file: its lines with their numbers, what the failing case
    gives with it, if that is wrong, and how many instructions a call may take."""

    kept: tuple[list[int], list[str]]
    first: Judged | None = None
    limit: int = 0


@dataclass
class Trial:
    """Calls of changed code, with a count of what they take."""

    lab: Lab
    sandbox: Sandbox
    folder: Path
    name: str  # of the learner's file
    text: str
    kind: Kind  # how the failing case fails
    seconds: float = SECONDS
    written: int = 0  # files
    of_call: float = OF_CALL  # on the failing case
    limit: int = 0  # of the instructions that a call on the failing case may take
    executed: int = 0  # instructions of the failing case
    ends_early: bool = False  # the failing case, so that the limit is a guess
    longer: int = 0  # calls that may take more than such a limit
    reached: frozenset[int] = frozenset()  # lines that the failing case comes to
    unreached: frozenset[int] = frozenset()  # and that it does not
    repeated: frozenset[int] = frozenset()  # lines of loops that go round there
    still_repeated: frozenset[int] = frozenset()  # of the changed code, where it was called last on all cases
    suspected: frozenset[int] = frozenset()  # of those that it comes to: where one that is right does not
    always_suspected: frozenset[int] = frozenset()  # of these: where no case that is right does
    dropped: frozenset[int] = frozenset()  # lines of the PTX: of the kernels that it does not launch
    calls: dict[CaseKey, tuple[Case, Call]] = field(default_factory=dict)
    close: bool = False  # to the source
    wrong: int = 0  # elements that the failing case has wrong
    left: int = 0  # that the last call had wrong
    first: Judged | None = None  # what the unchanged code gives
    doubts: dict[int, float] = field(default_factory=dict)  # of lines, in ranks: see the function
    timed_out: bool = False  # the last call
    told: CaseKey | None = None  # the case that was wrong last, of those that confirm a change
    least: int = LEAST_RIGHT  # cases that a change must make right
    confirmed: int = 0  # cases that are right with each change that was found; 0: none was
    source: str = ""  # the learner's file
    tried: list[Change] = field(default_factory=list)
    better: list[tuple[int, Change]] = field(default_factory=list)  # how many elements are still wrong
    answers: dict[tuple[CaseKey, bytes], float] = field(default_factory=dict)  # wrong ones, each with its doubt
    doubt: float = 0.0  # that the last call throws on the line that was changed
    types: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of each kernel's parameters
    launched: tuple[Launched, ...] = ()  # by the failing case
    faster: str = ""  # other code of the file, which runs fewer instructions
    bases: dict[frozenset[str], _Base] = field(default_factory=dict)  # by the kernels that are of that code
    base: _Base | None = None  # that of the last call
    larger: list[CaseKey] | None = None  # cases that fail, see `_larger`, once they are known
    of_solution: bool = False  # changes are what the solution has: none of them goes round the line at fault

    def leaves_one(self, change: Change) -> bool:
        """Whether only 1 or 0 is left of a constant that the file names and uses on other lines, too, or one round of
        a loop that it ends: what it counts is no longer there, and so what was wrong with it is not."""
        line = self.source.split("\n")[change.line - 1] if self.source else ""
        step, loop = _STEP.search(change.words), _COUNTING.search(line)
        if step is not None and loop is not None:
            return int(step[1]) >= self.constants.get(loop[1], int(step[1]) + 1)
        found = _LEFT_ONE.search(change.words)
        if found is None or not line:
            return False
        names = [name for name, value in self.constants.items() if value == int(found[1]) > 1]
        names = [name for name in names if re.search(rf"(?<![\w.]){name}\b", line)]
        is_number = re.search(rf"(?<![\w.]){found[1]}(?![\w.])", line) is not None
        return not is_number and any(len({*lines_with(name, self.source)}) > 2 for name in names)

    def replaces_counter(self, change: Change) -> bool:
        """Whether it puts another number in the place of a loop's variable, in the loop's own head: then the loop ends
        early, or counts something else."""
        loop = _COUNTER.search(self.source.split("\n")[change.line - 1]) if self.source else None
        said = self.names.named(change.words, change.line) if loop is not None else ""
        return loop is not None and f"in the place of `{loop[1]}`" in said

    @cached_property
    def names(self) -> Names:
        return Names(self.source)

    def write(self, text: Sequence[str]) -> Path:
        self.written += 1
        path = self.folder / f"{self.written}.ptx"
        self.seconds -= OF_BYTE * path.write_text("\n".join(text))
        return path

    def write_short(self, *changes: Change) -> Path:
        """The code with changes, without empty lines and the kernels that the failing case does not launch. Kernels
        without a change are of the code that is faster, if the failing case is wrong with these, too."""
        lines: dict[int, str] = {}
        for change in changes:
            lines |= change.lines
        self.base = self._base_of(lines)
        return self._write_kept(self.base.kept if self.base is not None else self._kept, lines)

    def _base_of(self, lines: Collection[int]) -> _Base | None:
        names = self._entries.replaced(lines) if self._entries is not None else frozenset[str]()
        if not names or self._entries is None:
            return None
        if names not in self.bases:
            kept = self._entries.with_others(zip(*self._kept, strict=True), names)
            self.bases[names] = base = _Base(([number for number, _ in kept], [line for _, line in kept]))
            self._call_base(base)
        return self.bases[names] if self.bases[names].first is not None else None

    def _call_base(self, base: _Base) -> None:
        key = next(iter(self.calls))
        ptx = self._write_kept(base.kept, {})
        case, outcome = self.call(key, ptx, limits=replace(self.lab.limits, instructions=self.limit))
        ptx.unlink()
        self.seconds -= self.of_call + self.of_instruction * outcome.executed
        if outcome.findings or not (given := judged(case, outcome)).wrong:
            return
        base.first, base.limit = given, EDIT_ROUNDS * outcome.executed + LEAST
        self.answers[key, _bytes_of(outcome)] = UNMOVED

    @cached_property
    def _entries(self) -> Entries | None:
        """Where the failing case launches several kernels, and is wrong."""
        kernels = {each.kernel for each in self.launched}
        return Entries(self.text, self.faster) if self.faster and self.first is not None and len(kernels) > 1 else None

    def _write_kept(self, code: tuple[list[int], list[str]], lines: Mapping[int, str]) -> Path:
        numbers, kept = code
        pieces, last = list[str](), 0
        for number in sorted(lines.keys() - self.dropped):
            at = bisect_left(numbers, number)
            pieces += [*kept[last:at], lines[number]]
            last = at + (at < len(numbers) and numbers[at] == number)
        return self.write([*pieces, *kept[last:]])

    @property
    def short_limit(self) -> int:
        """How many instructions a call of the code that was written last may take."""
        return self.limit if self.base is None else min(self.limit, self.base.limit)

    @cached_property
    def constants(self) -> Mapping[str, int]:
        return constants_of(self.source)

    @cached_property
    def relatives(self) -> Mapping[str, Collection[str]]:
        return relatives_of(self.source)

    @cached_property
    def _kept(self) -> tuple[list[int], list[str]]:
        """The lines of the code that are needed, and their numbers."""
        lines = [*enumerate(self.text.split("\n"))]
        kept = [(number, line) for number, line in lines if line and number not in self.dropped]
        return [number for number, _ in kept], [line for _, line in kept]

    def given(self, key: CaseKey) -> tuple[Case, Call]:
        """A case, and its call of unchanged code."""
        if key not in self.calls:
            case = Case(self.lab.kata, self.lab.spec, key)
            call = replace(case.call(nth=0, limits=self.lab.limits), forgive_copies=self.close)
            self.calls[key] = case, call
        return self.calls[key]

    def call(
        self, key: CaseKey, ptx: Path | None, prepared: Prepared | None = None, **more: Any
    ) -> tuple[Case, Outcome]:
        """``ptx``: other code; None: what was loaded last."""
        case, call = self.given(key)
        changed = prepared(call) if prepared is not None else None
        return case, self.sandbox.call(replace(changed or call, ptx=str(ptx or ""), **more))

    def is_wrong(self, key: CaseKey, *, anyhow: bool = False) -> bool:
        """Whether the unchanged code fails as it must, or ``anyhow``."""
        ptx = self.write(self.text.split("\n"))
        case, outcome = self.call(key, ptx, coverage=True)
        ptx.unlink()
        known = 0 if outcome.findings else outcome.executed  # a finding ends the call early
        self.limit = ROUNDS * known + LEAST if known else max(ROUNDS * outcome.executed, UNKNOWN)
        self.ends_early, self.executed = not known, known
        blocks = sum(prod(item.grid) * item.times * (item.smem_bytes + LEAST_SHARED) for item in outcome.launched)
        self.of_call = (OF_CLOSE_CALL if self.close else OF_CALL) + OF_SHARED_BYTE * min(blocks, MOST_SHARED)
        self.reached, self.repeated = _reached(outcome), _repeated(outcome)
        self.unreached = self._unreached(outcome)
        launched = [kernel.launched or bool(outcome.findings) for kernel in outcome.coverage]  # it ends the call
        self.dropped = frozenset(without(self.text, launched))
        names = [kernel.kernel for kernel in outcome.coverage]
        if len(names) == len(types := parameter_types(self.text)):
            self.types = dict(zip(names, types, strict=True))
        self.launched = outcome.launched
        if not outcome.findings:  # of calls with a finding, some give right answers all the same
            self.answers[key, _bytes_of(outcome)] = UNMOVED
        if outcome.findings:
            kinds = {finding.kind for finding in outcome.findings}
            return self.kind in kinds or (anyhow and not kinds.isdisjoint(RUNS))
        self.first = judged(case, outcome)
        self.wrong = self.first.wrong_count
        return (anyhow or self.kind is Kind.WRONG_ANSWER) and self.wrong > 0

    def _unreached(self, outcome: Outcome) -> frozenset[int]:
        """The lines that it does not come to, without those that stand in a row with one that it comes to."""
        lines = {line: 0 for kernel in outcome.coverage for line, _ in kernel.lines}
        lines.update(dict.fromkeys(_reached(outcome), ONCE))
        raise_neighbours(lines, self.source.split("\n"))
        return frozenset(line for line, state in lines.items() if not state)

    @property
    def of_instruction(self) -> float:
        return OF_CLOSE_INSTRUCTION if self.close else OF_INSTRUCTION

    def learn(self, line: int) -> None:
        """Note what the last call says of the line that was changed."""
        was = self.doubts.get(line, 0.0)
        more = self.doubt * (OF_TRUSTED if was < 0 < self.doubt else 1)
        self.doubts[line] = min(max(was + more, LEAST_DOUBT), MOST_DOUBT)

    def suspect(self, right: CaseKey) -> None:
        """Note the lines that a case which is right does not come to, and those of loops that go round there once."""
        ptx = self.write(self.text.split("\n"))
        _, outcome = self.call(right, ptx, coverage=True, limits=replace(self.lab.limits, instructions=OF_OTHERS))
        ptx.unlink()
        self.seconds -= self.of_call + self.of_instruction * outcome.executed
        if not outcome.findings:
            lines, loops = _reached(outcome), self.repeated - _repeated(outcome)
            found = self.reached - lines
            found |= blocks_of(self.source, found, lines) | loops_of(self.source, loops)
            self.always_suspected = found & self.always_suspected or found or self.always_suspected
            self.suspected |= found

    def is_right(self, key: CaseKey, ptx: Path | None, limit: int, prepared: Prepared | None = None) -> bool:
        case, outcome = self.call(key, ptx, prepared, limits=replace(self.lab.limits, instructions=limit))
        self.timed_out = any(finding.kind == Kind.TIME_OUT for finding in outcome.findings)
        lost = limit if self.timed_out else min(limit, MOST_LOST)
        self.seconds -= self.of_call + self.of_instruction * (outcome.executed or lost)
        self.left, self.doubt = self.wrong, 0.0
        if outcome.findings:
            return False
        if (known := self.answers.get((key, (answer := _bytes_of(outcome))))) is not None:
            self.doubt = known
            return False
        given = judged(case, outcome)
        first = self.base.first if self.base is not None else self.first
        self.left, self.doubt = given.wrong_count, doubt(first, given)
        if self.left:
            self.answers[key, answer] = self.doubt
        return not self.left

    def write_mixed(self, change: Change) -> Path | None:
        """The code with a change, with all kernels that other cases may launch; None: it has none of other code."""
        if self._entries is None or self._base_of(change.lines) is None:
            return None
        lines = enumerate(change.applied(self.text.split("\n")))
        return self.write([line for _, line in self._entries.with_others(lines, self._entries.replaced(change.lines))])

    def are_right(self, cases: Sequence[CaseKey], text: Sequence[str], limit: int, mixed: Path | None = None) -> bool:
        """Whether all cases are right, and together come to all lines that the failing case came to: code that goes
        round the line at fault is right, too. ``mixed``: the same, some kernels of other code."""
        ptx = mixed or self.write(text)
        count = self._right_cases(cases, ptx, limit)
        right = count >= min(len(cases), self.least)
        if right and not self.of_solution:
            ptx = self.write(text) if mixed is not None else ptx
            _, outcome = self.call(cases[0], ptx, coverage=True)
            right, self.still_repeated = self.reached <= _reached(outcome), _repeated(outcome)
        if right:
            self.confirmed = min(self.confirmed or count, count)
        if ptx != mixed:
            ptx.unlink()
        return right

    def _right_cases(self, cases: Sequence[CaseKey], ptx: Path, limit: int) -> int:
        """How many are right, as far as they are tried; 0 where one is wrong. A few may take too many instructions.
        The case that told last comes second."""
        count, too_long, least = 0, 0, self.seconds - MOST_CONFIRMING
        if self.executed > limit:  # each takes long: one that fails, too, tells more than small ones that pass
            limit = AS_MANY * self.executed
            self.told = self.told or next((key for key in cases[1:] if self.lab.known.get(key)), None)
        more = [] if self.told is None or self.told in cases else [self.told]
        for key in sorted([*cases, *more], key=lambda key: (key != cases[0], key != self.told)):
            if self.seconds < least and (count >= self.least or self.seconds < -MOST_OVER):
                break
            if self.is_right(key, ptx, max(limit, self.limit) if key == cases[0] else limit):
                count += 1
            elif self.timed_out and key != cases[0]:
                too_long += 1
                if too_long == TOO_LONG:
                    break
            else:
                self.told = key
                return 0
        return count

    def stays_right(self, text: Sequence[str], mixed: Path | None = None) -> bool:
        """Whether changed code is right in more cases, and its loops go round in some case, those of the failing case:
        a step that is too large ends a loop before it comes to what is wrong."""
        ptx = self.write(text)
        right = self.more_are_right(mixed or ptx)
        if right and mixed is not None and not self.of_solution and not self.repeated <= self.still_repeated:
            self.more_are_right(ptx)
        if right and not self.of_solution and not self.repeated <= self.still_repeated:
            limit = replace(self.lab.limits, instructions=OF_OTHERS)
            _, outcome = self.call(next(iter(self.calls)), None, coverage=True, limits=limit)
            right = self.repeated <= self.still_repeated | _repeated(outcome)
        ptx.unlink()
        return right

    def more_are_right(self, ptx: Path | None, prepared: Prepared | None = None) -> bool:
        """Whether other cases are right, too, larger ones and of other numbers, as far as so many instructions tell."""
        spec, left = self.lab.spec, LARGE_INSTRUCTIONS
        sizes = [each for each in spec.named_sizes if allowed(self.lab.kata, each) and spec.work(each) <= LARGE_WORK]
        for nth, each in enumerate(sorted(sizes, key=spec.work, reverse=True)[:CONFIRMED]):
            if left <= 0:
                break
            key = CaseKey.of(spec, each, spec.values[nth % len(spec.values)].name, CONFIRMED_SEED + nth)
            case, outcome = self.call(key, ptx, prepared, limits=replace(self.lab.limits, instructions=left))
            left -= outcome.executed
            if any(finding.kind == Kind.TIME_OUT for finding in outcome.findings):
                continue  # it takes more than is left
            if outcome.findings or judged(case, outcome).wrong:
                self.told = key
                return False
        return True


def doubt(first: Judged | None, given: Judged) -> float:
    """How much a change of a line speaks against it, in ranks: it turns the ``first`` outputs into others. A line is
    at fault more often where the change moves wrong elements, and leaves right ones right."""
    if first is None or first.case.shape != given.case.shape:
        return 0.0
    pairs = [*zip(first.compared, given.compared, strict=True)]
    moves = any(
        ((was.got != now.got) & ~((was.got != was.got) & (now.got != now.got)))[was.wrong].any() for was, now in pairs
    )
    spoils = any((now.wrong & ~was.wrong).any() for was, now in pairs)
    alone = -MOVED_ALONE if any((~was.wrong).any() for was, _ in pairs) else 0.0
    return (0.0 if spoils else alone) if moves else SPOILT if spoils else UNMOVED


def _reached(outcome: Outcome) -> frozenset[int]:
    """The lines that calls came to since the code was loaded."""
    return frozenset(line for kernel in outcome.coverage for line, came in kernel.lines if came)


def _repeated(outcome: Outcome) -> frozenset[int]:
    """The lines of loops that went round since the code was loaded."""
    return frozenset(line for kernel in outcome.coverage for line, state in kernel.loops if state == AGAIN)


def _bytes_of(outcome: Outcome) -> bytes:
    return b"".join(bytes(outcome.outputs[name]) for name in sorted(outcome.outputs))


def repair(
    lab: Lab,
    failed: CaseKey,
    program: Program | None,
    compiler: Compiler | None = None,
    kind: Kind = Kind.WRONG_ANSWER,
    finding: Finding | None = None,
    *,
    is_brief: bool = False,
) -> Iterator[Clue]:
    """At most one clue; none where changes on more than LINES lines do, or the file is too large to try.

    First what the solution has otherwise is put in the place of what the file has, then what the launcher gives the
    CUDA runtime is changed, then the PTX that runs, then the one close to the source; at last two places of either.
    ``kind`` says how the file fails. What a finding's lines get their numbers from is changed first. ``is_brief``: what
    is wrong is known, but for its line.
    """
    if program is None or program.device != "sim" or program.ptx.stat().st_size > LARGEST:
        return
    cases, few = _cases(lab, failed), FEWEST if finding is not None else 0
    if not _are_enough(lab, cases):
        return
    with (
        suppress(SandboxError, OSError),
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(1) as beside,
        Sandbox(program.device) as sandbox,
    ):
        sandbox.load(program)
        text, source = (path.read_text(errors="replace") for path in (program.ptx, program.source))
        own = _own_lines(source, skeleton_of(lab.kata))
        seconds, name = BRIEF if is_brief else SECONDS, program.source.name
        trial = Trial(lab, sandbox, _folder(folder, "own"), name, text, kind, seconds, source=source)
        if not trial.is_wrong(cases[0]):
            return
        cases += islice(_failing(trial, cases), max(few - len(cases), 0))
        files = _Files(trial, source, is_brief=is_brief)
        if compiler is not None:
            files.compile_with(compiler, beside, folder, own - _missed(trial, finding))
        yield from _clue(files, cases, own, finding)


def _are_enough(lab: Lab, cases: Sequence[CaseKey]) -> bool:
    """Whether a change that makes all of them right is hardly so by chance."""
    elements = sum(tensor.elements(dict(key.sizes)) for key in cases for tensor in lab.spec.outputs)
    return len(cases) >= LEAST_CASES and elements >= ELEMENTS


def _clue(files: _Files, cases: Sequence[CaseKey], own: Collection[int], finding: Finding | None) -> Iterator[Clue]:
    """What is found of the launcher and of the kernels."""
    found, pair = _of_file(files, cases, own, finding)
    lines = {change.line for change in found or pair}
    if 1 <= len(lines) <= LINES:
        names, count = Names(files.source), files.confirmed or len(cases)
        if count < (LEAST_CASES if files.is_solved else FEWEST):
            return
        words = _words(found, count, "or", names) if found else _words(pair, count, "and", names)
        yield Clue("repair", words, line=lines.pop() if len(lines) == 1 else None)
    elif not lines:
        yield from _zero_quotients(files.source, own)


def _of_file(
    files: _Files, cases: Sequence[CaseKey], own: Collection[int], finding: Finding | None
) -> tuple[list[Change | LauncherChange], list[Change]]:
    """The changes that make all right, each alone, else two that must come together."""
    trial, source = files.trial, files.source
    runs = trial.kind is not Kind.LAUNCH_FAILED  # else no kernel does
    if runs and (solved := _of_solution(files, cases, own, finding)):
        return [*solved], []
    found: list[Change | LauncherChange] = [*_right_launchers(trial, source, own, cases)]
    built = _found_built(files, cases) if found or finding is not None or not runs else []
    if built and not (found and AS_SOLVED in built[0].words):  # which says less than one line
        return [*built], []
    pair = list[Change]()
    if runs:
        for right in _right_cases(trial.lab, cases) if trial.kind is Kind.WRONG_ANSWER and not found else ():
            trial.suspect(right)
        of_kernels, pair = _of_kernels(files, cases, own, finding, is_found=bool(found))
        kernels_of.cache_clear()  # large, and of no use to another file
        found = [*found, *of_kernels]
    if not found and not pair and finding is not None and "past the end" in finding.message:
        found = [*_right_calls(trial, roomier(source, own, trial.launched, trial.types), cases)]
    return found, pair


def _zero_quotients(source: str, own: Collection[int]) -> Iterator[Clue]:
    """The first line with a quotient of two whole numbers that is 0: nvcc leaves nothing of it to change."""
    for line, quotient in zero_quotients(source):
        if line in own:
            words = f"on line {line} `{quotient}` is a quotient of whole numbers, rounded down: 0"
            yield Clue("repair", words, line=line)
            return


@dataclass
class _Files:
    """The code that runs, and code that is close to its source."""

    trial: Trial
    source: str
    coming: Future[Path | None] | None = None  # of the latter
    is_brief: bool = False
    edited: Callable[[Collection[int] | None], Coming] | None = None
    coming_edits: Coming | None = None  # of all lines, or those of the region
    solved: Coming | None = None
    make_close: Callable[[], Future[Path | None]] | None = None
    built: Build | None = None

    def compile_with(self, compiler: Compiler, beside: ThreadPoolExecutor, folder: str, own: Collection[int]) -> None:
        """Let nvcc run while changes of the code that runs are tried, and make edits of own lines when they are asked
        for."""
        self.built = compiler.built
        if self.trial.kind is Kind.LAUNCH_FAILED:
            return  # no kernel runs
        self.solved = compiler.solved_ahead or beside.submit(compiler.solved, _folder(folder, "solved"))
        self.make_close = lambda: beside.submit(compiler.source_like, _folder(folder, "close"))
        to = _folder(folder, "edited")

        def edited(lines: Collection[int] | None) -> Coming:
            chosen = own if lines is None else {*own} & {*lines}
            return beside.submit(compiler.edited, to, chosen, {**self.trial.doubts})

        self.edited = edited

    def begin_close(self) -> None:
        """Let nvcc make the code that is close to the source, where that is still wanted."""
        if self.make_close is not None and self.coming is None and not self.is_brief:
            self.coming = self.make_close()

    def begin_edits(self) -> None:
        """Let nvcc make edits of the source while changes of other code are tried."""
        if self.edited is not None and self.coming_edits is None:
            self.coming_edits = self.edited(self.region)

    @cached_property
    def close(self) -> Trial | None:
        self.begin_close()
        ptx = self.coming.result() if self.coming is not None else None
        return None if ptx is None else self._trial(ptx.parent, ptx.read_text(errors="replace"), SOURCE_SECONDS)

    def _trial(self, folder: Path, text: str, seconds: float) -> Trial:
        own = self.trial
        one = Trial(own.lab, own.sandbox, folder, own.name, text, own.kind, seconds, close=True, source=self.source)
        one.suspected, one.always_suspected = own.suspected, own.always_suspected
        one.doubts, one.faster = own.doubts, own.text
        return one

    def with_edits(self, lines: Collection[int] | None) -> tuple[Trial, list[tuple[Edit, Change]]] | None:
        """Code with none of the edits of the source, and these as changes of it; of these ``lines`` alone, if no others
        are being made already."""
        if lines is None:
            self.begin_edits()
        coming = self.coming_edits
        if coming is None and self.edited is not None:
            coming = self.edited(lines)
        made = coming.result() if coming is not None else None
        found = self._chosen(made, BRIEF_EDITS if self.is_brief or self.whole else EDIT_SECONDS)
        self.edits = found[0] if found is not None else self.edits
        return found

    def _chosen(
        self, made: tuple[Path, Sequence[Edit]] | None, seconds: float
    ) -> tuple[Trial, list[tuple[Edit, Change]]] | None:
        """Code with none of the edits that nvcc made it with, and these as changes of it."""
        if made is None or made[0].stat().st_size > LARGEST_EDITED:
            return None
        ptx, edits = made
        code = chosen(ptx.read_text(errors="replace"), edits)
        return self._trial(ptx.parent, code.text, seconds - OF_CHOSEN * ptx.stat().st_size), [*code.changes]

    edits: Trial | None = None

    @cached_property
    def as_solved(self) -> tuple[Trial, list[tuple[Edit, Change]]] | None:
        """Code with none of the edits that put what the solution has in the place of what the file has, and these."""
        found = self._chosen(self.solved.result() if self.solved is not None else None, SOLUTION_SECONDS)
        if found is not None:
            self.of_solution = found[0]
            self.of_solution.of_solution = True
        return found

    of_solution: Trial | None = None
    is_solved: bool = False  # what was found is as in the solution: it is not right by chance
    whole: list[Change] = field(default_factory=list)  # the answer or the function that is at fault, if that is known
    as_there: list[Change] = field(default_factory=list)  # after a finding: what makes all right as in the solution
    region: frozenset[int] | None = None  # the lines of which some are at fault, where that is known

    def are_computed(self, changes: Sequence[Change]) -> bool:
        """Whether the first of each line is of a number that nvcc made of the file's: the line does not have it."""
        names, firsts = Names(self.source), {change.line: change for change in reversed(changes)}
        return not any(names.has_number(change.words, line) for line, change in firsts.items())

    @property
    def confirmed(self) -> int:
        """The cases that are right with each change of a kernel; 0 where there is none."""
        trials = [self.trial, self.edits, self.of_solution, *([self.close] if self.close_was_made else [])]
        return min((each.confirmed for each in trials if each is not None and each.confirmed), default=0)

    @property
    def close_was_made(self) -> bool:
        return "close" in vars(self)

    def close_that_fails(self, key: CaseKey, near: Collection[int]) -> Trial | None:
        """Not such as one whose products are in flight while its registers are stored, or that ends before the lines of
        the finding."""
        if self.close is not None and self._fails is None:
            fails = self.close.is_wrong(key, anyhow=True)
            self._fails = fails and (not near or not self.close.reached.isdisjoint(near))
        return self.close if self._fails else None

    _fails: bool | None = None


def _of_solution(
    files: _Files, cases: Sequence[CaseKey], own: Collection[int], finding: Finding | None
) -> list[Change]:
    """What makes all right in a kernel if it is as in the solution. What makes a finding go away in another way may
    only hide it; but a barrier or the like that is missing may stand in several places, and has better words."""
    if finding is None and (found := _found_remainders(files, cases, own, ())):
        return found
    files.as_there = _found_solved(files, cases)
    return [change for change in files.as_there if finding is None or not _ADDS_ORDER.search(change.words)]


def _of_kernels(
    files: _Files, cases: Sequence[CaseKey], own: Collection[int], finding: Finding | None, *, is_found: bool
) -> tuple[list[Change], list[Change]]:
    """The same as `_of_code`. Where only a whole answer to a TODO or a whole function makes all right, the line at
    fault is in it: only there are other changes tried."""
    if files.trial.kind is Kind.WRONG_ANSWER and not is_found:
        own = _confined(files, cases, own)
        if not files.whole and (found := _found_built(files, cases)):  # no kernel is at fault
            return found, []
        files.begin_close()
    found, pair = _of_code(files, cases, own, finding, is_found=is_found)
    if finding is None:
        files.is_solved &= not found and not pair
    return found or ([] if pair else files.whole), pair


def _confined(files: _Files, cases: Sequence[CaseKey], own: Collection[int]) -> Collection[int]:
    """Those of the own lines that are in what makes all right if it is as in the solution as a whole; all, if nothing
    does."""
    files.whole = _found_solved(files, cases, as_whole=True)
    if not files.whole or not files.whole[0].last:
        return own
    files.region = frozenset(range(files.whole[0].line, files.whole[0].last + 1))
    return {*own} & files.region


def _of_code(
    files: _Files, cases: Sequence[CaseKey], own: Collection[int], finding: Finding | None, *, is_found: bool
) -> tuple[list[Change], list[Change]]:
    """The changes of kernels that make all right, each alone, else two that must come together.

    ``is_found``: one of the launcher does already, so nothing is compiled. To wait for everything comes last.
    """
    trial, failed, near = files.trial, cases[0], _lines_of(finding) if finding is not None else ()
    is_answer = trial.kind is Kind.WRONG_ANSWER  # of which these have been tried
    if not is_answer and not is_found and (found := _found_remainders(files, cases, own, near)):
        return found, []
    if trial.kind in OF_ORDER and not is_found:
        waits = _between(finding) & {*own}
        if found := _found(trial, cases, own, (OF_CALLS,), near) or _found(trial, cases, waits, (ALL_WAITS,), near):
            return found, []
        close = files.close_that_fails(failed, near)
        for whole in (close, trial) if close is not None else (trial,):
            if found := _found_whole(whole, cases, files.source, own, finding):
                return found, []
        found = _found(trial, cases, own, (KINDS,), near) or _found(trial, cases, own, (WAITS,), near)
        if found := found or _found_valued(trial, cases, files.source, own):
            return _as_written(files, found, cases, near), []
    else:
        found = _found(trial, cases, own, (KINDS,), near)
        if found and not is_found:
            guards = _found_whole(trial, cases, files.source, own, finding) if _are_vague(files, found) else []
            return guards or _as_written(files, found, cases, near), []
    if files.is_brief and not is_found:
        return found or _found_edited(files, cases, near), []
    if not found and not is_found and not is_answer:
        found = files.as_there
        own = own if found else _confined(files, cases, own)
    if found or is_found or files.close is None:
        return found, []
    if found := _of_close(files, cases, own, finding):
        return found, []
    return [], [*_right_pair(trial, cases)] or [*_right_pair(files.close, cases)]


def _of_close(files: _Files, cases: Sequence[CaseKey], own: Collection[int], finding: Finding | None) -> list[Change]:
    """The changes of code that is close to the source, of which each makes all right; else such edits of the source."""
    trial, near, found = files.trial, _lines_of(finding) if finding is not None else (), list[Change]()
    close = files.close_that_fails(cases[0], near)
    files.begin_edits()
    if close is None:
        trial.seconds = SOURCE_SECONDS - OF_SECOND_CHOICE
        if trial.kind not in OF_ORDER:
            found = _found_whole(trial, cases, files.source, own, finding)
        found = found or _found(trial, cases, own, MORE_KINDS, near)
    else:
        if trial.kind not in OF_ORDER:
            found = _found_whole(close, cases, files.source, own, finding)
        found = found or _found_valued(close, cases, files.source, own)
        found = found or _found(close, cases, own, SOURCE_KINDS, near)
    return _as_written(files, found, cases, near) if found else _found_edited(files, cases, near)


def _as_written(files: _Files, found: list[Change], cases: Sequence[CaseKey], near: Collection[int]) -> list[Change]:
    """Changes that make all right; where their lines do not have the numbers that change, or their words do not say
    which of several on the line, edits of these lines. A comparison of a number with itself says nothing."""
    said = [change for change in found if not _is_of_itself(change)]
    if not _are_vague(files, found) and len(said) == len(found) and not files.are_computed(found):
        return found
    return _found_edited(files, cases, near, {change.line for change in found}) or said


def _are_vague(files: _Files, found: list[Change]) -> bool:
    """Whether the words of the first change of a line do not say which of several numbers it is about."""
    names, firsts = Names(files.source), {change.line: change for change in reversed(found)}
    return any(_VAGUE.search(names.named(change.words, line)) for line, change in firsts.items())


def _is_of_itself(change: Change) -> bool:
    """Whether it makes a comparison one of a number with itself, which always gives the same."""
    found = [_COMPARED.search(text) for text in change.lines.values()]
    return any(each is not None and each[1] == each[2] for each in found)


def _found_edited(
    files: _Files, cases: Sequence[CaseKey], near: Collection[int], lines: Collection[int] | None = None
) -> list[Change]:
    """The edits of the source that make all right, of the least rank that has any; of these ``lines`` alone."""
    if (missing := EDIT_CASES - len(cases)) > 0:
        cases = [*cases, *islice(_failing(files.trial, cases), missing)]
    if len(cases) < EDIT_CASES or (made := files.with_edits(lines)) is None:
        return []
    trial, changes = made
    trial.least = EDIT_CASES
    if not trial.is_wrong(cases[0], anyhow=True):
        return []
    trial.longer = LONGER if trial.ends_early else 0
    trial.limit = trial.limit * EDIT_ROUNDS // ROUNDS
    if near:
        trial.unreached = frozenset()  # a finding ends the call before all that it came to is counted
    first = {*near, *trial.suspected}
    behind = _around(near) | lines_of_values(files.source, near)
    behind |= lines_behind(trial.text, trial.name, near) if near else frozenset[int]()
    decided = _deciding(files.source) if _nothing_written(trial.first) else None

    def rank(one: tuple[Edit, Change]) -> int:
        """Where it is likely that a line is at fault, an edit of it is."""
        line = one[1].line
        if decided is not None:
            return one[0].rank + (0 if line in decided else OF_OTHER_LINE)
        if not first or line in near or line in behind or line in trial.always_suspected:
            return one[0].rank
        return one[0].rank + (OF_LESS_SUSPECTED if line in first else OF_OTHER_LINE)

    def place(one: tuple[Edit, Change]) -> tuple[bool, int]:
        line = one[1].line
        return line not in first, min((abs(line - each) for each in near), default=0) if line in behind else FAR

    changes = sorted(
        (one for one in changes if lines is None or one[1].line in lines), key=lambda one: (rank(one), place(one))
    )
    return _once([*_right_ones(trial, [change for _, change in changes], cases, [*map(rank, changes)], EDIT_RANKS)])


def _found_remainders(
    files: _Files, cases: Sequence[CaseKey], own: Collection[int], near: Collection[int]
) -> list[Change]:
    """Those of lines with a remainder that is always the same."""
    lines = {*fixed_remainders(files.source)} & {*own}
    return _found_edited(files, cases, near, lines) if lines else []


def _found_solved(files: _Files, cases: Sequence[CaseKey], *, as_whole: bool = False) -> list[Change]:
    """The places that make all right if they are as in the solution, of the least rank that has any. ``as_whole``: a
    function's whole body."""
    if (made := files.as_solved) is None:
        return []
    trial, edits = made
    changes = [(edit.rank, change) for edit, change in edits if (edit.rank >= OF_ANSWER) == as_whole]
    if not changes or not trial.is_wrong(cases[0], anyhow=True):
        return []
    trial.unreached, trial.seconds = frozenset(), SOLUTION_SECONDS
    ranks = [rank for rank, _ in changes]
    found = [*_right_ones(trial, [change for _, change in changes], cases, ranks, OF_NEXT)]
    files.is_solved |= bool(found)
    return found


def _found_built(files: _Files, cases: Sequence[CaseKey]) -> list[Change]:
    """What of the launcher, of constants and of types makes all right if it is as in the solution."""
    if files.built is None or len(cases) < LEAST_CASES:
        return []
    solution = read(files.trial.lab.kata.solution_path)
    found, count = right_variants(files.trial.lab, files.built, files.source, solution, cases)
    if found:
        files.trial.confirmed, files.is_solved = count, True
    return found


def _nothing_written(first: Judged | None) -> bool:
    """Whether no wrong element was written."""
    compared = first.compared if first is not None else ()
    return first is not None and all(bool(each.unwritten[each.wrong].all()) for each in compared)


def _deciding(source: str) -> frozenset[int]:
    """The lines that compare something: what is not written, a condition or the end of a loop keeps threads from."""
    return frozenset(number for number, line in enumerate(source.split("\n"), 1) if _COMPARES.search(line))


def _once(found: Sequence[Change]) -> list[Change]:
    """Without all places but the last of a statement that may stand behind several lines. It stands behind none where
    what it calls is right in the place of another call, too."""
    said = [_ADDED.match(change.words) for change in found]
    called = {each[2] for change in found if (each := _INSTEAD.fullmatch(change.words)) is not None}
    last = {
        one[1]: change.line
        for one, change in sorted(zip(said, found, strict=True), key=lambda each: each[1].line)
        if one
    }
    return [
        change
        for one, change in zip(said, found, strict=True)
        if one is None or (last[one[1]] == change.line and not any(each in one[1] for each in called))
    ]


def _found_whole(
    trial: Trial, cases: Sequence[CaseKey], source: str, own: Collection[int], finding: Finding | None
) -> list[Change]:
    """After a finding: what is missing between two lines, or has the wrong place; then a line that lacks a guard."""
    if finding is None:
        return []
    text, name, near = trial.text, trial.name, _lines_of(finding)
    changes: list[Change] = []
    if trial.kind in OF_ORDER:
        around = {*own, *_cuts(source, skeleton_of(trial.lab.kata))}
        deadlock = trial.kind is Kind.DEADLOCK
        changes += [] if deadlock else missing_of(text, name, around, near, finding.message)
        nouns = [noun for noun, said in MOVED.items() if deadlock or re.search(said, finding.message)]
        changes += moved_of(text, name, around, nouns)
        changes.sort(key=lambda change: is_helper(source, change.line))
    changes += guarded_of(text, name, own, near, trial.constants)
    left, trial.seconds = trial.seconds, WHOLE_SECONDS
    found = [*islice(_right_ones(trial, changes, cases), 1)]  # a barrier is often right in several places
    if found and found[0].loops:
        further_out = [*_further_out(found[0], changes, Code(source), near)]
        found = [*islice(_right_ones(trial, further_out, cases), 1)] or found
    trial.seconds = left - (WHOLE_SECONDS - trial.seconds) / 2  # more than half of it is rarely used
    return found


def _further_out(first: Change, changes: Sequence[Change], code: Code, near: Collection[int]) -> Iterator[Change]:
    """Those that add the same as the ``first`` in the same function, or on the lines of the finding, which call it, in
    fewer loops; the outermost before others."""
    noun, function = first.words.partition(" stands ")[0], code.function_at(first.line)
    for each in sorted(changes, key=lambda change: change.loops):
        is_same = code.function_at(each.line) == function or each.line in near
        if each.loops < first.loops and each.words.partition(" stands ")[0] == noun and is_same:
            yield each


def _found_valued(trial: Trial, cases: Sequence[CaseKey], source: str, own: Collection[int]) -> list[Change]:
    """The constants of own lines that make all right with another value; then two lines in the other order."""
    known: list[tuple[str, int | float, int]] = [
        *((each.name, each.value, each.line) for each in all_constants_of(source) if each.value > 1),
        *((found[1], float(found[2]), source.count("\n", 0, found.start()) + 1) for found in _REAL.finditer(source)),
    ]
    chosen = [(*each, lines_with(each[0], source)) for each in known if each[2] in own]
    changes = valued_of(trial.text, trial.name, chosen)
    names = {each[0] for each in known}
    others = [(found[1], source.count("\n", 0, found.start()) + 1) for found in _WHOLE.finditer(source)]
    unknown = [
        (name, line, {*lines_with(name, source)} - {line}) for name, line in others if line in own and name not in names
    ]
    changes += scaled_of(trial.text, trial.name, unknown)
    changes += exchanged_of(trial.text, trial.name, own, source)
    return [*islice(_right_ones(trial, changes, cases), 1)]


def _between(finding: Finding | None) -> frozenset[int]:
    """The lines from a product to where its sums are read too early, in a function that does both; else none."""
    said = _EARLY.search(finding.message) if finding is not None else None
    if finding is None or said is None:
        return frozenset()
    return frozenset(range(int(said[1]), (finding.line, *finding.callers)[-1] or 0))


def _lines_of(finding: Finding) -> tuple[int, ...]:
    """The lines that a finding names."""
    named = map(int, re.findall(r"\bline (\d+)", finding.message))
    return tuple(dict.fromkeys(line for line in (finding.line, *finding.callers, *named) if line))


def _missed(trial: Trial, finding: Finding | None) -> frozenset[int]:
    """The lines that the failing case does not come to. Not those beside a finding: nvcc may merge the last lines of
    two calls of a function, and then only one of both is come to."""
    return trial.unreached - _around(_lines_of(finding) if finding is not None else ())


def _around(lines: Iterable[int]) -> frozenset[int]:
    return frozenset(line + by for line in lines for by in range(-BESIDE, BESIDE + 1))


def _own_lines(text: str, skeleton: str) -> set[int]:
    """The lines that a learner wrote: none in the place of an equal line of the skeleton."""
    return {line + 1 for first, end in _different(text, skeleton) for line in range(first, end)}


def _cuts(text: str, skeleton: str) -> set[int]:
    """The lines before and after those that are other than the skeleton's, or have gone."""
    return {line for first, end in _different(text, skeleton) for line in (first, end + 1)}


def _different(text: str, skeleton: str) -> list[tuple[int, int]]:
    """Lines, from 0, that are other than the skeleton's, each time from one up to another."""
    before, after = ([" ".join(each.split()) for each in file.split("\n")] for file in (skeleton, text))
    return [part[3:] for part in SequenceMatcher(None, before, after).get_opcodes() if part[0] != "equal"]


def _folder(parent: str, name: str) -> Path:
    folder = Path(parent) / name
    folder.mkdir()
    return folder


def _found(
    trial: Trial,
    cases: Sequence[CaseKey],
    own: Collection[int],
    steps: Iterable[Sequence[Kinds]],
    near: Collection[int],
) -> list[Change]:
    """The changes of the first step that has any, in the learner's own lines."""
    first = lines_behind(trial.text, trial.name, near) if near else frozenset[int]()
    for kinds in steps:
        changes = changes_of(trial.text, trial.name, kinds, own, trial.constants, trial.relatives)
        ranks = [0.0 if change.line in first or change.line in trial.suspected else OF_OTHER_LINE for change in changes]
        if found := list(_right_ones(trial, changes, cases, ranks)):
            return found
    return []


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
    for sizes in sorted(lab.spec.named_sizes, key=lab.spec.work):  # few are known after a finding
        most = WORK if len(found) + len(named) >= LEAST_RIGHT else LARGE_WORK
        if len(found) < WRONG + RIGHT and allowed(lab.kata, sizes) and lab.spec.work(sizes) <= most:
            named.append(CaseKey.of(lab.spec, sizes, lab.spec.values[len(named) % len(lab.spec.values)].name, 1))
    keys = [*dict.fromkeys([*found, *named])][: 2 * (WRONG + RIGHT)]
    return [failed, *sorted(keys[1:], key=lambda key: lab.spec.work(dict(key.sizes)))]  # a small one tells sooner


def _failing(trial: Trial, cases: Sequence[CaseKey]) -> Iterator[CaseKey]:
    """More cases that fail: only such a one proves something."""
    limit = min(OF_OTHERS, trial.lab.limits.instructions)
    for key in islice((key for key in _mixed(trial.lab) if key not in cases), MIXED):
        if _fails(trial, key, limit):
            yield key


def _fails(trial: Trial, key: CaseKey, limit: int) -> bool:
    """Whether the unchanged code is wrong within so many instructions."""
    ptx = trial.write(trial.text.split("\n"))
    is_right = trial.is_right(key, ptx, limit)
    ptx.unlink()
    return not is_right and not trial.timed_out


def _larger(trial: Trial, cases: Sequence[CaseKey]) -> list[CaseKey]:
    """More cases that fail, of which each has one size that is larger than in those of the ``cases`` that fail, if any:
    what is right up to a size may only move where it is wrong."""
    known = [key for key in cases if trial.lab.known.get(key) or key == cases[0]]
    most = {name: max(dict(key.sizes)[name] for key in known) for name in trial.lab.spec.sizes}
    found, limit = list[CaseKey](), min(OF_OTHERS, trial.lab.limits.instructions)
    for name, size in most.items():
        larger = (
            key for key in (*_at_most(trial.lab, known[-1], name), *_mixed(trial.lab)) if dict(key.sizes)[name] > size
        )
        found += islice((key for key in islice(larger, MOST_LARGER) if _fails(trial, key, limit)), 1)
    return [*dict.fromkeys(found)]


def _at_most(lab: Lab, key: CaseKey, name: str) -> Iterator[CaseKey]:
    """The case with a size as large as the spec draws it, with each kind of values."""
    sizes = {**dict(key.sizes), name: lab.spec.sizes[name].max}
    if allowed(lab.kata, sizes) and lab.spec.work(sizes) <= LARGE_WORK:
        yield from (CaseKey.of(lab.spec, sizes, each.name, key.seed) for each in lab.spec.values)


def _larger_are_right(trial: Trial, cases: Sequence[CaseKey], ptx: Path, prepared: Prepared | None = None) -> bool:
    if trial.larger is None:
        trial.larger = _larger(trial, cases)
    limit = min(OF_OTHERS, trial.lab.limits.instructions)
    return all(trial.is_right(key, ptx, limit, prepared) or trial.timed_out for key in trial.larger)


def _mixed(lab: Lab) -> Iterator[CaseKey]:
    """Cases of which each size is another named shape's, those of least work first: there are few small ones."""
    spec, named = lab.spec, lab.spec.named_sizes
    mixed = [
        {name: named[(first + place * step) % len(named)][name] for place, name in enumerate(spec.sizes)}
        for step in range(1, len(named))
        for first in range(len(named))
    ]
    fits = [sizes for sizes in mixed if allowed(lab.kata, sizes) and spec.work(sizes) <= LARGE_WORK]
    for nth, sizes in enumerate(sorted(fits, key=spec.work)):
        yield CaseKey.of(spec, sizes, spec.values[nth % len(spec.values)].name, 1)


def _right_cases(lab: Lab, cases: Sequence[CaseKey]) -> list[CaseKey]:
    """The cases that pass with least work, and with most work that the failing case does not have less than."""
    work = {key: lab.spec.work(dict(key.sizes)) for key in (*cases, *lab.known)}
    right = sorted((key for key in cases if lab.known.get(key) is False), key=work.__getitem__)
    near = [key for key, is_wrong in lab.known.items() if not is_wrong and work[key] <= work[cases[0]]]
    near = sorted(
        (key for key in near if key.card == cases[0].card and key.sizes != cases[0].sizes), key=work.__getitem__
    )
    return [*dict.fromkeys([*right[:1], *near[-1:]])]


def _of_other_sizes(keys: Iterable[CaseKey]) -> list[CaseKey]:
    return [*{key.sizes: key for key in reversed([*keys])}.values()][::-1]


def in_turn(trial: Trial, changes: Sequence[Change], ranks: Sequence[float]) -> Iterator[tuple[float, Change]]:
    """The changes with their ranks, the least first, where the trial's doubts of lines count, too. Lines take turns."""
    if trial.first is None:  # a finding: there are no wrong elements to watch
        yield from sorted(zip(ranks, changes, strict=True), key=lambda each: each[0])
        return
    waiting: dict[int, list[tuple[float, int]]] = {}
    for place, rank in sorted(enumerate(ranks), key=lambda each: (each[1], each[0])):
        of_line = waiting.setdefault(changes[place].line, [])
        before = sum(ranks[other] == rank for _, other in of_line[-LAST:])
        of_line.append((rank + OF_NEXT * before, place))
    for of_line in waiting.values():
        of_line.reverse()
    while waiting:
        line = min(waiting, key=lambda line: (waiting[line][-1][0] + trial.doubts.get(line, 0.0), waiting[line][-1][1]))
        _, place = waiting[line].pop()
        if not waiting[line]:
            del waiting[line]
        yield ranks[place], changes[place]


def _right_ones(
    trial: Trial,
    changes: Sequence[Change],
    cases: Sequence[CaseKey],
    ranks: Sequence[float] = (),
    behind: float = float("inf"),
) -> Iterator[Change]:
    """The changes with which all cases are right; after the first, those whose rank is less than ``behind`` higher."""
    failed, limit = cases[0], min(max(OF_OTHERS, min(trial.limit, MOST_OF_OTHERS)), trial.lab.limits.instructions)
    text, most = trial.text.split("\n"), float("inf")
    lines: set[int] = set()
    for rank, change in in_turn(trial, changes, ranks or [0.0] * len(changes)):
        if trial.seconds <= 0 or len(lines) > LINES:
            return
        if rank >= most or change.line in trial.unreached or trial.dropped.issuperset(change.lines):
            continue
        if not trial.of_solution and (trial.leaves_one(change) or trial.replaces_counter(change)):
            continue
        short = trial.write_short(change)
        right = trial.is_right(failed, short, trial.short_limit)
        if trial.timed_out and trial.longer:
            trial.longer -= 1
            right = trial.is_right(failed, short, FARTHER)
        short.unlink()
        trial.tried.append(change)
        trial.learn(change.line)
        if trial.left <= IMPROVED * trial.wrong and trial.wrong:
            trial.better.append((trial.left, change))
        if not right:
            continue
        changed, mixed = change.applied(text), trial.write_mixed(change)
        is_right = trial.are_right(cases, changed, limit, mixed) and trial.stays_right(changed, mixed)
        if is_right and (trial.of_solution or _larger_are_right(trial, cases, mixed or trial.write(changed))):
            lines.add(change.line)
            most = min(most, rank + behind)
            yield _left_out(trial, change, cases, limit) or change
        else:  # more edits of the line that make this case right say nothing more
            trial.doubts[change.line] = max(trial.doubts[change.line], -MOVED_ALONE)
        if mixed is not None:
            mixed.unlink()


def _left_out(trial: Trial, change: Change, cases: Sequence[CaseKey], limit: int) -> Change | None:
    """Where a change of a condition makes all right, and so does to leave out its ``return``, that is what it says."""
    words = _LEAVING.match(trial.source.split("\n")[change.line - 1] if trial.source else "")
    if words is None or EDGE_WORDS in change.words:
        return None
    text = trial.text.split("\n")
    for never in never_of(trial.text, trial.name, change.line):
        changed = never.applied(text)
        ptx = trial.write(changed)
        right = trial.is_right(cases[0], ptx, trial.limit)
        ptx.unlink()
        if right and trial.are_right(cases, changed, limit) and trial.stays_right(changed):
            return never
    return None


def _right_launchers(
    trial: Trial, text: str, own: Collection[int], cases: Sequence[CaseKey]
) -> Iterator[LauncherChange]:
    """The changes of the launcher with which all cases are right, one for each line."""
    _, call = trial.given(cases[0])
    return _right_calls(trial, launcher_changes(text, own, trial.launched, trial.types, call), cases)


def _right_calls(trial: Trial, changes: Iterable[LauncherChange], cases: Sequence[CaseKey]) -> Iterator[LauncherChange]:
    failed, limit = cases[0], min(OF_OTHERS, trial.lab.limits.instructions)
    _, call = trial.given(failed)
    seconds, trial.seconds = trial.seconds, LAUNCHER_SECONDS
    refused = trial.kind is Kind.LAUNCH_FAILED  # more shared memory would be granted without its attribute
    tried: set[object] = set()
    lines: set[int | None] = set()
    for each in changes:
        if trial.seconds <= 0 or len(lines) > LINES:
            break
        key = each.key(call)
        if key is None or key in tried or each.line in lines or (refused and each.is_shared(call)):
            continue
        ptx = trial.write(trial.text.split("\n"))  # loaded again: a call may change the file's variables
        if not trial.is_right(failed, ptx, trial.limit, each.change):
            tried.add(key)
        elif (
            all(trial.is_right(key, ptx, limit, each.change) for key in cases[1:])
            and trial.more_are_right(ptx, each.change)
            and _larger_are_right(trial, cases, ptx, each.change)
        ):
            lines.add(each.line)
            yield each
        ptx.unlink()
    trial.seconds = seconds


def _right_pair(trial: Trial, cases: Sequence[CaseKey]) -> Iterator[Change]:
    """Two changes with which all cases are right, where the first alone makes more elements right."""
    if trial.kind is not Kind.WRONG_ANSWER or len(cases) < PAIR_CASES:
        return
    limit = min(OF_OTHERS, trial.lab.limits.instructions)
    trial.seconds = PAIR_SECONDS
    for first, second in _twins(trial.tried):
        if trial.seconds <= PAIR_SECONDS / 2:
            break
        changed = second.applied(first.applied(trial.text.split("\n")))
        ptx = trial.write_short(first, second)
        right = trial.is_right(cases[0], ptx, trial.short_limit)
        ptx.unlink()
        if right and trial.are_right(cases, changed, limit) and trial.stays_right(changed):
            yield from (first, second)
            return
    # What makes this one case right, and no other, more often goes round the line at fault.
    for _, first in sorted(trial.better, key=lambda each: (each[0] == 0, each[0]))[:FIRSTS]:
        text = first.applied(trial.text.split("\n"))
        ptx = trial.write(text)
        pivot = next((key for key in cases if not trial.is_right(key, ptx, limit)), None)
        ptx.unlink()
        nearest = sorted(trial.tried, key=lambda change: abs(change.line - first.line))
        for second in nearest if pivot is not None else ():
            if trial.seconds <= 0:
                return
            if not second.lines.keys().isdisjoint(first.lines):
                continue
            changed = second.applied(text)
            ptx = trial.write(changed)
            right = trial.is_right(pivot, ptx, limit)  # type: ignore[arg-type]
            ptx.unlink()
            if right and trial.are_right(cases, changed, limit) and trial.stays_right(changed):
                yield from (first, second)
                return


def _twins(tried: Sequence[Change]) -> Iterator[tuple[Change, Change]]:
    """The same change on two lines that are beside each other: who makes a mistake makes it there twice."""
    count: Counter[tuple[str, int, int]] = Counter()
    for place, first in enumerate(tried):
        for second in tried[place + 1 :]:
            if first.words == second.words and 0 < abs(second.line - first.line) <= BESIDE:
                key = (first.words, min(first.line, second.line), max(first.line, second.line))
                count[key] += 1
                if count[key] <= TWINS and first.lines.keys().isdisjoint(second.lines):
                    yield first, second


def _known(line: int | None) -> int:
    return line or 0


def _way(change: Change | LauncherChange, names: Names) -> str:
    line = change.line
    if line is None:
        return change.words
    change = replace(change, words=_ALWAYS.sub(r"the condition `\1` is left out", change.words))
    if re.search(rf"(^|\b(before|after|of) )lines? {line}\b", change.words):  # which says where it is
        return names.named(change.words, line)
    then = f", which gives `{change.then}`" if isinstance(change, Change) and change.then else ""
    return f"on line {line} {names.named(change.words, line)}{then}"


def _specific(change: Change | LauncherChange, found: Sequence[Change | LauncherChange]) -> Change | LauncherChange:
    """The change; where several values in the place of one are right, it does not say which."""
    if not isinstance(change, Change) or (said := _VALUE.match(change.words)) is None:
        return change
    others = {each.words for each in found if each.line == change.line and each.words.startswith(f"{said[1]} is `")}
    return replace(change, words=f"{said[1]} has another value", then="") if len(others) >= MANY_VALUES else change


def _words(found: Sequence[Change | LauncherChange], cases: int, joined: str, names: Names) -> str:
    """``all 9 cases that were tried are right if on line 12 `<=` is `<```"""
    first = {change.line: _specific(change, found) for change in reversed(found)}
    chosen = found if joined == "and" else [first[line] for line in sorted(first, key=_known)]
    ways = [_way(each, names) for each in chosen]
    return f"all {cases} cases that were tried are right if {(', and ' if joined == 'and' else ', or if ').join(ways)}"
