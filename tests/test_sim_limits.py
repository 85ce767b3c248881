"""The simulator's limits: calls that go deep, arrays beside each other, every launch at and beyond what is allowed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from facts import has
from sim_kernels.harness import HERE, given, line_of, open_device, run, unpack, wanted

from grader.devices import Call, Finding, Limits, Outcome, Scalar
from grader.devices.sim import SimDevice
from grader.devices.sim.arrays import shared_arrays

SOURCE = HERE / "limits.cu"
N = 65
X = [float(i % 17) for i in range(128)]
SEEDS = range(20)

# cudaError_t of driver_types.h
INVALID_VALUE, INVALID_CONFIGURATION, OUT_OF_RESOURCES, COOPERATIVE_TOO_LARGE = 1, 9, 701, 720


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def outcome(device: SimDevice, launcher: str, *, seed: int = 0) -> Outcome:
    return run(device, launcher, given("x", "f32", X), wanted("y", "f32", 128), N, seed=seed)


def answer(device: SimDevice, launcher: str, *, seed: int = 0) -> list[float]:
    done = outcome(device, launcher, seed=seed)
    assert not done.findings, done.findings
    return unpack("f32", done.outputs["y"])


def finding(device: SimDevice, launcher: str, *, seed: int = 0) -> Finding:
    done = outcome(device, launcher, seed=seed)
    assert len(done.findings) == 1, done.findings
    return done.findings[0]


# ---- functions that call themselves


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def descend(outer: list[float], depth: int) -> float:
    mine = [0.0] * 4
    for k in range(4):
        mine[(k + depth) % 4] = outer[k] + depth
    if depth == 0:
        return mine[0] + mine[3]
    return descend(mine, depth - 1) + mine[depth % 4] + outer[1]


def first_frame(i: int) -> list[float]:
    return [X[i + (k - N) % 4] for k in range(4)]


def test_a_function_may_call_itself(device: SimDevice) -> None:
    for seed in range(3):
        assert answer(device, "fibonacci", seed=seed) == [fibonacci(i % 64 % 12) for i in range(128)]


def test_each_activation_has_its_own_variables(device: SimDevice) -> None:
    for seed in range(3):
        assert answer(device, "frames", seed=seed)[:64] == [descend(first_frame(i), i % 7) for i in range(64)]


def test_functions_may_call_each_other(device: SimDevice) -> None:
    assert answer(device, "mutual")[:64] == [2.0 * (i % 2 == 0) + (i % 2 == 1) for i in range(64)]


def test_an_activation_begins_uninitialised(device: SimDevice) -> None:
    found = finding(device, "reads_early")
    assert (found.kind, found.line) == ("uninitialised", line_of(SOURCE, "reads_early"))


def test_a_stack_overflow_names_the_call(device: SimDevice) -> None:
    for seed in SEEDS:
        found = finding(device, "overflow", seed=seed)
        assert (found.kind, found.line, found.thread) == ("crash", line_of(SOURCE, "overflow"), (37, 0, 0))
        assert found.kernel is not None and "overflow_kernel" in found.kernel
        assert has(found.message, "stack overflow", "wide", "4", "1024 bytes", "cudaDeviceSetLimit(cudaLimitStackSize")


def test_a_larger_stack_is_enough(device: SimDevice) -> None:
    values = answer(device, "deep_enough")
    at = [X[int(X[depth])] + depth for depth in range(6)]
    assert values[:64] == [sum(at[:6] if i == 37 else at[:2]) for i in range(64)]


# ---- arrays beside each other

NEIGHBOURS = {
    "next_array": ["writes", "first[32]", "past the end of first", "32 elements", "shared memory"],
    "array_before": ["reads", "second[-1]", "before the start of second", "32 elements", "shared memory"],
    "constant_past": ["reads", "first[9]", "2 elements past the end of first", "8 elements", "shared memory"],
}


@pytest.mark.parametrize("launcher", NEIGHBOURS)
def test_the_next_array_is_out_of_bounds(device: SimDevice, launcher: str) -> None:
    for seed in SEEDS:
        found = finding(device, launcher, seed=seed)
        assert (found.kind, found.line) == ("out of bounds", line_of(SOURCE, launcher)), found
        assert has(found.message, *NEIGHBOURS[launcher])


def test_pointers_to_two_arrays_are_left_alone(device: SimDevice) -> None:
    scanned = [sum(X[: i + 1]) for i in range(64)]
    for seed in SEEDS:
        assert answer(device, "two_arrays", seed=seed)[:64] == scanned[::-1]


# Kind, and the place as the source has it: all but one of these arrays are called grid.
PLACES = {
    "row_past": (
        "out of bounds",
        ["writes", "grid[4][0]", "past the end of grid", "4 x 9 elements", "shared memory"],
    ),
    "element_unwritten": ("uninitialised", ["reads", "grid[1][2][5]", "shared memory"]),
    "vector_unwritten": ("uninitialised", ["reads", "grid[3][4..7]", "16 bytes", "shared memory"]),
    "row_unknown": ("uninitialised", ["reads", "lattice[35]", "row by row", "shared memory"]),
}


@pytest.mark.parametrize("launcher", PLACES)
def test_an_element_of_several_dimensions(device: SimDevice, launcher: str) -> None:
    found = finding(device, launcher)
    kind, facts = PLACES[launcher]
    assert (found.kind, found.line) == (kind, line_of(SOURCE, launcher)), found
    assert has(found.message, *facts)


SHARED = """
#define LANES 32
constexpr int TILE = 2 * LANES, PAD = 16 / sizeof(float);  // not in __shared__ float x[1][2];
/* __shared__ float y[1][2]; */
template <int STAGES> __global__ void kernel() {
    constexpr int WIDTH = TILE / 3 + PAD - 1 % 2;
    __shared__ float a[TILE][TILE + 1], flat[8], b[(TILE - 4) * 2] [LANES];
    __shared__ __align__(16) unsigned char c[STAGES][2][WIDTH];
    __shared__ alignas(sizeof(float4)) volatile double d[LANES][STAGES];
    static __shared__ mine::type e[4][4u];
    extern __shared__ float f[][2];
    __shared__ float g[TILE << 1][0][n];
}
constexpr int TWICE = 1;
constexpr int TWICE = 2;
__shared__ half h[3][TWICE];
"""


def test_shapes_are_read_from_the_source_as_far_as_they_are_plain() -> None:
    assert [(array.name, array.itemsize, array.sizes) for array in shared_arrays(SHARED)] == [
        ("a", 4, (64, 65)),
        ("flat", 4, (8,)),
        ("b", 4, (120, 32)),
        ("c", 1, (None, 2, 24)),
        ("d", 8, (32, None)),
        ("e", None, (4, 4)),
        ("f", 4, ()),
        ("g", 4, (None, None, None)),
        ("h", 2, (3, None)),
    ]


# ---- instructions


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("launcher", ["instructions", "instructions_in_two_launches"])
def test_instructions_are_limited_to_the_last_one(launcher: str, threads: int) -> None:
    """However many host threads run the blocks, the same number is enough and one fewer is not."""
    device = open_device(SOURCE, threads=threads)
    arguments = (given("x", "f32", X), wanted("y", "f32", 128), N)
    counted = device.call(Call(launcher, arguments[:2], (Scalar("n", "int", N),), counters=True)).counters
    assert counted is not None
    needed = sum(kernel.warp_instructions for kernel in counted.kernels)  # one by one
    assert needed > 100_000
    for seed in range(3):
        done = run(device, launcher, *arguments, seed=seed, limits=Limits(instructions=needed))
        assert done.findings == () and done.counters and done.counters.warp_instructions == needed
        (found,) = run(device, launcher, *arguments, seed=seed, limits=Limits(instructions=needed - 1)).findings
        assert found.kind == "time-out" and has(found.message, str(needed - 1), "warp instructions")
        assert found.kernel is not None and "instructions_kernel" in found.kernel


def test_a_block_that_waits_leaves_the_processor_to_the_one_that_it_waits_for() -> None:
    """Two host threads on one processor: the waiting block's instructions count, too."""
    device, rounds = open_device(SOURCE, threads=2), 20_000
    arguments = (given("x", "f32", X), wanted("y", "f32", 128), rounds)
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        for seed in range(100):
            done = run(device, "waits", *arguments, seed=seed, limits=Limits(instructions=6 * rounds))
            assert not done.findings, (seed, done.findings)
    finally:
        os.sched_setaffinity(0, processors)


