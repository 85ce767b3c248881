"""Data -> the tables in README.md, docs/voice.md, solutions/SPEED.md and SUPPORT.md that follow from it. The prose
around them is written by hand.

A table stands between two comments, the first of which has its name. README.md's come from the catalogue, the tracks,
support.json and the docstrings of grader/; SPEED.md's from solutions/speeds.json; SUPPORT.md's from support.json;
voice.md's from docs/voice.yaml.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from grader.content.catalog import LEVELS, Catalog, Kata
from grader.content.tracks import load_tracks
from grader.fault import Fault
from grader.maintain import rooms, support, voice
from grader.output import speeds
from grader.output.console import save

COMMAND = "`kata dev tables`"
_BEGIN = "<!-- {name}: written by " + COMMAND + " -->"
_END = "<!-- end -->"
_TABLE = re.compile("(?P<begin>" + _BEGIN.format(name=r"(?P<name>\w+)") + r"\n).*?(?P<end>" + _END + ")", re.DOTALL)


def written(catalog: Catalog, file: str) -> str:
    """A file with its tables as they must be; a table that is not known stays as it is. Raises Fault."""
    known = TABLES[file]

    def current(table: re.Match[str]) -> str:
        make = known.get(table["name"])
        return f"{table['begin']}\n{make(catalog)}\n\n{table['end']}" if make else table[0]

    return _TABLE.sub(current, _text(catalog, file))


def write(catalog: Catalog) -> Mapping[str, bool]:
    """Write the files whose tables are not current. Returns for each file whether it was written. Raises Fault."""
    texts = {file: written(catalog, file) for file in TABLES}
    stale = {file: text != _text(catalog, file) for file, text in texts.items()}
    for file, text in texts.items():
        if stale[file]:
            save(catalog.root / file, text)
    return stale


def problems(catalog: Catalog) -> list[str]:
    """What is not current, or has no place."""
    return [problem for file in TABLES for problem in _problems(catalog, file)]


def _problems(catalog: Catalog, file: str) -> Iterator[str]:
    try:
        text = _text(catalog, file)
        found = {table["name"] for table in _TABLE.finditer(text)}
        for name in TABLES[file].keys() - found:
            begin = _BEGIN.format(name=name)
            yield f"{file}: its table {name!r} is missing. Put {begin} and, below it, {_END} where it belongs."
        for name in sorted(found - TABLES[file].keys()):
            yield f"{file}: no table is called {name!r}; there are: {', '.join(TABLES[file])}."
        if written(catalog, file) != text:
            yield f"{file} is not current: {COMMAND} writes it."
    except Fault as error:
        yield str(error)


def _text(catalog: Catalog, file: str) -> str:
    try:
        return (catalog.root / file).read_text(encoding="utf-8")
    except OSError as error:
        raise Fault(f"{file} cannot be read ({error.strerror}). Its prose is written by hand: git has it.") from None


# README.md


def _curriculum(catalog: Catalog) -> str:
    rows = ["| family | computes | katas | what it is about |", "|---|---|---|---|"]
    for family, katas in catalog.by_family.items():
        computes, about = _in_a_cell(_heading(katas[0])), _in_a_cell(catalog.about[family])
        rows.append(f"| [{family}](exercises/{family}/README.md) | {computes} | {_levels(katas)} | {about} |")
    rows.append(f"| all {len(catalog.families)} | | {_levels(catalog.katas.values())} | |")
    return "\n".join(rows)


def _tracks(catalog: Catalog) -> str:
    rows = ["| track | for | katas | about | afterwards you can |", "|---|---|---:|---:|---|"]
    for track in load_tracks(catalog).values():
        blanks = sum(step.blank for step in track.steps)
        count = f"{len(track.steps)}, {blanks} from a blank file" if blanks else str(len(track.steps))
        afterwards = _in_a_cell("; ".join(track.afterwards))
        rows.append(f"| `{track.name}` | {_in_a_cell(track.about)} | {count} | {track.hours} h | {afterwards} |")
    return "\n".join(rows)


def _heading(kata: Kata) -> str:
    """What the lesson's first line says after the family's name."""
    first = kata.lesson_path.read_text().partition("\n")[0] if kata.lesson_path.is_file() else ""
    return first.partition(": ")[2]


def _in_a_cell(words: str) -> str:
    return words.replace("|", "\\|").replace("*", "\\*")


def _levels(katas: Iterable[Kata]) -> str:
    """``2 easy, 3 medium``."""
    counts = Counter(kata.level for kata in katas)
    return ", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level])


def _rooms(catalog: Catalog) -> str:
    return rooms.table(catalog.root)


def _support(catalog: Catalog) -> str:
    return support.summary(catalog, support.read(catalog.root))


# SPEED.md and SUPPORT.md


def _speeds(catalog: Catalog) -> str:
    files = [catalog.root / speeds.FILE, *sorted(catalog.root.glob(speeds.OTHERS))]
    return "\n\n".join(speeds.table(speeds.read(file)) for file in files)


def _instructions(catalog: Catalog) -> str:
    return support.instructions(support.read(catalog.root))


def _not_compared(catalog: Catalog) -> str:
    return support.not_compared(support.read(catalog.root))


def _katas(catalog: Catalog) -> str:
    return support.katas(catalog, support.read(catalog.root))


# docs/voice.md


def _words(catalog: Catalog) -> str:
    return voice.table(catalog.root)


TABLES: Mapping[str, Mapping[str, Callable[[Catalog], str]]] = {
    "README.md": {"tracks": _tracks, "curriculum": _curriculum, "support": _support, "rooms": _rooms},
    "docs/voice.md": {"words": _words},
    "solutions/SPEED.md": {"speeds": _speeds},
    "grader/devices/sim/SUPPORT.md": {"instructions": _instructions, "not_compared": _not_compared, "katas": _katas},
}
