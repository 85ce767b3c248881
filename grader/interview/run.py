"""What happens in an interview: begin, grade, end a part, take up again, abandon. Each step is one event of the log.

What is graded is a copy of the file as it was when the grade was asked for, so a save meanwhile changes nothing.
Shapes are hidden: values and their order come from the interview's own seed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from grader.compile.build import Tell
from grader.compile.toolchain import find_gpu
from grader.content import skeleton
from grader.content.catalog import Catalog, Kata
from grader.content.hints import load_hints
from grader.content.questions import load_interview
from grader.content.source_file import read_source, source_of
from grader.content.start import SKELETON
from grader.devices import SIM_ARCH
from grader.grade import grade
from grader.interview import clock, handout, notes, session
from grader.interview.plan import CODE, InterviewError, Part, PartRequest, draw
from grader.interview.session import Session
from grader.learner.progress import History
from grader.options import Options
from grader.output import verdict_text
from grader.output.grade_json import record
from grader.output.verdict_text import display_path
from grader.service.task import Answer, Task
from grader.service.work import kata_of
from grader.verdict import Grade, Kind, Verdict

SEEDS = 1 << 31
NUDGE_MINUTES = (2.0, 3.0, 5.0)  # what the three hints cost
SKELETONS_NAMES = " (Where it names a function or a constant, that is one of the kata's skeleton. Yours may differ.)"
LONGEST_TEXT = 100_000  # characters of a form that are kept
STEP = "grader.interview.run:step"
OVER = "this interview is over: `kata interview finish` writes its page."
RIGHT = (str(Kind.PASS), str(Kind.TOO_SLOW), str(Kind.INCONCLUSIVE))  # the answer is right, at any speed


def begin(
    catalog: Catalog, known: History, requests: Sequence[PartRequest], *, plan: str, seed: int | None, device: str
) -> Session:
    """Draw the katas, hand out the first file and start its clock. Raises InterviewError where one is on already."""
    place = session.interviews(catalog.root)
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise session.refused(error, place) from None
    with session.held(place / ".lock", "another interview is just beginning here. Wait for it."):
        if (found := session.current(catalog.root)) is not None:
            raise InterviewError(f"an interview is on: {found.name}. `kata interview resume`, finish or abandon it.")
        seed = int.from_bytes(os.urandom(4), "big") % SEEDS if seed is None else seed
        parts = draw(requests, catalog, known, seed, partial(_runs_here, device))
        facts = {"format": session.FORMAT, "plan": plan, "seed": seed, "device": device}
        return _write_folder(catalog, place, parts, facts)


def _runs_here(device: str, kata: Kata) -> bool:
    """Whether this machine can grade a kata on a device: not one about a library, nor one for newer cards. "auto" is
    the simulator where the GPU is too old."""
    gpu, newest = find_gpu() if device != "sim" else None, (int(SIM_ARCH[3:-2]), int(SIM_ARCH[-2]))
    if gpu is not None:
        newest = gpu.capability if device == "gpu" else max(gpu.capability, newest)
    return not kata.libraries and kata.capability <= newest


def _write_folder(catalog: Catalog, place: Path, parts: Sequence[Part], facts: dict[str, Any]) -> Session:
    """The folder of a new interview, which appears whole: renamed into place when all is in it."""
    staged = place / f".begin-{os.getpid()}"
    for left in place.glob(".begin-*"):  # of processes that were killed: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    try:
        staged.mkdir()
        moment = vars(clock.now())
        events = [
            {"what": session.BEGIN, **moment, **facts, "parts": [asdict(part) for part in parts]},
            {"what": session.PART, **moment, "part": 0},
        ]
        _hand_out(Session(staged, tuple(events)), catalog, 0)
        session.write_events(staged, events)
        day = datetime.now().strftime("%Y-%m-%d-%H%M")
        names = (place / (day if number == 1 else f"{day}-{number}") for number in count(1))
        folder = next(name for name in names if not name.exists())
        staged.rename(folder)
        return session.load(folder)
    except OSError as error:
        raise session.refused(error, staged) from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def ask(on: Session, catalog: Catalog, tell: Tell | None = None) -> tuple[Session, Grade]:
    """Grade the file as it is now, and write both down: that it was asked for, and the verdict. After the first right
    answer, the questions that follow are handed out. Raises InterviewError where there is nothing to grade."""
    on = catch_up(on, catalog)
    if on.parts[on.part].on_paper:
        raise InterviewError(f"this part is on paper: write into {display_path(on.handout(on.part))}, then finish it.")
    if on.in_opening(on.part):
        raise InterviewError("the file is not handed out yet: `kata interview code` ends the first minutes.")
    try:
        digest = _keep_copy(on, on.part)
    except OSError as error:
        place, why = on.handout(on.part), error.strerror or error
        raise InterviewError(f"{place} cannot be read ({why}). `kata interview resume` writes a lost one.") from None
    part = on.part
    on, graded = _graded(on, catalog, part, digest, tell, final=False)
    return _follow_up(on, catalog, part, graded), graded


def _follow_up(on: Session, catalog: Catalog, part: int, graded: Grade) -> Session:
    """Hand out the questions after a pass, once, where the kata has some and the part was not ended meanwhile."""
    kata = graded.kata
    pooled = load_interview(kata).pool.get(kata.name)
    right = is_right(str(graded.verdict.kind)) and on.parts[part].kind == CODE
    is_on = not on.over and on.part == part and on.ended(part) is None
    if not right or not is_on or pooled is None or on.answered(part):
        return on
    form = notes.follow_ups_form(handout.title(catalog, on.parts[part]), pooled.follow_ups)
    session.save(on.follow_ups(part), form)
    return session.append(on, session.FOLLOW_UPS, part=part)


def catch_up(on: Session, catalog: Catalog) -> Session:
    """Hand out the file, if the first minutes are over by the clock."""
    late = not on.over and on.in_opening(on.part) and on.opening_left_s(on.part) <= 0
    return start_code(on, catalog) if late else on


def start_code(on: Session, catalog: Catalog) -> Session:
    """End the first minutes: keep the notes as they are, and hand out the file. Raises InterviewError if it is out."""
    part = on.part
    if on.over or not on.in_opening(part):
        raise InterviewError(f"the file is handed out: {display_path(on.handout(part))}.")
    if not on.handout(part).exists():  # else this step was cut off before
        session.save(on.handout(part), handout.text_for(catalog, on.parts[part]))
    return session.append(on, session.CODE, part=part, notes=_text_of(on.notes(part)))


def _text_of(place: Path) -> str:
    """What a candidate wrote into a form, up to LONGEST_TEXT characters; empty if it cannot be read."""
    try:
        return read_source(place).decode("utf-8", errors="replace")[:LONGEST_TEXT]
    except OSError:
        return ""


def nudge_cost(on: Session, catalog: Catalog) -> tuple[int, float]:
    """(the number of the next hint, the minutes that it costs). Raises InterviewError where there is none."""
    part = on.part
    if on.over or on.parts[part].kind != CODE or on.in_opening(part):
        raise InterviewError("a hint is for a file that you write: this part has none, or not yet.")
    number = len(on.nudges(part)) + 1
    if number > len(load_hints(catalog.katas[on.parts[part].kata])):
        raise InterviewError("you have had all hints of this kata.")
    return number, NUDGE_MINUTES[number - 1]


def nudge(on: Session, catalog: Catalog) -> tuple[Session, str]:
    """Take the next hint, at its cost."""
    number, minutes = nudge_cost(on, catalog)
    hint = load_hints(catalog.katas[on.parts[on.part].kata])[number - 1]
    if on.parts[on.part].start != SKELETON:
        hint += SKELETONS_NAMES
    return session.append(on, session.NUDGE, part=on.part, number=number, minutes=minutes), hint


def step(task: Task, catalog: Catalog, tell: Tell) -> Answer:
    """A service's work: ``ask`` of the interview whose file is the task's source. "words" is what to say."""
    assert task.source is not None
    kata_of(task, catalog)
    try:
        on = session.load(task.source.parent)
        if on.over:
            raise InterviewError(OVER)
        part = on.part
        on, _ = ask(on, catalog, tell)
    except InterviewError as error:
        return {"words": f"kata: {error}"}
    return {"words": words_of(on, part)}


def words_of(on: Session, part: int) -> str:
    """The last verdict on a part in full, when it was asked for, and how much time is left."""
    attempt = next(item for item in reversed(on.attempts(part)) if item.verdict)
    assert attempt.verdict is not None
    known, words = attempt.verdict["record"], str(attempt.verdict["explanation"])
    late = "" if attempt.in_time else ", over time"
    first = f"{known['kata']}  {words}" if known["passed"] else words
    asked, left = (clock.format_duration(seconds) for seconds in (attempt.asked_s, on.left_s(part)))
    more = f"\n  then    answer in {display_path(on.follow_ups(part))}" if on.answered(part) else ""
    return f"{first}\n  asked at {asked}{late}; {left} left{more}"


def judge_final(on: Session, catalog: Catalog, part: int, tell: Tell | None = None) -> tuple[Session, Grade]:
    """Grade the file that a part ended with, with the simulator's counters."""
    return _graded(on, catalog, part, on.handed_in(part), tell, final=True)


