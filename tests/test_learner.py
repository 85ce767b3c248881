"""A learner's way through the katas, by the command line and pytest, in a clone: what is kept, shown and given away."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from facts import has
from patience import PATIENCE_S
from test_faces import ROOT, make_clone, pytest_run, run, solve

from grader.content import rung, skeleton
from grader.content.catalog import Kata, load_catalog
from grader.content.source_file import source_of
from grader.learner import progress
from grader.learner.progress import GRADE, Event
from grader.verdict import Grade, Kind, Measurement, Verdict

pytestmark = pytest.mark.usefixtures("module_remembers")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


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
    passing = (
        run(clone, *grade, "--file", str(mine)),
        run(clone, *grade, "--solutions"),
        pytest_run(clone, "exercises/elementwise/elementwise_f32.cu", "--solutions", "--device", "sim"),
    )
    for done in passing:
        assert done.returncode == 0, done.stdout + done.stderr
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
    assert (done.stdout + done.stderr).count("not kept as progress") == 1  # for both


def kata(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = run(place, "-m", "grader", *arguments, **environment)
    assert "Traceback" not in done.stderr
    return done


def keep(place: Path, name: str, kind: Kind = Kind.PASS, measurements: tuple[Measurement, ...] = ()) -> None:
    """What a grade of the learner's file, as it is, would keep."""
    keep_as(load_catalog(place).katas[name], kind, measurements)


def keep_as(found: Kata, kind: Kind = Kind.PASS, measurements: tuple[Measurement, ...] = ()) -> None:
    verdict = Verdict(kind, "in short", device="sim sm_90a", measurements=measurements)
    assert progress.keep_grade(Grade(found, source_of(found.skeleton_path), (verdict,), 1.0)) is None


def rows(place: Path, *arguments: str) -> dict[str, list[str]]:
    """Of a list, name -> [open, state]."""
    table = [line.split(maxsplit=5) for line in kata(place, "list", *arguments).stdout.splitlines()[1:]]
    return {row[0]: row[4:] for row in table}


def today() -> str:
    return Event(id="", time=progress._now(), kata="", what="").date


def test_list_follows_a_kata_from_not_started_to_passed(clone: Path) -> None:
    def shown() -> list[str]:
        return rows(clone, "relu")["relu_f32"]

    assert shown() == ["no", "not started"]
    keep(clone, "elementwise_f32")
    assert shown() == ["yes", "not started"]
    path = solve(clone, "relu_f32")
    assert shown() == ["yes", "written"]
    keep(clone, "relu_f32", Kind.RACE)
    assert shown() == ["yes", f"failed: race, {today()}"]
    path.write_text(path.read_text() + "// another try\n")
    assert shown()[0] == "yes" and re.fullmatch(rf"failed: race, {today()}; .*edited.*", shown()[1])
    keep(clone, "relu_f32")
    assert shown() == ["yes", f"passed, {today()}"]
    keep(clone, "relu_f32", Kind.TOO_SLOW)
    assert shown()[0] == "yes" and re.fullmatch(rf"passed, {today()}; .*too slow, {today()}", shown()[1])
    kata(clone, "reset", "relu_f32")
    assert shown()[1].startswith("passed")
    other = kata(clone, "list", "relu", "--json", KATA_DATA=str(clone / "nothing"))
    assert {item["state"] for item in json.loads(other.stdout)} == {"not started"}


def test_a_failed_kata_that_was_reset_is_not_started(clone: Path) -> None:
    solve(clone, "elementwise_f32")
    keep(clone, "elementwise_f32", Kind.RACE)
    kata(clone, "reset", "elementwise_f32")
    assert rows(clone, "elementwise_f32")["elementwise_f32"] == ["yes", "not started"]


