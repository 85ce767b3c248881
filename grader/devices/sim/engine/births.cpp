#include "births.h"

#include <algorithm>
#include <cstdio>

#include "block.h"
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

constexpr size_t MOST = 16;     // that are reported
constexpr size_t NOTED = 4096;  // that are kept, of all launches

// What a register holds.
enum class Holds : u8 { other, half, bfloat, halves, bfloats, single, twice };

struct TypeName {
    std::string_view name;
    Holds holds;
};
constexpr TypeName TYPES[] = {{"f16", Holds::half},       {"bf16", Holds::bfloat}, {"f16x2", Holds::halves},
                              {"bf16x2", Holds::bfloats}, {"f32", Holds::single},  {"f64", Holds::twice}};

Holds held_by(std::string_view type) {
    for (const TypeName& known : TYPES)
        if (known.name == type) return known.holds;
    return Holds::other;
}

bool is_pair(Holds holds) {
    return holds == Holds::halves || holds == Holds::bfloats;
}

u8 bytes_of(Holds holds) {
    return holds == Holds::half || holds == Holds::bfloat ? 2 : holds == Holds::twice ? 8 : 4;
}

// A lane's number; of a pair the lower part is 0, the upper one 1.
f64 number(const Warp& warp, s32 row, Holds holds, int lane, int part) {
    switch (holds) {
        case Holds::half:
            return widen(warp.row<const f16>(row)[lane]);
        case Holds::bfloat:
            return widen(warp.row<const bf16>(row)[lane]);
        case Holds::halves:
            return widen(warp.row<const f16>(row)[2 * lane + part]);
        case Holds::bfloats:
            return widen(warp.row<const bf16>(row)[2 * lane + part]);
        case Holds::single:
            return f64(warp.row<const f32>(row)[lane]);
        default:
            return warp.row<const f64>(row)[lane];
    }
}

// Whether a result is the first of its kind: of these operands.
bool is_born(f64 result, const f64* operands, int count) {
    if (std::isfinite(result)) return false;
    return std::none_of(operands, operands + count, [&](f64 each) {
        return std::isnan(result) ? std::isnan(each) : !std::isfinite(each);
    });
}

// The types of an arithmetic instruction's result and of its operands; other: nothing is born there.
struct Arithmetic {
    Holds result = Holds::other, operand = Holds::other;
};

Arithmetic arithmetic_of(const Instruction& in) {
    const OpcodeEntry& entry = *in.entry;
    const Signature& signature = entry.operation.signature;
    const auto words = words_of(entry.form);
    if (entry.lower != lower_positional || signature.count < 2 || words.size() < 2) return {};
    const Holds last = held_by(words.back());
    const Arithmetic found{words[0] == "cvt" ? held_by(words[words.size() - 2]) : last, last};
    if (found.result == Holds::other || found.operand == Holds::other) return {};
    bool fits = signature.shape[0].bytes == bytes_of(found.result);
    for (int i = 1; i < signature.count; ++i) fits &= signature.shape[i].bytes == bytes_of(found.operand);
    return fits ? found : Arithmetic{};
}

void watch_arithmetic(Warp& warp, const Instruction& in, Mask mask) {
    const Instruction& plain = plain_of(warp);
    const Arithmetic types = arithmetic_of(plain);
    const int count = plain.entry->operation.signature.count, parts = is_pair(types.result) ? 2 : 1;
    // cvt.f16x2.f32 d, a, b: a becomes the upper half
    const bool joins = parts == 2 && !is_pair(types.operand) && count == 3;
    const int operands = joins ? 1 : count - 1;
    f64 before[LANES][2][OPERANDS];
    each_lane(mask, [&](int l) {
        for (int part = 0; part < parts; ++part)
            for (int i = 0; i < operands; ++i) {
                const s32 row = in.operand[joins ? 2 - part : i + 1];
                before[l][part][i] = number(warp, row, types.operand, l, part);
            }
    });
    plain.run(warp, in, mask);
    each_lane(mask, [&](int l) {
        for (int part = 0; part < parts; ++part) {
            const f64 result = number(warp, in.operand[0], types.result, l, part);
            const f64* first = before[l][part];
            if (is_born(result, first, operands))
                warp.launch->births->note(warp, plain.entry->form, l, result, {first, first + operands});
        }
    });
}

// A product of matrices: where its registers stand in Program::fragments, and what they hold.
struct Group {
    s32 first = 0, count = 0;
    Holds holds = Holds::other;
};
struct Matrices {
    Group d, a, b, c;
};

