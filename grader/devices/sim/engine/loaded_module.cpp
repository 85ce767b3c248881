#include "loaded_module.h"

#include <algorithm>
#include <new>
#include <set>

#include "coverage.h"
#include "launch.h"

namespace sim {

void LoadedModule::load(std::string ptx, std::string source, Memory& memory) {
    source_ = std::move(source);
    programs_.clear();
    shapes_.clear();
    addresses_.clear();
    module_ = ptx::parse(std::move(ptx));
    place_variables(memory);
}

void LoadedModule::place_variables(Memory& memory) {
    for (const ptx::Variable& v : module_->variables) {
        const bool constant = v.space == ptx::Space::constant;
        if (v.space != ptx::Space::global && !constant) continue;
        Allocation& allocation = memory.allocate(
            v.bytes, 0, constant ? AllocationKind::constant : AllocationKind::variable,
            variable_name(std::string(v.name)), 0, true);
        allocation.writable = !constant;
        addresses_[v.name] = allocation.base;
    }
    for (const ptx::Variable& v : module_->variables) {
        const auto found = addresses_.find(v.name);
        if (found != addresses_.end()) initialise(v, *memory.find(found->second));
    }
}

void LoadedModule::initialise(const ptx::Variable& v, Allocation& allocation) {
    u64 at = 0;
    for (const ptx::Initializer& value : v.values) {
        u64 bits = value.bits;
        const auto symbol = addresses_.find(value.symbol);
        if (symbol != addresses_.end()) bits += symbol->second;
        if (!value.symbol.empty()) bits += function_address(*module_, value.symbol);
        if (at + value.size <= allocation.bytes) std::memcpy(allocation.data + at, &bits, value.size);
        at += value.size;
    }
}

std::string LoadedModule::with_more_shared(const Function& but) const {
    std::set<std::string> names;
    for (auto& [host, function] : functions_)
        if (&function != &but && function.dynamic_shared_limit && module_->function_index.count(function.name))
            names.insert(demangled(function.name));
    std::string words;
    for (const std::string& name : names) words += (words.empty() ? "" : ", ") + name;
    return words;
}

Function* LoadedModule::function(const void* host) {
    const auto found = functions_.find(host);
    return found == functions_.end() ? nullptr : &found->second;
}

u64 LoadedModule::variable(const void* host) const {
    const auto found = variables_.find(host);
    if (found == variables_.end()) return 0;
    const auto address = addresses_.find(found->second);
    return address == addresses_.end() ? 0 : address->second;
}

const Program* LoadedModule::program(const Function& function, Finding* why_not) {
    const auto known = programs_.find(function.name);
    if (known != programs_.end()) return &known->second;
    why_not->kind = FindingKind::unsupported;
    const auto index =
        module_ ? module_->function_index.find(function.name) : decltype(module_->function_index.end()){};
    if (!module_ || index == module_->function_index.end() || !module_->functions[index->second].defined) {
        why_not->message = "the kernel " + demangled(function.name) + " is not in the PTX";
        return nullptr;
    }
    try {
        Decoder decoder(*module_, addresses_);
        Program& made = programs_[function.name] = decoder.decode(module_->functions[index->second]);
        give_shapes(made);
        made.ways = std::make_shared<Ways>(made.code.size());
        return &made;
    } catch (const Unsupported& e) {
        const SourceLine where = source_line(*module_, e.location, source_);
        why_not->message = std::string(e.what()) + " is not supported by the simulator";
        why_not->kernel = demangled(function.name);
        why_not->file = where.file;
        why_not->line = where.line;
    } catch (const std::bad_alloc&) {
        why_not->message = "there is not enough memory to decode " + demangled(function.name);
    }
    return nullptr;
}

std::string LoadedModule::coverage() {
    std::map<size_t, const Function*> in_order;
    for (const auto& [host, function] : functions_) {
        if (!module_) break;
        const auto index = module_->function_index.find(function.name);
        if (index != module_->function_index.end()) in_order[index->second] = &function;
    }
    std::string text;
    Finding why_not;
    for (const auto& [index, function] : in_order)
        if (const Program* found = program(*function, &why_not))
            text += (text.empty() ? "" : ",") + sim::coverage(*found, source_);
    return "[" + text + "]";
}

// The size of the elements of an array whose bytes the launch decides, where all declarations of its name agree on it.
static ArrayShape dynamic_shape(const std::vector<ArrayShape>& declared) {
    ArrayShape found;
    for (const ArrayShape& shape : declared) {
        if (!shape.sizes.empty()) continue;
        if (!shape.itemsize || (found.itemsize && found.itemsize != shape.itemsize)) return {};
        found = shape;
    }
    return found;
}

// The shape that fits the array's bytes; where none does, or two that differ, that it has several dimensions, if every
// array of its name has.
void LoadedModule::give_shapes(Program& program) const {
    for (Extent& extent : program.shared) {
        const auto declared = shapes_.find(extent.name);
        if (declared == shapes_.end()) continue;
        if (extent.bytes == 0) {
            extent.shape = dynamic_shape(declared->second);
            continue;
        }
        std::vector<ArrayShape> fitting;
        for (const ArrayShape& shape : declared->second) {
            if (shape.sizes.empty()) continue;
            ArrayShape found = fitted(shape, extent.bytes);
            const auto same = [&](const ArrayShape& other) { return other.sizes == found.sizes; };
            if (found.itemsize && std::none_of(fitting.begin(), fitting.end(), same)) fitting.push_back(found);
        }
        const auto& all = declared->second;
        const auto flat = [](const ArrayShape& shape) { return shape.sizes.size() < 2; };
        if (fitting.size() == 1 && !flat(fitting[0]))
            extent.shape = fitting[0];
        else if (std::none_of(all.begin(), all.end(), flat))
            extent.shape = {0, {0, 0}};
    }
}

}  // namespace sim
