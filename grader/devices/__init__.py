"""Call -> Outcome: the one seam between the grader and the machine a kernel runs on.

A Device lives in the sandbox's child process. It loads one built kata and runs its launcher on buffers that
belong to the grader. It knows nothing of expected values: those never leave the grader's own process.

This module imports nothing but the standard library, so that a child process starts at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Role = Literal["in", "out"]

# What a Scalar's ctype is to ctypes.
CTYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


@dataclass(frozen=True)
class Buffer:
    """One device buffer for one call.

    ``data`` is what the buffer holds before the call: the values of an input, the poison pattern of an output
    (which the simulator also marks as uninitialised). ``offset_bytes`` is the pointer's distance from a 256-byte
    boundary; it is a multiple of the alignment that the family's spec promises.
    """

    name: str
    role: Role
    dtype: str  # a name of grader.dtype, for messages and indices: "f32", "f16", "i32", ...
    itemsize: int  # bytes
    shape: tuple[int, ...]
    data: bytes
    offset_bytes: int = 0


@dataclass(frozen=True)
class Scalar:
    """A launcher argument passed by value. ``ctype`` is one of "int", "int64_t", "float", "double"."""

    name: str
    ctype: str
    value: int | float


@dataclass(frozen=True)
class Contest:
    """A race to run after the call: ``pairs`` of samples, baseline and launcher in turn. Needs a GPU.

    ``baseline`` is "copy" (half of ``bytes_moved`` read, half written) or "read" (all of them read).
    """

    baseline: str
    bytes_moved: int
    pairs: int = 21


@dataclass(frozen=True)
class Call:
    """One call of a launcher: pointers of ``buffers`` in order, then ``scalars`` in order, then the stream."""

    launcher: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    seed: int = 0  # order of warps and blocks on the simulator
    time_limit_s: float = 10.0
    watch: tuple[tuple[str, int], ...] = ()  # (buffer, element): say who wrote it last, on the simulator
    counters: bool = False  # count what the kernels do, on the simulator
    race: Contest | None = None  # time the launcher against a baseline, on a GPU


@dataclass(frozen=True)
class Finding:
    """Something that the device saw go wrong, in the learner's terms.

    ``kind`` is the value of a grader.verdict.Kind ("out of bounds", "race", "misaligned", "uninitialised",
    "deadlock", "crash", "time-out", "modified its input", "launch failed", "unsupported").
    ``index`` counts elements of the buffer (negative: before its start); None where there is no buffer.
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


@dataclass(frozen=True)
class Outcome:
    """What one call did. ``outputs`` holds every "out" buffer's bytes after the device was synchronised.

    ``counters`` has, where the call asked for it, under "kernels" a list with each kernel's totals and the lines that
    cost most. ``writers`` names who last wrote each watched element: "c[3]" -> kernel, line, block, thread, as far as
    they apply. An element that nobody wrote is not in it. ``times`` are the race's pairs, (baseline, launcher) in
    seconds; the outputs are then those of its last sample.
    """

    outputs: Mapping[str, bytes] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    counters: Mapping[str, Any] = field(default_factory=dict)
    writers: Mapping[str, Any] = field(default_factory=dict)
    times: tuple[tuple[float, float], ...] = ()


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

    def call(self, call: Call) -> Outcome:
        """Run the launcher once, wait for the device, return outputs and findings.

        One device is one process with the kata's library loaded: a ``__device__`` variable keeps its value from call
        to call, on a GPU and on the simulator alike, until the process is replaced. Whoever counts in one sets it back.
        A learner's failure is a Finding. An exception means that the grader or the machine is broken.
        """
        ...
