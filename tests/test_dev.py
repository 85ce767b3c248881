"""The maintainer's checks: each finds what it is there to find."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from facts import has
from test_faces import run

from grader.cli import main
from grader.content.catalog import Kata, load_catalog
from grader.maintain import checks, edits, style, support, tables, wrong_kernel
from grader.maintain.wrong_kernel import Edit, Expected, WrongKernel
from grader.verdict import Kind

ROOT = Path(__file__).resolve().parent.parent


KATAS = ("exercises", "solutions", "difficulty.yaml", "tracks.yaml")
SUPPORT = tuple(f"grader/devices/sim/{name}" for name in ("support.json", "SUPPORT.md"))
TABLES = (*SUPPORT, "README.md", *(f"docs/{name}" for name in ("voice.md", "voice.yaml", "swizzle.md")))


def copied(tmp_path: Path, *parts: str) -> Path:
    """A repository with these files and folders of this one, their times and compiled modules included."""
    subprocess.run(["cp", "-a", "--parents", *parts, tmp_path], cwd=ROOT, check=True)
    return tmp_path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What is written for each kata, and the tables that follow from it."""
    return copied(tmp_path, *KATAS, *TABLES)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The grader alone."""
    return copied(tmp_path, "grader")


@pytest.fixture
def helpers(tmp_path: Path) -> Path:
    """The files that have helpers."""
    return copied(tmp_path, "solutions", "grader/include", "difficulty.yaml")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return copied(tmp_path, *KATAS, *TABLES[len(SUPPORT) :], "grader", ".clang-format", "pyproject.toml")


def test_imports_go_one_way() -> None:
    assert checks.check_imports(ROOT) == []


def test_an_import_against_the_direction_is_found(code: Path) -> None:
    path = code / "grader" / "content" / "catalog.py"
    path.write_text(path.read_text() + "\n\ndef late() -> None:\n    from grader.judge.check import check  # noqa\n")
    problems = checks.check_imports(code)
    assert len(problems) == 1 and "grader/content/catalog.py:" in problems[0]
    assert has(problems[0], "grader.judge.check", "judge", "after content")


def test_a_circle_inside_a_room_is_found(code: Path) -> None:
    path = code / "grader" / "judge" / "case.py"
    path.write_text(path.read_text() + "\n\ndef late() -> None:\n    from grader.judge.check import check  # noqa\n")
    (problem,) = checks.check_imports(code)
    assert has(problem, "circle", "judge.case", "judge.check")


def test_a_module_in_no_room_and_a_room_without_words_are_found(code: Path) -> None:
    (code / "grader" / "surprise.py").write_text("")
    (code / "grader" / "judge" / "__init__.py").write_text("")
    problems = checks.check_imports(code)
    assert len(problems) == 2 and has(problems[0], "surprise", "ROOMS")
    assert has(problems[1], "grader/judge/__init__.py", "docstring")


def test_a_long_python_function_is_found(tmp_path: Path) -> None:
    text = "class A:\n    def long(self):\n" + "        self.x = 1\n" * style.LONGEST[".py"]
    assert [*style.python_functions(text)] == [(2, "long", style.LONGEST[".py"] + 1)]
    (tmp_path / "grader").mkdir()
    (tmp_path / "grader" / "a.py").write_text(text)
    (problem,) = style._long_functions(tmp_path, Path("grader/a.py"))
    assert has(problem, "grader/a.py:2", "long", f"{style.LONGEST['.py'] + 1} lines")


def test_a_helper_that_differs_without_a_reason_is_found(helpers: Path) -> None:
    path = helpers / "solutions" / "warp_reduce" / "warp_reduce_sum_f32.cu"
    path.write_text(path.read_text().replace("offset = WARP_SIZE / 2", "offset = 16", 1))
    (problem,) = checks.check_helpers(helpers)
    assert has(problem, "warp_reduce_sum", "warp_reduce_sum_f32.cu", "solutions/helpers.yaml")
    with (helpers / "solutions" / "helpers.yaml").open("a") as reasons:
        reasons.write("warp_reduce_sum: the lesson says so\n")
    assert checks.check_helpers(helpers) == []


def test_a_reason_for_helpers_that_do_not_differ_is_found(helpers: Path) -> None:
    reasons = helpers / "solutions" / "helpers.yaml"
    reasons.write_text(reasons.read_text() + "warp_reduce_max: they once did\n")
    (problem,) = checks.check_helpers(helpers)
    line = len(reasons.read_text().splitlines())
    assert has(problem, f"solutions/helpers.yaml:{line}", "warp_reduce_max", "do not differ")


def test_without_the_folder_of_the_interview_all_other_commands_are_there(whole: Path) -> None:
    shutil.rmtree(whole / "grader" / "interview")
    commands = run(whole, "-m", "grader", "--help").stdout
    assert "watch" in commands and "interview" not in commands
    done = run(whole, "-m", "grader", "hint", "relu_f32", KATA_DATA=str(whole / "data"))
    assert done.returncode == 0 and has(done.stdout, "hint 1 of 3"), done.stderr
    assert run(whole, "-m", "grader", "dev", "check", "catalogue", "imports").returncode == 0


def test_no_module_of_the_grader_names_a_kata() -> None:
    """Adding a kata never touches grader/: the machine must not know any of them."""

    names = [*load_catalog(ROOT).katas]
    examples = {  # shown by --help
        ROOT / "grader" / "cli.py",
        *(ROOT / "grader" / "commands").glob("*.py"),
        *(ROOT / "grader").glob("*/command.py"),
        *(ROOT / "grader" / "maintain" / name for name in ("mutant.py", "mutation.py", "coverage.py")),
    }
    for path in (ROOT / "grader").rglob("*"):
        if path.suffix in (".py", ".cpp", ".h", ".cuh") and path not in examples:
            text = path.read_text()
            assert not [name for name in names if name in text], path


@pytest.mark.parametrize(
    ("was", "becomes", "facts"),
    [
        ("baseline: copy", "baseline: cpy", ["baseline", "'cpy'"]),
        ("shapes: [{n: 67108864}]", "shapes: [{m: 67108864}]", ["sizes", "n"]),
    ],
)
def test_a_speed_that_its_spec_does_not_know_is_found(copy: Path, was: str, becomes: str, facts: list[str]) -> None:
    path = copy / "difficulty.yaml"
    path.write_text(path.read_text().replace(was, becomes, 1))
    problems = checks.check_catalogue(copy)
    assert len(problems) == 1 and has(problems[0], "elementwise_f32", *facts)


def test_a_stale_skeleton_is_found(copy: Path) -> None:
    path = copy / "exercises" / "elementwise" / "elementwise_f32.cu"
    path.write_text(path.read_text().replace("constexpr int THREADS = 256;", "constexpr int THREADS = 128;"))
    problems = checks.check_skeletons(copy)
    assert len(problems) == 1 and has(problems[0], "elementwise_f32.cu", "not current", "kata dev")


def test_a_started_skeleton_is_not_stale(copy: Path) -> None:
    path = copy / "exercises" / "elementwise" / "elementwise_f32.cu"
    path.write_text(path.read_text().replace("    // END TODO(1)", "    int mine = 0;\n    // END TODO(1)"))
    solved = copy / "solutions" / "elementwise" / "elementwise_f16.cu"
    shutil.copy(solved, copy / "exercises" / "elementwise" / "elementwise_f16.cu")
    assert checks.check_skeletons(copy) == []


def test_a_missing_lesson_is_found(copy: Path) -> None:
    (copy / "exercises" / "sgemm" / "README.md").unlink()
    (problem,) = checks.check_catalogue(copy)
    assert has(problem, "exercises/sgemm/README.md", "missing")


def test_a_header_that_names_another_rung_than_the_catalogue_is_found(copy: Path) -> None:
    change(copy / "difficulty.yaml", "requires: [elementwise_f16, elementwise_f32x4]", "requires: [elementwise_f32x4]")
    (problem,) = checks.check_catalogue(copy)
    assert has(problem, "solutions/elementwise/elementwise_f16x2.cu", "`New over elementwise_f16`", "elementwise_f32x4")
    assert has(problem, "difficulty.yaml", "`kata dev skeletons`")


def change(path: Path, was: str, becomes: str) -> None:
    text = path.read_text()
    assert text.count(was) == 1
    path.write_text(text.replace(was, becomes))


def test_the_tables_are_current() -> None:
    assert checks.check_tables(ROOT) == []


def test_a_stale_readme_is_found_and_written(copy: Path) -> None:
    right = (copy / "README.md").read_text()
    change(copy / "difficulty.yaml", "  nms_f32:\n    level: hard", "  nms_f32:\n    level: medium")
    (problem,) = checks.check_tables(copy)
    assert has(problem, "README.md", "not current", "`kata dev tables`")
    fresh = tables.written(load_catalog(copy), "README.md")
    (row, before) = (next(line for line in text.splitlines() if "exercises/nms/" in line) for text in (fresh, right))
    assert "| 1 medium |" in row and row.replace("1 medium", "1 hard") == before
    lesson = copy / "exercises/nms/README.md"
    lesson.write_text(re.sub(r"\A# nms: .*", "# nms: the best boxes", lesson.read_text()))
    assert "| the best boxes | 1 medium |" in tables.written(load_catalog(copy), "README.md")


def test_what_a_family_is_about_comes_from_the_catalogue(copy: Path) -> None:
    catalog = load_catalog(copy)
    change(copy / "difficulty.yaml", f'about: "{catalog.about["nms"]}"', 'about: "boxes | and *more* boxes"')
    assert "| boxes \\| and \\*more\\* boxes |" in tables.written(load_catalog(copy), "README.md")


def test_each_file_is_written_only_where_its_data_changed(copy: Path) -> None:
    data, row = copy / support.FILE, r"\| forms of PTX instructions \| ([0-9,]+) \|"
    (before,) = re.findall(row, (copy / "README.md").read_text())
    data.write_text(data.read_text().replace('"abs": {"forms": 10,', '"abs": {"forms": 10010,'))
    stale = checks.check_tables(copy)
    assert len(stale) == 2 and has(stale[0], "README.md") and has(stale[1], "SUPPORT.md", "`kata dev tables`")
    done = run(copy, "-m", "grader", "dev", "tables")
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert done.returncode == 0 and set(said) == set(tables.TABLES)
    assert said["README.md"] == said["grader/devices/sim/SUPPORT.md"] == "written"
    assert said["solutions/SPEED.md"] == "was current" and checks.check_tables(copy) == []
    (after,) = re.findall(row, (copy / "README.md").read_text())
    assert int(after.replace(",", "")) == int(before.replace(",", "")) + 10_000
    assert "| `abs` | 10010 | 10 |" in (copy / "grader/devices/sim/SUPPORT.md").read_text()


def test_a_lost_table_an_unknown_one_and_lost_data_are_found(copy: Path) -> None:
    change(copy / "README.md", "<!-- support: written by `kata dev tables` -->", "")
    change(copy / "solutions/SPEED.md", "<!-- speeds: written", "<!-- spede: written")
    (copy / support.FILE).write_text("{}")
    problems = checks.check_tables(copy)
    assert any(has_all(problem, "README.md", "'support'", "<!-- end -->") for problem in problems), problems
    assert any(has_all(problem, "SPEED.md", "'spede'", "speeds") for problem in problems), problems
    assert any(has_all(problem, "support.json", "tests/differential/support.py") for problem in problems), problems
    (copy / "solutions/SPEED.md").unlink()
    assert any(has_all(problem, "SPEED.md", "cannot be read") for problem in checks.check_tables(copy))


def has_all(text: str, *facts: str) -> bool:
    return all(fact in text for fact in facts)


def test_a_kata_that_was_not_recorded_is_in_the_table_as_not_compared() -> None:
    catalog, known = load_catalog(ROOT), support.read(ROOT)
    name, shapes = next(iter(known.katas.items()))
    rows = support.katas(catalog, replace(known, katas={name: shapes})).splitlines()
    assert sum(row.endswith("| not compared |") for row in rows) == len(catalog.katas) - 1
    assert f"| `{name}` | {'; '.join(shapes)} |" in rows
    assert support.text_of(known) == (ROOT / support.FILE).read_text()


def test_bad_style_is_found_in_every_language(tmp_path: Path) -> None:
    """In a repository of three files: what the linters say of all of them is for the check itself to ask."""
    if shutil.which("clang-format") is None and not (Path(sys.executable).parent / "clang-format").exists():
        pytest.skip("the linters are not installed; pip install -e .[dev]")
    files = ("grader/fault.py", "solutions/elementwise/elementwise_f32.cu", "grader/devices/sim/engine/product.cpp")
    whole = copied(tmp_path, *files, ".clang-format", "pyproject.toml")
    python, kernel, engine = (whole / name for name in files)
    python.write_text(python.read_text() + "\ndef untyped(x):\n    return   x\n")
    kernel.write_text(kernel.read_text().replace("    const int idx", "  const int idx"))
    turns = "".join(f"    value += {i};\n" for i in range(style.LONGEST[".cpp"]))
    engine.write_text(engine.read_text() + f"\nint too_long(int value) {{\n{turns}    return value;\n}}\n")
    problems = "\n".join(style.check_style(whole))
    assert "ruff format: " in problems and "fault.py" in problems
    assert "mypy: " in problems and "no-untyped-def" in problems
    assert "clang-format: " in problems and "elementwise_f32.cu" in problems
    assert "engine/product.cpp:" in problems and re.search(rf"too_long.* {style.LONGEST['.cpp'] + 3} lines", problems)


def test_style_goes_on_beside_the_checks_before_it_and_is_told_in_its_turn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = threading.Event()
    monkeypatch.setitem(checks.QUICK, "style", lambda root: begun.set() or ["its words"])
    monkeypatch.setitem(checks.QUICK, "imports", lambda root: [] if begun.wait(60) else ["style did not begin"])
    monkeypatch.chdir(ROOT)
    assert main(["dev", "check", "imports", "style"]) == 1
    said = re.sub(r"\d+ s so far", "", capsys.readouterr().out)
    assert said.startswith("imports ...\nimports: ok, \nstyle ...\n  its words\nstyle: 1 to fix, \n")


FUNCTIONS = """
// int comment() { }
namespace {
constexpr int TABLE[] = {1, 2};
struct Pair {
    Pair(int a) : first(a) {}
    int sum() const { return first + 1; }
    int first;
};
template <class F>
auto visit(
    F f, const char* text = "} {") {
    if (f()) {
        return [&] { return f(); };
    }
}
}  // namespace
std::vector<int>& Pair::all(int (*g)(int)) {
    return {};
}
"""


def test_functions_of_a_source_are_measured() -> None:
    found = [(name, length) for _, name, length in style.functions_of(FUNCTIONS)]
    assert found == [("Pair", 1), ("sum", 1), ("visit", 7), ("Pair::all", 3)]


# -- wrong kernels -----------------------------------------------------------------------------------------------------

PAIR = """\
    replace: 'return x < 0.0f ? 0.0f : x;'
    by: return fmaxf(x, 0.0f);
