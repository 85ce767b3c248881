"""Built kata -> a launcher that can be called: the learner's host library on top of the engine.

The engine is loaded globally first, so that the CUDA runtime symbols of the learner's library come from it. Where the
process has another CUDA runtime already, as torch's is, that one would be found before it, unless the library names the
engine among those that it needs.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from grader.content.source_file import first_line_with, lines_with
from grader.devices import CTYPES, Buffer, Call, DeviceError, Finding, pointer
from grader.devices.counters import Birth, CallCounters, KernelCoverage, Launched, Trail, Writer
from grader.devices.report_json import ReportError, decode
from grader.devices.sim.arrays import SharedArray

T = TypeVar("T")

_PROTOTYPES: dict[str, tuple[Any, Sequence[Any]]] = {
    "sim_load": (ctypes.c_char_p, (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)),
    "sim_shape": (None, (ctypes.c_char_p, ctypes.c_uint32, ctypes.c_int, ctypes.POINTER(ctypes.c_uint32))),
    "sim_begin": (None, (ctypes.c_uint64, ctypes.c_uint64)),
    "sim_shrink_card": (None, (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)),
    "sim_asked_card": (ctypes.c_int, ()),
    "sim_forgive_copies": (None, ()),
    "sim_distrust_volatile": (None, ()),
    "sim_change_host": (None, (ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)),
    "sim_add_buffer": (
        ctypes.c_uint64,
        (
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_uint32,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_char_p,
        ),
    ),
    "sim_stream": (ctypes.c_void_p, ()),
    "sim_bytes": (ctypes.c_void_p, (ctypes.c_uint64,)),
    "sim_findings": (ctypes.c_char_p, ()),
    "sim_runtime_calls": (ctypes.c_char_p, ()),
    "sim_watch": (None, (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32)),
    "sim_writers": (ctypes.c_char_p, ()),
    "sim_counters": (None, (ctypes.POINTER(ctypes.c_uint64),)),
    "sim_order": (ctypes.c_char_p, ()),
    "sim_launched": (ctypes.c_char_p, ()),
    "sim_count": (None, ()),
    "sim_counted": (ctypes.c_char_p, ()),
    "sim_trace": (None, ()),
    "sim_births": (ctypes.c_char_p, ()),
    "sim_follow": (None, (ctypes.c_int, ctypes.c_uint64)),
    "sim_trail": (ctypes.c_char_p, ()),
    "sim_coverage": (ctypes.c_char_p, ()),
    "sim_end": (None, ()),
    "sim_finding_kinds": (ctypes.c_char_p, ()),
    "sim_wavefronts": (
        ctypes.c_uint64,
        (ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int),
    ),
    "sim_forms": (ctypes.c_char_p, ()),
    "sim_signatures": (ctypes.c_char_p, ()),
}


@dataclass(frozen=True)
class Loaded:
    """The learner's library, or the finding that says why it cannot be loaded."""

    library: ctypes.CDLL | None
    finding: Finding | None = None


def load_engine(path: Path) -> ctypes.CDLL:
    """The engine's C interface. Raises OSError when the file is no library for this machine."""
    engine = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(engine, name)
        function.restype = result
        function.argtypes = list(arguments)
    return engine


def add_shapes(engine: ctypes.CDLL, arrays: Sequence[SharedArray]) -> None:
    """Tell how the source declares its arrays in shared memory: PTX knows their bytes alone."""
    for array in arrays:
        sizes = (ctypes.c_uint32 * len(array.sizes))(*(size or 0 for size in array.sizes))
        engine.sim_shape(array.name.encode(), array.itemsize or 0, len(array.sizes), sizes)


def load_kata(path: Path, *, source: Path) -> Loaded:
    """The learner's library; every symbol is resolved now, so that a missing one is known by its name.

    It is looked for in what the library needs, then in what the process has.
    """
    try:
        return Loaded(ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_DEEPBIND))
    except OSError as error:
        return Loaded(None, _load_finding(str(error), path, source))


_RUNTIME = re.compile(r"_*cu(da)?[A-Z]\w+")


def _load_finding(error: str, library: Path, source: Path) -> Finding:
    missing = re.search(r"undefined symbol: (\w+)", error)
    if missing is None:
        return Finding("unsupported", f"the built library cannot be loaded: {error}", file=str(source))
    lines = _lines_of_missing(library, source)
    symbol = min(lines, key=lines.__getitem__) if lines else missing.group(1)
    reason = "the simulator's CUDA runtime does not have" if _RUNTIME.match(symbol) else "no library defines"
    others = sorted(lines.keys() - {symbol})
    more = f"; nor has it {' and '.join(others)}" if others else ""
    return Finding("unsupported", f"calls {symbol}, which {reason}{more}", file=str(source), line=lines.get(symbol))


def _lines_of_missing(library: Path, source: Path) -> dict[str, int]:
    """The calls of the CUDA runtime that the engine has not -> the first line of the source that names each."""
    process, text = ctypes.CDLL(None), source.read_text(errors="replace")
    listed = subprocess.run(["nm", "-D", "-u", str(library)], capture_output=True, text=True).stdout.split()
    names = [name for name in listed if _RUNTIME.fullmatch(name) and not hasattr(process, name)]
    lines = {name: first_line_with(name, text) or first_line_with(name.partition("_v")[0], text) for name in names}
    return {name: line for name, line in lines.items() if line}


def find_launcher(library: ctypes.CDLL, call: Call, *, source: Path) -> Any:
    """The exported launcher, or a Finding when the library has none of that name."""
    try:
        launcher = getattr(library, call.launcher)
    except AttributeError:
        return Finding("launch failed", f"exports no launcher named {call.launcher}", file=str(source))
    launcher.restype = None
    launcher.argtypes = [
        *(ctypes.c_void_p for _ in call.buffers),
        *(CTYPES[scalar.ctype] for scalar in call.scalars),
        ctypes.c_void_p,
    ]
    return launcher


