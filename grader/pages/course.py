"""States and progress -> how far the learner is: in figures, by level and family, and over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from grader.content.catalog import LEVELS, Catalog
from grader.learner.progress import GRADE, HINT, History
from grader.learner.state import FAILED, PASSED, WRITTEN, State
from grader.learner.way import Way
from grader.pages import folded, paragraph, section
from grader.pages.graph import begun, look_of
from grader.pages.markup import Markup, Row, drawing, join, label, line, path, table, tag

WIDTH, HEIGHT = 400.0, 150.0  # of the chart over time
LEFT, BOTTOM, TOP = 34.0, 22.0, 10.0


def overview(catalog: Catalog, states: Mapping[str, State], known: History, upcoming: State | None) -> Markup:
    """How far, in figures, and what comes next."""
    grades = [event for event in known.events if event.what == GRADE]
    hints = sum(event.what == HINT for event in known.events)
    passed = [state for state in states.values() if state.passed is not None]
    finished = sum(_all_passed(katas) for katas in _families(catalog, states).values())
    facts = (
        (f"{len(passed)} of {len(states)}", "katas passed"),
        _fact(finished, "family", "families", "finished"),
        _fact(len(grades), "grade", "grades"),
        _fact(len({event.date for event in grades}), "day", "days", "with a grade"),
        _fact(hints, "hint", "hints", "shown"),
    )
    items = (tag("li", tag("b", figure), tag("span", words)) for figure, words in facts)
    return join((tag("ul", *items, class_="facts"), _next(upcoming, catalog)))


def _fact(count: int, one: str, many: str, more: str = "") -> tuple[str, str]:
    """A figure and its words."""
    return str(count), f"{one if count == 1 else many} {more}".strip()


def _next(upcoming: State | None, catalog: Catalog) -> Markup:
    if upcoming is None:
        return paragraph("No kata that is open is left to pass.")
    kata = upcoming.kata
    place = kata.own_path.relative_to(catalog.root)
    return paragraph(
        "Next: ", tag("a", kata.name, href=f"#kata-{kata.name}"), f", {kata.level}, in ", tag("code", str(place))
    )


def track(way: Way) -> Markup:
    """The steps of the learner's track, in order."""
    passed, due = way.milestones
    rows = []
    for number, step in enumerate(way.track.steps, 1):
        state, kata = way.states[step.kata.name], step.kata
        due_now = "a blank" if step.blank else ""
        rows.append(Row(join((f"{number}. ", tag("code", kata.name))), (kata.level, due_now, state.text), None))
    done = f"{way.done} of {len(way.track.steps)} done, {passed} of {due} blanks"
    facts = f"{done}; about {way.track.hours} hours in all, an estimate"
    return section(
        "track",
        f"Your track: {way.track.name}",
        paragraph(f"{way.track.about}: {facts}."),
        folded("All steps", table(("kata", "level", "milestone", "state"), rows)),
        paragraph("Afterwards you can: " + "; ".join(way.track.afterwards) + "."),
    )


def progress(catalog: Catalog, states: Mapping[str, State], upcoming: State | None) -> Markup:
    """What is passed, by level and by family, and over time. Families without a written file are folded."""
    levels = {level: [state for state in states.values() if state.kata.level == level] for level in LEVELS}
    families = _families(catalog, states)
    first = begun(states, upcoming)
    later = {family: part for family, part in families.items() if family not in first}
    rest = [folded(f"{len(later)} families to begin", _bars(later, linked=True))] if later else []
    of_families = (tag("h3", "By family"), _bars({family: families[family] for family in first}, linked=True), *rest)
    sides = (
        tag("div", tag("h3", "By level"), _bars(levels, linked=False), _over_time(states)),
        tag("div", *of_families),
    )
    return section("progress", "Progress", tag("div", *sides, class_="two"))


def _families(catalog: Catalog, states: Mapping[str, State]) -> dict[str, list[State]]:
    return {family: [states[kata.name] for kata in katas] for family, katas in catalog.by_family.items()}


