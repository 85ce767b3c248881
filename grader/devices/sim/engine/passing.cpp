// passing: values that functions and their callers hand over in registers
//
// PTX has two ways to pass a value: in a variable of the .param space, as compilers write it, and in registers, as
// people do. The second becomes the first: the caller stores into a variable of its own, which the callee loads.
#include <algorithm>

#include "parser.h"

namespace sim::ptx {

namespace {

constexpr std::string_view PREDICATE_TYPE = ".pred";

u32 passed_bytes(std::string_view type) {
    return type == PREDICATE_TYPE ? u32(sizeof(u32)) : type_bytes(type);
}

std::vector<Operand> elements_of(const Operand& value) {
    return value.kind == OperandKind::vector ? value.elements : std::vector<Operand>{value};
}

Operand number(u64 bits) {
    Operand value;
    value.kind = OperandKind::integer;
    value.bits = bits;
    return value;
}

Operand symbol(std::string_view name, s32 index) {
    Operand value;
    value.kind = OperandKind::symbol;
    value.name = name;
    value.index = index;
    return value;
}

}  // namespace

// Another instruction at the same place, under the same guard.
Instruction Parser::beside(const Instruction& in, std::string opcode) {
    Instruction made;
    made.guard = in.guard;
    made.guard_negated = in.guard_negated;
    made.location = in.location;
    made.line = in.line;
    made.opcode = intern(std::move(opcode));
    return made;
}

// Stores a value into a .param variable, or loads it, element by element. A predicate is 0 or 1 of 32 bits.
void Parser::hand_over(const Instruction& in, bool store, const Passed& passed) {
    const auto& [variable, kind, value] = passed;
    const u32 bytes = passed_bytes(kind);
    const bool predicate = kind == PREDICATE_TYPE;
    const std::string type(predicate ? ".u32" : kind);
    s64 offset = 0;
    for (const Operand& element : elements_of(value)) {
        Operand place, word = element;
        place.kind = OperandKind::address;
        place.elements = {variable};
        place.offset = offset;
        offset += bytes;
        if (predicate) {
            declare_register(intern("%passed" + std::to_string(interned.size())), ".u32", 1);
            word.kind = OperandKind::reg;
            word.index = s32(function_->registers.size()) - 1;
            word.negated = false;
        }
        Instruction access = beside(in, (store ? "st.param" : "ld.param") + type);
        access.operands = store ? std::vector<Operand>{place, word} : std::vector<Operand>{word, place};
        Instruction convert = beside(in, store ? "selp.u32" : "setp.ne.u32");
        if (store)
            convert.operands = {word, number(1), number(0), element};
        else
            convert.operands = {element, word, number(0)};
        if (predicate && store) function_->body.push_back(convert);
        function_->body.push_back(access);
        if (predicate && !store) function_->body.push_back(convert);
    }
}

// The variable by which a call passes a value that is in none.
Parser::Passed Parser::pass(const Variable& formal, const Operand& actual) {
    const bool known = !formal.passed_as.empty();
    const Operand& first = actual.elements.empty() ? actual : actual.elements[0];
    Variable v;
    v.space = Space::param;
    v.name = intern("%passed" + std::to_string(interned.size()));
    v.passed_as = formal.passed_as;
    if (!known && first.kind == OperandKind::reg) v.passed_as = function_->registers[size_t(first.index)].type;
    if (v.passed_as.empty()) v.passed_as = formal.bytes == 8 ? ".b64" : formal.bytes == 2 ? ".b16" : ".b32";
    v.width = u32(elements_of(actual).size());
    v.align = std::max(formal.align, passed_bytes(v.passed_as) * v.width);
    v.bytes = std::max(formal.bytes, u64(passed_bytes(v.passed_as)) * v.width);
    const Passed passed{symbol(v.name, s32(function_->variables.size())), v.passed_as, actual};
    function_->variables.push_back(std::move(v));
    return passed;
}

void Parser::call(Instruction in) {
    Operand *results = nullptr, *arguments = nullptr, *callee = nullptr;
    for (Operand& operand : in.operands) {
        if (operand.kind != OperandKind::list)
            callee = callee ? callee : &operand;
        else
            (callee ? arguments : results) = &operand;
    }
    const auto declared = callee ? module_.function_index.find(callee->name) : module_.function_index.end();
    const Function* target = declared == module_.function_index.end() ? nullptr : &module_.functions[declared->second];
    if (callee && callee->name == function_->name) target = function_;
    const auto passed = [&](Operand* list, const std::vector<Variable>* formals) {
        std::vector<Passed> values;
        for (size_t i = 0; list && i < list->elements.size(); ++i) {
            Operand& actual = list->elements[i];
            if (actual.kind == OperandKind::symbol) continue;
            values.push_back(pass(formals && i < formals->size() ? (*formals)[i] : Variable{}, actual));
            actual = values.back().variable;
        }
        return values;
    };
    for (const Passed& one : passed(arguments, target ? &target->parameters : nullptr)) hand_over(in, true, one);
    const std::vector<Passed> given = passed(results, target ? &target->returns : nullptr);
    function_->body.push_back(in);
    for (const Passed& one : given)
        if (one.value.kind != OperandKind::sink) hand_over(in, false, one);
}

// ---- in the callee

// What comes in registers, and the registers of the results. Each has a variable of the function's as well.
void Parser::take_parameters() {
    for (auto* list : {&function_->parameters, &function_->returns})
        for (const Variable& v : *list) {
            if (v.passed_as.empty()) continue;
            declare_register(v.name, v.passed_as, v.width);
            if (list == &function_->parameters) hand_over(Instruction{}, false, formal(v));
        }
}

Parser::Passed Parser::formal(const Variable& v) const {
    const s32 index = scopes_.front().registers.at(v.name);  // an inner scope may hide the name
    Operand value = index <= FIRST_VECTOR ? vectors_[size_t(FIRST_VECTOR - index)] : Operand{};
    if (index >= 0) {
        value.kind = OperandKind::reg;
        value.index = index;
    }
    return {symbol(v.name, -1), v.passed_as, value};
}

void Parser::give_results(const Instruction& in) {
    for (const Variable& v : function_->returns)
        if (!v.passed_as.empty()) hand_over(in, true, formal(v));
}

}  // namespace sim::ptx
