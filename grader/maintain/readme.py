"""Catalog and SUPPORT.md -> the parts of README.md that follow from them: the curriculum, and what works without a GPU.

A part stands between two comments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from grader.content.catalog import LEVELS, Catalog, Kata
from grader.maintain import rooms

FILE = "README.md"
SUPPORT = Path("grader/devices/sim/SUPPORT.md")
_PART = re.compile(
    r"(?P<begin><!-- (?P<name>\w+): written by `kata dev readme` -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def written(catalog: Catalog) -> str:
    """README.md with its parts as they must be."""
    text = (catalog.root / FILE).read_text(encoding="utf-8")
    return _PART.sub(lambda part: f"{part['begin']}\n{_PARTS[part['name']](catalog, text)}\n\n{part['end']}", text)


def problems(catalog: Catalog) -> list[str]:
    """What is not current, or was never written."""
    text = (catalog.root / FILE).read_text(encoding="utf-8")
    found = {part["name"] for part in _PART.finditer(text)}
    missing = [
        f"{FILE}: its part {name!r} is missing; put its two comments back." for name in _PARTS if name not in found
    ]
    stale = [f"{FILE} is not current: `kata dev readme` writes it."] if written(catalog) != text else []
    return missing + stale


def _curriculum(catalog: Catalog, text: str) -> str:
    rows = ["| family | computes | katas | what it is about |", "|---|---|---|---|"]
    for family, katas in catalog.by_family.items():
        computes = _code_in_table(_heading(katas[0]))
        link = f"[{family}](exercises/{family}/README.md)"
        rows.append(f"| {link} | {computes} | {_levels(katas)} | {_code_in_table(catalog.about[family])} |")
    rows.append(f"| all {len(catalog.families)} | | {_levels(catalog.katas.values())} | |")
    return "\n".join(rows)


def _heading(kata: Kata) -> str:
    """What the lesson's first line says after the family's name."""
    first = kata.lesson_path.read_text().partition("\n")[0] if kata.lesson_path.is_file() else ""
    return first.partition(": ")[2]


def _code_in_table(words: str) -> str:
    return words.replace("|", "\\|").replace("*", "\\*")


def _levels(katas: Iterable[Kata]) -> str:
    """``2 easy, 3 medium``."""
    counts = Counter(kata.level for kata in katas)
    return ", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level])


def _support(catalog: Catalog, text: str) -> str:
    """From SUPPORT.md, which has every instruction and every kata by name."""
    content = (catalog.root / SUPPORT).read_text()
    recorded = re.search(r"^\| (\d{4}-\d\d-\d\d) \| ([^|]+) \|", content, re.MULTILINE)
    totals = re.search(r"^\| all \| (\d+) \| (\d+) \|$", content, re.MULTILINE)
    if recorded is None or totals is None:
        return f"{SUPPORT} has no totals; tests/differential/support.py writes it."
    compared = dict(re.findall(r"^\| `(\w+)` \| (.*=.*|not compared) \|$", content, re.MULTILINE))
    rows = [
        f"| without a GPU | works | compared with an {recorded[2].strip()}, {recorded[1]} |",
        "|---|---:|---:|",
    ]
    for level in LEVELS:
        names = [kata.name for kata in catalog.katas.values() if kata.level == level]
        same = sum(compared.get(name, "not compared") != "not compared" for name in names)
        rows += [f"| katas, {level} | {len(names)} | {same} |"] if names else []
    return "\n".join([*rows, f"| forms of PTX instructions | {int(totals[1]):,} | {int(totals[2]):,} |"])


def _rooms(catalog: Catalog, text: str) -> str:
    return rooms.table(catalog.root)


_PARTS: Mapping[str, Callable[[Catalog, str], str]] = {"curriculum": _curriculum, "support": _support, "rooms": _rooms}
