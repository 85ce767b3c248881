"""The machine -> Toolchain: which nvcc and which host compiler build the katas; and which GPU is there, if any.

What is found works together: nvcc is new enough for the katas and the host compiler is one that this nvcc accepts.
Where nothing fits, one ToolchainError says what to install. Nothing here imports torch or starts a CUDA context.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from grader.devices.gpu import nvml
from grader.devices.gpu.nvml import Nvml, NvmlError
from grader.fault import Fault
from grader.storage import cache

Version = tuple[int, ...]

OLDEST_NVCC: Version = (12, 0)  # the first that knows sm_90a, which the katas are built for
TOOLKIT_FOLDERS = (Path("/usr/local"), Path("/opt"))
NEWEST_GCC = 15  # that nvcc 13.0 accepts; for an nvcc whose own headers do not say
_NVCC_FIX = "Install one with `pip install -e .[nvcc]`, or set KATA_NVCC to yours."
_HOST_FIX = "Install one with `apt install g++`, or set KATA_CXX to yours."


class ToolchainError(Fault):
    """No compiler that can build the katas; the message says which one to install."""


@dataclass(frozen=True)
class Toolchain:
    """``nvcc_flags`` belong to every call of nvcc that compiles or links; ``identity`` changes when a compiler does.

    ``toolkit`` is the folder above nvcc's bin, where its headers and libraries are.
    """

    toolkit: Path
    nvcc: Path
    nvcc_version: Version
    host: Path
    host_version: Version
    nvcc_flags: tuple[str, ...]
    identity: str


@dataclass(frozen=True)
class Gpu:
    """The first GPU that CUDA programs may use. ``cuda`` is the newest CUDA version that its driver runs."""

    name: str
    capability: tuple[int, int]
    driver: str
    cuda: Version
    memory_bytes: int = 0  # 0: not known
    pci_bus_id: str = ""  # as NVML writes it: 00000000:3B:00.0; empty: not known
    uuid: str = ""

    @property
    def arch(self) -> str:
        """What nvcc builds for. From Hopper on with the instructions of this very architecture: sm_90a."""
        return f"sm_{self.capability[0]}{self.capability[1]}{'a' if self.capability >= (9, 0) else ''}"


@functools.cache
def find_toolchain() -> Toolchain:
    """The first nvcc that is new enough and a host compiler that it accepts. Raises ToolchainError.

    With a GPU, an nvcc whose code runs on it comes before one whose code does not.
    """
    nvcc, nvcc_version = find_nvcc(find_gpu())
    top = _toolkit(nvcc)
    host, host_version = _find_host(top, nvcc_version)
    flags = ["-ccbin", str(host)]
    if not (top / "lib64").is_dir() and (top / "lib").is_dir() and "site-packages" in top.parts:
        flags += ["-L", str(top / "lib")]  # nvcc itself looks only in lib64, and the PyPI wheels have none
    parts = [_fingerprint(nvcc), _fingerprint(top / "bin" / "nvcc"), dotted(nvcc_version)]
    parts += [_fingerprint(host), dotted(host_version)]
    return Toolchain(top, nvcc, nvcc_version, host, host_version, tuple(flags), " ".join(parts))


def find_nvcc(gpu: Gpu | None = None) -> tuple[Path, Version]:
    """The first nvcc that is new enough, and its version: if there is one, one whose code runs on the GPU.

    Raises ToolchainError.
    """
    old: list[str] = []
    others: list[tuple[Path, Version]] = []
    for path in _nvcc_candidates():
        version = _nvcc_version(path)
        if version is not None and version >= OLDEST_NVCC:
            if gpu is None or (builds_for(path, gpu) and driver_runs(gpu, version)):
                return path, version
            others.append((path, version))
        old.append(f"{path} ({dotted(version)})" if version else f"{path} (does not run)")
    if others:
        return others[0]
    if old:
        raise ToolchainError(f"No nvcc of {dotted(OLDEST_NVCC)} or newer was found, only {', '.join(old)}. {_NVCC_FIX}")
    raise ToolchainError(f"No nvcc was found, and it compiles the katas. {_NVCC_FIX}")


def builds_for(nvcc: Path, gpu: Gpu) -> bool:
    """Whether this nvcc makes machine code for the GPU; yes where it does not say what it makes code for.

    nvcc 12.8 was the first for sm_100 and sm_120, and nvcc 13 the first without sm_70 and older ones.
    """
    known = gpu_archs(nvcc)
    return not known or 10 * gpu.capability[0] + gpu.capability[1] in known


def driver_runs(gpu: Gpu, nvcc_version: Version) -> bool:
    """A driver runs code of a toolkit of its own major version, also of a newer minor one, and code of older ones."""
    return gpu.cuda[0] >= nvcc_version[0]


@functools.cache
def gpu_archs(nvcc: Path) -> tuple[int, ...]:
    """The architectures that nvcc builds for, as 90 for sm_90, in order; empty if it does not say."""
    said = _output(nvcc, "--list-gpu-code")
    return tuple(sorted({int(number) for number in re.findall(r"\bsm_(\d+)", said)}))


def _nvcc_candidates() -> Iterator[Path]:
    """Every nvcc there is, best first, each once. KATA_NVCC, where it is set, is the only one."""
    if wanted := os.environ.get("KATA_NVCC"):
        found = shutil.which(wanted)
        if found is None:
            raise ToolchainError(f"KATA_NVCC is {wanted!r}, which is not a program. Correct it or unset it.")
        yield Path(found).absolute()
        return
    seen: set[Path] = set()
    for path in _nvcc_places():
        if os.access(path, os.X_OK) and path.is_file() and path.resolve() not in seen:
            seen.add(path.resolve())
            yield path.absolute()


def _nvcc_places() -> Iterator[Path]:
    if found := shutil.which("nvcc"):
        yield Path(found)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home) / "bin" / "nvcc"
    for folder in TOOLKIT_FOLDERS:
        yield folder / "cuda" / "bin" / "nvcc"
        yield from sorted(folder.glob("cuda-*/bin/nvcc"), key=_by_version, reverse=True)
    for entry in sys.path:
        yield from sorted(Path(entry or ".").glob("nvidia/cu*/bin/nvcc"), key=_by_version, reverse=True)


def _by_version(path: Path) -> Version:
    return tuple(int(digits) for digits in re.findall(r"\d+", path.parent.parent.name))


def _nvcc_version(nvcc: Path) -> Version | None:
    return _version(r"\bV(\d+(?:\.\d+)+)", _output(nvcc, "--version"))


def _toolkit(nvcc: Path) -> Path:
    """The folder above nvcc's bin, asked of nvcc itself: the one on PATH may be a script that calls another."""
    for words in _dry_runs(nvcc):
        if said := re.search(r"^#\$ TOP=(.+)$", words, re.MULTILINE):
            return Path(os.path.realpath(said[1].strip()))
    return nvcc.resolve().parent.parent


