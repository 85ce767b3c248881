"""A launcher -> small changes of what it gives the CUDA runtime: grids, blocks, arguments, bytes.

The simulator runs the launcher's own machine code. A change replaces a number on its way to the runtime, so it costs
no compiler. Its line is that of the expression which the launcher computes the number by.

The changes are those of usual mistakes: too few blocks, two sizes or two pointers exchanged, another size, no
`sizeof`, a wrong factor, an output that must begin at 0.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import ceil, isfinite, log2, prod, sqrt

from grader.content.functions import Code, Function, constants_of, split
from grader.devices import Call, HostChange, Poison
from grader.devices.counters import Launched
from grader.judge.cards import WARP

GRID, BLOCK, SHARED, BYTES, PARAMETER = 0, 3, 6, 7, 8  # places, as in the engine's host_changes.h
SET, ADD, MULTIPLY, SCALE, TAKE = range(5)
DIVISORS = tuple(1 << place for place in range(12, -1, -1))  # the largest first: with it there are fewest blocks
THREADS = (32, 64, 128, 256, 512, 1024)
FACTORS = (2, 4, 8, 16, 32)
MAP, BOX, SWIZZLE = 16, 5, 10  # places in a tensor map
MAPS = "cuTensorMapEncodeTiled"
SWIZZLES = {"none": 0, "32 bytes": 1, "64 bytes": 2, "128 bytes": 3}
MOST_BLOCKS = 1 << 14
MOST_PARAMETERS = 16
SIZEOF = (4, 2, 8)
FUNCTIONS = ("cudaMemsetAsync", "cudaMemset", "cudaMemcpyAsync", "cudaMemcpy", "cudaMallocAsync", "cudaMalloc")
DEEPEST = 3  # definitions behind an expression
ALIGNED = 128  # bytes
MORE_SHARED = 4  # the part of a block's shared memory that is added to it
_NAME = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")
_LAUNCH = re.compile(r"\b(\w+)\s*(?:<[^;{}()]*>)?\s*<<<(.*?)>>>\s*\(", re.DOTALL)
_LAUNCH_EX = re.compile(r"\bcudaLaunch(?:KernelEx|CooperativeKernel)\s*\(")
_ROUNDED_UP = re.compile(r"-\s*1\s*\)\s*/\s*(\w+)\s*\+\s*1\b|\+\s*(\w+)\s*-\s*1\s*\)\s*/\s*\2\b")
_INTEGERS = ("u32", "s32", "b32")


@dataclass(frozen=True)
class LauncherChange:
    """``words`` say what is other than the file says. ``line`` is None where no line does what is missing."""

    line: int | None
    words: str
    change: Callable[[Call], Call | None]  # None: it changes nothing there

    def key(self, call: Call) -> object:
        """What becomes of a call: two changes of the same key are one."""
        made = self.change(call)
        return None if made is None else (made.host, tuple(type(each.data) is Poison for each in made.buffers))

    def is_shared(self, call: Call) -> bool:
        """Whether it is about the shared memory of a launch."""
        made = self.change(call)
        return made is not None and any(each.place == SHARED and each.of != MAPS for each in made.host)


@dataclass(frozen=True)
class _Site:
    """A launch: the expressions of its grid, its block, its shared memory, and of its arguments, with their places."""

    kernel: str
    host: Function
    at: int
    configuration: tuple[tuple[str, int], ...]
    arguments: tuple[tuple[str, int], ...]


def launcher_changes(
    text: str, own: Collection[int], launched: Sequence[Launched], types: Mapping[str, Sequence[str]], call: Call
) -> Iterator[LauncherChange]:
    """The likeliest first. ``own`` are the learner's lines, ``types`` those of each kernel's parameters in PTX."""
    code = Code(text)
    sites = [*_sites(code)]
    kernels = [*{item.kernel: item for item in launched}.values()]
    places = [
        _Places(code, own, site, item, types.get(item.kernel, ()))
        for item in kernels
        if (site := _site_of(sites, code, item.kernel)) is not None
    ]

    def of_launches(*kinds: Callable[[_Places, Call], Iterator[LauncherChange]]) -> Iterator[LauncherChange]:
        return (change for kind in kinds for each in places for change in kind(each, call))

    yield from of_launches(_exchanged, _warps, _off_by_one)
    yield from _maps(code, own, call)
    yield from of_launches(_sizes, _axes, _blocks)
    yield from _of_runtime(code, own, call)
    yield from _zeros(code, call)
    yield from of_launches(_pairs, _factors, _scales)


def roomier(
    text: str, own: Collection[int], launched: Sequence[Launched], types: Mapping[str, Sequence[str]]
) -> Iterator[LauncherChange]:
    """More dynamic shared memory for a block. It takes away what any index does that is a little too large, too."""
    code = Code(text)
    sites = [*_sites(code)]
    for item in launched:
        site = _site_of(sites, code, item.kernel)
        if site is not None and item.smem_bytes:
            words = f"the launch's shared memory has more than {item.smem_bytes} bytes"
            at = _Places(code, own, site, item, types.get(item.kernel, ()))
            yield from at.fixed(SHARED, ADD, item.smem_bytes // MORE_SHARED // ALIGNED * ALIGNED + ALIGNED, words)


# -- the text of the launcher -----------------------------------------------------------------------------------------


def _sites(code: Code) -> Iterator[_Site]:
    hosts = [each for each in code.functions if not each.is_kernel]
    for host in hosts:
        for match in _LAUNCH.finditer(code.text, host.begin, host.end):
            given = _placed(code, match.start(2), match.end(2))
            yield _Site(match[1], host, match.start(), given, _arguments(code, match.end() - 1))
        for match in _LAUNCH_EX.finditer(code.text, host.begin, host.end):
            arguments = _arguments(code, match.end() - 1)
            if len(arguments) < 2:
                continue
            given = tuple(
                _last_member(code, host, match.start(), name) for name in ("gridDim", "blockDim", "dynamicSmemBytes")
            )
            yield _Site(re.split(r"[<\s]", arguments[1][0])[0], host, match.start(), given, arguments[2:])


def _placed(code: Code, begin: int, end: int) -> tuple[tuple[str, int], ...]:
    """The parts between two places, at their commas, each with its place."""
    found, place = [], begin
    for part in split(code.text[begin:end]):
        place = max(code.text.find(part, place, end), place)
        found.append((part, place))
        place += len(part)
    return tuple(found)


def _arguments(code: Code, opening: int) -> tuple[tuple[str, int], ...]:
    return _placed(code, opening + 1, code.closing(opening))


def _last_member(code: Code, host: Function, before: int, member: str) -> tuple[str, int]:
    """``config.gridDim = blocks``, the last before a place."""
    found = [*re.compile(rf"\.{member}(?:\.x)?\s*=\s*([^;]*);").finditer(code.text, host.begin, before)]
    return (found[-1][1].strip(), found[-1].start(1)) if found else ("", before)


def _site_of(sites: Sequence[_Site], code: Code, kernel: str) -> _Site | None:
    """The launch of a kernel; of one that a variable names, where there is only one such launch."""
    name = re.split(r"[<(]", kernel)[0].rpartition("::")[2]
    names = {each.name for each in code.functions if each.is_kernel}
    found = [site for site in sites if site.kernel == name]
    by_variable = [site for site in sites if site.kernel not in names]
    if found:
        return found[0]
    return by_variable[0] if len(by_variable) == 1 else None


@dataclass(frozen=True)
class _Places:
    """The numbers of one launch, each with the line that it is computed on, if the learner wrote that."""

    code: Code
    own: Collection[int]
    site: _Site
    launched: Launched
    parameters: Sequence[str]  # types of PTX
    lines: dict[int, int | None] = field(default_factory=dict)  # that are known

    def line(self, place: int) -> int | None:
        if place not in self.lines:
            self.lines[place] = self._line(place)
        return self.lines[place]

    def _line(self, place: int) -> int | None:
        if place >= PARAMETER:
            known, nth = self.site.arguments, place - PARAMETER
        else:
            known, nth = self.site.configuration, 2 if place == SHARED else place // BLOCK
        if nth < len(known) and known[nth][0]:
            return _own_line(self.code, self.own, self.site, *known[nth])
        at = self.code.line_at(self.site.at)
        return at if at in self.own else None

    @property
    def is_shared(self) -> bool:
        """Whether the kernel divides its work by the number of its blocks: then they are not too many."""
        kernels = [each for each in self.code.functions if each.is_kernel and each.name == self.site.kernel]
        return any("gridDim" in self.code.text[each.begin : each.end] for each in kernels)

    def grid_text(self) -> str:
        """The expression of the grid, of a variable what it is set to."""
        text, place = self.site.configuration[0] if self.site.configuration else ("", 0)
        assigned = _assignment(self.code, self.site.host, place, text) if _NAME.fullmatch(text) else None
        return assigned[0] if assigned else text

    def set(self, place: int, how: int, number: int) -> HostChange:
        return HostChange(self.launched.kernel.partition("<")[0], place, how, number)

    def fixed(self, place: int, how: int, number: int, words: str, *more: HostChange) -> Iterator[LauncherChange]:
        """A change that is the same in all cases."""
        if (line := self.line(place)) is not None:
            yield LauncherChange(line, words, _with((self.set(place, how, number), *more)))

    def computed(self, place: int, words: str, number: Callable[[Call], int | None]) -> Iterator[LauncherChange]:
        """A number that follows from the case's sizes."""
        if (line := self.line(place)) is None:
            return

        def change(call: Call) -> Call | None:
            found = number(call)
            return None if found is None else replace(call, host=(self.set(place, SET, found),))

        yield LauncherChange(line, words, change)

    def name(self, nth: int) -> str:
        """The kernel's name of an argument, from 0; empty where it is not known."""
        found = {each.parameters for each in self.code.functions if each.is_kernel and each.name == self.site.kernel}
        parameters = found.pop() if len(found) == 1 else ()
        return parameters[nth].name if nth < len(parameters) else ""

    def argument(self, nth: int) -> str:
        name = self.name(nth)
        return f"argument {nth + 1} of the launch (`{name}`)" if name else f"argument {nth + 1} of the launch"

    def of_type(self, *types: str) -> list[int]:
        return [place for place, each in enumerate(self.parameters[:MOST_PARAMETERS]) if each in types]


