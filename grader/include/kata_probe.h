// kata_probe.h: put before every learner's file by the build (nvcc -include), never included by hand
//
// The launcher returns nothing, as launchers in the field do. What only the CUDA runtime knows that this very library
// is linked with, the library itself has to hand out: a launch that was refused, and what was launched.
#pragma once
#include <cuda_runtime.h>

#define KATA_PROBE extern "C" __attribute__((visibility("default"), used))

// The pending launch error's name, cleared by reading it; null when there is none.
KATA_PROBE inline const char* kata_take_error() {
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorName(error);
}

#ifdef KATA_RECORD_LAUNCHES
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>

// The launches since kata_take_launches was last called, as many as fit. The build has the linker lead each launching
// function of the runtime through its namesake here (ld --wrap). Noted while timed: only what costs nothing.
namespace {
namespace kata_probe {

struct Launch {
    const void* kernel;
    dim3 grid, block;
    size_t dynamic_smem;
    cudaStream_t stream;
};
constexpr int MOST = 16;
Launch launches[MOST];
int count = 0;

void note(const void* kernel, dim3 grid, dim3 block, size_t dynamic_smem, cudaStream_t stream) {
    if (count < MOST) launches[count++] = {kernel, grid, block, dynamic_smem, stream};
}

// Appends one launch as a line: stream, grid, block, dynamic and static shared memory, registers, local memory (all in
// bytes), blocks that an SM holds at a time, name.
int describe(const Launch& launch, char* text, size_t size) {
    cudaFuncAttributes attributes{};
    int blocks = 0;
    const char* name = "?";
    cudaFuncGetAttributes(&attributes, launch.kernel);
    const int threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.kernel, threads, launch.dynamic_smem);
#if CUDART_VERSION >= 12030
    cudaFuncGetName(&name, launch.kernel);
#endif
    int status = 0;
    char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    const int written = snprintf(
        text, size, "%p %u %u %u %u %u %u %zu %zu %d %zu %d %s\n", static_cast<void*>(launch.stream), launch.grid.x,
        launch.grid.y, launch.grid.z, launch.block.x, launch.block.y, launch.block.z, launch.dynamic_smem,
        attributes.sharedSizeBytes, attributes.numRegs, attributes.localSizeBytes, blocks, status ? name : plain);
    free(plain);
    cudaGetLastError();  // a question that could not be answered is no error of the learner's
    return written;
}

}  // namespace kata_probe
}  // namespace

KATA_PROBE inline const char* kata_take_launches() {
    static char text[1 << 14];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < kata_probe::count; ++i) {
        const int written = kata_probe::describe(kata_probe::launches[i], text + used, sizeof text - used);
        if (written < 0 || used + static_cast<size_t>(written) >= sizeof text) break;
        used += static_cast<size_t>(written);
    }
    text[used] = 0;
    kata_probe::count = 0;
    return text;
}

#define KATA_HIDDEN extern "C" __attribute__((visibility("hidden"), used))
#define KATA_WRAP(name, kernel_type)                                                                             \
    extern "C" cudaError_t __real_##name(kernel_type, dim3, dim3, void**, size_t, cudaStream_t);                 \
    KATA_HIDDEN inline cudaError_t __wrap_##name(                                                                \
        kernel_type kernel, dim3 grid, dim3 block, void** arguments, size_t dynamic_smem, cudaStream_t stream) { \
        kata_probe::note((const void*)kernel, grid, block, dynamic_smem, stream);                                \
        return __real_##name(kernel, grid, block, arguments, dynamic_smem, stream);                              \
    }
KATA_WRAP(cudaLaunchKernel, const void*)
KATA_WRAP(cudaLaunchCooperativeKernel, const void*)
#if CUDART_VERSION >= 13000
KATA_WRAP(__cudaLaunchKernel, cudaKernel_t)  // what <<<...>>> becomes
#endif
#undef KATA_WRAP

extern "C" cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
KATA_HIDDEN inline cudaError_t __wrap_cudaLaunchKernelExC(
    const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
    kata_probe::note(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
    return __real_cudaLaunchKernelExC(config, kernel, arguments);
}
#undef KATA_HIDDEN
#endif

#undef KATA_PROBE
