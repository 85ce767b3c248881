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
from grader.content.formulas import one_by_one
from grader.content.spec import load_spec
from grader.judge.case import Expected
from grader.system.blas import spare_threads
from grader.system.processes import end_with_parent, grader_environment

NICE = 10  # nvcc, the checks and what is timed come first


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
        [sys.executable, "-m", "grader.judge.helpers", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=grader_environment(),
    )


def answer_to(question: Question) -> tuple[Expected, ...]:
    from grader.judge.measure import answer_in_rows

    kata = question.kata
    with one_by_one():
        return answer_in_rows(kata, load_spec(kata), question.sizes, question.secret, question.call, question.nth)


def _serve(parent: int) -> None:
    """Answer until there is no one who asks."""
    end_with_parent()
    if os.getppid() != parent:
        return
    os.nice(NICE)
    spare_threads()
    with os.fdopen(os.dup(1), "wb") as said:
        os.dup2(2, 1)  # what a spec prints is no answer
        while True:
            try:
                question = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            pickle.dump(answer_to(question), said, protocol=pickle.HIGHEST_PROTOCOL)
            said.flush()


if __name__ == "__main__":
    from grader.judge import helpers  # whose Question is the one that is asked

    helpers._serve(int(sys.argv[1]))
