"""Jobs that may share a run of nvcc -> a build of each; and those that are still to be compiled each by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.compile import ninja, unit
from grader.compile.build_store import Builds, Compiled
from grader.compile.compilation import (
    INCLUDE,
    TEMPLATES_LIMIT_S,
    Job,
    exported_names,
    kept,
    not_allowed,
    nvcc_command,
    run,
    too_much_shared,
)
from grader.compile.dependencies import Run, gather
from grader.compile.nvcc_log import SOURCE
from grader.compile.request import NAME, TAG, Target, Tell
from grader.compile.unit import Member
from grader.devices import SIM_ARCH
from grader.storage import cache, manifest

# So long must the texts be, all together, that need only their kernels compiled. A run of nvcc of their own reads the
# headers once more for the device, 0.4 s of computing; cudafe++ and g++ would need 2 to 3 s for each MB of these texts.
LEAST_BYTES = 150_000
NEWEST = Target("sim", SIM_ARCH)


@dataclass(frozen=True)
class _Unit:
    """Members of a unit, with the jobs of each: two where warnings are errors in one build of the same file.

    ``library_of``: the job from which each member has its library; none: the unit makes a library for all. That job is
    of another unit of the same round.
    """

    members: Mapping[Member, Sequence[Job]]
    library_of: Mapping[Member, Job] = field(default_factory=dict)

    @property
    def jobs(self) -> Iterator[tuple[Member, Job]]:
        return ((member, job) for member, jobs in self.members.items() for job in jobs)

    @property
    def bytes_to_compile(self) -> int:
        return sum(len(member.text) for member in self.members)

    @property
    def first(self) -> Job:
        return next(iter(self.members.values()))[0]

    @property
    def target(self) -> Target:
        return self.first.request.target


def compile_together(
    jobs: Sequence[Job], builds: Builds, parallel: int, tell: Tell | None, release: Callable[[str], None]
) -> list[Job]:
    """Compile the jobs that may be, several at a time. Returns those that are still to be compiled each by itself:
    the others, and the files of a unit that does not compile, or in which something is refused."""
    alone = {job.key: job for job in jobs}
    shared = [job for job in jobs if job.request.together]
    while shared:
        again: list[Job] = []
        with cache.staging(builds.folder) as stage:
            units = sorted(_units(shared, parallel), key=_order)
            waiting = {stage / f"unit-{number}": one for number, one in enumerate(units)}
            for place, one in waiting.items():
                place.mkdir()
                unit.write(list(one.members), place)
            steps = [_unit_step(one, place) for place, one in waiting.items()]

            def collect(waiting: dict[Path, _Unit] = waiting, again: list[Job] = again) -> None:
                for place in [place for place in waiting if ninja.status(place) is not None]:
                    if _waits(waiting[place], waiting.values()):
                        continue
                    one = waiting.pop(place)
                    for key in _take_apart(one, place, builds):
                        del alone[key]
                        release(key)
                    again += _once_more(one, place, builds)

            run(steps, stage, parallel, tell, collect)
        shared = again
    return list(alone.values())


def _order(one: _Unit) -> tuple[bool, int]:
    """Those that make libraries first; of these, and of the others, the largest first."""
    return bool(one.library_of), -one.bytes_to_compile


def _waits(one: _Unit, others: Collection[_Unit]) -> bool:
    """Whether a library that the unit's members are to have is still being made."""
    to_come = {job.key for other in others if not other.library_of for _, job in other.jobs}
    return any(job.key in to_come for job in one.library_of.values())


def _once_more(one: _Unit, place: Path, builds: Builds) -> list[Job]:
    """The files of a failed unit that no error of nvcc names, none if the errors name no file; and those of a unit for
    which there is no library."""
    if ninja.status(place) == 0:
        return [job for member, job in one.jobs if one.library_of and not builds.find(one.library_of[member])]
    blamed = unit.blamed(_log(place), place)
    return [job for member, job in one.jobs if blamed and member.tag not in blamed]


def _log(place: Path) -> str:
    return (place / "log.txt").read_text(errors="replace")


