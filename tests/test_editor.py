"""`kata editor`: what clangd and VS Code get, and that clangd finds no error in a kata."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import passed_before
import pytest
from facts import has

from grader.cli import main
from grader.commands import editor
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog

pytestmark = passed_before.REPOSITORY

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


def _errors(file: Path, entry: dict[str, object], folder: Path) -> list[str]:
    """What clangd finds wrong in a file that it reads with the command of ``entry``."""
    (folder / editor.DATABASE).write_text(json.dumps([entry]))
    clangd = str(Path(sys.executable).with_name("clangd"))
    command = [clangd, f"--check={file}", "--check-locations=0", f"--compile-commands-dir={folder}", "--log=error"]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("E[") and "Failed to resolve" not in line]
    assert bool(errors) == bool(done.returncode), done.stderr
    return errors


@pytest.mark.parametrize("which", ["solution", "skeleton"])
def test_clangd_finds_no_error(which: str, tmp_path: Path) -> None:
    """In any kata but those of CuTe, whose headers a machine may lack.

    All files are read as one, each in a namespace, and all headers once. A file with an error there is read by itself.
    """
    katas = [kata for kata in KATAS.values() if "cutlass" not in kata.libraries]
    found = {Path(str(entry["file"])): entry for entry in editor.database(katas, ROOT, find_toolchain())}
    files = [kata.solution_path if which == "solution" else kata.skeleton_path for kata in katas]
    plain = found[KATAS["relu_f32"].solution_path]
    together = [file for file in files if _options(found[file]) == _options(plain)]
    headers = dict.fromkeys(line for file in together for line in file.read_text().splitlines() if "#include" in line)
    lines = [*headers, *(f'namespace _{at} {{\n#include "{file}"\n}}' for at, file in enumerate(together))]
    (whole := tmp_path / "whole.cu").write_text("\n".join(lines))
    errors = _errors(whole, {**plain, "file": str(whole), "arguments": [*_options(plain), str(whole)]}, tmp_path)
    suspects = {line for error in errors for line in re.findall(r"Line (\d+)", error)}
    numbered = "\n".join(lines).split("\n")
    alone = [
        file for file in files if file not in together or str(numbered.index(f'#include "{file}"') + 1) in suspects
    ]
    assert len(suspects) == len(errors) < 10 and len(together) > 300
    assert {file.name: wrong for file in alone if (wrong := _errors(file, found[file], tmp_path))} == {}


def _options(entry: dict[str, object]) -> list[str]:
    """The command without the file."""
    arguments = entry["arguments"]
    assert isinstance(arguments, list)
    return arguments[:-1]


def test_clangd_finds_an_error_inside_of_the_whole(tmp_path: Path) -> None:
    (entry,) = [
        each for each in editor.database([KATAS["relu_f32"]], ROOT, find_toolchain()) if "solutions" in each["file"]
    ]
    wrong, whole = tmp_path / "wrong.cu", tmp_path / "whole.cu"
    wrong.write_text('#include "kata.cuh"\n__global__ void kernel(float* x) { x[0] = y; }\n')
    whole.write_text(f'#include "kata.cuh"\nnamespace _0 {{\n#include "{wrong}"\n}}\n')
    (error,) = _errors(whole, {**entry, "file": str(whole), "arguments": [*_options(entry), str(whole)]}, tmp_path)
    assert has(error, "Line 3", "undeclared identifier 'y'")
