"""What nvcc read for a build -> facts to keep with it; and whether they still hold.

The list is nvcc's own: its dependency file, and the files that its preprocessed texts name. The files of the toolkit
and of the system's compiler are known by size and time, all others by their content. Beside them it is known which
names were looked for, so that a header that appears where it would be found first, or that __has_include asked for,
counts as well. Files beside the source are known by their path from there: the facts hold for the same text in another
folder where it would find the same.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.compile.nvcc_log import SOURCE
from grader.compile.symbols import dependencies, plain_path
from grader.storage.manifest import Hashes

# Leads to the folder that the source came from. nvcc sees only this name, not the folder's own.
BESIDE = "beside"
MOST_BYTES = 16 << 20  # of one header of the learner's own that is looked through
# Folders for headers, as compilers take them from the environment.
FOLDER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")

_ENTERED = re.compile(rb'\n# \d+ "([^"\n]+)" 1')  # GCC: "entering a new file"
_DEVICE_PASS = ".cpp1."  # in the names of texts of which no assembler of the host sees anything
_BETWEEN_LITERALS = re.compile(rb'(?<!\\)"\s*(?:#[^\n]*\n\s*)*"')
# What makes the assembler read a file, or build such a word from pieces.
_ASSEMBLER = (b"incbin", b".include", b".macro", b".irp", b".rept", b".altmacro")
_INCBIN = re.compile(rb'\.incbin\s+\\?"([^"\\\n]+)\\?"')
_ASKS = re.compile(rb"__has_(?:include|embed)")
_ASKED = re.compile(rb'__has_include(?:_next)?\s*\(\s*(?:"([^"\n]+)"|<([^>\n]+)>)\s*\)')
_ASKS_NOTHING = re.compile(rb"(?:\bdefined\s*\(?\s*|\bifn?def\s+)__has_(?:include|embed)\b(?!\s*\()")


@dataclass(frozen=True)
class Run:
    """A run of nvcc that has ended, in ``place``.

    ``own``: the paths, from there, of what was written for it. ``beside``: the folder of the source, where nvcc looked
    for headers, None where it did not; ``names_before``: what was in it when the run began, None: not known. ``ours``:
    the folder of headers that the build's key has already; ``system``: folders whose headers are known by size and
    time.
    """

    place: Path
    own: Collection[str]
    text: bytes
    beside: Path | None
    names_before: Collection[str] | None
    ours: Path
    system: Sequence[Path]


class _Unknown(Exception):
    """What the run read cannot be said for sure."""


def gather(run: Run, hashes: Hashes) -> dict[str, Any] | None:
    """The facts, for JSON; None where they cannot be had: a file changed meanwhile, its name was made by a macro."""
    try:
        system, shared, own = _sorted_out(run)
        kept = {path: _settled(path, run, hashes) for path in sorted(own)}
        names = {*shared, *own, *_asked_for(run, own)}
        folders = sorted({BESIDE, *map(os.path.dirname, own), *_from_environment()}) if run.beside else []
        listed = "\n".join(system)
        facts = {
            "files": kept,
            "system": listed,
            "system_state": _state(listed, hashes),
            "names": "\n".join(sorted(names)),
            "folders": folders,
        }
        facts["found"] = _found(facts, run.beside)
        if run.beside:
            _check_unchanged(run, facts)
    except (OSError, _Unknown):
        return None
    return facts


def hold(facts: dict[str, Any], beside: Path, hashes: Hashes) -> bool:
    """Whether nvcc would read the same today, for a source in the folder ``beside``."""
    try:
        return (
            all(hashes.same(_real(path, beside), *content) for path, content in facts["files"].items())
            and _state(facts["system"], hashes) == facts["system_state"]
            and _found(facts, beside) == facts["found"]
        )
    except OSError:
        return False


def files(facts: dict[str, Any], beside: Path) -> list[Path]:
    """The files that are neither the source nor the system's."""
    return [Path(_real(path, beside)) for path in facts["files"]]


def _real(path: str, beside: Path | None) -> str:
    """Where a path of the dependency list leads to. Raises _Unknown for one that leads nowhere by itself."""
    if path.startswith(f"{BESIDE}/") and beside is not None:
        return os.path.join(beside, path[len(BESIDE) + 1 :])
    if not os.path.isabs(path):
        raise _Unknown(path)
    return path


# -- what was read


def _sorted_out(run: Run) -> tuple[list[str], list[str], set[str]]:
    """The system's headers; those of the key, from their folder; all others, as nvcc spelled them."""
    system: set[str] = set()
    shared: list[str] = []
    own: set[str] = set()
    stage, folders = os.path.realpath(run.place), {str(folder) for folder in run.system}
    resolve = functools.cache(os.path.realpath)  # some hundred headers are in a few folders
    for path in _read(run):
        if path in run.own:
            continue
        if not os.path.isabs(path):
            own.add(path)
            continue
        real = os.path.join(resolve(os.path.dirname(path)), os.path.basename(path))
        if _is_in(real, str(run.ours)):
            shared.append(os.path.relpath(real, run.ours))
        elif any(_is_in(real, folder) for folder in folders):
            system.add(real)
        elif _is_in(real, stage):
            raise _Unknown(path)
        else:
            own.add(path)
    return sorted(system), shared, own


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder + os.sep)


