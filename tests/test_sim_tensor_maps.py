"""Tensor maps on the simulator: boxes of every rank and swizzle, edges, and what learners do wrong with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain
from random import Random

import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, given, line_of, open_device, run, unpack, wanted

from grader.devices import Call, Finding, Outcome, Scalar
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE = HERE / "tensor_maps.cu"
ROWS, COLUMNS = 32, 40  # no multiple of a tile's columns
X = [float(i % 97 + 1) for i in range(ROWS * COLUMNS)]
RING_X = [float(i % 97 + 1) for i in range(6 * 16 * 32)]


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def outcome(device: SimDevice, launcher: str, seed: int, *, values: list[float] = X, columns: int = COLUMNS) -> Outcome:
    count = len(values)
    return run(
        device, launcher, given("x", "f32", values), wanted("y", "f32", count), count // columns, columns, seed=seed
    )


def gather(
    values: list[float], dims: list[int], box: list[int], start: list[int], steps: list[int], swizzle: int
) -> dict[int, float]:
    """Where each element of a box stands, in words behind its begin: the definition, element by element."""
    span = max(box[0] * 4, 16 << swizzle if swizzle else 0)
    counts = [box[0], *(math.ceil(b / s) for b, s in zip(box[1:], steps[1:], strict=True))]
    placed = {}
    for row in range(math.prod(counts[1:])):
        rest, at = row, [0]
        for i in range(1, len(dims)):
            at.append(start[i] + rest % counts[i] * steps[i])
            rest //= counts[i]
        for c in range(box[0]):
            at[0] = start[0] + c
            inside = all(0 <= a < d for a, d in zip(at, dims, strict=True))
            index = sum(a * math.prod(dims[:i]) for i, a in enumerate(at))
            byte = row * span + 4 * c
            byte ^= byte >> 3 & ((1 << swizzle) - 1) << 4
            placed[byte // 4] = values[index] if inside else 0.0
    return placed


@pytest.mark.parametrize("rank", range(1, 6))
def test_boxes(device: SimDevice, rank: int) -> None:
    draw = Random(rank)
    for swizzle in range(4):
        for _ in range(3):
            dims = [draw.choice([12, 16, 36]), *(draw.randrange(1, 7) for _ in range(4))]
            box = [(16 << swizzle) // 4 if swizzle else draw.choice([4, 8, 20])]
            box += [draw.randrange(1, 5) for _ in range(4)]
            start = [draw.randrange(-2, dims[0] // 4) * 4, *(draw.randrange(-3, d) for d in dims[1:])]
            steps = [1, *(draw.choice([1, 1, 2]) for _ in range(4))]
            values = [float(i + 1) for i in range(math.prod(dims[:rank]))]
            parts = [part[:rank] + [1] * (5 - rank) for part in (dims, box, start, steps)]
            placed = gather(values, dims[:rank], box[:rank], start[:rank], steps[:rank], swizzle)
            words = max(placed) // 4 * 4 + 4
            offset = draw.choice([0, 1024])
            done = run(
                device, "any_box", given("x", "f32", values), wanted("y", "f32", words), *chain(*parts),
                rank, words, offset, swizzle, len(placed) * 4, seed=rank,
            )  # fmt: skip
            assert not done.findings, (dims, box, start, steps, swizzle, done.findings)
            got = unpack("f32", done.outputs["y"])
            assert {at: got[at] for at in placed} == placed, (dims, box, start, steps, swizzle)


def test_a_swizzle_goes_by_the_address(device: SimDevice) -> None:
    """A tile that does not begin at a multiple of the pattern: row r has the pattern of the row that lies there."""
    dims, box, start, steps = [32, 8, 1, 1, 1], [32, 8, 1, 1, 1], [0] * 5, [1] * 5
    values = [float(i) for i in range(256)]
    done = run(
        device, "any_box", given("x", "f32", values), wanted("y", "f32", 256), *dims, *box, *start, *steps,
        2, 256, 384, 3, 1024,
    )  # fmt: skip
    assert not done.findings, done.findings
    got = unpack("f32", done.outputs["y"])
    assert all(got[r * 32 + (c ^ (r + 3) % 8 * 4)] == values[r * 32 + c] for r in range(8) for c in range(32))


@pytest.mark.parametrize("first", [-3, 1, 30])
def test_a_box_begins_on_16_bytes_of_a_row(device: SimDevice, first: int) -> None:
    """An H200 stops with "illegal instruction" where it does not."""
    dims, box, steps = [32, 8, 1, 1, 1], [8, 8, 1, 1, 1], [1] * 5
    values = [float(i) for i in range(256)]
    for start, wrong in ((first, True), (first // 4 * 4, False)):
        done = run(
            device, "any_box", given("x", "f32", values), wanted("y", "f32", 64), *dims, *box, start, 0, 0, 0, 0,
            *steps, 2, 64, 0, 0, 256,
        )  # fmt: skip
        assert [found.kind for found in done.findings] == ["misaligned"] * wrong, done.findings


@dataclass
class Column:
    """A column of pixels: sizes, corners, starts, offsets and steps, innermost dimension first."""

    rank: int
    dims: list[int]
    lower: list[int]
    upper: list[int]
    start: list[int]
    offset: list[int]
    steps: list[int]
    channels: int
    pixels: int
    swizzle: int = 0

    def arguments(self, stores: int = 0) -> list[int]:
        parts = [self.dims, self.lower, self.upper, self.start, self.offset, self.steps]
        fills, counts = (1, 0, 0, 0, 0, 1), (5, 3, 3, 5, 3, 3)
        padded = (p + [fill] * (n - len(p)) for p, fill, n in zip(parts, fills, counts, strict=True))
        return [*chain(*padded), self.rank, self.channels, self.pixels, self.swizzle, stores]

    def places(self) -> list[list[int]]:
        """Coordinates of each pixel of the bounding box that the column visits."""
        found, at = [], self.start[1:]
        for _ in range(self.pixels):
            found.append(list(at))
            for i in range(self.rank - 2):
                at[i] += self.steps[i]
                if at[i] < self.dims[i + 1] + self.upper[i]:
                    break
                at[i] = self.lower[i]
            else:
                at[-1] += 1
        return found


def draw_column(draw: Random, rank: int, swizzle: int) -> Column:
    inner = rank - 2
    dims = [draw.choice([8, 16, 36]), *(draw.randrange(2, 6) for _ in range(rank - 1))]
    lower, offset = [draw.randrange(-2, 1) for _ in range(inner)], [draw.randrange(3) for _ in range(inner)]
    upper = [draw.randrange(-1, 2) for _ in range(inner)]
    steps = [draw.choice([1, 1, 2]) for _ in range(inner)]
    start = [draw.randrange(-1, dims[0] // 4) * 4]
    start += [low + step * draw.randrange(2) for low, step in zip(lower, steps, strict=True)]
    start = [start[0], *(min(at, size + up - 1) for at, size, up in zip(start[1:], dims[1:], upper, strict=False))]
    start.append(draw.randrange(dims[-1]))
    channels = (16 << swizzle) // 4 if swizzle else draw.choice([4, 8, 12])
    return Column(rank, dims, lower, upper, start, offset, steps, channels, draw.randrange(1, 40), swizzle)


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_columns_of_pixels(device: SimDevice, rank: int) -> None:
    draw = Random(rank)
    for swizzle in (0, 0, 1, 3):
        c = draw_column(draw, rank, swizzle)
        values = [float(i + 1) for i in range(math.prod(c.dims))]
        words = c.channels * c.pixels
        done = run(device, "pixels", given("x", "f32", values), wanted("y", "f32", words), *c.arguments(), seed=rank)
        assert not done.findings, (c, done.findings)
        got = unpack("f32", done.outputs["y"])
        for p, place in enumerate(c.places()):
            place = [at + off for at, off in zip(place, [*c.offset, 0], strict=True)]
            for channel in range(c.channels):
                at = [c.start[0] + channel, *place]
                inside = all(0 <= a < d for a, d in zip(at, c.dims, strict=True))
                index = sum(a * math.prod(c.dims[:i]) for i, a in enumerate(at))
                byte = 4 * (p * c.channels + channel)
                byte ^= byte >> 3 & ((1 << swizzle) - 1) << 4
                assert got[byte // 4] == (values[index] if inside else 0), (c, p, channel)


def test_a_column_is_stored_where_it_came_from(device: SimDevice) -> None:
    c = Column(4, [8, 4, 3, 2], [0, 0], [0, 0], [0, 1, 1, 0], [0, 0], [1, 1], 8, 12)
    values = [float(i + 1) for i in range(math.prod(c.dims))]
    done = run(device, "pixels", given("x", "f32", values), wanted("y", "f32", len(values)), *c.arguments(1))
    assert not done.findings, done.findings
    visited = {(w + 4 * (h + 3 * n)) * 8 + channel for w, h, n in c.places() for channel in range(8)}
    got = unpack("f32", done.outputs["y"])
    assert {i for i, value in enumerate(got) if value == values[i]} == visited and len(visited) == 96


GOOD = Column(4, [8, 4, 3, 2], [-1, -1], [-1, -1], [0, -1, -1, 0], [1, 1], [1, 1], 8, 12)
REFUSED_COLUMNS: dict[str, tuple[Column, list[str]]] = {
    "channels": (replace(GOOD, channels=260), ["260 channels", "256"]),
    "pixels": (replace(GOOD, pixels=1025, channels=4), ["1025 pixels", "1024"]),
    "corner": (replace(GOOD, upper=[128, 0]), ["corner", "-128", "127"]),
    "empty": (replace(GOOD, upper=[-5, 0]), ["no pixel"]),
    "row": (replace(GOOD, channels=2), ["8 bytes", "multiple of 16"]),
    "swizzle": (replace(GOOD, channels=16, swizzle=1), ["64 bytes", "32-byte swizzle"]),
    "step": (replace(GOOD, steps=[1, 9]), ["stride", "8"]),
}


@pytest.mark.parametrize("case", REFUSED_COLUMNS)
def test_columns_that_are_refused(device: SimDevice, case: str) -> None:
    column, facts = REFUSED_COLUMNS[case]
    values = [1.0] * math.prod(GOOD.dims)
    done = run(device, "pixels", given("x", "f32", values), wanted("y", "f32", 4096), *column.arguments())
    (found,) = done.findings
    assert found.kind == "crash" and has(found.message, "cuTensorMapEncodeIm2col", "refused", *facts), found
    assert line_of(SOURCE, "pixels_load") in found.callers


# What stops an H200 with "illegal instruction": whether it is a store, the line's marker, facts in the message.
OUTSIDE: dict[str, tuple[Column, bool, str, list[str]]] = {
    "before": (replace(GOOD, start=[0, -2, -1, 0]), False, "pixels_load", ["-2", "dimension 1", "from -1 to 2"]),
    "behind": (replace(GOOD, start=[0, -1, 2, 0]), False, "pixels_load", ["2", "dimension 2", "from -1 to 1"]),
    "store below": (
        replace(GOOD, lower=[0, -1], start=[0, 0, 0, 0]), True, "pixels_store", ["bounding box is wider", "dimension 2"]
    ),
    "store above": (
        replace(GOOD, lower=[0, 0], upper=[1, 0], start=[0, 0, 0, 0]), True, "pixels_store",
        ["bounding box is wider", "dimension 1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTSIDE)
def test_columns_outside_of_their_bounding_box_or_of_the_tensor(device: SimDevice, case: str) -> None:
    column, stores, marker, facts = OUTSIDE[case]
    values = [1.0] * math.prod(GOOD.dims)
    done = run(
        device, "pixels", given("x", "f32", values), wanted("y", "f32", len(values)), *column.arguments(int(stores))
    )
    (found,) = done.findings
    assert found.kind == "out of bounds" and has(found.message, *facts), found
    assert line_of(SOURCE, marker) in (found.line, *found.callers), found


def test_right_for_every_seed(device: SimDevice, right_seeds: range) -> None:
    for seed in right_seeds:
        for launcher in ("sound", "warp_stores"):
            done = outcome(device, launcher, seed)
            assert not done.findings, (seed, launcher, done.findings)
            assert unpack("f32", done.outputs["y"]) == [2 * x for x in X]
        done = outcome(device, "ring_sound", seed, values=RING_X, columns=32)
        assert not done.findings, (seed, done.findings)
        sums = [sum(RING_X[c::32]) for c in range(32)]
        assert unpack("f32", done.outputs["y"])[:32] == sums


def test_who_reads_a_swizzled_tile_goes_by_the_address_too(device: SimDevice, right_seeds: range) -> None:
    for seed in right_seeds:
        done = outcome(device, "swizzled_by_address", seed, values=RING_X, columns=32)
        assert not done.findings and unpack("f32", done.outputs["y"]) == RING_X, done.findings


WRONG_PLACES = [("swizzled_by_offset", RING_X, 32), ("swapped_dims", X, 40)]


@pytest.mark.parametrize(("launcher", "values", "columns"), WRONG_PLACES)
def test_a_wrong_place_shows_in_the_answer(
    device: SimDevice, launcher: str, values: list[float], columns: int, wrong_seeds: range
) -> None:
    right = [2 * x for x in values] if launcher == "swapped_dims" else values
    for seed in wrong_seeds:
        done = outcome(device, launcher, seed, values=values, columns=columns)
        assert not done.findings and unpack("f32", done.outputs["y"]) != right, done.findings


def test_copies_may_come_before_the_barrier_is_told(device: SimDevice) -> None:
    done = outcome(device, "constant", 0, values=RING_X, columns=32)
    assert not done.findings and unpack("f32", done.outputs["y"])[:512] == RING_X[:512]


def test_what_a_store_leaves_out_need_not_be_written(device: SimDevice) -> None:
    done = outcome(device, "edge", 0)
    assert not done.findings, done.findings
    got = unpack("f32", done.outputs["y"])
    assert [got[r * COLUMNS + 32 : (r + 1) * COLUMNS] for r in range(16)] == [
        [r * 32 + c + 1 for c in range(8)] for r in range(16)
    ]
    assert sum(map(bool, got)) == 16 * 8


def test_reductions(device: SimDevice) -> None:
    done = outcome(device, "add", 1, values=RING_X, columns=32)
    assert not done.findings, done.findings
    assert unpack("f32", done.outputs["y"])[:512] == [sum(RING_X[i::512]) for i in range(512)]


# launcher -> kind, the line's marker, facts in the message
WRONG: dict[str, tuple[str, str, list[str]]] = {
    "no_fence": ("race", "double_store", ["fence.proxy.async", "doubled["]),
    "leader_fences": ("race", "double_store", ["fence.proxy.async", "doubled["]),
    "no_wait": ("race", "double_tile", ["has not been waited for", "tile["]),
    "reused": ("race", "double_tile", ["may still read", "doubled[", "wait_group.read"]),
    "other_commits": ("race", "double_tile", ["may still read", "doubled["]),
    "no_end": ("race", "double_store", ["exits while", "doubled[0"]),
    "one_waits": ("race", "double_tile", ["may still read", "doubled["]),
    "warps_store": ("race", "double_store", ["race on y[", "no barrier between"]),
    "less_expected": ("crash", "double_expect", ["more than it expects", "bar"]),
    "one_expected": ("crash", "double_expect", ["2048 bytes more", "bar"]),
    "writes_then_loads": ("race", "double_load", ["fence.proxy.async", "overwrites"]),
    "shifted": ("misaligned", "double_load", ["64 bytes past a multiple of 128"]),
    "reads_back": ("race", "double_back", ["reads y[", "without .read"]),
    "left_of": ("out of bounds", "double_store", ["begins at -4", "32 x 40 f32"]),
    "edge_missing": ("uninitialised", "edge_store", ["reads tile[4", "no thread has written"]),
    "copied_map": ("crash", "copied_map", ["local memory", "__grid_constant__"]),
    "wide_box": (
        "crash",
        "one_box",
        ["refused", "256 bytes (", "128-byte swizzle takes at most 128 bytes (", "; given: ", "box {"],
    ),
    "stride_in_elements": (
        "crash",
        "one_box",
        ["refused", "41 bytes", "multiple of 16 bytes (", "strides {41} bytes", "no swizzle"],
    ),
    "too_tall": ("out of bounds", "one_box", ["x[", "32 x 40 f32"]),
    "pixels_by_tiles": ("crash", "pixels_load", ["cuTensorMapEncodeTiled", "mode"]),
    "no_map": ("crash", "pointer", ["cuTensorMapEncodeIm2col has written"]),
    "host_map": ("crash", "pointer", ["no memory of the device"]),
}


def finding(device: SimDevice, launcher: str, seed: int) -> Finding:
    values, columns = (X[: 8 * COLUMNS], COLUMNS) if launcher == "too_tall" else (X, COLUMNS)
    found = outcome(device, launcher, seed, values=values, columns=columns).findings
    assert len(found) == 1, (launcher, seed, found)
    return found[0]


@pytest.mark.parametrize("launcher", WRONG)
def test_misuse_is_found(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kind, marker, facts = WRONG[launcher]
    for seed in wrong_seeds:
        found = finding(device, launcher, seed)
        assert found.kind == kind and has(found.message, *facts), found
        assert line_of(SOURCE, marker) in (found.line, *found.callers), found


def test_the_elected_lane_need_not_be_the_first(device: SimDevice, wrong_seeds: range) -> None:
    found = [outcome(device, "lane_commits", seed).findings for seed in wrong_seeds]
    assert all(not f for f in found[::2])
    for (one,) in found[1::2]:
        assert one.kind == "race" and has(one.message, "may still read", "doubled[")


WRONG_RINGS: dict[str, tuple[str, list[str], list[str]]] = {
    "ring_waits_first": ("deadlock", ["ring_empty", "ring_full"], ["mbarrier", "arrival"]),
    "ring_counts_threads": ("deadlock", ["ring_empty", "ring_full"], ["mbarrier", "arrival"]),
    "ring_counts_one": ("race", ["ring_load", "ring_read"], ["tile["]),
    "ring_released_early": ("race", ["ring_load", "ring_read"], ["tile["]),
}


@pytest.mark.parametrize("launcher", WRONG_RINGS)
def test_wrong_rings_are_found(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kind, markers, facts = WRONG_RINGS[launcher]
    for seed in wrong_seeds:
        found = outcome(device, launcher, seed, values=RING_X, columns=32).findings
        assert len(found) == 1 and found[0].kind == kind, (seed, found)
        assert has(found[0].message, *facts) and found[0].line in [line_of(SOURCE, m) for m in markers], found


def line(marker: str) -> str:
    return f"line {line_of(SOURCE, marker)}"


def test_a_deadlock_stands_at_the_wait_that_keeps_the_others_waiting(device: SimDevice, wrong_seeds: range) -> None:
    """The consumers wait for tiles; the producer, for a stage that three threads free where 96 must."""
    for seed in wrong_seeds:
        (found,) = outcome(device, "ring_counts_threads", seed, values=RING_X, columns=32).findings
        assert found.line == line_of(SOURCE, "ring_empty"), (seed, found)
        root, *others = found.phases
        assert has(root, "phase 0 of empty[0]", "3 of 96 arrivals", line("ring_init_empty"), line("ring_late"))
        assert has(root, "3 threads", "(32,0,0) to (96,0,0)") and len(others) == 1
        assert has(others[0], line("ring_full"), "phase 1 of full[0]", "lacks 1 arrival", line("ring_expect"))
        assert has(others[0], f"which waits on {line('ring_empty')} for empty[0]")


def test_a_deadlock_without_a_phase_before_names_both_waits(device: SimDevice, wrong_seeds: range) -> None:
    for seed in wrong_seeds:
        (found,) = outcome(device, "ring_waits_first", seed, values=RING_X, columns=32).findings
        said = "\n".join((found.message, *found.phases))
        assert has(said, "empty[0]", "0 of 3 arrivals" if "empty" in found.message else "0 of 1 arrival", "full[0]")
        assert len(found.phases) == 2, found


@pytest.mark.parametrize(
    ("launcher", "arrived", "marker"),
    [("ring_released_early", "3 of 3 arrivals", "ring_early"), ("ring_counts_one", "1 of 1 arrival", "ring_late")],
)
def test_a_race_in_a_ring_names_the_arrival_that_let_the_copy_begin(
    device: SimDevice, launcher: str, arrived: str, marker: str, wrong_seeds: range
) -> None:
    named = 0
    for seed in wrong_seeds:
        (found,) = outcome(device, launcher, seed, values=RING_X, columns=32).findings
        for words in found.phases:
            assert has(words, line("ring_empty"), "phase 0 of empty[", arrived, line(marker))
            assert launcher != "ring_released_early" or has(words, "had arrived before it read")
        named += bool(found.phases)
    assert named or launcher != "ring_released_early"


def test_bytes_beyond_those_announced_are_listed(device: SimDevice, wrong_seeds: range) -> None:
    for seed in wrong_seeds:
        (words,) = finding(device, "one_expected", seed).phases
        assert has(words, f"2048 on {line('double_expect')}", f"2048 of {line('double_load')}", "announced", "came")


def test_what_copies_by_maps_cost(device: SimDevice) -> None:
    """Two tiles for each block of 16 rows; 24 of the second one's 32 columns lie outside."""
    arguments = (given("x", "f32", X), wanted("y", "f32", len(X)))
    scalars = (Scalar("rows", "int", ROWS), Scalar("columns", "int", COLUMNS))
    done = device.call(Call("sound", arguments, scalars, counters=True))
    assert not done.findings and done.counters
    (counted,) = done.counters.kernels
    blocks, tile = ROWS // 16, 16 * 32 * 4
    assert (counted.tma_copies, counted.tma_bytes) == (4 * blocks, 4 * blocks * tile)
    assert counted.tma_filled_bytes == blocks * 2 * tile * 24 // 32
    assert counted.box_rows == 4 * blocks * 16
    assert counted.phase_waits == blocks * 2 * 4  # each warp, for each tile
    assert counted.open_phase_waits <= counted.phase_waits
    (line,) = [item for item in counted.lines if item.line == line_of(SOURCE, "double_load")]
    assert line.tma_bytes == 2 * blocks * tile
