"""A finding at an access -> the index variables on its line, each with its definition and its value in that thread.

The values come from the text: blockIdx and threadIdx are the finding's, blockDim and gridDim the launch's, a kernel's
parameters what its launch passes of the launcher's. A variable that is assigned again has no value here, but for the
variable of a loop that the place in the buffer gives away. Where these values lead to another place in the buffer than
the finding's, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from grader.compile.nvcc_log import SOURCE
from grader.content.expressions import (
    Unknown,
    evaluate,
    names_in,
    number,
    parse,
)
from grader.content.functions import Code, Definition, Function, split
from grader.devices import Call, Finding
from grader.devices.counters import Launched
from grader.judge.alignments import of_alignment
from grader.judge.frame import Frame, frame_of, host_frame, last_set, loop_head, step_of
from grader.judge.guards import bounds, of_guard, of_last_element
from grader.judge.pointers import of_counted_pointers, of_unset_pointers
from grader.judge.rounds import of_rounds
from grader.verdict import Clue, Kind

KINDS = (Kind.OUT_OF_BOUNDS, Kind.RACE, Kind.UNINITIALISED, Kind.MISALIGNED)
SHOWN = 4  # variables
LONGEST = 70  # characters of a definition that is shown
_GRID = re.compile(r"<<<((?:[^,()<>]|\([^()]*\))+),")
_NAME = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*(?:\.[xyz]\b)?")


def of_finding(text: str, finding: Finding, launched: Sequence[Launched], call: Call) -> list[Clue]:
    """The variables that the access on the finding's line is made of, in the order of their definitions."""
    if finding.line is None or finding.block is None or finding.thread is None or finding.kernel is None:
        return []
    if finding.kind not in KINDS or (finding.file or SOURCE).rpartition("/")[2] != SOURCE:
        return []
    code = Code(text)
    frame = frame_of(code, finding, launched, call)
    if frame is None or not _agrees(frame, _line_of(frame), finding):
        return []
    more = [*of_guard(frame, finding), *of_unset_pointers(frame, finding)]
    more += [
        *of_last_element(frame, finding, call),
        *of_rounds(frame, finding),
        *of_alignment(frame, finding, call),
        *of_counted_pointers(frame, finding, call),
    ]
    with suppress(Unknown):
        more += _of_two_lanes(frame, finding, launched, call)
    return [*[*_clues(frame)][-SHOWN + len(more) :], *more]


def of_launch(text: str, finding: Finding, launched: Sequence[Launched], call: Call) -> list[Clue]:
    """The variable of the grid that is 0 at a launch with no blocks, with what it is computed from."""
    grids = [item.grid for item in launched if item.kernel == finding.kernel]
    if finding.kind != Kind.LAUNCH_FAILED or not any(0 in grid for grid in grids):
        return []
    code, found = Code(text), list[Clue]()
    for host in code.functions:
        for match in _GRID.finditer(code.text, host.begin, host.end):
            frame = None if host.is_kernel else host_frame(code, host, match.start(), call, 0)
            found += [] if frame is None else _zeros(frame, match[1], match.start(1))
    return found if len(found) == 1 else []


def of_shared(text: str, finding: Finding, launched: Sequence[Launched]) -> list[Clue]:
    """What the shared memory is computed from that a refused launch asks for, if all launches of the file ask for the
    same."""
    asked = {item.smem_bytes for item in launched if item.kernel == finding.kernel}
    if finding.kind != Kind.LAUNCH_FAILED or "bytes of shared memory a block" not in finding.message or len(asked) != 1:
        return []
    code, found = Code(text), dict[str, tuple[Function, int]]()
    for host in code.functions:
        for match in re.finditer(r"<<<(.*?)>>>", code.text[host.begin : host.end], re.DOTALL):
            given = split(match[1])
            if not host.is_kernel and len(given) > 2 and given[2] != "0":
                found[given[2]] = host, host.begin + match.start()
    if len(found) != 1:
        return []
    ((name, (host, place)),) = found.items()
    words, clues = f" = {asked.pop()}", list[Clue]()
    waiting = [name]
    while waiting and len(clues) < SHOWN:
        name = waiting.pop(0)
        last = last_set(code, host, name, place)
        if last is not None and not last[0].isdecimal() and len(last[0]) <= LONGEST:
            line = code.line_at(last[1])
            clues.append(Clue("index", f"{name} = {last[0]}{words}, on line {line}", line))
            waiting += [each for each in _names(last[0]) if each not in waiting and each != name]
        words = ""
    return clues


