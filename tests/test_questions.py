"""interview.yaml -> the questions on a kata, or one error that names file, line, question and fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from facts import all_of, has

from grader.content.catalog import CatalogError, Kata
from grader.content.questions import (
    Question,
    load_interview,
    load_questions,
    pool_problems,
    questions_path,
    shown,
)

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


POOL = f"""\
pool:
  {KATA}:
    minutes: 20
    opening: {{shapes: a, alignment: b, bound: c, bytes: d, operations: e}}
    follow_ups:
      - {{ask: a, weak: b, good: c, strong: d}}
      - {{ask: a, weak: b, good: c, strong: d}}
"""
READING = f"""\
readings:
  - kind: kernel
    kata: {KATA}
    replace: x + 1
    by: x
    questions: [{{question: a, points: [b, c], follow_up: d}}]
"""


def test_the_pool_needs_a_kernel_of_some_length(tmp_path: Path) -> None:
    made = kata(tmp_path, GOOD + POOL)
    assert load_interview(made, [KATA]).pool[KATA].minutes == 20
    made.solution_path.parent.mkdir(parents=True)
    for lines, problems in ((20, 0), (19, 1)):
        body = "\n".join(["    a += 1;  // one"] * (lines - 2))
        made.solution_path.write_text(f"int host = 1;\n\n__global__ void k() {{\n{body}\n}}\n\nint more;\n")
        assert len(pool_problems(made, [KATA])) == problems


def test_a_bug_to_read_must_fit_its_solution(tmp_path: Path) -> None:
    made = kata(tmp_path, GOOD + READING)
    (reading,) = load_interview(made, [KATA]).readings
    made.solution_path.parent.mkdir(parents=True)
    made.solution_path.write_text(f"{KATA}_kernel: x + 1\n")
    assert shown(reading, made) == "operation_kernel: x"
    made.solution_path.write_text("x + 1; x + 1;\n")
    with pytest.raises(CatalogError, match=all_of("x + 1", "2 times", "Correct `replace`")):
        pool_problems(made, [KATA])


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
    "one follow-up": (GOOD + POOL.rpartition("      - ")[0], 23, ["follow_ups", "has 1 follow-ups", "at least 2"]),
    "no bound": (GOOD + POOL.replace(" bound: c,", ""), 21, ["opening: bound:", "missing"]),
    "a kata of elsewhere": (GOOD + POOL.replace(KATA, "elu_f32"), 19, ["elu_f32:", "no kata of this family"]),
    "a profile without a text": (GOOD + READING.replace("kernel", "profile"), 19, ["number 1", "`show`"]),
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
