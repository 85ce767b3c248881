"""Several files in one run of nvcc: each gets the build that it would have got alone, or is compiled alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import passed_before
import pytest
from facts import has

from grader import grade as pipeline
from grader.compile import build, source_like, unit, unit_build
from grader.compile.build import Build, CompileFailure, Request, Target, build_all
from grader.compile.host_view import host_view
from grader.compile.toolchain import find_toolchain
from grader.compile.unit import Member
from grader.content.catalog import load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.devices.sim import engine_library
from grader.grade import Options, grade
from grader.judge import built_variants
from grader.output.verdict_text import explanation
from grader.storage.cache import cache_folder
from grader.verdict import Grade, Kind

pytestmark = [passed_before.REPOSITORY, pytest.mark.usefixtures("forked_children")]

ROOT = Path(__file__).resolve().parent.parent
KATAS = load_catalog(ROOT).katas
TARGETS = (Target("sim", "sm_80"), Target("sim", "sm_90a"))
# All include kata.cuh, cuda_fp16.h and cstdint; kernels, templates, functions and shared memory, inline assembly.
ALIKE = ("hgemv_k16_f16x8_pack", "hgemm_mma_m16n8k16_naive")
# Files with other includes each.
UNLIKE = ("relu_f32", "hgemv_k16_f16x8_pack", "hgemm_wmma_m16n16k16_naive")
# With tensor maps of the driver's and shared memory without a size; the second with clusters.
HOPPER = ("wgmma_ring_tn_f16", "wgmma_multicast_tn_f16")


@pytest.fixture
def empty_cache(tmp_path: Path, nvcc_remembers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))


def request_for(name: str, source: Path | None = None, target: Target = TARGETS[1]) -> Request:
    kata = KATAS[name]
    return Request(kata, load_spec(kata), source_of(source or kata.solution_path), target, together=True)


def strict(request: Request) -> Request:
    """As a solution is compiled."""
    return replace(request, warnings_are_errors=True)


def changed(name: str, folder: Path, was: str, becomes: str) -> Path:
    text = KATAS[name].solution_path.read_text()
    assert was in text
    source = folder / f"{name}.cu"
    source.write_text(text.replace(was, becomes))
    return source


def built(requests: Sequence[Request], *, runs: int, jobs: int = 2) -> list[Build | CompileFailure]:
    """Build them, with this many runs of nvcc, so many at a time."""
    said: list[str] = []
    made = build_all(requests, find_toolchain(), jobs=jobs, tell=said.append)
    assert len(said) == runs, said
    return made


def code(ptx: Path) -> list[str]:
    """PTX without the names of functions and variables, and without the paths of files."""
    text = re.sub(r"^\s*//.*$", "", ptx.read_text(), flags=re.MULTILINE)
    text = re.sub(r'(\.file\s+\d+ )".*/(\w+/)?(\w+\.\w+)"', r"\1\3", text)
    text = re.sub(r"\.section\s+\.debug_str\s*\{.*", "", text, flags=re.DOTALL)  # the same names once more
    text = re.sub(r"_ZN21unit_[0-9a-f]{16}\d+(\w+?)E(?=\W)", r"\1", text)  # a variable; alone it has its plain name
    names: dict[str, str] = {}
    text = re.sub(r"_Z\w+?(?=_param_|\W)", lambda name: names.setdefault(name[0], f"name{len(names)}"), text)
    # The numbers of labels, files and names count through a unit.
    text = re.sub(r"\$L__(BB|info_string|tmp)\d+", r"\1", re.sub(r"\.loc\t\d+ ", ".loc ", text))
    text = re.sub(r"inlined_at \d+ ", "inlined_at ", text)
    text = re.sub(r"\bAGAIN_\d+", "AGAIN_", text)  # what %= gives in inline assembly
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(".file")]


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize(
    ("names", "targets", "jobs"), [(ALIKE, TARGETS, 2), (UNLIKE, TARGETS[:1], 1), (HOPPER, TARGETS[1:], 1)]
)
def test_each_gets_the_code_that_it_gets_alone(names: Sequence[str], targets: Sequence[Target], jobs: int) -> None:
    """From as many runs of nvcc as the machine is asked to do side by side; for an older card whatever they include,
    with the library for the newest card where that is made too."""
    requests = [strict(request_for(name, target=target)) for name in names for target in targets]
    together = built(requests, runs=jobs, jobs=jobs)
    alone = build_all([replace(request, together=False) for request in requests], find_toolchain())
    for one, other in zip(together, alone, strict=True):
        assert isinstance(one, Build) and isinstance(other, Build)
        assert one.folder != other.folder and one.tag and not other.tag
        assert one.source.read_bytes() == other.source.read_bytes()
        ours, theirs = code(one.ptx), code(other.ptx)
        assert ours == theirs
    if len(targets) == 2:
        older, newest = ({one.library.read_bytes() for one in together[first::2]} for first in (0, 1))
        assert older == newest and len(newest) == 1
    assert any(word in line for line in ours for word in ("mma", "shfl", "cp.async.bulk.tensor"))


@pytest.mark.usefixtures("empty_cache")
def test_a_name_of_the_global_namespace_is_found(tmp_path: Path) -> None:
    """One that the file declares itself, seen past a local one; and one of the runtime's."""
    own = "struct Step {\n    static constexpr int SIZE = 1;\n};\n"
    use = "using Step = ::Step;\n    if (n == ::max(n, 0) - Step::SIZE) return;\n"
    source = changed("relu_f32", tmp_path, "constexpr int THREADS", own + "constexpr int THREADS")
    source.write_text(source.read_text().replace("    if (n == 0) return;", f"    {use}    if (n == 0) return;"))
    together = built([request_for("relu_f32", source), request_for("relu_f32x4")], runs=2)
    assert all(isinstance(one, Build) and one.tag for one in together)


