"""A misaligned access -> the variable behind its address that is not a multiple of what the access moves.

The address is a sum. A part that is not a multiple is followed through the definitions in the text, as far as sums and
products go: mostly to a quotient that nothing rounds. Nothing is said where there are two such variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from grader.content.expressions import Tree, Unknown, converted, parse
from grader.content.functions import Definition
from grader.devices import Call, Finding
from grader.judge.frame import Frame, last_set
from grader.verdict import Clue, Kind

DEEPEST = 8  # definitions
LONGEST = 70  # characters of a definition that is shown
_BYTES = re.compile(r"(?:reads|writes|updates) (\d+) bytes at")
_NAME = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")

Blamed = dict[int, Definition]  # by the place of the definition


def of_alignment(frame: Frame, finding: Finding, call: Call) -> Iterator[Clue]:
    """At most one clue."""
    moved = _BYTES.match(finding.message)
    sizes = [buffer.itemsize for buffer in call.buffers if buffer.name == finding.buffer]
    if finding.kind != Kind.MISALIGNED or moved is None or len(sizes) != 1:
        return
    elements = int(moved[1]) // sizes[0]
    inner: Frame | None = frame
    while inner is not None and inner.builtins and elements > 1:
        begin, end = inner.code.line_span(inner.code.line_at(inner.place))
        with suppress(Unknown):
            names = _NAME.findall(inner.code.text[begin:end])
            blamed = _of_names(_set_again(inner, names), names, elements, DEEPEST)
            if len(blamed) == 1:
                [definition] = blamed.values()
                yield _clue(inner, definition, elements, int(moved[1]))
            return
        inner = inner.caller


def _clue(frame: Frame, definition: Definition, elements: int, moved: int) -> Clue:
    line, value = frame.code.line_at(definition.at), frame.at(definition.at).value(definition.text).value
    text = f" = {definition.text}" if len(definition.text) <= LONGEST else ""
    words = f"`{definition.name}{text}` is {value} on line {line}, which is not a multiple of {elements} elements"
    return Clue("place", f"{words}: the address needs one, for {moved} bytes at once", line)


def _of_names(frame: Frame, names: Sequence[str], elements: int, depth: int) -> Blamed:
    found: Blamed = {}
    for name in dict.fromkeys(names):
        definition = frame.code.visible(frame.function, frame.place).get(name)
        if definition is not None:
            found |= _of_definition(frame, definition, elements, depth)
    return found


def _set_again(frame: Frame, names: Sequence[str]) -> Frame:
    """The frame with the values of variables that one statement on the way sets again, as the text has them."""
    frame = replace(frame, solved={**frame.solved})
    for each in frame.definitions(iter(names)):
        last = last_set(frame.code, frame.function, each.name, frame.place) if frame.is_changed(each) else None
        if last is not None and last[1] != each.at:
            with suppress(Unknown):
                frame.solved[each.at] = converted(frame.at(last[1]).value(last[0]), each.type)
    return frame


def _of_definition(frame: Frame, definition: Definition, elements: int, depth: int) -> Blamed:
    """A loop's variable counts as what it begins with. Raises Unknown."""
    text, place = definition.text, definition.at
    if depth < 1:
        raise Unknown
    if definition.at in frame.solved and frame.is_changed(definition):
        text, place = last_set(frame.code, frame.function, definition.name, frame.place) or (text, place)
    at = frame.at(place)
    value = _value(at, tree := parse(text))
    if value is not None and value % elements == 0:
        return {}
    inner = _of_tree(at, tree, elements, depth - 1)
    return inner or ({place: replace(definition, text=text, at=place)} if value is not None else {})


def _value(frame: Frame, tree: Tree) -> int | None:
    try:
        return frame.of_tree(tree).value
    except Unknown:
        return None


def _of_tree(frame: Frame, tree: Tree, elements: int, depth: int) -> Blamed:
    """The parts of a sum that are not multiples; for a product, its factor that is the same for all threads. Parts
    without a value are left out. Raises Unknown where a part is not a variable."""
    if tree[0] == "binary" and tree[1] in "+-":
        return _of_tree(frame, tree[2], elements, depth) | _of_tree(frame, tree[3], elements, depth)
    value = _value(frame, tree)
    if value is None or value % elements == 0:
        return {}
    if tree[0] == "cast":
        return _of_tree(frame, tree[2], elements, depth)
    if tree[0] == "name":
        definition = frame.code.visible(frame.function, frame.place).get(tree[1])
        if definition is None:
            raise Unknown
        return _of_definition(frame, definition, elements, depth)
    if tree[0] == "number":
        raise Unknown
    if tree[:2] == ("binary", "*"):
        uniform = [part for part in tree[2:] if part[0] == "name" and not _is_of_place(frame, part[1])]
        return _of_tree(frame, uniform[0], elements, depth) if len(uniform) == 1 else {}
    return {}


def _is_of_place(frame: Frame, name: str) -> bool:
    """Whether the thread's or the block's number is among what a variable is made of."""
    texts = [each.text for each in frame.definitions(iter([name]))]
    return any("threadIdx" in text or "blockIdx" in text for text in texts)
