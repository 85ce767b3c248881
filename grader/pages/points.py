"""Timed grades, and the published speeds of the solutions -> points: work, time, and the peaks of the card."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from grader.content.catalog import Catalog
from grader.content.spec import load_spec
from grader.judge.measure import min_bytes_of
from grader.learner.progress import Event, Progress


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
        """Of the roof above it; 0.0 where that is not known."""
        memory = self.peak_bytes_s * (self.intensity if self.flops else 1.0)
        roofs = [roof for roof in (memory, self.peak_flops_s if self.flops else 0.0) if roof]
        return self.rate / min(roofs) if roofs else 0.0


def of_the_learner(catalog: Catalog, known: Progress) -> Mapping[str, list[Point]]:
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


# The solutions' own, from solutions/SPEED.md

_CARD = re.compile(r"^Measured on: (.+)\.$", re.MULTILINE)
_COLUMNS = ("kata", "shape", "baseline", "rate", "unit", "% of peak")
_PER_UNIT = {"TB/s": 1e12, "TFLOPS": 1e12}


def of_the_solutions(catalog: Catalog) -> tuple[str, list[Point]]:
    """What solutions/SPEED.md says: on which card, and a point for each shape of a kata; none where it says nothing.

    The table has no peaks: they are worked out from the rate with the highest share, whose rounding matters least.
    """
    file = catalog.root / "solutions" / "SPEED.md"
    content = file.read_text() if file.is_file() else ""
    card, rows = _CARD.search(content), list(_rows(content))
    peaks: dict[tuple[str, str], tuple[float, float]] = {}  # (unit, dtype) -> (share, peak)
    for item in rows:
        kata, share = catalog.katas.get(item["kata"]), float(item["% of peak"]) / 100
        if kata and share:
            rate = float(item["rate"]) * _PER_UNIT[item["unit"]]
            key = (item["unit"], kata.elem if item["unit"] == "TFLOPS" else "")
            peaks[key] = max(peaks.get(key, (0.0, 0.0)), (share, rate / share))
    found = {(item["kata"], item["shape"]): _published(catalog, item, peaks) for item in rows}
    return (card[1] if card else "", [point for point in found.values() if point])


def _rows(content: str) -> Iterator[dict[str, str]]:
    """The rows of the table that has all that is needed, by the names of its columns."""
    names: list[str] = []
    for text in content.splitlines():
        cells = [cell.strip().strip("`") for cell in text.strip("|").split("|")] if text.startswith("|") else []
        if set(_COLUMNS) <= set(cells):
            names = cells
        elif not cells:
            names = []
        elif names and len(cells) == len(names) and not cells[0].startswith("--"):
            found = dict(zip(names, cells, strict=True))
            if found["unit"] in _PER_UNIT and found["% of peak"].isdigit():
                yield found


def _published(
    catalog: Catalog, item: Mapping[str, str], peaks: Mapping[tuple[str, str], tuple[float, float]]
) -> Point | None:
    """The point of a row; None where the kata is no more, or its spec has other sizes or another unit by now."""
    kata = catalog.katas.get(item["kata"])
    sizes = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", item["shape"])}
    if kata is None or set(sizes) != set((spec := load_spec(kata)).sizes):
        return None
    bytes_moved = float(min_bytes_of(kata, spec, sizes))
    flops = float(spec.flops(sizes)) if spec.flops else 0.0
    if bool(flops) != (item["unit"] == "TFLOPS"):
        return None
    time_s = (flops or bytes_moved) / (float(item["rate"]) * _PER_UNIT[item["unit"]])
    roofs = (peaks.get(("TB/s", ""), (0.0, 0.0))[1], peaks.get(("TFLOPS", kata.elem), (0.0, 0.0))[1])
    return Point(kata.name, item["shape"], kata.elem, time_s, bytes_moved, flops, *roofs)