@pytest.mark.usefixtures("empty_cache")
def test_includes_of_one_file_are_not_there_for_another(tmp_path: Path) -> None:
    poor = changed("relu_f32", tmp_path, "if (idx < n) y", "if (idx < n && __half(1.0f) > __half(0.0f)) y")
    rich = changed("relu_f32x4", tmp_path, '#include "kata.cuh"', '#include "kata.cuh"\n#include <cuda_fp16.h>')
    requests = [strict(request_for("relu_f32", poor)), strict(request_for("relu_f32x4", rich))]
    first, second = build_all(requests, find_toolchain(), jobs=1)
    assert isinstance(first, CompileFailure) and "__half" in first.message and first.line is not None
    assert isinstance(second, Build)


def units_of(requests: Sequence[Request]) -> list[tuple[str, ...]]:
    """The folders of the files in each unit, "kernels" before those for which nvcc makes no library."""
    common, found = build.common_key(), []
    jobs = [build.plan(request, find_toolchain(), common, None) for request in requests]
    for one in unit_build._units([job for job in jobs if isinstance(job, unit_build.Job)], 1):
        named = [job.request.source.path.parent.name for _, job in one.jobs]
        found.append((*(["kernels"] if one.library_of else []), *named))
    return found


def test_only_files_with_its_includes_are_beside_one_in_which_warnings_are_errors(tmp_path: Path) -> None:
    includes = ["<cmath>", "<cstdio>", "<cstdio>", "<cassert>", "<cstdint>"]
    sources = []
    for number, header in enumerate(includes):
        sources.append(tmp_path / str(number) / "relu_f32.cu")
        sources[-1].parent.mkdir()
        sources[-1].write_text(f"#include {header}\n// {number}\n{KATAS['relu_f32'].solution_path.read_text()}")
    requests = [request_for("relu_f32", source) for source in sources]
    assert units_of(requests) == [("0", "1", "2", "3", "4")]
    assert units_of([*map(strict, requests[:2]), *requests[2:]]) == [("0",), ("1", "2"), ("3", "4")]
    older = [replace(request, target=TARGETS[0]) for request in map(strict, requests[:2])]
    assert units_of(older) == [("0", "1")]
    assert units_of([*older, strict(requests[0])]) == [("1",), ("kernels", "0"), ("0",)]


