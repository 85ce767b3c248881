"""wmma: which register of which lane holds which element, and products of whole tiles.

A fragment that was loaded is shown as it lies in the registers, since a learner reads ``frag.x[i]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elements import BYTES, VALUES, elements, smallest
from program import Program, dump_tile, fill_tile, lines, register_names

LANES = 32
ENOUGH = 2048  # bytes: the largest tile, with room between its lines


@dataclass(frozen=True)
class _Tile:
    """One operand of wmma: ``letter`` is a, b, c or d."""

    letter: str
    shape: str
    kind: str
    major: str

    @property
    def extent(self) -> tuple[int, int]:
        m, rest = self.shape[1:].split("n")
        n, k = rest.split("k")
        rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[self.letter]
        return int(rows), int(columns)

    @property
    def line(self) -> int:
        """Elements that lie one after the other."""
        rows, columns = self.extent
        return columns if self.major == "row" else rows

    @property
    def bytes(self) -> int:
        rows, columns = self.extent
        return rows * columns * BYTES[self.kind]

    @property
    def registers(self) -> int:
        """Fragments of halves have eight registers in every shape."""
        if self.kind == "f16" and self.letter in "ab":
            return 8
        return self.bytes // LANES // self.width

    @property
    def width(self) -> int:
        return 8 if self.kind == "f64" else 4

    def names(self, first: int) -> list[str]:
        return register_names("d" if self.width == 8 else "r", self.registers, first)

    def load(self, names: list[str], address: str, space: str = ".global", stride: str = "") -> str:
        what = "c" if self.letter == "d" else self.letter
        form = f"wmma.load.{what}.sync.aligned.{self.major}.{self.shape}{space}.{self.kind}"
        return f"{form} {{{', '.join(names)}}}, [{address}]{stride};"

    def shown(self, names: list[str]) -> list[str]:
        return [f"st.global.b{8 * self.width} [%to+{self.width * place}], {name};" for place, name in enumerate(names)]


def _parse(form: str) -> tuple[_Tile, str]:
    """The tile of a load or store, and its space: "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"."""
    words = form.split(".")
    return _Tile(words[2], words[6], words[-1], words[5]), "" if len(words) == 8 else f".{words[7]}"


def _address(space: str) -> tuple[str, str]:
    """(what fills the space, the address in it)"""
    return (fill_tile(ENOUGH) + " mov.u32 %r80, tile;", "%r80") if "shared" in space else ("", "%in")


def load(form: str) -> Iterator[Program]:
    """Lines that lie next to each other, and lines 16 bytes further apart."""
    tile, space = _parse(form)
    setup, address = _address(space)
    apart = tile.line + 16 // BYTES[tile.kind]
    given = elements("wmma", tile.kind, ENOUGH // BYTES[tile.kind], "normal")
    for variant, stride in (("", ""), ("apart", f", {apart}")):
        names = tile.names(0)
        body = lines(setup, tile.load(names, address, space, stride), *tile.shown(names))
        yield Program(form, body, given, variant, out_stride=-(-tile.registers * tile.width // 8) * 8, shared=ENOUGH)


def store(form: str) -> Iterator[Program]:
    tile, space = _parse(form)
    apart = tile.line + 16 // BYTES[tile.kind]
    given = elements("wmma", tile.kind, ENOUGH // BYTES[tile.kind], "normal")
    address = "%r80" if "shared" in space else "%tail"
    for variant, stride in (("", ""), ("apart", f", {apart}")):
        names = tile.names(0)
        zeros = "mov.u32 %r80, tile; mad.lo.u32 %r81, %t, 8, %r80;" + "".join(
            f" st.shared.b64 [%r81+{at}], 0;" for at in range(0, ENOUGH, 256)
        )
        store = f"{form} [{address}], {{{', '.join(names)}}}{stride};"
        inner = (zeros + " bar.sync 0;", dump_tile(ENOUGH)) if "shared" in space else ("", "")
        body = lines(inner[0], tile.load(names, "%in"), store, inner[1])
        yield Program(form, body, given, variant, tail=ENOUGH, shared=ENOUGH)


def multiply(form: str) -> Iterator[Program]:
    """The tiles are loaded by wmma.load, since the registers are the hardware's own affair; so is what is shown."""
    words = [word for word in form.split(".") if word not in ("rn", "satfinite")]
    shape, types = words[6], words[7:]
    if len(types) == 2:  # halves: the types of d and c alone
        types = [types[0], "f16", "f16", types[1]]
    tiles = [_Tile(letter, shape, kind, major) for letter, kind, major in zip(
        "dabc", types, ("row", words[4], words[5], "row"), strict=True)]  # fmt: skip
    names = [tile.names(24 * place) for place, tile in enumerate(tiles)]
    starts = [0, 0, tiles[1].bytes, tiles[1].bytes + tiles[2].bytes]
    body = lines(
        *(tile.load(of, f"%in+{start}") for tile, of, start in list(zip(tiles, names, starts, strict=True))[1:]),
        f"{form} " + ", ".join("{" + ", ".join(of) + "}" for of in names) + ";",
        *tiles[0].shown(names[0]),
    )
    for values in (*VALUES, *smallest(tiles[0].kind)):
        given = b"".join(
            elements(tile.letter, tile.kind, tile.bytes // BYTES[tile.kind], values, tile.letter) for tile in tiles[1:]
        )
        yield Program(
            form, body, given, values, out_stride=-(-tiles[0].registers * tiles[0].width // 8) * 8,
            floats=tiles[0].kind if tiles[0].kind[0] == "f" else "",
        )  # fmt: skip


PROGRAMS = {"wmma.load.": load, "wmma.store.": store, "wmma.mma.": multiply}
