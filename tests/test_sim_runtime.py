"""The simulator's CUDA runtime: cooperative launches, symbols, streams, events, queries, and what it refuses."""

from __future__ import annotations

import pytest
from sim_kernels.harness import HERE, given, line_of, open_device, run, unpack, wanted

from grader.devices import Finding, Outcome
from grader.devices.sim import SimDevice

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


@pytest.mark.parametrize("launcher", ["grid_sync", "launch_ex", "many_blocks"])
def test_a_cooperative_launch_synchronises_the_grid(device: SimDevice, launcher: str) -> None:
    expected = [value + 1 for value in reversed(X)]
    for seed in range(3):
        assert answer(device, launcher, seed=seed) == expected


def test_a_cooperative_launch_must_be_resident(h200: SimDevice) -> None:
    found = finding(h200, "too_many_blocks")
    assert found.kind == "launch failed"
    assert "4225 blocks cooperatively, but only 4224 are resident at once (32 on each of 132" in found.message


def test_grid_sync_of_a_plain_launch_is_found(h200: SimDevice) -> None:
    assert finding(h200, "not_cooperative").kind == "crash"


def test_symbols(h200: SimDevice) -> None:
    expected = [value * (i % 4 + 1) for i, value in enumerate(X[:128])]
    expected[:2] = [X[0] + X[1], 2 * (X[0] + X[1])]
    assert answer(h200, "symbols")[:128] == expected


def test_launch_bounds_are_enforced(h200: SimDevice) -> None:
    found = finding(h200, "over_bounds")
    assert found.kind == "launch failed" and "256 threads; __launch_bounds__ of the kernel allows 128" in found.message


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
    assert found.message == "calls through a null pointer"


REFUSED = {
    "managed": "cudaMallocManaged: memory that host and device share is not supported",
    "resets": "cudaDeviceReset: the device and its buffers belong to the grader",
    "clusters": "clusters of more than one block are not supported",
}


@pytest.mark.parametrize("launcher", REFUSED)
def test_what_is_refused_says_so(h200: SimDevice, launcher: str) -> None:
    found = finding(h200, launcher)
    assert found.kind == "unsupported" and REFUSED[launcher] in found.message
