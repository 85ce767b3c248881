"""Jobs -> their builds in the cache: found only where nvcc would read the same today and every file is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.compile import dependencies
from grader.compile.compilation import Job
from grader.storage import entries
from grader.storage.entries import Made
from grader.storage.manifest import Hashes


@dataclass(frozen=True)
class Compiled:
    """A job's build in a staging folder of the cache. ``read`` is what nvcc read; None where that cannot be said."""

    job: Job
    folder: Path
    read: dict[str, Any] | None


class Builds:
    """The builds of the cache ``folder``, for one round of work: what was found whole is not looked at again in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hashes = Hashes()
        self._found: dict[tuple[str, str], Path] = {}

    def find(self, job: Job) -> Path | None:
        """The folder of a build that is current and whole."""
        if job.identity not in self._found:

            def holds(read: dict[str, Any]) -> bool:
                return dependencies.hold(read, job.beside, self.hashes) and not _is_refused(job, read)

            found = entries.find(self._place(job), self.hashes, holds=holds)
            if found is None:
                return None
            self._found[job.identity] = found
        return self._found[job.identity]

    def keep(self, compiled: Sequence[Compiled]) -> None:
        """Put builds into the cache. One of which it is not known what nvcc read is this process's alone."""
        made = [Made(one.folder, self._place(one.job), one.read) for one in compiled]
        for one, folder in zip(compiled, entries.keep(made, self.hashes), strict=True):
            self._found[one.job.identity] = folder

    def _place(self, job: Job) -> Path:
        return self.folder / "builds" / job.key


def _is_refused(job: Job, read: dict[str, Any]) -> bool:
    """Whether a header may not be read here: the build may be of the same file in another folder, for another kata."""
    if not (files := dependencies.files(read, job.beside)):
        return False
    solutions = (job.request.kata.root / "solutions").resolve()
    within = job.request.within and job.request.within.resolve()
    for path in files:
        folders = path.resolve().parents
        if job.beside not in folders and (solutions in folders or (within is not None and within not in folders)):
            return True
    return False
