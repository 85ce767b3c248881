"""Kata + sandbox -> Measurement: statistics, verdicts and judging without a GPU, the timing itself with one."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from math import comb, inf
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy
import pytest
from facts import has
from patience import PATIENCE_S
from sim_kernels.harness import LIMITS, POISON, engine, open_device, run

from grader import grade as pipeline
from grader.compile.build import Build, Request, Target, build_all
from grader.compile.toolchain import Gpu, find_gpu, find_toolchain
from grader.content.catalog import Kata, Speed, Threshold, load_catalog
from grader.content.dtype import DTYPES
from grader.content.source_file import Source, source_of
from grader.content.spec import Accumulated, Exact, InputKind, Size, Sizes, Spec, Tensor, integers, load_spec, normal
from grader.devices import (
    BESIDE_PAIRS,
    Buffer,
    Call,
    Finding,
    Judged,
    Outcome,
    Rows,
    TimingRequest,
    TimingResult,
    Undisclosed,
    pointer,
)
from grader.devices.contents import (
    DIFFERENT,
    JUDGED,
    JUDGED_BESIDE,
    REPLACED,
    chosen,
    mixed,
    negated,
    number_of,
    replaced,
    rotation,
    seed_of,
)
from grader.devices.counters import Launch
from grader.devices.gpu import timing as timing_module
from grader.devices.gpu.baselines import Baselines
from grader.devices.gpu.ptx import DIFFER, DIGEST, NEGATE, REPLACE, SPIN, UNROLL, UNWRITTEN, read_ptx
from grader.devices.gpu.timing import Timing, _Kept
from grader.devices.sim import SimDevice
from grader.grade import Options
from grader.judge import measure as measure_module
from grader.judge.case import Case, CaseKey, Expected, taken
from grader.judge.helpers import HelperGone, Helpers, read
from grader.judge.measure import (
    LARGE,
    NOISE_CHECKS,
    NOISE_PAIRS,
    RANKS,
    STAGES,
    WHOLE,
    Ahead,
    _case,
    _expected_of,
    _rows,
    contents_bytes,
    fitted,
    helpers_for,
    measure,
    min_bytes_of,
    rehearsals,
)
from grader.judge.measure import prepare as prepare_measure
from grader.judge.recent import Recent
from grader.judge.search import SearchBudget
from grader.judge.verdicts import Explain, judge
from grader.output import speeds
from grader.output.grade_json import record
from grader.output.verdict_text import explanation, launches, speed
from grader.sandbox.parent import Program, Sandbox
from grader.storage.lock import GpuTurn
from grader.system.processes import _stat
from grader.verdict import Grade, Kind, Measurement, Verdict

ROOT = Path(__file__).resolve().parent.parent
KATAS = load_catalog(ROOT).katas
GPU = Gpu("a card", (9, 0), "580.0", (13, 0))
N = 1000
KATA = Kata(name="double_f32", family="double", level="medium", elem="f32", root=ROOT, speed=Speed("copy", ({"n": N},)))
SPEC = Spec(
    computes="y = 2 x",
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 100)},
    values=(InputKind("normal", normal()),),
    reference=lambda x, sizes: 2 * x,
    tolerance=Exact(),
    named_sizes=({"n": 0},),
    work=lambda sizes: sizes["n"],
    slice_dim="n",
)
QUIET = ((1.0, 1.0),) * NOISE_PAIRS


def kata(percent: float | None = None, **speed: object) -> Kata:
    """The kata, with a threshold for GPU's architecture where one is given."""
    thresholds = {"sm_90": Threshold(percent, True)} if percent else {}
    assert KATA.speed is not None
    return replace(KATA, speed=replace(KATA.speed, percent=thresholds, **speed))


