"""Pairs of times + the SM clock at their beginning and end -> whether both changed together: then the ratio is not that
of one state of the card."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

# Power limits a card's clock in every run of large products. That voids a run where the clock changes by more than
# CLOCK and the ratio, from the first third of the pairs to the last, by more than SHIFT.
CLOCK, SHIFT = 0.10, 0.03


def ends(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The median ratios of the first third of the pairs and of the last."""
    ratios = [baseline / launcher for baseline, launcher in times] or [1.0]
    third = max(1, len(ratios) // 3)
    return median(ratios[:third]), median(ratios[-third:])


def drifted(times: Sequence[tuple[float, float]], clocks: tuple[int, int]) -> bool:
    first, last = clocks
    early, late = ends(times)
    return abs(last - first) > CLOCK * max(first, 1) and abs(late - early) > SHIFT * early
