"""What a change can have touched: the katas whose files or entries differ, and all of them only where that must be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_faces import make_clone

from grader.content.catalog import load_catalog
from grader.maintain.changes import ChangesError, Touched, touched

ROOT = Path(__file__).resolve().parent.parent
ENTRY = """
  relu_f32_twin:
    level: easy
    elem: f32
"""


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit: the katas and the wrong kernels of relu."""
    clone = make_clone(tmp_path_factory.mktemp("changes"))
    bugs = clone / "tests" / "wrong_kernels" / "relu.yaml"
    bugs.parent.mkdir(parents=True)
    bugs.write_bytes((ROOT / "tests" / "wrong_kernels" / "relu.yaml").read_bytes())
    git(clone, "init", "-q")
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "all")
    return clone


@pytest.fixture
def clone(committed: Path) -> Path:
    """The same, without what an earlier test changed."""
    git(committed, "reset", "-q", "--hard")
    git(committed, "clean", "-qfd")
    return committed


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def found(clone: Path) -> Touched:
    return touched(load_catalog(clone), None)


def test_nothing_changed(clone: Path) -> None:
    nothing = found(clone)
    assert not nothing.everything and not nothing.katas and not nothing.why


def test_a_solution_touches_its_kata(clone: Path) -> None:
    change(clone / "solutions" / "relu" / "relu_f32.cu", "threadIdx.x", "threadIdx.x + 0")
    assert found(clone).katas == ("relu_f32",)


def test_a_spec_touches_its_family(clone: Path) -> None:
    change(clone / "exercises" / "relu" / "test_relu.py", "SPEC", "SPEC ")
    catalog = load_catalog(clone)
    assert found(clone).katas == tuple(kata.name for kata in catalog.by_family["relu"])


def test_an_entry_touches_its_kata(clone: Path) -> None:
    change(clone / "difficulty.yaml", "  relu_f16:\n    level: easy", "  relu_f16:\n    level: medium")
    assert found(clone).katas == ("relu_f16",)


def test_a_new_kata_is_the_only_one_touched(clone: Path) -> None:
    change(clone / "difficulty.yaml", "\n  relu_f16:", f"{ENTRY}  relu_f16:")
    for folder in ("exercises", "solutions"):
        text = (clone / folder / "relu" / "relu_f32.cu").read_text()
        (clone / folder / "relu" / "relu_f32_twin.cu").write_text(text.replace("relu_f32", "relu_f32_twin"))
    assert found(clone).katas == ("relu_f32_twin",)


def test_a_bug_touches_its_kata(clone: Path) -> None:
    change(clone / "tests" / "wrong_kernels" / "relu.yaml", "x * 0 instead of 0", "x * 0 for 0")
    (kata,) = found(clone).katas
    assert kata in {kata.name for kata in load_catalog(clone).by_family["relu"]}


def test_a_file_of_bugs_that_was_not_there_before(clone: Path) -> None:
    bugs = clone / "tests" / "wrong_kernels" / "gelu.yaml"
    bugs.write_bytes((ROOT / "tests" / "wrong_kernels" / "gelu.yaml").read_bytes())
    touches = found(clone)
    assert not touches.everything and set(touches.katas) <= {k.name for k in load_catalog(clone).by_family["gelu"]}
    assert touches.katas


def test_what_cannot_be_read_is_everything(clone: Path) -> None:
    (clone / "tests" / "wrong_kernels" / "relu.yaml").write_text("{")
    assert found(clone).everything


def test_a_commit_that_is_not_there_is_said(clone: Path) -> None:
    with pytest.raises(ChangesError, match="nowhere"):
        touched(load_catalog(clone), "nowhere")
