"""Submitted folders and archives -> Entries: for each kata the one file to grade, or the message instead.

Nothing is followed out of a folder, neither a symbolic link nor an #include by name, and nothing is written into one.
What a file includes in a way that only a compiler can follow is for the build to refuse.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import itertools
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.classes.archives import ArchiveError, Problem, suffix_of, unpack
from grader.content.catalog import Catalog
from grader.content.source_file import read_source
from grader.fault import Fault
from grader.output.terminal import plain
from grader.storage.manifest import Hashes
from grader.verdict import Kind

MOST_FILES = 10_000  # that a submission may have; what comes after is not looked at
CLASS = 32  # submissions' worth of bytes and files that one archive of a whole class may have

# What stands in a verdict's place where there is none.
UNKNOWN, TWICE, MISSING, NOT_GRADED = "unknown name", "given twice", "missing", "not graded"


# Canvas downloads a class as NAME_USER_SUBMISSION_FILE, with LATE after the name of a late one; Moodle makes a folder
# NAME_PARTICIPANT_assignsubmission_file for each student, and one more for what was typed in.
_CANVAS = re.compile(r"(?P<who>.+?)(?:_LATE)?_(?P<id>\d+)_\d+_(?P<file>.+)", re.DOTALL)
_MOODLE = re.compile(r"(?P<who>.+)_(?P<id>\d+)_assignsubmission_(?P<how>\w+)", re.DOTALL)
_AGAIN = re.compile(r"(?<=.)-\d+(?=\.cu$)")  # Canvas' mark of a file that was handed in again: name-1.cu

_PACKED = "it is an archive next to .cu files, or in an archive; hand in one archive, or the files"


class SubmissionError(Fault):
    """A folder that was named is none, an archive cannot be unpacked, or there is no room; the message says which."""


@contextlib.contextmanager
def _making_room(what: str) -> Iterator[None]:
    """Around what writes into the temporary folder. Raises SubmissionError where the machine refuses."""
    try:
        yield
    except OSError as error:
        raise SubmissionError(
            f"{what} in the folder for temporary files ({error.strerror}). Make room there, or set TMPDIR to another "
            "folder."
        ) from None


@dataclass(frozen=True)
class Submission:
    """``person`` is the student's name and ``id`` their number, where a learning platform put these into the name of
    what it let download; else the name of the submission, and nothing. ``problems`` are of its archives."""

    name: str
    folder: Path
    person: str = ""
    id: str = ""
    problems: tuple[Problem, ...] = ()


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


@dataclass
class Shelf:
    """A folder for what is unpacked; leaving it deletes all of that."""

    _folder: tempfile.TemporaryDirectory[str] | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def place(self) -> Path:
        """A new folder. Raises SubmissionError where there can be none."""
        with _making_room("no folder can be made"):
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="kata-handed-in-", ignore_cleanup_errors=True)
            place = Path(self._folder.name, str(next(self._numbers)))
            place.mkdir()
            return place

    def unpack(self, archive: Path, into: Path, *, times: int = 1) -> list[Problem]:
        """What stayed packed of an archive. Raises ArchiveError as `unpack`, and SubmissionError for a full disk."""
        with _making_room(f"{plain(str(archive))} cannot be unpacked"):
            into.mkdir(exist_ok=True)
            return unpack(archive, into, times=times)


def find_submissions(named: Sequence[Path], parent: Path | None, shelf: Shelf) -> list[Submission]:
    """What was named, and what is in ``parent``, by name: folders, archives, and files as Canvas names them.

    Archives are unpacked on the shelf; ``parent`` may be one. Raises SubmissionError for what cannot be a submission.
    """
    for place in named:
        if not place.is_dir() and not (place.is_file() and suffix_of(place.name)):
            raise SubmissionError(
                f"{plain(str(place))} is not a folder or an archive; a submission is one of .cu files."
            )
    extra, below, loose = _below(parent, shelf) if parent else ([], [], [])
    places = list(dict.fromkeys(Path(os.path.abspath(place)) for place in (*named, *below)))
    if not places and not loose and not extra:
        raise SubmissionError(
            f"{plain(str(parent))} has no folder and no archive in it; each of them there is one submission."
        )
    short = [_short(place) for place in places]
    names = [str(place) if short.count(name) > 1 else name for place, name in zip(places, short, strict=True)]
    found = [_opened(name, place, shelf) for name, place in zip(names, places, strict=True)]
    return [*found, *_of_canvas(loose, shelf), *extra]


def _short(place: Path) -> str:
    end = "" if place.is_dir() else suffix_of(place.name)
    return place.name[: len(place.name) - len(end)] or place.name


def _below(parent: Path, shelf: Shelf) -> tuple[list[Submission], list[Path], list[Path]]:
    """What stayed packed of an archive of a class; then its folders and archives; then single files of Canvas'."""
    extra: list[Submission] = []
    home = parent
    if parent.is_file() and suffix_of(parent.name):
        home = shelf.place()
        try:
            problems = shelf.unpack(parent, home, times=CLASS)
            home = _inner(home)
        except ArchiveError as error:
            raise SubmissionError(f"{plain(str(parent))} {error}.") from None
        if problems:
            extra = [Submission(parent.name, shelf.place(), problems=tuple(problems))]
    try:
        inside = sorted(place for place in home.iterdir() if place.name[0] != ".")
    except OSError as error:
        raise SubmissionError(f"{plain(str(parent))} cannot be read ({error.strerror}); name a folder.") from None
    files = [place for place in inside if place.is_file()]
    loose = [place for place in files if _CANVAS.fullmatch(place.name)]
    archives = [place for place in files if suffix_of(place.name) and place not in loose]
    return extra, sorted([*_folders(inside), *archives]), loose