def add_buffer(engine: ctypes.CDLL, buffer: Buffer) -> int:
    """The buffer's device address. An input's bytes are used in place and must outlive the call."""
    data = buffer.given if buffer.role == "in" else bytes(buffer.data)
    address: int = engine.sim_add_buffer(
        buffer.name.encode(),
        buffer.role != "out",
        buffer.role != "in",
        buffer.itemsize,
        len(data),
        buffer.offset_bytes,
        pointer(data),
    )
    return address


def buffer_bytes(engine: ctypes.CDLL, address: int, size: int) -> bytes:
    return ctypes.string_at(engine.sim_bytes(address), size) if size else b""


def read_findings(engine: ctypes.CDLL, source: Path) -> tuple[Finding, ...]:
    """What the engine saw go wrong in the call. Raises DeviceError."""
    found = _report(engine.sim_findings(), "findings", list)
    return tuple(_placed(_read(Finding, item, "a finding"), source) for item in found)


def _placed(finding: Finding, source: Path) -> Finding:
    """With the line of the call that the simulator refuses, where one line alone names it."""
    refused = re.match(r"(?:the )?(cuda[A-Z]\w+|__managed__)", finding.message)
    if finding.kind != "unsupported" or finding.line is not None or refused is None:
        return finding
    lines = lines_with(refused[1], source.read_text(errors="replace"))
    return replace(finding, file=str(source), line=lines[0]) if len(lines) == 1 else finding


def read_runtime_calls(engine: ctypes.CDLL) -> str:
    """As grader.devices.runtime_calls reads it."""
    text: str = engine.sim_runtime_calls().decode(errors="replace")
    return text


def add_watches(engine: ctypes.CDLL, call: Call, addresses: Sequence[int]) -> None:
    """Ask who last writes each element of ``call.watch``; one that is in no buffer is left out."""
    places = {buffer.name: (buffer, address) for buffer, address in zip(call.buffers, addresses, strict=True)}
    for name, index in call.watch:
        if name in places and 0 <= index * places[name][0].itemsize < len(places[name][0].data):
            buffer, address = places[name]
            engine.sim_watch(f"{name}[{index}]".encode(), address + index * buffer.itemsize, buffer.itemsize)


def read_writers(engine: ctypes.CDLL) -> dict[str, Writer]:
    """Who wrote each watched element. Raises DeviceError."""
    found = _report(engine.sim_writers(), "writers", dict)
    return {place: _read(Writer, item, f"the writer of {place}") for place, item in found.items()}


def read_order(engine: ctypes.CDLL) -> Writer | None:
    """An atomic of the call that gives another result in another order of threads. Raises DeviceError."""
    found = _report(engine.sim_order(), "order", object)
    return None if found is None else _read(Writer, found, "the order")


def read_births(engine: ctypes.CDLL) -> tuple[Birth, ...]:
    """Where a call with ``call.births`` first made nan and infinities. Raises DeviceError."""
    found = _report(engine.sim_births(), "births", list)
    return tuple(_read(Birth, item, "a birth") for item in found)


def follow(engine: ctypes.CDLL, call: Call, addresses: Sequence[int]) -> None:
    """Note the accesses of a call with ``call.trail``; the first watched element is the one that it is about."""
    focus = 0
    for buffer, address in zip(call.buffers, addresses, strict=True):
        focus += sum(address + index * buffer.itemsize for name, index in call.watch[:1] if name == buffer.name)
    engine.sim_follow(call.trail, focus)


def read_trail(engine: ctypes.CDLL) -> Trail:
    """What the second of two calls with ``call.trail`` moves that the first did not. Raises DeviceError."""
    return _read(Trail, _report(engine.sim_trail(), "trail", dict), "the trail")


def read_launched(engine: ctypes.CDLL) -> tuple[Launched, ...]:
    """The launches of the call, in their order. Raises DeviceError."""
    found = _report(engine.sim_launched(), "launches", list)
    return tuple(_read(Launched, item, "a launch") for item in found)


def read_counters(engine: ctypes.CDLL, call: Call) -> CallCounters:
    """Totals of the call; with ``call.counters`` also each kernel's. Raises DeviceError."""
    names = ("launches", "warp_instructions", "thread_instructions")
    values = (ctypes.c_uint64 * len(names))()
    engine.sim_counters(values)
    kernels = _report(engine.sim_counted(), "counters", list) if call.counters else []
    return _read(CallCounters, {**dict(zip(names, values, strict=True)), "kernels": kernels}, "the counters")


def read_coverage(engine: ctypes.CDLL) -> tuple[KernelCoverage, ...]:
    """The record of each kernel, in all calls until now. Raises DeviceError."""
    try:
        found = _report(engine.sim_coverage(), "coverage", list)
        return tuple(decode(KernelCoverage, item, "a kernel's coverage") for item in found)
    except ReportError as error:
        raise DeviceError(f"the simulator's engine: {error}") from None


def _report(text: bytes, what: str, kind: type[T]) -> T:
    """A JSON text of the engine."""
    try:
        found = json.loads(text.decode(errors="replace"))
    except ValueError as error:
        raise DeviceError(f"the simulator's engine: its {what} are not JSON: {error}") from None
    if not isinstance(found, kind):
        raise DeviceError(f"the simulator's engine: its {what} are not a {kind.__name__}")
    return found


def _read(kind: type[T], item: object, what: str) -> T:
    """What the engine reports, as a dataclass."""
    try:
        return decode(kind, item, what)
    except ReportError as error:
        raise DeviceError(f"the simulator's engine: {error}") from None
