"""An interview from begin to page: its clock, its log, its commands, its terminal, and what is left of a killed one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from browser import DESK, PHONE, absent, browser, view  # noqa: F401
from compiler import HeldCompiler
from facts import all_of, has
from patience import PATIENCE_S, wait_for
from test_faces import ROOT, Clone, make_clone, run

from grader.compile.toolchain import find_toolchain
from grader.content import rung, skeleton, start
from grader.content.catalog import Catalog, Kata, load_catalog
from grader.content.hints import load_hints
from grader.content.questions import OPENING, load_interview, load_pool
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.content.start import BLANK, SKELETON, SKETCH
from grader.content.tracks import track_of
from grader.devices import Finding
from grader.devices.counters import Launch
from grader.grade import Options, budget_of
from grader.interview import clock, command, handout, live, lookups, notes, report_data, session
from grader.interview import run as interview_run
from grader.interview.clock import Moment
from grader.interview.conclusion import conclude
from grader.interview.page import page
from grader.interview.plan import InterviewError, Part, PartRequest, draw, load_plans
from grader.interview.session import Session
from grader.judge.case import CaseKey
from grader.judge.search import Search, budget_for, named_keys
from grader.learner import progress
from grader.learner.progress import Event, History
from grader.verdict import Grade, Kind, Measurement, Verdict

try:
    import pexpect
except ImportError:
    pexpect = None  # the tests that need a terminal say so

pytestmark = pytest.mark.usefixtures("module_remembers")

EASY = "elementwise_f32"
WRONG = ("if (idx < n)", "if (idx <= n)")
LAUNCH = Launch("k(float*)", 0, (1, 1, 1), (256, 1, 1), 40, 0, 512, 8, 1.0)
SPEED = Measurement("copy", {"n": 1024}, 0.931, 0.925, 0.937, 21, 1e-4, 9e-5, 8192, launches=(LAUNCH,))
SLOW = Verdict(Kind.TOO_SLOW, "93 % of copy, 95 % asked", device="gpu sm_90a", measurements=(SPEED,))


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture(scope="module")
def one_clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """With the planted bugs, which a part to debug draws from."""
    made = make_clone(tmp_path_factory.mktemp("one"))
    subprocess.run(["cp", "-a", "--parents", "tests/wrong_kernels", made], cwd=ROOT, check=True)
    return Clone(made)


@pytest.fixture(scope="module")
def catalog(pristine: Path) -> Catalog:
    """Of a clone that is only read, but for its interviews."""
    return load_catalog(pristine)


@pytest.fixture
def lone(catalog: Catalog, clone: Path) -> Catalog:
    """The same with no interview yet, nor one afterwards."""
    return catalog


class Time:
    """A clock that stands still but where it is moved. ``set_s`` is by how much somebody has set the wall clock."""

    def __init__(self) -> None:
        self.s, self.set_s, self.boot, self.booted_s = 1000.0, 0.0, "one", 0.0

    def now(self) -> Moment:
        wall = datetime(2026, 3, 31, tzinfo=timezone.utc) + timedelta(seconds=self.s + self.set_s)
        return Moment(wall.isoformat(timespec="milliseconds"), self.boot, self.s - self.booted_s)

    def reboot(self) -> None:
        self.boot, self.booted_s = f"{self.boot}+", self.s


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake = Time()
    monkeypatch.setattr(clock, "now", fake.now)
    return fake


def begin(catalog: Catalog, *requests: PartRequest, seed: int = 7) -> Session:
    return interview_run.begin(
        catalog, History(), requests or (PartRequest(10, kata=EASY),), plan="", seed=seed, device="sim"
    )


def answer(on: Session, catalog: Catalog, change: tuple[str, str] | None = None) -> None:
    """Write the solution into the candidate's file, with one thing changed."""
    text = catalog.katas[on.parts[on.part].kata].solution_path.read_text()
    assert change is None or change[0] in text
    on.handout(on.part).write_text(text.replace(*change) if change else text)


# The clock


def test_time_within_a_boot_is_nobodys_to_set() -> None:
    start = Moment("2026-03-31T10:00:00.000+00:00", "one", 100.0)
    later = Moment("2026-03-31T09:00:00.000+00:00", "one", 160.0)  # set back by an hour and a minute
    assert clock.elapsed_s(start, later) == 60.0
    assert clock.clock_set_s(start, later) == -3660.0
    after_boot = Moment("2026-03-31T10:05:00.000+00:00", "two", 3.0)
    assert clock.elapsed_s(start, after_boot) == 300.0 and clock.clock_set_s(start, after_boot) == 0.0
    assert clock.elapsed_s(after_boot, start) == 0.0
    restarted = Moment("2026-03-31T10:02:00.000+00:00", "one", 5.0)  # a container with a clock of its own
    assert clock.elapsed_s(start, restarted) == 120.0


def test_the_real_clock_moves_and_knows_its_boot() -> None:
    began_s = clock._since_boot_s()
    one = clock.now()
    time.sleep(0.02)
    two = clock.now()
    most_s = clock._since_boot_s() - began_s + 0.01  # moments are rounded
    assert 0.01 < clock.elapsed_s(one, two) <= most_s and one.boot == two.boot
    assert abs(clock.clock_set_s(one, two)) <= most_s


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0:00"), (59.9, "0:59"), (125, "2:05"), (3723, "1:02:03"), (-30, "-0:30"), (-0.5, "-0:01")],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert clock.format_duration(seconds) == words


def test_time_goes_on_whatever_runs_and_never_back(lone: Catalog, at: Time) -> None:
    on = begin(lone)
    at.s += 120
    assert (on.spent_s(0), on.left_s(0)) == (120, 480)
    at.set_s = -3600
    assert on.left_s(0) == 480  # setting the clock back buys nothing
    on = session.append(on, session.BEAT, pid=1)
    at.s += 60
    at.reboot()  # ... nor does a boot in between: the wall clock is an hour behind
    assert on.spent_s(0) == 120
    at.set_s = 0
    assert on.spent_s(0) == 180
    at.s += 600
    assert on.left_s(0) == -180
    on = interview_run.end_part(on, lone)
    at.s += 1000
    assert on.spent_s(0) == 780 and on.over and on.current


def test_gaps_are_recorded_with_their_reason(lone: Catalog, at: Time) -> None:
    def seen(what: str, after_s: float, pid: int = 1) -> None:
        nonlocal on
        at.s += after_s
        on = session.append(on, what, pid=pid)

    on = begin(lone)
    seen(session.OPEN, 5)
    for _ in range(10):
        seen(session.BEAT, 10)
    assert on.gaps() == []
    seen(session.BEAT, 900)  # the same process, after a quarter of an hour: a nap
    seen(session.CLOSE, 5)
    seen(session.OPEN, 300, pid=2)
    seen(session.BEAT, 10, pid=2)
    seen(session.OPEN, 200, pid=3)  # the second one never said goodbye
    at.s += 100
    at.reboot()
    seen(session.OPEN, 50, pid=4)
    seen(session.CLOSE, 10, pid=4)
    at.s += 70
    on = interview_run.end_part(on, lone)
    whys = {(gap.start_s, gap.long_s): gap.why for gap in on.gaps()}
    assert list(whys) == [(105, 900), (1010, 300), (1320, 200), (1520, 150), (1680, 70)]
    for why, fact in zip(whys.values(), ("asleep", "closed", "cut off", "restarted", "closed"), strict=True):
        assert has(why, fact)


def test_a_clock_that_was_set_is_on_the_record(lone: Catalog, at: Time) -> None:
    on = begin(lone)
    at.s += 60
    at.set_s = -600
    on = session.append(on, session.BEAT, pid=1)
    assert on.clock_sets() == [(60, -600)]