@pytest.mark.usefixtures("empty_cache")
def test_warnings_are_errors_of_their_own_file_alone(tmp_path: Path) -> None:
    """In the kernel nvcc warns, in the launcher g++ does too. All share the first run of nvcc."""
    files = []
    for place, unused in (("kernel", "    // END TODO(2)"), ("launcher", "    if (n == 0) return;")):
        (tmp_path / place).mkdir()
        files.append(changed("relu_f32", tmp_path / place, unused, f"    int of_no_use_{place} = n;\n{unused}"))
    requests = [strict(request_for("relu_f32x4")), *(strict(request_for("relu_f32", file)) for file in files)]
    requests += [request_for("relu_f32", file) for file in files]
    good, in_kernel, in_launcher, *lenient = built(requests, runs=3, jobs=1)
    assert isinstance(good, Build) and good.tag
    assert isinstance(in_kernel, CompileFailure) and "of_no_use_kernel" in in_kernel.message
    assert isinstance(in_launcher, CompileFailure) and "of_no_use_launcher" in in_launcher.message
    assert all(isinstance(one, Build) and one.tag for one in lenient)


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize(
    ("was", "becomes", "kind", "fact"),
    [
        ("const int idx", "const int idx = nonsense; //", Kind.DOES_NOT_COMPILE, "nonsense"),
        ("if (n == 0) return;", 'if (n == 0) system("true");', Kind.NOT_ALLOWED, "system"),
        ("KATA_EXPORT void relu_f32(", "KATA_EXPORT void relu_f32_too(", Kind.DOES_NOT_COMPILE, "relu_f32_too"),
        (
            "const float* x, float* y, int n, cuda",
            "const float* x, float* y, long n, cuda",
            Kind.DOES_NOT_COMPILE,
            "int",
        ),
    ],
    ids=["an error", "a forbidden call", "another launcher", "other parameters"],
)
def test_a_file_at_fault_is_told_so_as_if_alone(tmp_path: Path, was: str, becomes: str, kind: Kind, fact: str) -> None:
    bad = changed("relu_f32", tmp_path, was, becomes)
    wanted = build_all([replace(request_for("relu_f32", bad), together=False)], find_toolchain())[0]
    good, failure = build_all([request_for("relu_f32x4"), request_for("relu_f32", bad)], find_toolchain(), jobs=1)
    assert isinstance(good, Build)
    assert isinstance(failure, CompileFailure) and isinstance(wanted, CompileFailure)
    assert failure.kind is kind and fact in failure.message
    assert (failure.message, failure.line) == (wanted.message, wanted.line)


@pytest.mark.usefixtures("empty_cache")
def test_files_beside_one_at_fault_share_a_run_again(tmp_path: Path) -> None:
    """Three runs: all, all but the one at fault, and that one."""
    bad = changed("relu_f32", tmp_path, "const int idx", "const int idx = nonsense; //")
    sources = [request_for("relu_f32", bad), request_for("relu_f32x4"), request_for("relu_f32")]
    said: list[str] = []
    made = build_all(sources, find_toolchain(), jobs=1, tell=said.append)
    assert [type(one) for one in made] == [CompileFailure, Build, Build] and len(said) == 3
    assert "3 files" in said[0] and "2 files" in said[1]


@pytest.mark.usefixtures("empty_cache")
def test_too_much_shared_memory_is_told_as_if_alone(tmp_path: Path) -> None:
    used = "__shared__ float all[99999];\n    all[threadIdx.x] = n;\n    __syncthreads();\n    y[0] = all[n % 9999];\n"
    large = changed("relu_f32", tmp_path, "    // END TODO(2)", f"    {used}    // END TODO(2)")
    good, failure = build_all([request_for("relu_f32x4"), request_for("relu_f32", large)], find_toolchain(), jobs=1)
    assert isinstance(good, Build) and isinstance(failure, CompileFailure)
    assert "399996 bytes" in failure.message and "unit_" not in failure.message and failure.line is not None


