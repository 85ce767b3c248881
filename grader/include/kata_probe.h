// kata_probe.h: put before every learner's file by the build (nvcc -include), never included by hand
//
// The launcher returns nothing, as launchers in the field do. A launch that the device refuses is only known to the
// CUDA runtime that this very library is linked with, so the library itself has to hand the error out.
#pragma once
#include <cuda_runtime.h>

// The pending launch error's name, cleared by reading it; null when there is none.
extern "C" __attribute__((visibility("default"), used)) inline const char* kata_take_error() {
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorName(error);
}
