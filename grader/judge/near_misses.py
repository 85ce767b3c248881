"""Wrong answers + the usual mistakes that the spec lists -> the one mistake whose answers they equal.

It must give all wrong answers that were seen and all right ones, differ from the reference in at least SUPPORT wrong
elements or in two cases, and no other mistake may give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.judge.case import Case, CaseKey, Expected, allowed, largest_within
from grader.judge.comparison import beyond_cell
from grader.judge.encoding import decode, encode
from grader.judge.lab import Judged, Lab, in_order
from grader.verdict import Clue

if TYPE_CHECKING:
    from numpy import ndarray

SUPPORT = 4  # wrong elements, of all cases together
WORK = 1_000_000  # of the larger case that must be the mistake's, too
KINDS_WORK = 100_000  # of the case that is tried with all kinds of values
CASES = 12  # of those that were tried
ROOM = 8.0  # times the roundoff of the output, beside the reference's own bound
LEAST_ROOM = 2.0**-17  # as a share: what the fast exponential and a division lose

Formula = Callable[..., "ndarray | tuple[ndarray, ...]"]


def near_miss(lab: Lab) -> Iterator[Clue]:
    """What is computed instead, where all cases that were tried say so."""
    # Those with most elements tell formulas apart.
    by_size = sorted(lab.judged.values(), key=lambda one: -sum(found.wrong.size for found in one.compared))
    wrong = [one for one in by_size if one.wrong]
    right = [one for one in by_size if not one.wrong]
    cases = [*wrong[: CASES * 2 // 3], *right[: CASES // 3]]
    fitting: list[str] = []
    for words, formula in lab.spec.near_misses.items():
        answers = _fits(formula, cases)
        if answers is not None:
            fitting.append(words)
    fitting = [words for words in fitting if _holds(lab, lab.spec.near_misses[words])]
    if len(fitting) > 1:  # what they make of infinities may tell them apart
        fitting = [words for words in fitting if _holds(lab, lab.spec.near_misses[words], everywhere=True)]
    if len(fitting) == 1:
        number = len([one for one in cases if one.wrong])
        words = f"the answer is that of a usual mistake: {fitting[0]}"
        yield Clue("formula", f"{words} (in all {number} wrong cases that were tried)")


def _holds(lab: Lab, formula: Formula, *, everywhere: bool = False) -> bool:
    """Whether it gives the answers to larger cases, too, and to all kinds of values, as far as these come to one: small
    ones may meet one part of what is wrong alone, and few kinds have what tells two formulas apart. In the kinds the
    finite answers alone must fit, unless it is asked ``everywhere``: kernels with one mistake treat infinities in more
    than one way."""
    import numpy

    large = _large(lab)
    for key in dict.fromkeys((*_of_all_kinds(lab), *large)):
        one = lab.try_key(key)
        given = answers_of(formula, one.case) if one is not None else None
        if one is None or given is None:
            continue
        for expected, missed, each in zip(one.expected, given, one.compared, strict=True):
            close = _close(each.got, missed, expected)
            if not everywhere and key not in large:
                close = close | ~numpy.isfinite(missed) | ~numpy.isfinite(each.got)
            if not bool(close.all()):
                return False
    return True


def _large(lab: Lab) -> list[CaseKey]:
    """Each size is as large as it can be in one of them."""
    fits = [sizes for sizes in lab.spec.named_sizes if allowed(lab.kata, sizes) and lab.spec.work(sizes) <= WORK]
    names = fits[0] if fits else {}
    largest = [max(fits, key=lambda sizes, name=name: (sizes[name], lab.spec.work(sizes))) for name in names]  # type: ignore[misc]
    return [CaseKey.of(lab.spec, sizes, lab.spec.values[0].name, 1) for sizes in largest]


def _of_all_kinds(lab: Lab) -> list[CaseKey]:
    """One shape of some elements, with each kind of values."""
    sizes = largest_within(lab.kata, lab.spec, KINDS_WORK)
    return [] if sizes is None else [CaseKey.of(lab.spec, sizes, kind.name, 1) for kind in lab.spec.values]


def _fits(formula: Formula, cases: Sequence[Judged]) -> list[ndarray] | None:
    """What the formula gives in all cases, if it is what the launcher gave; else None."""
    told, answers = 0, []
    for one in cases:
        given = answers_of(formula, one.case)
        if given is None:
            return None
        for expected, missed, found in zip(one.expected, given, one.compared, strict=True):
            if not _equal(found.got, missed, expected):
                return None
            told += int((found.wrong & ~found.unwritten).sum())
            answers.append(missed)
    many = sum(one.wrong for one in cases) >= 2
    return answers if told >= SUPPORT or (many and told >= 2) else None


def answers_of(formula: Formula, case: Case) -> tuple[ndarray, ...] | None:
    """What the formula gives, in the order in which outputs are computed; None where it has no answer to the case."""
    import numpy

    replaced = Case(case.kata, replace(case.spec, reference=formula, near_misses={}), case.shape, case.inputs)
    try:
        with numpy.errstate(all="ignore"):
            expected = in_order(case.spec, replaced.expected)
    except (ValueError, IndexError, ZeroDivisionError, FloatingPointError):
        return None
    return tuple(item.value for item in expected)


def _equal(got: ndarray, missed: ndarray, expected: Expected) -> bool:
    """Whether these are the mistake's answers."""
    return bool(_close(got, missed, expected).all())


def _close(got: ndarray, missed: ndarray, expected: Expected) -> ndarray:
    """Which are the mistake's answers, as far as rounding lets one say."""
    import numpy

    if expected.before_rounding:
        assert expected.bound is not None
        with numpy.errstate(all="ignore"):
            near = beyond_cell(missed, got, expected.dtype) <= LEAST_ROOM * abs(missed) + expected.bound
        fits: ndarray = near | (numpy.isnan(got) & numpy.isnan(missed))
        return fits
    if not expected.dtype.is_float:
        return numpy.asarray(got == missed)
    if expected.bound is None and expected.dtype.itemsize == 1:  # so few numbers that most mistakes are close to others
        rounded = decode(encode(missed, expected.dtype), expected.dtype)
        return numpy.asarray((got == rounded) | (numpy.isnan(got) & numpy.isnan(rounded)))
    bound = max(ROOM * expected.dtype.roundoff, LEAST_ROOM) * (abs(missed) + expected.dtype.tiny)
    if expected.bound is not None:
        with numpy.errstate(all="ignore"):
            scale = numpy.nan_to_num(abs(missed) / (abs(expected.value) + expected.dtype.tiny), nan=1.0)
            bound = bound + expected.bound * numpy.clip(scale, 1.0, 1e3)
    with numpy.errstate(all="ignore"):
        finite = numpy.isfinite(missed) & numpy.isfinite(got)
        close = finite & (abs(got - missed) <= bound)
    overflow = ~numpy.isfinite(missed) | (abs(missed) > (60000 if expected.dtype.name == "f16" else 3e38))
    opposite = numpy.isinf(got) & (numpy.signbit(got) != numpy.signbit(missed))
    same = (got == missed) | (numpy.isnan(got) & numpy.isnan(missed)) | (overflow & ~numpy.isfinite(got) & ~opposite)
    return numpy.asarray(close | same)
