"""The simulator's counters: what hand-made patterns of access cost, and that counting changes nothing."""

from __future__ import annotations

import ctypes
from typing import Any

import passed_before
import pytest
from sim_kernels.harness import HERE, engine, given, line_of, open_device, wanted
from sim_kernels.wavefronts import NONE, patterns

from grader.devices import Call, Outcome, Scalar
from grader.devices.report_json import encode
from grader.devices.sim import SimDevice
from grader.devices.sim.library import load_engine

pytestmark = passed_before.GRADER

SOURCE = HERE / "counters.cu"
X = [float(i % 17) for i in range(4096)]


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def call(device: SimDevice, launcher: str, n: int, *, counters: bool = True) -> Outcome:
    buffers = (given("x", "f32", X), wanted("y", "f32", 4096))
    return device.call(Call(launcher, buffers, (Scalar("n", "int", n),), counters=counters))


def kernel(device: SimDevice, launcher: str, n: int) -> dict[str, Any]:
    outcome = call(device, launcher, n)
    assert not outcome.findings, outcome.findings
    (counted,) = kernels(outcome)
    assert counted["kernel"].startswith(launcher)
    return counted


def kernels(outcome: Outcome) -> list[dict[str, Any]]:
    """What each kernel cost, as JSON has it."""
    return list(encode(outcome.counters)["kernels"])


def at(counted: dict[str, Any], marker: str) -> dict[str, Any]:
    line = line_of(SOURCE, marker)
    return next(dict(item) for item in counted["lines"] if item["line"] == line)


def test_nothing_is_counted_unless_asked_for(device: SimDevice) -> None:
    plain, counted = (call(device, "conflicts", 512, counters=counters) for counters in (False, True))
    assert plain.counters and not plain.counters.kernels and counted.counters and counted.counters.kernels
    assert plain.outputs == counted.outputs
    assert plain.counters.launches == counted.counters.launches == 1


def test_the_next_call_counts_anew(device: SimDevice) -> None:
    assert kernel(device, "coalesced", 1000) == kernel(device, "coalesced", 1000)


def test_coalesced(device: SimDevice) -> None:
    counted = kernel(device, "coalesced", 1000)
    warps = 1000 // 32 + 1
    assert counted["global_requests"] == 2 * warps
    assert counted["sectors"] == counted["ideal_sectors"] == 2 * 1000 // 8
    assert (counted["bytes_read"], counted["bytes_written"]) == (4000, 4000)
    assert counted["instructions"]["load"] >= warps and counted["instructions"]["store"] == warps
    line = at(counted, "coalesced")
    assert (line["sectors"], line["ideal_sectors"], line["wavefronts"]) == (250, 250, 0)


# launcher -> sectors and ideal sectors of the load and the store together
SECTORS = {"strided": (32 + 4, 4 + 4), "offset": (5 + 4, 4 + 4), "broadcast": (1 + 4, 1 + 4)}


@pytest.mark.parametrize("launcher", SECTORS)
def test_sectors_against_the_ideal(device: SimDevice, launcher: str) -> None:
    line = at(kernel(device, launcher, 32), launcher)
    assert (line["sectors"], line["ideal_sectors"]) == SECTORS[launcher]


def test_a_float4_takes_four_wavefronts_by_nature(device: SimDevice) -> None:
    counted = kernel(device, "vector", 128)
    assert (counted["shared_requests"], counted["wavefronts"], counted["ideal_wavefronts"]) == (2, 8, 8)
    assert (at(counted, "vector_in")["wavefronts"], at(counted, "vector_out")["wavefronts"]) == (4, 4)
    assert counted["barriers"] == 1


def test_wavefronts_are_those_of_the_card() -> None:
    library = load_engine(engine())
    for pattern in patterns():
        mask = sum(1 << lane for lane, at in enumerate(pattern.at) if at != NONE)
        at = (ctypes.c_uint64 * 32)(*(max(place, 0) for place in pattern.at))
        assert library.sim_wavefronts(at, mask, pattern.bytes, pattern.is_load) == pattern.counted, pattern


def test_a_float4_that_two_lanes_share_takes_two_wavefronts(device: SimDevice) -> None:
    line = at(kernel(device, "pairs", 128), "pairs_out")
    assert (line["wavefronts"], line["ideal_wavefronts"]) == (2, 2)


def test_bank_conflicts(device: SimDevice) -> None:
    warps = 32
    conflicts, padded = kernel(device, "conflicts", 1024), kernel(device, "padded", 1024)
    assert (conflicts["wavefronts"], conflicts["ideal_wavefronts"]) == (warps + 32 * warps, 2 * warps)
    assert padded["wavefronts"] == padded["ideal_wavefronts"] == 2 * warps


