"""`kata report`: one HTML file with all that is known of the learner's way through the katas."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from grader.content.catalog import Catalog, CatalogError, Kata
from grader.content.source_file import digest_of
from grader.fault import Fault
from grader.grade import grade
from grader.learner.progress import History
from grader.learner.state import State
from grader.learner.way import upcoming, way_of
from grader.options import Options
from grader.output import verdict_text
from grader.output.console import Commands, examples, open_states, save, tell, warn
from grader.verdict import Grade

FILE = "kata-report.html"
SECTIONS = {
    "progress": "Progress",
    "path": "The way",
    "speed": "Speed",
    "roofline": "Roofline",
    "memory": "Memory",
    "katas": "Every kata",
}


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        help="write a page about your progress: graph, speed over time, roofline, memory accesses",
        description="Write one HTML file that needs no other and loads nothing: how many katas you passed by level and "
        "family, the way through them as a graph, the speed of each timed grade with its interval, your kernels under "
        "the roofline of your card, and for a kata how its warps reach into memory, as the simulator counts it. "
        "Exit code 0, 1 if a kata named by --kata does not pass (the page says why), 2 if no page can be written. "
        "--card and --line write how many katas you passed, to show others.",
        epilog=examples(
            "kata report --open",
            "kata report --card me.svg",
            "kata report -o my.html",
            "kata report --kata mat_trans_f32_tiled",
        ),
    )
    parser.add_argument("-o", "--output", type=Path, default=Path(FILE), metavar="FILE", help=f"default: {FILE}")
    parser.add_argument("--open", action="store_true", help="show it in the browser")
    parser.add_argument("--card", type=Path, metavar="FILE", help="write only a card to show others, an SVG; no page")
    parser.add_argument("--line", action="store_true", help="print only a line to show others; no page")
    drawn = parser.add_mutually_exclusive_group()
    drawn.add_argument(
        "--kata",
        action="append",
        metavar="NAME",
        help="draw the memory accesses of your file for this kata; repeat it for more (default: the one passed last)",
    )
    drawn.add_argument("--no-pictures", action="store_true", help="draw no memory accesses, and run nothing")
    parser.add_argument("--solutions", action="store_true", help="with --kata: draw the reference solution instead")
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    catalog, known, states = open_states()
    if options.solutions and not options.kata:
        raise CatalogError("--solutions changes what --kata draws; give --kata, too.")
    if options.card is not None or options.line:
        return _share(options, catalog, states, known)
    if options.kata:
        counted = [_counted(kata, options.solutions) for kata in catalog.select(options.kata)]
    else:
        counted = [] if options.no_pictures else _passed_last(catalog, known)
    save(options.output, page_of(catalog, states, known, counted))
    failed = [done for done in counted if not done.passed]
    for done in failed:
        print(verdict_text.headline(done))
    print(f"{options.output}: written")
    if options.open:
        _open(options.output)
    return 1 if options.kata and failed else 0


def _share(options: argparse.Namespace, catalog: Catalog, states: Mapping[str, State], known: History) -> int:
    """What others may see: how many katas are passed, and no file, verdict or hint."""
    from grader.pages import card

    found = card.standing(catalog, states, known)
    if options.card is not None:
        save(options.card, card.card(found))
        print(f"{options.card}: written")
    if options.line:
        print(card.in_a_line(found))
    return 0


def _open(page: Path) -> None:
    import webbrowser  # only who opens a page pays for it

    if not webbrowser.open(page.resolve().as_uri()):
        print(f"kata: no browser could be opened; open {page} yourself", file=sys.stderr)


def page_of(catalog: Catalog, states: Mapping[str, State], known: History, counted: Sequence[Grade]) -> str:
    """The page. Importing what draws it only here keeps the other commands quick."""
    from grader.pages import accesses, course, document, graph, paragraph, practice, roofline, speeds
    from grader.pages.markup import tag

    way, following = way_of(catalog, states, known), upcoming(catalog, states, known)
    practised = practice.last_results(known)
    sections = {"track": "Track", **SECTIONS} if way is not None else {**SECTIONS}
    sections |= {"practice": "Practice"} if practised else {}
    head = (
        tag("h1", "CUDA katas"),
        paragraph(f"Your way so far, written on {date.today().isoformat()} by `kata report`.", class_="quiet"),
        tag("nav", *(tag("a", words, href=f"#{name}") for name, words in sections.items())),
        course.overview(catalog, states, known, following),
    )
    parts = (
        *([course.track(way)] if way is not None else []),
        course.progress(catalog, states, following),
        graph.path_through(catalog, states, following, way),
        speeds.over_time(catalog, known),
        roofline.under_the_roof(catalog, known),
        accesses.into_memory(counted),
        course.every_kata(catalog, states),
        *([practice.results(known)] if practised else []),
    )
    return document("CUDA katas: progress", (*head, *parts))


def _passed_last(catalog: Catalog, known: History) -> list[Grade]:
    """The kata passed last, counted; none where its file has changed since, or where this machine cannot count."""
    last = next((event for event in reversed(known.events) if event.passed and event.kata in catalog.katas), None)
    if last is None or last.digest != digest_of(catalog.katas[last.kata].own_path):
        return []
    try:
        return [_counted(catalog.katas[last.kata], solutions=False)]
    except Fault as error:
        warn(f"no memory accesses are drawn: {error}")
        return []


def _counted(kata: Kata, solutions: bool) -> Grade:
    print(f"drawing {kata.name}: one grade on the simulator", file=sys.stderr, flush=True)
    source = kata.solution_path if solutions else kata.own_path
    return grade(kata, Options(device="sim", counters=True), source=source, tell=tell)
