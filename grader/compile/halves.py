"""A command line of nvcc -> what nvcc makes of it, with the PTX half and the host half made side by side.

A program of its own: ``python halves.py nvcc ... kata.cu``, run in the folder of the file. nvcc works one command after
another: it preprocesses and compiles the device's code, then does the same for the host's. The two need nothing from
each other but the module's id, which is written before both. nvcc itself names its commands (--dryrun). Where they are
not those that are known here, or one of them fails, nvcc does all of it: its messages are then what they always were.

It is for one file and one architecture.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SETTING = re.compile(r"(\w+)=(.*)")
_ID = "--gen_module_id_file"
_LOG_ERRORS = "surrogateescape"


@dataclass(frozen=True)
class Plan:
    """Commands of nvcc, each for a shell: two lists that may run side by side, and what comes after both."""

    device: tuple[str, ...]
    host: tuple[str, ...]
    join: tuple[str, ...]
    settings: Mapping[str, str]


def plan(listed: str, name: str) -> Plan | None:
    """The commands that ``nvcc --dryrun --keep`` lists for NAME.cu; None where they are not those that are known."""
    lines = [line.removeprefix("#$ ").strip() for line in listed.splitlines() if line.startswith("#$ ")]
    settings = {match[1]: match[2].strip().strip('"') for line in lines if (match := _SETTING.fullmatch(line))}
    commands = [line for line in lines if not _SETTING.fullmatch(line) and not line.startswith(("rm ", "-- "))]
    known = (
        f' -E .*-o "{name}.cpp1.ii"', f' -E .*-o "{name}.cpp4.ii"', f"^cudafe\\+\\+ .*{_ID} ",
        f'/cicc" .*--module_id_file_name .*-o "{name}.ptx"', "^ptxas ", f'^fatbinary --create="{name}.fatbin" ',
        f'"{name}.cudafe1.cpp" -o "{name}.o"',
    )  # fmt: skip
    if len(commands) <= len(known) or not all(map(re.search, known, commands)) or f'"{name}.so"' not in commands[-1]:
        return None
    on_device, on_host, frontend, ptx, assembled, embedded, *rest = commands
    return Plan(
        (_with_dependencies(on_device, name, 1), ptx, assembled, embedded),
        (_with_dependencies(on_host, name, 4), frontend.replace(f"{_ID} ", "")),
        tuple(rest),
        settings,
    )


def _with_dependencies(command: str, name: str, number: int) -> str:
    return f"{command} -MD -MT {name}.so -MF {name}.{number}.d"


def side_by_side(work: Plan, name: str) -> bytes | None:
    """Run the commands; returns what they print, or None where one of them fails."""
    environment = {**os.environ, **work.settings}
    text, place = Path(f"{name}.cu").read_bytes(), os.fsencode(os.getcwd())
    Path(f"{name}.module_id").write_text(f"_{zlib.crc32(place):08x}_{len(name) + 3}_{name}_cu_{zlib.crc32(text):08x}")
    printed: dict[str, bytes | None] = {}
    device = threading.Thread(target=lambda: printed.update(device=_run(work.device, environment)))
    device.start()
    printed["host"] = _run(work.host, environment)
    device.join()
    if (host := printed["host"]) is None or (ptx := printed["device"]) is None:
        return None
    joined = _run(work.join, environment)
    return None if joined is None else host + ptx + joined


def _run(commands: Sequence[str], environment: Mapping[str, str]) -> bytes | None:
    """One after another; None where one fails. One that has used up its time ends this process, too."""
    printed = b""
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", f"exec {command}"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode == -signal.SIGXCPU:
            os._exit(128 + signal.SIGXCPU)
        if done.returncode != 0:
            return None
        printed += done.stdout
    return printed


def _join_dependencies(name: str) -> None:
    """What either half has read, as one rule: nvcc lists it under the same name."""
    own = f"{name}.so : "
    rules = [Path(f"{name}.{number}.d").read_text(errors=_LOG_ERRORS).partition(":")[2].strip() for number in (1, 4)]
    Path(f"{name}.d").write_text(own + " \\\n ".join(rules) + "\n", errors=_LOG_ERRORS)


def main(command: Sequence[str]) -> int:
    """Do what the command says. Returns its exit status."""
    name = Path(command[-1]).stem
    listed = subprocess.run([*command, "--dryrun"], capture_output=True, text=True, errors=_LOG_ERRORS)
    work = plan(listed.stderr, name) if listed.returncode == 0 else None
    printed = side_by_side(work, name) if work else None
    if printed is None:
        return subprocess.run(command).returncode
    _join_dependencies(name)
    sys.stdout.buffer.write(printed)
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.exit(status if status >= 0 else 128 - status)
