"""An expression of a device function -> edits of it: another name, number or operator, one term or factor more or less,
another function, two arguments or indices exchanged."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from grader.compile.edit_writer import VARIABLE, WORD, Writer
from grader.compile.index_edits import Formula, of_other_lines, of_strides
from grader.compile.lane_edits import (
    REGISTERS,
    accurate,
    lanes_instead,
    nearest_bit,
    of_bits,
    of_counter,
    of_neighbour,
    of_quotient,
    of_register,
    of_row,
)
from grader.compile.source_tree import ASSIGNING, WHOLE, Closure, Node, Scope, Statement, Tree, Variable

MOST_NAMES = 12  # in the place of one
LIKELY_NAMES = 4  # of them
MOST_BUILTIN = 4  # of them such as `threadIdx.x`
MOST_TERMS = 6  # that are added to one
MOST_FACTORS = 6  # that one is multiplied or divided by
MOST_PAIRS = 6  # elements of a list of which any two may be exchanged; of longer ones those that are neighbours
SHUFFLED = 2  # the argument of a shuffle that says how far
LONGEST = 240  # characters of an expression that is edited as a whole
MOST_FLOATS = 3  # that an element is multiplied by
DIFFERING = 12  # letters of a shortened text, from the first that differs
_AXES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_FLOATING = {"float", "double"}
_OTHER_SIGNS = {
    "+": ("-", "*"),
    "-": ("+",),
    "*": ("+", "/"),
    "/": ("*", "%"),
    "%": ("/",),
    "<": ("<=", ">", ">="),
    "<=": ("<", ">=", ">"),
    ">": (">=", "<", "<="),
    ">=": (">", "<=", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "&&": ("||",),
    "||": ("&&",),
    "^": ("|", "&"),
    "|": ("&", "^"),
    "&": ("|", "^"),
    "<<": (">>",),
    ">>": ("<<",),
}
_OF_TWO = ("fmaxf", "fminf", "max", "min")
_ZEROS, _LOWEST = ("0.0f", "0.f"), "-3.402823466e+38f"
_COMPARING = ("<", "<=", ">", ">=", "==", "!=")
_OTHER_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "expf": ("exp2f",),
    "__expf": ("exp2f",),
    "exp2f": ("expf",),
    "logf": ("log2f", "log10f"),
    "__logf": ("__log2f",),
    "log2f": ("logf",),
    "__log2f": ("__logf",),
    "log10f": ("logf",),
    "sqrtf": ("rsqrtf",),
    "rsqrtf": ("sqrtf",),
    "min": ("max",),
    "max": ("min",),
    "fminf": ("fmaxf",),
    "fmaxf": ("fminf",),
    "floorf": ("ceilf", "rintf"),
    "ceilf": ("floorf",),
    "rintf": ("floorf", "roundf"),
    "roundf": ("rintf",),
    "expm1f": ("expf",),
    "log1pf": ("logf",),
}
_BUILTIN = re.compile(r"\b(?:threadIdx|blockIdx|blockDim|gridDim)\.[xyz]\b")
_WIDE = re.compile(r"\b(?:u?int64_t|long|size_t)\b")
_STEP = re.compile(r"\b(\w+)\s*\+=\s*([A-Z][A-Z0-9_]*(?:<\w+>)?)\s*\)")
_NEGATED = {  # type -> its negative
    **dict.fromkeys(("half", "__half", "__nv_bfloat16"), "__hneg({})"),
    **dict.fromkeys(("half2", "__half2", "__nv_bfloat162"), "__hneg2({})"),
}
_VECTOR = re.compile(r"(float|double|int|uint|short|ushort|char|uchar)([234])$")


class Expressions(ABC):
    """Goes over the expressions of a function, and gives them to the writer with their edits."""

    def __init__(self, writer: Writer, tree: Tree) -> None:
        self.writer, self.tree, self.text = writer, tree, writer.text
        self.plain = writer.plain
        self.is_head = False  # of a loop: there another variable often ends nothing
        self.is_compared = False  # with a constant: another constant would always give the same
        self.is_index = False
        self.rounds: frozenset[str] = frozenset()  # what loops inside the one whose head this is count up to
        self.counters: list[tuple[str, str]] = []  # of the loops around: variable, and what is added to it each round
        self.bounds: dict[str, str] = {}  # variable of a loop -> what it counts up to
        self.formulas: Sequence[Formula] = ()  # that the function computes with variables of loops
        self.strides: Sequence[str] = ()  # of the elements of a thread
        self.offsets: Sequence[str] = ()  # that the function adds to pointers
        self.facing: tuple[Node, str] | None = None  # a part, and what it is compared with, subtracted from, divided by
        body = self.plain[tree.body.begin : tree.body.end]
        self.builtin = [*dict.fromkeys(["blockDim.x", *_BUILTIN.findall(body)])][:MOST_BUILTIN]
        self.given = {  # name -> the builtin variable that its value has, or the first of several
            found[1]: found[2] for found in re.finditer(rf"\b(\w+)\s*=[^;=]*?({_BUILTIN.pattern})", body)
        }
        self.used = Counter(WORD.findall(body))
        self.steps: dict[str, dict[str, None]] = {}  # of loops: variable -> constants that are added to it
        for found in _STEP.finditer(body):
            self.steps.setdefault(found[1], {})[found[2]] = None
        self.forgotten = {  # constants that no device function uses, although the file has them for some purpose
            each.name
            for each in tree.body.scope or ()
            if each.is_fixed and each not in tree.parameters and each.name not in writer.used
        }
        self.unused = [each for each in tree.parameters if not self.used[each.name]]
        self.divisors = {*re.findall(r"[/%]\s*([A-Za-z_]\w*)", body)}

    def of(self, node: Node | Statement) -> str:
        """Its text in one line, without comments and directives: what is added adds no line to the file."""
        return " ".join(self.plain[node.begin : node.end].split())

    @abstractmethod
    def statement(self, one: Statement) -> None:
        """All edits of a statement: a lambda has some."""

    def root(self, node: Node, *, is_condition: bool = False) -> None:
        """An expression, with all that is in it."""
        if is_condition:
            own = self.of(node)
            ways = [(f"`{own}` holds always", "true", 9), (f"`{own}` is `!({own})`", f"!({own})", 6)]
            self._wrap(node, [*ways, *self._with_nan(node)], cast=False)
        self.node(node)

    def node(self, node: Node, *, is_set: bool = False) -> None:
        """``is_set``: it stands for a place, which is written."""
        kind = node.kind
        if isinstance(node, Closure) and node.body is not None:
            self.statement(node.body)
        elif kind == "name":
            self._name(node, is_set=is_set)
        elif kind == "number":
            self._number(node)
        elif kind == "binary":
            self._binary(node)
        elif kind == "choice":
            self._choice(node)
        elif kind in ("call", "list", "index", "member"):
            getattr(self, f"_{kind}")(node, is_set=is_set)
        elif kind == "unary":
            self._unary(node, is_set=is_set)
        elif kind == "after":
            pass
        else:
            for part in node.parts:
                self.node(part, is_set=is_set)

    def _wrap(self, node: Node, alternatives: Sequence[tuple[str, str, int]], *, cast: bool = True) -> None:
        """An expression, or one of others of its type."""
        own = self.of(node)
        if len(own) > LONGEST or (cast and "[&" in own):
            return
        kind = f"(kata_t<decltype({own})>)" if cast else ""
        chosen = [
            (number, text)
            for words, text, rank in alternatives
            if text != own and (node, text) != self.facing and (number := self.writer.new(node.begin, words, rank))
        ]
        if chosen:
            *firsts, (_, last) = chosen
            ways = "".join(f"{VARIABLE}=={number}u?{kind}({text}):" for number, text in firsts)
            self._around(node, f"({any_of(chosen)}?({ways}{kind}({last})):", ")")

    def _around(self, node: Node, before: str, behind: str) -> None:
        self.writer.add(node.begin, before, closes=False, other=node.end)
        self.writer.add(node.end, behind, closes=True, other=node.begin)

    def _exchange(self, first: Node, second: Node, rank: int, words: str = "", *, cast: bool = True) -> None:
        one, other = self.of(first), self.of(second)
        if one == other or len(one) + len(other) > LONGEST or "[&" in one + other:
            return
        if not self._may_edit((first, second)):
            return
        number = self.writer.new(first.begin, words or f"`{one}` and `{other}` are exchanged", rank)
        for node, own, text in ((first, one, other), (second, other, one)) if number else ():
            kind = f"(kata_t<decltype({own})>)" if cast else ""
            self._around(node, f"({VARIABLE}=={number}u?{kind}({text}):", ")")

    def _may_edit(self, nodes: Sequence[Node]) -> bool:
        """Whether all of them are on lines that are edited."""
        return all(self.writer.line_at(node.begin) in self.writer.lines for node in nodes)

    def _name(self, node: Node, *, is_set: bool) -> None:
        own = found_in(node.scope, node.sign)
        if own is None:
            if node.sign in ("INFINITY", "FLT_MAX"):
                self._wrap(node, [(f"`{node.sign}` is `{text}`", text, 4) for text in ("0.0f", f"(-{node.sign})")])
            return
        others = self._others(own, node, is_set=is_set)
        ways = [(f"`{own.name}` is `{name}`", name, rank) for name, rank in others]
        if kind_of(own) == "whole" and not own.is_fixed and not is_set and not self.is_head:
            head = re.match(rf"[^;{{}}]*;[^;{{}}]*;\s*{own.name}\s*\+=", self.plain[own.at : own.at + LONGEST])
            steps = self.steps.get(own.name, {}) if head is None else ()
            ways += [(f"`{own.name}` is `{own.name} / {by} * {by}`", f"{own.name} / {by} * {by}", 2) for by in steps]
        self._wrap(node, ways, cast=kind_of(own) in ("whole", "floating") and not is_set)
        if not is_set and not self.is_head:
            self._wrap(node, [*self._recomputed(own, node)])

    def _recomputed(self, own: Variable, node: Node) -> Iterator[tuple[str, str, int]]:
        """What was computed once is computed here, of a variable that is visible only now."""
        made = re.compile(rf"\bconst \w+ {own.name}\s*=([^;{{}}]+);").search(self.plain, own.at - LONGEST, node.begin)
        if made is None or not own.is_const or kind_of(own) not in ("whole", "floating"):
            return
        value = " ".join(made[1].split())
        later = [each for each in node.scope or () if each.at > own.at and kind_of(each) == "whole"]
        earlier = [each.name for each in node.scope or () if each.at < own.at and kind_of(each) == "whole"]
        for name in [name for name in earlier if re.search(rf"(?<![\w.]){name}\b", value) and name in self.given]:
            for other in later[:MOST_BUILTIN]:
                text = re.sub(rf"(?<![\w.]){name}\b", other.name, value)
                yield f"`{own.name}` is `{shortened(text)}`", text, 2

    def _others(self, own: Variable, node: Node, *, is_set: bool = False) -> list[tuple[str, int]]:
        """What may stand in the place of a variable, the likeliest first, each with its rank."""
        kind = kind_of(own)
        others = [each for each in node.scope or () if each.name != own.name and kind_of(each) == kind]
        others = [each for each in others if not self._is_unlikely(each, own, node)]
        if kind not in ("whole", "floating"):
            shape = (own.type, own.dims, own.is_const)
            same = [each.name for each in others if (each.type, each.dims, each.is_const) == shape][:MOST_NAMES]
            return [(name, 1 if is_qualified(name, own.name) else 3) for name in same]
        if is_set:
            same = [each.name for each in others if each.type == own.type and not each.is_const and not each.is_fixed]
            return [(name, 7 if kind == "floating" else 3) for name in same[:MOST_NAMES]]
        asked = self.writer.asked_for(node.begin)
        others.sort(
            key=lambda each: (
                not is_similar(each.name, own.name),
                each.is_fixed != own.is_fixed,
                each.name not in self.forgotten and each.name not in asked,
                not self.used[each.name],
                abs(each.at - own.at),
            )
        )
        found = [
            (each.name, 2 if each.name in asked else self._rank_of(each, own) + (place >= LIKELY_NAMES))
            for place, each in enumerate(others[:MOST_NAMES])
        ]
        if kind == "whole":
            sizes = [each for each in self.builtin if "Dim." in each]
            rank = 2 if own.is_fixed and self.used[own.name] == 1 else 4
            found += [(each, rank) for each in (sizes if own.is_fixed else self.builtin)]
        return found

    def _is_unlikely(self, one: Variable, own: Variable, node: Node) -> bool:
        """Whether one variable in the place of another would be right by chance alone: a constant for another that has
        nothing to do with it, or where a condition would then always be the same."""
        if not one.is_fixed or one.name in self.writer.asked_for(node.begin) or self.writer.count[one.name] == 1:
            return False  # the last has no other use
        known = self.writer.relatives.get(own.name)
        if own.is_fixed and known is not None and one.name in self.writer.relatives and one.name not in known:
            return True
        return self.is_compared and not own.is_fixed

    def _rank_of(self, one: Variable, own: Variable) -> int:
        """The rank of one variable in the place of another of its kind."""
        if kind_of(own) == "floating":
            return 5 if is_similar(one.name, own.name) else 7
        if is_similar(one.name, own.name) and not self.is_head:
            return 2
        if own.is_fixed and one.name in self.forgotten:
            return 2
        if own.is_fixed and self.used[own.name] == 1 and self.used[one.name] and one.is_fixed:
            return 2  # that the function does not use elsewhere
        return 4 if own.is_fixed or one.is_fixed or self.is_head else 3

    def _number(self, node: Node) -> None:
        text = node.sign
        if re.fullmatch(r"\d+", text):
            value = int(text)
            others = [2 * value, value // 2]
            others = [value + 1, value - 1, *others, 0, 1, 2, 4, 8, 16, 32] if value <= 64 else others
            named = [
                each.name for each in node.scope or () if each.is_fixed == (value > 1) and kind_of(each) == "whole"
            ]
            chosen = [*dict.fromkeys(str(each) for each in others if each >= 0), *named[:MOST_TERMS]]
            ways = [(f"`{text}` is `{each}`", each, 4 if place < 4 else 6) for place, each in enumerate(chosen)]
            self._wrap(node, ways)
        elif text.endswith(("f", "F")) and self.type_of(node, node.scope) == "floating":
            reals = ["0.0f", "1.0f", "-1.0f", f"(2.0f * {text})", f"(0.5f * {text})", "(-1.0f / 0.0f)"]
            named = [each.name for each in node.scope or () if kind_of(each) == "floating"]
            chosen = [*reals, *named[:MOST_TERMS]]
            self._wrap(node, [(f"`{text}` is `{each.strip('()')}`", each, 5) for each in chosen])

    def _unary(self, node: Node, *, is_set: bool) -> None:
        part = node.parts[0]
        if node.sign in ("++", "--"):
            return
        if node.sign in ("-", "!") and self.type_of(node, node.scope) in ("whole", "floating"):
            self._wrap(node, [(f"`{self.of(node)}` is `{self.of(part)}`", self.of(part), 6)])
        self.node(part, is_set=is_set or node.sign == "&")

    @abstractmethod
    def relative(self, value: Node) -> None:
        """A number that is relative to another maximum: see `Following`."""

    @abstractmethod
    def tied_members(self, node: Node) -> None:
        """One of two structs that are equal in what chooses between them: see `Following`."""

    def _choice(self, node: Node) -> None:
        condition, first, _ = node.parts
        self.tied_members(node)
        text = self.of(condition)
        if number := self.writer.new(condition.begin, f"`{text}` is `!({text})`", 5):
            self._around(condition, f"(({VARIABLE}=={number}u)!=bool(", "))")
        if number := self.writer.new(condition.begin, f"`{shortened(self.of(node))}` is always `{self.of(first)}`", 9):
            self._around(condition, f"({VARIABLE}=={number}u||", ")")
        self._wrap(condition, [*self._with_nan(condition)], cast=False)
        for part in node.parts:
            self.node(part)

    def _with_nan(self, condition: Node) -> Iterator[tuple[str, str, int]]:
        """A comparison that says of nan what it is to say: by itself it is false."""
        own = self.of(condition)
        names = dict.fromkeys(WORD.findall(own)) if re.search(r"[<>]", own) else {}
        for name in [name for name in names if kind_of(found_in(condition.scope, name)) == "floating"][:2]:
            yield f"`{own}` is `{own} || isnan({name})`", f"({own}) || {name} != {name}", 6
            yield f"`{own}` is `{own} && !isnan({name})`", f"({own}) && {name} == {name}", 6

    def _binary(self, node: Node) -> None:
        left, right = node.parts
        if node.sign in ASSIGNING:
            self.node(left, is_set=True)
            self._wrap(right, [*self._wide_shift(left, right)], cast=False)
            if node.sign == "=":
                self.with_unused(right)
            self.root_value(right)
            return
        kinds = {self.type_of(left, node.scope), self.type_of(right, node.scope)}
        self._wrap(node, [*self._unsigned(node)])
        self._wrap(node, self.numbered(node) if kinds == {"whole"} else [])
        if kinds <= {"whole", "floating", "truth"}:
            self._wrap(node, [*self._operators(node, is_whole=kinds == {"whole"})])
        if node.sign == "+" and left.kind == "binary" and left.sign == "+" and self._is_pointer(left.parts[0]):
            self._wrap(node, [*self._transposed(node)])
        if node.sign == "+" and self._is_pointer(left) and self.type_of(right, node.scope) == "whole":
            self._wrap(node, [(f"`{shortened(self.of(node))}` is `{self.of(left)}` alone", self.of(left), 3)])
        if node.sign in ("+", "-"):
            for part in (left, right):
                if not is_sum(part):
                    self._scaled(part)
        if node.sign in ("/", "%"):
            self._divisor(right)
            if kinds == {"whole"} and self._is_place(left) and self._is_few(right):
                self._wrap(node, [*of_quotient(self.of(left), node.sign, self.of(right))])
        self._of_sign(node)
        if node.sign in _COMPARING and self.counters and "mma" in self.text:
            for part in node.parts:
                self._row_of_register(node, part)
        if node.sign in ("*", "/", "%") and kinds == {"whole"} and left.kind in ("name", "member", "index", "group"):
            self._wrap(left, [*self._remainders(left, 3 if node.sign == "/" else 4)])
        if node.sign in ("&&", "||") and all(part.kind == "binary" and part.sign in _COMPARING for part in node.parts):
            self._exchange(left.parts[1], right.parts[1], 2)
        for part, other in ((left, right), (right, left)):
            before, self.is_compared = self.is_compared, node.sign in _COMPARING and self._is_fixed(other)
            if node.sign in (*_COMPARING, "-", "/", "%"):
                self.facing = part, self.of(other)
            self.node(part)
            self.is_compared, self.facing = before, None

    def _with_digit(self, node: Node) -> Iterator[tuple[str, str, int]]:
        """In ``a * heads * dim`` the number of the head is missing: ``(a * heads + head) * dim``."""
        own, size = self.of(node), node.parts[1]
        names = {*WORD.findall(own)}
        for each in node.scope or () if size.kind == "name" else ():
            is_digit = kind_of(each) == "whole" and not each.is_fixed and is_similar(each.name, size.sign)
            if is_digit and each.name not in names:
                yield f"`{own}` is `{own} + {each.name}`", f"{own} + {each.name}", 1

    def _of_sign(self, node: Node) -> None:
        """The remainder of a loop's counter, the part of a swizzle that has the bits of a row, and a number in a
        product of which a digit is missing."""
        first = node.parts[0]
        if node.sign == first.sign == "*" and first.kind == "binary" and self.type_of(first, node.scope) == "whole":
            self._wrap(first, [*self._with_digit(first)])
        self._wrap(node, [way for of in (accurate, nearest_bit) for way in of(node.sign, *map(self.of, node.parts))])
        if node.sign == "%":
            left, right = map(self.of, node.parts)
            for counter, step in self.counters if node.parts[0].kind == "name" else ():
                if counter == left:
                    self._wrap(node, [*of_counter(self.of(node), counter, step, right)])
        for part in node.parts if node.sign == "^" else ():
            inner = ungrouped(part)
            if inner.kind == "binary" and inner.sign in ("/", "%") and inner.parts[1].kind == "number":
                first = inner.parts[0]
                is_shifted = first.kind == "binary" and first.sign == "/" and first.parts[1].kind == "number"
                self._wrap(inner, [*of_bits(self.of(first.parts[0] if is_shifted else first), self.of(inner))])

    def _multiples(self, node: Node) -> Iterator[tuple[str, str, int]]:
        """A quotient that is rounded up to a multiple of a constant: of one that the TODO names first."""
        own, asked = self.of(node), self.writer.asked_for(node.begin)
        for name in self._constants(node)[:MOST_FACTORS]:
            rank = 1 if name in asked else 5
            words = f"`{shortened(own)}` is rounded up to a multiple of `{name}`"
            yield words, f"(({own}) + ({name}) - 1) / ({name}) * ({name})", rank

    def _unsigned(self, node: Node) -> Iterator[tuple[str, str, int]]:
        """A signed number of 32 bits that is joined with another one shifted by 32: its sign would fill those bits."""
        left, right = node.parts
        own = found_in(right.scope, right.sign) if right.kind == "name" else None
        if node.sign in ("|", "+", "^") and own is not None and own.type == "int" and not own.dims:
            shifted = self.of(left)
            if re.search(r"<<\s*32\b", shifted):
                plain = f"static_cast<unsigned>({own.name})"
                yield f"`{own.name}` is `{plain}`", f"({shifted}) {node.sign} {plain}", 1

    def _divisor(self, node: Node) -> None:
        """A product or quotient of whole numbers that something is divided by is one of the function's sizes."""
        inner = ungrouped(node)
        if inner.kind == "binary" and inner.sign in ("*", "/") and self.type_of(inner, node.scope) == "whole":
            given = {each.name for each in self.tree.parameters}
            sizes = [name for name in self._sizes(inner) if name in given]
            own = shortened(self.of(inner))
            self._wrap(inner, [(f"`{own}` is `{name}`", name, 2) for name in sizes])

    def _is_place(self, node: Node) -> bool:
        """Whether it is the number of a thread, or counts what one has; not a size."""
        own = found_in(node.scope, node.sign) if node.kind == "name" else None
        is_own = own is not None and not own.is_fixed and own not in self.tree.parameters
        return not self.is_head and (is_own or self.of(node).startswith("threadIdx"))

    def _is_few(self, node: Node) -> bool:
        """Whether it is a number or made of constants: registers and lanes are divided by such, sizes are not."""
        names = {*WORD.findall(self.of(node))}
        fixed = {each.name for each in node.scope or () if each.is_fixed}
        return node.kind in ("number", "name", "group") and names <= fixed

    def _row_of_register(self, node: Node, part: Node) -> None:
        """What is compared is the first row of two of a lane, where the other side goes over its sums."""
        counter = self.counters[-1][0]
        own = found_in(part.scope, part.sign) if part.kind == "name" else None
        if own is None or own.is_fixed or kind_of(own) != "whole" or own.name == counter:
            return
        other = node.parts[1 if part is node.parts[0] else 0]
        told = next((each for each in self._sources(other) if counter in each), "")
        if told:
            self._wrap(part, [*of_row(own.name, counter)])

    def _sources(self, node: Node) -> Iterator[list[str]]:
        """The names of an expression, and those that the variables in it were computed from."""
        names = WORD.findall(self.of(node))
        yield names
        for name in names:
            made = re.search(rf"\b{re.escape(name)}\s*=([^;=][^;]*);", self.plain[self.tree.body.begin : node.begin])
            if made is not None:
                yield WORD.findall(made[1])

    def _is_constant(self, node: Node) -> bool:
        own = found_in(node.scope, node.sign) if node.kind == "name" else None
        return own is not None and own.is_fixed

    def _is_fixed(self, node: Node) -> bool:
        """Whether it is a constant of the file, or a number."""
        return node.kind == "number" or self._is_constant(node)

    @staticmethod
    def _is_pointer(node: Node) -> bool:
        own = found_in(node.scope, node.sign) if node.kind == "name" else None
        return own is not None and not own.dims and own.type.endswith("*")

    def _wide_shift(self, target: Node, value: Node) -> Iterator[tuple[str, str, int]]:
        """A bit that is shifted in 32 bits and goes to a variable of 64."""
        shift = ungrouped(value)
        if target.kind != "name" or shift.kind != "binary" or shift.sign != "<<":
            return
        one = found_in(target.scope, self.of(target))
        bit, places = map(self.of, shift.parts)
        if one is not None and _WIDE.search(one.type) and bit in ("1", "1u", "1U"):
            yield f"`{self.of(shift)}` is `uint64_t{{1}} << {places}`", f"(unsigned long long)1 << ({places})", 1

    def _operators(self, node: Node, *, is_whole: bool) -> Iterator[tuple[str, str, int]]:
        left, right = map(self.of, node.parts)
        own, sign = shortened(self.of(node)), node.sign
        for other in _OTHER_SIGNS.get(sign, ()):
            if is_whole or other not in ("%", "|", "&", "<<", ">>"):
                likely = sign in _COMPARING and other in (f"{sign}=", sign.rstrip("="))
                words = (
                    f"`{own}` has `{other}` in the place of `{sign}`"
                    if len(node.parts[0].parts)
                    else f"`{own}` is `{left} {other} {right}`"
                )
                yield words, f"({left}) {other} ({right})", 1 if likely else 5
        yield from self._other_forms(node, is_whole=is_whole)
        if sign == "+" and is_whole:
            yield from self._transposed(node)
        if sign == "-":
            yield f"`{own}` is `{right} - {left}`", f"({right}) - ({left})", 5
        if sign == "/" and is_whole:
            rounded = 2 if self._is_constant(node.parts[1]) and not _BUILTIN.search(left) else 5
            yield f"`{own}` is `{own} * {right}`", f"({left}) / ({right}) * ({right})", rounded
            is_count = node.parts[1].kind != "number" and not _BUILTIN.search(left)
            yield f"`{own}` is rounded up", f"(({left}) + ({right}) - 1) / ({right})", 2 if is_count else 3
            yield from self._multiples(node) if is_count else ()
        if is_whole and sign not in _COMPARING and all(part.kind in ("name", "number") for part in node.parts):
            names = [each.name for each in node.scope or () if kind_of(each) == "whole" and not each.is_fixed]
            yield from ((f"`{own}` is `{name}`", name, 6) for name in names[:MOST_TERMS] if name not in (left, right))
        if sign not in _COMPARING:
            rank = 4 if sign in ("+", "-") and node.parts[1].kind == "number" else 6
            yield f"`{own}` is `{shortened(left)}` alone", left, rank
        if sign not in (*_COMPARING, "/", "%", "-", "<<", ">>"):
            yield f"`{own}` is `{shortened(right)}` alone", right, 6
        first = node.parts[0]
        if sign == "*" and first.kind == "binary" and first.sign in ("/", "%", "+", "-"):
            one, other = map(self.of, first.parts)
            yield (
                f"`{own}` is `{one} {first.sign} ({other} * {right})`",
                f"({one}) {first.sign} (({other}) * ({right}))",
                6,
            )

    def _other_forms(self, node: Node, *, is_whole: bool) -> Iterator[tuple[str, str, int]]:
        """One term more, a factor on the other side of a comparison, a swizzle, or a logarithm that was taken for a
        sum."""
        left, right = map(self.of, node.parts)
        own, sign = shortened(self.of(node)), node.sign
        if sign in ("+", "-") and not is_whole:
            names = [each.name for each in node.scope or () if kind_of(each) == "floating"]
            near = [name for name in names if self.is_near(node, name) and name not in WORD.findall(self.of(node))]
            yield from ((f"`{own}` is `{own} - {name}`", f"({left} {sign} {right}) - {name}", 6) for name in near[:3])
        if sign in _COMPARING and (product := ungrouped(node.parts[0])).kind == "binary" and product.sign == "*":
            one, other = map(self.of, product.parts)
            yield f"`{own}` is `{one} {sign} {right} / {other}`", f"({one}) {sign} ({right}) / ({other})", 4
        if sign == "+" and is_whole and re.search(r"[^\s^]\s*\^\s*[^\s^=]", self.plain):  # the file has a swizzle
            yield f"`{own}` is `{left} ^ {right}`", f"({left}) ^ ({right})", 3
        called = node.parts[0]
        if sign == "/" and called.kind == "call" and "exp" in called.sign and len(called.parts) == 1:
            given = f"{called.sign}({self.of(called.parts[0])} - {right})"
            yield f"`{own}` is `{given}`", given, 4

    def _transposed(self, node: Node) -> Iterator[tuple[str, str, int]]:
        """``row * cols + col`` is ``col * rows + row``: the matrix is stored the other way round. So is what a pointer
        points to."""
        product, last = map(ungrouped, node.parts)
        before = ""
        if product.kind == "binary" and product.sign == "+" and self._is_pointer(product.parts[0]):
            before, product = f"{self.of(product.parts[0])} + ", ungrouped(product.parts[1])
        if product.kind != "binary" or product.sign != "*" or last.kind not in ("name", "member"):
            return
        first, pitch, behind = (self.of(each) for each in (*product.parts, last))
        for size in dict.fromkeys([*self._sizes(node), *self._constants(node), pitch]):
            text = f"{before}{behind} * {size} + {first}"
            code = f"{before}({behind}) * ({size}) + ({first})"
            is_given = any(each.name == size for each in self.tree.parameters)
            yield changed_words(self.of(node), text), code, 1 if before and is_given else 3

    def _constants(self, node: Node) -> list[str]:
        """Those that are near, then all others that the function uses; not those that the expression has."""
        names = {*WORD.findall(self.of(node))}
        found = [each for each in node.scope or () if each.is_fixed and each.name not in names and self.used[each.name]]
        found.sort(key=lambda each: not self.is_near(node, each.name))
        return [each.name for each in found if kind_of(each) == "whole"][:MOST_FACTORS]

    def _sizes(self, node: Node) -> list[str]:
        """Whole numbers that it divides by, then those that it is given, each time the nearest first."""
        names = {*WORD.findall(self.of(node))}
        given = {each.name for each in self.tree.parameters}
        visible = [each for each in node.scope or () if kind_of(each) == "whole" and not each.is_fixed]
        found = [each.name for each in visible if each.name in self.divisors or each.name in given]
        found.sort(key=lambda name: (name not in self.divisors, not self.is_near(node, name)))
        return [name for name in found if name not in names][:MOST_FACTORS]

    def _scaled(self, node: Node) -> None:
        """A term, with one factor or divisor more. A stride is most often missing in an index."""
        kind = self.type_of(node, node.scope)
        own = self.of(node)
        short = shortened(own)
        if kind == "floating" and (node.kind == "index" or (node.kind == "binary" and node.sign == "*")):
            known = {*WORD.findall(own)}
            floats = [each.name for each in node.scope or () if kind_of(each) == "floating" and each.name not in known]
            near = [name for name in floats if self.is_near(node, name)]
            self._wrap(
                node, [(changed_words(own, f"{own} * {name}"), f"{own} * {name}", 4) for name in near[:MOST_FLOATS]]
            )
        if kind == "floating" and node.kind in ("name", "member", "call", "index"):
            ways = [(f"`{short}` is `1.0f / {short}`", f"1.0f / {own}", 3)]
            ways += [
                (f"`{short}` is `{short} {by} {size}`", f"{own} {by} {size}", 5 if node.kind == "call" else 6)
                for size in self._sizes(node)[:3]
                for by in ("/", "*")
            ]
            self._wrap(node, ways)
        elif kind == "whole" and node.kind != "number":
            inner = own if node.kind != "choice" and not is_sum(node) and node.kind != "binary" else f"({own})"
            inner = own if node.kind == "binary" and node.sign == "*" else inner
            likely = 3 if self.is_index else 4
            step = [*self.rounds] if self.is_head else []
            factors = [(name, 1 if name in step else likely) for name in [*self._constants(node)[:3], "2"]]
            factors += [(name, 4) for name in self._constants(node)[3:]]
            factors += [(name, 6) for name in self._sizes(node)[:3]]
            ways = [
                (f"`{short}` is `{shortened(inner)} * {name}`", f"{inner} * {name}", rank) for name, rank in factors
            ]
            simple = node.kind in ("name", "member", "index", "group")
            self._wrap(node, [*ways, *(self._remainders(node) if simple else ())])

    def _remainders(self, node: Node, rank: int = 4) -> Iterator[tuple[str, str, int]]:
        own = self.of(node)
        sizes, constants = self._sizes(node)[:3], self._constants(node)
        for place, name in enumerate([*constants[:3], *sizes, *constants[3:]]):
            yield changed_words(own, f"{own} % {name}"), f"{own} % {name}", rank if place < 6 else 6
            yield changed_words(own, f"{own} / {name}"), f"{own} / {name}", 6

    def is_near(self, node: Node, name: str) -> bool:
        """Whether a name stands on one of the lines around an expression."""
        line = self.writer.line_at(node.begin)
        starts = self.writer.starts
        around = self.text[starts[max(line - 3, 0)] : starts[min(line + 2, len(starts) - 1)]]
        return name in WORD.findall(around)

    def elements(self, node: Node) -> list[str]:
        """The elements that the file reads of arrays of whole numbers which the function is given."""
        given = {
            each.name
            for each in self.tree.parameters
            if "*" in each.type and _plain(each.type.replace("*", "")) == "whole"
        }
        known = {each.name for each in node.scope or ()}
        found = [
            f"{name}[{index}]" for name in sorted(given) for index in re.findall(rf"\b{name}\[([^\[\]]+)\]", self.plain)
        ]
        found = [each for each in dict.fromkeys(found) if {*re.findall(r"(?<![\w.])[A-Za-z_]\w*", each)} <= known]
        return found[:2]

    def numbered(self, node: Node) -> list[tuple[str, str, int]]:
        """A sum, where the elements of a thread are numbered otherwise."""
        if node.sign != "+" or not self.counters:
            return []
        known, counters = {each.name for each in node.scope or ()}, tuple(self.counters)
        strides = [each for each in self.strides if "." in each or each in known]
        variables = {each.name for each in node.scope or () if not each.is_fixed}
        ways = of_other_lines(self.of(node), self.formulas, counters, known, variables)
        return [*ways, *of_strides(node, self.plain, counters, self.bounds, strides)]

    def with_offset(self, node: Node) -> None:
        """A place that is counted from where a pointer begins, not from where the row does."""
        if node.kind == "binary" and node.sign == "*" and self.type_of(node, node.scope) == "whole":
            own, known = self.of(node), {each.name for each in node.scope or () if kind_of(each) == "whole"}
            names = [name for name in self.offsets if name in known and name not in WORD.findall(own)]
            ways = [(f"`{own}` is `{name} + {own}`", f"{name} + {own}", 1) for name in names]
            self._wrap(node, ways[:MOST_FACTORS])

    def root_value(self, node: Node) -> None:
        """A value that is kept, given to a function or an index: one more or less, or with one more term."""
        if not self.is_index:
            self.with_offset(node)
        if self.type_of(node, node.scope) == "whole" and node.kind != "number":
            own = self.of(node)
            ways = [(changed_words(own, f"{own} {by}"), f"{own} {by}", 5) for by in ("+ 1", "- 1")]
            names = {*WORD.findall(own)}
            others = [
                each
                for each in node.scope or ()
                if kind_of(each) == "whole" and each.name not in names and not each.is_fixed
            ]
            fixed = [
                each
                for each in node.scope or ()
                if each.is_fixed and self.is_near(node, each.name) and each.name not in names
            ]
            for each in [*others[:MOST_TERMS], *fixed[:MOST_TERMS]]:
                ways += [(changed_words(own, f"{own} + {each.name}"), f"{own} + {each.name}", 8)]
            ways += [(f"`{shortened(own)}` is `{each}`", each, 6) for each in self.elements(node) if each != own]
            if node.kind == "name":
                ways += [*self._halves(own)]
                ways += [
                    (f"`{own}` is `{size} - 1 - {own}`", f"{size} - 1 - {own}", 4) for size in self._sizes(node)[:2]
                ]
            if node.kind == "member":
                ways += [(f"`{own}` is `{own} + {each}`", f"{own} + {each}", 3) for each in self._beside(node)]
            self._wrap(node, ways)
            if not is_sum(node):
                self._scaled(node)
        self.node(node)

    @staticmethod
    def _halves(own: str) -> Iterator[tuple[str, str, int]]:
        """The number of a pair, or the place in one, where a number of elements stands."""
        yield from ((f"`{own}` is `{own} {sign} 2`", f"{own} {sign} 2", 2) for sign in "/%")

    def _call(self, node: Node, *, is_set: bool) -> None:
        parts = node.parts
        if node.sign not in ("printf", "assert", "sizeof"):
            if not node.sign.startswith("__shfl"):  # of a lane's number in the place of a value much is right by chance
                self._pairs(parts, is_kept=self._takes_places(node))
            elif len(parts) > SHUFFLED and parts[SHUFFLED].kind == "number" and parts[SHUFFLED].sign != "0":
                self._wrap(parts[SHUFFLED], [*lanes_instead(parts[SHUFFLED].sign)])
            self._without_call(node)
            self._other_function(node)
            self._usual(node)
            if not self._takes_places(node):
                self._negated(node)
        for part in parts:
            if not self._takes_places(node):
                self.with_unused(part)
                self.relative(part)
                self._doubled(part)
            if re.match(r"(?:reinterpret|const)_cast<", node.sign) or (
                part.kind != "name" and self._takes_places(node) and part.kind in ("index", "member")
            ):
                self.node(part, is_set=True)
            elif (
                part.kind == "name"
                and kind_of(found_in(part.scope, part.sign)) in ("whole", "floating")
                and node.sign in self.writer.returned
            ):
                if self.type_of(part, part.scope) == "whole":
                    self._wrap(part, [*self._halves(self.of(part))])
                self.node(part)
            elif part.kind in ("binary", "call", "name"):
                self.root_value(part)
            else:
                self.node(part)

    def _usual(self, node: Node) -> None:
        """What is often missing beside a call: lanes that a shuffle does not reach, and the magnitude in a maximum."""
        if node.sign == "__shfl_up_sync" and len(node.parts) > SHUFFLED:
            self._wrap(node, [*of_neighbour(self.of(node), self.of(node.parts[SHUFFLED]))])
        for part in node.parts if node.sign in _OF_TWO else ():
            if part.kind in ("name", "index", "member") and self.type_of(part, part.scope) == "floating":
                own = self.of(part)
                self._wrap(part, [(f"`{own}` is `fabsf({own})`", f"fabsf({own})", 2)])

    def _doubled(self, node: Node) -> None:
        """Twice a float that a function is given, and half of it."""
        if node.kind in ("name", "member") and self.type_of(node, node.scope) == "floating":
            own = self.of(node)
            self._wrap(node, [(f"`{own}` is `{by} * {own}`", f"{by} * {own}", 3) for by in ("2.0f", "0.5f")])

    def with_unused(self, node: Node) -> None:
        """A float, with one more term or factor that the function is given and nowhere uses."""
        if self.type_of(node, node.scope) != "floating" or not self.unused:
            return
        own, indices = self.of(node), []
        for match in re.finditer(r"\[([^\[\]]+)\]", own if "=" not in own else ""):
            indices += [" ".join(match[1].split())]
        terms = [each.name for each in self.unused if kind_of(each) == "floating"]
        for each in self.unused:
            if each.type.count("*") == 1 and _plain(each.type.replace("*", "").strip()) == "floating":
                terms += [f"{each.name}[{index}]" for index in dict.fromkeys(indices)]
        ways = [(sign, term) for term in terms[:MOST_TERMS] for sign in "+*-/"]
        short = shortened(own)
        self._wrap(
            node, [(f"`{short}` is `{short} {sign} {term}`", f"({own}) {sign} {term}", 1) for sign, term in ways]
        )

    def _negated(self, node: Node) -> None:
        """The negative of a packed number that a function is given."""
        for part in node.parts if "cast" not in node.sign else ():
            own = found_in(part.scope, part.sign) if part.kind == "name" else None
            if own is not None and not own.dims and own.type in _NEGATED:
                self._wrap(part, [(f"`{own.name}` is `-{own.name}`", _NEGATED[own.type].format(own.name), 4)])

    def _takes_places(self, node: Node) -> bool:
        """Whether a function of the file may change what it is given."""
        name = re.escape(node.sign.partition("<")[0])
        heads = re.findall(rf"\b{name}\(([^;{{}}]*)\)\s*{{", self.text)
        return any(re.search(r"(?<!const )\b(?!const\b)\w+\s*&\s*\w|\(&", head) for head in heads)

    def _without_call(self, node: Node) -> None:
        """One of its arguments alone, as of a function that gives the place of an element."""
        if self.type_of(node, node.scope) == "whole" and len(node.parts) > 1:
            own = shortened(self.of(node))
            ways = [(f"`{own}` is `{self.of(part)}` alone", self.of(part), 2) for part in node.parts]
            self._wrap(
                node,
                [way for way, part in zip(ways, node.parts, strict=True) if self.type_of(part, node.scope) == "whole"],
            )

    def _other_function(self, node: Node) -> None:
        given = ", ".join(map(self.of, node.parts))
        others = _OTHER_FUNCTIONS.get(node.sign, ())
        self._wrap(node, [(f"`{node.sign}` is `{other}`", f"{other}({given})", 3) for other in others])
        self._other_combination(node)
        name, _, argument = node.sign.removesuffix(">").partition("<")
        if name in self.writer.returned and (own := found_in(node.scope, argument)) is not None and own.is_fixed:
            fixed = [each.name for each in node.scope or () if each.is_fixed and each.name != argument]
            similar = [f"{name}<{each}>" for each in fixed if is_similar(each, argument)]
            self._wrap(node, [(f"`{node.sign}` is `{other}`", f"{other}({given})", 1) for other in similar])

    def _other_combination(self, node: Node) -> None:
        """A number is combined with those of more lanes, or of fewer, or by another operation."""
        if not node.parts or node.sign not in {each.name for each in self.writer.combinations}:
            return
        known, own = {each.name for each in node.scope or ()}, self.of(node.parts[0])
        fitting = [each for each in self.writer.combinations if each.known_at < self.tree.body.begin]
        others = [each.of(own) for each in fitting if each.names <= known]
        self._wrap(node, [(changed_words(self.of(node), each), each, 1) for each in others])

    def _list(self, node: Node, *, is_set: bool) -> None:
        if len(node.parts) == REGISTERS and len({_base(part) for part in node.parts if part.kind == "index"}) == 1:
            second, third = node.parts[1:3]  # the registers that are 8 rows further, and 8 columns
            self._exchange(second, third, 0)
        self._pairs(node.parts)
        takes_largest = any(self.writer.count[name] for name in _OF_TWO)
        for part in node.parts:
            if part.kind != "number":
                self.node(part)
            elif part.sign in _ZEROS and takes_largest:  # of no elements, as of a sum
                self._wrap(part, [(f"`{part.sign}` is `-FLT_MAX`", _LOWEST, 3)])

    def _pairs(self, parts: Sequence[Node], *, is_kept: bool = False) -> None:
        """``is_kept``: a place stays one."""
        pairs = combinations(parts, 2) if len(parts) <= MOST_PAIRS else pairwise(parts)
        for first, second in pairs:
            if first.kind == second.kind == "number":
                continue
            kind = self.type_of(first, first.scope)
            if kind != self.type_of(second, second.scope):
                kind = ""
            if first.kind == second.kind == "call" and first.sign == second.sign and len(first.parts) == 1 and not kind:
                self._exchange(first, second, 1)
            elif kind in ("whole", "floating"):
                places = [each.kind in ("index", "member") for each in (first, second)]
                if all(places) or not (any(places) and is_kept):
                    self._exchange(first, second, 1, cast=not all(places))
            elif kind[7:] in self.writer.types or (first.kind == "index" and _base(first) == _base(second)):
                self._exchange(first, second, 1)

    def _index(self, node: Node, *, is_set: bool) -> None:
        chain = chain_of(node)
        if not is_set and self.type_of(node, node.scope) == "floating":
            names = [each.name for each in node.scope or () if kind_of(each) == "floating"]
            self._wrap(node, [(f"`{self.of(node)}` is `{each}`", each, 6) for each in names[:MOST_TERMS]], cast=False)
        for first, second in pairwise(chain[1:]):
            if "whole" == self.type_of(first, node.scope) == self.type_of(second, node.scope):
                self._exchange(first, second, 1)
        own = found_in(node.scope, chain[0].sign) if chain[0].kind == "name" else None
        extents = re.findall(r"\[([^\]]*)\]", own.dims) if own is not None else []
        self._within(chain[1:])
        for place, part in enumerate(chain[1:], 1):
            if part.kind == "name" and extents[place - 1 : place] == [str(REGISTERS)]:
                self._wrap(part, [*of_register(part.sign, self._rank_of_register(part))])
            if part.kind != "number":
                self._permuted(part, chain[place - 1] if place > 1 else None)
            was, self.is_index = self.is_index, True
            self.root_value(part)
            self.is_index = was
        self.node(chain[0], is_set=True)

    def _within(self, indices: Sequence[Node]) -> None:
        """``a[k / N][k]`` is ``a[k / N][k % N]``: the place within a part of so many."""
        for part in indices:
            if part.kind == "binary" and part.sign == "/" and part.parts[0].kind == "name":
                own, by = map(self.of, part.parts)
                for other in indices:
                    if self.of(other) == own:
                        self._wrap(other, [(f"`{own}` is `{own} % {by}`", f"({own}) % ({by})", 0)])

    def _rank_of_register(self, node: Node) -> int:
        """Where the lines around make row and column of a register's number, one of these is at fault more often."""
        line, starts = self.writer.line_at(node.begin), self.writer.starts
        around = self.plain[starts[max(line - 5, 0)] : starts[min(line + 1, len(starts) - 1)]]
        return 3 if all(re.search(rf"\b{node.sign} {sign} 2\b", around) for sign in "/%") else 1

    def _permuted(self, node: Node, row: Node | None) -> None:
        """The same column at the place where the file permutes others: by a function of row and column, or ``^``."""
        if row is None:
            return
        own, line = self.of(node), self.of(row)
        for name, kind in self.writer.returned.items():
            if kind == "int" and f"{name}(" in self.text and name not in own:
                heads = dict.fromkeys(re.findall(rf"(?<!int )\b{name}(?:<[\w, ]*>)?(?=\()", self.text))
                fixed = {each.name for each in node.scope or () if each.is_fixed}
                for head in [each for each in heads if {*WORD.findall(each)} <= {name, *fixed}][:2]:
                    words = f"`{own}` is `{head}({line}, {own})`"
                    if _takes_two(self.text, name):
                        self._wrap(node, [(words, f"{head}({line}, {own})", 2)])
        if "^" not in own and re.search(r"\^", self.text):
            self._wrap(node, [(f"`{own}` is `{own} ^ {line}`", f"({own}) ^ ({line})", 2)])

    def _member(self, node: Node, *, is_set: bool) -> None:
        base = self.of(node.parts[0])
        if base in _AXES:
            others = [(base, axis) for axis in "xyz" if axis != node.sign]
            others += [
                (
                    {"threadIdx": "blockIdx", "blockIdx": "threadIdx", "blockDim": "gridDim", "gridDim": "blockDim"}[
                        base
                    ],
                    node.sign,
                )
            ]
            ways = [
                (
                    f"`{base}.{node.sign}` is `{one}.{axis}`",
                    f"{one}.{axis}",
                    3 if one != base or f"{one}.{axis}" in self.text else 6,
                )
                for one, axis in others
            ]
            for name in self._instead_of_builtin(node, base):
                rank = 2 if self.given.get(name, "").startswith(base) else 3
                ways.append((f"`{base}.{node.sign}` is `{name}`", name, rank))
            self._wrap(node, ways)
            return
        if self.text[node.begin : node.end].rstrip().endswith(")"):
            return
        members = self._members_of(node.parts[0], node.scope)
        same = [name for name, kind in members.items() if name != node.sign and kind == members.get(node.sign)]
        joint = "->" if "->" in self.text[node.parts[0].end : node.end] else "."
        ways = [(f"`{base}.{node.sign}` is `{base}.{name}`", f"{base}{joint}{name}", 4) for name in same]
        self._wrap(node, ways, cast=False)
        self.node(node.parts[0], is_set=True)

    def _instead_of_builtin(self, node: Node, base: str) -> list[str]:
        """The file's own number of a thread or block, or a size."""
        visible = [each for each in node.scope or () if kind_of(each) == "whole"]
        if base in ("threadIdx", "blockIdx"):
            own = [each.name for each in visible if each.name in self.given]
            return sorted(own, key=lambda name: not self.given[name].startswith(base))[:MOST_NAMES]
        fixed = [each.name for each in visible if each.is_fixed and self.used[each.name]]
        return [*self._sizes(node), *sorted(fixed, key=lambda name: not self.is_near(node, name))][:MOST_NAMES]

    def _beside(self, node: Node) -> list[str]:
        """The other members of the same type."""
        base = self.of(node.parts[0])
        if base in _AXES:
            return []
        members = self._members_of(node.parts[0], node.scope)
        joint = "->" if "->" in self.text[node.parts[0].end : node.end] else "."
        same = [name for name, kind in members.items() if name != node.sign and _plain(kind) == "whole"]
        return [f"{base}{joint}{name}" for name in same[:MOST_TERMS]]

    def _members_of(self, node: Node, scope: Scope | None) -> dict[str, str]:
        kind = self.type_of(node, scope)
        if kind.startswith("struct ") and (vector := _VECTOR.match(kind[7:])):
            return {axis: vector[1] for axis in "xyzw"[: int(vector[2])]}
        return self.writer.types.get(kind[7:], {}) if kind.startswith("struct ") else {}

    # -- types --------------------------------------------------------------------------------------------------------

    def type_of(self, node: Node, scope: Scope | None) -> str:
        """``whole``, ``floating``, ``truth``, ``struct`` and its name, or nothing where it is not known."""
        kind = node.kind
        if kind == "number":
            is_hex = node.sign[:2] in ("0x", "0X")
            return "floating" if re.search(r"[pP]" if is_hex else r"[.fF]|\d[eE]", node.sign) else "whole"
        if kind == "name":
            own = found_in(scope, node.sign)
            return (
                kind_of(own)
                if own is not None and not own.dims
                else "floating"
                if node.sign in ("INFINITY", "FLT_MAX")
                else ""
            )
        if kind in ("group", "unary"):
            if node.sign == "cast" or node.sign in ("*", "&"):
                return ""
            return "truth" if node.sign == "!" else self.type_of(node.parts[0], scope)
        if kind == "binary":
            return self._type_of_binary(node, scope)
        if kind == "choice":
            first, second = (self.type_of(part, scope) for part in node.parts[1:])
            return first if first == second else ""
        if kind == "member":
            return self._type_of_member(node, scope)
        if kind == "index":
            return self._type_of_index(node, scope)
        return self._type_of_call(node, scope) if kind in ("call", "opaque") else ""

    def _type_of_binary(self, node: Node, scope: Scope | None) -> str:
        kinds = {self.type_of(part, scope) for part in node.parts}
        if node.sign in (*_COMPARING, "&&", "||"):
            return "truth"
        if not kinds <= {"whole", "floating", "truth"}:
            return ""
        return "floating" if "floating" in kinds else "whole"

    def _type_of_member(self, node: Node, scope: Scope | None) -> str:
        if self.of(node.parts[0]) in _AXES:
            return "whole"
        return _plain(self._members_of(node.parts[0], scope).get(node.sign, ""))

    def _type_of_index(self, node: Node, scope: Scope | None) -> str:
        chain = chain_of(node)
        own = found_in(scope, chain[0].sign) if chain[0].kind == "name" else None
        if own is None:
            return ""
        depth = own.dims.count("[") + own.type.count("*")
        return _plain(own.type.replace("*", "").replace("const ", "").strip()) if depth == len(chain) - 1 else ""

    def _type_of_call(self, node: Node, scope: Scope | None) -> str:
        name = node.sign.rstrip("{")
        if match := re.match(r"(?:static_cast<(.*)>|(int64_t|int|unsigned|float|size_t))$", name):
            return _plain(match[1] or match[2])
        if name in self.writer.returned:
            return _plain(self.writer.returned[name])
        if name.partition("<")[0] in self.writer.returned:
            return _plain(self.writer.returned[name.partition("<")[0]])
        if (
            name in ("min", "max", "__shfl_xor_sync", "__shfl_down_sync", "__shfl_up_sync", "__shfl_sync")
            and node.parts
        ):
            return self.type_of(node.parts[1 if name.startswith("__") and len(node.parts) > 1 else 0], scope)
        if re.fullmatch(
            r"(?:__)?(?:exp|exp2|log|log2|sqrt|rsqrt|fmax|fmin|fma|tanh|fabs)f|__half2float|__bfloat162float", name
        ):
            return "floating"
        return "whole" if node.kind == "opaque" and name in ("sizeof", "int64_t") else ""


