"""What wgmma reads, a stage's life and two consumers -> docs/wgmma_layout.svg, wgmma_stages.svg and wgmma_tile.svg.

python docs/wgmma.py          write the pictures of exercises/wgmma_gemm/README.md
python docs/wgmma.py --table  print the phases of the stages as text
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROWS, CHUNKS = 16, 8  # of a swizzled tile: rows of 128 bytes, 16-byte chunks
STAGES, SLICES = 4, 10
LEAD = 2  # slices that the producer is ahead: a stage is filled once its products are done
COLOURS = ("#dce6f2", "#f2dcdb", "#e5efd9", "#eae0f0")


def place(row: int, chunk: int) -> int:
    """Where the 128-byte swizzle puts a chunk of a row: bits 4 to 6 of the address are combined with bits 7 to 9."""
    address = row * 128 + chunk * 16
    return (address ^ address >> 3 & 0x70) % 128 // 16


def phases() -> Iterator[tuple[int, int, int, int]]:
    """(slice, stage, parity that the producer waits for on empty, parity that the consumers wait for on full)."""
    for number in range(SLICES):
        lap = number // STAGES
        yield number, number % STAGES, lap % 2 ^ 1, lap % 2


def rectangle(x: float, y: float, width: float, height: float, fill: str, words: str = "", size: int = 11) -> str:
    box = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="#555"/>'
    return box + (text(x + width / 2, y + height / 2 + size * 0.35, words, size) if words else "")


def text(x: float, y: float, words: str, size: int = 11, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def write(path: Path, width: int, height: int, parts: Iterable[str]) -> None:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    back = f'<rect width="{width}" height="{height}" fill="white"/>'
    path.write_text("\n".join([head, back, *parts, "</svg>"]) + "\n")


def layout() -> Iterator[str]:
    """Left the core matrices without a swizzle, right rows of 128 bytes with it; dark: what one step reads."""
    yield text(165, 20, "core matrices, as in wgmma_one_tile_tn_f16", 13)
    for group in range(2):
        for core in range(CHUNKS):
            x, y = 20 + core * 36, 40 + group * 150
            yield rectangle(x, y, 34, 120, "#c0392b" if core < 2 else COLOURS[0])
            for row in range(8):
                yield text(x + 17, y + 14 + row * 14, f"r{group * 8 + row}", 9)
            yield text(x + 17, y + 133, f"k {core * 8}", 9)
    yield text(165, 345, "leading offset: 128 bytes, one to the right", 11)
    yield text(165, 362, "stride offset: 1024 bytes, to the eight rows below", 11)
    yield text(560, 20, "128-byte swizzle, as the copy engine writes", 13)
    for row in range(ROWS):
        y = 40 + row * 18 + row // 8 * 12
        yield text(385, y + 13, f"r{row}", 9)
        for chunk in range(CHUNKS):
            fill = "#c0392b" if chunk < 2 else COLOURS[0]
            yield rectangle(400 + place(row, chunk) * 40, y, 38, 17, fill, f"k {chunk * 8}", 9)
    yield text(560, 362, "stride offset: 1024 bytes, to the eight rows below", 11)


def stages() -> Iterator[str]:
    """Time goes right. A stage is filled, multiplied and filled again; each end of a phase flips a parity."""
    width = 62
    yield text(20, 18, "time: one slice is multiplied per column", 12, "start")
    for number, stage, empty, full in phases():
        y = 40 + stage * 56
        filled, used = max(0, number - LEAD), number + 1
        x = 70 + filled * width
        yield rectangle(x, y, (used - filled) * width - 4, 22, COLOURS[1], f"filled: slice {number}", 10)
        yield rectangle(70 + used * width, y, width - 4, 22, COLOURS[2], f"slice {number}", 10)
        yield text(x, y + 34, f"empty {empty}", 9, "start")
        yield text(70 + used * width, y + 34, f"full {full}", 9, "start")
    for stage in range(STAGES):
        yield text(20, 55 + stage * 56, f"stage {stage}", 11, "start")
    words = "below the boxes: the barrier and the parity that is waited for before"
    yield text(20, 40 + STAGES * 56 + 10, words, 11, "start")


def tile() -> Iterator[str]:
    """The tile of a cluster: two blocks, two consumers each; B comes in halves."""
    yield text(330, 18, "B: 256 x 64, a half loaded by each block, for both", 12)
    yield rectangle(170, 28, 160, 44, COLOURS[1], "by block 0")
    yield rectangle(330, 28, 160, 44, COLOURS[3], "by block 1")
    for block in range(2):
        for consumer in range(2):
            y = 84 + block * 130 + consumer * 60
            yield rectangle(60, y, 90, 56, COLOURS[1 + 2 * block], "A: 64 x 64")
            yield rectangle(170, y, 320, 56, COLOURS[2], f"block {block}, consumer {consumer}: 64 x 256 sums")
        yield text(30, 148 + block * 130, f"block {block}", 11)


def main() -> None:
    if "--table" in sys.argv[1:]:
        print("slice  stage  producer waits for empty  consumers wait for full")
        for number, stage, empty, full in phases():
            print(f"{number:5}{stage:7}{empty:26}{full:25}")
        return
    folder = Path(__file__).parent
    write(folder / "wgmma_layout.svg", 760, 375, layout())
    write(folder / "wgmma_stages.svg", 790, 285, stages())
    write(folder / "wgmma_tile.svg", 520, 345, tile())


if __name__ == "__main__":
    main()
