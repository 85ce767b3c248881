"""Benched grades -> the JSON that `kata bench --json` writes; that JSON -> Speeds -> a Markdown table.

solutions/speeds.json is such a file of all solutions, and where their speeds are kept. The table of solutions/SPEED.md
and the page of `kata report` are made from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.fault import Fault
from grader.judge import peaks
from grader.output.grade_json import record
from grader.output.verdict_text import display_path
from grader.verdict import Grade, format_sizes

FILE = Path("solutions/speeds.json")
OTHERS = "solutions/speeds_*/*.json"  # of other cards; only SPEED.md shows them
FORMAT = 1
_MACHINE = ("date", "card", "arch", "driver", "nvcc", "torch")


class SpeedsError(Fault):
    """A file of speeds cannot be read; the message names it and says what writes it."""


@dataclass(frozen=True)
class Row:
    """One kata on one shape against one baseline. Rates are in ``unit``; ``peak_share``: None where it is not known."""

    kata: str
    sizes: Mapping[str, int]
    baseline: str
    ratio: float
    low: float
    high: float
    pairs: int
    rate: float
    baseline_rate: float
    unit: str
    peak_share: float | None


@dataclass(frozen=True)
class Peaks:
    """The most that the card can do: bytes a second, and operations a second by the dtype that is multiplied."""

    bytes_s: float
    flops_s: Mapping[str, float]
    source: str


@dataclass(frozen=True)
class Speeds:
    """``machine``: date, card and versions, each once for all rows."""

    machine: Mapping[str, str]
    peaks: Peaks
    rows: tuple[Row, ...]

    @property
    def about(self) -> str:
        """``2026-11-21, NVIDIA H200 (sm_90a), driver 580.159.04, ...``"""
        return "{date}, {card} ({arch}), driver {driver}, nvcc {nvcc}, torch {torch}".format(**self.machine)


def document(benched: Iterable[Grade], machine: Mapping[str, str]) -> dict[str, Any]:
    """What one run of `kata bench` measured, with the machine and its peaks once."""
    done = list(benched)
    measured = [(grade.kata.elem, item) for grade in done for item in grade.verdict.measurements]
    known = {
        "bytes_s": max((item.peak_bytes_s for _, item in measured), default=0.0),
        "flops_s": {elem: item.peak_flops_s for elem, item in measured if item.peak_flops_s},
        "source": peaks.SOURCE,
    }
    return {"format": FORMAT, **machine, "peaks": known, "katas": [_kata(record(grade)) for grade in done]}


def _kata(found: dict[str, Any]) -> dict[str, Any]:
    """A grade's record as it can be committed: its file from here, and null for a share that is not known."""
    measurements = [{**item, "peak_share": item["peak_share"] or None} for item in found["measurements"]]
    return {**found, "file": display_path(Path(found["file"])), "measurements": measurements}


def text_of(found: Mapping[str, Any]) -> str:
    """A document as JSON with one line for each kata, so that a new measurement changes few lines."""
    facts = {name: value for name, value in found.items() if name != "katas"}
    katas = ",\n".join(f"  {json.dumps(kata)}" for kata in found["katas"])
    return f'{json.dumps(facts, indent=1)[:-2]},\n "katas": [\n{katas}\n ]\n}}\n'


def read(file: Path) -> Speeds:
    """Raises SpeedsError."""
    try:
        return speeds_of(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpeedsError(f"{file}: not what `kata bench --json` writes ({error!r}).") from None


def speeds_of(found: Mapping[str, Any]) -> Speeds:
    """The parts of a document that tables and pages show."""
    machine = {name: str(found[name]) for name in _MACHINE}
    return Speeds(machine, Peaks(**found["peaks"]), tuple(row for kata in found["katas"] for row in _rows(kata)))


def _rows(kata: Mapping[str, Any]) -> Iterator[Row]:
    names = [name for name in Row.__dataclass_fields__ if name != "kata"]
    for item in kata["measurements"]:
        yield Row(kata["kata"], **{name: item[name] for name in names})


def table(speeds: Speeds) -> str:
    """Markdown: where it was measured, the card's peaks, a row for each kata, shape and baseline."""
    lines = [
        f"Measured on: {speeds.about}.",
        "",
        _peaks_in_words(speeds.peaks),
        "",
        "| kata | shape | baseline | percent of it | interval | pairs | rate | baseline's rate | unit | % of peak |",
        "|---|---|---|---:|---:|---:|---:|---:|---|---:|",
        *map(_line, speeds.rows),
    ]
    return "\n".join(lines)


def _peaks_in_words(known: Peaks) -> str:
    flops = (f"{_rounded(peak / 1e12)} TFLOPS in {dtype}" for dtype, peak in known.flops_s.items())
    words = ", ".join([f"{_rounded(known.bytes_s / 1e12)} TB/s", *flops])
    return f"Peaks of this card: {words} ({known.source})."


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _line(row: Row) -> str:
    percents = f"{100 * row.ratio:.1f} | {100 * row.low:.1f} to {100 * row.high:.1f}"
    rates = f"{row.rate:.3g} | {row.baseline_rate:.3g} | {row.unit}"
    peak = "-" if row.peak_share is None else f"{100 * row.peak_share:.0f}"
    return (
        f"| `{row.kata}` | {format_sizes(row.sizes)} | {row.baseline} | {percents} | {row.pairs} | {rates} | {peak} |"
    )
