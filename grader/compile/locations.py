"""PTX -> the places in the source that its code comes from: its .file and .loc directives."""

from __future__ import annotations

import re
from collections.abc import Collection

Place = tuple[int, int]  # a file of the PTX, and a line in it

LOCATION = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)


def files_called(ptx: str, name: str) -> frozenset[int]:
    """The numbers of the files called ``name``, wherever they are."""
    return frozenset(int(number) for number, path in _FILE.findall(ptx) if path.rpartition("/")[2] == name)


def place_of(location: re.Match[str], own: Collection[int]) -> Place:
    """What a match of LOCATION names: the place in the files ``own`` where a header's code was inlined into them."""
    file, line, outer, outer_line = location.groups()
    return (int(file), int(line)) if int(file) in own or not outer else (int(outer), int(outer_line))
