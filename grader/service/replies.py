"""Tasks -> Replies: many files graded in so many slots side by side, none of which can take the others with it.

A slot has a scratch folder, a share of the cores and, where there are several, a GPU. A task whose process dies is
tried once more; one that is over its limit of time is ended with all that it started.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.compile.toolchain import gpu_of_worker
from grader.service.client import Service, ServiceError
from grader.service.task import LIMIT_S, Answer, Slot, Task
from grader.storage import cache

TRIES = 2  # of a task whose process dies


@dataclass(frozen=True)
class Reply:
    """What became of a task: what its work made; or, where there is nothing, ``error``. ``late``: over its time."""

    task: Task
    done: Answer = field(default_factory=dict)
    error: str = ""
    late: bool = False


def replies(tasks: Iterable[Task], root: Path, *, count: int, limit_s: float = LIMIT_S) -> Generator[Reply, None, None]:
    """Have every task done in one of ``count`` slots; a reply as soon as there is one. ``limit_s`` is for each task.

    Leaving the iterator ends all of them. Raises CacheError where there is no room for their scratch folders.
    """
    waiting = iter(tasks)
    with cache.staging(cache.cache_folder()) as scratch, contextlib.closing(_Asked(root)) as asked:
        free = [_slot(index, scratch / str(index), limit_s) for index in range(count)]
        while True:
            while free and (task := next(waiting, None)) is not None:
                asked.give(_Try(task, free.pop(0)))
            if not asked.tries:
                return
            for reply, slot in asked.replies():
                free.append(slot)
                yield reply


def _slot(index: int, folder: Path, limit_s: float) -> Slot:
    return Slot(folder, {"TMPDIR": str(folder), **gpu_of_worker(index)}, limit_s)


@dataclass(frozen=True)
class _Try:
    task: Task
    slot: Slot
    number: int = 1


class _Asked:
    """The tasks that a service is at. A service that dies is replaced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._service: Service | None = None
        self.tries: dict[int, _Try] = {}

    def give(self, attempt: _Try) -> None:
        self._service = self._service or Service(self._root, eager=True)
        threads = {"OMP_NUM_THREADS": str(attempt.task.options.jobs)}
        slot = replace(attempt.slot, environment={**attempt.slot.environment, **threads})
        self.tries[self._service.ask(attempt.task, slot)] = attempt

    def replies(self) -> Iterator[tuple[Reply, Slot]]:
        """Those that have come, each with the slot that is free now; waits for something."""
        assert self._service is not None
        try:
            answers = self._service.answers()
        except ServiceError as error:
            lost, self.tries = self.tries, {}
            self.close()
            for attempt in lost.values():
                yield from self._again(attempt, str(error))
            return
        for answer in answers:
            if "tell" not in answer:
                yield from self._settled(self.tries.pop(answer["id"]), answer)

    def _settled(self, attempt: _Try, answer: Answer) -> Iterator[tuple[Reply, Slot]]:
        if "died" in answer:
            status = answer["died"]
            how = f"signal {-status}" if status < 0 else f"exit code {status}"
            yield from self._again(attempt, f"the grader's own process ended with {how}, {TRIES} times")
        else:
            known = {"done": answer.get("done", {}), "error": answer.get("fault", ""), "late": "late" in answer}
            yield Reply(attempt.task, **known), attempt.slot

    def _again(self, attempt: _Try, error: str) -> Iterator[tuple[Reply, Slot]]:
        if attempt.number < TRIES:
            self.give(replace(attempt, number=attempt.number + 1))
        else:
            yield Reply(attempt.task, error=error), attempt.slot

    def close(self) -> None:
        if self._service is not None:
            self._service.close()
            self._service = None
