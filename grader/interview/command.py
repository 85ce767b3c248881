"""`kata interview`: a kata or two against the clock, with hidden shapes and no hints, and a page at the end."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from grader.content.catalog import LEVELS, Catalog, find_root
from grader.content.start import SKELETON, SKETCH
from grader.interview import clock, session
from grader.interview.plan import MINUTES, MOST_MINUTES, InterviewError, PartRequest, load_plans
from grader.interview.session import Session
from grader.output.console import Commands, examples, open_catalog, open_progress, say_json, tell
from grader.output.terminal import is_usable
from grader.output.verdict_text import display_path

PAGE, RECORD = "interview.html", "interview.json"
NONE_ON = "no interview is on. `kata interview` starts one."


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "interview",
        help="practise for an interview: a kata against the clock, hidden shapes, no hints, a page at the end",
        description="Start an interview. It draws a kata, puts a blank file into a folder of interviews/, and starts "
        "the clock. The blank has the task, what a verdict asks and the launcher's signature. Your files in work/ and "
        "exercises/ do not change. On a terminal the clock stays on screen, with keys: g grades, f finishes, q leaves. "
        "The clock does not stop: resume after a crash or a break. At the end you get one page, interview.html, and "
        "the same as JSON: attempts, verdicts, speed, counters, the diff, and questions to ask with a rubric. Exit "
        "code 0: started, or as the task says, 2: the command or the machine is at fault.",
        epilog=examples(
            "kata interview --minutes 45 --level hard",
            "kata interview --plan screen",
            "kata interview --kata relu_f32 --minutes 10 --sketch",
            "kata interview grade",
            "kata interview finish",
        ),
    )
    parser.add_argument("--minutes", type=_minutes, metavar="N", help=f"for the kata (default {MINUTES:g})")
    parser.add_argument("--level", choices=LEVELS, help="draw a kata of this level (default: medium)")
    parser.add_argument("--family", metavar="FAMILY", help="draw a kata of this family")
    parser.add_argument("--kata", metavar="KATA", help="this kata, even if you know it")
    parser.add_argument("--plan", metavar="NAME", help="several katas in a row: screen, onsite, sprint")
    parser.add_argument("--seed", type=int, help="draw the same kata and the same shapes again")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--sketch", dest="start", action="store_const", const=SKETCH, help="with kernels' signatures")
    ways.add_argument("--skeleton", dest="start", action="store_const", const=SKELETON, help="with all but the answers")
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto", help="grade on it (default: auto)")
    parser.add_argument("--no-clock", action="store_true", help="start without the clock on screen")
    parser.set_defaults(command=_begin)
    _add_tasks(parser.add_subparsers(metavar="TASK", title="while one is on"))


def _add_tasks(tasks: Commands[argparse.ArgumentParser]) -> None:
    status = tasks.add_parser("status", help="the time left, what was graded; exit code 0, or 1 if no interview is on")
    status.set_defaults(command=_status)
    grade = tasks.add_parser("grade", help="grade the file as it is; exit code 0: passes, 1: does not")
    grade.set_defaults(command=_grade)
    finish = tasks.add_parser("finish", help="end this part; after the last one, write the page")
    finish.add_argument("--all", action="store_true", help="also end the remaining parts")
    finish.set_defaults(command=_finish)
    for parser in (status, grade, finish):
        parser.add_argument("--json", action="store_true", help="as a JSON object")
    resume = tasks.add_parser("resume", help="continue after a crash, or show the clock again")
    resume.set_defaults(command=_resume)
    abandon = tasks.add_parser("abandon", help="end it without a page; the file stays where it is")
    abandon.set_defaults(command=_abandon)


def _minutes(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= MOST_MINUTES:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0, up to {MOST_MINUTES:g}")


def _begin(options: argparse.Namespace) -> int:
    from grader.compile.toolchain import find_gpu, find_toolchain
    from grader.grade import Options, targets
    from grader.interview import run

    catalog = open_catalog()
    plan, requests = _requests(options)
    if options.start is not None:
        requests = tuple(replace(request, start=options.start) for request in requests)
    find_toolchain()  # a machine that cannot grade says so before the clock runs
    targets(Options(options.device), find_gpu())
    on = run.begin(catalog, open_progress(catalog), requests, plan=plan, seed=options.seed, device=options.device)
    print(f"Interview {on.name}. Shapes are hidden, hints are off, and the time runs until you finish.")
    return _go_on(on, catalog, show_clock=not options.no_clock)


def _requests(options: argparse.Namespace) -> tuple[str, tuple[PartRequest, ...]]:
    """The plan's name, and what to draw."""
    named = {name: getattr(options, name) for name in ("minutes", "level", "family", "kata")}
    given = [name for name, value in named.items() if value is not None]
    if options.plan is None:
        level = options.level if {"family", "kata"} & set(given) else options.level or "medium"
        request = PartRequest(options.minutes or MINUTES, level, options.family, options.kata)
        return "", (request,)
    if given:
        raise InterviewError(f"--plan sets the katas and the times; leave out --{given[0]}.")
    plans = load_plans()
    if options.plan not in plans:
        told = "; ".join(f"{plan.name}: {plan.about}" for plan in plans.values())
        raise InterviewError(f"no plan is called {options.plan!r}. The plans are: {told}.")
    return options.plan, plans[options.plan].parts


def _go_on(on: Session, catalog: Catalog, *, show_clock: bool) -> int:
    """Show the task, and the clock where that is possible; afterwards the page, if it is over."""
    from grader.interview import live

    _show_task(on, catalog)
    if not (show_clock and is_usable()):
        print("`kata interview grade` grades it, `status` says the time, `finish` ends it.", flush=True)
        return 0
    on = live.show_clock(on, catalog, lambda now: _show_task(now, catalog))
    if on.over and on.current:
        return _write_page(on, catalog, as_json=False)
    if on.current:
        print(
            f"{clock.format_duration(on.left_s(on.part))} left, and the clock runs. `kata interview resume` continues."
        )
    return 0


