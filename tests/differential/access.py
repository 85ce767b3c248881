"""ld, st and what only concerns addresses and caches: every form in every space, with every order and hint.

A modifier changes neither the bytes nor the form's row, so all of a space's stand in one kernel, each with results of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from operands import random_bytes
from program import Program, fill_tile, lines, listed, register_names

STRIDE = 32  # bytes of a thread: the widest access
_BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b128": 16}
_LETTERS = {1: "h", 2: "h", 4: "r", 8: "d", 16: "q"}

_SCOPES = ("cta", "cluster", "gpu", "sys")
_RELAXED = tuple(f".relaxed.{scope}" for scope in _SCOPES)
_EVICTION = (".L1::evict_normal", ".L1::evict_first", ".L1::evict_last", ".L1::evict_unchanged", ".L1::no_allocate")
_LOAD_ORDERS = ("", ".weak", ".volatile", *_RELAXED, *(f".acquire.{scope}" for scope in _SCOPES))
_STORE_ORDERS = ("", ".weak", ".volatile", *_RELAXED, *(f".release.{scope}" for scope in _SCOPES))
_LOAD_HINTS = (".ca", ".cg", ".cs", ".lu", ".cv", ".nc", *_EVICTION, ".L2::64B", ".L2::128B", ".L2::256B")
_STORE_HINTS = (".wb", ".cg", ".cs", ".wt", *_EVICTION)

# Space -> (orders, hints); "" is global memory at a generic address; b128 has orders of the whole system alone.
_LOADS = {
    "": (_LOAD_ORDERS, ()),
    ".global": (_LOAD_ORDERS, (*_LOAD_HINTS, ".nc.L1::no_allocate.L2::128B")),
    ".shared": (_LOAD_ORDERS, ()),
    ".shared::cta": (_LOAD_ORDERS, ()),
    ".local": (("", ".weak"), (".ca", ".lu")),
    ".const": (("",), ()),
    ".param": (("",), ()),
    "generic shared": (_LOAD_ORDERS, ()),
    "generic local": (("", ".weak"), ()),
}
_STORES = {
    "": (_STORE_ORDERS, ()),
    ".global": (_STORE_ORDERS, _STORE_HINTS),
    ".shared": (_STORE_ORDERS, ()),
    ".shared::cta": (_STORE_ORDERS, ()),
    ".local": (("", ".weak"), (".wb", ".wt")),
    "generic shared": (_STORE_ORDERS, ()),
    "generic local": (("", ".weak"), ()),
}


def _parts(form: str) -> tuple[str, str, int, int]:
    """ "ld.v2.u16" -> ".v2.u16", "u16", bytes of an element, elements"""
    words = form.split(".")
    count = int(words[1][1:]) if words[1].startswith("v") else 1
    kind = words[-1]
    size = _BYTES.get(kind) or (4 if "32" in kind or kind.endswith("x2") else 8)
    return "." + ".".join(words[1:]), kind, size, count


def _instructions(form: str, spaces: dict[str, tuple[tuple[str, ...], tuple[str, ...]]], space: str) -> list[str]:
    """The instruction with each order, and with each hint."""
    name, rest = form.split(".")[0], _parts(form)[0]
    orders, hints = spaces[space]
    space = "" if space.startswith("generic") else space
    if rest == ".b128":
        orders = tuple(order for order in orders if order.count(".") < 2 or order.endswith(".sys"))
    return [
        *(f"{name}{order}{space}{rest}" for order in orders),
        *(f"{name}{space}{hint}{rest}" for hint in hints),
    ]  # fmt: skip


def _widths(kind: str, size: int) -> list[int]:
    """Bytes of the registers that may hold the type: an integer's may be wider."""
    return [size] if kind[0] in "f" or kind.startswith("bf") or size > 4 else [max(size, 2), 8]


_PLACES = {
    "": ("", "%from"),
    ".global": ("", "%from"),
    ".shared": (fill_tile(32 * STRIDE) + " mov.u32 %r81, tile; mad.lo.u32 %r80, %t, 32, %r81;", "%r80"),
    ".local": (
        lines(
            ".local .align 32 .b8 own[32]; mov.u64 %d80, own;",
            *(f"ld.global.b64 %d81, [%from+{at}]; st.local.b64 [%d80+{at}], %d81;" for at in range(0, STRIDE, 8)),
        ),
        "%d80",
    ),
    ".const": ("mov.u64 %d80, ENTRY_table; and.b32 %r80, %t, 3; mad.wide.u32 %d80, %r80, 32, %d80;", "%d80"),
    ".param": ("", "bytes"),
}  # fmt: skip
_PLACES[".shared::cta"] = _PLACES[".shared"]
_PLACES["generic shared"] = (_PLACES[".shared"][0] + " cvt.u64.u32 %d80, %r80; cvta.shared.u64 %d80, %d80;", "%d80")
_PLACES["generic local"] = (_PLACES[".local"][0] + " cvta.local.u64 %d80, %d80;", "%d80")


