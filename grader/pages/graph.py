"""Catalog and states -> the katas as a graph: one lane per family, one node per kata, one edge per required kata.

A kata is one column to the right of the last kata of its lane that it requires, so the width is the depth of a
family. An edge from another family is a stub that names its origin. The page's script draws the whole edge for the
chosen kata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grader.content.catalog import Catalog, Kata
from grader.learner.state import FAILED, PASSED, WRITTEN, State
from grader.learner.way import Way
from grader.pages import folded, paragraph, section
from grader.pages.markup import Markup, Part, join, label, tag, text

COLUMN, ROW = 100.0, 62.0  # pixels between nodes
LEFT, TOP, BOTTOM = 50.0, 20.0, 42.0  # pixels from the outer nodes to the drawing's edge
LETTERS, LINES = 15, 2  # of a name under its node
CORE, DRILL = 13.0, 10.0  # radius of a node

LOOKS: Mapping[str, str] = {  # what a shape says, in the order of the legend
    PASSED: "passed",
    FAILED: "failed",
    WRITTEN: "written, not graded",
    "open": "open: all before it is passed",
    "closed": "not open yet",
}

_FOLLOWED = "The numbers are the steps of your track, {}. Katas that it leaves out are faint."

Place = tuple[int, int]
"""(column, row) in a lane."""


def look_of(state: State) -> str:
    """A key of LOOKS."""
    if state.word in (PASSED, FAILED, WRITTEN):
        return state.word
    return "open" if state.unlocked else "closed"


def path_through(
    catalog: Catalog, states: Mapping[str, State], upcoming: State | None, way: Way | None = None
) -> Markup:
    """The graph. With a way, its nodes have the number of their step, and those of other katas are faint."""
    lanes = {family: _lane(family, katas, states, upcoming, way) for family, katas in catalog.by_family.items()}
    first = begun(states, upcoming)
    later = [lane for family, lane in lanes.items() if family not in first]
    return section(
        "path",
        "The way through the katas",
        paragraph(
            "A lane is a family, a node is a kata; a line leads to what comes after it. A dashed stub comes from "
            "another family. Choose a kata to see what leads to it. Your next family is first.",
            class_="quiet",
        ),
        *([paragraph(_FOLLOWED.format(way.track.name), class_="quiet")] if way is not None else []),
        _legend(),
        tag(
            "div",
            *(lanes[family] for family in first),
            *([folded(f"{len(later)} families to begin", tag("div", *later, class_="lanes"))] if later else []),
            class_="graph",
        ),
        tag("div", class_="said", role="status"),
    )


def begun(states: Mapping[str, State], upcoming: State | None) -> list[str]:
    """The family of the next kata, then those with a kata that is written or graded, in the catalogue's order."""
    found = [state.kata.family for state in states.values() if state.word in (PASSED, FAILED, WRITTEN)]
    return list(dict.fromkeys([*([upcoming.kata.family] if upcoming is not None else []), *found]))


def _legend() -> Markup:
    shapes = [(_picture(_shape(look, 15, 15, CORE)), look, words) for look, words in LOOKS.items()]
    items = [tag("li", picture, words, class_=f"is-{look}") for picture, look, words in shapes]
    ring = _picture(_shape("open", 15, 15, 9), _ring(15, 15, 9))
    items.append(tag("li", ring, "next", class_="is-open"))
    items.append(
        tag("li", _picture(_shape("open", 15, 15, DRILL)), "small: a drill, beside the core", class_="is-open")
    )
    return tag("ul", *items, class_="legend")


def _picture(*shapes: Markup) -> Markup:
    return tag("svg", *shapes, viewBox="0 0 30 30", aria_hidden="true")


def _lane(
    family: str, katas: Sequence[Kata], states: Mapping[str, State], upcoming: State | None, way: Way | None
) -> Markup:
    places = places_of(katas)
    width = 2 * LEFT + COLUMN * max(column for column, _ in places.values())
    height = TOP + BOTTOM + ROW * max(row for _, row in places.values())
    edges = [_edge(places, before, kata) for kata in katas for before in kata.requires if before in places]
    stubs = [stub for kata in katas for stub in _stubs(kata, places)]
    steps = {kata.name: number for number, kata in enumerate(way.track.katas if way is not None else katas, 1)}
    nodes = [_node(steps.get(kata.name), states[kata.name], places[kata.name], upcoming) for kata in katas]
    passed = sum(states[kata.name].passed is not None for kata in katas)
    heading = tag("h3", tag("a", family, href=f"#family-{family}"), tag("span", f"{passed} of {len(katas)}"))
    size: dict[str, Part] = {"viewBox": f"0 0 {text(width)} {text(height)}", "width": width, "height": height}
    picture = tag("svg", *edges, *stubs, *nodes, role="group", aria_label=f"the katas of {family}", **size)
    return tag("div", heading, tag("div", picture, class_="scrolls"), class_="lane")


