"""A nan or an infinity in an answer that must have none -> the instruction that made the first one, and of what.

The failing case is called once more, on a device that notes each instruction that makes a nan of operands that are
none, or an infinity of finite ones. A case that passes is called so, too: a line that does the same there is not named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from grader.devices import Outcome
from grader.devices.counters import Birth
from grader.judge.case import Case
from grader.judge.encoding import decode
from grader.judge.lab import Judged, Lab, judged
from grader.verdict import Clue

if TYPE_CHECKING:
    from numpy import ndarray

INSTRUCTIONS = 200_000  # warp instructions of one such call, which take some ten times as long as others
PASSING = 4  # cases that are looked at for one without a nan

_INFIX = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "fma": "{} * {} + {}"}
_FUNCTIONS = {"rcp": "1 / {}", "sqrt": "sqrt({})", "rsqrt": "1 / sqrt({})", "ex2": "2^{}", "lg2": "log2({})"}
_WORDS = {**_INFIX, **_FUNCTIONS, "mad": "{} * {} + {}"}


def first_nan(lab: Lab, one: Judged) -> Iterator[Clue]:
    """At most one clue; none where the wrong elements are finite, or the device notes no such thing."""
    wanted = _unusual(one)
    if wanted is not None:
        outcome = lab.run(one.case, births=INSTRUCTIONS)
        common = {_place(birth) for birth in _of_a_pass(lab, one)} if outcome is not None and outcome.births else set()
    else:
        wanted = "nan"
        outcome = _alone(lab, one)
        common = {_place(birth) for birth in _of_a_pass(lab, one, has_nan=False)} if outcome is not None else set()
    if outcome is None or not outcome.births:
        return
    births = [birth for birth in outcome.births if _place(birth) not in common]
    made = next((birth for birth in births if _is_nan(birth) == (wanted == "nan")), None)
    if made is None:
        return
    words = f"the first {'nan' if wanted == 'nan' else 'infinity'} is made {_words(made)}"
    before = births[: births.index(made)]
    source = next((birth for birth in before if not _is_nan(birth) and birth.result in made.operands), None)
    if source is not None:
        words += f"; the first {source.result} before that {_words(source)}"
    if wanted == "nan" and source is None:
        words += _beside(made)
    yield Clue("nan", words, line=made.by.line)


def _unusual(one: Judged) -> str | None:
    """``nan`` or ``inf``, where wrong elements that were written are that and must be finite."""
    import numpy

    place = one.first_wrong
    found, want = one.compared[place], one.expected[place].value
    if not one.expected[place].dtype.is_float:
        return None
    chosen = found.got[found.wrong & ~found.unwritten & numpy.isfinite(want)].astype(float)
    return "nan" if numpy.isnan(chosen).any() else "inf" if numpy.isinf(chosen).any() else None


def _alone(lab: Lab, one: Judged) -> Outcome | None:
    """A nan in the place of an infinity: the call with 1 in all places of the inputs but that one. None where the
    answer must have a nan elsewhere even then, which the first that is made may belong to, or has none any more."""
    import numpy

    place = one.first_wrong
    found, want = one.compared[place], one.expected[place].value
    chosen = found.wrong & ~found.unwritten & numpy.isnan(found.got.astype(float)) & numpy.isinf(want.astype(float))
    if not bool(chosen.any()):
        return None
    index = tuple(int(each[0]) for each in chosen.nonzero())
    inputs: dict[str, ndarray] = {}
    for tensor in lab.spec.inputs:
        dtype = lab.spec.dtype(tensor, lab.kata)
        if tensor.shape == one.expected[place].tensor.shape and dtype.is_float:
            inputs[tensor.name] = numpy.ones(found.got.shape)
            inputs[tensor.name][index] = decode(one.case.inputs[tensor.name], dtype).reshape(found.got.shape)[index]
    case = lab.with_inputs(one.case, inputs)
    if _must_have_nan(case) or (outcome := lab.run(case, births=INSTRUCTIONS)) is None:
        return None
    return outcome if bool(numpy.isnan(judged(case, outcome).compared[place].got[index])) else None


def _must_have_nan(case: Case) -> bool:
    import numpy

    return any(bool(numpy.isnan(each.value.astype(float)).any()) for each in case.expected)


def _of_a_pass(lab: Lab, one: Judged, *, has_nan: bool = True) -> Sequence[Birth]:
    """What is made in a case that passes, if there is one: the one most like the failing case; not ``has_nan``: of
    those whose answer must have no nan."""
    passing = [key for key, wrong in lab.known.items() if not wrong]
    work = lab.spec.work(one.case.sizes)
    nearest = sorted(
        passing,
        key=lambda key: (key.values != one.case.shape.values, abs(lab.spec.work(dict(key.sizes)) - work)),
    )
    for key in nearest[: 1 if has_nan else PASSING]:
        case = Case(lab.kata, lab.spec, key)
        if has_nan or not _must_have_nan(case):
            outcome = lab.run(case, births=INSTRUCTIONS)
            return outcome.births if outcome is not None else ()
    return ()


def _beside(birth: Birth) -> str:
    """``; thread (0,0,0), which has ...``: what another lane has of the row that it shares with the nan's."""
    if birth.other is None or birth.other.thread is None or birth.other_operands == birth.operands:
        return ""
    thread = str(birth.other.thread).replace(" ", "")
    words = operation(birth.form, birth.other_operands).removesuffix(f" ({birth.form})")
    return f"; thread {thread}, one of the four lanes that share a row of mma's accumulator, has {words} there"


def _is_nan(birth: Birth) -> bool:
    return birth.result == "nan"


def _place(birth: Birth) -> tuple[str, int | None, str, bool]:
    return birth.by.kernel, birth.by.line, birth.form, _is_nan(birth)


def _words(birth: Birth) -> str:
    """``on line 37: -inf - -inf (sub.f32), by block (0,0,0) thread (3,0,0)``"""
    line = f"on line {birth.by.line}" if birth.by.line is not None else f"in {birth.by.kernel}"
    line += f" (called on line {birth.by.callers[0]})" if birth.by.callers else ""
    block, thread = (str(place).replace(" ", "") for place in (birth.by.block, birth.by.thread))
    return f"{line}: {operation(birth.form, birth.operands)}, by block {block} thread {thread}"


def operation(form: str, operands: Sequence[str]) -> str:
    """``-inf - -inf (sub.f32)``: the operation with the values of its operands."""
    name = form.partition(".")[0]
    if not operands:
        return f"a product of matrices whose elements are all finite ({form})"
    if name == "cvt":
        return f"{operands[0]} converted to {form.split('.')[-2]} ({form})"
    template = _WORDS.get(name, "")
    if template.count("{}") == len(operands):
        return f"{template.format(*operands)} ({form})"
    return f"{name}({', '.join(operands)}) ({form})"
