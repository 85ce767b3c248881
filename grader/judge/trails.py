"""An input element that a wrong answer lacks, must not have, or has twice -> the places in memory through which it
goes, and where its way ends: which line writes it to shared memory, and which one reads it there; the lines that it
goes by, where the instructions between them are known, too (routes.py).

The case is called twice, and only that element differs between the calls. The simulator says which accesses move other
bytes in the second: each of them is a place that depends on the element. If the element changes the wrong answer
although it must not, the last of these places on the way there is named; if it does not and must, where it is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grader.devices import Finding, Outcome
from grader.devices.counters import Launched, Trail, TrailStep, Writer
from grader.judge.cards import WARP
from grader.judge.indices import of_finding
from grader.judge.lab import element
from grader.judge.routes import beginnings, by_lines, only_way, two_ways
from grader.judge.target import Element, Part, Target, floats
from grader.judge.untouched import Untouched, why_untouched
from grader.verdict import Clue, Kind

if TYPE_CHECKING:
    from numpy import ndarray

INSTRUCTIONS = 200_000  # warp instructions of one such call, which takes some ten times as long as others
CALLS = 2  # for one element
MOST = 3  # elements that are followed
PASSED = ", passed on line "  # a parameter's words
TELLING = 5  # lines of a way, at most, that say where something is
VECTOR = 8  # elements of an access of 16 bytes, at most
RISE = 16  # of the element
LOWEST, STEPS = 0.5, 128  # the other numbers are whole 128ths from 0.5 on, below 1.5


def ways(target: Target, found: Sequence[Element]) -> Iterator[Clue]:
    """At most one clue, and what the index is made of by which an element is read that must not be. If the target
    lacks several elements, it names the one whose way ends first: a product lacks both of its factors where one of them
    does not arrive."""
    said, indices = list[_Said](), list[Clue]()
    for one in [*dict.fromkeys(found)][:MOST]:
        way = _way(target, one)
        words = None if way is None else _WORDS[one.part](way)
        if words is not None and way is not None:
            said.append(words)
            indices = indices or (_indices(way) if one.part is Part.FOREIGN else [])
    lost = [each for each in said if each.reached is not None]
    shown = [each for each in said if each.reached is None]
    shown += [each for each in lost if each.reached == min(other.reached or 0 for other in lost)]
    if shown:
        yield Clue("path", _joined(shown), line=shown[0].line)
        yield from indices


def _joined(shown: Sequence[_Said]) -> str:
    """A reason that several have is said once, after the last of them."""
    words = []
    for place, each in enumerate(shown):
        last = each.why and each.why not in [other.why for other in shown[place + 1 :]]
        words.append(f"{each.words}: {each.why}" if last else each.words)
    return "; ".join(words)


def _way(target: Target, one: Element) -> _Way | None:
    """None where the device does not follow the element, or where it is now something else to the target."""
    lab = target.lab
    if not lab.steady or lab.findings <= 0 or lab.instructions <= 0:
        return None
    lab.calls = max(lab.calls, CALLS)  # the probes may have made all of theirs
    base = _numbers(target)
    if one.name not in base:
        return None
    risen = {**base, one.name: base[one.name].copy()}
    risen[one.name].reshape(-1)[one.flat] += RISE
    right = [float(target.reference(inputs)[target.flat]) for inputs in (base, risen)]
    outcomes: list[Outcome] = []
    for trail, inputs in ((1, base), (2, risen)):
        case = lab.with_inputs(target.case, inputs)
        outcome = lab.run(case, watch=[(target.name, target.flat)], trail=trail, most=INSTRUCTIONS)
        if outcome is None:
            return None
        outcomes.append(outcome)
    found, writer = outcomes[1].trail, outcomes[1].writers.get(f"{target.name}[{target.flat}]")
    if found is None or found.parted or writer is None or writer.block is None:
        return None
    before, after = (target.bytes_of(outcome) for outcome in outcomes)
    lacks, must = one.part in (Part.LACKING, Part.OWN), one.part is not Part.FOREIGN
    if (before == after) is not lacks or (right[0] != right[1]) is not must:
        return None
    launches = [each for each in outcomes[1].launched if each.kernel == writer.kernel]
    if len(launches) != 1 or launches[0].times > 1:  # which of them it was, is not known
        return None
    return _Way(target, one, found, writer, launches[0].block, outcomes[1].launched)


def _numbers(target: Target) -> dict[str, ndarray]:
    """Numbers for all inputs that are not indices: no two of them depend on each other in a way that hides a change."""
    import numpy

    rng, found = numpy.random.default_rng(17), {}
    for tensor in floats(target, narrow=True):
        extent = tensor.extent(target.case.sizes)
        whole = not target.lab.spec.dtype(tensor, target.lab.kata).is_float
        found[tensor.name] = rng.integers(1, 4, extent) if whole else LOWEST + rng.integers(0, STEPS, extent) / STEPS
    return found


# -- in words --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Way:
    """The steps of an element, and which of them are of the warp that writes the target."""

    target: Target
    one: Element
    trail: Trail
    writer: Writer
    block: tuple[int, ...]
    launched: tuple[Launched, ...]

    @property
    def name(self) -> str:
        extent = next(each for each in self.target.lab.spec.inputs if each.name == self.one.name)
        return element(self.one.name, extent.extent(self.target.case.sizes), self.one.flat)

    def linear(self, by: Writer) -> int:
        x, y, z = by.thread or (0, 0, 0)
        return x + self.block[0] * (y + self.block[1] * z)

    def is_in_block(self, step: TrailStep) -> bool:
        return step.by.kernel == self.writer.kernel and step.by.block == self.writer.block

    def is_in_warp(self, step: TrailStep) -> bool:
        return self.is_in_block(step) and self.linear(step.by) // WARP == self.linear(self.writer) // WARP

    @property
    def steps(self) -> list[TrailStep]:
        """Those that may lead to the target: not those of other blocks of its kernel, unless blocks pass something on
        to each other."""
        steps, own = self.trail.steps, self.writer.kernel
        others = [each for each in steps if each.by.kernel == own and not self.is_in_block(each)]
        if any(each.buffer and each.access != "read" and not self.is_output(each) for each in others):
            return [*steps]
        if any(each.access == "atomic" for each in others):
            return [*steps]
        return [each for each in steps if each not in others]

    def is_in_thread(self, step: TrailStep) -> bool:
        """Whether the thread that writes the target has a part in it; of what a warp shares, any of its lanes."""
        own = step.lanes >> self.linear(self.writer) % WARP & 1
        return self.is_in_warp(step) and (step.together or bool(own))

    def is_input(self, step: TrailStep) -> bool:
        return step.buffer in {each.name for each in self.target.lab.spec.inputs}

    def is_output(self, step: TrailStep) -> bool:
        return step.buffer in {each.name for each in self.target.lab.spec.outputs}

    def is_target(self, step: TrailStep) -> bool:
        return step.buffer == self.target.name

    def lines(self, *without: str) -> str:
        """Those that it goes by, wherever it gets to, without some accesses; empty where that is not known."""
        lines = only_way(self.trail.route, self.writer.file, without=without)
        return by_lines(lines) if lines else ""

    def outputs(self) -> str:
        """Where it gets to, if that is nowhere or one element of an output."""
        written = [each for each in self.trail.steps if each.access != "read"]
        if not written:
            return "; nothing that is written to memory depends on it"
        first = written[0]
        if len({_place(each) for each in written}) > 1 or not self.is_target(first):
            return ""
        place = self.target.at(first.index)
        return f"; of all that is written to memory, only {place} depends on it ({self.lines('read') or _at(first.by)})"

    def reads(self) -> list[TrailStep]:
        """Those of the element itself."""
        same = (self.one.name, self.one.flat)
        return [each for each in self.steps if (each.buffer, each.index) == same and each.access == "read"]

    def kept(self) -> list[TrailStep]:
        """What is written to memory, but to the target's output."""
        return [each for each in self.steps if each.access != "read" and not self.is_output(each)]

    def taken(self) -> list[TrailStep]:
        """What is read of that."""
        kept = self.kept()
        return [each for each in self.steps if each.access == "read" and _source(kept, each) is not None]

    def taken_for_target(self) -> list[TrailStep]:
        return [each for each in self.taken() if self.is_in_thread(each)]

    def source(self, step: TrailStep) -> TrailStep:
        """Who put there what a step of ``taken`` reads."""
        found = _source(self.kept(), step)
        assert found is not None
        return found


