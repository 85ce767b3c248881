"""difficulty.yaml and the folders -> Catalog: every kata, its facts and its files, in the order to solve them.

A catalog that loads is whole: each field has a known value, each file is there, each file has its entry, and no
kata waits for itself. The first thing that is not so is one CatalogError: file, line, kata, field and fix.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from grader.content.dtype import DTYPES
from grader.content.yaml_fields import Field, Value, close_to, one_of, record, root_value
from grader.fault import Fault

FILE = "difficulty.yaml"
WORK = "work"  # the folder of the learner's files
LEVELS = ("easy", "medium", "hard", "hard+", "hard++")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100")
EXACT = ("sm_90a",)  # with instructions that no newer architecture has
ROLES = ("core", "drill")
ORIGINS = ("public", "extra")
LIBRARIES = ("cublas", "cutlass", "driver")  # that a kata may use; grader.compile.libraries finds each


class CatalogError(Fault):
    """difficulty.yaml or the folders are not as they must be, or no kata goes by a name."""


def capability_of(arch: str) -> tuple[int, int]:
    """The compute capability of an architecture, (major, minor): (9, 0) for sm_90 and for sm_90a."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return int(digits[:-1]), int(digits[-1])


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
    also_compare: tuple[str, ...] = ()  # further baselines, shown and not graded


@dataclass(frozen=True, kw_only=True)
class Kata:
    """One exercise. Its name is the files' stem, the exported launcher and its key in difficulty.yaml.

    ``requires``: the katas to solve first. The first of them is the rung before this one.
    """

    name: str
    family: str
    level: str
    elem: str
    root: Path
    acc: str | None = None
    requires: tuple[str, ...] = ()
    compute: str = ARCHITECTURES[0]
    multiples: Mapping[str, int] = field(default_factory=dict, hash=False)
    role: Literal["core", "drill"] = "core"
    origin: Literal["public", "extra"] = "public"
    libraries: tuple[str, ...] = ()
    speed: Speed | None = field(default=None, hash=False)

    @property
    def capability(self) -> tuple[int, int]:
        """The minimum compute capability, (major, minor)."""
        return capability_of(self.compute)

    def runs_on(self, arch: str) -> bool:
        """Whether a card that nvcc builds ``arch`` for (sm_80, sm_90a) has the instructions that the kata needs."""
        return arch == self.compute if self.compute in EXACT else self.capability <= capability_of(arch)

    @cached_property
    def skeleton_path(self) -> Path:
        return self.root.joinpath("exercises", self.family, f"{self.name}.cu")

    @property
    def work_path(self) -> Path:
        """Where `kata start` puts the learner's file; git ignores that folder."""
        return self.root.joinpath(WORK, self.family, f"{self.name}.cu")

    @property
    def own_path(self) -> Path:
        """The learner's file: in WORK once the kata was started there, else the skeleton."""
        return self.work_path if os.path.lexists(self.work_path) else self.skeleton_path

    @cached_property
    def solution_path(self) -> Path:
        return self.root.joinpath("solutions", self.family, f"{self.name}.cu")

    @cached_property
    def spec_path(self) -> Path:
        return self.root.joinpath("exercises", self.family, f"test_{self.family}.py")

    @property
    def lesson_path(self) -> Path:
        return self.root.joinpath("exercises", self.family, "README.md")

    @property
    def hints_path(self) -> Path:
        return self.root.joinpath("exercises", self.family, "hints.yaml")


@dataclass(frozen=True)
class Catalog:
    """All katas by name, in the order of difficulty.yaml; ``about`` says in one line what each family teaches.

    ``also`` has the other words that people call a family by: matmul for sgemm.
    """

    root: Path
    katas: Mapping[str, Kata]
    about: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
            raise CatalogError(f"No kata is named by {pattern!r}.{self.meant(pattern)} `kata list` shows them all.")
        return found

    def meant(self, word: str) -> str:
        """`` Did you mean ...?`` for a word that names no kata, or an empty text if nothing is close to it."""
        word = word.lower().removesuffix(".cu")
        plain = re.sub(r"[\s_-]", "", word)
        near = [name for name in self.families if plain in (name.replace("_", ""), *self.also.get(name, ()))]
        near = near or [name for name in self.families if len(word) > 2 and word in name]
        if near:
            return f" Did you mean {' or '.join(near[:3])}?"
        within = [name for name in self.katas if len(word) > 2 and word in name.lower()]
        if len(within) > 3:
            return f" {len(within)} names have it: '*{word}*' names them."
        close = close_to(word, [*self.katas, *self.families, *LEVELS])
        return f" Did you mean {' or '.join(within)}?" if within else close

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
            places = {
                os.path.relpath(path, self.root),
                os.path.relpath(os.path.realpath(path), os.path.realpath(self.root)),
            }
            found = tuple(kata for kata in self.katas.values() if any(_stands_at(kata, place) for place in places))
            if found and os.path.lexists(path):
                return found
        return ()


