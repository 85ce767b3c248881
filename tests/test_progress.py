"""What a learner did is kept: by two processes at once, past a kill, damage and an update; and never in the way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from facts import all_of, has
from patience import PATIENCE_S

from grader.content.catalog import Kata, load_catalog
from grader.content.source_file import Source, source_of
from grader.grade import Options, grade
from grader.learner import progress
from grader.learner.progress import Event, ProgressError
from grader.verdict import Grade, Kind, Measurement, Verdict

ROOT = Path(__file__).resolve().parent.parent
KATA = load_catalog(ROOT).katas["sgemm_naive_f32"]
PASS = Verdict(Kind.PASS, "31 cases", device="sim sm_90a", cases=31)
WRONG = Verdict(Kind.WRONG_ANSWER, "3 of 257 elements of C are wrong", device="sim sm_90a")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "data"
    monkeypatch.setenv("KATA_DATA", str(place))
    return place


def own(*verdicts: Verdict, kata: Kata = KATA) -> Grade:
    return Grade(kata, Source(kata.skeleton_path, b"mine"), verdicts, 1.5)


def measured(ratio: float, graded: bool = True) -> Measurement:
    return Measurement("torch.mm", {"M": 4096}, ratio, ratio - 0.01, ratio + 0.01, 21, 1.0, 1.0, 1, graded=graded)


def events(root: Path = ROOT) -> tuple[Event, ...]:
    return progress.load(root).events


def child(script: str, **environment: str) -> subprocess.Popen[str]:
    setup = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\nfrom test_progress import *\n"
    setup += f"progress.BUSY_S = {PATIENCE_S}\n"  # however slow the disk
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", setup + script], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
    )


def test_nothing_is_there_before_anything_was_kept(folder: Path) -> None:
    assert progress.load(ROOT) == progress.History() and progress.clones() == {}
    assert not folder.exists()  # looking makes nothing


def test_a_grade_is_kept_whole() -> None:
    assert progress.keep_grade(own(WRONG)) is None
    assert progress.keep_grade(own(PASS)) is None
    first, second = events()
    assert first.time <= second.time and first.id != second.id
    assert (first.kata, first.what, first.device) == ("sgemm_naive_f32", "grade", "sim sm_90a")
    assert (first.verdict, first.summary, first.seconds, first.digest) == (
        "wrong answer",
        "3 of 257 elements of C are wrong",
        1.5,
        sha256(b"mine").hexdigest(),
    )
    assert (first.passed, second.passed, first.ratio, first.strength) == (False, True, None, None)


def test_the_speed_kept_is_the_lowest_that_was_graded() -> None:
    timed = Verdict(
        Kind.TOO_SLOW,
        "61 % of torch.mm",
        device="gpu sm_90a",
        measurements=(measured(0.9), measured(0.61), measured(0.2, graded=False)),
    )
    progress.keep_grade(own(timed))
    (event,) = events()
    assert (event.verdict, event.baseline, event.ratio, event.low, event.high) == (
        "too slow",
        "torch.mm",
        0.61,
        0.6,
        0.62,
    )


def test_hints_and_solutions_are_kept() -> None:
    for strength in (2, 1, 2):
        assert progress.keep_hint(KATA, strength) is None
    assert progress.keep_solution(KATA) is None
    found = progress.load(ROOT)
    seen = found.solution_seen(KATA.name)
    assert found.hints(KATA.name) == [1, 2] and seen is not None and seen.what == "solution"
    assert found.hints("elementwise_f32") == [] and found.solution_seen("elementwise_f32") is None


def test_what_passed_once_has_passed() -> None:
    for verdict in (WRONG, PASS, WRONG, PASS):
        progress.keep_grade(own(verdict))
    found = progress.load(ROOT)
    assert found.passed(KATA.name) == found.events[1] and found.passed("elementwise_f32") is None


@pytest.mark.parametrize(
    "graded",
    [
        Grade(KATA, source_of(KATA.solution_path), (PASS,)),
        Grade(KATA, Source(Path("/tmp/mine.cu")), (PASS,)),
        own(Verdict(Kind.NOT_STARTED, "2 TODOs")),
        own(Verdict(Kind.UNSUPPORTED, "this kata needs CUTLASS")),
    ],
    ids=["a solution", "a file from elsewhere", "not started", "a library is missing"],
)
def test_what_is_no_work_of_the_learners_is_not_kept(graded: Grade, folder: Path) -> None:
    assert progress.keep_grade(graded) is None and not folder.exists()


def test_the_learners_file_by_another_path_is_the_learners(tmp_path: Path) -> None:
    link = tmp_path / "link.cu"
    link.symlink_to(KATA.skeleton_path)
    progress.keep_grade(Grade(KATA, source_of(link), (PASS,)))
    assert len(events()) == 1


def test_the_digest_is_that_of_the_file_when_grading_began(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cu"
    broken.write_bytes(b"\0")
    assert grade(KATA, Options(device="sim"), source=broken).source.digest == (
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"  # printf '\0' | sha256sum
    )
    assert grade(KATA, Options(device="sim"), source=tmp_path / "nowhere.cu").source.digest == ""


def other_clone(tmp_path: Path) -> Kata:
    return Kata(name=KATA.name, family=KATA.family, level=KATA.level, elem=KATA.elem, root=tmp_path / "other")


def test_clones_do_not_mix(tmp_path: Path) -> None:
    other = other_clone(tmp_path)
    progress.keep_grade(own(WRONG))
    progress.keep_grade(own(PASS, kata=other))
    assert [event.passed for event in events()] == [False]
    assert [event.passed for event in events(other.root)] == [True]
    assert progress.clones() == {str(ROOT): 1, str(other.root): 1}


def test_data_lies_where_it_should(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert progress.data_file() == tmp_path / "data" / "progress.db"
    monkeypatch.delenv("KATA_DATA")
    assert progress.data_file() == tmp_path / "xdg" / "kata" / "progress.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert progress.data_file() == tmp_path / ".local" / "share" / "kata" / "progress.db"


# Two at once, and the end of a process


def test_processes_at_once_lose_nothing() -> None:
    script = "print([w for _ in range(25) if (w := progress.keep_grade(own(PASS)))])"
    running = [child(script) for _ in range(3)]  # the first also creates the database
    assert [process.communicate(timeout=PATIENCE_S)[0].strip() for process in running] == ["[]"] * 3
    assert len({event.id for event in events()}) == 75


def test_what_was_kept_outlives_a_kill() -> None:
    writer = child("while True: print(progress.keep_grade(own(PASS)), flush=True)")
    assert writer.stdout is not None
    said = [writer.stdout.readline().strip() for _ in range(10)]
    writer.send_signal(signal.SIGKILL)
    said += writer.stdout.read().split()  # communicate() would lose what readline() has read ahead
    writer.wait(timeout=PATIENCE_S)
    assert set(said) == {"None"}
    assert len(events()) in (len(said), len(said) + 1)  # the last may be kept, and not yet said
    assert progress.keep_grade(own(WRONG)) is None and not events()[-1].passed


def test_a_kill_in_the_middle_of_a_transaction_leaves_none_of_it(folder: Path) -> None:
    progress.keep_grade(own(PASS))
    script = """
