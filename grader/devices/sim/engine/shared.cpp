#include "shared.h"

#include <algorithm>

#include "block.h"
#include "operation.h"

namespace sim {

namespace {

// By what all lanes of the warp know.
inline bool ordered_for_warp(const Warp& warp, Epoch earlier, Epoch me) {
    const u32 clock = shared_epoch::clock(earlier), thread = shared_epoch::thread(earlier);
    return clock <= warp.known_min || clock <= warp.known[thread / LANES] || thread == shared_epoch::thread(me);
}

// The accessing lane may know more: seldom asked, and out of the way of what is.
__attribute__((noinline, cold)) bool ordered_for_lane(const Warp& warp, Epoch earlier, Epoch me) {
    const int lane = int(shared_epoch::thread(me) % LANES);
    return warp.has_parted() && warp.knows(lane, shared_epoch::thread(earlier), shared_epoch::clock(earlier));
}

inline bool ordered(const Warp& warp, Epoch earlier, Epoch me) {
    return ordered_for_warp(warp, earlier, me) || ordered_for_lane(warp, earlier, me);
}

}  // namespace

void SharedMemory::prepare(u64 bytes, u32 granule_shift, u32 ranks) {
    ranks_ = ranks;
    bytes_ = bytes;
    shift_ = granule_shift;
    data_.assign(bytes + 16, 0);
    initialised_.assign(bytes + 16, 0);
    const u64 granules = (bytes >> shift_) + 16;
    writer_.assign(granules, 0);
    other_writer_.assign(granules, 0);
    reader_.assign(granules, 0);
    other_reader_.assign(granules, 0);
}

void SharedMemory::forget() {
    std::fill(initialised_.begin(), initialised_.end(), 0);
}

// Most accesses are ordered by what the whole warp knows, and need no more than this.
inline __attribute__((always_inline)) bool SharedMemory::record_read(
    const Warp& warp, Epoch me, u64 granule, Race* race) {
    if (!ordered_for_warp(warp, writer_[granule], me) || !ordered_for_warp(warp, other_writer_[granule], me))
        return record_disputed_read(warp, me, granule, race);
    note_reader(warp, me, granule);
    return false;
}

inline void SharedMemory::note_reader(const Warp& warp, Epoch me, u64 granule) {
    Epoch& first = reader_[granule];
    if (shared_epoch::strong(me) || !ordered_for_warp(warp, first, me))
        other_reader_[granule] = me;
    else
        first = me;
}

__attribute__((noinline)) bool SharedMemory::record_disputed_read(const Warp& warp, Epoch me, u64 granule, Race* race) {
    for (const Epoch writer : {writer_[granule], other_writer_[granule]}) {
        if (ordered(warp, writer, me) || (shared_epoch::strong(writer) && shared_epoch::strong(me))) continue;
        *race = {writer, true, granule << shift_, 0};
        return true;
    }
    note_reader(warp, me, granule);
    return false;
}

inline __attribute__((always_inline)) bool SharedMemory::record_write(
    const Warp& warp, Epoch me, bool atomic, u64 granule, Race* race) {
    if (shared_epoch::clock(writer_[granule]) > warp.known_min || !ordered_for_warp(warp, other_writer_[granule], me) ||
        !ordered_for_warp(warp, reader_[granule], me) || !ordered_for_warp(warp, other_reader_[granule], me))
        return record_disputed_write(warp, me, atomic, granule, race);
    writer_[granule] = me;
    return false;
}

__attribute__((noinline)) bool SharedMemory::record_disputed_write(
    const Warp& warp, Epoch me, bool atomic, u64 granule, Race* race) {
    const Epoch earlier[] = {writer_[granule], other_writer_[granule], reader_[granule], other_reader_[granule]};
    for (int i = 0; i < 4; ++i) {
        if (ordered(warp, earlier[i], me) || (shared_epoch::strong(earlier[i]) && (atomic || shared_epoch::strong(me))))
            continue;
        *race = {earlier[i], i < 2, granule << shift_, 0};
        return true;
    }
    // Atomics by others in this interval do not race with this one, but with a plain access that may follow; and a
    // plain write that not all warps know of yet may race with an atomic that follows.
    const Epoch before = writer_[granule];
    const bool hidden =
        shared_epoch::strong(me) && !shared_epoch::strong(before) && shared_epoch::clock(before) > warp.known_min;
    if (hidden || !ordered_for_warp(warp, before, me)) other_writer_[granule] = before;
    writer_[granule] = me;
    return false;
}

// All lanes read one address: the first and the last of them stand for all.
bool SharedMemory::broadcast_read(const Warp& warp, Mask mask, u64 address, u32 bytes, bool strong) {
    const u32 base = warp.index * LANES;
    const Epoch me = shared_epoch::make(warp.clock, base + u32(__builtin_ctz(mask)), strong, warp.here);
    const u32 last = LANES - 1 - u32(__builtin_clz(mask));
    const Epoch second = shared_epoch::make(warp.clock, base + last, strong, warp.here);
    for (u64 g = address >> shift_; g <= (address + bytes - 1) >> shift_; ++g) {
        if (shared_epoch::clock(writer_[g]) > warp.known_min || shared_epoch::clock(other_writer_[g]) > warp.known_min)
            return false;
        // A reader of another warp in this interval stays known beside one of this
        // warp's.
        const bool keep =
            shared_epoch::clock(reader_[g]) > warp.known_min && shared_epoch::thread(reader_[g]) / LANES != warp.index;
        if (!keep) reader_[g] = me;
        other_reader_[g] = second;
    }
    return true;
}

// ---- where blocks of a cluster share it

// By what all lanes of the warp know of its own block, and of what came before the launch's block began.
inline __attribute__((always_inline)) bool ordered_for_warp_in_cluster(
    const Warp& warp, u32 origin, Epoch earlier, Epoch me) {
    const u32 clock = shared_epoch::clock(earlier);
    return clock <= origin || (shared_epoch::rank(earlier) == shared_epoch::rank(me) &&
                               clock <= warp.known[shared_epoch::thread(earlier) / LANES]);
}

// Who: 0 a thread of the block itself.
bool SharedMemory::ordered_in_cluster(const Warp& warp, Epoch earlier, Epoch me) const {
    const u32 clock = shared_epoch::clock(earlier), thread = shared_epoch::thread(earlier);
    if (clock <= warp.block->origin) return true;
    if (shared_epoch::rank(earlier) == shared_epoch::rank(me) && thread == shared_epoch::thread(me)) return true;
    const int lane = int(shared_epoch::thread(me) % LANES);
    const u32 rank = shared_epoch::rank(earlier) ^ rank_;
    if (rank == warp.block->rank) return warp.knows(lane, thread, clock);
    return warp.knows_component(lane, warp_of_rank(rank, thread / LANES), thread % LANES, clock);
}

bool SharedMemory::record_one(const Warp& warp, Epoch me, Access access, u64 g, Race* race) {
    const Epoch earlier[] = {writer_[g], other_writer_[g], reader_[g], other_reader_[g]};
    const bool strong = shared_epoch::strong(me) || access == Access::atomic;
    const u32 origin = warp.block->origin;
    const auto quick = [&](Epoch each) { return ordered_for_warp_in_cluster(warp, origin, each, me); };
    if (quick(earlier[0]) && quick(earlier[1]) && quick(earlier[2]) && quick(earlier[3]) && !strong) {
        (access == Access::read ? reader_ : writer_)[g] = me;
        return false;
    }
    for (int i = 0; i < (access == Access::read ? 2 : 4); ++i) {
        if (ordered_in_cluster(warp, earlier[i], me) || (shared_epoch::strong(earlier[i]) && strong)) continue;
        *race = {earlier[i], i < 2, g << shift_, 0};
        return true;
    }
    if (access == Access::read) {
        (strong || !ordered_in_cluster(warp, reader_[g], me) ? other_reader_ : reader_)[g] = me;
        return false;
    }
    if (!ordered_in_cluster(warp, writer_[g], me) || (strong && !shared_epoch::strong(writer_[g])))
        other_writer_[g] = writer_[g];
    writer_[g] = me;
    return false;
}

bool SharedMemory::record_in_cluster(
    const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access, bool strong, Race* race) {
    for (; mask; mask &= mask - 1) {
        const int l = __builtin_ctz(mask);
        const Epoch me = shared_epoch::make(warp.clock, warp.thread(l), strong, warp.here, warp.block->rank ^ rank_);
        const u64 last = (address[l] + bytes - 1) >> shift_;
        for (u64 g = address[l] >> shift_; g <= last; ++g) {
            if (!record_one(warp, me, access, g, race)) continue;
            race->lane = l;
            return true;
        }
    }
    return false;
}

bool SharedMemory::record(
    const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access, bool strong, Spread spread, Race* race) {
    if (ranks_ > 1) return record_in_cluster(warp, mask, address, bytes, access, strong, race);
    const int first = __builtin_ctz(mask);
    if (access == Access::read && (mask & (mask - 1))) {
        bool same = mask != ALL || spread == Spread::same;
        if (mask != ALL) each_lane(mask, [&](int l) { same &= address[l] == address[first]; });
        if (same && broadcast_read(warp, mask, address[first], bytes, strong)) return false;
    }
    for (; mask; mask &= mask - 1) {
        const int l = __builtin_ctz(mask);
        const Epoch me = shared_epoch::make(warp.clock, warp.index * LANES + u32(l), strong, warp.here);
        const u64 last = (address[l] + bytes - 1) >> shift_;
        for (u64 g = address[l] >> shift_; g <= last; ++g) {
            const bool hit = access == Access::read ? record_read(warp, me, g, race)
                                                    : record_write(warp, me, access == Access::atomic, g, race);
            if (!hit) continue;
            race->lane = l;
            return true;
        }
    }
    return false;
}

namespace {

// Calls f(place, word) for all words of the bytes of state at a place; there are 1, 2, or a multiple of 4.
template <class F>
inline __attribute__((always_inline)) void each_word(u8* at, u32 bytes, F f) {
    const auto visit = [&](auto word) {
        for (u32 i = 0; i < bytes; i += u32(sizeof word)) {
            std::memcpy(&word, at + i, sizeof word);
            f(at + i, word);
        }
    };
    if (bytes == 4)
        visit(u32());
    else if (bytes % 8 == 0)
        visit(u64());
    else if (bytes % 4 == 0)
        visit(u32());
    else
        visit(u8());
}

// The same bit in each byte of a word.
template <class T>
T in_each(T, u8 bit) {
    return T(T(~T(0)) / 0xff * bit);
}

}  // namespace

bool SharedMemory::all_readable(u64 address, u32 bytes) const {
    bool all = true;
    each_word(const_cast<u8*>(initialised_.data()) + address, bytes, [&](const u8*, auto word) {
        all &= (word & in_each(word, READABLE)) == in_each(word, READABLE);
    });
    return all;
}

int SharedMemory::uninitialised(Mask mask, const u64* address, u32 bytes, Spread spread) const {
    if (spread == Spread::same) mask = 1;
    if (spread == Spread::row && all_readable(address[0], bytes * LANES)) return -1;
    for (; mask; mask &= mask - 1) {
        const int l = __builtin_ctz(mask);
        if (!all_readable(address[l], bytes)) return l;
    }
    return -1;
}

bool SharedMemory::in_flight(Mask mask, const u64* address, u32 bytes) const {
    bool any = false;
    each_lane(mask, [&](int l) {
        each_word(const_cast<u8*>(initialised_.data()) + address[l], bytes, [&](const u8*, auto word) {
            any |= (word & in_each(word, IN_FLIGHT)) != 0;
        });
    });
    return any;
}

void SharedMemory::depart(Mask mask, const u64* address, u32 bytes) {
    each_lane(mask, [&](int l) {
        each_word(initialised_.data() + address[l], bytes, [](u8* place, auto word) {
            word = decltype(word)(in_each(word, IN_FLIGHT) | (word & in_each(word, UNREAD)));
            std::memcpy(place, &word, sizeof word);
        });
    });
}

void SharedMemory::arrive(Mask mask, const u64* address, u32 bytes) {
    each_lane(mask, [&](int l) { std::memset(initialised_.data() + address[l], READABLE | UNREAD, bytes); });
}

void SharedMemory::read_arrived(Mask mask, const u64* address, u32 bytes) {
    each_lane(mask, [&](int l) {
        each_word(initialised_.data() + address[l], bytes, [](u8* place, auto word) {
            word = decltype(word)(word & ~in_each(word, UNREAD));
            std::memcpy(place, &word, sizeof word);
        });
    });
}

void SharedMemory::initialise(Mask mask, const u64* address, u32 bytes) {
    each_lane(mask, [&](int l) { std::memset(initialised_.data() + address[l], READABLE, bytes); });
}

}  // namespace sim
