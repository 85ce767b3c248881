"""`kata watch` in a real terminal and on a pipe: what it grades, what it shows, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from compiler import HeldCompiler
from facts import has
from patience import PATIENCE_S, wait_for
from test_faces import ROOT

from grader.compile.toolchain import find_toolchain
from grader.content.source_file import digest_of
from grader.learner import progress
from grader.learner.progress import Event
from grader.service.saves import ALL_S, GONE_S, QUIET_S, Saves

pexpect = pytest.importorskip("pexpect", reason="pexpect drives the terminal; `pip install -e .[dev]`")

NAME = "elementwise_f32"
MARK = "KATA_TEST_MARK"  # in the environment of all that a test starts
LIMIT_S = PATIENCE_S


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What the processes of this test are known by; it fails where one is left in the end, or a file of theirs."""
    name = uuid.uuid4().hex
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield name
    wait_for(lambda: not alive(name), "all processes to end")
    assert list(temporary.iterdir()) == []


def file_of(clone: Path, name: str = NAME) -> Path:
    return clone / "exercises" / name.split("_")[0] / f"{name}.cu"


def right(clone: Path) -> str:
    """An answer that there is no build of."""
    return (clone / "solutions/elementwise/elementwise_f32.cu").read_text() + f"// {uuid.uuid4()}\n"


def wrong(clone: Path) -> str:
    return right(clone).replace("if (idx < n)", "if (idx <= n)")


def events(clone: Path) -> list[Event]:
    return [event for event in progress.load(clone).events if event.what == progress.GRADE]