def _units(jobs: Sequence[Job], parallel: int) -> Iterator[_Unit]:
    """The same flags, the same architecture and the same libraries in each unit; ``parallel`` units, or more, where
    there are enough files."""
    groups: dict[tuple[object, ...], dict[Member, list[Job]]] = {}
    for job in jobs:
        key = (job.command, job.request.target, job.request.kata.libraries)
        groups.setdefault(key, {}).setdefault(job.member, []).append(job)
    newest = {job.member: job for job in jobs if job.request.target == NEWEST and job.request.warnings_are_errors}
    parts = [part for group in groups.values() for part in _divided(group, newest) if part.members]
    at_least = -(-parallel // len(parts)) if parts else 1
    for part in parts:
        for chunk in unit.chunks(list(part.members), at_least):
            theirs = {member: part.library_of[member] for member in chunk} if part.library_of else {}
            yield _Unit({member: part.members[member] for member in chunk}, theirs)


def _divided(group: Mapping[Member, Sequence[Job]], newest: Mapping[Member, Job]) -> Iterator[_Unit]:
    """The members that get a library, and those that have the library of another job: of the same file for the newest
    card, or of a file with the same launcher for the same card. A file for a GPU has its kernels' machine code in its
    library, and so one of its own.

    Whether a file includes what it needs is shown by the build for the newest card, for each file in which warnings are
    errors: only files with just its includes share its unit.
    """
    target = next(iter(group.values()))[0].request.target
    library_of: Mapping[Member, Job] = {}
    if target == NEWEST:
        library_of = _of_the_same_launcher(group)
    elif target.device == NEWEST.device:
        library_of = {member: newest[member] for member in group if member in newest}
    exact = {member.includes for member, jobs in group.items() if target == NEWEST and _is_strict(jobs)}
    makers: dict[tuple[str, ...], dict[Member, Sequence[Job]]] = {}
    for member in (member for member in group if member not in library_of):
        includes = member.includes
        makers.setdefault(includes if includes in exact else (), {})[member] = group[member]
    yield from map(_Unit, makers.values())
    yield _Unit({member: group[member] for member in library_of}, library_of)


def _of_the_same_launcher(group: Mapping[Member, Sequence[Job]]) -> Mapping[Member, Job]:
    """From which job each member has its library that needs none of its own; none, where these are few.

    Where warnings are errors, a file is always compiled as a whole: for its kernels, too, cudafe++ and g++ then have
    nothing to say. So is a file with a name that the file of the library has not: what declares it may be in a header
    that only other files of the unit include.
    """
    first: dict[tuple[str, str, str], tuple[set[str], Job]] = {}
    library_of: dict[Member, Job] = {}
    for member, jobs in sorted(group.items(), key=lambda item: not _is_strict(item[1])):
        words = member.words
        known, maker = first.setdefault(member.host, (words, jobs[0]))
        if maker is not jobs[0] and not _is_strict(jobs) and words <= known:
            library_of[member] = maker
    return library_of if sum(len(member.text) for member in library_of) >= LEAST_BYTES else {}


def _is_strict(jobs: Sequence[Job]) -> bool:
    return any(job.request.warnings_are_errors for job in jobs)


def _unit_step(one: _Unit, place: Path) -> ninja.Step:
    nvcc = nvcc_command(one.first, limit_s=TEMPLATES_LIMIT_S, library=not one.library_of)
    command = [*nvcc, *unit.FLAGS, "-include", "cuda_runtime.h", SOURCE]
    names = sorted({member.launcher for member in one.members})
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    what = f"{len(one.members)} files, {shown}, {'kernels only, ' if one.library_of else ''}for {one.target}"
    return ninja.Step(place, tuple(command), what, TEMPLATES_LIMIT_S)


def _take_apart(one: _Unit, place: Path, builds: Builds) -> list[str]:
    """Put a build of each member into the cache; the keys of those that there are now. None of a unit that reads what
    is not there for every file: each is compiled by itself, where that is known of it alone."""
    if ninja.status(place) != 0 or (not one.library_of and not_allowed(one.first, place)):
        return []
    own = {SOURCE, *(f"{member.tag}/{SOURCE}" for member in one.members)}
    read = gather(Run(place, own, b"", None, None, INCLUDE, one.first.system), builds.hashes)
    if read is None or read["files"]:
        return []
    pieces = unit.pieces_of((place / f"{NAME}.ptx").read_text(errors="replace"))
    if one.library_of:
        parts = _of_other_libraries(one, _log(place), pieces, read, builds)
    else:
        parts = _of_own_library(one, place, pieces)
    compiled = [Compiled(part.job, made, read) for part in parts if (made := _laid_out(part, place))]
    builds.keep(compiled)
    return [item.job.key for item in compiled]


@dataclass(frozen=True)
class _Part:
    """What is a member's own of what nvcc made, and the library that launches its kernels: as those of ``tag``."""

    job: Job
    ptx: str
    library: Path
    tag: str


def _of_own_library(one: _Unit, place: Path, pieces: Sequence[tuple[set[str], str]]) -> Iterator[_Part]:
    """All members but those without a launcher, or with a warning where that is an error."""
    library = place / f"{NAME}.so"
    exported, warned = set(exported_names(library)), unit.warned(_log(place))
    for member, job in one.jobs:
        if unit.launcher_in(member.tag, member.launcher) not in exported:
            continue
        if _has_a_warning_too_many(member, job, warned):
            continue
        yield _Part(job, unit.ptx_of(member.tag, pieces), library, member.tag)


def _has_a_warning_too_many(member: Member, job: Job, warned: Collection[str]) -> bool:
    return job.request.warnings_are_errors and not {member.tag, ""}.isdisjoint(warned)


def _of_other_libraries(
    one: _Unit, log: str, pieces: Sequence[tuple[set[str], str]], read: Mapping[str, Any], builds: Builds
) -> Iterator[_Part]:
    """All members for which there is a library, made from the same headers, that launches just their kernels; but none
    with a warning where that is an error."""
    wanted = {job.key: job for job in one.library_of.values()}
    libraries = {key: _Library.of(folder) for key, job in wanted.items() if (folder := builds.find(job))}
    headers, warned = _headers(read), unit.warned(log)
    for member, job in one.jobs:
        library = libraries.get(one.library_of[member].key)
        if library is None or (one.target == NEWEST and not library.headers <= headers):
            continue
        if _has_a_warning_too_many(member, job, warned):
            continue
        ptx = unit.renamed(unit.ptx_of(member.tag, pieces), member.tag, library.tag)
        if unit.kernels_of(ptx) == library.kernels:
            yield _Part(job, ptx, library.path, library.tag)


@dataclass(frozen=True)
class _Library:
    """That of a build: made from these headers, with the launcher and the kernels of the file of ``tag``."""

    path: Path
    tag: str
    kernels: set[str]
    headers: set[str]

    @staticmethod
    def of(folder: Path) -> _Library:
        kernels = unit.kernels_of((folder / f"{NAME}.ptx").read_text(errors="replace"))
        return _Library(folder / f"{NAME}.so", (folder / TAG).read_text(), kernels, _headers(manifest.about(folder)))


def _headers(read: Mapping[str, Any]) -> set[str]:
    """The system's, and the grader's: a build of a unit has read no others."""
    return {*read["system"].split("\n"), *read["names"].split("\n")}


def _laid_out(part: _Part, place: Path) -> Path | None:
    """The folder of the build; None where a simulated card would refuse it."""
    job, made = part.job, place / part.job.key
    made.mkdir()
    (made / f"{NAME}.ptx").write_text(part.ptx)
    if job.request.target.device == "sim" and too_much_shared(job, made):
        return None
    (made / SOURCE).write_bytes(job.text)
    (made / TAG).write_text(part.tag)
    os.link(part.library, made / f"{NAME}.so")
    for file in kept(job.request.target) - {f"{NAME}.ptx", f"{NAME}.so", SOURCE}:
        os.link(place / file, made / file)
    return made
