"""Grade, hint, solution looked at, start, track -> Event, kept in one small database of the learner's; and back.

Keeping progress never fails a grade: what cannot be kept is one line of warning. It is one database for every clone
of the repository; each event carries the clone's path, and a clone sees only its own. Every event is one transaction
under SQLite's rollback journal, so that neither a killed process nor two at once lose any (not its write-ahead log:
that one is not safe where the home folder is on a network).

Only the learner's own file makes progress. Grades of solutions, and of files from elsewhere (`--file`), could be
someone else's work and are not kept. Nor are grades without a verdict on the file: not started, or a library missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grader.content.catalog import Kata
from grader.content.start import SKELETON, STARTS
from grader.fault import Fault
from grader.learner.pointer import point
from grader.storage.salvage import readable_rows
from grader.verdict import Grade, Kind, Measurement, format_sizes

if TYPE_CHECKING:  # 6 ms to import: only where something is kept or read
    from sqlite3 import Connection

FILE = "progress.db"
GRADE, HINT, SOLUTION, START, TRACK = "grade", "hint", "solution", "start", "track"
HUNT, FASTER, ESTIMATE = PRACTICE = ("hunt", "faster", "estimate")
FORMAT = "kata_progress"  # the key of an export's first line; its value is the schema's version
BUSY_S = 5.0  # how long to wait while another process writes

# Forward only, each from one version of the schema to the next; a released one is never changed.
MIGRATIONS: list[tuple[str, ...]] = [
    (
        """CREATE TABLE event (
            clone TEXT NOT NULL, id TEXT NOT NULL, time TEXT NOT NULL, kata TEXT NOT NULL, what TEXT NOT NULL,
            device TEXT, verdict TEXT, summary TEXT, baseline TEXT, ratio REAL, low REAL, high REAL, seconds REAL,
            digest TEXT, strength INTEGER,
            PRIMARY KEY (clone, id))""",
    ),
    (
        *("ALTER TABLE event ADD COLUMN card TEXT", "ALTER TABLE event ADD COLUMN sizes TEXT"),
        *("ALTER TABLE event ADD COLUMN time_s REAL", "ALTER TABLE event ADD COLUMN bytes_moved REAL"),
        *("ALTER TABLE event ADD COLUMN flops REAL", "ALTER TABLE event ADD COLUMN peak_bytes_s REAL"),
        "ALTER TABLE event ADD COLUMN peak_flops_s REAL",
    ),
    ("ALTER TABLE event ADD COLUMN start TEXT",),
    ("ALTER TABLE event ADD COLUMN line INTEGER", "ALTER TABLE event ADD COLUMN todo INTEGER"),
    ("ALTER TABLE event ADD COLUMN task TEXT",),
]

_T = TypeVar("_T")


class ProgressError(Fault):
    """Progress cannot be read, or not be imported; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that a learner did. ``time`` is ISO 8601 in UTC. The rest is None where it does not apply.

    Of a grade: the verdict that was shown, the graded file's SHA-256, and of a measured speed the lowest ratio to a
    graded baseline with its 95 % interval, and of that measurement the GPU's name, the shape in words, and what a
    Measurement says of work, time and peaks. A hint has its strength, from 1. A start and a grade have what the file
    was started from, one of STARTS; of a grade from before there were several, None: the skeleton. A grade that is not
    a pass has the line and the TODO that the verdict points at, as grader.learner.pointer says. A track that was chosen
    has its name in ``summary``, and no kata. An exercise of PRACTICE has in ``task`` which one it is, and its result in
    ``verdict``.
    """

    id: str
    time: str
    kata: str
    what: str
    device: str | None = None
    verdict: str | None = None
    summary: str | None = None
    baseline: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    digest: str | None = None
    strength: int | None = None
    card: str | None = None
    sizes: str | None = None
    time_s: float | None = None
    bytes_moved: float | None = None
    flops: float | None = None
    peak_bytes_s: float | None = None
    peak_flops_s: float | None = None
    start: str | None = None
    line: int | None = None
    todo: int | None = None
    task: str | None = None

    @property
    def passed(self) -> bool:
        """Whether it is a grade that passed."""
        return self.what == GRADE and self.verdict == Kind.PASS.value

    @property
    def date(self) -> str:
        """The local day, as 2026-03-31."""
        return datetime.fromisoformat(self.time).astimezone().date().isoformat()


_COLUMNS = tuple(item.name for item in fields(Event))
_REQUIRED = ("id", "time", "kata", "what")
_SPEED = ("baseline", "ratio", "low", "high", "time_s", "bytes_moved", "flops", "peak_bytes_s", "peak_flops_s")
_NUMBERS = (*_SPEED[1:], "seconds")
_COUNTS = ("strength", "line", "todo")


@dataclass(frozen=True)
class History:
    """What is known of one clone's learner: events in the order in which they happened."""

    events: tuple[Event, ...] = ()
    warning: str | None = None  # a line to show: what had to be done in order to read them

    @cached_property
    def _by_kata(self) -> Mapping[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.kata, []).append(event)
        return found

    def grades(self, kata: str) -> list[Event]:
        return [event for event in self._by_kata.get(kata, ()) if event.what == GRADE]

    def passed(self, kata: str) -> Event | None:
        """The first grade that passed. A passed kata stays passed, also if its file changes."""
        return next((event for event in self.grades(kata) if event.passed), None)

    def started_from(self, kata: str) -> str:
        """What the learner's file of a kata was started from last."""
        starts = [event.start for event in self._by_kata.get(kata, ()) if event.what == START and event.start]
        return starts[-1] if starts else SKELETON

    def passed_from(self, kata: str) -> tuple[str, ...]:
        """The starts from which the kata was passed, the least work first."""
        found = {event.start or SKELETON for event in self.grades(kata) if event.passed}
        return tuple(start for start in STARTS if start in found)

    @cached_property
    def track(self) -> str | None:
        """The name of the track that was chosen last."""
        return next((event.summary for event in reversed(self.events) if event.what == TRACK), None)

    def hints(self, kata: str) -> list[int]:
        """The strengths of the hints that were shown, each once."""
        return sorted({event.strength or 0 for event in self._by_kata.get(kata, ()) if event.what == HINT})

    def next_hint(self, kata: str, most: int) -> int:
        """The strength of the hint to show: 1, and after a grade that failed one more than was shown before that."""
        events = self._by_kata.get(kata, ())
        failed = [place for place, event in enumerate(events) if event.what == GRADE and not event.passed]
        before = events[: failed[-1]] if failed else ()
        shown = max((event.strength or 0 for event in before if event.what == HINT), default=0)
        return min(shown + 1, most)

    def practised(self, what: str) -> list[Event]:
        """The events of one kind of PRACTICE."""
        return [event for event in self.events if event.what == what]

    def solution_seen(self, kata: str) -> Event | None:
        """The first look at the solution."""
        return next((event for event in self._by_kata.get(kata, ()) if event.what == SOLUTION), None)


