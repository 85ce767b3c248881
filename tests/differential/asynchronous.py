"""cp.async and cp.async.bulk: what lies at the target once the copy was waited for."""

from __future__ import annotations

from collections.abc import Iterator

from operands import random_bytes
from program import Program, dump_tile, fill_tile, lines

LANES = 32
STRIDE = 16  # bytes of a lane: the widest copy
POLICY = "mov.b64 %d60, 0x12F0000000000000;"  # evict first
BULK = 1024

_OWN = f"mov.u32 %r1, tile; mad.lo.u32 %r1, %t, {STRIDE}, %r1;"
_GIVEN = random_bytes("asynchronous", 4 * LANES * STRIDE)


def _shown(at: int) -> str:
    return lines(
        *(
            f"ld.shared.b64 %d61, [%r1+{8 * half}]; st.global.b64 [%to+{at + 8 * half}], %d61;"
            f" st.shared.b64 [%r1+{8 * half}], 0;"
            for half in (0, 1)
        )
    )


def copy(form: str) -> Iterator[Program]:
    """Every size; a part of it with the rest zeroed; and with the source ignored by every third lane."""
    policy = ", %d60" if "cache_hint" in form else ""
    body, at = [POLICY, _OWN, "st.shared.b64 [%r1], 0; st.shared.b64 [%r1+8], 0;"], 0
    body.append("rem.u32 %r3, %t, 3; setp.eq.u32 %p1, %r3, 0;")
    for size in (4, 8, 16) if ".ca." in form else (16,):
        body.append(f"rem.u32 %r2, %t, {size + 1};")
        for extra in ("", ", %r2", ", %p1", f", {size // 2}"):
            body.append(f"{form} [%r1], [%from], {size}{extra}{policy}; cp.async.wait_all;")
            body.append(_shown(at))
            at += STRIDE
    yield Program(form, lines(*body), _GIVEN, in_stride=STRIDE, out_stride=at, shared=LANES * STRIDE)


def groups(form: str) -> Iterator[Program]:
    """Three groups; two are waited for, then the last."""
    row = LANES * STRIDE
    group = "cp.async.cg.shared.global [%r1+{0}], [%from+{0}], 16; cp.async.commit_group;"
    waits = (
        ("cp.async.wait_all;",) * 2
        if form.endswith("wait_all")
        else ("cp.async.wait_group 1;", "cp.async.wait_group 0;")
    )
    show = "ld.shared.b64 %d61, [%r1+{0}]; st.global.b64 [%to+{1}], %d61;"
    body = lines(
        _OWN, *(group.format(place * row) for place in range(3)), waits[0], show.format(0, 0), show.format(row, 8),
        waits[1], show.format(2 * row, 16), "cp.async.commit_group; cp.async.wait_all;",
    )  # fmt: skip
    yield Program(form, body, _GIVEN, in_stride=STRIDE, out_stride=24, shared=3 * row)


_BARRIER = f"mov.u32 %r5, tile; add.u32 %r5, %r5, {BULK}; setp.ne.u32 %p1, %t, 0; mov.u32 %r6, tile;"
_WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra WAIT;"


def bulk_load(form: str) -> Iterator[Program]:
    policy = ", %d60" if "cache_hint" in form else ""
    body = lines(
        POLICY, _BARRIER, "@%p1 bra READY;",
        "mbarrier.init.shared::cta.b64 [%r5], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 %d61, [%r5], {BULK};",
        f"{form} [%r6], [%in+16], {BULK - 16}, [%r5]{policy};",
        f"{form} [%r6+{BULK - 16}], [%in], 16, [%r5]{policy};",
        "READY: bar.sync 0;", _WAIT, dump_tile(BULK),
    )  # fmt: skip
    yield Program(form, body, _GIVEN, tail=BULK, shared=BULK + 8)


def bulk_store(form: str) -> Iterator[Program]:
    """Also what commits and waits for such copies."""
    copies = form if ".global.shared" in form else "cp.async.bulk.global.shared::cta.bulk_group"
    wait = form if "wait_group" in form else "cp.async.bulk.wait_group"
    policy = ", %d60" if "cache_hint" in copies else ""
    body = lines(
        POLICY, fill_tile(BULK), "fence.proxy.async; bar.sync 0;",
        "mov.u32 %r6, tile; setp.ne.u32 %p1, %t, 0; @%p1 bra DONE;",
        f"{copies} [%tail], [%r6+16], {BULK - 16}{policy}; cp.async.bulk.commit_group;",
        f"{copies} [%tail+{BULK - 16}], [%r6], 16{policy}; cp.async.bulk.commit_group;",
        f"{wait} 1; {wait} 0;", "DONE:",
    )  # fmt: skip
    yield Program(form, body, _GIVEN, tail=BULK, shared=BULK)


def bulk_reduce(form: str) -> Iterator[Program]:
    """Into what a copy has put there before."""
    policy = ", %d60" if "cache_hint" in form else ""
    first = "cp.async.bulk.global.shared::cta.bulk_group [%tail], [%r6], 512;"
    wait = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    kind = form.rpartition(".")[2]
    body = lines(
        POLICY, fill_tile(BULK), "fence.proxy.async; bar.sync 0;",
        "mov.u32 %r6, tile; setp.ne.u32 %p1, %t, 0; @%p1 bra DONE;", first, wait,
        f"{form} [%tail], [%r6+512], 512{policy};", wait, "DONE:",
    )  # fmt: skip
    floats = kind if kind in ("f16", "bf16", "f32", "f64") else ""
    yield Program(form, body, _GIVEN, tail=512, shared=BULK, floats=floats)


def bulk_prefetch(form: str) -> Iterator[Program]:
    policy = ", %d60" if "cache_hint" in form else ""
    body = f"{POLICY} {form} [%in], {BULK}{policy}; ld.global.b64 %d61, [%from]; st.global.b64 [%to], %d61;"
    yield Program(form, body, _GIVEN, in_stride=STRIDE, out_stride=8)


def arrive(form: str) -> Iterator[Program]:
    """The barrier's phase ends when all lanes' copies have landed: each lane then reads what another copied."""
    address = "%r5" if ".shared" in form else "%d62"
    arrivals = "" if ".noinc" in form else "mbarrier.arrive.shared::cta.b64 %d61, [%r5];"
    body = lines(
        _BARRIER, "cvt.u64.u32 %d62, %r5; cvta.shared.u64 %d62, %d62;", _OWN,
        f"@!%p1 mbarrier.init.shared::cta.b64 [%r5], {LANES}; bar.sync 0;",
        f"cp.async.cg.shared.global [%r1], [%from], 16; {form} [{address}]; {arrivals}", _WAIT,
        f"xor.b32 %r3, %t, 13; mad.lo.u32 %r3, %r3, {STRIDE}, %r6;",
        "ld.shared.b64 %d61, [%r3]; st.global.b64 [%to], %d61;",
    )  # fmt: skip
    yield Program(form, body, _GIVEN, in_stride=STRIDE, out_stride=8, shared=BULK + 8)


PROGRAMS = {
    **{f"cp.async.{kind}.": copy for kind in ("ca", "cg")},
    **{f"cp.async.{name}": groups for name in ("commit_group", "wait_group", "wait_all")},
    "cp.async.bulk.shared": bulk_load,
    "cp.async.bulk.prefetch": bulk_prefetch,
    "cp.reduce.async.bulk.": bulk_reduce,
    **{f"cp.async.bulk.{name}": bulk_store for name in ("global", "commit_group", "wait_group")},
    "cp.async.mbarrier.arrive": arrive,
}
