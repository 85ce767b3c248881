"""Program: one PTX kernel that executes a form, its input, and the bytes that are read back.

The same PTX runs on a GPU (capture.py) and in the simulator (simulate.py), one block or one cluster each. What it
leaves in ``out`` must not depend on the order of threads nor on where memory lies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
CHUNK = 100  # kernels in one module
MAPS = 2  # of one kernel, at most
PARAMETER = bytes(range(64, 128))  # the third argument of every launch, for kernels that read a parameter's bytes

_REGISTERS = (
    ".reg .pred %p<20>; .reg .b8 %b<9>; .reg .b16 %h<60>; .reg .b32 %r<100>; .reg .b64 %d<100>; .reg .b128 %q<60>;\n"
    ".reg .b32 %t; .reg .b64 %in, %out, %from, %to, %tail;\n"
)


@dataclass(frozen=True)
class Map:
    """A tensor of u32 in ``in`` or ``out``, as a tensor map describes it: sizes and boxes innermost first.

    With corners it is one for im2col, and the box is {channels, pixels}.
    """

    of: str  # in, out
    dims: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    kind: int = 2  # CUtensorMapDataType
    steps: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    item = 4

    @property
    def strides(self) -> list[int]:
        """In bytes, of all dimensions but the first."""
        return [self.item * math.prod(self.dims[:place]) for place in range(1, len(self.dims))]

    @property
    def words(self) -> list[int]:
        """Everything but the address, as numbers: rank, swizzle, kind, whether it is for im2col, then by dimension."""
        rank, most = len(self.dims), 5
        rows = (self.dims, self.strides, self.box, self.steps or (1,) * rank, self.lower, self.upper)
        padded = ([*row, *[1] * (most - len(row))] for row in rows)
        return [rank, self.swizzle, self.kind, int(bool(self.lower)), *(word for row in padded for word in row)]


@dataclass(frozen=True)
class Program:
    """``in`` holds ``given``; ``out`` has ``out_stride`` bytes for each thread and then ``tail`` bytes, all 0 before.

    The body finds its thread in %t, its own part of ``in`` and ``out`` at %from and %to, the tail at %tail, and
    ``shared`` bytes called tile. ``floats`` names the type of the results where a NaN equals every other.
    ENTRY in ``body`` and ``head`` becomes the kernel's name. ``blocks`` above 1 are one cluster. ``maps`` are tensor
    maps: the body finds the generic address of the first in %map, of the next ones each 128 bytes further. ``heavy``
    ones take long in the simulator.
    """

    form: str
    body: str
    given: bytes = b""
    variant: str = ""
    in_stride: int = 0
    out_stride: int = 0
    tail: int = 0
    shared: int = 0
    threads: int = 32
    floats: str = ""
    head: str = ""
    align: int = 128
    blocks: int = 1
    maps: tuple[Map, ...] = ()
    heavy: bool = False

    @property
    def name(self) -> str:
        return f"{self.form} {self.variant}".rstrip()

    @property
    def out_bytes(self) -> int:
        return self.threads * self.out_stride + self.tail

    def text(self, entry: str) -> str:
        tile = f".shared .align {self.align} .b8 tile[{self.shared}];\n" if self.shared else ""
        maps = f", .param .align 64 .b8 maps[{128 * MAPS}]" if self.maps else ""
        cluster = f".explicitcluster .reqnctapercluster {self.blocks}, 1, 1\n" if self.blocks > 1 else ""
        find_maps = ".reg .b64 %map; mov.b64 %map, maps; cvta.param.u64 %map, %map;\n" if self.maps else ""
        return (
            f"{self.head}.visible .entry ENTRY(.param .u64 in, .param .u64 out, .param .align 16 .b8 bytes[64]{maps})\n"
            f"{cluster}{{\n{_REGISTERS}{tile}{find_maps}"
            "mov.u32 %t, %tid.x;\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n"
            f"mad.wide.u32 %from, %t, {self.in_stride}, %in;\nmad.wide.u32 %to, %t, {self.out_stride}, %out;\n"
            f"add.s64 %tail, %out, {self.threads * self.out_stride};\n"
            f"{self.body}\nret;\n}}\n"
        ).replace("ENTRY", entry)


def chunks(programs: Sequence[Program]) -> Iterator[Sequence[Program]]:
    """As many programs each as one module holds."""
    return (programs[start : start + CHUNK] for start in range(0, len(programs), CHUNK))


def module(programs: Sequence[Program]) -> str:
    """PTX with a kernel k0, k1, ... for each of the programs."""
    return HEADER + "".join(program.text(f"k{place}") for place, program in enumerate(programs))


# -- pieces of bodies ------------------------------------------------------------------------------------------------


def lines(*parts: str) -> str:
    return "\n".join(parts)


def fill_tile(size: int, *, source: str = "%in", threads: int = 32) -> str:
    """Copies ``size`` bytes from ``source`` to tile, all threads together."""
    step = 8 * threads
    copies = (f"ld.global.b64 %d91, [%d90+{at}]; st.shared.b64 [%r90+{at}], %d91;" for at in range(0, size, step))
    return lines(
        f"mad.wide.u32 %d90, %t, 8, {source}; mov.u32 %r90, tile; mad.lo.u32 %r90, %t, 8, %r90;", *copies,
        "bar.sync 0;",
    )  # fmt: skip


def dump_tile(size: int, *, to: str = "%tail", threads: int = 32) -> str:
    """Copies ``size`` bytes from tile to ``to``, all threads together."""
    step = 8 * threads
    copies = (f"ld.shared.b64 %d91, [%r90+{at}]; st.global.b64 [%d90+{at}], %d91;" for at in range(0, size, step))
    return lines(
        "bar.sync 0;", f"mad.wide.u32 %d90, %t, 8, {to}; mov.u32 %r90, tile; mad.lo.u32 %r90, %t, 8, %r90;", *copies
    )


def listed(registers: Sequence[str]) -> str:
    """A register, or a vector of several."""
    return registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"


def register_names(letter: str, count: int, first: int = 0) -> list[str]:
    """["%r0", "%r1", ...]"""
    return [f"%{letter}{first + place}" for place in range(count)]
