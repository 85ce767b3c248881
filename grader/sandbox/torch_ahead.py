"""A command line -> the process that imports torch for its grade, started before anything else is imported.

That import takes longer than all that comes before a file is timed. Whether it will be needed is read from the
catalogue's text: a mistake costs a process that is not used, or the tenths of a second that were to be saved.
"""

from __future__ import annotations

import atexit
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from grader.system.processes import grader_environment

_CATALOGUE = Path(__file__).resolve().parents[2] / "difficulty.yaml"
GPUS = ("/dev/nvidiactl", "/dev/dxg")  # of Linux, and of Windows below WSL
Begun = tuple[socket.socket, subprocess.Popen[bytes]]
_begun: Begun | None = None


def begin(arguments: Sequence[str]) -> None:
    """Start it where this command will want it."""
    global _begun
    if wanted(arguments) and any(map(os.path.exists, GPUS)):
        _begun = start()
        atexit.register(_end)


def take() -> Begun | None:
    """The process, if there is one: it is then the caller's."""
    global _begun
    taken, _begun = _begun, None
    return taken


def start(*, torch: bool = True) -> Begun:
    """A template of children, and the socket by which it is asked for them."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "grader.sandbox.template", *(["torch", str(os.getpid())] if torch else [])]
        null = subprocess.DEVNULL
        return ours, subprocess.Popen(command, stdin=theirs.fileno(), stdout=null, env=grader_environment())


def _end() -> None:
    if (begun := take()) is not None:
        ours, process = begun
        process.kill()
        ours.close()
        process.wait()


def wanted(arguments: Sequence[str], catalogue: Path = _CATALOGUE) -> bool:
    """Whether a command of these arguments times a kata beside torch."""
    untimed = {"sim", "--device=sim", "--no-speed"}.intersection(arguments)
    if untimed or not {"grade", "bench"}.intersection(arguments[:1]):
        return False
    try:
        text = catalogue.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return False
    return any(_times_torch(text, name, arguments[0]) for name in arguments[1:] if not name.startswith("-"))


def _times_torch(text: str, name: str, command: str) -> bool:
    found = re.search(rf"^  {re.escape(name)}:\n((?:    .*\n)*)", text, re.MULTILINE)
    if found is None or (command == "grade" and re.search(r"^    level: easy$", found[1], re.MULTILINE)):
        return False
    said = re.findall(r"^      (?:baseline|also_compare): (.*)$", found[1], re.MULTILINE)
    baselines = {word.strip() for words in said for word in words.strip("[]").split(",")}
    return bool(baselines - {"copy", "read"})