# The log


def test_a_line_that_was_cut_off_is_no_event_and_gives_way(lone: Catalog) -> None:
    on = begin(lone)
    log = on.folder / session.LOG
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"what": "abandon", "time": "2026-0')
    assert len(session.load(on.folder).events) == 2 and not session.load(on.folder).abandoned
    on = session.append(on, session.BEAT, pid=1)
    assert [event["what"] for event in on.events] == ["begin", "part", "beat"]
    assert log.read_bytes().startswith(whole) and log.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("error", ["short", "refused"])
def test_a_full_disk_leaves_the_log_as_it_was(lone: Catalog, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    on = begin(lone)
    before = (on.folder / session.LOG).read_bytes()
    real = os.pwrite

    def full(file: int, line: bytes, place: int) -> int:
        if error == "refused":
            raise OSError(28, "No space left on device")
        return real(file, line[:10], place)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InterviewError, match=all_of("cannot be written", "No space left on device")):
        session.append(on, session.ABANDON)
    assert (on.folder / session.LOG).read_bytes() == before


def test_many_processes_write_one_log(lone: Catalog) -> None:
    on = begin(lone)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            for _ in range(25):
                session.append(on, session.BEAT, pid=number)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(session.load(on.folder).events) == 102


@pytest.mark.parametrize("text", ["", "{}\n", '{"what": "begin", "format": 99}\n', "no json\n"])
def test_a_log_of_another_kind_is_one_sentence(lone: Catalog, text: str) -> None:
    on = begin(lone)
    (on.folder / session.LOG).write_text(text)
    with pytest.raises(InterviewError, match=r"another version|damaged"):
        session.current(lone.root)


# What is handed out, and what is drawn


def test_a_paper_has_the_skeletons_code_and_gives_less_away(catalog: Catalog) -> None:
    for kata in catalog.katas.values():
        before, after = skeleton.skeleton_of(kata), handout.handout_of(kata, SKELETON)
        assert rung.code_of(before) == rung.code_of(after)
        assert [todo.number for todo in skeleton.todos(after)] == [todo.number for todo in skeleton.todos(before)]
        assert not re.search(r"^// (Technique|New|Bound) ", after, re.MULTILINE)
        assert after.splitlines()[0] == before.splitlines()[0] and "// Shapes " in after
        for short, whole in zip(skeleton.todos(after), skeleton.todos(before), strict=True):
            assert len(short.text) <= len(whole.text) + 2 and re.search(r"\(~\d+ lines?( each)?\)", short.text)


def test_a_sketch_has_its_code_and_gives_less_away(catalog: Catalog) -> None:
    for kata in list(catalog.katas.values())[::7]:
        before, after = start.sketch_of(kata), handout.handout_of(kata, SKETCH)
        assert rung.code_of(before) == rung.code_of(after) and "// Shapes " in after
        assert len(skeleton.todos(after)) == len(skeleton.todos(before))
        assert not re.search(r"^// (Technique|New|Bound) ", after, re.MULTILINE)
        assert len(after) < len(before) and max(map(len, after.splitlines())) <= handout.WIDTH


@pytest.mark.parametrize("given", [BLANK, SKETCH, SKELETON])
def test_what_is_handed_out_is_asked_for_and_on_the_record(lone: Catalog, given: str) -> None:
    """A blank unless a sketch or a skeleton is asked for; unchanged, it is not started."""
    request = PartRequest(10, kata=EASY) if given == BLANK else PartRequest(10, kata=EASY, start=given)
    on = begin(lone, request)
    kata_asked = lone.katas[EASY]
    assert on.handout(0).read_text() == handout.handout_of(kata_asked, given) and on.parts[0].start == given
    on, graded = interview_run.ask(on, lone)
    assert graded.verdict.kind is Kind.NOT_STARTED
    assert report_data._texts(on, 0, lone)["handed_out"] == handout.handout_of(kata_asked, given)
    assert interview_run.status(on)["start"] == given


def test_a_todo_keeps_what_to_do_and_loses_what_must_hold() -> None:
    text = (
        "    // TODO(1): Stage the tile, coalesced: the guard\n    //   knows the last. (~3 lines)\n    // END TODO(1)"
    )
    assert handout.strip(text) == "    // TODO(1): Stage the tile, coalesced. (~3 lines)\n    // END TODO(1)"


def test_the_same_seed_draws_the_same_and_none_twice(catalog: Catalog) -> None:
    requests = [PartRequest(10, level="easy")] * 5
    drawn = [draw(requests, catalog, History(), seed, lambda kata: True) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({part.kata for part in drawn[0]}) == 5
    assert {catalog.katas[part.kata].level for part in drawn[0]} == {"easy"}


def test_what_the_learner_knows_is_drawn_last_and_said(catalog: Catalog) -> None:
    family = catalog.by_family["histogram"]
    fresh = family[-1].name

    def happened(name: str, what: str, **more: Any) -> Event:
        return Event(id=name, time="2026-03-31T10:00:00.000+00:00", kata=name, what=what, **more)

    known = History(tuple(happened(kata.name, progress.SOLUTION) for kata in family[:-1]))
    for seed in range(5):
        assert draw([PartRequest(1, family="histogram")], catalog, known, seed, lambda kata: True)[0] == Part(
            fresh, 1, start=BLANK, opening=5
        )
    passed = happened(fresh, progress.GRADE, verdict="pass")
    (part,) = draw([PartRequest(1, kata=fresh)], catalog, History((passed,)), 0, lambda kata: True)
    assert part.known == "passed, 2026-03-31"


def test_every_plan_of_ours_can_be_drawn(catalog: Catalog) -> None:
    plans = load_plans()
    asked = [(request.kind, request.level, request.minutes) for request in plans["screen"].parts]
    assert asked == [("kernel", "medium", 10), ("code", "medium", 30)]
    for plan in plans.values():
        parts = draw(plan.parts, catalog, History(), 3, lambda kata: True)
        assert [part.kind for part in parts] == [request.kind for request in plan.parts]


@pytest.mark.parametrize("kind", ["kernel", "profile"])
def test_what_is_read_is_of_the_level_and_the_track_that_were_asked_for(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    interviews = {katas[0].name: load_interview(katas[0]) for katas in catalog.by_family.values()}
    monkeypatch.setattr("grader.interview.plan.load_interview", lambda kata: interviews[kata.name])  # read once

    def drawn(**asked: str) -> set[str]:
        request = PartRequest(10, kind=kind, **asked)
        return {draw([request], catalog, History(), seed, lambda kata: True)[0].kata for seed in range(40)}

    every = drawn()
    medium = {name for name in every if catalog.katas[name].level == "medium"}
    assert medium < every and drawn(level="medium") == medium
    assert drawn(track="training") == every & track_of(catalog, "training").by_name.keys() < every
    with pytest.raises(InterviewError, match=rf"{kind} to read \(hard\+\+ {kind} interview\)"):
        drawn(level="hard++", track="interview")


def test_a_family_is_drawn_first_and_its_kata_is_of_the_pool(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = load_pool(catalog)
    monkeypatch.setattr("grader.interview.plan.load_pool", lambda catalog: pool)  # read once
    drawn = [draw([PartRequest(None)], catalog, History(), seed, lambda kata: True)[0] for seed in range(120)]
    families = Counter(catalog.katas[part.kata].family for part in drawn)
    assert {part.kata for part in drawn} <= pool.keys() and len(families) >= 14
    assert max(families.values()) < 25  # of 120 draws from 16 families
    assert all(part.minutes == pool[part.kata].minutes and part.opening == 5 for part in drawn)
    short = [draw([PartRequest(20)], catalog, History(), seed, lambda kata: True)[0] for seed in range(20)]
    assert all(pool[part.kata].minutes <= 20 for part in short)
    (unlike,) = draw([PartRequest(10, level="hard++")], catalog, History(), 0, lambda kata: True)
    assert unlike.opening == 0 and catalog.katas[unlike.kata].level == "hard++"


PLAN = "screen:\n  about: a screen\n  parts:\n    - {level: easy, minutes: 10}\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: [1]", 1, ["plans: a:", "`key: value`", "a list"]),
        (PLAN.replace("about: a screen", "abuot: a screen"), 2, ["screen: abuot:", "unknown field", "mean about"]),
        (PLAN.replace("  about: a screen\n", ""), 2, ["screen: about:", "missing", "Add a line"]),
        (PLAN.replace("a screen", "3"), 2, ["screen: about:", "expected words", "'3'"]),
        (PLAN.replace("\n    - {level: easy, minutes: 10}", " []"), 3, ["screen: parts:", "has 0 parts", "at least 1"]),
        (PLAN.replace(", minutes: 10", ""), 4, ["parts: number 1: minutes:", "missing"]),
        (PLAN.replace("easy", "esay"), 4, ["parts: number 1: level:", "'esay'", "mean easy"]),
        (PLAN.replace("minutes: 10", "time: 5"), 4, ["parts: number 1: time:", "unknown field", "minutes"]),
        (PLAN.replace("minutes: 10", "minutes: ten"), 4, ["minutes:", "expected a number above 0, up to 600", "'ten'"]),
        (PLAN.replace("minutes: 10", "minutes: true"), 4, ["minutes:", "expected a number", "'true'"]),
        (PLAN.replace("minutes: 10", "minutes: 0"), 4, ["minutes:", "out of range", "600"]),
        (PLAN.replace("minutes: 10", "minutes: 10, minutes: 9"), 4, ["number 1:", "'minutes'", "twice", "line 4"]),
        (PLAN + PLAN, 5, ["'screen'", "twice", "line 1"]),
        ("a: ]", 1, ["not valid YAML"]),
    ],
)
def test_a_faulty_plan_is_one_error_with_file_and_line(tmp_path: Path, text: str, line: int, said: list[str]) -> None:
    place = tmp_path / "plans.yaml"
    place.write_text(text)
    with pytest.raises(InterviewError) as error:
        load_plans(place)
    words = str(error.value)
    assert words.startswith(f"{place}:{line}: ") and has(words, *said) and "\n" not in words


