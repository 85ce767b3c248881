"""Names, texts and attributes -> HTML and SVG in which all text that is not Markup is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_VOID = ("br", "hr", "input", "link", "meta")


class Markup(str):
    """Text that is markup already. Only this module makes it of other text."""

    __slots__ = ()


Part = str | float | Markup | None
"""A number is written short, None is nothing."""


def text(value: Part) -> Markup:
    """A part as it stands between tags or in an attribute."""
    if value is None:
        return Markup()
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return Markup(f"{value:.2f}".rstrip("0").rstrip("."))
    return Markup(escape(str(value)))


def tag(element: str, /, *content: Part, **attributes: Part) -> Markup:
    """One element: ``tag("a", "here", href="#x", data_from="y", class_="z")``. An attribute of None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value if isinstance(value, str) else text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{element}{given}>" if element in _VOID else f"<{element}{given}>{join(content)}</{element}>")


def join(parts: Iterable[Part], between: str = "") -> Markup:
    """Parts one after the other."""
    return Markup(between.join(map(text, parts)))


@dataclass(frozen=True)
class Row:
    """A row of a table: what it is about, then a cell for each further column."""

    heading: Part
    cells: tuple[Part, ...]
    id: str | None = None


def table(head: Sequence[Part], rows: Iterable[Row]) -> Markup:
    """A table. On a narrow screen each cell stands behind its column's name, so that nothing has to be scrolled."""
    top = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)), role="rowgroup")
    body = tag("tbody", *(_row(head, row) for row in rows), role="rowgroup")
    return tag("table", top, body, role="table")  # roles: a table that is shown as blocks would be none to a reader


def _row(head: Sequence[Part], row: Row) -> Markup:
    cells = [tag("td", cell, data_of=name, role="cell") for name, cell in zip(head[1:], row.cells, strict=True)]
    return tag("tr", tag("th", row.heading, scope="row", role="rowheader"), *cells, id=row.id, role="row")


def drawing(label: str, width: float, height: float, *parts: Part, class_: str = "") -> Markup:
    """An SVG that is one picture to a screen reader: ``label`` says what it shows."""
    inner = (tag("title", label), *parts)
    return tag("svg", *inner, viewBox=f"0 0 {text(width)} {text(height)}", class_=class_, role="img", aria_label=label)


def label(words: Part, x: float, y: float, *, anchor: str = "start", class_: str | None = None) -> Markup:
    """Text in a drawing."""
    return tag("text", words, x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str, *inside: Part) -> Markup:
    return tag("rect", *inside, x=x, y=y, width=width, height=height, class_=class_)


def path(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    return tag("path", d="M" + " L".join(f"{text(x)} {text(y)}" for x, y in points), class_=class_)