@pytest.mark.parametrize(
    ("line", "shares"),
    [
        ("#include <cassert>", True),
        ("#pragma unroll 4", True),
        ('#include "mine.cuh"', False),
        ("#define WIDTH 4", False),
        ("#if defined(__CUDA_ARCH__)", False),
        ("  #  undef WIDTH", False),
        ("#pragma once", False),
        ("%:define WIDTH 4", False),
        ("/* */ #define WIDTH 4", False),
        ("# /* */ define WIDTH 4", False),
        ("#\\\ndefine WIDTH 4", False),
        ("    cudaMemsetAsync(y, 0, 4, stream);", True),
        ("    cudaIpcGetMemHandle(&handle, y);", False),
        ("    cudaLaunchKernelEx(&config, kernel, x);", True),
        ("    cudaGetDriverEntryPointByVersion(name, &found, 12000, 0, &answer);", False),
        ("    cuInit(0);", False),
    ],
)
def test_files_that_could_reach_into_the_next_stay_alone(line: str, shares: bool) -> None:
    assert unit.may_share(f'#include "kata.cuh"\n{line}\n'.encode()) is shares
    assert not unit.may_share(b"// gr\xfc\xdfe\n")


def test_a_file_may_call_more_where_its_kata_has_the_driver() -> None:
    asks = (
        b'#include "kata.cuh"\n#include <cuda.h>\n    cudaGetDriverEntryPointByVersion(name, &found, 12000, 0, &to);\n'
    )
    assert unit.may_share(asks, ("driver",)) and not unit.may_share(asks)
    assert not unit.may_share(asks + b"    cuInit(0);\n", ("driver",))
    assert not unit.may_share(b'#include "kata.cuh"\n', ("cutlass",))


def test_a_file_may_call_what_the_solutions_call_of_cublas() -> None:
    asks = b'#include "kata.cuh"\n#include <cublas_v2.h>\n    cublasCreate(&handle);\n'
    assert unit.may_share(asks, ("cublas",)) and not unit.may_share(asks)
    assert not unit.may_share(asks + b"    cublasDestroy(handle);\n", ("cublas",))


PTX = """.version 9.0
.target sm_90a
.file 1 "kata.cu"
.extern .func  (.param .b32 func_retval0) vprintf
(
\t.param .b64 vprintf_param_0
)
;
.global .align 4 .u32 _ZN{one}5countE;
.extern .shared .align 1024 .b8 _ZN{one}4smemE[];
.extern .shared .align 16 .b8 _ZN{two}4smemE[];
\t// .globl of the first
.visible .entry _ZN{one}6kernelEv(
\t.param .u64 p
)
.maxntid 256, 1, 1
{{
\t// begin inline asm
\t{{
.reg .pred p;
}}
\t// end inline asm
\tret;

}}
.func  (.param .b32 r) _ZN{two}4helpEv(
\t.param .b32 x
)
{{
\tret;
}}
\t.section\t.debug_str
\t{{
.b8 95,0
\t}}
"""


def test_ptx_is_taken_apart_by_functions() -> None:
    one, two = (Member("relu_f32", "", f"file {number}").tag for number in (1, 2))
    assert one != two
    ptx = PTX.format(one=f"{len(one)}{one}", two=f"{len(two)}{two}")
    pieces = unit.pieces_of(ptx)
    first, second = unit.ptx_of(one, pieces), unit.ptx_of(two, pieces)
    for part in (first, second):
        assert "vprintf" in part and ".debug_str" in part and "5countE" in part and ".file 1" in part
        assert part.count("{") == part.count("}")
    assert ".align 1024" in first and ".align 16" not in first and ".align 16" in second and ".align 1024" not in second
    assert "6kernelEv" in first and "4helpEv" not in first and "end inline asm" in first
    assert "6kernelEv" not in second and "4helpEv" in second and "inline asm" not in second


