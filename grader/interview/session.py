"""One interview's folder <-> Session: its log of events, and what follows from them.

The log is the only state: one JSON object per line, appended under a lock, synced, never changed. A process that is
killed loses at most the event that it was writing: a line without its end does not count, and the next event replaces
it. So the log alone answers every question: the time left, what was graded, whether the learner was there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from grader.interview import clock
from grader.interview.clock import Moment
from grader.interview.plan import InterviewError, Part
from grader.storage.whole_file import write_whole

FOLDER = "interviews"  # in the clone; git ignores it
LOG = ".session.jsonl"
COPIES = ".copies"  # of every file that was graded, by digest
FORMAT = 1  # of the log, in its first event
GAP_S = 60.0  # a longer absence of the learner is a gap

# What an event is about, and its fields in addition to `what` and its moment.
BEGIN = "begin"  # format, seed, plan, device, parts
PART = "part"  # part: its clock begins
ASK = "ask"  # id, part, digest, final: a grade was asked for
VERDICT = "verdict"  # ask: the id of its event; record, explanation
LOOKUP = "lookup"  # kata, how, shown
OPEN, BEAT, CLOSE = "open", "beat", "close"  # the clock on screen, of process pid
TIME_UP = "time up"  # part: the clock on screen has said so
CODE = "code"  # part, notes: the first minutes are over, with these notes, and the file is handed out
NUDGE = "nudge"  # part, number, minutes: a hint was taken, and what it cost
FOLLOW_UPS = "follow-ups"  # part: handed out
END = "end"  # part, digest, and the text answers: finished, with this file
DONE = "done"  # the page is written
ABANDON = "abandon"

Event = Mapping[str, Any]


def moment_of(event: Event) -> Moment:
    """When an event was written."""
    return Moment(event["time"], event["boot"], event["boot_s"])


@dataclass(frozen=True)
class Attempt:
    """One grade that was asked for. ``asked_s`` counts from the start of its part. ``verdict`` is None if the grade
    was interrupted. ``in_time``: asked before the time was up."""

    number: int
    asked_s: float
    in_time: bool
    final: bool
    digest: str
    verdict: Event | None
    waited_s: float = 0.0  # from asking to the verdict

    @property
    def kind(self) -> str:
        return str(self.verdict["record"]["verdict"]) if self.verdict else "cut off"


@dataclass(frozen=True)
class Gap:
    """A stretch in which no clock was on screen, after one had been. Seconds count from the interview's begin."""

    start_s: float
    end_s: float
    why: str

    @property
    def long_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Session:
    """What the log of one interview says."""

    folder: Path
    events: tuple[Event, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def begin(self) -> Event:
        return self.events[0]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part(**item) for item in self.begin["parts"])

    def _of(self, what: str, part: int | None = None) -> list[Event]:
        return [event for event in self.events if event["what"] == what and part in (None, event.get("part"))]

    @property
    def part(self) -> int:
        """The part that is on, from 0; of one that is over, the last."""
        return max((int(event["part"]) for event in self._of(PART)), default=0)

    def name_of(self, part: int) -> str:
        """What a part is called: its kata, but for one on paper."""
        return f"reading-{part + 1}" if self.parts[part].on_paper else self.parts[part].kata

    def handout(self, part: int) -> Path:
        """The file that the candidate edits."""
        return self.folder / f"{self.name_of(part)}.{'md' if self.parts[part].on_paper else 'cu'}"

    def notes(self, part: int) -> Path:
        """What the candidate writes in the first minutes."""
        return self.folder / f"{self.name_of(part)}.notes.md"

    def follow_ups(self, part: int) -> Path:
        """What the candidate answers after a pass."""
        return self.folder / f"{self.name_of(part)}.follow-ups.md"

    def begun(self, part: int) -> Moment | None:
        return next((moment_of(event) for event in self._of(PART, part)), None)

    def ended(self, part: int) -> Moment | None:
        return next((moment_of(event) for event in self._of(END, part)), None)

    @property
    def abandoned(self) -> bool:
        return bool(self._of(ABANDON))

    @property
    def done(self) -> bool:
        return bool(self._of(DONE))

    @property
    def over(self) -> bool:
        """Whether nothing is left to write: abandoned, or every part ended. Its page may still have to be made."""
        return self.abandoned or self.ended(len(self.parts) - 1) is not None

    @property
    def current(self) -> bool:
        """Whether it still waits for anything."""
        return not (self.abandoned or self.done)

    def opening_end(self, part: int) -> Moment | None:
        """When the file was handed out, after the first minutes."""
        return next((moment_of(event) for event in self._of(CODE, part)), None)

    def in_opening(self, part: int) -> bool:
        """Whether the first minutes of a part are on, for questions and estimates."""
        waiting = self.parts[part].opening > 0 and self.opening_end(part) is None
        return waiting and self.begun(part) is not None and self.ended(part) is None

    def opening_left_s(self, part: int) -> float:
        return 60 * self.parts[part].opening - self.spent_s(part)

    def nudges(self, part: int) -> list[Event]:
        return self._of(NUDGE, part)

    def answered(self, part: int) -> bool:
        """Whether the questions after a pass were handed out."""
        return bool(self._of(FOLLOW_UPS, part))

    def written(self, part: int) -> dict[str, str]:
        """The candidate's notes as they were when the first minutes ended, and the answers as they were at the end."""
        code, end = (next(iter(self._of(what, part)), {}) for what in (CODE, END))
        return {"notes": code.get("notes", ""), "answers": end.get("answers", "")}

    def limit_s(self, part: int) -> float:
        """Seconds that a part may take, its first minutes included, less what nudges cost."""
        asked = self.parts[part]
        return 60 * (asked.minutes + asked.opening - sum(float(event["minutes"]) for event in self.nudges(part)))

    def spent_s(self, part: int, at: Moment | None = None) -> float:
        """Seconds that a part's clock has run, up to its end. They never decrease, even if a clock is set back."""
        start, end = self.begun(part), self.ended(part)
        if start is None:
            return 0.0
        last = moment_of(self.events[-1]) if end is None else end
        return max(clock.elapsed_s(start, last), clock.elapsed_s(start, end or at or clock.now()))

    def left_s(self, part: int, at: Moment | None = None) -> float:
        """Seconds left of a part's time; less than 0 once it is up."""
        return self.limit_s(part) - self.spent_s(part, at)

    def attempts(self, part: int) -> list[Attempt]:
        """Every grade of a part that was asked for, in order. That of what was handed in counts from the part's end."""
        verdicts = {event["ask"]: event for event in self._of(VERDICT)}
        asked_part, start = self.parts[part], self.begun(part)
        limit_s = 60 * (asked_part.minutes + asked_part.opening)
        found: list[Attempt] = []
        for event in self.events:
            if event.get("part") != part or event["what"] not in (ASK, NUDGE):
                continue
            if event["what"] == NUDGE:
                limit_s -= 60 * event["minutes"]
                continue
            asked = (self.ended(part) if event["final"] else None) or moment_of(event)
            asked_s = clock.elapsed_s(start, asked) if start else 0.0
            verdict = verdicts.get(event["id"])
            waited_s = clock.elapsed_s(moment_of(event), moment_of(verdict)) if verdict else 0.0
            known = (asked_s, asked_s <= limit_s, event["final"], event["digest"], verdict, waited_s)
            found.append(Attempt(len(found) + 1, *known))
        return found

    def copy_of(self, part: int, digest: str) -> Path:
        """Where the file as it was with this digest is kept: what was graded, and what was handed in."""
        return self.folder / COPIES / digest[:16] / self.handout(part).name

    def handed_in(self, part: int) -> str:
        """The digest of the file that a part ended with; empty where it did not end, or with no file."""
        return next((str(event["digest"]) for event in self._of(END, part)), "")

    @property
    def lookups(self) -> list[Event]:
        return self._of(LOOKUP)

    @property
    def watched(self) -> bool:
        """Whether there was a clock on screen at any time: without one, nothing is known of who was there."""
        return bool(self._of(OPEN))

    def at_s(self, event: Event) -> float:
        """Seconds from the interview's begin to an event."""
        return clock.elapsed_s(moment_of(self.begin), moment_of(event))

    def gaps(self) -> list[Gap]:
        """Where the clock on screen was away for longer than GAP_S, and why, as far as the log shows."""
        found = []
        last: Event | None = None  # of the clock on screen
        for event in self.events:
            ends = event["what"] in (END, DONE, ABANDON)
            if last is not None and (event["what"] in (OPEN, BEAT) or ends):
                gap = Gap(self.at_s(last), self.at_s(event), _why(last, event))
                found += [gap] if gap.long_s > GAP_S else []
            if event["what"] in (OPEN, BEAT, CLOSE):
                last = event
            elif ends and last is not None:
                last = event if event["what"] == END and event["part"] + 1 < len(self.parts) else None
        return found

    def clock_sets(self) -> list[tuple[float, float]]:
        """(seconds from the start, change in seconds) for each time that the machine's wall clock was set."""
        pairs = zip(self.events, self.events[1:], strict=False)
        steps = [(self.at_s(late), clock.clock_set_s(moment_of(early), moment_of(late))) for early, late in pairs]
        return [(at, by) for at, by in steps if abs(by) > 2.0]


