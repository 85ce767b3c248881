"""Kata + Sandbox -> Verdict: is the answer right, on every shape that is tried?

First the shapes that the spec names, smallest first, then shapes that hypothesis draws. Whatever fails is made as
small as hypothesis can make it while the kind of failure stays the same.

What is tried, and when to stop, is a matter of shapes, of work and of instructions, never of a clock: a busy machine
tries the same as an idle one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from grader.compile.nvcc_log import SOURCE
from grader.content.catalog import Kata
from grader.content.spec import Accumulated, Sizes, Spec
from grader.devices import INSTRUCTIONS, Call, Card, Finding, Limits, Outcome
from grader.devices.counters import KernelCoverage, Launched, Writer
from grader.judge.case import Case, CaseKey, Expected, allowed, largest_within, shapes
from grader.judge.chosen_kernel import of_choice
from grader.judge.comparison import Comparison, compare
from grader.judge.coverage import joined
from grader.judge.diagnosis import diagnose, sorted_clues
from grader.judge.earlier import earlier
from grader.judge.indices import of_finding, of_launch, of_shared
from grader.judge.kept import Process, after, of_calls
from grader.judge.lab import Lab, beside, in_order
from grader.judge.mixtures import NOT_RESCALED
from grader.judge.pattern import without_chance, without_last
from grader.judge.repairs import Compiler, repair
from grader.judge.unset import of_unset
from grader.sandbox.parent import Sandbox
from grader.storage.whole_file import write_whole
from grader.verdict import CaseCounters, Clue, Coverage, Kind, Mismatch, Verdict, format_sizes

if TYPE_CHECKING:
    import hypothesis
    from hypothesis.strategies import SearchStrategy

CALLS = 2  # of the same contents, to compare bits
Explain = Callable[[CaseKey], Outcome | None]  # the simulator's outcome; None: it cannot run the file
STEPS_DOWN = (1, 2, 3, 4)  # by which each size of the smallest case that was drawn is lowered, if half is too few
DESCENTS = 40  # cases that are tried so
ALONE = 12  # cases that are tried so, each in a process of its own
SMALL_CARDS = 4  # that there are
SMALL_CARD_EVERY = 3  # of the shapes that the spec names, or all where the launcher asks what card it is on
FINDING_WORK = 1 << 23  # that a call with a finding stands for: how far other blocks had come by then is left to chance
LIMITS = Limits(all_seconds=120.0)


@dataclass(frozen=True)
class SearchBudget:
    """How much is tried. Work is in the spec's unit of it.

    ``shrink_work`` is for all cases that the search for a smaller shape tries: their work and the warp instructions of
    their calls. ``instructions`` is what the calls of all cases may execute, ``limits`` is for each call: beyond them
    there is a time-out.
    """

    examples: int = 12
    named_sizes: int | None = None  # where a GPU had all shapes that the spec names: only so many of them, the smallest
    large: int = 0  # how many of the spec's large shapes
    work_limit: int = 4_000_000  # of one case; what the spec names is tried all the same, but called only once
    shrink_work: int = 500_000_000
    instructions: int = 8 * INSTRUCTIONS
    limits: Limits = LIMITS
    watch: bool = False  # whether the device can say who wrote a wrong element
    diagnose: bool = False  # after a wrong answer, find out more about it
    small_cards: bool = False  # whether it can be a card of few multiprocessors
    smallest: bool = True  # look for the smallest case that fails
    seed: int = 0
    shuffled: bool = False  # in an order of the seed's own: a reader of the spec does not know what comes

    def thorough(self) -> SearchBudget:
        return replace(
            self,
            examples=200,
            named_sizes=None,
            large=1000 if self.large else 0,
            work_limit=self.work_limit * 8,
            shrink_work=self.shrink_work * 6,
            instructions=self.instructions * 16,
            limits=Limits(self.limits.instructions * 4, self.limits.seconds * 4, self.limits.all_seconds * 16),
        )


def budget_for(device: str) -> SearchBudget:
    """The default on each device: a GPU makes light of large shapes, a simulator of small ones."""
    if device == "sim":
        return SearchBudget(watch=True, diagnose=True, small_cards=True)
    return SearchBudget(diagnose=True, large=2, work_limit=1 << 40)


_IN_FLIGHT = re.compile(r"\bleaves (\d+) groups? in flight")  # in a repair
WRITTEN = "written "  # what a note of the simulator begins with, of the elements of an array
PROPOSED = ": cp.async.wait_group"  # what a note of the simulator goes on with, of the wait alone
# Findings whose line may be another than the one at fault.
REPAIRED = (Kind.LAUNCH_FAILED, Kind.OUT_OF_BOUNDS, Kind.MISALIGNED, Kind.UNINITIALISED, Kind.RACE, Kind.DEADLOCK)


@dataclass
class _Search:
    """The state of one check: every shape is tried once, and its verdict remembered.

    ``instructions`` are warp instructions of all calls, where the device counts them; ``work`` is that of all cases and
    of their calls.
    """

    kata: Kata
    spec: Spec
    sandbox: Sandbox
    budget: SearchBudget
    explain: Explain | None = None
    compiler: Compiler | None = None
    tried: dict[CaseKey, Verdict] = field(default_factory=dict)
    instructions: int = 0
    work: int = 0
    asked_card: bool = False  # the launcher asks what card it is on, and may keep the answer
    card: Card | None = None  # of the last call
    covered: list[KernelCoverage] = field(default_factory=list)  # of processes that are gone
    alone: bool = False  # every shape gets a process of its own
    kept: tuple[Clue, ...] = ()  # that the file keeps something between calls

    def verdict(self, shape: CaseKey) -> Verdict:
        if shape not in self.tried:
            self.work += self.spec.work(dict(shape.sizes))
            if self.alone:
                self.sandbox.close()
            self.tried[shape] = try_shape(self, shape)
        return self.tried[shape]

    def call(self, call: Call) -> Outcome:
        if self.asked_card and call.card != self.card:
            self.covered += self.coverage()
            self.sandbox.close()  # what a launcher keeps of one card is wrong on another
        self.card = call.card
        outcome = self.sandbox.call(call)
        self.asked_card |= outcome.asked_card
        self.instructions += outcome.executed
        self.work += FINDING_WORK if outcome.findings else outcome.executed
        return outcome

    def coverage(self) -> tuple[KernelCoverage, ...]:
        """What all calls in this process reached. One more call asks for it, the least that passed on this card."""
        passed = [shape for shape, each in self.tried.items() if each.passed and shape.card == self.card]
        if not passed:
            return ()
        least = Case(self.kata, self.spec, min(passed, key=lambda shape: self.spec.work(dict(shape.sizes))))
        return self.sandbox.call(replace(least.call(nth=0, limits=self.budget.limits), coverage=True)).coverage


def check(
    kata: Kata,
    spec: Spec,
    sandbox: Sandbox,
    budget: SearchBudget,
    last_failure: Path | None = None,
    explain: Explain | None = None,
    compiler: Compiler | None = None,
) -> Verdict:
    """Try shapes until one fails, then the smallest that fails alike; a pass says how many were tried.

    ``last_failure`` is the file in which the shape that failed is kept, to be tried first the next time. ``explain``
    runs a case on the simulator, where the sandbox's device does not see why two calls gave different bits.
    ``compiler`` makes PTX that is close to the file's source.
    Raises SandboxError where the device cannot be used.
    """
    search = _Search(kata, spec, sandbox, budget, explain, compiler)
    failed = _remembered(search, last_failure) or _first_failing_named(search) or _drawn(search)
    if failed is None:
        if last_failure is not None:
            with contextlib.suppress(OSError):
                last_failure.unlink()
        return _passed(search)
    if not budget.smallest:
        return replace(search.tried[failed], cases=len(search.tried))
    failed = _on_full_card(search, failed)
    smallest = _shrink(search, failed)
    if smallest != failed and search.tried[smallest].kind is Kind.WRONG_ANSWER:
        smallest = _by_itself(search, failed, smallest)
    _remember(smallest, last_failure)
    verdict = search.tried[smallest]
    if budget.diagnose:
        verdict = _diagnosed(search, smallest, verdict)
    if budget.watch and verdict.kind is Kind.WRONG_ANSWER:
        verdict = _with_writers(search, replace(smallest, values=verdict.values or smallest.values), verdict)
    alike = [each.error_share for each in search.tried.values() if each.kind is verdict.kind]
    return replace(verdict, cases=len(search.tried), error_share=max(alike))


def prepare(kata: Kata, spec: Spec, budget: SearchBudget, go_on: Callable[[], bool]) -> None:
    """Work out the answers of the shapes that ``check`` will try first, as long as it should go on: for a thread that
    nvcc leaves room."""
    _first_failing_named(_Ahead(kata, spec, Sandbox("gpu"), budget, go_on=go_on))


def prepare_drawn(kata: Kata, spec: Spec, budget: SearchBudget, go_on: Callable[[], bool]) -> None:
    """The same of the shapes that it will draw if all are right."""
    _drawn(_Ahead(kata, spec, Sandbox("gpu"), budget, go_on=go_on))


@dataclass
class _Ahead(_Search):
    """A search that calls nothing and finds nothing, until it should not go on."""

    go_on: Callable[[], bool] = bool

    def verdict(self, shape: CaseKey) -> Verdict:
        if not self.go_on():
            return Verdict(Kind.INCONCLUSIVE, "no more time")
        assert Case(self.kata, self.spec, shape).expected
        return Verdict(Kind.PASS, "")


def rehearse() -> None:
    """A search that finds nothing: hypothesis imports and makes for its first one what takes a tenth of a second."""
    import hypothesis
    from hypothesis import strategies as st

    _draw_no_constants()
    _register_random()
    drawn = st.tuples(st.integers(1, 80).map(abs), st.sampled_from("ab")).filter(bool)
    with contextlib.suppress(hypothesis.errors.NoSuchExample):
        hypothesis.find(drawn, lambda _: False, settings=_settings(2, ("generate",)), random=Random(0))


def _passed(search: _Search) -> Verdict:
    """The verdict on a file whose answers were right in all cases."""
    return Verdict(
        Kind.PASS,
        f"right on {len(search.tried)} cases",
        cases=len(search.tried),
        error_share=max((verdict.error_share for verdict in search.tried.values()), default=0.0),
        printed=search.sandbox.printed,
        left_out=_left_out(search),
        remark=next((verdict.remark for verdict in search.tried.values() if verdict.remark), ""),
        coverage=_coverage(search) if search.budget.small_cards else None,
    )


def _remembered(search: _Search, last_failure: Path | None) -> CaseKey | None:
    """The shape that failed in an earlier grade, if it still means something and still fails."""
    if last_failure is None:
        return None
    try:
        kept = json.loads(last_failure.read_text())
        sizes = tuple((str(name), int(size)) for name, size in kept["sizes"])
        card = Card(*map(int, kept["card"])) if kept.get("card") else None
        shape = CaseKey(sizes, kept["values"], int(kept["seed"]), card)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    spec, wanted = search.spec, dict(shape.sizes)
    known = list(wanted) == list(spec.sizes) and shape.values in [values.name for values in spec.values]
    if not known or not allowed(search.kata, wanted) or (card is not None and not search.budget.small_cards):
        return None
    if spec.work(wanted) > search.budget.work_limit and wanted not in spec.named_sizes:
        return None
    return None if search.verdict(shape).passed else shape


def _remember(shape: CaseKey, last_failure: Path | None) -> None:
    """Keep the shape. It is a convenience: where it cannot be written, nothing is lost."""
    if last_failure is None:
        return
    with contextlib.suppress(OSError):
        last_failure.parent.mkdir(parents=True, exist_ok=True)
        card = astuple(shape.card) if shape.card else None
        kept = {"sizes": shape.sizes, "values": shape.values, "seed": shape.seed, "card": card}
        write_whole(last_failure, json.dumps(kept))


def _first_failing_named(search: _Search) -> CaseKey | None:
    return next((shape for shape in _on_cards(search) if not search.verdict(shape).passed), None)


def _coverage(search: _Search) -> Coverage:
    text = search.sandbox.program.source.read_text(encoding="utf-8", errors="replace")
    return joined([*search.covered, *search.coverage()], text)


def _on_cards(search: _Search) -> Iterator[CaseKey]:
    """The named keys, some of them on a small card, where one is available.

    There grids are larger than the card, and loops over what is left go round on small shapes. Only of a launcher that
    asks what card it is on all are tried on either.
    """
    spec, budget = search.spec, search.budget
    keys = list(_named_keys(search))
    if not budget.small_cards:
        yield from keys
        return
    tried = set()
    for place, key in enumerate(keys):
        is_turn = (len(keys) - place) % SMALL_CARD_EVERY == 1 or search.asked_card
        if is_turn and spec.work(dict(key.sizes)) <= budget.work_limit:
            # The largest shapes are for the smallest card. Each change of the card costs such a launcher's process.
            left = (len(keys) - place) * SMALL_CARDS // (len(keys) + 1)
            key = replace(key, card=_small_card(search, left if search.asked_card else place // SMALL_CARD_EVERY))
        tried.add(key)
        yield key
    if search.asked_card:
        yield from (key for key in keys if key not in tried)


def _on_full_card(search: _Search, failed: CaseKey) -> CaseKey:
    """The same case on the full card, where it fails there in the same way: then the small one is not what matters."""
    on_full, verdict = replace(failed, card=None), search.tried[failed]
    if failed.card is None or _costs_a_process(verdict):
        return failed
    return on_full if search.verdict(on_full).kind is verdict.kind else failed


def _small_card(search: _Search, number: int) -> Card:
    """Two or three multiprocessors with one block or two."""
    number += search.budget.seed
    return Card(2 + number % 2, 1 + number // 2 % 2, search.spec.small_shared)


def _named_keys(search: _Search) -> Iterator[CaseKey]:
    """Named shapes, smallest first, the kinds of values taking turns. The first and the last within the limit of work
    get them all; the first is one that has elements.

    Large shapes whose sums are longer than those of all others also get every kind whose answer must be exact: among
    thousands of terms no tolerance sees one missing.
    """
    spec, kata, budget = search.spec, search.kata, search.budget
    small = _named(search)[: budget.named_sizes]
    whole = next((sizes for sizes in reversed(small) if spec.work(sizes) <= budget.work_limit), None)
    first = next((sizes for sizes in small if all(sizes.values())), None)
    if budget.shuffled and small:
        last = small[-1] if whole is None else whole
        rest = [sizes for sizes in small if sizes is not last]
        small = [*Random(f"{kata.name} {budget.seed}").sample(rest, len(rest)), last]
    large = [sizes for sizes in spec.large if allowed(kata, sizes)][: budget.large]
    kinds = [values.name for values in spec.values]
    exact = [values.name for values in spec.values if values.exact]
    longest = max((_terms(spec, sizes) for sizes in small), default=0)
    for place, sizes in enumerate([*small, *large]):
        turn = [kinds[place % len(kinds)]]
        if place >= len(small):
            turn += exact if _terms(spec, sizes) > longest else []
        elif spec.work(sizes) > budget.work_limit:
            turn = exact[:1] or turn
        chosen = dict.fromkeys([*turn, *kinds] if sizes is whole or sizes is first else turn)
        for kind in chosen:
            yield CaseKey.of(spec, sizes, kind, budget.seed * 1000 + place)


def _terms(spec: Spec, sizes: Sizes) -> float:
    """The number of terms of an answer's longest sum; of elements where the spec does not say."""
    if isinstance(spec.tolerance, Accumulated):
        return spec.tolerance.terms(sizes)
    return max((tensor.elements(sizes) for tensor in spec.inputs), default=0)


