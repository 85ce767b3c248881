"""A line -> the lines that its values come from, by the names in the text: where the variables on it are set, what they
are set from, and the loops and conditions around it. They are few, so the fault is looked for there first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from grader.content.functions import Code, Function

DEEPEST = 4  # assignments behind a line
_NAME = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")
_HEAD = re.compile(r"\b(?:for|while|if)\s*\(")


def lines_of_values(text: str, lines: Iterable[int]) -> frozenset[int]:
    """What the lines' values come from, within the function of each line."""
    code, found = Code(text), set[int]()
    for line in lines:
        function = code.function_at(line)
        if function is not None:
            _follow(code, function, line, found, DEEPEST)
    return frozenset(found)


def _follow(code: Code, function: Function, line: int, found: set[int], depth: int) -> None:
    begin, end = code.line_span(line)
    heads = [*_heads(code, function, begin)]
    parts = [(begin, end), *heads]
    new = {code.line_at(first) for first, _ in heads}
    for name in {name for part in parts for name in _NAME.findall(code.text, *part)}:
        index, sign = r"(?:\s*\[[^\]]*\])*", r"(?:[-+*/%&|^]|<<|>>)?=(?!=)"
        assigned = re.compile(rf"(?<![\w.]){name}\b{index}\s*{sign}|(?:\+\+|--){name}\b|\b{name}(?:\+\+|--)")
        new |= {code.line_at(match.start()) for match in assigned.finditer(code.text, function.begin, function.end)}
    new -= found
    found |= new
    for each in new if depth > 1 else ():
        _follow(code, function, each, found, depth - 1)


def _heads(code: Code, function: Function, place: int) -> Iterator[tuple[int, int]]:
    """The loops and conditions around a place, each from its word to its closing parenthesis."""
    for match in _HEAD.finditer(code.text, function.begin, place):
        closing = code.closing(match.end() - 1)
        if code.statement_end(closing + 1) > place:
            yield match.start(), closing


def blocks_of(text: str, lines: Collection[int], others: Collection[int]) -> frozenset[int]:
    """The lines of loops and conditions whose blocks have one of ``lines``, and none of ``others``: nvcc gives
    some statements no line, as calls of small functions."""
    return frozenset(
        line
        for block in _blocks(Code(text))
        if any(line in block for line in lines) and not any(line in block for line in others)
        for line in (block[0] - 1, *block)
    )


def loops_of(text: str, lines: Collection[int]) -> frozenset[int]:
    """The lines of the loops that begin on ``lines``."""
    blocks = [block for block in _blocks(Code(text)) if block[0] - 1 in lines]
    return frozenset(line for block in blocks for line in (block[0] - 1, *block))


def _blocks(code: Code) -> Iterator[range]:
    """The lines behind the head of each loop and condition, as far as its statement goes."""
    for function in code.functions:
        for match in _HEAD.finditer(code.text, function.begin, function.end):
            closing = code.closing(match.end() - 1)
            first, end = code.line_at(closing) + 1, code.line_at(code.statement_end(closing + 1))
            if end >= first:
                yield range(first, end + 1)
