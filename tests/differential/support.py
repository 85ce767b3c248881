"""Tables and recordings -> grader/devices/sim/support.json: what the simulator executes, and how that is known.

    PYTHONPATH=. python3 tests/differential/support.py
    kata dev tables

The second writes SUPPORT.md from it. A test keeps the file current.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import katas
from not_ptx import not_ptx
from recorded import Machine, load_all
from suite import NOT_COMPARED, forms, programs

from grader.maintain.support import FILE, Support, text_of

PLACE = katas.ROOT / FILE


def support() -> str:
    """The file's text."""
    recording = load_all()
    known = [form for form in forms() if form not in not_ptx()]
    names = {program.name: program.form for group in programs(known).values() for program in group}
    compared = {names[name] for name in recording.results if name in names}
    return text_of(
        Support(
            _facts(recording.machine),
            _counts(known, compared),
            _reasons([form for form in known if form not in compared]),
            _facts(katas.load().machine),
            shapes_of(katas.comparable()),
        )
    )


def _reasons(missing: Iterable[str]) -> Mapping[str, str]:
    """What is not compared -> why."""
    return {form: NOT_COMPARED.get(form, "new: not recorded yet") for form in missing}


def _facts(machine: Machine) -> Mapping[str, str]:
    return dict(machine.__dict__)


def _counts(known: Iterable[str], compared: set[str]) -> Mapping[str, tuple[int, int]]:
    total, done = (Counter(form.split(".")[0] for form in names) for names in (known, compared))
    return {name: (count, done[name]) for name, count in sorted(total.items())}


def shapes_of(recorded: Iterable[katas.Ran]) -> Mapping[str, list[str]]:
    """The shapes of each kata, in the order of the catalogue; a kata that changed since the recording has none."""
    shapes: dict[str, list[str]] = {}
    for ran in recorded:
        shapes.setdefault(ran.kata, []).append(f"{ran.shape}, {ran.shape.values}")
    return {name: shapes[name] for name in katas.all_katas() if name in shapes}


if __name__ == "__main__":
    PLACE.write_text(support())
    print(f"{PLACE.name} written; now run `kata dev tables`")
