"""What something costs, to be compared with what something else costs: never with a number of seconds."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

TRIES = 3  # the cheapest of them counts: other work on the machine only ever adds


def cheapest_cpu_s(
    *jobs: Callable[[], Any], until: Callable[[list[float]], bool] = lambda costs_s: False
) -> list[float]:
    """Processor time of each job, its children's included. The jobs take turns, so that the same load is on all.

    ``until``: says of what was measured so far that it leaves no doubt; then nothing is measured again.
    """
    costs_s = [_cpu_s(job) for job in jobs]
    for _ in range(TRIES - 1):
        if until(costs_s):
            break
        costs_s = [min(cost_s, _cpu_s(job)) for cost_s, job in zip(costs_s, jobs, strict=True)]
    return costs_s


def _cpu_s(job: Callable[[], Any]) -> float:
    before = _spent_s()
    job()
    return _spent_s() - before


def _spent_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
