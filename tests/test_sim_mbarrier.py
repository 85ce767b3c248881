"""The simulator: every form of mbarrier instruction does its part, for every seed."""

from __future__ import annotations

import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, given, line_of, open_device, run, unpack, wanted

from grader.devices import Outcome
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE = HERE / "mbarriers.cu"
THREADS, N = 64, 256
X = [float(i % 31) for i in range(N)]


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def outcome(device: SimDevice, launcher: str, seed: int) -> Outcome:
    return run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), N, seed=seed)


def reversed_tile(k: int = 0) -> list[float]:
    return X[k * THREADS : (k + 1) * THREADS][::-1]


# launcher -> what y begins with
RIGHT = {
    "states": reversed_tile(0) + reversed_tile(1) + reversed_tile(2),
    "counts": reversed_tile(),
    "drops": reversed_tile()[:32] + X[:32][::-1],
    "bytes": [*reversed_tile(), 0.0],
    "noinc": X[::-1],
    "inc": X[::-1],
}


@pytest.mark.parametrize("launcher", RIGHT)
def test_right_for_every_seed(device: SimDevice, launcher: str, right_seeds: range) -> None:
    expected = RIGHT[launcher]
    for seed in right_seeds:
        done = outcome(device, launcher, seed)
        assert not done.findings, (seed, done.findings)
        assert unpack("f32", done.outputs["y"])[: len(expected)] == expected


def test_what_is_pending_is_told(device: SimDevice) -> None:
    values = unpack("f32", outcome(device, "counts", 0).outputs["y"])
    assert values[2 * THREADS : 3 * THREADS : 2] == [1.0] * (THREADS // 2)


WRONG = {
    "invalidated": ("uninitialised", ["bar[0]", "no mbarrier.init"]),
    "once_too_often": ("crash", ["mbarrier", "expects 2 arrivals", "2 left"]),
    "phase_number": ("crash", ["parity 2", "bar", "parity 0 or 1"]),
}


@pytest.mark.parametrize("launcher", WRONG)
def test_misuse_is_found(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kind, facts = WRONG[launcher]
    for seed in wrong_seeds:
        (found,) = outcome(device, launcher, seed).findings
        assert found.kind == kind and has(found.message, *facts) and found.line is not None, found


def line(marker: str) -> str:
    return f"line {line_of(SOURCE, marker)}"


def test_who_reads_too_much_is_told_what_the_phase_brought(device: SimDevice, wrong_seeds: range) -> None:
    for seed in wrong_seeds:
        (found,) = outcome(device, "half_copied", seed).findings
        assert found.kind == "uninitialised" and len(found.phases) == 1, found
        assert has(
            found.phases[0], "last wait", line("half_wait"), "phase 0 of bar", "1 of 1 arrival", line("half_init")
        )
        arrived, announced, came = found.phases[0].split("; ")
        assert has(arrived, line("half_expect"), "thread (0,0,0)")
        assert has(announced, "announced: 128 on", line("half_expect"))
        assert has(came, "came: 128 of", line("half_copy"))


def test_who_arrives_too_often_is_told_who_has_arrived(device: SimDevice, wrong_seeds: range) -> None:
    for seed in wrong_seeds:
        (found,) = outcome(device, "once_too_often", seed).findings
        assert all(has(words, "phase 0 of bar", "of 2 arrivals") for words in found.phases), found


def test_who_waits_where_none_arrives_is_told_where_threads_arrived(device: SimDevice) -> None:
    (found,) = outcome(device, "arrives_at_another", 0).findings
    assert found.kind == "deadlock" and has(found.phases[0], "0 of 64 arrivals", "no thread has arrived there so far")
    assert has(found.phases[0], line("at another"), "at bar[1] instead", "waits on line")


def test_who_announces_bytes_again_is_told_of_the_wait_before(device: SimDevice) -> None:
    (found,) = outcome(device, "announced_twice", 0).findings
    assert found.kind == "crash" and has(found.message, "has had them all")
    assert has(found.phases[-1], "last wait", line("at once"), "empty", "returned at once")
