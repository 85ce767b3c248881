"""Launcher + baseline -> pairs of times: both run in turn in one process on one stream, from a cold L2.

A sample is: poison the outputs, write twice the L2's size so that nothing of the last sample is left in it, event,
launch, event. The writing takes longer than a launch, so the GPU never waits for the host between the two events.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from ctypes import byref, c_float, c_size_t, c_uint64, c_void_p

from grader.devices import Contest
from grader.devices.driver import Driver

WARM_UP_CALLS = 10
WARM_UP_S = 0.3

_L2_CACHE_SIZE, _MULTIPROCESSOR_COUNT = 38, 16  # CUdevice_attribute
_READ_THREADS, _READ_BLOCKS_PER_SM = 512, 2

UNROLL = 8  # loads of 16 bytes in flight for each thread of the reading kernel


def _read_ptx() -> bytes:
    """A kernel that reads the bytes from ``from`` up to ``to``, 16 a thread at a time, neighbours beside each other.

    It stores the exclusive or of what it read only where that is one value in 2^32, so that no load can be left out.
    """
    places = range(UNROLL)
    loads = [line.format(i=i) for i in places for line in _LOAD]
    sums = [f"@%in{i} xor.b32 %sum, %sum, %{name}{i};" for i in places for name in "abcd"]
    return ("\n".join([_HEAD, *loads, *sums, _TAIL])).encode() + b"\0"


_HEAD = f"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry read_all(.param .u64 from, .param .u64 to, .param .u64 out) {{
.reg .pred %go, %in<{UNROLL}>;
.reg .b32 %a<{UNROLL}>, %b<{UNROLL}>, %c<{UNROLL}>, %d<{UNROLL}>, %me, %width, %block, %blocks, %sum;
.reg .b64 %p, %step, %to, %out;
ld.param.u64 %p, [from];
ld.param.u64 %to, [to];
ld.param.u64 %out, [out];
mov.u32 %me, %tid.x;
mov.u32 %width, %ntid.x;
mov.u32 %block, %ctaid.x;
mov.u32 %blocks, %nctaid.x;
mul.wide.u32 %step, %width, %blocks;
shl.b64 %step, %step, 4;
mad.lo.u32 %me, %block, %width, %me;
mad.wide.u32 %p, %me, 16, %p;
mov.u32 %sum, 0;
AGAIN:"""

_LOAD = (
    "setp.lt.u64 %in{i}, %p, %to;",
    "@%in{i} ld.global.nc.v4.u32 {{%a{i}, %b{i}, %c{i}, %d{i}}}, [%p];",
    "add.u64 %p, %p, %step;",
)

_TAIL = """setp.lt.u64 %go, %p, %to;
@%go bra AGAIN;
setp.eq.u32 %go, %sum, 0x9e3779b9;
@%go st.global.u32 [%out], %sum;
ret;
}
"""


