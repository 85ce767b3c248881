"""Kata + Sandbox -> Verdict: is the answer right, on every shape that is tried?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import astuple, replace
from pathlib import Path

from grader.content.catalog import Kata
from grader.content.spec import Spec
from grader.devices import Card
from grader.judge.case import Case, CaseKey, allowed, largest_within
from grader.judge.coverage import joined
from grader.judge.search import (
    Compiler,
    Search,
    SearchAhead,
    SearchBudget,
    by_itself,
    drawn,
    first_failing_named,
    on_full_card,
    shrink,
    sizes_named,
)
from grader.judge.verdicts import Explain
from grader.sandbox.parent import Sandbox
from grader.storage.whole_file import write_whole
from grader.verdict import CaseCounters, Coverage, Kind, Verdict, format_sizes


def check(
    kata: Kata,
    spec: Spec,
    sandbox: Sandbox,
    budget: SearchBudget,
    last_failure: Path | None = None,
    explain: Explain | None = None,
    compiler: Compiler | None = None,
    on_failure: Callable[[Verdict], None] | None = None,
) -> Verdict:
    """Try shapes until one fails, then the smallest that fails alike; a pass says how many were tried.

    ``last_failure`` is the file in which the shape that failed is kept, to be tried first the next time. ``explain``
    runs a case on the simulator, where the sandbox's device does not see why two calls gave different bits.
    ``compiler`` makes PTX that is close to the file's source. ``on_failure`` gets the verdict before its cause is
    looked for, which takes longer than all before it.
    Raises SandboxError where the device cannot be used.
    """
    search = Search(kata, spec, sandbox, budget, explain, compiler)
    failed = _remembered(search, last_failure) or first_failing_named(search) or drawn(search)
    if failed is None:
        if last_failure is not None:
            with contextlib.suppress(OSError):
                last_failure.unlink()
        return _passed(search)
    if not budget.smallest:
        return replace(search.tried[failed], cases=len(search.tried))
    with _ahead(search, search.tried[failed].kind):
        failed = on_full_card(search, failed)
        smallest = shrink(search, failed)
        if smallest != failed and search.tried[smallest].kind is Kind.WRONG_ANSWER:
            smallest = by_itself(search, failed, smallest)
        _remember(smallest, last_failure)
        verdict = _looked_into(search, smallest, on_failure)
    shares = [each.error_share for each in search.tried.values() if each.kind is verdict.kind]
    return replace(verdict, cases=len(search.tried), error_share=max(shares))


def _ahead(search: Search, kind: Kind) -> AbstractContextManager[None]:
    if not search.budget.diagnose:
        return contextlib.nullcontext()
    from grader.judge.cause import solved_ahead

    return solved_ahead(search, kind)


def _looked_into(search: Search, smallest: CaseKey, on_failure: Callable[[Verdict], None] | None) -> Verdict:
    """The verdict on the smallest case that fails, with its cause and who wrote the wrong elements."""
    from grader.judge.cause import with_cause, with_writers

    verdict, budget = search.tried[smallest], search.budget
    if budget.diagnose:
        if on_failure is not None:
            on_failure(verdict)
        verdict = with_cause(search, smallest, verdict)
    if budget.watch and verdict.kind is Kind.WRONG_ANSWER:
        verdict = with_writers(search, replace(smallest, values=verdict.values or smallest.values), verdict)
    return verdict


def prepare(kata: Kata, spec: Spec, budget: SearchBudget, go_on: Callable[[], bool]) -> None:
    """Work out the answers of the shapes that ``check`` will try first, as long as it should go on: for a thread that
    nvcc leaves room."""
    first_failing_named(SearchAhead(kata, spec, Sandbox("gpu"), budget, go_on=go_on))


def prepare_drawn(kata: Kata, spec: Spec, budget: SearchBudget, go_on: Callable[[], bool]) -> None:
    """The same of the shapes that it will draw if all are right."""
    drawn(SearchAhead(kata, spec, Sandbox("gpu"), budget, go_on=go_on))


def _passed(search: Search) -> Verdict:
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


def _remembered(search: Search, last_failure: Path | None) -> CaseKey | None:
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


def _coverage(search: Search) -> Coverage:
    text = search.sandbox.program.source.read_text(encoding="utf-8", errors="replace")
    return joined([*search.covered, *search.coverage()], text)


def _left_out(search: Search) -> str:
    """Which of the named shapes were not tried, and why; empty where all were."""
    named = sizes_named(search)
    left = named[search.budget.named_sizes :] if search.budget.named_sizes is not None else []
    if not left:
        return ""
    return f"{len(left)} of {len(named)} named shapes, from {format_sizes(left[0])} on, left to the GPU"


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
