"""PTX -> what the addresses are made of that a line of the file reads, writes or copies to.

An address is followed back through the registers. What it is made of is one of the parts below; UNKNOWN where a value
comes from memory, from another lane, or from one side of a branch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from grader.compile.changes import Kernel, Statement, kernels_of

BLOCK, THREAD, ROUND, UNKNOWN = "block", "thread", "round", "unknown"
LARGEST = 4 << 20  # bytes of PTX
DEEPEST = 200  # statements on one way to an address
NEAR = 8  # lines of the PTX between two statements of one asm statement
_OF_BLOCK = re.compile(r"%(?:ctaid|clusterid|cluster_ctaid|cluster_ctarank)\b")
_OF_THREAD = re.compile(r"%(?:tid|laneid|warpid|lanemask_\w+)\b")
_UNIFORM = re.compile(r"%(?:ntid|nctaid|ncluster\w*|cluster_ncta\w+|is_explicit_cluster)\b")
_NAME = re.compile(r"%[a-z_]+\d*(?:\.[xyz])?|(?<![\w%.$])[a-z_]\w*")
_PURE = re.compile(
    r"(?:mov|cvt|cvta|add|sub|mul|mul24|mad|mad24|fma|div|rem|min|max|abs|neg|and|or|xor|not|lop3|shl|shr|shf|bfe|bfi|bfind"
    r"|selp|slct|setp|set|mapa|getctarank|prmt|popc|clz|brev|isspacep|szext|sad|cnot|dp4a|dp2a)\b"
)
_NO_RESULT = re.compile(
    r"(?:st|red|bra|brx|bar|barrier|ret|exit|trap|membar|fence|prefetch\w*|cp|stmatrix|nanosleep|call|wgmma|mbarrier\.init)\b"
)
_LAST_OF_BLOCK = re.compile(r"^\s*([a-z][\w.:]*)\s+([^;]*);\s*\}\s*$")
_WRITES = re.compile(r"(?:st|red|atom|cp\.async(?!\.(?:commit|wait|mbarrier))|stmatrix)\b")
_COPY_OUT = re.compile(
    r"cp\.(?:reduce\.)?async\.bulk\S*\.global(?:\.\w+)*\.shared|cp\.async\.bulk\.(?:commit|wait|prefetch)"
)


@dataclass(frozen=True)
class Address:
    """``parts`` are BLOCK, THREAD, ROUND (the round of a loop) and UNKNOWN; ``same`` tells one computation from
    another: two statements with the same one have the same address in a thread that goes through no other round."""

    parts: frozenset[str]
    same: str


@dataclass
class _Code:
    """The statements of a kernel, and by register those that set it. Here the last one of a block of an asm statement
    counts, too, which ends on the line of its brace."""

    statements: list[Statement]
    set_by: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place, one in enumerate(self.statements):
            for name in _names(one.operands[0]) if one.operands and not _NO_RESULT.match(one.opcode) else ():
                self.set_by.setdefault(name, []).append(place)


@dataclass
class _Way:
    code: _Code
    parts: set[str] = field(default_factory=set)
    known: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)  # registers that are being followed, from the address on
    rounds: set[str] = field(default_factory=set)  # of these, those that come from themselves


def written_by(ptx: str, name: str, line: int, callers: Sequence[int]) -> list[Address]:
    """The addresses that the statements of a line write or copy to, where its function is inlined into ``callers``."""
    found, text = [], ptx.split("\n")
    for kernel in kernels_of(ptx, name):
        of_line = [one for one in kernel.statements if one.line == line and _is_write(one)]
        of_line = [one for one in of_line if not callers or one.caller in (0, callers[0])]
        if not of_line:
            continue
        code = _code_of(kernel, text)
        for one in of_line:
            way = _Way(code)
            same = _followed(way, one.operands[1 if one.name == "atom" else 0], one.number)
            found.append(Address(frozenset(way.parts), same))
    return found


def updated_by(ptx: str, name: str, line: int, callers: Sequence[int]) -> bool:
    """Whether each plain store of a line puts a value back to the address that the line has loaded it from, and loads
    nothing else from there: the parameter, or the array in shared memory, that the address is made of."""
    found, text = [], ptx.split("\n")
    for kernel in kernels_of(ptx, name):
        of_line = [one for one in kernel.statements if one.line == line and one.name in ("ld", "st")]
        of_line = [one for one in of_line if not one.opcode.startswith("ld.param")]
        of_line = [one for one in of_line if not callers or one.caller in (0, callers[0])]
        code = _code_of(kernel, text) if of_line else _Code([])
        loads: dict[str, str] = {}  # address -> the register that is loaded
        for one in of_line:
            address = _followed(_Way(code), one.operands[one.name == "ld"], one.number)
            if one.name == "ld":
                loads[address] = one.operands[0]
            else:
                near = [register for each, register in loads.items() if _bases(each) & _bases(address)]
                found.append(near == [loads.get(address)] and _comes_from(code, one.operands[1], near[0]))
    return bool(found) and all(found)


def _bases(address: str) -> set[str]:
    return {*re.findall(r"(?<![\w.%])\[?([A-Za-z_$][\w$]*_param_\d+|_Z\w+|[A-Za-z_$]\w*smem\w*)", address)}


def _comes_from(code: _Code, operand: str, source: str) -> bool:
    """Whether a value is computed from a register, in any way."""
    waiting, seen = [*_names(operand)], set[str]()
    while waiting:
        name = waiting.pop()
        if name == source:
            return True
        if name in seen:
            continue
        seen.add(name)
        places = code.set_by.get(name, [])
        waiting += [each for place in places for each in _names(" ".join(code.statements[place].operands[1:]))]
    return False


def _is_write(one: Statement) -> bool:
    return _WRITES.match(one.opcode) is not None and _COPY_OUT.match(one.opcode) is None


def _code_of(kernel: Kernel, text: Sequence[str]) -> _Code:
    first, last = kernel.statements[0].number, kernel.statements[-1].number
    ends = ((number, _LAST_OF_BLOCK.match(text[number])) for number in range(first, last))
    more = [Statement(number, 0, "", "", end[1], tuple(end[2].split(", "))) for number, end in ends if end]
    return _Code(sorted([*kernel.statements, *more], key=lambda one: one.number))


def _followed(way: _Way, operand: str, number: int) -> str:
    """The operand with each register as what it is computed from; adds to the parts of the way."""
    return _NAME.sub(lambda match: _of_name(way, match[0], number), operand)


def _names(operand: str) -> Iterator[str]:
    return (match[0] for match in _NAME.finditer(operand))


def _of_name(way: _Way, name: str, number: int) -> str:
    if _OF_BLOCK.match(name) or _OF_THREAD.match(name):
        way.parts.add(BLOCK if _OF_BLOCK.match(name) else THREAD)
        return name
    places = way.code.set_by.get(name, [])
    if not re.fullmatch(r"%[a-z]+\d+", name):  # a variable in memory, or a register that an asm statement names
        places = [place for place in places if number - NEAR <= way.code.statements[place].number < number][-1:]
    if not places:
        if name.startswith("%") and not _UNIFORM.match(name):
            way.parts.add(UNKNOWN)
        return name
    if name in way.open:  # a loop's variable, and what it is made of
        way.rounds.update(way.open[way.open.index(name) :])
        way.parts.add(ROUND)
        return name
    if name not in way.known:
        way.known[name] = _of_statements(way, name, places)
    return way.known[name]


def _of_statements(way: _Way, name: str, places: Sequence[int]) -> str:
    if len(way.open) > DEEPEST:
        way.parts.add(UNKNOWN)
        return name
    way.open.append(name)
    said = []
    for one in (way.code.statements[place] for place in places):
        if one.opcode.startswith("ld.param"):
            said.append(one.operands[-1])
            continue
        if not _PURE.match(one.opcode):
            way.parts.add(UNKNOWN)
            continue
        said.append(
            " ".join([one.opcode, *(_followed(way, each, one.number) for each in (one.guard, *one.operands[1:]))])
        )
    way.open.pop()
    if len(places) > 1 and name not in way.rounds:  # set on two sides of a branch, of which nothing is known
        way.parts.add(UNKNOWN)
    return f"({' | '.join(said)})"
