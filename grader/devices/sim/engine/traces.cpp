#include "traces.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "block.h"
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
Trace* zeroed(u64 count) {
    void* pages = mmap(nullptr, count * sizeof(Trace), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return static_cast<Trace*>(pages);
}

Trace peek(const Trace& place) {
    return __atomic_load_n(&place, __ATOMIC_RELAXED);
}

void put(Trace& place, Trace value) {
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

Traces::Traces(size_t allocations, u32 granule_shift, bool handing_over, bool together)
    : shift_(granule_shift), handing_over_(handing_over), together_(together), layers_(allocations) {}

Traces::~Traces() {
    for (auto& layer : layers_) delete layer.load();
}

Traces::Layer::~Layer() {
    if (line) munmap(line, lines * sizeof(Trace));
    for (Trace* traces : {writer, reader, other})
        if (traces) munmap(traces, granules * sizeof(Trace));
}

Traces::Layer& Traces::layer(const Allocation& allocation) {
    std::atomic<Layer*>& slot = layers_[(allocation.base - GLOBAL_ORIGIN) >> WINDOW_SHIFT];
    if (Layer* known = slot.load(std::memory_order_acquire)) return *known;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Layer* known = slot.load()) return *known;
    auto made = std::make_unique<Layer>();
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

Trace Traces::trace_of(const Warp& warp) const {
    const u64 clock = std::min(warp.clock - warp.block->origin, TRACE_CLOCKS);
    return u64(warp.block->handed.block) << BLOCK_SHIFT | clock << CLOCK_SHIFT |
           u64(warp.index * LANES) << THREAD_SHIFT | (warp.here & 0x3ffff) << PC_SHIFT;
}

bool Traces::ordered(Warp& warp, Trace earlier, Trace me) {
    if (earlier == 0) return true;
    Block& block = *warp.block;
    const u32 clock = trace_clock(earlier), thread = trace_thread(earlier);
    if (trace_block(earlier) != trace_block(me))
        return handing_over_ && handover.ordered(trace_block(earlier), thread / LANES, clock, block.handed);
    return thread == trace_thread(me) || clock == TRACE_CLOCKS || clock + block.origin <= warp.seen[thread / LANES] ||
           (handing_over_ && block.ordering.read(warp, thread / LANES, clock + block.origin));
}

// A whole warp writes whole lines that nobody has touched, or only these threads.
bool Traces::fill(Layer& layer, Trace me, u64 offset, u32 bytes) {
    constexpr Trace THREADS = (~Trace(0) << BLOCK_SHIFT) | Trace(1023) << THREAD_SHIFT | 7;
    const u64 count = u64(bytes) * LANES >> LINE_SHIFT, threads = (u64(1) << LINE_SHIFT) / bytes;
    if (count << LINE_SHIFT != u64(bytes) * LANES || offset & ((u64(1) << LINE_SHIFT) - 1)) return false;
    if (layer.read.load(std::memory_order_relaxed)) return false;
    Trace* line = layer.line + (offset >> LINE_SHIFT);
    me |= u32(__builtin_ctz(bytes));
    const u64 step = threads << THREAD_SHIFT;
    for (u64 i = 0; i < count; ++i)
        if (line[i] && (line[i] ^ (me + i * step)) & THREADS) return false;
    for (u64 i = 0; i < count; ++i) put(line[i], me + i * step);
    return true;
}

// Gives each granule of a line its own trace.
void Traces::part(Layer& layer, u64 line) {
    const Trace whole = peek(layer.line[line]);
    if (whole == PARTED) return;
    if (whole) {
        Trace* writer = layer.writer + (line << (LINE_SHIFT - shift_));
        for (u64 i = 0; i < u64(1) << (LINE_SHIFT - shift_); ++i)
            put(writer[i], (whole & ~Trace(7)) + ((i << shift_ >> trace_width(whole)) << THREAD_SHIFT));
    }
    put(layer.line[line], PARTED);
}

// Whether remembering this reader, or atomic, would tell nothing new: a later
// writer differs from one of those known anyway.
bool Traces::known(const Layer& layer, u64 granule, Trace me) const {
    if (handing_over_ || peek(layer.line[line_of(granule)]) != PARTED || peek(layer.writer[granule])) return false;
    const Trace first = peek(layer.reader[granule]), second = peek(layer.other[granule]);
    if (!first || !second) return false;
    if (trace_block(first) != trace_block(second)) return true;
    const auto now = [&](Trace t) { return (t ^ me) >> CLOCK_SHIFT == 0; };  // same block and clock
    return now(first) && now(second) && trace_thread(first) != trace_thread(second);
}

bool Traces::note_write(Warp& warp, Layer& layer, u64 g, Trace me, Clash* clash) {
    const bool read = layer.read.load(std::memory_order_relaxed);
    const Trace earlier[] = {peek(layer.writer[g]), read ? peek(layer.reader[g]) : 0, read ? peek(layer.other[g]) : 0};
    for (int i = 0; i < 3; ++i) {
        if (ordered(warp, earlier[i], me)) continue;
        clash->earlier = earlier[i];
        return true;
    }
    put(layer.writer[g], me);
    return false;
}

bool Traces::note_other(Warp& warp, Layer& layer, u64 g, Trace me, Clash* clash) {
    const Trace writer = peek(layer.writer[g]);
    if (!ordered(warp, writer, me)) {
        clash->earlier = writer;
        return true;
    }
    layer.read.store(true, std::memory_order_relaxed);
    const Trace first = peek(layer.reader[g]), second = peek(layer.other[g]);
    const bool foreign = second && trace_block(second) != trace_block(me) && trace_block(first) == trace_block(me);
    put(foreign || ordered(warp, first, me) ? layer.reader[g] : layer.other[g], me);
    return false;
}

bool Traces::note(
    Warp& warp, const Allocation& allocation, Mask mask, const u64* a, u32 bytes, Access access, bool strong,
    Clash* clash) {
    if (u64(bytes) >> shift_ == 0) return false;  // narrower than the decoder foresaw
    Layer& layer = this->layer(allocation);
    const bool writes = access == Access::write && !strong;
    Guard guard(together_);
    const Trace base = trace_of(warp);
    const u64 start = a[0] - layer.base, end = start + u64(LANES) * bytes - 1;
    if (writes && mask == ALL && lock_of(start) == lock_of(end) && consecutive(a, bytes)) {
        guard.move(lock_of(start));
        if (fill(layer, base, start, bytes)) return false;
    }
    if (!writes && (mask & (mask - 1)) && all_alike(a, mask)) {  // two lanes stand for all
        const Mask rest = mask & (mask - 1);
        mask = (mask & ~rest) | (rest & ~(rest - 1));
    }
    for (; mask; mask &= mask - 1) {
        const int l = __builtin_ctz(mask);
        const Trace me = base + (u64(l) << THREAD_SHIFT);
        const u64 first = (a[l] - layer.base) >> shift_, last = (a[l] - layer.base + bytes - 1) >> shift_;
        for (u64 g = first; g <= last; ++g) {
            if (!writes && known(layer, g, me)) continue;
            guard.move(lock_of(g << shift_));
            part(layer, line_of(g));
            const bool hit = writes ? note_write(warp, layer, g, me, clash) : note_other(warp, layer, g, me, clash);
            if (!hit) continue;
            clash->address = layer.base + (g << shift_);
            clash->lane = l;
            return true;
        }
    }
    return false;
}

// ---- what to say

namespace {

struct Side {
    Finding at;      // with nothing said yet
    int weight = 0;  // reads, then plain writes, then atomics
    std::string what;
};

// PTX names what reads and writes at once atom and red.
Side side_of(const Warp& warp, Trace trace) {
    const Launch& launch = *warp.launch;
    Side side;
    side.at = warp.block->at(warp, trace_pc(trace), 0, "race", "");
    const u32 b = trace_block(trace), t = trace_thread(trace);
    const u32 *grid = launch.grid, *n = launch.block;
    const u32 block[] = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
    const u32 thread[] = {t % n[0], t / n[0] % n[1], t / n[0] / n[1]};
    std::copy(block, block + 3, side.at.block);
    std::copy(thread, thread + 3, side.at.thread);
    const std::string& form = warp.code[trace_pc(trace)].entry->form;
    const bool updates = form.compare(0, 4, "atom") == 0 || form.compare(0, 3, "red") == 0;
    const bool reads = form.compare(0, 2, "ld") == 0;
    side.weight = reads ? 2 : updates ? 0 : 1;
    const char* verb = reads ? " reads it" : updates ? " updates it atomically" : " writes it";
    side.what = "block " + triple_name(block[0], block[1], block[2]) + " " +
                thread_name(thread[0], thread[1], thread[2]) + verb + " on line " + std::to_string(side.at.line);
    return side;
}

}  // namespace

Finding race_between(Warp& warp, const Clash& clash, const std::string& begin) {
    const Trace me = warp.launch->traces->trace_of(warp) + (u64(clash.lane) << THREAD_SHIFT);
    Side mine = side_of(warp, me), other = side_of(warp, clash.earlier);
    const bool same_block = trace_block(me) == trace_block(clash.earlier);
    const bool mine_last = mine.weight != other.weight ? mine.weight > other.weight : mine.at.line >= other.at.line;
    Finding finding = mine_last ? mine.at : other.at;
    finding.message = begin + ": " + (mine_last ? other.what + ", " + mine.what : mine.what + ", " + other.what) +
                      (same_block                    ? ", with no barrier between"
                       : warp.block->program->fences ? ", with no fence, atomic and fence between"
                                                     : ", with no atomics between");
    return finding;
}

}  // namespace sim
