"""Kata + Sandbox -> Measurement: how fast, as a ratio to a baseline that runs in turn with it. Needs a GPU.

The figure is the median over pairs of t_baseline / t_launcher. Its interval comes from order statistics, so it assumes
nothing of how times are spread. What was computed while it was timed is judged like any other answer, once the GPU is
free for others.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from random import Random
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

from grader.compile.toolchain import Gpu
from grader.content.catalog import Kata, Threshold
from grader.content.dtype import Dtype
from grader.content.formulas import one_by_one, side_by_side
from grader.content.spec import Spec
from grader.devices import (
    BESIDE_PAIRS,
    Contents,
    Judged,
    Limits,
    Outcome,
    Outputs,
    Pairs,
    Rehearsal,
    Rows,
    TimingRequest,
    TimingResult,
)
from grader.devices.contents import DIFFERENT, JUDGED, JUDGED_BESIDE, chosen, seed_of
from grader.devices.drift import drifted, ends
from grader.judge.case import Case, CaseKey, Expected, Key, joined, taken
from grader.judge.encoding import decode, stored
from grader.judge.helpers import HelperGone, Helpers
from grader.judge.peaks import peak_bytes, peak_flops
from grader.judge.recent import Recent, once
from grader.judge.verdicts import Explain, from_finding, judge, other_bits, verdict_at
from grader.sandbox.parent import Sandbox
from grader.system.processes import available_bytes
from grader.system.stages import stage
from grader.verdict import Kind, Measurement, Verdict, format_sizes

if TYPE_CHECKING:
    from numpy import ndarray

LIMITS = Limits(seconds=120.0)  # of a timing run
MEMORY_SHARE = 0.7  # of the card's, that a timing run may fill
REHEARSAL_SHARE = 0.125  # that it may need where its baseline is tried beside the checks
CONTEXT_BYTES = 1 << 30  # what CUDA and torch take for themselves

# Pairs -> the ranks, counted from 1, between which the median of the population lies with at least 95 % probability
# (sign test: the sum of the binomial tails below the rank is under 2.5 % on each side).
RANKS: Mapping[int, tuple[int, int]] = {11: (2, 10), 21: (6, 16), 31: (10, 22), 51: (19, 33), 101: (41, 61)}
STAGES = (21, 31, 51, 101)  # how many pairs there are by then, where fewer do not decide
NOISE_CHECKS = (11, 31, 101)  # pairs of the baseline against itself; how many there are by then, where fewer are noisy
NOISE_PAIRS = NOISE_CHECKS[0]

SLACK = 0.99  # of the threshold is enough for a pass: the interval's own width must not decide
FLOOR_POINTS = 10  # a single shape may be so many percent below the threshold
QUIET, STEADY = 0.02, 0.05  # the noise check's median off 1, its interval's width

# Answers larger than this are judged by samples: so many runs of rows, each in a band of its own.
LARGE, BANDS, RUN_ELEMENTS = 1 << 20, 128, 4096
ANSWER_ELEMENT_BYTES = 32  # of memory that judging an answer may take for each element of the case's tensors


@dataclass
class _Track:
    """One shape of the kata against one baseline, and what was timed so far."""

    sizes: Mapping[str, int]
    baseline: str
    graded: bool
    ahead: Ahead
    explain: Explain | None = None
    times: list[tuple[float, float]] = field(default_factory=list)
    noise: Pairs = ()
    outcome: Outcome = field(default_factory=Outcome)
    beside: dict[str, _Track] = field(default_factory=dict)  # what other baselines took next to the same calls
    answers: Callable[[], Verdict | None] | None = None  # judges those of the last timing run, if none did yet

    def judge(self) -> Verdict | None:
        """What is wrong with the answers that are not judged yet, if anything is."""
        judge, self.answers = self.answers, None
        return judge() if judge else None

    @property
    def result(self) -> TimingResult:
        assert self.outcome.timing is not None
        return self.outcome.timing


def measure(
    kata: Kata,
    spec: Spec,
    sandbox: Sandbox,
    *,
    gpu: Gpu,
    pairs: int | None = None,
    tell: Callable[[str], None] = print,
    explain: Explain | None = None,
    ahead: Ahead | None = None,
    exact: bool = True,
) -> Callable[[], Verdict]:
    """Times at once. What it returns judges the answers of the last timed calls, for which no GPU is needed, and gives
    a pass with a measurement of each shape of the kata's ``speed``, too slow, inconclusive, or what went wrong.

    As many pairs as the threshold of this card's architecture needs; ``pairs`` of them where that is given.
    Whatever does not decide is tried once more in a fresh process. ``explain`` is as in check. ``ahead`` is what
    ``prepare`` makes. ``exact``: first ask what ``inexact`` asks.
    """
    if exact and (bad := inexact(kata, spec, sandbox, gpu)):
        return partial(settled, bad)
    ahead = ahead or Ahead()
    verdict, tracks = _measured(kata, spec, sandbox, gpu, pairs, explain, ahead)
    if verdict.kind is Kind.INCONCLUSIVE and (bad := _first_wrong(tracks)) is None:
        tell(f"{kata.name}: {verdict.summary}; trying once more")
        sandbox.close()
        verdict, tracks = _measured(kata, spec, sandbox, gpu, pairs, explain, Ahead())
    elif verdict.kind is Kind.INCONCLUSIVE and bad is not None:
        verdict = bad
    return lambda: _first_wrong(tracks) or verdict


def settled(verdict: Verdict) -> Verdict:
    """For what is known where others still judge."""
    return verdict


def _first_wrong(tracks: Sequence[_Track]) -> Verdict | None:
    return next((bad for track in tracks if (bad := track.judge())), None)


class Ahead:
    """What a grade can know of its timing runs before they begin: the secret of the first on each shape, beside each
    baseline, and the right answers to the calls of it that will be judged. For one grade: secrets are used once."""

    def __init__(self) -> None:
        self._secrets: dict[tuple[Any, ...], int] = {}
        self._answers: Recent[tuple[Any, ...], tuple[Expected, ...]] = Recent(MOST_AHEAD)
        self._lock = threading.Lock()
        self.quiet: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext  # while it is timed

    def secret(self, sizes: Mapping[str, int], baseline: str, *, used: bool) -> int:
        """The same until it is ``used``."""
        key = (tuple(sizes.items()), baseline)
        with self._lock:
            found = self._secrets.setdefault(key, secrets.randbits(128))
            if used:
                del self._secrets[key]
        return found

    def answer(self, case: Case, secret: int, call: int, rows: ndarray | None) -> tuple[Expected, ...]:
        """The answer to what a call gets, in these rows. Who comes while it is worked out waits."""
        return self.answer_by(case, secret, call, lambda: _in_rows(case.in_call(secret, call), rows))

    def answer_by(
        self, case: Case, secret: int, call: int, make: Callable[[], tuple[Expected, ...]]
    ) -> tuple[Expected, ...]:
        return self._answers.get_or_make((case.shape, secret, call), make)


def prepare(
    kata: Kata,
    spec: Spec,
    gpu: Gpu,
    pairs: int | None,
    ahead: Ahead,
    go_on: Callable[[], bool],
    helpers: Helpers | None = None,
) -> None:
    """Draw the contents that ``measure`` will want, and work out its first answers, as long as it should go on: for a
    thread that nvcc and the checks leave room. Several answers are worked out at once, as far as memory allows; or by
    helpers, where there are any.

    Helpers begin with what ``inexact`` will want. Where ``measure`` comes first, it waits.
    """
    assert kata.speed is not None
    shapes = [fitted(kata, spec, sizes, gpu.memory_bytes) for sizes in kata.speed.shapes]
    secret = [ahead.secret(sizes, kata.speed.baseline, used=False) for sizes in shapes]
    wanted = [  # one of each shape first: contents of several shapes are drawn at a time
        _Wanted(kata, spec, sizes, secret[at], nth, call)
        for nth in range(JUDGED)
        for at, sizes in enumerate(shapes)
        for call in chosen(secret[at], 0, pairs or STAGES[0])[nth : nth + 1]
    ]
    at_once = len(wanted) if helpers else min(len(wanted), *(_fits(spec, sizes) for sizes in shapes))
    exact = shapes if helpers else []
    with ThreadPoolExecutor(at_once + len(exact)) as pool:
        for sizes in exact:
            pool.submit(_work_out_exact, kata, spec, sizes, go_on, helpers)
        for each in wanted:
            pool.submit(_work_out, each, ahead, go_on, helpers)


@dataclass(frozen=True)
class _Wanted:
    """The answer to a call that will be judged, the nth of a timing run with this secret."""

    kata: Kata
    spec: Spec
    sizes: Mapping[str, int]
    secret: int
    nth: int
    call: int

    def case(self) -> Case:
        return _case(self.kata, self.spec, self.sizes, self.spec.values[0].name)


def _work_out(wanted: _Wanted, ahead: Ahead, go_on: Callable[[], bool], helpers: Helpers | None) -> None:
    with _AHEAD_AT_ONCE, one_by_one():
        if not go_on():
            return
        case = wanted.case()
        rows = _rows_of_judged(case, wanted.secret, wanted.call, wanted.nth)
        if helpers is None:
            ahead.answer(case, wanted.secret, wanted.call, rows)
            return
    with contextlib.suppress(HelperGone):
        asked = partial(helpers.answer, case, rows, (wanted.secret, wanted.call))
        ahead.answer_by(case, wanted.secret, wanted.call, asked)


def _work_out_exact(
    kata: Kata, spec: Spec, sizes: Mapping[str, int], go_on: Callable[[], bool], helpers: Helpers | None = None
) -> None:
    with contextlib.ExitStack() as drawn:
        if helpers:  # several are drawn at a time, and others beside them
            drawn.enter_context(_AHEAD_AT_ONCE)
            drawn.enter_context(one_by_one())
        case = _exact_case(kata, spec, sizes) if go_on() else None
    if case is not None:
        with contextlib.suppress(HelperGone):
            _expected_of(case, WHOLE, _rows(case, WHOLE), helpers)


def helpers_for(kata: Kata, spec: Spec, gpu: Gpu) -> int:
    """How many helpers should work out the answers that will be judged, where these are so many that the checks and the
    timing leave too little time for them; 0 where they are few."""
    assert kata.speed is not None
    shapes = [fitted(kata, spec, sizes, gpu.memory_bytes) for sizes in kata.speed.shapes]
    if len(shapes) * JUDGED <= ANSWERS_IN_TIME:
        return 0
    return min(len(os.sched_getaffinity(0)) * 3 // 4, *(_fit_memory(spec, sizes) for sizes in shapes))


def _fits(spec: Spec, sizes: Mapping[str, int]) -> int:
    """How many answers to contents of these sizes memory and processors allow to be worked out at once; at least 1."""
    return min(max(1, len(os.sched_getaffinity(0)) // 2), _fit_memory(spec, sizes))


def _fit_memory(spec: Spec, sizes: Mapping[str, int]) -> int:
    """How many of them memory allows; at least 1."""
    tensors = (*spec.inputs, *spec.outputs)
    elements = sum(tensor.elements(sizes) for tensor in tensors)
    return max(1, available_bytes() // 2 // (ANSWER_ELEMENT_BYTES * max(1, elements)))


def prepare_exact(kata: Kata, spec: Spec, gpu: Gpu, go_on: Callable[[], bool], *, beside: bool = False) -> None:
    """The same of the answers that ``inexact`` will want."""
    assert kata.speed is not None
    shapes = [fitted(kata, spec, sizes, gpu.memory_bytes) for sizes in kata.speed.shapes]

    at_once = 1 if beside else min(EXACT_AT_ONCE, *(_fits(spec, sizes) for sizes in shapes))
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda sizes: _work_out_exact(kata, spec, sizes, go_on), shapes))


def rehearsals(kata: Kata, spec: Spec, gpu: Gpu) -> tuple[Rehearsal, ...]:
    """The baselines of ``measure`` that the spec has, on its shapes, as far as the card has room for them beside the
    checks. Not those that follow indices or lengths: contents without a meaning could make them fail."""
    assert kata.speed is not None
    tensors = (*spec.inputs, *spec.written)
    if not all(spec.dtype(tensor, kata).is_float for tensor in tensors):
        return ()
    shapes = [fitted(kata, spec, sizes, gpu.memory_bytes) for sizes in kata.speed.shapes]
    shapes = [sizes for sizes in shapes if _needed(kata, spec, sizes) <= REHEARSAL_SHARE * gpu.memory_bytes]
    names = [name for name in (kata.speed.baseline, *kata.speed.also_compare) if name in spec.baselines]

    def of(name: str, sizes: Mapping[str, int]) -> Rehearsal:
        given = tuple((tensor.name, spec.dtype(tensor, kata).name, tensor.extent(sizes)) for tensor in tensors)
        return Rehearsal(kata.name, name, str(kata.spec_path), given)

    return tuple(of(name, sizes) for name, sizes in product(names, shapes))


def threshold_of(kata: Kata, gpu: Gpu) -> Threshold | None:
    """What the kata asks of this card's architecture, where it asks anything."""
    return kata.speed.percent.get(gpu.arch.removesuffix("a")) if kata.speed else None


