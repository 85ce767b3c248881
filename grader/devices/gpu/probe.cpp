// probe: what of a learner's library on a GPU only its own CUDA runtime knows
//
// The build compiles this file once, by itself, and links it to every library. It has the linker lead each function of
// the runtime that has a __wrap_ here through that one (ld --wrap). A learner's file sees none of it: what is not
// KATA_PROBE is hidden, and a name that is defined twice does not link. Noted while timed: only what costs little.
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#define KATA_PROBE extern "C" __attribute__((visibility("default")))

namespace {

// ---- launches since they were last taken, as many as fit

struct Launch {
    const void* kernel;
    dim3 grid, block;
    size_t dynamic_smem;
    cudaStream_t stream;
};
constexpr int MOST_LAUNCHES = 16;
Launch launches[MOST_LAUNCHES];
int launch_count = 0;

std::string name_of(const void* kernel) {
    const char* name = "?";
#if CUDART_VERSION >= 12030
    cudaFuncGetName(&name, kernel);
#endif
    int status = 0;
    char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    const std::string found = status ? name : plain;
    free(plain);
    return found;
}

// Appends one launch as a line: stream, grid, block, dynamic and static shared memory, registers, local memory (all in
// bytes), blocks that an SM holds at a time, name.
int describe(const Launch& launch, char* text, size_t size) {
    cudaFuncAttributes attributes{};
    int blocks = 0;
    cudaFuncGetAttributes(&attributes, launch.kernel);
    const int threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.kernel, threads, launch.dynamic_smem);
    return snprintf(
        text, size, "%p %u %u %u %u %u %u %zu %zu %d %zu %d %s\n", static_cast<void*>(launch.stream), launch.grid.x,
        launch.grid.y, launch.grid.z, launch.block.x, launch.block.y, launch.block.z, launch.dynamic_smem,
        attributes.sharedSizeBytes, attributes.numRegs, attributes.localSizeBytes, blocks,
        name_of(launch.kernel).c_str());
}

// ---- calls of the runtime since they were last taken; grader/devices/runtime_calls.py says what they mean

enum Flag { TO_HOST = 1, FROM_HOST = 2, WAITS = 4, NON_BLOCKING = 16 };

struct RuntimeCall {
    const char* verb;
    int flags;
    const void *stream, *event, *to;
    size_t to_extent;
    const void* from;
    size_t from_extent, bytes;
    const void* name;  // of a kernel its address, else the text itself
};
constexpr int MOST_CALLS = 1 << 16;
RuntimeCall calls[MOST_CALLS];
int call_count = 0;
bool lost = false;

void keep(const RuntimeCall& call) {
    lost = call_count == MOST_CALLS;
    if (!lost) calls[call_count++] = call;
}

// ---- what streams capture is noted when the graph of it is launched, as work of the stream that it is launched on

using Captured = std::vector<RuntimeCall>;

std::map<unsigned long long, Captured>& captures() {  // by the number that the runtime gives them
    static std::map<unsigned long long, Captured> all;
    return all;
}

std::map<const void*, Captured>& graphs() {  // and those that can be launched
    static std::map<const void*, Captured> all;
    return all;
}

// What the work of a stream is captured in; null: nothing is captured there.
Captured* capture_of(const void* stream) {
    if (captures().empty() || stream == cudaStreamLegacy || !stream) return nullptr;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    const cudaError_t error = cudaStreamGetCaptureInfo((cudaStream_t)stream, &status, &id);
    return error == cudaSuccess && status != cudaStreamCaptureStatusNone ? &captures()[id] : nullptr;
}

// An event orders a graph's own parts: no other call sees it.
bool capture(const RuntimeCall& call) {
    Captured* into = capture_of(call.stream);
    if (into && !call.event) into->push_back(call);
    return into;
}

void note(const RuntimeCall& call) {
    if (!capture(call)) keep(call);
}

void note_order(const char* verb, const void* stream, const void* event, int flags = 0) {
    note({verb, flags, stream, event, nullptr, 0, nullptr, 0, 0, verb});
}

void note_launch(const void* kernel, dim3 grid, dim3 block, size_t dynamic_smem, cudaStream_t stream) {
    if (launch_count < MOST_LAUNCHES) launches[launch_count++] = {kernel, grid, block, dynamic_smem, stream};
    note({"kernel", 0, stream, nullptr, nullptr, 0, nullptr, 0, 0, kernel});
}