def _own_line(code: Code, own: Collection[int], site: _Site, text: str, at: int) -> int | None:
    """The learner's line on which a number is computed: of a variable its last assignment, else the expression's, and
    at last that on which a variable is given that others have set."""
    lines, waiting = [], [(text, at, 0)]
    while waiting:
        expression, place, depth = waiting.pop(0)
        names = _NAME.findall(expression)
        assigned = [found for name in dict.fromkeys(names) if (found := _assignment(code, site.host, place, name))]
        own_first = not (len(names) == 1 and names[0] == expression.strip() and assigned)
        if own_first:
            lines.append(code.line_at(place))
        if depth < DEEPEST:
            waiting += [(value, where, depth + 1) for value, where in assigned]
    return next((line for line in (*lines, code.line_at(at)) if line in own), None)


def _assignment(code: Code, host: Function, before: int, name: str) -> tuple[str, int] | None:
    """What a variable of the host's function is last set to before a place, and where."""
    found = [
        *re.compile(rf"(?<![\w.]){name}(?:\.[xyz])?\s*(?:=(?!=)|\()([^;]*);").finditer(code.text, host.begin, before)
    ]
    if not found:  # a constant of the file that is computed
        found = [*re.compile(rf"\bconstexpr\s+[\w ]+\b{name}\s*=([^;]*[-+*/][^;]*);").finditer(code.text)]
    return (found[-1][1].strip(), found[-1].start(1)) if found else None


