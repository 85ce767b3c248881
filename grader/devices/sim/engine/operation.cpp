#include "operation.h"

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

constexpr void (*FAMILIES[])(Table&) = {
    integer_rows, wide_integer_rows, carry_rows,         float_rows,          rounding_rows,  half_rows,
    convert_rows, compare_rows,      float_convert_rows, move_rows,           predicate_rows, access_rows,
    atomic_rows,  collective_rows,   control_rows,       asynchronous_rows,   mbarrier_rows,  matrix_rows,
    mma_rows,     wmma_rows,         float8_rows,        packed_integer_rows, division_rows,  call_rows,
};

}  // namespace

void Table::add(std::string_view pattern, Operation operation, Builder build, Flow flow, u8 option) {
    std::vector<std::string> forms;
    expand(pattern, "", forms);
    for (auto& form : forms) {
        rows_.push_back({std::move(form), operation, build, flow, option});
        index_[rows_.back().form] = &rows_.back();
    }
}

void Table::add(
    std::initializer_list<std::string_view> pieces, Operation operation, Builder build, Flow flow, u8 option) {
    std::string pattern;
    for (auto piece : pieces) pattern += piece;
    add(pattern, operation, build, flow, option);
}

const Row* Table::find(const std::string& form) const {
    const auto found = index_.find(form);
    return found == index_.end() ? nullptr : found->second;
}

const Table& operations() {
    static const Table table = [] {
        Table rows;
        for (auto add : FAMILIES) add(rows);
        return rows;
    }();
    return table;
}

}  // namespace sim
