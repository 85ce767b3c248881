"""tracks.yaml -> Tracks: orders in which to solve katas, each for one purpose; the whole collection is one of them.

A track that loads names only katas that there are, each once. ``problems`` says what a track does not teach: a kata
before one of its katas that it leaves out without naming the section of a lesson to read in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grader.content.catalog import LEVELS, Catalog, CatalogError, Kata
from grader.content.yaml_fields import MANY, Field, Value, number, record, root_value, several, words

FILE = "tracks.yaml"
COLLECTION = "collection"  # the track that has all katas
SCREEN = 60  # lines: the longest section that may stand in for a kata

_HEADING = re.compile(r"^(#+) (.+?)\s*$")
_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$')
_LEAD = re.compile(r"^\*\*[^*]+\*\*")


@dataclass(frozen=True)
class Step:
    """A kata of a track. ``blank``: a milestone, due from a blank file. ``read``: links to sections, file#anchor."""

    kata: Kata
    blank: bool = False
    read: tuple[str, ...] = ()


@dataclass(frozen=True)
class Track:
    """``minutes`` is an estimate of how long all of it takes."""

    name: str
    about: str
    afterwards: tuple[str, ...]
    steps: tuple[Step, ...]
    minutes: float

    @property
    def hours(self) -> int:
        return max(1, round(self.minutes / 60))

    @cached_property
    def katas(self) -> tuple[Kata, ...]:
        return tuple(step.kata for step in self.steps)

    @cached_property
    def by_name(self) -> Mapping[str, Step]:
        return {step.kata.name: step for step in self.steps}


def load_tracks(catalog: Catalog) -> Mapping[str, Track]:
    """The tracks by name, in the order of the file. Raises CatalogError: file, line and fix."""
    root = root_value(catalog.root / FILE, "tracks", CatalogError, "It must list the tracks.")
    if root is None:
        raise CatalogError(f"{catalog.root / FILE}: is empty. List the tracks.")
    found = record(root, _FILE)
    return {
        name: _track(name, fields, found["minutes"], found["blank"], catalog)
        for name, fields in found["tracks"].items()
    }


def track_of(catalog: Catalog, name: str) -> Track:
    """Raises CatalogError for a name that is not a track's."""
    tracks = load_tracks(catalog)
    if name not in tracks:
        raise CatalogError(f"no track is called {name!r}; there are: {', '.join(tracks)}.")
    return tracks[name]


def _minutes(value: Value) -> dict[str, float]:
    found: dict[str, float] = record(value, {level: Field(number(0, 1000), required=True) for level in LEVELS})
    return found


def _true(value: Value) -> bool:
    if not value.scalar(bool, "true"):
        raise value.error("leave the field out, or write true.")
    return True


_STEP = {"blank": Field(_true, False), "read": Field(several(words, range(1, 6), "links"), ())}
_Item = tuple[Value, str, bool, tuple[str, ...]]  # where it is in the file, the pattern, and the step's fields


def _item(value: Value) -> _Item:
    """A pattern of katas, or a mapping with one kata and its fields."""
    if value.written is not None:
        return value, words(value), False, ()
    pairs = list(value.items())
    if len(pairs) != 1:
        raise value.error("has several keys. Write `- kata: {blank: true}`.")
    name, _, fields = pairs[0]
    found = record(fields, _STEP)
    return value, name, found["blank"], found["read"]


_TRACK = {
    "about": Field(words, required=True),
    "afterwards": Field(several(words, range(1, 10), "lines"), required=True),
    "katas": Field(several(_item, range(1, MANY), "katas"), required=True),
}
_FILE = {
    "minutes": Field(_minutes, required=True),
    "blank": Field(number(0, 10), required=True),
    "tracks": Field(lambda value: {name: record(each, _TRACK) for name, _, each in value.items()}, required=True),
}


def _track(
    name: str, fields: Mapping[str, object], minutes: Mapping[str, float], factor: float, catalog: Catalog
) -> Track:
    items: Sequence[_Item] = fields["katas"]  # type: ignore[assignment]
    steps: dict[str, Step] = {}
    for value, pattern, blank, read in items:
        try:
            katas = [kata for kata in catalog.select([pattern]) if kata.name not in steps]
        except CatalogError as error:
            raise value.error(str(error)) from None
        if not katas:
            raise value.error(f"an earlier line has all that {pattern!r} names. Remove this one.")
        steps |= {kata.name: Step(kata, blank, read) for kata in katas}
    total = sum(minutes[step.kata.level] * (factor if step.blank else 1) for step in steps.values())
    return Track(name, str(fields["about"]), tuple(fields["afterwards"]), tuple(steps.values()), total)  # type: ignore[arg-type]


# -- what a track must teach -------------------------------------------------------------------------------------------


def problems(catalog: Catalog) -> list[str]:
    """What is missing from tracks, and from the lessons that they link to. Raises CatalogError."""
    tracks = load_tracks(catalog)
    found = [problem for track in tracks.values() for problem in _untaught(track, catalog)]
    if COLLECTION not in tracks:
        return [*found, f"{FILE}: no track is called {COLLECTION!r}. It must have all katas."]
    missing = catalog.katas.keys() - tracks[COLLECTION].by_name.keys()
    return found + [f"{FILE}: {COLLECTION}: lacks {name}. Name it, or its family." for name in sorted(missing)]


def _untaught(track: Track, catalog: Catalog) -> Iterator[str]:
    places = {name: place for place, name in enumerate(track.by_name)}
    for place, step in enumerate(track.steps):
        where = f"{FILE}: {track.name}: {step.kata.name}"
        for before in step.kata.requires:
            if places.get(before, -1) > place:
                yield f"{where} is before {before}, which it needs. Move it down."
            elif before not in places and not step.read:
                yield f"{where} needs {before}, which the track leaves out. Add it, or `read` with a section."
        for link in step.read:
            yield from (f"{where}: {problem}" for problem in _link_problems(link, catalog.root))


def _link_problems(link: str, root: Path) -> Iterator[str]:
    length = section_length(link, root)
    if length is None:
        yield f"{link} is nowhere. Name a heading or an `<a id=...>` of a lesson."
    elif length > SCREEN:
        yield f"{link} has {length} lines, more than a screen ({SCREEN}). Link to a part of it."


def section_length(link: str, root: Path) -> int | None:
    """The lines of a section, up to the next heading, anchor or bold lead; None if it is nowhere."""
    name, _, anchor = link.partition("#")
    file = root / name
    if not anchor or not file.is_file():
        return None
    lines = file.read_text().split("\n")
    start = next((at for at, line in enumerate(lines) if anchor_of(line) == anchor), None)
    if start is None:
        return None
    by_heading = bool(_HEADING.match(lines[start]))
    first = start + 1 if by_heading else start + 2  # a bold paragraph follows its anchor
    ends = (at for at in range(first, len(lines)) if _begins_another(lines[at], by_heading))
    return next(ends, len(lines)) - start


def _begins_another(line: str, by_heading: bool) -> bool:
    return bool(_HEADING.match(line)) or (not by_heading and (anchor_of(line) is not None or bool(_LEAD.match(line))))


def anchor_of(line: str) -> str | None:
    """What a link to this line is called, as GitHub names headings."""
    if anchor := _ANCHOR.match(line):
        return anchor[1]
    heading = _HEADING.match(line)
    return re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-") if heading else None