def test_list_filters(clone: Path) -> None:
    catalog = load_catalog(clone)
    keep(clone, "elementwise_f32")
    solve(clone, "relu_f32")
    keep(clone, "relu_f32", Kind.CRASH)
    every = catalog.katas.values()
    assert set(rows(clone, "--level", "hard")) == {item.name for item in every if item.level == "hard"}
    assert set(rows(clone, "--family", "sgemm", "--role", "drill")) == {
        item.name for item in every if item.family == "sgemm" and item.role == "drill"
    }
    assert set(rows(clone, "--state", "failed")) == {"relu_f32"} and set(rows(clone, "--state", "passed")) == {
        "elementwise_f32"
    }
    assert len(rows(clone, "--state", "not-started")) == len(every) - 2
    assert set(rows(clone, "--open")) == {item.name for item in every if set(item.requires) <= {"elementwise_f32"}}
    words = set(rows(clone, "sgemm", "bank", "conflicts"))
    assert words and all(catalog.katas[name].family == "sgemm" for name in words)


def test_words_are_looked_for_in_headers_and_todos_and_then_in_what_a_family_is_about(clone: Path) -> None:
    catalog = load_catalog(clone)

    def own(name: str) -> str:
        item = catalog.katas[name]
        todos = skeleton.todos(item.solution_path.read_text())
        return " ".join([item.name, rung.header(item), *(todo.text for todo in todos)]).lower()

    conflicts = set(rows(clone, "bank", "conflicts"))
    assert conflicts == {name for name in catalog.katas if "bank" in own(name) and "conflict" in own(name)}
    assert {"mat_trans_f32_tiled", "mat_trans_f32_tiled_padded", "reduce_strided_f32"} <= conflicts
    assert "elementwise_f32" in rows(clone, "coalesced") and "coalesced" not in rung.header(catalog.katas["relu_f32"])
    assert kata(clone, "list", "frobnicated", "memory").returncode == 1
    file = clone / "difficulty.yaml"
    file.write_text(file.read_text().replace(catalog.about["relu"], "the frobnicated ladder"))
    assert {catalog.katas[name].family for name in rows(clone, "frobnicated", "memory")} == {"relu"}
    assert set(rows(clone, "bank", "conflicts")) == conflicts


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["list", "elementwise_f33"], 1, ["'elementwise_f33'", "elementwise_f32"]),
        (["list", "--family", "elementwise", "--state", "passed"], 1, ["no kata"]),
        (["list", "--family", "nothing"], 2, ["family", "'nothing'"]),
        (["next", "elementwise_f33"], 2, ["'elementwise_f33'", "elementwise_f32"]),
        (["show", "elementwise"], 2, ["`kata show`", "one kata"]),
        (["solution", "elementwise"], 2, ["`kata solution`", "one kata"]),
        (["diff", "elementwise"], 2, ["`kata diff`", "one kata"]),
        (["diff", "elementwise_f32"], 1, ["elementwise_f32", "first"]),
        (["progress", "--clone", "/x"], 2, ["--export"]),
        (["progress", "--import", "nowhere.jsonl"], 2, ["nowhere.jsonl"]),
        (["progress", "--export", "/dev/null/x"], 2, ["/dev/null/x"]),
    ],
)
def test_what_cannot_be_done_is_one_sentence(pristine: Path, arguments: list[str], code: int, said: list[str]) -> None:
    done = kata(pristine, *arguments)
    assert done.returncode == code and has(done.stderr, *said) and len(done.stderr.splitlines()) == 1


def test_next_is_open_and_core_before_any_drill(clone: Path) -> None:
    def following(*names: str) -> Any:
        done = kata(clone, "next", *names, "--json")
        found = json.loads(done.stdout)
        assert done.returncode == (1 if found is None else 0)
        return found and found["name"]

    catalog = load_catalog(clone)
    assert following() == "scale_f32" and following("sgemm") is None
    assert has(kata(clone, "next", "sgemm").stdout, "sgemm_naive_f32", "elementwise_f32")
    passed: set[str] = set()
    for _ in range(12):
        name = following()
        left = [item for item in catalog.katas.values() if item.name not in passed and set(item.requires) <= passed]
        core = [item.name for item in left if item.role == "core"]
        assert name == core[0]
        keep(clone, name)
        passed.add(name)
    assert following("sigmoid") == "sigmoid_f32"
    text = kata(clone, "next").stdout
    assert "exercises/" in text and "README.md" in text and "kata grade " in text


