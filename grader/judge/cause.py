"""A case that fails -> its Verdict with the cause: what further calls and changes of the file show.

Only a grade that fails imports this module and what it needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from grader.devices import Finding
from grader.devices.counters import Launched, Writer
from grader.fault import MISTAKES, told
from grader.judge.case import Case, CaseKey, allowed
from grader.judge.chosen_kernel import of_choice
from grader.judge.diagnosis import diagnose, sorted_clues
from grader.judge.earlier import earlier
from grader.judge.guards import of_barrier, of_skipped_wait
from grader.judge.indices import of_finding, of_launch, of_shared
from grader.judge.kept import Process, of_calls
from grader.judge.lab import Lab
from grader.judge.lanes import of_lanes
from grader.judge.loops import of_loop
from grader.judge.mixtures import NOT_RESCALED
from grader.judge.pattern import without_chance, without_last
from grader.judge.repairs import repair
from grader.judge.search import CALLS, Search, costs_a_process
from grader.judge.shared_places import of_shared_place, without_order
from grader.judge.unset import of_unset
from grader.judge.verdicts import judge
from grader.verdict import Clue, Kind, Mismatch, Verdict

_IN_FLIGHT = re.compile(r"\bleaves (\d+) groups? in flight")  # in a repair
WRITTEN = "written "  # what a note of the simulator begins with, of the elements of an array
ADDED = " stands "  # in the words of a repair: what it adds, or what stands elsewhere
ITSELF = " itself"  # a formula that only says that nothing is done, not why
PROPOSED = ": cp.async.wait_group"  # what a note of the simulator goes on with, of the wait alone
# Findings whose line may be another than the one at fault.
REPAIRED = (
    Kind.LAUNCH_FAILED, Kind.OUT_OF_BOUNDS, Kind.MISALIGNED, Kind.UNINITIALISED, Kind.RACE, Kind.DEADLOCK, Kind.CRASH,
)  # fmt: skip


@contextmanager
def solved_ahead(search: Search, kind: Kind) -> Iterator[None]:
    """Lets nvcc compare the file with the solution while the smallest case that fails is looked for."""
    compiler = search.compiler
    is_wanted = kind is Kind.WRONG_ANSWER or (kind in REPAIRED and kind is not Kind.LAUNCH_FAILED)
    if compiler is None or not search.budget.watch or not is_wanted:
        yield
        return
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as beside:
        search.compiler = replace(compiler, solved_ahead=beside.submit(compiler.solved, Path(folder)))
        yield


def with_cause(search: Search, shape: CaseKey, verdict: Verdict) -> Verdict:
    """The verdict with what further calls show: of a wrong answer; of a finding in a later kernel what came before.

    A mistake of the grader on the way there does not cost the verdict: it says so.
    """
    try:
        return _with_cause(search, shape, verdict)
    except MISTAKES as error:
        return replace(verdict, clues=sorted_clues([*verdict.clues, _broken(error)]))


def _broken(error: Exception) -> Clue:
    """That the cause could not be looked for. Where tests must find such a mistake, it is raised."""
    if os.environ.get("KATA_CI"):
        raise error
    return Clue("grader", f"the verdict stands, but its cause could not be looked for: {told(error)}; please report it")


def _with_cause(search: Search, shape: CaseKey, verdict: Verdict) -> Verdict:
    finding, kernels = verdict.finding, {item.kernel for item in verdict.launched or ()}
    if finding is not None:
        verdict = replace(verdict, clues=tuple(_of_finding(search, shape, verdict, finding)))
    if not costs_a_process(verdict) and not search.kept and (kept := _of_calls(search, shape)):
        return replace(verdict, clues=sorted_clues([*kept, *verdict.clues]))
    text = search.sandbox.program.source.read_text(encoding="utf-8", errors="replace")
    lab = Lab(search.kata, search.spec, search.call, search.budget.limits, steady=search.budget.watch, text=text)
    for key, known in search.tried.items():
        if known.passed or known.kind is Kind.WRONG_ANSWER:
            lab.known[key] = not known.passed
    if search.kept:
        return _of_kept(search, lab, shape, verdict)
    if verdict.kind is not Kind.WRONG_ANSWER and (finding is None or finding.kernel is None or len(kernels) < 2):
        return _repaired(search, lab, shape, verdict)
    if finding is not None:
        if not costs_a_process(verdict):
            verdict = replace(verdict, clues=sorted_clues([*verdict.clues, *earlier(lab, shape, finding)]))
        return _repaired(search, lab, shape, verdict)
    return _diagnosed(search, lab, shape, verdict)


def _of_kept(search: Search, lab: Lab, shape: CaseKey, verdict: Verdict) -> Verdict:
    """The verdict of a case that fails by itself, and leaves something behind with which others fail. Where a line is
    found that makes all right, that was a consequence."""
    found = [*repair(lab, shape, search.sandbox.program, search.compiler, verdict.kind, verdict.finding)]
    return replace(verdict, clues=sorted_clues([*(found or search.kept), *verdict.clues]))


def _of_finding(search: Search, shape: CaseKey, verdict: Verdict, finding: Finding) -> Iterator[Clue]:
    """What a finding's notes say, and the file and its PTX of the finding's places."""
    yield from (Clue("mbarrier", note) for note in finding.phases)
    yield from map(_noted, finding.notes)
    yield from _choice(search, shape, finding)
    yield from of_shared_place(search.sandbox.program, finding)
    yield from _indices(search, shape, finding, verdict.launched or ())


def _diagnosed(search: Search, lab: Lab, shape: CaseKey, verdict: Verdict) -> Verdict:
    """The verdict of a wrong answer, on the case that shows most, with all that is found out of it."""
    try:
        richest, clues = diagnose(lab, shape)
    except MISTAKES as error:  # a repair may be found all the same
        richest, clues = shape, (_broken(error),)
    if richest != shape:
        case = Case(search.kata, search.spec, richest)
        again = judge(case, search.call(case.call(nth=lab.nth, limits=search.budget.limits)))
        if again.kind is Kind.WRONG_ANSWER:
            verdict = replace(again, error_share=verdict.error_share, printed=search.sandbox.printed)
    if verdict.pattern is not None:
        others = [dict(key.sizes) for key, is_wrong in lab.known.items() if is_wrong]
        pattern = without_chance(verdict.pattern, dict(richest.sizes), others)
        verdict = replace(verdict, pattern=_without_last(lab, richest, pattern))
    program = search.sandbox.program
    found = [*clues, *of_lanes(lab, richest, program), *of_unset(program)]
    if not any(clue.about == "unset" for clue in found):
        is_known = any(clue.about == "formula" and ITSELF not in clue.text for clue in found)
        found += repair(lab, richest, program, search.compiler, is_brief=is_known)
        if any(clue.about == "repair" for clue in found):  # which says more than what the answers look like
            found = [replace(clue, text=clue.text.removesuffix(f": {NOT_RESCALED}")) for clue in found]
    return replace(verdict, clues=sorted_clues(found))


def _without_last(lab: Lab, failed: CaseKey, pattern: str) -> str:
    """The pattern of a wrong answer, with what larger cases show of it."""
    if (one := lab.judged.get(failed)) is None or not one.wrong:
        return pattern
    place = one.first_wrong
    others = [each.compared[place].wrong for each in lab.judged.values() if each.wrong]
    return without_last(pattern, one.compared[place].wrong, others)


def _noted(note: str) -> Clue:
    """A note of the simulator."""
    return Clue("written", note.removeprefix(WRITTEN)) if note.startswith(WRITTEN) else Clue("copies", note)


def _repaired(search: Search, lab: Lab, shape: CaseKey, verdict: Verdict) -> Verdict:
    """The verdict of a finding, with the line where a small change takes it away."""
    if verdict.kind not in REPAIRED or costs_a_process(verdict):
        return verdict
    lab.known |= {key: True for key, known in search.tried.items() if known.kind is verdict.kind}
    clues = [*repair(lab, shape, search.sandbox.program, search.compiler, verdict.kind, verdict.finding)]
    others = without_order(verdict.clues) if any(ADDED in clue.text for clue in clues) else verdict.clues
    return replace(verdict, clues=sorted_clues([*clues, *(without_refuted(clues, clue) for clue in others)]))


def without_refuted(repairs: Sequence[Clue], note: Clue) -> Clue:
    """A note on copies, without the wait that it proposes if that does not make all right, or another does."""
    left = {number for clue in repairs for number in _IN_FLIGHT.findall(clue.text)}
    words, _, proposed = note.text.partition(PROPOSED)
    return note if proposed.split()[:1] and proposed.split()[0] in left else replace(note, text=words)


def _of_calls(search: Search, failed: CaseKey) -> tuple[Clue, ...]:
    """Whether the case fails because of calls before it. If so, other experiments would only show what these left."""
    if not search.budget.watch:  # on a GPU, two calls may differ by chance
        return ()
    others = [key for key in search.tried if key.sizes != failed.sizes and key.card == failed.card]
    most = sorted(others, key=lambda key: -search.spec.work(dict(key.sizes)))[:1]
    last = [key for key in others if key not in most][-1:]
    process = Process(search.call, search.sandbox.close, search.budget.limits)
    cases = (Case(search.kata, search.spec, key) for key in (*most, *last))
    return of_calls(process, Case(search.kata, search.spec, failed), cases)


def _indices(search: Search, shape: CaseKey, finding: Finding, launched: Sequence[Launched]) -> list[Clue]:
    """What the variables on the finding's line are; nothing where the file cannot be read as it is expected."""
    text = search.sandbox.program.source.read_text(encoding="utf-8", errors="replace")
    call = Case(search.kata, search.spec, shape).call(nth=0, limits=search.budget.limits)
    try:
        found = of_finding(text, finding, launched, call) or of_launch(text, finding, launched, call)
        more = [
            *of_skipped_wait(text, finding),
            *of_barrier(text, finding, launched, call),
            *of_loop(text, finding),
        ]
        return [*more, *(found or of_shared(text, finding, launched))]
    except RecursionError:
        return []


