"""hints.yaml -> a kata's three hints, or one error that names file, line, kata and fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from facts import all_of, has

from grader.content.catalog import CatalogError, Kata
from grader.content.hints import load_hints

GOOD = "relu_f32:\n  - Look\n    here.\n  - Then there.\n  - Write it.\n"


def kata(root: Path, text: str | None) -> Kata:
    made = Kata(name="relu_f32", family="relu", level="easy", elem="f32", root=root)
    made.hints_path.parent.mkdir(parents=True)
    if text is not None:
        made.hints_path.write_text(text)
    return made


def test_hints_in_order_each_on_one_line(tmp_path: Path) -> None:
    assert load_hints(kata(tmp_path, GOOD)) == ("Look here.", "Then there.", "Write it.")


FAULTS: dict[str, tuple[str, int, list[str]]] = {  # file -> the line of the error, and what it says
    "a hint too few": ("relu_f32: [a, b]\n", 1, ["relu_f32:", "has 2 hints", "Write 3"]),
    "a number": ("relu_f32:\n  - a\n  - b\n  - 3\n", 4, ["relu_f32: number 3:", "expected words", "'3'"]),
    "an empty hint": ("relu_f32: [a, '', c]\n", 1, ["relu_f32: number 2:", "is empty"]),
    "no list": ("relu_f32: a\n", 1, ["relu_f32:", "expected a list", "'a'"]),
    "no mapping": ("# hints\n- a\n", 2, ["expected `key: value` lines", "a list"]),
    "no entry": ("relu_f16: [a, b, c]\n", 1, ["relu_f32:", "missing", "3 hints"]),
    "an unknown kata": (f"{GOOD}relu_f23: [a, b, c]\n", 6, ["relu_f23:", "no kata of this family", "relu_f32"]),
    "a kata twice": (f"{GOOD}relu_f32: [a, b, c]\n", 6, ["'relu_f32'", "twice", "line 1", "Remove or rename"]),
    "no YAML": ("relu_f32: [a, b\n", 2, ["not valid YAML"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_hints_are_one_error_with_file_and_line(tmp_path: Path, fault: str) -> None:
    text, line, facts = FAULTS[fault]
    made = kata(tmp_path, text)
    with pytest.raises(CatalogError) as error:
        load_hints(made, ["relu_f32", "relu_f16"])
    said = str(error.value)
    assert said.startswith(f"{made.hints_path}:{line}: ") and has(said, *facts) and "\n" not in said


@pytest.mark.parametrize(("text", "words"), [(None, "cannot be read"), ("# nothing\n", "is empty")])
def test_a_file_with_nothing_in_it(tmp_path: Path, text: str | None, words: str) -> None:
    with pytest.raises(CatalogError, match=all_of("hints.yaml", words)):
        load_hints(kata(tmp_path, text))
