"""Submitted folders -> Entries: for each kata the one file to grade, or the message instead.

Nothing is followed out of a folder, neither a symbolic link nor an #include by name, and nothing is written into one.
What a file includes in a way that only a compiler can follow is for the build to refuse.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.content.catalog import Catalog
from grader.content.source_file import read_source
from grader.fault import Fault
from grader.output.terminal import plain
from grader.storage.manifest import Hashes
from grader.verdict import Kind

MOST_FILES = 10_000  # that a submission may have; what comes after is not looked at

# What stands in a verdict's place where there is none.
UNKNOWN, TWICE, MISSING, NOT_GRADED = "unknown name", "given twice", "missing", "not graded"


class SubmissionError(Fault):
    """A folder that was named is none; the message says which."""


@dataclass(frozen=True)
class Submission:
    name: str
    folder: Path


@dataclass(frozen=True)
class Entry:
    """A file to grade as ``kata``; or, where ``verdict`` is not empty, what is the matter instead, and ``summary`` why.

    ``file`` is relative to the submission. ``digest`` is of the file and of all that it includes by name; of the whole
    submission where a macro says what is included, or the file asks what is there.
    """

    submission: Submission
    kata: str | None
    file: str | None
    digest: str = ""
    verdict: str = ""
    summary: str = ""

    @property
    def source(self) -> Path:
        assert self.file is not None
        return self.submission.folder / self.file


def find_submissions(folders: Sequence[Path], parent: Path | None) -> list[Submission]:
    """The folders, and every folder in ``parent``, by name. Raises SubmissionError if one is not a folder."""
    try:
        below = sorted(place for place in parent.iterdir() if place.name[0] != "." and place.is_dir()) if parent else []
    except OSError as error:
        raise SubmissionError(f"{plain(str(parent))} cannot be read ({error.strerror}); name a folder.") from None
    for folder in folders:
        if not folder.is_dir():
            raise SubmissionError(f"{plain(str(folder))} is not a folder; a submission is a folder of .cu files.")
    places = list(dict.fromkeys(Path(os.path.abspath(place)) for place in (*folders, *below)))
    if not places:
        raise SubmissionError(f"{plain(str(parent))} has no folder in it; each folder there is one submission.")
    names = [place.name for place in places]
    return [Submission(str(place) if names.count(place.name) > 1 else place.name, place) for place in places]


def entries(submission: Submission, catalog: Catalog, wanted: Sequence[str] = ()) -> list[Entry]:
    """One entry for each kata of the submission, in the catalog's order; then one for each file that cannot be placed.

    With ``wanted``, of those katas alone, and those without a file are entries too.
    """
    found: dict[str, list[str]] = {}
    other: list[Entry] = []
    for file, problem in _files(submission.folder):
        name = Path(file).stem
        if problem:
            other.append(Entry(submission, None, file, verdict=Kind.NOT_ALLOWED.value, summary=problem))
        elif name in catalog.katas:
            found.setdefault(name, []).append(file)
        else:
            close = difflib.get_close_matches(name, catalog.katas, n=1, cutoff=0.6)
            hint = f"; is it {close[0]}?" if close else "; `kata list` shows them all"
            other.append(Entry(submission, None, file, verdict=UNKNOWN, summary=f"no kata has this name{hint}"))
    chosen = [name for name in catalog.katas if (name in wanted if wanted else name in found)]
    return [_entry(submission, name, sorted(found.get(name, []))) for name in chosen] + other


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """(path from the folder, what is wrong with it) of every .cu file, and of every other thing that was left out."""
    unread: list[OSError] = []
    replaced: set[Path] = set()  # skeletons of katas that were started in work/
    count = 0
    for place, folders, files in os.walk(folder, onerror=unread.append):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        if {"exercises", "solutions"} <= set(folders):  # a whole clone was handed in
            folders[:] = [name for name in folders if name in ("exercises", "work")]
            replaced |= {Path(place, "exercises", *own.parts[-2:]) for own in Path(place, "work").glob("*/*.cu")}
        for name in folders:
            path = os.path.join(place, name)
            if os.path.islink(path) and not _is_inside(path, folder):
                yield os.path.relpath(path, folder), "a symbolic link that leads out of the submission is not followed"
            elif name.endswith(".cu"):
                yield os.path.relpath(path, folder), ""  # its grade says that it cannot be read
        for name in sorted(files):
            count += 1
            if name.endswith(".cu") and not name.startswith(".") and Path(place, name) not in replaced:
                yield os.path.relpath(os.path.join(place, name), folder), ""
        if count > MOST_FILES:
            yield ".", f"it has more than {MOST_FILES} files; the rest were not looked at"
            return
    for error in unread:
        yield os.path.relpath(str(error.filename), folder), f"it cannot be read ({error.strerror})"


def _entry(submission: Submission, kata: str, files: Sequence[str]) -> Entry:
    if not files:
        return Entry(submission, kata, None, verdict=MISSING, summary=f"there is no {kata}.cu")
    no_folders = [file for file in files if not (submission.folder / file).is_dir()]
    inspected = [_inspected(submission, kata, file) for file in no_folders or files]
    if any(entry.verdict for entry in inspected) or len({entry.digest for entry in inspected}) == 1:
        return next((entry for entry in inspected if entry.verdict), inspected[0])
    names = " and ".join(no_folders[:3])
    return Entry(submission, kata, no_folders[0], verdict=TWICE, summary=f"{names} differ; leave the one that counts")


def _inspected(submission: Submission, kata: str, file: str) -> Entry:
    """The entry of one file: whether all of it lies in the submission, and its digest."""
    entry = Entry(submission, kata, file)
    digest = hashlib.sha256()

    def refused(why: str) -> Entry:
        return Entry(submission, kata, file, verdict=Kind.NOT_ALLOWED.value, summary=why)

    if not _is_inside(entry.source, submission.folder):
        return refused("the file is a symbolic link that leads out of the submission")
    pending, seen = [entry.source], set()
    while pending:
        path = pending.pop()
        try:
            text = read_source(path)
        except OSError as error:
            if path == entry.source:  # the grade says why
                return Entry(submission, kata, file, digest=f"unread {error.strerror}")
            return refused(f"includes {_from(path, submission)}, which cannot be read ({error.strerror})")
        digest.update(hashlib.sha256(text).digest())
        names = _included(text)
        if names is None:
            digest.update(_of_all(submission.folder))
        for name, folder in itertools.product(names or (), dict.fromkeys((path.parent, entry.source.parent))):
            other = Path(os.path.normpath(folder / name))
            if other in seen or not os.path.lexists(other):
                continue
            if not _is_inside(other, submission.folder):
                return refused(f"includes {plain(name)}, which is outside the submission")
            seen.add(other)
            pending.append(other)
    return Entry(submission, kata, file, digest=digest.hexdigest())


_GAP = rb"(?:[ \t]|/\*.*?\*/)*"
_DIRECTIVE = rb"(?:#|%:)" + _GAP + rb"(?:include(?:_next)?|import|embed)\b" + _GAP
_INCLUDE = re.compile(_DIRECTIVE + rb'(?:["<]([^">\n]+)[">])?', re.DOTALL)
_OPAQUE = re.compile(rb"__has_include|__has_embed|incbin|\.include\b")


def _included(text: bytes) -> list[str] | None:
    """What a file includes by name, wherever it is found; None where that is not all."""
    text = re.sub(rb"\\\r?\n", b"", text)
    names = _INCLUDE.findall(text)
    if _OPAQUE.search(text) or b"" in names:
        return None
    return [os.fsdecode(name) for name in names]


def _of_all(folder: Path) -> bytes:
    """The names and contents of all files that a submission may have."""
    digest, hashes = hashlib.sha256(), Hashes()
    for file in sorted(itertools.islice(_paths(folder), MOST_FILES)):
        digest.update(os.fsencode(file) + b"\0")
        with contextlib.suppress(OSError):
            digest.update(hashes.of(folder / file)[1].encode())
    return digest.digest()


def _paths(folder: Path) -> Iterator[str]:
    for place, _, files in os.walk(folder):
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in files)


def _from(path: Path, submission: Submission) -> str:
    return plain(os.path.relpath(path, submission.folder))


def _is_inside(path: str | Path, folder: Path) -> bool:
    """Whether a path, all its symbolic links followed, lies in a folder."""
    real, home = os.path.realpath(path), os.path.realpath(folder)
    return real == home or real.startswith(home + os.sep)
