"""The process that works out answers on shapes that are timed, one question after the other: see helpers.py."""

from __future__ import annotations

import os
import pickle
import sys

from grader.content.formulas import one_by_one
from grader.content.spec import load_spec
from grader.judge.case import Case, Expected
from grader.judge.helpers import Question, read
from grader.system.blas import spare_threads
from grader.system.processes import end_with_parent, keep_memory

NICE = 10  # nvcc, the checks and what is timed come first


def serve(parent: int) -> None:
    """Answer until the one that asks is gone."""
    end_with_parent()
    if os.getppid() != parent:
        return
    os.nice(NICE)
    spare_threads()
    keep_memory()
    with os.fdopen(os.dup(1), "wb") as said, one_by_one():
        os.dup2(2, 1)  # for what a spec prints
        while True:
            try:
                question = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            pickle.dump(answer_to(question), said, protocol=pickle.HIGHEST_PROTOCOL)
            said.flush()


def answer_to(question: Question) -> tuple[Expected, ...]:
    kata, rows = question.kata, question.rows
    case = Case(kata, load_spec(kata), question.shape, read(question.inputs))
    case = case.in_call(*question.call) if question.call else case
    return case.expected if rows is None else case.part(rows).expected


if __name__ == "__main__":
    serve(int(sys.argv[1]))
