"""Archives that were handed in, and points for the platform that they came from."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from facts import all_of, has
from test_classes import CATALOG, handed_in, kata, rows_of

from grader.classes import archives
from grader.classes.archives import ArchiveError, unpack
from grader.classes.gradebook import NBGRADER, Result, RosterError, grades, read_roster
from grader.classes.submission import MISSING, Shelf, Submission, SubmissionError, entries, find_submissions
from grader.content.skeleton import skeleton_of

FILES = {"relu_f32.cu": b"1", "deep/n.cuh": b"2", ".git/elu_f32.cu": b"3", "__MACOSX/elu_f32.cu": b"4"}


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with Shelf() as shelf:
        yield shelf


def a_zip(files: dict[str, bytes], modes: dict[str, int] | None = None, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", method) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type, info.external_attr = method, (modes or {}).get(name, 0o100644) << 16
            archive.writestr(info, content)
    return raw.getvalue()


def a_tar(files: dict[str, bytes], kinds: dict[str, bytes] | None = None) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = (kinds or {}).get(name, tarfile.REGTYPE), "/etc/passwd"
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return raw.getvalue()


PACKERS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "a.zip": a_zip,
    "a.ZIP": lambda files: a_zip(files, method=zipfile.ZIP_STORED),
    "a.tar": a_tar,
    "a.tgz": lambda files: gzip.compress(a_tar(files)),
    "a.tar.bz2": lambda files: bz2.compress(a_tar(files)),
    "a.tar.xz": lambda files: lzma.compress(a_tar(files)),
    "tar.zip": a_tar,  # by its name another kind than it is
}


def packed(place: Path, content: bytes) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


def unpacked(tmp_path: Path, name: str, content: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files that came out, and what stayed packed, with the reason."""
    into = tmp_path / "around" / "into"
    into.mkdir(parents=True)
    left = unpack(packed(tmp_path / name, content), into)
    assert [item.name for item in (tmp_path / "around").iterdir()] == ["into"]
    files = [item for item in into.rglob("*") if not item.is_dir() or item.is_symlink()]
    assert all(stat.S_ISREG(item.lstat().st_mode) for item in files)
    return {str(item.relative_to(into)): item.read_bytes() for item in files}, dict(left)


# -- unpacking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PACKERS)
def test_every_kind_of_archive_gives_its_files(tmp_path: Path, name: str) -> None:
    files, left = unpacked(tmp_path, name, PACKERS[name](FILES))
    assert files == {"relu_f32.cu": b"1", "deep/n.cuh": b"2"} and left == {}


OUTSIDE = ("../relu_f32.cu", "a/../../relu_f32.cu", "/tmp/relu_f32.cu", "C:/relu_f32.cu", "..\\relu_f32.cu")


@pytest.mark.parametrize("pack", [a_zip, a_tar], ids=["zip", "tar"])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    names = OUTSIDE if pack is a_zip else OUTSIDE[:-1]
    files, left = unpacked(tmp_path, "a.zip", pack({**dict.fromkeys(names, b"evil"), "elu_f32.cu": b"1"}))
    assert files == {"elu_f32.cu": b"1"} and {name.replace("\\", "/") for name in left} == {
        name.replace("\\", "/") for name in names
    }
    assert all(has(why, "out of the archive") for why in left.values())


def test_links_and_devices_stay_packed_and_nothing_is_written_through_them(tmp_path: Path) -> None:
    files = {"relu_f32.cu": b"/etc/passwd", "d": b"/tmp", "d/elu_f32.cu": b"1", "gelu_f32.cu": b"", "swish_f32.cu": b""}
    modes = {"relu_f32.cu": stat.S_IFLNK | 0o777, "d": stat.S_IFLNK | 0o777}
    assert unpacked(tmp_path / "z", "a.zip", a_zip(files, modes))[0].keys() == {
        "d/elu_f32.cu",
        "gelu_f32.cu",
        "swish_f32.cu",
    }
    kinds = {"relu_f32.cu": tarfile.SYMTYPE, "d": tarfile.SYMTYPE, "gelu_f32.cu": tarfile.CHRTYPE}
    found, left = unpacked(tmp_path / "t", "a.tar", a_tar(files, {**kinds, "swish_f32.cu": tarfile.LNKTYPE}))
    assert found == {"d/elu_f32.cu": b"1"}
    assert left.keys() == {"relu_f32.cu", "gelu_f32.cu", "swish_f32.cu"} and has(left["relu_f32.cu"], "link")