def alive(name: str) -> list[str]:
    """The processes with this mark in their environment, by their commands."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"{MARK}={name}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [command for command in found if command]  # none of those that ended and were not waited for


def resident(session: Session) -> Path:
    """The folder in /proc of the process that stays: the only child of the one that watches."""
    children = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    (found,) = (entry for entry in children if _parent(entry) == session.child.pid)
    return found


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def environment(mark: str, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", MARK: mark, **more}


class Session:
    """`kata watch` in a terminal of 100 columns."""

    def __init__(self, clone: Path, mark: str, *arguments: str, **environ: str) -> None:
        command = ["-m", "grader", "watch", "--device", "sim", *arguments]
        self.child = pexpect.spawn(
            sys.executable, command, cwd=clone, env=environment(mark, **environ), encoding="utf-8",
            dimensions=(40, 100), timeout=LIMIT_S,
        )  # fmt: skip
        self.before = termios.tcgetattr(self.child.child_fd)

    def see(self, *patterns: str) -> str:
        """Wait until these stand on the screen, one after the other; what was written till then."""
        seen = ""
        for pattern in patterns:
            self.child.expect(pattern)
            seen += self.child.before + self.child.after
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", seen)

    def press(self, keys: str) -> None:
        self.child.send(keys)

    def end(self) -> int:
        """Wait for the end. Returns the exit code; the terminal must be as it was before."""
        self.child.expect(pexpect.EOF)
        assert termios.tcgetattr(self.child.child_fd) == self.before
        self.child.close()
        return int(self.child.exitstatus)

    def close(self) -> None:
        """End it where the test has not; pexpect itself waits a few tenths of a second, which a busy machine needs."""
        for number in (signal.SIGHUP, signal.SIGCONT):
            self.child.kill(number)
        try:
            wait_for(lambda: not self.child.isalive(), "the end of kata watch")
        finally:
            self.child.close(force=True)


@pytest.fixture
def session(clone: Path, mark: str) -> Iterator[Session]:
    session = Session(clone, mark, NAME)
    session.see(r"not started: \d TODOs")
    yield session
    session.close()


@pytest.mark.usefixtures("nvcc_remembers")
def test_from_not_started_to_the_next_kata(session: Session, clone: Path) -> None:
    file_of(clone).write_text(wrong(clone))
    assert "elementwise_f32: out of bounds: reads " in session.see("waiting", "device    sim")
    file_of(clone).write_text(right(clone))
    assert "old verdict" in session.see("previous verdict", "out of bounds")
    session.see("PASSED at .* n: .*scale_f32", "pass on sim sm_90a")
    session.press("n")
    session.see("scale_f32.cu", "not started")
    session.press("q")
    assert session.end() == 0
    assert [event.verdict for event in events(clone)] == ["out of bounds", "pass"]


@pytest.mark.usefixtures("nvcc_remembers")
def test_a_file_saved_twice_quickly_is_graded_once_with_its_last_content(session: Session, clone: Path) -> None:
    file_of(clone).write_text(wrong(clone))
    time.sleep(QUIET_S / 3)
    file_of(clone).write_text(right(clone))
    session.see("PASSED")
    assert [event.digest for event in events(clone)] == [digest_of(file_of(clone))]


@pytest.mark.usefixtures("nvcc_remembers")
def test_a_save_during_a_grade_starts_it_anew(clone: Path, mark: str, tmp_path: Path) -> None:
    held = HeldCompiler(tmp_path, "idx <= n")  # never let go
    session = Session(clone, mark, NAME, KATA_NVCC=held.path)
    with contextlib.closing(session):
        session.see("not started")
        file_of(clone).write_text(wrong(clone))
        wait_for(held.has_begun, "the compiler")
        text = right(clone)
        file_of(clone).write_text(text)
        session.see("PASSED")
        wait_for(lambda: not any("held_nvcc" in command for command in alive(mark)), "the end of the first compiler")
        assert [event.digest for event in events(clone)] == [digest_of(file_of(clone))]
        file_of(clone).write_text(text)  # the same again, by someone who wants it graded again
        session.see("grading, ", "PASSED at")
        assert len(events(clone)) == 2


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def by_rename(path: Path, text: str) -> None:
    staged = path.with_name(f".{path.name}.swp")
    staged.write_text(text)
    staged.replace(path)


def truncated_first(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.flush()
        time.sleep(QUIET_S * 3)
        file.write(text)


def moved_away_first(path: Path, text: str) -> None:
    path.rename(path.with_name(f"{path.name}~"))
    time.sleep(QUIET_S * 3)
    path.write_text(text)


def bit_by_bit(path: Path, text: str) -> None:
    with path.open("w") as file:
        for start in range(0, len(text), 200):
            file.write(text[start : start + 200])
            file.flush()
            time.sleep(QUIET_S / 4)


@pytest.mark.usefixtures("nvcc_remembers")
def test_however_an_editor_saves_there_is_one_grade_of_what_it_saved(session: Session, clone: Path) -> None:
    path = file_of(clone)
    good, bad = right(clone), wrong(clone)
    ways = (in_place, by_rename, truncated_first, moved_away_first, bit_by_bit)
    for number, save in enumerate(ways):
        text, said = (good, "PASSED at") if number % 2 else (bad, "out of bounds: ")
        save(path, text)
        session.see(said)
        assert [event.digest for event in events(clone)[number:]] == [digest_of(path)], save.__name__
    time.sleep(4 * QUIET_S)
    assert len(events(clone)) == len(ways)


@pytest.mark.usefixtures("nvcc_remembers")
def test_a_file_that_is_gone_is_said_and_waited_for(session: Session, clone: Path) -> None:
    file_of(clone).unlink()
    session.see("no verdict: .*elementwise_f32.cu .*gone")
    file_of(clone).write_text(right(clone))
    session.see("PASSED")


def test_without_a_name_it_follows_what_is_saved(clone: Path, mark: str) -> None:
    session = Session(clone, mark)
    session.see("scale_f32  easy", "not started")
    file_of(clone, "relu_f32").write_bytes(b"\0")  # a verdict without a compiler
    session.see("relu_f32  easy", "relu_f32: ")
    session.press("q")
    assert session.end() == 0


@pytest.mark.usefixtures("nvcc_remembers")
def test_with_a_name_it_stays(clone: Path, mark: str) -> None:
    session = Session(clone, mark, NAME)
    session.see("not started")
    other = file_of(clone, "relu_f32")
    other.write_text(other.read_text() + "// begun\n")
    file_of(clone).write_text(wrong(clone))
    seen = session.see("out of bounds: ")  # of what was saved later
    time.sleep(ALL_S + 4 * QUIET_S)
    session.press("?")
    assert "relu" not in seen + session.see("this page")
    session.press("q")
    assert session.end() == 0


def test_what_the_keys_do(session: Session, clone: Path) -> None:
    for number in (1, 2, 3):
        session.press("h")
        session.see(rf"hint {number}: ")
    session.press("l")
    session.see("kata .*state", r"elementwise_f16x8_pack", r"0 of \d+ katas")
    session.press("d")
    session.see("elementwise_f32 .*first")
    session.press("s")
    session.see("Technique", "TODO 2", r"hints .* 1, 2, 3 of 3")
    session.press("?")
    session.see(r"\.bak")
    session.press("\r")
    session.see("not started: 2 TODOs")
    session.press("n")
    session.see("scale_f32.cu", "not started")
    session.press("q")
    assert session.end() == 0
    strengths = [event.strength for event in progress.load(clone).events if event.what == progress.HINT]
    assert strengths == [1, 2, 3]


def test_a_diff_gives_nothing_away(clone: Path, mark: str) -> None:
    session = Session(clone, mark, "elementwise_f32x4")
    session.see("not started")
    session.press("d")
    seen = session.see("two files", r"\+\+\+ exercises/elementwise/elementwise_f32x4.cu", "keys")
    assert "solutions/" not in seen
    session.press("q")
    assert session.end() == 0 and progress.load(clone).events == ()


@pytest.mark.usefixtures("nvcc_remembers")
def test_reset_asks_first(session: Session, clone: Path) -> None:
    text = right(clone)
    file_of(clone).write_text(text)
    session.see("PASSED")
    session.press("r")
    session.see("y: yes")
    session.press("x")
    session.press("?")
    session.see("this page")
    assert file_of(clone).read_text() == text
    session.press("r")
    session.see("y: yes")
    session.press("y")
    session.see(r"elementwise_f32\.cu\.1\.bak", "not started")
    assert file_of(clone).with_name("elementwise_f32.cu.1.bak").read_text() == text


def test_a_page_longer_than_the_screen_is_turned(clone: Path, mark: str) -> None:
    session = Session(clone, mark)
    session.see("not started")
    session.child.setwinsize(12, 60)
    session.press("s")
    session.see(r"lines 1 to \d+ of")
    session.press(" ")
    assert "lines 1 to" not in session.see(r"lines (\d+) to \d+ of")
    session.press("q")
    assert session.end() == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda item: str(item)
)
def test_a_signal_ends_it_and_all_it_started(session: Session, clone: Path, mark: str, number: int, code: int) -> None:
    file_of(clone).write_text(right(clone))
    wait_for(lambda: any("nvcc" in command for command in alive(mark)), "the compiler")
    if number == signal.SIGINT:
        session.press("\x03")
    else:
        os.kill(session.child.pid, number)
    assert session.end() == code
    assert alive(mark) == []


@pytest.mark.usefixtures("nvcc_remembers")
def test_suspended_it_gives_the_terminal_back(session: Session, clone: Path) -> None:
    session.press("\x1a")
    fd = session.child.child_fd
    wait_for(lambda: termios.tcgetattr(fd) == session.before, "the terminal")
    wait_for(lambda: "T" in Path(f"/proc/{session.child.pid}/stat").read_text().rpartition(")")[2][:3], "the stop")
    file_of(clone).write_text(right(clone))
    os.kill(session.child.pid, signal.SIGCONT)
    session.see("PASSED")
    assert termios.tcgetattr(fd) != session.before
    session.press("q")
    assert session.end() == 0


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_kill_9_while_it_compiles_leaves_no_process_and_a_whole_database(
    clone: Path, mark: str, delay_s: float
) -> None:
    killed_after(delay_s, clone, mark)


@pytest.mark.usefixtures("nvcc_remembers")
@pytest.mark.parametrize("delay_s", [0.25, 0.5, 0.75, 1.0])
def test_kill_9_during_a_grade_leaves_no_process_and_a_whole_database(clone: Path, mark: str, delay_s: float) -> None:
    """Its compiler takes a quarter of a second or so, the rest somewhat more."""
    killed_after(delay_s, clone, mark)


def killed_after(delay_s: float, clone: Path, mark: str) -> None:
    session = Session(clone, mark)
    session.see("not started")
    file_of(clone).write_text(right(clone))
    session.see("grading")
    time.sleep(delay_s)
    os.kill(session.child.pid, signal.SIGKILL)
    wait_for(lambda: not alive(mark), "all that it started to end")
    assert [event.verdict for event in events(clone)] in ([], ["pass"])
    assert progress.load(clone).warning is None
    session.child.close(force=True)


@pytest.mark.usefixtures("nvcc_remembers")
def test_a_grader_that_was_killed_is_started_anew_by_the_next_save(session: Session, clone: Path) -> None:
    os.kill(int(resident(session).name), signal.SIGKILL)
    session.see("no verdict: .*exit code -9")
    file_of(clone).write_text(right(clone))
    session.see("PASSED")


@pytest.mark.usefixtures("nvcc_remembers")
def test_a_verdict_costs_one_run_of_nvcc_and_no_interpreter(
    clone: Path, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that stays has imported numpy and knows its compilers: nothing of that is done for a save."""
    called, started = tmp_path / "called", tmp_path / "started"
    called.touch()
    counting = tmp_path / "counting_nvcc"
    count = f'case "$*" in *--dryrun) ;; *) echo x >> {called} ;; esac'  # a dry run compiles nothing
    counting.write_text(f'#!/bin/sh\n{count}\nexec {find_toolchain().nvcc} "$@"\n')
    counting.chmod(0o755)
    monkeypatch.setenv("KATA_NVCC", str(counting))
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"with open({str(started)!r}, 'a') as file:\n    file.write('x\\n')\n")
    session = Session(clone, mark, PYTHONPATH=os.pathsep.join([str(site), str(ROOT)]))
    with contextlib.closing(session.child):
        session.see("not started")
        stays = resident(session)
        wait_for(lambda: "_multiarray_umath" in (stays / "maps").read_text(), "numpy in the process that stays")
        costs = []
        for _ in range(3):
            before = lines_of(called), lines_of(started)
            file_of(clone).write_text(right(clone))
            session.see("grading, ", "PASSED at")
            costs.append((lines_of(called) - before[0], lines_of(started) - before[1]))
        assert events(clone)[-1].digest == digest_of(file_of(clone)) and resident(session) == stays
    assert costs[1:] == [(1, 0)] * 2


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


