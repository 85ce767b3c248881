"""Builds: reused, whole, safe under Ctrl-C and beside each other, and clear about what stops them."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from compiler import HeldCompiler
from facts import all_of, has
from patience import PATIENCE_S, wait_for

from grader.compile import compilation, shared_memory_limit
from grader.compile.build import Build, CompileFailure, Request, Target, build, build_all, exported_names
from grader.compile.nvcc_log import SOURCE, File, first_error
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.storage import cache
from grader.verdict import Kind

ROOT = Path(__file__).resolve().parent.parent
KATAS = load_catalog(ROOT).katas
SIM = Target("sim", "sm_90a")


@pytest.fixture
def folder(tmp_path: Path, nvcc_remembers: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def request_for(name: str, source: Path | None = None, target: Target = SIM) -> Request:
    kata = KATAS[name]
    return Request(kata, load_spec(kata), source_of(source or kata.solution_path), target)


def failure(tmp_path: Path, text: str | bytes, name: str = "elementwise_f32") -> CompileFailure:
    source = tmp_path / f"{name}.cu"
    source.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
    built = build(request_for(name, source), find_toolchain())
    assert isinstance(built, CompileFailure), "it must not compile"
    return built


def test_a_build_is_reused_and_never_half_there(folder: Path) -> None:
    said: list[str] = []
    first = build_all([request_for("elementwise_f32")], find_toolchain(), tell=said.append)[0]
    again = build_all([request_for("elementwise_f32")], find_toolchain(), tell=said.append)[0]
    assert isinstance(first, Build) and isinstance(again, Build)
    assert first.folder == again.folder and len(said) == 1
    assert "elementwise_f32" in exported_names(first.library)
    assert ".visible .entry" in first.ptx.read_text()
    assert list((folder / "staging").iterdir()) == []


def test_whatever_can_change_a_build_changes_its_key(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "mine.cu"
    (tmp_path / "mine.cuh").write_text("// of no use\n")  # the nvcc with a memory knows the code
    first_line, _, text = request_for("elementwise_f32").source.text.partition("\n")
    assert first_line.startswith("//")
    source.write_text('#include "mine.cuh"\n' + text)
    toolchain = find_toolchain()
    first = build(request_for("elementwise_f32", source), toolchain)
    other_arch = build(request_for("elementwise_f32", source, Target("sim", "sm_80")), toolchain)
    (tmp_path / "mine.cuh").write_text("// of no use, either\n")
    edited_include = build(request_for("elementwise_f32", source), toolchain)
    folders = {built.folder for built in (first, other_arch, edited_include) if isinstance(built, Build)}
    assert len(folders) == 3


ON_AMPERE = """
    #include "kata.cuh"
    __global__ void kernel(const float* a, float* c) {
        __shared__ float tile[4];
        const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(tile));
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(at), "l"(a));
        asm volatile("cp.async.wait_all;");
        c[0] = tile[0];
    }
    KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
        kernel<<<1, 1, 0, stream>>>(a, c);
    }
"""


def test_an_instruction_that_an_older_card_lacks_is_refused(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "elementwise_f32.cu"
    source.write_text(textwrap.dedent(ON_AMPERE))
    targets = (Target("sim", "sm_75"), Target("sim", "sm_80"))
    requests = [request_for("elementwise_f32", source, target) for target in targets]
    refused, passed = build_all(requests, find_toolchain())
    assert isinstance(refused, CompileFailure) and (refused.kind, refused.line) == (Kind.DOES_NOT_COMPILE, 6)
    assert has(refused.message, "cp.async", "sm_80") and isinstance(passed, Build)


ENDLESS = """
    #include "kata.cuh"
    template <int N> __device__ __forceinline__ float f(float x) { return f<N - 1>(x + 1.5f) * f<N - 1>(x * x); }
    template <> __device__ __forceinline__ float f<0>(float x) { return __sinf(x); }
    __global__ void kernel(float* c) { c[0] = f<30>(c[0]); }
    KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
        kernel<<<1, 1, 0, stream>>>(c);
    }
