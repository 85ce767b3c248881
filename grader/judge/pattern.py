"""Which elements are wrong, and by how much -> what they have in common, in words.

A pattern is judged by the region that holds the wrong elements: an element of it that is right by chance does not
destroy it. Fewer than SUPPORT elements do not make a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, prod, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import ndarray

FILLED = 0.8  # of a region's elements are wrong, if the region is named as a pattern
SUPPORT = 4  # elements, or indices along an axis
MOST_LINES, LINES_SHOWN = 512, 3  # rows or columns that are looked at, and that are named
STEPS = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256)
BLOCK_SIZES = (1024, 512, 256, 128, 64, 32)
AFTER_VECTORS = ": every element after the last multiple of {}"
THE_LAST = " (the last)"
CLOSE = 1e-3  # of a ratio to a factor that has a name
MOVED = 32  # wrong elements that a swizzle must explain


@dataclass(frozen=True)
class _Indices:
    """Indices along an axis. ``claimed`` are those that the words name; all that have wrong elements are among them."""

    kind: str  # all, one, end, run, step, listed, some
    words: str  # as between brackets: "5", "64..", "8..15", "1 modulo 2"
    claimed: ndarray
    first: int = 0
    step: int = 0

    @property
    def restricted(self) -> bool:
        return self.kind != "all"


def describe(wrong: ndarray, unwritten: bool, name: str, dims: Sequence[str | int]) -> str:
    """What the wrong elements of the output ``name`` have in common. ``dims`` are the names of its dimensions."""
    what = "never written" if unwritten else "wrong"
    if bool(wrong.all()):
        return f"every element is {what}"
    if wrong.ndim == 1:
        return _describe_line(wrong, what)
    return _describe_region(wrong, what, name, dims)


# -- one dimension ---------------------------------------------------------------------------------------------------


def _describe_line(wrong: ndarray, what: str) -> str:
    count, number = int(wrong.size), int(wrong.sum())
    found = _indices(wrong)
    claimed = int(found.claimed.sum())
    some = "" if claimed == number else f" ({number} of these {claimed})"
    if found.kind == "one":
        return f"only element {found.first} is {what}{_alone(found.first, count)}"
    if found.kind == "end":
        words = f"elements from {found.first} on are {what}{some}" if some else _all_from(found.first, what)
        return words + _boundary(found.first, count)
    if found.kind == "run":
        return f"elements {found.words.replace('..', ' to ')} are {what}{some}"
    if found.kind == "step":
        words = f"whose index is {found.words}"
        return f"elements {words} are {what}{some}" if some else f"every element {words} is {what}"
    if number >= FILLED * count and count >= 2 * SUPPORT:
        return f"nearly every element is {what} ({number} of {count})"
    return f"{number} of {count} elements are {what}"


def _all_from(first: int, what: str) -> str:
    return f"every element from {first} on is {what}"


def _boundary(first: int, count: int) -> str:
    """Names the multiple that the first wrong element stands at: of a vector's width, or of a block."""
    if count < SUPPORT:
        return ""
    for width in (8, 4, 2):
        if count % width and first == count - count % width and count - first < width:
            return AFTER_VECTORS.format(width)
    for size in BLOCK_SIZES:
        if first and first % size == 0:
            return f", a multiple of {size}"
    return ""


def _alone(index: int, count: int) -> str:
    """What is special about the only index that is wrong: it is the last; a block or a tile begins there."""
    size = next((size for size in BLOCK_SIZES if index and index % size == 0), None)
    last = THE_LAST if index == count - 1 and count >= SUPPORT else ""
    return last + (f", a multiple of {size}" if size else "")


def without_last(words: str, wrong: ndarray, others: Sequence[ndarray]) -> str:
    """The words of a pattern, without "the last" if the index that alone is ``wrong`` is wrong in a larger output, too,
    where it is not the last: there is more that begins at this index."""
    import numpy

    for axis in _of(wrong) if THE_LAST in words else ():
        lines = numpy.asarray(wrong.any(axis=tuple(other for other in _of(wrong) if other != axis)))
        if int(lines.sum()) != 1 or not bool(lines[-1]):
            continue
        for other in others:
            larger = other.ndim == wrong.ndim and other.shape[axis] > lines.size
            if larger and bool(other.take(lines.size - 1, axis=axis).any()):
                return words.replace(THE_LAST, "")
    return words


