"""What a kata may call and include, and what it may not; each refusal names the thing and its line.

Whole files that are refused stand in tests/exploits. Here are those that come close and must pass.
"""

from __future__ import annotations

import sys
from pathlib import Path

import passed_before
import pytest

from grader.compile.build import Build, CompileFailure, Request, Target, build
from grader.compile.libraries import CUTLASS_FIX, LibraryMissing, find_library, library_of_header
from grader.compile.symbols import may_call, refused_header
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import Kata, load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.grade import Options, grade
from grader.output.verdict_text import explanation
from grader.verdict import Kind

pytestmark = [passed_before.REPOSITORY, pytest.mark.usefixtures("forked_children")]

ROOT = Path(__file__).resolve().parent.parent
KATA = load_catalog(ROOT).katas["elementwise_f32"]

HOST = """
#include "kata.cuh"
#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual int threads() const { return 256; }
};

__global__ void add(const float* a, const float* b, float* c, int n) {
    const int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < n) c[idx] = a[idx] + b[idx];
}

// Words that must not matter: cublasSgemm, dlopen("libcudnn.so"), std::thread, system("rm"), thrust::sort, cub::
KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    static std::mutex one_at_a_time;
    static std::unordered_map<int, std::string> seen;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    const auto begin = std::chrono::steady_clock::now();
    const std::shared_ptr<Shape> shape = std::make_shared<Shape>();
    std::vector<double> numbers(16, 2.5);
    std::mt19937 random(n);
    for (double& number : numbers) number = std::sqrt(std::pow(random() % 7, 1.5)) + std::sin(n) + std::erf(0.5);
    std::sort(numbers.begin(), numbers.end());
    std::map<std::string, double> names{{"smallest", numbers.front()}};
    try {
        seen[n] = std::to_string(std::max(n, 1)) + std::getenv("PATH");
        if (numbers.back() < 0) throw std::runtime_error("less than nothing");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\\n", error.what());
    }
    if (n == 0) return;
    const int threads = shape->threads(), blocks = (n - 1) / threads + 1;
    cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024);
    add<<<blocks, threads, 0, stream>>>(a, b, c, n);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s %g s, %u processors\\n", seen[n].c_str(), took.count(), std::thread::hardware_concurrency());
    std::cout << names["smallest"] << std::endl;
    assert(cudaGetLastError() == cudaSuccess);
}
"""


def on_sim(text: str, folder: Path, kata: Kata = KATA) -> Build | CompileFailure:
    source = folder / f"{kata.name}.cu"
    source.write_text(text)
    return build(Request(kata, load_spec(kata), source_of(source), Target("sim", "sm_90a")), find_toolchain())


def test_host_code_may_use_the_standard_library(tmp_path: Path) -> None:
    source = tmp_path / "elementwise_f32.cu"
    source.write_text(HOST)
    result = grade(KATA, Options(device="sim"), source=source)
    assert result.passed, explanation(result)


@pytest.mark.parametrize(
    "name",
    """
    cudaLaunchKernelExC __cudaLaunchKernel cudaMemcpyAsync cudaOccupancyMaxActiveBlocksPerMultiprocessor
    memcpy __memcpy_chk printf __printf_chk __isoc99_sscanf __isoc23_strtol qsort expf log2f sincos _Znwm _ZdlPvm _Znam
    _ZSt4cout _ZNSo3putEc _ZNSt8ios_base4InitC1Ev _ZNSt6chrono3_V212steady_clock3nowEv _ZTISt9exception _ZTVSt9exception
    _ZTVN10__cxxabiv117__class_type_infoE __cxa_throw _Unwind_Resume __gxx_personality_v0 _ZNSs4_Rep10_M_destroyERKSaIcE
    _ZNSt6thread20hardware_concurrencyEv pthread_mutex_lock __libc_single_threaded _ZNKSt5ctypeIcE13_M_widen_initEv
    _ZSt16__ostream_insertIcSt11char_traitsIcEERSt13basic_ostreamIT_T0_ES6_PKS3_l stdout abort fork _exit
    """.split(),  # noqa: SIM905
)
def test_may_call(name: str) -> None:
    assert may_call(name)


@pytest.mark.parametrize(
    "name",
    """
    cublasCreate_v2 cublasGemmEx cublasLtMatmul cudnnCreate cusparseCreate nvrtcCompileProgram ncclAllReduce
    dlopen dlsym dlmopen __libc_dlopen_mode pthread_create thrd_create system popen posix_spawn execve vfork clone
    mmap mprotect syscall ptrace cuLaunchKernel cuModuleLoadData cuInit openblas_dgemm
    _ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE _ZNSt6thread4joinEv
    _ZN7cutlass4gemmEv _ZN3foo3barEv
    """.split(),  # noqa: SIM905
)
def test_may_not_call(name: str) -> None:
    assert not may_call(name)


