"""The answers in a solution -> mutants: copies that differ in one operator, bound, index, constant or statement.

What a mutator looks at is code as clang-format leaves it: binary operators have a space on either side, and a pointer's
star has not. Remarks and strings are left alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from grader.content.catalog import Kata
from grader.content.skeleton import answer_lines

Change = tuple[int, int, str]  # from here to there becomes this


@dataclass(frozen=True)
class Mutant:
    """One change of one line of a kata's solution. ``line`` counts from 1."""

    kata: Kata
    line: int
    operator: str
    before: str
    after: str
    text: str  # the whole file

    @property
    def name(self) -> str:
        """The same as long as the mutated file is: its kata and a digest."""
        return f"{self.kata.name}-{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"

    @property
    def key(self) -> tuple[str, str]:
        """Its line and what becomes of it, without indentation and remark."""
        return bare(self.before), bare(self.after)


def bare(line: str) -> str:
    """The code of a line, one space between its words."""
    return " ".join(_code(line).split())


def mutants_of(kata: Kata) -> list[Mutant]:
    """All mutants of the answers, each file once, from the first line to the last."""
    text = kata.solution_path.read_text(encoding="utf-8")
    lines = text.split("\n")
    found: dict[str, Mutant] = {}
    for number in sorted(answer_lines(text, kata.solution_path)):
        before = lines[number - 1]
        for operator, after in _changed(before):
            mutated = "\n".join([*lines[: number - 1], after, *lines[number:]])
            found.setdefault(mutated, Mutant(kata, number, operator, before, after, mutated))
    return list(found.values())


def _changed(line: str) -> Iterator[tuple[str, str]]:
    code = _code(line)
    if not code.strip() or code.lstrip().startswith("#"):
        return
    for operator, mutate in _MUTATORS.items():
        for begin, end, by in mutate(code):
            yield operator, line[:begin] + by + line[end:]


def _code(line: str) -> str:
    """The line up to its remark, strings blanked."""
    return re.sub(r'"(?:\\.|[^"\\])*"', lambda match: " " * len(match[0]), line).partition("//")[0].rstrip()


def _replaced(pattern: str, by: Mapping[str, str]) -> Callable[[str], Iterator[Change]]:
    """Each match becomes what stands beside it in the table, as far as it is there."""
    compiled = re.compile(pattern)

    def mutate(code: str) -> Iterator[Change]:
        for match in compiled.finditer(code):
            if match[0] in by:
                yield match.start(), match.end(), by[match[0]]

    return mutate


def _integers(code: str) -> Iterator[Change]:
    """One more. Digits of names, of types and of numbers with a point or an exponent are not integers.

    A byte of dynamic shared memory more changes nothing for a kernel that has none.
    """
    for match in re.finditer(r"(?<![\w.])\d+(?![\w.])(?!, stream>>>)", code):
        yield match.start(), match.end(), str(int(match[0]) + 1)


def _neutral(code: str) -> Iterator[Change]:
    """What a sum, a product or a maximum begins with."""
    for match in re.finditer(r"-INFINITY|(?<![\w.])(\d+\.\d*f)", code):
        value = match[0]
        by = {"-INFINITY": "0.0f", "0.0f": "1.0f", "1.0f": "0.0f"}.get(value, f"(2 * {value})")
        yield match.start(), match.end(), by


def _conditions(code: str) -> Iterator[Change]:
    """``if (...)`` -> ``if (true)``, where the condition ends on its line."""
    for match in re.finditer(r"\bif \(", code):
        end = _closing(code, match.end())
        if end is not None:
            yield match.end(), end, "true"


def _closing(code: str, place: int) -> int | None:
    depth = 1
    for at in range(place, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return None


# An assignment or a call, alone on its line: no declaration, whose name others need, and no part of a longer statement.
_STATEMENT = re.compile(r"^\s*(?:[\w\[\].>*()&+-]+ (?:=|\+=|-=|\*=|/=|\^=|\|=) .*|[\w:]+(?:<[^;=]*>)?\(.*\)|\+\+\w+);$")


def _dropped(code: str) -> Iterator[Change]:
    if _STATEMENT.match(re.sub(r"\[[^\[\]]*\]", "[]", code)) and not code.lstrip().startswith("return"):
        yield len(code) - len(code.lstrip()), len(code), ";"


def _swapped(*names: str) -> Callable[[str], Iterator[Change]]:
    pairs = dict(zip(names[::2], names[1::2], strict=True))
    return _replaced(r"\b[A-Za-z_]\w*\b", {**pairs, **{second: first for first, second in pairs.items()}})


_MUTATORS: Mapping[str, Callable[[str], Iterator[Change]]] = {
    "relation": _replaced(
        r"(?<= )[<>=!]=?=?(?= )", {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
    ),
    "arithmetic": _replaced(r"(?<=[\w)\]] )[-+*/%](?= )", {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/"}),
    "logic": _replaced(
        r"(?<= )(?:&&|\|\||[&|^]|<<|>>)(?= )",
        {"&&": "||", "||": "&&", "&": "|", "|": "&", "^": "+", "<<": ">>", ">>": "<<"},
    ),
    "assignment": _replaced(r"(?<= )[-+*/^|]=(?= )", dict.fromkeys(("+=", "-=", "*=", "/=", "^=", "|="), "=")),
    "one more": _integers,
    "neutral element": _neutral,
    "condition": _conditions,
    "statement dropped": _dropped,
    "dimension": _replaced(r"\b(?:threadIdx|blockIdx|blockDim|gridDim)\.[xyz]", {
        "threadIdx.x": "threadIdx.y", "threadIdx.y": "threadIdx.x", "blockIdx.x": "blockIdx.y",
        "blockIdx.y": "blockIdx.x", "blockIdx.z": "blockIdx.y", "gridDim.x": "gridDim.y", "blockDim.x": "blockDim.y",
    }),
    "index": _swapped("row", "col", "rows", "cols", "M", "N", "lane_id", "warp_id", "BLOCK_M", "BLOCK_N"),
    "function": _swapped(
        *("fmaxf", "fminf", "max", "min", "__hmax2", "__hmin2", "__shfl_xor_sync", "__shfl_down_sync"),
        *("__syncthreads", "__syncwarp"),
    ),
}  # fmt: skip
