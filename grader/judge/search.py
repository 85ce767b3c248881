"""Kata + Sandbox -> the smallest case that fails.

First the shapes that the spec names, smallest first, then shapes that hypothesis draws. A case that fails is made as
small as hypothesis can make it while the kind of failure stays the same.

What is tried, and when to stop, is a matter of shapes, of work and of instructions, never of a clock: a busy machine
tries the same as an idle one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from grader.content.catalog import Kata
from grader.content.spec import Accumulated, Sizes, Spec
from grader.devices import INSTRUCTIONS, Call, Card, Limits, Outcome
from grader.devices.counters import KernelCoverage
from grader.judge.case import Case, CaseKey, allowed, shapes
from grader.judge.kept import Process, after
from grader.judge.verdicts import Explain, judge, other_bits, verdict_at
from grader.sandbox.parent import Program, Sandbox
from grader.verdict import Clue, Kind, Verdict

if TYPE_CHECKING:
    import hypothesis
    from hypothesis.strategies import SearchStrategy

    from grader.compile.edit_writer import Edit

CALLS = 2  # of the same contents, to compare bits
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


@dataclass(frozen=True)
class Compiler:
    """What nvcc makes of the file once more, in a folder to write to; None where it makes nothing."""

    source_like: Callable[[Path], Path | None]  # PTX close to its source
    # With edits of lines, the least doubted first, and these.
    edited: Callable[[Path, Collection[int], Mapping[int, float]], tuple[Path, Sequence[Edit]] | None]
    solved: Callable[[Path], tuple[Path, Sequence[Edit]] | None]  # with what the kata's solution has in other ways
    built: Callable[[str], Program | None]  # another text in the place of the file
    solved_ahead: Future[tuple[Path, Sequence[Edit]] | None] | None = None  # the same as `solved`, where it has begun


@dataclass
class Search:
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


@dataclass
class SearchAhead(Search):
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


def first_failing_named(search: Search) -> CaseKey | None:
    return next((shape for shape in _on_cards(search) if not search.verdict(shape).passed), None)


def _on_cards(search: Search) -> Iterator[CaseKey]:
    """The named keys, some of them on a small card, where one is available.

    There grids are larger than the card, and loops over what is left go round on small shapes. Only of a launcher that
    asks what card it is on all are tried on either.
    """
    spec, budget = search.spec, search.budget
    keys = list(named_keys(search))
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


def on_full_card(search: Search, failed: CaseKey) -> CaseKey:
    """The same case on the full card, where it fails there in the same way: then the small one is not what matters."""
    on_full, verdict = replace(failed, card=None), search.tried[failed]
    if failed.card is None or costs_a_process(verdict):
        return failed
    return on_full if search.verdict(on_full).kind is verdict.kind else failed


def _small_card(search: Search, number: int) -> Card:
    """Two or three multiprocessors with one block or two."""
    number += search.budget.seed
    return Card(2 + number % 2, 1 + number // 2 % 2, search.spec.small_shared)


def named_keys(search: Search) -> Iterator[CaseKey]:
    """Named shapes, smallest first, the kinds of values taking turns. The first and the last within the limit of work
    get them all; the first is one that has elements.

    Large shapes whose sums are longer than those of all others also get every kind whose answer must be exact: among
    thousands of terms no tolerance sees one missing.
    """
    spec, kata, budget = search.spec, search.kata, search.budget
    small = sizes_named(search)[: budget.named_sizes]
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


def sizes_named(search: Search) -> list[Sizes]:
    """The shapes that the spec names, as far as the kata may be called with them."""
    return [sizes for sizes in search.spec.named_sizes if allowed(search.kata, sizes)]


def drawn(search: Search) -> CaseKey | None:
    strategy = shapes(search.kata, search.spec, work_limit=search.budget.work_limit)
    return _find(search, strategy, None, examples=search.budget.examples, phases=("generate",))


def shrink(search: Search, failed: CaseKey) -> CaseKey:
    """The smallest shape up to ``failed`` that fails in the same way; ``failed`` itself where none is found."""
    verdict = search.tried[failed]
    if costs_a_process(verdict):
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


def by_itself(search: Search, failed: CaseKey, smallest: CaseKey) -> CaseKey:
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


def _descended(search: Search, failed: CaseKey, kind: Kind, tries: int = DESCENTS) -> CaseKey:
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


def _below(search: Search, failed: CaseKey) -> Iterator[CaseKey]:
    """The case with one of its sizes halved, or a few steps smaller."""
    sizes = dict(failed.sizes)
    for name, size in sizes.items():
        step = search.kata.multiples.get(name, 1)
        for less in (size // 2 // step * step, *(size - away * step for away in STEPS_DOWN)):
            if search.spec.sizes[name].min <= less < size:
                yield replace(failed, sizes=tuple({**sizes, name: less}.items()))


def costs_a_process(verdict: Verdict) -> bool:
    """Whether finding this out again means waiting for a limit or starting a new child."""
    lost = verdict.kind is Kind.CRASH and verdict.finding is not None and verdict.finding.kernel is None
    return lost or verdict.kind is Kind.TIME_OUT


def _weight(search: Search, shape: CaseKey) -> tuple[int, int]:
    sizes = dict(shape.sizes)
    return search.spec.work(sizes), sum(sizes.values())


def _find(
    search: Search,
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


def try_shape(search: Search, shape: CaseKey) -> Verdict:
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


def _too_long(case: Case, search: Search) -> Verdict:
    tried = f"{len(search.tried) + 1} cases" if search.tried else "the first case"
    most = f"{search.budget.instructions // 1_000_000} million warp instructions"
    return verdict_at(case, Kind.TIME_OUT, f"the calls of {tried} together executed more than {most}")