def _measured(
    kata: Kata, spec: Spec, sandbox: Sandbox, gpu: Gpu, pairs: int | None, explain: Explain | None, ahead: Ahead
) -> tuple[Verdict, list[_Track]]:
    """The verdict if all answers are right, and what was timed, with answers that are not judged yet."""
    assert kata.speed is not None
    shapes = [fitted(kata, spec, sizes, gpu.memory_bytes) for sizes in kata.speed.shapes]
    tracks = [_Track(sizes, kata.speed.baseline, True, ahead, explain) for sizes in shapes]
    threshold = threshold_of(kata, gpu)
    verdict = Verdict(Kind.PASS, "measured")
    for count in STAGES if pairs is None and threshold is not None else (pairs or STAGES[0],):
        for track in tracks:
            if bad := _time(kata, spec, sandbox, track, count):
                return bad, tracks
        measurements = tuple(_measurement(kata, spec, track, gpu) for track in tracks)
        verdict = replace(_decided(measurements, threshold), measurements=measurements)
        if verdict.kind is not Kind.INCONCLUSIVE:
            break
    shown = []
    for name, graded in product(kata.speed.also_compare, tracks[: len(shapes)]):
        tracks.append(track := graded.beside.get(name) or _Track(graded.sizes, name, False, ahead))
        bad = _time(kata, spec, sandbox, track, BESIDE_PAIRS)
        if bad is None:
            shown.append(_measurement(kata, spec, track, gpu))
        elif bad.kind is not Kind.INCONCLUSIVE:  # noise beside a baseline that is not graded decides nothing
            return bad, tracks
    return replace(verdict, measurements=(*verdict.measurements, *shown)), tracks


