"""What a launcher does with streams and with copies: what is right passes, and the rest is found.

The rules are tested on the simulator, on lists of calls such as a GPU's library notes, and on what that library notes.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, given, open_device, run, unpack, wanted

from grader.compile import probe
from grader.compile.build import Build, CompileFailure, Request, Target, build, exported_names
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.devices import Finding
from grader.devices.host_copies import BACK_BYTES
from grader.devices.launcher_rules import LauncherRules
from grader.devices.runtime_calls import FROM_HOST, NON_BLOCKING, TO_HOST, WAITS, Region, RuntimeCall, parse
from grader.devices.sim import SimDevice
from grader.storage.cache import cache_folder
from grader.verdict import Kind

pytestmark = passed_before.REPOSITORY

SOURCE = HERE / "launchers.cu"
N = 512
X = [float(i % 31) for i in range(N)]
KATA = load_catalog(HERE.parent.parent).katas["elementwise_f32"]

# -- on the simulator


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


RIGHT = """
    fork_and_join kept_streams joined_by_another host_waits_for_the_stream host_waits_for_the_event host_waits_for_all
    host_asks_whether_all_is_done uploads_beside joined_by_the_default_stream
    constants_uploaded count_brought_back size_uploaded_and_scratch_copied scratch_used_again
    scratch_kept_from_call_to_call rows_by_way_of_scratch
    graph_of_two_streams graph_launched_later graph_kept_from_call_to_call captures_that_fail
