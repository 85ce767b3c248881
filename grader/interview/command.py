"""`kata interview`: a kata or two against the clock, with hidden shapes and no hints, and a page at the end."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from grader.content.catalog import LEVELS, Catalog, find_root
from grader.content.start import SKELETON, SKETCH
from grader.interview import clock, session
from grader.interview.plan import MOST_MINUTES, InterviewError, PartRequest, load_plans
from grader.interview.session import Session
from grader.output.console import Commands, examples, open_catalog, open_progress, say_json, tell
from grader.output.terminal import is_usable
from grader.output.verdict_text import display_path

PAGE, RECORD = "interview.html", "interview.json"
PLANS_HELP = "several parts in a row: screen, onsite, inference, training, debugging, paper, sprint"
NONE_ON = "no interview is on. `kata interview` starts one."


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "interview",
        help="practise for an interview: a kata against the clock, hidden shapes, no hints, a page at the end",
        description="Start an interview. It draws a family, then a kata of it, and starts the clock. The first five "
        "minutes are for questions and estimates, which you write into a form. Then you get a blank file, in a folder "
        "of interviews/. The blank has the task, what a verdict asks and the launcher's signature. After a pass come "
        "harder questions. A hint costs minutes: the first 2, the second 3, the third 5. Your files in work/ and "
        "exercises/ do not change. On a terminal the clock stays on screen, with keys: c ends the first minutes, g "
        "grades, n takes a hint, f finishes, q leaves. The clock does not stop: resume after a crash or a break. At "
        "the end you get one page, interview.html, and the same as JSON: a conclusion, your notes beside strong "
        "answers, attempts, speed, counters, the diff, and questions to ask with a rubric. Exit code 0: started, or as "
        "the task says, 2: the command or the machine is at fault.",
        epilog=examples(
            "kata interview --minutes 45 --level hard",
            "kata interview --plan screen",
            "kata interview --plan paper",
            "kata interview --kata relu_f32 --minutes 10 --sketch",
            "kata interview grade",
            "kata interview finish",
        ),
    )
    parser.add_argument("--minutes", type=_minutes, metavar="N", help="for the kata (default: as estimated)")
    parser.add_argument("--level", choices=LEVELS, help="draw a kata of this level (default: medium)")
    parser.add_argument("--family", metavar="FAMILY", help="draw a kata of this family")
    parser.add_argument("--kata", metavar="KATA", help="this kata, even if you know it")
    parser.add_argument("--plan", metavar="NAME", help=PLANS_HELP)
    parser.add_argument("--seed", type=int, help="draw the same kata and the same shapes again")
    parser.add_argument("--no-opening", action="store_true", help="the file at once, without the first five minutes")
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
    code = tasks.add_parser("code", help="end the first five minutes: the file is handed out")
    code.set_defaults(command=_code)
    nudge = tasks.add_parser("nudge", help="say what the next hint costs; with --yes, take it")
    nudge.add_argument("--yes", action="store_true", help="take the hint, at its cost")
    nudge.set_defaults(command=_nudge)
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
    from grader.grade import targets
    from grader.interview import run
    from grader.options import Options

    catalog = open_catalog()
    plan, requests = _requests(options)
    if options.start is not None:
        requests = tuple(replace(request, start=options.start) for request in requests)
    if options.no_opening:
        requests = tuple(replace(request, opening=False) for request in requests)
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
        request = PartRequest(options.minutes, level, options.family, options.kata)
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
        if on.parts[on.part].on_paper:
            print("`kata interview finish` ends this part, `status` says the time.", flush=True)
        elif on.in_opening(on.part):
            print("`kata interview code` ends the first minutes and hands out the file.", flush=True)
        else:
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
    from grader.interview import handout

    part, asked = on.part, on.parts[on.part]
    several = f"part {part + 1} of {len(on.parts)}, " if len(on.parts) > 1 else ""
    level = "on paper" if asked.on_paper else catalog.katas[asked.kata].level
    first = f", and {asked.opening:g} before" if asked.opening else ""
    left = clock.format_duration(on.left_s(part))
    print(handout.title(catalog, asked))
    print(f"  time    {several}{level}, {asked.minutes:g} minutes{first}, {left} left")
    if asked.opening:
        print(f"  notes   {display_path(on.notes(part))}")
    if on.in_opening(part):
        minutes = clock.format_duration(max(0.0, on.opening_left_s(part)))
        print(f"  first   ask, assume and estimate in the notes, for {minutes}; then you get the file", flush=True)
    else:
        print(f"  file    {display_path(on.handout(part))}, {handout.WORDS[asked.start]}", flush=True)
    if on.answered(part):
        print(f"  then    answer in {display_path(on.follow_ups(part))}", flush=True)


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
    if on is None:
        return None
    from grader.interview import run

    return run.catch_up(on, catalog)


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


def _code(options: argparse.Namespace) -> int:
    from grader.interview import run

    catalog = open_catalog()
    _show_task(run.start_code(_now_on(catalog), catalog), catalog)
    return 0


def _nudge(options: argparse.Namespace) -> int:
    from grader.interview import run

    catalog = open_catalog()
    on = _now_on(catalog)
    number, minutes = run.nudge_cost(on, catalog)
    if not options.yes:
        print(f"Hint {number} costs {minutes:g} minutes of your time. `kata interview nudge --yes` takes it.")
        return 0
    on, hint = run.nudge(on, catalog)
    print(f"{hint}\n  hint {number}, {minutes:g} minutes; {clock.format_duration(on.left_s(on.part))} left")
    return 0


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
        print(f"{part['name']}: {_went(part)}")
    _say_where(on.folder)
    return 0


def _went(part: dict[str, Any]) -> str:
    """How a part went, in a few words."""
    if part["begun"] is None:
        return "not begun"
    if part["on_paper"]:
        return str(part["conclusion"]["remarks"][0])
    final = part["final"]
    handed_in = final["verdict"] if isinstance(final, dict) else "nothing"
    right = part["first_right_s"]
    late = "" if part["first_right_in_time"] else ", after the time was up"
    when = f"right after {clock.format_duration(right)}{late}" if isinstance(right, float) else "no right answer"
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
    written = on.notes(on.part) if on.in_opening(on.part) else on.handout(on.part)
    on = run.abandon(on)
    print(f"Abandoned. Your file stays: {display_path(written)}")
    return 0
