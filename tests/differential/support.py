"""Tables and recording -> grader/devices/sim/SUPPORT.md: what the simulator executes, and how that is known.

    PYTHONPATH=. python3 tests/differential/support.py

A test keeps the file current.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from not_ptx import not_ptx
from recorded import FILE, load

from grader.cache import cache_folder
from grader.devices.sim import engine_library, supported_instructions

PLACE = Path(__file__).resolve().parent.parent.parent / "grader" / "devices" / "sim" / "SUPPORT.md"

HEAD = """# What the simulator executes

<!-- Written by tests/differential/support.py; a test keeps it current. -->

Every row is an instruction, with the number of its forms (types, rounding modes, modifiers) in the engine's tables.
"On the card" counts the forms that were executed on a GPU and in the simulator with the same operands, hard values
among them, and gave the same: to the bit where the PTX ISA defines the result, within the error that it states where
it does not. The recording is tests/differential/expected.xz, made on: {about}.
The other forms access memory, move control or join lanes: kernels in tests/sim_kernels and the solutions cover them.

What has no row here is refused by name, with the line of the `.cu` file that it came from.

| instruction | forms | on the card |
|---|---:|---:|
"""


def support() -> str:
    """The file's text."""
    recording = load(Path(__file__).parent / FILE)
    forms = [form for form in supported_instructions(engine_library(cache_folder())) if form not in not_ptx()]
    known = Counter(form.split(".")[0] for form in forms)
    compared = Counter(name.split(".")[0] for name in recording.results)
    rows = [f"| `{name}` | {count} | {compared[name] or ''} |" for name, count in sorted(known.items())]
    total = f"| all | {sum(known.values())} | {sum(compared.values())} |"
    return HEAD.format(about=recording.about) + "\n".join([*rows, total]) + "\n"


if __name__ == "__main__":
    PLACE.write_text(support())
    print(f"{PLACE.name} written")
