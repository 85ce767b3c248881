"""Build -> a child process that calls its launcher: Call in, Outcome out.

The learner's code runs only here. The parent holds the expected values, the clock and the verdict. The child may
exit, abort, hang, exhaust memory or print anything: the parent answers with an Outcome, and the next call gets
a new child.

Both ends speak frames (frames.py) over a socket that the child keeps to itself. A child is a new interpreter, or
a fork of a clean one where a service grades.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import IO, Any, TypeVar

from grader.compile import unit
from grader.devices import WARM_UP_S, Call, DeviceError, Finding, Limits, Outcome, Rehearsal, Undisclosed, counters
from grader.sandbox.child import CUT_OFF, SandboxError
from grader.sandbox.frames import FrameError, Parent, read_header, write_header
from grader.sandbox.template import Template
from grader.system.processes import Guarded, grader_environment, group_size, resident_bytes, tasks
from grader.system.stages import stage
from grader.system.stopwatch import Stopwatch

READY_LIMIT_S = 120.0
ANSWER_LIMIT_S = 120.0  # from the first byte of an answer to its last
TIMING_COPIES, TIMING_BYTES = 5, 8 << 30  # host memory that a timing run may take: of its buffers, and besides
CALL_COPIES = 4  # host memory that another call may take, of its buffers, if that is more than the program's limit
MOST_PROCESSES = 200  # that a launcher may start
PRINTED_LIMIT = 16_000  # bytes of the learner's own output that are kept, at most
TRUNCATED = "..."  # the line that stands for what came before

T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """What a child is started with: one built kata on one device. ``engine`` is the simulator's own library.

    ``tag`` is the file's namespace in a library of several files, empty in one of its own.
    """

    device: str
    arch: str
    library: Path
    ptx: Path
    source: Path
    engine: Path | None = None
    threads: int = 2
    memory_limit_bytes: int = 3 << 30  # beyond what the child holds when it is ready
    tag: str = ""


class Sandbox:
    """One child process at a time, replaced after any error. ``start`` it early: a GPU's child is seconds in coming.

    ``torch``: a baseline will need it. The child is then a fork of a process that has imported it, and the first child
    begins with the ``rehearsals``.
    """

    def __init__(self, device: str, *, torch: bool = False, rehearsals: Sequence[Rehearsal] = ()) -> None:
        self._device, self._torch, self._rehearsals = device, torch, rehearsals
        self._program: Program | None = None
        self._child: _Child | None = None
        self._seconds = 0.0  # that all calls took, as a Stopwatch counts them
        self._leaving: _Leaving | None = None
        self.printed = ""  # the end of what the learner's code wrote to stdout and stderr

    def __enter__(self) -> Sandbox:
        return self

    @property
    def program(self) -> Program:
        """What was loaded."""
        assert self._program is not None
        return self._program

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> _Child:
        """Start the child where there is none, without waiting until it is ready."""
        if self._child is None:
            self._child = _Child(self._device, torch=self._torch, rehearsals=self._rehearsals)
            self._rehearsals = ()
            if self._program is not None:
                self._child.load(self._program)
        return self._child

    def reserve(self, contents_bytes: int) -> None:
        """Have memory ready for calls with so much of contents, where there is a child. For a thread."""
        if (child := self._child) is not None:
            child.reserve(contents_bytes)

    def load(self, program: Program) -> None:
        """Say which build this child, and every one that replaces it, is to run."""
        assert program.device == self._device and self._program is None
        self._program = program
        if self._child is not None:
            self._child.load(program)

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def replace(self, other: Sandbox) -> None:
        """Close another sandbox that uses the GPU, without waiting until its child is gone. It must be gone by when the
        next timing run has warmed up: otherwise that run tells nothing."""
        self._leaving = _Leaving(other)

    def ready(self) -> None:
        """Start the child where there is none, and wait until it is ready. What goes wrong the first call says."""
        child = self.start()
        if self._program is not None:
            with contextlib.suppress(_ChildGone):
                child.ready()

    def call(self, call: Call, undisclosed: Undisclosed | None = None) -> Outcome:
        """Run the launcher once. A child that ends, hangs or breaks its device becomes a Finding in the Outcome.
        ``undisclosed`` answers what a timing run asks.

        Raises SandboxError when a child cannot even be made ready, and when the device is broken.
        """
        child, tag = self.start(), self._program.tag if self._program else ""
        leaving, self._leaving = (self._leaving, None) if call.timing else (None, self._leaving)
        began = time.monotonic()
        try:
            with stage("timing" if call.timing else "calls of the launcher"):
                named = replace(call, launcher=unit.launcher_in(tag, call.launcher))
                outcome, spent = child.ask(named, self._seconds, undisclosed)
        except _ChildGone as lost:
            self.printed = child.printed()
            self.close()
            return Outcome(findings=(lost.finding,))
        except DeviceError as error:
            self.close()
            raise SandboxError(f"{error}. This is a bug of the grader, not of the file.") from None
        except BaseException:
            self.close()
            raise
        finally:
            self._seconds += child.took_s
        self.printed = unit.without(tag, child.printed())
        if spent:
            self.close()
        if leaving is not None and not leaving.was_gone(began + WARM_UP_S):
            return Outcome(findings=(Finding("inconclusive", "the process that checked the answers was slow to end"),))
        return _as_alone(tag, outcome)


class _Leaving:
    """A sandbox that a thread closes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox, self._gone_at = sandbox, inf
        self._thread = threading.Thread(target=self._close)
        self._thread.start()

    def _close(self) -> None:
        self._sandbox.close()
        self._gone_at = time.monotonic()

    def was_gone(self, then: float) -> bool:
        """Whether its child was gone at that time. It is gone when this returns."""
        self._thread.join()
        return self._gone_at <= then


