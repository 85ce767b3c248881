"""Build -> its machine code (SASS) or PTX by kernels, each instruction with the line of the kata's file it stems from.

An instruction from a header's function belongs to the line that called it, as nvcc's -lineinfo says. The
figures of a kernel are ptxas' own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.compile.build import Build
from grader.compile.nvcc_log import SOURCE
from grader.compile.symbols import demangled
from grader.compile.toolchain import Toolchain
from grader.fault import Fault

KINDS = ("sass", "ptx")
_FIX = "It is a part of the CUDA toolkit; `pip install nvidia-cuda-nvdisasm` has it, too."


class ListingError(Fault):
    """The machine code cannot be listed; the message says what to do."""


@dataclass(frozen=True)
class Instruction:
    """``line`` is of the kata's file; None where no line called for it. ``address`` is in bytes, None in PTX.

    A label is an Instruction whose text ends with a colon; it has no address.
    """

    text: str
    line: int | None
    address: int | None = None

    @property
    def is_label(self) -> bool:
        return self.text.endswith(":")


@dataclass(frozen=True)
class Kernel:
    """What ptxas says of a kernel, and its code in order. Sizes are in bytes."""

    name: str
    code: tuple[Instruction, ...]
    registers: int | None = None  # this and the rest: None where ptxas did not say
    smem_bytes: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    barriers: int | None = None

    @property
    def instructions(self) -> int:
        return sum(not item.is_label for item in self.code)

    def by_line(self) -> dict[int | None, list[Instruction]]:
        """Lines in order, each with its instructions; last, under None, what belongs to no line."""
        found: dict[int | None, list[Instruction]] = {}
        for item in self.code:
            if not item.is_label:
                found.setdefault(item.line, []).append(item)
        return dict(sorted(found.items(), key=lambda entry: (entry[0] is None, entry[0] or 0)))


def listing(build: Build, kind: str, toolchain: Toolchain) -> list[Kernel]:
    """The kernels of a build for a GPU; ``kind`` is of KINDS. Raises ListingError where nvdisasm is of no use."""
    found = _sass(_disassembled(build.cubin, toolchain)) if kind == "sass" else _ptx(build.ptx.read_text())
    figures = _figures(build.log)
    return [Kernel(demangled(name), tuple(code), **figures.get(name, {})) for name, code in found.items()]


def _disassembled(cubin: Path, toolchain: Toolchain) -> str:
    program = _find("nvdisasm", toolchain)
    done = subprocess.run([program, "-gi", "-c", str(cubin)], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        raise ListingError(f"{program} failed: {words}. Is it older than nvcc? {_FIX}")
    return done.stdout


def _find(name: str, toolchain: Toolchain) -> str:
    places = [toolchain.nvcc.parent, toolchain.toolkit / "bin"]
    places += [path for entry in sys.path for path in sorted(Path(entry or ".").glob("nvidia/cu*/bin"))]
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, places)))
    if found is None:
        raise ListingError(f"{name} was not found, and it reads machine code. {_FIX}")
    return found


# -- SASS, as `nvdisasm -gi -c` writes it: before an instruction, where it stems from, innermost first ---------------

_SECTION = re.compile(r"^\.text\.(\S+):$")
_FROM = re.compile(r'^\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)')
_LABEL = re.compile(r"^(\.L_\S+:)$")
_SASS = re.compile(r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>.*?)\s*;?\s*(?:/\*.*)?$")


def _sass(text: str) -> dict[str, list[Instruction]]:
    kernels: dict[str, list[Instruction]] = {}
    code: list[Instruction] = []
    line: int | None = None
    chain = False  # whether the annotation goes on from the line above
    for row in text.splitlines():
        if section := _SECTION.match(row):
            code, line = kernels.setdefault(section[1], []), None
        elif where := _FROM.match(row):
            ours = int(where["line"]) if _is_ours(where["file"]) else None
            line = ours if not chain or line is None else line
            chain = True
            continue
        elif label := _LABEL.match(row):
            code.append(Instruction(label[1], line))
        elif item := _SASS.match(row):
            code.append(Instruction(item["text"], line, int(item["address"], 16)))
        chain = False
    for code in kernels.values():
        while code and (code[-1].text == "NOP" or code[-1].is_label):  # they fill a cache line; nothing gets there
            code.pop()
    return kernels


def _is_ours(file: str) -> bool:
    return file.rpartition("/")[2] == SOURCE


# -- PTX, with .loc before the instructions of a line ----------------------------------------------------------------

_FUNCTION = re.compile(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(
    r"^\s*\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)\s+(?P<column>\d+)"
    r"(?:.*inlined_at\s+(?P<outer>\d+)\s+(?P<outer_line>\d+)\s+(?P<outer_column>\d+))?"
)
_Place = tuple[str, str, str]


def _ptx(text: str) -> dict[str, list[Instruction]]:
    files = dict(_FILE.findall(text))
    kernels: dict[str, list[Instruction]] = {}
    name, depth = "", 0
    line: int | None = None
    outer: dict[_Place, int | None] = {}  # a place in a header -> the line of the kata's file that it was called from
    whole = ""  # an instruction may go over several rows: a call with its arguments
    for row in text.splitlines():
        row = row.partition("//")[0].strip()
        if depth == 0 and (found := _FUNCTION.search(row)):
            name, line = found[1], None
        depth += row.count("{") - row.count("}")
        if loc := _LOC.match(row):
            line = _line_of(loc, files, outer)
        elif depth > 0 and name and (whole or not (row in ("{", "}", "") or row.startswith("."))):
            whole = f"{whole} {row}".strip()
            if whole.endswith((";", ":", "}")):
                kernels.setdefault(name, []).append(Instruction(" ".join(whole.split()), line))
                whole = ""
    return kernels


def _line_of(loc: re.Match[str], files: Mapping[str, str], outer: dict[_Place, int | None]) -> int | None:
    """Also notes it: what is inlined into a header's function refers to that function's own place."""
    place = (loc["file"], loc["line"], loc["column"])
    if _is_ours(files.get(loc["file"], "")):
        outer[place] = int(loc["line"])
    elif loc["outer"] is None:
        outer[place] = None
    elif _is_ours(files.get(loc["outer"], "")):
        outer[place] = int(loc["outer_line"])
    else:
        outer[place] = outer.get((loc["outer"], loc["outer_line"], loc["outer_column"]))
    return outer[place]


# -- what `ptxas -v` says --------------------------------------------------------------------------------------------

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?(?P<more>.*)")


def _figures(log: str) -> dict[str, dict[str, int]]:
    """Kernel -> what ptxas says of it, by the names of Kernel's fields."""
    found: dict[str, dict[str, int]] = {}
    name, in_entry = "", False
    for row in log.splitlines():
        if entry := _ENTRY.search(row):
            name = entry[1]
            found[name] = {}
        elif "Function properties for" in row:
            in_entry = row.split()[-1] == name
        elif in_entry and (stack := _STACK.search(row)):
            keys = ("stack_bytes", "spill_store_bytes", "spill_load_bytes")
            found[name] |= dict(zip(keys, map(int, stack.groups()), strict=True))
        elif name and (used := _USED.search(row)):
            smem = re.search(r"(\d+)(?:\+(\d+))? bytes smem", used["more"])
            found[name] |= {"registers": int(used[1]), "barriers": int(used[2] or 0)}
            found[name] |= {"smem_bytes": sum(int(part) for part in smem.groups(default="0")) if smem else 0}
    return found


