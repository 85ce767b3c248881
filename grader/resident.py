"""Kata + options -> a grade as JSON, from a process that stays: torch, hypothesis and the compilers are found once.

``Resident`` is the end that asks, in the process that watches; ``python -m grader.resident`` is the other. It forks
for each grade, so a grade leaves no trace in it, and can be stopped at any moment by killing all that the fork
started. When the asking process is gone, however it died, so is everything else: the pipe between them ends.

Both speak JSON lines. Asked: {"id", "kata", "options"}, where a newer question stops the grade of an older one.
Answered, each with its "id": any number of {"tell": line}, then {"grade": record, "lines": text, "warning"} or
{"fault": sentence}.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from grader import cache, progress, report
from grader.catalog import FILE, Catalog, CatalogError, Kata, find_root, load_catalog
from grader.devices.sim import engine_library
from grader.grade import MACHINE_ERRORS, Grade, Options, digest_of, grade, targets
from grader.processes import adopt_orphans, end_children, end_with_parent
from grader.record import record
from grader.skeleton import SkeletonError
from grader.toolchain import ToolchainError, find_gpu, find_toolchain

FAULTS = (*MACHINE_ERRORS, CatalogError, SkeletonError)
_READ_BYTES = 1 << 16

Answer = dict[str, Any]


class ResidentError(Exception):
    """The process that grades is gone, through no fault of a file; the message has its last words."""


class Resident:
    """Asks for grades, one at a time. ``fileno`` is readable when there are answers."""

    def __init__(self, root: Path) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        here = str(Path(__file__).resolve().parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "grader.resident", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C is for who asks, who then ends this one
        )
        assert self._process.stdout is not None
        self._lines = _Lines(self._process.stdout.fileno())
        self._asked = 0
        self._is_grading = False

    def fileno(self) -> int:
        return self._lines.fd

    def ask(self, kata: str, options: Options) -> None:
        """Grade the learner's file as it is now; whatever is being graded is given up."""
        assert self._process.stdin is not None
        self._asked, self._is_grading = self._asked + 1, True
        question = {"id": self._asked, "kata": kata, "options": asdict(options)}
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None

    def answers(self) -> list[Answer]:
        """What came of the last question; call it when ``fileno`` is readable. Raises ResidentError."""
        lines = self._lines.read()
        if lines is None:
            raise self._gone()
        found = [answer for line in lines if (answer := json.loads(line))["id"] == self._asked]
        self._is_grading &= not any("grade" in answer or "fault" in answer for answer in found)
        return found

    def close(self) -> None:
        """End it and all that it started. Returns when they are gone."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        if not self._is_grading:
            self._process.kill()  # it has started nothing; perhaps it is importing, which takes a while
        try:
            self._process.wait(timeout=10)  # it sees the end of the pipe, ends what it started, and then itself
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _gone(self) -> ResidentError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        return ResidentError(f"the process that grades ended with exit code {self._process.returncode}: {words[0]}")


class _Lines:
    """Whole lines from a pipe, as they come."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """The lines that are there now; None when the other end is closed."""
        data = os.read(self.fd, _READ_BYTES)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


# -- the process that stays ------------------------------------------------------------------------------------------


@dataclass
class _Running:
    """A fork that grades. ``ready``: the simulator is built, so that it may be stopped without losing half a minute."""

    id: int
    pid: int
    lines: _Lines
    ready: bool = False
    answered: bool = False


@dataclass
class _Grader:
    root: Path
    out: int
    waiting: Answer | None = None  # the question that comes next
    running: _Running | None = None
    is_warm: bool = False
    engine_is_built: bool = False
    catalog: Catalog | None = None
    catalog_digest: str = ""

    def serve(self, asked: _Lines) -> None:
        """Answer until nobody asks any more."""
        while True:
            watched = [asked.fd, *([self.running.lines.fd] if self.running else [])]
            idle = self.running is None and self.waiting is None
            ready = select.select(watched, [], [], None if self.is_warm or not idle else 0)[0]
            if asked.fd in ready:
                questions = asked.read()
                if questions is None:
                    return
                self.waiting = json.loads(questions[-1]) if questions else self.waiting
            elif not ready and idle:
                end_with_parent()  # there is nothing to end yet but this process, which is busy now
                _warm()
                end_with_parent(False)
                self.is_warm = True
            if self.running is not None and self.running.lines.fd in ready:
                self._relay(self.running)
            if self.waiting is not None and (self.running is None or self.running.ready):
                self._stop()
                self._start(self.waiting)
                self.waiting = None

    def _start(self, question: Answer) -> None:
        try:
            kata = self._kata(question["kata"])
        except CatalogError as error:
            self._answer(question["id"], {"fault": str(error)})
            return
        ours, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: numpy's, which know of forks
            pid = os.fork()
        if pid == 0:
            os.close(ours)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _grade(kata, Options(**question["options"]), theirs, engine_is_built=self.engine_is_built)
        os.close(theirs)
        self.running = _Running(question["id"], pid, _Lines(ours))

    def _kata(self, name: str) -> Kata:
        """From difficulty.yaml, which is read again only where it changed. A file may be missing while it is saved."""
        digest = digest_of(self.root / FILE)
        if self.catalog is None or digest != self.catalog_digest:
            self.catalog, self.catalog_digest = load_catalog(self.root, missing_skeletons=True), digest
        return self.catalog.katas[name]

    def _relay(self, running: _Running) -> None:
        lines = running.lines.read()
        for line in lines or ():
            answer = json.loads(line)
            running.ready |= "ready" in answer
            self.engine_is_built |= answer.get("ready") == "sim"
            running.answered |= "grade" in answer or "fault" in answer
            if "ready" not in answer:
                self._answer(running.id, answer)
        if lines is None or running.answered:
            if not running.answered:
                self._answer(running.id, {"fault": "the grade ended without a verdict; was its process killed?"})
            self._stop()

    def _stop(self) -> None:
        """End the fork and all that it started."""
        if self.running is not None:
            os.close(self.running.lines.fd)
            self.running = None
        end_children()

    def _answer(self, number: int, answer: Answer) -> None:
        _write(self.out, {"id": number, **answer})


def _warm() -> None:
    """What every grade needs, imported and found while nobody waits; what is missing is the next grade's to say."""
    import hypothesis
    import hypothesis.strategies as st

    for name in ("sqlite3", "torch"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ToolchainError):
        find_toolchain()
    hypothesis.find(st.integers(), lambda number: number > 1, settings=hypothesis.settings(database=None))
    gc.collect()
    gc.freeze()  # the forks share these pages as long as no collection writes to them


