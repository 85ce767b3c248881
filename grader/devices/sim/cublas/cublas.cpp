// cublas: the few functions of cuBLAS that katas about cuBLAS call
//
// A product is computed by loops on the host, at once, after the checks of its
// arguments that cuBLAS makes (cuBLAS documentation, "cublas<t>gemm" and
// "cublasGemmEx") and two that it does not: whether the matrices lie inside
// their buffers, and whether the handle works on a stream that is in order with
// the launcher's. Values of enumerations are those of cublas_v2.h.
//
// Nothing else knows this folder's files: without the folder, the katas that call cuBLAS are refused on the simulator.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "device.h"
#include "runtime.h"

using namespace sim;

namespace {

enum Status : int { OK = 0, NOT_INITIALIZED = 1, BAD_VALUE = 7, EXECUTION_FAILED = 13, NO_SUPPORT = 15 };
enum Type : int { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum Compute : int { C_16F = 64, C_16F_P, C_32F = 68, C_32F_P, C_FAST_16F = 74, C_FAST_16BF = 75, C_FAST_TF32 = 77 };
enum Operation : int { AS_IT_IS, TRANSPOSED, CONJUGATE };
constexpr int HOST_POINTERS = 0, DEVICE_POINTERS = 1, TF32_MATH = 3;

struct Handle {
    void* stream = nullptr;
    int pointer_mode = HOST_POINTERS, math = 0;
};
std::set<Handle*> handles;

// A column-major matrix as the call describes it: rows and columns in memory, before it is transposed.
struct Matrix {
    const char* name;
    const void* base;
    int type, operation, rows, columns, ld;

    u32 item() const { return type == R_32F ? 4 : 2; }
    u64 at(int column) const { return u64(column) * u64(ld) * item(); }
    u64 bytes() const { return rows && columns ? at(columns - 1) + u64(rows) * item() : 0; }
    std::string leading() const { return std::string("ld") + char(name[0] - 'A' + 'a'); }
};

struct Gemm {
    const char* call;
    Handle* handle;
    int m, n, k;
    const void *alpha, *beta;
    Matrix A, B, C;
    int compute;

