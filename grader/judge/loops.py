"""A kernel that does not end -> the loop that the thread is in: that nothing in it changes what its condition is made
of, or under which condition it is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from grader.compile.nvcc_log import SOURCE
from grader.content.functions import Code, Function
from grader.devices import Finding
from grader.verdict import Clue, Kind

MOST = 2  # conditions of a loop that are shown
_HEAD = re.compile(r"\b(for|while)\s*\(")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_PLAIN = re.compile(r"[\w\s<>=!+\-/%|&]*\Z")
_LEAVE = re.compile(r"\b(?:break|return|goto|asm)\b")
_LEAVES = re.compile(r"\bif\s*\(")


def of_loop(text: str, finding: Finding) -> list[Clue]:
    """At most one clue, of the innermost loop around the finding's line."""
    code = Code(text)
    function = code.function_at(finding.line) if finding.line is not None else None
    own = (finding.file or SOURCE).rpartition("/")[2] == SOURCE
    if finding.kind != Kind.TIME_OUT or finding.line is None or function is None or not own:
        return []
    place = code.line_span(finding.line)[1]
    loops = [each for each in _loops(code, function, place) if each[2] >= place - 1]
    if not loops:
        return []
    head, condition, end = loops[-1]
    line = code.line_at(head)
    shown = " ".join(condition.split())
    if _is_endless(code, function, loops[-1]):
        words = f"nothing in the loop on line {line} changes what `{shown}` is made of: it never ends"
        return [Clue("place", words, line)]
    left = [*_ways_out(code, head, end)][:MOST]
    if shown in ("", "true", "1") and left:
        words = " or ".join(f"`{each}` (line {at})" for each, at in left)
        return [Clue("place", f"the loop on line {line} is left only where {words} is true", line)]
    return []


def _is_endless(code: Code, function: Function, loop: tuple[int, str, int]) -> bool:
    """Whether the condition is made of whole numbers of the thread's own, which the loop does not change, and nothing
    leaves it."""
    head, condition, end = loop
    names = {*_NAME.findall(condition)} - {"true"}
    begin = code.text.index("(", head)
    known = {*code.visible(function, end), *(each.name for each in code.constants)}
    known |= {each.name for each in function.parameters if each.type is not None}
    if not names or not names <= known or not _PLAIN.match(condition) or _LEAVE.search(code.text, head, end):
        return False
    return not any(code.is_assigned(name, begin + len(condition), end) for name in names)


def _loops(code: Code, function: Function, place: int) -> Iterator[tuple[int, str, int]]:
    """The loops that begin before a place, from the outside in: where, their condition, and the end of their body."""
    for match in _HEAD.finditer(code.text, function.begin, place):
        closing = code.closing(match.end() - 1)
        inside = code.text[match.end() : closing]
        condition = inside if match[1] == "while" else [*inside.split(";"), "", ""][1]
        yield match.start(), condition, code.statement_end(closing + 1)


def _ways_out(code: Code, begin: int, end: int) -> Iterator[tuple[str, int]]:
    """The conditions of the breaks and returns in a loop, with their lines."""
    for match in _LEAVES.finditer(code.text, begin, end):
        closing = code.closing(match.end() - 1)
        if re.match(r"\s*\{?\s*(?:break|return)\b", code.text[closing + 1 : end]):
            yield " ".join(code.text[match.end() : closing].split()), code.line_at(match.start())