# -- sizes ------------------------------------------------------------------------------------------------------------


def _integers(call: Call) -> dict[str, int]:
    return {each.name: each.value for each in call.scalars if isinstance(each.value, int)}


def _floats(call: Call) -> dict[str, float]:
    return {each.name: each.value for each in call.scalars if isinstance(each.value, float)}


def _sizes_of(call: Call) -> dict[str, Callable[[Call], int]]:
    """The sizes that the launcher is called with, then products of two of them."""
    names = [*_integers(call)]
    parts = [(name,) for name in names] + [*combinations(names, 2)]
    return {" * ".join(part): (lambda call, part=part: prod(_integers(call)[n] for n in part)) for part in parts}  # type: ignore[misc]


def _bits(value: float, kind: str = "f32") -> int:
    return int.from_bytes(struct.pack("<d" if kind == "f64" else "<f", value), "little")


# -- the changes ------------------------------------------------------------------------------------------------------


def _exchanged(at: _Places, _: Call) -> Iterator[LauncherChange]:
    """Two arguments of one type."""
    for first, second in combinations(range(min(len(at.parameters), MOST_PARAMETERS)), 2):
        one, other = at.parameters[first], at.parameters[second]
        if one == other and one in ("u64", "f32", *_INTEGERS):
            names = [f"`{name}`" for nth in (first, second) if (name := at.name(nth))]
            which = f" ({' and '.join(names)})" if len(names) == 2 else ""
            words = f"arguments {first + 1} and {second + 1} of the launch{which} are exchanged"
            back = at.set(PARAMETER + second, TAKE, PARAMETER + first)
            yield from at.fixed(PARAMETER + first, TAKE, PARAMETER + second, words, back)


