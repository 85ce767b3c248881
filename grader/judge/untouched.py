"""An element that no thread reads, or writes -> the condition, the loop's end or the grid that kept threads from it.

The file's text says where threads touch the buffer, and with which index. For each thread that was launched, or that
one more block would have, the index is worked out: a thread whose index is the element's, in some iteration, is a
candidate. If those that least holds back are all held back by one and the same condition, that is said, with the values
of its two sides. If one is held back by nothing, the text is not understood, and nothing is said.

Where the index is a variable whose own conditions hold for the element, and no thread has that value in any round of
its loops, no condition is at fault: how the variable is made is said, and nothing of what holds threads back elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from operator import add, and_, eq, ge, gt, inv, le, lshift, lt, mul, ne, neg, not_, or_, pos, rshift, sub, xor
from typing import Any

from grader.content.expressions import Tree, Unknown, names_in, parse
from grader.content.functions import Code, Definition, split
from grader.devices import Call, Finding
from grader.devices.counters import Launched, Writer
from grader.judge.accesses import Access, accesses
from grader.judge.frame import Frame, kernel_frame, last_set, plain_name, step_of
from grader.judge.guards import guards_of
from grader.verdict import Kind

TRIED = 60_000  # indices that are worked out
CANDIDATES = 8  # that are looked at
THREADS = 1 << 13  # of a launch, whose indices are worked out
ITERATIONS = 64  # of a loop
SHOWN = 3  # variables of a condition
VECTORS = (1, 2, 4, 8)  # elements of an access
_FOR = re.compile(r"\bfor\s*\(")
_WIDE = re.compile(r"\b(?:float[24]|u?int[24]|half2|__half2|__nv_bfloat162|double2|Pack|Vector|Vec)\b|<Pack>")
_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
Values = Mapping[str, int]  # of a thread: "threadIdx.x" and the like, and variables of loops by their places
Worked = Callable[[Values], Any]


@dataclass(frozen=True)
class Untouched:
    """``line`` is the one at fault."""

    words: str
    line: int


@dataclass(frozen=True)
class _Asked:
    """The element that is asked about, as in why_untouched."""

    code: Code
    call: Call
    launched: Sequence[Launched]
    buffer: str
    flat: int
    by: Writer | None
    alone: bool

    @property
    def extents(self) -> tuple[int, ...]:
        return next((each.shape for each in self.call.buffers if each.name == self.buffer), ())

    def own(self, item: Launched) -> dict[str, int] | None:
        """The place of the thread ``by``, if it is one of this launch."""
        by = self.by
        if by is None or by.block is None or by.thread is None or by.kernel != item.kernel:
            return None
        return dict(zip(_BUILTINS, (*by.block, *by.thread), strict=True))


@dataclass(frozen=True)
class _Loop:
    """``for (variable = first; condition; variable += step)``: ``at`` is where its condition is."""

    frame: Frame
    variable: Definition
    condition: str
    step: str
    at: int

    @property
    def name(self) -> str:
        return f"{self.variable.name} at {self.variable.at}"


@dataclass(frozen=True)
class _Condition:
    """``text`` holds where the thread comes; ``leaves``: it must not, since who makes it true returns. A loop's is one
    of these, too; the grid's has no text."""

    frame: Frame
    text: str
    at: int
    leaves: bool = False
    is_loop: bool = False


@dataclass(frozen=True)
class _Held:
    """A thread whose index is the element's, and what holds it back."""

    site: Access
    loops: tuple[_Loop, ...]
    values: Values
    conditions: tuple[_Condition, ...]


