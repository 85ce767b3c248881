"""`kata editor`: what clangd and VS Code get, and that clangd finds no error in a kata."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from facts import has

from grader.cli import main
from grader.commands import editor
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog

ROOT = Path(__file__).parents[1]
KATAS = load_catalog(ROOT).katas


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of katas in which a learner has started one; the working directory."""
    for name in ("exercises", "solutions", "difficulty.yaml", "grader"):
        (tmp_path / name).symlink_to(ROOT / name)
    started = tmp_path / "work" / "relu" / "relu_f32.cu"
    started.parent.mkdir(parents=True)
    started.write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_file_has_its_command(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["editor", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out).values()) == {editor.WRITTEN}
    entries = {Path(entry["file"]): entry["arguments"] for entry in json.loads((course / editor.DATABASE).read_text())}
    assert len(entries) == 2 * len(KATAS) + 1 and course / "work" / "relu" / "relu_f32.cu" in entries
    for file, arguments in entries.items():
        assert file.is_file() and arguments[-1] == str(file)
        folders = [arguments[at + 1] for at, word in enumerate(arguments) if word in ("-I", "-isystem", "-idirafter")]
        assert all(Path(folder).is_dir() for folder in folders)
        assert any(Path(folder, "kata.cuh").is_file() for folder in folders)
    cublas = entries[course / KATAS["hgemm_mma_cublas_nn"].skeleton_path.relative_to(ROOT)]
    assert any(Path(word, "cublas_v2.h").is_file() for word in cublas)
    assert main(["editor", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out).values()) == {editor.CURRENT}


def test_files_of_others_stay_as_they_are(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = course / ".vscode" / "settings.json"
    own.parent.mkdir()
    own.write_text('{ // mine\n  "editor.fontSize": 20 }')
    assert main(["editor"]) == 0
    said = capsys.readouterr().out
    assert own.read_text().startswith("{ // mine") and has(said, editor.KEPT, "python.testing.pytestEnabled")
    assert json.loads((own.parent / "tasks.json").read_text()) == editor.TASKS
    database = course / editor.DATABASE
    database.write_text('[{"file": "a.cpp"}]')
    assert main(["editor"]) == 2 and database.read_text() == '[{"file": "a.cpp"}]'
    assert has(capsys.readouterr().err, editor.DATABASE, "Move it away")


def _last_of_each_family() -> list[str]:
    """Of each family the last kata that needs no library: clangd then has all headers."""
    return [
        [name for name, kata in KATAS.items() if kata.family == family and not kata.libraries][-1]
        for family in dict.fromkeys(kata.family for kata in KATAS.values())
    ]


@pytest.mark.parametrize("name", _last_of_each_family())
def test_clangd_finds_no_error(name: str, tmp_path: Path) -> None:
    file = KATAS[name].solution_path
    found = editor.database([KATAS[name]], ROOT, find_toolchain())
    (tmp_path / editor.DATABASE).write_text(json.dumps(found))
    clangd = Path(sys.executable).with_name("clangd")
    command = [clangd, f"--check={file}", "--check-locations=0", f"--compile-commands-dir={tmp_path}", "--log=error"]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("E[") and "Failed to resolve" not in line]
    assert errors == []
    assert done.returncode == 0
