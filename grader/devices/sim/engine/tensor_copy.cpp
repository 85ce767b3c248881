// tensor_copy: copies of boxes of a tensor between global and shared memory, by a tensor map
//
// PTX ISA 9.7.9.27, "Tensor copy instructions". A box stands in shared memory row by row, its chunks of 16 bytes
// permuted as the map's swizzle says. What lies outside of the tensor is filled on the way in and left out on the way
// out; the mbarrier counts the whole box.
#include <algorithm>

#include "bulk_copy.h"
#include "check_access.h"
#include "cluster.h"
#include "decode.h"
#include "mbarrier.h"
#include "operation.h"
#include "reduction.h"
#include "swizzle.h"
#include "tensor_map.h"

namespace sim {

namespace {

constexpr u32 CHUNK = 16;
constexpr u64 SHARED_ALIGNMENT = 128, MAP_ALIGNMENT = 64;

[[noreturn]] void stop(Warp& warp, int lane, FindingKind kind, const std::string& message) {
    Block& block = *warp.block;
    block.stop_at(block.at(warp, warp.here, lane, kind, message));
}

// ---- the map

// Copies take maps in a proxy of their own: what a kernel writes is not known there by itself.
void check_acquired(Warp& warp, int lane, u64 address, const TensorMap& map) {
    const auto& acquired = warp.block->acquired_maps;
    const auto found = acquired.find(address);
    if (found != acquired.end() && std::memcmp(&found->second, &map, sizeof map) == 0) return;
    stop(
        warp, lane, FindingKind::race,
        std::string("takes a tensor map that a kernel has changed, and ") +
            (found == acquired.end() ? "no thread of the block has acquired it"
                                     : "since then no thread of the block has acquired it again") +
            ": fence.proxy.tensormap::generic.acquire must come before");
}

TensorMap map_at(Warp& warp, int lane, u64 address) {
    if (address - LOCAL_ORIGIN < SPACE_SIZE)
        stop(
            warp, lane, FindingKind::crash,
            "takes a copy of the tensor map in the thread's local memory: pass the map as const __grid_constant__");
    if (address % MAP_ALIGNMENT)
        stop(
            warp, lane, FindingKind::misaligned,
            "takes a tensor map that is " + std::to_string(address % MAP_ALIGNMENT) + " bytes past a multiple of 64");
    if (address - SHARED_ORIGIN < SPACE_SIZE)
        stop(
            warp, lane, FindingKind::crash,
            "takes a tensor map in shared memory: it must be a __grid_constant__ parameter, or in global or constant "
            "memory");
    TensorMap map = {};
    u64 available = 0;
    const u8* bytes = peek(warp, lane, address, &available);
    if (bytes && available >= sizeof map) std::memcpy(&map, bytes, sizeof map);
    if (map.magic != TensorMap::MAGIC)
        stop(
            warp, lane, FindingKind::crash,
            "takes as a tensor map what neither cuTensorMapEncodeTiled nor cuTensorMapEncodeIm2col has written: " +
                std::string(bytes ? "the bytes are not a map" : "there is no memory of the device"));
    if (map.refusal)
        stop(
            warp, lane, FindingKind::crash,
            "copies by a tensor map that " +
                std::string(
                    map.changed  ? "tensormap.replace has made unusable: "
                    : map.im2col ? "cuTensorMapEncodeIm2col refused: "
                                 : "cuTensorMapEncodeTiled refused: ") +
                refusal_of(map));
    if (map.changed) check_acquired(warp, lane, address, map);
    return map;
}

// ---- one copy of a box

struct Box {
    Warp& warp;
    const Instruction& in;
    int lane;
    TensorMap map;
    BoxStart start;
    u64 shared;

