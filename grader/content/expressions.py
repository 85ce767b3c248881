"""An expression of whole numbers, as C++ writes it -> its value, where the names in it have values.

Types count: an int, an unsigned, a 64-bit number of either kind; a product that an int cannot hold has no value, and
one of unsigned numbers wraps. What is not understood has no value either: floats, pointers, members, lambdas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any


class Unknown(Exception):
    """An expression has no value that is known here."""


@dataclass(frozen=True)
class Type:
    bits: int = 32
    unsigned: bool = False


INT, UNSIGNED = Type(), Type(32, unsigned=True)
SIZEOF = "sizeof "  # what a name begins with that stands for the bytes of a type
BYTES = {  # of types
    **dict.fromkeys(("char", "int8_t", "uint8_t", "__nv_fp8_e4m3", "__nv_fp8_e5m2"), 1),
    **dict.fromkeys(("half", "__half", "nv_bfloat16", "__nv_bfloat16", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("float", "int", "unsigned", "int32_t", "uint32_t"), 4),
    **dict.fromkeys(("half2", "__half2", "nv_bfloat162", "__nv_bfloat162"), 4),
    **dict.fromkeys(("double", "int64_t", "uint64_t", "float2", "int2", "uint2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4", "double2"), 16),
}
TYPES = {
    **dict.fromkeys(("int", "int32_t", "signed", "auto", "bool"), INT),
    **dict.fromkeys(("unsigned", "uint32_t", "uint", "unsigned int"), UNSIGNED),
    **dict.fromkeys(("int64_t", "long", "long long", "ptrdiff_t", "long int", "long long int"), Type(64)),
    **dict.fromkeys(
        ("size_t", "uint64_t", "unsigned long", "unsigned long long", "std::size_t", "uintptr_t"), Type(64, True)
    ),
    "std::int64_t": Type(64),
}
TYPE_WORDS = frozenset(word for name in TYPES for word in name.split())


@dataclass(frozen=True)
class Number:
    value: int
    type: Type = INT


def number(value: int, kind: Type = INT) -> Number:
    """The value in a type: unsigned ones wrap. Raises Unknown where a signed one overflows."""
    if kind.unsigned:
        return Number(value % (1 << kind.bits), kind)
    if not -(1 << kind.bits - 1) <= value < 1 << kind.bits - 1:
        raise Unknown
    return Number(value, kind)


def converted(given: Number, kind: Type) -> Number:
    """As an assignment and a cast convert: to fewer bits, what is above them is lost."""
    value = given.value % (1 << kind.bits)
    return Number(value if kind.unsigned or value < 1 << kind.bits - 1 else value - (1 << kind.bits), kind)


Names = Callable[[str], Number]  # raises Unknown
Calls = Callable[[str, Sequence[Number]], Number]  # a function of the file; raises Unknown
Tree = tuple[Any, ...]

_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+[uUlL]*|\d[\d']*[uUlL]*(?![\w.])"
    r"|[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%(){}<>?:~!&|^,])"
)
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
           ("*", "/", "%"))  # fmt: skip


@cache
def parse(text: str) -> Tree:
    """Raises Unknown for what is not such an expression."""
    tokens: list[str] = []
    at, text = 0, text.strip()
    while at < len(text):
        if (match := _TOKEN.match(text, at)) is None:
            raise Unknown
        tokens.append(match[1])
        at = match.end()
    parser = _Parser(tokens)
    tree = parser.ternary()
    if parser.at < len(tokens):
        raise Unknown
    return tree


def names_in(tree: Tree) -> Iterator[str]:
    """The names that an expression's value is made of, in their order."""
    if tree[0] == "name":
        yield tree[1]
    for part in tree[1:]:
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, tuple):
                yield from names_in(each)