def places_of(katas: Sequence[Kata]) -> Mapping[str, Place]:
    """Where each kata of a family stands: a column for its depth, and the free row nearest to what it comes after."""
    places: dict[str, Place] = {}
    for kata in katas:
        before = [places[name] for name in kata.requires if name in places]
        column = max((place[0] + 1 for place in before), default=0)
        wish = before[0][1] if before else 0
        taken = {row for other, row in places.values() if other == column}
        row = min((row for row in range(len(katas)) if row not in taken), key=lambda row: (abs(row - wish), row))
        places[kata.name] = (column, row)
    return places


def _spot(place: Place) -> tuple[float, float]:
    return LEFT + COLUMN * place[0], TOP + ROW * place[1]


def _edge(places: Mapping[str, Place], before: str, kata: Kata) -> Markup:
    (x1, y1), (x2, y2) = _spot(places[before]), _spot(places[kata.name])
    turn = (x1 + x2) / 2
    course = f"M{text(x1)} {text(y1)} C{text(turn)} {text(y1)} {text(turn)} {text(y2)} {text(x2)} {text(y2)}"
    return tag("path", d=course, class_="edge", data_from=before, data_to=kata.name)


def _stubs(kata: Kata, places: Mapping[str, Place]) -> list[Markup]:
    """A short line into the node for each kata of another family before it."""
    x, y = _spot(places[kata.name])
    far = [name for name in kata.requires if name not in places]
    return [
        tag(
            "path",
            tag("title", f"{kata.name} comes after {name}"),
            d=f"M{text(x - 17 + 9.0 * place)} {text(y - 17)} L{text(x)} {text(y)}",
            class_="edge far",
            data_from=name,
            data_to=kata.name,
        )
        for place, name in enumerate(far)
    ]


def _node(number: int | None, state: State, place: Place, upcoming: State | None) -> Markup:
    kata, look = state.kata, look_of(state)
    (x, y), radius = _spot(place), CORE if kata.role == "core" else DRILL
    is_next = upcoming is not None and upcoming.kata == kata
    words = f"{kata.name}, {kata.level}, {kata.role}: {state.text if look != 'closed' else LOOKS[look]}"
    return tag(
        "a",
        tag("title", words),
        *([_ring(x, y, radius)] if is_next else []),
        _shape(look, x, y, radius),
        label("" if number is None else str(number), x, y + 4, anchor="middle"),
        *(label(part, x, y + 26 + 11 * line, class_="name") for line, part in enumerate(_in_lines(kata))),
        href=f"#kata-{kata.name}",
        class_=f"node is-{look}{' aside' if number is None else ''}",
        data_kata=kata.name,
        aria_label=f"{words}{' (next)' if is_next else ''}",
    )


def _in_lines(kata: Kata) -> list[str]:
    """A kata's name without its family's, in short lines; its last line ends with dots where that is not all."""
    lines = [""]
    for word in kata.name.removeprefix(f"{kata.family}_").split("_"):
        if not lines[-1] or len(lines[-1]) + 1 + len(word) <= LETTERS:
            lines[-1] += f"_{word}" if lines[-1] else word
        else:
            lines.append(word)
    short = [line if len(line) <= LETTERS else f"{line[: LETTERS - 1]}\u2026" for line in lines]
    return short if len(short) <= LINES else [*short[: LINES - 1], f"{short[LINES - 1][: LETTERS - 1]}\u2026"]


def _ring(x: float, y: float, radius: float) -> Markup:
    return tag("circle", cx=x, cy=y, r=radius + 4.5, class_="next-ring")


def _shape(look: str, x: float, y: float, radius: float) -> Markup:
    """States differ in shape too, for who does not see the colours: failed is a diamond, written a square."""
    if look == FAILED:
        r = radius + 2
        corners = ((x, y - r), (x + r, y), (x, y + r), (x - r, y))
        return tag("polygon", points=join((f"{text(a)},{text(b)}" for a, b in corners), " "), class_="shape")
    if look == WRITTEN:
        r = radius - 1
        return tag("rect", x=x - r, y=y - r, width=2 * r, height=2 * r, class_="shape")
    return tag("circle", cx=x, cy=y, r=radius, class_="shape")
