"""nvcc with a memory, for tests that are not about what nvcc makes.

The file is preprocessed as always, for the device and for the host, but where read_before.py knows what comes of it.
What the compilers make of the two texts follows from these and from the commands: where the store has it for the same,
it is copied from there. The same are two texts whose lines of code are the same and stand in the same places. It does
not matter where a file without code is read. Nothing is kept that has a warning, which may say so, or of which the
assembler may read a file. nvcc does everything that is not known here, and all that fails.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "grader" / "compile"))

import subprocess

import halves

# What makes the host's assembler read a file that stands in no preprocessed text; adjacent literals are one.
_READS = (b"incbin", b".include", b".macro", b".irp", b".rept", b".altmacro")
_BETWEEN_LITERALS = re.compile(rb'(?<!\\)"\s*(?:#[^\n]*\n\s*)*"')
_MARKER = re.compile(rb'# (\d+) ("[^"\n]*")([ \d]*)$')  # a line of a file; 3: of the system's


def main(store: str, about: str, command: list[str]) -> tuple[bytes, str | None] | None:
    """What nvcc prints, with its files made in this folder, and the folder of the store that has them; None where nvcc
    is to do it."""
    name = Path(command[-1]).stem
    listed = subprocess.run([*command, "--dryrun"], capture_output=True, text=True, errors="surrogateescape")
    work = halves.plan(listed.stderr, name) if listed.returncode == 0 else None
    if work is None:
        return None
    environment = {**os.environ, **work.settings}
    before = [halves._run(each[:1], environment) for each in (work.device, work.host)]
    if any(done.printed or done.status for done in before):  # a warning may be of either half
        return None
    joined = _BETWEEN_LITERALS.sub(b"", Path(f"{name}.cpp4.ii").read_bytes())
    may_read = any(word in joined for word in _READS)
    place = Path(store) / _key(about, work, name)
    if place.is_dir() and not may_read:
        for file in place.iterdir():
            shutil.copy(file, file.name)
        said = b""
    else:
        there = set(os.listdir())
        rest = halves.side_by_side(replace(work, device=work.device[1:], host=work.host[1:]), name)
        if rest is None or rest.status != 0:
            return None
        said = rest.printed
        if not said and not may_read:
            _remember(place, set(os.listdir()) - there)
    halves._join_dependencies(name)
    return said, str(place) if place.is_dir() and not may_read else None


def _key(about: str, work: halves.Plan, name: str) -> str:
    digest = hashlib.sha256(about.encode())
    here = os.fsencode(os.getcwd())
    for command in (*work.device, *work.host, work.compiler, *work.join):
        digest.update(os.fsencode(command).replace(here, b"") + b"\0")
    for text in ("cpp1.ii", "cpp4.ii"):
        digest.update(_code(Path(f"{name}.{text}").read_bytes().replace(here, b"")) + b"\0")
    return digest.hexdigest()


def _code(text: bytes) -> bytes:
    """The lines with code of a preprocessed text, with the file and the line that each stands in, if these are not
    those after the line before."""
    found: list[bytes] = []
    file, line, next_place = b"", 1, (b"", 0)
    for words in text.split(b"\n"):
        if marker := _MARKER.match(words):
            line, file = int(marker[1]), marker[2] + b" 3" * (b"3" in marker[3])
            continue
        if words.strip():
            if (file, line) != next_place:
                found.append(b"# %d %s" % (line, file))
            found.append(words)
            next_place = (file, line + 1)
        line += 1
    return b"\n".join(found)


def _remember(place: Path, made: set[str]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(dir=place.parent, prefix="staged-"))
    for file in made:
        if not file.endswith((".ii", ".d")):
            shutil.copy(file, stage)
    try:
        stage.rename(place)
    except OSError:  # another has been quicker
        shutil.rmtree(stage)
