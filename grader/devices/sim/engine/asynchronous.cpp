// asynchronous: cp.async and cp.async.bulk, their groups and their fences
//
// The global side is read and checked when the copy is issued; copies.h says when
// its bytes land. tensor_copy.cpp has the copies by tensor maps.
#include <algorithm>

#include "bulk_copy.h"
#include "cluster.h"
#include "decode.h"
#include "mbarrier.h"
#include "operation.h"
#include "check_access.h"

namespace sim {

namespace {

// ---- cp.async: operands of the handler: shared address, bytes to read, predicate that ignores the source

void check_source_size(Warp& warp, int lane, u32 wanted, u32 bytes) {
    if (wanted <= bytes) return;
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, lane, FindingKind::out_of_bounds,
        "copies " + std::to_string(bytes) + " bytes by cp.async, and says that " + std::to_string(wanted) +
            " of them come from global memory: the PTX ISA leaves open what is copied then"));
}

void copy(Warp& warp, const Instruction& in, Mask mask) {
    Copy copy;
    copy.pc = warp.here;
    copy.warp = warp.index;
    copy.mask = mask;
    copy.bytes = in.option;
    std::memcpy(copy.to, warp.row<const u64>(in.operand[0]), sizeof copy.to);
    check_shared_bounds(warp, copy.to, mask, copy.bytes, Access::write);
    u64 from[LANES];
    lane_addresses(warp, in, from);
    const u32* wanted = warp.row<const u32>(in.operand[1]);
    const Mask ignored = warp.predicate(in.operand[2]);
    each_lane(mask & ~ignored, [&](int l) { check_source_size(warp, l, wanted[l], copy.bytes); });
    Mask whole = 0;
    each_lane(mask & ~ignored, [&](int l) {
        // A misaligned source is reported by the access of its full size.
        whole |= Mask(wanted[l] == copy.bytes || (wanted[l] && from[l] % copy.bytes)) << l;
    });
    u8* at[LANES];
    std::memset(copy.data, 0, sizeof copy.data);
    if (whole) check_global_at(warp, in, from, whole, copy.bytes, Access::read, at);
    each_lane(whole, [&](int l) { std::memcpy(copy.data[l], at[l], copy.bytes); });
    u32 bytes[LANES];
    std::fill(bytes, bytes + LANES, copy.bytes);
    each_lane(mask & ~ignored & ~whole, [&](int l) {
        bytes[l] = wanted[l];
        if (!wanted[l]) return;
        check_global_at(warp, in, from, Mask(1) << l, wanted[l], Access::read, at);
        std::memcpy(copy.data[l], at[l], wanted[l]);
    });
    copy.sources = warp.block->copies.sources(warp, mask & ~ignored, from, bytes);
    if (Counters* counters = warp.block->counters.get()) {
        if (whole) counters->global(warp, whole, from, copy.bytes, Access::read);
        counters->shared(warp, mask, copy.to, copy.bytes, Access::write);
    }
    warp.block->copies.issue(warp, copy);
}

bool has_cache_policy(const ptx::Instruction& in) {
    return in.opcode.find("L2::cache_hint") != std::string_view::npos;
}

// cp.async [dst], [src], size {, source size | , predicate} {, cache policy}
void lower_copy(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 3);
    Instruction out = d.prototype(in, entry);
    const auto& ops = in.operands;
    out.option = u8(ops[2].bits);
    const bool narrow = in.opcode.find(".ca.") != std::string_view::npos && (out.option == 4 || out.option == 8);
    if (ops[2].kind != ptx::OperandKind::integer || (out.option != 16 && !narrow))
        d.unsupported("the size of " + std::string(in.opcode));
    const size_t count = ops.size() - has_cache_policy(in);
    const bool ignores = count > 3 && d.is_predicate(ops[3]);
    d.address(out, ops[1], in, out.option);
    out.operand[0] = d.address_row(ops[0]);
    out.operand[1] = count > 3 && !ignores ? d.source(ops[3], shape_of<u32>()) : d.constant(out.option, 4);
    out.operand[2] = ignores ? d.source(ops[3], PREDICATE) : d.constant(0, 0);
    d.emit(out);
}

void commit(Warp& warp, const Instruction&, Mask mask) {
    warp.block->copies.commit(warp, mask);
}

void wait_group(Warp& warp, const Instruction& in, Mask mask) {
    warp.block->copies.wait(warp, mask, warp.row<const u32>(in.operand[0])[__builtin_ctz(mask)]);
}