"""


def test_a_compilation_that_computes_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "COMPILE_LIMIT_S", 1)
    assert has(failure(tmp_path, ENDLESS).message, "1 s", "unrolled")


def test_a_compilation_that_has_to_wait_is_nobodys_fault(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "COMPILE_LIMIT_S", 2)
    toolchain, slow = find_toolchain(), tmp_path / "slow_nvcc"
    slow.write_text(f'#!/bin/sh\nsleep 4\nexec {toolchain.nvcc} "$@"\n')
    slow.chmod(0o755)
    assert isinstance(build(request_for("elementwise_f32"), replace(toolchain, nvcc=slow)), Build)


def test_a_cache_that_is_removed_meanwhile_is_said(folder: Path, tmp_path: Path) -> None:
    remover = tmp_path / "removing_nvcc"
    remover.write_text(f"#!/bin/sh\nrm -rf {folder}\nexit 1\n")
    remover.chmod(0o755)
    with pytest.raises(cache.CacheError, match="removed"):
        build(request_for("elementwise_f32"), replace(find_toolchain(), nvcc=remover))


def test_ctrl_c_during_a_build_leaves_nothing_and_the_next_run_is_fine(folder: Path) -> None:
    script = f"""
        from pathlib import Path
        import sys
        sys.path.insert(0, {str(ROOT / "tests")!r})
        from test_build import *
        katas = list(KATAS)[:20]
        print("ready", flush=True)
        build_all([request_for(name) for name in katas], find_toolchain())
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    staged = (folder / "staging").glob
    wait_for(lambda: any(staged("*/*/*.ii")) or any(staged("*/*/*.cpp*")), "the compiler")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE_S) != 0
    process.stdout.close()
    assert list((folder / "staging").iterdir()) == []
    assert isinstance(build(request_for("elementwise_f32"), find_toolchain()), Build)


