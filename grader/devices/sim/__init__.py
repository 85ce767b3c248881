"""Built kata -> Outcome, on the CPU: the PTX that nvcc made of the learner's file, executed and checked.

The learner's own launcher runs unchanged: the CUDA runtime that it calls is the engine's. A learner's failure is a
Finding with the line of the ``.cu`` file; an exception means that the simulator itself is broken.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from grader.devices import Call, Finding, Outcome, Timed
from grader.devices.launcher_rules import LauncherRules, regions
from grader.devices.sim.arrays import shared_arrays
from grader.devices.sim.engine import EngineError, engine_library
from grader.devices.sim.library import (
    add_buffer,
    add_shapes,
    add_watches,
    buffer_bytes,
    find_launcher,
    follow,
    load_engine,
    load_kata,
    read_births,
    read_counters,
    read_coverage,
    read_findings,
    read_launched,
    read_order,
    read_runtime_calls,
    read_trail,
    read_writers,
)

__all__ = ["EngineError", "SimDevice", "engine_library", "supported_instructions"]


class SimDevice:
    """One built kata on the simulated card. A process has at most one: the CUDA runtime has no handle.

    ``engine`` is what engine_library built, ``library`` and ``ptx`` what nvcc made of ``source`` for ``arch``
    ("sm_90a", "sm_80"); ``threads`` host threads run the blocks.
    """

    def __init__(self, *, engine: Path, library: Path, ptx: Path, source: Path, arch: str, threads: int) -> None:
        self.spent = False
        self._source = source
        self._engine = load_engine(engine)
        self._arch, self._threads = arch.encode(), threads
        self._ptx = ""  # of a call, where it is not the kata's own
        self._arrays = [*shared_arrays(source.read_text(errors="replace"))]  # of other code, too
        unreadable = self._load(ptx)
        self._kata = load_kata(library, source=source)
        self._rules = LauncherRules()
        self._broken = unreadable or self._kata.finding

    def _load(self, ptx: Path) -> Finding | None:
        text = ptx.read_bytes().replace(b"\0", b" ")
        error = self._engine.sim_load(text, os.fsencode(self._source), self._arch, self._threads)
        add_shapes(self._engine, self._arrays)
        if error is None:
            return None
        return Finding(
            "unsupported", f"the PTX cannot be read: {error.decode(errors='replace')}", file=str(self._source)
        )

    def call(self, call: Call, timed: Timed | None = None) -> Outcome:
        """Run the launcher once; return the outputs and what went wrong."""
        library = self._kata.library
        if self._broken is not None or library is None:
            return Outcome(findings=(self._broken,) if self._broken else ())
        if call.ptx not in ("", self._ptx):
            self._ptx = call.ptx
            if unreadable := self._load(Path(call.ptx)):
                return Outcome(findings=(unreadable,))
        launcher = find_launcher(library, call, source=self._source)
        if isinstance(launcher, Finding):
            return Outcome(findings=(launcher,))
        engine = self._engine
        engine.sim_begin(call.seed % 2**64, call.limits.instructions)
        try:
            addresses = [add_buffer(engine, buffer) for buffer in call.buffers]
            self._prepare(call, addresses)
            stream = engine.sim_stream()
            launcher(*addresses, *(scalar.value for scalar in call.scalars), stream)
            broken = self._rules.broken(read_runtime_calls(engine), stream, [regions(call.buffers, addresses)])
            outputs = {
                buffer.name: buffer_bytes(engine, address, len(buffer.data))
                for buffer, address in zip(call.buffers, addresses, strict=True)
                if buffer.role != "in"
            }
            findings = (*read_findings(engine, self._source), *broken)
            return Outcome(
                outputs,
                findings,
                read_counters(engine, call),
                read_writers(engine),
                order=read_order(engine),
                asked_card=bool(engine.sim_asked_card()),
                coverage=read_coverage(engine) if call.coverage else (),
                launched=read_launched(engine),
                births=read_births(engine) if call.births else (),
                trail=read_trail(engine) if call.trail else None,
            )
        finally:
            engine.sim_end()

    def _prepare(self, call: Call, addresses: Sequence[int]) -> None:
        """Set the engine up for what the call asks beside its answer, and for the card that it runs on."""
        engine = self._engine
        if call.card is not None:
            engine.sim_shrink_card(call.card.multiprocessors, call.card.resident, call.card.shared_bytes)
        if call.forgive_copies:
            engine.sim_forgive_copies()
        if call.distrust_volatile:
            engine.sim_distrust_volatile()
        for change in call.host:
            engine.sim_change_host(change.of.encode(), change.place, change.how, change.number % 2**64)
        add_watches(engine, call, addresses)
        if call.counters:
            engine.sim_count()
        if call.births:
            engine.sim_trace()
        if call.trail:
            follow(engine, call, addresses)


def supported_instructions(engine: Path | None = None) -> list[str]:
    """Every instruction form that the engine's tables have, sorted."""
    if engine is None:
        engine = engine_library(Path(tempfile.gettempdir()) / "kata-sim")
    forms: str = load_engine(engine).sim_forms().decode()
    internal = ("resize.", "clock.")
    return sorted({form for form in forms.split("\n") if form and not form.startswith(internal)})
