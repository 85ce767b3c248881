"""A wide access that is misaligned or out of bounds -> the launcher's test that let the kernel with it run.

Either the test is about sizes: then the kernel must be right where one of them is a multiple of the access's width. Or
the test is about pointers: then it must leave out the one that the access goes through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from grader.content.expressions import Unknown
from grader.content.functions import Code, Function, split
from grader.devices import Call, Finding
from grader.judge.frame import host_frame, plain_name
from grader.verdict import Clue, Kind

MULTIPLES = 2  # of the width, at which the kernel must be right
IsRight = Callable[[Mapping[str, int]], bool]  # with these sizes
_BYTES = re.compile(r"\b(\d+) bytes\b")
_NAME = r"[A-Za-z_]\w*"
_ADDRESS = re.compile(rf"(?:\bu?intptr_t\s*>?|\bsize_t\s*>)\s*\)?\s*\(?\s*({_NAME})")
# A condition, and a kernel for either value of it.
_TERNARY = r"(?<=[\s=])(?:return\s+)?((?![\s=])(?:[^;{{}}?:=!<>]|[=!<>]=|[<>!])+)\?\s*{one}\s*:\s*{one}"
_IF = r"\bif\s*\(((?:[^(){{}};]|\([^()]*\))*)\)"
_BRANCHES = _IF + r"\s*\{{?[^{{}};]*?{one}[^{{}};]*;\s*\}}?\s*else\s*\{{?[^{{}};]*?{one}"
_CAST = re.compile(rf"_cast<[^;()]*\*\s*>\s*\(\s*({_NAME})")


def of_choice(text: str, finding: Finding, call: Call, is_right: IsRight) -> list[Clue]:
    """At most one clue. ``call`` is the one with the finding."""
    if finding.kind not in (Kind.MISALIGNED, Kind.OUT_OF_BOUNDS) or finding.kernel is None:
        return []
    code = Code(text)
    found = [*_by_pointer(code, finding), *_by_sizes(code, finding, call, is_right)]
    return found[:1]


# -- sizes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """A condition in a function of the host's, and the kernels of which it takes one: if it is true, and if not."""

    host: Function
    place: int
    condition: str
    kernels: tuple[str, str]


