"""Build -> a child process that calls its launcher: Call in, Outcome out.

The learner's code runs only here. The parent holds the expected values, the clock and the verdict: whatever the child
does (exit, abort, hang, eat memory, print what it likes), the parent answers with an Outcome, and the next call gets
a new child.

Both ends speak frames over a socket that the child keeps to itself: a length, a JSON header, the buffers' bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from grader.devices import Buffer, Call, Contest, Device, Finding, LoadError, Outcome, Raced, Scalar

READY_LIMIT_S = 120.0
GRACE_S = 2.0
CUT_OFF = 113  # exit code of a child that cannot reach its parent
RACE_COPIES, RACE_BYTES = 5, 8 << 30  # host memory that a race may take: of its buffers, and besides
MOST_PROCESSES = 200  # that a launcher may start
PRINTED_LIMIT = 4000  # characters of the learner's own output that are kept


class SandboxError(Exception):
    """The child process could not be used, through no fault of the learner's file."""


@dataclass(frozen=True)
class Program:
    """What a child is started with: one built kata on one device. ``engine`` is the simulator's own library."""

    device: str
    arch: str
    library: Path
    ptx: Path
    source: Path
    engine: Path | None = None
    threads: int = 2
    memory_limit_bytes: int = 3 << 30  # beyond what the child holds when it is ready


class Sandbox:
    """One child process at a time, replaced after any error. ``start`` it early: a GPU's child is seconds in coming.

    ``torch`` says that a baseline will need it, so that the child may import it while the file is being compiled.
    """

    def __init__(self, device: str, *, torch: bool = False) -> None:
        self._device, self._torch = device, torch
        self._program: Program | None = None
        self._child: _Child | None = None
        self.printed = ""  # the end of what the learner's code wrote to stdout and stderr

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> _Child:
        """Start the child where there is none, without waiting until it is ready."""
        if self._child is None:
            self._child = _AHEAD.take(self._device) if self._torch else _Child(self._device, torch=False)
            if self._program is not None:
                self._child.load(self._program)
        return self._child

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

    def call(self, call: Call) -> Outcome:
        """Run the launcher once. A child that ends, hangs or breaks its device becomes a Finding in the Outcome.

        Raises SandboxError when a child cannot even be made ready.
        """
        child = self.start()
        try:
            header, blobs = child.ask(call)
        except _Lost as lost:
            self.printed = child.printed()
            self.close()
            return Outcome(findings=(lost.finding,))
        except BaseException:
            self.close()
            raise
        self.printed = child.printed()
        if header["spent"]:
            self.close()
        return _decode_outcome(header, blobs)


def expect_torch(count: int) -> None:
    """So many sandboxes that need torch are to come: while one measures, the child of the next imports it."""
    _AHEAD.expected = count


class _Ahead:
    """The next child that needs torch, begun early. It touches no GPU before it is told what to load."""

    def __init__(self) -> None:
        self.expected = 0
        self._child: _Child | None = None

    def take(self, device: str) -> _Child:
        child, self._child = self._child or _Child(device, torch=True), None
        self.expected -= 1
        if self.expected > 0:
            self._child = _Child(device, torch=True)
        return child

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


_AHEAD = _Ahead()
atexit.register(_AHEAD.close)


