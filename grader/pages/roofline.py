"""Timed grades, and the published speeds of the solutions -> how near each kernel comes to what its card can do.

What does floating-point operations stands under a roofline: operations a byte across, operations a second up, under the
card's bandwidth and its peaks. What only moves bytes is a bar up to the card's bandwidth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.catalog import Catalog
from grader.measure import moved
from grader.pages import folded, paragraph, section
from grader.pages.markup import Markup, Row, drawing, join, label, line, path, table, tag
from grader.pages.speeds import dot
from grader.progress import Event, Progress
from grader.spec import load_spec

WIDTH, HEIGHT = 420.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 14.0, 14.0, 40.0
APART, SIDE, GAP = 11.0, 24.0, 80.0  # pixels: between numbers, from points to theirs, between bunches of points

MISSING = (
    "Of your grades none says how much work was done in what time on which card, so there is nothing to draw. A grade "
    "on a GPU of a kata with a baseline keeps that: run `kata grade NAME` there (medium katas and up), then "
    "`kata report`. The simulator has no clock."
)


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
    points = {
        (item["kata"], item["shape"]): _published(catalog, item, peaks)
        for item in rows
        if item["kata"] in catalog.katas
    }
    return (card[1] if card else "", list(points.values()))


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
) -> Point:
    kata = catalog.katas[item["kata"]]
    sizes = {name: int(value) for name, value in (pair.split("=") for pair in item["shape"].split(", "))}
    spec = load_spec(kata)
    bytes_moved = float(moved(kata, spec, sizes))
    flops = float(spec.flops(sizes)) if spec.flops else 0.0
    time_s = (flops or bytes_moved) / (float(item["rate"]) * _PER_UNIT[item["unit"]])
    roofs = (peaks.get(("TB/s", ""), (0.0, 0.0))[1], peaks.get(("TFLOPS", kata.elem), (0.0, 0.0))[1])
    return Point(kata.name, item["shape"], kata.elem, time_s, bytes_moved, flops, *roofs)


# The section


def under_the_roof(catalog: Catalog, known: Progress) -> Markup:
    parts = [_card(f"Your kernels on {card}", points) for card, points in of_the_learner(catalog, known).items()]
    card, points = of_the_solutions(catalog)
    if points:
        note = paragraph(
            f"Not yours: the reference solutions, measured by this project ({card}); from solutions/SPEED.md. Its "
            "roofs are worked out from rounded percents and may be off by 1 %.",
            class_="quiet",
        )
        parts.append(folded("For comparison: the reference solutions", note, _card("The reference solutions", points)))
    return section(
        "roofline", "Under the roof", *(parts if len(parts) > bool(points) else (paragraph(MISSING), *parts))
    )


def _card(heading: str, points: Sequence[Point]) -> Markup:
    computing = [point for point in points if point.flops]
    moving = [point for point in points if not point.flops]
    parts = [tag("h3", heading)]
    if computing:
        numbered = list(enumerate(sorted(computing, key=lambda point: -point.rate), 1))
        rows = (_row(point, number) for number, point in numbered)
        head = ("kernel", "shape", "operations a byte", "TFLOPS", "% of its roof")
        parts += [_roofline(heading, numbered), table(head, rows)]
    if moving:
        rows = (_row(point) for point in sorted(moving, key=lambda point: -point.share))
        words = paragraph("What only moves bytes, as a share of the card's bandwidth:", class_="quiet")
        parts += [words, table(("kernel", "shape", "TB/s", "% of the bandwidth", ""), rows)]
    return tag("div", *parts)


def _row(point: Point, number: int | None = None) -> Row:
    name = join((f"{number}. " if number else None, tag("code", point.kata)))
    share = f"{100 * point.share:.0f}" if point.share else "not known"
    rate = _teras(point.rate)
    if number:
        return Row(name, (point.sizes, f"{point.intensity:,.4g}", rate, share))
    filled = tag("i", class_="is-passed", style=f"width:{min(100.0, 100 * point.share):.1f}%")
    bar = tag("span", filled, class_="bar", style="width:120px", aria_hidden="true")
    return Row(name, (point.sizes, rate, share, bar))


@dataclass(frozen=True)
class _Axes:
    """Logarithmic both ways: operations a byte, operations a second."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, intensity: float) -> float:
        share = math.log(intensity / self.x_low) / math.log(self.x_high / self.x_low)
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def y(self, rate: float) -> float:
        share = math.log(rate / self.y_low) / math.log(self.y_high / self.y_low)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share


def _axes(points: Sequence[Point]) -> _Axes:
    """Around all points and roofs, with room for their numbers."""
    ridges = [point.peak_flops_s / point.peak_bytes_s for point in points if point.peak_bytes_s and point.peak_flops_s]
    across = [*(point.intensity for point in points), *ridges]
    up = [*(point.rate for point in points), *(point.peak_flops_s for point in points if point.peak_flops_s)]
    return _Axes(min(across) / 4, max(across) * 6, min(up) / 2, max(up) * 1.8)


