"""Two files of one kata -> what of the second stands for what of the first: functions, constants and variables; and
both in one form, in which names, parentheses and the order of a sum's terms do not count.

A variable that keeps its first value is that value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from grader.compile.edit_writer import WORD
from grader.compile.expression_edits import found_in, ungrouped
from grader.compile.source_tree import WHOLE, Node, Scope, Statement, Tree, Variable
from grader.content.functions import Code, constants_of

SIMILAR = 0.35  # how much of the words of two functions must be the same
OF_NAME, OF_TYPE, OF_USES, LEAST = 0.3, 0.3, 0.7, 0.45  # what makes two variables similar, and how much is enough
ROUNDS = 2  # that variables are paired in: what is known of some tells of others
PURE = re.compile(  # functions that read no memory
    r"(?:min|max|static_cast<.*>|reinterpret_cast<.*>|u?int(?:\d+_t)?|float|size_t|__byte_perm|__popc|__ffs|__clz"
    r"|_*(?:u?int|float|half|bfloat16|double|u?longlong)2*\w*2\w+|_*(?:exp|log|sqrt|rsqrt|tanh|erf|fabs|fmax|fmin|fma)\w*)$"
)
REAL = {"float", "double", "bool", "half", "__half", "__nv_bfloat16"}
_ORDERED = {">": "<", ">=": "<="}
_LOOSE = ("+", "*", "&", "|", "^", "&&", "||", "==", "!=")
_SPLIT = re.compile(r"\w+|[^\w\s]")
NAMES = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?<![\w.])(?<!->)[A-Za-z_]\w*')  # and strings, which have none
_MADE = re.compile(r"\b(?:struct|using|enum(?: class)?|class|#define)\s+([A-Za-z_]\w*)")


class Unspoken(Exception):
    """The second file has a name that stands for nothing in the first."""


Key = tuple[str, int]  # of a variable: its name, and where it is declared


@dataclass
class Side:
    """A device function of one of the two files. ``names``: what a name is in the first file, of those that stand
    outside of functions; ``labels``: the same of its own variables."""

    tree: Tree
    plain: str  # the file without comments
    code: Code
    is_first: bool
    names: dict[str, str] = field(default_factory=dict)
    labels: dict[Key, str] = field(default_factory=dict)
    known: dict[int, str] = field(default_factory=dict)  # forms of nodes, as long as no name is learnt

    @cached_property
    def locals(self) -> dict[Key, tuple[Variable, Statement]]:
        """The variables that it declares, with their statements; not those of loops."""
        every = statements_of(self.tree.body)
        return {key_of(each): (each, one) for one in every if one.kind != "loop" for each in one.declared}

    @cached_property
    def depths(self) -> dict[Key, int]:
        """The variables that loops declare, each with the number of loops around it."""
        return dict(_depths(self.tree.body, 1))

    @cached_property
    def values(self) -> dict[Key, Node]:
        """The variables that are never set again, and whose values read no memory."""
        found = dict[Key, Node]()
        for key, (variable, one) in self.locals.items():
            is_one = one.kind == "declaration" and len(one.declared) == len(one.nodes) == 1 and not variable.dims
            if is_one and _is_pure(one.nodes[0]) and self._is_steady(variable, one):
                found[key] = one.nodes[0]
        return found

    def _is_steady(self, variable: Variable, one: Statement) -> bool:
        """Whether neither it nor what its value is made of is set after its declaration; but for a loop's variable."""
        names = {*WORD.findall(self.text(one.nodes[0]))} - {name for name, _ in self.depths}
        names |= set() if variable.is_const else {variable.name}
        return not any(self.code.is_assigned(name, one.end, self.tree.body.end) for name in names)

    @cached_property
    def firsts(self) -> dict[Key, Node]:
        """The variables that are constant, with their values, also such as were read from memory."""
        return {
            key: one.nodes[0]
            for key, (variable, one) in self.locals.items()
            if variable.is_const and len(one.declared) == len(one.nodes) == 1 and not variable.dims
        }

    def hold(self, key: Key) -> None:
        """A variable is compared as such, not as its value."""
        del self.values[key]
        self.known.clear()

    def label(self, variable: Variable) -> str:
        """What a variable is called in the form of an expression: those of loops by the number of loops around."""
        key = key_of(variable)
        if key in self.depths:
            return f"@{self.depths[key]}"
        known = self.labels.get(key)
        if known is None and key in self.locals and not self.is_first:
            return f"?{variable.name}"
        return known or self.names.get(variable.name, variable.name)

    def value(self, node: Node) -> Node | None:
        """What a name stands for, if it is but a value."""
        own = found_in(node.scope, node.sign) if node.kind == "name" else None
        return self.values.get(key_of(own)) if own is not None else None

    def text(self, one: Node | Statement) -> str:
        return " ".join(self.plain[one.begin : one.end].split())

    def learn(self, labels: Mapping[Key, str]) -> None:
        self.labels.update(labels)
        self.known.clear()

    # -- one form -----------------------------------------------------------------------------------------------------

    def form(self, node: Node) -> str:
        """The same for expressions that compute the same in the same way."""
        if id(node) not in self.known:
            self.known[id(node)] = self._form(node)
        return self.known[id(node)]

    def _form(self, node: Node) -> str:
        parts = [*map(self.form, node.parts)]
        if node.kind == "group":
            return parts[0]
        if node.kind == "name":
            if (value := self.value(node)) is not None:
                return self.form(value)
            own = found_in(node.scope, node.sign)
            return self.label(own) if own is not None else self.names.get(node.sign, node.sign)
        if node.kind == "number":
            return _number(node.sign)
        if node.kind == "after" or (node.kind == "unary" and node.sign in ("++", "--")):
            return f"({parts[0]} {node.sign[0]}= 1)"
        if node.kind == "unary" and node.sign == "cast":
            kind = re.match(r"\(\s*(.*?)\s*\)", self.plain[node.begin : node.end])
            return f"static_cast<{kind[1] if kind else ''}>({parts[0]})"
        if node.kind == "binary":
            return self._of_two(node, parts)
        if node.kind == "member":
            return f"{parts[0]}.{node.sign}"
        if node.kind in ("call", "index", "list", "choice", "unary"):
            return f"{self._renamed(node.sign)} {node.kind}({', '.join(parts)})"
        return self._renamed(self.text(node), node.scope)

    def _of_two(self, node: Node, parts: list[str]) -> str:
        sign = node.sign
        if sign in _ORDERED:
            sign, parts = _ORDERED[sign], parts[::-1]
        if sign in _LOOSE:
            parts = sorted(self.form(each) for each in terms_of(node, sign))
        return f"({f' {sign} '.join(parts)})"

    def _renamed(self, text: str, scope: Scope | None = None) -> str:
        def name(found: re.Match[str]) -> str:
            if found[0].startswith('"'):
                return found[0]
            own = found_in(scope, found[0])
            if own is not None and (value := self.values.get(key_of(own))) is not None:
                return self.form(value)
            return self.label(own) if own is not None else self.names.get(found[0], found[0])

        return NAMES.sub(name, text)

    def of_statement(self, one: Statement) -> str:
        """The same for a statement, with all in it."""
        if one.kind in ("asm", "other"):
            return self._renamed(self.text(one), one.scope)
        kind = one.kind if one.kind != "declaration" else f"let {' '.join(each.type for each in one.declared)}"
        own = " ".join(self.form(node) for node in one.nodes)
        names = " ".join(f"{self.label(each)}{self._renamed(each.dims)}" for each in one.declared)
        inner = " ".join(self.of_statement(part) for part in self.of_block(one))
        return f"{kind} {names} {own} {{{inner}}}" if one.parts else f"{kind} {names} {own};"

    def of_block(self, one: Statement) -> list[Statement]:
        """The statements that a statement has in it, without those that only give a value a name."""
        found = []
        for part in one.parts:
            if part.kind == "block" and one.kind != "block":
                found += self.of_block(part)
            elif not (part.kind == "declaration" and part.declared and key_of(part.declared[0]) in self.values):
                found.append(part)
        return found


