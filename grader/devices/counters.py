"""What a device reports of a call: what its kernels cost, who wrote an element, how each kernel was launched.

Each class is one JSON object of the simulator's engine, or of a frame from the child, with the same keys in the same
order, but for KEYS. ``decode`` reads it where it comes in, ``encode`` makes the same JSON again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KEYS = {"operation": "access"}  # field -> key in the JSON

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class LineCounters:
    """What one line of the learner's file cost in all warps. ``requests`` are to global memory, ``accesses`` to shared.

    ``ideal_sectors`` and ``ideal_wavefronts`` would do for the same bytes. ``tma_bytes`` are those of copies in bulk.
    ``phase_waits`` are waits at mbarriers; ``open_phase_waits`` of them found that their phase had not ended.
    """

    line: int
    instructions: int
    requests: int
    sectors: int
    ideal_sectors: int
    accesses: int
    wavefronts: int
    ideal_wavefronts: int
    tma_bytes: int
    phase_waits: int
    open_phase_waits: int


@dataclass(frozen=True)
class Access:
    """One access of a warp: ``at`` has for each lane its bytes' begin, None where the lane has no part in it.

    In global memory they count from the last multiple of 128 bytes at or before the buffer, which begins ``begin``
    bytes after that; in shared memory (``buffer`` None) from the block's own first byte, and as many lanes as
    ``together`` may be served at once.
    """

    line: int
    bytes: int
    warp: int
    begin: int
    itemsize: int
    together: int
    operation: str  # read, write, atomic
    buffer: str | None
    block: Triple
    at: tuple[int | None, ...]

    @property
    def lanes(self) -> list[tuple[int, int]]:
        """(lane, begin) of those that have a part in it."""
        return [(lane, at) for lane, at in enumerate(self.at) if at is not None]


@dataclass(frozen=True)
class KernelCounters:
    """What all launches of one kernel cost together. ``instructions`` are warp instructions by class.

    ``tma_bytes`` are those of whole boxes; ``tma_filled_bytes`` of them lie outside of the tensor. ``box_rows`` are the
    rows of all boxes, one for each copy without a tensor map. ``lines`` are those that cost most, dearest first.
    ``samples`` has one access of each instruction in these lines.
    """

    kernel: str
    launches: int
    warp_instructions: int
    thread_instructions: int
    instructions: Mapping[str, int]
    flops: int
    bytes_read: int
    bytes_written: int
    global_requests: int
    sectors: int
    ideal_sectors: int
    shared_requests: int
    wavefronts: int
    ideal_wavefronts: int
    tma_copies: int
    tma_bytes: int
    tma_filled_bytes: int
    box_rows: int
    phase_waits: int
    open_phase_waits: int
    branches: int
    divergent_branches: int
    barriers: int
    atomics: int
    most_atomics_on_one_address: int
    lines: tuple[LineCounters, ...]
    samples: tuple[Access, ...]


@dataclass(frozen=True)
class CallCounters:
    """What all kernels of one call cost. ``kernels`` is empty where the call did not ask for them."""

    launches: int
    warp_instructions: int
    thread_instructions: int
    kernels: tuple[KernelCounters, ...] = ()


@dataclass(frozen=True)
class KernelCoverage:
    """Where threads of one kernel came to in all calls of a process.

    ``lines`` are (line of the learner's file, 1 where a thread came to any instruction of it, else 0); ``loops`` are
    (line, 0 where no thread came to the loop's end, 1 where one did, 2 where one went round again).
    """

    kernel: str
    launched: bool
    lines: tuple[tuple[int, int], ...]
    loops: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Writer:
    """Who wrote an element last: a thread of a kernel, or a function of the CUDA runtime (``kernel``) and no thread.

    ``callers`` are as in devices.Finding.
    """

    kernel: str
    file: str | None = None
    line: int | None = None
    block: Triple | None = None
    thread: Triple | None = None
    callers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Birth:
    """An instruction whose result was nan though no operand was, or infinite though all were finite; its first thread.

    ``form`` is the instruction as in PTX. ``result`` and ``operands`` are numbers in words: "nan", "-inf", "0.5".
    There are no operands of a product of matrices. ``other`` is a thread that shares a row of an accumulator
    with the one of a nan, in a kernel that multiplies matrices, and makes a number there of its ``other_operands``.
    """

    form: str
    result: str
    operands: tuple[str, ...]
    by: Writer
    other: Writer | None = None
    other_operands: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrailStep:
    """An access of the second of two calls that moves other bytes than in the first: its first thread.

    ``access`` is "read", "write" or "atomic". ``place`` is the first element that differs: "tile[1][3]" in shared
    memory, "x[5]" in global memory. There ``buffer`` is its name, and ``index`` counts its elements; in shared memory
    ``buffer`` is None, and ``index`` counts the bytes of the block's. ``launch`` counts the call's from 1. ``lanes``
    is a mask of the lanes of the warp with the same access. ``together``: they share what they read, as in ldmatrix.
    """

    access: str
    place: str
    launch: int
    index: int
    lanes: int
    together: bool
    by: Writer
    buffer: str | None = None


@dataclass(frozen=True)
class RouteSite:
    """An instruction on the ways of an element to an output: its first thread there.

    ``access`` is "read", "write", "atomic" or "result", which has no ``place``. ``beginnings``: how often it reads the
    element itself.
    """

    access: str
    place: str
    beginnings: int
    by: Writer


@dataclass(frozen=True)
class Route:
    """All ways of an element to the first watched element, or, if not ``reached``, to all that the call ends with.

    ``sites`` are in the order of time. ``ways`` are places in it: of each way up to where all have come together, or of
    each to another end; empty where they are many. ``paths`` is how often the element is in the watched one,
    where that is a sum; 0 if not known.
    """

    sites: tuple[RouteSite, ...] = ()
    ways: tuple[tuple[int, ...], ...] = ()
    paths: int = 0
    reached: bool = False


@dataclass(frozen=True)
class Trail:
    """The accesses of a call that move other bytes than those of the call before it, in the order of time.

    In full for the block that writes the first watched element, a few of all others. ``parted``: the two calls do not
    go the same way, or one is too long: then steps may be missing. ``blind``: the launches read shared memory in ways
    that are not noted, too, such as wgmma and bulk stores. ``route`` is empty where a value on the way is not
    followed, as in products of matrices.
    """

    steps: tuple[TrailStep, ...] = ()
    parted: bool = False
    blind: bool = False
    route: Route = Route()


@dataclass(frozen=True)
class Launched:
    """What a launcher launched: a kernel by its name, with template arguments; ``times`` in a row with the same shape.

    ``smem_bytes`` is the dynamic shared memory of a block.
    """

    kernel: str
    grid: Triple
    block: Triple
    smem_bytes: int
    times: int = 1


@dataclass(frozen=True)
class Launch:
    """What one kernel was launched with on a GPU, and how many of its blocks an SM holds.

    ``smem_bytes`` are dynamic and static shared memory of a block. ``occupancy`` is the share of an SM's threads that
    its blocks fill.
    """

    kernel: str
    stream: int
    grid: Triple
    block: Triple
    registers: int
    local_bytes: int
    smem_bytes: int
    blocks_per_sm: int
    occupancy: float
