"""A finding at an access -> the index variables on its line, each with its definition and its value in that thread.

The values come from the text: blockIdx and threadIdx are the finding's, blockDim and gridDim the launch's, a kernel's
parameters what its launch passes of the launcher's. A variable that is assigned again has no value here, but for the
variable of a loop that the place in the buffer gives away. Where these values lead to another place in the buffer than
the finding's, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from grader.compile.nvcc_log import SOURCE
from grader.content.expressions import (
    INT,
    UNSIGNED,
    Number,
    Tree,
    Type,
    Unknown,
    converted,
    evaluate,
    names_in,
    number,
    parse,
)
from grader.content.functions import Code, Definition, Function, split
from grader.devices import Call, Finding
from grader.devices.counters import Launched
from grader.judge.guards import bounds, of_guard
from grader.verdict import Clue, Kind

KINDS = (Kind.OUT_OF_BOUNDS, Kind.RACE, Kind.UNINITIALISED, Kind.MISALIGNED)
SHOWN = 4  # variables
DEEPEST = 8  # calls, of helpers and of definitions
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
    frame = _frame_of(code, finding, launched, call)
    if frame is None or not _agrees(frame, _line_of(frame), finding):
        return []
    more = [*of_guard(frame, finding)]
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
        last = _last_set(code, host, name, place)
        if last is not None and not last[0].isdecimal() and len(last[0]) <= LONGEST:
            line = code.line_at(last[1])
            clues.append(Clue("index", f"{name} = {last[0]}{words}, on line {line}", line))
            waiting += [each for each in _names(last[0]) if each not in waiting and each != name]
        words = ""
    return clues


def _last_set(code: Code, function: Function, name: str, place: int) -> tuple[str, int] | None:
    """What a variable of a function is at a place, and where it is set to that; None if that may depend on the way
    there, or is in no text."""
    definition = code.visible(function, place).get(name)
    if definition is None:
        return None
    if not code.is_assigned(name, definition.at + 1, place):
        return definition.text, definition.at
    sets = [*re.finditer(rf"(?<=[;}}])\s*{re.escape(name)}\s*=(?!=)([^;]*);", code.text[definition.at : place])]
    if not sets:
        return None
    at = definition.at + sets[-1].start(1)
    between = code.text[definition.at : at]
    if code.is_assigned(name, at, place) or "{" in between or "}" in between:
        return None
    return " ".join(sets[-1][1].split()), at


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


@dataclass
class Frame:
    """A place in a function that runs: who called it with which arguments, and the values of built-in variables."""

    code: Code
    function: Function
    place: int
    caller: Frame | None = None
    arguments: Sequence[str] = ()  # in the caller
    templates: Sequence[str] = ()  # in the caller, or values
    builtins: Mapping[str, Number] = field(default_factory=dict)
    given: Mapping[str, Number] = field(default_factory=dict)  # parameters of the launcher
    buffers: Mapping[str, str] = field(default_factory=dict)  # of the launcher: parameter -> buffer
    solved: dict[int, Number] = field(default_factory=dict)  # variables of loops, by the place of their definition
    depth: int = 0

    def at(self, place: int) -> Frame:
        if self.depth > DEEPEST:
            raise Unknown
        return replace(self, place=place, depth=self.depth + 1)

    def value(self, text: str) -> Number:
        return self.of_tree(parse(text))

    def of_tree(self, tree: Tree) -> Number:
        return evaluate(tree, self.name, self.called)

    def name(self, name: str) -> Number:
        if name in self.builtins:
            return self.builtins[name]
        definition = self.code.visible(self.function, self.place).get(name)
        if definition is not None:
            return self.defined(definition)
        for place, parameter in enumerate(self.function.parameters):
            if parameter.name == name:
                return self.passed(place, name, parameter.type)
        if name in self.function.templates:
            return self.instantiated(self.function.templates.index(name))
        constant = next((each for each in self.code.constants if each.name == name), None)
        if constant is None:
            raise Unknown
        return self.at(constant.at).of_type(constant)

    def defined(self, definition: Definition) -> Number:
        if definition.at in self.solved:
            return self.solved[definition.at]
        if self.is_changed(definition):
            raise Unknown
        return self.at(definition.at).of_type(definition)

    def is_changed(self, definition: Definition) -> bool:
        return not definition.is_constant and self.code.is_assigned(definition.name, definition.at + 1, definition.end)

    def of_type(self, definition: Definition) -> Number:
        found = self.value(definition.text)
        return found if definition.is_auto else converted(found, definition.type)

    def passed(self, place: int, name: str, kind: Type | None) -> Number:
        if kind is None or self.code.is_assigned(name, self.function.begin, self.function.end):
            raise Unknown
        if name in self.given:
            return self.given[name]
        if self.caller is None or place >= len(self.arguments):
            raise Unknown
        return converted(self.caller.at(self.caller.place).value(self.arguments[place]), kind)

    def instantiated(self, place: int) -> Number:
        if place >= len(self.templates):
            raise Unknown
        text = self.templates[place]
        if re.fullmatch(r"(?:\(\w+\))?-?\d+[uUlL]*|true|false", text) or self.caller is None:
            return evaluate(parse(re.sub(r"^\(\w+\)", "", text)), _unknown, self.called)
        return self.caller.at(self.caller.place).value(text)

    def called(self, name: str, given: Sequence[Number]) -> Number:
        """A function of the file that only returns a value."""
        found = [each for each in self.code.functions if each.name == name and not each.templates]
        if len(found) != 1 or self.depth > DEEPEST or len(found[0].parameters) != len(given):
            raise Unknown
        body = re.fullmatch(r"\{\s*return\b([^;]*);\s*\}", self.code.text[found[0].begin : found[0].end])
        values = {
            each.name: converted(value, each.type)
            for each, value in zip(found[0].parameters, given, strict=True)
            if each.type is not None
        }
        if body is None or len(values) < len(given):
            raise Unknown
        return Frame(self.code, found[0], found[0].end, given=values, depth=self.depth + 1).value(body[1])

    def definitions(self, names: Iterator[str]) -> list[Definition]:
        """What the names are made of, without what the file or a number alone defines; each once, in their order."""
        found: dict[int, Definition] = {}
        waiting = [(name, self.place) for name in names]
        while waiting:
            name, place = waiting.pop()
            definition = self.code.visible(self.function, place).get(name)
            if definition is None or definition.at in found:
                continue
            try:
                inner = [*names_in(parse(definition.text))]
            except Unknown:
                inner = []
            found[definition.at] = definition
            waiting += [(each, definition.at) for each in inner]
        return sorted(found.values(), key=lambda each: each.at)

    def buffer(self, name: str) -> str | None:
        """The buffer that a pointer among the parameters points to the start of."""
        names = [parameter.name for parameter in self.function.parameters]
        if (
            name in self.buffers
            or name not in names
            or self.code.is_assigned(name, self.function.begin, self.function.end)
        ):
            return self.buffers.get(name)
        place = names.index(name)
        if self.caller is None or place >= len(self.arguments) or name in self.code.visible(self.function, self.place):
            return None
        return self.caller.buffer(self.arguments[place])


def _unknown(name: str) -> Number:
    raise Unknown


# -- who called whom -------------------------------------------------------------------------------------------------


def _frame_of(code: Code, finding: Finding, launched: Sequence[Launched], call: Call) -> Frame | None:
    """The place of the finding, below the kernel and its launch. None where the lines do not fit together."""
    assert finding.line is not None and finding.kernel is not None
    lines = [finding.line, *finding.callers]
    functions = [code.function_at(line) for line in lines]
    kernel = functions[-1]
    if kernel is None or not kernel.is_kernel or kernel.name != plain_name(finding.kernel):
        return None
    frame = _kernel_frame(code, kernel, finding, launched, call)
    frame.place = code.line_span(lines[-1])[1]
    for line, inner, outer_line in zip(lines[-2::-1], functions[-2::-1], lines[:0:-1], strict=True):
        if inner is None:
            return None
        if inner == frame.function:  # a lambda, or a loop body that has a line of its own
            frame.place = code.line_span(line)[1]
            continue
        found = _calls(code, inner.name, *code.line_span(outer_line))
        if len(found) != 1:
            return None
        templates, opening = found[0]
        frame.place = opening
        frame = Frame(code, inner, code.line_span(line)[1], frame, code.arguments(opening), templates, frame.builtins)
    return frame


def _kernel_frame(code: Code, kernel: Function, finding: Finding, launched: Sequence[Launched], call: Call) -> Frame:
    assert finding.block is not None and finding.thread is not None and finding.kernel is not None
    values = {"blockIdx": finding.block, "threadIdx": finding.thread}
    shapes = {(item.grid, item.block) for item in launched if item.kernel == finding.kernel}
    if len(shapes) == 1:
        ((values["gridDim"], values["blockDim"]),) = shapes
    builtins = {
        f"{name}.{axis}": Number(each, UNSIGNED)
        for name, triple in values.items()
        for axis, each in zip("xyz", triple, strict=True)
    }
    builtins["warpSize"] = Number(32, INT)
    begin = finding.kernel.find("<")
    templates = split(finding.kernel[begin + 1 : finding.kernel.rfind(">")]) if begin >= 0 else []
    pattern = re.compile(rf"\b{kernel.name}\s*(?:<[^;{{}}]*?>)?\s*<<<.*?>>>\s*\(", re.DOTALL)
    launches = [
        (each, match.end() - 1)
        for each in code.functions
        for match in pattern.finditer(code.text, each.begin, each.end)
    ]
    if len({tuple(code.arguments(opening)) for _, opening in launches}) != 1:
        return Frame(code, kernel, kernel.end, None, (), templates, builtins)
    host, opening = launches[0]
    caller = host_frame(code, host, opening, call, 0)
    return Frame(code, kernel, kernel.end, caller, code.arguments(opening), templates, builtins)


def host_frame(code: Code, host: Function, place: int, call: Call, depth: int) -> Frame | None:
    """The launcher, or a function of the host's that it calls in one place."""
    name = call.launcher
    if host.name == name:
        names = [parameter.name for parameter in host.parameters]
        pairs = zip(names[len(call.buffers) :], call.scalars, strict=False)
        given = {each: number(scalar.value) for each, scalar in pairs if isinstance(scalar.value, int)}
        buffers = dict(zip(names, (buffer.name for buffer in call.buffers), strict=False))
        return Frame(code, host, place, given=given, buffers=buffers)
    hosts = [each for each in code.functions if not each.is_kernel]
    found = [(each, item) for each in hosts for item in _calls(code, host.name, each.begin, each.end)]
    same = {(each, tuple(code.arguments(opening))) for each, (_, opening) in found}
    if depth > DEEPEST or len(same) != 1:
        return None
    caller, (templates, opening) = found[0]
    templates = templates if len(found) == 1 else []  # which of them it was, is not known
    return Frame(
        code, host, place, host_frame(code, caller, opening, call, depth + 1), code.arguments(opening), templates
    )