def why_untouched(
    text: str,
    call: Call,
    launched: Sequence[Launched],
    buffer: str,
    flat: int,
    verb: str,
    by: Writer | None = None,
    *,
    alone: bool = False,
) -> Untouched | None:
    """``verb``: what threads would do, "read" or "write", with the element ``flat`` elements behind the buffer's
    first. ``by`` is who writes what is made of it: of an index that is in no text, that thread is the candidate.
    ``alone``: it is the only one."""
    try:
        asked = _Asked(Code(text), call, launched, buffer, flat, by, alone)
        found = [each for item in launched for each in _of_launch(asked, item)]
        if not alone and all(each.conditions for each in found):
            missed = [one for item in launched for one in _never(asked, item, verb)]
            if missed:
                return missed[0] if len(missed) == 1 else None
        # One more round of an unrolled loop is hardly what is missing, where other threads would do it, too.
        found = [each for each in found if not any(map(_is_unrolled, each.conditions))] or found
        if not found:
            return None
        least = min(len(each.conditions) for each in found)
        found = [each for each in found if len(each.conditions) == least]
        if least == 1 and len({each.conditions[0].at for each in found}) == 1:
            return _words(asked.code, found[0], verb)
        return _of_bound(asked.code, found, verb) if least > 1 else None
    except (RecursionError, Unknown):
        return None


def _of_launch(asked: _Asked, item: Launched) -> Iterator[_Held]:
    """The threads of a launch that have the element's index."""
    if asked.alone and (asked.by is None or asked.by.kernel != item.kernel):
        return
    for each in _accesses(asked, item):
        yield from islice(_held(asked, each, item), CANDIDATES)


def _accesses(asked: _Asked, item: Launched) -> list[Access]:
    """Where the kernel of a launch touches the buffer."""
    kernels = [each for each in asked.code.functions if each.is_kernel and each.name == plain_name(item.kernel)]
    if len(kernels) != 1 or prod(item.block) * (prod(item.grid) + 1) > THREADS or item.times > 1:
        raise Unknown
    zero = (0, 0, 0)
    finding = Finding(Kind.OUT_OF_BOUNDS, "", kernel=item.kernel, block=zero, thread=zero)
    frame = kernel_frame(asked.code, kernels[0], finding, asked.launched, asked.call)
    sizes = [each.itemsize for each in asked.call.buffers if each.name == asked.buffer]
    return [*accesses(frame, asked.buffer, max(sizes, default=0))]


def _never(asked: _Asked, item: Launched, verb: str) -> Iterator[Untouched]:
    """Accesses whose index is a variable that no thread has as it must be, in any round of its loops, though all that
    it is compared with there lets that value pass."""
    for site in _accesses(asked, item):
        frame, name = site.frame, site.inner.strip()
        definition = frame.code.visible(frame.function, frame.place).get(name)
        if definition is None or site.offset or (asked.flat % site.width and site.width > 1):
            continue
        loops, value = [*_loops(frame)], asked.flat // site.width
        own = [each for each in _conditions(frame, loops) if each.frame.function is frame.function]
        bounds = [each for each in own if name in {*names_in(parse(each.text))}]
        if not bounds or not all(_lets_pass(each, name, value, loops, item) for each in bounds):
            continue
        if not _has(frame, name, value, loops, item):
            yield _of_index(frame, definition, loops, value, bounds[-1], verb)


def _lets_pass(condition: _Condition, name: str, value: int, loops: Sequence[_Loop], item: Launched) -> bool:
    """Whether ``name < bound`` holds for the value, with a bound that is the same for all threads."""
    tree = parse(condition.text)
    if tree[0] != "binary" or tree[1] not in ("<", "<=", ">", ">=") or tree[2] != ("name", name):
        return False
    bound = _worked(condition.frame.at(condition.at), tree[3], {each.name for each in loops})
    first = dict.fromkeys(_BUILTINS, 0)
    last = dict(zip(_BUILTINS, (each - 1 for each in (*item.grid, *item.block)), strict=True))
    try:
        found = {bound(first), bound(last)}
    except KeyError:  # of a loop
        return False
    return len(found) == 1 and bool(_BINARY[tree[1]](value, found.pop())) is not condition.leaves


def _has(frame: Frame, name: str, value: int, loops: Sequence[_Loop], item: Launched) -> bool:
    """Whether a thread has this value of a variable in a round of its loops, or may have it: not all are worked out."""
    names = {each.name for each in loops}
    index, left = _named(frame, name, names), TRIED
    heads = _starts(loops, names)
    ends = [_worked(each.frame.at(each.at), parse(each.condition), names) for each in loops]

    def rounds(values: dict[str, int], depth: int) -> Iterator[bool]:
        if depth == len(heads):
            yield index(values) == value
            return
        key, first, step = heads[depth]
        values[key] = first(values)
        while ends[depth](values):
            yield from rounds(values, depth + 1)
            values[key] += step(values)

    x, y, z = item.grid
    one_more = not _is_stride(frame)
    for k, j, i in product(range(z), range(y), range(x + one_more)):
        for r, q, p in product(*map(range, reversed(item.block))):
            for found in rounds(dict(zip(_BUILTINS, (i, j, k, p, q, r), strict=True)), 0):
                left -= 1
                if found or left < 0:
                    return True
    return False