def test_divergent_branches(device: SimDevice) -> None:
    counted = kernel(device, "divergent", 3)
    assert counted["divergent_branches"] == 2  # one in each warp
    assert counted["branches"] > 2
    assert kernel(device, "coalesced", 128)["divergent_branches"] == 0


def test_atomics_on_one_address(device: SimDevice) -> None:
    counted = kernel(device, "atomics", 0)
    assert (counted["launches"], counted["atomics"]) == (2, 3)
    assert counted["most_atomics_on_one_address"] == 60


def test_flops(device: SimDevice) -> None:
    # fma, two halves of an fma, and a product whose sum with the rest is an fma or a mul and an add
    assert kernel(device, "flops", 32)["flops"] == 32 * (2 + 4 + 2)


def test_asynchronous_copies_are_counted(device: SimDevice) -> None:
    counted = kernel(device, "asynchronous", 32)
    assert counted["instructions"]["copy"] == 2
    assert (counted["sectors"], counted["ideal_sectors"]) == (16 + 4, 16 + 4)
    assert (counted["wavefronts"], counted["ideal_wavefronts"]) == (4 + 4, 4 + 1)


def samples(counted: dict[str, Any], marker: str, **wanted: Any) -> list[dict[str, Any]]:
    line = line_of(SOURCE, marker)
    found = [dict(item) for item in counted["samples"] if item["line"] == line]
    return [item for item in found if all(item[name] == value for name, value in wanted.items())]


def test_a_sample_shows_where_each_lane_goes(device: SimDevice) -> None:
    counted = kernel(device, "strided", 32)
    (load,), (store,) = (samples(counted, "strided", access=access) for access in ("read", "write"))
    assert (load["buffer"], load["bytes"], load["itemsize"], load["begin"]) == ("x", 4, 4, 0)
    assert load["at"] == [32 * lane for lane in range(32)]
    assert (store["buffer"], store["at"]) == ("y", [4 * lane for lane in range(32)])


def test_a_sample_is_of_the_first_block_and_warp_that_come_to_it(device: SimDevice) -> None:
    for _ in range(4):  # whatever the order in which the host's threads run the blocks
        (load,) = samples(kernel(device, "coalesced", 1000), "coalesced", access="read")
        assert (load["block"], load["warp"], load["at"][:2]) == ([0, 0, 0], 0, [0, 4])
    (late,) = samples(kernel(device, "latecomers", 32), "latecomers", access="write")
    assert (late["block"], late["warp"]) == ([2, 0, 0], 1)
    assert late["at"] == [None] * 16 + [4 * lane for lane in range(16, 32)]


def test_samples_of_shared_memory_and_of_buffers_that_begin_anywhere(device: SimDevice) -> None:
    counted = kernel(device, "vector", 128)
    (store,) = samples(counted, "vector_in", access="write")
    assert (store["buffer"], store["bytes"], store["at"]) == (None, 16, [16 * lane for lane in range(32)])
    copied = kernel(device, "asynchronous", 32)
    assert {item["buffer"] for item in copied["samples"] if item["bytes"] == 16} == {"x", None}
    buffers = (given("x", "f32", X, offset_bytes=20), wanted("y", "f32", 4096))
    moved = device.call(Call("broadcast", buffers, (Scalar("n", "int", 3),), counters=True))
    (load,) = samples(kernels(moved)[0], "broadcast", access="read")
    assert (load["begin"], load["at"]) == (20, [20 + 8] * 32)


@pytest.mark.parametrize(
    ("launcher", "wavefronts"),
    [
        ("halves_128", 32),  # all eight rows of 16 bytes begin in the same banks
        ("halves_136", 4),  # no two of them do
        ("halves_144", 8),  # two by two
        ("words_128", 16),  # rows 0 to 3 of a register, each 8 words from the same banks
        ("words_132", 8),  # 4 banks on for each row
        ("words_136", 4),  # 8 banks on
        ("words_144", 8),  # 16 banks on: the third row meets the first
    ],
)
def test_fragments_come_from_shared_memory_as_the_machine_code_loads_them(
    device: SimDevice, launcher: str, wavefronts: int
) -> None:
    counted = kernels(call(device, launcher, 0))[0]
    line = at(counted, "fragment")
    assert (line["wavefronts"], line["ideal_wavefronts"]) == (wavefronts, 4)
