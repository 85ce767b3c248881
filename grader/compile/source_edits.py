"""The edits of a file's device functions: what the learner would type.

Those of expressions are in expression_edits. Here are those of statements: one that is too much, stands elsewhere or is
missing, another assignment, a name that is another one in several places.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from grader.compile.edit_writer import NOTHING_REFUSED, VARIABLE, WORD, Edited, Refused, Writer
from grader.compile.expression_edits import (
    LONGEST,
    MOST_TERMS,
    any_of,
    changed_words,
    found_in,
    is_similar,
    is_sum,
    kind_of,
    shortened,
)
from grader.compile.index_edits import formulas_of, offsets_of, strides_of
from grader.compile.lane_edits import all_lanes, all_members, exchanged_bits, lanes_instead, of_two_rows
from grader.compile.order_edits import Following
from grader.compile.source_tree import ASSIGNING, STEPS, Closure, Node, Statement, Tree, trees_of

MOST_FACTORS = 4  # elements that what is added to a sum is multiplied by
MOST_JOINT = 4  # in the place of a name that is replaced more than once
FARTHEST = 4  # statements over which one may move
BESIDE = 4  # lines over which a name is replaced in two expressions at once
_BOUND = re.compile(r"\bfor\s*\([^;]*;[^;<]*<\s*(\w+)\s*;")
_JUMPS = re.compile(r"\{?\s*(?:return|continue|break);\s*\}?$")
_ELEMENT = re.compile(r"\b([A-Za-z_]\w*)\[([^\[\]]+)\]")
_OTHER_ASSIGNING = {"=": ("+=",), "+=": ("=", "-="), "-=": ("+=",), "*=": ("=", "+="), "/=": ("*=",), "|=": ("=",)}


def edited(
    text: str, within: Collection[int], without: Refused = NOTHING_REFUSED, doubts: Mapping[int, float] | None = None
) -> Edited:
    """The edits of lines of ``within``, but those ``without`` which nvcc did not accept.

    Only the likeliest are there. The ``doubts`` of a line are added to the ranks of its edits.
    """
    writer, trees = Writer(text, frozenset(within) - without.lines, doubts or {}, without), trees_of(text)
    writer.used = frozenset(
        name for tree in trees for name in WORD.findall(writer.plain[tree.body.begin : tree.body.end])
    )
    for _ in range(2):  # the first time to see which of them are the likeliest
        for tree in trees:
            _Statements(writer, tree).function()
        if writer.chosen is None:
            writer.choose()
    return writer.edited()


class _Statements(Following):
    """Goes over a function, and gives its expressions and statements to the writer with their edits."""

    def __init__(self, writer: Writer, tree: Tree) -> None:
        super().__init__(writer, tree)
        self.sums = [*_sums(tree.body, self.plain)]  # targets of `+=`, with the loops around
        self.factors = [*_factors(tree.body, self.plain)]
        body = self.plain[tree.body.begin : tree.body.end]
        self.formulas = [*dict.fromkeys(formulas_of(tree.body, self.plain))]
        self.strides, self.offsets = strides_of(body), offsets_of(body)
        self.given_away = set[tuple[int, str]]()
        self.kept = set[str]()  # parameters whose first value is kept

    def function(self) -> None:
        """All edits of it: first those of several places at once."""
        self._together()
        self.statement(self.tree.body)

    def statement(self, one: Statement) -> None:
        if one.kind == "block":
            self._moved(one.parts)
            self._combined(one.parts)
        self._belonging(one)
        if one.kind == "loop":
            self._reset(one)
            self._given_again(one)
            self._spanned(one)
        if one.kind == "simple":
            self._simple(one)
        if one.kind == "if" and len(one.parts) == 1 and _JUMPS.match(self.of(one.parts[0])):
            self._instead(one, [(f"`{shortened(self.of(one))}` is left out", ";", 1)])
            if one.nodes[0].kind == "binary" and one.nodes[0].sign == "||":
                own, sides = shortened(self.of(one.nodes[0])), [*map(self.of, one.nodes[0].parts)]
                ways = [(f"`{own}` is `{shortened(side)}` alone", side, 1) for side in sides]
                self._wrap(one.nodes[0], ways, cast=False)
        self.is_head = one.kind == "loop"
        self.rounds = frozenset(_BOUND.findall(" ".join(map(self.of, one.parts)))) if self.is_head else frozenset()
        for node in one.nodes:
            if one.kind in ("declaration", "return") and not is_sum(node):
                self._scaled(node)
            if one.kind in ("declaration", "return"):
                self.with_unused(node)
            if one.kind == "declaration" and "*" in one.declared[0].type:
                self._shifted(node)
            elif one.kind == "declaration":
                self.with_offset(node)
            self.root(node, is_condition=one.kind == "if")
        self.is_head = False
        counter = STEPS.match(f"{self.of(one)} ") if one.kind == "loop" else None
        self.counters += [(counter[1], (counter[2] or "").strip())] if counter else []
        if counter is not None and (bound := _BOUND.search(self.of(one))):
            self.bounds[counter[1]] = bound[1]
        for part in one.parts:
            self.statement(part)
        del self.counters[len(self.counters) - bool(counter) :]

    def _belonging(self, one: Statement) -> None:
        """Statements and numbers that belong together."""
        if one.kind == "block":
            self.in_other_order(one.parts)
            self.covering(one.parts)
        if one.kind == "if":
            self.tied(one)
            self._numbered_twice(one)
        if one.kind == "loop":
            self.handed_over(one)

    def _numbered_twice(self, one: Statement) -> None:
        """The same sum of a condition and of the statement that it guards is another one in both."""
        if one.kind != "if" or not self.counters or len(one.parts) != 1:
            return
        found: dict[str, list[Node]] = {}
        for root in (*one.nodes, *_roots(one.parts[0])):
            for each in _of_signs(root, ("+",)):
                found.setdefault(self.of(each), []).append(each)
        for own, nodes in found.items():
            ways = self.numbered(nodes[0]) if len(nodes) > 1 and self._may_edit(nodes) else []
            for words, text, rank in ways:
                number = self.writer.new(nodes[0].begin, f"{words} everywhere", rank)
                for node in nodes if number else ():
                    self._around(node, f"({VARIABLE}=={number}u?(kata_t<decltype({own})>)({text}):", ")")

    def _shifted(self, node: Node) -> None:
        """A pointer that lacks a term."""
        own, names = self.of(node), {*WORD.findall(self.of(node))}
        others = [each.name for each in node.scope or () if kind_of(each) == "whole" and not each.is_fixed]
        chosen = [name for name in others if name not in names][:MOST_TERMS]
        self._wrap(node, [(changed_words(own, f"{own} + {name}"), f"{own} + {name}", 3) for name in chosen])

    def _simple(self, one: Statement) -> None:
        """It is too much, or its assignment is another; the sums are rescaled before it."""
        if len(one.nodes) != 1 or one.nodes[0].kind in ("name", "number", "string"):
            return
        node, own = one.nodes[0], self.of(one)
        alternatives = []
        if node.kind == "binary" and node.sign in ASSIGNING:
            left, right = map(self.of, node.parts)
            for sign in _OTHER_ASSIGNING.get(node.sign, ()):
                if self.type_of(node.parts[0], one.scope) in ("whole", "floating"):
                    alternatives.append((f"`{node.sign}` is `{sign}`", f"{left} {sign} {right};", 5))
            if node.sign == "=":
                alternatives += [*self._joined(node)]
                if node.parts[0].kind == "index":
                    self.relative(node.parts[1])
            if node.sign == "+=" and self.type_of(node.parts[0], one.scope) == "floating":
                alternatives += [*self._all_of_vector(node)]
                self._weighed(node.parts[1])
            is_kept = node.parts[1].kind == "call" and node.parts[1].sign in ("fmaxf", "max")
            if node.sign == "=" and (is_kept or node.parts[1].kind in ("name", "index", "member")):
                self._rescaled(one, left, right)
        if not re.search(r"sync|fence|barrier|commit|wait|arrive|cp_async", own):
            alternatives.append((f"`{shortened(own)}` is left out", ";", 2))
        self._instead(one, alternatives)

    def _all_of_vector(self, node: Node) -> Iterator[tuple[str, str, int]]:
        """All elements of a vector are added, where one is."""
        target, value = map(self.of, node.parts)
        if self.counters and self.counters[-1][1] not in ("", "1"):
            yield from all_lanes(target, value, *self.counters[-1])
        for vector in dict.fromkeys(re.findall(r"\b(\w+)\.x\b", value)):
            own = found_in(node.scope, vector)
            if own is not None and not own.dims and (size := re.fullmatch(r"float([234])", own.type)):
                yield from all_members(target, value, "xyzw"[: int(size[1])])
                return

    def _weighed(self, node: Node) -> None:
        """What is added to a sum is multiplied by an element that the function has of another array."""
        own, names = self.of(node), {*WORD.findall(self.of(node))}
        known = {each.name for each in node.scope or ()}
        body, first = self.plain, self.tree.body.begin
        found = sorted(
            _ELEMENT.finditer(body, first, self.tree.body.end), key=lambda one: abs(one.start() - node.begin)
        )
        elements = dict.fromkeys(
            one[0] for one in found if one[1] not in names and {*WORD.findall(one[0])} <= known and "[" not in one[2]
        )
        typed = [each for each in elements if self._is_floating_element(each.partition("[")[0], node)]
        ways = [(changed_words(own, f"{own} * {each}"), f"({own}) * {each}", 3) for each in typed]
        self._wrap(node, ways[:MOST_FACTORS])

    @staticmethod
    def _is_floating_element(name: str, node: Node) -> bool:
        own = found_in(node.scope, name)
        return own is not None and own.dims.count("[") + own.type.count("*") == 1 and "float" in own.type

    def _joined(self, node: Node) -> Iterator[tuple[str, str, int]]:
        """What was there is joined with what is assigned, by a function of two that the file has."""
        left, right = map(self.of, node.parts)
        kind = self.type_of(node.parts[0], node.scope)
        if kind == "floating":
            yield f"`{left}` is `fmaxf({left}, ...)`", f"{left} = fmaxf({left}, {right});", 5
        for name, returned in self.writer.returned.items():
            if kind == f"struct {returned}" and re.search(rf"\b{name}\(\s*{returned} \w+, {returned} \w+\)", self.text):
                for first, second in ((left, right), (right, left)):
                    yield (
                        changed_words(right, f"{name}({first}, {second})"),
                        f"{left} = {name}({first}, {second});",
                        3,
                    )

    def _instead(self, one: Statement, alternatives: Sequence[tuple[str, str, int]]) -> None:
        chosen = [
            (number, text) for words, text, rank in alternatives if (number := self.writer.new(one.begin, words, rank))
        ]
        if chosen:
            *firsts, (_, last) = chosen
            ways = "".join(f"if({VARIABLE}=={number}u){{{text}}}else " for number, text in firsts)
            self.writer.add(one.begin, f"{{if({any_of(chosen)}){{{ways}{{{last}}}}}else ", closes=False)
            self.writer.add(one.end, "}", closes=True)

    def _before(self, place: int, words: str, rank: int, text: str) -> None:
        """A statement more, between two."""
        if number := self.writer.new(place, words, rank):
            self.writer.add(place, f"if({VARIABLE}=={number}u){{{text}}}", closes=False)

    def _rescaled(self, one: Statement, left: str, right: str) -> None:
        """A sum is multiplied by what the file multiplies others by, or by the exponential of a maximum's growth."""
        if self.type_of(one.nodes[0].parts[0], one.scope) != "floating":
            return
        names = {*WORD.findall(left)}
        for target, loops in self.sums:
            if target == left:
                continue
            known = {each.name for each in one.scope or ()}
            around = "".join(f"{head} " for head, name in loops if name and name not in known)
            if not _is_known(target, known, loops):
                continue
            if any(name in names for _, name in loops if name and name in around):
                continue
            for factor in [*dict.fromkeys(each.format(f"{left} - {right}") for each in self.factors)][:3]:
                words = f"`{target} *= {factor};` stands before `{shortened(self.of(one))}`"
                self.next_to(one, words, 2, f"{around}{target} *= {factor};", "")

    def _moved(self, parts: Sequence[Statement]) -> None:
        """A statement stands further down or up in its block; a sum is rescaled by a factor that was computed."""
        for at, one in enumerate(parts):
            if one.kind == "declaration" or one.kind == "simple":
                self._rescaled_behind(one)
            if one.kind not in ("simple", "loop") or one.end - one.begin > LONGEST:
                continue
            own = self.of(one)
            if one.kind == "simple" and not re.search(r"[=(]", own):
                continue
            words, names, between = f"`{shortened(own)}` stands", {*WORD.findall(own)}, set[str]()
            for other in parts[at + 1 : at + FARTHEST]:
                if not _may_depend(own, self.of(other)):
                    continue
                is_next = other is parts[at + 1] and other.kind == one.kind == "simple"
                self._move(one, other.end, f"{words} behind `{shortened(self.of(other))}`", is_next=is_next)
            for other in parts[max(at - FARTHEST + 1, 0) : at][::-1]:
                between |= {each.name for each in other.declared}
                if names & between:
                    break
                if _may_depend(own, self.of(other)):
                    is_next = one.kind == "simple" and other is parts[at - 1] and other.kind == "if"
                    self._move(one, other.begin, f"{words} before `{shortened(self.of(other))}`", is_next=is_next)

    def _spanned(self, one: Statement) -> None:
        """A loop of shuffles goes over more lanes, or over fewer: those that have a row in common."""
        head = one.nodes[: 2 if "__shfl" in self.of(one) else 0]
        ends = [
            node.parts[1] if node.kind == "binary" and node.sign in ("<", "<=", ">", ">=") else node for node in head
        ]
        for node in ends:
            own = self.of(node)
            if own not in ("0", "1") and self.type_of(node, node.scope) == "whole":
                self._wrap(node, [*lanes_instead(own)])

    def _combined(self, parts: Sequence[Statement]) -> None:
        """What a lane or a thread has summed up is combined with that of the others, behind the loop that does it."""
        for one, after in zip(parts, (*map(self.of, parts[1:]), ""), strict=False):
            if one.kind != "loop" and (self.counters or one.kind not in ("simple", "if")):
                continue
            known = {each.name for each in one.scope or ()}
            for target in dict.fromkeys(self._summed(one)) if one.end - one.begin <= LONGEST else ():
                if not {*re.findall(r"(?<![\w.>])[A-Za-z_]\w*", target)} <= known:
                    continue
                for each in self.writer.combinations:
                    call = f"{target} = {each.of(target)};"
                    is_there = f"{each.name}(" in f"{self.of(one)} {after}" or each.known_at > self.tree.body.begin
                    if each.names <= known and not is_there:
                        words = f"`{call}` stands behind `{shortened(self.of(one))}`"
                        self._before(one.end, words, 2, call)

    def _summed(self, one: Statement) -> Iterator[str]:
        """The floats that it changes."""
        for node in one.nodes if one.kind == "simple" else ():
            if node.kind == "binary" and node.sign in ASSIGNING:
                target, value = map(self.of, node.parts)
                is_kept = node.sign != "=" or re.search(rf"(?<!\w){re.escape(target)}(?!\w)", value)
                if (is_kept or not self.counters) and self.type_of(node.parts[0], one.scope) == "floating":
                    yield target
        for part in one.parts:
            yield from self._summed(part)

    def _move(self, one: Statement, place: int, words: str, *, is_next: bool) -> None:
        if number := self.writer.new(one.begin, words, 3 if is_next else 7):
            self.writer.add(place, f"if({VARIABLE}=={number}u){{{self.of(one)}}}", closes=False)
            self.writer.add(one.begin, f"{{if({VARIABLE}!={number}u)", closes=False)
            self.writer.add(one.end, "}", closes=True)

    def _rescaled_behind(self, one: Statement) -> None:
        """Behind the statement that computes a factor ``exp(old - new)``."""
        node = one.nodes[-1] if one.nodes else None
        if node is None or not re.search(r"\w*exp\w*\(", self.of(one)):
            return
        if one.kind == "simple" and node.kind == "binary" and node.sign == "=":
            factor, value = self.of(node.parts[0]), node.parts[1]
        elif one.kind == "declaration" and len(one.declared) == 1:
            factor, value = one.declared[0].name, node
        else:
            return
        if value.kind != "call" or "exp" not in value.sign:
            return
        for target, loops in self.sums:
            known = {each.name for each in one.scope or ()} | {each.name for each in one.declared}
            if not _is_known(target, known, loops):
                continue
            around = "".join(f"{head} " for head, name in loops if name and name not in known)
            self._before(
                one.end,
                f"`{target} *= {factor};` stands behind `{shortened(self.of(one))}`",
                2,
                f"{around}{target} *= {factor};",
            )

    def _reset(self, one: Statement) -> None:
        """A variable of outside begins every round at 0."""
        body = one.parts[0] if one.parts else None
        if body is None or body.kind != "block" or one.scope is None:
            return
        used = {*WORD.findall(self.of(body))}
        changed = [name for name in WORD.findall(" ".join(target for target, _ in self.sums)) if name in used]
        own = [each for each in one.scope if each.name in changed and not each.is_const and "*" not in each.type]
        for each in own[:5]:
            has_size = "[]" not in each.dims.replace(" ", "")  # dynamic shared memory has none
            if has_size and not each.is_fixed and each not in self.tree.parameters:
                words = f"`{each.name}` is set to 0 at the start of each round of the loop"
                self._before(body.begin + 1, words, 2, f"kata_zero({each.name});")

    def _given_again(self, one: Statement) -> None:
        """A parameter that the loop changes begins every round with what the function was given."""
        body = one.parts[0] if one.parts else None
        if body is None or body.kind != "block":
            return
        for each in self.tree.parameters:
            is_value = not re.search(r"[*&]", each.type) and not each.dims and not each.is_const and not each.is_fixed
            if not is_value or not _changes_part(self.of(body), each.name):
                continue
            kept = f"kata_given_{each.name}"
            words = f"`{each.name}` is what the function is given, at the start of each round of the loop"
            if number := self.writer.new(body.begin + 1, words, 1):
                if each.name not in self.kept:
                    self.writer.add(self.tree.body.begin + 1, f"const auto {kept}={each.name};", closes=False)
                self.kept.add(each.name)
                text = f"if({VARIABLE}=={number}u){{{each.name}={kept};}}"
                self.writer.add(body.begin + 1, text, closes=False)

    # -- several places at once ---------------------------------------------------------------------------------------

    def _together(self) -> None:
        """Edits of two places: a name that is another one in both, and two operators that are exchanged."""
        roots = [(root, [*self._names(root)]) for root in _roots(self.tree.body)]
        for place, (root, names) in enumerate(roots):
            self._joint(root, names)
            self._signs(root, root)
            self._rounded(roots, place)
            self._matrices(root, root)
            line, met = self.writer.line_at(root.end), set[str]()
            for other, more in roots[place + 1 : place + 1 + BESIDE]:
                if self.writer.line_at(other.begin) > line + BESIDE:
                    break
                common = {each.sign for each in names} & {each.sign for each in more} - met
                self._joint(root, [each for each in (*names, *more) if each.sign in common], other)
                self._signs(root, other)
                self._rows(root, other)
                self._offsets(root, other)
                self._registers(root, other)
                self._matrices(root, other)
                met |= common

    def _rounded(self, roots: Sequence[tuple[Node, list[Node]]], place: int) -> None:
        """The quotients of a run of lines are all rounded up."""
        own = [*self._quotients(roots[place][0])]
        if not own or (place and [*self._quotients(roots[place - 1][0])]):
            return
        run = [own[0]]
        for root, _ in roots[place + 1 :]:
            found = [*self._quotients(root)]
            if not found or self.writer.line_at(root.begin) > self.writer.line_at(run[-1].begin) + BESIDE:
                break
            run += found[:1]
        lines = [self.writer.line_at(node.begin) for node in run]
        if len(run) < 2 or lines[0] == lines[-1] or not self._may_edit(run):
            return
        number = self.writer.new(run[0].begin, f"the quotients of lines {lines[0]} to {lines[-1]} are rounded up", 1)
        for node in run if number else ():
            left, right = map(self.of, node.parts)
            kind = f"(kata_t<decltype({self.of(node)})>)"
            self._around(node, f"({VARIABLE}=={number}u?{kind}((({left})+({right})-1)/({right})):", ")")

    def _quotients(self, root: Node) -> Iterator[Node]:
        """The root, where it is a quotient of sizes."""
        is_quotient = root.kind == "binary" and root.sign == "/" and root.parts[1].kind == "name"
        if is_quotient and all(self.type_of(part, root.scope) == "whole" for part in root.parts):
            yield root

    def _rows(self, root: Node, other: Node) -> None:
        """Two numbers, of a row and of the one 8 below, go to the sums two and two."""
        one, two = self.of(root), self.of(other)
        counter = next((name for name in re.findall(r"\[(\w+)\]", one) if f"[{name} + 1]" in two), "")
        if "mma" not in self.text or not counter:
            return
        for first in _named(root):
            for second in _named(other):
                own, next_ = found_in(first.scope, first.sign), found_in(second.scope, second.sign)
                if own is None or next_ is None or own == next_ or {kind_of(own), kind_of(next_)} != {"floating"}:
                    continue
                if not self._may_edit((first, second)):
                    continue
                which = of_two_rows(own.name, next_.name, counter)
                words = f"`{own.name}` here and `{next_.name}` on line {self.writer.line_at(second.begin)} are"
                number = self.writer.new(first.begin, f"{words} both `{which[1:-1]}`", 1)
                for node in (first, second) if number else ():
                    self._around(node, f"({VARIABLE}=={number}u?{which}:", ")")

    def _registers(self, root: Node, other: Node) -> None:
        """Two calls of a function that takes registers of one array: each has one of the other's."""
        if not root.kind == other.kind == "call" or root.sign != other.sign:
            return
        pairs = [[part for part in node.parts if _is_register(part)] for node in (root, other)]
        for first in pairs[0]:
            for second in pairs[1]:
                if self.of(first.parts[0]) == self.of(second.parts[0]):
                    words = f"`{self.of(first)}` and `{self.of(second)}` of line {self.writer.line_at(second.begin)}"
                    self._exchange(first, second, 1, f"{words} are exchanged")

    def _matrices(self, root: Node, other: Node) -> None:
        """Row and column that a lane gives ldmatrix are those of the second matrix for the third, and the reverse."""
        if "ldmatrix" not in self.text:
            return
        roots = [root] if other is root else [root, other]
        parts = [[each for sign in "/%" for each in _of_signs(one, (sign,)) if self._is_lane(each)] for one in roots]
        if not all(parts) or sum(map(len, parts)) < 2:
            return
        nodes = [each.parts[0] for part in parts for each in part]
        if not self._may_edit(nodes):
            return
        there = f" here and on line {self.writer.line_at(other.begin)}" if other is not root else ""
        words = (
            f"the addresses of lanes 8 to 15 and of lanes 16 to 23 are exchanged{there}: the second and third matrix"
        )
        number = self.writer.new(root.begin, words, 1)
        for node in nodes if number else ():
            own = self.of(node)
            self._around(node, f"({VARIABLE}=={number}u?({exchanged_bits(own)}):", ")")

    def _is_lane(self, node: Node) -> bool:
        """Whether a quotient or remainder is of a lane's number."""
        name = node.parts[0].sign if node.parts[0].kind == "name" else ""
        made = rf"\b{name}\s*=\s*threadIdx\.x\s*%" if name else r"(?!)"
        return re.search(made, self.plain[self.tree.body.begin : node.begin]) is not None

    def _offsets(self, root: Node, other: Node) -> None:
        """What is added to two pointers counts elements, and they point to vectors of so many."""
        if root.kind != "binary" or not root.sign == other.sign == "+" or "_cast<" not in self.of(root.parts[0]):
            return
        first, second = (each.parts[1] for each in (root, other))
        own = self.of(first)
        if self.of(second) != own or self.type_of(first, root.scope) != "whole" or not self._may_edit((first, second)):
            return
        for by in ("2", *self._constants(root)):
            words = f"`{own}` is `{own} / {by}` here and on line {self.writer.line_at(second.begin)}"
            number = self.writer.new(first.begin, words, 1)
            for node in (first, second) if number else ():
                self._around(node, f"({VARIABLE}=={number}u?({own})/({by}):", ")")

    def _names(self, node: Node) -> Iterator[Node]:
        """The variables in an expression that are whole numbers and not set there."""
        if node.kind == "name":
            if kind_of(found_in(node.scope, node.sign)) == "whole":
                yield node
            return
        is_setting = (node.kind == "binary" and node.sign in ASSIGNING) or node.kind == "after"
        is_setting |= node.kind == "unary" and node.sign in ("++", "--", "&")
        takes = node.kind == "call" and self._takes_places(node)
        for place, part in enumerate(node.parts):
            if not (part.kind == "name" and ((is_setting and place == 0) or takes)):
                yield from self._names(part)

    def _joint(self, root: Node, names: Sequence[Node], other: Node | None = None) -> None:
        """A name that stands twice or more is another one everywhere; and so are those that are like it."""
        present = dict.fromkeys(each.sign for each in names)
        scope = names[0].scope if names else None
        for name in present:
            own = found_in(scope, name)
            others = self._others(own, names[0])[:MOST_JOINT] if own is not None else []
            for text, rank in others:
                is_near = name.startswith(text) or text.startswith(name) or is_similar(name, text)
                if not (own is not None and own.is_fixed) and not is_near:
                    continue
                similar = {
                    one: two
                    for one in present
                    if one != name and (two := _similar(name, text, one)) and found_in(scope, two)
                }
                for changed in ({name: text}, {name: text, **similar})[: 1 + bool(similar)]:
                    self._replace([each for each in names if each.sign in changed], changed, rank + (other is not None))

    def _replace(self, nodes: Sequence[Node], changed: dict[str, str], rank: int) -> None:
        """Each name by what is said for it, where all of that is visible."""
        if len(nodes) < 2 or not self._may_edit(nodes):
            return
        if not all(found_in(node.scope, changed[node.sign]) or "." in changed[node.sign] for node in nodes):
            return
        words = " and ".join(f"`{one}` is `{other}`" for one, other in changed.items())
        lines = sorted({self.writer.line_at(node.begin) for node in nodes})
        where = "everywhere in this line" if len(lines) == 1 else f"here and on line {lines[-1]}"
        number = self.writer.new(nodes[0].begin, f"{words} {where}", rank)
        for node in nodes if number else ():
            text = f"(kata_t<decltype({node.sign})>)({changed[node.sign]})"
            self._around(node, f"({VARIABLE}=={number}u?{text}:", ")")

    def _signs(self, root: Node, other: Node) -> None:
        """``i / 2`` and ``i % 2`` are exchanged."""
        for one in _of_signs(root, ("/", "%")):
            for two in _of_signs(other, ("/", "%")):
                same = [*map(self.of, one.parts)] == [*map(self.of, two.parts)]
                if same and one.sign != two.sign and one.begin < two.begin:
                    lines = [self.writer.line_at(each.begin) for each in (one, two)]
                    words = f"`{self.of(one)}` and `{self.of(two)}` of line {lines[1]} are exchanged"
                    self._exchange(one, two, 1, words if lines[0] != lines[1] else "")


