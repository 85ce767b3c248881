"""Copies by tensor maps: boxes of every rank, partly outside, swizzled; columns of pixels; reductions; changed maps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from operands import random_bytes
from program import Map, Program, dump_tile, fill_tile, lines

TILE = 2048
_GIVEN = random_bytes("tensor", 8192)
_SIZES = (12, 7, 5, 3, 2)  # of the tensors in global memory, innermost first; as many as the rank
_BOX = (8, 3, 2, 2, 1)
_STARTS = (8, 5, -1, 0, 1)  # half of the box's first rows lies outside
_INSIDE = (4, 4, 1, 0, 1)  # of a store, which may not begin before the tensor
_SETUP = (
    f"mov.u32 %r1, tile; add.u32 %r5, %r1, {TILE}; setp.ne.u32 %p1, %t, 0;"
    " mov.b64 %d60, 0x12F0000000000000; mov.b16 %h1, 1; mov.b16 %h2, 2; mov.b16 %h3, 1; mov.b16 %h9, 1;"
)
_INIT = "mbarrier.init.shared::cta.b64 [%r5], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;"
_WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra WAIT;"


def _rank(form: str) -> int:
    found = re.search(r"\.tensor\.(\d)d", form)
    assert found is not None, form
    return int(found[1])


def _map(form: str, of: str, *, swizzle: int = 0) -> Map:
    rank = _rank(form)
    if "im2col" in form:
        # Another for each dimension: their order shows. A store may not begin a line before the tensor.
        lower, upper = ((-1, 0, -2), (0, -1, 0)) if of == "in" else ((0, 0, 0), (-1, -2, 0))
        lower, upper = lower[: rank - 2], upper[: rank - 2]
        return Map(of, _SIZES[:rank], (8, 17), swizzle, lower=lower, upper=upper)
    return Map(of, _SIZES[:rank], _BOX[:rank], swizzle)


def _coordinates(form: str, starts: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, starts[: _rank(form)])) + "}"


def _offsets(form: str) -> str:
    return ", {" + ", ".join(f"%h{place}" for place in range(1, _rank(form) - 1)) + "}" if "im2col" in form else ""


def _box_bytes(of: Map) -> int:
    return 4 * math.prod(of.box)


def load(form: str) -> Iterator[Program]:
    """The tile as it lies there: without a swizzle, and with the one whose span is the box's row."""
    policy = ", %d60" if "cache_hint" in form else ""
    receivers = ", %h9" if "multicast" in form else ""
    starts = (0, -1, 0, 1, 0) if "im2col" in form else _STARTS
    for swizzle in (0, 1):
        made = _map(form, "in", swizzle=swizzle)
        copy = f"{form} [%r1], [%map, {_coordinates(form, starts)}], [%r5]{_offsets(form)}{receivers}{policy};"
        body = lines(
            _SETUP, "mul.wide.u32 %d91, %t, 0; mad.lo.u32 %r2, %t, 8, %r1;",
            *(f"st.shared.b64 [%r2+{at}], %d91;" for at in range(0, TILE, 256)), "fence.proxy.async; bar.sync 0;",
            "@%p1 bra READY;", _INIT, f"mbarrier.arrive.expect_tx.shared::cta.b64 %d61, [%r5], {_box_bytes(made)};",
            copy, "READY: bar.sync 0;", _WAIT, dump_tile(TILE),
        )  # fmt: skip
        yield Program(form, body, _GIVEN, f"swizzle {swizzle}", tail=TILE, shared=TILE + 8, maps=(made,))


def _leave(form: str, variant: str, made: Map) -> Program:
    """One copy of the tile into ``out``, which the program shows as it is then."""
    policy = ", %d60" if "cache_hint" in form else ""
    starts = (0, 0, 0, 1, 0) if "im2col" in form else _INSIDE
    body = lines(
        _SETUP, fill_tile(TILE), "fence.proxy.async; bar.sync 0;", "@%p1 bra DONE;",
        f"{form} [%map, {_coordinates(form, starts)}], [%r1]{policy};",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", "DONE:",
    )  # fmt: skip
    return Program(form, body, _GIVEN, variant, tail=4 * math.prod(made.dims), shared=TILE, maps=(made,))


def store(form: str) -> Iterator[Program]:
    for swizzle in (0, 1):
        yield _leave(form, f"swizzle {swizzle}", _map(form, "out", swizzle=swizzle))


def reduce(form: str) -> Iterator[Program]:
    """Into what a copy has put there before; u32, for which every operation is defined."""
    made = _map(form, "out")
    first = re.sub(r"^cp\.reduce\.(.*shared::cta)\.\w+\.", r"cp.\1.", form)
    policy = ", %d60" if "cache_hint" in form else ""
    at = _coordinates(form, (0, 0, 0, 1, 0) if "im2col" in form else _INSIDE)
    wait = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    body = lines(
        _SETUP, fill_tile(TILE + 1024), "fence.proxy.async; bar.sync 0;", "@%p1 bra DONE;",
        f"{first} [%map, {at}], [%r1]{policy};", wait, f"add.u32 %r2, %r1, 1024; {form} [%map, {at}], [%r2]{policy};",
        wait, "DONE:",
    )  # fmt: skip
    yield Program(form, body, _GIVEN, tail=4 * math.prod(made.dims), shared=TILE + 1024, maps=(made,))


def prefetch(form: str) -> Iterator[Program]:
    policy = ", %d60" if "cache_hint" in form else ""
    named = f"[%map, {_coordinates(form, (0, 0, 0, 0, 0))}]{_offsets(form)}{policy}"
    body = f"{_SETUP} {form} {named}; ld.global.b64 %d61, [%from]; st.global.b64 [%to], %d61;"
    yield Program(form, body, _GIVEN, in_stride=8, out_stride=8, shared=8, maps=(_map(form, "in"),))


