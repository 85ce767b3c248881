"""Files of several katas -> one translation unit, and what nvcc made of it -> what each file would have got.

Nearly all of what nvcc does for a small file is reading the CUDA headers. So the maintainer's checks compile many
files in one run of nvcc. Each file is a namespace of its own, and its launcher gets a name of its own. A file in which
warnings are errors shares a unit for the newest simulated card only with files that include the same headers: it still
sees exactly what it includes itself.

A file with the launcher of another file (host_view.py) needs no library of its own. Its PTX is given the names that
the other file's library knows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.compile.host_view import host_view
from grader.compile.nvcc_log import SOURCE
from grader.content.functions import without_comments

MOST_FILES = 96  # in a unit: from here on, the headers are a small part of nvcc's work also for the shortest files
MOST_BYTES = 640_000  # of source text in a unit, so that a unit of long kernels ends within seconds
TAG_DIGITS = 16
# For a unit beside the flags of its files. -O1 is for the host's code: with -O3 g++ would need longer for the launchers
# of many files than nvcc for their kernels. Warnings are for ``warned``.
FLAGS = ("-O1", "-Xcompiler", "-Wall")

# A library in which one file calls what the simulator's runtime lacks cannot be loaded for any of them. So files that
# call more of the runtime than nearly all do are compiled alone.
_CALLS = """
    cudaDeviceGetAttribute cudaDeviceGetDefaultMemPool cudaDeviceSynchronize cudaFreeAsync cudaFuncSetAttribute
    cudaGetDevice cudaGetLastError cudaGetSymbolAddress cudaLaunchCooperativeKernel cudaLaunchKernelEx
    cudaMallocAsync cudaMemPoolSetAttribute cudaMemcpyAsync cudaMemsetAsync
    cudaOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyMaxActiveClusters
"""
RUNTIME = frozenset(_CALLS.split())
# What else the files of a kata with this library may call. A kata with another library is compiled alone.
_OF_LIBRARY = {
    "driver": frozenset({"cudaGetDriverEntryPointByVersion"}),
    "cublas": frozenset({"cublasCreate", "cublasGemmEx", "cublasSetStream"}),
}
_CALL = re.compile(r"\b(cu(?:da|blas)?[A-Z]\w*)\s*\(")

_WORD = re.compile(r"\b[A-Za-z_]\w*")
_INCLUDED = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*$", re.MULTILINE)
_OURS = frozenset(f'#include "{path.name}"' for path in (Path(__file__).parents[1] / "include").glob("*.cuh"))
_DECLARED = re.compile(r"\b(?:struct|class|union|enum|using|namespace)\s+(\w+)")
_GLOBAL = re.compile(r"(?<![\w>:])::\s*(\w+)")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!include\b|pragma[ \t]+unroll\b)\w", re.MULTILINE)
_DISGUISED = re.compile(r"%:|\?\?=|\*/[ \t]*#|#[ \t]*/\*|\\\r?\n")  # a directive that does not look like one
_TAG = re.compile(rf"unit_[0-9a-f]{{{TAG_DIGITS}}}")
_BRACE = re.compile(r"[{}]")
_FUNCTION = re.compile(r"^(?:\.\w+\s+)*\.(?:entry|func)\b", re.MULTILINE)
_ENTRY = re.compile(r"^(?:\.\w+\s+)*\.entry\s+([\w$]+)", re.MULTILINE)
_SHARED = re.compile(r"^((?:\.\w+\s+)*\.shared\b[^;\n]*;\n)", re.MULTILINE)

_WARNING = re.compile(r"\bwarning\b ?(?:#|:)")
_PTXAS_ERROR = re.compile(r"^ptxas (\S+), line (\d+); error", re.MULTILINE)


@dataclass(frozen=True)
class Member:
    """One file of a unit. ``declarations`` stand before it, as in a build of its own."""

    launcher: str
    declarations: str
    text: str

    @property
    def tag(self) -> str:
        """The namespace that the file is put into."""
        content = f"{self.launcher}\n{self.declarations}\n{self.text}"
        return f"unit_{hashlib.sha256(content.encode()).hexdigest()[:TAG_DIGITS]}"

    @property
    def host(self) -> tuple[str, str, str]:
        """What its library is made of, but for the tag."""
        return self.launcher, self.declarations, host_view(self.text)

    @property
    def words(self) -> set[str]:
        """All names of its code. A file without a new one needs no other header."""
        return set(_WORD.findall(without_comments(self.text)))

    @property
    def includes(self) -> tuple[str, ...]:
        """All that the file sees by itself."""
        return includes_of(f"{self.declarations}\n{self.text}")


def includes_of(text: str) -> tuple[str, ...]:
    """The include lines of a file, each once, sorted."""
    return tuple(sorted({" ".join(line.split()) for line in _INCLUDED.findall(text)}))


def may_share(text: bytes, libraries: Collection[str] = ()) -> bool:
    """Whether a file of a kata with these libraries means the same inside a namespace: it includes only headers that
    are there for all, has no directive of the preprocessor that the next file would see, and calls nothing that could
    keep the library of all from being loaded."""
    if not _OF_LIBRARY.keys() >= set(libraries):
        return False
    try:
        words = text.decode()
    except UnicodeDecodeError:
        return False
    foreign = {line for line in includes_of(words) if '"' in line} - _OURS
    directive = _DIRECTIVE.search(words) or _DISGUISED.search(words)
    calls = RUNTIME.union(*(_OF_LIBRARY[library] for library in libraries))
    return not foreign and not directive and calls.issuperset(_CALL.findall(words))


def launcher_in(tag: str, launcher: str) -> str:
    """The name that a launcher has in a library of several files; its own where ``tag`` is empty."""
    return f"{launcher}_{tag}" if tag else launcher


def chunks(members: Sequence[Member], at_least: int) -> Iterator[Sequence[Member]]:
    """Units of members: as few as the limits allow, but ``at_least`` so many where there are enough members, since
    units compile side by side."""
    most_files = min(MOST_FILES, -(-len(members) // at_least))
    unit: list[Member] = []
    size = 0
    for member in members:
        if unit and (len(unit) == most_files or size + len(member.text) > MOST_BYTES):
            yield unit
            unit, size = [], 0
        unit.append(member)
        size += len(member.text)
    if unit:
        yield unit


def write(members: Sequence[Member], folder: Path) -> None:
    """Put the unit's files into ``folder``: SOURCE includes all that the members include, and a file of each."""
    lines = sorted({line for member in members for line in member.includes})
    for member in members:
        place = folder / member.tag
        place.mkdir()
        # A blank line in place of each include: lines keep their numbers.
        (place / SOURCE).write_text(_inside(member.tag, _INCLUDED.sub("", member.text)))
        lines += [
            f"#define {member.launcher} {launcher_in(member.tag, member.launcher)}",
            f"namespace {member.tag} {{",
            _INCLUDED.sub("", member.declarations).strip(),
            f'#include "{member.tag}/{SOURCE}"',
            "}",
            f"#undef {member.launcher}",
        ]
    (folder / SOURCE).write_text("\n".join(lines) + "\n")


