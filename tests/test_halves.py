"""The PTX half and the host half of a file, compiled side by side: nvcc's own build, and its own messages."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import passed_before
import pytest
from patience import wait_for, wait_for_the_end_of

from grader.compile import build as building
from grader.compile.build import Build, CompileFailure, Request, Target, build, exported_names
from grader.compile.halves import _KEPT, Plan, _Compiler, _digest, _is_as_expected, _Memory, plan
from grader.compile.symbols import dependencies
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec

pytestmark = passed_before.REPOSITORY

ROOT = Path(__file__).resolve().parent.parent
KATAS = load_catalog(ROOT).katas
HEADERS = """
#include "kata.cuh"
#ifdef __CUDA_ARCH__
#include "of_the_device.h"
#else
#include "of_the_host.h"
#endif
static __device__ float doubled(float x) { return 2 * x; }
__constant__ float one = 1;
template <int N> __global__ void add(const float* a, const float* b, float* c, int n) {
    for (int i = threadIdx.x; i < n; i += N) c[i] = a[i] * one + doubled(b[i]) / 2;
}
KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    if (n) add<64><<<1, 64, 0, stream>>>(a, b, c, n);
}
"""


@dataclass(frozen=True)
class Both:
    """What became of a file in halves and by nvcc alone."""

    halves: Build | CompileFailure
    whole: Build | CompileFailure


WAITS = """cat host/kata.cudafe1.stub.c &
echo $! > begun
mv begun child
wait
"""


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Compiles a file in both ways, each into a cache of its own; what nvcc has read stays there, too."""
    keep_only, step = building._keep_only, building._step
    more = {"kata.d", "kata.fatbin", "kata.s"}
    monkeypatch.setattr(building, "_keep_only", lambda folder, names: keep_only(folder, names | more))

    def compiled(name: str, source: Path, arch: str = "sm_90a") -> Both:
        request = Request(KATAS[name], load_spec(KATAS[name]), source_of(source), Target("sim", arch))
        made = []
        for in_halves in (True, False):
            monkeypatch.setenv("KATA_CACHE", str(tmp_path / f"cache-{in_halves}-{arch}"))
            monkeypatch.setattr(
                building, "_step", lambda job, place, *, alone, split=in_halves: step(job, place, alone=split)
            )
            made.append(build(request, find_toolchain()))
        return Both(*made)

    return compiled


def code(built: Build | CompileFailure) -> str:
    """The PTX without paths, names for a debugger, and the module's id, which is made of the folder's name."""
    assert isinstance(built, Build), built
    text = re.sub(r'^\s*\.file.*"$', "", built.ptx.read_text(), flags=re.MULTILINE).partition("\t.section")[0]
    return re.sub(r"(\d+)(_INTERNAL_\w+)", lambda name: f"ID{name[2][int(name[1]) :]}", text)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("block_all_reduce_f16x8_pack_f32", "sm_90a"),
        ("flash_attn_mma_stages_split_q", "sm_80"),
    ],
)
def test_a_build_in_halves_is_nvccs_own(both, name: str, arch: str) -> None:  # type: ignore[no-untyped-def]
    made = both(name, KATAS[name].solution_path, arch)
    assert code(made.halves) == code(made.whole)
    assert exported_names(made.halves.library) == exported_names(made.whole.library)
    assert section(made.halves, ".nv_fatbin") == (made.halves.folder / "kata.fatbin").read_bytes()
    assert section(made.whole, ".nv_fatbin") == (made.whole.folder / "kata.fatbin").read_bytes()
    assert section(made.halves, ".nvFatBinSegment") == section(made.whole, ".nvFatBinSegment")
    assert (made.halves.folder / "kata.s").exists() and not (made.whole.folder / "kata.s").exists()


def section(built: Build, name: str) -> bytes:
    """What a section of the library holds."""
    into = built.folder / "section"
    subprocess.run(["objcopy", "-O", "binary", "--only-section", name, built.library, into], check=True)
    return into.read_bytes()


