"""difficulty.yaml and the folders -> Catalog: every kata, its facts and its files, in the order to solve them.

A catalog that loads is whole: each field has a known value, each file is there, each file has its entry, and no
kata waits for itself. The first thing that is not so is one CatalogError: file, line, kata, field and fix.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from grader.dtype import DTYPES
from grader.libraries import LIBRARIES

FILE = "difficulty.yaml"
LEVELS = ("easy", "medium", "hard", "hard+", "hard++")
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")
PATHS = ("core", "drill")
ORIGINS = ("public", "extra")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times faster


class CatalogError(Exception):
    """difficulty.yaml or the folders are not as they must be, or no kata goes by a name."""


@dataclass(frozen=True)
class Threshold:
    """Percent of the baseline's speed to reach on one architecture; ``measured`` by this project, or else published."""

    percent: float
    measured: bool


@dataclass(frozen=True)
class Speed:
    """Speed: against which baseline, on which shapes, and how fast on each architecture ("sm_90" -> Threshold).

    On an architecture without a threshold the speed is shown and not graded.
    """

    baseline: str
    shapes: tuple[Mapping[str, int], ...]
    percent: Mapping[str, Threshold] = field(default_factory=dict)
    beside: tuple[str, ...] = ()  # further baselines, shown and not graded


@dataclass(frozen=True, kw_only=True)
class Kata:
    """One exercise. Its name is the files' stem, the exported launcher and its key in difficulty.yaml."""

    name: str
    family: str
    level: str
    elem: str
    root: Path
    acc: str | None = None
    after: tuple[str, ...] = ()
    compute: str = "sm_80"
    multiples: Mapping[str, int] = field(default_factory=dict, hash=False)
    path: Literal["core", "drill"] = "core"
    origin: Literal["public", "extra"] = "public"
    libraries: tuple[str, ...] = ()
    speed: Speed | None = field(default=None, hash=False)

    @property
    def capability(self) -> tuple[int, int]:
        """The minimum compute capability, (major, minor)."""
        digits = self.compute.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])

    @property
    def skeleton_path(self) -> Path:
        return self.root / "exercises" / self.family / f"{self.name}.cu"

    @property
    def solution_path(self) -> Path:
        return self.root / "solutions" / self.family / f"{self.name}.cu"

    @property
    def spec_path(self) -> Path:
        return self.root / "exercises" / self.family / f"test_{self.family}.py"

    @property
    def lesson_path(self) -> Path:
        return self.root / "exercises" / self.family / "README.md"

    @property
    def hints_path(self) -> Path:
        return self.root / "exercises" / self.family / "hints.yaml"


@dataclass(frozen=True)
class Catalog:
    """All katas by name, in the order of difficulty.yaml."""

    root: Path
    katas: Mapping[str, Kata]

    @cached_property
    def by_family(self) -> Mapping[str, tuple[Kata, ...]]:
        families: dict[str, list[Kata]] = {}
        for kata in self.katas.values():
            families.setdefault(kata.family, []).append(kata)
        return {family: tuple(katas) for family, katas in families.items()}

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(self.by_family)

    def select(self, patterns: Iterable[str | os.PathLike[str]] = ()) -> tuple[Kata, ...]:
        """The katas that any pattern names, in catalog order; all of them for no pattern.

        A pattern is a kata, a family, a level, a glob over names or files, or the path of a .cu file, a spec or a
        folder (relative to the working directory or to the root). Capitals and small letters are one to a name, and
        a kata's may end in .cu where no file is called that. Raises CatalogError for a pattern that names none.
        """
        names = [os.fspath(pattern) for pattern in patterns]
        chosen = {kata.name for pattern in names for kata in self._named_by(pattern)}
        return tuple(kata for kata in self.katas.values() if not names or kata.name in chosen)

    def _named_by(self, pattern: str) -> Sequence[Kata]:
        if pattern in self.katas:
            return (self.katas[pattern],)
        if pattern in self.by_family:
            return self.by_family[pattern]
        every = tuple(self.katas.values())
        if pattern in LEVELS:
            return tuple(kata for kata in every if kata.level == pattern)
        found = (
            tuple(kata for kata in every if _matches(kata, pattern)) or self._under(pattern) or self._nearly(pattern)
        )
        if not found:
            known = [*self.katas, *self.families, *LEVELS]
            close = _close(pattern.lower().removesuffix(".cu"), known)
            raise CatalogError(f"No kata is named by {pattern!r}.{close} `kata list` shows them all.")
        return found

    def _nearly(self, pattern: str) -> tuple[Kata, ...]:
        """Katas whose name, family or level this is but for capitals, or whose name it is with a .cu of no file."""
        name = pattern.lower()
        stem = name if os.path.lexists(pattern) else name.removesuffix(".cu")
        every = tuple(self.katas.values())
        exact = tuple(kata for kata in every if kata.name.lower() == stem)
        return exact or tuple(kata for kata in every if name in (kata.family.lower(), kata.level))

    def _under(self, pattern: str) -> tuple[Kata, ...]:
        """Katas that have a file at this path or below it."""
        for start in (Path.cwd(), self.root):
            path = start / pattern
            places = {os.path.relpath(path, self.root), os.path.relpath(path.resolve(), self.root.resolve())}
            found = tuple(kata for kata in self.katas.values() if any(_stands_at(kata, place) for place in places))
            if found and path.exists():
                return found
        return ()


