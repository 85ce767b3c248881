// carry: arithmetic of numbers wider than a register: add.cc, addc, sub.cc, subc, mad.cc, madc
//
// Each lane has one carry flag, which the `.cc` forms set and the forms ending in `c` read. A subtraction leaves it set
// where there is no borrow: cards do so, and it shows where one chain has additions and subtractions. The PTX ISA
// (9.7.2, "Extended-Precision Integer Arithmetic Instructions") says of each kind by itself what it does.
#include "operation.h"

namespace sim {

namespace {

enum class Kind { add, sub, mad_lo, mad_hi };

template <class T>
struct Wide {
    using U = std::make_unsigned_t<T>;
    static constexpr int BITS = sizeof(T) * 8;
    static U high(T a, T b) { return U((s128(a) * s128(b)) >> BITS); }
};
template <>
inline u64 Wide<u64>::high(u64 a, u64 b) {
    return u64((u128(a) * u128(b)) >> 64);
}

template <Kind kind, class T, bool reads, bool writes>
void chain(Warp& warp, const Instruction& in, Mask mask) {
    using U = std::make_unsigned_t<T>;
    T* d = warp.row<T>(in.operand[0]);
    const T *a = warp.row<const T>(in.operand[1]), *b = warp.row<const T>(in.operand[2]);
    const T* c = kind == Kind::mad_lo || kind == Kind::mad_hi ? warp.row<const T>(in.operand[3]) : b;
    each_lane(mask, [&](int l) {
        const u128 flag = reads ? (warp.carry >> l & 1) ^ (kind == Kind::sub) : 0;
        u128 first = U(a[l]);
        if (kind == Kind::mad_lo) first = U(U(a[l]) * U(b[l]));
        if (kind == Kind::mad_hi) first = Wide<T>::high(a[l], b[l]);
        const u128 result = kind == Kind::sub ? first - U(b[l]) - flag : first + U(c[l]) + flag;
        d[l] = T(U(result));
        const Mask out = Mask(result >> (sizeof(T) * 8) & 1) ^ (kind == Kind::sub);
        if (writes) warp.carry = (warp.carry & ~(Mask(1) << l)) | out << l;
    });
}

template <Kind kind, class T>
void kind_entries(Table& t, const std::string& name, const std::string& suffix, const std::string& type) {
    constexpr bool three = kind == Kind::mad_lo || kind == Kind::mad_hi;
    const Shape s = shape_of<T>();
    const Signature signature = three ? Signature{4, {s, s, s, s}} : Signature{3, {s, s, s}};
    t.add(name + suffix + ".cc." + type, {chain<kind, T, false, true>, signature});
    t.add(name + "c" + suffix + "." + type, {chain<kind, T, true, false>, signature});
    t.add(name + "c" + suffix + ".cc." + type, {chain<kind, T, true, true>, signature});
}

template <class T>
void type_entries(Table& t, const std::string& type) {
    kind_entries<Kind::add, T>(t, "add", "", type);
    kind_entries<Kind::sub, T>(t, "sub", "", type);
    kind_entries<Kind::mad_lo, T>(t, "mad", ".lo", type);
    kind_entries<Kind::mad_hi, T>(t, "mad", ".hi", type);
}

}  // namespace

void carry_entries(Table& t) {
    type_entries<u32>(t, "u32"), type_entries<s32>(t, "s32");
    type_entries<u64>(t, "u64"), type_entries<s64>(t, "s64");
}

}  // namespace sim
