"""difficulty.yaml's `compute`, and what it must be: the oldest simulated card on which a kata's solution passes.

nvcc and ptxas compile the solution for a card, and the simulator runs it with that card's limits. Katas that pass on
the oldest card are not tried on others: tests/test_wrong_kernels.py grades each on its oldest card and on the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from grader.compile.build import CompileFailure, Request, Target, build_all
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import FILE, Catalog, Kata
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.devices import SIM_ARCHITECTURES
from grader.grade import does_not_compile, grade
from grader.maintain.kata_builds import as_solution
from grader.verdict import Verdict

Say = Callable[[str], None]


def problems(catalog: Catalog, say: Say) -> list[str]:
    """The katas whose `compute` is not the oldest card on which their solution passes; takes some minutes.

    Raises a Fault where this machine cannot grade.
    """
    found: dict[str, str] = {}
    for arch in SIM_ARCHITECTURES:
        open_katas = [kata for kata in catalog.katas.values() if kata.name not in found]
        say(f"{arch}: {len(open_katas)} katas")
        found |= dict.fromkeys(_passing(open_katas, arch, say), arch)
    return [*_disagreements(catalog.katas.values(), found)]


def _passing(katas: Sequence[Kata], arch: str, say: Say) -> Iterator[str]:
    """The names of those whose solutions pass on the simulated card of ``arch``."""
    options = as_solution("sim", arch)
    anywhere = [replace(kata, compute=SIM_ARCHITECTURES[0]) for kata in katas]  # a grade refuses an older card
    requests = [
        Request(kata, load_spec(kata), source_of(kata.solution_path), Target("sim", arch), True, options.together)
        for kata in anywhere
    ]
    for built in build_all(requests, find_toolchain(), jobs=options.jobs, tell=say):
        kata = built.request.kata
        if isinstance(built, CompileFailure):
            verdict = does_not_compile(built)
        else:
            verdict = grade(kata, options, source=kata.solution_path).verdict
        if verdict.passed:
            yield kata.name
        else:
            say(f"{arch} {kata.name}: {_why(verdict)}")


def _why(verdict: Verdict) -> str:
    what = verdict.finding.message if verdict.finding is not None else verdict.summary
    return f"{verdict.kind}: {what}" + (f" (line {verdict.line})" if verdict.line else "")


def _disagreements(katas: Iterable[Kata], found: dict[str, str]) -> Iterator[str]:
    for kata in katas:
        oldest = found.get(kata.name)
        if oldest is None:
            yield f"{FILE}: {kata.name}: its solution passes on no simulated card."
        elif oldest != kata.compute:
            yield f"{FILE}: {kata.name}: compute is {kata.compute}; its solution passes on {oldest}. Write that."
