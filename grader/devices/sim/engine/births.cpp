#include "births.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "block.h"
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

constexpr size_t MOST = 16;     // that are reported
constexpr int QUAD = 4;         // lanes that share a row of an accumulator
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

// A lane's number of a register's row; of a pair the lower part is 0, the upper one 1.
f64 number(const void* row, Holds holds, int lane, int part) {
    switch (holds) {
        case Holds::half:
            return widen(static_cast<const f16*>(row)[lane]);
        case Holds::bfloat:
            return widen(static_cast<const bf16*>(row)[lane]);
        case Holds::halves:
            return widen(static_cast<const f16*>(row)[2 * lane + part]);
        case Holds::bfloats:
            return widen(static_cast<const bf16*>(row)[2 * lane + part]);
        case Holds::single:
            return f64(static_cast<const f32*>(row)[lane]);
        default:
            return static_cast<const f64*>(row)[lane];
    }
}

// Whether a row holds nan or an infinity: all bits of an exponent are 1. Lanes that the instruction leaves alone count,
// so this only says where it is worth to look closer.
template <class Word>
bool any_unusual(const void* row, int count, Word exponent) {
    bool found = false;
    for (int i = 0; i < count; ++i) found |= (static_cast<const Word*>(row)[i] & exponent) == exponent;
    return found;
}
bool may_be_unusual(const void* row, Holds holds) {
    switch (holds) {
        case Holds::half:
            return any_unusual<u16>(row, LANES, 0x7c00);
        case Holds::bfloat:
            return any_unusual<u16>(row, LANES, 0x7f80);
        case Holds::halves:
            return any_unusual<u16>(row, 2 * LANES, 0x7c00);
        case Holds::bfloats:
            return any_unusual<u16>(row, 2 * LANES, 0x7f80);
        case Holds::single:
            return any_unusual<u32>(row, LANES, 0x7f800000);
        default:
            return any_unusual<u64>(row, LANES, 0x7ff0000000000000);
    }
}

// Whether a result is the first of its kind: of these operands.
bool is_born(f64 result, const f64* operands, int count) {
    if (std::isfinite(result)) return false;
    return std::none_of(operands, operands + count, [&](f64 each) {
        return std::isnan(result) ? std::isnan(each) : !std::isfinite(each);
    });
}

// An arithmetic instruction: the types of its result and of its operands; other: nothing is born there.
struct Arithmetic {
    Holds result = Holds::other, operand = Holds::other;
    u8 operands = 0;     // of each part
    bool joins = false;  // cvt.f16x2.f32 d, a, b: a becomes the upper half
};

// A product of matrices: where its registers stand in Program::fragments, and what they hold.
struct Group {
    s32 first = 0, count = 0;
    Holds holds = Holds::other;
};
struct Matrices {
    Group d, a, b, c;
};

// A program that notes births, and what each instruction is to it.
struct Traced : Program {
    struct Watched {
        Arithmetic arithmetic;
        Matrices matrices;
    };
    std::vector<Watched> watched;
    bool multiplies = false;  // matrices

    explicit Traced(const Program& given) : Program(given), watched(given.code.size()) { plain = &given; }
};
const Traced::Watched& watched_by(const Warp& warp) {
    return static_cast<const Traced*>(warp.block->program)->watched[warp.here];
}

Arithmetic arithmetic_of(const Instruction& in) {
    const OpcodeEntry& entry = *in.entry;
    const Signature& signature = entry.operation.signature;
    const auto words = words_of(entry.form);
    if (entry.lower != lower_positional || signature.count < 2 || words.size() < 2) return {};
    Arithmetic found;
    found.operand = held_by(words.back());
    found.result = words[0] == "cvt" ? held_by(words[words.size() - 2]) : found.operand;
    if (found.result == Holds::other || found.operand == Holds::other) return {};
    bool fits = signature.shape[0].bytes == bytes_of(found.result);
    for (int i = 1; i < signature.count; ++i) fits &= signature.shape[i].bytes == bytes_of(found.operand);
    if (!fits) return {};
    found.joins = is_pair(found.result) && !is_pair(found.operand) && signature.count == 3;
    found.operands = u8(found.joins ? 1 : signature.count - 1);
    return found;
}

// The first lane of the same quad that makes a number, and its operands, where the program multiplies matrices.
template <class Operands>
Birth::Other other_of_quad(
    const Warp& warp, Mask mask, int lane, int part, Holds result, const u8* after, Operands operands_of) {
    Birth::Other other;
    if (!static_cast<const Traced*>(warp.block->program)->multiplies) return other;
    for (int l = lane / QUAD * QUAD; l < (lane / QUAD + 1) * QUAD && other.lane < 0; ++l)
        if ((mask >> l & 1) && !std::isnan(number(after, result, l, part))) other = {l, operands_of(l, part), {}};
    return other;
}

