"""The process that the learner's code runs in: it makes a device ready, then answers one Call after the other.

It knows no expected values, and it ends with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.devices import Device, DeviceError, LoadError, Rehearsal
from grader.fault import MISTAKES, Fault, told
from grader.sandbox.frames import Child, read_header, write_header
from grader.system.processes import end_with_parent

CUT_OFF = 113  # exit code of a child that cannot reach its parent


class SandboxError(Fault):
    """The child process could not be used, through no fault of the learner's file."""


def run_child(name: str, fd: int, parent: int) -> None:
    """Be the child of ``parent`` that the grader speaks to over the socket ``fd``."""
    _confine(parent)
    connection = socket.socket(fileno=fd)
    try:
        _serve(name, connection)
    except (EOFError, OSError):
        os._exit(CUT_OFF)  # the parent is done with this child, or the launcher closed what is not its own


def _serve(name: str, connection: socket.socket) -> None:
    """Make the device ready, then answer one call after the other."""
    device = _open(name, connection)
    write_header(connection, {"ready": True})
    frames = Child(connection)
    while True:
        try:
            outcome = device.call(frames.read_call(), frames)
        except DeviceError as error:
            frames.write_broken(str(error))
            os._exit(0)
        except MISTAKES as error:  # a launcher's own deeds come as findings, or end the process
            frames.write_broken(told(error))
            os._exit(0)
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)
        frames.write_outcome(outcome, spent=device.spent)
        del outcome  # of large outputs none is held while the next call is waited for


def _confine(parent: int) -> None:
    """End with the parent (where the system offers it), leave no core file, print no more than fits a disk."""
    end_with_parent()
    if os.getppid() != parent:
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it: prints into a full file would always fail
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))


def _open(name: str, connection: socket.socket) -> Device:
    """The device with the kata loaded; where that fails, the parent is told why and the child ends."""
    kind: str | None = None
    try:
        open_device = _OPENERS[name](read_header(connection)["rehearse"])
        program = read_header(connection)
        paths = {key: Path(program[key]) for key in ("library", "ptx", "source")}
        if gone := [str(path) for path in paths.values() if not path.is_file()]:
            raise SandboxError(f"{gone[0]} is gone; was the cache deleted? Grade again, which builds it again.")
        return open_device(program, paths)
    except LoadError as error:
        kind, message = error.kind, str(error)
    except SandboxError as error:
        message = str(error)
    except (EOFError, ConnectionResetError):
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    write_header(connection, {"refused": {"kind": kind, "message": message}})
    os._exit(0)


_Opener = Callable[[Mapping[str, Any], dict[str, Path]], Device]


def _simulator(rehearsals: Sequence[Mapping[str, Any]]) -> _Opener:
    from grader.devices.sim import SimDevice

    return lambda program, paths: SimDevice(
        **paths, engine=Path(program["engine"]), arch=program["arch"], threads=program["threads"]
    )


def _gpu(rehearsals: Sequence[Mapping[str, Any]]) -> _Opener:
    """Wakes the GPU before it is known what to load, while the file is still being compiled."""
    from grader.devices.gpu.baselines import rehearse
    from grader.devices.gpu.device import GpuDevice
    from grader.devices.gpu.driver import Driver

    driver = Driver()
    _wake_torch()
    if rehearsals:
        rehearse(driver, [Rehearsal(**each) for each in rehearsals])
    return lambda program, paths: GpuDevice(driver, library=paths["library"], source=paths["source"])


def _wake_torch() -> None:
    """Let torch, in a child that has it, find the GPU and wake cuBLAS, which most baselines are. Where it cannot, the
    baseline that needs it says so."""
    if "torch" in sys.modules:
        with contextlib.suppress(Exception):
            import torch

            some = torch.ones(16, 16, dtype=torch.half, device="cuda")
            torch.mm(some, some)


_OPENERS: dict[str, Callable[[Sequence[Mapping[str, Any]]], _Opener]] = {"sim": _simulator, "gpu": _gpu}


if __name__ == "__main__":
    run_child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
