"""Forms on registers alone: each is executed on 128 threads, its result widened into one slot of 8 bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from operands import operand
from program import Program

LANES = 128
SLOT = 8


@dataclass(frozen=True)
class Form:
    """A full form as PTX writes it; ``operands`` are bytes of the destination and of the sources, 0 a predicate."""

    name: str
    kind: str  # plain | compare | joined
    operands: tuple[int, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        if self.kind == "plain":
            return self.operands[1:]
        return self.operands[2:4] + ((0,) if self.kind == "joined" else ())

    @property
    def result_types(self) -> tuple[str, ...]:
        return tuple(part for part in self.name.split(".")[1:] if part in TYPES)


TYPES = frozenset(
    (
        *("pred", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "u16x2", "s16x2"),
        *("f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32", "e4m3x2", "e5m2x2"),
    )
)


def parse_signatures(text: str) -> list[Form]:
    """The engine's own list of forms whose operands are all registers of up to 8 bytes."""
    forms = []
    for line in text.splitlines():
        name, kind, operands = line.split("\t")
        form = Form(name, kind, tuple(int(size) for size in operands.split()))
        if max(form.operands) <= SLOT and not name.startswith(ELSEWHERE):
            forms.append(form)
    return forms


# Rows that are the engine's own, and forms that need what registers alone have not: addresses, a carry, a warp.
ELSEWHERE = (
    *("resize.", "clock.", "cvta", "isspacep", "lop3", "activemask", "addc", "subc", "madc", "mbarrier"),
    *("mov.b128", "mapa", "getctarank"),
)

_REGISTERS = {0: "%p", 1: "%h", 2: "%h", 4: "%r", 8: "%d"}
_NARROW = {1: "cvt.u8.u64", 2: "cvt.u16.u64", 4: "cvt.u32.u64"}


def program(form: Form) -> Program:
    """out[lane] = form(a[lane], b[lane], c[lane]), the operands at a, b and c in order."""
    body, names = [], []
    for place, size in enumerate(form.sources, 1):
        body.append(f"ld.global.b64 %d{11 + place}, [%from+{(place - 1) * LANES * SLOT}];")
        names.append(f"{_REGISTERS[size]}{place}")
        body.append(_narrowed(size, names[-1], f"%d{11 + place}"))
    body.append(_executed(form, names))
    body.append("st.global.b64 [%to], %d19;")
    return Program(form.name, "\n".join(body), operands(form), in_stride=SLOT, out_stride=SLOT, threads=LANES)


def _narrowed(size: int, target: str, source: str) -> str:
    if size == 0:
        return f"and.b64 {source}, {source}, 1; setp.ne.u64 {target}, {source}, 0;"
    return f"mov.b64 {target}, {source};" if size == SLOT else f"{_NARROW[size]} {target}, {source};"


def _executed(form: Form, sources: Iterable[str]) -> str:
    """The instruction itself, its result widened into %d19."""
    listed = ", ".join(sources)
    if form.kind != "plain" and form.operands[0] == 0:
        target = "%p5|%p6" if "x2" in form.name else "%p5"
        both = "selp.b64 %d18, 2, 0, %p6; or.b64 %d19, %d19, %d18;" if "x2" in form.name else ""
        return f"{form.name} {target}, {listed}; selp.b64 %d19, 1, 0, %p5; {both}"
    size = form.operands[0]
    target = f"{_REGISTERS[size]}8" if size != SLOT else "%d19"
    widened = {0: f"selp.b64 %d19, 1, 0, {target};", SLOT: ""}.get(size, "")
    if size in (1, 2, 4):
        unsigned = {1: "u8", 2: "u16", 4: "u32"}[size]
        widened = f"cvt.u64.{unsigned} %d19, {target};"
    return f"{form.name} {target}, {listed}; {widened}"


def operands(form: Form) -> bytes:
    """All sources' slots: 128 values for the first, then for the second, ... Hard ones first, then random bits."""
    source = random.Random(form.name)
    slots = [[operand(size, source) for _ in range(LANES)] for size in form.sources]
    if form.name.startswith(("bfe", "bfi")):  # positions and lengths of a field are defined up to 255
        slots[-2:] = [[value & 255 for value in values] for values in slots[-2:]]
    if form.name.startswith(("div.", "rem.")) and form.result_types[-1][0] in "us":  # by zero is a finding
        bits = (1 << 8 * form.sources[1]) - 1
        slots[1] = [divisor & bits or 1 for divisor in slots[1]]
    return b"".join(struct.pack("<Q", value) for values in slots for value in values)
