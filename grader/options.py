"""What a grade is asked for. Who only asks, and lets another process grade, needs no more of a grade than this."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from grader.devices import SIM_ARCH


@dataclass(frozen=True)
class Options:
    """What a grade is asked for. ``device`` auto: the GPU and then the simulator, or the simulator where no GPU is."""

    device: str = "auto"
    thorough: bool = False
    seed: int = 0
    sim_arch: str = SIM_ARCH
    warnings_are_errors: bool = False
    jobs: int = field(default_factory=lambda: max(2, os.cpu_count() or 2))
    speed: bool = True  # time what is graded on a GPU, unless the kata is easy
    pairs: int | None = None  # samples of each arm, where speed is measured; None: as many as decide
    counters: bool = False  # after a pass on the simulator, count what the kernels cost
    beside: bool = False  # others of the same run are graded at the same time: a wait for the GPU is nothing to tell
    last_failure: bool = True  # try the shape that failed last before all others, and keep it
    smallest: bool = True  # look for the smallest case that fails
    diagnose: bool = True  # after a wrong answer, find out more about it
    shuffled: bool = False  # shapes in no published order, and more of them drawn
    together: bool = False  # compile several files in one run of nvcc: for checks of many files that seldom fail
    within: str = ""  # the folder that what a file includes must lie in; empty: anywhere
