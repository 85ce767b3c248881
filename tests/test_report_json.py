"""What a device reports becomes dataclasses where it comes in; what is not as it must be is refused there, by name."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from facts import all_of

from grader.devices import Call, DeviceError
from grader.devices.counters import Access, CallCounters, KernelCounters, Launch, LineCounters, Writer
from grader.devices.gpu.device import launch_of
from grader.devices.report_json import ReportError, decode, encode
from grader.devices.sim.library import read_counters, read_writers

LINE = LineCounters(17, 4, 2, 36, 8, 1, 4, 1, 512, 3, 1)
ACCESS = Access(17, 4, 0, 0, 4, 32, "read", "x", (0, 0, 0), (0, None, *range(8, 128, 4)))
KERNEL = KernelCounters("k", 1, 10, 320, {"load": 4, "float": 6}, *range(20), (LINE,), (ACCESS,))
COUNTERS = CallCounters(1, 10, 320, (KERNEL,))
LAUNCH = Launch("k(int)", 0, (2, 1, 1), (128, 1, 1), 40, 0, 1024, 8, 0.5)


@pytest.mark.parametrize("value", [COUNTERS, CallCounters(0, 0, 0), LAUNCH, Writer("k", None, 3, (1, 0, 0), (2, 0, 0))])
def test_json_and_back(value: Any) -> None:
    assert decode(type(value), json.loads(json.dumps(encode(value))), "it") == value


def test_keys_are_those_of_the_engine() -> None:
    (kernel,) = encode(COUNTERS)["kernels"]
    assert list(kernel)[:5] == ["kernel", "launches", "warp_instructions", "thread_instructions", "instructions"]
    assert kernel["lines"][0]["line"] == 17 and kernel["samples"][0]["access"] == "read"
    assert kernel["samples"][0]["at"][:3] == [0, None, 8]


def changed(**fields: object) -> dict[str, Any]:
    """The counters as JSON, with other fields in the first line of the first kernel; None: without it."""
    report: dict[str, Any] = encode(COUNTERS)
    line = {**report["kernels"][0]["lines"][0], **fields}
    report["kernels"][0]["lines"] = [{key: value for key, value in line.items() if value is not None}]
    return report


@pytest.mark.parametrize(
    ("report", "facts"),
    [
        (changed(sectors=None), ["kernels: lines", "LineCounters", "no key 'sectors'"]),
        (changed(colour=1), ["kernels: lines", "LineCounters", "unknown key 'colour'"]),
        (changed(sectors="36"), ["kernels: lines: sectors", "'36'", "int"]),
        (changed(sectors=True), ["kernels: lines: sectors", "'True'", "int"]),
        (changed(sectors=3.5), ["kernels: lines: sectors", "3.5", "int"]),
        ({"launches": 1, "warp_instructions": 1}, ["CallCounters", "no key 'thread_instructions'"]),
        ({**changed(), "kernels": {}}, ["kernels", "tuple"]),
        ([], ["the report", "CallCounters"]),
    ],
)
def test_what_is_not_as_it_must_be_is_named(report: object, facts: list[str]) -> None:
    with pytest.raises(ReportError, match=all_of(*facts)):
        decode(CallCounters, report, "the report")


def test_a_triple_has_three_numbers() -> None:
    with pytest.raises(ReportError, match=all_of("a launch: grid", "[1, 1]")):
        decode(Launch, {**encode(LAUNCH), "grid": [1, 1]}, "a launch")
    assert decode(Launch, {**encode(LAUNCH), "occupancy": 1}, "a launch") == replace(LAUNCH, occupancy=1.0)


# The doors


def engine(counted: object = (), writers: object = None) -> Any:
    """An engine that reports this."""
    return SimpleNamespace(
        sim_counters=lambda values: values.__setitem__(slice(0, 3), [1, 10, 320]),
        sim_counted=lambda: json.dumps(counted).encode(),
        sim_writers=lambda: json.dumps(writers or {}).encode(),
    )


CALL = Call("k", (), (), counters=True)


def test_counters_of_the_engine() -> None:
    assert read_counters(engine(encode(COUNTERS)["kernels"]), CALL) == COUNTERS
    assert read_counters(engine("not looked at"), replace(CALL, counters=False)) == CallCounters(1, 10, 320)


@pytest.mark.parametrize("counted", [{"kernels": []}, [1], changed(ideal_sectors=None)["kernels"], "text"])
def test_an_engine_that_reports_something_else_is_broken(counted: object) -> None:
    with pytest.raises(DeviceError, match=all_of("simulator's engine", "counters")):
        read_counters(engine(counted), CALL)


def test_writers_of_the_engine() -> None:
    writer = {"kernel": "k", "file": "a.cu", "line": 3, "block": [1, 0, 0], "thread": [2, 0, 0]}
    assert read_writers(engine(writers={"y[5]": writer})) == {"y[5]": Writer("k", "a.cu", 3, (1, 0, 0), (2, 0, 0))}
    for wrong in ({**writer, "colour": 1}, {**writer, "line": "3"}, {"file": "a.cu"}):
        with pytest.raises(DeviceError, match=all_of("simulator's engine", "writer of y[5]")):
            read_writers(engine(writers={"y[5]": wrong}))
    broken = SimpleNamespace(sim_writers=lambda: b"{")
    with pytest.raises(DeviceError, match=all_of("writers", "not JSON")):
        read_writers(broken)  # type: ignore[arg-type]


def test_launches_of_a_gpu() -> None:
    line = "(nil) 2 1 1 128 1 1 1000 24 40 0 8 k(int, float const*)"
    assert launch_of(line, 2048) == replace(LAUNCH, kernel="k(int, float const*)")
    assert launch_of(line.replace("(nil)", "0x1f"), 2048).stream == 31
    for wrong in ("", "k", line.replace("128", "many")):
        with pytest.raises(DeviceError, match="not a launch"):
            launch_of(wrong, 2048)
