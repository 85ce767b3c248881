// What launchers do with streams and with copies: the right ones, and those that the grader finds.
#include "kata.cuh"

__global__ void add_one_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1;
}
static void add_one(const float* x, float* y, int n, cudaStream_t stream) {
    add_one_kernel<<<(n + 127) / 128, 128, 0, stream>>>(x, y, n);
}
#define LAUNCHER(name) KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream)

// ---- streams

struct Side {
    cudaStream_t stream;
    cudaEvent_t begun, done;
    explicit Side(unsigned flags = cudaStreamNonBlocking) {
        cudaStreamCreateWithFlags(&stream, flags);
        cudaEventCreateWithFlags(&begun, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    }
    void fork(cudaStream_t from) {
        cudaEventRecord(begun, from);
        cudaStreamWaitEvent(stream, begun, 0);
    }
    void join(cudaStream_t to) {
        cudaEventRecord(done, stream);
        cudaStreamWaitEvent(to, done, 0);
    }
    // Both halves of y, the second on this stream.
    void halves(const float* x, float* y, int n, cudaStream_t other) {
        add_one(x, y, n / 2, other);
        add_one(x + n / 2, y + n / 2, n - n / 2, stream);
    }
};

LAUNCHER(fork_and_join) {
    Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
    side.join(stream);
}
LAUNCHER(kept_streams) {
    static Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
    side.join(stream);
}
LAUNCHER(joined_by_another) {
    Side first, second;
    first.fork(stream);
    second.fork(first.stream);
    second.halves(x, y, n, first.stream);
    first.join(second.stream);
    second.join(stream);
}
LAUNCHER(host_waits_for_the_stream) {
    Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
    cudaStreamSynchronize(side.stream);
}
LAUNCHER(host_waits_for_the_event) {
    Side side;
    cudaStreamSynchronize(stream);
    side.halves(x, y, n, stream);
    cudaEventRecord(side.done, side.stream);
    cudaEventSynchronize(side.done);
}
LAUNCHER(host_waits_for_all) {
    Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
    cudaDeviceSynchronize();
}
LAUNCHER(host_asks_whether_all_is_done) {
    Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
    while (cudaStreamQuery(side.stream) == cudaErrorNotReady) {
    }
}
// An upload that needs nothing of the launcher's stream may begin before it.
LAUNCHER(uploads_beside) {
    Side side;
    const float one = 1;
    float* scratch = nullptr;
    cudaMalloc(&scratch, sizeof one);
    cudaMemcpyAsync(scratch, &one, sizeof one, cudaMemcpyHostToDevice, side.stream);
    add_one(x, y, n, stream);
    side.join(stream);
}
// The default stream waits for a stream that is not cudaStreamNonBlocking.
LAUNCHER(joined_by_the_default_stream) {
    Side side(cudaStreamDefault);
    side.fork(stream);
    side.halves(x, y, n, stream);
    cudaEventRecord(side.done, nullptr);
    cudaStreamWaitEvent(stream, side.done, 0);
}

LAUNCHER(never_joined) {
    Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
}
LAUNCHER(joined_before_its_work) {
    Side side;
    side.fork(stream);
    side.join(stream);
    side.halves(x, y, n, stream);
}
LAUNCHER(joined_but_for_the_last) {
    Side side;
    side.fork(stream);
    add_one(x, y, n / 2, side.stream);
    side.join(stream);
    add_one(x + n / 2, y + n / 2, n - n / 2, side.stream);
}
LAUNCHER(waits_for_an_event_of_nobody) {
    Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
    cudaStreamWaitEvent(stream, side.done, 0);
}
LAUNCHER(not_joined_by_the_default_stream) {
    Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
    cudaEventRecord(side.done, nullptr);
    cudaStreamWaitEvent(stream, side.done, 0);
}
LAUNCHER(a_new_stream_in_its_place) {
    Side side;
    side.fork(stream);
    side.halves(x, y, n, stream);
    cudaStreamDestroy(side.stream);
    Side other;
    other.join(stream);
}
LAUNCHER(never_forked) {
    Side side;
    side.halves(x, y, n, stream);
    side.join(stream);
}
LAUNCHER(copies_on_the_default_stream) {
    add_one(x, y, n, stream);
    cudaMemcpy(y, y + n / 2, 4, cudaMemcpyDeviceToDevice);
}
LAUNCHER(clears_beside) {
    Side side;
    cudaMemsetAsync(y, 0, n * sizeof(float), side.stream);
    side.join(stream);
    add_one(x, y, n, stream);
}
LAUNCHER(host_function_beside) {
    Side side;
    add_one(x, y, n, stream);
    cudaLaunchHostFunc(side.stream, [](void*) {}, nullptr);
}

// ---- copies

__constant__ float weights[64];
__device__ int count;
__device__ float table[1 << 10];

__global__ void weighted_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * weights[i % 64];
    if (i == 0) count = n;
}
__global__ void store_kernel(const float* x, float* y, const int* size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < *size) y[i] = x[i] + 1;
}