def test_ptxas_names_a_file_by_a_line_of_the_ptx(tmp_path: Path) -> None:
    one, two = (Member("relu_f32", "", f"file {number}").tag for number in (1, 2))
    ptx = PTX.format(one=f"{len(one)}{one}", two=f"{len(two)}{two}")
    (tmp_path / "kata.compute_75.ptx").write_text(ptx)
    for tag, word in ((one, "inline asm"), (two, "4helpEv")):
        line = next(number for number, text in enumerate(ptx.splitlines(), 1) if word in text)
        log = f"ptxas kata.compute_75.ptx, line {line}; error   : Feature 'cp.async' requires .target sm_80 or higher"
        assert unit.blamed(log, tmp_path) == {tag}


def test_units_are_cut_where_they_grow_too_large() -> None:
    members = [Member("k", "", f"{number:06}" + "x" * 9_994) for number in range(100)]
    sizes = [len(chunk) for chunk in unit.chunks(members, 1)]
    assert sum(sizes) == 100 and max(sizes) * 10_000 <= unit.MOST_BYTES
    assert len(list(unit.chunks(members[:4], 2))) == 2


# -- files with the launcher of another file

VIEWED = """#include "kata.cuh"
#include <cstdio>
constexpr int THREADS = 256;
static_assert(THREADS % 32 == 0, "whole warps");
struct Half {
    static __device__ float of(float x) { return x / 2; }
};
template <typename T>
__device__ __forceinline__ T relu(T x, T least = 0) {
    return x < least ? least : x;  // a nan stays
}
__host__ __device__ int blocks_of(int n) {
    return (n - 1) / THREADS + 1;
}
constexpr __device__ int shared_of(int n) {
    return n * 4;
}
__device__ auto width() {
    return 4;
}
namespace {
template <int N> __global__ void __launch_bounds__(THREADS) kernel(const float* x, float* y, int n) {
    if (threadIdx.x < n) { y[N] = relu(x[N]) + "{"[n]; }
}
}  // namespace
KATA_EXPORT void relu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) printf("nothing to do {");
    kernel<2><<<blocks_of(n), THREADS, 0, stream>>>(x, y, n);
}
"""


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("x < least ? least : x;", "least < x ? x : least;"),
        ("y[N] =", "y[N + 1] ="),
        ("if (threadIdx.x < n) {", "{\n        const int wide = width();\n"),
        ("  // a nan stays", ""),
        ("constexpr int THREADS", "// Of a block.\n\nconstexpr int THREADS"),
    ],
    ids=["a function", "a kernel", "more lines", "a comment", "a blank line"],
)
def test_a_body_for_the_device_is_not_in_the_host_view(was: str, becomes: str) -> None:
    assert VIEWED.count(was) == 1
    assert host_view(VIEWED.replace(was, becomes)) == host_view(VIEWED)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("kernel<2><<<", "kernel<3><<<"),
        ("blocks_of(n), THREADS", "blocks_of(n), 2 * THREADS"),
        ("nothing to do {", "nothing to do"),
        ("int THREADS = 256", "int THREADS = 128"),
        ("return (n - 1)", "return n"),
        ("return n * 4", "return n * 8"),
        ("return 4;", "return 4.0f;"),
        ("T least = 0", "T least = 1"),
        ("float* y, int n) {\n    if (threadIdx", "float* y, long n) {\n    if (threadIdx"),
        ("THREADS % 32 == 0", "THREADS % 64 == 0"),
        ("__launch_bounds__(THREADS)", "__launch_bounds__(THREADS, 2)"),
        ("template <int N> __global__ void", "template <int N> __global__ __attribute__((weak)) void"),
        ("return x / 2;", "return x / 4;"),
        ("template <int N> __global__", "template <int N = 2> __global__"),
        ("#include <cstdio>", "#include <cmath>"),
    ],
    ids=[
        "template argument", "grid", "text", "constant", "for host and device", "constexpr", "type of its body",
        "default argument", "signature", "static_assert", "launch bounds", "attribute", "member", "template", "header",
    ],
)  # fmt: skip
def test_what_the_host_compiles_is_in_its_view(was: str, becomes: str) -> None:
    assert VIEWED.count(was) == 1
    assert host_view(VIEWED.replace(was, becomes)) != host_view(VIEWED)


