"""A grade as JSON: all that the text says is in it, and nothing that JSON cannot say."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from test_faces import run, solve

from grader.content.catalog import load_catalog
from grader.content.source_file import Source
from grader.devices import Finding
from grader.devices.counters import CallCounters
from grader.output.grade_json import FORMAT, record
from grader.verdict import CaseCounters, Grade, Kind, Measurement, Mismatch, Verdict

ROOT = Path(__file__).resolve().parent.parent
KATA = load_catalog(ROOT).katas["elementwise_f32"]


def grade(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(place, "-m", "grader", "grade", "--device", "sim", *arguments, **environment)


def kept(*verdicts: Verdict) -> dict[str, Any]:
    """As a program reads it; NaN and infinities would raise."""
    text = json.dumps(record(Grade(KATA, Source(Path("mine.cu"), b"mine"), verdicts, 1.23456)), allow_nan=False)
    return dict(json.loads(text))


def test_the_text_and_the_json_say_the_same(clone: Path) -> None:
    solve(clone, "elementwise_f32", ("if (idx < n)", "if (idx <= n)"))
    text, done = grade(clone, "elementwise_f32"), grade(clone, "elementwise_f32", "--json")
    assert text.returncode == done.returncode == 1
    found = json.loads(done.stdout)
    (verdict,) = found["verdicts"]
    assert text.stdout.startswith(f"{found['kata']}: {found['verdict']}: {found['summary']}\n")
    assert (found["verdict"], found["passed"], found["device"]) == ("out of bounds", False, "sim sm_90a")
    assert f".cu:{verdict['line']} " in text.stdout and verdict["sizes"] == {"n": 1} and "n=1 " in text.stdout
    assert f"kernel {verdict['finding']['kernel']}" in text.stdout
    assert found["file"].endswith("exercises/elementwise/elementwise_f32.cu") and len(found["sha256"]) == 64


def test_a_line_a_kata_and_nothing_else_on_stdout(clone: Path) -> None:
    solve(clone, "elementwise_f32")
    done = grade(clone, "elementwise_f32", "elementwise_f32x4", "--json")
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert done.returncode == 1
    assert (first["kata"], first["verdict"], first["passed"]) == ("elementwise_f32", "pass", True)
    assert (second["kata"], second["verdict"], second["device"]) == ("elementwise_f32x4", "not started", None)
    assert first["verdicts"][0]["cases"] > 10 and first["seconds"] > 0 and first["format"] == FORMAT


def test_a_fault_of_the_machine_is_no_record(clone: Path) -> None:
    solve(clone, "elementwise_f32")
    done = grade(clone, "elementwise_f32", "--json", KATA_NVCC="/nowhere/nvcc")
    assert done.returncode == 2 and done.stdout == "" and "KATA_NVCC" in done.stderr


def test_a_verdict_loses_nothing() -> None:
    """Whatever a Verdict holds is in its record, one by one, so that a new field is not forgotten."""
    finding = Finding("race", "two at once", kernel="k", line=3, block=(1, 0, 0), thread=(2, 0, 0))
    mismatch = Mismatch("y", (1, 2), 1.5, None)
    counted = CaseCounters({"n": 5}, CallCounters(1, 2, 64))
    verdict = Verdict(Kind.RACE, "s", finding=finding, mismatches=(mismatch,), open_todos=(1, 2), counters=counted)
    said = kept(verdict)["verdicts"][0]
    names = {item.name for item in fields(Verdict)} - {"kind", "measurements"}
    assert names < set(said) and set(said) == names | {"verdict"}
    assert said["finding"]["block"] == [1, 0, 0] and said["open_todos"] == [1, 2]
    totals = {"launches": 1, "warp_instructions": 2, "thread_instructions": 64}
    assert said["counters"] == {**totals, "kernels": [], "sizes": {"n": 5}}
    assert kept(Verdict(Kind.RACE, "s"))["verdicts"][0]["counters"] == {}
    assert said["mismatches"] == [
        {"buffer": "y", "index": [1, 2], "expected": 1.5, "got": None, "writer": None, "inputs": {}}
    ]


def test_every_field_is_described() -> None:
    text = (ROOT / "docs" / "json.md").read_text()
    said = kept(Verdict(Kind.RACE, "s"))
    assert [name for name in (*said, *said["verdicts"][0]) if f"`{name}`" not in text] == []


def test_what_is_not_finite_is_a_word() -> None:
    mismatch = Mismatch("y", (0,), math.inf, math.nan)
    said = kept(Verdict(Kind.WRONG_ANSWER, "s", mismatches=(mismatch,), error_share=-math.inf))["verdicts"][0]
    assert (said["mismatches"][0]["expected"], said["mismatches"][0]["got"]) == ("inf", "nan")
    assert said["error_share"] == "-inf"


def test_what_is_shown_first_and_all_that_was_measured() -> None:
    measured = Measurement("copy", {"n": 8}, 0.9, 0.8, 1.0, 21, 1.0, 0.9, 64, peak_bytes_s=128.0)
    gpu = Verdict(Kind.PASS, "measured", device="gpu sm_90a", measurements=(measured,))
    sim = Verdict(Kind.RACE, "two at once", device="sim sm_90a")
    said = kept(gpu, sim)
    assert (said["verdict"], said["device"], said["passed"]) == ("race", "sim sm_90a", False)
    assert [item["verdict"] for item in said["verdicts"]] == ["pass", "race"]
    assert said["measurements"][0]["ratio"] == 0.9 and said["measurements"][0]["peak_share"] == 0.5
    assert kept(gpu, replace(sim, kind=Kind.PASS))["passed"]
