"""The element of a wrong answer that probes ask about, and how a launcher and the reference answer for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.devices import Outcome
from grader.judge.case import Case
from grader.judge.comparison import compared
from grader.judge.lab import Judged, Lab, element, place

if TYPE_CHECKING:
    from numpy import ndarray

MOST = 1 << 16  # elements of an input
WIDE = ("i32", "i64")  # whole numbers that hold labels and sums of them
LEAST_CASES = 2  # wrong ones, that tell a rule from chance


class Part(Enum):
    """What an input element is to a target that a probe found something out about."""

    LACKING = "it must change the target, and does not"
    FOREIGN = "it changes the target, and must not"
    MET = "it is multiplied with another element than it must be"
    OWN = "the target must be made of it, and is 0"
    WEIGHED = "the target depends on it, and in another way than it must"
    PLACED = "the target must have a term of it that no other element has, and has not"
    REPEATED = "it counts several times in the target, and must count once"


@dataclass(frozen=True)
class Element:
    """An element of an input, ``flat`` elements behind its first. ``times``: how often a repeated one counts."""

    name: str
    flat: int
    part: Part
    times: int = 1


@dataclass(frozen=True)
class Observed:
    """What a probe found out, in words, and about which elements; whether all terms of a sum count several times."""

    words: str
    target: Target | None = None
    elements: tuple[Element, ...] = ()
    is_whole: bool = False


@dataclass(frozen=True)
class Target:
    """The first wrong element of the first wrong output."""

    lab: Lab
    case: Case
    position: int  # of the output in the spec
    name: str
    flat: int
    shape: tuple[int, ...]
    roundoff: float  # of the output, and at least that of f32
    is_float: bool

    @property
    def words(self) -> str:
        return self.at(self.flat)

    def at(self, flat: int) -> str:
        return element(self.name, self.shape, flat)

    def reference(self, inputs: Mapping[str, ndarray]) -> ndarray:
        """The whole output, as it must be."""
        return self.lab.with_inputs(self.case, inputs).answers()[self.position].reshape(-1)

    def answer(self, inputs: Mapping[str, ndarray]) -> ndarray | None:
        """The whole output, as the launcher makes it; what was not written is nan."""
        import numpy

        case = self.lab.with_inputs(self.case, inputs)
        outcome = self.lab.run(case)
        if outcome is None:
            return None
        found = compared(outcome.outputs[self.name], case.expected[self.position])
        return numpy.where(found.unwritten, numpy.nan, found.got.astype(float)).reshape(-1)

    def bytes_of(self, outcome: Outcome) -> bytes:
        """Those of the target in an outcome of this case."""
        tensor = self.lab.spec.outputs[self.position]
        size = self.lab.spec.dtype(tensor, self.lab.kata).itemsize
        return bytes(outcome.outputs[self.name][self.flat * size : (self.flat + 1) * size])


def target_of(lab: Lab, one: Judged) -> Target:
    expected, found = one.expected[one.first_wrong], one.compared[one.first_wrong]
    names = [tensor.name for tensor in lab.spec.outputs]
    chosen = found.wrong & ~found.unwritten
    flat = int(chosen.reshape(-1).argmax())
    name, roundoff = expected.tensor.name, max(expected.dtype.roundoff, 2.0**-24)
    return Target(lab, one.case, names.index(name), name, flat, found.got.shape, roundoff, expected.dtype.is_float)


def floats(target: Target, *, narrow: bool = False) -> list[Tensor]:
    """The inputs that are asked about: numbers with a mantissa that holds labels, not too many; ``narrow``: or with any
    other. Whole numbers where the output is a sum of them: an index could be anything."""
    found = []
    for tensor in target.lab.spec.inputs:
        dtype = target.lab.spec.dtype(tensor, target.lab.kata)
        if not 0 < target.case.inputs[tensor.name].size <= MOST:
            continue
        if (dtype.is_float and (narrow or dtype.roundoff <= 2.0**-8)) or (
            dtype.name in WIDE and _is_summed(target, tensor)
        ):
            found.append(tensor)
    return found


def _is_summed(target: Target, tensor: Tensor) -> bool:
    """Whether the output is of whole numbers, too, and the reference is linear in this input."""
    import numpy

    output = next(each for each in target.lab.spec.outputs if each.name == target.name)
    if target.lab.spec.dtype(output, target.lab.kata).is_float:
        return False
    shape = tensor.extent(target.case.sizes)
    rng = numpy.random.default_rng(7)
    first, second = (rng.choice((-3, -1, 1, 2), shape) for _ in range(2))
    try:
        made = [target.reference({tensor.name: value}) for value in (first, second, first + second)]
    except (ValueError, IndexError):
        return False
    return bool((made[0] + made[1] == made[2]).all()) and bool(made[0].any())


def range_words(name: str, shape: Sequence[int], places: Sequence[int], *more: str) -> str:
    """``x[128..239]``, ``A[0, 4..7]``, ``B[2..5, 0]``; else its first and last element. ``more`` ends each index."""
    first, last = place(shape, int(places[0])), place(shape, int(places[-1]))
    differ = [axis for axis in range(len(shape)) if first[axis] != last[axis]]
    if len(differ) == 1 and last[differ[0]] - first[differ[0]] + 1 == len(places):
        axis = differ[0]
        words = [str(index) for index in first]
        words[axis] = f"{first[axis]}..{last[axis]}"
        return f"{name}[{', '.join([*words, *more])}]"
    ends = [f"{name}[{', '.join([*map(str, each), *more])}]" for each in (first, last)]
    if len(places) == 1:
        return ends[0]
    return f"{len(places)} {'rows' if more else 'elements'} from {ends[0]} to {ends[1]}"
