"""Carry chains, lop3 and moves of several registers: integer forms that need more than one instruction or register."""

from __future__ import annotations

from collections.abc import Iterator

from operands import random_bytes, slots
from program import Program, lines, listed, register_names

THREADS = 64


def carry(form: str) -> Iterator[Program]:
    """The flag is set by a first instruction, used or set by the form, and shown by a last one."""
    wide = form.endswith("64")
    letter, size, word = ("d", 8, "64") if wide else ("r", 4, "32")
    a, b, c, d, e, scratch = register_names(letter, 6)
    subtracts = form.startswith("sub")
    operation, last = ("sub", "subc") if subtracts else ("add", "addc")
    sources = f"{a}, {b}, {c}" if form.startswith("mad") else f"{a}, {b}"
    body = lines(
        *(f"ld.global.b{word} {name}, [%from+{8 * place}];" for place, name in enumerate((a, b, c))),
        f"{operation}.cc.u{word} {scratch}, {c}, {b};",
        f"{form} {d}, {sources};",
        f"{last}.u{word} {e}, 0, 0;",
        f"st.global.b{word} [%to], {d}; st.global.b{word} [%to+8], {e};",
    )
    given = slots(form, (size, size, size), THREADS)
    yield Program(form, body, given, variant="chain", in_stride=24, out_stride=16, threads=THREADS)


def lop3(form: str) -> Iterator[Program]:
    """All 256 functions: with these three operands bit i of the result is bit i % 8 of the table."""
    body = lines(
        "mov.u32 %r1, 0xF0F0F0F0; mov.u32 %r2, 0xCCCCCCCC; mov.u32 %r3, 0xAAAAAAAA;",
        *(f"{form} %r4, %r1, %r2, %r3, {table}; st.global.b32 [%to+{4 * table}], %r4;" for table in range(256)),
    )
    yield Program(form, body, out_stride=1024, threads=1)


def vector_move(form: str) -> Iterator[Program]:
    """mov.b64.pack2 is "mov.b64 d, {a, b}", mov.b64.unpack2 is "mov.b64 {a, b}, d"."""
    instruction, _, shape = form.rpartition(".")
    width, count = int(instruction[-3:].lstrip("bsuf")), int(shape[-1])
    letters = {8: "b", 16: "h", 32: "r", 64: "d", 128: "q"}
    part, letter = width // count, letters[width]
    parts, whole = register_names(letters[part], count), f"%{letter}8"
    packs = shape.startswith("pack")
    given, found = (parts, [whole]) if packs else ([whole], parts)
    given_bits, found_bits = (part, width) if packs else (width, part)
    body = lines(
        *(f"ld.global.b{given_bits} {name}, [%from+{place * given_bits // 8}];" for place, name in enumerate(given)),
        f"{instruction} {listed(found)}, {listed(given)};",
        *(f"st.global.b{found_bits} [%to+{place * found_bits // 8}], {name};" for place, name in enumerate(found)),
    )
    yield Program(form, body, random_bytes("move", 32 * 16), in_stride=16, out_stride=16)


def wide_move(form: str) -> Iterator[Program]:
    body = f"ld.global.b128 %q1, [%from]; {form} %q2, %q1; st.global.b128 [%to], %q2;"
    yield Program(form, body, random_bytes("move", 32 * 16), in_stride=16, out_stride=16)


_WORDS = ("b16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64", "b128")
PROGRAMS = {
    **{f"{name}.": carry for name in ("addc", "subc", "madc", "add.cc", "sub.cc", "mad.lo.cc", "mad.hi.cc")},
    "lop3.": lop3,
    **{f"mov.{word}.{kind}": vector_move for word in _WORDS for kind in ("pack", "unpack")},
    "mov.b128": wide_move,
}  # fmt: skip
