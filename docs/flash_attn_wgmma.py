"""When a producer and two consumers work, with and without the overlap -> docs/flash_attn_wgmma.svg.

python docs/flash_attn_wgmma.py          write the picture of exercises/flash_attn_wgmma/README.md
python docs/flash_attn_wgmma.py --table  print how much of the time the Tensor Cores work
python docs/flash_attn_wgmma.py --orders  print what the order of blocks costs a causal kernel

The times follow from the order of steps in the katas and from three durations. The Tensor Cores serve the first who
asks. Both consumers of a block read each tile of K and of V, which have two slots each.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# In cycles of one SM. A product of 64 x 128 x 128 at 4096 operations; a tile of 32 KB at 64 bytes; a softmax of 64 x
# 128 logits is assumed, a third of it for exponentials at 16 per cycle.
PRODUCT, LOAD, SOFTMAX = 512, 512, 1536
STAGES = 2
SHOWN, MANY = 4, 256  # tiles: in the picture, and where start and end do not count
COLOURS = ("#a9c8e0", "#f2c9c3")  # of the consumers
GREY, INK, BACK = "#dfe4e9", "#1f2933", "#f4f6f8"


@dataclass(frozen=True)
class Step:
    """Products that are issued together. The softmax of a tile begins when the first of them is done."""

    products: tuple[tuple[str, int], ...]  # S or PV, and the tile
    softmax: int | None


@dataclass(frozen=True)
class Span:
    """What one row of the picture does from start to end."""

    row: str
    consumer: int
    words: str
    start: float
    end: float


def steps_of(overlap: bool, tiles: int) -> list[Step]:
    """What a consumer does, in the order of two_consumers or of overlap."""
    if not overlap:
        return [step for t in range(tiles) for step in (Step((("S", t),), t), Step((("PV", t),), None))]
    first, last = Step((("S", 0),), 0), Step((("PV", tiles - 1),), None)
    return [first, *(Step((("S", t), ("PV", t - 1)), t) for t in range(1, tiles)), last]


@dataclass
class Block:
    """One block of an SM: what has been issued so far, and when it ends."""

    consumers: int
    tensor_cores_free: float = 0.0
    loaded: dict[tuple[str, int], float] = field(default_factory=dict)  # a tile of K or V -> when it is there
    read: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # -> when each consumer gave it back
    spans: list[Span] = field(default_factory=list)

    def load(self, kind: str, tile: int) -> bool:
        """Loads all tiles up to this one, K before V. False if a slot has not been given back yet."""
        for index in range(len(self.loaded), 2 * tile + 1 + (kind == "V")):
            name, number = "KV"[index % 2], index // 2
            given_back = self.read.get((name, number - STAGES), [])
            if number >= STAGES and len(given_back) < self.consumers:
                return False
            start = max([*given_back, *list(self.loaded.values())[-1:], 0.0])
            self.loaded[name, number] = start + LOAD
            self.spans.append(Span("producer", 0, f"{name}{number}", start, start + LOAD))
        return True

    def ready(self, step: Step, free: float) -> float | None:
        """When a consumer that is free can issue a step's first product. None if that is not known yet."""
        kinds = [("K" if kind == "S" else "V", tile) for kind, tile in step.products]
        return max(free, self.loaded[kinds[0]]) if all(self.load(*kind) for kind in kinds) else None

    def issue(self, consumer: int, step: Step, now: float) -> float:
        """Runs a step; when the consumer is free again."""
        free, softmax_begins = now, 0.0
        for kind, tile in step.products:
            start = max(now, self.tensor_cores_free, self.loaded["K" if kind == "S" else "V", tile])
            self.tensor_cores_free = end = start + PRODUCT
            self.spans.append(Span("products", consumer, f"{kind}{tile}", start, end))
            softmax_begins = softmax_begins or end
            free = max(free, end)
            if kind == "S":
                self.read.setdefault(("K", tile), []).append(end)
        if step.softmax is not None:
            free = max(free, softmax_begins + SOFTMAX)
            words = f"softmax {step.softmax}"
            self.spans.append(Span("softmax", consumer, words, softmax_begins, softmax_begins + SOFTMAX))
        for kind, tile in step.products:
            if kind == "PV":
                self.read.setdefault(("V", tile), []).append(free)
        return free


def timeline(overlap: bool, tiles: int, consumers: int = 2) -> list[Span]:
    """All that happens in one block."""
    block = Block(consumers)
    left = [steps_of(overlap, tiles) for _ in range(consumers)]
    free = [0.0] * consumers
    while any(left):
        known = [(at, c) for c in range(consumers) if left[c] and (at := block.ready(left[c][0], free[c])) is not None]
        now, consumer = min(known)
        free[consumer] = block.issue(consumer, left[consumer].pop(0), now)
    return block.spans