def _off_by_one(at: _Places, _: Call) -> Iterator[LauncherChange]:
    for nth in at.of_type(*_INTEGERS):
        for by, words in ((1, "1 more"), (-1, "1 less")):
            yield from at.fixed(PARAMETER + nth, ADD, by, f"{at.argument(nth)} is {words}")


def _warps(at: _Places, _: Call) -> Iterator[LauncherChange]:
    """Warps that are counted as threads."""
    if prod(at.launched.block) <= THREADS[-1] // WARP:
        yield from at.fixed(BLOCK, MULTIPLY, WARP, f"the launch's block has {WARP} times as many threads")


def _sizes(at: _Places, call: Call) -> Iterator[LauncherChange]:
    """Another of the launcher's parameters in the place of an argument."""
    for nth in at.of_type(*_INTEGERS):
        for name, size in _sizes_of(call).items():
            words = f"{at.argument(nth)} is {name}"
            yield from at.computed(PARAMETER + nth, words, size)
    for nth in at.of_type("f32"):
        for name in _floats(call):
            words = f"{at.argument(nth)} is {name}"
            yield from at.computed(PARAMETER + nth, words, lambda call, name=name: _bits(_floats(call)[name]))  # type: ignore[misc]


def _axes(at: _Places, _: Call) -> Iterator[LauncherChange]:
    """Grid and block exchanged, or two of their axes."""
    for first, second, words in (
        (GRID, BLOCK, "the grid and the block of the launch are exchanged"),
        (GRID, GRID + 1, "the x and y of the launch's grid are exchanged"),
        (BLOCK, BLOCK + 1, "the x and y of the launch's block are exchanged"),
    ):
        yield from at.fixed(first, TAKE, second, words, at.set(second, TAKE, first))