class _Parser:
    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self.at = tokens, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or wanted not in ("", token):
            raise Unknown
        self.at += 1
        return token

    def ternary(self) -> Tree:
        first = self.binary(0)
        if self.peek() != "?":
            return first
        self.take()
        second = self.ternary()
        self.take(":")
        return ("?:", first, second, self.ternary())

    def binary(self, level: int) -> Tree:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            operator = self.take()
            left = ("binary", operator, left, self.binary(level + 1))
        return left

    def unary(self) -> Tree:
        if self.peek() in ("-", "+", "~", "!"):
            return ("unary", self.take(), self.unary())
        return self.primary()

    def primary(self) -> Tree:
        token = self.take()
        if token == "(":
            if self.peek() in TYPE_WORDS and (kind := self.type(")")):
                return ("cast", kind, self.unary())
            inside = self.ternary()
            self.take(")")
            return inside
        if token[0].isdigit():
            return ("number", _literal(token))
        if token in ("true", "false"):
            return ("number", Number(int(token == "true")))
        if token == "static_cast":
            self.take("<")
            kind = self.type(">")
            self.take("(")
            return ("cast", kind, *self.arguments(1))
        if self.peek() == "(" and token in TYPES:
            self.take()
            return ("cast", TYPES[token], *self.arguments(1))
        if self.peek() == "{" and token in TYPES:
            self.take()
            inside = self.ternary()
            self.take("}")
            return ("cast", TYPES[token], inside)
        if self.peek() == "(":
            self.take()
            return ("call", token, self.arguments())
        if not re.match(r"[A-Za-z_]", token):
            raise Unknown
        return ("name", token)

    def type(self, end: str) -> Type:
        words = []
        while self.peek() != end:
            words.append(self.take())
        self.take(end)
        kind = TYPES.get(" ".join(word for word in words if word != "const"))
        if kind is None:
            raise Unknown
        return kind

    def arguments(self, count: int | None = None) -> list[Tree]:
        found = []
        while self.peek() != ")":
            found.append(self.ternary())
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        if count is not None and len(found) != count:
            raise Unknown
        return found


def _literal(token: str) -> Number:
    digits, suffix = re.fullmatch(r"(0[xX][0-9a-fA-F]+|[\d']+)([uUlL]*)", token).groups()  # type: ignore[union-attr]
    suffix = suffix.lower()
    octal = re.fullmatch(r"0[0-7]+", digits)
    value = int(digits, 8) if octal else int(digits.replace("'", ""), 0)
    bits = 64 if "l" in suffix or value >= 1 << 32 or ("u" not in suffix and value >= 1 << 31) else 32
    return number(value, Type(bits, "u" in suffix))


def evaluate(tree: Tree, names: Names, calls: Calls) -> Number:
    """Raises Unknown, also for a division by zero."""

    def value(part: Tree) -> Number:
        return evaluate(part, names, calls)

    what = tree[0]
    if what == "number":
        found: Number = tree[1]
        return found
    if what == "name":
        return names(tree[1])
    if what == "cast":
        return converted(value(tree[2]), tree[1])
    if what == "?:":
        return value(tree[2] if value(tree[1]).value else tree[3])
    if what == "call":
        if tree[1] == "sizeof" and len(tree[2]) == 1 and tree[2][0][0] == "name":
            return names(f"{SIZEOF}{tree[2][0][1]}")
        return _called(tree[1], [value(each) for each in tree[2]], calls)
    if what == "unary":
        return _unary(tree[1], value(tree[2]))
    if tree[1] in ("&&", "||"):
        first = value(tree[2]).value != 0
        return Number(int(first if first == (tree[1] == "||") else value(tree[3]).value != 0))
    return _binary(tree[1], value(tree[2]), value(tree[3]))


def _called(name: str, given: Sequence[Number], calls: Calls) -> Number:
    if name.removeprefix("std::") in ("min", "max") and len(given) == 2 and given[0].type == given[1].type:
        return (min if name.endswith("min") else max)(*given, key=lambda each: each.value)
    return calls(name, given)


def _unary(operator: str, given: Number) -> Number:
    if operator == "!":
        return Number(int(not given.value))
    return number({"-": -given.value, "+": given.value, "~": ~given.value}[operator], given.type)


def _binary(operator: str, left: Number, right: Number) -> Number:
    if operator in ("<<", ">>"):
        if not 0 <= right.value < left.type.bits:
            raise Unknown
        return number(left.value << right.value if operator == "<<" else left.value >> right.value, left.type)
    kind = _common(left.type, right.type)
    a, b = converted(left, kind).value, converted(right, kind).value
    if operator in _COMPARED:
        return Number(int(_COMPARED[operator](a, b)))
    if operator in ("/", "%"):
        if b == 0:
            raise Unknown
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return number(quotient if operator == "/" else a - quotient * b, kind)
    return number(_COMPUTED[operator](a, b), kind)


def _common(left: Type, right: Type) -> Type:
    """The usual arithmetic conversions."""
    bits = max(left.bits, right.bits)
    return Type(bits, any(each.unsigned and each.bits == bits for each in (left, right)))


_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip
_COMPUTED: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
}  # fmt: skip