def test_a_file_without_a_plan(tmp_path: Path) -> None:
    (tmp_path / "plans.yaml").write_text("{}")
    for name, words in (("plans.yaml", "is empty"), ("none.yaml", "cannot be read")):
        with pytest.raises(InterviewError, match=all_of(name, words, "at least one plan")):
            load_plans(tmp_path / name)


def test_hidden_shapes_are_the_same_cases_in_an_order_of_the_seed(catalog: Catalog) -> None:
    kata = catalog.katas[EASY]
    spec = load_spec(kata)

    def keys(seed: int, shuffled: bool) -> list[CaseKey]:
        budget = replace(budget_for("sim"), seed=seed, shuffled=shuffled)
        return list(named_keys(Search(kata, spec, None, budget)))  # type: ignore[arg-type]

    plain, one, again, two = (keys(*wanted) for wanted in ((1, False), (1, True), (1, True), (2, True)))
    sizes = [[shape.sizes for shape in found] for found in (plain, one, two)]
    assert one == again and sizes[0] != sizes[1] != sizes[2] != sizes[0]
    assert sorted(sizes[0]) == sorted(sizes[1]) == sorted(sizes[2]) and sizes[1][-1] == sizes[2][-1]
    target: Any = SimpleNamespace(device="sim")
    budget = budget_of(Options(shuffled=True, seed=5), target, after_gpu=False)
    assert budget.shuffled and budget.seed == 5 and budget.examples > budget_for("sim").examples
    assert not budget_of(Options(), target, after_gpu=False).shuffled


# Killed


def killed_at(number: int, step: Callable[[], object]) -> bool:
    """Run a step in a child that is killed at its nth sync or rename; whether it was."""
    child = os.fork()
    if child == 0:
        calls = 0

        def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments)

            return call

        os.fsync, os.pwrite, os.ftruncate = deadly(os.fsync), deadly(os.pwrite), deadly(os.ftruncate)  # type: ignore
        Path.rename, Path.replace = deadly(Path.rename), deadly(Path.replace)  # type: ignore[assignment]
        step()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_begin_that_is_killed_anywhere_leaves_an_interview_or_none(lone: Catalog) -> None:
    moments = 0
    for number in range(1, 30):
        if not killed_at(number, lambda: begin(lone)):
            break
        moments += 1
        on = session.current(lone.root) or begin(lone)
        assert on.handout(0).read_text() == handout.handout_of(lone.katas[EASY], BLANK) and on.part == 0 and not on.over
        assert [path.name for path in session.interviews(lone.root).glob(".begin-*")] in ([], [f".begin-{os.getpid()}"])
        shutil.rmtree(session.interviews(lone.root))
    assert 4 <= moments < 29


def test_an_end_that_is_killed_anywhere_is_taken_up(lone: Catalog) -> None:
    for number in range(1, 40):
        on = begin(lone, PartRequest(10, kata=EASY), PartRequest(10, kata="relu_f32"))
        answer(on, lone)
        was_killed = killed_at(number, lambda on=on: interview_run.end_part(on, lone))  # type: ignore[misc]
        found = session.current(lone.root)
        assert found is not None
        found = interview_run.recover(found, lone)
        found = interview_run.end_part(found, lone) if found.part == 0 else found
        assert found.part == 1 and not found.over
        assert found.handout(1).read_text() == handout.handout_of(lone.katas["relu_f32"], BLANK)
        assert found.copy_of(0, found.handed_in(0)).read_text() == found.handout(0).read_text()
        assert sum(event["what"] == session.END for event in found.events) == 1
        shutil.rmtree(session.interviews(lone.root))
        if not was_killed:
            break
    assert 6 <= number < 39


def test_a_file_that_is_gone_comes_back_as_it_was_last_graded(lone: Catalog) -> None:
    on = begin(lone)
    on.handout(0).unlink()
    with pytest.raises(InterviewError, match=all_of("`kata interview resume`", "lost")):
        interview_run.ask(on, lone)
    os.mkfifo(on.handout(0))
    with pytest.raises(InterviewError, match="cannot be read"):
        interview_run.ask(on, lone)
    on.handout(0).unlink()
    on = interview_run.recover(on, lone)
    assert on.handout(0).read_text() == handout.handout_of(lone.katas[EASY], BLANK)
    on.handout(0).write_text("// mine\n" + on.handout(0).read_text())
    kept = on.handout(0).read_text()
    session.append(on, session.ASK, id="1", part=0, digest=interview_run._keep_copy(on, 0), final=False)
    on.handout(0).unlink()
    on = interview_run.recover(session.load(on.folder), lone)
    assert on.handout(0).read_text() == kept
    assert [attempt.kind for attempt in on.attempts(0)] == ["cut off"]


# The commands