def _decided(measurements: Sequence[Measurement], threshold: Threshold | None) -> Verdict:
    """By the geometric mean over the shapes; one shape alone may not be far below either."""
    mean, low, high = (
        geometric_mean(getattr(item, name) for item in measurements) for name in ("ratio", "low", "high")
    )
    names = " and ".join(dict.fromkeys(item.baseline for item in measurements))
    words = f"{100 * mean:.1f} % of {names} ({100 * low:.1f} to {100 * high:.1f})"
    if fast := next((item for item in measurements if item.time_s < item.floor_s), None):
        where = format_sizes(fast.sizes)
        summary = f"faster than the card can be at {where}: the measurement is broken, or work was left out"
        return Verdict(Kind.INCONCLUSIVE, summary)
    if threshold is None:
        return Verdict(Kind.PASS, words)
    words = f"{words}, {threshold.percent:g} % asked"
    wanted, floor = threshold.percent / 100, (threshold.percent - FLOOR_POINTS) / 100
    if slow := next((item for item in measurements if item.high < floor), None):
        share = f"{100 * slow.ratio:.1f} % of {names} at {format_sizes(slow.sizes)}"
        return Verdict(Kind.TOO_SLOW, f"{share}, at least {100 * floor:g} % asked of each shape")
    if high < wanted:
        return Verdict(Kind.TOO_SLOW, words)
    return Verdict(Kind.PASS if low >= SLACK * wanted else Kind.INCONCLUSIVE, words)


