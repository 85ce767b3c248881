"""A .cu file -> the statements and expressions of its device functions, with their places in the text and the variables
that are visible there.

It reads what kernels are usually written in, not the language. A statement that it does not recognise is left out;
nothing is said of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from grader.content.functions import Code, Function, split

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#(?:[^\n]*\\\n)*[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)')
    |(?P<number>(?:0[xX][\da-fA-F'.]+(?:[pP][-+]?\d+)?|(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[uUlLfF]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>->|\+\+|--|<<=|>>=|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|::|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_RANKS = (  # of binary operators: those of the last bind most tightly
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_BINARY = {sign: rank for rank, signs in enumerate(_RANKS, 2) for sign in signs}
# The head of a loop whose variable steps, and what begins behind it; the groups: the variable, and by how much.
STEPS = re.compile(r"\bfor\s*\([^;]*?\b(\w+)\s*=[^;]*;[^;]*;\s*(?:\1\s*\+=\s*([^;{}]+?)|\+\+\1|\1\+\+)\)\s*[^)]")
ASSIGNING = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
_UNARY = ("+", "-", "!", "~", "*", "&", "++", "--")
_BUILTIN = {"unsigned", "signed", "int", "long", "short", "char", "float", "double", "bool", "auto"}
_QUALIFIERS = {"const", "constexpr", "static", "extern", "volatile", "inline", "__shared__", "__device__", "register"}
_NO_DECLARATION = {
    "return",
    "if",
    "for",
    "while",
    "do",
    "switch",
    "case",
    "default",
    "break",
    "continue",
    "else",
    "asm",
}
_SKIPPED = {"using", "static_assert", "typedef", "struct", "enum", "template", "goto", "namespace", "union", "class"}
WHOLE = {"int", "unsigned", "unsigned int", "int64_t", "uint32_t", "uint64_t", "int32_t", "size_t", "long long", "long"}
WHOLE |= {"unsigned long long", "short", "int16_t", "uint16_t", "uint8_t", "int8_t", "unsigned char"}
_TEMPLATE = re.compile(r"\btemplate\s*<[^{};()]*>\s*(?:[\w:*&<>]+\s+)*?(\w+)\s*(?=[=({;])")


class _Unread(Exception):
    """The text is not of a form that is known here."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    begin: int
    end: int


@dataclass(frozen=True)
class Variable:
    """``dims`` has the extents of an array as they are written; ``is_fixed``: known to the compiler."""

    name: str
    type: str
    dims: str = ""
    is_const: bool = False
    is_fixed: bool = False
    at: int = 0


@dataclass(frozen=True)
class Scope:
    """What is visible: one variable, and all that were before it."""

    variable: Variable
    before: Scope | None

    def __iter__(self) -> Iterator[Variable]:
        """The latest first; of two of one name the latest alone."""
        seen: set[str] = set()
        one: Scope | None = self
        while one is not None:
            if one.variable.name not in seen:
                seen.add(one.variable.name)
                yield one.variable
            one = one.before


@dataclass
class Node:
    """An expression: ``name``, ``number``, ``string``, ``unary``, ``binary``, ``choice``, ``call``, ``list`` (braces),
    ``index``, ``member``, ``group`` (parentheses), ``after`` (``x++``), ``closure`` or ``opaque``. ``sign`` is its
    operator or name."""

    kind: str
    begin: int
    end: int
    parts: list[Node] = field(default_factory=list)
    sign: str = ""
    scope: Scope | None = None


@dataclass
class Statement:
    """``simple`` (an expression), ``declaration``, ``return``, ``if``, ``loop``, ``block`` or ``other``.

    ``nodes`` are its own expressions, ``parts`` the statements in it.
    """

    kind: str
    begin: int
    end: int
    nodes: list[Node] = field(default_factory=list)
    parts: list[Statement] = field(default_factory=list)
    declared: tuple[Variable, ...] = ()
    scope: Scope | None = None


@dataclass(frozen=True)
class Tree:
    """A device function."""

    function: Function
    body: Statement
    parameters: tuple[Variable, ...]


