// bulk_copy_ring_f32: y = x, a ring of tiles in shared memory, copies in and out in flight at the same time
//
// Shapes     x, y: [n] f32, contiguous, 16-byte aligned bases, any n >= 1
// Technique  bulk copies by one thread; as many blocks as fit on the card, each with every gridDim.x-th tile; a ring of
//            four tiles per block, one mbarrier per tile
// New        over bulk_copy_f32: a block moves many tiles. A stage is filled again as soon as its tile has been read
// Bound      memory bandwidth
#include "kata.cuh"
#include "kata_tma.cuh"
#include <cstdint>

// From kata_tma.cuh:
using kata::mbarrier_init, kata::expect, kata::wait, kata::load_bytes, kata::store_bytes, kata::commit_stores,
    kata::wait_read;

constexpr int TILE = 4096;  // floats per stage: 16 KB
constexpr int STAGES = 4;
constexpr int BLOCKS_PER_SM = 3;  // 64 KB of shared memory each
constexpr int THREADS = 32;
constexpr int VEC = 4;  // floats in 16 bytes: bulk copies move multiples of that
constexpr int SMEM_BYTES = STAGES * TILE * sizeof(float);

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
            // END TODO(1)
            // TODO(2): Load the tile that comes next into the stage of tile k - 1, if both tiles exist. The copy engine
            //   must have read tile k - 1. The copy out of tile k stays in flight. (~5 lines)
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
