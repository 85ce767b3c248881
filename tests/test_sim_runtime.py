"""The simulator's CUDA runtime: cooperative launches, symbols, streams, events, queries, and what it refuses."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from facts import has
from sim_kernels.harness import HERE, build, engine, given, line_of, open_device, pack, run, unpack, wanted

from grader.compile.build import exported_names
from grader.devices import Call, Finding, HostChange, Outcome, Scalar
from grader.devices.sim import SimDevice
from grader.judge.launcher_changes import ADD, BLOCK, BYTES, MULTIPLY, PARAMETER, SCALE, SET, TAKE

SOURCE = HERE / "runtime.cu"
N = 512
X = [float(i % 31) for i in range(N)]


@pytest.fixture(scope="module", params=["80", "90a"])
def device(request: pytest.FixtureRequest) -> SimDevice:
    return open_device(SOURCE, arch=request.param)


@pytest.fixture(scope="module")
def h200() -> SimDevice:
    return open_device(SOURCE, arch="90a")


def outcome(device: SimDevice, launcher: str, *, seed: int = 0) -> Outcome:
    return run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), N, seed=seed)


def answer(device: SimDevice, launcher: str, *, seed: int = 0) -> list[float]:
    done = outcome(device, launcher, seed=seed)
    assert not done.findings, done.findings
    return unpack("f32", done.outputs["y"])


def finding(device: SimDevice, launcher: str) -> Finding:
    done = outcome(device, launcher)
    assert len(done.findings) == 1, done.findings
    return done.findings[0]


def changed(device: SimDevice, launcher: str, *changes: HostChange) -> Outcome:
    """The call with numbers of its launches, or of its other calls, that the launcher does not give."""
    buffers = given("x", "f32", X), wanted("y", "f32", N)
    return device.call(Call(launcher, buffers, (Scalar("n", "int", N),), host=changes))


def test_numbers_of_a_launch_are_others_in_one_call(h200: SimDevice) -> None:
    assert finding(h200, "over_bounds").kind == "launch failed"
    fewer = changed(h200, "over_bounds", HostChange("bounded_kernel", BLOCK, SET, 128))
    assert not fewer.findings and unpack("f32", fewer.outputs["y"])[:128] == X[:128]
    assert finding(h200, "over_bounds").kind == "launch failed"


def test_parameters_of_a_launch_are_others(h200: SimDevice) -> None:
    kinds = changed(h200, "null_function", HostChange("pointers_kernel", PARAMETER + 3, ADD, -1))
    assert not kinds.findings
    assert kinds.outputs["y"] == outcome(h200, "pointers").outputs["y"]
    pointers = HostChange("pointers_kernel", PARAMETER, TAKE, PARAMETER + 1)
    assert [found.kind for found in changed(h200, "pointers", pointers).findings] == ["uninitialised"]


def test_floats_get_a_factor(h200: SimDevice) -> None:
    three = int.from_bytes(struct.pack("<f", 3.0), "little")
    scaled = changed(h200, "queries", HostChange("report_kernel", PARAMETER + 1, SCALE, three))
    before = unpack("f32", outcome(h200, "queries").outputs["y"])
    after = unpack("f32", scaled.outputs["y"])
    assert after[0] == 3 * before[0] != 0


def test_bytes_of_a_copy_are_others(h200: SimDevice) -> None:
    assert not outcome(h200, "symbols").findings
    [found] = changed(h200, "symbols", HostChange("cudaMemcpyAsync", BYTES, MULTIPLY, 2)).findings
    assert found.kind == "out of bounds" and has(found.message, "cudaMemcpyAsync", "8 bytes")


@pytest.mark.parametrize("launcher", ["grid_sync", "launch_ex", "many_blocks"])
def test_a_cooperative_launch_synchronises_the_grid(device: SimDevice, launcher: str) -> None:
    expected = [value + 1 for value in reversed(X)]
    for seed in range(3):
        assert answer(device, launcher, seed=seed) == expected


def test_a_cooperative_launch_must_be_resident(h200: SimDevice) -> None:
    found = finding(h200, "too_many_blocks")
    assert found.kind == "launch failed"
    assert has(found.message, "4225 blocks", "cooperative", "4224", "resident", "32 on each of 132")


def test_grid_sync_of_a_plain_launch_is_found(h200: SimDevice) -> None:
    assert finding(h200, "not_cooperative").kind == "crash"


def test_symbols(h200: SimDevice) -> None:
    expected = [value * (i % 4 + 1) for i, value in enumerate(X[:128])]
    expected[:2] = [X[0] + X[1], 2 * (X[0] + X[1])]
    assert answer(h200, "symbols")[:128] == expected


def test_launch_bounds_are_enforced(h200: SimDevice) -> None:
    found = finding(h200, "over_bounds")
    assert found.kind == "launch failed" and has(found.message, "256 threads", "__launch_bounds__", "128")


def test_queries_streams_events_and_pools(h200: SimDevice) -> None:
    devices, blocks, threads, unrecorded, elapsed, status, twice, pool = answer(h200, "queries")[:8]
    assert (devices, blocks, threads) == (1, 233472 // (41 << 10), 128)
    assert (unrecorded, elapsed, status, twice, pool) == (1, 1, 0, 1, 1)


def test_calls_through_pointers(device: SimDevice) -> None:
    assert answer(device, "pointers")[:128] == [value * (2 + i % 2) for i, value in enumerate(X[:128])]
    areas = [value * value if i % 3 else 7 * value for i, value in enumerate(X[:128])]
    assert answer(device, "virtual_functions")[:128] == areas


def test_a_call_through_a_null_pointer_is_found(device: SimDevice) -> None:
    found = finding(device, "null_function")
    assert (found.kind, found.line) == ("crash", line_of(SOURCE, "null_function"))
    assert has(found.message, "calls", "null pointer")


def test_what_is_said_of_addresses(h200: SimDevice) -> None:
    unregistered, host, device = 0.0, 1.0, 2.0
    kinds = [device, device, device, host, host, host, unregistered, unregistered]
    assert answer(h200, "addresses")[:15] == [*kinds, 1, 1, unregistered, 1, 0, 0, 0]


def test_textures_of_linear_memory(device: SimDevice) -> None:
    four = X[4] + 10 * X[5] + 100 * X[6] + 1000 * X[7]
    normalized = unpack("f32", pack("f32", [0xF3 / 255]))[0]
    short = 0xF3F2 - 0x10000
    expected = [four, 0, 0xF3, 0xF3 - 0x100, normalized, short, 0, *reversed(X[: N - 7])]
    assert answer(device, "textures") == expected


def test_malloc_in_kernels(device: SimDevice) -> None:
    sums = [sum(X[lane::32]) for lane in range(32)]
    for _ in range(2):
        assert answer(device, "allocations")[:65] == [*sums, *X[:32], 1]


MISUSED = {
    "fetches_after_the_end_of_the_object": ("crash", "fetches", ["texture object"]),
    "fetches_what_nobody_has_written": ("uninitialised", "fetches", ["cudaMalloc #1[0]"]),
    "texture_past_the_end": ("out of bounds", None, ["cudaCreateTextureObject", "x"]),
    "uses_freed": ("uninitialised", "uses_freed", ["malloc"]),
    "frees_twice": ("crash", "frees_twice", ["frees"]),
    "reads_beyond": ("uninitialised", "reads_beyond", ["malloc"]),
}


@pytest.mark.parametrize("launcher", MISUSED)
def test_a_wrong_use_of_textures_or_malloc_is_found(h200: SimDevice, launcher: str) -> None:
    kind, marker, facts = MISUSED[launcher]
    found = outcome(h200, launcher).findings[0]
    assert (found.kind, found.line) == (kind, marker and line_of(SOURCE, marker)) and has(found.message, *facts)


REFUSED = {
    "managed": ["cudaMallocManaged", "not supported"],
    "resets": ["cudaDeviceReset", "grader"],
    "reaches_the_host": ["cudaHostGetDevicePointer", "not supported"],
    "allocates_in_a_graph": ["cudaMallocAsync", "graph", "not supported"],
    "graph_in_a_graph": ["cudaGraphLaunch", "not supported"],
}


CALLED_ONCE = (
    "managed",
    "resets",
    "reaches_the_host",
    "graph_in_a_graph",
)  # the others are calls that may be right elsewhere


@pytest.mark.parametrize("launcher", REFUSED)
def test_what_is_refused_says_so(h200: SimDevice, launcher: str) -> None:
    found = finding(h200, launcher)
    assert found.kind == "unsupported" and has(found.message, *REFUSED[launcher])
    assert found.line == (line_of(SOURCE, launcher) if launcher in CALLED_ONCE else None)


OTHER_RUNTIME_FIRST = """
import ctypes, os, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)
import test_sim_runtime as tests
device = tests.open_device(tests.SOURCE)
for launcher in ("grid_sync", "symbols", "queries"):
    done = tests.outcome(device, launcher)
    assert not done.findings, done.findings
"""


def test_another_cuda_runtime_in_the_process_is_not_taken(tmp_path: Path) -> None:
    """torch with CUDA brings its own and loads it for all to use; without a GPU every call of it fails."""
    build(SOURCE)
    calls = [name for name in exported_names(engine()) if name.startswith(("cuda", "__cuda"))]
    assert {"cudaMalloc", "cudaLaunchKernel", "__cudaRegisterFatBinary"} <= set(calls)
    source, library = tmp_path / "runtime.c", tmp_path / "libcudart.so"
    source.write_text("void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in calls))
    subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-o", library, source], check=True)
    command = [sys.executable, "-c", OTHER_RUNTIME_FIRST, str(library)]
    paths = {"PYTHONPATH": f"{HERE.parent.parent}{os.pathsep}{HERE.parent}"}
    done = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
