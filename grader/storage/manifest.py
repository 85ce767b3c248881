"""A finished folder -> its manifest: the size and SHA-256 of each file, and what else must hold before its use.

The manifest is written last. A folder is damaged if it has no manifest, that of another version, or a file that
differs from it. The cause may be a full disk, a power cut or another program.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VERSION = 1
NAME = "manifest.json"
CHUNK_BYTES = 1 << 20


class Damaged(Exception):
    """The folder is not what was written; it is of no use."""


class Hashes:
    """SHA-256 of files, each read once for each state that it is in. For one round of checks, not for long."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], str] = {}
        self.stats: dict[str, str] = {}  # of files that many builds share, and of lists of such files
        self.states: dict[str, str] = {}

    def of(self, path: str | Path) -> tuple[int, str]:
        """(bytes, SHA-256). Raises OSError, also if it is not a regular file or does not end where its size says."""
        return self._of(path, None)

    def same(self, path: str | Path, size: int, digest: str) -> bool:
        """Whether the file has this content. A file of another size is not read."""
        try:
            return self._of(path, size) == (size, digest)
        except OSError:
            return False

    def _of(self, path: str | Path, size: int | None) -> tuple[int, str]:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                raise OSError(f"{path} is not a regular file")
            if size is not None and about.st_size != size:
                return about.st_size, ""
            state = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
            if state not in self._known:
                self._known[state] = _digest(file, about.st_size)
            return about.st_size, self._known[state]
        finally:
            os.close(file)


def _digest(file: int, size: int) -> str:
    digest, rest = hashlib.sha256(), size + 1
    while rest and (chunk := os.read(file, min(rest, CHUNK_BYTES))):
        digest.update(chunk)
        rest -= len(chunk)
    if rest != 1:
        raise OSError("the file's size is not what is in it")
    return digest.hexdigest()


def seal(folder: Path, about: Mapping[str, Any], hashes: Hashes) -> None:
    """Write the manifest of a folder of files. ``about``, for JSON, says what else must hold."""
    files = {path.name: hashes.of(path) for path in sorted(folder.iterdir())}
    body = json.dumps({"version": VERSION, "files": files, "about": about})
    (folder / NAME).write_text(f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}\n")


def about(folder: Path) -> dict[str, Any]:
    """What was sealed with the folder. Raises Damaged; the files are not looked at."""
    return _body(folder)["about"]  # type: ignore[no-any-return]


def check(folder: Path, hashes: Hashes) -> None:
    """Raises Damaged unless each file is as it was when the folder was sealed."""
    for name, (size, digest) in _body(folder)["files"].items():
        if (folder / name).is_symlink() or not hashes.same(folder / name, size, digest):
            raise Damaged(f"{folder / name} is not the file that was written")


def _body(folder: Path) -> dict[str, Any]:
    try:
        digest, body, end = (folder / NAME).read_text().split("\n")
    except (OSError, ValueError) as error:
        raise Damaged(f"{folder} has no manifest: {error}") from None
    if end or digest != hashlib.sha256(body.encode()).hexdigest():
        raise Damaged(f"the manifest of {folder} is not whole")
    read: dict[str, Any] = json.loads(body)
    if read.get("version") != VERSION:
        raise Damaged(f"the manifest of {folder} is of another version")
    return read