def _named(search: _Search) -> list[Sizes]:
    """The shapes that the spec names, as far as the kata may be called with them."""
    return [sizes for sizes in search.spec.named_sizes if allowed(search.kata, sizes)]


def _left_out(search: _Search) -> str:
    """Which of the named shapes were not tried, and why; empty where all were."""
    named = _named(search)
    left = named[search.budget.named_sizes :] if search.budget.named_sizes is not None else []
    if not left:
        return ""
    return f"{len(left)} of {len(named)} named shapes, from {format_sizes(left[0])} on, left to the GPU"


def _drawn(search: _Search) -> CaseKey | None:
    strategy = shapes(search.kata, search.spec, work_limit=search.budget.work_limit)
    return _find(search, strategy, None, examples=search.budget.examples, phases=("generate",))


def _shrink(search: _Search, failed: CaseKey) -> CaseKey:
    """The smallest shape up to ``failed`` that fails in the same way; ``failed`` itself where none is found."""
    verdict = search.tried[failed]
    if _costs_a_process(verdict):
        return failed  # the named shapes came smallest first; every step would be slow for little
    strategy = shapes(
        search.kata,
        search.spec,
        most=dict(failed.sizes),
        values=failed.values,
        card=failed.card,
        work_limit=search.budget.work_limit,
    )
    examples = 3 * search.budget.examples
    smaller = _find(search, strategy, verdict.kind, examples=examples, phases=("generate", "shrink"))
    if smaller is None or _weight(search, smaller) > _weight(search, failed):
        smaller = failed
    return _descended(search, smaller, verdict.kind)