def _inside(tag: str, text: str) -> str:
    """The text with ``::Plan`` led to the namespace, where the file declares Plan."""
    declared = set(_DECLARED.findall(text))
    return _GLOBAL.sub(lambda name: f"::{tag}::{name[1]}" if name[1] in declared else name[0], text)


def blamed(log: str, folder: Path) -> set[str]:
    """The tags of the files in which nvcc, or ptxas in the PTX in ``folder``, found an error."""
    tags = {tag for line in log.splitlines() if "error" in line for tag in _TAG.findall(line)}
    wrong: dict[str, set[int]] = {}
    for name, number in _PTXAS_ERROR.findall(log):
        wrong.setdefault(name, set()).add(int(number))
    for name, numbers in wrong.items():
        head = ""
        for number, line in enumerate((folder / name).read_text(errors="replace").splitlines(), 1):
            head = line if _FUNCTION.match(line) else head
            tags |= {*_TAG.findall(head)} if number in numbers else set()
    return tags


def warned(log: str) -> set[str]:
    """The tags of the files of which nvcc or g++ said a warning; "" where a warning names no file."""
    lines = [line for line in log.splitlines() if _WARNING.search(line)]
    return {tag for line in lines for tag in _TAG.findall(line) or [""]}


def pieces_of(ptx: str) -> list[tuple[set[str], str]]:
    """The unit's PTX, cut into (tags of the members that a piece is of, its text); no tags: it is of all of them."""
    return [(set(_TAG.findall(head)), head + body) for head, body in _parts(ptx)]


def ptx_of(tag: str, pieces: Sequence[tuple[set[str], str]]) -> str:
    """The unit's PTX without the functions of the other members, and without their shared memory."""
    return "".join(text for tags, text in pieces if not tags or tag in tags)


def kernels_of(ptx: str) -> set[str]:
    """The names that a library launches kernels by."""
    return set(_ENTRY.findall(ptx))


def renamed(ptx: str, tag: str, other: str) -> str:
    """The PTX as if the file's namespace were ``other``: in names, and in the texts that are numbers there."""
    for spelled in (str, _numbers):
        ptx = ptx.replace(spelled(tag), spelled(other))
    return ptx


def _numbers(text: str) -> str:
    return ", ".join(map(str, text.encode()))


def _parts(ptx: str) -> Iterator[tuple[str, str]]:
    """The functions; and of what stands between them, each declaration of shared memory by itself: a file alone has
    no other's, and no other's alignment."""
    for head, body in _functions(ptx):
        if head:
            yield head, body
            continue
        for number, text in enumerate(_SHARED.split(body)):
            yield (text, "") if number % 2 else ("", text)


def _functions(ptx: str) -> Iterator[tuple[str, str]]:
    """The text cut into (declaration, body) of each function; what stands between functions has no body."""
    done = 0
    for start in _FUNCTION.finditer(ptx):
        if start.start() < done:
            continue
        opens, ends = ptx.find("{", start.end()), ptx.find(";", start.end())
        head = ends + 1 if ends != -1 and (opens == -1 or ends < opens) else opens
        body = head if head == ends + 1 else _closing(ptx, opens)
        yield "", ptx[done : start.start()]
        yield ptx[start.start() : head], ptx[head:body]
        done = body
    yield "", ptx[done:]


def _closing(ptx: str, opens: int) -> int:
    """Where the block ends that the brace at ``opens`` begins. Inline assembly may have blocks of its own."""
    depth = 0
    for brace in _BRACE.finditer(ptx, opens):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return len(ptx)


def without(tag: str, words: str) -> str:
    """What was said of a unit's member, as if it were a file of its own."""
    return words.replace(f"{tag}::", "")
