// compare: setp, set, selp, slct, testp
//
// operands of setp: p, q (or a sink), a, b, c; option: how c joins in.
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

template <class T>
auto comparable(T a) {
    return a;
}
f32 comparable(f16 a) {
    return widen(a);
}
f32 comparable(bf16 a) {
    return widen(a);
}

struct Equal {
    template <class T>
    static bool test(T a, T b) {
        return a == b;
    }
};
struct Less {
    template <class T>
    static bool test(T a, T b) {
        return a < b;
    }
};
struct LessEqual {
    template <class T>
    static bool test(T a, T b) {
        return a <= b;
    }
};
struct Numbers {
    template <class T>
    static bool test(T a, T b) {
        return a == a && b == b;
    }
};
// The remaining comparisons are these with operands swapped or the answer
// turned round: not less is "greater, equal or unordered".
template <class C, bool swapped, bool inverted>
struct Comparison {
    template <class T>
    static bool test(T a, T b) {
        const auto x = comparable(swapped ? b : a), y = comparable(swapped ? a : b);
        return C::test(x, y) != inverted;
    }
};

// ne is ordered for floats: false when a NaN takes part; neu is its unordered
// partner.
struct OrderedUnequal {
    template <class T>
    static bool test(T a, T b) {
        const auto x = comparable(a), y = comparable(b);
        return x < y || x > y;
    }
};
struct UnorderedEqual {
    template <class T>
    static bool test(T a, T b) {
        return !OrderedUnequal::test(a, b);
    }
};

template <class C>
struct Flushed {
    template <class T>
    static bool test(T a, T b) {
        return C::test(flush(a), flush(b));
    }
};

enum class Join : u8 { none, with_and, with_or, with_xor };

Mask join(Mask value, Mask c, u8 option) {
    switch (Join(option)) {
        case Join::with_and:
            return value & c;
        case Join::with_or:
            return value | c;
        case Join::with_xor:
            return value ^ c;
        case Join::none:
            break;
    }
    return value;
}

// One copy for each comparison and type: setp and set share it.
template <class C, class T>
__attribute__((noinline)) Mask test_lanes(const T* a, const T* b) {
    Mask value = 0;
    if constexpr (std::is_class_v<T>) {
        each_lane(ALL, [&](int l) { value |= Mask(C::test(a[l], b[l])) << l; });
        return value;
    }
#pragma GCC ivdep
    for (int l = 0; l < LANES; ++l) value |= Mask(C::test(a[l], b[l])) << l;
    return value;
}

Mask joined(const Warp& warp, const Instruction& in) {
    return in.option ? (in.conditional ? ~warp.predicate(in.operand[4]) : warp.predicate(in.operand[4])) : 0;
}

template <class C, class T>
void set_predicate(Warp& warp, const Instruction& in, Mask mask) {
    const Mask value = test_lanes<C>(warp.row<const T>(in.operand[2]), warp.row<const T>(in.operand[3]));
    const Mask c = joined(warp, in);
    warp.set_predicate(in.operand[0], mask, join(value, c, in.option));
    warp.set_predicate(in.operand[1], mask, join(~value, c, in.option));
}

// setp.f16x2 p|q: p is the low pair's answer, q the high pair's
template <class C, class H>
__attribute__((noinline)) void test_pairs(const pair<H>* a, const pair<H>* b, Mask* low, Mask* high) {
    *low = *high = 0;
    each_lane(ALL, [&](int l) {
        *low |= Mask(C::test(a[l].low, b[l].low)) << l;
        *high |= Mask(C::test(a[l].high, b[l].high)) << l;
    });
}

template <class C, class H>
void set_predicate_pair(Warp& warp, const Instruction& in, Mask mask) {
    Mask low, high;
    test_pairs<C>(warp.row<const pair<H>>(in.operand[2]), warp.row<const pair<H>>(in.operand[3]), &low, &high);
    const Mask c = joined(warp, in);
    warp.set_predicate(in.operand[0], mask, join(low, c, in.option));
    warp.set_predicate(in.operand[1], mask, join(high, c, in.option));
}

template <class D>
D answer(bool value) {
    if constexpr (std::is_floating_point_v<D>) return value ? D(1) : D(0);
    return value ? D(~D(0)) : D(0);
}
template <>
f16 answer<f16>(bool value) {
    return {u16(value ? 0x3c00 : 0)};
}
template <>
bf16 answer<bf16>(bool value) {
    return {u16(value ? 0x3f80 : 0)};
}
template <>
f32 answer<f32>(bool value) {
    return value ? 1.0f : 0.0f;
}