def spill(db):
    db.execute("PRAGMA cache_size = 5")  # so that half of the transaction is in the file already
    db.execute("BEGIN IMMEDIATE")
    for number in range(5000):
        db.execute("INSERT INTO event (clone, id, time, kata, what) VALUES ('c', ?, 't', 'k', 'hint')", (number,))
    os.kill(os.getpid(), signal.SIGKILL)
progress._use(spill)
"""
    killed = child(script)
    assert killed.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert (folder / "progress.db").stat().st_size > 100_000 and (folder / "progress.db-journal").exists()
    assert len(events()) == 1 and progress.clones() == {str(ROOT): 1}
    assert progress.keep_grade(own(PASS)) is None and len(events()) == 2


def test_a_database_that_stays_busy_is_one_warning(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    progress.keep_grade(own(PASS))
    monkeypatch.setattr(progress, "BUSY_S", 0.05)
    with sqlite3.connect(folder / "progress.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        warning = progress.keep_grade(own(PASS))
    assert warning is not None and "locked" in warning and "not kept" in warning
    other.close()


# Versions


MORE = ("ALTER TABLE event ADD COLUMN mood TEXT", "UPDATE event SET mood = 'proud'")


def test_an_older_database_is_brought_forward(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    progress.keep_grade(own(PASS))
    before = events()
    monkeypatch.setattr(progress, "MIGRATIONS", [*progress.MIGRATIONS, MORE])
    assert events() == before
    assert progress.keep_grade(own(WRONG)) is None and len(events()) == 2
    with sqlite3.connect(folder / "progress.db") as db:
        assert db.execute("SELECT mood FROM event").fetchall() == [("proud",), (None,)]
        assert db.execute("PRAGMA user_version").fetchone() == (len(progress.MIGRATIONS),)
    db.close()


def test_a_database_of_the_first_schema_gets_what_a_roofline_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(progress, "MIGRATIONS", progress.MIGRATIONS[:1])
        patch.setattr(progress, "_COLUMNS", progress._COLUMNS[: progress._COLUMNS.index("card")])
        progress.keep_grade(own(WRONG))
    progress.keep_grade(own(Verdict(Kind.PASS, "right", device="gpu sm_90a", measurements=(measured(0.9),))))
    old, new = events()
    assert (old.verdict, old.card, old.time_s) == ("wrong answer", None, None)
    assert (new.sizes, new.time_s, new.bytes_moved, new.flops) == ("M=4096", 1.0, 1.0, 0.0)


def test_a_migration_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    progress.keep_grade(own(PASS))
    before = events()
    with monkeypatch.context() as patch:
        patch.setattr(progress, "MIGRATIONS", [*progress.MIGRATIONS, (*MORE, "no SQL")])
        assert "not kept" in (progress.keep_grade(own(PASS)) or "")
    assert events() == before


def test_a_newer_database_is_refused_and_left_alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(progress, "MIGRATIONS", [*progress.MIGRATIONS, MORE])
        progress.keep_grade(own(PASS))
    content = (folder / "progress.db").read_bytes()
    known = len(progress.MIGRATIONS)
    with pytest.raises(ProgressError, match=all_of("newer", str(known + 1), str(known))):
        progress.load(ROOT)
    assert has(progress.keep_grade(own(PASS)) or "", "not kept", "newer")
    assert (folder / "progress.db").read_bytes() == content and sorted(os.listdir(folder)) == ["progress.db"]


# Damage, and places that cannot be written


def no_database(path: Path) -> None:
    path.write_bytes(b"These are not the bytes of a database. " * 100)


def torn(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def cut(path: Path) -> None:
    os.truncate(path, 5000)


@pytest.mark.parametrize("damage", [no_database, torn, cut])
@pytest.mark.parametrize("first", ["kept", "read"])
def test_a_damaged_file_is_kept_aside(damage: Any, first: str, folder: Path) -> None:
    progress.keep_grade(own(PASS))
    path = folder / "progress.db"
    damage(path)
    damaged = path.read_bytes()
    warning = progress.keep_grade(own(WRONG)) if first == "kept" else progress.load(ROOT).warning
    assert has(warning or "", str(path), "damaged", "progress.db.damaged-1")
    assert (folder / "progress.db.damaged-1").read_bytes() == damaged
    assert progress.keep_grade(own(PASS)) is None and events()[-1].passed
    no_database(path)
    assert "progress.db.damaged-2" in (progress.keep_grade(own(WRONG)) or "")


ELSEWHERE = Kata(name=KATA.name, family=KATA.family, level=KATA.level, elem=KATA.elem, root=Path("/elsewhere"))


def filled(folder: Path) -> tuple[Path, list[Event]]:
    """A database of many pages, with events of two clones in turn; those of this one."""
    for number in range(200):
        progress.keep_hint(ELSEWHERE if number % 2 else KATA, number)
    return folder / "progress.db", list(events())


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def hole(path: Path) -> None:
    """A page in the middle is overwritten."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)


