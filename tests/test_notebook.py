"""The magic of a notebook: a cell is graded, and an error is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from facts import has
from test_faces import make_clone

import grader
from grader.content.catalog import load_catalog


class Shell:
    """What an extension uses of IPython's shell."""

    def __init__(self) -> None:
        self.magics: dict[str, Any] = {}
        self.next = ""

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        assert kind == "line_cell"
        self.magics[name] = function

    def set_next_input(self, text: str) -> None:
        self.next = text


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(make_clone(tmp_path))
    shell = Shell()
    grader.load_ipython_extension(shell)
    return shell


def test_a_cell_is_the_file_and_its_output_the_verdict(shell: Shell, tmp_path: Path) -> None:
    kata = load_catalog(tmp_path / "clone").katas["scale_f32"]
    shell.magics["kata"]("scale_f32")
    first, _, skeleton = shell.next.partition("\n")
    assert first == "%%kata scale_f32" and "TODO(1)" in skeleton
    assert has(repr(shell.magics["kata"]("scale_f32 --device sim", skeleton)), "not started")
    passed = shell.magics["kata"]("scale_f32 --pictures", kata.solution_path.read_text())
    assert passed.passed and has(repr(passed), "scale_f32", "pass")
    assert passed._repr_html_().count("<svg") >= 2 and "32 lanes" in passed._repr_html_()
    assert kata.work_path.read_text() == kata.solution_path.read_text()
    kata.work_path.write_text(kata.solution_path.read_text() + "// mine\n")  # in an editor, meanwhile
    assert has(repr(shell.magics["kata"]("scale_f32 --device sim", skeleton)), "not started")
    (kept,) = kata.work_path.parent.glob("*.bak")
    assert kept.read_text().endswith("// mine\n")


@pytest.mark.parametrize(
    ("line", "fact"), [("scale_f33", "scale_f32"), ("relu", "6"), ("", "NAME"), ("a --no", "--no"), ("'a", "NAME")]
)
def test_an_error_is_one_line(shell: Shell, capsys: pytest.CaptureFixture[str], line: str, fact: str) -> None:
    assert shell.magics["kata"](line, "") is None
    said = capsys.readouterr().out
    assert said.startswith("kata: ") and said.count("\n") == 1 and has(said, fact)