def _similar(name: str, other: str, third: str) -> str:
    """What a third name becomes where ``name`` becomes ``other``: ``H``, for ``OH`` and ``OW``, is ``W``."""
    first = _common(name, other)
    last = _common(name[first:][::-1], other[first:][::-1])
    one, two = name[first : len(name) - last], other[first : len(other) - last]
    if not one or not two or one not in third or third.replace(one, two) == third:
        return ""
    return third.replace(one, two)


def _common(one: str, other: str) -> int:
    """The letters that two names begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _is_register(node: Node) -> bool:
    return node.kind == "index" and node.parts[1].kind == "number" and node.parts[0].kind == "name"


def _roots(one: Statement) -> Iterator[Node]:
    """The expressions of a function's statements, as they follow each other; not the heads of loops."""
    if one.kind in ("simple", "declaration", "return", "if"):
        for node in one.nodes:
            yield node
            for closure in _closures(node):
                yield from _roots(closure)
    for part in one.parts:
        yield from _roots(part)


def _closures(node: Node) -> Iterator[Statement]:
    if isinstance(node, Closure) and node.body is not None:
        yield node.body
    for part in node.parts:
        yield from _closures(part)


def _named(node: Node) -> Iterator[Node]:
    if node.kind == "name":
        yield node
    for part in node.parts:
        yield from _named(part)


