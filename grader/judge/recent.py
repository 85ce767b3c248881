"""What was asked for last, kept within a limit: a few values that are dear to work out, shared by threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _one(value: object) -> int:
    return 1


class Recent(Generic[K, V]):
    """At most ``limit`` of what ``cost`` counts (values, if not said); what was asked for longest ago goes first."""

    def __init__(self, limit: int, cost: Callable[[V], int] = _one) -> None:
        self._limit, self._cost = limit, cost
        self._values: OrderedDict[K, V] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()
        self._making: dict[K, threading.RLock] = {}  # one for each value that a thread makes or waits for

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
        with self._lock:
            making = self._making.setdefault(key, threading.RLock())
        with making:
            known = self.get(key)
            if known is None:
                known = make()
                self.keep(key, known)
        with self._lock:
            self._making.pop(key, None)
        return known
