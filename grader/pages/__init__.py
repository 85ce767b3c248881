"""Parts -> one HTML file that needs no other: it contains its style and script, and loads nothing. `command` puts
`kata report` together from its sections, the other modules.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path

from grader.pages.markup import Markup, join, tag

_HERE = Path(__file__).parent


def document(title: str, parts: Iterable[Markup], folder: Path = _HERE) -> str:
    """A whole page, with the page.css and page.js of a folder. Its policy lets the one script run that belongs to it,
    and no other: not even one in a name."""
    style, script = ((folder / name).read_text() for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    body = tag("body", tag("main", *parts), tag("script", Markup(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def section(name: str, heading: str, *parts: Markup) -> Markup:
    """A part of a page with a heading that can be linked to."""
    return tag("section", tag("h2", heading), *parts, id=name)


def folded(summary: str, *parts: Markup, **attributes: str) -> Markup:
    """What is shown when it is asked for."""
    return tag("details", tag("summary", summary), *parts, **attributes)


def paragraph(*words: str | Markup, class_: str | None = None) -> Markup:
    """A paragraph; what stands in backticks is code."""
    parts = [word if isinstance(word, Markup) else _with_code(word) for word in words]
    return tag("p", *parts, class_=class_)


def _with_code(words: str) -> Markup:
    return join(tag("code", part) if place % 2 else part for place, part in enumerate(words.split("`")))
