"""A GPU -> expected.xz and katas.json: what it makes of the programs, and of every kata's solution.

    PYTHONPATH=. python3 tests/differential/capture.py [--only CLASS...] [--new] [--katas] [--folder FOLDER]
                                                       [--compiled FILE] [--dry-run]

Run where there is an sm_90 GPU. Without --only and --new all programs are recorded again; else the results go into the
recording that is there, which must be of the same machine. With --katas solutions are run, too, and with --new only
those that are not recorded as they are. The file is written after each class, so that a limit of time loses one class
at most. --compiled keeps the machine code in a file, and takes it from there if the file is there already; --dry-run
stops before the GPU is needed: both together compile ahead.

A program that ptxas refuses is left out, as not_ptx.py does; one that the GPU ends with an error, or not at all, is
named and left out. Each class runs in a child process, and a new one takes over behind a program that broke the last.
A class that breaks MOST_BROKEN of them is left there.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from ctypes import byref, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import katas
from not_ptx import compile_all
from program import MAPS, PARAMETER, Map, Program
from ptxas import Compiled, find_ptxas
from recorded import FILE, Machine, Recording, load, load_all, save
from suite import forms, programs

from grader.compile.toolchain import Gpu, find_gpu, find_toolchain
from grader.devices.gpu.driver import Driver

STALL_S = 20  # without a result, the start of a child among it
MOST_BROKEN = 20  # programs of a class

Work = Mapping[str, list[Compiled]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", metavar="CLASS", default=())
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--katas", action="store_true")
    parser.add_argument("--folder", type=Path, default=FILE.parent)
    parser.add_argument("--compiled", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    start = time.monotonic()
    before = load() if FILE.exists() and (options.only or options.new) else None
    compiled = _compiled(options.compiled, options.only, load_all().results if options.new and before else ())
    accepted = sum(len(module.programs) for group in compiled.values() for module in group)
    print(f"{accepted} programs compiled after {time.monotonic() - start:.1f} s", flush=True)
    if options.dry_run:
        return
    gpu = find_gpu()
    assert gpu is not None, "capturing needs a GPU"
    machine, out = _machine(gpu), options.folder / FILE.name
    if before is not None and replace(before.machine, date=machine.date) != machine:
        print(f"not merged: the recording is of {before.machine}", flush=True)
        before = None
    results, found = dict(before.results if before else {}), 0
    for kind, group in compiled.items():
        ran = _run_class(kind, group)
        results, found = results | ran, found + len(ran)
        save(out, Recording(machine, results), quick=True)
        print(f"{kind}: {len(ran)} done after {time.monotonic() - start:.1f} s", flush=True)
    save(out, Recording(machine, results))
    print(f"{found} of {accepted} programs recorded on {machine}", flush=True)
    if options.katas:
        kept = katas.comparable() if options.new else ()
        known = {ran.kata for ran in kept}
        wanted = [kata for name, kata in katas.all_katas().items() if name not in known]
        solutions = katas.build_solutions(wanted, "gpu", gpu.arch)
        print(f"{len(solutions)} katas compiled after {time.monotonic() - start:.1f} s", flush=True)
        ran = (ran for built in solutions for ran in katas.run(built))
        katas.save(options.folder / katas.FILE.name, machine, itertools.chain(kept, ran))
    print(f"all done after {time.monotonic() - start:.1f} s")


def _compiled(kept: Path | None, only: Collection[str], known: Collection[str]) -> Work:
    """Of the chosen classes, without the programs that are known."""
    if kept is not None and kept.exists():
        work: Work = pickle.loads(kept.read_bytes())
        return work
    groups = programs(forms())
    assert set(only) <= set(groups), f"the classes are {', '.join(groups)}"
    chosen = {kind: [each for each in group if each.name not in known] for kind, group in groups.items()}
    work = {kind: compile_all(group) for kind, group in chosen.items() if group and (not only or kind in only)}
    if kept is not None:
        kept.write_bytes(pickle.dumps(work))
    return work


def _machine(gpu: Gpu) -> Machine:
    said = subprocess.run([str(find_ptxas()), "--version"], capture_output=True, text=True)
    ptxas = re.findall(r"V([\d.]+)", said.stdout)[0]
    nvcc = ".".join(map(str, find_toolchain().nvcc_version))
    return Machine(datetime.now(timezone.utc).date().isoformat(), gpu.name, gpu.driver, nvcc, ptxas)


def _run_class(kind: str, group: list[Compiled]) -> dict[str, bytes]:
    """The results of all programs of one class that the GPU brings to an end."""
    names = [program.name for module in group for program in module.programs]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "work")
        work.write_bytes(pickle.dumps(group))
        found: dict[int, bytes] = {}
        start = broken = 0
        while start < len(names) and broken < MOST_BROKEN:
            ran, said = _run_child(work, start)
            found |= ran
            start = max((start, *(place + 1 for place in ran)))
            if start < len(names):
                print(f"{kind}: {names[start]}: {said}", flush=True)
                start, broken = start + 1, broken + 1
        if start < len(names):
            print(f"{kind}: {broken} programs broke; the last {len(names) - start} were not run", flush=True)
        return {names[place]: data for place, data in found.items()}


def _run_child(work: Path, start: int) -> tuple[dict[int, bytes], str]:
    """The results from a place on, and the child's last words; it is ended when it has written nothing for STALL_S."""
    out = work.with_name(f"out{start}")
    out.touch()
    command = [sys.executable, __file__, "--child", str(work), str(out), str(start)]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=errors, stderr=errors)
        written, since = out.stat().st_size, time.monotonic()
        while child.poll() is None:
            if out.stat().st_size != written:
                written, since = out.stat().st_size, time.monotonic()
            elif time.monotonic() - since > STALL_S:
                child.kill()
                child.wait()
                return _read(out), "does not end"
            time.sleep(0.02)
        errors.seek(0)
        return _read(out), (errors.read().strip().splitlines() or ["ended"])[-1]


