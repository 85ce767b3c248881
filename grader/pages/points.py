"""Timed grades, and the published speeds of the solutions -> points: work, time, and the peaks of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grader.content.catalog import Catalog
from grader.content.spec import load_spec
from grader.judge.measure import min_bytes_of
from grader.learner.progress import Event, History
from grader.output import speeds
from grader.output.speeds import Peaks, Row, Speeds
from grader.verdict import format_sizes


@dataclass(frozen=True)
class Point:
    """One timed kernel. ``flops`` is 0.0 where it only moves bytes; peaks are 0.0 where they are not known."""

    kata: str
    sizes: str
    dtype: str
    time_s: float
    bytes_moved: float
    flops: float
    peak_bytes_s: float
    peak_flops_s: float
    passed: bool = True

    @property
    def intensity(self) -> float:
        """Operations for each byte that has to be moved."""
        return self.flops / self.bytes_moved

    @property
    def rate(self) -> float:
        return (self.flops or self.bytes_moved) / self.time_s

    @property
    def share(self) -> float:
        """The share of the roof above it; 0.0 if the roof is not known."""
        memory = self.peak_bytes_s * (self.intensity if self.flops else 1.0)
        roofs = [roof for roof in (memory, self.peak_flops_s if self.flops else 0.0) if roof]
        return self.rate / min(roofs) if roofs else 0.0


def of_the_learner(catalog: Catalog, known: History) -> Mapping[str, list[Point]]:
    """By card, the last timed grade of each kata that says enough."""
    last: dict[tuple[str, str], Event] = {}
    for event in known.events:
        if event.card and _is_plausible(event):
            last[event.card, event.kata] = event
    found: dict[str, list[Point]] = {}
    for (card, name), event in last.items():
        found.setdefault(card, []).append(_point_of(catalog, name, event))
    return found


def _is_plausible(event: Event) -> bool:
    """Does it say enough, and nothing that no card can have done?"""
    needed, more = (event.time_s, event.bytes_moved), (event.flops, event.peak_bytes_s, event.peak_flops_s)
    return all(1e-9 < (number or 0) < 1e18 for number in needed) and all(0 <= (number or 0) < 1e18 for number in more)


def _point_of(catalog: Catalog, name: str, event: Event) -> Point:
    kata = catalog.katas.get(name)
    numbers = (event.time_s, event.bytes_moved, event.flops, event.peak_bytes_s, event.peak_flops_s)
    time_s, bytes_moved, flops, peak_bytes_s, peak_flops_s = (number or 0.0 for number in numbers)
    dtype = kata.elem if kata else "?"
    return Point(name, event.sizes or "", dtype, time_s, bytes_moved, flops, peak_bytes_s, peak_flops_s, event.passed)


# The solutions' own, from solutions/speeds.json


def of_the_solutions(catalog: Catalog) -> tuple[Speeds | None, list[Point]]:
    """What was measured, and a point for each shape of a kata; (None, []) where there is no such file.

    Raises SpeedsError.
    """
    file = catalog.root / speeds.FILE
    if not file.is_file():
        return None, []
    known = speeds.read(file)
    found: dict[tuple[str, str], Point | None] = {}
    for row in known.rows:  # of several baselines the first, which is graded
        if (row.kata, format_sizes(row.sizes)) not in found:
            found[row.kata, format_sizes(row.sizes)] = _published(catalog, row, known.peaks)
    return known, [point for point in found.values() if point]


def _published(catalog: Catalog, row: Row, peaks: Peaks) -> Point | None:
    """The point of a row; None where the kata is gone, or its spec has other sizes or another unit by now."""
    kata = catalog.katas.get(row.kata)
    if kata is None or set(row.sizes) != set((spec := load_spec(kata)).sizes):
        return None
    bytes_moved = float(min_bytes_of(kata, spec, row.sizes))
    flops = float(spec.flops(row.sizes)) if spec.flops else 0.0
    if bool(flops) != (row.unit == "TFLOPS"):
        return None
    time_s = (flops or bytes_moved) / (row.rate * 1e12)
    roofs = peaks.bytes_s, peaks.flops_s.get(kata.elem, 0.0)
    return Point(kata.name, format_sizes(row.sizes), kata.elem, time_s, bytes_moved, flops, *roofs)
