"""`kata grade --submission` and `--submissions`: submitted folders, graded in parallel, as rows."""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from grader.classes.gradebook import Result, grades, harmless, read_roster
from grader.classes.rows import KEY, Results, ResultsError, Row, brief
from grader.classes.submission import NOT_GRADED, Entry, Shelf, Submission, entries, find_submissions
from grader.compile.build import Target
from grader.compile.toolchain import find_gpu, find_toolchain
from grader.content.catalog import Catalog, CatalogError
from grader.content.source_file import Source
from grader.devices.sim import engine_library
from grader.grade import targets
from grader.options import Options
from grader.output.console import open_catalog, tell, warn
from grader.output.grade_json import FORMAT, record
from grader.output.terminal import plain
from grader.service.replies import Reply, replies
from grader.service.task import Task
from grader.storage import cache
from grader.storage.whole_file import write_whole
from grader.verdict import Grade, Kind, Verdict

BAR = 24  # characters
WIDTH = 120  # characters, where the terminal does not say
ENDED = 2  # runs in a row that ended during the grade of a file: it is not graded again


def grade_submissions(options: argparse.Namespace, asked: Options) -> int:
    catalog = open_catalog()
    names = [kata.name for kata in catalog.select(options.names)] if options.names else []
    _check_grades(options, names)
    with Shelf() as shelf:
        submissions = find_submissions(options.submission or [], options.submissions, shelf)
        count = options.jobs or os.cpu_count() or 1
        asked = replace(asked, jobs=max(1, (os.cpu_count() or 1) // count), last_failure=False)
        devices = _make_ready(asked)
        found = [entry for submission in submissions for entry in entries(submission, catalog, names)]
        with Results(options.results) if options.results else contextlib.nullcontext() as results:
            run = _Run(catalog, asked, devices, results, _Say(len(found), as_json=options.json))
            rows = [*run.rows(found, count=count, limit_s=options.time_limit)]
    _summarise(catalog, submissions, rows, options)
    if options.grades is not None:
        _write_grades(options, names, submissions, rows)
    if any(row["verdict"] == NOT_GRADED for row in rows):
        return 2
    return 0 if rows and all(row["passed"] for row in rows) else 1


def _check_grades(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Raises a Fault for what could only fail after hours of grading."""
    if options.grades is None:
        if options.roster or options.assignment:
            raise CatalogError("--roster and --assignment are for --grades; say which FILE gets the points.")
        return
    if not names:
        raise CatalogError("--grades needs to know which katas count; name them: `kata grade relu_f32 --grades ...`.")
    if options.roster is not None:
        grades([], len(names), read_roster(options.roster), options.assignment)


def _write_grades(
    options: argparse.Namespace, names: Sequence[str], submissions: Sequence[Submission], rows: Sequence[Row]
) -> None:
    """Points for each submission: how many of the katas that count it passed. A file that was not graded is left to
    the teacher, with all of its submission."""
    results = []
    for item in submissions:
        own = [row for row in rows if row["submission"] == item.name and row["kata"] in names]
        if any(row["verdict"] == NOT_GRADED for row in own):
            warn(f"{plain(item.name)} gets no points: not all of its files could be graded")
            results.append(Result(item, None, ""))
            continue
        words = ", ".join(f"{row['kata']}: {row['verdict']}" for row in own)
        results.append(Result(item, sum(bool(row["passed"]) for row in own), words))
    roster = read_roster(options.roster) if options.roster is not None else None
    text, remarks = grades(results, len(names), roster, options.assignment)
    _write(options.grades, text, "--grades")
    for remark in remarks:
        warn(remark)


def _make_ready(options: Options) -> tuple[Target, ...]:
    """Prepare what every grade needs, so that a machine without it says so once. Raises a Fault."""
    found = targets(options, find_gpu())
    find_toolchain()
    if any(target.device == "sim" for target in found):
        engine_library(cache.cache_folder(), tell=tell)
    return found


_ENDS_RUNS = (
    f"{ENDED} runs ended unexpectedly while they graded it; `--submission` with this folder, and without --results, "
    "grades it again"
)


@dataclass(frozen=True)
class _Run:
    """One command's way from entries to rows."""

    catalog: Catalog
    options: Options
    devices: Sequence[Target]
    results: Results | None
    say: _Say

    def rows(self, found: Sequence[Entry], *, count: int, limit_s: float) -> Iterator[Row]:
        """A short row per entry: first the saved ones, then those that need no grade, then each as it is graded."""
        todo: list[tuple[str, Entry]] = []
        for entry in found:
            key = self._key(entry)
            if self.results is not None and key in self.results.kept:
                yield self.say.kept(self.results.kept[key])
            elif entry.verdict:
                yield self._keep(key, entry, _said(entry, entry.verdict, entry.summary))
            elif self._ended(key) >= ENDED:
                yield self._keep(key, entry, _said(entry, NOT_GRADED, _ENDS_RUNS))
            else:
                todo.append((key, entry))
        others = [item for item in todo if not self._ended(item[0])]
        yield from self._graded(others, count=min(count, len(others)), limit_s=limit_s)
        # A file whose grade ended a run comes last and alone: if this run ends too, that file is the cause.
        suspects = [item for item in todo if self._ended(item[0])]
        yield from self._graded(suspects, count=min(1, len(suspects)), limit_s=limit_s)

    def _ended(self, key: str) -> int:
        return self.results.ended.get(key, 0) if self.results is not None else 0

    def _graded(self, todo: Sequence[tuple[str, Entry]], *, count: int, limit_s: float) -> Iterator[Row]:
        with contextlib.closing(replies(self._tasks(todo), self.catalog.root, count=count, limit_s=limit_s)) as graded:
            for reply in graded:
                key, entry = reply.task.label
                row = self._keep(key, entry, self._record(entry, reply, limit_s))
                if self.results is not None:
                    self.results.end(key)
                yield row

    def _tasks(self, todo: Sequence[tuple[str, Entry]]) -> Iterator[Task]:
        """Each is noted as begun when it is asked for."""
        for key, entry in todo:
            if self.results is not None:
                self.results.begin(key)
            options = replace(self.options, within=str(entry.submission.folder))
            yield Task(entry.kata or "", options, entry.source, label=(key, entry))

    def _keep(self, key: str, entry: Entry, found: Mapping[str, Any]) -> Row:
        row = {"submission": entry.submission.name, **found, "file": entry.file, KEY: key}
        if self.results is not None and row["verdict"] != NOT_GRADED:  # that is for the next run to try again
            self.results.add(row)
        self.say.new(row)
        return brief(row)

    def _key(self, entry: Entry) -> str:
        """All that a row depends on: the submission's file, the kata as it is now, and how it is graded."""
        asked = {
            name: value for name, value in asdict(self.options).items() if name not in ("jobs", "device", "within")
        }
        of = [entry.submission.name, entry.kata, entry.file, entry.digest, entry.verdict, entry.summary]
        kata = self.catalog.katas.get(entry.kata or "")
        spec = hashlib.sha256(kata.spec_path.read_bytes()).hexdigest() if kata else ""
        parts = [of, str(kata and replace(kata, root=Path())), spec, asked, [str(target) for target in self.devices]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def _record(self, entry: Entry, reply: Reply, limit_s: float) -> Mapping[str, Any]:
        if reply.late:
            return self._timed_out(entry, limit_s)
        return _said(entry, NOT_GRADED, reply.error) if reply.error else reply.done["grade"]

    def _timed_out(self, entry: Entry, limit_s: float) -> Mapping[str, Any]:
        verdict = Verdict(Kind.TIME_OUT, f"compiling and checking it took longer than {limit_s:g} s")
        return record(Grade(self.catalog.katas[entry.kata or ""], Source(entry.source), (verdict,), limit_s))


def _said(entry: Entry, verdict: str, summary: str) -> dict[str, Any]:
    """A row instead of a grade, with the fields of a grade."""
    head = {"format": FORMAT, "kata": entry.kata, "file": entry.file, "sha256": None, "passed": False, "seconds": 0.0}
    return {**head, "device": None, "verdict": verdict, "summary": summary, "verdicts": [], "measurements": []}


# -- what is said ----------------------------------------------------------------------------------------------------


class _Say:
    """Progress on standard error: a bar on a terminal, else one line per row. ``as_json``: rows on standard output."""

    def __init__(self, total: int, *, as_json: bool) -> None:
        self._total, self._as_json, self._done = total, as_json, 0
        self._bar = sys.stderr.isatty()

    def kept(self, row: Row) -> Row:
        self._done += 1
        self._show(f"{_name(row)}: {row['verdict']}, as before")
        return row

    def new(self, row: Row) -> None:
        self._done += 1
        if self._as_json:
            print(json.dumps(row), flush=True)
        self._show(f"{_name(row)}: {row['verdict']}")

    def _show(self, text: str) -> None:
        if not self._bar:
            tell(f"[{self._done}/{self._total}] {text}")
            return
        full = BAR * self._done // self._total
        line = f"[{'#' * full}{'.' * (BAR - full)}] {self._done}/{self._total}  {text}"
        width = shutil.get_terminal_size().columns - 1
        end = "\n" if self._done == self._total else ""
        print(f"\r{line[:width]:<{width}}{end}", end="", file=sys.stderr, flush=True)


def _name(row: Row) -> str:
    return plain(f"{row['submission']} {row['kata'] or row['file']}")


def _summarise(
    catalog: Catalog, submissions: Sequence[Submission], rows: Sequence[Row], options: argparse.Namespace
) -> None:
    """The table of verdicts: katas in the order of the catalogue, submissions in that of the command."""
    verdicts = {(row["submission"], row["kata"]): str(row["verdict"]) for row in rows}
    katas = [name for name in catalog.katas if any(kata == name for _, kata in verdicts)]
    lines = []
    for item in submissions:
        own = [verdicts.get((item.name, kata), "") for kata in katas]
        lines.append([item.name, *own, str(sum(verdict == Kind.PASS.value for verdict in own))])
    if options.csv is not None:
        _write(options.csv, _csv(katas, lines), "--csv")
    if not options.json:
        for line in _table(katas, lines, rows):
            print(line)


def _table(katas: Sequence[str], lines: Sequence[Sequence[str]], rows: Sequence[Row]) -> Iterator[str]:
    table = [
        ["submission", *katas, "passed"],
        *([plain(line[0]), *(cell or "-" for cell in line[1:])] for line in lines),
    ]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    if sum(widths) + 2 * len(widths) <= shutil.get_terminal_size((WIDTH, 24)).columns:
        for line in table:
            yield "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
    else:  # too wide: what did not pass, by name
        width = max(len(line[0]) for line in table[1:])
        for name, *verdicts, passed in table[1:]:
            failed = [f"{kata}: {verdict}" for kata, verdict in zip(katas, verdicts, strict=True) if verdict != "pass"]
            given = [text for text in failed if not text.endswith(": -")]
            yield f"{name:<{width}}  {passed} passed{''.join(f', {text}' for text in given)}"
    for row in rows:
        if not row["kata"] or row["verdict"] == NOT_GRADED:
            yield plain(f"{_name(row)}: {row['verdict']}: {row['summary']}")
    yield f"{sum(bool(row['passed']) for row in rows)} of {len(rows)} passed"


def _csv(katas: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [["submission", *katas, "passed"], *(map(harmless, line) for line in lines)]
    )
    return text.getvalue()


def _write(path: Path, text: str, option: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise ResultsError(f"{path} cannot be written ({error.strerror}). Name another file for {option}.") from None
