"""The simulator: lanes of a warp need not run in step, so volatile code that counts on it goes wrong."""

from __future__ import annotations

import passed_before
import pytest
from sim_kernels.harness import HERE, given, open_device, run, unpack, wanted

from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

N = 128
X = [float(i % 17) for i in range(N)]
SUMS = [sum(X[start : start + 32]) for start in range(0, N, 32)]
SEEDS = 100


@pytest.fixture(scope="module")
def lanes() -> SimDevice:
    return open_device(HERE / "lanes.cu")


def answer(device: SimDevice, launcher: str, seed: int, count: int) -> list[float]:
    outcome = run(device, launcher, given("x", "f32", X), wanted("y", "f32", count), N, seed=seed)
    assert outcome.findings == (), (seed, outcome.findings)
    return unpack("f32", outcome.outputs["y"])


def test_volatile_tree_in_step_is_wrong_for_almost_every_seed(lanes: SimDevice) -> None:
    right = sum(answer(lanes, "tree_in_step", seed, len(SUMS)) == SUMS for seed in range(SEEDS))
    assert right <= SEEDS // 20


def test_volatile_tree_with_syncwarp_is_right_for_every_seed(lanes: SimDevice) -> None:
    for seed in range(SEEDS):
        assert answer(lanes, "tree_with_syncwarp", seed, len(SUMS)) == SUMS


def test_lane_may_wait_for_a_flag_of_its_warp(lanes: SimDevice) -> None:
    for seed in range(SEEDS):
        assert answer(lanes, "flag_in_a_warp", seed, 32) == [1.0 + X[0]] * 32