"""
LIST = """\
    edits:
      - replace: 'return x < 0.0f ? 0.0f : x;'
        by: return fmaxf(x, 0.0f);
"""
ENTRY = f"""\
relu_f32:
  nan-becomes-0:
    wrong: fmaxf gives the number where the other side is nan
    verdict: wrong answer
{PAIR}"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with all katas, and without wrong kernels."""
    for part in ("exercises", "solutions", "difficulty.yaml"):
        (tmp_path / part).symlink_to(ROOT / part)
    (tmp_path / "tests" / "wrong_kernels" / "relu_f32").mkdir(parents=True)
    return tmp_path


def test_all_wrong_kernels_and_exploits_are_well() -> None:
    assert checks.check_wrong_kernels(ROOT) == []


@pytest.mark.parametrize(
    ("was", "becomes", "line", "problem"),
    [
        ("x < 0.0f", "x <= 0.0f", 5, "does not occur in solutions/relu/relu_f32.cu: the solution has changed. Its"),
        ("'return x < 0.0f ? 0.0f : x;'", "relu", 5, r"occurs \d+ times in .*relu/relu_f32.cu, lines 1, .*\d. Len"),
        (PAIR, LIST + "      - replace: 'x < 0.0f ?'\n        by: ''\n", 8, "overlaps the one on line 6"),
        (PAIR, LIST, 6, "several pairs make a list. Write `replace` and `by` of the only pair"),
        ("fmaxf(x, 0.0f);", "0.0f;  // BUG, too", 5, "'// BUG' must end its line"),
        ("    wrong:", "    wrnog:", 3, "wrnog: unknown field. Did you mean wrong?"),
        ("    verdict: wrong answer\n", "", 3, "verdict: missing. Add a line"),
        ("    verdict: wrong answer\n", "    sim: race\n", 3, "gpu: missing. Add a line"),
        ("    verdict: wrong answer\n", "    sim: race\n    gpu: race\n", 3, "Write one `verdict` for both"),
        ("verdict: wrong answer", "verdict: wrong anwser", 4, "'wrong anwser'. Did you mean wrong answer"),
        (
            "verdict: wrong answer",
            "verdict: race | wrong answer",
            4,
            "there is no reason. Write `race | wrong answer: the",
        ),
        ("verdict: wrong answer", "verdict: not shown", 4, "there is no reason. Write `not shown: the reason`"),
        ("    replace:", "    sizes: n\n    replace:", 5, "'n' is not a shape. Write it as `m=1, n=257`"),
        ("    replace:", "    says: '('\n    replace:", 5, "not a regular expression"),
        ("    replace:", "    timed: no\n    replace:", 5, "expected `yes`"),
        ("\n    by: return fmaxf(x, 0.0f);", "", 3, "by: missing"),
        (" return fmaxf(x, 0.0f);", "", 6, "by: expected text"),
        ("return fmaxf(x, 0.0f);", "'return x < 0.0f ? 0.0f : x;'", 3, "an edit changes nothing"),
        ("nan-becomes-0", "nan_becomes_0", 2, "not a name for a bug"),
        ("relu_f32:", "relu_f23:", 1, "relu has no kata of this name. Did you mean relu_f32"),
        ("0.0f);\n", "0.0f);\n  nan-becomes-0: {}\n", 7, "'nan-becomes-0' is there twice, first on line 2"),
        ("verdict: ", "verdict: [", 5, "not valid YAML"),
    ],
)
def test_a_malformed_wrong_kernel_is_found(clone: Path, was: str, becomes: str, line: int, problem: str) -> None:
    place = clone / "tests" / "wrong_kernels" / "relu.yaml"
    place.write_text(ENTRY)
    assert checks.check_wrong_kernels(clone) == []
    change(place, was, becomes)
    (found,) = checks.check_wrong_kernels(clone)
    assert found.startswith(f"{place}:{line}: ") and re.search(problem, found), found


