"""Folders that were handed in: graded without touching anything, one bad one stopping no other, stopped and resumed."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from compiler import HeldCompiler
from facts import all_of, has
from patience import PATIENCE_S, wait_for, wait_for_the_end_of
from test_faces import run
from test_wrong_kernels import BY_NAME

from grader.classes.rows import Results, ResultsError
from grader.classes.submission import MISSING, TWICE, UNKNOWN, Shelf, Submission, entries, find_submissions
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog
from grader.content.skeleton import skeleton_of
from grader.system.processes import descendants

pytestmark = pytest.mark.usefixtures("module_remembers")

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(ROOT)
KATA = CATALOG.katas["elementwise_f32"]
RIGHT = KATA.solution_path.read_text()
EXPLOITS = ROOT / "tests" / "exploits" / "elementwise_f32"
SCHEMA = json.loads((ROOT / "docs" / "result.schema.json").read_text())
FIELDS = {"submission", "kata", "file", "passed", "verdict", "summary"}


def handed_in(parent: Path, name: str, files: dict[str, str | bytes]) -> Path:
    folder = parent / name
    for file, content in files.items():
        place = folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kata(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(cwd, "-m", "grader", "grade", "--device", "sim", *map(str, arguments), **environment)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def verdicts(rows: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    return {(row["submission"], row["kata"] or row["file"]): row["verdict"] for row in rows}


# What other tests may write, what is kept between two runs, and installed packages.
NOT_OURS = {"__pycache__", ".git", ".hypothesis", ".mypy_cache", ".ruff_cache", ".venv"}


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below a folder, with what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and NOT_OURS.isdisjoint(path.parts)
    }


# -- what a folder has -------------------------------------------------------------------------------------------------


def found(folder: Path, *wanted: str) -> dict[str, tuple[str, str]]:
    """kata or file -> (what is said of it, why); an empty verdict is to be graded."""
    listed = entries(Submission("s", folder), CATALOG, wanted)
    return {item.kata or item.file or "": (item.verdict, item.summary) for item in listed}


def test_katas_are_found_anywhere_below_in_the_order_of_the_catalogue(tmp_path: Path) -> None:
    handed_in(tmp_path, "s", {"b/relu_f32.cu": "1", "a/c/elementwise_f32.cu": "2", "notes.txt": "3", ".git/x.cu": "4"})
    handed_in(tmp_path, "s", {"__MACOSX/relu_f32.cu": "5", "b/._relu_f32.cu": "6"})
    assert found(tmp_path / "s") == {"elementwise_f32": ("", ""), "relu_f32": ("", "")}


def test_unknown_names_and_missing_katas_are_said(tmp_path: Path) -> None:
    folder = handed_in(tmp_path, "s", {"relu_f33.cu": "", "elementwise_f32.cu": ""})
    said = found(folder, "relu_f32", "elementwise_f32")
    assert said["relu_f33.cu"][0] == UNKNOWN and has(said["relu_f33.cu"][1], "relu_f32")
    assert said["relu_f32"][0] == MISSING and has(said["relu_f32"][1], "no relu_f32.cu")
    assert said["elementwise_f32"] == ("", "")


def test_a_kata_twice_is_graded_where_both_are_the_same(tmp_path: Path) -> None:
    folder = handed_in(tmp_path, "s", {"a/relu_f32.cu": "1", "b/relu_f32.cu": "1"})
    assert found(folder) == {"relu_f32": ("", "")}
    (folder / "b" / "relu_f32.cu").write_text("2")
    verdict, summary = found(folder)["relu_f32"]
    assert verdict == TWICE and has(summary, "a/relu_f32.cu", "b/relu_f32.cu", "differ")


def test_of_a_whole_clone_only_the_exercises_count(tmp_path: Path) -> None:
    folder = handed_in(tmp_path, "s", {"kata/exercises/relu/relu_f32.cu": "1", "kata/solutions/relu/relu_f32.cu": "2"})
    assert [item.file for item in entries(Submission("s", folder), CATALOG)] == ["kata/exercises/relu/relu_f32.cu"]


def test_in_a_whole_clone_a_started_kata_is_the_file_in_work(tmp_path: Path) -> None:
    started, skeletons = "kata/work/relu/relu_f32.cu", ("relu/relu_f32.cu", "relu/relu_f16.cu")
    files = [started, *(f"kata/{place}/{name}" for place in ("exercises", "solutions") for name in skeletons)]
    folder = handed_in(tmp_path, "s", dict.fromkeys([*files, "kata/tests/right/relu_f32/other_way.cu"], ""))
    found = {item.kata: item.file for item in entries(Submission("s", folder), CATALOG)}
    assert found == {"relu_f32": started, "relu_f16": "kata/exercises/relu/relu_f16.cu"}


def test_nothing_is_followed_out_of_a_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("1")
    other = handed_in(tmp_path, "other", {"relu_f32.cu": RIGHT, "deep/gelu_f32.cu": RIGHT, "x.cuh": ""})
    folder = handed_in(
        tmp_path, "s", {"swish_f32.cu": '#include "../other/x.cuh"\n', "sigmoid_f32.cu": '#include "y.h"'}
    )
    (folder / "relu_f32.cu").symlink_to(other / "relu_f32.cu")
    (folder / "elu_f32.cu").symlink_to("elu_f32.cu")
    (folder / "y.h").symlink_to(secret)
    (folder / "deep").symlink_to(other / "deep")
    (folder / "loop").symlink_to(folder)
    said = found(folder)
    assert {said[name][0] for name in ("relu_f32", "swish_f32", "sigmoid_f32")} == {"not allowed"}
    assert has(said["relu_f32"][1], "symbolic link", "out of the submission")
    assert has(said["swish_f32"][1], "includes ../other/x.cuh", "outside")
    assert has(said["sigmoid_f32"][1], "includes y.h", "outside")
    assert said["deep"][0] == "not allowed" and "loop" not in said and "gelu_f32" not in said
    assert said["elu_f32"] == ("", "")  # its grade says that it cannot be read


def test_a_folder_called_as_a_file_is_said_where_there_is_no_file(tmp_path: Path) -> None:
    folder = handed_in(tmp_path, "s", {"relu_f32.cu/notes.txt": "", "elu_f32.cu/elu_f32.cu": "1", "x.cu/y": ""})
    said = {item.kata or item.file: item for item in entries(Submission("s", folder), CATALOG)}
    assert {name: item.verdict for name, item in said.items()} == {"relu_f32": "", "elu_f32": "", "x.cu": UNKNOWN}
    assert (said["relu_f32"].file, said["elu_f32"].file) == ("relu_f32.cu", "elu_f32.cu/elu_f32.cu")
    done = kata("relu_f32", "--submission", folder, "--json")
    (row,) = (row for row in map(json.loads, done.stdout.splitlines()) if row["kata"] == "relu_f32")
    assert row["verdict"] == "does not compile" and has(row["summary"], "relu_f32.cu", "directory")


SPELLINGS = {
    "quoted": '#include "FILE"\n',
    "angled": "#include <FILE>\n",
    "digraph": '%:include "FILE"\n',
    "comment": '/* */ #include "FILE"\n',
    "comments within": '#/* */include/*\n*/"FILE"\n',
    "two lines": '#include \\\n"FILE"\n',
    "macro": '#define IT "FILE"\n#include IT\n',
    "asked": '#if __has_include("FILE")\n#include "FILE"\n#endif\n',
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_what_a_file_includes_belongs_to_it(tmp_path: Path, spelling: str) -> None:
    """However it is spelled; another file of the submission does not, where the spelling says so."""
    text = spelling.replace("FILE", "mine/n.cuh")
    folder = handed_in(tmp_path, "s", {"relu_f32.cu": text, "mine/n.cuh": "1", "mine/deep.h": "1", "deep.h": "1"})
    digests = [entries(Submission("s", folder), CATALOG)[0].digest]
    for file, words in (("n.cuh", "#include <deep.h>\n"), ("deep.h", "2")):
        (folder / "mine" / file).write_text(words)
        digests.append(entries(Submission("s", folder), CATALOG)[0].digest)
    (folder / "deep.h").write_text("2")
    digests.append(entries(Submission("s", folder), CATALOG)[0].digest)
    assert len(set(digests)) == 4 and "" not in digests
    handed_in(tmp_path, "s", {"other.cuh": ""})
    opaque = "IT" in spelling or "__has" in spelling
    assert (entries(Submission("s", folder), CATALOG)[0].digest == digests[-1]) is not opaque


def test_a_neighbours_file_is_not_ones_own(tmp_path: Path) -> None:
    handed_in(tmp_path, "alice", {"elementwise_f32.cu": RIGHT})
    for name, spelling in SPELLINGS.items():
        text = spelling.replace("FILE", "../alice/elementwise_f32.cu")
        handed_in(tmp_path, name.replace(" ", "_"), {"elementwise_f32.cu": text})
    handed_in(tmp_path, "own", {"elementwise_f32.cu": '#define F "mine.cuh"\n#include F\n', "mine.cuh": RIGHT})
    results = tmp_path / "r.jsonl"
    kata("--submissions", tmp_path, "--results", results)
    said = {submission: verdict for (submission, _), verdict in verdicts(rows_of(results)).items()}
    assert len(said) == 2 + len(SPELLINGS)
    assert {name for name, verdict in said.items() if verdict == "pass"} == {"alice", "own"}
    assert {verdict for name, verdict in said.items() if name not in ("alice", "own")} == {"not allowed"}


def test_names_of_submissions(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        handed_in(tmp_path, name, {})
    (tmp_path / "file").write_text("")
    assert [item.name for item in find_submissions([], tmp_path, Shelf())] == ["a", "b"]
    other = handed_in(tmp_path / "elsewhere", "a", {})
    both = [tmp_path / "a", other]
    assert [item.name for item in find_submissions(both, None, Shelf())] == list(map(str, both))


# -- the file of results -----------------------------------------------------------------------------------------------


def row(key: str, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(FIELDS, ""), "key": key, **more}


def test_rows_are_there_again(tmp_path: Path) -> None:
    place = tmp_path / "r.jsonl"
    with Results(place) as results:
        results.add(row("a", verdict="pass", verdicts=["long"]))
    with Results(place) as results:
        assert set(results.kept) == {"a"} and set(results.kept["a"]) == FIELDS
        results.add(row("b"))
    assert [item["key"] for item in rows_of(place)] == ["a", "b"]


@pytest.mark.parametrize("torn", ['{"key": "b", "verd', '{"key": "b"}', "\x00\x00\x00"])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: str) -> None:
    place = tmp_path / "r.jsonl"
    place.write_text(json.dumps(row("a")) + "\n" + torn)
    with Results(place) as results:
        results.add(row("c"))
    kept = [item["key"] for item in rows_of(place)]
    assert kept[0] == "a" and kept[-1] == "c"


@pytest.mark.parametrize("text", ["My essay.\n", "My essay, in one line", '{"mine": 1}', '{"mine": 1}\n'])
def test_another_kind_of_file_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    place = tmp_path / "essay.txt"
    place.write_text(text)
    with pytest.raises(ResultsError, match=all_of("essay.txt:1", "results")):
        Results(place)
    assert place.read_text() == text


def test_half_of_the_first_row_is_cut_off(tmp_path: Path) -> None:
    place = tmp_path / "r.jsonl"
    for half in ('{"subm', '{"submission": "ann", "ver'):
        place.write_text(half)
        with Results(place) as results:
            assert results.kept == {} and place.read_text() == ""


def test_two_runs_do_not_share_a_file(tmp_path: Path) -> None:
    with Results(tmp_path / "r.jsonl"), pytest.raises(ResultsError, match=all_of("r.jsonl", "another run")):
        Results(tmp_path / "r.jsonl")
    with Results(tmp_path / "r.jsonl"):
        pass


def test_what_a_run_was_at_is_known_to_the_next(tmp_path: Path) -> None:
    place = tmp_path / "r.jsonl"

    def run_that_is_killed(*keys: str) -> None:
        results = Results(place)
        for key in keys:
            results.begin(key)
        results._file.close()  # and nothing else happens

    run_that_is_killed("a", "b", "c")
    with Results(place) as results:
        assert results.ended == {"a": 1, "b": 1, "c": 1}
        results.begin("a")
        results.add(row("a"))
        results.end("a")
        results.begin("c")  # stopped, not killed: that says nothing of it
    run_that_is_killed("b")
    with Results(place) as results:
        assert results.ended == {"b": 2, "c": 1} and set(results.kept) == {"a"}
        for key in ("b", "c"):
            results.begin(key)
            results.end(key)
    assert os.listdir(tmp_path) == ["r.jsonl"]


@pytest.mark.parametrize("text", ["", "[1]", '{"a": [', '{"a": []}'])
def test_a_damaged_note_of_what_was_begun_costs_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.jsonl.begun").write_text(text)
    with Results(tmp_path / "r.jsonl") as results:
        assert results.ended == {}


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root")
def test_a_full_disk_loses_no_row(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this machine does not let a test mount a disk")
    try:
        place = disk / "r.jsonl"
        count = 0
        with Results(place) as results, pytest.raises(ResultsError, match=all_of("r.jsonl", "cannot be written")):
            for count in range(100):
                results.add(row(str(count), summary="x" * 1000))
        assert 0 < count == len(rows_of(place))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Kills whatever it is below whose command line has these words, by system calls that no list of symbols sees.
ENDS_THE_RUN = """#include <cstdio>
#include <cstdlib>
#include <cstring>

