// tensor_map_change: tensor maps that a kernel changes, copies and acquires
//
// A kernel changes a map in shared or global memory and copies it into global memory if it is not there. It makes it
// known to the proxy in which copies take their maps: the threads that changed it release it, and the block whose
// copies take it acquires it. A missing acquire is found where a copy takes the map (tensor_copy.cpp). A missing
// release is not found. PTX ISA 9.7.9.28 (tensormap.replace), 9.7.13.16 (tensormap.cp_fenceproxy), 9.7.13.4
// (fence.proxy.tensormap).
#include <algorithm>

#include "block.h"
#include "check_access.h"
#include "cluster.h"
#include "decode.h"
#include "matrix.h"
#include "operation.h"
#include "tensor_map.h"

namespace sim {

namespace {

constexpr u32 MAP_BYTES = 128, PIECE = 16;

[[noreturn]] void stop(Warp& warp, int lane, FindingKind kind, const std::string& message) {
    Block& block = *warp.block;
    block.stop_at(block.at(warp, warp.here, lane, kind, message));
}

struct MapBytes {
    alignas(16) u8 data[MAP_BYTES];
};

// One access to all of a map, by one lane.
class MapAccess {
 public:
    MapAccess(Warp& warp, const Instruction& in, int lane, u64 address, bool shared)
        : warp_(warp), in_(in), lane_(lane), address_(address), shared_(shared) {
        if (address % MAP_BYTES)
            stop(
                warp, lane, FindingKind::misaligned,
                "takes a tensor map that is " + std::to_string(address % MAP_BYTES) + " bytes past a multiple of 128");
        if (shared && address >> RANK_SHIFT == warp.block->rank + 1) address_ = offset_of(address);
    }
    MapBytes read() {
        MapBytes bytes;
        each_piece(Access::read, [&](u8* at, u32 i) { std::memcpy(bytes.data + i, at, PIECE); });
        return bytes;
    }
    void write(const MapBytes& bytes) {
        each_piece(Access::write, [&](u8* at, u32 i) { std::memcpy(at, bytes.data + i, PIECE); });
    }

 private:
    template <class F>
    void each_piece(Access access, F visit) {
        for (u32 i = 0; i < MAP_BYTES; i += PIECE) {
            u64 a[LANES] = {};
            u8* at[LANES];
            a[lane_] = address_ + i;
            if (shared_)
                check_shared_at(warp_, *warp_.block, in_, a, Mask(1) << lane_, PIECE, access, at);
            else
                check_global_at(warp_, in_, a, Mask(1) << lane_, PIECE, access, at);
            visit(at[lane_], i);
        }
    }