# -- one timing run --------------------------------------------------------------------------------------------------


def _time(kata: Kata, spec: Spec, sandbox: Sandbox, track: _Track, pairs: int) -> Verdict | None:
    """Time until ``track`` has ``pairs`` pairs. Returns what went wrong, if anything did."""
    missing, noise = pairs - len(track.times), 0 if track.noise else NOISE_PAIRS
    bad = _request(kata, spec, sandbox, track, pairs=missing, noise=noise) if missing or noise else None
    for count in NOISE_CHECKS[1:]:
        if bad is None and len(track.noise) < count and _noise(track):
            bad = _request(kata, spec, sandbox, track, pairs=0, noise=count - len(track.noise))
    if bad is None and (words := _noise(track)):
        bad = Verdict(Kind.INCONCLUSIVE, words)
    return bad


def _request(kata: Kata, spec: Spec, sandbox: Sandbox, track: _Track, *, pairs: int, noise: int) -> Verdict | None:
    """Time so many pairs more. Returns what went wrong on the way, or before, if anything did."""
    if bad := track.judge():  # answers are large: never are those of two timing runs kept
        return bad
    assert kata.speed is not None
    case = _case(kata, spec, track.sizes, spec.values[0].name)
    secret = track.ahead.secret(track.sizes, track.baseline, used=True)
    beside = kata.speed.also_compare if track.graded and not track.times else ()
    request = TimingRequest(
        kata=kata.name,
        baseline=track.baseline,
        bytes_moved=min_bytes_of(kata, spec, track.sizes),
        replaced=case.replaced,
        negated=case.negated,
        pairs=pairs,
        judged=JUDGED if track.graded else JUDGED_BESIDE,
        noise=noise,
        spec=str(kata.spec_path) if not spec.baselines.keys().isdisjoint({track.baseline, *beside}) else None,
        beside=beside,
    )
    undisclosed = _Undisclosed(case, request, secret)
    with track.ahead.quiet():
        track.outcome = sandbox.call(replace(case.call(nth=0, limits=LIMITS), timing=request), undisclosed)
    if track.outcome.findings:
        return _while_timed(from_finding(case, track.outcome.findings[0]), sandbox.printed)
    result = track.result
    if result.finding is not None:
        return _while_timed(from_finding(case, result.finding), sandbox.printed)
    track.answers = partial(_wrong_while_timed, undisclosed, result, track, sandbox.printed)
    track.times += result.times
    track.noise += result.noise
    for name, (times, noise_of) in result.beside.items():
        if name in beside and len(times) == len(noise_of) == BESIDE_PAIRS:
            other = _Track(track.sizes, name, False, track.ahead, times=[*times], noise=noise_of, outcome=track.outcome)
            track.beside[name] = other
    disturbance = _disturbance(result)
    return Verdict(Kind.INCONCLUSIVE, disturbance) if disturbance else None


