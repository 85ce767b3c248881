"""Launcher + baselines -> pairs of times: they run in turn in one process on one stream, from a cold L2.

A sample is: contents that no call got before at shifted pointers, poisoned outputs, twice the L2's size written so that
nothing of all that is left in it, a short wait in which the host gets ahead, event, launch, event, and a copy of the
outputs in the order of the stream. Then an untimed call gets the same contents at other places, and the answers are
compared bit by bit. The parent judges timed answers that chance picks, and those with other bits.

All timed answers stay on the card until the last is there. Only then does this process learn which are judged, and in
which rows: the learner's code runs here, and could read of it. For the same reason it gets the seed of a call's
contents when it makes them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_float, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random

from grader.devices import (
    BESIDE_PAIRS,
    WARM_UP_S,
    Buffer,
    Contents,
    Finding,
    Outputs,
    Pairs,
    Poison,
    Rows,
    Timed,
    TimingRequest,
    TimingResult,
)
from grader.devices.contents import (
    DIFFERENT,
    REPLACED,
    ROTATION_BYTES,
    ROTATIONS,
    negated,
    number_of,
    rotation,
)
from grader.devices.drift import drifted
from grader.devices.gpu.baselines import BaselineError, Baselines, Run
from grader.devices.gpu.differ import Differ
from grader.devices.gpu.digest import Digester
from grader.devices.gpu.driver import Driver
from grader.devices.gpu.nvml import Monitor
from grader.devices.gpu.ptx import NEGATE, REPLACE, SPIN
from grader.devices.gpu.rows import RowReader

WARM_UP_CALLS = 10
STILL_WARM_S, WARM_AGAIN_S = 0.3, 0.1  # since the timing run before; then its warm-up is shorter
# A pointer of a timed call is one of so many, each as aligned as memory from the driver.
SHIFT_BYTES, SHIFTS = 256, 256
SPIN_CYCLES = 300_000  # some 160 us: longer than the host takes to call a launcher or torch
GUARD_BYTES = 1 << 16
SMALL_BYTES = 1 << 16  # outputs up to here come back whenever an untimed call gave other bits
KEPT_SHARE = 0.5  # of the memory that is free, for answers that may be judged
COLD_CLOCK = 0.05  # of the SM clock: who loses more while samples are taken had not warmed up

_ALIGNMENT = 256  # of answers that are kept
_L2_CACHE_SIZE, _PERSISTING_L2_LIMIT = 38, 6  # CUdevice_attribute, CUlimit
_CARD = {  # name -> CUdevice_attribute
    "sms": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": _L2_CACHE_SIZE,
}


@dataclass(frozen=True)
class _Timed:
    """As in TimingResult."""

    times: Pairs
    noise: Pairs
    beside: Mapping[str, tuple[Pairs, Pairs]]
    clocks_mhz: tuple[int, int]


class _Input:
    """An input's master, long enough for every rotation, and the two places where calls find what is made of it.

    One that is ``updated`` holds an answer after a call.
    """

    def __init__(self, driver: Driver, buffer: Buffer) -> None:
        data = buffer.given
        self.buffer, self.name, self.size, self.itemsize = buffer, buffer.name, len(data), buffer.itemsize
        most = ROTATION_BYTES * (ROTATIONS - 1)
        self.master = driver.allocate(self.size + most)
        end = self.size + most if self.size else 0
        for start in range(0, end, max(1, self.size)):  # once whole, then as much again as the rotations reach
            driver.upload(self.master + start, data if start + self.size <= end else data[: end - start])
        self.places = [driver.allocate(self.size + SHIFT_BYTES * SHIFTS) for _ in range(2)]
        self.updated = buffer.role == "updated"
        self.words = -(-self.size // 4)

    def rotated(self, number: int) -> int:
        """The address of the input's bytes, rotated as its number says."""
        return self.master + (rotation(number) % self.size if self.size else 0)


