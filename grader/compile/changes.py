"""PTX -> small changes of it, each of all instructions of one form that come from one line of the file.

The changes are those of usual mistakes: a comparison that is off at equality, a constant off by one or by a factor of
two, the wrong operator, the wrong axis of an index, a size in the place of another. In PTX that is close to its source
they are also another variable, a neighbouring element, one more term or factor.
"""

from __future__ import annotations

import functools
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from grader.compile.locations import LOCATION, Place, files_called, place_of

EDGE = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi"}
TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "lo": "hi", "hi": "lo", "ls": "hs", "hs": "ls"}
EDGE_WORDS = "gives the opposite where both sides are equal"
EQUAL = {"eq": "ne", "ne": "eq"}
SWAPPED = {
    "add": (("sub", "its sum is a difference"), ("mul", "its sum is a product")),
    "sub": (("add", "its difference is a sum"),),
    "mul": (("add", "its product is a sum"),),
    "max": (("min", "its maximum is a minimum"),),
    "min": (("max", "its minimum is a maximum"),),
    "and": (("or", "`and` is `or`"),),
    "or": (("and", "`or` is `and`"),),
    "xor": (("or", "`xor` is `or`"),),
}
FLOATS = (0.0, 1.0, float("-inf"), -3.4028234663852886e38, float("inf"), 0.5, 2.0)
AXES = re.compile(r"%(tid|ctaid|ntid|nctaid)\.([xyz])")
_STATEMENT = re.compile(r"^(\s*\{?\s*)(@!?%p\d+\s+)?([a-z][\w.:]*)(\s*)(.*);\s*$")
_KERNEL = re.compile(r"^\s*(?:\.\w+\s+)*\.(entry|func)\b")
_REGISTER = re.compile(r"%[a-z]+\d+")
_PARAMETER = re.compile(r"\[\w+_param_(\d+)(\+\d+)?\]")
_DECLARED = re.compile(r"^\s*\.param\s+\.[bus]32\s+(\w+_param_\d+)\b")
_SLOT = re.compile(r"\[%SP\+(\d+)\]")
_ADDRESS = re.compile(r"\[(%[a-z]+\d+)(?:\+(-?\d+))?\]")
_OF_INDICES = ("mov", "shr", "and", "add", "sub", "mad", "mul", "shl")
_OF_NUMBERS = ("add", "sub", "mul", "mad", "div", "rem", "setp", "min", "max")
_WITH_RESULT = ("add", "sub", "mul", "mad", "fma", "div", "ex2", "min", "max", "mov", "ld", "selp", "neg")
_FLOAT = re.compile(r"0f[0-9A-F]{8}$")
_INTEGERS = ("add", "sub", "mul", "mad", "shl", "shr", "and", "xor", "div", "rem", "setp", "min", "max", "selp", "mov")
MOST_SIZES = 6
MOST_BRANCHES = 2  # of a condition
MOST_OF_LINE = 20  # of one kind: a function of the library, inlined there, has as many constants as a file
MOST_OF_SOURCE_LINE = 48  # of one kind that is for code close to its source
MOST_INDICES = 8
SHORT_STEP = 8  # of a loop in which a thread goes over what it has itself
FACTORS = (2, 4, 8, 16, 32, 64, 128, 256)
FARTHEST = 40  # statements between one and a number that may be meant in the place of its own
REACH = 12  # statements between two that write
ROUNDS = (2, 3, 4, 5, 6, 8)  # slots of a ring
MOST_IN_FLIGHT = 5  # groups of copies or products
MOST_ARRIVALS, WARP = 1024, 32
# A shift to the left by so many bits more is a product that is so large.
OF_BITS = {-3: "an eighth", -2: "a quarter", -1: "half", 1: "twice", 2: "4 times", 3: "8 times"}
MOST_OFF_BY_ONE_FLOAT = 512.0
MOST_OFF_BY_ONE = 32  # constants above are mostly strides, of loops that the compiler has unrolled too


Found = Iterator[tuple[str, str | dict[int, str]]]  # the words, and the instruction's text, or that of several


@dataclass(frozen=True)
class Change:
    """What becomes of lines of the PTX. ``line`` is the file's, ``words`` say what is other than the file says."""

    line: int
    words: str  # before a `#`
    lines: Mapping[int, str]
    loops: int = 0  # around what it adds
    then: str = ""  # the line with the change, where the words do not say which of several places it is about
    last: int = 0  # of the file's lines, where several are replaced as a whole

    def applied(self, text: Sequence[str]) -> list[str]:
        changed = [*text]
        for number, line in self.lines.items():
            changed[number] = line
        return changed


@dataclass(frozen=True)
class Statement:
    number: int  # in the PTX
    line: int  # in the file
    indent: str
    guard: str
    opcode: str
    operands: tuple[str, ...]
    caller: int = 0  # the line that calls the function of the file which its line is in, where it is inlined
    phase: int = 0  # how many of its line come before it, with none in between but those of functions it calls

    @property
    def bytes(self) -> int:
        """The size of the type that it ends with; 0 where that has none, as a predicate's."""
        return int(re.sub(r"\D", "", self.opcode.rpartition(".")[2]) or 0) // 8

    @property
    def name(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def is_start(self) -> bool:
        """Whether it sets a register to a constant."""
        return self.name == "mov" and bool(re.fullmatch(r"-?\d+|0f[0-9A-F]{8}", self.operands[-1]))

    @property
    def sources(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.operands)))

    def text(self, opcode: str = "", operands: Sequence[str] = (), guard: str | None = None) -> str:
        before = self.guard if guard is None else guard
        return f"{self.indent}{before}{opcode or self.opcode} {', '.join(operands or self.operands)};"

    def with_operand(self, place: int, operand: str) -> str:
        return self.text(operands=[operand if at == place else each for at, each in enumerate(self.operands)])