def _is_stride(frame: Frame) -> bool:
    """Whether the kernel's text has the size of its grid: then its threads go on, and one block more is none."""
    kernel = frame
    while kernel.caller is not None and kernel.caller.builtins:
        kernel = kernel.caller
    return "gridDim" in frame.code.text[kernel.function.begin : kernel.function.end]


# -- which thread would touch it -------------------------------------------------------------------------------------


def _held(asked: _Asked, site: Access, item: Launched) -> Iterator[_Held]:
    """Threads that have the element's index, of the launch or of one block more along its first axis."""
    frame, loops = site.frame, [*_loops(site.frame)]
    code, flat, names = frame.code, asked.flat, {each.name for each in loops}
    begin, end = code.line_span(code.line_at(frame.place))
    widths = VECTORS if _WIDE.search(code.text[begin:end]) else VECTORS[:1]
    wanted = {flat - flat % width for width in (*widths, site.width)}
    conditions = []
    for each in _conditions(frame, loops):
        with suppress(Unknown):  # it may hold
            conditions.append((each, _worked(each.frame.at(each.at), parse(each.text), names)))
    own = asked.own(item)
    try:
        index = _worked(frame, parse(site.index), names)
        threads = _iterations(own or {}, loops, names, _numbers(loops)) if asked.alone else _threads(item, loops, names)
    except Unknown:
        if own is None:
            raise
        index, threads = lambda _: flat, _iterations(own, loops, names, [(0,) * len(loops)])
    stays = _is_stride(frame)
    for values in islice(threads, TRIED):
        if index(values) not in wanted or (stays and values["blockIdx.x"] >= item.grid[0]):
            continue
        held = [each for each, holds in conditions if bool(holds(values)) == each.leaves]
        if any(_is_end(each, names, values, asked.extents) for each in held):
            continue
        if values["blockIdx.x"] >= item.grid[0]:
            held.append(_Condition(frame, "", -1))
        yield _Held(site, tuple(loops), values, tuple(held))


def _is_end(condition: _Condition, loops: set[str], values: Values, extents: Sequence[int]) -> bool:
    """Whether it keeps an index within one of the buffer's sizes: a thread that it holds back is past the end of a row,
    and the element is in the next one."""
    frame = condition.frame.at(condition.at)
    for part in re.split(r"&&|\|\|", condition.text):
        tree = parse(part)
        if tree[0] != "binary" or tree[1] not in ("<", ">="):
            continue
        left, right = (_worked(frame, each, loops)(values) for each in tree[2:])
        if tree[2][0] == "name" and left >= right and right in extents:
            return True
    return False


def _is_unrolled(condition: _Condition) -> bool:
    """Whether it is that of a loop whose rounds a constant of the file counts."""
    tree = parse(condition.text) if condition.is_loop else ("",)
    if tree[0] != "binary" or tree[1] != "<" or tree[3][0] != "name":
        return False
    code, function = condition.frame.code, condition.frame.function
    own = code.visible(function, condition.at).get(tree[3][1])
    return own.is_constant if own is not None else tree[3][1] in {each.name for each in code.constants}


def _numbers(loops: Sequence[_Loop]) -> list[tuple[int, ...]]:
    """The iterations that are looked at, the first ones first."""
    return sorted(product(range(ITERATIONS if len(loops) < 3 else 8), repeat=len(loops)), key=sum)


def _threads(item: Launched, loops: Sequence[_Loop], names: set[str]) -> Iterator[dict[str, int]]:
    """The threads in the first iterations of the loops, then in later ones, past the loops' ends."""
    x, y, z = item.grid
    bx, by, bz = item.block
    starts = _starts(loops, names)
    for number in _numbers(loops):
        for k, j, i in product(range(z), range(y), range(x + 1)):
            for r, q, p in product(range(bz), range(by), range(bx)):
                yield _after(dict(zip(_BUILTINS, (i, j, k, p, q, r), strict=True)), starts, number)


