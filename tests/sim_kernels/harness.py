"""A .cu file of tests/sim_kernels -> a simulated device; lists of numbers -> buffers; markers -> line numbers."""

from __future__ import annotations

import array
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from grader.compile.toolchain import find_toolchain
from grader.devices import INSTRUCTIONS, Buffer, Call, Limits, Outcome, Scalar
from grader.devices.sim import SimDevice, engine_library
from grader.devices.sim.engine import LIBRARY
from grader.storage.cache import cache_folder

HERE = Path(__file__).parent
INCLUDE = HERE.parent.parent / "grader" / "include"
TYPECODES = {"f32": "f", "f64": "d", "i32": "i", "u32": "I", "f16": "H", "bf16": "H", "u16": "H", "u64": "Q"}
POISON = 0xA5
NEWEST = "90a"  # of the simulated cards' architectures
LIMITS = Limits(instructions=INSTRUCTIONS * 20)  # of a call that ends


def build(source: Path, *, arch: str = NEWEST) -> Path:
    """The folder with kata.so and the PTX; compiled once a state of the file and of the compiler.

    kata.so names the engine as a library that it needs: tests load it where torch's CUDA runtime may be already. It is
    the same file for an older architecture, for which nvcc makes the PTX alone.
    """
    toolchain = find_toolchain()
    headers = b"".join(header.read_bytes() for header in sorted(HERE.glob("*.cuh")))
    text = source.read_bytes() + headers + f"{toolchain.identity} {arch} {LIBRARY}".encode()
    key = hashlib.sha256(text).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"kata-sim-tests-{os.getuid()}" / f"{source.stem}-{key}"
    if (folder / "kata.so").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as staging:
        ptx, library = f"{staging}/{source.stem}.ptx", f"{staging}/kata.so"
        if arch == NEWEST:
            stub = f"{staging}/{LIBRARY}"  # nothing but the engine's name
            named = ("-shared", f"-Wl,-soname,{LIBRARY}", "-o", stub, "-xc", os.devnull)
            subprocess.run([toolchain.host, *named], check=True)
            _nvcc(
                source, arch, "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "--keep", "--keep-dir", staging,
                "-Xlinker", f"--no-as-needed,{stub}", "-o", library,
            )  # fmt: skip
        else:
            shutil.copy(build(source) / "kata.so", library)
            _nvcc(source, arch, "-ptx", "-o", ptx)
        os.replace(ptx, folder / "kata.ptx")
        os.replace(library, folder / "kata.so")
    return folder


def _nvcc(source: Path, arch: str, *flags: str) -> None:
    """-O0 is for the host's code: g++ needs half of what it needs with -O3, and the PTX is the same."""
    toolchain = find_toolchain()
    command = [
        str(toolchain.nvcc), *toolchain.nvcc_flags, "-std=c++17", "-O0", "-lineinfo", "-I", str(INCLUDE),
        "-gencode", f"arch=compute_{arch},code=compute_{arch}", *flags, str(source),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def engine() -> Path:
    return engine_library(cache_folder())


def open_device(source: Path, *, arch: str = NEWEST, threads: int = 2, ptx: Path | None = None) -> SimDevice:
    folder = build(source, arch=arch)
    return SimDevice(
        engine=engine(), library=folder / "kata.so", ptx=ptx or folder / "kata.ptx", source=source,
        arch=f"sm_{arch}", threads=threads,
    )  # fmt: skip


def pack(dtype: str, values: Sequence[float]) -> bytes:
    return array.array(TYPECODES[dtype], values).tobytes()


def unpack(dtype: str, data: bytes) -> list[float]:
    return list(array.array(TYPECODES[dtype], data))


def given(name: str, dtype: str, values: Sequence[float], *, offset_bytes: int = 0) -> Buffer:
    size = array.array(TYPECODES[dtype]).itemsize
    return Buffer(name, "in", dtype, size, (len(values),), pack(dtype, values), offset_bytes)


def wanted(name: str, dtype: str, count: int, *, offset_bytes: int = 0) -> Buffer:
    size = array.array(TYPECODES[dtype]).itemsize
    return Buffer(name, "out", dtype, size, (count,), bytes([POISON]) * (size * count), offset_bytes)


def run(
    device: SimDevice,
    launcher: str,
    *arguments: Buffer | int,
    seed: int = 0,
    limits: Limits = LIMITS,
    forgive_copies: bool = False,
) -> Outcome:
    buffers = tuple(a for a in arguments if isinstance(a, Buffer))
    scalars = tuple(Scalar(f"s{i}", "int", a) for i, a in enumerate(arguments) if isinstance(a, int))
    return device.call(Call(launcher, buffers, scalars, seed=seed, limits=limits, forgive_copies=forgive_copies))


def line_of(source: Path, marker: str) -> int:
    """The number of the one line that ends with ``// <marker>``."""
    pattern = re.compile(rf"//\s*{re.escape(marker)}\s*$")
    lines = [number for number, text in enumerate(source.read_text().splitlines(), 1) if pattern.search(text)]
    assert len(lines) == 1, f"{source.name} has {len(lines)} lines marked {marker}"
    return lines[0]
