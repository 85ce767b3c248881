"""Session -> record: all that is on an interview's page, in JSON's types. The page shows only what it has.

What is graded here is the file that each part ended with. The next call repeats an interrupted step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from grader.compile.build import Build, Request, Target, Tell, build
from grader.compile.listing import listing
from grader.compile.toolchain import about, find_toolchain
from grader.content import skeleton
from grader.content.catalog import Catalog, Kata
from grader.content.questions import MOST, OPENING, load_interview, load_questions, shown
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.devices import SIM_ARCH
from grader.devices.report_json import encode
from grader.grade import counted
from grader.interview import handout, notes, run
from grader.interview.conclusion import TOTALS, conclude
from grader.interview.plan import CODE
from grader.interview.session import Attempt, Session
from grader.options import Options
from grader.verdict import CaseCounters, Kind

FORMAT = 1
FIGURES = ("registers", "smem_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes")  # of a listing's Kernel
RECORDED = (
    "What is known: every hint, task, solution and difference that `kata` was asked for in this clone while the "
    "interview was on. What is not: files opened in an editor, web pages, other people."
)


def complete(on: Session, catalog: Catalog, tell: Tell | None = None) -> tuple[Session, dict[str, Any]]:
    """Grade what each part ended with, unless that is done, and put everything together."""
    for part in range(len(on.parts)):
        known = [attempt for attempt in on.attempts(part) if attempt.final and attempt.verdict]
        if on.parts[part].on_paper:
            continue
        if on.handed_in(part) and on.copy_of(part, on.handed_in(part)).is_file() and not known:
            on, _ = run.judge_final(on, catalog, part, tell)
    return on, _record(on, catalog)


def _record(on: Session, catalog: Catalog) -> dict[str, Any]:
    return {
        "kata_interview": FORMAT,
        "name": on.name,
        "begun": on.begin["time"],
        "plan": on.begin["plan"],
        "seed": on.begin["seed"],
        "device": on.begin["device"],
        "machine": about(),
        "clock_on_screen": on.watched,
        "gaps": [{"start_s": gap.start_s, "end_s": gap.end_s, "why": gap.why} for gap in on.gaps()],
        "clock_sets": [{"at_s": at, "by_s": by} for at, by in on.clock_sets()],
        "lookups": list(_lookups(on, catalog)),
        "lookups_note": RECORDED,
        "marks_most": MOST,
        "parts": [_part(on, catalog, part) for part in range(len(on.parts))],
    }


def _lookups(on: Session, catalog: Catalog) -> Iterator[dict[str, Any]]:
    mine = [part.kata for part in on.parts]
    families = {catalog.katas[name].family for name in mine}
    for event in on.lookups:
        same = catalog.katas[event["kata"]].family in families if event["kata"] in catalog.katas else False
        about_it = "this interview's kata" if event["kata"] in mine else "the same family" if same else "another family"
        yield {
            "at_s": on.at_s(event),
            "kata": event["kata"],
            "how": event["how"],
            "shown": event["shown"],
            "about": about_it,
        }


def _part(on: Session, catalog: Catalog, part: int) -> dict[str, Any]:
    kata, asked = catalog.katas[on.parts[part].kata], on.parts[part]
    begun = on.begun(part)
    facts = {
        "number": part + 1,
        "kata": kata.name,
        "family": kata.family,
        "level": kata.level,
        "name": on.name_of(part),
        "kind": asked.kind,
        "on_paper": asked.on_paper,
        "task": handout.title(catalog, asked),
        "minutes": asked.minutes,
        "opening_minutes": asked.opening,
        "start": asked.start,
        "known_before": asked.known,
        "begun": begun and begun.time,
        "begun_s": on.at_s(vars(begun)) if begun else None,
    }
    if begun is None:
        return facts
    facts |= {"spent_s": on.spent_s(part), "limit_s": on.limit_s(part), "over_s": max(0.0, -on.left_s(part))}
    more = _on_paper(on, part, catalog) if asked.on_paper else _written(on, part, catalog)
    known = {**facts, **more}
    return {**known, "conclusion": conclude(known)}


def _on_paper(on: Session, part: int, catalog: Catalog) -> dict[str, Any]:
    """What was read, and what was answered."""
    asked = on.parts[part]
    reading = handout.reading_of(catalog, asked)
    copy = on.copy_of(part, on.handed_in(part))
    handed_in = skeleton.read(copy) if copy.is_file() else ""
    answers = notes.answers(handed_in, len(reading.questions))
    questions = [{**asdict(item), "written": said} for item, said in zip(reading.questions, answers, strict=True)]
    return {
        "attempts": [],
        "shown": shown(reading, catalog.katas[asked.kata]),
        "handed_in": handed_in,
        "questions": questions,
    }


def _written(on: Session, part: int, catalog: Catalog) -> dict[str, Any]:
    """What became of a file: its grades, its text and its figures, and what was said before and after."""
    kata, attempts, nudges = catalog.katas[on.parts[part].kata], on.attempts(part), on.nudges(part)
    right = next((item for item in attempts if run.is_right(item.kind)), None)
    final = next((item for item in reversed(attempts) if item.final and item.verdict), None)
    begun = on.begun(part)
    return {
        "first_right_s": right and right.asked_s,
        "first_right_in_time": right and right.in_time,
        "attempts": [_attempt(item) for item in attempts],
        "final": final and _attempt(final),
        "nudges": [
            {"number": item["number"], "minutes": item["minutes"], "at_s": on.at_s(item) - on.at_s(vars(begun))}
            for item in nudges
        ],
        **_spoken(on, part, kata),
        "compiler": _compiler(on, part, kata, final),
        **_counters(final, kata, on),
        **_texts(on, part, catalog),
        "questions": [asdict(item) for item in load_questions(kata)],
    }


def _spoken(on: Session, part: int, kata: Kata) -> dict[str, Any]:
    """What was written in words, beside what to expect: before the code, and after a pass."""
    pooled, said, asked = load_interview(kata).pool.get(kata.name), on.written(part), on.parts[part]
    opening = pooled.opening if pooled and asked.opening else {}
    follow_ups = pooled.follow_ups if pooled and asked.kind == CODE else ()
    before = dict(zip(OPENING, notes.answers(said["notes"], len(OPENING)), strict=True))
    answers = notes.answers(said["answers"], len(follow_ups))
    return {
        "estimated_minutes": pooled.minutes if pooled else None,
        "opening": [
            {"heading": heading, "written": before[name], "strong": opening[name]}
            for name, heading in OPENING.items()
            if name in opening
        ],
        "follow_ups": [{**asdict(item), "written": text} for item, text in zip(follow_ups, answers, strict=True)],
        "follow_ups_asked": on.answered(part),
    }


def _counters(final: Attempt | None, kata: Kata, on: Session) -> dict[str, Any]:
    """The simulator's counters of the file that was handed in and of the solution, on one shape."""
    verdicts = final.verdict["record"]["verdicts"] if final and final.verdict else []
    mine: dict[str, Any] = next((item["counters"] for item in verdicts if item.get("counters")), {})
    if not mine:
        return {"counted": {}, "solution_counted": {}}
    options = Options("sim", seed=on.begin["seed"], shuffled=True)
    found = counted(kata, source_of(kata.solution_path), options)
    ours = {**encode(found.call), "sizes": dict(found.sizes)} if isinstance(found, CaseCounters) else {}
    return {"counted": _sums(mine), "solution_counted": _sums(ours)}


