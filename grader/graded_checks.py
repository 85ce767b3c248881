"""Skeletons and solutions -> problems: each file is compiled and graded, as many at a time as there are cores.

Many files are compiled in one run of nvcc: see grader/unit.py.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from grader import skeleton
from grader.catalog import Catalog, Kata, load_catalog
from grader.grade import SIM_ARCH, Grade, Options, grade, prepare
from grader.report import explanation
from grader.service.replies import LIMIT_S, replies
from grader.service.task import Answer, Task, Tell
from grader.service.work import kata_of
from grader.toolchain import find_gpu
from grader.verdict import Kind

OTHER_ARCH = "sm_80"  # beside the one that everything else is graded on
ROOM = 0.5  # share of the tolerance that a solution may use up
GPU_SLOTS = 4  # solutions on a GPU side by side: each has a context there, and the memory of its largest shape


def check_skeletons_compile(root: Path, only: Collection[str] | None = None) -> list[str]:
    """Every skeleton compiles, so that a learner's first error is the learner's own, and its answer is wrong.

    What is graded is the skeleton with its TODO markers blanked, which an untouched one would not be; to a compiler
    both are the same, line by line.
    """
    folder = root / ".kata-dev"
    folder.mkdir(exist_ok=True)
    try:
        work = [(kata, _blanked(kata, folder)) for kata in _katas(root, only)]
        options = Options(device="sim", memory=False, together=True)
        prepare(work, options, _say)
        tasks = [Task(kata.name, options, bare, work="grader.graded_checks:skeleton_work") for kata, bare in work]
        return _side_by_side(tasks, root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _katas(root: Path, only: Collection[str] | None) -> list[Kata]:
    return [kata for kata in load_catalog(root).katas.values() if only is None or kata.name in only]


def _blanked(kata: Kata, folder: Path) -> Path:
    """Derived from the solution, not the file in exercises/: a learner may be at work on that."""
    bare = folder / f"{kata.name}.cu"
    lines = skeleton.skeleton_of(kata).splitlines()
    bare.write_text("\n".join("" if "TODO(" in line else line for line in lines) + "\n")
    return bare


def _side_by_side(tasks: Sequence[Task], root: Path, *, most: int | None = None) -> list[str]:
    """The problems of all tasks, in their order. As many tasks run at a time as there are cores, or ``most``."""
    cores = os.cpu_count() or 1
    count = min(cores, most or cores)
    options = [replace(task.options, jobs=cores // count) for task in tasks]
    labelled = [replace(task, label=place, options=options[place]) for place, task in enumerate(tasks)]
    found: dict[int, list[str]] = {}
    for reply in replies(labelled, root, count=count):
        error = f"not graded within {LIMIT_S:g} s" if reply.late else reply.error
        found[reply.task.label] = [f"{reply.task.kata}: {error}"] if error else reply.done["problems"]
        for line in reply.done.get("said", ()):
            _say(line)
    return [problem for place in sorted(found) for problem in found[place]]


def skeleton_work(task: Task, catalog: Catalog, tell: Tell) -> Answer:
    """A service's work: "problems" has what is wrong with a skeleton."""
    graded = grade(kata_of(task, catalog), task.options, source=task.source, progress=tell)
    return {"problems": [*_skeleton_problems(graded)]}


def _skeleton_problems(graded: Grade) -> Iterator[str]:
    kata, verdict = graded.kata, graded.verdict
    place = kata.skeleton_path.relative_to(kata.root)
    if verdict.kind is Kind.DOES_NOT_COMPILE:
        yield f"{place}:{verdict.line or 1}: the skeleton does not compile: {verdict.summary}"
    elif verdict.passed:
        yield f"{place}: passes with nothing filled in."


def check_solutions(root: Path, only: Collection[str] | None = None) -> list[str]:
    """Every solution passes, warnings being errors, on the other simulated card and on the GPU where there is one.

    tests/test_wrong_kernels.py grades them all on the simulated card that learners get, beside what must not pass. The
    same run of nvcc compiles for both cards.
    """
    work = [(kata, kata.solution_path) for kata in _katas(root, only)]
    own = Options(device="sim", sim_arch=SIM_ARCH, warnings_are_errors=True, memory=False, together=True)
    other = replace(own, sim_arch=OTHER_ARCH)
    prepare(work, other, _say, beside=(own,))
    runs = [other]
    if find_gpu() is not None:
        runs.append(replace(own, device="gpu", speed=False))
        prepare(work, runs[-1], _say)
    problems = []
    for options in runs:
        tasks = [Task(kata.name, options, source, work="grader.graded_checks:solution_work") for kata, source in work]
        problems += _side_by_side(tasks, root, most=GPU_SLOTS if options.device == "gpu" else None)
    return problems


def solution_work(task: Task, catalog: Catalog, tell: Tell) -> Answer:
    """A service's work: "problems" has what is wrong with a solution, "said" why one cannot be built here."""
    graded = grade(kata_of(task, catalog), task.options, source=task.source, progress=tell)
    verdict, name = graded.verdict, task.kata
    if verdict.lacks_library:
        return {"problems": [], "said": [f"{name} is left out: {verdict.summary}"]}
    if not graded.passed:
        return {"problems": [explanation(graded)]}
    if verdict.error_share > ROOM:
        uses = f"{name}: uses {verdict.error_share:.0%} of its tolerance"
        return {"problems": [f"{uses}; a solution must keep to {ROOM:.0%}."]}
    return {"problems": []}


def _say(line: str) -> None:
    print(f"  {line}", flush=True)
