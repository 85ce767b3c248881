"""How many katas each submission passed -> a CSV file that Canvas or Moodle imports, or that nbgrader's users know.

The form follows the roster, a file that the platform exports: its students stay, and one column gets the points.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.classes.submission import Submission
from grader.fault import Fault
from grader.output.terminal import plain

Record = list[str]

NBGRADER = (
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score"),
)
_NUMBERS = ("id", "identifier")  # columns with a platform's own number of a student
_NAMES = ("student", "full name", "sis user id", "sis login id", "id number", "username", "email address", "email")
_HALVES = (
    ("firstname", "lastname"),
    ("first name", "last name"),
    ("first name", "surname"),
    ("first_name", "last_name"),
)
_OF_CANVAS = ("student", "lastname", "firstname", "id", "sis user id", "sis login id", "integration id", "root account")
_KNOWN = "Canvas' export of its gradebook, Moodle's grading worksheet or grade export, and nbgrader's students.csv"


class RosterError(Fault):
    """A roster that cannot be read or has no column for the points; the message says which and what to do."""


@dataclass(frozen=True)
class Result:
    """What a submission passed of the katas that count, None if not all were graded; and a sentence about it."""

    submission: Submission
    passed: int | None
    words: str


@dataclass(frozen=True)
class Roster:
    """A platform's file: its head, and a record per line, each as long as the head."""

    path: Path
    head: Record
    records: list[Record]
    delimiter: str = ","

    def column(self, name: str) -> int | None:
        return next((place for place, title in enumerate(self.head) if title.strip().casefold() == name), None)

    @property
    def kind(self) -> str:
        """ "canvas", "worksheet", "moodle" or "nbgrader". Raises RosterError for other files."""
        titles = [title.strip().casefold() for title in self.head]
        if titles[0] in ("student", "lastname") and {"id", "section"} <= set(titles):
            return "canvas"
        if {"identifier", "grade", "last modified (grade)"} <= set(titles):
            return "worksheet"
        if "id" in titles and {"first_name", "last_name", "email"} & set(titles):
            return "nbgrader"
        if {"email address", "username", "id number"} & set(titles):
            return "moodle"
        raise RosterError(f"{self.path} is not a roster that is known here: {_KNOWN}.")


def read_roster(path: Path) -> Roster:
    """A platform's file. Raises RosterError where it cannot be read or is of another kind."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RosterError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise RosterError(f"{path} is not text in UTF-8; save it as CSV in UTF-8.") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if line]
    except csv.Error as error:
        raise RosterError(f"{path} is not CSV ({error}).") from None
    head, *rest = lines or [[]]
    if not head or any(len(line) > len(head) for line in rest):
        raise RosterError(f"{path} is not a table with a head; it must be one of these: {_KNOWN}.")
    roster = Roster(path, head, [line + [""] * (len(head) - len(line)) for line in rest], delimiter)
    assert roster.kind
    return roster


def grades(
    results: Sequence[Result], katas: int, roster: Roster | None, assignment: str | None
) -> tuple[str, list[str]]:
    """The text of a file to import, and remarks: which submissions and students have no counterpart.

    A submission that passed p of ``katas`` gets p / katas of the points that the roster names, else p. Raises
    RosterError where the roster has no column for that.
    """
    if roster is None or roster.kind == "nbgrader":
        return _for_nbgrader(results, katas, roster, assignment or "katas")
    place, roster = _target(roster, assignment, katas)
    owner, _, remarks = _owners(results, roster)
    most = _most(roster, place)
    feedback = roster.column("feedback comments")
    lines = [roster.head]
    for number, record in enumerate(roster.records):
        line, maximum = list(record), _maximum(roster, record) or most or float(katas)
        if (result := owner.get(number)) is not None and result.passed is not None:
            line[place] = _points(result.passed * maximum / katas)
            if feedback is not None:
                line[feedback] = result.words
        lines.append(line)
    return _text(_narrow(roster, lines, place), roster.delimiter), remarks


def _for_nbgrader(
    results: Sequence[Result], katas: int, roster: Roster | None, assignment: str
) -> tuple[str, list[str]]:
    """The columns of `nbgrader export`: every student of the roster, 0 points without a submission; or without a
    roster every submission. Who gets no points is left out."""
    lines, remarks = [list(NBGRADER)], list[str]()

    def add(identity: Mapping[str, str], passed: int | None) -> None:
        if passed is None:
            return
        numbers = {"raw_score": f"{passed:.1f}", "late_submission_penalty": "0.0", "score": f"{passed:.1f}"}
        known = {"assignment": assignment, "max_score": f"{katas:.1f}", **identity, **numbers}
        lines.append([known.get(name, "") for name in NBGRADER])

    if roster is None:
        for result in results:
            add({"student_id": harmless(result.submission.name)}, result.passed)
        return _text(lines, ","), remarks
    owner, unclear, remarks = _owners(results, roster)
    for number, record in enumerate(roster.records):
        if number not in unclear:
            found = {title.strip().casefold(): cell for title, cell in zip(roster.head, record, strict=True)}
            add({**found, "student_id": found["id"]}, owner[number].passed if number in owner else 0)
    return _text(lines, ","), remarks


# -- who is who ------------------------------------------------------------------------------------------------------


def _owners(results: Sequence[Result], roster: Roster) -> tuple[dict[int, Result], set[int], list[str]]:
    """Number of a record -> the result that is its student's; then the records for which that is unclear; then what
    was left over, in sentences."""
    keys = [set(_keys(roster, record)) for record in roster.records]
    found: dict[int, list[Result]] = {}
    unclear: set[int] = set()
    remarks = []
    for result in results:
        places = _places(result.submission, keys)
        if len(places) == 1:
            found.setdefault(places[0], []).append(result)
        else:
            unclear.update(places)
            why = "fits several students" if places else "fits none of the students"
            remarks.append(f"{plain(result.submission.name)} {why} in {roster.path}; add its points yourself")
    for several in (item for item in found.values() if len(item) > 1):
        names = ", ".join(plain(result.submission.name) for result in several)
        remarks.append(f"{names} are of one student in {roster.path}; add the points yourself")
    unclear.update(place for place, several in found.items() if len(several) > 1)
    return {place: several[0] for place, several in found.items() if len(several) == 1}, unclear, remarks


def _places(submission: Submission, keys: Sequence[set[str]]) -> list[int]:
    """The records that a submission may be of: by the platform's number, else by a name."""
    number = f"#{submission.id}"
    if submission.id and (found := [place for place, known in enumerate(keys) if number in known]):
        return found
    names = {_plain_name(submission.person), _plain_name(submission.name), f"#{submission.name}"} - {""}
    return [place for place, known in enumerate(keys) if names & known]


