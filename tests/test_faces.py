"""pytest and the command line, as a learner meets them: in a clone, through their real processes."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import warm
from cost import cheapest_cpu_s
from facts import has

from grader.cli import MODULES, main
from grader.cli import parser as whole_parser
from grader.compile.toolchain import find_gpu
from grader.content import start
from grader.content.catalog import Kata, load_catalog
from grader.content.source_file import source_of
from grader.content.start import last_changed
from grader.devices import SIM_ARCH_HELP, SIM_ARCHITECTURES
from grader.grade import unreadable
from grader.verdict import Kind, Verdict

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("exercises", "solutions", "difficulty.yaml", "tracks.yaml", "conftest.py", "pyproject.toml")
PASSES = "elementwise_f32"


class Clone:
    """A clone that the tests of a module share. Each finds it as it was made: see conftest.py."""

    def __init__(self, place: Path) -> None:
        self.place, self._original = place, place.with_name("original")
        subprocess.run(["cp", "-a", place, self._original], check=True)
        self._before = _files(place)

    def restore(self) -> None:
        """Remove what is new, and put back what was changed or removed."""
        now = _files(str(self.place))
        for path in sorted(now.keys() - self._before.keys()):
            _remove(path)
        for path in sorted(path for path, seen in self._before.items() if now.get(path) != seen):
            _remove(path)
            original = self._original / Path(path).relative_to(self.place)
            if original.is_dir():
                os.mkdir(path)
            else:
                shutil.copy2(original, path)


def _files(folder: Path | str) -> dict[str, tuple[int, int]]:
    """All below a folder with the size and the time of each file; compiled modules are left out."""
    found = {}
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
            found |= {entry.path: (0, 0), **_files(entry.path)}
        elif entry.name != "__pycache__":
            status = entry.stat(follow_symlinks=False)
            found[entry.path] = (status.st_size, status.st_mtime_ns)
    return found


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):  # a folder above it may have gone
        os.unlink(path)


def make_clone(tmp_path: Path) -> Path:
    """A clone with pristine skeletons, whose exercises may be edited."""
    return copied(Path(_pristine().name), tmp_path)


def copied(clone: Path, tmp_path: Path) -> Path:
    """Another clone like this one: a thousand files, for hundreds of tests. cp needs half as long as shutil."""
    subprocess.run(["cp", "-a", clone, tmp_path / "clone"], check=True)
    return tmp_path / "clone"


@functools.cache
def _pristine() -> tempfile.TemporaryDirectory[str]:
    """Made once in a process, for its copies; gone when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="kata-tests-")
    place = Path(folder.name)
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, place / part)  # type: ignore[operator]
    run(place, "-m", "grader", "dev", "skeletons")
    return folder


