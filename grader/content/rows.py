"""What the specs of softmax, norms and losses share: values that differ by row, the bound of a softmax, and its usual
mistakes."""

from __future__ import annotations

from collections.abc import Callable
from math import e, inf, log
from typing import TYPE_CHECKING

from grader.content.formulas import logsumexp, softmax
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


# What is computed in place of a softmax by a usual mistake. The sums are those of exp(x - max).
MISSES_OF_SOFTMAX: dict[str, Callable[..., ndarray]] = {
    "powers of 2 in place of e": lambda x, sizes: softmax(x * log(2)),
    "powers of 2 in the sum, and powers of e over it": lambda x, sizes: softmax(x) * total(x) / total(x * log(2)),
    "powers of e in the sum, and powers of 2 over it": lambda x, sizes: (
        softmax(x * log(2)) * total(x * log(2)) / total(x)
    ),
    "the exponentials are not divided by their sum": lambda x, sizes: softmax(x) * total(x),
    "the exponentials are multiplied by their sum": lambda x, sizes: softmax(x) * total(x) ** 2,
    "x - max in place of its exponential, over the sum": lambda x, sizes: (x - top(x)) / total(x),
    "x - max in place of its exponential, times the sum": lambda x, sizes: (x - top(x)) * total(x),
    "softmax of -x": lambda x, sizes: softmax(-x),
    "the factor log2(e) twice": lambda x, sizes: softmax(x / log(2)),
    "the logarithm of the softmax": lambda x, sizes: x - logsumexp(x)[..., None],
    "the sum begins at 1, not at 0": lambda x, sizes: softmax(x) * total(x) / (total(x) + 1),
    "the exponentials over the root of their sum": lambda x, sizes: softmax(x) * total(x) ** 0.5,
    "the exponentials over their mean, not their sum": lambda x, sizes: softmax(x) * x.shape[-1],
}
# Those of rows: of all of x as one vector some would be the same.
MISSES_OF_ROWS: dict[str, Callable[..., ndarray]] = {
    **MISSES_OF_SOFTMAX,
    "softmax of the columns, not of the rows": lambda x, sizes: softmax(x, axis=0),
    "no maximum is subtracted, and the exponentials overflow": overflowing,
    "the sum is not rescaled when the maximum rises, in threads that take every 32nd column": not_rescaled(32),
    "the sum is not rescaled when the maximum rises, in threads that take every 256th column": not_rescaled(256),
    "the sum is not rescaled when the maximum rises, in threads that take 4 columns of 1024": not_rescaled(256, 4),
    "the sum is not rescaled when the maximum rises, in the order of the columns": not_rescaled(1),
}


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
