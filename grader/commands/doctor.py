"""The machine -> Findings: what grading needs, whether it is there and compatible, and how to fix it if not."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from grader.compile.libraries import LIBRARIES, LibraryMissing, find_library
from grader.compile.toolchain import (
    Gpu,
    Toolchain,
    ToolchainError,
    Version,
    dotted,
    driver_runs,
    find_gpu,
    find_toolchain,
    gpu_archs,
)
from grader.content.catalog import CatalogError, find_root, load_catalog
from grader.devices.gpu import nvml
from grader.learner import progress
from grader.output.console import Commands, examples, say_json
from grader.output.terminal import painted
from grader.storage import cache

PYTHON = (3, 10)
TORCH = (2, 6)
DRIVERS = {12: 525, 13: 580}  # CUDA's major version -> the oldest driver for it (CUDA release notes, table 3)
PCI_DEVICES, NVIDIA = Path("/sys/bus/pci/devices"), "0x10de"  # as Linux shows the bus, and a vendor
FREE_GIB = 0.5  # of the cache's disk: less is nearly full
PIP = f"{sys.executable} -m pip"


@dataclass(frozen=True)
class Check:
    """One check: well or not, and what to do if not."""

    subject: str
    well: bool
    words: str


def examine() -> list[Check]:
    """Check everything. It changes nothing, except that it creates the cache folder."""
    return [found for look in CHECKS for found in look()]


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    well = sys.version_info[:2] >= PYTHON
    yield Check("python", well, version if well else f"{version}; Python {'.'.join(map(str, PYTHON))} is needed")


def _packages() -> Iterator[Check]:
    for name in ("numpy", "hypothesis", "pytest", "PyYAML", "torch"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            spared = name == "torch" and find_gpu() is None
            words = "; needed for tensors in a notebook and for baselines on a GPU" if name == "torch" else ""
            yield Check(name, spared, f"not installed{words}: `{PIP} install {name}`")
            continue
        number = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
        old = name == "torch" and number < TORCH
        yield Check(name, not old, f"{version}; torch {TORCH[0]}.{TORCH[1]} or newer is needed" if old else version)


def _ninja() -> Iterator[Check]:
    found = shutil.which("ninja") or shutil.which("ninja", path=str(sys.prefix) + "/bin")
    yield Check("ninja", found is not None, found or f"not found; `{PIP} install ninja`")


def _compilers() -> Iterator[Check]:
    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        yield Check("compilers", False, str(error))
        return
    yield Check("nvcc", True, f"{'.'.join(map(str, toolchain.nvcc_version))} at {toolchain.nvcc}")
    yield Check("g++", True, f"{'.'.join(map(str, toolchain.host_version))} at {toolchain.host}")


def _libraries() -> Iterator[Check]:
    """Libraries that only some katas need: `libraries` in difficulty.yaml names them."""
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
        yield Check(name, True, words)


def _gpu() -> Iterator[Check]:
    gpu = find_gpu()
    if gpu is None:
        yield _no_gpu(nvml.probe(), os.environ.get("CUDA_VISIBLE_DEVICES"))
        return
    yield Check("gpu", True, f"{gpu.name} ({gpu.arch}), driver {gpu.driver} for CUDA up to {dotted(gpu.cuda)}")
    with contextlib.suppress(ToolchainError):  # which _compilers has said
        toolchain = find_toolchain()
        yield _judged("driver", driver_problem(gpu, toolchain.nvcc_version), f"runs what {_nvcc(toolchain)} makes")
        yield _judged(
            "nvcc+gpu", arch_problem(gpu, toolchain, gpu_archs(toolchain.nvcc)), f"nvcc builds for {gpu.arch}"
        )
    yield from _katas_for(gpu)
    built = _torch_build()
    if built is not None:
        yield _judged("torch+gpu", torch_problem(gpu, built), f"built for CUDA {built.cuda}")
    users = nvml.Monitor(gpu.pci_bus_id).processes()
    yield _judged("gpu use", use_problem(users), "no other process")


def _katas_for(gpu: Gpu) -> Iterator[Check]:
    """How many katas need another card; the simulator grades those."""
    try:
        katas = load_catalog(find_root(), missing_skeletons=True).katas.values()
    except CatalogError:  # other commands name the problem
        return
    newer = [kata for kata in katas if not kata.runs_on(gpu.arch)]
    words = f"runs all {len(katas)} katas"
    if newer:
        words = f"runs {len(katas) - len(newer)} katas; {len(newer)} need another card: the simulator grades them"
    yield Check("gpu+katas", True, words)


def _judged(subject: str, problem: str | None, words: str) -> Check:
    return Check(subject, problem is None, problem or words)


def _nvcc(toolchain: Toolchain) -> str:
    return f"nvcc {dotted(toolchain.nvcc_version[:2])}"


_NOT_LOADED = 9
_NVML_ERRORS = {
    _NOT_LOADED: "the NVIDIA driver is not loaded; load it with `modprobe nvidia`, or start a container with its GPUs",
    18: "the NVIDIA driver was updated and the old one still runs; restart the machine",
}


def _no_gpu(status: nvml.NvmlStatus | None, visible: str | None) -> Check:
    if status is not None and status.error == _NOT_LOADED and not nvidia_on_bus():
        return Check("gpu", True, "none found, only a driver's library; katas are graded on the simulator")
    if status is not None and status.error:
        unknown = f"the NVIDIA driver does not answer (NVML error {status.error}); does `nvidia-smi`?"
        return Check("gpu", False, _NVML_ERRORS.get(status.error, unknown))
    if status is not None and status.cards and visible is not None:
        words = f"CUDA_VISIBLE_DEVICES is {visible!r} and names none of the {status.cards}; unset it to grade on one"
        return Check("gpu", visible in ("", "-1"), words)  # so set, they are hidden on purpose
    return Check("gpu", True, "none found; katas are graded on the simulator")


def nvidia_on_bus(devices: Path = PCI_DEVICES) -> bool:
    """Whether a device of NVIDIA's is on the PCI bus; yes where the system does not show its bus.

    A distribution's CUDA toolkit installs the driver's library also on a machine without a card.
    """
    vendors = [place.read_text(errors="replace").strip() for place in devices.glob("*/vendor")]
    return not vendors or NVIDIA in vendors


def driver_problem(gpu: Gpu, nvcc_version: Version) -> str | None:
    if driver_runs(gpu, nvcc_version):
        return None
    major = nvcc_version[0]
    return (
        f"driver {gpu.driver} runs CUDA up to {dotted(gpu.cuda)}, and code of nvcc {dotted(nvcc_version[:2])} needs"
        f" {major}.0 or newer. Update the driver{_to(major)}, or set KATA_NVCC to an nvcc of CUDA {gpu.cuda[0]}."
    )


def _to(major: int) -> str:
    return f" to {DRIVERS[major]} or newer" if major in DRIVERS else ""


def arch_problem(gpu: Gpu, toolchain: Toolchain, archs: tuple[int, ...]) -> str | None:
    number = 10 * gpu.capability[0] + gpu.capability[1]
    if not archs or number in archs:
        return None
    newer = number > max(archs)
    words = "does not know" if newer else "no longer builds for"
    fix = "a newer one" if newer else "an older one, such as 12.9"
    return f"{_nvcc(toolchain)} {words} {gpu.arch}. Install {fix} and set KATA_NVCC to it, or grade with --device sim."


@dataclass(frozen=True)
class TorchBuild:
    """What torch says about its build. ``cuda`` is None if it was built without; ``archs`` as sm_90 or compute_90."""

    version: str
    cuda: str | None
    available: bool
    archs: tuple[str, ...] = ()


def _torch_build() -> TorchBuild | None:
    """None if torch cannot be imported; _packages has said so."""
    try:
        import torch
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it would warn of is examined here
        available = torch.cuda.is_available()
        archs = tuple(torch.cuda.get_arch_list()) if available else ()
    return TorchBuild(torch.__version__, torch.version.cuda, available, archs)


def torch_problem(gpu: Gpu, built: TorchBuild) -> str | None:
    """Why torch's baselines cannot run on this GPU, and how to fix it."""
    name = f"torch {built.version}"
    if built.cuda is None:
        return f"{name} is built without CUDA, and baselines run in torch; `{PIP} install --force-reinstall torch`"
    major = int(built.cuda.split(".")[0])
    if major > gpu.cuda[0]:
        return (
            f"{name} is built for CUDA {built.cuda}, and driver {gpu.driver} runs CUDA up to {dotted(gpu.cuda)}. Update"
            f" the driver{_to(major)}, or install a torch built for CUDA {gpu.cuda[0]}."
        )
    if not built.available:
        return f"{name} cannot use it; does `{sys.executable} -c 'import torch; torch.zeros(1).cuda()'` say why?"
    if built.archs and not any(_runs_on(gpu, arch) for arch in built.archs):
        return f"{name} has no kernels for {gpu.arch}, only {', '.join(built.archs)}. Install one that has."
    return None


