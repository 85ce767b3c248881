#include "cluster.h"

#include <algorithm>

#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u32 MOST_RANKS = 126;  // that an address has room for
constexpr u64 SLICE = 1 << 10;   // warp instructions of a block before another of the cluster gets its turn

}  // namespace

// ---- the barrier

void ClusterBarrier::forget() {
    if (!open_) return;
    open_ = false;
    threads_.clear();
    released_ = completed_ = {};
}

ClusterBarrier::Threads& ClusterBarrier::threads(const Warp& warp) {
    const size_t warps = warp.block->warps.size();
    threads_.resize(cluster_.blocks.size() * warps);
    return threads_[warp.block->rank * warps + warp.index];
}

void ClusterBarrier::arrive(Warp& warp, Mask lanes, bool releases) {
    open_ = true;
    Threads& mine = threads(warp);
    Block& block = *warp.block;
    if (const Mask again = lanes & (mine.arrived | mine.passed)) {
        const int lane = __builtin_ctz(again);
        block.stop_at(block.at(
            warp, warp.here, lane, FindingKind::deadlock,
            block.thread(warp.thread(lane)) + " arrives at the barrier of the cluster a second time before it waits"));
    }
    VectorClock known;
    if (releases)
        warp.release(lanes, known);
    else
        known = block.ordering.released(warp);
    released_.join(known.moved(block.rank, 0));
    warp.tick();
    mine.arrived |= lanes;
    check();
}

void ClusterBarrier::check() {
    if (!open_) return;
    bool any = false;
    for (auto& block : cluster_.blocks)
        for (Warp& warp : block->warps) {
            const Mask arrived = threads(warp).arrived;
            if (warp.alive & ~arrived) return;
            any |= arrived != 0;
        }
    if (!any) return;
    completed_.join(released_);
    released_ = {};
    for (auto& block : cluster_.blocks)
        for (Warp& warp : block->warps) {
            Threads& its = threads(warp);
            its.passed |= its.arrived;
            its.arrived = 0;
            const Mask waiting = its.waiting & its.passed;
            warp.at_barrier &= ~waiting;
            its.waiting = 0;
        }
}

void ClusterBarrier::take(Warp& warp, Mask lanes) {
    threads(warp).passed &= ~lanes;
    warp.acquire(lanes, completed_.moved(0, warp.block->rank));
}

void ClusterBarrier::wait(Warp& warp, Mask lanes) {
    Threads& mine = threads(warp);
    Block& block = *warp.block;
    if (const Mask never = lanes & ~(mine.arrived | mine.passed)) {
        const int lane = __builtin_ctz(never);
        block.stop_at(block.at(
            warp, warp.here, lane, FindingKind::deadlock,
            block.thread(warp.thread(lane)) + " waits at the barrier of the cluster and has not arrived there"));
    }
    const Mask over = lanes & mine.passed, wait = lanes & ~over;
    warp.move(over, warp.here + 1);
    warp.move(wait, warp.here);
    mine.waiting |= wait;
    warp.at_barrier |= wait;
    if (over) take(warp, over);
}

// ---- its blocks

Cluster::Cluster(const Launch& launch) : launch_(launch) {
    for (u32 rank = 0; rank < launch.blocks_per_cluster(); ++rank)
        blocks.push_back(std::make_unique<Block>(launch, *this, rank));
}

void Cluster::start(u64 linear) {
    const u32 *grid = launch_.grid, *size = launch_.cluster;
    const u64 wide = grid[0] / size[0], high = grid[1] / size[1];
    const u64 first[] = {linear % wide * size[0], linear / wide % high * size[1], linear / (wide * high) * size[2]};
    u32 origin = 0;
    for (auto& block : blocks) origin = std::max(origin, block->last_clock);
    if (origin > shared_epoch::LAST_CLOCK / 16 * 15) origin = 0;  // the clocks would wrap: begin again
    barrier.forget();
    flags.clear();
    for (u32 rank = 0; rank < blocks.size(); ++rank) {
        const u64 x = first[0] + rank % size[0], y = first[1] + rank / size[0] % size[1];
        const u64 z = first[2] + rank / (size[0] * size[1]);
        blocks[rank]->start((z * grid[1] + y) * grid[0] + x, origin);
    }
}