def _keys(roster: Roster, record: Sequence[str]) -> Iterator[str]:
    """All that a student may be called by: "#" and the platform's number, or a name without blanks and signs."""
    cells = {title.strip().casefold(): cell for title, cell in zip(roster.head, record, strict=True)}
    for title in _NUMBERS:
        if number := re.search(r"\d+$", cells.get(title, "").strip()):
            yield f"#{number[0]}"
    if roster.kind == "nbgrader" and cells["id"]:
        yield _plain_name(cells["id"])
    names = [cells[title] for title in _NAMES if cells.get(title)]
    names += [f"{cells[last]}, {cells[first]}" for first, last in _HALVES if cells.get(first) and cells.get(last)]
    for name in names:
        last, comma, first = name.partition(",")
        yield from (_plain_name(name), _plain_name(first + last) if comma else _plain_name(name.partition("@")[0]))


def _plain_name(name: str) -> str:
    """Letters and digits, without accents and case."""
    spread = unicodedata.normalize("NFKD", name.casefold())
    return "".join(sign for sign in spread if sign.isalnum())


# -- the column ------------------------------------------------------------------------------------------------------


def _target(roster: Roster, assignment: str | None, katas: int) -> tuple[int, Roster]:
    """The column that gets the points, and the roster with it. Raises RosterError where there is none."""
    if roster.kind == "worksheet":
        return roster.head.index(next(title for title in roster.head if title.strip().casefold() == "grade")), roster
    if assignment is None:
        raise RosterError(f"{roster.path} has a column for each assignment; name yours with --assignment.")
    short = [re.sub(r" \([^()]*\)$", "", title.strip()) for title in roster.head]  # Canvas: (1234), Moodle: (Real)
    bare = [re.sub(r"^[^:]+: ", "", title) for title in short]  # Moodle: Assignment: NAME
    for titles in (roster.head, short, bare):
        if titles.count(assignment) == 1:
            return titles.index(assignment), roster
    if roster.kind == "moodle" or assignment in bare:
        raise RosterError(f"{roster.path} has not one column {assignment!r}, but {', '.join(roster.head)}.")
    records = [[*record, _points(float(katas)) if _is_head(record) else ""] for record in roster.records]
    if not any(map(_is_head, records)):
        records.insert(0, ["    Points Possible", *[""] * (len(roster.head) - 1), _points(float(katas))])
    return len(roster.head), Roster(roster.path, [*roster.head, assignment], records, roster.delimiter)


def _is_head(record: Sequence[str]) -> bool:
    """Whether a record of Canvas' is about the assignments: their points."""
    return "Points Possible" in record[0]


def _most(roster: Roster, place: int) -> float | None:
    """The points of an assignment of Canvas'."""
    return next((number for record in roster.records if _is_head(record) and (number := _number(record[place]))), None)


def _maximum(roster: Roster, record: Sequence[str]) -> float | None:
    """The points of an assignment of Moodle's, which a worksheet repeats in each line."""
    place = roster.column("maximum grade")
    return None if place is None else _number(record[place])


def _number(text: str) -> float | None:
    try:
        found = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return found if 0 < found < 1e9 else None


def _points(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _narrow(roster: Roster, lines: Iterable[Record], place: int) -> list[Record]:
    """For Canvas only who is who and the one column: an import sets every assignment that the file has."""
    if roster.kind != "canvas":
        return list(lines)
    kept = [number for number, title in enumerate(roster.head) if title.strip().casefold() in (*_OF_CANVAS, "section")]
    return [[line[number] for number in (*kept, place)] for line in lines]


def _text(lines: Iterable[Record], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(lines)
    return text.getvalue()


def harmless(cell: str) -> str:
    """A cell that a spreadsheet does not read as a formula and a terminal shows only as text."""
    cell = plain(cell)
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t")) else cell