void wait_all(Warp& warp, const Instruction&, Mask mask) {
    warp.block->copies.commit(warp, mask);
    warp.block->copies.wait(warp, mask, 0, true);
}

// ---- cp.async.bulk: operands of the handler: shared address, bytes, mbarrier's address; the global one is the
// instruction's own

void check_size(Warp& warp, int lane, u64 bytes) {
    if (bytes % Copy::MOST == 0 && bytes <= (1u << 20)) return;
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, lane, FindingKind::misaligned,
        "copies " + std::to_string(bytes) + " bytes in bulk: the size must be a multiple of 16 below a megabyte"));
}

}  // namespace

BulkCopy bulk_copy(Warp& warp, const Instruction& in, int lane) {
    BulkCopy copy;
    copy.pc = warp.here;
    copy.warp = warp.index;
    copy.lane = lane;
    copy.shared = warp.row<const u64>(in.operand[0])[lane];
    if (copy.shared >> RANK_SHIFT == warp.block->rank + 1) copy.shared = offset_of(copy.shared);
    copy.bytes = copy.extent = warp.row<const u32>(in.operand[1])[lane];
    check_bulk(warp, copy);
    return copy;
}

void check_bulk(Warp& warp, const BulkCopy& copy) {
    check_size(warp, copy.lane, copy.bytes);
    u64 a[LANES];
    for (u64 done = 0; done < copy.bytes; done += Copy::MOST) {
        a[copy.lane] = copy.shared + done;
        check_shared_bounds(warp, a, Mask(1) << copy.lane, Copy::MOST, Access::write);
    }
}

void issue_load(Warp& warp, const Instruction& in, u64 barrier, s32 receivers, BulkCopy copy) {
    Block& block = *warp.block;
    if (barrier >> RANK_SHIFT == block.rank + 1) barrier = offset_of(barrier);
    if (receivers < 0) return block.mbarriers.attach(warp, copy.lane, barrier, std::move(copy));
    const u32 mask = warp.row<const u16>(receivers)[copy.lane];
    const auto& blocks = block.cluster->blocks;
    if (!mask || mask >> blocks.size())
        block.stop_at(block.at(
            warp, warp.here, copy.lane, FindingKind::crash,
            "copies to the blocks of the mask " + std::to_string(mask) + " in a cluster of " +
                plural(blocks.size(), "block")));
    for (u32 rank = 0; rank < blocks.size(); ++rank) {
        if (!(mask >> rank & 1)) continue;
        if (rank != block.rank) blocks[rank]->note_visit(warp, copy.lane);
        blocks[rank]->mbarriers.attach(warp, copy.lane, barrier, copy);
    }
}

void take_source(Warp& warp, BulkCopy& copy) {
    const u8* from = warp.block->shared.data() + copy.shared;
    copy.data.assign(from, from + copy.extent);
}

namespace {

void bulk_load(Warp& warp, const Instruction& in, Mask mask) {
    u64 from[LANES], a[LANES];
    lane_addresses(warp, in, from);
    u8* at[LANES];
    each_lane(mask, [&](int l) {
        BulkCopy copy = bulk_copy(warp, in, l);
        copy.data.resize(copy.bytes);
        for (u64 done = 0; done < copy.bytes; done += Copy::MOST) {
            a[l] = from[l] + done;
            check_global_at(warp, in, a, Mask(1) << l, Copy::MOST, Access::read, at);
            std::memcpy(copy.data.data() + done, at[l], Copy::MOST);
        }
        if (Counters* counters = warp.block->counters.get())
            counters->bulk(warp, from[l], u32(copy.bytes), Access::read), counters->tma(warp, copy.bytes, 0, 1);
        u32 bytes[LANES];
        bytes[l] = u32(copy.bytes);
        copy.sources = warp.block->copies.sources(warp, Mask(1) << l, from, bytes);
        issue_load(warp, in, warp.row<const u64>(in.operand[2])[l], in.option ? in.operand[3] : -1, std::move(copy));
    });
}

void bulk_store(Warp& warp, const Instruction& in, Mask mask) {
    u64 to[LANES];
    lane_addresses(warp, in, to);
    const u64* from = warp.row<const u64>(in.operand[0]);
    const u32* bytes = warp.row<const u32>(in.operand[1]);
    const int first = __builtin_ctz(mask);
    each_lane(mask, [&](int l) {
        BulkCopy copy = bulk_copy(warp, in, l);
        copy.repeats = l != first && to[l] == to[first] && from[l] == from[first] && bytes[l] == bytes[first];
        take_source(warp, copy);
        copy.add_piece(to[l], 0, u32(copy.bytes));
        if (Counters* counters = warp.block->counters.get())
            counters->bulk(warp, to[l], u32(copy.bytes), Access::write), counters->tma(warp, copy.bytes, 0, 1);
        warp.block->copies.issue_bulk(warp, std::move(copy));
    });
}

}  // namespace

