"""Tiles of a single-pass scan -> when each knows its prefix, by a chain and by look-back, and docs/lookback.svg.

    python docs/lookback.py          print the table and draw the picture
    python docs/lookback.py --table  only the table

A model, not a measurement. All tiles start at 0. Tile i has loaded and scanned its elements at READY[i]. A number that
one block stores is in another block's register LATENCY later. A chained tile waits for the prefix of the tile before.
A tile that looks back reads the states of WINDOW tiles at a time. It reads a window again while nothing is known of one
of them, stops at the nearest prefix, and goes on to the window before if there is none.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

TILES, WINDOW = 24, 8
LATENCY = 0.7  # microseconds
READY = [random.Random(tile).uniform(1.0, 2.0) for tile in range(TILES)]  # the same numbers every time

MARGIN, ROW, MICROSECOND, GAP = 46, 13, 26, 40  # pixels
HEAD, FOOT = 44, 58
COLOURS = {"loads": "#c9ced6", "waits, its sum is published": "#8ec5f0", "its prefix is published": "#1f5fa8"}


@dataclass(frozen=True)
class Tile:
    """``ready``: its own sum is known. ``prefix``: the sum of all tiles up to it is known. ``reads``: of windows."""

    ready: float
    prefix: float
    reads: int


def chained() -> list[Tile]:
    tiles: list[Tile] = []
    for ready in READY:
        came = tiles[-1].prefix + LATENCY if tiles else 0.0
        tiles.append(Tile(ready, max(ready, came), min(len(tiles), 1)))
    return tiles


def look_back() -> list[Tile]:
    tiles: list[Tile] = []
    for ready in READY:
        now, last, reads = ready, len(tiles) - 1, 0
        while last >= 0:
            now += LATENCY
            seen_at = now - LATENCY / 2  # half of a round trip ago
            window = tiles[max(0, last - WINDOW + 1) : last + 1]
            reads += 1
            if any(tile.ready + LATENCY / 2 > seen_at for tile in window):
                continue
            if any(tile.prefix + LATENCY / 2 <= seen_at for tile in window):
                break
            last -= WINDOW
        tiles.append(Tile(ready, now, reads))
    return tiles


def table() -> str:
    lines = ["tile   own sum    prefix, chained    prefix, look-back    windows read"]
    pairs = list(zip(chained(), look_back(), strict=True))
    for tile in (0, 1, 2, 7, 8, 15, 16, 23):
        chain, look = pairs[tile]
        lines.append(f"{tile:4}{chain.ready:10.1f}{chain.prefix:19.1f}{look.prefix:21.1f}{look.reads:16}")
    return "\n".join(lines)


def bar(left: float, top: float, begin: float, end: float, colour: str) -> str:
    place = f'x="{left + begin * MICROSECOND:.1f}" y="{top:.1f}"'
    return f'<rect {place} width="{(end - begin) * MICROSECOND:.1f}" height="{ROW - 3}" fill="{colour}"/>'


def words(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def panel(left: float, title: str, tiles: list[Tile], end: float) -> list[str]:
    loads, waits, known = COLOURS.values()
    parts = [words(left, HEAD - 22, title)]
    for number, tile in enumerate(tiles):
        top = HEAD + number * ROW
        if number % 4 == 0:
            parts.append(words(left - 6, top + ROW - 4, f"{number}", "end"))
        parts.append(bar(left, top, 0.0, tile.ready, loads))
        parts.append(bar(left, top, tile.ready, tile.prefix, waits))
        parts.append(bar(left, top, tile.prefix, end, known))
    bottom = HEAD + len(tiles) * ROW + 12
    parts += [words(left + time * MICROSECOND, bottom, f"{time}", "middle") for time in range(0, int(end) + 1, 2)]
    return parts


def draw(path: Path) -> None:
    """Rows are tiles, time runs to the right: chained at the left, with look-back at the right."""
    path.write_text(picture())


def picture() -> str:
    chain, look = chained(), look_back()
    end_chain, end_look = chain[-1].prefix + 1.0, max(tile.prefix for tile in look) + 1.5
    right = MARGIN + end_chain * MICROSECOND + GAP + MARGIN
    width = right + max(end_look * MICROSECOND, 150.0) + 20
    height = HEAD + TILES * ROW + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width:.0f}" height="{height}" fill="white"/>',
        *panel(MARGIN, "tile: chained", chain, end_chain),
        *panel(right, "tile: look-back", look, end_look),
    ]
    left = float(MARGIN)
    for name, colour in COLOURS.items():
        parts.append(f'<rect x="{left:.1f}" y="{height - 26}" width="12" height="10" fill="{colour}"/>')
        parts.append(words(left + 17, height - 17, name))
        left += 40 + 6.2 * len(name)
    parts.append(words(left, height - 17, "time in microseconds, a model"))
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    print(table())
    if "--table" not in sys.argv:
        draw(Path(__file__).with_name("lookback.svg"))
