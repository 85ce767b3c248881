"""Turns between processes: a build is made once, a GPU is timed by one process alone, and the dead hold up nobody."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from patience import PATIENCE_S, wait_for

from grader import grade as pipeline
from grader.compile.toolchain import Gpu
from grader.content.catalog import load_catalog
from grader.grade import Options, grade
from grader.storage.lock import BuildLocks, gpu_turn
from grader.verdict import Kind, Verdict

ROOT = Path(__file__).resolve().parent.parent

# Appends what it does to a log; stays until it is let go, or for ever.
HOLD = """
    import sys, time
    from pathlib import Path
    from grader.storage.lock import gpu_turn
    folder, name, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    def log(what):
        with (folder / "log").open("a") as file:
            file.write(f"{name} {what}\\n")
    with gpu_turn(folder, "GPU-aa", tell=lambda line: log("waits")) as turn:
        if how != "alone":
            turn.share()
        if how == "both":
            log("shares")
            while not (folder / f"{name} may be alone").exists():
                time.sleep(0.01)
        if how != "beside":
            turn.alone(leave=lambda: log("leaves"))
        log("in")
        while not (folder / f"{name} may go").exists():
            time.sleep(0.01)
        log("out")
"""


class Holders:
    """Processes that use one GPU, and what they did in the order in which they did it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, how: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", textwrap.dedent(HOLD), str(self.folder), name, how]
        self.running.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}))
        return self.running[-1]

    @property
    def log(self) -> list[str]:
        place = self.folder / "log"
        return place.read_text().splitlines() if place.exists() else []

    @property
    def used(self) -> list[str]:
        return [line for line in self.log if "waits" not in line]

    def let_go(self, name: str) -> None:
        (self.folder / f"{name} may go").touch()

    def until(self, *lines: str) -> None:
        wait_for(lambda: set(lines) <= set(self.log), f"{lines}")


@pytest.fixture
def holders(tmp_path: Path) -> Holders:
    found = Holders(tmp_path)
    yield found  # type: ignore[misc]
    for process in found.running:
        process.kill()
        process.wait()


def test_who_times_is_alone_on_the_gpu(holders: Holders) -> None:
    first = holders.start("a", "alone")
    holders.until("a in")
    second, third = holders.start("b", "alone"), holders.start("c", "beside")
    holders.until("b waits", "c waits")
    holders.let_go("a")
    wait_for(lambda: len(holders.used) == 3, "the next")
    next_in = holders.used[2][0]
    time.sleep(0.3)  # in which the other would come in, too, if it did not wait
    assert holders.used == ["a in", "a out", f"{next_in} in"]
    for name in "bc":
        holders.let_go(name)
    assert [process.wait(PATIENCE_S) for process in (first, second, third)] == [0, 0, 0]
    assert holders.used[2:] in (["b in", "b out", "c in", "c out"], ["c in", "c out", "b in", "b out"])


def test_those_who_do_not_time_share_it(holders: Holders) -> None:
    holders.start("a", "beside")
    holders.until("a in")
    holders.let_go("b")
    assert holders.start("b", "beside").wait(PATIENCE_S) == 0
    assert "b waits" not in holders.log


def test_who_waits_to_be_alone_is_not_overtaken(holders: Holders) -> None:
    first = holders.start("a", "beside")
    holders.until("a in")
    second = holders.start("b", "alone")
    holders.until("b waits")
    third = holders.start("c", "beside")
    holders.until("c waits")
    holders.let_go("c")
    first.kill()  # and a dead process holds nobody up
    holders.until("b in")
    holders.let_go("b")
    assert second.wait(PATIENCE_S) == third.wait(PATIENCE_S) == 0
    assert holders.used == ["a in", "b in", "b out", "c in", "c out"]


def test_who_shares_it_alone_keeps_what_it_has_there(holders: Holders) -> None:
    first = holders.start("a", "both")
    holders.until("a shares")
    (holders.folder / "a may be alone").touch()
    holders.until("a in")
    holders.let_go("a")
    assert first.wait(PATIENCE_S) == 0 and holders.log == ["a shares", "a in", "a out"]


def test_two_who_share_it_and_want_to_be_alone_leave_before_they_wait(holders: Holders) -> None:
    running = [holders.start(name, "both") for name in "ab"]
    holders.until("a shares", "b shares")
    for name in "ab":
        (holders.folder / f"{name} may be alone").touch()
        holders.let_go(name)
    assert [process.wait(PATIENCE_S) for process in running] == [0, 0]
    for name in "ab":
        assert holders.log.index(f"{name} leaves") < holders.log.index(f"{name} in")
    assert holders.used[-4:] in (["a in", "a out", "b in", "b out"], ["b in", "b out", "a in", "a out"])


def test_who_wants_to_be_alone_leaves_and_waits_for_those_who_share(holders: Holders) -> None:
    holders.start("a", "beside")
    holders.until("a in")
    second = holders.start("b", "both")
    holders.until("b shares")
    (holders.folder / "b may be alone").touch()
    holders.let_go("b")
    holders.until("b leaves", "b waits")
    time.sleep(0.2)  # in which it would come in, too, if it did not wait
    assert "b in" not in holders.log
    holders.let_go("a")
    assert second.wait(PATIENCE_S) == 0 and holders.used[-3:] == ["a out", "b in", "b out"]