def load(form: str) -> Iterator[Program]:
    _, kind, size, count = _parts(form)
    given = random_bytes("access", 32 * STRIDE)
    for space in _LOADS:
        setup, address = _PLACES[space]
        body, at = [setup], 0
        for instruction in _instructions(form, _LOADS, space):
            for width in _widths(kind, size):
                registers = register_names(_LETTERS[width], count)
                body.append(f"{instruction} {listed(registers)}, [{address}];")
                for name in registers:
                    body.append(f"st.global.b{8 * width} [%to+{at}], {name};")
                    at += max(width, 8)
        head = _table(given[:128]) if space == ".const" else ""
        stride = -(-at // STRIDE) * STRIDE
        yield Program(
            form, lines(*body), given, space, in_stride=STRIDE, out_stride=stride, shared=32 * STRIDE, head=head
        )


def _table(data: bytes) -> str:
    return f".const .align 32 .b8 ENTRY_table[{len(data)}] = {{{', '.join(map(str, data))}}};\n"


def store(form: str) -> Iterator[Program]:
    """Into zeroed memory, all of which is shown."""
    _, kind, size, count = _parts(form)
    for space in _STORES:
        setup, address = _PLACES[space]
        body, at = [setup], 0
        for width in _widths(kind, size):
            names = register_names(_LETTERS[width], count)
            loaded = ((name, place * size // width * width) for place, name in enumerate(names))
            body += [f"ld.global.b{8 * width} {name}, [%from+{start}];" for name, start in loaded]
            for instruction in _instructions(form, _STORES, space):
                body += _stored(f"{instruction} [PLACE], {listed(names)};", space, address, at)
                at += STRIDE
        given = random_bytes("access", 32 * STRIDE + 64)
        yield Program(form, lines(*body), given, space, in_stride=STRIDE, out_stride=at, shared=32 * STRIDE)


def _stored(instruction: str, space: str, address: str, at: int) -> list[str]:
    """The store at PLACE, and what it left shown at %to + ``at``, where global memory is stored to itself."""
    if space in ("", ".global"):
        return [instruction.replace("PLACE", f"%to+{at}")]
    inner = "" if space.startswith("generic") else space
    parts = range(0, STRIDE, 8)
    return [
        *(f"st{inner}.b64 [{address}+{part}], 0;" for part in parts),
        instruction.replace("PLACE", address),
        *(f"ld{inner}.b64 %d81, [{address}+{part}]; st.global.b64 [%to+{at + part}], %d81;" for part in parts),
    ]


# -- addresses -------------------------------------------------------------------------------------------------------

# Space -> what makes %d1 an address in it, and %d2 the same place as a generic address.
_LOCAL = ".local .align 8 .b8 own[8]; mov.u64 %d1, own;"
_ADDRESSES = {
    "global": "mov.u64 %d1, %to;",
    "shared": "mov.u64 %d1, tile; mad.wide.u32 %d1, %t, 8, %d1;",
    "local": _LOCAL,
    "const": "mov.u64 %d1, ENTRY_table; mad.wide.u32 %d1, %t, 8, %d1;",
    "param": "mov.b64 %d1, bytes;",
}
_ADDRESSES["shared::cta"] = _ADDRESSES["shared::cluster"] = _ADDRESSES["shared"]


def convert_address(form: str) -> Iterator[Program]:
    """What is written through one address is read through the other; there and back is where it began."""
    words = form.split(".")
    space = words[-2]
    reads = space in ("const", "param")
    to, back = (f"cvta.{space}.u64", f"cvta.to.{space}.u64")
    plain = space.split("::")[0]
    body = lines(
        _ADDRESSES[space],
        f"{to} %d2, %d1; {back} %d3, %d2; setp.eq.u64 %p1, %d1, %d3; selp.u32 %r1, 1, 0, %p1;",
        "" if reads else "st.u32 [%d2], %t;",
        f"ld.u32 %r2, [%d2]; ld.{plain}.u32 %r3, [%d3];",
        "st.global.b32 [%to], %r1; st.global.b32 [%to+4], %r2; st.global.b32 [%to+8], %r3;",
    )
    head = _table(random_bytes("access", 256)) if space == "const" else ""
    yield Program(form, body, out_stride=16, shared=256, head=head)


def is_in_space(form: str) -> Iterator[Program]:
    body = [_LOCAL.replace("%d1", "%d4") + " cvta.local.u64 %d4, %d4;"]
    body.append("mov.u64 %d5, tile; cvta.shared.u64 %d5, %d5; mov.u64 %d6, %to; mov.u64 %d7, %in;")
    for place, address in enumerate(("%d4", "%d5", "%d6", "%d7")):
        body.append(f"{form} %p1, {address}; selp.u32 %r1, 1, 0, %p1; st.global.b32 [%to+{4 * place}], %r1;")
    yield Program(form, lines(*body), bytes(8), out_stride=16, shared=64)


# -- caches ----------------------------------------------------------------------------------------------------------


def cache(form: str) -> Iterator[Program]:
    """What is in memory stays there. Discarded bytes are undefined until they are written again."""
    local = ".local" in form
    setup = _LOCAL + " st.local.u32 [%d1], %t;" if local else "mad.wide.u32 %d1, %t, 128, %tail;"
    operand = ", 128" if form.startswith(("discard", "applypriority")) else ""
    space = "local" if local else "global"
    write = f"st.{space}.u32 [%d1], %t;"
    after = write if form.startswith("discard") else ""
    body = lines(
        setup, write, f"{form} [%d1]{operand};", after, f"ld.{space}.u32 %r1, [%d1]; st.global.b32 [%to], %r1;"
    )
    # The first line of the tail is the first that begins at a multiple of 128.
    yield Program(form, body, out_stride=128, tail=32 * 128)


PROGRAMS = {
    "ld.": load,
    "st.": store,
    "cvta.": convert_address,
    "isspacep.": is_in_space,
    **{f"{name}.": cache for name in ("prefetch", "prefetchu", "discard", "applypriority")},
}
