"""Solution -> skeleton: the same file without the answers.

An answer is between a TODO's comment and its END line. A skeleton lacks only the answers, so solving only adds lines.

    // TODO(1): Write one element per thread; threads past n must
    //   touch nothing. (~3 lines)
    ...the answer...
    // END TODO(1)

Maintainers' solutions are read strictly, with an error for every slip. Learners may change their own file in any way,
so reading one never raises.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from grader.content.catalog import Catalog, Kata
from grader.content.source_file import read_source
from grader.fault import Fault
from grader.storage.whole_file import write_whole

MAX_TEXT_LINES = 3

_TODO = re.compile(r"^\s*// TODO\((\d+)\): (\S.*?)\s*$")
_END = re.compile(r"^\s*// END TODO\((\d+)\)\s*$")
_MORE = re.compile(r"^\s*//   +(\S.*?)\s*$")
_NEARLY = re.compile(r"//[/!\s]*(?:END[\s_]*)?TODO\b", re.IGNORECASE)
_SIZE = re.compile(r"\(~\d+ lines?( each)?\)\.?$")
_LOOSE = re.compile(r"^\s*//\s*(?P<end>END\s+)?TODO\s*\(\s*(?P<number>\d{1,6})\s*\)\s*:?(?P<text>.*)$", re.IGNORECASE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


class SkeletonError(Fault):
    """A solution's TODO markers are malformed, or no skeleton can be written; the message says where and what to do."""


@dataclass(frozen=True)
class Todo:
    """One TODO of a file. ``line`` counts from 1; ``empty``: only blank lines and comments up to its END.

    ``end`` is the line of its END; where that is missing, of the next TODO, or the one after the file's last.
    """

    number: int
    text: str
    line: int
    empty: bool
    end: int


@dataclass(frozen=True)
class _Block:
    """One TODO of a solution: its answer is lines[begin:end], counted from 0."""

    begin: int
    end: int


def derive(solution_text: str, file: Path | str = "solution") -> str:
    """The skeleton of a solution: its text without the answer lines. Raises SkeletonError, naming ``file``."""
    lines = solution_text.split("\n")
    answers = {index for block in _blocks(lines, file) for index in range(block.begin, block.end)}
    return "\n".join(line for index, line in enumerate(lines) if index not in answers)


def unmarked(text: str, *, explained: bool = True) -> str:
    """A file without the lines of its TODO marks: of a solution, all of its code.

    Unless ``explained``, also without the comments that stand by themselves in an answer.
    """
    lines = text.split("\n")
    marks: set[int] = set()
    in_answer = False
    for index, line in enumerate(lines):
        if _TODO.match(line):
            marks |= {*range(index, index + 1 + sum(1 for _ in _continuation(lines, index + 1)))}
            in_answer = True
        elif _END.match(line):
            marks.add(index)
            in_answer = False
        elif in_answer and not explained and line.lstrip().startswith("//"):
            marks.add(index)
    return "\n".join(line for index, line in enumerate(lines) if index not in marks)


def answer_lines(solution_text: str, file: Path | str = "solution") -> set[int]:
    """The numbers, from 1, of the lines that a solution's skeleton lacks. Raises SkeletonError, naming ``file``."""
    blocks = _blocks(solution_text.split("\n"), file)
    return {index + 1 for block in blocks for index in range(block.begin, block.end)}


def todos(text: str) -> tuple[Todo, ...]:
    """The TODOs of any file, in order, however mangled. One without its END counts as not empty."""
    lines = text.split("\n")
    marks = [(index, match) for index, line in enumerate(lines) if (match := _LOOSE.match(line))]
    found = []
    for (index, mark), (end, following) in zip(marks, [*marks[1:], (len(lines), None)], strict=False):
        if mark["end"]:
            continue
        more = [match[1] for match in _continuation(lines, index + 1)]
        closed = following is not None and bool(following["end"]) and int(following["number"]) == int(mark["number"])
        body = "\n".join(lines[index + 1 : end])
        empty = closed and not _COMMENT.sub("", body).strip()
        words = " ".join([mark["text"].strip(), *more]).strip()
        found.append(Todo(int(mark["number"]), words, index + 1, empty, end + 1))
    return tuple(found)


