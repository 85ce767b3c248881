"""ldmatrix, stmatrix, movmatrix and mma.sync: every register of every lane."""

from __future__ import annotations

from collections.abc import Iterator

from elements import BYTES, VALUES, elements, smallest
from operands import random_bytes
from program import Program, dump_tile, fill_tile, lines, register_names

LANES = 32
TILE = 1024  # 64 rows of 16 bytes


def _row_address(form: str) -> str:
    """Each lane's row of tile, in an order that is not the lanes'."""
    generic = "" if ".shared" in form else "cvt.u64.u32 %d70, %r70; cvta.shared.u64 %d70, %d70;"
    return lines(
        "mad.lo.u32 %r71, %t, 11, 5; and.b32 %r71, %r71, 63; mov.u32 %r70, tile; mad.lo.u32 %r70, %r71, 16, %r70;",
        generic,
    )


def _registers(form: str) -> list[str]:
    return register_names("r", next(int(word[1:]) for word in form.split(".") if word in ("x1", "x2", "x4")))


def load_matrix(form: str) -> Iterator[Program]:
    names, address = _registers(form), "%r70" if ".shared" in form else "%d70"
    body = lines(
        fill_tile(TILE), _row_address(form), f"{form} {{{', '.join(names)}}}, [{address}];",
        *(f"st.global.b32 [%to+{4 * place}], {name};" for place, name in enumerate(names)),
    )  # fmt: skip
    yield Program(form, body, random_bytes("matrix", TILE), out_stride=16, shared=TILE)


def store_matrix(form: str) -> Iterator[Program]:
    names, address = _registers(form), "%r70" if ".shared" in form else "%d70"
    body = lines(
        fill_tile(TILE), _row_address(form),
        *(f"ld.global.b32 {name}, [%from+{4 * place}];" for place, name in enumerate(names)),
        f"{form} [{address}], {{{', '.join(names)}}};", dump_tile(TILE),
    )  # fmt: skip
    yield Program(form, body, random_bytes("matrix", TILE), in_stride=16, tail=TILE, shared=TILE)


def move_matrix(form: str) -> Iterator[Program]:
    body = f"ld.global.b32 %r1, [%from]; {form} %r2, %r1; st.global.b32 [%to], %r2;"
    yield Program(form, body, random_bytes("matrix", 128), in_stride=4, out_stride=8)


def multiply(form: str) -> Iterator[Program]:
    """One kernel for each kind of values."""
    words = form.split(".")
    m, rest = words[3][1:].split("n")
    n, k = map(int, rest.split("k"))
    d, a, b, c = words[-4:]
    sizes = {"d": int(m) * n, "a": int(m) * k, "b": k * n, "c": int(m) * n}
    registers, given_at, at = {}, {}, 0
    for place, (name, kind) in enumerate(zip("dabc", (d, a, b, c), strict=True)):
        word = 8 if kind == "f64" else 4
        registers[name] = register_names(
            "d" if word == 8 else "r", sizes[name] * BYTES[kind] // word // LANES, 20 * place
        )
        given_at[name] = at
        at += 0 if name == "d" else sizes[name] * BYTES[kind] // LANES
    wide = 8 if d == "f64" else 4
    body = [
        f"ld.global.b{8 * wide} {register}, [%from+{given_at[name] + wide * place}];"
        for name in "abc"
        for place, register in enumerate(registers[name])
    ]
    vectors = ", ".join("{" + ", ".join(registers[name]) + "}" for name in "dabc")
    body.append(f"{form} {vectors};")
    body += [f"st.global.b{8 * wide} [%to+{wide * place}], {name};" for place, name in enumerate(registers["d"])]
    stride = wide * len(registers["d"])
    small = ("denormal",) if a in ("f16", "e4m3", "e5m2") else ()
    for values in (*VALUES, *small, *smallest(d)):
        lanes = [
            b"".join(
                elements(f"{lane}", kind, sizes[name] // LANES, values, name)
                for name, kind in zip("abc", (a, b, c), strict=True)
            )
            for lane in range(LANES)
        ]
        yield Program(
            form, lines(*body), b"".join(lanes), values, in_stride=at, out_stride=-(-stride // 8) * 8,
            floats=d if d[0] == "f" else "",
        )  # fmt: skip


PROGRAMS = {
    "ldmatrix.": load_matrix,
    "stmatrix.": store_matrix,
    "movmatrix.": move_matrix,
    "mma.": multiply,
}