// [dst], [src], size, [mbarrier] {, receivers}
void lower_bulk_load(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 4);
    Instruction out = d.prototype(in, entry);
    d.address(out, in.operands[1], in, Copy::MOST);
    out.extent = -1;
    out.operand[0] = d.address_row(in.operands[0]);
    out.operand[1] = d.source(in.operands[2], shape_of<u32>());
    out.operand[2] = d.address_row(in.operands[3]);
    if (entry.option) d.require(in, 5);
    if (entry.option) out.operand[3] = d.source(in.operands[4], shape_of<u16>());
    d.note_async_proxy();
    d.emit(out);
}

// [dst], [src], size
void lower_bulk_store(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 3);
    Instruction out = d.prototype(in, entry);
    d.address(out, in.operands[0], in, Copy::MOST);
    out.operand[0] = d.address_row(in.operands[1]);
    out.operand[1] = d.source(in.operands[2], shape_of<u32>());
    out.strong = out.entry->form.find("reduce") != std::string::npos;
    d.note_async_proxy();
    d.emit(out);
}

namespace {

void bulk_commit(Warp& warp, const Instruction&, Mask mask) {
    warp.block->copies.commit_bulk(warp, mask);
}

template <bool reads>
void bulk_wait(Warp& warp, const Instruction& in, Mask mask) {
    warp.block->copies.wait_bulk(warp, mask, warp.row<const u32>(in.operand[0])[__builtin_ctz(mask)], reads);
}

void lower_wait(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 1);
    Instruction out = d.prototype(in, entry);
    out.operand[0] = d.source(in.operands[0], shape_of<u32>());
    d.emit(out);
}

void fence_proxy(Warp& warp, const Instruction&, Mask mask) {
    warp.block->fence_proxy(warp, mask);
}

// What it makes known counts for barriers of the cluster that are arrived at without a release.
void fence_initialised(Warp& warp, const Instruction&, Mask mask) {
    if (warp.launch->blocks_per_cluster() > 1) warp.block->ordering.fence(warp, mask);
}

void nothing(Warp&, const Instruction&, Mask) {}

}  // namespace

void asynchronous_entries(Table& t) {
    t.add(
        "cp.async.{ca,cg}.shared{,::cta}.global{,.L2::cache_hint}{,.L2::64B,.L2::128B,.L2::256B}", {copy, {}},
        lower_copy);
    t.add("cp.async.commit_group", {commit, {}}, lower_nothing);
    t.add("cp.async.wait_group", {wait_group, {}}, lower_wait);
    t.add("cp.async.wait_all", {wait_all, {}}, lower_nothing);
    t.add(
        "cp.async.bulk.shared::{cluster,cta}.global.mbarrier::complete_tx::bytes{,.L2::cache_hint}", {bulk_load, {}},
        lower_bulk_load);
    t.add(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster{,.L2::cache_hint}",
        {bulk_load, {}}, lower_bulk_load, Flow::next, 1);
    t.add("cp.async.bulk.global.shared::cta.bulk_group{,.L2::cache_hint}", {bulk_store, {}}, lower_bulk_store);
    t.add("cp.async.bulk.commit_group", {bulk_commit, {}}, lower_nothing);
    t.add("cp.async.bulk.wait_group", {bulk_wait<false>, {}}, lower_wait);
    t.add("cp.async.bulk.wait_group.read", {bulk_wait<true>, {}}, lower_wait);
    t.add("cp.async.bulk.prefetch.L2.global{,.L2::cache_hint}", {nothing, {}}, lower_nothing);
    t.add("fence.proxy.async{,.shared::cta,.shared::cluster}", {fence_proxy, {}}, lower_nothing);
    t.add("fence.proxy.async.global", {nothing, {}}, lower_nothing);
    t.add("fence.proxy.alias{,.global,.shared::cta,.shared::cluster}", {nothing, {}}, lower_nothing);
    t.add("fence.mbarrier_init.release.cluster", {fence_initialised, {}}, lower_nothing);
}

}  // namespace sim