def run(clone: Path, *arguments: str, fresh: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    # One clone is one place: what is tested is its files, the grader stays where it is.
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", **environment}
    return warm.run(arguments, cwd=clone, env=env, fresh=fresh)


def pytest_run(
    clone: Path, *arguments: str, fresh: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    return run(clone, "-m", "pytest", "-p", "no:cacheprovider", *arguments, fresh=fresh, **environment)


def solve(clone: Path, name: str, replace: tuple[str, str] | None = None) -> Path:
    """Put the solution in the learner's place, with one thing changed."""
    kata = load_catalog(clone).katas[name]
    text = kata.solution_path.read_text()
    if replace is not None:
        assert replace[0] in text
        text = text.replace(*replace)
    kata.skeleton_path.write_text(text)
    return kata.skeleton_path


def test_a_test_finds_the_clone_as_it_was_made(one_clone: Clone) -> None:
    """Whatever the one before has added, changed, removed, or put in its place."""
    place, before = one_clone.place, _files(one_clone.place)
    (place / "work/deep").mkdir(parents=True)
    (place / "work/deep/new.cu").write_text("")
    (place / "link").symlink_to(ROOT)
    file, other = (place / "exercises/relu" / name for name in ("relu_f32.cu", "relu_f16.cu"))
    text = file.read_text()
    file.write_text(text.swapcase())
    other.unlink()
    other.mkdir()
    shutil.rmtree(place / "solutions/relu")
    os.utime(place / "difficulty.yaml", (4e9, 4e9))
    changed = _files(place)
    one_clone.restore()
    assert changed != before == _files(place) and file.read_text() == text
    assert (place / "solutions/relu/relu_f16.cu").read_text() == (ROOT / "solutions/relu/relu_f16.cu").read_text()


def test_pristine_skeletons_fail_in_one_line_each_without_a_compiler(
    clone: Path, of_pytest: set[str], tmp_path: Path
) -> None:
    trap = tmp_path / "nvcc"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexit 1\n")
    trap.chmod(0o755)
    done = run(clone, "-c", PYTEST_AND_PACKAGES, "exercises", KATA_NVCC=str(trap))
    katas = load_catalog(clone).katas
    assert done.returncode == 1
    for name in katas:
        assert len(re.findall(rf"^{name}: not started: \d+ TODOs?$", done.stdout, re.MULTILINE)) == 1
    assert re.findall(r"^(\w+): not started", done.stdout, re.MULTILINE) == list(katas)  # in the order to solve them
    assert f"{len(katas)} not started" in done.stdout and "Traceback" not in done.stdout
    assert packages_in(done) <= of_pytest  # neither torch nor hypothesis; difficulty.yaml was parsed before
    assert not (tmp_path / "called").exists()


MOST = 5.0  # times as much: what to grade pristine skeletons, and what to find them may cost


@pytest.fixture(scope="module")
def costs(one_clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> tuple[float, float, float]:
    """CPU seconds of pytest itself, of finding all pristine skeletons, and of grading them, each in an interpreter."""
    clone, empty = one_clone.place, tmp_path_factory.mktemp("empty")
    nothing = ("-q", "-p", "no:hypothesispytest", "--rootdir", str(empty), str(empty))
    pytest_s, finding_s, grading_s = cheapest_cpu_s(
        lambda: pytest_run(empty, *nothing, fresh=True),
        lambda: pytest_run(clone, "exercises", "--collect-only", "-q", fresh=True),
        lambda: pytest_run(clone, "exercises", "-q", fresh=True),
        until=lambda costs_s: all(1.25 * more < MOST * less for less, more in pairwise(costs_s)),
    )
    return pytest_s, finding_s, grading_s


def test_pristine_skeletons_cost_little_more_than_to_find_them(costs: tuple[float, float, float]) -> None:
    _, finding_s, grading_s = costs
    assert grading_s < MOST * finding_s


def test_collecting_imports_nothing_for_grading_and_costs_little_more_than_pytest(
    clone: Path, of_pytest: set[str], costs: tuple[float, float, float]
) -> None:
    done = run(clone, "-c", PYTEST_AND_PACKAGES, "exercises", "--collect-only", "-q")
    assert done.returncode == 0 and packages_in(done) <= of_pytest
    pytest_s, collecting_s, _ = costs
    assert collecting_s < MOST * pytest_s


# Runs pytest; its last line says which installed packages were imported.
PYTEST_AND_PACKAGES = """
import sys, pytest
code = pytest.main([*sys.argv[1:], "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest"])
files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
print("packages:", *{file.partition("/site-packages/")[2].partition("/")[0] for file in files})
sys.exit(code)
"""


def packages_in(done: subprocess.CompletedProcess[str]) -> set[str]:
    return set(done.stdout.splitlines()[-1].removeprefix("packages:").split())


@pytest.fixture(scope="module")
def of_pytest(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The installed packages that pytest imports for an empty folder."""
    empty = tmp_path_factory.mktemp("empty")
    nothing = run(empty, "-c", PYTEST_AND_PACKAGES, "--rootdir", str(empty), str(empty))
    assert nothing.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    return packages_in(nothing)


def named(choose: Callable[[Kata], bool]) -> set[str]:
    return {name for name, kata in load_catalog(ROOT).katas.items() if choose(kata)}


@pytest.mark.parametrize(
    ("arguments", "choose"),
    [
        (["exercises/sgemm/sgemm_naive_f32.cu"], lambda kata: kata.name == "sgemm_naive_f32"),
        (["exercises/histogram"], lambda kata: kata.family == "histogram"),
        (["exercises/histogram/test_histogram.py"], lambda kata: kata.family == "histogram"),
        (["exercises", "-k", "naive"], lambda kata: "naive" in kata.name),
        (["exercises", "-m", "hard"], lambda kata: kata.level == "hard"),
        (["exercises", "-m", "hard+"], lambda kata: kata.level == "hard+"),
        (
            ["exercises/sgemm", "--solutions", "-m", "medium"],
            lambda kata: (kata.family, kata.level) == ("sgemm", "medium"),
        ),
    ],
)
def test_what_pytest_collects(clone: Path, arguments: list[str], choose: Callable[[Kata], bool]) -> None:
    names = named(choose)
    done = pytest_run(clone, "--collect-only", "-q", *arguments)
    found = re.findall(r"^exercises/\S+::(\w+)$", done.stdout, re.MULTILINE)
    assert set(found) == names and len(found) == len(names)


def test_a_bad_catalogue_is_one_error_with_its_place_and_fix(clone: Path) -> None:
    file = clone / "difficulty.yaml"
    file.write_text(file.read_text().replace("level: easy", "level: esay", 1))
    done = pytest_run(clone, "exercises")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    said = done.stdout + done.stderr
    assert "difficulty.yaml:" in said and "kata scale_f32: level:" in said and "easy" in said
    assert "Traceback" not in said
    by_kata = run(clone, "-m", "grader", "grade", "scale_f32")
    assert by_kata.returncode == 2 and "kata scale_f32: level:" in by_kata.stderr


@pytest.mark.usefixtures("nvcc_remembers")
def test_the_two_faces_show_the_same_verdict(clone: Path) -> None:
    path = solve(clone, "elementwise_f32", ("if (idx < n)", "if (idx <= n)"))
    by_pytest = pytest_run(clone, str(path.relative_to(clone)), "--device", "sim")
    by_kata = run(clone, "-m", "grader", "grade", "elementwise_f32", "--device", "sim")
    assert by_pytest.returncode == by_kata.returncode == 1
    explanation = by_kata.stdout.strip()
    assert explanation.startswith("elementwise_f32: out of bounds: ")
    assert explanation in by_pytest.stdout
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "idx <= n" in text)
    assert f"{path.relative_to(clone)}:{line}" in explanation
    assert "Traceback" not in by_pytest.stdout + by_kata.stdout + by_kata.stderr
    assert len(explanation.splitlines()) < 25


def start_place(clone: Path, name: str) -> Path:
    """Where `kata start` puts a kata's file; its folder is there afterwards."""
    place = load_catalog(clone).katas[name].work_path
    place.parent.mkdir(parents=True)
    return place


def test_the_readme_shows_what_a_learner_gets(clone: Path) -> None:
    skeleton = load_catalog(clone).katas["scale_f32"].skeleton_path.read_text().splitlines()
    path = solve(clone, "scale_f32", ("if (i < n) y", "y"))
    path = Path(shutil.copy(path, start_place(clone, "scale_f32")))
    own = [line for line in path.read_text().splitlines() if line in skeleton or not line.strip().startswith("//")]
    path.write_text("\n".join(own) + "\n")  # without the comments of the answers
    said = run(clone, "-m", "grader", "grade", "scale_f32", "--device", "sim").stdout.rstrip()
    readme = [line.strip() for line in (ROOT / "README.md").read_text().splitlines()]
    missing = [line for line in said.splitlines() if line.strip() not in readme]
    assert missing == [], "README.md shows what was said before; put these lines into it"


def test_the_code_of_the_first_page_is_right(clone: Path) -> None:
    """docs/start.md squares; with `a` in place of one x[i] and the kata's name its code must pass as scale_f32."""
    page = (ROOT / "docs" / "start.md").read_text()
    code = "\n".join(re.findall(r"^```cuda\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    changes = (
        ("square", "scale_f32"),
        ("x[i] * x[i]", "a * x[i]"),
        ("int n", "int n, float a"),
        ("(x, y, n)", "(x, y, n, a)"),
    )
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    path = clone / "scale_f32.cu"
    path.write_text(f'#include "kata.cuh"\n{code}')
    assert run(clone, "-m", "grader", "grade", "scale_f32", "--file", str(path), "--device", "sim").returncode == 0
    path.write_text(path.read_text().replace("if (i < n) ", ""))
    said = run(clone, "-m", "grader", "grade", "scale_f32", "--file", str(path), "--device", "sim").stdout
    (shown,) = re.findall(r"^```\n(out of bounds: .*)\n```", page, re.MULTILINE)
    assert shown in said


def test_a_failure_says_which_todo_is_still_empty(clone: Path) -> None:
    kata = load_catalog(clone).katas["elementwise_f32"]
    text = kata.skeleton_path.read_text()
    kata.skeleton_path.write_text(text.replace("// END TODO(1)", "const int idx = 0; c[idx] = a[idx];\n// END TODO(1)"))
    done = run(clone, "-m", "grader", "grade", "elementwise_f32", "--device", "sim")
    assert done.returncode == 1 and "wrong answer" in done.stdout
    assert re.search(r"open .*TODO 2\b", done.stdout)


def test_a_whole_family_of_solutions_passes_with_both_faces(clone: Path) -> None:
    by_pytest = pytest_run(clone, "exercises/index_add", "--solutions", "--device", "sim")
    count = len(load_catalog(ROOT).by_family["index_add"])
    assert by_pytest.returncode == 0 and f"{count} passed" in by_pytest.stdout
    by_kata = run(clone, "-m", "grader", "grade", "index_add", "--solutions", "--device", "sim")
    assert by_kata.returncode == 0 and f"{count} of {count} passed" in by_kata.stdout


def test_counters_follow_a_pass_with_both_faces(clone: Path) -> None:
    file = str(solve(clone, "mat_trans_f32_tiled_padded").relative_to(clone))
    wanted = ("--device", "sim", "--counters")
    by_pytest = pytest_run(clone, file, *wanted)
    by_kata = run(clone, "-m", "grader", "grade", "mat_trans_f32_tiled_padded", *wanted)
    counters = by_kata.stdout[by_kata.stdout.index("counters of mat_trans_f32_tiled_padded_kernel at ") :].strip()
    assert "shared memory" in counters and "sectors/ideal" in counters
    assert counters in by_pytest.stdout
    assert "counters of" not in pytest_run(clone, file, "--device", "sim").stdout


def test_what_was_printed_follows_a_verdict_with_both_faces(clone: Path) -> None:
    def write(guard: str) -> Path:
        path = solve(clone, PASSES, ("if (idx < n) c", f'if (idx < n) printf("n is %d\\n", n);\n    if ({guard}) c'))
        path.write_text("#include <cstdio>\n" + path.read_text())
        return path.relative_to(clone)

    file = write("idx < n")
    row = r"  printed   \(.*\b6\b.*\)"
    done = run(clone, "-m", "grader", "grade", PASSES, "--device", "sim")
    assert done.returncode == 0 and f"{PASSES}  pass on sim" in done.stdout
    assert re.search(row, done.stdout) and done.stdout.count("\n            n is ") == 6
    done = pytest_run(clone, str(file), "--device", "sim")
    assert done.returncode == 0 and re.search(rf"\n{PASSES}\n{row}", done.stdout)
    write("idx <= n")
    done = run(clone, "-m", "grader", "grade", PASSES, "--device", "sim")
    assert done.returncode == 1 and "out of bounds" in done.stdout and "  printed   n is 1\n" in done.stdout


def test_hints_come_one_by_one(clone: Path) -> None:
    first, last = (run(clone, "-m", "grader", "hint", "elementwise_f32", *strength) for strength in ([], ["3"]))
    assert first.returncode == last.returncode == 0
    assert "kata hint elementwise_f32 2" in first.stdout and "kata hint" not in last.stdout
    assert first.stdout.splitlines()[0] != last.stdout.splitlines()[0]
    several = run(clone, "-m", "grader", "hint", "elementwise")
    assert several.returncode == 2 and has(several.stderr, "hint", "one kata")


def test_bench_without_a_gpu_says_so(clone: Path) -> None:
    if find_gpu() is not None:
        pytest.skip("there is a GPU")
    done = run(clone, "-m", "grader", "bench", "elementwise_f32", "--solutions")
    assert done.returncode == 2 and has(done.stderr, "kata: ", "kata bench", "NVIDIA GPU")
    assert "--device" not in done.stderr
    assert has(run(clone, "-m", "grader", "bench", "nothing").stderr, "no kata", "nothing")
    assert has(run(clone, "-m", "grader", "bench", "nms_f32").stderr, "baseline")


def test_reset_keeps_what_was_written(clone: Path) -> None:
    path = solve(clone, "elementwise_f32")
    written = path.read_text()
    done = run(clone, "-m", "grader", "reset", "elementwise_f32")
    assert done.returncode == 0 and "elementwise_f32.cu.1.bak" in done.stdout
    assert path.with_name("elementwise_f32.cu.1.bak").read_text() == written
    assert "not started" in run(clone, "-m", "grader", "list", "elementwise_f32").stdout
    assert run(clone, "-m", "grader", "reset", "elementwise_f32").stdout.count("bak") == 0


def test_list_shows_every_kata_with_its_state(clone: Path) -> None:
    solve(clone, "elementwise_f32")
    done = run(clone, "-m", "grader", "list")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert list(rows) == list(load_catalog(clone).katas)
    assert rows["elementwise_f32"].endswith("written")
    assert rows["elementwise_f32x4"].endswith("not started")


def test_doctor_names_what_is_missing_and_its_fix(clone: Path) -> None:
    assert run(clone, "-m", "grader", "doctor").returncode == 0
    done = run(clone, "-m", "grader", "doctor", KATA_NVCC="/nowhere/nvcc", KATA_CACHE="/dev/null/cache")
    assert done.returncode == 1
    assert re.search(r"^FIX  compilers .*nvcc", done.stdout, re.MULTILINE)
    assert re.search(r"^FIX  cache .*KATA_CACHE", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["grade", "elementwise_f33"], ["elementwise_f32"]),
        (["grade", "elementwise", "--file", "x.cu"], ["--file", "one kata"]),
        (["dev", "check", "everything"], ["check", "'everything'"]),
        (["grade", "relu_f32", "--solutions", "--file", "x.cu"], ["--file", "--solutions"]),
        (["bench", "relu_f32", "--file", "x.cu", "--solutions"], ["--solutions", "--file"]),
        (["hint", "relu_f32", "4"], ["STRENGTH", "4"]),
        (["completion", "tcsh"], ["SHELL", "tcsh"]),
    ],
)
def test_a_wrong_command_is_one_sentence(clone: Path, arguments: list[str], said: list[str]) -> None:
    done = run(clone, "-m", "grader", *arguments)
    assert done.returncode == 2 and has(done.stderr, *said) and "Traceback" not in done.stderr


@pytest.mark.usefixtures("nvcc_remembers")
def test_a_grade_on_the_simulator_needs_no_torch(clone: Path) -> None:
    solve(clone, "elementwise_f32")
    without = "import sys; sys.modules['torch'] = None; from grader.cli import main; sys.exit(main())"
    done = run(clone, "-c", without, "grade", "elementwise_f32", "--device", "sim", "--counters")
    assert done.returncode == 0 and has(done.stdout, "pass"), done.stderr


@pytest.mark.parametrize("package", ["numpy", "hypothesis"])
def test_a_python_without_what_grading_needs_is_one_sentence(clone: Path, package: str) -> None:
    solve(clone, "elementwise_f32")
    without = f"import sys; sys.modules[{package!r}] = None; from grader.cli import main; sys.exit(main())"
    done = run(clone, "-c", without, "grade", "elementwise_f32")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert has(done.stderr, f"no {package}", "make grade", f"pip install {package}")


def test_help_teaches(clone: Path) -> None:
    done = run(clone, "-m", "grader", "--help")
    assert done.returncode == 0 and "kata grade scale_f32" in done.stdout
    assert "Exit code" in run(clone, "-m", "grader", "grade", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("grade", "--device", "cuda"), ("'cuda'", "gpu", "sim", "`kata grade --help`")),
        (("interview", "--level", "impossible"), ("'impossible'", "hard", "`kata interview --help`")),
        (("hint",), ("KATA", "`kata hint --help`")),
        (("interview", "--minutes", "0"), ("'0'", "minutes")),
        (("--nosuch",), ("--nosuch", "`kata --help`")),
    ],
)
def test_a_wrong_option_is_answered_in_one_line(
    arguments: tuple[str, ...], facts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, said = capsys.readouterr()
    assert not out and said.startswith("kata: ") and said.count("\n") == 1 and has(said, *facts)


def test_bare_kata_names_the_next_one(clone: Path) -> None:
    done = run(clone, "-m", "grader", KATA_DATA=str(clone / "data"))
    assert done.returncode == 0 and has(done.stdout, "kata start scale_f32", "`kata grade`", "`kata help`")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["grad"], ["no command 'grad'", "grade"]),
        (["run"], ["`kata grade`"]),
        (["elementwise_f32"], ["kata show elementwise_f32", "kata grade elementwise_f32"]),
        (["banana"], ["`kata help`"]),
        (["show", "matmul"], ["sgemm or hgemm"]),
        (["show", "layernorm"], ["Did you mean layer_norm?"]),
        (["hint", "f32"], ["'*f32*'"]),
        (["list", "--family", "matmul"], ["sgemm or hgemm"]),
        (["progress", "--import", "nosuch"], ["nosuch", "No such file"]),
        (["grade", "--file", "mine.cu"], ["kata grade NAME --file mine.cu"]),
    ],
)
def test_what_people_guess_is_answered(words: list[str], facts: list[str]) -> None:
    done = run(ROOT, "-m", "grader", *words)
    assert done.returncode == 2 and has(done.stderr, *facts) and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "fact"), [(["help"], "kata grade scale_f32"), (["help", "hint"], "STRENGTH"), (["--version"], "kata")]
)
def test_help_and_version_are_commands_too(words: list[str], fact: str) -> None:
    done = run(ROOT, "-m", "grader", *words)
    assert done.returncode == 0 and fact in done.stdout


