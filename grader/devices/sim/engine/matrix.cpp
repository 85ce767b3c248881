// matrix: ldmatrix, stmatrix and movmatrix: core matrices of eight rows of 16 bytes
//
// Each row of a matrix in shared memory is named by one lane, and belongs to
// that lane in findings. A register of all lanes holds the rows one after the
// other (fragment.h), so a matrix that is not transposed is just copied.
// PTX ISA 9.7.14.5.15 (ldmatrix), .16 (stmatrix), .17 (movmatrix).
#include "matrix.h"

#include "block.h"
#include "check_access.h"
#include "operation.h"

namespace sim {

namespace {

constexpr int CORE = 8;  // rows and columns
constexpr u32 ROW_BYTES = 16;

Mask named_rows(int count) {
    return ALL >> (LANES - CORE * count);
}

void transpose(u16* core) {
    u16 from[CORE * CORE];
    std::memcpy(from, core, sizeof from);
    for (int r = 0; r < CORE; ++r)
        for (int c = 0; c < CORE; ++c) core[r * CORE + c] = from[c * CORE + r];
}

template <int count, bool transposed>
void load_matrix(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    u8* at[LANES];
    check_each_lane(warp, in, named_rows(count), ROW_BYTES, Access::read, at);
    for (int i = 0; i < count; ++i) {
        u16* core = warp.row<u16>(in.operand[i]);
        for (int r = 0; r < CORE; ++r) std::memcpy(core + r * CORE, at[i * CORE + r], ROW_BYTES);
        if (transposed) transpose(core);
    }
}

template <int count, bool transposed>
void store_matrix(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    u8* at[LANES];
    check_each_lane(warp, in, named_rows(count), ROW_BYTES, Access::write, at);
    for (int i = 0; i < count; ++i) {
        u16 core[CORE * CORE];
        std::memcpy(core, warp.row<const u16>(in.operand[i]), sizeof core);
        if (transposed) transpose(core);
        for (int r = 0; r < CORE; ++r) std::memcpy(at[i * CORE + r], core + r * CORE, ROW_BYTES);
    }
}

void move_matrix(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    u16* core = warp.row<u16>(in.operand[0]);
    std::memmove(core, warp.row<const u16>(in.operand[1]), ROW_BYTES * CORE);
    transpose(core);
}

constexpr Shape U32 = shape_of<u32>();

void lower_load_matrix(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = warp_sync_instruction(d, in, entry);
    d.address(out, in.operands[1], in, ROW_BYTES);
    std::vector<s32> rows;
    append_destinations(d, in.operands[0], {U32, entry.option}, rows);
    std::copy(rows.begin(), rows.end(), out.operand);
    d.emit(out);
}

void lower_store_matrix(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = warp_sync_instruction(d, in, entry);
    d.address(out, in.operands[0], in, ROW_BYTES);
    std::vector<s32> rows;
    append_sources(d, in.operands[1], {U32, entry.option}, rows);
    std::copy(rows.begin(), rows.end(), out.operand);
    d.emit(out);
}

void lower_move_matrix(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = warp_sync_instruction(d, in, entry);
    out.operand[1] = d.source(in.operands[1], U32);
    out.operand[0] = d.destination(in.operands[0], U32);
    d.emit(out);
}

// ptxas takes the number of matrices before their shape too.
template <int count>
void count_entries(Table& t) {
    const std::string x = ".x" + std::to_string(count);
    const std::string shared = "{,.shared,.shared::cta}.b16";
    for (const std::string& shape : {".m8n8" + x, x + ".m8n8"}) {
        const std::string load = "ldmatrix.sync.aligned" + shape, store = "stmatrix.sync.aligned" + shape;
        t.add(load + shared, {load_matrix<count, false>, {}}, lower_load_matrix, Flow::warp_sync, count);
        t.add(load + ".trans" + shared, {load_matrix<count, true>, {}}, lower_load_matrix, Flow::warp_sync, count);
        t.add(store + shared, {store_matrix<count, false>, {}}, lower_store_matrix, Flow::warp_sync, count);
        t.add(store + ".trans" + shared, {store_matrix<count, true>, {}}, lower_store_matrix, Flow::warp_sync, count);
    }
    const std::string trans = "ldmatrix.sync.aligned" + x + ".trans.m8n8" + shared;
    t.add(trans, {load_matrix<count, true>, {}}, lower_load_matrix, Flow::warp_sync, count);
}

}  // namespace

void require_whole_warp(Warp& warp, const Instruction& in, Mask mask) {
    if (mask == ALL) return;
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, __builtin_ctz(mask), FindingKind::deadlock,
        in.entry->form + " needs all 32 lanes of the warp, but this one has " +
            plural(u64(__builtin_popcount(warp.existing)), "thread")));
}

Instruction warp_sync_instruction(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    Instruction out = d.prototype(in, entry);
    out.operand[MEMBERS] = d.constant(ALL, 4);
    out.target = MEMBERS;
    return out;
}

namespace {

// A single register may stand without its braces.
std::vector<const ptx::Operand*> registers_of(Decoder& d, const ptx::Operand& operand, int count) {
    std::vector<const ptx::Operand*> registers;
    if (operand.kind != ptx::OperandKind::vector) registers.push_back(&operand);
    for (auto& element : operand.elements) registers.push_back(&element);
    if (registers.size() != size_t(count))
        d.unsupported(plural(registers.size(), "register") + " where " + std::to_string(count) + " are needed");
    return registers;
}

}  // namespace

void append_sources(Decoder& d, const ptx::Operand& operand, Group group, std::vector<s32>& rows) {
    for (auto part : registers_of(d, operand, group.count)) rows.push_back(d.source(*part, group.shape));
}

void append_destinations(Decoder& d, const ptx::Operand& operand, Group group, std::vector<s32>& rows) {
    for (auto part : registers_of(d, operand, group.count)) rows.push_back(d.destination(*part, group.shape));
}

void matrix_entries(Table& t) {
    count_entries<1>(t);
    count_entries<2>(t);
    count_entries<4>(t);
    t.add("movmatrix.sync.aligned.m8n8.trans.b16", {move_matrix, {}}, lower_move_matrix, Flow::warp_sync);
}

}  // namespace sim
