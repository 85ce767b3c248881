"""Sources -> problems: format, lint and types, and functions that no longer fit a screen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SCREEN = 60  # lines of a C++ function, with its signature


def check_style(root: Path) -> list[str]:
    """ruff (lint and format), mypy --strict on grader/, clang-format on every .cu, .cpp and .h, and no function of a
    .cpp or .h longer than a screen."""
    sources = [str(path) for path in _sources(root)]
    commands: Mapping[str, list[str]] = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy", "--strict", "grader"],
        "clang-format": ["clang-format", "--dry-run", "--Werror", *sources],
    }
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        said = pool.map(lambda item: _run(item[0], item[1], root), commands.items())
        problems = [problem for each in said for problem in each]
    engine = [path for path in _sources(root) if path.suffix in (".cpp", ".h")]
    return problems + [problem for path in engine for problem in _long_functions(root, path)]


def _long_functions(root: Path, path: Path) -> Iterator[str]:
    for line, name, length in functions_of((root / path).read_text()):
        if length > SCREEN:
            yield f"{path}:{line}: {name} has {length} lines; split it, a function fits a screen of {SCREEN}."


# What is no code but may hold braces, and what stands between the parameters of a function and its body.
_NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'|^[ \t]*#[^\n]*", re.DOTALL | re.MULTILINE
)
_HEAD = re.compile(
    r"([\w:~]+(?:[^\w\s(]{1,3})?)\s*\((?:[^()]|\([^()]*\))*\)\s*(?:const|noexcept|override|\s)*(?::[^:].*)?$", re.DOTALL
)


def functions_of(text: str) -> Iterator[tuple[int, str, int]]:
    """(line, name, lines) of every C++ function with a body; a lambda counts as part of the function around it."""
    code = _NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    start, depth, inside = 0, 0, -1
    for place in re.finditer(r"[{};]", code):
        if place[0] == "{":
            head = code[start : place.start()]
            match = _HEAD.search(head) if inside < 0 else None
            if match is not None and "=" not in head.partition("(")[0]:
                inside, name = depth, match[1]
                first = code.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
            depth += 1
        elif place[0] == "}":
            depth -= 1
            if depth == inside:
                inside = -1
                yield first, name, code.count("\n", 0, place.start()) + 2 - first
        if inside < 0:
            start = place.end()


def _sources(root: Path) -> Iterator[Path]:
    for folder in ("exercises", "solutions", "grader"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cu", ".cuh", ".cpp", ".h"):
                yield path.relative_to(root)


def _run(name: str, command: list[str], root: Path) -> list[str]:
    program = shutil.which(command[0], path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        return [f"{name}: {command[0]} is not installed; `pip install -e .[dev]`"]
    done = subprocess.run([program, *command[1:]], cwd=root, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return [f"{name}: {line}" for line in lines[:20]] if done.returncode else []
