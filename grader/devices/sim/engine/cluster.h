// cluster: blocks that run together, reach each other's shared memory, and have a barrier of their own
//
// Most clusters are one block. The blocks of a cluster run on one host thread, one after the other, a slice each; their
// clocks begin at the same number. PTX ISA 2.2.1.2, "Cluster of Cooperative Thread Arrays".
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "block.h"

namespace sim {

constexpr u32 BLOCKS_PER_CLUSTER = 16;  // at most, on a card that is asked for so many

// Shared memory of the block with a rank, as addresses of shared::cluster; those of the own block stand for themselves.
constexpr int RANK_SHIFT = 24;
inline u64 address_of_rank(u32 rank, u64 offset) {
    return u64(rank + 1) << RANK_SHIFT | offset;
}
inline u64 offset_of(u64 address) {
    return address & ((u64(1) << RANK_SHIFT) - 1);
}

// barrier.cluster: it completes when all threads of the cluster that have not exited have arrived.
class ClusterBarrier {
 public:
    explicit ClusterBarrier(Cluster& cluster) : cluster_(cluster) {}
    void forget();
    void arrive(Warp& warp, Mask lanes, bool releases);
    void wait(Warp& warp, Mask lanes);
    void check();  // whether it is complete now

 private:
    struct Threads {
        Mask arrived = 0;  // in this phase
        Mask passed = 0;   // in the last one, and have not waited yet
        Mask waiting = 0;
    };
    Threads& threads(const Warp& warp);
    void take(Warp& warp, Mask lanes);

    Cluster& cluster_;
    bool open_ = false;
    std::vector<Threads> threads_;      // of each warp
    VectorClock released_, completed_;  // as block 0 counts
};

class Cluster {
 public:
    explicit Cluster(const Launch& launch);
    void start(u64 linear);  // becomes this cluster of the grid
    bool run(u64 budget);    // true when finished; throws Halt
    // The block that a shared address is of, for a thread of `block`; null: no block.
    Block* owner(Block& block, u64 address);

    std::vector<std::unique_ptr<Block>> blocks;  // by rank
    ClusterBarrier barrier{*this};
    std::unordered_map<const u8*, VectorClock> flags;  // what the last strong writers of a place released, as block 0

 private:
    const Launch& launch_;
};

}  // namespace sim
