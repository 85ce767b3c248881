"""interview.yaml -> the questions on a kata, or one error that names file, line, question and fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from facts import all_of, has

from grader.content.catalog import CatalogError, Kata
from grader.content.questions import Question, load_questions, questions_path

KATA = "relu_f32"
ONE = """\
  - question: What
      bounds it?
    points: [bandwidth, latency]
    follow_up: And twice?
"""
GOOD = f"questions:\n{4 * ONE}"
OWN = f"katas:\n  {KATA}:\n  - {{question: Mine?, points: [a, b, c], follow_up: d}}\n"


def kata(root: Path, text: str | None) -> Kata:
    made = Kata(name=KATA, family="relu", level="easy", elem="f32", root=root)
    questions_path(made).parent.mkdir(parents=True)
    if text is not None:
        questions_path(made).write_text(text)
    return made


def test_a_katas_own_questions_come_first(tmp_path: Path) -> None:
    own, *general = load_questions(kata(tmp_path, GOOD + OWN), [KATA])
    assert own == Question("Mine?", ("a", "b", "c"), "d")
    assert general == [Question("What bounds it?", ("bandwidth", "latency"), "And twice?")] * 4


FAULTS: dict[str, tuple[str, int, list[str]]] = {  # file -> the line of the error, and what it says
    "unknown key of the file": (f"{GOOD}kata: {{}}\n", 18, ["interview: kata:", "unknown field", "mean katas"]),
    "unknown key of a question": (
        GOOD.replace("points:", "point:", 1), 4, ["questions: number 1: point:", "unknown field", "mean points"]
    ),
    "unknown kata": (f"{GOOD}katas: {{relu_f23: []}}\n", 18, ["relu_f23:", "no kata of this family", KATA]),
    "no points": (
        GOOD.replace("    points: [bandwidth, latency]\n", "", 1), 2, ["number 1: points:", "missing", "Add a line"]
    ),
    "one point": (GOOD.replace("[bandwidth, latency]", "[one]", 1), 4, ["number 1: points:", "has 1 points", "2 to 4"]),
    "a number for words": (GOOD.replace("And twice?", "3", 1), 5, ["number 1: follow_up:", "expected words", "'3'"]),
    "a point that is empty": (GOOD.replace("latency", "''", 1), 4, ["number 1: points: number 2:", "is empty"]),
    "a point that is a list": (GOOD.replace("latency", "[a]", 1), 4, ["points: number 2:", "expected words", "a list"]),
    "too few questions": ("questions: []\n", 1, ["interview: questions:", "has 0 questions", "at least 4"]),
    "no questions": (OWN, 1, ["interview: questions:", "missing"]),
    "questions twice": (f"{GOOD}questions: []\n", 18, ["'questions'", "twice", "line 1"]),
    "a field twice": (
        GOOD.replace("    follow_up", "    question: b\n    follow_up", 1), 5, ["'question'", "twice", "line 2"]
    ),
    "no YAML": ("questions: ]", 1, ["not valid YAML"]),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_questions_are_one_error_with_file_and_line(tmp_path: Path, fault: str) -> None:
    text, line, facts = FAULTS[fault]
    made = kata(tmp_path, text)
    with pytest.raises(CatalogError) as error:
        load_questions(made, [KATA])
    said = str(error.value)
    assert said.startswith(f"{questions_path(made)}:{line}: ") and has(said, *facts) and "\n" not in said


@pytest.mark.parametrize(("text", "words"), [(None, "cannot be read"), ("# nothing\n", "is empty")])
def test_a_file_with_nothing_in_it(tmp_path: Path, text: str | None, words: str) -> None:
    with pytest.raises(CatalogError, match=all_of("interview.yaml", words, "4 questions")):
        load_questions(kata(tmp_path, text))
