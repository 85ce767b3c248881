// collective: instructions of a warp's lanes together: shuffles, votes,
// matches, reductions
//
// They run once all lanes of the member mask stand at them (Flow::warp_sync). What
// a shuffle gets from a lane that takes no part in it is poison (poison.h).
#include "block.h"
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u32 POISON = 0x7fffdead;

// What the lane gets is undefined (PTX ISA 9.7.9.6): nothing may depend on it.
void absent(Warp& warp, const Instruction& in, int lane, int source, u32 members) {
    Block& block = *warp.block;
    char text[16];
    std::snprintf(text, sizeof text, "0x%08x", members);
    const std::string why =
        members >> source & 1 ? ", which is not there" : std::string(", which its mask ") + text + " does not name";
    Finding finding = block.at(
        warp, warp.here, lane, FindingKind::uninitialised,
        "uses what " + in.entry->form + " gives " + block.thread(warp.thread(lane)) + " from lane " +
            std::to_string(source) + why);
    warp.poisons.taint(in.operand[0], Mask(1) << lane, warp.poisons.add_cause(std::move(finding), Poisons::Place::use));
}

// What lanes get is poison where it comes from one that takes no part, or was poison there.
__attribute__((noinline, cold)) void taint_results(
    Warp& warp, const Instruction& in, Mask mask, Mask outside, const s32* sources) {
    const Poisons::Row before = warp.poisons.at(in.operand[2]);
    warp.poisons.heal(in.operand[0], mask);
    each_lane(mask, [&](int l) {
        if (outside >> l & 1)
            absent(warp, in, l, sources[l], warp.row<const u32>(in.operand[5])[l]);
        else
            warp.poisons.taint_as(before, in.operand[0], l, sources[l]);
    });
}

enum class Shuffle { up, down, butterfly, index };

// PTX ISA 9.7.9.6: c holds the clamp in bits 0-4 and the segment mask in bits
// 8-12.
template <Shuffle mode>
void shuffle(Warp& warp, const Instruction& in, Mask mask) {
    u32 from[LANES];
    std::memcpy(from, warp.row<const u32>(in.operand[2]), sizeof from);
    const u32* members = warp.row<const u32>(in.operand[5]);
    u32* d = warp.row<u32>(in.operand[0]);
    const u32 *b = warp.row<const u32>(in.operand[3]), *c = warp.row<const u32>(in.operand[4]);
    Mask inside = 0, outside = 0;
    s32 sources[LANES];
    each_lane(mask, [&](int l) {
        const s32 lane = l, offset = s32(b[l] & 31), clamp = s32(c[l] & 31), segment = s32(c[l] >> 8 & 31);
        const s32 top = (lane & segment) | (clamp & ~segment), bottom = lane & segment;
        s32 source = lane;
        bool valid = true;
        if (mode == Shuffle::up) source = lane - offset, valid = source >= top;
        if (mode == Shuffle::down) source = lane + offset, valid = source <= top;
        if (mode == Shuffle::butterfly) source = lane ^ offset, valid = source <= top;
        if (mode == Shuffle::index) source = bottom | (offset & ~segment), valid = source <= top;
        if (!valid) source = lane;
        const bool takes_part = (mask & members[l]) >> source & 1;
        d[l] = takes_part ? from[source] : POISON;
        outside |= Mask(!takes_part) << l;
        sources[l] = source;
        inside |= Mask(valid) << l;
    });
    warp.set_predicate(in.operand[1], mask, inside);
    if (outside || !warp.poisons.empty()) taint_results(warp, in, mask, outside, sources);
}

enum class Vote { ballot, any, all, uniform };

template <Vote mode>
void vote(Warp& warp, const Instruction& in, Mask mask) {
    const Mask p = warp.predicate(in.operand[2]);
    const u32* members = warp.row<const u32>(in.operand[3]);
    each_lane(mask, [&](int l) {
        const Mask group = mask & members[l], yes = group & p;
        if (mode == Vote::ballot) {
            warp.row<u32>(in.operand[0])[l] = yes;
            return;
        }
        const bool result = mode == Vote::any ? yes != 0 : mode == Vote::all ? yes == group : !yes || yes == group;
        warp.set_predicate(in.operand[0], Mask(1) << l, result ? ALL : 0);
    });
}

template <class T, bool all>
void match(Warp& warp, const Instruction& in, Mask mask) {
    const T* a = warp.row<const T>(in.operand[2]);
    const u32* members = warp.row<const u32>(in.operand[3]);
    u32 result[LANES];
    Mask same = 0;
    each_lane(mask, [&](int l) {
        const Mask group = mask & members[l];
        Mask equal = 0;
        each_lane(group, [&](int other) { equal |= Mask(a[other] == a[l]) << other; });
        result[l] = !all ? equal : equal == group ? group : 0;
        same |= Mask(equal == group) << l;
    });
    each_lane(mask, [&](int l) { warp.row<u32>(in.operand[0])[l] = result[l]; });
    warp.set_predicate(in.operand[1], mask, same);
}

