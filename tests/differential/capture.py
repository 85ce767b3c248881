"""A GPU -> expected.xz: what it makes of every form on its 128 lanes of operands.

    PYTHONPATH=. python3 tests/differential/capture.py [folder]

Run where there is an sm_90 GPU. Forms that ptxas refuses are left out: not_ptx.py has to be run before.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_uint64, c_void_p
from pathlib import Path

from not_ptx import not_ptx
from programs import LANES, SLOT, Form, modules, operands, parse_signatures
from recorded import FILE, Recording, save

from grader.cache import cache_folder
from grader.devices.driver import Driver
from grader.devices.sim import engine_library
from grader.devices.sim.library import load_engine
from grader.toolchain import find_gpu, find_toolchain


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    gpu, toolchain = find_gpu(), find_toolchain()
    assert gpu is not None, "capturing needs a GPU"
    engine = load_engine(engine_library(cache_folder(), progress=print))
    forms = parse_signatures(engine.sim_signatures().decode())
    known = [form for form in forms if form.name not in not_ptx()]
    driver = Driver()
    results = {form.name: bits for chunk, ptx in modules(known) for form, bits in run(driver, chunk, ptx)}
    about = f"{gpu.name}, driver {gpu.driver}, nvcc {'.'.join(map(str, toolchain.nvcc_version))}"
    save(folder / FILE, Recording(about, results))
    print(f"{len(results)} forms recorded on {about}; {len(forms) - len(known)} that are not PTX left out")


def run(driver: Driver, chunk: list[Form], ptx: str) -> list[tuple[Form, bytes]]:
    """Every kernel of one module, one block of 128 threads each."""
    module, results = c_void_p(), []
    driver.do("cuModuleLoadData", byref(module), ptx.encode() + b"\0")
    for place, form in enumerate(chunk):
        function = c_void_p()
        driver.do("cuModuleGetFunction", byref(function), module, f"k{place}".encode())
        given = operands(form)
        source, target = c_uint64(), c_uint64()
        out = ctypes.create_string_buffer(LANES * SLOT)
        driver.do("cuMemAlloc_v2", byref(source), len(given) + 8)
        driver.do("cuMemAlloc_v2", byref(target), len(out))
        driver.do("cuMemcpyHtoD_v2", source, given, len(given))
        arguments = (c_void_p * 2)(ctypes.addressof(source), ctypes.addressof(target))
        driver.do("cuLaunchKernel", function, 1, 1, 1, LANES, 1, 1, 0, driver.stream, arguments, None)
        driver.do("cuCtxSynchronize")
        driver.do("cuMemcpyDtoH_v2", out, target, len(out))
        driver.do("cuMemFree_v2", source)
        driver.do("cuMemFree_v2", target)
        results.append((form, out.raw))
    driver.do("cuModuleUnload", module)
    return results


if __name__ == "__main__":
    main()
