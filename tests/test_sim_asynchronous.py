"""Asynchronous copies and barrier objects on the simulator: right ones pass for every seed, hazards are found."""

from __future__ import annotations

import re
from collections.abc import Callable

import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, given, line_of, open_device, run, unpack, wanted

from grader.devices import Finding, Outcome
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE, BULK = HERE / "asynchronous.cu", HERE / "bulk.cu"
N, THREADS = 512, 128
X = [float(i % 31) for i in range(N)]


@pytest.fixture(scope="module", params=["80", "90a"])
def device(request: pytest.FixtureRequest) -> SimDevice:
    return open_device(SOURCE, arch=request.param)


@pytest.fixture(scope="module")
def bulk() -> SimDevice:
    return open_device(BULK)


def outcome(device: SimDevice, launcher: str, *, n: int = N, seed: int = 0) -> Outcome:
    return run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), n, seed=seed)


def answer(device: SimDevice, launcher: str, *, n: int = N, seed: int = 0) -> list[float]:
    done = outcome(device, launcher, n=n, seed=seed)
    assert not done.findings, done.findings
    return unpack("f32", done.outputs["y"])


def finding(device: SimDevice, launcher: str, *, seed: int = 0) -> Finding:
    done = outcome(device, launcher, seed=seed)
    assert len(done.findings) == 1, done.findings
    return done.findings[0]


def reversed_tiles(width: int, count: int) -> list[float]:
    return [value for k in range(count) for value in reversed(X[k * width : (k + 1) * width])]


SOUND: dict[str, Callable[[], list[float]]] = {
    "groups": lambda: reversed_tiles(THREADS, 1),
    "groups_in_turn": lambda: reversed_tiles(THREADS, 1),
    "buffers": lambda: reversed_tiles(4 * THREADS, 1),
    "ring": lambda: reversed_tiles(THREADS, 4),
    "object": lambda: reversed_tiles(THREADS, 1),
    "phases": lambda: [X[(i + 5) % THREADS] for i in range(THREADS)],
    "pipeline": lambda: reversed_tiles(THREADS, 4),
    "shared_pipeline": lambda: reversed_tiles(THREADS, 4),
    "cooperative_copy": lambda: reversed_tiles(THREADS, 1),
}


@pytest.mark.parametrize("launcher", SOUND)
def test_right_for_every_seed(device: SimDevice, launcher: str, right_seeds: range) -> None:
    expected = SOUND[launcher]()
    for seed in right_seeds:
        assert answer(device, launcher, seed=seed)[: len(expected)] == expected


@pytest.mark.parametrize("n", [0, 1, 5, 127, 509, 512])
def test_what_is_not_copied_is_zero(device: SimDevice, n: int) -> None:
    assert answer(device, "zero_fill", n=n) == X[:n] + [0.0] * (N - n)
    most = min(n, THREADS)
    assert answer(device, "ignored", n=n)[:THREADS] == X[:most] + [0.0] * (THREADS - most)


# launcher -> kind, facts of the message; the line is the marker's
PLANTED = {
    "groups_no_wait": ("race", ["waited for"]),
    "groups_no_commit": ("race", ["waited for", "commit_group"]),
    "groups_in_helper": ("race", ["waited for"]),
    "groups_no_barrier": ("race", ["no barrier"]),
    "buffers_early": ("race", ["waited for"]),
    "object_race": ("race", ["tile["]),
    "uninitialised_object": ("uninitialised", ["bar[0]", "no mbarrier.init"]),
}


