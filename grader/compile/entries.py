"""Two PTX modules of one file -> the first with kernels of the second in the place of its own.

Code that is close to the source runs many times the instructions of optimised code. A change of one kernel is tried
with that kernel alone as it is close to the source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_HEAD = re.compile(r"(?:\.visible |\.weak )?\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)")
_CALLED = re.compile(r"\bcall(?:\.uni)?\s+(?:\([^)]*\),\s*)?([\w$]+)", re.DOTALL)
_VARIABLE = re.compile(r"\.(?:visible |extern |weak )*(?:global|const|shared)\b.*;")
_DEBUGGING = ".loc"


@dataclass(frozen=True)
class _Body:
    """A kernel or function: its lines are from ``begin`` up to ``end``; it ``calls`` functions."""

    name: str
    is_kernel: bool
    begin: int
    end: int
    calls: frozenset[str]


class Entries:
    """The kernels of a module, and those of another one of the same file that can take their places."""

    def __init__(self, ptx: str, other: str) -> None:
        text = ptx.split("\n")
        self.bodies = {each.name: each for each in _bodies(text)}
        self.kernels = [each for each in self.bodies.values() if each.is_kernel]
        self.others = _alone(other) if _variables(other.split("\n")) <= _variables(text) else {}

    def replaced(self, lines: Collection[int]) -> frozenset[str]:
        """The kernels that can be another module's where ``lines`` of this one are changed: none that has such a line
        or calls a function with one."""
        changed = {each.name for each in self.bodies.values() if any(each.begin <= line < each.end for line in lines)}
        return frozenset(
            each.name for each in self.kernels if each.name in self.others and changed.isdisjoint(self._behind(each))
        )

    def _behind(self, kernel: _Body) -> set[str]:
        """A kernel, and all functions that it comes to."""
        found, waiting = set[str](), [kernel.name]
        while waiting:
            name = waiting.pop()
            if name in self.bodies and name not in found:
                found.add(name)
                waiting += self.bodies[name].calls
        return found

    def with_others(self, lines: Iterable[tuple[int, str]], names: Collection[str]) -> list[tuple[int, str]]:
        """Numbered lines of the module, with the other module's kernels of these names."""
        of_line = {line: name for name in names for line in range(self.bodies[name].begin, self.bodies[name].end)}
        found, seen = [], set[str]()
        for number, line in lines:
            name = of_line.get(number)
            if name is None:
                found.append((number, line))
            elif name not in seen:
                seen.add(name)
                found.append((number, self.others[name]))
        return found


def _bodies(text: Sequence[str]) -> Iterator[_Body]:
    head, begin, opened = None, 0, 0
    for number, line in enumerate(text):
        if head is None and (head := _HEAD.match(line)) is not None:
            begin, opened = number, 0
        if head is None:
            continue
        if line.startswith(";"):  # it is declared only
            head = None
        elif line.startswith("{") and not opened:
            opened = number
        elif line.startswith("}") and opened:
            calls = frozenset(_CALLED.findall("\n".join(text[opened:number])))
            yield _Body(head[2], head[1] == "entry", begin, number + 1, calls)
            head = None


def _alone(ptx: str) -> Mapping[str, str]:
    """The kernels that call no function, each without what debuggers need."""
    text = ptx.split("\n")
    return {
        each.name: "\n".join(line for line in text[each.begin : each.end] if line and _DEBUGGING not in line)
        for each in _bodies(text)
        if each.is_kernel and not each.calls
    }


def _variables(text: Iterable[str]) -> set[str]:
    """The declarations of the file's variables."""
    return {line.strip() for line in text if _VARIABLE.match(line)}
