"""Rows of halves in shared memory -> the wavefronts of ldmatrix and cp.async, and docs/swizzle.svg, which shows why.

    python docs/swizzle.py          print the table and draw the picture (needs `pip install -e .[docs]`)
    python docs/swizzle.py --table  only the table

Shared memory has 32 banks of 4 bytes. The hardware serves an access of 16 bytes per lane eight lanes at a time. Eight
chunks in different groups of four banks take one wavefront, and n chunks in the same group take n.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

CHUNK = 8  # halves in 16 bytes
GROUPS = 8  # groups of four banks
LINE = CHUNK * GROUPS  # halves in all banks together
ROWS = 8  # that one matrix of ldmatrix has

Place = Callable[[int, int, int], int]
"""(row, chunk, halves in a row) -> the number of the chunk in shared memory, counted from the start of the tile."""


def plain(row: int, chunk: int, columns: int) -> int:
    return row * columns // CHUNK + chunk


def padded(row: int, chunk: int, columns: int) -> int:
    return row * (columns // CHUNK + 1) + chunk


def swizzled(row: int, chunk: int, columns: int) -> int:
    rows_in_line = max(1, LINE // columns)
    chunks_in_line = min(columns, LINE) // CHUNK
    return plain(row, chunk ^ row // rows_in_line % chunks_in_line, columns)


LAYOUTS: dict[str, Place] = {"plain": plain, "padded": padded, "swizzled": swizzled}


def wavefronts(places: Iterable[int]) -> int:
    return max(Counter(place % GROUPS for place in places).values())


def wavefronts_of_ldmatrix(place: Place, columns: int) -> int:
    """Eight rows at one column, the worst column."""
    return max(wavefronts(place(row, chunk, columns) for row in range(ROWS)) for chunk in range(columns // CHUNK))


def wavefronts_of_copy(place: Place, columns: int) -> int:
    """Eight neighbouring chunks, as eight neighbouring threads write them, the worst eight of the first 64 rows."""
    chunks = [(row, chunk) for row in range(64) for chunk in range(columns // CHUNK)]
    return max(
        wavefronts(place(row, chunk, columns) for row, chunk in chunks[first : first + GROUPS])
        for first in range(0, len(chunks), GROUPS)
    )


def table() -> str:
    lines = ["halves in a row   " + "".join(f"{name:>22}" for name in LAYOUTS)]
    lines.append(" " * 18 + "      ldmatrix    copy" * len(LAYOUTS))
    for columns in (16, 32, 64, 128, 256):
        cells = (
            f"{wavefronts_of_ldmatrix(place, columns):14}{wavefronts_of_copy(place, columns):8}"
            for place in LAYOUTS.values()
        )
        lines.append(f"{columns:15}   " + "".join(cells))
    return "\n".join(lines)


def draw(path: Path, columns: int = 32) -> None:
    """Three ways to keep eight rows, each as lines of 128 bytes: what one ldmatrix reads is dark, with its row."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "swizzle"  # the same file every time
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    figure, axes = pyplot.subplots(1, len(LAYOUTS), figsize=(13, 3.4))
    for axis, (name, place) in zip(axes, LAYOUTS.items(), strict=True):
        for row in range(ROWS):
            for chunk in range(columns // CHUNK):
                line, group = divmod(place(row, chunk, columns), GROUPS)
                face, ink = ("#c0392b", "w") if chunk == 0 else ("#e8eef4", "k")  # dark: what one ldmatrix reads
                axis.add_patch(Rectangle((group, line), 1, 1, facecolor=face, edgecolor="w"))
                text = f"r{row} c{chunk}"
                axis.text(group + 0.5, line + 0.5, text, ha="center", va="center", fontsize=7, color=ink)
        read_in, written_in = wavefronts_of_ldmatrix(place, columns), wavefronts_of_copy(place, columns)
        axis.set_title(f"{name}: ldmatrix in {read_in}, copy in {written_in}", fontsize=10)
        axis.set(xlim=(0, GROUPS), ylim=(5, 0), xlabel="banks", yticks=[])
        axis.set_xticks([group + 0.5 for group in range(GROUPS)])
        axis.set_xticklabels([f"{4 * group}-{4 * group + 3}" for group in range(GROUPS)], fontsize=7)
        axis.set_aspect("equal")
    axes[0].set_ylabel("lines of 128 bytes")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    # matplotlib leaves blanks at the ends of lines, and git complains of them
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


if __name__ == "__main__":
    print(table())
    if "--table" not in sys.argv[1:]:
        draw(Path(__file__).with_suffix(".svg"))