class Race:
    """One contest on the first GPU. Owns its buffers and events until it is closed."""

    def __init__(self, driver: Driver, contest: Contest) -> None:
        self._driver, self._contest = driver, contest
        self._memory: list[c_uint64] = []
        self._events: list[c_void_p] = []
        self._arguments: tuple[c_uint64, ...] = ()
        self._flush_bytes = 2 * driver.attribute(_L2_CACHE_SIZE)
        self._flushed = self._allocate(self._flush_bytes)
        self._baseline = _BASELINES[contest.baseline](self, contest.bytes_moved)

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *_: object) -> None:
        for event in self._events:
            self._driver.result("cuEventDestroy_v2", event)
        for memory in self._memory:
            self._driver.result("cuMemFree_v2", memory)

    def run(
        self, launch: Callable[[], object], prepare: Callable[[], None]
    ) -> tuple[tuple[tuple[float, float], ...], int]:
        """(seconds of baseline and of ``launch`` for each pair, the last CUresult). Pairs are A, B, then B, A."""
        driver = self._driver
        start, calls = time.monotonic(), 0
        while calls < WARM_UP_CALLS or time.monotonic() - start < WARM_UP_S:
            self._baseline()
            launch()
            calls += 1
            if (result := driver.result("cuStreamSynchronize", driver.stream)) != 0:
                return (), result
        times: list[tuple[float, float]] = []
        for pair in range(self._contest.pairs):
            arms = (self._baseline, launch)
            marks = [self._sample(arms[arm], prepare) for arm in ((0, 1) if pair % 2 == 0 else (1, 0))]
            if (result := driver.result("cuStreamSynchronize", driver.stream)) != 0:
                return (), result
            first, second = (self._seconds(*mark) for mark in marks)
            times.append((first, second) if pair % 2 == 0 else (second, first))
        return tuple(times), 0

    def _sample(self, launch: Callable[[], object], prepare: Callable[[], None]) -> tuple[c_void_p, c_void_p]:
        driver = self._driver
        prepare()
        driver.do("cuMemsetD8Async", self._flushed, 0, c_size_t(self._flush_bytes), driver.stream)
        begin, end = self._event(), self._event()
        driver.do("cuEventRecord", begin, driver.stream)
        launch()
        driver.do("cuEventRecord", end, driver.stream)
        return begin, end

    def _event(self) -> c_void_p:
        event = c_void_p()
        self._driver.do("cuEventCreate", byref(event), 0)
        self._events.append(event)
        return event

    def _seconds(self, begin: c_void_p, end: c_void_p) -> float:
        milliseconds = c_float()
        self._driver.do("cuEventElapsedTime", byref(milliseconds), begin, end)
        return milliseconds.value / 1e3

    def _allocate(self, size: int) -> c_uint64:
        memory = c_uint64()
        self._driver.do("cuMemAlloc_v2", byref(memory), c_size_t(size))
        self._memory.append(memory)
        return memory

    def _noise(self, size: int) -> c_uint64:
        """Device memory of ``size`` bytes with contents of full entropy: zeros would move faster."""
        memory = self._allocate(size)
        block = os.urandom(min(size, 64 << 20))
        for place in range(0, size, len(block)):
            count = min(len(block), size - place)
            self._driver.do("cuMemcpyHtoD_v2", c_uint64(memory.value + place), block, c_size_t(count))
        return memory

    def copy(self, bytes_moved: int) -> Callable[[], None]:
        """Half of the bytes read, half of them written: a copy from one buffer to another."""
        size = max(1, bytes_moved // 2)
        source, target = self._noise(size), self._allocate(size)
        driver = self._driver
        return lambda: driver.do("cuMemcpyDtoDAsync_v2", target, source, c_size_t(size), driver.stream)

    def read(self, bytes_moved: int) -> Callable[[], None]:
        """All of the bytes read, to a whole number of 16, and nothing written."""
        driver, size = self._driver, -(-bytes_moved // 16) * 16
        source, unused = self._noise(size), self._allocate(4)
        module, kernel = c_void_p(), c_void_p()
        driver.do("cuModuleLoadData", byref(module), _read_ptx())
        driver.do("cuModuleGetFunction", byref(kernel), module, b"read_all")
        end = c_uint64(source.value + size)
        self._arguments = (source, end, unused)  # kept: a launch reads them through their addresses
        addresses = (c_void_p * 3)(*(ctypes.addressof(argument) for argument in self._arguments))
        blocks = _READ_BLOCKS_PER_SM * driver.attribute(_MULTIPROCESSOR_COUNT)
        shape = (blocks, 1, 1, _READ_THREADS, 1, 1, 0)
        return lambda: driver.do("cuLaunchKernel", kernel, *shape, driver.stream, addresses, None)


_BASELINES: dict[str, Callable[[Race, int], Callable[[], None]]] = {"copy": Race.copy, "read": Race.read}