def _blocks(at: _Places, call: Call) -> Iterator[LauncherChange]:
    """Another number of blocks, or of threads.

    No more blocks where there is a thread for each index of the one size, or where the launcher has a limit: then the
    kernel goes through the elements in the wrong way.
    """
    threads, written = prod(at.launched.block), at.grid_text()
    covers = len(_integers(call)) == 1 and _is_enough(written, threads, constants_of(at.code.text))
    for axis in range(2):
        name = f"the launch's grid{'.y' if axis else ''}"
        given = at.launched.grid[axis]
        if axis and given == 1:
            break
        if given > 1 and not at.is_shared:  # one alone hides what is wrong between blocks that share the work
            words = f"{name} has one block: it has too many, or each does what one of them must do"
            yield from at.fixed(GRID + axis, SET, 1, words)
        for text, size in _sizes_of(call).items():
            for divisor in DIVISORS:
                more = ceil(size(call) / divisor) > given
                if not axis and more and ("min(" in written or (covers and divisor < threads)):
                    continue
                words = f"{name} has {_quotient(text, divisor)} blocks"
                yield from at.computed(GRID + axis, words, _blocks_for(size, divisor))
        if not axis and (covers or "min(" in written):
            continue
        yield from at.fixed(GRID + axis, ADD, 1, f"{name} has one block more")
        yield from at.fixed(GRID + axis, ADD, -1, f"{name} has one block less")
        for factor in FACTORS:
            yield from at.fixed(GRID + axis, MULTIPLY, factor, f"{name} has {factor} times as many blocks")
    if at.launched.grid[1] == 1:
        for count in (2, 3):
            yield from at.fixed(GRID + 1, SET, count, f"the launch's grid.y has {count} blocks")
    if at.launched.block[1] == 1:
        for threads in THREADS:
            if threads != at.launched.block[0]:
                yield from at.fixed(BLOCK, SET, threads, f"the launch's block has {threads} threads")


def _is_enough(written: str, threads: int, constants: Mapping[str, int]) -> bool:
    """Whether a grid is a quotient that is rounded up, by as many as a block has threads or a multiple of that."""
    found = _ROUNDED_UP.search(written)
    divisor = found[1] or found[2] if found else ""
    value = int(divisor) if divisor.isdigit() else constants.get(divisor, 0)
    return value > 0 and value % threads == 0


def _quotient(text: str, divisor: int) -> str:
    return text if divisor == 1 else f"ceil({text} / {divisor})"


def _blocks_for(size: Callable[[Call], int], divisor: int) -> Callable[[Call], int | None]:
    def number(call: Call) -> int | None:
        blocks = ceil(size(call) / divisor)
        return blocks if 0 < blocks <= MOST_BLOCKS else None

    return number


def _of_runtime(code: Code, own: Collection[int], call: Call) -> Iterator[LauncherChange]:
    """More bytes: those of so many elements where `sizeof` is missing; of another number of elements; one more."""
    for function in FUNCTIONS:
        lines = {code.line_at(match.start()) for match in re.finditer(rf"\b{function}\s*\(", code.text)}
        if len(lines) != 1 or (line := lines.pop()) not in own:
            continue
        for size in SIZEOF:
            change = (HostChange(function, BYTES, MULTIPLY, size),)
            words = f"{function} is about {size} times as many bytes{_part_of(code, function, call, size)}"
            yield LauncherChange(line, words, _with(change))
        for text, count in _sizes_of(call).items():
            for size in SIZEOF:
                words = f"{function} is about {text} elements of {size} bytes"
                yield LauncherChange(line, words, _sized(function, BYTES, count, size))
        for size in sorted(SIZEOF):
            change = (HostChange(function, BYTES, ADD, size),)
            yield LauncherChange(line, f"{function} is about {size} more bytes", _with(change))


