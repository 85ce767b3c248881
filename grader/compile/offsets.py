"""PTX -> the lines of the file where an offset into global memory is a product of sizes in 32 bits.

A product such as ``row * cols`` in an int wraps from 2^31 elements on, long before the buffers of a card are full, and
no case of a grade is that large. What nvcc made of the file says it for sure: the product is a 32-bit instruction, a
parameter of the kernel goes into it, and what comes of it is widened only then and added to an address.

Products that only count what one block has (with constants, of thread and block numbers alone) are none of these, nor
is what a division, a remainder or a mask has made small again.

nvcc computes a product where its factors are known, and gives it that line: often one above the learner's own. A line
that does not have the name of the parameter that is multiplied there cannot be its line. Then the access has one, too.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from grader.compile.locations import LOCATION, files_called, place_of
from grader.content.functions import Code

Place = tuple[int, int]  # a file of the PTX, and a line in it

_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)\s+(.*);")
_REGISTER = re.compile(r"%\w+(?:\.\w)?")
_FUNCTION = re.compile(r"\s*(?:\.\w+\s+)*\.(?:entry|func)\b")
_FUNCTIONS = (re.compile(r"\.entry\b"), re.compile(r"\.func\b"))  # quick to find; a line of _FUNCTION has one of them

_PARAMETER = re.compile(r"ld\.param\.[usb]32$")
_PRODUCT = re.compile(r"(?:mul|mad)\.lo\.[usb]32$")
_WIDENED = re.compile(r"(?:cvt\.[us]64\.[us]32|(?:mul|mad)\.wide\.[us]32)$")
_KEEPS = re.compile(r"(?:mov|add|sub|mul|mad|shl|or|neg|selp|max)\.")  # how large its operands are
_SIZED = re.compile(r"(?:mov|add|sub|mul|mad|shl|shr|div|neg|selp|min|max|cvt)\.")  # a size, still
_ACCESS = re.compile(r"(?:ld|st|atom|red|ldu|cp\.async\S*|prefetch\S*)\b(?!\.(?:param|shared|local|const))")


@dataclass(frozen=True)
class _Kind:
    """What an opcode means for sizes and offsets."""

    parameter: bool
    product: bool
    passes: bool  # a product that goes in is in what comes out
    sized: bool
    access: bool


@functools.cache
def _kind_of(opcode: str) -> _Kind | None:
    """None where an instruction has nothing to do with either."""
    passes = _KEEPS.match(opcode) or _WIDENED.match(opcode)
    found = [bool(each) for each in (_PARAMETER.match(opcode), _PRODUCT.match(opcode), passes, _SIZED.match(opcode))]
    found.append(bool(_ACCESS.match(opcode)))
    return _Kind(*found) if any(found) else None


@dataclass(frozen=True)
class _Instruction:
    opcode: str
    kind: _Kind
    operands: tuple[str, ...]  # as written: registers, numbers, [addresses]
    place: Place

    @property
    def target(self) -> str:
        return self.operands[0] if self.operands else ""

    @property
    def sources(self) -> tuple[str, ...]:
        return self.operands[1:]


@dataclass
class _Function:
    """``sizes`` are registers that come of a parameter; ``narrow`` those that come of a product, with where."""

    instructions: Sequence[_Instruction]
    moved: Callable[[str, Place], bool]  # whether a parameter cannot have been multiplied in a line
    sizes: set[str] = field(default_factory=set)
    narrow: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    quotients: set[tuple[str, str]] = field(default_factory=set)  # and what they are quotients by
    parameters: dict[str, str] = field(default_factory=dict)  # register -> what it is loaded from
    elsewhere: set[Place] = field(default_factory=set)  # products that have the line of something else

    def lines(self) -> Iterator[Place]:
        """Where the products stand that go into an address, and its accesses where that is not sure."""
        self.parameters = {each.target: each.sources[0] for each in self.instructions if each.kind.parameter}
        divisions = (each for each in self.instructions if each.opcode.startswith("div."))
        self.quotients = {(each.target, each.sources[1]) for each in divisions}
        self._settle(self._size, [each for each in self.instructions if each.kind.parameter or each.kind.sized])
        self._settle(self._narrow, [each for each in self.instructions if each.kind.product or each.kind.passes])
        for each in self.instructions:
            if each.kind.access:
                for operand in each.operands:
                    for register in _REGISTER.findall(operand) if operand.startswith("[") else ():
                        found = self.narrow.get(register, set()) if register.startswith("%rd") else set()
                        yield from found
                        if not found.isdisjoint(self.elsewhere):
                            yield each.place

    def _settle(self, step: Callable[[_Instruction], None], instructions: Sequence[_Instruction]) -> None:
        """Registers may be written in any order, in loops: until nothing is new."""
        before = -1
        while before != (before := len(self.sizes) + sum(map(len, self.narrow.values()))):
            for each in instructions:
                step(each)

    def _size(self, each: _Instruction) -> None:
        if each.kind.parameter or not self.sizes.isdisjoint(each.sources):
            self.sizes.add(each.target)

    def _narrow(self, each: _Instruction) -> None:
        found = self.narrow[each.target]
        if each.kind.product:
            one, other = each.sources[:2]
            is_remainder = (one, other) in self.quotients or (other, one) in self.quotients  # a - a / b * b
            sized = one in self.sizes or other in self.sizes
            if one.startswith("%") and other.startswith("%") and sized and not is_remainder:
                found.add(each.place)
                factors = [self.parameters[factor] for factor in (one, other) if factor in self.parameters]
                if factors and all(self.moved(factor, each.place) for factor in factors):
                    self.elsewhere.add(each.place)
        if each.kind.passes:
            # What is taken away was less than what it is taken from, or wraps back.
            for source in each.sources[:1] if each.opcode.startswith("sub.") else each.sources:
                if source in self.narrow:
                    found |= self.narrow[source]


_COMMA = re.compile(r",(?![^\[{]*[\]}])")
_ANY_PRODUCT = re.compile(r"\.lo\.[usb]32\s+%\w+, %\w+, %")


def narrow_lines(ptx: str, name: str, source: str) -> tuple[int, ...]:
    """The lines of the file called ``name`` with a product that goes into an address, in order."""
    if not _ANY_PRODUCT.search(ptx):
        return ()
    own, code = files_called(ptx, name), Code(source)

    def moved(parameter: str, place: Place) -> bool:
        begin, end = code.line_span(place[1])
        known = _name_of(parameter, code) if place[0] in own else ""
        return known != "" and re.search(rf"\b{known}\b", code.text[begin:end]) is None

    found = {place for function in _functions(ptx, own) for place in _Function(function, moved).lines()}
    return tuple(sorted({line for file, line in found if file in own}))


def _name_of(parameter: str, code: Code) -> str:
    """What the file calls a kernel's parameter, as PTX names it; empty where two kernels may be meant."""
    match = re.fullmatch(r"\[(\w+)_param_(\d+)\]", parameter)
    if match is None:
        return ""
    kernels = [each for each in code.functions if each.is_kernel and f"{len(each.name)}{each.name}" in match[1]]
    names = {name for each in kernels for name in [one.name for one in each.parameters][int(match[2]) :][:1]}
    return names.pop() if len(names) == 1 else ""


