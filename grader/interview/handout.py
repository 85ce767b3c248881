"""Kata -> the file that a candidate is handed: a blank, or a sketch or skeleton without what gives the answer away.

What is left out of these two: how the kata is done and what bounds it (the header's Technique, New and Bound), and of
each TODO all that follows its first clause, which is about what must hold. The code stays, line for line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from grader.content import skeleton
from grader.content.catalog import Kata
from grader.content.start import BLANK, SKELETON, SKETCH, is_untouched, text_of

WIDTH = 120  # characters of a line
TOLD = ("Technique", "New", "Bound")  # rows of the header that tell how
WORDS = {SKELETON: "a skeleton", SKETCH: "a sketch", BLANK: "a blank file"}  # what was handed out

_ROW = re.compile(r"^// (\w+) {2,}\S")
_MORE = re.compile(r"^// {3,}\S")
_TODO = re.compile(r"^(\s*// TODO\(\d+\): )(.*)$")
_CLAUSE = re.compile(r"[.:;](?:\s|$)")
_TIED = "\N{NO-BREAK SPACE}"  # keeps a size on one line
_SIZE = re.compile(r"\(~\d+ lines?(?: each)?\)")


def handout_of(kata: Kata, start: str) -> str:
    """The text of the file to hand out; ``start`` is one of STARTS. Raises SkeletonError, as text_of does."""
    text = text_of(kata, start)
    return text if start == BLANK else strip(text)


def is_unchanged(kata: Kata, start: str, text: str) -> bool:
    """Whether the candidate has written nothing yet."""
    return skeleton.is_pristine(text, handout_of(kata, start)) or is_untouched(kata, text)


def strip(text: str) -> str:
    """A skeleton or a sketch without the words that tell how it is done."""
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
    """A TODO's text goes from its mark to its size, over several lines: one is made of it."""
    for line in lines:
        mark = _TODO.match(line)
        if mark is None:
            yield line
            continue
        words = [mark[2]]
        while not _SIZE.search(" ".join(words)):
            words.append(next(lines).strip().removeprefix("//").strip())
        indent = " " * (len(line) - len(line.lstrip()))
        short = _first_clause(" ".join(words))
        filled = textwrap.fill(short, WIDTH, initial_indent=mark[1], subsequent_indent=f"{indent}//   ")
        yield filled.replace(_TIED, " ")


def _first_clause(text: str) -> str:
    size = _SIZE.search(text)
    clause = _CLAUSE.split(text[: size.start()] if size else text)[0].strip()
    return f"{clause}. {size[0].replace(' ', _TIED)}" if size else f"{clause}."
