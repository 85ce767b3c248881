"""Kata + card -> what can be estimated of it on paper, the right answers, and how each is derived.

Bytes and operations follow from the spec. Intensity, bound and the least time follow from these and the card's peaks.
On the card of solutions/speeds.json the time is the measured one. Sectors, wavefronts and instructions are what the
simulator counts for the solution on one shape, and occupancy follows from what ptxas gives its largest kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from grader.compile.build import Build, Request, Target, build
from grader.compile.listing import listing
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import Catalog, Kata
from grader.content.rung import header
from grader.content.source_file import source_of
from grader.content.spec import Operations, Spec, Tensor, load_spec
from grader.content.yaml_fields import close_to
from grader.devices import SIM_ARCH
from grader.devices.counters import Launched
from grader.fault import Fault
from grader.grade import budget_of, counted
from grader.judge.cards import CARDS, LIMITS, Card, blocks_per_sm, occupancy
from grader.judge.case import largest_within
from grader.judge.measure import min_bytes_of
from grader.options import Options
from grader.output import speeds
from grader.practice.quantity import shown
from grader.verdict import CaseCounters, format_sizes

RULE = (
    "Count one for each +, -, *, /, comparison, maximum and function of the formula. A sum of n terms counts n. Signs, "
    "indices, conversions and what is done once per row or call do not count."
)
COUNTED = ("sectors", "wavefronts", "instructions")
COUNTING = (
    "An instruction is one of PTX, executed by one warp. A warp's access to global memory, and a bulk copy, request "
    "each sector of 32 bytes that they touch once. A warp's access to shared memory takes a wavefront per 128 bytes, "
    "and more with bank conflicts. An operation on an mbarrier takes one wavefront, and wgmma one per 128 bytes of its "
    "tiles. The shared memory side of a bulk copy takes none."
)
COST_LINES = 6  # lines of a derivation, the dearest first


class EstimateError(Fault):
    """Nothing can be estimated of the kata or the card; the message says why and what to do."""


@dataclass(frozen=True)
class Question:
    """``kind`` is one of quantity.EXAMPLES. An answer may be off by ``within`` times the right one."""

    name: str
    kind: str
    asks: str
    within: float


QUESTIONS = (
    Question("bytes", "bytes", "compulsory bytes: every input read once, every output written once", 0.01),
    Question("operations", "operations", "floating-point operations of the formula", 0.01),
    Question("intensity", "intensity", "arithmetic intensity, in operations per byte", 0.02),
    Question("bound", "bound", "what bounds it on this card: memory or compute", 0.0),
    Question("time", "time", "time of the solution on this card", 0.20),
)
FURTHER = (
    Question("occupancy", "share", "occupancy of the solution's largest kernel, on the counted shape", 0.01),
    Question("sectors", "count", "sectors of global memory that the solution requests, on the counted shape", 0.05),
    Question("wavefronts", "count", "wavefronts of shared memory of the solution, on the counted shape", 0.05),
    Question("instructions", "count", "warp instructions of the solution, on the counted shape", 0.05),
)
BY_NAME: Mapping[str, Question] = {question.name: question for question in (*QUESTIONS, *FURTHER)}


def is_right(question: Question, given: float | str, right: float | str) -> bool:
    if isinstance(given, str) or isinstance(right, str):
        return given == right
    return abs(given - right) <= question.within * right + 1e-12 * right


@dataclass(frozen=True)
class Estimate:
    """The right answers for one timed kata on one card. ``measured_s`` is None where no speed was measured on it."""

    kata: Kata
    card: Card
    measured_s: float | None

    @cached_property
    def spec(self) -> Spec:
        return load_spec(self.kata)

    @property
    def sizes(self) -> Mapping[str, int]:
        assert self.kata.speed is not None
        return self.kata.speed.shapes[0]

    @cached_property
    def operations_of(self) -> Operations:
        """Raises EstimateError if the spec does not say which operations it has."""
        if self.spec.operations is None:
            place = self.kata.spec_path.relative_to(self.kata.root)
            raise EstimateError(f"{place}: {self.kata.name} has a speed and no `operations`. Add Operations(...).")
        return self.spec.operations

    @cached_property
    def bytes_moved(self) -> int:
        return min_bytes_of(self.kata, self.spec, self.sizes)

    @cached_property
    def operations(self) -> int:
        count = self.operations_of.count or self.spec.flops
        if count is None:
            raise EstimateError(
                f"{self.kata.spec_path}: `operations` of {self.kata.name} has no count, and no `flops`."
            )
        return count(self.sizes)

    @property
    def dtype(self) -> str:
        """What the peak is of: the kata's dtype where its products are what costs, else f32 on CUDA cores."""
        return self.kata.elem if self.spec.flops else "f32"

    @property
    def intensity(self) -> float:
        return self.operations / self.bytes_moved

    @property
    def ridge(self) -> float:
        """Operations per byte from which on the card's operations bound a kernel."""
        return self.card.peak(self.dtype) / self.card.bytes_s

    @property
    def bound(self) -> str:
        return "compute" if self.intensity > self.ridge else "memory"

    @property
    def least_s(self) -> float:
        return self.card.time_s(self.bytes_moved, self.operations, self.dtype)

    @property
    def time_s(self) -> float:
        """What an estimate of the time is compared with."""
        return self.measured_s or self.least_s

    def right(self, name: str) -> float | str:
        """The right answer to a question. Raises EstimateError where this machine cannot find it out."""
        answers: Mapping[str, Callable[[], float | str]] = {
            "bytes": lambda: float(self.bytes_moved),
            "operations": lambda: float(self.operations),
            "intensity": lambda: self.intensity,
            "bound": lambda: self.bound,
            "time": lambda: self.time_s,
            "occupancy": lambda: self.fill.occupancy,
            "sectors": lambda: float(self.counters.total("sectors")),
            "wavefronts": lambda: float(self.counters.total("wavefronts")),
            "instructions": lambda: float(self.counters.total("warp_instructions")),
        }
        return answers[name]()

    def sizes_for(self, question: Question) -> Mapping[str, int]:
        """The shape that a question is about: formulas may name its sizes."""
        return (self.counted_sizes or self.sizes) if question in FURTHER else self.sizes

    @property
    def counted_sizes(self) -> Mapping[str, int] | None:
        """The counted shape; None if the simulator takes none."""
        budget = budget_of(Options(device="sim"), Target("sim", SIM_ARCH), after_gpu=False)
        return largest_within(self.kata, self.spec, budget.work_limit)

    @cached_property
    def counters(self) -> CaseCounters:
        found = counted(self.kata, source_of(self.kata.solution_path), Options(device="sim"))
        if not isinstance(found, CaseCounters):
            raise EstimateError(f"the simulator counts nothing of {self.kata.name}.")
        return found

    @cached_property
    def fill(self) -> Fill:
        """How the solution's largest kernel fills an SM. Raises EstimateError."""
        limits = LIMITS.get(self.card.capability)
        if limits is None or self.card.capability < self.kata.capability:
            raise EstimateError(f"{self.kata.name} needs {self.kata.compute}; {self.card.name} is {self.card.arch}.")
        costs = {kernel.kernel: kernel.warp_instructions for kernel in self.counters.call.kernels}
        launched = max(self.counters.launched, key=lambda each: costs.get(each.kernel, 0))
        registers, static = _compiled(self.kata, self.card, launched)
        threads = launched.block[0] * launched.block[1] * launched.block[2]
        shared = static + launched.smem_bytes
        blocks = blocks_per_sm(limits, threads, registers, shared)
        return Fill(launched, threads, registers, shared, blocks, occupancy(limits, threads, registers, shared))


