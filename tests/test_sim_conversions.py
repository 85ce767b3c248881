"""The simulator's fp8 conversions, packed integers and vector atomics against references written out here."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import passed_before
import pytest
import torch
from sim_kernels.exact import FORMATS, encode
from sim_kernels.harness import given, open_device, run, unpack, wanted

from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE = Path(__file__).parent / "sim_kernels" / "conversions.cu"
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
FLOAT8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def results(device: SimDevice, name: str, *operands: Sequence[int]) -> list[int]:
    n = len(operands[0])
    lists = [*operands, *([0] * n for _ in range(3 - len(operands)))]
    sources = (given(letter, "u32", values) for letter, values in zip("abc", lists, strict=True))
    outcome = run(device, name, *sources, wanted("d", "u32", n), n)
    assert outcome.findings == ()
    return [int(d) for d in unpack("u32", outcome.outputs["d"])]


def narrowed(values: torch.Tensor, kind: str, *, relu: bool) -> list[int]:
    """The fp8 patterns: saturated, rounded to nearest even; any NaN is 0x7f."""
    x = torch.where(values > 0, values, torch.where(values.isnan(), values, 0.0)) if relu else values
    bits = x.clamp(-LARGEST[kind], LARGEST[kind]).to(FLOAT8[kind]).view(torch.uint8)
    return torch.where(values.isnan(), 0x7F, bits).tolist()


def single_values(kind: str) -> torch.Tensor:
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(FLOAT8[kind]).float()
    codes = codes[codes.isfinite()]
    ordered = codes.unique()
    halfway = (ordered[1:] + ordered[:-1]) / 2  # ties
    near = [torch.nextafter(halfway, torch.tensor(to)) for to in (-torch.inf, torch.inf)]
    odd = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 3e38, -3e38, 464.0, 465.0, 61440.0])
    return torch.cat([codes, halfway, *near, odd, torch.randn(500, generator=torch.Generator().manual_seed(1)) * 50])


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", FLOAT8)
def test_fp8_from_single(device: SimDevice, kind: str, relu: bool) -> None:
    low = single_values(kind)
    high = low.roll(7)
    bits = [[x % 2**32 for x in values.view(torch.int32).tolist()] for values in (high, low)]
    found = results(device, f"{kind}_relu_f32" if relu else f"{kind}_f32", *bits)
    assert [d & 255 for d in found] == narrowed(low, kind, relu=relu)
    assert [d >> 8 for d in found] == narrowed(high, kind, relu=relu)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", FLOAT8)
def test_fp8_from_every_half(device: SimDevice, kind: str, relu: bool) -> None:
    halves = list(range(2**16))
    found = results(device, f"{kind}_relu_f16" if relu else f"{kind}_f16", [h | (h ^ 0x5A5A) << 16 for h in halves])
    patterns = torch.tensor(halves, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    expected = narrowed(patterns, kind, relu=relu)
    assert [d & 255 for d in found] == expected
    assert [d >> 8 for d in found] == [expected[h ^ 0x5A5A] for h in halves]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", FLOAT8)
def test_half_from_every_fp8(device: SimDevice, kind: str, relu: bool) -> None:
    codes = list(range(256))
    found = results(device, f"f16_relu_{kind}" if relu else f"f16_{kind}", [c | (255 - c) << 8 for c in codes])
    values = torch.tensor(codes, dtype=torch.uint8).view(FLOAT8[kind]).half()
    halves = [x % 2**16 for x in values.view(torch.int16).tolist()]
    for code, d in zip(codes, found, strict=True):
        for half, source in ((d & 0xFFFF, code), (d >> 16, 255 - code)):
            if values[source].isnan():
                assert half & 0x7FFF > 0x7C00
            else:
                assert half == (0 if relu and halves[source] & 0x8000 else halves[source])


def signed(a: int, bits: int = 32) -> int:
    a %= 2**bits
    return a - 2**bits if a >> (bits - 1) else a


DIRECTED = [
    *(f"{mode}_f16_s32" for mode in ("rz", "rm", "rp")), "rz_f16_u32", "rp_f16_u32", "rz_bf16_s32", "rm_bf16_s32",
    "rp_bf16_u32",
]  # fmt: skip


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_conversion_of_integers_to_halves(device: SimDevice, name: str) -> None:
    mode, half, kind = name.split("_")
    dice = random.Random(3)
    values = [0, 1, 2047, 2049, 2051, 65503, 65504, 65505, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 2049]
    values += [dice.getrandbits(dice.randrange(1, 33)) for _ in range(400)]
    exact = [Fraction(signed(a) if kind == "s32" else a) for a in values]
    assert results(device, name, values) == [encode(FORMATS[half], x, mode) for x in exact]


def parts(word: int, bits: int, *, is_signed: bool = False) -> list[int]:
    fields = [word >> at & (2**bits - 1) for at in range(0, 32, bits)]
    return [signed(field, bits) for field in fields] if is_signed else fields


def joined(fields: Sequence[int], bits: int) -> int:
    return sum((field % 2**bits) << bits * i for i, field in enumerate(fields))


def clamp(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


def distances(a: int, b: int, bits: int, *, is_signed: bool = False) -> list[int]:
    pairs = zip(parts(a, bits, is_signed=is_signed), parts(b, bits, is_signed=is_signed), strict=True)
    return [abs(x - y) for x, y in pairs]


def dot(a: list[int], b: list[int], c: int) -> int:
    return (sum(x * y for x, y in zip(a, b, strict=True)) + c) % 2**32


PACKED: dict[str, Callable[[int, int, int], int]] = {
    "vabsdiff4_u32": lambda a, b, c: joined(distances(a, b, 8), 8),
    "vabsdiff4_s32": lambda a, b, c: joined(distances(a, b, 8, is_signed=True), 8),
    "vabsdiff4_u32_add": lambda a, b, c: (sum(distances(a, b, 8)) + c) % 2**32,
    "vabsdiff2_u32_add": lambda a, b, c: (sum(distances(a, b, 16)) + c) % 2**32,
    "dp2a_lo_u32_s32": lambda a, b, c: dot(parts(a, 16), parts(b, 8, is_signed=True)[:2], c),
    "dp2a_hi_s32_u32": lambda a, b, c: dot(parts(a, 16, is_signed=True), parts(b, 8)[2:], c),
    "dp4a_s32_u32": lambda a, b, c: dot(parts(a, 8, is_signed=True), parts(b, 8), c),
    "max_s16x2_relu": lambda a, b, c: joined(
        [max(x, y, 0) for x, y in zip(parts(a, 16, is_signed=True), parts(b, 16, is_signed=True), strict=True)], 16
    ),
    "min_s32_relu": lambda a, b, c: max(min(signed(a), signed(b)), 0),
    "pack_s16": lambda a, b, c: joined([clamp(signed(x), -(2**15), 2**15 - 1) for x in (b, a)], 16),
    "pack_u16": lambda a, b, c: joined([clamp(signed(x), 0, 2**16 - 1) for x in (b, a)], 16),
    "pack_s8": lambda a, b, c: joined([clamp(signed(x), -128, 127) for x in (b, a)], 8) | (c & 0xFFFF) << 16,
    "pack_u8": lambda a, b, c: joined([clamp(signed(x), 0, 255) for x in (b, a)], 8) | (c & 0xFFFF) << 16,
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_integers(device: SimDevice, name: str) -> None:
    dice = random.Random(name)
    odd = [0, 1, 127, 128, 255, 256, 2**15, 2**16, 0x80808080, 0x7F7F7F7F, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 129]
    triples = [(a, b, dice.choice(odd)) for a in odd for b in odd]
    triples += [(dice.getrandbits(32), dice.getrandbits(32), dice.getrandbits(32)) for _ in range(300)]
    triples += [(dice.randrange(-400, 400) % 2**32, dice.randrange(-400, 400) % 2**32, 7) for _ in range(100)]
    assert results(device, name, *zip(*triples, strict=True)) == [PACKED[name](*triple) for triple in triples]


def test_vector_atomics(device: SimDevice) -> None:
    outcome = run(device, "vector_red", wanted("sums", "f32", 6))
    assert outcome.findings == ()
    assert unpack("f32", outcome.outputs["sums"]) == [sum(x + i for x in range(64)) for i in range(6)]


def test_vector_reduction_of_halves(device: SimDevice) -> None:
    outcome = run(device, "half_red", wanted("sums", "u32", 4))
    assert outcome.findings == ()
    halves = torch.frombuffer(bytearray(outcome.outputs["sums"]), dtype=torch.float16)
    assert halves.tolist() == [64.0, 128.0, 64.0, -64.0] * 2
