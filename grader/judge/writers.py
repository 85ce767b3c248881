"""Who wrote the wrong elements, and who the right ones -> what tells the two apart: a line, a warp, lanes, blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING

from grader.devices.counters import Writer
from grader.judge.cards import WARP
from grader.judge.lab import Judged, Lab, judged
from grader.verdict import Clue

if TYPE_CHECKING:
    from numpy import ndarray

WATCHED = 384  # elements in one call
LEAST = 4  # of either kind
SHOWN = 6


def of_writers(lab: Lab, one: Judged) -> Iterator[Clue]:
    """The simplest thing that all writers of wrong elements have, and no writer of a right one."""
    output = one.expected[one.first_wrong].tensor.name
    flat = one.compared[one.first_wrong].wrong.reshape(-1)
    if min(int(flat.sum()), int((~flat).sum())) < LEAST:
        return
    chosen = _sample(flat)
    outcome = lab.run(one.case, watch=[(output, index) for index in chosen])
    if outcome is None or not _same(judged(one.case, outcome), one):  # what is told apart is of another answer
        return
    writers = {index: outcome.writers.get(f"{output}[{index}]") for index in chosen}
    kernels = {writer.kernel for writer in writers.values() if writer is not None}
    blocks = {each.kernel: each.block for each in outcome.launched}
    if len(kernels) != 1 or (kernel := kernels.pop()) not in blocks:
        return
    wrong = [writer for index, writer in writers.items() if flat[index] and writer is not None]
    right = [writer for index, writer in writers.items() if not flat[index] and writer is not None]
    rows = one.compared[one.first_wrong].wrong
    by_rows = rows.ndim > 1 and bool((rows.any(axis=-1) == rows.all(axis=-1)).all())
    if min(len(wrong), len(right)) >= LEAST and (words := told_apart(wrong, right, blocks[kernel], by_rows=by_rows)):
        yield Clue("writers", words)


def _same(other: Judged, one: Judged) -> bool:
    """Whether the same elements are wrong."""
    return all(bool((a.wrong == b.wrong).all()) for a, b in zip(other.compared, one.compared, strict=True))


def _sample(wrong: ndarray) -> list[int]:
    """Wrong elements and right ones, of each kind evenly over the output, and right ones that lie beside wrong ones."""
    import numpy

    def evenly(places: ndarray, most: int) -> ndarray:
        chosen: ndarray = places[numpy.linspace(0, places.size - 1, min(most, places.size)).astype(int)]
        return chosen

    bad, good = wrong.nonzero()[0], (~wrong).nonzero()[0]
    bad = evenly(bad, WATCHED // 2)
    beside = good[numpy.clip(numpy.searchsorted(good, bad), 0, good.size - 1)]
    right = [*evenly(beside, WATCHED // 4).tolist(), *evenly(good, WATCHED // 4).tolist()]
    return [*dict.fromkeys([*bad.tolist(), *right])]


def told_apart(
    wrong: list[Writer], right: list[Writer], block: tuple[int, int, int], *, by_rows: bool = False
) -> str | None:
    """In words; None where nothing tells them apart. ``by_rows``: all of a row is wrong, or nothing: where a block has
    rows of threads, these are those of the output, and their lanes only say so again."""

    def linear(writer: Writer) -> int:
        x, y, z = writer.thread or (0, 0, 0)
        return x + block[0] * (y + block[1] * z)

    traits: tuple[tuple[str, Callable[[Writer], int | tuple[int, ...] | None]], ...] = (
        ("line", lambda writer: writer.line),
        ("warp", lambda writer: linear(writer) // WARP),
        ("lane", lambda writer: linear(writer) % WARP),
        ("block", lambda writer: writer.block),
        ("thread", linear),
    )
    for trait, of in traits:
        if (trait == "warp" and prod(block) <= WARP) or (trait == "lane" and by_rows and block[1] > 1):
            continue
        bad, good = {of(writer) for writer in wrong}, {of(writer) for writer in right}
        if None in bad or None in good or bad & good or len(bad) > SHOWN * 3:
            continue
        if trait == "thread" and len(bad) > 1:
            continue
        return f"written by {_listed(trait, sorted(bad, key=str))}; the right ones by {_listed(trait, [*good])}"
    return None


def _listed(trait: str, found: list[int | tuple[int, ...] | None]) -> str:
    numbers = sorted(found, key=lambda each: each if isinstance(each, tuple) else (each or 0,))
    plural = trait + ("s" if len(numbers) > 1 else "")
    if len(numbers) > 2 and all(isinstance(each, int) for each in numbers):
        low, high = numbers[0], numbers[-1]
        if isinstance(low, int) and isinstance(high, int) and high - low + 1 == len(numbers):
            return f"{plural} {low} to {high}"
    words = [str(each).replace(" ", "") for each in numbers[:SHOWN]]
    return f"{plural} {', '.join(words)}{', ...' if len(numbers) > SHOWN else ''}"
