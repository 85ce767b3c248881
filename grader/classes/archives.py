"""Archive -> the files in it, in a folder of their own: zip, tar, and tar packed with gzip, bzip2 or xz.

Nothing is written outside the folder. Links, hidden files and devices stay packed. Bytes are counted while they are
unpacked, so what an archive says about its sizes does not matter.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
OTHERS = (".rar", ".7z", ".tar.zst")  # archives that stay packed
MOST_BYTES = 256 << 20  # that an archive may have, packed and unpacked
MOST_FILES = 10_000  # that it may have
MOST_FOLDERS = 32  # around a file
CHUNK = 1 << 16  # bytes
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError)
_XZ_MEMORY = 128 << 20  # bytes; `xz -9` asks for 65 MiB

Problem = tuple[str, str]
"""(path in the archive, why it stayed packed)."""


class ArchiveError(Exception):
    """An archive that is not unpacked; the message is the rest of a sentence that begins with its name."""


@dataclass(frozen=True)
class _Member:
    name: str
    kind: str  # "file", "folder", "link" or "other"
    content: Callable[[], Any]  # an open file of bytes


def suffix_of(name: str) -> str:
    """The suffix that makes a name that of an archive, as it is written; empty for other names."""
    lower = name.lower()
    known = max((end for end in (*SUFFIXES, *OTHERS) if lower.endswith(end)), key=len, default="")
    return name[len(name) - len(known) :] if known else ""


def unpack(archive: Path, into: Path, *, times: int = 1) -> list[Problem]:
    """Write an archive's files below ``into``, an empty folder. Returns what stayed packed, and why.

    ``times`` multiplies what the archive may have. Raises ArchiveError for an archive that is too large, damaged,
    encrypted or of another kind, and OSError where ``into`` cannot hold the files.
    """
    if suffix_of(archive.name).lower() not in SUFFIXES:
        raise ArchiveError("is an archive of another kind; pack it as .zip or .tar.gz")
    if not archive.is_file():
        raise ArchiveError("is not a file")
    room = _Room(MOST_BYTES * times)
    room.take(archive.stat().st_size)
    room = _Room(MOST_BYTES * times)
    problems: list[Problem] = []
    try:
        for count, member in enumerate(_members(archive, MOST_BYTES * times), 1):
            if count > MOST_FILES * times:
                raise ArchiveError(f"has more than {MOST_FILES * times} files and folders")
            problems += [(member.name, why) for why in _written(member, into, room)]
    except OSError as error:
        if error.errno is not None:  # the machine's, not the archive's
            raise
        raise ArchiveError(f"cannot be unpacked ({error})") from None
    except (*_DAMAGED, EOFError, RuntimeError, ValueError) as error:  # RuntimeError: of a newer kind, or too nested
        raise ArchiveError(f"cannot be unpacked ({error or type(error).__name__})") from None
    return problems


class _Room:
    """Bytes that are left."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ArchiveError(f"has more than {self._most >> 20} MiB")


def _written(member: _Member, into: Path, room: _Room) -> Iterator[str]:
    """Write one member. Yields why it stays packed, where that needs a word."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if ".." in parts or member.name.startswith("/") or re.match("[A-Za-z]:", member.name):
        yield "leads out of the archive; it stays packed"
        return
    if not parts or member.kind == "folder" or any(part.startswith((".", "__MACOSX")) for part in parts):
        return
    if member.kind != "file":
        if parts[-1].endswith(".cu"):
            yield f"is a {member.kind if member.kind == 'link' else 'special file'} in the archive; pack the file"
        return
    if len(parts) > MOST_FOLDERS:
        yield f"is in more than {MOST_FOLDERS} folders; it stays packed"
        return
    target = into.joinpath(*parts)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = target.open("xb")
    except FileExistsError:
        yield "is in the archive twice; the first one counts"
        return
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        yield f"cannot be unpacked ({error.strerror})"
        return
    with file, member.content() as content:
        while chunk := content.read(CHUNK):
            room.take(len(chunk))
            file.write(chunk)


def _members(archive: Path, most: int) -> Iterator[_Member]:
    with archive.open("rb") as file:
        head = file.read(6)
    yield from _of_zip(archive) if head.startswith(b"PK") else _of_tar(archive, head, most)


def _of_zip(path: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.flag_bits & 1:
                raise ArchiveError("is encrypted; pack it without a password")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ArchiveError("is packed in an unusual way; pack it as an ordinary .zip")
            name = info.filename.replace("\\", "/")  # as some programs on Windows write it
            is_link = stat.S_ISLNK(info.external_attr >> 16)
            kind = "folder" if name.endswith("/") else "link" if is_link else "file"
            yield _Member(name, kind, partial(archive.open, info))


def _of_tar(path: Path, head: bytes, most: int) -> Iterator[_Member]:
    with path.open("rb") as file, _plain(file, head) as plain:
        stream = cast("IO[bytes]", _Counted(plain, _Room(most)))
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for info in archive:
                is_link = info.issym() or info.islnk()
                kind = "file" if info.isreg() else "folder" if info.isdir() else "link" if is_link else "other"
                yield _Member(info.name, kind, partial(archive.extractfile, info))


@contextmanager
def _plain(file: IO[bytes], head: bytes) -> Iterator[Any]:
    """A file without its compression, which its first bytes name."""
    if head.startswith(b"\x1f\x8b"):
        with gzip.open(file) as plain:
            yield plain
    elif head.startswith(b"BZh"):
        with bz2.open(file) as unpacked:
            yield unpacked
    elif head.startswith(b"\xfd7zXZ\0"):
        yield _Xz(file)
    else:
        yield file


class _Counted(io.RawIOBase):
    """A file that ends with an error when more is read from it than there is room for."""

    def __init__(self, file: Any, room: _Room) -> None:
        self._file, self._room = file, room

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._room.take(len(data))
        return data


class _Xz(io.RawIOBase):
    """An xz file, unpacked with a limit on the memory that it may ask for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._decoder = file, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int = -1) -> bytes:
        while not self._decoder.eof:
            packed = self._file.read(CHUNK) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not packed:
                raise EOFError("it ends too early")
            if data := self._decoder.decompress(packed, max_length=size):
                return data
        return b""
