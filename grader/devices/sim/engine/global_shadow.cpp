#include "global_shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "cluster.h"
#include "operation.h"

namespace sim {

namespace {

// Holds the lock of one stretch of memory at a time.
class Guard {
 public:
    explicit Guard(bool needed) : needed_(needed) {}
    ~Guard() { move(nullptr); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    void move(std::atomic_flag* to) {
        if (!needed_ || to == held_) return;
        if (held_) held_->clear(std::memory_order_release);
        held_ = to;
        while (held_ && held_->test_and_set(std::memory_order_acquire)) {
        }
    }

 private:
    const bool needed_;
    std::atomic_flag* held_ = nullptr;
};

// Straight from the system: pages that nobody touches cost nothing.
Epoch* zeroed(u64 count) {
    void* pages = mmap(nullptr, count * sizeof(Epoch), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return static_cast<Epoch*>(pages);
}

Epoch peek(const Epoch& place) {
    return __atomic_load_n(&place, __ATOMIC_RELAXED);
}

void put(Epoch& place, Epoch value) {
    __atomic_store_n(&place, value, __ATOMIC_RELAXED);
}

bool consecutive(const u64* a, u32 bytes) {
    u64 apart = 0;
    for (int l = 0; l < LANES; ++l) apart |= a[l] - a[0] - u64(l) * bytes;
    return apart == 0;
}

bool all_alike(const u64* a, Mask mask) {
    u64 apart = 0;
    const u64 first = a[__builtin_ctz(mask)];
    each_lane(mask, [&](int l) { apart |= a[l] ^ first; });
    return apart == 0;
}

}  // namespace

GlobalShadow::GlobalShadow(size_t allocations, u64 blocks, u32 granule_shift, bool fences, bool together)
    : epochs(blocks), shift_(granule_shift), fences_(fences), together_(together), shadows_(allocations) {}

GlobalShadow::~GlobalShadow() {
    for (auto& shadow : shadows_) delete shadow.load();
}

GlobalShadow::AllocationShadow::~AllocationShadow() {
    if (line) munmap(line, lines * sizeof(Epoch));
    for (Epoch* epochs : {writer, reader, other})
        if (epochs) munmap(epochs, granules * sizeof(Epoch));
}

GlobalShadow::AllocationShadow& GlobalShadow::shadow_of(const Allocation& allocation) {
    std::atomic<AllocationShadow*>& slot = shadows_[(allocation.base - GLOBAL_ORIGIN) >> WINDOW_SHIFT];
    if (AllocationShadow* known = slot.load(std::memory_order_acquire)) return *known;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (AllocationShadow* known = slot.load()) return *known;
    auto made = std::make_unique<AllocationShadow>();
    made->base = allocation.base >> shift_ << shift_;
    made->lines = ((allocation.base - made->base + allocation.bytes) >> LINE_SHIFT) + 1;
    made->granules = made->lines << (LINE_SHIFT - shift_);
    made->line = zeroed(made->lines);
    made->writer = zeroed(made->granules);
    made->reader = zeroed(made->granules);
    made->other = zeroed(made->granules);
    slot.store(made.get(), std::memory_order_release);
    return *made.release();
}

std::vector<bool> GlobalShadow::written() const {
    std::vector<bool> found;
    for (auto& slot : shadows_) {
        const AllocationShadow* shadow = slot.load();
        found.push_back(shadow && shadow->written);
    }
    return found;
}

Epoch GlobalShadow::epoch_of(const Warp& warp) const {
    const Block& block = *warp.block;
    return epochs.make(block.releases.block, warp.clock - block.origin, warp.index * LANES, warp.here);
}

bool GlobalShadow::ordered(Warp& warp, Epoch earlier, Epoch me) {
    if (earlier == 0) return true;
    Block& block = *warp.block;
    const u32 clock = epochs.clock(earlier), thread = global_epoch::thread(earlier), at = clock + block.origin;
    const int lane = int(global_epoch::thread(me) % LANES);
    if (epochs.block(earlier) != epochs.block(me) && block.cluster->blocks.size() > 1)
        for (auto& other : block.cluster->blocks)
            if (other->releases.block == epochs.block(earlier) &&
                warp.knows_component(lane, warp_of_rank(other->rank, thread / LANES), thread % LANES, at))
                return true;
    if (epochs.block(earlier) != epochs.block(me))
        return fences_ && release_acquire.ordered(epochs.block(earlier), thread, clock, warp, lane, block.releases);
    return thread == global_epoch::thread(me) || clock == epochs.last_clock() || warp.knows(lane, thread, at) ||
           (fences_ && block.ordering.has_read(warp, thread, at));
}

// A whole warp writes whole lines that nobody has touched, or only these threads.
bool GlobalShadow::fill(AllocationShadow& shadow, Epoch me, u64 offset, u32 bytes) {
    const Epoch threads_mask = (~Epoch(0) << epochs.block_shift) | Epoch(1023) << global_epoch::THREAD_SHIFT | 7;
    const u64 count = u64(bytes) * LANES >> LINE_SHIFT, threads = (u64(1) << LINE_SHIFT) / bytes;
    if (count << LINE_SHIFT != u64(bytes) * LANES || offset & ((u64(1) << LINE_SHIFT) - 1)) return false;
    if (shadow.read.load(std::memory_order_relaxed)) return false;
    Epoch* line = shadow.line + (offset >> LINE_SHIFT);
    me |= u32(__builtin_ctz(bytes));
    const u64 step = threads << global_epoch::THREAD_SHIFT;
    for (u64 i = 0; i < count; ++i)
        if (line[i] && (line[i] ^ (me + i * step)) & threads_mask) return false;
    for (u64 i = 0; i < count; ++i) put(line[i], me + i * step);
    return true;
}

// Gives each granule of a line its own epoch.
void GlobalShadow::split(AllocationShadow& shadow, u64 line) {
    const Epoch whole = peek(shadow.line[line]);
    if (whole == SPLIT) return;
    if (whole) {
        Epoch* writer = shadow.writer + (line << (LINE_SHIFT - shift_));
        const u32 width = global_epoch::width(whole);
        for (u64 i = 0; i < u64(1) << (LINE_SHIFT - shift_); ++i)
            put(writer[i], (whole & ~Epoch(7)) + ((i << shift_ >> width) << global_epoch::THREAD_SHIFT));
    }
    put(shadow.line[line], SPLIT);
}

Epoch GlobalShadow::writer_of(const AllocationShadow& shadow, u64 granule) const {
    const u64 line = line_of(granule);
    const Epoch whole = peek(shadow.line[line]);
    if (whole == SPLIT) return peek(shadow.writer[granule]);
    if (!whole) return 0;
    const u64 first = (granule - (line << (LINE_SHIFT - shift_))) << shift_ >> global_epoch::width(whole);
    return (whole & ~Epoch(7)) + (first << global_epoch::THREAD_SHIFT);
}

std::vector<Epoch> GlobalShadow::writers(const Allocation& allocation, u64 address, u32 bytes) {
    const AllocationShadow& shadow = shadow_of(allocation);
    std::vector<Epoch> found;
    const u64 last = (address - shadow.base + bytes - 1) >> shift_;
    for (u64 g = (address - shadow.base) >> shift_; g <= last; ++g) found.push_back(writer_of(shadow, g));
    return found;
}

// Whether remembering this reader, or atomic, would tell nothing new: a later
// writer differs from one of those known anyway.
bool GlobalShadow::redundant(const AllocationShadow& shadow, u64 granule, Epoch me) const {
    if (fences_ || peek(shadow.line[line_of(granule)]) != SPLIT || peek(shadow.writer[granule])) return false;
    const Epoch first = peek(shadow.reader[granule]), second = peek(shadow.other[granule]);
    if (!first || !second) return false;
    if (epochs.block(first) != epochs.block(second)) return true;
    const auto now = [&](Epoch t) { return (t ^ me) >> global_epoch::CLOCK_SHIFT == 0; };  // same block and clock
    return now(first) && now(second) && global_epoch::thread(first) != global_epoch::thread(second);
}

// Otherwise it is an atomic or a strong store, of those that are remembered beside plain writers.
static bool is_load(const Warp& warp, Epoch e) {
    return warp.code[global_epoch::pc(e)].entry->form.compare(0, 2, "ld") == 0;
}

bool GlobalShadow::record_write(Warp& warp, AllocationShadow& shadow, u64 g, Epoch me, Race* race) {
    const bool read = shadow.read.load(std::memory_order_relaxed);
    const Epoch earlier[] = {
        peek(shadow.writer[g]), read ? peek(shadow.reader[g]) : 0, read ? peek(shadow.other[g]) : 0};
    for (int i = 0; i < 3; ++i) {
        if (ordered(warp, earlier[i], me)) continue;
        *race = {earlier[i], i == 0, 0, 0};
        return true;
    }
    put(shadow.writer[g], me);
    return false;
}

bool GlobalShadow::record_other(Warp& warp, AllocationShadow& shadow, u64 g, Epoch me, Access access, Race* race) {
    const Epoch writer = peek(shadow.writer[g]);
    if (!ordered(warp, writer, me)) {
        *race = {writer, true, 0, 0};
        return true;
    }
    shadow.read.store(true, std::memory_order_relaxed);
    Epoch first = peek(shadow.reader[g]), second = peek(shadow.other[g]);
    const u32 block = epochs.block(me);
    // An atomic has seen what atomics of other blocks left there: what comes after it comes after them, too (PTX ISA
    // 8.9.5, "Causality Order", by observation). So the block that counts last may set the counter back plainly.
    const auto seen = [&](Epoch e) { return e && epochs.block(e) != block && !is_load(warp, e); };
    if (access == Access::atomic) {
        if (seen(second)) put(shadow.other[g], second = 0);
        if (seen(first)) put(shadow.reader[g], first = 0);
    }
    const bool foreign = second && epochs.block(second) != block && epochs.block(first) == block;
    put(foreign || ordered(warp, first, me) ? shadow.reader[g] : shadow.other[g], me);
    return false;
}

bool GlobalShadow::record(
    Warp& warp, const Allocation& allocation, Mask mask, const u64* a, u32 bytes, Access access, bool strong,
    Race* race) {
    if (u64(bytes) >> shift_ == 0) return false;  // narrower than the decoder foresaw
    AllocationShadow& shadow = shadow_of(allocation);
    const bool writes = access == Access::write && !strong;
    if (access != Access::read && !shadow.written.load(std::memory_order_relaxed))
        shadow.written.store(true, std::memory_order_relaxed);
    Guard guard(together_);
    const Epoch base = epoch_of(warp);
    const u64 start = a[0] - shadow.base, end = start + u64(LANES) * bytes - 1;
    if (writes && mask == ALL && lock_of(start) == lock_of(end) && consecutive(a, bytes)) {
        guard.move(lock_of(start));
        if (fill(shadow, base, start, bytes)) return false;
    }
    if (!writes && (mask & (mask - 1)) && all_alike(a, mask))  // the first and the last stand for all
        mask = (mask & (0 - mask)) | Mask(1) << (LANES - 1 - __builtin_clz(mask));
    for (; mask; mask &= mask - 1) {
        const int l = __builtin_ctz(mask);
        const Epoch me = base + (u64(l) << global_epoch::THREAD_SHIFT);
        const u64 first = (a[l] - shadow.base) >> shift_, last = (a[l] - shadow.base + bytes - 1) >> shift_;
        for (u64 g = first; g <= last; ++g) {
            if (!writes && redundant(shadow, g, me)) continue;
            guard.move(lock_of(g << shift_));
            split(shadow, line_of(g));
            const bool hit =
                writes ? record_write(warp, shadow, g, me, race) : record_other(warp, shadow, g, me, access, race);
            if (!hit) continue;
            race->address = shadow.base + (g << shift_);
            race->lane = l;
            return true;
        }
    }
    return false;
}

// ---- what to say

namespace {

struct Weighed {
    Finding at;      // with nothing said yet
    int weight = 0;  // reads, then plain writes, then atomics
    std::string what, does;
};

// PTX names what reads and writes at once atom and red.
Weighed side_of(const Warp& warp, Epoch epoch) {
    const Launch& launch = *warp.launch;
    Weighed side;
    side.at = warp.block->at(warp, global_epoch::pc(epoch), 0, FindingKind::race, "");
    const u32 b = launch.global_shadow->epochs.block(epoch), t = global_epoch::thread(epoch);
    const u32 *grid = launch.grid, *n = launch.block;
    const u32 block[] = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
    const u32 thread[] = {t % n[0], t / n[0] % n[1], t / n[0] / n[1]};
    std::copy(block, block + 3, side.at.block);
    std::copy(thread, thread + 3, side.at.thread);
    const std::string& form = warp.code[global_epoch::pc(epoch)].entry->form;
    const bool updates = form.compare(0, 4, "atom") == 0 || form.compare(0, 3, "red") == 0;
    const bool reads = is_load(warp, epoch);
    side.weight = reads ? 2 : updates ? 0 : 1;
    side.does = reads ? "reads" : updates ? "updates" : "writes";
    const char* verb = reads ? " reads it" : updates ? " updates it atomically" : " writes it";
    side.what = "block " + triple_name(block[0], block[1], block[2]) + " " +
                thread_name(thread[0], thread[1], thread[2]) + verb + " on " +
                warp.block->line_words(global_epoch::pc(epoch));
    return side;
}

}  // namespace

Finding race_of_copy(const Warp& warp, u32 copy_pc, int copy_lane, Epoch writer, const std::string& begin) {
    const Weighed side = side_of(warp, writer);
    Finding finding = side.at;
    finding.message = begin + ": the asynchronous copy that " + warp.block->thread(warp.thread(copy_lane)) +
                      " issues on " + warp.block->line_words(copy_pc) + " reads it, " + side.what +
                      " before the copy has been waited for";
    return finding;
}

Finding race_between(Warp& warp, const Race& race, const std::string& begin) {
    const Epoch me = warp.launch->global_shadow->epoch_of(warp) + (u64(race.lane) << global_epoch::THREAD_SHIFT);
    Weighed mine = side_of(warp, me), other = side_of(warp, race.earlier);
    const global_epoch::Layout& epochs = warp.launch->global_shadow->epochs;
    const bool same_block = epochs.block(me) == epochs.block(race.earlier);
    const bool mine_last = mine.weight != other.weight ? mine.weight > other.weight : mine.at.line >= other.at.line;
    Finding finding = mine_last ? mine.at : other.at;
    finding.message = begin + ": " + (mine_last ? other.what + ", " + mine.what : mine.what + ", " + other.what) +
                      (same_block                    ? ", with no barrier between"
                       : warp.block->program->fences ? ", with no fence, atomic and fence between"
                                                     : ", with no atomics between");
    finding.sides = {Side{other.at, other.does}, Side{mine.at, mine.does}};
    return finding;
}

}  // namespace sim
