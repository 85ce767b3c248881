"""The engine's tables -> not_ptx.txt: forms that the tables have but ptxas refuses, so that no GPU can be asked.

    PYTHONPATH=. python3 tests/differential/not_ptx.py

Needs nvcc's ptxas and no GPU. ptxas judges for sm_90a: a form of later cards only is refused too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from program import Program, chunks
from ptxas import Compiled, compile_module
from suite import forms, programs

FILE = Path(__file__).with_name("not_ptx.txt")


def not_ptx() -> frozenset[str]:
    """The names that were written down."""
    return frozenset(FILE.read_text().split())


def compile_all(programs: Iterable[Program], *, flags: tuple[str, ...] = ()) -> list[Compiled]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda chunk: compile_module(chunk, flags=flags), chunks(list(programs))))


def refused_by_ptxas(names: Iterable[str]) -> set[str]:
    """Names of the forms none of whose programs compiles."""
    written = [program for group in programs(names).values() for program in group if not program.heavy]
    compiled = compile_all(written, flags=("-O0",))
    accepted = {program.form for module in compiled for program in module.programs}
    return {program.form for program in written} - accepted


if __name__ == "__main__":
    found = refused_by_ptxas(forms())
    FILE.write_text("".join(f"{name}\n" for name in sorted(found)))
    print(f"{len(found)} forms written to {FILE.name}")