def share(overlap: bool, consumers: int) -> tuple[float, float]:
    """Cycles from tile to tile, and the share of them in which the Tensor Cores work."""
    end = max(span.end for span in timeline(overlap, MANY, consumers))
    before = max(span.end for span in timeline(overlap, MANY // 2, consumers))
    cycles = (end - before) / (MANY - MANY // 2)
    return cycles, 2 * PRODUCT * consumers / cycles


def table() -> str:
    """How much of the time the Tensor Cores work, for each order of steps."""
    rows = [("one consumer", False, 1), ("two consumers", False, 2), ("two consumers, overlap", True, 2)]
    lines = ["| | cycles from tile to tile | Tensor Cores work |", "|---|---:|---:|"]
    for name, overlap, consumers in rows:
        cycles, part = share(overlap, consumers)
        lines.append(f"| {name} | {cycles:.0f} | {part:.0%} |".replace("%", " %"))
    return "\n".join(lines) + "\n"


# The order of blocks. Microseconds of one block of fa_wgmma_overlap_f16 on an H100: before its tiles, and per tile.

SMS, BLOCK_US, TILE_US = 132, 4.1, 1.52
ROWS_OF_TILE, COLUMNS, HEADS_AT_A_TIME = 128, 128, 4


def makespan(tiles: list[int]) -> float:
    """Microseconds until all blocks have ended, each started in this order on the first SM that is free."""
    free = [0.0] * SMS
    for count in tiles:
        heapq.heapreplace(free, free[0] + BLOCK_US + TILE_US * count)
    return max(free)


def orders_of(blocks: int, heads: int) -> dict[str, list[int]]:
    """The tiles of each block, in the order of their indices. A head has blocks of 1 to so many tiles."""
    longest_first = range(blocks, 0, -1)
    return {
        "causal: a head's shortest first, head by head": [*range(1, blocks + 1)] * heads,
        "a head's longest first, head by head": [*longest_first] * heads,
        "causal_lpt: of four heads the longest first": [
            tiles
            for first in range(0, heads, HEADS_AT_A_TIME)
            for tiles in longest_first
            for _ in range(min(HEADS_AT_A_TIME, heads - first))
        ],
        "of all heads the longest first": [tiles for tiles in longest_first for _ in range(heads)],
    }


def orders() -> str:
    """TFLOPS of causal attention for each order of blocks, if the order alone mattered."""
    shapes = [(4096, 4), (8192, 2), (16384, 1)]
    titles = [f"N = {N}, B = {B}" for N, B in shapes]
    rows: dict[str, list[float]] = {}
    for N, B in shapes:
        heads, blocks = 16 * B, N // ROWS_OF_TILE
        operations = 2 * heads * N * (N + 1) * COLUMNS
        for name, tiles in orders_of(blocks, heads).items():
            rows.setdefault(name, []).append(operations / makespan(tiles))
        all_busy = heads * sum(BLOCK_US + TILE_US * tiles for tiles in range(1, blocks + 1)) / SMS
        rows.setdefault("no SM ever idle", []).append(operations / all_busy)
    lines = [f"| TFLOPS in this model, H = 16 | {' | '.join(titles)} |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {' | '.join(f'{speed / 1e6:.0f}' for speed in found)} |" for name, found in rows.items()]
    return "\n".join(lines) + "\n"


# The picture

LEFT, UNIT, HIGH, PANEL = 120, 0.075, 24, 216  # PANEL: pixels from one panel to the next
ROWS = {("producer", 0): 0, ("products", 0): 1.3, ("softmax", 0): 2.3, ("products", 1): 3.6, ("softmax", 1): 4.6}
TENSOR_CORES = 5.9


def box(x: float, y: float, width: float, height: float, fill: str, line: str = "#ffffff") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
        f'stroke="{line}" stroke-width="1"/>'
    )


def text(x: float, y: float, words: str, size: int = 11, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{INK}" text-anchor="{anchor}">{words}</text>'


def panel(top: float, title: str, overlap: bool) -> Iterator[str]:
    """A row for the producer, two for each consumer, and one for the Tensor Cores, in which gaps are idle time."""
    spans = timeline(overlap, SHOWN)
    yield text(12, top, title, 13, "start")
    top += 12
    names = {"producer": "producer"} | {f"{row} {c}": f"consumer {c}: {row}" for row, c in ROWS if row != "producer"}
    for (row, c), place in ROWS.items():
        label = names.get(f"{row} {c}", row)
        yield text(LEFT - 8, top + place * HIGH + 15, label, 10, "end")
    yield text(LEFT - 8, top + TENSOR_CORES * HIGH + 15, "Tensor Cores", 10, "end")
    end = max(span.end for span in spans)
    yield box(LEFT, top + TENSOR_CORES * HIGH, UNIT * end, HIGH - 3, BACK, GREY)
    for span in spans:
        x, width = LEFT + UNIT * span.start, UNIT * (span.end - span.start)
        fill = GREY if span.row == "producer" else COLOURS[span.consumer]
        places = [ROWS[span.row, span.consumer]] + [TENSOR_CORES] * (span.row == "products")
        for place in places:
            yield box(x, top + place * HIGH, width, HIGH - 3, fill)
            yield text(x + width / 2, top + place * HIGH + 15, span.words, 10)


def parts() -> Iterator[str]:
    yield from panel(22, "fa_wgmma_two_consumers_f16: S, softmax, P V, one after the other", False)
    yield from panel(22 + PANEL, "fa_wgmma_overlap_f16: the softmax of a tile runs during P V of the tile before", True)
    words = (
        f"time goes right: a product takes {PRODUCT} cycles, a copy {LOAD}, and a softmax is assumed to take {SOFTMAX}"
    )
    yield text(12, 12 + 2 * PANEL, words, 11, "start")


def picture() -> str:
    width, height = 1016, 24 + 2 * PANEL
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif">'
    )
    return "\n".join([head, box(0, 0, width, height, "#ffffff"), *parts(), "</svg>"]) + "\n"


if __name__ == "__main__":
    if "--table" in sys.argv[1:]:
        print(table(), end="")
    elif "--orders" in sys.argv[1:]:
        print(orders(), end="")
    else:
        Path(__file__).with_suffix(".svg").write_text(picture())