def prefetch_map(form: str) -> Iterator[Program]:
    """The map is a parameter: its generic address, or that in the parameters."""
    find = "mov.b64 %d1, maps;" if ".param" in form else "mov.b64 %d1, %map;"
    body = f"{find} {form} [%d1]; ld.global.b64 %d61, [%from]; st.global.b64 [%to], %d61;"
    yield Program(form, body, _GIVEN, in_stride=8, out_stride=8, maps=(Map("in", _SIZES[:2], _BOX[:2]),))


# -- maps that a kernel changes: a box of three dimensions, taken by the map as it is then

_SOLID = Map("in", _SIZES[:3], _BOX[:3])
_PLACE = ".global .align 128 .b8 place_ENTRY[128];\n"  # where the copy takes the map from
_PROXY = "tensormap::generic"


@dataclass(frozen=True)
class Change:
    """``operands`` of tensormap.replace after the address; the map before, and the box and its bytes afterwards."""

    operands: str
    before: Map = _SOLID
    rank: int = 3
    elements: int = 8 * 3 * 2


_CHANGES = {
    "global_address": Change("%d40"),
    "rank": Change("%r40", rank=2, elements=8 * 3),
    "box_dim": Change("1, %r41", elements=8 * 2 * 2),
    "global_dim": Change("1, %r42"),
    "global_stride": Change("0, %d41"),
    "element_stride": Change("1, %r43", elements=8 * 2 * 2),
    "elemtype": Change("11", before=replace(_SOLID, kind=7)),  # tf32: rounded
    "interleave_layout": Change("0"),
    "swizzle_mode": Change("1"),
    "fill_mode": Change("1", before=replace(_SOLID, kind=7)),
}
_VALUES = (
    "add.u64 %d40, %in, 336; mov.u64 %d41, 64; mov.u32 %r40, 1; mov.u32 %r41, 2; mov.u32 %r42, 4; mov.u32 %r43, 2;"
)


def change(form: str) -> Iterator[Program]:
    """One field of a map in shared or global memory."""
    field = form.split(".")[3]
    yield _changed(form, form, _CHANGES[field])


def hand_on(form: str) -> Iterator[Program]:
    """Copies that release, and fences, of a map with another address."""
    space = ".global" if "release" in form and "fence." in form else ".shared::cta"
    yield _changed(form, f"tensormap.replace.tile.global_address{space}.b1024.b64", _CHANGES["global_address"])


def _changed(form: str, replaces: str, how: Change) -> Program:
    """The map stands behind the mbarrier in shared memory, or at once where the copy takes it from."""
    in_global = ".global." in replaces
    copies = (
        form
        if form.startswith("tensormap.cp")
        else (f"tensormap.cp_fenceproxy.global.shared::cta.{_PROXY}.release.gpu.sync.aligned")
    )
    releases = form if "release" in form and "fence." in form else f"fence.proxy.{_PROXY}.release.gpu"
    acquires = form if "acquire" in form else f"fence.proxy.{_PROXY}.acquire.gpu"
    address = "%d50" if in_global else "%r6" if ".shared::cta." in replaces else "%d51"
    store = "st.global.b32 [%d53], %r50;" if in_global else "st.shared.b32 [%r51], %r50;"
    at = ", ".join(map(str, (8, 2, 1)[: how.rank]))  # half of each row lies outside
    body = lines(
        _SETUP, _VALUES, "mul.wide.u32 %d91, %t, 0; mad.lo.u32 %r2, %t, 8, %r1;",
        *(f"st.shared.b64 [%r2+{at}], %d91;" for at in range(0, TILE, 256)),
        "mov.u64 %d50, place_ENTRY; cvta.global.u64 %d52, %d50; add.u32 %r6, %r5, 128; cvt.u64.u32 %d51, %r6;",
        "cvta.shared.u64 %d51, %d51; mad.wide.u32 %d54, %t, 4, %map; ld.b32 %r50, [%d54];",
        f"mad.wide.u32 %d53, %t, 4, %d50; mad.lo.u32 %r51, %t, 4, %r6; {store} fence.proxy.async; bar.sync 0;",
        f"@!%p1 {replaces} [{address}], {how.operands};", "bar.sync 0;",
        f"@!%p1 {releases};" if in_global else f"{copies} [%d50], [%r6], 128;", "bar.sync 0;",
        "@%p1 bra READY;", f"{acquires} [%d52], 128;", _INIT,
        f"mbarrier.arrive.expect_tx.shared::cta.b64 %d61, [%r5], {4 * how.elements};",
        f"cp.async.bulk.tensor.{how.rank}d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d52, {{{at}}}],"
        " [%r5];",
        "READY: bar.sync 0;", _WAIT, dump_tile(TILE),
    )  # fmt: skip
    return Program(form, body, _GIVEN, tail=TILE, shared=TILE + 256, head=_PLACE, maps=(how.before,))


PROGRAMS = {
    "tensormap.replace.": change,
    "tensormap.cp_fenceproxy.": hand_on,
    f"fence.proxy.{_PROXY}.": hand_on,
    "cp.async.bulk.tensor.": lambda form: store(form) if ".global.shared::cta" in form else load(form),
    "cp.reduce.async.bulk.tensor.": reduce,
    "cp.async.bulk.prefetch.tensor.": prefetch,
    **{f"prefetch{space}.tensormap": prefetch_map for space in ("", ".param")},
}
