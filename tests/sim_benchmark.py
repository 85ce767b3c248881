"""Six kernels on the simulator -> a table of seconds, decode time and peak memory, each beside its limit.

    PYTHONPATH=. python tests/sim_benchmark.py

Run by hand, on an otherwise idle machine: all findings are looked for, two host threads run the blocks, and the least
of several calls counts. Exit code 1 when something is over its limit.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from sim_kernels.harness import HERE, build, engine, given, open_device, run, wanted

from grader.devices import Buffer
from grader.devices.sim import SimDevice
from grader.devices.sim.library import load_engine

SOLUTIONS = HERE.parent.parent / "solutions"
TENSOR_CORES = HERE / "tensor_cores.cu"
CALLS = 5
THREADS = 2
DECODE_LIMIT_S = 0.05  # for 1000 instructions of PTX
MEMORY_LIMIT_GIB = 2.0
INSTRUCTION = re.compile(rb"^\s+(@!?%p\d+\s+)?[a-z][\w.:]*\s.*;$", re.MULTILINE)


@dataclass(frozen=True)
class Benchmark:
    """A launcher of a file, what it is called with, and how many seconds the call may take."""

    title: str
    source: Path
    launcher: str
    arguments: Callable[[], tuple[Buffer | int, ...]]
    limit_s: float


def halves(name: str, count: int) -> Buffer:
    """``count`` f16 values in [1/8, 1/4), of either sign."""
    draw = Random(name)
    block = [0x3000 + draw.randrange(1024) + 0x8000 * draw.randrange(2) for _ in range(4096)]
    return given(name, "f16", (block * (count // 4096 + 1))[:count])


def floats(name: str, count: int) -> Buffer:
    draw = Random(name)
    block = [draw.uniform(-1, 1) for _ in range(4096)]
    return given(name, "f32", (block * (count // 4096 + 1))[:count])


def sgemm(n: int) -> tuple[Buffer | int, ...]:
    return floats("A", n * n), floats("B", n * n), wanted("C", "f32", n * n), n, n, n


def hgemm(n: int) -> tuple[Buffer | int, ...]:
    return halves("A", n * n), halves("B", n * n), wanted("C", "f16", n * n), n


def flash(heads: int, n: int) -> tuple[Buffer | int, ...]:
    count = heads * n * 64
    return halves("Q", count), halves("K", count), halves("V", count), wanted("O", "f16", count), heads, n


def add(n: int) -> tuple[Buffer | int, ...]:
    return halves("a", n), halves("b", n), wanted("c", "f16", n), n


def reduce(n: int) -> tuple[Buffer | int, ...]:
    return floats("x", n), wanted("y", "f32", 1), n


def solution(family: str, kata: str) -> tuple[Path, str]:
    return SOLUTIONS / family / f"{kata}.cu", kata


BENCHMARKS = (
    Benchmark("sgemm 256^3, naive", *solution("sgemm", "sgemm_naive_f32"), lambda: sgemm(256), 0.3),
    Benchmark("sgemm 256^3, shared tile", *solution("sgemm", "sgemm_sliced_k_f32"), lambda: sgemm(256), 0.4),
    Benchmark("hgemm 1024^3, mma.sync", TENSOR_CORES, "hgemm", lambda: hgemm(1024), 0.8),
    Benchmark("flash attention, 8 heads, N=256, D=64", TENSOR_CORES, "flash", lambda: flash(8, 256), 0.1),
    Benchmark("1M f16x8 adds", *solution("elementwise", "elementwise_f16x8_pack"), lambda: add(1 << 20), 0.05),
    Benchmark(
        "1M block reduce", *solution("block_all_reduce", "block_all_reduce_f32x4_f32"), lambda: reduce(1 << 20), 0.05
    ),
)


def call_s(benchmark: Benchmark) -> float:
    device, arguments = open_device(benchmark.source, threads=THREADS), benchmark.arguments()
    return min(timed(device, benchmark.launcher, arguments) for _ in range(CALLS))


def timed(device: SimDevice, launcher: str, arguments: tuple[Buffer | int, ...]) -> float:
    start = time.perf_counter()
    outcome = run(device, launcher, *arguments)
    taken = time.perf_counter() - start
    assert not outcome.findings, outcome.findings
    return taken


def decode_s(source: Path, launcher: str, arguments: tuple[Buffer | int, ...]) -> float:
    """Parsing and decoding, for 1000 instructions: a module's first launch, of an empty grid, less its second."""
    device, library = open_device(source, threads=THREADS), load_engine(engine())
    ptx = (build(source) / "kata.ptx").read_bytes()

    def once() -> float:
        start = time.perf_counter()
        library.sim_load(ptx, os.fsencode(source), b"sm_90a", THREADS)
        run(device, launcher, *arguments)
        decoded = time.perf_counter()
        run(device, launcher, *arguments)
        return (decoded - start) - (time.perf_counter() - decoded)

    return min(once() for _ in range(CALLS)) * 1000 / len(INSTRUCTION.findall(ptx))


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def main() -> int:
    rows = [(benchmark.title, call_s(benchmark), benchmark.limit_s, "s") for benchmark in BENCHMARKS]
    rows.append(("decode, 1000 instructions", decode_s(TENSOR_CORES, "hgemm", hgemm(0)), DECODE_LIMIT_S, "s"))
    rows.append(("peak memory", peak_gib(), MEMORY_LIMIT_GIB, "GiB"))
    for title, value, limit, unit in rows:
        print(f"{title:<40} {value:8.4f} {unit:<3}  limit {limit:g}{'' if value <= limit else '  OVER'}")
    return 1 if any(value > limit for _, value, limit, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