def key_of(variable: Variable) -> Key:
    return variable.name, variable.at


def _depths(one: Statement, depth: int) -> Iterator[tuple[Key, int]]:
    for each in one.declared if one.kind == "loop" else ():
        yield key_of(each), depth
    for part in one.parts:
        yield from _depths(part, depth + (one.kind == "loop"))


def statements_of(one: Statement) -> Iterator[Statement]:
    yield one
    for part in one.parts:
        yield from statements_of(part)


def terms_of(node: Node, sign: str) -> Iterator[Node]:
    """``a + (b + c)`` -> a, b, c"""
    inner = ungrouped(node)
    if inner.kind == "binary" and inner.sign == sign:
        for part in inner.parts:
            yield from terms_of(part, sign)
    else:
        yield node


def words_of(form: str) -> Counter[str]:
    return Counter(_SPLIT.findall(form))


def likeness(one: Counter[str], other: Counter[str]) -> float:
    """The share, up to 1, of the words of both that are the same."""
    return 2 * (one & other).total() / max(one.total() + other.total(), 1)


def made_by(text: str) -> frozenset[str]:
    """The types that a file makes."""
    return frozenset(_MADE.findall(text))


def paired(own: Collection[Side], others: Collection[Side]) -> list[tuple[Side, Side]]:
    """The functions that stand for each other: those of one name, then the most similar ones."""
    found = list[tuple[Side, Side]]()
    for each in others:
        same = [
            one
            for one in own
            if one.tree.function.name == each.tree.function.name and all(one is not taken for taken, _ in found)
        ]
        types = [[_kind(parameter) for parameter in one.tree.parameters] for one in (*same, each)]
        found += [(one, each) for _, one in sorted(enumerate(same), key=lambda it: types[it[0]] != types[-1])[:1]]
    left = [each for each in own if all(each is not one for one, _ in found)]
    right = [each for each in others if all(each is not one for _, one in found)]
    similar = sorted(
        (
            (-likeness(words_of(one.text(one.tree.body)), words_of(other.text(other.tree.body))), a, b)
            for a, one in enumerate(left)
            for b, other in enumerate(right)
            if one.tree.function.is_kernel == other.tree.function.is_kernel
        ),
    )
    taken: tuple[set[int], set[int]] = (set(), set())
    for less, a, b in similar:
        if -less >= SIMILAR and a not in taken[0] and b not in taken[1]:
            found.append((left[a], right[b]))
            taken[0].add(a)
            taken[1].add(b)
    return found


