#include "standstill.h"

#include <algorithm>

namespace sim {

namespace {

constexpr u32 AGAIN = 32;                   // turns: what one block writes, the others read in their next
constexpr size_t STATES = size_t(1) << 14;  // of a block; one that comes to more is not waiting

u64 hash(u64 from, const u8* bytes, u64 count) {  // FNV-1a, of eight bytes at a time
    for (u64 i = 0; i + sizeof(u64) <= count; i += sizeof(u64)) {
        u64 word;
        std::memcpy(&word, bytes + i, sizeof word);
        from = (from ^ word) * 0x9e3779b97f4a7c15u;
        from ^= from >> 29;
    }
    return from;
}

// Registers, and where each lane stands.
u64 state_of(const Block& block) {
    u64 state = 0;
    for (const Warp& warp : block.warps) {
        state = hash(state, warp.rows, block.program->row_bytes);
        state = hash(state, reinterpret_cast<const u8*>(warp.pc), sizeof warp.pc);
        const Mask masks[] = {warp.alive, warp.at_barrier, warp.at_warp_sync, 0};
        state = hash(state, reinterpret_cast<const u8*>(masks), sizeof masks);
    }
    return state;
}

const Warp& runnable(const Block& block) {
    const auto runs = [](const Warp& warp) { return warp.runnable() != 0; };
    const auto found = std::find_if(block.warps.begin(), block.warps.end(), runs);
    return found == block.warps.end() ? block.warps.front() : *found;
}

}  // namespace

bool Standstill::repeats(const Block& block, u64 resident) {
    Seen& seen = seen_[&block];
    if (seen.states.size() > STATES) seen.states.clear();
    seen.again = seen.states.insert(state_of(block)).second ? 0 : seen.again + 1;
    if (seen_.size() < resident) return false;
    return std::all_of(seen_.begin(), seen_.end(), [](auto& item) { return item.second.again >= AGAIN; });
}

void Standstill::end() {
    seen_.clear();
}

Finding standstill(const Block& block, u64 not_started) {
    const Warp& warp = runnable(block);
    const Mask lanes = warp.runnable() ? warp.runnable() : warp.alive;
    const int lane = lanes ? __builtin_ctz(lanes) : 0;
    return block.at(
        warp, warp.pc[lane], lane, FindingKind::deadlock,
        block.thread(warp.thread(lane)) + " waits for what no running block does, and " + plural(not_started, "block") +
            " of the grid cannot start before a running one ends: the card runs " +
            std::to_string(block.launch->resident) + " at the same time");
}

}  // namespace sim
