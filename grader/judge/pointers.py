"""An access through no buffer's address -> the elements of an array of pointers that nothing has set in that thread;
one past a buffer's end -> the pointer that counts wider elements than the buffer has.

The array is a local one, and one line sets its elements, in a loop, where a condition holds. The values that make the
condition false are named; a condition whose values the text does not give away is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from math import prod

from grader.content.expressions import BYTES, Unknown, number
from grader.devices import Call, Finding
from grader.judge.frame import Frame
from grader.judge.guards import conditions
from grader.verdict import Clue, Kind

MOST = 64  # elements
_CAST = r"\*\s*(?:const\s+|__restrict__\s+)*{name}\s*=\s*reinterpret_cast<\s*(?:const\s+)?(\w+)\s*(?:const\s*)?\*\s*>"
_OFFSET = r"\s*\(\s*(\w+)\s*\)\s*\+\s*([^;?]*);"
_NOWHERE = re.compile(r"at address 0x[0-9a-f]+, (?:a null pointer|where no buffer is)\Z")


def of_unset_pointers(frame: Frame, finding: Finding) -> Iterator[Clue]:
    """At most one clue."""
    if finding.kind != Kind.OUT_OF_BOUNDS or _NOWHERE.search(finding.message) is None:
        return
    code, function = frame.code, frame.function
    begin, end = code.line_span(code.line_at(frame.place))
    body = code.text[function.begin : frame.place]
    for name in dict.fromkeys(re.findall(r"(?<![\w.])([A-Za-z_]\w*)\s*\[", code.text[begin:end])):
        arrays = [*re.finditer(rf"\*\s*{name}\s*\[([^\[\]]+)\]\s*;", body)]
        sets = [*re.finditer(rf"(?<![\w.*])(?<!\*\s){name}\s*\[\s*([A-Za-z_]\w*)\s*\]\s*=(?!=)", body)]
        if len(arrays) != 1 or len(sets) != 1:
            continue
        place, variable = function.begin + sets[0].start(), sets[0][1]
        try:
            unset = _unset(frame, place, variable, frame.value(arrays[0][1]).value)
        except Unknown:
            continue
        if unset is not None and unset[1]:
            text, values = unset
            which = f"{values[0]} to {values[-1]}" if len(values) > 1 else str(values[0])
            line = code.line_at(place)
            words = f"{name}[{variable}] is set on line {line} where `{text}`, which is false for {variable} = {which}"
            yield Clue("index", words, line)
            return


def _unset(frame: Frame, place: int, variable: str, count: int) -> tuple[str, list[int]] | None:
    """The innermost condition on the way to a place, and the values of the variable that make it false, if these are
    the last ones."""
    loop = frame.code.visible(frame.function, place).get(variable)
    guards = [*conditions(frame.code, frame.function, place)]
    if loop is None or not frame.is_changed(loop) or not guards or not 0 < count <= MOST:
        return None
    text, at = guards[-1]
    false = []
    try:
        for value in range(count):
            frame.solved[loop.at] = number(value, loop.type)
            if not frame.at(at).value(text).value:
                false.append(value)
    finally:
        frame.solved.pop(loop.at, None)
    return (text, false) if false == [*range(count - len(false), count)] else None


def of_counted_pointers(frame: Frame, finding: Finding, call: Call) -> Iterator[Clue]:
    """The offset of a pointer that a buffer's pointer is cast to: it counts the wider elements, and it would be inside
    if it counted the buffer's own. At most one clue."""
    buffers = [buffer for buffer in call.buffers if buffer.name == finding.buffer]
    if finding.kind != Kind.OUT_OF_BOUNDS or finding.index is None or len(buffers) != 1:
        return
    elements = prod(buffers[0].shape)
    for name, wide, what, at in _cast_pointers(frame, buffers[0].name):
        each = BYTES[wide] // buffers[0].itemsize
        with suppress(Unknown):
            offset = frame.at(at).value(what).value
            if each > 1 and 0 < offset < elements <= finding.index and offset * each <= finding.index:
                line = frame.code.line_at(at)
                words = f"{name} on line {line} counts in {wide}, each of which is {each} elements of {finding.buffer}"
                yield Clue("place", f"{words}: `{what}` = {offset} there is element {offset * each}", line)
                return


def _cast_pointers(frame: Frame, buffer: str) -> Iterator[tuple[str, str, str, int]]:
    """The pointers on the place's line that are one to the buffer cast to a vector's, and an offset: the name, the
    vector's type, the offset, and where that ends."""
    code, first = frame.code, frame.function.begin
    begin, end = code.line_span(code.line_at(frame.place))
    body = code.text[first : frame.place]
    for name in dict.fromkeys(re.findall(r"(?<![\w.])([A-Za-z_]\w*)", code.text[begin:end])):
        found = [*re.finditer(_CAST.replace("{name}", name) + _OFFSET, body)]
        if len(found) == 1 and frame.buffer(found[0][2]) == buffer and found[0][1] in BYTES:
            yield name, found[0][1], " ".join(found[0][3].split()), first + found[0].end(3)
