#include "occupancy.h"

#include <algorithm>

namespace sim {

namespace {

u64 by_threads(const Card& card, u64 threads) {
    const u64 warps = (threads + LANES - 1) / LANES;
    return std::min<u64>(u64(card.blocks_per_multiprocessor), u64(card.threads_per_multiprocessor) / LANES / warps);
}

}  // namespace

u64 resident_blocks(const Card& card, const Program& program, u64 threads, u64 dynamic_shared) {
    if (threads == 0 || threads > THREADS_PER_BLOCK || threads > program.limits.max_threads) return 0;
    const u64 shared = program.static_shared + dynamic_shared + card.reserved_shared;
    const u64 threads_allow = by_threads(card, threads);
    const u64 blocks = shared ? std::min(threads_allow, card.shared_per_multiprocessor / shared) : threads_allow;
    // __launch_bounds__ can ask ptxas for so few registers that more blocks fit.
    return card.most_resident ? std::min(blocks, std::max(card.most_resident, u64(program.limits.min_blocks))) : blocks;
}

u64 available_shared(const Card& card, const Program& program, u64 blocks, u64 threads) {
    if (blocks == 0 || threads == 0 || blocks > by_threads(card, threads)) return 0;
    const u64 share = card.shared_per_multiprocessor / blocks, taken = program.static_shared + card.reserved_shared;
    return share > taken ? std::min(share - taken, card.shared_per_block_optin - program.static_shared) : 0;
}

u64 active_clusters(const Card& card, u64 blocks, u64 size) {
    // A small card, too, runs a cluster: one of more blocks than it holds at a time.
    return size && blocks ? std::max<u64>(u64(card.multiprocessors) * blocks / size, 1) : 0;
}

}  // namespace sim