def test_next_gives_drills_when_the_core_is_passed_and_then_ends(clone: Path) -> None:
    def pass_all(role: str) -> None:
        event = {"time": "2026-03-31T12:00:00+00:00", "what": GRADE, "verdict": str(Kind.PASS)}
        passed = [item.name for item in katas.values() if item.role == role]
        progress.import_lines([json.dumps({**event, "id": name, "kata": name}) for name in passed], clone)

    katas = load_catalog(clone).katas
    pass_all("core")
    drill = json.loads(kata(clone, "next", "--json").stdout)
    assert katas[drill["name"]].role == "drill"
    pass_all("drill")
    done = kata(clone, "next")
    assert done.returncode == 1 and has(done.stdout, "all", "passed") and len(done.stdout.splitlines()) == 1


def row(text: str, name: str) -> str:
    """What `kata show` says under a name."""
    return next(line for line in text.splitlines() if line.startswith(f"{name} "))


def test_show_has_the_task_and_where_the_learner_is(clone: Path) -> None:
    text = kata(clone, "show", "elementwise_f32x4").stdout
    found = load_catalog(clone).katas["elementwise_f32x4"]
    assert text.startswith("elementwise_f32x4: ") and "Technique" in text and "TODO 1  " in text
    assert has(row(text, "after"), "elementwise_f32", "not passed") and has(row(text, "hints"), "none", "3")
    keep(clone, "elementwise_f32")
    kata(clone, "hint", found.name, "2")
    kata(clone, "hint", found.name)
    kata(clone, "solution", found.name, "--anyway")
    solve(clone, found.name)
    keep(clone, found.name, Kind.RACE)
    keep(clone, found.name)
    text = kata(clone, "show", found.name).stdout
    assert has(row(text, "after"), "elementwise_f32", "(passed)") and has(row(text, "hints"), "1, 2 of 3")
    assert has(row(text, "state"), "passed", today()) and has(row(text, "solution"), today(), "before")
    data = json.loads(kata(clone, "show", found.name, "--json").stdout)
    assert (data["state"], data["unlocked"], data["hints"]) == ("passed", True, [1, 2])
    assert [todo["empty"] for todo in data["todos"]] == [False] * len(data["todos"]) and data["solution_seen"]
    assert data["file"] == str(found.skeleton_path) and data["requires"] == ["elementwise_f32"]


def test_a_file_that_cannot_be_read_is_one_sentence(clone: Path) -> None:
    path = load_catalog(clone).katas["elementwise_f32"].skeleton_path
    path.unlink()
    path.symlink_to(path)
    done = kata(clone, "show", "elementwise_f32")
    assert done.returncode == 2 and has(done.stderr, "elementwise_f32.cu", "symbolic links")
    assert len(done.stderr.splitlines()) == 1
    listed = kata(clone, "list", "elementwise_f32")
    assert listed.returncode == 0 and has(listed.stdout, "written", "symbolic links")
    assert kata(clone, "reset", "elementwise_f32").returncode == 0
    assert "not started" in kata(clone, "list", "elementwise_f32").stdout


def test_a_grade_of_a_link_to_itself_is_one_verdict(clone: Path) -> None:
    path = load_catalog(clone).katas["elementwise_f32"].skeleton_path
    path.unlink()
    path.symlink_to(path)
    for name in ("elementwise_f32", str(path)):
        done = kata(clone, "grade", name)
        assert done.returncode == 1 and has(done.stdout, "symbolic links", "kata reset") and done.stderr == ""


READERS = ["show", "list", "next", "status", "diff --mine", "hint", "sass", "grade", "progress", "report"]


