"""tests/wrong_kernels and the solutions -> WrongKernel: a solution with one planted bug, and the verdicts it must get.

A bug is stored as edits of its kata's solution. The entry shows the bug and nothing else, and the wrong kernel stays a
copy of the solution when the solution changes. The bugs of a family are in <family>.yaml:

    square_f32:                      # the kata
      writes-one-past-the-end:       # the bug
        wrong: the guard lets the thread at n pass
        verdict: out of bounds
        sizes: n=1                   # optional: the smallest shape that fails, which the search must reach
        says: past the end of y      # optional: a regular expression that is found in what the verdict says
        timed: yes                   # optional: a GPU times the kernel, too
        replace: if (idx < n) y[idx] = x[idx] * x[idx];
        by: if (idx <= n) y[idx] = x[idx] * x[idx];  // BUG

A verdict is one kind, or `kind | kind: why several kinds are right`, or `not shown: why the device cannot see it`.
`pass` among several kinds means that luck decides. Where a GPU gives another verdict than the simulator, `sim` and
`gpu` stand in the place of `verdict`.

`replace` is text that the solution has exactly once: a part of one line, or several whole lines. Both texts get the
indentation that the solution has there. An empty `by` removes the text, and its line if nothing else is on it. If lines
end in `// BUG`, the verdict must name one of them. Several such pairs are a list, `edits`.

A bug that changes a lot is a whole file, <kata>/<bug>.cu. It begins with the same fields as comments, `// Wrong: ...`,
and with `// Kata: square_f32`. If it has marked lines, `// Line: // BUG` says so.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.content.catalog import Catalog, Kata
from grader.content.yaml_fields import Field, Value, close_to, mapping, record, root_value
from grader.fault import Fault
from grader.verdict import Kind

FOLDER = Path("tests", "wrong_kernels")
FOLDERS = (FOLDER, Path("tests", "exploits"))
MARK = "// BUG"
NOT_SHOWN = "not shown"
NAME_HINT = "Write lower-case words: rows-are-swapped."

_HEADER = re.compile(r"// ([A-Z][a-z]+): (.+)")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SIZES = re.compile(r"\w+=\d+(, \w+=\d+)*")


class WrongKernelError(Fault):
    """A wrong kernel is not as it must be; the message names file, line, kata and bug, and the fix."""


@dataclass(frozen=True)
class Expected:
    """What a device must say: one of ``kinds``. ``reason`` says why there are several kinds, or why it is a pass."""

    kinds: tuple[Kind, ...]
    reason: str | None


@dataclass(frozen=True)
class Edit:
    """One pair. ``line`` is its place in the YAML file, from 1."""

    replace: str
    by: str
    line: int


@dataclass(frozen=True, kw_only=True)
class WrongKernel:
    """One bug. ``path`` and ``line`` say where it is: a whole .cu file, or the YAML file that has its ``edits``."""

    kata: Kata
    bug: str
    path: Path
    line: int
    wrong: str
    sim: Expected
    gpu: Expected
    sizes: Mapping[str, int] | None = field(default=None, hash=False)
    says: str = ""
    timed: bool = False
    edits: tuple[Edit, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kata.name}/{self.bug}"

    def expected(self, device: str) -> Expected:
        return {"sim": self.sim, "gpu": self.gpu}[device]

    @property
    def marked_lines(self) -> tuple[int, ...]:
        """The lines of its text, from 1, one of which the verdict must name."""
        return _marked_lines(text(self))


def load(catalog: Catalog, folder: Path) -> tuple[WrongKernel, ...]:
    """Every wrong kernel of a folder, sorted by name. Raises WrongKernelError for the first one that is malformed.

    It does not look at the solutions: ``text`` finds out whether the edits fit.
    """
    found: dict[str, WrongKernel] = {}
    edited = (wrong for path in sorted(folder.glob("*.yaml")) for wrong in _read_family(path, catalog))
    whole = (_read_file(path, catalog) for path in sorted(folder.glob("*/*.cu")))
    for wrong in (*edited, *whole):
        if wrong.name in found:
            first = found[wrong.name]
            raise _error(wrong, wrong.line, f"is there twice, first in {first.path}:{first.line}. Remove one of them.")
        found[wrong.name] = wrong
    return tuple(found[name] for name in sorted(found))


def is_name(bug: str) -> bool:
    """Whether a bug may be called so."""
    return _NAME.fullmatch(bug) is not None


def text(wrong: WrongKernel) -> str:
    """The whole .cu file. Raises WrongKernelError if an edit does not fit the solution."""
    if not wrong.edits:
        return wrong.path.read_text(encoding="utf-8")
    solution = wrong.kata.solution_path.read_text(encoding="utf-8")
    changes = sorted((_change(wrong, edit, solution) for edit in wrong.edits), key=lambda change: change.start)
    parts, done, before = [], 0, 0
    for change in changes:
        if change.start < done:
            raise _error(wrong, change.line, f"this edit overlaps the one on line {before}. Make one pair of the two.")
        parts += [solution[done : change.start], change.by]
        done, before = change.end, change.line
    return "".join([*parts, solution[done:]])


def written(wrong: WrongKernel, folder: Path) -> WrongKernel:
    """The same wrong kernel as a whole file. One that is stored as edits is written to <folder>/<kata>/<bug>.cu."""
    if not wrong.edits:
        return wrong
    path = folder / wrong.kata.name / f"{wrong.bug}.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(wrong), encoding="utf-8")
    return dataclasses.replace(wrong, path=path, line=1, edits=())


def problems(catalog: Catalog, folder: Path) -> list[str]:
    """Everything that is wrong with a folder's entries and edits; one sentence each, with its fix."""
    try:
        loaded = load(catalog, folder)
    except WrongKernelError as error:
        return [str(error)]
    found = []
    for wrong in loaded:
        try:
            text(wrong)
        except WrongKernelError as error:
            found.append(str(error))
    return found