def kata(place: Path, *arguments: str, **environment: str) -> Any:
    done = run(place, "-m", "grader", *arguments, **environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def interview(place: Path, *arguments: str) -> Any:
    return kata(place, "interview", *arguments)


def current(place: Path) -> Session:
    on = session.current(place)
    assert on is not None
    return on


def test_an_interview_from_begin_to_page(clone: Path) -> None:
    mine = clone / f"exercises/elementwise/{EASY}.cu"
    before = mine.read_bytes()
    done = interview(clone, "--kata", EASY, "--minutes", "240", "--device", "sim", "--seed", "11")
    assert done.returncode == 0 and f"interviews/{current(clone).name}/{EASY}.cu" in done.stdout
    assert "n=" not in done.stdout  # no shape is told beforehand
    on, found = current(clone), load_catalog(clone)
    assert interview(clone, "grade").returncode == 1
    answer(on, found, WRONG)
    done = interview(clone, "grade")
    line = next(number for number, text in enumerate(on.handout(0).read_text().splitlines(), 1) if "idx <= n" in text)
    assert (
        done.returncode == 1 and f"{EASY}: out of bounds: " in done.stdout and re.search(r"shape +n=\d+", done.stdout)
    )
    assert f"interviews/{on.name}/{EASY}.cu:{line}" in done.stdout and session.COPIES not in done.stdout

    refused = [kata(clone, *command, EASY) for command in (["hint"], ["solution"])]
    assert [item.returncode for item in refused] == [1, 1] and all(item.stdout == "" for item in refused)
    assert has(refused[0].stderr, "no hint") and "--anyway" in refused[1].stderr
    assert kata(clone, "solution", EASY, "--anyway").returncode == 0
    assert kata(clone, "show", EASY).returncode == 0 and kata(clone, "hint", "relu_f32").returncode == 0

    answer(on, found)
    on.handout(0).write_text(on.handout(0).read_text() + "// </pre><script>alert(1)</script> & more\n")
    done = interview(clone, "grade", "--json")
    known = json.loads(done.stdout)
    assert done.returncode == 0 and known["verdict"] == "pass" and known["in_time"]
    status = json.loads(interview(clone, "status", "--json").stdout)
    assert [item["verdict"] for item in status["attempts"]] == ["not started", "out of bounds", "pass"]
    assert status["looked_up"] == 3 and 0 < status["left_s"] < 240 * 60 and status["state"] == "on"

    done = interview(clone, "finish")
    assert done.returncode == 0 and "handed in: pass" in done.stdout and "interview.html" in done.stdout
    assert mine.read_bytes() == before and progress.load(clone).grades(EASY) == []
    assert session.current(clone) is None and interview(clone, "status").returncode == 1
    look_at_record(on.folder, line)


def look_at_record(folder: Path, line: int) -> None:
    """What the page and its JSON must have of the interview above."""
    record = json.loads((folder / "interview.json").read_text())
    (part,) = record["parts"]
    assert record["kata_interview"] == report_data.FORMAT and record["seed"] == 11 and not record["clock_on_screen"]
    assert [item["verdict"] for item in part["attempts"]] == ["not started", "out of bounds", "pass", "pass"]
    assert part["start"] == BLANK and part["handed_out"].count("KATA_EXPORT") == 1
    assert part["attempts"][1]["grade"]["verdicts"][0]["line"] == line
    assert part["first_right_s"] == part["attempts"][2]["asked_s"] and part["first_right_in_time"]
    looked = [(item["kata"], item["how"], item["shown"], item["about"]) for item in record["lookups"]]
    assert looked == [
        (EASY, "hint 1", False, "this interview's kata"),
        (EASY, "solution", False, "this interview's kata"),
        (EASY, "solution", True, "this interview's kata"),
        (EASY, "show", True, "this interview's kata"),
        ("relu_f32", "hint 1", True, "another family"),
    ]
    for key in ("handed_in", "solution"):
        assert [item["name"] for item in part["compiler"][key]] == [f"{EASY}_kernel"]
        assert part["compiler"][key][0]["registers"] > 4
    assert part["final"]["grade"]["costs"][0].startswith(f"counters of {EASY}_kernel")
    assert any(text.startswith("+") and "idx < n" in text for text in part["diff"])
    assert len(part["questions"]) >= 4 and all(2 <= len(item["points"]) <= 4 for item in part["questions"])
    text = (folder / "interview.html").read_text()
    seen = Tags(text)
    assert has(" ".join(seen.words), "from a blank file")
    assert page(record) == text  # nothing is on the page that is not in the record
    assert seen.balanced and not seen.loads and seen.count("script") == 1 and "alert(1)</script>" not in text
    assert seen.count("fieldset") == len(part["questions"])
    assert seen.count("input") == 3 * sum(len(item["points"]) for item in part["questions"]) + 1


class Tags(HTMLParser):
    """What an HTML file is made of: elements, texts, whether its tags are balanced, and what it would load."""

    VOID = ("meta", "input", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.elements: list[tuple[str, list[str]]] = []  # with the names of their attributes
        self.words: list[str] = []
        self.loads: list[str] = []
        self.balanced = True
        self.feed(text)
        self.close()
        self.balanced = self.balanced and not self.open

    def count(self, name: str) -> int:
        return self.names.count(name)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.elements.append((tag, [name for name, _ in attrs]))
        given = dict(attrs)
        outside = [given.get("src"), given.get("href") if not (given.get("href") or "#").startswith("#") else None]
        self.loads += [place for place in outside if place]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.balanced = self.balanced and bool(self.open) and self.open.pop() == tag


def test_a_plan_goes_on_with_the_next_kata(clone: Path) -> None:
    assert interview(clone, "--plan", "sprint", "--no-opening", "--device", "sim", "--seed", "3").returncode == 0
    on = current(clone)
    katas = load_catalog(clone).katas
    assert [katas[part.kata].level for part in on.parts] == ["easy"] * 3
    assert not on.handout(1).exists()  # the second is not told beforehand
    assert on.parts[1].kata not in interview(clone, "status").stdout
    done = interview(clone, "finish", "--json")
    state = json.loads(done.stdout)
    assert (state["part"], state["kata"], state["minutes"]) == (2, on.parts[1].kata, 8)
    assert on.handout(1).read_text() == handout.handout_of(katas[on.parts[1].kata], BLANK)
    done = interview(clone, "finish", "--all", "--json")
    record = json.loads(done.stdout)
    assert [part["final"]["verdict"] for part in record["parts"]] == ["not started"] * 3
    assert [part["first_right_s"] for part in record["parts"]] == [None] * 3
    assert "no right answer" in (on.folder / "interview.html").read_text()


def test_an_interview_that_is_abandoned_leaves_the_file_and_room_for_another(clone: Path) -> None:
    interview(clone, "--level", "easy", "--device", "sim", "--no-opening")
    on = current(clone)
    done = interview(clone, "--level", "easy")
    assert done.returncode == 2 and has(done.stderr, "interview is on", on.name)
    done = interview(clone, "abandon")
    assert done.returncode == 0 and on.handout(0).is_file() and not (on.folder / "interview.html").exists()
    assert interview(clone, "--family", "relu", "--device", "sim").returncode == 0 and current(clone).name != on.name


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["grade"], 2, ["no interview", "`kata interview`"]),
        (["finish"], 2, ["no interview"]),
        (["resume"], 2, ["no interview"]),
        (["abandon"], 2, ["no interview"]),
        (["status"], 1, ["no interview", "`kata interview`"]),
        (["--plan", "nothing"], 2, ["no plan", "'nothing'", "screen"]),
        (["--plan", "screen", "--level", "easy"], 2, ["--level"]),
        (["--kata", "elementwise"], 2, ["--kata", "one kata", "'elementwise'"]),
        (["--kata", EASY, "--level", "hard"], 2, [EASY, "easy", "family elementwise"]),
        (["--family", "nothing"], 2, ["family", "'nothing'"]),
        (["--level", "easy", "--family", "sgemv"], 2, ["(easy sgemv)", "no kata"]),
    ],
)
def test_what_cannot_be_done_is_one_sentence(pristine: Path, arguments: list[str], code: int, said: list[str]) -> None:
    done = interview(pristine, *arguments)
    assert done.returncode == code and has(done.stderr, *said) and len(done.stderr.splitlines()) == 1
    assert session.current(pristine) is None


