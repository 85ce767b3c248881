"""Parts of work -> results in order, some at work at a time; and the grades that are made so."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from patience import PATIENCE_S

from grader import grade as pipeline
from grader.compile.request import Request, Target
from grader.compile.toolchain import Gpu
from grader.content.catalog import Kata, load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.grade import Options, grades_at_a_time, in_order
from grader.judge.helpers import Helpers
from grader.judge.measure import Ahead
from grader.judge.recent import OneAtATime, Recent, once
from grader.system.in_order import InOrder
from grader.verdict import Grade

ROOT = Path(__file__).resolve().parent.parent
KATAS = list(load_catalog(ROOT).by_family["relu"])
GPU = Gpu("a card", (9, 0), "580.0", (13, 0), uuid="GPU-aa")


def test_so_many_are_at_work_at_a_time_and_come_in_order() -> None:
    """Each waits until another is at work, too: one after the other would never end."""
    together = threading.Barrier(2, timeout=PATIENCE_S)
    at_work, most = [0], [0]
    lock = threading.Lock()

    def part(number: int) -> int:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        together.wait()
        with lock:
            at_work[0] -= 1
        return number

    assert list(InOrder([partial(part, number) for number in range(6)], 2)) == list(range(6))
    assert most == [2]


def test_one_at_a_time_is_no_thread() -> None:
    assert set(InOrder([threading.get_ident] * 3, 1)) == {threading.get_ident()}


def test_what_a_part_raises_is_raised_when_it_is_asked_for() -> None:
    def bad() -> int:
        raise KeyError("bad")

    found = InOrder([lambda: 1, bad, lambda: 3], 3)
    assert found[0] == 1 and found[2] == 3
    with pytest.raises(KeyError, match="bad"):
        found[1]
    with pytest.raises(IndexError):
        found[3]


def test_what_is_made_once_is_the_same_for_threads_that_ask_at_a_time() -> None:
    together = threading.Barrier(4, timeout=PATIENCE_S)
    found: list[object] = []

    @once
    def make() -> object:
        time.sleep(0.05)
        return object()

    def ask() -> None:
        together.wait()
        found.append(make())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(found) == 4 and len({*map(id, found)}) == 1


def test_values_of_two_keys_are_made_at_a_time_and_that_of_one_key_once() -> None:
    recent: Recent[int, int] = Recent(4)
    together = threading.Barrier(2, timeout=PATIENCE_S)
    made: list[int] = []

    def make(key: int) -> int:
        together.wait()
        made.append(key)
        return key

    threads = [threading.Thread(target=recent.get_or_make, args=(key, partial(make, key))) for key in (1, 2, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(made) == [1, 2]


@pytest.mark.parametrize(
    ("gpu", "device", "processors", "at_a_time"),
    [(GPU, "auto", 8, 4), (GPU, "gpu", 4, 2), (GPU, "gpu", 2, 1), (GPU, "sim", 16, 1), (None, "auto", 16, 1)],
)
def test_grades_on_a_gpu_are_made_some_at_a_time(
    gpu: Gpu | None, device: str, processors: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are processors for. All begin before any may end, and each knows that it is not alone."""
    monkeypatch.setattr(pipeline, "find_gpu", lambda: gpu)
    monkeypatch.setattr(pipeline, "available_bytes", lambda: 1 << 40)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    together = threading.Barrier(at_a_time, timeout=PATIENCE_S)

    def one(kata: Kata, options: Options, *, source: Path, tell: object) -> Grade:
        together.wait()
        assert options.beside == (at_a_time > 1)
        return Grade(kata, None, (), 0.0, {})  # type: ignore[arg-type]

    work = [(kata, kata.solution_path) for kata in (KATAS * 4)[:8]]
    done = list(in_order(work, Options(device=device), None, one))
    assert [grade.kata for grade in done] == [kata for kata, _ in work]
    assert together.n_waiting == 0


def test_a_machine_of_little_memory_makes_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "available_bytes", lambda: 3 << 30)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert grades_at_a_time() == 1


@pytest.mark.parametrize(
    ("beside", "processors", "long", "at_once"),
    [
        (False, 2, True, False),
        (False, 16, True, True),
        (False, 16, False, True),
        (True, 2, True, False),
        (True, 16, True, False),
    ],
)
def test_what_is_wanted_last_is_worked_out_last(
    beside: bool, processors: int, long: bool, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a grade alone once nvcc is done, or at once where there are processors for both, and by helpers if it takes
    long; of several when one has no more to check: the others still have."""
    kata = next(kata for kata in load_catalog(ROOT).katas.values() if kata.level == "hard" and kata.speed)
    began, at = threading.Event(), pipeline._Progress()
    monkeypatch.setattr(pipeline, "find_gpu", lambda: GPU)
    given: list[object] = []
    monkeypatch.setattr(pipeline, "prepare_measure", lambda *all: given.append(all[-1]) or began.set())
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)))
    monkeypatch.setattr(pipeline, "helpers_for", lambda *_: 3 if long else 0)
    monkeypatch.setattr(pipeline, "Helpers", lambda count: Helpers(0 if count == 3 else 1))
    request = Request(kata, load_spec(kata), source_of(kata.solution_path), Target("gpu", "sm_90a"))
    arguments = (request, Options(device="gpu", beside=beside), True, at, Ahead())
    thread = threading.Thread(target=pipeline._prepare_timing, args=arguments)
    thread.start()
    assert began.wait(PATIENCE_S if at_once else 0.2) is at_once
    at.is_built.set()
    assert began.wait(0.2 if beside else PATIENCE_S) is not beside
    at.is_checked.set()
    assert began.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert isinstance(given[0], Helpers) is (at_once and long)


def test_of_several_grades_one_works_a_case_out() -> None:
    """The others wait for it, and those of other cases do not."""
    at_work: OneAtATime[str] = OneAtATime()
    inside, leave, seen = threading.Event(), threading.Event(), []

    def first() -> None:
        with at_work.of("a"), at_work.of("a"):  # a thread may come again
            inside.set()
            assert leave.wait(PATIENCE_S)
            seen.append("first")

    def second() -> None:
        with at_work.of("a"):
            seen.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(PATIENCE_S)
    threads[1].start()
    with at_work.of("b"):
        seen.append("other")
    leave.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert seen == ["other", "first", "second"] and not at_work._at_work
