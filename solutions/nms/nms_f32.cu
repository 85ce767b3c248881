// nms_f32: greedy non-maximum suppression, drops each box whose overlap with a kept, better box exceeds a threshold
//
// Shapes     boxes: [n, 4] f32 as x1, y1, x2, y2, scores: [n] f32 without nan, keep: [n] i64, count: [1] i32, 16-byte
//            aligned bases, 0 <= n <= 4096. keep[0..count-1] are the kept boxes by falling score, equal scores by
//            rising index; the rest of keep is -1
// Technique  rank by counting; one bit per pair of boxes, 64 per word; one block walks down the ranks
// New        over block_all_reduce_f32_f32: three kernels in sequence, and an answer that depends on earlier answers
// Bound      latency: the walk is serial, tile after tile of 64 boxes
#include "kata.cuh"
#include <cstdint>

constexpr int RANK_THREADS = 256;
constexpr int TILE = 64;       // boxes per tile: one bit each in a 64-bit word
constexpr int MAX_TILES = 64;  // each thread of the walking block holds one word: 4096 boxes

// Whether two boxes overlap by more than the threshold, as a share of their union. Two empty boxes give 0 / 0, and no
// comparison with nan is true.
__device__ __forceinline__ bool overlap(float4 a, float4 b, float iou_threshold) {
    // TODO(1): Intersection over union. The intersection is 0 where the boxes do not meet. Strictly greater than the
    //   threshold. (~6 lines)
    const float width = fmaxf(fminf(a.z, b.z) - fmaxf(a.x, b.x), 0.0f);
    const float height = fmaxf(fminf(a.w, b.w) - fmaxf(a.y, b.y), 0.0f);
    const float inter = width * height;
    const float area_a = (a.z - a.x) * (a.w - a.y);
    const float area_b = (b.z - b.x) * (b.w - b.y);
    return inter / (area_a + area_b - inter) > iou_threshold;
    // END TODO(1)
}

// order[rank] = box, by falling score.
__global__ void __launch_bounds__(RANK_THREADS)
    nms_rank_kernel(const float* __restrict__ scores, int* __restrict__ order, int n) {
    const int box = blockIdx.x * RANK_THREADS + threadIdx.x;
    if (box >= n) return;
    // TODO(2): A box's rank is the number of boxes that come before it. Every rank must occur once, even with equal
    //   scores: then the lower index comes first. (~6 lines)
    const float score = scores[box];
    int rank = 0;
    for (int other = 0; other < n; ++other) {
        rank += scores[other] > score || (scores[other] == score && other < box);
    }
    order[rank] = box;
    // END TODO(2)
}

// mask[rank * tiles + t], bit b: the box of this rank overlaps the later box of rank t * TILE + b.
__global__ void __launch_bounds__(TILE) nms_mask_kernel(
    const float4* __restrict__ boxes, const int* __restrict__ order, uint64_t* __restrict__ mask, int n, int tiles,
    float iou_threshold) {
    __shared__ float4 boxes_smem[TILE];
    const int tid = threadIdx.x;
    const int row_tile = blockIdx.x / tiles;
    const int col_tile = blockIdx.x % tiles;
    if (col_tile < row_tile) return;  // only earlier ranks suppress a box: no thread reads these words
    const int rank = row_tile * TILE + tid;
    const int first = col_tile * TILE;
    const int boxes_here = min(TILE, n - first);
    // TODO(3): Stage the boxes of the column's tile. Then let each thread compare its own box with those of later rank
    //   among them, and store one word of bits. A thread past n has no box and no word, but must reach the barrier.
    //   (~9 lines)
    if (tid < boxes_here) boxes_smem[tid] = boxes[order[first + tid]];
    // Every thread reads all the staged boxes.
    __syncthreads();
    if (rank < n) {
        const float4 box = boxes[order[rank]];
        uint64_t bits = 0;
        for (int b = 0; b < boxes_here; ++b) {
            if (first + b > rank && overlap(box, boxes_smem[b], iou_threshold)) bits |= uint64_t{1} << b;
        }
        mask[rank * tiles + col_tile] = bits;
    }
    // END TODO(3)
}

