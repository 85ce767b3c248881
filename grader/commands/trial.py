"""`kata try`: one TODO of a kata, checked without the rest of the kata, with a picture of what it does."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.content.catalog import CatalogError, Kata
from grader.content.source_file import Source, source_of
from grader.content.trial import Trial, load_trials
from grader.grade import called_once, unreadable
from grader.options import Options
from grader.output import verdict_text
from grader.output.console import Commands, add_sim_arch, examples, named_file, one_kata, open_catalog, say_json, tell
from grader.output.terminal import painted, plain
from grader.system.processes import leaving_nothing
from grader.verdict import Grade, Kind, Verdict


@dataclass(frozen=True)
class Tried:
    """What a trial found: a sentence (empty: it is right) or a verdict of the device; and the picture, if any."""

    trial: Trial
    problem: str = ""
    verdict: Verdict | None = None
    picture: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return not self.problem and self.verdict is None


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "try",
        help="check one TODO of a kata by itself, and show a picture of what it does",
        description="Check what one TODO does without the rest of the kata: a swizzle, the elements of a fragment, an "
        "online softmax, a mask, the lanes of a shuffle. It calls the function that the TODO is in, on the simulator, "
        "and draws what it found. The other TODOs may be empty. Exit code 0: right, 1: wrong, or the kata has no such "
        "trial, 2: the command or the machine is at fault.",
        epilog=examples(
            "kata try hgemm_mma_m16n8k16_naive",
            "kata try hgemm_mma_m16n8k16_naive 3",
            "kata try flash_attn_online_f16 1 --file mine.cu",
        ),
    )
    parser.add_argument("name", metavar="KATA")
    parser.add_argument("todo", nargs="?", type=int, metavar="TODO", help="its number in the skeleton (default: all)")
    parser.add_argument("--file", type=Path, metavar="FILE", help="try this file instead")
    add_sim_arch(parser)
    parser.add_argument("--json", action="store_true", help="as a JSON array, one object per trial")
    parser.set_defaults(command=_try)


@leaving_nothing()
def _try(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    kata = one_kata(catalog, options.name, "`kata try`")
    trials = load_trials(kata)
    wanted = [trial for trial in trials if options.todo in (None, *trial.todos)]
    if not wanted:
        print(_none(kata, trials), file=sys.stderr)
        return 1
    source = source_of(kata.own_path if options.file is None else named_file(options.file))
    if (refused := unreadable(kata, source)) is not None:
        raise CatalogError(refused.summary)
    done = [tried(trial, kata, source, Options(device="sim", sim_arch=options.sim_arch)) for trial in wanted]
    if options.json:
        say_json([_record(each, kata, source) for each in done])
    else:
        for place, each in enumerate(done):
            _show(each, kata, source, first=not place)
    return 0 if all(each.right for each in done) else 1


def _none(kata: Kata, trials: tuple[Trial, ...]) -> str:
    if not trials:
        return f"{kata.name} has no trial of a single TODO. `kata grade {kata.name}` checks the whole kata."
    known = ", ".join(str(number) for trial in trials for number in trial.todos)
    return f"{kata.name} has trials of these TODOs: {known}."


def joined(trial: Trial, source: Source) -> Source:
    """The learner's file with the trial's code below it."""
    return Source(source.path, source.data.rstrip(b"\n") + b"\n" + trial.code.encode())


def tried(trial: Trial, kata: Kata, source: Source, options: Options) -> Tried:
    """Call the trial's launcher once, below the learner's file, and judge what it stored. Raises a Fault."""
    found = called_once(trial.kata(kata), trial.spec, joined(trial, source), options, tell)
    if isinstance(found, Verdict):
        return Tried(trial, verdict=found)
    return Tried(trial, trial.judge(found), picture=tuple(trial.picture(found)))


def _title(trial: Trial) -> str:
    *first, last = map(str, trial.todos)
    numbers = f"TODOs {', '.join(first)} and {last}" if first else f"TODO {last}"
    return f"{numbers}: {trial.about}"


def _show(done: Tried, kata: Kata, source: Source, *, first: bool) -> None:
    if not first:
        print()
    word = painted("right", "green") if done.right else painted("wrong", "red")
    print(f"{_title(done.trial)}: {word}")
    if done.problem:
        print(f"  {plain(done.problem)}")
    if done.verdict is not None:
        for line in verdict_text.explanation(Grade(kata, source, (done.verdict,))).splitlines():
            print(f"  {plain(line)}")
        if done.verdict.kind is Kind.DOES_NOT_COMPILE:
            print("  A trial calls the functions of the skeleton by their names and parameters.")
    for line in done.picture:
        print(f"  {line}".rstrip())


def _record(done: Tried, kata: Kata, source: Source) -> dict[str, Any]:
    said = done.problem or (done.verdict.summary if done.verdict is not None else "")
    facts = {"kata": kata.name, "file": str(source.path), "todos": done.trial.todos, "about": done.trial.about}
    kind = str(done.verdict.kind) if done.verdict is not None else None
    return {**facts, "right": done.right, "problem": said, "verdict": kind, "picture": done.picture}
