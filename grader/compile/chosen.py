"""PTX of a file with many edits, of which a variable chooses one -> the PTX with none, and each edit as a change of it.

The code asks the variable wherever an edit is. Each such condition is decided here, and what no longer runs is left
out: the code then costs a call little more than that of the file itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from grader.compile.changes import Change
from grader.compile.edit_writer import VARIABLE, Edit

_ADDRESS = re.compile(rf"\s*mov\.u64\s+(%rd\d+), {VARIABLE};")
_GENERIC = re.compile(r"\s*cvta\.global\.u64\s+(%rd\d+), (%rd\d+);")
_LOAD = re.compile(r"\s*ld\.(?:global\.)?u32\s+(%r\d+), \[(%rd\d+)\];")
_LESS = re.compile(r"\s*(?:sub|add)\.s32\s+(%r\d+), (%r\d+), -?(\d+);")
_COMPARED = re.compile(r"\s*setp\.(eq|ne|lt)\.[su]32\s+(%p\d+), (%r\d+), (\d+);")
_NOT = re.compile(r"\s*not\.pred\s+(%p\d+), (%p\d+);")
_BRANCH = re.compile(r"\s*@(!?)(%p\d+) bra\s+(\$\w+);")
_JUMP = re.compile(r"\s*bra(?:\.uni)?\s+(\$\w+);")
_MOVE = re.compile(r"\s*mov\.[\w.]+\s+%\w+, [^;]+;")
_LABEL = re.compile(r"\s*(\$\w+):")
_LEAVES = re.compile(r"\s*(?:bra(?:\.uni)?\s|ret\b|exit\b|trap\b)")
_TO = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+);")


@dataclass
class _Block:
    """Lines from one label to the next: the first, the one behind the last, and where it may go on."""

    begin: int
    end: int = 0
    to: list[str] = field(default_factory=list)
    falls: bool = True


@dataclass
class _Question:
    """Where the code asks for one of edits: the lines of its branch, and where that goes with them."""

    edits: range
    branches: list[int]
    taken: str


@dataclass
class _Function:
    blocks: list[_Block] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)  # label -> block
    questions: list[_Question] = field(default_factory=list)

    def alive(self, first: int, known: Collection[int] = ()) -> set[int]:
        """The blocks that are come to from one; not past those that are known."""
        found, waiting = set[int](), [first]
        while waiting:
            number = waiting.pop()
            if number in found or number in known or number >= len(self.blocks):
                continue
            found.add(number)
            block = self.blocks[number]
            waiting += [self.named[label] for label in block.to if label in self.named]
            waiting += [number + 1] if block.falls else []
        return found


@dataclass(frozen=True)
class Chosen:
    text: str
    changes: tuple[tuple[Edit, Change], ...]


def chosen(ptx: str, edits: Sequence[Edit]) -> Chosen:
    """The code without edits, and those edits that are in it. Each has one change for all instances of a template."""
    text = ptx.split("\n")
    found: dict[int, dict[int, str]] = {}
    jumps: dict[int, dict[int, str]] = {}
    for begin, end in _bodies(text):
        function = _Function()
        _decide(function, text, begin, end, found)
        _divide(function, text, begin, end)
        _shorten(function, text)
        folded, alive = text[begin:end], function.alive(0)
        for number, block in enumerate(function.blocks):
            if number not in alive:
                text[block.begin : block.end] = [""] * (block.end - block.begin)
        for question in function.questions:
            more: dict[int, str] = {}
            for number in function.alive(function.named[question.taken], alive):
                block = function.blocks[number]
                more |= {place: folded[place - begin] for place in range(block.begin, block.end)}
            branches = dict.fromkeys(question.branches, f"\tbra.uni {question.taken};")
            for edit in question.edits:
                jumps.setdefault(edit, {}).update(branches)
                found[edit] = more | found.get(edit, {})
    for edit, lines in jumps.items():  # these replace other lines
        found[edit] = found.get(edit, {}) | lines
    changes = [
        (each, Change(each.line, each.words, found[each.number], then=each.then, last=each.last))
        for each in edits
        if each.number in found
    ]
    return Chosen("\n".join(text), tuple(changes))


def _bodies(text: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The lines of each function between its braces."""
    begin = 0
    for number, line in enumerate(text):
        if line == "{":
            begin = number + 1
        elif line == "}" and begin:
            yield begin, number
            begin = 0