# An edit -> its place in the solution


@dataclass(frozen=True)
class _Change:
    """solution[start:end] becomes ``by``: the edit on ``line``."""

    start: int
    end: int
    by: str
    line: int


def _change(wrong: WrongKernel, edit: Edit, solution: str) -> _Change:
    found = places(edit.replace, solution)
    if len(found) != 1:
        raise _error(wrong, edit.line, _misfit(edit.replace, found, solution, wrong.kata))
    (place,), by = found, edit.by
    line_start, line_end = solution.rfind("\n", 0, place.start) + 1, (solution + "\n").index("\n", place.end)
    before, after = solution[line_start : place.start], solution[place.end : line_end]
    if not by and not (before + after).strip():
        return _Change(line_start, line_end + 1, "", edit.line)
    lines = [*by.split("\n")[:-1], by.rpartition("\n")[2] + after]
    if any(MARK in line and not line.endswith(MARK) for line in lines):
        raise _error(wrong, edit.line, f"{MARK!r} must end its line. Make `replace` reach to the end of the line.")
    return _Change(place.start, place.end, re.sub(r"\n(?=[^\n#])", "\n" + place.indentation, by), edit.line)


@dataclass(frozen=True)
class Place:
    """solution[start:end] is the wanted text. Its lines have this indentation there, beside their own."""

    start: int
    end: int
    indentation: str


def places(wanted: str, solution: str) -> list[Place]:
    """Where a text is in a solution: as a part of a line, or as whole lines with one indentation more or less.

    Lines that start with # are at the left edge in both, with any indentation around them.
    """
    if "\n" not in wanted:
        return [_place(match.start(), match.end(), solution) for match in re.finditer(re.escape(wanted), solution)]
    parts, indentation = [], "(?P<indentation>[ \t]*)"
    for line in wanted.split("\n"):
        if not line or line[0] == "#":
            parts.append(re.escape(line) or "[ \t]*")
        else:
            parts.append(indentation + re.escape(line))
            indentation = "(?P=indentation)"
    found = []
    for match in re.finditer("^" + "\n".join(parts) + "$", solution, re.MULTILINE):
        margin = match.groupdict().get("indentation", "")
        found.append(Place(match.start() + (0 if wanted[0] == "#" else len(margin)), match.end(), margin))
    return found


