"""Tables and recordings -> grader/devices/sim/SUPPORT.md: what the simulator executes, and how that is known.

    PYTHONPATH=. python3 tests/differential/support.py

A test keeps the file current.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import katas
from not_ptx import not_ptx
from recorded import load
from suite import NOT_COMPARED, forms, programs

PLACE = katas.ROOT / "grader" / "devices" / "sim" / "SUPPORT.md"

HEAD = """# What the simulator executes

<!-- Written by tests/differential/support.py; a test keeps it current. -->

Every row is an instruction, with the number of its forms (types, rounding modes, modifiers) in the engine's tables;
forms that ptxas refuses for sm_90a are left out. "Compared" counts the forms that were executed on a GPU and in the
simulator by the same PTX (tests/differential) on the same input, hard values among it, and left the same: to the bit
where the PTX ISA defines the result, within the error that it states where it does not. Loads, stores and atomics are
compared in every state space, with every cache hint, memory order and scope; tensor core products to the bit.

What has no row here is refused by name, with the line of the `.cu` file that it came from.

{machine}

| instruction | forms | compared |
|---|---:|---:|
{rows}

## Not compared

{not_compared}

## Katas

The solutions of these katas were called on the GPU and in the simulator with the same inputs: their outputs are equal
to the bit, or within the family's tolerance where the family leaves the order of a sum open or the ISA a rounding.

{kata_machine}

| kata | compared on |
|---|---|
{kata_rows}
"""


def support() -> str:
    """The file's text."""
    recording = load()
    known = [form for form in forms() if form not in not_ptx()]
    names = {program.name: program.form for group in programs(known).values() for program in group}
    compared = {names[name] for name in recording.results if name in names}
    return HEAD.format(
        machine=_machine(recording.machine.__dict__),
        rows="\n".join(_rows(known, compared)),
        not_compared="\n".join(_reasons(known, compared)),
        kata_machine=_machine(katas.load().machine.__dict__),
        kata_rows="\n".join(kata_rows(katas.comparable())),
    )


def _machine(fields: dict[str, str]) -> str:
    titles = {"date": "recorded", "gpu": "GPU", "driver": "driver", "nvcc": "nvcc", "ptxas": "ptxas"}
    head = "| " + " | ".join(titles.values()) + " |"
    return "\n".join((head, "|---" * len(titles) + "|", "| " + " | ".join(fields[name] for name in titles) + " |"))


def _rows(known: Iterable[str], compared: set[str]) -> list[str]:
    total, done = (Counter(form.split(".")[0] for form in names) for names in (known, compared))
    rows = [f"| `{name}` | {count} | {done[name]} |" for name, count in sorted(total.items())]
    return [*rows, f"| all | {total.total()} | {done.total()} |"]


def _reasons(known: Iterable[str], compared: set[str]) -> list[str]:
    reasons = {form: NOT_COMPARED.get(form, "new: not recorded yet") for form in known if form not in compared}
    return [f"* `{form}`: {reason}" for form, reason in reasons.items()]


def kata_rows(recorded: Iterable[katas.Ran]) -> list[str]:
    """A kata that was added or changed since the recording is listed too."""
    shapes: dict[str, list[str]] = {}
    for ran in recorded:
        shapes.setdefault(ran.kata, []).append(f"{ran.shape}, {ran.shape.values}")
    return [f"| `{name}` | {'; '.join(shapes.get(name, ['not compared']))} |" for name in katas.all_katas()]


if __name__ == "__main__":
    PLACE.write_text(support())
    print(f"{PLACE.name} written")