def inexact(kata: Kata, spec: Spec, sandbox: Sandbox, gpu: Gpu) -> Verdict | None:
    """What is wrong with the answers, on the shapes that are timed, to the last kind of values that must come out
    exactly, where there is one.

    Timed calls get normal draws, and a long sum of these is right within what rounding may do to it: a few products
    left out, or operands of too few bits, would hide there.
    """
    assert kata.speed is not None
    for sizes in (fitted(kata, spec, sizes, gpu.memory_bytes) for sizes in kata.speed.shapes):
        if (case := _exact_case(kata, spec, sizes)) is None:
            return None
        rows = _rows(case, WHOLE)
        call = replace(case.call(nth=0, limits=LIMITS), rows=None if rows is None else _coming_back(case, rows))
        outcome = sandbox.call(call)
        if outcome.findings:
            return _while_timed(from_finding(case, outcome.findings[0]), sandbox.printed)
        verdict = _answer(case, _expected_of(case, WHOLE, rows), outcome.outputs, outcome.unwritten)
        if not verdict.passed:
            return _while_timed(verdict, sandbox.printed)
    return None


def _exact_case(kata: Kata, spec: Spec, sizes: Mapping[str, int]) -> Case | None:
    kinds = [values.name for values in spec.values if values.exact]
    return _case(kata, spec, sizes, kinds[-1]) if spec.slice_dim is not None and kinds else None


def _while_timed(verdict: Verdict, printed: str) -> Verdict:
    summary = verdict.summary if verdict.kind is Kind.INCONCLUSIVE else f"{verdict.summary}, on what is timed"
    return replace(verdict, summary=summary, printed=printed)


def _disturbance(result: TimingResult) -> str | None:
    """What voids a timing run, whatever its times are: another process on the card, or another clock."""
    if result.other_processes:
        several = "processes use" if result.other_processes > 1 else "process uses"
        words = f"{result.other_processes} other {several} the GPU"
        return f"{words}: nothing can be measured beside it; `nvidia-smi` lists it"
    if drifted(result.times, result.clocks_mhz):
        (first, last), (early, late) = result.clocks_mhz, ends(result.times)
        ratio = f"the ratio from {early:.3f} to {late:.3f}"
        return f"the SM clock went from {first} to {last} MHz and {ratio} while it was measured"
    return None


def _noise(track: _Track) -> str | None:
    """What the noise check says, where the machine is too noisy to tell anything."""
    ratio, low, high = _interval(track.noise)
    if abs(ratio - 1) <= QUIET and high - low <= STEADY:
        return None
    itself = f"{track.baseline} against itself at {format_sizes(track.sizes)}"
    return f"the machine is too noisy: {itself} gave {ratio:.3f} ({low:.3f} to {high:.3f})"


