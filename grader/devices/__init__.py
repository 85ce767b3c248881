"""Call -> Outcome: the one seam between the grader and the machine a kernel runs on, an NVIDIA GPU (`gpu/`) or the
simulator (`sim/`), whose engine (`sim/engine/`, C++) executes PTX. `Limits` says how long a call may take; each device
has its own words for a finding (`sim/engine/finding`, `gpu/device`).

A Device lives in the sandbox's child process. It loads one built kata and runs its launcher on buffers that
belong to the grader. It knows nothing of expected values: those never leave the grader's own process.

This module imports nothing but the standard library, so that a child process starts at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, Protocol

from grader.devices.counters import Birth, CallCounters, KernelCoverage, Launch, Launched, Trail, Writer

SIM_ARCH = "sm_90a"
SIM_ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")  # engine/limits.cpp has a card for each
SIM_ARCH_HELP = f"the simulated card's architecture: {', '.join(SIM_ARCHITECTURES)} (default: {SIM_ARCH})"

Role = Literal["in", "out", "updated"]  # updated: an input that the launcher overwrites with an output
Contents = bytes | bytearray | memoryview
Outputs = Mapping[str, Contents]  # by the names of buffers

# What a Scalar's ctype is to ctypes.
CTYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


@dataclass(frozen=True)
class Poison:
    """``size`` times the same byte: an output's contents before a call, which nobody has to send or to hold."""

    byte: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return bytes([self.byte]) * self.size


def pointer(data: Contents) -> Any:
    """What ctypes passes as the address of contents, nothing being copied; a memoryview must be a writable one."""
    return data if isinstance(data, bytes) else (ctypes.c_char * len(data)).from_buffer(data)


@dataclass(frozen=True)
class Buffer:
    """One device buffer for one call.

    ``data`` is what the buffer holds before the call: the values of an input, updated or not, the poison of an output
    (which the simulator also marks as uninitialised). ``offset_bytes`` is the pointer's distance from a 256-byte
    boundary; it is a multiple of the alignment that the family's spec promises.
    """

    name: str
    role: Role
    dtype: str  # a name of grader.content.dtype, for messages and indices: "f32", "f16", "i32", ...
    itemsize: int  # bytes
    shape: tuple[int, ...]
    data: Contents | Poison
    offset_bytes: int = 0

    @property
    def given(self) -> Contents:
        """What an input holds: that is given in full."""
        assert not isinstance(self.data, Poison), self.name
        return self.data


@dataclass(frozen=True)
class Scalar:
    """A launcher argument passed by value. ``ctype`` is one of "int", "int64_t", "float", "double"."""

    name: str
    ctype: str
    value: int | float


@dataclass(frozen=True)
class Rows:
    """Some rows of large outputs: only these come back, and of each output how many elements were never written.

    ``runs`` are rows from one up to another, in order. ``axes`` has for each output, by its name, the dimension that
    counts them.
    """

    runs: tuple[tuple[int, int], ...]
    axes: Mapping[str, int]

    @property
    def count(self) -> int:
        return sum(last - first for first, last in self.runs)

    def bytes_of(self, buffer: Buffer) -> int:
        """How many bytes these rows of an output have."""
        return len(buffer.data) // buffer.shape[self.axes[buffer.name]] * self.count


@dataclass(frozen=True)
class TimingRequest:
    """Time the launcher instead of calling it once: ``pairs`` of samples, baseline and launcher in turn. Needs a GPU.

    ``baseline`` is "copy" (half of ``bytes_moved`` read, half written), "read" (all of them read), or a name among the
    baselines that ``spec``, a family's spec file, has for ``kata``. Every call gets contents of its own: see
    grader/devices/contents.py. ``replaced`` names the inputs that also get other values, ``negated`` those that get
    other signs. ``noise`` is the number of pairs of the noise check, in which the baseline is timed beside itself. So
    many answers are ``judged``. What contents and which answers that are, ``Undisclosed`` says when it is asked.
    ``beside`` names other baselines: in BESIDE_PAIRS of the pairs each is timed, too, next to the same call of the
    launcher, and beside itself as often.
    """

    kata: str
    baseline: str
    bytes_moved: int
    replaced: tuple[str, ...] = ()
    negated: tuple[str, ...] = ()
    pairs: int = 21
    judged: int = 3
    noise: int = 0
    spec: str | None = None
    beside: tuple[str, ...] = ()

    @property
    def expected(self) -> int:
        """How many answers come back."""
        return min(self.judged, self.pairs)


Judged = tuple[int, Rows | None]  # a timed call's number, and the rows of its answer that are looked at; None: all