def _choice(search: Search, shape: CaseKey, finding: Finding) -> list[Clue]:
    """The launcher's test that let the kernel of a finding run."""
    text = search.sandbox.program.source.read_text(encoding="utf-8", errors="replace")
    call = Case(search.kata, search.spec, shape).call(nth=0, limits=search.budget.limits)
    lab = Lab(search.kata, search.spec, search.call, search.budget.limits)

    def is_right(sizes: Mapping[str, int]) -> bool:
        known = {name: sizes[name] for name in search.spec.sizes}
        if not allowed(search.kata, known) or search.spec.work(known) > search.budget.work_limit:
            return False
        if any(size > search.spec.sizes[name].max for name, size in known.items()):
            return False
        one = lab.try_key(replace(shape, sizes=tuple(known.items())))
        return one is not None and not one.wrong

    try:
        return of_choice(text, finding, call, is_right)
    except RecursionError:
        return []


def with_writers(search: Search, shape: CaseKey, verdict: Verdict) -> Verdict:
    """The verdict with who wrote each of the wrong elements, from calls in which they are watched."""
    case = Case(search.kata, search.spec, shape)
    watch = tuple((item.buffer, _flat_index(case, item)) for item in verdict.mismatches)
    for nth in range(CALLS):
        call = replace(case.call(nth=nth, limits=search.budget.limits), watch=watch)
        outcome = search.call(call)
        again = judge(case, outcome)
        if [item.index for item in again.mismatches] != [item.index for item in verdict.mismatches]:
            continue
        named = (
            replace(item, writer=_writer(outcome.writers.get(f"{name}[{index}]")))
            for item, (name, index) in zip(verdict.mismatches, watch, strict=True)
        )
        return replace(verdict, mismatches=tuple(named))
    return verdict


def _flat_index(case: Case, mismatch: Mismatch) -> int:
    tensor = next(tensor for tensor in case.spec.outputs if tensor.name == mismatch.buffer)
    flat = 0
    for place, size in zip(mismatch.index, tensor.extent(case.sizes), strict=True):
        flat = flat * size + place
    return flat


def _writer(writer: Writer | None) -> str | None:
    """``block (1,0,0) thread (0,0,0), line 17``; a function of the CUDA runtime by its name."""
    if writer is None:
        return None
    if writer.block is None or writer.thread is None:
        return writer.kernel
    block, thread = ("(" + ",".join(map(str, place)) + ")" for place in (writer.block, writer.thread))
    line = f", line {writer.line}" if writer.line is not None else ""
    line += f" (called on line {writer.callers[0]})" if writer.callers else ""
    return f"block {block} thread {thread}{line}"