def find_root(start: Path | None = None) -> Path:
    """The folder with difficulty.yaml: ``start`` (the working directory) or above it, else this package's parent."""
    start = (start or Path.cwd()).absolute()
    for folder in (start, *start.parents, Path(__file__).absolute().parents[2]):
        if (folder / FILE).is_file():
            return folder
    raise CatalogError(f"No {FILE} in {start} or any folder above it. Change into the folder of the katas.")


def load_catalog(root: Path, *, missing_skeletons: bool = False) -> Catalog:
    """Read and check everything. ``missing_skeletons`` lets skeletons be absent, for the commands that write them."""
    root = root.absolute()
    value = root_value(root / FILE, "family", CatalogError, "It must list the katas.")
    if value is None:
        raise CatalogError(f"{root / FILE}: is empty. List at least one family with one kata.")
    families, entries = _listed(value, root)
    about = {name: family.about for name, family in families.items()}
    also = {name: family.also for name, family in families.items()}
    catalog = Catalog(root, {name: entry.kata for name, entry in entries.items()}, about, also)
    _check_files(entries, root, missing_skeletons=missing_skeletons)
    _check_order(entries)
    return catalog


@functools.lru_cache(maxsize=8)
def _listed(value: Value, root: Path) -> tuple[Mapping[str, _Family], Mapping[str, _Entry]]:
    """What the file lists. The same text has the same value: it is read once, however often it is asked for."""
    families = _families(value)
    return families, {entry.kata.name: entry for entry in _entries(families, root)}


# Reading: the tables of fields

_ABOUT, _ALSO = "about", "also"  # the fields of a family; all its other fields are katas


def _one_line(value: Value) -> str:
    text = str(value.scalar(str, "a line of text")).strip()
    if not text or "\n" in text:
        found = "has more than one line" if text else "is empty"
        raise value.error(f"{found}. Say in one line what the family teaches.")
    return text


def _words(value: Value) -> Iterator[str]:
    for item in value.elements():
        word = str(item.scalar(str, "a word, such as matmul"))
        if not re.fullmatch(r"[a-z0-9]+", word):
            raise item.error("has other characters than small letters and digits. People may type it in any way.")
        yield word


def _count(value: Value) -> int:
    number = value.scalar(int, "a whole number of at least 1")
    if number < 1:
        raise value.error(f"{number} is too small. Write a whole number of at least 1.")
    return int(number)


def _percent(value: Value) -> float:
    number = value.scalar((int, float), "a number in (0, 300]")
    if not 0 < number <= 300:
        raise value.error(f"{number} percent of the baseline is out of range. Write a number in (0, 300].")
    return float(number)


def _sizes(value: Value) -> dict[str, int]:
    return {name: _count(size) for name, _, size in value.items()}


def _filled(values: Any, value: Value) -> Any:
    if not values:
        raise value.error("is empty. Give at least one entry, or remove `speed`.")
    return values


_THRESHOLD = {
    "value": Field(_percent, required=True),
    "measured": Field(lambda value: value.scalar(bool, "true or false"), required=True),
}


def _threshold(value: Value) -> Threshold:
    found = record(value, _THRESHOLD)
    return Threshold(percent=found["value"], measured=found["measured"])


def _thresholds(value: Value) -> dict[str, Threshold]:
    found = {}
    for name, key, item in value.items():
        if name not in ARCHITECTURES:
            raise key.error(f"unknown architecture. Use one of {', '.join(ARCHITECTURES)}.")
        found[name] = _threshold(item)
    return found


_SPEED = {
    "baseline": Field(lambda value: value.scalar(str, "a name such as torch.mm"), required=True),
    "shapes": Field(lambda value: _filled(tuple(_sizes(shape) for shape in value.elements()), value), required=True),
    "percent": Field(_thresholds, {}),
    "also_compare": Field(lambda value: tuple(item.scalar(str, "a baseline's name") for item in value.elements()), ()),
}

_KATA = {
    "level": Field(one_of(LEVELS), required=True),
    "elem": Field(one_of(tuple(DTYPES)), required=True),
    "acc": Field(one_of(tuple(DTYPES))),
    "requires": Field(lambda value: tuple(item.scalar(str, "a kata's name") for item in value.elements()), ()),
    "compute": Field(one_of((*ARCHITECTURES, *EXACT)), ARCHITECTURES[0]),
    "role": Field(one_of(ROLES), "core"),
    "multiples": Field(_sizes, {}),
    "origin": Field(one_of(ORIGINS), "public"),
    "libraries": Field(lambda value: tuple(one_of(LIBRARIES)(item) for item in value.elements()), ()),
    "speed": Field(lambda value: Speed(**record(value, _SPEED))),
}


