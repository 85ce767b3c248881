"""A .cu file -> its functions, and in each the definitions of whole numbers that are visible at a place.

It reads the text, not the language: functions outside of structs, and definitions of the form ``const int row = ...;``.
What it does not recognise is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from grader.content.expressions import TYPE_WORDS, TYPES, Number, Type, Unknown, converted, evaluate, parse

_NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_OPEN, _CLOSE = "([{", ")]}"
_BRACKET = re.compile(r"[()\[\]{}]")
_BRACE = re.compile(r"[{}]")
_WORD = "|".join(sorted((re.escape(word) for word in TYPE_WORDS), key=len, reverse=True))
_DEFINITION = re.compile(
    rf"(?:(?<=[;{{}}()])|\A)\s*((?:(?:const|constexpr|static|{_WORD})\s+)+)([A-Za-z_]\w*)\s*=(?!=)"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
CONSTANT = re.compile(r"\bconstexpr\s+(?:static\s+)?(?:unsigned\s+)?[\w:]+\s+([A-Za-z_]\w*)\s*=\s*([^;]*);")
_CHECK = re.compile(r"\bstatic_assert\s*\(([^;]*)\)\s*;")
_OF_ANY = {
    "MAX",
    "MIN",
    "MOST",
    "LEAST",
    "SIZE",
    "NUM",
    "PER",
    "OF",
    "COUNT",
    "",
}  # words that say little
_QUALIFIERS = ("const", "constexpr", "static")


@dataclass(frozen=True)
class Parameter:
    """``type`` is None for what is not a whole number; ``extents`` is empty."""

    name: str
    type: Type | None


@dataclass(frozen=True)
class Definition:
    """``row = blockIdx.x * 4 + threadIdx.y``. ``at`` is where its name is, ``end`` where its block ends."""

    name: str
    text: str
    type: Type
    is_auto: bool
    is_constant: bool
    at: int
    end: int


@dataclass(frozen=True)
class Function:
    name: str
    templates: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    head: str  # all that stands before its body
    begin: int  # of its body, its braces included
    end: int
    is_kernel: bool


class Code:
    """The text of a file without comments, strings and directives; every place in it is where it was."""

    def __init__(self, text: str) -> None:
        self.text = _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        self._known: dict[tuple[int, int], list[Definition]] = {}  # of a function, by its place
        self._assigned: dict[tuple[str, int, int], bool] = {}

    def line_at(self, place: int) -> int:
        """From 1."""
        return self.text.count("\n", 0, place) + 1

    def line_span(self, number: int) -> tuple[int, int]:
        """Where a line, from 1, begins and ends."""
        starts = self._line_starts
        if not 0 < number <= len(starts):
            return 0, 0
        return starts[number - 1], starts[number] - 1 if number < len(starts) else len(self.text)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def closing(self, opening: int) -> int:
        """Where the bracket that opens there is closed; the text's end if it is not."""
        depth = 0
        for bracket in _BRACKET.finditer(self.text, opening):
            depth += 1 if bracket[0] in _OPEN else -1
            if depth == 0:
                return bracket.start()
        return len(self.text)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(self._functions())

    def _functions(self) -> Iterator[Function]:
        since = place = 0
        while (match := re.compile(r"[;{}]").search(self.text, place)) is not None:
            place = match.end()
            if match[0] == "{":
                head = self.text[since : match.start()]
                if re.search(r"\bnamespace\b|^\s*extern\s*$", head) is None:
                    place = self.closing(match.start()) + 1
                    if (found := _function(head, match.start(), place)) is not None:
                        yield found
            since = place

    def function_at(self, line: int) -> Function | None:
        start, end = self.line_span(line)
        return next((each for each in self.functions if each.begin <= end and start < each.end), None)

    @cached_property
    def constants(self) -> tuple[Definition, ...]:
        """Those of the file, outside of all functions."""
        outside, last = [], 0
        for each in self.functions:
            outside.append(self.text[last : each.begin] + " " * (each.end - each.begin))
            last = each.end
        return tuple(self._definitions("".join([*outside, self.text[last:]]), 0, len(self.text)))

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """Those of the whole file, in its order."""
        return tuple(self._definitions(self.text, 0, len(self.text)))

    def visible(self, function: Function, place: int) -> dict[str, Definition]:
        """The definitions in the function before a place, by name, as far as their block is still open."""
        begin, end = own = function.begin, function.end
        if own not in self._known:
            self._known[own] = [*self._definitions(self.text[begin:end], begin, end)]
        return {each.name: each for each in self._known[own] if each.at < place < each.end}

    def _definitions(self, text: str, offset: int, end: int) -> Iterator[Definition]:
        for match in _DEFINITION.finditer(text):
            words = match[1].split()
            kind = " ".join(word for word in words if word not in _QUALIFIERS)
            if kind not in TYPES:
                continue
            name, start = match[2], match.end()
            while True:
                stop = _end_of(text, start)
                at = offset + start - 1
                ends = self.block_end(at, end)
                yield Definition(
                    name, " ".join(text[start:stop].split()), TYPES[kind], kind == "auto", "const" in match[1], at, ends
                )
                more = re.compile(r",\s*([A-Za-z_]\w*)\s*=(?!=)").match(text, stop)
                if more is None:
                    break
                name, start = more[1], more.end()

    def block_end(self, place: int, limit: int) -> int:
        """Where the block that a place is in ends."""
        depth = 0
        for brace in _BRACE.finditer(self.text, place, limit):
            depth += 1 if brace[0] == "{" else -1
            if depth < 0:
                return brace.start()
        return limit

    def statement_end(self, begin: int) -> int:
        """Where the statement ends that begins there: its semicolon, or the brace that closes it."""
        found = re.compile(r"\S").search(self.text, begin)
        if found is None:
            return len(self.text)
        if found[0] == "{":
            return self.closing(found.start())
        place = found.start()
        while (sign := re.compile(r"[;(\[{]").search(self.text, place)) is not None:
            if sign[0] == ";":
                return sign.start()
            place = self.closing(sign.start()) + 1
            if sign[0] == "{":
                return place - 1
        return len(self.text)

    def is_assigned(self, name: str, begin: int, end: int) -> bool:
        """Whether anything between two places may change the variable."""
        asked = (name, begin, end)
        if asked not in self._assigned:
            self._assigned[asked] = self._changes(name, begin, end)
        return self._assigned[asked]

    def _changes(self, name: str, begin: int, end: int) -> bool:
        name = re.escape(name)
        changes = (
            rf"(?<![\w.])(?<!->){name}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--)\s*{name}\b|(?<![\w.]){name}\s*(?:\+\+|--)"
            rf"|[(,=]\s*&\s*{name}\b(?!\s*\[)"
        )
        return re.search(changes, self.text[begin:end]) is not None

    def arguments(self, opening: int) -> list[str]:
        """What the parentheses that open there hold, at their commas."""
        return split(self.text[opening + 1 : self.closing(opening)])