# ---- launches


def test_local_memory_has_a_limit(device: SimDevice) -> None:
    found = finding(device, "local_memory")
    assert found.kind == "launch failed"
    assert has(found.message, "800000 bytes", "local memory", "524288")


# grid, block, dynamic shared memory, launch bounds -> error, facts of what is said
GEOMETRIES = {
    "least": ((1, 1, 1), (1, 1, 1), 0, 0, 0, []),
    "most threads": ((1, 1, 1), (1024, 1, 1), 0, 0, 0, []),
    "most threads of all dimensions": ((3, 2, 2), (16, 1, 64), 0, 0, 0, []),
    "tall grid": ((1, 65535, 1), (1, 1, 1), 0, 0, 0, []),
    "deep grid": ((1, 1, 65535), (1, 1, 1), 0, 0, 0, []),
    "all of the shared memory": ((1, 1, 1), (32, 1, 1), 48 << 10, 0, 0, []),
    "launch bounds": ((1, 1, 1), (64, 1, 1), 0, 1, 0, []),
    "no block": ((0, 1, 1), (1, 1, 1), 0, 0, INVALID_CONFIGURATION, ["grid", "(0,1,1)"]),
    "no row of blocks": ((1, 0, 1), (1, 1, 1), 0, 0, INVALID_CONFIGURATION, ["grid", "(1,0,1)"]),
    "no thread": ((1, 1, 1), (0, 1, 1), 0, 0, INVALID_CONFIGURATION, ["block", "(0,1,1)"]),
    "no layer of threads": ((1, 1, 1), (8, 8, 0), 0, 0, INVALID_CONFIGURATION, ["block", "(8,8,0)"]),
    "one thread too many": ((1, 1, 1), (1025, 1, 1), 0, 0, INVALID_CONFIGURATION, ["1025 threads", "1024"]),
    "65536 threads": ((1, 1, 1), (65536, 1, 1), 0, 0, INVALID_CONFIGURATION, ["65536 threads", "1024"]),
    "a square too large": ((1, 1, 1), (33, 32, 1), 0, 0, INVALID_CONFIGURATION, ["1056 threads", "1024"]),
    "a block too deep": ((1, 1, 1), (1, 1, 65), 0, 0, INVALID_CONFIGURATION, ["(1024,1024,64)"]),
    "negative threads": ((1, 1, 1), (-1, 1, 1), 0, 0, INVALID_CONFIGURATION, ["4294967295"]),
    "threads beyond 64 bits": ((1, 1, 1), (1 << 30, 1 << 30, 16), 0, 0, INVALID_CONFIGURATION, ["1073741824"]),
    "a grid too tall": ((1, 65536, 1), (1, 1, 1), 0, 0, INVALID_CONFIGURATION, ["(2147483647,65535,65535)"]),
    "a grid too deep": ((1, 1, 65536), (1, 1, 1), 0, 0, INVALID_CONFIGURATION, ["(2147483647,65535,65535)"]),
    "negative blocks": ((-5, 1, 1), (1, 1, 1), 0, 0, INVALID_CONFIGURATION, ["grid", "(4294967291,1,1)"]),
    "a byte of shared memory too many": ((1, 1, 1), (32, 1, 1), (48 << 10) + 1, 0, INVALID_VALUE, ["49153 bytes"]),
    "300 KB of shared memory": ((1, 1, 1), (32, 1, 1), 300 << 10, 0, INVALID_VALUE, ["232448"]),
    "negative shared memory": ((1, 1, 1), (32, 1, 1), -4, 0, INVALID_VALUE, ["232448"]),
    "beyond launch bounds": (
        (1, 1, 1),
        (65, 1, 1),
        0,
        1,
        OUT_OF_RESOURCES,
        ["65 threads", "__launch_bounds__", "64"],
    ),
}


