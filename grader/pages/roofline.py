"""Points -> how near each kernel comes to what its card can do.

What does floating-point operations stands under a roofline: operations a byte across, operations a second up, under the
card's bandwidth and its peaks. What only moves bytes is a bar up to the card's bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grader.content.catalog import Catalog
from grader.learner.progress import History
from grader.output import speeds
from grader.pages import folded, paragraph, section
from grader.pages.markup import Markup, Row, drawing, join, label, line, path, table, tag
from grader.pages.points import Point, of_the_learner, of_the_solutions
from grader.pages.speeds import dot

WIDTH, HEIGHT = 420.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 14.0, 14.0, 40.0
APART, SIDE, GAP = 11.0, 24.0, 80.0  # pixels: between numbers, from points to theirs, between bunches of points

MISSING = (
    "None of your grades has the work, the time and the card, so the page cannot draw a roofline. A grade "
    "on a GPU of a kata with a baseline has them: run `kata grade NAME` there (medium katas and up), then "
    "`kata report`. The simulator has no clock."
)


def under_the_roof(catalog: Catalog, learner: History) -> Markup:
    parts = [_card(f"Your kernels on {card}", points) for card, points in of_the_learner(catalog, learner).items()]
    known, points = of_the_solutions(catalog)
    if known and points:
        note = paragraph(
            f"Not yours: the reference solutions, measured by this project ({known.about}); from {speeds.FILE}. The "
            f"card's peaks: {known.peaks.source}.",
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