def without_chance(words: str, failed: Mapping[str, int], others: Iterable[Mapping[str, int]]) -> str:
    """The words of a pattern; without what they say of the elements after the last whole vector, if whole vectors
    alone fail, too: in one of the ``others``, whose sizes are those that ``failed`` but for that of the axis."""
    axis = re.search(r"along (\w+) \(axis", words)
    for width in (8, 4, 2):
        for sizes in others if AFTER_VECTORS.format(width) in words else ():
            changed = [name for name, size in sizes.items() if size != failed[name]]
            if len(changed) != 1 or (axis is not None and axis[1] != changed[0]):
                continue
            if failed[changed[0]] % width and sizes[changed[0]] % width == 0:
                return words.replace(AFTER_VECTORS.format(width), "")
    return words


def _indices(wrong: ndarray) -> _Indices:
    """The indices with wrong elements, as the simplest set that they fill."""
    import numpy

    (places,) = wrong.nonzero()
    count, first, last = int(wrong.size), int(places[0]), int(places[-1])
    claimed = numpy.zeros(count, dtype=bool)
    if len(places) == count:
        return _Indices("all", "*", wrong)
    if len(places) == 1:
        return _Indices("one", str(first), wrong, first)
    claimed[first : last + 1] = True
    to_end = last == count - 1 and first > 0
    if len(places) == last - first + 1 or (steps := _steps(wrong, places)) is None:
        whole = len(places) == last - first + 1
        dense = len(places) >= max(2 * SUPPORT, FILLED * (last - first + 1))
        # Where as many are right within the run as are after it, they may all be right by chance.
        if dense and first == 0 and count - 1 - last <= last + 1 - len(places):
            return _Indices("all", "*", numpy.ones(count, dtype=bool))
        if whole or dense:
            return _Indices("end", f"{first}..", claimed, first) if to_end else _run(first, last, claimed)
        if len(places) <= SUPPORT:
            return _Indices("listed", ", ".join(map(str, places.tolist())), wrong, first)
        return _Indices("some", f"{len(places)} of {count}", wrong, first)
    return steps


def _run(first: int, last: int, claimed: ndarray) -> _Indices:
    return _Indices("run", f"{first}..{last}", claimed, first)


def _steps(wrong: ndarray, places: ndarray) -> _Indices | None:
    """Indices with neighbouring remainders, at most half of all remainders: ``8 to 15 modulo 16``."""
    import numpy

    indices = numpy.arange(wrong.size)
    for step in STEPS:
        remainders = sorted(set((places % step).tolist()))
        low, high = remainders[0], remainders[-1]
        neighbours = high - low + 1
        if wrong.size < 2 * step or neighbours * 2 > step or len(remainders) != neighbours:
            continue
        claimed = (indices % step >= low) & (indices % step <= high)
        if len(places) >= max(SUPPORT, FILLED * int(claimed.sum())) and places[-1] - places[0] >= step:
            words = f"{low} modulo {step}" if low == high else f"{low} to {high} modulo {step}"
            return _Indices("step", words, claimed, low, step)
    return None


# -- several dimensions ----------------------------------------------------------------------------------------------


def _describe_region(wrong: ndarray, what: str, name: str, dims: Sequence[str | int]) -> str:
    import numpy

    number = int(wrong.sum())
    others = [tuple(other for other in _of(wrong) if other != axis) for axis in _of(wrong)]
    axes = [_indices(numpy.asarray(wrong.any(axis=each))) for each in others]
    volume = prod(int(indices.claimed.sum()) for indices in axes)
    fills = "all" if number == volume else f"{number} of"
    place = f"{name}[{', '.join(indices.words for indices in axes)}]"
    if number == 1:
        return f"only {place} is {what}"
    restricted = [axis for axis in _of(wrong) if axes[axis].restricted]
    named = restricted and all(axes[axis].kind != "some" for axis in restricted)
    if named and number >= FILLED * volume:
        about = _axis_words(axes, restricted, dims, wrong.shape)
        return f"only {place} is {what} ({fills} its {volume} elements){about}"
    if side := _diagonal(wrong, what):
        return side
    if named and number >= SUPPORT and volume * 2 <= wrong.size:
        return f"all that is {what} lies in {place} ({fills} its {volume} elements)"
    if number >= FILLED * wrong.size and wrong.size >= 2 * SUPPORT:
        return f"nearly every element is {what} ({number} of {wrong.size})"
    return f"{number} of {wrong.size} elements are {what}"


def _of(array: ndarray) -> range:
    return range(array.ndim)


