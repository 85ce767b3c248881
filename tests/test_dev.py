"""The maintainer's checks: each finds what it is there to find."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from facts import has

from grader import dev, readme
from grader.catalog import load_catalog

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
    assert has(problems[0], "grader.check", "after grader.catalog")


def test_a_module_outside_the_order_is_found(copy: Path) -> None:
    (copy / "grader" / "surprise.py").write_text("")
    assert any("grader.surprise" in problem and "ORDER" in problem for problem in dev.check_imports(copy))


def test_no_module_of_the_grader_names_a_kata() -> None:
    """Adding a kata never touches grader/: the machine must not know any of them."""

    names = [*load_catalog(ROOT).katas]
    examples = (ROOT / "grader" / "cli.py", *(ROOT / "grader" / "commands").glob("*.py"))  # shown by --help
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
    problems = dev.check_catalogue(copy)
    assert len(problems) == 1 and has(problems[0], "elementwise_f32", *facts)


def test_a_stale_skeleton_is_found(copy: Path) -> None:
    path = copy / "exercises" / "elementwise" / "elementwise_f32.cu"
    path.write_text(path.read_text().replace("constexpr int THREADS = 256;", "constexpr int THREADS = 128;"))
    problems = dev.check_skeletons(copy)
    assert len(problems) == 1 and has(problems[0], "elementwise_f32.cu", "not current", "kata dev")


def test_a_started_skeleton_is_not_stale(copy: Path) -> None:
    path = copy / "exercises" / "elementwise" / "elementwise_f32.cu"
    path.write_text(path.read_text().replace("    // END TODO(1)", "    int mine = 0;\n    // END TODO(1)"))
    solved = copy / "solutions" / "elementwise" / "elementwise_f16.cu"
    shutil.copy(solved, copy / "exercises" / "elementwise" / "elementwise_f16.cu")
    assert dev.check_skeletons(copy) == []


def test_a_missing_lesson_is_found(copy: Path) -> None:
    (copy / "exercises" / "sgemm" / "README.md").unlink()
    (problem,) = dev.check_catalogue(copy)
    assert has(problem, "exercises/sgemm/README.md", "missing")


def change(path: Path, was: str, becomes: str) -> None:
    text = path.read_text()
    assert text.count(was) == 1
    path.write_text(text.replace(was, becomes))


def test_the_readme_is_current() -> None:
    assert dev.check_readme(ROOT) == []


def test_a_stale_readme_is_found_and_written_anew(copy: Path) -> None:
    right = (copy / "README.md").read_text()
    change(copy / "difficulty.yaml", "  nms_f32:\n    level: medium", "  nms_f32:\n    level: hard")
    (problem,) = dev.check_readme(copy)
    assert has(problem, "README.md", "not current", "`kata dev readme`")
    fresh = readme.written(load_catalog(copy))
    (row, before) = (next(line for line in text.splitlines() if "exercises/nms/" in line) for text in (fresh, right))
    assert "| 1 hard |" in row and row.replace("1 hard", "1 medium") == before
    support = copy / readme.SUPPORT
    support.write_text(re.sub(r"(?m)^\| all \| \d+ \|", "| all | 9876 |", support.read_text()))
    assert "| forms of PTX instructions | 9,876 |" in readme.written(load_catalog(copy))
    lesson = copy / "exercises/nms/README.md"
    lesson.write_text(re.sub(r"\A# nms: .*", "# nms: the best boxes", lesson.read_text()))
    assert "| the best boxes | 1 hard |" in readme.written(load_catalog(copy))


def test_a_family_without_words_and_a_lost_part_are_found(copy: Path) -> None:
    text = (copy / "README.md").read_text()
    (copy / "README.md").write_text(re.sub(r"(?m)^(\| \[nms\].*\|)[^|]+\|$", r"\1  |", text))
    (problem,) = dev.check_readme(copy)
    assert has(problem, "curriculum", "nms")
    change(copy / "README.md", "<!-- support: written by `kata dev readme` -->", "")
    assert any("'support'" in problem and "missing" in problem for problem in dev.check_readme(copy))


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
    assert "engine/product.cpp:" in problems and re.search(rf"too_long.* {dev.SCREEN + 3} lines", problems)


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
