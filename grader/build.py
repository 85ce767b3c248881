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
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from grader import cache, static_shared, symbols
from grader.catalog import Kata
from grader.libraries import Library, LibraryMissing, find_library
from grader.lock import Claims
from grader.nvcc_log import SOURCE, File, first_error, missing_launcher
from grader.processes import kill_tree
from grader.skeleton import way_back
from grader.spec import Spec
from grader.toolchain import Toolchain
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
# Leads to the folder that the file came from. nvcc and ninja see this name alone, whatever that folder is called.
BESIDE = "beside"
# The runtime's functions that launch a kernel; kata_probe.h notes what goes through them.
RECORDED = ("cudaLaunchKernel", "__cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelExC")


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
    def flags(self) -> tuple[str, ...]:
        """The simulator reads PTX and stands in for the CUDA runtime; a GPU gets machine code and the real runtime."""
        virtual = self.arch.replace("sm_", "compute_")
        if self.device == "sim":
            return ("-gencode", f"arch={virtual},code={virtual}", "-cudart", "none")
        linker = ["--exclude-libs=ALL", *(f"--wrap={name}" for name in RECORDED)]
        hardware = ("-gencode", f"arch={virtual},code={self.arch}", "-Xptxas", "-v", "-DKATA_RECORD_LAUNCHES")
        return (*hardware, *(part for option in linker for part in ("-Xlinker", option)))


@dataclass(frozen=True)
class Request:
    """One file to build as one kata."""

    kata: Kata
    spec: Spec
    source: Path
    target: Target
    warnings_are_errors: bool = False


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
    command: tuple[str, ...]


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
            failures |= _compile(missing, folder, parallel, progress, claims.release)
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
    flags += [flag for library in libraries for flag in library.flags]
    if request.warnings_are_errors:
        flags += ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Werror"]
    parts = [text, header.encode(), toolchain.identity.encode(), json.dumps(flags).encode()]
    parts += [library.identity.encode() for library in libraries]
    parts += [" ".join(sorted(_kept(request.target))).encode()] if request.target.device == "gpu" else []
    parts += [" ".join(request.kata.libraries).encode()]
    parts += [Path(file).read_bytes() for file in (symbols.__file__, static_shared.__file__)]  # what is refused
    parts += [path.read_bytes() for path in sorted(INCLUDE.iterdir()) if path.is_file()]
    parts += [path.read_bytes() for path in _included(request.source.resolve(), text)]
    command = (str(toolchain.nvcc), *flags, "-I", str(INCLUDE))
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]
    return _Job(request, key, text, header, command)


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
    return f'#include "kata_probe.h"\n{includes}{declaration}\n'


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
    """Each build is in the cache, and its key released, as soon as it is done."""
    failures: dict[str, CompileFailure] = {}
    waiting = {job.key: job for job in jobs}
    with cache.staging(folder) as stage:
        for job in jobs:
            place = stage / job.key
            place.mkdir()
            (place / SOURCE).write_bytes(job.text)
            (place / "signature.h").write_text(job.header)
            (place / BESIDE).symlink_to(job.request.source.resolve().parent)
        (stage / "build.ninja").write_text(_ninja_file(jobs, stage))

        def collect() -> None:
            for key in [key for key in waiting if _status(stage / key).endswith("\n")]:
                job = waiting.pop(key)
                if failure := _judge(job, stage / key):
                    failures[key] = failure
                else:
                    _keep_only(stage / key, _kept(job.request.target))
                    cache.publish(stage / key, folder / "builds" / key)
                release(key)

        _run_ninja(stage, parallel, progress, collect)
    return failures


def _status(place: Path) -> str:
    """nvcc's exit status, written when it is done."""
    try:
        return (place / "status").read_text()
    except FileNotFoundError:
        return ""


def _kept(target: Target) -> set[str]:
    """The files of a build; the rest is nvcc's own."""
    machine_code = [f"{_NAME}.cubin"] if target.device == "gpu" else []
    return {f"{_NAME}.so", f"{_NAME}.ptx", SOURCE, "log.txt", *machine_code}


def _ninja_file(jobs: Iterable[_Job], stage: Path) -> str:
    """One edge a build. nvcc's exit status is written down instead of returned, so that one failure stops no other."""
    lines = [
        "rule nvcc",
        # sh counts memory in units of 1024 bytes, the size of files in units of 512.
        f"  command = ulimit -v {MEMORY_LIMIT_BYTES >> 10}; ulimit -f {FILE_LIMIT_BYTES >> 9}; "
        "cd $folder && { $nvcc > log.txt 2>&1; echo $$? > status; }",
        "  description = compile $kata",
    ]
    for job in jobs:
        limit = ["timeout", "-k", "5", str(_limit_s(job.request))] if shutil.which("timeout") else []
        local = ["-I", str(stage / job.key / BESIDE), "-include", "signature.h", "--keep"]
        local += ["-MD", "-MF", f"{_NAME}.d", "-o", f"{_NAME}.so", SOURCE]
        command = shlex.join([*limit, *job.command, *local]).replace("$", "$$")
        lines += [
            f"build {job.key}/status: nvcc",
            f"  folder = {shlex.quote(str(stage / job.key)).replace('$', '$$')}",
            f"  nvcc = {command}",
            f"  kata = {job.request.kata.name} for {job.request.target}",
        ]
    return "\n".join(lines) + "\n"


def _run_ninja(stage: Path, parallel: int, progress: Progress | None, collect: Callable[[], None]) -> None:
    """``collect`` is called whenever some are done, and at the end."""
    command = [_ninja(), "-C", str(stage), "-k", "0", "-j", str(parallel)]
    # nvcc's own temporary files, too, are then gone with the stage, also those of one that was killed
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] ", "TERM": "dumb", "TMPDIR": str(stage)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )
    said: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if progress is not None and line.startswith("["):
                progress(line.rstrip())
            collect()
        process.wait()
        collect()
    except BaseException:
        kill_tree(process.pid)
        process.wait()
        raise
    if process.returncode != 0:
        raise BuildError(f"ninja stopped with exit code {process.returncode}: {''.join(said).strip() or 'no output'}")


def _ninja() -> str:
    found = shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))
    if found is None:
        raise BuildError("ninja was not found. Install it with `pip install ninja`.")
    return found


def _keep_only(folder: Path, names: set[str]) -> None:
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()


def _judge(job: _Job, place: Path) -> CompileFailure | None:
    """None for a good build. Raises BuildError where nvcc itself could not work."""
    log = (place / "log.txt").read_text(errors="replace")
    status = _status(place).strip()
    request = job.request
    file = _file_of(job)
    if status == "0" and (place / f"{_NAME}.so").is_file():
        missing = missing_launcher(exported_names(place / f"{_NAME}.so"), file)
        return CompileFailure(request, missing, None, log) if missing else _refused(job, place)
    told = _NO_SPACE in log and _NO_SPACE.encode() not in job.text  # by nvcc, not by the file's own #error
    if told or shutil.disk_usage(place).free < FULL_BYTES:
        raise cache.explain(OSError(errno.ENOSPC, _NO_SPACE), place.parent)
    if status in ("124", "137"):
        message = f"nvcc did not finish within {_limit_s(request)} s; is there a loop that is unrolled without end?"
        return CompileFailure(request, message, None, log)
    if static_shared.SAID in log and (place / f"{_NAME}.ptx").is_file() and (refusal := _too_much_shared(job, place)):
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
    refusal = refusal or symbols.refused_call(place / f"{_NAME}.o", text, libraries)
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