def _roofline(heading: str, numbered: Sequence[tuple[int, Point]]) -> Markup:
    points = [point for _, point in numbered]
    axes = _axes(points)
    shown = "; ".join(f"{point.kata} {_teras(point.rate)} TFLOPS, {100 * point.share:.0f} %" for point in points)
    parts = [*_scales(axes), *_roofs(axes, points), *_dots(axes, numbered)]
    words = "Numbers are those of the table below. The slope is the bandwidth, a flat roof the peak of one dtype."
    picture = drawing(f"Roofline, {heading}: {shown}", WIDTH, HEIGHT, *parts, class_="wide")
    return tag("figure", picture, tag("figcaption", words))


def _scales(axes: _Axes) -> Iterator[Markup]:
    for value in _between(axes.x_low, axes.x_high):
        yield line(axes.x(value), TOP, axes.x(value), HEIGHT - BOTTOM, "grid")
        yield label(f"{value:g}", axes.x(value), HEIGHT - BOTTOM + 14, anchor="middle", class_="quiet")
    for value in _between(axes.y_low, axes.y_high):
        yield line(LEFT, axes.y(value), WIDTH - RIGHT, axes.y(value), "grid")
        yield label(f"{value / 1e12:g}", LEFT - 5, axes.y(value) + 4, anchor="end", class_="quiet")
    yield label("operations for each byte moved", WIDTH - RIGHT, HEIGHT - 8, anchor="end", class_="quiet")
    yield label("TFLOPS", 2, HEIGHT - 8, class_="quiet")


def _between(low: float, high: float) -> list[float]:
    """Round numbers from low to high: powers of ten, with 2 and 5 between where these are few."""
    decades = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    steps = (1, 2, 5) if high / low < 300 else (1,)
    return [step * decade for decade in decades for step in steps if low <= step * decade <= high]


def _roofs(axes: _Axes, points: Sequence[Point]) -> Iterator[Markup]:
    """The slope up to the highest peak, and every peak from where the slope meets it."""
    peaks: dict[float, list[str]] = {}
    for point in points:
        if point.peak_flops_s and point.dtype not in peaks.setdefault(point.peak_flops_s, []):
            peaks[point.peak_flops_s].append(point.dtype)
    bandwidth = max(point.peak_bytes_s for point in points)
    if bandwidth:
        end = max(peaks, default=axes.y_high)
        start = max(axes.x_low, axes.y_low / bandwidth)
        yield path([(axes.x(start), axes.y(start * bandwidth)), (axes.x(end / bandwidth), axes.y(end))], "roof")
        middle = math.sqrt(start * end / bandwidth)
        yield label(f"{_teras(bandwidth)} TB/s", axes.x(middle) + 8, axes.y(middle * bandwidth) + 12)
    for peak, dtypes in peaks.items():
        begin = axes.x(peak / bandwidth) if bandwidth else LEFT
        yield path([(begin, axes.y(peak)), (WIDTH - RIGHT, axes.y(peak))], "roof")
        words = f"{' and '.join(dtypes)}: {_teras(peak)} TFLOPS"
        yield label(words, begin + 18, axes.y(peak) - 5)


def _dots(axes: _Axes, numbered: Sequence[tuple[int, Point]]) -> Iterator[Markup]:
    """The points with their numbers, which stand in columns left and right of points that are close to each other."""
    lowest: dict[float, float] = {}  # a column of numbers -> where its lowest stands
    bunches = _bunches([axes.x(point.intensity) for _, point in numbered])
    for number, point in numbered:  # from the top down
        x, y = axes.x(point.intensity), axes.y(point.rate)
        left, right = next((left, right) for left, right in bunches if left <= x <= right)
        levels = {column: max(y, lowest.get(column, TOP) + APART) for column in (right + SIDE, left - SIDE)}
        column = min(levels, key=lambda column: abs(levels[column] - y) + 0.3 * abs(column - x))
        level = lowest[column] = levels[column]
        leader = line(x, y, column + (7 if column < x else -7), level, "leader")
        words = f"{number}: {point.kata} at {point.sizes}, {_teras(point.rate)} TFLOPS"
        name = label(str(number), column, level + 4, anchor="middle")
        yield tag("g", tag("title", words), leader, dot(point.passed, x, y), name)


def _bunches(places: Sequence[float]) -> list[tuple[float, float]]:
    """(left, right) of every run of places with no wide gap in it."""
    found: list[tuple[float, float]] = []
    for x in sorted(places):
        if found and x - found[-1][1] < GAP:
            found[-1] = (found[-1][0], x)
        else:
            found.append((x, x))
    return found


def _teras(rate: float) -> str:
    rate /= 1e12
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
