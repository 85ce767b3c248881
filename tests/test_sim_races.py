"""The simulator: racy kernels are found on every schedule, and race-free ones that come close to a race on none.

A few schedules of each; `--all-seeds` tries 30 of what is racy, and 100 of what is not.
"""

from __future__ import annotations

import re
from pathlib import Path

import passed_before
import pytest
from sim_kernels.harness import HERE, given, open_device, run, wanted

from grader.devices import Finding, Outcome
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

RACES, RACE_FREE = HERE / "races.cu", HERE / "race_free.cu"
N = 256
X = [float(i % 17) for i in range(N)]
FEW = {RACES: 4, RACE_FREE: 6}
MANY = {RACES: 30, RACE_FREE: 100}

# What else than a race may be found, where that is what happens: a phase that does not end, an mbarrier that is not
# there yet, nonsense from a shuffle.
OTHER_KINDS = {
    "count_too_small": {"deadlock"},
    "count_too_large": {"deadlock"},
    "wrong_parity": {"race", "deadlock"},
    "stage_filled_again": {"race", "deadlock"},
    "no_barrier_after_init": {"race", "uninitialised"},
    "shuffle_from_outside": {"uninitialised"},
    "tree_of_twenty_lanes": {"uninitialised"},
    "butterfly_of_half": {"uninitialised"},
    "shuffled_address": {"uninitialised"},
    "shuffled_decision": {"uninitialised"},
}
# One block looks whether another was there before it, and reads nothing where it was not: such a call has no race. Or
# it waits for a flag that is only reused if it came first. The second call of a case starts the blocks in the opposite
# order.
OF_EVERY_TWO_CALLS = {"only_if_set", "flag_reused", "first_block_sets_back"}
# The order of blocks is part of the answer.
ANY_ANSWER = {"own_slot"}


def launchers(source: Path) -> list[str]:
    text = source.read_text()
    return re.findall(r"^LAUNCHER\((\w+),", text, re.MULTILINE) + re.findall(r"^KATA_EXPORT void (\w+)\(", text, re.M)


@pytest.fixture(scope="module")
def racy() -> SimDevice:
    return open_device(RACES, threads=1)  # on several, which block runs when is not the seed's alone


@pytest.fixture(scope="module")
def race_free() -> SimDevice:
    return open_device(RACE_FREE)


def seeds(request: pytest.FixtureRequest, source: Path) -> range:
    return range((MANY if request.config.getoption("--all-seeds") else FEW)[source])


def outcome(device: SimDevice, launcher: str, seed: int) -> Outcome:
    return run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), N, seed=seed)


def lines_of(source: Path, launcher: str) -> range:
    """Of its kernel and the functions before it, from the end of the launcher before."""
    lines = source.read_text().splitlines()
    end = next(place for place, line in enumerate(lines) if re.match(rf"(LAUNCHER|KATA_EXPORT).*\b{launcher}\b", line))
    start = max((place for place, line in enumerate(lines[:end]) if line.startswith("LAUNCHER")), default=0)
    return range(start + 2, end + 1)


@pytest.mark.parametrize("launcher", launchers(RACES))
def test_race_is_found_on_every_schedule(racy: SimDevice, launcher: str, request: pytest.FixtureRequest) -> None:
    missed: list[int] = []
    for seed in seeds(request, RACES):
        found: tuple[Finding, ...] = outcome(racy, launcher, seed).findings
        if not found:
            missed.append(seed)
            continue
        assert found[0].kind in OTHER_KINDS.get(launcher, {"race"}), found
        assert found[0].file == str(RACES) and found[0].line in lines_of(RACES, launcher), found
    allowed = len(seeds(request, RACES)) // 2 if launcher in OF_EVERY_TWO_CALLS else 0
    assert len(missed) <= allowed and len({seed // 2 for seed in missed}) == len(missed), missed


def test_a_barrier_within_a_round_is_not_the_one_that_lacks(racy: SimDevice) -> None:
    """It stands between the write and the read of one round, and none from the read to the next round's write."""
    for seed in range(FEW[RACES]):
        [found] = outcome(racy, "no_barrier_between_rounds", seed).findings
        assert "with no barrier from the read to the write" in found.message, found.message
    [found] = outcome(racy, "copy_without_barrier", 0).findings
    assert "from the read" not in found.message


def test_lanes_of_one_instruction_lack_no_barrier(racy: SimDevice) -> None:
    for launcher in ("two_lanes_share_a_place", "two_lanes_share_an_element"):
        [found] = outcome(racy, launcher, 0).findings
        assert "thread (0,0,0) and thread (1,0,0) write it by one instruction, on line" in found.message, found
        assert [(side.does, side.thread, side.line) for side in found.sides] == [
            ("writes", (0, 0, 0), found.line),
            ("writes", (1, 0, 0), found.line),
        ]
        assert found.place is not None and f"race on {found.place}" in found.message
    [found] = outcome(racy, "two_rounds_share_a_place", 0).findings
    assert "one instruction" not in found.message and "with no barrier between" in found.message


@pytest.mark.parametrize("launcher", launchers(RACE_FREE))
def test_race_free_kernel_passes_on_every_schedule(
    race_free: SimDevice, launcher: str, request: pytest.FixtureRequest
) -> None:
    answers = set()
    for seed in seeds(request, RACE_FREE):
        done = outcome(race_free, launcher, seed)
        assert done.findings == (), (seed, done.findings)
        answers.add(bytes(done.outputs["y"]))
    assert len(answers) == 1 or launcher in ANY_ANSWER


def test_the_files_are_as_large_as_they_say() -> None:
    assert len(launchers(RACES)) >= 50 and len(launchers(RACE_FREE)) >= 40
