"""Grade -> text that fits a screen: the verdict, the smallest failing shape, what is wrong, where, and what next.

Text from a learner's file is plain text in it, without codes that a terminal obeys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grader.content import symptoms
from grader.content.skeleton import own_lines, skeleton_of
from grader.content.source_file import is_helper
from grader.learner.pointer import point
from grader.output.terminal import plain
from grader.system.stages import REST
from grader.verdict import Clue, Grade, Kind, Measurement, Mismatch, Verdict, format_sizes

if TYPE_CHECKING:  # a command that only names files needs no device
    from grader.devices.counters import KernelCounters, LineCounters

PRINTED_LINES = 6
PRINTED_WIDTH = 110
INDENT = "  "
LEAST_STAGE_S = 0.005
INPUTS_SHOWN = 2
CLUES_SHOWN = 3
CALLERS_SHOWN = 2  # of the functions that a line is inlined into, from the inside out
LAUNCHES_SHOWN = 4
# Clues that name a cause.
NAMING = (
    "calls",
    "order",
    "formula",
    "repair",
    "chosen",
    "place",
    "lanes",
    "probe",
    "path",
    "nan",
    "unset",
    "mbarrier",
    "copies",
    "first",
)
_ON_LINE = re.compile(r"\b(?:on|of|if|before|after) line (\d+)\b")
_BEFORE_A_LAUNCH = (Kind.UNSUPPORTED, Kind.NOT_ALLOWED)

_NEXT = {
    Kind.UNSUPPORTED: "the simulator cannot run this; grade the file on a GPU (--device gpu)",
    Kind.DIVERGENT_BARRIER: "today's cards let these meet, CUDA does not promise it: let all threads reach one barrier",
    Kind.MODIFIED_INPUT: "inputs are const; write only to the outputs",
    Kind.NOT_REPEATABLE: "let one thread add the partial sums, in an order that only the sizes decide",
    Kind.TOO_SLOW: "`kata bench` shows the launches; docs/profiling.md shows how to find what a kernel waits for",
    Kind.INCONCLUSIVE: "the answer is right; grade again on a quiet machine, or with --no-speed",
}

_TWO_WRITES = "two writes with nothing between that orders them are a race, even if both write the same value"

# What helps against a deadlock: the first entry whose word the finding has.
_NEXT_OF_DEADLOCK = {
    "mbarrier": "a phase ends after all arrivals and bytes that the mbarrier expects",
    "mask": "every lane in the mask must execute the shuffle; an exited lane cannot: keep it, or change the mask",
    "lanes of the warp": "all 32 lanes of the warp must execute it together",
    "cannot start": "blocks start in any order, as many at a time as fit the card: wait only for those that surely run",
    "barrier": "every thread of the block must reach the same barrier, or none",
}


def headline(grade: Grade) -> str:
    """One line: ``square_f32: wrong answer: 3 of 257 elements of y are wrong``."""
    verdict = grade.verdict
    words = f"{grade.kata.name}: {verdict.kind}"
    return words if verdict.passed else plain(f"{words}: {verdict.summary}")


def outcome(grade: Grade) -> str:
    """The text after a kata's name in a list: ``pass on sim sm_90a (31 cases)``."""
    if not grade.passed:
        return plain(f"{grade.verdict.kind}: {grade.verdict.summary}")
    runs = [f"{verdict.device} ({_cases(verdict)})" for verdict in grade.verdicts]
    speeds = [f"; {speed(measurement)}" for verdict in grade.verdicts for measurement in verdict.measurements]
    return f"pass on {', '.join(runs)}{''.join(speeds)}"


def _cases(verdict: Verdict) -> str:
    return f"{verdict.cases} cases; {verdict.left_out}" if verdict.left_out else f"{verdict.cases} cases"