def trees_of(text: str, *, others: bool = False) -> list[Tree]:
    """Those of the functions that run on the device alone; or of all ``others``."""
    code = Code(text)
    templates = frozenset(_TEMPLATE.findall(code.text))
    outer: Scope | None = None
    for each in code.constants:
        outer = Scope(Variable(each.name, "int", is_const=True, is_fixed=True, at=each.at), outer)
    found = []
    for function in code.functions:
        is_device = re.search(r"__global__|__device__", function.head) is not None
        if (is_device and not re.search(r"__host__|constexpr", function.head)) != others:
            parameters = tuple(_parameters(function))
            scope = outer
            for parameter in parameters:
                scope = Scope(parameter, scope)
            reader = _Reader(_tokens(text, function.begin, function.end), scope, templates)
            found.append(Tree(function, reader.statement(), parameters))
    return found


def _tokens(text: str, begin: int, end: int) -> list[Token]:
    found = []
    for match in _TOKEN.finditer(text, begin, end):
        if match.lastgroup != "skip":
            found.append(Token(str(match.lastgroup), match[0], match.start(), match.end()))
    return found


def _parameters(function: Function) -> Iterator[Variable]:
    for name in function.templates:
        if re.search(rf"\b(?:int|unsigned|bool|size_t)\s+{name}\b", function.head):
            yield Variable(name, "int", is_const=True, is_fixed=True)
    code = Code(function.head + " ")
    opening = code.text.rfind(f"{function.name}(") + len(function.name)
    for part in split(code.text[opening + 1 : code.closing(opening)]):
        words = re.sub(r"\b(?:__restrict__|__grid_constant__)\b", " ", part)
        is_array = re.search(r"\(\s*([&*])\s*(?:const\s+)?(\w+)\s*\)\s*((?:\[[^\]]*\])+)", words)
        name = is_array[2] if is_array else (re.findall(r"[A-Za-z_]\w*", words.partition("=")[0]) or [""])[-1]
        before = words.split("(")[0] if is_array else words[: words.rfind(name)]
        pointed = before.rstrip().endswith("*") or "* const" in before
        kind = " ".join(re.sub(r"\bconst\b|&", " ", before).split())
        is_const = bool(re.search(r"\bconst\b", before)) and not pointed
        dims = ("[]" if is_array[1] == "*" else "") + is_array[3] if is_array else ""
        yield Variable(name, ("const " if pointed and "const" in before else "") + kind, dims, is_const)