def test_what_a_killed_run_left_is_swept_by_the_next(folder: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = folder / "staging" / f"{dead.pid}-left"
    left.mkdir(parents=True)
    mine = folder / "staging" / f"{os.getpid()}-mine"
    mine.mkdir()
    with cache.staging(folder):
        assert not left.exists() and mine.exists()


# However slow the machine, nobody loses patience with the others; who waits says so.
BUILD_TWO = f"""
    import sys
    sys.path.insert(0, {str(ROOT / "tests")!r})
    from test_build import *
    import grader.compile.build
    from grader.storage.lock import BuildLocks
    grader.compile.build.PATIENCE_S = 1000.0
    def wait(self, key, *, until, limit_s, really=BuildLocks.wait):
        Path({{mark!r}}).touch()
        really(self, key, until=until, limit_s=limit_s)
    BuildLocks.wait = wait
    names = ["elementwise_f32", "histogram_i32"]
    built = build_all([request_for(name) for name in names], find_toolchain(), tell=print)
    assert all(isinstance(item, Build) and item.library.is_file() for item in built)
"""


def start(script: str, *, waits: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    """``waits`` is made when the process begins to wait for another."""
    command = [sys.executable, "-c", textwrap.dedent(script).replace("{mark!r}", repr(str(waits or os.devnull)))]
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_heeds_ctrl_c,
    )


def _heeds_ctrl_c() -> None:
    """Also where whatever started the tests does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_runs_at_once_compile_each_file_once(folder: Path) -> None:
    runs = [start(BUILD_TWO) for _ in range(3)]
    said = [run.communicate(timeout=PATIENCE_S)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert sorted(line.split()[2] for line in "".join(said).splitlines()) == ["elementwise_f32", "histogram_i32"]
    assert len(list((folder / "builds").iterdir())) == 2
    assert list((folder / "staging").iterdir()) == []


def test_who_waits_for_a_build_makes_it_when_its_maker_is_killed(folder: Path, tmp_path: Path) -> None:
    compiler = HeldCompiler(tmp_path, "^// histogram_i32:")
    first = start(BUILD_TWO, KATA_NVCC=compiler.path)
    wait_for(compiler.has_begun, "the first to compile")
    second = start(BUILD_TWO, waits=tmp_path / "waits", KATA_NVCC=compiler.path)
    wait_for((tmp_path / "waits").exists, "the second to wait")
    assert first.poll() is None and second.poll() is None
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    compiler.let_go()
    second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0 and len(list((folder / "builds").iterdir())) == 2


def test_a_build_is_there_for_others_before_the_batch_is_done(folder: Path, tmp_path: Path) -> None:
    """One file of the batch takes long: the other is in the cache meanwhile, and may be made anew."""
    compiler = HeldCompiler(tmp_path, "^// histogram_i32:")
    first = start(BUILD_TWO, KATA_NVCC=compiler.path)
    try:
        wait_for(lambda: any((folder / "builds").glob("*/*/kata.so")), "the other build")
        wait_for(compiler.has_begun, "the one that takes long")
        assert first.poll() is None
    finally:
        os.killpg(first.pid, signal.SIGINT)
        first.communicate(timeout=PATIENCE_S)
    assert list((folder / "staging").iterdir()) == []
    wait_for(lambda: compiler.path not in processes(), "the compiler's end")


def processes() -> str:
    return subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True).stdout


def test_who_waits_does_not_wait_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a process that is stopped, or that has hundreds of others to compile before."""
    holder = start(BUILD_TWO)
    wait_for(lambda: any((folder / "staging").glob("*/*/kata.cu")), "the first file")
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr("grader.compile.build.PATIENCE_S", 1.0)
        assert isinstance(build(request_for("elementwise_f32"), find_toolchain()), Build)
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate()


def test_a_folder_of_any_name_is_no_command(folder: Path, tmp_path: Path) -> None:
    """Neither the shell nor ninja nor nvcc reads a word of what the folder of a file is called."""
    place = tmp_path / f"a 'b' \"c\" $(touch {tmp_path.name}) `touch x`; $in\n\\ä"
    place.mkdir(parents=True)
    (place / "mine.cuh").write_text("// of no use\n")
    source = place / "file.cu"
    source.write_text('#include "mine.cuh"\n' + request_for("elementwise_f32").source.text.partition("\n")[2])
    before = set(Path.cwd().iterdir())
    assert isinstance(build(request_for("elementwise_f32", source), find_toolchain()), Build)
    (place / "mine.cuh").write_text("int x = ;\n")
    broken = build(request_for("elementwise_f32", source), find_toolchain())
    assert isinstance(broken, CompileFailure) and "(in mine.cuh)" in broken.message
    assert set(Path.cwd().iterdir()) == before and sorted(place.iterdir()) == [source, place / "mine.cuh"]


def test_a_file_that_includes_a_solution_is_refused(folder: Path, tmp_path: Path) -> None:
    solution = KATAS["elementwise_f32"].solution_path
    found = failure(tmp_path, f'#include "kata.cuh"\n#include "{solution}"\n')
    assert found.kind is Kind.NOT_ALLOWED and found.line == 2 and has(found.message, "elementwise_f32.cu", "solution")


def test_a_cache_that_cannot_be_a_folder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(cache.CacheError, match=all_of("KATA_CACHE", "folder")):
        build(request_for("elementwise_f32"), find_toolchain())


def test_no_space_is_one_sentence(folder: Path) -> None:
    with pytest.raises(cache.CacheError, match="space"), cache.staging(folder):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root")
def test_a_full_disk_is_not_the_learners_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this machine does not let a test mount a disk")
    try:
        monkeypatch.setenv("KATA_CACHE", str(disk / "cache"))
        with pytest.raises(cache.CacheError, match="space"):
            build(request_for("elementwise_f32"), find_toolchain())
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_that_speaks_of_a_full_disk_has_not_filled_it(folder: Path, tmp_path: Path) -> None:
    found = failure(tmp_path, '#include "kata.cuh"\n#error "No space left on device"\n')
    assert found.line == 2 and "No space left on device" in found.message


def test_a_syntax_error_has_the_learners_own_line(folder: Path, tmp_path: Path) -> None:
    found = failure(tmp_path, '#include "kata.cuh"\n\nint x = ;\n')
    assert found.line == 3 and "expected an expression" in found.message


BEGINNERS = """
    #include "kata.cuh"
    __global__ void kernel(const float* x, float __restrict__ r, float y, int n, float4 v) {
        j = threadIdx.x;
        const float f = threadIdx.x;
        x[0] = x[n];
        y = x[f];
        y[n] = 1.0f;
        v = v + v;
        const int i = threadIdx.x  // element i

        // A comment.
        if (i < n) y = 2.0f y;
    }
    void launch(const float* x, float4 v) {
        kernel(x, 1.0f, 2.0f, 3, v);
    }
"""


def test_what_nvcc_says_to_a_beginner_gets_its_usual_cause(folder: Path, tmp_path: Path) -> None:
    log = failure(tmp_path, BEGINNERS).log
    file = File(textwrap.dedent(BEGINNERS), "elementwise_f32", "", "")
    errors = [first_error(line, file) for line in log.splitlines() if ": error: " in line or "error:" in line]
    causes = {line: message.partition("; ")[2] for message, line in errors}
    facts = {3: "*", 4: "type", 6: "const", 7: "whole number", 8: "*", 9: ".x", 13: "line 10", 16: "<<<blocks, threads"}
    assert {line for line, fact in facts.items() if fact not in causes.get(line, "")} == set(), log
    # An operator is missing there, and the line before ends as it must.
    assert first_error(f'{SOURCE}(9): error: expected a ";"', file) == ('expected a ";"', 9)


def test_a_constant_whose_address_is_needed_is_not_called_misspelt(folder: Path, tmp_path: Path) -> None:
    text = """
    #include "kata.cuh"
    constexpr unsigned EMPTY = 7;
    __global__ void kernel(volatile unsigned* states, int i) {
        states[0] = i < 0 ? states[1] : EMPTY;
    }
    """
    found = failure(tmp_path, text)
    assert found.line == 5 and has(found.message, '"EMPTY" is undefined in device code; a constexpr', "local variable")
    assert "misspelt" not in found.message


def test_a_missing_header_is_named(folder: Path, tmp_path: Path) -> None:
    found = failure(tmp_path, '#include "kata.cuh"\n#include "nowhere.cuh"\n')
    assert "nowhere.cuh" in found.message and found.line == 2


WANTED = "KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["empty"]),
        ('#include "kata.cuh"\n', ["no launcher", "elementwise_f32"]),
        (f'#include "kata.cuh"\n{WANTED.replace("elementwise", "elementwize")} {{}}\n', ["misspelling"]),
        ('#include "kata.cuh"\nint main() { return 0; }\n', ["main()"]),
        (f'#include "kata.cuh"\n{WANTED.replace("int n", "float n")} {{}}\n', ["must", WANTED]),
        (f'#include "kata.cuh"\n{WANTED.replace("const float* b, ", "")} {{}}\n', ["must", WANTED]),
        (f'#include "kata.cuh"\n{WANTED.replace("void", "int")} {{ return 0; }}\n', ["must", WANTED]),
    ],
    ids=["empty", "missing", "misspelt", "main", "type", "too few", "return type"],
)
def test_a_launcher_that_is_not_there_says_what_to_write(
    folder: Path, tmp_path: Path, text: str, said: list[str]
) -> None:
    assert has(failure(tmp_path, text).message, *said)