def _zeros(frame: Frame, grid: str, place: int) -> Iterator[Clue]:
    """The quotients that are 0 among the variables of a grid, or the grid itself."""
    names, host = _names(grid), frame.function
    for name in [*names]:
        dim3 = re.compile(rf"\bdim3\s+{name}\s*[({{](.*?)[)}}]\s*;", re.DOTALL)
        names += [each for found in dim3.finditer(frame.code.text, host.begin, host.end) for each in _names(found[1])]
    for each in frame.definitions(iter(names)):
        words, line = _said(frame, each.name, each)
        if words.endswith(f"{each.text} = 0") and "/" in each.text:
            yield Clue("index", f"{words}, on line {line}", line)
    if "/" in grid and _is_0(frame, grid):
        line = frame.code.line_at(place)
        yield Clue("index", f"the grid is {grid.strip()} = 0, on line {line}", line)


def _is_0(frame: Frame, text: str) -> bool:
    try:
        return frame.value(text).value == 0
    except Unknown:
        return False


# -- two lanes -------------------------------------------------------------------------------------------------------

_BY_TWO = re.compile(r"thread \((\d+),(\d+),(\d+)\) and thread \((\d+),(\d+),(\d+)\) write it by one instruction")


def _of_two_lanes(frame: Frame, finding: Finding, launched: Sequence[Launched], call: Call) -> Iterator[Clue]:
    """The variables of a line that are the same for two lanes that write one place by one instruction."""
    found = _BY_TWO.search(finding.message)
    if found is None or finding.kernel is None:
        return
    numbers = [int(each) for each in found.groups()]
    first, other = ((numbers[i], numbers[i + 1], numbers[i + 2]) for i in (0, 3))
    frames = [frame_of(frame.code, replace(finding, thread=each), launched, call) for each in (first, other)]
    while all(frames) and frames[0] and not _same(frames, _line_of(frames[0])):
        frames = [each and each.caller for each in frames]
        if frames[0] is None or not frames[0].builtins:
            return
    if frames[0] and (same := _same(frames, _line_of(frames[0]))):
        words = ", ".join(each.name if len(each.text) > LONGEST else f"{each.name} = {each.text}" for each in same)
        yield Clue("index", f"the same for both threads: {words}", frame.code.line_at(same[-1].at))


def _same(frames: Sequence[Frame | None], line: str) -> list[Definition]:
    """The variables on a line that are the same in both frames, and of the thread. Both threads are at one instruction:
    the variable of a loop counts as what it begins with."""
    one, other = (each for each in frames if each is not None)
    for frame in (one, other):
        for loop in frame.definitions(iter(_names(line))):
            if frame.is_changed(loop):
                with suppress(Unknown):
                    frame.solved[loop.at] = frame.at(loop.at).of_type(loop)
    same = []
    for each in one.definitions(iter(_names(line))):
        if each.name not in _names(line) or not _is_of(each, one):
            continue
        try:
            equal = one.defined(each) == other.defined(each)
        except Unknown:
            return []
        if equal:
            same.append(each)
    return same


def _is_of(definition: Definition, frame: Frame) -> bool:
    """Whether the thread's number is among what it is made of."""
    texts = [
        definition.text,
        *(each.text for each in frame.at(definition.at).definitions(iter(_names(definition.text)))),
    ]
    return any("threadIdx" in text for text in texts)


# -- what is said ----------------------------------------------------------------------------------------------------


