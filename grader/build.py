""".cu file -> Build: nvcc through ninja, into a content-addressed cache.

A build's key covers everything that can change it: the file, what it includes by name, the launcher's signature, the
compiler and its flags. A build in the cache is whole and never changes; a failed compilation is not kept.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from grader import cache, ninja, probe, static_shared, symbols, unit
from grader.catalog import Kata
from grader.libraries import Library, LibraryMissing, find_library
from grader.lock import Claims
from grader.nvcc_log import SOURCE, File, first_error, missing_launcher
from grader.skeleton import way_back
from grader.spec import Spec
from grader.toolchain import Toolchain
from grader.unit import Member
from grader.verdict import Kind

INCLUDE = Path(__file__).resolve().parent / "include"
COMPILE_LIMIT_S = 180
TEMPLATES_LIMIT_S = 900  # where a kata includes CuTe: its templates keep two cores busy for most of a minute
MEMORY_LIMIT_BYTES = 12 << 30  # of address space, for each program that nvcc starts
FILE_LIMIT_BYTES = 1 << 30  # for each file that they write
PATIENCE_S = 30.0  # for builds that other processes are making, or have before them
FULL_BYTES = 1 << 20  # a disk with less room than this is why a compilation failed
_NO_SPACE = "No space left on device"
_NAME = Path(SOURCE).stem
_TAG = "tag.txt"
# Leads to the folder that the file came from. nvcc and ninja see this name alone, whatever that folder is called.
BESIDE = "beside"


class BuildError(Exception):
    """The machine could not build, through no fault of the learner's file."""


@dataclass(frozen=True)
class Target:
    """What to build for. ``arch`` is as nvcc writes it: sm_80, sm_90a."""

    device: str  # "gpu" | "sim"
    arch: str

    def __str__(self) -> str:
        return f"{self.device} {self.arch}"

    @property
    def virtual(self) -> str:
        """The architecture of its PTX."""
        return self.arch.replace("sm_", "compute_")

    @property
    def code(self) -> tuple[str, ...]:
        """The simulator reads PTX, a GPU gets machine code."""
        return ("-gencode", f"arch={self.virtual},code={self.virtual if self.device == 'sim' else self.arch}")

    @property
    def flags(self) -> tuple[str, ...]:
        """The simulator stands in for the CUDA runtime; a GPU gets the real one, and what is called of it is noted."""
        if self.device == "sim":
            return ("-cudart", "none")
        return ("-Xptxas", "-v", "-Xlinker", "--exclude-libs=ALL", *probe.link_flags())


@dataclass(frozen=True)
class Request:
    """One file to build as one kata. ``together``: it may be compiled with others in one translation unit."""

    kata: Kata
    spec: Spec
    source: Path
    target: Target
    warnings_are_errors: bool = False
    together: bool = False


@dataclass(frozen=True)
class Build:
    """A compiled kata. ``ptx`` is what the simulator executes; on a GPU it is only for reading."""

    request: Request
    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / f"{_NAME}.so"

    @property
    def source(self) -> Path:
        """The learner's file as it was compiled. Its name is the one that PTX and findings know it by."""
        return self.folder / SOURCE

    @property
    def ptx(self) -> Path:
        return self.folder / f"{_NAME}.ptx"

    @property
    def cubin(self) -> Path:
        """The machine code by itself, for reading; only of a build for a GPU."""
        return self.folder / f"{_NAME}.cubin"

    @property
    def tag(self) -> str:
        """The file's namespace in a library of several files; empty for a library of its own."""
        try:
            return (self.folder / _TAG).read_text()
        except FileNotFoundError:
            return ""

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")


@dataclass(frozen=True)
class CompileFailure:
    """There is no build, and why, in one sentence, with the learner's own line.

    ``kind`` is "does not compile" where nvcc refused the file, "not allowed" where the file uses what its kata is to be
    solved without, "unsupported" where the machine lacks a library that the kata needs.
    """

    request: Request
    message: str
    line: int | None
    log: str
    kind: Kind = Kind.DOES_NOT_COMPILE