"""


@pytest.mark.parametrize("launcher", RIGHT.split())
def test_right_launcher(device: SimDevice, launcher: str) -> None:
    for _ in range(2):  # a launcher may keep its streams
        done = run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), N)
        assert not done.findings
        added = 0 if launcher == "constants_uploaded" else 1
        assert unpack("f32", done.outputs["y"]) == [value + added for value in X]


WRONG = {
    "never_joined": ("race", "add_one_kernel", ["not joined"]),
    "joined_before_its_work": ("race", "add_one_kernel", ["not joined"]),
    "joined_but_for_the_last": ("race", "add_one_kernel", ["not joined"]),
    "waits_for_an_event_of_nobody": ("race", "add_one_kernel", ["not joined"]),
    "not_joined_by_the_default_stream": ("race", "add_one_kernel", ["not joined"]),
    "a_new_stream_in_its_place": ("race", "add_one_kernel", ["not joined"]),
    "never_forked": ("race", "add_one_kernel", ["does not wait for the launcher's"]),
    "copies_on_the_default_stream": ("race", None, ["cudaMemcpy", "the default stream"]),
    "clears_beside": ("race", None, ["cudaMemsetAsync", "does not wait for the launcher's"]),
    "host_function_beside": ("race", None, ["cudaLaunchHostFunc", "not joined"]),
    "input_to_the_host": ("not allowed", None, ["cudaMemcpy", "input x", "to the host"]),
    "input_by_scratch": ("not allowed", None, ["cudaMemcpyAsync", "input x", "to the host"]),
    "much_brought_back": ("not allowed", None, ["cudaMemcpy", "96 bytes", "more than 64", "to the host"]),
    "output_from_the_host": ("not allowed", None, ["cudaMemcpyAsync", "from the host", "output y"]),
    "output_by_scratch": ("not allowed", None, ["cudaMemcpyFromSymbolAsync", "from the host", "output y"]),
    "scratch_kept_that_was_freed": ("out of bounds", "add_one_kernel", []),
    "rows_of_an_input_to_the_host": ("not allowed", None, ["cudaMemcpy2DAsync", "input x", "to the host"]),
    "rows_of_scratch_to_the_host": ("not allowed", None, ["cudaMemcpy2D", "72 bytes", "more than 64", "to the host"]),
    "rows_from_the_host": ("not allowed", None, ["cudaMemcpy2DAsync", "from the host", "output y"]),
    "rows_past_the_end": ("out of bounds", None, ["cudaMemset2DAsync", "4 bytes", "y"]),
    "graph_with_an_input_to_the_host": ("not allowed", None, ["cudaMemcpyAsync", "input x", "to the host"]),
    "graph_with_an_output_from_the_host": ("not allowed", None, ["cudaMemcpyAsync", "from the host", "output y"]),
    "graph_with_much_brought_back": ("not allowed", None, ["cudaMemcpyAsync", "96 bytes", "to the host"]),
    "graph_on_another_stream": ("race", "add_one_kernel", ["not joined"]),
    "calls_without_end": ("unsupported", None, ["65536 calls"]),
}


@pytest.mark.parametrize("launcher", WRONG)
def test_wrong_launcher(device: SimDevice, launcher: str) -> None:
    kind, kernel, words = WRONG[launcher]
    for _ in range(2):
        findings = run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), N).findings
        assert [(found.kind, found.kernel) for found in findings] == [(kind, kernel)]
        assert has(findings[0].message, *words)


# -- on lists of calls

GIVEN, SIDE = 77, 88
X_AT, Y_AT, SCRATCH, HOST = 1 << 20, 1 << 21, 1 << 22, 1 << 30
PLACES = (Region("x", "in", X_AT, 4096), Region("y", "out", Y_AT, 4096))


def copied(to: int, from_: int, size: int, *, stream: int = GIVEN, name: str = "cudaMemcpyAsync") -> RuntimeCall:
    flags = (TO_HOST if to >= HOST else 0) | (FROM_HOST if from_ >= HOST else 0)
    return RuntimeCall("copy", flags, stream, 0, to, size, from_, size, size, name)


def line(call: RuntimeCall) -> str:
    numbers = (call.flags, call.stream, call.event, call.to, call.to_extent, call.from_, call.from_extent, call.bytes)
    return f"{call.verb} {' '.join(map(str, numbers))} {call.name}"


def found(*calls: RuntimeCall) -> list[Finding]:
    text = "\n".join(["call", *map(line, calls)])
    return LauncherRules().broken(text, GIVEN, [PLACES])


KERNEL = RuntimeCall("kernel", 0, GIVEN, name="k")


def test_bytes_of_a_call_that_may_come_back() -> None:
    most = copied(HOST, SCRATCH, BACK_BYTES)
    assert not found(KERNEL, most)
    assert [one.kind for one in found(KERNEL, most, copied(HOST, SCRATCH, 1))] == ["not allowed"]
    text = "\n".join(["call", line(KERNEL), line(most)])
    assert not LauncherRules().broken(f"{text}\n{text}\n", GIVEN, [PLACES, PLACES])


def test_what_scratch_holds_is_known_by_the_byte() -> None:
    taken = copied(SCRATCH + 8, X_AT, 8)
    assert not found(taken, copied(HOST, SCRATCH, 8)) and not found(taken, copied(HOST, SCRATCH + 16, 8))
    assert found(taken, copied(HOST, SCRATCH + 15, 1)) and found(taken, copied(HOST, SCRATCH, 9))
    assert not found(taken, RuntimeCall("fill", 0, GIVEN, 0, SCRATCH, 64, 0, 0, 64), copied(HOST, SCRATCH, 32))
    assert not found(taken, KERNEL, copied(HOST, SCRATCH, 32))
    given_back = copied(Y_AT, SCRATCH, 4)
    assert found(copied(SCRATCH, HOST, 4), given_back)
    assert not found(copied(SCRATCH, HOST, 4), copied(SCRATCH, X_AT, 4), given_back)


def test_copies_between_buffers_of_the_device_are_free() -> None:
    assert not found(copied(Y_AT, X_AT, 4096), copied(SCRATCH, HOST, 1 << 16), copied(HOST, HOST + 4096, 4096))


def test_an_updated_input_is_an_input_and_an_output() -> None:
    places = (Region("x", "updated", X_AT, 4096),)
    for call, words in ((copied(HOST, X_AT, 4), "the input x"), (copied(X_AT, HOST, 4), "the output x")):
        (finding,) = LauncherRules().broken("\n".join(["call", line(call)]), GIVEN, [places])
        assert has(finding.message, words)
    assert not LauncherRules().broken("\n".join(["call", line(copied(X_AT, SCRATCH, 4))]), GIVEN, [places])


def test_rows_count_as_all_between_them() -> None:
    rows = RuntimeCall("copy", TO_HOST, GIVEN, 0, HOST, 8, X_AT - 4096, 4100, 8, "cudaMemcpy2DAsync")
    assert [one.buffer for one in found(rows)] == ["x"]


def test_a_synchronous_copy_is_waited_for() -> None:
    upload = copied(SCRATCH, HOST, 4, stream=0, name="cudaMemcpy")
    waited = RuntimeCall("copy", upload.flags | WAITS, 0, 0, SCRATCH, 4, HOST, 4, 4, "cudaMemcpy")
    assert not found(waited, KERNEL) and [one.kind for one in found(upload, KERNEL)] == ["race"]


def test_a_stream_is_known_from_call_to_call() -> None:
    """Also an event that was recorded then; and what the grader waited for between calls is done."""
    rules = LauncherRules()
    kernel = RuntimeCall("kernel", 0, SIDE, name="k")
    opened, record, wait = (
        RuntimeCall("open", NON_BLOCKING, SIDE), RuntimeCall("record", 0, SIDE, 5), RuntimeCall("wait", 0, GIVEN, 5),
    )  # fmt: skip
    calls = [[opened, kernel, record, wait], [kernel, wait], [wait], [kernel, record, wait]]
    texts = ["\n".join(["call", *map(line, each)]) for each in calls]
    assert [len(rules.broken(text, GIVEN, [PLACES])) for text in texts] == [0, 1, 0, 0]


def test_of_many_calls_each_is_judged_and_the_last_may_be_cut() -> None:
    side = RuntimeCall("kernel", 0, SIDE, name="late")
    whole, cut = ["call", line(KERNEL)], ["call", line(side), "lost"]
    assert not LauncherRules().broken("\n".join(whole + cut), GIVEN, [PLACES, PLACES])
    assert LauncherRules().broken("\n".join(whole + cut[:2] + whole), GIVEN, [PLACES] * 3)[0].kernel == "late"
    assert LauncherRules().broken("\n".join(["call", line(KERNEL), "lost"]), GIVEN, [PLACES])[0].kind == "unsupported"


# -- what a library for a GPU notes; without one the runtime refuses every call, which is noted all the same

CALLS = """
    float* scratch = nullptr;
    cudaStream_t side = reinterpret_cast<cudaStream_t>(0x58);
    cudaEvent_t event = reinterpret_cast<cudaEvent_t>(0x99);
    cudaMemcpy(scratch, a, 4, cudaMemcpyDeviceToHost);
    cudaMemcpyAsync(scratch, b, 8, cudaMemcpyDefault, side);
    cudaMemcpy2DAsync(scratch, 16, b, 32, 8, 3, cudaMemcpyDefault, side);
    cudaMemsetAsync(c, 0, 12, stream);
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(side, event, 0);
    cudaStreamSynchronize(side);
    cudaEventSynchronize(event);
    cudaDeviceSynchronize();
    cudaLaunchHostFunc(side, [](void*) {}, nullptr);
    void* arguments[] = {&a, &b, &c, &n};
    cudaLaunchCooperativeKernel(elementwise_f32_kernel, dim3(1), dim3(32), arguments, 0, side);
    const auto copy = &cudaMemcpy;
    copy(scratch, a, 16, cudaMemcpyDefault);