def test_a_wrong_kernel_in_two_places_is_found(clone: Path) -> None:
    place = clone / "tests" / "wrong_kernels" / "relu.yaml"
    whole = place.parent / "relu_f32" / "nan-becomes-0.cu"
    whole.write_text("// Wrong: all of it\n// Kata: relu_f32\n// Verdict: race\n")
    assert checks.check_wrong_kernels(clone) == []
    place.write_text(ENTRY)
    (found,) = checks.check_wrong_kernels(clone)
    assert found.startswith(f"{whole}:1: relu_f32/nan-becomes-0: is there twice, first in {place}:2")
    whole.write_text("// Wrong: all of it\n// Kata: relu_f16\n// Verdict: race\n")
    assert "'relu_f16' is not a kata, or not the folder's" in checks.check_wrong_kernels(clone)[0]
    whole.write_text("// Wrong: all of it\n// Kata: relu_f32\n// Verdict: race\nint x;  // BUG\n")
    assert "belong together" in checks.check_wrong_kernels(clone)[0]


SOLUTION = """\
    int a;  // first
    if (b) {
#pragma unroll
        c();

        d();
    }
    e();
"""


@pytest.mark.parametrize(
    ("replace", "by", "becomes"),
    [
        ("int a;", "long a;", ("    int a;", "    long a;")),
        ("e();", "", ("    e();\n", "")),
        ("int a;", "", ("int a;", "")),
        ("d();", "f();\n\ng();", ("d();", "f();\n\n        g();")),
        ("c();\n\nd();", "", ("        c();\n\n        d();\n", "")),
        ("#pragma unroll\n    c();", "#pragma unroll 4\nf();", ("unroll\n        c();", "unroll 4\n    f();")),
        ("}\ne();", "    f();\n}", ("    }\n    e();", "        f();\n    }")),
    ],
)
def test_an_edit_is_indented_like_the_solution(tmp_path: Path, replace: str, by: str, becomes: tuple[str, str]) -> None:
    kata = Kata(name="k", family="f", level="easy", elem="f32", root=tmp_path)
    kata.solution_path.parent.mkdir(parents=True)
    kata.solution_path.write_text(SOLUTION)
    race = Expected((Kind.RACE,), None)
    wrong = WrongKernel(
        kata=kata, bug="b", path=tmp_path, line=1, wrong="w", sim=race, gpu=race, edits=(Edit(replace, by, 1),)
    )
    assert SOLUTION.count(becomes[0]) == 1
    assert wrong_kernel.text(wrong) == SOLUTION.replace(*becomes)


