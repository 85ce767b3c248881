"""Solutions of katas -> what they leave in their outputs, on a GPU and in the simulator.

A kata is called on the last of its family's named shapes that are small enough to simulate, with each kind of values
in turn. katas.json keeps a digest of every output, and up to SAMPLES of its elements for where rounding may differ.
A kata that is not in it was added later, and one whose code has changed gives other bits: neither is compared until
the next recording.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recorded import Machine

from grader.compile import build
from grader.compile.compilation import INCLUDE
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import Kata, find_root, load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.devices import INSTRUCTIONS, Limits
from grader.devices.sim import engine_library
from grader.judge.case import Case, CaseKey, Expected, allowed
from grader.judge.encoding import decode, stored
from grader.maintain.helpers import helpers_of
from grader.sandbox.parent import Program, Sandbox
from grader.storage import cache

FILE = Path(__file__).with_name("katas.json")
ROOT = find_root(Path(__file__).resolve().parent)
SHAPES = 2  # of each kata
SAMPLES = 64  # elements of an output
LIMITS = Limits(instructions=INSTRUCTIONS * 10, seconds=600.0)
WORK_LIMIT = 2_000_000  # instructions of all threads, as the family's spec estimates them


@dataclass(frozen=True)
class Ran:
    """One kata on one shape. ``outputs``: name -> (digest of its bytes, those of up to SAMPLES elements in hex).

    ``source`` and ``inputs`` are digests of the solution and of what it was given; ``problem`` says why there are no
    outputs.
    """

    kata: str
    shape: CaseKey
    source: str
    inputs: str
    outputs: Mapping[str, tuple[str, str]]
    problem: str = ""

    @property
    def key(self) -> str:
        return f"{self.kata} {self.shape}, {self.shape.values}"


@functools.cache
def all_katas() -> Mapping[str, Kata]:
    return load_catalog(ROOT).katas


def shapes(kata: Kata) -> list[CaseKey]:
    spec = load_spec(kata)
    small = [sizes for sizes in spec.named_sizes if allowed(kata, sizes) and spec.work(sizes) <= WORK_LIMIT]
    chosen = sorted(small, key=spec.work)[-SHAPES:]
    return [
        CaseKey.of(spec, sizes, spec.values[place % len(spec.values)].name, place) for place, sizes in enumerate(chosen)
    ]


def build_solutions(katas: Iterable[Kata], device: str, arch: str) -> list[build.Build]:
    """The solutions that compile; of another, its name and the compiler's error are printed.

    The builds are those that `kata dev check` makes, many in one run of nvcc.
    """
    about: dict[str, Any] = {"target": build.Target(device, arch), "warnings_are_errors": True, "together": True}
    requests = [build.Request(kata, load_spec(kata), source_of(kata.solution_path), **about) for kata in katas]
    built = build.build_all(requests, find_toolchain(), jobs=os.cpu_count() or 1)
    for item in built:
        if isinstance(item, build.CompileFailure):
            print(f"{item.request.kata.name}: {item.message}")
    return [item for item in built if isinstance(item, build.Build)]


def run(built: build.Build) -> Iterator[Ran]:
    """The built kata on each of its shapes."""
    kata, target = built.request.kata, built.request.target
    engine = engine_library(cache.cache_folder()) if target.device == "sim" else None
    with Sandbox(target.device) as sandbox:
        sandbox.load(Program(target.device, target.arch, built.library, built.ptx, built.source, engine, tag=built.tag))
        for shape in shapes(kata):
            yield _run(kata, shape, sandbox)


def _run(kata: Kata, shape: CaseKey, sandbox: Sandbox) -> Ran:
    case = Case(kata, load_spec(kata), shape)
    call = case.call(nth=0, limits=LIMITS)
    given = _digest(b"".join(buffer.data for buffer in call.buffers if buffer.role != "out"))
    outcome = sandbox.call(call)
    problem = "; ".join(f"{finding.kind}: {finding.message}" for finding in outcome.findings)
    sizes = {tensor.name: case.spec.dtype(tensor, kata).itemsize for tensor in case.spec.outputs}
    outputs = {name: (_digest(data), _samples(data, sizes[name])) for name, data in outcome.outputs.items()}
    return Ran(kata.name, shape, source_digest(kata), given, outputs, problem)


def source_digest(kata: Kata) -> str:
    """Of the solution's code, with the functions that it takes from our headers: comments and white space do not
    count."""
    text = kata.solution_path.read_text()
    code = re.sub(r"//[^\n]*|\s+", " ", text)
    taken = set(re.findall(r"\bkata::(\w+)", text))
    given = [code for name, _, code in _of_headers() if name in taken]
    return _digest(" ".join([*code.split(), *given]).encode())


@functools.cache
def _of_headers() -> tuple[tuple[str, str, str], ...]:
    """(name, parameters, code) of the functions in grader/include."""
    return tuple(each for path in sorted(INCLUDE.glob("*.cuh")) for each in helpers_of(path.read_text()))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def sampled(count: int) -> list[int]:
    """The places of the samples of an output with so many elements: all of them, or evenly spread."""
    return sorted({place * (count - 1) // (SAMPLES - 1) for place in range(SAMPLES)}) if count else []


def _samples(data: bytes, size: int) -> str:
    return b"".join(data[place * size : (place + 1) * size] for place in sampled(len(data) // size)).hex()


# -- the recording ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    machine: Machine
    katas: Mapping[str, Ran]


def save(path: Path, machine: Machine, ran: Iterable[Ran]) -> None:
    """A kata that did not run is named, and left out."""
    kept = {}
    for item in ran:
        if item.problem:
            print(f"{item.key}: {item.problem}")
        else:
            kept[item.key] = {name: value for name, value in asdict(item).items() if name != "problem"}
    path.write_text(json.dumps({"machine": asdict(machine), "katas": kept}, indent=1) + "\n")


def load() -> Recorded:
    fields = json.loads(FILE.read_text())
    katas = {}
    for key, item in fields["katas"].items():
        shape = item["shape"]
        sizes = tuple((name, size) for name, size in shape["sizes"])
        outputs = {name: (digest, samples) for name, (digest, samples) in item["outputs"].items()}
        katas[key] = Ran(
            item["kata"], CaseKey(sizes, shape["values"], shape["seed"]), item["source"], item["inputs"], outputs
        )
    return Recorded(Machine(**fields["machine"]), katas)


@functools.cache
def comparable() -> tuple[Ran, ...]:
    """What is recorded of the solutions as they are."""
    now = {name: source_digest(kata) for name, kata in all_katas().items()}
    return tuple(ran for ran in load().katas.values() if now.get(ran.kata) == ran.source)


# -- the comparison --------------------------------------------------------------------------------------------------

# What the ISA leaves open: approximate functions, and whether a product and a sum that name no rounding become one
# fused operation (PTX ISA 9.7.3, "mul" and "add"). Where sums may come in any order, the family's spec says so.
_APPROXIMATE = re.compile(r"\.approx|\bdiv\.full|\btanh\.")
_PRODUCT = re.compile(r"\bmul(\.ftz)?\.b?f\d")
_SUM = re.compile(r"\b(add|sub)(\.ftz)?\.b?f\d")


def _leaves_rounding_open(ptx: str) -> bool:
    return bool(_APPROXIMATE.search(ptx) or (_PRODUCT.search(ptx) and _SUM.search(ptx)))


def differences(built: build.Build, got: Ran, expected: Ran) -> list[str]:
    """One line for each output that differs: to the bit, or where rounding is free by more than the spec allows."""
    if got.outputs == expected.outputs:
        return []  # most do, and a reference takes long
    kata, spec = built.request.kata, built.request.spec
    free = not spec.deterministic or _leaves_rounding_open(built.ptx.read_text())
    case = Case(kata, spec, got.shape)
    found = []
    for answer in case.expected:
        name, (digest, samples) = answer.tensor.name, got.outputs[answer.tensor.name]
        if digest == expected.outputs[name][0]:
            continue
        if not free or answer.bound is None:
            found.append(f"{name}: {samples[:32]}..., the GPU {expected.outputs[name][1][:32]}...")
            continue
        found += _beyond(name, answer, samples, expected.outputs[name][1])
    return found


def _beyond(name: str, answer: Expected, got: str, expected: str) -> list[str]:
    """Samples further apart than two right answers can be."""
    assert answer.bound is not None
    places = sampled(answer.value.size)
    ours, theirs = (decode(stored(bytes.fromhex(text), answer.dtype), answer.dtype) for text in (got, expected))
    apart = abs(ours - theirs) > 2 * answer.bound.flatten()[places]
    return [f"{name}[{places[k]}]: {ours[k]}, the GPU {theirs[k]}" for k in apart.nonzero()[0].tolist()]
