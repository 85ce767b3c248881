"""`kata grade` and `kata bench`: verdicts and speeds of katas, from the command line."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from pathlib import Path

from grader.classes import options as for_classes
from grader.compile.toolchain import find_gpu, machine
from grader.content.catalog import Catalog, CatalogError, Kata
from grader.content.start import last_changed
from grader.grade import DeviceError, bench, in_order, prepare
from grader.judge.measure import STAGES
from grader.learner import progress
from grader.options import Options
from grader.output import speeds, verdict_text
from grader.output.console import KINDS, NAMES, Commands, add_sim_arch, examples, named_file, open_catalog, tell, warn
from grader.output.grade_json import record
from grader.output.terminal import painted
from grader.output.verdict_text import display_path
from grader.system.processes import leaving_nothing
from grader.verdict import Grade


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    _add_grade(commands)
    _add_bench(commands)


def _add_grade(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "grade",
        help="compile and check katas",
        description="Compile katas and check their answers. Exit code 0: all passed, 1: some did not, 2: cannot grade.",
        epilog=examples(
            "kata grade elementwise", "kata grade --solutions", "kata grade elementwise_f32 --file mine.cu"
        ),
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{KINDS} (default: your file that changed last; '*': all)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--solutions", action="store_true", help="grade the reference solutions")
    which.add_argument("--file", type=Path, metavar="FILE", help="grade this file instead, as the one kata named")
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto", help="default: auto")
    parser.add_argument("--thorough", action="store_true", help="many more shapes and values")
    parser.add_argument("--seed", type=int, default=0, help="draw other shapes and values (default 0)")
    parser.add_argument(
        "--explain", action="store_true", help="after a wrong answer or an error, show all that was found out"
    )
    parser.add_argument("--counters", action="store_true", help="after a pass on the simulator, show what costs most")
    parser.add_argument("--time", action="store_true", help="show how many seconds each stage of the grade took")
    parser.add_argument("--no-speed", action="store_true", help="on a GPU: check the answers, do not time")
    add_sim_arch(parser)
    parser.add_argument("--json", action="store_true", help="as JSON lines: one object per kata, once it is graded")
    for_classes.add_options(parser)
    parser.set_defaults(command=_grade)


def _add_bench(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure katas on the GPU against their baseline",
        description="Measure katas that have a baseline (speed in difficulty.yaml) on the GPU. Launcher and baseline "
        "run in turn in one process. The figure is the median ratio of their times with its 95 % confidence interval.",
        epilog=examples("kata bench elementwise", "kata bench --solutions --json speeds.json"),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=NAMES)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--solutions", action="store_true", help="measure the reference solutions")
    which.add_argument("--file", type=Path, metavar="FILE", help="measure this file instead, as the one kata named")
    parser.add_argument(
        "--pairs", type=int, choices=STAGES, help="samples of each arm (default: 21, or as many as the threshold needs)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all measurements to this file")
    parser.add_argument("--table", type=Path, metavar="FILE", help="also write them to this file as a Markdown table")
    parser.set_defaults(command=_bench)


@leaving_nothing()
def _grade(options: argparse.Namespace) -> int:
    wanted = _options(options)
    if for_classes.wanted(options):
        from grader.classes import command as classes

        return classes.grade_submissions(options, wanted)
    katas = _named(open_catalog(), options)
    work = _work(katas, options)
    progress.expect()
    if len(work) > 1:
        prepare(work, wanted, tell)
    width = max(len(kata.name) for kata in katas)
    say = _say_record if options.json else functools.partial(_say_grade, width, options)
    graded = []
    for done in in_order(work, wanted, tell):
        say(done)
        warn(progress.keep_grade(done))
        graded.append(done)
    passed = sum(grade.passed for grade in graded)
    if len(graded) > 1 and not options.json:
        print(f"{passed} of {len(graded)} passed")
    return 0 if passed == len(graded) else 1


def _named(catalog: Catalog, options: argparse.Namespace) -> Sequence[Kata]:
    """The katas to grade; without a name, the one whose file the learner changed last. Raises CatalogError."""
    if options.names or options.solutions:
        return catalog.select(options.names)
    if options.file is not None:
        raise CatalogError(f"which kata is {options.file}? `kata grade NAME --file {options.file}` says it.")
    kata = last_changed(catalog)
    if kata is None:
        raise CatalogError(
            "there is no file of yours yet. `kata next` names the next kata, `kata grade '*'` grades all."
        )
    tell(f"{display_path(kata.own_path)}: your file that changed last")
    return (kata,)


def _options(options: argparse.Namespace) -> Options:
    return Options(
        options.device,
        options.thorough,
        options.seed,
        options.sim_arch,
        warnings_are_errors=options.solutions,
        counters=options.counters,
        speed=not options.no_speed,
    )


def _work(katas: Sequence[Kata], options: argparse.Namespace) -> list[tuple[Kata, Path]]:
    """The katas with the file that stands for each."""
    if options.file is not None and len(katas) != 1:
        raise CatalogError(f"--file stands for one kata, but {len(katas)} were named.")
    if options.file is not None:
        return [(katas[0], named_file(options.file))]
    return [(kata, kata.solution_path if options.solutions else kata.own_path) for kata in katas]


def _say_record(graded: Grade) -> None:
    print(json.dumps(record(graded)), flush=True)


def _say_grade(width: int, options: argparse.Namespace, graded: Grade) -> None:
    if graded.passed:
        outcome = painted(verdict_text.outcome(graded), "green")
        lines = [f"{graded.kata.name:<{width}}  {outcome}, {graded.time_s:.1f} s"]
        lines += [*verdict_text.printed(graded), *verdict_text.costs(graded)]
    else:
        first, *rest = verdict_text.explanation(graded, whole=options.explain).splitlines()
        lines = [painted(first, "red"), *rest]
    print("\n".join(lines + (verdict_text.stages(graded) if options.time else [])), flush=True)


@leaving_nothing()
def _bench(options: argparse.Namespace) -> int:
    katas = [kata for kata in open_catalog().select(options.names) if kata.speed]
    if not katas:
        raise CatalogError("none of these katas has a baseline; `speed` in difficulty.yaml names it.")
    work = _work(katas, options)
    if find_gpu() is None:
        raise DeviceError(
            "`kata bench` needs an NVIDIA GPU, and none was found (`kata doctor` says more). `kata grade` checks "
            "answers without one."
        )
    wanted = Options(device="gpu", pairs=options.pairs)
    prepare(work, wanted, tell)
    width = max(len(kata.name) for kata in katas)
    benched = []
    for done in in_order(work, wanted, tell, bench):
        _say_bench(done, width)
        benched.append(done)
        found = speeds.document(benched, machine())
        if options.json is not None:  # after each kata: what was measured outlasts a run that is stopped
            options.json.write_text(speeds.text_of(found))
        if options.table is not None:
            options.table.write_text(speeds.table(speeds.speeds_of(found)) + "\n")
    return 0 if all(done.passed for done in benched) else 1


def _say_bench(benched: Grade, width: int) -> None:
    if benched.passed:
        for measurement in benched.verdict.measurements:
            print(f"{benched.kata.name:<{width}}  {verdict_text.speed(measurement)}", flush=True)
    else:
        print(verdict_text.explanation(benched), flush=True)
    for line in verdict_text.launches(benched):
        print(f"{'':<{width}}  {line}", flush=True)