template <class T, T (*F)(T, T)>
void reduce(Warp& warp, const Instruction& in, Mask mask) {
    const T* a = warp.row<const T>(in.operand[2]);
    const u32* members = warp.row<const u32>(in.operand[3]);
    T result[LANES];
    each_lane(mask, [&](int l) {
        Mask group = mask & members[l];
        T value = a[__builtin_ctz(group)];
        for (group &= group - 1; group; group &= group - 1) value = F(value, a[__builtin_ctz(group)]);
        result[l] = value;
    });
    each_lane(mask, [&](int l) { warp.row<T>(in.operand[0])[l] = result[l]; });
}
u32 add(u32 a, u32 b) {
    return a + b;
}
template <class T>
T minimum(T a, T b) {
    return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
    return a > b ? a : b;
}
u32 bit_and(u32 a, u32 b) {
    return a & b;
}
u32 bit_or(u32 a, u32 b) {
    return a | b;
}
u32 bit_xor(u32 a, u32 b) {
    return a ^ b;
}

void active_mask(Warp& warp, const Instruction& in, Mask mask) {
    each_lane(mask, [&](int l) { warp.row<u32>(in.operand[0])[l] = mask; });
}

// Some lane of the mask, always the same (PTX ISA 9.7.13.12): the first here, or in every second call the last.
void elect(Warp& warp, const Instruction& in, Mask mask) {
    const bool last = warp.launch->elects_last();
    const u32 leader = u32(last ? LANES - 1 - __builtin_clz(mask) : __builtin_ctz(mask));
    each_lane(mask, [&](int l) { warp.row<u32>(in.operand[0])[l] = leader; });
    warp.set_predicate(in.operand[1], mask, Mask(1) << leader);
}

// bar.warp.sync: what its lanes did before comes before what they do after. Lanes with one mask meet each other.
void warp_barrier(Warp& warp, const Instruction& in, Mask mask) {
    const u32* members = warp.row<const u32>(in.operand[in.target]);
    while (mask) {
        const u32 named = members[__builtin_ctz(mask)];
        Mask same = 0;
        each_lane(mask, [&](int l) { same |= Mask(members[l] == named) << l; });
        warp.meet(same);
        mask &= ~same;
    }
}

constexpr Shape U32 = shape_of<u32>();

void shuffle_entries(Table& t) {
    const Signature s{6, {U32, PREDICATE, U32, U32, U32, U32}};
    t.add("shfl.sync.up.b32", {shuffle<Shuffle::up>, s}, lower_collective, Flow::warp_sync);
    t.add("shfl.sync.down.b32", {shuffle<Shuffle::down>, s}, lower_collective, Flow::warp_sync);
    t.add("shfl.sync.bfly.b32", {shuffle<Shuffle::butterfly>, s}, lower_collective, Flow::warp_sync);
    t.add("shfl.sync.idx.b32", {shuffle<Shuffle::index>, s}, lower_collective, Flow::warp_sync);
}

void vote_entries(Table& t) {
    const Signature ballot{4, {U32, PREDICATE, PREDICATE, U32}}, truth{4, {PREDICATE, PREDICATE, PREDICATE, U32}};
    t.add("vote.sync.ballot.b32", {vote<Vote::ballot>, ballot}, lower_collective, Flow::warp_sync);
    t.add("vote.sync.any.pred", {vote<Vote::any>, truth}, lower_collective, Flow::warp_sync);
    t.add("vote.sync.all.pred", {vote<Vote::all>, truth}, lower_collective, Flow::warp_sync);
    t.add("vote.sync.uni.pred", {vote<Vote::uniform>, truth}, lower_collective, Flow::warp_sync);
    const Signature narrow{4, {U32, PREDICATE, U32, U32}}, wide{4, {U32, PREDICATE, shape_of<u64>(), U32}};
    t.add("match.any.sync.b32", {match<u32, false>, narrow}, lower_collective, Flow::warp_sync);
    t.add("match.all.sync.b32", {match<u32, true>, narrow}, lower_collective, Flow::warp_sync);
    t.add("match.any.sync.b64", {match<u64, false>, wide}, lower_collective, Flow::warp_sync);
    t.add("match.all.sync.b64", {match<u64, true>, wide}, lower_collective, Flow::warp_sync);
    t.add("elect.sync", {elect, {3, {U32, PREDICATE, U32}}}, lower_collective, Flow::warp_sync);
}

template <class T, T (*F)(T, T)>
void reduce_row(Table& t, const std::string& form) {
    const Signature s{4, {shape_of<T>(), PREDICATE, shape_of<T>(), U32}};
    t.add("redux.sync." + form, {reduce<T, F>, s}, lower_collective, Flow::warp_sync);
}

}  // namespace

void collective_entries(Table& t) {
    shuffle_entries(t);
    vote_entries(t);
    reduce_row<u32, add>(t, "add.{u32,s32}");
    reduce_row<u32, minimum<u32>>(t, "min.u32");
    reduce_row<s32, minimum<s32>>(t, "min.s32");
    reduce_row<u32, maximum<u32>>(t, "max.u32");
    reduce_row<s32, maximum<s32>>(t, "max.s32");
    reduce_row<u32, bit_and>(t, "and.b32");
    reduce_row<u32, bit_or>(t, "or.b32");
    reduce_row<u32, bit_xor>(t, "xor.b32");
    t.add("activemask.b32", {active_mask, {1, {U32}}});
    t.add("bar.warp.sync", {warp_barrier, {1, {U32}}}, lower_warp_barrier, Flow::warp_sync);
}

}  // namespace sim