def _calls(code: Code, name: str, begin: int, end: int) -> list[tuple[list[str], int]]:
    """The calls of a function between two places: template arguments, and where the parentheses open."""
    found = re.compile(rf"(?<![\w.]){re.escape(name)}\s*(?:<([^;(){{}}]*)>)?\s*\(").finditer(code.text, begin, end)
    return [(split(match[1] or ""), match.end() - 1) for match in found]


def plain_name(kernel: str) -> str:
    return re.split(r"[<(]", kernel)[0].rpartition("::")[2]


# -- two lanes -------------------------------------------------------------------------------------------------------

_BY_TWO = re.compile(r"thread \((\d+),(\d+),(\d+)\) and thread \((\d+),(\d+),(\d+)\) write it by one instruction")


def _of_two_lanes(frame: Frame, finding: Finding, launched: Sequence[Launched], call: Call) -> Iterator[Clue]:
    """Of two lanes that write one place by one instruction: the variables of the line that are the same for both."""
    found = _BY_TWO.search(finding.message)
    if found is None or finding.kernel is None:
        return
    numbers = [int(each) for each in found.groups()]
    first, other = ((numbers[i], numbers[i + 1], numbers[i + 2]) for i in (0, 3))
    frames = [_frame_of(frame.code, replace(finding, thread=each), launched, call) for each in (first, other)]
    while all(frames) and frames[0] and not _same(frames, _line_of(frames[0])):
        frames = [each and each.caller for each in frames]
        if frames[0] is None or not frames[0].builtins:
            return
    if frames[0] and (same := _same(frames, _line_of(frames[0]))):
        words = ", ".join(each.name if len(each.text) > LONGEST else f"{each.name} = {each.text}" for each in same)
        yield Clue("index", f"the same for both threads: {words}", frame.code.line_at(same[-1].at))


def _same(frames: Sequence[Frame | None], line: str) -> list[Definition]:
    """The variables on a line that are the same in both frames, and of the thread. Those of loops are the same where
    the loop begins and steps alike, since both threads are at one instruction: they are taken as they begin."""
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
    text, value = frame.code.text, frame.solved[loop.at].value
    start = text.rfind("for", 0, loop.at)
    head = re.compile(r"for\s*\(([^;]*);([^;]*);").match(text, start) if start >= 0 else None
    if head is None or not head.start(1) <= loop.at < head.end(1):
        raise Unknown
    step_text = text[head.end() : frame.code.closing(text.index("(", start))].strip()
    step = re.fullmatch(rf"{loop.name}\s*\+=(.*)|\+\+\s*{loop.name}|{loop.name}\s*\+\+", step_text, re.DOTALL)
    if step is None or not frame.value(head[2]).value:
        return False
    outside = replace(frame, solved={})
    width = outside.value(step[1]).value if step[1] else 1
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