def _inner(home: Path) -> Path:
    """Where the submissions are in an unpacked archive of a class: in its one folder, if that has nothing else."""
    found = list(home.iterdir())
    if len(found) != 1 or not found[0].is_dir() or _MOODLE.fullmatch(found[0].name):
        return home
    is_class = all(place.is_dir() or suffix_of(place.name) for place in found[0].iterdir())
    return found[0] if is_class else home


def _folders(inside: Sequence[Path]) -> Iterator[Path]:
    """The folders that are submissions: not what a student typed in Moodle, where there are files of theirs, too."""
    folders = {place: _MOODLE.fullmatch(place.name) for place in inside if place.is_dir()}
    filed = {found["id"] for found in folders.values() if found and found["how"].startswith("file")}
    for place, found in folders.items():
        if found is None or found["how"].startswith("file") or found["id"] not in filed:
            yield place


def _opened(name: str, place: Path, shelf: Shelf) -> Submission:
    """A submission; unpacked where it is an archive, or a folder with archives and no .cu file."""
    platform = _MOODLE.fullmatch(_short(place))
    person, number = (platform["who"], platform["id"]) if platform else (_short(place), "")
    found = Submission(name, place, person, number)
    if not place.is_dir():
        return _unpacked(found, [place], shelf)
    files = [Path(place, file) for file, problem in _files(place) if not problem]
    archives = [file for file in files if suffix_of(file.name) and _is_inside(file, place)]
    return _unpacked(found, archives, shelf) if archives and len(archives) == len(files) else found


def _unpacked(submission: Submission, archives: Sequence[Path], shelf: Shelf) -> Submission:
    home, problems = shelf.place(), list(submission.problems)
    for number, archive in enumerate(archives):
        into = home if len(archives) == 1 else home / str(number)
        try:
            left = shelf.unpack(archive, into)
        except ArchiveError as error:
            shutil.rmtree(into, ignore_errors=True)  # half of a submission is not graded
            into.mkdir(exist_ok=True)
            problems.append((archive.name, f"it {error}"))
        else:
            problems += [(f"{archive.name}/{name}", f"it {why}") for name, why in left]
    return replace(submission, folder=home, problems=tuple(problems))


def _of_canvas(files: Sequence[Path], shelf: Shelf) -> list[Submission]:
    """One submission for each student of single files in one folder, under the names that the files had."""
    own: dict[tuple[str, str], list[tuple[Path, str]]] = {}  # student -> files, and the names that these have there
    for file in files:
        found = _CANVAS.fullmatch(file.name)
        assert found is not None
        own.setdefault((found["who"], found["id"]), []).append((file, found["file"]))
    submissions = []
    for (who, number), theirs in own.items():
        home = shelf.place()
        problems = _copied(theirs, home)
        name = f"{who}_{number}"
        opened = replace(_opened(name, home, shelf), person=who, id=number)
        submissions.append(replace(opened, problems=(*opened.problems, *problems)))
    return submissions


def _copied(theirs: Sequence[tuple[Path, str]], home: Path) -> list[Problem]:
    """Copy a student's files from Canvas into a folder, without the mark of a file that was handed in again where that
    leaves one file of a name. Returns what cannot be read."""
    short = Counter(_AGAIN.sub("", name) for _, name in theirs)
    problems = []
    for number, (file, name) in enumerate(theirs):
        again = _AGAIN.sub("", name)
        name = again if short[again] == 1 else name
        try:
            place = home / str(number) if (home / name).exists() else home
            place.mkdir(exist_ok=True)
            shutil.copyfile(file, place / name)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                with _making_room(f"{plain(str(file))} cannot be written"):
                    raise
            problems.append((file.name, f"it cannot be read ({error.strerror})"))
    return problems


def entries(submission: Submission, catalog: Catalog, wanted: Sequence[str] = ()) -> list[Entry]:
    """One entry for each kata of the submission, in the catalog's order; then one for each file that cannot be placed.

    With ``wanted``, of those katas alone, and those without a file are entries too.
    """
    found: dict[str, list[str]] = {}
    other = [
        Entry(submission, None, file, verdict=Kind.NOT_ALLOWED.value, summary=why) for file, why in submission.problems
    ]
    for file, problem in _files(submission.folder):
        name = Path(file).stem
        problem = problem or (_PACKED if suffix_of(file) else "")
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
    """(path from the folder, what is wrong with it) of every .cu file and archive, and of every other thing that was
    left out."""
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
            is_own = name.endswith(".cu") or suffix_of(name)
            if is_own and not name.startswith(".") and Path(place, name) not in replaced:
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