def _as_alone(tag: str, outcome: Outcome) -> Outcome:
    """The outcome in the words that it has where the library is of one file alone."""
    if not tag:
        return outcome

    def plain(value: Any) -> Any:
        kind = type(value)
        if kind is int or value is None:  # nearly all that there is
            return value
        if kind is str:
            return unit.without(tag, value)
        if kind in (tuple, list):
            return kind(map(plain, value))
        if isinstance(value, Finding):
            return replace(value, message=plain(value.message), kernel=plain(value.kernel))
        if kind.__module__ == counters.__name__:  # what is said of kernels
            return replace(value, **{name: plain(item) for name, item in vars(value).items()})
        return {key: plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value

    names = ("findings", "counters", "writers", "launches", "order", "coverage", "launched", "births", "trail")
    return replace(outcome, **{name: plain(value) for name in names if (value := getattr(outcome, name))})


def prestart_torch() -> None:
    """Let the process whose forks have torch import it, which takes seconds; without effect where it has begun."""
    _TORCH.template()


class _Torch:
    """The process that imports torch once, for all sandboxes that need it. It touches no GPU."""

    def __init__(self) -> None:
        self._template: Template | None = None
        self._owner = 0  # a fork of this process needs one of its own

    def template(self) -> Template:
        if self._template is None or self._owner != os.getpid():
            self._template, self._owner = Template(torch=True), os.getpid()
        return self._template

    def start(self, *about: Any) -> Guarded | None:
        with open(os.devnull, "w") as held, stage("wait for torch"):
            return self.template().start(held.fileno(), *about)

    def close(self) -> None:
        if self._template is not None and self._owner == os.getpid():
            self._template.kill()
        self._template = None


_TORCH = _Torch()
atexit.register(_TORCH.close)


class _ChildGone(Exception):
    """The child cannot answer any more; ``finding`` says why, in the learner's terms."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(kind, message)


# device, the child's end of the connection, where it prints, its environment -> the child; None: spawn it
Starter = Callable[[str, socket.socket, IO[bytes], Mapping[str, str]], Guarded | None]
_starter: Starter | None = None


def start_children_by(starter: Starter | None) -> None:
    """From now on children come from there, but for those that need torch. None: each is spawned."""
    global _starter
    _starter = starter


def starter() -> Starter | None:
    """Where children come from."""
    return _starter


@contextlib.contextmanager
def forked_sandboxes() -> Iterator[None]:
    """In a process that grades many files: their sandboxes' children are forks of a template of its own."""
    before, template, held = _starter, Template(), os.open(os.devnull, os.O_WRONLY)
    start_children_by(partial(template.start, held))
    try:
        yield
    finally:
        start_children_by(before)
        template.close()
        os.close(held)


def _spawned(
    device: str, connection: socket.socket, output: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    fd = connection.fileno()
    return subprocess.Popen(
        [sys.executable, "-m", "grader.sandbox.child", device, str(fd), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(fd,),
        env=environment,
        start_new_session=True,
    )


class _Child:
    def __init__(self, device: str, *, torch: bool, rehearsals: Sequence[Rehearsal]) -> None:
        self._device = device
        self._memory_limit = 0
        self._memory_at_start: int | None = None  # known once the child is ready
        self._tasks_at_start = tasks()
        self.took_s = 0.0  # the last call, as a Stopwatch counts
        ours, theirs = socket.socketpair()
        self._socket, self._frames = ours, Parent(ours)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill()
        environment = grader_environment()
        environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the first GPU is the one the build was made for
        about = (device, theirs, self._output, environment)
        with theirs:
            start = _TORCH.start if torch else _starter
            guarded = None if start is None else start(*about)
            self._process: subprocess.Popen[bytes] | Guarded = guarded or _spawned(*about)
        self._say({"rehearse": [vars(each) for each in rehearsals]})

    def reserve(self, contents_bytes: int) -> None:
        self._frames.reserve(contents_bytes)

    def load(self, program: Program) -> None:
        self._memory_limit = program.memory_limit_bytes
        fields = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(program).items()}
        self._say(fields)

    def _say(self, header: Mapping[str, Any]) -> None:
        with contextlib.suppress(_ChildGone):  # the first call says what became of it
            self._send(lambda: write_header(self._socket, header))

    def ask(self, call: Call, before_s: float = 0.0, undisclosed: Undisclosed | None = None) -> tuple[Outcome, bool]:
        """What became of the call, and whether the child is of no more use. ``before_s``: what earlier calls took."""
        self.took_s = 0.0
        self.ready()
        buffers_bytes = sum(len(buffer.data) for buffer in call.buffers)
        self._memory_limit = max(self._memory_limit, CALL_COPIES * buffers_bytes)
        if call.timing:  # holds inputs, answers and what it sends; and torch, where that is the baseline
            self._memory_limit = max(self._memory_limit, TIMING_COPIES * buffers_bytes + TIMING_BYTES)
        try:
            self._send(lambda: self._frames.write_call(call, undisclosed))
            stopwatch = Stopwatch(self._process.pid)

            def look() -> None:
                self.took_s = stopwatch.seconds()
                _hold_to(call.limits, self.took_s, before_s)
                self._check_memory()
                self._check_processes()

            while (answer := self._receive(lambda: self._frames.read_outcome(call, ANSWER_LIMIT_S), look)) is None:
                look()
            self.took_s = stopwatch.seconds()
            return answer
        except TimeoutError:
            raise _ChildGone(
                "time-out", f"the call's contents did not come through within {ANSWER_LIMIT_S:g} s"
            ) from None

    def ready(self) -> int:
        """The bytes of memory that the child holds before its first call. It waits until they are known."""
        if self._memory_at_start is None:
            with stage("wait for the device's process"):
                self._memory_at_start = self._wait_until_ready()
        return self._memory_at_start

    def _wait_until_ready(self) -> int:
        """Returns the bytes of memory that the child holds before its first call."""
        deadline = time.monotonic() + READY_LIMIT_S

        def look() -> None:
            if time.monotonic() > deadline:
                raise TimeoutError
            self._check_processes()

        try:
            header = self._receive(lambda: read_header(self._socket, READY_LIMIT_S), look)
        except TimeoutError:
            raise SandboxError(f"the {self._device} device was not ready within {READY_LIMIT_S:g} s") from None
        if "refused" in header:
            refused = header["refused"]
            if refused["kind"] is None:
                raise SandboxError(refused["message"])
            raise _ChildGone(refused["kind"], refused["message"])
        return resident_bytes(self._process.pid)

    def _send(self, write: Callable[[], None]) -> None:
        self._socket.settimeout(READY_LIMIT_S)  # a child that was stopped reads nothing
        try:
            write()
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None

    def _receive(self, read: Callable[[], T], look: Callable[[], None]) -> T:
        """The child's next frame, by ``read``. Until it begins there is a ``look`` again and again, which may raise."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while not selector.select(0.02):
                if self._process.poll() is not None and not selector.select(0):
                    raise self._ended()  # also where a process that it forked holds the other end open
                look()
        try:
            return read()
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise self._ended() from None
        except FrameError:
            raise _ChildGone("crash", "the launcher wrote to the grader's connection") from None

    def _check_memory(self) -> None:
        assert self._memory_at_start is not None
        limit = self._memory_limit
        if resident_bytes(self._process.pid) - self._memory_at_start > limit:
            raise _ChildGone(
                "crash", f"the launcher took more than {limit / 2**30:g} GiB of host memory and was stopped"
            )

    def _check_processes(self) -> None:
        """Only where the machine has many more than before are the child's own counted: that takes a while."""
        if tasks() - self._tasks_at_start > MOST_PROCESSES and group_size(self._process.pid) > MOST_PROCESSES:
            raise _ChildGone("crash", f"the launcher started more than {MOST_PROCESSES} processes and was stopped")

    def _ended(self) -> _ChildGone:
        """What to say of a child that is gone."""
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return _ChildGone("crash", "the launcher closed the grader's connection")
        if status == CUT_OFF:
            return _ChildGone("crash", "the launcher closed the grader's connection")
        if self._memory_at_start is None and status >= 0:
            return _ChildGone("crash", f"the process ended with exit code {status} while the file was being loaded")
        if status >= 0:
            return _ChildGone("crash", f"the launcher ended the process with exit code {status} instead of returning")
        return _ChildGone("crash", _SIGNALS.get(-status, f"the launcher died of signal {-status}"))

    def printed(self) -> str:
        end = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, end - PRINTED_LIMIT))
        text = self._output.read().decode(errors="replace")
        rest = text.partition("\n")[2]
        return text if end <= PRINTED_LIMIT else f"{TRUNCATED}\n{rest or text}"

    def kill(self) -> None:
        """End the child and all that it started. Returns when it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        self._frames.close()
        self._socket.close()
        self._output.close()


def _hold_to(limits: Limits, took_s: float, before_s: float) -> None:
    if took_s > limits.seconds:
        raise _ChildGone("time-out", f"no answer after {limits.seconds:g} s of work or sleep: an infinite loop?")
    if before_s + took_s > limits.all_seconds:
        raise _ChildGone(
            "time-out", f"all calls together took more than {limits.all_seconds:g} s of computing or sleeping"
        )


_SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "the launcher read or wrote memory on the host that is not there (SIGSEGV); a device pointer "
    "cannot be followed on the host",
    signal.SIGABRT: "the launcher ended the process with abort() (SIGABRT)",
    signal.SIGFPE: "the launcher divided by zero on the host (SIGFPE)",
    signal.SIGKILL: "the process was killed (SIGKILL); perhaps the machine ran out of memory",
    signal.SIGXFSZ: "the kernel or launcher printed more than the grader keeps (SIGXFSZ)",
    signal.SIGILL: "the launcher executed an illegal instruction on the host (SIGILL)",
    signal.SIGBUS: "the launcher made a host memory access that the machine refused (SIGBUS)",
}
