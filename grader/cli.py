"""The command line: `kata grade`, `bench`, `reset`, `doctor`, for maintainers `dev`; and those of grader.commands.

Exit codes: 0 all is well, 1 something was graded or checked and did not pass, 2 the command or the machine is at fault.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from grader import completion, progress, report, skeleton
from grader.catalog import CatalogError, Kata, find_root, load_catalog
from grader.commands import (
    NAMES,
    Parser,
    add_sim_arch,
    classes,
    code,
    course,
    examples,
    interview,
    maintain,
    named_file,
    open_catalog,
    page,
    records,
    say_json,
    tell,
    warn,
    watch,
)
from grader.commands import kata as one
from grader.doctor import about, examine
from grader.grade import MACHINE_ERRORS, DeviceError, Grade, Options, bench, grade, prepare
from grader.interview.plan import InterviewError
from grader.listing import ListingError
from grader.measure import STAGES
from grader.processes import leaving_nothing
from grader.progress import ProgressError
from grader.record import record
from grader.skeleton import SkeletonError
from grader.terminal import painted
from grader.toolchain import find_gpu
from grader.wrong_kernel import WrongKernelError

FAULTS = (
    *MACHINE_ERRORS,
    *classes.FAULTS,
    CatalogError,
    InterviewError,
    ListingError,
    ProgressError,
    SkeletonError,
    WrongKernelError,
    *maintain.FAULTS,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; Ctrl-C is for __main__.py, which has it while this is imported, too."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        code = command(options)
        sys.stdout.flush()
        return code
    except FAULTS as error:
        print(f"kata: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read this has seen enough: `kata list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="kata",
        description="Learn CUDA kernels by writing them: open exercises/<family>/<kata>.cu, fill in its TODOs, grade.",
        epilog=examples(
            "kata next",
            "$EDITOR exercises/elementwise/elementwise_f32.cu",
            "kata grade elementwise_f32",
            title="To begin:",
        ),
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    course.add(commands)
    one.add(commands)
    _add_grade(commands)
    _add_bench(commands)
    _add_reset(commands)
    watch.add(commands)
    code.add(commands)
    interview.add(commands)
    records.add(commands)
    page.add(commands)
    _add_doctor(commands)
    _add_completion(commands)
    maintain.add(commands)
    return parser


def _add_grade(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "grade",
        help="compile and check katas",
        description="Compile katas and check their answers. Exit code 0: all passed, 1: some did not, 2: cannot grade.",
        epilog=examples(
            "kata grade elementwise", "kata grade --solutions", "kata grade elementwise_f32 --file mine.cu"
        ),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=NAMES)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--solutions", action="store_true", help="grade the reference solutions")
    which.add_argument("--file", type=Path, metavar="FILE", help="grade this file instead, as the one kata named")
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto", help="default: auto")
    parser.add_argument("--thorough", action="store_true", help="many more shapes and values")
    parser.add_argument("--seed", type=int, default=0, help="draw other shapes and values (default 0)")
    parser.add_argument("--counters", action="store_true", help="after a pass on the simulator, show what costs most")
    parser.add_argument("--no-speed", action="store_true", help="on a GPU: check the answers, time nothing")
    add_sim_arch(parser)
    parser.add_argument("--json", action="store_true", help="as JSON lines, an object a kata, each once it is graded")
    classes.add_options(parser)
    parser.set_defaults(command=_grade)


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure katas on the GPU against their baseline",
        description="Measure katas that have a baseline (speed in difficulty.yaml) on the GPU. Launcher and baseline "
        "run in turn in one process; the figure is the median ratio of their times with its 95 % interval.",
        epilog=examples("kata bench elementwise", "kata bench --solutions --json speeds.json"),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=NAMES)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--solutions", action="store_true", help="measure the reference solutions")
    which.add_argument("--file", type=Path, metavar="FILE", help="measure this file instead, as the one kata named")
    parser.add_argument(
        "--pairs", type=int, choices=STAGES, help="samples of each arm (default: 21, or as many as the threshold needs)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to this file too")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write them as a Markdown table to this file too")
    parser.set_defaults(command=_bench)


def _add_reset(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("reset", help="write a kata's skeleton again; what was there is kept as a .bak file")
    parser.add_argument("names", nargs="+", metavar="NAME", help="katas, families, levels, globs or files")
    parser.set_defaults(command=_reset)


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="look at compiler, torch, GPU and cache, and say how to mend them",
        description="Look at all that grading needs, and say of what is not well how to mend it. Exit code 0: all is "
        "well, 1: something is to mend.",
        epilog=examples("kata doctor", "kata doctor --json"),
    )
    parser.add_argument("--json", action="store_true", help="as a JSON array, one object for each thing looked at")
    parser.set_defaults(command=_doctor)


def _add_completion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that completes kata's commands, options and katas in your shell",
        description="Print a script that completes commands, options, katas and families. Write it again after an "
        "update. Exit code 0, or 2 where the katas cannot be read.",
        epilog=examples(
            *(f"kata completion {shell} > {place}" for shell, place in completion.PLACES.items()),
            title="Where the script goes (for zsh, source that file from ~/.zshrc):",
        ),
    )
    parser.add_argument(
        "shell", metavar="SHELL", choices=tuple(completion.SHELLS), help=f"one of {', '.join(completion.SHELLS)}"
    )
    parser.set_defaults(command=_completion)


@leaving_nothing()
def _grade(options: argparse.Namespace) -> int:
    wanted = _options(options)
    if classes.wanted(options):
        return classes.grade_submissions(options, wanted)
    katas = open_catalog().select(options.names)
    work = _work(katas, options)
    progress.expect()
    if len(work) > 1:
        prepare(work, wanted, tell)
    say = _say_record if options.json else functools.partial(_say_grade, max(len(kata.name) for kata in katas))
    graded = [_grade_one(kata, source, wanted, say) for kata, source in work]
    passed = sum(grade.passed for grade in graded)
    if len(graded) > 1 and not options.json:
        print(f"{passed} of {len(graded)} passed")
    return 0 if passed == len(graded) else 1


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
        raise CatalogError(f"--file needs the one kata that it stands for, but {len(katas)} were named.")
    if options.file is not None:
        return [(katas[0], named_file(options.file))]
    return [(kata, kata.solution_path if options.solutions else kata.skeleton_path) for kata in katas]


def _grade_one(kata: Kata, source: Path, options: Options, say: Callable[[Grade], None]) -> Grade:
    graded = grade(kata, options, source=source, progress=tell)
    say(graded)
    warn(progress.keep_grade(graded))
    return graded


def _say_record(graded: Grade) -> None:
    print(json.dumps(record(graded)), flush=True)


def _say_grade(width: int, graded: Grade) -> None:
    if not graded.passed:
        first, *rest = report.explanation(graded).splitlines()
        print("\n".join([painted(first, "red"), *rest]), flush=True)
        return
    outcome = painted(report.outcome(graded), "green")
    print(f"{graded.kata.name:<{width}}  {outcome}, {graded.time_s:.1f} s", flush=True)
    for line in [*report.printed(graded), *report.costs(graded)]:
        print(line, flush=True)


@leaving_nothing()
def _bench(options: argparse.Namespace) -> int:
    katas = [kata for kata in open_catalog().select(options.names) if kata.speed]
    if not katas:
        raise CatalogError("none of these katas has a baseline; `speed` in difficulty.yaml names it.")
    work = _work(katas, options)
    if find_gpu() is None:
        raise DeviceError(
            "speed is measured on an NVIDIA GPU, and none was found (`kata doctor` says more). `kata grade` checks "
            "answers without one."
        )
    wanted = Options(device="gpu", pairs=options.pairs)
    prepare(work, wanted, tell)
    width = max(len(kata.name) for kata in katas)
    benched = [_bench_one(kata, source, wanted, width) for kata, source in work]
    if options.json is not None:
        options.json.write_text(json.dumps([record(done) for done in benched], indent=1) + "\n")
    if options.table is not None:
        options.table.write_text(report.speed_table(benched, about()))
    return 0 if all(done.passed for done in benched) else 1


def _bench_one(kata: Kata, source: Path, options: Options, width: int) -> Grade:
    benched = bench(kata, options, source=source, progress=tell)
    if benched.passed:
        for measurement in benched.verdict.measurements:
            print(f"{kata.name:<{width}}  {report.speed(measurement)}", flush=True)
    else:
        print(report.explanation(benched), flush=True)
    for line in report.launches(benched):
        print(f"{'':<{width}}  {line}", flush=True)
    return benched


def _reset(options: argparse.Namespace) -> int:
    for kata in load_catalog(find_root(), missing_skeletons=True).select(options.names):
        kept = skeleton.reset(kata)
        note = f"; your file is kept as {kept.name}" if kept is not None else ""
        print(f"{kata.skeleton_path}: skeleton written{note}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    findings = examine()
    if options.json:
        say_json([asdict(finding) for finding in findings])
        return 0 if all(finding.well for finding in findings) else 1
    for finding in findings:
        mark = painted("ok  ", "green") if finding.well else painted("MEND", "red")
        print(f"{mark} {finding.subject:<10} {finding.words}")
    return 0 if all(finding.well for finding in findings) else 1


def _completion(options: argparse.Namespace) -> int:
    print(completion.script(options.shell, _parser(), open_catalog()), end="")
    return 0
