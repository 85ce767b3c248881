"""What to build, for which target; and what became of it.

A build is a folder of the cache that never changes; its files have been checked when it is handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grader.compile import probe
from grader.compile.nvcc_log import SOURCE
from grader.content.catalog import Kata
from grader.content.source_file import Source
from grader.content.spec import Spec
from grader.devices import SIM_ARCH
from grader.fault import Fault
from grader.verdict import Kind

NAME = Path(SOURCE).stem
TAG = "tag.txt"


class BuildError(Fault):
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
        """The simulator reads PTX, a GPU gets machine code.

        For an older card than the simulator's own, ptxas also makes machine code, which nothing runs: it refuses the
        instructions that the card lacks.
        """
        kinds = {"gpu": [self.arch], "sim": [self.virtual] if self.arch == SIM_ARCH else [self.virtual, self.arch]}
        return tuple(part for kind in kinds[self.device] for part in ("-gencode", f"arch={self.virtual},code={kind}"))

    @property
    def flags(self) -> tuple[str, ...]:
        """The simulator stands in for the CUDA runtime; a GPU gets the real one, and what is called of it is noted."""
        if self.device == "sim":
            return ("-cudart", "none", "-Xptxas", "-O0")  # ptxas is only to judge: see code
        return ("-Xptxas", "-v", "-Xlinker", "--exclude-libs=ALL", *probe.link_flags())


@dataclass(frozen=True)
class Request:
    """One file to build as one kata. ``together``: it may be compiled with others in one translation unit.
    ``within``: the folder that all it includes must lie in, but for the system's headers and the grader's."""

    kata: Kata
    spec: Spec
    source: Source
    target: Target
    warnings_are_errors: bool = False
    together: bool = False
    within: Path | None = None


@dataclass(frozen=True)
class Build:
    """A compiled kata. ``ptx`` is what the simulator executes; on a GPU it is only for reading."""

    request: Request
    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / f"{NAME}.so"

    @property
    def source(self) -> Path:
        """The learner's file as it was compiled. Its name is the one that PTX and findings know it by."""
        return self.folder / SOURCE

    @property
    def ptx(self) -> Path:
        return self.folder / f"{NAME}.ptx"

    @property
    def cubin(self) -> Path:
        """The machine code by itself, for reading; only of a build for a GPU."""
        return self.folder / f"{NAME}.cubin"

    @property
    def tag(self) -> str:
        """The file's namespace in a library of several files; empty for a library of its own."""
        try:
            return (self.folder / TAG).read_text()
        except FileNotFoundError:
            return ""

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")


@dataclass(frozen=True)
class CompileFailure:
    """Why there is no build, in one sentence, with the learner's own line.

    ``kind`` is "does not compile" if nvcc refused the file, "not allowed" if the file uses what its kata forbids,
    "unsupported" if the machine lacks a library that the kata needs.
    """

    request: Request
    message: str
    line: int | None
    log: str
    kind: Kind = Kind.DOES_NOT_COMPILE


Tell = Callable[[str], None]
