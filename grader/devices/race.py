"""Launcher + baseline -> pairs of times: both run in turn in one process on one stream, from a cold L2.

A sample is: fresh contents at shifted pointers, poisoned outputs, twice the L2's size written so that nothing of all
that is left in it, a short wait in which the host gets ahead, event, launch, event. Afterwards the outputs are
compared, bit by bit, with what an untimed call made of the same contents; the parent judges those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_size_t, c_uint64, c_void_p
from random import Random

from grader.devices import Buffer, Contents, Contest, Finding, Poison, Raced
from grader.devices.baselines import Baselines, Run
from grader.devices.driver import Driver
from grader.devices.nvml import Monitor
from grader.devices.ptx import DIFFER, SPIN

WARM_UP_CALLS = 10
WARM_UP_S = 0.3
# A pointer of a timed call is one of so many, each as aligned as memory from the driver.
SHIFT_BYTES, SHIFTS = 256, 256
SPIN_CYCLES = 150_000  # some 80 us: longer than the host takes to call a launcher or torch
GUARD_BYTES = 1 << 16
SMALL_BYTES = 1 << 16  # outputs up to here may differ from call to call, and come back each time
DIFFERENT = 3  # larger outputs that are not what they were, and come back to be judged
COLD_CLOCK = 0.05  # of the SM clock: who loses more while samples are taken had not warmed up
LATE_S, LATE_SHARE = 20e-6, 0.2  # the context is busy for so long, and so much of the sample, after its stream is done

_L2_CACHE_SIZE, _PERSISTING_L2_LIMIT = 38, 6  # CUdevice_attribute, CUlimit
_CARD = {  # name -> CUdevice_attribute
    "sms": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": _L2_CACHE_SIZE,
}


_Times = list[tuple[float, float]]  # seconds of the baseline and of what ran beside it


class _Input:
    """An input's master, long enough for every contents, and the place where a timed call finds it."""

    def __init__(self, driver: Driver, buffer: Buffer, most: int) -> None:
        data = buffer.given
        self.name, self.size = buffer.name, len(data)
        self.master = driver.allocate(self.size + most)
        end = self.size + most if self.size else 0
        for start in range(0, end, max(1, self.size)):  # once whole, then as much again as the rotations reach
            driver.upload(self.master + start, data if start + self.size <= end else data[: end - start])
        self.place = driver.allocate(self.size + SHIFT_BYTES * SHIFTS)

    def contents(self, rotation: int) -> int:
        """The address of the input's bytes, rotated to the left by ``rotation``."""
        return self.master + (rotation % self.size if self.size else 0)


