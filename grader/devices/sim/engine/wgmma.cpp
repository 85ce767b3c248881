// wgmma: the products of a warpgroup, D = A B + D, with B and perhaps A in shared memory
//
// PTX ISA 9.7.15.5: what a matrix descriptor says, and which rows of D and A each warp has. The sums are those of
// product.h; those of fp8 keep 13 bits below the largest exponent (Khattak, Mikaitis 2025, "Accurate models of NVIDIA
// Tensor Cores", and MMA-Sim: Xie et al. 2025).
#include "block.h"
#include "decode.h"
#include "fragment.h"
#include "matrix.h"
#include "mma.h"
#include "operation.h"
#include "swizzle.h"
#include "warpgroup.h"

namespace sim {

namespace {

constexpr int ROWS = 16, ROW_BYTES = 32, CHUNK = 16, MOST_COLUMNS = 256;  // of a warp's part; bytes of k

enum class Type : u8 { f16, bf16, tf32, e4m3, e5m2, s8, u8 };
enum class Result : u8 { f32, f16, s32 };

struct TypeRow {
    const char* name;
    int bytes, least;  // the exponent of the least normal number
};
constexpr TypeRow TYPES[] = {
    {"f16", 2, LEAST_EXPONENT<f16>},
    {"bf16", 2, LEAST_EXPONENT<bf16>},
    {"tf32", 4, LEAST_EXPONENT<tf32>},
    {"e4m3", 1, LEAST_EXPONENT<e4m3>},
    {"e5m2", 1, LEAST_EXPONENT<e5m2>},
    {"s8", 1, 0},
    {"u8", 1, 0}};

// What an instruction is, in its immediate.
struct Manner64 {
    u8 a, b, result, flags;
    u16 columns, pad;

    static constexpr u8 SATURATES = 1, NEGATES_A = 2, NEGATES_B = 4, TRANSPOSES_A = 8, TRANSPOSES_B = 16,
                        A_IN_ROWS = 32;
    bool is(u8 flag) const { return flags & flag; }
    int item() const { return TYPES[a].bytes; }
    int depth() const { return ROW_BYTES / item(); }
    int accumulators() const { return columns / (Result(result) == Result::f16 ? 4 : 2); }
};
static_assert(sizeof(Manner64) == sizeof(s64));

// operands: rows in Program::fragments (of D, then of A), descriptors of A and B, scale-d
constexpr int FRAGMENTS = 0, A = 1, B = 2, SCALE = 3;

// ---- matrices in shared memory

struct Descriptor {
    explicit Descriptor(u64 bits)
        : start((bits & 0x3fff) << 4),
          leading((bits >> 16 & 0x3fff) << 4),
          stride((bits >> 32 & 0x3fff) << 4),
          base(u32(bits >> 49 & 7)),
          mode(u32(bits >> 62)) {}
    u64 start, leading, stride;
    u32 base, mode;  // 0 none, 1 to 3: swizzles of 128, 64, 32 bytes