def contents(call: Call, seed: int | None) -> bytes:
    """What the one input holds in a timing run's call of this seed; None: as it was given."""
    given = call.buffers[0]
    flat = numpy.frombuffer(bytes(given.given), dtype=f"V{given.itemsize}")
    if seed is None or call.timing is None:
        return flat.tobytes()
    number = number_of(seed, 0)
    turned = numpy.roll(flat, -(rotation(number) // given.itemsize))
    if given.name in call.timing.replaced:
        places, sources = replaced(number, len(flat))
        turned[places] = flat[sources]
    if given.name in call.timing.negated:
        first, last = negated(number, len(flat))
        turned.view(numpy.uint8).reshape(-1, given.itemsize)[first:last, -1] ^= 0x80
    return bytes(turned.tobytes())


def doubled(call: Call, seed: int | None = None) -> bytes:
    """The right answer to these contents."""
    return (2 * numpy.frombuffer(contents(call, seed), dtype=numpy.float32)).tobytes()


def coming_back(call: Call, rows: Rows | None, data: bytes) -> tuple[dict[str, bytes], dict[str, int]]:
    """What comes back of an answer: outputs, and how many elements were not written where only rows do."""
    if rows is None:
        return {"y": data}, {}
    buffer = call.buffers[-1]
    whole = numpy.frombuffer(data, dtype=f"V{buffer.itemsize}").reshape(buffer.shape)
    taken = numpy.concatenate([numpy.arange(first, last) for first, last in rows.runs])
    sampled = whole.take(taken, axis=rows.axes[buffer.name]).tobytes()
    return {"y": sampled}, {"y": measure_module._unwritten(data, DTYPES[buffer.dtype])}


class Clock(Sandbox):
    """A card whose ratios are given, one after the other; the answers are right unless ``answers`` says otherwise."""

    def __init__(
        self,
        ratios: Sequence[float],
        *,
        answers: Callable[[Call, int], bytes] = doubled,
        again: Callable[[Call, int], bytes] | None = None,
        exact: Callable[[Call], bytes] = doubled,
        **result: object,
    ) -> None:
        super().__init__("gpu")
        self.exact = exact
        self.ratios, self.answers, self.again, self.result = list(ratios), answers, again, result
        self.requests: list[TimingRequest] = []
        self.seeds: list[int] = []  # of the first call of each timing run
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def call(self, call: Call, undisclosed: Undisclosed | None = None) -> Outcome:
        request = call.timing
        if request is None:  # the shape that is timed, untimed, on values that must come out exactly
            outputs, unwritten = coming_back(call, call.rows, self.exact(call))
            return Outcome(outputs=outputs, unwritten=unwritten)
        assert undisclosed is not None
        self.requests.append(request)
        seeds = [undisclosed.seed(i) for i in range(request.pairs)]
        self.seeds += seeds[:1]
        times = tuple((self.ratios[i % len(self.ratios)], 1.0) for i in range(request.pairs))
        judged = undisclosed.judged(range(request.pairs))
        back = [coming_back(call, rows, self.answers(call, seeds[i])) for i, rows in judged]
        given = [(i, outputs) for (i, _), (outputs, _) in zip(judged, back, strict=True)]
        both = [(i, self.answers(call, seeds[i]), self.again(call, seeds[i])) for i in range(5)] if self.again else []
        again = [(i, {"y": timed}, {"y": untimed}) for i, timed, untimed in both]
        noise = self.result.get("noise", QUIET) * 7  # type: ignore[operator]  # more than is ever asked for
        fields = {"answers": tuple(given), "again": tuple(again), **self.result, "noise": noise[: request.noise]}
        fields["unwritten"] = tuple(unwritten for _, unwritten in back if unwritten)
        fields.setdefault("beside", dict.fromkeys(request.beside, (((0.5, 1.0),) * BESIDE_PAIRS, QUIET)))
        return Outcome(timing=TimingResult(times=times, **fields))  # type: ignore[arg-type]


def timed(
    sandbox: Sandbox, of: Kata = KATA, spec: Spec = SPEC, pairs: int | None = None, explain: Explain | None = None
) -> Verdict:
    return measure(of, spec, sandbox, gpu=GPU, pairs=pairs, tell=lambda line: None, explain=explain)()


def test_answers_are_judged_once_the_gpu_is_free() -> None:
    sandbox = Clock([1.0], answers=lambda call, number: bytes(4 * N))
    settle = measure(kata(50), SPEC, sandbox, gpu=GPU)
    asked = len(sandbox.requests)
    sandbox.close()
    assert settle().kind is Kind.WRONG_ANSWER and len(sandbox.requests) == asked


def test_wrong_answers_are_not_timed_again() -> None:
    """Where the first pairs do not decide, the answers to them are judged before there are more."""
    sandbox = Clock([0.4, 0.6], answers=lambda call, number: bytes(4 * N))
    assert measure(kata(50), SPEC, sandbox, gpu=GPU)().kind is Kind.WRONG_ANSWER
    assert [request.pairs for request in sandbox.requests] == [STAGES[0]]


# -- statistics


@pytest.mark.parametrize("pairs", RANKS)
def test_ranks_hold_the_median_with_95_percent(pairs: int) -> None:
    first, last = RANKS[pairs]
    outside = sum(comb(pairs, count) for count in range(first)) / 2**pairs
    assert first + last == pairs + 1, "the interval is symmetric"
    assert outside <= 0.025, "a wider rank would be needed"
    assert outside + comb(pairs, first) / 2**pairs > 0.015, "much narrower ranks would do"


def test_ratio_is_the_median_of_the_pairs_ratios() -> None:
    sandbox = Clock([0.5 + i / 100 for i in range(21)][::-1])
    verdict = timed(sandbox)
    assert verdict.passed
    (measurement,) = verdict.measurements
    assert measurement.ratio == pytest.approx(0.60)
    assert (measurement.low, measurement.high) == (pytest.approx(0.55), pytest.approx(0.65))
    assert measurement.bytes_moved == 8 * N and measurement.pairs == 21
    (request,) = sandbox.requests
    assert (request.baseline, request.bytes_moved, request.noise, request.spec) == ("copy", 8 * N, NOISE_PAIRS, None)
    assert request.replaced == ("x",)


# -- pass, too slow, inconclusive


def test_a_clear_pass_and_a_clear_failure_need_21_pairs() -> None:
    for ratio, kind in ((0.90, Kind.PASS), (0.70, Kind.TOO_SLOW)):
        sandbox = Clock([ratio - 0.01, ratio, ratio + 0.01])
        verdict = timed(sandbox, kata(80))
        assert verdict.kind is kind and "80 % asked" in verdict.summary, verdict
        assert [request.pairs for request in sandbox.requests] == [21]
        assert verdict.measurements[0].ratio == pytest.approx(ratio)


def test_an_interval_around_the_threshold_is_made_narrower_and_then_inconclusive() -> None:
    sandbox = Clock([0.7, 0.9])
    verdict = timed(sandbox, kata(80))
    assert verdict.kind is Kind.INCONCLUSIVE
    assert verdict.measurements[0].pairs == STAGES[-1]
    once = [21, 10, 20, 50]
    assert [request.pairs for request in sandbox.requests] == once * 2, "all of it once more"
    assert sandbox.closed == 1, "in a fresh process"
    assert [request.noise for request in sandbox.requests] == [NOISE_PAIRS, 0, 0, 0] * 2
    assert len(set(sandbox.seeds)) == 8, "other contents each time"


def test_one_shape_far_below_the_threshold_fails_whatever_the_mean() -> None:
    class Uneven(Clock):
        def call(self, call: Call, undisclosed: Undisclosed | None = None) -> Outcome:
            self.ratios = [0.6] if call.scalars[0].value == N else [1.4]
            return super().call(call, undisclosed)

    verdict = timed(Uneven([1.0]), kata(80, shapes=({"n": N}, {"n": 2 * N})))
    assert verdict.kind is Kind.TOO_SLOW and f"n={N}" in verdict.summary and "70 % asked" in verdict.summary


def test_an_architecture_without_a_threshold_is_shown_and_not_graded() -> None:
    elsewhere = replace(kata(), speed=replace(kata(80).speed, percent={"sm_80": Threshold(80, False)}))  # type: ignore[type-var]
    assert timed(Clock([0.1]), elsewhere).passed


def test_baselines_beside_are_shown_and_decide_nothing() -> None:
    """They are timed next to the calls that are timed beside the graded one, once."""

    class Settling(Clock):
        def call(self, call: Call, undisclosed: Undisclosed | None = None) -> Outcome:
            self.ratios = [0.9] if self.requests else [0.79, 0.9]
            return super().call(call, undisclosed)

    sandbox = Settling([])
    verdict = timed(sandbox, kata(80, also_compare=("read",)))
    assert verdict.passed
    graded, beside = verdict.measurements
    assert (graded.baseline, graded.graded, beside.baseline, beside.graded) == ("copy", True, "read", False)
    assert (beside.ratio, beside.pairs, beside.low, beside.high) == (0.5, BESIDE_PAIRS, 0.5, 0.5)
    asked = [(request.baseline, request.pairs, request.beside) for request in sandbox.requests]
    assert asked == [("copy", 21, ("read",)), ("copy", 10, ()), ("copy", 20, ())]


@pytest.mark.parametrize(
    "beside",
    [
        {},  # it cannot run beside the other
        {"read": (((0.5, 1.0),) * (BESIDE_PAIRS - 1), QUIET)},
        {"read": (((0.5, 1.0),) * BESIDE_PAIRS, QUIET[1:])},
        {"copy": (((0.5, 1.0),) * BESIDE_PAIRS, QUIET)},
    ],
)
def test_a_baseline_that_was_not_timed_beside_another_is_timed_alone(beside: dict[str, object]) -> None:
    sandbox = Clock([0.9], beside=beside)
    verdict = timed(sandbox, kata(80, also_compare=("read",)))
    assert [(item.baseline, item.ratio) for item in verdict.measurements] == [("copy", 0.9), ("read", 0.9)]
    asked = [(request.baseline, request.pairs, request.judged, request.beside) for request in sandbox.requests]
    assert asked == [("copy", 21, JUDGED, ("read",)), ("read", BESIDE_PAIRS, JUDGED_BESIDE, ())]


def test_noise_beside_a_baseline_that_is_not_graded_decides_nothing() -> None:
    class Unsteady(Clock):
        def call(self, call: Call, undisclosed: Undisclosed | None = None) -> Outcome:
            assert call.timing is None or call.timing.baseline in ("copy", "read")
            noise, alone = ((1.5, 1.0),) * NOISE_PAIRS, call.timing is not None and call.timing.baseline == "read"
            beside = {"read": (((0.5, 1.0),) * BESIDE_PAIRS, noise)}
            self.result = {"noise": noise} if alone else {"beside": beside}
            return super().call(call, undisclosed)

    sandbox = Unsteady([0.9])
    verdict = timed(sandbox, kata(80, also_compare=("read",)))
    assert verdict.passed and [item.baseline for item in verdict.measurements] == ["copy"]
    more = [(request.pairs, request.noise) for request in sandbox.requests if request.baseline == "read"]
    assert more == [(0, after - before) for before, after in pairwise(NOISE_CHECKS)]


class Warming(Timing):
    """A timing run on a card that is not there, whose clock falls from the first MHz to the second after a while."""

    def __init__(self, *, first: int, second: int, after: int) -> None:
        self._request = TimingRequest("double_f32", "copy", 8, pairs=21, noise=NOISE_PAIRS)
        self._random, self._inputs, self._outputs, self._answered = Random(0), [], [], []
        self._calls = 0
        self._answers, self._unwritten, self._again, self._clocks, self._found, self._small = [], [], [], [], None, True
        self._baseline, self._beside = lambda: None, {}
        self._driver = self._monitor = self._differ = self._asked = self  # type: ignore[assignment]
        self._kept = _Kept(self, [], 21)  # type: ignore[arg-type]
        self.asked: list[object] = []  # for a seed, by the number of the call; for those that are judged, of all calls
        self.clocks, self.samples, self.after = (first, second), 0, after

    def attribute(self, number: int) -> int:
        return number

    def other_processes(self) -> int:
        return 0

    def do(self, name: str) -> None: ...

    def take_back(self) -> None: ...

    def free_bytes(self) -> int:
        return 1 << 30

    def allocate(self, size: int) -> int:
        return 0

    def kernel(self, ptx: str, name: str) -> None: ...

    def fill(self, address: int, byte: int, size: int) -> None: ...

    def synchronize(self) -> None: ...

    def download(self, address: int, size: int) -> bytes:
        return bytes(size)

    def seed(self, call: int) -> int:
        self.asked.append(call)
        return seed_of(1, call)

    def judged(self, calls: Sequence[int]) -> list[Judged]:
        self.asked.append([*calls])
        return [(call, None) for call in calls if call in chosen(1, call // 21, 21)]

    def differs(self, pairs: object) -> bool:
        return False

    def _sample(self, run: Callable[[], object], keep: object) -> float:
        run()
        self._clocks.append(self.clocks[self.samples >= self.after])
        self.samples += 1
        return 1.0


ONCE = 2 * NOISE_PAIRS + 2 * 21  # samples


@pytest.mark.parametrize(
    ("second", "after", "samples", "clocks"),
    [
        (1980, 0, ONCE, (1980, 1980)),
        (1900, 30, ONCE, (1980, 1900)),  # a little is nothing
        (1700, 30, 2 * ONCE, (1700, 1700)),
        (1700, ONCE + 30, ONCE, (1980, 1980)),
        (1700, 2 * NOISE_PAIRS, ONCE, (1700, 1700)),  # the baseline alone draws other power than both in turn
    ],
)
def test_what_was_timed_before_the_card_was_warm_counts_for_nothing(
    second: int, after: int, samples: int, clocks: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_module, "WARM_UP_S", 0.0)
    timing = Warming(first=1980, second=second, after=after)
    result = timing.run(lambda pointers: None)
    assert (timing.samples, result.clocks_mhz, len(result.times), len(result.noise)) == (
        samples,
        clocks,
        21,
        NOISE_PAIRS,
    )


@pytest.mark.parametrize(("since_s", "calls"), [(inf, 39), (0.5, 39), (0.2, 19)])  # 10, then each 10 ms
def test_a_card_that_was_timed_on_just_before_warms_up_for_less(
    since_s: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count()
    monkeypatch.setattr(timing_module, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 100))
    called: list[object] = []
    Warming(first=1980, second=1980, after=0).run(called.append, since_s)
    assert abs(len(called) - 2 * 21 - calls) <= 1


class Recovering(Warming):
    """One whose clock rises while what is timed has another ratio from then on, unless ``steady``."""

    def __init__(self, *, steady: bool) -> None:
        super().__init__(first=1560, second=1965, after=2 * NOISE_PAIRS + 20)
        self.steady = steady

    def _launcher_s(self, launch: object) -> float:
        super()._launcher_s(launch)  # type: ignore[arg-type]
        return 1.0 if self.steady or self.samples < self.after else 0.9


@pytest.mark.parametrize(("steady", "samples"), [(True, ONCE), (False, 2 * ONCE)])
def test_what_was_timed_while_the_card_became_faster_counts_for_nothing(
    steady: bool, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the ratio changed with it: the second time both are what they were at the end of the first."""
    monkeypatch.setattr(timing_module, "WARM_UP_S", 0.0)
    timing = Recovering(steady=steady)
    result = timing.run(lambda pointers: None)
    assert timing.samples == samples
    assert result.clocks_mhz == ((1560, 1965) if steady else (1965, 1965))
    assert {launcher for _, launcher in result.times} == ({1.0} if steady else {0.9})


def test_other_baselines_are_timed_on_either_side_of_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the beginning to the end of the run, as often before the launcher as after it; each also beside itself."""
    monkeypatch.setattr(timing_module, "WARM_UP_S", 0.0)
    timing, ran = Warming(first=1980, second=1980, after=0), list[str]()
    runs = {name: partial(ran.append, name) for name in ("copy", "read", "other")}
    timing._baseline, timing._beside = runs.pop("copy"), runs
    result = timing.run(lambda pointers: ran.append("launcher"))
    del ran[: 4 * timing_module.WARM_UP_CALLS]
    assert ran[: 2 * 3 * NOISE_PAIRS] == [name for name in ("copy", "read", "other") for _ in range(2 * NOISE_PAIRS)]
    text = " ".join(ran[2 * 3 * NOISE_PAIRS :]).replace("launcher launcher", "launcher")  # timed, and then untimed
    with_others, flipped = "copy launcher read other", "other read launcher copy"
    assert text == " ".join([f"{with_others} {flipped} copy launcher launcher copy"] * 5 + [with_others])
    assert {name: tuple(map(len, both)) for name, both in result.beside.items()} == dict.fromkeys(
        runs, (BESIDE_PAIRS, NOISE_PAIRS)
    )
    assert len(result.times) == 21 and BESIDE_PAIRS in RANKS


def test_faster_than_the_card_can_be_is_no_pass() -> None:
    # 8 kB in a second would be slow; a card that moves 1 byte a second at most cannot do it.
    card = {"memory_clock_khz": 1, "memory_bus_bits": 8}
    verdict = timed(Clock([5.0], card=card), kata(80))
    assert verdict.kind is Kind.INCONCLUSIVE and has(verdict.summary, "faster", "card")


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"other_processes": 1}, ["1", "process", "GPU"]),
        ({"noise": ((1.03, 1.0),) * NOISE_PAIRS}, ["copy", "itself", "n=1000", "1.030"]),
        ({"noise": ((0.95, 1.0), (1.05, 1.0)) * 5 + ((1.0, 1.0),)}, ["noisy"]),
    ],
)
def test_a_machine_that_tells_nothing_gives_no_verdict(result: dict[str, object], words: list[str]) -> None:
    sandbox = Clock([0.9], **result)
    verdict = timed(sandbox, kata(80))
    assert verdict.kind is Kind.INCONCLUSIVE and has(verdict.summary, *words)
    assert sandbox.closed == 1, "tried once more"


SLOWER_LATE = [0.9] * 14 + [0.8] * 7


@pytest.mark.parametrize(
    ("ratios", "clocks", "passes"),
    [
        (SLOWER_LATE, (1980, 1700), False),
        (SLOWER_LATE, (1700, 1980), False),
        ([0.9], (1700, 1980), True),  # both arms are slower by the same
        (SLOWER_LATE, (1980, 1900), True),
    ],
)
def test_another_clock_voids_a_run_whose_ratio_changes_with_it(
    ratios: list[float], clocks: tuple[int, int], passes: bool
) -> None:
    verdict = timed(Clock(ratios, clocks_mhz=clocks), kata(70))
    assert verdict.kind is (Kind.PASS if passes else Kind.INCONCLUSIVE), verdict.summary
    assert passes or has(verdict.summary, "clock", str(clocks[0]), f"{clocks[1]} MHz", "0.900", "0.800")


def test_a_noisy_check_gets_more_pairs_before_it_voids_the_run() -> None:
    class Settling(Clock):
        def call(self, call: Call, undisclosed: Undisclosed | None = None) -> Outcome:
            again = len(self.requests) > 0
            noisy = ((0.9, 1.0), (1.1, 1.0)) * 5 + ((1.0, 1.0),)
            self.result = {"noise": ((1.0, 1.0),) * 20 if again else noisy}
            return super().call(call, undisclosed)

    sandbox = Settling([0.9])
    verdict = timed(sandbox, kata(80))
    assert verdict.passed, verdict.summary
    assert [(request.pairs, request.noise) for request in sandbox.requests] == [(21, 11), (0, 20)]


def test_more_pairs_of_the_noise_check_do_not_hide_that_the_clock_changed() -> None:
    class Throttled(Clock):
        def call(self, call: Call, undisclosed: Undisclosed | None = None) -> Outcome:
            first = call.timing is not None and call.timing.pairs > 0
            noisy = {"noise": ((0.9, 1.0), (1.1, 1.0)) * 5 + ((1.0, 1.0),), "clocks_mhz": (1980, 1700)}
            self.result = noisy if first else {}
            return super().call(call, undisclosed)

    verdict = timed(Throttled(SLOWER_LATE), kata(70))
    assert verdict.kind is Kind.INCONCLUSIVE and has(verdict.summary, "clock", "1980", "1700 MHz")


# -- what was computed on what is timed


def checked(sandbox: Sandbox, spec: Spec, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """What a grade on a GPU makes of answers that are right."""
    monkeypatch.setattr(pipeline, "check", lambda *_: Verdict(Kind.PASS, "right", cases=5, error_share=0.1))
    monkeypatch.setattr(pipeline, "find_gpu", lambda: GPU)
    request, options = Request(KATA, spec, Source(ROOT), Target("gpu", "sm_90a")), Options(device="gpu")
    on = pipeline._Devices(sandbox)
    return pipeline._checked(request, on, GpuTurn(), Ahead(), SearchBudget(), options, None)()


@pytest.mark.parametrize(("timed_share", "said"), [(0.0, 0.1), (7.0, 7.0)])
def test_a_grade_says_how_far_off_what_was_timed_is(
    timed_share: float, said: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Verdict(Kind.WRONG_ANSWER if timed_share else Kind.PASS, "measured", error_share=timed_share)
    monkeypatch.setattr(pipeline, "_measured", lambda *_, **__: lambda: slow)
    verdict = checked(Clock([1.0]), SPEC, monkeypatch)
    assert (verdict.kind, verdict.cases, verdict.error_share) == (slow.kind, 5, said)


def test_a_wrong_answer_while_timed_is_no_measurement() -> None:
    verdict = timed(Clock([1.0], answers=lambda call, seed: contents(call, seed)))
    assert verdict.kind is Kind.WRONG_ANSWER and not verdict.measurements
    assert has(verdict.summary, "timed")


def test_an_answer_to_other_contents_is_wrong() -> None:
    """What a launcher that remembers its answer gives."""
    for other in (lambda call, seed: doubled(call), lambda call, seed: doubled(call, seed + 1)):
        assert timed(Clock([1.0], answers=other)).kind is Kind.WRONG_ANSWER


def test_an_untimed_call_on_the_same_contents_must_give_the_same_bits() -> None:
    def unwritten(call: Call, seed: int) -> bytes:
        return bytes([0xFF]) * 4 * N

    assert timed(Clock([1.0], again=unwritten)).kind is Kind.WRONG_ANSWER
    assert timed(Clock([1.0], again=doubled), explain=lambda shape: Outcome()).kind is Kind.RACE
    assert timed(Clock([1.0], again=doubled), spec=LOOSE).passed


LOOSE = replace(
    SPEC,
    deterministic=False,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=lambda x, sizes: 2 * abs(x), c=2.0),
)


def test_where_order_is_free_all_answers_are_close_to_those_of_untimed_calls() -> None:
    """Only a few are compared with the reference; the wrong one is the last."""

    def off_in_the_last(by: float) -> Callable[[Call, int], bytes]:
        made: list[int] = []

        def answer(call: Call, seed: int) -> bytes:
            made.append(seed)
            values = numpy.frombuffer(doubled(call, seed), dtype=numpy.float32)
            return bytes((values * (1 + by * (len(made) == 5))).astype(numpy.float32).tobytes())

        return answer

    assert timed(Clock([1.0], again=off_in_the_last(1e-7)), spec=LOOSE).passed
    assert timed(Clock([1.0], again=off_in_the_last(1e-2)), spec=LOOSE).kind is Kind.WRONG_ANSWER


def test_two_answers_to_one_call_are_compared_with_one_reference() -> None:
    worked_out: list[int] = []

    def counted(x: numpy.ndarray, sizes: Sizes) -> numpy.ndarray:
        worked_out.append(len(worked_out))
        return 2 * x

    spec = replace(LOOSE, reference=counted)
    assert timed(Clock([1.0]), spec=spec).passed
    alone = len(worked_out)
    assert timed(Clock([1.0], again=doubled), spec=spec).passed
    of_others = 1  # how far apart right answers to the calls beyond DIFFERENT may be
    assert len(worked_out) == alone + alone + DIFFERENT + of_others, "once for each call that came back with other bits"


def test_values_that_must_come_out_exactly_are_tried_on_the_timed_shape() -> None:
    spec = replace(SPEC, values=(*SPEC.values, InputKind("whole", integers(1, 4), exact=True)))
    assert timed(Clock([1.0]), spec=spec).passed
    sandbox = Clock([1.0], exact=lambda call: bytes(4 * N))
    assert timed(sandbox, spec=spec).kind is Kind.WRONG_ANSWER
    assert not sandbox.requests, "there is nothing to time"


def test_a_grade_looks_at_exact_answers_on_the_timed_shape_before_it_has_the_gpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = replace(SPEC, values=(*SPEC.values, InputKind("whole", integers(1, 4), exact=True)))
    asked = []
    monkeypatch.setattr(pipeline, "_measured", lambda *_, exact, **__: asked.append(exact) or (lambda: PASS))
    assert checked(Clock([1.0]), spec, monkeypatch).passed and asked == [False]
    verdict = checked(Clock([1.0], exact=lambda call: bytes(4 * N)), spec, monkeypatch)
    assert verdict.kind is Kind.WRONG_ANSWER and "timed" in verdict.summary and verdict.cases == 5
    assert asked == [False], "nothing is timed"


PASS = Verdict(Kind.PASS, "measured")


def test_a_large_exact_answer_comes_back_in_rows() -> None:
    spec = replace(SPEC, values=(*SPEC.values, InputKind("whole", integers(1, 4), exact=True)))
    large = kata(shapes=({"n": 2 * LARGE},))
    assert timed(Clock([1.0]), large, spec).passed

    def with_a_gap(call: Call) -> bytes:
        return doubled(call)[:-4] + b"\xff" * 4

    verdict = timed(Clock([1.0], exact=with_a_gap), large, spec)
    assert verdict.kind is Kind.WRONG_ANSWER and has(verdict.summary, "1", "never written", "timed")


@pytest.mark.parametrize("count", [N, 2 * LARGE])
def test_answers_to_judged_calls_are_worked_out_ahead(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them before anything is timed, and none twice; a second timing run has other contents."""
    large, ahead = kata(50, shapes=({"n": count},), also_compare=("read",)), Ahead()
    worked_out: list[int] = []
    before = Case.in_call
    monkeypatch.setattr(
        Case, "in_call", lambda case, secret, call: worked_out.append(call) or before(case, secret, call)
    )
    prepare_measure(large, SPEC, GPU, None, ahead, lambda: True)
    assert len(worked_out) == JUDGED
    sandbox = Clock([0.9])
    settle = measure(large, SPEC, sandbox, gpu=GPU, ahead=ahead)
    assert settle().passed and len(worked_out) == JUDGED
    assert [request.baseline for request in sandbox.requests] == ["copy"]
    assert measure(large, SPEC, sandbox, gpu=GPU, ahead=ahead)().passed
    assert len(worked_out) == 2 * JUDGED
    assert len(set(sandbox.seeds)) == 2


def test_many_answers_are_for_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(16))
    monkeypatch.setattr(measure_module, "available_bytes", lambda: 100 << 30)
    counts = {
        name: helpers_for(KATAS[name], load_spec(KATAS[name]), GPU)
        for name in ("flash_attn_mma_stages_split_q", "hgemm_mma_m16n8k16_mma2x4_warp4x4", "softmax_f32x4")
    }
    assert [*counts.values()] == [12, 0, 0]
    monkeypatch.setattr(measure_module, "available_bytes", lambda: 8 << 30)
    name = "flash_attn_mma_stages_split_q"
    assert 1 <= helpers_for(KATAS[name], load_spec(KATAS[name]), GPU) < 4, "each takes more than a gigabyte"


def test_helpers_answer_as_this_process_would() -> None:
    """In the rows that are looked at, with the contents of a call or as they are; one that is gone answers nothing."""
    of = KATAS["softmax_f32x4"]
    spec, count = load_spec(of), 2 * LARGE // 256
    case = Case(of, spec, CaseKey.of(spec, {"rows": count, "cols": 256}, spec.values[0].name, 1))
    some = numpy.arange(0, count, 100)
    with Helpers(2) as helpers:
        for rows, call in ((some, (7, 3)), (some + 5, (7, 5)), (some, None)):
            answer = helpers.answer(case, rows, call)
            there = case.in_call(*call) if call else case
            for mine, other in zip(there.part(rows).expected, answer, strict=True):
                assert mine.tensor == other.tensor and mine.dtype == other.dtype and mine.value.shape[0] == some.size
                assert (mine.value == other.value).all() and (mine.bound == other.bound).all()
        assert len(helpers._shared) == 1
        small = Case(KATA, SPEC, CaseKey.of(SPEC, {"n": 0}, "normal", 1))
        assert read(helpers._share(small))["x"].shape == (0,)
        helpers.close()
        with pytest.raises(HelperGone):
            helpers.answer(case, some)


@pytest.mark.parametrize("is_there", [True, False])
def test_what_helpers_do_not_answer_is_worked_out_here(is_there: bool) -> None:
    asked: list[tuple[int, int]] = []

    class Some(Helpers):
        def answer(self, case: Case, rows: object, call: tuple[int, int] | None = None) -> tuple[Expected, ...]:
            assert call is not None
            asked.append(call)
            if not is_there:
                raise HelperGone
            return case.in_call(*call).expected

    ahead, of = Ahead(), kata(50, shapes=({"n": N}, {"n": 2 * N}))
    prepare_measure(of, SPEC, GPU, None, ahead, lambda: True, Some(0))
    assert len({*asked}) == len(asked) == 2 * JUDGED
    assert len(ahead._answers._values) == 2 * JUDGED * is_there
    assert measure(of, SPEC, Clock([0.9]), gpu=GPU, ahead=ahead)().passed
    wrong = Clock([0.9], answers=lambda call, seed: doubled(call, seed + 1))
    assert measure(of, SPEC, wrong, gpu=GPU, ahead=ahead)().kind is Kind.WRONG_ANSWER


def test_helpers_work_out_the_exact_answers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of them that are judged in rows. What they do not answer is worked out when it is asked for."""
    monkeypatch.setattr(measure_module, "_WHOLE", Recent(2))
    values = (InputKind("normal", normal()), InputKind("whole", integers(-5, 5), exact=True))
    spec, of = replace(SPEC, values=values), kata(50, shapes=({"n": 2 * LARGE}, {"n": N}))
    asked: list[tuple[int, numpy.ndarray]] = []

    class Some(Helpers):
        def answer(
            self, case: Case, rows: numpy.ndarray | None, call: tuple[int, int] | None = None
        ) -> tuple[Expected, ...]:
            if call is not None:
                raise HelperGone
            assert case.shape.values == "whole" and rows is not None
            asked.append((case.sizes["n"], rows))
            if not is_there:
                raise HelperGone
            return case.part(rows).expected

    large = _case(of, spec, {"n": 2 * LARGE}, "whole")
    for is_there in (False, True):
        asked.clear()
        prepare_measure(of, spec, GPU, None, Ahead(), lambda: True, Some(0))
        assert {n for n, _part in asked} == {2 * LARGE}
        assert (measure_module._WHOLE.get(large.key) is not None) is is_there
    rows = _rows(large, WHOLE)
    assert rows is not None
    assert len(asked) == JUDGED and sorted(row for _n, part in asked for row in part) == [*rows]
    (mine,), (known,) = large.part(rows).expected, _expected_of(large, WHOLE, rows)
    assert numpy.array_equal(mine.value, known.value) and mine.bound is None


def test_helpers_stop_while_something_is_timed() -> None:
    """And go on after it, whatever became of it: what the next timing run must know first may be theirs."""
    ahead, seen = Ahead(), list[set[str]]()
    with Helpers(2) as helpers:

        def states(wanted: bool) -> set[str]:
            """Whether they are stopped, once that is as wanted."""
            for _ in range(500):
                found = {_stat(Path(f"/proc/{process.pid}/stat"))[0] for process in helpers._processes}
                if (found == {"T"}) is wanted:
                    break
                threading.Event().wait(0.02)
            return found

        class Seen(Clock):
            def call(self, call: Call, undisclosed: Undisclosed | None = None) -> Outcome:
                if call.timing is not None:
                    seen.append(states(True))
                return super().call(call, undisclosed)

        ahead.quiet = helpers.stopped
        assert measure(kata(50), SPEC, Seen([0.9]), gpu=GPU, ahead=ahead)().passed
        assert seen == [{"T"}] and "T" not in states(False)
        with contextlib.suppress(ZeroDivisionError), helpers.stopped():
            _ = 1 / 0
        assert "T" not in states(False)
        helpers.close()
        for process in helpers._processes:
            process.wait(PATIENCE_S)
        with helpers.stopped():
            pass


def test_helpers_end_with_the_grade_that_they_work_for() -> None:
    over = pipeline._Progress()
    with Helpers(1) as helpers, over.closing(helpers):
        assert helpers._processes[0].poll() is None
        over.end()
        assert helpers._processes[0].wait(PATIENCE_S) < 0
    with Helpers(1) as late, over.closing(late):
        assert late._processes[0].wait(PATIENCE_S) < 0


def test_baselines_that_a_spec_has_are_tried_before_they_are_timed() -> None:
    """On each shape, beside the checks: where the card has room for both, and where zeros are contents as any."""
    of = kata(50, baseline="torch.add", shapes=({"n": N}, {"n": 2 * N}), also_compare=("read", "slow"))
    spec = replace(SPEC, baselines={"torch.add": lambda **_: None, "slow": lambda **_: None})  # type: ignore[dict-item, return-value]
    large = replace(GPU, memory_bytes=64 << 30)
    tried = rehearsals(of, spec, large)
    assert [(each.baseline, dict((name, shape) for name, _, shape in each.tensors)["y"]) for each in tried] == [
        ("torch.add", (N,)),
        ("torch.add", (2 * N,)),
        ("slow", (N,)),
        ("slow", (2 * N,)),
    ]
    assert all(each.tensors[0] == ("x", "f32", each.tensors[1][2]) for each in tried)
    assert rehearsals(of, spec, replace(GPU, memory_bytes=4 << 30)) == ()
    indices = replace(spec, inputs=(*spec.inputs, Tensor("places", ("n",), "i32")))
    assert rehearsals(of, indices, large) == ()
    assert rehearsals(kata(50), spec, large) == (), "a copy needs none"


def test_memory_is_reserved_for_the_largest_shape_that_is_timed() -> None:
    of = KATAS["hgemm_mma_m16n8k16_mma2x4_warp4x4"]
    assert contents_bytes(of, load_spec(of), GPU) == 2 * 8192 * 8192 * 2
    request = Request(of, load_spec(of), source_of(of.solution_path), Target("gpu", "sm_90a"))
    for options in (Options(beside=True), Options(speed=False)):
        assert pipeline._timed_bytes(request, options) == 0


def test_nothing_is_worked_out_for_a_grade_that_is_over() -> None:
    ahead = Ahead()
    prepare_measure(kata(50), SPEC, GPU, None, ahead, lambda: False)
    assert not ahead._answers._values


def test_what_is_wrong_is_found_although_the_answer_was_known_ahead() -> None:
    ahead = Ahead()
    prepare_measure(kata(50), SPEC, GPU, None, ahead, lambda: True)
    sandbox = Clock([0.9], answers=lambda call, seed: doubled(call, seed + 1))
    assert measure(kata(50), SPEC, sandbox, gpu=GPU, ahead=ahead)().kind is Kind.WRONG_ANSWER


def test_timed_calls_are_numbered_from_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the parent knows what the judged calls get before any is made. Untimed calls get what cannot be foretold."""
    monkeypatch.setattr(timing_module, "WARM_UP_S", 0.0)
    seeds: list[int] = []
    timing = Warming(first=1980, second=1700, after=30)
    monkeypatch.setattr(timing, "_contents", lambda seed: seeds.append(seed) or ([], []))
    result = timing.run(lambda pointers: None)
    untimed, timed_seeds = seeds[: timing_module.WARM_UP_CALLS], seeds[timing_module.WARM_UP_CALLS :]
    assert timed_seeds == [seed_of(1, call) for call in range(42)], "the card was cold: 21 more"
    assert len({*untimed, *timed_seeds}) == len(seeds)
    assert [number for number, _ in result.answers] == chosen(1, 1, 21)


def test_what_is_judged_is_asked_when_all_calls_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what contents follow from just before the call. Nothing of either is in what the child is sent before."""
    monkeypatch.setattr(timing_module, "WARM_UP_S", 0.0)
    timing = Warming(first=1980, second=1980, after=0)
    launched: list[int] = []  # how many questions there had been
    timing.run(lambda pointers: launched.append(len(timing.asked)))
    assert timing.asked == [*range(21), [*range(21)]]
    warm = timing_module.WARM_UP_CALLS
    assert launched == [0] * warm + [asked for call in range(1, 22) for asked in (call, call)], "timed, then untimed"


def test_with_room_for_few_answers_it_asks_each_time_these_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_module, "WARM_UP_S", 0.0)
    timing = Warming(first=1980, second=1980, after=0)
    timing._kept._most = 8
    result = timing.run(lambda pointers: None)
    asked = [calls for calls in timing.asked if isinstance(calls, list)]
    assert asked == [[*range(8)], [*range(8, 16)], [*range(16, 21)]]
    assert [number for number, _ in result.answers] == chosen(1, 0, 21)


def test_an_answer_that_a_later_call_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_module, "WARM_UP_S", 0.0)
    timing = Warming(first=1980, second=1980, after=0)
    assert timing.run(lambda pointers: None).finding is None
    monkeypatch.setattr(timing._kept, "_digest", lambda places, key: key if len(timing._kept.calls) < 21 else key + 1)
    found = timing.run(lambda pointers: None).finding
    assert found is not None and found.kind == Kind.RACE


def test_what_a_timed_call_did_besides_is_a_verdict() -> None:
    verdict = timed(Clock([1.0], finding=Finding("race", "the launcher's work went on")))
    assert verdict.kind is Kind.RACE and has(verdict.summary, "timed")


@pytest.mark.parametrize("spoilt", [0, LARGE, 2 * LARGE - 1])
def test_large_answers_are_judged_by_samples_and_have_no_gap(spoilt: int) -> None:
    count = 2 * LARGE
    large = kata(shapes=({"n": count},))

    def with_a_gap(call: Call, seed: int) -> bytes:
        data = bytearray(doubled(call, seed))
        data[4 * spoilt : 4 * spoilt + 4] = b"\xff" * 4
        return bytes(data)

    def with_a_wrong_tile(call: Call, seed: int) -> bytes:
        data = bytearray(doubled(call, seed))
        start = max(0, 4 * spoilt - (1 << 17))
        data[start : start + (1 << 17)] = bytes(len(data[start : start + (1 << 17)]))
        return bytes(data)

    assert timed(Clock([1.0]), large).passed
    assert "never written" in timed(Clock([1.0], answers=with_a_gap), large).summary
    verdict = timed(Clock([1.0], answers=with_a_wrong_tile), large)
    assert verdict.kind is Kind.WRONG_ANSWER and "looked at" in verdict.summary


@pytest.mark.parametrize(("gap", "passes"), [(0, True), (1, True), (64, False)])
def test_bytes_that_happen_to_be_the_poison_are_no_gap(gap: int, passes: bool) -> None:
    """Of a large answer only a sample is compared. Gaps elsewhere show as poison, and a byte may well be that."""
    poison = DTYPES["u8"].poison
    spec = replace(
        SPEC,
        inputs=(Tensor("x", ("n",), "u8"),),
        outputs=(Tensor("y", ("n",), "u8"),),
        values=(InputKind("bytes", integers(0, 255)),),
        reference=lambda x, sizes: x,
    )

    def answer(call: Call, seed: int) -> bytes:
        turned = bytearray(contents(call, seed))
        assert turned.count(poison) > 1000
        turned[LARGE + 8 : LARGE + 8 + gap] = bytes([poison]) * gap
        return bytes(turned)

    verdict = timed(Clock([1.0], answers=answer), kata(shapes=({"n": 2 * LARGE},)), spec)
    assert verdict.passed == passes, verdict.summary


def test_a_part_of_a_case_has_the_rows_of_the_whole() -> None:
    spec = load_spec(KATAS["sgemm_naive_f32"])
    shape = CaseKey((("M", 40), ("N", 24), ("K", 16)), spec.values[0].name, 3)
    whole = Case(KATAS["sgemm_naive_f32"], spec, shape).in_call(7, 3)
    rows = numpy.array([0, 7, 39])
    part = whole.part(rows)
    assert part.sizes == {"M": 3, "N": 24, "K": 16}
    # A BLAS may add the products of three rows in another order than those of forty.
    assert numpy.allclose(part.expected[0].value, whole.expected[0].value[rows], rtol=0, atol=1e-12)


def test_a_part_is_cut_along_any_dimension_and_knows_its_rows() -> None:
    """Each row of y is that of x plus its own index and the sum of all of z, which is of the same size."""

    def reference(x: numpy.ndarray, z: numpy.ndarray, sizes: Sizes, rows: numpy.ndarray | None = None) -> numpy.ndarray:
        place = numpy.arange(sizes["n"]) if rows is None else rows
        return x + place[:, None] + z.sum()

    tensors = (Tensor("x", ("b", "n", "d")), Tensor("z", ("n",), unsliced=True))
    spec = replace(
        SPEC,
        inputs=tensors,
        outputs=(Tensor("y", ("b", "n", "d")),),
        sizes={name: Size(1, 9) for name in ("b", "n", "d")},
        reference=reference,
        reference_takes_rows=True,
    )
    whole = Case(KATA, spec, CaseKey((("b", 2), ("n", 9), ("d", 3)), "normal", 1))
    rows = numpy.array([0, 4, 8])
    part = whole.part(rows)
    assert part.sizes == {"b": 2, "n": 3, "d": 3}
    assert numpy.array_equal(part.expected[0].value, whole.expected[0].value[:, rows])
    data = whole.expected[0].value.astype(numpy.float32).tobytes()
    sampled = measure_module._sampled(whole, part.expected[0], data, rows)
    assert sampled == part.expected[0].value.astype(numpy.float32).tobytes()


def test_rows_that_follow_each_other_are_cut_out_as_they_would_be_picked() -> None:
    array = numpy.arange(2 * 60 * 50).reshape(2, 60, 50)
    runs = [numpy.arange(first, last) for first, last in ((0, 17), (20, 21), (25, 45))]
    for rows in (numpy.arange(50), numpy.arange(9, 31), numpy.concatenate(runs), numpy.array([0, 3, 49]), runs[1][:0]):
        for axis in (1, 2):
            assert numpy.array_equal(taken(array, rows, axis), array.take(rows, axis=axis))


def test_what_a_baseline_reads_is_random_and_drawn_once() -> None:
    there: list[bytes] = []

    class Memory:
        def allocate(self, size: int) -> int:
            return 0

        def upload(self, address: int, data: memoryview) -> None:
            pointer(data)  # as the driver does
            there.append(bytes(data))

    baselines = Baselines(Memory())  # type: ignore[arg-type]
    for size in (3000, 200):
        baselines._noise(size)
    first, second = there
    assert len({*first}) > 200
    assert second == first[:200]


# -- shapes and bytes


def test_bytes_moved_are_every_tensor_once_or_what_the_spec_says() -> None:
    assert min_bytes_of(KATAS["elementwise_f16"], load_spec(KATAS["elementwise_f16"]), {"n": 10}) == 60

    def half_of_it(sizes: Sizes, itemsize: int) -> int:
        return sizes["n"] * itemsize

    assert min_bytes_of(KATA, replace(SPEC, min_bytes=half_of_it), {"n": 10}) == 40


def test_shapes_are_halved_until_they_fit_the_card() -> None:
    gemm, spec = KATAS["sgemm_naive_f32"], load_spec(KATAS["sgemm_naive_f32"])
    shape = {"M": 16384, "N": 16384, "K": 16384}
    assert fitted(gemm, spec, shape, 140 << 30) == shape
    assert fitted(gemm, spec, shape, 0) == shape, "a card that does not say"
    small = fitted(gemm, spec, shape, 8 << 30)
    assert small != shape and all(size % 4096 == 0 for size in small.values())
    assert fitted(replace(gemm, multiples={"K": 48}), spec, {"M": 16, "N": 16, "K": 48 << 24}, 2 << 30)["K"] % 48 == 0


# -- words


MEASURED = Measurement(
    "copy", {"n": 10}, 0.931, 0.928, 0.934, pairs=31, time_s=2e-11, baseline_time_s=1.9e-11, bytes_moved=80,
    peak_bytes_s=4.8e12,
    launches=(Launch("k(int)", 0, (2, 1, 1), (128, 1, 1), 40, 0, 1024, 8, 0.5),),
)  # fmt: skip


def test_table_has_a_row_for_each_shape() -> None:
    done = Grade(KATA, Source(Path("double_f32.cu")), (Verdict(Kind.PASS, "measured", measurements=(MEASURED,)),))
    machine = dict.fromkeys(("card", "arch", "driver", "nvcc", "torch"), "a thing")
    text = speeds.text_of(speeds.document([done], {"date": "2026-01-01", **machine}))
    known = speeds.speeds_of(json.loads(text))
    assert known.peaks.bytes_s == 4.8e12 and not known.peaks.flops_s and known.machine["date"] == "2026-01-01"
    table = speeds.table(known)
    assert "| `double_f32` | n=10 | copy | 93.1 | 92.8 to 93.4 | 31 | 4 | 4.21 | TB/s | 83 |" in table
    assert has(table, "2026-01-01, a thing", "4.8 TB/s", known.peaks.source)
    unknown = replace(done, verdicts=(replace(done.verdict, measurements=(replace(MEASURED, peak_bytes_s=0.0),)),))
    assert "| TB/s | - |" in speeds.table(speeds.speeds_of(speeds.document([unknown], known.machine)))


def test_what_is_too_slow_says_how_slow_and_what_next() -> None:
    verdict = timed(Clock([0.70]), kata(80))
    lines = explanation(Grade(KATA, Source(Path("double_f32.cu")), (verdict,))).splitlines()
    assert lines[0].startswith("double_f32: too slow: ") and has(lines[0], "70.0 %", "copy", "80 %")
    assert any(line.startswith("  speed") and has(line, "70.0 %", "copy", f"n={N}") for line in lines)
    assert any("note" in line and "kata bench" in line for line in lines)


def test_words_and_record_of_a_measurement() -> None:
    done = Grade(KATA, Source(Path("double_f32.cu")), (Verdict(Kind.PASS, "measured", measurements=(MEASURED,)),))
    assert has(speed(MEASURED), "93.1 %", "copy", "92.8 %", "93.4 %", "n=10", "4 TB/s", "83 %", "peak")
    (line,) = launches(done)
    assert line.startswith("k <<<(2, 1, 1), (128, 1, 1)>>>")
    assert has(line, "40 registers", "1024 bytes", "no local memory", "8 blocks", "occupancy 50 %")
    kept = record(done)
    assert kept["kata"] == "double_f32" and kept["verdict"] == "pass"
    assert kept["measurements"][0]["ratio"] == 0.931 and kept["measurements"][0]["peak_share"] == pytest.approx(
        0.833, 1e-3
    )


# -- contents


def test_no_call_of_a_timing_run_gets_the_contents_of_another() -> None:
    case = Case(KATA, SPEC, CaseKey((("n", 5000),), "normal", 1))
    all_of_them = [case.in_call(3, call).inputs["x"] for call in range(40)] + [case.inputs["x"]]
    assert len({values.tobytes() for values in all_of_them}) == 41
    sums = {round(values.sum(dtype=numpy.float64).item(), 6) for values in all_of_them}
    assert len(sums) == 41, "what does not depend on order changes, too"
    assert numpy.array_equal(all_of_them[7], case.in_call(3, 7).inputs["x"])


def test_indices_and_masks_are_rotated_and_keep_their_values() -> None:
    spec = replace(SPEC, inputs=(Tensor("x", ("n",)), Tensor("lengths", ("n",), "i32")))
    case = Case(KATA, spec, CaseKey((("n", 5000),), "normal", 1))
    assert case.replaced == ("x",)
    lengths = case.in_call(3, 1).inputs["lengths"]
    assert not numpy.array_equal(lengths, case.inputs["lengths"])
    assert numpy.array_equal(numpy.sort(lengths), numpy.sort(case.inputs["lengths"]))


def test_every_timed_kata_has_values_to_replace() -> None:
    for of in KATAS.values():
        spec = load_spec(of)
        assert of.speed is None or any(tensor.dtype == "elem" for tensor in spec.inputs), of.name


@pytest.mark.parametrize("elements", [0, 1, 7, REPLACED, REPLACED + 1, 1 << 20])
def test_each_replaced_place_is_another(elements: int) -> None:
    places, sources = replaced(12345, elements)
    assert len(set(places.tolist())) == len(places) == min(REPLACED, elements)
    assert all(0 <= place < elements for place in (*places, *sources))


def test_chance_picks_what_is_judged() -> None:
    picked = {frozenset(chosen(secret, 0, 21)) for secret in range(200)}
    assert {len(each) for each in picked} == {JUDGED} and set().union(*picked) == set(range(21)) and len(picked) > 150
    assert chosen(1, 0, 0) == [] and chosen(1, 0, 2) == [0, 1] and chosen(1, 3, 2) == [6, 7]
    again = [[call - 21 for call in chosen(secret, 1, 21)] for secret in range(20)]
    assert again != [chosen(secret, 0, 21) for secret in range(20)], "other ones where it begins again"


def test_a_call_s_seed_says_nothing_of_another_s() -> None:
    """As it would if the parent's numbers were those of the sequence that contents are made with."""
    seeds = [seed_of(1, call) for call in range(100)]
    assert len(set(seeds)) == 100 and max(seeds) > 1 << 60
    assert seeds[1] != mixed(seeds[0], 0) and seeds != [mixed(1, call) for call in range(100)]


HOST = """
#include "kata.cuh"
extern "C" __global__ void negate(unsigned long long, unsigned long long, unsigned long long) {}
KATA_EXPORT void change_signs(
    const unsigned char* given, unsigned char* y, int bytes, int first, int last, int itemsize, cudaStream_t stream) {
    cudaMemcpyAsync(y, given, bytes, cudaMemcpyDeviceToDevice, stream);
    const auto begin = reinterpret_cast<unsigned long long>(y);
    negate<<<3, 64, 0, stream>>>(begin + first * itemsize, begin + last * itemsize, itemsize);
}
extern "C" __global__ void unwritten(
    unsigned long long, unsigned long long, unsigned long long, unsigned long long, unsigned long long) {}
KATA_EXPORT void count(
    const unsigned char* given, unsigned long long* count, int units, int unit, int poison, cudaStream_t stream) {
    using Address = unsigned long long;
    cudaMemsetAsync(count, 0, 8, stream);
    unwritten<<<3, 64, 0, stream>>>(Address(given), units, unit, poison, Address(count));
}
extern "C" __global__ void digest(unsigned long long, unsigned long long, unsigned long long, unsigned long long) {}
KATA_EXPORT void digested(
    const unsigned char* given, unsigned long long* sum, int words, int high, int low, cudaStream_t stream) {
    using Address = unsigned long long;
    const Address key = static_cast<Address>(unsigned(high)) << 32 | unsigned(low);
    cudaMemsetAsync(sum, 0, 8, stream);
    digest<<<3, 64, 0, stream>>>(Address(given), words, key, Address(sum));
}
extern "C" __global__ void replace(
    unsigned long long, unsigned long long, unsigned long long, unsigned long long, unsigned long long,
    unsigned long long) {}
KATA_EXPORT void launch(
    const unsigned char* master, unsigned char* place, int elements, int itemsize, int count, int high, int low,
    cudaStream_t stream) {
    const unsigned long long number = static_cast<unsigned long long>(unsigned(high)) << 32 | unsigned(low);
    using Address = unsigned long long;
    replace<<<1, 256, 0, stream>>>(Address(place), Address(master), elements, itemsize, count, number);
}
"""


def with_kernels(folder: Path) -> SimDevice:
    """The kernels of timing on the simulator: their PTX in place of what nvcc makes of empty ones."""
    source, ptx = folder / "kernels.cu", folder / "kernels.ptx"
    source.write_text(HOST)
    ptx.write_text("".join([REPLACE, *(text.partition(".address_size 64")[2] for text in (NEGATE, UNWRITTEN, DIGEST))]))
    return open_device(source, ptx=ptx)


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_the_card_negates_what_the_cpu_negates(tmp_path: Path, itemsize: int) -> None:
    device = with_kernels(tmp_path)
    for elements in (1, 2, 333, 5000):
        first, last = negated(elements, elements)
        data = numpy.frombuffer(Random(elements).randbytes(elements * itemsize), dtype=numpy.uint8)
        expected = data.copy().reshape(-1, itemsize)
        expected[first:last, -1] ^= 0x80
        given = Buffer("given", "in", "u8", 1, (data.nbytes,), data.tobytes())
        there = Buffer("y", "out", "u8", 1, (data.nbytes,), bytes([POISON]) * data.nbytes)
        outcome = run(device, "change_signs", given, there, data.nbytes, first, last, itemsize)
        assert not outcome.findings and bytes(outcome.outputs["y"]) == expected.tobytes()


@pytest.mark.parametrize("name", ["f16", "f32", "f64", "fp8_e4m3", "u8", "i32"])
def test_the_card_counts_what_the_cpu_counts_as_never_written(tmp_path: Path, name: str) -> None:
    device, dtype = with_kernels(tmp_path), DTYPES[name]
    unit = dtype.unwritten_run * dtype.itemsize
    for elements, gaps in ((3, 0), (1000, 1), (1003, 400), (64, 64)):
        data = bytearray(Random(elements).choices(range(0x90), k=elements * dtype.itemsize))
        for place in Random(gaps).sample(range(elements), gaps):
            data[place * dtype.itemsize : (place + 1) * dtype.itemsize] = bytes([dtype.poison]) * dtype.itemsize
        given = Buffer("given", "in", "u8", 1, (len(data),), bytes(data))
        there = Buffer("count", "out", "i64", 8, (1,), bytes([POISON]) * 8)
        outcome = run(device, "count", given, there, len(data) // unit, unit, dtype.poison)
        assert not outcome.findings
        units = int.from_bytes(outcome.outputs["count"], "little")
        assert dtype.unwritten_run * units == measure_module._unwritten(data, dtype)
        assert dtype.unwritten_run > 1 or units == gaps


@pytest.mark.parametrize("key", [5, 0xFFFFFFFFFFFFFFFF, 0x123456789ABCDEF])
def test_the_card_digests_what_the_cpu_digests(tmp_path: Path, key: int) -> None:
    device = with_kernels(tmp_path)
    halves = [word - (word >> 31 << 32) for word in (key >> 32, key & 0xFFFFFFFF)]
    for words in (0, 1, 333, 1000):
        given = numpy.frombuffer(Random(words).randbytes(4 * words), dtype=numpy.uint32)
        before = Buffer("given", "in", "u8", 1, (4 * words,), given.tobytes())
        there = Buffer("sum", "out", "i64", 8, (1,), bytes([POISON]) * 8)
        outcome = run(device, "digested", before, there, words, *halves)
        assert not outcome.findings
        expected = sum(mixed(key ^ word, nth) for nth, word in enumerate(given.tolist()))
        assert int.from_bytes(outcome.outputs["sum"], "little") == expected % (1 << 64)


@pytest.mark.parametrize("elements", [0, 1, 2, 5, 1000])
def test_what_is_negated_is_a_part_of_the_input(elements: int) -> None:
    parts = [negated(number, elements) for number in range(300)]
    assert all(0 <= first <= last <= elements for first, last in parts)
    assert elements < 5 or len({last - first for first, last in parts}) > 3


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_the_card_replaces_what_the_cpu_replaces(tmp_path: Path, itemsize: int) -> None:
    device = with_kernels(tmp_path)
    for elements, number in ((1, 5), (100, 1 << 63), (1000, 0xFFFFFFFFFFFFFFFF), (70001, 0x123456789ABCDEF)):
        flat = numpy.frombuffer(Random(elements).randbytes(elements * itemsize), dtype=f"V{itemsize}")
        expected = numpy.frombuffer(bytes([POISON]) * flat.nbytes, dtype=flat.dtype).copy()
        places, sources = replaced(number, elements)
        expected[places] = flat[sources]
        words = [word - (word >> 31 << 32) for word in (number >> 32, number & 0xFFFFFFFF)]
        master = Buffer("master", "in", "u8", 1, (flat.nbytes,), flat.tobytes())
        place = Buffer("place", "out", "u8", 1, (flat.nbytes,), bytes([POISON]) * flat.nbytes)
        outcome = run(device, "launch", master, place, elements, itemsize, len(places), *words)
        assert not outcome.findings and bytes(outcome.outputs["place"]) == expected.tobytes()


@pytest.mark.parametrize(
    ("name", "exploit", "sizes"),
    [
        ("sgemm_sliced_k_f32", "replays/remembers-by-fingerprint.cu", {"M": 64, "N": 64, "K": 64}),
        (
            "block_all_reduce_f32x4_f32",
            "exploits/block_all_reduce_f32x4_f32/remembers-what-rotation-keeps.cu",
            {"n": 32768},
        ),
    ],
)
def test_a_file_that_remembers_answers_works_in_every_timed_call(
    name: str, exploit: str, sizes: dict[str, int]
) -> None:
    """The calls of a timing run on the simulator: it does all of the work again, or its answer is wrong."""
    of, spec = KATAS[name], load_spec(KATAS[name])
    request = Request(of, spec, source_of(ROOT / "tests" / exploit), Target("sim", "sm_90a"))
    (built,) = build_all([request], find_toolchain())
    assert isinstance(built, Build)
    case = Case(of, spec, CaseKey.of(spec, sizes, spec.values[0].name, 1))
    worked = []
    with Sandbox("sim") as sandbox:
        sandbox.load(Program("sim", "sm_90a", built.library, built.ptx, built.source, engine()))
        for call in range(8):
            there = case.in_call(99, call)
            outcome = sandbox.call(there.call(nth=call, limits=LIMITS))
            if judge(there, outcome).passed:
                assert outcome.counters is not None
                worked.append(outcome.counters.warp_instructions)
    assert worked and min(worked) > 0.9 * worked[0]


# -- the timing's own kernels, and a card


@pytest.mark.parametrize(
    "text",
    [read_ptx(), SPIN, DIFFER, REPLACE, NEGATE, UNWRITTEN, DIGEST],
    ids=["read", "spin", "differ", "replace", "negate", "unwritten", "digest"],
)
def test_the_kernels_of_timing_are_ptx(tmp_path: Path, text: str) -> None:
    """A driver would compile them as ptxas does: loads of 16 bytes all in flight, no local memory."""
    source = tmp_path / "kernel.ptx"
    source.write_text(text)
    ptxas = find_toolchain().nvcc.resolve().parent / "ptxas"
    command = [str(ptxas), "-arch=sm_80", "-v", "-o", str(tmp_path / "kernel.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores" in done.stderr
    registers = re.search(r"Used (\d+) registers", done.stderr)
    assert registers is not None and int(registers[1]) <= 64
    assert text != read_ptx() or int(registers[1]) > 4 * UNROLL


def _measured_on_the_card(name: str, pairs: int | None = 21) -> Verdict:
    gpu = find_gpu()
    assert gpu is not None
    request = Request(
        KATAS[name], load_spec(KATAS[name]), source_of(KATAS[name].solution_path), Target("gpu", gpu.arch)
    )
    built = build_all([request], find_toolchain())[0]
    assert isinstance(built, Build)
    with Sandbox("gpu") as sandbox:
        sandbox.load(Program("gpu", gpu.arch, built.library, built.ptx, built.source))
        return measure(request.kata, request.spec, sandbox, gpu=gpu, pairs=pairs)()


@pytest.mark.skipif(find_gpu() is None, reason="no GPU here")
@pytest.mark.parametrize("name", ["elementwise_f16x8_pack", "block_all_reduce_f32x4_f32"])
def test_a_good_kernel_is_near_its_baseline(name: str) -> None:
    verdict = _measured_on_the_card(name)
    assert verdict.passed, verdict
    (measurement,) = verdict.measurements
    assert 0.5 < measurement.ratio < 1.3
    assert measurement.high - measurement.low < 0.1
    assert 0.5 < measurement.peak_share <= 1.0
    assert measurement.launches[0].registers > 0 and 0 < measurement.launches[0].occupancy <= 1


def test_a_small_answer_is_judged_in_rows_where_its_spec_says_that_each_takes_long() -> None:
    """The sums of long rows: 1024 numbers, of which a call gets a third of the bands checked."""
    spec = replace(
        SPEC,
        inputs=(Tensor("x", ("n", 2048)),),
        reference=lambda x, sizes: x.sum(axis=1),
        values=(InputKind("whole", integers(0, 9), exact=True),),
    )
    assert _rows(Case(KATA, spec, CaseKey.of(spec, {"n": 1024}, "whole", 1)), "seed", 0) is None
    case = Case(KATA, replace(spec, sampled=True), CaseKey.of(spec, {"n": 1024}, "whole", 1))
    rows = [_rows(case, "seed", nth) for nth in range(JUDGED)]
    assert all(each is not None and {0, 1023} <= {*each} and len(each) < 1024 // 4 for each in rows)
    assert len({row // 8 for each in rows if each is not None for row in each}) == 128
    (part,) = case.part(rows[0]).expected
    assert numpy.array_equal(part.value, case.expected[0].value[rows[0]])
