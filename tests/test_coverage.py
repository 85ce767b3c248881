"""What no case comes to: joined over processes, told to the learner, and held against what a solution's entries say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import passed_before
import pytest
from facts import has

from grader.content.catalog import load_catalog
from grader.content.source_file import Source
from grader.devices.counters import KernelCoverage
from grader.grade import Options, grade
from grader.judge.coverage import joined
from grader.maintain import coverage
from grader.output.verdict_text import printed
from grader.verdict import Coverage, Grade

pytestmark = [passed_before.REPOSITORY, pytest.mark.usefixtures("forked_children")]

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(ROOT)


def test_a_line_is_reached_where_any_kernel_or_process_comes_to_it() -> None:
    first = KernelCoverage("k<1>", True, ((3, 1), (4, 0), (5, 0)), ((3, 1),))
    again = KernelCoverage("k<1>", False, ((3, 0), (4, 1), (5, 0)), ((3, 2), (4, 0)))
    other = KernelCoverage("k<2>", False, ((3, 0), (6, 0)), ((6, 0),))
    found = joined([first, again, other], "")
    assert found == Coverage(unlaunched=("k<2>",), unreached=(5, 6), once=(4,))


STATEMENTS = """\
__global__ void k(const float* x, float* y, int n) {
    const int row = threadIdx.x / 8;
    const int col = threadIdx.x % 8;  // a remark
    y[row] = x[col];
    if (n > 5) y[0] = 1;
    y[1] = 2;
    for (int i = 0; i < n; ++i)
        y[i] = 3;
    y[2] = 4;
    if (n > 7) {
        y[3] = 5;
        return;
    }
    y[4] = 6;
    y[5] = x[0] +
           x[1];
    y[6] = 7;
}
"""


@pytest.mark.parametrize(
    ("reached", "others"),
    [
        ({4}, {2, 3}),  # in a row, from the last to the first
        ({2, 5, 7}, {3, 4}),  # not what an if or a for stands on the line of, or between
        ({6, 9}, set()),  # nor what stands behind them
        ({10, 11}, set()),  # after a return nothing need run
        ({15, 16}, set()),  # nor do lines of one statement
    ],
)
def test_statements_in_a_row_run_together(reached: set[int], others: set[int]) -> None:
    lines = tuple((line, int(line in reached)) for line in range(2, 18))
    found = joined([KernelCoverage("k", True, lines, ())], STATEMENTS)
    assert set(range(2, 18)) - set(found.unreached) == reached | others


# What stands there runs for n that the grader does not try, and the loop goes round for no other.
INNER = """\
    if (n > 1000000000) {
        y[0] = 7.0f;
        y[1] = 8.0f;
    }
    for (int i = 0; i < 1 + n / 1000000; ++i) {
        if (x[i] == 1e30f) y[i] = 5.0f;
    }
"""


@pytest.fixture(scope="module")
def partly(tmp_path_factory: pytest.TempPathFactory) -> Grade:
    """A right file with what no case comes to: a branch for huge n, a loop that ends at once, a kernel."""
    kata = CATALOG.katas["relu_f32"]
    text = kata.solution_path.read_text()
    for place, added in {
        "__global__": "__global__ void unused_kernel(float* y) { y[0] = 1.0f; }\n\n",
        "    // END TODO(2)": INNER,
        "    const int blocks": "    if (n > 1000000000) unused_kernel<<<1, 1, 0, stream>>>(y);\n",
    }.items():
        assert text.count(place) == 1
        text = text.replace(place, added + place)
    source = tmp_path_factory.mktemp("partly") / "relu_f32.cu"
    source.write_text(text)
    return grade(kata, Options(device="sim", last_failure=False), source=source)


def line_of(result: Grade, text: str) -> int:
    (number,) = (at for at, line in enumerate(result.source.text.splitlines(), 1) if text in line)
    return number


def test_grade_says_what_it_did_not_reach(partly: Grade) -> None:
    assert partly.passed and partly.verdict.coverage is not None
    found = partly.verdict.coverage
    assert found.unlaunched == ("unused_kernel",)
    assert {line_of(partly, "7.0f"), line_of(partly, "8.0f")} <= {*found.unreached}
    assert line_of(partly, "for (int i") in found.once


def test_learner_is_told_of_lines_of_their_own(partly: Grade) -> None:
    (row,) = [row for row in printed(partly) if "unreached" in row]
    first = line_of(partly, "7.0f")
    assert has(row, f"{first} to {first + 1}")


def test_nothing_is_said_where_all_is_reached_or_a_gpu_had_the_other_shapes(partly: Grade) -> None:
    whole = replace(partly, verdicts=(replace(partly.verdict, coverage=Coverage()),))
    after_gpu = replace(partly, verdicts=(replace(partly.verdict, left_out="13 of 23 named shapes"),))
    assert printed(whole) == [] == printed(after_gpu)


def test_lines_that_were_given_are_not_the_learners(partly: Grade) -> None:
    solution = CATALOG.katas["relu_f32"].solution_path
    source = Source(solution, solution.read_bytes())
    kept = [at for at, line in enumerate(source.text.splitlines(), 1) if line.startswith("KATA_EXPORT")]
    verdict = replace(partly.verdict, coverage=Coverage(unreached=tuple(kept)))
    assert printed(Grade(partly.kata, source, (verdict,))) == []


# -- what stands in solutions/unreached.yaml -------------------------------------------------------------------------

KATA = CATALOG.katas["relu_f16x2"]
LOOP = next(
    at for at, line in enumerate(KATA.solution_path.read_text().splitlines(), 1) if line.strip().startswith("for (")
)
TEXT = coverage.gaps(KATA, Coverage(once=(LOOP,)))[0].text


def test_a_gap_without_a_reason_and_a_reason_without_a_gap_are_told() -> None:
    found = Coverage(once=(LOOP,))
    assert coverage.disagreements(KATA, found, {("loop", TEXT): "why"}) == []
    (missing,) = coverage.disagreements(KATA, found, {})
    assert has(missing, KATA.name, f"line {LOOP}", TEXT)
    (needless,) = coverage.disagreements(KATA, Coverage(), {("loop", TEXT): "why"})
    assert has(needless, KATA.name, TEXT)


def written(root: Path, text: str) -> list[str]:
    (root / "solutions").mkdir(parents=True, exist_ok=True)
    (root / coverage.EXPLAINED).write_text(text)
    return coverage.problems(replace(CATALOG, root=root))


def test_entries_are_checked(tmp_path: Path) -> None:
    right = f"relu_f16x2:\n  - loop: '{TEXT}'\n    why: one element is left\n"
    assert written(tmp_path, right) == []
    for text, words in {
        right.replace("relu_f16x2:", "relu_f16x3:"): ("relu_f16x3", "relu_f16x2"),
        right.replace(TEXT, "for (;;) {"): ("for (;;) {",),
        right.replace("    why: one element is left\n", ""): ("why", "missing"),
        right.replace("  - loop", "  - lop"): ("lop", "loop"),
        "relu_f16x2:\n  - why: neither\n": ("line, loop, kernel",),
    }.items():
        (problem,) = written(tmp_path, text)
        assert has(problem, *words)


def test_repositorys_own_entries_fit() -> None:
    assert coverage.problems(CATALOG) == []