template <class D, class C, class T>
void set_value(Warp& warp, const Instruction& in, Mask mask) {
    const Mask value = test_lanes<C>(warp.row<const T>(in.operand[2]), warp.row<const T>(in.operand[3]));
    const Mask result = join(value, joined(warp, in), in.option);
    D* d = warp.row<D>(in.operand[0]);
    each_lane(mask, [&](int l) { d[l] = answer<D>(result >> l & 1); });
}

template <class D, class C, class H>
void set_pair(Warp& warp, const Instruction& in, Mask mask) {
    Mask lows, highs;
    test_pairs<C>(warp.row<const pair<H>>(in.operand[2]), warp.row<const pair<H>>(in.operand[3]), &lows, &highs);
    const Mask c = joined(warp, in);
    lows = join(lows, c, in.option);
    highs = join(highs, c, in.option);
    D* d = warp.row<D>(in.operand[0]);
    each_lane(mask, [&](int l) {
        const bool low = lows >> l & 1, high = highs >> l & 1;
        if constexpr (sizeof(d[l]) == 4 && std::is_class_v<D>)
            d[l] = {answer<H>(low), answer<H>(high)};
        else
            d[l] = (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u);
    });
}

template <class T>
void select(Warp& warp, const Instruction& in, Mask mask) {
    T* d = warp.row<T>(in.operand[0]);
    const T *a = warp.row<const T>(in.operand[1]), *b = warp.row<const T>(in.operand[2]);
    const Mask p = warp.predicate(in.operand[3]);
#pragma GCC ivdep
    for (int l = 0; l < LANES; ++l) {
        const T chosen = p >> l & 1 ? a[l] : b[l];
        d[l] = mask >> l & 1 ? chosen : d[l];
    }
}

template <class T, class C>
T select_sign(T a, T b, C c) {
    return c >= 0 ? a : b;
}
template <class T>
T select_sign_ftz(T a, T b, f32 c) {
    return select_sign(a, b, flush(c));
}

// ---- rows

// A comparison alone and joined to a predicate. Not a template: a template's
// strings would be compiled over and over.
__attribute__((noinline)) void joined_rows(
    Table& t, const char* name, const std::string& compare, const std::string& type, const Operation& operation) {
    const std::string form = name + compare;
    t.add(form + type, operation, build_setp, Flow::next, u8(Join::none));
    t.add(form + ".and" + type, operation, build_setp, Flow::next, u8(Join::with_and));
    t.add(form + ".or" + type, operation, build_setp, Flow::next, u8(Join::with_or));
    t.add(form + ".xor" + type, operation, build_setp, Flow::next, u8(Join::with_xor));
}

Operation comparison(Handler run, Shape result, Shape operand) {
    return {run, {5, {result, PREDICATE, operand, operand, PREDICATE}}};
}

template <class C, class T>
void setp_rows(Table& t, const std::string& compare, const std::string& type) {
    joined_rows(t, "setp.", compare, type, comparison(set_predicate<C, T>, PREDICATE, shape_of<T>()));
}

template <class D, class C, class T>
void set_rows(Table& t, const std::string& compare, const std::string& type) {
    joined_rows(t, "set.", compare, type, comparison(set_value<D, C, T>, shape_of<D>(), shape_of<T>()));
}

template <class C, class T>
void of_type(Table& t, const std::string& compare, const std::string& type) {
    setp_rows<C, T>(t, compare, type);
    if constexpr (sizeof(T) == 4) {
        set_rows<u32, C, T>(t, compare, ".{u32,s32}" + type);
        set_rows<f32, C, T>(t, compare, ".f32" + type);
    }
}

template <class C>
void of_integers(Table& t, const std::string& compare, const std::string& unsigned_compare) {
    of_type<C, s16>(t, compare, ".s16"), of_type<C, u16>(t, unsigned_compare, ".u16");
    of_type<C, s32>(t, compare, ".s32"), of_type<C, u32>(t, unsigned_compare, ".u32");
    of_type<C, s64>(t, compare, ".s64"), of_type<C, u64>(t, unsigned_compare, ".u64");
}

template <class C>
void of_bits(Table& t, const std::string& compare) {
    of_type<C, u16>(t, compare, ".b16");
    of_type<C, u32>(t, compare, ".b32");
    of_type<C, u64>(t, compare, ".b64");
}

template <class C, class H>
void of_halves(Table& t, const std::string& compare, const std::string& ftz, const std::string& type) {
    setp_rows<C, H>(t, compare, ftz + "." + type);
    set_rows<H, C, H>(t, compare, ftz + "." + type + "." + type);
    set_rows<u16, C, H>(t, compare, ftz + ".{u16,s16}." + type);
    const Shape two = shape_of<pair<H>>();
    const std::string both = ftz + "." + type + "x2";
    joined_rows(t, "setp.", compare, both, comparison(set_predicate_pair<C, H>, PREDICATE, two));
    joined_rows(t, "set.", compare, both + "." + type + "x2", comparison(set_pair<pair<H>, C, H>, two, two));
    joined_rows(t, "set.", compare, ftz + ".{u32,s32}." + type + "x2", comparison(set_pair<u32, C, H>, two, two));
}

