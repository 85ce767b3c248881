"""Verdict: the result of a file on one device; Grade: its verdicts on all devices.

A learner's failure is a value, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from grader.content.catalog import Kata
from grader.content.source_file import Source

if TYPE_CHECKING:  # `kata list` needs no device
    from grader.devices import Finding
    from grader.devices.counters import CallCounters, Launch, Launched


def format_sizes(sizes: Mapping[str, int]) -> str:
    """A shape in words: ``M=3, N=5``."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


class Kind(str, Enum):
    """The words a verdict can begin with. Findings of a device use the same words."""

    PASS = "pass"
    NOT_STARTED = "not started"
    DOES_NOT_COMPILE = "does not compile"
    NOT_ALLOWED = "not allowed"
    WRONG_ANSWER = "wrong answer"
    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED = "uninitialised"
    RACE = "race"
    DEADLOCK = "deadlock"
    DIVERGENT_BARRIER = "divergent barrier"
    LAUNCH_FAILED = "launch failed"
    CRASH = "crash"
    TIME_OUT = "time-out"
    MODIFIED_INPUT = "modified its input"
    UNSUPPORTED = "unsupported"
    NOT_REPEATABLE = "not repeatable"
    TOO_SLOW = "too slow"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Mismatch:
    """One wrong element of an output. ``got`` is None where the kernel never wrote it.

    ``writer`` says who wrote it last, where the device knows: "block (1,0,0) thread (0,0,0), line 17". ``inputs`` are
    the elements at the same place of the inputs that have the output's shape.
    """

    buffer: str
    index: tuple[int, ...]
    expected: float | int
    got: float | int | None
    writer: str | None = None
    inputs: Mapping[str, float | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Clue:
    """Something that experiments after a wrong answer showed. ``about`` is one of CLUES, ``text`` a sentence.

    ``line`` is the one of the learner's file that it points at, where it points at one.
    """

    about: str
    text: str
    line: int | None = None


# What a clue is about -> what it says, the most telling first.
CLUES: Mapping[str, str] = {
    "calls": "that a call is right as the first of a process, and fails after another; or that two equal calls differ",
    "order": "that a call is right if its warps and blocks run in another order",
    "formula": "a usual mistake whose answer the outputs equal, in all cases that were tried",
    "place": "where threads meet or come past the end: what an address lacks or counts, or the condition of a barrier",
    "repair": "the line on which a small change makes all cases right that were tried",
    "chosen": "the launcher's test that let the kernel of a misaligned access, or of one out of bounds, run",
    "lanes": "two lanes of a warp that touch one place by volatile, with nothing between that orders them",
    "probe": "which inputs an output lacks, has twice, multiplies with or weighs by others, or takes in their place",
    "path": "the places and the lines by which an input element gets to a wrong output, or where its way there ends",
    "grader": "a mistake of the grader while it looked for the cause: the verdict stands",
    "nan": "the line that made the first nan or infinity, and of which operands",
    "unset": "what is used before anything sets it",
    "relation": "one number that turns what must be there into what is",
    "mbarrier": "at a deadlock or an access to shared memory, what phases of mbarriers got and lack, from which lines",
    "copies": "at an access to shared memory, what is known of the copies: their waits, and what no thread has read",
    "written": "of an array in shared memory that is read too early, or never filled, what threads had written by then",
    "first": "an output that was wrong before the finding, in an earlier kernel",
    "index": "what the variables on an access's line are made of, with their values there; what made a grid 0 blocks",
    "outputs": "which outputs are right and which are wrong, in the order in which they are computed",
    "writers": "which lines, warps, lanes or blocks wrote the wrong elements and no right one",
    "sizes": "sizes that fail, and those near them that pass",
    "values": "kinds of values that fail, and those that pass",
}


@dataclass(frozen=True)
class Measurement:
    """How fast a launcher is on one shape, against a baseline timed in turn with it in the same process.

    ``ratio`` is the median over the pairs of baseline's time over launcher's, ``low`` and ``high`` the ends of its 95 %
    interval. Times are medians. ``flops`` is 0 where a kata is only about moving bytes. The peaks are the card's own,
    worked out from its clocks and widths; 0.0 where they are not known. ``launches`` are as in devices.Outcome.
    """

    baseline: str
    sizes: Mapping[str, int]
    ratio: float
    low: float
    high: float
    pairs: int
    time_s: float
    baseline_time_s: float
    bytes_moved: int
    flops: int = 0
    peak_bytes_s: float = 0.0
    peak_flops_s: float = 0.0
    floor_s: float = 0.0  # no launcher can be faster: operations over their peak, bytes that must be read over theirs
    clock_mhz: int = 0
    graded: bool = True  # False: shown beside what is graded
    launches: tuple[Launch, ...] = ()

    @property
    def work(self) -> int:
        """What a rate counts: floating-point operations where the kata has them, else bytes."""
        return self.flops or self.bytes_moved

    @property
    def unit(self) -> str:
        """The unit of the rates."""
        return "TFLOPS" if self.flops else "TB/s"

    @property
    def rate(self) -> float:
        return self.work / self.time_s / 1e12

    @property
    def baseline_rate(self) -> float:
        return self.work / self.baseline_time_s / 1e12

    @property
    def peak_share(self) -> float:
        """The launcher's rate as a share of what the card could do at most; 0.0 where that is not known."""
        peak = self.peak_flops_s if self.flops else self.peak_bytes_s
        return self.work / self.time_s / peak if peak else 0.0


@dataclass(frozen=True)
class CaseCounters:
    """What one call on a shape cost: the counters of its kernels, and what was launched."""

    sizes: Mapping[str, int]
    call: CallCounters
    launched: tuple[Launched, ...] = ()

    def total(self, name: str) -> int:
        """The sum of one counter, a field of KernelCounters, over all kernels."""
        return sum(getattr(kernel, name) for kernel in self.call.kernels)


@dataclass(frozen=True)
class Coverage:
    """What no case of a grade on the simulator came to. Numbers are lines of the file.

    A line of a template counts as reached where any of its kernels came to it. ``unlaunched`` are kernels. ``once`` are
    loops that no thread went through twice in a row.
    """

    unlaunched: tuple[str, ...] = ()
    unreached: tuple[int, ...] = ()
    once: tuple[int, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The answer for one kata on one device.

    ``summary`` is one sentence. ``sizes`` and ``values`` name the smallest failing case that was found.
    ``error_share`` is the largest error as a share of what the tolerance allows: of the passing cases for a pass,
    of all that failed in the same way for a wrong answer (inf where only the right bits pass).
    """

    kind: Kind
    summary: str
    device: str | None = None  # such as "sim sm_90a" or "gpu sm_90a"; None where no device was needed
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: str | None = None
    card: str | None = None  # in words: the small one on which the case failed; None: the full one
    line: int | None = None  # of the learner's file
    finding: Finding | None = None
    mismatches: tuple[Mismatch, ...] = ()
    wrong_count: int = 0
    element_count: int = 0
    pattern: str | None = None
    clues: tuple[Clue, ...] = ()  # of a wrong answer, the most telling first
    launched: tuple[Launched, ...] | None = None  # by the failing call; None: not known
    open_todos: tuple[int, ...] = ()
    printed: str = ""
    detail: str = ""  # further lines, such as the compiler's own words
    cases: int = 0
    left_out: str = ""  # of a pass: which of the shapes that the spec names were not tried, and why
    remark: str = ""  # of a pass: what is right, and still worth knowing
    error_share: float = 0.0
    coverage: Coverage | None = None  # of a pass on the simulator
    narrow_offsets: tuple[int, ...] = ()  # of a pass on the simulator: lines where sizes are multiplied in 32 bits
    counters: CaseCounters | None = None  # of check.count, where it was asked for
    measurements: tuple[Measurement, ...] = ()  # of a pass, where the kata has a baseline and the device a clock

    @property
    def passed(self) -> bool:
        return self.kind is Kind.PASS

    @property
    def lacks_library(self) -> bool:
        """Did this machine lack a library to build the kata? Then the verdict says nothing about the file."""
        return self.kind is Kind.UNSUPPORTED and self.finding is None


@dataclass(frozen=True)
class Grade:
    """The verdicts on one file, one for each device that was used; a single one where none was needed."""

    kata: Kata
    source: Source  # the file as it was when grading began
    verdicts: tuple[Verdict, ...]
    time_s: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)  # seconds of each stage; together they are ``time_s``

    @property
    def verdict(self) -> Verdict:
        """The one to show: the first that is not a pass, else the first."""
        return next((verdict for verdict in self.verdicts if not verdict.passed), self.verdicts[0])

    @property
    def passed(self) -> bool:
        return self.verdict.passed
