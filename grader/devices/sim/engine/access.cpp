// access: ld and st, after their accesses are checked
#include "decode.h"
#include "operation.h"
#include "check_access.h"

namespace sim {

namespace {

template <class T>
void gather(T* d, u8* const* at, u32 offset, Mask mask, Spread spread) {
    if (mask != ALL) return each_lane(mask, [&](int l) { std::memcpy(d + l, at[l] + offset, sizeof(T)); });
    if (spread == Spread::row) {
        std::memcpy(d, at[0] + offset, sizeof(T) * LANES);
    } else if (spread == Spread::same) {
        T value;
        std::memcpy(&value, at[0] + offset, sizeof(T));
        for (int l = 0; l < LANES; ++l) d[l] = value;
    } else {
        for (int l = 0; l < LANES; ++l) std::memcpy(d + l, at[l] + offset, sizeof(T));
    }
}

template <class T, int count>
void load(Warp& warp, const Instruction& in, Mask mask) {
    u8* at[LANES];
    Spread spread = in.check_access(warp, in, mask, sizeof(T) * count, Access::read, at);
    if (count > 1 && spread == Spread::row) {  // the like elements of the lanes are apart
        for (u32 l = 1; l < LANES; ++l) at[l] = at[0] + l * sizeof(T) * count;
        spread = Spread::any;
    }
    for (int i = 0; i < count; ++i) gather(warp.row<T>(in.operand[i]), at, u32(i * sizeof(T)), mask, spread);
}

template <class T, int count>
void store(Warp& warp, const Instruction& in, Mask mask) {
    u8* at[LANES];
    in.check_access(warp, in, mask, sizeof(T) * count, Access::write, at);
    // Lane by lane, so that the highest lane wins where several write one place.
    each_lane(mask, [&](int l) {
        for (int i = 0; i < count; ++i)
            std::memcpy(at[l] + i * sizeof(T), warp.row<const T>(in.operand[i]) + l, sizeof(T));
    });
}

template <class T, int count>
Signature signature() {
    Signature s{count, {}};
    for (int i = 0; i < count; ++i) s.shape[i] = shape_of<T>();
    return s;
}

template <class T, int count>
void vector_entries(Table& t, const std::string& form) {
    t.add("ld." + form, {load<T, count>, signature<T, count>()}, lower_load);
    t.add("st." + form, {store<T, count>, signature<T, count>()}, lower_store);
}

template <class T>
void type_entries(Table& t, const std::string& types) {
    vector_entries<T, 1>(t, types);
    vector_entries<T, 2>(t, "v2." + types);
    if constexpr (sizeof(T) <= 8) vector_entries<T, 4>(t, "v4." + types);
    if constexpr (sizeof(T) == 4) vector_entries<T, 8>(t, "v8." + types);
}

void nothing(Warp&, const Instruction&, Mask) {}

}  // namespace

void access_entries(Table& t) {
    type_entries<u8>(t, "{b8,u8}");
    type_entries<s8>(t, "s8");
    type_entries<u16>(t, "{b16,u16,f16,bf16}");
    type_entries<s16>(t, "s16");
    type_entries<u32>(t, "{b32,u32,f16x2,bf16x2}");
    type_entries<s32>(t, "s32");
    type_entries<f32>(t, "f32");
    type_entries<u64>(t, "{b64,u64,s64}");
    type_entries<f64>(t, "f64");
    vector_entries<u128, 1>(t, "b128");
    t.add("prefetch{,.global,.local}.{L1,L2}", {nothing, {}}, lower_nothing);
    t.add("prefetch.global.L2::{evict_last,evict_normal}", {nothing, {}}, lower_nothing);
    t.add("prefetchu.L1", {nothing, {}}, lower_nothing);
    t.add("discard{,.global}.L2", {nothing, {}}, lower_nothing);
    t.add("applypriority{,.global}.L2::evict_normal", {nothing, {}}, lower_nothing);
}

}  // namespace sim