def _iterations(
    own: Mapping[str, int], loops: Sequence[_Loop], names: set[str], numbers: Sequence[tuple[int, ...]]
) -> Iterator[dict[str, int]]:
    starts = _starts(loops, names)
    for number in numbers:
        yield _after(dict(own), starts, number)


def _starts(loops: Sequence[_Loop], names: set[str]) -> list[tuple[str, Worked, Worked]]:
    """The variable of each loop, what it begins with, and its step."""
    return [
        (
            each.name,
            _worked(each.frame.at(each.variable.at), parse(each.variable.text), names),
            _worked(each.frame.at(each.at), parse(each.step), names),
        )
        for each in loops
    ]


def _after(
    values: dict[str, int], starts: Sequence[tuple[str, Worked, Worked]], rounds: Sequence[int]
) -> dict[str, int]:
    """The values of a thread after so many rounds of each loop."""
    for (name, first, step), number in zip(starts, rounds, strict=True):
        values[name] = first(values) + number * step(values)
    return values


def _worked(frame: Frame, tree: Tree, loops: set[str]) -> Worked:
    """An expression at a frame's place as a function of the thread and of the variables of loops. Raises Unknown for
    what is made of anything else. Whole numbers are as wide as they need to be."""
    what = tree[0]
    if what == "name":
        return _named(frame, tree[1], loops)
    if what == "number":
        value = tree[1].value
        return lambda _: value
    if what == "cast":
        return _worked(frame, tree[2], loops)
    if what == "call" and tree[1] == "sizeof":
        size = frame.of_tree(tree).value
        return lambda _: size
    parts = [
        _worked(frame, each, loops) for each in (tree[2] if what == "call" else tree[2:] if what != "?:" else tree[1:])
    ]
    if what == "?:":
        test, yes, no = parts
        return lambda values: yes(values) if test(values) else no(values)
    if what == "call" and tree[1].removeprefix("std::") in ("min", "max") and len(parts) == 2:
        chosen = min if tree[1].endswith("min") else max
        return lambda values: chosen(parts[0](values), parts[1](values))
    if what == "unary":
        apply = _UNARY[tree[1]]
        return lambda values: apply(parts[0](values))
    if what != "binary":
        raise Unknown
    left, right = parts
    if tree[1] == "&&":
        return lambda values: left(values) and right(values)
    if tree[1] == "||":
        return lambda values: left(values) or right(values)
    combine = _BINARY[tree[1]]
    return lambda values: combine(left(values), right(values))


def _named(frame: Frame, name: str, loops: set[str]) -> Worked:
    if name in _BUILTINS:
        return lambda values: values[name]
    definition = frame.code.visible(frame.function, frame.place).get(name)
    if definition is not None:
        key = f"{name} at {definition.at}"
        if key in loops:
            return lambda values: values[key]
        if frame.is_changed(definition):
            found = last_set(frame.code, frame.function, name, frame.place)
            if found is None:
                raise Unknown
            return _worked(frame.at(found[1]), parse(found[0]), loops)
        return _worked(frame.at(definition.at), parse(definition.text), loops)
    names = [each.name for each in frame.function.parameters]
    if name in names and name not in frame.given and frame.caller is not None and name not in frame.builtins:
        place = names.index(name)
        changed = frame.code.is_assigned(name, frame.function.begin, frame.function.end)
        if changed or place >= len(frame.arguments):
            raise Unknown
        return _worked(frame.caller, parse(frame.arguments[place]), loops)
    value = frame.name(name).value
    return lambda _: value


def _divided(a: int, b: int) -> int:
    if b == 0:
        raise Unknown
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_BUILTINS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
_UNARY: dict[str, Callable[[int], int]] = {"-": neg, "+": pos, "~": inv, "!": not_}
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": add, "-": sub, "*": mul, "/": _divided, "%": lambda a, b: a - _divided(a, b) * b, "&": and_, "|": or_,
    "^": xor, "<<": lshift, ">>": rshift, "<": lt, ">": gt, "<=": le, ">=": ge, "==": eq, "!=": ne,
}  # fmt: skip