static long call(long number, long first, long second) {
    long result;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second) : "rcx", "r11", "memory");
    return result;
}

static struct EndsTheRun {
    EndsTheRun() {
        char path[64], text[4096];
        for (long pid = call(110, 0, 0); pid > 1;) {
            std::snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
            std::FILE* file = std::fopen(path, "r");
            size_t count = file ? std::fread(text, 1, sizeof text - 1, file) : 0;
            if (file) std::fclose(file);
            for (size_t i = 0; i < count; ++i)
                if (!text[i]) text[i] = ' ';
            text[count] = 0;
            if (std::strstr(text, "WHOM")) call(62, pid, 9);
            std::snprintf(path, sizeof path, "/proc/%ld/stat", pid);
            file = std::fopen(path, "r");
            if (!file || !std::fgets(text, sizeof text, file)) return;
            std::fclose(file);
            pid = std::atol(std::strrchr(text, ')') + 4);
        }
    }
} ends_the_run;
"""

WRITES = """#include <cstdio>
static void leave() {
    if (FILE* file = fopen("left.txt", "w")) fclose(file);
}"""

# -- the command -------------------------------------------------------------------------------------------------------


def test_a_class_with_every_bad_habit(tmp_path: Path) -> None:
    """Every submission is answered, each by its own verdict; no folder, no clone and no progress is touched."""
    parent = tmp_path / "class"
    for name, files in {
        "ann": {"hw/elementwise_f32.cu": RIGHT},
        "bad name\nof a folder": {"elementwise_f32.cu": RIGHT.replace("idx < n", "idx <= n")},
        "binary": {"elementwise_f32.cu": bytes(range(256)) * 40},
        "bomb": {"elementwise_f32.cu": (EXPLOITS / "forks-a-thousand-times.cu").read_text()},
        "daemon": {"elementwise_f32.cu": (EXPLOITS / "leaves-a-child-behind.cu").read_text()},
        "empty": {},
        "endless": {"elementwise_f32.cu": BY_NAME["elementwise_f32/kernel-never-ends"].path.read_text()},
        "huge": {},
        "latin": {"elementwise_f32.cu": b"// gr\xfc\xdfe" + RIGHT.encode()[RIGHT.index("\n") :]},
        "link": {},
        "pipe": {},
        "writer": {"elementwise_f32.cu": writes_a_file()},
    }.items():
        handed_in(parent, name, files)
    with (parent / "huge" / "elementwise_f32.cu").open("wb") as file:
        file.truncate(1 << 30)
    (parent / "link" / "elementwise_f32.cu").symlink_to("/etc/passwd")
    os.mkfifo(parent / "pipe" / "elementwise_f32.cu")
    handed_in(parent, "unknown", {"elementwise_f33.cu": RIGHT})
    before, handed = fingerprint(ROOT), sorted(parent.rglob("*"))
    data = tmp_path / "data"
    done = kata(
        "--submissions",
        parent,
        "--results",
        tmp_path / "r.jsonl",
        "--csv",
        tmp_path / "t.csv",
        cwd=tmp_path,
        KATA_DATA=str(data),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    rows = rows_of(tmp_path / "r.jsonl")
    assert {submission: verdict for (submission, _), verdict in verdicts(rows).items()} == {
        "ann": "pass",
        "bad name\nof a folder": "out of bounds",
        "binary": "does not compile",
        "bomb": "crash",
        "daemon": verdicts(rows)["daemon", KATA.name],
        "endless": "time-out",
        "huge": "does not compile",
        "latin": "pass",
        "link": "not allowed",
        "pipe": "does not compile",
        "unknown": UNKNOWN,
        "writer": "pass",
    }
    for item in rows:
        jsonschema.validate(item, SCHEMA)
    assert "Traceback" not in done.stdout + done.stderr
    assert "bad name\\nof a folder" in done.stdout and "empty" in done.stdout
    assert fingerprint(ROOT) == before and sorted(parent.rglob("*")) == handed and not data.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["class", "r.jsonl", "t.csv"]
    with (tmp_path / "t.csv").open(newline="") as file:
        table = {line[0]: line[1:] for line in csv.reader(file)}
    assert (
        table["submission"] == [KATA.name, "passed"] and table["ann"] == ["pass", "1"] and table["empty"] == ["", "0"]
    )
    assert not left_behind()


def writes_a_file() -> str:
    """A right file whose launcher also leaves one where it stands."""
    head, launcher, body = RIGHT.partition("KATA_EXPORT")
    first, brace, rest = body.partition("{")
    return f"{head}{WRITES}\n{launcher}{first}{brace} leave();{rest}"


def left_behind() -> list[str]:
    """Processes that execute a build of the grader's and belong to nobody."""
    listed = subprocess.run(["ps", "-eo", "ppid=,args="], capture_output=True, text=True).stdout.splitlines()
    return [line for line in listed if line.split()[0] == "1" and "grader.sandbox.child" in line]


