"""PTX -> changes of its statements as wholes: an instruction that is missing between two lines of the file, one that
stands at another place or is too much, and a line that only some threads may execute.

They are for code that is close to its source: there the statements of a line stand together.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from grader.compile.changes import AXES, Change, Kernel, Statement, is_result, kernels_of, nth_of, origin_of

REACH = 12  # lines of the file around those that a finding names
NEXT = 3  # lines between two that may be exchanged
MOST_GUARDED = 8  # variables that a line's guard compares
SMALL = 4  # a constant whose multiples may come from elsewhere
MOST_LIMITS = 10  # that they are compared with
MOST_BEHIND = 100  # registers that one is made of
MOST_LINES = 40  # before which something may be missing
_NEEDS_OTHERS = re.compile(r"^(bar\.|barrier\.|cp\.async|fence|membar|wgmma|mbarrier|griddepcontrol)")
_WHOLE = re.compile(r"%rd?\d+")
_DECLARES = re.compile(
    r"\s*(?:(?:const|constexpr|unsigned)\s+)*(?!return\b|else\b|goto\b|case\b)[A-Za-z_][\w:]*(?:<[^;=()]*>)?(?:\s*[*&]+\s*|\s+)"
    r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*[=;({]"
)
_ZERO = {"%r": "mov.u32 {}, 0;", "%rd": "mov.u64 {}, 0;", "%f": "mov.f32 {}, 0f00000000;", "%rs": "mov.u16 {}, 0;"}
_BLOCK_END = re.compile(r"^\s*(?:\$\w+:|(?:@!?%p\d+\s+)?bra\b|ret\b)")
_ACCESSES = ("ld", "st", "atom", "red", "call", "ldmatrix", "stmatrix")
_MOVABLE = {
    "the barrier": re.compile(r"bar\.sync|barrier\.sync|bar\.warp\.sync|barrier\.cluster"),
    "the commit": re.compile(r"cp\.async\.(?:bulk\.)?commit_group|wgmma\.commit_group"),
    "the wait": re.compile(r"cp\.async\.(?:bulk\.)?wait_group|wgmma\.wait_group"),
    "the arrival": re.compile(r"mbarrier\.arrive"),
}


@dataclass(frozen=True)
class _Run:
    """Statements of one line of the file that follow each other."""

    kernel: Kernel
    statements: tuple[Statement, ...]
    before: int  # the line of the run before it, 0 for the first
    after: int  # of the one after it, 0 for the last

    @property
    def line(self) -> int:
        return self.statements[0].line

    @property
    def outer(self) -> int:
        """Its line, or the one that calls the inlined function which that is in."""
        return self.statements[0].caller or self.line

    @property
    def numbers(self) -> range:
        """Its lines of the PTX."""
        return range(self.statements[0].number, self.statements[-1].number + 1)


@dataclass(frozen=True)
class _Gap:
    """A place between two lines of the file, and where that is in the PTX: before or after a statement."""

    line: int
    words: str
    numbers: tuple[tuple[int, bool], ...]  # a line of the PTX, and whether it is before that
    copies: int = 1  # of the place, in one kernel: nvcc has unrolled a loop around it

    def change(self, words: str, lines: Mapping[int, str], loops: Sequence[range]) -> Change:
        """A change that adds something here."""
        inside = (
            sum(loop.start < number + (not before) <= loop.stop for loop in loops) for number, before in self.numbers
        )
        return Change(self.line, words, lines, loops=max(inside, default=0) + (self.copies > 1))

    def with_text(self, text: Sequence[str], added: str) -> dict[int, str]:
        found: dict[int, str] = {}
        for number, is_before in self.numbers:
            old = found.get(number, text[number])
            found[number] = f"\t{added} {old.strip()}" if is_before else f"{old} {added}"
        return found


@dataclass(frozen=True)
class _Missing:
    """An instruction: its name, what the code must have to be worth a call, what a finding says that lacks it."""

    noun: str
    text: str
    needs: str
    said: str
    is_fence: bool = False  # which belongs to what is written before it
    unless: str = ""  # what the code has not: one of its kind may only be at fault


_MISSING = (
    _Missing("a `__syncthreads()`", "bar.sync 0;", "", "no barrier|no thread has written"),
    _Missing("a `__syncwarp()`", "bar.warp.sync -1;", "", "no barrier"),
    _Missing(
        "a barrier of the cluster",
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        "cluster",
        "cluster|block rank|mbarrier",
    ),
    _Missing("a `__threadfence()`", "membar.gl;", "atom", "atomic|fence", is_fence=True),
    _Missing("a `fence.proxy.async`", "fence.proxy.async;", "bulk|wgmma", r"fence\.proxy", is_fence=True),
    _Missing(
        "a wait for all of the thread's `cp.async`",
        "cp.async.wait_all;",
        r"cp\.async\.c[ag]",
        r"cp\.async",
        unless=r"cp\.async\.wait",
    ),
    _Missing(
        "a wait for all `cp.async` and a `__syncthreads()`",
        "cp.async.wait_all; bar.sync 0;",
        r"cp\.async\.c[ag]",
        r"cp\.async",
        unless=r"cp\.async\.wait",
    ),
    _Missing("a `__threadfence()` and a `__syncthreads()`", "membar.gl; bar.sync 0;", "atom", "atomic"),
    _Missing(
        "a `fence.proxy.async` and a `__syncthreads()`", "fence.proxy.async; bar.sync 0;", "bulk|wgmma", r"fence\.proxy"
    ),
)
_PRODUCT = "wgmma.mma_async"
_COMMIT = "wgmma.commit_group.sync.aligned;"
_WRITES = re.compile(r"writes it on line (\d+)")
_LABEL = re.compile(r"^\s*(\$\w+):")
_JUMP = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+);")


def missing_of(ptx: str, name: str, within: Collection[int], near: Collection[int], said: str) -> list[Change]:
    """Barriers, fences and waits that may be missing, next to a line of ``within``.

    The ones around ``near`` first, and those that would end what a finding ``said``.
    """
    text = ptx.split("\n")
    gaps, loops = _nearest(_gaps(ptx, name, within), near), loops_of(text)
    write = int(found[1]) if (found := _WRITES.search(said)) else 0
    behind = sorted(gaps, key=lambda gap: (gap.line <= write, gap.line))
    changes = []
    for each in sorted(_MISSING, key=lambda each: re.search(each.said, said) is None):
        if re.search(each.needs, ptx) is not None and not (each.unless and re.search(each.unless, ptx)):
            for gap in behind if each.is_fence and write else gaps:
                words = f"{each.noun} stands {gap.words}"
                changes.append(gap.change(words, gap.with_text(text, each.text), loops))
    committed = _committed(ptx, name, within) if "wgmma" in said else []
    return [*committed, *(_fenced(ptx, name, within) if "atomic" in said else []), *changes]


def _committed(ptx: str, name: str, within: Collection[int]) -> list[Change]:
    """A commit behind the products of a line that has none, or that calls their wrapper."""
    text = ptx.split("\n")
    found: dict[int, dict[int, str]] = {}
    for kernel in kernels_of(ptx, name):
        wgmma = [(one.caller or one.line, one) for one in kernel.statements if one.name == "wgmma"]
        for (line, one), (next_line, after) in pairwise(wgmma):
            is_last = next_line != line or not after.opcode.startswith(_PRODUCT)
            if line in within and one.opcode.startswith(_PRODUCT) and is_last:
                found.setdefault(line, {})[one.number] = f"{text[one.number]} {_COMMIT}"
    return [Change(line, f"a commit of the wgmma group stands after line {line}", each) for line, each in found.items()]


def _fenced(ptx: str, name: str, within: Collection[int]) -> list[Change]:
    """A fence on both sides of an atomic: what a block wrote before it, and what others wrote before theirs."""
    text = ptx.split("\n")
    found: dict[int, dict[int, str]] = {}
    for kernel in kernels_of(ptx, name):
        for run in _runs(kernel):
            first, last = run.statements[0].number, run.statements[-1].number
            if run.line in within and any("atom" in line for line in text[first : last + 1]):
                gap = _Gap(run.line, "", ((first, True), (last, run.statements[-1].name == "bra")))
                found.setdefault(run.line, {}).update(gap.with_text(text, "membar.gl;"))
    return [
        Change(line, "a `__threadfence()` stands before it and another after it", lines)
        for line, lines in found.items()
    ]


def moved_of(ptx: str, name: str, within: Collection[int], nouns: Collection[str] = ("the barrier",)) -> list[Change]:
    """Barriers, commits, waits and arrivals that stand at another place, or are left out. That of a wrapper belongs to
    the line that calls it."""
    text = ptx.split("\n")
    chosen: dict[tuple[str, int], list[Statement]] = {}
    for kernel in kernels_of(ptx, name):
        for one in kernel.statements:
            noun = next((noun for noun in nouns if _MOVABLE[noun].match(one.opcode)), None)
            line = one.line if one.line in within else one.caller
            if noun is not None and line in within:
                chosen.setdefault((noun, line), []).append(one)
    gaps, loops = _gaps(ptx, name, within), loops_of(text)
    found = []
    for (noun, line), statements in sorted(chosen.items(), key=lambda each: list(nouns).index(each[0][0])):
        removed = {one.number: "" for one in statements}
        words = {" ".join(text[one.number].split()) for one in statements}
        if len(words) > 1:
            continue
        found.append(Change(line, f"{noun} of line {line} is left out", removed))
        for gap in _nearest(gaps, [line]):
            if line != gap.line and not any(number in removed for number, _ in gap.numbers):
                lines = {**removed, **gap.with_text(text, "".join(words))}
                there = gap.change(f"{noun} of line {line} stands {gap.words} instead", lines, loops)
                found.append(replace(there, line=line))
    return found


def _needs(first: str, second: str) -> bool:
    """Whether a line names the variable that another declares."""
    declared = _DECLARES.match(first)
    return declared is not None and re.search(rf"\b{declared[1]}\b", second) is not None


def exchanged_of(ptx: str, name: str, within: Collection[int], source: str = "") -> list[Change]:
    """Two lines that follow each other, in the other order; not where the second names what the first declares."""
    text, lines_of = ptx.split("\n"), source.split("\n")
    found: dict[tuple[int, int], dict[int, str]] = {}
    for kernel in kernels_of(ptx, name):
        runs = [run for run in _runs(kernel) if run.line]
        for one, other in pairwise(runs):
            if not one.line < other.line <= one.line + NEXT or not {one.line, other.line} <= {*within}:
                continue
            if other.line <= len(lines_of) and _needs(lines_of[one.line - 1], lines_of[other.line - 1]):
                continue
            begin, middle, end = _begin(one, text), _begin(other, text), _end(other.statements, text) + 1
            lines = text[begin:end]
            if begin >= middle or any(_BLOCK_END.match(line) for line in lines):
                continue
            swapped = [*text[middle:end], *text[begin:middle]]
            found.setdefault((one.line, other.line), {}).update(dict(zip(range(begin, end), swapped, strict=True)))
    return [
        Change(first, f"line {second} comes before line {first}", lines) for (first, second), lines in found.items()
    ]


def _begin(run: _Run, text: Sequence[str]) -> int:
    """The first line of its code, with the braces that are opened there: those of a call."""
    first = run.statements[0].number
    while text[first - 1].lstrip().startswith(("{ //", ".reg", ".param", ".loc", "//")) and first > 1:
        first -= 1
    return first


def guarded_of(
    ptx: str, name: str, within: Collection[int], near: Collection[int], constants: Mapping[str, int]
) -> list[Change]:
    """Lines that are executed only where a whole number is less than a parameter or a constant, or is 0; then lines
    behind which that holds for all that the kernel does."""
    text = ptx.split("\n")
    groups: dict[tuple[int, str], dict[int, str]] = {}
    ends: dict[tuple[int, str], dict[int, str]] = {}
    for kernel in kernels_of(ptx, name):
        for run in _runs(kernel):
            if run.line not in within or (near and run.line not in near):
                continue
            for block in _blocks(run):
                if not _may_be_skipped(block, text):
                    continue
                for words, condition in _conditions(kernel, block, constants):
                    groups.setdefault((run.line, words), {}).update(_skipped(kernel, block, text, condition))
                for register in _behind(kernel, block) if kernel.noun == "kernel" else ():
                    for words, condition in _compared(kernel, register, origin_of(kernel, register), {}):
                        ends.setdefault((run.line, words), {}).update(_ended(block, text, condition))
                for nth, one in enumerate(block[:-1], 1):  # a sum may be what is too large
                    if one.name == "add" and _WHOLE.fullmatch(one.operands[0]) and not _is_address(kernel, one):
                        for words, condition in _compared(kernel, one.operands[0], "a sum that it computes", constants):
                            lines = _skipped(kernel, block[nth:], text, condition)
                            groups.setdefault((run.line, f"{words}#{nth}"), {}).update(lines)
    return [
        Change(line, f"line {line} {verb} executed only where {words.partition('#')[0]}", lines)
        for verb, found in (("is", groups), ("and all behind it are", ends))
        for (line, words), lines in sorted(found.items(), key=lambda each: _rank(each[0][1]))
    ]


def valued_of(
    ptx: str, name: str, constants: Collection[tuple[str, int | float, int, Collection[int]]]
) -> list[Change]:
    """Another value of a constant that the file names, on all lines that use it: the nearest first. None is 1: what
    such a constant counts would not be there.

    ``constants``: each with its name, its value, its line, and the lines that use it.
    """
    statements = [one for kernel in kernels_of(ptx, name) for one in kernel.statements]
    found = []
    for noun, value, line, used in constants:
        others = [value + 1, value - 1, 2 * value, value / 2, 4 * value, value / 4, 8 * value, value / 8]
        uses = [(one, place) for one in statements if one.line in used for place in one.sources]
        for other in [each for each in others if isinstance(value, float) or (each > 1 and each == int(each))]:
            lines: dict[int, str] = {}
            if isinstance(value, float):
                for one, place in uses:
                    if one.operands[place] == _literal(value):
                        lines[one.number] = one.with_operand(place, _literal(other))
            else:
                _replace(lines, uses, value, int(other))
            if lines:
                found.append(Change(line, f"`{noun}` is {other:g} in place of {value:g}", lines))
    return found


def scaled_of(ptx: str, name: str, constants: Collection[tuple[str, int, Collection[int]]]) -> list[Change]:
    """Another value of a constant that depends on a template, on all lines that use it: times a power of two.

    ``constants``: each with its name, its line, and the lines that use it. Its value is what all these lines have.
    """
    found: dict[tuple[int, str], dict[int, str]] = {}
    for kernel in kernels_of(ptx, name):
        for noun, line, used in constants:
            uses = [(one, place) for one in kernel.statements if one.line in used for place in one.sources]
            numbers = Counter(number for one, place in uses if (number := _number(one.operands[place])) > 1)
            common = [number for number, _ in numbers.most_common(1)]
            for value in common:
                for times, new in ((2, 2 * value), (4, 4 * value), (8, 8 * value)):
                    words = f"`{noun}` is {times} times as large"
                    _replace(found.setdefault((line, words), {}), uses, value, new)
                for part, new in (("half", value // 2), ("a quarter", value // 4), ("an eighth", value // 8)):
                    if new:
                        _replace(found.setdefault((line, f"`{noun}` is {part} as large"), {}), uses, value, new)
    return [Change(line, words, lines) for (line, words), lines in found.items() if lines]


def _replace(lines: dict[int, str], uses: Sequence[tuple[Statement, int]], value: int, new: int) -> None:
    """Products with it change, too: nvcc works them out."""
    for one, place in uses:
        number = _number(one.operands[place])
        if number == value or (number > value > SMALL and number % value == 0):
            lines[one.number] = one.with_operand(place, str(number // value * new))


def _number(operand: str) -> int:
    return int(operand) if operand.isdigit() else 0


def _literal(value: float) -> str:
    return "0f" + struct.pack(">f", value).hex().upper()


def _rank(words: str) -> int:
    """Parameters are the likeliest limits, then 0."""
    limit = words.partition("<")[2]
    return 0 if "parameter" in limit or "negative" in words else 1 if not limit else 2


def _runs(kernel: Kernel) -> list[_Run]:
    """Runs of all lines that are known."""
    parts: list[list[Statement]] = []
    for one in kernel.statements:
        if one.line and parts and parts[-1][0].line == one.line:
            parts[-1].append(one)
        elif one.line:
            parts.append([one])
    lines = [0, *(part[0].line for part in parts), 0]
    return [
        _Run(kernel, tuple(part), before, after) for part, before, after in zip(parts, lines, lines[2:], strict=False)
    ]


def loops_of(text: Sequence[str]) -> list[range]:
    """The loops of PTX: each from the line of its label to that of its last branch back."""
    labels = {found[1]: number for number, line in enumerate(text) if (found := _LABEL.match(line))}
    ends: dict[int, int] = {}
    for number, line in enumerate(text):
        for target in _JUMP.findall(line):
            if (start := labels.get(target, number)) < number:
                ends[start] = number
    return [range(start, end) for start, end in ends.items()]


def _gaps(ptx: str, name: str, within: Collection[int]) -> list[_Gap]:
    """The places before a line that is come to from above, before one that calls an inlined function, and at the end of
    a loop."""
    backs = {loop.stop for loop in loops_of(ptx.split("\n"))}
    found: dict[tuple[int, str], list[tuple[int, bool]]] = {}
    copies: dict[tuple[int, str], int] = {}
    for kernel in kernels_of(ptx, name):
        of_calls = Counter[tuple[tuple[int, str], int]]()  # an inlined function has a copy for each line that calls it
        for line, words, caller, place in _places(_runs(kernel), backs, within):
            found.setdefault((line, words), []).append(place)
            of_calls[(line, words), caller] += 1
            copies[line, words] = max(copies.get((line, words), 1), of_calls[(line, words), caller])
    return [_Gap(*place, tuple(numbers), copies[place]) for place, numbers in found.items()]


def _places(
    runs: Sequence[_Run], backs: set[int], within: Collection[int]
) -> Iterator[tuple[int, str, int, tuple[int, bool]]]:
    """The line, the words, the line that calls the inlined function which it is in, and where it is in the PTX.

    ``backs``: the lines of the PTX that branch back, to the head of a loop.
    """
    own, called = {*within}, set[int]()
    for run, last, then in zip(runs, [None, *runs], [*runs[1:], None], strict=False):
        begin, end, caller = run.statements[0].number, run.statements[-1], run.statements[0].caller
        goes_on = last is not None and last.outer == run.line != last.line  # after a function that it calls
        if 0 < run.before < run.line and {run.before, run.line} & own and not goes_on:
            yield run.line, f"before line {run.line}", caller, (begin, True)
        elif last is not None and last.outer < caller and caller not in called and {last.outer, caller} & own:
            yield caller, f"before line {caller}", 0, (begin, True)
        called.add(run.outer)
        if then is None or not 0 < run.after < run.line or run.line not in own or then.outer == run.line:
            continue
        if backs.isdisjoint(then.numbers):
            yield run.line, f"after line {run.line}", caller, (end.number, end.name in ("bra", "ret"))
        else:
            what = "line" if backs.isdisjoint(run.numbers) else "the loop of line"
            words = f"after {what} {run.line}, at the end of the loop of line {run.after}"
            yield run.line, words, caller, (then.statements[0].number, True)


def _nearest(gaps: Sequence[_Gap], near: Collection[int]) -> list[_Gap]:
    """The gaps by their distance from some lines, as far as they are near."""

    def away(gap: _Gap) -> int:
        return min((abs(gap.line - line) for line in near), default=0)

    return sorted((gap for gap in gaps if away(gap) <= REACH), key=away)[:MOST_LINES]


def _blocks(run: _Run) -> Iterator[list[Statement]]:
    """The parts of a run without a branch, of statements that other threads need not execute, too."""
    part: list[Statement] = []
    for one in run.statements:
        if one.name in ("bra", "ret"):
            if part and part[-1].name not in ("setp", "not", "and", "or"):  # else its branch follows from it
                yield part
            part = []
        else:
            part.append(one)
    if part:
        yield part


def _end(block: Sequence[Statement], text: Sequence[str]) -> int:
    """Its last line, with the braces that are closed there: those of a call."""
    last = block[-1].number
    while text[last + 1].lstrip().startswith("} //"):
        last += 1
    return last


def _may_be_skipped(block: Sequence[Statement], text: Sequence[str]) -> bool:
    lines = text[block[0].number : _end(block, text) + 1]
    closed = sum(line.count("{") - line.count("}") for line in lines) == 0
    labels = any(re.match(r"\$\w+:", line) for line in lines)
    accesses = any(one.name in _ACCESSES and "param" not in one.opcode for one in block)
    return closed and accesses and not labels and not any(_NEEDS_OTHERS.match(one.opcode) for one in block)


def _is_address(kernel: Kernel, one: Statement) -> bool:
    """Whether an offset in bytes is added."""
    made = [kernel.statements[place] for each in one.operands[1:] for place in kernel.set_by.get(each, ())]
    return any(each.name == "shl" or ".wide" in each.opcode for each in made)


def _conditions(kernel: Kernel, block: Sequence[Statement], constants: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Words, and PTX that sets %other: whether the block is left out."""
    for register in _variables(kernel, block):
        words = origin_of(kernel, register)
        yield from _compared(kernel, register, words, constants)
        bits = "64" if register.startswith("%rd") else "32"
        yield f"{words} is not negative", f"setp.lt.s{bits} %other, {register}, 0;"
        if bits == "32":
            yield f"{words} is 0", f"setp.ne.s32 %other, {register}, 0;"


