"""A .cu file -> the same file with many small edits in it, of which a variable chooses one: ``kata_edit``.

nvcc makes PTX of all of them at once. Where an expression is edited, both forms stand in the text, and a condition
takes one::

    y[i] = x[(kata_edit == 3u ? (kata_t<decltype(i)>)(j) : i)];

The lines of the file stay where they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from grader.compile.combinations import Combination, combinations_of
from grader.content.functions import Code, relatives_of, without_comments
from grader.content.skeleton import Todo, todos

VARIABLE = "kata_edit"
MOST = 1500  # edits of a file
MOST_OF_LINE = 120
HEAD = (
    f"__device__ unsigned {VARIABLE};"
    "template<class T>struct kata_v{using t=T;};template<class T>struct kata_v<T&>{using t=typename kata_v<T>::t;};"
    "template<class T>struct kata_v<const T>{using t=T;};template<class T>using kata_t=typename kata_v<T>::t;"
    "template<class T>__device__ inline void kata_zero(T&x){char*b=reinterpret_cast<char*>(&x);"
    "for(int i=0;i<int(sizeof(T));++i)b[i]=0;} "
)
WORD = re.compile(r"[A-Za-z_]\w*")
_REPLACED = re.compile(r"`([^`]+)` is `((?:(?!\.\.\.)[^`])+)`")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


@dataclass(frozen=True)
class Edit:
    """``line`` is the file's; ``words`` say what is other than the file says. The likeliest have the least ``rank``.
    ``then`` is the line with the edit, where the words do not say which of several places they are about. ``last`` is
    its last line, where it replaces several as a whole."""

    number: int
    line: int
    words: str
    rank: int
    then: str = ""
    last: int = 0


@dataclass(frozen=True)
class Refused:
    """What nvcc did not accept: edits of ``lines``, and such as have ``names`` that it does not know at their place."""

    lines: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()

    def has(self, line: int, text: str, own: str) -> bool:
        """Whether an edit of a line is among them, which has this text and replaces its ``own``."""
        return line in self.lines or not {*WORD.findall(text)} & self.names <= {*WORD.findall(own)}


NOTHING_REFUSED = Refused()


@dataclass(frozen=True)
class Edited:
    text: str
    edits: tuple[Edit, ...]


@dataclass
class Writer:
    """Collects edits, and the text that they add at places of the file."""

    text: str
    lines: frozenset[int]
    doubts: Mapping[int, float]
    refused: Refused = NOTHING_REFUSED
    edits: list[Edit] = field(default_factory=list)
    added: list[tuple[int, int, float, int, str]] = field(default_factory=list)  # place, and what is there sooner
    known: list[tuple[int, int]] = field(default_factory=list)  # rank and line of all edits that there are
    chosen: frozenset[int] | None = None  # of them
    types: dict[str, dict[str, str]] = field(default_factory=dict)  # of structs: member -> type
    returned: dict[str, str] = field(default_factory=dict)  # by functions of the file

    used: frozenset[str] = frozenset()  # names, by device functions
    asked: list[tuple[Todo, set[str]]] = field(default_factory=list)  # the words that its text has and its code lacks

    def __post_init__(self) -> None:
        self.plain = blanked(self.text)
        self.relatives, self.count = relatives_of(self.text), Counter(WORD.findall(self.plain))
        self.starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        for match in re.finditer(r"\bstruct\s+(\w+)[^;{]*\{([^{}]*)\}", self.text):
            self.types[match[1]] = _members(match[2])
        for match in re.finditer(r"__device__\s+(?:__forceinline__\s+|inline\s+)*([\w:]+)\s+(\w+)\(", self.text):
            self.returned[match[2]] = match[1]
        lines = self.plain.split("\n")
        for todo in todos(self.text):
            code = "\n".join(lines[todo.line : todo.end - 1])
            self.asked.append((todo, {*WORD.findall(todo.text)} - {*WORD.findall(code)}))

    @cached_property
    def combinations(self) -> list[Combination]:
        return combinations_of(Code(self.text), self.returned)

    def asked_for(self, place: int) -> set[str]:
        """The words that the text of the TODO at a place has, and that its code lacks."""
        line = self.line_at(place)
        return next((words for todo, words in self.asked if todo.line < line < todo.end), set())

    def line_at(self, place: int) -> int:
        return bisect_right(self.starts, place)

    def text_of(self, line: int) -> str:
        begin = self.starts[line - 1]
        end = self.plain.find("\n", begin)
        return self.plain[begin : end if end >= 0 else None]

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
        if self.refused.names and self.refused.has(line, words, self.text_of(line)):
            return 0
        self.known.append((rank, line))
        if self.chosen is None or len(self.known) - 1 not in self.chosen:
            return 0
        return self.edit(place, words, rank)

    def edit(self, place: int, words: str, rank: int, last: int = 0) -> int:
        """The number of a new edit."""
        words = " ".join(words.split())
        self.edits.append(Edit(len(self.edits) + 1, self.line_at(place), words, rank, self._then(place, words), last))
        return len(self.edits)

    def _then(self, place: int, words: str) -> str:
        """The line with an edit, where it has more than once what is replaced; else empty."""
        found = _REPLACED.fullmatch(words)
        if found is None or not self.plain.startswith(found[1], place):
            return ""
        number = self.line_at(place)
        line, at = self.text_of(number), place - self.starts[number - 1]
        end = at + len(found[1])
        is_alone = line[:at].rstrip().endswith(("[", "(", ",")) and line[end:].lstrip().startswith(("]", ")", ","))
        several = len(re.findall(rf"(?<![\w.]){re.escape(found[1])}(?![\w.])", line)) > 1
        if not several or not (is_alone or re.fullmatch(r"[\w.]+", found[2])):
            return ""
        return " ".join(f"{line[:at]}{found[2]}{line[end:]}".split())

    def add(self, place: int, text: str, *, closes: bool, other: int | None = None) -> None:
        """Text at a place; ``other``: where the expression that it is put around ends or begins. What is put around a
        longer one stands further out, and a statement's before all expressions'. The later of equal ones is inside."""
        order = len(self.added)
        depth = float("inf") if other is None else float(other)
        depth = -depth if not closes or other is not None else depth
        self.added.append((place, 0 if closes else 1, depth, -order if closes else order, text))

    def edited(self) -> Edited:
        head = next((m.start() for m in re.finditer(r"^(?=\w)(?!using\b.*=)", blanked(self.text), re.MULTILINE)), 0)
        pieces, last = [], 0
        for place, *_, text in sorted([(head, -1, 0.0, 0, HEAD), *self.added]):
            pieces += [self.text[last:place], text]
            last = place
        return Edited("".join([*pieces, self.text[last:]]), tuple(self.edits))


def blanked(text: str) -> str:
    """Without comments and directives; every place is where it was."""
    return _DIRECTIVE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), without_comments(text))


def _members(body: str) -> dict[str, str]:
    found = {}
    for kind, names in re.findall(
        r"(?:^|;)\s*(?:const\s+)?([A-Za-z_][\w ]*?)\s+(\w+(?:\s*,\s*\w+)*)\s*(?=;)", blanked(body)
    ):
        found.update({name.strip(): kind for name in names.split(",")})
    return found
