// cluster_copy: copies and messages between the shared memories of a cluster
//
// Each lands in the block that has its mbarrier, when a wait there needs it: st.async and red.async (PTX ISA 9.7.9.12,
// 9.7.13.8), and cp.async.bulk from shared memory to shared memory.
#include "bulk_copy.h"
#include "check_access.h"
#include "cluster.h"
#include "mbarrier.h"
#include "operation.h"
#include "reduction.h"

namespace sim {

namespace {

// The block that has both addresses, which must be one.
Block& receiver(Warp& warp, int lane, u64 to, u64 barrier) {
    Block& block = *warp.block;
    Block *owner = block.cluster->owner(block, to), *other = block.cluster->owner(block, barrier);
    if (!owner || !other)
        block.stop_at(block.at(
            warp, warp.here, lane, FindingKind::out_of_bounds,
            "writes shared memory of a block that is not in the cluster"));
    if (owner != other)
        block.stop_at(block.at(
            warp, warp.here, lane, FindingKind::crash,
            "writes shared memory of block rank " + std::to_string(owner->rank) +
                " and tells an mbarrier of block rank " + std::to_string(other->rank) + ": both must be of one block"));
    if (owner != &block) owner->note_visit(warp, lane);
    return *owner;
}

void send(Warp& warp, int lane, u64 to, u64 barrier, BulkCopy copy) {
    Block& owner = receiver(warp, lane, to, barrier);
    copy.pc = warp.here;
    copy.warp = warp.index;
    copy.lane = lane;
    copy.shared = offset_of(to);
    if (copy.shared > owner.shared.bytes() || owner.shared.bytes() - copy.shared < copy.extent)
        warp.block->stop_at(warp.block->at(
            warp, warp.here, lane, FindingKind::out_of_bounds,
            "writes " + owner.shared_place(copy.shared, copy.extent, true).text + " in the shared memory of block " +
                std::to_string(owner.rank) + " of the cluster (" + std::to_string(owner.shared.bytes()) + " bytes)"));
    owner.mbarriers.attach(warp, lane, offset_of(barrier), std::move(copy));
}

// operands: address, values..., mbarrier
template <class T, int count>
void store_async(Warp& warp, const Instruction& in, Mask mask) {
    each_lane(mask, [&](int l) {
        BulkCopy copy;
        copy.bytes = copy.extent = sizeof(T) * count;
        copy.data.resize(copy.bytes);
        for (int i = 0; i < count; ++i)
            std::memcpy(copy.data.data() + i * sizeof(T), warp.row<const T>(in.operand[1 + i]) + l, sizeof(T));
        send(
            warp, l, warp.row<const u64>(in.operand[0])[l], warp.row<const u64>(in.operand[1 + count])[l],
            std::move(copy));
    });
}

void reduce_async(Warp& warp, const Instruction& in, Mask mask) {
    u32 bytes = 0;
    const Combine combine = combine_of_form(in.entry->form, &bytes);
    each_lane(mask, [&](int l) {
        BulkCopy copy;
        copy.bytes = copy.extent = bytes;
        copy.combine = combine;
        copy.item = bytes;
        copy.data.resize(sizeof(u64));
        std::memcpy(copy.data.data(), warp.row<const u64>(in.operand[1]) + l, sizeof(u64));
        send(warp, l, warp.row<const u64>(in.operand[0])[l], warp.row<const u64>(in.operand[2])[l], std::move(copy));
    });
}

// operands: as of a bulk load, but for the source, which is in the own shared memory
void copy_to_block(Warp& warp, const Instruction& in, Mask mask) {
    Block& block = *warp.block;
    u64 from[LANES];
    lane_addresses(warp, in, from);
    each_lane(mask, [&](int l) {
        const u64 to = warp.row<const u64>(in.operand[0])[l], barrier = warp.row<const u64>(in.operand[2])[l];
        BulkCopy copy;
        copy.pc = warp.here;
        copy.warp = warp.index;
        copy.lane = l;
        copy.shared = from[l];
        copy.bytes = copy.extent = warp.row<const u32>(in.operand[1])[l];
        check_bulk(warp, copy);
        block.copies.read_at_once(warp, copy);
        take_source(warp, copy);
        if (Counters* counters = block.counters.get()) counters->tma(warp, copy.bytes, 0, 1);
        send(warp, l, to, barrier, std::move(copy));
    });
}

template <class T, int count>
void lower_store_async(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 3);
    Instruction out = d.prototype(in, entry);
    const ptx::Operand& value = in.operands[1];
    if (count > 1 && value.elements.size() != count) d.unsupported("the operands of " + std::string(in.opcode));
    out.operand[0] = d.address_row(in.operands[0]);
    for (int i = 0; i < count; ++i)
        out.operand[1 + i] = d.source(count > 1 ? value.elements[size_t(i)] : value, shape_of<T>());
    out.operand[1 + count] = d.address_row(in.operands[2]);
    d.note_shared_access(sizeof(T));
    d.emit(out);
}

void lower_reduce_async(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 3);
    Instruction out = d.prototype(in, entry);
    out.operand[0] = d.address_row(in.operands[0]);
    out.operand[1] = d.source(in.operands[1], shape_of<u64>());
    out.operand[2] = d.address_row(in.operands[2]);
    out.strong = true;
    d.note_shared_access(sizeof(u32));
    d.emit(out);
}

template <class T>
void store_entries(Table& t, const std::string& types) {
    const std::string form = "st.async.mbarrier::complete_tx::bytes";
    t.add(form + types, {store_async<T, 1>, {}}, lower_store_async<T, 1>);
    t.add(form + ".v2" + types, {store_async<T, 2>, {}}, lower_store_async<T, 2>);
    if constexpr (sizeof(T) == 4) t.add(form + ".v4" + types, {store_async<T, 4>, {}}, lower_store_async<T, 4>);
}

}  // namespace

void cluster_copy_entries(Table& t) {
    store_entries<u32>(t, ".{b32,u32,s32,f32}");
    store_entries<u64>(t, ".{b64,u64,s64,f64}");
    const std::string red = "red.async.mbarrier::complete_tx::bytes";
    t.add(red + ".{inc,dec}.u32", {reduce_async, {}}, lower_reduce_async);
    t.add(red + ".{add,min,max}.{u32,s32}", {reduce_async, {}}, lower_reduce_async);
    t.add(red + ".add.u64", {reduce_async, {}}, lower_reduce_async);
    t.add(red + ".{and,or,xor}.b32", {reduce_async, {}}, lower_reduce_async);
    t.add(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", {copy_to_block, {}}, lower_bulk_load);
}

}  // namespace sim