bool Cluster::run(u64 budget) {
    if (blocks.size() == 1) {
        const Turn turn = blocks[0]->run(budget);
        if (turn == Turn::blocked) blocks[0]->deadlock();
        return turn == Turn::finished;
    }
    const size_t count = blocks.size();
    for (u64 done = 0; done < budget; done += SLICE * count) {
        const size_t first = blocks[0]->random() % count;
        bool finished = true, stuck = true;
        for (size_t i = 0; i < count; ++i) {
            Block& block = *blocks[(first + i) % count];
            if (block.exited) continue;
            const Turn turn = block.run(SLICE);
            finished &= turn == Turn::finished;
            stuck &= turn == Turn::blocked && !block.progressed;
        }
        if (finished) return true;
        if (!stuck) continue;
        for (size_t i = 0; i < count; ++i)
            if (blocks[(first + i) % count]->waits()) blocks[(first + i) % count]->deadlock();
    }
    return false;
}

Block* Cluster::owner(Block& block, u64 address) {
    const u64 tag = address >> RANK_SHIFT;
    if (tag == 0) return &block;
    return tag <= blocks.size() ? blocks[size_t(tag - 1)].get() : nullptr;
}

// ---- instructions

namespace {

template <bool releases>
void arrive(Warp& warp, const Instruction&, Mask mask) {
    warp.block->cluster->barrier.arrive(warp, mask, releases);
}

void wait(Warp& warp, const Instruction&, Mask mask) {
    warp.block->cluster->barrier.wait(warp, mask);
}

// An address in another block's shared memory; `generic` is where shared memory begins among generic addresses. A rank
// that the cluster does not have is an error of the access, not of mapa: nvcc moves mapa before a test of the rank.
template <class T, u64 generic>
void map_address(Warp& warp, const Instruction& in, Mask mask) {
    const T* address = warp.row<const T>(in.operand[1]);
    const u32* rank = warp.row<const u32>(in.operand[2]);
    Block& block = *warp.block;
    each_lane(mask, [&](int l) {
        const u64 offset = offset_of(address[l] - generic);
        warp.row<T>(in.operand[0])[l] =
            T(generic + (rank[l] == block.rank ? offset : address_of_rank(std::min(rank[l], MOST_RANKS), offset)));
    });
}

template <class T, u64 generic>
void rank_of_address(Warp& warp, const Instruction& in, Mask mask) {
    const T* address = warp.row<const T>(in.operand[1]);
    each_lane(mask, [&](int l) {
        const u64 tag = u64(address[l] - generic) >> RANK_SHIFT;
        warp.row<u32>(in.operand[0])[l] = tag ? u32(tag - 1) : warp.block->rank;
    });
}

}  // namespace

void cluster_entries(Table& t) {
    t.add("barrier.cluster.arrive{,.release}{,.aligned}", {arrive<true>, {}}, lower_nothing);
    t.add("barrier.cluster.arrive.relaxed{,.aligned}", {arrive<false>, {}}, lower_nothing);
    t.add("barrier.cluster.wait{,.acquire}{,.aligned}", {wait, {}}, lower_nothing, Flow::leave);
    const Shape u32s = shape_of<u32>(), u64s = shape_of<u64>();
    t.add("mapa.shared::cluster.u32", {map_address<u32, 0>, {3, {u32s, u32s, u32s}}});
    t.add("mapa.shared::cluster.u64", {map_address<u64, 0>, {3, {u64s, u64s, u32s}}});
    t.add("mapa.u64", {map_address<u64, SHARED_ORIGIN>, {3, {u64s, u64s, u32s}}});
    t.add("getctarank.shared::cluster.u32", {rank_of_address<u32, 0>, {2, {u32s, u32s}}});
    t.add("getctarank.shared::cluster.u64", {rank_of_address<u64, 0>, {2, {u32s, u64s}}});
    t.add("getctarank.u64", {rank_of_address<u64, SHARED_ORIGIN>, {2, {u32s, u64s}}});
}

}  // namespace sim