def _graded(
    on: Session, catalog: Catalog, part: int, digest: str, tell: Tell | None, *, final: bool
) -> tuple[Session, Grade]:
    kata, copy = catalog.katas[on.parts[part].kata], on.copy_of(part, digest)
    number = os.urandom(6).hex()
    on = session.append(on, session.ASK, id=number, part=part, digest=digest, final=final)
    options = Options(on.begin["device"], seed=on.begin["seed"], shuffled=True, last_failure=False, counters=final)
    source = source_of(copy)
    if on.parts[part].kind == CODE and handout.is_unchanged(catalog, on.parts[part], source.text):
        todos = len(skeleton.todos(source.text))
        empty = Verdict(Kind.NOT_STARTED, f"{todos} TODO{'s' if todos > 1 else ''}")
        graded = Grade(kata, source, (empty,))
    else:
        graded = grade(kata, options, source=copy, tell=tell)
    words = explained(on, part, graded)
    known = {**record(graded), "costs": verdict_text.costs(graded), "launches": list(verdict_text.launches(graded))}
    return session.append(on, session.VERDICT, ask=number, record=known, explanation=words), graded


def explained(on: Session, part: int, graded: Grade) -> str:
    """A verdict in full, with the name of the file that the candidate edits in place of the copy's."""
    words = verdict_text.outcome(graded) if graded.passed else verdict_text.explanation(graded, lesson=False)
    return words.replace(display_path(graded.source.path), display_path(on.handout(part)))


