"""Part -> the file that a candidate is handed: a blank, a sketch or skeleton without what gives the answer away, a
solution with a bug in it, or a form to write on.

What is left out of sketch and skeleton: how the kata is done and what bounds it (the header's Technique, New and
Bound), and of each TODO all that follows its first clause, which is about what must hold. The code stays, line for
line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from grader.content import skeleton
from grader.content.catalog import Catalog, Kata
from grader.content.questions import KERNEL, Reading, load_interview, shown
from grader.content.rung import code_of, header
from grader.content.start import BLANK, SKELETON, SKETCH, is_untouched, text_of
from grader.interview import notes
from grader.interview.plan import BUG, InterviewError, Part, every_bug
from grader.maintain import wrong_kernel

WIDTH = 120  # characters of a line
TOLD = ("Technique", "New", "Bound")  # rows of the header that tell how
WORDS = {  # what was handed out
    SKELETON: "a skeleton",
    SKETCH: "a sketch",
    BLANK: "a blank file",
    BUG: "a file with one bug",
    "": "a form",
}

_ROW = re.compile(r"^// (\w+) {2,}\S")
_MORE = re.compile(r"^// {3,}\S")
_TODO = re.compile(r"^(\s*// TODO\(\d+\): )(.*)$")
_CLAUSE = re.compile(r"[.:;](?:\s|$)")
_TIED = "\N{NO-BREAK SPACE}"  # keeps a size on one line
_SIZE = re.compile(r"\(~\d+ lines?(?: each)?\)")


def text_for(catalog: Catalog, part: Part) -> str:
    """The text of the file to hand out for a part. Raises a Fault where what was drawn is no longer there."""
    kata = catalog.katas[part.kata]
    if part.on_paper:
        reading = reading_of(catalog, part)
        return notes.paper_form(title(catalog, part), shown(reading, kata), reading)
    return _with_bug(catalog, part) if part.start == BUG else handout_of(kata, part.start)


def title(catalog: Catalog, part: Part) -> str:
    """What the candidate is told that a part is about. The name of a kernel to read would say what it computes, and the
    header of a solution how a blank is to be written."""
    if part.on_paper:
        return "Read this kernel." if part.kind == KERNEL else "Read this profile."
    kata = catalog.katas[part.kata]
    if part.start == BLANK:
        return text_of(kata, BLANK).partition("\n")[0].removeprefix("// ")
    first = header(kata).partition("\n")[0]
    return f"Find the bug and fix it. {first}" if part.start == BUG else first


def reading_of(catalog: Catalog, part: Part) -> Reading:
    """What a part on paper is about."""
    readings = load_interview(catalog.katas[part.kata]).readings
    if int(part.item) >= len(readings):
        raise InterviewError(f"the reading of {part.kata} is gone from its family's interview.yaml. Abandon this one.")
    return readings[int(part.item)]


def _with_bug(catalog: Catalog, part: Part) -> str:
    bug = every_bug(catalog).get(part.item)
    if bug is None:
        raise InterviewError(f"the bug {part.item} is gone from {wrong_kernel.FOLDER}. Abandon this interview.")
    task = "\n".join(f"// {line}".rstrip() for line in _task_of(bug.kata))
    return f"{task}\n\n" + "\n".join(code_of(wrong_kernel.text(bug))) + "\n"


def _task_of(kata: Kata) -> Iterator[str]:
    """The header's task and shapes."""
    lines = [f"// {line}".rstrip() for line in header(kata).split("\n")]
    yield from (line.removeprefix("//").removeprefix(" ") for line in _short_header(lines))


def handout_of(kata: Kata, start: str) -> str:
    """The text of the file to hand out; ``start`` is one of STARTS. Raises SkeletonError, as text_of does."""
    text = text_of(kata, start)
    return text if start == BLANK else strip(text)


def is_unchanged(catalog: Catalog, part: Part, text: str) -> bool:
    """Whether the candidate has written nothing yet."""
    return skeleton.is_pristine(text, text_for(catalog, part)) or is_untouched(catalog.katas[part.kata], text)


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
