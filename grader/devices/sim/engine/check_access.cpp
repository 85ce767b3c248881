#include "check_access.h"

#include "cluster.h"
#include "decode.h"
#include "operation.h"
#include "global_shadow.h"
#include "rounds.h"
#include "watch.h"

namespace sim {

namespace {

inline __attribute__((always_inline)) void addresses(const Warp& warp, const Instruction& in, u64* a) {
    if (in.address < 0) {
        for (int l = 0; l < LANES; ++l) a[l] = u64(in.immediate);
    } else if (in.wide_address) {
        const u64* base = warp.row<const u64>(in.address);
        for (int l = 0; l < LANES; ++l) a[l] = base[l] + u64(in.immediate);
    } else {
        const u32* base = warp.row<const u32>(in.address);
        for (int l = 0; l < LANES; ++l) a[l] = u32(base[l] + u32(in.immediate));
    }
}

const char* verb(Access access) {
    return access == Access::read ? "reads " : access == Access::write ? "writes " : "updates ";
}

[[noreturn]] void stop(Warp& warp, int lane, FindingKind kind, const std::string& message) {
    Block& block = *warp.block;
    block.stop_at(block.at(warp, warp.here, lane, kind, message));
}

Finding in_allocation(
    Warp& warp, int lane, FindingKind kind, const Allocation& allocation, s64 index, const std::string& message) {
    Finding finding = warp.block->at(warp, warp.here, lane, kind, message);
    finding.buffer = allocation.name;
    finding.index = index;
    finding.has_index = true;
    return finding;
}

// Where a kernel fences, flags and locks order what stands around them.
void record_strong(Warp& warp, const Instruction& in, Mask mask, Access access, u8* const* at) {
    if (in.strong && warp.block->program->fences) warp.block->record_strong_access(warp, in, mask, access, at);
}

std::string hexadecimal(u64 value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

bool misaligned(u64 address, u32 bytes) {
    return address & (bytes - 1);
}

std::string not_aligned(u64 address, u32 bytes) {
    return ": the address is " + std::to_string(address & (bytes - 1)) + " bytes past a multiple of " +
           std::to_string(bytes);
}

Spread spread_of(const u64* a, Mask mask, u32 bytes) {
    const u64 step = a[1] - a[0];
    if (mask != ALL || (step != 0 && step != bytes)) return Spread::any;
    u64 apart = 0, expected = a[0];
    for (int l = 0; l < LANES; ++l, expected += step) apart |= a[l] ^ expected;
    return apart != 0 ? Spread::any : step ? Spread::row : Spread::same;
}

// Whose host addresses a handler needs: of a warp with one address or a row of them the first lane's is enough.
enum class Lanes : u8 { all, enough };

bool wanted(Lanes lanes, Access access, const Instruction& in, Spread spread) {
    return lanes == Lanes::all || access != Access::read || in.strong || spread == Spread::any;
}

void place(u8* origin, const u64* a, Mask mask, bool every, u8** at) {
    if (!every)
        at[0] = origin + a[0];
    else if (mask == ALL)
        for (int l = 0; l < LANES; ++l) at[l] = origin + a[l];
    else
        each_lane(mask, [&](int l) { at[l] = origin + a[l]; });
}

// Whether all accesses lie in one range of addresses and are aligned: the quick check, before one that says what is
// wrong.
__attribute__((noinline)) bool each_within(u64 base, u64 limit, const u64* a, Mask mask, u32 bytes) {
    u64 bad = 0;
    if (mask == ALL) {
        for (int l = 0; l < LANES; ++l) bad |= u64(a[l] - base > limit) | (a[l] & (bytes - 1));
    } else {
        each_lane(mask, [&](int l) { bad |= u64(a[l] - base > limit) | (a[l] & (bytes - 1)); });
    }
    return bad == 0;
}
inline bool all_within(u64 base, u64 size, const u64* a, Mask mask, u32 bytes, Spread spread) {
    if (size < bytes) return false;
    const u64 limit = size - bytes;
    if (spread == Spread::any) return each_within(base, limit, a, mask, bytes);
    return a[0] - base <= limit && a[LANES - 1] - base <= limit && !misaligned(a[0], bytes);
}

// ---- global memory

bool all_set(const u8* shadow, u32 bytes) {
    if (bytes == 4) {
        u32 word;
        std::memcpy(&word, shadow, 4);
        return word == 0x01010101;
    }
    u8 all = 1;
    for (u32 i = 0; i < bytes; ++i) all &= shadow[i];
    return all;
}

// Of allocations without a known type, elements are as wide as the access, or
// four bytes of a vector.
u32 item_bytes(const Allocation& allocation, u32 access_bytes) {
    return allocation.itemsize ? allocation.itemsize : access_bytes == 16 ? 4 : access_bytes;
}

Finding bad_global(Warp& warp, int lane, u64 address, u32 bytes, Access access, const Allocation* allocation) {
    const auto at = [&](FindingKind kind, const std::string& message) {
        return warp.block->at(warp, warp.here, lane, kind, message);
    };
    if (!allocation)
        return at(
            FindingKind::out_of_bounds, std::string(verb(access)) + std::to_string(bytes) + " bytes at address " +
                                            hexadecimal(address) +
                                            (address < 4096 ? ", a null pointer" : ", where no buffer is"));
    const s64 offset = s64(address - allocation->base);
    if (allocation->freed)
        return at(FindingKind::out_of_bounds, std::string(verb(access)) + allocation->name + " after it was freed");
    const bool within = offset >= 0 && u64(offset) + bytes <= allocation->bytes;
    const Place place =
        within ? inside(allocation->name, offset, item_bytes(*allocation, bytes), bytes)
               : outside(allocation->name, offset, allocation->bytes, item_bytes(*allocation, bytes), bytes);
    if (!within)
        return in_allocation(
            warp, lane, FindingKind::out_of_bounds, *allocation, place.index, verb(access) + place.text);
    if (misaligned(address, bytes))
        return in_allocation(
            warp, lane, FindingKind::misaligned, *allocation, place.index,
            verb(access) + std::to_string(bytes) + " bytes at " + allocation->name + "[" + std::to_string(place.index) +
                "]" + not_aligned(address, bytes));
    const bool input = allocation->kind == AllocationKind::input;
    return in_allocation(
        warp, lane, input ? FindingKind::modified_input : FindingKind::out_of_bounds, *allocation, place.index,
        verb(access) + place.text + ", but " + allocation->name + (input ? " is an input" : " is constant"));
}

// The launch goes on: a late write shows it to be a race.
void read_too_early(Warp& warp, int lane, u64 address, u32 bytes, Access access, const Allocation& allocation) {
    if (warp.launch->suspects) return;
    const Place place = inside(allocation.name, s64(address - allocation.base), item_bytes(allocation, bytes), bytes);
    warp.launch->suspect(in_allocation(
        warp, lane, FindingKind::uninitialised, allocation, place.index,
        verb(access) + place.text + ", which no thread has written"));
}

// Whether two lanes write the place by this very instruction, which is on `earlier` for the other one.
bool is_of_two_lanes(
    const Warp& warp, const u64* a, Mask mask, u32 bytes, Access access, const Race& race, u32 thread, u32 pc,
    u64 granule) {
    const u32 other = thread % LANES;
    return access == Access::write && race.earlier_writes && thread / LANES == warp.index && pc == warp.here &&
           other != u32(race.lane) && (mask >> other & 1) && a[other] < race.address + granule &&
           race.address < a[other] + bytes;
}

std::string by_two_lanes(const Block& block, const Warp& warp, u32 other, int lane) {
    return block.thread(other) + " and " + block.thread(warp.thread(lane)) + " write it by one instruction, on " +
           block.line_words(warp.here) + ": no barrier can order the two";
}

[[noreturn]] void stop_global_race(
    Warp& warp, const Allocation& allocation, const u64* a, Mask mask, u32 bytes, Access access, const Race& race) {
    const u32 item = item_bytes(allocation, bytes);
    const Place place = inside(allocation.name, s64(race.address - allocation.base), item, std::min(item, bytes));
    Finding finding = race_between(warp, race, "race on " + place.text);
    const GlobalShadow& shadow = *warp.launch->global_shadow;
    const u32 thread = global_epoch::thread(race.earlier), pc = global_epoch::pc(race.earlier);
    if (shadow.epochs.block(race.earlier) == shadow.epochs.block(shadow.epoch_of(warp)) &&
        is_of_two_lanes(warp, a, mask, bytes, access, race, thread, pc, shadow.granule_bytes()))
        finding.message = "race on " + place.text + ": " + by_two_lanes(*warp.block, warp, thread, race.lane);
    finding.place = place.text;
    finding.buffer = allocation.name;
    finding.index = place.index;
    finding.has_index = true;
    warp.block->stop_at(std::move(finding));
}

// Records who touched what, for races and watched elements.
__attribute__((noinline)) void record_access(
    Warp& warp, const Instruction& in, const Allocation& allocation, const u64* a, Mask mask, u32 bytes,
    Access access) {
    const Launch& launch = *warp.launch;
    Race race;
    if (launch.watch && access != Access::read) launch.watch->note(warp, mask, a, bytes);
    if (launch.global_shadow &&
        launch.global_shadow->record(warp, allocation, mask, a, bytes, access, in.strong, &race))
        stop_global_race(warp, allocation, a, mask, bytes, access, race);
}

// The compiler may have moved this load above its check: what it gives is a finding where it is used.
u8* unusable_or_stop(Warp& warp, const Instruction& in, int lane, Finding finding) {
    static u8 nothing[64] = {};
    if (in.entry->lower != lower_load || !in.option) warp.block->stop_at(std::move(finding));
    const u32 cause = warp.poisons.add_cause(std::move(finding), Poisons::Place::cause);
    for (int i = 0; i < in.entry->operation.signature.count; ++i)
        warp.poisons.taint(in.operand[i], Mask(1) << lane, cause);
    return nothing;
}

// One lane by itself: the lanes are in different buffers, or one of them is
// wrong.
u8* global_lane(Warp& warp, const Instruction& in, int lane, const u64* a, u32 bytes, Access access) {
    const u64 address = a[lane];
    Allocation* allocation = warp.launch->memory->find(address);
    const u64 offset = allocation ? address - allocation->base : 0;
    if (!allocation || allocation->freed || offset > allocation->bytes || allocation->bytes - offset < bytes ||
        misaligned(address, bytes) || (access != Access::read && !allocation->writable))
        return unusable_or_stop(warp, in, lane, bad_global(warp, lane, address, bytes, access, allocation));
    if (allocation->writable) record_access(warp, in, *allocation, a, Mask(1) << lane, bytes, access);
    if (allocation->shadow) {
        u8* shadow = allocation->shadow + offset;
        if (access != Access::write && !all_set(shadow, bytes))
            read_too_early(warp, lane, address, bytes, access, *allocation);
        else
            std::memset(shadow, 1, bytes);
    }
    return allocation->data + offset;
}

// A dependent launch may begin before the one before it ends.
void check_awaited(Warp& warp, const u64* a, Mask mask, Access access) {
    const std::vector<bool>& before = *warp.launch->before;
    each_lane(mask, [&](int l) {
        const u64 window = (a[l] - GLOBAL_ORIGIN) >> WINDOW_SHIFT;
        const Allocation* allocation = warp.launch->memory->find(a[l]);
        if (window >= before.size() || !before[window] || !allocation) return;
        const u32 item = item_bytes(*allocation, 4);
        const Place place = inside(allocation->name, s64(a[l] - allocation->base), item, item);
        Finding finding = in_allocation(
            warp, l, FindingKind::race, *allocation, place.index,
            verb(access) + place.text +
                ", which the launch before writes and may still be doing: wait for it first "
                "(cudaGridDependencySynchronize)");
        warp.block->stop_at(std::move(finding));
    });
}

// Where something may be under way beside the warps: the launch before this one, or what bulk copies have yet to write.
__attribute__((noinline)) void check_overlap(Warp& warp, const u64* a, Mask mask, Access access, u32 bytes) {
    const Mask early = mask & ~warp.awaited;
    if (warp.launch->before && early) check_awaited(warp, a, early, access);
    const Copies& copies = warp.block->copies;
    if (copies.may_read()) copies.check_writers(warp, mask, a, bytes, access);
}

// What was never written, and what is from now on.
__attribute__((noinline)) void note_initialised(
    Warp& warp, const Allocation& allocation, const u64* a, Mask mask, u32 bytes, Access access, Spread spread) {
    u8* shadow = allocation.shadow - allocation.base;
    if (access == Access::write && spread == Spread::row)
        std::memset(shadow + a[0], 1, LANES * bytes);
    else if (access == Access::write)
        each_lane(mask, [&](int l) { std::memset(shadow + a[l], 1, bytes); });
    else
        each_lane(mask, [&](int l) {
            if (!all_set(shadow + a[l], bytes)) read_too_early(warp, l, a[l], bytes, access, allocation);
        });
}

__attribute__((noinline)) Spread
access_lanes(Warp& warp, const Instruction& in, const u64* a, Mask mask, u32 bytes, Access access, u8** at) {
    each_lane(mask, [&](int l) { at[l] = global_lane(warp, in, l, a, bytes, access); });
    return Spread::any;
}

inline Spread access_global(
    Warp& warp, const Instruction& in, const u64* a, Mask mask, u32 bytes, Access access, Lanes lanes, u8** at) {
    if (warp.overlaps) check_overlap(warp, a, mask, access, bytes);
    Allocation* allocation = warp.launch->memory->find(a[__builtin_ctz(mask)]);
    const Spread spread = spread_of(a, mask, bytes);
    const bool simple = allocation && !allocation->freed && (access == Access::read || allocation->writable) &&
                        all_within(allocation->base, allocation->bytes, a, mask, bytes, spread);
    if (!simple) return access_lanes(warp, in, a, mask, bytes, access, at);
    place(allocation->data - allocation->base, a, mask, wanted(lanes, access, in, spread), at);
    if (allocation->writable) record_access(warp, in, *allocation, a, mask, bytes, access);
    if (allocation->shadow) note_initialised(warp, *allocation, a, mask, bytes, access, spread);
    return spread;
}

// ---- shared memory

std::string other_access(const Block& owner, const Block& other, const Race& race) {
    return (&owner != &other ? "block rank " + std::to_string(other.rank) + " " : "") +
           other.thread(shared_epoch::thread(race.earlier)) + (race.earlier_writes ? " writes" : " reads") + " it on " +
           other.line_words(shared_epoch::pc(race.earlier));
}

std::vector<Side> sides_of(const Warp& warp, const Block& other, Access access, const Race& race) {
    const u32 thread = shared_epoch::thread(race.earlier);
    const Site first = other.site(other.warps[thread / LANES], shared_epoch::pc(race.earlier), int(thread % LANES));
    return {
        Side{first, race.earlier_writes ? "writes" : "reads"},
        Side{warp.block->site(warp, warp.here, race.lane), access == Access::read ? "reads" : "writes"}};
}

// The finding stands at the read where there is one, whichever came first, so
// that it does not depend on the schedule.
[[noreturn]] void stop_shared_race(
    Warp& warp, Block& owner, const u64* a, Mask mask, u32 bytes, Access access, const Race& race) {
    Block& block = *warp.block;
    Block& other_block = *block.cluster->blocks[shared_epoch::rank(race.earlier) ^ owner.rank];
    const u32 grain = bytes < 4 ? bytes : 4;
    const std::string name = block.shared_place(race.address, grain, false).text;
    const std::string mine = block.thread(warp.thread(race.lane)) + (access == Access::read ? " reads" : " writes") +
                             " it on " + block.line_words(warp.here);
    const bool other_first = race.earlier_writes;
    const Instruction& earlier = block.program->code[shared_epoch::pc(race.earlier)];
    const bool one_reads = race.earlier_writes == (access == Access::read);
    const bool in_order = &other_block == &block && &owner == &block && one_reads && !earlier.entry->is_bulk() &&
                          !block.program->code[warp.here].entry->is_bulk();
    const u32 write = race.earlier_writes ? shared_epoch::pc(race.earlier) : warp.here;
    const u32 read = race.earlier_writes ? warp.here : shared_epoch::pc(race.earlier);
    const u32 other_thread = shared_epoch::thread(race.earlier), other_pc = shared_epoch::pc(race.earlier);
    const bool two_lanes =
        &other_block == &block &&
        is_of_two_lanes(warp, a, mask, bytes, access, race, other_thread, other_pc, owner.shared.granule_bytes());
    const std::string message = "race on " + name + " in shared memory: " +
                                (two_lanes     ? by_two_lanes(block, warp, other_thread, race.lane)
                                 : other_first ? other_access(block, other_block, race) + ", " + mine
                                               : mine + ", " + other_access(block, other_block, race)) +
                                (two_lanes  ? ""
                                 : in_order ? missing_barrier(block, write, read)
                                            : ", with no barrier between");
    Finding finding = block.at(warp, warp.here, race.lane, FindingKind::race, message);
    if (!race.earlier_writes) {
        Warp& other = other_block.warps[shared_epoch::thread(race.earlier) / LANES];
        finding = block.at(
            other, shared_epoch::pc(race.earlier), int(shared_epoch::thread(race.earlier) % LANES), FindingKind::race,
            message);
    }
    finding.place = name;
    finding.sides = sides_of(warp, other_block, access, race);
    if (!earlier.entry->is_bulk())
        finding.phases = block.mbarriers.words_on_early(
            block.mbarriers.last_wait(warp),
            "the wait before the " + std::string(access == Access::read ? "read" : "write"), other_block.rank,
            shared_epoch::thread(race.earlier), shared_epoch::clock(race.earlier),
            race.earlier_writes ? "wrote" : "read");
    block.stop_at(std::move(finding));
}

}  // namespace

void check_shared_bounds(Warp& warp, const u64* a, Mask mask, u32 bytes, Access access) {
    const Block& block = *warp.block;
    const u64 size = warp.block->shared.bytes();
    each_lane(mask, [&](int l) {
        if (a[l] > size || size - a[l] < bytes)
            stop(
                warp, l, FindingKind::out_of_bounds,
                verb(access) + block.shared_place(a[l], bytes, true).text + " in shared memory (" +
                    std::to_string(size) + " bytes)");
        if (misaligned(a[l], bytes))
            stop(
                warp, l, FindingKind::misaligned,
                verb(access) + std::to_string(bytes) + " bytes at " + block.shared_place(a[l], bytes, false).text +
                    " in shared memory" + not_aligned(a[l], bytes));
    });
}

namespace {

// From one array into the next is out of bounds too, where the instruction's address can only mean the first.
void check_extent(Warp& warp, const Extent& extent, const u64* a, Mask mask, u32 bytes, Access access) {
    each_lane(mask, [&](int l) {
        const u64 offset = a[l] - extent.offset;
        if (offset <= extent.bytes && extent.bytes - offset >= bytes) return;
        const Place place = outside(extent.name, extent.shape, s32(u32(offset)), extent.bytes, bytes);
        stop(warp, l, FindingKind::out_of_bounds, verb(access) + place.text + " in shared memory");
    });
}

Finding unwritten(Warp& warp, int lane, u64 address, u32 bytes, Access access) {
    const Block& block = *warp.block;
    return block.at(
        warp, warp.here, lane, FindingKind::uninitialised,
        verb(access) + block.shared_place(address, bytes, false).text +
            " in shared memory, which no thread has written");
}

// "written so far: tile[0] to tile[511], the last on line 32": of the array that the address is in. Nothing where that
// is not one run of elements.
std::vector<std::string> notes_on_written(const Block& block, const SharedMemory& shared, u64 address, u32 bytes) {
    const Extent* own = block.extent_of(address);
    if (!own) return {};
    const u64 end = own->bytes ? own->offset + own->bytes : shared.bytes();
    u64 first = own->offset;
    while (first < end && !shared.readable(first)) ++first;
    u64 last = first;
    while (last < end && shared.readable(last)) ++last;
    for (u64 more = last; more < end; ++more)
        if (shared.readable(more)) return {};
    if (first == last || (first - own->offset) % bytes || (last - first) % bytes) return {};
    const Epoch writer = shared.last_writer(last - 1);
    return {
        "written so far: " + block.shared_place(first, bytes, false).text +
        (last - first > bytes ? " to " + block.shared_place(last - bytes, bytes, false).text : "") +
        (writer ? ", the last on " + block.line_words(shared_epoch::pc(writer)) : "")};
}

// What wgmma and bulk stores may still read stays as it is.
__attribute__((noinline)) void check_readers(Warp& warp, Block& owner, const u64* a, Mask mask, u32 bytes) {
    if (owner.warpgroups) owner.warpgroups->check_write(warp, mask, a, bytes);
    if (owner.copies.may_read()) owner.copies.check_readers(warp, mask, a, bytes);
}

// What an asm statement loads of bytes that no thread has written is nonsense: a finding where it is used.
__attribute__((noinline)) void read_nonsense(
    Warp& warp, const SharedMemory& shared, const Instruction& in, const u64* a, Mask mask, u32 bytes, u8** at) {
    static std::vector<u8> nonsense(32, 0xff);  // no number of any type
    each_lane(mask, [&](int l) {
        if (shared.uninitialised(Mask(1) << l, a, bytes) < 0) return;
        const u32 cause = warp.poisons.add_cause(unwritten(warp, l, a[l], bytes, Access::read), Poisons::Place::cause);
        for (int i = 0; i < in.entry->operation.signature.count; ++i)
            warp.poisons.taint(in.operand[i], Mask(1) << l, cause);
        at[l] = nonsense.data();
    });
}

Spread access_shared_of(
    Warp& warp, Block& owner, const Instruction& in, const u64* a, Mask mask, u32 bytes, Access access, Lanes lanes,
    u8** at) {
    const Spread spread = spread_of(a, mask, bytes);
    Block& block = *warp.block;
    SharedMemory& shared = owner.shared;
    const Extent* extent = in.extent < 0 ? nullptr : &block.program->shared[size_t(in.extent)];
    if (!all_within(extent ? extent->offset : 0, extent ? extent->bytes : shared.bytes(), a, mask, bytes, spread)) {
        if (extent) check_extent(warp, *extent, a, mask, bytes, access);
        check_shared_bounds(warp, a, mask, bytes, access);
    }
    Race race;
    const bool strong = in.strong && !(in.parts && warp.launch->distrusts_volatile);
    if (shared.record(warp, mask, a, bytes, access, strong, spread, &race))
        stop_shared_race(warp, owner, a, mask, bytes, access, race);
    int lane = 0;
    if (access != Access::write && (lane = shared.uninitialised(mask, a, bytes, spread)) >= 0 && !block.pending) {
        owner.copies.check(warp, mask, a, bytes, access);
        if (in.entry->lower == lower_load && in.option) {
            place(shared.data(), a, mask, true, at);
            read_nonsense(warp, shared, in, a, mask, bytes, at);
            return Spread::any;
        }
        block.pending = std::make_unique<Finding>(unwritten(warp, lane, a[lane], bytes, access));
        block.pending->notes = owner.copies.notes_on_unwritten(a[lane], bytes);
        block.pending->phases = block.mbarriers.words_on_unwritten(warp);
        if (block.pending->notes.empty() && block.pending->phases.empty())
            block.pending->notes = notes_on_written(block, shared, a[lane], bytes);
    }
    if (access == Access::read && owner.copies.may_fly()) shared.read_arrived(mask, a, bytes);
    if (access == Access::write && owner.copies.may_fly() && shared.in_flight(mask, a, bytes))
        owner.copies.check(warp, mask, a, bytes, access);
    if (access != Access::read && warp.overlaps) check_readers(warp, owner, a, mask, bytes);
    if (access != Access::read) shared.initialise(mask, a, bytes);
    place(shared.data(), a, mask, wanted(lanes, access, in, spread), at);
    record_strong(warp, in, mask, access, at);
    return spread;
}

// Addresses of shared::cluster: each lane's may be in another block.
void access_cluster(Warp& warp, const Instruction& in, const u64* a, Mask mask, u32 bytes, Access access, u8** at) {
    Block& block = *warp.block;
    while (mask) {
        const int first = __builtin_ctz(mask);
        Block* owner = block.cluster->owner(block, a[first]);
        if (!owner)
            block.stop_at(block.at(
                warp, warp.here, first, FindingKind::out_of_bounds,
                std::string(verb(access)) + "the shared memory of block rank " +
                    std::to_string((a[first] >> RANK_SHIFT) - 1) + " in a cluster of " +
                    plural(block.cluster->blocks.size(), "block")));
        Mask same = 0;
        u64 offset[LANES];
        each_lane(mask, [&](int l) {
            same |= Mask(a[l] >> RANK_SHIFT == a[first] >> RANK_SHIFT) << l;
            offset[l] = owner == &block ? a[l] : offset_of(a[l]);
            if (a[l] >> RANK_SHIFT == block.rank + 1) offset[l] = offset_of(a[l]);
        });
        if (owner != &block) owner->note_visit(warp, first);
        access_shared_of(warp, *owner, in, offset, same, bytes, access, Lanes::all, at);
        mask &= ~same;
    }
}

inline Spread access_shared(
    Warp& warp, const Instruction& in, const u64* a, Mask mask, u32 bytes, Access access, u8** at) {
    return access_shared_of(warp, *warp.block, in, a, mask, bytes, access, Lanes::enough, at);
}

// ---- local memory

std::string local_place(const Warp& warp, u64 address, u32 bytes, bool is_outside) {
    const Extent* best = nullptr;
    if (address < warp.local_bytes)
        for (const Extent& extent : warp.block->program->local)
            if (extent.offset <= address && (!best || extent.offset > best->offset)) best = &extent;
    const u32 item = bytes > 4 && bytes != 8 ? 4 : bytes;
    const bool depot = best && best->name.compare(0, 13, "__local_depot") == 0;
    const std::string name = !best || depot ? "its local memory" : best->name;
    const s64 offset = best ? s64(address - best->offset) : s64(address);
    return is_outside ? outside(name, offset, best ? best->bytes : warp.local_bytes, item, bytes).text
                      : inside(name, offset, item, bytes).text;
}

// Marks bytes as initialised: mostly those of one register.
void set_all(u8* shadow, u32 bytes) {
    switch (bytes) {
        case 4:
            std::memset(shadow, 1, 4);
            break;
        case 8:
            std::memset(shadow, 1, 8);
            break;
        default:
            std::memset(shadow, 1, bytes);
    }
}

void check_local(Warp& warp, int lane, u64 address, u64 available, const u8* shadow, u32 bytes, Access access) {
    if (available < bytes)
        stop(warp, lane, FindingKind::out_of_bounds, verb(access) + local_place(warp, address, bytes, true));
    if (misaligned(address, bytes))
        stop(
            warp, lane, FindingKind::misaligned,
            verb(access) + std::to_string(bytes) + " bytes at " + local_place(warp, address, bytes, false) +
                not_aligned(address, bytes));
    if (access != Access::write && !warp.launch->forgives_copies && !all_set(shadow, bytes))
        stop(
            warp, lane, FindingKind::uninitialised,
            verb(access) + local_place(warp, address, bytes, false) + ", which the thread has not written");
}

// Addresses in the variables of functions that do not call themselves: where that is right of all lanes, and what they
// read is initialised, nothing more is to be looked at.
bool access_fixed(const Warp& warp, const u64* a, Mask mask, u32 bytes, Access access, u8** at) {
    if (!all_within(0, warp.local_bytes, a, mask, bytes, Spread::any)) return false;
    bool known = true;
    const bool checked = access != Access::write && !warp.launch->forgives_copies;
    each_lane(mask, [&](int l) {
        const u64 offset = u64(l) * warp.local_bytes + a[l];
        at[l] = warp.local + offset;
        if (checked) known &= all_set(warp.local_shadow + offset, bytes);
    });
    return known;
}

void access_local(Warp& warp, const u64* a, Mask mask, u32 bytes, Access access, u8** at) {
    if (access_fixed(warp, a, mask, bytes, access, at)) {
        if (access != Access::read)
            each_lane(mask, [&](int l) { set_all(warp.local_shadow + u64(l) * warp.local_bytes + a[l], bytes); });
        return;
    }
    each_lane(mask, [&](int l) {
        u64 available;
        u8* shadow;
        at[l] = warp.local_at(l, a[l], &available, &shadow);
        check_local(warp, l, a[l], available, shadow, bytes, access);
        if (access != Access::read) set_all(shadow, bytes);
    });
}

}  // namespace

Spread check_global_access(Warp& warp, const Instruction& in, Mask mask, u32 bytes, Access access, u8** at) {
    u64 a[LANES];
    addresses(warp, in, a);
    const Spread spread = access_global(warp, in, a, mask, bytes, access, Lanes::enough, at);
    record_strong(warp, in, mask, access, at);
    return spread;
}

Spread check_shared_access(Warp& warp, const Instruction& in, Mask mask, u32 bytes, Access access, u8** at) {
    u64 a[LANES];
    addresses(warp, in, a);
    return access_shared(warp, in, a, mask, bytes, access, at);
}

Spread check_cluster_access(Warp& warp, const Instruction& in, Mask mask, u32 bytes, Access access, u8** at) {
    u64 a[LANES];
    addresses(warp, in, a);
    access_cluster(warp, in, a, mask, bytes, access, at);
    return Spread::any;
}

Spread check_local_access(Warp& warp, const Instruction& in, Mask mask, u32 bytes, Access access, u8** at) {
    u64 a[LANES];
    addresses(warp, in, a);
    access_local(warp, a, mask, bytes, access, at);
    return Spread::any;
}

Spread check_generic_access(Warp& warp, const Instruction& in, Mask mask, u32 bytes, Access access, u8** at) {
    u64 a[LANES];
    addresses(warp, in, a);
    Mask shared = 0, local = 0;
    for (int l = 0; l < LANES; ++l) {
        shared |= Mask(a[l] - SHARED_ORIGIN < SPACE_SIZE) << l;
        local |= Mask(a[l] - LOCAL_ORIGIN < SPACE_SIZE) << l;
    }
    shared &= mask;
    local &= mask;
    Spread spread = Spread::any;  // none of a full warp's unless all of it is in one space
    if (const Mask global = mask & ~shared & ~local) {
        spread = access_global(warp, in, a, global, bytes, access, Lanes::enough, at);
        record_strong(warp, in, global, access, at);
    }
    each_lane(shared, [&](int l) { a[l] -= SHARED_ORIGIN; });
    each_lane(local, [&](int l) { a[l] -= LOCAL_ORIGIN; });
    if (shared && warp.launch->blocks_per_cluster() > 1)
        access_cluster(warp, in, a, shared, bytes, access, at), shared = 0;
    if (shared) spread = access_shared(warp, in, a, shared, bytes, access, at);
    if (local) access_local(warp, a, local, bytes, access, at);
    return spread;
}

void check_each_lane(Warp& warp, const Instruction& in, Mask mask, u32 bytes, Access access, u8** at) {
    const Spread spread = in.check_access(warp, in, mask, bytes, access, at);
    if (spread == Spread::any) return;
    const u32 step = spread == Spread::row ? bytes : 0;
    for (int l = 1; l < LANES; ++l) at[l] = at[0] + u32(l) * step;
}

void check_global_at(Warp& warp, const Instruction& in, const u64* a, Mask mask, u32 bytes, Access access, u8** at) {
    access_global(warp, in, a, mask, bytes, access, Lanes::all, at);
}

void check_shared_at(
    Warp& warp, Block& owner, const Instruction& in, const u64* a, Mask mask, u32 bytes, Access access, u8** at) {
    access_shared_of(warp, owner, in, a, mask, bytes, access, Lanes::all, at);
}

void lane_addresses(const Warp& warp, const Instruction& in, u64* a) {
    addresses(warp, in, a);
}

Spaces spaces_of(AccessCheck check, Mask mask, u64* a) {
    const bool is_shared = check == check_shared_access || check == check_cluster_access;
    Spaces spaces;
    each_lane(mask, [&](int l) {
        if (check == check_generic_access && a[l] - SHARED_ORIGIN < SPACE_SIZE)
            spaces.shared |= Mask(1) << l, a[l] -= SHARED_ORIGIN;
        else if (is_shared)
            spaces.shared |= Mask(1) << l;
        else if (a[l] >= GLOBAL_ORIGIN)
            spaces.global |= Mask(1) << l;
    });
    return spaces;
}

const u8* peek(Warp& warp, int lane, u64 address, u64* available) {
    *available = 0;
    u8* initialised;
    if (address - LOCAL_ORIGIN < SPACE_SIZE)
        return warp.local_at(lane, address - LOCAL_ORIGIN, available, &initialised);
    SharedMemory& shared = warp.block->shared;
    if (address - SHARED_ORIGIN < shared.bytes()) {
        *available = shared.bytes() - (address - SHARED_ORIGIN);
        return shared.data() + (address - SHARED_ORIGIN);
    }
    const Allocation* allocation = warp.launch->memory->find(address);
    if (!allocation || allocation->freed || address - allocation->base >= allocation->bytes) return nullptr;
    *available = allocation->bytes - (address - allocation->base);
    return allocation->data + (address - allocation->base);
}

}  // namespace sim
