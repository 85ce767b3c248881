// predicate: logic on predicates, 32 lanes in one word
#include "operation.h"

namespace sim {

namespace {

template <Mask (*F)(Mask, Mask)>
void combine(Warp& warp, const Instruction& in, Mask mask) {
    warp.set_predicate(in.operand[0], mask, F(warp.predicate(in.operand[1]), warp.predicate(in.operand[2])));
}
Mask both(Mask a, Mask b) {
    return a & b;
}
Mask either(Mask a, Mask b) {
    return a | b;
}
Mask differ(Mask a, Mask b) {
    return a ^ b;
}

void invert(Warp& warp, const Instruction& in, Mask mask) {
    warp.set_predicate(in.operand[0], mask, ~warp.predicate(in.operand[1]));
}
void copy(Warp& warp, const Instruction& in, Mask mask) {
    warp.set_predicate(in.operand[0], mask, warp.predicate(in.operand[1]));
}

constexpr Signature TWO{2, {PREDICATE, PREDICATE}};
constexpr Signature THREE{3, {PREDICATE, PREDICATE, PREDICATE}};

}  // namespace

void predicate_entries(Table& t) {
    t.add("and.pred", {combine<both>, THREE});
    t.add("or.pred", {combine<either>, THREE});
    t.add("xor.pred", {combine<differ>, THREE});
    t.add("not.pred", {invert, TWO});
    t.add("mov.pred", {copy, TWO});
}

}  // namespace sim
