"""A .cu file -> the same file with many small edits in it, of which a variable chooses one: ``kata_edit``.

nvcc makes PTX of all of them at once. An edit is what the learner would type: another variable or constant, another
operator, two arguments or indices exchanged, a statement that is too much, stands elsewhere or is missing. Where an
expression is edited, both forms stand in the text, and a condition takes one::

    y[i] = x[(kata_edit == 3u ? (kata_t<decltype(i)>)(j) : i)];

The lines of the file stay where they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from grader.compile.source_tree import ASSIGNING, WHOLE, Closure, Node, Scope, Statement, Tree, Variable, trees_of
from grader.content.functions import without_comments

VARIABLE = "kata_edit"
MOST = 1500  # edits of a file
MOST_OF_LINE = 120
MOST_NAMES = 12  # in the place of one
LIKELY_NAMES = 4  # of them
MOST_BUILTIN = 4  # of them such as `threadIdx.x`
MOST_TERMS = 6  # that are added to one
MOST_FACTORS = 6  # that one is multiplied or divided by
MOST_JOINT = 4  # in the place of a name that is replaced more than once
MOST_PAIRS = 6  # elements of a list of which any two may be exchanged; of longer ones those that are neighbours
FARTHEST = 4  # statements over which one may move
BESIDE = 4  # lines over which a name is replaced in two expressions at once
LONGEST = 240  # characters of an expression that is edited as a whole
HEAD = (
    f"__device__ unsigned {VARIABLE};"
    "template<class T>struct kata_v{using t=T;};template<class T>struct kata_v<T&>{using t=typename kata_v<T>::t;};"
    "template<class T>struct kata_v<const T>{using t=T;};template<class T>using kata_t=typename kata_v<T>::t;"
    "template<class T>__device__ inline void kata_zero(T&x){char*b=reinterpret_cast<char*>(&x);"
    "for(int i=0;i<int(sizeof(T));++i)b[i]=0;} "
)
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
_COMPARING = ("<", "<=", ">", ">=", "==", "!=")
_OTHER_ASSIGNING = {"=": ("+=",), "+=": ("=", "-="), "-=": ("+=",), "*=": ("=", "+="), "/=": ("*=",), "|=": ("=",)}
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
_VECTOR = re.compile(r"(float|double|int|uint|short|ushort|char|uchar)([234])$")
_WORD = re.compile(r"[A-Za-z_]\w*")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


@dataclass(frozen=True)
class Edit:
    """``line`` is the file's; ``words`` say what is other than the file says. The likeliest have the least ``rank``."""

    number: int
    line: int
    words: str
    rank: int


@dataclass(frozen=True)
class Edited:
    text: str
    edits: tuple[Edit, ...]


def edited(
    text: str, within: Collection[int], without: Collection[int] = (), doubts: Mapping[int, float] | None = None
) -> Edited:
    """The edits of lines of ``within``. None is on a line of ``without``: nvcc said that one there is wrong. Of too many
    those of lines with least of the ``doubts``, in ranks, are there."""
    writer, trees = _Writer(text, frozenset(within) - frozenset(without), doubts or {}), trees_of(text)
    writer.used = frozenset(
        name for tree in trees for name in _WORD.findall(writer.plain[tree.body.begin : tree.body.end])
    )
    for _ in range(2):  # the first time to see which of them are the likeliest
        for tree in trees:
            _Walk(writer, tree).function()
        if writer.chosen is None:
            writer.choose()
    return writer.edited()


