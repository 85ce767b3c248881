"""A kata on the GPU: its launcher called through ctypes, on memory from the CUDA driver.

Every buffer lies between two guard bands. A guard byte that changed is a write out of bounds. An input's guard bytes,
0xFF, are a NaN to every float format and -1 to every integer, so that a value read from there shows in the answer.

The driver is called directly, without torch: a child process is then ready in half a second instead of four, which
every kata pays, and every kernel that breaks its context pays again.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from ctypes import c_char_p, c_void_p
from math import inf
from pathlib import Path

from grader.devices import (
    CTYPES,
    Buffer,
    Call,
    DeviceError,
    Finding,
    LoadError,
    Outcome,
    Poison,
    Rows,
    Timed,
    TimingRequest,
)
from grader.devices.counters import Launch
from grader.devices.gpu.baselines import BaselineError
from grader.devices.gpu.differ import WORD_BYTES, Differ
from grader.devices.gpu.driver import Driver, DriverError
from grader.devices.gpu.rows import RowReader
from grader.devices.gpu.timing import Timing
from grader.devices.launcher_rules import LauncherRules, regions
from grader.devices.runtime_calls import Region

GUARD_BYTES = 1 << 16
COPIED_BYTES = 1 << 20  # from here on an input is compared on the card
GUARD_PATTERN = {
    "in": 0xFF,
    "out": 0xFE,
    "updated": 0xFD,
}  # not the same: what is copied from one band to another shows
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
_OUT_OF_MEMORY = 2
_THREADS_PER_SM = 39  # CUdevice_attribute


class GpuDevice:
    """The first CUDA device with one kata's library loaded."""

    def __init__(self, driver: Driver, *, library: Path, source: Path) -> None:
        self._driver = driver
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise LoadError("does not compile", f"{source.name}: the library cannot be loaded: {error}") from error
        self._take_error, self._take_launches = self._library.kata_take_error, self._library.kata_take_launches
        self._take_calls = self._library.kata_take_calls
        self._take_error.restype = self._take_launches.restype = self._take_calls.restype = c_char_p
        self._rules = LauncherRules()
        self._differ, self._reader = Differ(driver), RowReader(driver)
        self._timed_at = -inf
        self.spent = False

    def call(self, call: Call, timed: Timed | None = None) -> Outcome:
        if call.timing is not None:
            assert timed is not None
            return self._time(call, call.timing, timed)
        placed = [_Placed(self._driver, buffer, self._differ) for buffer in call.buffers]
        self._driver.do("cuCtxSynchronize")
        pointers = [item.pointer for item in placed]
        self._launch(call, pointers)
        refused = self._refused()
        result = self._driver.result("cuCtxSynchronize")
        if result != 0:
            self.spent = True
            return Outcome(findings=(self._broken(result),))
        launches = self._launches()
        findings = [refused] if refused else []
        findings += self._broken_rules([regions(call.buffers, pointers)])
        answered, unwritten = [item for item in placed if item.buffer.role != "in"], {}
        if call.rows is not None:
            unwritten = {item.buffer.name: item.keep_rows(self._reader, call.rows) for item in answered}
        findings += [finding for item in placed for finding in item.collect()]
        outputs = {item.buffer.name: item.contents for item in answered}
        return Outcome(outputs=outputs, findings=tuple(findings), launches=launches, unwritten=unwritten)

    def _launch(self, call: Call, pointers: Sequence[int]) -> None:
        scalars = [CTYPES[scalar.ctype](scalar.value) for scalar in call.scalars]
        arguments = (*(c_void_p(pointer) for pointer in pointers), *scalars, self._driver.stream)
        self._library.kata_next_call()
        getattr(self._library, call.launcher)(*arguments)

    def _refused(self) -> Finding | None:
        """What the CUDA runtime would not do, where that is so."""
        error = self._take_error()
        return Finding("launch failed", f"the CUDA runtime refused a call: {error.decode()}") if error else None

    def _launches(self) -> tuple[Launch, ...]:
        """What the launcher launched since this was last asked, in order."""
        threads = self._driver.attribute(_THREADS_PER_SM)
        return tuple(launch_of(line, threads) for line in self._take_launches().decode(errors="replace").splitlines())

    def _broken_rules(self, places: Sequence[Sequence[Region]]) -> list[Finding]:
        """Of the calls of the launcher since this was last asked, with their buffers' places."""
        text = self._take_calls().decode(errors="replace")
        return self._rules.broken(text, self._driver.stream.value or 0, places)

    def _time(self, call: Call, request: TimingRequest, timed: Timed) -> Outcome:
        self._launches()
        called: list[Sequence[int]] = []  # the pointers of each call

        def launch(pointers: Sequence[int]) -> None:
            called.append(pointers)
            self._launch(call, pointers)

        try:
            with Timing(self._driver, request, call.buffers, timed) as timing:
                result = timing.run(launch, time.monotonic() - self._timed_at)
        except BaselineError as error:
            return Outcome(findings=(Finding("inconclusive", str(error)),))
        except DriverError as error:
            if error.result not in _BROKEN and error.result != _OUT_OF_MEMORY:
                raise
            self.spent = True
            return Outcome(findings=(self._broken(error.result),))
        self._timed_at = time.monotonic()
        launches = self._launches()
        refused = self._refused()
        buffers = sorted(call.buffers, key=lambda buffer: buffer.role == "out")  # as the timing run has them
        places = [regions(buffers, pointers) for pointers in called]
        findings = [*([refused] if refused else []), *self._broken_rules(places)]
        return Outcome(findings=tuple(findings), launches=launches, timing=result)

    def _broken(self, result: int) -> Finding:
        if result == _OUT_OF_MEMORY:
            return Finding("inconclusive", "the card has too little free memory for this shape; does something use it?")
        kind, meaning = _BROKEN.get(result, ("crash", "the kernel broke the CUDA context"))
        return Finding(kind, f"{meaning}: {self._driver.describe(result)}")


