"""Prose -> places that docs/voice.md advises against, and how many of them each file may still have.

docs/voice.yaml has the words to avoid. docs/voice_allowed.yaml has, for each file, the number of places that were there
when the check began. `kata dev voice --lower` lowers these numbers; nothing raises them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.content.yaml_fields import Field, Value, record, root_value, words
from grader.fault import Fault
from grader.maintain import prose
from grader.maintain.prose import Passage
from grader.output.console import save

WORDS = Path("docs/voice.yaml")
ALLOWED = Path("docs/voice_allowed.yaml")
COMMAND = "`kata dev voice --lower`"
LONGEST_SENTENCE = 40  # words
WIDEST_LINE = 120  # columns
_ALLOWED_HEAD = f"# Places that docs/voice.md advises against, by file. {COMMAND} lowers them.\n"
# An end of a sentence, behind which another begins; not the dot of an abbreviation.
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!cf)(?<!vs)[.!?][)\"'*_]*(?=\s|$)")


class VoiceError(Fault):
    """docs/voice.yaml or docs/voice_allowed.yaml is broken; the message says where, and how to fix it."""


@dataclass(frozen=True, eq=False)  # compared by identity, so that a hash costs little
class Tic:
    """Words to avoid: ``avoid`` is what the table shows, ``find`` matches them, ``where`` are the paths it is for."""

    avoid: str
    find: re.Pattern[str]
    write: str
    where: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """One place that docs/voice.md advises against: its line, its words, and what to write instead."""

    file: str
    line: int
    words: str
    write: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words!r}: {self.write}"


def tics(root: Path) -> tuple[Tic, ...]:
    """The words to avoid. Raises VoiceError."""
    value = root_value(root / WORDS, "words to avoid", VoiceError, "It says which words to avoid.")
    return tuple(map(_tic, value.elements())) if value is not None else ()


def _tic(value: Value) -> Tic:
    fields = {
        "avoid": Field(words, required=True),
        "find": Field(_pattern),
        "write": Field(words, required=True),
        "where": Field(lambda item: tuple(words(each) for each in item.elements()), ()),
    }
    read = record(value, fields)
    found = read["find"] or _any_of(read["avoid"].split(", "))
    return Tic(read["avoid"], found, read["write"], read["where"])


def _any_of(listed: Sequence[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, listed))})\b", re.IGNORECASE)


def _pattern(value: Value) -> re.Pattern[str]:
    try:
        return re.compile(words(value), re.IGNORECASE)
    except re.error as error:
        raise value.error(f"is not a regular expression: {error}. Fix it.") from None


def places(root: Path, files: Iterable[Path]) -> Iterator[Place]:
    """All places of these files, file by file and in the order of their lines. Raises VoiceError."""
    known = tics(root)
    for path in files:
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        chosen = tuple(tic for tic in known if not tic.where or name.startswith(tic.where))
        found = [*_in_passages(name, prose.passages(path, text), chosen)]
        found += [
            Place(name, line, f"a line of more than {WIDEST_LINE} columns", "break it")
            for line in prose.wide_lines(path, text, WIDEST_LINE)
        ]
        yield from sorted(found, key=lambda place: place.line)


def _in_passages(name: str, found: Iterable[Passage], chosen: tuple[Tic, ...]) -> Iterator[Place]:
    for passage in found:
        for begin, end, write in _tics_in(passage.text, chosen):
            yield Place(name, passage.line_at(begin), passage.text[begin:end], write)
        for begin, count in _long_sentences(passage.text) if passage.whole else ():
            first = " ".join(passage.text[begin:].split()[:4])
            yield Place(name, passage.line_at(begin), f"{first} ...", f"{count} words in one sentence; split it")


@functools.cache  # solutions share most of their comments
def _tics_in(text: str, chosen: tuple[Tic, ...]) -> tuple[tuple[int, int, str], ...]:
    """(begin, end, what to write) of all words to avoid in a text."""
    return tuple(sorted((*match.span(), tic.write) for tic in chosen for match in tic.find.finditer(text)))


def _long_sentences(text: str) -> Iterator[tuple[int, int]]:
    """(begin, words) of every sentence with more words than LONGEST_SENTENCE."""
    begin = 0
    for end in [*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]:
        count = len(text[begin:end].split())
        if count > LONGEST_SENTENCE:
            yield len(text) - len(text[begin:].lstrip()), count
        begin = end


def problems(root: Path) -> list[str]:
    """Files with more places than they are allowed, each with all its places; and allowances that are too high."""
    allowed = _allowed(root)
    found = _by_file(places(root, prose.files(root)))
    listed = []
    for file, here in found.items():
        most = allowed.get(file, 0)
        if len(here) > most:
            listed.append(f"{file}: {len(here)} places that docs/voice.md advises against; {most} are allowed:")
            listed += map(str, here)
    high = [file for file, most in allowed.items() if most > len(found.get(file, ()))]
    if high:
        listed.append(f"{ALLOWED} allows more places than there are, in {', '.join(high)}: {COMMAND} lowers it.")
    return listed


def lower(root: Path) -> Mapping[str, int]:
    """Write docs/voice_allowed.yaml with no number higher than the places that a file has. Returns the numbers.

    Without that file, each file is allowed what it has. Raises VoiceError.
    """
    counts = {file: len(here) for file, here in _by_file(places(root, prose.files(root))).items()}
    if (root / ALLOWED).exists():
        allowed = _allowed(root)
        counts = {file: min(count, allowed.get(file, 0)) for file, count in counts.items()}
    kept = {file: count for file, count in sorted(counts.items()) if count}
    save(root / ALLOWED, _ALLOWED_HEAD + "".join(f"{file}: {count}\n" for file, count in kept.items()))
    return kept


def _by_file(found: Iterable[Place]) -> Mapping[str, list[Place]]:
    by_file: dict[str, list[Place]] = {}
    for place in found:
        by_file.setdefault(place.file, []).append(place)
    return by_file


def _allowed(root: Path) -> Mapping[str, int]:
    value = root_value(root / ALLOWED, "allowed places", VoiceError, f"{COMMAND} writes it.")
    items = value.items() if value is not None else ()
    return {file: item.scalar(int, "a count") for file, _, item in items}


def table(root: Path) -> str:
    """The words to avoid as Markdown."""
    rows = [f"| {_cell(tic.avoid)} | {_cell(tic.write)} |" for tic in tics(root)]
    return "\n".join(["| instead of | write |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
