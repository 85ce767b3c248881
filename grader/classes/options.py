"""The options of `kata grade` that are about submissions. What grades them is imported where they are given."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from grader.content.catalog import CatalogError
from grader.service.task import LIMIT_S


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "for classes",
        "Grade submitted folders and archives (zip, tar) with files named after katas at any depth. With NAME it "
        "grades only these katas and reports submissions without one. It writes nothing into the folders, this clone "
        "or your progress. docs/classes.md describes the rows that --json and --results write, and the way to and from "
        "Canvas and Moodle.",
    )
    group.add_argument(
        "--submission",
        type=Path,
        nargs="+",
        action="extend",
        metavar="DIR",
        help="grade these folders or archives: one per student",
    )
    group.add_argument(
        "--submissions", type=Path, metavar="PARENT", help="grade every folder and archive in PARENT, itself either"
    )
    group.add_argument(
        "--results", type=Path, metavar="FILE", help="save the rows in this file, and skip those that it already has"
    )
    group.add_argument("--csv", type=Path, metavar="FILE", help="also write the table of verdicts to this file")
    group.add_argument(
        "--grades", type=Path, metavar="FILE", help="also write points to this file, in the form of --roster"
    )
    group.add_argument(
        "--roster",
        type=Path,
        metavar="FILE",
        help="the students, as Canvas or Moodle exports them; without it, --grades has nbgrader's columns",
    )
    group.add_argument("--assignment", metavar="NAME", help="the roster's column that gets the points")
    group.add_argument("--jobs", type=_count, metavar="N", help="how many to grade at a time (default: all cores)")
    group.add_argument(
        "--time-limit", type=_seconds, default=LIMIT_S, metavar="S", help=f"seconds for one file (default {LIMIT_S:g})"
    )


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")


def wanted(options: argparse.Namespace) -> bool:
    """Whether a command is about submissions. Raises CatalogError for options that go with them alone, or never."""
    if options.submission or options.submissions:
        if options.solutions or options.file:
            raise CatalogError("--submission has its own files; leave out --solutions and --file.")
        return True
    if options.results or options.csv or options.jobs or options.grades:
        raise CatalogError(
            "--results, --csv, --grades and --jobs are for --submission or --submissions; name one of these, too."
        )
    return False