class _Lost(Exception):
    """The child cannot answer any more; ``finding`` says why, in the learner's terms."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(kind, message)


class _Child:
    def __init__(self, device: str, *, torch: bool) -> None:
        self._device = device
        self._memory_limit = 0
        self._memory_at_start: int | None = None  # known once the child is ready
        self._tasks_at_start = _tasks()
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill()
        root = str(Path(__file__).resolve().parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
        environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the first GPU is the one the build was made for
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "grader.sandbox",
                    device,
                    str(theirs.fileno()),
                    str(os.getpid()),
                    str(int(torch)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(theirs.fileno(),),
                env=environment,
                start_new_session=True,
            )

    def load(self, program: Program) -> None:
        self._memory_limit = program.memory_limit_bytes
        fields = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(program).items()}
        with contextlib.suppress(_Lost):  # the first call says what became of it
            self._send(fields, [])

    def ask(self, call: Call) -> tuple[dict[str, Any], list[bytes]]:
        if self._memory_at_start is None:
            self._memory_at_start = self._wait_until_ready()
        header, blobs = _encode_call(call)
        if call.race:  # holds inputs, answers and what it sends; and torch, where that is the baseline
            self._memory_limit = max(self._memory_limit, RACE_COPIES * sum(map(len, blobs)) + RACE_BYTES)
        try:
            self._send(header, blobs)
            return self._receive(call.time_limit_s + GRACE_S)
        except TimeoutError:
            raise _Lost("time-out", f"no answer within {call.time_limit_s:g} s: an endless loop?") from None

    def _wait_until_ready(self) -> int:
        """Returns the bytes of memory that the child holds before its first call."""
        try:
            header, _ = self._receive(READY_LIMIT_S)
        except TimeoutError:
            raise SandboxError(f"the {self._device} device was not ready within {READY_LIMIT_S:g} s") from None
        if "refused" in header:
            refused = header["refused"]
            if refused["kind"] is None:
                raise SandboxError(refused["message"])
            raise _Lost(refused["kind"], refused["message"])
        return _resident_bytes(self._process.pid)

    def _send(self, header: Mapping[str, Any], blobs: list[bytes]) -> None:
        try:
            _write_frame(self._socket, header, blobs)
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None

    def _receive(self, limit_s: float) -> tuple[dict[str, Any], list[bytes]]:
        """The child's next frame. Meanwhile its memory is watched. Raises _Lost or TimeoutError."""
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while not selector.select(0.02):
                if self._process.poll() is not None and not selector.select(0):
                    raise self._ended()  # also where a process that it forked holds the other end open
                if time.monotonic() > deadline:
                    raise TimeoutError
                self._check_memory()
                self._check_processes()
        self._socket.settimeout(max(1.0, limit_s))
        try:
            return _read_frame(self._socket)
        except (EOFError, ConnectionResetError):
            raise self._ended() from None
        finally:
            self._socket.settimeout(None)

    def _check_memory(self) -> None:
        if self._memory_at_start is None:
            return
        limit = self._memory_limit
        if _resident_bytes(self._process.pid) - self._memory_at_start > limit:
            raise _Lost("crash", f"the launcher took more than {limit / 2**30:g} GiB of host memory and was stopped")

    def _check_processes(self) -> None:
        """Only where the machine has many more than before are the child's own counted: that takes a while."""
        if _tasks() - self._tasks_at_start > MOST_PROCESSES and _group_size(self._process.pid) > MOST_PROCESSES:
            raise _Lost("crash", f"the launcher started more than {MOST_PROCESSES} processes and was stopped")

    def _ended(self) -> _Lost:
        """What to say of a child that is gone."""
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return _Lost("crash", "the launcher closed the grader's connection")
        if status == CUT_OFF:
            return _Lost("crash", "the launcher closed the grader's connection")
        if self._memory_at_start is None and status >= 0:
            return _Lost("crash", f"the process ended with exit code {status} while the file was being loaded")
        if status >= 0:
            return _Lost("crash", f"the launcher ended the process with exit code {status} instead of returning")
        return _Lost("crash", _SIGNALS.get(-status, f"the launcher died of signal {-status}"))

    def printed(self) -> str:
        end = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, end - PRINTED_LIMIT))
        return self._output.read().decode(errors="replace")

    def kill(self) -> None:
        """End the child and all that it started. Returns when it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        self._socket.close()
        self._output.close()


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


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _tasks() -> int:
    """How many processes and threads the machine has."""
    try:
        with open("/proc/loadavg") as load:
            return int(load.read().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 0


def _group_size(group: int) -> int:
    """How many processes belong to a process group."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            count += os.getpgid(int(pid)) == group
    return count


def _finding(item: Mapping[str, Any]) -> Finding:
    fields = dict(item)
    for name in ("block", "thread"):
        fields[name] = tuple(fields[name]) if fields.get(name) is not None else None
    return Finding(**fields)


# -- frames ----------------------------------------------------------------------------------------------------------


def _write_frame(connection: socket.socket, header: Mapping[str, Any], blobs: list[bytes]) -> None:
    text = json.dumps({"blobs": [len(blob) for blob in blobs], "header": header}).encode()
    connection.sendall(struct.pack("<Q", len(text)) + text)
    for blob in blobs:
        connection.sendall(blob)


def _read_frame(connection: socket.socket) -> tuple[dict[str, Any], list[bytes]]:
    (length,) = struct.unpack("<Q", _read(connection, 8))
    frame = json.loads(_read(connection, length))
    return frame["header"], [_read(connection, size) for size in frame["blobs"]]


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view, min(len(view), 1 << 22))
        if count == 0:
            raise EOFError
        view = view[count:]
    return bytes(data)


# -- calls and outcomes as frames: what is bytes goes beside the header ----------------------------------------------


def _encode_call(call: Call) -> tuple[dict[str, Any], list[bytes]]:
    header = asdict(replace(call, buffers=()))
    header["buffers"] = [{**asdict(replace(buffer, data=b"")), "data": None} for buffer in call.buffers]
    return header, [buffer.data for buffer in call.buffers]