@pytest.mark.parametrize("command", READERS)
def test_a_pipe_in_a_katas_place_holds_nothing_up(clone: Path, command: str) -> None:
    path = load_catalog(clone).katas["elementwise_f32"].skeleton_path
    path.unlink()
    os.mkfifo(path)
    name, *options = command.split()
    about = {
        "diff": ["elementwise_f32x4"],
        "progress": [],
        "report": ["--no-pictures"],
        "status": [],
        "next": ["elementwise"],
    }
    done = kata(clone, name, *options, *about.get(name, ["elementwise_f32"]))
    if name in ("show", "diff"):
        assert done.returncode == 2 and has(done.stderr, "elementwise_f32.cu", "not a regular file")
    elif name in ("grade", "sass"):
        assert done.returncode == 1 and has(done.stdout + done.stderr, "elementwise_f32.cu", "not a regular file")
    else:
        assert done.returncode == 0 and done.stderr == ""
    assert "not a regular file" in done.stdout + done.stderr or name not in ("list", "next")


def test_a_pipe_in_a_katas_place_gives_way_to_a_skeleton(clone: Path) -> None:
    path = load_catalog(clone).katas["elementwise_f32"].skeleton_path
    path.unlink()
    os.mkfifo(path)
    assert kata(clone, "reset", "elementwise_f32").returncode == 0 and path.is_file()


@pytest.mark.parametrize("command", [["status"], ["report", "--no-pictures"], ["list"], ["progress"]])
def test_an_event_without_a_time_is_a_warning_to_what_reads_it(clone: Path, data: Path, command: list[str]) -> None:
    for name in ("elementwise_f32", "relu_f32"):
        keep(clone, name)
    with contextlib.closing(sqlite3.connect(data / "progress.db")) as db, db:
        db.execute("UPDATE event SET time = 'yesterday' WHERE kata = 'relu_f32'")
    done = kata(clone, *command)
    assert done.returncode == 0 and has(done.stderr, "1 row", "'yesterday'") and len(done.stderr.splitlines()) == 1
    assert rows(clone, "--state", "passed").keys() == {"elementwise_f32"}


def test_a_solution_is_shown_after_a_pass_or_anyway(clone: Path) -> None:
    answer = (clone / "solutions/elementwise/elementwise_f32.cu").read_text()
    done = kata(clone, "solution", "elementwise_f32")
    assert (done.returncode, done.stdout) == (1, "") and "--anyway" in done.stderr
    assert events(clone) == ()
    done = kata(clone, "solution", "elementwise_f32", "--anyway")
    assert (done.returncode, done.stdout) == (0, answer)
    assert [event.what for event in events(clone)] == ["solution"]
    assert kata(clone, "solution", "elementwise_f32").returncode == 1  # to have looked is not to have passed
    keep(clone, "elementwise_f32")
    assert kata(clone, "solution", "elementwise_f32").stdout == answer


def test_a_diff_shows_the_code_that_is_new_after_a_pass_or_anyway(clone: Path) -> None:
    done = kata(clone, "diff", "elementwise_f32x4")
    assert done.returncode == 1 and done.stdout == ""
    assert has(done.stderr, "passed", "elementwise_f32", "elementwise_f32x4", "--anyway")
    done = kata(clone, "diff", "elementwise_f32x4", "--anyway")
    assert done.returncode == 0 and done.stdout.startswith("--- solutions/elementwise/elementwise_f32.cu\n+++ ")
    assert "+constexpr int VEC = 4;" in done.stdout and "// " not in done.stdout
    assert {(event.kata, event.what) for event in events(clone)} == {
        ("elementwise_f32", "solution"),
        ("elementwise_f32x4", "solution"),
    }
    for name in ("elementwise_f32", "elementwise_f32x4"):
        keep(clone, name)
    before = len(events(clone))
    assert kata(clone, "diff", "elementwise_f32x4").stdout == done.stdout
    assert len(events(clone)) == before  # what was passed is no secret


def test_a_diff_of_mine_compares_my_files_and_gives_nothing_away(clone: Path) -> None:
    path = clone / "exercises/elementwise/elementwise_f32x4.cu"
    path.write_text(path.read_text().replace("// END TODO(1)", "const int mine = 4;  // why\n// END TODO(1)"))
    done = kata(clone, "diff", "elementwise_f32x4", "--mine")
    assert done.returncode == 0 and "+    const int mine = 4;\n" in done.stdout
    assert done.stdout.startswith("--- exercises/") and events(clone) == ()


