"""What git says has changed -> the katas and the tests that the change can have touched.

It errs towards too much: what it cannot place touches everything.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from grader.content.catalog import FILE, Catalog
from grader.fault import Fault

WRONG_KERNELS = "tests/wrong_kernels"
KATA_TESTS = "tests/test_wrong_kernels.py"  # one test for each kata and wrong kernel: chosen by kata
PIPELINE = "grader.grade"  # what it imports decides every verdict
_ALL_KATAS = r"\b(?:katas|KATAS)\.(?:values|items)\(\)|\bby_family\b|\blist\(KATAS\)"
_COMMAND = re.compile(r"\"grader\"|'grader'|\"kata\"|\bcli\b|pytester|pytest_run|make_clone")


class ChangesError(Fault):
    """git cannot say what has changed; the message says why."""


@dataclass(frozen=True)
class Touched:
    """``why`` has a sentence for each changed file. ``everything``: the katas and tests named are then all of them."""

    everything: bool
    katas: tuple[str, ...]
    tests: tuple[str, ...]
    why: Mapping[str, str]


def touched(catalog: Catalog, base: str | None) -> Touched:
    """What differs from commit ``base``, committed or not; None: from where this branch left its upstream.

    Raises ChangesError.
    """
    root = catalog.root
    base = _commit(root, base) if base else _left_upstream(root)
    changed = _git(root, "diff", "--name-only", "--no-renames", base).splitlines()
    changed += _git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    return _Survey(catalog, base).of(sorted(set(changed)))


def _left_upstream(root: Path) -> str:
    try:
        return _git(root, "merge-base", "HEAD", "@{upstream}").strip()
    except ChangesError:
        return "HEAD"


def _commit(root: Path, name: str) -> str:
    _git(root, "rev-parse", "--git-dir")  # git says so outside a repository
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    except ChangesError:
        raise ChangesError(f"no commit is called {name!r}. Name one, a branch or a tag.") from None


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        raise ChangesError("git was not found, and it knows what has changed. Install it.") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ChangesError(f"git {' '.join(arguments[:2])}: {said}")
    return done.stdout


@dataclass(frozen=True)
class _Part:
    """What one changed file touches, and why. None: everything."""

    why: str
    katas: Iterable[str] | None = ()
    tests: Iterable[str] = ()


class _Survey:
    """The repository as it is, looked at from a change. What is read of it is read once."""

    def __init__(self, catalog: Catalog, base: str) -> None:
        self._catalog, self._root, self._base = catalog, catalog.root, base

    def of(self, changed: list[str]) -> Touched:
        parts = {path: self._part(PurePosixPath(path)) for path in changed}
        everything = any(part.katas is None for part in parts.values())
        katas = {name for part in parts.values() for name in part.katas or ()}
        tests = {name for part in parts.values() for name in part.tests}
        return Touched(
            everything,
            tuple(name for name in self._catalog.katas if everything or name in katas),
            tuple(name for name in self._tests if everything or name in tests),
            {path: part.why for path, part in parts.items()},
        )

    def _part(self, path: PurePosixPath) -> _Part:
        rules: Mapping[str, Callable[[PurePosixPath], _Part]] = {
            "solutions": self._of_kata_file,
            "exercises": self._of_kata_file,
            "grader": self._of_module,
            "tests": self._of_tests,
            "docs": self._of_text,
        }
        if str(path) == FILE:
            return self._of_entries(path, "its katas")
        if path.suffix == ".md" and len(path.parts) == 1:
            return self._of_text(path)
        rule = rules.get(path.parts[0])
        return rule(path) if rule else _Part("it is not known what it touches: everything", None)

    # -- content

    def _of_kata_file(self, path: PurePosixPath) -> _Part:
        family = path.parts[1] if len(path.parts) > 2 else ""
        if family not in self._catalog.by_family:
            return self._of_text(path)
        katas = [kata.name for kata in self._catalog.by_family[family]]
        if path.suffix == ".cu":
            katas = [name for name in katas if name == path.stem]
            graded = katas if path.parts[0] == "solutions" else []
            return _Part(f"{path.stem}, and the tests that name it", graded, self._naming(katas or [path.stem]))
        if path.suffix == ".py":
            return _Part(f"all of {family}, and the tests that name it", katas, self._naming([*katas, family]))
        return self._of_text(path)

    def _of_entries(self, path: PurePosixPath, what: str) -> _Part:
        """A YAML file with an entry for each kata: those whose entries differ."""
        now, before = self._entries((self._root / path).read_text), self._entries(lambda: self._before(path))
        if now is None or before is None:
            return _Part("it cannot be compared: everything", None)
        if str(path) == FILE and not set(before) <= set(self._catalog.by_family):
            return _Part("a family is gone: everything", None)
        ours, theirs = self._by_kata(now), self._by_kata(before)
        katas = [name for name in self._catalog.katas if ours.get(name) != theirs.get(name)]
        return _Part(f"{what}: {', '.join(katas) or 'none'}", katas, self._naming(katas))

    def _entries(self, read: Callable[[], str]) -> dict[str, Any] | None:
        try:
            entries = yaml.safe_load(read()) or {}
        except (OSError, ChangesError, yaml.YAMLError):
            return None
        return entries if isinstance(entries, dict) else None

    def _before(self, path: PurePosixPath) -> str:
        """The file's text at the base; nothing where it was not there yet."""
        if not _git(self._root, "ls-tree", self._base, "--", str(path)):
            return ""
        return _git(self._root, "show", f"{self._base}:{path}")

    def _by_kata(self, entries: Any) -> dict[str, Any]:
        """Everything under a kata's name, at any depth."""
        found: dict[str, Any] = {}
        if isinstance(entries, dict):
            for key, value in entries.items():
                found |= {key: value} if key in self._catalog.katas else self._by_kata(value)
        return found

    def _of_text(self, path: PurePosixPath) -> _Part:
        """Prose and data: the tests that name the file; of a kata's also those that look at every kata."""
        if path.parts[0] == "exercises":
            return _Part("the tests that name it or look at every kata", (), self._naming([path.name]))
        return _Part("the tests that name it", (), self._having(rf"\b{re.escape(path.name)}\b"))

    def _naming(self, words: list[str]) -> list[str]:
        """Tests that name one of these, and those that look at every kata."""
        return self._having("|".join([*(rf"\b{re.escape(word)}\b" for word in words), _ALL_KATAS]))

    def _having(self, pattern: str) -> list[str]:
        return [name for name, text in self._tests.items() if re.search(pattern, text)]

    # -- code

    def _of_module(self, path: PurePosixPath) -> _Part:
        if path.suffix in (".md", ".json"):
            return self._of_text(path)
        module = _module(path)
        if path.suffix != ".py" or module in self._reached([PIPELINE]):
            return _Part("every grade depends on it: everything", None)
        return _Part("the tests that import it or run the command", (), [*self._importing(module), *self._commands])

    def _of_tests(self, path: PurePosixPath) -> _Part:
        if str(path).startswith(WRONG_KERNELS) and path.suffix == ".yaml":
            return self._of_entries(path, "wrong kernels of")
        kata = path.parent.name
        if path.suffix == ".cu" and kata in self._catalog.katas:
            return _Part(f"wrong kernels of {kata}", [kata])
        if len(path.parts) > 2 and (named := self._having(rf"\b{re.escape(path.parts[1])}\b")):
            return _Part(f"the tests that name the folder {path.parts[1]}", (), named)
        if path.name == "conftest.py" or path.suffix != ".py":
            return _Part("any test may use it: everything", None)
        if str(path) == KATA_TESTS:
            return _Part("the verdicts of all katas", None)
        return _Part("itself, and the tests that import it", (), [str(path), *self._importing(_module(path))])

    @cached_property
    def _tests(self) -> dict[str, str]:
        """Every file of tests, with its text."""
        files = sorted((self._root / "tests").glob("test_*.py"))
        return {file.relative_to(self._root).as_posix(): file.read_text() for file in files}

    @cached_property
    def _commands(self) -> list[str]:
        """Tests that run `kata`, which imports all there is."""
        return [name for name, text in self._tests.items() if _COMMAND.search(text)]

    def _importing(self, module: str) -> list[str]:
        return [name for name in self._tests if module in self._reached([_module(PurePosixPath(name))])]

    def _reached(self, modules: Iterable[str]) -> set[str]:
        """Modules, and everything that they import, directly or not."""
        reached: set[str] = set()
        pending = list(modules)
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending += self._imports.get(name, ())
        return reached

    @cached_property
    def _imports(self) -> dict[str, set[str]]:
        places = [*(self._root / "grader").rglob("*.py"), *(self._root / "tests").rglob("*.py")]
        modules = {_module(PurePosixPath(place.relative_to(self._root).as_posix())): place for place in places}
        del modules["grader"]  # it has only names that are imported on first use
        return {name: set(_imported(place, name)) & modules.keys() for name, place in modules.items()}


def _module(path: PurePosixPath) -> str:
    """The name that a file is imported by: those of tests/ stand on the path by themselves."""
    parts = list(path.with_suffix("").parts)
    parts = parts[1:] if parts[0] == "tests" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(place: Path, module: str) -> Iterator[str]:
    """All that a file may import, with the packages around it."""
    package = module if place.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(place.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [package if node.level else "", node.module or ""]))
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