// What a copy's kind says is not asked: the runtime looks at the address itself.
bool is_host(const void* address) {
    const bool well = cudaPeekAtLastError() == cudaSuccess;
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, address);
    if (error != cudaSuccess && well) cudaGetLastError();  // no error of the learner's
    return error != cudaSuccess || attributes.type != cudaMemoryTypeDevice;
}

// Rows of `width` bytes, each `pitch` after the one before.
struct Rows {
    const void* first;
    size_t pitch, width, count;
    size_t extent() const { return count ? pitch * (count - 1) + width : 0; }
};

void note_copy(const char* name, Rows to, Rows from, cudaStream_t stream, bool waits) {
    const int sides = (is_host(to.first) ? TO_HOST : 0) | (is_host(from.first) ? FROM_HOST : 0);
    const int flags = sides | (waits && sides ? WAITS : 0);
    const size_t bytes = to.width * to.count;
    note({"copy", flags, stream, nullptr, to.first, to.extent(), from.first, from.extent(), bytes, name});
}

void note_copy(const char* name, const void* to, const void* from, size_t bytes, cudaStream_t stream, bool waits) {
    note_copy(name, {to, bytes, bytes, 1}, {from, bytes, bytes, 1}, stream, waits);
}

void note_fill(const char* name, Rows to, cudaStream_t stream) {
    note({"fill", 0, stream, nullptr, to.first, to.extent(), nullptr, 0, to.width * to.count, name});
}

const char* address_of(const void* symbol, size_t offset) {
    void* address = nullptr;
    cudaGetSymbolAddress(&address, symbol);
    return static_cast<const char*>(address) + offset;
}

void append(std::string& text, const RuntimeCall& call) {
    const auto number = [](const void* address) { return reinterpret_cast<size_t>(address); };
    char line[256];
    snprintf(
        line, sizeof line, "%s %d %zu %zu %zu %zu %zu %zu %zu ", call.verb, call.flags, number(call.stream),
        number(call.event), number(call.to), call.to_extent, number(call.from), call.from_extent, call.bytes);
    const bool kernel = std::string(call.verb) == "kernel";
    text += line + (kernel ? name_of(call.name) : static_cast<const char*>(call.name)) + "\n";
}

}  // namespace

// ---- what the grader calls

// The pending launch error's name, cleared by reading it; null when there is none.
KATA_PROBE const char* kata_take_error() {
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorName(error);
}

KATA_PROBE const char* kata_take_launches() {
    static char text[1 << 14];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < launch_count; ++i) {
        const int written = describe(launches[i], text + used, sizeof text - used);
        if (written < 0 || used + static_cast<size_t>(written) >= sizeof text) break;
        used += static_cast<size_t>(written);
    }
    text[used] = 0;
    launch_count = 0;
    cudaGetLastError();  // a question that could not be answered is no error of the learner's
    return text;
}

// The launcher is called next.
KATA_PROBE void kata_next_call() {
    note({"call"});
}

KATA_PROBE const char* kata_take_calls() {
    static std::string text;
    text.clear();
    for (int i = 0; i < call_count; ++i) {
        if (calls[i].name)
            append(text, calls[i]);
        else
            text += std::string(calls[i].verb) + "\n";
    }
    if (lost) text += "lost\n";
    call_count = 0;
    lost = false;
    cudaGetLastError();
    return text.c_str();
}

// ---- what the linker puts before the runtime's functions

#define WRAP(name, parameters)                       \
    extern "C" cudaError_t __real_##name parameters; \
    extern "C" __attribute__((visibility("hidden"))) cudaError_t __wrap_##name parameters

#define LAUNCH(name, kernel_type)                                                                                   \
    WRAP(name, (kernel_type kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream)) { \
        note_launch((const void*)kernel, grid, block, shared, stream);                                              \
        return __real_##name(kernel, grid, block, arguments, shared, stream);                                       \
    }
