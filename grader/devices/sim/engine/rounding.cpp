// rounding: single and double precision arithmetic rounded to zero, down or up
//
// The host's own rounding mode is changed around the lanes; loads and stores of
// registers cannot move across the calls.
#include <cfenv>

#include "operation.h"

#pragma GCC optimize("rounding-math")

namespace sim {

namespace {

template <class T>
T add(T a, T b) {
    return a + b;
}
template <class T>
T sub(T a, T b) {
    return a - b;
}
template <class T>
T mul(T a, T b) {
    return a * b;
}
template <class T>
T fma(T a, T b, T c) {
    return fused(a, b, c);
}
template <class T>
T divide(T a, T b) {
    return a / b;
}
template <class T>
T square_root(T a) {
    return std::sqrt(a);
}
template <class T>
T reciprocal(T a) {
    return T(1) / a;
}
template <class D, class S>
D convert(S a) {
    return D(a);
}

struct Mode {
    explicit Mode(int mode) { std::fesetround(mode); }
    ~Mode() { std::fesetround(FE_TONEAREST); }
};

template <auto F, int mode>
struct Directed;

template <class D, class... S, D (*F)(S...), int mode>
struct Directed<F, mode> {
    static void run(Warp& warp, const Instruction& in, Mask mask) {
        const Mode directed(mode);
        apply(warp, in, mask, std::index_sequence_for<S...>{});
    }
    template <size_t... I>
    static __attribute__((noinline)) void apply(
        Warp& warp, const Instruction& in, Mask mask, std::index_sequence<I...>) {
        D* d = warp.row<D>(in.operand[0]);
        each_lane(mask, [&](int l) { d[l] = F(warp.row<const S>(in.operand[I + 1])[l]...); });
    }
};

template <class D, class... S>
Signature signature_of(D (*)(S...)) {
    return {u8(1 + sizeof...(S)), {shape_of<D>(), shape_of<S>()...}};
}

template <auto F>
void directed(Table& t, const std::string& name, const std::string& type) {
    t.add(name + ".rz" + type, {Directed<F, FE_TOWARDZERO>::run, signature_of(F)});
    t.add(name + ".rm" + type, {Directed<F, FE_DOWNWARD>::run, signature_of(F)});
    t.add(name + ".rp" + type, {Directed<F, FE_UPWARD>::run, signature_of(F)});
}

template <class T>
void arithmetic(Table& t, const std::string& type) {
    directed<add<T>>(t, "add", type);
    directed<sub<T>>(t, "sub", type);
    directed<mul<T>>(t, "mul", type);
    directed<fma<T>>(t, "{fma,mad}", type);
    directed<divide<T>>(t, "div", type);
    directed<square_root<T>>(t, "sqrt", type);
    directed<reciprocal<T>>(t, "rcp", type);
}

template <class D>
void from_integers(Table& t, const std::string& type) {
    directed<convert<D, u8>>(t, "cvt", type + ".u8");
    directed<convert<D, s8>>(t, "cvt", type + ".s8");
    directed<convert<D, u16>>(t, "cvt", type + ".u16");
    directed<convert<D, s16>>(t, "cvt", type + ".s16");
    directed<convert<D, u32>>(t, "cvt", type + ".u32");
    directed<convert<D, s32>>(t, "cvt", type + ".s32");
    directed<convert<D, u64>>(t, "cvt", type + ".u64");
    directed<convert<D, s64>>(t, "cvt", type + ".s64");
}

}  // namespace

void rounding_rows(Table& t) {
    arithmetic<f32>(t, ".f32");
    arithmetic<f64>(t, ".f64");
    from_integers<f32>(t, ".f32");
    from_integers<f64>(t, ".f64");
    directed<convert<f32, f64>>(t, "cvt", ".f32.f64");
}

}  // namespace sim
