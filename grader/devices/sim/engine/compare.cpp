// compare: setp, set, selp, slct, testp
//
// operands of setp: p, q (or a sink), a, b, c; option: how c joins in. An entry has a Test of its own; the handlers
// know how the operands become what it compares: as they are, or halves and flushed values in single precision.
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

// ---- tests of two rows, a bit for each lane

using Test = Mask (*)(const void* a, const void* b);

template <class T>
bool is_equal(T a, T b) {
    return a == b;
}
template <class T>
bool is_less(T a, T b) {
    return a < b;
}
template <class T>
bool is_less_or_equal(T a, T b) {
    return a <= b;
}
template <class T>
bool are_numbers(T a, T b) {
    return a == a && b == b;
}

template <class T, bool (*compare)(T, T)>
Mask all_lanes(const void* a, const void* b) {
    const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
    Mask value = 0;
#pragma GCC ivdep
    for (int l = 0; l < LANES; ++l) value |= Mask(compare(x[l], y[l])) << l;
    return value;
}
template <class T>
constexpr Test equal = all_lanes<T, is_equal<T>>;
template <class T>
constexpr Test less = all_lanes<T, is_less<T>>;
template <class T>
constexpr Test less_or_equal = all_lanes<T, is_less_or_equal<T>>;
template <class T>
constexpr Test numbers = all_lanes<T, are_numbers<T>>;

// The others are these with the operands swapped or the answer turned round: not less is "greater, equal or unordered".
template <const Test& test>
Mask swapped(const void* a, const void* b) {
    return test(b, a);
}
template <const Test& test>
Mask inverted(const void* a, const void* b) {
    return ~test(a, b);
}
template <const Test& test>
Mask swapped_inverted(const void* a, const void* b) {
    return ~test(b, a);
}
// ne is ordered for floats: false when a NaN takes part; neu is its unordered partner.
template <class T>
Mask ordered_unequal(const void* a, const void* b) {
    return less<T>(a, b) | less<T>(b, a);
}
template <class T>
Mask unordered_equal(const void* a, const void* b) {
    return ~ordered_unequal<T>(a, b);
}

// ---- what is compared

template <class T>
struct Plain {
    using Register = T;
    Plain(const Warp& warp, s32 row) : values(warp.row<const T>(row)) {}
    const T* values;
};

// The part of a register that F turns into single precision.
template <auto F>
struct Single;
template <class T, f32 (*F)(T)>
struct Single<F> {
    using Register = T;
    Single(const Warp& warp, s32 row) {
        const T* from = warp.row<const T>(row);
        for (int l = 0; l < LANES; ++l) values[l] = F(from[l]);
    }
    f32 values[LANES];
};
template <class H>
f32 wide(H a) {
    return widen(a);
}
template <class H>
f32 wide_flushed(H a) {
    return widen(flush(a));
}
template <class H, f32 (*F)(H)>
f32 low(pair<H> a) {
    return F(a.low);
}
template <class H, f32 (*F)(H)>
f32 high(pair<H> a) {
    return F(a.high);
}

template <class Values>
Mask tested(const Warp& warp, const Instruction& in) {
    const Values a(warp, in.operand[2]), b(warp, in.operand[3]);
    return reinterpret_cast<Test>(in.entry->operation.detail)(a.values, b.values);
}

// ---- setp and set

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

Mask joined(const Warp& warp, const Instruction& in) {
    return in.option ? (in.conditional ? ~warp.predicate(in.operand[4]) : warp.predicate(in.operand[4])) : 0;
}

void set_both(Warp& warp, const Instruction& in, Mask mask, Mask p, Mask q) {
    const Mask c = joined(warp, in);
    warp.set_predicate(in.operand[0], mask, join(p, c, in.option));
    warp.set_predicate(in.operand[1], mask, join(q, c, in.option));
}

template <class Values>
void set_predicate(Warp& warp, const Instruction& in, Mask mask) {
    const Mask value = tested<Values>(warp, in);
    set_both(warp, in, mask, value, ~value);
}