def _part_of(code: Code, function: str, call: Call, times: int) -> str:
    """How many bytes of a buffer a call sets, as far as its argument is a size: all would be so many times as many."""
    found = re.search(rf"\b{function}\s*\(", code.text)
    if found is None or not function.startswith("cudaMemset"):
        return ""
    arguments = split(code.text[found.end() : code.closing(found.end() - 1)])
    target, size = (arguments[0].strip(), arguments[2].strip()) if len(arguments) > 2 else ("", "")
    bytes_ = next((len(each.data) for each in call.buffers if each.name == target), 0)
    known = _integers(call).get(size, 0)
    return f": `{size}` is {known} of the {bytes_} bytes of {target}" if known and known * times == bytes_ else ""


def _with(change: tuple[HostChange, ...]) -> Callable[[Call], Call]:
    return lambda call: replace(call, host=change)


def _sized(of: str, place: int, count: Callable[[Call], int], factor: int = 1) -> Callable[[Call], Call]:
    return lambda call: replace(call, host=(HostChange(of, place, SET, factor * count(call)),))


def _maps(code: Code, own: Collection[int], call: Call) -> Iterator[LauncherChange]:
    """Numbers of a tensor map: its rows and columns, those of its box, its swizzle."""
    for nth, match in enumerate(re.finditer(r"\bCUtensorMap\s+(\w+)\s*=", code.text)):
        line = code.line_at(match.start())
        end = code.text.find(";", match.start())
        if not {line, code.line_at(end)} & {*own}:
            continue

        def made(words: str, *numbers: tuple[int, int, int], nth: int = nth, line: int = line) -> LauncherChange:
            change = tuple(HostChange(MAPS, MAP * nth + place, how, number) for place, how, number in numbers)
            return LauncherChange(line, words, _with(change))

        name = match[1]
        dims, boxes = ((0, TAKE, 1), (1, TAKE, 0)), ((BOX, TAKE, BOX + 1), (BOX + 1, TAKE, BOX))
        yield made(f"the rows and columns of {name} are exchanged", *dims)
        yield made(f"the rows and columns of {name}'s box are exchanged", *boxes)
        yield made(f"the rows and columns of {name} and of its box are exchanged", *dims, *boxes)
        for words, number in SWIZZLES.items():
            yield made(f"the swizzle of {name} is {words}", (SWIZZLE, SET, number))
        for axis, noun in enumerate(("columns", "rows")):
            for factor in FACTORS[:3]:
                yield made(f"{name}'s box has {factor} times as many {noun}", (BOX + axis, MULTIPLY, factor))
            for text, size in _sizes_of(call).items():
                yield LauncherChange(line, f"{name} has {text} {noun}", _sized(MAPS, MAP * nth + axis, size))


def _zeros(code: Code, call: Call) -> Iterator[LauncherChange]:
    """An output that is 0 before the first kernel. Where a line does that in part, what it lacks is another change."""
    launch = next((match.start() for match in re.finditer(r"<<<|\bcudaLaunch", code.text)), len(code.text))
    for buffer in call.buffers:
        sets = [match.start() for match in re.finditer(rf"\bcudaMemset\w*\s*\(\s*{buffer.name}\b", code.text)]
        if buffer.role == "out" and not any(place < launch for place in sets):
            words = f"{buffer.name} is set to 0 before the first kernel, which "
            words += f"line {code.line_at(sets[0])} does later" if sets else "no line of the file does"
            yield LauncherChange(None, words, lambda call, name=buffer.name: _with_zeros(call, name))  # type: ignore[misc]


def _with_zeros(call: Call, name: str) -> Call:
    buffers = tuple(
        replace(each, role="updated", data=bytes(len(each.data))) if each.name == name else each
        for each in call.buffers
    )
    return replace(call, buffers=buffers)


def _pairs(at: _Places, call: Call) -> Iterator[LauncherChange]:
    """A whole number and a float exchanged: C++ converts both."""
    for whole in at.of_type(*_INTEGERS):
        for real in at.of_type("f32"):
            line = at.line(PARAMETER + whole)
            for first in _integers(call):
                for second in _floats(call) if line is not None else ():

                    def change(
                        call: Call, whole: int = whole, real: int = real, first: str = first, second: str = second
                    ) -> Call:
                        size, value = _integers(call)[first], _floats(call)[second]
                        return replace(
                            call,
                            host=(
                                at.set(PARAMETER + whole, SET, size),
                                at.set(PARAMETER + real, SET, _bits(value)),
                            ),
                        )

                    words = f"argument {whole + 1} of the launch is {first} and argument {real + 1} is {second}"
                    yield LauncherChange(line, words, change)


