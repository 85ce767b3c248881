"""A line of a .cu file, and the thread that is there -> the values of names at that place, as far as the text has them.

blockIdx and threadIdx are the thread's, blockDim and gridDim the launch's, a kernel's parameters what its launch passes
of the launcher's. A variable that is assigned again has no value but the one it is solved for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grader.content.expressions import (
    BYTES,
    INT,
    SIZEOF,
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

_FOR = re.compile(r"for\s*\(([^;]*);([^;]*);")

DEEPEST = 8  # calls, of helpers and of definitions


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
        if name.startswith(SIZEOF):
            return Number(self.bytes_of(name.removeprefix(SIZEOF)), Type(64, unsigned=True))
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

    def bytes_of(self, name: str) -> int:
        """The size of a type, which may be a parameter of the function's template."""
        templates = self.function.templates
        place = templates.index(name) if name in templates else len(self.templates)
        name = self.templates[place].strip() if place < len(self.templates) else name
        if name not in BYTES:
            raise Unknown
        return BYTES[name]

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


def last_set(code: Code, function: Function, name: str, place: int) -> tuple[str, int] | None:
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


def _unknown(name: str) -> Number:
    raise Unknown


# -- who called whom -------------------------------------------------------------------------------------------------


def frame_of(code: Code, finding: Finding, launched: Sequence[Launched], call: Call) -> Frame | None:
    """The place of the finding, below the kernel and its launch. None where the lines do not fit together."""
    assert finding.line is not None and finding.kernel is not None
    lines = [finding.line, *finding.callers]
    functions = [code.function_at(line) for line in lines]
    kernel = functions[-1]
    if kernel is None or not kernel.is_kernel or kernel.name != plain_name(finding.kernel):
        return None
    frame = kernel_frame(code, kernel, finding, launched, call)
    frame.place = code.line_span(lines[-1])[1]
    for line, inner, outer_line in zip(lines[-2::-1], functions[-2::-1], lines[:0:-1], strict=True):
        if inner is None:
            return None
        if inner == frame.function:  # a lambda, or a loop body that has a line of its own
            frame.place = code.line_span(line)[1]
            continue
        found = calls_of(code, inner.name, *code.line_span(outer_line))
        if len(found) != 1:
            return None
        templates, opening = found[0]
        frame.place = opening
        frame = Frame(code, inner, code.line_span(line)[1], frame, code.arguments(opening), templates, frame.builtins)
    return frame


def kernel_frame(code: Code, kernel: Function, finding: Finding, launched: Sequence[Launched], call: Call) -> Frame:
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
    found = [(each, item) for each in hosts for item in calls_of(code, host.name, each.begin, each.end)]
    same = {(each, tuple(code.arguments(opening))) for each, (_, opening) in found}
    if depth > DEEPEST or len(same) != 1:
        return None
    caller, (templates, opening) = found[0]
    templates = templates if len(found) == 1 else []  # which of them it was, is not known
    return Frame(
        code, host, place, host_frame(code, caller, opening, call, depth + 1), code.arguments(opening), templates
    )


def calls_of(code: Code, name: str, begin: int, end: int) -> list[tuple[list[str], int]]:
    """The calls of a function between two places: template arguments, and where the parentheses open."""
    found = re.compile(rf"(?<![\w.]){re.escape(name)}\s*(?:<([^;(){{}}]*)>)?\s*\(").finditer(code.text, begin, end)
    return [(split(match[1] or ""), match.end() - 1) for match in found]


@dataclass(frozen=True)
class LoopHead:
    """``for (variable = ...; condition; step)``: ``start`` is where it begins, ``closing`` its last parenthesis."""

    start: int
    closing: int
    condition: str
    step: str


def loop_head(code: Code, variable: Definition) -> LoopHead:
    """The head of the loop that defines a variable. Raises Unknown where it is none's."""
    start = code.text.rfind("for", 0, variable.at)
    head = _FOR.match(code.text, start) if start >= 0 else None
    if head is None or not head.start(1) <= variable.at < head.end(1):
        raise Unknown
    closing = code.closing(code.text.index("(", start))
    return LoopHead(start, closing, head[2], code.text[head.end() : closing].strip())


def step_of(variable: str, text: str) -> str | None:
    """By how much ``i += step`` or ``++i`` moves a variable; None where it is neither."""
    name = re.escape(variable)
    found = re.fullmatch(rf"\s*(?:{name}\s*\+=(.*)|\+\+\s*{name}|{name}\s*\+\+)\s*", text, re.DOTALL)
    return None if found is None else (found[1] or "1").strip()


def plain_name(kernel: str) -> str:
    return re.split(r"[<(]", kernel)[0].rpartition("::")[2]