@dataclass
class Kernel:
    """A kernel, or a function that one calls."""

    noun: str = "kernel"
    begin: int = 0  # its first line
    statements: list[Statement] = field(default_factory=list)
    sizes: dict[str, str] = field(default_factory=dict)  # register -> parameter, of 32 bits
    wide: dict[str, str] = field(default_factory=dict)  # register -> parameter, of the same in 64 bits
    vectors: dict[str, tuple[str, ...]] = field(default_factory=dict)  # register -> all that one load fills
    indices: list[str] = field(default_factory=list)  # registers made of threadIdx and the like, and constants, alone
    made: dict[str, int] = field(default_factory=dict)  # register of ``indices`` -> its line
    uses: dict[str, set[int]] = field(default_factory=dict)  # register -> the lines that read it
    moved: dict[str, set[str]] = field(default_factory=dict)  # register -> where its number is moved
    parameters: dict[str, str] = field(default_factory=dict)  # parameter -> the type of its load
    declared: list[str] = field(default_factory=list)  # parameters of 32 bits, those too that nothing loads
    used: dict[str, int] = field(default_factory=dict)  # register -> the first line that reads it
    places: dict[int, int] = field(default_factory=dict)  # line of the PTX -> the statement's place among all
    phases: dict[int, int] = field(default_factory=dict)  # line -> the last statement's phase
    variables: dict[str, bool] = field(default_factory=dict)  # see is_variable
    set_by: dict[str, list[int]] = field(default_factory=dict)  # register -> the statements that set it
    distances: set[str] = field(default_factory=set)  # registers with the lane, or how far it is, of a shuffle
    constants: Mapping[str, int] = field(default_factory=dict)  # that the file names
    relatives: Mapping[str, Collection[str]] = field(default_factory=dict)  # see relatives_of

    def line_of(self, one: Statement) -> int:
        """The line of the file. A start value belongs to the first line that reads it: nvcc gives it any line."""
        if one.opcode.startswith("ld.param.") and _PARAMETER.fullmatch(one.operands[1]):
            return self.begin
        return self.used.get(one.operands[0], one.line) if one.is_start else one.line

    def add(self, one: Statement) -> None:
        """Keep a statement, and what it says of registers and parameters."""
        before = self.statements[-1] if self.statements else None
        goes_on = before is not None and one.line in (before.line, before.caller)  # also after an inlined function
        phase = self.phases.get(one.line, 0) + 1 if goes_on else 0
        self.phases[one.line] = phase
        self.statements.append(one := replace(one, phase=phase))
        self.places[one.number] = len(self.statements) - 1
        for register in _REGISTER.findall("" if one.name in ("st", "bra", "bar") else one.operands[0]):
            self.set_by.setdefault(register, []).append(len(self.statements) - 1)
        for register in _REGISTER.findall(" ".join(one.operands if one.name == "st" else one.operands[1:])):
            self.used.setdefault(register, one.line)
            self.uses.setdefault(register, set()).add(one.line)
        if one.name == "mov" and len(one.operands) == 2:
            self.moved.setdefault(one.operands[1], set()).add(one.operands[0])
        if one.name == "shfl" and len(one.operands) > 2:
            self.distances.add(one.operands[2])
        if one.name == "ld" and ".v" in one.opcode:
            vector = tuple(_REGISTER.findall(one.operands[0]))
            self.vectors.update(dict.fromkeys(vector, vector))
        if one.opcode.startswith("ld.param.") and (match := _PARAMETER.fullmatch(one.operands[1])):
            parameter = one.operands[1].strip("[]")
            if match[2] is None:
                self.parameters[parameter] = one.opcode
            if match[2] is None and one.opcode == "ld.param.u32":
                self.sizes[one.operands[0]] = parameter
        elif one.opcode == "cvt.s64.s32" and one.operands[1] in self.sizes:
            self.wide[one.operands[0]] = self.sizes[one.operands[1]]
        elif self.is_index(one):
            self.indices.append(one.operands[0])
            self.made[one.operands[0]] = one.line

    def is_variable(self, register: str) -> bool:
        """Whether it may be a variable's, or an element's: what is loaded, or read on another line than it is made."""
        if (known := self.variables.get(register)) is None:
            set_by = [self.statements[place] for place in self.set_by.get(register, ())]
            loaded = any(one.name == "ld" and "retval" not in one.operands[-1] for one in set_by)
            elsewhere = self.uses.get(register, set()) - {one.line for one in set_by}
            known = self.variables[register] = bool(set_by) and (loaded or len(set_by) > 1 or bool(elsewhere))
        return known

    def is_step(self, one: Statement) -> bool:
        """Whether it is the step of a loop: a constant is added to what is only kept for the next round."""
        if one.name != "add" or not _is_integer(one.operands[-1]):
            return False
        reached = {one.operands[0]}
        for _ in range(2):  # at most so many moves from one round to the next
            reached |= {to for register in reached for to in self.moved.get(register, ())}
        return one.operands[1] in reached

    def variables_of_run(self, one: Statement) -> list[str]:
        """The variables that a line reads which others set, in the order of the statements around one."""
        at = self.places[one.number]
        first = at - one.phase
        found: dict[str, None] = {}
        for place in range(first, min(first + FARTHEST, len(self.statements))):
            if self.statements[place].line != one.line:
                break
            for _, register, _ in _uses(self.statements[place]):
                if self.is_variable(register) and self.set_by[register][0] < first:
                    found.setdefault(register)
        return list(found)[:MOST_INDICES]

    def slot_of(self, register: str) -> str:
        """The variable in local memory that it is read from; empty where it is not."""
        one = self.statements[self.set_by[register][0]]
        return one.operands[1] if one.name == "ld" and _SLOT.fullmatch(one.operands[1]) else ""

    def is_index(self, one: Statement) -> bool:
        """Whether it makes a number of threadIdx and the like, and of constants, alone."""
        if one.name not in _OF_INDICES or one.is_start or not re.fullmatch(r"%r\d+", one.operands[0]):
            return False
        return all(AXES.fullmatch(each) or _is_integer(each) or each in self.made for each in one.operands[1:])


Kind = Callable[[Kernel, Statement], Found]


def changes_of(
    ptx: str,
    name: str,
    kinds: Sequence[Kind] | None = None,
    within: Collection[int] | None = None,
    constants: Mapping[str, int] | None = None,
    relatives: Mapping[str, Collection[str]] | None = None,
) -> list[Change]:
    """The likeliest first: one kind of change over all lines, then the next; then of every second instruction alone.

    ``within``: lines of the file, by default all. ``constants`` are whole numbers that the file names; ``relatives``,
    those that may be meant in the place of each.
    """
    kernels = kernels_of(ptx, name)
    for kernel in kernels:
        kernel.constants, kernel.relatives = constants or {}, relatives or {}
    placed = _placed(kernels, within)
    found: dict[tuple[tuple[int, str], ...], Change] = {}
    halves: list[Change] = []
    for kind in KINDS if kinds is None else kinds:
        groups: dict[tuple[int, str], dict[int, str]] = {}
        of_callers = kind in OF_CALLERS
        for kernel, statement, own, callers in placed:
            chosen = [*own, *callers] if of_callers else own
            for words, text in kind(kernel, statement) if chosen else ():
                lines = text if isinstance(text, dict) else {statement.number: text}
                for line in chosen:
                    groups.setdefault((line, words), {}).update(lines)
        of_line: Counter[int] = Counter()
        for (line, words), lines in groups.items():
            of_line[line] += 1
            if of_line[line] > (MOST_OF_LINE if kinds is None or kind in KINDS else MOST_OF_SOURCE_LINE):
                continue
            change = Change(line, words.partition("#")[0], lines)
            found.setdefault(tuple(lines.items()), change)
            if kind in ALTERNATING and len(lines) % 2 == 0:
                halves += [replace(change, lines=dict([*lines.items()][first::2])) for first in (0, 1)]
    return [*found.values(), *halves]


def _placed(
    kernels: Iterable[Kernel], within: Collection[int] | None
) -> list[tuple[Kernel, Statement, list[int], list[int]]]:
    """The statements of the lines, each with its own line and its caller's, as far as these are among them."""
    placed = []
    for kernel in kernels:
        for one in kernel.statements:
            places = (kernel.line_of(one), one.caller)
            own, callers = ([line] if line and (within is None or line in within) else [] for line in places)
            if own or callers:  # of most kernels few are
                placed.append((kernel, one, own, callers))
    return placed


@functools.lru_cache(maxsize=2)  # one code after the other is searched for many kinds of changes
def kernels_of(ptx: str, name: str) -> tuple[Kernel, ...]:
    return tuple(_kernels(ptx, name))


def _kernels(ptx: str, name: str) -> Iterator[Kernel]:
    lines = _Lines(files_called(ptx, name))
    kernel: Kernel | None = None
    braces = _Braces()
    for number, text in enumerate(ptx.split("\n")):
        if header := _KERNEL.match(text):
            kernel, lines.now, braces = Kernel("kernel" if header[1] == "entry" else "function"), 0, _Braces()
        elif location := LOCATION.match(text):
            lines.go_to(location)
            if kernel is not None:
                kernel.begin = kernel.begin or lines.now
        elif kernel is not None and not kernel.statements and (declared := _DECLARED.match(text)):
            kernel.declared.append(declared[1])
        elif kernel is not None and (match := _STATEMENT.match(text)):
            operands = tuple(_split(match[5]))
            kernel.add(Statement(number, lines.now, match[1], match[2] or "", match[3], operands, lines.caller))
        if braces.close_with(text) and kernel is not None:
            yield kernel
            kernel = None


def without(ptx: str, launched: Sequence[bool]) -> Iterator[int]:
    """The lines of the kernels that are not launched, by their order in the text; none where their number differs."""
    text = ptx.split("\n")
    heads = [number for number, line in enumerate(text) if (head := _KERNEL.match(line)) and head[1] == "entry"]
    if len(heads) != len(launched):
        return
    for first, is_kept in zip(heads, launched, strict=True):
        braces = _Braces()
        for number in range(first, first if is_kept else len(text)):
            yield number
            if braces.close_with(text[number]):
                break


def lines_behind(ptx: str, name: str, lines: Collection[int]) -> frozenset[int]:
    """The lines of the file that give what some lines compute with, and these lines."""
    found = set(lines)
    for kernel in kernels_of(ptx, name):
        stores: dict[str, list[Statement]] = {}  # by the slot of local memory
        for one in kernel.statements:
            if one.name == "st" and _SLOT.fullmatch(one.operands[0]):
                stores.setdefault(one.operands[0], []).append(one)
        waiting = [one for one in kernel.statements if one.line in lines]
        seen: set[int] = set()
        while waiting:
            one = waiting.pop()
            if one.number in seen:
                continue
            seen.add(one.number)
            found.add(kernel.line_of(one))
            read = _REGISTER.findall(" ".join([one.guard, *(one.operands if one.name == "st" else one.operands[1:])]))
            waiting += [kernel.statements[place] for register in read for place in kernel.set_by.get(register, ())]
            waiting += [each for operand in one.operands[1:] for each in stores.get(operand, ())]
    return frozenset(found)