@dataclass(frozen=True)
class Fill:
    """A kernel's launch, what it needs per thread and block, and how many of its blocks an SM holds."""

    launched: Launched
    threads: int
    registers: int
    shared_bytes: int
    blocks: int
    occupancy: float

    def __str__(self) -> str:
        block = f"{self.threads} threads of {self.registers} registers and {self.shared_bytes:,} bytes of shared memory"
        several = "block" if self.blocks == 1 else "blocks"
        full = f"{100 * self.occupancy:.4g} % of its warps"
        return f"{self.launched.kernel}: {block} per block, {self.blocks} {several} per SM, {full}"


def _compiled(kata: Kata, card: Card, launched: Launched) -> tuple[int, int]:
    """Registers per thread and bytes of static shared memory of a kernel, as ptxas says. Raises EstimateError."""
    target = Target("gpu", card.arch)
    built = build(Request(kata, load_spec(kata), source_of(kata.solution_path), target), find_toolchain())
    if not isinstance(built, Build):
        raise EstimateError(f"{kata.name} cannot be built for {card.arch}: {built.message}.")
    kernels = listing(built, "ptx", find_toolchain())
    name = launched.kernel
    found = [each for each in kernels if each.name == name] or [each for each in kernels if name in each.name]
    if not found or found[0].registers is None:
        raise EstimateError(f"ptxas does not say what {name} of {kata.name} needs. Leave out occupancy.")
    return found[0].registers, found[0].smem_bytes or 0


def estimate(catalog: Catalog, kata: Kata, card: str) -> Estimate:
    """Raises EstimateError for a kata without a speed and a card that is not known."""
    if kata.speed is None:
        raise EstimateError(f"{kata.name} is not timed: difficulty.yaml gives it no `speed`. `kata list` shows others.")
    file = catalog.root / speeds.FILE
    measured = speeds.read(file) if file.is_file() else None
    wanted = card_named(card, measured)
    found = Estimate(kata, wanted, None)
    if measured is None or _name(measured) != wanted.name:
        return found
    rows = (row for row in measured.rows if row.kata == kata.name and row.sizes == found.sizes)
    row = next(rows, None)  # of several baselines the first, which is graded
    if row is None:
        return found
    work = found.operations if row.unit == "TFLOPS" else found.bytes_moved
    return replace(found, measured_s=work / (row.rate * 1e12))


