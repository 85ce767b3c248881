"""The streams of a launcher -> a finding for work that is in no order with the stream that it was given.

What each stream, each event and the host know of the others is kept as a clock: of each stream, how many pieces of its
work are done before whatever comes next. The rules are those of the CUDA C++ Programming Guide ("Asynchronous
Concurrent Execution"): work of one stream is in order; a stream that waits for an event waits for what was before its
record; the host waits where it synchronises, and what it asks for later comes later; the legacy default stream and the
streams that are not cudaStreamNonBlocking wait for each other. The given stream is a non-blocking one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from grader.devices import Finding
from grader.devices.runtime_calls import NON_BLOCKING, TOUCHES, WAITS, WORK, Region, RuntimeCall

LEGACY, LAST_DEFAULT = (0, 1), 2  # cudaStreamLegacy is 1, cudaStreamPerThread 2

_LEGACY = 0  # what the legacy default stream is known by
_Clock = Counter[int]


class StreamOrder:
    """The streams and events of one process: a launcher may keep them from call to call."""

    def __init__(self) -> None:
        self._handles: dict[int, int] = {}  # -> what is known of the stream by: a handle may be used again
        self._clocks: dict[int, _Clock] = {_LEGACY: Counter()}
        self._events: dict[int, _Clock] = {}
        self._non_blocking: set[int] = set()
        self._host: _Clock = Counter()
        self._done: _Clock = Counter()  # pieces of work of each stream, so far

    def unordered(self, calls: Sequence[RuntimeCall], given: int, regions: Sequence[Region]) -> Finding | None:
        """The first that is wrong with one call of the launcher, on the stream ``given``.

        Everything from before is done by then, but for what the given stream has to do first: the inputs.
        """
        stream, self._host = self._known(given), Counter(self._done)
        self._non_blocking.add(stream)
        begun = self._add(stream)
        wrong: list[Finding] = []
        work: list[tuple[int, int, RuntimeCall]] = []
        for call in calls:
            self._take(call)
            if call.verb not in WORK:
                continue
            name = self._known(call.stream)
            if self._clocks[name][stream] < begun and _touches(call, regions):
                wrong.append(_early(call))
            work.append((name, self._add(name), call))
            if call.has(WAITS):
                self._host |= self._clocks[name]
        end = self._host | self._clocks[stream]
        wrong += [_late(call) for name, number, call in work if end[name] < number]
        default = [_on_default(call) for _, _, call in work if call.verb == "kernel" and call.stream <= LAST_DEFAULT]
        return next(iter(default + wrong), None)

    def _known(self, handle: int) -> int:
        if handle in LEGACY:
            return _LEGACY
        return self._handles[handle] if handle in self._handles else self._new(handle)

    def _new(self, handle: int) -> int:
        self._handles[handle] = name = len(self._clocks)
        self._clocks[name] = Counter()
        return name

    def _add(self, name: int) -> int:
        """One more piece of work; its number."""
        self._done[name] += 1
        self._clocks[name][name] = self._done[name]
        return self._done[name]

    def _take(self, call: RuntimeCall) -> None:
        """What a call says of the order."""
        if call.verb == "open":
            self._open(call)
        elif call.verb == "await_all":
            self._host = Counter(self._done)
        elif call.verb == "await_event":
            self._host |= self._events.get(call.event, Counter())
        else:
            clock = self._next(call.stream)
            if call.verb == "record":
                self._events[call.event] = Counter(clock)
            elif call.verb == "wait":
                clock |= self._events.get(call.event, Counter())
            elif call.verb == "await_stream":
                self._host |= clock

    def _next(self, handle: int) -> _Clock:
        """The clock of what a stream does next, when the host asks for it now."""
        name = self._known(handle)
        clock = self._clocks[name]
        clock |= self._host
        if name == _LEGACY:
            for other in self._clocks.keys() - self._non_blocking:
                clock |= self._clocks[other]
        elif name not in self._non_blocking:
            clock |= self._clocks[_LEGACY]
        return clock

    def _open(self, call: RuntimeCall) -> None:
        name = self._new(call.stream)
        if call.has(NON_BLOCKING):
            self._non_blocking.add(name)


def _touches(call: RuntimeCall, regions: Sequence[Region]) -> bool:
    return call.has(TOUCHES) or any(
        region.meets(call.to, call.to_extent) or region.meets(call.from_, call.from_extent) for region in regions
    )


def _kernel(call: RuntimeCall) -> str | None:
    return call.name if call.verb == "kernel" else None


def _where(call: RuntimeCall) -> str:
    place = "the default stream, which" if call.stream <= LAST_DEFAULT else "a stream that"
    return f"{call.name} is {'launched' if call.verb == 'kernel' else 'called'} on {place}"


def _on_default(call: RuntimeCall) -> Finding:
    where = "on the default stream, not on the launcher's: what waits for that one does not wait for this kernel"
    return Finding("race", f"{call.name} is launched {where}", kernel=_kernel(call))


def _early(call: RuntimeCall) -> Finding:
    message = f"{_where(call)} does not wait for the launcher's: what that one has to do first may not be done"
    return Finding("race", f"{message} (cudaEventRecord, cudaStreamWaitEvent)", kernel=_kernel(call))


def _late(call: RuntimeCall) -> Finding:
    message = f"{_where(call)} is not joined to the launcher's: what waits for that one does not wait for it"
    return Finding("race", f"{message} (cudaEventRecord, cudaStreamWaitEvent)", kernel=_kernel(call))