template <class C>
void of_floats(Table& t, const std::string& compare) {
    of_type<C, f32>(t, compare, ".f32");
    setp_rows<Flushed<C>, f32>(t, compare, ".ftz.f32");
    set_rows<u32, Flushed<C>, f32>(t, compare, ".ftz.{u32,s32}.f32");
    set_rows<f32, Flushed<C>, f32>(t, compare, ".ftz.f32.f32");
    of_type<C, f64>(t, compare, ".f64");
    of_halves<C, f16>(t, compare, "", "f16");
    of_halves<Flushed<C>, f16>(t, compare, ".ftz", "f16");
    of_halves<C, bf16>(t, compare, "", "bf16");
}

template <class T>
void select_rows(Table& t, const std::string& type) {
    t.add("selp." + type, {select<T>, {4, {shape_of<T>(), shape_of<T>(), shape_of<T>(), PREDICATE}}});
}

template <class T>
void slct_rows(Table& t, const std::string& types) {
    t.add("slct." + types + ".s32", lanewise_cold<select_sign<T, s32>>());
    t.add("slct." + types + ".f32", lanewise_cold<select_sign<T, f32>>());
    t.add("slct." + types + ".ftz.f32", lanewise_cold<select_sign_ftz<T>>());
}

template <int (*classify)(f64)>
void test_property(Warp& warp, const Instruction& in, Mask mask) {
    const f32* a = warp.row<const f32>(in.operand[1]);
    Mask value = 0;
    each_lane(mask, [&](int l) { value |= Mask(classify(f64(a[l])) != 0) << l; });
    warp.set_predicate(in.operand[0], mask, value);
}
int finite(f64 a) {
    return std::isfinite(a);
}
int infinite(f64 a) {
    return std::isinf(a);
}
int number(f64 a) {
    return !std::isnan(a);
}
int not_a_number(f64 a) {
    return std::isnan(a);
}

}  // namespace

void compare_rows(Table& t) {
    using Eq = Comparison<Equal, false, false>;
    using Ne = Comparison<Equal, false, true>;
    using Lt = Comparison<Less, false, false>;
    using Gt = Comparison<Less, true, false>;
    using Le = Comparison<LessEqual, false, false>;
    using Ge = Comparison<LessEqual, true, false>;
    of_integers<Eq>(t, "eq", "eq"), of_bits<Eq>(t, "eq");
    of_integers<Ne>(t, "ne", "ne"), of_bits<Ne>(t, "ne");
    of_integers<Lt>(t, "lt", "{lt,lo}");
    of_integers<Le>(t, "le", "{le,ls}");
    of_integers<Gt>(t, "gt", "{gt,hi}");
    of_integers<Ge>(t, "ge", "{ge,hs}");
    of_floats<Eq>(t, "eq"), of_floats<Lt>(t, "lt"), of_floats<Le>(t, "le");
    of_floats<Gt>(t, "gt"), of_floats<Ge>(t, "ge");
    of_floats<OrderedUnequal>(t, "ne");
    of_floats<UnorderedEqual>(t, "equ");
    of_floats<Ne>(t, "neu");
    of_floats<Comparison<LessEqual, true, true>>(t, "ltu");
    of_floats<Comparison<Less, true, true>>(t, "leu");
    of_floats<Comparison<LessEqual, false, true>>(t, "gtu");
    of_floats<Comparison<Less, false, true>>(t, "geu");
    of_floats<Comparison<Numbers, false, false>>(t, "num");
    of_floats<Comparison<Numbers, false, true>>(t, "nan");
    select_rows<u16>(t, "{b16,u16,s16,f16,bf16}");
    select_rows<u32>(t, "{b32,u32,s32}");
    select_rows<f32>(t, "f32");
    select_rows<u64>(t, "{b64,u64,s64}");
    select_rows<f64>(t, "f64");
    slct_rows<u16>(t, "{b16,u16,s16}"), slct_rows<u32>(t, "{b32,u32,s32}"), slct_rows<f32>(t, "f32");
    slct_rows<u64>(t, "{b64,u64,s64}"), slct_rows<f64>(t, "f64");
    t.add("testp.finite.f32", {test_property<finite>, {2, {PREDICATE, shape_of<f32>()}}});
    t.add("testp.infinite.f32", {test_property<infinite>, {2, {PREDICATE, shape_of<f32>()}}});
    t.add("testp.number.f32", {test_property<number>, {2, {PREDICATE, shape_of<f32>()}}});
    t.add("testp.notanumber.f32", {test_property<not_a_number>, {2, {PREDICATE, shape_of<f32>()}}});
}

}  // namespace sim
