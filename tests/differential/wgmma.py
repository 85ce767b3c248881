"""wgmma: every shape and type with A in shared memory and in registers, layouts, and millions of sums of hard values.

A program draws its values on the device, the same on a card as in the simulator, and leaves a hash of all sums: two
words for each warp. A NaN counts as one value whatever its payload is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from program import Program, lines

THREADS, ROWS, ROW_BYTES = 128, 64, 32
A_BYTES = ROWS * ROW_BYTES
SUMS = 1_000_000  # of each form, with A in shared memory and in registers
_CORE = 0x10_0008 << 16  # descriptor: core matrices one after the other, 128 bytes apart along k, 256 along the rows


@dataclass(frozen=True)
class Shape:
    """How random words become elements: bits that are kept and bits that are set, and what turns a copy's sign."""

    usual: tuple[int, int]  # magnitudes near 1
    wide: tuple[int, int]  # many magnitudes
    finite: int  # kept: without infinities and NaN, with denormal numbers
    sign: int
    last: int  # the last bit of the second of two elements
    vanishing: tuple[int, int] = (0, 0)  # products of about half of the least number of a result
    least: tuple[int, int] = (0, 0)  # of an accumulator: zeros of both signs, and the least numbers


def _twice(kept: int, put: int) -> tuple[int, int]:
    return kept * 0x10001, put * 0x10001


def _four(kept: int, put: int) -> tuple[int, int]:
    return kept * 0x1010101, put * 0x1010101


_WORD = 0xFFFFFFFF
SHAPES = {
    "f16": Shape(
        _twice(0x87FF, 0x3800), _twice(0x9FFF, 0x2000), 0xBFFFBFFF, 0x8000, 1, _twice(0x8E00, 0), _twice(0x8003, 0)
    ),
    "bf16": Shape(_twice(0x80FF, 0x3F00), _twice(0x87FF, 0x3800), 0xBFFFBFFF, 0x8000, 1, _twice(0x83C0, 0x1800)),
    "tf32": Shape((0x80FFFFFF, 0x3F000000), (0x87FFFFFF, 0x38000000), 0xBFFFFFFF, 0, 0, (0x83C00000, 0x18000000)),
    "f32": Shape((0x80FFFFFF, 0x3F000000), (0x87FFFFFF, 0x38000000), 0xBFFFFFFF, 0, 0, least=(0x80000003, 0)),
    "e4m3": Shape(_four(0x8F, 0x30), _four(0xBF, 0x00), 0xF7F7F7F7, 0x80, 1, _four(0x87, 0)),
    "e5m2": Shape(_four(0x87, 0x38), _four(0x9F, 0x20), 0xBFBFBFBF, 0x80, 1, _four(0x8E, 0)),
    **dict.fromkeys(("s8", "u8", "s32"), Shape((_WORD, 0), (_WORD, 0), _WORD, 0, 0)),
}
KINDS = ("usual", "cancelling", "wide", "any")
SMALLEST = ("vanishing", "zeros", "zeros alone")  # the last without the accumulator

_DRAW = (
    "mad.lo.u32 %r10, %r10, 1664525, 1013904223; shr.u32 %r11, %r10, 15; xor.b32 %r11, %r11, %r10;"
    " mul.lo.u32 %r11, %r11, 739982445; shr.u32 %r12, %r11, 12; xor.b32 %r11, %r11, %r12;"
)


def _masks(kind: str, values: str, operand: str) -> tuple[int, int]:
    """The bits of a random word that are kept, and the bits that are set; ``operand`` is a, b or d."""
    shape = SHAPES[kind]
    if values in ("wide", "vanishing"):
        return shape.wide if values == "wide" else shape.least if operand == "d" else shape.vanishing
    if values.startswith("zeros"):
        signs = {0x8000: 0x80008000, 0x80: 0x80808080}.get(shape.sign, 0x80000000)
        return {"a": (0, signs), "b": (0, 0), "d": (signs, 0)}[operand]
    return shape.usual


def _shaped(kind: str, values: str, operand: str) -> str:
    """A word of elements in %r11. The second of two cancelling ones is minus the first, or that with another bit."""
    shape = SHAPES[kind]
    if values == "any":  # one word of 256 has whatever bits it has, infinities and NaNs among them
        return lines(
            _DRAW, f"and.b32 %r13, %r11, {shape.finite}; shr.u32 %r12, %r10, 24; setp.eq.u32 %p2, %r12, 0;",
            "selp.b32 %r11, %r11, %r13, %p2;",
        )  # fmt: skip
    kept, put = _masks(kind, values, operand)
    text = lines(_DRAW, f"and.b32 %r11, %r11, {kept}; or.b32 %r11, %r11, {put};")
    if values != "cancelling" or not shape.sign:
        return text
    bits, half = (16, 0xFFFF) if shape.sign == 0x8000 else (8, 0xFF00FF)
    change = (shape.sign if operand == "a" else shape.last) * (1 if bits == 16 else 0x10001)
    return lines(
        text, f"and.b32 %r11, %r11, {half}; xor.b32 %r12, %r11, {change}; shl.b32 %r12, %r12, {bits};",
        "or.b32 %r11, %r11, %r12;",
    )  # fmt: skip