def _place(step: TrailStep) -> tuple[object, ...]:
    """The same for two accesses of one element. Blocks have shared memory of their own."""
    return (step.buffer, step.index) if step.buffer else (step.launch, step.by.block, step.index)


def _source(kept: Sequence[TrailStep], step: TrailStep) -> TrailStep | None:
    """The write to the place that a step reads; else the last one before it in memory, if a vector from there on
    reaches as far."""
    where = [*_place(step)[:-1]]
    behind = [each for each in kept if [*_place(each)[:-1]] == where and 0 <= step.index - each.index < VECTOR]
    return max(behind, key=lambda each: each.index, default=None)


@dataclass(frozen=True)
class _Said:
    """``reached``: of an element that the target lacks, how far it came; ``why``, where that is known."""

    words: str
    line: int | None
    reached: int | None = None
    why: str = ""


def _foreign(way: _Way) -> _Said | None:
    """Through which place an element gets to the target, which it must not."""
    if taken := way.taken_for_target():
        last = taken[-1]
        others = {each.place for each in taken if each.by.line == last.by.line} != {last.place}
        words = f"{way.name} gets to {way.target.words} through {last.place}{' and others' * others}"
        return _Said(f"{words}, which {_line(way.source(last), 'writes')} and {_line(last, 'reads')}", last.by.line)
    if lines := way.lines():
        return _Said(f"{way.name} gets to {way.target.words} by {lines}", way.trail.route.sites[0].by.line)
    direct = [each for each in way.reads() if way.is_in_thread(each)]
    if direct and not any(way.is_in_block(each) for each in way.kept()):
        last = direct[-1]
        return _Said(f"{way.name} gets to {way.target.words} where {_line(last, 'reads')} it", last.by.line)
    return None