def slow_nvcc(folder: Path) -> str:
    """An nvcc that never ends with a file that says SLOW."""
    real, script, sleeper = find_toolchain().nvcc, folder / "slow_nvcc", folder / "sleeper"
    sleeper.symlink_to(shutil.which("sleep") or "/bin/sleep")
    script.write_text(f'#!/bin/sh\nif grep -qs SLOW kata.cu; then {sleeper} 1000; fi\nexec {real} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_a_compilation_without_end_is_a_time_out_and_leaves_nothing(tmp_path: Path) -> None:
    slow = handed_in(tmp_path, "slow", {"elementwise_f32.cu": f"// SLOW {tmp_path}\n{RIGHT}"})
    fine = handed_in(tmp_path, "fine", {"elementwise_f32.cu": RIGHT})
    nvcc, began_s = slow_nvcc(tmp_path), time.monotonic()
    assert kata("--submission", fine, KATA_NVCC=nvcc).returncode == 0
    limit_s = f"{max(5, 3 * (time.monotonic() - began_s)):.0f}"  # one that the fine file cannot reach
    done = kata("--submission", slow, fine, "--time-limit", limit_s, "--json", KATA_NVCC=nvcc)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert verdicts(rows) == {("slow", KATA.name): "time-out", ("fine", KATA.name): "pass"}
    assert done.returncode == 1 and has(rows[-1]["summary"], "longer", f"{limit_s} s")
    wait_for(lambda: f"{tmp_path}/sleeper" not in processes(), "the compiler's end")


def processes() -> str:
    return subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True).stdout


