"""The simulator: hazards of twenty techniques are found for every seed, at one line; their right neighbours pass."""

from __future__ import annotations

import re

import passed_before
import pytest
from sim_kernels.harness import HERE, given, line_of, open_device, run, unpack, wanted

from grader.devices import Call, Finding, Outcome, Scalar
from grader.devices.counters import Writer
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

PLANTED = HERE / "planted.cu"
NEAR_MISSES = HERE / "near_misses.cu"
N = 257
X = [float(i % 17) for i in range(N)]
SEEDS = 100

# launcher -> kind, pattern of the message
HAZARDS = {
    "sum_without_atomic": ("race", r"y\[0\].* block \(.,0,0\) thread \(0,0,0\) writes .* reads "),
    "counts_in_a_warp": ("race", r"y\[0\].* block \(0,0,0\) thread .* no barrier"),
    "partials_without_fence": ("race", r"y\[\d\].* block .* no atomics"),
    "partials_fenced_for_the_block": ("race", r"y\[\d\].* block .* no fence, atomic and fence"),
    "partials_not_acquired": ("race", r"y\[\d\].* block .* no fence, atomic and fence"),
    "partials_of_another_warp": ("race", r"y\[\d+\].* block .* no fence, atomic and fence"),
    "flag_seen_without_a_fence": ("race", r"y\[0\].* block .* no fence, atomic and fence"),
    "flag_before_its_data": ("race", r"y\[0\].* block \(0,0,0\) thread \(0,0,0\) writes "),
    "stencil_in_place": ("race", r"y\[(31|63|95)\]"),
    "blocks_one_too_long": ("race", r"y\[64\].* writes .* writes "),
    "exchange_without_barrier": ("race", r"y\[\d+\].* no barrier"),
    "phases_without_grid_barrier": ("race", r"y\[\d+\].* block"),
    "phases_of_a_new_output": ("race", r"y\[\d+\].* block"),
    "reset_while_others_add": ("race", r"y\[0\].* atomic.* writes "),
    "lock_opened_by_a_store": ("race", r"y\[1\].* atomic"),
    "tree_without_barrier": ("race", r"sum\[\d+\].*shared memory"),
    "scan_in_one_buffer": ("race", r"sum\[\d+\].*shared memory"),
    "transpose_without_barrier": ("race", r"tile\[\d\]\[\d\].*shared memory"),
    "single_buffer_pipeline": ("race", r"tile\[\d+\].*shared memory"),
    "barrier_in_a_ragged_loop": ("deadlock", r"\b32 threads exited"),
    "vote_in_a_branch": ("deadlock", r"vote\.sync\.ballot\.b32"),
    "halo_not_loaded": ("uninitialised", r"reads tile\[65\]"),
    "divides_by_zero": ("crash", r"zero"),
    "remainder_by_zero": ("crash", r"zero"),
    "grid_stride_past": ("out of bounds", r"writes y\[320\].*\b64 elements past the end of y"),
}
MARKERS = {"phases_of_a_new_output": "phases_without_grid_barrier"}


@pytest.fixture(scope="module")
def planted() -> SimDevice:
    return open_device(PLANTED)


@pytest.fixture(scope="module")
def near_misses() -> SimDevice:
    return open_device(NEAR_MISSES)


def launch(device: SimDevice, launcher: str, seed: int) -> Outcome:
    return run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), N, seed=seed)


@pytest.mark.parametrize("launcher", HAZARDS)
def test_hazard_is_found_for_every_seed(planted: SimDevice, launcher: str) -> None:
    kind, pattern = HAZARDS[launcher]
    line = line_of(PLANTED, MARKERS.get(launcher, launcher))
    for seed in range(SEEDS):
        findings = launch(planted, launcher, seed).findings
        assert [(found.kind, found.line) for found in findings] == [(kind, line)], (seed, findings)
        assert re.search(pattern, findings[0].message), findings[0].message


def test_race_in_global_memory_names_buffer_element_and_both_blocks(planted: SimDevice) -> None:
    found: Finding = launch(planted, "stencil_in_place", 5).findings[0]
    assert found.buffer == "y" and found.index in (31, 63, 95) and found.block is not None
    block, line = found.block[0], found.line
    assert (found.index, found.thread) == (32 * block - 1, (0, 0, 0))
    writer, reader = rf"\({block - 1},0,0\) thread \(31,0,0\)", rf"\({block},0,0\) thread \(0,0,0\)"
    said = rf"y\[{found.index}\].* {writer} writes .*line {line + 2},.* {reader} reads .*line {line},.*no atomics"
    assert re.search(said, found.message), found.message