def any_of(chosen: Sequence[tuple[int, str]]) -> str:
    """Whether one of edits, whose numbers follow each other, is chosen."""
    if len(chosen) == 1:
        return f"{VARIABLE}=={chosen[0][0]}u"
    return f"{VARIABLE}-{chosen[0][0]}u<{len(chosen)}u"


def shortened(text: str, most: int = 60) -> str:
    """In one line of at most so many letters."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def changed_words(before: str, after: str, most: int = 60) -> str:
    """```a + b` is `a - b```: both in at most twice so many letters, with those that differ."""
    before, after = (" ".join(each.split()) for each in (before, after))
    same = next((at for at, (one, two) in enumerate(zip(before, after, strict=False)) if one != two), len(before))
    if same > most - DIFFERING and max(len(before), len(after)) > most:
        first = same - (most - 2 * DIFFERING)
        border = re.compile(r"[ (]").search(before, first, same)
        before, after = (f"...{each[border.start() if border else first :]}" for each in (before, after))
    before = shortened(before, most)
    return f"`{before}` is `{shortened(after, 2 * most - len(before))}`"


def found_in(scope: Scope | None, name: str) -> Variable | None:
    return next((each for each in scope or () if each.name == name), None)


def _plain(kind: str) -> str:
    kind = kind.replace("const ", "").strip()
    if kind in WHOLE:
        return "whole"
    if kind in _FLOATING:
        return "floating"
    return "truth" if kind == "bool" else f"struct {kind}" if re.fullmatch(r"\w+", kind) else ""


def kind_of(one: Variable | None) -> str:
    """``whole`` or ``floating`` for what is one number."""
    if one is None or one.dims or "*" in one.type or one.type == "auto":
        return ""
    return _plain(one.type)


def chain_of(node: Node) -> list[Node]:
    """``a[i][j]`` -> a, i, j"""
    found: list[Node] = []
    while node.kind == "index":
        found.append(node.parts[1])
        node = node.parts[0]
    return [node, *found[::-1]]


def ungrouped(node: Node) -> Node:
    """What stands in parentheses."""
    return ungrouped(node.parts[0]) if node.kind == "group" else node


def is_sum(node: Node) -> bool:
    return node.kind == "binary" and node.sign in ("+", "-")


def is_similar(one: str, other: str) -> bool:
    """Whether two names differ little: in case, one letter or one part; ``OH`` and ``OW``, ``off_q`` and ``off_kv``."""
    if one.lower() == other.lower() or len(one) == len(other) <= 2:
        return True
    if min(len(one), len(other)) > 1 and (one.startswith(other) or other.startswith(one)):
        return True
    parts = [each.split("_") for each in (one, other)]
    return len(parts[0]) == len(parts[1]) > 1 and sum(a != b for a, b in zip(*parts, strict=True)) == 1


def is_qualified(one: str, other: str) -> bool:
    """Whether one of two names is the other with a word more: ``factor`` and ``next_factor``."""
    longer, shorter = sorted((one, other), key=len, reverse=True)
    return longer.startswith(f"{shorter}_") or longer.endswith(f"_{shorter}")


def _base(node: Node) -> str:
    return chain_of(node)[0].sign


def _takes_two(text: str, name: str) -> bool:
    return re.search(rf"\bint\s+{name}\(\s*int\s+\w+\s*,\s*int\s+\w+\s*\)", text) is not None
