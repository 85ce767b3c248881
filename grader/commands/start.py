"""`kata start` and `kata update`: a learner's own file of a kata, and how it survives an update of the clone."""

from __future__ import annotations

import argparse
import sys

from grader.commands import lookups
from grader.content import start
from grader.content.carried import work_in
from grader.content.catalog import WORK, Catalog, Kata, find_root, load_catalog
from grader.content.start import BLANK, SKELETON, SKETCH, Taken
from grader.learner import progress
from grader.output.console import Commands, examples, one_kata, say_json, warn
from grader.output.verdict_text import display_path

_WAYS = {
    SKELETON: "with TODOs",
    SKETCH: "with constants, signatures, and what must hold in each function",
    BLANK: "with the task, and the launcher's signature",
}


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    _add_start(commands)
    _add_update(commands)


def _add_start(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "start",
        help="write the file that you work on: a skeleton, a sketch or a blank file",
        description=f"Write the kata's file into {WORK}/, which git ignores. From then on every command grades and "
        "shows that file. A skeleton has TODOs to fill in. A sketch has the constants and the signatures of the "
        "kernels and helpers, and says what must hold in each. A blank has the task, what a verdict asks, and the "
        "launcher's signature. All three are graded in the same way; your progress keeps which one it was. Exit code "
        "0: written, 1: there is a begun file, 2: the command is at fault.",
        epilog=examples("kata start relu_f32", "kata start safe_softmax_f32 --blank", "kata start relu_f32 --again"),
    )
    parser.add_argument("name", metavar="KATA")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--sketch", dest="start", action="store_const", const=SKETCH, help=_WAYS[SKETCH])
    ways.add_argument("--blank", dest="start", action="store_const", const=BLANK, help=_WAYS[BLANK])
    parser.add_argument("--again", action="store_true", help="also if you have begun; your file is kept as a .bak file")
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_start, start=SKELETON)


def _add_update(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "update",
        help=f"move files that you edited in exercises/ into {WORK}/, so that `git pull` has no conflict",
        description=f"Move every skeleton that you edited in exercises/ into {WORK}/, which git ignores, and write the "
        "skeleton again. Then `git pull` has no conflict. If git refused to pull: `git stash`, `git pull`, `kata "
        "update --from stash@{0}`. No file is lost: a second file of a kata is kept as a .bak file. Exit code 0, or 2 "
        "if the command is at fault.",
        epilog=examples("kata update", "kata update --from stash@{0}", "kata update --from my-branch"),
    )
    parser.add_argument("--from", dest="commit", metavar="COMMIT", help="what you edited in a stash or commit")
    parser.add_argument("--json", action="store_true", help="as a JSON object: kata -> its file now")
    parser.set_defaults(command=_update)


def _start(options: argparse.Namespace) -> int:
    catalog = load_catalog(find_root(), missing_skeletons=True)
    kata = one_kata(catalog, options.name, "`kata start`")
    if refusal := lookups.refusal([kata], f"start --{options.start}"):
        print(refusal, file=sys.stderr)
        return 1
    if (carried := start.carry(kata)) is not None:
        warn(f"the file that you edited in exercises/ is now {display_path(carried.path)}")
        _keep_carried(kata, carried)
    if not options.again and start.is_begun(kata, kata.work_path):
        place = display_path(kata.work_path)
        print(f"{place} is begun. `kata start {kata.name} --again` keeps it as a .bak file.", file=sys.stderr)
        return 1
    kept = start.write(kata, options.start)
    warn(progress.keep_start(kata, options.start))
    if options.json:
        facts = {"kata": kata.name, "start": options.start, "file": str(kata.work_path)}
        say_json({**facts, "kept": kept and str(kept), "lesson": str(kata.lesson_path)})
        return 0
    print(f"{display_path(kata.work_path)}: a {options.start} file, {_WAYS[options.start]}")
    if kept is not None:
        print(f"  kept    {display_path(kept)}")
    print(f"  lesson  {display_path(kata.lesson_path)}")
    print(f"  grade   kata grade {kata.name}")
    return 0


def _update(options: argparse.Namespace) -> int:
    catalog = load_catalog(find_root(), missing_skeletons=True)
    moved = _taken(catalog, options.commit) if options.commit is not None else {}
    for kata in catalog.katas.values():
        if (carried := start.carry(kata)) is not None:
            moved[kata.name] = carried
    for name, taken in moved.items():
        _keep_carried(catalog.katas[name], taken)
    if options.json:
        say_json({name: str(taken.path) for name, taken in moved.items()})
        return 0
    for name, taken in moved.items():
        print(f"{name}: {display_path(taken.path)}{'' if taken.is_new else ', as before'}")
    if not moved:
        print("No file to move: exercises/ has no edits.")
    else:
        new = sum(taken.is_new for taken in moved.values())
        print(f"{new} file{'' if new == 1 else 's'} moved. `git pull` will not touch {WORK}/.")
    return 0


def _keep_carried(kata: Kata, taken: Taken) -> None:
    """A file that was edited in exercises/ began as a skeleton, also where an earlier file of the kata did not."""
    if taken.is_new and taken.path == kata.work_path:
        warn(progress.keep_start(kata, SKELETON))


def _taken(catalog: Catalog, commit: str) -> dict[str, Taken]:
    """Write the learner's files of a commit into the folder of their work."""
    found = work_in(catalog.root, commit)
    for name in found.keys() - catalog.katas.keys():
        warn(f"{name} is no longer a kata; `git show {commit}` still has your file")
    known = [kata for kata in catalog.katas.values() if kata.name in found]
    return {kata.name: start.take(kata, found[kata.name]) for kata in known}