class _Output:
    """Where a timed call writes: guard, room for the shift, contents, guard; all of it poisoned before each call."""

    def __init__(self, driver: Driver, buffer: Buffer, kept: int) -> None:
        self.driver, self.name, self.size = driver, buffer.name, len(buffer.data)
        self.poison = bytes([buffer.data.byte]) if isinstance(buffer.data, Poison) else bytes(buffer.data[:1]) or b"\0"
        self.room = 2 * GUARD_BYTES + SHIFT_BYTES * SHIFTS + self.size
        self.place = driver.allocate(self.room)
        self.words = -(-self.size // 4)
        self.kept = [driver.allocate(4 * self.words) for _ in range(kept)]  # of each contents the first answer

    def prepare(self) -> None:
        self.driver.fill(self.place, self.poison[0], self.room)

    def outside(self, pointer: int) -> Finding | None:
        """A finding where bytes around the output are no longer poison."""
        front = pointer - self.place
        before = self.driver.download(self.place, front)
        after = self.driver.download(pointer + self.size, self.room - front - self.size)
        if before.strip(self.poison) or after.strip(self.poison):
            return Finding("out of bounds", f"the kernel wrote outside {self.name}", buffer=self.name)
        return None


class Race:
    """One contest on the first GPU. Owns its memory and events until it is closed."""

    def __init__(self, driver: Driver, contest: Contest, buffers: tuple[Buffer, ...]) -> None:
        self._driver, self._contest = driver, contest
        self._random = Random(contest.seed)
        self._contents = contest.rotations[:-1]  # the last is the baseline's alone
        self._inputs = [_Input(driver, item, max(contest.rotations)) for item in buffers if item.role == "in"]
        self._outputs = [_Output(driver, item, len(self._contents)) for item in buffers if item.role == "out"]
        self._small = sum(output.size for output in self._outputs) <= SMALL_BYTES
        self._answers: list[tuple[int, dict[str, Contents]]] = []
        self._differing = self._late = 0  # timed calls of the launcher that did so
        self._found: Finding | None = None
        self._clocks: list[int] = []
        self._monitor = Monitor(driver.pci_bus_id())
        self._flush_bytes = 2 * driver.attribute(_L2_CACHE_SIZE)
        self._flushed, self._flag = driver.allocate(self._flush_bytes), driver.allocate(4)
        self._spin, self._differ = driver.kernel(SPIN, "spin"), driver.kernel(DIFFER, "differ")
        self._begin, self._end = c_void_p(), c_void_p()
        for event in (self._begin, self._end):
            driver.do("cuEventCreate", byref(event), 0)
        self._baselines = Baselines(driver)
        places = {item.name: item.contents(contest.rotations[-1]) for item in self._inputs}
        self._baseline = self._baselines.open(contest, places, buffers)

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *_: object) -> None:
        driver = self._driver
        if driver.result("cuCtxSynchronize") != 0:
            return  # the context is broken, and with it goes all that it held
        self._baselines.close()
        for event in (self._begin, self._end):
            driver.do("cuEventDestroy_v2", event)
        memory = [self._flushed, self._flag]
        memory += [place for item in self._inputs for place in (item.master, item.place)]
        memory += [place for item in self._outputs for place in (item.place, *item.kept)]
        for address in memory:
            driver.free(address)

    def run(self, launch: Callable[[Sequence[int]], None]) -> Raced:
        """Time both arms. ``launch`` calls the launcher with the buffers' addresses, inputs first.

        Raises DriverError where a kernel broke the context.
        """
        for index in range(len(self._contents)):
            self._keep(index, self._called(launch, index))
        start, calls = time.monotonic(), 0
        while calls < WARM_UP_CALLS or time.monotonic() - start < WARM_UP_S:
            self._baseline()
            self._check(0, self._called(launch, 0))
            calls += 1
        canary, times, clocks = self._timed(launch)
        if clocks[1] < (1 - COLD_CLOCK) * clocks[0]:
            canary, times, clocks = self._timed(launch)
        return Raced(
            times=tuple(times),
            canary=tuple(canary),
            answers=tuple(self._answers),
            finding=self._found or self._lateness(),
            clocks_mhz=clocks,
            other_processes=self._monitor.other_processes(),
            card={name: self._driver.attribute(number) for name, number in _CARD.items()},
        )

    def _timed(self, launch: Callable[[Sequence[int]], None]) -> tuple[_Times, _Times, tuple[int, int]]:
        """Times of the baseline beside itself, of both arms, and the SM clock in MHz of the first and last quarter.

        A card may run for a second at its highest clock before its power makes it slower. What was timed before that
        counts for nothing.
        """
        self._clocks.clear()
        self._late = 0
        canary = [(self._baseline_s(), self._baseline_s()) for _ in range(self._contest.canary)]
        canary = [(second, first) if pair % 2 else (first, second) for pair, (first, second) in enumerate(canary)]
        times = [self._pair(launch, flipped=pair % 2 == 1) for pair in range(self._contest.pairs)]
        quarter = max(1, len(self._clocks) // 4)
        return canary, times, (_middle(self._clocks[:quarter]), _middle(self._clocks[-quarter:]))

    def _pair(self, launch: Callable[[Sequence[int]], None], *, flipped: bool) -> tuple[float, float]:
        """Seconds of the baseline and of the launcher, the launcher first where ``flipped``."""
        if flipped:
            mine = self._launcher_s(launch)
            return self._baseline_s(), mine
        return self._baseline_s(), self._launcher_s(launch)

    def _baseline_s(self) -> float:
        return self._sample(self._baseline)[0]

    def _launcher_s(self, launch: Callable[[Sequence[int]], None]) -> float:
        index = self._random.randrange(len(self._contents))
        pointers = self._place(index)
        seconds, late = self._sample(lambda: launch(pointers))
        self._late += late
        self._check(index, pointers)
        return seconds

    def _called(self, launch: Callable[[Sequence[int]], None], index: int) -> list[int]:
        """One untimed call; returns its pointers."""
        pointers = self._place(index)
        launch(pointers)
        self._driver.do("cuCtxSynchronize")
        return pointers

    def _place(self, index: int) -> list[int]:
        """Fresh contents at new places, and poisoned outputs; returns the pointers for the launcher."""
        pointers = []
        for item in self._inputs:
            pointers.append(item.place + self._shift())
            self._driver.copy(pointers[-1], item.contents(self._contents[index]), item.size)
        for output in self._outputs:
            output.prepare()
            pointers.append(output.place + GUARD_BYTES + self._shift())
        return pointers

    def _shift(self) -> int:
        return SHIFT_BYTES * self._random.randrange(SHIFTS)

    def _sample(self, run: Run) -> tuple[float, bool]:
        """Seconds of one run on the stream, from a cold L2; and whether the card was busy when the stream was done."""
        driver = self._driver
        driver.do("cuCtxSetLimit", _PERSISTING_L2_LIMIT, c_size_t(0))
        driver.fill(self._flushed, 0, self._flush_bytes)
        driver.launch(self._spin, blocks=1, threads=1, arguments=(c_uint64(SPIN_CYCLES),))
        driver.do("cuEventRecord", self._begin, driver.stream)
        run()
        driver.do("cuEventRecord", self._end, driver.stream)
        if (clock := self._monitor.sm_clock_mhz()) is not None:
            self._clocks.append(clock)
        driver.do("cuEventSynchronize", self._end)
        done = time.perf_counter()
        driver.do("cuCtxSynchronize")
        late_s = time.perf_counter() - done
        milliseconds = c_float()
        driver.do("cuEventElapsedTime", byref(milliseconds), self._begin, self._end)
        seconds = milliseconds.value / 1e3
        return seconds, late_s > LATE_S + LATE_SHARE * seconds

    def _lateness(self) -> Finding | None:
        """Of a launcher whose work goes on when its stream is done. One slow answer of the host is none."""
        if 2 * self._late <= self._contest.pairs:
            return None
        return Finding("race", "the launcher's work went on after the stream that it was given was done")

    # -- what the calls left

    def _keep(self, index: int, pointers: Sequence[int]) -> None:
        """The first answer to one contents, for the parent to judge and for later calls to be compared with."""
        for output, pointer in zip(self._outputs, pointers[len(self._inputs) :], strict=True):
            self._driver.copy(output.kept[index], pointer, 4 * output.words)
        self._bring_back(index, pointers)
        self._found = self._found or self._damage(index, pointers)

    def _check(self, index: int, pointers: Sequence[int]) -> None:
        """After a call: other bits than the first answer's come back; anything else that changed is a finding."""
        written = pointers[len(self._inputs) :]
        pairs = [(item.kept[index], place, item.words) for item, place in zip(self._outputs, written, strict=True)]
        if self._differs(pairs) and (self._small or self._differing < DIFFERENT):
            self._differing += 1
            self._bring_back(index, pointers)
        self._found = self._found or self._damage(index, pointers)

    def _damage(self, index: int, pointers: Sequence[int]) -> Finding | None:
        rotation = self._contents[index]
        inputs = zip(self._inputs, pointers, strict=False)
        if self._differs([(item.contents(rotation), place, item.size // 4) for item, place in inputs]):
            return Finding("modified its input", "the kernel wrote to its inputs")
        written = zip(self._outputs, pointers[len(self._inputs) :], strict=True)
        return next((found for item, place in written if (found := item.outside(place))), None)

    def _differs(self, pairs: Sequence[tuple[int, int, int]]) -> bool:
        """Whether any of the (address, address, count of 4-byte words) are not the same. Waits for the answer."""
        driver = self._driver
        driver.fill(self._flag, 0, 4)
        for one, other, words in pairs:
            arguments = (c_uint64(one), c_uint64(other), c_uint64(words), c_uint64(self._flag))
            driver.launch(self._differ, blocks=1024, threads=256, arguments=arguments)
        driver.synchronize()
        return any(driver.download(self._flag, 4))

    def _bring_back(self, index: int, pointers: Sequence[int]) -> None:
        outputs = zip(self._outputs, pointers[len(self._inputs) :], strict=True)
        self._driver.synchronize()
        self._answers.append((index, {item.name: self._driver.download(place, item.size) for item, place in outputs}))


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0