def test_a_kata_that_went_away_is_said(clone: Path) -> None:
    interview(clone, "--kata", EASY, "--device", "sim")
    file = current(clone).folder / session.LOG
    file.write_text(file.read_text().replace(EASY, "gone_f32"))
    for task in ("status", "grade", "finish", "resume"):
        done = interview(clone, task)
        assert done.returncode == 2 and has(done.stderr, "gone_f32", "catalogue")
    assert interview(clone, "abandon").returncode == 0 and session.current(clone) is None


@pytest.mark.parametrize("minutes", ["0", "-3", "601", "soon", "nan"])
def test_minutes_out_of_range_are_refused(pristine: Path, minutes: str) -> None:
    done = interview(pristine, f"--minutes={minutes}")
    assert done.returncode == 2 and has(done.stderr, "--minutes", f"'{minutes}'", "above 0", "600")


def test_a_diff_is_noted_for_both_katas_and_one_of_ones_own_is_not(lone: Catalog) -> None:
    begin(lone, PartRequest(10, kata="elementwise_f32x4"))
    old, new = lone.katas[EASY], lone.katas["elementwise_f32x4"]
    assert "--anyway" in str(lookups.refusal([old, new], "diff"))
    assert lookups.refusal([old, new], "diff", anyway=True) is None
    noted = [(event["kata"], event["shown"]) for event in current(lone.root).lookups]
    assert noted == [(EASY, False), ("elementwise_f32x4", False), (EASY, True), ("elementwise_f32x4", True)]
    assert kata(lone.root, "diff", "elementwise_f32x4", "--mine").returncode == 0
    assert len(current(lone.root).lookups) == 4
    assert kata(lone.root, "solution", "relu_f32").returncode == 1  # of another kata, which is not passed yet
    assert (current(lone.root).lookups[-1]["kata"], current(lone.root).lookups[-1]["shown"]) == ("relu_f32", False)
    done = kata(lone.root, "sass", "elementwise_f32x4", "--solution")
    assert done.returncode == 1 and "no sass until" in done.stderr and done.stdout == ""


