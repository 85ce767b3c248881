"""A learner's function and the solution's -> the places where they differ, each with what the solution has there, in
the learner's names.

A place may be within another: the difference of two sums is the sum, or the one term in which they differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from grader.compile.counterparts import NAMES, Key, Side, Unspoken, key_of, likeness, statements_of, terms_of, words_of
from grader.compile.expression_edits import changed_words, found_in, shortened, ungrouped
from grader.compile.source_tree import ASSIGNING, Closure, Node, Scope, Statement

SIMILAR = 0.4  # of the words of two statements, so that they stand for each other
OF_KIND = 0.15  # more for two of one kind
MOST_RANK = 3
AS_SOLVED = "as in the solution"  # in the words of several lines or places
LONGEST = 70  # letters of a text that words show
MOST_WORDS, BESIDE = 10, 4  # of a piece of a longer text that is other, and beside it
_NO_PLACE = re.compile(r"reinterpret_cast<[^<>]*&>\(\(")  # of a value that has no place
_AT_0 = re.compile(r"(?:=\s*(?:0(?:\.0?f?)?|\{(?:0(?:\.0?f?)?)?\})|\{\})\s*;$")
_ZEROED = (
    "for (unsigned kata_at = 0; kata_at < sizeof({0}) / 4; ++kata_at) reinterpret_cast<unsigned*>(&{0})[kata_at] = 0;"
)
_WORD = re.compile(r'"(?:\\.|[^"\\])*"|\w+|\S')
_AROUND = re.compile(r"(?<![\w>\])])\(([\w.:]+)\)")
NAME = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")


Kind = tuple[str, Counter[str]]  # of a statement, and its words


@dataclass(frozen=True)
class Difference:
    """``kind``: an ``expression``, a ``place`` (which is written), a ``statement`` in whose place is ``text``, one
    ``before`` or ``behind`` which that stands, one that is ``moved`` before the place ``to``, or a piece of ``text``.

    ``outer``: it is in no other. ``to`` is also where an answer or a body ends that is replaced as a whole. ``at`` is
    the place that the words are about, if that is not where it begins.
    """

    kind: str
    begin: int
    end: int
    text: str
    words: str
    rank: int
    outer: bool = True
    to: int = 0
    at: int = -1

    @property
    def place(self) -> int:
        """What the words are about."""
        return self.end - 1 if self.kind == "behind" else self.begin if self.at < 0 else self.at


@dataclass
class Comparison:
    """Goes over two functions that stand for each other. ``common``: names that mean something in the learner's file;
    ``foreign``: such as only the solution's has."""

    own: Side
    other: Side
    common: Collection[str]
    foreign: Collection[str]
    found: list[Difference] = field(default_factory=list)
    extra: list[Statement] = field(default_factory=list)  # the learner's, which the solution lacks
    missing: list[tuple[Statement, Difference]] = field(default_factory=list)  # the reverse
    changed: list[Difference] = field(default_factory=list)  # of what is declared: nothing that runs
    loops: dict[Key, str] = field(default_factory=dict)  # the solution's variables of loops -> the learner's

    @property
    def is_equal(self) -> bool:
        """Whether both bodies compute the same in the same way."""
        return self.own.of_statement(self.own.tree.body) == self.other.of_statement(self.other.tree.body)

    def differences(self) -> list[Difference]:
        self._lists(self.own.tree.body, self.other.tree.body)
        return [*self._moved(), *self.found]

    # -- what the solution has, in the learner's names ----------------------------------------------------------------

    def spoken(self, one: Node | Statement, scope: Scope | None) -> str:
        """Raises Unspoken where it has a name that means nothing at a place with this scope."""
        inner = {
            each.name for part in (statements_of(one) if isinstance(one, Statement) else ()) for each in part.declared
        }
        visible = {each.name for each in scope or ()}
        text = self._renamed(one, one.scope, inner, visible)
        if _NO_PLACE.search(text):
            raise Unspoken
        return text

    def _renamed(
        self, one: Node | Statement, own: Scope | None, inner: Collection[str], visible: Collection[str]
    ) -> str:
        text = self.other.text(one)
        return NAMES.sub(lambda found: self._name(found[0], own, inner, visible), text)

    def _name(self, name: str, scope: Scope | None, inner: Collection[str], visible: Collection[str]) -> str:
        if name in inner or name.startswith('"'):
            return name
        if (one := found_in(scope, name)) is None or one.is_fixed:
            known = self.other.names.get(name, name)
            if known in self.foreign and known not in self.common:
                raise Unspoken
            return known
        key = key_of(one)
        if (value := self.other.values.get(key)) is not None:
            return self._value(value, inner, visible)
        mine = self.loops.get(key) or self.other.labels.get(key)
        if mine is None and (value := self.other.firsts.get(key)) is not None:
            return self._value(value, inner, visible)
        if mine is None or mine not in visible:
            raise Unspoken
        return mine

    def _value(self, value: Node, inner: Collection[str], visible: Collection[str]) -> str:
        """A variable of the same value, else the value itself."""
        same = self._names.get(self.other.form(value))
        if same is not None and same in visible:
            return same
        return f"({self._renamed(value, value.scope, inner, visible)})"

    @cached_property
    def _names(self) -> dict[str, str]:
        return {self.own.form(value): name for (name, _), value in self.own.values.items()}

    def _same(self, own: Node, other: Node) -> bool:
        return self.own.form(own) == self.other.form(other)

    # -- expressions --------------------------------------------------------------------------------------------------

    def expression(self, own: Node, other: Node, *, is_place: bool = False, outer: bool = True) -> int:
        """All differences of two expressions; the rank of the whole, -1 where there is none."""
        own, other = ungrouped(own), ungrouped(other)
        if self._same(own, other):
            return -1
        if isinstance(own, Closure) and isinstance(other, Closure) and own.body is not None and other.body is not None:
            self._lists(own.body, other.body)
            return 0
        if (value := self.other.value(other)) is not None:
            return self.expression(own, value, outer=outer)
        place = len(self.found)
        if own.kind == "call" and own.sign == other.sign and _NO_PLACE.match(f"{own.sign}(("):
            values = [side.value(ungrouped(one.parts[0])) for side, one in ((self.own, own), (self.other, other))]
            if values[0] is not None and values[1] is not None:
                return self.expression(values[0], values[1], outer=outer)
        rank, firsts = self._within(own, other, outer=outer)
        try:
            if own.kind in ("list", "closure") or other.kind in ("list", "closure"):  # of no type of their own
                raise Unspoken
            text = self.spoken(other, own.scope)
            if _bare(text) == _bare(self.own.text(own)):  # a variable's first value, in its place
                raise Unspoken
        except Unspoken:
            for first in firsts:
                self.found[first] = replace(self.found[first], outer=outer)
            return rank
        kind = "place" if is_place else "expression"
        words = changed_words(self.own.text(own), text, LONGEST)
        self.found.insert(place, Difference(kind, own.begin, own.end, text, words, rank, outer))
        return rank

    def _within(self, own: Node, other: Node, *, outer: bool) -> tuple[int, list[int]]:
        """The differences of the parts of two expressions: the rank that the whole has, and the places of the first of
        each part, which is all of it."""
        if (value := self.own.value(own)) is not None:
            return min(1 + self.expression(value, other, outer=outer), MOST_RANK), []
        rank, firsts = 0, list[int]()
        for one, two, is_place in _pairs(self, own, other):
            count = len(self.found)
            rank = max(rank, 1 + self.expression(one, two, is_place=is_place, outer=False))
            firsts += [count] if len(self.found) > count else []
        return min(rank, MOST_RANK), firsts

    # -- statements ---------------------------------------------------------------------------------------------------

    def _lists(self, own: Statement, other: Statement) -> None:
        """The statements in two statements."""
        first, second = self.own.of_block(own), self.other.of_block(other)
        pairs = _aligned(
            [(each.kind, words_of(self.own.of_statement(each))) for each in first],
            [(each.kind, words_of(self.other.of_statement(each))) for each in second],
        )
        is_block = own.kind == "block" or any(part.kind == "block" for part in own.parts)
        for (a, b), (to_a, to_b) in zip([(-1, -1), *pairs], [*pairs, (len(first), len(second))], strict=True):
            if a >= 0:
                self._statement(first[a], second[b])
            run, instead = first[a + 1 : to_a], second[b + 1 : to_b]
            self.extra += run
            if run:
                self._instead(run, instead)
            elif is_block and instead:
                before = first[a] if a >= 0 else None
                self._added(own, before, first[to_a] if to_a < len(first) else None, instead)

    def _statement(self, own: Statement, other: Statement) -> None:
        if self.own.of_statement(own) == self.other.of_statement(other):
            return
        is_same = own.kind == other.kind and len(own.nodes) == len(other.nodes) and len(own.parts) == len(other.parts)
        count = len(self.found)
        if is_same and own.kind not in ("asm", "other"):
            outer = own.kind in ("if", "loop") or len(own.nodes) == 1
            if own.kind == "loop":
                variables = zip(other.declared, own.declared, strict=False)
                self.loops |= {key_of(theirs): mine.name for theirs, mine in variables}
            pairs = [*zip(own.nodes, other.nodes, strict=True)]
            if own.kind != "loop" or sum(not self._same(*pair) for pair in pairs) < 2:  # else it goes another way
                for pair in pairs:
                    self._root(*pair, outer=outer)
            if own.parts:
                self._parts(own, other)
        if own.kind == other.kind == "declaration":
            self._declared(own, other)
        is_launch = own.kind == "other" and "<<<" in self.own.text(own)
        if is_launch:
            self._of_same_name(own, other)
        if (own.kind in ("simple", "return", "asm", "if", "loop") or is_launch) and not (
            own.parts and len(self.found) > count
        ):
            self._replaced([own], [other], outer=len(self.found) == count)

    def _declared(self, own: Statement, other: Statement) -> None:
        """The type and the extents of a variable."""
        if not len(own.declared) == len(other.declared) == 1 or not own.declared[0].at:
            return
        one, two = own.declared[0], other.declared[0]
        kinds = [
            " ".join(side.plain[part.begin : part.declared[0].at].split())
            for side, part in ((self.own, own), (self.other, other))
        ]
        if one.type != two.type and "auto" not in kinds:
            words = f"`{one.name}` is declared as `{kinds[1]}`, not as `{kinds[0]}`"
            self.changed.append(Difference("text", own.begin, one.at, f"{kinds[1]} ", words, 0))
        text = NAME.sub(lambda found: self.other.names.get(found[0], found[0]), two.dims)
        if one.dims != text:
            begin = one.at + len(one.name)
            end = begin + sum(len(each) for each in re.findall(r"^(?:\s*\[[^\]]*\])+", self.own.plain[begin : own.end]))
            words = f"`{one.name}{one.dims}` is `{one.name}{text}`"
            self.changed.append(Difference("text", begin, end, text, words, 0))

    def _of_same_name(self, own: Statement, other: Statement) -> None:
        """The values that a launch has names for, where both have as many names."""
        names = [NAME.findall(side.text(one)) for side, one in ((self.own, own), (self.other, other))]
        for pair in dict.fromkeys(zip(*names, strict=True)) if len(names[0]) == len(names[1]) else ():
            keys = [found_in(one.scope, name) for one, name in zip((own, other), pair, strict=True)]
            if keys[0] is not None and keys[1] is not None:
                one, two = self.own.values.get(key_of(keys[0])), self.other.values.get(key_of(keys[1]))
                if one is not None and two is not None:
                    self.expression(one, two, outer=False)

    def _root(self, own: Node, other: Node, *, outer: bool) -> None:
        """Two expressions that are statements: they may assign."""
        if own.kind == other.kind == "binary" and own.sign == other.sign and own.sign in ASSIGNING:
            if not any(self._same(*pair) for pair in zip(own.parts, other.parts, strict=True)):
                return  # another statement
            self.expression(own.parts[0], other.parts[0], is_place=True, outer=outer)
            self.expression(own.parts[1], other.parts[1], outer=outer)
        elif not (own.kind == "binary" and own.sign in ASSIGNING) and own.kind != "after":
            if own.kind == other.kind == "call" and len(own.parts) == len(other.parts) and own.sign == other.sign:
                for pair in zip(own.parts, other.parts, strict=True):
                    self.expression(*pair, outer=outer)
            else:
                self.expression(own, other, outer=outer)

    def _parts(self, own: Statement, other: Statement) -> None:
        if own.kind == "if":
            for one, two in zip(own.parts, other.parts, strict=True):
                self._lists(_within(one), _within(two))
        else:
            self._lists(own, other)

    def _instead(self, run: Sequence[Statement], instead: Sequence[Statement]) -> None:
        """A run of statements in the place of which are others, or none."""
        if not instead:
            for each in run:
                if each.kind != "declaration":
                    words = f"`{_shown(self.own.text(each))}` is left out"
                    self.found.append(Difference("statement", each.begin, each.end, ";", words, 1))
        else:
            self._replaced(run, instead, outer=True)

    def _replaced(self, run: Sequence[Statement], instead: Sequence[Statement], *, outer: bool) -> None:
        names = {one.name for each in run if each.kind == "declaration" for one in each.declared}
        if names & {*NAME.findall(self.own.plain[run[-1].end : self.own.tree.body.end])}:
            return  # what comes after them uses these
        try:
            text = " ".join(self.spoken(each, run[0].scope) for each in instead)
        except Unspoken:
            return
        if not text.rstrip().endswith((";", "}")):
            return
        whole = self.own.plain[run[0].begin : run[-1].end]
        words = changed_words(whole, text, LONGEST)
        lines = [self.own.plain.count("\n", 0, each) + 1 for each in (run[0].begin, run[-1].end)]
        at = -1
        if lines[0] < lines[1] and max(len(" ".join(whole.split())), len(text)) > LONGEST:
            words = f"lines {lines[0]} to {lines[1]} are {AS_SOLVED}"
            if (piece := _one_piece(whole, text)) is not None:
                at, words = run[0].begin + piece[0], changed_words(*piece[1:], LONGEST)
        if (condition := self._guard(run, instead)) is not None:
            words = f"`{_shown(whole)}` is executed only where `{condition}`"
        self.found.append(
            Difference("statement", run[0].begin, run[-1].end, text, words, 2 if outer else MOST_RANK, outer, at=at)
        )

    def _guard(self, run: Sequence[Statement], instead: Sequence[Statement]) -> str | None:
        """The condition that the solution has around the same statements."""
        if len(instead) != 1 or instead[0].kind != "if" or len(instead[0].parts) != 1 or not instead[0].nodes:
            return None
        inner = [*map(self.other.of_statement, self.other.of_block(instead[0]))]
        if inner != [*map(self.own.of_statement, run)]:
            return None
        return _shown(self.spoken(instead[0].nodes[0], run[0].scope))

    def _added(
        self, own: Statement, before: Statement | None, after: Statement | None, added: Sequence[Statement]
    ) -> None:
        """Statements that the learner's block lacks at a place."""
        one = before or after
        scope = after.scope if after is not None else (one.scope if one is not None else own.scope)
        for run in [*([each] for each in added), *([added] if len(added) > 1 else [])]:
            try:
                text = " ".join(self.spoken(each, scope) for each in run)
            except Unspoken:
                continue
            told = text
            if len(run) == 1 and run[0].kind == "declaration":
                if (name := self._outer(run[0], scope)) is None:
                    continue
                told, text = f"{name} = {{}};", _ZEROED.format(name)
            if before is not None:
                words = f"`{_shown(told)}` stands behind `{_shown(self.own.text(before))}`"
                found = Difference("behind", before.begin, before.end, f"{{{text}}}", words, int(len(run) > 1))
            elif after is not None:
                words = f"`{_shown(told)}` stands before `{_shown(self.own.text(after))}`"
                found = Difference("before", after.begin, after.end, f"{{{text}}}", words, int(len(run) > 1))
            else:
                continue
            self.found.append(found)
            if len(run) == 1:
                self.missing.append((run[0], found))

    def _outer(self, one: Statement, scope: Scope | None) -> str | None:
        """The learner's variable that begins at 0 further out than the solution's, so that it keeps what it has."""
        if len(one.declared) != 1 or not _AT_0.search(self.other.text(one)):
            return None
        variable = one.declared[0]
        name = self.other.labels.get(key_of(variable), variable.name)
        mine = found_in(scope, name)
        return name if mine is not None and not mine.is_fixed and "*" not in mine.type else None

    def _moved(self) -> Iterator[Difference]:
        """What the learner has at another place than the solution."""
        for one, there in self.missing:
            form = self.other.of_statement(one)
            for each in self.extra:
                if each.kind != "declaration" and self.own.of_statement(each) == form:
                    to = there.begin if there.kind == "before" else there.end
                    side = there.words.partition(" stands ")[2]
                    words = f"`{_shown(self.own.text(each))}` stands {side}"
                    yield Difference("moved", each.begin, each.end, there.text, words, 0, to=to)


