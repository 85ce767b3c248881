// lower: the operands of each shape of instruction
#include <algorithm>

#include "decode.h"
#include "finding.h"
#include "check_access.h"

namespace sim {

namespace {

bool has_prefix(std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}

// Modifiers that change when and where data is cached, or how far it is
// visible, but not what is read or written.
constexpr std::string_view CACHE_HINTS[] = {"ca",   "cg",  "cs",  "lu",      "cv",  "wb",    "wt",      "nc",
                                            "weak", "cta", "gpu", "cluster", "sys", "noftz", "unified", "mmio"};
constexpr std::string_view ORDERS[] = {"volatile", "relaxed", "acquire", "release", "acq_rel"};
constexpr std::string_view ACCESSES[] = {"ld", "st", "atom", "red", "ldu"};

template <class List>
bool contains(const List& list, std::string_view word) {
    return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

bool is_hint(std::string_view word) {
    return has_prefix(word, "L1::") || has_prefix(word, "L2::") || contains(CACHE_HINTS, word);
}

struct SpaceCheck {
    std::string_view space;
    AccessCheck check_access;
};
constexpr SpaceCheck SPACE_CHECKS[] = {
    {"global", check_global_access},
    {"const", check_global_access},
    {"shared", check_shared_access},
    {"shared::cta", check_shared_access},
    {"shared::cluster", check_cluster_access},
    {"local", check_local_access},
    {"param", check_global_access},
    {"param::entry", check_global_access},
    {"param::func", check_local_access},
};

u8 elements(const ptx::Operand& operand) {
    return operand.kind == ptx::OperandKind::vector ? u8(operand.elements.size()) : 1;
}
const ptx::Operand& element(const ptx::Operand& operand, size_t i) {
    return operand.kind == ptx::OperandKind::vector ? operand.elements[i] : operand;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view opcode) {
    std::vector<std::string_view> words;
    for (size_t start = 0; start <= opcode.size();) {
        const size_t dot = std::min(opcode.find('.', start), opcode.size());
        words.push_back(opcode.substr(start, dot - start));
        start = dot + 1;
    }
    return words;
}

Form form_of(const ptx::Instruction& in) {
    Form form;
    const auto words = words_of(in.opcode);
    const bool access = contains(ACCESSES, words[0]);
    for (auto word : words) {
        if (access && contains(ORDERS, word)) form.strong = true;
        if (access && (contains(ORDERS, word) || is_hint(word))) continue;
        // The space is a matter of the address, not of the handler.
        const bool space = access && std::any_of(std::begin(SPACE_CHECKS), std::end(SPACE_CHECKS), [&](auto& r) {
                               return r.space == word;
                           });
        if (space) continue;
        if (!form.name.empty()) form.name += '.';
        form.name += word;
    }
    if (words[0] == "mov" && in.operands.size() == 2 && words[1][0] != 'v') {
        const bool packs = in.operands[1].kind == ptx::OperandKind::vector;
        const bool unpacks = in.operands[0].kind == ptx::OperandKind::vector;
        if (packs || unpacks)
            form.name += (packs ? ".pack" : ".unpack") + std::to_string(in.operands[packs].elements.size());
    }
    return form;
}

void Decoder::address(Instruction& out, const ptx::Operand& operand, const ptx::Instruction& in, u32 bytes) {
    if (operand.kind != ptx::OperandKind::address) unsupported("an address of " + std::string(in.opcode));
    const ptx::Operand& base = operand.elements[0];
    out.check_access = check_generic_access;
    for (auto word : words_of(in.opcode))
        for (auto& [space, check_access] : SPACE_CHECKS)
            if (word == space) out.check_access = check_access;
    // A variable's name as a generic address stands for the variable, wherever it lies.
    if (out.check_access == check_generic_access) {
        const ptx::Space space = space_of(base);
        if (space == ptx::Space::shared) out.check_access = check_shared_access;
        if (space == ptx::Space::local || space == ptx::Space::param) out.check_access = check_local_access;
    }
    const bool parameter = in.opcode.find(".param") != std::string_view::npos;
    if (parameter && is_local_symbol(base)) out.check_access = check_local_access;
    // The race detector's grain is the narrowest access that shared memory may
    // see.
    const bool shared = out.check_access == check_shared_access || out.check_access == check_cluster_access ||
                        out.check_access == check_generic_access;
    while (shared && (u32(1) << program_.granule_shift) > bytes) --program_.granule_shift;
    const bool global = out.check_access == check_global_access || out.check_access == check_generic_access;
    while (global && (u32(1) << program_.global_shift) > bytes) --program_.global_shift;
    out.strong = form_of(in).strong;
    out.parts = out.strong && (has_prefix(in.opcode, "ld") || has_prefix(in.opcode, "st"));
    program_.polls |= global && out.strong && has_prefix(in.opcode, "ld");
    for (auto word : words_of(in.opcode)) {
        out.acquires |= word == "acquire" || word == "acq_rel";
        out.releases |= word == "release" || word == "acq_rel";
    }
    program_.fences |= out.acquires || out.releases;
    out.immediate = operand.offset;
    out.extent = std::max(base_of(base, here().bases), -1);
    if (base.kind == ptx::OperandKind::reg) {
        out.address = register_row(base.index);
        out.wide_address = register_bytes(base.index) == 8;
    } else if (base.kind == ptx::OperandKind::symbol) {
        out.address = frame_base(base);
        out.immediate += s64(symbol_address(base));
    } else {
        out.immediate += s64(base.bits);
    }
}

void lower_positional(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Signature& signature = entry.operation.signature;
    d.require(in, signature.count);
    Instruction out = d.prototype(in, entry);
    for (size_t i = signature.count; i-- > 0;) {
        const Shape shape = signature.shape[i];
        out.operand[i] = i == 0 ? d.destination(in.operands[i], shape) : d.source(in.operands[i], shape);
    }
    d.emit(out);
}

void lower_setp(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Signature& signature = entry.operation.signature;
    d.require(in, entry.option ? 4 : 3);
    Instruction out = d.prototype(in, entry);
    out.operand[0] = d.destination(in.operands[0], signature.shape[0]);
    out.operand[1] = d.optional_predicate(in.operands[0]);
    out.operand[2] = d.source(in.operands[1], signature.shape[2]);
    out.operand[3] = d.source(in.operands[2], signature.shape[3]);
    if (entry.option) out.operand[4] = d.source(in.operands[3], PREDICATE);
    d.emit(out);
}

void lower_vector_move(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Signature& signature = entry.operation.signature;
    Instruction out = d.prototype(in, entry);
    const bool packs = in.operands[1].kind == ptx::OperandKind::vector;
    const size_t count = signature.count - 1u;
    for (size_t i = 0; i < count; ++i) {
        if (packs)
            out.operand[i + 1] = d.source(in.operands[1].elements[i], signature.shape[i + 1]);
        else
            out.operand[i] = d.destination(in.operands[0].elements[i], signature.shape[i]);
    }
    if (packs)
        out.operand[0] = d.destination(in.operands[0], signature.shape[0]);
    else
        out.operand[count] = d.source(in.operands[1], signature.shape[count]);
    d.emit(out);
}

// mov.v2.u32 a, b: element by element, all read before one is written. The entry moves one element.
void lower_vector_copy(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    const size_t count = size_t(in.opcode[5] - '0');
    if (elements(in.operands[0]) != count || elements(in.operands[1]) != count)
        d.unsupported("the operands of " + std::string(in.opcode));
    const Shape shape = entry.operation.signature.shape[0];
    std::vector<s32> read;
    for (size_t i = 0; i < count; ++i) {
        Instruction out = d.prototype(in, entry);
        out.operand[1] = d.source(element(in.operands[1], i), shape);
        read.push_back(out.operand[0] = d.temporary(shape.bytes));
        d.emit(out);
    }
    for (size_t i = 0; i < count; ++i) {
        Instruction out = d.prototype(in, entry);
        out.operand[1] = read[i];
        out.operand[0] = d.destination(element(in.operands[0], i), shape);
        d.emit(out);
    }
}

// createpolicy: what hints of caching name, a number that only they read
void lower_policy(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 1);
    Instruction out = d.prototype(in, entry);
    out.operand[1] = d.constant(0, sizeof(u64));
    out.operand[0] = d.destination(in.operands[0], shape_of<u64>());
    d.emit(out);
}

// set.CmpOp.dtype.stype as setp.CmpOp.stype, which is the entry, and a choice between "true" and 0: PTX ISA, "set".
void lower_set(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Signature& signature = entry.operation.signature;
    const auto words = words_of(in.opcode);
    const std::string_view type = words[words.size() - 2];
    d.require(in, entry.option ? 4 : 3);
    Instruction test = d.prototype(in, entry);
    test.guard = -1;
    test.operand[0] = d.temporary(0);
    test.operand[1] = d.sink(0);
    for (u8 i = 1; i < 3; ++i) test.operand[i + 1] = d.source(in.operands[i], signature.shape[i + 1]);
    if (entry.option) test.operand[4] = d.source(in.operands[3], PREDICATE);
    d.emit(test);
    const u64 one = type == "f32" ? 0x3f800000 : type == "f16" ? 0x3c00 : type == "bf16" ? 0x3f80 : ~u64(0);
    const Shape shape{u8(ptx::type_bytes("." + std::string(type))), false, false};
    Instruction choice = d.prototype(in, *operations().find("selp.b" + std::to_string(shape.bytes * 8)));
    choice.operand[1] = d.constant(one, shape.bytes);
    choice.operand[2] = d.constant(0, shape.bytes);
    choice.operand[3] = test.operand[0];
    choice.operand[0] = d.destination(in.operands[0], shape);
    d.emit(choice);
}

void lower_load(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = d.prototype(in, entry);
    const u8 count = entry.operation.signature.count;
    if (elements(in.operands[0]) != count) d.unsupported("the operands of " + std::string(in.opcode));
    d.address(out, in.operands[1], in, count * entry.operation.signature.shape[0].bytes);
    for (u8 i = 0; i < count; ++i)
        out.operand[i] = d.destination(element(in.operands[0], i), entry.operation.signature.shape[i]);
    const auto says = [&](const char* word) { return in.opcode.find(word) != std::string_view::npos; };
    out.option = in.in_asm && (says(".nc") || says(".shared"));
    d.emit(out);
}

void lower_store(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = d.prototype(in, entry);
    const u8 count = entry.operation.signature.count;
    if (elements(in.operands[1]) != count) d.unsupported("the operands of " + std::string(in.opcode));
    d.address(out, in.operands[0], in, count * entry.operation.signature.shape[0].bytes);
    for (u8 i = 0; i < count; ++i)
        out.operand[i] = d.source(element(in.operands[1], i), entry.operation.signature.shape[i]);
    out.strong |= has_prefix(in.opcode, "red");
    d.emit(out);
}

// operands of the handler: result, b, c
void lower_atomic(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Signature& signature = entry.operation.signature;
    d.require(in, signature.count + 1u);
    Instruction out = d.prototype(in, entry);
    d.address(out, in.operands[1], in, signature.shape[0].bytes);
    for (u8 i = 1; i < signature.count; ++i) out.operand[i] = d.source(in.operands[i + 1], signature.shape[i]);
    out.operand[0] = d.destination(in.operands[0], signature.shape[0]);
    out.strong = true;
    d.emit(out);
}

// atom.v2: operands: the results, then the sources
void lower_vector_atomic(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Signature& signature = entry.operation.signature;
    d.require(in, 3);
    const u8 count = signature.count / 2;
    if (elements(in.operands[0]) != count || elements(in.operands[2]) != count)
        d.unsupported("the operands of " + std::string(in.opcode));
    Instruction out = d.prototype(in, entry);
    d.address(out, in.operands[1], in, count * signature.shape[0].bytes);
    for (u8 i = 0; i < count; ++i) {
        out.operand[count + i] = d.source(element(in.operands[2], i), signature.shape[i]);
        out.operand[i] = d.destination(element(in.operands[0], i), signature.shape[i]);
    }
    out.strong = true;
    d.emit(out);
}

void lower_reduction(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Signature& signature = entry.operation.signature;
    d.require(in, signature.count);
    Instruction out = d.prototype(in, entry);
    d.address(out, in.operands[0], in, signature.shape[0].bytes);
    for (u8 i = 1; i < signature.count; ++i) out.operand[i] = d.source(in.operands[i], signature.shape[i]);
    out.operand[0] = d.sink(signature.shape[0].bytes);
    out.strong = true;
    d.emit(out);
}

void lower_branch(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 1);
    Instruction out = d.prototype(in, entry);
    d.branch_to(out, in.operands[0].name);
    d.emit(out);
}

void lower_branch_table(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = d.prototype(in, entry);
    out.operand[0] = d.source(in.operands[0], shape_of<u32>());
    out.target = d.branch_table(in.operands[1].name);
    d.emit(out);
}

void lower_call(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const ptx::Operand *results = nullptr, *arguments = nullptr, *callee = nullptr;
    for (auto& operand : in.operands) {
        if (operand.kind != ptx::OperandKind::list)
            callee = callee ? callee : &operand;
        else
            (callee ? arguments : results) = &operand;
    }
    if (!callee) d.unsupported("a call of nothing");
    if (callee->kind == ptx::OperandKind::reg) {
        Instruction out = d.prototype(in, *operations().find("call.indirect"));
        out.operand[0] = d.source(*callee, shape_of<u64>());
        out.target = d.indirect_call(results, arguments);
        d.emit(out);
        return;
    }
    Instruction out = d.prototype(in, entry);
    out.target = d.call_site(results, callee->name, arguments);
    d.emit(out);
}

u32 Decoder::call_site(const ptx::Operand* results, std::string_view callee, const ptx::Operand* arguments) {
    CallSite call;
    call.callee = std::string(callee);
    const auto declared = module_.function_index.find(callee);
    if (declared == module_.function_index.end()) unsupported("a call of " + demangled(call.callee));
    const ptx::Function& f = module_.functions[declared->second];
    call.builtin = !f.defined;
    if (call.builtin && !is_builtin(call.callee)) unsupported("a call of " + demangled(call.callee));
    program_.allocates |= call.callee == "malloc" || call.callee == "free";
    const Layout* target = call.builtin ? nullptr : &layouts_[layout_index_.at(callee)];
    if (target) call.frame = target->frame;
    for (size_t i = 0; arguments && i < arguments->elements.size() && i < f.parameters.size(); ++i) {
        const u32 from = parameter_at(arguments->elements[i], f.parameters[i].bytes);
        call.argument_offsets.push_back(from);
        if (!target) continue;
        const ptx::Variable& v = f.parameters[i];
        call.arguments.push_back({from, u32(target->formal.at(v.name)), u32(v.bytes)});
    }
    for (size_t i = 0; results && i < results->elements.size() && i < f.returns.size(); ++i) {
        const u32 to = parameter_at(results->elements[i], f.returns[i].bytes);
        const u32 from = target ? u32(target->formal.at(f.returns[i].name)) : to;
        call.results.push_back({from, to, u32(f.returns[i].bytes)});
    }
    program_.calls.push_back(call);
    return u32(program_.calls.size() - 1);
}

// A site for every function that has as many parameters and results.
u32 Decoder::indirect_call(const ptx::Operand* results, const ptx::Operand* arguments) {
    const auto count = [](const ptx::Operand* list) { return list ? list->elements.size() : 0; };
    IndirectCall call;
    for (const Layout& layout : layouts_) {
        const ptx::Function& f = *layout.function;
        if (f.entry || f.parameters.size() != count(arguments) || f.returns.size() != count(results)) continue;
        call.push_back({function_address(module_, f.name), call_site(results, f.name, arguments)});
    }
    program_.indirect_calls.push_back(std::move(call));
    return u32(program_.indirect_calls.size() - 1);
}

// bar.sync a [, b]: operands: barrier, count
void lower_barrier(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    Instruction out = d.prototype(in, entry);
    const auto& ops = in.operands;
    out.operand[1] = ops.empty() ? d.constant(0, 4) : d.source(ops[0], shape_of<u32>());
    out.operand[2] = ops.size() < 2 ? d.constant(0, 4) : d.source(ops[1], shape_of<u32>());
    d.emit(out);
}

// bar.red.op d, a [, b], p: operands: d, barrier, count, p
void lower_barrier_reduction(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 3);
    Instruction out = d.prototype(in, entry);
    const auto& ops = in.operands;
    out.operand[0] = d.destination(ops[0], entry.operation.signature.shape[0]);
    out.operand[1] = d.source(ops[1], shape_of<u32>());
    out.operand[2] = ops.size() < 4 ? d.constant(0, 4) : d.source(ops[2], shape_of<u32>());
    out.operand[3] = d.source(ops.back(), PREDICATE);
    d.emit(out);
}

// operands: d, p of "d|p", sources..., member mask
void lower_collective(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Signature& signature = entry.operation.signature;
    d.require(in, signature.count - 1u);
    Instruction out = d.prototype(in, entry);
    for (u8 i = 2; i < signature.count; ++i) out.operand[i] = d.source(in.operands[i - 1u], signature.shape[i]);
    out.operand[0] = d.destination(in.operands[0], signature.shape[0]);
    out.operand[1] = d.optional_predicate(in.operands[0]);
    out.target = signature.count - 1u;
    d.emit(out);
}

void lower_warp_barrier(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 1);
    Instruction out = d.prototype(in, entry);
    out.operand[0] = d.source(in.operands[0], shape_of<u32>());
    out.target = 0;
    d.emit(out);
}

void lower_fence(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.note_fence();
    d.emit(d.prototype(in, entry));
}

void lower_nothing(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.emit(d.prototype(in, entry));
}

}  // namespace sim
