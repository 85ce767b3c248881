// bulk_copy_ring_f32: y = x, a ring of tiles in shared memory, copies in and out in flight at the same time
//
// Shapes     x, y: [n] f32, contiguous, 16-byte aligned bases, any n >= 1
// Technique  bulk copies by one thread; as many blocks as fit on the card, each with every gridDim.x-th tile; a ring of
//            four tiles per block, one mbarrier per tile
// New        over bulk_copy_f32: a block moves many tiles. A stage is filled again as soon as its tile has been read
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 4096;  // floats per stage: 16 KB
constexpr int STAGES = 4;
constexpr int BLOCKS_PER_SM = 3;  // 64 KB of shared memory each
constexpr int THREADS = 32;
constexpr int VEC = 4;  // floats in 16 bytes: bulk copies move multiples of that
constexpr int SMEM_BYTES = STAGES * TILE * sizeof(float);

// The address of a place in shared memory as PTX instructions take it: 32 bits.
__device__ inline uint32_t smem_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A phase of the barrier ends when count arrivals have come and all bytes that they announced. The fence makes the
// barrier visible to the copy engine (PTX ISA, "mbarrier.init", "membar / fence").
__device__ inline void mbarrier_init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, which announces bytes of copies (PTX ISA, "mbarrier.arrive", .expect_tx).
__device__ inline void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(bar)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity has ended: 0 for the first phase, 1 for the second, 0 for the third.
__device__ inline void wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n .reg .pred p;\nAGAIN_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra AGAIN_%=;\n}" ::
            "r"(smem_address(bar)),
        "r"(parity)
        : "memory");
}

// global -> shared: the copy engine moves the bytes, and the barrier counts them (PTX ISA, "cp.async.bulk"). Addresses
// and bytes are multiples of 16.
__device__ inline void load_bytes(void* to, const void* from, uint32_t bytes, uint64_t* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     smem_address(to)),
                 "l"(from), "r"(bytes), "r"(smem_address(bar))
                 : "memory");
}

// shared -> global: part of the bulk group that this thread commits next. Addresses and bytes are multiples of 16.
__device__ inline void store_bytes(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(smem_address(from)),
                 "r"(bytes)
                 : "memory");
}

// Makes a bulk group of all stores that this thread has issued since the last commit.
__device__ inline void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the copy engine has read the source of all but the LEFT newest bulk groups of this thread.
template <int LEFT>
__device__ inline void wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

__global__ void __launch_bounds__(THREADS) bulk_copy_ring_f32_kernel(
    const float* __restrict__ x,  // [n]
    float* __restrict__ y,        // [n]
    int n) {
    alignas(128) extern __shared__ float ring_smem[];  // [STAGES][TILE]
    __shared__ uint64_t full[STAGES];
    const int whole = n / VEC * VEC;  // floats in whole 16 bytes
    const int tiles = whole / TILE + (whole % TILE != 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) mbarrier_init(&full[s], 1);
        // The block's k-th tile. All blocks together are always in one stretch of x and of y.
        auto tile_of = [&](int k) { return blockIdx.x + static_cast<int64_t>(k) * gridDim.x; };
        auto bytes_of = [&](int k) -> uint32_t {
            const int64_t left = whole - tile_of(k) * TILE;
            return (left < TILE ? left : TILE) * sizeof(float);
        };
        // The k-th tile goes to stage k % STAGES.
        auto load_tile = [&](int k) {
            const int s = k % STAGES;
            expect(&full[s], bytes_of(k));
            load_bytes(&ring_smem[s * TILE], x + tile_of(k) * TILE, bytes_of(k), &full[s]);
        };
        for (int k = 0; k < STAGES && tile_of(k) < tiles; ++k) load_tile(k);
        for (int k = 0; tile_of(k) < tiles; ++k) {
            const int s = k % STAGES;
            // TODO(1): Wait for tile k, and issue its copy to y as a bulk group of its own. A stage's barrier begins a
            //   new phase each time that the ring comes around to it. (~3 lines)
            wait(&full[s], k / STAGES % 2);
            store_bytes(y + tile_of(k) * TILE, &ring_smem[s * TILE], bytes_of(k));
            commit_stores();
            // END TODO(1)
            // TODO(2): Load the tile that comes next into the stage of tile k - 1, if both tiles exist. The copy engine
            //   must have read tile k - 1. The copy out of tile k stays in flight. (~5 lines)
            const int next = k - 1 + STAGES;
            if (k > 0 && tile_of(next) < tiles) {
                wait_read<1>();
                load_tile(next);
            }
            // END TODO(2)
        }
        // The copy engine reads this block's shared memory, so the block must not end before that.
        wait_read<0>();
    }
    // At most three floats after the last whole 16 bytes.
    const int last = n - whole;
    if (blockIdx.x == 0 && threadIdx.x < last) y[whole + threadIdx.x] = x[whole + threadIdx.x];
}

KATA_EXPORT void bulk_copy_ring_f32(const float* x, float* y, int n, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles = (n - 1) / TILE + 1;
    const int blocks = tiles < sms * BLOCKS_PER_SM ? tiles : sms * BLOCKS_PER_SM;
    cudaFuncSetAttribute(bulk_copy_ring_f32_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    bulk_copy_ring_f32_kernel<<<blocks, THREADS, SMEM_BYTES, stream>>>(x, y, n);
}