def _loops(frame: Frame) -> Iterator[_Loop]:
    """Those around the place in its function, and around its callers' places, from the outside in, whose variable only
    steps."""
    if frame.caller is not None and frame.caller.builtins:
        yield from _loops(frame.caller)
    code = frame.code
    for match in _FOR.finditer(code.text, frame.function.begin, frame.place):
        opening = match.end() - 1
        closing = code.closing(opening)
        end = code.statement_end(closing + 1)
        if not closing < frame.place <= end:
            continue
        parts = code.text[opening + 1 : closing].split(";")
        at = opening + 1 + len(parts[0]) + 1
        own = [each for each in code.visible(frame.function, at + 1).values() if opening < each.at <= at]
        if len(parts) != 3 or len(own) != 1:
            raise Unknown
        step = step_of(own[0].name, parts[2])
        if step is None or code.is_assigned(own[0].name, closing + 1, end):
            raise Unknown
        yield _Loop(frame, own[0], " ".join(parts[1].split()), step, at + 1)


def _conditions(frame: Frame, loops: Sequence[_Loop]) -> Iterator[_Condition]:
    """What must hold where the place is come to."""
    inner: Frame | None = frame
    while inner is not None and inner.builtins:
        for guard in guards_of(inner.code, inner.function, inner.place):
            yield _Condition(inner, guard.text, guard.at, leaves=guard.leaves)
        if (choice := _choice(inner)) is not None:
            yield choice
        inner = inner.caller
    yield from (_Condition(each.frame, each.condition, each.at, is_loop=True) for each in loops)


def _choice(frame: Frame) -> _Condition | None:
    """The condition of ``condition ? x[i] : 0``, where the place is on its true side. Raises Unknown for its other."""
    code = frame.code
    start = max(code.text.rfind(sign, frame.function.begin, frame.place) for sign in ";{}") + 1
    before = code.text[start : frame.place]
    if "?" not in before:
        return None
    test, _, after = before.partition("?")
    if "?" in after or ":" in after.replace("::", ""):
        raise Unknown
    begin, depth = len(test), 0
    while begin > 0 and depth >= 0:
        begin -= 1
        depth += (test[begin] in ")]") - (test[begin] in "([")
        is_set = test[begin] == "=" and test[begin - 1] not in "=<>!" and test[begin + 1 : begin + 2] != "="
        if depth == 0 and (test[begin] == "," or is_set):
            depth = -1
    text = test[begin + (depth < 0) :]
    return _Condition(frame, re.sub(r"^\s*return\b", "", text).strip(), start + len(test))


# -- in words --------------------------------------------------------------------------------------------------------


def _words(code: Code, held: _Held, verb: str) -> Untouched | None:
    """The condition, or the part of it that does not hold."""
    values, condition = held.values, held.conditions[0]
    block, thread = (f"({','.join(str(values[each]) for each in names)})" for names in (_BUILTINS[:3], _BUILTINS[3:]))
    touch = code.line_at(held.site.frame.place)
    own = [each for each in held.loops if each.variable.name in {*names_in(parse(held.site.index))}]
    own = own or [each for each in held.loops if each.at == condition.at]
    with_values = f" with {own[-1].variable.name} = {values[own[-1].name]}" if own else ""
    who = f"block {block} thread {thread} would {verb} it on line {touch}{with_values}"
    if condition.at < 0:
        return _of_grid(code, condition.frame, who)
    frame, names = condition.frame.at(condition.at), {each.name for each in held.loops}
    line, part = code.line_at(condition.at), condition.text
    if not condition.leaves and "||" not in part:
        parts = [each.strip() for each in part.split("&&")]
        false = [each for each in parts if not _worked(frame, parse(each), names)(values)]
        part = false[0]
    sides = _sides(frame, part, names, values)
    what = "the loop" if condition.is_loop else "the exit" if condition.leaves else "the condition"
    end = "ends before" if condition.is_loop else "comes first" if condition.leaves else "is false"
    return Untouched(f"{who}, but {what} on line {line} {end}: `{part}`{sides}", line)


