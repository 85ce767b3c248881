"""A file's functions that combine a number of several lanes or threads -> calls of them that another variable may lack:
``max = warp_reduce(max, Max())``, where the file has ``sum = warp_reduce(sum, Add())``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from grader.content.functions import Code, Function

MOST_CALLS = 8  # of all functions together
_JOINS = re.compile(r"\b(?:__shfl\w*|__reduce\w*_sync|__syncthreads)\s*\(")
_GIVEN_FLOAT = re.compile(r"\(\s*(?:const\s+)?float\s+\w+")
_NEUTRAL = ("0.0f", "-INFINITY")  # of a sum, of a maximum
_OPERATION = re.compile(r"([A-Za-z_]\w*)\s*(?:\(\s*\)|\{\s*\})$")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


@dataclass(frozen=True)
class Combination:
    """A function that combines, which is known from a place of the file on, and what it is given beside the number."""

    name: str
    known_at: int
    others: tuple[str, ...]

    def of(self, value: str) -> str:
        return f"{self.name}({', '.join((value, *self.others))})"

    @property
    def names(self) -> set[str]:
        """Those that must be visible where it is called."""
        given = [other for other in self.others if other not in _NEUTRAL]
        return {name for other in given if not _OPERATION.match(other) for name in _NAME.findall(other)}


def combinations_of(code: Code, returned: Mapping[str, str]) -> list[Combination]:
    """Those that the file calls, and each with the other neutral element and the file's other operations; one of the
    number alone even where nothing calls it. ``returned``: function -> the type of what it gives."""
    combining = [
        each for each in code.functions if returned.get(each.name) == "float" and _GIVEN_FLOAT.search(each.head)
    ]
    joining = {each.name for each in combining if _JOINS.search(code.text, each.begin, each.end)}
    of_them = re.compile(rf"\b(?:{'|'.join(map(re.escape, joining))})\s*\(") if joining else None
    chosen = [
        each
        for each in combining
        if each.name in joining or (of_them is not None and of_them.search(code.text, each.begin, each.end))
    ]
    found: dict[Combination, None] = {}
    operations = re.findall(r"\bstruct\s+(\w+)\s*\{[^{}]*\boperator\s*\(\s*\)", code.text)
    for each in chosen:
        if len(each.parameters) == 1:
            found[Combination(each.name, each.end, ())] = None
        for others in _given(code, each):
            found.update(dict.fromkeys(_alike(Combination(each.name, each.end, others), operations)))
    return [*found][:MOST_CALLS]


def _given(code: Code, function: Function) -> Iterator[tuple[str, ...]]:
    """What calls of a function give it beside the number."""
    for match in re.finditer(rf"\b{function.name}\s*\(", code.text):
        parts = code.arguments(match.end() - 1)
        if len(parts) == len(function.parameters) > 1 and not re.match(r"\s*(?:const\s+)?float\s", parts[0]):
            yield tuple(" ".join(part.split()) for part in parts[1:])


def _alike(one: Combination, operations: Sequence[str]) -> Iterator[Combination]:
    """The same with another operation. Where there is a neutral element, too, the other one belongs to that."""
    yield one
    for operation in operations:
        given = tuple(_with(other, operation) for other in one.others)
        if given != one.others:
            others = (_NEUTRAL[1 - _NEUTRAL.index(each)] if each in _NEUTRAL else each for each in given)
            yield replace(one, others=tuple(others))


def _with(other: str, operation: str) -> str:
    """An argument that is an operation becomes another one."""
    found = _OPERATION.match(other)
    return other if found is None else f"{operation}{other[found.end(1) :]}"