def card_named(name: str, measured: speeds.Speeds | None) -> Card:
    """The card of this name; of the one that solutions/speeds.json is about, the peaks that it has. EstimateError."""
    known = {card.name.lower(): card for card in CARDS}
    wanted = name.lower().removeprefix("nvidia ").replace(" ", "-")
    if wanted not in known:
        near = close_to(wanted, known)
        raise EstimateError(f"no card is called {name!r}.{near} There are: {', '.join(c.name for c in CARDS)}.")
    card = known[wanted]
    if measured is not None and _name(measured) == card.name:
        own = measured.peaks
        return Card(card.name, card.capability, own.bytes_s, {**card.flops_s, **own.flops_s}, own.source)
    return card


def _name(measured: speeds.Speeds) -> str:
    return measured.machine["card"].removeprefix("NVIDIA ").replace(" ", "-")


# -- in words ----------------------------------------------------------------------------------------------------------


def task(of: Estimate, *, kernels: bool) -> Iterator[tuple[str, str]]:
    """What is asked about, in rows: a label and its words. ``kernels``: also about the solution's kernels."""
    yield "formula", of.operations_of.formula
    for label, tensors in (("reads", of.spec.inputs), ("writes", of.spec.outputs)):
        yield label, ", ".join(f"{each.name} {_extent(each)} {_dtype(of, each)}" for each in tensors)
    if of.operations_of.moved:
        yield "moved", of.operations_of.moved
    yield "shape", format_sizes(of.sizes)
    if kernels and of.counted_sizes is not None:
        values = f"with {of.spec.values[0].name} values"
        yield "counted", f"the case of the questions about the solution: {format_sizes(of.counted_sizes)}, {values}"
        yield "counters", COUNTING
    peak = f"{of.card.peak(of.dtype) / 1e12:.4g} TFLOPS in {of.dtype}"
    yield "card", f"{of.card.name}: {of.card.bytes_s / 1e12:.4g} TB/s, {peak}"
    yield "peaks", of.card.source
    yield "count", RULE


def _extent(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def _dtype(of: Estimate, tensor: Tensor) -> str:
    return of.spec.dtype(tensor, of.kata).name


def derivation(of: Estimate) -> Iterator[tuple[str, str]]:
    """How the first questions are answered, in rows."""
    yield "bytes", _bytes(of)
    yield "operations", f"{of.operations_of.per}. Together {of.operations:,}"
    yield "intensity", f"{of.operations:,} / {of.bytes_moved:,} = {of.intensity:.4g} operations per byte"
    than = "above" if of.bound == "compute" else "below"
    ridge = f"{of.card.peak(of.dtype):.4g} / {of.card.bytes_s:.4g} = {of.ridge:.4g}"
    yield "bound", f"{of.bound}: the intensity is {than} the ridge, {ridge} operations per byte"
    what = "operations / peak" if of.bound == "compute" else "bytes / bandwidth"
    least = f"{what} = {shown(of.least_s, 'time')} at least"
    if of.measured_s is not None:
        share = 100 * of.least_s / of.measured_s
        least += f"; {shown(of.measured_s, 'time')} measured, {share:.0f} % of what the card can do"
    yield "time", least
    for line in header(of.kata).split("\n"):
        if line.startswith("Bound "):
            yield "lesson", line.removeprefix("Bound").strip()


def _bytes(of: Estimate) -> str:
    if of.spec.min_bytes is not None:
        return f"{of.operations_of.moved}. Together {of.bytes_moved:,}"
    parts = []
    for tensor in (*of.spec.inputs, *of.spec.outputs):
        extent = " x ".join(f"{size:,}" for size in tensor.extent(of.sizes))
        parts.append(f"{tensor.name} {extent} x {of.spec.dtype(tensor, of.kata).itemsize}")
    return f"{' + '.join(parts)} = {of.bytes_moved:,}"


def further(of: Estimate, names: list[str], *, known: bool) -> Iterator[tuple[str, str]]:
    """How the questions about the solution's kernels are answered, in rows; lines of code if the solution is known."""
    if "occupancy" in names:
        yield "occupancy", str(of.fill)
    if set(names) & {*COUNTED}:
        counts = ", ".join(f"{of.right(name):,.0f} {name}" for name in COUNTED)
        yield "counted", f"{counts}, at {format_sizes(of.counters.sizes)}"
        if known:
            yield from _lines(of)
        else:
            yield "lines", "once you have passed the kata, the lines of the solution that cost most follow here"


def _lines(of: Estimate) -> Iterator[tuple[str, str]]:
    """The lines of the solution that cost most, all kernels together."""
    costs: dict[int, list[int]] = {}
    for cost in (line for kernel in of.counters.call.kernels for line in kernel.lines):
        known = costs.get(cost.line, [0, 0, 0])
        costs[cost.line] = [
            a + b for a, b in zip(known, (cost.sectors, cost.wavefronts, cost.instructions), strict=True)
        ]
    source = source_of(of.kata.solution_path)
    for line in sorted(costs, key=lambda line: -sum(costs[line]))[:COST_LINES]:
        counts = ", ".join(f"{count:,} {name}" for name, count in zip(COUNTED, costs[line], strict=True) if count)
        yield f"line {line}", f"{counts}: {source.line(line).strip()}"