@dataclass(frozen=True)
class _Job:
    request: Request
    key: str
    text: bytes
    header: str
    command: tuple[str, ...]  # without the architecture's flags

    @property
    def member(self) -> Member:
        """The file as one of a unit's: the same for each architecture."""
        declarations = self.header.partition("\n")[2]  # the runtime's header comes first, once for the unit
        return Member(self.request.kata.name, declarations, self.text.decode())


Progress = Callable[[str], None]


def build_all(
    requests: Sequence[Request], toolchain: Toolchain, *, jobs: int = 2, progress: Progress | None = None
) -> list[Build | CompileFailure]:
    """Build every request, in parallel, reusing what the cache has; results in the order of the requests.

    ``progress`` is told each finished compilation, such as "[3/12] compile square_f32 for sim sm_90a".
    Raises BuildError or cache.CacheError when the machine is at fault.
    """
    folder = cache.cache_folder()
    planned = [_plan(request, toolchain) for request in requests]
    possible = [job for job in planned if isinstance(job, _Job)]
    missing = {job.key: job for job in possible if not _is_built(job, folder)}
    failures = _compile_each_once(list(missing.values()), folder, jobs, progress) if missing else {}
    return [_result(job, folder, failures) if isinstance(job, _Job) else job for job in planned]


def build(request: Request, toolchain: Toolchain) -> Build | CompileFailure:
    """One build. Raises what build_all raises."""
    return build_all([request], toolchain)[0]


def _is_built(job: _Job, folder: Path) -> bool:
    return (folder / "builds" / job.key / f"{_NAME}.so").is_file()


def _compile_each_once(
    jobs: Sequence[_Job], folder: Path, parallel: int, progress: Progress | None
) -> dict[str, CompileFailure]:
    """Compile what no other process is compiling; then what the others fail at, or leave waiting for long."""
    failures: dict[str, CompileFailure] = {}
    with Claims(folder) as claims:
        mine = [job for job in jobs if claims.take(job.key)]
        others = [job for job in jobs if job not in mine]
        if missing := [job for job in mine if not _is_built(job, folder)]:
            alone = _compile_together(missing, folder, parallel, progress, claims.release)
            failures |= _compile(alone, folder, parallel, progress, claims.release)
        stop = time.monotonic() + PATIENCE_S
        for job in others:
            claims.wait(job.key, until=partial(_is_built, job, folder), limit_s=stop - time.monotonic())
        if missing := [job for job in others if not _is_built(job, folder)]:
            failures |= _compile(missing, folder, parallel, progress, claims.release)
    return failures


def _result(job: _Job, folder: Path, failures: dict[str, CompileFailure]) -> Build | CompileFailure:
    if job.key in failures:
        return replace(failures[job.key], request=job.request)
    return Build(job.request, folder / "builds" / job.key)


def _plan(request: Request, toolchain: Toolchain) -> _Job | CompileFailure:
    text = request.source.read_bytes()
    header = _signature_header(request)
    try:
        libraries = _libraries(request, toolchain)
    except LibraryMissing as missing:
        return CompileFailure(request, str(missing), None, "", Kind.UNSUPPORTED)
    flags = [*_FLAGS, *request.target.flags, *toolchain.nvcc_flags]
    together = request.together and not libraries and unit.may_share(text)
    flags += [flag for library in libraries for flag in library.flags]
    if request.warnings_are_errors:
        flags += ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Werror"]
    parts = [text, header.encode(), toolchain.identity.encode(), json.dumps([*request.target.code, *flags]).encode()]
    parts += [Path(unit.__file__).read_bytes()] if together else []
    parts += [library.identity.encode() for library in libraries]
    if request.target.device == "gpu":
        parts += [" ".join(sorted(_kept(request.target))).encode(), probe.SOURCE.read_bytes()]
    parts += [" ".join(request.kata.libraries).encode()]
    parts += [Path(file).read_bytes() for file in (symbols.__file__, static_shared.__file__)]  # what is refused
    parts += [path.read_bytes() for path in sorted(INCLUDE.iterdir()) if path.is_file()]
    parts += [path.read_bytes() for path in _included(request.source.resolve(), text)]
    linked = [str(probe.probe_object(toolchain, cache.cache_folder()))] if request.target.device == "gpu" else []
    command = (str(toolchain.nvcc), *flags, "-I", str(INCLUDE), *linked)
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]
    return _Job(replace(request, together=together), key, text, header, command)