def _of_signs(node: Node, signs: Collection[str]) -> Iterator[Node]:
    if node.kind == "binary" and node.sign in signs:
        yield node
    for part in node.parts:
        yield from _of_signs(part, signs)


def _may_depend(one: str, other: str) -> bool:
    """Whether two statements have a name in common that one of them may change."""
    common = {*WORD.findall(one)} & {*WORD.findall(other)}
    return any(_changes(each, name) for name in common for each in (one, other))


def _changes(text: str, name: str) -> bool:
    assigned = rf"(?<![\w.]){name}\b(?:\s*(?:\[[^\]]*\]|\.\w+))*\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)"
    pattern = rf"{assigned}|\w+(?:<[^<>;]*>)?\([^;]*\b{name}\b"
    return re.search(pattern, text) is not None


def _changes_part(text: str, name: str) -> bool:
    """Whether a statement sets a variable, or a member of it."""
    return re.search(rf"(?<![\w.]){name}(?:\.\w+)?\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)", text) is not None


def _is_known(target: str, known: Collection[str], loops: Sequence[tuple[str, str]]) -> bool:
    """Whether all names of an expression are visible, or variables of the loops that are put around it."""
    names = {*re.findall(r"(?<![\w.>])[A-Za-z_]\w*", target)}
    return names <= {*known, *(name for _, name in loops)}


def _sums(
    one: Statement, text: str, loops: tuple[tuple[str, str], ...] = ()
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """What statements of a function add to, each with the heads of the loops around it and their variables."""
    if one.kind == "loop" and one.parts:
        name = one.declared[0].name if one.declared else ""
        loops = (*loops, (" ".join(text[one.begin : one.parts[0].begin].split()), name))
    for node in one.nodes if one.kind == "simple" else ():
        if node.kind == "binary" and node.sign == "+=" and node.parts[0].kind in ("name", "index", "member"):
            target = " ".join(text[node.parts[0].begin : node.parts[0].end].split())
            used = {*WORD.findall(target)}
            yield target, tuple(loop for loop in loops if loop[1] in used)
    for part in one.parts:
        yield from _sums(part, text, loops)


def _factors(one: Statement, text: str) -> Iterator[str]:
    """``__expf({})``: how the function takes the exponential of a difference."""
    body = text[one.begin : one.end]
    for match in re.finditer(r"\b(\w*exp\w*)\(", body):
        inner = re.match(r"\s*(\w+)\s*\*\s*\(", body[match.end() :])
        yield f"{match[1]}({inner[1]} * ({{}}))" if inner else f"{match[1]}({{}})"