# -- as text ---------------------------------------------------------------------------------------------------------


def headline(kernel: Kernel) -> Iterator[str]:
    """The kernel and its figures."""
    yield f"{kernel.name}: {kernel.instructions} instruction{'' if kernel.instructions == 1 else 's'}"
    if kernel.registers is not None:
        spills = f"spills {kernel.spill_store_bytes} bytes stored, {kernel.spill_load_bytes} loaded"
        smem = f"{kernel.smem_bytes} bytes of static shared memory"
        yield f"  {kernel.registers} registers, {smem}, stack frame {kernel.stack_bytes} bytes, {spills}"


def grouped(kernel: Kernel, source: str) -> Iterator[str]:
    """Line by line of the source, each with the instructions that it became."""
    for line, code in kernel.by_line().items():
        yield _source_line(line, source, f"{len(code)}")
        yield from (_row(item) for item in code)


def in_order(kernel: Kernel, source: str) -> Iterator[str]:
    """As the GPU has it: labels and branches stay where they are; the source's line stands where it changes."""
    shown: int | None = -1
    for item in kernel.code:
        if item.is_label:
            yield item.text
            continue
        if item.line != shown:
            shown = item.line
            yield _source_line(shown, source, "")
        yield _row(item)


def _source_line(line: int | None, source: str, count: str) -> str:
    if line is None:
        return f"    -  of no line{f'  [{count}]' if count else ''}"
    lines = source.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"{line:>5}  {text}{f'  [{count}]' if count else ''}"


def _row(item: Instruction) -> str:
    address = f"/*{item.address:04x}*/  " if item.address is not None else ""
    return f"         {address}{item.text}"
