"""Grade -> JSON: what `kata grade --json` and `kata bench --json` write, for programs. docs/json.md has the fields.

Fields are only added; one that changes its meaning or its name changes FORMAT. JSON knows no infinities and no NaN:
those are the strings "inf", "-inf" and "nan".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from grader.devices.report_json import encode
from grader.learner.pointer import point
from grader.verdict import CaseCounters, Grade, Verdict

FORMAT = 2
_DERIVED = ("rate", "baseline_rate", "unit", "peak_share")  # of a measurement


def record(grade: Grade) -> dict[str, Any]:
    """The verdict that is shown, then in ``verdicts`` each device's with all that is known, then what was measured."""
    shown = grade.verdict
    measured = [item for verdict in grade.verdicts for item in verdict.measurements]
    found = {
        "format": FORMAT,
        "kata": grade.kata.name,
        "file": str(grade.source.path),
        "sha256": grade.source.digest or None,
        "passed": grade.passed,
        "seconds": round(grade.time_s, 3),
        "stages": {name: round(seconds, 3) for name, seconds in grade.stages.items()},
        "device": shown.device,
        "verdict": str(shown.kind),
        "summary": shown.summary,
        "verdicts": [_verdict(verdict) for verdict in grade.verdicts],
        "lesson": _lesson(grade),
        "measurements": [{**asdict(item), **{name: getattr(item, name) for name in _DERIVED}} for item in measured],
    }
    return {name: _plain(value) for name, value in found.items()}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    names = ("device", "summary", "cases", "error_share", "sizes", "values", "line", "wrong_count", "element_count")
    more = ("card", "left_out", "remark", "narrow_offsets", "pattern", "open_todos", "printed", "detail")
    return {
        "verdict": str(verdict.kind),
        **{name: getattr(verdict, name) for name in (*names, *more)},
        "counters": _counters(verdict.counters),
        "coverage": verdict.coverage and asdict(verdict.coverage),
        "finding": verdict.finding and asdict(verdict.finding),
        "mismatches": [asdict(item) for item in verdict.mismatches],
        "clues": [asdict(item) for item in verdict.clues],
        "launched": None if verdict.launched is None else [asdict(item) for item in verdict.launched],
    }


def _lesson(grade: Grade) -> dict[str, Any]:
    """The line, the TODO and the rows of the family's lesson that the verdict points at."""
    where = point(grade)
    return {"line": where.line, "todo": where.todo, "rows": [asdict(row) for row in where.rows]}


def _counters(counted: CaseCounters | None) -> dict[str, Any]:
    """With the keys that the simulator's engine writes, and the shape; empty where nothing was counted."""
    return {**encode(counted.call), "sizes": counted.sizes} if counted else {}


def _plain(value: Any) -> Any:
    """A value that JSON can say: what is not finite as a word, tuples as lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
