"""The engine's tables -> not_ptx.txt: forms that the tables have but ptxas refuses, so that no GPU can be asked.

    PYTHONPATH=. python3 tests/differential/not_ptx.py

Needs nvcc's ptxas and no GPU.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from programs import Form, modules, parse_signatures

from grader.cache import cache_folder
from grader.devices.sim import engine_library
from grader.devices.sim.library import load_engine
from grader.toolchain import find_toolchain

FILE = Path(__file__).with_name("not_ptx.txt")


def not_ptx() -> frozenset[str]:
    """The names that were written down."""
    return frozenset(FILE.read_text().split())


def refused_by_ptxas(forms: list[Form]) -> set[str]:
    """Names of the forms that make ptxas report an error."""
    refused: set[str] = set()
    ptxas = find_toolchain().nvcc.resolve().with_name("ptxas")
    for chunk, ptx in modules(forms):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "chunk.ptx")
            file.write_text(ptx)
            command = [str(ptxas), "-arch=sm_90a", "-O0", "-o", f"{folder}/chunk.cubin", str(file)]
            said = subprocess.run(command, capture_output=True, text=True).stderr
        lines = ptx.splitlines()
        for number in map(int, re.findall(r"line (\d+); error", said)):
            above = next(line for line in reversed(lines[:number]) if line.startswith(".visible"))
            refused.add(chunk[int(re.findall(r"entry k(\d+)", above)[0])].name)
    return refused


if __name__ == "__main__":
    engine = load_engine(engine_library(cache_folder(), progress=print))
    found = refused_by_ptxas(parse_signatures(engine.sim_signatures().decode()))
    FILE.write_text("".join(f"{name}\n" for name in sorted(found)))
    print(f"{len(found)} forms written to {FILE.name}")
