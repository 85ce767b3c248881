"""What a launcher called of the CUDA runtime -> findings: it computes on the host, or leaves work unjoined."""

from __future__ import annotations

from collections.abc import Sequence

from grader.devices import Buffer, Finding
from grader.devices.host_copies import host_copy
from grader.devices.runtime_calls import Noted, Region, parse
from grader.devices.stream_order import StreamOrder


class LauncherRules:
    """The rules for the launchers of one library, whose streams may live from call to call."""

    def __init__(self) -> None:
        self._order = StreamOrder()

    def broken(self, text: str, given: int, places: Sequence[Sequence[Region]]) -> list[Finding]:
        """At most one finding, of the first call of the launcher that breaks a rule.

        ``text`` is what the device noted, ``given`` the launcher's stream, ``places`` the buffers in each call.
        Of several calls the last is left out where not all of it was noted.
        """
        noted = parse(text)
        for call, regions in zip(noted, places, strict=False):
            if found := self._of(call, given, regions, alone=len(noted) == 1):
                return [found]
        return []

    def _of(self, noted: Noted, given: int, regions: Sequence[Region], *, alone: bool) -> Finding | None:
        if not noted.whole:
            much = f"more than {len(noted.calls)} calls of the CUDA runtime in one call of the launcher"
            return Finding("unsupported", f"{much}: the grader cannot follow so many") if alone else None
        late = self._order.unordered(noted.calls, given, regions)
        return host_copy(noted.calls, regions) or late


def regions(buffers: Sequence[Buffer], addresses: Sequence[int]) -> tuple[Region, ...]:
    """Where the buffers of a call lie."""
    return tuple(
        Region(buffer.name, buffer.role, address, len(buffer.data))
        for buffer, address in zip(buffers, addresses, strict=True)
    )
