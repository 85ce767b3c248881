"""C++ sources -> the simulator's engine, one shared library.

The library is built once for each state of sources, compiler, flags and processor, and appears in the cache only when
it is whole: a build runs in a folder of its own that is renamed into place, so interrupted and concurrent ones do no
harm. The library and its object files are checked before each use (storage/entries.py); what is damaged is built anew.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from grader.fault import Fault
from grader.storage import cache, entries, manifest
from grader.storage.entries import Made
from grader.storage.lock import BuildLocks
from grader.storage.manifest import Hashes

SOURCES = Path(__file__).parent / "engine"
STAND_INS = ("cublas",)  # folders beside it: without one, the katas of its library are refused on the simulator
LIBRARY = "libsim_engine.so"
OBJECT = "object.o"
FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread")
NATIVE = "-march=native"
# Known by its name to a library that needs it, and calling its own CUDA runtime whatever else the process has.
LINK_FLAGS = ("-shared", f"-Wl,-soname,{LIBRARY}", "-Wl,-Bsymbolic")
_ROOM = "Free some space, or set KATA_CACHE to a folder on another disk."
_MEMORY = "Close other programs, then grade again."
_NO_ROOM = {  # what g++ says on a machine that is full, and what helps
    os.strerror(errno.ENOSPC): _ROOM,
    os.strerror(errno.EDQUOT): _ROOM,
    "Killed signal terminated program": _MEMORY,
    "out of memory": _MEMORY,
}
PATIENCE_S = 300.0  # with another process that builds the same
OPTIMISATION = "-O2"
# Sources that are compiled as one, so that g++ reads the C++ library, and makes what they need of it, once for all of
# them. What runs once a launch is in a group of -O1, what runs for every warp instruction in one of -O3. A group shares
# the names of its unnamed namespaces: two of the same do not compile. A source without a group is compiled by itself,
# with OPTIMISATION.
GROUPS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "-O1": (
        ("api", "bases", "block", "builtins", "card", "coverage", "declarations", "heap", "runtime_calls", "tokens"),
        ("counters", "decode", "device", "finding", "grid", "standstill"),
        ("graphs", "host_memory", "layout", "limits", "loaded_module", "lower", "parse_instruction", "rows"),
        ("operands", "parser", "passing", "runtime", "streams", "transfers"),
    ),
    "-O2": (
        ("asynchronous", "atomic", "births", "calls", "carry", "clock", "cluster", "cluster_copy", "division"),
        ("bulk_reduction", "collective", "compare", "control", "driver", "float8", "host_changes", "occupancy"),
        ("convert", "float_convert", "rounding", "special", "wide_integer"),
        ("copies", "dependent_launch", "global_shadow", "half", "lexer", "matrix", "move", "ordering"),
        ("mbarrier", "mbarrier_notes", "memory", "operation", "packed_integer", "phases", "poison", "predicate"),
        (
            "register_pool",
            "release_acquire",
            "rounds",
            "routes",
            "tensor_copy",
            "tensor_map",
            "trail",
            "watch",
            "watched_rows",
        ),
        ("tensor_map_change", "video", "warpgroup"),
        ("texture", "wmma"),
    ),
    "-O3": (("access", "check_access", "floating", "mma", "product"), ("integer", "shared", "warp", "wgmma")),
}


class EngineError(Fault):
    """The engine cannot be built; the message says why and what to do."""


def engine_library(
    folder: Path, *, tell: Callable[[str], None] | None = None, compiler: str | None = None, jobs: int | None = None
) -> Path:
    """The engine's shared library, built into the cache ``folder`` unless it is there already.

    ``progress`` is told that a build begins and ends: it takes about half a minute, once. ``compiler`` is g++ unless
    given; ``jobs`` compilers run at once, as many as there are processors unless given.
    Raises EngineError when there is no compiler or a source does not compile, CacheError when the cache is at fault.
    """
    path = _compiler_path(compiler or os.environ.get("CXX") or "g++")
    about = os.stat(path)
    flags, compiler_key = _known(path, about.st_mtime_ns, about.st_size)
    headers, sources = _files((SOURCES,), ".h"), engine_sources()
    place = folder / f"engine-{_digest_of_states(f'{compiler_key} {manifest.VERSION}', _states([*headers, *sources]))}"
    if built := entries.find(place, Hashes()):
        return built / LIBRARY
    say = tell or (lambda line: None)
    with BuildLocks(folder) as claims, cache.staging(folder) as stage:
        claims.wait(place.name, until=lambda: entries.find(place, Hashes()) is not None, limit_s=PATIENCE_S)
        if built := entries.find(place, Hashes()):  # another process has just built it
            return built / LIBRARY
        say("building the simulator: about half a minute, once")
        made = stage / place.name
        made.mkdir()
        units = _units(sources)
        places = {unit: folder / "objects" / _digest(compiler_key, *headers, *unit.sources) for unit in units}
        objects = _compile([path, *flags], places, stage, jobs or os.cpu_count() or 1)
        _run([path, *flags, *LINK_FLAGS, *map(str, objects), "-o", str(made / LIBRARY)], LIBRARY, stage)
        [built] = entries.keep([Made(made, place)], Hashes())
    say("the simulator is built")
    return built / LIBRARY


def engine_sources() -> list[Path]:
    """The engine's own, and those of the stand-ins for libraries that are there."""
    return _files((SOURCES, *(SOURCES.parent / name for name in STAND_INS)), ".cpp")


