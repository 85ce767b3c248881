"""`kata faster`: a slow kernel that is right, to be made as fast as a later rung."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grader.commands.kata import keep_seen, may_see
from grader.compile.toolchain import find_gpu
from grader.content.catalog import Catalog
from grader.content.source_file import Source, source_of
from grader.grade import bench, counted, grade
from grader.judge.measure import threshold_of
from grader.learner import progress
from grader.options import Options
from grader.output import verdict_text
from grader.output.console import (
    Commands,
    add_sim_arch,
    examples,
    one_kata,
    open_catalog,
    open_progress,
    say_json,
    tell,
    warn,
)
from grader.output.terminal import painted
from grader.output.verdict_text import display_path
from grader.practice import faster
from grader.practice.faster import Challenge, Count, FasterError
from grader.system.processes import leaving_nothing
from grader.verdict import CaseCounters, Grade, Kind, format_sizes

_PROXY = (
    "Counters are a proxy: they say how much work the kernels are, not how long it takes. Only a GPU measures speed."
)
_UNDECIDED, _ABOVE = "undecided", "counters above the goal"


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "faster",
        help="make a slow kernel as fast as a later kata asks",
        usage="kata faster NAME [--from RUNG] [--anyway]\n       kata faster grade NAME\n       kata faster",
        description=f"Write the solution of a slower rung into {faster.PLACE}/, as a file for the kata NAME. Make it "
        "as fast as that kata asks. `grade` checks its answers first. On a GPU it then measures the file against the "
        f"kata's threshold. Without a GPU it compares counters with those of NAME's solution: each may be "
        f"{100 * faster.ROOM:g} % higher. {_PROXY} Without a NAME, it lists the katas with such a rung. Exit code 0: "
        "written, or fast enough, 1: not, 2: the command or the machine is at fault.",
        epilog=examples(
            "kata faster reduce_sequential_f32",
            "kata faster mat_trans_f32_tiled_padded --from mat_trans_f32_row2col",
            "kata faster grade reduce_sequential_f32",
        ),
    )
    parser.add_argument("words", nargs="*", metavar="NAME", help="the kata whose speed is the goal; or grade, and it")
    parser.add_argument("--from", dest="start", metavar="RUNG", help="the rung to start from (default: the nearest)")
    parser.add_argument("--anyway", action="store_true", help="also from a solution that you have not earned; recorded")
    add_sim_arch(parser)
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_faster)


@leaving_nothing()
def _faster(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    words: Sequence[str] = options.words
    if not words:
        return _list(catalog, options)
    grading = words[0] == "grade"
    if len(words) != 1 + grading:
        raise FasterError("name one kata: `kata faster NAME` or `kata faster grade NAME`.")
    goal = one_kata(catalog, words[-1], "`kata faster`")
    if not grading:
        return _start(catalog, faster.challenge(catalog, goal, options.start), options)
    begun = [event.task for event in open_progress(catalog).practised(progress.FASTER) if event.kata == goal.name]
    return _grade(faster.challenge(catalog, goal, options.start or (begun[-1] if begun else None)), options)


def _list(catalog: Catalog, options: argparse.Namespace) -> int:
    results = {event.kata: event.verdict for event in open_progress(catalog).practised(progress.FASTER)}
    rows = []
    for kata in catalog.katas.values():
        try:
            found = faster.challenge(catalog, kata, None) if kata.speed else None
        except FasterError:
            continue
        if found is not None:
            rows.append({"goal": kata.name, "start": found.start.name, "last": results.get(kata.name)})
    if options.json:
        say_json(rows)
        return 0
    for row in rows:
        last = f": {row['last']}" if row["last"] else ""
        print(f"{row['goal']}  from {row['start']}{last}")
    return 0


def _start(catalog: Catalog, wanted: Challenge, options: argparse.Namespace) -> int:
    if wanted.path.exists():
        print(f"{display_path(wanted.path)} is there. Move it away to start again.", file=sys.stderr)
        return 1
    if not may_see(catalog, [wanted.start], f"faster {wanted.goal.name}", anyway=options.anyway):
        return 1
    faster.write(wanted)
    keep_seen(catalog, [wanted.start])
    warn(progress.keep_practice(wanted.goal, progress.FASTER, wanted.start.name, faster.STARTED, ""))
    if options.json:
        facts = {"goal": wanted.goal.name, "start": wanted.start.name, "file": str(wanted.path)}
        say_json({**facts, "threshold": wanted.threshold})
        return 0
    print(f"{display_path(wanted.path)}: the solution of {wanted.start.name}, to be made faster")
    print(f"  goal    {wanted.threshold}")
    print(f"  lesson  {display_path(wanted.goal.lesson_path)}")
    print(f"  grade   kata faster grade {wanted.goal.name}")
    return 0


def _grade(wanted: Challenge, options: argparse.Namespace) -> int:
    goal, source = wanted.goal, wanted.path
    if not source.is_file():
        raise FasterError(f"{display_path(source)} is not there. `kata faster {goal.name}` writes it.")
    graded = grade(goal, Options(sim_arch=options.sim_arch, speed=False), source=source, tell=tell)
    gpu = find_gpu()
    found: dict[str, Any] = {"goal": goal.name, "right": graded.passed}
    lines: list[str] = []
    if not graded.passed:
        found["result"], lines = str(graded.verdict.kind), verdict_text.explanation(graded).splitlines()
    elif gpu is not None and threshold_of(goal, gpu) is not None:
        benched = bench(goal, Options(device="gpu"), source=source, tell=tell)
        found["result"], lines = str(benched.verdict.kind), _timed(benched)
    else:
        found |= _by_counters(wanted, source_of(source), options)
        lines = _table(found)
    how = "by counters, a proxy" if found.get("proxy") else ""
    warn(progress.keep_practice(goal, progress.FASTER, wanted.start.name, found["result"], how))
    reached = found["result"] == Kind.PASS
    if options.json:
        say_json(found)
    else:
        word = painted("reached", "green") if reached else painted(found["result"], "red")
        print("\n".join([f"{goal.name}, from {wanted.start.name}: {word}", *(f"  {line}" for line in lines)]))
    return 0 if reached else 1


def _timed(benched: Grade) -> list[str]:
    if benched.verdict.kind not in (Kind.PASS, Kind.TOO_SLOW, Kind.INCONCLUSIVE):
        return verdict_text.explanation(benched).splitlines()
    return [benched.verdict.summary, *map(verdict_text.speed, benched.verdict.measurements)]


def _by_counters(wanted: Challenge, source: Source, options: argparse.Namespace) -> dict[str, Any]:
    """The proxy's result, as `--json` gives it."""
    wishes = Options(device="sim", sim_arch=options.sim_arch)
    mine, solution = (
        counted(wanted.goal, each, wishes, tell) for each in (source, source_of(wanted.goal.solution_path))
    )
    if not isinstance(mine, CaseCounters) or not isinstance(solution, CaseCounters):
        return {"result": _UNDECIDED, "why": "The simulator counts nothing here. Only a GPU can decide."}
    counts = faster.compared(mine, solution)
    enough = all(count.enough for count in counts)
    found = {"result": str(Kind.PASS) if enough else _ABOVE, "proxy": True, "sizes": dict(mine.sizes)}
    found["counters"] = {count.name: {**asdict(count), "most": count.most} for count in counts}
    if enough and _cannot_tell(wanted, solution, wishes):
        why = f"The counters of {wanted.start.name} are low enough, too. Only a GPU can decide."
        found |= {"result": _UNDECIDED, "why": why}
    return found


def _cannot_tell(wanted: Challenge, solution: CaseCounters, wishes: Options) -> bool:
    """Whether the file that the challenge begins with would reach the goal by its counters."""
    first = counted(wanted.goal, Source(Path(wanted.path.name), wanted.text.encode()), wishes, tell)
    return isinstance(first, CaseCounters) and all(count.enough for count in faster.compared(first, solution))


def _table(found: Mapping[str, Any]) -> list[str]:
    """What the counters say, with the proxy's name on it."""
    rows = []
    if "counters" in found:
        rows.append(f"by a proxy, the counters at {format_sizes(found['sizes'])}:")
        rows.append(f"{'':<26} {'yours':>13} {'solution':>13} {'at most':>13}")
        for name, item in found["counters"].items():
            count = Count(name, item["mine"], item["solution"])
            mark = "" if count.enough else "  too many"
            rows.append(f"{faster.COUNTERS[name]:<26} {count.mine:>13,} {count.solution:>13,} {count.most:>13,}{mark}")
    return [*rows, *([found["why"]] if "why" in found else []), _PROXY]
