"""A kata on the GPU: its launcher called through ctypes, on memory from the CUDA driver.

Every buffer lies between two guard bands. A guard byte that changed is a write out of bounds. An input's guard bytes,
0xFF, are a NaN to every float format and -1 to every integer, so that a value read from there shows in the answer.

The driver is called directly, without torch: a child process is then ready in half a second instead of four, which
every kata pays, and every kernel that breaks its context pays again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from grader.devices import CTYPES, Buffer, Call, Finding, LoadError, Outcome
from grader.devices.driver import Driver
from grader.devices.race import Race

GUARD_BYTES = 1 << 16
GUARD_BYTE = {"in": 0xFF, "out": 0xFE}  # not the same: what is copied from one band to another shows
ALIGNMENT = 256  # bytes; what cuMemAlloc promises

# CUresult of a kernel that broke the context (CUDA Driver API, 6.1), and the verdict that it means.
_BROKEN = {
    700: ("out of bounds", "the kernel read or wrote memory that is not there"),
    702: ("time-out", "the kernel ran longer than the driver allows"),
    710: ("crash", "an assert in the kernel failed"),
    714: ("crash", "a kernel overflowed its stack or its call stack is damaged"),
    715: ("crash", "the kernel executed an illegal instruction"),
    716: ("misaligned", "the kernel accessed an address that is no multiple of the access's size"),
    717: ("out of bounds", "the kernel used an address of one memory space in another"),
    718: ("crash", "the kernel jumped to an address that holds no instruction"),
    719: ("crash", "the kernel stopped with a trap, or a shared or local access out of bounds"),
}


class GpuDevice:
    """The first CUDA device with one kata's library loaded."""

    def __init__(self, driver: Driver, *, library: Path, source: Path) -> None:
        self._driver = driver
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise LoadError("does not compile", f"{source.name}: the library cannot be loaded: {error}") from error
        self._take_error = self._library.kata_take_error
        self._take_error.restype = c_char_p
        self.spent = False

    def call(self, call: Call) -> Outcome:
        placed = [_Placed(self._driver, buffer) for buffer in call.buffers]
        pointers = [c_void_p(item.pointer) for item in placed]
        scalars = [CTYPES[scalar.ctype](scalar.value) for scalar in call.scalars]
        self._driver.do("cuCtxSynchronize")
        arguments = (*pointers, *scalars, self._driver.stream)
        getattr(self._library, call.launcher)(*arguments)
        refused = self._take_error()
        result = self._driver.result("cuCtxSynchronize")
        times: tuple[tuple[float, float], ...] = ()
        if call.race is not None and refused is None and result == 0:
            times, result = self._race(call, placed, arguments)
        if result != 0:
            self.spent = True
            return Outcome(findings=(self._broken(result),))
        findings: list[Finding] = []
        if refused is not None:
            findings.append(Finding("launch failed", f"the CUDA runtime refused a call: {refused.decode()}"))
        findings += [finding for item in placed for finding in item.collect()]
        outputs = {item.buffer.name: item.contents for item in placed if item.buffer.role == "out"}
        return Outcome(outputs=outputs, findings=tuple(findings), times=times)

    def _race(
        self, call: Call, placed: Sequence[_Placed], arguments: tuple[Any, ...]
    ) -> tuple[tuple[tuple[float, float], ...], int]:
        """(seconds of baseline and launcher for each pair, the result of the last synchronisation)."""
        assert call.race is not None
        launcher = getattr(self._library, call.launcher)

        def poison() -> None:
            for item in placed:
                if item.buffer.role == "out":
                    item.poison()

        with Race(self._driver, call.race) as race:
            return race.run(lambda: launcher(*arguments), poison)

    def _broken(self, result: int) -> Finding:
        kind, meaning = _BROKEN.get(result, ("crash", "the kernel broke the CUDA context"))
        return Finding(kind, f"{meaning}: {self._driver.describe(result)}")


class _Placed:
    """A buffer on the GPU: guard, offset, contents, guard. ``contents`` holds what the kernel left, once collected."""

    def __init__(self, driver: Driver, buffer: Buffer) -> None:
        self._driver, self.buffer = driver, buffer
        self._front = GUARD_BYTES + ALIGNMENT + buffer.offset_bytes
        self._base = c_uint64()
        self.contents = b""
        size = self._front + len(buffer.data) + GUARD_BYTES
        driver.do("cuMemAlloc_v2", byref(self._base), c_size_t(size))
        self._guard = GUARD_BYTE[buffer.role]
        driver.do("cuMemsetD8_v2", self._base, self._guard, c_size_t(size))
        self.pointer = self._base.value + self._front
        if buffer.data:
            driver.do("cuMemcpyHtoD_v2", c_uint64(self.pointer), buffer.data, c_size_t(len(buffer.data)))

    def poison(self) -> None:
        """Fill an output again with what it held before the first call, in the stream's order."""
        if data := self.buffer.data:
            self._driver.do(
                "cuMemsetD8Async", c_uint64(self.pointer), data[0], c_size_t(len(data)), self._driver.stream
            )

    def collect(self) -> list[Finding]:
        """Bring the bytes back, free the memory, and look for guard bytes that changed, and for an input its own."""
        size = len(self.buffer.data)
        before, self.contents, after = (
            self._bytes(0, self._front),
            self._bytes(self._front, size),
            self._bytes(self._front + size, GUARD_BYTES),
        )
        self._driver.do("cuMemFree_v2", self._base)
        found = [  # of each guard the changed byte that is nearest to the buffer
            self._outside(self._front - 1 - self._intact(before[::-1]), before),
            self._outside(self._front + size + self._intact(after), after),
        ]
        if self.buffer.role == "in" and self.contents != self.buffer.data:
            pairs = zip(self.contents, self.buffer.data, strict=True)
            byte = next(place for place, (now, then) in enumerate(pairs) if now != then)
            found.append(self._finding("modified its input", "wrote to the input", byte))
        return [finding for finding in found if finding is not None]

    def _bytes(self, start: int, size: int) -> bytes:
        if size == 0:
            return b""
        there = ctypes.create_string_buffer(size)
        self._driver.do("cuMemcpyDtoH_v2", there, c_uint64(self._base.value + start), c_size_t(size))
        return there.raw

    def _intact(self, guard: bytes) -> int:
        """How many bytes of a guard are unchanged before the first that is not."""
        return len(guard) - len(guard.lstrip(bytes([self._guard])))

    def _outside(self, place: int, guard: bytes) -> Finding | None:
        """A finding for the byte at ``place`` of the allocation, where the guard around it changed at all."""
        if self._intact(guard) == len(guard):
            return None
        return self._finding("out of bounds", "wrote", place - self._front)

    def _finding(self, kind: str, did: str, byte: int) -> Finding:
        index = byte // self.buffer.itemsize
        name, count = self.buffer.name, len(self.buffer.data) // self.buffer.itemsize
        extent = f"; {name} has {count} element{'' if count == 1 else 's'}"
        message = f"the kernel {did} {name}[{index}]" + ("" if 0 <= index < count else extent)
        return Finding(kind, message, buffer=name, index=index)
