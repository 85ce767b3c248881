"""Jobs that may share a run of nvcc -> a build of each; and those that are still to be compiled each by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
from grader.storage import cache


@dataclass(frozen=True)
class _Unit:
    """Members of a unit, with the jobs of each: two where warnings are errors in one build of the same file."""

    members: Mapping[Member, Sequence[Job]]

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
            largest_first = sorted(_units(shared, parallel), key=lambda one: one.bytes_to_compile, reverse=True)
            waiting = {stage / f"unit-{number}": one for number, one in enumerate(largest_first)}
            for place, one in waiting.items():
                place.mkdir()
                unit.write(list(one.members), place)
            steps = [_unit_step(one, place) for place, one in waiting.items()]

            def collect(waiting: dict[Path, _Unit] = waiting, again: list[Job] = again) -> None:
                for place in [place for place in waiting if ninja.status(place) is not None]:
                    one = waiting.pop(place)
                    for key in _take_apart(one, place, builds):
                        del alone[key]
                        release(key)
                    again += _not_blamed(one, place)

            run(steps, stage, parallel, tell, collect)
        shared = again
    return list(alone.values())


def _not_blamed(one: _Unit, place: Path) -> list[Job]:
    """The files of a failed unit that no error of nvcc names; none if the errors name no file."""
    if ninja.status(place) == 0:
        return []
    blamed = unit.blamed(_log(place), place)
    return [job for member, job in one.jobs if blamed and member.tag not in blamed]


def _log(place: Path) -> str:
    return (place / "log.txt").read_text(errors="replace")


def _units(jobs: Sequence[Job], parallel: int) -> Iterator[_Unit]:
    """The same flags, the same architecture, the same libraries and the same includes in each unit; ``parallel``
    units, or more, where there are enough files.

    The build for SIM_ARCH shows whether a file includes what it needs. For an older card, files with different
    includes share a unit.
    """
    groups: dict[tuple[object, ...], dict[Member, list[Job]]] = {}
    for job in jobs:
        target, member = job.request.target, job.member
        includes = member.includes if target.arch == SIM_ARCH else None
        group = groups.setdefault((job.command, target, job.request.kata.libraries, includes), {})
        group.setdefault(member, []).append(job)
    at_least = -(-parallel // len(groups)) if groups else 1
    for group in groups.values():
        for chunk in unit.chunks(list(group), at_least):
            yield _Unit({member: group[member] for member in chunk})


def _unit_step(one: _Unit, place: Path) -> ninja.Step:
    command = [*nvcc_command(one.first, limit_s=TEMPLATES_LIMIT_S), *unit.FLAGS, *one.target.code]
    command += ["-include", "cuda_runtime.h", SOURCE]
    names = sorted({member.launcher for member in one.members})
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    return ninja.Step(place, tuple(command), f"{len(one.members)} files, {shown}, for {one.target}", TEMPLATES_LIMIT_S)


def _take_apart(one: _Unit, place: Path, builds: Builds) -> list[str]:
    """Put a build of each member into the cache; the keys of those that there are now. None of a unit that reads what
    is not there for every file: each is compiled by itself, where that is known of it alone."""
    if ninja.status(place) != 0 or not_allowed(one.first, place):
        return []
    own = {SOURCE, *(f"{member.tag}/{SOURCE}" for member in one.members)}
    read = gather(Run(place, own, b"", None, None, INCLUDE, one.first.system), builds.hashes)
    if read is None or read["files"]:
        return []
    compiled = [Compiled(job, made, read) for job, made in _members(one, place)]
    builds.keep(compiled)
    return [item.job.key for item in compiled]


def _members(one: _Unit, place: Path) -> Iterator[tuple[Job, Path]]:
    """The folder of each member's build, but for those with a fault."""
    exported = set(exported_names(place / f"{NAME}.so"))
    pieces = unit.pieces_of((place / f"{NAME}.ptx").read_text(errors="replace"))
    warned = unit.warned(_log(place))
    for member, job in one.jobs:
        made = place / job.key
        if unit.launcher_in(member.tag, member.launcher) not in exported:
            continue
        if job.request.warnings_are_errors and not warned.isdisjoint({member.tag, ""}):
            continue
        made.mkdir()
        (made / f"{NAME}.ptx").write_text(unit.ptx_of(member.tag, pieces))
        if job.request.target.device == "sim" and too_much_shared(job, made):
            continue
        (made / SOURCE).write_bytes(job.text)
        (made / TAG).write_text(member.tag)
        for file in kept(job.request.target) - {f"{NAME}.ptx", SOURCE}:
            os.link(place / file, made / file)
        yield job, made