_FLAGS = ("-std=c++17", "-O3", "-lineinfo", "-shared", "-Xcompiler", "-fPIC")


def _libraries(request: Request, toolchain: Toolchain) -> list[Library]:
    """What the kata may use beside the CUDA runtime. Raises LibraryMissing."""
    device = request.target.device
    return [find_library(name, toolkit=toolchain.toolkit, device=device) for name in request.kata.libraries]


def _limit_s(request: Request) -> int:
    return TEMPLATES_LIMIT_S if "cutlass" in request.kata.libraries else COMPILE_LIMIT_S


def _signature_header(request: Request) -> str:
    """Declares the launcher before the learner's file does: a wrong parameter list is then the compiler's to find."""
    includes = "".join(f"#include <{header}>\n" for header in request.spec.headers(request.kata))
    declaration = f'extern "C" __attribute__((visibility("default"))) {request.spec.signature(request.kata)};'
    return f"#include <cuda_runtime.h>\n{includes}{declaration}\n"


_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def includes_of(text: bytes) -> list[str]:
    """What a file includes by name, between quotes."""
    return [os.fsdecode(name) for name in _INCLUDE.findall(text)]


def _included(source: Path, text: bytes) -> list[Path]:
    """Files beside the source that it includes by name, and theirs in turn, each once."""
    found: dict[Path, None] = {}
    pending = [(source, text)]
    while pending:
        path, content = pending.pop()
        for name in includes_of(content):
            other = Path(os.path.realpath(path.parent / name))  # unlike Path's own, these two raise nothing
            if os.path.isfile(other) and other not in found:
                found[other] = None
                pending.append((other, other.read_bytes()))
    return sorted(found)


def _compile(
    jobs: Sequence[_Job], folder: Path, parallel: int, progress: Progress | None, release: Callable[[str], None]
) -> dict[str, CompileFailure]:
    """Each by itself. Each build is in the cache, and its key released, as soon as it is done."""
    failures: dict[str, CompileFailure] = {}
    if not jobs:
        return failures
    waiting = {job.key: job for job in jobs}
    with cache.staging(folder) as stage:
        for job in jobs:
            place = stage / job.key
            place.mkdir()
            (place / SOURCE).write_bytes(job.text)
            (place / "signature.h").write_text(job.header)
            (place / BESIDE).symlink_to(job.request.source.resolve().parent)

        def collect() -> None:
            for key in [key for key in waiting if ninja.status(stage / key) is not None]:
                job = waiting.pop(key)
                if failure := _judge(job, stage / key):
                    failures[key] = failure
                else:
                    _keep_only(stage / key, _kept(job.request.target))
                    cache.publish(stage / key, folder / "builds" / key)
                release(key)

        steps = [_step(job, stage / job.key) for job in jobs]
        _run(steps, stage, parallel, progress, collect)
    return failures


def _step(job: _Job, place: Path) -> ninja.Step:
    target = job.request.target
    command = [*_nvcc(job, limit_s=_limit_s(job.request)), *target.code, "-I", str(place / BESIDE)]
    return ninja.Step(place, (*command, "-include", "signature.h", SOURCE), f"{job.request.kata.name} for {target}")


def _nvcc(job: _Job, *, limit_s: int) -> list[str]:
    """nvcc and what it is told wherever it runs; it keeps what it makes on its way."""
    limit = ["timeout", "-k", "5", str(limit_s)] if shutil.which("timeout") else []
    return [*limit, *job.command, "--keep", "-MD", "-MF", f"{_NAME}.d", "-o", f"{_NAME}.so"]


def _run(
    steps: Sequence[ninja.Step],
    stage: Path,
    parallel: int,
    progress: Progress | None,
    collect: Callable[[], None],
) -> None:
    limits = ninja.Limits(memory_bytes=MEMORY_LIMIT_BYTES, file_bytes=FILE_LIMIT_BYTES)
    try:
        ninja.run(steps, stage, limits, parallel=parallel, progress=progress, collect=collect)
    except ninja.NinjaError as error:
        raise BuildError(str(error)) from None


