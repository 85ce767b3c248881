#include "decode.h"

#include <algorithm>

#include "finding.h"
#include "memory.h"

namespace sim {

namespace {

constexpr u64 PARAMETER_ORIGIN = GLOBAL_ORIGIN + WINDOW_MIDDLE;  // window 0 belongs to the parameters

u64 align_up(u64 value, u64 alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

struct Clock {
    std::string_view name;
    const char* form;  // of the row that reads it
};
constexpr Clock CLOCKS[] = {
    {"%clock", "clock.cycles"},     {"%clock_hi", "clock.cycles"},     {"%clock64", "clock.cycles"},
    {"%globaltimer", "clock.time"}, {"%globaltimer_lo", "clock.time"},
};

template <class Visit>
void each_symbol(const ptx::Operand& operand, Visit visit) {
    if (operand.kind == ptx::OperandKind::symbol) visit(operand);
    for (auto& element : operand.elements) each_symbol(element, visit);
}

}  // namespace

u64 function_address(const ptx::Module& module, std::string_view name) {
    const auto found = module.function_index.find(name);
    return found == module.function_index.end() ? 0 : CODE_ORIGIN + (found->second + 1) * CODE_STEP;
}

// ---- what a kernel reaches

void Decoder::collect(const ptx::Function& function) {
    layout_index_[function.name] = u32(layouts_.size());
    layouts_.emplace_back();
    layouts_.back().function = &function;
    layouts_.back().registers.assign(function.registers.size(), -1);
    for (auto& in : function.body) {
        const bool calls = in.opcode.substr(0, 4) == "call";
        for (auto& operand : in.operands) {
            if (calls && operand.kind == ptx::OperandKind::reg) collect_addressed();
            each_symbol(operand, [&](const ptx::Operand& symbol) {
                const auto variable = module_.variable_index.find(symbol.name);
                if (symbol.index < 0 && variable != module_.variable_index.end()) {
                    const ptx::Variable& v = module_.variables[variable->second];
                    if (v.space == ptx::Space::shared) module_shared_.push_back(&v);
                }
                const auto callee = module_.function_index.find(symbol.name);
                if (callee == module_.function_index.end() || layout_index_.count(symbol.name)) return;
                const ptx::Function& f = module_.functions[callee->second];
                if (f.defined && !f.entry) collect(f);
            });
        }
    }
}

// Where a kernel calls through pointers, they may lead to every function whose address is in a variable.
void Decoder::collect_addressed() {
    for (const ptx::Variable& v : module_.variables) {
        for (const ptx::Initializer& value : v.values) {
            const auto found = module_.function_index.find(value.symbol);
            if (found == module_.function_index.end() || layout_index_.count(value.symbol)) continue;
            const ptx::Function& f = module_.functions[found->second];
            if (f.defined && !f.entry) collect(f);
        }
    }
}

u64 Decoder::place_local(const ptx::Variable& v) {
    program_.local_bytes = align_up(program_.local_bytes, std::max<u32>(v.align, 16));
    program_.local.push_back({variable_name(std::string(v.name)), program_.local_bytes, v.bytes});
    program_.local_bytes += v.bytes;
    return program_.local.back().offset;
}

void Decoder::place_shared_variable(const ptx::Variable& v) {
    program_.static_shared = align_up(program_.static_shared, v.align);
    shared_offsets_[v.name] = program_.static_shared;
    program_.shared.push_back({variable_name(std::string(v.name)), program_.static_shared, v.bytes});
    program_.static_shared += v.bytes;
}

void Decoder::place_variables() {
    for (auto& layout : layouts_) {
        const ptx::Function& f = *layout.function;
        for (auto& v : f.variables) {
            layout.variables.push_back(0);
            if (v.space != ptx::Space::shared)
                layout.variables.back() = place_local(v);
            else if (!v.external && !shared_offsets_.count(v.name))
                place_shared_variable(v);
        }
        u64 at = 0;
        for (auto& v : f.parameters) {
            if (!f.entry) {
                layout.formal[v.name] = place_local(v);
                continue;
            }
            at = align_up(at, v.align);
            layout.formal[v.name] = PARAMETER_ORIGIN + at;
            program_.parameters.push_back({std::string(v.name), at, v.bytes});
            program_.parameter_bytes = at += v.bytes;
        }
        for (auto& v : f.returns) layout.formal[v.name] = place_local(v);
    }
    place_shared();
}

void Decoder::place_shared() {
    std::vector<const ptx::Variable*> dynamic;
    for (auto v : module_shared_) {
        if (v->external)
            dynamic.push_back(v);
        else if (!shared_offsets_.count(v->name))
            place_shared_variable(*v);
    }
    for (auto& layout : layouts_)
        for (auto& v : layout.function->variables)
            if (v.space == ptx::Space::shared && v.external) dynamic.push_back(&v);
    u32 alignment = 16;
    for (auto v : dynamic) alignment = std::max(alignment, v->align);
    program_.dynamic_base = dynamic.empty() ? program_.static_shared : align_up(program_.static_shared, alignment);
    for (auto v : dynamic) {
        if (shared_offsets_.count(v->name)) continue;
        shared_offsets_[v->name] = program_.dynamic_base;
        program_.shared.push_back({variable_name(std::string(v->name)), program_.dynamic_base, 0});
    }
    for (auto& layout : layouts_)
        for (size_t i = 0; i < layout.variables.size(); ++i) {
            const auto found = shared_offsets_.find(layout.function->variables[i].name);
            if (layout.function->variables[i].space == ptx::Space::shared) layout.variables[i] = found->second;
        }
}

void Decoder::read_directives(const ptx::Function& entry) {
    u32 threads = 1;
    for (auto& [name, values] : entry.directives) {
        if (name == ".maxntid") {
            for (u32 v : values) threads *= v;
            program_.limits.max_threads = std::min(threads, 1024u);
        }
        for (size_t i = 0; name == ".reqntid" && i < 3; ++i)
            program_.limits.required[i] = i < values.size() ? values[i] : 1;
        const bool clustered = name == ".reqnctapercluster" || name == ".explicitcluster";
        for (u32 v : values)
            if (clustered && v > 1) throw Unsupported("a cluster of more than one block", entry.location);
        if (name == ".minnctapersm" && !values.empty()) program_.limits.min_blocks = values[0];
    }
}

// ---- the whole program

Program Decoder::decode(const ptx::Function& entry) {
    program_.module = &module_;
    program_.symbol = std::string(entry.name);
    program_.name = demangled(program_.symbol);
    read_directives(entry);
    collect(entry);
    place_variables();
    for (current_ = 0; current_ < layouts_.size(); ++current_) decode_function(current_);
    std::vector<u8> state(layouts_.size(), 0);
    refuse_recursion(0, state);
    resolve_fixes();
    program_.row_bytes = align_up(program_.row_bytes, 64);
    program_.local_bytes = align_up(program_.local_bytes, 16);
    return std::move(program_);
}

void Decoder::decode_function(u32 index) {
    const ptx::Function& f = *layouts_[index].function;
    here().start = u32(program_.code.size());
    here().pc_of.reserve(f.body.size() + 1);
    for (auto& in : f.body) {
        here().pc_of.push_back(u32(program_.code.size()));
        decode_instruction(in);
    }
    here().pc_of.push_back(u32(program_.code.size()));
    // A function that ends without a return returns.
    ptx::Instruction end;
    end.opcode = "ret";
    end.location = f.body.empty() ? f.location : f.body.back().location;
    decode_instruction(end);
}

void Decoder::decode_instruction(const ptx::Instruction& in) {
    instruction_ = &in;
    for (auto& used : temporaries_used_) used.second = 0;
    const Form form = form_of(in);
    const Row* row = operations().find(form.name);
    if (!row) unsupported("the instruction " + std::string(in.opcode));
    row->build(*this, in, *row);
}

void Decoder::resolve_fixes() {
    for (const Fix& fix : fixes_) {
        const Layout& layout = layouts_[fix.layout];
        const auto found = layout.function->labels.find(fix.label);
        if (found == layout.function->labels.end())
            throw Unsupported(
                "the label " + std::string(fix.label) + ", which is nowhere", program_.code[fix.pc].location);
        const u32 to = layout.pc_of[found->second];
        if (fix.table >= 0)
            program_.branch_tables[u32(fix.table)].push_back(to);
        else
            program_.code[fix.pc].target = to;
    }
    for (CallSite& call : program_.calls)
        if (!call.builtin) call.target = layouts_[layout_index_.at(call.callee)].start;
}

// Every function has its registers and local variables once, so a function
// cannot be active twice in one thread.
void Decoder::refuse_recursion(u32 index, std::vector<u8>& state) {
    state[index] = 1;
    for (auto& in : layouts_[index].function->body) {
        for (auto& operand : in.operands) {
            const auto found = layout_index_.find(operand.name);
            if (in.opcode.substr(0, 4) != "call" || found == layout_index_.end()) continue;
            if (state[found->second] == 1)
                throw Unsupported("recursion: " + demangled(std::string(operand.name)) + " calls itself", in.location);
            if (state[found->second] == 0) refuse_recursion(found->second, state);
        }
    }
    state[index] = 2;
}

void Decoder::unsupported(const std::string& what) const {
    throw Unsupported(what, instruction_->location);
}

void Decoder::require(const ptx::Instruction& in, size_t operands) const {
    if (in.operands.size() < operands)
        unsupported("the instruction " + std::string(in.opcode) + " with " + plural(in.operands.size(), "operand"));
}

Instruction Decoder::prototype(const ptx::Instruction& in, const Row& row) const {
    Instruction out;
    out.run = row.operation.run;
    out.flow = row.flow;
    out.option = row.option;
    out.row = &row;
    out.location = in.location;
    if (in.guard >= 0) {
        out.guard = const_cast<Decoder*>(this)->register_row(in.guard);
        out.guard_negated = in.guard_negated;
    }
    return out;
}

void Decoder::emit(Instruction instruction) {
    program_.code.push_back(instruction);
    for (auto& later : after_) program_.code.push_back(later);
    after_.clear();
}

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
    const Row* resizing = operations().find(
        "resize.b" + std::to_string(to.bytes * 8) + (extend ? ".s" : ".b") + std::to_string(from_bytes * 8));
    if (!resizing)
        unsupported("an operand of " + std::to_string(from_bytes) + " bytes in " + std::string(instruction_->opcode));
    Instruction out;
    out.run = resizing->operation.run;
    out.row = resizing;
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
    const Row* resizing = operations().find(
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

u64 Decoder::symbol_address(const ptx::Operand& operand) const {
    if (operand.index >= 0) return here().variables[size_t(operand.index)] + u64(operand.offset);
    const auto formal = here().formal.find(operand.name);
    if (formal != here().formal.end()) return formal->second + u64(operand.offset);
    const auto shared = shared_offsets_.find(operand.name);
    if (shared != shared_offsets_.end()) return shared->second + u64(operand.offset);
    const auto global = addresses_.find(operand.name);
    if (global != addresses_.end()) return global->second + u64(operand.offset);
    if (const u64 code = function_address(module_, operand.name)) return code;
    unsupported("the symbol " + std::string(operand.name) + ", which is not declared,");
}

s32 Decoder::source(const ptx::Operand& operand, Shape shape) {
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
            return bytes == shape.bytes ? row : resize(row, bytes, shape);
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
            return constant(symbol_address(operand), shape.bytes);
        case ptx::OperandKind::sink:
            return sink(shape.bytes);
        default:
            unsupported("an operand of " + std::string(instruction_->opcode));
    }
}

s32 Decoder::destination(const ptx::Operand& operand, Shape shape) {
    if (operand.kind == ptx::OperandKind::sink) return sink(shape.bytes);
    if (operand.kind != ptx::OperandKind::reg) unsupported("a destination of " + std::string(instruction_->opcode));
    const s32 row = register_row(operand.index);
    const u8 bytes = register_bytes(operand.index);
    if (bytes == shape.bytes) return row;
    const s32 result = temporary(shape.bytes);
    resize_into(result, shape, row, bytes);
    return result;
}

s32 Decoder::address_row(const ptx::Operand& operand) {
    if (operand.kind != ptx::OperandKind::address) unsupported("an address of " + std::string(instruction_->opcode));
    const ptx::Operand& base = operand.elements[0];
    const u64 offset = u64(operand.offset);
    if (base.kind == ptx::OperandKind::symbol) return constant(symbol_address(base) + offset, 8);
    if (base.kind != ptx::OperandKind::reg) return constant(base.bits + offset, 8);
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

bool Decoder::is_local_symbol(const ptx::Operand& operand) const {
    if (operand.kind != ptx::OperandKind::symbol) return false;
    return operand.index >= 0 || !here().function->entry;
}

u32 Decoder::branch_table(std::string_view name) {
    const auto found = here().function->tables.find(name);
    if (found == here().function->tables.end()) unsupported("the branch table " + std::string(name));
    const u32 index = u32(program_.branch_tables.size());
    program_.branch_tables.emplace_back();
    for (auto label : found->second) fixes_.push_back({u32(program_.code.size()), current_, label, s32(index)});
    return index;
}

s32 Decoder::fragments(const std::vector<s32>& rows) {
    const s32 first = s32(program_.fragments.size());
    program_.fragments.insert(program_.fragments.end(), rows.begin(), rows.end());
    return first;
}

void Decoder::branch_to(Instruction&, std::string_view label) {
    fixes_.push_back({u32(program_.code.size()), current_, label, -1});
}

}  // namespace sim
