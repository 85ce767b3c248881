"""Copies between a launcher's host code and the device -> a finding where the host takes part in the computing.

The rules, for one call of a launcher:

* no byte of an input comes to the host;
* no byte of an output comes from the host;
* of everything else, at most BACK_BYTES come to the host: a count that sizes the next launch, not data to compute with.

A copy from device memory to device memory takes along where its bytes came from. A kernel does not: after a launch,
what lies in scratch memory counts as the kernel's, and the third rule limits how much of that comes to the host.
What the host uploads into scratch memory, constants of a filter, say, is free.
"""

from __future__ import annotations

from collections.abc import Sequence

from grader.devices import Finding
from grader.devices.runtime_calls import FROM_HOST, TO_HOST, Region, RuntimeCall, first_meeting

BACK_BYTES = 64
_KIND = "not allowed"


def host_copy(calls: Sequence[RuntimeCall], regions: Sequence[Region]) -> Finding | None:
    """The first copy that breaks one of the rules. ``regions`` are the kata's buffers in this call."""
    follower = _Follower(regions)
    for call in calls:
        if found := follower.follow(call):
            return found
    return None


class _Ranges:
    """Bytes of device memory, each with the buffer's name that it is noted for, if any."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, str]] = []

    def put(self, start: int, size: int, name: str | None) -> None:
        """Note these bytes for ``name``; None: for nothing any more."""
        end = start + size
        left = [(low, min(high, start), of) for low, high, of in self._ranges if low < start]
        right = [(max(low, end), high, of) for low, high, of in self._ranges if high > end]
        self._ranges = left + right + ([(start, end, name)] if name is not None else [])

    def name(self, start: int, size: int) -> str | None:
        return next((of for low, high, of in self._ranges if low < start + size and start < high), None)

    def clear(self) -> None:
        self._ranges.clear()


class _Follower:
    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = regions
        self._of_input, self._of_host = _Ranges(), _Ranges()  # scratch that a copy filled
        self._back = 0

    def follow(self, call: RuntimeCall) -> Finding | None:
        if call.verb == "kernel":
            self._of_input.clear()
            self._of_host.clear()
        elif call.verb == "fill":
            self._fill(call, None, None)
        elif call.verb == "copy" and call.bytes:
            to_host, from_host = call.has(TO_HOST), call.has(FROM_HOST)
            if to_host and not from_host:
                return self._to_host(call)
            if not to_host:
                return self._to_device(call, from_host)
        return None

    def _to_host(self, call: RuntimeCall) -> Finding | None:
        if name := self._input_in(call):
            message = f"{call.name} copies bytes of the input {name} to the host: kernels compute, the host does not"
            return Finding(_KIND, message, buffer=name)
        self._back += call.bytes
        if self._back <= BACK_BYTES:
            return None
        return Finding(
            _KIND,
            f"{call.name} makes it {self._back} bytes that come to the host in one call of the launcher; more than "
            f"{BACK_BYTES} are no count or size any more, but data: kernels compute, the host does not",
        )

    def _to_device(self, call: RuntimeCall, from_host: bool) -> Finding | None:
        hosts = call.name if from_host else self._of_host.name(call.from_, call.from_extent)
        output = first_meeting(self._regions, "out", call.to, call.to_extent)
        if hosts and output:
            message = f"{call.name} copies bytes from the host into the output {output.name}: kernels write the outputs"
            return Finding(_KIND, message, buffer=output.name)
        self._fill(call, None if from_host else self._input_in(call), hosts)
        return None

    def _input_in(self, call: RuntimeCall) -> str | None:
        """The input that a copy's source is, or was copied from."""
        region = first_meeting(self._regions, "in", call.from_, call.from_extent)
        return region.name if region else self._of_input.name(call.from_, call.from_extent)

    def _fill(self, call: RuntimeCall, of_input: str | None, of_host: str | None) -> None:
        self._of_input.put(call.to, call.to_extent, of_input)
        self._of_host.put(call.to, call.to_extent, of_host)