def test_grade_without_a_name_takes_the_file_that_changed_last(clone: Path) -> None:
    catalog = load_catalog(clone)
    assert last_changed(catalog) is None
    solve(clone, "relu_f32")
    assert last_changed(catalog) == catalog.katas["relu_f32"]
    started = catalog.katas["elu_f32"]
    start.write(started, start.SKELETON)
    os.utime(started.work_path, (2e9, 2e9))
    assert last_changed(catalog) == started
    os.utime(catalog.katas["relu_f32"].skeleton_path, (3e9, 3e9))
    os.utime(catalog.katas["gelu_f32"].skeleton_path, (4e9, 4e9))  # as a checkout leaves it
    assert last_changed(catalog) == catalog.katas["relu_f32"]


def test_junit_skips_what_is_not_started_and_names_file_and_line(clone: Path) -> None:
    own = solve(clone, "relu_f32", ("const int idx", "const int idx = nonsense; //"))
    line = next(number for number, text in enumerate(own.read_text().splitlines(), 1) if "nonsense" in text)
    exercises = [f"exercises/relu/{name}.cu" for name in ("relu_f32", "relu_f32x4")]
    done = run(clone, "-m", "pytest", *exercises, "--device", "sim", "--junitxml=j.xml")
    suite = ElementTree.parse(clone / "j.xml").getroot()[0]
    assert done.returncode == 1 and [suite.get(name) for name in ("tests", "failures", "skipped")] == ["2", "1", "1"]
    failed, skipped = suite
    assert (failed.get("file"), failed.get("line")) == (exercises[0], str(line)) and failed[0].tag == "failure"
    assert skipped.get("file") == exercises[1] and skipped[0].tag == "skipped"
    again = run(clone, "-m", "pytest", "exercises", "--lf", "--collect-only", "-q")
    assert "relu_f32.cu" in again.stdout and "relu_f32x4" not in again.stdout
    waiting = pytest_run(clone, exercises[1])
    assert waiting.returncode == 1 and "1 not started" in waiting.stdout