def test_over_time_is_said_and_counts_as_such(lone: Catalog, at: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    on = begin(lone)
    answer(on, lone)
    at.s += 601
    on, graded = interview_run.ask(on, lone)
    (attempt,) = on.attempts(0)
    assert graded.passed and not attempt.in_time and attempt.asked_s == 601
    on = interview_run.end_part(on, lone)
    at.s += 86400  # the page is made a day later
    on, record = report_data.complete(on, lone)
    part = record["parts"][0]
    assert [item["asked_s"] for item in part["attempts"]] == [601, 601]
    assert part["first_right_in_time"] is False and part["over_s"] == 1
    assert re.search(r"✗[^<]*10:01[^<]*time was up", page(record))


HOSTILE = "</pre></textarea><script>alert(1)</script><img src=x onerror=alert(1)> \" onclick='a' & &amp; more"


def test_hostile_text_is_escaped(clone: Path, tmp_path: Path, at: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file's name, in a candidate's code, in what the code prints and in the name of its kernel."""
    place = tmp_path / HOSTILE.replace("/", "\\")
    place.symlink_to(clone)
    found = load_catalog(place)
    crash = Verdict(Kind.CRASH, "it ended", printed=HOSTILE, line=1, finding=Finding("crash", "it ended", HOSTILE))
    monkeypatch.setattr(
        interview_run, "grade", lambda kata, options, **more: Grade(kata, source_of(more["source"]), (crash,), 1.0)
    )
    on = begin(found)
    answer(on, found)
    on.handout(0).write_text(f"// {HOSTILE}\n{on.handout(0).read_text()}")
    on, _ = interview_run.ask(on, found)
    text = page(made_record(on, found))
    seen = Tags(text)
    whole = " ".join(seen.words)
    assert re.search(rf"at +{re.escape(str(on.handout(0)))}:1", whole)
    assert f"+// {HOSTILE}" in whole and f"printed   {HOSTILE}" in whole and f"kernel {HOSTILE}" in whole
    assert seen.balanced and not seen.loads and seen.count("script") == 1 and seen.count("img") == 0
    assert "<img" not in text and "</pre></textarea>" not in text


def test_no_text_of_a_record_is_markup(lone: Catalog, at: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text of the record is made hostile at once: the page has the same elements and attributes as before."""
    monkeypatch.setattr(
        interview_run, "grade", lambda kata, options, **more: Grade(kata, source_of(more["source"]), (SLOW,), 1.0)
    )
    on = begin(lone)
    answer(on, lone)
    at.s += 200
    on, _ = interview_run.ask(session.append(on, session.OPEN, pid=1), lone)
    lookups.refusal([lone.katas[EASY]], "solution", anyway=True)
    record = made_record(session.load(on.folder), lone)

    def ending(value: Any, words: str) -> Any:
        if isinstance(value, dict):
            return {name: ending(item, words) for name, item in value.items()}
        if isinstance(value, list):
            return [ending(item, words) for item in value]
        return value + words if isinstance(value, str) else value

    calm, hostile = (Tags(page(ending(record, words))) for words in (" calm", f" {HOSTILE}"))
    colour = ("span", ["class"])  # of a part of code: what is hostile may be a string of C++
    elements = [[element for element in each.elements if element != colour] for each in (calm, hostile)]
    assert hostile.balanced and elements[0] == elements[1]
    assert "".join(hostile.words).count(HOSTILE) == "".join(calm.words).count(" calm")


def test_no_file_handed_in_is_a_page_all_the_same(lone: Catalog) -> None:
    on = begin(lone)
    on.handout(0).unlink()
    record = made_record(on, lone)
    assert record["parts"][0]["attempts"] == [] and record["parts"][0]["final"] is None
    assert has(page(record), "no file was handed in", "no right answer")


def killed_while_it_compiles(clone: Path, tmp_path: Path, command: str) -> None:
    """`kata interview COMMAND`, killed when it has asked for a grade and before there is one."""
    on = current(clone)
    answer(on, load_catalog(clone))
    on.handout(0).write_text(on.handout(0).read_text() + f"// held {tmp_path}\n")  # not in the cache
    compiler = HeldCompiler(tmp_path, "^// held")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KATA_NVCC": compiler.path}
    process = subprocess.Popen([sys.executable, "-m", "grader", "interview", command], cwd=clone, env=env)
    wait_until(compiler.has_begun)
    assert any(event["what"] == session.ASK for event in current(clone).events)
    process.kill()
    process.wait()
    compiler.let_go()


def test_a_grade_that_is_killed_is_on_the_record_and_the_next_one_works(clone: Path, tmp_path: Path) -> None:
    interview(clone, "--kata", EASY, "--device", "sim")
    killed_while_it_compiles(clone, tmp_path, "grade")
    assert [attempt.kind for attempt in current(clone).attempts(0)] == ["cut off"]
    assert interview(clone, "grade").returncode == 0
    assert [attempt.kind for attempt in current(clone).attempts(0)] == ["cut off", "pass"]


def test_a_finish_that_is_killed_is_finished_by_the_next(clone: Path, tmp_path: Path) -> None:
    interview(clone, "--kata", EASY, "--device", "sim")
    on = current(clone)
    killed_while_it_compiles(clone, tmp_path, "finish")
    assert current(clone).over and not (on.folder / "interview.html").exists()
    spent = current(clone).spent_s(0)
    assert "kata interview finish" in interview(clone, "status").stdout
    done = interview(clone, "resume")
    assert done.returncode == 0 and "handed in: pass" in done.stdout and session.current(clone) is None
    record = json.loads((on.folder / "interview.json").read_text())
    assert record["parts"][0]["spent_s"] == spent  # the clock had stopped


def wait_until(holds: Callable[[], bool]) -> None:
    wait_for(holds, "what was to come of it")


# The first minutes, what follows a pass, hints, bugs and readings

POOLED = "rms_norm_f32"
COUNTED = {"kernels": [{"warp_instructions": 200, "sectors": 64, "wavefronts": 0, "barriers": 1, "atomics": 0}]}


def fill(form: Path, *texts: str) -> None:
    """Write under the first headings of a form."""
    parts = re.split(r"(?m)(?=^## )", form.read_text())
    form.write_text("".join([parts[0], *(part + text + "\n" for part, text in zip(parts[1:], texts, strict=False))]))


def passed(kata: Kata, options: Options, **more: Any) -> Grade:
    return Grade(kata, source_of(more["source"]), (Verdict(Kind.PASS, "", device="sim sm_90a"),), 1.0)


def test_the_first_minutes_end_by_the_clock_or_on_demand(lone: Catalog, at: Time) -> None:
    on = begin(lone, PartRequest(10, kata=POOLED))
    assert on.in_opening(0) and not on.handout(0).exists() and on.left_s(0) == 15 * 60
    assert len(re.findall(r"(?m)^## ", on.notes(0).read_text())) == len(OPENING)
    with pytest.raises(InterviewError, match="interview code"):
        interview_run.ask(on, lone)
    at.s += 299
    assert interview_run.catch_up(on, lone) is on
    on.notes(0).unlink()
    on = interview_run.recover(on, lone)
    assert on.notes(0).exists() and on.in_opening(0)
    fill(on.notes(0), "rows and cols from 1", "", "memory")
    at.s += 1
    on = interview_run.catch_up(on, lone)
    assert on.handout(0).read_text() == handout.handout_of(lone.katas[POOLED], BLANK)
    fill(on.notes(0), "too late")
    assert notes.answers(on.written(0)["notes"], 5) == ["rows and cols from 1", "", "memory", "", ""]
    with pytest.raises(InterviewError, match="handed out"):
        interview_run.start_code(on, lone)


def test_what_is_said_is_beside_strong_answers(lone: Catalog, at: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes, a hint at its cost, a pass, and the questions after it."""
    monkeypatch.setattr(interview_run, "grade", passed)
    on = begin(lone, PartRequest(10, kata=POOLED))
    fill(on.notes(0), "", "", "memory, of course")
    at.s += 60
    on = interview_run.start_code(on, lone)
    assert interview_run.nudge_cost(on, lone) == (1, 2.0)
    on, hint = interview_run.nudge(on, lone)
    assert hint.startswith(load_hints(lone.katas[POOLED])[0]) and hint.endswith(interview_run.SKELETONS_NAMES)
    assert on.left_s(0) == 12 * 60
    answer(on, lone)
    at.s += 120
    on, _ = interview_run.ask(on, lone)
    assert on.answered(0) and "follow-ups.md" in interview_run.words_of(on, 0)
    fill(on.follow_ups(0), "launch latency\n> 2 us")
    at.s += 600 + 1
    on, _ = interview_run.ask(on, lone)  # 13:01, and the hint made the limit 13:00
    assert [item.in_time for item in on.attempts(0)] == [True, False]
    record = made_record(on, lone)
    (part,) = record["parts"]
    assert [bool(item["written"]) for item in part["opening"]] == [False, False, True, False, False]
    assert all(item["strong"] for item in part["opening"])
    assert [item["written"] for item in part["follow_ups"]] == ["launch latency\n> 2 us", ""]
    remarks = " ".join(part["conclusion"]["remarks"])
    assert has(remarks, "what bounds it", "1 hint", "2 minutes", "1 of 2 questions", "grade 1")
    seen = Tags(page(record))
    whole = " ".join(seen.words)
    assert seen.balanced and has(whole, "memory, of course", "launch latency", part["follow_ups"][0]["strong"])
    assert whole.index("Conclusion") < whole.index("Time and looking up")


def test_questions_after_a_pass_are_not_for_a_part_that_ended_meanwhile(
    lone: Catalog, at: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*arguments: Any, **more: Any) -> Grade:
        interview_run.end_part(session.load(on.folder), lone)  # in another terminal
        return passed(*arguments, **more)

    on = interview_run.start_code(begin(lone, PartRequest(10, kata=POOLED), PartRequest(10, kata=EASY)), lone)
    answer(on, lone)
    monkeypatch.setattr(interview_run, "grade", ended)
    after, _ = interview_run.ask(on, lone)
    assert after.part == 1 and not after.answered(0) and not after.answered(1)
    assert not after.follow_ups(0).exists() and not after.follow_ups(1).exists()


@pytest.mark.parametrize(("device", "runs"), [("auto", True), ("sim", True), ("gpu", False)])
def test_an_old_gpu_leaves_the_simulator_to_auto(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, device: str, runs: bool
) -> None:
    monkeypatch.setattr(interview_run, "find_gpu", lambda: SimpleNamespace(capability=(7, 5)))
    newer = next(kata for kata in catalog.katas.values() if kata.capability > (7, 5) and not kata.libraries)
    assert interview_run._runs_here(device, newer) is runs


def test_a_conclusion_counts_lines_waiting_and_costs() -> None:
    tries = [
        {"at_the_finish": False, "waited_s": 30.0, "verdict": "race"},
        {"at_the_finish": False, "waited_s": 10.0, "verdict": "pass"},
        {"at_the_finish": True, "waited_s": 99.0, "verdict": "pass"},
    ]
    more = {"kernels": [{**COUNTED["kernels"][0], "sectors": 256}], "sizes": {"n": 7}}
    part = {
        "kind": "code",
        "attempts": tries,
        "spent_s": 400.0,
        "first_right_s": 300.0,
        "first_right_in_time": True,
        "handed_out": "int a;\n// TODO(1): x\n// END TODO(1)\n",
        "handed_in": "int a;\nint b;  // mine\n\nint c;\n",
        "opening": [],
        "nudges": [],
        "follow_ups": [],
        "counted": more,
        "solution_counted": {**COUNTED, "sizes": {"n": 7}},
    }
    found = conclude(part)
    assert (found["lines_added"], found["lines_removed"], found["tries"]) == (2, 0, 2)
    assert (found["waiting_s"], found["thinking_s"]) == (40, 360)
    against = {item["counter"]: (item["handed_in"], item["solution"]) for item in found["against_solution"]}
    assert against == {"warp instructions": (200, 200), "sectors": (256, 64), "barriers": (1, 1)}
    assert has(" ".join(found["remarks"]), "5:00", "grade 2", "race", "more than the solution", "256")
    assert conclude({**part, "solution_counted": {**COUNTED, "sizes": {"n": 8}}})["against_solution"] == []


def test_a_bug_is_handed_out_without_its_comments(lone: Catalog) -> None:
    (part,) = draw([PartRequest(15, kind="debug")], lone, History(), 2, lambda kata: True)
    text = handout.text_for(lone, part)
    solution = rung.code_of(lone.katas[part.kata].solution_path.read_text())
    assert rung.code_of(text) != solution and "BUG" not in text and "TODO" not in text
    assert text.startswith(f"// {part.kata}: ") and part.item.startswith(f"{part.kata}/")
    assert handout.is_unchanged(lone, part, text) and not handout.is_unchanged(lone, part, text + "int more;\n")
    _, graded = interview_run.ask(begin(lone, PartRequest(15, kind="debug")), lone)
    assert graded.verdict.kind is Kind.WRONG_ANSWER  # graded, not taken for one that was not started


def test_a_reading_hides_its_name_and_keeps_answers_beside_points(lone: Catalog, at: Time) -> None:
    on = begin(lone, PartRequest(10, kind="kernel"))
    part = on.parts[0]
    form = on.handout(0).read_text()
    assert on.handout(0).name == "reading-1.md" and part.kata not in form and "__global__" in form
    with pytest.raises(InterviewError, match="on paper"):
        interview_run.ask(on, lone)
    with pytest.raises(InterviewError, match="hint"):
        interview_run.nudge_cost(on, lone)
    fill(on.handout(0), "a row-wise thing")
    record = made_record(on, lone)
    (part_record,) = record["parts"]
    assert [item["written"] for item in part_record["questions"]][:2] == ["a row-wise thing", ""]
    assert has(page(record), "a row-wise thing", part.kata, part_record["questions"][0]["question"])


def test_the_title_of_a_blank_says_no_more_than_the_blank(catalog: Catalog) -> None:
    """The first line of a solution's header has the technique, and the title is read before the first minutes."""
    for name, asked in (("sgemm_sliced_k_f32", "C = A @ B"), ("mat_trans_f32_tiled_padded", "y = x transposed")):
        part = Part(name, 10, start=BLANK)
        assert handout.title(catalog, part) == f"{name}: {asked}"
        assert handout.title(catalog, replace(part, start=SKELETON)).startswith(f"{name}: {asked}, ")


def test_no_notes_and_an_unchanged_file_are_said_so(lone: Catalog, at: Time) -> None:
    on = begin(lone, PartRequest(10, kata=POOLED), PartRequest(10, kind="kernel"))
    on = interview_run.end_part(interview_run.end_part(interview_run.start_code(on, lone), lone), lone)
    blank, paper = (part["conclusion"] for part in report_data._record(on, lone)["parts"])
    assert has(" ".join(blank["remarks"]), "wrote no notes", "no right answer", "as it was handed out")
    assert "lines_added" in blank and "lines_added" not in paper


def test_a_right_answer_after_the_time_is_said_in_the_terminal_too() -> None:
    part = {"begun": "x", "on_paper": False, "final": {"verdict": "pass"}, "first_right_s": 324.0}
    assert command._went({**part, "first_right_in_time": True}) == "right after 5:24; handed in: pass"
    assert has(command._went({**part, "first_right_in_time": False}), "5:24", "after the time was up")


def test_no_two_katas_of_the_pool_ask_the_same_afterwards(catalog: Catalog) -> None:
    """Every kata of the pool has follow-ups of its own."""
    pool = load_pool(catalog)
    asked = Counter(item.ask for entry in pool.values() for item in entry.follow_ups)
    assert all(len(entry.follow_ups) >= 2 for entry in pool.values()) and max(asked.values()) == 1
    words = " ".join(asked)
    assert all(re.search(harder, words, re.IGNORECASE) for harder in ("128k", "batch", "same bits", "bf16", "B200"))


# The terminal

pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed; `pip install -e .[dev]`")


LIMIT_S = PATIENCE_S


@pytest.fixture
def screen() -> None:
    """What a test needs that drives a terminal."""
    if pexpect is None:
        absent("pexpect is not installed; `pip install -e .[dev]`")


def terminal(place: Path, *arguments: str, **environment: str) -> Any:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
    command = ["-m", "grader", "interview", *arguments]
    return pexpect.spawn(
        sys.executable, command, cwd=place, env=env, encoding="utf-8", timeout=LIMIT_S, dimensions=(30, 100)
    )


def test_the_line_of_the_clock_keeps_its_time_and_keys() -> None:
    on = SimpleNamespace(
        part=0,
        parts=[SimpleNamespace(kata="sgemm_sliced_k_f32", on_paper=False)] * 2,
        name_of=lambda part: "sgemm_sliced_k_f32",
        in_opening=lambda part: False,
        left_s=lambda part: 754.0,
        attempts=lambda part: [SimpleNamespace(final=False, kind="wrong answer")],
    )
    shown: Any = SimpleNamespace(on=on, asked=False, nudging=False, grade=None)
    end = "g grade, f finish, q leave"
    whole = f"12:34 left | sgemm_sliced_k_f32 | part 1 of 2 | 1 tried, last: wrong answer | {end}"
    assert live._line(shown, len(whole)) == whole
    assert live._line(shown, len(whole) - 1) == f"12:34 left | sgemm_sliced_k_f32 | part 1 of 2 | {end}"
    assert live._line(shown, 60) == f"12:34 left | sgemm_sliced_k_f32 | {end}"
    assert live._line(shown, 50) == f"12:34 left | {end}"


def test_the_clock_counts_down_and_its_keys_work(screen: None, clone: Path) -> None:
    child = terminal(clone, "--kata", EASY, "--minutes", "240", "--device", "sim")
    child.expect(r"(\d:\d\d:\d\d) left \| elementwise_f32 \| g grade")
    first = child.match[1]
    child.expect(rf"(?!{first})(\d:\d\d:\d\d) left")
    assert child.match[1] < first <= "4:00:00"
    assert not child.getecho()
    on = current(clone)
    answer(on, load_catalog(clone), WRONG)
    child.send("g")
    child.expect("grading ...")
    child.expect("out of bounds: ")
    child.expect(r"1 tried, last: out of bounds \| g grade")
    child.send("?")
    child.expect("t task")
    answer(on, load_catalog(clone))
    child.send("g")
    child.expect(r"2 tried, last: pass")
    child.send("f")
    child.expect("y/n")
    child.send("n")
    child.expect("last: pass")
    child.send("fy")
    child.expect("handed in: pass")
    child.expect("interview.html")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0 and session.current(clone) is None
    whats = [event["what"] for event in session.load(on.folder).events]
    assert {"open", "beat", "close", "done"} <= set(whats)
    assert json.loads((on.folder / "interview.json").read_text())["clock_on_screen"]


def test_leaving_the_clock_gives_the_terminal_back_and_the_time_runs_on(
    screen: None, clone: Path, tmp_path: Path
) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "PS1": "$ "}
    shell = pexpect.spawn("/bin/sh", cwd=clone, env=env, timeout=LIMIT_S)
    shell.sendline(
        f"T={tmp_path}; stty -a > $T/before; "
        f"{sys.executable} -m grader interview --kata {EASY} --device sim; stty -a > $T/after"
    )
    shell.expect(b"left \\| elementwise_f32")
    shell.send("q")
    shell.expect(b"resume` continues")
    shell.sendline(f"{sys.executable} -m grader interview resume; echo code $?; stty -a > $T/again")
    shell.expect(b"left \\| elementwise_f32")
    shell.sendintr()
    shell.expect(b"code 130")
    wait_until(lambda: (tmp_path / "again").is_file() and bool((tmp_path / "again").read_text()))
    texts = [(tmp_path / name).read_text() for name in ("before", "after", "again")]
    assert texts[0] == texts[1] == texts[2]
    closed = [event["what"] for event in current(clone).events if event["what"] in ("open", "close")]
    assert closed == ["open", "close", "open", "close"]
    shell.close(force=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, None])
def test_a_clock_that_is_killed_can_be_resumed_and_there_is_only_one(
    screen: None, clone: Path, how: signal.Signals | None
) -> None:
    child = terminal(clone, "--kata", EASY, "--device", "sim")
    child.expect("left")
    answer(current(clone), load_catalog(clone))
    second = terminal(clone, "resume")
    second.expect("another terminal")
    second.expect(pexpect.EOF)
    second.close()
    assert second.exitstatus == 2
    child.send("g")
    child.expect("grading ...")
    if how is None:  # the terminal itself goes
        os.close(child.child_fd)
        wait_until(lambda: os.waitpid(child.pid, os.WNOHANG)[0] == child.pid)
    else:
        child.kill(how)
        child.expect(pexpect.EOF)
        child.close()
    whats = [event["what"] for event in current(clone).events]
    assert ("close" in whats) == (how is not signal.SIGKILL)
    again = terminal(clone, "resume")
    again.expect("left")
    again.send("q")
    again.expect("time runs on")
    again.expect(pexpect.EOF)
    again.close()
    assert again.exitstatus == 0
    wait_until(lambda: not running_grades(clone))


def running_grades(place: Path) -> list[str]:
    """Command lines of graders at work in a clone."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if "grader" in words and (process / "cwd").resolve() == place.resolve():
                found.append(words)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("plan", load_plans())
def test_a_plan_is_driven_to_its_end(screen: None, clone: Path, tmp_path: Path, plan: str) -> None:
    """Each part is finished with its file as it was handed out. No compiler has to make anything of it: it says no to
    the files of a part to debug, whose grade is that of test_a_bug_is_handed_out_without_its_comments."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        '#!/bin/sh\ncase "$*" in\n*" kata.cu") echo "kata.cu(1): error: not today" >&2; exit 1 ;;\n'
        f'*) exec {find_toolchain().nvcc} "$@" ;;\nesac\n'
    )
    nvcc.chmod(0o755)
    child = terminal(clone, "--plan", plan, "--device", "sim", "--seed", "5", KATA_NVCC=str(nvcc))
    child.expect("left \\|")
    parts = current(clone).parts
    for place, part in enumerate(parts):
        name = f"reading-{place + 1}" if part.on_paper else part.kata
        if part.opening:
            child.expect(rf"left \| {name} .*c code")
            child.send("g")
            child.expect("not handed out yet")
            child.send("c")
        child.expect(rf"left \| {name} .*{'on paper' if part.on_paper else 'g grade'}")
        child.send("fy")
    child.expect("interview.html")
    child.expect(pexpect.EOF)
    (folder,) = session.every(clone)
    record = json.loads((folder / "interview.json").read_text())
    assert [part["kind"] for part in record["parts"]] == [request.kind for request in load_plans()[plan].parts]
    verdicts = {part["final"]["verdict"] for part in record["parts"] if part["kind"] == "debug"}
    assert verdicts <= {"does not compile"}
    assert all(part["conclusion"]["remarks"] for part in record["parts"])
    assert Tags((folder / "interview.html").read_text()).balanced


