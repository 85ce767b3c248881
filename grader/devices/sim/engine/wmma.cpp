// wmma: fragments of whole tiles, loaded, multiplied and stored
//
// PTX ISA 9.7.14.4. It leaves open which lane holds which element; here the
// fragments have Hopper's layout, which is that of mma (fragment.h). m8n32k16
// is made of m32n8k16 transposed: its b is laid out as that one's a, its c as that
// one's c. Operands are loaded as nvcc's machine code does it, which is what the
// counters count: halves by ldmatrix, 16 bytes of eight lines at a time, 32-bit
// elements one to a lane. Other tiles are read and written 16 bytes a lane, line by
// line. One call of check_access moves up to 512 bytes.
#include <algorithm>
#include <cstring>

#include "mma.h"
#include "check_access.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u32 CHUNK = 16;  // bytes of one lane's access, unless a line is shorter

// Operands of loads and stores.
enum { REGISTERS, ADDRESSES, STRIDE };

u64 base_address(const Warp& warp, const Instruction& in, int lane) {
    if (in.address < 0) return u64(in.immediate);
    if (in.wide_address) return warp.row<const u64>(in.address)[lane] + u64(in.immediate);
    return u32(warp.row<const u32>(in.address)[lane] + u32(in.immediate));
}

// One access of the warp, at the addresses that it is given.
Instruction step_of(const Instruction& in) {
    Instruction step = in;
    step.address = in.operand[ADDRESSES];
    step.wide_address = true;
    step.immediate = 0;
    return step;
}

u64 stride_bytes(const Warp& warp, const Instruction& in) {
    return u64(in.option) * warp.row<const u32>(in.operand[STRIDE])[0];
}

enum class Dealt { line_by_line, as_ldmatrix };

// Between memory, where lines are a stride apart, and a tile whose lines stand together.
void move_tile(
    Warp& warp, const Instruction& in, Mask mask, u32 lines, u32 line_bytes, Access access, Dealt dealt, u8* tile) {
    require_whole_warp(warp, in, mask);
    const u32 bytes = line_bytes < CHUNK ? line_bytes : CHUNK, per_line = line_bytes / bytes, chunks = lines * per_line;
    const u64 base = base_address(warp, in, 0), stride = stride_bytes(warp, in);
    const Instruction step = step_of(in);
    u64* address = warp.row<u64>(step.address);
    const auto line = [&](u32 chunk) { return dealt == Dealt::as_ldmatrix ? chunk % lines : chunk / per_line; };
    const auto place = [&](u32 chunk) { return dealt == Dealt::as_ldmatrix ? chunk / lines : chunk % per_line; };
    for (u32 from = 0; from < chunks; from += LANES) {
        const u32 count = chunks - from < LANES ? chunks - from : LANES;
        for (u32 l = 0; l < count; ++l) address[l] = base + line(from + l) * stride + place(from + l) * bytes;
        u8* at[LANES];
        check_each_lane(warp, step, ALL >> (LANES - count), bytes, access, at);
        for (u32 l = 0; l < count; ++l) {
            u8* part = tile + line(from + l) * line_bytes + place(from + l) * bytes;
            access == Access::read ? std::memcpy(part, at[l], bytes) : std::memcpy(at[l], part, bytes);
        }
    }
}

enum class Operand { a, b, accumulator };

// Visits each element of a fragment: its register, its place in the register's row, its row and column in the tile.
template <Operand operand, class T, class Word, int rows, int columns, class Visit>
void each_element(Visit visit) {
    if constexpr (columns > 2 * CORE) {
        constexpr Operand turned = operand == Operand::b ? Operand::a : operand;
        return each_element<turned, T, Word, columns, rows>(
            [&](int i, int e, int column, int row) { visit(i, e, row, column); });
    }
    constexpr bool split = operand == Operand::accumulator && sizeof(T) >= 4;  // even and odd columns
    constexpr int core = operand == Operand::accumulator ? COLUMNS : core_columns<T, Word>;
    for (int i = 0; i < rows * columns / (CORE * core); ++i) {
        const bool down = operand == Operand::b;
        const Corner at = down ? corner_of_b(i, rows, core) : corner_of_a(i, rows, columns, core);
        for (int e = 0; e < CORE * core; ++e) {
            const int outer = e / core, inner = e % core;
            const int row = at.row + (down ? inner : outer), column = at.column + (down ? outer : inner);
            visit(split ? 2 * i + e % 2 : i, split ? e / 2 : e, row, column);
        }
    }
}

