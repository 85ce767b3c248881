"""Planted wrong kernels -> Hunts: a solution with one bug, without the comments that would tell where it is.

A hunt's name is the kata's and four hexadecimal digits that the bug's name gives. Neither the file nor its name says
what the bug is. The answer is worked out again from tests/wrong_kernels whenever it is asked for.

How hard a hunt is follows from four facts, a point each: no verdict names the bug's line; something is missing, so that
there is no wrong line; the file has more than LONG lines of code; more than LONGER.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from random import Random

from grader.content import skeleton
from grader.content.catalog import WORK, Catalog, Kata
from grader.content.rung import code_of
from grader.content.start import set_aside
from grader.fault import Fault
from grader.learner.progress import HUNT, History
from grader.maintain import wrong_kernel
from grader.maintain.wrong_kernel import FOLDER, WrongKernel
from grader.storage.whole_file import write_whole
from grader.verdict import Kind

LEVELS = ("easy", "medium", "hard")
PLACE = Path(WORK, "hunts")
LONG, LONGER = 60, 150  # lines of code
MOST_LINES, MOST_PLACES = 4, 2  # lines of code that a hunt's bug adds, and places where it differs from the solution
NEAR = 2  # lines of code before and after a place where lines are missing

# What a user says who met the failure. A grade says more.
REPORTS = {
    Kind.WRONG_ANSWER: "The results are wrong. No error is reported.",
    Kind.OUT_OF_BOUNDS: "A neighbour's data changes, results contain garbage, or there is an illegal memory access.",
    Kind.MISALIGNED: 'Some calls end with "misaligned address".',
    Kind.UNINITIALISED: "Results contain garbage, which depends on what ran before.",
    Kind.RACE: "Most runs are right. A few are wrong, each in its own way.",
    Kind.DEADLOCK: "The kernel does not return.",
    Kind.DIVERGENT_BARRIER: "The kernel hangs on one card and works on another.",
    Kind.LAUNCH_FAILED: "Nothing is computed: a launch fails.",
    Kind.CRASH: "The process ends inside the call.",
    Kind.TIME_OUT: "The call takes so long that we stop it.",
    Kind.MODIFIED_INPUT: "Our input tensor is different after the call.",
    Kind.NOT_REPEATABLE: "Two calls with the same inputs give different bits.",
}

# What is kept of a hunt in progress: the words of its events.
DRAWN, MISSED, FOUND, FIXED, NOT_FIXED = "drawn", "line missed", "line found", "fixed", "not fixed"
VERDICT_SHOWN, SOLUTION_SHOWN = "verdict shown", "solution shown"

_COMMENT = re.compile(r"""(?P<comment>[ \t]*//[^\n]*)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""")
_OPENS = ("template", "__global__", "__device__", "KATA_EXPORT", "static", "void", "inline", "constexpr __", "struct")


class HuntError(Fault):
    """No hunt is what was asked for, or its file cannot be written; the message says what to do."""


@dataclass(frozen=True)
class Hunt:
    """One bug to find. ``text`` is the file at first; ``lines`` are those, from 1, that are right answers."""

    wrong: WrongKernel
    text: str
    lines: frozenset[int]
    omission: bool

    @property
    def kata(self) -> Kata:
        return self.wrong.kata

    @property
    def name(self) -> str:
        return name_of(self.wrong)

    @property
    def path(self) -> Path:
        return self.kata.root / PLACE / f"{self.name}.cu"

    @cached_property
    def level(self) -> str:
        size = len(code_of(self.text))
        points = (not self.wrong.marked_lines) + self.omission + (size > LONG) + (size > LONGER)
        return LEVELS[max(0, min(points, len(LEVELS)) - 1)]

    @property
    def report(self) -> str:
        """What users say of it, and the smallest shape of which they know."""
        words = REPORTS[self.wrong.sim.kinds[0]]
        sizes = ", ".join(f"{name}={size}" for name, size in (self.wrong.sizes or {}).items())
        return f"{words} It was seen with {sizes}." if sizes else words

    def differences(self, text: str) -> int:
        """In how many lines of code a file differs from the hunt's, those that are gone included."""
        return sum(len(old) + len(new) for _, old, new in _changes(code_of(self.text), code_of(text)))


def name_of(wrong: WrongKernel) -> str:
    return f"{wrong.kata.name}_{hashlib.sha256(wrong.name.encode()).hexdigest()[:4]}"


def bugs(catalog: Catalog) -> dict[str, WrongKernel]:
    """The wrong kernels that may be hunted, by their hunts' names. Raises a Fault if tests/wrong_kernels is malformed.

    Whether the edit is small enough for a hunt is found out by ``hunt_of``.
    """
    found = wrong_kernel.load(catalog, catalog.root / FOLDER)
    return {name_of(wrong): wrong for wrong in found if wrong.edits and set(wrong.sim.kinds) <= REPORTS.keys()}


def hunt_of(wrong: WrongKernel) -> Hunt | None:
    """The hunt for a bug; None if the bug is too large, or only in comments. Raises WrongKernelError."""
    right = _right(wrong)
    text = _plain(skeleton.unmarked(wrong_kernel.text(wrong), explained=False))
    changes = [change for change in _changes(right.split("\n"), text.split("\n")) if change[1] or change[2]]
    added = sum(len(new) for _, _, new in changes)
    if not changes or added > MOST_LINES or len(changes) > MOST_PLACES:
        return None
    omission = any(not new for _, _, new in changes)
    return Hunt(wrong, text, frozenset(_answers(text.split("\n"), changes)), omission)


def _right(wrong: WrongKernel) -> str:
    return _plain(skeleton.unmarked(wrong.kata.solution_path.read_text(encoding="utf-8"), explained=False))


def right_text(hunt: Hunt) -> str:
    """The hunt's file without its bug."""
    return _right(hunt.wrong)


def hunts_of(wrongs: Iterable[WrongKernel]) -> Iterator[Hunt]:
    """The hunts for these bugs, as far as there are any, one after the other."""
    return (hunt for wrong in wrongs if (hunt := hunt_of(wrong)) is not None)


def draw(
    found: Mapping[str, WrongKernel], level: str | None, seed: int | None, left_out: Collection[str]
) -> Hunt | None:
    """One hunt at random, of a level where that is given, not one of ``left_out``; None if there is none."""
    names = sorted(found.keys() - left_out)
    Random(seed).shuffle(names)
    return next((hunt for hunt in hunts_of(found[name] for name in names) if level in (None, hunt.level)), None)


def named(catalog: Catalog, name: str) -> Hunt:
    """The hunt of this name. Raises HuntError."""
    wrong = bugs(catalog).get(name)
    hunt = hunt_of(wrong) if wrong is not None else None
    if hunt is None:
        raise HuntError(f"no hunt is called {name!r}. `kata hunt list` shows yours, `kata hunt` draws one.")
    return hunt


@dataclass(frozen=True)
class Record:
    """What a learner did with one hunt: the words of its events in order."""

    name: str
    words: tuple[str, ...]

    @property
    def solved(self) -> bool:
        """The line named and the file fixed, before the solution was shown."""
        before = self.words[: self.words.index(SOLUTION_SHOWN)] if SOLUTION_SHOWN in self.words else self.words
        return FOUND in before and FIXED in before

    @property
    def state(self) -> str:
        """In words: ``line found after 2 wrong ones, fixed; verdict shown``."""
        missed = self.words.count(MISSED)
        after = f" after {missed} wrong one{'' if missed == 1 else 's'}" if missed else ""
        parts = [FOUND + after] if FOUND in self.words else [f"{missed} lines named, all wrong"] if missed else []
        parts += [FIXED] if FIXED in self.words else []
        notes = [word for word in (VERDICT_SHOWN, SOLUTION_SHOWN) if word in self.words]
        return "; ".join([", ".join(parts) or DRAWN, *notes])


def records(known: History) -> dict[str, Record]:
    """The hunts that were drawn, by name, the last drawn last."""
    found: dict[str, list[str]] = {}
    for event in known.practised(HUNT):
        name, word = event.task or "", event.verdict or ""
        words = found.pop(name, []) if word == DRAWN else found.setdefault(name, [])
        found[name] = [*words, word]
    return {name: Record(name, tuple(words)) for name, words in found.items()}


def write(hunt: Hunt) -> Path | None:
    """Write the hunt's file. A changed file of it that is there is kept as a .bak file, whose path is returned.

    Raises HuntError.
    """
    kept = None
    try:
        hunt.path.parent.mkdir(parents=True, exist_ok=True)
        if hunt.path.exists() and hunt.path.read_bytes() != hunt.text.encode():
            kept = set_aside(hunt.path)
        write_whole(hunt.path, hunt.text)
    except OSError as error:
        raise HuntError(f"{hunt.path} cannot be written ({error.strerror}). Make the folder writable.") from None
    return kept


# -- the file ----------------------------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    """A file with its header and the comments above its functions, and with no other comment.

    Comments above a function that is itself an answer say how it solves the kata: the file comes without them.
    """
    lines = text.split("\n")
    head = list(takewhile(lambda line: line.startswith("//"), lines))
    kept: list[str] = []
    body = lines[len(head) :]
    for index, line in enumerate(body):
        if line.startswith("//"):
            follows = next((other for other in body[index:] if not other.startswith("//")), "")
            if follows.startswith(_OPENS):
                kept.append(line)
            continue
        code = _COMMENT.sub(lambda match: "" if match["comment"] else match[0], line).rstrip()
        if code or (not line.strip() and kept and kept[-1]):
            kept.append(code)
    return "\n".join([*head, *kept])


_Change = tuple[int, list[str], list[str]]  # where it begins in the new lines, from 0; the old lines, and the new


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_Change]:
    """What differs between two lists of lines, without blank ones."""
    found = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            gone = [line for line in old[start:end] if line.strip()]
            found.append((new_start, gone, [line for line in new[new_start:new_end] if line.strip()]))
    return found


def _answers(lines: Sequence[str], changes: Sequence[_Change]) -> set[int]:
    """The lines, from 1, that are right answers: those that differ, and those around a place where some are missing."""
    found: set[int] = set()
    for start, _, new in changes:
        if new:
            wanted = len(new)
            places = (at for at in range(start, len(lines)) if lines[at].strip())
            found |= {at + 1 for at, _ in zip(places, range(wanted), strict=False)}
        else:
            before = [at + 1 for at in range(start - 1, -1, -1) if lines[at].strip()][:NEAR]
            found |= {*before, *[at + 1 for at in range(start, len(lines)) if lines[at].strip()][:NEAR]}
    return found
