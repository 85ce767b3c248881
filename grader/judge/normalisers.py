"""A wrong row that must be (x - m) s -> which of mean, variance and eps is wrong, and by which factor.

Layer norm and its kin are such: with weights of 1 and biases of 0, a row of the output is a straight line over the row
of the input. Its slope and its zero are what the launcher takes for 1 / sqrt(variance + eps) and for the mean. Rows of
two widths tell the variance from eps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.judge.lab import Judged, Lab
from grader.judge.target import Target, floats, target_of

if TYPE_CHECKING:
    from numpy import ndarray

LEAST, MOST = 8, 1 << 14  # columns of a row
CLOSE = 0.02  # of a mean, a variance or eps, as a share
WIDE, NARROW = 1.0, 2.0**-8  # how far the elements of a row are apart
ROUNDINGS = 16  # of the output, that a straight line may be missed by
STEPS = tuple(2**power for power in range(5, 15))  # elements that a warp or a block may take for the row's
WARP = 32  # columns that one warp has, where a row is shared by warps


@dataclass(frozen=True)
class Line:
    """y = (x - zero) * slope over the columns of a row."""

    slope: float
    zero: float

    @property
    def under_root(self) -> float:
        return 1.0 / self.slope**2


def normaliser(lab: Lab, one: Judged) -> Iterator[str]:
    """At most one clue. ``one`` may have too few columns: then a larger wrong case is asked about."""
    wrong = [each for each in lab.judged.values() if each.wrong and each.first_wrong == one.first_wrong]
    wrong = [each for each in wrong if _has_a_row(each)]
    smallest = sorted(wrong, key=_telling)[:1]
    largest = sorted(wrong, key=lambda each: each.compared[each.first_wrong].got.size)[-1:]
    for each in (*smallest, *largest):
        found = _Row.of(target_of(lab, each))
        words = found and found.words()
        if words:
            yield words if each is one else f"at {each.case.shape}: {words}"
        if words or not found:
            return


def _has_a_row(one: Judged) -> bool:
    found = one.compared[one.first_wrong]
    shape = found.got.shape
    return len(shape) >= 2 and LEAST <= shape[-1] <= MOST and not bool(found.unwritten.any())


def _telling(one: Judged) -> tuple[bool, int]:
    """Small ones first, those after others whose number of columns is a power of two, which is like many numbers."""
    got = one.compared[one.first_wrong].got
    columns = got.shape[-1]
    return columns & (columns - 1) == 0, got.size


@dataclass(frozen=True)
class _Row:
    """The row of the target, and the input whose row it is a line over."""

    target: Target
    x: Tensor
    others: Mapping[str, ndarray]

    @classmethod
    def of(cls, target: Target) -> _Row | None:
        """None where the reference is not such a line: for both widths, and with a slope that depends on the row."""
        import numpy

        numbers = floats(target)
        own = [each for each in numbers if tuple(each.extent(target.case.sizes)) == target.shape]
        if len(own) != 1:
            return None
        others = {each.name: numpy.ones(each.extent(target.case.sizes)) for each in numbers if each is not own[0]}
        for name, ones in others.items():  # those that are added get 0
            row = cls(target, own[0], others)
            with_it, without = (cls(target, own[0], {**others, name: value})._right(WIDE) for value in (ones, 0 * ones))
            if bool(abs(row._right(WIDE)).any()) and bool(numpy.allclose(with_it - without, 1.0, atol=1e-6)):
                others = {**others, name: 0 * ones}
        row = cls(target, own[0], others)
        wide, narrow = (_line(row._x(width), row._right(width), 2.0**-40) for width in (WIDE, NARROW))
        if wide is None or narrow is None or abs(narrow.slope - wide.slope) < abs(wide.slope):
            return None
        return row

    def _x(self, width: float) -> ndarray:
        """The row of the input: whole eighths around 2, as wide as is asked."""
        import numpy

        columns = self.target.shape[-1]
        drawn = numpy.random.default_rng(17).choice((-1.0, -0.5, -0.25, 0.0, 0.25, 0.75, 1.0), columns)
        return (drawn + (2.0 if width == WIDE else 0.5)) * width

    def _inputs(self, width: float) -> dict[str, ndarray]:
        import numpy

        return {**self.others, self.x.name: numpy.broadcast_to(self._x(width), self.target.shape)}

    def _of(self, answer: ndarray) -> ndarray:
        columns = self.target.shape[-1]
        row: ndarray = answer.reshape(-1, columns)[self.target.flat // columns]
        return row

    def _right(self, width: float) -> ndarray:
        return self._of(self.target.reference(self._inputs(width)))

    def words(self) -> str | None:
        lines = []
        for width in (WIDE, NARROW):
            answer = self.target.answer(self._inputs(width))
            if answer is None:
                return None
            got, rounding = self._of(answer), ROUNDINGS * self.target.roundoff
            line = _line(self._x(width), got, rounding)
            if line is None:
                return self._by_warp(got, rounding) if width == WIDE else None
            right = _line(self._x(width), self._right(width), rounding)
            if right is None or line.slope <= 0:
                return None
            lines.append((line, right))
        return self._compared(lines)

    def _compared(self, lines: list[tuple[Line, Line]]) -> str | None:
        (wide, right), (narrow, right_narrow) = lines
        x = self._x(WIDE)
        name = f"the row of {self.target.words} is (x - m) s"
        if abs(wide.zero - right.zero) > CLOSE * max(abs(right.zero), float(abs(x).max())):
            times = f": m is {self._times(wide.zero / right.zero)}" if right.zero else ""
            return f"{name} with m = {wide.zero:.4g}, and the mean is {right.zero:.4g}{times}"
        # Under the root: a share of what the right one has, and a number that does not depend on x.
        grown, small = right.under_root - right_narrow.under_root, right_narrow.under_root
        share = (wide.under_root - narrow.under_root) / grown
        added = narrow.under_root - share * small
        eps = self._eps()
        if (zeros := self._zeros(wide, right)) is not None:
            return f"{name}: in 1 / s^2, {zeros} elements of 0 count beside the row's {x.size}"
        if abs(share - 1) > CLOSE:
            return f"{name}: in 1 / s^2, the variance or mean of squares is {self._times(share)}"
        if eps and abs(added) > 5 * CLOSE * eps:
            seen = (eps + added) / eps
            if abs(seen) <= CLOSE:
                return f"{name}: no eps is in 1 / s^2"
            return f"{name}: the eps in 1 / s^2 is {self._times(seen)}"
        return None

    def _zeros(self, wide: Line, right: Line) -> int | None:
        """How many elements of 0, each with the mean as its distance, would make this variance; None: no such number,
        or one that does not fill the row up to the elements of whole warps."""
        if not right.zero:
            return None
        columns = self.target.shape[-1]
        number = (wide.under_root - right.under_root) * columns / right.zero**2
        zeros = round(number)
        fits = zeros > 0 and abs(number - zeros) < min(0.3, CLOSE * zeros) and (columns + zeros) % WARP == 0
        return zeros if fits else None

    def _eps(self) -> float:
        """What the reference has under the root for a row without a spread: the parameter eps."""
        return next((each.value for each in self.target.lab.spec.parameters if each.name == "eps"), 0.0)

    def _times(self, factor: float) -> str:
        """``0.0625 times what it must be: 1 / cols``"""
        columns = self.target.shape[-1]
        name = next(tensor for tensor in self.target.lab.spec.outputs if tensor.name == self.target.name).shape[-1]
        named = {columns: str(name), 1 / columns: f"1 / {name}"}
        if columns & (columns - 1):  # or every power of two would be one of these
            named |= {columns / step: f"{name} / {step}" for step in STEPS if step > columns}
        found = [words for value, words in named.items() if abs(factor - value) <= CLOSE * value]
        return f"{factor:.3g} times what it must be" + (f": {found[0]}" if found else "")

    def _by_warp(self, got: ndarray, rounding: float) -> str | None:
        """Whether the columns of each warp have a line of their own."""
        x, columns = self._x(WIDE), self.target.shape[-1]
        parts = range(0, columns - LEAST + 1, WARP)
        lines = [_line(x[at : at + WARP], got[at : at + WARP], rounding) for at in parts]
        if len(lines) < 2 or any(line is None for line in lines):
            return None
        zeros = {round(line.zero, 3): at for at, line in reversed(list(zip(parts, lines, strict=True))) if line}
        if not 2 <= len(zeros) <= len(lines):
            return None
        said = [f"{zero:.4g} for columns {at}..{at + WARP - 1}" for zero, at in sorted(zeros.items(), key=_second)[:2]]
        right = _line(x, self._right(WIDE), rounding)
        mean = f", and the mean is {right.zero:.4g}" if right else ""
        return f"a row of {self.target.name} is (x - m) s with more than one m: {', '.join(said)}{mean}"


def _second(pair: tuple[float, int]) -> int:
    return pair[1]


def _line(x: ndarray, y: ndarray, rounding: float) -> Line | None:
    """None where the points are on no straight line, or on a level one."""
    import numpy

    if not bool(numpy.isfinite(y).all()) or float(x.max() - x.min()) == 0:
        return None
    slope, offset = numpy.polyfit(x, y, 1)
    allowed = max(rounding, 1e-12) * float(abs(y).max() + abs(offset))
    if slope == 0 or float(abs(slope * x + offset - y).max()) > allowed:
        return None
    return Line(float(slope), float(-offset / slope))