// setp.f16x2 p|q: p is the low pair's answer, q the high pair's
template <class Low, class High>
void set_predicate_pair(Warp& warp, const Instruction& in, Mask mask) {
    set_both(warp, in, mask, tested<Low>(warp, in), tested<High>(warp, in));
}

template <class D>
D answer(bool value) {
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

template <class D, class Values>
void set_value(Warp& warp, const Instruction& in, Mask mask) {
    const Mask result = join(tested<Values>(warp, in), joined(warp, in), in.option);
    D* d = warp.row<D>(in.operand[0]);
    each_lane(mask, [&](int l) { d[l] = answer<D>(result >> l & 1); });
}

// Of u16, the pair is the two halves of a 32-bit register.
template <class D, class Low, class High>
void set_pair(Warp& warp, const Instruction& in, Mask mask) {
    const Mask c = joined(warp, in);
    const Mask lows = join(tested<Low>(warp, in), c, in.option), highs = join(tested<High>(warp, in), c, in.option);
    pair<D>* d = warp.row<pair<D>>(in.operand[0]);
    each_lane(mask, [&](int l) { d[l] = {answer<D>(lows >> l & 1), answer<D>(highs >> l & 1)}; });
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

// ---- entries

struct Comparison {
    const char* name;
    Test test;
};
// A handler with the bytes of its result and of its operands.
struct Setter {
    Handler run;
    Shape result, operand;
};

// A comparison alone and joined to a predicate.
void add_entries(
    Table& t, const char* name, const Comparison& comparison, const std::string& types, const Setter& setter) {
    constexpr struct {
        const char* name;
        Join join;
    } JOINS[] = {{"", Join::none}, {".and", Join::with_and}, {".or", Join::with_or}, {".xor", Join::with_xor}};
    const Operation operation{
        setter.run,
        {5, {setter.result, PREDICATE, setter.operand, setter.operand, PREDICATE}},
        reinterpret_cast<void (*)()>(comparison.test)};
    for (auto& way : JOINS)
        t.add(std::string(name) + comparison.name + way.name + types, operation, lower_setp, Flow::next, u8(way.join));
}

template <class Values>
void setp_entries(Table& t, const Comparison& comparison, const std::string& type) {
    const Shape shape = shape_of<typename Values::Register>();
    add_entries(t, "setp.", comparison, type, {set_predicate<Values>, PREDICATE, shape});
}

template <class D, class Values>
void set_entries(Table& t, const Comparison& comparison, const std::string& types) {
    const Shape shape = shape_of<typename Values::Register>();
    add_entries(t, "set.", comparison, types, {set_value<D, Values>, shape_of<D>(), shape});
}

template <class Values>
void of_type(Table& t, const Comparison& comparison, const std::string& type, const std::string& ftz = "") {
    setp_entries<Values>(t, comparison, ftz + type);
    if constexpr (sizeof(typename Values::Register) == 4) {
        set_entries<u32, Values>(t, comparison, ftz + ".{u32,s32}" + type);
        set_entries<f32, Values>(t, comparison, ftz + ".f32" + type);
    }
}

template <class T>
void of_bits(Table& t, const std::string& type) {
    for (const Comparison& c : {Comparison{"eq", equal<T>}, Comparison{"ne", inverted<equal<T>>}})
        of_type<Plain<T>>(t, c, type);
}

template <class T>
void of_integers(Table& t, const std::string& type) {
    constexpr bool is_signed = std::is_signed_v<T>;
    of_bits<T>(t, type);
    for (const Comparison& c : {
             Comparison{is_signed ? "lt" : "{lt,lo}", less<T>},
             Comparison{is_signed ? "le" : "{le,ls}", less_or_equal<T>},
             Comparison{is_signed ? "gt" : "{gt,hi}", swapped<less<T>>},
             Comparison{is_signed ? "ge" : "{ge,hs}", swapped<less_or_equal<T>>},
         })
        of_type<Plain<T>>(t, c, type);
}

template <class H, f32 (*F)(H)>
void of_halves(Table& t, const Comparison& c, const std::string& ftz, const std::string& type) {
    using Low = Single<low<H, F>>;
    using High = Single<high<H, F>>;
    setp_entries<Single<F>>(t, c, ftz + type);
    set_entries<H, Single<F>>(t, c, ftz + type + type);
    set_entries<u16, Single<F>>(t, c, ftz + ".{u16,s16}" + type);
    const Shape two = shape_of<pair<H>>();
    add_entries(t, "setp.", c, ftz + type + "x2", {set_predicate_pair<Low, High>, PREDICATE, two});
    add_entries(t, "set.", c, ftz + type + "x2" + type + "x2", {set_pair<H, Low, High>, two, two});
    add_entries(t, "set.", c, ftz + ".{u32,s32}" + type + "x2", {set_pair<u16, Low, High>, shape_of<u32>(), two});
}

template <class T>
constexpr Comparison FLOATS[] = {
    {"eq", equal<T>},
    {"ne", ordered_unequal<T>},
    {"lt", less<T>},
    {"le", less_or_equal<T>},
    {"gt", swapped<less<T>>},
    {"ge", swapped<less_or_equal<T>>},
    {"equ", unordered_equal<T>},
    {"neu", inverted<equal<T>>},
    {"ltu", swapped_inverted<less_or_equal<T>>},
    {"leu", swapped_inverted<less<T>>},
    {"gtu", inverted<less_or_equal<T>>},
    {"geu", inverted<less<T>>},
    {"num", numbers<T>},
    {"nan", inverted<numbers<T>>},
};

void of_floats(Table& t) {
    for (const Comparison& c : FLOATS<f64>) of_type<Plain<f64>>(t, c, ".f64");
    for (const Comparison& c : FLOATS<f32>) {
        of_type<Plain<f32>>(t, c, ".f32");
        of_type<Single<wide_flushed<f32>>>(t, c, ".f32", ".ftz");
        of_halves<f16, wide<f16>>(t, c, "", ".f16");
        of_halves<f16, wide_flushed<f16>>(t, c, ".ftz", ".f16");
        of_halves<bf16, wide<bf16>>(t, c, "", ".bf16");
    }
}

template <class T>
void select_entries(Table& t, const std::string& type) {
    t.add("selp." + type, {select<T>, {4, {shape_of<T>(), shape_of<T>(), shape_of<T>(), PREDICATE}}});
}

template <class T>
void slct_entries(Table& t, const std::string& types) {
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

void compare_entries(Table& t) {
    of_integers<s16>(t, ".s16"), of_integers<u16>(t, ".u16"), of_bits<u16>(t, ".b16");
    of_integers<s32>(t, ".s32"), of_integers<u32>(t, ".u32"), of_bits<u32>(t, ".b32");
    of_integers<s64>(t, ".s64"), of_integers<u64>(t, ".u64"), of_bits<u64>(t, ".b64");
    of_floats(t);
    select_entries<u16>(t, "{b16,u16,s16,f16,bf16}");
    select_entries<u32>(t, "{b32,u32,s32}");
    select_entries<f32>(t, "f32");
    select_entries<u64>(t, "{b64,u64,s64}");
    select_entries<f64>(t, "f64");
    slct_entries<u16>(t, "{b16,u16,s16}"), slct_entries<u32>(t, "{b32,u32,s32}"), slct_entries<f32>(t, "f32");
    slct_entries<u64>(t, "{b64,u64,s64}"), slct_entries<f64>(t, "f64");
    t.add("testp.finite.f32", {test_property<finite>, {2, {PREDICATE, shape_of<f32>()}}});
    t.add("testp.infinite.f32", {test_property<infinite>, {2, {PREDICATE, shape_of<f32>()}}});
    t.add("testp.number.f32", {test_property<number>, {2, {PREDICATE, shape_of<f32>()}}});
    t.add("testp.notanumber.f32", {test_property<not_a_number>, {2, {PREDICATE, shape_of<f32>()}}});
}

}  // namespace sim