def launch_of(line: str, threads_per_sm: int) -> Launch:
    """One line of kata_take_launches. Raises DeviceError."""
    try:
        stream, *numbers, name = line.split(" ", 12)
        gx, gy, gz, bx, by, bz, dynamic, static, registers, local, blocks = map(int, numbers)
        queue = 0 if stream == "(nil)" else int(stream, 16)
    except ValueError:
        raise DeviceError(f"the GPU's record of launches: {line[:80]!r} is not a launch") from None
    return Launch(
        kernel=name,
        stream=queue,
        grid=(gx, gy, gz),
        block=(bx, by, bz),
        registers=registers,
        local_bytes=local,
        smem_bytes=dynamic + static,
        blocks_per_sm=blocks,
        occupancy=blocks * bx * by * bz / threads_per_sm,
    )


class _Placed:
    """A buffer on the GPU: guard, offset, contents, guard. ``contents`` holds what the kernel left, once collected."""

    def __init__(self, driver: Driver, buffer: Buffer, differ: Differ) -> None:
        self._driver, self.buffer, self._differ = driver, buffer, differ
        self._front = GUARD_BYTES + ALIGNMENT + buffer.offset_bytes
        self.contents = bytearray()
        self._has_rows = False  # contents are those that were asked for
        size = self._front + len(buffer.data) + GUARD_BYTES
        self._base = driver.allocate(size)
        self._guard = GUARD_PATTERN[buffer.role]
        driver.upload(self._base, Poison(self._guard, size))
        self.pointer = self._base + self._front
        driver.upload(self.pointer, buffer.data)
        self._copy = 0  # of a large input, so that it need not come back
        if buffer.role == "in" and len(buffer.data) >= COPIED_BYTES and self.pointer % WORD_BYTES == 0:
            self._copy = driver.allocate(len(buffer.data))
            driver.copy(self._copy, self.pointer, len(buffer.data))

    def collect(self) -> list[Finding]:
        """Bring the bytes back, free the memory, and look for guard bytes that changed, and for an input its own."""
        size, is_whole = len(self.buffer.data), self._is_whole()
        before, after = self._bytes(0, self._front), self._bytes(self._front + size, GUARD_BYTES)
        if not (is_whole or self._has_rows):
            self.contents = self._bytes(self._front, size)
        self._driver.free(self._base)
        found = []  # of each guard the changed byte that is nearest to the buffer
        if not self._is_intact(before):
            found.append(self._finding("out of bounds", "wrote", -1 - self._intact(before[::-1])))
        if not self._is_intact(after):
            found.append(self._finding("out of bounds", "wrote", size + self._intact(after)))
        # Of equal length, so that startswith compares all: in one go, where != looks at a memoryview byte by byte.
        if self.buffer.role == "in" and not is_whole and not self.contents.startswith(self.buffer.given):
            pairs = zip(self.contents, self.buffer.given, strict=True)
            byte = next(place for place, (now, then) in enumerate(pairs) if now != then)
            found.append(self._finding("modified its input", "wrote to the input", byte))
        return found

    def keep_rows(self, reader: RowReader, rows: Rows) -> int:
        """Only some rows of this output are wanted. Returns how many elements of it were never written."""
        self.contents, self._has_rows = reader.read(self.pointer, self.buffer, rows), True
        return reader.unwritten(self.pointer, self.buffer)

    def _is_whole(self) -> bool:
        """Whether this is a large input that is as it was given. Frees its copy."""
        if not self._copy:
            return False
        words, rest = divmod(len(self.buffer.data), WORD_BYTES)
        end = WORD_BYTES * words
        differs = self._differ.differs([(self.pointer, self._copy, words)])
        self._driver.free(self._copy)
        return not differs and self._bytes(self._front + end, rest) == self.buffer.given[end:]

    def _bytes(self, start: int, size: int) -> bytearray:
        return self._driver.download(self._base + start, size)

    def _is_intact(self, guard: bytearray) -> bool:
        """In one go, where a count looks at byte after byte: 0.2 ms, sixteen times in a call of four buffers."""
        return guard == bytes([self._guard]) * len(guard)

    def _intact(self, guard: bytearray) -> int:
        """How many bytes of a guard are unchanged before the first that is not."""
        return len(guard) - len(guard.lstrip(bytes([self._guard])))

    def _finding(self, kind: str, did: str, byte: int) -> Finding:
        index = byte // self.buffer.itemsize
        name, count = self.buffer.name, len(self.buffer.data) // self.buffer.itemsize
        extent = f"; {name} has {count} element{'' if count == 1 else 's'}"
        message = f"the kernel {did} {name}[{index}]" + ("" if 0 <= index < count else extent)
        return Finding(kind, message, buffer=name, index=index)