@pytest.mark.parametrize("name", [name for name in PACKERS if name not in ("a.ZIP", "tar.zip")])
def test_a_bomb_is_put_down(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    bomb = PACKERS[name]({"relu_f32.cu": bytes(3 << 20)})
    assert name == "a.tar" or len(bomb) < 1 << 14
    with pytest.raises(ArchiveError, match=all_of("more than 1 MiB")):
        unpacked(tmp_path, name, bomb)
    assert sum(item.stat().st_size for item in (tmp_path / "around").rglob("*.cu")) <= 1 << 20


def test_what_is_hidden_in_a_tar_counts_and_so_do_empty_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(archives, "MOST_FILES", 50)
    with pytest.raises(ArchiveError, match="MiB"):
        unpacked(tmp_path / "a", "a.tgz", gzip.compress(a_tar({".big": bytes(3 << 20)})))
    for number, pack in enumerate((a_zip, a_tar)):
        with pytest.raises(ArchiveError, match=all_of("50", "files")):
            unpacked(tmp_path / str(number), "a.zip", pack({f"{count}.cu": b"" for count in range(51)}))


def test_a_zip_that_lies_about_its_sizes_is_counted_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    bomb = bytearray(a_zip({"relu_f32.cu": bytes(3 << 20)}))
    central = bomb.rindex(b"PK\x01\x02")
    bomb[central + 24 : central + 28] = (100).to_bytes(4, "little")  # the unpacked size
    with pytest.raises(ArchiveError):
        unpacked(tmp_path, "a.zip", bytes(bomb))


ENCRYPTED = bytearray(a_zip({"relu_f32.cu": b"1"}))
for _head, _flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
    ENCRYPTED[ENCRYPTED.index(_head) + _flags] |= 1
WHOLE = a_tar({"relu_f32.cu": os.urandom(9000)})


def _long_name() -> bytes:
    """A header of a tar that says that a name of no letters follows, and none does."""
    info = tarfile.TarInfo("././@LongLink")
    info.type = tarfile.GNUTYPE_LONGNAME
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.zip", b""),
        ("a.zip", b"PK\x03\x04 and no more"),
        ("a.zip", a_zip({"relu_f32.cu": b"1" * 99})[:-30]),
        ("a.zip", bytes(ENCRYPTED)),
        ("a.zip", a_zip({"relu_f32.cu": b"1"}, method=zipfile.ZIP_LZMA)),
        ("a.zip", a_zip({"relu_f32.cu": b"1"}).replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\x63")),  # 9.9
        ("a.tar", b"".join(_long_name() for _ in range(3000))),
        ("a.tar", b"no tar" * 999),
        ("a.tar", WHOLE[:5000]),
        ("a.tar.gz", gzip.compress(WHOLE)[:5000]),
        ("a.tar.bz2", b"BZh9" + bytes(99)),
        ("a.tar.xz", lzma.compress(WHOLE)[:5000]),
        ("a.tar.xz", b"\xfd7zXZ\0" + bytes(99)),
        ("a.rar", b"Rar!"),
    ],
)
def test_what_cannot_be_unpacked_is_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(ArchiveError) as found:
        unpacked(tmp_path, name, content)
    assert str(found.value) and "\n" not in str(found.value)


def test_names_that_no_disk_can_hold_stay_packed(tmp_path: Path) -> None:
    names = ["a" * 300 + ".cu", "/".join("abcdefgh" * 5) + "/relu_f32.cu", "elu_f32.cu/gelu_f32.cu"]
    files, left = unpacked(tmp_path, "a.zip", a_zip({"elu_f32.cu": b"1", **dict.fromkeys(names, b"2")}))
    assert files == {"elu_f32.cu": b"1"} and set(left) == set(names)