def _of_bound(code: Code, found: Sequence[_Held], verb: str) -> Untouched | None:
    """Where all conditions that hold threads back compare with one and the same variable: how that is made, of the
    thread that it holds back by least."""
    bounds, gaps = set[tuple[int, str]](), list[int]()
    for each in found:
        for condition in each.conditions:
            tree = parse(condition.text)
            if condition.at < 0 or tree[0] != "binary" or tree[1] not in ("<", "<=") or tree[3][0] != "name":
                return None
            bounds.add((condition.frame.function.begin, tree[3][1]))
        frame = each.conditions[0].frame.at(each.conditions[0].at)
        tree, names = parse(each.conditions[0].text), {loop.name for loop in each.loops}
        left, right = (_worked(frame, side, names)(each.values) for side in tree[2:])
        gaps.append(left - right)
    if len(bounds) != 1 or min(gaps) < 0:
        return None
    nearest = found[gaps.index(min(gaps))]
    condition, ((_, name),) = nearest.conditions[0], bounds
    said, made = _words(code, nearest, verb), last_set(code, condition.frame.function, name, condition.at)
    return said if said is None or made is None else Untouched(said.words, code.line_at(made[1]))


def _of_index(
    frame: Frame, definition: Definition, loops: Sequence[_Loop], value: int, bound: _Condition, verb: str
) -> Untouched:
    """How a variable is made that no thread has as it must be, and the steps of the loops that are in it."""
    code, name, made = frame.code, definition.name, [definition]
    made += [each for each in frame.at(definition.at).definitions(names_in(parse(definition.text)))]
    changed = {each.variable.at: each for each in loops if each.frame.function is frame.function}
    said = []
    for each in sorted(made, key=lambda each: -each.at)[:SHOWN]:
        line, loop = code.line_at(each.at), changed.get(each.at)
        if loop is None:
            said.append(f"{each.name} = {each.text}, on line {line}")
        elif loop.step != "1" or each is definition:
            said.append(f"{each.name} begins with {each.text} and steps by {loop.step}, on line {line}")
    touch, line = code.line_at(frame.place), code.line_at(bound.at)
    words = f"line {touch} would {verb} it with {name} = {value}, which `{bound.text}` on line {line} lets pass"
    return Untouched(f"{words}, but no thread has that: {'; '.join(said)}", code.line_at(definition.at))


def _of_grid(code: Code, frame: Frame, who: str) -> Untouched | None:
    """The launch that has too few blocks, and what its grid is set to."""
    kernel = frame
    while kernel.caller is not None and kernel.caller.builtins:
        kernel = kernel.caller
    host = kernel.caller
    found = re.compile(r"<<<(.*?)>>>", re.DOTALL).search(code.text, host.place - 400, host.place) if host else None
    if host is None or found is None or not split(found[1]):
        return None
    grid, line = split(found[1])[0], code.line_at(found.start())
    said = f"{who}, but the grid of line {line} is `{grid}`"
    definition = last_set(code, host.function, grid, found.start())
    if definition is None:
        return Untouched(said, line)
    line = code.line_at(definition[1])
    return Untouched(f"{said} = {definition[0]} = {host.at(found.start()).value(grid).value}, on line {line}", line)


def _sides(frame: Frame, text: str, loops: set[str], values: Values) -> str:
    """`` is 0 < 0 (steps = cols / THREADS, on line 67)``; empty where it is not a comparison."""
    tree = parse(text)
    if tree[0] != "binary" or tree[1] not in _COMPARISONS:
        return ""
    left, right = (_worked(frame, each, loops)(values) for each in tree[2:])
    more = []
    for each in frame.definitions(names_in(tree)):
        if each.name in names_in(tree) and f"{each.name} at {each.at}" not in loops and not each.text.isdecimal():
            made = last_set(frame.code, frame.function, each.name, frame.place) if frame.is_changed(each) else None
            made, value = made or (each.text, each.at), _named(frame, each.name, loops)(values)
            more.append(f"{each.name} = {' '.join(made[0].split())} = {value}, on line {frame.code.line_at(made[1])}")
    said = f" ({'; '.join(more[-SHOWN:])})" if more else ""
    return f" is {left} {tree[1]} {right}{said}"