def _dry_runs(nvcc: Path) -> Iterator[str]:
    """What nvcc would do. It makes temporary files all the same: those of one that is killed are swept with the stages
    of the cache; where the cache has no room, they are made where they always are."""
    arguments = ("--dryrun", "-E", "-x", "cu", os.devnull)
    with contextlib.suppress(cache.CacheError), cache.staging(cache.cache_folder()) as stage:
        yield _output(nvcc, *arguments, TMPDIR=str(stage))
    yield _output(nvcc, *arguments)


def _find_host(top: Path, nvcc_version: Version) -> tuple[Path, Version]:
    """A g++ that this nvcc accepts: KATA_CXX, or g++ by any of its usual names."""
    newest = _newest_gcc(top)
    wanted = os.environ.get("KATA_CXX")
    names = [wanted] if wanted else ["g++", *(f"g++-{major}" for major in range(newest, 8, -1))]
    refused: list[str] = []
    for name in names:
        found = shutil.which(name)
        version = (
            _version(r"^(\d+(?:\.\d+)*)", _output(Path(found), "-dumpfullversion", "-dumpversion")) if found else None
        )
        if found and version and version[0] <= newest:
            return Path(found).absolute(), version
        if found:
            refused.append(f"{found} ({dotted(version)})" if version else f"{found} (does not run)")
    if refused:
        raise ToolchainError(
            f"nvcc {dotted(nvcc_version)} accepts g++ up to {newest}, and there is only {', '.join(refused)}."
            f" Install one with `apt install g++-{newest}`, or set KATA_CXX to yours."
        )
    if wanted:
        raise ToolchainError(f"KATA_CXX is {wanted!r}, which is not a program. Correct it or unset it.")
    raise ToolchainError(f"No g++ was found, and nvcc needs it for a kata's host code. {_HOST_FIX}")


