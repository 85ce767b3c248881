"""The place of an access out of bounds, or of a misaligned one -> the condition that let the thread come there.

Said is the innermost one that compares with a parameter of its function, with the values of both sides. They are the
text's, as in indices. Where they make a condition on the way false, the text is not understood, and nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

from grader.compile.nvcc_log import SOURCE
from grader.content.expressions import Tree, Unknown, names_in, parse
from grader.content.functions import Code, Function
from grader.devices import Call, Finding
from grader.devices.counters import Launched
from grader.judge.frame import Frame, frame_of
from grader.verdict import Clue, Kind

KINDS = (Kind.OUT_OF_BOUNDS, Kind.MISALIGNED)
SHOWN = 3  # variables of a guard
_SKIPPED = re.compile(r"its thread has not come to cp\.async\.wait_all on (line \d+(?: \([^()]*\))?)\Z")
_AT_BARRIER = re.compile(r"threads? of the block waits? at the barrier on line \d+, \d+ threads?")
_SEVERAL = re.compile(r"\[(\d+)\.\.(\d+)\]")
_HEAD = re.compile(r"\b(for|while|if)\s*\(")
_NAMES = re.compile(r"[A-Za-z_]\w*")
_IF = re.compile(r"\bif\s*\(")
_LEAVES = re.compile(r"\{?\s*(?:return|continue)\b[^;{}]*;\s*\}?")
_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
_TOUCHES = "[(*"  # what is on the access's side of a condition on its line


@dataclass(frozen=True)
class Guard:
    """``text`` is true where the thread comes; ``leaves``: false, since who makes it true returns."""

    text: str
    at: int
    leaves: bool


def of_guard(frame: Frame, finding: Finding) -> list[Clue]:
    """At most one clue. ``frame`` is the finding's place; its callers are those of the kernel's code."""
    if finding.kind not in KINDS:
        return []
    place, inner = _access(frame), frame
    while True:
        for guard in reversed([*guards_of(inner.code, inner.function, place)]):
            try:
                words = _words(inner, guard, _names_of(inner))
            except (_Contradiction, Unknown):
                return []
            if words:
                line = inner.code.line_at(guard.at)
                kind = "exit" if guard.leaves else "guard"
                return [Clue("index", f"the {kind} on line {line}: {words}", line)]
        if inner.caller is None or not inner.caller.builtins:
            return []
        inner = inner.caller
        place = inner.place


def of_last_element(frame: Frame, finding: Finding, call: Call) -> Iterator[Clue]:
    """The condition that holds for the first element of an access and not for its last one. At most one clue."""
    moved = _SEVERAL.search(finding.message)
    counts = [prod(buffer.shape) for buffer in call.buffers if buffer.name == finding.buffer]
    if finding.kind != Kind.OUT_OF_BOUNDS or moved is None or len(counts) != 1:
        return
    first, last = int(moved[1]), int(moved[2])
    if not first < counts[0] <= last:
        return
    code, names = frame.code, _names_of(frame)
    heads = [*_HEAD.finditer(code.text, frame.function.begin, _access(frame))]
    for head in reversed(heads):
        closing = code.closing(head.end() - 1)
        text = " ".join(code.text[head.end() : closing].split(";")[head[1] == "for"].split())
        if (
            closing < frame.place
            and code.statement_end(closing + 1) >= _access(frame)
            and names & {*_NAMES.findall(text)}
        ):
            line = code.line_at(head.start())
            one, other = (f"{finding.buffer}[{each}]" for each in (first, last))
            words = f"`{text}` on line {line} holds for {one}, the first of the {last - first + 1} elements"
            yield Clue("place", f"{words}: it must hold for the last one, {other}", line)
            return


def of_skipped_wait(text: str, finding: Finding) -> list[Clue]:
    """The condition that the wait is under which a copy's thread has not come to, in the line that the kernel has it
    on; its values are not known."""
    found = _SKIPPED.search(finding.message)
    if finding.kind != Kind.RACE or found is None:
        return []
    code, line = Code(text), int(re.findall(r"\d+", found[1])[-1])
    function = code.function_at(line)
    if function is None:
        return []
    begin, end = code.line_span(line)
    place = max(code.text.rfind("(", begin, end), begin)
    over = [guard for guard in guards_of(code, function, place) if not guard.leaves]
    if not over:
        return []
    at = code.line_at(over[-1].at)
    where = "there" if at == line else f"on line {line}"
    return [Clue("copies", f"the wait {where} is under the condition `{over[-1].text}` of line {at}", at)]


def of_barrier(text: str, finding: Finding, launched: Sequence[Launched], call: Call) -> list[Clue]:
    """The condition that a barrier is under which not all threads come to, if it is made of the thread's number."""
    if finding.kind != Kind.DEADLOCK or _AT_BARRIER.search(finding.message) is None:
        return []
    if finding.line is None or finding.block is None or finding.thread is None or finding.kernel is None:
        return []
    if (finding.file or SOURCE).rpartition("/")[2] != SOURCE:
        return []
    code = Code(text)
    frame = frame_of(code, finding, launched, call)
    if frame is None:
        return []
    begin, end = code.line_span(finding.line)
    place = max(code.text.rfind("sync", begin, end), begin)
    for guard in reversed([*guards_of(code, frame.function, place)]):
        if guard.leaves or not _is_of_thread(frame.at(guard.at), guard.text):
            continue
        at = code.line_at(guard.at)
        words = f"the barrier on line {finding.line} is under the condition `{guard.text}` of line {at}"
        return [Clue("place", f"{words}: threads for which that is false do not come to it", at)]
    return []