LAUNCH(cudaLaunchKernel, const void*)
LAUNCH(cudaLaunchCooperativeKernel, const void*)
#if CUDART_VERSION >= 13000
LAUNCH(__cudaLaunchKernel, cudaKernel_t)  // what <<<...>>> becomes
#endif
WRAP(cudaLaunchKernelExC, (const cudaLaunchConfig_t* config, const void* kernel, void** arguments)) {
    note_launch(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
    return __real_cudaLaunchKernelExC(config, kernel, arguments);
}
// The driver's entry points lead past all that is noted here: those that make tensor maps are handed out alone.
namespace {

bool is_handed_out(const char* symbol) {
    for (const char* known :
         {"cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuGetErrorString", "cuGetErrorName",
          "cuDriverGetVersion"})
        if (std::string(known) == symbol) return true;
    return false;
}

cudaError_t keep_back(void** function, cudaDriverEntryPointQueryResult* status) {
    *function = nullptr;
    if (status) *status = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

}  // namespace

WRAP(
    cudaGetDriverEntryPoint,
    (const char* symbol, void** function, unsigned long long flags, cudaDriverEntryPointQueryResult* status)) {
    if (!is_handed_out(symbol)) return keep_back(function, status);
    return __real_cudaGetDriverEntryPoint(symbol, function, flags, status);
}

#if CUDART_VERSION >= 12050
WRAP(
    cudaGetDriverEntryPointByVersion, (const char* symbol, void** function, unsigned version, unsigned long long flags,
                                       cudaDriverEntryPointQueryResult* status)) {
    if (!is_handed_out(symbol)) return keep_back(function, status);
    return __real_cudaGetDriverEntryPointByVersion(symbol, function, version, flags, status);
}
#endif

WRAP(cudaStreamAddCallback, (cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned flags)) {
    note({"host", 0, stream, nullptr, nullptr, 0, nullptr, 0, 0, "cudaStreamAddCallback"});
    return __real_cudaStreamAddCallback(stream, function, data, flags);
}
WRAP(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void* data)) {
    note({"host", 0, stream, nullptr, nullptr, 0, nullptr, 0, 0, "cudaLaunchHostFunc"});
    return __real_cudaLaunchHostFunc(stream, function, data);
}

// ---- copies and fills

WRAP(cudaMemcpy, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind)) {
    note_copy("cudaMemcpy", to, from, bytes, nullptr, true);
    return __real_cudaMemcpy(to, from, bytes, kind);
}
WRAP(cudaMemcpyAsync, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)) {
    note_copy("cudaMemcpyAsync", to, from, bytes, stream, false);
    return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}
WRAP(
    cudaMemcpy2D, (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                   cudaMemcpyKind kind)) {
    note_copy("cudaMemcpy2D", {to, to_pitch, width, height}, {from, from_pitch, width, height}, nullptr, true);
    return __real_cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
WRAP(
    cudaMemcpy2DAsync, (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                        cudaMemcpyKind kind, cudaStream_t stream)) {
    note_copy("cudaMemcpy2DAsync", {to, to_pitch, width, height}, {from, from_pitch, width, height}, stream, false);
    return __real_cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, stream);
}
WRAP(cudaMemcpyToSymbol, (const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind)) {
    note_copy("cudaMemcpyToSymbol", address_of(symbol, offset), from, bytes, nullptr, true);
    return __real_cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
WRAP(
    cudaMemcpyToSymbolAsync,
    (const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t stream)) {
    note_copy("cudaMemcpyToSymbolAsync", address_of(symbol, offset), from, bytes, stream, false);
    return __real_cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, stream);
}
WRAP(cudaMemcpyFromSymbol, (void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind)) {
    note_copy("cudaMemcpyFromSymbol", to, address_of(symbol, offset), bytes, nullptr, true);
    return __real_cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
WRAP(
    cudaMemcpyFromSymbolAsync,
    (void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t stream)) {
    note_copy("cudaMemcpyFromSymbolAsync", to, address_of(symbol, offset), bytes, stream, false);
    return __real_cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, stream);
}
WRAP(cudaMemset, (void* to, int value, size_t bytes)) {
    note_fill("cudaMemset", {to, bytes, bytes, 1}, nullptr);
    return __real_cudaMemset(to, value, bytes);
}
WRAP(cudaMemsetAsync, (void* to, int value, size_t bytes, cudaStream_t stream)) {
    note_fill("cudaMemsetAsync", {to, bytes, bytes, 1}, stream);
    return __real_cudaMemsetAsync(to, value, bytes, stream);
}
WRAP(cudaMemset2D, (void* to, size_t pitch, int value, size_t width, size_t height)) {
    note_fill("cudaMemset2D", {to, pitch, width, height}, nullptr);
    return __real_cudaMemset2D(to, pitch, value, width, height);
}
WRAP(cudaMemset2DAsync, (void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)) {
    note_fill("cudaMemset2DAsync", {to, pitch, width, height}, stream);
    return __real_cudaMemset2DAsync(to, pitch, value, width, height, stream);
}

