#include "trail.h"

#include <algorithm>
#include <cstring>

#include "block.h"
#include "check_access.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u64 MOST_BYTES = u64(1) << 27;  // that are noted in a call
constexpr u32 MOST_PLACES = 32;           // of an instruction in a warp; with more, the calls count as parted
constexpr u32 MOST_WRITES = 4;            // of an instruction in a warp to global memory, that are told
constexpr size_t MOST_STEPS = 1 << 12;    // that are kept
constexpr u32 MOST_ELSEWHERE = 8;         // of an instruction, of other blocks than the one that writes to the focus

u64 linear(const Warp& warp) {
    const u32* grid = warp.launch->grid;
    const u32* at = warp.block->index;
    return at[0] + u64(grid[0]) * (at[1] + u64(grid[1]) * at[2]);
}

const char* name_of(Access access) {
    return access == Access::read ? "read" : access == Access::write ? "write" : "atomic";
}

void run(Warp& warp, const Instruction& in, Mask mask) {
    const Instruction& plain = plain_of(warp);
    plain.run(warp, in, mask);
    if (plain.check_access) warp.launch->trail->settle(warp);
    warp.launch->trail->results(warp, plain, mask);
}

Spread check(Warp& warp, const Instruction& in, Mask mask, u32 bytes, Access access, u8** at) {
    const Instruction& plain = plain_of(warp);
    const Spread spread = plain.check_access(warp, in, mask, bytes, access, at);
    u64 a[LANES];
    u8* host[LANES];
    lane_addresses(warp, in, a);
    each_lane(mask, [&](int l) {
        host[l] = spread == Spread::any ? at[l] : at[0] + (spread == Spread::row ? u32(l) * bytes : 0);
    });
    auto [global, shared] = spaces_of(plain.check_access, mask, a);
    Trail& trail = *warp.launch->trail;
    if (global) trail.note(warp, warp.here, false, access, global, a, bytes, host);
    if (shared) trail.note(warp, warp.here, true, access, shared, a, bytes, host);
    return spread;
}

}  // namespace

void Trail::begin(Role role, u64 focus) {
    ready_ = ready_ && role == Role::second;
    if (!ready_) streams_.clear();
    for (auto& [key, stream] : streams_) stream.next = 0, stream.unsettled.clear();
    if (role == Role::first) parted_ = false, launches_ = 0, ready_ = true;
    if (role == Role::second && !ready_) parted_ = true;
    role_ = role;
    focus_ = focus;
    focus_launch_ = focus_block_ = 0;
    focus_bytes_ = 0;
    routes_.begin(role == Role::first);
    launch_ = time_ = bytes_ = 0;
    blind_ = false;
    steps_.clear();
    kept_.clear();
}

void Trail::begin_launch(const Program& program, u32 blocks_per_cluster) {
    ++launch_;
    routes_.begin_launch(program);
    blind_ |= program.async_proxy || program.multiplies || blocks_per_cluster > 1;
}

Trail::Stream& Trail::stream_of(const Warp& warp) {
    return streams_[{launch_, linear(warp), warp.index}];
}

void Trail::note(
    const Warp& warp, u32 pc, bool shared, Access access, Mask mask, const u64* a, u32 bytes, u8* const* at,
    bool landed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (parted_) return;
    bytes_ += u64(__builtin_popcount(mask)) * (bytes + sizeof(u64));
    if (bytes_ > MOST_BYTES) {
        parted_ = true;
        return;
    }
    Stream& stream = stream_of(warp);
    stream.unsettled.emplace_back();
    Event& event = stream.unsettled.back();
    event.pc = pc, event.bytes = bytes, event.mask = mask, event.shared = shared, event.access = access,
    event.landed = landed;
    each_lane(mask, [&](int l) {
        if (!shared && access != Access::read && a[l] <= focus_ && focus_ < a[l] + bytes) {
            focus_launch_ = launch_, focus_block_ = linear(warp);
            const Allocation* allocation = warp.launch->memory->find(focus_);
            focus_bytes_ = allocation ? std::max(allocation->itemsize, 1u) : 1;
        }
        event.addresses.push_back(a[l]);
        event.at.push_back(at[l]);
    });
}

void Trail::settle(const Warp& warp) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!parted_) settle(warp, stream_of(warp));
}

void Trail::settle(const Warp& warp, Stream& stream) {
    for (Event& event : stream.unsettled) {
        for (const u8* from : event.at) event.data.insert(event.data.end(), from, from + event.bytes);
        event.at.clear();
        if (role_ == Role::first)
            stream.events.push_back(std::move(event));
        else
            compare(warp, stream, event);
    }
    stream.unsettled.clear();
}

void Trail::note_landed(const Warp& warp, u32 pc, Mask mask, const u64* a, u32 bytes, u8* const* at) {
    note(warp, pc, true, Access::write, mask, a, bytes, at, true);
    settle(warp);
}

void Trail::results(const Warp& warp, const Instruction& in, Mask mask) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!parted_) routes_.results(warp, in, mask);
}