def a_class(parent: Path, count: int) -> Path:
    for number in range(count):
        held = f"// HELD {parent}\n" if number == count - 1 else ""
        handed_in(parent, f"student-{number}", {"elementwise_f32.cu": RIGHT + held})
    return parent


def start(parent: Path, results: Path, nvcc: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "grader", "grade", "--device", "sim", "--submissions", str(parent)]
    return subprocess.Popen(
        [*command, "--results", str(results)],
        cwd=ROOT,
        env={**os.environ, "KATA_NVCC": nvcc},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # also where what started the tests ignores it
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path: Path, number: signal.Signals) -> None:
    parent, results = a_class(tmp_path / "class", 4), tmp_path / "r.jsonl"
    compiler = HeldCompiler(tmp_path, "^// HELD")  # the run cannot come to its end before it is stopped
    process = start(parent, results, compiler.path)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("[2/"):
            break
    below = descendants(process.pid)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    compiler.let_go()
    assert below and process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in said
    wait_for_the_end_of(below)
    kept = len(rows_of(results))
    assert 2 <= kept < 4
    with results.open("a") as file:
        file.write('{"key": "torn')
    again = kata("--submissions", parent, "--results", results, KATA_NVCC=compiler.path)
    assert again.returncode == 0 and again.stderr.count("as before") == kept
    rows = rows_of(results)
    assert len(rows) == 4 == len({row["key"] for row in rows}) and "4 of 4 passed" in again.stdout
    once_more = kata("--submissions", parent, "--results", results, KATA_NVCC=compiler.path)
    assert once_more.stderr.count("as before") == 4 and results.read_text().count("\n") == 4