def _by_itself(search: _Search, failed: CaseKey, smallest: CaseKey) -> CaseKey:
    """The smallest case, where it fails in a process of its own, too. Where it fails only after a call with the case
    that failed first: the smallest that was found to fail by itself, beside a clue that says so."""
    if not search.budget.watch:  # on a GPU, two calls may differ by chance
        return smallest
    process = Process(search.call, search.sandbox.close, search.budget.limits)
    small, first = (Case(search.kata, search.spec, key) for key in (smallest, failed))

    def by_itself(case: Case) -> bool:
        process.restart()
        return process.fails(case) or process.fails(case)

    try:
        if by_itself(small) or not by_itself(first):
            return smallest
        alone = replace(search, tried={}, alone=True)
        if alone.verdict(failed).kind is not Kind.WRONG_ANSWER:
            return smallest
        found = _descended(alone, failed, Kind.WRONG_ANSWER, ALONE)
        search.tried |= {key: each for key, each in alone.tried.items() if key == found}
        search.kept = after(process, Case(search.kata, search.spec, found), small)
        return found
    finally:
        process.restart()


def _descended(search: _Search, failed: CaseKey, kind: Kind, tries: int = DESCENTS) -> CaseKey:
    """The case after small steps down, one size at a time, as long as it fails: what was drawn need not be minimal."""
    stop = search.work + search.budget.shrink_work // 8
    while tries > 0 and search.work < stop:
        for key in _below(search, failed):
            tries -= key not in search.tried
            if tries < 0 or search.work > stop:
                return failed
            if search.verdict(key).kind is kind:
                failed = key
                break
        else:
            break
    return failed


