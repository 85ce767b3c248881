// parser: tokens -> ptx::Module
//
// Every register and variable gets an index where it is declared; a name is looked up from the innermost scope out.
// Modules and functions are in parser.cpp, what they declare in declarations.cpp, what they do in parse_instruction.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx.h"
#include "tokens.h"

namespace sim::ptx {

Space space_of(std::string_view word);  // ".shared"; none: it names no space

constexpr s32 FIRST_VECTOR = -2;  // the index of a name of several registers: this, or below

class Parser {
 public:
    explicit Parser(Module& module) : module_(module), tokens_(module.text) {}
    void run();
    std::vector<std::unique_ptr<std::string>> interned;  // names that the text does not spell out

 private:
    using Names = std::unordered_map<std::string_view, s32>;
    using Texts = std::unordered_map<std::string_view, std::string_view>;
    struct Range {  // the registers of "%r<5>", each of which is declared where the text first has it
        std::string_view prefix;
        u64 count;
        std::string_view type;
    };
    struct Scope {
        Names registers, variables;
        std::vector<Range> ranges;
        Texts globals;  // what .global and .const variables that the scope declares are called in the module
        std::unordered_map<std::string_view, u32> labels;  // -> index into the function's body
        std::unordered_map<std::string_view, std::vector<std::string_view>> tables;  // .branchtargets
        size_t first = 0;                                                            // index of what comes first in it
    };
    // One more bracket, as long as it lives: each is a call of the parser by itself.
    struct Nested {
        explicit Nested(Parser& parser);
        ~Nested() { --parser.depth_; }
        Parser& parser;
    };

    void module_item();
    void skip_line_value();
    void statement_skip();
    void target();
    void file();
    void section();
    void location();
    std::array<u64, 3> place();

    // ---- declarations
    struct Declaration {
        Space space = Space::none;
        std::string_view type;
        u32 align = 0;
        u32 width = 1;  // of .v2 and .v4
    };
    Declaration declaration();
    u32 alignment();
    u64 times(u64 bytes, u64 count) const;
    Variable variable(const Declaration& d);
    void initializers(Variable& v, u8 size);
    u64 initializer_bits(u8 size);
    void declare_module_variables();
    void declare_local();
    void declare_in_module(Variable v);
    void declare_registers(const Declaration& d);
    void declare_register(std::string_view name, std::string_view type, u32 width);
    s32 add_register(Scope& scope, std::string_view name, std::string_view type);
    s32 find_register(std::string_view name);
    void find_variable(Operand& symbol) const;

    // ---- functions
    void entry();
    void function();
    void begin_function(bool entry);
    void store(Function f);
    std::vector<Variable> parameters();
    void directive(Function& f);
    void block();
    void statement();
    void label();
    void place_labels();
    static void rename(std::string_view& name, const Texts& names);
    std::string_view intern(std::string text);

    // ---- instructions
    struct Passed {  // a value, and the .param variable by which it is handed over
        Operand variable;
        std::string_view type;
        Operand value;
    };
    void instruction();
    void call(Instruction in);
    Instruction beside(const Instruction& in, std::string opcode);
    Passed pass(const Variable& formal, const Operand& actual);
    Passed formal(const Variable& v) const;
    void hand_over(const Instruction& in, bool store, const Passed& passed);
    void take_parameters();
    void give_results(const Instruction& in);
    Operand operand();
    Operand simple_operand();
    Operand literal();
    Operand name();
    void select_part(Operand& value);
    Operand group(std::string_view open, std::string_view close, OperandKind kind);
    Operand address();

    Module& module_;
    Tokens tokens_;
    bool external_ = false;
    u32 location_ = 0;
    u32 depth_ = 0;
    std::map<std::array<u64, 3>, u32> places_;
    Function* function_ = nullptr;
    std::vector<Operand> vectors_;  // registers of several elements, of the function
    std::vector<Scope> scopes_;
};

}  // namespace sim::ptx
