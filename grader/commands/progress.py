"""`kata progress`: where progress is stored, and how to move it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grader.content.catalog import find_root
from grader.learner import progress
from grader.learner.progress import ProgressError
from grader.output.console import Commands, examples, save, say_json, warn


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "progress",
        help="say where your progress is stored; export and import it",
        description="Say where your progress is stored and how much there is, write it as JSON lines, or add such "
        "lines to this clone's, without duplicates. Exit code 0, or 2 if it cannot be read or written.",
        epilog=examples(
            "kata progress --export p.jsonl",
            "kata progress --import p.jsonl",
            title="To another machine, the second line there:",
        )
        + "\n\n"
        + examples(
            "kata progress --clone /where/it/was --export p.jsonl",
            "kata progress --import p.jsonl",
            title="In a clone that was moved:",
        ),
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--export", metavar="FILE", help="write this clone's events to a file (-: to the terminal)")
    ways.add_argument("--import", dest="imported", metavar="FILE", help="add the events of a file (-: of the input)")
    ways.add_argument("--json", action="store_true", help="its place and size, as a JSON object")
    parser.add_argument("--clone", type=Path, metavar="FOLDER", help="with --export: another clone, or a former one")
    parser.set_defaults(command=_progress)


def _progress(options: argparse.Namespace) -> int:
    root = find_root()
    if options.export is not None:
        return _export(options.export, options.clone or root)
    if options.clone is not None:
        raise ProgressError("--clone says what to export; give --export, too.")
    if options.imported is not None:
        return _import(options.imported, root)
    place, here, counts = progress.data_file(), progress.clone_of(root), progress.clones()
    warn(progress.load(root).warning)
    if options.json:
        say_json({"file": str(place), "clone": here, "events": counts.get(here, 0), "clones": counts})
        return 0
    print(f"{place}{'' if place.exists() else ' (not there yet: nothing was graded)'}")
    for clone, count in {here: 0, **counts}.items():
        gone = "" if Path(clone).is_dir() else "; no longer there"
        print(f"  {clone}: {count} event{'' if count == 1 else 's'}{' (this clone)' if clone == here else gone}")
    return 0


def _export(name: str, clone: Path) -> int:
    warn(progress.load(clone).warning)
    lines = list(progress.export_lines(progress.clone_of(clone)))
    text = "".join(f"{line}\n" for line in lines)
    if name == "-":
        print(text, end="")
        return 0
    save(Path(name), text)
    print(f"{name}: {len(lines) - 1} events written")
    return 0


def _import(name: str, root: Path) -> int:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ProgressError(f"{name} cannot be read ({why}). Name what `kata progress --export` wrote.") from None
    lines = text.splitlines()
    new = progress.import_lines(lines, root)
    print(f"{new} new event{'' if new == 1 else 's'}; {progress.clone_of(root)} has {len(progress.load(root).events)}")
    return 0