def _keep_copy(on: Session, part: int) -> str:
    """Keep the file as it is now; returns its digest. Raises OSError where it cannot be read."""
    text = read_source(on.handout(part))
    digest = hashlib.sha256(text).hexdigest()
    copy = on.copy_of(part, digest)
    if not copy.is_file():
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise session.refused(error, copy) from None
        session.save(copy, text.decode("utf-8", errors="surrogateescape"))
    return digest


def end_part(on: Session, catalog: Catalog) -> Session:
    """End the part that is on, with the file as it is; the next one, if there is one, begins at once."""
    if on.over:
        return on
    part = on.part
    if on.ended(part) is None:  # else it was cut off between the two steps
        on = start_code(on, catalog) if on.in_opening(part) else on
        try:
            digest = _keep_copy(on, part)
        except OSError:
            digest = ""  # nothing was handed in
        on = session.append(on, session.END, part=part, digest=digest, answers=_text_of(on.follow_ups(part)))
    if part + 1 < len(on.parts):
        _hand_out(on, catalog, part + 1)
        on = session.append(on, session.PART, part=part + 1)
    return on


def _hand_out(on: Session, catalog: Catalog, part: int) -> None:
    """What a part begins with: the form for its first minutes where it has them, else its file."""
    asked = on.parts[part]
    if asked.opening:
        session.save(on.notes(part), notes.opening_form(handout.title(catalog, asked), asked.opening))
    else:
        session.save(on.handout(part), handout.text_for(catalog, asked))


def recover(on: Session, catalog: Catalog) -> Session:
    """Repair what was interrupted: a part between end and start, a file that is gone."""
    if not on.over and on.ended(on.part) is not None:
        on = end_part(on, catalog)
    on = catch_up(on, catalog)
    if not on.over and on.in_opening(on.part):
        if not on.notes(on.part).exists():
            _hand_out(on, catalog, on.part)
    elif not on.over and not on.handout(on.part).exists():
        kept = [on.copy_of(on.part, attempt.digest) for attempt in on.attempts(on.part)]
        last = next((copy for copy in reversed(kept) if copy.is_file()), None)
        if last is None:
            session.save(on.handout(on.part), handout.text_for(catalog, on.parts[on.part]))
        else:
            session.save(on.handout(on.part), last.read_bytes().decode("utf-8", errors="surrogateescape"))
    return on


def abandon(on: Session) -> Session:
    """End the interview without a page. Its folder stays."""
    return session.append(on, session.ABANDON)


def status(on: Session) -> dict[str, Any]:
    """How an interview stands, for `kata interview status`."""
    part, moment = on.part, clock.now()
    states = {"abandoned": on.abandoned, "finished": on.done, "page missing": on.over, "on": True}
    attempts = [
        {"number": item.number, "asked_s": round(item.asked_s, 1), "in_time": item.in_time, "verdict": item.kind}
        for item in on.attempts(part)
        if not item.final
    ]
    return {
        "interview": on.name,
        "state": next(word for word, holds in states.items() if holds),
        "part": part + 1,
        "parts": len(on.parts),
        "kata": on.name_of(part),
        "kind": on.parts[part].kind,
        "minutes": on.parts[part].minutes,
        "opening": on.in_opening(part),
        "start": on.parts[part].start,
        "spent_s": round(on.spent_s(part, moment), 1),
        "left_s": round(on.left_s(part, moment), 1),
        "file": str(on.notes(part) if on.in_opening(part) else on.handout(part)),
        "nudges": len(on.nudges(part)),
        "attempts": attempts,
        "looked_up": len([event for event in on.lookups if event["shown"]]),
        "gaps": [asdict(gap) for gap in on.gaps()],
    }


def is_right(kind: str) -> bool:
    """Whether a verdict of this kind says that the answer is right."""
    return kind in RIGHT
