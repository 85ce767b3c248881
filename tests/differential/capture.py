"""A GPU -> expected.xz and katas.json: what it makes of every program, and of every kata's solution.

    PYTHONPATH=. python3 tests/differential/capture.py [--folder FOLDER] [--dry-run]

Run where there is an sm_90 GPU. A program that ptxas refuses is left out, as not_ptx.py does; one that the GPU ends
with an error, or not at all, is named and left out: each class of programs runs in a child process, and a new one
takes over behind a program that broke the last. --dry-run stops before the GPU is needed.
"""

from __future__ import annotations

import argparse
import ctypes
import pickle
import re
import subprocess
import sys
import tempfile
import time
from ctypes import byref, c_int, c_uint32, c_uint64, c_void_p
from datetime import datetime, timezone
from pathlib import Path

import katas
from not_ptx import compile_all
from program import MAPS, PARAMETER, Map, Program
from ptxas import Compiled, find_ptxas
from recorded import FILE, Machine, Recording, save
from suite import forms, programs

from grader.compile.toolchain import Gpu, find_gpu, find_toolchain
from grader.devices.gpu.driver import Driver

LIMIT_S = 300  # for a class of programs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=FILE.parent)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    start = time.monotonic()
    compiled = {kind: compile_all(group) for kind, group in programs(forms()).items()}
    accepted = sum(len(module.programs) for group in compiled.values() for module in group)
    print(f"{accepted} programs compiled after {time.monotonic() - start:.1f} s", flush=True)
    if options.dry_run:
        return
    gpu = find_gpu()
    assert gpu is not None, "capturing needs a GPU"
    results: dict[str, bytes] = {}
    for kind, group in compiled.items():
        results |= _run_class(kind, group)
        print(f"{kind} done after {time.monotonic() - start:.1f} s", flush=True)
    machine = _machine(gpu)
    save(options.folder / FILE.name, Recording(machine, results))
    print(f"{len(results)} of {accepted} programs recorded on {machine}", flush=True)
    solutions = katas.build_solutions(katas.all_katas().values(), "gpu", gpu.arch)
    katas.save(options.folder / katas.FILE.name, machine, (ran for built in solutions for ran in katas.run(built)))
    print(f"all done after {time.monotonic() - start:.1f} s")


def _machine(gpu: Gpu) -> Machine:
    said = subprocess.run([str(find_ptxas()), "--version"], capture_output=True, text=True)
    ptxas = re.findall(r"V([\d.]+)", said.stdout)[0]
    nvcc = ".".join(map(str, find_toolchain().nvcc_version))
    return Machine(datetime.now(timezone.utc).date().isoformat(), gpu.name, gpu.driver, nvcc, ptxas)


def _run_class(kind: str, group: list[Compiled]) -> dict[str, bytes]:
    """The results of all programs of one class that the GPU brings to an end."""
    names = [program.name for module in group for program in module.programs]
    with tempfile.TemporaryDirectory() as folder:
        work, out = Path(folder, "work"), Path(folder, "out")
        work.write_bytes(pickle.dumps(group))
        out.touch()
        results: dict[str, bytes] = {}
        start = 0
        while start < len(names):
            command = [sys.executable, __file__, "--child", str(work), str(out), str(start)]
            try:
                said = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S).stderr
            except subprocess.TimeoutExpired:
                said = "does not end"
            found = _read(out)
            results |= {names[place]: data for place, data in found.items()}
            start = max(found, default=start - 1) + 1
            if start < len(names):
                print(f"{kind}: {names[start]}: {(said.strip().splitlines() or ['ended'])[-1]}", flush=True)
                start += 1
        return results


def _read(out: Path) -> dict[int, bytes]:
    """All that the children have written, the last one cut off where it was ended."""
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