// One block. Thread w holds the removed boxes of tile w, and acts for box w of the current tile.
__global__ void __launch_bounds__(MAX_TILES) nms_walk_kernel(
    const int* __restrict__ order, const uint64_t* __restrict__ mask, int64_t* __restrict__ keep,
    int* __restrict__ count, int n, int tiles) {
    static_assert(MAX_TILES == TILE, "a thread stands for a tile and for a box of a tile at once");
    __shared__ uint64_t removed_smem[MAX_TILES];
    __shared__ uint64_t diagonal_smem[TILE];  // the words of this tile's boxes about this tile's boxes
    __shared__ uint64_t kept_smem;
    const int tid = threadIdx.x;
    removed_smem[tid] = 0;
    int kept_before = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        const int first = tile * TILE;
        const int boxes_here = min(TILE, n - first);
        // TODO(4): One thread decides this tile box by box: a box that is not removed is kept, and removes the later
        //   boxes of the tile that it overlaps. It may start only when all words that it reads are there, also those
        //   that other threads updated in the iteration before. All threads need its answer. (~14 lines)
        if (tid < boxes_here) diagonal_smem[tid] = mask[(first + tid) * tiles + tile];
        // The diagonal words, and the removed words that the iteration before has written.
        __syncthreads();
        if (tid == 0) {
            uint64_t removed = removed_smem[tile];
            uint64_t kept = 0;
            for (int b = 0; b < boxes_here; ++b) {
                if (removed >> b & 1) continue;
                kept |= uint64_t{1} << b;
                removed |= diagonal_smem[b];
            }
            kept_smem = kept;
        }
        // All threads need the verdict, and the diagonal words may be overwritten only after it.
        __syncthreads();
        // END TODO(4)
        const uint64_t kept = kept_smem;
        // TODO(5): Thread w removes from tile w what the kept boxes of this tile overlap there. Only later tiles have
        //   words in the mask. Thread b stores box b, if kept, after all boxes kept before it. (~9 lines)
        if (tid > tile && tid < tiles) {
            uint64_t removed = removed_smem[tid];
            for (uint64_t rest = kept; rest != 0; rest &= rest - 1) {  // takes off the lowest bit
                removed |= mask[(first + __ffsll(rest) - 1) * tiles + tid];
            }
            removed_smem[tid] = removed;
        }
        const uint64_t below = (uint64_t{1} << tid) - 1;
        if (kept >> tid & 1) keep[kept_before + __popcll(kept & below)] = order[first + tid];
        // END TODO(5)
        kept_before += __popcll(kept);
    }
    // TODO(6): Fill the rest of keep, and store the count. (~2 lines)
    for (int i = kept_before + tid; i < n; i += MAX_TILES) keep[i] = -1;
    if (tid == 0) *count = kept_before;
    // END TODO(6)
}

KATA_EXPORT void nms_f32(
    const float* boxes, const float* scores, int64_t* keep, int* count, int n, float iou_threshold,
    cudaStream_t stream) {
    cudaMemsetAsync(count, 0, sizeof(int), stream);
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int tiles = (n - 1) / TILE + 1;
    // Scratch memory, allocated and freed in stream order: two calls never share it.
    int* order = nullptr;
    uint64_t* mask = nullptr;
    cudaMallocAsync(&order, n * sizeof(int), stream);
    cudaMallocAsync(&mask, static_cast<size_t>(n) * tiles * sizeof(uint64_t), stream);
    nms_rank_kernel<<<(n - 1) / RANK_THREADS + 1, RANK_THREADS, 0, stream>>>(scores, order, n);
    nms_mask_kernel<<<tiles * tiles, TILE, 0, stream>>>(
        reinterpret_cast<const float4*>(boxes), order, mask, n, tiles, iou_threshold);
    nms_walk_kernel<<<1, MAX_TILES, 0, stream>>>(order, mask, keep, count, n, tiles);
    cudaFreeAsync(mask, stream);
    cudaFreeAsync(order, stream);
}