def _indices(way: _Way) -> list[Clue]:
    """At most one clue: the variables of the line that reads an element that must not get to the target, with the
    values that they have there."""
    reads = [each for each in way.reads() if way.is_in_thread(each)] or way.reads()[:1]
    lab, file = way.target.lab, way.writer.file
    if len({(each.by.line, each.by.callers) for each in reads}) != 1 or reads[0].by.file != file:
        return []
    by = reads[0].by
    finding = Finding(
        Kind.UNINITIALISED, "", by.kernel, None, by.line, by.block, by.thread, way.one.name, way.one.flat, by.callers
    )
    call = way.target.case.call(nth=lab.nth, limits=lab.limits)
    try:
        found = of_finding(lab.text, finding, way.launched, call)
    except RecursionError:
        return []
    own = [each for each in found if PASSED not in each.text][-MOST:]
    words = "; ".join(f"{each.text}, on line {each.line}" for each in own)
    return [Clue("index", f"where line {by.line} reads {way.name}: {words}", by.line)] if own else []


def _repeated(way: _Way) -> _Said | None:
    """Where an element is read several times for the target, or how it gets there in two ways. Nothing where it is not
    known to be read as often as it counts."""
    route, file = way.trail.route, way.writer.file
    if not route.reached:
        return None
    line = route.sites[0].by.line
    if route.paths == way.one.times == sum(each.beginnings for each in route.sites):
        read = beginnings(route, file)
        return _Said(f"{way.name} is read {route.paths} times for {way.target.words}: {read}", line) if read else None
    ways = two_ways(route, file) if way.one.times == 2 else ""
    return _Said(f"{way.name} gets to {way.target.words} in two ways: {ways}", line) if ways else None