def find_root(start: Path | None = None) -> Path:
    """The folder with difficulty.yaml: ``start`` (the working directory) or above it, else this package's parent."""
    start = (start or Path.cwd()).absolute()
    for folder in (start, *start.parents, Path(__file__).absolute().parent.parent):
        if (folder / FILE).is_file():
            return folder
    raise CatalogError(f"No {FILE} in {start} or any folder above it. Change into the folder of the katas.")


def load_catalog(root: Path, *, missing_skeletons: bool = False) -> Catalog:
    """Read and check everything. ``missing_skeletons`` lets skeletons be absent, for the commands that write them."""
    root = root.absolute()
    entries = {entry.kata.name: entry for entry in _entries(root / FILE, root)}
    catalog = Catalog(root, {name: entry.kata for name, entry in entries.items()})
    _check_files(entries, root, missing_skeletons=missing_skeletons)
    _check_order(entries)
    return catalog


# Reading: YAML nodes, so that every error has its line


@dataclass(frozen=True)
class _Value:
    """One YAML node, and what to call it in an error."""

    node: Any
    file: Path
    subject: str

    def error(self, problem: str) -> CatalogError:
        return CatalogError(f"{self.file}:{self.node.start_mark.line + 1}: {self.subject}: {problem}")

    def named(self, subject: str) -> _Value:
        return _Value(self.node, self.file, subject)

    def items(self) -> Iterator[tuple[str, _Value, _Value]]:
        """(key, the key's own value for errors, the value) of a mapping. A key that comes twice is an error."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"expected `key: value` lines, found {self._found()}. Indent them below it.")
        lines: dict[str, int] = {}
        for key_node, value_node in self.node.value:
            key = _Value(key_node, self.file, self.subject)
            name = key.scalar(str, "a name")
            if name in lines:
                raise key.error(f"{name!r} is there twice, first on line {lines[name]}. Remove or rename one of them.")
            lines[name] = key_node.start_mark.line + 1
            yield name, key.named(f"{self.subject}: {name}"), _Value(value_node, self.file, f"{self.subject}: {name}")

    def elements(self) -> list[_Value]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"expected a list, found {self._found()}. Write it in brackets: [...].")
        return [_Value(node, self.file, self.subject) for node in self.node.value]

    def scalar(self, kind: type | tuple[type, ...], expected: str) -> Any:
        value = self._plain()
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(f"expected {expected}, found {self._found()}. Write {expected} there.")
        return value

    def _plain(self) -> Any:
        if not isinstance(self.node, yaml.ScalarNode):
            return None
        if self.node.tag == "tag:yaml.org,2002:str":
            return self.node.value
        try:
            return yaml.SafeLoader("").construct_object(self.node)
        except (yaml.YAMLError, ValueError):
            return None

    def _found(self) -> str:
        if isinstance(self.node, yaml.ScalarNode):
            return repr(self.node.value) if self.node.value else "nothing"
        return "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"


_Read = Callable[[_Value], Any]


@dataclass(frozen=True)
class _Field:
    read: _Read
    default: Any = None
    required: bool = False


def _one_of(known: Sequence[str]) -> _Read:
    def read(value: _Value) -> str:
        text = value.scalar(str, f"one of {', '.join(known)}")
        if text not in known:
            raise value.error(f"unknown value {text!r}.{_close(text, known)} Use one of {', '.join(known)}.")
        return str(text)

    return read


def _count(value: _Value) -> int:
    number = value.scalar(int, "a whole number of at least 1")
    if number < 1:
        raise value.error(f"{number} is too small. Write a whole number of at least 1.")
    return int(number)


def _percent(value: _Value) -> float:
    number = value.scalar((int, float), "a number in (0, 300]")
    if not 0 < number <= 300:
        raise value.error(f"{number} percent of the baseline is out of range. Write a number in (0, 300].")
    return float(number)


def _sizes(value: _Value) -> dict[str, int]:
    return {name: _count(size) for name, _, size in value.items()}


def _filled(values: Any, value: _Value) -> Any:
    if not values:
        raise value.error("is empty. Give at least one entry, or remove `speed`.")
    return values


def _record(value: _Value, fields: Mapping[str, _Field]) -> dict[str, Any]:
    """The fields of one mapping, each read by its row; unknown and missing ones are errors."""
    found: dict[str, Any] = {}
    for name, key, item in value.items():
        if name not in fields:
            raise key.error(f"unknown field.{_close(name, fields)} Known fields: {', '.join(fields)}.")
        found[name] = fields[name].read(item)
    for name, row in fields.items():
        if row.required and name not in found:
            raise value.named(f"{value.subject}: {name}").error(f"missing. Add a line `{name}: ...`.")
        found.setdefault(name, row.default)
    return found


_THRESHOLD = {
    "value": _Field(_percent, required=True),
    "measured": _Field(lambda value: value.scalar(bool, "true or false"), required=True),
}


def _threshold(value: _Value) -> Threshold:
    found = _record(value, _THRESHOLD)
    return Threshold(percent=found["value"], measured=found["measured"])


def _thresholds(value: _Value) -> dict[str, Threshold]:
    found = {}
    for name, key, item in value.items():
        if name not in ARCHITECTURES:
            raise key.error(f"unknown architecture. Use one of {', '.join(ARCHITECTURES)}.")
        found[name] = _threshold(item)
    return found


_SPEED = {
    "baseline": _Field(lambda value: value.scalar(str, "a name such as torch.mm"), required=True),
    "shapes": _Field(lambda value: _filled(tuple(_sizes(shape) for shape in value.elements()), value), required=True),
    "percent": _Field(_thresholds, {}),
    "beside": _Field(lambda value: tuple(item.scalar(str, "a baseline's name") for item in value.elements()), ()),
}

_KATA = {
    "level": _Field(_one_of(LEVELS), required=True),
    "elem": _Field(_one_of(tuple(DTYPES)), required=True),
    "acc": _Field(_one_of(tuple(DTYPES))),
    "after": _Field(lambda value: tuple(item.scalar(str, "a kata's name") for item in value.elements()), ()),
    "compute": _Field(_one_of(ARCHITECTURES), "sm_80"),
    "path": _Field(_one_of(PATHS), "core"),
    "multiples": _Field(_sizes, {}),
    "origin": _Field(_one_of(ORIGINS), "public"),
    "libraries": _Field(lambda value: tuple(_one_of(tuple(LIBRARIES))(item) for item in value.elements()), ()),
    "speed": _Field(lambda value: Speed(**_record(value, _SPEED))),
}


@dataclass(frozen=True)
class _Entry:
    kata: Kata
    value: _Value

    def error(self, problem: str, name: str = "") -> CatalogError:
        """An error at the entry, or at one of its fields."""
        fields = {key: item for key, _, item in self.value.items()}
        return fields.get(name, self.value).error(problem)


def _root_node(file: Path) -> Any:
    try:
        text = file.read_text(encoding="utf-8")
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except OSError as error:
        raise CatalogError(f"{file}: cannot be read ({error.strerror}). It must list the katas.") from None
    except UnicodeDecodeError:
        raise CatalogError(f"{file}: is not UTF-8 text. Save it as UTF-8.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise CatalogError(f"{file}:{line}: not valid YAML: {error.problem}. Mend it there or just above.") from None
    except yaml.YAMLError as error:
        raise CatalogError(f"{file}: not valid YAML: {' '.join(str(error).split())}. Mend it.") from None


def _entries(file: Path, root: Path) -> Iterator[_Entry]:
    node = _root_node(file)
    if node is None:
        raise CatalogError(f"{file}: is empty. List at least one family with one kata.")
    lines: dict[str, int] = {}
    for family, family_key, katas in _Value(node, file, "family").items():
        _check_name(family, family_key.named(f"family {family}"))
        for name, key, item in katas.named(f"family {family}").items():
            subject = f"kata {name}"
            _check_name(name, key.named(subject))
            line = key.node.start_mark.line + 1
            if lines.setdefault(name, line) != line:
                raise key.named(subject).error(f"there twice, first on line {lines[name]}. Rename one of them.")
            value = item.named(subject)
            yield _Entry(Kata(name=name, family=family, root=root, **_record(value, _KATA)), value)


def _check_name(name: str, key: _Value) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise key.error("not a C identifier. Use only letters, digits and _, and no digit first.")


# Checks of the whole


def _check_files(entries: Mapping[str, _Entry], root: Path, *, missing_skeletons: bool) -> None:
    there = {path for folder in ("exercises", "solutions") for path in _files(root / folder)}
    expected: set[str] = set()
    for name, entry in entries.items():
        kata = entry.kata
        fixes = {
            kata.spec_path: "Write the family's SPEC there.",
            kata.solution_path: "Write it, or remove this entry.",
            kata.skeleton_path: f"`kata reset {name}` writes it anew.",
        }
        expected |= {str(path) for path in fixes}
        for path, fix in fixes.items():
            if str(path) not in there and not (missing_skeletons and path == kata.skeleton_path):
                raise entry.error(f"{path.relative_to(root)} is missing. {fix}")
    for stray in sorted(path for path in there - expected if path.endswith(".cu")):
        shown, family = os.path.relpath(stray, root), Path(stray).parent.name
        raise CatalogError(
            f"{root / FILE}: {shown} has no entry. Add `{Path(stray).stem}:` under `{family}:`, or move the file"
            " out of this folder (a copy of your own may end in .txt)."
        )


def _files(folder: Path) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        yield from (os.path.join(where, name) for name in names if not name.startswith("."))


def _check_order(entries: Mapping[str, _Entry]) -> None:
    for entry in entries.values():
        for before in entry.kata.after:
            if before not in entries:
                problem = f"no kata is named {before!r}.{_close(before, entries)} Name a kata of this file."
                raise entry.error(problem, "after")
    done: set[str] = set()
    for name in entries:
        if cycle := _cycle(name, entries, done):
            circle = " -> ".join([*cycle, cycle[0]])
            raise entries[cycle[0]].error(f"a cycle, nobody could begin: {circle}. Remove one of these.", "after")


def _cycle(start: str, entries: Mapping[str, _Entry], done: set[str]) -> list[str]:
    """The first cycle that can be reached from ``start``, or []; every kata found free of one goes into ``done``."""
    trail = [start]
    todo = [iter(entries[start].kata.after)]
    while trail:
        name = next((before for before in todo[-1] if before not in done), None)
        if name is None:
            done.add(trail.pop())
            todo.pop()
        elif name in trail:
            return trail[trail.index(name) :]
        else:
            trail.append(name)
            todo.append(iter(entries[name].kata.after))
    return []


def _matches(kata: Kata, pattern: str) -> bool:
    names = (kata.name, f"exercises/{kata.family}/{kata.name}.cu", f"solutions/{kata.family}/{kata.name}.cu")
    return any(character in pattern for character in "*?") and any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _stands_at(kata: Kata, place: str) -> bool:
    files = (kata.skeleton_path, kata.solution_path, kata.spec_path, kata.lesson_path)
    return any(Path(place) in (file, *file.parents) for file in (path.relative_to(kata.root) for path in files))


def _close(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""
