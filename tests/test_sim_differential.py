"""The simulator against a GPU, form by form: the same PTX, the same operands, recorded results.

Equal to the bit where the ISA defines the result, within the ISA's stated error where it does not. A NaN's payload is
not defined. To record anew on a GPU: PYTHONPATH=. python3 tests/differential/capture.py
"""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from grader.cache import cache_folder
from grader.devices.sim import engine_library
from grader.devices.sim.library import load_engine

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "differential"))

from programs import LANES, SLOT, Form, operands, parse_signatures  # noqa: E402
from recorded import FILE, load  # noqa: E402

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


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every recorded form's result on the simulator, computed in a process of its own."""
    out = tmp_path_factory.mktemp("differential") / "simulated"
    command = [sys.executable, str(HERE / "differential" / "simulate.py"), str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)})
    data = out.read_bytes()
    names = list(load(HERE / "differential" / FILE).results)
    size = LANES * SLOT
    return {name: data[place * size : (place + 1) * size] for place, name in enumerate(names)}


def test_every_recorded_form_gives_what_the_gpu_gave(simulated: dict[str, bytes]) -> None:
    recording = load(HERE / "differential" / FILE)
    forms = {form.name: form for form in _forms()}
    wrong = []
    for name, expected in recording.results.items():
        differences = list(compare(forms[name], simulated[name], expected))
        if differences:
            lane, got, want = differences[0]
            wrong.append(f"{name}: {len(differences)} of {LANES} lanes; lane {lane} gives {got:#x}, the GPU {want:#x}")
    assert not wrong, f"{len(wrong)} forms differ from {recording.about}:\n" + "\n".join(wrong)


def test_the_recording_covers_the_tables() -> None:
    """A new row of the tables is compared with a GPU before it is called supported."""
    recorded = load(HERE / "differential" / FILE).results
    missing = [form.name for form in _forms() if form.name not in recorded and form.name not in NOT_PTX]
    assert not missing, f"not recorded: {missing[:20]}; run tests/differential/capture.py on a GPU"


NOT_PTX = frozenset((HERE / "differential" / "not_ptx.txt").read_text().split())


def test_a_wrong_result_would_be_seen(simulated: dict[str, bytes]) -> None:
    recording = load(HERE / "differential" / FILE)
    forms = {form.name: form for form in _forms()}
    for name in ("add.s32", "fma.rn.f32", "setp.lt.f32", "ex2.approx.f32"):
        spoilt = bytearray(recording.results[name])
        spoilt[3] ^= 0x40  # of lane 0: the top of a 32-bit result
        spoilt[0] ^= 1
        assert list(compare(forms[name], simulated[name], bytes(spoilt))), name


def test_the_support_table_is_current() -> None:
    from support import PLACE, support

    assert PLACE.read_text() == support(), "run tests/differential/support.py"


def _forms() -> list[Form]:
    engine = load_engine(engine_library(cache_folder()))
    return parse_signatures(engine.sim_signatures().decode())


def compare(form: Form, got: bytes, expected: bytes) -> Iterator[tuple[int, int, int]]:
    """(lane, simulated bits, the GPU's bits) of every lane that differs by more than it may."""
    given = operands(form)
    for lane in range(LANES):
        if form.name.startswith(("sin.approx", "cos.approx")) and not _within_pi(given, lane):
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
