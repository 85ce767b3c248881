"""A library that a kata may use -> where its headers and its binary are on this machine.

A kata names its libraries in difficulty.yaml; every other kata needs only the CUDA runtime. A library that is not
installed is a LibraryMissing with the command that installs it. Only the katas that need it cannot be graded.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# what the simulator has for cuBLAS
CUBLAS_STAND_IN = Path(__file__).resolve().parents[1] / "devices" / "sim" / "cublas"


class LibraryMissing(Exception):
    """A kata's library is not on this machine; the message says how to get it."""


@dataclass(frozen=True)
class Library:
    """``flags`` go to nvcc; ``identity`` changes when what they name does; ``place`` is for people."""

    flags: tuple[str, ...]
    identity: str
    place: Path


@dataclass(frozen=True)
class _Kind:
    """``folders`` are those that its headers stand in, below a folder for includes."""

    title: str
    folders: tuple[str, ...]
    find: Callable[[Path, str], Library]


def find_library(name: str, *, toolkit: Path, device: str) -> Library:
    """The library called ``name`` in difficulty.yaml, to build for ``device``, "sim" or "gpu".

    ``toolkit`` is the folder above nvcc's bin. Raises LibraryMissing.
    """
    return LIBRARIES[name].find(toolkit, device)


def library_of_header(path: str) -> str | None:
    """The title of the library that an included file belongs to, by the folder that it stands in; None for others."""
    parts = Path(path).parts[:-1]
    return next((kind.title for kind in (*LIBRARIES.values(), *_OTHERS) if set(parts) & set(kind.folders)), None)


def allowed_headers(names: tuple[str, ...]) -> set[str]:
    """Titles of the libraries whose headers a kata with these libraries may include."""
    return {LIBRARIES[name].title for name in names}


# CUTLASS with CuTe: headers only


CUTLASS_FIX = (
    "Install it with `pip install --no-deps nvidia-cutlass==4.2.0.0`, or set CUTLASS_PATH to a clone of CUTLASS."
)


def _find_cutlass(toolkit: Path, device: str) -> Library:
    wanted = os.environ.get("CUTLASS_PATH")
    places = [Path(wanted)] if wanted else list(_cutlass_places(toolkit))
    for place in places:
        for include in (place / "include", place):
            version = include / "cutlass" / "version.h"
            if version.is_file() and (include / "cute" / "tensor.hpp").is_file():
                # As system headers: the learner need not fix what a compiler warns about in them.
                return Library(("-isystem", str(include)), f"{include} {_fingerprint(version)}", include)
    if wanted:
        raise LibraryMissing(f"CUTLASS_PATH is {wanted!r}, and there is no include/cute/tensor.hpp in it. Correct it.")
    raise LibraryMissing(f"the CUTLASS headers (CuTe) are not on this machine. {CUTLASS_FIX}")


def _cutlass_places(toolkit: Path) -> Iterator[Path]:
    found = importlib.util.find_spec("cutlass_library")  # the module of the package nvidia-cutlass, not imported
    for folder in (found.submodule_search_locations or ()) if found else ():
        yield Path(folder) / "source"
    yield from (toolkit, Path("/usr/local/cutlass"), Path("/opt/cutlass"), Path("/usr/local"), Path("/usr"))


# cuBLAS: of the toolkit, or of the wheels that torch installs


CUBLAS_HEADER = "cublas_v2.h"
CUBLAS_ON_GPU = "A GPU grades this kata (--device gpu), and the simulator all others."
CUBLAS_FIX = "Install it with `pip install nvidia-cublas`, or use an nvcc of a whole CUDA toolkit."


def _find_cublas(toolkit: Path, device: str) -> Library:
    """The simulator answers the calls itself and needs declarations only: our own, the same on every machine."""
    own = CUBLAS_STAND_IN
    if device == "sim":
        if not (own / CUBLAS_HEADER).is_file():
            raise LibraryMissing(f"the simulator's cuBLAS ({own.name}/{CUBLAS_HEADER}) is not here. {CUBLAS_ON_GPU}")
        return Library(("-I", str(own)), _fingerprint(own / CUBLAS_HEADER), own)
    for folder in _cublas_folders(toolkit):
        for library in sorted(folder.glob("libcublas.so*"), key=lambda path: len(path.name)):
            places = (folder.parent / "include", own)
            headers = next((path for path in places if (path / CUBLAS_HEADER).is_file()), None)
            if headers is None:
                continue
            link = (str(library), f"-rpath={folder}")
            flags = ("-I", str(headers), *(word for item in link for word in ("-Xlinker", item)))
            return Library(flags, f"{headers} {_fingerprint(library)}", library)
    raise LibraryMissing(f"cuBLAS (libcublas.so, cublas_v2.h) is not on this machine. {CUBLAS_FIX}")


def _cublas_folders(toolkit: Path) -> Iterator[Path]:
    yield from (toolkit / "lib64", toolkit / "lib", *_platform_folders(toolkit))
    for entry in sys.path:
        for pattern in ("nvidia/cu[0-9]*/lib", "nvidia/cublas/lib"):
            yield from sorted(Path(entry or ".").glob(pattern), reverse=True)


# The CUDA driver: what makes tensor maps. The simulator has it itself; for a GPU, the toolkit's stub is linked.


DRIVER_FIX = "Use an nvcc of a whole CUDA toolkit, which has lib64/stubs/libcuda.so."


def _find_driver(toolkit: Path, device: str) -> Library:
    if device == "sim":
        return Library((), "of the simulator", Path(__file__).resolve().parents[1] / "devices" / "sim" / "engine")
    for folder in (toolkit / "lib64", *_platform_folders(toolkit)):
        if (stub := folder / "stubs" / "libcuda.so").is_file():
            return Library(("-Xlinker", str(stub)), _fingerprint(stub), stub)
    raise LibraryMissing(f"the CUDA driver's stub (libcuda.so) is not on this machine. {DRIVER_FIX}")


def _platform_folders(toolkit: Path) -> Iterator[Path]:
    """Folders of libraries that are named for a platform: NVIDIA's, and those of Debian's and Ubuntu's packages."""
    for pattern in ("targets/*/lib", "lib/*-linux-gnu"):
        yield from sorted(toolkit.glob(pattern))


def _fingerprint(path: Path) -> str:
    stat = path.resolve().stat()
    return f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"


LIBRARIES: Mapping[str, _Kind] = {
    "cutlass": _Kind("CUTLASS", ("cutlass", "cute"), _find_cutlass),
    "cublas": _Kind("cuBLAS", (), _find_cublas),
    "driver": _Kind("the CUDA driver's tensor maps", (), _find_driver),
}
# Those that no kata uses.
_OTHERS = (_Kind("CUB", ("cub",), _find_cutlass), _Kind("Thrust", ("thrust",), _find_cutlass))
