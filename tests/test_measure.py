"""Kata + sandbox -> Measurement: the statistics without a GPU, the timing itself with one."""

from __future__ import annotations

import re
import subprocess
from math import comb
from pathlib import Path

import pytest

from grader.build import Build, Request, Target, build_all
from grader.case import Case, Shape
from grader.catalog import Kata, Speed, load_catalog
from grader.devices import Call, Outcome
from grader.devices.race import UNROLL, _read_ptx
from grader.grade import Grade
from grader.measure import RANKS, measure, moved
from grader.report import speed_table
from grader.sandbox import Program, Sandbox
from grader.spec import Exact, Size, Sizes, Spec, Tensor, Values, load_spec, normal
from grader.toolchain import find_gpu, find_toolchain
from grader.verdict import Kind, Measurement, Verdict

ROOT = Path(__file__).resolve().parent.parent
KATAS = load_catalog(ROOT).katas
KATA = Kata(
    name="double_f32", family="double", level="medium", elem="f32", root=ROOT, speed=Speed("copy", ({"n": 1000},), {})
)
SPEC = Spec(
    computes="y = 2 x",
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 100)},
    values=(Values("normal", normal()),),
    reference=lambda x, sizes: 2 * x,
    tolerance=Exact(),
    edges=({"n": 0},),
    work=lambda sizes: sizes["n"],
)


class Clock(Sandbox):
    """A device whose times are given, and whose answer is right unless ``right`` says otherwise."""

    def __init__(self, times: tuple[tuple[float, float], ...], right: bool = True) -> None:
        super().__init__("gpu")
        self.times, self.right = times, right
        self.asked: Call | None = None

    def call(self, call: Call) -> Outcome:
        self.asked = call
        case = Case(KATA, SPEC, Shape((("n", 1000),), "normal", 1))
        answer = case.expected[0].value.float() * (1.0 if self.right else 2.0)
        return Outcome(outputs={"y": answer.numpy().tobytes()}, times=self.times)


@pytest.mark.parametrize("pairs", RANKS)
def test_ranks_hold_the_median_with_95_percent(pairs: int) -> None:
    first, last = RANKS[pairs]
    outside = sum(comb(pairs, count) for count in range(first)) / 2**pairs
    assert first + last == pairs + 1, "the interval is symmetric"
    assert outside <= 0.025, "a wider rank would be needed"
    assert outside + comb(pairs, first) / 2**pairs > 0.015, "much narrower ranks would do"


def test_ratio_is_the_median_of_the_pairs_ratios() -> None:
    # Pair i has the ratio 0.5 + i / 100; both arms of a pair are slow or fast together.
    times = tuple(((0.5 + i / 100) * (1 + i % 3), 1.0 * (1 + i % 3)) for i in range(21))
    sandbox = Clock(times[::-1])
    verdict = measure(KATA, SPEC, sandbox, pairs=21)
    assert verdict.passed
    (measurement,) = verdict.measurements
    assert measurement.ratio == pytest.approx(0.60)
    assert (measurement.low, measurement.high) == (pytest.approx(0.55), pytest.approx(0.65))
    assert measurement.bytes_moved == 8000
    assert sandbox.asked is not None and sandbox.asked.race is not None
    assert (sandbox.asked.race.baseline, sandbox.asked.race.bytes_moved) == ("copy", 8000)


def test_a_wrong_answer_while_timed_is_no_measurement() -> None:
    verdict = measure(KATA, SPEC, Clock(((1.0, 1.0),) * 21, right=False), pairs=21)
    assert verdict.kind is Kind.WRONG_ANSWER and not verdict.measurements
    assert "while it was timed" in verdict.summary


def test_bytes_moved_are_every_tensor_once_or_what_the_spec_says() -> None:
    assert moved(KATAS["elementwise_f16"], load_spec(KATAS["elementwise_f16"]), {"n": 10}) == 60

    def half_of_it(sizes: Sizes, itemsize: int) -> int:
        return sizes["n"] * itemsize

    told = Spec(**{**{name: getattr(SPEC, name) for name in SPEC.__dataclass_fields__}, "moved": half_of_it})
    assert moved(KATA, told, {"n": 10}) == 40


def test_table_has_a_row_for_each_shape() -> None:
    measured = Measurement(
        "copy", {"n": 10}, 0.931, 0.928, 0.934, pairs=31, bytes_moved=80, rate=4e12, baseline_rate=4.2e12
    )
    done = Grade(KATA, Path("double_f32.cu"), (Verdict(Kind.PASS, "measured", measurements=(measured,)),))
    table = speed_table([done], "2026-01-01, a card")
    assert "| `double_f32` | n=10 | copy | 93.1 | 92.8 to 93.4 | 4.00 |" in table
    assert "31 pairs" in table and "2026-01-01, a card" in table


def test_the_reading_kernel_is_ptx(tmp_path: Path) -> None:
    """Loads of 16 bytes, all of them in flight, no local memory; a driver would compile it as ptxas does."""
    source = tmp_path / "read.ptx"
    source.write_bytes(_read_ptx()[:-1])
    ptxas = find_toolchain().nvcc.resolve().parent / "ptxas"
    command = [str(ptxas), "-arch=sm_80", "-v", "-o", str(tmp_path / "read.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores" in done.stderr
    registers = re.search(r"Used (\d+) registers", done.stderr)
    assert registers is not None and 4 * UNROLL < int(registers[1]) <= 64


@pytest.mark.skipif(find_gpu() is None, reason="no GPU here")
@pytest.mark.parametrize("name", ["elementwise_f16x8_pack", "block_all_reduce_f32x4_f32"])
def test_a_good_kernel_is_near_its_baseline(name: str) -> None:
    gpu = find_gpu()
    assert gpu is not None
    kata = KATAS[name]
    request = Request(kata, load_spec(kata), kata.solution_path, Target("gpu", gpu.arch))
    built = build_all([request], find_toolchain())[0]
    assert isinstance(built, Build)
    with Sandbox("gpu") as sandbox:
        sandbox.load(Program("gpu", gpu.arch, built.library, built.ptx, built.source))
        verdict = measure(kata, request.spec, sandbox, pairs=21)
    assert verdict.passed, verdict
    (measurement,) = verdict.measurements
    assert 0.5 < measurement.ratio < 1.3
    assert measurement.high - measurement.low < 0.1