def _is_of_thread(frame: Frame, text: str) -> bool:
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*", text)
    return any("threadIdx" in each for each in (text, *(one.text for one in frame.definitions(iter(names)))))


class _Contradiction(Exception):
    """The values make a condition false whose block the thread is in."""


def _access(frame: Frame) -> int:
    """Where the access is on the line that the place is at the end of."""
    code = frame.code
    begin, end = code.line_span(code.line_at(frame.place))
    found = max(code.text.rfind(sign, begin, end) for sign in _TOUCHES)
    return max(found, begin)


def conditions(code: Code, function: Function, place: int) -> Iterator[tuple[str, int]]:
    """The conditions whose blocks a place is in, from the outside in, and where they are."""
    return ((guard.text, guard.at) for guard in guards_of(code, function, place) if not guard.leaves)


def bounds(frame: Frame) -> Iterator[tuple[str, str]]:
    """``("col", "N")`` for each ``col < N`` that holds at the access on the place's line."""
    for guard in guards_of(frame.code, frame.function, _access(frame)):
        if guard.leaves or "||" in guard.text:
            continue
        for part in guard.text.split("&&"):
            if (found := re.fullmatch(r"\s*([A-Za-z_]\w*)\s*<\s*([\w.]+)\s*", part)) is not None:
                yield found[1], found[2]


def guards_of(code: Code, function: Function, place: int) -> Iterator[Guard]:
    """The conditions on the way to a place in a function, in the order of the text."""
    for match in _IF.finditer(code.text, function.begin, place):
        opening = match.end() - 1
        closing = code.closing(opening)
        end = code.statement_end(closing + 1)
        text = " ".join(code.text[opening + 1 : closing].split())
        if closing < place <= end:
            yield Guard(text, opening + 1, leaves=False)
        leaves = end < place and _LEAVES.fullmatch(code.text[closing + 1 : end + 1].strip())
        if leaves and code.block_end(match.start(), function.end) >= place:
            yield Guard(text, opening + 1, leaves=True)


def _names_of(frame: Frame) -> set[str]:
    """What the line of the place is made of."""
    begin, end = frame.code.line_span(frame.code.line_at(frame.place))
    names = {*re.findall(r"[A-Za-z_]\w*", frame.code.text[begin:end])}
    return names | {each.name for each in frame.definitions(iter([*names]))}


def _words(frame: Frame, guard: Guard, names: set[str]) -> str:
    """``8 >= 8 (idx = 0)``; empty where no part of the condition is about a parameter, or has values. An exit may be
    about something else than the access, of whose line ``names`` are."""
    at, found = frame.at(guard.at), list[str]()
    for part in [guard.text] if guard.leaves or "||" in guard.text else guard.text.split("&&"):
        try:
            tree = parse(part)
            if guard.leaves and not names & {each.name for each in at.definitions(names_in(tree))}:
                return ""
            if bool(at.of_tree(tree).value) == guard.leaves:
                raise _Contradiction
        except Unknown:
            if guard.leaves:
                return ""
        if words := _compared(at, part, guard.leaves):
            found.append(" is ".join(words))
    return " and ".join(found)


def _compared(frame: Frame, text: str, leaves: bool) -> tuple[str, str] | None:
    """A comparison, and what it is there: ```idx < n``` and ``0 < 1``; of a variable's name what it is defined as."""
    try:
        tree = parse(text)
    except Unknown:
        return None
    if tree[0] == "name" and (definition := frame.code.visible(frame.function, frame.place).get(tree[1])) is not None:
        words = None if frame.is_changed(definition) else _compared(frame.at(definition.at), definition.text, leaves)
        return (f"`{tree[1]}`, that is {words[0]},", words[1]) if words else None
    if tree[0] != "binary" or tree[1] not in _COMPARISONS or not _has_parameter(frame, tree):
        return None
    sides = [_side(frame, part) for part in tree[2:]]
    if None in sides or not any(each and each.lstrip("-").isdecimal() for each in sides):
        return None
    own = {part[1] for part in tree[2:] if part[0] == "name"}
    names = [each for each in dict.fromkeys(names_in(tree)) if each not in own]
    values = ", ".join(_shown(frame, names))
    more = f" ({values})" if values else ""
    said = f"{sides[0]} {tree[1]} {sides[1]}"
    return f"`{text.strip()}`", f"{'false, ' if leaves else ''}{said}{more}"


def _side(frame: Frame, tree: Tree) -> str | None:
    """The value of a side of a comparison; the name of a member of an object, which has none."""
    try:
        return str(frame.of_tree(tree).value)
    except Unknown:
        return str(tree[1]) if tree[0] == "name" and "." in tree[1] else None


def _shown(frame: Frame, names: list[str]) -> Iterator[str]:
    """``idx = 0`` for the variables among the names that have values."""
    found = [each for each in frame.definitions(iter(names)) if each.name in names and not each.text.isdecimal()]
    for each in found[:SHOWN]:
        with suppress(Unknown):
            yield f"{each.name} = {frame.defined(each).value}"


def _has_parameter(frame: Frame, tree: Tree) -> bool:
    """Whether the values are made of a parameter of the function: a size, or what a caller passes."""
    parameters = {each.name for each in frame.function.parameters}
    names = {*names_in(tree)}
    for each in frame.definitions(iter([*names])):
        try:
            names |= {*names_in(parse(each.text))}
        except Unknown:
            continue
    return any(each.split(".")[0] in parameters for each in names)