class _Reader:
    """Reads statements from tokens, one after the other."""

    def __init__(self, tokens: Sequence[Token], scope: Scope | None, templates: Collection[str]) -> None:
        self.tokens, self.at, self.scope, self.templates = tokens, 0, scope, templates

    # -- tokens -------------------------------------------------------------------------------------------------------

    def now(self, ahead: int = 0) -> str:
        """The text of a token; empty behind the last."""
        place = self.at + ahead
        return self.tokens[place].text if place < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.tokens[place].kind if place < len(self.tokens) else ""

    def take(self, text: str = "") -> Token:
        if self.at >= len(self.tokens) or (text and self.tokens[self.at].text != text):
            raise _Unread
        self.at += 1
        return self.tokens[self.at - 1]

    @property
    def begin(self) -> int:
        if self.at >= len(self.tokens):
            raise _Unread
        return self.tokens[self.at].begin

    @property
    def end(self) -> int:
        """Where the last token that was taken ends."""
        return self.tokens[self.at - 1].end

    def closing(self, place: int) -> int:
        """The token that closes the bracket at ``place``."""
        depth = 0
        for at in range(place, len(self.tokens)):
            if self.tokens[at].kind == "sign":
                depth += (self.tokens[at].text in "([{") - (self.tokens[at].text in ")]}")
                if depth == 0:
                    return at
        raise _Unread

    def behind_template(self, place: int) -> int:
        """The token behind the template's arguments that begin there; ``place`` itself if none do."""
        if place >= len(self.tokens) or self.tokens[place].text != "<":
            return place
        depth, at = 0, place
        while at < len(self.tokens):
            text = self.tokens[at].text
            if text == "(":
                at = self.closing(at)
            elif text in (";", "{", "}", "&&", "||", ")", "?", "=") or self.tokens[at].kind == "string":
                return place
            depth += (text == "<") - (text == ">")
            at += 1
            if depth == 0:
                return at
        return place

    # -- statements ---------------------------------------------------------------------------------------------------

    def statement(self) -> Statement:
        start, begin, scope = self.at, self.begin, self.scope
        try:
            found = self._statement()
        except _Unread:
            self.at = start
            self._skip()
            found = Statement("other", begin, self.end)
        found.scope = scope
        return found

    def _skip(self) -> None:
        """Past a statement that is not known: up to its ``;``, or the block that it ends with."""
        while self.at < len(self.tokens):
            text = self.now()
            if text in ("(", "[", "{"):
                self.at = self.closing(self.at) + 1
                if text == "{" and self.now() not in (";", ",", ")"):
                    return
            else:
                self.at += 1
                if text == ";":
                    return

    def _statement(self) -> Statement:
        begin, word = self.begin, self.now()
        if word == "{":
            return self._block()
        if word in ("if", "while", "switch"):
            return self._conditional(word)
        if word == "for":
            return self._for()
        if word == "do":
            self.take()
            body = self.statement()
            self.take("while")
            self.take("(")
            node = self.expression()
            self.take(")")
            self.take(";")
            return Statement("loop", begin, self.end, [node], [body])
        if word in ("case", "default"):
            while self.take().text != ":":
                pass
            return Statement("other", begin, self.end)
        if word == "asm":
            return self._asm()
        if word in _SKIPPED or word in (";", "break", "continue"):
            raise _Unread
        if word == "return":
            self.take()
            nodes = [] if self.now() == ";" else [self.expression()]
            self.take(";")
            return Statement("return", begin, self.end, nodes)
        if (declared := self._declaration()) is not None:
            self.take(";")
            declared.end = self.end
            return declared
        nodes = self._list(";")
        return Statement("simple", begin, self.end, nodes)

    def _block(self) -> Statement:
        begin, scope, parts = self.take("{").begin, self.scope, []
        while self.now() != "}":
            parts.append(self.statement())
        self.take("}")
        self.scope = scope
        return Statement("block", begin, self.end, [], parts)

    def _conditional(self, word: str) -> Statement:
        begin = self.take().begin
        is_fixed = self.now() == "constexpr"
        if is_fixed:
            self.take()
        self.take("(")
        node = self.expression()
        self.take(")")
        parts = [self.statement()]
        if word == "if" and self.now() == "else":
            self.take()
            parts.append(self.statement())
        kind = {"if": "if", "while": "loop"}.get(word, "other")
        return Statement(kind, begin, self.end, [] if is_fixed or word == "switch" else [node], parts)

    def _for(self) -> Statement:
        begin, scope, nodes = self.take("for").begin, self.scope, list[Node]()
        self.take("(")
        declared = self._declaration()
        if declared is not None and self.now() == ":":
            self.take()
            self.expression()
            self.take(")")
        else:
            nodes += declared.nodes if declared is not None else []
            nodes += [] if declared is not None else self._list(";")
            if declared is not None:
                self.take(";")
            nodes += [] if self.now() == ";" else [self.expression()]
            self.take(";")
            nodes += self._list(")")
        body = self.statement()
        self.scope = scope
        return Statement("loop", begin, self.end, nodes, [body], declared.declared if declared is not None else ())

    def _asm(self) -> Statement:
        """Its operands, of which each stands after the string of its constraint."""
        begin = self.take().begin
        if self.now() == "volatile":
            self.take()
        last, nodes, inputs, colons = self.closing(self.at), list[Node](), list[Node](), 0
        self.take("(")
        while self.at < last:
            text = self.now()
            colons += text.count(":") if self.kind() == "sign" else 0
            if text == "(" and self.kind(-1) == "string":
                is_fixed = "n" in self.now(-1)
                self.take()
                node = self.expression()
                self.take(")")
                if colons >= 2 and not is_fixed:
                    inputs.append(node)
            else:
                self.at += 1
        self.take(")")
        self.take(";")
        if inputs:
            nodes = [Node("list", inputs[0].begin, inputs[-1].end, inputs, "asm")]
        return Statement("asm", begin, self.end, nodes)

    def _type(self) -> tuple[str, bool, bool] | None:
        """A declaration's type, whether it is constant, and known to the compiler; the reader is behind it."""
        words: list[str] = []
        is_const = is_fixed = False
        while True:
            text = self.now()
            if text in _QUALIFIERS:
                is_const |= text in ("const", "constexpr")
                is_fixed |= text == "constexpr"
                self.at += 1
            elif text in ("alignas", "__align__") and self.now(1) == "(":
                self.at = self.closing(self.at + 1) + 1
            elif text in _BUILTIN:
                words.append(text)
                self.at += 1
            elif self.kind() == "name" and not words and text not in _NO_DECLARATION:
                first = self.at
                self.at = self.behind_template(self.at + 1)
                while self.now() == "::" and self.kind(1) == "name":
                    self.at = self.behind_template(self.at + 2)
                words.append("".join(token.text for token in self.tokens[first : self.at]))
            else:
                break
        return (" ".join(words), is_const, is_fixed) if words else None

    def _declaration(self) -> Statement | None:
        """None for any other text; the reader is then where it was. The ``;`` or ``:`` behind it is left."""
        start, begin = self.at, self.begin
        known = self._type()
        if known is None:
            self.at = start
            return None
        kind, is_const, is_fixed = known
        nodes, declared = list[Node](), list[Variable]()
        while True:
            pointers = ""
            while self.now() in ("*", "&", "const", "__restrict__"):
                pointers += self.take().text
            if self.kind() != "name" or self.now(1) not in ("=", ";", "[", "(", "{", ",", ":"):
                if declared:
                    raise _Unread
                self.at = start
                return None
            declared.append(self._declarator(kind, pointers, nodes, is_const=is_const, is_fixed=is_fixed))
            if self.now() != ",":
                break
            self.take()
        return Statement("declaration", begin, self.end, [] if is_fixed else nodes, [], tuple(declared))

    def _declarator(self, kind: str, pointers: str, nodes: list[Node], *, is_const: bool, is_fixed: bool) -> Variable:
        name, dims = self.take(), ""
        while self.now() == "[":
            last = self.closing(self.at)
            dims += "".join(token.text for token in self.tokens[self.at : last + 1])
            self.at = last + 1
        value: Node | None = None
        if self.now() == "=":
            self.take()
            value = self.assignment()
        elif self.now() == "{":
            value = self.primary()
        elif self.now() == "(":
            self.take()
            nodes += self._list(")")
        if value is not None:
            nodes.append(value)
        if kind == "auto" and value is not None and value.kind == "call" and value.sign.startswith("static_cast<"):
            kind = value.sign[len("static_cast<") : -1]
        constant_pointer = "*" in pointers
        full = ("const " if is_const and constant_pointer else "") + kind + ("*" if constant_pointer else "")
        const = (is_const and not constant_pointer) or pointers.endswith("const")
        found = Variable(name.text, full, dims, const, is_fixed, name.begin)
        self.scope = Scope(found, self.scope)
        return found

    def _list(self, last: str) -> list[Node]:
        """Expressions up to a sign, which is taken, too."""
        found = []
        while self.now() != last:
            found.append(self.assignment())
            if self.now() != ",":
                break
            self.take()
        self.take(last)
        return found

    # -- expressions --------------------------------------------------------------------------------------------------

    def expression(self) -> Node:
        """One that may have commas; of these the last alone."""
        node = self.assignment()
        while self.now() == ",":
            self.take()
            node = self.assignment()
        return node

    def assignment(self) -> Node:
        left = self._choice()
        if self.now() in ASSIGNING:
            sign = self.take().text
            right = self.assignment()
            return Node("binary", left.begin, right.end, [left, right], sign, self.scope)
        return left

    def _choice(self) -> Node:
        condition = self._binary(2)
        if self.now() != "?":
            return condition
        self.take()
        first = self.assignment()
        self.take(":")
        second = self.assignment()
        return Node("choice", condition.begin, second.end, [condition, first, second], "?", self.scope)

    def _sign(self) -> str:
        """The binary operator that comes next. ``>>`` is read as two signs, since it may close templates."""
        text = self.now()
        if text == ">" and self.now(1) == ">" and self.tokens[self.at].end == self.tokens[self.at + 1].begin:
            return ">>"
        return text if self.kind() == "sign" else ""

    def _binary(self, least: int) -> Node:
        left = self._unary()
        while _BINARY.get(sign := self._sign(), 0) >= least:
            self.at += 2 if sign == ">>" else 1
            right = self._binary(_BINARY[sign] + 1)
            left = Node("binary", left.begin, right.end, [left, right], sign, self.scope)
        return left

    def _unary(self) -> Node:
        begin = self.begin
        if self.now() in _UNARY:
            sign = self.take().text
            part = self._unary()
            return Node("unary", begin, part.end, [part], sign, self.scope)
        if self.now() == "(" and self._is_cast():
            self.at = self.closing(self.at) + 1
            part = self._unary()
            return Node("unary", begin, part.end, [part], "cast", self.scope)
        return self._behind(self.primary())

    def _is_cast(self) -> bool:
        last = self.closing(self.at)
        words = [token.text for token in self.tokens[self.at + 1 : last]]
        if not words or last + 1 >= len(self.tokens):
            return False
        known = all(word in _BUILTIN or word in WHOLE or word in ("const", "*", "half", "void") for word in words)
        follows = self.tokens[last + 1]
        return known and (follows.kind in ("name", "number") or follows.text == "(")

    def primary(self) -> Node:
        token = self.take()
        if token.kind in ("number", "string"):
            while token.kind == "string" and self.kind() == "string":
                self.take()
            return Node(token.kind, token.begin, self.end, [], token.text, self.scope)
        if token.text == "(":
            part = self.expression()
            self.take(")")
            return Node("group", token.begin, self.end, [part], "", self.scope)
        if token.text == "{":
            return self._braces(token)
        if token.text == "[":
            return self._closure(token)
        if token.kind != "name" and token.text != "::":
            raise _Unread
        if token.text in ("sizeof", "alignof", "decltype"):
            self.at = self.closing(self.at) + 1
            return Node("opaque", token.begin, self.end, [], token.text, self.scope)
        if token.text in ("new", "delete", "throw", "operator", "auto"):
            raise _Unread
        return self._named(token)

    def _braces(self, token: Token) -> Node:
        parts = self._list("}")
        return Node("list", token.begin, self.end, parts, "", self.scope)

    def _named(self, token: Token) -> Node:
        first, qualified = self.at - 1, token.text == "::"
        if qualified:
            self.take()
        behind = self.behind_template(self.at)
        follows = self.tokens[behind].text if behind < len(self.tokens) else ""
        if token.text not in self.templates and follows not in ("(", "{", "::"):
            behind = self.at
        is_template = behind != self.at
        self.at = behind
        while self.now() == "::":
            qualified = True
            self.at = self.behind_template(self.at + 2)
        text = "".join(each.text for each in self.tokens[first : self.at])
        kind = "opaque" if qualified or is_template else "name"
        return Node(kind, token.begin, self.end, [], text, self.scope)

    def _behind(self, node: Node) -> Node:
        while True:
            text = self.now()
            if text == "(" and node.kind != "number":
                self.take()
                node = Node("call", node.begin, 0, self._list(")"), node.sign, self.scope)
            elif text == "{" and node.kind in ("name", "opaque"):
                self.take()
                node = Node("call", node.begin, 0, self._list("}"), node.sign + "{", self.scope)
            elif text == "[":
                self.take()
                inner = self.expression()
                self.take("]")
                node = Node("index", node.begin, 0, [node, inner], "", self.scope)
            elif text in (".", "->") and self.kind(1) == "name":
                self.take()
                node = Node("member", node.begin, 0, [node], self.take().text, self.scope)
                self.at = self.behind_template(self.at) if self.now() == "<" and self.closes_call() else self.at
            elif text in ("++", "--"):
                self.take()
                node = Node("after", node.begin, 0, [node], text, self.scope)
            else:
                return node
            node.end = self.end

    def closes_call(self) -> bool:
        behind = self.behind_template(self.at)
        return behind != self.at and behind < len(self.tokens) and self.tokens[behind].text == "("

    def _closure(self, token: Token) -> Node:
        """A lambda: its body is read as statements of the function."""
        self.at = self.closing(self.at - 1) + 1
        scope = self.scope
        if self.now() == "(":
            last = self.closing(self.at)
            self.take()
            while self.at < last:
                known = self._type()
                while self.now() in ("*", "&", "const"):
                    self.take()
                if known is None or self.kind() != "name":
                    raise _Unread
                self.scope = Scope(Variable(self.take().text, known[0], "", known[1]), self.scope)
                if self.now() == ",":
                    self.take()
            self.take(")")
        if self.now() != "{":
            raise _Unread
        body = self.statement()
        self.scope = scope
        found = Closure("closure", token.begin, self.end, [], "", self.scope)
        found.body = body
        return found


@dataclass
class Closure(Node):
    body: Statement | None = None