def parameter_types(ptx: str) -> list[tuple[str, ...]]:
    """Those of each kernel, in the order of the text: ``u64``, ``u32``, ``f32``, and ``b8`` for what has members."""
    heads = re.findall(r"\.entry\s+[\w$]+\s*\(([^)]*)\)", ptx)
    return [tuple(re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)", head)) for head in heads]


class _Braces:
    """Those of a function, line by line. Inline assembly has blocks of its own."""

    def __init__(self) -> None:
        self._depth = 0

    def close_with(self, line: str) -> bool:
        """Whether the outermost block ends on this line, which comes after the last one asked about."""
        before, self._depth = self._depth, self._depth + line.count("{") - line.count("}")
        return self._depth == 0 and before > 0


class _Lines:
    """The line of the file that the code at hand comes from, 0 where it is not known."""

    def __init__(self, own: Collection[int]) -> None:
        self.own, self.now, self.caller = own, 0, 0
        self.outer: dict[Place, int] = {}  # a place in a header -> the line of the file where it was last inlined

    def go_to(self, location: re.Match[str]) -> None:
        place = place_of(location, self.own)
        self.now = place[1] if place[0] in self.own else self.outer.get(place, 0)
        self.outer[int(location[1]), int(location[2])] = self.now
        is_own = place[0] in self.own and location[3] is not None and int(location[3]) in self.own
        self.caller = int(location[4]) if is_own else 0


def _split(operands: str) -> list[str]:
    """At the commas outside of brackets and braces."""
    return [each.strip() for each in re.split(r",(?![^{\[]*[}\]])", operands)]


def _is_integer(operand: str) -> bool:
    return bool(re.fullmatch(r"-?\d+", operand))


def never_of(ptx: str, name: str, line: int) -> list[Change]:
    """The branches of a line are always taken, or never. One of these changes leaves out the ``return`` that it has."""
    branches = [
        [one for one in kernel.statements if one.line == line and one.name == "bra" and one.guard]
        for kernel in kernels_of(ptx, name)
    ]
    most, found = max(map(len, branches), default=0), []
    for ways in product((True, False), repeat=most) if 0 < most <= MOST_BRANCHES else ():
        lines = {
            one.number: one.text(guard="") if taken else ""
            for of_kernel in branches
            for one, taken in zip(of_kernel, ways, strict=False)
        }
        found.append(Change(line, f"line {line} is left out", lines))
    return found


def _edges(_: Kernel, one: Statement) -> Found:
    if one.name != "setp":
        return
    parts = one.opcode.split(".")
    if parts[1] in EDGE:
        other = ".".join([parts[0], EDGE[parts[1]], *parts[2:]])
        yield f"the comparison{_with_number(one)} {EDGE_WORDS}", one.text(other)
    elif parts[1] in EQUAL:
        other = ".".join([parts[0], EQUAL[parts[1]], *parts[2:]])
        yield "the comparison for equality is the opposite", one.text(other)


def _turned(_: Kernel, one: Statement) -> Found:
    """A comparison the other way round."""
    if one.name == "setp" and (other := TURNED.get(one.opcode.split(".")[1])) is not None:
        parts = one.opcode.split(".")
        words = f"the comparison{_with_number(one)} is the other way round"
        yield words, one.text(".".join([parts[0], other, *parts[2:]]))


def _with_number(one: Statement) -> str:
    """The number that a comparison is with: nvcc makes ``< 2`` of ``<= 1``, and skips lines where ``> 1`` holds."""
    return f" with {one.operands[-1]}" if _is_integer(one.operands[-1]) else ""


def _integers(kernel: Kernel, one: Statement) -> Found:
    if one.name not in _INTEGERS or ".f" in one.opcode:
        return
    for place in one.sources:
        if not _is_integer(one.operands[place]):
            continue
        value = int(one.operands[place])
        if one.name == "mul" and ".wide" in one.opcode and value in (1, 2, 4, 8, 16):
            continue  # the size of an element
        if one.name in ("add", "mul", "mad") and ".wide" not in one.opcode and value >= 4 and value % 4 == 0:
            if value > SHORT_STEP or not kernel.is_step(one):
                yield "every step or factor is half as large", one.with_operand(place, str(value // 2))
            yield "every step or factor is twice as large", one.with_operand(place, str(2 * value))
        near_power = any(each > MOST_OFF_BY_ONE and each & (each - 1) == 0 for each in (value + 1, value - 1))
        others = [value + 1, value - 1] if abs(value) <= MOST_OFF_BY_ONE or near_power else []
        if one.name in ("shl", "shr"):
            others += [value + 2, value - 2, value + 3, value - 3]
        if one.name == "and" and value > 1 and value & (value + 1) == 0:
            others += [2 * value + 1, value // 2, 4 * value + 3, value // 4]
        if one.name == "setp" and value > 1:  # one round in the place of several goes round the line at fault
            others += [each for each in (2 * value, value // 2, 2 * value + 1, (value - 1) // 2) if each > 1]
        if one.name not in ("shl", "shr", "setp") and value > 1 and value & (value - 1) == 0:
            powers = [2 * value, value // 2, 4 * value, value // 4, 8 * value, value // 8]
            others = [*powers, *others] if value > 2 else [*others, *powers]
        for other in dict.fromkeys(others):
            if other == value or (one.name in ("shl", "shr", "and", "div", "rem") and other <= 0):
                continue
            if one.name in ("mul", "mad") and other == 0:
                continue
            if one.operands[0] in kernel.distances and other >= WARP:
                continue  # then a shuffle gives a lane its own value, as if it was not there
            if other < value <= SHORT_STEP and kernel.is_step(one):
                continue  # more rounds of a short loop may overwrite what an earlier one has wrong
            noun = "value that it starts from" if one.is_start else "constant"
            words = f"the {noun} is {other} in place of {value}"
            if one.name == "shl":  # the size of an element may be in it
                words = f"its product with a power of two is {OF_BITS[other - value]} as large"
            elif one.name == "shr":
                words = f"its quotient by a power of two is {OF_BITS[value - other]} as large"
            yield words, one.with_operand(place, str(other))


def _steps(kernel: Kernel, one: Statement) -> Found:
    """The step of a loop, times a power of two or divided by it."""
    if not kernel.is_step(one) or (value := int(one.operands[-1])) <= SHORT_STEP:
        return
    for power, part in ((2, "half"), (4, "a quarter"), (8, "an eighth")):  # the same in all instances of a template
        yield f"the step is {power} times as large", one.with_operand(len(one.operands) - 1, str(power * value))
        if value % power == 0:
            yield f"the step is {part} as large", one.with_operand(len(one.operands) - 1, str(value // power))


def _named(kernel: Kernel, one: Statement) -> Found:
    """Another constant, which the file names."""
    if one.name not in _INTEGERS or one.name in ("shl", "shr", "and", "xor") or ".f" in one.opcode:
        return
    for place in one.sources:
        if not _is_integer(one.operands[place]) or (value := int(one.operands[place])) < 2:
            continue
        largest = WARP - 1 if one.operands[0] in kernel.distances else 1 << 16
        same = [name for name, known in kernel.constants.items() if known == value]
        for name, other in kernel.constants.items():
            if not 1 < other <= largest or other == value:
                continue
            is_small = max(value, other) <= WARP  # such a number may have no name, and others have it by chance
            if same and not is_small and not any(name in kernel.relatives.get(each, (name,)) for each in same):
                continue  # one constant for another that has nothing to do with it is right by chance
            noun = "value that it starts from" if one.is_start else "constant"
            yield f"the {noun} is {other} in place of {value}", one.with_operand(place, str(other))


def _ones(kernel: Kernel, one: Statement) -> Found:
    """A sum with 1 or 2 that is off by one."""
    if kernel.is_step(one):
        return
    if one.name in ("add", "sub") and ".f" not in one.opcode and one.operands[-1] in ("1", "-1", "2", "-2"):
        value = int(one.operands[-1])
        for other in (value - 1, value + 1):
            words = f"the constant is {other} in place of {value}"
            yield words, one.with_operand(len(one.operands) - 1, str(other))


def _operators(_: Kernel, one: Statement) -> Found:
    first, rest = one.name, one.opcode.partition(".")[2]
    for other, words in SWAPPED.get(first, ()):
        kinds = rest.split(".")
        if first in ("add", "sub", "mul") and kinds[-1][0] not in "fbsu":
            continue
        if other == "mul" and kinds[-1][0] != "f":
            kinds = ["lo", *kinds]
        if first == "mul" and kinds[0] in ("wide", "hi"):
            continue
        if first == "mul" and kinds[0] == "lo":
            kinds = kinds[1:]
        yield words, one.text(".".join([other, *kinds]))
        if (first, other) == ("add", "sub"):
            destination, *parts = one.operands
            yield f"{words}, the other way round", one.text(".".join([other, *kinds]), (destination, *parts[::-1]))


def _floats(_: Kernel, one: Statement) -> Found:
    for place in one.sources:
        if not _FLOAT.match(one.operands[place]):
            continue
        value = struct.unpack(">f", bytes.fromhex(one.operands[place][2:]))[0]
        beside = [value - 1, value + 1] if value.is_integer() and 2 < abs(value) <= MOST_OFF_BY_ONE_FLOAT else []
        for other in dict.fromkeys([*beside, *FLOATS, -value, 2 * value, value / 2]):
            bits = "0f" + struct.pack(">f", other).hex().upper() if abs(other) < 3.5e38 or other in FLOATS else ""
            if bits and bits != one.operands[place]:
                noun = "value that it starts from" if one.is_start else "constant"
                yield f"the {noun} is {other:.6g} in place of {value:.6g}", one.with_operand(place, bits)


def _axes(_: Kernel, one: Statement) -> Found:
    for place in one.sources:
        if match := AXES.fullmatch(one.operands[place]):
            for axis in "xyz":
                if axis != match[2]:
                    name = {"tid": "threadIdx", "ctaid": "blockIdx", "ntid": "blockDim", "nctaid": "gridDim"}[match[1]]
                    words = f"{name}.{match[2]} is {name}.{axis}"
                    yield words, one.with_operand(place, f"%{match[1]}.{axis}")


def _ranks(_: Kernel, one: Statement) -> Found:
    """The thread's number in the place of the block's, and the reverse, wherever the line has them."""
    if one.name == "mov" and (match := AXES.fullmatch(one.operands[-1])) and match[1] in ("tid", "ctaid"):
        other = {"tid": "ctaid", "ctaid": "tid"}[match[1]]
        words = f"threadIdx.{match[2]} and blockIdx.{match[2]} are exchanged"
        yield words, one.with_operand(len(one.operands) - 1, f"%{other}.{match[2]}")


def _counts(kernel: Kernel, one: Statement) -> Found:
    """The number of threads in a block in the place of that of the blocks, where the block's own number is multiplied
    by it: the step of a loop over the grid is meant as it is.

    Not the reverse: where the numbers of a thread and its block are exchanged, that would be right, too.
    """
    if one.name != "mov" or (match := AXES.fullmatch(one.operands[-1])) is None or match[1] != "nctaid":
        return
    places = {one.operands[0], *(each.operands[0] for each in kernel.statements if _is_number_of_block(each))}
    for each in kernel.statements:
        if each.name in ("mul", "mad") and one.operands[0] in each.operands[1:3] and {*each.operands[1:3]} <= places:
            words = f"`gridDim.{match[2]}` is `blockDim.{match[2]}`"
            yield words, one.with_operand(len(one.operands) - 1, f"%ntid.{match[2]}")
            return


def _is_number_of_block(one: Statement) -> bool:
    match = AXES.fullmatch(one.operands[-1]) if one.name == "mov" else None
    return match is not None and match[1] == "ctaid"


def _scaled_arguments(_: Kernel, one: Statement) -> Found:
    """A whole number that is an argument of a function, or becomes a float, doubled or halved."""
    if one.opcode in ("cvt.rn.f32.s32", "cvt.rn.f32.u32"):
        for opcode, words in (("shl.b32", "twice"), ("shr.s32", "half")):
            before = f"{one.indent}{{ .reg .b32 %other; {opcode} %other, {one.operands[1]}, 1;"
            changed = f"{before} {one.with_operand(1, '%other').strip()} }}"
            yield f"the whole number that becomes a float is {words} as large#{one.phase}", changed
        return
    if not one.opcode.startswith(("st.param.b32", "st.param.u32")):
        return
    for nth, (place, own, operand) in enumerate(_uses(one)):
        for opcode, words in (("shl.b32", "twice"), ("shr.s32", "half")) if _kind_of(own) == "%r" else ():
            before = f"{one.indent}{{ .reg .b32 %other; {opcode} %other, {own}, 1;"
            changed = f"{before} {one.with_operand(place, operand('%other')).strip()} }}"
            yield f"an argument is {words} as large#{one.opcode} {one.phase} {nth}", changed


def _matrices(_: Kernel, one: Statement) -> Found:
    """A matrix that is loaded transposed, or not; and the two numbers that a condition chooses from."""
    if one.opcode.startswith("ldmatrix."):
        if ".trans" in one.opcode:
            yield "the matrix is not transposed by `ldmatrix`", one.text(one.opcode.replace(".trans", ""))
        else:
            other = re.sub(r"(\.x\d)", r"\1.trans", one.opcode)
            yield "the matrix is transposed by `ldmatrix`", one.text(other)
    if one.name == "selp":
        destination, first, second, condition = one.operands
        yield (
            "the two values that it chooses from are exchanged",
            one.text(operands=(destination, second, first, condition)),
        )


def _signs(_: Kernel, one: Statement) -> Found:
    """The other sign of one part of a sum, or of what a function is called with."""
    typed = one.opcode.rpartition(".")[2]
    if typed != "f32":
        return
    begin, end = f"{one.indent}{{ .reg .f32 %other; ", " }"
    if one.name == "fma" and len(one.operands) == 4:
        destination, first, second, third = one.operands
        product = f"{begin}mul.f32 %other, {first}, {second}; sub.f32 {destination}, "
        yield "its product is subtracted", f"{product}{third}, %other;{end}"
        yield "what it adds to its product is subtracted", f"{product}%other, {third};{end}"
    if one.name in ("ex2", "lg2", "sin", "cos", "tanh") and len(one.operands) == 2:
        call = f"{one.opcode} {one.operands[0]}, %other;"
        yield "the argument has the other sign", f"{begin}neg.f32 %other, {one.operands[1]}; {call}{end}"
    if one.opcode.startswith(("sqrt.rn", "sqrt.approx", "rsqrt.approx", "rcp.rn")):
        opcode, words = ("sqrt.approx", "sqrt") if one.name == "rsqrt" else ("rsqrt.approx", "1 / sqrt")
        yield f"it is {words}", one.text(f"{opcode}.f32")


def _operands(_: Kernel, one: Statement) -> Found:
    """Without one operand of a sum or a product, or with both the other way round."""
    kinds = one.opcode.split(".")
    typed = kinds[-1]
    if one.name in ("add", "sub", "mul") and len(one.operands) == 3 and typed[0] in "fsu" and "wide" not in kinds:
        noun = {"add": "sum", "sub": "difference", "mul": "product"}[one.name]
        destination, first, second = one.operands
        width = typed[1:]
        move = f"mov.{'f' if typed[0] == 'f' else 'b' if width == '64' else 'u'}{width}"
        if width in ("32", "64"):
            yield f"its {noun} is its first part alone", one.text(move, (destination, first))
            yield f"its {noun} is its second part alone", one.text(move, (destination, second))
        if one.name == "sub":
            yield "its difference is the other way round", one.text(operands=(destination, second, first))
    if one.name == "fma" and len(one.operands) == 4 and typed == "f32":
        destination, first, second, third = one.operands
        yield "it adds no product", one.text("mov.f32", (destination, third))
        yield "its product is added to nothing", one.text(f"mul.{typed}", (destination, first, second))
        yield "its factor is left out", one.text(f"add.{typed}", (destination, first, third))
        yield "its other factor is left out", one.text(f"add.{typed}", (destination, second, third))


def _guards(_: Kernel, one: Statement) -> Found:
    if one.guard and one.name == "bra":
        flipped = one.guard.replace("@!", "@") if "@!" in one.guard else one.guard.replace("@", "@!")
        yield "its condition is the opposite", one.text(guard=flipped)


def _quotients(_: Kernel, one: Statement) -> Found:
    """x / 32 for x % 32, and the reverse, where both are one instruction."""
    if one.name == "shr" and re.fullmatch(r"\d+", one.operands[-1]) and 0 < int(one.operands[-1]) < 12:
        step = 1 << int(one.operands[-1])
        kind = "b" + one.opcode[-2:]
        operands = (*one.operands[:2], str(step - 1))
        yield f"its quotient by {step} is the remainder", one.text(f"and.{kind}", operands)
    if one.name == "and" and re.fullmatch(r"\d+", one.operands[-1]):
        mask = int(one.operands[-1])
        if mask > 0 and mask & (mask + 1) == 0:
            operands = (*one.operands[:2], str((mask + 1).bit_length() - 1))
            words = f"its remainder by {mask + 1} is the quotient"
            yield words, one.text(f"shr.u{one.opcode[-2:]}", operands)
    if one.name in ("div", "rem"):
        other = {"div": "rem", "rem": "div"}[one.name] + one.opcode[3:]
        if ".f" not in one.opcode:
            yield "its quotient is a remainder" if one.name == "div" else "its remainder is a quotient", one.text(other)


def _shuffles(_: Kernel, one: Statement) -> Found:
    if one.opcode.startswith("shfl.sync."):
        mode = one.opcode.split(".")[2]
        for other in ("bfly", "down", "up", "idx"):
            if other == mode:
                continue
            operands = list(one.operands)
            if re.fullmatch(r"\d+", operands[3]):  # the clamp of `up` is the first lane, of the others the last
                clamp = int(operands[3]) & ~31
                operands[3] = str(clamp if other == "up" else clamp | 31)
            elif "up" in (mode, other):  # in a register, of a whole warp
                operands[3] = "0" if other == "up" else "31"
            names = {"bfly": "xor", "idx": "by lane", "up": "up", "down": "down"}
            words = f"its shuffle is `{names[other]}` in place of `{names[mode]}`"
            yield words, one.text(f"shfl.sync.{other}.b32", operands)
        if mode == "idx" and re.fullmatch(r"%r\d+", one.operands[2]):
            for by, words in ((1, "next"), (-1, "previous")):
                before = f"{one.indent}{{ .reg .b32 %other; add.s32 %other, {one.operands[2]}, {by};"
                yield f"its shuffle reads the {words} lane", f"{before} {one.with_operand(2, '%other').strip()} }}"


def _sizes(kernel: Kernel, one: Statement) -> Found:
    """A parameter of the kernel that is an int, in the place of another."""
    others = list(dict.fromkeys(kernel.sizes.values()))
    if not 2 <= len(others) <= MOST_SIZES or one.name in ("ld", "st", "cvt", "bra"):
        return
    for place in one.sources:
        for registers in (kernel.sizes, kernel.wide):
            if (own := registers.get(one.operands[place])) is None:
                continue
            for parameter, other in {each: register for register, each in registers.items()}.items():
                if parameter != own:
                    words = (
                        f"parameter {nth_of(parameter)} of the {kernel.noun} is in the place of parameter {nth_of(own)}"
                    )
                    yield words, one.with_operand(place, other)


def _limits(kernel: Kernel, one: Statement) -> Found:
    """A parameter of the kernel in the place of what is made of one, where two numbers are compared, or where a whole
    number becomes a float."""
    becomes_float = one.opcode.startswith("cvt.rn.f") and one.opcode.endswith(("s32", "u32"))
    compares = one.name == "setp" and one.opcode.endswith("32") and ".f" not in one.opcode
    if not (compares or becomes_float) or len(kernel.sizes) > MOST_SIZES:
        return
    for place in one.sources:
        if not re.fullmatch(r"%r\d+", one.operands[place]) or one.operands[place] in kernel.sizes:
            continue
        for register, parameter in kernel.sizes.items():
            verb = "becomes a float" if becomes_float else "is compared with"
            words = f"parameter {nth_of(parameter)} of the {kernel.noun} {verb}, in the place of another number"
            yield words + ("" if place == len(one.operands) - 1 else ", on the left"), one.with_operand(place, register)


def _factors(kernel: Kernel, one: Statement) -> Found:
    """A parameter of the kernel that is an int, as a factor in the place of a constant."""
    constant = one.operands[-1] if one.name == "shl" else one.operands[2] if one.name in ("mul", "mad") else ""
    if not _is_integer(constant) or not re.search(r"\.[bsu]32$", one.opcode) or len(kernel.parameters) > 2 * MOST_SIZES:
        return
    for parameter, opcode in kernel.parameters.items():
        if opcode != "ld.param.u32":
            continue
        old = 1 << int(constant) if one.name == "shl" else int(constant)
        words = f"its factor is parameter {nth_of(parameter)} of the {kernel.noun} in place of {old}"
        if one.name == "shl":
            then = f"mul.lo.s32 {one.operands[0]}, {one.operands[1]}, %other;"
        else:
            then = one.text(operands=(*one.operands[:2], "%other", *one.operands[3:])).strip()
        loaded = f"{one.indent}{{ .reg .b32 %other; ld.param.u32 %other, [{parameter}];"
        yield words, f"{loaded} {one.guard if one.name == 'shl' else ''}{then} }}"


def _elements(kernel: Kernel, one: Statement) -> Found:
    """Another element of the same vector."""
    if one.name in ("ld", "st", "mov") or len(one.operands) < 3:
        return
    for place in one.sources:
        vector = kernel.vectors.get(one.operands[place], ())
        for other, register in zip("xyzw", vector, strict=False):
            if register != one.operands[place]:
                own = "xyzw"[vector.index(one.operands[place])]
                yield f"one `.{own}` is `.{other}`#{one.number} {place}", one.with_operand(place, register)


def _exchanged(kernel: Kernel, one: Statement) -> Found:
    """An index in the place of another, and the two exchanged wherever the line uses them."""
    named = [each for each in kernel.indices if kernel.uses.get(each, set()) - {kernel.made[each]}]
    indices = named[:MOST_INDICES]
    if one.name in ("ld", "st", "mov", "bra"):
        return
    for place in one.sources:
        if one.operands[place] not in indices:
            continue
        for other in indices:
            if other != one.operands[place] and other != one.operands[0]:
                pair = sorted((kernel.indices.index(other), kernel.indices.index(one.operands[place])))
                first, second = (origin_of(kernel, kernel.indices[each]) for each in pair)
                both = f"{first} and {second}" if first != second else "two of its indices"
                yield f"{both} are exchanged#{pair}", one.with_operand(place, other)
                words = _instead(origin_of(kernel, other), origin_of(kernel, one.operands[place]))
                yield f"a number that it uses is {words}#{pair}{one.number}", one.with_operand(place, other)


def _parameters(kernel: Kernel, one: Statement) -> Found:
    """Two arguments of the launch exchanged."""
    if not one.opcode.startswith("ld.param."):
        return
    own = one.operands[1].strip("[]")
    if own not in kernel.parameters:
        return
    for other, opcode in kernel.parameters.items():
        if other != own and opcode == one.opcode and len(kernel.parameters) <= 2 * MOST_SIZES:
            first, second = sorted((nth_of(own), nth_of(other)))
            words = f"the {kernel.noun}'s parameters {first} and {second} are exchanged"
            yield words, one.with_operand(1, f"[{other}]")


def nth_of(parameter: str) -> int:
    return int(re.findall(r"_(\d+)", parameter)[-1]) + 1


# -- changes of code that is close to its source ----------------------------------------------------------------------


def _kind_of(register: str) -> str:
    """``%rd`` of ``%rd12``"""
    return register.rstrip("0123456789")


@dataclass(frozen=True)
class _Near:
    """A register that is known where a statement is: ``steps`` statements before it, as its operand ``place``."""

    register: str
    steps: int
    place: int
    lines: int  # between the two, in the file


def _near(kernel: Kernel, one: Statement, own: str, lines: int, most: int) -> list[_Near]:
    """Registers of the same kind as ``own``, at most so many lines away: the nearest first, each once."""
    at = kernel.places[one.number]
    kind = _kind_of(own)
    found: dict[str, _Near] = {}
    slots: set[str] = set()
    for steps in range(min(at, FARTHEST) + 1):
        other = kernel.statements[at - steps]
        away = abs(other.line - one.line)
        if away > lines:
            continue
        for place, operand in enumerate(other.operands):
            for register in _REGISTER.findall(operand):
                if _kind_of(register) != kind or register in (own, one.operands[0], *found):
                    continue
                if kernel.is_variable(register) and kernel.set_by[register][0] < at:
                    if (slot := kernel.slot_of(register)) in slots:
                        continue
                    slots |= {slot} - {""}
                    found[register] = _Near(register, steps, place, away)
    return sorted(found.values(), key=lambda each: (each.lines, each.steps, each.place))[:most]


def origin_of(kernel: Kernel, register: str) -> str:
    """``what line 12 loads``"""
    if register not in kernel.set_by:
        return "another value"
    one = kernel.statements[kernel.set_by[register][0]]
    line = kernel.line_of(one)
    if one.opcode.startswith("ld.param.") and _PARAMETER.fullmatch(one.operands[1]):
        return f"parameter {nth_of(one.operands[1])} of the {kernel.noun}"
    if not line:
        return "another value"
    is_read = one.name == "ld" and not one.opcode.startswith("ld.param")
    if not is_result(kernel, register):
        return f"a number that line {line} reads" if is_read else f"a number of line {line}"
    return f"what line {line} {'reads' if is_read else 'computes'}"


def is_result(kernel: Kernel, register: str) -> bool:
    """Whether the line that makes a number does not go on with it: then it may be the variable that the line sets."""
    places = kernel.set_by[register]
    if len(places) > 1:
        return True  # a loop's
    line, behind = kernel.line_of(kernel.statements[places[0]]), kernel.statements[places[0] + 1 : places[0] + FARTHEST]
    read = (one for one in behind if one.line == line and one.name not in ("cvt", "mov", "setp", "st"))
    return not any(register in _REGISTER.findall(" ".join(one.operands[1:])) for one in read)


def _instead(new: str, old: str) -> str:
    return f"{new}, in the place of {old}" if new != old else f"another value of {new}"


def _uses(one: Statement) -> Iterator[tuple[int, str, Callable[[str], str]]]:
    """What it reads: the operand, the register (of a constant, one of its kind), and the operand with another."""
    if one.name in ("bra", "call", "bar", "ret") or one.is_start or one.opcode.startswith(("ld.param", "cvta")):
        return
    written = 0 if one.name in ("st", "cp") else 1  # a copy of the copy engine has no register that it sets
    for place, operand in enumerate(one.operands[written:], written):
        for match in _REGISTER.finditer(operand):
            before, after = operand[: match.start()], operand[match.end() :]
            yield place, match[0], lambda other, before=before, after=after: f"{before}{other}{after}"  # type: ignore[misc]
        least = 0 if one.name == "setp" else 2
        if one.name in _OF_NUMBERS and "wide" not in one.opcode and _is_integer(operand) and abs(int(operand)) >= least:
            yield place, "%rd0" if one.opcode.endswith("64") else "%r0", lambda other: other


def _others(lines: int, most: int) -> Kind:
    """Another number from so many lines around, in the place of one that is read, or of a constant."""

    def kind(kernel: Kernel, one: Statement) -> Found:
        for nth, (place, own, operand) in enumerate(_uses(one)):
            constant = _is_integer(one.operands[place])
            if not constant and (not kernel.is_variable(own) or kernel.slot_of(own)):
                continue
            for near in _near(kernel, one, own, lines, most):
                noun = "address" if one.operands[place].startswith("[") else "number"
                other = one.operands[place] if constant else origin_of(kernel, own)
                words = f"a {noun} that it uses is {_instead(origin_of(kernel, near.register), other)}"
                key = f"{one.opcode} {one.phase} {nth} {near.steps} {near.place}"
                yield f"{words}#{key}", one.with_operand(place, operand(near.register))

    return kind


def _arguments(kernel: Kernel, one: Statement) -> Found:
    """Another variable of the whole kernel as an argument of a function, or of the copy engine."""
    if not one.opcode.startswith(("st.param", "cp.async.bulk")):
        return
    at = kernel.places[one.number]
    for nth, (place, own, operand) in enumerate(_uses(one)):
        kind = _kind_of(own)
        known = [
            register
            for register, places in kernel.set_by.items()
            if _kind_of(register) == kind and places[0] < at and kernel.is_variable(register)
        ]
        others = [register for register in known if register != own and kernel.slot_of(register) == ""]
        for other in others[::-1][:MOST_INDICES]:
            words = f"an argument is {_instead(origin_of(kernel, other), origin_of(kernel, own))}"
            yield (
                f"{words}#{one.opcode} {one.phase} {nth} {known.index(other)}",
                one.with_operand(place, operand(other)),
            )


def _swapped(kernel: Kernel, one: Statement) -> Found:
    """Two variables exchanged wherever the line uses them."""
    uses = [(place, own, operand) for place, own, operand in _uses(one) if kernel.is_variable(own)]
    if not uses or one.operands[uses[0][0]].startswith("["):
        return
    around = kernel.variables_of_run(one)
    for place, own, operand in uses:
        for other in around:
            if other != own and _kind_of(other) == _kind_of(own) and own in around:
                pair = sorted((around.index(own), around.index(other)))
                first, second = (origin_of(kernel, around[each]) for each in pair)
                both = f"{first} and {second}" if first != second else f"two numbers, each {first},"
                yield f"{both} are exchanged#{pair}", one.with_operand(place, operand(other))


def _slots(lines: int, most: int) -> Kind:
    """Another variable in the place of one that is read, where both are in local memory."""

    def kind(kernel: Kernel, one: Statement) -> Found:
        if one.name != "ld" or (match := _SLOT.fullmatch(one.operands[1])) is None:
            return
        own, size = int(match[1]), one.bytes
        found = _slots_around(kernel, one, lines)
        found.pop(own, None)
        near = sorted(found, key=found.__getitem__)[:most]
        beside = [slot + way for slot in near if found[slot][0] == 0 for way in (size, -size)]  # of a struct
        for slot in dict.fromkeys([*near, own + size, max(own - size, 0), *beside]):
            if slot == own or slot < 0:
                continue
            where = "one of the line or beside it"
            if slot in found and found[slot][0]:
                where = f"one, which line {found[slot][2]} has"
            words = f"a variable or element that it reads is another {where}#{one.phase} {slot - own}"
            yield words, one.with_operand(1, f"[%SP+{slot}]")

    return kind


def _slots_around(kernel: Kernel, one: Statement, lines: int) -> dict[int, tuple[int, int, int]]:
    """Variables of the same type, at most so many lines away -> (lines, statements, the line)."""
    at, typed = kernel.places[one.number], one.opcode.rpartition(".")[2]
    found: dict[int, tuple[int, int, int]] = {}
    for place in range(max(at - FARTHEST, 0), min(at + FARTHEST, len(kernel.statements))):
        other = kernel.statements[place]
        match = _SLOT.fullmatch(other.operands[0 if other.name == "st" else -1])
        away = abs(other.line - one.line)
        if match is not None and other.opcode.rpartition(".")[2] == typed and away <= lines:
            found.setdefault(int(match[1]), (away, abs(place - at), other.line))
    return found


def _more(kernel: Kernel, one: Statement) -> Found:
    """One more, or one less, than a whole number that is computed or compared with."""
    if kernel.is_step(one):
        return
    kinds = one.opcode.split(".")
    typed, key = kinds[-1], f"#{one.opcode} {one.phase}"
    if typed not in ("s32", "u32", "s64", "u64") or "wide" in kinds:
        return
    for by, words in (("1", "more"), ("-1", "less")):
        if one.name in ("add", "sub", "mul", "mad", "div", "shr", "min", "max") or one.opcode.startswith("cvt.s64.s32"):
            to = one.operands[0]
            yield f"its result is 1 {words}{key}", f"{one.text()} {one.guard}add.{typed} {to}, {to}, {by};"
        if one.name == "setp" and not _is_integer(one.operands[2]):
            added = f"{one.indent}{{ .reg .b{typed[1:]} %other; add.{typed} %other, {one.operands[2]}, {by};"
            compared = one.text(operands=(*one.operands[:2], "%other")).strip()
            yield f"it compares with 1 {words}{key}", f"{added} {compared} }}"


def _scaled(kernel: Kernel, one: Statement) -> Found:
    """A whole number that is kept, times a power of two, or divided by it."""
    if one.name not in ("add", "sub", "mul", "mad", "div", "rem", "shr", "and") or ".wide" in one.opcode:
        return
    if not re.fullmatch(r"%rd?\d+", one.operands[0]) or not (one.name == "mul" or kernel.is_variable(one.operands[0])):
        return
    typed = "s64" if one.operands[0].startswith("%rd") else "s32"
    for factor in FACTORS:
        more = f"{one.text()} {one.guard}mul.lo.{typed} {one.operands[0]}, {one.operands[0]}, {factor};"
        yield f"its result is times {factor}#{one.opcode} {one.phase}", more


def _terms(lines: int, most: int) -> Kind:
    """One more term or factor, of the numbers from so many lines around."""

    def kind(kernel: Kernel, one: Statement) -> Found:
        to = one.operands[0]
        if one.name not in _WITH_RESULT or "param" in one.opcode or one.is_start:
            return
        if (match := re.fullmatch(r"(%f|%r|%rd)\d+", to)) is None:
            return
        typed = {"%f": "f32", "%r": "s32", "%rd": "s64"}[match[1]]
        kept = "f32" if typed == "f32" else f"b{typed[1:]}"
        product = "mul.f32" if typed == "f32" else f"mul.lo.{typed}"
        operations = [(f"add.{typed}", "is added"), (f"sub.{typed}", "is subtracted"), (product, "is a factor")]
        operations += [("div.rn.f32", "divides it")] if typed == "f32" else []
        for near in _near(kernel, one, to, lines, most):
            if near.steps == 0 and one.name in ("mov", "ld"):
                continue
            for opcode, words in operations:
                # The other number is read first: the statement may set it.
                first = f"{one.indent}{{ .reg .{kept} %other; mov.{kept} %other, {near.register};"
                then = f"{one.text().strip()} {one.guard}{opcode} {to}, {to}, %other; }}"
                key = f"{one.opcode} {one.phase} {near.steps} {near.place}"
                yield f"{origin_of(kernel, near.register)} {words}, too#{key}", f"{first} {then}"

    return kind


def _numbers(kind: Kind) -> Kind:
    """The same, but not of a sum that is an address: an offset in bytes is added there."""

    def changes(kernel: Kernel, one: Statement) -> Found:
        if one.opcode in ("add.s64", "add.u64"):
            for register in one.operands[1:]:
                made = [kernel.statements[place] for place in kernel.set_by.get(register, ())]
                if any(each.name == "shl" or ".wide" in each.opcode for each in made):
                    return
        for words, text in kind(kernel, one):  # each alone, since nothing is unrolled
            yield words if "#" in words else f"{words}#{one.opcode} {one.phase}", text

    return changes


def _ones_of_arguments(_: Kernel, one: Statement) -> Found:
    """One more, or one less, than an argument of a function."""
    if not one.opcode.startswith(("st.param.b32", "st.param.u32")):
        return
    for nth, (place, own, operand) in enumerate(_uses(one)):
        for by, words in ((1, "more"), (-1, "less")) if _kind_of(own) == "%r" else ():
            before = f"{one.indent}{{ .reg .b32 %other; add.s32 %other, {own}, {by};"
            changed = f"{before} {one.with_operand(place, operand('%other')).strip()} }}"
            yield f"an argument is 1 {words}#{one.opcode} {one.phase} {nth}", changed


def _sums_of_arguments(kernel: Kernel, one: Statement) -> Found:
    """A whole number that the line or one around it has is added to an argument of a function."""
    if not one.opcode.startswith(("st.param.b32", "st.param.u32", "st.param.b64", "st.param.u64")):
        return
    for nth, (place, own, operand) in enumerate(_uses(one)):
        kind = _kind_of(own)
        if kind not in ("%r", "%rd"):
            continue
        bits = "64" if kind == "%rd" else "32"
        for near in _near(kernel, one, own, 3, 4):
            before = f"{one.indent}{{ .reg .b{bits} %other; add.s{bits} %other, {own}, {near.register};"
            words = f"{origin_of(kernel, near.register)} is added to an argument"
            key = f"{one.opcode} {one.phase} {nth} {near.steps} {near.place}"
            yield f"{words}#{key}", f"{before} {one.with_operand(place, operand('%other')).strip()} }}"


def _rounded_up(_: Kernel, one: Statement) -> Found:
    """A quotient that is rounded up."""
    if one.name != "div" or (match := re.search(r"\.([su])(32|64)$", one.opcode)) is None:
        return
    typed, width = match[1] + match[2], match[2]
    destination, dividend, divisor = one.operands
    before = f"{one.indent}{{ .reg .b{width} %other; add.{typed} %other, {dividend}, {divisor};"
    then = f"sub.{typed} %other, %other, 1; {one.text(operands=(destination, '%other', divisor)).strip()} }}"
    yield f"its quotient is rounded up#{one.phase}", f"{before} {then}"


def _bounded(kernel: Kernel, one: Statement) -> Found:
    """A whole number that is at most a parameter of the kernel."""
    if one.name not in ("add", "mul", "mad") or not kernel.is_variable(one.operands[0]):
        return
    if (match := re.search(r"\.s(32|64)$", one.opcode)) is None or ".wide" in one.opcode:
        return
    to = one.operands[0]
    for parameter, opcode in kernel.parameters.items():
        if opcode != "ld.param.u32":
            continue
        loaded = f"{{ .reg .b32 %word; .reg .b64 %other; ld.param.u32 %word, [{parameter}]; cvt.s64.s32 %other, %word;"
        least = f"{one.guard}min.s{match[1]} {to}, {to}, {'%word' if match[1] == '32' else '%other'}; }}"
        words = f"its result is at most parameter {nth_of(parameter)} of the {kernel.noun}"
        yield f"{words}#{one.opcode} {one.phase}", f"{one.text()} {loaded} {least}"


def _constants(kernel: Kernel, one: Statement) -> Found:
    """A constant that the file names is added to an argument of a function, or subtracted from it."""
    if not one.opcode.startswith(("st.param.b32", "st.param.u32", "cp.async.bulk.tensor")):
        return
    values = {value: name for name, value in kernel.constants.items() if 1 < value <= 1 << 16}
    for nth, (place, own, operand) in enumerate(_uses(one)):
        for value, name in [*values.items()][:MOST_INDICES] if _kind_of(own) == "%r" else ():
            for by, words in ((value, "is added to"), (-value, "is subtracted from")):
                before = f"{one.indent}{{ .reg .b32 %other; add.s32 %other, {own}, {by};"
                changed = f"{before} {one.with_operand(place, operand('%other')).strip()} }}"
                key = f"{one.opcode} {one.phase} {nth}"
                yield f"{name} {words} an argument#{key}", changed


def _rounded(kernel: Kernel, one: Statement) -> Found:
    """A whole number that is rounded down to a multiple of a power of two first."""
    if one.name not in ("add", "sub", "mul", "mad") or not re.search(r"\.[su]32$", one.opcode):
        return
    for place in one.sources:
        own = one.operands[place]
        if not re.fullmatch(r"%r\d+", own) or not kernel.is_variable(own):
            continue
        for step in FACTORS[:5]:
            rounded = f"{one.indent}{{ .reg .b32 %other; and.b32 %other, {own}, {-step};"
            words = f"{origin_of(kernel, own)} is rounded down to a multiple of {step}#{one.opcode} {one.phase} {place}"
            yield words, f"{rounded} {one.with_operand(place, '%other').strip()} }}"


def _functions(kernel: Kernel, one: Statement) -> Found:
    """A function of a float that is read: what is left to 1, its square, its negative, its reciprocal."""
    if one.name not in ("add", "sub", "mul", "fma", "div") or not one.opcode.endswith("f32"):
        return
    for place in one.sources:
        own = one.operands[place]
        if not re.fullmatch(r"%f\d+", own):
            continue
        for opcode, words in (
            (f"sub.f32 %other, 0f3F800000, {own}", "1 less it"),
            (f"mul.f32 %other, {own}, {own}", "its square"),
            (f"neg.f32 %other, {own}", "its negative"),
            (f"rcp.rn.f32 %other, {own}", "its reciprocal"),
        ):
            changed = f"{one.indent}{{ .reg .f32 %other; {opcode}; {one.with_operand(place, '%other').strip()} }}"
            key = f"{one.opcode} {one.phase} {place}"
            yield f"in the place of {origin_of(kernel, own)} it uses {words}#{key}", changed


def _beside(kernel: Kernel, one: Statement) -> Found:
    """The other element of two or four that stand together."""
    for words, text in _neighbours(kernel, one):
        if one.name == "ld" and words.startswith("it reads the element 1 "):
            yield words, text


def _neighbours(_: Kernel, one: Statement) -> Found:
    """An element before or after the one that is read or written."""
    if one.name not in ("ld", "st") or "param" in one.opcode or ".v" in one.opcode:
        return
    size = one.bytes
    place = 0 if one.name == "st" else 1
    match = _ADDRESS.fullmatch(one.operands[place])
    if not size or match is None:
        return
    offset, verb = int(match[2] or 0), {"ld": "reads", "st": "writes"}[one.name]
    for away in (-3, -2, -1, 1, 2, 3):
        words = f"it {verb} the element {abs(away)} {'further' if away > 0 else 'before'}#{one.opcode} {one.phase}"
        yield words, one.with_operand(place, f"[{match[1]}+{offset + away * size}]")


def _order(kernel: Kernel, one: Statement) -> Found:
    """Two numbers that are written one after the other, exchanged."""
    if one.name != "st" or "param" in one.opcode:
        return
    at = kernel.places[one.number]
    for other in kernel.statements[at + 1 : at + REACH]:
        if other.opcode == one.opcode and other.operands[1] != one.operands[1] and abs(other.line - one.line) <= 2:
            texts = {one.number: one.with_operand(1, other.operands[1])}
            texts[other.number] = other.with_operand(1, one.operands[1])
            where = f"what line {other.line} writes" if other.line != one.line else "the next that it writes"
            yield f"what it writes is exchanged with {where}#{one.phase} {other.phase}", texts
            return


def _waits(_: Kernel, one: Statement) -> Found:
    """More or fewer groups of copies or products that a wait leaves in flight. The largest smaller number comes
    first: if it is right, all numbers below it are right, too."""
    if ".wait_group" in one.opcode and _is_integer(one.operands[0]):
        own = int(one.operands[0])
        least = 1 if one.opcode.startswith("wgmma") else 0  # to wait for all products takes away other mistakes, too
        for left in sorted(range(least, MOST_IN_FLIGHT), key=lambda left: (left > own, abs(left - own))):
            if left != own:
                words = f"the wait leaves {left} group{'' if left == 1 else 's'} in flight, not {one.operands[0]}"
                yield f"{words}#{one.opcode}", one.with_operand(0, str(left))


def _waits_for_all(_: Kernel, one: Statement) -> Found:
    """No product that a wait leaves in flight."""
    if one.opcode.startswith("wgmma.wait_group") and _is_integer(one.operands[0]) and int(one.operands[0]):
        yield f"the wait leaves 0 groups in flight, not {one.operands[0]}#{one.opcode}", one.with_operand(0, "0")


def _parities(kernel: Kernel, one: Statement) -> Found:
    """A wait for the phase of the other parity, or of one that changes less often."""
    if not one.opcode.startswith("mbarrier.") or ".parity" not in one.opcode:
        return
    own, words = one.operands[2], "the wait is for the phase of the other parity"
    if _is_integer(own):
        yield words, one.with_operand(2, str(1 - int(own)))
    elif _REGISTER.fullmatch(own):
        flipped = f"{one.indent}{{ .reg .b32 %other; xor.b32 %other, {own}, 1;"
        yield words, f"{flipped} {one.with_operand(2, '%other').strip()} }}"
        made = [kernel.statements[place] for place in kernel.set_by.get(own, ())]
        if len(made) == 1 and (made[0].name, made[0].operands[-1]) in (("and", "1"), ("rem", "2")):
            for rounds in ROUNDS:
                number = f"div.u32 %other, {made[0].operands[1]}, {rounds}; and.b32 %other, %other, 1;"
                slower = f"{one.indent}{{ .reg .b32 %other; {number} {one.with_operand(2, '%other').strip()} }}"
                yield f"the parity that the wait is for changes once in {rounds} rounds", slower


def _arrivals(kernel: Kernel, one: Statement) -> Found:
    """Another number of arrivals, or of bytes, that a phase of an mbarrier needs."""
    init = one.opcode.startswith("mbarrier.init")
    if not init and "expect_tx" not in one.opcode:
        return
    place, noun = len(one.operands) - 1, "arrivals" if init else "bytes"
    own = one.operands[place]
    set_by = [kernel.statements[at] for at in kernel.set_by.get(own, ())]
    known = int(own) if _is_integer(own) else None
    if len(set_by) == 1 and set_by[0].is_start and _is_integer(set_by[0].operands[-1]):
        known = int(set_by[0].operands[-1])
    if known is None:
        for factor in FACTORS[:3]:
            before = f"{one.indent}{{ .reg .b32 %other; mul.lo.s32 %other, {own}, {factor};"
            yield (
                f"a phase needs {factor} times as many {noun}",
                f"{before} {one.with_operand(place, '%other').strip()} }}",
            )
        return
    named = [value for value in kernel.constants.values() if init and 0 < value <= MOST_ARRIVALS]
    others = (
        [2 * known, known // 2, 4 * known, known // 4] if not init else [known + 1, known - 1, 2 * known, known // 2]
    )
    for other in dict.fromkeys([*others, 1, WARP, 4 * WARP, *named] if init else others):
        if other > 0 and other != known:
            yield (
                f"a phase needs {other} {noun if other > 1 else noun[:-1]}, not {known}",
                one.with_operand(place, str(other)),
            )


def _masks(_: Kernel, one: Statement) -> Found:
    """All lanes, in the mask of what a warp's lanes do together."""
    if one.opcode.startswith(("shfl.sync", "vote.sync", "bar.warp.sync", "match.", "redux.sync")):
        place = len(one.operands) - 1
        if one.operands[place] != "-1":
            yield "the mask names all 32 lanes", one.with_operand(place, "-1")


# The likeliest first, those that have many changes last.
KINDS = (
    _edges,
    _waits,
    _parities,
    _arrivals,
    _masks,
    _ones,
    _turned,
    _order,
    _parameters,
    _operators,
    _integers,
    _limits,
    _counts,
    _ranks,
    _axes,
    _sizes,
    _factors,
    _rounded_up,
    _elements,
    _matrices,
    _shuffles,
    _signs,
    _exchanged,
    _quotients,
    _floats,
    _guards,
    _operands,
)
# For code that is close to its source: there an operand is what the file says, and nothing is merged or unrolled. In
# steps, of which each is tried only if those before found nothing.
SOURCE_KINDS = (
    (
        _numbers(_edges),
        _ones,
        _steps,
        _ones_of_arguments,
        _scaled_arguments,
        _counts,
        _ranks,
        _rounded_up,
        _swapped,
        _quotients,
        _shuffles,
        _integers,
        _numbers(_turned),
        _numbers(_more),
        _others(0, 4),
        _slots(1, 3),
        _beside,
        _numbers(_operators),
        _sums_of_arguments,
        _named,
        _others(1, 3),
    ),
    (
        _order,
        _factors,
        _functions,
        _bounded,
        _others(4, 4),
        _arguments,
        _slots(4, 4),
        _sizes,
        _exchanged,
    ),
    (
        _constants,
        _numbers(_scaled),
        _numbers(_terms(1, 3)),
        _neighbours,
        _limits,
        _rounded,
        _numbers(_operands),
        _signs,
        _floats,
    ),
)
# For optimised code of which no such PTX can be called. A number that it merged changes in all places at once, so
# another number is not tried there.
MORE_KINDS = ((_ones, _quotients, _more, _arguments, _scaled),)
OF_CALLS = (_parities, _arrivals, _masks)
WAITS = (_waits,)
ALL_WAITS = (_waits_for_all,)
# What wrappers of one instruction do is said of their callers, too.
OF_CALLERS = (*OF_CALLS, *WAITS, *ALL_WAITS, _scaled_arguments)
ALTERNATING = (_edges, _operators, _signs)  # two of a kind are often on one line, which the compiler may repeat