def _decide(function: _Function, text: list[str], begin: int, end: int, found: dict[int, dict[int, str]]) -> None:
    """Answer each question for the code without edits; where no branch follows, what is loaded becomes 0."""
    before: dict[str, int] = {}  # register -> the line that sets it to the variable's address, or to the variable
    first: dict[str, tuple[str, int]] = {}  # register -> the one that it is less a number than, and that number
    for number in range(begin, end):
        line = text[number]
        if match := _ADDRESS.match(line) or _GENERIC.match(line) or _LOAD.match(line):
            if match.re is _ADDRESS or match[2] in before:
                before[match[1]] = number
        elif (match := _LESS.match(line)) and match[2] in before:
            before[match[1]], first[match[1]] = before[match[2]], (match[2], int(match[3]))
        elif (match := _COMPARED.match(line)) and match[3] in before:
            loaded, least = first.get(match[3], (match[3], int(match[4])))
            edits = range(least, least + (int(match[4]) if match[1] == "lt" else 1))
            if not _fold(function, text, number, match, edits):
                place = before[match[3]]
                text[place] = f"\tmov.u32 {loaded}, 0;"
                for edit in edits:
                    found.setdefault(edit, {})[place] = f"\tmov.u32 {loaded}, {edit};"


def _fold(function: _Function, text: list[str], number: int, compared: re.Match[str], edits: range) -> bool:
    """Where two jumps follow the comparison, it becomes one."""
    register, is_asked, at = compared[2], compared[1] != "ne", number + 1
    if (match := _NOT.match(text[at])) and match[2] == register:
        register, is_asked, at = match[1], not is_asked, at + 1
    begin, first = number, at
    while _MOVE.match(text[at]):  # what the branch chooses from
        at += 1
    branch, jump = _BRANCH.match(text[at]), _JUMP.match(text[at + 1])
    if branch is None or jump is None or branch[2] != register:
        return False
    while any(each.match(text[begin - 1]) for each in (_ADDRESS, _GENERIC, _LOAD, _LESS)):
        begin -= 1
        if VARIABLE in text[begin]:
            break
    taken, otherwise = (branch[3], jump[1]) if (branch[1] == "") == is_asked else (jump[1], branch[3])
    text[begin:first] = [""] * (first - begin)
    text[at : at + 2] = [f"\tbra.uni {otherwise};", ""]
    function.questions.append(_Question(edits, [at], taken))
    return True


def _shorten(function: _Function, text: list[str]) -> None:
    """A jump to a jump goes on at once. A question that it passes is then asked where it begins."""
    asked = {question.branches[0]: question for question in function.questions}
    only: dict[str, tuple[int, str]] = {}  # label of a block that only jumps -> the jump's line, and where it goes
    jumps = []
    for block in function.blocks:
        lines = [place for place in range(block.begin, block.end) if text[place] and ".loc" not in text[place]]
        match = _JUMP.match(text[lines[-1]]) if lines else None
        if match is not None:
            jumps.append((lines[-1], match[1]))
        if match is not None and len(lines) == 2 and (label := _LABEL.match(text[lines[0]])):
            only[label[1]] = lines[1], match[1]
    for place, to in jumps:
        seen: set[str] = set()
        while to in only and to not in seen:
            seen.add(to)
            passed, to = only[to]
            if passed in asked:
                asked[passed].branches.append(place)
        text[place] = f"\tbra.uni {to};"
    _redirect(function, text)


def _redirect(function: _Function, text: Sequence[str]) -> None:
    """Note where the blocks go after jumps were shortened."""
    for block in function.blocks[1:] or function.blocks:
        block.to = [to for line in text[block.begin : block.end] for to in _TO.findall(line)]


def _divide(function: _Function, text: Sequence[str], begin: int, end: int) -> None:
    """Its blocks. All that stands before the first label is one; a table of jumps leads to every label."""
    function.blocks = [_Block(begin)]
    is_table = any("brx.idx" in text[number] for number in range(begin, end))
    for number in range(begin, end):
        block = function.blocks[-1]
        if match := _LABEL.match(text[number]):
            block.end = number
            function.named[match[1]] = len(function.blocks)
            function.blocks.append(block := _Block(number))
        block.to += _TO.findall(text[number])
        if text[number].strip():
            block.falls = _LEAVES.match(text[number]) is None
    function.blocks[-1].end = end
    if is_table:
        function.blocks[0].to += function.named