def _below(search: _Search, failed: CaseKey) -> Iterator[CaseKey]:
    """The case with one of its sizes halved, or a few steps smaller."""
    sizes = dict(failed.sizes)
    for name, size in sizes.items():
        step = search.kata.multiples.get(name, 1)
        for less in (size // 2 // step * step, *(size - away * step for away in STEPS_DOWN)):
            if search.spec.sizes[name].min <= less < size:
                yield replace(failed, sizes=tuple({**sizes, name: less}.items()))


def _costs_a_process(verdict: Verdict) -> bool:
    """Whether finding this out again means waiting for a limit or starting a new child."""
    lost = verdict.kind is Kind.CRASH and verdict.finding is not None and verdict.finding.kernel is None
    return lost or verdict.kind is Kind.TIME_OUT


def _weight(search: _Search, shape: CaseKey) -> tuple[int, int]:
    sizes = dict(shape.sizes)
    return search.spec.work(sizes), sum(sizes.values())


def _find(
    search: _Search,
    strategy: SearchStrategy[CaseKey],
    kind: Kind | None,
    *,
    examples: int,
    phases: tuple[str, ...],
) -> CaseKey | None:
    """The smallest shape of the strategy that fails (with ``kind``, where one is given), or None."""
    import hypothesis
    from hypothesis.internal.conjecture import engine

    engine.MAX_SHRINKING_SECONDS = 1 << 62  # it is work that ends the search
    _draw_no_constants()
    _register_random()
    stop = search.work + search.budget.shrink_work
    failing: list[CaseKey] = []

    def fails(shape: CaseKey) -> bool:
        if shape not in search.tried and failing and search.work > stop:
            return False
        verdict = search.verdict(shape)
        bad = not verdict.passed and kind in (None, verdict.kind)
        if bad:
            failing.append(shape)
        return bad

    random = Random(f"{search.kata.name} {search.budget.seed}")
    try:
        return hypothesis.find(strategy, fails, settings=_settings(examples, phases), random=random)
    except hypothesis.errors.NoSuchExample:
        return None
    except hypothesis.errors.Flaky:
        return min(failing, key=lambda shape: _weight(search, shape)) if failing else None


_OF_THREAD = threading.local()


def _register_random() -> None:
    """hypothesis makes a random of each thread's own, and first searches all there is for garbage: here, for none."""
    if hasattr(_OF_THREAD, "has_random"):
        return
    _OF_THREAD.has_random = True
    from hypothesis.internal.entropy import deterministic_PRNG

    if aside := not gc.get_freeze_count():
        gc.freeze()
    with deterministic_PRNG():
        pass
    if aside:
        gc.unfreeze()


def _settings(examples: int, phases: tuple[str, ...]) -> hypothesis.settings:
    import hypothesis

    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,  # it would not replay what a seeded search found: see _remember
        phases=[hypothesis.Phase[name] for name in phases],
    )


