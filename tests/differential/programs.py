"""Instruction form -> a PTX kernel that executes it on 128 lanes, and the operands that it is fed.

The same PTX runs on a GPU (capture.py) and in the simulator (tests/test_sim_differential.py). Every operand and result
has a slot of 8 bytes; narrower ones stand in its low bytes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LANES = 128
SLOT = 8
CHUNK = 100  # kernels in one module
HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


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
        if max(form.operands) <= SLOT and not name.startswith(INTERNAL):
            forms.append(form)
    return forms


# Rows that are the engine's own, forms that need what a lane alone has not (addresses, a carry), and mov, which all
# programs are made of.
INTERNAL = (
    *("resize.", "clock.", "mov.", "cvta", "isspacep", "lop3", "mapa", "getctarank", "activemask"),
    *("addc", "subc", "madc", "mbarrier"),
)

_REGISTERS = {0: "%p", 1: "%h", 2: "%h", 4: "%r", 8: "%rd"}
_NARROW = {1: "cvt.u8.u64", 2: "cvt.u16.u64", 4: "cvt.u32.u64"}


def kernel(form: Form, name: str) -> str:
    """One kernel: out[lane] = form(a[lane], b[lane], c[lane]), the operands at a, b and c in order."""
    lines = [
        f".visible .entry {name}(.param .u64 in, .param .u64 out)\n{{",
        ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<20>;",
        "mov.u32 %r0, %tid.x; mul.wide.u32 %rd0, %r0, 8;",
        "ld.param.u64 %rd10, [in]; add.s64 %rd10, %rd10, %rd0;",
        "ld.param.u64 %rd11, [out]; add.s64 %rd11, %rd11, %rd0;",
    ]
    names = []
    for place, size in enumerate(form.sources, 1):
        lines.append(f"ld.global.b64 %rd{11 + place}, [%rd10+{(place - 1) * LANES * SLOT}];")
        names.append(f"{_REGISTERS[size]}{place}")
        lines.append(_narrowed(size, names[-1], f"%rd{11 + place}"))
    lines.append(_executed(form, names))
    lines.append("st.global.b64 [%rd11], %rd19;\nret;\n}")
    return "\n".join(lines) + "\n"


def _narrowed(size: int, target: str, source: str) -> str:
    if size == 0:
        return f"and.b64 {source}, {source}, 1; setp.ne.u64 {target}, {source}, 0;"
    return f"mov.b64 {target}, {source};" if size == SLOT else f"{_NARROW[size]} {target}, {source};"


def _executed(form: Form, sources: Iterable[str]) -> str:
    """The instruction itself, its result widened into %rd19."""
    listed = ", ".join(sources)
    if form.kind != "plain" and form.operands[0] == 0:
        target = "%p5|%p6" if "x2" in form.name else "%p5"
        both = "selp.b64 %rd18, 2, 0, %p6; or.b64 %rd19, %rd19, %rd18;" if "x2" in form.name else ""
        return f"{form.name} {target}, {listed}; selp.b64 %rd19, 1, 0, %p5; {both}"
    size = form.operands[0]
    target = f"{_REGISTERS[size]}8" if size != SLOT else "%rd19"
    widened = {0: f"selp.b64 %rd19, 1, 0, {target};", SLOT: ""}.get(size, "")
    if size in (1, 2, 4):
        unsigned = {1: "u8", 2: "u16", 4: "u32"}[size]
        widened = f"cvt.u64.{unsigned} %rd19, {target};"
    return f"{form.name} {target}, {listed}; {widened}"


def modules(forms: list[Form]) -> Iterator[tuple[list[Form], str]]:
    """The forms in chunks, each with the PTX that has a kernel k0, k1, ... for each of them."""
    for start in range(0, len(forms), CHUNK):
        chunk = forms[start : start + CHUNK]
        yield chunk, HEADER + "".join(kernel(form, f"k{place}") for place, form in enumerate(chunk))


# -- operands --------------------------------------------------------------------------------------------------------

_HALVES = (
    *(0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00),
    0x3555,
)
_BRAINS = (0x3F80, 0xBF80, 0x0080, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0x4049, 0x007F)
_SINGLES = (
    0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x3F7FFFFF, 0x3F000000, 0x4B000000, 0xCF000000, 0x4F000000, 0x5F000000,
    0x40490FDB, 0x3EAAAAAB, 0x477FF000, 0x33000000, 0x387FE000, 0xC2FC0000, 0x42FE0000,
)  # fmt: skip
_DOUBLES = (
    *(0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1.0, -1.0, 1.7976931348623157e308, 0.1, 0.5, 2.5, -3.5),
    *(1e10, 65520.0),
)
_INTEGERS = (0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF)


def operands(form: Form) -> bytes:
    """All sources' slots: 128 values for the first, then for the second, ... Hard ones first, then random bits."""
    source = random.Random(form.name)
    slots = [[_operand(size, source) for _ in range(LANES)] for size in form.sources]
    if form.name.startswith(("bfe", "bfi")):  # positions and lengths of a field are defined up to 255
        slots[-2:] = [[value & 255 for value in values] for values in slots[-2:]]
    if form.name.startswith(("div.", "rem.")) and form.result_types[-1][0] in "us":  # by zero is a finding
        bits = (1 << 8 * form.sources[1]) - 1
        slots[1] = [divisor & bits or 1 for divisor in slots[1]]
    return b"".join(struct.pack("<Q", value) for values in slots for value in values)


def _operand(size: int, source: random.Random) -> int:
    bits = {0: 1, 1: 8, 2: 16, 4: 32, 8: 64}[size]
    pools = {
        2: (_HALVES, _BRAINS, _INTEGERS),
        4: (
            _SINGLES,
            _INTEGERS,
            tuple(value | other << 16 for value, other in zip(_HALVES, _HALVES[3:], strict=False)),
        ),
        8: (tuple(struct.unpack("<Q", struct.pack("<d", value))[0] for value in _DOUBLES), _INTEGERS),
    }.get(size, (_INTEGERS,))
    choice = source.random()
    if choice < 0.4:
        value = source.choice(source.choice(pools))
        return (-value if source.random() < 0.2 and value in _INTEGERS else value) % (1 << bits)
    if choice < 0.7:  # numbers of usual size, of the float format that fits the width
        number = source.uniform(-8, 8)
        packed = {2: "<e", 4: "<f", 8: "<d"}.get(size)
        if packed is not None:
            return int.from_bytes(struct.pack(packed, number), "little")
    return source.getrandbits(bits)
