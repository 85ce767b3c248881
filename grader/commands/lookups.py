"""What a command would show of a kata -> whether every room allows it now.

A room that may refuse, such as the interview, has a module ``lookups`` with a function ``refusal``. A room that is not
installed is not asked.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from grader.content.catalog import Kata

ROOMS = Path(__file__).parents[1]


def refusal(katas: Sequence[Kata], how: str, *, anyway: bool = False, locked: bool = False) -> str | None:
    """Why ``how`` may not show these katas now, in a sentence; None if it may.

    ``how`` is a command and its arguments. ``locked``: something else forbids it, so nothing will be shown.
    Raises a Fault if a room cannot tell. Then nothing may be shown.
    """
    said = [room.refusal(katas, how, anyway=anyway, locked=locked) for room in _rooms()]
    return next((words for words in said if words), None)


@functools.cache
def _rooms() -> tuple[ModuleType, ...]:
    names = sorted(path.parent.name for path in ROOMS.glob("*/lookups.py") if path.parent != Path(__file__).parent)
    return tuple(importlib.import_module(f"grader.{name}.lookups") for name in names)
