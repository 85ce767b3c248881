"""atom and red: one lane an address with the values that were there, and many lanes an address.

The result of many lanes does not depend on their order where the operation is associative; floats are small integers
then, so that every sum is exact. inc and dec get one bound from all lanes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from operands import operand
from program import Program, lines, listed, register_names

THREADS = 64
CELL = 16  # bytes of the widest access
CELLS = 4  # that many lanes share

_SCOPED = (".relaxed.cta", ".relaxed.cluster", ".relaxed.gpu", ".relaxed.sys")
_ORDERS = {
    "atom": ("", ".cta", ".gpu", ".sys", *_SCOPED, ".acquire.gpu", ".release.gpu", ".acq_rel.gpu", ".acq_rel.cta"),
    "red": ("", ".cta", ".gpu", ".sys", *_SCOPED, ".release.gpu", ".release.cta"),
}
_SMALL = {  # the bits of a small integer
    "f16": lambda number: struct.pack("<e", number),
    "bf16": lambda number: struct.pack("<f", number)[2:],
    "f32": lambda number: struct.pack("<f", number),
    "f64": lambda number: struct.pack("<d", number),
}
_ORDERLESS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


class _Words:
    """The parts of a form: "atom.add.v2.f16" adds vectors of two halves."""

    def __init__(self, form: str) -> None:
        name, *self.words = form.split(".")
        self.has_results = name == "atom"
        self.name = name
        self.kind = next(
            word for word in reversed(self.words) if (word[0] in "busf" and word[-1].isdigit()) or "x2" in word
        )
        self.operation = next(word for word in self.words if word in (*_ORDERLESS, "exch", "cas"))
        self.count = next((int(word[1:]) for word in self.words if word[0] == "v"), 1)
        self.element = self.kind.removesuffix("x2")
        self.size = int(self.element.lstrip("busf")) // 8 * (2 if self.kind.endswith("x2") else 1)
        self.letter = {2: "h", 4: "r", 8: "d", 16: "q"}[self.size]
        # Halves must say that denormals stay; the word stands behind the operation.
        noftz = "add.noftz" if self.element in ("f16", "bf16") else "add"
        self.rest = "." + ".".join(noftz if word == "add" else word for word in self.words)

    @property
    def floats(self) -> str:
        return self.element if self.element in _SMALL else ""


@dataclass(frozen=True)
class _Place:
    """Memory that the instruction updates: its space there, and the space that the memory lies in."""

    space: str
    inner: str

    @property
    def name(self) -> str:
        return self.space or ("" if self.inner == "global" else "generic shared")

    def generic(self, register: str) -> str:
        """The address in the instruction, made of a shared one."""
        if self.space or self.inner == "global":
            return ""
        return f"cvt.u64.u32 %d{register[2:]}, {register}; cvta.shared.u64 %d{register[2:]}, %d{register[2:]};"


_PLACES = (
    _Place("", "global"), _Place("", "shared"), _Place(".global", "global"), _Place(".shared", "shared"),
    _Place(".shared::cta", "shared"),
)  # fmt: skip


def atomic(form: str) -> Iterator[Program]:
    words = _Words(form)
    for place in _PLACES:
        if words.count > 1 and place.inner == "shared":
            continue  # only global memory takes vectors
        yield _alone(form, words, place)
        if words.operation in _ORDERLESS:
            yield _together(form, words, place)


def _operands(words: _Words) -> tuple[list[str], list[str], list[str]]:
    """Registers of the old value, of the operand, and of a second operand."""
    old, b, c = (register_names(words.letter, words.count, first) for first in (10, 20, 30))
    return old, b, c if words.operation == "cas" else []


def _instruction(words: _Words, order: str, place: _Place, address: str) -> str:
    old, b, c = _operands(words)
    result = f"{listed(old)}, " if words.has_results else ""
    second = f", {listed(c)}" if c else ""
    generic = place.inner == "shared" and not place.space
    at = address.replace("%r", "%d") if generic else address
    return f"{words.name}{order}{place.space}{words.rest} {result}[{at}], {listed(b)}{second};"


def _alone(form: str, words: _Words, place: _Place) -> Program:
    """Every thread has a cell of its own for each order: shown are the cell and what the instruction returned."""
    old, b, c = _operands(words)
    bits, shared = 8 * words.size, place.inner == "shared"
    initial, final = (register_names(words.letter, words.count, first) for first in (40, 50))
    names = (*initial, *b, *c)
    body = [f"ld.global.b{bits} {name}, [%from+{k * words.size}];" for k, name in enumerate(names)]
    body.append(f"mov.u32 %r80, tile; mad.lo.u32 %r80, %t, {CELL}, %r80; {place.generic('%r80')}")
    at = 0
    for order in _ORDERS[words.name]:
        address = "%r80" if shared else f"%to+{at}"
        body += [
            f"st.{place.inner}.b{bits} [{_plus(address, k * words.size)}], {name};" for k, name in enumerate(initial)
        ]
        body.append(_instruction(words, order, place, address))
        for k, name in enumerate(final if shared else ()):
            body.append(f"ld.shared.b{bits} {name}, [%r80+{k * words.size}];")
            body.append(f"st.global.b{bits} [%to+{at + k * words.size}], {name};")
        at += CELL
        if words.has_results:
            body += [f"st.global.b{bits} [%to+{at + k * words.size}], {name};" for k, name in enumerate(old)]
            at += CELL
    stride = words.size * len(names)
    return Program(
        form, lines(*body), _hard_values(words, stride), f"{place.name} alone".lstrip(),
        in_stride=-(-stride // CELL) * CELL, out_stride=at, shared=THREADS * CELL, threads=THREADS, floats=words.floats,
    )  # fmt: skip


def _plus(address: str, offset: int) -> str:
    base, _, first = address.partition("+")
    return f"{base}+{int(first or 0) + offset}"


def _hard_values(words: _Words, stride: int) -> bytes:
    """cas finds what it expects on every second thread; a field of a vector or pair is a value of its own."""
    source, padded = random.Random(words.kind + words.operation), -(-stride // CELL) * CELL
    width = 2 if words.element in ("f16", "bf16") else min(words.size, 8)
    parts = words.size // width
    threads = []
    for thread in range(THREADS):
        values = [operand(width, source).to_bytes(width, "little") for _ in range(stride // width)]
        if words.operation == "cas" and thread % 2:
            values[parts : 2 * parts] = values[:parts]
        threads.append(b"".join(values).ljust(padded, b"\0"))
    return b"".join(threads)


def _together(form: str, words: _Words, place: _Place) -> Program:
    """All threads at four cells; shown are the cells at the end."""
    bits, (_, b, _) = 8 * words.size, _operands(words)
    shared = place.inner == "shared"
    base = "mov.u32 %r71, tile; mad.lo.u32 %r70, %r72, {0}, %r71;" if shared else "mad.wide.u32 %d70, %r72, {0}, %tail;"
    cell = "%r70" if shared else "%d70"
    names = [(name, k * words.size) for k, name in enumerate(b)]
    body = [
        *(f"ld.global.b{bits} {name}, [%from+{at}];" for name, at in names),
        f"and.b32 %r72, %t, {CELLS - 1}; {base.format(CELL)} {place.generic('%r70')} setp.ge.u32 %p1, %t, {CELLS};",
        *(f"@!%p1 st.{place.inner}.b{bits} [{cell}+{at}], {name};" for name, at in names),
        "bar.sync 0;",
        _instruction(words, "", place, cell),
        "bar.sync 0;",
        *(
            f"ld.{place.inner}.b{bits} {name}, [{cell}+{at}]; @!%p1 st.global.b{bits} [%to+{at}], {name};"
            for name, at in names
        ),
    ]
    return Program(
        form, lines(*body), _orderless_values(words), f"{place.name} together".lstrip(), in_stride=CELL,
        out_stride=CELL, tail=CELLS * CELL, shared=CELLS * CELL, threads=THREADS, floats=words.floats,
    )  # fmt: skip


def _orderless_values(words: _Words) -> bytes:
    source, cells = random.Random(words.kind), []
    for _ in range(THREADS):
        if words.operation in ("inc", "dec"):
            values = struct.pack("<I", 5)
        elif words.floats:
            count = CELL // len(_SMALL[words.floats](0))
            values = b"".join(_SMALL[words.floats](source.randrange(-7, 8)) for _ in range(count))
        else:
            values = operand(words.size, source).to_bytes(words.size, "little")
        cells.append(values.ljust(CELL, b"\0"))
    return b"".join(cells)


PROGRAMS = {"atom.": atomic, "red.": atomic}
