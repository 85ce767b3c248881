"""What a change of compiled code says of registers and parameters -> the same with the names that the file has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from grader.content.functions import Code, constants_of

HEAD = 12  # lines of a function before its body
_PARAMETER = re.compile(r"\bparameter (\d+) of the (?:kernel|function)\b")
_PARAMETERS = re.compile(r"\bthe (?:kernel|function)'s parameters (\d+) and (\d+)\b")
_RESULT = re.compile(r"\bwhat line (\d+) (?:computes|reads)\b")
_BEFORE = re.compile(r"\bbefore line (\d+)\b")
_CONSTANT = re.compile(r"\bis (\d+) in(?= place of \d)")
_REPLACED = re.compile(r"\bthe constant is -?\d+ in place of -?(\d+)(?![.\d])")
_ROUNDS = re.compile(r"\bchanges once in (\d+) rounds")
_PARITY = re.compile(r"(?<![*/%] )(?<![\w.\])>])\b([A-Za-z_]\w*) % 2\b")
_EDGE = re.compile(r"\bthe comparison(?: with (-?\d+))? gives the opposite where both sides are equal")
_TURNED = re.compile(r"\bthe comparison(?: with (-?\d+))? is the other way round")
_ORDER = re.compile(r"(?<![<>=!\-])(<=|>=|<|>)(?![<>=])")
_TEMPLATE = re.compile(r"\b(?:\w+_cast|template|sizeof|\w+)<[\w:*&,\s]*>")
_ASSIGNED = re.compile(r"(?<![\w.\]>])([A-Za-z_]\w*)\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)")
_POINTER = re.compile(r"^\s*(?:const )?\w+\* ?(?:const )?\w+ =|^\s*\*|[(=,] *\*|\*(?=reinterpret_cast)")
_GOES_ON = tuple(",(+-*/%&|=?<")
_AROUND = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


class Names:
    """The names of a file, and its lines."""

    def __init__(self, text: str) -> None:
        self.code = Code(text)
        self.every_constant = constants_of(text)
        self.constants = {name: value for name, value in self.every_constant.items() if value > 2}

    def named(self, words: str, line: int) -> str:
        """What a change on a line says."""
        words = _PARAMETERS.sub(lambda found: self._parameters(found, line), words)
        words = _PARAMETER.sub(lambda found: self._parameter(found, line), words)
        words = _RESULT.sub(lambda found: self._result(found, line), words)
        words = _BEFORE.sub(lambda found: f"before line {self.statement(int(found[1]))}", words)
        words = _CONSTANT.sub(self._constant, words)
        words = _ROUNDS.sub(lambda found: self._parity(found, line), words)
        words = words.replace("a number that it uses is ", "it uses ")
        if not re.search(
            r"\*|<<", _POINTER.sub("", _TEMPLATE.sub("reinterpret_cast", self._line(line)))
        ):  # the size of an element may be the factor
            words = words.replace("its product with a power of two is", "an offset that it computes is")
        words = _EDGE.sub(lambda found: self._comparison(line, found, _OTHER, "the comparison is off by one"), words)
        return _TURNED.sub(lambda found: self._comparison(line, found, _AROUND, "the comparison is another"), words)

    def has_number(self, words: str, line: int) -> bool:
        """Whether the line has the number that a change replaces, if it replaces one. Else nvcc computed that."""
        found = _REPLACED.search(words)
        if found is None or int(found[1]) <= 1:
            return True
        return self._stands(found[1], line)

    def _stands(self, number: str, line: int) -> bool:
        """Whether a whole number, or a constant of that value, stands on a line."""
        named = [name for name, value in self.every_constant.items() if value == int(number)]
        any_of_them = "|".join([number, *named])
        return re.search(rf"(?<![\w.])(?:{any_of_them})(?![\w.])", _TEMPLATE.sub("", self._line(line))) is not None

    def statement(self, line: int) -> int:
        """The first line of the statement that a line goes on with."""
        while line > 1 and self._line(line - 1).rstrip().endswith(_GOES_ON):
            line -= 1
        return line

    def _line(self, line: int) -> str:
        begin, end = self.code.line_span(line)
        return self.code.text[begin:end]

    def _name_of(self, line: int, nth: int) -> str:
        function = self.code.function_at(line)
        if function is None:  # the first line of a head of several
            start, _ = self.code.line_span(line)
            later = [each for each in self.code.functions if start <= each.begin]
            function = later[0] if later and self.code.line_at(later[0].begin) - line <= HEAD else None
        return function.parameters[nth - 1].name if function and 0 < nth <= len(function.parameters) else ""

    def _parameter(self, found: re.Match[str], line: int) -> str:
        name = self._name_of(line, int(found[1]))
        return f"`{name}`" if name else found[0]

    def _parameters(self, found: re.Match[str], line: int) -> str:
        names = [self._name_of(line, int(each)) for each in found.groups()]
        return f"the parameters `{names[0]}` and `{names[1]}`" if all(names) else found[0]

    def _result(self, found: re.Match[str], line: int) -> str:
        """The variable that the other line sets, if it sets one alone; what a function is given, as its parameter."""
        other = int(found[1])
        names, function = _set_by(self._line(other)), self.code.function_at(line)
        if len(names) != 1 and function is not None and function != self.code.function_at(other):
            given = [each.name for each in function.parameters]
            return f"`{given[0]}`" if len(given) == 1 and not function.is_kernel else found[0]
        if len(names) != 1:
            return found[0]
        return f"`{names.pop()}`" if other == line else f"`{names.pop()}` (line {other})"

    def _constant(self, found: re.Match[str]) -> str:
        names = [name for name, value in self.constants.items() if value == int(found[1])]
        return f"is {found[1]} (`{names[0]}`) in" if len(names) == 1 else found[0]

    def _parity(self, found: re.Match[str], line: int) -> str:
        """What the line's remainder becomes, if it has one alone."""
        counters = _PARITY.findall(self._line(line))
        if len(counters) != 1 or self._line(line).count("%") != 1:
            return found[0]
        names = [name for name, value in self.every_constant.items() if value == int(found[1])]
        by = names[0] if len(names) == 1 else found[1]
        return f"{found[0]}: `{counters[0]} / {by} % 2`, not `{counters[0]} % 2`"

    def _comparison(self, line: int, said: re.Match[str], others: Mapping[str, str], otherwise: str) -> str:
        """The comparison of a line that has one, as the file must write it. With a number that the line lacks nvcc
        compares in another way than the file."""
        text = _TEMPLATE.sub("", self._line(line))
        if said[1] is not None and not self._stands(said[1], line):
            return otherwise
        found = _ORDER.findall(text)
        return f"`{found[0]}` is `{others[found[0]]}`" if len(found) == 1 else said[0].replace(f" with {said[1]}", "")


def _set_by(text: str) -> set[str]:
    return set(_ASSIGNED.findall(text))
