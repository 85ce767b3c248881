"""Grade -> text: what is said of what a kernel printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import passed_before
import pytest
from facts import has

from grader.content.catalog import load_catalog
from grader.content.source_file import source_of
from grader.devices import Finding
from grader.grade import Options, grade
from grader.output.verdict_text import explanation, headline, outcome, printed
from grader.sandbox.parent import TRUNCATED
from grader.verdict import Grade, Kind, Verdict

pytestmark = [passed_before.REPOSITORY, pytest.mark.usefixtures("forked_children")]

KATA = load_catalog(Path(__file__).resolve().parent.parent).katas["elementwise_f32"]
PASS = Verdict(Kind.PASS, "right", device="sim sm_90a", cases=3)
LINES = [f"i={i}" for i in range(20)]
LAST = ["            i=" + str(i) for i in range(14, 20)]


@pytest.mark.parametrize(
    ("text", "note", "lines"),
    [
        ("", [], []),
        ("one\n\n  two\n", [], ["  printed   one", "", "              two"]),
        ("\n".join(LINES) + "\n", ["last 6 of 20", "all", "kata grade --json"], LAST),
        ("\n".join([TRUNCATED, *LINES]), ["last 6 of more than 20", "20 of", "kata grade --json"], LAST),
        ("x" * 120, [], ["  printed   " + "x" * 110 + " ..."]),
    ],
)
def test_the_end_of_what_was_printed_and_how_much_there_is(text: str, note: list[str], lines: list[str]) -> None:
    """Before the lines that are cut off from others stands, in brackets, how many there are and where."""
    passed = Grade(KATA, source_of(KATA.skeleton_path), (replace(PASS, printed=text),))
    said = [line.rstrip() for line in printed(passed)]
    if note:
        assert said[0].startswith("  printed   (") and has(said[0], *note)
    assert said[1:] == lines if note else said == lines
    failed = Grade(
        KATA, source_of(KATA.skeleton_path), (Verdict(Kind.RACE, "a race", device="sim sm_90a", printed=text),)
    )
    assert printed(failed) == []
    assert [line.rstrip() for line in explanation(failed, lesson=False).splitlines()][1:] == [
        *said,
        "  device    sim sm_90a",
    ]


def test_the_whole_chain_of_calls_is_shown_the_learners_line_first(tmp_path: Path) -> None:
    """A wrapper of one instruction, the function that copies a tile, and two functions above that one."""
    source = tmp_path / "elementwise_f32.cu"
    body = [f"    step({number});" for number in range(12)]
    wrapper, tile = ["__device__ void copy() {", "    asm();", "}"], ["__device__ void tile() {", *body, "}"]
    source.write_text("\n".join([*wrapper, *tile, "__device__ void stage() {", *body, "}", *body]))
    finding = Finding("race", "a race", line=2, callers=(8, 23, 33, 34))
    failed = Grade(KATA, source_of(source), (Verdict(Kind.RACE, "a race", line=2, finding=finding),))
    rows = [row.split() for row in explanation(failed, lesson=False).splitlines()[1:]]
    assert [(label, int(place.rpartition(":")[2])) for label, place, *_ in rows] == [
        ("at", 8), ("in", 2), ("from", 23), ("from", 33)
    ]  # fmt: skip


def test_a_race_of_two_writes_says_that_their_values_do_not_matter() -> None:
    """A race of a write and a read says nothing of it."""
    writes = "race on y[0]: thread (0,0,0) writes it on line 3, thread (1,0,0) writes it on line 3"
    for summary, expected in ((writes, True), (writes.replace("writes it", "reads it", 1), False)):
        failed = Grade(KATA, source_of(KATA.skeleton_path), (Verdict(Kind.RACE, summary, device="sim"),))
        notes = [row for row in explanation(failed).splitlines() if row.startswith("  note")]
        assert len(notes) == expected and all(has(note, "same value") for note in notes)


ESCAPES = "\x1b]0;owned\x07\x1b[8A\x1b[Jpass\x9b\r\x7f\u202etxt\u2066"


def test_nothing_of_a_file_is_obeyed_by_a_terminal(tmp_path: Path) -> None:
    """What is printed, quoted, said by nvcc or in the summary: shown, as escapes."""
    source = tmp_path / "elementwise_f32.cu"
    source.write_text(f"int a;  // {ESCAPES}\n", newline="")
    wrong = Verdict(Kind.WRONG_ANSWER, f"c of {ESCAPES}", device="sim", line=1, printed=ESCAPES)
    broken = Verdict(Kind.DOES_NOT_COMPILE, f"#error {ESCAPES}", device="sim", detail=f"{ESCAPES}\n{ESCAPES}")
    grades = [Grade(KATA, source_of(source), (verdict,)) for verdict in (wrong, broken, replace(PASS, printed=ESCAPES))]
    texts = [*map(explanation, grades), *map(headline, grades), *map(outcome, grades), *printed(grades[2])]
    said = [line for text in texts for line in text.split("\n")]
    assert all(line.isprintable() for line in said)
    assert sum("\\x1b[8A" in line for line in said) >= 9 and any("\\u202etxt" in line for line in said)


def test_a_pass_says_what_is_still_empty(tmp_path: Path) -> None:
    """The answer is right without it: perhaps a default that a launcher should have replaced."""
    source = tmp_path / "elementwise_f32.cu"
    more = "// TODO(3): Something that nobody needs. (~1 line)\n// END TODO(3)\n"
    source.write_text(KATA.solution_path.read_text() + more)
    graded = grade(KATA, Options(device="sim"), source=source)
    assert graded.passed and graded.verdict.open_todos == (3,)
    (line,) = printed(graded)
    assert line.startswith("  open ") and has(line, "TODO 3", "empty")
