// parser: tokens -> ptx::Module
//
// Every register and variable gets an index where it is declared; a name is
// looked up from the innermost scope out.
#include <array>
#include <cstdlib>

#include "lexer.h"
#include "ptx.h"

namespace sim::ptx {

namespace {

using Names = std::unordered_map<std::string_view, s32>;

struct Type {
    std::string_view name;
    u32 bytes;
};
constexpr Type TYPES[] = {
    {".b8", 1},   {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2},    {".s16", 2},   {".f16", 2},
    {".bf16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4}, {".f32", 4},    {".tf32", 4},  {".f16x2", 4},
    {".b64", 8},  {".u64", 8}, {".s64", 8}, {".f64", 8}, {".bf16x2", 4}, {".b128", 16}, {".pred", 0},
};

struct SpaceName {
    std::string_view name;
    Space space;
};
constexpr SpaceName SPACES[] = {
    {".global", Space::global}, {".const", Space::constant}, {".shared", Space::shared},
    {".local", Space::local},   {".param", Space::param},    {".reg", Space::reg},
};

constexpr std::string_view LINKAGE[] = {".visible", ".extern", ".weak", ".common"};

bool is_linkage(std::string_view word) {
    for (auto name : LINKAGE)
        if (name == word) return true;
    return false;
}

Space space_of(std::string_view word) {
    for (auto& [name, space] : SPACES)
        if (name == word) return space;
    return Space::none;
}

bool is_type(std::string_view word) {
    for (auto& type : TYPES)
        if (type.name == word) return true;
    return false;
}

struct Scope {
    Names registers, variables;
};

class Parser {
 public:
    explicit Parser(Module& module) : module_(module), tokens_(tokenize(module.text)) {}

    void run() {
        while (peek().kind != TokenKind::end) module_item();
    }

 private:
    // ---- tokens

    const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
    const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
    bool is(std::string_view text) const { return peek().text == text && peek().kind != TokenKind::text; }
    bool accept(std::string_view text) { return is(text) ? (take(), true) : false; }
    void expect(std::string_view text) {
        if (!accept(text)) reject(peek(), "'" + std::string(text) + "'");
    }
    std::string_view word(const char* what) {
        if (peek().kind != TokenKind::word) reject(peek(), what);
        return take().text;
    }

    static u64 decimal_bits(const Token& token, OperandKind* kind) {
        *kind = OperandKind::real;
        return bit_cast<u64>(std::strtod(std::string(token.text).c_str(), nullptr));
    }

    u64 number(OperandKind* kind) {
        if (peek().kind != TokenKind::number) reject(peek(), "a number");
        const Token& token = take();
        std::string text(token.text);
        const char second = text.size() > 1 ? char(text[1] | 32) : '\0';
        const bool hex = text[0] == '0' && second == 'x';
        *kind = OperandKind::integer;
        if (text[0] == '0' && (second == 'f' || second == 'd')) {
            *kind = second == 'f' ? OperandKind::single : OperandKind::real;
            if (text.size() != (second == 'f' ? 10u : 18u)) reject(token, "8 or 16 hexadecimal digits");
            return std::strtoull(text.c_str() + 2, nullptr, 16);
        }
        if (!hex && text.find_first_of(".eE") != std::string::npos) return decimal_bits(token, kind);
        if (text.back() == 'U') text.pop_back();
        const bool binary = text[0] == '0' && second == 'b';
        char* end = nullptr;
        const u64 value = std::strtoull(text.c_str() + (binary ? 2 : 0), &end, binary ? 2 : 0);
        if (*end != '\0') reject(token, "a number");
        return value;
    }

    u64 integer() {
        OperandKind kind;
        const bool minus = accept("-");
        const u64 value = number(&kind);
        return minus ? 0 - value : value;
    }

    // ---- module level

    void module_item() {
        struct Item {
            std::string_view word;
            void (Parser::*parse)();
        };
        static constexpr Item ITEMS[] = {
            {".version", &Parser::skip_line_value},
            {".address_size", &Parser::skip_line_value},
            {".target", &Parser::target},
            {".file", &Parser::file},
            {".entry", &Parser::entry},
            {".func", &Parser::function},
            {".section", &Parser::section},
            {".pragma", &Parser::statement_skip},
            {".alias", &Parser::statement_skip},
            {".loc", &Parser::location},
        };
        while (is_linkage(peek().text)) external_ = take().text == ".extern";
        for (auto& item : ITEMS) {
            if (!is(item.word)) continue;
            take();
            (this->*item.parse)();
            external_ = false;
            return;
        }
        if (space_of(peek().text) == Space::none) reject(peek(), "a directive or a declaration");
        declare_module_variables();
        external_ = false;
    }

    void skip_line_value() { take(); }

    void statement_skip() {
        while (!is(";") && peek().kind != TokenKind::end) take();
        expect(";");
    }

    void target() {
        module_.target = std::string(word("a target such as sm_90a"));
        while (accept(",")) take();
    }

    void file() {
        OperandKind kind;
        const u64 index = number(&kind);
        if (peek().kind != TokenKind::text) reject(peek(), "a file name in quotes");
        module_.files[u32(index)] = std::string(take().text);
        while (accept(",")) number(&kind);
    }

    void section() {
        while (!is("{") && peek().kind != TokenKind::end) take();
        expect("{");
        while (!is("}") && peek().kind != TokenKind::end) take();
        expect("}");
    }

    // .loc file line column [, function_name label] [, inlined_at file line
    // column]
    void location() {
        Location here;
        std::array<u64, 3> at = place();
        here = {u32(at[0]), u32(at[1]), u32(at[2]), -1};
        while (accept(",")) {
            const std::string_view attribute = word("function_name or inlined_at");
            if (attribute == "function_name") {
                take();
                if (accept("+")) take();
            } else {
                const auto found = places_.find(place());
                here.inlined_at = found == places_.end() ? -1 : s32(found->second);
            }
        }
        // A line 0 is the compiler's own code: it keeps the place of what stands
        // before it.
        if (here.line == 0) return;
        location_ = u32(module_.locations.size());
        places_[at] = location_;
        module_.locations.push_back(here);
    }

    std::array<u64, 3> place() {
        OperandKind kind;
        const u64 file = number(&kind), line = number(&kind), column = number(&kind);
        return {file, line, column};
    }

    // ---- declarations

    struct Declaration {
        Space space = Space::none;
        std::string_view type;
        u32 align = 0;
        u32 width = 1;  // of .v2 and .v4
    };

    Declaration declaration() {
        Declaration d;
        d.space = space_of(take().text);
        for (;;) {
            if (is(".align")) {
                take();
                d.align = u32(integer());
            } else if (is(".ptr") || space_of(peek().text) != Space::none) {
                take();  // .param .u64 .ptr .global .align 16 name
            } else if (is(".attribute")) {
                take(), expect("("), take(), expect(")");
            } else if (is(".v2") || is(".v4") || is(".v8")) {
                d.width = u32(take().text[2] - '0');
            } else if (is_type(peek().text)) {
                d.type = take().text;
            } else {
                break;
            }
        }
        if (d.type.empty()) reject(peek(), "a type");
        return d;
    }

    Variable variable(const Declaration& d) {
        Variable v;
        v.space = d.space;
        v.name = word("a variable's name");
        const u64 element = u64(type_bytes(d.type)) * d.width;
        v.align = d.align ? d.align : u32(std::max<u64>(element, 1));
        v.bytes = element;
        bool sized = true;
        while (accept("[")) {
            sized = !is("]");
            if (sized) v.bytes *= integer();
            expect("]");
        }
        v.external = !sized || (external_ && d.space == Space::shared);
        if (!sized) v.bytes = 0;
        if (accept("=")) initializers(v, u8(type_bytes(d.type)));
        if (!sized)
            for (auto& value : v.values) v.bytes += value.size;
        return v;
    }

    void initializers(Variable& v, u8 size) {
        if (accept("{")) {
            while (!is("}")) {
                initializers(v, size);
                if (!accept(",")) break;
            }
            expect("}");
            return;
        }
        Initializer value{{}, 0, size};
        const bool generic = is("generic") && peek(1).text == "(";
        if (generic) take(), take();
        if (peek().kind == TokenKind::word) {
            value.symbol = take().text;
            if (accept("+")) value.bits = integer();
        } else {
            value.bits = initializer_bits(size);
        }
        if (generic) {
            expect(")");
            if (accept("+")) value.bits += integer();
        }
        v.values.push_back(value);
    }

    u64 initializer_bits(u8 size) {
        OperandKind kind;
        const bool minus = accept("-");
        const u64 bits = number(&kind);
        if (kind == OperandKind::integer) return minus ? 0 - bits : bits;
        if (kind == OperandKind::single) return bits ^ (minus ? 0x80000000u : 0);
        const f64 value = minus ? -bit_cast<f64>(bits) : bit_cast<f64>(bits);
        return size == 4 ? bit_cast<u32>(f32(value)) : bit_cast<u64>(value);
    }

    void declare_module_variables() {
        const Declaration d = declaration();
        do {
            Variable v = variable(d);
            module_.variable_index[v.name] = u32(module_.variables.size());
            module_.variables.push_back(std::move(v));
        } while (accept(","));
        expect(";");
    }

    // ---- functions

    void entry() { begin_function(true); }
    void function() { begin_function(false); }

    void begin_function(bool entry) {
        Function f;
        f.entry = entry;
        f.location = location_;
        if (!entry && is("(")) f.returns = parameters();
        f.name = word("a function's name");
        if (is("(")) f.parameters = parameters();
        while (!is("{") && !is(";")) directive(f);
        function_ = &f;
        scopes_.clear();
        if (!accept(";")) {
            f.defined = true;
            block();
        }
        function_ = nullptr;
        store(std::move(f));
    }

    void store(Function f) {
        const auto found = module_.function_index.find(f.name);
        if (found == module_.function_index.end()) {
            module_.function_index[f.name] = u32(module_.functions.size());
            module_.functions.push_back(std::move(f));
        } else if (f.defined) {
            module_.functions[found->second] = std::move(f);
        }
    }

    std::vector<Variable> parameters() {
        std::vector<Variable> list;
        expect("(");
        while (!is(")")) {
            const Declaration d = declaration();
            list.push_back(variable(d));
            if (!accept(",")) break;
        }
        expect(")");
        return list;
    }

    void directive(Function& f) {
        if (peek().text.empty() || peek().text[0] != '.') reject(peek(), "a directive, '{' or ';'");
        const std::string_view name = take().text;
        if (name == ".pragma") return statement_skip();
        std::vector<u32> values;
        while (peek().kind == TokenKind::number || (!values.empty() && is(","))) {
            if (accept(",")) continue;
            values.push_back(u32(integer()));
        }
        f.directives[name] = values;
    }

    void block() {
        expect("{");
        scopes_.emplace_back();
        while (!is("}")) {
            if (peek().kind == TokenKind::end) reject(peek(), "'}' at the end of a function");
            statement();
        }
        expect("}");
        scopes_.pop_back();
    }

    void statement() {
        if (is("{")) return block();
        if (accept(".loc")) return location();
        if (accept(".pragma")) return statement_skip();
        if (accept(";")) return;
        if (space_of(peek().text) != Space::none) return declare_local();
        if (peek(1).text == ":") return label();
        instruction();
    }

    void label() {
        const std::string_view name = word("a label");
        expect(":");
        if (is(".branchtargets") || is(".calltargets")) {
            take();
            auto& table = function_->tables[name];
            do table.push_back(word("a label"));
            while (accept(","));
            expect(";");
        } else if (is(".callprototype")) {
            statement_skip();
        } else {
            function_->labels[name] = u32(function_->body.size());
        }
    }

    void declare_local() {
        const Declaration d = declaration();
        do {
            if (d.space == Space::reg) {
                declare_registers(d.type);
            } else {
                Variable v = variable(d);
                scopes_.back().variables[v.name] = s32(function_->variables.size());
                function_->variables.push_back(std::move(v));
            }
        } while (accept(","));
        expect(";");
    }

    void declare_registers(std::string_view type) {
        const std::string_view name = word("a register's name");
        if (!accept("<")) return declare_register(name, type);
        const u64 count = integer();
        if (count > 1u << 20) reject(peek(), "fewer registers");
        expect(">");
        for (u64 i = 0; i < count; ++i) {
            interned_.push_back(std::make_unique<std::string>(std::string(name) + std::to_string(i)));
            declare_register(*interned_.back(), type);
        }
    }

    void declare_register(std::string_view name, std::string_view type) {
        scopes_.back().registers[name] = s32(function_->registers.size());
        function_->registers.push_back({name, type});
    }

    s32 find(std::string_view name, Names Scope::* names) const {
        for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
            const auto found = ((*scope).*names).find(name);
            if (found != ((*scope).*names).end()) return found->second;
        }
        return -1;
    }

    // ---- instructions

    void instruction() {
        Instruction in;
        in.location = location_;
        in.line = peek().line;
        if (accept("@")) {
            in.guard_negated = accept("!");
            const std::string_view name = word("a predicate register");
            in.guard = find(name, &Scope::registers);
            if (in.guard < 0) reject(tokens_[at_ - 1], "a declared predicate register");
        }
        in.opcode = word("an instruction");
        if (in.opcode[0] == '.' || in.opcode[0] == '%') reject(tokens_[at_ - 1], "an instruction");
        while (!is(";")) {
            in.operands.push_back(operand());
            if (!accept(",")) break;
        }
        expect(";");
        function_->body.push_back(std::move(in));
    }

    Operand operand() {
        Operand first = simple_operand();
        if (accept("|")) first.second = std::make_shared<Operand>(simple_operand());
        return first;
    }

    Operand simple_operand() {
        if (is("[")) return address();
        if (is("{")) return group("{", "}", OperandKind::vector);
        if (is("(")) return group("(", ")", OperandKind::list);
        if (accept("!")) {
            Operand value = simple_operand();
            value.negated = true;
            return value;
        }
        if (peek().kind == TokenKind::word) return name();
        return literal();
    }

    Operand literal() {
        Operand value;
        const bool minus = accept("-");
        value.bits = number(&value.kind);
        if (minus && value.kind == OperandKind::integer) value.bits = 0 - value.bits;
        if (minus && value.kind == OperandKind::single) value.bits ^= 0x80000000u;
        if (minus && value.kind == OperandKind::real) value.bits ^= u64(1) << 63;
        return value;
    }

    Operand name() {
        Operand value;
        value.name = take().text;
        if (value.name == "_") return value;
        value.index = find(value.name, &Scope::registers);
        if (value.index >= 0) {
            value.kind = OperandKind::reg;
            return value;
        }
        if (value.name[0] == '%') {
            value.kind = OperandKind::special;
            return value;
        }
        value.kind = OperandKind::symbol;
        value.index = find(value.name, &Scope::variables);
        if (accept("+")) value.offset = s64(integer());
        return value;
    }

    Operand group(std::string_view open, std::string_view close, OperandKind kind) {
        Operand value;
        value.kind = kind;
        expect(open);
        while (!is(close)) {
            value.elements.push_back(operand());
            if (!accept(",")) break;
        }
        expect(close);
        return value;
    }

    // [reg], [reg+imm], [symbol+imm], [imm]; further elements are coordinates of
    // tensors
    Operand address() {
        Operand value;
        value.kind = OperandKind::address;
        expect("[");
        value.elements.push_back(simple_operand());
        if (value.elements[0].kind == OperandKind::symbol) std::swap(value.offset, value.elements[0].offset);
        if (accept("+"))
            value.offset = s64(integer());
        else if (is("-"))
            value.offset = s64(integer());
        while (accept(",")) value.elements.push_back(simple_operand());
        expect("]");
        return value;
    }

    Module& module_;
    std::vector<Token> tokens_;
    size_t at_ = 0;
    bool external_ = false;
    u32 location_ = 0;
    std::map<std::array<u64, 3>, u32> places_;
    Function* function_ = nullptr;
    std::vector<Scope> scopes_;

 public:
    std::vector<std::unique_ptr<std::string>> interned_;  // the names of "%r<5>"
};

}  // namespace

u32 type_bytes(std::string_view type) {
    for (auto& known : TYPES)
        if (known.name == type) return known.bytes;
    return 0;
}

std::unique_ptr<Module> parse(std::string text) {
    auto module = std::make_unique<Module>();
    module->text = std::move(text);
    Parser parser(*module);
    parser.run();
    module->register_names = std::move(parser.interned_);
    return module;
}

}  // namespace sim::ptx
