"""Whatever a grade started ends with it: when it is over, and when the grader is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiler import HeldCompiler
from patience import PATIENCE_S, wait_for, wait_for_the_end_of
from test_faces import make_clone

from grader.content.catalog import load_catalog
from grader.system import processes
from grader.system.processes import descendants

ROOT = Path(__file__).resolve().parent.parent
NAME = "elementwise_f32"
RIGHT = load_catalog(ROOT).katas[NAME].solution_path.read_text()
GRADE = ["-m", "grader", "grade", NAME, "--device", "sim"]
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "sim", f"exercises/elementwise/{NAME}.cu"]

# Forks a process that leaves the session by a system call, which no list of symbols sees.
DAEMON = """
#include <unistd.h>

static void leave() {
    static bool done = false;
    if (done || fork() != 0) {
        done = true;
        return;
    }
    long result;
    asm volatile("syscall" : "=a"(result) : "a"(112) : "rcx", "r11", "memory");
    if (fork() == 0)
        for (;;) pause();
    _exit(0);
}
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What stands in the environment of the processes of this test."""
    mark = f"TEST_PROCESSES={uuid.uuid4().hex}"
    monkeypatch.setenv(*mark.split("="))
    yield mark
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """The processes with a mark in the environment that they began with; none that has ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [int(place.parent.name)] if mark.encode() in place.read_bytes() else []
        except OSError:
            continue
    return found


def start(place: Path, arguments: list[str], **environment: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    null = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, *arguments], cwd=place, env=env, stdout=null, stderr=null)


@pytest.mark.parametrize("face", [GRADE, PYTEST], ids=["kata", "pytest"])
def test_compilers_end_with_a_grader_that_is_killed(face: list[str], clone: Path, mark: str, tmp_path: Path) -> None:
    held = HeldCompiler(tmp_path, "^// HELD")
    load_catalog(clone).katas[NAME].skeleton_path.write_text(f"{RIGHT}// HELD {mark}\n")
    grader = start(clone, face, KATA_NVCC=held.path, KATA_DATA=str(tmp_path / "data"))
    wait_for(lambda: held.has_begun() or grader.poll() is not None, "the compiler")
    assert grader.returncode is None, "it has ended before it compiled"
    below = descendants(grader.pid)
    assert len(below) > 2  # ninja, its shell, the compiler
    grader.kill()
    grader.wait()
    wait_for_the_end_of(below)  # the compiler itself would wait for ever
    wait_for(lambda: not marked(mark), "the end of what the grader started")


def test_what_left_its_session_ends_with_the_grade(mark: str, tmp_path: Path) -> None:
    source = tmp_path / f"{NAME}.cu"
    launcher = RIGHT.partition("KATA_EXPORT")[2]
    begin = launcher.index("{") + 1
    source.write_text(RIGHT.replace(launcher, f"{launcher[:begin]}\n    leave();{launcher[begin:]}"))
    source.write_text(source.read_text().replace("KATA_EXPORT", f"{DAEMON}\nKATA_EXPORT", 1))
    grader = start(ROOT, [*GRADE, "--file", str(source)])
    assert grader.wait(PATIENCE_S) == 0
    assert marked(mark) == []


GUARDED = """
import os, signal, subprocess, time
from grader.system.processes import guard
before = subprocess.Popen(["sleep", "1000"])
guard()
after = subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"], start_new_session=True)
print(before.pid, flush=True)
time.sleep(1000)
"""


def test_a_guard_ends_what_was_started_since_and_nothing_else(mark: str) -> None:
    command = [sys.executable, "-c", GUARDED]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        before = int(process.stdout.readline())
        wait_for(lambda: len(marked(mark)) == 6, "the sleepers")  # the process, its guard, 1 before and 3 since
        process.kill()
    wait_for(lambda: marked(mark) == [before], "the end of what was started since")


def test_a_second_ctrl_c_waits_until_all_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    process = subprocess.Popen(command)
    below = processes.descendants

    def interrupted(pid: int) -> list[int]:
        """What is below one, looked up while Ctrl-C is pressed again."""
        signal.raise_signal(signal.SIGINT)
        return below(pid)

    monkeypatch.setattr(processes, "descendants", interrupted)
    with pytest.raises(KeyboardInterrupt):
        processes.kill_tree(process.pid)
    assert process.wait(timeout=PATIENCE_S) == -signal.SIGKILL


MEMORY = """
import resource
from grader.system.processes import keep_memory
if {keeps}:
    keep_memory()
for turn in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        several = [b"x" * (20 << 20) for _ in range(3)]
        del several
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_that_is_freed_is_used_again() -> None:
    """60 MiB, five times: hardly a page is new. Without this the C library gives them back, and each is new again."""
    faults = [
        int(subprocess.run([sys.executable, "-c", MEMORY.format(keeps=keeps)], capture_output=True, check=True).stdout)
        for keeps in (True, False)
    ]
    assert faults[0] < 500 < 5000 < faults[1]