def _place(start: int, end: int, solution: str) -> Place:
    """A part of a line, with that line's indentation."""
    before = solution[solution.rfind("\n", 0, start) + 1 : start]
    return Place(start, end, before[: len(before) - len(before.lstrip())])


def _misfit(wanted: str, found: Sequence[Place], solution: str, kata: Kata) -> str:
    """Why a `replace` does not fit its solution, and how to fix it."""
    where = f"solutions/{kata.family}/{kata.name}.cu"
    if found:
        lines = [str(solution.count("\n", 0, place.start) + 1) for place in found]
        return f"`replace` occurs {len(lines)} times in {where}, lines {', '.join(lines)}. Lengthen it."
    first = wanted.partition("\n")[0].strip()
    lines = [line.strip() for line in solution.split("\n")]
    near = difflib.get_close_matches(first, lines, n=1, cutoff=0.5)
    hint = f" Its first line is most like line {lines.index(near[0]) + 1}: {near[0]!r}." if near else ""
    return (
        f"`replace` does not occur in {where}: the solution has changed.{hint} Copy what must be replaced from there."
    )


def _marked_lines(whole: str) -> tuple[int, ...]:
    lines = enumerate(whole.split("\n"), 1)
    return tuple(number for number, line in lines if line.endswith(MARK) and not _HEADER.fullmatch(line))


def _error(wrong: WrongKernel, line: int, problem: str) -> WrongKernelError:
    return WrongKernelError(f"{wrong.path}:{line}: {wrong.name}: {problem}")


# Reading: the tables of fields


def _words(value: Value) -> str:
    found: str = value.scalar(str, "words, in quotes if YAML takes them for something else")
    if not found.strip():
        raise value.error("it is empty. Write it, or remove the field.")
    return found


def _text(value: Value) -> str:
    found: str = value.scalar(str, "text, in quotes if it is empty or YAML takes it for something else")
    return found.rstrip("\n")


def _expected(value: Value) -> Expected:
    said, _, reason = _words(value).partition(": ")
    kinds = []
    for kind in ["pass"] if said == NOT_SHOWN else said.split(" | "):
        if kind not in {known.value for known in Kind}:
            known = [NOT_SHOWN, *(kind.value for kind in Kind)]
            raise value.error(f"no verdict is called {kind!r}.{close_to(kind, known)} There are: {', '.join(known)}.")
        kinds.append(Kind(kind))
    if not reason and (len(kinds) > 1 or Kind.PASS in kinds):
        raise value.error(f"there is no reason. Write `{said}: the reason`.")
    return Expected(tuple(kinds), reason or None)


def _sizes(value: Value) -> dict[str, int]:
    found = _words(value)
    if not _SIZES.fullmatch(found):
        raise value.error(f"{found!r} is not a shape. Write it as `m=1, n=257`.")
    return {name: int(size) for name, size in (pair.split("=") for pair in found.split(", "))}


def _pattern(value: Value) -> str:
    found = _words(value)
    try:
        re.compile(found)
    except re.error as error:
        raise value.error(f"not a regular expression ({error}). Put a backslash before special characters.") from None
    return found


def _yes(value: Value) -> bool:
    if value.written != "yes":
        raise value.error("expected `yes`. Write that, or remove the field.")
    return True


_EDIT = {"replace": Field(_text, required=True), "by": Field(_text, required=True)}


def _edits(value: Value) -> tuple[Edit, ...]:
    found = tuple(Edit(**record(item, _EDIT), line=item.line) for item in value.elements())
    if len(found) < 2:
        raise value.error("several pairs make a list. Write `replace` and `by` of the only pair in its place.")
    return found


