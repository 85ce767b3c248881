"""exercises/<family>/hints.yaml -> the hints of a kata: three, each saying more than the one before.

They stand beside the skeleton, not in it: a hint is read when it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection

from grader.content.catalog import CatalogError, Kata
from grader.content.yaml_fields import close_to, root_value, several, words

COUNT = 3

_hints = several(words, range(COUNT, COUNT + 1), "hints, the weakest first")


def load_hints(kata: Kata, family: Collection[str] = ()) -> tuple[str, ...]:
    """The kata's three hints, the weakest first. ``family``: the names that hints may stand under.

    Raises CatalogError naming the file, the line and the fix.
    """
    path = kata.hints_path
    root = root_value(path, "hints", CatalogError, "Every family has one: its katas' hints.")
    if root is None:
        raise CatalogError(f"{path}: is empty. List {COUNT} hints of each kata of the family.")
    entries = {}
    for name, key, value in root.items():
        if family and name not in family:
            raise key.error(f"no kata of this family.{close_to(name, family)} Correct the name or remove it.")
        entries[name] = value
    if kata.name not in entries:
        raise root.named(f"hints: {kata.name}").error(f"missing. Add a list of {COUNT} hints, the weakest first.")
    found: tuple[str, ...] = _hints(entries[kata.name])
    return found
