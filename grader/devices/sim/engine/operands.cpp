// operands: registers, constants and symbols of an instruction -> rows and addresses
#include "decode.h"

namespace sim {

namespace {

struct Clock {
    std::string_view name;
    const char* form;  // of the entry that reads it
};
constexpr Clock CLOCKS[] = {
    {"%clock", "clock.cycles"},     {"%clock_hi", "clock.cycles"},     {"%clock64", "clock.cycles"},
    {"%globaltimer", "clock.time"}, {"%globaltimer_lo", "clock.time"},
};

}  // namespace

// ---- rows

s32 Decoder::new_row(u8 bytes) {
    const u64 size = bytes ? u64(bytes) * LANES : 64;
    const s32 row = s32(program_.row_bytes);
    program_.row_bytes += size < 64 ? 64 : size;
    return row;
}

u8 Decoder::register_bytes(s32 index) const {
    return u8(ptx::type_bytes(here().function->registers[size_t(index)].type));
}

s32 Decoder::register_row(s32 index) {
    s32& row = here().registers[size_t(index)];
    if (row < 0) row = new_row(register_bytes(index));
    return row;
}

s32 Decoder::temporary(u8 bytes) {
    auto& rows = temporaries_[bytes];
    const size_t next = temporaries_used_[bytes]++;
    if (next == rows.size()) rows.push_back(new_row(bytes));
    return rows[next];
}

s32 Decoder::sink(u8 bytes) {
    const auto found = sinks_.find(bytes);
    return found != sinks_.end() ? found->second : sinks_[bytes] = new_row(bytes);
}

s32 Decoder::constant(u64 bits, u8 bytes) {
    if (bytes > 0 && bytes < 8) bits &= (u64(1) << bytes * 8) - 1;
    const auto key = std::make_pair(bytes, bits);
    const auto found = constants_.find(key);
    if (found != constants_.end()) return found->second;
    const s32 row = new_row(bytes);
    program_.constants.push_back({row, bytes, bits});
    return constants_[key] = row;
}

// Copies a row into one of another width, before the instruction.
s32 Decoder::resize(s32 from, u8 from_bytes, Shape to) {
    const s32 row = temporary(to.bytes);
    const bool extend = to.is_signed && from_bytes < to.bytes;
    const OpcodeEntry* resizing = operations().find(
        "resize.b" + std::to_string(to.bytes * 8) + (extend ? ".s" : ".b") + std::to_string(from_bytes * 8));
    if (!resizing)
        unsupported("an operand of " + std::to_string(from_bytes) + " bytes in " + std::string(instruction_->opcode));
    Instruction out;
    out.run = resizing->operation.run;
    out.entry = resizing;
    out.location = instruction_->location;
    out.operand[0] = row;
    out.operand[1] = from;
    program_.code.push_back(out);
    return row;
}

// Copies an instruction's result into a register of another width, after it and
// under its guard.
void Decoder::resize_into(s32 from, Shape shape, s32 to, u8 to_bytes) {
    const bool extend = shape.is_signed && to_bytes > shape.bytes;
    const OpcodeEntry* resizing = operations().find(
        "resize.b" + std::to_string(to_bytes * 8) + (extend ? ".s" : ".b") + std::to_string(shape.bytes * 8));
    if (!resizing)
        unsupported("a result of " + std::to_string(to_bytes) + " bytes in " + std::string(instruction_->opcode));
    Instruction out = prototype(*instruction_, *resizing);
    out.operand[0] = to;
    out.operand[1] = from;
    after_.push_back(out);
}

// ---- operands

s32 Decoder::special(std::string_view name, u8 bytes) {
    for (auto& clock : CLOCKS) {
        if (clock.name != name) continue;
        Instruction out = prototype(*instruction_, *operations().find(clock.form));
        const s32 value = out.operand[0] = temporary(8);
        program_.code.push_back(out);
        return bytes == 8 ? value : resize(value, 8, {bytes, false, false});
    }
    const Special* special = find_special(name);
    if (!special && name.substr(0, 7) == "%envreg") return constant(0, bytes);
    if (!special) unsupported("the special register " + std::string(name));
    const auto found = specials_.find(special);
    s32 row = found != specials_.end() ? found->second : -1;
    if (row < 0) {
        row = specials_[special] = new_row(4);
        program_.specials.push_back({row, special});
    }
    return bytes == 4 ? row : resize(row, 4, {bytes, false, false});
}

// The row of `reg + offset` as a source.
s32 Decoder::moved_by(s32 row, Shape shape, s64 offset) {
    if (!offset) return row;
    const OpcodeEntry* adding = operations().find("add.u" + std::to_string(shape.bytes * 8));
    if (!adding) unsupported("a number added to an operand of " + std::string(instruction_->opcode));
    Instruction out = prototype(*instruction_, *adding);
    out.guard = -1;
    out.operand[0] = temporary(shape.bytes);
    out.operand[1] = row;
    out.operand[2] = constant(u64(offset), shape.bytes);
    program_.code.push_back(out);
    return out.operand[0];
}

// The row that a local variable of a function that calls itself lies behind; -1 for everything else.
s32 Decoder::frame_base(const ptx::Operand& operand) const {
    const bool own = operand.kind == ptx::OperandKind::symbol && operand.index >= 0 && here().frame >= 0;
    if (!own || here().function->variables[size_t(operand.index)].space != ptx::Space::local) return -1;
    return program_.frames[size_t(here().frame)].base_row;
}

s32 Decoder::in_frame(const ptx::Operand& symbol, Shape shape) {
    Instruction out = prototype(*instruction_, *operations().find("add.u64"));
    out.guard = -1;
    out.operand[0] = temporary(8);
    out.operand[1] = frame_base(symbol);
    out.operand[2] = constant(symbol_address(symbol), 8);
    program_.code.push_back(out);
    return shape.bytes == 8 ? out.operand[0] : resize(out.operand[0], 8, shape);
}

u64 Decoder::symbol_address(const ptx::Operand& operand) const {
    if (operand.kind != ptx::OperandKind::symbol) unsupported("an operand of " + std::string(instruction_->opcode));
    if (operand.index >= 0) return here().variables[size_t(operand.index)] + u64(operand.offset);
    const auto formal = here().formal.find(operand.name);
    if (formal != here().formal.end()) return formal->second + u64(operand.offset);
    const auto shared = shared_offsets_.find(operand.name);
    if (shared != shared_offsets_.end()) return shared->second + u64(operand.offset);
    const auto global = addresses_.find(operand.name);
    if (global != addresses_.end()) return global->second + u64(operand.offset);
    if (operand.name == "WARP_SZ") return LANES;  // a constant of the language (PTX ISA, "Predefined Identifiers")
    if (const u64 code = function_address(module_, operand.name)) return code;
    unsupported("the symbol " + std::string(operand.name) + ", which is not declared,");
}

s32 Decoder::source(const ptx::Operand& operand, Shape shape) {
    if (!operand.part.empty()) unsupported("a part of a register in " + std::string(instruction_->opcode));
    switch (operand.kind) {
        case ptx::OperandKind::reg: {
            const s32 row = register_row(operand.index);
            const u8 bytes = register_bytes(operand.index);
            if (operand.negated) {
                Instruction out = prototype(*instruction_, *operations().find("not.pred"));
                out.guard = -1;
                out.operand[1] = row;
                out.operand[0] = temporary(0);
                program_.code.push_back(out);
                return out.operand[0];
            }
            return moved_by(bytes == shape.bytes ? row : resize(row, bytes, shape), shape, operand.offset);
        }
        case ptx::OperandKind::special:
            return special(operand.name, shape.bytes);
        case ptx::OperandKind::integer:
            return constant(operand.bits, shape.bytes);
        case ptx::OperandKind::single:
            return constant(
                shape.bytes == 8 ? bit_cast<u64>(f64(bit_cast<f32>(u32(operand.bits)))) : operand.bits, shape.bytes);
        case ptx::OperandKind::real:
            return constant(
                shape.bytes == 4 ? bit_cast<u32>(f32(bit_cast<f64>(operand.bits))) : operand.bits, shape.bytes);
        case ptx::OperandKind::symbol:
            if (frame_base(operand) >= 0) return in_frame(operand, shape);
            return constant(symbol_address(operand), shape.bytes);
        case ptx::OperandKind::sink:
            return sink(shape.bytes);
        default:
            unsupported("an operand of " + std::string(instruction_->opcode));
    }
}

s32 Decoder::destination(const ptx::Operand& operand, Shape shape) {
    if (operand.kind == ptx::OperandKind::sink) return sink(shape.bytes);
    if (operand.kind != ptx::OperandKind::reg || !operand.part.empty())
        unsupported("a destination of " + std::string(instruction_->opcode));
    const s32 row = register_row(operand.index);
    const u8 bytes = register_bytes(operand.index);
    ++destinations_[row];
    if (bytes == shape.bytes) return row;
    const s32 result = temporary(shape.bytes);
    resize_into(result, shape, row, bytes);
    return result;
}

s32 Decoder::address_row(const ptx::Operand& operand) {
    if (operand.kind != ptx::OperandKind::address) unsupported("an address of " + std::string(instruction_->opcode));
    const ptx::Operand& base = operand.elements[0];
    const u64 offset = u64(operand.offset);
    const bool framed = frame_base(base) >= 0;
    if (base.kind == ptx::OperandKind::symbol && !framed) return constant(symbol_address(base) + offset, 8);
    if (base.kind != ptx::OperandKind::reg && !framed) return constant(base.bits + offset, 8);
    const s32 row = source(base, shape_of<u64>());
    if (!offset) return row;
    Instruction out = prototype(*instruction_, *operations().find("add.u64"));
    out.guard = -1;
    out.operand[0] = temporary(8);
    out.operand[1] = row;
    out.operand[2] = constant(offset, 8);
    program_.code.push_back(out);
    return out.operand[0];
}

bool Decoder::is_predicate(const ptx::Operand& operand) const {
    return operand.kind == ptx::OperandKind::reg && register_bytes(operand.index) == 0;
}

s32 Decoder::optional_predicate(const ptx::Operand& operand) {
    return operand.second ? destination(*operand.second, PREDICATE) : sink(0);
}

// Where in local memory a call finds or leaves a value of so many bytes: in a .param variable of the caller, or one of
// the caller's own parameters.
u32 Decoder::parameter_at(const ptx::Operand& symbol, u64 bytes) const {
    const ptx::Function& f = *here().function;
    const ptx::Variable* variable = nullptr;
    if (symbol.kind == ptx::OperandKind::symbol && symbol.index >= 0) variable = &f.variables[size_t(symbol.index)];
    for (auto* list : {&f.parameters, &f.returns})
        for (auto& formal : *list)
            if (symbol.kind == ptx::OperandKind::symbol && !f.entry && formal.name == symbol.name) variable = &formal;
    if (!variable || variable->space != ptx::Space::param || u64(symbol.offset) + bytes > variable->bytes)
        unsupported("a call with " + std::string(symbol.name) + " as one of its parameters");
    return u32(symbol_address(symbol));
}

// Where a variable lies; none: in global memory, or not a variable.
ptx::Space Decoder::space_of(const ptx::Operand& operand) const {
    if (operand.kind != ptx::OperandKind::symbol) return ptx::Space::none;
    if (operand.index >= 0) return here().function->variables[size_t(operand.index)].space;
    const bool formal = here().formal.count(operand.name) != 0;
    if (formal) return here().function->entry ? ptx::Space::none : ptx::Space::param;
    return shared_offsets_.count(operand.name) ? ptx::Space::shared : ptx::Space::none;
}

bool Decoder::is_local_symbol(const ptx::Operand& operand) const {
    if (operand.kind != ptx::OperandKind::symbol) return false;
    return operand.index >= 0 || !here().function->entry;
}

u32 Decoder::branch_table(std::string_view name) {
    const auto found = here().function->tables.find(name);
    if (found == here().function->tables.end()) unsupported("the branch table " + std::string(name));
    const u32 index = u32(program_.branch_tables.size());
    program_.branch_tables.emplace_back();
    for (auto label : found->second) fixups_.push_back({u32(program_.code.size()), current_, label, s32(index)});
    return index;
}

s32 Decoder::fragments(const std::vector<s32>& rows) {
    const s32 first = s32(program_.fragments.size());
    program_.fragments.insert(program_.fragments.end(), rows.begin(), rows.end());
    return first;
}

void Decoder::branch_to(Instruction&, std::string_view label) {
    fixups_.push_back({u32(program_.code.size()), current_, label, -1});
}

}  // namespace sim