    // The chunk `c` of 16 bytes along k of a row, where k is the major dimension.
    u64 along_k(int row, int c) const {
        const u64 group = start + u64(row / CORE) * stride;
        if (!mode) return group + u64(c) * leading + u64(row % CORE) * CHUNK;
        return swizzled(group + u64(row % CORE) * span() + u64(c) * CHUNK, 4 - mode);
    }
    // The chunk `c` of eight rows of one k, where the rows are the major dimension.
    u64 along_rows(int k, int c) const {
        if (!mode) return start + u64(c) * stride + u64(k / CORE) * leading + u64(k % CORE) * CHUNK;
        const u64 chunks = span() / CHUNK;
        const u64 pattern = start + u64(c) / chunks * leading + u64(k / CORE) * stride;
        return swizzled(pattern + u64(k % CORE) * span() + u64(c) % chunks * CHUNK, 4 - mode);
    }
    u64 span() const { return 256 >> mode; }
};

template <class T>
void widen_items(const u8* bytes, f32* values, int stride) {
    constexpr int COUNT = CHUNK / int(sizeof(T));
    T items[COUNT];
    std::memcpy(items, bytes, CHUNK);
    f32 wide[COUNT];
    for (int i = 0; i < COUNT; ++i) wide[i] = widen(items[i]);
    for (int i = 0; i < COUNT; ++i) values[i * stride] = wide[i];
}

void widen_chunk(Type type, const u8* bytes, f32* values, int stride) {
    switch (type) {
        case Type::f16:
            return widen_items<f16>(bytes, values, stride);
        case Type::bf16:
            return widen_items<bf16>(bytes, values, stride);
        case Type::tf32:
            return widen_items<tf32>(bytes, values, stride);
        case Type::e4m3:
            return widen_items<e4m3>(bytes, values, stride);
        case Type::e5m2:
            return widen_items<e5m2>(bytes, values, stride);
        case Type::s8:
        case Type::u8:
            for (int i = 0; i < CHUNK; ++i) values[i * stride] = f32(type == Type::s8 ? s8(bytes[i]) : bytes[i]);
    }
}

void count_chunks(Warp& warp, const std::vector<u64>& addresses, int inner, bool by_rows) {
    Counters& counters = *warp.block->counters;
    const int chunks = int(addresses.size()), apart = by_rows ? 1 : inner;
    for (int first = 0; first < chunks; first += by_rows ? CORE : apart * CORE)
        for (int i = 0; i < apart; ++i) {
            u64 rows[CORE];
            for (int r = 0; r < CORE; ++r) rows[r] = addresses[size_t(first + i + r * apart)];
            counters.core_matrix(warp, rows);
        }
}

// The chunks of rows [first, first + rows) as they stand in shared memory, each checked.
void take_chunks(
    Warp& warp, const Descriptor& d, bool by_rows, int first, int rows, int depth, bool counted, u8* bytes) {
    Block& block = *warp.block;
    if (d.base)
        block.stop_at(block.at(
            warp, warp.here, 0, FindingKind::unsupported,
            "a matrix descriptor with a base offset is not supported by the simulator: begin the tile at a multiple of "
            "1024 bytes"));
    const int outer = by_rows ? rows / CORE : rows, inner = by_rows ? depth : ROW_BYTES / CHUNK;
    const bool counts = block.counters && counted;
    std::vector<u64> addresses;
    for (int o = 0; o < outer; ++o)
        for (int i = 0; i < inner; ++i) {
            const u64 address = by_rows ? d.along_rows(i, first / CORE + o) : d.along_k(first + o, i);
            block.warpgroups->read_chunk(warp, address);
            if (counts) addresses.push_back(address);
            std::memcpy(bytes, block.shared.data() + address, CHUNK);
            bytes += CHUNK;
        }
    if (counts) count_chunks(warp, addresses, inner, by_rows);
}

// a as [16][depth]
void gather_a(Warp& warp, const Manner64& m, const Descriptor& d, f32* a) {
    u8 bytes[ROWS * ROW_BYTES];
    const bool by_rows = m.is(Manner64::TRANSPOSES_A);
    const int depth = m.depth(), per_chunk = CHUNK / m.item();
    take_chunks(warp, d, by_rows, int(warp.index % 4) * ROWS, ROWS, depth, true, bytes);
    for (int i = 0; i < ROWS * ROW_BYTES / CHUNK; ++i) {
        if (by_rows)
            widen_chunk(Type(m.a), bytes + i * CHUNK, a + i / depth * CORE * depth + i % depth, depth);
        else
            widen_chunk(Type(m.a), bytes + i * CHUNK, a + i / 2 * depth + i % 2 * per_chunk, 1);
    }
}

// b as [columns / 8][depth][8]; the four warps have the same, which counts once.
const Warpgroups::Converted& gather_b(Warp& warp, const Manner64& m, const Descriptor& d) {
    u8 bytes[MOST_COLUMNS * ROW_BYTES];
    const bool by_rows = m.is(Manner64::TRANSPOSES_B);
    const int depth = m.depth(), per_chunk = CHUNK / m.item();
    const size_t size = size_t(m.columns) * ROW_BYTES;
    take_chunks(warp, d, by_rows, 0, m.columns, depth, warp.index % 4 == 0, bytes);
    Warpgroups::Converted& known = warp.block->warpgroups->converted(warp);
    const u32 kind = u32(m.b) | u32(by_rows) << 8 | 1u << 16;
    if (known.kind == kind && known.bytes.size() == size && !std::memcmp(known.bytes.data(), bytes, size)) return known;
    known.kind = kind;
    known.bytes.assign(bytes, bytes + size);
    known.values.resize(size_t(m.columns) * size_t(depth));
    f32* b = known.values.data();
    for (int i = 0; i < m.columns * 2; ++i) {
        if (by_rows) {
            widen_chunk(Type(m.b), bytes + i * CHUNK, b + i * COLUMNS, 1);
        } else {
            const int column = i / 2;
            f32* to = b + (column / COLUMNS * depth + i % 2 * per_chunk) * COLUMNS + column % COLUMNS;
            widen_chunk(Type(m.b), bytes + i * CHUNK, to, COLUMNS);
        }
    }
    known.ready.resize(Result(m.result) == Result::s32 ? 0 : size_t(m.columns / COLUMNS));
    for (Right& tile : known.ready) {
        tile.take(depth, b, TYPES[m.b].least);
        b += depth * COLUMNS;
    }
    return known;
}

void gather_registers(const Warp& warp, const Manner64& m, const s32* rows, f32* a) {
    switch (Type(m.a)) {
        case Type::f16:
            return sim::gather_a<f16, u32, ROWS, 16>({warp, rows}, a);
        case Type::bf16:
            return sim::gather_a<bf16, u32, ROWS, 16>({warp, rows}, a);
        case Type::tf32:
            return sim::gather_a<tf32, u32, ROWS, 8>({warp, rows}, a);
        case Type::e4m3:
            return sim::gather_a<e4m3, u32, ROWS, 32>({warp, rows}, a);
        case Type::e5m2:
            return sim::gather_a<e5m2, u32, ROWS, 32>({warp, rows}, a);
        case Type::s8:
            return sim::gather_a<s8, u32, ROWS, 32>({warp, rows}, a);
        case Type::u8:
            return sim::gather_a<u8, u32, ROWS, 32>({warp, rows}, a);
    }
}

// ---- accumulators: tiles of [16][8], one after the other

void load_whole(const Warp& warp, const s32* rows, int tile, s32* d) {
    for (int half = 0; half < 2; ++half) {
        const s32 *even = warp.row<const s32>(rows[4 * tile + 2 * half]),
                  *odd = warp.row<const s32>(rows[4 * tile + 2 * half + 1]);
        s32* to = d + half * CORE * COLUMNS;
        for (int l = 0; l < LANES; ++l) to[2 * l] = even[l], to[2 * l + 1] = odd[l];
    }
}

void store_whole(const Warp& warp, const s32* rows, int tile, const s32* d) {
    for (int half = 0; half < 2; ++half) {
        s32 *even = warp.row<s32>(rows[4 * tile + 2 * half]), *odd = warp.row<s32>(rows[4 * tile + 2 * half + 1]);
        const s32* from = d + half * CORE * COLUMNS;
        for (int l = 0; l < LANES; ++l) even[l] = from[2 * l], odd[l] = from[2 * l + 1];
    }
}

// Floats in pairs, as in product.h: each register has the upper or the lower eight rows.
void load_pairs(const Warp& warp, const Manner64& m, const s32* rows, int tile, f32* d) {
    if (Result(m.result) == Result::f16) {
        const f16 *upper = warp.row<const f16>(rows[2 * tile]), *lower = warp.row<const f16>(rows[2 * tile + 1]);
        for (int e = 0; e < CORE * COLUMNS; ++e) d[2 * e] = widen(upper[e]), d[2 * e + 1] = widen(lower[e]);
        return;
    }
    const f32 *upper[2], *lower[2];  // even columns, odd ones
    for (int odd = 0; odd < 2; ++odd) {
        upper[odd] = warp.row<const f32>(rows[4 * tile + odd]);
        lower[odd] = warp.row<const f32>(rows[4 * tile + 2 + odd]);
    }
    for (int l = 0; l < LANES; ++l) {
        d[4 * l] = upper[0][l], d[4 * l + 1] = lower[0][l];
        d[4 * l + 2] = upper[1][l], d[4 * l + 3] = lower[1][l];
    }
}

void store_pairs(const Warp& warp, const Manner64& m, const s32* rows, int tile, const f32* d) {
    if (Result(m.result) == Result::f16) {
        f16 *upper = warp.row<f16>(rows[2 * tile]), *lower = warp.row<f16>(rows[2 * tile + 1]);
        for (int e = 0; e < CORE * COLUMNS; ++e) {
            upper[e] = narrow_sum<f16>(d[2 * e]);
            lower[e] = narrow_sum<f16>(d[2 * e + 1]);
        }
        return;
    }
    f32 *upper[2], *lower[2];
    for (int odd = 0; odd < 2; ++odd) {
        upper[odd] = warp.row<f32>(rows[4 * tile + odd]);
        lower[odd] = warp.row<f32>(rows[4 * tile + 2 + odd]);
    }
    for (int l = 0; l < LANES; ++l) {
        upper[0][l] = d[4 * l], lower[0][l] = d[4 * l + 1];
        upper[1][l] = d[4 * l + 2], lower[1][l] = d[4 * l + 3];
    }
}

void multiply_integers(const Warp& warp, const Manner64& m, const s32* rows, const f32* a, const f32* b, bool adds) {
    constexpr int DEPTH = ROW_BYTES;
    s32 whole_a[ROWS * DEPTH], whole_b[DEPTH * COLUMNS], d[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * DEPTH; ++i) whole_a[i] = s32(a[i]);
    const Overflow overflow = m.is(Manner64::SATURATES) ? Overflow::saturate : Overflow::wrap;
    for (int tile = 0; tile < m.columns / COLUMNS; ++tile) {
        for (int i = 0; i < DEPTH * COLUMNS; ++i) whole_b[i] = s32(b[tile * DEPTH * COLUMNS + i]);
        load_whole(warp, rows, tile, d);
        if (!adds) std::fill(d, d + ROWS * COLUMNS, 0);
        multiply_tile(ROWS, DEPTH, whole_a, whole_b, d, Manner{Cut::to_zero, overflow, Order::plain});
        store_whole(warp, rows, tile, d);
    }
}

void multiply_floats(
    const Warp& warp, const Manner64& m, const s32* rows, f32* a, const std::vector<Right>& b, bool adds) {
    const int depth = m.depth();
    const bool negative = m.is(Manner64::NEGATES_A) != m.is(Manner64::NEGATES_B);
    for (int i = 0; negative && i < ROWS * depth; ++i) a[i] = -a[i];
    const bool halves = Result(m.result) == Result::f16;
    const Sum how{
        halves ? Cut::to_odd : Cut::to_zero, halves ? LEAST_EXPONENT<f16> : LEAST_EXPONENT<f32>,
        m.item() == 1 ? FP8_FRACTION : FRACTION};
    Left left;
    left.take(ROWS, depth, depth, a, TYPES[m.a].least);
    alignas(64) f32 d[ROWS * COLUMNS] = {};
    for (int tile = 0; tile < m.columns / COLUMNS; ++tile) {
        if (adds)
            load_pairs(warp, m, rows, tile, d);
        else
            std::fill(d, d + ROWS * COLUMNS, 0.0f);
        add_product(left, b[size_t(tile)], how, d);
        store_pairs(warp, m, rows, tile, d);
    }
}

// ---- instructions

void multiply(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    const Manner64 m = bit_cast<Manner64>(in.immediate);
    const s32* rows = warp.block->program->fragments.data() + in.operand[FRAGMENTS];
    const bool in_rows = m.is(Manner64::A_IN_ROWS);
    const u64 a_bits = in_rows ? 0 : warp.row<const u64>(in.operand[A])[0],
              b_bits = warp.row<const u64>(in.operand[B])[0];
    Warpgroups& warpgroups = *warp.block->warpgroups;
    warpgroups.step(warp, a_bits, b_bits);
    const bool adds = warp.predicate(in.operand[SCALE]) & 1;
    warpgroups.use_rows(warp, rows, m.accumulators(), in_rows ? 4 : 0, adds);
    alignas(64) f32 a[ROWS * ROW_BYTES];
    if (in_rows)
        gather_registers(warp, m, rows + m.accumulators(), a);
    else
        gather_a(warp, m, Descriptor(a_bits), a);
    const Warpgroups::Converted& b = gather_b(warp, m, Descriptor(b_bits));
    if (Result(m.result) == Result::s32)
        multiply_integers(warp, m, rows, a, b.values.data(), adds);
    else
        multiply_floats(warp, m, rows, a, b.ready, adds);
}

void fence(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    warp.block->warpgroups->step(warp);
    warp.block->warpgroups->fence(warp);
}

void commit(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    warp.block->warpgroups->step(warp);
    warp.block->warpgroups->commit(warp);
}

void come_to_wait(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    warp.block->warpgroups->step(warp);
}

void wait(Warp& warp, const Instruction& in, Mask mask) {
    const bool over = warp.block->warpgroups->wait(warp, u32(in.immediate));
    warp.move(mask, over ? warp.here + 1 : warp.here);
}

int number_of(Decoder& d, const ptx::Operand& operand, const ptx::Instruction& in) {
    if (operand.kind != ptx::OperandKind::integer) d.unsupported("an operand of " + std::string(in.opcode));
    return int(s64(operand.bits));
}

// "...m64n128k16.f32.e4m3.e5m2.satfinite"
Manner64 manner_of(const std::string& form) {
    Manner64 m{};
    const size_t shape = form.find(".m64n");
    m.columns = u16(std::stoi(form.substr(shape + 5)));
    const size_t types = form.find('.', shape + 1);
    m.result =
        u8(form[types + 1] == 's'               ? Result::s32
           : form.substr(types + 1, 3) == "f16" ? Result::f16
                                                : Result::f32);
    const size_t a = form.find('.', types + 1), b = form.find('.', a + 1);
    for (u8 t = 0; t < sizeof TYPES / sizeof *TYPES; ++t) {
        if (form.substr(a + 1, b - a - 1) == TYPES[t].name) m.a = t;
        if (form.substr(b + 1, form.find('.', b + 1) - b - 1) == TYPES[t].name) m.b = t;
    }
    if (form.find("satfinite") != std::string::npos) m.flags |= Manner64::SATURATES;
    return m;
}

// d, a, b, scale-d {, scale-a, scale-b {, trans-a}, trans-b}
void lower_multiply(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 4);
    Instruction out = warp_sync_instruction(d, in, entry);
    Manner64 m = manner_of(entry.form);
    const auto& ops = in.operands;
    const bool in_rows = ops[1].kind == ptx::OperandKind::vector;
    if (in_rows) m.flags |= Manner64::A_IN_ROWS;
    const auto flag = [&](size_t i, int value, u8 bit) {
        if (i < ops.size() && number_of(d, ops[i], in) == value) m.flags |= bit;
    };
    flag(4, -1, Manner64::NEGATES_A);
    flag(5, -1, Manner64::NEGATES_B);
    if (!in_rows) flag(6, 1, Manner64::TRANSPOSES_A);
    flag(in_rows ? 6 : 7, 1, Manner64::TRANSPOSES_B);
    std::vector<s32> sources, rows;
    if (in_rows)
        append_sources(d, ops[1], {shape_of<u32>(), 4}, sources);
    else
        out.operand[A] = d.source(ops[1], shape_of<u64>());
    out.operand[B] = d.source(ops[2], shape_of<u64>());
    out.operand[SCALE] = d.source(ops[3], PREDICATE);
    append_destinations(d, ops[0], {shape_of<u32>(), m.accumulators()}, rows);
    rows.insert(rows.end(), sources.begin(), sources.end());
    out.operand[FRAGMENTS] = d.fragments(rows);
    out.immediate = bit_cast<s64>(m);
    d.note_matrix_rows(rows, m.accumulators());
    d.emit(out);
}

void lower_aligned(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.note_matrix_rows({});
    d.emit(warp_sync_instruction(d, in, entry));
}

// The lanes meet, then they wait.
void lower_wait_group(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 1);
    lower_aligned(d, in, entry);
    Instruction out = d.prototype(in, entry);
    out.run = wait;
    out.flow = Flow::leave;
    out.immediate = number_of(d, in.operands[0], in);
    d.emit(out);
}

}  // namespace

void wgmma_entries(Table& t) {
    t.add("wgmma.fence.sync.aligned", {fence, {}}, lower_aligned, Flow::warp_sync);
    t.add("wgmma.commit_group.sync.aligned", {commit, {}}, lower_aligned, Flow::warp_sync);
    t.add("wgmma.wait_group.sync.aligned", {come_to_wait, {}}, lower_wait_group, Flow::warp_sync);
    for (int columns = 8; columns <= MOST_COLUMNS; columns += 8) {
        const std::string form = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns);
        const auto add = [&](const std::string& types) {
            t.add(form + types, {multiply, {}}, lower_multiply, Flow::warp_sync);
        };
        add("k16.{f32,f16}.f16.f16");
        add("k16.f32.bf16.bf16");
        add("k8.f32.tf32.tf32");
        add("k32.{f32,f16}.{e4m3,e5m2}.{e4m3,e5m2}");
        if (columns <= 32 || columns % 16 == 0) add("k32.s32.{s8,u8}.{s8,u8}{,.satfinite}");
    }
}

}  // namespace sim