template <Operand operand, class T, class Word, int rows, int columns, bool row_major, int least = 0>
struct Tile {
    static constexpr int elements = rows * columns;
    static constexpr int lines = row_major ? rows : columns, line = elements / lines;
    static constexpr int needed = elements / LANES * int(sizeof(T)) / int(sizeof(Word));
    static constexpr Group GROUP{shape_of<Word>(), needed < least ? least : needed};

    static int index(int row, int column) { return row_major ? row * columns + column : column * rows + row; }
    static const s32* registers(const Warp& warp, const Instruction& in) {
        return warp.block->program->fragments.data() + in.operand[REGISTERS];
    }

    static constexpr bool words = operand != Operand::accumulator && sizeof(T) == 4;
    static constexpr bool halves = operand != Operand::accumulator && sizeof(T) == 2;

    static void load(Warp& warp, const Instruction& in, Mask mask) {
        const s32* rows_of = registers(warp, in);
        if (words && (base_address(warp, in, 0) | stride_bytes(warp, in)) % CHUNK == 0) {
            load_words(warp, in, mask);
        } else {
            alignas(64) T tile[elements];
            const Dealt dealt = halves ? Dealt::as_ldmatrix : Dealt::line_by_line;
            move_tile(warp, in, mask, lines, line * sizeof(T), Access::read, dealt, reinterpret_cast<u8*>(tile));
            each_element<operand, T, Word, rows, columns>(
                [&](int i, int e, int row, int column) { warp.row<T>(rows_of[i])[e] = tile[index(row, column)]; });
        }
        for (int i = needed; i < GROUP.count; ++i)
            std::memcpy(warp.row<Word>(rows_of[i]), warp.row<Word>(rows_of[i % needed]), sizeof(Word) * LANES);
    }

    // To each register an access of one element a lane.
    static void load_words(Warp& warp, const Instruction& in, Mask mask) {
        require_whole_warp(warp, in, mask);
        const u64 base = base_address(warp, in, 0), stride = stride_bytes(warp, in);
        u64 from[needed][LANES];
        each_element<operand, T, Word, rows, columns>([&](int i, int e, int row, int column) {
            const int along = row_major ? column : row, across = row_major ? row : column;
            from[i][e] = base + u64(across) * stride + u64(along) * sizeof(T);
        });
        const Instruction step = step_of(in);
        const s32* rows_of = registers(warp, in);
        for (int i = 0; i < needed; ++i) {
            std::copy(from[i], from[i] + LANES, warp.row<u64>(step.address));
            u8* at[LANES];
            check_each_lane(warp, step, ALL, sizeof(T), Access::read, at);
            for (int l = 0; l < LANES; ++l) std::memcpy(&warp.row<T>(rows_of[i])[l], at[l], sizeof(T));
        }
    }

    static void store(Warp& warp, const Instruction& in, Mask mask) {
        alignas(64) T tile[elements];
        const s32* rows_of = registers(warp, in);
        each_element<operand, T, Word, rows, columns>(
            [&](int i, int e, int row, int column) { tile[index(row, column)] = warp.row<const T>(rows_of[i])[e]; });
        move_tile(
            warp, in, mask, lines, line * sizeof(T), Access::write, Dealt::line_by_line, reinterpret_cast<u8*>(tile));
    }

    // Without a stride the lines stand together.
    static Instruction begin(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry, size_t address) {
        d.require(in, 2);
        Instruction out = warp_sync_instruction(d, in, entry);
        const u32 least_bytes = words ? sizeof(T) : CHUNK;
        d.address(out, in.operands[address], in, line * sizeof(T) < least_bytes ? line * sizeof(T) : least_bytes);
        out.operand[ADDRESSES] = d.sink(8);
        out.operand[STRIDE] =
            in.operands.size() > 2 ? d.source(in.operands[2], shape_of<u32>()) : d.constant(u64(line), 4);
        out.option = sizeof(T);
        return out;
    }
    static void lower_load(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
        Instruction out = begin(d, in, entry, 1);
        std::vector<s32> rows_of;
        append_destinations(d, in.operands[0], GROUP, rows_of);
        out.operand[REGISTERS] = d.fragments(rows_of);
        d.emit(out);
    }
    static void lower_store(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
        Instruction out = begin(d, in, entry, 0);
        std::vector<s32> rows_of;
        append_sources(d, in.operands[1], GROUP, rows_of);
        out.operand[REGISTERS] = d.fragments(rows_of);
        d.emit(out);
    }
};

// "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"
std::string form(const std::string& what, bool row_major, const std::string& shape, const std::string& type) {
    return "wmma." + what + ".sync.aligned." + (row_major ? "row." : "col.") + shape +
           "{,.global,.shared,.shared::cta}." + type;
}

