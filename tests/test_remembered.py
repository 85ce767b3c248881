"""The nvcc with a memory gives what nvcc gives, and knows what it may not remember."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import compiler
import pytest
import remembered

from grader.compile.build import Build, CompileFailure, Request, Target, build, exported_names
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec

ROOT = Path(__file__).resolve().parent.parent
KATA = load_catalog(ROOT).katas["relu_f32"]
TEXT = KATA.solution_path.read_text()
COMPARES = "< 0.0f"
FIRST_LINE = TEXT.partition("\n")[0]  # a comment


def request_for(source: Path) -> Request:
    return Request(KATA, load_spec(KATA), source_of(source), Target("sim", "sm_90a"))


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A text -> its build, and whether the compilers ran for it; each time in an empty cache, all with one store."""
    monkeypatch.setattr(compiler, "STORE", tmp_path / "store")
    toolchain = replace(find_toolchain(), nvcc=compiler.remembering_nvcc(tmp_path))
    place, times = tmp_path / "mine" / "relu_f32.cu", iter(range(99))
    place.parent.mkdir()

    def made(text: str) -> tuple[Build | CompileFailure, bool]:
        place.write_text(text)
        monkeypatch.setenv("KATA_CACHE", str(tmp_path / f"cache-{next(times)}"))
        before = stored(tmp_path)
        built = build(request_for(place), toolchain)
        return built, stored(tmp_path) != before

    return made


def stored(folder: Path) -> int:
    return len(list((folder / "store").glob("*/kata.so")))


def code(built: Build | CompileFailure) -> list[str]:
    """The instructions, which know nothing of the folder."""
    assert isinstance(built, Build), built
    return [line for line in built.ptx.read_text().splitlines() if line.startswith("\t") and "\t.file" not in line]


def test_each_text_is_compiled_once(compiled, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    real = build(request_for(KATA.solution_path), find_toolchain())
    first, ran = compiled(TEXT)
    (tmp_path / "mine" / "empty.h").write_text("// no code\n")
    again, ran_again = compiled(TEXT.replace(FIRST_LINE, '#include "empty.h"') + "// another remark\n")
    other, ran_for_other = compiled(TEXT.replace(COMPARES, COMPARES.replace("<", ">")))
    assert (ran, ran_again, ran_for_other) == (True, False, True)
    assert first.folder != again.folder and code(real) == code(first) == code(again) != code(other)
    assert exported_names(again.library) == exported_names(first.library) == exported_names(real.library)
    header = tmp_path / "mine" / "mine.h"
    text = TEXT.replace(COMPARES, COMPARES.replace("<", "LESS"))
    text = text.replace('#include "kata.cuh"\n', '#include "kata.cuh"\n#include "mine.h"\n')
    for sign, is_new in (("<", True), (">=", True), ("<", False)):
        header.write_text(f"#define LESS {sign}\n")
        built, ran = compiled(text)
        assert isinstance(built, Build) and ran is is_new


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'# 1 "a.h" 1\n\n# 2 "k" 2\nint i;', b'# 1 "k"\n\nint i;\n\n', True),
        (b'# 1 "k"\nint i;\nint j;', b'# 1 "k"\nint i;\n# 2 "k"\nint j;', True),
        (b'# 1 "k"\nint i;\nint j;', b'# 1 "k"\nint i;\n\nint j;', False),
        (b'# 1 "k"\nint i;', b'# 2 "k"\nint i;', False),
        (b'# 1 "k"\nint i;', b'# 1 "a.h" 1\nint i;', False),
        (b'# 1 "a.h" 1\nint i;', b'# 1 "a.h" 1 3\nint i;', False),
        (b'# 1 "k"\nint i;', b'# 1 "k"\nint  i;', False),
    ],
)
def test_the_same_code_in_the_same_place_is_the_same_text(one: bytes, other: bytes, same: bool) -> None:
    assert (remembered._code(one) == remembered._code(other)) is same


def test_a_file_of_the_assembler_and_an_error_are_nvccs(compiled, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "data").write_text("1")
    reads = f'asm(".section .rodata\\n.inc" "bin \\"{tmp_path}/data\\"\\n.text\\n");\n'
    built, ran = compiled(TEXT.replace("KATA_EXPORT", f"{reads}KATA_EXPORT", 1))
    assert isinstance(built, Build) and not ran  # into the store
    failed, ran = compiled(TEXT.replace(COMPARES, "< nonsense"))
    assert isinstance(failed, CompileFailure) and failed.line is not None and not ran