def test_two_gpus_are_two_turns(tmp_path: Path) -> None:
    with gpu_turn(tmp_path, "GPU-aa") as one, gpu_turn(tmp_path, "GPU-bb") as other:
        for turn in (one, other):
            turn.alone(leave=pytest.fail)


def test_a_cache_that_cannot_be_written_stops_no_grade(tmp_path: Path) -> None:
    with gpu_turn(tmp_path / "nowhere", "GPU-aa") as turn:
        turn.share()
        turn.alone(leave=pytest.fail)


def test_a_claim_is_one_processs_until_it_dies(tmp_path: Path) -> None:
    script = f"""
        from pathlib import Path
        from grader.storage.lock import BuildLocks
        with BuildLocks(Path({str(tmp_path)!r})) as claims:
            assert claims.take("one") and claims.take("one"), "what is mine stays mine"
            print("taken", flush=True)
            input()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    assert other.stdin is not None and other.stdout is not None
    with other, BuildLocks(tmp_path) as claims:
        assert other.stdout.readline() == b"taken\n"
        assert not claims.take("one") and claims.take("another")
        claims.wait("one", until=lambda: True, limit_s=PATIENCE_S)
        claims.wait("one", until=lambda: False, limit_s=0.1)  # it may be stopped, or busy for hours
        other.send_signal(signal.SIGKILL)
        claims.wait("one", until=lambda: False, limit_s=PATIENCE_S)
        assert claims.take("one")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_simulator_is_built_by_one_process_for_all(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "one.cpp").write_text("int one() { return 1; }\n")
    script = f"""
        import os
        from pathlib import Path
        from grader.devices.sim import engine
        def tell(line):
            print(os.getpid())
        engine.SOURCES = Path({str(sources)!r})
        assert engine.engine_library(Path({str(tmp_path / "cache")!r}), tell=tell).is_file()
    """
    (tmp_path / "cache").mkdir()
    command = [sys.executable, "-c", textwrap.dedent(script)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(3)]
    said = "".join(run.communicate(timeout=PATIENCE_S)[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0, 0] and len(set(said.split())) == 1


class Turn:
    """A turn at the GPU that notes what is done with it."""

    def __init__(self, happened: list[str]) -> None:
        self.happened = happened

    def __call__(self, folder: Path, gpu: str, tell: object) -> Turn:
        assert gpu == "GPU-aa"
        return self

    def __enter__(self) -> Turn:
        self.happened.append("in")
        return self

    def __exit__(self, *_: object) -> None:
        self.happened.append("out")

    def share(self) -> None:
        self.happened.append("shared")

    def alone(self, leave: object) -> None:
        self.happened.append("alone")


def graded_with(happened: list[str], monkeypatch: pytest.MonkeyPatch, options: Options) -> Verdict:
    class Child:
        program = None

        def __init__(self, device: str, *, torch: bool = False) -> None:
            pass

        def __enter__(self) -> Child:
            return self

        def start(self) -> None:
            happened.append("child")

        def reserve(self, contents_bytes: int) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            happened.append("no child")

        def load(self, program: object) -> None:
            pass

        def close(self) -> None:
            pass

    def judges() -> Verdict:
        happened.append("judged")
        return Verdict(Kind.PASS, "fast")

    katas = load_catalog(ROOT).katas.values()
    kata = next(kata for kata in katas if kata.speed and kata.level == "medium" and kata.speed.baseline == "copy")
    monkeypatch.setattr(pipeline, "gpu_turn", Turn(happened))
    monkeypatch.setattr(pipeline, "Sandbox", Child)
    monkeypatch.setattr(pipeline, "find_gpu", lambda: Gpu("a card", (9, 0), "580.0", (13, 0), uuid="GPU-aa"))
    monkeypatch.setattr(pipeline, "build_all", lambda *_, **__: [None])
    monkeypatch.setattr(pipeline, "_program", lambda *_: None)
    monkeypatch.setattr(pipeline, "_work_ahead", lambda *_: None)
    monkeypatch.setattr(pipeline, "inexact", lambda *_: None)
    monkeypatch.setattr(pipeline, "check", lambda *_: happened.append("checked") or Verdict(Kind.PASS, "right"))
    monkeypatch.setattr(pipeline, "measure", lambda *_, **__: happened.append("timed") or judges)
    return grade(kata, options, source=kata.solution_path).verdict


def test_a_grade_that_times_is_alone_only_while_it_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shares the GPU before it has a child there, and gives it back before it judges what was computed meanwhile."""
    happened: list[str] = []
    assert graded_with(happened, monkeypatch, Options(device="gpu")).passed
    assert happened == ["in", "shared", "child", "checked", "alone", "timed", "no child", "out", "judged"]


def test_a_grade_that_times_nothing_is_never_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    assert graded_with(happened, monkeypatch, Options(device="gpu", speed=False)).passed
    assert happened == ["in", "shared", "child", "checked", "no child", "out"]
