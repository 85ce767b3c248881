"""Where the seconds of a grade went: stages, one inside another, that together are all of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from grader.content.catalog import load_catalog
from grader.grade import Options, grade
from grader.output import verdict_text
from grader.output.grade_json import record
from grader.system.stages import REST, recorded, stage

KATA = load_catalog(Path(__file__).resolve().parent.parent).katas["relu_f32"]


class Clock:
    """A clock that a test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_a_stage_leaves_out_the_stages_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    @stage("inner")
    def inner() -> None:
        clock.now += 2

    with recorded() as seconds:
        clock.now += 1
        with stage("outer"):
            clock.now += 4
            inner()
            clock.now += 8
        with pytest.raises(KeyError), stage("outer"):
            clock.now += 16
            raise KeyError
        thread = threading.Thread(target=inner)
        thread.start()
        thread.join()
    inner()
    assert seconds == {REST: 3, "outer": 28, "inner": 2}, "what another thread does is time of this one's"


def test_the_stages_of_a_grade_are_all_of_it() -> None:
    graded = grade(KATA, Options(device="sim"), source=KATA.solution_path)
    assert graded.passed and sum(graded.stages.values()) == graded.time_s
    assert {"compile", "calls of the launcher", "comparison"} <= set(graded.stages)
    lines = verdict_text.stages(graded)
    shown = [float(line.split()[0]) for line in lines[1:]]
    assert sum(shown) == pytest.approx(graded.time_s, abs=0.01 * len(shown)) and lines[-1].endswith(REST)
    assert record(graded)["stages"].keys() == graded.stages.keys()