def test_edits_are_found_again_from_the_file_that_they_make(tmp_path: Path) -> None:
    """What `kata dev mutant --from` prints makes the same file, but for white space."""
    catalog = load_catalog(ROOT)
    for wrong in wrong_kernel.load(catalog, ROOT / wrong_kernel.FOLDER)[::10]:
        solution, text = wrong.kata.solution_path.read_text(), wrong_kernel.text(wrong)
        entry = edits.entry(wrong.kata.name, wrong.bug, edits.between(solution, text))
        place = tmp_path / f"{wrong.kata.family}.yaml"
        place.write_text(entry.replace("TODO\n", "race\n"))
        (again,) = wrong_kernel.load(catalog, tmp_path)
        assert wrong_kernel.text(again).split() == text.split(), entry
        place.unlink()


def mutant(*arguments: object) -> str:
    done = run(ROOT, "-m", "grader", "dev", "mutant", *map(str, arguments))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def test_a_mutant_is_listed_printed_compared_and_written_as_an_entry(tmp_path: Path) -> None:
    solution = (ROOT / "solutions" / "relu" / "relu_f32.cu").read_text()
    changed = solution.replace("return x < 0.0f ? 0.0f : x;", "return fmaxf(x, 0.0f);")
    assert mutant("relu_f32/nan-becomes-0") == changed
    diff = mutant("relu_f32/nan-becomes-0", "--diff").splitlines()
    assert diff[0] == "--- solutions/relu/relu_f32.cu"
    assert [line for line in diff[2:] if line[0] in "+-"] == [
        "-    return x < 0.0f ? 0.0f : x;",
        "+    return fmaxf(x, 0.0f);",
    ]
    assert re.fullmatch(r"relu_f32/nan-becomes-0: .*\bfmaxf\b.*\bnan\b.*", mutant("relu_f32").splitlines()[1])
    assert set(mutant("relu_f32").splitlines()) < set(mutant().splitlines())
    edited = tmp_path / "edited.cu"
    edited.write_text(changed)
    entry = yaml.safe_load(mutant("relu_f32/new", "--from", edited))["relu_f32"]["new"]
    known = yaml.safe_load(ENTRY)["relu_f32"]["nan-becomes-0"]
    assert (entry["replace"], entry["by"]) == (known["replace"], known["by"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nan-becomes-0"], "katas have a bug 'nan-becomes-0'. Name one of them: .*relu_f32/nan-becomes-0"),
        (["relu_f32/nan-becomes-1"], "no kata has a bug 'relu_f32/nan-becomes-1'. Did you mean relu_f32/nan-becomes-0"),
        (["relu_f32", "--from", "solutions/relu/relu_f32.cu"], "needs a name for the bug"),
        (["relu_f32/new", "--from", "solutions/relu/relu_f32.cu"], "Plant the bug in it first"),
        (["relu_f32/new", "--from", "nowhere.cu"], "nowhere.cu is not a file"),
        (["relu_f32/New_Bug", "--from", "solutions/relu/relu_f32.cu"], "'New_Bug' is not a name for a bug"),
        (
            ["relu_f32/nan-becomes-0", "--from", "solutions/relu/relu_f32.cu"],
            r"relu_f32/nan-becomes-0 is there already: tests/wrong_kernels/relu\.yaml:\d+",
        ),
    ],
)
def test_what_is_no_mutant_is_refused(arguments: list[str], problem: str) -> None:
    done = run(ROOT, "-m", "grader", "dev", "mutant", *arguments)
    assert done.returncode == 2 and done.stdout == "" and re.search(problem, done.stderr), done.stderr


def test_bytecode_of_the_tests_goes_to_the_cache_where_it_may_not_stand_beside_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that a test imports is compiled once, and no __pycache__ appears beside it."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "helper.py").write_text("")
    (tmp_path / "tests" / "test_of_it.py").write_text(
        "import sys\nsys.path.insert(0, 'tests')\nimport helper\n\ndef test(): assert not sys.dont_write_bytecode\n"
    )
    monkeypatch.setattr(checks, "compile_all", lambda *_: None)
    # Two processes, with pytest-xdist alone of all plugins: each compiles all that it imports for this empty cache.
    monkeypatch.setattr(checks, "MOST_PROCESSES", 2)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path))  # its end would remove folders of earlier runs
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    assert checks.check_tests(tmp_path) == []
    places = [path.parent for path in tmp_path.rglob("helper.*.pyc")]
    assert len(places) == 1 and tmp_path / "cache" in places[0].parents