@pytest.mark.parametrize(
    "line",
    [
        "#define OPEN {",
        "#if 0",
        'const char* braces = R"(})";',
        "const long million = 1'000'000;",
        "__device__ int open() <% return 1; %>",
        "// goes on \\",
        "MACRO __device__ int f() { return 1; }",
        "__device__ int f() { return (1; }",
        "__device__ int f() {\n#include <cmath>\n    return 1; }",
    ],
)
def test_unclear_text_stays_in_the_host_view(line: str) -> None:
    """Of the file, or of the function: a macro may make one that is for the host too."""
    text = VIEWED.replace("constexpr int THREADS", f"{line}\nconstexpr int THREADS")
    assert "return 1" not in line or "return 1" in host_view(text) or "return (1" in host_view(text)
    assert "MACRO" in line or "cmath" in line or "y[N] =" in host_view(text)


# The kernel is wrong in another way in each. The launcher is the solution's.
BESIDE = {
    "out of bounds": ("if (idx < n) y[idx]", "y[idx]"),
    "wrong": ("return x < 0.0f ? 0.0f : x;", "return x < 1.0f ? 0.0f : x;"),
    "a race": ("if (idx < n) y[idx] = relu(x[idx]);", "if (idx < n) y[idx / 2] = relu(x[idx]);"),
    "an assertion": ("if (idx < n) y", "assert(idx < n);\n    y"),
    "a text": ("if (idx < n) y", 'if (idx == 0) printf("%s\\n", __func__);\n    if (idx < n) y'),
}
INCLUDED = """#include "kata.cuh"
#include <cassert>
#include <cstdio>
#include <cstdlib>
"""
# Names that kernels of others use: a file with a name of its own is compiled as a whole.
KNOWN = """
extern int of_the_host;
inline void at_end(void (*last)()) { atexit(last); }
__device__ inline void spare(int n) { assert(n); printf("%s", __func__); }
__device__ inline void spare(long n) { asm volatile("mov.b64 %0, %1;" : "=l"(n) : "l"(n)); }
__device__ inline void spare(unsigned n) { asm volatile("mov.b32 %0, %1;" : "=r"(n) : "r"(n)); }
"""


def kernels_beside(folder: Path, edits: Sequence[tuple[str, str]]) -> list[Path]:
    """Files of relu_f32, the first without an edit."""
    text = KATAS["relu_f32"].solution_path.read_text().replace('#include "kata.cuh"', INCLUDED)
    text = text.replace("constexpr int THREADS", f"{KNOWN}constexpr int THREADS")
    sources = []
    for number, (was, becomes) in enumerate([("", ""), *edits]):
        assert was in text
        sources.append(folder / str(number) / "relu_f32.cu")
        sources[-1].parent.mkdir()
        sources[-1].write_text(text.replace(was, becomes, 1))
    return sources


def use_the_usual_engine(patch: pytest.MonkeyPatch) -> None:
    """The simulator of the usual cache, for grades with another one: before that is set. They try no repairs in PTX
    that is close to the source: there is none of a file of a unit."""
    patch.setattr(source_like, "source_like_ptx", lambda *_: None)
    patch.setattr(source_like, "edited_ptx", lambda *_: None)
    patch.setattr(source_like, "solved_ptx", lambda *_: None)
    patch.setattr(built_variants, "variants", lambda *_: ("", []))
    library = engine_library(cache_folder())
    patch.setattr(pipeline, "engine_library", lambda folder, **_: library)