def todo_at(text: str, line: int) -> Todo | None:
    """The TODO of a file that a line, from 1, lies in."""
    return next((todo for todo in todos(text) if todo.line < line < todo.end), None)


def is_pristine(file_text: str, skeleton_text: str) -> bool:
    """Whether the learner has not begun: the two differ in white space at most."""
    return file_text == skeleton_text or "".join(file_text.split()) == "".join(skeleton_text.split())


def only_answers(file_text: str, skeleton_text: str) -> bool:
    """Whether a file is its skeleton, with or without lines of the learner's above the END of any TODO."""
    lines = iter(file_text.split("\n"))
    for wanted in skeleton_text.split("\n"):
        if _END.match(wanted):
            if wanted not in lines:  # takes what stands above it, too
                return False
        elif next(lines, None) != wanted:
            return False
    return next(lines, None) is None


def own_lines(file_text: str, skeleton_text: str) -> set[int]:
    """The numbers, from 1, of lines that the skeleton does not have anywhere."""
    given = {line.strip() for line in skeleton_text.split("\n")}
    return {number for number, line in enumerate(file_text.split("\n"), 1) if line.strip() not in given}


def only_adds_lines(before: str, after: str) -> bool:
    """Whether ``after`` has every line of ``before``, in order: a skeleton against its solution."""
    rest = iter(after.split("\n"))
    return all(line in rest for line in before.split("\n"))


def read(path: Path) -> str:
    """A learner's file as text, with any bytes in it. Raises OSError if it cannot be read."""
    return read_source(path).decode("utf-8", errors="replace")


def skeleton_of(kata: Kata) -> str:
    """The skeleton that the kata's solution gives. Raises SkeletonError."""
    path = kata.solution_path
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise SkeletonError(f"{path}: cannot be read ({error.strerror}). Restore the solution.") from None
    except UnicodeDecodeError as error:
        raise SkeletonError(f"{path}: is not UTF-8 at byte {error.start}. Save it as UTF-8.") from None
    return derive(text, path)


def write(kata: Kata) -> bool:
    """Put the kata's skeleton in its place, and replace what is there. Returns whether that changed anything.

    Raises SkeletonError if it cannot. The old file is then still there.
    """
    text = skeleton_of(kata)
    path = kata.skeleton_path
    try:
        if path.is_file() and path.read_bytes() == text.encode():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise SkeletonError(_no_room(path, error)) from None
    return True