def _by_sizes(code: Code, finding: Finding, call: Call, is_right: IsRight) -> Iterator[Clue]:
    """The one size that is not a multiple of the access's width, if the kernel is right where it is one."""
    own, width = _spaced(str(finding.kernel)), _width(finding, call)
    choices = [each for each in _choices(code, plain_name(own)) if own in each.kernels]
    if width < 2 or len(choices) != 1:
        return
    (choice,) = choices
    text, line = _test_of(code, choice)
    is_true = _value(code, choice, text, call)
    if is_true is None or choice.kernels[not is_true] != own:
        return
    sizes = {each.name: int(each.value) for each in call.scalars if isinstance(each.value, int)}
    found = []
    for name in sizes:
        first = -(-sizes[name] // width)
        multiples = [width * (first + more) for more in range(MULTIPLES)]
        others = [{**sizes, name: value} for value in multiples]
        same = all(_value(code, choice, text, _with(call, other)) == is_true for other in others)
        if sizes[name] % width and same and all(map(is_right, others)):
            found.append(f"{name} = {' and '.join(map(str, multiples))}")
    if len(found) == 1:
        words = f"the launcher chose {finding.kernel}, since `{text}` is {str(is_true).lower()} on line {line}"
        yield Clue("chosen", f"{words}; this kernel is right at {found[0]}", line)


def _width(finding: Finding, call: Call) -> int:
    """How many elements of its buffer the access has; 0 where that is not known."""
    size = next((each.itemsize for each in call.buffers if each.name == finding.buffer), 0)
    found = _BYTES.search(finding.message)
    return int(found[1]) // size if found and size else 0


def _with(call: Call, sizes: Mapping[str, int]) -> Call:
    return replace(call, scalars=tuple(replace(each, value=sizes.get(each.name, each.value)) for each in call.scalars))


def _value(code: Code, choice: _Choice, text: str, call: Call) -> bool | None:
    frame = host_frame(code, choice.host, choice.place, call, 0)
    try:
        return None if frame is None else bool(frame.value(text).value)
    except Unknown:
        return None


def _test_of(code: Code, choice: _Choice) -> tuple[str, int]:
    """The condition and its line; of a variable what it was last set to, if that happens in one place."""
    name, host = choice.condition, choice.host
    sets = [
        *re.finditer(
            rf"(?<![\w.&*])(?:bool\s+)?{re.escape(name)}\s*=(?!=)([^;]*);", code.text[host.begin : choice.place]
        )
    ]
    if re.fullmatch(_NAME, name) and sets and "?" not in sets[-1][1]:
        last = host.begin + sets[-1].start()
        between = code.text[last : choice.place]
        if (
            between.count("{") >= between.count("}")
            and code.text[host.begin : last].count("{") - code.text[host.begin : last].count("}") == 1
        ):
            return " ".join(sets[-1][1].split()), code.line_at(host.begin + sets[-1].start(1))
    return name, code.line_at(choice.place)


def _choices(code: Code, kernel: str) -> Iterator[_Choice]:
    """What chooses between two instances of the kernel, or of a function of the host's that launches it."""
    hosts = [each for each in code.functions if not each.is_kernel]
    through = [each for each in hosts if each.templates and re.search(rf"\b{kernel}\s*<", _body(code, each))]
    for host in hosts:
        body = _body(code, host)
        for name, function in [(kernel, None), *((each.name, each) for each in through)]:
            one = rf"\b{name}\s*<((?:[^;(){{}}?:<>]|<[^;(){{}}?:<>]*>)*)>"
            for pattern in (_TERNARY, _BRANCHES):
                for found in re.finditer(pattern.format(one=one), body):
                    kernels = [_instance(code, kernel, function, found[place]) for place in (2, 3)]
                    condition = " ".join(found[1].split())
                    if kernels[0] and kernels[1]:
                        yield _Choice(host, host.begin + found.start(1), condition, (kernels[0], kernels[1]))


def _body(code: Code, function: Function) -> str:
    return code.text[function.begin : function.end]


def _instance(code: Code, kernel: str, through: Function | None, templates: str) -> str | None:
    """The kernel's name with its template arguments; those of a function that launches it are put in their places."""
    if through is None:
        return _spaced(f"{kernel}<{templates}>")
    found = {match[1] for match in re.finditer(rf"\b{kernel}\s*<([^;(){{}}<>]*)>", _body(code, through))}
    if len(found) != 1:
        return None
    given = dict(zip(through.templates, split(templates), strict=False))
    return _spaced(f"{kernel}<{', '.join(given.get(each, each) for each in split(found.pop()))}>")


def _spaced(kernel: str) -> str:
    return re.sub(r"\s", "", kernel)


# -- pointers --------------------------------------------------------------------------------------------------------


def _by_pointer(code: Code, finding: Finding) -> Iterator[Clue]:
    """A function of the host that tests the alignment of pointers, and not of the one that the access goes through."""
    kernel = next(
        (each for each in code.functions if each.is_kernel and each.name == plain_name(str(finding.kernel))), None
    )
    if finding.kind != Kind.MISALIGNED or kernel is None or finding.line is None:
        return
    begin, end = code.line_span(finding.line)
    names = [each.name for each in kernel.parameters]
    through = {name for name in _CAST.findall(code.text[begin:end]) if name in names}
    hosts = [
        each for each in code.functions if not each.is_kernel and re.search(rf"\b{kernel.name}\b", _body(code, each))
    ]
    if len(through) != 1 or len(hosts) != 1:
        return
    host, body = hosts[0], _body(code, hosts[0])
    launches = [*re.finditer(r"<<<.*?>>>\s*\(", body, re.DOTALL)]
    tested = [*_ADDRESS.finditer(body)]
    if len(launches) != 1 or not tested:
        return
    opening = host.begin + launches[0].end() - 1
    arguments, place = code.arguments(opening), names.index(through.pop())
    if place >= len(arguments) or arguments[place] not in [each.name for each in host.parameters]:
        return
    if not _is_passed_on_alone(code, host, arguments[place], opening):
        return
    line = code.line_at(host.begin + tested[0].start(1))
    others = ", ".join(dict.fromkeys(f"`{each[1]}`" for each in tested))
    yield Clue(
        "chosen", f"the alignment that line {line} tests is that of {others}, and not of `{arguments[place]}`", line
    )


def _is_passed_on_alone(code: Code, host: Function, name: str, launch: int) -> bool:
    """Whether a function uses a parameter only as an argument of the launch and of calls of itself."""
    calls = [
        host.begin + each.end() - 1
        for each in re.finditer(rf"\b{host.name}\s*(?:<[^;(){{}}]*>)?\s*\(", _body(code, host))
    ]
    text = code.text
    for opening in (launch, *calls):
        closing = code.closing(opening)
        text = text[: opening + 1] + " " * (closing - opening - 1) + text[closing:]
    return re.search(rf"\b{re.escape(name)}\b", text[host.begin : host.end]) is None