"""
CALL_IT = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.kata_take_calls.restype = library.kata_take_launches.restype = ctypes.c_char_p
library.kata_next_call()
library.elementwise_f32(ctypes.c_void_p(256), ctypes.c_void_p(512), ctypes.c_void_p(768), 4, ctypes.c_void_p(77))
launches = library.kata_take_launches().decode()
print(json.dumps([library.kata_take_calls().decode(), library.kata_take_calls().decode(), launches]))
"""


def for_gpu(text: str, folder: Path) -> Build | CompileFailure:
    source = folder / f"{KATA.name}.cu"
    source.write_text(text)
    return build(Request(KATA, load_spec(KATA), source_of(source), Target("gpu", "sm_90a")), find_toolchain())


def with_calls(calls: str) -> str:
    text = KATA.solution_path.read_text()
    end = text.rindex("}")
    return text[:end] + calls + text[end:]


def test_what_a_library_notes(tmp_path: Path) -> None:
    built = for_gpu(with_calls(CALLS), tmp_path)
    assert isinstance(built, Build)
    done = subprocess.run([sys.executable, "-c", CALL_IT, built.library], capture_output=True, text=True, check=True)
    text, again, launches = json.loads(done.stdout.splitlines()[-1])
    (noted,) = parse(text)
    assert again == "" and noted.whole and len(launches.splitlines()) == 2
    first, *calls, cooperative, by_pointer = noted.calls
    assert (first.verb, first.stream) == ("kernel", 77) and (cooperative.verb, cooperative.stream) == ("kernel", 0x58)
    assert (by_pointer.name, by_pointer.from_, by_pointer.bytes) == ("cudaMemcpy", 256, 16)
    seen = [(call.verb, call.stream, call.event, call.to, call.from_, call.from_extent, call.bytes) for call in calls]
    assert seen == [
        ("copy", 0, 0, 0, 256, 4, 4),
        ("copy", 0x58, 0, 0, 512, 8, 8),
        ("copy", 0x58, 0, 0, 512, 72, 24),
        ("fill", 77, 0, 768, 0, 0, 12),
        ("record", 77, 0x99, 0, 0, 0, 0),
        ("wait", 0x58, 0x99, 0, 0, 0, 0),
        ("await_stream", 0x58, 0, 0, 0, 0, 0),
        ("await_event", 0, 0x99, 0, 0, 0, 0),
        ("await_all", 0, 0, 0, 0, 0, 0),
        ("host", 0x58, 0, 0, 0, 0, 0),
    ]
    assert calls[0].has(WAITS) and not calls[1].has(WAITS)


