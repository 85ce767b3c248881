"""Kata -> its header, the rung before it, and what of the code is new.

A rung differs from the one before by one idea: the diff of their code, without comments and blank lines, shows it.
difficulty.yaml says which that is: the first kata of `requires`. The header says it to a reader, in `New over NAME`.
"""

from __future__ import annotations

import difflib
import re
from itertools import takewhile

from grader.content.catalog import FILE, Catalog, Kata

_OVER = re.compile(r"^New +over (\w+)", re.MULTILINE)
_COMMENT_OR_TEXT = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.DOTALL
)


def header(kata: Kata) -> str:
    """The comment that its solution begins with, which the skeleton has, too; without the slashes."""
    lines = takewhile(lambda line: line.startswith("//"), kata.solution_path.read_text().splitlines())
    return "\n".join(line.removeprefix("//").removeprefix(" ") for line in lines)


def before(kata: Kata, catalog: Catalog) -> Kata | None:
    """The kata to which this one adds its idea; None for one that comes after no other."""
    return catalog.katas[kata.requires[0]] if kata.requires else None


def disagreement(kata: Kata) -> str | None:
    """What to change where the header names another rung before it than difficulty.yaml; None where they agree."""
    named = _OVER.search(header(kata))
    if named is None or named[1] in kata.requires[:1]:
        return None
    first = f"the first kata of its `requires` is {kata.requires[0]}" if kata.requires else "it comes after no kata"
    return (
        f"{kata.solution_path.relative_to(kata.root)}: its header says `New over {named[1]}`, but in {FILE} {first}. "
        f"Put {named[1]} first there, or correct the header and run `kata dev skeletons`."
    )


def code_of(text: str) -> list[str]:
    """The lines of a file that hold code, without their comments."""
    code = _COMMENT_OR_TEXT.sub(lambda match: "" if match["comment"] else match[0], text)
    return [line.rstrip() for line in code.splitlines() if line.strip()]


def kernel_lines(text: str) -> int:
    """How many lines of code a file's kernels and device functions have, their signatures included."""
    count, depth, inside, opened = 0, 0, False, False
    for line in code_of(text):
        if not inside and ("__global__" in line or "__device__" in line):
            inside, opened, depth = True, False, 0
        if inside:
            count += 1
            depth += line.count("{") - line.count("}")
            opened = opened or "{" in line
            inside = depth > 0 if opened else not line.endswith(";")
    return count


def code_diff(old: str, new: str, *, old_name: str, new_name: str) -> list[str]:
    """The unified diff of two files' code."""
    return list(difflib.unified_diff(code_of(old), code_of(new), old_name, new_name, lineterm=""))
