"""PTX -> small changes of it, each of all instructions of one form that come from one line of the file.

The changes are those of usual mistakes: a comparison that is off at equality, a constant off by one or by a factor of
two, the wrong operator, the wrong axis of an index, a size in the place of another.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grader.compile.locations import LOCATION, Place, files_called, place_of

EDGE = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi"}
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
_STATEMENT = re.compile(r"^(\s*\{?\s*)(@!?%p\d+\s+)?([a-z][\w.:]*)(\s+)(.*);\s*$")
_KERNEL = re.compile(r"^\s*(?:\.\w+\s+)*\.entry\s+(\S+?)\(")
_REGISTER = re.compile(r"%[a-z]+\d+")
_OF_INDICES = ("mov", "shr", "and", "add", "sub", "mad", "mul", "shl")
_FLOAT = re.compile(r"0f[0-9A-F]{8}$")
_INTEGERS = ("add", "sub", "mul", "mad", "shl", "shr", "and", "div", "rem", "setp", "min", "max", "selp", "mov")
MOST_SIZES = 6
MOST_OF_LINE = 20  # of one kind: a function of the library, inlined there, has as many constants as a file
MOST_INDICES = 8
MOST_OFF_BY_ONE = 32  # constants above are mostly strides, of loops that the compiler has unrolled too


@dataclass(frozen=True)
class Change:
    """What becomes of lines of the PTX. ``line`` is the file's, ``words`` say what is other than the file says."""

    line: int
    words: str  # before a `#`
    lines: Mapping[int, str]

    def applied(self, text: Sequence[str]) -> list[str]:
        return [self.lines.get(number, each) for number, each in enumerate(text)]


@dataclass(frozen=True)
class _Statement:
    number: int  # in the PTX
    line: int  # in the file
    indent: str
    guard: str
    opcode: str
    operands: tuple[str, ...]

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
class _Kernel:
    begin: int = 0  # its first line
    statements: list[_Statement] = field(default_factory=list)
    sizes: dict[str, str] = field(default_factory=dict)  # register -> parameter, of 32 bits
    wide: dict[str, str] = field(default_factory=dict)  # register -> parameter, of the same in 64 bits
    vectors: dict[str, tuple[str, ...]] = field(default_factory=dict)  # register -> all that one load fills
    indices: list[str] = field(default_factory=list)  # registers made of threadIdx and the like, and constants, alone
    made: dict[str, int] = field(default_factory=dict)  # register of ``indices`` -> its line
    uses: dict[str, set[int]] = field(default_factory=dict)  # register -> the lines that read it
    parameters: dict[str, str] = field(default_factory=dict)  # parameter -> the type of its load
    used: dict[str, int] = field(default_factory=dict)  # register -> the first line that reads it

    def line_of(self, one: _Statement) -> int:
        """The line of the file. A start value belongs to the first line that reads it: nvcc gives it any line."""
        if one.opcode.startswith("ld.param."):
            return self.begin
        return self.used.get(one.operands[0], one.line) if one.is_start else one.line

    def add(self, one: _Statement) -> None:
        """Keep a statement, and what it says of registers and parameters."""
        self.statements.append(one)
        for register in _REGISTER.findall(" ".join(one.operands if one.name == "st" else one.operands[1:])):
            self.used.setdefault(register, one.line)
            self.uses.setdefault(register, set()).add(one.line)
        if one.name == "ld" and ".v" in one.opcode:
            vector = tuple(_REGISTER.findall(one.operands[0]))
            self.vectors.update(dict.fromkeys(vector, vector))
        if one.opcode.startswith("ld.param."):
            parameter = one.operands[1].strip("[]")
            if "+" not in parameter:  # no member of a struct
                self.parameters[parameter] = one.opcode
                if one.opcode == "ld.param.u32":
                    self.sizes[one.operands[0]] = parameter
        elif one.opcode == "cvt.s64.s32" and one.operands[1] in self.sizes:
            self.wide[one.operands[0]] = self.sizes[one.operands[1]]
        elif self.is_index(one):
            self.indices.append(one.operands[0])
            self.made[one.operands[0]] = one.line

    def is_index(self, one: _Statement) -> bool:
        """Whether it makes a number of threadIdx and the like, and of constants, alone."""
        if one.name not in _OF_INDICES or one.is_start or not re.fullmatch(r"%r\d+", one.operands[0]):
            return False
        return all(AXES.fullmatch(each) or _is_integer(each) or each in self.made for each in one.operands[1:])


