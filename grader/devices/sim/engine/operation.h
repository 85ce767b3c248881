// operation: the tables that say which instruction form runs which handler
//
// One row is one full form as PTX writes it, without the hints that change no
// result. Alternatives in braces that share a handler stand in one pattern:
// "add.{u32,s32}". A form that no row has is refused by name.
#pragma once
#include <deque>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program.h"
#include "warp.h"

namespace sim {

class Decoder;

struct Shape {
    u8 bytes = 0;  // of one lane; 0: predicate
    bool is_signed = false;
    bool floating = false;
};

template <class T>
constexpr Shape shape_of() {
    return {sizeof(T), std::is_signed_v<T> && !std::is_floating_point_v<T>, std::is_floating_point_v<T>};
}

constexpr Shape PREDICATE{0, false, false};

struct Signature {
    u8 count = 0;
    Shape shape[OPERANDS] = {};
};

struct Operation {
    Handler run = nullptr;
    Signature signature;
    void (*detail)() = nullptr;  // a function that tells rows with the same handler apart; the handler knows its type
};

// Turns the operands of one parsed instruction into those of a decoded one.
using Builder = void (*)(Decoder&, const ptx::Instruction&, const Row&);
void positional(Decoder&, const ptx::Instruction&,
                const Row&);  // destination first, then sources, all registers

struct Row {
    std::string form;
    Operation operation;
    Builder build = positional;
    Flow flow = Flow::next;
    u8 option = 0;
};

class Table {
 public:
    void add(
        std::string_view pattern, Operation operation, Builder build = positional, Flow flow = Flow::next,
        u8 option = 0);
    // The same with a pattern in pieces, which compile faster than their sum: templates of rows use it.
    void add(
        std::initializer_list<std::string_view> pieces, Operation operation, Builder build = positional,
        Flow flow = Flow::next, u8 option = 0);
    const Row* find(const std::string& form) const;
    const std::deque<Row>& rows() const { return rows_; }

 private:
    std::deque<Row> rows_;
    std::unordered_map<std::string_view, const Row*> index_;
};

// The table of all instructions, built on first use.
const Table& operations();

// One function for each file of operations.
void integer_rows(Table&);
void wide_integer_rows(Table&);
void division_rows(Table&);
void carry_rows(Table&);
void float_rows(Table&);
void rounding_rows(Table&);
void half_rows(Table&);
void convert_rows(Table&);
void float_convert_rows(Table&);
void compare_rows(Table&);
void predicate_rows(Table&);
void move_rows(Table&);
void access_rows(Table&);
void atomic_rows(Table&);
void collective_rows(Table&);
void matrix_rows(Table&);
void mma_rows(Table&);
void wmma_rows(Table&);
void float8_rows(Table&);
void packed_integer_rows(Table&);
void control_rows(Table&);
void call_rows(Table&);
void asynchronous_rows(Table&);
void mbarrier_rows(Table&);

// ---- handlers made of a plain function of one lane

template <class F>
inline __attribute__((always_inline)) void each_lane(Mask mask, F f) {
    for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
}

template <class D, class... S>
constexpr Signature signature_of(D (*)(S...)) {
    return {u8(1 + sizeof...(S)), {shape_of<D>(), shape_of<S>()...}};
}

// One handler for each function: the lanes become vector code.
template <auto F>
struct Lanewise;

template <class D, class... S, D (*F)(S...)>
struct Lanewise<F> {
    static void run(Warp& warp, const Instruction& in, Mask mask) {
        apply(warp, in, mask, std::index_sequence_for<S...>{});
    }

    template <size_t... I>
    static void apply(Warp& warp, const Instruction& in, Mask mask, std::index_sequence<I...>) {
        lanes(mask, warp.row<D>(in.operand[0]), warp.row<const S>(in.operand[I + 1])...);
    }

    static void lanes(Mask mask, D* d, const S*... s) {
        if (mask == ALL) {
#pragma GCC ivdep
            for (int l = 0; l < LANES; ++l) d[l] = F(s[l]...);
        } else {
            each_lane(mask, [&](int l) { d[l] = F(s[l]...); });
        }
    }
};

// One handler for all functions of a type, which calls the row's own: slower to run, far faster to compile.
template <class F>
struct Called;

template <class D, class... S>
struct Called<D (*)(S...)> {
    static void run(Warp& warp, const Instruction& in, Mask mask) {
        apply(warp, in, mask, std::index_sequence_for<S...>{});
    }

    template <size_t... I>
    static void apply(Warp& warp, const Instruction& in, Mask mask, std::index_sequence<I...>) {
        const auto f = reinterpret_cast<D (*)(S...)>(in.row->operation.detail);
        D* d = warp.row<D>(in.operand[0]);
        each_lane(mask, [&](int l) { d[l] = f(warp.row<const S>(in.operand[I + 1])[l]...); });
    }
};

template <auto F>
Operation lanewise() {
    return {Lanewise<F>::run, signature_of(F)};
}

template <auto F>
Operation lanewise_cold() {
    return {Called<decltype(F)>::run, signature_of(F), reinterpret_cast<void (*)()>(F)};
}

}  // namespace sim
