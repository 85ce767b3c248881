"""support.json -> tables of what the simulator executes, and how much of it was compared with a GPU.

tests/differential/support.py writes support.json, from the engine's tables and from what was recorded on a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.content.catalog import LEVELS, Catalog
from grader.fault import Fault

FILE = Path("grader/devices/sim/support.json")
_MACHINE = {"date": "recorded", "gpu": "GPU", "driver": "driver", "nvcc": "nvcc", "ptxas": "ptxas"}


class SupportError(Fault):
    """support.json cannot be read; the message says what writes it."""


@dataclass(frozen=True)
class Support:
    """What the simulator executes.

    ``forms``: an instruction -> (how many forms the engine has, how many of them were compared). ``not_compared``: the
    others -> why not. ``katas``: a kata whose outputs were compared -> on which shapes. The machines are those that
    recorded the forms and the katas.
    """

    machine: Mapping[str, str]
    forms: Mapping[str, tuple[int, int]]
    not_compared: Mapping[str, str]
    kata_machine: Mapping[str, str]
    katas: Mapping[str, Sequence[str]]


def text_of(found: Support) -> str:
    """The file's text: a line for each instruction and each kata."""
    forms = {name: {"forms": total, "compared": done} for name, (total, done) in found.forms.items()}
    parts = {
        "instructions": {"recorded": found.machine, "forms": forms, "not_compared": found.not_compared},
        "katas": {"recorded": found.kata_machine, "compared_on": found.katas},
    }
    return f"{_lines(parts)}\n"


def _lines(value: Mapping[str, Any], depth: int = 0) -> str:
    """A mapping as JSON; three levels down each value has one line."""
    indent = " " * (depth + 1)
    entries = (
        f"{indent}{json.dumps(name)}: {_lines(item, depth + 1) if depth < 2 else json.dumps(item)}"
        for name, item in value.items()
    )
    return "{\n" + ",\n".join(entries) + f"\n{' ' * depth}}}"


def read(root: Path) -> Support:
    """Raises SupportError."""
    try:
        found = json.loads((root / FILE).read_text(encoding="utf-8"))
        instructions, katas = found["instructions"], found["katas"]
        return Support(
            {name: instructions["recorded"][name] for name in _MACHINE},
            {name: (int(row["forms"]), int(row["compared"])) for name, row in instructions["forms"].items()},
            dict(instructions["not_compared"]),
            {name: katas["recorded"][name] for name in _MACHINE},
            dict(katas["compared_on"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SupportError(f"{FILE}: not what tests/differential/support.py writes ({error!r}). Run that.") from None


def instructions(found: Support) -> str:
    """Where they were compared, and a row for each instruction."""
    rows = [f"| `{name}` | {total} | {done} |" for name, (total, done) in found.forms.items()]
    head = ["| instruction | forms | compared |", "|---|---:|---:|"]
    total, done = _totals(found)
    return "\n".join([_machine(found.machine), "", *head, *rows, f"| all | {total} | {done} |"])


def not_compared(found: Support) -> str:
    """A list of the forms that were not compared, each with its reason."""
    reasons = [f"* `{form}`: {reason}" for form, reason in found.not_compared.items()]
    return "\n".join(reasons) or "Every form was compared."


def katas(catalog: Catalog, found: Support) -> str:
    """Where they were compared, and a row for each kata; one that is new or has changed since then was not."""
    rows = [f"| `{name}` | {'; '.join(found.katas.get(name, ['not compared']))} |" for name in catalog.katas]
    return "\n".join([_machine(found.kata_machine), "", "| kata | compared on |", "|---|---|", *rows])


def summary(catalog: Catalog, found: Support) -> str:
    """How many katas of each level, and how many forms of instructions, work and were compared."""
    gpu, day = found.machine["gpu"], found.machine["date"]
    rows = [f"| without a GPU | works | compared with an {gpu}, {day} |", "|---|---:|---:|"]
    for level in LEVELS:
        names = [kata.name for kata in catalog.katas.values() if kata.level == level]
        rows += [f"| katas, {level} | {len(names)} | {sum(name in found.katas for name in names)} |"] if names else []
    total, done = _totals(found)
    return "\n".join([*rows, f"| forms of PTX instructions | {total:,} | {done:,} |"])


def _totals(found: Support) -> tuple[int, int]:
    return sum(total for total, _ in found.forms.values()), sum(done for _, done in found.forms.values())


def _machine(machine: Mapping[str, str]) -> str:
    head = f"| {' | '.join(_MACHINE.values())} |"
    return "\n".join([head, "|---" * len(_MACHINE) + "|", f"| {' | '.join(machine[name] for name in _MACHINE)} |"])