@pytest.mark.parametrize("damage", [half, hole])
def test_what_can_be_read_of_a_damaged_file_is_in_the_new_one(damage: Any, folder: Path) -> None:
    path, before = filled(folder)
    damage(path)
    damaged = path.read_bytes()
    found = progress.load(ROOT)
    assert 0 < len(found.events) < 100 and list(found.events) == [event for event in before if event in found.events]
    every = sum(progress.clones().values())
    assert len(found.events) < every and has(found.warning or "", "damaged-1", f"the {every} events")
    assert (folder / "progress.db.damaged-1").read_bytes() == damaged
    if damage is hole:
        assert {before[0], before[-1]} <= set(found.events)  # from both ends


def test_what_cannot_be_copied_is_said(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    path, _ = filled(folder)
    half(path)
    real = progress._insert

    def insert(db: Any, clone: str, of: Any) -> int:
        if clone == str(ELSEWHERE.root):
            raise sqlite3.OperationalError("disk full")
        return real(db, clone, of)

    monkeypatch.setattr(progress, "_insert", insert)
    assert re.search(r"with 0 of the \d+ events", progress.load(ROOT).warning or "")


NO_EVENTS = ["time = 'yesterday'", "time = x'ff'", "what = 'dance'", "ratio = 'fast'"]


@pytest.mark.parametrize("change", NO_EVENTS)
def test_a_row_that_is_no_event_is_named_and_left_alone(change: str, folder: Path) -> None:
    for verdict in (WRONG, PASS, WRONG):
        progress.keep_grade(own(verdict))
    first, second, third = events()
    with contextlib.closing(sqlite3.connect(folder / "progress.db")) as db, db:
        db.execute(f"UPDATE event SET {change} WHERE id = ?", (second.id,))
    content = (folder / "progress.db").read_bytes()
    found = progress.load(ROOT)
    assert found.events == (first, third)
    assert has(found.warning or "", "1 row", second.id, change.split()[0]) and "\n" not in (found.warning or "")
    assert (folder / "progress.db").read_bytes() == content
    assert progress.keep_grade(own(PASS)) is None and len(events()) == 3


def test_a_text_that_is_not_utf_8_hides_no_event(folder: Path) -> None:
    progress.keep_grade(own(WRONG))
    with contextlib.closing(sqlite3.connect(folder / "progress.db")) as db, db:
        db.execute("UPDATE event SET summary = CAST(x'61ff' AS TEXT)")
    assert [event.summary for event in events()] == ["a\ufffd"]


def test_a_file_that_is_a_link_to_itself_is_kept_as_what_it_is(tmp_path: Path) -> None:
    kata = other_clone(tmp_path)
    kata.skeleton_path.parent.mkdir(parents=True)
    kata.skeleton_path.symlink_to(kata.skeleton_path)
    assert progress.keep_grade(own(WRONG, kata=kata)) is None and len(events(kata.root)) == 1


def test_of_processes_that_meet_a_damaged_file_one_sets_it_aside(folder: Path) -> None:
    progress.keep_grade(own(PASS))
    no_database(folder / "progress.db")
    running = [child("progress.keep_grade(own(PASS)); print(progress.keep_grade(own(PASS)))") for _ in range(4)]
    assert [process.communicate(timeout=PATIENCE_S)[0].strip() for process in running] == ["None"] * 4
    assert len(events()) == 8
    assert [name for name in os.listdir(folder) if "damaged" in name] == ["progress.db.damaged-1"]


def test_only_the_journal_of_the_damaged_file_is_set_aside_with_it(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Another process may begin a new database, with a journal of its own, as soon as the damaged one is gone."""
    progress.keep_grade(own(PASS))
    no_database(folder / "progress.db")
    monkeypatch.setattr(progress, "BUSY_S", 0.05)
    real, others = Path.rename, []

    def rename(path: Path, target: Path) -> Path:
        done = real(path, target)
        if path.name == "progress.db":
            others.append(sqlite3.connect(path, isolation_level=None))
            for statement in ("CREATE TABLE t (x)", "BEGIN IMMEDIATE", "INSERT INTO t VALUES (1)"):
                others[0].execute(statement)
        return done

    monkeypatch.setattr(Path, "rename", rename)
    assert "locked" in (progress.keep_grade(own(PASS)) or "")
    others[0].execute("COMMIT")
    assert others[0].execute("SELECT x FROM t").fetchall() == [(1,)]
    others[0].close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may reach; pytest's own are for their owner."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


READ_ONLY = """
import os, sqlite3, sys
from pathlib import Path
from grader.learner import progress
from grader.content.catalog import Kata
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
print(progress.keep_hint(Kata(name="k", family="f", level="easy", elem="f32", root=Path("/clone")), 1))
print(len(progress.load(Path("/clone")).events))
"""


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "with a database"])
def test_a_read_only_folder_is_one_warning(filled: bool, open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_DATA", str(open_folder / "data"))
    (open_folder / "data").mkdir()
    if filled:
        progress.keep_hint(Kata(name="k", family="f", level="easy", elem="f32", root=Path("/clone")), 1)
        (open_folder / "data" / "progress.db").chmod(0o444)
    (open_folder / "data").chmod(0o555)
    done = subprocess.run([sys.executable, "-c", READ_ONLY], cwd=ROOT, capture_output=True, text=True)
    warning, count = done.stdout.splitlines()
    assert has(warning, "not kept as progress", "KATA_DATA")
    assert count == str(int(filled))  # what is there can be read all the same


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/data", "/proc/data"])
def test_a_folder_that_cannot_be_is_one_warning(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_DATA", place)
    warning = progress.keep_grade(own(PASS))
    assert warning is not None and len(warning.splitlines()) == 1 and "KATA_DATA" in warning
    assert events() == ()


def test_a_full_disk_is_one_warning() -> None:
    progress.keep_grade(own(PASS))
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "print([progress.keep_grade(own(PASS)) for _ in range(2)])"
    )
    said = child(script).communicate(timeout=PATIENCE_S)[0]
    assert said.count("not kept as progress") == 2
    assert len(events()) == 1 and progress.keep_grade(own(PASS)) is None and len(events()) == 2


def test_a_python_without_sqlite_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    progress.expect()
    assert has(progress.keep_grade(own(PASS)) or "", "not kept as progress", "sqlite3")


def test_sqlite_is_imported_when_it_is_needed() -> None:
    code = "import sys, grader.cli, grader.pytest_plugin; print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


# Taking it elsewhere


def test_what_is_exported_can_be_imported_without_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Verdict(Kind.PASS, "31 cases", device="gpu sm_90a", measurements=(measured(0.93),))
    progress.keep_grade(own(WRONG))
    progress.keep_hint(KATA, 2)
    progress.keep_solution(KATA)
    lines = list(progress.export_lines(progress.clone_of(ROOT)))
    assert json.loads(lines[0]) == {"kata_progress": len(progress.MIGRATIONS), "clone": str(ROOT)} and len(lines) == 4
    before = events()
    assert progress.import_lines(lines, ROOT) == 0 and events() == before
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "another machine"))
    elsewhere = other_clone(tmp_path)
    progress.keep_grade(own(timed, kata=elsewhere))
    assert progress.import_lines(lines, elsewhere.root) == 3
    assert progress.import_lines([*lines, "", *lines], elsewhere.root) == 0
    assert set(events(elsewhere.root)) > set(before) and len(events(elsewhere.root)) == 4
    assert events(elsewhere.root)[:3] == before  # in the order in which they happened, not that of the import


GOOD = {"id": "a", "time": "2026-03-31T12:00:00.000+00:00", "kata": "k", "what": "hint", "strength": 1}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", all_of("line 2", "JSON")),
        ("[]", all_of("line 2", "object")),
        ({**GOOD, "time": "yesterday"}, all_of("line 2: time", "'yesterday'")),
        ({**GOOD, "mood": "proud"}, all_of("line 2:", "unknown", "'mood'")),
        ({**GOOD, "ratio": "fast"}, all_of("line 2: ratio", "'fast'")),
        ({**GOOD, "ratio": float("nan")}, all_of("line 2: ratio", "nan")),
        ({**GOOD, "low": float("-inf")}, all_of("line 2: low", "-inf")),
        ({**GOOD, "strength": True}, all_of("line 2: strength", "True")),
        ({**GOOD, "what": "dance"}, all_of("line 2: what", "'dance'")),
        ({"id": "a"}, all_of("line 2: time", "missing")),
        ({"kata_progress": len(progress.MIGRATIONS) + 1}, all_of("line 2:", "newer")),
    ],
)
def test_an_import_is_all_or_nothing(line: str | Mapping[str, Any], said: str) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    with pytest.raises(ProgressError, match=said):
        progress.import_lines([json.dumps({**GOOD, "id": "b"}), text], ROOT)
    assert events() == ()


def test_times_of_an_import_are_compared_in_utc() -> None:
    late = {**GOOD, "id": "late", "time": "2026-03-31T12:00:00+00:00"}
    early = {**GOOD, "id": "early", "time": "2026-03-31T12:30:00+02:00"}
    assert progress.import_lines([json.dumps(late), json.dumps(early)], ROOT) == 2
    assert [event.id for event in events()] == ["early", "late"]
