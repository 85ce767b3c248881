"""What the simulator and a GPU left -> where they differ by more than they may.

Equal to the bit where the ISA defines the result, within the ISA's stated error where it does not. A NaN's payload is
not defined. The ISA leaves open how tensor cores round their sums; the engine does as Hopper does, so these too are
equal to the bit, for values of every magnitude.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping

import scalar
from program import Program
from scalar import LANES, SLOT, Form

# PTX ISA, section of each instruction: (relative, absolute) error that is allowed; either is enough.
APPROXIMATE: Mapping[str, tuple[float, float]] = {
    "ex2.approx": (2.0**-21, 2.0**-126),
    "ex2.approx.f16": (2.0**-9.9, 2.0**-24),
    "ex2.approx.ftz.bf16": (2.0**-7, 2.0**-126),
    "lg2.approx": (2.0**-20, 2.0**-21.6),
    "sin.approx": (0.0, 2.0**-20.5),
    "cos.approx": (0.0, 2.0**-20.5),
    "tanh.approx.f32": (2.0**-10.9, 0.0),
    "tanh.approx.f16": (2.0**-9.9, 2.0**-24),
    "tanh.approx.bf16": (2.0**-7, 2.0**-126),
    "rcp.approx": (2.0**-22, 2.0**-126),
    "rcp.approx.ftz.f64": (2.0**-19, 0.0),
    "rsqrt.approx.ftz.f64": (2.0**-19, 0.0),
    "rsqrt.approx.f64": (2.0**-50, 0.0),
    "sqrt.approx": (2.0**-22, 2.0**-126),
    "rsqrt.approx": (2.0**-21.9, 2.0**-126),
    "div.approx": (2.0**-21.9, 2.0**-126),
    "div.full": (2.0**-21.9, 2.0**-126),
}


def differences(program: Program, got: bytes, expected: bytes, form: Form | None = None) -> list[str]:
    """One line for each place; ``form`` is that of a program on registers alone."""
    if len(got) != len(expected):
        return [f"{len(got)} bytes, the GPU left {len(expected)}"]
    if form is not None:
        return [f"lane {lane} gives {a:#x}, the GPU {b:#x}" for lane, a, b in compare_lanes(form, got, expected)]
    return [f"byte {place} begins {a.hex()}, the GPU's {b.hex()}" for place, a, b in _elements(program, got, expected)]


def _elements(program: Program, got: bytes, expected: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Elements that differ, where two NaNs do not."""
    if got == expected:
        return
    width = 4 if not program.floats else _FLOATS[program.floats][0] // 8
    for place in range(0, len(got), width):
        a, b = got[place : place + width], expected[place : place + width]
        if a != b and not (program.floats and _both_nan(program.floats, a, b)):
            yield place, a, b


def _both_nan(kind: str, a: bytes, b: bytes) -> bool:
    return all(math.isnan(_value(int.from_bytes(bits, "little"), kind)) for bits in (a, b))


# -- forms on registers alone ----------------------------------------------------------------------------------------


def compare_lanes(form: Form, got: bytes, expected: bytes) -> Iterator[tuple[int, int, int]]:
    """(lane, simulated bits, the GPU's bits) of every lane that differs by more than it may."""
    if got == expected:
        return
    angles = scalar.operands(form) if form.name.startswith(("sin.approx", "cos.approx")) else None
    for lane in range(LANES):
        if angles is not None and not _within_pi(angles, lane):
            continue  # the ISA bounds the error only there
        a = int.from_bytes(got[lane * SLOT : (lane + 1) * SLOT], "little")
        b = int.from_bytes(expected[lane * SLOT : (lane + 1) * SLOT], "little")
        if a != b and not _equal_as_floats(form, a, b):
            yield lane, a, b


def _within_pi(given: bytes, lane: int) -> bool:
    (angle,) = struct.unpack_from("<f", given, lane * SLOT)
    return not abs(angle) > math.pi


_FLOATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "tf32": (32, 23), "f64": (64, 52)}


def _equal_as_floats(form: Form, a: int, b: int) -> bool:
    types = form.result_types
    named = types[0] if form.name.split(".")[0] in ("cvt", "set") and types else types[-1] if types else ""
    kind, pairs = named.removesuffix("x2"), named.endswith("x2")
    if kind not in _FLOATS or form.operands[0] == 0:
        return False
    bits = _FLOATS[kind][0]
    if max(a, b) >> (2 * bits if pairs else bits):
        return False
    parts = ((a & 0xFFFF, b & 0xFFFF), (a >> 16, b >> 16)) if pairs else ((a, b),)
    return all(x == y or _close(form, _value(x, kind), _value(y, kind)) for x, y in parts)


def _value(bits: int, kind: str) -> float:
    if kind == "bf16":
        bits, kind = bits << 16, "f32"
    width, code = {"f16": (2, "<e"), "f32": (4, "<f"), "tf32": (4, "<f"), "f64": (8, "<d")}[kind]
    return float(struct.unpack(code, bits.to_bytes(width, "little"))[0])


def _close(form: Form, x: float, y: float) -> bool:
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    prefix = max((name for name in APPROXIMATE if form.name.startswith(name)), key=len, default=None)
    if prefix is None or math.isinf(x) or math.isinf(y):
        return False
    relative, absolute = APPROXIMATE[prefix]
    return abs(x - y) <= max(relative * abs(y), absolute)