def speed(measurement: Measurement) -> str:
    """``93.1 % of copy (92.8 to 93.4) at n=67108864, 4.01 TB/s, 84 % of the card's peak``."""
    share = f"{measurement.ratio:.1%} of {measurement.baseline} ({measurement.low:.1%} to {measurement.high:.1%})"
    rate = f"{measurement.rate:.3g} {measurement.unit}"
    peak = f", {measurement.peak_share:.0%} of the card's peak" if measurement.peak_share else ""
    return f"{share} at {format_sizes(measurement.sizes)}, {rate}{peak}".replace("%", " %")


def printed(grade: Grade) -> list[str]:
    """What is worth knowing about a pass: notes, what kernels and launcher printed, TODOs that are still empty."""
    rows = (row for verdict in grade.verdicts for row in _beside_a_pass(grade, verdict))
    return [INDENT + plain(row) for row in (*rows, *_todos(grade, grade.verdict))] if grade.passed else []


def launches(grade: Grade) -> Iterable[str]:
    """The launch of each timed kernel, one line per kernel."""
    found = [item for measurement in grade.verdict.measurements[:1] for item in measurement.launches]
    for item in found:
        local = f"{item.local_bytes} bytes of local memory (spills?)" if item.local_bytes else "no local memory"
        uses = f"{item.registers} registers, {item.smem_bytes} bytes of shared memory, {local}"
        fill = f"{item.blocks_per_sm} blocks per SM, occupancy {100 * item.occupancy:.0f} %"
        name = item.kernel.partition("(")[0]
        yield plain(f"{name} <<<{_triple(item.grid)}, {_triple(item.block)}>>>: {uses}, {fill}")


def explanation(grade: Grade, *, whole: bool = False, lesson: bool = True) -> str:
    """The lines of a verdict that is not a pass, or all of them. The first line is the headline.

    ``lesson``: with what the family's lesson says of such a verdict.
    """
    verdict = grade.verdict
    if verdict.kind is Kind.NOT_STARTED or verdict.passed:
        return headline(grade)
    sections = [_clues_whole if whole and section is _clues else section for section in _SECTIONS]
    rows = [row for section in sections if lesson or section is not _lesson for row in section(grade, verdict)]
    return "\n".join([headline(grade), *(INDENT + plain(row) for row in rows)])


def _row(label: str, text: str) -> str:
    return f"{label:<9} {text}"


def _shape(grade: Grade, verdict: Verdict) -> Iterable[str]:
    if verdict.sizes:
        yield _row("shape", f"{format_sizes(verdict.sizes)}  (the smallest found that fails; values: {verdict.values})")


def _place(grade: Grade, verdict: Verdict) -> Iterable[str]:
    if verdict.line is None:
        return
    path = display_path(grade.source.path)
    chain = [verdict.line, *(verdict.finding.callers if verdict.finding else ())]
    own, *inner = learners_first(grade.source.text, chain)
    outer = chain[chain.index(own) + 1 :]
    places = [("at", own), *(("in", line) for line in inner), *(("from", line) for line in outer[:CALLERS_SHOWN])]
    for label, line in places:
        yield _row(label, f"{path}:{line}  {grade.source.line(line)}".rstrip())


def learners_first(text: str, chain: Sequence[int]) -> list[int]:
    """A line, from the inside out those that its function is inlined into -> the one to read first, then the other.

    That is the innermost that is not in a helper of a few lines, such as a wrapper of one instruction.
    """
    own = next((line for line in chain if not is_helper(text, line)), chain[0])
    return [own] if own == chain[0] else [own, chain[0]]


def _who(grade: Grade, verdict: Verdict) -> Iterable[str]:
    finding = verdict.finding
    if finding is None or finding.kernel is None:
        return
    where = [f"kernel {finding.kernel}"]
    where += [f"block {_triple(finding.block)}"] if finding.block else []
    where += [f"thread {_triple(finding.thread)}"] if finding.thread else []
    yield _row("who", ", ".join(where))


def _speed(grade: Grade, verdict: Verdict) -> Iterable[str]:
    for place, measurement in enumerate(verdict.measurements):
        yield _row("speed" if place == 0 else "", speed(measurement))


