"""Kata -> its header, the rung before it, and what of the code is new.

A rung differs from the one before by one idea: the diff of their code, without comments and blank lines, shows it.
"""

from __future__ import annotations

import difflib
import re
from itertools import takewhile

from grader.content.catalog import Catalog, Kata

_OVER = re.compile(r"^New +over (\w+)", re.MULTILINE)
_COMMENT_OR_TEXT = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.DOTALL
)


def header(kata: Kata) -> str:
    """The comment that its solution begins with, which the skeleton has, too; without the slashes."""
    lines = takewhile(lambda line: line.startswith("//"), kata.solution_path.read_text().splitlines())
    return "\n".join(line.removeprefix("//").removeprefix(" ") for line in lines)


def before(kata: Kata, catalog: Catalog) -> Kata | None:
    """The kata that its header says it is new over, else the first of its family that comes before; None: the first."""
    named = _OVER.search(header(kata))
    names = [named[1]] if named else []
    names += [name for name in kata.after if catalog.katas[name].family == kata.family]
    return next((catalog.katas[name] for name in names if name in catalog.katas), None)


def code_of(text: str) -> list[str]:
    """The lines of a file that hold code, without their comments."""
    code = _COMMENT_OR_TEXT.sub(lambda match: "" if match["comment"] else match[0], text)
    return [line.rstrip() for line in code.splitlines() if line.strip()]


def code_diff(old: str, new: str, *, old_name: str, new_name: str) -> list[str]:
    """The unified diff of two files' code."""
    return list(difflib.unified_diff(code_of(old), code_of(new), old_name, new_name, lineterm=""))
