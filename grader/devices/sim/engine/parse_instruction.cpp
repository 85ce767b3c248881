// parse_instruction: opcode, guard and operands
#include "parser.h"

namespace sim::ptx {

void Parser::instruction() {
    Instruction in;
    in.location = location_;
    in.line = tokens_.peek().line;
    in.in_asm = tokens_.peek().in_asm;
    if (tokens_.accept("@")) {
        in.guard_negated = tokens_.accept("!");
        const std::string_view name = tokens_.word("a predicate register");
        in.guard = find_register(name);
        if (in.guard < 0) reject(tokens_.last(), "a declared predicate register");
    }
    in.opcode = tokens_.word("an instruction");
    if (in.opcode[0] == '.' || in.opcode[0] == '%') reject(tokens_.last(), "an instruction");
    while (!tokens_.is(";")) {
        in.operands.push_back(operand());
        if (!tokens_.accept(",")) break;
    }
    tokens_.expect(";");
    const std::string_view name = in.opcode.substr(0, in.opcode.find('.'));
    if (name == "call") return call(std::move(in));
    if (name == "ret") give_results(in);
    function_->body.push_back(std::move(in));
}

Operand Parser::operand() {
    Operand first = simple_operand();
    if (tokens_.accept("|")) first.second = std::make_shared<Operand>(simple_operand());
    return first;
}

Operand Parser::simple_operand() {
    const Nested nested(*this);
    if (tokens_.is("[")) return address();
    if (tokens_.is("{")) return group("{", "}", OperandKind::vector);
    if (tokens_.is("(")) return group("(", ")", OperandKind::list);
    if (tokens_.accept("!")) {
        Operand value = simple_operand();
        value.negated = true;
        return value;
    }
    if (tokens_.peek().kind == TokenKind::word) return name();
    return literal();
}

Operand Parser::literal() {
    Operand value;
    const bool minus = tokens_.accept("-");
    value.bits = tokens_.number(&value.kind);
    if (minus && value.kind == OperandKind::integer) value.bits = 0 - value.bits;
    if (minus && value.kind == OperandKind::single) value.bits ^= 0x80000000u;
    if (minus && value.kind == OperandKind::real) value.bits ^= u64(1) << 63;
    return value;
}

Operand Parser::name() {
    Operand value;
    value.name = tokens_.take().text;
    if (value.name == "_") return value;
    value.index = find_register(value.name);
    if (value.index == -1) select_part(value);
    if (value.index <= FIRST_VECTOR) return vectors_[size_t(FIRST_VECTOR - value.index)];
    if (value.index >= 0) {
        value.kind = OperandKind::reg;
        if (tokens_.accept("+")) value.offset = s64(tokens_.integer());
        return value;
    }
    if (value.name[0] == '%') {
        value.kind = OperandKind::special;
        return value;
    }
    value.kind = OperandKind::symbol;
    find_variable(value);
    if (tokens_.accept("+")) value.offset = s64(tokens_.integer());
    return value;
}

// %r.b1 is a part of %r, where there is no register of the whole name.
void Parser::select_part(Operand& value) {
    const size_t dot = value.name.rfind('.');
    if (dot == std::string_view::npos) return;
    const s32 whole = find_register(value.name.substr(0, dot));
    if (whole < 0) return;
    value.index = whole;
    value.part = value.name.substr(dot + 1);
}

Operand Parser::group(std::string_view open, std::string_view close, OperandKind kind) {
    Operand value;
    value.kind = kind;
    tokens_.expect(open);
    while (!tokens_.is(close)) {
        value.elements.push_back(operand());
        if (!tokens_.accept(",")) break;
    }
    tokens_.expect(close);
    return value;
}

// [reg], [reg+imm], [symbol+imm], [imm]; further elements are coordinates of
// tensors
Operand Parser::address() {
    Operand value;
    value.kind = OperandKind::address;
    tokens_.expect("[");
    value.elements.push_back(simple_operand());
    std::swap(value.offset, value.elements[0].offset);
    if (tokens_.accept("+"))
        value.offset = s64(tokens_.integer());
    else if (tokens_.is("-"))
        value.offset = s64(tokens_.integer());
    while (tokens_.accept(",")) value.elements.push_back(simple_operand());
    tokens_.expect("]");
    return value;
}

}  // namespace sim::ptx
