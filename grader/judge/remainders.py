"""A file -> its quotients and remainders of whole numbers that always give the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

from grader.content.functions import Code, constants_of

_QUOTIENT = re.compile(r"(?<![\w.])(\d+) ?/ ?(\d+)(?![\w.])")
_LOOP = re.compile(r"\bfor\s*\(\s*(?:const\s+)?\w+\s+(\w+)\s*=\s*0\s*;[^;{}]*;\s*\1\s*\+=\s*(\w+)\s*\)")


def zero_quotients(source: str) -> Iterator[tuple[int, str]]:
    """The lines with a quotient of two numbers that is 0, and the quotient."""
    code = Code(source)
    for found in _QUOTIENT.finditer(code.text):
        if 0 < int(found[1]) < int(found[2]):
            yield code.line_at(found.start()), found[0]


def fixed_remainders(source: str) -> Iterator[int]:
    """The lines with a remainder of a loop's variable that is 0 in all rounds: the step is a multiple of the divisor.

    ``for (int k = 0; k < K; k += 8) stage = k % 2;``
    """
    code, constants = Code(source), constants_of(source)

    def value_of(text: str) -> int:
        return int(text) if text.isdigit() else constants.get(text, 0)

    for loop in _LOOP.finditer(code.text):
        end = code.statement_end(loop.end())
        for found in re.finditer(rf"(?<![\w.*/+\-] )(?<![\w.]){loop[1]}\s*%\s*(\w+)", code.text[loop.end() : end]):
            step, divisor = value_of(loop[2]), value_of(found[1])
            if divisor > 1 and step and step % divisor == 0:
                yield code.line_at(loop.end() + found.start())
