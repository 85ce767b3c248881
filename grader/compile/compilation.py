"""One file -> a run of nvcc in a folder of its own, and what is to be said of what it left there."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.compile import ninja, shared_memory_limit, symbols
from grader.compile.nvcc_log import SOURCE, File, first_error, missing_launcher
from grader.compile.request import NAME, BuildError, CompileFailure, Request, Target, Tell
from grader.compile.unit import Member
from grader.content.skeleton import reset_hint
from grader.devices import SIM_ARCH
from grader.storage import cache
from grader.verdict import Kind

HALVES = Path(__file__).with_name("halves.py")
INCLUDE = Path(__file__).resolve().parents[1] / "include"
COMPILE_LIMIT_S = 180  # of computing, for each program that nvcc starts
WAITING = 10  # times as long may pass before nvcc is ended that does not compute, or has no processor
TEMPLATES_LIMIT_S = 900  # where a kata includes CuTe: its templates keep two cores busy for most of a minute
MEMORY_LIMIT_BYTES = 12 << 30  # of address space, for each program that nvcc starts
FILE_LIMIT_BYTES = 1 << 30  # for each file that they write
FULL_BYTES = 1 << 20  # a disk with less room than this is why a compilation failed
_NO_SPACE = "No space left on device"


@dataclass(frozen=True)
class Job:
    """A request, ready for nvcc. ``key`` is of all that is known before nvcc runs, ``beside`` the folder that the file
    came from; ``system`` are the folders whose headers are known by size and time."""

    request: Request
    key: str
    text: bytes
    header: str
    command: tuple[str, ...]  # without the flags of the architecture, and of a file alone or in a unit
    beside: Path
    system: tuple[Path, ...]

    @property
    def identity(self) -> tuple[str, str]:
        """Two jobs of the same become the same build: the same file may find other headers in another folder."""
        return self.key, str(self.beside)

    @property
    def member(self) -> Member:
        """The file as one of a unit's: the same for each architecture."""
        declarations = self.header.partition("\n")[2]  # the runtime's header comes first, once for the unit
        return Member(self.request.kata.name, declarations, self.text.decode())


def time_limit_s(request: Request) -> int:
    """How many seconds nvcc may compute, for each file."""
    return TEMPLATES_LIMIT_S if "cutlass" in request.kata.libraries else COMPILE_LIMIT_S


def nvcc_command(job: Job, *, limit_s: int, store: Path | None = None, library: bool = True) -> list[str]:
    """nvcc and what it is told wherever it runs; it keeps what it makes on its way. With a ``store``, in halves: see
    halves.py. Without ``library``, it makes only PTX, for an older card machine code too, and preprocesses the host's
    code all the same."""
    limit = ["timeout", "-k", "5", str(WAITING * limit_s)] if shutil.which("timeout") else []
    split = [sys.executable, "-I", "-S", str(HALVES), str(store)] if store else []
    target = job.request.target
    if library:
        made = ["-o", f"{NAME}.so", *target.code]
    else:
        made = ["-ptx", "-o", f"{NAME}.ptx"] if target.arch == SIM_ARCH else ["-cubin", "-o", f"{NAME}.cubin"]
        made += target.code[-2:]  # the last of the two that a card may have
    command = [flag for flag in job.command if library or flag != "-shared"]
    return [*limit, *split, *command, "--keep", "-MD", "-MF", f"{NAME}.d", *made]


def run(
    steps: Sequence[ninja.Step],
    stage: Path,
    parallel: int,
    tell: Tell | None,
    collect: Callable[[], None],
) -> None:
    """ninja.run, with the limits of a compilation. Raises BuildError."""
    limits = ninja.Limits(memory_bytes=MEMORY_LIMIT_BYTES, file_bytes=FILE_LIMIT_BYTES)
    try:
        ninja.run(steps, stage, limits, parallel=parallel, tell=tell, collect=collect)
    except ninja.NinjaError as error:
        if not stage.is_dir():
            raise cache.CacheError(f"{stage.parent.parent} was removed while it was in use. Grade again.") from None
        raise BuildError(str(error)) from None


def kept(target: Target) -> set[str]:
    """The files of a build; the rest is nvcc's own."""
    machine_code = [f"{NAME}.cubin"] if target.device == "gpu" else []
    return {f"{NAME}.so", f"{NAME}.ptx", SOURCE, "log.txt", *machine_code}


def judge(job: Job, place: Path) -> CompileFailure | None:
    """None for a good build. Raises BuildError where nvcc itself could not work."""
    log = (place / "log.txt").read_text(errors="replace")
    status = ninja.status(place)
    request = job.request
    file = _file_of(job)
    if status == 0 and (place / f"{NAME}.so").is_file():
        missing = missing_launcher(exported_names(place / f"{NAME}.so"), file)
        return CompileFailure(request, missing, None, log) if missing else _refused(job, place)
    told = _NO_SPACE in log and _NO_SPACE.encode() not in job.text  # by nvcc, not by the file's own #error
    if told or shutil.disk_usage(place).free < FULL_BYTES:
        raise cache.explain(OSError(errno.ENOSPC, _NO_SPACE), place.parent)
    if status in (ninja.OUT_OF_TIME, 124, 137):
        message = f"nvcc was not done after {time_limit_s(request)} s; is there a loop that is unrolled without end?"
        return CompileFailure(request, message, None, log)
    if (
        shared_memory_limit.PTXAS_MESSAGE in log
        and (place / f"{NAME}.ptx").is_file()
        and (refusal := too_much_shared(job, place))
    ):
        return replace(refusal, log=log)
    if (place / f"{NAME}.o").is_file() and (refusal := not_allowed(job, place)):  # it did not link
        return replace(refusal, log=log)
    made = place / f"{NAME}.ptx"
    message, line = first_error(log, file, made.read_text(errors="replace") if made.is_file() else "")
    return CompileFailure(request, message, line, log)


def _file_of(job: Job) -> File:
    kata, source = job.request.kata, job.request.source.path
    signature = job.request.spec.signature(kata)
    return File(job.text.decode(errors="replace"), kata.name, signature, reset_hint(kata, source))


def _refused(job: Job, place: Path) -> CompileFailure | None:
    """What nvcc itself has let pass: the simulator's is a build that ptxas has not seen."""
    return not_allowed(job, place) or (too_much_shared(job, place) if job.request.target.device == "sim" else None)


def too_much_shared(job: Job, place: Path) -> CompileFailure | None:
    """The same words on a GPU, where ptxas says so, and on the simulator, which has no ptxas."""
    ptx, text = (place / f"{NAME}.ptx").read_text(errors="replace"), job.text.decode(errors="replace")
    refusal = shared_memory_limit.refused(ptx, job.request.target.arch, text)
    return CompileFailure(job.request, refusal.message, refusal.line, "") if refusal else None


def not_allowed(job: Job, place: Path) -> CompileFailure | None:
    """What the file includes or calls that its kata does not allow."""
    text, libraries = job.text.decode(errors="replace"), job.request.kata.libraries
    own = (place, INCLUDE, job.beside)
    solutions = job.request.kata.root / "solutions"
    listed = (place / f"{NAME}.d").read_text(errors="replace")
    within = (job.request.within, *job.system) if job.request.within else ()
    refusal = symbols.refused_header(listed, own, text, libraries, solutions=solutions, within=within)
    if refusal is None:
        names = symbols.names_of(place / f"{NAME}.o")
        refusal = symbols.refused_definition(names, text) or symbols.refused_call(names, text, libraries)
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