def _wrong(grade: Grade, verdict: Verdict) -> Iterable[str]:
    if verdict.mismatches:
        name = verdict.mismatches[0].buffer
        known = any(mismatch.writer for mismatch in verdict.mismatches)
        beside = list(verdict.mismatches[0].inputs)[:INPUTS_SHOWN]
        inputs = "".join(f" {each:>12}" for each in beside)
        yield _row("first", f"{'index':<16} {'expected':>16} {'got':>16}{inputs}{'  written by' if known else ''}")
        for mismatch in verdict.mismatches:
            row = f"{_element(name, mismatch):<16} {_number(mismatch.expected):>16} {_got(mismatch):>16}"
            row += "".join(f" {_number(mismatch.inputs[each]):>12}" for each in beside if each in mismatch.inputs)
            yield _row("", f"{row}  {mismatch.writer or ''}".rstrip())
    if verdict.pattern:
        yield _row("pattern", verdict.pattern)


def _clues(grade: Grade, verdict: Verdict) -> Iterable[str]:
    """The most telling ones. A cause that is named needs less beside it."""
    is_named, is_followed = (
        any(clue.about in names for clue in verdict.clues[: CLUES_SHOWN + 1]) for names in (NAMING, ("path",))
    )
    shown = verdict.clues[: CLUES_SHOWN if is_named and not is_followed else CLUES_SHOWN + 1]
    yield from _clue_rows(grade, verdict, shown)
    if len(shown) < len(verdict.clues):
        yield _row("", f"({len(verdict.clues) - len(shown)} more with `kata grade --explain`)")


def _clues_whole(grade: Grade, verdict: Verdict) -> Iterable[str]:
    yield from _clue_rows(grade, verdict, verdict.clues)


def _clue_rows(grade: Grade, verdict: Verdict, clues: Sequence[Clue]) -> Iterable[str]:
    for before, clue in zip([None, *clues], clues, strict=False):
        yield _row("" if before is not None and before.about == clue.about == "index" else clue.about, clue.text)
        if clue.about == "repair":
            there = (verdict.line, *(verdict.finding.callers if verdict.finding else ()))
            for line in dict.fromkeys(map(int, _ON_LINE.findall(clue.text))):
                if line in there:  # it stands above
                    continue
                yield _row("", f"{display_path(grade.source.path)}:{line}  {grade.source.line(line)}".rstrip())


def _launch(grade: Grade, verdict: Verdict) -> Iterable[str]:
    """What the failing call launched: a wrong grid, or none at all, explains much."""
    if verdict.launched is None or verdict.kind in _BEFORE_A_LAUNCH:
        return
    if not verdict.launched:
        yield _row("launch", "no kernel was launched")
    for place, item in enumerate(verdict.launched[:LAUNCHES_SHOWN]):
        times = f", {item.times} times" if item.times > 1 else ""
        shape = f"{_extent(item.grid)}, {_extent(item.block)}, {item.smem_bytes}"
        yield _row("" if place else "launch", f"{item.kernel}<<<{shape}>>>{times}")
    if len(verdict.launched) > LAUNCHES_SHOWN:
        yield _row("", f"and {len(verdict.launched) - LAUNCHES_SHOWN} more")


def _extent(values: tuple[int, int, int]) -> str:
    """As a launcher writes it: ``256``, ``(8, 4)``."""
    x, y, z = values
    return str(x) if (y, z) == (1, 1) else f"({x}, {y})" if z == 1 else _triple(values)


def _compiler(grade: Grade, verdict: Verdict) -> Iterable[str]:
    if verdict.detail and verdict.line is None:
        for line in verdict.detail.splitlines()[:4]:
            yield _row("nvcc", line)


def _todos(grade: Grade, verdict: Verdict) -> Iterable[str]:
    if verdict.open_todos:
        numbers = ", ".join(map(str, verdict.open_todos))
        more = len(verdict.open_todos) > 1
        yield _row("open", f"TODO{'s' if more else ''} {numbers} {'are' if more else 'is'} still empty")