class Undisclosed(Protocol):
    """What is asked for while something is timed: the process that times, in which the learner's code could look for
    it, has it no sooner. Timed calls are numbered from 0, also where a timing run begins again."""

    def seed(self, call: int) -> int:
        """What the contents of the next call follow from."""
        ...

    def judged(self, calls: Sequence[int]) -> list[Judged]:
        """Which answers to these calls, which are all over, come back."""
        ...


class Timed(Undisclosed, Protocol):
    """What a device has at hand while it times: whom it asks, and where answers may lie that go back."""

    def lend(self, size: int) -> memoryview | None:
        """Room for a large output of a timed answer, which need not be copied then; None where there is none left."""
        ...

    def take_back(self) -> None:
        """All that was lent is free again: the answers there will not go back."""
        ...


@dataclass(frozen=True)
class Rehearsal:
    """A baseline of a spec that will be timed, and the name, dtype and shape of each tensor that it gets.

    It is run once while there is time, so that what it loads and chooses at its first run is there."""

    kata: str
    baseline: str
    spec: str
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]


BESIDE_PAIRS = 11  # of a timing run, in which other baselines are timed next to the launcher
WARM_UP_S = 0.3  # of a timing run, before anything that counts: by then the GPU must be its own

INSTRUCTIONS = 200_000_000  # warp instructions: 4 to 25 s of one processor


@dataclass(frozen=True)
class Limits:
    """What calls may take; more is a time-out. Kernels on the simulator are held to a number of warp instructions.

    Launchers, and all that runs on a GPU, are held to seconds: ``seconds`` for one call, ``all_seconds`` for this call
    and all before it together. They are seconds in which the child computes or sleeps, not those in which it waits for
    a processor, so that neither is a matter of what else the machine does.
    """

    instructions: int = INSTRUCTIONS
    seconds: float = 30.0
    all_seconds: float = inf


@dataclass(frozen=True)
class Card:
    """A card of the simulated architecture with few multiprocessors, and few blocks at a time on each.

    ``resident`` is how many blocks of a kernel a multiprocessor runs at the same time, as of one that takes many
    registers; more where ``__launch_bounds__`` asks for more. ``shared_bytes`` is the most shared memory that a block
    may have; 0: what the full card has.
    """

    multiprocessors: int
    resident: int
    shared_bytes: int = 0

    def __str__(self) -> str:
        each = f"{self.resident} block{'s' if self.resident > 1 else ''} at a time on each"
        shared = f", {self.shared_bytes} bytes of shared memory a block" if self.shared_bytes else ""
        return f"a card of {self.multiprocessors} SMs, {each}{shared}"


@dataclass(frozen=True)
class HostChange:
    """A number that the launcher gives, and what it is for once: in all launches of a kernel, or in all calls of a
    function of the CUDA runtime.

    ``place`` and ``how`` are those of the engine's host_changes.h.
    """

    of: str
    place: int
    how: int
    number: int  # of 64 bits


@dataclass(frozen=True)
class Call:
    """One call of a launcher: pointers of ``buffers`` in order, then ``scalars`` in order, then the stream."""

    launcher: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    seed: int = 0  # order of warps and blocks on the simulator
    limits: Limits = field(default_factory=Limits)
    watch: tuple[tuple[str, int], ...] = ()  # (buffer, element): say who wrote it last, on the simulator
    counters: bool = False  # count what the kernels do, on the simulator
    coverage: bool = False  # say which lines threads came to, in this call and all before it, on the simulator
    births: bool = False  # note where nan and infinities first come from, on the simulator
    trail: int = 0  # 1: note all accesses, on the simulator; 2: say which of them now move other bytes
    card: Card | None = None  # of the simulator; None: the full one
    host: tuple[HostChange, ...] = ()  # on the simulator
    forgive_copies: bool = False  # for code that nvcc has not optimised, on the simulator: see the engine's Launch
    distrust_volatile: bool = False  # volatile accesses of shared memory race like plain ones, on the simulator
    ptx: str = ""  # a file with other code for the kernels, on the simulator; it stays loaded until a call has another
    timing: TimingRequest | None = None  # time the launcher against a baseline instead, on a GPU
    rows: Rows | None = None  # what comes back of the outputs, on a GPU; None: all of them


