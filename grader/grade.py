"""Kata + file -> Grade: the pipeline, from the learner's file to a verdict on each device.

pytest and the command line are two faces of ``grade``; the verdict that they show is the same object.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grader.compile.build import Build, BuildError, CompileFailure, Request, Target, Tell, build_all
from grader.compile.libraries import LibraryMissing, find_library
from grader.compile.offsets import narrow_lines
from grader.compile.toolchain import Gpu, ToolchainError, builds_for, dotted, driver_runs, find_gpu, find_toolchain
from grader.content import skeleton, start
from grader.content.catalog import EXACT, Kata
from grader.content.source_file import Source, source_of
from grader.content.spec import Spec, load_spec
from grader.devices import Outcome
from grader.devices.sim import engine_library
from grader.fault import Fault
from grader.judge.case import Case, CaseKey, largest_within
from grader.judge.check import check, count, prepare_drawn
from grader.judge.check import prepare as prepare_check
from grader.judge.helpers import Helpers
from grader.judge.measure import (
    Ahead,
    contents_bytes,
    helpers_for,
    inexact,
    measure,
    prepare_exact,
    rehearsals,
    settled,
)
from grader.judge.measure import prepare as prepare_measure
from grader.judge.search import Compiler, SearchBudget, budget_for, rehearse
from grader.judge.verdicts import Explain, from_finding
from grader.options import Options
from grader.sandbox.early import Early
from grader.sandbox.parent import Program, Sandbox, prestart_torch
from grader.storage import cache
from grader.storage.lock import GpuTurn, gpu_turn
from grader.system.blas import spare_threads
from grader.system.in_order import InOrder
from grader.system.processes import available_bytes
from grader.system.stages import recorded, stage
from grader.system.threads import switch_soon
from grader.verdict import CaseCounters, Grade, Kind, Verdict, format_sizes

if TYPE_CHECKING:
    from numpy import ndarray

    from grader.compile.edit_writer import Edit


EXAMPLES_AFTER_GPU, SIZES_AFTER_GPU = 4, 10  # drawn, and of those that the spec names the smallest
MOST_AT_A_TIME = 6  # grades on a GPU: more would only wait for it
PROCESSORS_OF_A_GRADE, BYTES_OF_A_GRADE = 2, 8 << 30
PROCESSORS_FOR_ALL = 8  # for nvcc, torch's import, the checks' answers and those of timed calls at the same time
THREAD_SAFE_HYPOTHESIS = (6, 136, 9)


class DeviceError(Fault):
    """The device that was asked for is not there; the message says what to do."""


Settle = Callable[[], Verdict]  # what is left to do once the GPU is free for others


def budget_of(options: Options, target: Target, after_gpu: bool) -> SearchBudget:
    """How much a grade with these options tries on a device. ``after_gpu``: the answers were judged on the GPU."""
    budget = replace(budget_for(target.device), seed=options.seed, shuffled=options.shuffled, smallest=options.smallest)
    budget = replace(budget, diagnose=options.diagnose and options.smallest)
    if options.shuffled:
        budget = replace(budget, examples=2 * budget.examples)
    if after_gpu:  # a few small shapes for what it hides
        budget = replace(budget, examples=EXAMPLES_AFTER_GPU, named_sizes=SIZES_AFTER_GPU)
    return budget.thorough() if options.thorough else budget


def targets(options: Options, gpu: Gpu | None, kata: Kata | None = None) -> tuple[Target, ...]:
    """The devices to grade on, in order. Raises DeviceError if a GPU is asked for and not found.

    ``kata``: what is graded. If it needs another GPU than this one, "auto" is the simulator.
    """
    simulator = Target("sim", options.sim_arch)
    unfit = gpu is None or (kata is not None and unfit_gpu(gpu, kata) is not None)
    if options.device == "sim" or (options.device == "auto" and unfit):
        return (simulator,)
    if gpu is None:
        raise DeviceError("--device gpu, but no NVIDIA GPU was found. See `kata doctor`, or use --device sim.")
    hardware = Target("gpu", gpu.arch)
    return (hardware,) if options.device == "gpu" else (hardware, simulator)


def unfit_gpu(gpu: Gpu, kata: Kata) -> str | None:
    """Why the kata cannot be graded on this GPU, in a few words; None where it can be."""
    if not kata.runs_on(gpu.arch):
        return f"{kata.name} needs {kata.compute}, and the GPU is {gpu.arch}"
    with contextlib.suppress(ToolchainError):  # the compilation says what is missing
        toolchain = find_toolchain()
        if not builds_for(toolchain.nvcc, gpu):
            return f"nvcc {dotted(toolchain.nvcc_version)} does not build for the GPU, {gpu.arch}"
        if not driver_runs(gpu, toolchain.nvcc_version):
            return f"the driver runs CUDA up to {dotted(gpu.cuda)}, and nvcc is {dotted(toolchain.nvcc_version)}"
    return None


def grade(kata: Kata, options: Options, *, source: Path | None = None, tell: Tell | None = None) -> Grade:
    """Grade ``source`` (the learner's file by default) as ``kata``.

    Raises a Fault when the machine or the repository is at fault, never for what is in the file.
    """
    with recorded() as seconds:
        read = source_of(source or kata.own_path)
        early = unbuildable(kata, read)
        verdicts = (early,) if early else _on_devices(kata, read, options, tell)
        finished = tuple(_with_todos(verdict, read) for verdict in verdicts)
    return Grade(kata, read, finished, sum(seconds.values()), seconds)


def bench(kata: Kata, options: Options, *, source: Path, tell: Tell | None = None) -> Grade:
    """Measure ``source`` on the GPU without checking more than the timed calls' own outputs.

    The grade's verdict is a pass with its measurements, or what went wrong. Raises a Fault as grade does.
    """
    (target,) = targets(replace(options, device="gpu"), find_gpu())
    read = source_of(source)
    request = _request(kata, read, target, options)

    def timed(on: _Devices, turn: GpuTurn, ahead: Ahead) -> Settle:
        return _measured(request, on, turn, ahead, options, tell, exact=True)

    with recorded() as seconds:
        verdict = unbuildable(kata, read) or _on_device(request, options, tell, timed, checks=False)
    return Grade(kata, read, (replace(verdict, device=str(target)),), sum(seconds.values()), seconds)


def in_order(
    work: Sequence[tuple[Kata, Path]], options: Options, tell: Tell | None, one: Callable[..., Grade] | None = None
) -> InOrder[Grade]:
    """The grades of files that are prepared, made as they are asked for. On a GPU some are at work at a time: while one
    is timed, others' answers are worked out and judged. ``one`` makes a grade, if ``grade`` does not."""
    gpu = find_gpu()
    on_gpu = gpu is not None and bool(work) and options.device != "sim"
    at_a_time = grades_at_a_time() if on_gpu and len(work) > 1 else 1
    options = replace(options, beside=at_a_time > 1)
    made = one or grade
    return InOrder([partial(made, kata, options, source=source, tell=tell) for kata, source in work], at_a_time)


def grades_at_a_time() -> int:
    """How many grades this machine should be at, if they use one GPU."""
    if not _hypothesis_is_for_threads():
        return 1
    processors = len(os.sched_getaffinity(0)) // PROCESSORS_OF_A_GRADE
    return max(1, min(MOST_AT_A_TIME, processors, available_bytes() // BYTES_OF_A_GRADE))


def _hypothesis_is_for_threads() -> bool:
    """No where it is missing: the grade says so."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return tuple(int(number) for number in version("hypothesis").split(".")[:3]) >= THREAD_SAFE_HYPOTHESIS
    except PackageNotFoundError:
        return False


def called_once(
    kata: Kata, spec: Spec, source: Source, options: Options, tell: Tell | None = None
) -> Verdict | dict[str, ndarray]:
    """All tensors of one call on the simulator, by name, as float64 or int64; a verdict if there is no answer.

    Raises a Fault as grade does.
    """
    _need("numpy", "hypothesis")
    target = Target("sim", options.sim_arch)
    engine, toolchain = _engine((target,), tell), find_toolchain()
    request = Request(kata, spec, source, target, together=options.together)
    built = build_all([request], toolchain, jobs=options.jobs, tell=None)[0]
    if isinstance(built, CompileFailure):
        return does_not_compile(built)
    case = Case(kata, spec, CaseKey.of(spec, spec.named_sizes[0], spec.values[0].name, options.seed))
    with Sandbox(target.device) as sandbox:
        sandbox.load(_program(built, engine, options))
        outcome = sandbox.call(case.call(nth=0, limits=budget_for(target.device).limits))
    if outcome.findings:
        return replace(from_finding(case, outcome.findings[0]), device=str(target))
    return case.tensors(outcome.outputs)


def counted(kata: Kata, source: Source, options: Options, tell: Tell | None = None) -> Verdict | CaseCounters | None:
    """What one call of a file costs on the simulator, on the shape that ``kata grade --counters`` counts.

    A verdict if there is no build; None if nothing was launched or the call failed. Raises a Fault as grade does.
    """
    _need("numpy", "hypothesis")
    target = Target("sim", options.sim_arch)
    with Sandbox(target.device) as sandbox:
        built = _loaded(_request(kata, source, target, options), sandbox, options, tell)
        if isinstance(built, CompileFailure):
            return does_not_compile(built)
        return count(kata, load_spec(kata), sandbox, budget_of(options, target, after_gpu=False))


@dataclass(frozen=True)
class Planned:
    """Files that are to be graded, each as its kata, once with each of the options."""

    work: Sequence[tuple[Kata, Path]]
    options: Sequence[Options]


def prepare(
    work: Sequence[tuple[Kata, Path]],
    options: Options,
    tell: Tell | None = None,
    *,
    beside: Sequence[Options] = (),
) -> list[Build | CompileFailure]:
    """Compile many files at once, so that each grade finds its build in the cache. Failures are left for the grades.

    ``beside``: other options that the same files will be graded with. Returns what became of all that was compiled.
    """
    return prepare_all([Planned(work, (options, *beside))], tell, jobs=options.jobs)


def prepare_all(planned: Sequence[Planned], tell: Tell | None = None, *, jobs: int) -> list[Build | CompileFailure]:
    """The same for files with other options each, so many compilations at a time."""
    gpu = find_gpu()
    wanted: list[tuple[Request, Options]] = []
    for plan in planned:
        read = [(kata, source_of(path)) for kata, path in plan.work]
        wanted += [
            (_request(kata, source, target, options), options)
            for kata, source in read
            if unbuildable(kata, source) is None
            for options in plan.options
            for target in targets(options, gpu, kata)
        ]
    if not wanted:
        return []
    _engine([request.target for request, _ in wanted], tell)
    if any(_uses_torch(request, options) for request, options in wanted):
        prestart_torch()
    return build_all([request for request, _ in wanted], find_toolchain(), jobs=jobs, tell=tell)


def unbuildable(kata: Kata, source: Source) -> Verdict | None:
    """The verdict on a file that needs no compiler: it is not started, or no compiler could read it."""
    if refused := unreadable(kata, source):
        return refused
    if start.is_untouched(kata, source.text):
        count = len(skeleton.todos(source.text))
        return Verdict(Kind.NOT_STARTED, f"{count} TODO{'s' if count > 1 else ''}")
    return None


def lacks_library(kata: Kata) -> bool:
    """Whether this machine lacks a library without which the kata cannot be graded on the simulator."""
    try:
        for name in kata.libraries:
            find_library(name, toolkit=find_toolchain().toolkit, device="sim")
    except LibraryMissing:
        return True
    return False


def unreadable(kata: Kata, source: Source) -> Verdict | None:
    """The verdict on a file that is not text; None where it is."""
    name = source.path.name
    if source.problem:
        words = f"{name} cannot be read ({source.problem})"
        back = skeleton.reset_hint(kata, source.path)
        return Verdict(Kind.DOES_NOT_COMPILE, f"{words}; {back}" if back else words)
    if b"\0" in source.data:
        return Verdict(Kind.DOES_NOT_COMPILE, f"{name} is not a text file: it has a zero byte")
    return None


def _request(kata: Kata, source: Source, target: Target, options: Options) -> Request:
    within = Path(options.within) if options.within else None
    return Request(kata, load_spec(kata), source, target, options.warnings_are_errors, options.together, within)


# What is wrong on a GPU and may be on the simulator, which then says more.
TOLD_BY_SIMULATOR = (
    Kind.WRONG_ANSWER,
    Kind.OUT_OF_BOUNDS,
    Kind.MISALIGNED,
    Kind.UNINITIALISED,
    Kind.RACE,
    Kind.DEADLOCK,
    Kind.LAUNCH_FAILED,
    Kind.CRASH,
    Kind.TIME_OUT,
    Kind.NOT_REPEATABLE,
)


def _on_devices(kata: Kata, source: Source, options: Options, tell: Tell | None) -> tuple[Verdict, ...]:
    _need("numpy", "hypothesis")
    gpu = find_gpu()
    found = targets(options, gpu, kata)
    if gpu is not None and options.device == "auto" and (why := unfit_gpu(gpu, kata)):
        (tell or _silent)(f"{why}: graded on the simulator")
    verdicts: list[Verdict] = []
    for target in found:
        request = _request(kata, source, target, options)
        budget = budget_of(options, target, after_gpu=bool(verdicts) and verdicts[-1].passed)

        def judged(
            on: _Devices, turn: GpuTurn, ahead: Ahead, request: Request = request, budget: SearchBudget = budget
        ) -> Settle:
            return _checked(request, on, turn, ahead, budget, options, tell)

        verdict = _on_device(request, options, tell, judged)
        verdicts.append(replace(verdict, device=str(target)))
        if not verdict.passed and verdict.kind not in TOLD_BY_SIMULATOR:
            break
    if verdicts[-1].kind in TOLD_BY_SIMULATOR:  # with its line and cause: the simulator comes last
        verdicts.reverse()
    return tuple(verdicts)


@dataclass(frozen=True)
class _Progress:
    """How far a grade has come, for the threads that work for it."""

    is_built: threading.Event = field(default_factory=threading.Event)
    is_checked: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)
    helpers: list[Helpers] = field(default_factory=list)

    def goes_on(self) -> bool:
        return not self.is_over.is_set()

    @contextlib.contextmanager
    def closing(self, helpers: Helpers) -> Iterator[None]:
        """They are closed when the grade is over, also in the middle of the block."""
        self.helpers.append(helpers)
        if not self.goes_on():
            helpers.close()
        yield

    def end(self) -> None:
        self.is_over.set()
        for helpers in self.helpers:
            helpers.close()


@dataclass(frozen=True)
class _Devices:
    """The sandbox that checks, and the one that times where a baseline is torch's, whose child has torch."""

    checks: Sandbox
    times: Early | None = None
    at: _Progress = field(default_factory=_Progress)

    def close(self) -> None:
        self.checks.close()
        if self.times is not None:
            self.times.close()

    def for_timing(self) -> Sandbox:
        """Ready to time. Never do both use the GPU while something is timed."""
        if self.times is None:
            return self.checks
        with stage("wait for torch"):
            sandbox = self.times.sandbox()
        sandbox.replace(self.checks)
        sandbox.ready()
        return sandbox


def _on_device(
    request: Request,
    options: Options,
    tell: Tell | None,
    judge: Callable[[_Devices, GpuTurn, Ahead], Settle],
    *,
    checks: bool = True,
) -> Verdict:
    """Build the file and load it into a child process; then the verdict is ``judge``'s. ``checks``: it does not only
    time something."""
    if refused := _unfit(request):
        return refused
    at = _Progress()
    try:
        return _loaded_and_judged(request, options, tell, judge, at, checks=checks)
    finally:
        at.end()


def _loaded_and_judged(
    request: Request,
    options: Options,
    tell: Tell | None,
    judge: Callable[[_Devices, GpuTurn, Ahead], Settle],
    at: _Progress,
    *,
    checks: bool,
) -> Verdict:
    target, ahead = request.target, Ahead()
    _work_ahead(request, options, checks, at, ahead)
    with contextlib.ExitStack() as at_end:
        turn = at_end.enter_context(_turn(target, options, tell))
        sandbox = at_end.enter_context(Sandbox(target.device))
        timer = _timer(request, options, at_end)
        if checks:
            with stage("wait for the GPU"):
                turn.share()
            sandbox.start()
            if timed_bytes := _timed_bytes(request, options):
                threading.Thread(target=sandbox.reserve, args=(timed_bytes,), daemon=True).start()
            if timer is not None and not options.beside:  # beside others, the GPU must be left to them in between
                timer.begin(timed_bytes)
        if "hypothesis" not in sys.modules:
            threading.Thread(target=_import_what_judges, args=(target.device,), daemon=True).start()
        built = _loaded(request, sandbox, options, tell)
        at.is_built.set()
        if isinstance(built, CompileFailure):
            return does_not_compile(built)
        if timer is not None:
            timer.load(sandbox.program)
        settle = judge(_Devices(sandbox, timer, at), turn, ahead)
        leaving = threading.Thread(target=at_end.pop_all().close)  # the GPU is left when the child is gone
    leaving.start()
    try:
        verdict = settle()
    finally:
        leaving.join()
    return _with_offsets(verdict, built) if verdict.passed and target.device == "sim" else verdict


def _timer(request: Request, options: Options, at_end: contextlib.ExitStack) -> Early | None:
    """The sandbox for a timing beside torch, closed at the end; None where there is none."""
    if not _uses_torch(request, options):
        return None
    tried = () if options.beside else rehearsals(request.kata, request.spec, _present(find_gpu()))
    timer = Early(Sandbox(request.target.device, torch=True, rehearsals=tried))
    at_end.callback(timer.close)
    return timer


def _timed_bytes(request: Request, options: Options) -> int:
    """The contents of the largest shape that is timed; 0 where nothing is, or others are graded at the same time."""
    if options.beside or request.target.device != "gpu" or not _timed(request.kata, options):
        return 0
    return contents_bytes(request.kata, request.spec, _present(find_gpu()))


def _with_offsets(verdict: Verdict, built: Build) -> Verdict:
    ptx, source = (file.read_text(errors="replace") for file in (built.ptx, built.source))
    lines = narrow_lines(ptx, built.source.name, source)
    return replace(verdict, narrow_offsets=lines)


def _work_ahead(request: Request, options: Options, checks: bool, at: _Progress, ahead: Ahead) -> None:
    """Begin what takes long and needs no build."""
    if _uses_torch(request, options):
        _need("torch")
        prestart_torch()
    spare_threads()
    if request.target.device == "gpu":
        switch_soon()
        for prepare in (_prepare_checks, _prepare_drawn, _prepare_timing):
            threading.Thread(target=prepare, args=(request, options, checks, at, ahead), daemon=True).start()


def _unfit(request: Request) -> Verdict | None:
    """The verdict of a kata that this card, present or simulated, cannot run."""
    kata, target = request.kata, request.target
    if target.device == "gpu" and (why := unfit_gpu(_present(find_gpu()), kata)):
        return Verdict(Kind.UNSUPPORTED, f"{why}. Grade it with --device sim.")
    if target.device == "sim" and not kata.runs_on(target.arch):
        words = f"{kata.name} needs {kata.compute}, and the simulated card is {target.arch}"
        newer = "" if kata.compute in EXACT else " or a newer one"
        return Verdict(Kind.UNSUPPORTED, f"{words}. Use --sim-arch {kata.compute}{newer}.")
    return None


def _loaded(request: Request, sandbox: Sandbox, options: Options, tell: Tell | None) -> Build | CompileFailure:
    """Builds the file and loads the build into the sandbox's child."""
    with stage("compilers and simulator looked up"):
        engine, toolchain = _engine((request.target,), tell), find_toolchain()
    with stage("compile"):
        built = build_all([request], toolchain, jobs=options.jobs, tell=None)[0]
    if not isinstance(built, CompileFailure):
        sandbox.load(_program(built, engine, options))
    return built


def _turn(target: Target, options: Options, tell: Tell | None) -> contextlib.AbstractContextManager[GpuTurn]:
    """One GPU is timed by one process at a time, while no other has a context on it."""
    if target.device == "sim":
        return contextlib.nullcontext(GpuTurn())
    return gpu_turn(cache.cache_folder(), _present(find_gpu()).uuid, tell=None if options.beside else tell)


def _checked(
    request: Request,
    on: _Devices,
    turn: GpuTurn,
    ahead: Ahead,
    budget: SearchBudget,
    options: Options,
    tell: Tell | None,
) -> Settle:
    """Whether the answers are right; and of right ones, as far as it applies, what they cost and how fast they come."""
    kata, target = request.kata, request.target
    last_failure = _last_failure(kata) if options.last_failure else None
    explain = _explained(request, options, tell) if target.device == "gpu" else None
    compiler = _compiler(request, on.checks, options) if target.device == "sim" else None
    says = partial(_says_that_it_looks, kata, tell) if tell is not None and sys.stderr.isatty() else None
    verdict = check(kata, request.spec, on.checks, budget, last_failure, explain, compiler, says)
    if verdict.passed and options.counters and target.device == "sim":
        verdict = replace(verdict, counters=count(kata, request.spec, on.checks, budget))
    if not (verdict.passed and target.device == "gpu" and _timed(kata, options)):
        return lambda: verdict
    bad = inexact(kata, request.spec, on.checks, _present(find_gpu()))
    settle = partial(settled, bad) if bad else _measured(request, on, turn, ahead, options, tell, exact=False)

    def both() -> Verdict:
        measured = settle()
        measured = replace(measured, remark=verdict.remark if measured.passed else "")
        share = max(verdict.error_share, measured.error_share)  # the timed answer may be what is wrong
        said = measured.printed or verdict.printed
        return replace(measured, cases=verdict.cases, error_share=share, printed=said)

    return both


def _timed(kata: Kata, options: Options) -> bool:
    """An easy kata is about getting it right: `kata bench` has its speed, and its grade stays quick."""
    return options.speed and kata.speed is not None and kata.level != "easy"


def _uses_torch(request: Request, options: Options) -> bool:
    """Whether one of the kata's baselines will be torch's."""
    speed = request.kata.speed
    if speed is None or request.target.device != "gpu" or not _timed(request.kata, options):
        return False
    return any(name in request.spec.baselines for name in (speed.baseline, *speed.also_compare))


def _measured(
    request: Request,
    on: _Devices,
    turn: GpuTurn,
    ahead: Ahead,
    options: Options,
    tell: Tell | None,
    *,
    exact: bool,
) -> Settle:
    """``exact``: the answers that must be exact were not looked at yet."""
    gpu = _present(find_gpu())
    explain = _explained(request, options, tell)
    say = tell or _silent
    on.at.is_checked.set()
    with stage("wait for the GPU"):
        turn.alone(leave=on.close)
    return measure(
        request.kata,
        request.spec,
        on.for_timing(),
        gpu=gpu,
        pairs=options.pairs,
        tell=say,
        explain=explain,
        ahead=ahead,
        exact=exact,
    )


def _prepare_checks(request: Request, options: Options, checks: bool, at: _Progress, ahead: Ahead) -> None:
    """The answers that the checks need, while nvcc works, and then those that must be exact on what is timed. Where
    that fails, so do the checks, which say why."""
    kata, spec = request.kata, request.spec
    with contextlib.suppress(Exception):
        if checks:
            budget = budget_of(options, request.target, after_gpu=False)
            prepare_check(kata, spec, budget, lambda: not at.is_built.is_set())
        if _timed(kata, options):
            prepare_exact(kata, spec, _present(find_gpu()), at.goes_on, beside=options.beside)


def _prepare_drawn(request: Request, options: Options, checks: bool, at: _Progress, ahead: Ahead) -> None:
    """The answers that the checks need last."""
    with contextlib.suppress(Exception):
        if checks and _hypothesis_is_for_threads():
            budget = budget_of(options, request.target, after_gpu=False)
            prepare_drawn(request.kata, request.spec, budget, lambda: not at.is_built.is_set())


def _prepare_timing(request: Request, options: Options, checks: bool, at: _Progress, ahead: Ahead) -> None:
    """The same of timed calls. They are wanted last, and leave processors and memory to nvcc and to torch's import, and
    to the checks of other grades: there is time while the GPU is timed for one of them. Where one grade has many
    processors, they begin at once; and where the answers are many, too, others work them out.
    """
    kata, spec, gpu, beside = request.kata, request.spec, find_gpu(), options.beside
    first = at.is_checked if beside else at.is_built
    with contextlib.suppress(Exception):
        if not _timed(kata, options):
            return
        prepare = partial(prepare_measure, kata, spec, _present(gpu), options.pairs, ahead, at.goes_on)
        has_room = not beside and len(os.sched_getaffinity(0)) >= PROCESSORS_FOR_ALL
        if has_room and (count := helpers_for(kata, spec, _present(gpu))):
            with Helpers(count) as helpers, at.closing(helpers):
                ahead.quiet = helpers.stopped
                prepare(helpers)
            return
        while not has_room and not first.wait(0.05) and at.goes_on():
            pass
        prepare()


def _explained(request: Request, options: Options, tell: Tell | None) -> Explain:
    """Runs a case of a file that is graded on a GPU on the simulator, built when it is first asked."""
    target = Target("sim", options.sim_arch)
    spec, budget = request.spec, budget_for("sim")

    def explain(shape: CaseKey) -> Outcome | None:
        if spec.work(dict(shape.sizes)) > budget.work_limit:  # the largest that the simulator is meant for
            if (fits := largest_within(request.kata, spec, budget.work_limit)) is None:
                return None
            shape = CaseKey.of(spec, fits, shape.values, shape.seed)
        with Sandbox(target.device) as sandbox:
            if isinstance(_loaded(replace(request, target=target), sandbox, options, tell), CompileFailure):
                return None
            outcome = sandbox.call(Case(request.kata, spec, shape).call(nth=0, limits=budget.limits))
        cannot = (str(Kind.UNSUPPORTED), str(Kind.TIME_OUT))
        return None if any(finding.kind in cannot for finding in outcome.findings) else outcome

    return explain


def _silent(line: str) -> None:
    pass


def _need(*packages: str) -> None:
    """Said here in one sentence, not by whichever import comes first."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise DeviceError(
            f"{sys.executable} has no {' and no '.join(missing)}, which this grade needs. "
            "Activate the environment of `make grade` (. .venv/bin/activate), "
            f"or `pip install {' '.join(missing)}` into this one."
        )


def _says_that_it_looks(kata: Kata, tell: Tell, verdict: Verdict) -> None:
    """What is known already, for a learner who waits at a terminal."""
    at = f" at {format_sizes(verdict.sizes)}" if verdict.sizes else ""
    tell(f"{kata.name}: {verdict.kind}{at}; looking for the cause")


def _compiler(request: Request, sandbox: Sandbox, options: Options) -> Compiler:
    """What compiles the request's file again, in the ways that only a grade that fails needs."""

    def source_like(folder: Path) -> Path | None:
        from grader.compile.source_like import source_like_ptx

        return source_like_ptx(request, folder)

    def with_edits(
        folder: Path, within: Collection[int], doubts: Mapping[int, float]
    ) -> tuple[Path, Sequence[Edit]] | None:
        from grader.compile.source_like import edited_ptx

        return edited_ptx(request, folder, within, doubts)

    def solved(folder: Path) -> tuple[Path, Sequence[Edit]] | None:
        from grader.compile.source_like import solved_ptx

        return solved_ptx(request, folder)

    def built(text: str) -> Program | None:
        source = replace(request.source, data=text.encode())
        with contextlib.suppress(BuildError):
            made = build_all([replace(request, source=source)], find_toolchain(), tell=None)[0]
            return None if isinstance(made, CompileFailure) else _program(made, sandbox.program.engine, options)
        return None

    return Compiler(source_like, with_edits, solved, built)


def _import_what_judges(device: str) -> None:
    """Tenths of a second that need not wait for nvcc. Where answers are timed, they are right most times: what finds a
    cause is left until it is needed."""
    import numpy  # noqa: F401

    if _hypothesis_is_for_threads():
        rehearse()
    else:
        import hypothesis.strategies  # noqa: F401
    if device == "sim":
        import grader.compile.source_like
        import grader.judge.cause  # noqa: F401


def _present(gpu: Gpu | None) -> Gpu:
    assert gpu is not None
    return gpu


def _engine(found: Sequence[Target], tell: Tell | None) -> Path | None:
    """The simulator's library, built on its first use, where any target needs it."""
    if not any(target.device == "sim" for target in found):
        return None
    return engine_library(cache.cache_folder(), tell=tell)


def _program(built: Build, engine: Path | None, options: Options) -> Program:
    target = built.request.target
    paths = (built.library, built.ptx, built.source, engine)
    return Program(target.device, target.arch, *paths, threads=options.jobs, tag=built.tag)


def _last_failure(kata: Kata) -> Path:
    """Where the shape that failed last is kept, for this clone and kata."""
    clone = f"{kata.root.name}-{zlib.crc32(str(kata.root).encode()):x}"
    return cache.cache_folder() / "failed" / clone / f"{kata.name}.json"


def does_not_compile(failure: CompileFailure) -> Verdict:
    """The verdict on a file that there is no build of."""
    detail = "\n".join(failure.log.strip().splitlines()[:12])
    return Verdict(failure.kind, failure.message, line=failure.line, detail=detail)


def _with_todos(verdict: Verdict, source: Source) -> Verdict:
    if verdict.kind is Kind.NOT_STARTED or source.problem:
        return verdict
    return replace(verdict, open_todos=tuple(todo.number for todo in skeleton.todos(source.text) if todo.empty))