@pytest.mark.parametrize("launcher", PLANTED)
def test_hazard_is_found_at_its_line(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kind, facts = PLANTED[launcher]
    for seed in wrong_seeds:
        found = finding(device, launcher, seed=seed)
        assert found.kind == kind and has(found.message, *facts), found
        assert found.line == line_of(SOURCE, launcher), found


def test_a_copy_that_is_committed_is_not_said_to_lack_that(device: SimDevice) -> None:
    assert "commit" not in finding(device, "groups_no_wait").message


def test_two_copies_of_one_group_to_the_same_bytes(device: SimDevice, wrong_seeds: range) -> None:
    for seed in wrong_seeds:
        found = finding(device, "groups_twice", seed=seed)
        assert found.kind == "race" and has(found.message, "writes tile[", "in any order"), found
        assert found.callers == (line_of(SOURCE, "groups_twice"),), found


# launcher -> facts of the first note, and what is in none
NOTES = {
    "ring_waits_for_too_few": (["last waited on line", "2 newest groups", "number 2", "wait_group 1"], "has arrived"),
    "ring_commits_only_copies": (["newest group", "committed no group", "one in each round"], "wait_group"),
    "ring_reads_the_next": (["tile[0]", "copied on line", "has arrived", "another stage"], "copied to again"),
    "ring_reads_the_last": (["tile[0]", "has arrived", "another stage"], "wait_group"),
    "ring_copies_again": (["had arrived in the same place", "copied to again before it is read"], "another stage"),
    "copied_twice": (["had arrived in the same place", "copied to again before it is read"], "another stage"),
    "buffers_early": (["2 newest groups", "number 2", "wait_group 1"], "has arrived"),
    "copied_late": (["last waited on line", "before it committed the copy", "not for it"], "has arrived"),
    "groups_no_wait": (["has not waited for any copy"], "wait_group"),
}


@pytest.mark.parametrize("launcher", NOTES)
def test_what_is_known_of_the_stages(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    """A wait that leaves too many, a stage that is copied to again, and a wrong stage are told from each other."""
    facts, other = NOTES[launcher]
    for seed in wrong_seeds:
        found = finding(device, launcher, seed=seed)
        assert has(found.notes[0], *facts), found
        assert not any(other in note for note in found.notes), found


def test_wait_all_needs_no_commit(device: SimDevice) -> None:
    for launcher, wait in (("copied_twice", "wait_all;"), ("wait_is_skipped", "wait_is_skipped's wait")):
        found = finding(device, launcher)
        assert found.line == line_of(SOURCE, launcher) and "commit" not in found.message
        line = line_of(SOURCE, wait) if launcher != "copied_twice" else line_of(SOURCE, "copied_twice") - 3
        assert has(found.message, f"its thread has not come to cp.async.wait_all on line {line}"), found


def test_a_wait_with_no_commit_since_another_one_says_what_it_must_leave(device: SimDevice) -> None:
    """A round that lacks its empty group is told apart: there, both waits are on one line."""
    found = finding(device, "waits_twice")
    first, second = (line_of(SOURCE, f"waits_twice's {which}") for which in ("first", "second"))
    assert has(found.notes[0], f"on line {second}", f"on line {first}", "leaves none in flight"), found
    assert "each round" not in found.notes[0]


def test_lines_that_call_the_line_of_a_finding(device: SimDevice) -> None:
    found = finding(device, "groups_in_helper")
    assert found.callers == (line_of(SOURCE, "call of the helper"),)
    assert finding(device, "groups_no_commit").callers == ()


def test_the_other_access_has_the_line_that_calls_it_too(device: SimDevice) -> None:
    """The copy is in a function that has several calls: which of them it is."""
    call = next(n for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if "reverse<false, true>(x" in line)
    said = rf"on line \d+ \(called on line \d+, from line {call}\) has not been waited for"
    assert re.search(said, finding(device, "groups_no_wait").message)
    call = next(n for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if "groups_no_commit_kernel" in line) + 2
    assert f"(called on line {call}) has not" in finding(device, "groups_no_commit").message


def test_what_was_launched(device: SimDevice) -> None:
    (launched,) = run(device, "groups_no_wait").launched
    assert (launched.kernel, launched.block, launched.times) == ("groups_no_wait_kernel", (THREADS, 1, 1), 1)


def test_a_wait_after_the_barrier_is_too_late(device: SimDevice, wrong_seeds: range) -> None:
    for seed in wrong_seeds:
        found = finding(device, "groups_late_wait", seed=seed)
        assert found.kind == "race" and "tile[" in found.message
        assert found.line == line_of(SOURCE, "groups_late_wait")


def test_the_global_side_is_checked(device: SimDevice) -> None:
    past, misaligned = finding(device, "copy_past"), finding(device, "copy_misaligned")
    assert (past.kind, past.index) == ("out of bounds", N)
    assert has(past.message, "reads", "x[512]", "past the end of x", "512 elements")
    assert misaligned.kind == "misaligned" and has(misaligned.message, "reads", "16 bytes", "x[")


def test_a_copy_has_no_more_bytes_than_its_size(device: SimDevice) -> None:
    found = finding(device, "copy_more_than_all")
    assert found.kind == "out of bounds" and has(found.message, "16 bytes", "17")


def test_a_deadlock_names_the_barrier_object(device: SimDevice) -> None:
    found = finding(device, "object_deadlock")
    assert found.kind == "deadlock"
    assert has(found.message, "waits", "mbarrier bar[0]", "expects 129 arrivals", "lacks 1 arrival", "phase 0")


# ---- bulk copies


def test_bulk_copies_in_and_out(bulk: SimDevice, right_seeds: range) -> None:
    for seed in right_seeds:
        assert answer(bulk, "bulk", seed=seed) == reversed_tiles(THREADS, 4)


FENCED = {
    "writers_fence": lambda: reversed_tiles(THREADS, 2),
    "fence_and_arrive": lambda: reversed_tiles(THREADS, 1),
    "in_and_out": lambda: X[:THREADS],
}


@pytest.mark.parametrize("launcher", FENCED)
def test_a_bulk_copy_after_a_proxy_fence(bulk: SimDevice, launcher: str, right_seeds: range) -> None:
    expected = FENCED[launcher]()
    for seed in right_seeds:
        assert answer(bulk, launcher, seed=seed)[: len(expected)] == expected


@pytest.mark.parametrize("launcher", ["no_fence", "fence_too_early"])
def test_a_missing_proxy_fence_is_found(bulk: SimDevice, launcher: str, wrong_seeds: range) -> None:
    lines = BULK.read_text().splitlines()
    write = next(i for i, line in enumerate(lines, 1) if "out[tid] = x[k * THREADS" in line)
    for seed in wrong_seeds:
        found = finding(bulk, launcher, seed=seed)
        assert found.kind == "race" and found.thread == (0, 0, 0)
        said = rf"out\[0\].*shared.*thread \(0,0,0\) writes .*line {write} .*bulk copy.* reads .*no fence\.proxy\.async"
        assert re.search(said, found.message), found.message


def test_a_cluster_of_one_block(bulk: SimDevice) -> None:
    lead = [1.0 if i % 32 == 0 else 0.0 for i in range(THREADS)]
    expected = [value + one for value, one in zip(reversed_tiles(THREADS, 1), lead, strict=True)]
    assert answer(bulk, "one_cluster")[:THREADS] == expected


BULK_PLANTED = {
    "bulk_no_expect": ("race", ["reads", "in["]),
    "bulk_no_wait": ("race", ["cp.async.bulk"]),
    "bulk_parity": ("race", ["cp.async.bulk"]),
}


def test_a_wait_for_another_phase_is_named(bulk: SimDevice) -> None:
    found = finding(bulk, "bulk_parity")
    assert has(found.notes[0], "phase 0", "mbarrier bar[0]", "last wait", "parity 1", "before the first")
    assert has(finding(bulk, "bulk_no_wait").notes[0], "phase 0", "no wait there has ended")


@pytest.mark.parametrize("launcher", BULK_PLANTED)
def test_bulk_hazard_is_found_at_its_line(bulk: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kind, facts = BULK_PLANTED[launcher]
    for seed in wrong_seeds:
        found = finding(bulk, launcher, seed=seed)
        assert found.kind == kind and has(found.message, *facts), found
        assert found.line == line_of(BULK, launcher), found


def test_bulk_hazards_without_a_line_of_their_own(bulk: SimDevice) -> None:
    short, store = finding(bulk, "bulk_short"), finding(bulk, "bulk_store_exits")
    assert short.kind == "deadlock" and has(short.message, "lacks 256 bytes", "phase 0")
    assert store.kind == "race" and has(store.message, "exits", "bulk copy", "read", "out[")
    assert finding(bulk, "bulk_misaligned").kind == "misaligned"


def test_what_is_no_tensor_map_is_told(bulk: SimDevice) -> None:
    found = finding(bulk, "tensor_map")
    assert found.kind == "crash" and has(found.message, "tensor map", "cuTensorMapEncodeTiled")