template <Operand operand, class T, class Word, int rows, int columns, int least, bool row_major>
void load_row(Table& t, const std::string& what, const std::string& shape, const std::string& type) {
    using Of = Tile<operand, T, Word, rows, columns, row_major, least>;
    t.add(form("load." + what, row_major, shape, type), {Of::load, {}}, Of::lower_load, Flow::warp_sync);
}

// a and b, in both orders
template <class T, class Word, int M, int N, int K, int least>
void factors(Table& t, const std::string& shape, const std::string& type) {
    load_row<Operand::a, T, Word, M, K, least, true>(t, "a", shape, type);
    load_row<Operand::a, T, Word, M, K, least, false>(t, "a", shape, type);
    load_row<Operand::b, T, Word, K, N, least, true>(t, "b", shape, type);
    load_row<Operand::b, T, Word, K, N, least, false>(t, "b", shape, type);
}

template <class T, class Word, int M, int N, bool row_major>
void accumulator(Table& t, const std::string& shape, const std::string& type) {
    load_row<Operand::accumulator, T, Word, M, N, 0, row_major>(t, "c", shape, type);
    using Of = Tile<Operand::accumulator, T, Word, M, N, row_major>;
    t.add(form("store.d", row_major, shape, type), {Of::store, {}}, Of::lower_store, Flow::warp_sync);
}
template <class T, class Word, int M, int N>
void accumulators(Table& t, const std::string& shape, const std::string& type) {
    accumulator<T, Word, M, N, true>(t, shape, type);
    accumulator<T, Word, M, N, false>(t, shape, type);
}

const std::string MMA = "wmma.mma.sync.aligned.{row,col}.{row,col}.";

// Fragments of halves have eight registers in every shape.
template <int M, int N>
void half_products(Table& t, const std::string& shape) {
    Product<f16, f16, f32, f32, M, N, 16, 8>::add(t, MMA + shape + ".f32.f32");
    Product<f16, f16, f16, f16, M, N, 16, 8>::add(t, MMA + shape + ".f16.f16");
    Product<f16, f16, f16, f32, M, N, 16, 8>::add(t, MMA + shape + ".f32.f16");
    Product<f16, f16, f32, f16, M, N, 16, 8>::add(t, MMA + shape + ".f16.f32");
    Product<bf16, bf16, f32, f32, M, N, 16>::add(t, MMA + shape + ".f32.bf16.bf16.f32");
}

template <class T, int M, int N>
void byte_products(Table& t, const std::string& shape, const std::string& type) {
    const std::string types = ".s32." + type + "." + type + ".s32";
    Product<T, T, s32, s32, M, N, 16>::add(t, MMA + shape + types);
    Product<T, T, s32, s32, M, N, 16, 0, Overflow::saturate>::add(t, MMA + shape + types + ".satfinite");
}

template <int M, int N>
void shape_entries(Table& t) {
    const std::string shape = "m" + std::to_string(M) + "n" + std::to_string(N) + "k16";
    factors<f16, u32, M, N, 16, 8>(t, shape, "f16");
    factors<bf16, u32, M, N, 16, 0>(t, shape, "bf16");
    factors<s8, u32, M, N, 16, 0>(t, shape, "{s8,u8}");
    accumulators<f16, u32, M, N>(t, shape, "f16");
    accumulators<u32, u32, M, N>(t, shape, "{f32,s32}");
    half_products<M, N>(t, shape);
    byte_products<s8, M, N>(t, shape, "s8");
    byte_products<u8, M, N>(t, shape, "u8");
}

}  // namespace

void wmma_entries(Table& t) {
    shape_entries<16, 16>(t);
    shape_entries<32, 8>(t);
    shape_entries<8, 32>(t);
    factors<u32, u32, 16, 16, 8, 0>(t, "m16n16k8", "tf32");
    accumulators<u32, u32, 16, 16>(t, "m16n16k8", "f32");
    using Single = Product<tf32, tf32, f32, f32, 16, 16, 8, 0, Overflow::wrap, Order::fours>;
    Single::add(t, MMA + "m16n16k8.f32.tf32.tf32.f32");
    factors<u64, f64, 8, 8, 4, 0>(t, "m8n8k4", "f64");
    accumulators<u64, f64, 8, 8>(t, "m8n8k4", "f64");
    Product<f64, f64, f64, f64, 8, 8, 4>::add(t, MMA + "m8n8k4{,.rn}.f64.f64.f64.f64{,.rn}");
}

}  // namespace sim
