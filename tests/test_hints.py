"""hints.yaml -> a kata's three hints, or one error that names file, kata and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "read"),
        ("relu_f32: [a, b]\n", "list of 3"),
        ("relu_f32: [a, b, 3]\n", "list of 3"),
        ("other: [a, b, c]\n", "list of 3"),
        ("- a\n", "list of 3"),
        ("relu_f32: [a, b\n", "YAML"),
    ],
)
def test_bad_hints_are_one_error_with_the_file(tmp_path: Path, text: str | None, words: str) -> None:
    with pytest.raises(CatalogError, match=words) as error:
        load_hints(kata(tmp_path, text))
    assert "hints.yaml" in str(error.value) and "\n" not in str(error.value)
