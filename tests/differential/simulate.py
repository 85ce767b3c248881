"""The simulator -> a file with what every program leaves there, in the order of the programs in another file.

    python simulate.py PROGRAMS OUT

A process has one simulated card, so this is a process of its own. The host side is a few lines of C++ that register
and launch kernels as nvcc's own stubs do. PROGRAMS is a pickled list of Program, OUT one of (bytes, findings).
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from program import PARAMETER, Program, module

from grader.devices import Buffer, Call, Scalar
from grader.devices.sim import SimDevice, engine_library
from grader.storage.cache import cache_folder

HOST = r"""
#include <cstddef>
#include <cstdio>
struct dim3 { unsigned x, y, z; };
struct Parameter { alignas(16) unsigned char bytes[64]; };
extern "C" void** __cudaRegisterFatBinary(void*);
extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
extern "C" int cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, void*);
extern "C" int cuTensorMapEncodeTiled(
    void*, unsigned, unsigned, void*, const unsigned long long*, const unsigned long long*, const unsigned*,
    const unsigned*, unsigned, unsigned, unsigned, unsigned);
extern "C" int cuTensorMapEncodeIm2col(
    void*, unsigned, unsigned, void*, const unsigned long long*, const unsigned long long*, const int*, const int*,
    unsigned, unsigned, const unsigned*, unsigned, unsigned, unsigned, unsigned);
struct Map { int kernel, is_out; long long words[34]; };
static const Map maps[] = {MAPS {-1, 0, {}}};
struct Maps { alignas(64) unsigned char bytes[2][128]; };
static void encode(void* map, void* base, const long long* w) {
    unsigned long long dims[5], strides[5];
    unsigned box[5], steps[5];
    int lower[5], upper[5];
    for (int i = 0; i < 5; ++i) {
        dims[i] = w[4 + i], strides[i] = w[9 + i], box[i] = w[14 + i], steps[i] = w[19 + i];
        lower[i] = w[24 + i], upper[i] = w[29 + i];
    }
    if (w[3])
        cuTensorMapEncodeIm2col(
            map, w[2], w[0], base, dims, strides, lower, upper, box[0], box[1], steps, 0, w[1], 0, 0);
    else
        cuTensorMapEncodeTiled(map, w[2], w[0], base, dims, strides, box, steps, 0, w[1], 0, 0);
}
static char stubs[COUNT], names[COUNT][8];
__attribute__((constructor)) static void introduce() {
    void** handle = __cudaRegisterFatBinary(nullptr);
    for (int i = 0; i < COUNT; ++i) {
        std::snprintf(names[i], sizeof names[i], "k%d", i);
        __cudaRegisterFunction(handle, &stubs[i], names[i], names[i], -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    }
}
extern "C" void launch(const void* in, void* out, int which, int threads, int blocks, void* stream) {
    Parameter parameter = {PARAMETER};
    Maps made = {};
    int place = 0;
    for (const Map& map : maps)
        if (map.kernel == which) encode(made.bytes[place++], map.is_out ? out : const_cast<void*>(in), map.words);
    void* arguments[] = {&in, &out, &parameter, &made};
    cudaLaunchKernel(
        &stubs[which], dim3{unsigned(blocks), 1, 1}, dim3{unsigned(threads), 1, 1}, arguments, 0, stream);
}
"""


def main(programs: Path, out: Path) -> None:
    chosen = pickle.loads(programs.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        device = _device(chosen, Path(folder))
        results = [_run(device, program, place) for place, program in enumerate(chosen)]
    out.write_bytes(pickle.dumps(results))


def _device(chosen: list[Program], folder: Path) -> SimDevice:
    ptx, source, host = folder / "programs.ptx", folder / "host.cpp", folder / "host.so"
    ptx.write_text(module(chosen))
    source.write_text(HOST.replace("MAPS", "".join(_maps(chosen))))
    defines = [f"-DCOUNT={len(chosen)}", f"-DPARAMETER={','.join(map(str, PARAMETER))}", "-Wno-narrowing"]
    subprocess.run(["g++", "-shared", "-fPIC", *defines, "-o", str(host), str(source)], check=True)
    engine = engine_library(cache_folder())
    return SimDevice(engine=engine, library=host, ptx=ptx, source=source, arch="sm_90a", threads=2)


def _maps(chosen: list[Program]) -> Iterator[str]:
    """Of all kernels, as elements of an array."""
    for place, program in enumerate(chosen):
        for each in program.maps:
            yield f"{{{place}, {int(each.of == 'out')}, {{{', '.join(map(str, each.words))}}}}}, "


def _run(device: SimDevice, program: Program, place: int) -> tuple[bytes, list[str]]:
    given = program.given
    buffers = (
        Buffer("in", "in", "u8", 1, (len(given),), given),
        Buffer("out", "out", "u8", 1, (program.out_bytes,), bytes(program.out_bytes)),
    )
    numbers = {"which": place, "threads": program.threads, "blocks": program.blocks}
    scalars = tuple(Scalar(name, "int", value) for name, value in numbers.items())
    outcome = device.call(Call("launch", buffers, scalars))
    return outcome.outputs.get("out", b""), [f"{found.kind}: {found.message}" for found in outcome.findings]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