# What the probe notes of graphs, with a runtime that has streams and graphs but no device.
FAKE_RUNTIME = r"""
#include <cuda_runtime_api.h>
#include <cstdio>
static unsigned long long open[128];
static long handle = 1000;
template <class T> T next() { return reinterpret_cast<T>(++handle); }
extern "C" {
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id,
    cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
    *id = open[(long)s];
    *status = *id ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t __real_cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    open[(long)s] = ++handle;
    return cudaSuccess;
}
cudaError_t __real_cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
    const unsigned long long id = open[(long)s];
    for (auto& other : open) if (other == id) other = 0;
    *graph = next<cudaGraph_t>();
    return cudaSuccess;
}
cudaError_t __real_cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t, unsigned long long) {
    *made = next<cudaGraphExec_t>();
    return cudaSuccess;
}
cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t __real_cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t __real_cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t __real_cudaStreamWaitEvent(cudaStream_t to, cudaEvent_t, unsigned) {  // of the first stream
    open[(long)to] = open[11];
    return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t __wrap_cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t __wrap_cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t __wrap_cudaMemsetAsync(void*, int, size_t, cudaStream_t);
cudaError_t __wrap_cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
const char* kata_take_calls();
void kata_next_call();
}
static cudaStream_t stream(long number) { return reinterpret_cast<cudaStream_t>(number + 10); }
static void fill(long at, long on) { __wrap_cudaMemsetAsync(reinterpret_cast<void*>(at), 0, 4, stream(on)); }
static cudaGraphExec_t ended(long on) {
    cudaGraph_t graph;
    cudaGraphExec_t made;
    __wrap_cudaStreamEndCapture(stream(on), &graph);
    __wrap_cudaGraphInstantiate(&made, graph, 0);
    return made;
}
int main() {
    const cudaEvent_t event = next<cudaEvent_t>();
    kata_next_call();
    __wrap_cudaStreamBeginCapture(stream(1), cudaStreamCaptureModeRelaxed);
    __wrap_cudaStreamBeginCapture(stream(3), cudaStreamCaptureModeRelaxed);
    fill(100, 1);
    __wrap_cudaEventRecord(event, stream(1));
    __wrap_cudaStreamWaitEvent(stream(2), event, 0);
    fill(200, 2);
    fill(300, 3);
    fill(400, 4);
    const cudaGraphExec_t third = ended(3), first = ended(1);
    fill(500, 2);
    __wrap_cudaGraphLaunch(first, stream(5));
    kata_next_call();
    __wrap_cudaGraphLaunch(third, stream(6));
    __wrap_cudaGraphLaunch(third, stream(7));
    std::fputs(kata_take_calls(), stdout);
}
"""