def test_an_example_in_a_help_can_be_copied(clone: Path) -> None:
    """Narrow or wide: a line each, and nothing on it but the command."""
    said = run(clone, "-m", "grader", "grade", "--help", COLUMNS="60").stdout
    assert (
        "\nExamples:\n  kata grade elementwise\n  kata grade --solutions\n  kata grade elementwise_f32 --file" in said
    )
    parsers = [whole_parser()]
    while parsers:
        parser = parsers.pop()
        below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        parsers += [sub for action in below for sub in action.choices.values()]
        for line in (parser.epilog or "").splitlines():
            assert not line or line.endswith(":") or line.startswith(("  kata ", "  $EDITOR ")), line
            assert "%%" not in (parser.description or "") and line in parser.format_help()


def test_each_command_is_found_in_the_module_that_adds_it() -> None:
    for module, names in MODULES.items():
        added = argparse.ArgumentParser().add_subparsers()
        importlib.import_module(f"grader.{module}").add(added)
        assert tuple(added.choices) == names
        assert all(name in whole_parser(name).format_help() for name in names)
    assert whole_parser("grades").format_help() == whole_parser().format_help()  # it is said what there is


def test_a_file_that_is_not_there_is_no_grade(clone: Path) -> None:
    for command in ("grade", "bench", "ptx"):
        done = run(clone, "-m", "grader", command, "elementwise_f32", "--file", "nowhere.cu")
        assert (done.returncode, done.stdout) == (2, "") and has(done.stderr, "nowhere.cu", "not a file")


