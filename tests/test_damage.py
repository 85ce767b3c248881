"""What is kept in the cache is never stale and never half: whatever became of it, the verdict is that of the file."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.compile.build import Build, Request, Target, build_all
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.devices.sim import engine, engine_library
from grader.grade import Options, grade
from grader.storage import entries, manifest
from grader.storage.cache import cache_folder
from grader.storage.entries import Made
from grader.storage.manifest import Damaged, Hashes
from grader.verdict import Kind

ROOT = Path(__file__).resolve().parent.parent
KATA = load_catalog(ROOT).katas["relu_f32"]
RIGHT = KATA.solution_path.read_text()
OPTIONS = Options(device="sim", last_failure=False, diagnose=False)
COMPARES = "< 0.0f"
KEEP, BREAK = "", "#define LESS >\n"  # what a header makes of the right file
OBJECTS = cache_folder() / "objects"  # of the simulator; a test has a cache of its own
LESS = "#ifndef LESS\n#define LESS <\n#endif\n"
assert RIGHT.count(COMPARES) == 1

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, module_remembers: None) -> Path:
    """A cache with the simulator and one build, as it was left."""
    folder = tmp_path_factory.mktemp("whole") / "cache"
    library = engine_library(cache_folder())
    shutil.copytree(library.parent, folder / library.parent.parent.name / library.parent.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATA_CACHE", str(folder))
        assert runs_of_nvcc(KATA.solution_path) == 1
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that cache."""
    copy = tmp_path / "cache"
    shutil.copytree(whole, copy)
    monkeypatch.setenv("KATA_CACHE", str(copy))
    return copy


def built(source: Path) -> tuple[Build, int]:
    """The build, and how many files nvcc compiled for it."""
    said: list[str] = []
    request = Request(KATA, load_spec(KATA), source_of(source), Target("sim", "sm_90a"))
    made = build_all([request], find_toolchain(), tell=said.append)[0]
    assert isinstance(made, Build), made
    return made, len(said)


def runs_of_nvcc(source: Path) -> int:
    return built(source)[1]


def computed(source: Path) -> tuple[str, int]:
    """The comparison in the kernel, "lt" where it is right; and how many files nvcc compiled."""
    made, runs = built(source)
    manifest.check(made.folder, Hashes())
    [comparison] = re.findall(r"setp\.(\w+)\.f32", made.ptx.read_text())
    return comparison, runs


def verdict(source: Path) -> Kind:
    return grade(KATA, OPTIONS, source=source).verdict.kind


def only_entry(folder: Path) -> Path:
    [entry] = (folder / "builds").glob("*/*")
    return entry


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda entry: os.truncate(entry / name, size)


def gone(name: str) -> Callable[[Path], None]:
    return lambda entry: (entry / name).unlink()


def flipped(entry: Path) -> None:
    library = entry / "kata.so"
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 0x10
    library.write_bytes(data)


def of_another_version(entry: Path) -> None:
    """Whole, and not for this grader."""
    was, version = manifest.NAME, manifest.VERSION
    (entry / was).unlink()
    manifest.VERSION = version + 1
    try:
        manifest.seal(entry, {}, Hashes())
    finally:
        manifest.VERSION = version


def changed_manifest(entry: Path) -> None:
    """Still JSON, and every file in it holds."""
    path = entry / manifest.NAME
    path.write_text(path.read_text().replace('"folders": ["beside"]', '"folders": []'))