def test_the_screen_says_when_the_time_is_up(screen: None, clone: Path) -> None:
    child = terminal(clone, "--kata", EASY, "--minutes", "0.03", "--device", "sim")
    child.expect("time is up")
    child.expect(r"\d+:\d\d OVER TIME")
    child.send("q")
    child.expect(pexpect.EOF)
    events = [event["what"] for event in current(clone).events]
    assert events.count(session.TIME_UP) == 1


# The page in a browser, the compiler's figures


def made_record(on: Session, catalog: Catalog) -> dict[str, Any]:
    on, record = report_data.complete(interview_run.end_part(on, catalog), catalog)
    return record


@pytest.fixture(scope="module")
def shown_page(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an interview in which much happened."""
    fake = Time()
    patch = pytest.MonkeyPatch()
    patch.setattr(clock, "now", fake.now)
    shutil.rmtree(session.interviews(catalog.root), ignore_errors=True)
    on = begin(catalog, PartRequest(10, kata=EASY), PartRequest(25, level="medium"))
    on = session.append(on, session.OPEN, pid=1)
    for wait_s, change in ((100, WRONG), (200, None)):
        fake.s += wait_s
        answer(on, catalog, change)
        on, _ = interview_run.ask(on, catalog)
    lookups.refusal([catalog.katas[EASY]], "solution", anyway=True)
    record = made_record(session.load(on.folder), catalog)
    file = tmp_path_factory.mktemp("page") / "interview.html"
    file.write_text(page(record))
    patch.undo()
    shutil.rmtree(session.interviews(catalog.root))
    return file


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_in_a_browser(browser: Any, shown_page: Path, tmp_path: Path, width: int, dark: bool) -> None:  # noqa: F811
    with view(browser, shown_page, width=width, dark=dark) as seen:
        seen.page.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
        assert not seen.complaints and not seen.requests and not seen.sticking_out()
        assert len(seen.shoot(tmp_path / "page.png")) > 10_000
        paper_colour = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper_colour == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


def test_marks_are_counted_kept_saved_and_loaded(browser: Any, shown_page: Path, tmp_path: Path) -> None:  # noqa: F811
    with view(browser, shown_page) as seen:
        at = seen.page
        at.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
        points = at.locator(".point").count()
        at.locator(".point").nth(0).get_by_text("2", exact=True).click()
        at.locator(".point").nth(1).get_by_text("1", exact=True).click()
        at.locator("textarea").first.fill("spoke of sectors")
        assert at.locator("#total").inner_text() == f"3 of 4, 2 of {points} points marked"
        with at.expect_download() as saving:
            at.locator("#save").click()
        saving.value.save_as(tmp_path / "marks.json")
        marks = json.loads((tmp_path / "marks.json").read_text())
        assert (marks["marks"], marks["of"], marks["points"]) == (3, 4, points)
        first = marks["parts"][0]["questions"][0]
        assert [point["mark"] for point in first["points"][:2]] == [2, 1] and first["notes"] == "spoke of sectors"
        at.reload()
        assert at.locator("#total").inner_text().startswith("3 of 4")  # kept
        at.once("dialog", lambda dialog: dialog.accept())
        at.locator("#clear").click()
        assert at.locator("#total").inner_text().startswith("0 of 0")
        at.locator("#load").set_input_files(str(tmp_path / "marks.json"))
        wait_until(lambda: at.locator("#total").inner_text().startswith("3 of 4"))
        (tmp_path / "other.json").write_text('{"interview": "another"}')
        at.locator("#load").set_input_files(str(tmp_path / "other.json"))
        wait_until(lambda: "interview another" in at.locator("#kept").inner_text())


def test_a_measured_speed_is_on_the_page_with_its_interval(
    lone: Catalog, at: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU's grade looks like: none is needed to show it."""

    def graded(kata: Kata, options: Options, **more: Any) -> Grade:
        return Grade(kata, source_of(more["source"]), (SLOW,), 1.0)

    monkeypatch.setattr(interview_run, "grade", graded)
    on = begin(lone)
    answer(on, lone)
    at.s += 7
    on, _ = interview_run.ask(on, lone)
    text = page(made_record(on, lone))
    assert "93.1 %" in text and "92.5 to 93.7 %" in text and "100.0 µs" in text and "n=1024" in text
    assert re.search(r"k &lt;&lt;&lt;\(1, 1, 1\), \(256, 1, 1\)&gt;&gt;&gt;[^<]* 40 registers[^<]* 512 bytes", text)
    assert re.search(r"✓[^<]* 0:07[^<]*too slow", text)


def dev_check(place: Path) -> Sequence[str]:
    from grader.maintain import checks

    return checks.check_catalogue(place)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda text: None,
            ["No such file", "4 questions"],
        ),
        (lambda text: "questions: [", ["YAML"]),
        (lambda text: f"{text}katas: {{relu_f64: []}}\n", ["katas: relu_f64:", "family"]),
    ],
)
def test_faulty_questions_are_found_with_their_fix(
    clone: Path, change: Callable[[str], str | None], said: list[str]
) -> None:
    file = clone / "exercises/relu/interview.yaml"
    text = change(file.read_text())
    if text is None:
        file.unlink()
    else:
        assert text != file.read_text()
        file.write_text(text)
    (problem,) = dev_check(clone)
    assert has(problem, "exercises/relu/interview.yaml", *said)


def test_help_teaches(pristine: Path) -> None:
    done = interview(pristine, "--help")
    assert done.returncode == 0 and "Exit code" in done.stdout and "kata interview finish" in done.stdout
    assert has(done.stdout, *load_plans())