@dataclass(frozen=True)
class _Entry:
    kata: Kata
    value: Value

    def error(self, problem: str, name: str = "") -> Exception:
        """An error at the entry, or at one of its fields."""
        fields = {key: item for key, _, item in self.value.items()}
        return fields.get(name, self.value).error(problem)


@dataclass(frozen=True)
class _Family:
    """What the family teaches, other words for it, and its katas: (name, key, entry)."""

    about: str
    also: tuple[str, ...]
    katas: tuple[tuple[str, Value, Value], ...]


def _families(found: Value) -> Mapping[str, _Family]:
    return {name: _family(name, key, value) for name, key, value in found.items()}


def _family(name: str, key: Value, value: Value) -> _Family:
    subject = f"family {name}"
    key, fields = key.named(subject), [*value.named(subject).items()]
    _check_name(name, key)
    abouts = [_one_line(item) for field_name, _, item in fields if field_name == _ABOUT]
    if not abouts:
        missing = f'missing. Add a line `{_ABOUT}: "..."` that says what its katas teach.'
        raise key.named(f"{subject}: {_ABOUT}").error(missing)
    also = [word for name, _, item in fields if name == _ALSO for word in _words(item)]
    katas = tuple(entry for entry in fields if entry[0] not in (_ABOUT, _ALSO))
    if not katas:
        raise key.error("has no kata. Add one, or remove the family.")
    return _Family(abouts[0], tuple(also), katas)


def _entries(families: Mapping[str, _Family], root: Path) -> Iterator[_Entry]:
    lines: dict[str, int] = {}
    for family, facts in families.items():
        for name, key, item in facts.katas:
            subject = f"kata {name}"
            _check_name(name, key.named(subject))
            if lines.setdefault(name, key.line) != key.line:
                raise key.named(subject).error(f"there twice, first on line {lines[name]}. Rename one of them.")
            value = item.named(subject)
            yield _Entry(Kata(name=name, family=family, root=root, **record(value, _KATA)), value)


def _check_name(name: str, key: Value) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise key.error("not a C identifier. Use only letters, digits and _, and no digit first.")


# Checks of the whole


def _check_files(entries: Mapping[str, _Entry], root: Path, *, missing_skeletons: bool) -> None:
    there = {path for folder in ("exercises", "solutions") for path in _files(root / folder)}
    expected: set[str] = set()
    for name, entry in entries.items():
        kata = entry.kata
        fixes = (
            (kata.spec_path, "Write the family's SPEC there."),
            (kata.solution_path, "Write it, or remove this entry."),
            (kata.skeleton_path, f"`kata reset {name}` writes it again."),
        )
        for path, fix in fixes:
            expected.add(place := str(path))
            if place not in there and not (missing_skeletons and path is fixes[-1][0]):
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
        for before in entry.kata.requires:
            if before not in entries:
                problem = f"no kata is named {before!r}.{close_to(before, entries)} Name a kata of this file."
                raise entry.error(problem, "requires")
    done: set[str] = set()
    for name in entries:
        if cycle := _cycle(name, entries, done):
            circle = " -> ".join([*cycle, cycle[0]])
            raise entries[cycle[0]].error(f"a cycle, so no one could start: {circle}. Remove one of these.", "requires")


def _cycle(start: str, entries: Mapping[str, _Entry], done: set[str]) -> list[str]:
    """The first cycle that can be reached from ``start``, or []; every kata found free of one goes into ``done``."""
    trail = [start]
    todo = [iter(entries[start].kata.requires)]
    while trail:
        name = next((before for before in todo[-1] if before not in done), None)
        if name is None:
            done.add(trail.pop())
            todo.pop()
        elif name in trail:
            return trail[trail.index(name) :]
        else:
            trail.append(name)
            todo.append(iter(entries[name].kata.requires))
    return []


def _matches(kata: Kata, pattern: str) -> bool:
    names = (kata.name, *(f"{folder}/{kata.family}/{kata.name}.cu" for folder in ("exercises", WORK, "solutions")))
    return any(character in pattern for character in "*?") and any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _stands_at(kata: Kata, place: str) -> bool:
    files = (kata.skeleton_path, kata.work_path, kata.solution_path, kata.spec_path, kata.lesson_path)
    return any(Path(place) in (file, *file.parents) for file in (path.relative_to(kata.root) for path in files))
