#include "decode.h"

#include <algorithm>

#include "finding.h"
#include "memory.h"

namespace sim {

namespace {

// An instruction that others do: the entry of the one that does most of it, and how.
struct Composed {
    const OpcodeEntry* entry = nullptr;
    Lowering lower = nullptr;
};

Composed composed(const std::string& form) {
    if (form.compare(0, 5, "mov.v") == 0 && form.size() > 7)
        return {operations().find("mov" + form.substr(6)), lower_vector_copy};
    if (form.compare(0, 4, "ldu.") == 0) return {operations().find("ld" + form.substr(3)), lower_load};
    if (form.compare(0, 13, "createpolicy.") == 0) return {operations().find("mov.b64"), lower_policy};
    const size_t last = form.rfind('.');
    if (form.compare(0, 4, "set.") != 0 || last <= 4) return {};
    const size_t before = form.rfind('.', last - 1);
    return {operations().find("setp" + form.substr(3, before - 3) + form.substr(last)), lower_set};
}

}  // namespace

void Decoder::read_directives(const ptx::Function& entry) {
    u32 threads = 1;
    for (auto& [name, values] : entry.directives) {
        if (name == ".maxntid") {
            for (u32 v : values) threads *= v;
            program_.limits.max_threads = std::min(threads, 1024u);
            program_.limits.bounded = true;
        }
        for (size_t i = 0; name == ".reqntid" && i < 3; ++i)
            program_.limits.required[i] = i < values.size() ? values[i] : 1;
        for (size_t i = 0; name == ".reqnctapercluster" && i < 3; ++i)
            program_.limits.cluster[i] = i < values.size() ? values[i] : 1;
        if (name == ".maxnreg" && !values.empty()) program_.limits.max_registers = values[0];
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
    find_recursion();
    place_variables();
    for (current_ = 0; current_ < layouts_.size(); ++current_) decode_function(current_);
    complete_frames();
    patch_branches();
    if (program_.multiplies) watch_matrix_rows();
    program_.row_bytes = align_up(program_.row_bytes, 64);
    program_.local_bytes = align_up(program_.local_bytes, 16);
    return std::move(program_);
}

void Decoder::decode_function(u32 index) {
    const ptx::Function& f = *layouts_[index].function;
    find_bases();
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
    const OpcodeEntry* entry = operations().find(form.name);
    if (!entry) entry = operations().find_reordered(form.name);
    if (entry) return entry->lower(*this, in, *entry);
    const Composed others = composed(form.name);
    if (others.entry) return others.lower(*this, in, *others.entry);
    unsupported("the instruction " + std::string(in.opcode));
}

void Decoder::patch_branches() {
    for (const Fixup& fixup : fixups_) {
        const Layout& layout = layouts_[fixup.layout];
        const auto found = layout.function->labels.find(fixup.label);
        if (found == layout.function->labels.end())
            throw Unsupported(
                "the label " + std::string(fixup.label) + ", which is nowhere", program_.code[fixup.pc].location);
        const u32 to = layout.pc_of[found->second];
        if (fixup.table >= 0)
            program_.branch_tables[u32(fixup.table)].push_back(to);
        else
            program_.code[fixup.pc].target = to;
    }
    for (CallSite& call : program_.calls)
        if (!call.builtin) call.target = layouts_[layout_index_.at(call.callee)].start;
}

// What an activation has to put aside is known when all registers have their rows.
void Decoder::complete_frames() {
    for (const Layout& layout : layouts_) {
        if (layout.frame < 0) continue;
        Frame& frame = program_.frames[size_t(layout.frame)];
        for (size_t i = 0; i < layout.registers.size(); ++i) {
            const u8 bytes = u8(ptx::type_bytes(layout.function->registers[i].type));
            if (layout.registers[i] < 0) continue;
            frame.registers.push_back({layout.registers[i], bytes});
            frame.saved_bytes += bytes;
        }
        if (frame.base_row >= 0) {
            frame.registers.push_back({frame.base_row, sizeof(u64)});
            frame.saved_bytes += sizeof(u64);
        }
        for (const Frame::Part& part : frame.parameters) frame.saved_bytes += 2 * part.bytes;
    }
}

void Decoder::unsupported(const std::string& what) const {
    throw Unsupported(what, instruction_->location);
}

void Decoder::require(const ptx::Instruction& in, size_t operands) const {
    if (in.operands.size() < operands)
        unsupported("the instruction " + std::string(in.opcode) + " with " + plural(in.operands.size(), "operand"));
}

Instruction Decoder::prototype(const ptx::Instruction& in, const OpcodeEntry& entry) {
    Instruction out;
    out.run = entry.operation.run;
    out.flow = entry.flow;
    out.option = entry.option;
    out.entry = &entry;
    out.location = in.location;
    if (in.guard >= 0) {
        out.guard = register_row(in.guard);
        out.guard_negated = in.guard_negated;
    }
    return out;
}

void Decoder::emit(Instruction instruction) {
    program_.code.push_back(instruction);
    for (auto& later : after_) program_.code.push_back(later);
    after_.clear();
}

}  // namespace sim