def _newest_gcc(top: Path) -> int:
    """The newest major version of gcc that this nvcc accepts, read where nvcc itself checks it."""
    for include in (top / "include", *sorted(top.glob("targets/*/include"))):
        config = include / "crt" / "host_config.h"
        if config.is_file() and (found := re.search(r"#if __GNUC__ > (\d+)", config.read_text(errors="replace"))):
            return int(found[1])
    return NEWEST_GCC


_TALK: Any = {"capture_output": True, "text": True, "errors": "replace", "timeout": 30, "stdin": subprocess.DEVNULL}


def _output(program: Path, *arguments: str, **environment: str) -> str:
    """What a program says on either channel; "" where it cannot be run."""
    try:
        ran = subprocess.run([program, *arguments], check=False, env={**os.environ, **environment}, **_TALK)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"{ran.stdout}{ran.stderr}"


def _version(pattern: str, text: str) -> Version | None:
    found = re.search(pattern, text, re.MULTILINE)
    return tuple(int(digits) for digits in found[1].split(".")) if found else None


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _fingerprint(path: Path) -> str:
    try:
        stat = path.resolve().stat()
    except OSError:
        return f"{path}:absent"
    return f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"


# The GPU, asked of NVML


def find_gpu(*, library: str = nvml.LIBRARY) -> Gpu | None:
    """The first GPU in CUDA_VISIBLE_DEVICES (all of them where it is not set), or None. Takes milliseconds."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if wanted in ("", "-1", "NoDevFiles"):
        return None
    if (wanted, library) in _FOUND:
        return _FOUND[wanted, library]
    try:
        with Nvml(library) as answers:
            found = _first_gpu(answers, wanted)
    except NvmlError:  # no driver, or one older than a function that is called
        return None
    if found is not None and library == nvml.LIBRARY:
        _FOUND[wanted, library] = found
    return found


_FOUND: dict[tuple[str, str], Gpu] = {}  # a GPU stays what it is; a grade asks nine times


def _first_gpu(answers: Nvml, wanted: str) -> Gpu | None:
    found = answers.card(wanted)
    if found is None:
        return None
    card = answers.whole(found)  # a slice has the capability of the whole card
    capability = answers.capability(card)
    if capability is None:
        return None
    return Gpu(
        name=answers.name(card),
        capability=capability,
        driver=answers.driver(),
        cuda=answers.cuda(),
        memory_bytes=answers.memory_bytes(card),
        pci_bus_id=answers.pci_bus_id(card),
        uuid=answers.uuid(card),
    )


def visible_gpus(*, library: str = nvml.LIBRARY) -> list[str]:
    """The GPUs that CUDA programs may use, each as CUDA_VISIBLE_DEVICES names one; in the order of the PCI bus."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = [name.strip() for name in named.split(",")]
        ends = [place for place, name in enumerate(names) if name in ("", "-1", "NoDevFiles")]
        return names[: ends[0]] if ends else names
    status = nvml.probe(library)
    return [str(index) for index in range(status.cards)] if status else []


def gpu_of_worker(index: int) -> dict[str, str]:
    """What the environment of one of several processes says, so that worker i uses GPU i modulo their number."""
    gpus = visible_gpus()
    if len(gpus) < 2:
        return {}
    return {"CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)], "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def about() -> str:
    """Date, card and versions, to stand beside figures that were measured here."""
    form = "{date}, {card} ({arch}), driver {driver}, nvcc {nvcc}" if find_gpu() else "{date}, {card}, nvcc {nvcc}"
    return form.format(**machine())


def machine() -> dict[str, str]:
    """The same by names, with torch's version."""
    from importlib.metadata import version

    gpu, toolchain = find_gpu(), find_toolchain()
    return {
        "date": str(date.today()),
        "card": gpu.name if gpu else "no GPU",
        "arch": gpu.arch if gpu else "none",
        "driver": gpu.driver if gpu else "none",
        "nvcc": ".".join(map(str, toolchain.nvcc_version)),
        "torch": version("torch").partition("+")[0],
    }
