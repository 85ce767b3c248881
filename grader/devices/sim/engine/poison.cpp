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

u32 Poisons::add_cause(Finding finding) {
    constexpr size_t MOST = 4096;  // a kernel with more is not followed further
    if (places_.empty() || causes_.size() >= MOST) clear();
    causes_.push_back(std::move(finding));
    return u32(causes_.size() - 1);
}

void Poisons::taint(s32 row, Mask lanes, u32 cause) {
    heal(row, lanes);
    for (Tainted& place : places_) {
        if (place.row != row || place.cause != cause) continue;
        place.lanes |= lanes;
        return;
    }
    if (lanes) places_.push_back({row, lanes, cause});
}

void Poisons::taint_as(const Poisons& before, s32 row, int lane, s32 source, int source_lane) {
    for (const Tainted& place : before.places_) {
        if (place.row != source || !(place.lanes >> source_lane & 1)) continue;
        taint(row, Mask(1) << lane, add_cause(before.causes_[place.cause]));
        return;
    }
}

Mask Poisons::lanes(s32 row) const {
    Mask all = 0;
    for (const Tainted& place : places_) all |= place.row == row ? place.lanes : 0;
    return all;
}

void Poisons::heal(s32 row, Mask lanes) {
    bool gone = false;
    for (Tainted& place : places_) {
        if (place.row != row) continue;
        place.lanes &= ~lanes;
        gone |= !place.lanes;
    }
    if (!gone) return;
    places_.erase(
        std::remove_if(places_.begin(), places_.end(), [](const Tainted& p) { return !p.lanes; }), places_.end());
}

void Poisons::use(Warp& warp, s32 row, Mask mask) const {
    for (const Tainted& place : places_) {
        if (place.row != row || !(place.lanes & mask)) continue;
        Block& block = *warp.block;
        const Finding& cause = causes_[place.cause];
        const int lane = __builtin_ctz(place.lanes & mask);
        const Finding used = block.at(warp, warp.here, lane, cause.kind, cause.message);
        // A load outside of a buffer is the mistake; what a shuffle could not give is one where it is used.
        const bool is_load = cause.kind != FindingKind::uninitialised;
        Finding finding = is_load ? cause : used;
        const u32 other = is_load ? used.line : cause.line;
        if (other && other != finding.line)
            finding.message += "; line " + std::to_string(other) + (is_load ? " uses" : " gets") + " the value";
        finding.buffer = cause.buffer;
        finding.index = cause.index;
        finding.has_index = cause.has_index;
        block.stop_at(std::move(finding));
    }
}

void Poisons::use_all(Warp& warp, const Instruction& in, int first, int last, Mask mask) const {
    for (int i = first; i < last; ++i) use(warp, in.operand[i], mask);
}

void Poisons::check_guard(Warp& warp, const Instruction& in, Mask group) const {
    if (in.guard >= 0) use(warp, in.guard, group);
}

// What selp does not choose does not matter, nor what a predicate that is known decides alone.
std::vector<Poisons::Tainted> Poisons::of_sources(
    const Warp& warp, const Instruction& in, int first, int last, Mask mask) const {
    std::vector<Tainted> found;
    const std::string& form = in.entry->form;
    const bool both = form == "and.pred", either = form == "or.pred";
    for (const Tainted& place : places_) {
        for (int i = first; i < last; ++i) {
            if (place.row != in.operand[i]) continue;
            Mask lanes = place.lanes & mask;
            if (begins(form, "selp") && i < 3) {
                const Mask chooses = warp.predicate(in.operand[3]);
                lanes &= i == 1 ? chooses : ~chooses;
            } else if (both || either) {
                const s32 other = in.operand[first + last - 1 - i];
                const Mask value = warp.predicate(other);
                lanes &= this->lanes(other) | (both ? value : ~value);
            }
            if (lanes) found.push_back({place.row, lanes, place.cause});
        }
    }
    return found;
}

void Poisons::follow(Warp& warp, const Instruction& in, Mask mask) {
    const OpcodeEntry& entry = *in.entry;
    const int count = entry.operation.signature.count;
    const auto passes_on = [&](int results, int first, int last) {
        const std::vector<Tainted> found = of_sources(warp, in, first, last, mask);
        Mask tainted = 0;
        for (const Tainted& source : found) tainted |= source.lanes;
        for (int i = 0; i < results; ++i) {
            heal(in.operand[i], mask & ~tainted);
            // The first cause is the one to name: it goes in last.
            for (size_t k = found.size(); k-- > 0;) taint(in.operand[i], found[k].lanes, found[k].cause);
        }
    };
    const auto gives = [&](int results) {
        for (int i = 0; i < results; ++i) heal(in.operand[i], mask);
    };
    if (in.check_access && in.address >= 0) use(warp, in.address, mask);
    if (entry.lower == lower_positional) return passes_on(1, 1, count);
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