def _interval(times: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Median of the ratios, and the ends of its 95 % interval."""
    ratios = sorted(baseline / launcher for baseline, launcher in times)
    first, last = RANKS[len(ratios)]
    return median(ratios), ratios[first - 1], ratios[last - 1]


def _measurement(kata: Kata, spec: Spec, track: _Track, gpu: Gpu) -> Measurement:
    ratio, low, high = _interval(track.times)
    baseline, launcher = (median(column) for column in zip(*track.times, strict=True))
    bytes_moved = min_bytes_of(kata, spec, track.sizes)
    flops = spec.flops(track.sizes) if spec.flops else 0
    bytes_s, flops_s = peak_bytes(track.result.card), peak_flops(track.result.card, gpu.capability, kata.elem)
    # What is written may still be in L2 when the launcher is done; what is read has to come, the L2 being cold.
    bytes_read = max(0, bytes_moved - _tensor_bytes(kata, spec, track.sizes)[1])
    return Measurement(
        track.baseline,
        dict(track.sizes),
        ratio,
        low,
        high,
        pairs=len(track.times),
        time_s=launcher,
        baseline_time_s=baseline,
        bytes_moved=bytes_moved,
        flops=flops,
        peak_bytes_s=bytes_s,
        peak_flops_s=flops_s,
        floor_s=max(flops / flops_s if flops_s else 0.0, bytes_read / bytes_s if bytes_s else 0.0),
        clock_mhz=track.result.clocks_mhz[-1],
        graded=track.graded,
        launches=tuple(dict.fromkeys(track.outcome.launches)),  # each kernel with its shape once
    )


# -- shapes, and what they move --------------------------------------------------------------------------------------


def min_bytes_of(kata: Kata, spec: Spec, sizes: Mapping[str, int]) -> int:
    """The fewest bytes that the kata can move: every tensor once, or what the spec says."""
    if spec.min_bytes is not None:
        return spec.min_bytes(sizes, spec.dtype(spec.outputs[0], kata).itemsize)
    return sum(_tensor_bytes(kata, spec, sizes))


def _tensor_bytes(kata: Kata, spec: Spec, sizes: Mapping[str, int]) -> tuple[int, int]:
    """(of all inputs, of all outputs)"""
    of_inputs, of_outputs = (
        sum(tensor.elements(sizes) * spec.dtype(tensor, kata).itemsize for tensor in tensors)
        for tensors in (spec.inputs, spec.outputs)
    )
    return of_inputs, of_outputs


def contents_bytes(kata: Kata, spec: Spec, gpu: Gpu) -> int:
    """The bytes of all inputs of the largest shape that is timed."""
    assert kata.speed is not None
    shapes = (fitted(kata, spec, sizes, gpu.memory_bytes) for sizes in kata.speed.shapes)
    return max(_tensor_bytes(kata, spec, sizes)[0] for sizes in shapes)


def fitted(kata: Kata, spec: Spec, sizes: Mapping[str, int], memory_bytes: int) -> Mapping[str, int]:
    """The shape, halved along its largest size until a timing run of it fits the card. 0 bytes of memory: not known."""
    fitting = dict(sizes)
    while memory_bytes and _needed(kata, spec, fitting) > MEMORY_SHARE * memory_bytes:
        name = max(fitting, key=lambda size: fitting[size])
        step = kata.multiples.get(name, 1)
        smaller = fitting[name] // 2 // step * step
        if smaller < max(1, step):
            break
        fitting[name] = smaller
    return fitting


def _needed(kata: Kata, spec: Spec, sizes: Mapping[str, int]) -> int:
    """Bytes on the card: inputs three times, outputs twice, each baseline's own."""
    of_inputs, of_outputs = _tensor_bytes(kata, spec, sizes)
    own, baselines = (
        max(of_outputs, min_bytes_of(kata, spec, sizes)),
        1 + len(kata.speed.also_compare if kata.speed else ()),
    )
    return CONTEXT_BYTES + 3 * of_inputs + 2 * of_outputs + own * baselines


# -- the answers of timed calls --------------------------------------------------------------------------------------


@stage("inputs")
def _case(kata: Kata, spec: Spec, sizes: Mapping[str, int], values: str) -> Case:
    """Its inputs are drawn once for all katas of a family that have the same: that takes seconds."""
    shape = CaseKey.of(spec, sizes, values, 1)
    named = next(item for item in spec.values if item.name == values)
    tensors = tuple((tensor.name, tensor.dtype, tensor.extent(dict(shape.sizes))) for tensor in spec.inputs)
    key = (id(named), tensors, kata.elem, shape)
    return Case(kata, spec, shape, _inputs().get_or_make(key, lambda: Case(kata, spec, shape).inputs))


WHOLE = "whole"  # the seed of the rows that are looked at of an answer that must be exact
MOST_AHEAD = 32  # answers in rows of a timing run: some megabytes each
MOST_WHOLE = 16
EXACT_AT_ONCE = 2
ANSWERS_IN_TIME = 8
# Answers that are worked out ahead at a time, for all grades together: each goes through hundreds of megabytes. More of
# them would only wait for memory and for the interpreter, and so would what is compiled and checked meanwhile.
_AHEAD_AT_ONCE = threading.Semaphore(max(2, len(os.sched_getaffinity(0)) // 4))
# Hundreds of megabytes for each shape and kind of values. They have a share of the memory that is available.
INPUT_SHARE, INPUT_BYTES = 16, 4 << 30
_WHOLE: Recent[Key, tuple[Expected, ...]] = Recent(MOST_WHOLE)


@once
def _inputs() -> Recent[tuple[Any, ...], Mapping[str, ndarray]]:
    most = min(INPUT_BYTES, available_bytes() // INPUT_SHARE)
    return Recent(most, lambda inputs: sum(value.nbytes for value in inputs.values()))


@dataclass(frozen=True)
class _Undisclosed:
    """What a timing run is told when it asks. See grader.devices.Undisclosed."""

    case: Case
    request: TimingRequest
    secret: int

    def seed(self, call: int) -> int:
        return seed_of(self.secret, call)

    def judged(self, calls: Sequence[int]) -> list[Judged]:
        parts = [(call, self.rows(call)) for call in calls if call in self.chosen(call)]
        return [(call, None if rows is None else _coming_back(self.case, rows)) for call, rows in parts]

    def chosen(self, call: int) -> list[int]:
        """Which calls are judged of the run that this one is of."""
        pairs = self.request.pairs
        return chosen(self.secret, call // pairs, pairs, self.request.judged)

    def rows(self, call: int) -> ndarray | None:
        """The rows that are looked at of the answer to a call that is judged."""
        return _rows_of_judged(self.case, self.secret, call, self.chosen(call).index(call))


def _wrong_while_timed(asked: _Undisclosed, result: TimingResult, track: _Track, printed: str) -> Verdict | None:
    wrong = _judged(asked, result, track)
    return wrong and _while_timed(wrong, printed)


def _judged(asked: _Undisclosed, result: TimingResult, track: _Track) -> Verdict | None:
    """What is wrong with the answers, if anything is."""
    case, secret = asked.case, asked.secret
    if wrong := _wrong_answers(asked, result, track.ahead):
        return wrong[0]

    def of_both(call: int, *both: Outputs) -> Verdict:
        there = case.in_call(secret, call)
        return _whole_answers(there, _rows(there, f"{secret} {call} again"), both)

    different, others = result.again[:DIFFERENT], result.again[DIFFERENT:]
    if wrong := _not_passed(of_both, different, at_once=_fits(case.spec, case.sizes)):
        return wrong[0]
    if different and case.spec.deterministic:
        verdict = other_bits(case, (Outcome(),), track.explain)
        if not verdict.passed:
            return verdict
    judged = case.in_call(secret, different[-1][0]).expected if others else ()
    for call, timed, untimed in others:
        verdict = _agreement(case.in_call(secret, call), judged, timed, untimed)
        if not verdict.passed:
            return verdict
    return None


@stage("answers of timed calls")
def _wrong_answers(asked: _Undisclosed, result: TimingResult, ahead: Ahead) -> list[Verdict]:
    """The verdicts on the answers that are wrong. Several answers are judged at once, as far as memory allows."""
    case, secret = asked.case, asked.secret

    def judged(nth: int, call: int, outputs: Outputs) -> Verdict:
        rows = asked.rows(call)
        answer = ahead.answer(case, secret, call, rows)
        verdict = _answer(case, answer, outputs, {} if rows is None else result.unwritten[nth])
        if verdict.passed or rows is not None:
            return verdict
        return judge(case.in_call(secret, call), Outcome(outputs), answer)  # with the inputs of what is wrong

    assert case.negated is not None  # worked out once, before several threads ask
    parts = [(nth, call, outputs) for nth, (call, outputs) in enumerate(result.answers)]
    return _not_passed(judged, parts, at_once=_fits(case.spec, case.sizes))


def _not_passed(judged: Callable[..., Verdict], parts: Sequence[tuple[Any, ...]], *, at_once: int) -> list[Verdict]:
    """The verdicts on the parts that do not pass; so many are judged at once."""
    steps = (parts[first : first + at_once] for first in range(0, len(parts), at_once))
    return [each for step in steps for each in side_by_side(judged, step) if not each.passed]


def _agreement(case: Case, judged: Sequence[Expected], timed: Outputs, untimed: Outputs) -> Verdict:
    """Two small answers to the same contents: they may be as far apart as two right ones. How far that is follows from
    the answer to other contents, ``judged``, since the values of both are draws from the same distribution."""
    answer = []
    for item in judged:
        value = decode(stored(untimed[item.tensor.name], item.dtype), item.dtype).reshape(item.value.shape)
        bound = None if item.bound is None else value * 0 + 2 * item.bound.max()
        answer.append(replace(item, value=value, bound=bound))
    return judge(case, Outcome(timed), answer)


def _answer(case: Case, answer: Sequence[Expected], outputs: Outputs, unwritten: Mapping[str, int]) -> Verdict:
    """The verdict on one answer: all of it, or of a large one some rows everywhere and that nothing was left out, which
    ``unwritten`` says."""
    for name, count in unwritten.items():
        if count:
            return verdict_at(case, Kind.WRONG_ANSWER, f"{count} elements of {name} were never written")
    verdict = judge(case, Outcome(outputs), answer)
    if unwritten and verdict.kind is Kind.WRONG_ANSWER:  # the indices are those of the sample
        summary = f"{verdict.wrong_count} of {verdict.element_count} elements looked at are wrong"
        verdict = replace(verdict, summary=summary, mismatches=(), pattern=None)
    return verdict


def _whole_answers(case: Case, rows: ndarray | None, several: Sequence[Outputs]) -> Verdict:
    """The verdict on several answers to one call that came back in full: that on the first that is wrong."""
    answer = _in_rows(case, rows)
    verdicts = (_whole_answer(case, answer, rows, outputs) for outputs in several)
    return next((each for each in verdicts if not each.passed), Verdict(Kind.PASS, "right"))


def _whole_answer(case: Case, answer: Sequence[Expected], rows: ndarray | None, outputs: Outputs) -> Verdict:
    if rows is None:
        return judge(case, Outcome(outputs), answer)
    unwritten = {item.tensor.name: _unwritten(outputs[item.tensor.name], item.dtype) for item in answer}
    sampled = {item.tensor.name: _sampled(case, item, outputs[item.tensor.name], rows) for item in answer}
    return _answer(case, answer, sampled, unwritten)


def _expected_of(case: Case, seed: str, rows: ndarray | None, helpers: Helpers | None = None) -> tuple[Expected, ...]:
    """The answer in these rows. That to contents which do not change is worked out once for all katas of a family."""
    if rows is None or seed != WHOLE:
        return _in_rows(case, rows)
    return _WHOLE.get_or_make(
        case.key, lambda: _answer_in_parts(case, rows, helpers) if helpers else case.part(rows).expected
    )


def _answer_in_parts(case: Case, rows: ndarray, helpers: Helpers) -> tuple[Expected, ...]:
    """This answer has as many rows as all judged ones together, so several helpers share it. Raises HelperGone."""
    import numpy

    with ThreadPoolExecutor(JUDGED) as pool:
        parts = list(pool.map(lambda part: helpers.answer(case, part), numpy.array_split(rows, JUDGED)))
    return joined(parts, case.spec.slice_dim)


def _in_rows(case: Case, rows: ndarray | None) -> tuple[Expected, ...]:
    return case.expected if rows is None else case.part(rows).expected


def _rows_of_judged(case: Case, secret: int, call: int, nth: int) -> ndarray | None:
    """The rows that are looked at of the answer to this call, the nth of a timing run that is judged.

    Each has its share of the bands.
    """
    return _rows(case, f"{secret} {call}", (nth + secret) % JUDGED)


def _coming_back(case: Case, rows: ndarray) -> Rows:
    """The same as the device is told. ``rows`` are in order."""
    import numpy

    gaps = numpy.flatnonzero(numpy.diff(rows) > 1) + 1
    runs = tuple((int(run[0]), int(run[-1]) + 1) for run in numpy.split(rows, gaps))
    return Rows(runs, {tensor.name: tensor.shape.index(str(case.spec.slice_dim)) for tensor in case.spec.outputs})


def _rows(case: Case, seed: str, nth: int | None = None) -> ndarray | None:
    """Rows to look at of an answer that is large or takes long: a run at random in each of many bands, the first row
    and the last.

    ``nth``: only in every JUDGED-th band, from this one on.
    """
    import numpy

    spec = case.spec
    total = max(tensor.elements(case.sizes) for tensor in (spec.sliced if spec.sampled else spec.outputs))
    if spec.slice_dim is None or total <= LARGE:
        return None
    count = case.sizes[spec.slice_dim]
    run, band = max(1, RUN_ELEMENTS // (total // count)), count // BANDS
    if band < run:
        return None
    random = Random(f"rows {seed}")
    places = {0, count - 1}
    bands = range(BANDS) if nth is None else range(nth, BANDS, JUDGED)
    for start in (place * band for place in bands):
        first = start + random.randrange(band - run + 1)
        places.update(range(first, first + run))
    return numpy.array(sorted(places))


def _sampled(case: Case, expected: Expected, data: Contents, rows: ndarray) -> bytes:
    import numpy

    tensor = expected.tensor
    raw = numpy.frombuffer(data, dtype=numpy.uint8).reshape(*tensor.extent(case.sizes), expected.dtype.itemsize)
    chosen: bytes = taken(raw, rows, tensor.shape.index(str(case.spec.slice_dim))).tobytes()
    return chosen


def _unwritten(data: Contents, dtype: Dtype) -> int:
    """How many elements still hold the poison that they had before the call."""
    import numpy

    size = dtype.unwritten_run * dtype.itemsize
    poison = int.from_bytes(bytes([dtype.poison]) * size, "little")
    words = numpy.frombuffer(data[: len(data) // size * size], dtype=f"<u{size}")
    return dtype.unwritten_run * int(numpy.count_nonzero(words == poison))