class _Output:
    """Where a call writes: guard, room for the shift, contents, guard; all of it poisoned before each call."""

    def __init__(self, driver: Driver, buffer: Buffer) -> None:
        self.driver, self.buffer, self.name, self.size = driver, buffer, buffer.name, len(buffer.data)
        self.poison = bytes([buffer.data.byte]) if isinstance(buffer.data, Poison) else bytes(buffer.data[:1]) or b"\0"
        self.room = 2 * GUARD_BYTES + SHIFT_BYTES * SHIFTS + self.size
        self.place = driver.allocate(self.room)
        self.words = -(-self.size // 4)

    def prepare(self) -> None:
        self.driver.fill(self.place, self.poison[0], self.room)

    def outside(self, pointer: int) -> Finding | None:
        """A finding where bytes around the output are no longer poison."""
        front = pointer - self.place
        before = self.driver.download(self.place, front)
        after = self.driver.download(pointer + self.size, self.room - front - self.size)
        if any(guard != self.poison * len(guard) for guard in (before, after)):  # in one go, unlike strip
            return Finding("out of bounds", f"the kernel wrote outside {self.name}", buffer=self.name)
        return None


class _Kept:
    """Where timed answers are kept, one after the other; ``calls`` are those of the answers that are there. The next
    one lies at ``places``, in the order of ``answered``.

    It is sealed before any other call begins: what a later call does to an answer shows.
    """

    def __init__(self, driver: Driver, answered: Sequence[_Input | _Output], most: int) -> None:
        self._driver, self._digester = driver, Digester(driver)
        self._words = [item.words for item in answered]
        self._sizes = [-(-4 * words // _ALIGNMENT) * _ALIGNMENT for words in self._words]
        fit = int(KEPT_SHARE * driver.free_bytes()) // max(1, sum(self._sizes))
        self._most = max(1, min(most, fit))
        self._bases = [driver.allocate(size * self._most) for size in self._sizes]
        self.calls: list[int] = []
        self._seals: list[tuple[int, int]] = []  # key, digest

    def close(self) -> None:
        self._digester.close()
        for base in self._bases:
            self._driver.free(base)

    @property
    def places(self) -> list[int]:
        return self.places_of(len(self.calls))

    def places_of(self, nth: int) -> list[int]:
        return [base + nth * size for base, size in zip(self._bases, self._sizes, strict=True)]

    def seal(self) -> None:
        """Let the answer at ``places`` be as it is now."""
        key = _some_number()
        self._seals.append((key, self._digest(self.places, key)))

    def is_intact(self, nth: int) -> bool:
        key, digest = self._seals[nth]
        return self._digest(self.places_of(nth), key) == digest

    def _digest(self, places: Sequence[int], key: int) -> int:
        return self._digester.digest(list(zip(places, self._words, strict=True)), key)

    @property
    def is_full(self) -> bool:
        return len(self.calls) == self._most

    def clear(self) -> None:
        self.calls.clear()
        self._seals.clear()


class Timing:
    """One timing run on the first GPU. Owns its memory and events until it is closed."""

    def __init__(self, driver: Driver, request: TimingRequest, buffers: tuple[Buffer, ...], asked: Timed) -> None:
        self._driver, self._request, self._asked = driver, request, asked
        self._random = Random()
        self._inputs = [_Input(driver, item) for item in buffers if item.role != "out"]
        self._outputs = [_Output(driver, item) for item in buffers if item.role == "out"]
        updated = [item for item in self._inputs if item.updated]
        self._answered: list[_Input | _Output] = [*updated, *self._outputs]  # as _answer_at has them
        self._small = sum(item.size for item in self._answered) <= SMALL_BYTES
        self._answers: list[tuple[int, Outputs]] = []
        self._unwritten: list[Mapping[str, int]] = []
        self._again: list[tuple[int, Outputs, Outputs]] = []
        self._calls = 0  # of the launcher, timed ones: each has contents of its own, as each untimed one has
        self._found: Finding | None = None
        self._clocks: list[int] = []
        self._monitor = Monitor(driver.pci_bus_id())
        self._flush_bytes = 2 * driver.attribute(_L2_CACHE_SIZE)
        self._flushed, self._differ = driver.allocate(self._flush_bytes), Differ(driver)
        self._reader = RowReader(driver)
        self._spin = driver.kernel(SPIN, "spin")
        self._replace, self._negate = driver.kernel(REPLACE, "replace"), driver.kernel(NEGATE, "negate")
        self._begin, self._end = c_void_p(), c_void_p()
        for event in (self._begin, self._end):
            driver.do("cuEventCreate", byref(event), 0)
        self._baselines = Baselines(driver)
        masters = {item.name: item.master for item in self._inputs}
        self._baseline, self._beside = self._baselines.open(request, masters, buffers), dict[str, Run]()
        for name in request.beside:
            with contextlib.suppress(BaselineError):
                self._beside[name] = self._baselines.open(replace(request, baseline=name), masters, buffers)
        self._kept = _Kept(driver, self._answered, request.pairs)

    def __enter__(self) -> Timing:
        return self

    def __exit__(self, *_: object) -> None:
        driver = self._driver
        if driver.result("cuCtxSynchronize") != 0:
            return  # the context is broken, and with it goes all that it held
        self._baselines.close()
        for event in (self._begin, self._end):
            driver.do("cuEventDestroy_v2", event)
        self._differ.close()
        self._reader.close()
        self._kept.close()
        memory = [self._flushed]
        memory += [place for item in self._inputs for place in (item.master, *item.places)]
        memory += [item.place for item in self._outputs]
        for address in memory:
            driver.free(address)

    def run(self, launch: Callable[[Sequence[int]], None], since_s: float = inf) -> TimingResult:
        """Time all arms. ``launch`` calls the launcher with the buffers' addresses, inputs first. ``since_s`` is how
        long ago another timing run of this process ended.

        Raises DriverError where a kernel broke the context.
        """
        start, calls = time.monotonic(), 0
        warm_up_s = WARM_UP_S if since_s > STILL_WARM_S else min(WARM_UP_S, WARM_AGAIN_S)
        while calls < WARM_UP_CALLS or time.monotonic() - start < warm_up_s:
            for baseline in (self._baseline, *self._beside.values()):
                baseline()
            self._untimed(launch)
            calls += 1
        timed = self._timed(launch)
        first, last = timed.clocks_mhz
        if last < (1 - COLD_CLOCK) * first or drifted(timed.times, timed.clocks_mhz):
            timed = self._timed(launch)
        return TimingResult(
            **vars(timed),
            answers=tuple(self._answers),
            unwritten=tuple(self._unwritten),
            again=tuple(self._again),
            finding=self._found,
            other_processes=self._monitor.other_processes(),
            card={name: self._driver.attribute(number) for name, number in _CARD.items()},
        )

    def _timed(self, launch: Callable[[Sequence[int]], None]) -> _Timed:
        """Times of the baselines beside themselves, of all arms, and the SM clock of the first and the last quarter.

        A card may run for a second at its highest clock before its power makes it slower. What was timed before that
        does not count; nor does what was timed while it became faster, after the warm-up had made it slow. The quarters
        are those of the samples of all arms, where there are some: a card that its power limits has another clock
        while the baseline runs alone.
        """
        for noted in (self._clocks, self._answers, self._unwritten, self._again, self._kept):
            noted.clear()
        self._asked.take_back()
        pairs = range(self._request.pairs)
        noise = self._against_itself(self._baseline, self._request.noise)
        noises = {name: self._against_itself(run, BESIDE_PAIRS) for name, run in self._beside.items()}
        if pairs:
            self._clocks.clear()
        times, others = [], {name: list[tuple[float, float]]() for name in self._beside}
        with_others = [nth for nth in pairs if nth % 4 < 2][
            :BESIDE_PAIRS
        ]  # from beginning to end, half of them flipped
        for nth in pairs:
            beside = self._beside if nth in with_others else {}
            baseline, mine, *rest = self._side_by_side(launch, [*beside.values()], flipped=nth % 2 == 1)
            times.append((baseline, mine))
            for name, other in zip(beside, rest, strict=True):
                others[name].append((other, mine))
        self._take_judged()
        quarter = max(1, len(self._clocks) // 4)
        clocks = _middle(self._clocks[:quarter]), _middle(self._clocks[-quarter:])
        return _Timed(tuple(times), noise, {name: (tuple(others[name]), noises[name]) for name in others}, clocks)

    def _against_itself(self, baseline: Run, pairs: int) -> Pairs:
        noise = [(self._baseline_s(baseline), self._baseline_s(baseline)) for _ in range(pairs)]
        return tuple((second, first) if nth % 2 else (first, second) for nth, (first, second) in enumerate(noise))

    def _side_by_side(
        self, launch: Callable[[Sequence[int]], None], beside: Sequence[Run], *, flipped: bool
    ) -> list[float]:
        """Seconds of the baseline, of the launcher and of the others, timed in this order, or in reverse."""
        arms = [partial(self._baseline_s, self._baseline), partial(self._launcher_s, launch)]
        arms += [partial(self._baseline_s, other) for other in beside]
        seconds = [arm() for arm in (arms[::-1] if flipped else arms)]
        return seconds[::-1] if flipped else seconds

    def _baseline_s(self, baseline: Run) -> float:
        return self._sample(baseline, lambda: None)

    def _launcher_s(self, launch: Callable[[Sequence[int]], None]) -> float:
        call, self._calls = self._calls, self._calls + 1
        timed, untimed = self._contents(self._asked.seed(call))
        written = self._poisoned()
        seconds = self._sample(lambda: launch([*timed, *written]), lambda: self._keep(self._answer_at(timed, written)))
        self._found = self._found or self._damage(timed, untimed, written)
        self._kept.seal()
        again = self._poisoned()
        launch([*untimed, *again])
        self._driver.do("cuCtxSynchronize")
        there, was_long = self._answer_at(untimed, again), False
        if self._other_bits(there) and (self._small or len(self._again) < DIFFERENT):
            self._again.append((call, self._outputs_at(self._kept.places), self._outputs_at(there)))
            was_long = True
        self._kept.calls.append(call)
        if self._kept.is_full and len(self._kept.calls) < self._request.pairs:
            self._take_judged()
            was_long = True
        if was_long:  # the host was long in reading: a baseline that it launches next is late, once
            self._baseline()
            self._driver.do("cuCtxSynchronize")
        return seconds

    def _untimed(self, launch: Callable[[Sequence[int]], None]) -> None:
        """One call on contents of its own, and what it did beside its answer."""
        timed, untimed = self._contents(_some_number())
        written = self._poisoned()
        launch([*timed, *written])
        self._keep(self._answer_at(timed, written))
        self._driver.do("cuCtxSynchronize")
        self._found = self._found or self._damage(timed, untimed, written)

    # -- what a call gets

    def _contents(self, seed: int) -> tuple[list[int], list[int]]:
        """The contents of a call at two new places: the pointers for the call, and those for the one after it."""
        driver = self._driver
        first, second = [], []
        for position, item in enumerate(self._inputs):
            number = number_of(seed, position)
            one, other = (place + self._shift() for place in item.places)
            driver.copy(one, item.rotated(number), item.size)
            for place in (one, other) if item.updated else ():
                driver.fill(place + item.size, 0, -item.size % 4)  # answers are compared by whole words
            if item.size:
                self._change_values(one, item, number)
            driver.copy(other, one, item.size)
            first.append(one)
            second.append(other)
        return first, second

    def _change_values(self, place: int, item: _Input, number: int) -> None:
        elements = item.size // item.itemsize
        if item.name in self._request.replaced:
            count = min(REPLACED, elements)
            arguments = map(c_uint64, (place, item.master, elements, item.itemsize, count, number))
            self._driver.launch(self._replace, blocks=1, threads=REPLACED, arguments=tuple(arguments))
        if item.name in self._request.negated:
            first, last = (place + nth * item.itemsize for nth in negated(number, elements))
            arguments = map(c_uint64, (first, last, item.itemsize))
            self._driver.launch(self._negate, blocks=1024, threads=256, arguments=tuple(arguments))

    def _poisoned(self) -> list[int]:
        """Pointers for the outputs of a call, all of them poisoned."""
        for output in self._outputs:
            output.prepare()
        return [output.place + GUARD_BYTES + self._shift() for output in self._outputs]

    def _shift(self) -> int:
        return SHIFT_BYTES * self._random.randrange(SHIFTS)

    def _sample(self, run: Run, keep: Run) -> float:
        """Seconds of one run on the stream, from a cold L2. ``keep`` is put behind it on the stream, untimed."""
        driver = self._driver
        driver.do("cuCtxSetLimit", _PERSISTING_L2_LIMIT, c_size_t(0))
        driver.fill(self._flushed, 0, self._flush_bytes)
        driver.launch(self._spin, blocks=1, threads=1, arguments=(c_uint64(SPIN_CYCLES),))
        driver.do("cuEventRecord", self._begin, driver.stream)
        run()
        driver.do("cuEventRecord", self._end, driver.stream)
        keep()
        if (clock := self._monitor.sm_clock_mhz()) is not None:
            self._clocks.append(clock)
        driver.do("cuCtxSynchronize")
        milliseconds = c_float()
        driver.do("cuEventElapsedTime", byref(milliseconds), self._begin, self._end)
        return milliseconds.value / 1e3

    # -- what a call left

    def _answer_at(self, given: Sequence[int], written: Sequence[int]) -> list[int]:
        """Where a call's answer is: the pointers of the inputs that it updates, then those of its outputs."""
        return [*(place for item, place in zip(self._inputs, given, strict=True) if item.updated), *written]

    def _keep(self, answer: Sequence[int]) -> None:
        """Copy the outputs as they are when the stream is done, whatever other streams still do."""
        for item, place, pointer in zip(self._answered, self._kept.places, answer, strict=True):
            self._driver.copy(place, pointer, 4 * item.words)

    def _damage(self, timed: Sequence[int], untimed: Sequence[int], written: Sequence[int]) -> Finding | None:
        """What a call did beside its answer. Its inputs are compared with those that the next call will get."""
        inputs = zip(timed, untimed, self._inputs, strict=True)
        if self._differ.differs([(one, other, item.size // 4) for one, other, item in inputs if not item.updated]):
            return Finding("modified its input", "the kernel wrote to its inputs")
        outside = (found for item, place in zip(self._outputs, written, strict=True) if (found := item.outside(place)))
        if (found := next(outside, None)) is not None:
            return found
        if self._other_bits(self._answer_at(timed, written)):
            return Finding("race", "the launcher's work went on after the stream that it was given was done")
        return None

    def _other_bits(self, answer: Sequence[int]) -> bool:
        """Whether outputs are not what was kept of the timed call."""
        outputs = zip(self._answered, self._kept.places, answer, strict=True)
        return self._differ.differs([(kept, place, item.words) for item, kept, place in outputs])

    def _take_judged(self) -> None:
        """Ask which of the answers that are kept are judged, and copy these to the host. None is kept any longer."""
        calls = [*self._kept.calls]
        for call, rows in self._asked.judged(calls) if calls else []:
            nth = calls.index(call)
            if not self._kept.is_intact(nth):
                self._found = self._found or Finding("race", "a later call changed the answer of an earlier one")
            places = self._kept.places_of(nth)
            self._answers.append((call, self._outputs_at(places) if rows is None else self._rows_at(places, rows)))
        self._kept.clear()

    def _rows_at(self, places: Sequence[int], rows: Rows) -> Outputs:
        answer = list(zip(self._answered, places, strict=True))
        self._unwritten.append({item.name: self._reader.unwritten(place, item.buffer) for item, place in answer})
        return {item.name: self._reader.read(place, item.buffer, rows) for item, place in answer}

    def _outputs_at(self, places: Sequence[int]) -> Outputs:
        outputs = zip(self._answered, places, strict=True)
        return {item.name: self._output_at(place, item.size) for item, place in outputs}

    def _output_at(self, place: int, size: int) -> Contents:
        """One output, in the room for answers where that has as much left."""
        if (there := self._asked.lend(size)) is None:
            return self._driver.download(place, size)
        self._driver.download_to(there, place)
        return there


def _some_number() -> int:
    """64 bits, that cannot be foretold."""
    return int.from_bytes(os.urandom(8), "little")


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0