void watch_arithmetic(Warp& warp, const Instruction& in, Mask mask) {
    const Instruction& plain = plain_of(warp);
    const Arithmetic types = watched_by(warp).arithmetic;
    const int sources = types.joins ? 2 : types.operands;
    alignas(f64) u8 before[OPERANDS][LANES * sizeof(f64)];  // the result may overwrite an operand
    for (int i = 0; i < sources; ++i)
        std::memcpy(before[i], warp.row<const u8>(in.operand[i + 1]), LANES * bytes_of(types.operand));
    plain.run(warp, in, mask);
    const u8* after = warp.row<const u8>(in.operand[0]);
    if (!may_be_unusual(after, types.result)) return;
    const auto operands_of = [&](int l, int part) {
        std::vector<f64> operands(types.operands);
        for (int i = 0; i < types.operands; ++i)
            operands[size_t(i)] = number(before[types.joins ? 1 - part : i], types.operand, l, part);
        return operands;
    };
    each_lane(mask, [&](int l) {
        for (int part = 0; part < (is_pair(types.result) ? 2 : 1); ++part) {
            const f64 result = number(after, types.result, l, part);
            if (std::isfinite(result)) continue;
            const std::vector<f64> operands = operands_of(l, part);
            if (!is_born(result, operands.data(), types.operands)) continue;
            Birth::Other other;
            if (std::isnan(result)) other = other_of_quad(warp, mask, l, part, types.result, after, operands_of);
            warp.launch->births->note(warp, plain.entry->form, l, result, operands, std::move(other));
        }
    });
}

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

bool is_finite(const Warp& warp, const Group& group) {
    const s32* rows = warp.block->program->fragments.data() + group.first;
    for (int i = 0; i < group.count; ++i)
        if (may_be_unusual(warp.row<const u8>(rows[i]), group.holds)) return false;
    return true;
}

// The first lane with a number of the group that is not finite, and that number; -1: all are finite.
int first_unusual(const Warp& warp, const Group& group, f64* found) {
    const s32* rows = warp.block->program->fragments.data() + group.first;
    for (int l = 0; l < LANES; ++l)
        for (int i = 0; i < group.count; ++i)
            for (int part = 0; part < (is_pair(group.holds) ? 2 : 1); ++part) {
                *found = number(warp.row<const u8>(rows[i]), group.holds, l, part);
                if (!std::isfinite(*found)) return l;
            }
    return -1;
}

void watch_product(Warp& warp, const Instruction& in, Mask mask) {
    const Instruction& plain = plain_of(warp);
    const Matrices& matrices = watched_by(warp).matrices;
    const bool finite = is_finite(warp, matrices.a) && is_finite(warp, matrices.b) && is_finite(warp, matrices.c);
    plain.run(warp, in, mask);
    if (!finite || is_finite(warp, matrices.d)) return;
    f64 value = 0;
    const int lane = first_unusual(warp, matrices.d, &value);
    warp.launch->births->note(warp, plain.entry->form, lane, value, {});
}

std::string quoted_number(f64 value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return quoted(std::isnan(value) ? "nan" : text);
}

std::string listed(const std::vector<f64>& numbers) {
    std::string text;
    for (f64 each : numbers) text += (text.empty() ? "" : ",") + quoted_number(each);
    return "[" + text + "]";
}

}  // namespace

void Births::clear() {
    first_.clear();
    launch_ = step_ = 0;
}

void Births::note(
    const Warp& warp, const std::string& form, int lane, f64 result, std::vector<f64> operands, Birth::Other other) {
    const u32* grid = warp.launch->grid;
    const u32* at = warp.block->index;
    const u64 block = at[0] + u64(grid[0]) * (at[1] + u64(grid[1]) * at[2]);
    const std::lock_guard<std::mutex> lock(mutex_);
    const Key key{launch_, warp.here, std::isnan(result)};
    const auto known = first_.find(key);
    if (known == first_.end() ? first_.size() >= NOTED : known->second.block <= block) return;
    if (other.lane >= 0) other.site = warp.block->site(warp, warp.here, other.lane);
    first_[key] = {
        launch_,         block, step_++, warp.block->site(warp, warp.here, lane), form, result, std::move(operands),
        std::move(other)};
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
        const Birth::Other& other = birth->other;
        text += std::string(text.size() > 1 ? "," : "") + "{\"form\":" + quoted(birth->form) +
                ",\"result\":" + quoted_number(birth->result) + ",\"operands\":" + listed(birth->operands) +
                ",\"by\":" + sim::json(birth->site) +
                ",\"other\":" + (other.lane < 0 ? "null" : sim::json(other.site)) +
                ",\"other_operands\":" + listed(other.operands) + "}";
    }
    return text + "]";
}

std::shared_ptr<const Program> with_births(const Program& plain) {
    auto program = std::make_shared<Traced>(plain);
    for (size_t pc = 0; pc < program->code.size(); ++pc) {
        Instruction& in = program->code[pc];
        Traced::Watched& watched = program->watched[pc];
        watched.arithmetic = arithmetic_of(in);
        program->multiplies |= in.entry->form.compare(0, 3, "mma") == 0;
        if (watched.arithmetic.result != Holds::other)
            in.run = watch_arithmetic;
        else if (matrices_of(in, watched.matrices))
            in.run = watch_product;
    }
    return program;
}

}  // namespace sim
