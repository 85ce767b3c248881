"""PTX that may be broken in any way -> what the simulator says of it, from a child process that may die of it.

python -m sim_kernels.victim    answers pickled Attempts on stdin with pickled lists of findings, or a traceback
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from grader.devices import Call, Finding

HERE = Path(__file__).parent
# Of addresses, so that absurd sizes are refused by the system and not by its out-of-memory killer.
MEMORY_BYTES = 12 << 30
LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Attempt:
    """A built kata with other PTX than its own, and a call of it."""

    engine: Path
    library: Path
    source: Path
    ptx: bytes
    call: Call


class Died(Exception):
    """The child did not answer: it crashed, hung, or raised; the message says which."""


class Victim:
    """A child process, replaced when it dies. ``ask`` raises Died."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, attempt: Attempt, *, limit_s: float) -> list[Finding]:
        if self._child is None or self._child.poll() is not None:
            self._child = self._start()
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        _write(child.stdin, pickle.dumps(attempt))
        if not select.select([child.stdout], [], [], limit_s)[0]:
            self.close()
            raise Died(f"no answer after {limit_s:g} s")
        answer = _read(child.stdout)
        if answer is None:
            raise Died(f"the child ended with status {child.wait()}")
        found = pickle.loads(answer)
        if isinstance(found, str):
            raise Died(found)
        return list(found)

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join((str(HERE.parent.parent), str(HERE.parent)))
        return subprocess.Popen(
            [sys.executable, "-m", "sim_kernels.victim"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip


def _write(stream: IO[bytes], data: bytes) -> None:
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    head = stream.read(LENGTH.size)
    return stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def answer(attempt: Attempt) -> Sequence[Finding] | str:
    from grader.devices import LoadError
    from grader.devices.sim import SimDevice

    try:
        with tempfile.NamedTemporaryFile(suffix=".ptx") as ptx:
            ptx.write(attempt.ptx)
            ptx.flush()
            device = SimDevice(
                engine=attempt.engine, library=attempt.library, ptx=Path(ptx.name), source=attempt.source,
                arch="sm_90a", threads=2,
            )  # fmt: skip
            return device.call(attempt.call).findings
    except LoadError as error:
        return [Finding(error.kind, str(error))]
    except Exception:
        return traceback.format_exc()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a kernel prints is no answer
    while (data := _read(sys.stdin.buffer)) is not None:
        _write(answers, pickle.dumps(answer(pickle.loads(data))))


if __name__ == "__main__":
    main()