@functools.cache
def _draw_no_constants() -> None:
    """What is drawn follows from the seed alone. By itself, hypothesis also draws constants of the modules that happen
    to be imported: other shapes in `kata grade` than among tests, and others after each change of the grader."""
    with contextlib.suppress(ImportError):  # versions before that have no such module
        from hypothesis.internal.conjecture import providers
        from hypothesis.internal.constants_ast import Constants

        providers._get_local_constants = Constants


def count(kata: Kata, spec: Spec, sandbox: Sandbox, budget: SearchBudget) -> CaseCounters | None:
    """What the kernels of one call on the largest named shape cost.

    None where the device does not count or nothing was launched. Buffers begin where cudaMalloc would put them, not in
    the middle of a sector as they may in a check: what is counted is the learner's.
    """
    if (largest := largest_within(kata, spec, budget.work_limit)) is None:
        return None
    shape = CaseKey.of(spec, largest, spec.values[0].name, budget.seed)
    case = Case(kata, spec, shape)
    call = case.call(nth=0, limits=replace(budget.limits, instructions=budget.limits.instructions * 4))
    aligned = tuple(replace(buffer, offset_bytes=0) for buffer in call.buffers)
    call = replace(call, buffers=aligned, counters=True)
    outcome = sandbox.call(call)
    counters = outcome.counters
    return CaseCounters(case.sizes, counters, outcome.launched) if counters and counters.kernels else None


