"""`python -m MODULE` in a child of a process that has imported numpy and the grader already: the same but for what the
imports cost. The sandboxes of its grades are forks of a clean process, as in a service.

Tests that start the command line and pytest hundreds of times start them here. What an import itself costs, or what an
environment variable of Python's own does, is seen only in an interpreter that is started for it: see ``run``.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORDS = 1 << 20  # bytes of a request, its environment included
_AT_START = ("PYTHON", "LC_", "LANG", "OMP_", "LD_")  # variables that an interpreter or a library reads once


def run(
    arguments: tuple[str, ...], *, cwd: Path, env: Mapping[str, str], fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """What subprocess.run says of [sys.executable, *arguments] with its output captured as text.

    ``fresh``: in an interpreter of its own, as is also done for anything but -m, and where ``env`` has a variable that
    is read at the start.
    """
    changed = {name for name in {*env, *os.environ} if env.get(name) != os.environ.get(name)} - {"PYTHONPATH"}
    if fresh or any(name.startswith(_AT_START) for name in changed) or arguments[0] != "-m":
        return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)
    with open(os.devnull) as nothing, TemporaryFile("w+") as said, TemporaryFile("w+") as complained:
        reading, writing = os.pipe()
        request = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": dict(env)}).encode()
        files = [nothing.fileno(), said.fileno(), complained.fileno(), writing]
        try:
            socket.send_fds(_server(), [request], files)
        except (
            BrokenPipeError
        ):  # a test has called the command line in this process, which ends all that it has started
            _server.cache_clear()
            socket.send_fds(_server(), [request], files)
        os.close(writing)
        with open(reading) as status:
            code = int(status.read() or -signal.SIGKILL)
        said.seek(0)
        complained.seek(0)
        return subprocess.CompletedProcess(arguments, code, said.read(), complained.read())


@functools.cache
def _server() -> socket.socket:
    """Started with the first command, ended with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _next_command(requests: socket.socket) -> dict[str, Any] | None:
    """Returns a request in a child of its own that is to do it; None in the server, when there are no more."""
    while True:
        words, files, *_ = socket.recv_fds(requests, WORDS, 4)
        if not words:
            return None
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    # A child that waits for the one that does the work, and tells how it ended.
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    worker = os.fork()
    if worker:
        _, status = os.waitpid(worker, 0)
        os.write(files[3], str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    return dict(json.loads(words))


def _become(request: Mapping[str, Any]) -> None:
    """What an interpreter does with these arguments; its end is this interpreter's."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    _, module, *arguments = request["arguments"]
    beside = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [os.getcwd(), *beside]  # in place of this file's folder
    sys.argv = ["-m", *arguments]
    if Path("grader").is_dir() and Path.cwd() != ROOT:  # it has a grader of its own
        for name in [name for name in sys.modules if name.partition(".")[0] == "grader"]:
            del sys.modules[name]
    if module == "pytest":  # it would say of its plugins that they were imported before it came
        sys.argv += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code: Any = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    # What an interpreter does at its end, but for taking its modules apart.
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # in place of this file's folder
    import sqlite3  # noqa: F401

    import numpy  # noqa: F401

    import grader.pytest_plugin  # noqa: F401
    from grader.cli import MODULES
    from grader.content.catalog import load_catalog
    from grader.judge.search import rehearse
    from grader.sandbox.parent import start_children_by
    from grader.sandbox.template import Template

    for name in MODULES:
        importlib.import_module(f"grader.{name}")
    rehearse()
    load_catalog(ROOT)  # what difficulty.yaml says is known of every clone that has the same

    template, held = Template(), os.open(os.devnull, os.O_WRONLY)
    start_children_by(functools.partial(template.start, held))  # sandboxes are forks, as in a service
    gc.freeze()  # no child looks at these objects for garbage
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        todo = _next_command(listening)
    if todo is None:
        template.close()
    else:
        _become(todo)
