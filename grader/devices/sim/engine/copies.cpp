#include "copies.h"

#include <algorithm>

#include "block.h"
#include "global_shadow.h"
#include "operation.h"
#include "check_access.h"

namespace sim {

namespace {

bool overlap(u64 a, u64 a_bytes, u64 b, u64 b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

bool is_bulk(const Program& program, u32 pc) {
    return program.code[pc].entry->form.find(".bulk") != std::string::npos;
}

// While it lives, a warp seems to stand at the copy that lands, at the time it was issued.
struct AtCopy {
    AtCopy(Warp& w, u32 pc, u32 clock) : warp(w), here(w.here), now(w.clock) {
        warp.here = pc;
        if (clock) warp.clock = clock;
    }
    ~AtCopy() {
        warp.here = here;
        warp.clock = now;
    }
    Warp& warp;
    u32 here, now;
};

// While it lives, what is written is a copy's own landing.
struct Landing {
    explicit Landing(bool& f) : flag(f) { flag = true; }
    ~Landing() { flag = false; }
    bool& flag;
};

}  // namespace

void Copies::forget() {
    if (!any_) return;
    for (auto& copies : flying_) copies.clear();
    loads_.clear();
    stores_.clear();
    std::fill(committed_[0], committed_[0] + WARPS_PER_BLOCK * LANES, 0);
    std::fill(committed_bulk_[0], committed_bulk_[0] + WARPS_PER_BLOCK * LANES, 0);
    any_ = false;
}

// ---- copies of 4, 8 and 16 bytes

void Copies::issue(Warp& warp, Copy copy) {
    any_ = true;
    std::copy(committed_[warp.index], committed_[warp.index] + LANES, copy.group);
    block_.shared.depart(copy.mask, copy.to, copy.bytes);
    flying_[warp.index].push_back(copy);
}

void Copies::commit(const Warp& warp, Mask mask) {
    any_ = true;
    each_lane(mask, [&](int l) { committed_[warp.index][l] += 1; });
}

void Copies::wait(Warp& warp, Mask mask, u32 groups_left) {
    auto& flying = flying_[warp.index];
    const u32* committed = committed_[warp.index];
    for (Copy& copy : flying) {
        if (copy.barrier >= 0) continue;
        Mask ready = 0;
        for (int l = 0; l < LANES; ++l) ready |= Mask(u64(copy.group[l]) + groups_left < committed[l]) << l;
        ready &= mask & copy.mask;
        if (ready) land(copy, ready);
        copy.mask &= ~ready;
    }
    while (!flying.empty() && !flying.front().mask) flying.pop_front();
}

void Copies::hand_over(const Warp& warp, Mask mask, s64 barrier, u32 clock) {
    auto& flying = flying_[warp.index];
    const size_t count = flying.size();
    for (size_t i = 0; i < count; ++i) {
        const Mask mine = flying[i].mask & mask;
        if (!mine || flying[i].barrier >= 0) continue;
        Copy attached = flying[i];
        flying[i].mask &= ~mine;
        attached.mask = mine;
        attached.barrier = barrier;
        attached.clock = clock;
        flying.push_back(attached);
    }
    while (!flying.empty() && !flying.front().mask) flying.pop_front();
}

CopySources Copies::sources(const Warp& warp, Mask mask, const u64* from, const u32* bytes) const {
    GlobalShadow* shadow = warp.launch->global_shadow;
    std::vector<CopySource> found;
    each_lane(mask, [&](int l) {
        const Allocation* allocation = shadow && bytes[l] ? warp.launch->memory->find(from[l]) : nullptr;
        if (allocation && allocation->writable)
            found.push_back({l, from[l], bytes[l], shadow->writers(*allocation, from[l], bytes[l])});
    });
    return found.empty() ? nullptr : std::make_shared<const std::vector<CopySource>>(std::move(found));
}

// What a copy reads may be overwritten once the copy has been waited for, and not before, by its own thread either.
void Copies::check_sources(const Warp& warp, u32 pc, const CopySources& sources, Mask lanes) const {
    if (!sources) return;
    GlobalShadow& shadow = *warp.launch->global_shadow;
    for (const CopySource& source : *sources) {
        if (!(lanes >> source.lane & 1)) continue;
        const Allocation& allocation = *warp.launch->memory->find(source.address);
        if (allocation.freed) continue;
        const std::vector<Epoch> now = shadow.writers(allocation, source.address, source.bytes);
        for (size_t i = 0; i < now.size(); ++i) {
            if (now[i] == source.writers[i]) continue;
            const u64 at = std::max(source.address, shadow.granule(source.address) + i * shadow.granule_bytes());
            const u32 item = allocation.itemsize ? allocation.itemsize : 4;
            const Place place = inside(allocation.name, s64(at - allocation.base), item, item);
            Finding finding = race_of_copy(warp, pc, source.lane, now[i], "race on " + place.text);
            finding.buffer = allocation.name;
            finding.index = place.index;
            finding.has_index = true;
            block_.stop_at(std::move(finding));
        }
    }
}

void Copies::land(const Copy& copy, Mask lanes) {
    Warp& warp = block_.warps[copy.warp];
    check_sources(warp, copy.pc, copy.sources, lanes);
    const AtCopy at_copy(warp, copy.pc, copy.clock);
    const Landing landing(landing_);
    u8* at[LANES];
    check_shared_at(warp, block_.program->code[copy.pc], copy.to, lanes, copy.bytes, Access::write, at);
    each_lane(lanes, [&](int l) { std::memcpy(at[l], copy.data[l], copy.bytes); });
}

// ---- bulk copies

void Copies::issue_bulk(Warp& warp, BulkCopy copy) {
    any_ = true;
    copy.group = committed_bulk_[warp.index][copy.lane];
    if (copy.barrier < 0) {
        check_fence(warp, copy);
        stores_.push_back(std::move(copy));
        return;
    }
    u64 to[LANES];
    for (u64 done = 0; done < copy.bytes; done += Copy::MOST) {
        to[copy.lane] = copy.shared + done;
        block_.shared.depart(Mask(1) << copy.lane, to, Copy::MOST);
    }
    loads_.push_back(std::move(copy));
}

// What threads wrote, in the generic proxy, is not sure to be seen by a bulk copy out of shared memory, which reads in
// the async proxy, unless a fence stands between. PTX ISA 8.6, "Proxies". Where a barrier is missing too, that is said.
void Copies::check_fence(const Warp& warp, const BulkCopy& copy) const {
    const u32 reader = warp.index * LANES + u32(copy.lane);
    for (u64 at = copy.shared; at < copy.shared + copy.bytes; ++at) {
        const Epoch writer = block_.shared.last_writer(at);
        const u32 thread = shared_epoch::thread(writer), clock = shared_epoch::clock(writer);
        const u32 pc = shared_epoch::pc(writer);
        const bool known = warp.knows(copy.lane, thread, clock) || thread == reader;
        if (block_.proxied.covers(thread, clock) || !known || is_bulk(*block_.program, pc)) continue;
        block_.stop_at(block_.at(
            warp, copy.pc, copy.lane, FindingKind::race,
            "race on " + block_.shared_place(at, 4, false).text + " in shared memory: " + block_.thread(thread) +
                " writes it on line " + std::to_string(block_.line_of(pc).line) + ", the bulk copy on line " +
                std::to_string(block_.line_of(copy.pc).line) + " reads it, with no fence.proxy.async between"));
    }
}

void Copies::commit_bulk(const Warp& warp, Mask mask) {
    any_ = true;
    each_lane(mask, [&](int l) { committed_bulk_[warp.index][l] += 1; });
}

void Copies::wait_bulk(Warp& warp, Mask mask, u32 groups_left) {
    const auto ready = [&](const BulkCopy& copy) {
        return copy.warp == warp.index && (mask >> copy.lane & 1) &&
               u64(copy.group) + groups_left < committed_bulk_[warp.index][copy.lane];
    };
    for (const BulkCopy& copy : stores_)
        if (ready(copy)) store_bulk(copy);
    stores_.erase(std::remove_if(stores_.begin(), stores_.end(), ready), stores_.end());
}

void Copies::land_bulk(const BulkCopy& copy) {
    Warp& warp = block_.warps[copy.warp];
    check_sources(warp, copy.pc, copy.sources, Mask(1) << copy.lane);
    const Landing landing(landing_);
    const AtCopy at_copy(warp, copy.pc, copy.clock);
    u64 to[LANES];
    u8* at[LANES];
    for (u64 done = 0; done < copy.bytes; done += Copy::MOST) {
        to[copy.lane] = copy.shared + done;
        const Mask lane = Mask(1) << copy.lane;
        check_shared_at(warp, block_.program->code[copy.pc], to, lane, Copy::MOST, Access::write, at);
        std::memcpy(at[copy.lane], copy.data.data() + done, Copy::MOST);
    }
}

void Copies::store_bulk(const BulkCopy& copy) {
    Warp& warp = block_.warps[copy.warp];
    const AtCopy at_copy(warp, copy.pc, 0);
    const Instruction& in = block_.program->code[copy.pc];
    const Mask lane = Mask(1) << copy.lane;
    u64 from[LANES], to[LANES];
    u8 *read[LANES], *written[LANES];
    for (u64 done = 0; done < copy.bytes; done += Copy::MOST) {
        from[copy.lane] = copy.shared + done;
        to[copy.lane] = copy.global + done;
        check_shared_at(warp, in, from, lane, Copy::MOST, Access::read, read);
        check_global_at(warp, in, to, lane, Copy::MOST, Access::write, written);
        std::memcpy(written[copy.lane], read[copy.lane], Copy::MOST);
    }
}

std::vector<BulkCopy> Copies::land_on(s64 barrier) {
    for (u32 w = 0; w < block_.warps.size(); ++w) {
        for (Copy& copy : flying_[w]) {
            if (copy.barrier != barrier || !copy.mask) continue;
            land(copy, copy.mask);
            copy.mask = 0;
        }
        while (!flying_[w].empty() && !flying_[w].front().mask) flying_[w].pop_front();
    }
    const auto first =
        std::stable_partition(loads_.begin(), loads_.end(), [&](const BulkCopy& c) { return c.barrier != barrier; });
    std::vector<BulkCopy> landed(std::make_move_iterator(first), std::make_move_iterator(loads_.end()));
    loads_.erase(first, loads_.end());
    for (const BulkCopy& copy : landed) land_bulk(copy);
    return landed;
}

// ---- those who do not wait

const u32* Copies::in_flight(u64 address, u32 bytes) const {
    for (const BulkCopy& copy : loads_)
        if (overlap(copy.shared, copy.bytes, address, bytes)) return &copy.pc;
    for (size_t w = 0; w < block_.warps.size(); ++w)
        for (const Copy& copy : flying_[w])
            for (int l = 0; l < LANES; ++l)
                if ((copy.mask >> l & 1) && overlap(copy.to[l], copy.bytes, address, bytes)) return &copy.pc;
    return nullptr;
}

bool Copies::committed(u64 address, u32 bytes) const {
    for (size_t w = 0; w < block_.warps.size(); ++w)
        for (const Copy& copy : flying_[w])
            for (int l = 0; l < LANES; ++l)
                if ((copy.mask >> l & 1) && overlap(copy.to[l], copy.bytes, address, bytes) && copy.barrier < 0 &&
                    copy.group[l] == committed_[w][l])
                    return false;
    return true;
}

void Copies::check(Warp& warp, Mask mask, const u64* address, u32 bytes, Access access) const {
    if (!any_) return;
    each_lane(mask, [&](int l) {
        const u32* pc = in_flight(address[l], bytes);
        if (!pc) return;
        const bool bulk = is_bulk(*block_.program, *pc);
        block_.stop_at(block_.at(
            warp, warp.here, l, FindingKind::race,
            std::string(
                access == Access::read    ? "reads "
                : access == Access::write ? "writes "
                                          : "updates ") +
                block_.shared_place(address[l], bytes, false).text + ", whose " +
                (bulk ? "cp.async.bulk" : "cp.async") + " (line " + std::to_string(block_.line_of(*pc).line) +
                ") has not been waited for" +
                (bulk || committed(address[l], bytes)
                     ? ""
                     : ": it is in no group, since nothing committed it (cp.async.commit_group)")));
    });
}

void Copies::finish() {
    if (stores_.empty()) return;
    const BulkCopy& copy = stores_.front();
    const Warp& warp = block_.warps[copy.warp];
    block_.stop_at(block_.at(
        warp, copy.pc, copy.lane, FindingKind::race,
        "exits while this bulk copy may still read " + block_.shared_place(copy.shared, Copy::MOST, false).text +
            " in shared memory: commit it and wait for its group first"));
}

}  // namespace sim
