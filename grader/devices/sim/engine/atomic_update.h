// atomic_update: a value in memory replaced by what an operation makes of it, at once
//
// Blocks run on several host threads: memory is updated with the host's atomics.
#pragma once
#include "operation.h"

namespace sim {

template <size_t>
struct Word;
template <>
struct Word<2> {
    using type = u16;
};
template <>
struct Word<4> {
    using type = u32;
};
template <>
struct Word<8> {
    using type = u64;
};

// Replaces *place by F(*place, b) at once; returns what was there.
template <class T, T (*F)(T, T)>
T update(u8* place, T b) {
    using W = typename Word<sizeof(T)>::type;
    W* word = reinterpret_cast<W*>(place);
    W old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(
        word, &old, bit_cast<W>(F(bit_cast<T>(old), b)), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    return bit_cast<T>(old);
}

template <class T>
T bit_and(T old, T b) {
    return old & b;
}
template <class T>
T bit_or(T old, T b) {
    return old | b;
}
template <class T>
T bit_xor(T old, T b) {
    return old ^ b;
}
inline u32 increment(u32 old, u32 b) {
    return old >= b ? 0 : old + 1;
}
inline u32 decrement(u32 old, u32 b) {
    return old == 0 || old > b ? b : old - 1;
}

}  // namespace sim
