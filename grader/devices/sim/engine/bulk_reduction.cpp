// bulk_reduction: cp.reduce.async.bulk, and what each of its values does
//
// Every value is an atomic of its own, relaxed. PTX ISA 9.7.9.25.5, "cp.reduce.async.bulk": halves are added to
// nearest, with denormals; min and max of halves take the number where one is NaN.
#include <algorithm>

#include "atomic_update.h"
#include "block.h"
#include "bulk_copy.h"
#include "check_access.h"
#include "decode.h"
#include "operation.h"
#include "reduction.h"

namespace sim {

namespace {

template <class T, T (*F)(T, T)>
void apply(u8* place, const u8* value) {
    T b;
    std::memcpy(&b, value, sizeof b);
    update<T, F>(place, b);
}

template <class T>
T add(T a, T b) {
    if constexpr (std::is_arithmetic_v<T>)
        return T(a + b);
    else
        return narrow<T>(widen(a) + widen(b));
}
// std::fmin and std::fmax give NaN where an operand is a signaling one.
template <class T, f32 (*F)(f32, f32)>
T number_of(T a, T b) {
    const f32 x = widen(a), y = widen(b);
    return std::isnan(x) ? b : std::isnan(y) ? a : narrow<T>(F(x, y));
}
template <class T>
T least(T a, T b) {
    if constexpr (std::is_arithmetic_v<T>)
        return b < a ? b : a;
    else
        return number_of<T, std::fmin>(a, b);
}
template <class T>
T most(T a, T b) {
    if constexpr (std::is_arithmetic_v<T>)
        return b > a ? b : a;
    else
        return number_of<T, std::fmax>(a, b);
}
template <class T>
Combine order(const std::string& operation) {
    return operation == "min" ? apply<T, least<T>> : operation == "max" ? apply<T, most<T>> : nullptr;
}
template <class T>
Combine arithmetic(const std::string& operation) {
    return operation == "add" ? apply<T, add<T>> : order<T>(operation);
}
template <class T>
Combine logic(const std::string& operation) {
    return operation == "and"   ? apply<T, bit_and<T>>
           : operation == "or"  ? apply<T, bit_or<T>>
           : operation == "xor" ? apply<T, bit_xor<T>>
                                : nullptr;
}
Combine any_u32(const std::string& operation) {
    if (operation == "inc") return apply<u32, increment>;
    if (operation == "dec") return apply<u32, decrement>;
    const Combine found = arithmetic<u32>(operation);
    return found ? found : logic<u32>(operation);
}
template <class T>
Combine any_integer(const std::string& operation) {
    const Combine found = arithmetic<T>(operation);
    return found ? found : logic<std::make_unsigned_t<T>>(operation);
}

}  // namespace

Combine combine_of(const std::string& operation, TensorType type) {
    switch (type) {
        case TensorType::u32:
            return any_u32(operation);
        case TensorType::s32:
            return any_integer<s32>(operation);
        case TensorType::u64:
            return any_integer<u64>(operation);
        case TensorType::s64:
            return any_integer<s64>(operation);
        case TensorType::f16:
            return arithmetic<f16>(operation);
        case TensorType::bf16:
            return arithmetic<bf16>(operation);
        case TensorType::f32:
            return operation == "add" ? apply<f32, add<f32>> : nullptr;
        case TensorType::f64:
            return operation == "add" ? apply<f64, add<f64>> : nullptr;
        default:
            return nullptr;
    }
}

namespace {

struct Row {
    const char *operation, *types;
};
constexpr Row ROWS[] = {
    {"add", "u32 s32 u64 f16 bf16 f32 f64"},
    {"min", "u32 s32 u64 s64 f16 bf16"},
    {"max", "u32 s32 u64 s64 f16 bf16"},
    {"inc", "u32"},
    {"dec", "u32"},
    {"and", "b32 b64"},
    {"or", "b32 b64"},
    {"xor", "b32 b64"},
};
struct TypeName {
    const char* name;
    TensorType type;
};
constexpr TypeName TYPE_NAMES[] = {
    {"u32", TensorType::u32}, {"s32", TensorType::s32}, {"u64", TensorType::u64}, {"s64", TensorType::s64},
    {"f16", TensorType::f16}, {"f32", TensorType::f32}, {"f64", TensorType::f64}, {"bf16", TensorType::bf16},
    {"b32", TensorType::u32}, {"b64", TensorType::u64},
};

}  // namespace

Combine combine_of_form(const std::string& form, u32* bytes) {
    const std::string type = form.substr(form.rfind('.') + 1);
    for (const Row& row : ROWS) {
        if (form.find("." + std::string(row.operation) + ".") == std::string::npos) continue;
        for (const TypeName& known : TYPE_NAMES) {
            if (known.name != type) continue;
            *bytes = bytes_of(known.type);
            return combine_of(row.operation, known.type);
        }
    }
    return nullptr;
}

namespace {

void reduce(Warp& warp, const Instruction& in, Mask mask) {
    u64 to[LANES];
    lane_addresses(warp, in, to);
    u32 item = 0;
    const Combine combine = combine_of_form(in.entry->form, &item);
    each_lane(mask, [&](int l) {
        BulkCopy copy = bulk_copy(warp, in, l);
        copy.combine = combine;
        copy.item = item;
        take_source(warp, copy);
        copy.add_piece(to[l], 0, u32(copy.bytes));
        if (Counters* counters = warp.block->counters.get())
            counters->bulk(warp, to[l], u32(copy.bytes), Access::write), counters->tma(warp, copy.bytes, 0, 1);
        warp.launch->note_order(warp.here, in.option);
        warp.block->copies.issue_bulk(warp, std::move(copy));
    });
}

}  // namespace

void bulk_reduction_entries(Table& t) {
    for (const Row& row : ROWS) {
        const std::string types = row.types;
        for (size_t start = 0; start < types.size(); start += types.find(' ', start) - start + 1) {
            const std::string type = types.substr(start, types.find(' ', start) - start);
            const bool is_half = type == "f16" || type == "bf16", adds = std::string(row.operation) == "add";
            t.add(
                "cp.reduce.async.bulk.global.shared::cta.bulk_group{,.L2::cache_hint}." + std::string(row.operation) +
                    (is_half && adds ? ".noftz." : ".") + type,
                {reduce, {}}, lower_bulk_store, Flow::next, adds && (type[0] == 'f' || type == "bf16"));
            if (types.find(' ', start) == std::string::npos) break;
        }
    }
}

}  // namespace sim
