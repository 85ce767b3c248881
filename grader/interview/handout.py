"""Kata -> the file that a candidate is handed: its skeleton, without the words that give the answer away.

What is left out: how the kata is done and what bounds it (the header's Technique, New and Bound), and of each TODO
all that follows its first clause, which is about what must hold. The code is the skeleton's, line for line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from grader.content import skeleton
from grader.content.catalog import Kata

WIDTH = 120  # characters of a line
TOLD = ("Technique", "New", "Bound")  # rows of the header that tell how

_ROW = re.compile(r"^// (\w+) {2,}\S")
_MORE = re.compile(r"^// {3,}\S")
_TODO = re.compile(r"^(\s*// TODO\(\d+\): )(.*)$")
_CLAUSE = re.compile(r"[.:;](?:\s|$)")
_TIED = "\N{NO-BREAK SPACE}"  # keeps a size on one line
_SIZE = re.compile(r"\(~\d+ lines?(?: each)?\)")


def handout_of(kata: Kata) -> str:
    """The text of the file to hand out. Raises SkeletonError where the solution's markers are malformed."""
    return strip(skeleton.skeleton_of(kata))


def strip(text: str) -> str:
    """A skeleton without the words that tell how it is done."""
    return "\n".join(_short_todos(_short_header(text.split("\n"))))


def _short_header(lines: list[str]) -> Iterator[str]:
    inside, told = True, False  # the header; a row of it that tells how
    for line in lines:
        inside = inside and line.startswith("//")
        if inside:
            row = _ROW.match(line)
            told = row[1] in TOLD if row else told and bool(_MORE.match(line))
            if told:
                continue
        yield line


def _short_todos(lines: Iterator[str]) -> Iterator[str]:
    """A TODO's text goes from its mark to its size, over up to three lines: one is made of it."""
    for line in lines:
        mark = _TODO.match(line)
        if mark is None:
            yield line
            continue
        words = [mark[2]]
        while not _SIZE.search(words[-1]) and len(words) < skeleton.MAX_TEXT_LINES:
            words.append(next(lines).strip().removeprefix("//").strip())
        indent = " " * (len(line) - len(line.lstrip()))
        short = _first_clause(" ".join(words))
        filled = textwrap.fill(short, WIDTH, initial_indent=mark[1], subsequent_indent=f"{indent}//   ")
        yield filled.replace(_TIED, " ")


def _first_clause(text: str) -> str:
    size = _SIZE.search(text)
    clause = _CLAUSE.split(text[: size.start()] if size else text)[0].strip()
    return f"{clause}. {size[0].replace(' ', _TIED)}" if size else f"{clause}."
