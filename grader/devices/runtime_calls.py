"""What a launcher called of the CUDA runtime, as its device noted it: lines of text -> RuntimeCalls.

Both devices note the same: the simulator in sim/engine/runtime_calls.cpp, a GPU's library in probe.cpp. A line has the
fields of RuntimeCall in their order, numbers in decimal. The line "call" begins a call of the launcher; the line "lost"
says that there was no room for what came after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.devices import Role

TO_HOST, FROM_HOST, WAITS, TOUCHES, NON_BLOCKING = 1, 2, 4, 8, 16  # flags
WORK = frozenset({"kernel", "copy", "fill", "host"})  # verbs of what a stream does


@dataclass(frozen=True)
class RuntimeCall:
    """One call. ``stream`` and ``event`` are handles, 0 where there is none; ``to`` and ``from_`` are addresses.

    | verb | calls | flags |
    |---|---|---|
    | kernel | a launch; ``name`` is the kernel's | TOUCHES: an input or an output is among its arguments |
    | copy | cudaMemcpy and its like | TO_HOST, FROM_HOST: that side is host memory; WAITS: the host waits for it |
    | fill | cudaMemset and its like | |
    | host | cudaLaunchHostFunc | |
    | record | cudaEventRecord | |
    | wait | cudaStreamWaitEvent | |
    | await_stream, await_event, await_all | cudaStreamSynchronize, cudaEventSynchronize, cudaDeviceSynchronize | |
    | open | cudaStreamCreate | NON_BLOCKING: it does not wait for the default stream |

    ``bytes`` are moved; they lie in ``to_extent`` bytes from ``to`` on, and in ``from_extent`` bytes from ``from_`` on.
    """

    verb: str
    flags: int = 0
    stream: int = 0
    event: int = 0
    to: int = 0
    to_extent: int = 0
    from_: int = 0
    from_extent: int = 0
    bytes: int = 0
    name: str = ""

    def has(self, flag: int) -> bool:
        return bool(self.flags & flag)


@dataclass(frozen=True)
class Region:
    """Where a kata's buffer lies: ``size`` bytes from the device address ``start`` on."""

    name: str
    role: Role
    start: int
    size: int

    def meets(self, start: int, size: int) -> bool:
        """Has it a byte in common with ``size`` bytes from ``start`` on?"""
        return start < self.start + self.size and self.start < start + size


@dataclass(frozen=True)
class Noted:
    """What one call of the launcher called, in order. ``whole``: all of it was noted."""

    calls: tuple[RuntimeCall, ...]
    whole: bool = True


def parse(text: str) -> list[Noted]:
    """A device's lines -> the calls of the launcher, in order."""
    found: list[list[RuntimeCall]] = []
    whole = True
    for line in text.splitlines():
        if line == "call":
            found.append([])
        elif line == "lost":
            whole = False
        elif found:
            verb, *numbers, name = line.split(" ", 9)
            flags, stream, event, to, to_extent, from_, from_extent, moved = map(int, numbers)
            plain = name.partition("(")[0].removeprefix("void ")  # a kernel's, which comes with its parameters
            found[-1].append(RuntimeCall(verb, flags, stream, event, to, to_extent, from_, from_extent, moved, plain))
    return [Noted(tuple(calls), whole or at < len(found)) for at, calls in enumerate(found, 1)]


def first_meeting(regions: Sequence[Region], role: Role, start: int, size: int) -> Region | None:
    """The first region of this role, or updated, with a byte in common with ``size`` bytes from ``start`` on."""
    return next((item for item in regions if item.role in (role, "updated") and item.meets(start, size)), None)
