"""Answers of timed calls -> worked out by processes of their own, several at the same time.

So many threads would wait for one interpreter, and what is built, checked and timed meanwhile would wait with them. A
helper draws the contents itself: only a few rows of the answer come back.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from grader.content.catalog import Kata
from grader.judge.case import Expected
from grader.system.processes import grader_environment


class HelperGone(Exception):
    """It has ended, or could not do it."""


@dataclass(frozen=True)
class Question:
    """Which answer is wanted: to the call that is the nth judged one of a timing run with this secret."""

    kata: Kata
    sizes: Mapping[str, int]
    secret: int
    call: int
    nth: int


class Helpers:
    """So many processes, each of which answers one question at a time. They end when this is closed."""

    def __init__(self, count: int) -> None:
        self._processes = [_begun() for _ in range(count)]
        self._locks = [threading.Lock() for _ in range(count)]

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for process in self._processes:
            process.wait()

    def close(self) -> None:
        """Another thread's question is then not answered."""
        for process in self._processes:
            process.kill()

    def answer(self, question: Question, place: int) -> tuple[Expected, ...]:
        """What the helper at this place answers: the same one for the same contents, which it draws once. Raises
        HelperGone."""
        place %= len(self._processes)
        process = self._processes[place]
        assert process.stdin is not None and process.stdout is not None
        with self._locks[place]:
            try:
                pickle.dump(question, process.stdin)
                process.stdin.flush()
                answer: tuple[Expected, ...] = pickle.load(process.stdout)
            except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
                raise HelperGone(str(error)) from None
        return answer


def _begun() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "grader.judge.helper", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=grader_environment(),
    )
