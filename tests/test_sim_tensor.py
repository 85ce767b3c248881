"""The simulator's tensor core instructions against float64 products, fragments laid out by hand from the PTX ISA."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import passed_before
import pytest
import torch
from facts import has
from sim_kernels.harness import given, line_of, open_device, run, wanted

from grader.devices import Buffer, Outcome
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE = Path(__file__).parent / "sim_kernels" / "tensor.cu"
Place = Callable[[int, int, int], tuple[int, int]]  # group, thread in group, element -> row, column

TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "f32": torch.float32, "f64": torch.float64,
    "s8": torch.int8, "u8": torch.uint8, "s32": torch.int32, "i32": torch.int32,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}  # fmt: skip

# PTX ISA 9.7.14.5, the fragments of each shape: where element i of a lane lies in a and in b, by the width of an
# element and k. c and d are the same for all: two elements of a row, and eight rows further two more.
A: dict[tuple[int, int], Place] = {
    (16, 8): lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2),
    (16, 16): lambda g, t, i: (g + (8 if i in (2, 3, 6, 7) else 0), 2 * t + i % 2 + (8 if i >= 4 else 0)),
    (32, 4): lambda g, t, i: (g + 8 * i, t),
    (32, 8): lambda g, t, i: (g + (8 if i in (1, 3) else 0), t + (4 if i >= 2 else 0)),
    (8, 16): lambda g, t, i: (g + (8 if i >= 4 else 0), 4 * t + i % 4),
    (8, 32): lambda g, t, i: (g + (8 if i // 4 in (1, 3) else 0), 4 * t + i % 4 + (16 if i >= 8 else 0)),
    (64, 4): lambda g, t, i: (g + 8 * i, t),
    (64, 8): lambda g, t, i: (g + 8 * (i % 2), t + (4 if i >= 2 else 0)),
    (64, 16): lambda g, t, i: (g + 8 * (i % 2), t + i // 2 * 4),
}
B: dict[tuple[int, int], Place] = {
    (16, 8): lambda g, t, i: (2 * t + i, g),
    (16, 16): lambda g, t, i: (2 * t + i % 2 + (8 if i >= 2 else 0), g),
    (32, 4): lambda g, t, i: (t, g),
    (32, 8): lambda g, t, i: (t + 4 * i, g),
    (8, 16): lambda g, t, i: (4 * t + i, g),
    (8, 32): lambda g, t, i: (4 * t + i % 4 + (16 if i >= 4 else 0), g),
    (64, 4): lambda g, t, i: (t, g),
    (64, 8): lambda g, t, i: (t + 4 * i, g),
    (64, 16): lambda g, t, i: (t + 4 * i, g),
}


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return g + 8 * (i // 2), 2 * t + i % 2


@dataclass(frozen=True)
class Mma:
    form: str
    m: int
    k: int
    a: str
    b: str
    c: str
    d: str

    @property
    def name(self) -> str:
        return "k_" + "".join(x if x.isalnum() else "_" for x in self.form)

    def registers(self, kind: str, elements: int) -> int:
        return elements * TYPES[kind].itemsize // (8 if kind == "f64" else 4) // 32

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return (
            self.registers(self.d, self.m * 8), self.registers(self.a, self.m * self.k),
            self.registers(self.b, self.k * 8), self.registers(self.c, self.m * 8),
        )  # fmt: skip

    def kernel(self) -> str:
        word = {"f32": "float", "f64": "double"}
        letter = {"f32": "f", "f64": "d"}
        kinds = (self.d, self.a, self.b, self.c)
        word_of = [word["f64"] if kind == "f64" else word.get(kind, "unsigned") for kind in kinds]
        names, declared, loads, lists, at = "dabc", "", "", [], 0
        for name, count, word_ in zip(names, self.counts, word_of, strict=True):
            declared += f"{word_} {name}[{count}]; "
            if name != "d":
                loads += f"for (int i = 0; i < {count}; ++i) {name}[i] = {name}s[i * 32 + threadIdx.x]; "
            lists.append("{" + ", ".join(f"%{at + i}" for i in range(count)) + "}")
            at += count
        constraint = [letter.get(kind, "r") for kind in kinds]
        outs = ", ".join(f'"={constraint[0]}"(d[{i}])' for i in range(self.counts[0]))
        ins = ", ".join(f'"{constraint[j]}"({names[j]}[{i}])' for j in (1, 2, 3) for i in range(self.counts[j]))
        pointers = ", ".join(f"const {word_of[j]}* {names[j]}s" for j in (1, 2, 3)) + f", {word_of[0]}* ds"
        return (
            f"__global__ void {self.name}_kernel({pointers}) {{ {declared}\n  {loads}\n"
            f'  asm volatile("{self.form} {", ".join(lists)};" : {outs} : {ins});\n'
            f"  for (int i = 0; i < {self.counts[0]}; ++i) ds[i * 32 + threadIdx.x] = d[i];\n}}\n"
            f"KATA_EXPORT void {self.name}({pointers}, cudaStream_t s) {{\n"
            f"  {self.name}_kernel<<<1, 32, 0, s>>>(as, bs, cs, ds);\n}}\n"
        )


def mma(shape: str, d: str, a: str, b: str, c: str, *, satfinite: bool = False) -> Mma:
    m, k = (int(x) for x in shape[1:].split("n8k"))
    saturation = ".satfinite" if satfinite else ""
    return Mma(f"mma.sync.aligned.{shape}.row.col{saturation}.{d}.{a}.{b}.{c}", m, k, a, b, c, d)


CASES = [
    *(mma(f"m16n8k{k}", d, "f16", "f16", d) for k in (8, 16) for d in ("f16", "f32")),
    *(mma(f"m16n8k{k}", "f32", "bf16", "bf16", "f32") for k in (8, 16)),
    *(mma(f"m16n8k{k}", "f32", "tf32", "tf32", "f32") for k in (4, 8)),
    *(mma("m16n8k32", "f32", a, b, "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *(mma(shape, "s32", a, b, "s32") for shape in ("m8n8k16", "m16n8k16", "m16n8k32") for a, b in (
        ("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8"))),
    mma("m16n8k32", "s32", "s8", "s8", "s32", satfinite=True),
    mma("m8n8k4", "f64", "f64", "f64", "f64"),
    *(mma(f"m16n8k{k}", "f64", "f64", "f64", "f64") for k in (4, 8, 16)),
]  # fmt: skip


@pytest.fixture(scope="module")
def mma_device(tmp_path_factory: pytest.TempPathFactory) -> SimDevice:
    source: Path = tmp_path_factory.mktemp("sim") / "mma.cu"
    source.write_text('#include "kata.cuh"\n' + "".join(case.kernel() for case in CASES))
    return open_device(source)


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


# ---- fragments


def words(elements: torch.Tensor) -> torch.Tensor:
    """[32, registers] of the elements [32, n] of each lane, as many in a register as fit."""
    return elements.contiguous().view(torch.int64 if elements.dtype == torch.float64 else torch.int32)


def fragment(matrix: torch.Tensor, place: Place) -> torch.Tensor:
    """The registers [register, lane] that hold a matrix."""
    count = matrix.numel() // 32
    places = [place(lane // 4, lane % 4, i) for lane in range(32) for i in range(count)]
    rows, columns = (torch.tensor(list(part)) for part in zip(*places, strict=True))
    return words(matrix.view(-1)[rows * matrix.shape[1] + columns].view(32, count)).t().contiguous()


def unfragment(registers: torch.Tensor, dtype: torch.dtype, shape: tuple[int, int]) -> torch.Tensor:
    elements = registers.t().contiguous().view(dtype)
    matrix = torch.empty(shape, dtype=dtype)
    for lane in range(32):
        for i in range(elements.shape[1]):
            matrix[c_place(lane // 4, lane % 4, i)] = elements[lane, i]
    return matrix


def buffer(name: str, values: torch.Tensor) -> Buffer:
    flat = values.contiguous().flatten()
    bits = bytes(flat.view(torch.uint8).tolist())
    return Buffer(name, "in", "u8", flat.element_size(), (flat.numel(),), bits)


def wanted_like(name: str, count: int, size: int) -> Buffer:
    return Buffer(name, "out", "u8", size, (count,), b"\xa5" * (count * size))


def tensor(outcome: Outcome, name: str, dtype: torch.dtype) -> torch.Tensor:
    assert outcome.findings == ()
    return torch.frombuffer(bytearray(outcome.outputs[name]), dtype=dtype)


def multiply(device: SimDevice, case: Mma, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    width = TYPES[case.a].itemsize * 8
    size = 8 if case.d == "f64" else 4
    outcome = run(
        device, case.name, buffer("a", fragment(a, A[width, case.k])), buffer("b", fragment(b, B[width, case.k])),
        buffer("c", fragment(c, c_place)), wanted_like("d", case.counts[0] * 32, size),
    )  # fmt: skip
    registers = tensor(outcome, "d", torch.int64 if size == 8 else torch.int32).view(-1, 32)
    return unfragment(registers, TYPES[case.d], (case.m, 8))


def small(shape: tuple[int, int], kind: str, seed: int) -> torch.Tensor:
    """Whole numbers that every type has."""
    low = 0 if kind == "u8" else -4
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(low, 5, shape, generator=dice, dtype=torch.int32).to(torch.float32).to(TYPES[kind])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.form)
def test_mma_of_small_integers_is_exact(mma_device: SimDevice, case: Mma) -> None:
    for seed in range(3):
        a, b = small((case.m, case.k), case.a, seed), small((case.k, 8), case.b, seed + 10)
        c = small((case.m, 8), case.c, seed + 20)
        expected = a.double() @ b.double() + c.double()
        assert torch.equal(multiply(mma_device, case, a, b, c).double(), expected)


def random_matrix(shape: tuple[int, int], kind: str, dice: torch.Generator) -> torch.Tensor:
    values = torch.randn(shape, generator=dice, dtype=torch.float64)
    if kind == "tf32":
        return (values.float().view(torch.int32) & ~0x1FFF).view(torch.float32)
    return values.to(TYPES[kind])


FLOATING = [case for case in CASES if case.d[0] == "f"]


@pytest.mark.parametrize("case", FLOATING, ids=lambda case: case.form)
def test_mma_of_random_values_is_within_the_alignment_error(mma_device: SimDevice, case: Mma) -> None:
    dice = torch.Generator().manual_seed(7)
    # Every term loses less than 2^-25 of the largest, which is at most four times its power of two; then one rounding.
    unit = {"f16": 2.0**-11, "f32": 2.0**-23, "f64": 2.0**-50}[case.d]
    for _ in range(4):
        a, b = random_matrix((case.m, case.k), case.a, dice), random_matrix((case.k, 8), case.b, dice)
        c = random_matrix((case.m, 8), case.c, dice)
        exact = a.double() @ b.double() + c.double()
        terms = a.double().abs()[:, :, None] * b.double().abs()[None, :, :]
        largest = torch.maximum(terms.amax(dim=1), c.double().abs())
        bound = (case.k + 2) * 2.0**-24 * largest + 2 * unit * exact.abs()
        assert ((multiply(mma_device, case, a, b, c).double() - exact).abs() <= bound).all()


def case_of(form: str) -> Mma:
    return next(case for case in CASES if case.form.endswith(form))


HALVES = "m16n8k16.row.col.f32.f16.f16.f32"


def single(device: SimDevice, form: str, a: list[float], b: list[float], c: float) -> float:
    """d[0][0] of the products of a's first row and b's first column, the rest zero."""
    case = case_of(form)
    row, column = torch.zeros(case.m, case.k), torch.zeros(case.k, 8)
    row[0, : len(a)], column[: len(b), 0] = torch.tensor(a), torch.tensor(b)
    start = torch.zeros(case.m, 8, dtype=torch.float64)
    start[0, 0] = c
    d = multiply(device, case, row.to(TYPES[case.a]), column.to(TYPES[case.b]), start.to(TYPES[case.c]))
    assert not d.double().flatten()[1:].nan_to_num(9).any(), "only d[0][0] has terms"
    return d[0, 0].item()


INF = math.inf


@pytest.mark.parametrize(
    ("form", "a", "b", "c", "expected"),
    [
        # Cut off 25 bits below the largest exponent, before the sum.
        (HALVES, [1.0, 2.0**-13], [1.0, 2.0**-12], -1.0, 2.0**-25),
        (HALVES, [1.0, 2.0**-13], [1.0, 2.0**-13], -1.0, 0.0),
        (HALVES, [1.0, -(2.0**-13)], [1.0, 2.0**-13], -1.0, 0.0),
        (HALVES, [1.0] + [2.0**-13] * 2, [1.0] + [2.0**-13] * 2, -1.0, 0.0),
        # Rounded towards zero, not to nearest.
        (HALVES, [1.0, 1.5 * 2.0**-12], [1.0, 2.0**-12], 0.0, 1.0),
        (HALVES, [-1.0, -1.75 * 2.0**-11], [1.0, 2.0**-12], 0.0, -1.0 - 2.0**-23),
        (HALVES, [-1.0, -1.75 * 2.0**-11], [1.0, 2.0**-11], 0.0, -1.0 - 3 * 2.0**-23),
        # A half is rounded to nearest even, once.
        ("m16n8k16.row.col.f16.f16.f16.f16", [1.0, 2.0**-11], [1.0, 1.0], 0.0, 1.0),
        ("m16n8k16.row.col.f16.f16.f16.f16", [1.0, 2.0**-11, 2.0**-12], [1.0, 1.0, 2.0**-12], 0.0, 1.0 + 2.0**-10),
        ("m16n8k16.row.col.f16.f16.f16.f16", [60000.0, 60000.0], [1.0, 1.0], 0.0, INF),
        # Denormals count.
        (HALVES, [2.0**-24], [2.0**-24], 0.0, 2.0**-48),
        (HALVES, [2.0**-24], [2.0**-24], 2.0**-149, 2.0**-48),
        (HALVES, [], [], 3 * 2.0**-149, 3 * 2.0**-149),
        (HALVES, [65504.0] * 16, [65504.0] * 16, 2.0**32, float(16 * 65504**2 + 2**32)),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", [2.0**100], [2.0**-120], 2.0**-20, 2.0**-19),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", [2.0**100], [2.0**100], 0.0, INF),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", [2.0**-100, 1.0], [2.0**-49, 2.0**-149], 0.0, 2.0**-149),
        # Infinities and NaN.
        (HALVES, [INF, 1.0], [1.0, -3.0], 5.0, INF),
        (HALVES, [1.0], [-1.0], -INF, -INF),
        (HALVES, [INF], [0.0], 0.0, math.nan),
        (HALVES, [INF, INF], [1.0, -1.0], 0.0, math.nan),
        (HALVES, [INF], [-1.0], INF, math.nan),
        (HALVES, [math.nan], [0.0], 1.0, math.nan),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", [math.nan], [1.0], 1.0, math.nan),
        ("m16n8k32.row.col.f32.e5m2.e5m2.f32", [INF], [1.0], 1.0, INF),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", [448.0] * 32, [448.0] * 32, 0.0, 32 * 448.0**2),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", [2.0**-9], [2.0**-9], 0.0, 2.0**-18),
        ("m16n8k32.row.col.f32.e5m2.e5m2.f32", [2.0**-16], [57344.0], 0.0, 57344.0 * 2.0**-16),
    ],
)
def test_mma_of_odd_values(
    mma_device: SimDevice, form: str, a: list[float], b: list[float], c: float, expected: float
) -> None:
    if any(math.isinf(x) for x in a):  # the other columns would have infinity times zero
        case = case_of(form)
        b = b + [0.0] * (case.k - len(b))
        row, columns = torch.zeros(case.m, case.k), torch.tensor(b)[:, None].expand(case.k, 8)
        row[0, : len(a)] = torch.tensor(a)
        start = torch.full((case.m, 8), c)
        d = multiply(mma_device, case, row.to(TYPES[case.a]), columns.to(TYPES[case.b]), start.to(TYPES[case.c]))
        assert torch.equal(d[0].isnan(), torch.full((8,), math.isnan(expected)))
        assert math.isnan(expected) or bool((d[0] == expected).all())
        return
    if math.isnan(expected):
        case = case_of(form)
        row, column = torch.zeros(case.m, case.k), torch.ones(case.k, 8)
        row[0, 0] = a[0]
        d = multiply(mma_device, case, row.to(TYPES[case.a]), column.to(TYPES[case.b]), torch.zeros(case.m, 8))
        assert d[0].isnan().all() and not d[1:].isnan().any()
        return
    assert single(mma_device, form, a, b, c) == expected


@pytest.mark.parametrize("nothing", [0.0, -0.0])
def test_mma_of_nothing(mma_device: SimDevice, nothing: float) -> None:
    """It is +0, whichever of the matrices is empty and whatever the signs; but infinity times nothing is NaN."""
    case = case_of(HALVES)
    whole_a, whole_b = torch.ones(case.m, case.k).half(), -torch.ones(case.k, 8).half()
    empty_a, empty_b, start = whole_a * nothing, whole_b * nothing, torch.full((case.m, 8), nothing)
    for a, b in ((empty_a, whole_b), (whole_a, empty_b), (empty_a, empty_b)):
        d = multiply(mma_device, case, a, b, start)
        assert not d.any() and not d.signbit().any()
    infinite_a, infinite_b = whole_a.clone(), whole_b.clone()
    infinite_a[3, 5] = infinite_b[5, 3] = INF
    assert multiply(mma_device, case, infinite_a, empty_b, start)[3].isnan().all()
    assert multiply(mma_device, case, empty_a, infinite_b, start)[:, 3].isnan().all()
    start[2, 1] = 5.0
    assert multiply(mma_device, case, empty_a, whole_b, start).nonzero().tolist() == [[2, 1]]


def test_tf32_ignores_the_last_thirteen_bits(mma_device: SimDevice) -> None:
    assert (
        single(mma_device, "m16n8k8.row.col.f32.tf32.tf32.f32", [1.0 + 2.0**-11], [1.0 + 2.0**-10], 0.0) == 1 + 2**-10
    )


@pytest.mark.parametrize(
    ("satfinite", "sign", "expected"),
    [(True, 1, 2**31 - 1), (True, -1, -(2**31)), (False, 1, -(2**31) + 127 * 127 * 32 - 1)],
)
def test_integer_mma_overflows_as_it_is_told(mma_device: SimDevice, satfinite: bool, sign: int, expected: int) -> None:
    case = mma("m16n8k32", "s32", "s8", "s8", "s32", satfinite=satfinite)
    a = torch.full((16, 32), 127 * sign, dtype=torch.int8)
    b = torch.full((32, 8), 127, dtype=torch.int8)
    c = torch.full((16, 8), 2**31 - 1 if sign > 0 else -(2**31), dtype=torch.int32)
    assert (multiply(mma_device, case, a, b, c) == expected).all()


# ---- wmma

TILES = [
    ("f16", "f32", 16, 16, 16), ("f16", "f32", 32, 8, 16), ("f16", "f32", 8, 32, 16), ("f16", "f16", 16, 16, 16),
    ("f16", "f16", 32, 8, 16), ("f16", "f16", 8, 32, 16), ("bf16", "f32", 16, 16, 16), ("bf16", "f32", 32, 8, 16),
    ("bf16", "f32", 8, 32, 16), ("tf32", "f32", 16, 16, 8), ("s8", "i32", 16, 16, 16), ("u8", "i32", 32, 8, 16),
    ("s8", "i32", 8, 32, 16), ("f64", "f64", 8, 8, 4),
]  # fmt: skip


@pytest.mark.parametrize("rows", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["cc", "cr", "rc", "rr"])
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: "-".join(map(str, tile)))
def test_wmma_tile(device: SimDevice, tile: tuple[str, str, int, int, int], rows: tuple[int, int]) -> None:
    kind, sums, m, n, k = tile
    a, b, c = small((m, k), kind, 1), small((k, n), kind, 2), small((m, n), sums, 3)
    expected = 2 * a.double() @ b.double() + c.double() + 1
    outcome = run(
        device, f"wmma_{kind}_{sums}_{m}_{n}_{k}", buffer("a", a if rows[0] else a.t()),
        buffer("b", b if rows[1] else b.t()), buffer("c", c if rows[0] else c.t()),
        wanted_like("d", m * n, TYPES[sums].itemsize), *rows,
    )  # fmt: skip
    d = tensor(outcome, "d", TYPES[sums])
    assert torch.equal((d.view(m, n) if rows[0] else d.view(n, m).t()).double(), expected)


def test_wmma_load_beyond_its_buffer(device: SimDevice) -> None:
    outcome = run(device, "outside_tile", given("a", "f16", [0] * (15 * 32)), wanted("d", "f32", 256))
    (finding,) = outcome.findings
    assert (finding.kind, finding.line) == ("out of bounds", line_of(SOURCE, "outside"))
    assert "a[480..487]" in finding.message and finding.block == (0, 0, 0)


# ---- ldmatrix, stmatrix, movmatrix


def cores(seed: int) -> torch.Tensor:
    """Four matrices [4, 8, 8] of 16-bit numbers, all different."""
    dice = torch.Generator().manual_seed(seed)
    return torch.randperm(4 * 64, generator=dice).to(torch.int16).view(4, 8, 8)


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(device: SimDevice, count: int, transposed: int) -> None:
    matrices = cores(count)
    outcome = run(
        device, "load_matrices", buffer("in", matrices.view(-1).view(torch.int32)), wanted_like("out", 32 * count, 4),
        count, transposed,
    )  # fmt: skip
    registers = tensor(outcome, "out", torch.int32).view(count, 32)
    for i in range(count):
        expected = matrices[i].t() if transposed else matrices[i]
        for lane in range(32):  # lane l gets elements 2 (l % 4) and the next of row l / 4
            low, high = (int(expected[lane // 4, 2 * (lane % 4) + e]) for e in (0, 1))
            assert int(registers[i, lane]) == low | high << 16


@pytest.mark.parametrize(("count", "transposed"), [(1, 0), (2, 0), (4, 0), (4, 1)])
def test_stmatrix(device: SimDevice, count: int, transposed: int) -> None:
    matrices = cores(count)
    registers = matrices.reshape(4, 64).view(torch.int32)
    outcome = run(
        device, "store_matrices", buffer("in", registers), wanted_like("out", 32 * count, 4), count, transposed
    )
    stored = tensor(outcome, "out", torch.int16).view(count, 8, 8)
    assert torch.equal(stored, matrices[:count].transpose(1, 2) if transposed else matrices[:count])


def test_movmatrix(device: SimDevice) -> None:
    matrix = cores(5)[0]
    outcome = run(device, "move_matrix", buffer("in", matrix.view(-1).view(torch.int32)), wanted_like("out", 32, 4))
    assert torch.equal(tensor(outcome, "out", torch.int16).view(8, 8), matrix.t())


FAULTS = [
    (1, "out of bounds", ["tile_smem"], (7, 0, 0)),
    (2, "misaligned", ["8 bytes", "multiple of 16"], (9, 0, 0)),
    (3, "uninitialised", ["tile_smem[20..23]"], (5, 0, 0)),
    (4, "race", ["tile_smem"], None),
    (5, "deadlock", ["thread (16,0,0)"], None),
    (6, "deadlock", ["all 32 lanes"], None),
]


def test_ldmatrix_without_fault_has_no_finding(device: SimDevice) -> None:
    assert run(device, "faulty_load", wanted("out", "u32", 32), 0).findings == ()


@pytest.mark.parametrize(("fault", "kind", "facts", "thread"), FAULTS, ids=lambda value: str(value))
def test_faulty_ldmatrix(
    device: SimDevice, fault: int, kind: str, facts: list[str], thread: tuple[int, int, int] | None
) -> None:
    for seed in range(5):
        (finding,) = run(device, "faulty_load", wanted("out", "u32", 64), fault, seed=seed).findings
        assert finding.kind == kind and has(finding.message, *facts)
        assert finding.line == line_of(SOURCE, "ldmatrix")
        assert thread is None or finding.thread == thread
