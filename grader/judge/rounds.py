"""A race -> the buffer's number that must change from round to round of a loop, and is the same in all of them.

A remainder that is made of a loop's variable is worked out for the first rounds of that loop. If they all give one
number, the buffers do not alternate, and a barrier is not what lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from grader.content.expressions import Unknown, names_in, number, parse
from grader.content.functions import Code, Definition
from grader.devices import Finding
from grader.judge.frame import Frame, loop_head, step_of
from grader.verdict import Clue, Kind

ROUNDS = 32  # that are looked at
MOST = 8  # buffers
_NAME = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")


def of_rounds(frame: Frame, finding: Finding) -> Iterator[Clue]:
    """At most one clue, of the finding's line or of the one that calls its function."""
    inner: Frame | None = frame if finding.kind == Kind.RACE else None
    while inner is not None and inner.builtins:
        begin, end = inner.code.line_span(inner.code.line_at(inner.place))
        for each in inner.definitions(iter(_NAME.findall(inner.code.text[begin:end]))):
            with suppress(Unknown):
                if words := _words(inner, each):
                    yield Clue("place", words, inner.code.line_at(each.at))
                    return
        inner = inner.caller


def _words(frame: Frame, definition: Definition) -> str:
    """Empty where it is not a remainder of a loop's variable, or changes. Raises Unknown."""
    remainder = re.search(r"%\s*(\w+)|&\s*(\w+)", definition.text)
    if remainder is None or frame.is_changed(definition) or not definition.text.strip():
        return ""
    at = frame.at(definition.at)
    loops = [each for each in at.definitions(names_in(parse(definition.text))) if frame.is_changed(each)]
    if len(loops) != 1 or not 1 <= at.value(remainder[1] or remainder[2]).value <= MOST:
        return ""
    loop = loops[0]
    start, step, line = _head(frame.code, at, loop)
    places = [number(start + each * step, loop.type) for each in range(ROUNDS)]
    values = {replace(at, solved={**at.solved, loop.at: place}).value(definition.text).value for place in places}
    if len(values) != 1:
        return ""
    first = ", ".join(str(place.value) for place in places[:3])
    return (
        f"`{definition.name} = {definition.text}` is {values.pop()} in every round of the loop on line {line}, where "
        f"{loop.name} is {first}, ...: all rounds use the same buffer"
    )


def _head(code: Code, frame: Frame, loop: Definition) -> tuple[int, int, int]:
    """The first value of a loop's variable, its step, and the loop's line. Raises Unknown."""
    head = loop_head(code, loop)
    step = step_of(loop.name, head.step.split(",")[0])
    if step is None or code.is_assigned(loop.name, head.closing + 1, loop.end):
        raise Unknown
    outside = replace(frame, place=loop.at)
    width = outside.value(step).value
    if width < 1:
        raise Unknown
    return outside.of_type(loop).value, width, code.line_at(head.start)
