"""What `kata bench --solutions --json` wrote -> thresholds in difficulty.yaml: a share of what the solutions reached.

Only lines of ``speed`` change. Everything else in the file stays as it is, comments included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import floor, log10
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from grader.content.catalog import Catalog, CatalogError, Kata, Speed, Threshold
from grader.judge.measure import FLOOR_POINTS
from grader.storage.whole_file import write_whole

SHARE = 0.82  # of the lower end of the solution's interval, in the geometric mean over the shapes and on each of them


def thresholds(records: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, Threshold]]:
    """Kata -> (architecture, threshold) for each record that has a graded measurement."""
    found = {}
    for record in records:
        low = [item["low"] for item in record["measurements"] if item["graded"]]
        if low:
            arch = record["device"].split()[-1].removesuffix("a")
            # A shape may be FLOOR_POINTS below the threshold, and the slowest must have as much room as all together.
            percent = min(100 * SHARE * geometric_mean(low), 100 * SHARE * min(low) + FLOOR_POINTS)
            found[record["kata"]] = arch, Threshold(_rounded(percent), True)
    return found


def _rounded(percent: float) -> float:
    """Down to two significant digits, or to a whole number."""
    digits = max(0, 1 - floor(log10(percent)))
    return float(floor(percent * 10**digits) / 10**digits)


def write(catalog: Catalog, file: Path) -> list[str]:
    """Write the thresholds of a JSON file into difficulty.yaml; returns the katas concerned. Raises CatalogError."""
    try:
        found = thresholds(json.loads(file.read_text())["katas"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CatalogError(f"{file}: not what `kata bench --json` writes ({error}).") from None
    path = catalog.root / "difficulty.yaml"
    text = path.read_text()
    for name, (arch, threshold) in found.items():
        kata = catalog.katas.get(name)
        if kata is None or kata.speed is None:
            raise CatalogError(f"{file}: {name} is not a kata with a speed; was the file made from another clone?")
        text = _with_speed(text, kata, {**kata.speed.percent, arch: threshold})
    write_whole(path, text)
    return list(found)


def _with_speed(text: str, kata: Kata, percent: Mapping[str, Threshold]) -> str:
    entry = re.compile(rf"(^  {kata.name}:\n(?:    .*\n)*?)    speed:.*\n(?:      .*\n)*", re.MULTILINE)
    assert kata.speed is not None
    lines = _speed_lines(kata.speed, percent)
    changed, count = entry.subn(lambda match: match[1] + lines, text)
    if count != 1:
        raise CatalogError(f"difficulty.yaml: the speed of {kata.name} is not where it was expected, 4 spaces deep.")
    return changed


def _speed_lines(speed: Speed, percent: Mapping[str, Threshold]) -> str:
    shapes = ", ".join(
        "{" + ", ".join(f"{size}: {value}" for size, value in shape.items()) + "}" for shape in speed.shapes
    )
    lines = ["speed:", f"  baseline: {speed.baseline}", f"  shapes: [{shapes}]"]
    if speed.also_compare:
        names = (json.dumps(name) if "," in name else name for name in speed.also_compare)
        lines.append(f"  also_compare: [{', '.join(names)}]")
    lines.append("  percent:")
    for arch in sorted(percent, key=lambda arch: int(arch.removeprefix("sm_"))):
        item = percent[arch]
        lines.append(f"    {arch}: {{value: {item.percent:g}, measured: {str(item.measured).lower()}}}")
    return "".join(f"    {line}\n" for line in lines)
