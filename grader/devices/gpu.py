"""A kata on the GPU: its launcher called through ctypes, on memory from the CUDA driver.

Every buffer lies between two guard bands. A guard byte that changed is a write out of bounds; its 0xFF bytes are a NaN
to every float format and -1 to every integer, so that a value read from there shows in the answer.

The driver is called directly, without torch: a child process is then ready in half a second instead of four, which
every kata pays, and every kernel that breaks its context pays again.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from grader.devices import CTYPES, Buffer, Call, Finding, LoadError, Outcome

GUARD_BYTES = 1 << 16
GUARD = b"\xff" * GUARD_BYTES
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


class DriverError(Exception):
    """A call of the CUDA driver that must succeed did not."""


class Driver:
    """The CUDA driver and the primary context of the first GPU, which the kata's own runtime uses too."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError(f"the NVIDIA driver is not installed ({error})") from None
        device, context, self.stream = c_int(), c_void_p(), c_void_p()
        self.do("cuInit", 0)
        self.do("cuDeviceGet", byref(device), 0)
        self.do("cuDevicePrimaryCtxRetain", byref(context), device)
        self.do("cuCtxSetCurrent", context)
        # A stream that waits for no other: a launcher that ignores it has no order to rely on.
        self.do("cuStreamCreate", byref(self.stream), 1)

    def result(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, name)(*arguments))

    def do(self, name: str, *arguments: Any) -> None:
        result = self.result(name, *arguments)
        if result != 0:
            raise DriverError(f"{name}: {self.describe(result)}")

    def describe(self, result: int) -> str:
        name, text = c_char_p(), c_char_p()
        self._library.cuGetErrorName(result, byref(name))
        self._library.cuGetErrorString(result, byref(text))
        return f"{(name.value or b'unknown').decode()} ({(text.value or b'').decode()})"


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
        getattr(self._library, call.launcher)(*pointers, *scalars, self._driver.stream)
        refused = self._take_error()
        result = self._driver.result("cuCtxSynchronize")
        if result != 0:
            self.spent = True
            return Outcome(findings=(self._broken(result),))
        findings: list[Finding] = []
        if refused is not None:
            findings.append(Finding("launch failed", f"the CUDA runtime refused a call: {refused.decode()}"))
        findings += [finding for item in placed for finding in item.collect()]
        outputs = {item.buffer.name: item.contents for item in placed if item.buffer.role == "out"}
        return Outcome(outputs=outputs, findings=tuple(findings))

    def _broken(self, result: int) -> Finding:
        kind, meaning = _BROKEN.get(result, ("crash", "the kernel broke the CUDA context"))
        return Finding(kind, f"{meaning}: {self._driver.describe(result)}")


class _Placed:
    """A buffer on the GPU: guard, offset, contents, guard. ``contents`` holds what the kernel left, once collected."""

    def __init__(self, driver: Driver, buffer: Buffer) -> None:
        self._driver, self.buffer = driver, buffer
        self._front = GUARD_BYTES + ALIGNMENT + buffer.offset_bytes
        self._image = b"\xff" * self._front + buffer.data + GUARD
        self._base = c_uint64()
        self.contents = b""
        driver.do("cuMemAlloc_v2", byref(self._base), c_size_t(len(self._image)))
        driver.do("cuMemcpyHtoD_v2", self._base, self._image, c_size_t(len(self._image)))
        self.pointer = self._base.value + self._front

    def collect(self) -> list[Finding]:
        """Bring the bytes back, free the memory, and look for guard bytes that changed, and for an input its own."""
        after = ctypes.create_string_buffer(len(self._image))
        self._driver.do("cuMemcpyDtoH_v2", after, self._base, c_size_t(len(self._image)))
        self._driver.do("cuMemFree_v2", self._base)
        image = after.raw
        end = self._front + len(self.buffer.data)
        self.contents = image[self._front : end]
        found = [
            self._changed(image, range(self._front - 1, -1, -1), "out of bounds", "wrote"),
            self._changed(image, range(end, len(image)), "out of bounds", "wrote"),
        ]
        if self.buffer.role == "in":
            found.append(self._changed(image, range(self._front, end), "modified its input", "wrote to the input"))
        return [finding for finding in found if finding is not None]

    def _changed(self, image: bytes, region: range, kind: str, did: str) -> Finding | None:
        """A finding for the first byte of the region that changed, in the region's order: nearest to the buffer."""
        if not region:
            return None
        low, high = sorted((region[0], region[-1]))
        if image[low : high + 1] == self._image[low : high + 1]:
            return None
        byte = next(place for place in region if image[place] != self._image[place])
        index = (byte - self._front) // self.buffer.itemsize
        name, count = self.buffer.name, len(self.buffer.data) // self.buffer.itemsize
        extent = f"; {name} has {count} element{'' if count == 1 else 's'}"
        message = f"the kernel {did} {name}[{index}]" + ("" if 0 <= index < count else extent)
        return Finding(kind, message, buffer=name, index=index)