def _fill(label: str, at: int, size: int, kind: str, values: str, operand: str) -> str:
    """Words of the tile from ``at`` on, by all threads."""
    step, label = 4 * THREADS, label.replace(" ", "_")
    return lines(
        f"add.u32 %r5, %r2, {at}; add.u32 %r6, %r1, {at + size};", f"{label}:",
        "setp.ge.u32 %p3, %r5, %r6;", f"@%p3 bra {label}_END;", _shaped(kind, values, operand),
        f"st.shared.b32 [%r5], %r11; add.u32 %r5, %r5, {step}; bra {label};", f"{label}_END:",
    )  # fmt: skip


@dataclass(frozen=True)
class _Form:
    name: str
    columns: int
    depth: int
    d: str
    a: str
    b: str

    @property
    def registers(self) -> list[str]:
        return [f"%w{place}" for place in range(self.columns // (4 if self.d == "f16" else 2))]

    def flags(self, source: str, values: str, turned: tuple[int, int]) -> str:
        """imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b, as far as the type has them."""
        if self.d == "s32":
            return ""
        scale = ", 1, -1" if values == "cancelling" else ", 1, 1"
        if self.a not in ("f16", "bf16"):
            return scale
        return scale + (f", {turned[0]}" if source == "shared" else "") + f", {turned[1]}"

    def hashed(self) -> str:
        """Each register into %r20."""
        mix = "mad.lo.u32 %r20, %r20, 16777619, %r4;"
        if self.d == "s32":
            return lines(*(f"mov.b32 %r4, {name}; {mix}" for name in self.registers))
        if self.d == "f32":
            no_nan = "setp.nan.f32 %p2, {0}, {0}; selp.b32 %r4, 0x7fffffff, {0}, %p2;"
            return lines(*(no_nan.format(name) + mix for name in self.registers))
        one = "setp.nan.f16 %p2, {0}, {0}; selp.b16 {0}, 0x7fff, {0}, %p2;"
        both = "mov.b32 {{%h1, %h2}}, {0};" + one.format("%h1") + one.format("%h2") + "mov.b32 %r4, {{%h1, %h2}};"
        return lines(*(both.format(name) + mix for name in self.registers))


def _parse(form: str) -> _Form:
    found = re.search(r"\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)", form)
    assert found is not None, form
    return _Form(form, int(found[1]), int(found[2]), found[3], found[4], found[5])


def _step(form: _Form, source: str, values: str, turned: tuple[int, int] = (0, 0), shown: str = "") -> str:
    """New operands, one product, and its sums into the hash, or as ``shown`` says."""
    body = []
    if source == "shared":
        body.append(_fill(f"A_{values}", 0, A_BYTES, form.a, values, "a"))
    else:
        body += [_shaped(form.a, values, "a") + f" mov.b32 %a{place}, %r11;" for place in range(4)]
    body.append(_fill(f"B_{values}", A_BYTES, form.columns * ROW_BYTES, form.b, values, "b"))
    starts = values in ("usual", "zeros alone") and form.d != "s32"  # without the accumulator
    if values in ("usual", "wide", *SMALLEST):
        body += [_shaped(form.d, values, "d") + f" mov.b32 {name}, %r11;" for name in form.registers]
    a = "%d1" if source == "shared" else "{%a0, %a1, %a2, %a3}"
    flags = form.flags(source, values, turned)
    return lines(
        *body, "fence.proxy.async; bar.sync 0;", f"setp.{'ne' if starts else 'eq'}.u32 %p1, %r1, %r1;",
        "wgmma.fence.sync.aligned;", f"{form.name} {{{', '.join(form.registers)}}}, {a}, %d2, %p1{flags};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", shown or form.hashed(), "bar.sync 0;",
    )  # fmt: skip


_SHOWN = lines(
    "and.b32 %r21, %t, 31; redux.sync.add.u32 %r22, %r20, 0xffffffff; redux.sync.xor.b32 %r23, %r20, 0xffffffff;",
    "shr.u32 %r24, %t, 5; mad.wide.u32 %d3, %r24, 8, %tail; setp.ne.u32 %p1, %r21, 0;",
    "@!%p1 st.global.b32 [%d3], %r22; @!%p1 st.global.b32 [%d3+4], %r23;",
)


def _program(
    form: _Form, variant: str, steps: str, *, rounds: int = 1, descriptors: tuple[int, int] = (_CORE, _CORE)
) -> Program:
    a, b = descriptors
    seed = sum(ord(letter) * place for place, letter in enumerate(form.name + variant, 1))
    body = lines(
        f".reg .b32 %w<{len(form.registers)}>; .reg .b32 %a<4>;",
        "mov.u32 %r1, tile; mad.lo.u32 %r2, %t, 4, %r1; mov.u32 %r20, %t; mov.u32 %r30, 0;",
        f"mad.lo.u32 %r10, %t, 2654435761, {seed};",
        "and.b32 %r3, %r1, 0x3ffff; shr.u32 %r3, %r3, 4; cvt.u64.u32 %d4, %r3;",
        f"or.b64 %d1, %d4, {a}; or.b64 %d2, %d4, {b}; add.s64 %d2, %d2, {A_BYTES >> 4};",
        *(f"mov.b32 {name}, 0;" for name in form.registers), "AGAIN:", steps,
        f"add.u32 %r30, %r30, 1; setp.lt.u32 %p1, %r30, {rounds}; @%p1 bra AGAIN;", _SHOWN,
    )  # fmt: skip
    return Program(
        form.name, body, variant=variant, tail=8 * THREADS // 32, threads=THREADS, align=1024,
        shared=A_BYTES + form.columns * ROW_BYTES, heavy=rounds > 1,
    )  # fmt: skip


def multiply(name: str) -> Iterator[Program]:
    """Two products of each form, and a million sums of hard values; of the widest a million of each kind of values; of
    n = 64 every layout.
    """
    form = _parse(name)
    for source in ("shared", "registers"):
        steps = lines(*(_step(form, source, values) for values in ("usual", "any")))
        yield _program(form, source, steps)
        steps = lines(*(_step(form, source, values) for values in KINDS))
        in_round = ROWS * form.columns * (1 if form.columns == 256 else len(KINDS))
        yield _program(form, f"{source}, a million sums", steps, rounds=-(-SUMS // in_round))
    if form.columns == 64:
        yield from _layouts(form)
    if form.columns == 8 and form.d != "s32":
        yield from _smallest(form)


def _smallest(form: _Form) -> Iterator[Program]:
    """Sums that round to a zero, whose sign matters: every bit of every sum."""
    count = len(form.registers)
    for source in ("shared", "registers"):
        steps = [
            _step(form, source, values, shown=lines(*(
                f"st.global.b32 [%to+{4 * (count * place + at)}], {name};" for at, name in enumerate(form.registers)
            ))) for place, values in enumerate(SMALLEST)
        ]  # fmt: skip
        plain = _program(form, f"{source}, smallest", lines(*steps))
        body = plain.body.replace(_SHOWN, "")
        yield replace(plain, body=body, out_stride=4 * count * len(SMALLEST), tail=0, floats=form.d)


def _layouts(form: _Form) -> Iterator[Program]:
    """Each swizzle, and each major dimension of the types of 16 bits. The tile is read as it happens to be."""
    may_turn = form.a in ("f16", "bf16")
    for mode, span in ((0, 16), (1, 128), (2, 64), (3, 32)):
        for turned in ((0, 0), (0, 1), (1, 0), (1, 1)) if may_turn else ((0, 0),):
            if not mode and turned == (0, 0):
                continue
            offsets = [_offsets(mode, span, by_rows) for by_rows in turned]
            a, b = (lead >> 4 << 16 | stride >> 4 << 32 | mode << 62 for lead, stride in offsets)
            program = _program(
                form,
                f"layout {mode} {turned[0]}{turned[1]}",
                _step(form, "shared", "usual", turned),
                descriptors=(a, b),
            )
            yield _roomy(program)


def _offsets(mode: int, span: int, by_rows: int) -> tuple[int, int]:
    """(leading, stride) in bytes, of a matrix of 64 rows."""
    if mode == 0:
        return (1024, 128) if by_rows else (128, 256)
    return (16 * span, 8 * span) if by_rows else (16, 8 * span)


def _roomy(program: Program) -> Program:
    """With 16 KB for each matrix, all of it filled: a swizzled matrix of 32 bytes of k lies in rows of 128."""
    size = 16384
    body = program.body.replace(f"add.s64 %d2, %d2, {A_BYTES >> 4};", f"add.s64 %d2, %d2, {size >> 4};")
    body = body.replace(f"add.u32 %r6, %r1, {A_BYTES};", f"add.u32 %r6, %r1, {size};")
    body = re.sub(
        rf"add\.u32 %r5, %r2, {A_BYTES}; add\.u32 %r6, %r1, \d+;",
        f"add.u32 %r5, %r2, {size}; add.u32 %r6, %r1, {2 * size};", body,
    )  # fmt: skip
    return replace(program, body=body, shared=2 * size)


def in_step(form: str) -> Iterator[Program]:
    """What orders products, around one."""
    product = _parse("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
    yield replace(_program(product, f"for {form}", _step(product, "shared", "usual")), form=form, variant="")


PROGRAMS = {
    "wgmma.mma_async.": multiply,
    **{f"wgmma.{name}.": in_step for name in ("fence", "commit_group", "wait_group")},
}
