""".cu file -> Build: nvcc through ninja, into the cache.

A build's key covers what is known before nvcc runs: the file, the launcher's signature, the compiler and its flags,
what the grader itself refuses. The build carries the list of what nvcc read (compile/dependencies.py) and a manifest of
its files (storage/manifest.py): one that does not match is built again. A failed compilation is not kept.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from grader.compile import dependencies, halves, host_view, ninja, probe, shared_memory_limit, symbols, unit
from grader.compile.build_store import Builds, Compiled
from grader.compile.compilation import INCLUDE, Job, exported_names, judge, kept, nvcc_command, run, time_limit_s
from grader.compile.dependencies import BESIDE, Run, gather
from grader.compile.libraries import Library, LibraryMissing, find_library
from grader.compile.nvcc_log import SOURCE
from grader.compile.request import Build, BuildError, CompileFailure, Request, Target, Tell
from grader.compile.toolchain import Toolchain
from grader.compile.unit_build import compile_together
from grader.content import functions
from grader.storage import cache, entries, manifest
from grader.storage.lock import BuildLocks
from grader.verdict import Kind

__all__ = [
    "Build", "BuildError", "CompileFailure", "Request", "Target", "Tell", "build", "build_all",
    "exported_names",
]  # fmt: skip

PATIENCE_S = 30.0  # for builds that other processes are making, or have before them
SIGNATURE = "signature.h"
HOSTS = "hosts"  # in the cache: what the host's compiler made of the text around kernels
# NVTX is not to look for a profiler's library: no kata may load one, and without it all of NVTX does nothing.
_NO_PROFILER = "-DNVTX_SUPPORT_DYNAMIC_INJECTION_LIBRARY=0"
_FLAGS = ("-std=c++17", "-lineinfo", "-shared", "-Xcompiler", "-fPIC", _NO_PROFILER)
_WARNINGS_ARE_ERRORS = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Werror")
# What nvcc and g++ take from the environment.
_VARIABLES = (
    *dependencies.FOLDER_VARIABLES, "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "LIBRARY_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
)  # fmt: skip
_RULES = (
    symbols,
    shared_memory_limit,
    dependencies,
    halves,
    manifest,
)  # what is refused, and how a build is known to be current

_RULES_OF_UNITS = (unit, host_view, functions)

Failures = dict[tuple[str, str], CompileFailure]


def build_all(
    requests: Sequence[Request], toolchain: Toolchain, *, jobs: int = 2, tell: Tell | None = None
) -> list[Build | CompileFailure]:
    """Build every request, in parallel, reusing what the cache has; results in the order of the requests.

    ``progress`` is told each finished compilation, such as "[3/12] compile square_f32 for sim sm_90a".
    Raises BuildError or cache.CacheError when the machine is at fault.
    """
    builds = Builds(cache.cache_folder())
    common = common_key()
    on_gpu = any(request.target.device == "gpu" for request in requests)
    linked = probe.probe_object(toolchain, builds.folder) if on_gpu else None
    planned = [plan(request, toolchain, common, linked) for request in requests]
    possible = [job for job in planned if isinstance(job, Job)]
    failures: Failures = {}
    # One of each file first. The same file in another folder is then found, or reads other headers there.
    for same in (attrgetter("key"), attrgetter("identity")):
        missing = {same(job): job for job in possible if job.identity not in failures and not builds.find(job)}
        if missing:
            failures |= _compile_each_once(list(missing.values()), builds, jobs, tell)
    return [_result(job, builds, failures) if isinstance(job, Job) else job for job in planned]


def build(request: Request, toolchain: Toolchain) -> Build | CompileFailure:
    """One build. Raises what build_all raises."""
    return build_all([request], toolchain)[0]


def _compile_each_once(jobs: Sequence[Job], builds: Builds, parallel: int, tell: Tell | None) -> Failures:
    """Compile what no other process is compiling; then what the others fail at, or leave waiting for long."""
    failures: Failures = {}
    with BuildLocks(builds.folder) as claims:
        mine = [job for job in jobs if claims.take(job.key)]
        others = [job for job in jobs if job not in mine]
        if missing := [job for job in mine if not builds.find(job)]:
            alone = compile_together(missing, builds, parallel, tell, claims.release)
            failures |= _compile(alone, builds, parallel, tell, claims.release)
        stop = time.monotonic() + PATIENCE_S
        for job in others:
            claims.wait(job.key, until=partial(_is_built, builds, job), limit_s=stop - time.monotonic())
        if missing := [job for job in others if not builds.find(job)]:
            failures |= _compile(missing, builds, parallel, tell, claims.release)
    return failures


def _is_built(builds: Builds, job: Job) -> bool:
    return builds.find(job) is not None


def _result(job: Job, builds: Builds, failures: Failures) -> Build | CompileFailure:
    if job.identity in failures:
        return replace(failures[job.identity], request=job.request)
    folder = builds.find(job)
    assert folder is not None
    return Build(job.request, folder)


def plan(request: Request, toolchain: Toolchain, common: bytes, linked: Path | None) -> Job | CompileFailure:
    """``linked`` is the probe's object file, for a GPU."""
    text = request.source.data
    header = _signature_header(request)
    try:
        libraries = _libraries(request, toolchain)
    except LibraryMissing as missing:
        return CompileFailure(request, str(missing), None, "", Kind.UNSUPPORTED)
    flags = [*_FLAGS, *request.target.flags, *toolchain.nvcc_flags]
    together = request.together and unit.may_share(text, request.kata.libraries)
    flags += [flag for library in libraries for flag in library.flags]
    known = json.dumps([*request.target.code, *flags, *_flags_alone(request)])
    parts = [text, header.encode(), toolchain.identity.encode(), known.encode()]
    parts += [Path(str(module.__file__)).read_bytes() for module in _RULES_OF_UNITS] if together else []
    parts += [library.identity.encode() for library in libraries]
    command = [str(toolchain.nvcc), *flags, "-I", str(INCLUDE)]
    if request.target.device == "gpu":
        parts += [" ".join(sorted(kept(request.target))).encode(), probe.SOURCE.read_bytes()]
        command.append(str(linked))
    parts += [" ".join(request.kata.libraries).encode(), common]
    key = entries.name_of(parts)
    request, beside = replace(request, together=together), request.source.path.resolve().parent
    return Job(request, key, text, header, tuple(command), beside, _system(toolchain, flags))


