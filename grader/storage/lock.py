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


@contextlib.contextmanager
def gpu_turn(folder: Path, gpu: str, *, alone: bool, tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Use a GPU: beside others, or ``alone`` in order to time something. Waits until that can be.

    ``gpu`` is any name that is the GPU's own. ``tell`` hears of a wait before it begins.
    """
    name = f"gpu-{hashlib.sha256(gpu.encode()).hexdigest()[:8]}"
    with _opened(folder / f"{name}.door.lock") as queue_lock, _opened(folder / f"{name}.lock") as gpu_lock:
        # A process that waits for the room holds the door, so that those that only join others do not overtake.
        _lock(queue_lock, fcntl.LOCK_EX, tell)
        _lock(gpu_lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, tell)
        _lock(queue_lock, fcntl.LOCK_UN, tell)
        yield


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