@dataclass
class _Writer:
    """Collects edits, and the text that they add at places of the file."""

    text: str
    lines: frozenset[int]
    doubts: Mapping[int, float]
    edits: list[Edit] = field(default_factory=list)
    added: list[tuple[int, int, float, int, str]] = field(default_factory=list)  # place, and what is there sooner
    known: list[tuple[int, int]] = field(default_factory=list)  # rank and line of all edits that there are
    chosen: frozenset[int] | None = None  # of them
    types: dict[str, dict[str, str]] = field(default_factory=dict)  # of structs: member -> type
    returned: dict[str, str] = field(default_factory=dict)  # by functions of the file

    used: frozenset[str] = frozenset()  # names, by device functions

    def __post_init__(self) -> None:
        self.plain = _blanked(self.text)
        self.starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        for match in re.finditer(r"\bstruct\s+(\w+)[^;{]*\{([^{}]*)\}", self.text):
            self.types[match[1]] = _members(match[2])
        for match in re.finditer(r"__device__\s+(?:__forceinline__\s+|inline\s+)*([\w:]+)\s+(\w+)\(", self.text):
            self.returned[match[2]] = match[1]

    def line_at(self, place: int) -> int:
        return bisect_right(self.starts, place)

    def choose(self) -> None:
        """The likeliest, not too many of one line."""
        of_line, found = Counter[int](), list[int]()
        ranks = [rank + self.doubts.get(line, 0.0) for rank, line in self.known]
        for number in sorted(range(len(ranks)), key=ranks.__getitem__):
            line = self.known[number][1]
            of_line[line] += 1
            if line in self.lines and of_line[line] <= MOST_OF_LINE:
                found.append(number)
        self.chosen, self.known = frozenset(found[:MOST]), []

    def new(self, place: int, words: str, rank: int) -> int:
        """The number of a new edit; 0 where it is not one of the likeliest."""
        line = self.line_at(place)
        self.known.append((rank, line))
        if self.chosen is None or len(self.known) - 1 not in self.chosen:
            return 0
        self.edits.append(Edit(len(self.edits) + 1, line, " ".join(words.split()), rank))
        return len(self.edits)

    def add(self, place: int, text: str, *, closes: bool, other: int | None = None) -> None:
        """Text at a place; ``other``: where the expression that it is put around ends or begins. What is put around a
        longer one stands further out, and a statement's before all expressions'. The later of equal ones is inside."""
        order = len(self.added)
        depth = float("inf") if other is None else float(other)
        depth = -depth if not closes or other is not None else depth
        self.added.append((place, 0 if closes else 1, depth, -order if closes else order, text))

    def edited(self) -> Edited:
        head = next((m.start() for m in re.finditer(r"^(?=\w)(?!using\b.*=)", _blanked(self.text), re.MULTILINE)), 0)
        pieces, last = [], 0
        for place, *_, text in sorted([(head, -1, 0.0, 0, HEAD), *self.added]):
            pieces += [self.text[last:place], text]
            last = place
        return Edited("".join([*pieces, self.text[last:]]), tuple(self.edits))


def _blanked(text: str) -> str:
    """Without comments and directives; every place is where it was."""
    return _DIRECTIVE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), without_comments(text))


def _members(body: str) -> dict[str, str]:
    found = {}
    for kind, names in re.findall(
        r"(?:^|;)\s*(?:const\s+)?([A-Za-z_][\w ]*?)\s+(\w+(?:\s*,\s*\w+)*)\s*(?=;)", _blanked(body)
    ):
        found.update({name.strip(): kind for name in names.split(",")})
    return found