def _line_of(frame: Frame) -> str:
    begin, end = frame.code.line_span(frame.code.line_at(frame.place))
    return frame.code.text[begin:end]


def _clues(frame: Frame) -> Iterator[Clue]:
    """The variables of the innermost line that has any: a wrapper of one instruction has none."""
    inner: Frame | None = frame
    while inner is not None and inner.builtins:  # as far as the kernel
        said = [_said(inner, name, definition) for name, definition in _used(inner, _line_of(inner))]
        if found := [Clue("index", words, at) for words, at in said if words]:
            yield from found
            return
        inner = inner.caller


def _agrees(frame: Frame, line: str, finding: Finding) -> bool:
    """Whether the values lead to the finding's place in the buffer, where they lead to one.

    Where only the variable of a loop has no value, it gets the one that leads there.
    """
    if finding.buffer is None or finding.index is None:
        return True
    found = []
    for name, inside in _places(frame, line):
        if frame.buffer(name) != finding.buffer:
            continue
        try:
            found.append(frame.value(inside).value)
        except Unknown:
            _solve_row(frame, inside, finding.index)
            _solve(frame, inside, finding.index)
            return True
    return not found or finding.index in found


def _places(frame: Frame, line: str) -> Iterator[tuple[str, str]]:
    """The pointers and the offsets to them of a line: ``x[i]``, ``(x + i)``; and where a pointer of the function is
    one and an offset itself, ``const float* from = x + i;``, that and its offset."""
    for name, inside in _touched(line):
        if (alias := _alias(frame, name)) is None:
            yield name, inside
        else:
            yield alias[0], f"({alias[1]}) + ({inside})"


def _alias(frame: Frame, name: str) -> tuple[str, str] | None:
    """What a pointer of the function is defined as: another one, and the offset to it."""
    code, function = frame.code, frame.function
    pattern = rf"\*\s*(?:const\s+|__restrict__\s+)*{re.escape(name)}\s*=\s*([A-Za-z_]\w*)\s*\+\s*([^;?]*);"
    found = [*re.finditer(pattern, code.text[function.begin : frame.place])]
    if len(found) != 1 or any(each.name == name for each in function.parameters):
        return None
    at = function.begin + found[0].end()
    if code.is_assigned(name, at, function.end) or code.block_end(at, function.end) < frame.place:
        return None
    return found[0][1], " ".join(found[0][2].split())


def _touched(line: str) -> Iterator[tuple[str, str]]:
    """``x[i]``, ``(x + i)``, ``(x)`` of a cast and ``*x``."""
    for match in re.finditer(r"(?<![\w.\])])([A-Za-z_]\w*)\s*\[", line):
        if (inside := _inside(line, match.end() - 1)) is not None:
            yield match[1], inside
    for match in re.finditer(r"\(\s*([A-Za-z_]\w*)\s*\+((?:[^()\[\],;?]|\([^()]*\))*)\)", line):
        yield match[1], match[2]
    for match in re.finditer(r"(?:_cast\s*<[^;()]*\*\s*>\s*\(|(?<![\w)\]])\*)\s*([A-Za-z_]\w*)\s*[);]", line):
        yield match[1], "0"


def _inside(line: str, opening: int) -> str | None:
    """What is between two brackets of one pair of them alone."""
    depth = 0
    for place in range(opening, len(line)):
        depth += (line[place] == "[") - (line[place] == "]")
        if depth == 0:
            return None if line[place + 1 :].lstrip().startswith("[") else line[opening + 1 : place]
    return None


def _solve_row(frame: Frame, text: str, index: int) -> None:
    """Find ``row`` and ``col`` of ``row * N + col`` where a guard of the access says that col is less than N."""
    try:
        tree = parse(text)
    except Unknown:
        return
    if tree[:2] != ("binary", "+") or tree[2][:2] != ("binary", "*"):
        return
    (row, width), col = tree[2][2:], tree[3]
    row = row[2] if row[0] == "cast" else row
    if row[0] != "name" or col[0] != "name":
        return
    known = frame.code.visible(frame.function, frame.place)
    try:
        each = frame.of_tree(width).value
        limits = [frame.value(limit).value for name, limit in bounds(frame) if name == col[1]]
    except Unknown:
        return
    places = [known[name] for name in (row[1], col[1]) if name in known]
    if each < 1 or index < 0 or not limits or min(limits) > each or len(places) < 2 or "-" in places[1].text:
        return
    for definition, value in zip(places, divmod(index, each), strict=True):
        frame.solved.setdefault(definition.at, number(value, definition.type))


