"""Grade -> text: what is said of what a kernel printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grader.catalog import load_catalog
from grader.grade import Grade, Options, grade
from grader.report import explanation, printed
from grader.sandbox import CUT
from grader.verdict import Kind, Verdict

KATA = load_catalog(Path(__file__).resolve().parent.parent).katas["elementwise_f32"]
PASS = Verdict(Kind.PASS, "right", device="sim sm_90a", cases=3)
LINES = [f"i={i}" for i in range(20)]
LAST = ["            i=" + str(i) for i in range(14, 20)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", []),
        ("one\n\n  two\n", ["  printed   one", "", "              two"]),
        (
            "\n".join(LINES) + "\n",
            ["  printed   (the last 6 of 20 lines; all of them with `kata grade --json`)", *LAST],
        ),
        (
            "\n".join([CUT, *LINES]),
            ["  printed   (the last 6 of more than 20 lines; 20 of them with `kata grade --json`)", *LAST],
        ),
        ("x" * 120, ["  printed   " + "x" * 110 + " ..."]),
    ],
)
def test_the_end_of_what_was_printed_and_how_much_there_is(text: str, said: list[str]) -> None:
    passed = Grade(KATA, KATA.skeleton_path, (replace(PASS, printed=text),))
    assert [line.rstrip() for line in printed(passed)] == said
    failed = Grade(KATA, KATA.skeleton_path, (Verdict(Kind.RACE, "a race", device="sim sm_90a", printed=text),))
    assert printed(failed) == []
    assert [line.rstrip() for line in explanation(failed).splitlines()][1:] == [*said, "  device    sim sm_90a"]


def test_a_pass_says_what_is_still_empty(tmp_path: Path) -> None:
    """The answer is right without it: perhaps a default that a launcher should have replaced."""
    source = tmp_path / "elementwise_f32.cu"
    more = "// TODO(3): Something that nobody needs. (~1 line)\n// END TODO(3)\n"
    source.write_text(KATA.solution_path.read_text() + more)
    graded = grade(KATA, Options(device="sim"), source=source)
    assert graded.passed and graded.verdict.open_todos == (3,)
    assert printed(graded) == ["  open      TODO 3 is still empty"]