def _grade(kata: Kata, options: Options, out: int, *, engine_is_built: bool) -> None:
    """In the fork: grade, keep it as progress, answer, end."""

    def say(answer: Answer) -> None:
        _write(out, answer)

    def tell(line: str) -> None:
        _write(out, {"tell": line})

    try:
        simulates = any(target.device == "sim" for target in targets(options, find_gpu()))
        if simulates and not engine_is_built:
            engine_library(cache.cache_folder(), progress=tell)
        say({"ready": "sim" if simulates else "gpu"})
        graded = grade(kata, options, progress=tell)
        warning = progress.keep_grade(graded)
        say({"grade": record(graded), "lines": _lines(graded), "warning": warning})
    except FAULTS as error:
        say({"fault": str(error)})
    except BaseException as error:
        say({"fault": f"the grader itself is broken: {type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _write(out: int, answer: Answer) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(out, data) :]


def _lines(graded: Grade) -> list[str]:
    """What is said of a grade, as by `kata grade`."""
    if graded.passed:
        return [f"{graded.kata.name}: {report.outcome(graded)}", *report.printed(graded), *report.costs(graded)]
    return report.explanation(graded).splitlines()


def _main(root: Path) -> None:
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever is printed must not stand between answers
    try:
        _Grader(root, out).serve(_Lines(0))
    except BrokenPipeError:
        pass  # nobody listens any more
    finally:
        end_children()


if __name__ == "__main__":
    _main(find_root(Path(sys.argv[1])))