def test_a_file_that_ends_the_run_is_passed_over_by_the_third(tmp_path: Path) -> None:
    parent, results = tmp_path / "class", tmp_path / "r.jsonl"
    for name, more in {"ann": "", "mallory": ENDS_THE_RUN.replace("WHOM", f"--results {results}"), "zoe": ""}.items():
        handed_in(parent, name, {"elementwise_f32.cu": RIGHT + more})
    command = [sys.executable, "-m", "grader", "grade", "--device", "sim", "--submissions", str(parent), "--jobs", "1"]
    runs = [
        subprocess.run([*command, "--results", str(results)], cwd=ROOT, capture_output=True, text=True)
        for _ in range(3)
    ]
    assert [done.returncode for done in runs] == [-signal.SIGKILL] * 2 + [2]
    passed = {row["submission"]: row["verdict"] for row in rows_of(results)}
    assert passed == {"ann": "pass", "zoe": "pass"}
    (line,) = (line for line in runs[-1].stdout.splitlines() if line.startswith("mallory elementwise_f32: "))
    assert has(line, "not graded", "2 runs", "--results") and "2 of 3 passed" in runs[-1].stdout


def test_what_changes_a_grade_is_graded_again(tmp_path: Path) -> None:
    """Whatever the verdict is: this one, of a file that is not text, needs no compiler."""
    folder, results = (
        handed_in(tmp_path, "s", {"elementwise_f32.cu": '#include "n.cuh"\n\0', "n.cuh": ""}),
        tmp_path / "r.jsonl",
    )
    for change, new in (
        (lambda: None, True),
        (lambda: None, False),
        (lambda: (folder / "n.cuh").write_text("//\n"), True),
    ):
        change()
        said = kata("--submission", folder, "--results", results).stderr
        assert ("as before" not in said) == new
    assert "as before" not in kata("--submission", folder, "--results", results, "--sim-arch", "sm_80").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--submission", "nowhere"], ["nowhere", "folder"]),
        (["--submissions", "nowhere"], ["nowhere", "read"]),
        (["--submissions", "."], [".", "folder"]),
        (["--submission", ".", "--solutions"], ["--solutions", "--file"]),
        (["--results", "r.jsonl"], ["--results", "--submission"]),
        (["--submission", ".", "--results", "no/such/r.jsonl"], ["no/such/r.jsonl", "written"]),
        (["relu_f33", "--submission", "."], ["relu_f32"]),
        (["--submission", ".", "--jobs", "0"], ["--jobs", "1", "'0'"]),
        (["--submission", ".", "--time-limit", "0"], ["--time-limit", "seconds", "'0'"]),
    ],
)
def test_a_wrong_command_is_one_sentence(tmp_path: Path, arguments: list[str], said: list[str]) -> None:
    done = kata(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and has(done.stderr, *said) and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_handed_in_is_no_pass(tmp_path: Path) -> None:
    done = kata("--submission", handed_in(tmp_path, "empty", {}))
    assert done.returncode == 1 and "0 of 0 passed" in done.stdout


def test_the_table_has_every_submission_and_kata_in_order(tmp_path: Path) -> None:
    """Nothing is compiled for this: what is handed in are skeletons, and nothing at all."""
    for name in ("=cmd()\x1b[2J\u202e", "zoe", "bob"):
        for chosen in ("relu_f32", "elementwise_f32") if name != "bob" else ():
            text = skeleton_of(CATALOG.katas[chosen])
            handed_in(tmp_path / "class", name, {f"{chosen}.cu": text})
    handed_in(tmp_path / "class", "bob", {})
    table = tmp_path / "t.csv"
    done = kata("relu_f32", "elementwise_f32", "--submissions", tmp_path / "class", "--csv", table)
    with table.open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines == [
        ["submission", "elementwise_f32", "relu_f32", "passed"],
        ["'=cmd()\\x1b[2J\\u202e", "not started", "not started", "0"],  # neither a formula nor a terminal's command
        ["bob", MISSING, MISSING, "0"],
        ["zoe", "not started", "not started", "0"],
    ]
    shown = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in shown] == [
        "submission",
        "=cmd()\\x1b[2J\\u202e",
        "bob",
        "zoe",
        "0",
    ] and done.returncode == 1
    narrow = kata("relu_f32", "elementwise_f32", "--submissions", tmp_path / "class", COLUMNS="40").stdout
    assert re.search("^zoe +0 passed, elementwise_f32: not started, relu_f32: not started$", narrow, re.MULTILINE)


