"""The maintainer's checks: each finds what it is there to find."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from grader import dev, readme
from grader.catalog import load_catalog
from grader.grade import Options
from grader.service.task import Task

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    for part in ("exercises", "solutions", "grader"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignore)
    shutil.copy(ROOT / "difficulty.yaml", tmp_path)
    shutil.copy(ROOT / ".clang-format", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_imports_go_one_way() -> None:
    assert dev.check_imports(ROOT) == []


def test_an_import_against_the_direction_is_found(copy: Path) -> None:
    path = copy / "grader" / "catalog.py"
    path.write_text(path.read_text() + "\n\ndef late() -> None:\n    from grader.check import check  # noqa\n")
    problems = dev.check_imports(copy)
    assert len(problems) == 1 and "grader/catalog.py:" in problems[0]
    assert "imports grader.check, which comes after grader.catalog" in problems[0]


def test_a_module_outside_the_order_is_found(copy: Path) -> None:
    (copy / "grader" / "surprise.py").write_text("")
    assert any("grader.surprise has no place in ORDER" in problem for problem in dev.check_imports(copy))


def test_no_module_of_the_grader_names_a_kata() -> None:
    """Adding a kata never touches grader/: the machine must not know any of them."""

    names = [*load_catalog(ROOT).katas]
    examples = (ROOT / "grader" / "cli.py", *(ROOT / "grader" / "commands").glob("*.py"))  # shown by --help
    for path in (ROOT / "grader").rglob("*"):
        if path.suffix in (".py", ".cpp", ".h", ".cuh") and path not in examples:
            text = path.read_text()
            assert not [name for name in names if name in text], path


@pytest.mark.parametrize(
    ("was", "becomes", "problem"),
    [
        ("baseline: copy", "baseline: cpy", "no baseline is called 'cpy'"),
        ("shapes: [{n: 67108864}]", "shapes: [{m: 67108864}]", "exactly the sizes n"),
    ],
)
def test_a_speed_that_its_spec_does_not_know_is_found(copy: Path, was: str, becomes: str, problem: str) -> None:
    path = copy / "difficulty.yaml"
    path.write_text(path.read_text().replace(was, becomes, 1))
    problems = dev.check_catalogue(copy)
    assert len(problems) == 1 and problem in problems[0] and "elementwise_f32" in problems[0]


def test_a_stale_skeleton_is_found(copy: Path) -> None:
    path = copy / "exercises" / "elementwise" / "elementwise_f32.cu"
    path.write_text(path.read_text().replace("constexpr int THREADS = 256;", "constexpr int THREADS = 128;"))
    problems = dev.check_skeletons(copy)
    assert len(problems) == 1 and "elementwise_f32.cu is not current" in problems[0] and "kata dev" in problems[0]


def test_a_started_skeleton_is_not_stale(copy: Path) -> None:
    path = copy / "exercises" / "elementwise" / "elementwise_f32.cu"
    path.write_text(path.read_text().replace("    // END TODO(1)", "    int mine = 0;\n    // END TODO(1)"))
    solved = copy / "solutions" / "elementwise" / "elementwise_f16.cu"
    shutil.copy(solved, copy / "exercises" / "elementwise" / "elementwise_f16.cu")
    assert dev.check_skeletons(copy) == []


def test_a_missing_lesson_is_found(copy: Path) -> None:
    (copy / "exercises" / "sgemm" / "README.md").unlink()
    assert dev.check_catalogue(copy) == ["exercises/sgemm/README.md is missing: every family has a lesson."]


def change(path: Path, was: str, becomes: str) -> None:
    text = path.read_text()
    assert text.count(was) == 1
    path.write_text(text.replace(was, becomes))


def test_the_readme_is_current() -> None:
    assert dev.check_readme(ROOT) == []


def test_a_stale_readme_is_found_and_written_anew(copy: Path) -> None:
    right = (copy / "README.md").read_text()
    change(copy / "difficulty.yaml", "  nms_f32:\n    level: medium", "  nms_f32:\n    level: hard")
    assert dev.check_readme(copy) == ["README.md is not current: `kata dev readme` writes it."]
    fresh = readme.written(load_catalog(copy))
    assert "| 1 hard | an algorithm that looks serial" in fresh and "| 1 medium | an algorithm that" in right
    support = copy / readme.SUPPORT
    support.write_text(re.sub(r"(?m)^\| all \| \d+ \|", "| all | 9876 |", support.read_text()))
    assert "| forms of PTX instructions | 9,876 |" in readme.written(load_catalog(copy))
    change(copy / "exercises/nms/README.md", "# nms: greedy non-maximum suppression", "# nms: the best boxes")
    assert "| the best boxes | 1 hard |" in readme.written(load_catalog(copy))


def test_a_family_without_words_and_a_lost_part_are_found(copy: Path) -> None:
    change(copy / "README.md", "an algorithm that looks serial, on bit masks", "")
    (problem,) = dev.check_readme(copy)
    assert "the curriculum says nothing of nms; write" in problem
    change(copy / "README.md", "<!-- support: written by `kata dev readme` -->", "")
    assert any("its part 'support' is missing" in problem for problem in dev.check_readme(copy))


def test_bad_style_is_found_in_every_language(copy: Path) -> None:
    if shutil.which("clang-format") is None and not (Path(dev.sys.executable).parent / "clang-format").exists():
        pytest.skip("the linters are not installed; pip install -e .[dev]")
    assert dev.check_style(copy) == []
    python = copy / "grader" / "verdict.py"
    python.write_text(python.read_text() + "\ndef untyped(x):\n    return   x\n")
    kernel = copy / "solutions" / "elementwise" / "elementwise_f32.cu"
    kernel.write_text(kernel.read_text().replace("    const int idx", "  const int idx"))
    engine = copy / "grader" / "devices" / "sim" / "engine" / "product.cpp"
    turns = "".join(f"    value += {i};\n" for i in range(dev.SCREEN))
    engine.write_text(engine.read_text() + f"\nint too_long(int value) {{\n{turns}    return value;\n}}\n")
    problems = "\n".join(dev.check_style(copy))
    assert "ruff format: " in problems and "verdict.py" in problems
    assert "mypy: " in problems and "no-untyped-def" in problems
    assert "clang-format: " in problems and "elementwise_f32.cu" in problems
    assert "engine/product.cpp:" in problems and f"too_long has {dev.SCREEN + 3} lines; split it" in problems


def test_what_is_wrong_with_skeletons_and_solutions_is_said_in_order(tmp_path: Path) -> None:
    """Both are graded side by side, each as a fork of the service."""
    kata = load_catalog(ROOT).katas["relu_f32"]
    bad = tmp_path / "relu_f32.cu"
    bad.write_text(kata.solution_path.read_text().replace("__global__", "__global"))
    options = Options(device="sim")
    files = [(bad, "skeleton_work"), (kata.solution_path, "skeleton_work"), (kata.solution_path, "solution_work")]
    tasks = [Task(kata.name, options, path, work=f"grader.dev:{work}") for path, work in files]
    first, second = dev._side_by_side(tasks, ROOT)
    assert first.startswith("exercises/relu/relu_f32.cu:") and "the skeleton does not compile: " in first
    assert second == "exercises/relu/relu_f32.cu: passes with nothing filled in."
    (only,) = dev._side_by_side([Task(kata.name, options, bad, work="grader.dev:solution_work")], ROOT, most=1)
    assert only.startswith("relu_f32: does not compile: ")


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
    found = [(name, length) for _, name, length in dev.functions_of(FUNCTIONS)]
    assert found == [("Pair", 1), ("sum", 1), ("visit", 7), ("Pair::all", 3)]