def _solve(frame: Frame, text: str, index: int) -> None:
    """Find the value of a loop's variable for which the expression is the index, if it is linear in that one."""
    try:
        tree = parse(text)
    except Unknown:
        return
    loops = [each for each in frame.definitions(names_in(tree)) if frame.is_changed(each)]
    if len(loops) != 1:
        return
    loop = loops[0]

    def at(value: int) -> int:
        frame.solved[loop.at] = number(value, loop.type)
        return evaluate(tree, frame.name, frame.called).value

    try:
        zero, one, two = at(0), at(1), at(2)
        slope = one - zero
        if slope == 0 or two - one != slope or (index - zero) % slope:
            raise Unknown
        at((index - zero) // slope)
        if not _is_reached(frame, loop):
            raise Unknown
    except Unknown:
        frame.solved.pop(loop.at, None)


def _is_reached(frame: Frame, loop: Definition) -> bool:
    """Whether the loop takes the variable to its value. Raises Unknown where that cannot be told."""
    value, head = frame.solved[loop.at].value, loop_head(frame.code, loop)
    step = step_of(loop.name, head.step)
    if step is None or not frame.value(head.condition).value:
        return False
    outside = replace(frame, solved={})
    width = outside.value(step).value
    first = outside.at(loop.at).value(loop.text).value
    return width > 0 and value >= first and (value - first) % width == 0


def _used(frame: Frame, line: str) -> list[tuple[str, Definition | None]]:
    """The parameters, which have no definition, and the variables that the line's values are made of."""
    names = [*_names(line), *(each for _, text in _places(frame, line) for each in _names(text))]
    definitions = frame.definitions(iter(names))
    inner = [name for each in definitions for name in _names(each.text)]
    sizes = set(_sizes(frame))
    own = [
        (parameter.name, None)
        for parameter in frame.function.parameters
        if parameter.type is not None and parameter.name in (*names, *inner) and parameter.name not in sizes
    ]
    return [*own, *((each.name, each) for each in definitions if _is_of_thread(frame, each))]


def _names(text: str) -> list[str]:
    return [match[0] for match in _NAME.finditer(text)]


def _sizes(frame: Frame) -> Iterator[str]:
    """The launcher's own scalars, which the verdict's shape has."""
    above: Frame | None = frame
    while above is not None:
        yield from above.given
        above = above.caller


def _is_of_thread(frame: Frame, definition: Definition) -> bool:
    """Whether it is more than a number and the sizes."""
    if definition.at in frame.solved:
        return True
    try:
        value = frame.at(definition.at).of_type(definition)
    except Unknown:
        return True
    return definition.text != str(value.value)


def _said(frame: Frame, name: str, definition: Definition | None) -> tuple[str, int | None]:
    """``row = blockIdx.x * 4 + threadIdx.y = 131`` and its line; empty where it has no value."""
    try:
        if definition is None:
            value, line = frame.name(name).value, _caller_line(frame)
            return (f"{name} = {value}, passed on line {line}" if line else ""), line
        value = frame.defined(definition).value
    except Unknown:
        return "", None
    line = frame.code.line_at(definition.at)
    if definition.at in frame.solved and frame.is_changed(definition):
        return f"{name} = {value} in the loop of line {line}", line
    text = f"{definition.text} = " if len(definition.text) <= LONGEST else ""
    return f"{name} = {text}{value}", line


def _caller_line(frame: Frame) -> int | None:
    return frame.code.line_at(frame.caller.place) if frame.caller else None