class _Walk:
    """Goes over a function, and gives its expressions and statements to the writer with their edits."""

    def __init__(self, writer: _Writer, tree: Tree) -> None:
        self.writer, self.tree, self.text = writer, tree, writer.text
        self.plain = writer.plain
        self.sums = [*_sums(tree.body, self.plain)]  # targets of `+=`, with the loops around
        self.factors = [*_factors(tree.body, self.plain)]
        self.is_head = False  # of a loop: there another variable often ends nothing
        self.is_index = False
        body = self.plain[tree.body.begin : tree.body.end]
        self.builtin = [*dict.fromkeys(["blockDim.x", *_BUILTIN.findall(body)])][:MOST_BUILTIN]
        self.given = {  # name -> the builtin variable that its value has, or the first of several
            found[1]: found[2] for found in re.finditer(rf"\b(\w+)\s*=[^;=]*?({_BUILTIN.pattern})", body)
        }
        self.used = Counter(_WORD.findall(body))
        self.forgotten = {  # constants that no device function uses, although the file has them for some purpose
            each.name
            for each in tree.body.scope or ()
            if each.is_fixed and each not in tree.parameters and each.name not in writer.used
        }
        self.divisors = {*re.findall(r"[/%]\s*([A-Za-z_]\w*)", body)}

    def function(self) -> None:
        """All edits of it: first those of several places at once."""
        self._together()
        self.statement(self.tree.body)

    def of(self, node: Node | Statement) -> str:
        """Its text in one line, without comments and directives: what is added adds no line to the file."""
        return " ".join(self.plain[node.begin : node.end].split())

    # -- statements ---------------------------------------------------------------------------------------------------

    def statement(self, one: Statement) -> None:
        if one.kind == "block":
            self._moved(one.parts)
        if one.kind == "loop":
            self._reset(one)
        if one.kind == "simple":
            self._simple(one)
        self.is_head = one.kind == "loop"
        for node in one.nodes:
            if one.kind in ("declaration", "return") and not _is_sum(node):
                self._scaled(node)
            self.root(node, is_condition=one.kind == "if")
        self.is_head = False
        for part in one.parts:
            self.statement(part)

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
            if node.sign == "=" and node.parts[1].kind in ("name", "index", "member"):
                self._rescaled(one, left, right)
        if not re.search(r"sync|fence|barrier|commit|wait|arrive|cp_async", own):
            alternatives.append((f"`{_short(own)}` is left out", ";", 2))
        self._instead(one, alternatives)

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
                        f"`{_short(right)}` is `{_short(f'{name}({first}, {second})')}`",
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
            self.writer.add(one.begin, f"{{if({_any_of(chosen)}){{{ways}{{{last}}}}}else ", closes=False)
            self.writer.add(one.end, "}", closes=True)

    def _before(self, place: int, words: str, rank: int, text: str) -> None:
        """A statement more, between two."""
        if number := self.writer.new(place, words, rank):
            self.writer.add(place, f"if({VARIABLE}=={number}u){{{text}}}", closes=False)

    def _rescaled(self, one: Statement, left: str, right: str) -> None:
        """A sum is multiplied by what the file multiplies others by, or by the exponential of a maximum's growth."""
        if self.type_of(one.nodes[0].parts[0], one.scope) != "floating":
            return
        names = {*_WORD.findall(left)}
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
                words = f"`{target} *= {factor};` stands before `{_short(self.of(one))}`"
                self._before(one.begin, words, 2, f"{around}{target} *= {factor};")

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
            words, names, between = f"`{_short(own)}` stands", {*_WORD.findall(own)}, set[str]()
            for other in parts[at + 1 : at + FARTHEST]:
                if not _may_depend(own, self.of(other)):
                    continue
                is_next = other is parts[at + 1] and other.kind == one.kind == "simple"
                self._move(one, other.end, f"{words} behind `{_short(self.of(other))}`", is_next=is_next)
            for other in parts[max(at - FARTHEST + 1, 0) : at][::-1]:
                between |= {each.name for each in other.declared}
                if names & between:
                    break
                if _may_depend(own, self.of(other)):
                    self._move(one, other.begin, f"{words} before `{_short(self.of(other))}`", is_next=False)

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
                f"`{target} *= {factor};` stands behind `{_short(self.of(one))}`",
                2,
                f"{around}{target} *= {factor};",
            )

    def _reset(self, one: Statement) -> None:
        """A variable of outside begins every round at 0."""
        body = one.parts[0] if one.parts else None
        if body is None or body.kind != "block" or one.scope is None:
            return
        used = {*_WORD.findall(self.of(body))}
        changed = [name for name in _WORD.findall(" ".join(target for target, _ in self.sums)) if name in used]
        for each in [each for each in one.scope if each.name in changed and not each.is_const and "*" not in each.type][
            :5
        ]:
            if not each.is_fixed and each not in self.tree.parameters:
                words = f"`{each.name}` is set to 0 at the start of each round of the loop"
                self._before(body.begin + 1, words, 2, f"kata_zero({each.name});")

    # -- several places at once ---------------------------------------------------------------------------------------

    def _together(self) -> None:
        """Edits of two places: a name that is another one in both, and two operators that are exchanged."""
        roots = [(root, [*self._names(root)]) for root in _roots(self.tree.body)]
        for place, (root, names) in enumerate(roots):
            self._joint(root, names)
            self._signs(root, root)
            line, met = self.writer.line_at(root.end), set[str]()
            for other, more in roots[place + 1 : place + 1 + BESIDE]:
                if self.writer.line_at(other.begin) > line + BESIDE:
                    break
                common = {each.sign for each in names} & {each.sign for each in more} - met
                self._joint(root, [each for each in (*names, *more) if each.sign in common], other)
                self._signs(root, other)
                met |= common

    def _names(self, node: Node) -> Iterator[Node]:
        """The variables in an expression that are whole numbers and not set there."""
        if node.kind == "name":
            if _kind_of(_found(node.scope, node.sign)) == "whole":
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
        present = {each.sign for each in names}
        scope = names[0].scope if names else None
        for name in dict.fromkeys(each.sign for each in names):
            own = _found(scope, name)
            others = self._others(own, names[0])[:MOST_JOINT] if own is not None else []
            for text, rank in others:
                is_near = name.startswith(text) or text.startswith(name) or _is_alike(name, text)
                if not (own is not None and own.is_fixed) and not is_near:
                    continue
                alike = {
                    one: two for one in present - {name} if (two := _alike(name, text, one)) and _found(scope, two)
                }
                for changed in ({name: text}, {name: text, **alike})[: 1 + bool(alike)]:
                    self._replace([each for each in names if each.sign in changed], changed, rank + (other is not None))

    def _replace(self, nodes: Sequence[Node], changed: dict[str, str], rank: int) -> None:
        """Each name by what is said for it, where all of that is visible."""
        if len(nodes) < 2 or not self._may_edit(nodes):
            return
        if not all(_found(node.scope, changed[node.sign]) or "." in changed[node.sign] for node in nodes):
            return
        words = " and ".join(f"`{one}` is `{other}`" for one, other in changed.items())
        lines = sorted({self.writer.line_at(node.begin) for node in nodes})
        where = "everywhere in this line" if len(lines) == 1 else f"here and on line {lines[-1]}"
        number = self.writer.new(nodes[0].begin, f"{words} {where}", rank)
        for node in nodes if number else ():
            text = f"(kata_t<decltype({node.sign})>)({changed[node.sign]})"
            self._around(node, f"({VARIABLE}=={number}u?{text}:", ")")

    def _may_edit(self, nodes: Sequence[Node]) -> bool:
        """Whether all of them are on lines that are edited."""
        return all(self.writer.line_at(node.begin) in self.writer.lines for node in nodes)

    def _signs(self, root: Node, other: Node) -> None:
        """``i / 2`` and ``i % 2`` are exchanged."""
        for one in _of_signs(root, ("/", "%")):
            for two in _of_signs(other, ("/", "%")):
                same = [*map(self.of, one.parts)] == [*map(self.of, two.parts)]
                if same and one.sign != two.sign and one.begin < two.begin:
                    self._exchange(one, two, 1)

    # -- expressions --------------------------------------------------------------------------------------------------

    def root(self, node: Node, *, is_condition: bool = False) -> None:
        """An expression, with all that is in it."""
        if is_condition:
            own = self.of(node)
            self._wrap(
                node, [(f"`{own}` holds always", "true", 9), (f"`{own}` is `!({own})`", f"!({own})", 6)], cast=False
            )
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
            if text != own and (number := self.writer.new(node.begin, words, rank))
        ]
        if chosen:
            *firsts, (_, last) = chosen
            ways = "".join(f"{VARIABLE}=={number}u?{kind}({text}):" for number, text in firsts)
            self._around(node, f"({_any_of(chosen)}?({ways}{kind}({last})):", ")")

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

    def _name(self, node: Node, *, is_set: bool) -> None:
        own = _found(node.scope, node.sign)
        if own is None:
            if node.sign in ("INFINITY", "FLT_MAX"):
                self._wrap(node, [(f"`{node.sign}` is `{text}`", text, 4) for text in ("0.0f", f"(-{node.sign})")])
            return
        others = self._others(own, node, is_set=is_set)
        ways = [(f"`{own.name}` is `{name}`", name, rank) for name, rank in others]
        self._wrap(node, ways, cast=_kind_of(own) in ("whole", "floating") and not is_set)

    def _others(self, own: Variable, node: Node, *, is_set: bool = False) -> list[tuple[str, int]]:
        """What may stand in the place of a variable, the likeliest first, each with its rank."""
        kind = _kind_of(own)
        others = [each for each in node.scope or () if each.name != own.name and _kind_of(each) == kind]
        if kind not in ("whole", "floating"):
            shape = (own.type, own.dims, own.is_const)
            return [(each.name, 3) for each in others if (each.type, each.dims, each.is_const) == shape][:MOST_NAMES]
        if is_set:
            same = [each.name for each in others if each.type == own.type and not each.is_const and not each.is_fixed]
            return [(name, 7 if kind == "floating" else 3) for name in same[:MOST_NAMES]]
        others.sort(
            key=lambda each: (
                not _is_alike(each.name, own.name),
                each.is_fixed != own.is_fixed,
                each.name not in self.forgotten,
                not self.used[each.name],
                abs(each.at - own.at),
            )
        )
        found = [
            (each.name, self._rank_of(each, own) + (place >= LIKELY_NAMES))
            for place, each in enumerate(others[:MOST_NAMES])
        ]
        if kind == "whole":
            sizes = [each for each in self.builtin if "Dim." in each]
            rank = 2 if own.is_fixed and self.used[own.name] == 1 else 4
            found += [(each, rank) for each in (sizes if own.is_fixed else self.builtin)]
        return found

    def _rank_of(self, one: Variable, own: Variable) -> int:
        """The rank of one variable in the place of another of its kind."""
        if _kind_of(own) == "floating":
            return 5 if _is_alike(one.name, own.name) else 7
        if _is_alike(one.name, own.name) and not self.is_head:
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
                each.name for each in node.scope or () if each.is_fixed == (value > 1) and _kind_of(each) == "whole"
            ]
            chosen = [*dict.fromkeys(str(each) for each in others if each >= 0), *named[:MOST_TERMS]]
            ways = [(f"`{text}` is `{each}`", each, 4 if place < 4 else 6) for place, each in enumerate(chosen)]
            self._wrap(node, ways)
        elif text.endswith(("f", "F")) and not text.startswith("0x"):
            reals = ["0.0f", "1.0f", "-1.0f", f"(2.0f * {text})", f"(0.5f * {text})", "(-1.0f / 0.0f)"]
            named = [each.name for each in node.scope or () if _kind_of(each) == "floating"]
            chosen = [*reals, *named[:MOST_TERMS]]
            self._wrap(node, [(f"`{text}` is `{each.strip('()')}`", each, 5) for each in chosen])

    def _unary(self, node: Node, *, is_set: bool) -> None:
        part = node.parts[0]
        if node.sign in ("++", "--"):
            return
        if node.sign in ("-", "!") and self.type_of(node, node.scope) in ("whole", "floating"):
            self._wrap(node, [(f"`{self.of(node)}` is `{self.of(part)}`", self.of(part), 6)])
        self.node(part, is_set=is_set or node.sign == "&")

    def _choice(self, node: Node) -> None:
        condition, first, _ = node.parts
        text = self.of(condition)
        if number := self.writer.new(condition.begin, f"`{text}` is `!({text})`", 5):
            self._around(condition, f"(({VARIABLE}=={number}u)!=bool(", "))")
        if number := self.writer.new(condition.begin, f"`{_short(self.of(node))}` is always `{self.of(first)}`", 9):
            self._around(condition, f"({VARIABLE}=={number}u||", ")")
        for part in node.parts:
            self.node(part)

    def _binary(self, node: Node) -> None:
        left, right = node.parts
        if node.sign in ASSIGNING:
            self.node(left, is_set=True)
            self.root_value(right)
            return
        kinds = {self.type_of(left, node.scope), self.type_of(right, node.scope)}
        if kinds <= {"whole", "floating", "truth"}:
            self._wrap(node, [*self._operators(node, is_whole=kinds == {"whole"})])
        if node.sign in ("+", "-"):
            for part in (left, right):
                if not _is_sum(part):
                    self._scaled(part)
        elif node.sign in ("*", "/", "%") and kinds == {"whole"} and left.kind in ("name", "member", "index", "group"):
            self._wrap(left, [*self._remainders(left, 3 if node.sign == "/" else 4)])
        elif node.sign in ("&&", "||") and all(
            part.kind == "binary" and part.sign in _COMPARING for part in node.parts
        ):
            self._exchange(left.parts[1], right.parts[1], 2)
        self.node(left)
        self.node(right)

    def _operators(self, node: Node, *, is_whole: bool) -> Iterator[tuple[str, str, int]]:
        left, right = map(self.of, node.parts)
        own, sign = _short(self.of(node)), node.sign
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
            yield f"`{own}` is `{own} * {right}`", f"({left}) / ({right}) * ({right})", 5
            is_count = node.parts[1].kind != "number" and not _BUILTIN.search(left)
            yield f"`{own}` is rounded up", f"(({left}) + ({right}) - 1) / ({right})", 2 if is_count else 3
        if is_whole and sign not in _COMPARING and all(part.kind in ("name", "number") for part in node.parts):
            names = [each.name for each in node.scope or () if _kind_of(each) == "whole" and not each.is_fixed]
            yield from ((f"`{own}` is `{name}`", name, 6) for name in names[:MOST_TERMS] if name not in (left, right))
        if sign not in _COMPARING:
            rank = 4 if sign in ("+", "-") and node.parts[1].kind == "number" else 6
            yield f"`{own}` is `{_short(left)}` alone", left, rank
        if sign not in (*_COMPARING, "/", "%", "-", "<<", ">>"):
            yield f"`{own}` is `{_short(right)}` alone", right, 6
        first = node.parts[0]
        if sign == "*" and first.kind == "binary" and first.sign in ("/", "%", "+", "-"):
            one, other = map(self.of, first.parts)
            yield (
                f"`{own}` is `{one} {first.sign} ({other} * {right})`",
                f"({one}) {first.sign} (({other}) * ({right}))",
                6,
            )

    def _other_forms(self, node: Node, *, is_whole: bool) -> Iterator[tuple[str, str, int]]:
        """One term more, a factor on the other side of a comparison, or a logarithm that was taken for a sum."""
        left, right = map(self.of, node.parts)
        own, sign = _short(self.of(node)), node.sign
        if sign in ("+", "-") and not is_whole:
            names = [each.name for each in node.scope or () if _kind_of(each) == "floating"]
            near = [name for name in names if self.is_near(node, name) and name not in _WORD.findall(self.of(node))]
            yield from ((f"`{own}` is `{own} - {name}`", f"({left} {sign} {right}) - {name}", 6) for name in near[:3])
        if sign in _COMPARING and (product := _ungrouped(node.parts[0])).kind == "binary" and product.sign == "*":
            one, other = map(self.of, product.parts)
            yield f"`{own}` is `{one} {sign} {right} / {other}`", f"({one}) {sign} ({right}) / ({other})", 4
        called = node.parts[0]
        if sign == "/" and called.kind == "call" and "exp" in called.sign and len(called.parts) == 1:
            given = f"{called.sign}({self.of(called.parts[0])} - {right})"
            yield f"`{own}` is `{given}`", given, 4

    def _transposed(self, node: Node) -> Iterator[tuple[str, str, int]]:
        """``row * cols + col`` is ``col * rows + row``: the matrix is stored the other way round."""
        product, last = map(_ungrouped, node.parts)
        if product.kind != "binary" or product.sign != "*" or last.kind not in ("name", "member"):
            return
        first, pitch, behind = (self.of(each) for each in (*product.parts, last))
        for size in dict.fromkeys([*self._sizes(node), *self._constants(node), pitch]):
            text = f"{behind} * {size} + {first}"
            yield f"`{_short(self.of(node))}` is `{_short(text)}`", f"({behind}) * ({size}) + ({first})", 3

    def _constants(self, node: Node) -> list[str]:
        """Those that are near, then all others that the function uses; not those that the expression has."""
        names = {*_WORD.findall(self.of(node))}
        found = [each for each in node.scope or () if each.is_fixed and each.name not in names and self.used[each.name]]
        found.sort(key=lambda each: not self.is_near(node, each.name))
        return [each.name for each in found if _kind_of(each) == "whole"][:MOST_FACTORS]

    def _sizes(self, node: Node) -> list[str]:
        """Whole numbers that it divides by, then those that it is given, each time the nearest first."""
        names = {*_WORD.findall(self.of(node))}
        given = {each.name for each in self.tree.parameters}
        visible = [each for each in node.scope or () if _kind_of(each) == "whole" and not each.is_fixed]
        found = [each.name for each in visible if each.name in self.divisors or each.name in given]
        found.sort(key=lambda name: (name not in self.divisors, not self.is_near(node, name)))
        return [name for name in found if name not in names][:MOST_FACTORS]

    def _scaled(self, node: Node) -> None:
        """A term, with one factor or divisor more. A stride is most often missing in an index."""
        kind = self.type_of(node, node.scope)
        own = self.of(node)
        short = _short(own)
        if kind == "floating" and node.kind in ("name", "member", "call", "index"):
            ways = [
                (f"`{short}` is `{short} {by} {size}`", f"{own} {by} {size}", 5 if node.kind == "call" else 6)
                for size in self._sizes(node)[:3]
                for by in ("/", "*")
            ]
            self._wrap(node, ways)
        elif kind == "whole" and node.kind != "number":
            inner = own if node.kind != "choice" and not _is_sum(node) and node.kind != "binary" else f"({own})"
            inner = own if node.kind == "binary" and node.sign == "*" else inner
            likely = 3 if self.is_index else 4
            factors = [(name, likely) for name in [*self._constants(node)[:3], "2"]]
            factors += [(name, 4) for name in self._constants(node)[3:]]
            factors += [(name, 6) for name in self._sizes(node)[:3]]
            ways = [(f"`{short}` is `{_short(inner)} * {name}`", f"{inner} * {name}", rank) for name, rank in factors]
            simple = node.kind in ("name", "member", "index", "group")
            self._wrap(node, [*ways, *(self._remainders(node) if simple else ())])

    def _remainders(self, node: Node, rank: int = 4) -> Iterator[tuple[str, str, int]]:
        own = self.of(node)
        sizes, constants = self._sizes(node)[:3], self._constants(node)
        for place, name in enumerate([*constants[:3], *sizes, *constants[3:]]):
            yield f"`{_short(own)}` is `{_short(own)} % {name}`", f"{own} % {name}", rank if place < 6 else 6
            yield f"`{_short(own)}` is `{_short(own)} / {name}`", f"{own} / {name}", 6

    def is_near(self, node: Node, name: str) -> bool:
        """Whether a name stands on one of the lines around an expression."""
        line = self.writer.line_at(node.begin)
        starts = self.writer.starts
        around = self.text[starts[max(line - 3, 0)] : starts[min(line + 2, len(starts) - 1)]]
        return name in _WORD.findall(around)

    def elements(self, node: Node) -> list[str]:
        """The elements that the file reads of arrays of whole numbers which the function is given."""
        given = {
            each.name
            for each in self.tree.parameters
            if "*" in each.type and _plain(each.type.replace("*", "")) == "whole"
        }
        known = {each.name for each in node.scope or ()}
        found = [
            f"{name}[{index}]" for name in sorted(given) for index in re.findall(rf"\b{name}\[([^\[\]]+)\]", self.text)
        ]
        found = [each for each in dict.fromkeys(found) if {*re.findall(r"(?<![\w.])[A-Za-z_]\w*", each)} <= known]
        return found[:2]

    def root_value(self, node: Node) -> None:
        """A value that is kept, given to a function or an index: one more or less, or with one more term."""
        if self.type_of(node, node.scope) == "whole" and node.kind != "number":
            own = self.of(node)
            ways = [(f"`{_short(own)}` is `{_short(own)} {by}`", f"{own} {by}", 5) for by in ("+ 1", "- 1")]
            names = {*_WORD.findall(own)}
            others = [
                each
                for each in node.scope or ()
                if _kind_of(each) == "whole" and each.name not in names and not each.is_fixed
            ]
            fixed = [
                each
                for each in node.scope or ()
                if each.is_fixed and self.is_near(node, each.name) and each.name not in names
            ]
            for each in [*others[:MOST_TERMS], *fixed[:MOST_TERMS]]:
                ways += [(f"`{_short(own)}` is `{_short(own)} + {each.name}`", f"{own} + {each.name}", 8)]
            ways += [(f"`{_short(own)}` is `{each}`", each, 6) for each in self.elements(node) if each != own]
            if node.kind == "name":
                ways += [
                    (f"`{own}` is `{size} - 1 - {own}`", f"{size} - 1 - {own}", 4) for size in self._sizes(node)[:2]
                ]
            if node.kind == "member":
                ways += [(f"`{own}` is `{own} + {each}`", f"{own} + {each}", 3) for each in self._beside(node)]
            self._wrap(node, ways)
            if not _is_sum(node):
                self._scaled(node)
        self.node(node)

    def _call(self, node: Node, *, is_set: bool) -> None:
        parts = node.parts
        if node.sign not in ("printf", "assert", "sizeof"):
            self._pairs(parts, is_kept=self._takes_places(node))
            self._without_call(node)
            self._other_function(node)
        for part in parts:
            if re.match(r"(?:reinterpret|const)_cast<", node.sign) or (
                part.kind != "name" and self._takes_places(node) and part.kind in ("index", "member")
            ):
                self.node(part, is_set=True)
            elif (
                part.kind == "name"
                and _kind_of(_found(part.scope, part.sign)) in ("whole", "floating")
                and node.sign in self.writer.returned
            ):
                self.node(part)
            elif part.kind in ("binary", "call", "name"):
                self.root_value(part)
            else:
                self.node(part)

    def _takes_places(self, node: Node) -> bool:
        """Whether a function of the file may change what it is given."""
        name = re.escape(node.sign.partition("<")[0])
        heads = re.findall(rf"\b{name}\(([^;{{}}]*)\)\s*{{", self.text)
        return any(re.search(r"(?<!const )\b(?!const\b)\w+\s*&\s*\w|\(&", head) for head in heads)

    def _without_call(self, node: Node) -> None:
        """One of its arguments alone, as of a function that gives the place of an element."""
        if self.type_of(node, node.scope) == "whole" and len(node.parts) > 1:
            own = _short(self.of(node))
            ways = [(f"`{own}` is `{self.of(part)}` alone", self.of(part), 2) for part in node.parts]
            self._wrap(
                node,
                [way for way, part in zip(ways, node.parts, strict=True) if self.type_of(part, node.scope) == "whole"],
            )

    def _other_function(self, node: Node) -> None:
        given = ", ".join(map(self.of, node.parts))
        others = _OTHER_FUNCTIONS.get(node.sign, ())
        self._wrap(node, [(f"`{node.sign}` is `{other}`", f"{other}({given})", 3) for other in others])

    def _list(self, node: Node, *, is_set: bool) -> None:
        self._pairs(node.parts)
        for part in node.parts:
            if part.kind != "number":
                self.node(part)

    def _pairs(self, parts: Sequence[Node], *, is_kept: bool = False) -> None:
        """``is_kept``: a place stays one."""
        pairs = combinations(parts, 2) if len(parts) <= MOST_PAIRS else pairwise(parts)
        for first, second in pairs:
            if first.kind == second.kind == "number":
                continue
            kind = self.type_of(first, first.scope)
            if kind != self.type_of(second, second.scope):
                kind = ""
            if kind in ("whole", "floating"):
                places = [each.kind in ("index", "member") for each in (first, second)]
                if all(places) or not (any(places) and is_kept):
                    self._exchange(first, second, 1, cast=not all(places))
            elif kind[7:] in self.writer.types or (first.kind == "index" and _base(first) == _base(second)):
                self._exchange(first, second, 1)

    def _index(self, node: Node, *, is_set: bool) -> None:
        chain = _chain(node)
        if not is_set and self.type_of(node, node.scope) == "floating":
            names = [each.name for each in node.scope or () if _kind_of(each) == "floating"]
            self._wrap(node, [(f"`{self.of(node)}` is `{each}`", each, 6) for each in names[:MOST_TERMS]], cast=False)
        for first, second in pairwise(chain[1:]):
            if "whole" == self.type_of(first, node.scope) == self.type_of(second, node.scope):
                self._exchange(first, second, 1)
        for place, part in enumerate(chain[1:], 1):
            if part.kind != "number":
                self._permuted(part, chain[place - 1] if place > 1 else None)
            was, self.is_index = self.is_index, True
            self.root_value(part)
            self.is_index = was
        self.node(chain[0], is_set=True)

    def _permuted(self, node: Node, row: Node | None) -> None:
        """The same column at the place where the file permutes others: by a function of row and column, or ``^``."""
        if row is None:
            return
        own, line = self.of(node), self.of(row)
        for name, kind in self.writer.returned.items():
            if kind == "int" and f"{name}(" in self.text and name not in own:
                heads = dict.fromkeys(re.findall(rf"(?<!int )\b{name}(?:<[\w, ]*>)?(?=\()", self.text))
                fixed = {each.name for each in node.scope or () if each.is_fixed}
                for head in [each for each in heads if {*_WORD.findall(each)} <= {name, *fixed}][:2]:
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
        visible = [each for each in node.scope or () if _kind_of(each) == "whole"]
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
            return "floating" if re.search(r"[.fF]|\d[eE]", node.sign) and not node.sign.startswith("0x") else "whole"
        if kind == "name":
            own = _found(scope, node.sign)
            return (
                _kind_of(own)
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
        chain = _chain(node)
        own = _found(scope, chain[0].sign) if chain[0].kind == "name" else None
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


def _any_of(chosen: Sequence[tuple[int, str]]) -> str:
    """Whether one of edits, whose numbers follow each other, is chosen."""
    if len(chosen) == 1:
        return f"{VARIABLE}=={chosen[0][0]}u"
    return f"{VARIABLE}-{chosen[0][0]}u<{len(chosen)}u"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _found(scope: Scope | None, name: str) -> Variable | None:
    return next((each for each in scope or () if each.name == name), None)


def _plain(kind: str) -> str:
    kind = kind.replace("const ", "").strip()
    if kind in WHOLE:
        return "whole"
    if kind in _FLOATING:
        return "floating"
    return "truth" if kind == "bool" else f"struct {kind}" if re.fullmatch(r"\w+", kind) else ""


def _kind_of(one: Variable | None) -> str:
    """``whole`` or ``floating`` for what is one number."""
    if one is None or one.dims or "*" in one.type or one.type == "auto":
        return ""
    return _plain(one.type)


def _chain(node: Node) -> list[Node]:
    """``a[i][j]`` -> a, i, j"""
    found: list[Node] = []
    while node.kind == "index":
        found.append(node.parts[1])
        node = node.parts[0]
    return [node, *found[::-1]]


def _ungrouped(node: Node) -> Node:
    """What stands in parentheses."""
    return _ungrouped(node.parts[0]) if node.kind == "group" else node


def _is_sum(node: Node) -> bool:
    return node.kind == "binary" and node.sign in ("+", "-")


def _is_alike(one: str, other: str) -> bool:
    """Whether two names differ little: in case, one letter or one part; ``OH`` and ``OW``, ``off_q`` and ``off_kv``."""
    if one.lower() == other.lower() or len(one) == len(other) <= 2:
        return True
    if min(len(one), len(other)) > 1 and (one.startswith(other) or other.startswith(one)):
        return True
    parts = [each.split("_") for each in (one, other)]
    return len(parts[0]) == len(parts[1]) > 1 and sum(a != b for a, b in zip(*parts, strict=True)) == 1


def _alike(name: str, other: str, third: str) -> str:
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


def _of_signs(node: Node, signs: Collection[str]) -> Iterator[Node]:
    if node.kind == "binary" and node.sign in signs:
        yield node
    for part in node.parts:
        yield from _of_signs(part, signs)


def _base(node: Node) -> str:
    return _chain(node)[0].sign


def _may_depend(one: str, other: str) -> bool:
    """Whether two statements have a name in common that one of them may change."""
    common = {*_WORD.findall(one)} & {*_WORD.findall(other)}
    return any(_changes(each, name) for name in common for each in (one, other))


def _changes(text: str, name: str) -> bool:
    assigned = rf"(?<![\w.]){name}\b(?:\s*(?:\[[^\]]*\]|\.\w+))*\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)"
    pattern = rf"{assigned}|\w+(?:<[^<>;]*>)?\([^;]*\b{name}\b"
    return re.search(pattern, text) is not None


def _takes_two(text: str, name: str) -> bool:
    return re.search(rf"\bint\s+{name}\(\s*int\s+\w+\s*,\s*int\s+\w+\s*\)", text) is not None


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
            used = {*_WORD.findall(target)}
            yield target, tuple(loop for loop in loops if loop[1] in used)
    for part in one.parts:
        yield from _sums(part, text, loops)


def _factors(one: Statement, text: str) -> Iterator[str]:
    """``__expf({})``: how the function takes the exponential of a difference."""
    body = text[one.begin : one.end]
    for match in re.finditer(r"\b(\w*exp\w*)\(", body):
        inner = re.match(r"\s*(\w+)\s*\*\s*\(", body[match.end() :])
        yield f"{match[1]}({inner[1]} * ({{}}))" if inner else f"{match[1]}({{}})"
