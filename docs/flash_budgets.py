"""FlashAttention katas -> docs/flash_budgets.md: what a block keeps where, by arithmetic, and what ptxas makes of it.

    python docs/flash_budgets.py    write the page (needs nvcc; some seconds for each kata)

The sizes are read from the solutions: the constants, the arrays called ..._rmem, and what stands in shared memory. So a
new kata that keeps to the family's names is in the table without a change here.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "solutions" / "flash_attn"
PAGE = Path(__file__).with_suffix(".md")
ARCH = "sm_90a"

# An SM of sm_90: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
REGISTERS, REGISTERS_AT_A_TIME = 65_536, 256  # of 32 bits; a warp gets multiples of
SMEM, SMEM_OF_A_BLOCK = 228 * 1024, 1024  # bytes; what the system takes of it for each block
WARPS, BLOCKS = 64, 32

BYTES = {"half": 2, "float": 4, "uint32_t": 4, "half2": 4, "int": 4}
FRAGMENTS = ("O", "S", "P", "Q")
HEAD = ("kata", "D", "warps", *FRAGMENTS, "smem KB", "registers", "spilled bytes", "blocks/SM", "warps/SM")
ARITHMETIC = 4 + len(FRAGMENTS)  # columns that need no compiler

_CONSTANT = re.compile(r"^ *(?:static )?constexpr int (\w+) = ([^;]+);", re.MULTILINE)
_MEMBER = re.compile(r"(half2?|float|uint32_t|int|Slot<D>) (\w+)((?:\[[^\]]+\])+)\s*(?:=|;)")
_FRAGMENT = re.compile(r"(Sums|float|uint32_t|half2) (?:\(&)?([A-Z]+)_rmem\)?((?:\[[^\]]+\])*)")
_SUMS = re.compile(r"using Sums = (\w+)\[(\w+)\];")
_SHARED = re.compile(r"__shared__ (?:__align__\(\w+\) )?(half2?|float|uint32_t|int) (\w+)((?:\[[^\]]+\])+);")
_COMPILED = re.compile(
    r"Compiling entry function '(\w+)' for '\w+'.*?(\d+) bytes spill stores.*?Used (\d+) registers", re.DOTALL
)


@dataclass(frozen=True)
class Source:
    """A kata's solution for one D."""

    text: str
    sizes: Mapping[str, int]

    def number(self, expression: str) -> int:
        plain = expression.replace("/", "//").replace("<D>", "")
        return int(eval(re.sub(r"int\{(.*?)\}", r"\1", plain), {"__builtins__": {}}, dict(self.sizes)))

    def elements(self, dims: str) -> int:
        return prod(self.number(dim) for dim in re.findall(r"\[([^\]]+)\]", dims))

    def words(self, matrix: str) -> int:
        """Registers of a lane that the largest array of this name takes, 0 where there is none."""
        sums = _SUMS.search(self.text)
        most = 0
        for kind, name, dims in _FRAGMENT.findall(self.text):
            if name == matrix and dims:
                each = int(sums[2]) if kind == "Sums" and sums else 1
                most = max(most, self.elements(dims) * each)
        return most

    def _body(self, kind: str) -> str:
        found = re.search(rf"^{kind} \{{\n(.*?)^\}};", self.text, re.MULTILINE | re.DOTALL)
        return found[1] if found else ""

    def smem_bytes(self) -> int:
        """Static shared memory, and what struct or union Smem has; a Slot is a union of the tiles that it may hold."""
        of_slot = max((self._bytes(*member, 0) for member in _MEMBER.findall(self._body("union Slot"))), default=0)
        together = [*_MEMBER.findall(self._body("struct Smem")), *_SHARED.findall(self.text)]
        in_turn = _MEMBER.findall(self._body("union Smem"))
        return sum(self._bytes(*member, of_slot) for member in together) + max(
            (self._bytes(*member, of_slot) for member in in_turn), default=0
        )

    def _bytes(self, kind: str, name: str, dims: str, of_slot: int) -> int:
        return (of_slot if kind == "Slot<D>" else BYTES[kind]) * self.elements(dims)


