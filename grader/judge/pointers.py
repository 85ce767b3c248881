"""An access through no buffer's address -> the elements of an array of pointers that nothing has set in that thread.

The array is a local one, and one line sets its elements, in a loop, where a condition holds. The values that make the
condition false are named; a condition whose values the text does not give away is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from grader.content.expressions import Unknown, number
from grader.devices import Finding
from grader.judge.frame import Frame
from grader.judge.guards import conditions
from grader.verdict import Clue, Kind

MOST = 64  # elements
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
