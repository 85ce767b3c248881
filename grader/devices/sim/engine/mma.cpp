// mma: mma.sync in the shapes of Ampere, Ada and Hopper
//
// PTX ISA 9.7.14.5, "mma". m8n8k4 of halves, Volta's, has fragments of its own
// and is not here.
#include "mma.h"

#include "operation.h"

namespace sim {

namespace {

const std::string MMA = "mma.sync.aligned.";

template <int K>
void half_entries(Table& t) {
    const std::string shape = MMA + "m16n8k" + std::to_string(K) + ".row.col.";
    Product<f16, f16, f32, f32, 16, 8, K>::add(t, shape + "f32.f16.f16.f32");
    Product<f16, f16, f16, f16, 16, 8, K>::add(t, shape + "f16.f16.f16.f16");
    Product<f16, f16, f16, f32, 16, 8, K>::add(t, shape + "f32.f16.f16.f16");
    Product<f16, f16, f32, f16, 16, 8, K>::add(t, shape + "f16.f16.f16.f32");
    Product<bf16, bf16, f32, f32, 16, 8, K>::add(t, shape + "f32.bf16.bf16.f32");
}

template <int K>
void tf32_entries(Table& t) {
    const std::string form = MMA + "m16n8k" + std::to_string(K) + ".row.col.f32.tf32.tf32.f32";
    Product<tf32, tf32, f32, f32, 16, 8, K>::add(t, form);
}

template <class A, class B>
void float8_products(Table& t, const std::string& types) {
    for (const char* kind : {"", "kind::f8f6f4."})
        Product<A, B, f32, f32, 16, 8, 32, 0, Overflow::wrap, Order::pairs>::add(
            t, MMA + "m16n8k32.row.col." + kind + "f32." + types + ".f32");
}

template <class A, class B, int M, int K>
void byte_shape(Table& t, const std::string& types) {
    const std::string shape = MMA + "m" + std::to_string(M) + "n8k" + std::to_string(K) + ".row.col.";
    const std::string rest = "s32." + types + ".s32";
    Product<A, B, s32, s32, M, 8, K>::add(t, shape + rest);
    Product<A, B, s32, s32, M, 8, K, 0, Overflow::saturate>::add(t, shape + "satfinite." + rest);
}
template <class A, class B>
void byte_products(Table& t, const std::string& types) {
    byte_shape<A, B, 8, 16>(t, types);
    byte_shape<A, B, 16, 16>(t, types);
    byte_shape<A, B, 16, 32>(t, types);
}

template <int M, int K>
void double_row(Table& t) {
    const std::string shape = MMA + "m" + std::to_string(M) + "n8k" + std::to_string(K) + ".row.col";
    Product<f64, f64, f64, f64, M, 8, K>::add(t, shape + "{,.rn}.f64.f64.f64.f64");
}

}  // namespace

void mma_entries(Table& t) {
    half_entries<8>(t), half_entries<16>(t);
    tf32_entries<4>(t), tf32_entries<8>(t);
    float8_products<e4m3, e4m3>(t, "e4m3.e4m3"), float8_products<e4m3, e5m2>(t, "e4m3.e5m2");
    float8_products<e5m2, e4m3>(t, "e5m2.e4m3"), float8_products<e5m2, e5m2>(t, "e5m2.e5m2");
    byte_products<s8, s8>(t, "s8.s8"), byte_products<s8, u8>(t, "s8.u8");
    byte_products<u8, s8>(t, "u8.s8"), byte_products<u8, u8>(t, "u8.u8");
    double_row<8, 4>(t), double_row<16, 4>(t), double_row<16, 8>(t), double_row<16, 16>(t);
}

}  // namespace sim