def test_every_kata_but_two_has_a_rung_before_it() -> None:
    """Newcomers begin at scale_f32; who knows what a grid is begins at elementwise_f32."""
    catalog = load_catalog(ROOT)
    first = [item.name for item in catalog.katas.values() if rung.before(item, catalog) is None]
    assert first == ["scale_f32", "elementwise_f32"]


def test_the_rung_before_is_the_first_that_the_catalogue_names() -> None:
    catalog = load_catalog(ROOT)
    item = catalog.katas["softmax_block_smem_f32"]
    before = rung.before(item, catalog)
    assert before is not None and before.name == item.requires[0] and before.family != item.family


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a; // b\n\n/* c\n d */ e;\n", ["a;", " e;"]),
        ('say("// no comment");\n', ['say("// no comment");']),
        ("x = '\"'; // quote\n  // alone\ny;", ["x = '\"';", "y;"]),
    ],
)
def test_code_is_what_is_no_comment(text: str, code: list[str]) -> None:
    assert rung.code_of(text) == code


def test_hints_are_counted_and_shown_where_they_cannot_be(clone: Path) -> None:
    assert kata(clone, "hint", "elementwise_f32", "3").returncode == 0
    assert [(event.what, event.strength) for event in events(clone)] == [("hint", 3)]
    done = kata(clone, "hint", "elementwise_f32", KATA_DATA="/dev/null")
    assert done.returncode == 0 and "kata hint elementwise_f32 2" in done.stdout and "not kept" in done.stderr
    assert kata(clone, "solution", "elementwise_f32", "--anyway", KATA_DATA="/dev/null").returncode == 0


def test_what_is_shown_of_one_kata_is_also_json(clone: Path) -> None:
    def said(*arguments: str) -> Any:
        return json.loads(kata(clone, *arguments, "--json").stdout)

    text = kata(clone, "hint", "elementwise_f32", "2").stdout
    hint = said("hint", "elementwise_f32", "2")
    assert (hint["strength"], hint["of"]) == (2, 3) and text.startswith(hint["hint"])
    refused = [kata(clone, command, "elementwise_f32x4", "--json") for command in ("solution", "diff")]
    assert [(done.returncode, done.stdout) for done in refused] == [(1, "")] * 2
    answer = (clone / "solutions/elementwise/elementwise_f32x4.cu").read_text()
    assert said("solution", "elementwise_f32x4", "--anyway")["text"] == answer
    diff = said("diff", "elementwise_f32x4", "--anyway")
    assert kata(clone, "diff", "elementwise_f32x4", "--anyway").stdout.splitlines() == diff["diff"]
    assert (diff["before"], diff["mine"]) == ("elementwise_f32", False)
    looked = {(item["subject"], item["well"]) for item in said("doctor")}
    assert {("nvcc", True), ("cache", True)} < looked


def test_status_counts_by_level_and_family(clone: Path) -> None:
    assert has(kata(clone, "status").stdout, "no grade", "`kata next`")
    catalog = load_catalog(clone)
    for item in catalog.by_family["elementwise"]:
        keep(clone, item.name)
    speed = Measurement("copy", {"n": 1}, 0.931, 0.93, 0.932, 21, 1.0, 1.0, 1)
    keep(clone, "relu_f32", Kind.TOO_SLOW, (speed,))
    text = kata(clone, "status").stdout
    total = len(catalog.by_family["elementwise"])
    assert re.search(rf"^elementwise +\[{'#' * 20}\] +{total} of {total}$", text, re.MULTILINE)
    assert re.search(rf"^relu +\[{re.escape('.' * 20)}\]", text, re.MULTILINE)
    assert not re.search(r"^sgemm ", text, re.MULTILINE) and len(text.splitlines()) < 24
    assert has(text, f"not begun: {len(catalog.families) - 2} families", "`kata list`")
    (last,) = (line for line in text.splitlines() if "relu_f32: " in line)
    assert has(last, today(), "too slow", "sim sm_90a", "93.1 %", "copy")
    data = json.loads(kata(clone, "status", "--json").stdout)
    assert (data["passed"], data["katas"]) == (total, len(catalog.katas))
    assert data["families"]["elementwise"] == {"passed": total, "katas": total}
    assert sum(level["katas"] for level in data["levels"].values()) == len(catalog.katas)
    assert data["last_grades"][0]["kata"] == "relu_f32" and len(data["last_grades"]) == 5