void Trail::compare(const Warp& warp, Stream& stream, const Event& event) {
    if (stream.next >= stream.events.size()) {
        parted_ = true;
        return;
    }
    const Event& before = stream.events[stream.next++];
    if (before.pc != event.pc || before.mask != event.mask || before.bytes != event.bytes ||
        before.shared != event.shared) {
        parted_ = true;
        return;
    }
    size_t number = 0;
    each_lane(event.mask, [&](int l) {
        const u8* now = event.data.data() + number * event.bytes;
        const u8* then = before.data.data() + number * event.bytes;
        u32 byte = 0;
        while (byte < event.bytes && now[byte] == then[byte]) ++byte;
        if (byte < event.bytes || event.addresses[number] != before.addresses[number])
            keep(warp, event, number, l, byte < event.bytes ? byte : 0);
        tell(warp, event, before, number, l);
        ++number;
    });
}

Trail::Located Trail::located(const Warp& warp, const Event& event, u64 address) const {
    const Block& block = *warp.block;
    if (event.shared) {
        const Extent* extent = block.extent_of(address);
        const u32 declared = extent ? extent->shape.itemsize : 0;  // 1 or 0 where it stands for others
        const u32 item = declared > 1 ? declared : std::min(event.bytes, 4u);
        const Place place = block.shared_place(address - address % item, declared ? declared : item, false);
        return {false, place.text, "", s64(address)};
    }
    const Allocation* allocation = warp.launch->memory->find(address);
    if (!allocation || allocation->kind == AllocationKind::parameter) return {true, "", "", 0};
    const u32 item = allocation->itemsize ? allocation->itemsize : std::min(event.bytes, 4u);
    const Place place = inside(allocation->name, s64(address - allocation->base), item, item);
    return {false, place.text, allocation->name, place.index};
}

// What a lane moves, for the ways there; at another address all bytes are others.
void Trail::tell(const Warp& warp, const Event& event, const Event& before, size_t number, int lane) {
    Routes::Moved moved;
    moved.pc = event.pc, moved.bytes = event.bytes, moved.lane = lane, moved.shared = event.shared;
    moved.landed = event.landed, moved.access = event.access, moved.address = event.addresses[number];
    const bool elsewhere = moved.address != before.addresses[number];
    u32 first = event.bytes;
    for (u32 i = event.bytes; i-- > 0;) {
        const size_t at = number * event.bytes + i;
        if (elsewhere || event.data[at] != before.data[at]) moved.changed |= u64(1) << i, first = i;
    }
    if (moved.changed || event.access != Access::read)
        routes_.access(warp, moved, moved.changed ? located(warp, event, moved.address + first).place : "");
}

void Trail::keep(const Warp& warp, const Event& event, size_t number, int lane, u32 byte) {
    Step step;
    step.launch = launch_, step.block = linear(warp), step.time = time_++;
    step.pc = event.pc, step.warp = warp.index, step.lanes = Mask(1) << lane;
    step.together = warp.block->program->code[event.pc].flow == Flow::warp_sync;
    step.access = name_of(event.access);
    const Located at = located(warp, event, event.addresses[number] + byte);
    if (at.nowhere) return;
    step.place = at.place, step.buffer = at.buffer, step.index = at.index;
    std::vector<size_t>& kept = kept_[{step.launch, step.block, step.warp, event.pc}];
    for (const size_t known : kept) {
        if (steps_[known].place != step.place) continue;
        steps_[known].lanes |= step.lanes;
        return;
    }
    if (!event.shared && event.access != Access::read && kept.size() >= MOST_WRITES) return;
    if (kept.size() >= MOST_PLACES || steps_.size() >= MOST_STEPS) {
        parted_ = true;
        return;
    }
    kept.push_back(steps_.size());
    step.site = warp.block->site(warp, event.pc, lane);
    steps_.push_back(std::move(step));
}

std::string Trail::json() {
    if (role_ == Role::first) launches_ = launch_;
    if (role_ == Role::second && launches_ != launch_) parted_ = true;
    if (role_ == Role::second) {
        for (const auto& [key, stream] : streams_) parted_ |= stream.next != stream.events.size();
        streams_.clear();
        ready_ = false;
    }
    std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) {
        return std::tie(a.launch, a.block, a.time) < std::tie(b.launch, b.block, b.time);
    });
    std::string text = "{\"steps\":[";
    std::map<std::tuple<u64, u32>, u32> elsewhere;
    for (const Step& step : steps_) {
        const bool here = step.launch == focus_launch_ && step.block == focus_block_;
        if (!here && ++elsewhere[{step.launch, step.pc}] > MOST_ELSEWHERE) continue;
        text += std::string(text.back() == '[' ? "" : ",") + "{\"access\":" + quoted(step.access) +
                ",\"place\":" + quoted(step.place) + ",\"launch\":" + std::to_string(step.launch) +
                ",\"index\":" + std::to_string(step.index) + ",\"lanes\":" + std::to_string(step.lanes) +
                ",\"together\":" + (step.together ? "true" : "false") + ",\"by\":" + sim::json(step.site);
        if (!step.buffer.empty()) text += ",\"buffer\":" + quoted(step.buffer);
        text += "}";
    }
    const std::string route = parted_ ? "" : routes_.json(focus_, focus_bytes_);
    if (role_ == Role::second) routes_.clear();
    return text + "],\"parted\":" + (parted_ ? "true" : "false") + ",\"blind\":" + (blind_ ? "true" : "false") +
           (route.empty() ? "" : ",\"route\":" + route) + "}";
}

std::shared_ptr<const Program> with_trail(const Program& plain) {
    auto program = std::make_shared<Program>(plain);
    program->plain = &plain;
    for (Instruction& in : program->code)
        if (in.check_access)
            in.run = run, in.check_access = check;
        else if (Routes::is_told(in))
            in.run = run;
    return program;
}

}  // namespace sim