def data_file() -> Path:
    """The database: in $KATA_DATA, else in kata in $XDG_DATA_HOME, else in ~/.local/share/kata."""
    named = os.environ.get("KATA_DATA")
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return (Path(named).expanduser() if named else Path(base).expanduser() / "kata") / FILE


# What the faces call. Nothing here raises


def expect() -> None:
    """A grade is coming that will be kept: import sqlite3 meanwhile, beside the compiler."""
    if "sqlite3" not in sys.modules:
        threading.Thread(target=_import_sqlite, daemon=True).start()


def _import_sqlite() -> None:
    with contextlib.suppress(ImportError):
        import sqlite3  # noqa: F401


def keep_grade(graded: Grade) -> str | None:
    """Keep a grade of the learner's own file; any other is left alone. Returns a line of warning, or None."""
    verdict, kata = graded.verdict, graded.kata
    real = os.path.realpath  # of links to themselves, too
    own = [real(path) for path in (kata.skeleton_path, kata.work_path)]
    if real(graded.source.path) not in own or verdict.kind is Kind.NOT_STARTED or verdict.lacks_library:
        return None
    measured = min((item for item in verdict.measurements if item.graded), key=lambda item: item.ratio, default=None)
    return _keep(
        kata,
        GRADE,
        device=verdict.device,
        verdict=str(verdict.kind),
        summary=verdict.summary,
        seconds=round(graded.time_s, 3),
        digest=graded.source.digest or None,
        start=None if real(graded.source.path) == own[1] else SKELETON,
        **(_speed_of(measured) if measured else {}),
        **_pointed_at(graded),
    )


