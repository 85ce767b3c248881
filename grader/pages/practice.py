"""Hunts, faster kernels and estimates -> a table of the last result of each."""

from __future__ import annotations

from collections.abc import Iterator

from grader.learner.progress import ESTIMATE, FASTER, HUNT, PRACTICE, Event, History
from grader.pages import paragraph, section
from grader.pages.markup import Markup, Row, table, tag

_TITLES = {HUNT: "bug hunt", FASTER: "made faster", ESTIMATE: "estimate"}
_TASK = {HUNT: "{}", FASTER: "from {}", ESTIMATE: "on {}"}


def last_results(known: History) -> list[Event]:
    """The last event of each exercise, in the order in which they were begun."""
    last: dict[tuple[str, str, str | None], Event] = {}
    for event in known.events:
        if event.what in PRACTICE:
            last[event.what, event.kata, event.task] = event
    return list(last.values())


def results(known: History) -> Markup:
    words = paragraph(
        "The last result of each exercise of `kata hunt`, `kata faster` and `kata estimate`. Counters are a proxy for "
        "speed: they say how much work a kernel is, not how long it takes.",
        class_="quiet",
    )
    head = ("exercise", "kata", "which", "last result", "when")
    return section("practice", "Practice", words, table(head, _rows(known)))


def _rows(known: History) -> Iterator[Row]:
    for event in last_results(known):
        how = f", {event.summary}" if event.summary else ""
        which = _TASK[event.what].format(event.task or "")
        yield Row(_TITLES[event.what], (tag("code", event.kata), which, f"{event.verdict}{how}", event.date))