def test_a_reset_is_advised_only_of_the_file_that_it_writes(clone: Path) -> None:
    own = load_catalog(clone).katas["elementwise_f32"].skeleton_path
    other = clone / "other.cu"
    for path in (own, other):
        path.write_text("")
    said = [
        run(clone, "-m", "grader", "grade", "elementwise_f32", *more).stdout for more in ((), ("--file", "other.cu"))
    ]
    assert all(has(text, "does not compile", "empty") for text in said)
    assert ["kata reset elementwise_f32" in text for text in said] == [True, False]
    own.unlink()
    own.symlink_to(own)  # which nobody can read
    verdict = unreadable(load_catalog(clone).katas["elementwise_f32"], source_of(own))
    assert isinstance(verdict, Verdict) and verdict.kind is Kind.DOES_NOT_COMPILE
    assert has(verdict.summary, "elementwise_f32.cu", "symbolic links", "`kata reset elementwise_f32`")


def test_a_card_that_is_not_simulated_is_refused(clone: Path) -> None:
    for arch in ("foo", "80", "SM_80", "sm_70", "sm_100"):
        for command in (["grade", "relu_f32"], ["watch", "relu_f32"]):
            done = run(clone, "-m", "grader", *command, "--sim-arch", arch)
            assert done.returncode == 2 and f"'{arch}'" in done.stderr and "sm_86" in done.stderr
    done = pytest_run(clone, "exercises/relu", "--sim-arch", "sm_100")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "sm_86" in done.stderr
    assert ", ".join(SIM_ARCHITECTURES) in SIM_ARCH_HELP


def test_the_architectures_are_those_with_a_card() -> None:
    limits = (ROOT / "grader/devices/sim/engine/limits.cpp").read_text()
    named = re.findall(r'\{"(\d+)", &', limits)
    default = "".join(re.findall(r"constexpr Card H200\{\s*\"[^\"]*\", (\d+), (\d+)", limits)[0])
    assert {arch.strip("sm_a") for arch in SIM_ARCHITECTURES} == {*named, default}


def test_ctrl_c_while_it_is_imported_is_one_sentence(clone: Path) -> None:
    stop = """
import runpy, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "grader.content.catalog":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stop())
runpy.run_module("grader", run_name="__main__")
"""
    done = run(clone, "-c", stop)
    assert done.returncode == 130 and has(done.stderr, "nothing", "left behind") and "Traceback" not in done.stderr
    assert 'kata = "grader.__main__:run"' in (ROOT / "pyproject.toml").read_text()