# -- several files in one translation unit


@dataclass(frozen=True)
class _Unit:
    """Members of a unit, with the jobs of each: one for each architecture."""

    members: Mapping[Member, Sequence[_Job]]

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(job.request.target for job in next(iter(self.members.values())))

    @property
    def first(self) -> _Job:
        return next(iter(self.members.values()))[0]


def _compile_together(
    jobs: Sequence[_Job], folder: Path, parallel: int, progress: Progress | None, release: Callable[[str], None]
) -> list[_Job]:
    """Compile the jobs that may be, several at a time. Returns those that are still to be compiled each by itself:
    the others, and the files of a unit that does not compile, or in which something is refused."""
    alone = {job.key: job for job in jobs}
    shared = [job for job in jobs if job.request.together]
    while shared:
        again: list[_Job] = []
        with cache.staging(folder) as stage:
            waiting = {stage / f"unit-{number}": one for number, one in enumerate(_units(shared, parallel))}
            for place, one in waiting.items():
                place.mkdir()
                unit.write(list(one.members), place)
            steps = [_unit_step(one, place) for place, one in waiting.items()]

            def collect(waiting: dict[Path, _Unit] = waiting, again: list[_Job] = again) -> None:
                for place in [place for place in waiting if ninja.status(place) is not None]:
                    one = waiting.pop(place)
                    for key in _take_apart(one, place, folder):
                        del alone[key]
                        release(key)
                    again += _not_blamed(one, place)

            _run(steps, stage, parallel, progress, collect)
        shared = again
    return list(alone.values())


def _not_blamed(one: _Unit, place: Path) -> list[_Job]:
    """Of a unit that does not compile, the files that nvcc names in no error; none where it names no file."""
    if ninja.status(place) == 0:
        return []
    blamed = unit.blamed((place / "log.txt").read_text(errors="replace"))
    return [job for member, jobs in one.members.items() if blamed and member.tag not in blamed for job in jobs]


def _units(jobs: Sequence[_Job], parallel: int) -> Iterator[_Unit]:
    """The same flags, the same architectures and the same includes in each unit."""
    members: dict[tuple[tuple[str, ...], Member], list[_Job]] = {}
    for job in jobs:
        members.setdefault((job.command, job.member), []).append(job)
    alike: dict[tuple[object, ...], dict[Member, list[_Job]]] = {}
    for (command, member), its_jobs in members.items():
        targets = tuple(job.request.target for job in its_jobs)
        alike.setdefault((command, targets, member.includes), {})[member] = its_jobs
    for group in alike.values():
        for chunk in unit.chunks(list(group), parallel):
            yield _Unit({member: group[member] for member in chunk})


def _unit_step(one: _Unit, place: Path) -> ninja.Step:
    code = [flag for target in one.targets for flag in target.code]
    command = (*_nvcc(one.first, limit_s=TEMPLATES_LIMIT_S), *code, "-include", "cuda_runtime.h", SOURCE)
    names = sorted({member.launcher for member in one.members})
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    return ninja.Step(place, command, f"{len(one.members)} files, {shown}, for {' and '.join(map(str, one.targets))}")


def _take_apart(one: _Unit, place: Path, folder: Path) -> Iterator[str]:
    """Put a build of each member into the cache; the keys of those that there are now."""
    if ninja.status(place) != 0 or _not_allowed(one.first, place):
        return
    exported = set(exported_names(place / f"{_NAME}.so"))
    for at, target in enumerate(one.targets):
        name = _NAME if len(one.targets) == 1 else f"{_NAME}.{target.virtual}"
        ptx = (place / f"{name}.ptx").read_text(errors="replace")
        for member, jobs in one.members.items():
            job, made = jobs[at], place / jobs[at].key
            if unit.launcher_in(member.tag, member.launcher) not in exported:
                continue
            made.mkdir()
            (made / f"{_NAME}.ptx").write_text(unit.ptx_of(member.tag, ptx))
            if target.device == "sim" and _too_much_shared(job, made):
                continue
            (made / SOURCE).write_bytes(job.text)
            (made / _TAG).write_text(member.tag)
            for kept in _kept(target) - {f"{_NAME}.ptx", SOURCE}:
                os.link(place / kept, made / kept)
            cache.publish(made, folder / "builds" / job.key)
            yield job.key


