"""Names, texts and attributes -> HTML and SVG in which whatever is no markup is escaped, wherever it came from."""

from __future__ import annotations

from collections.abc import Iterable
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


def table(head: Iterable[Part], rows: Iterable[Markup]) -> Markup:
    """A table that scrolls by itself where it is wider than the page."""
    top = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    return tag("div", tag("table", top, tag("tbody", *rows)), class_="scrolls", tabindex=0)


def row(heading: Part, *cells: Part, **attributes: Part) -> Markup:
    """A row of a table."""
    return tag("tr", tag("th", heading, scope="row"), *(tag("td", cell) for cell in cells), **attributes)


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