def _read(out: Path) -> dict[int, bytes]:
    """All that a child has written, cut off where it was ended."""
    found = {}
    with out.open("rb") as stream:
        try:
            while True:
                place, data = pickle.load(stream)
                found[place] = data
        except (EOFError, pickle.UnpicklingError):
            return found


def _child(work: Path, out: Path, start: int) -> None:
    driver, place = Driver(), 0
    with out.open("ab") as stream:
        for compiled in pickle.loads(work.read_bytes()):
            if place + len(compiled.programs) > start:
                module = c_void_p()
                driver.do("cuModuleLoadData", byref(module), compiled.cubin)
                for kernel, program in enumerate(compiled.programs):
                    if place + kernel >= start:
                        pickle.dump((place + kernel, _run(driver, module, kernel, program)), stream)
                        stream.flush()
                driver.do("cuModuleUnload", module)
            place += len(compiled.programs)


class _Maps:
    """The program's tensor maps in memory of the host, on 64 bytes."""

    def __init__(self, driver: Driver, program: Program, source: c_uint64, target: c_uint64) -> None:
        self._memory = ctypes.create_string_buffer(128 * MAPS + 64)
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        for place, each in enumerate(program.maps):
            at = c_void_p(self.address + 128 * place)
            base = c_void_p((source if each.of == "in" else target).value)
            self._encode(driver, at, base, each)

    @staticmethod
    def _encode(driver: Driver, at: c_void_p, base: c_void_p, each: Map) -> None:
        rank = len(each.dims)
        dims, strides = (c_uint64 * rank)(*each.dims), (c_uint64 * rank)(*each.strides)
        box, steps = (c_uint32 * len(each.box))(*each.box), (c_uint32 * rank)(*(each.steps or [1] * rank))
        if not each.lower:
            rest = (box, steps, 0, each.swizzle, 0, 0)
            driver.do("cuTensorMapEncodeTiled", at, each.kind, rank, base, dims, strides, *rest)
            return
        corners = [(c_int * len(corner))(*corner) for corner in (each.lower, each.upper)]
        columns = (*corners, *each.box, steps, 0, each.swizzle, 0, 0)
        driver.do("cuTensorMapEncodeIm2col", at, each.kind, rank, base, dims, strides, *columns)


def _run(driver: Driver, module: c_void_p, kernel: int, program: Program) -> bytes:
    function, source, target = c_void_p(), c_uint64(), c_uint64()
    driver.do("cuModuleGetFunction", byref(function), module, f"k{kernel}".encode())
    given, out = program.given, ctypes.create_string_buffer(program.out_bytes)
    driver.do("cuMemAlloc_v2", byref(source), len(given) + 64)
    driver.do("cuMemAlloc_v2", byref(target), len(out))
    driver.do("cuMemcpyHtoD_v2", source, given + bytes(64), len(given) + 64)
    driver.do("cuMemcpyHtoD_v2", target, out, len(out))
    parameter = ctypes.create_string_buffer(PARAMETER, len(PARAMETER))
    maps = _Maps(driver, program, source, target)
    arguments = (c_void_p * 4)(*map(ctypes.addressof, (source, target, parameter)), maps.address)
    driver.do(
        "cuLaunchKernel", function, program.blocks, 1, 1, program.threads, 1, 1, 0, driver.stream, arguments, None
    )
    driver.do("cuCtxSynchronize")
    driver.do("cuMemcpyDtoH_v2", out, target, len(out))
    driver.do("cuMemFree_v2", source)
    driver.do("cuMemFree_v2", target)
    return out.raw


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