def _read(run: Run) -> set[str]:
    """Every file that was read, as it was spelled."""
    listed = (run.place / Path(SOURCE).with_suffix(".d")).read_text(errors="surrogateescape")
    paths = {*dependencies(listed)}
    texts = sorted(run.place.glob("*.ii"))
    if not texts:
        raise _Unknown("no preprocessed text")
    for path in texts:
        text = path.read_bytes()
        paths |= {plain_path(os.fsdecode(name)) for name in {*_ENTERED.findall(text)}}
        if _DEVICE_PASS not in path.name:
            paths |= set(_assembled(text))
    return {path.removeprefix(f"{run.place}/") for path in paths}


def _assembled(text: bytes) -> Iterator[str]:
    """What the assembler is told to read. Adjacent literals are one literal."""
    joined = _BETWEEN_LITERALS.sub(b"", text)
    named = _INCBIN.findall(joined)
    if sum(map(joined.count, _ASSEMBLER)) != len(named):
        raise _Unknown("a file that the assembler reads")
    yield from map(os.fsdecode, named)


def _asked_for(run: Run, own: Collection[str]) -> set[str]:
    """The names that the source and its headers ask for with __has_include."""
    names: set[str] = set()
    for text in (run.text, *(_text(_real(path, run.beside)) for path in own)):
        text = re.sub(rb"\\\r?\n", b"", text)
        asked = _ASKED.findall(text)
        if len(_ASKS.findall(text)) != len(asked) + len(_ASKS_NOTHING.findall(text)):
            raise _Unknown("a name that is asked for")
        names |= {os.fsdecode(quoted or angled) for quoted, angled in asked}
    return names


def _text(path: str) -> bytes:
    with open(path, "rb") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise _Unknown(path)
    return text


def _settled(path: str, run: Run, hashes: Hashes) -> tuple[int, str]:
    """The content of a file that has not changed since the run began: what nvcc read is what is there."""
    began = (run.place / SOURCE).stat().st_ctime_ns
    real = _real(path, run.beside)
    for about in (os.stat(real), os.lstat(real)):
        if max(about.st_mtime_ns, about.st_ctime_ns) >= began:
            raise _Unknown(path)
    return hashes.of(real)


def _check_unchanged(run: Run, facts: dict[str, Any]) -> None:
    """Raises _Unknown where a name that was looked for has appeared beside the source, or gone, during the run."""
    assert run.beside is not None
    if run.names_before is None:
        raise _Unknown("what was beside the source")
    changed = set(run.names_before) ^ set(os.listdir(run.beside))
    if changed & _by_first(_all_names(facts)).keys():
        raise _Unknown("a name that came or went")


# -- what was looked for


def _from_environment() -> Iterator[str]:
    for variable in FOLDER_VARIABLES:
        yield from (folder for folder in os.environ.get(variable, "").split(":") if os.path.isabs(folder))


def _all_names(facts: dict[str, Any]) -> str:
    return f"{facts['system']}\n{facts['names']}"


@functools.lru_cache(maxsize=32)
def _by_first(names: str) -> dict[str, list[str]]:
    """Every name that an include may have been spelled with, by its first folder: a path, and each end of it."""
    found: dict[str, set[str]] = {}
    for name in names.split("\n"):
        parts = name.split("/")
        for place, first in enumerate(parts):
            found.setdefault(first, set()).add("/".join(parts[place:]))
    return {first: sorted(ends) for first, ends in found.items() if first}


def _found(facts: dict[str, Any], beside: Path | None) -> dict[str, list[str]]:
    """For each folder in which headers were looked for, the names that are there. Raises OSError."""
    by_first = _by_first(_all_names(facts))
    found = {}
    for folder in facts["folders"]:
        real = str(beside) if folder == BESIDE else _real(folder, beside)
        there = [*os.listdir(real), "..", "."] if os.path.isdir(real) else []
        ends = (end for first in there for end in by_first.get(first, ()))
        found[folder] = sorted(end for end in ends if os.path.exists(os.path.join(real, end)))
    return found


def _state(listed: str, hashes: Hashes) -> str:
    """One value for the sizes and times of many files. Raises OSError."""
    if listed not in hashes.states:
        digest = hashlib.sha256()
        for path in listed.split("\n") if listed else ():
            if path not in hashes.stats:
                about = os.stat(path)
                hashes.stats[path] = f"{path} {about.st_size} {about.st_mtime_ns}\n"
            digest.update(os.fsencode(hashes.stats[path]))
        hashes.states[listed] = digest.hexdigest()
    return hashes.states[listed]