// ---- the order of streams; a query counts where it says that all is done

WRAP(cudaStreamCreate, (cudaStream_t * stream)) {
    const cudaError_t error = __real_cudaStreamCreate(stream);
    if (error == cudaSuccess) note_order("open", *stream, nullptr);
    return error;
}
WRAP(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags)) {
    const cudaError_t error = __real_cudaStreamCreateWithFlags(stream, flags);
    if (error == cudaSuccess) note_order("open", *stream, nullptr, flags & cudaStreamNonBlocking ? NON_BLOCKING : 0);
    return error;
}
WRAP(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority)) {
    const cudaError_t error = __real_cudaStreamCreateWithPriority(stream, flags, priority);
    if (error == cudaSuccess) note_order("open", *stream, nullptr, flags & cudaStreamNonBlocking ? NON_BLOCKING : 0);
    return error;
}
WRAP(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream)) {
    note_order("record", stream, event);
    return __real_cudaEventRecord(event, stream);
}
WRAP(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned flags)) {
    note_order("record", stream, event);
    return __real_cudaEventRecordWithFlags(event, stream, flags);
}
// A stream may be captured from this call on.
WRAP(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags)) {
    const cudaError_t error = __real_cudaStreamWaitEvent(stream, event, flags);
    note_order("wait", stream, event);
    return error;
}
WRAP(cudaStreamSynchronize, (cudaStream_t stream)) {
    note_order("await_stream", stream, nullptr);
    return __real_cudaStreamSynchronize(stream);
}
WRAP(cudaEventSynchronize, (cudaEvent_t event)) {
    note_order("await_event", nullptr, event);
    return __real_cudaEventSynchronize(event);
}
WRAP(cudaDeviceSynchronize, ()) {
    note_order("await_all", nullptr, nullptr);
    return __real_cudaDeviceSynchronize();
}
WRAP(cudaStreamQuery, (cudaStream_t stream)) {
    const cudaError_t error = __real_cudaStreamQuery(stream);
    if (error == cudaSuccess) note_order("await_stream", stream, nullptr);
    return error;
}
WRAP(cudaEventQuery, (cudaEvent_t event)) {
    const cudaError_t error = __real_cudaEventQuery(event);
    if (error == cudaSuccess) note_order("await_event", nullptr, event);
    return error;
}

// ---- captures and graphs

WRAP(cudaStreamBeginCapture, (cudaStream_t stream, cudaStreamCaptureMode mode)) {
    const cudaError_t error = __real_cudaStreamBeginCapture(stream, mode);
    cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    if (error == cudaSuccess && cudaStreamGetCaptureInfo(stream, &status, &id) == cudaSuccess) captures()[id].clear();
    return error;
}
WRAP(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t* graph)) {
    Captured* ended = capture_of(stream);
    const Captured work = ended ? *ended : Captured{};
    const cudaError_t error = __real_cudaStreamEndCapture(stream, graph);
    if (error == cudaSuccess) graphs()[*graph] = work;
    return error;
}
WRAP(cudaGraphInstantiate, (cudaGraphExec_t * executable, cudaGraph_t graph, unsigned long long flags)) {
    const cudaError_t error = __real_cudaGraphInstantiate(executable, graph, flags);
    if (error == cudaSuccess) graphs()[*executable] = graphs()[graph];
    return error;
}
WRAP(cudaGraphInstantiateWithFlags, (cudaGraphExec_t * executable, cudaGraph_t graph, unsigned long long flags)) {
    const cudaError_t error = __real_cudaGraphInstantiateWithFlags(executable, graph, flags);
    if (error == cudaSuccess) graphs()[*executable] = graphs()[graph];
    return error;
}
WRAP(cudaGraphLaunch, (cudaGraphExec_t executable, cudaStream_t stream)) {
    for (RuntimeCall call : graphs()[executable]) {
        call.stream = stream;
        note(call);
    }
    return __real_cudaGraphLaunch(executable, stream);
}
