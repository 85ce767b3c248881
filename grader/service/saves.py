"""Files -> the one that was saved last, once its saving is over.

Files are looked at every few milliseconds, not subscribed to: a stat costs microseconds, and works where notifications
do not (network folders, mounts of a container or a virtual machine). Editors save in many ways: in place, by truncating
and writing, by a rename, or by moving the old file away first. What counts is only the content that stands in the end.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.content.source_file import read_source

LOOK_S = 0.03  # between two looks at the file that is worked on
ALL_S = 0.25  # between two looks at all the others
QUIET_S = 0.06  # a file that did not change for so long is saved
GONE_S = 0.5  # so long a file may be missing or empty while it is saved
RACY_S = 1.0  # a file changed so recently may change again without a new time stamp: its content is compared

_Stamp = tuple[int, int, int] | None  # inode, time of the last change in ns, size; None: there is no file


@dataclass(frozen=True)
class Saved:
    """A file with the SHA-256 of its content; an empty digest where there is no file."""

    path: Path
    digest: str


@dataclass
class _Seen:
    stamp: _Stamp
    digest: str


class Saves:
    """``look`` often; it says which file was saved. ``current`` is the file that is worked on."""

    def __init__(self, paths: Iterable[Path], current: Path) -> None:
        self.current = current
        self._seen = {path: _Seen(_stamp(path), _digest(path) if path == current else "") for path in paths}
        self._pending: Path | None = None
        self._changed_at = 0.0
        self._all_at = 0.0

    @property
    def digest(self) -> str:
        """The digest of the current file's content at the last look."""
        return self._seen[self.current].digest

    def add(self, path: Path) -> None:
        """Work on this file from now on."""
        self.current = path
        self._seen[path] = _Seen(_stamp(path), _digest(path))

    def look(self, now: float | None = None) -> Saved | None:
        """The file whose saving is over since the last look, or None. ``now`` is of time.monotonic."""
        now = time.monotonic() if now is None else now
        for path in self._due(now):
            if self._has_changed(path):
                self._pending, self._changed_at = path, now
        if self._pending is None or now - self._changed_at < self._wait_s(self._pending):
            return None
        path, self._pending = self._pending, None
        return Saved(path, self._seen[path].digest)

    def _due(self, now: float) -> list[Path]:
        if now - self._all_at >= ALL_S:
            self._all_at = now
            return list(self._seen)
        return list(dict.fromkeys(path for path in (self.current, self._pending) if path is not None))

    def _has_changed(self, path: Path) -> bool:
        seen, stamp = self._seen[path], _stamp(path)
        if stamp == seen.stamp and not (path == self.current and _is_racy(stamp)):
            return False
        before, seen.stamp = (seen.stamp, seen.digest), stamp
        seen.digest = _digest(path)
        return before != (seen.stamp, seen.digest)

    def _wait_s(self, path: Path) -> float:
        stamp = self._seen[path].stamp
        return QUIET_S if stamp is not None and stamp[2] else GONE_S


def _stamp(path: Path) -> _Stamp:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _is_racy(stamp: _Stamp) -> bool:
    return stamp is not None and abs(time.time() - stamp[1] / 1e9) < RACY_S


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_source(path)).hexdigest()
    except OSError:
        return ""