def test_on_a_terminal_there_is_a_bar(tmp_path: Path) -> None:
    folder = handed_in(tmp_path, "a\nb", {"relu_f32.cu": skeleton_of(CATALOG.katas["relu_f32"]), "x.cu": ""})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "grader", "grade", "--device", "sim", "--submission", str(folder)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "COLUMNS": "60"})
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 1 and said.count("\n") == 1 and said.endswith("\n")
    bars = said.strip().split("\r")
    assert all(len(bar) < 60 for bar in bars)
    assert "[############............] 1/2  a\\nb x.cu" in bars[0]
    assert bars[-1].startswith("[########################] 2/2  a\\nb relu_f32: not started")


def test_a_machine_that_cannot_grade_says_so_once(tmp_path: Path) -> None:
    folder = handed_in(tmp_path, "s", {"elementwise_f32.cu": RIGHT})
    done = kata("--submission", folder, KATA_NVCC="/nowhere/nvcc")
    assert done.returncode == 2 and done.stderr.count("KATA_NVCC") == 1 and done.stdout == ""


def test_rows_of_one_kata_are_of_the_same_form(tmp_path: Path) -> None:
    wrong = [BY_NAME[f"elementwise_f32/{bug}"].path for bug in ("writes-one-past-the-end", "syntax-error", "subtracts")]
    for file in (KATA.solution_path, *wrong):
        done = kata(KATA.name, "--file", file, "--json")
        jsonschema.validate(json.loads(done.stdout), SCHEMA)
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid({"format": 2, "kata": KATA.name})


def test_the_schema_knows_every_verdict() -> None:
    from grader.verdict import Kind

    assert SCHEMA["$defs"]["kind"]["enum"] == [kind.value for kind in Kind]
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
