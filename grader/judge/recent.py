"""What was asked for last, kept within a limit: a few values that are dear to work out, shared by threads."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _one(value: object) -> int:
    return 1


def once(make: Callable[[], V]) -> Callable[[], V]:
    """What it makes, made when it is first asked for: also where threads ask at a time, of which functools.cache would
    let each make its own."""
    lock, made = threading.Lock(), list[V]()

    @functools.wraps(make)
    def get() -> V:
        with lock:
            if not made:
                made.append(make())
        return made[0]

    return get


class Recent(Generic[K, V]):
    """At most ``limit`` of what ``cost`` counts (values, if not said); what was asked for longest ago goes first."""

    def __init__(self, limit: int, cost: Callable[[V], int] = _one) -> None:
        self._limit, self._cost = limit, cost
        self._values: OrderedDict[K, V] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()
        self._making: OneAtATime[K] = OneAtATime()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        with self._lock:
            if key in self._values:
                self._held -= self._cost(self._values.pop(key))
            self._values[key] = value
            self._held += self._cost(value)
            while self._held > self._limit:
                self._held -= self._cost(self._values.popitem(last=False)[1])

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Made once, also where two threads ask at a time; those who ask for other keys do not wait."""
        with self._making.of(key):
            known = self.get(key)
            if known is None:
                known = make()
                self.keep(key, known)
        return known


class OneAtATime(Generic[K]):
    """Who works on a value keeps others from the same work, and not from that on values of other keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: dict[K, tuple[threading.RLock, int]] = {}  # and how many threads have it or wait for it

    @contextlib.contextmanager
    def of(self, key: K) -> Iterator[None]:
        """A thread may come again while it is at work."""
        with self._lock:
            working, count = self._at_work.get(key, (threading.RLock(), 0))
            self._at_work[key] = working, count + 1
        try:
            with working:
                yield
        finally:
            with self._lock:
                working, count = self._at_work.pop(key)
                if count > 1:
                    self._at_work[key] = working, count - 1