def _one_piece(own: str, other: str) -> tuple[int, str, str] | None:
    """Where two texts of several lines differ, and both pieces with some words around them; None where these are not
    short, or one is empty."""
    first, second = ([*_WORD.finditer(text)] for text in (own, other))
    same = [one[0] == two[0] for one, two in zip(first, second, strict=False)]
    before = same.index(False) if False in same else len(same)
    last = [one[0] == two[0] for one, two in zip(first[before:][::-1], second[before:][::-1], strict=False)]
    behind = last.index(False) if False in last else len(last)
    ends = [len(words) - behind for words in (first, second)]
    if not all(0 < end - before <= MOST_WORDS for end in ends):
        return None
    around = min(BESIDE, before), min(BESIDE, behind)
    mine, theirs = (
        text[words[before - around[0]].start() : words[end - 1 + around[1]].end()]
        for text, words, end in zip((own, other), (first, second), ends, strict=True)
    )
    return first[before].start(), mine, theirs


def _shown(text: str) -> str:
    return shortened(text, LONGEST)


def _bare(text: str) -> str:
    """Without spaces, and without parentheses around a name, a number or all of it."""
    text = re.sub(r"\s", "", text)
    while (less := _AROUND.sub(r"\1", text)) != text:
        text = less
    while text[:1] == "(" and all(text.count("(", 0, end) > text.count(")", 0, end) for end in range(1, len(text))):
        text = text[1:-1]
    return text