def changes_of(ptx: str, name: str) -> list[Change]:
    """The likeliest first: one kind of change over all lines, then the next; then of every second instruction alone."""
    kernels = list(_kernels(ptx, name))
    found: dict[tuple[tuple[int, str], ...], Change] = {}
    halves: list[Change] = []
    for kind in KINDS:
        groups: dict[tuple[int, str], dict[int, str]] = {}
        for kernel in kernels:
            for statement in kernel.statements:
                line = kernel.line_of(statement)
                for words, text in kind(kernel, statement) if line else ():
                    groups.setdefault((line, words), {})[statement.number] = text
        of_line: Counter[int] = Counter()
        for (line, words), lines in groups.items():
            of_line[line] += 1
            if of_line[line] > MOST_OF_LINE:
                continue
            change = Change(line, words.partition("#")[0], lines)
            found.setdefault(tuple(lines.items()), change)
            if kind in ALTERNATING and len(lines) % 2 == 0:
                halves += [replace(change, lines=dict([*lines.items()][first::2])) for first in (0, 1)]
    return [*found.values(), *halves]


def _kernels(ptx: str, name: str) -> Iterator[_Kernel]:
    lines = _Lines(files_called(ptx, name))
    kernel: _Kernel | None = None
    for number, text in enumerate(ptx.split("\n")):
        if _KERNEL.match(text):
            kernel, lines.now = _Kernel(), 0
        elif text.startswith("}") and kernel is not None:
            yield kernel
            kernel = None
        elif location := LOCATION.match(text):
            lines.go_to(location)
            if kernel is not None:
                kernel.begin = kernel.begin or lines.now
        elif kernel is not None and (match := _STATEMENT.match(text)):
            operands = tuple(_split(match[5]))
            kernel.add(_Statement(number, lines.now, match[1], match[2] or "", match[3], operands))


class _Lines:
    """The line of the file that the code at hand comes from, 0 where it is not known."""

    def __init__(self, own: Collection[int]) -> None:
        self.own, self.now = own, 0
        self.outer: dict[Place, int] = {}  # a place in a header -> the line of the file where it was last inlined

    def go_to(self, location: re.Match[str]) -> None:
        place = place_of(location, self.own)
        self.now = place[1] if place[0] in self.own else self.outer.get(place, 0)
        self.outer[int(location[1]), int(location[2])] = self.now


def _split(operands: str) -> list[str]:
    """At the commas outside of brackets and braces."""
    return [each.strip() for each in re.split(r",(?![^{\[]*[}\]])", operands)]


def _is_integer(operand: str) -> bool:
    return bool(re.fullmatch(r"-?\d+", operand))


Found = Iterator[tuple[str, str]]


def _edges(_: _Kernel, one: _Statement) -> Found:
    if one.name != "setp":
        return
    parts = one.opcode.split(".")
    if parts[1] in EDGE:
        other = ".".join([parts[0], EDGE[parts[1]], *parts[2:]])
        yield "the comparison gives the opposite where both sides are equal", one.text(other)
    elif parts[1] in EQUAL:
        other = ".".join([parts[0], EQUAL[parts[1]], *parts[2:]])
        yield "the comparison for equality is the opposite", one.text(other)