def _pointed_at(graded: Grade) -> dict[str, Any]:
    where = point(graded)
    return {"line": where.line, "todo": where.todo}


def _speed_of(measured: Measurement) -> dict[str, Any]:
    from grader.compile.toolchain import find_gpu

    gpu = find_gpu()
    known = {name: getattr(measured, name) for name in _SPEED}
    return {**known, "sizes": format_sizes(measured.sizes), "card": gpu and gpu.name}


def keep_hint(kata: Kata, strength: int) -> str | None:
    """Keep that a hint was shown. Returns a line of warning, or None."""
    return _keep(kata, HINT, strength=strength)


def keep_start(kata: Kata, start: str) -> str | None:
    """Keep what a kata's file was started from, one of STARTS. Returns a line of warning, or None."""
    return _keep(kata, START, start=start)


def keep_track(root: Path, name: str) -> str | None:
    """Keep which track was chosen. Returns a line of warning, or None."""
    return _keep_event(root, "", TRACK, summary=name)


def keep_solution(kata: Kata) -> str | None:
    """Keep that a solution was looked at. Returns a line of warning, or None."""
    return _keep(kata, SOLUTION)


def keep_practice(kata: Kata, what: str, task: str, verdict: str, summary: str) -> str | None:
    """Keep the result of an exercise, one of PRACTICE. Returns a line of warning, or None."""
    return _keep(kata, what, task=task, verdict=verdict, summary=summary)


def _keep(kata: Kata, what: str, **known: Any) -> str | None:
    return _keep_event(kata.root, kata.name, what, **known)


def _keep_event(root: Path, kata: str, what: str, **known: Any) -> str | None:
    event = Event(id=os.urandom(8).hex(), time=_now(), kata=kata, what=what, **known)
    try:
        return _use(lambda db: _insert(db, clone_of(root), [_with_start(db, clone_of(root), event)]))[1]
    except ProgressError as error:
        return f"this was not kept as progress: {error}"


def _with_start(db: Connection, clone: str, event: Event) -> Event:
    """A grade of a file in the folder of the learner's work, with what that file was started from last."""
    if event.what != GRADE or event.start is not None:
        return event
    query = "SELECT start FROM event WHERE clone = ? AND kata = ? AND what = ? ORDER BY time DESC, rowid DESC LIMIT 1"
    row = db.execute(query, (clone, event.kata, START)).fetchone()
    return replace(event, start=row[0] if row else SKELETON)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def clone_of(root: Path) -> str:
    """What events of a clone carry: where it is."""
    return str(root.resolve())


# Reading, and taking elsewhere. These raise ProgressError


def load(root: Path) -> History:
    """The progress of the clone at ``root``; none where nothing was kept yet."""
    return _load(clone_of(root))


def _load(clone: str) -> History:
    if not _is_there():
        return History()
    (events, left_alone), warning = _use(lambda db: _select(db, clone))
    return History(tuple(events), "; ".join(filter(None, (warning, left_alone))) or None)


def clones() -> dict[str, int]:
    """Every clone with events, and how many."""
    if not _is_there():
        return {}
    query = "SELECT clone, count(*) FROM event GROUP BY clone ORDER BY clone"
    return dict(_use(lambda db: db.execute(query).fetchall())[0])


def _is_there() -> bool:
    try:
        return data_file().exists()
    except OSError as error:
        raise _refused(error) from None


