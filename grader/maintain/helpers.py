"""Solutions -> helpers of one name and one list of parameters that differ without a stated reason.

A helper such as warp_reduce_sum is written out in many files. A fix of one must reach all of them: their code is the
same, or solutions/helpers.yaml says why it is not. So it is with a helper of grader/include that a solution writes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from grader.content.catalog import CatalogError
from grader.content.yaml_fields import Value, root_value

REASONS = Path("solutions/helpers.yaml")
_HELPER = re.compile(
    r"^(?:template <[^\n]*>\n)?(?:(?:static|inline|constexpr|__device__|__host__|__forceinline__) )+"
    r"[\w:<>, ]+?[\s*&]+(?P<name>\w+)\((?P<parameters>[^{;]*)\)\s*\{",
    re.MULTILINE,
)
_COMMENT = re.compile(r"//[^\n]*")


def problems(root: Path) -> list[str]:
    """Helpers that differ without a reason, and reasons for helpers that do not differ."""
    texts = _texts(root)
    different = {name: found for (name, _), found in texts.items() if len(found) > 1}
    reasons = _reasons(root)
    return [
        f"{files[1]}: {name} is not the same as in {files[0]}: make it so, or say in {REASONS} why not."
        for name, files in different.items()
        if name not in reasons
    ] + [
        str(value.error(f"the helpers called {name} do not differ. Remove the entry."))
        for name, value in reasons.items()
        if name not in different
    ]


def _texts(root: Path) -> Mapping[tuple[str, str], list[str]]:
    """(name, parameters) -> one file for each text that a helper has."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for path in (*sorted((root / "grader" / "include").glob("*.cuh")), *sorted((root / "solutions").rglob("*.cu"))):
        for name, parameters, code in helpers_of(path.read_text()):
            found.setdefault((name, parameters), {}).setdefault(code, path.relative_to(root).as_posix())
    return {key: [*by_code.values()] for key, by_code in found.items()}


def helpers_of(text: str) -> Iterator[tuple[str, str, str]]:
    """(name, parameters, code) of every helper of a solution; comments and white space do not count."""
    code = _COMMENT.sub("", text)
    for match in _HELPER.finditer(code):
        if "__global__" not in match[0]:
            yield match["name"], _plain(match["parameters"]), _plain(code[match.start() : _end(code, match.end())])


def _end(code: str, place: int) -> int:
    """Behind the brace that closes the one before ``place``."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(code[place], 0)
        place += 1
    return place


def _plain(code: str) -> str:
    return " ".join(code.split())


def _reasons(root: Path) -> Mapping[str, Value]:
    whole = root_value(root / REASONS, "helpers", CatalogError, "It says why helpers of one name differ.")
    reasons = {name: value for name, _, value in whole.items()} if whole is not None else {}
    for value in reasons.values():
        value.scalar(str, "why they differ, in a sentence")
    return reasons
