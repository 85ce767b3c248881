"""A learner's way through the katas, by the command line and pytest, in a clone: what is kept, shown and given away."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_faces import make_clone, pytest_run, run, solve

from grader import progress
from grader.progress import Event


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return make_clone(tmp_path)


def events(place: Path) -> tuple[Event, ...]:
    return progress.load(place).events


def test_both_faces_keep_the_same(clone: Path) -> None:
    faces = (
        lambda: pytest_run(clone, "exercises/elementwise/elementwise_f32.cu", "--device", "sim"),
        lambda: run(clone, "-m", "grader", "grade", "elementwise_f32", "--device", "sim"),
    )
    solve(clone, "elementwise_f32", ("if (idx < n)", "if (idx <= n)"))
    assert [face().returncode for face in faces] == [1, 1]
    solve(clone, "elementwise_f32")
    assert [face().returncode for face in (*faces[1:], *faces)] == [0, 0, 0]  # the first tries the shape that failed
    found = [{**vars(event), "id": "", "time": "", "seconds": 0} for event in events(clone)]
    assert [event["verdict"] for event in found] == ["out of bounds"] * 2 + ["pass"] * 3
    assert found[0] == found[1] and found[3] == found[4] and found[1]["digest"] != found[2]["digest"]
    assert all(event.seconds and event.device == "sim sm_90a" for event in events(clone))


def test_neither_face_keeps_what_is_not_the_learners(clone: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.cu"
    mine.write_text((clone / "solutions/elementwise/elementwise_f32.cu").read_text())
    grade = ("-m", "grader", "grade", "elementwise_f32", "--device", "sim")
    assert run(clone, *grade, "--file", str(mine)).returncode == 0
    assert run(clone, *grade, "--solutions").returncode == 0
    assert (
        pytest_run(clone, "exercises/elementwise/elementwise_f32.cu", "--solutions", "--device", "sim").returncode == 0
    )
    assert pytest_run(clone, "exercises/elementwise").returncode == 1  # not started
    assert events(clone) == ()


@pytest.mark.parametrize("face", ["pytest", "kata"])
def test_a_grade_stands_where_nothing_can_be_kept(clone: Path, face: str) -> None:
    for name in ("elementwise_f32", "elementwise_f32x4"):
        solve(clone, name)
    if face == "pytest":
        done = pytest_run(clone, "exercises/elementwise", "-k", "f32", "--device", "sim", KATA_DATA="/dev/null")
        assert "2 passed" in done.stdout
    else:
        names = ("elementwise_f32", "elementwise_f32x4")
        done = run(clone, "-m", "grader", "grade", *names, "--device", "sim", KATA_DATA="/dev/null")
        assert "2 of 2 passed" in done.stdout
    assert done.returncode == 0
    assert (done.stdout + done.stderr).count("this was not kept as progress: ") == 1  # for both