def _all_passed(part: Iterable[State]) -> bool:
    return all(state.passed is not None for state in part)


def _bars(parts: Mapping[str, Sequence[State]], linked: bool) -> Markup:
    """A line for each part: its name, a bar of what is passed, failed and written, and the count."""
    rows: list[Markup] = []
    for name, part in parts.items():
        if not part:
            continue
        counts = {word: sum(state.word == word for state in part) for word in (PASSED, FAILED, WRITTEN)}
        words = f"{counts[PASSED]} of {len(part)}"
        pieces = (
            tag("i", class_=f"is-{word}", style=f"width:{100 * count / len(part):.2f}%")
            for word, count in counts.items()
        )
        more = "".join(f", {count} {word}" for word, count in counts.items() if count and word != PASSED)
        rows.append(tag("a", name, href=f"#family-{name}") if linked else tag("span", name))
        rows.append(tag("span", *pieces, class_="bar", role="img", aria_label=f"{name}: {words} passed{more}"))
        rows.append(tag("span", words, class_="quiet"))
    return tag("div", *rows, class_="bars")


def _over_time(states: Mapping[str, State]) -> Markup | None:
    """The number of katas passed by day, where any was."""
    days = sorted(date.fromisoformat(state.passed.date) for state in states.values() if state.passed)
    if not days:
        return None
    first, span = days[0], max(1, (days[-1] - days[0]).days)

    def place(day: date, count: int) -> tuple[float, float]:
        across = (day - first).days / span
        return LEFT + (WIDTH - LEFT - 8) * across, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * count / len(days)

    points = [place(first, 0)]
    for count, day in enumerate(days, 1):
        points += [(place(day, count)[0], points[-1][1]), place(day, count)]
    base = HEIGHT - BOTTOM
    parts = [
        line(LEFT, base, WIDTH - 8, base, "axis"),
        *(
            join(
                (line(LEFT, y, WIDTH - 8, y, "grid"), label(str(count), LEFT - 6, y + 4, anchor="end", class_="quiet"))
            )
            for count in sorted({len(days), len(days) // 2} - {0})
            for y in (place(first, count)[1],)
        ),
        path(points, "curve"),
        label(first.isoformat(), LEFT, HEIGHT - 6, class_="quiet"),
    ]
    if days[-1] != first:
        parts.append(label(days[-1].isoformat(), WIDTH - 8, HEIGHT - 6, anchor="end", class_="quiet"))
    period = f"from {first.isoformat()} to {days[-1].isoformat()}" if days[-1] != first else f"on {first.isoformat()}"
    words = " ".join((*_fact(len(days), "kata", "katas", "passed"), period))
    return tag(
        "figure",
        tag("h3", "Over time"),
        drawing(words, WIDTH, HEIGHT, *parts, class_="wide"),
        tag("figcaption", f"{words}."),
    )


def every_kata(catalog: Catalog, states: Mapping[str, State]) -> Markup:
    """Each family's katas in a table of their own: what the graph's numbers stand for."""
    tables = []
    for family, part in _families(catalog, states).items():
        head = ("kata", "level", "dtype", "after", "state")
        rows = (_kata_row(number, state) for number, state in enumerate(part, 1))
        passed = sum(state.passed is not None for state in part)
        tables.append(folded(f"{family}: {passed} of {len(part)} passed", table(head, rows), id=f"family-{family}"))
    return section("katas", "Every kata", *tables)


def _kata_row(number: int, state: State) -> Row:
    kata = state.kata
    dtype = kata.elem if kata.acc in (None, kata.elem) else f"{kata.elem}, sums {kata.acc}"
    seen = "; solution looked at" if state.solution_seen else ""
    hints = f"; hints {', '.join(map(str, state.hints))}" if state.hints else ""
    closed = "; not open yet" if look_of(state) == "closed" else ""
    cells = (kata.level, dtype, ", ".join(kata.requires) or "-", f"{state.text}{closed}{hints}{seen}")
    return Row(join((f"{number}. ", tag("code", kata.name))), cells, f"kata-{kata.name}")
