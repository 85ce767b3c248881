"""A clean process -> the sandbox's children: forked, where a new interpreter would start and import for 0.1 s of CPU.

The template is started before its user has anything of a grade in memory, and imports no more than a child needs: so
a child holds no expected answer. A grade sends it the child's files and its environment. It forks a
guard, and the guard the child: the guard waits for the child's end and for the grade's, then ends all that is left of
the child and says its exit status. Until then it holds the pipe by which the service hears that the grade is over.

A template with torch has imported it, which takes seconds, and touched no GPU: each of its children finds torch there,
and wakes the GPU by itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from types import FrameType
from typing import IO, Any, NoReturn

from grader.sandbox import child, lean_torch, torch_ahead
from grader.system.processes import Guarded, adopt_orphans, end_children, end_with_parent

_MESSAGE_BYTES = 1 << 17  # an environment has less, mostly; a larger one's child is spawned


class Template:
    """The end of the process that asks for children. ``torch``: the template imports it before it makes any."""

    def __init__(self, *, torch: bool = False) -> None:
        begun = torch_ahead.take() if torch else None
        self._socket, self._process = begun or torch_ahead.start(torch=torch)
        self.pid = self._process.pid

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def kill(self) -> None:
        """Close it without waiting for what it imports. Its children end with those who asked for them."""
        self._process.kill()
        self.close()

    def start(
        self, held: int, device: str, connection: socket.socket, output: IO[bytes], environment: Mapping[str, str]
    ) -> Guarded | None:
        """A child, whose guard holds the descriptor ``held``; None where the template is gone, or cannot do it."""
        ours, theirs = socket.socketpair()
        text = json.dumps({"device": device, "folder": os.getcwd(), "environment": dict(environment)}).encode()
        if len(text) > _MESSAGE_BYTES:
            return None
        files = [connection.fileno(), output.fileno(), theirs.fileno(), held]
        with theirs:
            try:
                socket.send_fds(self._socket, [text], files)
            except OSError:  # it is gone
                return None
        with contextlib.suppress(OSError):
            return Guarded(ours)
        return None


# -- the template ----------------------------------------------------------------------------------------------------


def _serve(asked: socket.socket) -> None:
    """Fork a guard for each child that is asked for, until no client is left. Raises OSError on an old system."""
    os.close(os.pidfd_open(os.getpid()))  # which a guard needs; without it this process ends, and children are spawned
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        text, files, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 4, socket.MSG_CMSG_CLOEXEC)
        if not text:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            _guard(json.loads(text), *files)
        for fd in files:
            os.close(fd)


def _reap(number: int, frame: FrameType | None) -> None:
    """Guards that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _guard(question: Mapping[str, Any], connection: int, output: int, grade: int, held: int) -> NoReturn:
    try:
        adopt_orphans()
        guard, forked = os.getpid(), os.fork()
        if forked == 0:
            _become_child(question, connection, output, grade, held, guard)
        os.close(connection)
        os.close(output)
        with socket.socket(fileno=grade) as said:
            select.select([said.fileno(), os.pidfd_open(forked)], [], [])
            os.kill(forked, signal.SIGKILL)
            _, status = os.waitpid(forked, 0)
            end_children()
            said.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))
    finally:
        os._exit(0)  # with it goes what it held


def _become_child(
    question: Mapping[str, Any], connection: int, output: int, grade: int, held: int, guard: int
) -> NoReturn:
    """What a spawned child is at its start: a session, files and an environment of its own, and nothing else."""
    try:
        os.setsid()
        os.write(grade, os.getpid().to_bytes(4, "little"))  # only now: who knows the id may end the process group
        os.dup2(output, 1)
        os.dup2(output, 2)
        for fd in (output, grade, held):
            os.close(fd)
        os.environ.clear()
        os.environ.update(question["environment"])
        os.chdir(question["folder"])
        child.run_child(question["device"], connection, guard)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _import_torch(parent: int, asked: socket.socket, *, lean: bool) -> None:
    """For all children. Where it is missing or broken, the baseline that needs it says so."""
    end_with_parent()  # it is busy for seconds, and hears of its user's end only afterwards
    if os.getppid() != parent:
        os._exit(0)
    gc.disable()  # nearly all that it makes lives as long as it does
    if lean:
        try:
            lean_torch.import_torch()
        except Exception:  # the same in a process that has nothing of it yet, without leaving out any part
            os.dup2(asked.fileno(), 0)
            command = [sys.executable, "-m", "grader.sandbox.template", "whole-torch", str(parent)]
            os.execv(sys.executable, command)
    with contextlib.suppress(Exception):
        import torch  # noqa: F401
    gc.freeze()  # the children share these pages as long as no collection writes to them
    gc.enable()
    end_with_parent(False)


if __name__ == "__main__":
    asked = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    if sys.argv[1:2] in (["torch"], ["whole-torch"]):
        _import_torch(int(sys.argv[2]), asked, lean=sys.argv[1] == "torch")

    has_gpu = any(map(os.path.exists, torch_ahead.GPUS))
    for name in ("sim", "gpu.device") if has_gpu else ("sim",):  # for the children
        importlib.import_module(f"grader.devices.{name}")
    _serve(asked)