@pytest.fixture
def usual_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    use_the_usual_engine(monkeypatch)


AS_A_LEARNER = Options(device="sim", last_failure=False)


@pytest.fixture(scope="module")
def graded_alone(tmp_path_factory: pytest.TempPathFactory, forked_children: None) -> dict[Path, Grade]:
    """The files of BESIDE, each compiled alone."""
    folder = tmp_path_factory.mktemp("alone")
    _, *sources = kernels_beside(folder, list(BESIDE.values()))
    with pytest.MonkeyPatch.context() as patch:
        use_the_usual_engine(patch)
        patch.setenv("KATA_CACHE", str(folder / "cache"))
        return {source: grade(KATAS["relu_f32"], AS_A_LEARNER, source=source) for source in sources}


def requests_for(graded: dict[Path, Grade]) -> list[Request]:
    """The files, and before them the one without an edit."""
    first = next(iter(graded))
    return [request_for("relu_f32", source) for source in (first.parents[1] / "0" / first.name, *graded)]


def assert_graded_as(alone: Grade, source: Path) -> None:
    """The same is said of a file that shares a run of nvcc."""
    shared = grade(KATAS["relu_f32"], replace(AS_A_LEARNER, together=True), source=source)
    assert explanation(shared) == explanation(alone) and shared.verdict.printed == alone.verdict.printed


@pytest.fixture
def one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_build, "LEAST_BYTES", 1)


@pytest.mark.usefixtures("usual_engine", "empty_cache", "one_is_enough")
def test_files_with_one_launcher_share_its_library_and_have_the_verdicts_that_they_have_alone(
    graded_alone: dict[Path, Grade],
) -> None:
    """Two runs of nvcc: the whole first file, and the kernels of all others."""
    requests = requests_for(graded_alone)
    first, *others = built([strict(requests[0]), *requests[1:]], runs=2)
    assert isinstance(first, Build)
    told = set()
    for (source, alone), one in zip(graded_alone.items(), others, strict=True):
        assert isinstance(one, Build) and one.tag == first.tag and one.source.read_bytes() == source.read_bytes()
        assert one.library.read_bytes() == first.library.read_bytes()
        assert_graded_as(alone, source)
        told.add(explanation(alone))
    assert len(told) == len(others)
    assert "relu_f32_kernel" in alone.verdict.printed


@pytest.mark.usefixtures("usual_engine", "empty_cache", "one_is_enough")
def test_a_view_that_leaves_out_too_much_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above compares tells a launcher from another one; another kernel's name is noticed by the build."""
    monkeypatch.setattr(unit, "host_view", lambda text: "")
    few = ("const int blocks = (n - 1) / THREADS + 1;", "const int blocks = n / THREADS;")
    sources = kernels_beside(tmp_path, [few, ("relu_f32_kernel", "spare")])
    sources[2].write_text(sources[2].read_text().replace("relu_f32_kernel<<<", "spare<<<"))
    first, launched, named = build_all([request_for("relu_f32", source) for source in sources], find_toolchain())
    assert isinstance(first, Build) and isinstance(launched, Build) and isinstance(named, Build)
    assert launched.tag == first.tag and not named.tag
    options = replace(AS_A_LEARNER, smallest=False)
    alone = grade(KATAS["relu_f32"], options, source=sources[1])
    shared = grade(KATAS["relu_f32"], replace(options, together=True), source=sources[1])
    assert explanation(shared) != explanation(alone)


@pytest.mark.usefixtures("empty_cache", "one_is_enough")
def test_a_kernel_at_fault_is_told_so_as_if_alone_beside_others_with_its_launcher(tmp_path: Path) -> None:
    """Five runs: the first file and the others' kernels, the same of those that are not at fault, the one that is."""
    wrong_type = ("const int idx = ", "const int idx = y[n].x + ")
    sources = kernels_beside(tmp_path, [wrong_type, BESIDE["wrong"], BESIDE["a race"]])
    _, failure, wrong, race = built([request_for("relu_f32", source) for source in sources], runs=5)
    assert isinstance(failure, CompileFailure) and "class" in failure.message and failure.line is not None
    assert isinstance(wrong, Build) and isinstance(race, Build) and wrong.tag == race.tag