SHARED = """
    #include "kata.cuh"
    __global__ void other(float* c) {
        __shared__ float big[64];
        big[threadIdx.x] = c[threadIdx.x];
        __syncthreads();
        c[threadIdx.x] = big[threadIdx.x ^ 1];
    }
    __global__ void kernel(float* c) {
        __shared__ float big[16384];
        big[threadIdx.x] = c[threadIdx.x];
        __syncthreads();
        c[threadIdx.x] = big[threadIdx.x ^ 1];
    }
    KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
        other<<<1, 64, 0, stream>>>(c);
        kernel<<<1, 64, 0, stream>>>(c);
    }
"""


def test_static_shared_memory_that_ptxas_refuses_is_refused_without_ptxas(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "elementwise_f32.cu"
    source.write_text(textwrap.dedent(SHARED))
    targets = (Target("gpu", "sm_80"), Target("sim", "sm_90"), Target("sim", "sm_90a"))
    requests = [request_for("elementwise_f32", source, target) for target in targets]
    *refused, passed = build_all(requests, find_toolchain())
    for failed, target in zip(refused, targets, strict=False):
        assert isinstance(failed, CompileFailure) and (failed.kind, failed.line) == (Kind.DOES_NOT_COMPILE, 10)
        assert has(failed.message, "kernel", "65536", "static shared", "49152", target.arch)
        assert has(failed.message, "extern __shared__", "cudaFuncSetAttribute")
    assert isinstance(passed, Build), "ptxas gives a kernel for sm_90a alone as much as a block of the card has"


PTX = """
.extern .shared .align 16 .b8 dynamic[];
.func  (.param .b32 func_retval0) _Z4thatPf(
\t.param .b64 _Z4thatPf_param_0
)
{
\t.shared .align 4 .b8 _ZZ4thatPfE1a[32768];
}
.visible .entry _Z5callsPf(
\t.param .u64 .ptr .align 1 _Z5callsPf_param_0
)
.maxntid 256, 1, 1
{
\t.shared .align 8 .u64 _ZZ5callsPfE1b[OWN];
\tcall.uni (retval0), _Z4thatPf, (param0);
}
.visible .entry _Z4restPf(
\t.param .u64 .ptr .align 1 _Z4restPf_param_0
)
{
\t.shared .align 4 .b8 _ZZ4restPfE1c[16392];
}
"""


@pytest.mark.parametrize(("own", "bytes_in_all"), [(2048, None), (2049, 49160)])
def test_a_kernel_has_the_shared_memory_of_what_it_calls(own: int, bytes_in_all: int | None) -> None:
    refusal = shared_memory_limit.refused(PTX.replace("OWN", str(own)), "sm_89", "")
    if bytes_in_all is None:
        assert refusal is None
    else:
        assert refusal is not None and has(refusal.message, "calls", str(bytes_in_all), "static shared")


def test_a_binary_file_gets_a_verdict(folder: Path, tmp_path: Path) -> None:
    assert failure(tmp_path, bytes(range(1, 256)) * 4).message


def test_what_makes_the_compiler_eat_memory_is_a_verdict(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grader.compile.compilation.MEMORY_LIMIT_BYTES", 1 << 30)
    found = failure(tmp_path, '#include "kata.cuh"\n#define ENDLESS "/dev/zero"\n#include ENDLESS\n')
    assert found.kind is Kind.DOES_NOT_COMPILE and has(found.message, "memory")


def test_what_makes_the_compiler_write_without_end_is_a_verdict(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grader.compile.compilation.FILE_LIMIT_BYTES", 1 << 16)
    found = failure(tmp_path, f'#include "kata.cuh"\n__device__ int x[] = {{{"1, " * 100_000}}};\n')
    assert found.kind is Kind.DOES_NOT_COMPILE
