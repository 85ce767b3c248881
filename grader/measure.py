"""Kata + Sandbox -> Measurement: how fast, as a ratio to a baseline that runs in turn with it. Needs a GPU.

The figure is the median over pairs of t_baseline / t_launcher. Its interval comes from order statistics, so it assumes
nothing of how times are spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from statistics import median

from grader.case import Case, Shape
from grader.catalog import Kata
from grader.check import judge
from grader.devices import Contest
from grader.sandbox import Sandbox
from grader.spec import Spec
from grader.verdict import Kind, Measurement, Verdict

TIME_LIMIT_S = 60.0

# Pairs -> the ranks, counted from 1, between which the median of the population lies with at least 95 % probability
# (sign test: the sum of the binomial tails below the rank is under 2.5 % on each side).
RANKS: Mapping[int, tuple[int, int]] = {21: (6, 16), 31: (10, 22), 51: (19, 33), 101: (41, 61)}


def measure(kata: Kata, spec: Spec, sandbox: Sandbox, *, pairs: int) -> Verdict:
    """A pass with a measurement of each shape of the kata's ``speed``, or what went wrong while it was timed."""
    assert kata.speed is not None
    measurements: list[Measurement] = []
    for sizes in kata.speed.shapes:
        case = Case(kata, spec, Shape(tuple((name, sizes[name]) for name in spec.sizes), spec.values[0].name, 1))
        contest = Contest(kata.speed.baseline, moved(kata, spec, sizes), pairs)
        outcome = sandbox.call(replace(case.call(nth=0, time_limit_s=TIME_LIMIT_S), race=contest))
        verdict = judge(case, outcome)
        if not verdict.passed:
            return replace(verdict, summary=f"{verdict.summary}, while it was timed", printed=sandbox.printed)
        measurements.append(_measurement(contest, sizes, outcome.times))
    return Verdict(Kind.PASS, "measured", measurements=tuple(measurements))


def moved(kata: Kata, spec: Spec, sizes: Mapping[str, int]) -> int:
    """The fewest bytes that the kata can move: every tensor once, or what the spec says."""
    if spec.moved is not None:
        return spec.moved(sizes, spec.dtype(spec.outputs[0], kata).itemsize)
    tensors = (*spec.inputs, *spec.outputs)
    return sum(prod(tensor.extent(sizes)) * spec.dtype(tensor, kata).itemsize for tensor in tensors)


def _measurement(contest: Contest, sizes: Mapping[str, int], times: Sequence[tuple[float, float]]) -> Measurement:
    ratios = sorted(baseline / launcher for baseline, launcher in times)
    first, last = RANKS[len(ratios)]
    baseline, launcher = (median(column) for column in zip(*times, strict=True))
    return Measurement(
        contest.baseline,
        dict(sizes),
        ratio=median(ratios),
        low=ratios[first - 1],
        high=ratios[last - 1],
        pairs=len(ratios),
        bytes_moved=contest.bytes_moved,
        rate=contest.bytes_moved / launcher,
        baseline_rate=contest.bytes_moved / baseline,
    )