    u32 pitch() const {  // of its rows in shared memory
        return map.swizzle ? std::max(map.inner_bytes(), CHUNK << map.swizzle) : map.inner_bytes();
    }
    u64 extent() const { return u64(map.rows()) * pitch(); }
    // Where byte `at` of a row stands, as an offset from `shared`.
    u64 place(u32 row, u32 at) const {
        const u64 offset = u64(row) * pitch() + at;
        return swizzled(shared + offset, map.swizzle) - shared;
    }
};

// operands: shared address, map's address, mbarrier's address, mask; coordinates and offsets are fragments.
// option: the number of coordinates, and
constexpr int MAP = 1, BARRIER = 2, RECEIVERS = 3;
constexpr u8 RANK = 7, IM2COL = 8, HAS_OFFSETS = 16;

std::string dimension(int i) {
    return "dimension " + std::to_string(i) + " of the tensor";
}

// A column of pixels begins in the bounding box; else an H200 stops with "illegal instruction".
void check_pixel(const Box& box) {
    for (int i = 1; box.map.im2col && i + 1 < box.map.rank; ++i) {
        const s64 first = box.map.lower[i - 1], last = s64(box.map.dims[i]) - 1 + box.map.upper[i - 1];
        if (box.start.at[i] < first || box.start.at[i] > last)
            stop(
                box.warp, box.lane, FindingKind::out_of_bounds,
                "copies a column of pixels that begins at " + std::to_string(box.start.at[i]) + " along " +
                    dimension(i) + ": the bounding box goes from " + std::to_string(first) + " to " +
                    std::to_string(last));
    }
}

Box box_of(Warp& warp, const Instruction& in, int lane) {
    Box box{warp, in, lane, map_at(warp, lane, warp.row<const u64>(in.operand[MAP])[lane]), {}, 0};
    const int rank = in.option & RANK;
    if (rank != box.map.rank)
        stop(
            warp, lane, FindingKind::crash,
            "copies a box of " + plural(u64(rank), "dimension") + " by the map of a tensor of " +
                std::to_string(box.map.rank));
    if (bool(in.option & IM2COL) != bool(box.map.im2col))
        stop(
            warp, lane, FindingKind::crash,
            std::string(
                box.map.im2col ? "copies a tile by a map of cuTensorMapEncodeIm2col"
                               : "copies a column of pixels by a map of cuTensorMapEncodeTiled") +
                ": the instruction and the map must be of one mode");
    const s32* rows = warp.block->program->fragments.data() + in.immediate;
    for (int i = 0; i < rank; ++i) box.start.at[i] = warp.row<const s32>(rows[i])[lane];
    for (int i = 0; in.option & HAS_OFFSETS && i < rank - 2; ++i)
        box.start.offset[i] = warp.row<const u16>(rows[rank + i])[lane];
    // An H200 stops with "illegal instruction".
    if (const s64 first = s64(box.start.at[0]) * box.map.item(); first % CHUNK)
        stop(
            warp, lane, FindingKind::misaligned,
            "copies a box that begins at element " + std::to_string(box.start.at[0]) +
                " of a row of the tensor: that is not on 16 bytes");
    check_pixel(box);
    return box;
}

void place_in_shared(Box& box) {
    Warp& warp = box.warp;
    box.shared = warp.row<const u64>(box.in.operand[0])[box.lane];
    const Block& block = *warp.block;
    if (box.shared >> RANK_SHIFT == block.rank + 1) box.shared = offset_of(box.shared);
    if (box.shared % SHARED_ALIGNMENT)
        stop(
            warp, box.lane, FindingKind::misaligned,
            "copies a box at " + block.shared_place(box.shared, 4, false).text + " in shared memory, " +
                std::to_string(box.shared % SHARED_ALIGNMENT) + " bytes past a multiple of 128");
    if (box.shared > block.shared.bytes() || block.shared.bytes() - box.shared < box.extent())
        stop(
            warp, box.lane, FindingKind::out_of_bounds,
            "copies a box of " + std::to_string(box.extent()) + " bytes at " +
                block.shared_place(box.shared, u32(box.extent()), true).text + " in shared memory (" +
                std::to_string(block.shared.bytes()) + " bytes)");
}

// A map may say more of a buffer than is true.
void check_buffer(const Box& box, u64 address, u64 bytes) {
    const Allocation* allocation = box.warp.launch->memory->find(address);
    if (!allocation || allocation->freed) return;  // said by the access
    const u64 offset = address - allocation->base;
    if (offset <= allocation->bytes && allocation->bytes - offset >= bytes) return;
    const u32 item = allocation->itemsize ? allocation->itemsize : box.map.item();
    const Place place = outside(allocation->name, s64(offset), allocation->bytes, item, u32(bytes));
    Block& block = *box.warp.block;
    Finding finding = block.at(
        box.warp, box.warp.here, box.lane, FindingKind::out_of_bounds,
        "copies " + place.text + ": the tensor map describes " + box.map.shape());
    finding.buffer = allocation->name;
    finding.index = place.index;
    finding.has_index = true;
    block.stop_at(std::move(finding));
}

// Naturally aligned pieces of up to 16 bytes that lie in one chunk of the row.
template <class F>
void each_piece(const BoxRow& row, u32 item, F visit) {
    for (u32 at = row.first * item; at < row.end * item;) {
        u32 bytes = CHUNK - at % CHUNK;
        const u64 address = row.address + at;
        while (address % bytes || bytes > row.end * item - at || (bytes & (bytes - 1))) --bytes;
        visit(address, at, bytes);
        at += bytes;
    }
}

// NaNs where a map asks for them: the same 16 bits for every type, as an H200 writes them.
void fill(const Box& box, u32 row, u32 from, u32 end, std::vector<u8>& data) {
    const u32 item = box.map.item();
    const u64 bits = box.map.fills_nan ? 0x7ff77ff77ff77ff7 : 0;
    for (u32 i = from; i < end; ++i) std::memcpy(data.data() + box.place(row, i * item), &bits, item);
}

// A tensor of tf32 is rounded on the way in, to the nearest and ties to even. The types that flush denormal numbers
// leave them as they are (both as seen on an H200).
void convert(TensorType type, u8* at, u32 bytes) {
    const bool rounds = type == TensorType::tf32 || type == TensorType::tf32_flushed;
    for (u32 i = 0; rounds && i < bytes; i += sizeof(f32)) {
        u32 bits;
        std::memcpy(&bits, at + i, sizeof bits);
        const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
        bits = is_nan ? 0x7fffe000 : (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
        std::memcpy(at + i, &bits, sizeof bits);
    }
}

// Rows shorter than the swizzle's span leave gaps: each has the pitch of the span (seen on an H200).
void mark_written(const Box& box, BulkCopy& copy) {
    if (box.pitch() == box.map.inner_bytes()) return;
    copy.written.assign(copy.extent, 0);
    for (u32 r = 0; r < box.map.rows(); ++r)
        for (u32 at = 0; at < box.map.inner_bytes(); at += CHUNK)
            std::fill_n(copy.written.begin() + s64(box.place(r, at)), CHUNK, 1);
}

// `inside`: bytes that are in the tensor
void count_box(const Box& box, u64 inside) {
    Counters* counters = box.warp.block->counters.get();
    if (counters) counters->tma(box.warp, box.map.box_bytes(), box.map.box_bytes() - inside, box.map.rows());
}

BulkCopy read_box(Box& box) {
    BulkCopy copy;
    copy.pc = box.warp.here;
    copy.warp = box.warp.index;
    copy.lane = box.lane;
    copy.shared = box.shared;
    copy.bytes = box.map.box_bytes();
    copy.extent = box.extent();
    copy.data.resize(copy.extent);
    mark_written(box, copy);
    std::vector<CopySource> sources;
    u64 inside = 0;
    u64 a[LANES];
    u8* at[LANES];
    const u32 item = box.map.item();
    for (u32 r = 0; r < box.map.rows(); ++r) {
        const BoxRow row = row_of(box.map, box.start, r);
        fill(box, r, 0, row.first, copy.data);
        fill(box, r, row.end, box.map.box[0], copy.data);
        if (row.first == row.end) continue;
        const u64 first = row.address + row.first * item;
        const u32 bytes = (row.end - row.first) * item;
        inside += bytes;
        check_buffer(box, first, bytes);
        if (Counters* counters = box.warp.block->counters.get()) counters->bulk(box.warp, first, bytes, Access::read);
        box.warp.block->copies.add_source(box.warp, box.lane, first, bytes, sources);
        each_piece(row, item, [&](u64 address, u32 from, u32 size) {
            a[box.lane] = address;
            check_global_at(box.warp, box.in, a, Mask(1) << box.lane, size, Access::read, at);
            u8* to = copy.data.data() + box.place(r, from);
            std::memcpy(to, at[box.lane], size);
            convert(box.map.type, to, size);
        });
    }
    count_box(box, inside);
    if (!sources.empty()) copy.sources = std::make_shared<const std::vector<CopySource>>(std::move(sources));
    return copy;
}

void load(Warp& warp, const Instruction& in, Mask mask) {
    each_lane(mask, [&](int l) {
        Box box = box_of(warp, in, l);
        place_in_shared(box);
        const u64 barrier = warp.row<const u64>(in.operand[BARRIER])[l];
        issue_load(warp, in, barrier, in.target ? in.operand[RECEIVERS] : -1, read_box(box));
    });
}

// ---- out of shared memory

// CUDA C++ Programming Guide 13.0, "Tensor Memory Accelerator": where a box is stored, its first element may not lie
// before the tensor.
void check_start(const Box& box) {
    for (int i = 0; i < box.map.rank; ++i)
        if (box.start.at[i] < 0)
            stop(
                box.warp, box.lane, FindingKind::out_of_bounds,
                "stores a box that begins at " + std::to_string(box.start.at[i]) + " along " + dimension(i) + " (" +
                    box.map.shape() + "): only loads may begin before it");
    // The bounding box of an im2col store must not be wider than the tensor: an H200 stops with "illegal instruction".
    for (int i = 1; box.map.im2col && i + 1 < box.map.rank; ++i)
        if (box.map.lower[i - 1] < 0 || box.map.upper[i - 1] > 0)
            stop(
                box.warp, box.lane, FindingKind::out_of_bounds,
                "stores by a tensor map whose bounding box is wider than " + dimension(i) + " (" + box.map.shape() +
                    "): only loads may go outside");
}

// What lies outside of the tensor is not stored: no thread need have written it.
void mark_stored(const Box& box, BulkCopy& copy) {
    copy.written.assign(copy.extent, 0);
    const u32 item = box.map.item();
    for (u32 r = 0; r < box.map.rows(); ++r) {
        const BoxRow row = row_of(box.map, box.start, r);
        for (u32 at = row.first * item / CHUNK * CHUNK; at < row.end * item; at += CHUNK)
            std::fill_n(copy.written.begin() + s64(box.place(r, at)), CHUNK, 1);
    }
}

BulkCopy write_box(Box& box) {
    check_start(box);
    BulkCopy copy;
    copy.pc = box.warp.here;
    copy.warp = box.warp.index;
    copy.lane = box.lane;
    copy.shared = box.shared;
    copy.bytes = copy.extent = box.extent();
    take_source(box.warp, copy);
    u64 inside = 0;
    for (u32 r = 0; r < box.map.rows(); ++r) {
        const BoxRow row = row_of(box.map, box.start, r);
        if (row.first == row.end) continue;
        const u32 item = box.map.item();
        inside += (row.end - row.first) * item;
        check_buffer(box, row.address + row.first * item, (row.end - row.first) * item);
        if (Counters* counters = box.warp.block->counters.get())
            counters->bulk(box.warp, row.address + row.first * item, (row.end - row.first) * item, Access::write);
        each_piece(row, item, [&](u64 address, u32 from, u32 size) {
            copy.add_piece(address, u32(box.place(r, from)), size);
        });
    }
    if (inside < copy.extent) mark_stored(box, copy);
    count_box(box, inside);
    return copy;
}

// The lanes that name the same box as the first. Each stores it, as an H100 does. They do not race with each other, as
// lanes do not that store to one address by one instruction.
Mask repetitions(const Warp& warp, const Instruction& in, Mask mask) {
    const int first = __builtin_ctz(mask), rank = in.option & RANK;
    const u64 *shared = warp.row<const u64>(in.operand[0]), *map = warp.row<const u64>(in.operand[MAP]);
    const s32* rows = warp.block->program->fragments.data() + in.immediate;
    Mask same = 0;
    each_lane(mask & (mask - 1), [&](int l) {
        bool equal = shared[l] == shared[first] && map[l] == map[first];
        for (int i = 0; i < rank; ++i) {
            const s32* at = warp.row<const s32>(rows[i]);
            equal &= at[l] == at[first];
        }
        same |= Mask(equal) << l;
    });
    return same;
}

void store(Warp& warp, const Instruction& in, Mask mask) {
    const Mask repeated = repetitions(warp, in, mask);
    each_lane(mask, [&](int l) {
        Box box = box_of(warp, in, l);
        place_in_shared(box);
        BulkCopy copy = write_box(box);
        copy.repeats = repeated >> l & 1;
        warp.block->copies.issue_bulk(warp, std::move(copy));
    });
}

constexpr const char* OPERATIONS[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};

void reduce(Warp& warp, const Instruction& in, Mask mask) {
    const char* operation = OPERATIONS[in.target];
    each_lane(mask, [&](int l) {
        Box box = box_of(warp, in, l);
        place_in_shared(box);
        BulkCopy copy = write_box(box);
        copy.item = box.map.item();
        copy.combine = combine_of(operation, box.map.type);
        if (!copy.combine)
            stop(
                warp, l, FindingKind::crash,
                std::string("reduces by ") + operation + " a tensor of " + box.map.shape() +
                    ", whose type has no such reduction");
        const bool is_float = box.map.type == TensorType::f16 || box.map.type == TensorType::bf16 ||
                              box.map.type == TensorType::f32 || box.map.type == TensorType::f64;
        const bool rounds = is_float && std::string(operation) == "add";
        warp.launch->note_order(warp.here, rounds);
        warp.block->copies.issue_bulk(warp, std::move(copy));
    });
}

void prefetch(Warp& warp, const Instruction& in, Mask mask) {
    each_lane(mask, [&](int l) { box_of(warp, in, l); });
}

void prefetch_map(Warp& warp, const Instruction& in, Mask mask) {
    each_lane(mask, [&](int l) { map_at(warp, l, warp.row<const u64>(in.operand[MAP])[l]); });
}

// ---- operands

// [map, {coordinates}]: elements of the address. `offsets`: of im2col, where the instruction has them
void take_map(
    Decoder& d, const ptx::Operand& operand, const ptx::Instruction& in, Instruction& out,
    const ptx::Operand* offsets = nullptr) {
    out.operand[MAP] = d.address_row(operand);
    std::vector<s32> rows;
    if (operand.elements.size() > 1)
        for (const ptx::Operand& coordinate : operand.elements[1].elements)
            rows.push_back(d.source(coordinate, shape_of<s32>()));
    const size_t rank = out.option & RANK;
    if (rows.size() != rank) d.unsupported("the coordinates of " + std::string(in.opcode));
    if (offsets && out.option & HAS_OFFSETS) {
        if (offsets->elements.size() != rank - 2) d.unsupported("the offsets of " + std::string(in.opcode));
        for (const ptx::Operand& offset : offsets->elements) rows.push_back(d.source(offset, shape_of<u16>()));
    }
    out.immediate = d.fragments(rows);
    d.note_async_proxy();
}

// [dst], [map, {coordinates}], [mbarrier] {, offsets} {, receivers} {, cache policy}
void lower_load_box(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const size_t offsets = entry.option & HAS_OFFSETS ? 1 : 0;
    d.require(in, 3 + offsets);
    Instruction out = d.prototype(in, entry);
    out.operand[0] = d.address_row(in.operands[0]);
    take_map(d, in.operands[1], in, out, offsets ? &in.operands[3] : nullptr);
    out.operand[BARRIER] = d.address_row(in.operands[2]);
    out.target = entry.form.find("multicast") != std::string::npos;
    if (out.target) d.require(in, 4 + offsets);
    if (out.target) out.operand[RECEIVERS] = d.source(in.operands[3 + offsets], shape_of<u16>());
    d.emit(out);
}

// [map, {coordinates}], [src] {, cache policy}
void lower_store_box(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = d.prototype(in, entry);
    take_map(d, in.operands[0], in, out);
    out.operand[0] = d.address_row(in.operands[1]);
    d.emit(out);
}

void lower_reduce_box(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = d.prototype(in, entry);
    for (u32 i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; ++i)
        if (entry.form.find("." + std::string(OPERATIONS[i])) != std::string::npos) out.target = i;
    out.strong = true;
    take_map(d, in.operands[0], in, out);
    out.operand[0] = d.address_row(in.operands[1]);
    d.emit(out);
}

// [map, {coordinates}] {, offsets}
void lower_prefetch_box(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const bool offsets = entry.option & HAS_OFFSETS;
    d.require(in, offsets ? 2 : 1);
    Instruction out = d.prototype(in, entry);
    take_map(d, in.operands[0], in, out, offsets ? &in.operands[1] : nullptr);
    d.emit(out);
}

void lower_prefetch_map(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 1);
    Instruction out = d.prototype(in, entry);
    out.operand[MAP] = d.address_row(in.operands[0]);
    d.emit(out);
}

}  // namespace

namespace {

// All copies of boxes with `rank` coordinates; the modes are what the names have in them.
void add_boxes(Table& t, u8 rank, const std::string& load_mode, const std::string& store_mode, u8 mode) {
    const std::string hint = "{,.L2::cache_hint}", bulk = "async.bulk.tensor." + std::to_string(rank) + "d.";
    const u8 loads = rank | mode | (mode ? HAS_OFFSETS : 0), stores = rank | mode;
    const std::string end = load_mode + ".mbarrier::complete_tx::bytes";
    t.add("cp." + bulk + "shared::{cluster,cta}.global" + end + hint, {load, {}}, lower_load_box, Flow::next, loads);
    t.add(
        "cp." + bulk + "shared::cluster.global" + end + ".multicast::cluster" + hint, {load, {}}, lower_load_box,
        Flow::next, loads);
    t.add(
        "cp." + bulk + "global.shared::cta" + store_mode + ".bulk_group" + hint, {store, {}}, lower_store_box,
        Flow::next, stores);
    for (const char* operation : OPERATIONS)
        t.add(
            "cp.reduce." + bulk + "global.shared::cta." + operation + store_mode + ".bulk_group" + hint, {reduce, {}},
            lower_reduce_box, Flow::next, stores);
    t.add(
        "cp.async.bulk.prefetch.tensor." + std::to_string(rank) + "d.L2.global" + load_mode + hint, {prefetch, {}},
        lower_prefetch_box, Flow::next, loads);
}

}  // namespace

void tensor_copy_entries(Table& t) {
    for (u8 rank = 1; rank <= TENSOR_DIMENSIONS; ++rank) add_boxes(t, rank, "{,.tile}", "{,.tile}", 0);
    for (u8 rank = 3; rank <= TENSOR_DIMENSIONS; ++rank) add_boxes(t, rank, ".im2col", ".im2col_no_offs", IM2COL);
    t.add("prefetch{,.param,.const}.tensormap", {prefetch_map, {}}, lower_prefetch_map);
}

}  // namespace sim
