"""Who may do what that only one process at a time may do: make a build, time a kernel on a GPU.

Every lock is one of the operating system's on an open file, so a process that dies leaves no lock.
Without locks in the file system, work may be done twice, or timed next to other work, and that is noticed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from grader.storage import cache

POLL_S = 0.05


class BuildLocks:
    """Entries of the cache that this process is making. One file for all of them: an entry is a byte of it."""

    def __init__(self, folder: Path) -> None:
        self._file = _open(folder / "claims.lock")

    def __enter__(self) -> BuildLocks:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def take(self, key: str) -> bool:
        """Whether the entry is now this process's to make; False where another is at it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            return True
        return True

    def release(self, key: str) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(key))

    def wait(self, key: str, *, until: Callable[[], bool], limit_s: float) -> None:
        """Return when the entry is ours to make, or made, or the other takes too long: it may be stopped, or busy."""
        stop = time.monotonic() + limit_s
        while not until() and not self.take(key) and time.monotonic() < stop:
            time.sleep(POLL_S)


def _place(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:7], "big")


class GpuTurn:
    """The use of a GPU by one process, or by one thread of it: beside others, or alone. It begins with neither."""

    def __init__(self, door: int | None = None, room: int | None = None, tell: Callable[[str], None] | None = None):
        self._door, self._room, self._tell = door, room, tell
        self._shares = False

    def share(self) -> None:
        """Use the GPU beside others. Waits while one uses it alone, or waits for that."""
        self._enter(fcntl.LOCK_SH)
        self._shares = True

    def alone(self, leave: Callable[[], None]) -> None:
        """Use it while no other user does. Where that is not yet so, ``leave`` ends what this user still has on it."""
        if self._shares and _taken(self._door):
            if not _taken(self._room):  # and what was shared is lost
                leave()
                _lock(self._room, fcntl.LOCK_EX, self._tell)
            _lock(self._door, fcntl.LOCK_UN, None)
            return
        if self._shares:
            leave()
            _lock(self._room, fcntl.LOCK_UN, None)
        self._enter(fcntl.LOCK_EX)

    def _enter(self, how: int) -> None:
        # Who waits for the room holds the door, so that those that only join others do not overtake.
        _lock(self._door, fcntl.LOCK_EX, self._tell)
        _lock(self._room, how, self._tell)
        _lock(self._door, fcntl.LOCK_UN, None)


@contextlib.contextmanager
def gpu_turn(folder: Path, gpu: str, *, tell: Callable[[str], None] | None = None) -> Iterator[GpuTurn]:
    """The use of a GPU, given back at the end of the block.

    ``gpu`` is any name that is the GPU's own. ``tell`` hears of a wait before it begins.
    """
    name = f"gpu-{hashlib.sha256(gpu.encode()).hexdigest()[:8]}"
    with _opened(folder / f"{name}.door.lock") as door, _opened(folder / f"{name}.lock") as room:
        yield GpuTurn(door, room, tell)


def _taken(file: int | None) -> bool:
    """Whether the lock is now held, and no other file holds it."""
    if file is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _lock(file: int | None, how: int, tell: Callable[[str], None] | None) -> None:
    if file is None:
        return
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        if tell is not None:
            tell("waiting for the GPU: another process of the grader uses it")
        fcntl.flock(file, how)
    except OSError:
        return


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """The open file; None where there can be none, in a cache that is only for reading."""
    try:
        file = _open(path)
    except cache.CacheError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise cache.explain(error, path.parent) from error
