// rounding: single and double precision arithmetic rounded to zero, down or up
//
// The host's own rounding mode is changed around the lanes.
#include <cfenv>

#include "operation.h"

namespace sim {

namespace {

template <class D, class S>
D convert(S a) {
    return D(a);
}

struct Mode {
    explicit Mode(int mode) { std::fesetround(mode); }
    ~Mode() { std::fesetround(FE_TONEAREST); }
};

// The lanes are computed by calls, which the compiler cannot move over those that change the mode.
template <class F, int mode>
void directed(Warp& warp, const Instruction& in, Mask mask) {
    const Mode changed(mode);
    Called<F>::run(warp, in, mask);
}

template <auto F>
void rows(Table& t, std::string_view name, std::string_view types) {
    using Type = decltype(F);
    constexpr std::pair<const char*, Handler> MODES[] = {
        {".rz", directed<Type, FE_TOWARDZERO>},
        {".rm", directed<Type, FE_DOWNWARD>},
        {".rp", directed<Type, FE_UPWARD>},
    };
    Operation operation = lanewise_cold<F>();
    for (auto& [rounding, run] : MODES) {
        operation.run = run;
        t.add({name, rounding, types}, operation);
    }
}

template <class T>
void arithmetic(Table& t, std::string_view type) {
    rows<ieee::add<T>>(t, "add", type);
    rows<ieee::sub<T>>(t, "sub", type);
    rows<ieee::mul<T>>(t, "mul", type);
    rows<ieee::fma<T>>(t, "{fma,mad}", type);
    rows<ieee::divide<T>>(t, "div", type);
    rows<ieee::square_root<T>>(t, "sqrt", type);
    rows<ieee::reciprocal<T>>(t, "rcp", type);
}

template <class D, class S>
void from_integer(Table& t, std::string_view d, std::string_view s) {
    rows<convert<D, S>>(t, "cvt", std::string(d) + std::string(s));
}
template <class D>
void from_integers(Table& t, std::string_view type) {
    from_integer<D, u8>(t, type, ".u8");
    from_integer<D, s8>(t, type, ".s8");
    from_integer<D, u16>(t, type, ".u16");
    from_integer<D, s16>(t, type, ".s16");
    from_integer<D, u32>(t, type, ".u32");
    from_integer<D, s32>(t, type, ".s32");
    from_integer<D, u64>(t, type, ".u64");
    from_integer<D, s64>(t, type, ".s64");
}

}  // namespace

void rounding_entries(Table& t) {
    arithmetic<f32>(t, ".f32");
    arithmetic<f64>(t, ".f64");
    from_integers<f32>(t, ".f32");
    from_integers<f64>(t, ".f64");
    rows<convert<f32, f64>>(t, "cvt", ".f32.f64");
}

}  // namespace sim
