"""Clusters on the simulator: what blocks hand to each other, and what goes wrong when one does not wait for another."""

from __future__ import annotations

import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, given, line_of, open_device, run, unpack, wanted

from grader.devices import Call, Card, Outcome, Scalar
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE = HERE / "clusters.cu"
THREADS, SIZE, BLOCKS = 64, 4, 8
N = THREADS * BLOCKS
X = [float(i % 97) for i in range(N)]


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def outcome(device: SimDevice, launcher: str, seed: int) -> Outcome:
    return run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), N, seed=seed)


def from_next(block_of: int, scale: float = 1) -> list[float]:
    """What each block has when it gets the tile of the block ``block_of`` places on in its cluster."""
    blocks = [b // SIZE * SIZE + (b + block_of) % SIZE for b in range(BLOCKS)]
    return [scale * X[b * THREADS + t] for b in blocks for t in range(THREADS)]


def multicast_sums() -> list[float]:
    sums = []
    for cluster in range(BLOCKS // SIZE):
        rows = [X[(cluster * 3 + r) * THREADS : (cluster * 3 + r + 1) * THREADS] for r in range(3)]
        sums += [sum(row[THREADS - 1 - t] for row in rows) for t in range(THREADS)] * SIZE
    return sums


def sums_of_rounds() -> list[float]:
    firsts = [sum(X[b * THREADS : b * THREADS + 5]) for b in range(BLOCKS)]
    return [sum(firsts[b // SIZE * SIZE : b // SIZE * SIZE + SIZE]) for b in range(BLOCKS) for _ in range(THREADS)]


RIGHT = {
    "rounds": sums_of_rounds,
    "next": lambda: from_next(1),
    "message": lambda: from_next(SIZE - 1),
    "bulk": lambda: from_next(SIZE - 1, 2),
    "multicast": multicast_sums,
}


@pytest.mark.parametrize("launcher", RIGHT)
def test_right_for_every_seed(device: SimDevice, launcher: str, right_seeds: range) -> None:
    expected = RIGHT[launcher]()
    for seed in right_seeds:
        done = outcome(device, launcher, seed)
        assert not done.findings, (seed, done.findings)
        assert unpack("f32", done.outputs["y"]) == expected


def test_cooperative_groups(device: SimDevice, right_seeds: range) -> None:
    for seed in right_seeds:
        done = outcome(device, "histogram", seed)
        assert not done.findings, (seed, done.findings)
        y = unpack("f32", done.outputs["y"])
        for cluster in range(BLOCKS // SIZE):
            values = [int(x) % 32 for x in X[cluster * SIZE * THREADS : (cluster + 1) * SIZE * THREADS]]
            assert y[cluster * 32 : (cluster + 1) * 32] == [values.count(bin) for bin in range(32)]
        assert y[BLOCKS * 8 : BLOCKS * 9] == [SIZE * 100 + b % SIZE for b in range(BLOCKS)]


def test_several_threads_add_to_one_place(device: SimDevice, right_seeds: range) -> None:
    for seed in right_seeds:
        done = outcome(device, "sum", seed)
        assert not done.findings, (seed, done.findings)
        y = unpack("f32", done.outputs["y"])
        for block in range(BLOCKS):
            before = block // SIZE * SIZE + (block - 1) % SIZE
            total = sum(int(x) for x in X[before * THREADS : (before + 1) * THREADS])
            assert y[block * THREADS : (block + 1) * THREADS] == [float(total)] * THREADS


# launcher -> kinds, the line's markers, facts in the message
WRONG: dict[str, tuple[set[str], list[str], list[str]]] = {
    "next_no_first_sync": ({"race", "uninitialised"}, ["next_read"], ["tile["]),
    "next_no_last_sync": ({"race"}, ["next_read"], ["block rank", "cluster"]),
    "next_relaxed": ({"race"}, ["next_read"], ["tile[", "block rank"]),
    "next_twice": ({"deadlock"}, ["next_twice"], ["second time"]),
    "next_no_arrival": ({"deadlock"}, ["next_wait"], ["has not arrived"]),
    "next_no_such_rank": ({"out of bounds"}, ["next_read"], ["block rank 4", "4 blocks"]),
    "message_late_init": ({"race", "uninitialised"}, ["message_send"], ["bar"]),
    "rounds_late_init": ({"uninitialised"}, ["rounds_send"], ["bar[", "mbarrier.init in block rank"]),
    "sum_not_cleared": ({"uninitialised"}, ["sum_add"], ["counter"]),
    "sum_past_the_end": ({"out of bounds"}, ["sum_add"], ["shared memory of block"]),
    "multicast_own_free": ({"race", "crash"}, ["multicast_load", "multicast_read"], ["tile["]),
    "multicast_no_last_lap": ({"race"}, ["multicast_free"], ["block rank 0"]),
    "multicast_bad_mask": ({"crash"}, ["multicast_load"], ["mask 31", "4 blocks"]),
    "multicast_waits_remotely": ({"crash"}, ["multicast_wait"], ["another block"]),
}


@pytest.mark.parametrize("launcher", WRONG)
def test_misuse_is_found(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kinds, markers, facts = WRONG[launcher]
    for seed in wrong_seeds:
        found = outcome(device, launcher, seed).findings
        assert len(found) == 1, (launcher, seed, found)
        assert found[0].kind in kinds and has(found[0].message, *facts), (seed, found)
        assert found[0].line in [line_of(SOURCE, marker) for marker in markers], (seed, found)


def launch(device: SimDevice, launcher: str, blocks: int, wide: int, high: int = 1) -> Outcome:
    return run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), blocks, wide, high)


def test_a_small_card_runs_a_cluster(device: SimDevice) -> None:
    for card, clusters in [(None, 132 * 32 // SIZE), (Card(2, 1), 1)]:
        buffers = (given("x", "f32", X), wanted("y", "f32", N))
        scalars = (Scalar("blocks", "int", 8), Scalar("wide", "int", SIZE), Scalar("high", "int", 1))
        done = device.call(Call("ask", buffers, scalars, card=card))
        assert unpack("f32", done.outputs["y"])[0] == float(clusters)


def test_launches_with_an_attribute(device: SimDevice) -> None:
    for launcher, size in [("launch", 1), ("launch", 2), ("launch", 8), ("launch_large", 16)]:
        done = launch(device, launcher, 16, size)
        assert not done.findings, done.findings
        assert unpack("f32", done.outputs["y"])[:16] == [float(b % size) for b in range(16)]


REFUSED = {
    ("launch", 6, 4, 1): ["(4,1,1)", "not a multiple"],
    ("launch", 4, 2, 2): ["(2,2,1)", "not a multiple"],
    ("launch", 16, 16, 1): ["(16,1,1)", "limit is 8"],
    ("launch_large", 32, 32, 1): ["(32,1,1)", "limit is 16"],
    ("launch_dims", 8, 2, 1): ["(2,1,1)", "__cluster_dims__", "(4,1,1)"],
}


@pytest.mark.parametrize("case", REFUSED)
def test_launches_that_are_refused(device: SimDevice, case: tuple[str, int, int, int]) -> None:
    (found,) = launch(device, *case).findings
    assert found.kind == "launch failed" and has(found.message, *REFUSED[case])


def test_the_toolkits_headers(right_seeds: range) -> None:
    """cuda::ptx and cooperative_groups spell the same instructions in other ways."""
    headers, x = open_device(HERE / "libcu_ptx.cu"), [float(i) for i in range(THREADS)]
    for seed in right_seeds:
        done = run(headers, "everything", given("x", "f32", x), wanted("y", "f32", 3 * THREADS), seed=seed)
        assert not done.findings, (seed, done.findings)
        expected = [v + 11 for v in x] + [v + 10 for v in x] + [2 * v + 21 for v in x]
        assert unpack("f32", done.outputs["y"]) == expected
