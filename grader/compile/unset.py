"""PTX and nvcc's messages -> the lines of the file that use a variable before anything sets it.

nvcc folds such a use away where it can, and only its warning is left. In a loop it leaves a register that every way
from the kernel's start reads before it writes it: the sum that nothing set to 0. A register that is set under a
condition, and read under the same condition, is not one of these.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.compile.locations import LOCATION, Place, files_called, place_of

_INSTRUCTION = re.compile(r"^[\s{}]*(@!?%\w+\s+)?([a-z][\w.:]*)(?:\s+(.*))?$")
_LABEL = re.compile(r"^\s*(\$\w+):")
_REGISTER = re.compile(r"%(?!(?:clock|pm|envreg)\d)[a-z]+\d+\b")
_BEGIN = re.compile(r"^\s*(?:\.\w+\s+)*\.entry\b")
_END = re.compile(r"^}")
_FIRST = re.compile(r"[^,{]*(?:\{[^}]*\})?")  # operand, which may be several registers in braces
_NO_RESULT = re.compile(
    r"(?:st|red|bra|brx|(?:bar|barrier)(?![\w.:]*\.red\b)|ret|exit|trap|brkpt|membar|fence|prefetch\w*|cp|stmatrix|nanosleep|setmaxnreg|call"
    r"|griddepcontrol|discard|applypriority|wgmma\.(?:fence|commit_group|wait_group)|wmma\.store|mbarrier\.init"
    r"|mbarrier\.inval|mbarrier\.expect_tx|mbarrier\.complete_tx|multimem\.red|multimem\.st|pmevent)\b"
)
_JUMP = re.compile(r"bra(?:\.uni)?$")
_WARNED = re.compile(r"\((\d+)\): warning #(?:549|592)(?:-D)?: (.*)")


@dataclass(frozen=True)
class _Instruction:
    opcode: str
    guard: str  # empty: always executed
    written: frozenset[str]
    read: frozenset[str]
    target: str  # a label
    place: Place


@dataclass(frozen=True)
class Unset:
    """A use of what nothing has set: a line of the file, and the compiler's words if it warned."""

    line: int
    warning: str = ""


def warned(log: str) -> list[Unset]:
    """What nvcc's messages say is used before it is set, line by line."""
    found = {int(line): Unset(int(line), words.strip()) for line, words in _WARNED.findall(log)}
    return [found[line] for line in sorted(found)]


def unset_lines(ptx: str, name: str) -> list[Unset]:
    """The lines of the file called ``name`` that read registers which nothing has written by then."""
    own = files_called(ptx, name)
    places = {place for labels, code in _kernels(ptx, own) for place in _places(labels, code)}
    return [Unset(line) for line in sorted({line for file, line in places if file in own})]


def _kernels(ptx: str, own: Collection[int]) -> Iterator[tuple[Mapping[str, int], Sequence[_Instruction]]]:
    """Each kernel as where its labels are, and its instructions."""
    labels: dict[str, int] = {}
    code: list[_Instruction] = []
    place, inside = (0, 0), False
    for text in ptx.splitlines():
        if _BEGIN.match(text):
            labels, code, inside = {}, [], True
        elif _END.match(text) and inside:
            yield labels, code
            inside = False
        elif location := LOCATION.match(text):
            found = place_of(location, own)
            place = found if found[1] else place
        elif inside and (label := _LABEL.match(text)):
            labels[label[1]] = len(code)
        elif inside:
            for statement in text.split(";"):
                if match := _INSTRUCTION.match(statement):
                    code.append(_instruction(match[1] or "", match[2], match[3] or "", place))


def _instruction(guard: str, opcode: str, operands: str, place: Place) -> _Instruction:
    first = "" if _NO_RESULT.match(opcode) else _FIRST.match(operands)[0]  # type: ignore[index]  # matches anything
    is_address = first.lstrip().startswith("[")
    written = frozenset() if is_address else frozenset(_REGISTER.findall(first))
    read = frozenset(_REGISTER.findall(guard + (operands if is_address else operands[len(first) :])))
    target = operands.strip() if _JUMP.match(opcode) else ""
    return _Instruction(opcode, guard.strip(), written, read, target, place)


def _places(labels: Mapping[str, int], code: Sequence[_Instruction]) -> Iterator[Place]:
    """Where registers are read first that no way from the start writes before it reads them."""
    if any(each.opcode.startswith("brx") for each in code):
        return  # its ways are not known here
    bits: dict[str, int] = {}
    written = [_mask(each.written, bits) for each in code]
    read = [_mask(each.read, bits) for each in code]
    untouched: dict[int, int] = {}  # the registers, as a mask, that some way to an instruction neither reads nor writes
    set_first = 0  # those that some way writes before it reads them
    todo = [(0, (1 << len(bits)) - 1)]
    while todo:
        at, left = todo.pop()
        while at < len(code) and left & ~untouched.get(at, 0):
            left = untouched[at] = left | untouched.get(at, 0)
            each = code[at]
            set_first |= left & written[at] & ~read[at]
            left &= ~(written[at] | read[at])
            if each.target in labels:
                todo.append((labels[each.target], left))
            if not each.guard and (each.target or each.opcode in ("ret", "exit", "trap")):
                break
            at += 1
    for at, left in untouched.items():
        if read[at] & left & ~set_first:
            yield code[at].place


def _mask(registers: Iterable[str], bits: dict[str, int]) -> int:
    found = 0
    for register in registers:
        found |= 1 << bits.setdefault(register, len(bits))
    return found