def _printed(grade: Grade, verdict: Verdict) -> Iterable[str]:
    from grader.sandbox.parent import TRUNCATED

    lines = verdict.printed.strip("\n").splitlines()
    shown = [line if len(line) <= PRINTED_WIDTH else f"{line[:PRINTED_WIDTH]} ..." for line in lines[-PRINTED_LINES:]]
    if len(lines) > PRINTED_LINES:
        cut = lines[0] == TRUNCATED
        count = f"more than {len(lines) - 1}" if cut else f"{len(lines)}"
        which = f"{len(lines) - 1} of them" if cut else "all of them"
        shown.insert(0, f"(the last {PRINTED_LINES} of {count} lines; {which} with `kata grade --json`)")
    for place, line in enumerate(shown):
        yield _row("printed" if place == 0 else "", line).rstrip()


def _beside_a_pass(grade: Grade, verdict: Verdict) -> Iterator[str]:
    yield from _remark(verdict)
    yield from _printed(grade, verdict)
    yield from _unreached(grade, verdict)
    yield from _narrow(grade, verdict)


def _remark(verdict: Verdict) -> Iterable[str]:
    if verdict.remark:
        yield _row("note", verdict.remark)


def _unreached(grade: Grade, verdict: Verdict) -> Iterable[str]:
    """The learner's own lines that no case of a pass reached. After a GPU the simulator has only some of the cases."""
    if verdict.coverage is None or verdict.left_out:
        return
    own = own_lines(grade.source.text, skeleton_of(grade.kata))
    if found := [number for number in verdict.coverage.unreached if number in own]:
        which = "it" if len(found) == 1 else "them"
        yield _row("unreached", f"no case reached {_lines(found)}: the grade says nothing about {which}")


def _narrow(grade: Grade, verdict: Verdict) -> Iterable[str]:
    """The learner's own lines whose offsets no case is large enough to break."""
    own = own_lines(grade.source.text, skeleton_of(grade.kata)) if verdict.narrow_offsets else set()
    if found := [number for number in verdict.narrow_offsets if number in own]:
        yield _row("32 bits", f"{_lines(found)}: an offset is a product of sizes in 32 bits, which wraps from 2^31 on")


def _lines(numbers: Sequence[int]) -> str:
    """``lines 3, 7 to 9``"""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    words = ", ".join(" to ".join(map(str, run)) for run in runs)
    return f"line{'s' if len(numbers) > 1 else ''} {words}"


def _lesson(grade: Grade, verdict: Verdict) -> Iterable[str]:
    """Where to read about this kind of verdict."""
    if count := len(point(grade).rows):
        which = f"{count} row{'s' if count > 1 else ''} on {verdict.kind}"
        yield _row("lesson", f"{display_path(grade.kata.lesson_path)}, {symptoms.HEADING}: {which}")


def _device(grade: Grade, verdict: Verdict) -> Iterable[str]:
    if verdict.device:
        own = f"{verdict.device}, {verdict.card}" if verdict.card else verdict.device
        more = [f"{one.kind} on {one.device}, too" for one in grade.verdicts if one is not verdict and not one.passed]
        yield _row("device", "; ".join([own, *more]))
    note = _note(verdict)
    if note and not verdict.lacks_library:  # whose summary itself says what to do
        yield _row("note", note)


def _note(verdict: Verdict) -> str | None:
    if verdict.kind is Kind.RACE and verdict.summary.count(" writes it") > 1:
        return _TWO_WRITES
    if verdict.kind is not Kind.DEADLOCK:
        return _NEXT.get(verdict.kind)
    return next((note for word, note in _NEXT_OF_DEADLOCK.items() if word in verdict.summary), None)


_SECTIONS: tuple[Callable[[Grade, Verdict], Iterable[str]], ...] = (
    _shape,
    _place,
    _who,
    _wrong,
    _clues,
    _launch,
    _speed,
    _compiler,
    _todos,
    _printed,
    _device,
    _lesson,
)


COST_LINES = 6