def test_of_a_file_that_is_there_twice_the_first_counts(tmp_path: Path) -> None:
    raw = a_zip({"relu_f32.cu": b"1", "relu_f32.CU": b"2"}).replace(b"relu_f32.CU", b"relu_f32.cu")
    files, left = unpacked(tmp_path, "a.zip", raw)
    assert files == {"relu_f32.cu": b"1"} and has(left["relu_f32.cu"], "twice")


# -- submissions -------------------------------------------------------------------------------------------------------


def said(submissions: list[Submission]) -> dict[str, dict[str, str]]:
    """Submission -> kata or file -> verdict, empty where it is to be graded."""
    return {item.name: {e.kata or e.file or "": e.verdict for e in entries(item, CATALOG)} for item in submissions}


def test_archives_are_submissions_beside_folders(tmp_path: Path, shelf: Shelf) -> None:
    handed_in(tmp_path, "ann", {"relu_f32.cu": "1"})
    packed(tmp_path / "bob.zip", a_zip({"hand-in/relu_f32.cu": b"1"}))
    packed(tmp_path / "cy.tar.gz", gzip.compress(a_tar({"elu_f32.cu": b"1", "../x.cu": b"2"})))
    packed(tmp_path / "dan" / "files.zip", a_zip({"gelu_f32.cu": b"1", "more.zip": b"2"}))
    handed_in(tmp_path, "eve", {"relu_f32.cu": "1", "old.zip": a_zip({"relu_f32.cu": b"2"})})
    packed(tmp_path / "fay.zip", b"PK")
    packed(tmp_path / "gus.rar", b"Rar!")
    (tmp_path / "notes.txt").write_text("")
    before = sorted(tmp_path.rglob("*"))
    found = find_submissions([], tmp_path, shelf)
    assert said(found) == {
        "ann": {"relu_f32": ""},
        "bob": {"relu_f32": ""},
        "cy": {"elu_f32": "", "cy.tar.gz/../x.cu": "not allowed"},
        "dan": {"gelu_f32": "", "more.zip": "not allowed"},
        "eve": {"relu_f32": "", "old.zip": "not allowed"},
        "fay": {"fay.zip": "not allowed"},
        "gus": {"gus.rar": "not allowed"},
    }
    assert sorted(tmp_path.rglob("*")) == before


def test_an_archive_of_a_class_is_its_folders_and_archives(tmp_path: Path, shelf: Shelf) -> None:
    files = {"ann/relu_f32.cu": b"1", "bob.zip": a_zip({"elu_f32.cu": b"1"}), "../../x": b"2"}
    found = find_submissions([], packed(tmp_path / "class.zip", a_zip(files)), shelf)
    assert said(found) == {
        "ann": {"relu_f32": ""},
        "bob": {"elu_f32": ""},
        "class.zip": {"../../x": "not allowed"},
    }
    inner = {f"class/{name}": content for name, content in files.items() if name != "../../x"}
    found = find_submissions([], packed(tmp_path / "one_folder.zip", a_zip(inner)), shelf)
    assert said(found) == {"ann": {"relu_f32": ""}, "bob": {"elu_f32": ""}}
    with pytest.raises(SubmissionError, match=all_of("bad.zip", "unpacked")):
        find_submissions([], packed(tmp_path / "bad.zip", b"PK"), shelf)
    with pytest.raises(SubmissionError, match=all_of("empty.zip", "no folder")):
        find_submissions([], packed(tmp_path / "empty.zip", a_zip({})), shelf)


