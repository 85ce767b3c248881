"""devices/probe.cpp -> the object file that is linked to every library for a GPU, and what links it.

It is compiled once for a state of its text and of the compiler, into the cache, and by itself: a learner's file can
neither name what is in it nor put something else in its place.
"""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

from grader.compile.toolchain import Toolchain, ToolchainError
from grader.storage import cache, entries
from grader.storage.entries import Made
from grader.storage.manifest import Hashes

SOURCE = Path(__file__).resolve().parents[1] / "devices" / "gpu" / "probe.cpp"
OBJECT = "probe.o"
_FLAGS = ("-std=c++17", "-O2", "-Xcompiler", "-fPIC,-fvisibility=hidden")
_WRAPPED = re.compile(r"^(?:WRAP|LAUNCH)\(\s*(\w+),", re.MULTILINE)


@functools.cache
def link_flags() -> tuple[str, ...]:
    """What has the linker lead the CUDA runtime's functions through the probe."""
    return tuple(part for name in _WRAPPED.findall(SOURCE.read_text()) for part in ("-Xlinker", f"--wrap={name}"))


def probe_object(toolchain: Toolchain, folder: Path) -> Path:
    """The object file in the cache ``folder``. Raises ToolchainError where nvcc cannot compile it, or CacheError."""
    parts = (SOURCE.read_bytes(), toolchain.identity.encode(), " ".join(_FLAGS).encode())
    key = entries.name_of(parts)
    place = folder / "probes" / key
    if kept := entries.find(place, Hashes()):
        return kept / OBJECT
    with cache.staging(folder) as stage:
        made = stage / key
        made.mkdir()
        command = [str(toolchain.nvcc), *toolchain.nvcc_flags, *_FLAGS, "-c", str(SOURCE), "-o", str(made / OBJECT)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
            raise ToolchainError(f"{toolchain.nvcc} cannot compile {SOURCE.name}: {said}")
        [kept] = entries.keep([Made(made, place)], Hashes())
    return kept / OBJECT