_TOTALS: tuple[tuple[str, str], ...] = (
    ("warp instructions", "{warp_instructions:,}"),
    ("by class", "{classes}"),
    ("global memory", "{bytes_read:,} bytes read, {bytes_written:,} written, in {global_requests:,} requests"),
    ("sectors", "{sectors:,} of 32 bytes; {ideal_sectors:,} would do"),
    ("shared memory", "{wavefronts:,} wavefronts of {shared_requests:,} requests; {ideal_wavefronts:,} would do"),
    (
        "bulk copies",
        "{tma_copies:,}, {tma_bytes:,} bytes in {box_rows:,} rows, {tma_filled_bytes:,} outside of the tensor",
    ),
    ("waits for a phase", "{phase_waits:,}, {open_phase_waits:,} of them found it open"),
    ("branches", "{branches:,}, {divergent_branches:,} of them divergent"),
    ("barriers", "{barriers:,}"),
    ("atomics", "{atomics:,} instructions, at most {most_atomics_on_one_address:,} updates of one address"),
    ("flops", "{flops:,}"),
)


def stages(grade: Grade) -> list[str]:
    """The seconds of each stage of the grade, the longest first. Stages below 5 ms share one line."""
    shown = {name: seconds for name, seconds in grade.stages.items() if seconds >= LEAST_STAGE_S and name != REST}
    shown[REST] = grade.time_s - sum(shown.values())
    rows = sorted(shown.items(), key=lambda item: (item[0] == REST, -item[1]))
    return ["where the time went", *(f"{INDENT}{seconds:7.2f} s  {name}" for name, seconds in rows)]


def costs(grade: Grade) -> list[str]:
    """The cost of each kernel of a counted call, and the lines that cost most; empty without counters."""
    rows: list[str] = []
    for counters in (verdict.counters for verdict in grade.verdicts if verdict.counters):
        sizes = format_sizes(counters.sizes)
        for kernel in counters.call.kernels:
            launches = f", {kernel.launches} launches" if kernel.launches > 1 else ""
            rows.append(f"counters of {kernel.kernel} at {sizes}{launches}")
            rows += _totals(kernel)
            rows += _cost_lines(grade, kernel.lines)
    return [rows[0], *(INDENT + plain(row) for row in rows[1:])] if rows else []


def _totals(kernel: KernelCounters) -> Iterable[str]:
    ordered = sorted(kernel.instructions.items(), key=lambda item: -item[1])
    classes = ", ".join(f"{name} {number:,}" for name, number in ordered)
    for label, words in _TOTALS:
        text = words.format(**vars(kernel), classes=classes)
        if not text.startswith("0"):
            yield f"{label:<18} {text}"


def _cost_lines(grade: Grade, lines: Sequence[LineCounters]) -> Iterable[str]:
    waits = any(item.phase_waits for item in lines[:COST_LINES])
    header = f"{'line':>5} {'instructions':>13} {'sectors/ideal':>17} {'wavefronts/ideal':>17}"
    yield header + (f" {'open/waits':>12}" if waits else "")
    for item in lines[:COST_LINES]:
        sectors = _share(item.sectors, item.ideal_sectors)
        wavefronts = _share(item.wavefronts, item.ideal_wavefronts)
        if waits:
            wavefronts += f" {f'{item.open_phase_waits:,}/{item.phase_waits:,}' if item.phase_waits else '-':>12}"
        text = grade.source.line(item.line)[:70]
        yield f"{item.line:>5} {item.instructions:>13,} {sectors:>17} {wavefronts:>17}  {text}"


def _share(count: int, ideal: int) -> str:
    return f"{count:,}/{ideal:,}" if count else "-"


def display_path(path: Path) -> str:
    """The path relative to the working directory if it is below it, else the whole path."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, RuntimeError):  # it is elsewhere, or a link to itself
        return str(path)


def _triple(values: tuple[int, int, int]) -> str:
    return f"({', '.join(map(str, values))})"


def _element(name: str, mismatch: Mismatch) -> str:
    return f"{name}[{', '.join(map(str, mismatch.index))}]"


def _got(mismatch: Mismatch) -> str:
    return "never written" if mismatch.got is None else _number(mismatch.got)


def _number(value: float | int) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
