"""Experiments on a launcher whose answer is wrong: calls with inputs of the grader's choice, and what they gave.

All of them together are held to a number of calls and of warp instructions, never to a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from grader.content.catalog import Kata
from grader.content.spec import Spec, Tensor
from grader.devices import Call, Limits, Outcome
from grader.judge.case import Case, CaseKey, Expected
from grader.judge.comparison import Compared, compared
from grader.judge.encoding import decode, encode
from grader.verdict import Mismatch

if TYPE_CHECKING:
    from numpy import ndarray

CALLS = 90
INSTRUCTIONS = 8_000_000  # warp instructions of all calls together: some tenths of a second
OF_WGMMA = 16  # products of a case that take as long as one instruction, where wgmma does them
SECONDS = 3.0  # of a launcher, in one call
MOST_BESIDE = 2  # inputs that are shown beside an output
FINDINGS = 3  # calls with a finding; after them nothing more is tried


@dataclass(frozen=True)
class Judged:
    """One call on a case, by output in the order in which they are computed: what was right, and what came."""

    case: Case
    expected: tuple[Expected, ...]
    compared: tuple[Compared, ...]

    @property
    def wrong(self) -> bool:
        return any(bool(each.wrong.any()) for each in self.compared)

    @property
    def wrong_count(self) -> int:
        return sum(int(each.wrong.sum()) for each in self.compared)

    @property
    def first_wrong(self) -> int:
        """The position of the first output that is wrong."""
        return next(place for place, each in enumerate(self.compared) if bool(each.wrong.any()))


@dataclass
class Lab:
    """Calls a launcher and keeps count. ``known`` says of shapes whether their answers were wrong.

    ``nth``: of the calls on a case, the one that is made: each has its own order of warps and blocks. ``steady``: the
    device runs the same call in the same way each time. ``text``: of the learner's file; empty if not known.
    """

    kata: Kata
    spec: Spec
    call: Callable[[Call], Outcome]
    limits: Limits
    known: dict[CaseKey, bool] = field(default_factory=dict)
    judged: dict[CaseKey, Judged] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)  # kinds of values that fail on the failing shape
    calls: int = CALLS
    instructions: int = INSTRUCTIONS
    findings: int = FINDINGS
    nth: int = 0
    steady: bool = False
    text: str = ""
    _last: dict[str, tuple[object, ndarray, ndarray]] = field(default_factory=dict)  # of each input, as it was stored

    def run(
        self,
        case: Case,
        *,
        watch: Sequence[tuple[str, int]] = (),
        births: int = 0,
        order: int | None = None,
        trail: int = 0,
        most: int = INSTRUCTIONS,
    ) -> Outcome | None:
        """What a call on the case gives; None where it does not come to an answer, or enough was tried.

        ``births``: note them, in a call of at most so many warp instructions. ``order``: warps and blocks run in
        that of the call with this number. ``trail`` is the call's; ``most`` are the warp instructions that it may take.
        """
        if self.calls <= 0 or self.instructions <= 0 or self.findings <= 0:
            return None
        most = min(self.limits.instructions, self.instructions, births or most)
        limits = replace(self.limits, instructions=most, seconds=SECONDS)
        call = case.call(nth=self.nth, limits=limits, watch=tuple(watch))
        if order is not None:
            call = replace(call, seed=case.call(nth=order, limits=limits).seed)
        outcome = self.call(replace(call, births=bool(births), trail=trail))
        self.calls -= 1
        work = self.spec.work(dict(case.shape.sizes)) if "wgmma" in self.text else 0
        self.instructions -= max(outcome.executed, work // OF_WGMMA)
        if outcome.findings:
            self.findings -= 1
            return None
        return outcome

    def try_key(self, key: CaseKey) -> Judged | None:
        """A drawn case, judged; the same key is called once."""
        if key not in self.judged:
            case = Case(self.kata, self.spec, key)
            outcome = self.run(case)
            if outcome is None:
                return None
            self.judged[key] = judged(case, outcome)
            self.known[key] = self.judged[key].wrong
        return self.judged[key]

    def probe(self, case: Case, inputs: Mapping[str, ndarray]) -> Outcome | None:
        """The case with other inputs, given in float64 or int64."""
        return self.run(self.with_inputs(case, inputs))

    def with_inputs(self, case: Case, inputs: Mapping[str, ndarray]) -> Case:
        given = dict(case.inputs)
        for tensor in self.spec.inputs:
            if tensor.name in inputs:
                given[tensor.name] = self._stored(tensor, inputs[tensor.name].reshape(tensor.extent(case.sizes)))
        return Case(self.kata, self.spec, case.shape, given)

    def _stored(self, tensor: Tensor, value: ndarray) -> ndarray:
        """In the storage of its dtype. An experiment changes one input, and has the others as they were."""
        import numpy

        about = value.shape, value.dtype
        before, words, stored = self._last.get(tensor.name, (None, value, value))
        now = numpy.array(value, order="C").reshape(-1).view("u8")  # so that -0 is not 0, and nan is nan
        if about != before or not numpy.array_equal(now, words):
            stored = numpy.ascontiguousarray(encode(value, self.spec.dtype(tensor, self.kata)))
            self._last[tensor.name] = about, now, stored
        return stored


def judged(case: Case, outcome: Outcome) -> Judged:
    expected = in_order(case.spec, case.expected)
    return Judged(case, expected, tuple(compared(outcome.outputs[e.tensor.name], e) for e in expected))


def in_order(spec: Spec, expected: Sequence[Expected]) -> tuple[Expected, ...]:
    """The outputs in the order in which they are computed."""
    order = {name: place for place, name in enumerate(spec.computed)}
    return tuple(sorted(expected, key=lambda item: order.get(item.tensor.name, len(order))))


def beside(case: Case, mismatch: Mismatch) -> dict[str, float | int]:
    """The elements at a wrong element's place of the inputs that have the output's shape; of more than two they would
    tell little, as those of Q, K and V."""
    output = next(tensor for tensor in case.spec.outputs if tensor.name == mismatch.buffer)
    found: dict[str, float | int] = {}
    for tensor in case.spec.inputs:
        if tensor.shape == output.shape and tensor.shape != (1,):
            element = case.inputs[tensor.name][mismatch.index]
            found[tensor.name] = decode(element.reshape(1), case.spec.dtype(tensor, case.kata))[0].item()
    return found if len(found) <= MOST_BESIDE else {}


def place(shape: Sequence[int], flat: int) -> tuple[int, ...]:
    """The index of the element that is ``flat`` elements behind the first."""
    index: list[int] = []
    for size in reversed(shape):
        index.insert(0, flat % size)
        flat //= size
    return tuple(index)


def element(name: str, shape: Sequence[int], flat: int) -> str:
    """``A[0, 4]``"""
    return f"{name}[{', '.join(map(str, place(shape, flat)))}]"
