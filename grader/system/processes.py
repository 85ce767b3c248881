"""Processes as Linux knows them: how one of the grader's begins, what is below one and how to end it, who ends with
whom, what they take.

A process group would not do to end nvcc: `timeout`, which stands before it, makes one of its own. Where the system has
no /proc or no prctl, nothing is found and nothing is arranged.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # prctl(2): PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
# mallopt(3): M_TRIM_THRESHOLD and M_TOP_PAD, in bytes; M_MMAP_MAX, how many blocks are mapped each for itself
_KEPT = {-1: 1 << 30, -2: 1 << 26, -4: 0}


# -- how they begin


def grader_environment() -> dict[str, str]:
    """The environment of a process of the grader's: `python -m grader...` finds this grader."""
    here = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))}


class Guarded:
    """A process that another one guards, seen as a Popen. It says its id and the guard its exit status, 4 bytes each;
    the guard ends it when this end of the socket is closed. Raises OSError where there is no guard."""

    def __init__(self, guard: socket.socket) -> None:
        self._guard, self._status = guard, b""
        if not (said := guard.recv(4)):
            raise ConnectionResetError
        self.pid = int.from_bytes(said, "little")

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal. Raises TimeoutExpired."""
        if not self._status:
            if not select.select([self._guard], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a guarded process", timeout or 0.0)
            self._status = self._guard.recv(4) or (-signal.SIGKILL).to_bytes(4, "little", signed=True)
        return int.from_bytes(self._status, "little", signed=True)


def keep_memory() -> None:
    """What this process frees it uses again: new memory for each array took answers a third of their time. Where the C
    library is not glibc, nothing is arranged."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, count in _KEPT.items():
            mallopt(parameter, count)


# -- what is below


def children(pid: int) -> list[int]:
    """The processes that one started, and the orphans that came to it."""
    return [child for child, parent in _parents() if parent == pid]


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first."""
    below: dict[int, list[int]] = {}
    for child, parent in _parents():
        below.setdefault(parent, []).append(child)
    found, pending = [], [pid]
    while pending:
        more = below.get(pending.pop(), [])
        found += more
        pending += more
    return found


def _parents() -> Iterator[tuple[int, int]]:
    """The id of every process and its parent's."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            yield int(place.parent.name), int(_stat(str(place))[1])


# -- how they end


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_tree(pid: int) -> None:
    """End a process with all that it started. It is stopped first, so that it starts nothing meanwhile.

    A second Ctrl-C waits until that is done: a process that was stopped and not killed would stay forever.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    try:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGSTOP)
        kill([pid, *descendants(pid)])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_children() -> None:
    """Kill every child of this process, then the new children that this gives it, until no child is left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                kill(children(os.getpid()))
                os.waitpid(-1, 0)


def end_with_parent(wanted: bool = True) -> None:
    """This process is killed when the one that started it ends. Who did may be gone already: the caller asks."""
    _prctl(_DEATH_SIGNAL, signal.SIGKILL if wanted else 0)


# Reads until the grader is gone, then kills every process with its mark until it has found none three times.
_GUARD = """
read -r _
quiet=0
while [ $quiet -lt 3 ]; do
    quiet=$((quiet + 1))
    for place in $(grep -lsa -e "$1" /proc/[0-9]*/environ); do
        place=${place%/environ}
        kill -KILL "${place#/proc/}" && quiet=0
    done
    sleep 0.05
done
"""
_MARK = "KATA_GRADER"


def guard() -> None:
    """From now on, every process that this one starts ends with it, also if it is killed: compilers, their children,
    new sessions. A mark in the environment identifies them. Without sh, it does nothing."""
    value = os.urandom(8).hex()
    environment = {name: value for name, value in os.environ.items() if name != _MARK}
    with contextlib.suppress(OSError):
        _GUARDS.append(
            subprocess.Popen(
                ["sh", "-c", _GUARD, "guard", f"{_MARK}={value}"],
                stdin=subprocess.PIPE,  # this process alone holds the other end
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process
            )
        )
        os.environ[_MARK] = value


_GUARDS: list[subprocess.Popen[bytes]] = []  # held as long as this process is there


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """A context at whose end no child of this process is left, nor what lost its parent below it."""
    adopt_orphans()
    guard()
    try:
        yield
    finally:
        end_children()


def adopt_orphans() -> None:
    """What loses its parent below this process becomes its own child, which it can then end."""
    _prctl(_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


# -- what they take


def resident_bytes(pid: int) -> int:
    """The memory that a process holds; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def processor_s(pid: int) -> float:
    """The processor time that a process has had, all of its threads together; 0.0 where it is gone."""
    try:
        user, system = _stat(f"/proc/{pid}/stat")[11:13]
    except (OSError, ValueError):
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def can_run(pid: int) -> bool:
    """Whether any thread of a process computes or waits for a processor; the others sleep, or wait for something."""
    threads = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        for thread in os.listdir(threads):
            with contextlib.suppress(OSError, IndexError):
                if _stat(f"{threads}/{thread}/stat")[0] == "R":
                    return True
    return False


def _stat(place: str) -> list[str]:
    """What /proc says of a process or a thread, from its state on."""
    with open(place, "rb", buffering=0) as file:
        return file.read().decode(errors="replace").rpartition(")")[2].split()


def tasks() -> int:
    """How many processes and threads the machine has."""
    try:
        with open("/proc/loadavg") as load:
            return int(load.read().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 0


def group_size(group: int) -> int:
    """How many processes belong to a process group."""
    count = 0
    with contextlib.suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                count += os.getpgid(int(pid)) == group
    return count


def available_bytes() -> int:
    """The memory that processes can still take, without what the system would have to write out first; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo") as facts:
        for line in facts:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0
