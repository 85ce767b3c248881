"""The machine -> Findings: what grading needs, whether it is there, and how to mend it where it is not."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

from grader import cache
from grader.libraries import LIBRARIES, LibraryMissing, find_library
from grader.toolchain import ToolchainError, find_gpu, find_toolchain

PYTHON = (3, 10)
TORCH = (2, 6)


@dataclass(frozen=True)
class Examined:
    """One thing that was looked at: well or not, and what to do if not."""

    subject: str
    well: bool
    words: str


def examine() -> list[Examined]:
    """Look at everything; nothing is changed but the cache folder, which is created."""
    return [found for look in _LOOKS for found in look()]


def about() -> str:
    """Date, card and versions, to stand beside figures that were measured here."""
    gpu, toolchain = find_gpu(), find_toolchain()
    card = f"{gpu.name} ({gpu.arch}), driver {gpu.driver}" if gpu else "no GPU"
    return f"{date.today()}, {card}, nvcc {'.'.join(map(str, toolchain.nvcc_version))}"


def _python() -> Iterator[Examined]:
    version = ".".join(map(str, sys.version_info[:3]))
    well = sys.version_info[:2] >= PYTHON
    yield Examined("python", well, version if well else f"{version}; Python {'.'.join(map(str, PYTHON))} is needed")


def _packages() -> Iterator[Examined]:
    for name in ("torch", "hypothesis", "pytest", "PyYAML"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Examined(name, False, f"not installed; `{sys.executable} -m pip install {name}`")
            continue
        number = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
        old = name == "torch" and number < TORCH
        yield Examined(name, not old, f"{version}; torch {TORCH[0]}.{TORCH[1]} or newer is needed" if old else version)


def _ninja() -> Iterator[Examined]:
    found = shutil.which("ninja") or shutil.which("ninja", path=str(sys.prefix) + "/bin")
    yield Examined("ninja", found is not None, found or f"not found; `{sys.executable} -m pip install ninja`")


def _compilers() -> Iterator[Examined]:
    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        yield Examined("compilers", False, str(error))
        return
    yield Examined("nvcc", True, f"{'.'.join(map(str, toolchain.nvcc_version))} at {toolchain.nvcc}")
    yield Examined("g++", True, f"{'.'.join(map(str, toolchain.host_version))} at {toolchain.host}")


def _libraries() -> Iterator[Examined]:
    """What only the katas need whose `libraries` in difficulty.yaml name it."""
    try:
        toolkit = find_toolchain().toolkit
    except ToolchainError:
        return
    device = "sim" if find_gpu() is None else "gpu"
    for name in LIBRARIES:
        try:
            words = str(find_library(name, toolkit=toolkit, device=device).place)
        except LibraryMissing as missing:
            words = f"none, only some katas need it: {missing}"
        yield Examined(name, True, words)


def _gpu() -> Iterator[Examined]:
    gpu = find_gpu()
    if gpu is None:
        yield Examined("gpu", True, "none found; katas are graded on the simulator")
        return
    yield Examined("gpu", True, f"{gpu.name} ({gpu.arch}), driver {gpu.driver}")
    import torch

    if not torch.cuda.is_available():
        words = f"torch {torch.__version__} cannot use it; install a torch built for CUDA, or grade with --device sim"
        yield Examined("torch+gpu", False, words)


def _cache() -> Iterator[Examined]:
    try:
        folder = cache.cache_folder()
        with cache.staging(folder):
            pass
        free = shutil.disk_usage(folder).free / 2**30
    except cache.CacheError as error:
        yield Examined("cache", False, str(error))
        return
    roomy = free > 0.5
    yield Examined("cache", roomy, f"{folder}, {free:.1f} GiB free" + ("" if roomy else "; half a GiB is needed"))


_LOOKS: tuple[Callable[[], Iterator[Examined]], ...] = (
    _python,
    _packages,
    _ninja,
    _compilers,
    _libraries,
    _gpu,
    _cache,
)
