"""States and progress -> a card to show others: an SVG of its own, and the same in a line of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from grader.content.catalog import LEVELS, Catalog
from grader.learner.progress import GRADE, History
from grader.learner.state import State
from grader.pages.markup import Markup, Part, label, tag

WIDTH, HEIGHT, EDGE = 480.0, 204.0, 20.0  # pixels
BAR, GAP = 150.0, 232.0  # pixels: where a level's bar begins, and how long it may be

# A card is shown alone, also as an image in a README, so it has its own colours; they follow the reader's scheme.
_STYLE = """
.paper { fill: #ffffff; stroke: #d3dae1; } text { fill: #18212b; font: 13px system-ui, "DejaVu Sans", sans-serif; }
.quiet { fill: #566270; } .big { font-size: 21px; font-weight: 650; } .empty { fill: #dfe5ea; } .done { fill: #0072b2; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #12171d; stroke: #36414c; } text { fill: #e7ecf1; } .quiet { fill: #9daab7; }
  .empty { fill: #2b353f; } .done { fill: #56b4e9; }
}
"""


@dataclass(frozen=True)
class Standing:
    """How far a learner is. ``levels``: level -> (katas passed, katas)."""

    passed: int
    katas: int
    families: int  # with all katas passed
    days: int  # with a grade
    last: str  # the kata passed last; empty: none
    levels: Mapping[str, tuple[int, int]]


def standing(catalog: Catalog, states: Mapping[str, State], known: History) -> Standing:
    done = {name for name, state in states.items() if state.passed is not None}
    levels = {
        level: (sum(kata.name in done for kata in katas), len(katas))
        for level in LEVELS
        if (katas := [kata for kata in catalog.katas.values() if kata.level == level])
    }
    grades = [event for event in known.events if event.what == GRADE]
    return Standing(
        len(done),
        len(states),
        sum(all(kata.name in done for kata in katas) for katas in catalog.by_family.values()),
        len({event.date for event in grades}),
        next((event.kata for event in reversed(grades) if event.passed and event.kata in done), ""),
        levels,
    )


def in_a_line(found: Standing) -> str:
    """The card as text, for a chat or a post."""
    levels = ", ".join(f"{count} {level}" for level, (count, _) in found.levels.items() if count)
    last = f" Last: {found.last}." if found.last else ""
    by_level = f" ({levels})" if levels else ""
    return (
        f"CUDA katas: {found.passed} of {found.katas} passed{by_level}, {_plural(found.days, 'day')} of practice.{last}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def card(found: Standing) -> str:
    """An SVG file."""
    words = in_a_line(found)
    more = "1 family finished" if found.families == 1 else f"{found.families} families finished"
    parts: tuple[Part, ...] = (
        tag("title", words),
        tag("style", Markup(_STYLE)),
        tag("rect", class_="paper", x=0.5, y=0.5, width=WIDTH - 1, height=HEIGHT - 1, rx=8.0),
        label(f"{found.passed} of {found.katas} CUDA katas", EDGE, 38.0, class_="big"),
        label(f"{more}, {_plural(found.days, 'day')} with a grade", EDGE, 60.0, class_="quiet"),
        *(part for row, level in enumerate(found.levels.items()) for part in _level(80.0 + 18 * row, *level)),
        label(f"last passed: {found.last}" if found.last else "the first is next", EDGE, HEIGHT - 14, class_="quiet"),
    )
    size: dict[str, Part] = {"viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}", "width": WIDTH, "height": HEIGHT}
    svg = tag("svg", *parts, xmlns="http://www.w3.org/2000/svg", role="img", aria_label=words, **size)
    return f"{svg}\n"


def _level(y: float, name: str, count: tuple[int, int]) -> Iterator[Markup]:
    passed, of = count
    yield label(name, EDGE, y + 10)
    yield tag("rect", class_="empty", x=BAR, y=y, width=GAP, height=11.0, rx=3.0)
    if passed:
        yield tag("rect", class_="done", x=BAR, y=y, width=max(3.0, GAP * passed / of), height=11.0, rx=3.0)
    yield label(f"{passed} of {of}", WIDTH - EDGE, y + 10, anchor="end", class_="quiet")