def _within(one: Statement) -> Statement:
    """A statement as what has it: a block has its own."""
    return one if one.kind == "block" else Statement("other", one.begin, one.end, [], [one], (), one.scope)


def _pairs(sides: Comparison, own: Node, other: Node) -> Iterator[tuple[Node, Node, bool]]:
    """The parts that stand for each other, and whether they are places."""
    if own.kind != other.kind or own.sign != other.sign:
        return
    if own.kind == "binary" and own.sign in ("+", "*", "&&", "||"):
        first, second = [*terms_of(own, own.sign)], [*terms_of(other, own.sign)]
        forms = [sides.other.form(each) for each in second]
        left = []
        for each in first:
            form = sides.own.form(each)
            if form in forms:
                place = forms.index(form)
                del forms[place], second[place]
            else:
                left.append(each)
        if len(left) == len(second) == 1:
            yield left[0], second[0], False
        elif len(left) == len(second):
            yield from ((one, two, False) for one, two in zip(left, second, strict=True))
    elif len(own.parts) == len(other.parts):
        for place, (one, two) in enumerate(zip(own.parts, other.parts, strict=True)):
            is_place = (own.kind == "unary" and own.sign == "&") or (own.kind in ("index", "member") and place == 0)
            yield one, two, is_place


def _aligned(first: Sequence[Kind], second: Sequence[Kind]) -> list[tuple[int, int]]:
    """The pairs of statements that stand for each other, in the order of both: the most similar ones."""
    best = [[0.0] * (len(second) + 1) for _ in range(len(first) + 1)]
    gains = [[_gain(one, other) for other in second] for one in first]
    for a in range(len(first) - 1, -1, -1):
        for b in range(len(second) - 1, -1, -1):
            best[a][b] = max(best[a + 1][b], best[a][b + 1], gains[a][b] + best[a + 1][b + 1] if gains[a][b] else 0.0)
    pairs, a, b = [], 0, 0
    while a < len(first) and b < len(second):
        if gains[a][b] and best[a][b] == gains[a][b] + best[a + 1][b + 1]:
            pairs.append((a, b))
            a, b = a + 1, b + 1
        elif best[a][b] == best[a + 1][b]:
            a += 1
        else:
            b += 1
    return pairs


def _gain(one: Kind, other: Kind) -> float:
    if one[0] != other[0]:
        return 0.0
    similar = likeness(one[1], other[1]) + OF_KIND
    return similar if similar >= SIMILAR else 0.0
