"""The pictures of the hopper_copy lesson: a ring of stages with its parities, and a box with its swizzle.

    python docs/hopper_copy.py     writes docs/hopper_copy_ring.svg and docs/hopper_copy_box.svg

The ring's times follow from the loop of bulk_copy_ring_f32 and from three durations. Both pictures are plain text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TILES, STAGES = 10, 4
LOAD, READ, ISSUE = 8.0, 2.5, 1.0  # one load's latency; the engine reads a tile; between two tiles at the engine

BY_PARITY = ("#2f6f9f", "#c0392b")
OUT, GRID, INK = "#9aa5b1", "#d6dde4", "#1f2933"


@dataclass(frozen=True)
class Tile:
    """When one tile's copy in is issued and has ended, and when its copy out is issued and has read the stage."""

    issued: float
    there: float
    stored: float
    read: float


def ring() -> list[Tile]:
    """The tiles of one block, as the loop of bulk_copy_ring_f32 moves them. Copies in arrive ISSUE apart at least."""
    issued = [k * 0.2 for k in range(STAGES)]
    tiles: list[Tile] = []
    now, arrived, was_read = issued[-1], 0.0, 0.0
    for k in range(TILES):
        arrived = max(issued[k] + LOAD, arrived + ISSUE)
        now = max(now, arrived)
        was_read = max(now, was_read) + READ
        tiles.append(Tile(issued[k], arrived, now, was_read))
        if k > 0 and k - 1 + STAGES < TILES:
            now = max(now, tiles[k - 1].read)
            issued.append(now)
    return tiles


def place_of(row: int, chunk: int) -> int:
    """Where the 128-byte swizzle puts a chunk of 16 bytes in its row, if the tile begins at a multiple of 1024."""
    return chunk ^ row % 8


def box(x: float, y: float, width: float, height: float, fill: str, *, line: str = "#ffffff") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
        f'stroke="{line}" stroke-width="1"/>'
    )


def text(x: float, y: float, words: str, *, fill: str = INK, size: int = 12, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">{words}</text>'


def picture(width: int, height: int, parts: Iterator[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif">'
    )
    return "\n".join([head, box(0, 0, width, height, "#ffffff"), *parts, "</svg>"]) + "\n"


def ring_parts() -> Iterator[str]:
    left, top, unit, high = 80, 34, 20, 40
    tiles = ring()
    yield text(left, 20, "one block of bulk_copy_ring_f32; time goes to the right", anchor="start", size=13)
    for stage in range(STAGES):
        y = top + stage * high
        yield text(left - 12, y + 21, f"stage {stage}", anchor="end")
        yield box(left, y, unit * tiles[-1].read + 6, high - 6, "#f4f6f8")
    for k, tile in enumerate(tiles):
        y = top + k % STAGES * high
        parity = k // STAGES % 2
        yield box(left + unit * tile.issued, y, unit * (tile.there - tile.issued), high - 6, BY_PARITY[parity])
        middle = left + unit * (tile.issued + tile.there) / 2
        yield text(middle, y + 15, f"tile {k} in", fill="#ffffff")
        yield text(middle, y + 29, f"phase {k // STAGES}, parity {parity}", fill="#ffffff", size=10)
        yield box(left + unit * tile.stored, y, unit * (tile.read - tile.stored), high - 6, OUT)
        yield text(left + unit * (tile.stored + tile.read) / 2, y + 21, f"out {k}", size=11)
    y = top + STAGES * high + 16
    yield text(
        left,
        y,
        "blue and red: copy in flight, until the barrier's phase ends. grey: copy out, until the stage has been read",
        anchor="start",
        size=11,
    )


def box_parts() -> Iterator[str]:
    yield text(20, 22, "a box at the left edge of x", anchor="start", size=13)
    x, y, unit = 60, 50, 16
    yield box(x, y, 10 * unit, 10 * unit, "#e8eef4", line=INK)
    yield text(x + 7 * unit, y + 9.3 * unit, "x [M, N]")
    yield box(x - 2 * unit, y - unit, 2 * unit, 6 * unit, "#f2c9c3", line=BY_PARITY[1])
    yield box(x, y - unit, 5 * unit, unit, "#f2c9c3", line=BY_PARITY[1])
    yield box(x, y, 5 * unit, 5 * unit, "#a9c8e0", line=BY_PARITY[0])
    yield text(x + 2.5 * unit, y + 2.7 * unit, "from x")
    yield text(x + 1.5 * unit, y - 0.25 * unit, "0", size=11)
    yield text(x - unit, y + 2.7 * unit, "0", size=11)
    for line, words in enumerate(("all of the box arrives", "in shared memory, and", "the barrier counts all of it")):
        yield text(20, y + 11.4 * unit + 15 * line, words, anchor="start", size=11)
    x, y, wide, high = 330, 62, 44, 21
    yield text(x, 22, "the 128-byte swizzle of a tile at a multiple of 1024", anchor="start", size=13)
    yield text(x, 40, "place in the row, bits 4 to 6 of the address, and its banks", anchor="start", size=11)
    for place in range(8):
        yield text(x + (place + 0.5) * wide, y - 6, f"{4 * place}-{4 * place + 3}", size=9)
    for row in range(8):
        yield text(x - 8, y + (row + 0.68) * high, f"row {row}", anchor="end", size=11)
        for chunk in range(8):
            place = place_of(row, chunk)
            dark = chunk == 0
            fill = BY_PARITY[1] if dark else "#e8eef4"
            yield box(x + place * wide, y + row * high, wide, high, fill)
            ink = "#ffffff" if dark else INK
            yield text(x + (place + 0.5) * wide, y + (row + 0.68) * high, f"chunk {chunk}", fill=ink, size=10)
    yield text(
        x, y + 8 * high + 16, "row: bits 7 to 9. Chunk j of row r is in place j ^ (r % 8).", anchor="start", size=11
    )
    yield text(x, y + 8 * high + 31, "A column of eight chunks lies in 32 different banks.", anchor="start", size=11)


PICTURES = {
    "hopper_copy_ring.svg": lambda: picture(800, 226, ring_parts()),
    "hopper_copy_box.svg": lambda: picture(700, 290, box_parts()),
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(__file__).parent / name).write_text(draw())
