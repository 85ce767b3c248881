"""PTX -> which kernel has more static shared memory than ptxas gives one, in words.

The simulator runs PTX, which has no such limit: without this, it would pass a file that no card gets machine code of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from grader.compile.symbols import demangled

PTXAS_MESSAGE = "uses too much shared data"  # by ptxas
MOST_BYTES = 48 << 10
# Built for one architecture alone (sm_90a), a kernel may have as much as a block of that card. Said by ptxas 13.0.
MOST_BYTES_OF_ITS_OWN = {"sm_12": 99 << 10}
MOST_BYTES_OF_OTHERS = 227 << 10

_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_FUNCTION = re.compile(
    r"^(?:\.\w+ )*\.(?P<kind>entry|func)\b[^;{]*?(?P<name>[A-Za-z_$][\w$]*)\s*\([^)]*\)[^;{}()]*\{", re.MULTILINE
)
_SHARED = re.compile(
    r"(?<![\w.])\.shared(?:\s+\.align\s+\d+)?\s+\.[busf](?P<bits>\d+)\s+(?P<name>[\w$]+)(?:\[(?P<count>\d+)\])?;"
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")


@dataclass(frozen=True)
class Refusal:
    """``line`` is the learner's own that declares the largest array; None where it is not found."""

    message: str
    line: int | None


def refused(ptx: str, arch: str, source: str) -> Refusal | None:
    """What ptxas refuses for ``arch`` (sm_80, sm_90a); ``source`` is the learner's file."""
    most = most_bytes(arch)
    if sum(_variables(ptx).values()) <= most:
        return None
    for kernel, variables in _kernels(ptx):
        total = sum(variables.values())
        if total > most:
            largest = max(variables, key=lambda name: variables[name])
            fact = f"{demangled(kernel)} has {total} bytes of static shared memory; {most} are allowed on {arch}"
            return Refusal(f"{fact}. {_way_out(most)}", _line_of(largest, source))
    return None


def most_bytes(arch: str) -> int:
    """The limit of static shared memory in one kernel, in bytes."""
    if not arch.endswith("a"):
        return MOST_BYTES
    return MOST_BYTES_OF_ITS_OWN.get(arch[:-2], MOST_BYTES_OF_OTHERS)


def _way_out(most: int) -> str:
    if most > MOST_BYTES:
        return "No block has more on that card"
    return (
        "Shared memory beyond that is dynamic: extern __shared__, its bytes in the launch, "
        "cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize)"
    )


def _variables(code: str) -> dict[str, int]:
    """Shared variables with their bytes, without the padding between them, because ptxas may reorder them."""
    return {found["name"]: _SIZES[found["bits"]] * int(found["count"] or 1) for found in _SHARED.finditer(code)}


def _kernels(ptx: str) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Each kernel with the shared variables of its own, and of the functions that it calls."""
    starts = list(_FUNCTION.finditer(ptx))
    bodies = {start["name"]: ptx[start.end() : ptx.find("\n}", start.end())] for start in starts}
    for start in starts:
        if start["kind"] == "entry":
            names = _reached(start["name"], bodies)
            yield start["name"], {name: size for part in names for name, size in _variables(bodies[part]).items()}


def _reached(kernel: str, bodies: Mapping[str, str]) -> set[str]:
    """The kernel, and the functions whose names stand in what it reaches."""
    reached: set[str] = set()
    pending = {kernel}
    while pending:
        name = pending.pop()
        reached.add(name)
        pending |= (set(_WORD.findall(bodies[name])) & bodies.keys()) - reached
    return reached


def _line_of(symbol: str, source: str) -> int | None:
    """The line that declares the variable in shared memory: the first after its function's name, or else the first."""
    *owner, name = re.sub(r"<.*?>|\(.*?\)", "", demangled(symbol)).split("::")
    lines = [line.partition("//")[0] for line in source.splitlines()]
    begins = re.compile(rf"\b{re.escape(owner[-1])}\b" if owner else "")
    first = next((place for place, line in enumerate(lines) if begins.search(line)), 0)
    declares = re.compile(rf"__shared__\b.*\b{re.escape(name)}\b")
    found = [place + 1 for place, line in enumerate(lines) if declares.search(line)]
    return next((line for line in found if line > first), found[0] if found else None)
