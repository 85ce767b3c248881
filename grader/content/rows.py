"""What the specs of softmax, norms and losses share: values that differ by row, and the bound of a softmax."""

from __future__ import annotations

from collections.abc import Callable
from math import e, inf
from typing import TYPE_CHECKING

from grader.content.formulas import softmax
from grader.content.spec import Fill, Rng, Sizes, growth

if TYPE_CHECKING:
    from numpy import ndarray

FLUSHED = 2.0**-126 / 2.0**-24  # times the roundoff of f32: its smallest normal number


def top(x: ndarray) -> ndarray:
    """The maximum of each row, [..., 1]."""
    highest: ndarray = x.max(axis=-1, keepdims=True, initial=-inf)
    return highest


def total(x: ndarray) -> ndarray:
    """The sum of exp(x - max) of each row, [..., 1]."""
    summed: ndarray = (e ** (x - top(x))).sum(axis=-1, keepdims=True)
    return summed


def overflowing(x: ndarray, sizes: Sizes) -> ndarray:
    """A softmax of each row without its maximum, in f32: exp(x) and the sum overflow and vanish."""
    import numpy

    weights = numpy.exp(x.astype(numpy.float32))
    shares: ndarray = (weights / weights.sum(axis=-1, keepdims=True)).astype(float)
    return shares


def not_rescaled(threads: int, width: int = 1) -> Callable[..., ndarray]:
    """A softmax of each row whose threads take ``width`` columns in turn, and add exp(x - their maximum so far) to a
    sum that they do not multiply when that maximum rises. The threads' sums are then put together as they must be."""

    def of_rows(x: ndarray, sizes: Sizes) -> ndarray:
        import numpy

        rows, columns = x.shape
        step = threads * width
        padded = numpy.full((rows, -(-columns // step) * step), -inf)
        padded[:, :columns] = x
        there = numpy.arange(padded.shape[1]) < columns

        def by_thread(of: ndarray) -> ndarray:
            turned: ndarray = of.reshape(len(of), -1, threads, width).swapaxes(1, 2)
            return turned.reshape(len(of), threads, -1)

        own = by_thread(padded)
        highest = numpy.maximum.accumulate(own, axis=2)
        terms = numpy.where(by_thread(there[None]), numpy.exp(own - highest), 0.0)
        sums = terms.sum(axis=2) * numpy.exp(highest[:, :, -1] - top(x))
        shares: ndarray = numpy.exp(x - top(x)) / sums.sum(axis=1, keepdims=True)
        return shares

    return of_rows


def softmax_bound(x: ndarray, shift: ndarray | float) -> ndarray:
    """The error of a softmax of each row by exp(x - shift), over the roundoff of f32.

    With d = |x - shift| an exponential has the error 1 + d of its argument's rounding, and the sum has the errors of
    its terms, each by its share, and of its additions: y (1 + d + sum of y d + g(columns)).
    """
    import numpy

    y = softmax(x)
    distance = numpy.where(y > 0, abs(x - shift), y)  # -inf has its 0 for sure
    bound: ndarray = y * (1 + distance + (y * distance).sum(axis=-1, keepdims=True) + growth(x.shape[-1])) + FLUSHED
    return bound


def per_row(rng: Rng, shape: tuple[int, ...], values: tuple[float, ...]) -> ndarray:
    """One of the values for each row, or for all of a vector."""
    return rng.choice((*shape[:-1], 1), values)


def shifted(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Whole rows at 10 000 or -10 000: every exponential of theirs overflows, or vanishes, unless shifted back."""
    logits: ndarray = rng.normal(shape, std=3.0) + per_row(rng, shape, (1.0e4, -1.0e4, 1.0e3, -1.0e3))
    return logits


def huge(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Logits up to some 10 000 of either sign: a few elements of a row take all of it."""
    logits: ndarray = rng.normal(shape) * 10.0 ** rng.integers(shape, 0, 4)
    return logits


def masked(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Every other element -inf; of some rows all but the last quarter, or everything."""
    import numpy

    plain = rng.normal(shape, std=3.0)
    keep = rng.integers(shape, 0, 1) > 0
    kind = per_row(rng, shape, (0.0, 0.0, 0.0, 1.0, 1.0, 2.0))
    late = numpy.arange(1, shape[-1] + 1) > 0.75 * shape[-1]
    return numpy.where((kind == 0) & keep | (kind == 1) & late, plain, -inf)


def poisoned(*poisons: float, mean: float = 0.0, std: float = 3.0) -> Fill:
    """One of the poisons in every other row, anywhere; the other elements are normal draws."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        plain = rng.normal(shape, mean=mean, std=std)
        place = numpy.floor(rng.uniform((*shape[:-1], 1), 0.0, 1.0) * shape[-1])
        here = numpy.arange(shape[-1]) == place
        hit = per_row(rng, shape, (0.0, 1.0)) > 0
        return numpy.where(here & hit, per_row(rng, shape, poisons), plain)

    return fill