def _decode_call(header: dict[str, Any], blobs: list[bytes]) -> Call:
    buffers = tuple(
        Buffer(**{**item, "shape": tuple(item["shape"]), "data": blob})
        for item, blob in zip(header["buffers"], blobs, strict=True)
    )
    scalars = tuple(Scalar(**item) for item in header["scalars"])
    watch = tuple((name, index) for name, index in header["watch"])
    race = Contest(**{**header["race"], "rotations": tuple(header["race"]["rotations"])}) if header["race"] else None
    return Call(**{**header, "buffers": buffers, "scalars": scalars, "watch": watch, "race": race})


def _encode_outcome(outcome: Outcome) -> tuple[dict[str, Any], list[bytes]]:
    """The header has the names of outputs and answers in the order of the bytes."""
    answers = outcome.race.answers if outcome.race else ()
    header = asdict(replace(outcome, outputs={}, race=replace(outcome.race, answers=()) if outcome.race else None))
    header["outputs"] = list(outcome.outputs)
    header["answers"] = [(index, list(outputs)) for index, outputs in answers]
    blobs = [*outcome.outputs.values(), *(data for _, outputs in answers for data in outputs.values())]
    return header, blobs


def _decode_outcome(header: Mapping[str, Any], blobs: list[bytes]) -> Outcome:
    remaining = iter(blobs)
    outputs = {name: next(remaining) for name in header["outputs"]}
    answers = tuple((index, {name: next(remaining) for name in names}) for index, names in header["answers"])
    race = header["race"]
    if race is not None:
        finding = _finding(race["finding"]) if race["finding"] else None
        pairs = {name: tuple((one, other) for one, other in race[name]) for name in ("times", "canary")}
        clocks = tuple(race["clocks_mhz"])
        race = Raced(**{**race, **pairs, "answers": answers, "finding": finding, "clocks_mhz": clocks})
    findings = tuple(_finding(item) for item in header["findings"])
    plain = {name: header[name] for name in ("counters", "writers")}
    return Outcome(outputs, findings, **plain, launches=tuple(header["launches"]), race=race)


# -- the child -------------------------------------------------------------------------------------------------------


def _main(name: str, fd: int, parent: int, torch: bool) -> None:
    _confine(parent)
    connection = socket.socket(fileno=fd)
    try:
        if torch:
            importlib.import_module("torch")
            select.select([connection], [], [])  # only now is it this child's turn to use the GPU
        _serve(name, connection)
    except (EOFError, OSError):
        os._exit(CUT_OFF)  # the parent is done with this child, or the launcher closed what is not its own


def _serve(name: str, connection: socket.socket) -> None:
    """Make the device ready, then answer one call after the other."""
    device = _open(name, connection)
    _write_frame(connection, {"ready": True}, [])
    while True:
        header, blobs = _read_frame(connection)
        outcome = device.call(_decode_call(header, blobs))
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)
        reply, contents = _encode_outcome(outcome)
        _write_frame(connection, {**reply, "spent": device.spent}, contents)


def _confine(parent: int) -> None:
    """End with the parent (where the system offers it), leave no core file, print no more than fits a disk."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it: prints into a full file would fail for ever
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))


def _open(name: str, connection: socket.socket) -> Device:
    """The device with the kata loaded; where that fails, the parent is told why and the child ends."""
    kind: str | None = None
    try:
        open_device = _OPENERS[name]()
        program, _ = _read_frame(connection)
        paths = {key: Path(program[key]) for key in ("library", "ptx", "source")}
        if gone := [str(path) for path in paths.values() if not path.is_file()]:
            raise SandboxError(f"{gone[0]} is gone; was the cache deleted meanwhile? Grade again: it is built anew.")
        return open_device(program, paths)
    except LoadError as error:
        kind, message = error.kind, str(error)
    except SandboxError as error:
        message = str(error)
    except (EOFError, ConnectionResetError):
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    _write_frame(connection, {"refused": {"kind": kind, "message": message}}, [])
    os._exit(0)


_Opener = Callable[[Mapping[str, Any], dict[str, Path]], Device]


def _simulator() -> _Opener:
    from grader.devices.sim import SimDevice

    return lambda program, paths: SimDevice(
        **paths, engine=Path(program["engine"]), arch=program["arch"], threads=program["threads"]
    )


def _gpu() -> _Opener:
    """Wakes the GPU before it is known what to load, while the file is still being compiled."""
    from grader.devices.driver import Driver
    from grader.devices.gpu import GpuDevice

    driver = Driver()
    return lambda program, paths: GpuDevice(driver, library=paths["library"], source=paths["source"])


_OPENERS: dict[str, Callable[[], _Opener]] = {"sim": _simulator, "gpu": _gpu}


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1")
