"""The simulator -> a file with its results for every recorded form, in the recording's order.

    python simulate.py OUT

A process has one simulated card, so this is a process of its own. The host side is a few lines of C++ that register
and launch kernels as nvcc's own stubs do.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from programs import HEADER, LANES, SLOT, kernel, operands, parse_signatures
from recorded import FILE, load

from grader.cache import cache_folder
from grader.devices import Buffer, Call, Scalar
from grader.devices.sim import SimDevice, engine_library
from grader.devices.sim.library import load_engine

HOST = r"""
#include <cstddef>
#include <cstdio>
struct dim3 { unsigned x, y, z; };
extern "C" void** __cudaRegisterFatBinary(void*);
extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
extern "C" int cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, void*);
static char stubs[COUNT], names[COUNT][8];
__attribute__((constructor)) static void introduce() {
    void** handle = __cudaRegisterFatBinary(nullptr);
    for (int i = 0; i < COUNT; ++i) {
        std::snprintf(names[i], sizeof names[i], "k%d", i);
        __cudaRegisterFunction(handle, &stubs[i], names[i], names[i], -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    }
}
extern "C" void launch(const void* in, void* out, int which, void* stream) {
    void* arguments[] = {&in, &out};
    cudaLaunchKernel(&stubs[which], dim3{1, 1, 1}, dim3{LANES, 1, 1}, arguments, 0, stream);
}
"""


def main() -> None:
    engine = engine_library(cache_folder())
    library = load_engine(engine)
    known = {form.name: form for form in parse_signatures(library.sim_signatures().decode())}
    forms = [known[name] for name in load(Path(__file__).parent / FILE).results]
    with tempfile.TemporaryDirectory() as folder:
        ptx, source, host = Path(folder, "forms.ptx"), Path(folder, "host.cpp"), Path(folder, "host.so")
        ptx.write_text(HEADER + "".join(kernel(form, f"k{place}") for place, form in enumerate(forms)))
        source.write_text(HOST)
        defines = [f"-DCOUNT={len(forms)}", f"-DLANES={LANES}"]
        subprocess.run(["g++", "-shared", "-fPIC", *defines, "-o", str(host), str(source)], check=True)
        device = SimDevice(engine=engine, library=host, ptx=ptx, source=source, arch="sm_90a", threads=2)
        with open(sys.argv[1], "wb") as out:
            for place, form in enumerate(forms):
                given = operands(form)
                buffers = (
                    Buffer("in", "in", "u64", SLOT, (len(given) // SLOT,), given),
                    Buffer("out", "out", "u64", SLOT, (LANES,), bytes(LANES * SLOT)),
                )
                outcome = device.call(Call("launch", buffers, (Scalar("which", "int", place),)))
                assert not outcome.findings, (form.name, outcome.findings)
                out.write(outcome.outputs["out"])


if __name__ == "__main__":
    main()