def _axis_words(
    axes: Sequence[_Indices], restricted: Sequence[int], dims: Sequence[str | int], shape: Sequence[int]
) -> str:
    """What the region is along its only restricted axis: a strip that begins at a multiple of a block's size, ..."""
    if len(restricted) != 1:
        return ""
    axis = restricted[0]
    found, count = axes[axis], int(shape[axis])
    name = dims[axis]
    where = f": along {name} (axis {axis}), " if isinstance(name, str) else f": along axis {axis}, "
    if found.kind == "end":
        return f"{where}every index from {found.first} on{_boundary(found.first, count)}"
    if found.kind == "one":
        return f"{where}index {found.first} alone{_alone(found.first, count)}"
    return f"{where}indices {found.words}"


def _diagonal(wrong: ndarray, what: str) -> str | None:
    """The last two dimensions as a square: on which side of its diagonal the wrong elements lie."""
    import numpy

    rows, columns = wrong.shape[-2:]
    if rows != columns or rows < SUPPORT:
        return None
    square = wrong.reshape(-1, rows, columns).any(axis=0)
    below, above = numpy.tri(rows, k=-1, dtype=bool), numpy.tri(rows, k=-1, dtype=bool).T
    sides = (("on the diagonal", ~(below | above)), ("above the diagonal", above), ("below the diagonal", below))
    for words, region in (*sides, ("off the diagonal", above | below)):
        inside = int((square & region).sum())
        if not bool((square & ~region).any()) and inside >= FILLED * int(region.sum()):
            every = "every element" if inside == int(region.sum()) else f"{inside} of {int(region.sum())} elements"
            return f"{every} {words} {'is' if every.startswith('every') else 'are'} {what}, and no other"
    return None


# -- values ----------------------------------------------------------------------------------------------------------


def describe_values(got: ndarray, want: ndarray, roundoff: float, sizes: Mapping[str, int]) -> str | None:
    """One number that turns what must be there into what is: the same value, factor or difference everywhere.

    ``got`` and ``want`` are float64, of the wrong elements that were written. None where nothing fits, and where the
    right values differ too little to tell a factor from a difference.
    """
    import numpy

    finite = numpy.isfinite(got) & numpy.isfinite(want)
    one_value = got.size >= SUPPORT and bool((got == got[0]).all() or numpy.isnan(got).all())
    if one_value and not bool((want == want[0]).all()):
        return f"every wrong element is {_plain(float(got[0]))}"
    got, want = got[finite], want[finite]
    if got.size < SUPPORT or not bool(finite.all()):
        return None
    spread = float(want.max() - want.min())
    if spread <= CLOSE * 10 * float(abs(want).max()):
        return None
    rounding = 8 * max(roundoff, 2.0**-24)
    if (factor := _factor(got, want, rounding)) is not None:
        return f"every wrong element is {_factor_words(factor, sizes)} what it must be"
    difference = float(numpy.median(got - want))
    allowed = rounding * float(max(abs(got).max(), abs(want).max()))
    if abs(difference) > 100 * allowed and float(abs(got - want - difference).max()) <= allowed:
        return f"every wrong element is {abs(difference):.6g} too {'large' if difference > 0 else 'small'}"
    return None


def describe_lines(got: ndarray, want: ndarray, wrong: ndarray, roundoff: float) -> str | None:
    """One factor or one difference for each row with wrong elements, or for each column, and not the same for all.

    The arrays are whole outputs; what is right in such a row must fit, too. None where nothing fits.
    """
    import numpy

    rounding = 8 * max(roundoff, 2.0**-24)
    for axis, noun in zip(range(got.ndim - 1, max(got.ndim - 3, -1), -1), ("row", "column"), strict=False):
        lines = [numpy.moveaxis(each, axis, -1).reshape(-1, got.shape[axis]) for each in (got, want, wrong)]
        places = numpy.flatnonzero(lines[2].any(axis=1))
        if got.ndim < 2 or not 2 <= places.size <= MOST_LINES:
            continue
        others = [size for place, size in enumerate(got.shape) if place != axis]
        for words, each_is, fit in (
            ("{:.6g} times", "the same multiple of", _factor_of_line),
            ("{:+.6g}", "equally far from", _difference_of_line),
        ):
            found = [fit(lines[0][place], lines[1][place], rounding) for place in places]
            if any(each is None for each in found):
                continue
            shown = [
                f"{words.format(each)} in {noun} {_line_words(place, others)}"
                for place, each in zip(places[:LINES_SHOWN], found, strict=False)
            ]
            more = ", ..." if places.size > LINES_SHOWN else ""
            return f"all elements of one {noun} are {each_is} what they must be: {', '.join(shown)}{more}"
    return None