@dataclass(frozen=True)
class Side:
    """One of the two accesses of a race: the thread, its line, the callers of that as a Finding has them, and what it
    ``does`` there: "reads", "writes", "updates" or "copies"."""

    does: str
    kernel: str | None = None
    file: str | None = None
    line: int | None = None
    callers: tuple[int, ...] = ()
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Finding:
    """Something that the device saw go wrong, in the learner's terms.

    ``kind`` is the value of a grader.verdict.Kind ("out of bounds", "race", "misaligned", "uninitialised",
    "deadlock", "divergent barrier", "crash", "time-out", "modified its input", "not allowed", "launch failed",
    "unsupported").
    ``index`` counts elements of the buffer (negative: before its start); None where there is no buffer.
    ``callers`` are the lines that call the function of ``line``, as far as it was inlined, from the inside out.
    ``notes`` are sentences on what led to it, on the simulator; ``phases`` those on the phases of mbarriers behind it.
    ``place`` and ``sides`` are a race's, on the simulator: such as "tile[1][0]", and the two accesses to it, the
    earlier one first. No sides where they are not known.
    """

    kind: str
    message: str
    kernel: str | None = None
    file: str | None = None
    line: int | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    buffer: str | None = None
    index: int | None = None
    callers: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    place: str | None = None
    sides: tuple[Side, ...] = ()


Pairs = tuple[tuple[float, float], ...]  # of seconds


@dataclass(frozen=True)
class TimingResult:
    """``times`` are pairs of (baseline, launcher) in seconds; ``noise`` the pairs of the noise check. ``beside`` has
    both of each other baseline that was asked for and that can run on this machine.

    ``answers`` are outputs of timed calls with the number of the call, a few that chance picked; of each, ``unwritten``
    has what Outcome has, where only some rows were asked for. ``again`` has a timed call's number and outputs and what
    an untimed call made of the same contents, where the bits are not the same.
    ``finding`` says what else went wrong, in any call.
    ``clocks_mhz`` is the SM clock in the first and in the last quarter of the run. ``card`` has the facts that peaks
    are worked out from: sms, clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes.
    """

    times: Pairs
    noise: Pairs = ()
    answers: tuple[tuple[int, Outputs], ...] = ()
    again: tuple[tuple[int, Outputs, Outputs], ...] = ()
    finding: Finding | None = None
    clocks_mhz: tuple[int, int] = (0, 0)
    other_processes: int = 0
    card: Mapping[str, int] = field(default_factory=dict)
    unwritten: tuple[Mapping[str, int], ...] = ()
    beside: Mapping[str, tuple[Pairs, Pairs]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What one call did. ``outputs`` holds every "out" and "updated" buffer's bytes after the device was synchronised.

    ``launches`` are those of a GPU, in order; ``launched`` those of the simulator, refused ones too. ``counters`` are
    the simulator's, None where no launcher was called.
    ``writers`` names who last wrote each watched element, such as "c[3]". An element that was not written is not in it.
    ``order`` is where a kernel used an atomic that gives another result in another order of threads, on the simulator.
    After a timing run there is ``timing`` and no outputs. ``asked_card`` says that the launcher asked the simulator, in
    this call or before it in the same process, what card it is on: it may have kept the answer. ``births`` are in the
    order of time, blocks one after the other. ``trail`` is that of a call with ``trail``. ``unwritten`` says of each
    output, where only some rows of it were asked for, how many elements in all still hold the poison.
    """

    outputs: Outputs = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    counters: CallCounters | None = None
    writers: Mapping[str, Writer] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    timing: TimingResult | None = None
    order: Writer | None = None
    asked_card: bool = False
    coverage: tuple[KernelCoverage, ...] = ()
    launched: tuple[Launched, ...] = ()
    births: tuple[Birth, ...] = ()
    trail: Trail | None = None
    unwritten: Mapping[str, int] = field(default_factory=dict)

    @property
    def executed(self) -> int:
        """Warp instructions of all kernels, as far as the device counts them."""
        return self.counters.warp_instructions if self.counters else 0


class DeviceError(Exception):
    """The device itself is broken, not the learner's file: what it reports cannot be understood."""


class LoadError(Exception):
    """The learner's library cannot be loaded. ``kind`` is the verdict that this means, as in Finding."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Device(Protocol):
    """A machine that runs one built kata. Constructed in the child process, used for one build.

    The constructor raises LoadError where the learner's library cannot be loaded. ``spent`` says that the last call
    left the device unusable: the parent then replaces the process.
    """

    spent: bool

    def call(self, call: Call, timed: Timed | None = None) -> Outcome:
        """Run the launcher once, wait for the device, return outputs and findings. A timing run needs ``timed``.

        One device is one process with the kata's library loaded: a ``__device__`` variable keeps its value from call
        to call, on a GPU and on the simulator alike, until the process is replaced. Whoever counts in one sets it back.
        A learner's failure is a Finding. An exception means that the grader or the machine is broken. DeviceError is
        one with a sentence for whom it happens to.
        """
        ...
