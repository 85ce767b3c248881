"""Request -> PTX close to the file's source, as it is or with edits of its lines: what the search for a repair runs.

Only a grade that fails imports this module and what it needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from grader.compile import ninja
from grader.compile.build import SIGNATURE, common_key, lay_out, plan
from grader.compile.compilation import run
from grader.compile.dependencies import BESIDE
from grader.compile.edit_writer import Edit, Edited, Refused
from grader.compile.nvcc_log import SOURCE
from grader.compile.request import NAME, CompileFailure, Request
from grader.compile.solution_edits import WHOLES, towards
from grader.compile.source_edits import edited
from grader.compile.toolchain import find_toolchain
from grader.content.skeleton import read
from grader.storage import cache

MOST_REFUSED = 4  # times that nvcc is asked for the PTX of edits
SOURCE_LIKE_LIMIT_S = 5  # of computing: a file whose headers take longer goes without
_SAID = re.compile(r"\S+\(\d+\): (?:error|warning|remark)")
_REFUSED = re.compile(rf"{SOURCE}\((\d+)\): error")
_UNKNOWN = re.compile(r": error: identifier \"(\w+)\" is undefined")
_INSTANTIATED = re.compile(r" *detected during.* at line (\d+)$")


def source_like_ptx(request: Request, folder: Path) -> Path | None:
    """The file's PTX as close to its source as nvcc makes it, in a folder to write to: nothing unrolled, no two equal
    expressions merged, most functions called. None where there is none, or the file shares a unit with others."""
    made, _ = _source_like(request, folder, None)
    return made


def edited_ptx(
    request: Request, folder: Path, within: Collection[int], doubts: Mapping[int, float]
) -> tuple[Path, tuple[Edit, ...]] | None:
    """The same of the file with edits of its lines ``within``, and these; ``doubts`` are as in `edited`. nvcc refuses
    some: then without."""
    text = request.source.data.decode(errors="replace")
    return _accepted(request, folder, lambda without: edited(text, within, without, doubts))


def solved_ptx(request: Request, folder: Path) -> tuple[Path, tuple[Edit, ...]] | None:
    """The same with edits of what the kata's solution has in another way; None where that cannot be read."""
    text = request.source.data.decode(errors="replace")
    try:
        solution = read(request.kata.solution_path)
    except OSError:
        return None
    return _accepted(request, folder, lambda without: towards(text, solution, without))


def _accepted(
    request: Request, folder: Path, make: Callable[[Refused], Edited]
) -> tuple[Path, tuple[Edit, ...]] | None:
    """Those of a file's edits that nvcc accepts."""
    without = Refused()
    for _ in range(MOST_REFUSED):
        made = make(without)
        if not made.edits:
            return None
        ptx, log = _source_like(request, folder, made.text.encode())
        if ptx is not None:
            return ptx, made.edits
        lines, names = _refused(log, without.names)
        if not names and lines.isdisjoint(each.line for each in made.edits):
            lines |= {WHOLES}  # what stands in a block of its own is not known there
        if not names and lines <= without.lines:
            return None
        without = Refused(without.lines | lines, without.names | names)
    return None


def _refused(log: str, known: Collection[str] = ()) -> tuple[set[int], set[str]]:
    """The lines of a file that nvcc found at fault, and those that made it read a template that is; not those of its
    warnings. Where it does not know a name, that name is at fault, unless it is ``known`` and still there."""
    lines, names, is_refused = set[int](), set[str](), False
    for line in log.split("\n"):
        if _SAID.match(line) is not None:
            is_refused = (refused := _REFUSED.match(line)) is not None
            if refused is None:
                continue
            if (unknown := _UNKNOWN.search(line)) is not None and unknown[1] not in known:
                names.add(unknown[1])
                is_refused = False
            else:
                lines.add(int(refused[1]))
        elif is_refused and (made := _INSTANTIATED.match(line)) is not None:
            lines.add(int(made[1]))
    return lines, names


def _source_like(request: Request, folder: Path, text: bytes | None) -> tuple[Path | None, str]:
    """The PTX, by default of the file itself, and what nvcc said."""
    toolchain = find_toolchain()
    job = plan(request, toolchain, common_key(), None)
    if isinstance(job, CompileFailure) or job.request.together:
        return None, ""
    with cache.staging(folder) as stage:
        place = stage / "file"
        lay_out(job, place)
        if text is not None:
            (place / SOURCE).write_bytes(text)
        flags = [flag for flag in job.command if flag != "-shared"]
        target = ["-arch", request.target.virtual, "-I", str(place / BESIDE), "-include", SIGNATURE]
        command = (*flags, "-ptx", "-Xcicc", "-O0", *target, "-o", f"{NAME}.ptx", SOURCE)
        step = ninja.Step(place, command, f"{request.kata.name}, like its source", SOURCE_LIKE_LIMIT_S)
        run([step], stage, 1, None, lambda: None)
        if ninja.status(place) != 0:
            return None, (place / "log.txt").read_text(errors="replace")
        made = "source-like" if text is None else "edited"
        return (place / f"{NAME}.ptx").replace(folder / f"{NAME}.{made}.ptx"), ""
