"""Video instructions in the simulator against the PTX ISA's pseudocode, written out here."""

from __future__ import annotations

import operator
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import passed_before
import pytest

pytestmark = passed_before.GRADER

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "differential"))

import video  # noqa: E402
from program import Program  # noqa: E402
from suite import forms, programs  # noqa: E402

WORD = 2**32
EVERY = 6  # of the forms on whole registers; of those on parts, all
PRIMARY = {
    "vadd": operator.add,
    "vsub": operator.sub,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
}
COMPARED = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def typed(value: int, bits: int, name: str) -> int:
    """The low bits as a signed or an unsigned number."""
    value %= 1 << bits
    return value - (1 << bits) if name == "s32" and value >> (bits - 1) else value


def clamped(value: int, bits: int, name: str) -> int:
    low = -(1 << (bits - 1)) if name == "s32" else 0
    return max(low, min(value, low + (1 << bits) - 1))


def scalar_part(word: int, part: str, name: str) -> int:
    bits = {"": 32, ".b": 8, ".h": 16}[part[:2]]
    return typed(word >> bits * int(part[2:] or 0), bits, name)


def scalar(form: str, chosen: video.Parts, a: int, b: int, c: int) -> int:
    opcode, *words = form.split(".")
    if opcode == "vset":
        dtype, atype, btype = "u32", *words[:2]
    else:
        dtype, atype, btype = words[:3]
    x, y = scalar_part(a, chosen.a, atype), scalar_part(b, chosen.b, btype)
    if opcode == "vmad":
        return mad(words, x, y, typed(c, 32, dtype))
    bits = {"": 32, ".b": 8, ".h": 16}[chosen.d[:2]]
    if opcode in ("vshl", "vshr"):
        y = min(y, 32) if "clamp" in words else y % 32
        value = x << y if opcode == "vshl" else x >> y
    elif opcode == "vset":
        value = int(COMPARED[next(word for word in words if word in COMPARED)](x, y))
    else:
        value = PRIMARY[opcode](x, y)
    value = clamped(value, bits, dtype) if "sat" in words else value
    if "add" in words:
        value += c
    for name, choose in (("min", min), ("max", max)):
        if name in words:  # what is not saturated has 32 bits here, as in ptxas's code
            value = choose(typed(value, 32, dtype), typed(c, 32, dtype))
    if chosen.d:
        at, kept = bits * int(chosen.d[2:]), (1 << bits) - 1
        return c & ~(kept << at) | (value & kept) << at
    return value % WORD


def mad(words: list[str], x: int, y: int, c: int) -> int:
    value = x * y + c + ("po" in words)
    value >>= 7 if "shr7" in words else 15 if "shr15" in words else 0
    return (clamped(value, 32, words[0]) if "sat" in words else value) % WORD


def several(form: str, chosen: video.Parts, a: int, b: int, c: int) -> int:
    opcode, *words = form.split(".")
    name, count = opcode[:-1], int(opcode[-1])
    bits = 32 // count
    dtype, atype, btype = ("u32", *words[:2]) if name == "vset" else words[:3]
    both = b << 32 | a
    default = ("h10", "h32") if count == 2 else ("b3210", "b7654")
    picked = [
        [typed(both >> bits * int(digit), bits, kind) for digit in reversed((part or f".{usual}")[2:])]
        for part, usual, kind in zip((chosen.a, chosen.b), default, (atype, btype), strict=True)
    ]
    mask = {int(digit) for digit in chosen.d[2:]} if chosen.d else {*range(count)}
    total, merged = c, c
    for place, (x, y) in enumerate(zip(*picked, strict=True)):
        compares = next((COMPARED[word] for word in words if word in COMPARED), None)
        value = int(compares(x, y)) if compares else PRIMARY[name](x, y)
        value = clamped(value, bits, dtype) if "sat" in words else value
        if place in mask:
            total += value
            kept = (1 << bits) - 1 << bits * place
            merged = merged & ~kept | value % (1 << bits) << bits * place
    return (total if "add" in words else merged) % WORD


def expected(program: Program) -> list[int]:
    """Of each thread one result for each choice of parts."""
    choices = video.choices(program.form) if program.variant else [video.Parts("", "", "", True)]
    of = several if program.form.split(".")[0][-1] in "24" else scalar
    return [of(program.form, chosen, *operands) for operands in given(program) for chosen in choices]


def given(program: Program) -> Iterator[tuple[int, int, int]]:
    """The low words of each thread's three operands; those of a program on whole registers stand in another order."""
    words = [low for low, _ in struct.iter_unpack("<II", program.given)]
    if program.variant:
        yield from zip(words[::3], words[1::3], words[2::3], strict=True)
    else:
        count, rows = (
            program.threads,
            [words[first : first + program.threads] for first in range(0, len(words), program.threads)],
        )
        yield from zip(rows[0], rows[1], rows[2] if len(rows) > 2 else [0] * count, strict=True)


def left(program: Program, data: bytes) -> list[int]:
    if program.variant:
        return [word for (word,) in struct.iter_unpack("<I", data)]
    return [low for low, _ in struct.iter_unpack("<II", data)]


@pytest.fixture(scope="module")
def written() -> list[Program]:
    names = [form for form in forms() if form.split(".")[0].rstrip("24") in (*video.SCALAR, "vavrg")]
    assert len(names) > 700
    found = [program for group in programs(names).values() for program in group]
    return [program for place, program in enumerate(found) if program.variant or place % EVERY == 0]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory, written: list[Program]) -> list[bytes]:
    folder = tmp_path_factory.mktemp("video")
    to_run, out = folder / "programs", folder / "out"
    to_run.write_bytes(pickle.dumps(written))
    command = [sys.executable, str(HERE / "differential" / "simulate.py"), str(to_run), str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)})
    results = pickle.loads(out.read_bytes())
    assert not [found for _, found in results if found]
    return [data for data, _ in results]


def test_every_form_gives_what_the_isa_says(written: list[Program], simulated: list[bytes]) -> None:
    wrong = []
    for program, data in zip(written, simulated, strict=True):
        found, right = left(program, data), expected(program)
        wrong += [f"{program.name}: {at}" for at in [i for i in range(len(right)) if found[i] != right[i]][:1]]
    assert wrong == []