def constants_between(own: str, other: str) -> dict[str, str]:
    """What constants of the other file are in the first: of the same name, else of the same value, else the value."""
    first, second = constants_of(own), constants_of(other)
    found = {name: name for name in second if name in first}
    for name, value in second.items():
        same = [each for each, known in first.items() if known == value and each not in second]
        if name not in found:
            found[name] = same[0] if len(same) == 1 else str(value)
    return found


def pair_variables(own: Side, other: Side) -> None:
    """Teach the second what its parameters and variables are in the first."""
    first, second = own.tree.parameters, other.tree.parameters
    names = {each.name for each in first}
    found = {each.name: each.name for each in second if each.name in names}
    left = [each for each in first if each.name not in found.values()]
    for each in second:
        same = [one for one in left if one.type == each.type]
        if each.name not in found and same:
            found[each.name] = same[0].name
            left.remove(same[0])
    other.learn({key_of(each): found[each.name] for each in second if each.name in found})
    templates = [side.tree.function.templates for side in (other, own)]
    other.names |= dict(zip(*templates, strict=False)) if len(templates[0]) == len(templates[1]) else {}
    for _ in range(ROUNDS):
        other.learn(_similar(own, other))
    _hold(own, other)
    other.learn(_similar(own, other))


def _hold(own: Side, other: Side) -> None:
    """Values of one name that are not the same, or rounded to another type, are compared where they are given it, not
    where they are used."""
    names = Counter(name for name, _ in own.values), Counter(name for name, _ in other.values)
    mine = {key[0]: key for key in own.values}
    for key, value in [*other.values.items()]:
        name = key[0]
        if names[0][name] == names[1][name] == 1:
            forms = own.form(own.values[mine[name]]), other.form(value)
            kinds = [_kind(side.locals[one][0])[0] for side, one in ((own, mine[name]), (other, key))]
            is_rounded = kinds[0] != kinds[1] and "auto" not in kinds and not {*kinds} <= WHOLE
            if (forms[0] != forms[1] or is_rounded) and likeness(*map(words_of, forms)) >= SIMILAR:
                own.hold(mine[name])
                other.hold(key)
                other.learn({key: name})


def _similar(own: Side, other: Side) -> dict[Key, str]:
    first, second = _uses(own), _uses(other)
    pairs = []
    for name, uses in second.items():
        for one, known in first.items():
            kinds = _kind(own.locals[one][0]), _kind(other.locals[name][0])
            types = kinds[0] == kinds[1]
            if not types and not _are_numbers(*kinds):
                continue
            similar = OF_NAME * (name[0] == one[0]) + OF_TYPE * types + OF_USES * likeness(known, uses)
            if similar >= LEAST:
                pairs.append((-similar, name, one))
    found: dict[Key, Key] = {}
    for _, name, one in sorted(pairs):
        if name not in found and one not in found.values():
            found[name] = one
    return {name: one for name, (one, _) in found.items()}


def _uses(side: Side) -> dict[Key, Counter[str]]:
    """The words of the statements that a variable is in, of those that are more than a value."""
    found = {key: Counter[str]() for key in side.locals if key not in side.values}
    for one in statements_of(side.tree.body):
        words = set(WORD.findall(" ".join(map(side.text, one.nodes))))
        known = [found_in(node.scope, word) for node in one.nodes[:1] for word in words]
        used = {key_of(each) for each in (*known, *one.declared) if each is not None} & found.keys()
        form = words_of(" ".join(map(side.form, one.nodes))) if used else Counter[str]()
        for key in used:
            label = side.label(side.locals[key][0])
            found[key] += Counter({word: count for word, count in form.items() if word != label.lstrip("?")})
    return found


def _kind(one: Variable) -> tuple[str, int]:
    return one.type.replace("const ", ""), one.dims.count("[")


def _are_numbers(*kinds: tuple[str, int]) -> bool:
    """Whether both are numbers, or both arrays of such."""
    return kinds[0][1] == kinds[1][1] and all(kind in WHOLE | REAL for kind, _ in kinds)


def _number(text: str) -> str:
    text = text.replace("'", "")
    if re.search(r"\.|[eEfF]", text) and not text.lower().startswith(("0x", "0b")):
        return repr(float(text.rstrip("fFlL")))
    return text.rstrip("uUlL").lower()


def _is_pure(node: Node) -> bool:
    if node.kind in ("index", "opaque", "closure", "list", "after", "string"):
        return False
    if node.kind == "unary" and node.sign in ("*", "++", "--", "&"):
        return False
    if node.kind == "call" and not PURE.match(node.sign):
        return False
    return all(map(_is_pure, node.parts))