def sources(path: Path) -> Iterator[Source]:
    """One for each D that the launcher has a case for."""
    text = path.read_text()
    for d in sorted({int(case) for case in re.findall(r"case (\d+):", text)}):
        sizes = {"D": d}
        for name, value in _CONSTANT.findall(text):
            try:
                sizes[name] = Source(text, sizes).number(value)
            except (NameError, SyntaxError, TypeError):
                continue  # not a number: no size
        yield Source(text, sizes)


def known(count: Callable[[], int]) -> int:
    """What count returns, 0 where the solution says it in words that this page does not read."""
    try:
        return count()
    except (NameError, SyntaxError, TypeError):
        return 0


def cells(path: Path, source: Source) -> list[str]:
    """The columns that arithmetic gives; a dash where the solution has no such thing, or calls it by another name."""
    words = [known(lambda matrix=matrix: source.words(matrix)) for matrix in FRAGMENTS]
    smem = known(source.smem_bytes)
    warps = source.sizes.get("THREADS", 0) // 32
    return [
        f"`{path.stem}`",
        str(source.sizes["D"]),
        str(warps or "-"),
        *(str(count or "-") for count in words),
        f"{smem / 1024:.1f}" if smem else "-",
    ]


def katas() -> list[Path]:
    """In the order of difficulty.yaml."""
    order = re.findall(r"^  (flash_attn\w+):", (ROOT / "difficulty.yaml").read_text(), re.MULTILINE)
    return [FOLDER / f"{name}.cu" for name in order]


def compiled(path: Path) -> dict[int, tuple[int, int]]:
    """D -> registers of a thread and bytes that it spills, of the kernel that has D in its name."""
    command = ["nvcc", "-cubin", f"-arch={ARCH}", "-std=c++17", "-Xptxas", "-v", f"-I{ROOT / 'grader' / 'include'}"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["-o", f"{folder}/kata.cubin", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[int, tuple[int, int]] = {}
    for name, spilled, registers in _COMPILED.findall(done.stderr):
        sizes = re.search(r"ILi(\d+)E", name)
        if sizes:
            found[int(sizes[1])] = max(found.get(int(sizes[1]), (0, 0)), (int(registers), int(spilled)))
    return found


def blocks_of_an_sm(warps: int, registers: int, smem_bytes: int) -> int:
    of_a_warp = -(-registers * 32 // REGISTERS_AT_A_TIME) * REGISTERS_AT_A_TIME
    limits = (BLOCKS, WARPS // warps, REGISTERS // of_a_warp // warps, SMEM // (smem_bytes + SMEM_OF_A_BLOCK))
    return min(limits)


def rows() -> Iterator[list[str]]:
    for path in katas():
        try:
            found = compiled(path)
        except subprocess.CalledProcessError:
            found = {}
        for source in sources(path):
            row = cells(path, source)
            if source.sizes["D"] in found and row[2] != "-":
                registers, spilled = found[source.sizes["D"]]
                blocks = blocks_of_an_sm(int(row[2]), registers, known(source.smem_bytes))
                row += [str(registers), str(spilled), str(blocks), str(blocks * int(row[2]))]
            yield row + ["-"] * (len(HEAD) - len(row))


def page(table: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (list(HEAD), ["---"] * len(HEAD), *table)]
    return "\n".join((INTRODUCTION, *lines)) + "\n"


INTRODUCTION = f"""<!-- written by docs/flash_budgets.py; do not edit -->
# FlashAttention: what a block keeps where

O, S, P and Q are the 32-bit registers per lane that the fragments of these matrices need: rows of a warp times columns
/ 32 floats, or half as many where two halves share a register. S and P need not be live at the same time. A thread also
needs registers for addresses, statistics, and fragments of K and V in flight. Registers and spilled bytes are those
that ptxas of CUDA 13.0 prints for {ARCH}. A thread has at most 255 registers, and none should spill. Blocks per SM
follow from its 65,536 registers, its 64 warps, and its 228 KB of shared memory. Each block costs 1 KB more of it than
it uses. A dash: the kernel has no such fragment, or the script cannot read its size from the solution.
"""

if __name__ == "__main__":
    PAGE.write_text(page(list(rows())))
    print(f"{PAGE}: written")