def _integers(_: _Kernel, one: _Statement) -> Found:
    if one.name not in _INTEGERS or ".f" in one.opcode:
        return
    for place in one.sources:
        if not _is_integer(one.operands[place]):
            continue
        value = int(one.operands[place])
        if one.name == "mul" and ".wide" in one.opcode and value in (1, 2, 4, 8, 16):
            continue  # the size of an element
        if one.name in ("add", "mul", "mad") and ".wide" not in one.opcode and value >= 4 and value % 4 == 0:
            yield "every step or factor is half as large", one.with_operand(place, str(value // 2))
            yield "every step or factor is twice as large", one.with_operand(place, str(2 * value))
        others = [value + 1, value - 1] if abs(value) <= MOST_OFF_BY_ONE else []
        if one.name == "setp" and value > 1:
            others += [2 * value, value // 2, 2 * value + 1, (value - 1) // 2]
        if one.name not in ("shl", "shr", "setp") and value > 1 and value & (value - 1) == 0:
            others += [2 * value, value // 2]
        shown = {"shl": "its shift to the left (a product with a power of two) is by {new} in place of {old} bits"}
        shown["shr"] = "its shift to the right (a quotient by a power of two) is by {new} in place of {old} bits"
        for other in dict.fromkeys(others):
            if other == value or (one.name in ("shl", "shr", "and", "div", "rem") and other <= 0):
                continue
            noun = "value that it starts from" if one.is_start else "constant"
            words = shown.get(one.name, f"the {noun} is {{new}} in place of {{old}}").format(old=value, new=other)
            yield words, one.with_operand(place, str(other))


def _operators(_: _Kernel, one: _Statement) -> Found:
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


def _floats(_: _Kernel, one: _Statement) -> Found:
    for place in one.sources:
        if not _FLOAT.match(one.operands[place]):
            continue
        value = struct.unpack(">f", bytes.fromhex(one.operands[place][2:]))[0]
        for other in dict.fromkeys([*FLOATS, -value, 2 * value, value / 2]):
            bits = "0f" + struct.pack(">f", other).hex().upper() if abs(other) < 3.5e38 or other in FLOATS else ""
            if bits and bits != one.operands[place]:
                noun = "value that it starts from" if one.is_start else "constant"
                yield f"the {noun} is {other:.6g} in place of {value:.6g}", one.with_operand(place, bits)


def _axes(_: _Kernel, one: _Statement) -> Found:
    for place in one.sources:
        if match := AXES.fullmatch(one.operands[place]):
            for axis in "xyz":
                if axis != match[2]:
                    name = {"tid": "threadIdx", "ctaid": "blockIdx", "ntid": "blockDim", "nctaid": "gridDim"}[match[1]]
                    words = f"{name}.{match[2]} is {name}.{axis}"
                    yield words, one.with_operand(place, f"%{match[1]}.{axis}")


def _matrices(_: _Kernel, one: _Statement) -> Found:
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


def _signs(_: _Kernel, one: _Statement) -> Found:
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


def _operands(_: _Kernel, one: _Statement) -> Found:
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


def _guards(_: _Kernel, one: _Statement) -> Found:
    if one.guard and one.name == "bra":
        flipped = one.guard.replace("@!", "@") if "@!" in one.guard else one.guard.replace("@", "@!")
        yield "its condition is the opposite", one.text(guard=flipped)


def _quotients(_: _Kernel, one: _Statement) -> Found:
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


def _shuffles(_: _Kernel, one: _Statement) -> Found:
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


def _sizes(kernel: _Kernel, one: _Statement) -> Found:
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
                    words = f"parameter {_nth(parameter)} of the kernel is in the place of parameter {_nth(own)}"
                    yield words, one.with_operand(place, other)


def _limits(kernel: _Kernel, one: _Statement) -> Found:
    """A parameter of the kernel in the place of what is made of one, where two numbers are compared."""
    if one.name != "setp" or not one.opcode.endswith("32") or ".f" in one.opcode or len(kernel.sizes) > MOST_SIZES:
        return
    for place in one.sources:
        if not re.fullmatch(r"%r\d+", one.operands[place]) or one.operands[place] in kernel.sizes:
            continue
        for register, parameter in kernel.sizes.items():
            words = f"parameter {_nth(parameter)} of the kernel is compared with, in the place of another number"
            yield words + ("" if place == len(one.operands) - 1 else ", on the left"), one.with_operand(place, register)


def _elements(kernel: _Kernel, one: _Statement) -> Found:
    """Another element of the same vector."""
    if one.name in ("ld", "st", "mov") or len(one.operands) < 3:
        return
    for place in one.sources:
        vector = kernel.vectors.get(one.operands[place], ())
        for other, register in zip("xyzw", vector, strict=False):
            if register != one.operands[place]:
                own = "xyzw"[vector.index(one.operands[place])]
                yield f"one `.{own}` is `.{other}`#{one.number} {place}", one.with_operand(place, register)


def _exchanged(kernel: _Kernel, one: _Statement) -> Found:
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
                words = "two of its indices are exchanged"
                yield f"{words}#{pair}", one.with_operand(place, other)
                yield f"one of its indices is another#{pair}{one.number}", one.with_operand(place, other)


def _parameters(kernel: _Kernel, one: _Statement) -> Found:
    """Two arguments of the launch exchanged."""
    if not one.opcode.startswith("ld.param."):
        return
    own = one.operands[1].strip("[]")
    for other, opcode in kernel.parameters.items() if own in kernel.parameters else ():
        if other != own and opcode == one.opcode and len(kernel.parameters) <= 2 * MOST_SIZES:
            first, second = sorted((_nth(own), _nth(other)))
            words = f"the kernel's parameters {first} and {second} are exchanged"
            yield words, one.with_operand(1, f"[{other}]")


def _nth(parameter: str) -> int:
    return int(parameter.rpartition("_")[2]) + 1


# The likeliest first, those that have many changes last.
KINDS = (
    _edges,
    _parameters,
    _operators,
    _limits,
    _axes,
    _sizes,
    _elements,
    _matrices,
    _signs,
    _exchanged,
    _quotients,
    _shuffles,
    _floats,
    _guards,
    _operands,
    _integers,
)
ALTERNATING = (_edges, _operators, _signs)  # two of a kind are often on one line, which the compiler may repeat
