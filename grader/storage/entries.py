"""Finished folders -> entries of the cache: kept as a whole, checked before each use, removed where they are damaged.

An entry has a place, such as builds/KEY, and in it a folder of its own that never changes. So a process may
make the same entry again while another one uses a first copy; and one place may have several, each for other
conditions.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.storage import cache, manifest
from grader.storage.manifest import Damaged, Hashes

FEW = 8  # files that are synced one by one; for more, the whole file system is synced
_count = itertools.count()


@dataclass(frozen=True)
class Made:
    """A finished folder inside a staging folder of the cache, and the place of the entry that it is to be.

    ``about`` says what must hold for the entry to be used. None: that cannot be said, so it is used by this process
    alone.
    """

    folder: Path
    place: Path
    about: Mapping[str, Any] | None = field(default_factory=dict)


def name_of(parts: Iterable[bytes]) -> str:
    """The name of an entry that is made of these: 32 hexadecimal digits."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]


def find(place: Path, hashes: Hashes, *, holds: Callable[[dict[str, Any]], bool] = lambda _: True) -> Path | None:
    """The newest whole folder of an entry, for which ``holds`` is true of what it was kept with.

    Damaged ones are removed."""
    try:
        names = sorted(os.listdir(place), reverse=True)
    except (NotADirectoryError, PermissionError):
        discard(place)
        return None
    except OSError:
        return None
    for name in names:
        folder = place / name
        try:
            if holds(manifest.about(folder)):
                manifest.check(folder, hashes)
                return folder
        except Damaged:
            discard(folder)
    return None


def keep(made: Sequence[Made], hashes: Hashes) -> list[Path]:
    """Make entries of finished folders: on the disk before they are seen. Returns where each is now.

    If the place cannot be written, the folder belongs to this process alone.
    """
    for one in made:
        manifest.seal(one.folder, one.about or {}, hashes)
    lasting = [one for one in made if one.about is not None]
    _to_disk([path for one in lasting for path in one.folder.iterdir()])
    places = [_publish(one) if one.about is not None else _lend(one.folder) for one in made]
    _to_disk(sorted({one.place for one in lasting if one.place.is_dir()}))
    return places


def discard(path: Path) -> None:
    """Remove a folder or what is in its place, as far as possible."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)  # one that may not be read cannot be removed
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _publish(one: Made) -> Path:
    target = one.place / f"{time.time_ns():016x}-{os.getpid()}-{next(_count)}"
    for retry in (False, True):
        try:
            one.place.mkdir(parents=True, exist_ok=True)
            one.folder.rename(target)
            return target
        except (FileExistsError, NotADirectoryError, PermissionError):
            if retry:
                break
            for path in (one.place.parent, one.place):
                _make_writable(path)
    return _lend(one.folder)


def _make_writable(folder: Path) -> None:
    """A file in its place is removed; a folder keeps what is in it."""
    if folder.is_dir():
        with contextlib.suppress(OSError):
            folder.chmod(folder.stat().st_mode | 0o700)
    else:
        discard(folder)


def _lend(folder: Path) -> Path:
    """Put a folder where it stays until this process has ended: the next to use the cache sweeps it away."""
    staging = next(parent for parent in folder.parents if parent.name == cache.STAGING)
    target = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=staging)) / folder.name
    folder.rename(target)
    return target


def _to_disk(paths: Sequence[Path]) -> None:
    """What is in these files and folders outlasts a power cut. What does not is noticed when it is to be used."""
    sync: Callable[[int], Any] = os.fsync
    if len(paths) > FEW and hasattr(_LIBC, "syncfs"):
        paths, sync = paths[:1], _LIBC.syncfs
    for path in paths:
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync(file)
            finally:
                os.close(file)


_LIBC = ctypes.CDLL(None)
