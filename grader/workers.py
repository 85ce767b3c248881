"""Tasks -> Replies: katas graded by several processes side by side, none of which can take the others with it.

A worker is a process of its own that stays: what a grade imports is imported once. It reads a task a line and answers
with a line. One that dies is replaced, and its task tried once more; one that is over its limit of time is ended with
all that it started. A worker stands in a scratch folder of its own, emptied after every task.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from grader import cache
from grader.catalog import Catalog, load_catalog
from grader.grade import Options, grade
from grader.processes import adopt_orphans, descendants, end_with_parent, kill, kill_tree
from grader.record import record
from grader.toolchain import gpu_of_worker

TRIES = 2  # of a task whose worker dies
_FROM_HERE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True)
class Task:
    """A file to grade as a kata; ``label`` is the caller's own."""

    kata: str
    source: Path
    label: Any = None


@dataclass(frozen=True)
class Reply:
    """What became of a task: a grade's record; or, where there is none, ``error``. ``late``: it was over its time."""

    task: Task
    record: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    late: bool = False


def replies(
    tasks: Iterable[Task], catalog: Catalog, options: Options, *, count: int, limit_s: float
) -> Generator[Reply, None, None]:
    """Grade every task with ``count`` workers; a reply as soon as there is one. ``limit_s`` is for each task.

    Leaving the iterator ends all workers. Raises CacheError where there is no room for their scratch folders.
    """
    waiting = iter(tasks)
    with cache.staging(cache.cache_folder()) as scratch, contextlib.ExitStack() as stack:
        workers = [_Worker(index, scratch / str(index), catalog, options) for index in range(count)]
        for worker in workers:
            stack.callback(worker.end)
        while True:
            for worker in workers:
                if worker.task is None and (task := next(waiting, None)) is not None:
                    worker.give(task, limit_s)
            busy = [worker for worker in workers if worker.task is not None]
            if not busy:
                return
            yield from _answers(busy)


def _answers(busy: list[_Worker]) -> Iterator[Reply]:
    """The replies of those workers that have one by now; waits for the first, or for a limit."""
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker.connection, selectors.EVENT_READ, worker)
        first = min(worker.deadline for worker in busy)
        ready = [key.data for key, _ in selector.select(max(0.0, first - time.monotonic()))]
    for worker in busy:
        if reply := worker.answer() if worker in ready else worker.overdue():
            yield reply


class _Worker:
    """One process, and the task that it is at."""

    def __init__(self, index: int, scratch: Path, catalog: Catalog, options: Options) -> None:
        self._index, self._scratch, self._catalog, self._options = index, scratch, catalog, options
        self._process: subprocess.Popen[bytes] | None = None
        self._tries = 0
        self._buffer = b""
        self.task: Task | None = None
        self.deadline = 0.0

    def give(self, task: Task, limit_s: float) -> None:
        self.task, self._tries, self._limit_s = task, 0, limit_s
        self._send()

    def _send(self) -> None:
        assert self.task is not None
        self._tries += 1
        if self._process is None:
            self._start()
        self.deadline = time.monotonic() + self._limit_s
        line = json.dumps({"kata": self.task.kata, "source": str(self.task.source)})
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead: answer() will see
            self.connection.sendall(line.encode() + b"\n")

    def _start(self) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True)
        self.connection, theirs = socket.socketpair()
        self._buffer = b""
        with theirs:
            command = [sys.executable, "-m", "grader.workers", str(theirs.fileno()), str(os.getpid())]
            about = {"root": str(self._catalog.root), "options": asdict(self._options)}
            self._process = subprocess.Popen(
                [*command, json.dumps(about)],
                cwd=self._scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=self._environment(),
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [_FROM_HERE, os.environ.get("PYTHONPATH")]))
        threads = str(self._options.jobs)
        given = {
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": threads,
            "TMPDIR": str(self._scratch),
            **gpu_of_worker(self._index),
        }
        return {**os.environ, **given}

    def answer(self) -> Reply | None:
        """The reply that has come, or None: of half a line, and of a death after which it is tried again."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = self.connection.recv(1 << 20)
        self._buffer += data
        if self._buffer.endswith(b"\n"):
            found, self._buffer = json.loads(self._buffer), b""
            return self._done(Reply(self._at(), **found))
        if data:
            return None
        status = self.end()
        if self._tries < TRIES:
            self._send()
            return None
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        return self._done(Reply(self._at(), error=f"the grader's own process ended with {how}, {TRIES} times"))

    def overdue(self) -> Reply | None:
        if time.monotonic() < self.deadline:
            return None
        self.end()
        return self._done(Reply(self._at(), late=True))

    def _at(self) -> Task:
        assert self.task is not None
        return self.task

    def _done(self, reply: Reply) -> Reply:
        self.task = None
        return reply

    def end(self) -> int:
        """End the process with all that it started. Returns its exit code, negative for a signal."""
        if self._process is None:
            return 0
        status = self._process.poll()
        kill_tree(self._process.pid)
        code = self._process.wait()
        self._process = None
        self.connection.close()
        return code if status is None else status


# -- the worker ------------------------------------------------------------------------------------------------------


def _main(fd: int, parent: int, about: dict[str, Any]) -> None:
    end_with_parent()
    adopt_orphans()  # what a launcher leaves behind
    if os.getppid() != parent:
        return
    catalog, options = load_catalog(Path(about["root"])), Options(**about["options"])
    with socket.socket(fileno=fd) as connection, connection.makefile("rwb") as lines:
        for line in lines:
            task = json.loads(line)
            reply = _reply(catalog, task["kata"], Path(task["source"]), options)
            _tidy()
            lines.write(json.dumps(reply).encode() + b"\n")
            lines.flush()


def _reply(catalog: Catalog, name: str, source: Path, options: Options) -> dict[str, Any]:
    try:
        return {"record": record(grade(catalog.katas[name], options, source=source))}
    except Exception as error:  # the machine's fault, or the grader's: this task's alone as far as one can see
        return {"error": f"{type(error).__name__}: {error}"}


def _tidy() -> None:
    """Nothing of a task is left when it is answered: no process, no file."""
    while left := descendants(os.getpid()):
        kill(left)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass
    for place in Path.cwd().iterdir():
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
