"""A kernel's text -> the places where it touches a buffer, each with the index that it has there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from grader.content.expressions import Unknown
from grader.content.functions import Code
from grader.judge.frame import Frame, calls_of

DEEPEST = 2  # helpers, one in the other
_CAST = re.compile(r"_cast\s*<\s*(?:const\s+)?(\w+)\s*(?:const\s*)?\*\s*>\s*\(")


@dataclass(frozen=True)
class Access:
    """A place that touches the buffer with this index, in elements; ``frame`` is there, its callers lead to the kernel.
    The index is ``offset + inner * width``, where ``inner`` counts vectors of so many elements."""

    frame: Frame
    inner: str
    offset: str = ""
    width: int = 1

    @property
    def index(self) -> str:
        scaled = self.inner if self.width == 1 else f"({self.inner}) * {self.width}"
        return f"({self.offset}) + ({scaled})" if self.offset else scaled


def accesses(frame: Frame, buffer: str, itemsize: int, depth: int = 0) -> Iterator[Access]:
    """Those of a frame's function and of helpers that it passes the buffer to. ``itemsize``: bytes of its elements.
    Raises Unknown where the buffer is used in a way that is not understood."""
    code, function = frame.code, frame.function
    for match in re.finditer(r"(?<![\w.\])])([A-Za-z_]\w*)\b", code.text[function.begin : function.end]):
        place = function.begin + match.start()
        inner = replace(frame, place=place)
        offset = _offset(inner, match[1], buffer)
        if offset is None or _is_defined(code, place):
            continue
        if (found := _access(inner, offset, place + len(match[1]), itemsize)) is not None:
            yield found
    for each in code.functions if depth < DEEPEST else ():
        if each.is_kernel or each == function:
            continue
        for templates, opening in calls_of(code, each.name, function.begin, function.end):
            arguments = code.arguments(opening)
            caller = replace(frame, place=opening)
            if any(caller.buffer(given) == buffer for given in arguments):
                helper = Frame(code, each, each.end, caller, arguments, templates, frame.builtins)
                yield from accesses(helper, buffer, itemsize, depth + 1)


def _access(frame: Frame, offset: str, end: int, itemsize: int) -> Access | None:
    """``x[i]``, ``x + i`` and ``reinterpret_cast<const float4*>(x + i)[v]``, where the pointer's name ends; None for
    what passes the pointer to a function of the file."""
    code = frame.code
    sign = re.compile(r"\s*(\[|\+(?![+=]))?").match(code.text, end)
    assert sign is not None
    opening = sign.end() - 1
    casts = _CAST.finditer(code.text, max(frame.place - 80, 0), frame.place)
    cast = next((each for each in casts if not code.text[each.end() : frame.place].strip()), None)
    if sign[1] == "[":
        return Access(frame, code.text[opening + 1 : code.closing(opening)], offset)
    inside = _addend(code, opening + 1) if sign[1] == "+" else ""
    if cast is not None:
        return _of_cast(frame, cast, offset, inside, itemsize)
    if sign[1] == "+":
        return Access(frame, inside, offset)
    if not offset and _is_argument(frame, end):
        return None
    raise Unknown


def _of_cast(frame: Frame, cast: re.Match[str], offset: str, inside: str, itemsize: int) -> Access:
    code = frame.code
    closing = code.closing(cast.end() - 1)
    brackets = re.compile(r"\s*\[").match(code.text, closing + 1)
    together = " + ".join(f"({each})" for each in (offset, inside) if each)
    before = code.text[max(cast.start() - 120, 0) : cast.start()]
    if re.search(r"\*\s*(?:const\s+|__restrict__\s+)*\w+\s*=\s*\w*\Z", before):
        raise Unknown  # another pointer, to vectors
    if brackets is None:
        return Access(frame, inside or "0", offset)
    if itemsize < 1 or (size := frame.bytes_of(cast[1])) % itemsize:
        raise Unknown
    opening = brackets.end() - 1
    return Access(frame, code.text[opening + 1 : code.closing(opening)], together, size // itemsize)


def _is_argument(frame: Frame, end: int) -> bool:
    """Whether a pointer as it is is passed to a function of the file."""
    code, function = frame.code, frame.function
    if code.text[end : end + 1] not in ",)":
        return False
    for each in code.functions:
        for _, opening in calls_of(code, each.name, function.begin, function.end):
            if opening < frame.place < code.closing(opening):
                return True
    return False


def _offset(frame: Frame, name: str, buffer: str) -> str | None:
    """What a pointer is behind the buffer's first element; empty for nothing. None if it is another's."""
    if frame.buffer(name) == buffer:
        return ""
    code, function = frame.code, frame.function
    pattern = rf"\*\s*(?:const\s+|__restrict__\s+)*{re.escape(name)}\s*=\s*([A-Za-z_]\w*)\s*\+\s*([^;?]*);"
    found = [*re.finditer(pattern, code.text[function.begin : frame.place])]
    if len(found) != 1 or frame.buffer(found[0][1]) != buffer:
        return None
    at = function.begin + found[0].end()
    return None if code.is_assigned(name, at, function.end) else " ".join(found[0][2].split())


def _is_defined(code: Code, place: int) -> bool:
    """Whether ``x + off`` defines a pointer of the function."""
    return (
        re.search(r"\*\s*(?:const\s+|__restrict__\s+)*\w+\s*=\s*\Z", code.text[max(place - 80, 0) : place]) is not None
    )


def _addend(code: Code, begin: int) -> str:
    """What is added to a pointer, up to where the bracket around it closes or the next argument begins."""
    place = begin
    while (sign := re.compile(r"[(\[{)\]},;]").search(code.text, place)) is not None:
        if sign[0] not in "([{":
            return code.text[begin : sign.start()]
        place = code.closing(sign.start()) + 1
    return code.text[begin:]
