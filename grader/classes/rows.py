"""Rows of results <-> a file of JSON lines that a run which was stopped goes on with.

A row is on disk before the next one is asked for. What a killed run or a full disk left half written is cut off when
the file is opened again. One process writes a file at a time.

While a row is being graded, its key stands in a file beside, .begun: what a killed run was at is known by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grader.fault import Fault
from grader.storage.whole_file import write_whole

Row = Mapping[str, Any]
_BEGIN = b'{"submission": '  # a row's first bytes
KEY = "key"  # of a row: what its grade depends on; the same key is the same grade


class ResultsError(Fault):
    """The file of results cannot be used; the message says why and what to do."""


class Results:
    """An open file of rows. ``kept`` has the row of every key, without what is long; ``ended`` how many runs ended,
    one after the other and without a word, while they were at the row of a key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[str, Row] = {}
        self.ended: dict[str, int] = {}
        self._begun: set[str] = set()
        self._beside = path.with_name(f"{path.name}.begun")
        try:
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise self._refused(error) from None
        try:
            self._lock()
            self._end = self._read()
            self._file.truncate(self._end)
            self.ended = _counts(self._beside)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ResultsError):
            self._begun.clear()
            self._note()
        self._file.close()

    def begin(self, key: str) -> None:
        """Note that a row is being graded. Raises ResultsError where that cannot be written."""
        self._begun.add(key)
        self._note()

    def end(self, key: str) -> None:
        """Its grading is over, with a verdict or without. Raises ResultsError as begin does."""
        self._begun.discard(key)
        self.ended.pop(key, None)
        self._note()

    def _note(self) -> None:
        """Write what another run is to know if this one gets no further."""
        known = {**self.ended, **{key: self.ended.get(key, 0) + 1 for key in self._begun}}
        try:
            if known:
                write_whole(self._beside, json.dumps(known))
            else:
                self._beside.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from None

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(f"{self.path}: another run writes to it. Wait for that one, or name another.") from None
        except OSError:  # a file system without locks
            return

    def _read(self) -> int:
        """Take in what is there. Returns where the last whole row ends. Raises ResultsError for other files."""
        end = 0
        self._file.seek(0)
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for number, line in enumerate(lines, 1):
                row = _parsed(line) if line.endswith(b"\n") else None
                if row is None and not line.endswith(b"\n") and (end or _BEGIN.startswith(line[: len(_BEGIN)])):
                    break  # half a row
                if row is None:
                    raise ResultsError(
                        f"{self.path}:{number} is not a line of results; nothing was written to it. Name another file."
                    )
                end += len(line)
                self.kept[row[KEY]] = brief(row)
        return end

    def add(self, row: Row) -> None:
        """Write a row, and wait until the disk has it. Raises ResultsError where it cannot be written."""
        line = json.dumps(row).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            raise self._refused(error) from None
        self._end += len(line)
        self.kept[row[KEY]] = brief(row)

    def _refused(self, error: OSError) -> ResultsError:
        return ResultsError(
            f"{self.path} cannot be written ({error.strerror}). Fix that, or name another file; what is in it stays."
        )


def brief(row: Row) -> Row:
    """What a summary needs of a row."""
    return {name: row.get(name) for name in ("submission", "kata", "file", "passed", "verdict", "summary")}


def _counts(place: Path) -> dict[str, int]:
    """Key -> number; nothing where it cannot be read, which costs no row."""
    try:
        found = json.loads(place.read_text())
    except (OSError, ValueError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {key: number for key, number in pairs if isinstance(number, int)}


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get(KEY), str) else None
