"""`kata dev`: check the repository, write what is generated, show wrong kernels."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.content import skeleton
from grader.content.catalog import CatalogError, find_root, load_catalog
from grader.maintain import checks, coverage, matrix, mutant, mutation, prose, tables, thresholds, voice
from grader.maintain.changes import Touched, touched
from grader.output.console import Commands, examples, open_catalog


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "dev", help="for maintainers: check the repository, write skeletons and tables, show wrong kernels"
    )
    tasks = parser.add_subparsers(required=True, metavar="TASK")
    _add_check(tasks)
    skeletons = tasks.add_parser("skeletons", help="derive every skeleton from its solution, and replace what is there")
    skeletons.set_defaults(command=_skeletons)
    made = tasks.add_parser("tables", help=f"write the tables that follow from data: in {', '.join(tables.TABLES)}")
    made.set_defaults(command=_tables)
    levels = tasks.add_parser(
        "thresholds", help="write thresholds from what the solutions reached into difficulty.yaml"
    )
    levels.add_argument("file", type=Path, metavar="FILE", help="what `kata bench --solutions --json FILE` wrote")
    levels.set_defaults(command=_thresholds)
    mutant.add(tasks)
    coverage.add(tasks)
    mutation.add(tasks)
    _add_voice(tasks)


def _add_check(tasks: Commands[argparse.ArgumentParser]) -> None:
    check = tasks.add_parser(
        "check",
        help="one command that checks everything and names file and fix",
        description="Check the repository. Every problem names its file and the fix. Exit code 0: no problems, 1: "
        "some problems, 2: a check cannot run.",
        epilog=examples("kata dev check", "kata dev check style imports", "kata dev check --changed=main"),
    )
    check.add_argument("names", nargs="*", metavar="CHECK", help=f"only these: {', '.join(checks.CHECKS)}")
    check.add_argument(
        "--changed",
        nargs="?",
        const="",
        metavar="BASE",
        help="grade and test only what differs from this commit, and what that can affect (default: where this "
        "branch left its upstream, or else the last commit)",
    )
    check.add_argument(
        "--matrix",
        action="store_true",
        help="find the oldest simulated card on which each solution passes, and compare it with `compute` in "
        "difficulty.yaml; without CHECK only this, about 20 minutes on two cores",
    )
    check.add_argument(
        "--fresh",
        action="store_true",
        help="grade also the files of katas that passed in an earlier run and that nothing has touched since",
    )
    check.set_defaults(command=_check)


def _add_voice(tasks: Commands[argparse.ArgumentParser]) -> None:
    spoken = tasks.add_parser(
        "voice",
        help="list the words to avoid, long sentences and wide lines of files",
        description="List the places that docs/voice.md advises against, each with its line, its words and better "
        "ones. Exit code 0: there is no such place, 1: there are some.",
        epilog=examples("kata dev voice exercises/softmax/README.md", "kata dev voice --lower"),
    )
    spoken.add_argument("files", nargs="*", type=Path, metavar="FILE", help="only these files or folders")
    spoken.add_argument(
        "--lower", action="store_true", help=f"lower the counts in {voice.ALLOWED} to the places that there are"
    )
    spoken.set_defaults(command=_voice)


def _check(options: argparse.Namespace) -> int:
    root = find_root()
    unknown = [name for name in options.names if name not in checks.CHECKS]
    if unknown:
        raise CatalogError(f"no check is called {unknown[0]!r}; there are: {', '.join(checks.CHECKS)}.")
    changed = None if options.changed is None else touched(open_catalog(), options.changed or None)
    if changed is not None:
        _say_touched(changed)
    outcomes: dict[str, int] = {}
    start = time.monotonic()
    names = [*(options.names or ([] if options.matrix else checks.CHECKS)), *(["matrix"] if options.matrix else [])]
    with ThreadPoolExecutor(max_workers=1) as beside:  # the other checks: what looks at style needs a core, not two
        style = beside.submit(checks.run, "style", root) if "style" in names else None
        for name in names:
            print(f"{name} ...", flush=True)
            if name == "matrix":
                problems = matrix.problems(open_catalog(), print)
            elif name == "style" and style is not None:
                problems = style.result()
            else:
                problems = checks.run(name, root, changed, fresh=options.fresh)
            for problem in problems:
                print(f"  {problem}")
            outcomes[name] = len(problems)
            print(f"{name}: {_outcome(len(problems))}, {time.monotonic() - start:.0f} s so far", flush=True)
    failed = {name: count for name, count in outcomes.items() if count}
    if failed and len(outcomes) > 1:
        words = ", ".join(f"{name} ({_outcome(count)})" for name, count in failed.items())
        print(f"{len(failed)} of {len(outcomes)} checks failed: {words}. Their lines are above.", flush=True)
    return 1 if failed else 0


def _outcome(problems: int) -> str:
    return f"{problems} to fix" if problems else "ok"


def _say_touched(changed: Touched) -> None:
    for path, why in changed.why.items():
        print(f"{path}: {why}")
    if changed.why:
        print(f"To grade and test: {len(changed.katas)} katas, {len(changed.tests)} files of tests.", flush=True)
    else:
        print("Nothing has changed: only the quick checks run.", flush=True)


def _skeletons(options: argparse.Namespace) -> int:
    written = skeleton.write_all(load_catalog(find_root(), missing_skeletons=True))
    for path in written:
        print(f"{path}: written")
    print(f"{len(written)} skeletons written, the others were current")
    return 0


def _tables(options: argparse.Namespace) -> int:
    for file, stale in tables.write(open_catalog()).items():
        print(f"{file}: {'written' if stale else 'was current'}")
    return 0


def _thresholds(options: argparse.Namespace) -> int:
    names = thresholds.write(open_catalog(), options.file)
    print(f"difficulty.yaml: thresholds of {len(names)} katas written")
    return 0


def _voice(options: argparse.Namespace) -> int:
    root = find_root()
    if options.lower:
        counts = voice.lower(root)
        print(f"{voice.ALLOWED}: {sum(counts.values())} places in {len(counts)} files")
        return 0
    chosen = [path.resolve() for path in options.files or [root]]
    files = [path for path in prose.files(root) if any(path.is_relative_to(each) for each in chosen)]
    found = [*voice.places(root, files)]
    for place in found:
        print(place)
    print(f"{len(found)} places in {len(files)} files")
    return 1 if found else 0
