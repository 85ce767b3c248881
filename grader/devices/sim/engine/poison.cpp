#include "poison.h"

#include <algorithm>

#include "block.h"
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

bool begins(const std::string& text, const char* prefix) {
    return text.rfind(prefix, 0) == 0;
}

}  // namespace

u32 Poisons::add_cause(Finding finding, Place place) {
    causes_.emplace(next_, Cause{std::move(finding), place});
    return next_++;
}

void Poisons::taint(s32 row, Mask lanes, u32 cause) {
    if (!lanes) return;
    Row& place = rows_[row];
    place.lanes |= lanes;
    each_lane(lanes, [&](int l) { place.cause[l] = cause; });
}

void Poisons::taint_as(const Row& before, s32 row, int lane, int source_lane) {
    if (before.lanes >> source_lane & 1) taint(row, Mask(1) << lane, before.cause[source_lane]);
}

Poisons::Row Poisons::at(s32 row) const {
    const auto found = rows_.find(row);
    return found == rows_.end() ? Row() : found->second;
}

void Poisons::heal(s32 row, Mask lanes) {
    const auto found = rows_.find(row);
    if (found == rows_.end()) return;
    found->second.lanes &= ~lanes;
    if (!found->second.lanes) rows_.erase(found);
}

// A loop may give poison in every round.
void Poisons::forget_healed() {
    if (causes_.size() < most_) return;
    std::map<u32, Cause> kept;
    for (const auto& [row, place] : rows_)
        each_lane(place.lanes, [&, &row_place = place](int l) {
            const u32 cause = row_place.cause[l];
            if (!kept.count(cause)) kept.emplace(cause, causes_.at(cause));
        });
    causes_ = std::move(kept);
    most_ = std::max<size_t>(4096, 2 * causes_.size());
}

// The first of several causes is named.
void Poisons::use(Warp& warp, s32 row, Mask mask) const {
    const Row place = at(row);
    if (!(place.lanes & mask)) return;
    int lane = __builtin_ctz(place.lanes & mask);
    each_lane(place.lanes & mask, [&](int l) { lane = place.cause[l] < place.cause[lane] ? l : lane; });
    Block& block = *warp.block;
    const auto& [cause, named] = causes_.at(place.cause[lane]);
    const Finding used = block.at(warp, warp.here, lane, cause.kind, cause.message);
    // A load outside of a buffer is the mistake; what a shuffle could not give is one where it is used.
    const bool is_load = named == Place::cause;
    Finding finding = is_load ? cause : used;
    const u32 other = is_load ? used.line : cause.line;
    if (other && other != finding.line)
        finding.message += "; line " + std::to_string(other) + (is_load ? " uses" : " gets") + " the value";
    finding.buffer = cause.buffer;
    finding.index = cause.index;
    finding.has_index = cause.has_index;
    block.stop_at(std::move(finding));
}

void Poisons::use_all(Warp& warp, const Instruction& in, int first, int last, Mask mask) const {
    for (int i = first; i < last; ++i) use(warp, in.operand[i], mask);
}

void Poisons::check_guard(Warp& warp, const Instruction& in, Mask group) const {
    if (in.guard >= 0) use(warp, in.guard, group);
}

// What selp does not choose does not matter, nor what a predicate that is known decides alone.
Poisons::Row Poisons::of_sources(const Warp& warp, const Instruction& in, int first, int last, Mask mask) const {
    Row found;
    const std::string& form = in.entry->form;
    const bool both = form == "and.pred", either = form == "or.pred";
    for (int i = first; i < last; ++i) {
        const auto place = rows_.find(in.operand[i]);
        if (place == rows_.end()) continue;
        Mask lanes = place->second.lanes & mask;
        if (begins(form, "selp") && i < 3) {
            const Mask chooses = warp.predicate(in.operand[3]);
            lanes &= i == 1 ? chooses : ~chooses;
        } else if (both || either) {
            const s32 other = in.operand[first + last - 1 - i];
            const Mask value = warp.predicate(other);
            lanes &= at(other).lanes | (both ? value : ~value);
        }
        each_lane(lanes, [&](int l) {
            const u32 cause = place->second.cause[l];
            if (!(found.lanes >> l & 1) || cause < found.cause[l]) found.cause[l] = cause;
        });
        found.lanes |= lanes;
    }
    return found;
}

void Poisons::pass_on(Warp& warp, const Instruction& in, int results, int first, int last, Mask mask) {
    const Row found = of_sources(warp, in, first, last, mask);
    for (int i = 0; i < results; ++i) {
        heal(in.operand[i], mask & ~found.lanes);
        each_lane(found.lanes, [&](int l) { taint_as(found, in.operand[i], l, l); });
    }
}

void Poisons::follow(Warp& warp, const Instruction& in, Mask mask) {
    forget_healed();
    const OpcodeEntry& entry = *in.entry;
    const int count = entry.operation.signature.count;
    const auto passes_on = [&](int results, int first, int last) { pass_on(warp, in, results, first, last, mask); };
    const auto gives = [&](int results) {
        for (int i = 0; i < results; ++i) heal(in.operand[i], mask);
    };
    if (in.check_access && in.address >= 0) use(warp, in.address, mask);
    if (entry.lower == lower_positional) return passes_on(1, 1, count);
    if (entry.lower == lower_video) return passes_on(1, 1, 4);  // c is always there, a constant where none is written
    if (entry.lower == lower_setp) return passes_on(2, 2, 4 + (entry.option ? 1 : 0));
    if (entry.lower == lower_vector_move) {
        const bool packs = entry.form.find(".pack") != std::string::npos;
        return packs ? passes_on(1, 1, count) : passes_on(count - 1, count - 1, count);
    }
    if (entry.lower == lower_load) return gives(count);
    if (entry.lower == lower_store) return use_all(warp, in, 0, count, mask);
    if (entry.lower == lower_atomic || entry.lower == lower_reduction) {
        use_all(warp, in, 1, count, mask);
        return gives(1);
    }
    if (entry.lower == lower_vector_atomic) {
        use_all(warp, in, count / 2, count, mask);
        return gives(count / 2);
    }
    if (entry.lower == lower_collective) {
        const bool shuffles = begins(entry.form, "shfl");  // which passes on what it moves, by itself
        use_all(warp, in, shuffles ? 3 : 2, count, mask);
        return shuffles ? void() : gives(2);
    }
    const bool has_no_results = in.flow == Flow::branch || entry.lower == lower_nothing || entry.lower == lower_fence ||
                                entry.lower == lower_barrier || entry.lower == lower_warp_barrier;
    if (!has_no_results) clear();  // what this one writes is not known here
}

}  // namespace sim