def errors(outcome: Outcome, expected: int, *facts: str) -> None:
    """The error is there until it is asked for, once, and a finding says why."""
    peeked, taken, again = unpack("f32", outcome.outputs["y"])[:3]
    assert (peeked, taken, again) == (expected, expected, 0)
    assert [found.kind for found in outcome.findings] == (["launch failed"] if expected else [])
    assert all(has(found.message, *facts) and "cudaGetLastError" not in found.message for found in outcome.findings)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_launch_at_a_limit_and_beyond(device: SimDevice, name: str) -> None:
    grid, block, shared, bounded, error, facts = GEOMETRIES[name]
    errors(run(device, "geometry", wanted("y", "f32", 4), *grid, *block, shared, bounded), error, *facts)


@pytest.mark.parametrize(("dynamic", "error"), [(0, 0), (4096, 0), (4097, INVALID_VALUE)])
def test_static_and_dynamic_shared_memory_share_the_limit(device: SimDevice, dynamic: int, error: int) -> None:
    said = ("49153 bytes", "45056 static", "4097 dynamic", "tile")
    errors(run(device, "static_shared", wanted("y", "f32", 4), dynamic), error, *said)
    over = ("249856 bytes", "45056 static", "204800 dynamic", "tile", "232448")
    errors(run(device, "static_shared", wanted("y", "f32", 4), 200 << 10), INVALID_VALUE, *over)