# -- one case --------------------------------------------------------------------------------------------------------


def try_shape(search: _Search, shape: CaseKey) -> Verdict:
    """Call the launcher on one case, on the same contents again where that is not too much work, and judge each."""
    case = Case(search.kata, search.spec, shape)
    before: Outcome | None = None
    share, remark = 0.0, ""
    for nth in range(CALLS if search.spec.work(case.sizes) <= search.budget.work_limit else 1):
        outcome = search.call(case.call(nth=nth, limits=search.budget.limits))
        has_other_bits = before is not None and outcome.outputs != before.outputs
        if before is None or outcome.findings or has_other_bits:
            verdict = judge(case, outcome)
        if verdict.passed and search.instructions > search.budget.instructions:
            verdict = _too_long(case, search)
        if not verdict.passed:
            return replace(verdict, printed=search.sandbox.printed)
        if before is not None and search.spec.deterministic and has_other_bits:
            verdict = replace(other_bits(case, (before, outcome), search.explain), error_share=verdict.error_share)
            if not verdict.passed:
                return replace(verdict, printed=search.sandbox.printed)
            remark = verdict.remark
        before, share = outcome, max(share, verdict.error_share)
    return Verdict(Kind.PASS, "right", error_share=share, remark=remark)


def _too_long(case: Case, search: _Search) -> Verdict:
    tried = f"{len(search.tried) + 1} cases" if search.tried else "the first case"
    most = f"{search.budget.instructions // 1_000_000} million warp instructions"
    return verdict_at(case, Kind.TIME_OUT, f"the calls of {tried} together executed more than {most}")


