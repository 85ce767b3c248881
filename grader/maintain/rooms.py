"""grader/ -> its rooms in the order of their imports, and the imports that go against it.

A room is a folder, or a module that stands beside the folders. It imports only from rooms before it. Inside a room no
modules import each other in a circle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOMS = (
    "fault",
    "system",
    "storage",
    "content",
    "devices",
    "options",
    "verdict",
    "compile",
    "sandbox",
    "judge",
    "grade",
    "learner",
    "output",
    "service",
    "pages",
    "notebook",
    "ops",
    "classes",
    "maintain",
    "practice",
    "interview",
    "commands",
    "cli",
    "__main__",
    "pytest_plugin",
)
Module = tuple[str, ...]  # its path below grader/: ("content", "spec"); a folder's __init__.py is ("content",)


def table(root: Path) -> str:
    """The rooms as Markdown, each with the first paragraph of its docstring."""
    rows = ["| room of `grader/` | what is in it |", "|---|---|"]
    for room in ROOMS:
        path = _file(root, (room,))
        if path is not None:
            words = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
            rows.append(f"| {_shown(path, root)} | {' '.join(words.split())} |")
    return "\n".join(rows)


def problems(root: Path) -> list[str]:
    """Imports against the order, circles, modules that are in no room, and rooms that do not say what they are."""
    imports = {module: [*_imports(root, path)] for module, path in _modules(root).items()}
    return [*_outside(root, imports), *_backward(root, imports), *_circles(imports), *_silent(root)]


def _outside(root: Path, imports: Mapping[Module, object]) -> Iterator[str]:
    for room in sorted({module[0] for module in imports} - {*ROOMS}):
        yield f"grader/{room} is not in ROOMS of grader/maintain/rooms.py; give it its place there."


def _backward(root: Path, imports: Mapping[Module, Sequence[tuple[int, Module]]]) -> Iterator[str]:
    places = {room: place for place, room in enumerate(ROOMS)}
    for module, found in imports.items():
        for line, other in found:
            if places.get(other[0], 0) > places.get(module[0], len(ROOMS)):
                path = _modules(root)[module].relative_to(root)
                yield f"{path}:{line}: imports grader.{'.'.join(other)}, but room {other[0]} comes after {module[0]}."


def _circles(imports: Mapping[Module, Sequence[tuple[int, Module]]]) -> Iterator[str]:
    """Between modules of one room. That a module is imported with its package's __init__.py does not count."""
    for room in ROOMS:
        graph = {
            module: {other for _, other in found if other[0] == room and other != module}
            for module, found in imports.items()
            if module[0] == room
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            yield f"a circle of imports: {' <- '.join('.'.join(module) for module in error.args[1])}."


def _silent(root: Path) -> Iterator[str]:
    for room in ROOMS:
        path = _file(root, (room,))
        if path is not None and not ast.get_docstring(ast.parse(path.read_text())):
            yield f"{path.relative_to(root)} has no docstring; its first paragraph is the room's row in README.md."


def _modules(root: Path) -> Mapping[Module, Path]:
    """Every module but grader/__init__.py, whose names are imported when they are asked for."""
    found = {}
    for path in sorted((root / "grader").rglob("*.py")):
        parts = path.relative_to(root / "grader").with_suffix("").parts
        module = parts[:-1] if parts[-1] == "__init__" else parts
        if module:
            found[module] = path
    return found


def _imports(root: Path, path: Path) -> Iterator[tuple[int, Module]]:
    """(line, module) for every import from the grader, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "grader":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "grader"]
        else:
            continue
        for name in names:
            parts = tuple(name.split(".")[1:])
            candidates = (parts[:count] for count in range(len(parts), 0, -1))
            module = next((each for each in candidates if _file(root, each) is not None), None)
            if module is not None:
                yield node.lineno, module


def _file(root: Path, module: Module) -> Path | None:
    place = root.joinpath("grader", *module)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _shown(path: Path, root: Path) -> str:
    return f"`{path.parent.name}/`" if path.name == "__init__.py" else f"`{path.name}`"