def a_file_for_a_folder(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


def a_link_for_a_library(entry: Path) -> None:
    (entry / "kata.so").rename(entry.parent.parent / "elsewhere.so")
    (entry / "kata.so").symlink_to(entry.parent.parent / "elsewhere.so")


def a_pipe_for_a_library(entry: Path) -> None:
    (entry / "kata.so").unlink()
    os.mkfifo(entry / "kata.so")


FILES = ("kata.cu", "kata.ptx", "kata.so", "log.txt", manifest.NAME)
DAMAGES: dict[str, Callable[[Path], None]] = {
    "library cut": cut("kata.so", 1000),
    "library empty": cut("kata.so", 0),
    "library gone": gone("kata.so"),
    "library flipped": flipped,
    "library a link": a_link_for_a_library,
    "library a pipe": a_pipe_for_a_library,
    "PTX cut": cut("kata.ptx", 700),
    "PTX gone": gone("kata.ptx"),
    "source gone": gone("kata.cu"),
    "log gone": gone("log.txt"),
    "manifest cut": cut(manifest.NAME, 100),
    "manifest empty": cut(manifest.NAME, 0),
    "manifest gone": gone(manifest.NAME),
    "manifest changed": changed_manifest,
    "manifest of another version": of_another_version,
    "entry a file": a_file_for_a_folder,
    "place a file": lambda entry: a_file_for_a_folder(entry.parent),
    "all builds a file": lambda entry: a_file_for_a_folder(entry.parent.parent),
    "place empty": lambda entry: shutil.rmtree(entry),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_build_is_made_anew(folder: Path, name: str) -> None:
    before = only_entry(folder)
    DAMAGES[name](before)
    if name in ("library cut", "library empty", "library flipped", "PTX cut", "PTX gone"):
        assert verdict(KATA.solution_path) is Kind.PASS
    else:
        assert computed(KATA.solution_path) == ("lt", 1)
    assert computed(KATA.solution_path) == ("lt", 0)
    entry = only_entry(folder)
    assert entry != before and sorted(path.name for path in entry.iterdir()) == sorted(FILES)


def test_a_whole_build_is_not_made_anew(folder: Path) -> None:
    before = only_entry(folder)
    assert runs_of_nvcc(KATA.solution_path) == 0 and only_entry(folder) == before


def obey_permissions() -> None:
    """Root may read and write everything; not so without these two capabilities, also in what this process starts."""
    drop_from_the_bounding_set, dac_override, dac_read_search = 24, 1, 2
    libc, version = ctypes.CDLL(None, use_errno=True), 0x20080522
    for capability in (dac_override, dac_read_search):
        libc.prctl(drop_from_the_bounding_set, capability, 0, 0, 0)
    header, sets = (ctypes.c_uint32 * 2)(version, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    for place in (0, 1):  # what it has, and what it may take back
        sets[place] &= ~(1 << dac_override | 1 << dac_read_search)
    assert libc.capset(header, sets) == 0


def built_without_privileges(*, may_chmod: bool = True) -> list[str]:
    """In a process of its own: how many files nvcc compiled for the build, and whether it is one for this once."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            obey_permissions()
            if not may_chmod:
                Path.chmod = lambda *_: None  # type: ignore[method-assign,assignment]
            made, runs = built(KATA.solution_path)
            manifest.check(made.folder, Hashes())
            os.write(writing, f"{runs} {'staging' in str(made.folder)}".encode())
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as said:
        words = said.read()
    os.waitpid(child, 0)
    assert "Traceback" not in words, words
    return words.split()


@pytest.mark.parametrize("place", ["entry", "key", "builds", "library"])
def test_what_may_not_be_read_is_made_anew(folder: Path, place: str) -> None:
    entry = only_entry(folder)
    path = {"entry": entry, "key": entry.parent, "builds": entry.parent.parent, "library": entry / "kata.so"}[place]
    path.chmod(0)
    said = [built_without_privileges() for _ in range(2)]
    if place == "builds":  # what is below is whole: it may be of use again
        assert said[1] == ["0", "False"]
    else:
        assert said == [["1", "False"], ["0", "False"]] and only_entry(folder) != entry


def test_where_nothing_can_be_kept_a_build_is_made_for_this_once(folder: Path) -> None:
    """A place of another user's, as it is in a cache that several share."""
    [key] = (folder / "builds").iterdir()
    shutil.rmtree(key)
    (folder / "builds").chmod(0o555)
    assert built_without_privileges(may_chmod=False) == ["1", "True"]
    (folder / "builds").chmod(0o755)
    assert runs_of_nvcc(KATA.solution_path) == 1
    assert list((folder / "staging").iterdir()) == []  # swept, since its process has ended


# -- what nvcc read

INCLUDES = {
    "in quotes": '#include "mine.h"\n',
    "angled": "#include <mine.h>\n",
    "by a macro": '#define FILE_OF_MINE "mine.h"\n#include FILE_OF_MINE\n',
    "by a digraph": '%:include "mine.h"\n',
    "after a comment": '/* */ #include "mine.h"\n',
    "over two lines": '#inc\\\nlude "mine.h"\n',
    "for the kernel alone": "#ifdef __CUDA_ARCH__\n#include <mine.h>\n#endif\n",
    "for one architecture": "#if __CUDA_ARCH__ == 900\n#include <mine.h>\n#endif\n",
    "through another": '#include "sub/other.h"\n',
    "asked for": '#if __has_include("mine.h")\n#include "mine.h"\n#endif\n',
}


def with_header(folder: Path, includes: str) -> Path:
    """The right file, which includes mine.h beside it. However it does, its code is in the same lines: the nvcc with a
    memory compiles it once."""
    includes += "\n" * (4 - includes.count("\n"))
    folder.mkdir(exist_ok=True)
    (folder / "sub").mkdir()
    (folder / "sub" / "other.h").write_text('#include "../mine.h"\n')
    source = folder / "relu_f32.cu"
    text = RIGHT.replace('#include "kata.cuh"\n', f'#include "kata.cuh"\n{includes}{LESS}')
    source.write_text(text.replace(COMPARES, COMPARES.replace("<", "LESS")))
    return source


def test_a_header_that_changes_is_seen(folder: Path, tmp_path: Path) -> None:
    """However it is included: the file has a header for each spelling, and one of them changes at a time."""
    names = {spelling: f"mine{number}.h" for number, spelling in enumerate(INCLUDES)}
    words = [text.replace("mine.h", names[spelling]) for spelling, text in INCLUDES.items()]
    source = with_header(tmp_path / "mine", "".join(words))
    (source.parent / "sub" / "other.h").write_text(f'#include "../{names["through another"]}"\n')
    for name in names.values():
        settle(source.parent / name, KEEP)
    assert computed(source) == ("lt", 1)
    for spelling, name in names.items():
        for text, wanted in ((BREAK, ("gt", 1)), (KEEP, ("lt", 0)), (BREAK, ("gt", 0)), (KEEP, ("lt", 0))):
            settle(source.parent / name, text)
            assert computed(source) == wanted, spelling


def test_the_verdict_is_that_of_todays_header(folder: Path, tmp_path: Path) -> None:
    source = with_header(tmp_path / "mine", INCLUDES["angled"])
    for text, kind in ((BREAK, Kind.WRONG_ANSWER), (KEEP, Kind.PASS)):
        settle(source.parent / "mine.h", text)
        assert verdict(source) is kind


def settle(path: Path, text: str) -> None:
    """Write a file, and return when the next write of any file is later."""
    path.write_text(text)
    probe = path.parent.parent / "probe"
    probe.touch()
    while probe.stat().st_mtime_ns <= path.stat().st_ctime_ns:
        probe.touch()


APPEARS = {
    "where it was asked for": (INCLUDES["asked for"], "mine.h", None),
    "where it is found first": ("#include <cfloat>\n", "cfloat", None),
    "before one of its own": ('#include "sub/first.h"\n', "sub/second.h", "second.h"),
}


@pytest.mark.parametrize(("includes", "name", "later"), APPEARS.values(), ids=APPEARS)
def test_a_header_that_appears_is_seen(
    folder: Path, tmp_path: Path, includes: str, name: str, later: str | None
) -> None:
    source = with_header(tmp_path / "mine", includes)
    (source.parent / "sub" / "first.h").write_text('#include "second.h"\n')
    if later is not None:
        settle(source.parent / later, KEEP)
    settle(source.parent / "sub" / "other.h", KEEP)
    assert [computed(source) for _ in range(2)] == [("lt", 1), ("lt", 0)]
    settle(source.parent / name, BREAK)
    assert [computed(source) for _ in range(2)] == [("gt", 1), ("gt", 0)]
    (source.parent / name).unlink()
    assert computed(source) == ("lt", 0)


def test_the_same_file_elsewhere_has_the_headers_that_are_there(folder: Path, tmp_path: Path) -> None:
    sources = [with_header(tmp_path / name, INCLUDES["angled"]) for name in ("ann", "bob", "eve")]
    for source, text in zip(sources, (KEEP, BREAK, KEEP), strict=True):
        settle(source.parent / "mine.h", text)
    said: list[str] = []
    requests = [Request(KATA, load_spec(KATA), source_of(source), Target("sim", "sm_90a")) for source in sources]
    made = build_all(requests, find_toolchain(), tell=said.append)
    assert len(said) == 2 and all(isinstance(one, Build) for one in made)
    assert [computed(source) for source in sources] == [("lt", 0), ("gt", 0), ("lt", 0)]


ASSEMBLED = """
asm(".section .rodata\\n.globl factor\\nfactor: INCBIN\\n.text\\n");
extern "C" __attribute__((visibility("hidden"))) const char factor;
"""
BINARY = {
    "plain": (r".incbin \"FILE\"", True),
    "in pieces": (r'.inc" "bin \"" "FILE\"', True),
    "by the assembler's macro": (r"\n.macro put x y\n.\\x\\y \"FILE\"\n.endm\nput inc bin", False),
}


@pytest.mark.parametrize(("words", "kept"), BINARY.values(), ids=BINARY)
def test_a_binary_file_that_changes_is_seen(folder: Path, tmp_path: Path, words: str, kept: bool) -> None:
    """Where it is not known that a file is read, the build is not kept."""
    (tmp_path / "mine").mkdir()
    data, source = tmp_path / "mine" / "factor.bin", tmp_path / "mine" / "relu_f32.cu"
    included = ASSEMBLED.replace("INCBIN", words).replace("FILE", str(data))
    text = RIGHT.replace("KATA_EXPORT", f"{included}KATA_EXPORT", 1)
    source.write_text(text.replace("    if (n == 0) return;", "    if (n == 0 || factor == 'n') return;"))
    assert source.read_text() != text
    for factor in ("no factor", "the factor"):
        settle(data, factor)
        build, runs = built(source)
        assert runs == 1 and factor.encode() in build.library.read_bytes()
    assert runs_of_nvcc(source) == (0 if kept else 1)


def test_a_name_that_a_macro_asks_for_keeps_no_build(folder: Path, tmp_path: Path) -> None:
    asked = '#define NAME "mine.h"\n#if __has_include(NAME)\n#include NAME\n#endif\n'
    source = with_header(tmp_path / "mine", asked)
    before = set((folder / "builds").iterdir())
    assert [computed(source) for _ in range(2)] == [("lt", 1)] * 2
    (source.parent / "mine.h").write_text(BREAK)
    assert computed(source) == ("gt", 1)
    assert set((folder / "builds").iterdir()) == before


@pytest.mark.parametrize("spelling", ["in quotes", "asked for"])
def test_a_header_that_changes_while_nvcc_runs_keeps_no_build(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    """What nvcc read, or did not find, was not what is there when it has ended."""
    source = with_header(tmp_path / "mine", INCLUDES[spelling])
    header = source.parent / "mine.h"
    if spelling == "in quotes":
        settle(header, KEEP)
    program = tmp_path / "nvcc"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *--dryrun*) exit 1 ;; esac\n'  # so that all of the work is its own
        f'{find_toolchain().nvcc} "$@" || exit\nif [ -e kata.so ]; then echo "{BREAK}" > {header}; fi\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("KATA_NVCC", str(program))
    find_toolchain.cache_clear()
    try:
        assert computed(source) == ("lt", 1)
        assert computed(source) == ("gt", 1), "nothing was kept under the new header's content"
    finally:
        monkeypatch.undo()
        find_toolchain.cache_clear()


def test_a_header_by_the_environment_that_changes_is_seen(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = tmp_path / "headers"
    headers.mkdir()
    settle(headers / "given.h", KEEP)
    monkeypatch.setenv("CPATH", str(headers))
    source = with_header(tmp_path / "mine", "#include <given.h>\n")
    assert [computed(source) for _ in range(2)] == [("lt", 1), ("lt", 0)]
    settle(headers / "given.h", BREAK)
    assert computed(source) == ("gt", 1)


def test_a_header_that_grows_to_40_gb_is_not_read(folder: Path, tmp_path: Path) -> None:
    source = with_header(tmp_path / "mine", INCLUDES["in quotes"])
    header = source.parent / "mine.h"
    settle(header, KEEP)
    build, _ = built(source)
    os.truncate(header, 40 << 30)
    hashes = Hashes()
    read = manifest.about(build.folder)["files"]["beside/mine.h"]
    assert not hashes.same(header, *read)
    assert verdict(source) is Kind.DOES_NOT_COMPILE


def test_a_solution_that_another_clone_may_read_is_refused_here(folder: Path, tmp_path: Path) -> None:
    """The same text and the same header, in a place where it is one of the solutions."""
    found = []
    for name in ("one", "two"):
        place = tmp_path / name
        (place / "solutions").mkdir(parents=True)
        (place / "hidden").mkdir()
        source = with_header(place / "mine", "#include <../solutions/given.h>\n")
        settle(place / "solutions" / "given.h", KEEP)
        kata = KATA if name == "one" else clone_of(place)
        found.append(grade(kata, OPTIONS, source=source).verdict.kind)
    assert found == [Kind.PASS, Kind.NOT_ALLOWED]


def clone_of(root: Path) -> object:
    shutil.copytree(ROOT / "exercises" / KATA.family, root / "exercises" / KATA.family)
    shutil.copytree(ROOT / "solutions" / KATA.family, root / "solutions" / KATA.family)
    shutil.copy(ROOT / "difficulty.yaml", root)
    from dataclasses import replace

    return replace(KATA, root=root)


# -- the simulator


@pytest.fixture
def small_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], tuple[Path, int]]]:
    """An engine of three functions: builds it, and says how many sources were compiled."""
    sources = tmp_path / "sources"
    sources.mkdir()
    for name in ("one", "two", "three"):
        (sources / f"{name}.cpp").write_text(
            f'extern "C" __attribute__((visibility("default"))) int {name}() {{ return 1; }}\n'
        )
    monkeypatch.setattr(engine, "SOURCES", sources)
    compiled: list[str] = []
    really = engine._run

    def run(command: list[str], what: str, stage: Path) -> None:
        compiled.extend(word for word in command if word.endswith(".cpp"))
        really(command, what, stage)

    monkeypatch.setattr(engine, "_run", run)

    def make() -> tuple[Path, int]:
        compiled.clear()
        library = engine.engine_library(tmp_path / "small")
        # A copy of its own: who cuts a library that is loaded kills the process.
        loaded = ctypes.CDLL(shutil.copy(library, tempfile.mkdtemp(dir=tmp_path)))
        assert [getattr(loaded, name)() for name in ("one", "two", "three")] == [1, 1, 1]
        return library, len(compiled)

    yield make


ENGINE_DAMAGES: dict[str, tuple[Callable[[Path], None], int]] = {
    "cut": (cut(engine.LIBRARY, 1000), 0),
    "empty": (cut(engine.LIBRARY, 0), 0),
    "gone": (gone(engine.LIBRARY), 0),
    "manifest cut": (cut(manifest.NAME, 10), 0),
    "a file for a folder": (lambda entry: a_file_for_a_folder(entry.parent), 0),
    "an object cut": (lambda entry: damage_object(entry, 64), 1),
    "an object empty": (lambda entry: damage_object(entry, 0), 1),
    "all objects a file": (lambda entry: all_objects_a_file(entry), 3),
}


def damage_object(entry: Path, size: int) -> None:
    """The library too, since objects are read only where it is not whole."""
    os.truncate(entry / engine.LIBRARY, 0)
    os.truncate(next((entry.parent.parent / "objects").glob(f"*/*/{engine.OBJECT}")), size)


def all_objects_a_file(entry: Path) -> None:
    os.truncate(entry / engine.LIBRARY, 0)
    a_file_for_a_folder(entry.parent.parent / "objects")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(("damage", "compiled"), ENGINE_DAMAGES.values(), ids=ENGINE_DAMAGES)
def test_a_damaged_engine_is_made_anew(
    small_engine: Callable[[], tuple[Path, int]], damage: Callable[[Path], None], compiled: int
) -> None:
    first, count = small_engine()
    assert count == 3
    damage(first.parent)
    again, count = small_engine()
    assert again != first and count == compiled
    assert small_engine() == (again, 0)


def test_the_simulator_cut_short_is_no_crash_of_the_learners(folder: Path) -> None:
    """Its objects are whole: it is linked again."""
    if OBJECTS.is_dir():
        shutil.copytree(OBJECTS, folder / "objects", copy_function=os.link)
    [library] = folder.glob(f"engine-*/*/{engine.LIBRARY}")
    os.truncate(library, 1000)
    assert verdict(KATA.solution_path) is Kind.PASS
    [library] = folder.glob(f"engine-*/*/{engine.LIBRARY}")
    manifest.check(library.parent, Hashes())


# -- entries


def test_an_entry_is_sealed_by_the_content_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    manifest.seal(tmp_path, {"fact": [1]}, Hashes())
    manifest.check(tmp_path, Hashes())
    assert manifest.about(tmp_path) == {"fact": [1]}
    (tmp_path / "a").write_text("2")
    with pytest.raises(Damaged):
        manifest.check(tmp_path, Hashes())
    digest, body, _ = (tmp_path / manifest.NAME).read_text().split("\n")
    (tmp_path / manifest.NAME).write_text(f"{digest}\n{json.dumps(json.loads(body) | {'about': {}})}\n")
    with pytest.raises(Damaged):
        manifest.about(tmp_path)


def test_two_who_make_the_same_take_nothing_from_each_other(tmp_path: Path) -> None:
    place, kept = tmp_path / "builds" / "key", []
    for name in ("one", "two"):
        made = tmp_path / "staging" / "mine" / name
        made.mkdir(parents=True)
        (made / "file").write_text(name)
        kept += entries.keep([Made(made, place)], Hashes())
    assert [(folder / "file").read_text() for folder in kept] == ["one", "two"]
    assert entries.find(place, Hashes()) == kept[1]
    (kept[1] / "file").write_text("?")
    assert entries.find(place, Hashes()) == kept[0] and not kept[1].exists() and kept[0].exists()
