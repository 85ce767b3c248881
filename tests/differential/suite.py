"""The engine's tables -> every program that is run on a GPU and in the simulator.

A form is compared by its programs, or stands in NOT_COMPARED with the reason, or is no PTX of sm_90a at all
(not_ptx.py). A test sees to it that each of the engine's forms is one of these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

import access
import asynchronous
import atomic
import block
import cluster
import integer
import matrix
import mbarrier
import scalar
import tensor
import video
import warp
import wgmma
import wmma
from program import Program

from grader.devices.sim import engine_library, supported_instructions
from grader.devices.sim.library import load_engine
from grader.storage.cache import cache_folder

Generator = Callable[[str], Iterator[Program]]

MODULES = (
    integer, access, warp, block, atomic, matrix, wmma, asynchronous, mbarrier, cluster, tensor, wgmma, video,
)  # fmt: skip
GENERATORS: Mapping[str, Mapping[str, Generator]] = {module.__name__: module.PROGRAMS for module in MODULES}

NOT_COMPARED = {
    "prefetch.const.tensormap": "takes a map in constant memory, which only a host program writes",
    **dict.fromkeys(("brkpt", "trap"), "ends the kernel with an error, which a test of the findings covers"),
    **dict.fromkeys(
        ("tex.1d.v4.f32.s32", "tex.1d.v4.s32.s32", "tex.1d.v4.u32.s32"),
        "reads a texture object, which only a CUDA runtime makes: tests/test_sim_runtime.py",
    ),
}


@functools.cache
def signatures() -> Mapping[str, scalar.Form]:
    """The forms on registers alone."""
    engine = load_engine(engine_library(cache_folder(), tell=print))
    return {form.name: form for form in scalar.parse_signatures(engine.sim_signatures().decode())}


def forms() -> list[str]:
    """Every form of the engine's tables."""
    return supported_instructions(engine_library(cache_folder(), tell=print))


def programs(names: Iterable[str]) -> dict[str, list[Program]]:
    """Class -> its programs: all that the forms have."""
    found: dict[str, list[Program]] = {"scalar": [], **{name: [] for name in GENERATORS}}
    for form in names:
        for kind, written in _programs_of(form):
            found[kind] += written
    return found


@functools.cache
def _programs_of(form: str) -> list[tuple[str, list[Program]]]:
    found: list[tuple[str, list[Program]]] = []
    where = _generator(form)
    if form in signatures() and (where is None or where[0] != cluster.__name__):
        found.append(("scalar", [scalar.program(signatures()[form])]))
    if where is not None and form not in NOT_COMPARED:
        kind, generate = where
        found.append((kind, [*generate(form)]))
    return found


def _generator(form: str) -> tuple[str, Generator] | None:
    """Of the longest prefix that the form begins with."""
    matching = [
        (len(prefix), kind, generate)
        for kind, table in GENERATORS.items()
        for prefix, generate in table.items()
        if form.startswith(prefix)
    ]
    return max(matching, key=lambda match: match[0])[1:] if matching else None