def export_lines(clone: str) -> Iterator[str]:
    """A clone's events as JSON lines, the first of which names the format."""
    yield json.dumps({FORMAT: len(MIGRATIONS), "clone": clone})
    for event in _load(clone).events:
        yield json.dumps({name: value for name, value in asdict(event).items() if value is not None})


def import_lines(lines: Iterable[str], root: Path) -> int:
    """Add exported events to the clone at ``root``, all or none, but for those it has. Returns how many were new."""
    events = [event for number, line in enumerate(lines, 1) if (event := _parsed(line, number)) is not None]
    return _use(lambda db: _insert(db, clone_of(root), events))[0]


def _parsed(line: str, number: int) -> Event | None:
    """The event of one line; None for a blank line and for one that names the format."""
    if not line.strip():
        return None
    try:
        found = json.loads(line)
    except ValueError:
        raise ProgressError(f"line {number} is not JSON. Export again; nothing was imported.") from None
    if isinstance(found, dict) and FORMAT in found:
        if not isinstance(found[FORMAT], int) or found[FORMAT] > len(MIGRATIONS):
            raise ProgressError(f"line {number}: a newer version of the grader exported this. Update this clone first.")
        return None
    if problem := _problem(found):
        raise ProgressError(f"line {number}: {problem}. Only what `kata progress --export` wrote can be imported.")
    time = datetime.fromisoformat(found["time"]).astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return Event(**{**found, "time": time})


def _problem(found: Any) -> str | None:
    """What keeps a line's value from being an event."""
    if not isinstance(found, dict):
        return "it is not an object"
    for name in _REQUIRED:
        if name not in found:
            return f"{name} is missing"
    for name, value in found.items():
        if name not in _COLUMNS:
            return f"unknown field {name!r}"
        kind = (int, float) if name in _NUMBERS else int if name in _COUNTS else str
        if not isinstance(value, kind) or isinstance(value, bool) or value in (math.inf, -math.inf) or value != value:
            return f"{name} cannot be {value!r}"
    if found["what"] not in (GRADE, HINT, SOLUTION, START, TRACK, *PRACTICE):
        return f"what cannot be {found['what']!r}"
    if found.get("start", SKELETON) not in STARTS:
        return f"start cannot be {found['start']!r}"
    try:
        datetime.fromisoformat(found["time"]).astimezone().astimezone(timezone.utc)
    except (ValueError, OverflowError):  # no time, or one that no calendar of another place has
        return f"time cannot be {found['time']!r}"
    return None


# The database


def _insert(db: Connection, clone: str, events: Iterable[Event]) -> int:
    marks = ", ".join("?" * (len(_COLUMNS) + 1))
    command = f"INSERT OR IGNORE INTO event (clone, {', '.join(_COLUMNS)}) VALUES ({marks})"
    rows = [(clone, *(getattr(event, name) for name in _COLUMNS)) for event in events]
    with _transaction(db):
        return db.executemany(command, rows).rowcount if rows else 0


def _select(db: Connection, clone: str) -> tuple[list[Event], str | None]:
    """A clone's events, and a warning where rows of it are none."""
    query = f"SELECT {', '.join(_COLUMNS)} FROM event WHERE clone = ? ORDER BY time, rowid"
    events: list[Event] = []
    left_alone: list[str] = []
    for row in db.execute(query, (clone,)):
        found = dict(zip(_COLUMNS, row, strict=True))
        if problem := _problem_of_row(found):
            left_alone.append(f"{found['id']!r}, whose {problem}")
        else:
            events.append(Event(**found))
    if not left_alone:
        return events, None
    many = "1 row is" if len(left_alone) == 1 else f"{len(left_alone)} rows are"
    return events, f"{data_file()}: {many} no event and left alone, the first with the id {left_alone[0]}"


def _problem_of_row(row: Mapping[str, Any]) -> str | None:
    """What keeps a row from being an event."""
    return _problem({name: value for name, value in row.items() if value is not None})