def _show_task(on: Session, catalog: Catalog) -> None:
    from grader.content import rung
    from grader.interview import handout

    asked = on.parts[on.part]
    kata = catalog.katas[asked.kata]
    several = f"part {on.part + 1} of {len(on.parts)}, " if len(on.parts) > 1 else ""
    print(rung.header(kata).partition("\n")[0])
    print(
        f"  time    {several}{kata.level}, {asked.minutes:g} minutes, {clock.format_duration(on.left_s(on.part))} left"
    )
    print(f"  file    {display_path(on.handout(on.part))}, {handout.WORDS[asked.start]}", flush=True)


def _now_on(catalog: Catalog) -> Session:
    """The interview that is on. Raises InterviewError where there is none."""
    on = _waiting(catalog)
    if on is None:
        raise InterviewError(NONE_ON)
    return on


def _waiting(catalog: Catalog) -> Session | None:
    """The interview that is on, if there is one. Raises InterviewError where its katas are not there."""
    on = session.current(catalog.root)
    gone = [part.kata for part in on.parts if part.kata not in catalog.katas] if on else []
    if gone:
        raise InterviewError(f"{gone[0]}, which is asked, is no longer in the catalogue. `kata interview abandon`.")
    return on


def _status(options: argparse.Namespace) -> int:
    from grader.interview import run

    catalog = open_catalog()
    on = _waiting(catalog)
    if options.json:
        say_json(run.status(on) if on else None)
    elif on is None:
        last = [folder / PAGE for folder in session.every(catalog.root) if (folder / PAGE).is_file()][-1:]
        page = f" The last one's page: {display_path(last[0])}" if last else " `kata interview` starts one."
        print(f"No interview is on.{page}", file=sys.stderr)
    else:
        _print_status(on, catalog)
    return 0 if on else 1


def _print_status(on: Session, catalog: Catalog) -> None:
    from grader.interview import run

    known = run.status(on)
    _show_task(on, catalog)
    tried = ", ".join(f"{item['verdict']} at {clock.format_duration(item['asked_s'])}" for item in known["attempts"])
    print(f"  graded  {tried or 'not yet'}")
    for gap in known["gaps"]:
        print(
            f"  gap     {clock.format_duration(gap['start_s'])} to {clock.format_duration(gap['end_s'])}: {gap['why']}"
        )
    if on.over:
        print("  ended   `kata interview finish` writes the page")


def _grade(options: argparse.Namespace) -> int:
    from grader.interview import run

    catalog = open_catalog()
    on = _now_on(catalog)
    if on.over:
        raise InterviewError(run.OVER)
    part = on.part
    on, graded = run.ask(on, catalog, tell=tell)
    if options.json:
        attempt = next(item for item in reversed(on.attempts(part)) if item.verdict)
        assert attempt.verdict is not None
        say_json({"asked_s": attempt.asked_s, "in_time": attempt.in_time, **attempt.verdict["record"]})
    else:
        print(run.words_of(on, part), flush=True)
    return 0 if graded.passed else 1


def _finish(options: argparse.Namespace) -> int:
    from grader.interview import run

    catalog = open_catalog()
    on = _now_on(catalog)
    with session.held(on.folder / ".finish", "another command is just finishing this interview. Wait for it."):
        on = run.end_part(on, catalog)
        while options.all and not on.over:
            on = run.end_part(on, catalog)
    if on.over:
        return _write_page(on, catalog, as_json=options.json)
    if options.json:
        say_json(run.status(on))
    else:
        _show_task(on, catalog)
    return 0


def _write_page(on: Session, catalog: Catalog, *, as_json: bool) -> int:
    """Grade what was handed in, write page and record, and only then say that it is done."""
    from grader.interview import report_data
    from grader.interview.page import page

    tell("grading what was handed in, for the page; the clock has stopped")
    with session.held(on.folder / ".finish", "another command is just finishing this interview. Wait for it."):
        on, record = report_data.complete(session.load(on.folder), catalog, tell)
        session.save(on.folder / RECORD, json.dumps(record, indent=1, allow_nan=False) + "\n")
        session.save(on.folder / PAGE, page(record))
        if on.current:
            on = session.append(on, session.DONE)
    if as_json:
        say_json(record)
        return 0
    for part in record["parts"]:
        print(f"{part['kata']}: {_went(part)}")
    _say_where(on.folder)
    return 0


def _went(part: dict[str, object]) -> str:
    """How a part went, in a few words."""
    if part["begun"] is None:
        return "not begun"
    final = part["final"]
    handed_in = final["verdict"] if isinstance(final, dict) else "nothing"
    right = part["first_right_s"]
    when = f"right after {clock.format_duration(right)}" if isinstance(right, float) else "no right answer"
    return f"{when}; handed in: {handed_in}"


def _say_where(folder: Path) -> None:
    print(f"  page    {display_path(folder / PAGE)}")
    print(f"  JSON    {display_path(folder / RECORD)}")


def _resume(options: argparse.Namespace) -> int:
    from grader.interview import run

    catalog = open_catalog()
    on = run.recover(_now_on(catalog), catalog)
    if on.over:
        return _write_page(on, catalog, as_json=False)
    return _go_on(on, catalog, show_clock=True)


def _abandon(options: argparse.Namespace) -> int:
    from grader.interview import run

    on = session.current(find_root())
    if on is None:
        raise InterviewError(NONE_ON)
    on = run.abandon(on)
    print(f"Abandoned. Your file stays: {display_path(on.handout(on.part))}")
    return 0
