"""Case + Outcome -> Verdict: what one call, or two calls on the same contents, say of the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from grader.compile.nvcc_log import SOURCE
from grader.devices import Finding, Outcome
from grader.judge.case import Case, CaseKey, Expected
from grader.judge.comparison import Comparison, compare
from grader.judge.lab import beside, in_order
from grader.verdict import Kind, Verdict

Explain = Callable[[CaseKey], Outcome | None]  # the simulator's outcome; None: it cannot run the file


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