@pytest.mark.usefixtures("empty_cache", "one_is_enough")
def test_what_the_frontend_of_the_host_refuses_in_a_kernel_is_refused_without_it(tmp_path: Path) -> None:
    """A host function, a variable of the host, an operand of the wrong size."""
    was = "if (idx < n) y"
    bodies = [
        "atexit(0);",
        "y[0] = of_the_host;",
        'asm volatile("mov.b32 %0, %1;" : "=r"(n) : "l"(n));',
    ]
    sources = kernels_beside(tmp_path, [(was, f"{body}\n    {was}") for body in bodies])
    first, *others = build_all([request_for("relu_f32", source) for source in sources], find_toolchain())
    assert isinstance(first, Build) and all(isinstance(one, CompileFailure) for one in others)


@pytest.mark.usefixtures("one_is_enough")
def test_a_file_with_a_name_of_its_own_gets_a_library_of_its_own(tmp_path: Path) -> None:
    """What declares the name may be in a header that only others of the unit include."""
    sources = kernels_beside(tmp_path, [BESIDE["wrong"], ("x < 0.0f ? 0.0f : x;", "fmaxf(x, 0.0f);")])
    requests = [request_for("relu_f32", source) for source in sources]
    assert units_of([strict(requests[0]), *requests[1:]]) == [("0", "2"), ("kernels", "1")]


@pytest.mark.usefixtures("empty_cache")
def test_an_instruction_that_an_older_card_lacks_is_refused_beside_the_library_of_the_newest(tmp_path: Path) -> None:
    """Three runs: for the newest card, the kernels for the older one, and for that the whole file alone."""
    file = changed("relu_f32", tmp_path, "if (idx < n) y", 'asm volatile("cp.async.wait_all;");\n    if (idx < n) y')
    targets = (TARGETS[1], Target("sim", "sm_75"))
    newest, older = built([strict(request_for("relu_f32", file, target)) for target in targets], runs=3)
    assert isinstance(newest, Build) and newest.tag
    assert isinstance(older, CompileFailure) and has(older.message, "cp.async", "sm_80") and older.line is not None


@pytest.mark.usefixtures("empty_cache", "one_is_enough")
def test_a_library_that_is_not_made_is_made_of_the_next_file(tmp_path: Path) -> None:
    """Five runs: the first file, in which a warning is an error, and the others' kernels; these two; the first file."""
    sources = kernels_beside(tmp_path, [BESIDE["wrong"], BESIDE["a race"]])
    sources[0].write_text(
        sources[0].read_text().replace("const int idx", "const int of_no_use = n;\n    const int idx")
    )
    requests = [request_for("relu_f32", source) for source in sources]
    first, wrong, race = built([strict(requests[0]), *requests[1:]], runs=5)
    assert isinstance(first, CompileFailure) and "of_no_use" in first.message
    assert isinstance(wrong, Build) and isinstance(race, Build) and wrong.tag == race.tag != ""


@pytest.mark.usefixtures("usual_engine", "empty_cache")
def test_a_few_files_with_one_launcher_are_compiled_as_a_whole(graded_alone: dict[Path, Grade]) -> None:
    """What is found in these, and what they print, has the names that it has alone."""
    made = built(requests_for(graded_alone), runs=2)
    assert len({one.tag for one in made if isinstance(one, Build)}) == len(made)
    for beside in ("an assertion", "a text"):
        source, alone = list(graded_alone.items())[list(BESIDE).index(beside)]
        assert_graded_as(alone, source)
        assert (beside == "a text") == ("relu_f32_kernel" in alone.verdict.printed)
