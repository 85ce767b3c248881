"""exercises/<family>/hints.yaml -> the hints of a kata: three, each saying more than the one before.

They stand beside the skeleton, not in it: a hint is read when it is asked for.
"""

from __future__ import annotations

import functools
from typing import Any

import yaml

from grader.content.catalog import CatalogError, Kata

COUNT = 3


def load_hints(kata: Kata) -> tuple[str, ...]:
    """The kata's three hints, the weakest first. Raises CatalogError naming the file and the fix where they are not."""
    path = kata.hints_path
    try:
        entries = _parsed(path.read_text())
    except OSError as error:
        raise CatalogError(
            f"{path} cannot be read ({error.strerror}). Every family has one: its katas' hints."
        ) from None
    except yaml.YAMLError as error:
        raise CatalogError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    hints = entries.get(kata.name) if isinstance(entries, dict) else None
    if not isinstance(hints, list) or len(hints) != COUNT or not all(isinstance(hint, str) for hint in hints):
        raise CatalogError(f"{path}: {kata.name}: needs a list of {COUNT} hints, the weakest first.")
    return tuple(" ".join(hint.split()) for hint in hints)


@functools.cache
def _parsed(text: str) -> Any:
    """A family's whole file: its katas ask for it one after the other, and YAML is slow to read."""
    return yaml.safe_load(text)