def answer(launcher: str) -> list[float]:
    """What a near miss must write; none of it comes from the simulator."""
    x = X
    table = {
        "sum_with_atomic": [2 * sum(x[:8])],
        "counts_aggregated": [2.0 * x[:64].count(float(v)) for v in range(17)],
        "last_block_done": [sum(x[:6]), *x[:6]],
        "last_block_done_volatile": [sum(x[:6]), *x[:6]],
        "last_block_done_acq_rel": [sum(x[:6]), *x[:6]],
        "last_block_done_atomic_ref": [sum(x[:6]), *x[:6]],
        "last_block_done_for_all": [3 * x[i ^ 37] for i in range(64)],
        "last_block_done_by_all": [4 * x[i ^ 5] for i in range(32)],
        "flag_after_its_data": [x[1], 1, x[1]],
        "chain_of_blocks": [0, 1, 3, 6, 10, 15],
        "lock_of_blocks": [2 * sum(x[:4])],
        "phases_with_grid_barrier": [x[i % 32 ^ 1] for i in range(128)],
        "phases_in_two_kernels": x[:32] * 4 + x[31::-1] * 4,
        "interleaved_elements": x[:128],
        "exchange_with_barrier": [v + 2 for v in x[:64]] + [v + 2 for v in x[63::-1]],
        "exchange_in_a_warp": [x[i ^ 7] for i in range(128)],
        "tree_with_barrier": [sum(x[:128])] * 2,
        "scan_in_two_buffers": [sum(x[: i + 1]) for i in range(64)],
        "transpose_with_barrier": [x[i % 8 * 8 + i // 8] for i in range(64)],
        "double_buffer_pipeline": [x[63 - i] + x[127 - i] + x[191 - i] for i in range(64)],
        "halves_exchanged": [x[i ^ 3] for i in range(64)],
        "votes_after_some_left": [
            0 if i % 3 == 1 else sum(v > 8 for place, v in enumerate(x[:32]) if place % 3 != 1) for i in range(32)
        ],
        "division_guarded": [257 // d + 257 % d if d else 0 for d in map(int, x[:32])],
    }
    return [float(value) for value in table.get(launcher, [])]


SOUND = (
    "sum_with_atomic", "counts_aggregated", "last_block_done", "last_block_done_volatile", "last_block_done_acq_rel",
    "last_block_done_atomic_ref",
    "last_block_done_for_all", "last_block_done_by_all", "flag_after_its_data",
    "release_and_acquire", "chain_of_blocks", "lock_of_blocks", "phases_with_grid_barrier", "phases_in_two_kernels",
    "interleaved_elements", "adjacent_bytes", "vectors_of_two_widths", "largest_with_a_look_first",
    "exchange_with_barrier", "exchange_in_a_warp", "tree_with_barrier", "scan_in_two_buffers",
    "transpose_with_barrier", "double_buffer_pipeline", "barrier_after_a_ragged_loop", "division_guarded",
    "votes_after_some_left", "halves_exchanged",
)  # fmt: skip


@pytest.mark.parametrize("launcher", SOUND)
def test_near_miss_passes_for_every_seed(near_misses: SimDevice, launcher: str) -> None:
    expected = answer(launcher)
    for seed in range(SEEDS):
        outcome = launch(near_misses, launcher, seed)
        assert outcome.findings == (), (seed, outcome.findings)
        assert unpack("f32", outcome.outputs["y"])[: len(expected)] == expected


def watched(device: SimDevice, launcher: str, *watch: tuple[str, int]) -> Outcome:
    buffers = (given("x", "f32", X), wanted("y", "f32", N))
    return device.call(Call(launcher, buffers, (Scalar("n", "int", N),), watch=watch))


def test_last_writer_of_watched_elements(near_misses: SimDevice) -> None:
    writers = watched(near_misses, "exchange_in_a_warp", ("y", 5), ("y", 100), ("y", 200), ("y", 257)).writers
    last = NEAR_MISSES.read_text().splitlines().index("    y[i] = other;") + 1
    assert set(writers) == {"y[5]", "y[100]", "y[200]"}
    assert (writers["y[5]"].block, writers["y[5]"].thread) == ((0, 0, 0), (5, 0, 0))
    assert (writers["y[100]"].block, writers["y[100]"].thread) == ((1, 0, 0), (36, 0, 0))
    assert {writers[place].line for place in ("y[5]", "y[100]")} == {last}
    assert writers["y[200]"] == Writer("cudaMemsetAsync")


def test_an_atomic_whose_order_shows_is_named(near_misses: SimDevice) -> None:
    adds = next(i for i, line in enumerate(NEAR_MISSES.read_text().splitlines(), 1) if "atomicAdd(y, x[b" in line)
    order = launch(near_misses, "sum_with_atomic", 0).order
    assert order is not None and (order.file, order.line) == (str(NEAR_MISSES), adds)
    ticket = launch(near_misses, "last_block_done", 0).order
    assert ticket is not None and ticket.line != adds
    assert launch(near_misses, "exchange_in_a_warp", 0).order is None


def test_element_that_nobody_wrote_has_no_writer(planted: SimDevice) -> None:
    assert watched(planted, "phases_of_a_new_output", ("y", 256), ("z", 0)).writers == {}
