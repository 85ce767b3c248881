"""Verdict -> the line and the TODO that it points at, the lesson's rows on its kind, and what hints say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import passed_before
import pytest
from facts import has

from grader.commands.kata import said_hint, said_symptom
from grader.content.catalog import Kata, load_catalog
from grader.content.hints import COUNT
from grader.content.source_file import source_of
from grader.content.start import BLANK
from grader.content.symptoms import load_symptoms, problems
from grader.devices import Finding
from grader.learner import progress
from grader.learner.pointer import KINDS, point
from grader.output.verdict_text import explanation
from grader.verdict import Clue, Grade, Kind, Mismatch, Verdict

pytestmark = passed_before.REPOSITORY

LESSON = """\
# k

## If you see

| the grader says | the usual cause | what to do |
|---|---|---|
| race, on `partial_smem` | a barrier is missing | add it |
| race, on y | a plain store | use an atomic |
| `uninitialised` or misaligned | nothing clears it | clear it |
| wrong answer: expected nan, got 0 | `fmaxf(x \\| y)` | compare |
| wrong answer, never written, at n=1 | no tail | add a loop |
| wrong answer, in the swizzled tile | the wrong half | swap |

## More

| race, on z | not in the table | - |
"""
FILE = """\
__global__ void k_kernel(float* y) {
    // TODO(1): Load. (~1 line)
    partial_smem[tid] = x[tid];
    // END TODO(1)
    // TODO(2): Store. (~1 line)
    y[tid] = partial_smem[0];
    // END TODO(2)
    other(y);
}
"""
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def kata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kata:
    """A kata with a lesson and a file at work."""
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    found = Kata(name="k", family="f", level="easy", elem="f32", root=tmp_path)
    for path, text in ((found.lesson_path, LESSON), (found.work_path, FILE)):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return found


def graded(kata: Kata, verdict: Verdict) -> Grade:
    return Grade(kata, source_of(kata.work_path), (verdict,))


def race(buffer: str, line: int | None = None, callers: tuple[int, ...] = ()) -> Verdict:
    finding = Finding("race", f"race on {buffer}[3]", buffer=buffer, line=line, callers=callers)
    return Verdict(Kind.RACE, finding.message, line=line, finding=finding)


def wrong(got: float | None = 1.0, expected: float = 2.0, **more: int) -> Verdict:
    return Verdict(Kind.WRONG_ANSWER, "y is wrong", sizes=more, mismatches=(Mismatch("y", (0,), expected, got),))


@pytest.mark.parametrize(
    ("verdict", "rows"),
    [
        (race("partial_smem"), ["race, on `partial_smem`", "race, on y"]),
        (Verdict(Kind.MISALIGNED, "m"), ["`uninitialised` or misaligned"]),
        (Verdict(Kind.DEADLOCK, "d"), []),
        (Verdict(Kind.PASS, "right"), []),
    ],
)
def test_the_rows_of_the_lesson_on_a_kind(kata: Kata, verdict: Verdict, rows: list[str]) -> None:
    assert [row.sees for row in point(graded(kata, verdict)).rows] == rows


def test_a_row_is_found_in_its_section_alone_with_its_cells(kata: Kata) -> None:
    found = load_symptoms(kata.lesson_path)
    assert len(found) == 6 and found[3].cause == "`fmaxf(x | y)`"
    assert problems(kata.lesson_path, KINDS) == []
    kata.lesson_path.write_text(LESSON.replace("race, on y", "y is off"))
    (problem,) = problems(kata.lesson_path, KINDS)
    assert has(problem, str(kata.lesson_path), "y is off", "deadlock")
    kata.lesson_path.write_text("# k\n")
    assert load_symptoms(kata.lesson_path) == () and has(problems(kata.lesson_path, KINDS)[0], "If you see")


@pytest.mark.parametrize(
    ("verdict", "line", "todo"),
    [
        (race("y", 6), 6, 2),
        (race("y", 1), 1, None),
        (race("y", 1, callers=(3,)), 3, 1),
        (replace(wrong(), clues=(Clue("nan", "born", line=3),)), 3, 1),
        (replace(wrong(), mismatches=(Mismatch("y", (0,), 1.0, 2.0, "thread (0,0,0), line 6"),)), 6, 2),
        (replace(wrong(), open_todos=(2,)), 5, 2),
        (wrong(), None, None),
    ],
)
def test_the_todo_that_a_verdict_points_at(kata: Kata, verdict: Verdict, line: int | None, todo: int | None) -> None:
    found = point(graded(kata, verdict))
    assert (found.line, found.todo) == (line, todo)


def test_a_hint_begins_with_what_the_last_grade_points_at(kata: Kata) -> None:
    assert [*said_symptom(kata, progress.load(kata.root))] == []
    assert progress.keep_grade(graded(kata, race("partial_smem", 6))) is None
    text = "\n".join(said_symptom(kata, progress.load(kata.root)))
    assert has(text, "race", "line 6", "TODO(2)", "Store.", "race, on partial_smem: a barrier is missing", "race, on y")
    kata.work_path.write_text(FILE + "\n")
    assert has("\n".join(said_symptom(kata, progress.load(kata.root))), "edited")
    assert progress.keep_grade(graded(kata, Verdict(Kind.PASS, "right"))) is None
    assert [*said_symptom(kata, progress.load(kata.root))] == []


def test_the_last_hint_for_a_blank_file_says_whose_names_it_uses(kata: Kata) -> None:
    def said(strength: int) -> str:
        return "\n".join(said_hint(kata, "the hint", strength, progress.load(kata.root)))

    assert said(COUNT) == "the hint"
    assert progress.keep_start(kata, BLANK) is None
    assert has(said(COUNT), "the hint", "names", str(kata.skeleton_path.name)) and "names" not in said(COUNT - 1)


def test_each_grade_that_fails_leads_to_the_next_hint(kata: Kata) -> None:
    def strength() -> int:
        return progress.load(kata.root).next_hint("k", 3)

    strengths = [strength()]
    for _ in range(4):
        progress.keep_hint(kata, strengths[-1])
        strengths.append(strength())  # the same again, until a grade fails
        progress.keep_grade(graded(kata, race("y", 6)))
        strengths.append(strength())
    assert strengths == [1, 1, 2, 2, 3, 3, 3, 3, 3]


def test_a_verdict_names_the_row_but_not_in_an_interview(kata: Kata) -> None:
    failed = graded(load_catalog(ROOT).katas["reduce_interleaved_f32"], race("partial_smem"))
    rows = [line for line in explanation(failed).splitlines() if line.split()[0] == "lesson"]
    assert len(rows) == 1 and has(rows[0], "exercises/reduce/README.md", "If you see")
    assert "lesson" not in explanation(failed, lesson=False)