def test_a_kata_may_call_its_libraries() -> None:
    assert may_call("cublasGemmEx", ("cublas",)) and not may_call("cublasGemmEx", ("cutlass",))
    assert not may_call("cudnnCreate", ("cublas", "cutlass"))


def test_tensor_maps_alone_come_from_the_driver() -> None:
    for name in ("cuTensorMapEncodeTiled", "cudaGetDriverEntryPointByVersion", "cudaGetDriverEntryPoint"):
        assert may_call(name, ("driver",)) and not may_call(name) and not may_call(name, ("cublas",))
    assert not may_call("cuLaunchKernel", ("driver",)) and not may_call("cuModuleLoad", ("driver",))


def test_headers() -> None:
    assert library_of_header("/usr/local/cuda/include/cccl/cub/block/block_reduce.cuh") == "CUB"
    assert library_of_header("/usr/local/cuda/include/cccl/thrust/sort.h") == "Thrust"
    assert library_of_header("/opt/x/include/cute/tensor.hpp") == "CUTLASS"
    for path in (
        "/usr/local/cuda/include/cuda_fp16.h",
        "/usr/local/cuda/include/cccl/cuda/std/barrier",
        "/usr/a/cub.h",
    ):
        assert library_of_header(path) is None


def test_a_folder_of_the_learners_own_may_have_any_name(tmp_path: Path) -> None:
    own = tmp_path / "cub" / "katas"
    own.mkdir(parents=True)
    header = own / "cute" / "mine.h"
    dependencies = f"kata.o : kata.cu \\\n    {header} \\\n    signature.h\n"
    assert refused_header(dependencies, [own], "", (), solutions=tmp_path / "solutions") is None
    text = '#include "mine.h"\n#include <cute/mine.h>\n'
    refusal = refused_header(dependencies, [], text, (), solutions=tmp_path / "solutions")
    assert refusal is not None and refusal.line == 2
    assert refused_header(dependencies, [], "", ("cutlass",), solutions=tmp_path / "solutions") is None


def test_its_own_header_is_no_librarys(tmp_path: Path) -> None:
    (tmp_path / "thrust").mkdir()
    (tmp_path / "thrust" / "mine.h").write_text("constexpr int MINE = 1;\n")
    text = KATA.solution_path.read_text().replace(
        '#include "kata.cuh"', '#include "kata.cuh"\n#include "thrust/mine.h"'
    )
    assert isinstance(on_sim(text, tmp_path), Build)


def test_line_of_a_c_name(tmp_path: Path) -> None:
    text = (
        KATA.solution_path.read_text() + '\nextern "C" int cudnnCreate(void**);\nint unused = cudnnCreate(nullptr);\n'
    )
    failure = on_sim(text, tmp_path)
    assert isinstance(failure, CompileFailure) and failure.kind is Kind.NOT_ALLOWED
    assert failure.line == text.splitlines().index('extern "C" int cudnnCreate(void**);') + 1
    assert "calls cudnnCreate (cuDNN)" in failure.message and "the CUDA runtime" in failure.message


# -- libraries that are not there


def test_cutlass_path_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    with pytest.raises(LibraryMissing, match="CUTLASS_PATH is"):
        find_library("cutlass", toolkit=tmp_path, device="sim")


def test_cutlass_from_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for header in ("cutlass/version.h", "cute/tensor.hpp"):
        path = tmp_path / "include" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    assert find_library("cutlass", toolkit=tmp_path, device="sim").place == tmp_path / "include"


def test_missing_library_is_said_with_what_mends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str, **_: object) -> None:
        raise LibraryMissing(f"the CUTLASS headers (CuTe) are not on this machine. {CUTLASS_FIX}")

    monkeypatch.setattr("grader.compile.build.find_library", missing)
    kata = next(kata for kata in load_catalog(ROOT).katas.values() if "cutlass" in kata.libraries)
    result = grade(kata, Options(device="sim"), source=kata.solution_path)
    assert result.verdict.kind is Kind.UNSUPPORTED
    story = explanation(result)
    assert "pip install --no-deps nvidia-cutlass" in story and "--device gpu" not in story


@pytest.mark.parametrize("folder", ["lib64", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"])
def test_libraries_of_a_toolkit_for_a_gpu(tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    stub, cublas = tmp_path / folder / "stubs" / "libcuda.so", tmp_path / folder / "libcublas.so"
    for name, place in (("driver", stub), ("cublas", cublas)):
        with pytest.raises(LibraryMissing):
            find_library(name, toolkit=tmp_path, device="gpu")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        found = find_library(name, toolkit=tmp_path, device="gpu")
        assert found.place == place and str(place) in found.flags


def test_cublas_needs_no_library_on_the_simulator(tmp_path: Path) -> None:
    found = find_library("cublas", toolkit=tmp_path, device="sim")
    assert (found.place / "cublas_v2.h").is_file()