def test_what_platforms_let_download_is_one_submission_per_student(tmp_path: Path, shelf: Shelf) -> None:
    for name in ("doejane_3241_98213_relu_f32.cu", "doejane_3241_98214_elu_f32-1.cu"):
        packed(tmp_path / "canvas" / name, b"1")
    packed(tmp_path / "canvas" / "ray_LATE_7_9_all.zip", a_zip({"gelu_f32.cu": b"1"}))
    found = find_submissions([], tmp_path / "canvas", shelf)
    assert said(found) == {"doejane_3241": {"relu_f32": "", "elu_f32": ""}, "ray_7": {"gelu_f32": ""}}
    assert [(item.person, item.id) for item in found] == [("doejane", "3241"), ("ray", "7")]
    handed_in(tmp_path / "moodle", "Jane Doe_512_assignsubmission_onlinetext", {"onlinetext.html": "1"})
    handed_in(tmp_path / "moodle", "Jane Doe_512_assignsubmission_file", {"relu_f32.cu": "1"})
    (moodle,) = find_submissions([], tmp_path / "moodle", shelf)
    assert (moodle.person, moodle.id) == ("Jane Doe", "512")


def test_no_file_of_canvas_replaces_another(tmp_path: Path, shelf: Shelf) -> None:
    files = {"relu_f32.cu": b"old", "relu_f32-1.cu": b"new", "elu_f32-1.cu": b'#include "vec-4.cuh"', "vec-4.cuh": b""}
    for number, (name, content) in enumerate(files.items()):
        packed(tmp_path / "files" / f"doe_1_{number}_{name}", content)
    for name in ("relu_f32", "elu_f32"):
        packed(tmp_path / "packed" / f"doe_1_2_week-{len(name)}.zip", a_zip({f"{name}.cu": b"1"}))
    (found,) = find_submissions([], tmp_path / "files", shelf)
    assert sorted(os.listdir(found.folder)) == ["elu_f32.cu", "relu_f32-1.cu", "relu_f32.cu", "vec-4.cuh"]
    (found,) = find_submissions([], tmp_path / "packed", shelf)
    assert said([found]) == {"doe_1": {"relu_f32": "", "elu_f32": ""}}


def test_a_shelf_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    archive = packed(tmp_path / "ann.zip", a_zip({"relu_f32.cu": b"1"}))
    with Shelf() as shelf:
        (found,) = find_submissions([archive], None, shelf)
        assert (found.folder / "relu_f32.cu").is_file() and len(os.listdir(temporary)) == 1
    assert os.listdir(temporary) == []