def judge(case: Case, outcome: Outcome, answer: Sequence[Expected] | None = None) -> Verdict:
    """The verdict on one call: what the device found, else the outputs against ``answer``, by default the case's."""
    launched = outcome.launched if outcome.counters is not None else None
    if outcome.findings:
        return replace(from_finding(case, outcome.findings[0]), launched=launched)
    expected = in_order(case.spec, case.expected if answer is None else answer)
    comparisons = [compare(outcome.outputs[item.tensor.name], item) for item in expected]
    share = max((comparison.error_share for comparison in comparisons), default=0.0)
    bad = next((comparison for comparison in comparisons if comparison.wrong), None)
    if bad is None:
        return Verdict(Kind.PASS, "right", error_share=share)
    verdict = replace(_wrong_answer(case, bad), error_share=share, launched=launched)
    if launched == () and all(mismatch.got is None for mismatch in bad.mismatches):
        why = "the launcher launches no kernel, and neither memset nor copy writes what is wrong"
        return replace(verdict, summary=f"{verdict.summary}: {why}")
    return verdict


def _diagnosed(search: _Search, shape: CaseKey, verdict: Verdict) -> Verdict:
    """The verdict with what further calls show: of a wrong answer; of a finding in a later kernel what came before."""
    finding, kernels = verdict.finding, {item.kernel for item in verdict.launched or ()}
    if finding is not None:
        notes = [*(Clue("mbarrier", note) for note in finding.phases), *map(_noted, finding.notes)]
        indices = _indices(search, shape, finding, verdict.launched or ())
        verdict = replace(verdict, clues=(*notes, *_choice(search, shape, finding), *indices))
    if not _costs_a_process(verdict) and (kept := search.kept or _of_calls(search, shape)):
        return replace(verdict, clues=sorted_clues([*kept, *verdict.clues]))
    lab = Lab(search.kata, search.spec, search.call, search.budget.limits, steady=search.budget.watch)
    for key, known in search.tried.items():
        if known.passed or known.kind is Kind.WRONG_ANSWER:
            lab.known[key] = not known.passed
    if verdict.kind is not Kind.WRONG_ANSWER and (finding is None or finding.kernel is None or len(kernels) < 2):
        return _repaired(search, lab, shape, verdict)
    if finding is not None:
        if not _costs_a_process(verdict):
            verdict = replace(verdict, clues=sorted_clues([*verdict.clues, *earlier(lab, shape, finding)]))
        return _repaired(search, lab, shape, verdict)
    richest, clues = diagnose(lab, shape)
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
    found = [*clues, *of_unset(program)]
    if not any(clue.about in ("formula", "unset") for clue in found):
        found += repair(lab, richest, program, search.compiler)
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


def _repaired(search: _Search, lab: Lab, shape: CaseKey, verdict: Verdict) -> Verdict:
    """The verdict of a finding, with the line where a small change takes it away."""
    if verdict.kind not in REPAIRED or _costs_a_process(verdict):
        return verdict
    lab.known |= {key: True for key, known in search.tried.items() if known.kind is verdict.kind}
    clues = [*repair(lab, shape, search.sandbox.program, search.compiler, verdict.kind, verdict.finding)]
    return replace(verdict, clues=sorted_clues([*clues, *(without_refuted(clues, clue) for clue in verdict.clues)]))


def without_refuted(repairs: Sequence[Clue], note: Clue) -> Clue:
    """A note on copies, without the wait that it proposes if that does not make all right, or another does."""
    left = {number for clue in repairs for number in _IN_FLIGHT.findall(clue.text)}
    words, _, proposed = note.text.partition(PROPOSED)
    return note if proposed.split()[:1] and proposed.split()[0] in left else replace(note, text=words)


