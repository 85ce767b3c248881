"""Sources -> problems: format, lint and types, and functions that are too long."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LONGEST = {".py": 40, ".cpp": 60, ".h": 60}  # lines of a function, with its signature


def check_style(root: Path) -> list[str]:
    """ruff (lint and format), mypy --strict on grader/, clang-format on every .cu, .cpp and .h, and no function of
    grader/ longer than LONGEST."""
    formatted = [str(path) for path in _sources(root)]
    commands: Mapping[str, list[str]] = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy", "--strict", "grader"],
        "clang-format": ["clang-format", "--dry-run", "--Werror", *formatted],
    }
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        said = pool.map(lambda item: _run(item[0], item[1], root), commands.items())
        problems = [problem for each in said for problem in each]
    sources = [path.relative_to(root) for path in sorted((root / "grader").rglob("*")) if path.suffix in LONGEST]
    return problems + [problem for path in sources for problem in _long_functions(root, path)]


def _long_functions(root: Path, path: Path) -> Iterator[str]:
    text, longest = (root / path).read_text(), LONGEST[path.suffix]
    for line, name, length in python_functions(text) if path.suffix == ".py" else functions_of(text):
        if length > longest:
            yield f"{path}:{line}: {name} has {length} lines; split it, {longest} is the most."


def python_functions(text: str) -> Iterator[tuple[int, str, int]]:
    """(line, name, lines) of every Python function, with those inside it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1


# What is not code but may hold braces, and what is between the parameters of a function and its body.
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