def _why(last: Event, now: Event) -> str:
    if last["what"] == CLOSE:
        return "the clock on screen was closed"
    if last["boot"] != now["boot"]:
        return "the machine was restarted"
    if now["what"] == BEAT and now.get("pid") == last.get("pid"):
        return "the machine was asleep, or stood still"
    return "the clock on screen was cut off: killed, crashed, or its terminal closed"


# The folder


def interviews(root: Path) -> Path:
    """Where a clone's interviews are."""
    return root / FOLDER


def load(folder: Path) -> Session:
    """What the log in a folder says. Raises InterviewError if it is not a log of ours."""
    place = folder / LOG
    try:
        lines = place.read_bytes().split(b"\n")[:-1]  # what stands behind the last end of line was never finished
    except OSError as error:
        raise InterviewError(f"{place} cannot be read ({error.strerror}).") from None
    try:
        events = tuple(json.loads(line) for line in lines)
    except ValueError:
        raise InterviewError(f"{place} is damaged. Move {folder} away to start again; your file is in it.") from None
    if not events or events[0].get("what") != BEGIN or events[0].get("format") != FORMAT:
        raise InterviewError(f"{place} was written by another version of the grader. Move {folder} away.")
    return Session(folder, events)


def every(root: Path) -> list[Path]:
    """The folders of all interviews of a clone, the oldest first."""
    place = interviews(root)
    return sorted(path.parent for path in place.glob(f"*/{LOG}") if not path.parent.name.startswith("."))