def test_both_halves_list_what_they_read(both, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for header in ("of_the_device.h", "of_the_host.h"):
        (tmp_path / header).touch()
    source = tmp_path / "elementwise_f32.cu"
    source.write_text(HEADERS)
    made = both("elementwise_f32", source)
    assert code(made.halves) == code(made.whole)
    listed = {Path(path).name for path in dependencies((made.halves.folder / "kata.d").read_text())}
    assert {"of_the_device.h", "of_the_host.h", "kata.cuh", "cuda_runtime.h"} <= listed
    assert listed >= {Path(path).name for path in dependencies((made.whole.folder / "kata.d").read_text())}


@pytest.mark.parametrize(
    "text",
    [
        '#include "kata.cuh"\n#include "is_not_there.h"\n',
        '#include "kata.cuh"\nKATA_EXPORT void elementwise_f32() { int x = "text"; }\n',
        '#include "kata.cuh"\n__global__ void k(int* p) { asm volatile("bar.sync 0;" :: "q"(p)); }\n',
        '#include "kata.cuh"\n__global__ void k(int* p) { *p = []() __host__ { return 1; }(); }\n',
        '#include "kata.cuh"\n#ifdef __CUDA_ARCH__\n#error only here\n#endif\n__global__ void k() {}\n',
        '#include "kata.cuh"\n__global__ void k(float* p) { asm volatile("add.f32 %0, %0;" : "+f"(p[0])); }\n',
        '#include "kata.cuh"\nvoid other();\nKATA_EXPORT void elementwise(int n) { other(); }\n',
    ],
)
def test_what_does_not_compile_gets_nvccs_message(both, tmp_path: Path, text: str) -> None:  # type: ignore[no-untyped-def]
    source = tmp_path / "elementwise_f32.cu"
    source.write_text(text)
    made = both("elementwise_f32", source)
    assert isinstance(made.halves, CompileFailure) and isinstance(made.whole, CompileFailure)
    assert (made.halves.message, made.halves.line) == (made.whole.message, made.whole.line)
    assert made.halves.log == made.whole.log


def noting_nvcc(folder: Path, list_commands: str) -> Path:
    """An nvcc that leaves a file where it compiles. ``list_commands``: what it does where it only lists them."""
    nvcc, noting = find_toolchain().nvcc, folder / "nvcc"
    noting.write_text(
        f'#!/bin/sh\ncase "$*" in *--dryrun*) {list_commands} ;; *) touch {folder}/ran; exec {nvcc} "$@" ;; esac\n'
    )
    noting.chmod(0o755)
    return noting


@pytest.mark.parametrize(
    "text",
    [
        '#include "is_not_there.h"\n',
        '#include "kata.cuh"\nKATA_EXPORT void elementwise_f32() { int x = "text"; }\n',
        '#include "kata.cuh"\n#ifdef __CUDA_ARCH__\n#error only here\n#endif\n__global__ void k() {}\n',
    ],
)
def test_what_the_compilers_refuse_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    toolchain, source = find_toolchain(), tmp_path / "elementwise_f32.cu"
    source.write_text(text)
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    kata = KATAS["elementwise_f32"]
    request = Request(kata, load_spec(kata), source_of(source), Target("sim", "sm_90a"))
    noting = noting_nvcc(tmp_path, f'exec {toolchain.nvcc} "$@"')
    assert isinstance(build(request, replace(toolchain, nvcc=noting)), CompileFailure)
    assert not (tmp_path / "ran").exists()


def test_a_list_of_another_form_is_left_to_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = find_toolchain()
    other = noting_nvcc(tmp_path, 'echo "#$ compile everything" >&2')
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    kata = KATAS["elementwise_f32"]
    request = Request(kata, load_spec(kata), source_of(kata.solution_path), Target("sim", "sm_90a"))
    assert isinstance(build(request, replace(toolchain, nvcc=other)), Build) and (tmp_path / "ran").exists()


@pytest.mark.parametrize(("code", "runtime", "after"), [("compute_90a", "none", 1), ("sm_90a", "static", 4)])
def test_the_commands_of_this_nvcc_are_known(tmp_path: Path, code: str, runtime: str, after: int) -> None:
    """Without this a new version of nvcc would cost its users a third of their time, and no test would say so."""
    found = listed_plan(tmp_path, code, runtime)
    assert [len(part) for part in (found.device, found.host, found.join)] == [4, 2, after]


def listed_plan(folder: Path, code: str = "sm_90a", runtime: str = "none") -> Plan:
    """That of a file which nvcc would compile in ``folder``."""
    (folder / "kata.cu").touch()
    flags = ["-shared", "-cudart", runtime, "-gencode", f"arch=compute_90a,code={code}", "--keep", "-MD"]
    toolchain = find_toolchain()
    command = [str(toolchain.nvcc), *toolchain.nvcc_flags, *flags, "-o", "kata.so", "kata.cu", "--dryrun"]
    listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr
    found = plan(listed, "kata")
    assert found is not None and plan(listed.replace("cudafe++", "another"), "kata") is None
    return found


def test_data_of_any_length_is_as_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fatbinary writes a last line of two words or three in another way than one of four: what is not as expected has
    the host's compiler do all of its work once more."""
    environment = {**os.environ, **listed_plan(tmp_path).settings}
    monkeypatch.chdir(tmp_path)
    sizes = set()
    for length in range(1, 34, 8):
        text = f".version 9.0\n.target sm_90\n.address_size 64\n.global .b32 {length * 'x'};\n"
        Path("kata.ptx").write_text(text)
        made = "--create=kata.fatbin --embedded-fatbin=kata.embedded.c --image3=kind=ptx,sm=90,file=kata.ptx"
        subprocess.run(f"fatbinary -64 --compress=false {made}", shell=True, env=environment, check=True)
        sizes.add(Path("kata.fatbin").stat().st_size // 8 % 4)
        assert _is_as_expected("kata"), length
    assert sizes == {0, 1, 2, 3}
    with Path("kata.fatbin").open("ab") as file:
        file.write(bytes(8))
    assert not _is_as_expected("kata")


def test_a_compiler_that_waits_for_kernels_in_vain_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """g++ starts another program, and that waits at the pipe."""
    monkeypatch.chdir(tmp_path)
    Path("waits").write_text(WAITS)
    nothing = _Memory(None, Plan((), (), "sh waits", (), {}), "kata", "_id")
    compiler = _Compiler("sh waits", "kata", nothing)
    compiler.begin({**os.environ})
    wait_for(Path("child").exists, "a program that reads the pipe")
    child = int(Path("child").read_text())
    compiler.close()
    wait_for_the_end_of([child])
    assert not Path("host").exists()


MARK = b'\t.section\t.rodata\n\t.string "out of the store"\n'


def marked(kept: bytes) -> bytes:
    """An entry of the store, with words in it that no compiler wrote."""
    facts, made = kept.split(b"\n\n", 1)
    stub, _, *read = facts.decode().split("\n")
    made += MARK
    return "\n".join([stub, _digest(made), *read]).encode() + b"\n\n" + made


def library_of(text: str, folder: Path) -> bytes:
    for header in ("of_the_device.h", "of_the_host.h"):
        (folder / header).touch()
    source = folder / "elementwise_f32.cu"
    source.write_text(text)
    kata = KATAS["elementwise_f32"]
    built = build(Request(kata, load_spec(kata), source_of(source), Target("sim", "sm_90a")), find_toolchain())
    assert isinstance(built, Build), built
    return built.library.read_bytes()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the store has of a file; its name is that in the store."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATA_CACHE", str(folder / "cache"))
        library_of(HEADERS, folder)
    (entry,) = (folder / "cache" / building.HOSTS).iterdir()
    return entry


@pytest.fixture
def entry(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same in a store of the test's own, marked."""
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    own = tmp_path / "cache" / building.HOSTS / kept.name
    own.parent.mkdir(parents=True)
    own.write_bytes(marked(kept.read_bytes()))
    return own


CHANGED = {
    "a kernel's body": ("/ 2", "/ 4", True),
    "more lines": ("    for (int i", "    // more\n    for (int i", True),
    "a launch": ("<<<1, 64,", "<<<2, 64,", False),
    "a kernel's name": ("add", "plus", False),
    "a kernel's parameters": ("int n) {\n    for", "long n) {\n    for", False),
    "which instance": ("add<64>", "add<32>", False),
    "a line's number": ("if (n) add", "if (n + __LINE__) add", False),
}


@pytest.mark.parametrize("change", CHANGED)
def test_what_the_host_compiles_is_taken_from_the_store(entry: Path, tmp_path: Path, change: str) -> None:
    """As long as nothing but kernels' bodies has changed."""
    old, new, is_same = CHANGED[change]
    assert old in HEADERS
    assert (b"out of the store" in library_of(HEADERS.replace(old, new), tmp_path)) == is_same
    assert len([*entry.parent.iterdir()]) == (1 if is_same else 2)


@pytest.mark.parametrize("damage", ["shorter", "another header", "another stub", "empty"])
def test_what_does_not_fit_in_the_store_is_compiled_again(entry: Path, tmp_path: Path, damage: str) -> None:
    whole = entry.read_bytes()
    facts, _, made = whole.partition(b"\n\n")
    lines = facts.split(b"\n")
    entry.write_bytes(
        {
            "shorter": whole[:-3],
            "another header": b"\n".join([*lines[:-1], lines[-1] + b"1"]) + b"\n\n" + made,
            "another stub": b"\n".join([b"0" * 64, *lines[1:]]) + b"\n\n" + made,
            "empty": b"",
        }[damage]
    )
    assert b"out of the store" not in library_of(HEADERS.replace("/ 2", "/ 4"), tmp_path)
    assert marked(entry.read_bytes()) == whole  # it is whole again


def test_the_store_keeps_what_was_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store, work = tmp_path / "store", Plan((), (), "g++ -S", (), {})
    Path("kata.cudafe1.stub.c").touch()
    Path("kata.host.d").write_text("kata.s: here.h /usr/include/stdio.h\n")
    Path("kata.s").write_text(".text _id_1\n")

    def memory(text: str) -> _Memory:
        Path("kata.cudafe1.cpp").write_text(text)
        return _Memory(store, work, "kata", "_id_1")

    for nth in range(_KEPT + 3):
        first = memory("first")
        assert first.has_text() == (nth > 0)
        if nth > 0:
            assert first.restore()
            other = memory(f"other {nth}")
            assert not other.has_text()
            other.keep()
        else:
            first.keep()
    assert len([*store.iterdir()]) == _KEPT
    assert memory("first").has_text()
    assert not memory("other 1").has_text()
    Path("kata.s").unlink()
    again = _Memory(store, work, "kata", "_id_2")
    Path("kata.cudafe1.cpp").write_text('# 7 "kata.cu"\nfirst')
    assert again.has_text() and again.restore()
    assert Path("kata.s").read_text() == ".text _id_2\n"