def _sums(counters: dict[str, Any]) -> dict[str, Any]:
    """Without the lines and samples, which the grade has."""
    kernels = [{key: kernel[key] for key, _ in TOTALS} for kernel in counters.get("kernels", ())]
    return {"sizes": counters["sizes"], "kernels": kernels} if kernels else {}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    facts = {
        "number": attempt.number,
        "asked_s": attempt.asked_s,
        "in_time": attempt.in_time,
        "at_the_finish": attempt.final,
        "waited_s": attempt.waited_s,
        "sha256": attempt.digest,
        "verdict": attempt.kind,
    }
    if attempt.verdict is None:
        return {**facts, "grade": None, "explanation": "the grade was cut off: no verdict was written down"}
    return {**facts, "grade": attempt.verdict["record"], "explanation": attempt.verdict["explanation"]}


def _texts(on: Session, part: int, catalog: Catalog) -> dict[str, Any]:
    """The file that was handed out, the one handed in, the solution, and what was changed."""
    copy = on.copy_of(part, on.handed_in(part))
    handed_in = skeleton.read(copy) if copy.is_file() else ""
    handed_out = handout.text_for(catalog, on.parts[part])
    solution = catalog.katas[on.parts[part].kata].solution_path.read_text()
    names = ("handed out", "handed in")
    changes = difflib.unified_diff(handed_out.splitlines(), handed_in.splitlines(), *names, lineterm="", n=2)
    return {"handed_out": handed_out, "handed_in": handed_in, "solution": solution, "diff": list(changes)}


def _compiler(on: Session, part: int, kata: Kata, final: Attempt | None) -> dict[str, Any]:
    """What ptxas gives the kernels of the file that was handed in, and of the solution. A file in which nothing was
    written is not compared."""
    copy = on.copy_of(part, on.handed_in(part))
    found: dict[str, Any] = {"arch": SIM_ARCH, "handed_in": [], "solution": [], "note": ""}
    if final and final.kind == Kind.NOT_STARTED:
        return {**found, "note": "Nothing was written, so nothing was compiled."}
    sources = {"solution": kata.solution_path, **({"handed_in": copy} if copy.is_file() else {})}
    for name, source in sources.items():
        built = build(Request(kata, load_spec(kata), source_of(source), Target("gpu", SIM_ARCH)), find_toolchain())
        if not isinstance(built, Build):
            found["note"] = found["note"] or f"{name.replace('_', ' ')}: {built.kind}: {built.message}"
            continue
        kernels = listing(built, "ptx", find_toolchain())
        found[name] = [{key: getattr(item, key) for key in ("name", *FIGURES)} for item in kernels]
    return found