// "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
bool matrices_of(const Instruction& in, Matrices& found) {
    const auto words = words_of(in.entry->form);
    int m = 0, n = 0, k = 0;
    if (words.size() != 10 || words[0] != "mma") return false;
    if (std::sscanf(std::string(words[3]).c_str(), "m%dn%dk%d", &m, &n, &k) != 3) return false;
    s32 next = in.operand[0];
    const auto group = [&](std::string_view type, int elements) {
        const bool narrow = type == "f16" || type == "bf16";
        const Holds holds = type == "f16"                     ? Holds::halves
                            : type == "bf16"                  ? Holds::bfloats
                            : type == "f32" || type == "tf32" ? Holds::single
                                                              : Holds::other;
        const Group made{next, elements / LANES / (narrow ? 2 : 1), holds};
        next += made.count;
        return made;
    };
    found.d = group(words[6], m * n);
    found.a = group(words[7], m * k);
    found.b = group(words[8], n * k);
    found.c = group(words[9], m * n);
    const auto known = [](const Group& g) { return g.holds != Holds::other; };
    return known(found.d) && known(found.a) && known(found.b) && known(found.c);
}

// The first lane with a number of the group that is not finite, and that number; -1: all are finite.
int first_unusual(const Warp& warp, const Group& group, f64* found) {
    const s32* rows = warp.block->program->fragments.data() + group.first;
    for (int l = 0; l < LANES; ++l)
        for (int i = 0; i < group.count; ++i)
            for (int part = 0; part < (is_pair(group.holds) ? 2 : 1); ++part) {
                *found = number(warp, rows[i], group.holds, l, part);
                if (!std::isfinite(*found)) return l;
            }
    return -1;
}

void watch_product(Warp& warp, const Instruction& in, Mask mask) {
    const Instruction& plain = plain_of(warp);
    Matrices matrices;
    matrices_of(plain, matrices);
    f64 value = 0;
    bool finite = true;
    for (const Group& source : {matrices.a, matrices.b, matrices.c}) finite &= first_unusual(warp, source, &value) < 0;
    plain.run(warp, in, mask);
    if (!finite) return;
    const int lane = first_unusual(warp, matrices.d, &value);
    if (lane >= 0) warp.launch->births->note(warp, plain.entry->form, lane, value, {});
}

std::string quoted_number(f64 value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return quoted(std::isnan(value) ? "nan" : text);
}

}  // namespace

void Births::clear() {
    first_.clear();
    launch_ = step_ = 0;
}

void Births::note(const Warp& warp, const std::string& form, int lane, f64 result, std::vector<f64> operands) {
    const u32* grid = warp.launch->grid;
    const u32* at = warp.block->index;
    const u64 block = at[0] + u64(grid[0]) * (at[1] + u64(grid[1]) * at[2]);
    const std::lock_guard<std::mutex> lock(mutex_);
    const Key key{launch_, warp.here, std::isnan(result)};
    const auto known = first_.find(key);
    if (known == first_.end() ? first_.size() >= NOTED : known->second.block <= block) return;
    first_[key] = {launch_, block, step_++, warp.block->site(warp, warp.here, lane), form, result, std::move(operands)};
}

std::string Births::json() const {
    std::vector<const Birth*> births;
    for (const auto& [key, birth] : first_) births.push_back(&birth);
    std::sort(births.begin(), births.end(), [](const Birth* a, const Birth* b) {
        return std::tie(a->launch, a->block, a->step) < std::tie(b->launch, b->block, b->step);
    });
    // Those of nan and those of infinities each in full: the first nan may come after many infinities.
    std::string text = "[";
    size_t count[2] = {};
    for (const Birth* birth : births) {
        if (count[std::isnan(birth->result)]++ >= MOST) continue;
        std::string operands;
        for (f64 each : birth->operands) operands += (operands.empty() ? "" : ",") + quoted_number(each);
        text += std::string(text.size() > 1 ? "," : "") + "{\"form\":" + quoted(birth->form) +
                ",\"result\":" + quoted_number(birth->result) + ",\"operands\":[" + operands +
                "],\"by\":" + sim::json(birth->site) + "}";
    }
    return text + "]";
}

std::unique_ptr<Program> with_births(const Program& plain) {
    auto program = std::make_unique<Program>(plain);
    program->plain = &plain;
    for (Instruction& in : program->code) {
        Matrices matrices;
        if (arithmetic_of(in).result != Holds::other)
            in.run = watch_arithmetic;
        else if (matrices_of(in, matrices))
            in.run = watch_product;
    }
    return program;
}

}  // namespace sim