# -- on a pipe


class Piped:
    def __init__(self, clone: Path, mark: str, *arguments: str, **more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grader", "watch", NAME, "--device", "sim", *arguments],
            cwd=clone,
            env=environment(mark, **more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.input, self.output = _present(self.process.stdin), _present(self.process.stdout)

    def rest(self) -> tuple[int, str, str]:
        said, told = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, said, told


def _present(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@pytest.mark.usefixtures("nvcc_remembers")
def test_on_a_pipe_verdicts_are_printed_until_the_input_ends(clone: Path, mark: str) -> None:
    piped = Piped(clone, mark)
    assert piped.output.readline() == "elementwise_f32: not started: 2 TODOs\n"
    file_of(clone).write_text(wrong(clone))
    assert piped.output.readline().startswith("elementwise_f32: out of bounds: ")
    file_of(clone).write_text(right(clone))
    while not (line := piped.output.readline()).startswith("elementwise_f32: "):
        pass
    assert line.startswith("elementwise_f32: pass on sim sm_90a")
    code, said, told = piped.rest()
    assert (code, said) == (0, "") and has(told, "watching exercises/elementwise", "until its input ends")
    assert "\x1b" not in told


@pytest.mark.usefixtures("nvcc_remembers")
def test_as_json_a_line_a_grade(clone: Path, mark: str) -> None:
    piped = Piped(clone, mark, "--json")
    assert json.loads(piped.output.readline())["verdict"] == "not started"
    file_of(clone).write_text(wrong(clone))
    found = json.loads(piped.output.readline())
    assert found["verdict"] == "out of bounds" and found["sha256"] == digest_of(file_of(clone))
    assert piped.rest()[0] == 0


@pytest.mark.usefixtures("nvcc_remembers")
def test_an_input_that_has_ended_gives_one_verdict(clone: Path, mark: str) -> None:
    file_of(clone).write_text(right(clone))
    piped = Piped(clone, mark)
    code, said, _ = piped.rest()
    assert code == 0 and said.startswith("elementwise_f32: pass on sim") and len(said.splitlines()) == 1


def test_told_to_end_a_pipe_leaves_nothing(clone: Path, mark: str) -> None:
    piped = Piped(clone, mark)
    piped.output.readline()
    file_of(clone).write_text(right(clone))
    wait_for(lambda: any("nvcc" in command for command in alive(mark)), "the compiler")
    piped.process.terminate()
    assert piped.process.wait(timeout=LIMIT_S) == 143
    assert alive(mark) == []
    piped.rest()


def test_a_fault_of_the_machine_is_said_and_watching_goes_on(clone: Path, mark: str) -> None:
    file_of(clone).write_text(right(clone))
    piped = Piped(clone, mark, KATA_NVCC="/nowhere/nvcc")
    code, said, told = piped.rest()
    assert (code, said) == (0, "") and has(told, "kata: KATA_NVCC", "'/nowhere/nvcc'") and "Traceback" not in told


def test_nothing_to_watch_is_a_no(clone: Path, mark: str) -> None:
    command = [sys.executable, "-m", "grader", "watch", "no_such_kata"]
    done = subprocess.run(command, cwd=clone, env=environment(mark), capture_output=True, text=True)
    assert done.returncode == 2 and "no_such_kata" in done.stderr


# -- the parts


def test_the_process_that_watches_imports_nothing_that_grades() -> None:
    """The one that stays does: it is started beside it."""
    script = "import sys, grader.commands.watch; print([name for name in sys.argv[1:] if name in sys.modules])"
    unwanted = ["grader.grade", "grader.judge", "grader.compile.build", "grader.sandbox.parent", "numpy"]
    done = subprocess.run([sys.executable, "-c", script, *unwanted], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_saves_waits_until_a_file_is_quiet(tmp_path: Path) -> None:
    one, other = tmp_path / "one.cu", tmp_path / "other.cu"
    one.write_text("1")
    saves = Saves([one, other], one)
    assert saves.look(0.0) is None
    one.write_text("2")
    assert saves.look(1.0) is None
    one.write_text("3")
    assert saves.look(1.0 + QUIET_S / 2) is None  # changed again: the quiet begins anew
    assert saves.look(1.0 + QUIET_S) is None
    found = saves.look(1.0 + QUIET_S * 2)
    assert found is not None and (found.path, found.digest) == (one, digest_of(one))
    assert saves.look(2.0) is None
    one.unlink()
    assert saves.look(3.0) is None and saves.look(3.0 + GONE_S / 2) is None
    gone = saves.look(3.0 + GONE_S)
    assert gone is not None and gone.digest == ""
    other.write_text("new")
    assert saves.look(5.0) is None
    found = saves.look(5.0 + 2 * QUIET_S)
    assert found is not None and found.path == other


def test_saves_sees_a_change_that_keeps_size_and_time(tmp_path: Path) -> None:
    """Within the resolution of a file system's clock."""
    path = tmp_path / "one.cu"
    path.write_text("1")
    stat = path.stat()
    saves = Saves([path], path)
    path.write_text("2")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns
    saves.look(1.0)
    found = saves.look(2.0)
    assert found is not None and found.digest == digest_of(path)