def _functions(ptx: str, own: Collection[int]) -> Iterator[Sequence[_Instruction]]:
    """The instructions that matter of each function with a product of two registers, with the line of the file itself
    where a header's code was inlined into it."""
    lines = {ptx.rfind("\n", 0, match.start()) + 1 for words in _FUNCTIONS for match in words.finditer(ptx)}
    starts = sorted(line for line in lines if _FUNCTION.match(ptx, line))
    for start, end in pairwise([0, *starts, len(ptx)]):
        if not _ANY_PRODUCT.search(ptx, start, end):
            continue
        body: list[_Instruction] = []
        place = (0, 0)
        for text in ptx[start:end].splitlines():
            if ".loc" in text and (location := LOCATION.match(text)):
                found = place_of(location, own)
                place = found if found[1] else place  # line 0: the compiler's own, on the way to what comes next
            elif (instruction := _INSTRUCTION.match(text)) and (kind := _kind_of(instruction[1])):
                body.append(_Instruction(instruction[1], kind, _operands(instruction[2]), place))
        yield body


def source_line(ptx: str, number: int, name: str) -> int | None:
    """The line of the file called ``name`` that line ``number`` of the PTX comes from; None where PTX does not say."""
    own = files_called(ptx, name)
    for text in reversed(ptx.splitlines()[:number]):
        if location := LOCATION.match(text):
            file, line = place_of(location, own)
            return (line or None) if file in own else None
    return None


def _operands(text: str) -> tuple[str, ...]:
    """Split at the commas that are in no brackets or braces."""
    parts = text.split(",") if "[" not in text and "{" not in text else _COMMA.split(text)
    return tuple(part.strip() for part in parts)