def test_what_a_graph_does_is_noted_where_it_is_launched(tmp_path: Path) -> None:
    source, others, program = tmp_path / "runtime.cpp", tmp_path / "others.c", tmp_path / "runtime"
    source.write_text(FAKE_RUNTIME)
    toolchain = find_toolchain()
    made = probe.probe_object(toolchain, cache_folder())
    listed = subprocess.run(["nm", "-u", made], capture_output=True, text=True, check=True).stdout.split()
    missing = {name for name in listed if name.startswith(("cuda", "__real_")) and f" {name}(" not in FAKE_RUNTIME}
    others.write_text("".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in sorted(missing)))
    command = [str(toolchain.nvcc), *toolchain.nvcc_flags, "-cudart", "none", "-o", str(program)]
    subprocess.run([*command, str(source), str(others), str(made)], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    noted = [[(call.verb, call.to, call.stream) for call in of.calls] for of in parse(said)]
    assert noted == [
        [("fill", 400, 14), ("fill", 500, 12), ("fill", 100, 15), ("fill", 200, 15)],
        [("fill", 300, 16), ("fill", 300, 17)],
    ]


def test_a_library_shows_what_the_grader_calls_and_its_launcher(tmp_path: Path) -> None:
    built = for_gpu(KATA.solution_path.read_text(), tmp_path)
    assert isinstance(built, Build)
    own = {"kata_take_error", "kata_take_launches", "kata_take_calls", "kata_next_call"}
    assert set(exported_names(built.library)) == {KATA.name, *own}
    assert not hasattr(ctypes.CDLL(str(built.library)), "__wrap_cudaMemcpy")


def test_the_probe_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = probe.probe_object(find_toolchain(), cache_folder())
    monkeypatch.setattr(subprocess, "run", None)
    assert probe.probe_object(find_toolchain(), cache_folder()) == made and made.is_file()


REFUSED = {
    "defines __wrap_cudaMemcpy": 'extern "C" int __wrap_cudaMemcpy() { return 0; }',
    "defines kata_take_calls": 'extern "C" const char* kata_take_calls() { return ""; }',
    "defines cudaPointerGetAttributes": 'extern "C" cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, '
    "const void*) { return cudaSuccess; }",
    "defines cudaMemcpy": 'extern "C" __attribute__((weak)) cudaError_t cudaMemcpy(void*, const void*, size_t, '
    "cudaMemcpyKind) { return cudaSuccess; }",
    "calls kata_take_launches": 'extern "C" const char* kata_take_launches();\nauto taken = kata_take_launches();',
    "calls __real_cudaMemcpy": 'extern "C" int __real_cudaMemcpy();\nint copied = __real_cudaMemcpy();',
    "calls cudaMemcpyAsync_ptsz": 'extern "C" int cudaMemcpyAsync_ptsz();\nint copied = cudaMemcpyAsync_ptsz();',
    "calls cudaMemcpy3D": "static int copied() { return cudaMemcpy3D(nullptr); }\nint done = copied();",
    "calls cudaGraphCreate": "cudaGraph_t graph;\nint made = cudaGraphCreate(&graph, 0);",
}


@pytest.mark.parametrize("said", REFUSED)
def test_the_probe_cannot_be_passed_by(said: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if said.startswith("calls"):  # nvcc takes it; what defines a name a second time does not link, and is nvcc's
        request.getfixturevalue("nvcc_remembers")
    failure = for_gpu(KATA.solution_path.read_text() + REFUSED[said] + "\n", tmp_path)
    assert isinstance(failure, CompileFailure) and failure.kind is Kind.NOT_ALLOWED
    assert has(failure.message, said) and failure.line is not None
