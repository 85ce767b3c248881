"""A wrong output element that no other probe explains -> what one input element alone makes of it.

Where the reference is linear in an input, all of that input is 0 but one element: what the launcher makes of it, next
to what the reference makes, is the factor of that element. The lines by which it gets there are where the factor is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from grader.judge.target import Element, Observed, Part, Target, floats, range_words

if TYPE_CHECKING:
    from numpy import ndarray

MOST = 1 << 14  # elements of an input
TRIED = 24  # elements, to find those that the target depends on
SHOWN = 2  # elements
CLOSE = 0.004  # of a factor, as a share: a half has 11 bits, a bfloat 8
IsLinear = Callable[[Target, str, Mapping[str, "ndarray"]], bool]


def impulses(target: Target, is_linear: IsLinear) -> Iterator[Observed]:
    """At most one clue. ``is_linear`` says whether the reference is linear in an input, the others being as given."""
    import numpy

    extents = {tensor.name: tensor.extent(target.case.sizes) for tensor in floats(target, narrow=True)}
    ones = {name: numpy.ones(extent) for name, extent in extents.items()}
    for name, extent in extents.items():
        if int(numpy.prod(extent)) > MOST or not is_linear(target, name, ones):
            continue
        said = [*_factors(target, name, extent, ones)]
        wrong = [each for each in said if each[3]]
        if not wrong:
            continue
        shown = wrong[:1] + [each for each in said if each is not wrong[0]][: SHOWN - 1]
        words = [_words(target, name, extent, flat, got, want) for flat, got, want, _ in shown]
        more = f", and all other {name} 0" if int(numpy.prod(extent)) > 1 else ""
        elements = (Element(name, wrong[0][0], Part.WEIGHED),)
        yield Observed(f"with one {name} 1{more}: {'; '.join(words)}", target, elements)
        return


def _words(target: Target, name: str, extent: Sequence[int], flat: int, got: float, want: float) -> str:
    expected = f", expected {want:.6g}" if abs(got - want) > CLOSE * abs(want) else ", which is right"
    return f"{range_words(name, extent, [flat])} makes {target.words} {got:.6g}{expected}"


def _factors(
    target: Target, name: str, extent: Sequence[int], ones: Mapping[str, ndarray]
) -> Iterator[tuple[int, float, float, bool]]:
    """Elements that the target depends on, the first ones and the last: what each makes, must make, and whether that is
    wrong."""
    import numpy

    size = int(numpy.prod(extent))
    own = [target.flat] if tuple(extent) == target.shape else []
    spread = numpy.linspace(0, size - 1, min(size, TRIED)).astype(int).tolist()
    found = []
    for flat in dict.fromkeys([*own, *spread]):
        values = numpy.zeros(size)
        values[flat] = 1.0
        inputs = {**ones, name: values.reshape(extent)}
        if (want := float(target.reference(inputs)[target.flat])) != 0:
            found.append((flat, inputs, want))
    for flat, inputs, want in [*found[:1], *found[-1:]][: len(found)]:
        answer = target.answer(inputs)
        got = float("nan") if answer is None else float(answer[target.flat])
        if numpy.isfinite(got):
            yield flat, got, want, abs(got - want) > max(CLOSE, 8 * target.roundoff) * abs(want)