def _met(way: _Way) -> _Said | None:
    """Where an element that belongs to the target is read for it."""
    if taken := way.taken_for_target():
        first = taken[0]
        return _Said(
            f"{way.name} is in {first.place}, which {_line(way.source(first), 'writes')} and {_line(first, 'reads')}",
            first.by.line,
        )
    direct = [each for each in way.reads() if way.is_in_thread(each)]
    return _Said(f"{_line(direct[0], 'reads')} {way.name}", direct[0].by.line) if direct else None


def _lost(way: _Way) -> _Said | None:
    """How far an element gets that the target must depend on."""
    trail, kept, taken = way.trail, way.kept(), way.taken()
    if not trail.steps:
        return None if trail.blind else _unread(way, f"no thread reads {way.name}")
    unseen = [each for each in way.steps if each.access == "read" and not way.is_input(each) and each not in taken]
    if unseen:
        return None  # of a place that something has written without being seen
    if taken and not _is_put_last(way, kept[-1], taken):
        return _taken(way, taken)
    if trail.blind and not (kept and kept[-1].buffer):  # of shared memory not all is seen
        return None
    if kept:
        words = f"{way.name} is in {kept[-1].place}, which {_line(kept[-1], 'writes')}"
        if trail.blind and not way.is_in_block(kept[-1]):  # of other blocks not all steps are known
            block = f"block {_triple(way.writer.block)}, which writes {way.target.words}"
            words += f" in block {_triple(kept[-1].by.block)}; {block}, does not read it there"
            return _Said(words, kept[-1].by.line, 2)
        return _Said(f"{words}, {_unread_there(way, kept[-1])}", kept[-1].by.line, 2)
    if reads := way.reads():
        lines = dict.fromkeys(each.by.line for each in reads if _thread(each.by) == _thread(reads[0].by))
        where = f"on line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
        written = any(each.access != "read" for each in trail.steps)
        return _read(way, reads, f"{_who(reads[0].by)} reads {way.name} {where}", written)
    if not way.steps:
        block = _triple(way.writer.block)
        return _unread(way, f"no thread of block {block}, which writes {way.target.words}, reads {way.name}")
    return None


def _read(way: _Way, reads: Sequence[TrailStep], words: str, written: bool) -> _Said | None:
    """What is made of an element that is put into no memory but outputs, and why the target's own thread does not read
    it, where lanes do not pass values on to each other."""
    outputs, other = way.outputs(), _other_thread(way, reads) if written else ""
    more = outputs or ("" if other else _used(way))
    if not (more or other):
        return None
    why = _why(way, alone=True) if other and "shfl" not in way.target.lab.text else None
    line = why.line if why else reads[0].by.line
    return _Said(f"{words}{more}{other}", line, 1, why.words if why else "")


def _unread_there(way: _Way, last: TrailStep) -> str:
    """That a place is read by no thread, or by none of the block that writes the target."""
    reads = [each for each in way.trail.steps if each.access == "read" and _source([last], each) is not None]
    if not reads:
        return "and no thread reads it there"
    block = f"block {_triple(way.writer.block)}, which writes {way.target.words}"
    return f"which {_line(reads[0], 'reads')} in block {_triple(reads[0].by.block)}, and not in {block}"


def _unread(way: _Way, words: str) -> _Said:
    """What kept threads from an element that none reads, if the file's text tells."""
    why = _why(way)
    return _Said(words, why.line if why else None, 0, why.words if why else "")


def _other_thread(way: _Way, reads: Sequence[TrailStep]) -> str:
    """Who writes the target, where that is none of the threads that read the element."""
    if any(way.is_in_thread(each) for each in reads) or way.writer.line is None or way.writer.thread is None:
        return ""
    return f"; {way.target.words} is written by {_who(way.writer)} on {_at(way.writer)}"


def _own(way: _Way) -> _Said | None:
    """Who reads an element that the target must be made of, where it is not who writes the target."""
    reads = way.reads()
    other = _other_thread(way, reads) if reads else ""
    if not other:
        return _lost(way)
    line = reads[0].by.line
    return _Said(f"{_who(reads[0].by)} reads {way.name} on {_at(reads[0].by)}{other}", line, 1)