_FIELDS = {
    "wrong": Field(_words, required=True),
    "sizes": Field(_sizes),
    "says": Field(_pattern, ""),
    "timed": Field(_yes, False),
}
_BOTH = {"verdict": Field(_expected, required=True)}
_EACH = {"sim": Field(_expected, required=True), "gpu": Field(_expected, required=True)}
_EDITS = {"edits": Field(_edits, required=True)}
_OF_FILE = {"kata": Field(_words, required=True), "line": Field(_words, "")}


def _fields(value: Value, others: Mapping[str, Field]) -> dict[str, Any]:
    """The fields of an entry or of a file, in the form that a WrongKernel has them."""
    names = {name for name, _, _ in value.items()}
    verdicts = _EACH if names & _EACH.keys() else _BOTH
    found = record(value, {**_FIELDS, **verdicts, **others})
    if verdicts is _BOTH:
        found["sim"] = found["gpu"] = found.pop("verdict")
    elif found["sim"] == found["gpu"]:
        raise value.error("`sim` and `gpu` are the same. Write one `verdict` for both.")
    return found


def _entry(value: Value) -> dict[str, Any]:
    several = any(name == "edits" for name, _, _ in value.items())
    found = _fields(value, _EDITS if several else _EDIT)
    if not several:
        line = next(key.line for name, key, _ in value.items() if name == "replace")
        found["edits"] = (Edit(found.pop("replace"), found.pop("by"), line),)
    if any(edit.replace in ("", edit.by) for edit in found["edits"]):
        raise value.error("an edit changes nothing. Write what to `replace` in the solution, and `by` what.")
    return found


def _read_family(path: Path, catalog: Catalog) -> Iterator[WrongKernel]:
    """The entries of one YAML file."""
    family = {kata.name: kata for kata in catalog.by_family.get(path.stem, ())}
    katas = root_value(path, path.stem, WrongKernelError, "It must list the bugs of its family's katas.")
    if katas is None:
        raise WrongKernelError(f"{path}: is empty. List the bugs of a kata, or remove the file.")
    for name, key, bugs in katas.items():
        if name not in family:
            raise key.error(f"{path.stem} has no kata of this name.{close_to(name, family)} Correct the name.")
        for bug, place, entry in bugs.named(name).items():
            named = entry.named(f"{name}/{bug}")
            _check_name(bug, place.named(named.subject))
            yield WrongKernel(kata=family[name], bug=bug, path=path, line=place.line, **_entry(named))


def _read_file(path: Path, catalog: Catalog) -> WrongKernel:
    """A whole file. The comments that it begins with are read as the YAML mapping that they would be."""
    subject = f"{path.parent.name}/{path.stem}"
    lines = path.read_text(encoding="utf-8").split("\n")
    header = itertools.takewhile(lambda pair: pair[1], enumerate(map(_HEADER.fullmatch, lines), 1))
    pairs = [(number, match[1].lower(), match[2].strip()) for number, match in header if match]
    value = mapping(pairs, path, subject, WrongKernelError)
    _check_name(path.stem, value)
    fields = _fields(value, _OF_FILE)
    name, mark = fields.pop("kata"), fields.pop("line")
    if name not in catalog.katas or name != path.parent.name:
        raise value.error(f"{name!r} is not a kata, or not the folder's. Correct `Kata:`, or move the file.")
    if bool(mark) != bool(_marked_lines("\n".join(lines))) or mark not in ("", MARK):
        raise value.error(f"`Line: {MARK}` and lines that end in {MARK!r} belong together. Add or remove one.")
    return WrongKernel(kata=catalog.katas[name], bug=path.stem, path=path, line=1, **fields)


def _check_name(bug: str, value: Value) -> None:
    if not is_name(bug):
        raise value.error(f"not a name for a bug. {NAME_HINT}")