def _flags_alone(request: Request) -> tuple[str, ...]:
    """What a file that is compiled by itself gets beside ``Job.command``; -O3 is for the host's code."""
    return ("-O3", *(_WARNINGS_ARE_ERRORS if request.warnings_are_errors else ()))


def _system(toolchain: Toolchain, flags: Sequence[str]) -> tuple[Path, ...]:
    """The folders of the toolkit, of the system's compiler and of the kata's libraries."""
    libraries = (flags[at + 1] for at, flag in enumerate(flags) if flag in ("-I", "-isystem"))
    prefix = os.path.dirname(os.path.dirname(_real(str(toolchain.host))))
    return tuple(map(Path, (_real(str(toolchain.toolkit)), prefix, *map(_real, libraries))))


_real = functools.cache(os.path.realpath)


def common_key() -> bytes:
    """What is the same in the key of every build."""
    parts = [Path(str(module.__file__)).read_bytes() for module in _RULES]
    for path in sorted(INCLUDE.rglob("*")):
        parts += [str(path.relative_to(INCLUDE)).encode(), path.read_bytes()] if path.is_file() else []
    parts.append(json.dumps([os.environ.get(name) for name in _VARIABLES]).encode())
    return entries.name_of(parts).encode()


def _libraries(request: Request, toolchain: Toolchain) -> list[Library]:
    """What the kata may use beside the CUDA runtime. Raises LibraryMissing."""
    device = request.target.device
    return [find_library(name, toolkit=toolchain.toolkit, device=device) for name in request.kata.libraries]


def _signature_header(request: Request) -> str:
    """Declares the launcher before the learner's file does: a wrong parameter list is then the compiler's to find."""
    includes = "".join(f"#include <{header}>\n" for header in request.spec.headers(request.kata))
    declaration = f'extern "C" __attribute__((visibility("default"))) {request.spec.signature(request.kata)};'
    return f"#include <cuda_runtime.h>\n{includes}{declaration}\n"


def _compile(
    jobs: Sequence[Job], builds: Builds, parallel: int, tell: Tell | None, release: Callable[[str], None]
) -> Failures:
    """Each by itself. Each build is in the cache, and its key released, as soon as it is done."""
    failures: Failures = {}
    if not jobs:
        return failures
    with cache.staging(builds.folder) as stage:
        waiting = {stage / f"file-{number}": job for number, job in enumerate(jobs)}
        names_before = {place: lay_out(job, place) for place, job in waiting.items()}

        def collect() -> None:
            for place in [place for place in waiting if ninja.status(place) is not None]:
                job = waiting.pop(place)
                if failure := judge(job, place):
                    failures[job.identity] = failure
                else:
                    own = (SOURCE, SIGNATURE)
                    run_of = Run(place, own, job.text, job.beside, names_before[place], INCLUDE, job.system)
                    read = gather(run_of, builds.hashes)
                    _keep_only(place, kept(job.request.target))
                    builds.keep([Compiled(job, place, read)])
                release(job.key)

        steps = [_step(job, place, alone=len(jobs) == 1) for place, job in waiting.items()]
        run(steps, stage, parallel, tell, collect)
    return failures


def lay_out(job: Job, place: Path) -> list[str] | None:
    """Make the folder that nvcc runs in. Returns the names in the source's folder, None where it cannot be read."""
    place.mkdir()
    (place / SOURCE).write_bytes(job.text)
    (place / SIGNATURE).write_text(job.header)
    (place / BESIDE).symlink_to(job.beside)
    try:
        return os.listdir(job.beside)
    except OSError:
        return None


def _step(job: Job, place: Path, *, alone: bool) -> ninja.Step:
    """``alone``: nothing else is compiled, so that its two halves may have a core each."""
    target = job.request.target
    nvcc = nvcc_command(job, limit_s=time_limit_s(job.request), store=cache.cache_folder() / HOSTS if alone else None)
    command = [*nvcc, *_flags_alone(job.request), "-I", str(place / BESIDE)]
    command += ["-include", SIGNATURE, SOURCE]
    return ninja.Step(place, tuple(command), f"{job.request.kata.name} for {target}", time_limit_s(job.request))


def _keep_only(folder: Path, names: set[str]) -> None:
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()
