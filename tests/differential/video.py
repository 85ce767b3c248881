"""Video instructions on parts of registers: bytes and halves of the sources, and of the result where it has parts.

Their forms on whole registers are in scalar.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from operands import slots
from program import Program, lines

THREADS = 64
CHOICES = 2  # of parts, for each form
SCALAR = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset")
_SECOND = ("add", "min", "max")
_PARTS = ("", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1")


@dataclass(frozen=True)
class Parts:
    """What stands behind the names of d, a and b; ``takes_c``: whether c follows."""

    d: str
    a: str
    b: str
    takes_c: bool


def choices(form: str) -> list[Parts]:
    """The same ones in every run."""
    source = random.Random(form)
    name, *modifiers = form.split(".")
    count = {"2": 2, "4": 4}.get(name[-1])
    if count is None:
        merges = name != "vmad" and not {*modifiers} & {*_SECOND}
        drawn = [
            Parts(source.choice(_PARTS[1:]) if merges else "", *source.sample(_PARTS, 2), True) for _ in range(CHOICES)
        ]
        # No result becomes the upper half, and none that is saturated a part.
        return [each for each in drawn if each.d != ".h1" and not (each.d and "sat" in modifiers)]
    letter = "h" if count == 2 else "b"
    masks = ("", ".h0", ".h1", ".h10") if count == 2 else ("", ".b0", ".b2", ".b31", ".b210", ".b3210")

    def numbers() -> str:
        return f".{letter}" + "".join(str(source.randrange(2 * count)) for _ in range(count))

    return [Parts(source.choice(masks), numbers(), numbers(), True) for _ in range(CHOICES)]


def parts(form: str) -> Iterator[Program]:
    """Each thread executes the form once for each choice of parts, on the same three operands."""
    body = ["ld.global.b32 %r1, [%from]; ld.global.b32 %r2, [%from+8]; ld.global.b32 %r3, [%from+16];"]
    for place, chosen in enumerate(choices(form)):
        body.append(f"{form} %r8{chosen.d}, %r1{chosen.a}, %r2{chosen.b}, %r3; st.global.b32 [%to+{4 * place}], %r8;")
    given, stride = slots(form, (4, 4, 4), THREADS), 4 * len(choices(form))
    if stride:
        yield Program(form, lines(*body), given, variant="parts", in_stride=24, out_stride=stride, threads=THREADS)


PROGRAMS = {
    **{f"{name}.": parts for name in SCALAR},
    **{
        f"v{name}{count}.": parts for name in ("add", "sub", "avrg", "absdiff", "min", "max", "set") for count in (2, 4)
    },
}