def describe_swizzle(got: ndarray, want: ndarray, wrong: ndarray, roundoff: float, vector: int) -> str | None:
    """Where each row of a matrix has its chunks of 16 bytes, ``vector`` elements, in the places of a swizzle.

    The arrays are whole outputs of two dimensions. Each element must be that of the swizzle's place, as far as the
    matrix has that; None where one is not.
    """
    import numpy

    if got.ndim != 2 or got.shape[1] < 2 * vector or int(wrong.any(axis=1).sum()) < 2:
        return None
    rows, cols = numpy.indices(got.shape)
    for each, turn in (("r % 8", rows % 8), ("r / 2 % 4", rows // 2 % 4), ("r / 4 % 2", rows // 4 % 2)):
        from_col = cols ^ turn * vector
        inside = from_col < got.shape[1]
        there = want[rows, numpy.minimum(from_col, got.shape[1] - 1)]
        allowed = 8 * max(roundoff, 2.0**-24) * abs(there) + roundoff * float(abs(want).max())
        fits = abs(got - there) <= allowed
        if bool(fits[inside].all()) and int((wrong & inside).sum()) >= MOVED:
            return (
                f"chunk c of row r ({vector} columns, 16 bytes) has what belongs to chunk c ^ ({each}): "
                "it is swizzled on one side alone"
            )
    return None


def _line_words(place: int, others: Sequence[int]) -> str:
    """The number of a row, or its index in an output of more than two dimensions."""
    import numpy

    index = [int(each) for each in numpy.unravel_index(place, others)]
    return str(index[0]) if len(index) == 1 else str(tuple(index))


def _factor_of_line(got: ndarray, want: ndarray, rounding: float) -> float | None:
    return _factor(got, want, rounding) if _tells(got, want) else None


def _difference_of_line(got: ndarray, want: ndarray, rounding: float) -> float | None:
    import numpy

    if not _tells(got, want):
        return None
    difference = float(numpy.median(got - want))
    allowed = rounding * float(max(abs(got).max(), abs(want).max()))
    fits = abs(difference) > 10 * allowed and float(abs(got - want - difference).max()) <= allowed
    return difference if fits else None


def _tells(got: ndarray, want: ndarray) -> bool:
    """Whether there is enough to tell a factor from a difference, and both from chance."""
    import numpy

    if got.size < SUPPORT or not bool((numpy.isfinite(got) & numpy.isfinite(want)).all()):
        return False
    return float(want.max() - want.min()) > CLOSE * 10 * float(abs(want).max())


def _factor(got: ndarray, want: ndarray, rounding: float) -> float | None:
    """The same got / want everywhere; None where there is none."""
    import numpy

    far = abs(want) > CLOSE * abs(want).max()  # beside the others, the rest have lost their digits
    if int(far.sum()) < SUPPORT or bool((abs(got[~far]) > 10 * abs(want).max()).any()):
        return None
    factor = float(numpy.median(got[far] / want[far]))
    if abs(factor) < rounding or abs(factor - 1) < 10 * rounding:
        return None
    error = abs(got[far] - factor * want[far])
    return factor if bool((error <= rounding * (abs(got[far]) + abs(factor * want[far]))).all()) else None


def _factor_words(factor: float, sizes: Mapping[str, int]) -> str:
    """``0.935414 times (sqrt((cols - 1) / cols))``; a name only where no other fits."""
    if factor == -1:
        return "-1 times"
    names = [name for name, value in _factors(sizes) if abs(factor - value) <= CLOSE * abs(value) / 4]
    return f"{factor:.6g} times" + (f" ({names[0]})" if len(names) == 1 else "")


def _factors(sizes: Mapping[str, int]) -> Iterator[tuple[str, float]]:
    """Factors that are known by a name."""
    yield from (("log2(e)", 1 / log(2)), ("ln(2)", log(2)), ("sqrt(2)", sqrt(2)), ("1 / sqrt(2)", sqrt(0.5)))
    for name, size in sizes.items():
        if size < 2:
            continue
        yield from ((name, size), (f"1 / {name}", 1 / size))
        yield from ((f"sqrt({name})", sqrt(size)), (f"1 / sqrt({name})", 1 / sqrt(size)))
        share = (size - 1) / size
        yield from ((f"({name} - 1) / {name}", share), (f"{name} / ({name} - 1)", 1 / share))
        yield (f"sqrt(({name} - 1) / {name})", sqrt(share))
        yield (f"sqrt({name} / ({name} - 1))", sqrt(1 / share))


def _plain(value: float) -> str:
    return str(int(value)) if abs(value) < inf and value == int(value) else f"{value:.6g}"
