"""Clusters of two blocks: addresses of the other's shared memory, messages to it, and copies for both."""

from __future__ import annotations

from collections.abc import Iterator

from operands import random_bytes
from program import Program, lines

LANES, BLOCKS, BULK = 32, 2, 512
_GIVEN = random_bytes("cluster", 4096)
_WORDS = {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}
_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
# %r1 tile, %r2 the mbarrier, %r3 the own rank, %r4 the other's, %to the thread's part of ``out`` for this block
_SETUP = lines(
    f"mov.u32 %r1, tile; add.u32 %r2, %r1, {2 * BULK}; mov.u32 %r3, %cluster_ctarank; xor.b32 %r4, %r3, 1;",
    "setp.ne.u32 %p1, %t, 0; mov.b64 %d60, 0x12F0000000000000;",
)


def _program(form: str, *body: str, out: int, variant: str = "", floats: str = "") -> Program:
    """``out`` bytes for each thread of each block."""
    find = f"mad.lo.u32 %r5, %r3, {LANES}, %t; mad.wide.u32 %to, %r5, {out}, %tail;"
    return Program(
        form, lines(_SETUP, find, *body, _SYNC), _GIVEN, variant, in_stride=16, tail=BLOCKS * LANES * out,
        shared=2 * BULK + 8, blocks=BLOCKS, floats=floats,
    )  # fmt: skip


def _init(bytes_: int) -> str:
    return lines(
        "@%p1 bra READY;", "mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 %d61, [%r2], {bytes_};", "READY:",
    )  # fmt: skip


_WAIT = "WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra WAIT;"


def address(form: str) -> Iterator[Program]:
    """A word of the other block, by the address that mapa makes of one's own."""
    word = "r" if form.endswith("u32") else "d"
    own = "%r6" if word == "r" else "%d6"
    convert = "" if word == "r" else "cvt.u64.u32 %d6, %r6;"
    generic = "" if ".shared" in form else "cvta.shared.u64 %d6, %d6;" if word == "d" else "cvta.shared.u32 %r6, %r6;"
    load = "ld.shared::cluster.b32" if ".shared" in form else "ld.b32"
    yield _program(
        form, "mad.lo.u32 %r6, %t, 4, %r1; ld.global.b32 %r7, [%from]; add.u32 %r7, %r7, %r3;",
        f"st.shared.b32 [%r6], %r7; {_SYNC}", convert, generic,
        f"{form} %{word}8, {own}, %r4; {load} %r9, [%{word}8]; st.global.b32 [%to], %r9;", out=4,
    )  # fmt: skip


def rank_of(form: str) -> Iterator[Program]:
    """The block of an address that mapa has made."""
    word = form.rpartition(".")[2]
    letter = "d" if word == "u64" else "r"
    space = ".shared::cluster" if ".shared" in form else ""
    convert = "cvt.u64.u32 %d6, %r6;" if letter == "d" else ""
    generic = "" if space else f"cvta.shared.{word} %{letter}6, %{letter}6;"
    yield _program(
        form, "add.u32 %r6, %r1, 16;", convert, generic,
        f"mapa{space}.{word} %{letter}8, %{letter}6, %r4; {form} %r9, %{letter}8; st.global.b32 [%to], %r9;", out=4,
    )  # fmt: skip


def send(form: str) -> Iterator[Program]:
    words = form.split(".")
    kind = words[-1]
    count = next((int(word[1:]) for word in words if word in ("v2", "v4")), 1)
    size = _WORDS[kind] * count
    letter = "d" if _WORDS[kind] == 8 else "r"
    values = [f"%{letter}{20 + place}" for place in range(count)]
    vector = values[0] if count == 1 else "{" + ", ".join(values) + "}"
    bits = 8 * _WORDS[kind]
    shown = (f"ld.shared.b{bits} {v}, [%r6+{i * bits // 8}]; st.global.b{bits} [%to+{i * bits // 8}], {v};"
             for i, v in enumerate(values))  # fmt: skip
    yield _program(
        form, _init(LANES * size), _SYNC, f"mad.lo.u32 %r6, %t, {size}, %r1;",
        "mapa.shared::cluster.u32 %r8, %r6, %r4; mapa.shared::cluster.u32 %r9, %r2, %r4;",
        *(f"ld.global.b{bits} {value}, [%from+{place * bits // 8}];" for place, value in enumerate(values)),
        f"{_spelled(form, 'st.async')} [%r8], {vector}, [%r9];", _WAIT, *shown, out=size,
    )  # fmt: skip


def _spelled(form: str, name: str) -> str:
    """As PTX writes it: the engine's tables leave out what must be there."""
    order = "" if name == "st.async" else ".relaxed.cluster"
    return form.replace(name, f"{name}{order}.shared::cluster") if "shared" not in form else form


def add(form: str) -> Iterator[Program]:
    """Every thread changes one of four places in the other block."""
    kind = form.rpartition(".")[2]
    letter, size = ("d", 8) if _WORDS[kind] == 8 else ("r", 4)
    own = "mad.lo.u32 %r6, %t, 8, %r1; cvt.u64.u32 %d20, %t; st.shared.b64 [%r6], %d20;"
    yield _program(
        form, own, _init(LANES * size), _SYNC, "and.b32 %r7, %t, 3; mad.lo.u32 %r7, %r7, 8, %r1;",
        "mapa.shared::cluster.u32 %r8, %r7, %r4; mapa.shared::cluster.u32 %r9, %r2, %r4;",
        "mov.u32 %r21, 100;" if ".inc" in form or ".dec" in form else f"ld.global.b{8 * size} %{letter}21, [%from];",
        f"{_spelled(form, 'red.async')} [%r8], %{letter}21, [%r9];", _WAIT,
        "ld.shared.b64 %d22, [%r6]; st.global.b64 [%to], %d22;", out=8,
    )  # fmt: skip


def to_block(form: str) -> Iterator[Program]:
    fill = "mad.lo.u32 %r6, %t, 16, %r1; ld.global.v2.b64 {%d20, %d21}, [%from]; st.shared.v2.b64 [%r6], {%d20, %d21};"
    yield _program(
        form, fill, "fence.proxy.async;", _init(BULK), _SYNC, f"add.u32 %r7, %r1, {BULK};",
        "mapa.shared::cluster.u32 %r8, %r7, %r4; mapa.shared::cluster.u32 %r9, %r2, %r4;",
        f"@!%p1 {form} [%r8], [%r1], {BULK}, [%r9];", _WAIT,
        f"ld.shared.v2.b64 {{%d22, %d23}}, [%r6+{BULK}]; st.global.v2.b64 [%to], {{%d22, %d23}};", out=16,
    )  # fmt: skip


def multicast(form: str) -> Iterator[Program]:
    """Block 0 loads for both."""
    policy = ", %d60" if "cache_hint" in form else ""
    yield _program(
        form, _init(BULK), _SYNC, "or.b32 %r7, %t, %r3; setp.ne.u32 %p3, %r7, 0; mov.b16 %h1, 3;",
        f"@!%p3 {form} [%r1], [%in], {BULK}, [%r2], %h1{policy};", _WAIT,
        "mad.lo.u32 %r6, %t, 16, %r1; ld.shared.v2.b64 {%d22, %d23}, [%r6]; st.global.v2.b64 [%to], {%d22, %d23};",
        out=16,
    )  # fmt: skip


PROGRAMS = {
    "mapa.": address,
    "getctarank.": rank_of,
    "st.async.": send,
    "red.async.": add,
    "cp.async.bulk.shared::cluster.shared::cta.": to_block,
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster": multicast,
}