@pytest.mark.parametrize(
    ("limit", "dynamic", "refused", "error"),
    [
        (227 << 10, 227 << 10, 0, 0),
        (64 << 10, (64 << 10) + 1, 0, INVALID_VALUE),
        ((227 << 10) + 1, 48 << 10, INVALID_VALUE, INVALID_VALUE),
        (-1, 1 << 20, INVALID_VALUE, INVALID_VALUE),
    ],
)
def test_the_attribute_raises_the_limit(device: SimDevice, limit: int, dynamic: int, refused: int, error: int) -> None:
    run(device, "raised_shared", wanted("y", "f32", 4), 0, 0)  # what the function was told before stays with it
    outcome = run(device, "raised_shared", wanted("y", "f32", 4), limit, dynamic)
    assert unpack("f32", outcome.outputs["y"])[3] == refused
    if refused != INVALID_VALUE or dynamic > 48 << 10:
        errors(outcome, error, "bytes", "shared memory")


@pytest.mark.parametrize(("blocks", "error"), [(132 * 2, 0), (132 * 2 + 1, COOPERATIVE_TOO_LARGE)])
def test_a_cooperative_launch_must_be_resident(device: SimDevice, blocks: int, error: int) -> None:
    outcome = run(device, "cooperative", wanted("y", "f32", 4), blocks, 1024)
    assert unpack("f32", outcome.outputs["y"])[3] == error
    errors(outcome, error, "264", "resident")


def test_a_launcher_that_does_not_ask_is_told_so(device: SimDevice) -> None:
    found = run(device, "asks_for_nothing", wanted("y", "f32", 4), 2000).findings
    assert [item.kernel for item in found] == ["nothing_kernel"]
    assert has(found[0].message, "nothing_kernel", "2000 threads", "1024", "cudaGetLastError")


def test_a_launcher_may_launch_nothing(device: SimDevice) -> None:
    outcome = run(device, "launches_nothing", wanted("y", "f32", 4), 0)
    assert outcome.findings == () and outcome.counters and outcome.counters.launches == 0
    assert outcome.outputs["y"] == b"\xa5" * 16


# What needs most: every block of a cooperative launch at once, and tensors whose every granule is traced.
HUNGRY = """
import resource
from sim_benchmark import hgemm
from sim_kernels.harness import HERE, given, open_device, run, wanted
outcome = run(open_device(HERE / "tensor_cores.cu"), "hgemm", *hgemm(512))
assert not outcome.findings, outcome.findings
x = [1.0] * (1 << 16)
outcome = run(
    open_device(HERE / "runtime.cu"), "many_blocks", given("x", "f32", x), wanted("y", "f32", 1 << 16), 1 << 16
)
assert not outcome.findings, outcome.findings
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_process_keeps_below_2_gib() -> None:
    path = os.pathsep.join((str(HERE.parent.parent), str(HERE.parent)))
    child = subprocess.run(
        [sys.executable, "-c", HUNGRY], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr
    assert int(child.stdout.split()[-1]) < 2 << 20  # KiB


# ---- what stays from call to call


def test_device_variables_keep_their_values_between_calls() -> None:
    device = open_device(SOURCE)
    calls = [unpack("f32", run(device, "counts_calls", wanted("y", "f32", 2), 0).outputs["y"]) for _ in range(3)]
    assert calls == [[1, 13], [2, 23], [3, 33]]
    anew = [unpack("f32", run(device, "counts_anew", wanted("y", "f32", 2), 0).outputs["y"]) for _ in range(2)]
    assert anew == [[1, 43], [1, 53]]
