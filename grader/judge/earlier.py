"""A finding in a later kernel -> an output that an earlier kernel had already made wrong: the likelier place to look.

An output that the later kernel still changes is not wrong before that. So the element must be one whose last writer is
the earlier kernel in a case that passes, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from grader.devices import Finding, Outcome
from grader.devices.counters import Writer
from grader.judge.case import Case, CaseKey
from grader.judge.comparison import compared
from grader.judge.lab import Lab, element, in_order
from grader.verdict import Clue

CALLS = 2  # of the same contents; the finding may come with the second alone
PASSING = 3  # cases that are asked who writes an output last


def earlier(lab: Lab, failed: CaseKey, finding: Finding) -> Iterator[Clue]:
    """At most one clue: the first output, in the order in which they are computed, with such an element."""
    case = Case(lab.kata, lab.spec, failed)
    for nth in range(CALLS):
        outcome = lab.call(case.call(nth=nth, limits=lab.limits))
        if not outcome.findings or outcome.findings[0].kernel != finding.kernel:
            continue
        for name, flat, words in _wrong_by_then(case, outcome):
            again = lab.call(case.call(nth=nth, limits=lab.limits, watch=((name, flat),)))
            writer = again.writers.get(f"{name}[{flat}]")
            if writer is None or writer.block is None or writer.kernel == finding.kernel:
                continue
            if _is_last(lab, name, flat, writer):
                line = f" on line {writer.line}" if writer.line is not None else ""
                yield Clue("first", f"before that, {words}, which {writer.kernel} wrote{line}")
                return
        return


def _wrong_by_then(case: Case, outcome: Outcome) -> Iterator[tuple[str, int, str]]:
    """(output, element, what is wrong with it) for the first element of each output that was written, and is wrong."""
    for expected in in_order(case.spec, case.expected):
        found = compared(outcome.outputs[expected.tensor.name], expected)
        chosen = (found.wrong & ~found.unwritten).reshape(-1)
        if chosen.any():
            flat = int(chosen.argmax())
            got, want = found.got.reshape(-1)[flat].item(), expected.value.reshape(-1)[flat].item()
            where = element(expected.tensor.name, found.got.shape, flat)
            yield expected.tensor.name, flat, f"{where} was already wrong: {got:.9g}, expected {want:.9g}"


def _is_last(lab: Lab, name: str, flat: int, writer: Writer) -> bool:
    """Whether in a case that passes the same kernel is the last to write this element of the output and its last one.

    A later kernel may add to a part of an output: a case without this element tells nothing.
    """
    tensor = next(tensor for tensor in lab.spec.outputs if tensor.name == name)
    passing = [key for key, wrong in lab.known.items() if not wrong and tensor.elements(dict(key.sizes)) > flat]
    for key in sorted(passing, key=lambda key: lab.spec.work(dict(key.sizes)))[:PASSING]:
        places = {flat, tensor.elements(dict(key.sizes)) - 1}
        outcome = lab.run(Case(lab.kata, lab.spec, key), watch=[(name, place) for place in sorted(places)])
        if outcome is not None:
            last = [outcome.writers.get(f"{name}[{place}]") for place in places]
            return all(each is not None and each.kernel == writer.kernel for each in last)
    return False