def _of_calls(search: _Search, failed: CaseKey) -> tuple[Clue, ...]:
    """Whether the case fails because of calls before it. If so, other experiments would only show what these left."""
    if not search.budget.watch:  # on a GPU, two calls may differ by chance
        return ()
    others = [key for key in search.tried if key.sizes != failed.sizes and key.card == failed.card]
    most = sorted(others, key=lambda key: -search.spec.work(dict(key.sizes)))[:1]
    last = [key for key in others if key not in most][-1:]
    process = Process(search.call, search.sandbox.close, search.budget.limits)
    cases = (Case(search.kata, search.spec, key) for key in (*most, *last))
    return of_calls(process, Case(search.kata, search.spec, failed), cases)


def _indices(search: _Search, shape: CaseKey, finding: Finding, launched: Sequence[Launched]) -> list[Clue]:
    """What the variables on the finding's line are; nothing where the file cannot be read as it is expected."""
    text = search.sandbox.program.source.read_text(encoding="utf-8", errors="replace")
    call = Case(search.kata, search.spec, shape).call(nth=0, limits=search.budget.limits)
    try:
        found = of_finding(text, finding, launched, call) or of_launch(text, finding, launched, call)
        return found or of_shared(text, finding, launched)
    except RecursionError:
        return []


def _choice(search: _Search, shape: CaseKey, finding: Finding) -> list[Clue]:
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


def _with_writers(search: _Search, shape: CaseKey, verdict: Verdict) -> Verdict:
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


def _wrong_answer(case: Case, bad: Comparison) -> Verdict:
    name = bad.mismatches[0].buffer
    summary = f"{bad.wrong} of {bad.count} elements of {name} are wrong" if bad.count > 1 else f"{name} is wrong"
    verdict = verdict_at(case, Kind.WRONG_ANSWER, summary)
    mismatches = tuple(replace(item, inputs=beside(case, item)) for item in bad.mismatches)
    return replace(verdict, mismatches=mismatches, wrong_count=bad.wrong, element_count=bad.count, pattern=bad.pattern)


def from_finding(case: Case, finding: Finding) -> Verdict:
    """A finding as a verdict. A line of another file than the learner's is named in the sentence."""
    file = Path(finding.file).name if finding.file else SOURCE
    summary = finding.message if file == SOURCE else f"{finding.message} ({file}:{finding.line})"
    line = finding.line if file == SOURCE else None
    return replace(verdict_at(case, Kind(finding.kind), summary), finding=finding, line=line)


def other_bits(case: Case, calls: Sequence[Outcome], explain: Explain | None) -> Verdict:
    """The verdict on two calls that agree with the reference and not with each other.

    Atomics take threads in any order, and float additions round: that is right, and not repeatable. The simulator knows
    which stores were atomic, and finds those that race; a device that does not is ``calls`` without counters.
    """
    order = next((call.order for call in calls if call.order), None)
    if order is None and any(call.counters is None for call in calls):
        simulated = explain(case.shape) if explain is not None else None
        if simulated is None:
            return _not_repeatable(case, "the cause is not known: the simulator cannot run this file", None)
        if simulated.findings:
            return from_finding(case, simulated.findings[0])
        order = simulated.order
    if order is not None:
        return _not_repeatable(case, f"the atomics on line {order.line} take threads in any order", order.line)
    return verdict_at(
        case, Kind.RACE, "two calls on the same input gave different bits: threads depend on each other's order"
    )


def _not_repeatable(case: Case, why: str, line: int | None) -> Verdict:
    """A pass with a remark, or a verdict of its own kind where the kata asks for the same bits."""
    if case.spec.repeatable:
        words = f"two calls on the same input gave different bits, and this kata asks for the same: {why}"
        return replace(verdict_at(case, Kind.NOT_REPEATABLE, words), line=line)
    return Verdict(Kind.PASS, "right", remark=f"right, but not repeatable: {why}")


def verdict_at(case: Case, kind: Kind, summary: str) -> Verdict:
    """A verdict that says on which case."""
    card = str(case.shape.card) if case.shape.card else None
    return Verdict(kind, summary, sizes=case.sizes, values=case.shape.values, card=card)
