"""Products as GEMM libraries for sm_90 build them: right on every schedule, and wrong where one step is missing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from facts import has
from sim_kernels.harness import HERE, line_of, open_device, run, wanted

from grader.devices import Buffer, Outcome
from grader.devices.sim import SimDevice

SOURCE = HERE / "libraries.cu"
Array = npt.NDArray[np.generic]


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def buffer(name: str, values: Array) -> Buffer:
    kind = {1: "u8", 2: "f16", 4: "f32"}[values.itemsize]
    return Buffer(name, "in", kind, values.itemsize, (values.size,), values.tobytes(), 0)


def whole(low: int, high: int, *shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(low, high, shape)


# -- fp8 with scales of blocks ---------------------------------------------------------------------------------------

M, N, K, DEEP = 512, 192, 5 * 128, 128
E4M3 = np.array([0, 0x38, 0x40, 0xB8, 0xC0], np.uint8)  # 0, 1, 2, -1, -2
VALUES = np.array([0, 1, 2, -1, -2], np.float32)
A, B = whole(0, 5, M, K), whole(0, 5, N, K)
ROW_SCALES = 2.0 ** whole(-2, 2, K // DEEP, M).astype(np.float32)
BLOCK_SCALES = 2.0 ** whole(-2, 2, -(-N // DEEP), K // DEEP).astype(np.float32)


def scaled(device: SimDevice, launcher: str, seed: int) -> Outcome:
    given = [("a", E4M3[A]), ("row_scales", ROW_SCALES), ("b", E4M3[B]), ("block_scales", BLOCK_SCALES)]
    arguments = [buffer(name, np.ascontiguousarray(values)) for name, values in given]
    return run(device, launcher, *arguments, wanted("c", "f16", M * N), M, N, K, seed=seed)


def scaled_product() -> Array:
    a = VALUES[A].reshape(M, -1, DEEP) * ROW_SCALES.T[:, :, None]
    b = VALUES[B].reshape(N, -1, DEEP) * np.repeat(BLOCK_SCALES, DEEP, axis=0)[:N, :, None]
    made: Array = (a.reshape(M, K) @ b.reshape(N, K).T).astype(np.float16)
    return made


# -- f16 ---------------------------------------------------------------------------------------------------------------

ROWS, COLUMNS, LONG = 256, 128, 5 * 64
SLOW_A, SLOW_B = whole(-2, 3, LONG, ROWS).astype(np.float16), whole(-2, 3, LONG, COLUMNS).astype(np.float16)
FAST_A, FAST_B = np.ascontiguousarray(SLOW_A.T), np.ascontiguousarray(SLOW_B.T)
C = whole(-9, 10, ROWS, COLUMNS).astype(np.float16)
PRODUCT = FAST_A.astype(np.float32) @ SLOW_B.astype(np.float32)  # whole numbers that f16 has


def product(device: SimDevice, launcher: str, seed: int) -> Outcome:
    sizes = ROWS, COLUMNS, LONG
    if launcher.startswith("added"):
        given = [buffer(name, values) for name, values in (("a", FAST_A), ("b", FAST_B), ("c", C))]
        return run(device, launcher, *given, wanted("d", "f16", ROWS * COLUMNS), *sizes, seed=seed)
    given = [buffer("a", SLOW_A), buffer("b", SLOW_B)]
    return run(device, launcher, *given, wanted("c", "f16", ROWS * COLUMNS), *sizes, seed=seed)


def outcome(device: SimDevice, launcher: str, seed: int) -> Outcome:
    call = scaled if "scaled" in launcher else product
    return call(device, launcher, seed)


# launcher -> what it must make
RIGHT = {
    "block_scaled": scaled_product(),
    "inline_copies": PRODUCT.T,
    "thread_copies": PRODUCT.T,
    "added_tiles": PRODUCT + C,
}


@pytest.mark.parametrize("launcher", RIGHT)
def test_right_for_every_seed(device: SimDevice, launcher: str, right_seeds: range) -> None:
    expected = RIGHT[launcher]
    for seed in right_seeds:
        done = outcome(device, launcher, seed)
        assert not done.findings, (seed, done.findings)
        (made,) = done.outputs.values()
        assert (np.frombuffer(made, np.float16).reshape(expected.shape) == expected).all(), seed


# launcher -> kind, the line's markers, facts in the message
WRONG: dict[str, tuple[str, list[str], list[str]]] = {
    "scaled_no_lane_order": ("race", ["scales_load", "scales_read"], ["memory[", "no barrier between"]),
    "scaled_leaves_early": ("race", ["scaled_store"], ["exits while", "may still read"]),
    "scaled_keeps_last_lap": ("race", ["scaled_free"], ["shared memory of block rank", "exit"]),
    "inline_fills_at_once": ("race", ["inline_load", "stage_read"], ["may still read", "ring["]),
    "threads_no_proxy": ("race", ["threads_copy", "stage_read"], ["fence.proxy.async", "ring["]),
    "added_frees_at_once": ("race", ["added_load", "added_store"], ["may still read"]),
    "added_lanes_do_not_wait": ("race", ["added_load", "added_store"], ["may still read"]),
    "added_first_lane_stores": ("race", ["added_load", "added_store"], ["may still read"]),
}


@pytest.mark.parametrize("launcher", WRONG)
def test_misuse_is_found(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kind, markers, facts = WRONG[launcher]
    for seed in wrong_seeds:
        (found,) = outcome(device, launcher, seed).findings
        assert found.kind == kind and has(found.message, *facts), (seed, found)
        lines = [line_of(SOURCE, marker) for marker in markers]
        assert any(line in (found.line, *found.callers) for line in lines), (seed, found)


def test_each_thread_waits_for_its_own_copies_alone(device: SimDevice, wrong_seeds: range) -> None:
    """Before a warp's products, the copies of another one may be under way, or not begun."""
    for seed in wrong_seeds:
        (found,) = outcome(device, "threads_no_barrier", seed).findings
        assert found.kind in ("race", "uninitialised") and has(found.message, "ring["), (seed, found)
        lines = [line_of(SOURCE, marker) for marker in ("threads_copy", "stage_read")]
        assert any(line in (found.line, *found.callers) for line in lines), (seed, found)


def test_an_address_of_the_elected_lane_is_right_for_the_first_alone(device: SimDevice, wrong_seeds: range) -> None:
    for seed in wrong_seeds:
        done = outcome(device, "scaled_elected_address", seed)
        if seed % 2 == 0:
            assert not done.findings, (seed, done.findings)
            continue
        (found,) = done.findings
        assert found.kind == "misaligned" and has(found.message, "12 bytes past a multiple of 128"), (seed, found)