def _factors(at: _Places, call: Call) -> Iterator[LauncherChange]:
    """A number that is off by one or by a factor: shared memory, an argument."""
    for factor in SIZEOF:
        words = f"the launch's shared memory has {factor} times as many bytes"
        yield from at.fixed(SHARED, MULTIPLY, factor, words)
    for nth in at.of_type(*_INTEGERS):
        noun = at.argument(nth)
        for factor in FACTORS:
            yield from at.fixed(PARAMETER + nth, MULTIPLY, factor, f"{noun} is {factor} times as large")
        for text, size in _sizes_of(call).items():
            for divisor in DIVISORS[:-1]:
                words = f"{noun} is {_quotient(text, divisor)}"
                yield from at.computed(PARAMETER + nth, words, _blocks_for(size, divisor))


_OF_SIZE: Mapping[str, Callable[[float], float]] = {
    "times {0}": lambda size: size,
    "divided by {0}": lambda size: 1 / size,
    "times sqrt({0})": sqrt,
    "divided by sqrt({0})": lambda size: 1 / sqrt(size),
}
_LOG2_E = 1.4426950408889634
_BY_SIZE: Mapping[str, Callable[[float], float]] = {
    "1 / sqrt({0})": lambda size: 1 / sqrt(size),
    "log2(e) / sqrt({0})": lambda size: _LOG2_E / sqrt(size),
    "1 / {0}": lambda size: 1 / size,
}
_OF_FLOAT: Mapping[str, Callable[[float], float]] = {
    "1 / {0}": lambda value: 1 / value,
    "1 - {0}": lambda value: 1 - value,
    "1 / (1 - {0})": lambda value: 1 / (1 - value),
    "-{0}": lambda value: -value,
    "{0}^2": lambda value: value * value,
    "sqrt({0})": sqrt,
    "1 / sqrt({0})": lambda value: 1 / sqrt(value),
    "log2({0})": log2,
}
_FIXED = {"log2(e)": _LOG2_E, "ln(2)": 0.6931471805599453, "-1": -1.0, "2": 2.0, "1 / 2": 0.5}


def _scales(at: _Places, call: Call) -> Iterator[LauncherChange]:
    """Another factor in a float, or another function of one that the launcher gets."""
    for nth in at.of_type("f32", "f64"):
        noun, place, kind = at.argument(nth), PARAMETER + nth, at.parameters[nth]
        for text, factor in _FIXED.items():
            yield from at.fixed(place, SCALE, _bits(factor, kind), f"{noun} is times {text}")
        if (line := at.line(place)) is None:
            continue
        known = [(name, _OF_SIZE, SCALE) for name in _integers(call)] + [
            (name, _OF_FLOAT, SET) for name in _floats(call)
        ]
        known += [(name, _BY_SIZE, SET) for name in _integers(call)]
        for name, functions, how in known:
            for text, function in functions.items():
                words = f"{noun} is {text.format(name)}"
                yield LauncherChange(line, words, _scaled(at, place, name, function, how, kind))


def _scaled(
    at: _Places, place: int, name: str, function: Callable[[float], float], how: int, kind: str
) -> Callable[[Call], Call | None]:
    def change(call: Call) -> Call | None:
        try:
            value = function({**_integers(call), **_floats(call)}[name])
        except (ValueError, ZeroDivisionError):
            return None
        if not isfinite(value) or abs(value) > 3e38:
            return None
        return replace(call, host=(at.set(place, how, _bits(value, kind)),))

    return change