def _kept(target: Target) -> set[str]:
    """The files of a build; the rest is nvcc's own."""
    machine_code = [f"{_NAME}.cubin"] if target.device == "gpu" else []
    return {f"{_NAME}.so", f"{_NAME}.ptx", SOURCE, "log.txt", *machine_code}


def _keep_only(folder: Path, names: set[str]) -> None:
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()


def _judge(job: _Job, place: Path) -> CompileFailure | None:
    """None for a good build. Raises BuildError where nvcc itself could not work."""
    log = (place / "log.txt").read_text(errors="replace")
    status = ninja.status(place)
    request = job.request
    file = _file_of(job)
    if status == 0 and (place / f"{_NAME}.so").is_file():
        missing = missing_launcher(exported_names(place / f"{_NAME}.so"), file)
        return CompileFailure(request, missing, None, log) if missing else _refused(job, place)
    told = _NO_SPACE in log and _NO_SPACE.encode() not in job.text  # by nvcc, not by the file's own #error
    if told or shutil.disk_usage(place).free < FULL_BYTES:
        raise cache.explain(OSError(errno.ENOSPC, _NO_SPACE), place.parent)
    if status in (124, 137):
        message = f"nvcc did not finish within {_limit_s(request)} s; is there a loop that is unrolled without end?"
        return CompileFailure(request, message, None, log)
    if static_shared.SAID in log and (place / f"{_NAME}.ptx").is_file() and (refusal := _too_much_shared(job, place)):
        return replace(refusal, log=log)
    if (place / f"{_NAME}.o").is_file() and (refusal := _not_allowed(job, place)):  # it did not link
        return replace(refusal, log=log)
    message, line = first_error(log, file)
    return CompileFailure(request, message, line, log)


def _file_of(job: _Job) -> File:
    kata, source = job.request.kata, job.request.source
    signature = job.request.spec.signature(kata)
    return File(job.text.decode(errors="replace"), kata.name, signature, way_back(kata, source))


def _refused(job: _Job, place: Path) -> CompileFailure | None:
    """What nvcc itself has let pass: the simulator's is a build that ptxas has not seen."""
    return _not_allowed(job, place) or (_too_much_shared(job, place) if job.request.target.device == "sim" else None)


def _too_much_shared(job: _Job, place: Path) -> CompileFailure | None:
    """The same words on a GPU, where ptxas says so, and on the simulator, which has no ptxas."""
    ptx, text = (place / f"{_NAME}.ptx").read_text(errors="replace"), job.text.decode(errors="replace")
    refusal = static_shared.refused(ptx, job.request.target.arch, text)
    return CompileFailure(job.request, refusal.message, refusal.line, "") if refusal else None


def _not_allowed(job: _Job, place: Path) -> CompileFailure | None:
    """What the file includes or calls that its kata is to be solved without."""
    text, libraries = job.text.decode(errors="replace"), job.request.kata.libraries
    own = (place, INCLUDE, job.request.source.resolve().parent)
    solutions = job.request.kata.root / "solutions"
    dependencies = (place / f"{_NAME}.d").read_text(errors="replace")
    refusal = symbols.refused_header(dependencies, own, text, libraries, solutions=solutions)
    made = place / f"{_NAME}.o"
    refusal = refusal or symbols.refused_definition(made, text) or symbols.refused_call(made, text, libraries)
    return CompileFailure(job.request, refusal.message, refusal.line, "", Kind.NOT_ALLOWED) if refusal else None


def exported_names(library: Path) -> list[str]:
    """Symbols that a shared library defines for others, as nm lists them. Raises BuildError where nm is missing."""
    try:
        listed = subprocess.run(
            ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
        )
    except FileNotFoundError as error:
        raise BuildError("nm was not found; it comes with the compiler. Install binutils.") from error
    return [line.split()[-1] for line in listed.stdout.splitlines() if line.strip()]