    Warp& warp_;
    const Instruction& in_;
    int lane_;
    u64 address_;
    bool shared_;
};

// ---- tensormap.replace: operands of the handler: address, value

enum Space : u8 { GENERIC, GLOBAL, SHARED };
// option: the field, in units of FIELD, and the state space; target: the dimension.
constexpr u8 FIELD = 4;

void replace(Warp& warp, const Instruction& in, Mask mask) {
    const u64 *address = warp.row<const u64>(in.operand[0]), *value = warp.row<const u64>(in.operand[1]);
    each_lane(mask, [&](int l) {
        const bool generic = in.option % FIELD == GENERIC && address[l] - SHARED_ORIGIN < SPACE_SIZE;
        const bool shared = in.option % FIELD == SHARED || generic;
        MapAccess access(warp, in, l, address[l] - (generic ? SHARED_ORIGIN : 0), shared);
        MapBytes bytes = access.read();
        TensorMap map;
        std::memcpy(&map, bytes.data, sizeof map);
        const bool blank = std::all_of(std::begin(bytes.data), std::end(bytes.data), [](u8 byte) { return !byte; });
        if (map.magic != TensorMap::MAGIC && !blank)
            stop(
                warp, l, FindingKind::crash,
                "changes a tensor map where there is none: the bytes are neither a map nor all zero");
        if (map.im2col)
            stop(warp, l, FindingKind::crash, "changes a map of cuTensorMapEncodeIm2col by tensormap.replace.tile");
        const MapField field = MapField(in.option / FIELD);
        if (field == MapField::rank && value[l] >= TENSOR_DIMENSIONS)
            stop(
                warp, l, FindingKind::crash,
                "gives a tensor map " + std::to_string(value[l] + 1) + " dimensions, and it has 1 to 5");
        change(map, field, in.target, value[l]);
        std::memcpy(bytes.data, &map, sizeof map);
        access.write(bytes);
    });
}

struct FieldRow {
    const char* name;
    MapField field;
    u32 dimensions;  // how many it has of them; 0: it is of the whole map
    u64 values;      // an immediate below this; 0: any value
};
constexpr FieldRow FIELDS[] = {
    {"global_address", MapField::global_address, 0, 0},
    {"rank", MapField::rank, 0, 0},
    {"box_dim", MapField::box_dim, TENSOR_DIMENSIONS, 0},
    {"global_dim", MapField::global_dim, TENSOR_DIMENSIONS, 0},
    {"global_stride", MapField::global_stride, TENSOR_DIMENSIONS - 1, 0},
    {"element_stride", MapField::element_stride, TENSOR_DIMENSIONS, 0},
    {"elemtype", MapField::elemtype, 0, u64(TENSOR_TYPES)},
    {"interleave_layout", MapField::interleave_layout, 0, 1},
    {"swizzle_mode", MapField::swizzle_mode, 0, 4},
    {"fill_mode", MapField::fill_mode, 0, 2},
};

u64 immediate_below(Decoder& d, const ptx::Operand& operand, u64 limit, const char* field) {
    if (operand.kind != ptx::OperandKind::integer || operand.bits >= limit)
        d.unsupported(std::string("this operand of tensormap.replace for ") + field);
    return operand.bits;
}

// [address], {dimension,} value
void lower_replace(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const FieldRow& row = FIELDS[entry.option / FIELD];
    d.require(in, row.dimensions ? 3 : 2);
    Instruction out = d.prototype(in, entry);
    out.operand[0] = d.address_row(in.operands[0]);
    const ptx::Operand& value = in.operands[row.dimensions ? 2 : 1];
    if (row.dimensions) out.target = u32(immediate_below(d, in.operands[1], row.dimensions, row.name));
    if (row.values) immediate_below(d, value, row.values, row.name);
    out.operand[1] = d.source(value, shape_of<u64>());
    d.note_shared_access(PIECE);
    d.emit(out);
}

// ---- tensormap.cp_fenceproxy: one copy for the warp, whose lanes name the same places

void copy_and_release(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    const u64 *to = warp.row<const u64>(in.operand[0]), *from = warp.row<const u64>(in.operand[1]);
    MapAccess source(warp, in, 0, from[0], true), target(warp, in, 0, to[0], false);
    for (int l = 1; l < LANES; ++l)
        if (to[l] != to[0] || from[l] != from[0])
            stop(warp, l, FindingKind::crash, "copies another tensor map than the first lane of its warp");
    target.write(source.read());
}

void lower_copy_and_release(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 3);
    Instruction out = warp_sync_instruction(d, in, entry);
    out.operand[0] = d.address_row(in.operands[0]);
    out.operand[1] = d.address_row(in.operands[1]);
    d.note_shared_access(PIECE);
    d.emit(out);
}

// ---- fence.proxy.tensormap

void acquire(Warp& warp, const Instruction& in, Mask mask) {
    const u64* address = warp.row<const u64>(in.operand[0]);
    each_lane(mask, [&](int l) {
        u64 available = 0;
        const bool in_window = address[l] - SHARED_ORIGIN < SPACE_SIZE || address[l] - LOCAL_ORIGIN < SPACE_SIZE;
        const u8* bytes = in_window ? nullptr : peek(warp, l, address[l], &available);
        if (!bytes || available < MAP_BYTES) return;  // the ISA leaves this open, and an H100 goes on
        std::memcpy(&warp.block->acquired_maps[address[l]], bytes, sizeof(TensorMap));
    });
}

void lower_acquire(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = d.prototype(in, entry);
    out.operand[0] = d.address_row(in.operands[0]);
    d.emit(out);
}

void nothing(Warp&, const Instruction&, Mask) {}

}  // namespace

void map_change_entries(Table& t) {
    constexpr const char* SPACES[] = {"", ".global", ".shared::cta"};
    for (u8 i = 0; i < std::size(FIELDS); ++i) {
        const bool wide = FIELDS[i].field == MapField::global_address || FIELDS[i].field == MapField::global_stride;
        for (const Space space : {GENERIC, GLOBAL, SHARED})
            t.add(
                std::string("tensormap.replace.tile.") + FIELDS[i].name + SPACES[space] + ".b1024" +
                    (wide ? ".b64" : ".b32"),
                {replace, {}}, lower_replace, Flow::next, u8(i * FIELD + space));
    }
    const std::string proxy = "tensormap::generic.", scope = "{cta,cluster,gpu,sys}";
    t.add(
        "tensormap.cp_fenceproxy.global.shared::cta." + proxy + "release." + scope + ".sync.aligned",
        {copy_and_release, {}}, lower_copy_and_release, Flow::warp_sync);
    t.add("fence.proxy." + proxy + "acquire." + scope, {acquire, {}}, lower_acquire);
    t.add("fence.proxy." + proxy + "release." + scope, {nothing, {}}, lower_nothing);
}

}  // namespace sim