def test_progress_goes_to_another_clone_and_back_without_doubles(clone: Path, tmp_path: Path) -> None:
    keep(clone, "elementwise_f32")
    kata(clone, "hint", "elementwise_f32")
    file = tmp_path / "p.jsonl"
    assert "2 events written" in kata(clone, "progress", "--export", str(file)).stdout
    assert kata(clone, "progress", "--export", "-").stdout == file.read_text()
    assert "0 new events" in kata(clone, "progress", "--import", str(file)).stdout
    other, elsewhere = make_clone(tmp_path), {"KATA_DATA": str(tmp_path / "elsewhere")}
    assert "2 new events" in kata(other, "progress", "--import", str(file), **elsewhere).stdout
    assert "passed, " in kata(other, "list", "elementwise_f32", **elsewhere).stdout
    data = json.loads(kata(clone, "progress", "--json").stdout)
    assert data["events"] == 2 and data["clones"] == {str(clone): 2} and data["file"].endswith("data/progress.db")


def test_a_clone_that_was_moved_can_take_its_progress_along(tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    keep(clone, "elementwise_f32")
    moved = clone.rename(tmp_path / "moved")
    (line,) = (line for line in kata(moved, "progress").stdout.splitlines() if f"{clone}:" in line)
    assert has(line, "1 event", "no longer")
    assert kata(moved, "progress", "--clone", str(clone), "--export", "p.jsonl").returncode == 0
    assert "1 new event;" in kata(moved, "progress", "--import", "p.jsonl").stdout
    assert rows(moved, "--state", "passed").keys() == {"elementwise_f32"}


def test_an_export_that_fails_leaves_the_one_before(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(clone, "elementwise_f32")
    file = tmp_path / "p.jsonl"
    file.write_text("precious")
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from grader.cli import main; sys.exit(main(['progress', '--export', sys.argv[1]]))"
    )
    assert run(clone, "-c", script, str(file)).returncode == 2
    assert file.read_text() == "precious" and [item.name for item in tmp_path.glob(".p*")] == []


@pytest.mark.parametrize("arguments", [["list"], ["next"], ["show", "elementwise_f32"], ["status"], ["progress"]])
def test_a_newer_database_is_refused_by_what_reads_it(pristine: Path, data: Path, arguments: Sequence[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "MIGRATIONS", [*progress.MIGRATIONS, ()])
        keep(pristine, "elementwise_f32")
    done = kata(pristine, *arguments)
    assert done.returncode == 2 and has(done.stderr, "newer", "version")
    assert len(done.stderr.splitlines()) == 1


def test_a_damaged_database_is_a_warning_to_what_reads_it(pristine: Path, data: Path) -> None:
    data.mkdir()
    (data / "progress.db").write_text("no database" * 1000)
    done = kata(pristine, "next")
    assert done.returncode == 0 and has(done.stderr, "damaged", "progress.db.damaged-1")
    assert kata(pristine, "next").stderr == ""


@pytest.mark.parametrize("command", ["list", "next", "show", "hint", "solution", "diff", "status", "progress", "grade"])
def test_help_of_each_command_teaches(pristine: Path, command: str) -> None:
    done = kata(pristine, command, "--help")
    assert done.returncode == 0 and "Exit code" in done.stdout and "kata " in done.stdout.partition("options:")[2]


def test_a_list_may_be_cut_off(pristine: Path) -> None:
    command = [sys.executable, "-m", "grader", "list"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=pristine, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait(PATIENCE_S) == 141
