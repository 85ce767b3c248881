"""Task -> answers: the end of a service that asks. ``python -m grader.service.server`` is the other.

Both speak JSON lines over a socket. Asked: {"id", "task", "slot"}, {"stop": id, "gently"} and {"end": true}. Answered,
each with its "id": any number of {"tell": line}, then one of {"done": what the work made}, {"fault": sentence},
{"died": exit status, negative for a signal} and {"late": true}. By then nothing of the task is left.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from grader.service.lines import Lines, write
from grader.service.task import Answer, Slot, Task, encoded
from grader.system.processes import grader_environment

END_S = 10.0  # for a service to end what it started


class ServiceError(Exception):
    """The process that grades is gone, through no fault of a file; the message has its last words."""


class Service:
    """Asks for grades. ``fileno`` is readable when there are answers.

    It is started by the constructor, and warms up while it has nothing to do; an ``eager`` one before the first grade.
    """

    def __init__(self, root: Path, *, eager: bool = False) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "grader.service.server", str(root), *(["--eager"] if eager else [])],
                stdin=theirs.fileno(),
                stdout=self._errors,
                stderr=self._errors,
                env=grader_environment(),
                start_new_session=True,  # Ctrl-C is for who asks, who then ends this one
            )
        self._lines = Lines(self._socket.fileno())
        self._asked = 0
        self._stopped: set[int] = set()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def fileno(self) -> int:
        return self._lines.fd

    def ask(self, task: Task, slot: Slot | None = None) -> int:
        """Have a task done, beside those that are being done. Returns the number that its answers carry as "id"."""
        self._asked += 1
        self._send({"id": self._asked, **encoded(task, slot or Slot())})
        return self._asked

    def stop(self, number: int, *, gently: bool = False) -> None:
        """End a task with all that it started; it has no more answers. ``gently``: not while it builds the simulator,
        which takes half a minute and is of use to the next."""
        self._stopped.add(number)
        self._send({"stop": number, "gently": gently})

    def answers(self) -> list[Answer]:
        """What has come; waits for something. Raises ServiceError where the process is gone."""
        found = self._lines.read()
        if found is None:
            raise self._gone()
        return [answer for answer in found if answer["id"] not in self._stopped]

    def close(self) -> None:
        """End it and all that it started. Returns when they are gone."""
        self._send({"end": True})
        self._socket.close()
        self._process.terminate()  # perhaps it is importing, which takes a while; else it does not mind
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _send(self, line: dict[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is gone: answers() will say so
            write(self._socket.fileno(), line)

    def _gone(self) -> ServiceError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        return ServiceError(f"the process that grades ended with exit code {self._process.returncode}: {words[0]}")