def without_comments(text: str) -> str:
    """The same without comments; every place in it is where it was."""
    return _NOT_CODE.sub(
        lambda found: re.sub(r"[^\n]", " ", found[0]) if found[0].startswith(("//", "/*")) else found[0], text
    )


@dataclass(frozen=True)
class Constant:
    """``constexpr int STEP = 256;``, with its line."""

    name: str
    value: int
    line: int


def constants_of(text: str) -> dict[str, int]:
    """The whole numbers that a file names outside of functions, as far as they can be worked out."""
    return {each.name: each.value for each in _constants(Code(text), everywhere=False)}


def all_constants_of(text: str) -> list[Constant]:
    """Those in functions, too, as far as no other has the same name."""
    found = list(_constants(Code(text), everywhere=True))
    names = [each.name for each in found]
    return [each for each in found if names.count(each.name) == 1]


def _constants(code: Code, *, everywhere: bool) -> Iterator[Constant]:
    known: dict[str, Number] = {}

    def named(name: str) -> Number:
        if name not in known:
            raise Unknown
        return known[name]

    def called(name: str, given: Sequence[Number]) -> Number:
        raise Unknown

    for each in code.definitions if everywhere else code.constants:
        try:
            known[each.name] = converted(evaluate(parse(each.text), named, called), each.type)
        except Unknown:
            continue
        if each.is_constant or not everywhere:
            yield Constant(each.name, known[each.name].value, code.line_at(each.at))


def relatives_of(text: str) -> dict[str, frozenset[str]]:
    """The constants of a file -> those that may be meant in the place of each: they share a word of the name, or one
    definition or static_assert has both."""
    code = without_comments(text)
    groups = [{found[1], *_NAME.findall(found[2])} for found in CONSTANT.finditer(code)]
    names = {found[1] for found in CONSTANT.finditer(code)}
    groups += [{*_NAME.findall(found[1])} for found in _CHECK.finditer(code)]
    by_word: dict[str, set[str]] = {}
    for name in names:
        for word in {each.rstrip("S") for each in name.upper().split("_")} - _OF_ANY:
            by_word.setdefault(word, set()).add(name)
    groups += by_word.values()
    return {name: frozenset().union(*(each for each in groups if name in each)) & names - {name} for name in names}


def split(text: str) -> list[str]:
    """At the commas that are in no bracket; those of templates are not known for brackets."""
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if sign == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _end_of(text: str, start: int) -> int:
    """Where the value that begins there ends."""
    depth = 0
    for place in range(start, len(text)):
        sign = text[place]
        if sign in _OPEN:
            depth += 1
        elif sign in _CLOSE:
            depth -= 1
            if depth < 0:
                return place
        elif depth == 0 and sign in ";,":
            return place
    return len(text)


def _function(before: str, begin: int, end: int) -> Function | None:
    head = re.sub(r"\b(?:const|noexcept|override)\Z", "", before.rstrip()).rstrip()
    if not head.endswith(")") or "=" in re.sub(r"template\s*<.*?>\s", "", head, flags=re.DOTALL).split("(")[0]:
        return None
    depth, opening = 0, len(head) - 1
    while opening >= 0:
        depth += (head[opening] == ")") - (head[opening] == "(")
        if depth == 0:
            break
        opening -= 1
    name = re.search(r"([A-Za-z_]\w*)\s*\Z", head[:opening])
    if name is None:
        return None
    template = re.match(r"\s*template\s*<(.*?)>\s*(?=[\w_])", head, re.DOTALL)
    templates = tuple(_last_word(part.partition("=")[0]) for part in split(template[1])) if template else ()
    parameters = tuple(_parameter(part) for part in split(head[opening + 1 : -1]))
    return Function(name[1], templates, parameters, before, begin, end, "__global__" in head)


def _last_word(text: str) -> str:
    found: Sequence[str] = re.findall(r"[A-Za-z_]\w*", text)
    return found[-1] if found else ""


def _parameter(text: str) -> Parameter:
    if (pointed := re.search(r"\(\s*[*&]\s*(?:\w+\s+)*(\w+)\s*\)", text)) is not None:
        return Parameter(pointed[1], None)
    text = text.partition("=")[0]
    name = _last_word(re.sub(r"\[.*", "", text))
    words = text[: text.rfind(name)].split() if name else []
    kind = TYPES.get(" ".join(word for word in words if word != "const"))
    return Parameter(name, kind if "[" not in text else None)
