"""The simulator's arithmetic against exact references, on hard values and random ones."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import passed_before
import pytest
from sim_kernels.exact import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    NAN,
    OPERATIONS,
    Format,
    arithmetic,
    convert,
    encode,
    is_inf,
    is_nan,
    to_integer,
    value,
)  # fmt: skip
from sim_kernels.harness import given, open_device, run, unpack, wanted

from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

Reference = Callable[..., int]
CONSTRAINTS = {16: "h", 32: "r", 64: "l"}
TYPES = {16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}


@dataclass(frozen=True)
class Case:
    """One instruction: widths in bits of destination and sources, the assembly, what it must give."""

    form: str
    result: int
    sources: tuple[int, ...]
    reference: Reference
    nan_of: Format | None = None  # the result's format where any NaN will do
    assembly: str = ""
    values: tuple[str, ...] = ()  # formats of the sources; empty: integers

    @property
    def name(self) -> str:
        return "k_" + "".join(c if c.isalnum() else "_" for c in self.form)

    def kernel(self) -> str:
        letters = "abc"[: len(self.sources)]
        text = self.assembly or f"{self.form} %0, {', '.join(f'%{i + 1}' for i in range(len(self.sources)))};"
        loads = "".join(f"{TYPES[w]} {v} = ({TYPES[w]}){v}s[i]; " for w, v in zip(self.sources, letters, strict=True))
        inputs = ", ".join(f'"{CONSTRAINTS[w]}"({v})' for w, v in zip(self.sources, letters, strict=True))
        parameters = "".join(f"const unsigned long long* {v}s, " for v in letters)
        arguments = "".join(f"{v}s, " for v in letters)
        return (
            f"__global__ void {self.name}_kernel({parameters}unsigned long long* ds, int n) {{\n"
            f"  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n"
            f"  {loads}{TYPES[self.result]} d;\n"
            f'  asm volatile("{text}" : "={CONSTRAINTS[self.result]}"(d) : {inputs});\n  ds[i] = d;\n}}\n'
            f"KATA_EXPORT void {self.name}({parameters}unsigned long long* ds, int n, cudaStream_t s) {{\n"
            f"  {self.name}_kernel<<<(n + 127) / 128, 128, 0, s>>>({arguments}ds, n);\n}}\n"
        )


# ---- floating point


def rounded_arithmetic() -> Iterator[Case]:
    modes = {"f16": ("rn",), "bf16": ("rn",), "f32": ("rn", "rz", "rm", "rp"), "f64": ("rn", "rz", "rm", "rp")}
    for f in FORMATS.values():
        for name, (count, exact, terms) in OPERATIONS.items():
            if name == "div" and f.bits == 16:
                continue
            for mode in modes[f.name]:
                yield Case(
                    f"{name}.{mode}.{f.name}", f.bits, (f.bits,) * count, arithmetic(f, mode, exact, terms), f,
                    values=(f.name,) * count,
                )  # fmt: skip


def square_root(f: Format, bits: int) -> int:
    if is_nan(f, bits) or (bits & f.sign and bits != f.sign):
        return NAN
    if is_inf(f, bits) or value(f, bits) == 0:
        return bits
    x = value(f, bits)
    scale = 4**1200
    root = math.isqrt(x.numerator * scale * x.denominator)
    exact = Fraction(root, x.denominator * 2**1200)
    # A remainder only moves the root within far less than half a place.
    return encode(f, exact + (Fraction(1, 2**4000) if root * root != x.numerator * scale * x.denominator else 0))


def ordered_pick(f: Format, a: int, b: int, *, least: bool, nan: bool) -> int:
    if is_nan(f, a) or is_nan(f, b):
        both = is_nan(f, a) and is_nan(f, b)
        return NAN if nan or both else b if is_nan(f, a) else a

    def key(bits: int) -> int:
        return -(bits & ~f.sign) - 1 if bits & f.sign else bits

    return min(a, b, key=key) if least else max(a, b, key=key)


def float_cases() -> Iterator[Case]:
    yield from rounded_arithmetic()
    for f in (F32, F64):
        yield Case(f"sqrt.rn.{f.name}", f.bits, (f.bits,), lambda a, f=f: square_root(f, a), f, values=(f.name,))
    for f in FORMATS.values():
        for name, least in (("min", True), ("max", False)):
            for nan in (False, True) if f is not F64 else (False,):
                yield Case(
                    f"{name}{'.NaN' if nan else ''}.{f.name}", f.bits, (f.bits,) * 2,
                    lambda a, b, f=f, least=least, nan=nan: ordered_pick(f, a, b, least=least, nan=nan), f,
                    values=(f.name,) * 2,
                )  # fmt: skip
    for f in (F32, F64):
        yield Case(f"neg.{f.name}", f.bits, (f.bits,), lambda a, f=f: a ^ f.sign, f, values=(f.name,))
        yield Case(f"abs.{f.name}", f.bits, (f.bits,), lambda a, f=f: a & ~f.sign, f, values=(f.name,))
    yield from conversions()
    yield from comparisons()


def conversions() -> Iterator[Case]:
    def between(s: Format, t: Format, mode: str, dot: str) -> Case:
        return Case(
            f"cvt{dot}.{t.name}.{s.name}", t.bits, (s.bits,), lambda a: convert(s, t, mode, a), t, values=(s.name,)
        )

    for mode in ("rn", "rz", "rm", "rp"):
        yield between(F64, F32, mode, f".{mode}")
    for target in (F16, BF16):
        yield between(target, F32, "rn", "")
        for mode in ("rn", "rz"):
            yield between(F32, target, mode, f".{mode}")
    yield between(F64, F16, "rn", ".rn")
    yield between(F32, F64, "rn", "")
    for s in (F16, F32, F64):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            for name, bits in (("s32", 32), ("u32", 32), ("s64", 64), ("u64", 64), ("s16", 16), ("u16", 16)):
                low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if name[0] == "s" else (0, 2**bits - 1)
                yield Case(
                    f"cvt.{mode}.{name}.{s.name}", bits, (s.bits,),
                    lambda a, s=s, m=mode, lo=low, hi=high, b=bits: to_integer(s, m, lo, hi, a) % 2**b,
                    values=(s.name,),
                )  # fmt: skip
    for t in FORMATS.values():
        for mode in ("rn",) if t.bits == 16 else ("rn", "rz", "rm", "rp"):
            for name, bits in (("s32", 32), ("u32", 32), ("s64", 64), ("u64", 64), ("s16", 16), ("u16", 16)):
                yield Case(
                    f"cvt.{mode}.{t.name}.{name}", t.bits, (bits,),
                    lambda a, t=t, m=mode, b=bits, s=name[0]: encode(t, Fraction(signed(a, b) if s == "s" else a), m),
                    t,
                )  # fmt: skip
    for s in (F16, F32):
        yield Case(
            f"cvt.rni.{s.name}.{s.name}", s.bits, (s.bits,),
            lambda a, s=s: NAN if is_nan(s, a) else a if is_inf(s, a) else encode(
                s, Fraction(round(value(s, a))), negative_zero=bool(a & s.sign)
            ), s, values=(s.name,),
        )  # fmt: skip


def comparisons() -> Iterator[Case]:
    tests: dict[str, Callable[[object, object], bool]] = {
        "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,  # type: ignore[operator]
        "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,  # type: ignore[operator]
    }  # fmt: skip

    def order(f: Format, bits: int) -> int:
        return -(bits & ~f.sign) if bits & f.sign else bits

    for f in (F16, F32, F64):
        for name, test in tests.items():
            for unordered in (False, True):
                form = f"setp.{name}{'u' if unordered else ''}.{f.name}"
                assembly = f"{{.reg .pred p; {form} p, %1, %2; selp.u32 %0, 1, 0, p;}}"
                yield Case(
                    form, 32, (f.bits,) * 2,
                    lambda a, b, f=f, t=test, u=unordered: int(
                        u if is_nan(f, a) or is_nan(f, b) else t(order(f, a), order(f, b))
                    ), assembly=assembly, values=(f.name,) * 2,
                )  # fmt: skip
    for kind in ("s32", "u32", "s64", "u64", "s16", "u16"):
        width = int(kind[1:])
        for name, test in tests.items():
            form = f"setp.{name}.{kind}"
            yield Case(
                form, 32, (width, width),
                lambda a, b, t=test, w=width, s=kind[0]: int(t(signed(a, w), signed(b, w)) if s == "s" else t(a, b)),
                assembly=f"{{.reg .pred p; {form} p, %1, %2; selp.u32 %0, 1, 0, p;}}",
            )  # fmt: skip


# ---- integers


def signed(a: int, bits: int) -> int:
    a %= 2**bits
    return a - 2**bits if a >> (bits - 1) else a


def truncated_division(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return -q if (a < 0) != (b < 0) else q


def funnel_right(a: int, b: int, n: int) -> int:
    return ((b << 32 | a) >> n) % 2**32


def bit_field(a: int, p: int, n: int, *, width: int, is_signed: bool) -> int:
    p, n = p & 255, n & 255
    top = width - 1
    if n == 0:
        return 0
    sign = (a >> min(p + n - 1, top)) & 1 if is_signed else 0
    return sum((((a >> (p + i)) & 1) if i < n and p + i <= top else sign) << i for i in range(width))


def insert_field(a: int, b: int, p: int, n: int, *, width: int) -> int:
    p, n = p & 255, n & 255
    for i in range(min(n, width)):
        if p + i < width:
            b = (b & ~(1 << (p + i))) | (((a >> i) & 1) << (p + i))
    return b


def permute(a: int, b: int, c: int) -> int:
    data = struct.pack("<II", a, b)
    d = 0
    for i in range(4):
        nibble = c >> 4 * i & 15
        byte = data[nibble & 7]
        d |= (255 if byte & 128 else 0) << 8 * i if nibble & 8 else byte << 8 * i
    return d


def lop3(a: int, b: int, c: int) -> int:
    return sum((0xD2 >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))


def typed_integer_cases() -> Iterator[Case]:
    for kind in ("s16", "u16", "s32", "u32", "s64", "u64"):
        w = int(kind[1:])

        def make(
            form: str, count: int, f: Callable[..., int], result: int = w, sources: tuple[int, ...] | None = None,
            w: int = w, kind: str = kind,
        ) -> Case:  # fmt: skip
            def reference(*v: int) -> int:
                given_values = [signed(x, w) if kind[0] == "s" else x for x in v]
                return f(*given_values) % 2**result

            return Case(form, result, sources or (w,) * count, reference)

        yield make(f"add.{kind}", 2, lambda a, b: a + b)
        yield make(f"sub.{kind}", 2, lambda a, b: a - b)
        yield make(f"mul.lo.{kind}", 2, lambda a, b: a * b)
        yield make(f"mul.hi.{kind}", 2, lambda a, b, w=w: a * b >> w)
        yield make(f"mad.lo.{kind}", 3, lambda a, b, c: a * b + c)
        yield make(f"min.{kind}", 2, min)
        yield make(f"max.{kind}", 2, max)
        yield make(f"div.{kind}", 2, truncated_division)
        yield make(f"rem.{kind}", 2, lambda a, b: a - b * truncated_division(a, b))
        yield make(f"sad.{kind}", 3, lambda a, b, c: abs(a - b) + c)
        if w < 64:
            yield make(f"mul.wide.{kind}", 2, lambda a, b: a * b, 2 * w)
        if kind[0] == "s":
            yield make(f"neg.{kind}", 1, lambda a: -a)
            yield make(f"abs.{kind}", 1, abs)
        yield Case(
            f"shr.{kind}", w, (w, 32),
            lambda a, n, w=w, k=kind: ((signed(a, w) if k[0] == "s" else a) >> min(n, 1000)) % 2**w,
        )  # fmt: skip


def integer_cases() -> Iterator[Case]:
    yield from typed_integer_cases()
    for w in (16, 32, 64):
        yield Case(f"and.b{w}", w, (w, w), lambda a, b: a & b)
        yield Case(f"or.b{w}", w, (w, w), lambda a, b: a | b)
        yield Case(f"xor.b{w}", w, (w, w), lambda a, b: a ^ b)
        yield Case(f"not.b{w}", w, (w,), lambda a, w=w: a ^ (2**w - 1))
        yield Case(f"shl.b{w}", w, (w, 32), lambda a, n, w=w: (a << n) % 2**w if n < w else 0)
    for w in (32, 64):
        yield Case(f"popc.b{w}", 32, (w,), lambda a: bin(a).count("1"))
        yield Case(f"clz.b{w}", 32, (w,), lambda a, w=w: w - a.bit_length())
        yield Case(f"brev.b{w}", w, (w,), lambda a, w=w: int(f"{a:0{w}b}"[::-1], 2))
        for kind in ("u", "s"):
            yield Case(
                f"bfe.{kind}{w}", w, (w, 32, 32),
                lambda a, p, n, w=w, k=kind: bit_field(a, p, n, width=w, is_signed=k == "s"),
            )  # fmt: skip
        yield Case(
            f"bfi.b{w}", w, (w, 32, 32), lambda a, p, n, w=w: insert_field(a, 0x5A5A, p, n, width=w),
            assembly=f"bfi.b{w} %0, %1, 23130, %2, %3;",
        )  # fmt: skip
    yield Case("shf.r.wrap.b32", 32, (32, 32, 32), lambda a, b, n: funnel_right(a, b, n & 31))
    yield Case("shf.r.clamp.b32", 32, (32, 32, 32), lambda a, b, n: funnel_right(a, b, min(n, 32)))
    yield Case("shf.l.wrap.b32", 32, (32, 32, 32), lambda a, b, n: ((b << 32 | a) << (n & 31) >> 32) % 2**32)
    yield Case("shf.l.clamp.b32", 32, (32, 32, 32), lambda a, b, n: ((b << 32 | a) << min(n, 32) >> 32) % 2**32)
    yield Case("prmt.b32", 32, (32, 32, 32), permute)
    yield Case("lop3.b32", 32, (32, 32, 32), lop3, assembly="lop3.b32 %0, %1, %2, %3, 0xd2;")
    yield Case("mul24.lo.u32", 32, (32, 32), lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) % 2**32)
    yield Case(
        "dp4a.u32.u32", 32, (32, 32, 32),
        lambda a, b, c: (sum((a >> s & 255) * (b >> s & 255) for s in (0, 8, 16, 24)) + c) % 2**32,
    )  # fmt: skip
    for s, d in (
        ("s8", "s32"),
        ("u8", "u32"),
        ("s16", "s64"),
        ("s32", "s64"),
        ("u32", "u64"),
        ("s64", "s32"),
        ("s32", "s16"),
    ):
        sw, dw = int(s[1:]), int(d[1:])
        yield Case(
            f"cvt.{d}.{s}", dw, (max(sw, 16),),
            lambda a, s=s, sw=sw, dw=dw: (signed(a, sw) if s[0] == "s" else a % 2**sw) % 2**dw,
        )  # fmt: skip


def packed_cases() -> Iterator[Case]:
    for f in (F16, BF16):
        for name, count in (("add", 2), ("mul", 2), ("fma", 3)):
            scalar = arithmetic(f, "rn", *OPERATIONS[name][1:])

            def both(*v: int, scalar: Reference = scalar) -> int:
                low, high = scalar(*(x & 0xFFFF for x in v)), scalar(*(x >> 16 for x in v))
                return (0x7FFF if low == NAN else low) | (0x7FFF if high == NAN else high) << 16

            form = f"{name}.rn.{f.name}x2" if name == "fma" else f"{name}.{f.name}x2"
            yield Case(form, 32, (32,) * count, both, values=(f.name + "x2",) * count)


CASES = [*float_cases(), *integer_cases(), *packed_cases()]


# ---- values


def hard(f: Format) -> list[int]:
    one = encode(f, Fraction(1))
    least_normal = 1 << (f.precision - 1)
    magnitudes = [0, 1, 2, least_normal - 1, least_normal, one - 1, one, one + 1, encode(f, Fraction(3))]
    magnitudes += [f.largest, f.inf, f.inf | least_normal >> 1]
    return [m | s for m in magnitudes for s in (0, f.sign)]


def operands(case: Case, dice: random.Random) -> list[list[int]]:
    lists: list[list[int]] = []
    for position, width in enumerate(case.sources):
        kind = case.values[position] if case.values else ""
        if kind.endswith("x2"):
            lists.append([h | dice.choice(hard(FORMATS[kind[:-2]])) << 16 for h in hard(FORMATS[kind[:-2]])])
        elif kind:
            lists.append(hard(FORMATS[kind]))
        else:
            lists.append([0, 1, 2, 7, 31, 32, 33, 255, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1])
    rows = [list(row) for row in product(*lists)]
    if len(rows) > 700:
        rows = dice.sample(rows, 700)
    for _ in range(200):
        rows.append([random_operand(case, i, dice) for i in range(len(case.sources))])
    if case.form.startswith(("div.", "rem.")) and not case.values:  # by zero is a finding
        rows = [row for row in rows if row[1] % 2 ** case.sources[1]]
    return rows


def random_operand(case: Case, position: int, dice: random.Random) -> int:
    width = case.sources[position]
    kind = case.values[position] if case.values else ""
    # Mostly of like magnitude, so that sums and fused products need their rounding.
    if kind in FORMATS and dice.random() < 0.7:
        f = FORMATS[kind]
        exponent = (f.emax + dice.randrange(-6, 7)) << (f.precision - 1)
        return exponent | dice.getrandbits(f.precision - 1) | dice.choice((0, f.sign))
    return dice.getrandbits(dice.choice((width, width, 5)) if not kind else width)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> SimDevice:
    source: Path = tmp_path_factory.mktemp("sim") / "instructions.cu"
    source.write_text('#include "kata.cuh"\n' + "".join(case.kernel() for case in CASES))
    return open_device(source)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.form)
def test_instruction_matches_its_exact_reference(device: SimDevice, case: Case) -> None:
    rows = operands(case, random.Random(case.form))
    inputs = [given("abc"[i], "u64", [row[i] for row in rows]) for i in range(len(case.sources))]
    outcome = run(device, case.name, *inputs, wanted("d", "u64", len(rows)), len(rows))
    assert outcome.findings == ()
    for row, got in zip(rows, map(int, unpack("u64", outcome.outputs["d"])), strict=True):
        expected = case.reference(*row)
        said = f"{case.form} of {[hex(v) for v in row]} gave {got:#x}"
        if expected == NAN:
            assert case.nan_of is not None and is_nan(case.nan_of, got), f"{said}, no NaN"
        else:
            assert got == expected, f"{said}, not {expected:#x}"
