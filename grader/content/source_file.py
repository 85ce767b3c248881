"""A learner's file -> its bytes, whatever stands in its place: nothing hangs, and nothing large is read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST_BYTES = 1 << 20  # of a kata's file; the longest solution has a fiftieth of it


def read_source(source: Path) -> bytes:
    """What is in a file. Raises OSError, also for what is no plain file and for one that is too large for a kata's."""
    with open(source, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        if status.st_size > LARGEST_BYTES:
            size = f"it has {status.st_size:,} bytes, and a kata's file at most {LARGEST_BYTES:,}"
            raise OSError(errno.EFBIG, size)
        return file.read()
