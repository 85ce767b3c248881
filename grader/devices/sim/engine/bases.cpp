// bases: in which shared array an address began
//
// A register that every definition makes of the address of one and the same array, plus numbers, leaves that array
// only by mistake, wherever it lands: the next array is not what the learner named. Registers that two arrays meet in,
// and addresses that went through memory, a mask or a product, are left alone.
#include "decode.h"

namespace sim {

namespace {

constexpr s32 UNSET = -3, MANY = -2, NUMBER = -1;  // or an index into Program::shared

// Of two definitions of one register.
s32 either(s32 a, s32 b) {
    return a == UNSET ? b : b == UNSET || a == b ? a : MANY;
}

s32 plus(s32 a, s32 b) {
    if (a == UNSET || b == UNSET) return UNSET;
    return a == NUMBER ? b : b == NUMBER ? a : MANY;
}

s32 minus(s32 a, s32 b) {
    return b == NUMBER || b == UNSET ? plus(a, b) : MANY;
}

enum class Carries : u8 { copy, sum, difference, product_sum, choice };

struct Carrier {
    std::string_view opcode;
    Carries how;
};
// An `or` is a sum of what shares no bits, which the compiler knows from an array's alignment.
constexpr Carrier CARRIERS[] = {
    {"mov", Carries::copy}, {"cvta", Carries::copy},      {"cvt", Carries::copy},        {"add", Carries::sum},
    {"or", Carries::sum},   {"sub", Carries::difference}, {"mad", Carries::product_sum}, {"selp", Carries::choice},
};

const Carrier* carrier_of(const ptx::Instruction& in) {
    const std::string_view opcode = in.opcode.substr(0, in.opcode.find('.'));
    for (auto& known : CARRIERS)
        if (known.opcode == opcode && in.operands.size() >= 2) return &known;
    return nullptr;
}

template <class Visit>
void each_destination(const ptx::Instruction& in, Visit visit) {
    if (in.operands.empty()) return;
    const ptx::Operand& first = in.operands[0];
    if (first.kind == ptx::OperandKind::reg) visit(first.index);
    if (first.second && first.second->kind == ptx::OperandKind::reg) visit(first.second->index);
    if (first.kind != ptx::OperandKind::vector) return;
    for (auto& element : first.elements)
        if (element.kind == ptx::OperandKind::reg) visit(element.index);
}

}  // namespace

s32 Decoder::base_of(const ptx::Operand& operand, const std::vector<s32>& bases) const {
    if (operand.kind == ptx::OperandKind::reg) return bases[size_t(operand.index)];
    if (operand.kind == ptx::OperandKind::symbol) {
        const auto found = shared_index_.find(operand.name);
        return found == shared_index_.end() ? MANY : s32(found->second);
    }
    s32 base = NUMBER;
    if (operand.kind == ptx::OperandKind::vector)
        for (auto& element : operand.elements) base = plus(base, base_of(element, bases)) == NUMBER ? NUMBER : MANY;
    return base;
}

s32 Decoder::base_of_result(const ptx::Instruction& in, const std::vector<s32>& bases) const {
    const auto base = [&](size_t i) { return i < in.operands.size() ? base_of(in.operands[i], bases) : MANY; };
    const Carrier* carrier = carrier_of(in);
    switch (carrier && in.operands[0].kind == ptx::OperandKind::reg ? carrier->how : Carries::choice) {
        case Carries::copy:
            return base(1);
        case Carries::sum:
            return plus(base(1), base(2));
        case Carries::difference:
            return minus(base(1), base(2));
        case Carries::product_sum:
            return base(1) == NUMBER && base(2) == NUMBER ? base(3) : plus(plus(base(1), base(2)), MANY);
        case Carries::choice:
            break;
    }
    if (carrier && carrier->how == Carries::choice) return either(base(1), base(2));
    for (size_t i = 1; i < in.operands.size(); ++i)
        if (base(i) != NUMBER && base(i) != UNSET) return MANY;
    return NUMBER;
}

// Definitions may stand in any order: as often as something changes.
void Decoder::find_bases() {
    const ptx::Function& f = *here().function;
    std::vector<s32>& bases = here().bases;
    bases.assign(f.registers.size(), UNSET);
    for (bool changed = !program_.shared.empty(); changed;) {
        changed = false;
        for (auto& in : f.body) {
            const s32 result = base_of_result(in, bases);
            each_destination(in, [&](s32 index) {
                s32& base = bases[size_t(index)];
                const s32 now = either(base, result);
                changed |= now != base;
                base = now;
            });
        }
    }
}

}  // namespace sim
