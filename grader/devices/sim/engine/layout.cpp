// layout: which functions and variables a kernel reaches, and where its variables lie
#include <algorithm>

#include "decode.h"
#include "finding.h"
#include "memory.h"

namespace sim {

namespace {

constexpr u32 LOCAL_ALIGNMENT = 16;
constexpr u64 PARAMETER_ORIGIN = GLOBAL_ORIGIN + WINDOW_MIDDLE;  // window 0 belongs to the parameters

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

std::vector<u32> Decoder::callees(const ptx::Function& function) const {
    std::vector<u32> found;
    for (auto& in : function.body) {
        if (in.opcode.substr(0, 4) != "call") continue;
        for (auto& operand : in.operands) {
            const auto callee = layout_index_.find(operand.name);
            if (operand.kind == ptx::OperandKind::symbol && callee != layout_index_.end())
                found.push_back(callee->second);
            for (u32 i = 1; operand.kind == ptx::OperandKind::reg && i < layouts_.size(); ++i) found.push_back(i);
        }
    }
    return found;
}

// Functions that can be active more than once in a thread. The others have their registers and variables in one place.
void Decoder::find_recursion() {
    std::vector<std::vector<u32>> edges;
    for (const Layout& layout : layouts_) edges.push_back(callees(*layout.function));
    for (u32 start = 1; start < layouts_.size(); ++start) {
        std::vector<bool> reached(layouts_.size());
        std::vector<u32> open = edges[start];
        while (!open.empty() && !reached[start]) {
            const u32 at = open.back();
            open.pop_back();
            if (!reached[at]) open.insert(open.end(), edges[at].begin(), edges[at].end());
            reached[at] = true;
        }
        if (!reached[start]) continue;
        layouts_[start].frame = s32(program_.frames.size());
        program_.frames.emplace_back();
    }
}

// Local variables of a function that calls itself lie on the stack, behind the address in its frame's base row.
u64 Decoder::place_local(Layout& layout, const ptx::Variable& v) {
    const bool variable = v.space == ptx::Space::local;
    if (layout.frame >= 0 && variable) {
        Frame& frame = program_.frames[size_t(layout.frame)];
        if (frame.base_row < 0) frame.base_row = new_row(sizeof(u64));
        const u64 offset = align_up(frame.variable_bytes, v.align);
        frame.variable_bytes = align_up(offset + v.bytes, LOCAL_ALIGNMENT);
        return offset;
    }
    program_.local_bytes = align_up(program_.local_bytes, std::max(v.align, LOCAL_ALIGNMENT));
    program_.local.push_back({variable_name(std::string(v.name)), program_.local_bytes, v.bytes});
    program_.local_bytes += v.bytes;
    if (variable) program_.variable_bytes += v.bytes;
    if (layout.frame >= 0)
        program_.frames[size_t(layout.frame)].parameters.push_back({program_.local.back().offset, v.bytes});
    return program_.local.back().offset;
}

void Decoder::place_shared_variable(const ptx::Variable& v) {
    program_.static_shared = align_up(program_.static_shared, v.align);
    shared_offsets_[v.name] = program_.static_shared;
    shared_index_[v.name] = u32(program_.shared.size());
    program_.shared.push_back({variable_name(std::string(v.name)), program_.static_shared, v.bytes});
    program_.static_shared += v.bytes;
}

void Decoder::place_variables() {
    for (auto& layout : layouts_) {
        const ptx::Function& f = *layout.function;
        for (auto& v : f.variables) {
            layout.variables.push_back(0);
            if (v.space != ptx::Space::shared)
                layout.variables.back() = place_local(layout, v);
            else if (!v.external && !shared_offsets_.count(v.name))
                place_shared_variable(v);
        }
        u64 at = 0;
        for (auto& v : f.parameters) {
            if (!f.entry) {
                layout.formal[v.name] = place_local(layout, v);
                continue;
            }
            at = align_up(at, v.align);
            layout.formal[v.name] = PARAMETER_ORIGIN + at;
            program_.parameters.push_back({std::string(v.name), at, v.bytes});
            program_.parameter_bytes = at += v.bytes;
        }
        for (auto& v : f.returns) layout.formal[v.name] = place_local(layout, v);
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

}  // namespace sim
