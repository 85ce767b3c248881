"""Tensor maps that a kernel changes: what copies then take, and what must come between."""

from __future__ import annotations

import numpy as np
import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, given, line_of, open_device, run, wanted

from grader.devices import Outcome
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE = HERE / "map_changes.cu"
ROWS, COLUMNS, GROUPS = 16, 32, 3
SHAPES = [(5 + 7 * g, 40 - 8 * g) for g in range(GROUPS)]
X = np.arange(1, sum(rows * columns for rows, columns in SHAPES) + 1, dtype=np.float32)


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def outcome(device: SimDevice, launcher: str, seed: int) -> Outcome:
    y = wanted("y", "f32", GROUPS * ROWS * COLUMNS)
    return run(device, launcher, given("x", "f32", X.tolist()), y, GROUPS, seed=seed)


def expected() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The tile of each group, zeros outside of it."""
    tiles, start = np.zeros((GROUPS, ROWS, COLUMNS), np.float32), 0
    for tile, (rows, columns) in zip(tiles, SHAPES, strict=True):
        group = X[start : start + rows * columns].reshape(rows, columns)[:ROWS, :COLUMNS]
        tile[: group.shape[0], : group.shape[1]] = group
        start += rows * columns
    return tiles


@pytest.mark.parametrize("launcher", ["replaced", "made", "stored", "launch_before", "others_too"])
def test_copies_take_the_map_as_it_is_now(device: SimDevice, launcher: str, right_seeds: range) -> None:
    for seed in right_seeds:
        done = outcome(device, launcher, seed)
        assert not done.findings, (seed, done.findings)
        got = np.frombuffer(done.outputs["y"], np.float32).reshape(GROUPS, ROWS, COLUMNS)
        assert (got == expected()).all(), seed


# launcher -> kind, the line's marker, facts in the message
WRONG: dict[str, tuple[str, str, list[str]]] = {
    "no_acquire": ("race", "take", ["tensor map", "no thread of the block has acquired it", "acquire"]),
    "acquired_before": ("race", "take", ["tensor map", "since then", "acquire"]),
    "changed_again": ("race", "take", ["tensor map", "since then", "acquire"]),
    "launch_before_no_acquire": ("race", "take", ["tensor map", "no thread of the block has acquired it"]),
    "not_copied": ("crash", "take", ["in shared memory"]),
    "stride_of_floats": ("crash", "take", ["stride of dimension 1", "multiple of 16", "tensormap.replace"]),
    "no_map": ("crash", "replaces", ["where there is none"]),
    "six_dimensions": ("crash", "set_rank", ["6 dimensions"]),
    "other_places": ("crash", "copies", ["first lane"]),
    "shifted": ("misaligned", "replaces", ["64 bytes past a multiple of 128"]),
}


@pytest.mark.parametrize("launcher", WRONG)
def test_misuse_is_found(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kind, marker, facts = WRONG[launcher]
    for seed in wrong_seeds:
        (found,) = outcome(device, launcher, seed).findings
        assert found.kind == kind and has(found.message, *facts), (seed, found)
        assert line_of(SOURCE, marker) in (found.line, *found.callers), (seed, found)
