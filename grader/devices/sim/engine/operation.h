// operation: the tables that say which instruction form runs which handler
//
// One entry is one full form as PTX writes it, without the hints that change no
// result. Alternatives in braces that share a handler stand in one pattern:
// "add.{u32,s32}". A form that no entry has is refused by name.
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
    void (*detail)() =
        nullptr;  // a function that tells entries with the same handler apart; the handler knows its type
};

// Turns the operands of one parsed instruction into those of a decoded one.
using Lowering = void (*)(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_positional(
    Decoder&, const ptx::Instruction&,
    const OpcodeEntry&);  // destination first, then sources, all registers

struct OpcodeEntry {
    std::string form;
    Operation operation;
    Lowering lower = lower_positional;
    Flow flow = Flow::next;
    u8 option = 0;

    bool is_bulk() const { return form.find(".bulk") != std::string::npos; }  // of the asynchronous proxy
};

class Table {
 public:
    void add(
        std::string_view pattern, Operation operation, Lowering lower = lower_positional, Flow flow = Flow::next,
        u8 option = 0);
    // The same with a pattern in pieces, which compile faster than their sum: templates of entries use it.
    void add(
        std::initializer_list<std::string_view> pieces, Operation operation, Lowering lower = lower_positional,
        Flow flow = Flow::next, u8 option = 0);
    const OpcodeEntry* find(const std::string& form) const;
    // The entry of the same opcode, types and modifiers, whose modifiers may stand in another order.
    const OpcodeEntry* find_reordered(const std::string& form) const;
    const std::deque<OpcodeEntry>& entries() const { return entries_; }

 private:
    std::deque<OpcodeEntry> entries_;
    std::unordered_map<std::string_view, const OpcodeEntry*> index_;
};

// The table of all instructions, built on first use.
const Table& operations();

// One function for each file of operations.
void integer_entries(Table&);
void wide_integer_entries(Table&);
void division_entries(Table&);
void carry_entries(Table&);
void float_entries(Table&);
void rounding_entries(Table&);
void half_entries(Table&);
void convert_entries(Table&);
void float_convert_entries(Table&);
void compare_entries(Table&);
void predicate_entries(Table&);
void move_entries(Table&);
void access_entries(Table&);
void atomic_entries(Table&);
void collective_entries(Table&);
void matrix_entries(Table&);
void mma_entries(Table&);
void wmma_entries(Table&);
void float8_entries(Table&);
void packed_integer_entries(Table&);
void video_entries(Table&);
void control_entries(Table&);
void call_entries(Table&);
void texture_entries(Table&);
void asynchronous_entries(Table&);
void wgmma_entries(Table&);
void register_pool_entries(Table&);
void dependent_launch_entries(Table&);
void cluster_entries(Table&);
void cluster_copy_entries(Table&);
void tensor_copy_entries(Table&);
void map_change_entries(Table&);
void bulk_reduction_entries(Table&);
void mbarrier_entries(Table&);

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

// One handler for all functions of a type, which calls the entry's own: slower to run, far faster to compile.
template <class F>
struct Called;

template <class D, class... S>
struct Called<D (*)(S...)> {
    static void run(Warp& warp, const Instruction& in, Mask mask) {
        apply(warp, in, mask, std::index_sequence_for<S...>{});
    }

    template <size_t... I>
    static void apply(Warp& warp, const Instruction& in, Mask mask, std::index_sequence<I...>) {
        const auto f = reinterpret_cast<D (*)(S...)>(in.entry->operation.detail);
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
