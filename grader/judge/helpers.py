"""Answers on shapes that are timed -> worked out by processes of their own, several at the same time.

So many threads would wait for one interpreter, and what is checked and timed meanwhile would wait with them. Helpers
read the inputs in memory that this process shares with them, and a few rows of the answer come back.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from grader.content.catalog import Kata
from grader.judge.case import Case, CaseKey, Expected
from grader.judge.recent import OneAtATime
from grader.system.processes import grader_environment

if TYPE_CHECKING:
    from numpy import ndarray


class HelperGone(Exception):
    """It has ended, or could not do it."""


@dataclass(frozen=True)
class Shared:
    """Inputs of a case as another process finds them: a file, and of each array its type, its shape and its place."""

    path: str
    arrays: Mapping[str, tuple[str, tuple[int, ...], int]]


@dataclass(frozen=True)
class Question:
    """Which answer is wanted: to this case, or to a call of a timing run on it, in these rows."""

    kata: Kata
    shape: CaseKey
    inputs: Shared
    rows: ndarray | None
    call: tuple[int, int] | None = None  # the run's secret, the call's number


class Helpers:
    """So many processes, each of which answers one question at a time. They end when this is closed."""

    def __init__(self, count: int) -> None:
        self._processes = [_begun() for _ in range(count)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._shared: dict[CaseKey, tuple[int, Shared]] = {}
        self._sharing: OneAtATime[CaseKey] = OneAtATime()

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for process in self._processes:
            process.wait()
        for file, _shared in self._shared.values():
            os.close(file)

    def close(self) -> None:
        """What another thread has asked is then not answered."""
        for process in self._processes:
            process.kill()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Meanwhile none of them works: what is timed has the processors and their memory for itself."""
        self._tell(signal.SIGSTOP)
        try:
            yield
        finally:
            self._tell(signal.SIGCONT)

    def _tell(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)

    def answer(self, case: Case, rows: ndarray | None, call: tuple[int, int] | None = None) -> tuple[Expected, ...]:
        """As a question. Raises HelperGone."""
        process = self._idle.get()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(Question(case.kata, case.shape, self._share(case), rows, call), process.stdin)
            process.stdin.flush()
            answer: tuple[Expected, ...] = pickle.load(process.stdout)
        except (OSError, EOFError, ValueError, AttributeError, pickle.PickleError) as error:
            raise HelperGone(str(error)) from None
        finally:
            self._idle.put(process)
        return answer

    def _share(self, case: Case) -> Shared:
        with self._sharing.of(case.shape):
            if case.shape not in self._shared:
                self._shared[case.shape] = _written(case.inputs)
            return self._shared[case.shape][1]


def _begun() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "grader.judge.helper", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=grader_environment(),
    )


def _written(inputs: Mapping[str, ndarray]) -> tuple[int, Shared]:
    """The inputs in memory without a name, and its descriptor. Raises OSError, AttributeError on another system."""
    file, end, arrays = os.memfd_create("kata"), 0, {}
    for name, array in inputs.items():
        arrays[name] = (array.dtype.str, array.shape, end)
        view = memoryview(array.reshape(-1).view("u1")).cast("B")  # type: ignore[arg-type]
        while view:
            written = os.pwrite(file, view, end)
            view, end = view[written:], end + written
        end += -end % 64
    return file, Shared(f"/proc/{os.getpid()}/fd/{file}", arrays)


def read(shared: Shared) -> dict[str, ndarray]:
    """The same arrays, in another process. Nothing may write to them."""
    import mmap

    import numpy

    with open(shared.path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if os.fstat(file.fileno()).st_size else b""
    return {
        name: numpy.ndarray(shape, numpy.dtype(kind), memory, place)
        for name, (kind, shape, place) in shared.arrays.items()
    }
