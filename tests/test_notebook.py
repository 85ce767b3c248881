"""The magic of a notebook: a cell is graded, and an error is one line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import absent
from facts import has
from patience import PATIENCE_S
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
    kata.work_path.parent.mkdir(parents=True)
    kata.work_path.write_bytes(b"// \xfc\n")
    shell.magics["kata"]("scale_f32")
    assert shell.next == "%%kata scale_f32\n// \ufffd\n"
    kata.work_path.unlink()
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
    ("line", "fact"),
    [
        ("scale_f33", "scale_f32"),
        ("relu", "6"),
        ("", "NAME"),
        ("a --no", "--no"),
        ("'a", "NAME"),
        ("relu_f32 --pictures --device gpu", "gpu"),
    ],
)
def test_an_error_is_one_line(shell: Shell, capsys: pytest.CaptureFixture[str], line: str, fact: str) -> None:
    assert shell.magics["kata"](line, "") is None
    said = capsys.readouterr().out
    assert said.startswith("kata: ") and said.count("\n") == 1 and has(said, fact)


@pytest.mark.parametrize("torch", [True, False])
def test_load_says_in_one_line_what_is_missing(
    shell: Shell, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, torch: bool
) -> None:
    if torch:
        pytest.importorskip("torch")
    else:
        monkeypatch.setitem(sys.modules, "torch", None)
        monkeypatch.delitem(sys.modules, "grader.notebook.launcher", raising=False)
        monkeypatch.delattr("grader.notebook.launcher", raising=False)
    ipython = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    ipython.run_cell("from grader import load\nload('sgemm_naive_f33')")
    said = capfd.readouterr()
    fact = "sgemm_naive_f32" if torch else "make torch"
    assert (said.out + said.err).count("\n") == 1 and has(said.out + said.err, fact)


@pytest.mark.parametrize(
    ("address", "facts"), [("", ("Set REPOSITORY",)), ("/nowhere/katas", ("git could not clone", "/nowhere/katas"))]
)
def test_the_setup_outside_of_a_clone_asks_for_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, facts: tuple[str, ...]
) -> None:
    """As on a hosted machine, where the notebook is opened without its repository."""
    book = json.loads((Path(grader.__file__).parents[1] / "docs/notebook.ipynb").read_text())
    (setup,) = ("".join(cell["source"]) for cell in book["cells"] if cell["id"] == "setup")
    code, _, magic = setup.replace('REPOSITORY = ""', f'REPOSITORY = "{address}"').rpartition("\n")
    assert magic == "%load_ext grader"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as raised:
        exec(code, {})
    assert has(str(raised.value), *facts) and list(tmp_path.iterdir()) == []


def test_the_notebook_runs_from_start_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        import nbformat
        from nbclient import NotebookClient
    except ImportError:
        absent("nbclient is not installed; `pip install -e .[dev]`")
    root = Path(__file__).resolve().parent.parent
    clone = make_clone(tmp_path)
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    book = nbformat.read(root / "docs/notebook.ipynb", as_version=4)
    place = {"metadata": {"path": str(clone)}}
    NotebookClient(book, timeout=PATIENCE_S, kernel_name="python3", resources=place).execute()
    outputs = {cell.id: cell.outputs for cell in book.cells if cell.cell_type == "code"}
    (wrong,), (passes,) = ([item["data"] for item in outputs[cell] if "data" in item] for cell in ("wrong", "passes"))
    assert has(wrong["text/plain"], "scale_f32", "out of bounds", "x[32]")
    assert has(passes["text/plain"], "scale_f32", "pass") and passes["text/html"].count("<svg") >= 2
    assert not outputs["setup"]  # nothing to say where nothing is to install
    assert has(outputs["list"][0]["text"], "elementwise_f32")