def _files(folders: Sequence[Path], ending: str) -> list[Path]:
    """Those of the folders, as far as there are such, in order."""
    names = [f"{folder}/{name}" for folder in folders if folder.is_dir() for name in os.listdir(folder)]
    return [Path(name) for name in sorted(names) if name.endswith(ending)]


def _compiler_path(compiler: str) -> str:
    path = shutil.which(compiler)
    if path is None:
        raise EngineError(f"{compiler} is not on PATH; the simulator needs a C++17 compiler: install g++ 9 or later")
    return path


@functools.cache
def _known(compiler: str, changed_ns: int, size: int) -> tuple[tuple[str, ...], str]:
    """The flags and the key of a compiler, which is asked for them once in a process unless it changes."""
    flags = _flags(compiler)
    return flags, _compiler_key(compiler, flags)


def _flags(compiler: str) -> tuple[str, ...]:
    probe = subprocess.run(
        [compiler, NATIVE, "-x", "c++", "-E", os.devnull], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return (*FLAGS, NATIVE) if probe.returncode == 0 else FLAGS


def _compiler_key(compiler: str, flags: Sequence[str]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    optimisation = f"{OPTIMISATION} {GROUPS}"
    return "\0".join((version, " ".join((*flags, *LINK_FLAGS)), optimisation, platform.machine(), _processor()))


def _digest(compiler_key: str, *files: Path) -> str:
    digest = hashlib.sha256(compiler_key.encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _states(files: Sequence[Path]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Files, each with what changes when it is written."""
    found = [(str(file), os.stat(file)) for file in files]
    return tuple((name, (at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)) for name, at in found)


@functools.lru_cache(maxsize=4)
def _digest_of_states(compiler_key: str, states: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    """The digest of files, which are read again if one was written since: every grade asks for it."""
    return _digest(compiler_key, *(Path(name) for name, _ in states))


@dataclass(frozen=True)
class _Unit:
    """Sources that become one object file."""

    sources: tuple[Path, ...]
    optimisation: str = OPTIMISATION

    @property
    def bytes(self) -> int:
        return sum(source.stat().st_size for source in self.sources)

    @property
    def text(self) -> str:
        return "".join(f'#include "{source}"\n' for source in self.sources)


def _units(sources: Sequence[Path]) -> list[_Unit]:
    """The sources in their groups, as far as they are there; then those without a group."""
    named = {source.stem: source for source in sources}
    units = [
        _Unit(tuple(named.pop(name) for name in names if name in named), flag)
        for flag, groups in GROUPS.items()
        for names in groups
    ]
    return [unit for unit in units if unit.sources] + [_Unit((source,)) for source in named.values()]


def _processor() -> str:
    """What -march=native depends on: a cache shared between machines must not mix their instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _compile(command: Sequence[str], places: Mapping[_Unit, Path], stage: Path, jobs: int) -> list[Path]:
    """The object file of each unit, at its place in the cache: a change in one source compiles its unit again."""
    hashes = Hashes()
    kept = {unit: entries.find(place, hashes) for unit, place in places.items()}
    # The largest first: they take longest.
    missing = sorted((unit for unit in kept if kept[unit] is None), key=lambda unit: -unit.bytes)

    def compile_one(unit: _Unit) -> Path:
        made = stage / places[unit].name
        made.mkdir()
        text = stage / f"{places[unit].name}.cpp"
        text.write_text(unit.text)
        flags = [unit.optimisation, "-I", str(SOURCES), "-c", str(text), "-o", str(made / OBJECT)]
        _run([*command, *flags], f"the unit of {unit.sources[0].name}", stage)
        return entries.keep([Made(made, places[unit])], Hashes())[0]

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        futures = {unit: pool.submit(compile_one, unit) for unit in missing}
        try:
            kept |= {unit: future.result() for unit, future in futures.items()}
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [place / OBJECT for place in kept.values() if place is not None]


def _run(command: list[str], what: str, stage: Path) -> None:
    """Have g++ make something. Its own temporary files are gone with the stage, also where it is killed."""
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(stage)}
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
    if result.returncode != 0:
        raise EngineError(_refusal(result.stderr.splitlines(), f"exit status {result.returncode}", command[0], what))


def _refusal(said: Sequence[str], status: str, compiler: str, what: str) -> str:
    """Why g++ made nothing: the machine had no room, or it is not the right compiler."""
    for words, fix in _NO_ROOM.items():
        if line := next((line.strip() for line in said if words in line), None):
            return f"the simulator's engine cannot be built: {what}: {line}. {fix}"
    first = next((line for line in said if "error" in line), said[0] if said else status).strip()
    return f"the simulator's engine does not compile: {what}: {first}; is {compiler} g++ 9 or later?"
