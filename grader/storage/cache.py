"""The folder that builds, the simulator's engine, failed shapes and parsed YAML are kept in: it can all be made again.

Everything is made in a staging folder of its own and renamed into place when it is whole (entries.py), so that
neither Ctrl-C nor a second run at the same time can leave half an entry or a lock behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grader.fault import Fault

STAGING = "staging"


class CacheError(Fault):
    """The cache folder cannot be used; the message says why and what to do."""


def cache_folder() -> Path:
    """$KATA_CACHE, else kata in $XDG_CACHE_HOME, else ~/.cache/kata. Created if it is not there."""
    named = os.environ.get("KATA_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(named).expanduser() if named else Path(base).expanduser() / "kata"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain(error, folder) from error
    return folder.resolve()


def explain(error: OSError, folder: Path) -> CacheError:
    """An operating system's refusal in one sentence with its fix."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = "no space is left on the disk of the cache folder"
        return CacheError(f"{reason} {folder}. Free some, or set KATA_CACHE to a folder with room.")
    return CacheError(
        f"the cache folder {folder} cannot be written ({error.strerror}). Set KATA_CACHE to a folder that can."
    )


@contextlib.contextmanager
def staging(cache: Path) -> Iterator[Path]:
    """A new folder inside the cache, removed at the end in any case. Its name carries the owner's process id."""
    try:
        parent = cache / STAGING
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    except OSError as error:
        raise explain(error, cache) from error
    try:
        yield folder
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise explain(error, cache) from error
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed runs left behind: staging folders whose process is gone."""
    for folder in parent.iterdir():
        pid = folder.name.partition("-")[0]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