def _no_room(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written ({error.strerror}). See to it that files can be written in {path.parent}."


def reset(kata: Kata) -> Path | None:
    """Write the kata's skeleton again; a started file is kept beside it, and its new path returned.

    Raises SkeletonError where it cannot; then the file is where it was.
    """
    path, kept = kata.skeleton_path, None
    if path.is_file() and _may_be_begun(kata):
        taken = (path.with_name(f"{path.name}.{number}.bak") for number in count(1))
        kept = next(place for place in taken if not place.exists())
        try:
            path.rename(kept)
        except OSError as error:
            raise SkeletonError(_no_room(path, error)) from None
    try:
        write(kata)
    except SkeletonError:
        if kept is not None:
            kept.rename(path)
        raise
    return kept


def _may_be_begun(kata: Kata) -> bool:
    """True also for a file that cannot be read, so that it is kept."""
    pristine = skeleton_of(kata)
    try:
        return not is_pristine(read(kata.skeleton_path), pristine)
    except OSError:
        return True


def reset_hint(kata: Kata, source: Path) -> str:
    """How to fix a malformed file, if it is the kata's own: a reset writes no other file."""
    own = os.path.abspath(source) in (str(kata.skeleton_path), str(kata.work_path))
    return f"`kata reset {kata.name}` writes the skeleton again" if own else ""


def write_all(catalog: Catalog) -> tuple[Path, ...]:
    """Write every skeleton; the paths of those that changed. What learners wrote there is lost."""
    return tuple(kata.skeleton_path for kata in catalog.katas.values() if write(kata))


def stale(catalog: Catalog) -> tuple[Kata, ...]:
    """Katas whose skeleton is missing or not, byte for byte, what their solution gives; answers may stand in it."""
    return tuple(kata for kata in catalog.katas.values() if not _is_current(kata))


def _is_current(kata: Kata) -> bool:
    return kata.skeleton_path.is_file() and only_answers(read(kata.skeleton_path), skeleton_of(kata))


def _continuation(lines: Sequence[str], start: int) -> Iterator[re.Match[str]]:
    """The matches of the comment lines that carry a TODO's text on."""
    for line in lines[start:]:
        match = _MORE.match(line)
        if match is None or _LOOSE.match(line):
            return
        yield match


def _blocks(lines: Sequence[str], file: Path | str) -> list[_Block]:
    """Every TODO of a solution, or a SkeletonError for the first slip."""
    blocks: list[_Block] = []
    index = 0
    while index < len(lines):
        if "TODO" not in lines[index].upper():  # nearly all, and none of the expressions below
            pass
        elif match := _TODO.match(lines[index]):
            block = _block(lines, index, file)
            if int(match[1]) != len(blocks) + 1:
                raise _error(file, index, f"TODO({match[1]}) comes where TODO({len(blocks) + 1}) must. Renumber them.")
            blocks.append(block)
            index = block.end
        elif match := _END.match(lines[index]):
            raise _error(
                file, index, f"END TODO({match[1]}) ends nothing. Remove it, or write its `// TODO({match[1]}):`."
            )
        else:
            _refuse_nearly(lines, index, file)
        index += 1
    if not blocks:
        raise SkeletonError(f"{file}:1: has no TODO. Put the answers between `// TODO(1): ...` and `// END TODO(1)`.")
    return blocks


def _block(lines: Sequence[str], start: int, file: Path | str) -> _Block:
    """The TODO that begins on ``lines[start]``."""
    match = _TODO.match(lines[start])
    assert match is not None
    number = match[1]
    text = [match[2], *(more[1] for more in _continuation(lines, start + 1))]
    if len(text) > MAX_TEXT_LINES:
        raise _error(file, start, f"the text of TODO({number}) has {len(text)} lines. Say it in {MAX_TEXT_LINES}.")
    if not _SIZE.search(text[-1]):
        raise _error(file, start, f"TODO({number}) gives no size. End its text with the answer's: `(~3 lines)`.")
    begin = start + len(text)
    end = _end(lines, begin, start, number, file)
    if not _COMMENT.sub("", "\n".join(lines[begin:end])).strip():
        raise _error(file, start, f"TODO({number}) has no answer. Write it above `// END TODO({number})`.")
    return _Block(begin, end)


def _end(lines: Sequence[str], begin: int, start: int, number: str, file: Path | str) -> int:
    """The line of the END that belongs to the TODO which began on ``lines[start]``."""
    for index in range(begin, len(lines)):
        if "TODO" not in lines[index].upper():
            continue
        if match := _END.match(lines[index]):
            if match[1] == number:
                return index
            raise _error(file, index, f"END TODO({match[1]}) ends TODO({number}). Make the two numbers equal.")
        if match := _TODO.match(lines[index]):
            problem = f"TODO({match[1]}) begins inside TODO({number}). Write `// END TODO({number})` before it."
            raise _error(file, index, problem)
        _refuse_nearly(lines, index, file)
    raise _error(file, start, f"TODO({number}) has no end. Write `// END TODO({number})` after its answer.")


def _refuse_nearly(lines: Sequence[str], index: int, file: Path | str) -> None:
    if _NEARLY.search(lines[index]):
        found = lines[index].strip()
        raise _error(
            file, index, f"malformed marker {found!r}. Write `// TODO(n): ...` or `// END TODO(n)`, by itself."
        )


def _error(file: Path | str, index: int, problem: str) -> SkeletonError:
    return SkeletonError(f"{file}:{index + 1}: {problem}")