def current(root: Path) -> Session | None:
    """The interview that is on, or that still waits for its page; None where there is none."""
    if not interviews(root).is_dir():  # the usual case, for commands that only want to know
        return None
    waiting = (load(folder) for folder in reversed(every(root)) if not _says_over(folder / LOG))
    return next((found for found in waiting if found.current), None)


def _says_over(log: Path) -> bool:
    """Whether a log's last line alone says that nothing more will come: most do."""
    try:
        last = log.read_bytes()[-300:].rstrip(b"\n").rpartition(b"\n")[2]
        return json.loads(last)["what"] in (DONE, ABANDON)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_events(folder: Path, events: Sequence[Event]) -> None:
    """The log of a new interview."""
    save(folder / LOG, "".join(f"{json.dumps(event)}\n" for event in events))


def append(session: Session, what: str, **known: Any) -> Session:
    """Write an event down; returns the session with it. Raises InterviewError where the disk refuses."""
    place = session.folder / LOG
    event = {"what": what, **vars(clock.now()), **known}
    try:
        with place.open("r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX)  # released with the file, and by the end of the process
            _add_line(log.fileno(), json.dumps(event).encode() + b"\n")
    except OSError as error:
        raise refused(error, place) from None
    return load(session.folder)


def _add_line(file: int, line: bytes) -> None:
    """Put a line behind the last whole one: all of it, or nothing."""
    end = _whole_end(file)
    os.ftruncate(file, end)
    try:
        if os.pwrite(file, line, end) != len(line):
            raise OSError(errno.ENOSPC, "No space left on device")
        os.fsync(file)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file, end)
        raise


def _whole_end(file: int) -> int:
    """Where the last whole line ends."""
    size = os.fstat(file).st_size
    while size:
        step = min(size, 1 << 16)
        found = os.pread(file, step, size - step).rfind(b"\n")
        if found >= 0:
            return size - step + found + 1
        size -= step
    return 0


def refused(error: OSError, place: Path) -> InterviewError:
    """An operating system's refusal to write, in one sentence with its fix."""
    return InterviewError(f"{place} cannot be written ({error.strerror}). Make room for it, then try again.")


@contextlib.contextmanager
def held(place: Path, refusal: str) -> Iterator[None]:
    """Hold a lock that only one process may have, and which ends with it. Raises InterviewError with the refusal."""
    try:
        lock = place.open("w")
    except OSError as error:
        raise refused(error, place) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InterviewError(refusal) from None
        yield


def save(place: Path, text: str) -> None:
    """Write a file of the interview whole or not at all. Raises InterviewError where the disk refuses."""
    try:
        write_whole(place, text)
    except OSError as error:
        raise refused(error, place) from None