    bool in_half() const { return compute == C_16F || compute == C_16F_P; }
};

void find(FindingKind kind, const std::string& message) {
    Finding finding;
    finding.kind = kind;
    finding.message = message;
    Device::get().keep(finding);
}

int bad_value(const Gemm& gemm, const std::string& why) {
    find(FindingKind::launch_failed, std::string(gemm.call) + " returns CUBLAS_STATUS_INVALID_VALUE: " + why);
    return BAD_VALUE;
}

// ---- what the arguments must be

int check_matrix(const Gemm& gemm, const Matrix& matrix) {
    if (matrix.operation < AS_IT_IS || matrix.operation > CONJUGATE)
        return bad_value(gemm, std::string("the operation on ") + matrix.name + " is none");
    if (matrix.ld < std::max(1, matrix.rows))
        return bad_value(
            gemm, matrix.leading() + " is " + std::to_string(matrix.ld) + ", and a column of " + matrix.name + " has " +
                      plural(u64(matrix.rows), "element") + (matrix.operation ? ", as it is transposed" : ""));
    return OK;
}

int check_types(const Gemm& gemm) {
    const int a = gemm.A.type, b = gemm.B.type, c = gemm.C.type;
    const auto known = [](int type) { return type == R_32F || type == R_16F || type == R_16BF; };
    const bool single = gemm.compute == C_32F || gemm.compute == C_32F_P;
    const bool fast = gemm.compute == C_FAST_16F || gemm.compute == C_FAST_16BF || gemm.compute == C_FAST_TF32;
    if (!known(a) || !known(b) || !known(c) || !(single || fast || gemm.in_half())) {
        Device::get().unsupported(
            std::string(gemm.call) + ": the simulator's cuBLAS has matrices of CUDA_R_16F, CUDA_R_16BF and CUDA_R_32F");
        return NO_SUPPORT;
    }
    const bool halves = a == b && a != R_32F && (c == a || c == R_32F);
    const bool floats = a == R_32F && b == R_32F && c == R_32F;
    const bool fits = gemm.in_half() ? a == R_16F && b == R_16F && c == R_16F : floats || (single && halves);
    if (fits) return OK;
    find(
        FindingKind::launch_failed,
        std::string(gemm.call) +
            " returns CUBLAS_STATUS_NOT_SUPPORTED: no product has these types of A, B, C and this"
            " compute type");
    return NO_SUPPORT;
}

int check(const Gemm& gemm) {
    if (!handles.count(gemm.handle)) {
        find(
            FindingKind::launch_failed,
            std::string(gemm.call) + " returns CUBLAS_STATUS_NOT_INITIALIZED: its handle is none");
        return NOT_INITIALIZED;
    }
    if (gemm.m < 0 || gemm.n < 0 || gemm.k < 0) return bad_value(gemm, "a size is negative");
    for (const Matrix* matrix : {&gemm.A, &gemm.B, &gemm.C})
        if (const int status = check_matrix(gemm, *matrix)) return status;
    if (!gemm.alpha || !gemm.beta) return bad_value(gemm, "alpha or beta is null");
    return check_types(gemm);
}

// Work on the default stream is in no order with the launcher's, which waits for nobody (cudaStreamNonBlocking).
bool in_order(const Gemm& gemm) {
    if (reinterpret_cast<u64>(gemm.handle->stream) > 2) return true;
    find(
        FindingKind::race,
        std::string(gemm.call) +
            " works on the default stream, not on the launcher's: nothing orders it after what fills its inputs;"
            " cublasSetStream names the stream");
    return false;
}

// ---- the matrices as numbers

f32 number(const u8* at, int type) {
    if (type == R_32F) return bit_cast<f32>(*reinterpret_cast<const u32*>(at));
    const u16 bits = *reinterpret_cast<const u16*>(at);
    return type == R_16F ? widen(f16{bits}) : widen(bf16{bits});
}

void store(u8* at, int type, f32 value) {
    if (type == R_32F)
        *reinterpret_cast<u32*>(at) = bit_cast<u32>(value);
    else
        *reinterpret_cast<u16*>(at) = type == R_16F ? narrow<f16>(value).bits : narrow<bf16>(value).bits;
}

f32 rounded(f32 value, int compute) {
    if (compute == C_FAST_16F) return widen(narrow<f16>(value));
    if (compute == C_FAST_16BF) return widen(narrow<bf16>(value));
    if (compute == C_FAST_TF32) return bit_cast<f32>((bit_cast<u32>(value) + 0x1000u) & ~0x1fffu);  // 10 bits stay
    return value;
}

// The allocation that a matrix lies in, or null with a finding.
Allocation* allocation_of(const Gemm& gemm, const Matrix& matrix, const char* verb) {
    const std::string what = std::string(gemm.call) + " (" + matrix.name + " of " + std::to_string(matrix.rows) +
                             " x " + std::to_string(matrix.columns) + ", " + matrix.leading() + " = " +
                             std::to_string(matrix.ld) + ")";
    return Device::get().range(what.c_str(), matrix.base, matrix.bytes(), verb);
}

// The elements in the order of memory, without what stands between the columns; false with a finding.
bool read(const Gemm& gemm, const Matrix& matrix, std::vector<f32>& out) {
    out.assign(size_t(matrix.rows) * size_t(matrix.columns), 0);
    if (out.empty()) return true;
    const Allocation* allocation = allocation_of(gemm, matrix, "reads");
    if (!allocation) return false;
    const u64 first = reinterpret_cast<u64>(matrix.base) - allocation->base;
    for (int column = 0; column < matrix.columns; ++column) {
        const u64 at = first + matrix.at(column), bytes = u64(matrix.rows) * matrix.item();
        if (allocation->shadow && std::count(allocation->shadow + at, allocation->shadow + at + bytes, 0)) {
            find(
                FindingKind::uninitialised, std::string(gemm.call) + " reads column " + std::to_string(column) +
                                                " of " + matrix.name + " from " + allocation->name +
                                                ", not all of which was written");
            return false;
        }
        f32* to = &out[size_t(column) * size_t(matrix.rows)];
        for (int row = 0; row < matrix.rows; ++row)
            to[row] = rounded(number(allocation->data + at + u64(row) * matrix.item(), matrix.type), gemm.compute);
    }
    return true;
}

// A row of op(A) or a column of op(B), element k of it.
size_t place(const Matrix& matrix, bool is_a, int outer, int k) {
    const bool k_is_column = is_a == (matrix.operation == AS_IT_IS);
    return k_is_column ? size_t(outer) + size_t(k) * size_t(matrix.rows)
                       : size_t(k) + size_t(outer) * size_t(matrix.rows);
}

f32 scalar(const Gemm& gemm, const void* pointer) {
    u32 bits = 0;
    const u64 bytes = gemm.in_half() ? 2 : 4;
    if (gemm.handle->pointer_mode == DEVICE_POINTERS)
        Device::get().copy(gemm.call, &bits, pointer, bytes);
    else
        std::copy_n(static_cast<const u8*>(pointer), bytes, reinterpret_cast<u8*>(&bits));
    return gemm.in_half() ? widen(f16{u16(bits)}) : bit_cast<f32>(bits);
}

// A sum in half is rounded once for each instruction of the Tensor Cores, which takes 16 products.
f32 dot(const f32* a, const f32* b, int k, bool in_half) {
    constexpr int OF_INSTRUCTION = 16;
    f32 sum = 0;
    for (int i = 0; i < k; ++i) {
        sum += a[i] * b[i];
        const bool last = (i + 1) % OF_INSTRUCTION == 0 || i + 1 == k;
        if (in_half && last) sum = widen(narrow<f16>(sum));
    }
    return sum;
}

std::vector<f32> gathered(const Matrix& matrix, bool is_a, int outer, int k, const std::vector<f32>& from) {
    std::vector<f32> out(size_t(outer) * size_t(k));
    for (int o = 0; o < outer; ++o)
        for (int i = 0; i < k; ++i) out[size_t(o) * size_t(k) + size_t(i)] = from[place(matrix, is_a, o, i)];
    return out;
}

bool writable(const Gemm& gemm, const Allocation& allocation) {
    if (!allocation.writable)
        find(
            FindingKind::modified_input, std::string(gemm.call) + " writes " + allocation.name + ", which is an input");
    return allocation.writable;
}

int multiply(const Gemm& gemm) {
    std::vector<f32> A, B, C;
    const f32 alpha = scalar(gemm, gemm.alpha), beta = scalar(gemm, gemm.beta);
    const bool reads_c = beta != 0;  // C may hold anything where beta is 0, NaN too
    if (!read(gemm, gemm.A, A) || !read(gemm, gemm.B, B) || (reads_c && !read(gemm, gemm.C, C)))
        return EXECUTION_FAILED;
    Allocation* allocation = allocation_of(gemm, gemm.C, "writes");
    if (!allocation || !writable(gemm, *allocation)) return EXECUTION_FAILED;
    A = gathered(gemm.A, true, gemm.m, gemm.k, A);
    B = gathered(gemm.B, false, gemm.n, gemm.k, B);
    const u64 first = reinterpret_cast<u64>(gemm.C.base) - allocation->base;
    for (int j = 0; j < gemm.n; ++j) {
        const u64 column = first + gemm.C.at(j), bytes = u64(gemm.m) * gemm.C.item();
        Device::get().watch.note(gemm.call, allocation->base + column, bytes);
        for (int i = 0; i < gemm.m; ++i) {
            const f32 sum = dot(&A[size_t(i) * size_t(gemm.k)], &B[size_t(j) * size_t(gemm.k)], gemm.k, gemm.in_half());
            const f32 old = reads_c ? beta * C[size_t(j) * size_t(gemm.m) + size_t(i)] : 0;
            store(allocation->data + column + u64(i) * gemm.C.item(), gemm.C.type, alpha * sum + old);
        }
        if (allocation->shadow) std::fill_n(allocation->shadow + column, bytes, 1);
    }
    return OK;
}

int run(const Gemm& gemm) {
    if (const int status = check(gemm)) return status;
    if (Device::get().status() != SUCCESS) return EXECUTION_FAILED;
    if (gemm.m == 0 || gemm.n == 0) return OK;
    if (!in_order(gemm)) return EXECUTION_FAILED;
    Device::get().runtime_calls.note({"kernel", gemm.call, gemm.handle->stream, nullptr, RuntimeCall::TOUCHES});
    return multiply(gemm);
}

// What the three gemms have in common. The shapes in memory follow from the operations.
struct Shapes {
    int ta, tb, m, n, k;
};
Gemm gemm_of(
    const char* call, Handle* handle, Shapes s, const void* alpha, const void* beta, Matrix A, Matrix B, Matrix C,
    int compute) {
    A = {"A", A.base, A.type, s.ta, s.ta ? s.k : s.m, s.ta ? s.m : s.k, A.ld};
    B = {"B", B.base, B.type, s.tb, s.tb ? s.n : s.k, s.tb ? s.k : s.n, B.ld};
    C = {"C", C.base, C.type, AS_IT_IS, s.m, s.n, C.ld};
    return {call, handle, s.m, s.n, s.k, alpha, beta, A, B, C, compute};
}
Matrix given(const void* base, int type, int ld) {
    return {"", base, type, 0, 0, 0, ld};
}

template <class T>
int set(Handle* handle, T Handle::* field, T value) {
    if (!handles.count(handle)) return NOT_INITIALIZED;
    handle->*field = value;
    return OK;
}
template <class T>
int get(Handle* handle, T Handle::* field, T* out) {
    if (!handles.count(handle)) return NOT_INITIALIZED;
    *out = handle->*field;
    return OK;
}

}  // namespace

// ---- handles

SIM_EXPORT int cublasCreate_v2(Handle** handle) {
    if (!handle) return BAD_VALUE;
    handles.insert(*handle = new Handle());
    return OK;
}
SIM_EXPORT int cublasDestroy_v2(Handle* handle) {
    if (!handles.erase(handle)) return NOT_INITIALIZED;
    delete handle;
    return OK;
}
SIM_EXPORT int cublasGetVersion_v2(Handle* handle, int* version) {
    *version = 130000;
    return handles.count(handle) ? OK : NOT_INITIALIZED;
}
SIM_EXPORT int cublasSetStream_v2(Handle* handle, void* stream) {
    return set(handle, &Handle::stream, stream);
}
SIM_EXPORT int cublasGetStream_v2(Handle* handle, void** stream) {
    return get(handle, &Handle::stream, stream);
}
SIM_EXPORT int cublasSetWorkspace_v2(Handle* handle, void*, size_t) {
    return handles.count(handle) ? OK : NOT_INITIALIZED;
}
SIM_EXPORT int cublasSetPointerMode_v2(Handle* handle, int mode) {
    if (mode != HOST_POINTERS && mode != DEVICE_POINTERS) return BAD_VALUE;
    return set(handle, &Handle::pointer_mode, mode);
}
SIM_EXPORT int cublasGetPointerMode_v2(Handle* handle, int* mode) {
    return get(handle, &Handle::pointer_mode, mode);
}
SIM_EXPORT int cublasSetMathMode(Handle* handle, int mode) {
    return set(handle, &Handle::math, mode);
}
SIM_EXPORT int cublasGetMathMode(Handle* handle, int* mode) {
    return get(handle, &Handle::math, mode);
}
SIM_EXPORT const char* cublasGetStatusName(int status) {
    switch (status) {
        case OK:
            return "CUBLAS_STATUS_SUCCESS";
        case NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case BAD_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case NO_SUPPORT:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
            return "an unknown cuBLAS status";
    }
}
SIM_EXPORT const char* cublasGetStatusString(int status) {
    return cublasGetStatusName(status);
}

// ---- products

SIM_EXPORT int cublasGemmEx(
    Handle* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* A, int a_type, int lda,
    const void* B, int b_type, int ldb, const void* beta, void* C, int c_type, int ldc, int compute, int) {
    return run(gemm_of(
        "cublasGemmEx", handle, {ta, tb, m, n, k}, alpha, beta, given(A, a_type, lda), given(B, b_type, ldb),
        given(C, c_type, ldc), compute));
}
SIM_EXPORT int cublasHgemm(
    Handle* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* A, int lda, const void* B,
    int ldb, const void* beta, void* C, int ldc) {
    return run(gemm_of(
        "cublasHgemm", handle, {ta, tb, m, n, k}, alpha, beta, given(A, R_16F, lda), given(B, R_16F, ldb),
        given(C, R_16F, ldc), C_16F));
}
SIM_EXPORT int cublasSgemm_v2(
    Handle* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* A, int lda, const void* B,
    int ldb, const void* beta, void* C, int ldc) {
    const bool tf32 = handles.count(handle) && handle->math == TF32_MATH;
    return run(gemm_of(
        "cublasSgemm", handle, {ta, tb, m, n, k}, alpha, beta, given(A, R_32F, lda), given(B, R_32F, ldb),
        given(C, R_32F, ldc), tf32 ? C_FAST_TF32 : C_32F));
}
