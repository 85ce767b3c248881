#include "operation.h"

#include <algorithm>

#include "ptx.h"

namespace sim {

namespace {

// "a.{b,c}.{d,e}" -> a.b.d a.b.e a.c.d a.c.e
void expand(std::string_view pattern, const std::string& prefix, std::vector<std::string>& out) {
    const size_t open = pattern.find('{');
    if (open == std::string_view::npos) {
        out.push_back(prefix + std::string(pattern));
        return;
    }
    const size_t close = pattern.find('}', open);
    const std::string head = prefix + std::string(pattern.substr(0, open));
    std::string_view inner = pattern.substr(open + 1, close - open - 1);
    for (size_t start = 0; start <= inner.size();) {
        const size_t comma = std::min(inner.find(',', start), inner.size());
        expand(pattern.substr(close + 1), head + std::string(inner.substr(start, comma - start)), out);
        start = comma + 1;
    }
}

// The opcode, what has a place of its own (types, layouts of matrices), then the other modifiers in alphabetic order.
std::string sorted_modifiers(const std::string& form) {
    std::string placed;
    std::vector<std::string> modifiers;
    for (size_t start = 0; start <= form.size();) {
        const size_t dot = std::min(form.find('.', start), form.size());
        const std::string word = form.substr(start, dot - start);
        start = dot + 1;
        if (placed.empty() || ptx::type_bytes("." + word) || word == "pred" || word == "row" || word == "col")
            placed += word + ".";
        else
            modifiers.push_back(word);
    }
    std::sort(modifiers.begin(), modifiers.end());
    for (const std::string& word : modifiers) placed += "|" + word;
    return placed;
}

constexpr void (*FAMILIES[])(Table&) = {
    integer_entries,       wide_integer_entries,     carry_entries,    float_entries,         rounding_entries,
    half_entries,          convert_entries,          compare_entries,  float_convert_entries, move_entries,
    predicate_entries,     access_entries,           atomic_entries,   collective_entries,    control_entries,
    asynchronous_entries,  mbarrier_entries,         matrix_entries,   mma_entries,           wmma_entries,
    float8_entries,        packed_integer_entries,   division_entries, call_entries,          texture_entries,
    tensor_copy_entries,   bulk_reduction_entries,   cluster_entries,  cluster_copy_entries,  wgmma_entries,
    register_pool_entries, dependent_launch_entries, video_entries,    map_change_entries,
};

}  // namespace

void Table::add(std::string_view pattern, Operation operation, Lowering lower, Flow flow, u8 option) {
    std::vector<std::string> forms;
    expand(pattern, "", forms);
    for (auto& form : forms) {
        entries_.push_back({std::move(form), operation, lower, flow, option});
        index_[entries_.back().form] = &entries_.back();
    }
}

void Table::add(
    std::initializer_list<std::string_view> pieces, Operation operation, Lowering lower, Flow flow, u8 option) {
    std::string pattern;
    for (auto piece : pieces) pattern += piece;
    add(pattern, operation, lower, flow, option);
}

const OpcodeEntry* Table::find(const std::string& form) const {
    const auto found = index_.find(form);
    return found == index_.end() ? nullptr : found->second;
}

const OpcodeEntry* Table::find_reordered(const std::string& form) const {
    const std::string wanted = sorted_modifiers(form);
    for (const OpcodeEntry& entry : entries_)  // rarely needed, so there is no index for it
        if (entry.form.size() == form.size() && sorted_modifiers(entry.form) == wanted) return &entry;
    return nullptr;
}

const Table& operations() {
    static const Table table = [] {
        Table made;
        for (auto add : FAMILIES) add(made);
        return made;
    }();
    return table;
}

}  // namespace sim