def _runs_on(gpu: Gpu, arch: str) -> bool:
    """Machine code runs on its own and on later minor versions of its architecture, PTX on every later one."""
    number = int(re.sub(r"\D", "", arch))
    there = divmod(number, 10)
    return (
        there <= gpu.capability
        if arch.startswith("compute")
        else there[0] == gpu.capability[0] and there <= gpu.capability
    )


def use_problem(processes: int) -> str | None:
    if not processes:
        return None
    use = "1 process uses" if processes == 1 else f"{processes} processes use"
    return f"{use} it, so it cannot time kernels. `nvidia-smi` lists them; end them, or grade with --no-speed."


def _progress() -> Iterator[Check]:
    place = progress.data_file()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent):
            pass
        found = progress.load(find_root())
    except OSError as error:
        words = f"{place} cannot be written ({error.strerror}). Fix that, or set KATA_DATA to another folder."
        yield Check("progress", False, words)
    except (progress.ProgressError, CatalogError) as error:
        yield Check("progress", False, str(error))
    else:
        yield Check("progress", True, found.warning or f"{len(found.events)} events in {place}")


def _cache() -> Iterator[Check]:
    try:
        folder = cache.cache_folder()
        with cache.staging(folder):
            pass
        free = shutil.disk_usage(folder).free / 2**30
    except cache.CacheError as error:
        yield Check("cache", False, str(error))
        return
    roomy = free > FREE_GIB
    yield Check("cache", roomy, f"{folder}, {free:.1f} GiB free" + ("" if roomy else "; half a GiB is needed"))


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _python,
    _packages,
    _ninja,
    _compilers,
    _libraries,
    _gpu,
    _cache,
    _progress,
)


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check compiler, torch, GPU and cache, and say how to fix them",
        description="Check everything that grading needs, and say how to fix what is wrong. Exit code 0: all is "
        "well, 1: something is to fix.",
        epilog=examples("kata doctor", "kata doctor --json"),
    )
    parser.add_argument("--json", action="store_true", help="as a JSON array, one object per check")
    parser.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    findings = examine()
    if options.json:
        say_json([asdict(finding) for finding in findings])
        return 0 if all(finding.well for finding in findings) else 1
    for finding in findings:
        mark = painted("ok  ", "green") if finding.well else painted("FIX ", "red")
        print(f"{mark} {finding.subject:<10} {finding.words}")
    return 0 if all(finding.well for finding in findings) else 1
