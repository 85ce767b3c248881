"""Edits of statements that belong together: a sum that begins again once it was handed over, two that follow each other
in the other order, an equal one that a comparison forgets, a size that is rounded up with an end that then stays below
what there is, an exponential that is relative to another maximum."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations

from grader.compile.edit_writer import VARIABLE, WORD
from grader.compile.expression_edits import LONGEST, Expressions, changed_words, found_in, is_sum, kind_of, shortened
from grader.compile.index_edits import MOST_NEAR
from grader.compile.source_tree import ASSIGNING, Node, Statement

MOST_MAXIMA = 2  # pairs of them
MOST_GIVEN = 4  # statements that give a number away
_FIRST = r"(-?\d[\w.]*|-?INFINITY|-?FLT_MAX|\w+\(\)|\w+\{{\}}|\{{\}})"
_PLACE = r"(?<![\w.>])[A-Za-z_]\w*(?:\.\w+)?"
_COPY = re.compile(rf"\bfloat\s+(\w+)\s*=\s*({_PLACE})\s*;")
_MAXIMUM = re.compile(r"(?<![\w.>])((?:[A-Za-z_]\w*\.)?(?:\w*_)?max)\b(?!\s*[(<])")


class Following(Expressions, ABC):
    """Goes over statements that belong together, and gives them to the writer with their edits."""

    factors: list[str]  # how the function takes the exponential of a difference
    given_away: set[tuple[int, str]]  # statements, and the numbers that begin again behind them

    def next_to(self, one: Statement, words: str, rank: int, before: str, behind: str) -> None:
        """A statement with another before or behind it: it may be all that a loop has, not a declaration."""
        if number := self.writer.new(one.begin, words, rank):
            self.writer.add(one.begin, f"{{if({VARIABLE}=={number}u){{{before}}}", closes=False)
            self.writer.add(one.end, f"if({VARIABLE}=={number}u){{{behind}}}}}", closes=True)

    def handed_over(self, loop: Statement) -> None:
        """A number of outside the loop, which the loop adds to and gives away, begins again behind that."""
        for name in dict.fromkeys(self._kept(loop)):
            own = found_in(loop.scope, name)
            if own is None or own.is_const or own.dims or own.is_fixed or own in self.tree.parameters:
                continue
            first = re.compile(rf"\b{name}\s*=\s*{_FIRST.format()}\s*[;,]")
            begins = first.search(self.plain, own.at, loop.begin)
            if begins is None or first.search(self.plain, loop.begin, loop.end):
                continue
            for given in [*self._givers(loop, name)][:MOST_GIVEN]:
                if (given.begin, name) not in self.given_away:
                    again = f"{name} = {begins[1]};"
                    self.next_to(given, f"`{again}` stands behind `{shortened(self.of(given))}`", 1, "", again)
                self.given_away.add((given.begin, name))

    def _kept(self, one: Statement) -> Iterator[str]:
        """The variables that statements in it add to, or set to what is made of them."""
        for node in one.nodes if one.kind == "simple" else ():
            if node.kind == "binary" and node.sign in ASSIGNING and node.parts[0].kind == "name":
                name = node.parts[0].sign
                if node.sign != "=" or name in WORD.findall(self.of(node.parts[1])):
                    yield name
        for part in one.parts:
            yield from self._kept(part)

    def _givers(self, one: Statement, name: str) -> Iterator[Statement]:
        """The statements that give a variable to a function, or put it in an element, and conditions of such alone."""
        for part in one.parts:
            found = [*self._givers(part, name)]
            if part in found and one.kind == "if":
                yield one  # first: what is added behind it stands further out
            yield from found
        node = one.nodes[0] if one.kind == "simple" and len(one.nodes) == 1 else None
        if node is not None and one.end - one.begin <= LONGEST:
            is_given = node.kind == "call" and any(name in WORD.findall(self.of(part)) for part in node.parts)
            if is_given or (_is_store(node) and name in WORD.findall(self.of(node.parts[1]))):
                yield one

    def in_other_order(self, parts: Sequence[Statement]) -> None:
        """What is stored has what the next statement adds, or lacks what the one before has added."""
        for one, two in pairwise(parts):
            for store, adds in ((one, two), (two, one)):
                place = _stored(store)
                if place is None or len(self.of(store)) > LONGEST or not self.counters:
                    continue
                if {*WORD.findall(self.of(place))} & {*self._kept(adds)} and adds.kind == "simple":
                    where, behind = ("behind", True) if store is one else ("before", False)
                    words = f"`{shortened(self.of(store))}` stands {where} `{shortened(self.of(adds))}`"
                    self._other_order(store, adds, words, behind=behind)

    def _other_order(self, one: Statement, other: Statement, words: str, *, behind: bool) -> None:
        if number := self.writer.new(one.begin, words, 1):
            self.writer.add(one.begin, f"{{if({VARIABLE}!={number}u)", closes=False)
            self.writer.add(one.end, "}", closes=True)
            place, text = other.end if behind else other.begin, f"if({VARIABLE}=={number}u){{{self.of(one)}}}"
            self.writer.add(place, text, closes=False)

    def tied(self, one: Statement) -> None:
        """The one of two equal numbers is taken that has less, or more, of what is kept beside them."""
        if len(one.parts) != 1 or not one.nodes:  # as of an `if constexpr`
            return
        node, sets = one.nodes[0], dict[str, str]()
        if node.kind != "binary" or node.sign not in ("<", ">"):
            return
        for part in one.parts[0].parts if one.parts[0].kind == "block" else one.parts:
            each = part.nodes[0] if part.kind == "simple" and len(part.nodes) == 1 else None
            if each is not None and each.kind == "binary" and each.sign == "=":
                sets[self.of(each.parts[0])] = self.of(each.parts[1])
        left, right = map(self.of, node.parts)
        if sets.get(right) != left and sets.get(left) != right:
            return
        others = [(new, old) for old, new in sets.items() if old not in (left, right) and re.fullmatch(r"[\w.]+", new)]
        self._wrap(node, [way for new, old in others[:2] for way in self._ties(node, new, old)], cast=False)

    def tied_members(self, node: Node) -> None:
        """The same where one of two structs is chosen by a member."""
        condition, first, second = node.parts
        if condition.kind != "binary" or condition.sign not in ("<", ">"):
            return
        if not all(part.kind == "member" for part in condition.parts) or first.kind != "name" or second.kind != "name":
            return
        if {self.of(part.parts[0]) for part in condition.parts} != {first.sign, second.sign}:
            return
        own = condition.parts[0].sign
        for name in self._members_of(first, node.scope):
            if name != own:
                ways = self._ties(condition, f"{first.sign}.{name}", f"{second.sign}.{name}")
                self._wrap(condition, [*ways], cast=False)

    def _ties(self, node: Node, new: str, old: str) -> Iterator[tuple[str, str, int]]:
        own, (left, right) = self.of(node), map(self.of, node.parts)
        for sign in "<>":
            text = f"{own} || ({left} == {right} && {new} {sign} {old})"
            yield f"`{own}` is `{text}`", text, 1

    def covering(self, parts: Sequence[Statement]) -> None:
        """A quotient is rounded up, and what is made of it stays at or below what was divided."""
        for at, one in enumerate(parts):
            if one.kind != "declaration" or len(one.nodes) != 1 or len(one.declared) != 1:
                continue
            root, whole = one.nodes[0], self._divided(one.nodes[0])
            if not whole or self.type_of(root, root.scope) != "whole":
                continue
            sums = [*self._made_of(one.declared[0].name, parts[at + 1 : at + 1 + MOST_NEAR])]
            nodes = [root, *sums]
            if not sums or not self._may_edit(nodes):
                continue
            last = shortened(self.of(sums[-1]))
            words = f"`{self.of(root)}` is rounded up, and `{last}` on line {self.writer.line_at(sums[-1].begin)}"
            if number := self.writer.new(root.begin, f"{words} is at most `{whole}`", 1):
                self._around(root, f"({VARIABLE}=={number}u?{self._rounded_up(root)}:", ")")
                for node in sums:
                    kind = f"kata_t<decltype({self.of(node)})>"
                    before = f"({VARIABLE}=={number}u?min(({kind})({self.of(node)}),({kind})({whole})):"
                    self._around(node, before, ")")

    def _divided(self, node: Node) -> str:
        """What a quotient, or a multiple of one, divides first, where the function is given it; else empty."""
        signs = set[str]()
        while node.kind == "binary" and node.sign in "*/":
            signs.add(node.sign)
            node = node.parts[0]
        own = found_in(node.scope, node.sign) if node.kind == "name" and "/" in signs else None
        return own.name if own is not None and own in self.tree.parameters and kind_of(own) == "whole" else ""

    def _rounded_up(self, node: Node) -> str:
        """All its quotients rounded up."""
        if node.kind != "binary":
            return f"({self.of(node)})"
        left, right = self._rounded_up(node.parts[0]), f"({self.of(node.parts[1])})"
        return f"(({left}+{right}-1)/{right})" if node.sign == "/" else f"({left}*{right})"

    def _made_of(self, name: str, following: Sequence[Statement]) -> Iterator[Node]:
        """The sums and products that statements make of a number; in a sum those of what that makes, too."""
        names = {name}
        for one in following:
            node = one.nodes[0] if len(one.nodes) == 1 else None
            if node is None or one.kind not in ("simple", "declaration"):
                continue
            is_set = node.kind == "binary" and node.sign == "="
            value, target = (node.parts[1], self.of(node.parts[0])) if is_set else (node, "")
            if is_set or one.kind == "declaration":
                target = target or one.declared[0].name
                if (
                    names & {*WORD.findall(self.of(value))}
                    and value.kind == "binary"
                    and (is_sum(value) or value.sign == "*")
                ):
                    yield value

    def relative(self, value: Node) -> None:
        """What is put in an element or given to a function is relative to another maximum: times ``exp(old - new)``."""
        if self.type_of(value, value.scope) != "floating" or value.kind not in ("binary", "name", "member", "index"):
            return
        known, own = {each.name for each in value.scope or ()}, self.of(value)
        before = self.plain[self.tree.body.begin : value.begin]
        pairs = [*_COPY.findall(before), *permutations(dict.fromkeys(_MAXIMUM.findall(before)), 2)]
        pairs = [pair for pair in pairs if {each.partition(".")[0] for each in pair} <= known]
        for old, new in [pair for pair in dict.fromkeys(pairs) if "max" in "".join(pair)][:MOST_MAXIMA]:
            for each in dict.fromkeys(self.factors):
                factor = each.format(f"{old} - {new}")
                if factor not in own and "exp" not in own:
                    words = changed_words(own, f"{own} * {factor}")
                    self._wrap(value, [(words, f"({own}) * {factor}", 1)])


def _is_store(node: Node) -> bool:
    return node.kind == "binary" and node.sign in ASSIGNING and node.parts[0].kind == "index"


def _stored(one: Statement) -> Node | None:
    """What a statement puts in an element; of a condition, what its only statement does."""
    if one.kind == "if" and len(one.parts) == 1:
        inner = one.parts[0]
        inner = inner.parts[0] if inner.kind == "block" and len(inner.parts) == 1 else inner
        return _stored(inner) if inner.kind == "simple" else None
    node = one.nodes[0] if one.kind == "simple" and len(one.nodes) == 1 else None
    return node.parts[1] if node is not None and _is_store(node) and node.sign == "=" else None