def _is_put_last(way: _Way, last: TrailStep, taken: Sequence[TrailStep]) -> bool:
    """Whether what was read of the element was put elsewhere after that, where no thread reads it."""
    places = {_place(each) for each in taken}
    return _place(last) not in places and way.steps.index(last) > way.steps.index(taken[-1])


def _taken(way: _Way, taken: Sequence[TrailStep]) -> _Said | None:
    """Whether an element that threads read from where it was put is read for the target."""
    if own := way.taken_for_target():
        last = own[-1]
        words = f"{way.name} is in {last.place}, which {_line(way.source(last), 'writes')} and {_line(last, 'reads')}"
        return _Said(f"{words}; {way.target.words} does not depend on what is read there{_used(way)}", last.by.line, 4)
    near = [each for each in taken if way.is_in_block(each)]
    if not near:
        return _left(way, taken[-1])
    last = next((each for each in near if way.is_in_warp(each)), near[-1])
    words = f"{way.name} is in {last.place}, which {_line(way.source(last), 'writes')}"
    reader, writer = (f"thread {_triple(by.thread)}" for by in (last.by, way.writer))
    read = f"{_line(last, 'reads')} it in {reader}, and not in {writer}, which writes {way.target.words}"
    return _Said(f"{words}; {read}", last.by.line, 3)


def _why(way: _Way, *, alone: bool = False) -> Untouched | None:
    """What keeps threads from the element, or the target's own thread ``alone``."""
    lab, one = way.target.lab, way.one
    call = way.target.case.call(nth=lab.nth, limits=lab.limits)
    return why_untouched(lab.text, call, way.launched, one.name, one.flat, "read", way.writer, alone=alone)


def _left(way: _Way, last: TrailStep) -> _Said | None:
    """An element that other blocks or another kernel read from where it was put, of which the block that writes the
    target reads nothing."""
    if any(way.is_in_block(each) for each in way.steps):
        return None
    words = f"{way.name} is in {last.place}, which {_line(way.source(last), 'writes')} and {_line(last, 'reads')}"
    block = f"block {_triple(way.writer.block)}, which writes {way.target.words}"
    return _Said(f"{words}; nothing that {block}, reads depends on it", last.by.line, 3)


def _weighed(way: _Way) -> _Said | None:
    """By which lines an element gets to the target that depends on it in another way than it must."""
    lines = only_way(way.trail.route, way.writer.file)
    if not 0 < len(lines) <= TELLING:
        return None
    return _Said(f"{way.name} gets to {way.target.words} by {by_lines(lines)}", way.trail.route.sites[0].by.line)


def _placed(way: _Way) -> _Said | None:
    """Who reads an element whose own term the target lacks, where that is not who writes the target."""
    reads = way.reads()
    other = _other_thread(way, reads) if reads else ""
    if not other:
        return None
    return _Said(f"{_who(reads[0].by)} reads {way.name} on {_at(reads[0].by)}{other}", reads[0].by.line)


def _used(way: _Way) -> str:
    """Where it is used for others."""
    lines = way.lines("read", "write", "atomic")
    return f": it is used for other elements, on {lines}" if lines else ""


_WORDS = {
    Part.LACKING: _lost, Part.FOREIGN: _foreign, Part.MET: _met, Part.REPEATED: _repeated, Part.OWN: _own,
    Part.WEIGHED: _weighed, Part.PLACED: _placed,
}  # fmt: skip


def _at(by: Writer) -> str:
    """``line 7 (called on line 30)``"""
    return f"line {by.line}" + (f" (called on line {by.callers[0]})" if by.callers else "")


def _line(step: TrailStep, verb: str) -> str:
    return f"{_at(step.by)} {verb}"


def _thread(by: Writer) -> tuple[object, ...]:
    return by.kernel, by.block, by.thread


def _triple(place: tuple[int, int, int] | None) -> str:
    return str(place).replace(" ", "")


def _who(by: Writer) -> str:
    return f"block {_triple(by.block)} thread {_triple(by.thread)}"