def test_a_full_disk_is_said(tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("grader.classes.submission.unpack", full)
    with pytest.raises(SubmissionError, match=all_of("ann.zip", "No space left", "TMPDIR")):
        find_submissions([packed(tmp_path / "ann.zip", a_zip({}))], None, shelf)
    packed(tmp_path / "canvas" / "doe_1_2_relu_f32.cu", b"1")
    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(SubmissionError, match=all_of("doe_1_2_relu_f32.cu", "No space left", "TMPDIR")):
        find_submissions([], tmp_path / "canvas", shelf)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(SubmissionError, match=all_of("No such file", "TMPDIR")), Shelf() as other:
        other.place()


# -- points ------------------------------------------------------------------------------------------------------------

CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Essay (17),Katas (18),Final Score
,,,,,,Manual Posting,(read only)
    Points Possible,,,,,10,4,(read only)
"Doe, Jane",3241,S1,jane,A,9,,90
"Müller, Frank",3242,S2,frank@uni.edu,A,8,1,80
"Roe, Ray",7,S3,ray,B,,3,
"""
WORKSHEET_HEAD = (
    "\ufeffIdentifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
    "Last modified (grade),Feedback comments"
)
WORKSHEET = f"""{WORKSHEET_HEAD}
Participant 512,Jane Doe,jane@x.edu,Submitted,,"10,00",Yes,-,
Participant 513,Frank Müller,f@x.edu,Submitted,,"10,00",Yes,-,
"""
EXPORT = """First name,Surname,ID number,Email address,Assignment: Katas (Real),Last downloaded from this course
Jane,Doe,S1,jane@x.edu,-,1
Jane,Doe,S2,jd@x.edu,-,1
"""
STUDENTS = "id,first_name,last_name,email\njane,Jane,Doe,jane@x.edu\nray,Ray,Roe,\n"


def a_roster(tmp_path: Path, text: str) -> Path:
    place = tmp_path / "roster.csv"
    place.write_text(text, encoding="utf-8")
    return place


def given(name: str, passed: int, person: str = "", number: str = "") -> Result:
    return Result(Submission(name, Path("/nowhere"), person or name, number), passed, "relu_f32: pass")


def table(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter=delimiter))


def test_canvas_gets_one_column_and_keeps_what_was_in_it(tmp_path: Path) -> None:
    results = [given("doejane_3241", 1, "doejane", "3241"), given("frank müller", 2), given("zoe", 1)]
    text, remarks = grades(results, 2, read_roster(a_roster(tmp_path, CANVAS)), "Katas")
    assert table(text) == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Katas (18)"],
        ["", "", "", "", "", "Manual Posting"],
        ["    Points Possible", "", "", "", "", "4"],
        ["Doe, Jane", "3241", "S1", "jane", "A", "2"],
        ["Müller, Frank", "3242", "S2", "frank@uni.edu", "A", "4"],
        ["Roe, Ray", "7", "S3", "ray", "B", "3"],
    ]
    (remark,) = remarks
    assert has(remark, "zoe", "roster.csv")


@pytest.mark.parametrize("name", ["3241", "S1", "jane", "Jane Doe", "doe_jane", "Doe, Jane"])
def test_a_student_is_found_by_any_of_their_names(tmp_path: Path, name: str) -> None:
    text, remarks = grades([given(name, 1)], 1, read_roster(a_roster(tmp_path, CANVAS)), "Katas (18)")
    assert remarks == [] and [line[-1] for line in table(text)[3:]] == ["4", "1", "3"]


def test_the_platforms_number_counts_more_than_a_name(tmp_path: Path) -> None:
    roster = read_roster(a_roster(tmp_path, CANVAS.replace("S3,ray", "S3,doejane")))
    text, remarks = grades([given("doejane_3241", 1, "doejane", "3241")], 1, roster, "Katas")
    assert remarks == [] and [line[-1] for line in table(text)[3:]] == ["4", "1", "3"]


def test_an_assignment_that_canvas_does_not_have_is_a_new_column(tmp_path: Path) -> None:
    roster = read_roster(a_roster(tmp_path, CANVAS.replace(",", ";").replace('"Doe; ', '"Doe, ')))
    text, _ = grades([given("jane", 2)], 3, roster, "Katas 2")
    assert [line[-1] for line in table(text, ";")] == ["Katas 2", "", "3", "2", "", ""]
    bare = "".join(CANVAS.splitlines(keepends=True)[::3])  # the head, and Jane
    text, _ = grades([given("jane", 2)], 3, read_roster(a_roster(tmp_path, bare)), "Katas 2")
    assert [(line[0].strip(), line[-1]) for line in table(text)] == [
        ("Student", "Katas 2"),
        ("Points Possible", "3"),
        ("Doe, Jane", "2"),
    ]


def test_moodles_worksheet_gets_points_and_words(tmp_path: Path) -> None:
    results = [given("x", 1, "Jane Doe", "512"), given("Frank Müller", 2)]
    text, remarks = grades(results, 3, read_roster(a_roster(tmp_path, WORKSHEET)), None)
    head, jane, frank = table(text)
    assert head[0] == "Identifier" and len(head) == 9 and remarks == []
    assert (jane[4], jane[8], frank[4]) == ("3.33", "relu_f32: pass", "6.67")


def test_who_may_be_two_students_gets_no_points(tmp_path: Path) -> None:
    roster = read_roster(a_roster(tmp_path, EXPORT))
    text, remarks = grades([given("Jane Doe", 1), given("jd", 1), given("S2", 1)], 1, roster, "Katas")
    assert [line[4] for line in table(text)[1:]] == ["-", "-"] and len(remarks) == 2
    assert has(remarks[0], "Jane Doe", "several") and has(remarks[1], "jd", "S2", "one student")
    text, remarks = grades([given("jd", 1)], 1, roster, "Katas")
    assert [line[4] for line in table(text)[1:]] == ["-", "1"] and remarks == []


def test_nbgraders_columns_have_every_student(tmp_path: Path) -> None:
    text, _ = grades([given("jane", 2), given("=cmd()", 1)], 3, None, None)
    head, jane, other = table(text)
    assert head == list(NBGRADER) and jane[3] == "jane" and jane[7:] == ["2.0", "0.0", "2.0", "3.0"]
    assert other[3] == "'=cmd()"
    text, _ = grades([given("jane", 2)], 3, read_roster(a_roster(tmp_path, STUDENTS)), "week 1")
    assert table(text)[1:] == [
        ["week 1", "", "", "jane", "Doe", "Jane", "jane@x.edu", "2.0", "0.0", "2.0", "3.0"],
        ["week 1", "", "", "ray", "Roe", "Ray", "", "0.0", "0.0", "0.0", "3.0"],
    ]
    ungraded = Result(given("jane", 0).submission, None, "")
    text, _ = grades([ungraded, given("x", 1)], 3, None, None)
    assert [line[3] for line in table(text)[1:]] == ["x"]
    for results in ([ungraded, given("x", 1)], [given("jane", 1), given("Jane Doe", 2)]):
        text, remarks = grades(results, 3, read_roster(a_roster(tmp_path, STUDENTS)), None)
        assert [line[3] for line in table(text)[1:]] == ["ray"] and len(remarks) == 1


@pytest.mark.parametrize(
    ("text", "assignment", "facts"),
    [
        ("", None, ["table"]),
        ("a,b\n1,2,3\n", None, ["table"]),
        ("a,b\n1,2\n", None, ["Canvas", "Moodle", "nbgrader"]),
        (CANVAS, None, ["--assignment"]),
        (EXPORT, "Kata", ["Kata", "Assignment: Katas (Real)"]),
    ],
)
def test_a_roster_that_cannot_be_filled_is_refused(
    tmp_path: Path, text: str, assignment: str | None, facts: list[str]
) -> None:
    place = a_roster(tmp_path, text)
    with pytest.raises(RosterError, match=all_of("roster.csv", *facts)):
        grades([], 1, read_roster(place), assignment)


def test_a_roster_in_another_encoding_or_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("Full name,Email address\nMüller,\n".encode("latin-1"))
    for name, fact in (("latin.csv", "UTF-8"), ("nowhere.csv", "read")):
        with pytest.raises(RosterError, match=all_of(name, fact)):
            read_roster(tmp_path / name)


def test_a_zip_is_graded_and_its_points_are_written(tmp_path: Path) -> None:
    """Nothing is compiled for this: what is handed in is a skeleton."""
    text = skeleton_of(CATALOG.katas["relu_f32"]).encode()
    packed(tmp_path / "class" / "jane.zip", a_zip({"relu_f32.cu": text}))
    packed(tmp_path / "class" / "ray.tar.gz", gzip.compress(a_tar({"notes.txt": b"sorry"})))
    results, out = tmp_path / "r.jsonl", tmp_path / "grades.csv"
    roster = a_roster(tmp_path, STUDENTS)
    arguments = ("relu_f32", "--submissions", tmp_path / "class", "--results", results, "--grades", out)
    done = kata(*arguments, "--roster", roster)
    assert done.returncode == 1 and done.stderr.count("kata: ") == 0
    assert {row["submission"]: row["verdict"] for row in rows_of(results)} == {"jane": "not started", "ray": MISSING}
    assert [line[3] for line in table(out.read_text())[1:]] == ["jane", "ray"]
    again = kata(*arguments, "--roster", roster)  # unpacked elsewhere, and yet the same files
    assert again.stderr.count("as before") == 2
    refused = kata("--submissions", tmp_path / "class", "--grades", out)
    assert refused.returncode == 2 and has(refused.stderr, "--grades", "katas", "name")
