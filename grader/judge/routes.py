"""The instructions by which an input element gets to an output -> the lines of the learner's file, in words.

A line in a helper is told with the kernel's line that calls it; of a few lines of one call that follow each other, the
first and the last. What all lines are called from says nothing and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from grader.devices.counters import Route, RouteSite

FIRST, LAST = 4, 2  # lines that are shown of more
_CALL = re.compile(r".*\(called on line (\d+)\)")
HELPER = 3  # lines, of which the first and the last say enough


def lines_of(route: Route, sites: Sequence[RouteSite], file: str | None) -> list[str]:
    """``7`` or ``7 (called on line 30)``, of some of the route's sites; each once."""
    return [*dict.fromkeys(_labels(_stacks(route, sites, file)))]


def _labels(stacks: Sequence[tuple[int, ...]]) -> Iterator[str]:
    for call, group in groupby(stacks, key=lambda stack: stack[-1] if len(stack) > 1 else None):
        inner = [*group]
        lines = {stack[0] for stack in inner}
        if call is None:
            yield from (str(stack[0]) for stack in inner)
        elif len(lines) == 1:
            yield f"{inner[0][0]} (called on line {call})"
        elif len(lines) <= HELPER:
            yield f"{min(lines)} to {max(lines)} (called on line {call})"
        else:
            yield from _labels([stack[:-1] for stack in inner])


def by_lines(lines: Sequence[str]) -> str:
    """``line 4``, ``lines 4, 5 (called on line 9) and 10``"""
    if len(lines) > FIRST + LAST:
        lines = [*lines[:FIRST], "...", *lines[-LAST:]]
    if len(lines) == 1:
        return f"line {lines[0]}"
    return f"lines {', '.join(lines[:-1])} and {lines[-1]}"


def only_way(route: Route, file: str | None, *, without: Sequence[str] = ()) -> list[str]:
    """The lines to the output, or, if that is not known, those that all ways have; not of accesses ``without`` which
    they are asked for. None where nothing is computed on the way."""
    common = set(range(len(route.sites))) if route.reached else set[int]()
    if not route.reached and route.ways:
        common = set.intersection(*map(set, route.ways))
    sites = [each for place, each in enumerate(route.sites) if place in common]
    if not any(each.access == "result" for each in sites):
        return []
    return lines_of(route, [each for each in sites if each.access not in without], file)


def beginnings(route: Route, file: str | None) -> str:
    """Where the element is read: ``on line 4 and on line 9``."""
    read = [each for each in route.sites if each.beginnings]
    said = list[str]()
    for each in read:
        often = f" {each.beginnings} times" if len(read) > 1 and each.beginnings > 1 else ""
        said += [f"on line {line}{often}" for line in lines_of(route, [each], file)]
    return " and ".join(said) if len(said) == len(read) <= FIRST else ""


def two_ways(route: Route, file: str | None) -> str:
    """``by lines 4 and 5, and by line 7``, of two ways that come together. Where each has lines of its own, those
    alone; a helper's are left out where the line that calls it is there."""
    if len(route.ways) != 2:
        return ""
    ways = [lines_of(route, [route.sites[site] for site in way], file) for way in sorted(route.ways, key=len)[::-1]]
    ways = [[line for line in way if _CALL.sub(r"\1", line) not in way or line.isdecimal()] for way in ways]
    own = [[line for line in way if line not in other] for way, other in zip(ways, ways[::-1], strict=True)]
    if not any(own):
        return ""
    return ", and ".join(f"by {by_lines(each)}" for each in (own if all(own) else ways))


def _stacks(route: Route, sites: Sequence[RouteSite], file: str | None) -> list[tuple[int, ...]]:
    """The lines of each in the learner's file, from the inside out, without calls that are the same for all."""
    every = [_stack(each, file) for each in route.sites]
    shared = 0
    while all(len(stack) > shared + 1 and stack[-1 - shared] == every[0][-1 - shared] for stack in every):
        shared += 1
    return [stack[: len(stack) - shared] for each in sites if (stack := _stack(each, file))]


def _stack(site: RouteSite, file: str | None) -> tuple[int, ...]:
    inner = () if site.by.line is None or site.by.file != file else (site.by.line,)
    return (*inner, *site.by.callers)