def _use(action: Callable[[Connection], _T]) -> tuple[_T, str | None]:
    """What ``action`` makes of the database, and a warning where a damaged one had to be set aside first."""
    try:
        import sqlite3
    except ImportError:
        raise ProgressError("this Python has no sqlite3. Use one that has.") from None
    try:
        try:
            return _opened(action), None
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            warning = _set_aside()
            return _opened(action), warning
    except (sqlite3.Error, OSError) as error:
        raise _refused(error) from None


def _refused(error: Exception) -> ProgressError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return ProgressError(f"{data_file()} cannot be used ({reason}). Fix that, or set KATA_DATA to another folder.")


def _opened(action: Callable[[Connection], _T]) -> _T:
    import sqlite3

    place = data_file()
    place.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(place, timeout=BUSY_S, isolation_level=None)) as db:
        # A power cut may cost the last events, not those before; every process that dies is covered by the journal.
        db.execute("PRAGMA synchronous = NORMAL")
        db.text_factory = lambda text: text.decode(errors="replace")  # one damaged text must not hide the others
        _migrate(db)
        return action(db)


def _migrate(db: Connection) -> None:
    """Update the schema to this program's version. Raises ProgressError for one from the future."""
    if _version(db) < len(MIGRATIONS):
        with _transaction(db):
            for statement in (line for step in MIGRATIONS[_version(db) :] for line in step):  # asked again: now alone
                db.execute(statement)
            if _version(db) < len(MIGRATIONS):
                db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    if (version := _version(db)) > len(MIGRATIONS):
        raise ProgressError(
            f"{data_file()} was written by a newer version of the grader (schema {version}, this one knows"
            f" {len(MIGRATIONS)}). Update this clone, or set KATA_DATA to another folder."
        )


def _version(db: Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def _transaction(db: Connection) -> Iterator[None]:
    """All or nothing: what raises is taken back when the connection is closed."""
    db.execute("BEGIN IMMEDIATE")
    yield
    db.execute("COMMIT")


def _is_damage(error: Exception) -> bool:
    """SQLITE_CORRUPT and SQLITE_NOTADB; Python 3.10 has only their words."""
    return any(words in str(error) for words in ("malformed", "not a database"))


def _set_aside() -> str:
    """Rename a damaged database, unless another process has just done so, and begin a new one with what can be read.
    Returns the warning."""
    place = data_file()
    with (place.parent / f"{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released by the end of the block, or of the process
        if _is_whole():
            return f"{place} was damaged; another process has set it aside"
        kept = next(path for number in count(1) if not (path := Path(f"{place}.damaged-{number}")).exists())
        journal = Path(f"{place}-journal")  # belongs to the damaged file: a new one must not be rolled back by it
        if journal.exists():  # moved first: afterwards there may be one that belongs to a new file
            journal.rename(f"{kept}-journal")
        place.rename(kept)
        return f"{place} was damaged; it is kept as {kept.name}, and a new one begun {_taken_over(kept)}"


def _taken_over(kept: Path) -> str:
    """Copy the events that can be read in a damaged database, of all clones, into the new one. Returns how many."""
    import sqlite3

    clones: dict[str, list[Event]] = {}
    for row in readable_rows(kept, "event"):
        clone, known = row.pop("clone", None), {name: row[name] for name in _COLUMNS if name in row}
        if isinstance(clone, str) and _problem_of_row(known) is None:
            clones.setdefault(clone, []).append(Event(**known))
    copied, readable = 0, sum(map(len, clones.values()))

    def insert(db: Connection) -> int:
        return sum(_insert(db, clone, events) for clone, events in clones.items())

    with contextlib.suppress(sqlite3.Error, ProgressError):  # what is not copied stays in the file that is kept
        copied = _opened(insert)
    which = f"the {readable}" if copied == readable else f"{copied} of the {readable}"
    return f"with {which} event{'' if readable == 1 else 's'} that could be read"


def _is_whole() -> bool:
    import sqlite3

    try:
        return bool(_opened(lambda db: db.execute("PRAGMA integrity_check(1)").fetchone()) == ("ok",))
    except (sqlite3.Error, ProgressError) as error:
        return not _is_damage(error)