LAUNCHER(constants_uploaded) {
    float ones[64];
    for (float& one : ones) one = 1;
    cudaMemcpyToSymbol(weights, ones, sizeof ones);
    weighted_kernel<<<(n + 127) / 128, 128, 0, stream>>>(x, y, n);
}
LAUNCHER(count_brought_back) {
    int found = 0;
    weighted_kernel<<<(n + 127) / 128, 128, 0, stream>>>(x, y, n);
    cudaStreamSynchronize(stream);
    cudaMemcpyFromSymbol(&found, count, sizeof found);
    add_one(x, y, found, stream);
}
LAUNCHER(size_uploaded_and_scratch_copied) {
    int* size = nullptr;
    float* scratch = nullptr;
    cudaMallocAsync(&size, sizeof n, stream);
    cudaMallocAsync(&scratch, n * sizeof(float), stream);
    cudaMemcpyAsync(size, &n, sizeof n, cudaMemcpyHostToDevice, stream);
    cudaMemcpyAsync(scratch, x, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    store_kernel<<<(n + 127) / 128, 128, 0, stream>>>(scratch, y, size);
    cudaMemcpyAsync(scratch, y, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    cudaMemcpyAsync(y, scratch, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
}
// What a kernel wrote over an upload is the kernel's; what it made of an input in place is a count.
LAUNCHER(scratch_used_again) {
    float* scratch = nullptr;
    float zeros[128] = {}, first = 0;
    cudaMalloc(&scratch, n * sizeof(float));
    cudaMemcpyAsync(scratch, zeros, sizeof zeros, cudaMemcpyHostToDevice, stream);
    add_one(x, scratch, n, stream);
    cudaMemcpyAsync(y, scratch, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    cudaMemcpyAsync(scratch, x, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    add_one(scratch, scratch, n, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(&first, scratch, sizeof first, cudaMemcpyDeviceToHost);
}

// Scratch memory is the launcher's own until it is freed, from call to call.
LAUNCHER(scratch_kept_from_call_to_call) {
    static float* scratch = nullptr;
    static int* calls = nullptr;
    if (!scratch) {
        cudaMalloc(&scratch, n * sizeof(float));
        cudaMalloc(&calls, sizeof(int));
        cudaMemsetAsync(calls, 0, sizeof(int), stream);
    }
    float* more = nullptr;
    cudaMalloc(&more, n * sizeof(float));  // must not be what the first call got
    add_one(x, scratch, n, stream);
    cudaMemsetAsync(more, 0, n * sizeof(float), stream);
    cudaMemsetAsync(calls, 1, sizeof(int), stream);
    cudaMemcpyAsync(y, scratch, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    cudaFree(more);
}

LAUNCHER(scratch_kept_that_was_freed) {
    static float* scratch = nullptr;
    if (!scratch) {
        cudaMalloc(&scratch, n * sizeof(float));
        add_one(x, scratch, n, stream);
        cudaFree(scratch);
    }
    add_one(x, scratch, n, stream);
}

LAUNCHER(input_to_the_host) {
    float first = 0;
    add_one(x, y, n, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(&first, x + n - 1, sizeof first, cudaMemcpyDeviceToHost);
}
LAUNCHER(input_by_scratch) {
    float first = 0;
    float* scratch = nullptr;
    cudaMalloc(&scratch, 16);
    add_one(x, y, n, stream);
    cudaMemcpyAsync(scratch, x, 4, cudaMemcpyDeviceToDevice, stream);
    cudaMemcpyAsync(scratch + 2, scratch, 4, cudaMemcpyDeviceToDevice, stream);
    cudaMemcpyAsync(&first, scratch + 2, 4, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
}
LAUNCHER(much_brought_back) {
    static float all[1 << 10];
    void* scratch = nullptr;
    cudaGetSymbolAddress(&scratch, table);
    add_one(x, static_cast<float*>(scratch), n, stream);
    cudaStreamSynchronize(stream);
    for (int i = 0; i < n; i += 8)
        cudaMemcpy(all + i, static_cast<float*>(scratch) + i, 8 * sizeof(float), cudaMemcpyDeviceToHost);
    add_one(x, y, n, stream);
}
LAUNCHER(output_from_the_host) {
    const float last = 0;
    add_one(x, y, n, stream);
    cudaMemcpyAsync(y + n - 1, &last, sizeof last, cudaMemcpyHostToDevice, stream);
}
LAUNCHER(output_by_scratch) {
    const float last = 0;
    add_one(x, y, n, stream);
    cudaMemcpyToSymbolAsync(table, &last, sizeof last, 8, cudaMemcpyHostToDevice, stream);
    cudaMemcpyFromSymbolAsync(y + n - 1, table, sizeof last, 8, cudaMemcpyDeviceToDevice, stream);
}
LAUNCHER(calls_without_end) {
    add_one(x, y, n, stream);
    for (int i = 0; i < 70000; ++i) cudaStreamSynchronize(stream);
}

// ---- rows

LAUNCHER(rows_by_way_of_scratch) {
    float* scratch = nullptr;
    size_t pitch = 0;
    const size_t row = 32 * sizeof(float);
    cudaMallocPitch(&scratch, &pitch, row, n / 32);
    cudaMemset2DAsync(scratch, pitch, 0, row, n / 32, stream);
    add_one(x, y, n, stream);
    cudaMemcpy2DAsync(scratch, pitch, y, row, row, n / 32, cudaMemcpyDeviceToDevice, stream);
    cudaMemset2DAsync(y, row, 0xff, row / 2, n / 32, stream);
    cudaMemcpy2DAsync(y, row, scratch, pitch, row, n / 32, cudaMemcpyDeviceToDevice, stream);
    cudaFreeAsync(scratch, stream);
}
LAUNCHER(rows_of_an_input_to_the_host) {
    static float column[1 << 10];
    add_one(x, y, n, stream);
    cudaMemcpy2DAsync(column, 4, x, 128, 4, n / 32, cudaMemcpyDeviceToHost, stream);
}
LAUNCHER(rows_of_scratch_to_the_host) {
    static float all[1 << 10];
    float* scratch = nullptr;
    cudaMalloc(&scratch, n * sizeof(float));
    add_one(x, scratch, n, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy2D(all, 8, scratch, 16, 8, 9, cudaMemcpyDeviceToHost);
    add_one(x, y, n, stream);
}
LAUNCHER(rows_from_the_host) {
    const float last[2] = {};
    add_one(x, y, n, stream);
    cudaMemcpy2DAsync(y, 256, last, 4, 4, 2, cudaMemcpyHostToDevice, stream);
}
LAUNCHER(rows_past_the_end) {
    add_one(x, y, n, stream);
    cudaMemset2DAsync(y, 128, 0, 4, n / 32 + 1, stream);
}

// ---- graphs

static cudaGraphExec_t captured(cudaStream_t stream, cudaStreamCaptureMode mode, void (*work)(void*), void* data) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaStreamBeginCapture(stream, mode);
    work(data);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) return nullptr;
    cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    return executable;
}
template <class Work>
cudaGraphExec_t captured(cudaStream_t stream, Work work, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    return captured(stream, mode, [](void* data) { (*static_cast<Work*>(data))(); }, &work);
}
LAUNCHER(graph_of_two_streams) {
    Side side;
    const auto graph = captured(stream, [&] {
        cudaMemsetAsync(y, 0, n * sizeof(float), stream);
        side.fork(stream);
        side.halves(x, y, n, stream);
        side.join(stream);
        cudaLaunchHostFunc(stream, [](void*) {}, nullptr);
    });
    cudaGraphLaunch(graph, stream);
    cudaGraphLaunch(graph, stream);
    cudaGraphExecDestroy(graph);
}
// Nothing runs while it is captured: the argument is what it was then, the bytes of y what they are at the launch.
LAUNCHER(graph_launched_later) {
    float* scratch = nullptr;
    const auto graph = captured(
        stream,
        [&] {
            cudaMalloc(&scratch, n * sizeof(float));
            int half = n / 2;
            add_one(x, scratch, half, stream);
            half = 0;
            cudaMemcpyAsync(y, scratch, n / 2 * sizeof(float), cudaMemcpyDeviceToDevice, stream);
        },
        cudaStreamCaptureModeRelaxed);
    cudaMemsetAsync(y, 0xff, n * sizeof(float), stream);
    cudaMemsetAsync(scratch, 0xff, n * sizeof(float), stream);
    add_one(x + n / 2, y + n / 2, n - n / 2, stream);
    cudaGraphUpload(graph, stream);
    cudaGraphLaunch(graph, stream);
}
LAUNCHER(graph_kept_from_call_to_call) {
    static float* scratch = nullptr;
    static cudaGraphExec_t graph = nullptr;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    if (!graph) {
        cudaMalloc(&scratch, 4096);
        graph = captured(stream, [&] { cudaMemsetAsync(scratch, 0, 4096, stream); });
    }
    cudaGraphLaunch(graph, stream);
    cudaStreamIsCapturing(stream, &status);
    if (status == cudaStreamCaptureStatusNone) add_one(x, y, n, stream);
}
// What breaks a capture says so, and the launcher goes on without.
LAUNCHER(captures_that_fail) {
    Side side;
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    int wrong = cudaStreamSynchronize(stream) != cudaErrorStreamCaptureUnsupported;
    wrong += cudaStreamEndCapture(stream, &graph) != cudaErrorStreamCaptureInvalidated;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    side.fork(stream);
    add_one(x, y, n, side.stream);
    wrong += cudaStreamEndCapture(stream, &graph) != cudaErrorStreamCaptureUnjoined;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    float* scratch = nullptr;
    wrong += cudaMalloc(&scratch, 4) != cudaErrorStreamCaptureUnsupported;
    wrong += cudaStreamEndCapture(stream, &graph) != cudaErrorStreamCaptureInvalidated;
    wrong += cudaStreamEndCapture(stream, &graph) != cudaErrorIllegalState || graph;
    cudaGetLastError();
    if (!wrong) add_one(x, y, n, stream);
}
LAUNCHER(graph_with_an_input_to_the_host) {
    static float first = 0;
    add_one(x, y, n, stream);
    cudaGraphLaunch(
        captured(stream, [&] { cudaMemcpyAsync(&first, x, sizeof first, cudaMemcpyDeviceToHost, stream); }), stream);
}
LAUNCHER(graph_with_an_output_from_the_host) {
    const float last = 0;
    add_one(x, y, n, stream);
    cudaGraphLaunch(
        captured(stream, [&] { cudaMemcpyAsync(y, &last, sizeof last, cudaMemcpyHostToDevice, stream); }), stream);
}
LAUNCHER(graph_with_much_brought_back) {
    static float all[1 << 10];
    float* scratch = nullptr;
    cudaMalloc(&scratch, n * sizeof(float));
    add_one(x, scratch, n, stream);
    const auto graph = captured(stream, [&] { cudaMemcpyAsync(all, scratch, 32, cudaMemcpyDeviceToHost, stream); });
    for (int i = 0; i < 3; ++i) cudaGraphLaunch(graph, stream);
    add_one(x, y, n, stream);
}
LAUNCHER(graph_on_another_stream) {
    Side side;
    const auto graph = captured(stream, [&] { add_one(x, y, n, stream); });
    side.fork(stream);
    cudaGraphLaunch(graph, side.stream);
}
