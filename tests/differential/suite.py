"""The engine's tables -> every program that is run on a GPU and in the simulator.

A form is compared by its programs, or stands in NOT_COMPARED with the reason, or is no PTX of sm_90a at all
(not_ptx.py). A test sees to it that each of the engine's forms is one of these.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import access
import asynchronous
import atomic
import block
import integer
import matrix
import mbarrier
import scalar
import video
import warp
import wmma
from program import Program

from grader.devices.sim import engine_library, supported_instructions
from grader.devices.sim.library import load_engine
from grader.storage.cache import cache_folder

Generator = Callable[[str], Iterator[Program]]

MODULES = (integer, access, warp, block, atomic, matrix, wmma, asynchronous, mbarrier, video)
GENERATORS: Mapping[str, Mapping[str, Generator]] = {module.__name__: module.PROGRAMS for module in MODULES}

NOT_COMPARED = {
    "trap": "ends the kernel with an error, which a test of the findings covers",
    **dict.fromkeys(
        ("tex.1d.v4.f32.s32", "tex.1d.v4.s32.s32", "tex.1d.v4.u32.s32"),
        "reads a texture object, which only a CUDA runtime makes: tests/test_sim_runtime.py",
    ),
}
# Of whole families: what their forms begin with, or have in them -> a name for them all, and the reason.
_FAMILIES = {
    r"wgmma\.": ("wgmma", "is done by four warps, a program here has one: tests/test_sim_warpgroups.py"),
    r".*\.tensor(map|\.)": (
        "tensor copies",
        "take a map that the driver's host side makes: tests/test_sim_tensor_maps.py",
    ),
    r"cp\.reduce\.async\.bulk\.": ("cp.reduce.async.bulk", "is new: tests/test_sim_tensor_maps.py"),
    r"(mapa|getctarank|(st|red)\.async)\.|.*multicast::cluster|cp\.async\.bulk\.shared::cluster\.shared::cta": (
        "mapa, getctarank, st.async, red.async, multicast",
        "reach other blocks of a cluster, a program here has one: tests/test_sim_clusters.py",
    ),
}
# Those that have programs, which the next recording on a GPU takes in: then their line goes.
_NOT_RECORDED = {
    r"v(?!ote|absdiff[24]\.[us]32\.(u32\.u32|s32\.s32)(\.add)?$)": (
        "video instructions",
        "are not recorded yet, tests/test_sim_video.py has the ISA's pseudocode",
    ),
}


def why_not_compared(form: str) -> tuple[str, str] | None:
    """A name for what is not compared with this form, itself perhaps, and the reason."""
    return _why_no_program(form) or _first(_NOT_RECORDED, form)


def _why_no_program(form: str) -> tuple[str, str] | None:
    return (form, NOT_COMPARED[form]) if form in NOT_COMPARED else _first(_FAMILIES, form)


def _first(families: Mapping[str, tuple[str, str]], form: str) -> tuple[str, str] | None:
    return next((why for pattern, why in families.items() if re.match(pattern, form)), None)


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
        if form in signatures():
            found["scalar"].append(scalar.program(signatures()[form]))
        where = _generator(form)
        if where is not None and _why_no_program(form) is None:
            kind, generate = where
            found[kind] += generate(form)
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
