"""The nvcc with a memory gives what nvcc gives, and knows what it may not remember."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import compiler
import pytest
import read_before
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


def test_what_was_read_is_known_until_a_file_changes_comes_or_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever folder nvcc runs. The files are as the preprocessor wrote them, in part."""
    beside, made = tmp_path / "mine", tmp_path / "made"
    (beside / "sub").mkdir(parents=True)
    made.mkdir()
    header = beside / "sub" / "mine.h"
    header.write_text("1")
    time.sleep(2 * read_before.COARSE_NS / 1e9)
    rule = "kata.so : kata.cu \\\n /usr/include/stdio.h \\\n signature.h \\\n HERE/beside/sub/mine.h\n"
    entered = '# 1 "/usr/include/stdio.h" 1 3 4\n# 1 "HERE/beside/sub/mine.h" 1\n'

    def at_work(name: str, text: str, signature: str = "s") -> str | None:
        """Go there; the folder of what was made of the same."""
        (place := tmp_path / name).mkdir(exist_ok=True)
        if not (place / "beside").exists():
            (place / "beside").symlink_to(beside)
        monkeypatch.chdir(place)
        for file, words in (("kata.cu", text), ("signature.h", signature)):
            (place / file).write_text(words)
        known = read_before.place_of(str(tmp_path), "nvcc", ["nvcc", f"-I{place}", "kata.cu"])
        assert known is not None
        where.append(known)
        return read_before.found(known, "kata")

    where: list[str] = []
    assert at_work("one", "text\n") is None
    for file, words in (("d", rule), ("cpp1.ii", f"{entered}int i;\n"), ("cpp4.ii", f"{entered}int j;\n")):
        Path(f"kata.{file}").write_text(words.replace("HERE", str(tmp_path / "one")))
    read_before.note(where[-1], str(made), "kata", "kata.cu", time.time_ns())
    assert at_work("two", "text\n// a remark\n") == str(made)
    for file, words in (("d", rule), ("cpp1.ii", f"\n{entered}"), ("cpp4.ii", f"\n{entered}")):
        assert Path(f"kata.{file}").read_text() == words.replace("HERE", str(tmp_path / "two"))
    assert at_work("two", "text\n// a */ remark\n") is None and at_work("two", "other\n") is None
    assert at_work("two", "text\n", "another signature") is None
    for change, back in (
        (lambda: header.write_text("2"), lambda: header.write_text("1")),
        (lambda: header.rename(tmp_path / "away.h"), lambda: (tmp_path / "away.h").rename(header)),
        (lambda: (beside / "stdio.h").touch(), lambda: (beside / "stdio.h").unlink()),
        (lambda: (beside / "sub/more.h").touch(), lambda: (beside / "sub/more.h").unlink()),
    ):
        change()
        assert at_work("two", "text\n") is None
        back()
        assert at_work("two", "text\n") == str(made)
    monkeypatch.setenv("CPATH", str(beside))
    assert read_before.place_of(str(tmp_path), "nvcc", ["nvcc", "kata.cu"]) is None


def test_what_changes_while_it_is_read_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    began_ns = time.time_ns()
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/mine.h").write_text("1")
    for file, words in (("d", "kata.so : kata.cu beside/mine.h\n"), ("cpp1.ii", ""), ("cpp4.ii", "")):
        Path(f"kata.{file}").write_text(words)
    read_before.note(str(tmp_path / "known"), str(tmp_path), "kata", "kata.cu", began_ns)
    assert not (tmp_path / "known").exists()
    time.sleep(2 * read_before.COARSE_NS / 1e9)
    read_before.note(str(tmp_path / "known"), str(tmp_path), "kata", "kata.cu", time.time_ns())
    assert len(list((tmp_path / "known").iterdir())) == 1
