// ptx: the syntax tree of one PTX module
//
// Names are views into the module's own text. Scopes are gone: the parser gives
// every declaration inside `{ }` an index of its own, so that equal names in
// different scopes stay apart.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "scalar.h"

namespace sim::ptx {

enum class Space : u8 { none, reg, sreg, constant, global, local, param, shared };

enum class OperandKind : u8 {
    reg,      // index: Function::registers
    special,  // name: "%tid.x"
    integer,  // bits
    single,   // bits: 0f.......
    real,     // bits of a double: 0d................ or a decimal fraction
    symbol,   // name, variable or -1, offset
    vector,   // elements
    list,     // elements: the parenthesised lists of a call
    address,  // elements[0], offset
    sink,     // _
};

struct Operand {
    OperandKind kind = OperandKind::sink;
    bool negated = false;  // !%p, -%r
    s32 index = -1;        // register, or variable of the function
    std::string_view name;
    std::string_view part;  // of %r.b1: "b1", for the instructions of video.cpp
    u64 bits = 0;
    s64 offset = 0;
    std::vector<Operand> elements;
    std::shared_ptr<Operand> second;  // p|q
};

struct Instruction {
    std::string_view opcode;
    s32 guard = -1;  // predicate register
    bool guard_negated = false;
    u32 location = 0;  // Module::locations
    u32 line = 0;      // of the PTX
    bool in_asm = false;
    std::vector<Operand> operands;
};

struct Register {
    std::string_view name;
    std::string_view type;  // ".f32"
};

struct Initializer {
    std::string_view symbol;  // address of a symbol plus bits, or just bits
    u64 bits = 0;
    u8 size = 0;
};

struct Variable {
    std::string_view name;
    Space space = Space::none;
    u32 align = 1;
    u64 bytes = 0;
    bool external = false;  // declared without a size: dynamic shared memory
    std::vector<Initializer> values;
    std::string_view passed_as;  // ".f32": a parameter that is handed over in registers of this type, `width` of them
    u32 width = 1;
};

struct Function {
    std::string_view name;
    bool entry = false;
    bool defined = false;
    std::vector<Variable> parameters;
    std::vector<Variable> returns;
    std::vector<Variable> variables;  // .local, .shared and .param declared in the body
    std::vector<Register> registers;
    std::vector<Instruction> body;
    std::unordered_map<std::string_view, u32> labels;                            // -> index into body
    std::unordered_map<std::string_view, std::vector<std::string_view>> tables;  // .branchtargets
    std::map<std::string_view, std::vector<u32>> directives;                     // ".maxntid" -> {256, 1, 1}
    u32 location = 0;
};

struct Location {
    u32 file = 0, line = 0, column = 0;
    s32 inlined_at = -1;  // Module::locations
};

struct Module {
    std::string text;
    std::string target;
    std::map<u32, std::string> files;
    std::vector<Location> locations{{}};
    std::vector<Variable> variables;
    std::unordered_map<std::string_view, u32> variable_index;
    std::vector<Function> functions;
    std::unordered_map<std::string_view, u32> function_index;
    std::vector<std::unique_ptr<std::string>> interned;  // names that the text does not spell out
};

u32 type_bytes(std::string_view type);  // ".f32" -> 4; 0 for .pred and unknown types

// Throws SyntaxError with the PTX line and token.
std::unique_ptr<Module> parse(std::string text);

}  // namespace sim::ptx
