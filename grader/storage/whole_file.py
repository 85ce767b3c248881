"""A file and its text -> that file, there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Put the text in the file's place as UTF-8, line ends as they are.

    The old file stays until all of the new text is on disk. Bytes that were read with ``errors="surrogateescape"``
    are written as they were. Raises OSError; then the file is as it was.
    """
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with staged.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    finally:
        with contextlib.suppress(OSError):
            staged.unlink()
