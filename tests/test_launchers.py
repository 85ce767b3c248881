"""What a launcher does with streams and with copies: what is right passes, and the rest is found.

The rules are tested on the simulator, on lists of calls such as a GPU's library notes, and on what that library notes.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

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
    scratch_kept_from_call_to_call
"""


@pytest.mark.parametrize("launcher", RIGHT.split())
def test_right_launcher(device: SimDevice, launcher: str) -> None:
    for _ in range(2):  # a launcher may keep its streams
        done = run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), N)
        assert not done.findings
        added = 0 if launcher == "constants_uploaded" else 1
        assert unpack("f32", done.outputs["y"]) == [value + added for value in X]


WRONG = {
    "never_joined": ("race", "add_one_kernel", ["nobody joins"]),
    "joined_before_its_work": ("race", "add_one_kernel", ["nobody joins"]),
    "joined_but_for_the_last": ("race", "add_one_kernel", ["nobody joins"]),
    "waits_for_an_event_of_nobody": ("race", "add_one_kernel", ["nobody joins"]),
    "not_joined_by_the_default_stream": ("race", "add_one_kernel", ["nobody joins"]),
    "a_new_stream_in_its_place": ("race", "add_one_kernel", ["nobody joins"]),
    "never_forked": ("race", "add_one_kernel", ["does not wait for the launcher's"]),
    "copies_on_the_default_stream": ("race", None, ["cudaMemcpy", "the default stream"]),
    "clears_beside": ("race", None, ["cudaMemsetAsync", "does not wait for the launcher's"]),
    "host_function_beside": ("race", None, ["cudaLaunchHostFunc", "nobody joins"]),
    "input_to_the_host": ("not allowed", None, ["cudaMemcpy", "input x", "to the host"]),
    "input_by_scratch": ("not allowed", None, ["cudaMemcpyAsync", "input x", "to the host"]),
    "much_brought_back": ("not allowed", None, ["cudaMemcpy", "96 bytes", "more than 64", "to the host"]),
    "output_from_the_host": ("not allowed", None, ["cudaMemcpyAsync", "from the host", "output y"]),
    "output_by_scratch": ("not allowed", None, ["cudaMemcpyFromSymbolAsync", "from the host", "output y"]),
    "scratch_kept_that_was_freed": ("out of bounds", "add_one_kernel", []),
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
def test_the_probe_cannot_be_passed_by(said: str, tmp_path: Path) -> None:
    failure = for_gpu(KATA.solution_path.read_text() + REFUSED[said] + "\n", tmp_path)
    assert isinstance(failure, CompileFailure) and failure.kind is Kind.NOT_ALLOWED
    assert has(failure.message, said) and failure.line is not None
