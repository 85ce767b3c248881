"""Programs -> machine code of sm_90a, without those that ptxas refuses."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from program import Program, module

from grader.compile.toolchain import find_toolchain


@dataclass(frozen=True)
class Compiled:
    """``programs`` are the kernels k0, k1, ... of ``cubin``; ``refused`` has ptxas's first word on each other one."""

    programs: Sequence[Program]
    cubin: bytes
    refused: dict[str, str]


def compile_module(programs: Sequence[Program], *, flags: Sequence[str] = ()) -> Compiled:
    """Kernels that do not compile are left out one after the other until the rest does."""
    left, refused = list(programs), {}
    while left:
        text = module(left)
        cubin, said = _ptxas(text, flags)
        if cubin is not None:
            return Compiled(left, cubin, refused)
        wrong = _errors(text, said) or _crashing(left, flags)
        refused |= {left[place].name: message for place, message in wrong.items()}
        left = [program for place, program in enumerate(left) if place not in wrong]
    return Compiled([], b"", refused)


def find_ptxas() -> Path:
    """The one that belongs to the nvcc that builds the katas."""
    return find_toolchain().nvcc.resolve().with_name("ptxas")


def _ptxas(text: str, flags: Sequence[str]) -> tuple[bytes | None, str]:
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "module.ptx"), Path(folder, "module.cubin")
        source.write_text(text)
        command = [str(find_ptxas()), "-arch=sm_90a", *flags, "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        return (cubin.read_bytes() if done.returncode == 0 else None), done.stdout + done.stderr


def _crashing(programs: Sequence[Program], flags: Sequence[str]) -> dict[int, str]:
    """ptxas ended without a word: number of each kernel that makes it do so."""
    alone = {place: _ptxas(module([program]), flags) for place, program in enumerate(programs)}
    return {place: said or "ptxas crashed" for place, (cubin, said) in alone.items() if cubin is None}


def _errors(text: str, said: str) -> dict[int, str]:
    """Number of a kernel -> the first error in it. A kernel's text begins with its first name."""
    source, found = text.splitlines(), {}
    for number, message in re.findall(r"line (\d+); error\s*: (.*)", said):
        line = int(number) - 1
        entry = next(match for at in [*range(line, -1, -1)] if (match := re.search(r"\bentry k(\d+)\(", source[at])))
        ahead = next(
            (match for at in range(line, len(source)) if (match := re.search(r"\bk(\d+)[_(]", source[at]))), None
        )
        inside = re.match(r"\.(func|const)", source[line]) is None
        place = int(entry.group(1)) if inside or ahead is None else int(ahead.group(1))
        found.setdefault(place, f"{message} | {source[line].strip()}")
    return found
