"""Work in parts -> their results, in order; while one is waited for, threads are at the next ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class InOrder(Generic[T]):
    """``at_a_time`` parts are worked at: the one that is asked for, and those after it. With one, there is no thread.

    Threads of parts that nothing asks for end with the process.
    """

    def __init__(self, parts: Sequence[Callable[[], T]], at_a_time: int) -> None:
        self._parts, self._at_a_time = parts, at_a_time
        self._begun: dict[int, Future[T]] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[T]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> T:
        """What the part gives or raises. Parts are asked for in order; some may be left out."""
        if number >= len(self._parts):
            raise IndexError(number)
        if self._at_a_time < 2:
            return self._parts[number]()
        for each in range(number, min(number + self._at_a_time, len(self._parts))):
            if each not in self._begun:
                self._begun[each] = Future()
                arguments = (self._parts[each], self._begun[each])
                threading.Thread(target=_work, args=arguments, daemon=True).start()
        return self._begun.pop(number).result()


def _work(part: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(part())
    except BaseException as error:
        future.set_exception(error)
