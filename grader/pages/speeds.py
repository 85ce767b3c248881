"""Measured grades -> for each kata a chart of its speed against the baseline over time, with the intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from grader.content.catalog import Catalog, Threshold
from grader.learner.progress import Event, History
from grader.pages import folded, paragraph, section
from grader.pages.markup import Markup, Row, drawing, label, line, path, table, tag

WIDTH, HEIGHT = 320.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 10.0, 10.0, 24.0
CAP = 6.0  # half the width of a whisker's end
FASTEST = 1000.0  # times the baseline
SHOWN = 6  # charts, of the katas measured last; the others are folded

NOTHING = (
    "No grade was timed yet. Speed is measured on a GPU, of katas from medium on: `kata grade NAME` there times what "
    "is right. Grades of another machine come here by `kata progress --export` there and `--import` here."
)


def measured(known: History) -> Mapping[str, list[Event]]:
    """The timed grades of each kata, in the order in which they were made. What no card can have done is left out."""
    found: dict[str, list[Event]] = {}
    for event in known.events:
        if 0 < (event.low or 0) <= (event.ratio or 0) <= (event.high or 0) < FASTEST:
            found.setdefault(event.kata, []).append(event)
    return found


def over_time(catalog: Catalog, known: History) -> Markup:
    found = measured(known)
    if not found:
        return section("speed", "Speed over time", paragraph(NOTHING))
    order = sorted(found, key=[*catalog.katas, *found].index)  # a kata that is no more comes last
    words = paragraph(
        "The share of the baseline's speed in each timed grade, with its 95 % interval; circles passed, diamonds did "
        "not. The dashed line is what the kata asks of that architecture.",
        class_="quiet",
    )
    charts = {name: _chart(name, found[name], _asked(catalog, found[name][-1])) for name in order}
    last = sorted(order, key=lambda name: found[name][-1].time)[-SHOWN:][::-1]
    others = [chart for name, chart in charts.items() if name not in last]
    shown = [tag("div", *(charts[name] for name in last), class_="charts")]
    if others:
        shown.append(folded(f"{len(others)} more charts", tag("div", *others, class_="charts")))
    rows = (_row(event) for name in order for event in found[name])
    head = ("kata", "when", "verdict", "percent of the baseline", "95 % interval", "shape", "card")
    figures = folded("The same in figures", table(head, rows))
    return section("speed", "Speed over time", words, *shown, figures)


def _asked(catalog: Catalog, event: Event) -> Threshold | None:
    """What the kata asks of the architecture that a grade was made on."""
    kata = catalog.katas.get(event.kata)
    arch = (event.device or "").rpartition(" ")[2].removesuffix("a")
    return kata.speed.percent.get(arch) if kata and kata.speed else None


def _chart(name: str, events: Sequence[Event], asked: Threshold | None) -> Markup:
    times = [datetime.fromisoformat(event.time).timestamp() for event in events]
    first, span = times[0], max(times[-1] - times[0], 1.0)
    highest = max([*(event.high or 0.0 for event in events), asked.percent / 100 if asked else 0.0])
    step = _step(highest)
    top = step * (int(highest / step) + 1)

    def x(time: float) -> float:
        share = (time - first) / span if len(times) > 1 else 0.5
        return LEFT + 12 + (WIDTH - LEFT - RIGHT - 24) * share

    def y(ratio: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * ratio / top

    marks = [place * step for place in range(int(top / step) + 1)]
    parts = [line(LEFT, y(mark), WIDTH - RIGHT, y(mark), "grid" if mark else "axis") for mark in marks]
    parts += [label(f"{100 * mark:g} %", LEFT - 5, y(mark) + 4, anchor="end", class_="quiet") for mark in marks]
    if asked:
        parts.append(line(LEFT, y(asked.percent / 100), WIDTH - RIGHT, y(asked.percent / 100), "asked"))
    spots = [(x(time), y(event.ratio or 0.0)) for event, time in zip(events, times, strict=True)]
    parts.append(path(spots, "thread"))
    parts += [_point(event, x(time), y) for event, time in zip(events, times, strict=True)]
    parts.append(label(events[0].date, LEFT, HEIGHT - 6, class_="quiet"))
    if events[-1].date != events[0].date:
        parts.append(label(events[-1].date, WIDTH - RIGHT, HEIGHT - 6, anchor="end", class_="quiet"))
    words = f"{name}: {', '.join(_words(event) for event in events)}"
    heading = tag("h3", tag("a", name, href=f"#kata-{name}"))
    asks = f", {asked.percent:g} % asked" if asked else ""
    caption = tag("figcaption", f"of {_names(event.baseline for event in events)}; last {_words(events[-1])}{asks}")
    return tag("figure", heading, drawing(words, WIDTH, HEIGHT, *parts), caption)


def _step(highest: float) -> float:
    """Between two lines of the scale: 10, 25 or 50 %, or a power of ten as much; at most five fit below the highest."""
    decade = 10.0 ** math.floor(math.log10(max(highest, 0.1)))
    return next(
        step for step in (0.1 * decade, 0.25 * decade, 0.5 * decade, decade, 2.5 * decade) if highest / step <= 5
    )


def _point(event: Event, x: float, y: Callable[[float], float]) -> Markup:
    low, middle, high = (y(value or 0.0) for value in (event.low, event.ratio, event.high))
    whisker = (line(x, low, x, high, "whisker"), *(line(x - CAP, end, x + CAP, end, "whisker") for end in (low, high)))
    return tag(
        "g", tag("title", f"{event.date}: {event.verdict}, {_words(event)}"), dot(event.passed, x, middle), *whisker
    )


def dot(passed: bool, x: float, y: float) -> Markup:
    """A point of a chart: a circle for what passed, a diamond for what did not."""
    if passed:
        return tag("circle", cx=x, cy=y, r=4.0, class_="dot-passed")
    corners = ((x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y))
    return tag("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in corners), class_="dot-failed")


def _words(event: Event) -> str:
    return f"{100 * (event.ratio or 0):.1f} % ({100 * (event.low or 0):.1f} to {100 * (event.high or 0):.1f})"


def _names(names: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(name for name in names if name))


def _row(event: Event) -> Row:
    interval = f"{100 * (event.low or 0):.1f} to {100 * (event.high or 0):.1f}"
    share = f"{100 * (event.ratio or 0):.1f} of {event.baseline}"
    rest = (event.sizes or "-", event.card or event.device or "-")
    return Row(tag("code", event.kata), (event.date, event.verdict, share, interval, *rest))
