"""`kata hunt`: a file with one planted bug, to find and to fix."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence

from grader.commands import lookups
from grader.content.catalog import Catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.grade import grade, lacks_library
from grader.learner import progress
from grader.learner.progress import History
from grader.options import Options
from grader.output import verdict_text
from grader.output.console import Commands, add_sim_arch, examples, open_catalog, open_progress, say_json, tell, warn
from grader.output.terminal import painted, plain
from grader.output.verdict_text import display_path
from grader.practice import hunts
from grader.practice.hunts import Hunt, HuntError, Record
from grader.system.processes import leaving_nothing

_NEAR = f"Where a line is missing, the {hunts.NEAR} lines of code before and after that place count."


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "hunt",
        help="find and fix one bug in a kernel that looks right",
        usage="kata hunt [NAME ...] [--level LEVEL] [--verdict] [--anyway] [--seed N]\n"
        "       kata hunt answer LINE [HUNT]\n"
        "       kata hunt grade | solution [HUNT]\n"
        "       kata hunt list",
        description=f"Draw a solution with one planted bug, and write it into {hunts.PLACE}/ without the comments that "
        "would tell where it is. You get what users report. Name the line with `answer`, counted in the file as it was "
        f"drawn. {_NEAR} Then fix the file, and check it with `grade`. HUNT is the hunt drawn last, unless you name "
        "one. Draws from the katas that you have passed, since a hunt shows almost the whole solution. A hunt is hard "
        "where the file is long, no verdict names the line, or something is missing. Exit code 0: drawn, right or "
        "fixed, 1: not, 2: the command or the machine is at fault.",
        epilog=examples(
            "kata hunt",
            "kata hunt sgemm softmax --level hard",
            "kata hunt relu --anyway --verdict",
            "kata hunt answer 27",
            "kata hunt grade",
        ),
    )
    names = "katas, families or levels of katas to draw from, or a hunt to draw again; or answer, grade, solution, list"
    parser.add_argument("words", nargs="*", metavar="NAME", help=names)
    parser.add_argument("--level", choices=hunts.LEVELS, help="how hard the hunt is (default: any)")
    parser.add_argument("--verdict", action="store_true", help="also show the verdict of the simulator on the file")
    parser.add_argument(
        "--anyway", action="store_true", help="also of katas that you have not passed; this is recorded"
    )
    parser.add_argument("--seed", type=int, help="draw by this number, not by chance")
    add_sim_arch(parser)
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_hunt)


@leaving_nothing()
def _hunt(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    known = open_progress(catalog)
    first, *rest = options.words or [""]
    actions: Mapping[str, Callable[..., int]] = {
        "answer": _answer,
        "grade": _grade,
        "solution": _solution,
        "list": _list,
    }
    if first in actions:
        return actions[first](catalog, known, rest, options)
    return _draw(catalog, known, options.words, options)


def _draw(catalog: Catalog, known: History, names: Sequence[str], options: argparse.Namespace) -> int:
    hunt = _drawn(catalog, known, names, options)
    if hunt is None:
        return 1
    if refusal := lookups.refusal([hunt.kata], f"hunt {hunt.name}", anyway=options.anyway):
        print(refusal, file=sys.stderr)
        return 1
    kept = hunts.write(hunt)
    _keep(hunt, hunts.DRAWN)
    if known.passed(hunt.kata.name) is None:
        warn(progress.keep_solution(hunt.kata))
    if options.json:
        say_json({**_record(hunt), "kept": kept and str(kept)})
    else:
        _say_drawn(hunt)
        if kept is not None:
            print(f"  kept      {display_path(kept)}")
    if options.verdict:
        _show_verdict(hunt, options)
    return 0


def _drawn(catalog: Catalog, known: History, names: Sequence[str], options: argparse.Namespace) -> Hunt | None:
    """The hunt that these words name, or one at random of what they allow; None if there is none, and says why."""
    every = hunts.bugs(catalog)
    again = len(names) == 1 and names[0] in every
    if again and (options.anyway or names[0] in hunts.records(known) or known.passed(every[names[0]].kata.name)):
        return hunts.named(catalog, names[0])
    if again:
        kata = every[names[0]].kata.name
        raise HuntError(
            f"you have not passed {kata}. `kata hunt {names[0]} --anyway` draws it; your progress notes that."
        )
    chosen = {kata.name for kata in catalog.select(names)}
    if not options.anyway:
        chosen = {name for name in chosen if known.passed(name) is not None}
    here = {name for name in chosen if not lacks_library(catalog.katas[name])}
    found = {name: wrong for name, wrong in every.items() if wrong.kata.name in here}
    done = [
        name for name, record in hunts.records(known).items() if record.solved or hunts.SOLUTION_SHOWN in record.words
    ]
    hunt = hunts.draw(found, options.level, options.seed, done)
    if hunt is None:
        of = " ".join(names) or "these katas"
        level = f" of level {options.level}" if options.level else ""
        more = "" if options.anyway else " --anyway also draws from katas that you have not passed."
        print(f"No hunt{level} is left for {of}.{more}", file=sys.stderr)
    return hunt


def _record(hunt: Hunt) -> dict[str, object]:
    facts = {"hunt": hunt.name, "kata": hunt.kata.name, "level": hunt.level, "report": hunt.report}
    return {**facts, "file": str(hunt.path), "lines": hunt.text.count("\n")}


def _say_drawn(hunt: Hunt) -> None:
    print(f"{hunt.name}: one bug, {hunt.level}")
    print(f"  file      {display_path(hunt.path)}")
    print(f"  computes  {load_spec(hunt.kata).computes}")
    print(f"  report    {hunt.report}")
    print(f"  line      kata hunt answer LINE    {_NEAR}")
    print("  fix       kata hunt grade          when you have fixed the file")


def _show_verdict(hunt: Hunt, options: argparse.Namespace) -> None:
    """The verdict on the file as it is now."""
    _keep(hunt, hunts.VERDICT_SHOWN)
    graded = grade(hunt.kata, Options(device="sim", sim_arch=options.sim_arch), source=hunt.path, tell=tell)
    print(verdict_text.explanation(graded), file=sys.stderr if options.json else sys.stdout)


def _named(catalog: Catalog, known: History, names: Sequence[str]) -> Hunt:
    """The hunt of this name, or the one drawn last. Raises HuntError."""
    drawn = list(hunts.records(known))
    if len(names) > 1 or not (names or drawn):
        raise HuntError("name one hunt." if names else "no hunt was drawn yet. `kata hunt` draws one.")
    return hunts.named(catalog, names[0] if names else drawn[-1])


def _answer(catalog: Catalog, known: History, words: Sequence[str], options: argparse.Namespace) -> int:
    if not words or not words[0].isdecimal():
        raise HuntError("`kata hunt answer` needs a line: `kata hunt answer 27`.")
    hunt, line = _named(catalog, known, words[1:]), int(words[0])
    lines = hunt.text.rstrip("\n").split("\n")
    if not 0 < line <= len(lines):
        raise HuntError(f"{hunt.name} has the lines 1 to {len(lines)}, counted in the file as it was drawn.")
    right = line in hunt.lines
    _keep(hunt, hunts.FOUND if right else hunts.MISSED, f"line {line}")
    record = _record_of(catalog, hunt)
    if options.json:
        say_json({**_record(hunt), "line": line, "right": right, "state": record.state})
        return 0 if right else 1
    where = f"line {line}  {lines[line - 1].strip()}"
    print(f"{hunt.name}: {painted('right', 'green') if right else painted('not there', 'red')}: {plain(where)}")
    if right:
        _say_next(hunt, record)
    return 0 if right else 1


def _say_next(hunt: Hunt, record: Record) -> None:
    if record.solved:
        print(f"  solved    {record.state}")
        print(f"  bug       {hunt.wrong.wrong}")
    elif hunts.FIXED in record.words:
        print("  now       name the line of the file as it was drawn: kata hunt answer LINE")
    else:
        print(f"  now       fix {display_path(hunt.path)}, then: kata hunt grade")


def _grade(catalog: Catalog, known: History, words: Sequence[str], options: argparse.Namespace) -> int:
    hunt = _named(catalog, known, words)
    source = source_of(hunt.path)
    if source.problem:
        raise HuntError(f"{hunt.path} cannot be read ({source.problem}). `kata hunt {hunt.name}` writes it again.")
    graded = grade(hunt.kata, Options(device="sim", sim_arch=options.sim_arch), source=hunt.path, tell=tell)
    _keep(hunt, hunts.FIXED if graded.passed else hunts.NOT_FIXED, str(graded.verdict.kind))
    if options.verdict and not graded.passed:
        _keep(hunt, hunts.VERDICT_SHOWN)
    record, changed = _record_of(catalog, hunt), hunt.differences(source.text)
    if options.json:
        facts = {"fixed": graded.passed, "verdict": str(graded.verdict.kind), "changed": changed}
        say_json({**_record(hunt), **facts, "state": record.state})
    elif graded.passed:
        print(f"{hunt.name}: {painted('fixed', 'green')}, {changed} lines of code gone or new, {graded.time_s:.1f} s")
        _say_next(hunt, record)
    elif options.verdict:
        print(verdict_text.explanation(graded))
    else:
        untouched = " It is as it was drawn." if not changed else ""
        print(f"{hunt.name}: {painted('not fixed', 'red')}: {graded.verdict.kind}.{untouched} --verdict shows where.")
    return 0 if graded.passed else 1


def _solution(catalog: Catalog, known: History, words: Sequence[str], options: argparse.Namespace) -> int:
    hunt = _named(catalog, known, words)
    if refusal := lookups.refusal([hunt.kata], f"hunt solution {hunt.name}", anyway=options.anyway):
        print(refusal, file=sys.stderr)
        return 1
    right = hunts.right_text(hunt)
    names = ("as drawn", "without the bug")
    lines = list(difflib.unified_diff(hunt.text.split("\n"), right.split("\n"), *names, lineterm="", n=2))
    _keep(hunt, hunts.SOLUTION_SHOWN)
    if options.json:
        say_json({**_record(hunt), "bug": hunt.wrong.wrong, "answers": sorted(hunt.lines), "diff": lines})
        return 0
    print(f"{hunt.name}: {hunt.wrong.wrong}")
    for line in lines:
        print(plain(line))
    return 0


def _list(catalog: Catalog, known: History, words: Sequence[str], options: argparse.Namespace) -> int:
    found = hunts.records(known)
    if options.json:
        say_json([{"hunt": name, "state": record.state, "solved": record.solved} for name, record in found.items()])
        return 0
    for name, record in found.items():
        print(f"{name}: {painted('solved', 'green') if record.solved else 'open'}: {record.state}")
    solved = sum(record.solved for record in found.values())
    print(f"{solved} of {len(found)} solved. `kata hunt` draws another.")
    return 0


def _keep(hunt: Hunt, word: str, summary: str = "") -> None:
    warn(progress.keep_practice(hunt.kata, progress.HUNT, hunt.name, word, summary))


def _record_of(catalog: Catalog, hunt: Hunt) -> Record:
    """What was done with the hunt up to now."""
    return hunts.records(open_progress(catalog)).get(hunt.name, Record(hunt.name, ()))
