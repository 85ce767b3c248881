"""Commands, each in a folder of its own -> their exit statuses: run side by side by ninja.

A status is written down instead of returned, so that a command that fails stops no other.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.system.processes import kill_tree

# nvcc's frontend cudafe++ touches 180 MB: in small pages, that is 40 % of its time. Output is the same. Where glibc or
# the kernel has no such pages, nothing changes.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
OUT_OF_TIME = 128 + signal.SIGXCPU


class NinjaError(Exception):
    """ninja is missing or did not work, through no fault of a command."""


@dataclass(frozen=True)
class Step:
    """A command, run in ``folder``: what it says goes to log.txt there. ``what`` is shown when it has ended.

    No program that it starts may compute for more than ``cpu_s`` seconds: what other programs do on the machine does
    not matter. One that does is ended, and its status is OUT_OF_TIME.
    """

    folder: Path
    command: tuple[str, ...]
    what: str
    cpu_s: int


@dataclass(frozen=True)
class Limits:
    """What each program that a command starts may take: of address space, and of each file that it writes."""

    memory_bytes: int
    file_bytes: int


def status(folder: Path) -> int | None:
    """The exit status of the command of this folder; None while it runs."""
    try:
        text = (folder / "status").read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None


def run(
    steps: Sequence[Step],
    stage: Path,
    limits: Limits,
    *,
    parallel: int,
    tell: Callable[[str], None] | None,
    collect: Callable[[], None],
) -> None:
    """Run all steps. ``collect`` is called whenever some have ended, and at the end.

    ``progress`` is told each step that has ended, such as "[3/12] compile square_f32 for sim sm_90a".
    Raises NinjaError. At any end, it also ends its commands.
    """
    (stage / "build.ninja").write_text(_file(steps, limits))
    command = [_ninja(), "-C", str(stage), "-k", "0", "-j", str(parallel)]
    # The compilers' temporary files, too, are then gone with the stage, also those of one that was killed.
    environment = {**LARGE_PAGES, **os.environ, "NINJA_STATUS": "[%f/%t] ", "TERM": "dumb", "TMPDIR": str(stage)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )
    said: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if tell is not None and line.startswith("["):
                tell(line.rstrip())
            collect()
        process.wait()
        collect()
    except BaseException:
        kill_tree(process.pid)
        process.wait()
        raise
    if process.returncode != 0:
        raise NinjaError(f"ninja stopped with exit code {process.returncode}: {''.join(said).strip() or 'no output'}")


def _file(steps: Iterable[Step], limits: Limits) -> str:
    lines = [
        "rule run",
        # sh counts memory in units of 1024 bytes, the size of files in units of 512.
        f"  command = ulimit -v {limits.memory_bytes >> 10}; ulimit -f {limits.file_bytes >> 9}; "
        "ulimit -S -t $cpu_s; cd $folder && { $run > log.txt 2>&1; echo $$? > status; }",
        "  description = compile $what",
    ]
    for step in steps:
        lines += [
            f"build {step.folder.name}/status: run",
            f"  folder = {_escaped(shlex.quote(str(step.folder)))}",
            f"  run = {_escaped(shlex.join(step.command))}",
            f"  what = {_escaped(step.what)}",
            f"  cpu_s = {step.cpu_s}",
        ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def _ninja() -> str:
    found = shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))
    if found is None:
        raise NinjaError("ninja was not found. Install it with `pip install ninja`.")
    return found