def _compared(kernel: Kernel, register: str, words: str, constants: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The same, for a whole number and each limit that it may have."""
    limits = [
        (f"parameter {nth_of(each)} of the {kernel.noun}", f"ld.param.u32 %limit, [{each}];")
        for each in kernel.declared
        if kernel.parameters.get(each, "ld.param.u32") == "ld.param.u32"
    ]
    limits += [(name, f"mov.u32 %limit, {value};") for name, value in constants.items() if 1 < value <= 1 << 16]
    for limit, loaded in limits[:MOST_LIMITS]:
        if limit != words:
            compared = f"setp.ge.s32 %other, {register}, %limit;"
            if register.startswith("%rd"):
                compared = f"cvt.s64.s32 %long, %limit; setp.ge.s64 %other, {register}, %long;"
            yield f"{words} < {limit}", f"{loaded} {compared}"


def _is_pointer(kernel: Kernel, register: str) -> bool:
    """Whether a parameter of 64 bits is loaded into it, or an address is made there."""
    made = [kernel.statements[place] for place in kernel.set_by[register]]
    return any(one.opcode in ("ld.param.u64", "cvta.to.global.u64") or _is_address(kernel, one) for one in made)


def _variables(kernel: Kernel, block: Sequence[Statement]) -> list[str]:
    """Whole numbers that are known before a block: the ones that it reads, then those that were made last."""
    first = kernel.places[block[0].number]
    found: dict[str, None] = {}
    read = [register for one in block for operand in one.operands for register in _WHOLE.findall(operand)]
    made = [(places[0], register) for register, places in kernel.set_by.items() if places[0] < first]
    for register in [*read, *(each for _, each in sorted(made, reverse=True) if _WHOLE.fullmatch(each))]:
        is_known = register in kernel.set_by and kernel.set_by[register][0] < first
        if is_known and (register in read or kernel.is_variable(register)) and not _is_pointer(kernel, register):
            found.setdefault(register)
    return [register for register in found if is_result(kernel, register)][:MOST_GUARDED]


def _behind(kernel: Kernel, block: Sequence[Statement]) -> list[str]:
    """Whole numbers that a block's come from, each made of threadIdx or blockIdx on a line before, and set once."""
    first = kernel.places[block[0].number]
    read = [register for one in block for operand in one.operands for register in _WHOLE.findall(operand)]
    chosen = [
        each
        for each in _made_of(kernel, read)
        if len(places := kernel.set_by.get(each, [])) == 1
        and places[0] < first
        and kernel.is_variable(each)
        and not _is_pointer(kernel, each)
        and is_result(kernel, each)
    ]
    return [each for each in chosen if _is_of_thread(kernel, each)][:MOST_GUARDED]


def _made_of(kernel: Kernel, registers: Sequence[str]) -> list[str]:
    """These registers of whole numbers, and those that they are made of, the nearest first."""
    found = dict.fromkeys(registers)
    waiting = [*found]
    while waiting and len(found) < MOST_BEHIND:
        for place in kernel.set_by.get(waiting.pop(0), ()):
            new = [
                each for each in _WHOLE.findall(" ".join(kernel.statements[place].operands[1:])) if each not in found
            ]
            found.update(dict.fromkeys(new))
            waiting += new
    return [*found]


def _is_of_thread(kernel: Kernel, register: str) -> bool:
    """Whether it is made of threadIdx, blockIdx and the like."""
    places = [place for each in _made_of(kernel, [register]) for place in kernel.set_by.get(each, ())]
    return any(AXES.fullmatch(operand) for place in places for operand in kernel.statements[place].operands[1:])


def _ended(block: Sequence[Statement], text: Sequence[str], condition: str) -> dict[int, str]:
    """The block's lines behind a return."""
    first = block[0].number
    before = f"\t{{ .reg .pred %other; .reg .b32 %limit; .reg .b64 %long; {condition} @%other ret; }}"
    return {first: f"{before}\n{text[first]}"}


def _skipped(kernel: Kernel, block: Sequence[Statement], text: Sequence[str], condition: str) -> dict[int, str]:
    """The block's lines with a branch around it. What it sets is 0 where it is left out."""
    first, last = block[0].number, _end(block, text)
    inside = range(kernel.places[first], kernel.places[block[-1].number] + 1)
    zeros = "".join(
        f"{_ZERO[register.rstrip('0123456789')].format(register)} "
        for register, places in kernel.set_by.items()
        if all(place in inside for place in places)
        and register.rstrip("0123456789") in _ZERO
        and not {one.line for one in block}.issuperset(kernel.uses.get(register, ()))
    )
    label = f"$other_{first}"
    before = f"\t{{ .reg .pred %other; .reg .b32 %limit; .reg .b64 %long; {zeros}{condition} @%other bra {label}; }}"
    changed = {first: f"{before}\n{text[first]}"}
    changed[last] = f"{changed.get(last, text[last])}\n{label}:"
    return changed
