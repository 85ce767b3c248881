// declarations: types, variables with their values, registers
#include <algorithm>

#include "parser.h"

namespace sim::ptx {

namespace {

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

// Whether a name is the prefix and a number below `count`.
bool is_one_of(std::string_view name, std::string_view prefix, u64 count) {
    constexpr size_t DIGITS = 7;  // of the largest count
    if (name.size() <= prefix.size() || name.size() > prefix.size() + DIGITS) return false;
    if (name.compare(0, prefix.size(), prefix) != 0) return false;
    const std::string_view digits = name.substr(prefix.size());
    if (digits[0] == '0' && digits.size() > 1) return false;
    u64 number = 0;
    for (const char digit : digits) {
        if (digit < '0' || digit > '9') return false;
        number = number * 10 + u64(digit - '0');
    }
    return number < count;
}

bool is_type(std::string_view word) {
    for (auto& type : TYPES)
        if (type.name == word) return true;
    return false;
}

}  // namespace

u32 type_bytes(std::string_view type) {
    for (auto& known : TYPES)
        if (known.name == type) return known.bytes;
    return 0;
}

Space space_of(std::string_view word) {
    for (auto& [name, space] : SPACES)
        if (name == word) return space;
    return Space::none;
}

Parser::Declaration Parser::declaration() {
    Declaration d;
    d.space = space_of(tokens_.take().text);
    for (;;) {
        if (tokens_.is(".align")) {
            tokens_.take();
            d.align = alignment();
        } else if (tokens_.is(".ptr") || space_of(tokens_.peek().text) != Space::none) {
            tokens_.take();  // .param .u64 .ptr .global .align 16 name
        } else if (tokens_.is(".attribute")) {
            tokens_.take(), tokens_.expect("("), tokens_.take(), tokens_.expect(")");
        } else if (tokens_.is(".v2") || tokens_.is(".v4") || tokens_.is(".v8")) {
            d.width = u32(tokens_.take().text[2] - '0');
        } else if (is_type(tokens_.peek().text)) {
            d.type = tokens_.take().text;
        } else {
            break;
        }
    }
    if (d.type.empty()) reject(tokens_.peek(), "a type");
    return d;
}

u64 Parser::times(u64 bytes, u64 count) const {
    constexpr u64 MOST = u64(1) << 35;  // half a window of device addresses
    if (bytes && count > MOST / bytes) reject(tokens_.last(), "a smaller size");
    return bytes * count;
}

u32 Parser::alignment() {
    constexpr u64 MOST = 1 << 15;
    const u64 value = tokens_.integer();
    if (value == 0 || value > MOST || (value & (value - 1))) reject(tokens_.last(), "an alignment");
    return u32(value);
}

Variable Parser::variable(const Declaration& d) {
    Variable v;
    v.space = d.space;
    v.name = tokens_.word("a variable's name");
    const u64 element = u64(type_bytes(d.type)) * d.width;
    v.align = d.align ? d.align : u32(std::max<u64>(element, 1));
    v.bytes = element;
    bool sized = true;
    while (tokens_.accept("[")) {
        sized = !tokens_.is("]");
        if (sized) v.bytes = times(v.bytes, tokens_.integer());
        tokens_.expect("]");
    }
    v.external = !sized || (external_ && d.space == Space::shared);
    if (!sized) v.bytes = 0;
    if (tokens_.accept("=")) initializers(v, u8(type_bytes(d.type)));
    if (!sized)
        for (auto& value : v.values) v.bytes += value.size;
    return v;
}

void Parser::initializers(Variable& v, u8 size) {
    const Nested nested(*this);
    if (tokens_.accept("{")) {
        while (!tokens_.is("}")) {
            initializers(v, size);
            if (!tokens_.accept(",")) break;
        }
        tokens_.expect("}");
        return;
    }
    Initializer value{{}, 0, size};
    const bool generic = tokens_.is("generic") && tokens_.peek(1).text == "(";
    if (generic) tokens_.take(), tokens_.take();
    if (tokens_.peek().kind == TokenKind::word) {
        value.symbol = tokens_.take().text;
        if (tokens_.accept("+")) value.bits = tokens_.integer();
    } else {
        value.bits = initializer_bits(size);
    }
    if (generic) {
        tokens_.expect(")");
        if (tokens_.accept("+")) value.bits += tokens_.integer();
    }
    v.values.push_back(value);
}

u64 Parser::initializer_bits(u8 size) {
    OperandKind kind;
    const bool minus = tokens_.accept("-");
    const u64 bits = tokens_.number(&kind);
    if (kind == OperandKind::integer) return minus ? 0 - bits : bits;
    if (kind == OperandKind::single) return bits ^ (minus ? 0x80000000u : 0);
    const f64 value = minus ? -bit_cast<f64>(bits) : bit_cast<f64>(bits);
    return size == 4 ? bit_cast<u32>(f32(value)) : bit_cast<u64>(value);
}

void Parser::declare_module_variables() {
    const Declaration d = declaration();
    do {
        Variable v = variable(d);
        module_.variable_index[v.name] = u32(module_.variables.size());
        module_.variables.push_back(std::move(v));
    } while (tokens_.accept(","));
    tokens_.expect(";");
}

// ---- in a function

void Parser::declare_local() {
    const Declaration d = declaration();
    do {
        if (d.space == Space::reg) {
            declare_registers(d);
        } else if (d.space == Space::global || d.space == Space::constant) {
            declare_in_module(variable(d));
        } else {
            Variable v = variable(d);
            scopes_.back().variables[v.name] = s32(function_->variables.size());
            function_->variables.push_back(std::move(v));
        }
    } while (tokens_.accept(","));
    tokens_.expect(";");
}

// A variable of a function that is there once: one of the module, by a name that no other has.
void Parser::declare_in_module(Variable v) {
    const bool taken = module_.variable_index.count(v.name) != 0;
    const std::string_view name = taken ? intern(std::string(v.name) + "@" + std::to_string(interned.size())) : v.name;
    scopes_.back().globals[v.name] = name;
    v.name = name;
    module_.variable_index[name] = u32(module_.variables.size());
    module_.variables.push_back(std::move(v));
}

void Parser::declare_registers(const Declaration& d) {
    const std::string_view name = tokens_.word("a register's name");
    if (!tokens_.accept("<")) return declare_register(name, d.type, d.width);
    const u64 count = tokens_.integer();
    if (count > 1u << 20) reject(tokens_.peek(), "fewer registers");
    tokens_.expect(">");
    if (d.width == 1) return scopes_.back().ranges.push_back({name, count, d.type});
    for (u64 i = 0; i < count; ++i) {
        declare_register(intern(std::string(name) + std::to_string(i)), d.type, d.width);
    }
}

// A vector is a register for each element, which is called .x or .r, .y or .g, .z or .b, .w or .a after it.
void Parser::declare_register(std::string_view name, std::string_view type, u32 width) {
    if (width == 1) {
        add_register(scopes_.back(), name, type);
        return;
    }
    Operand vector;
    vector.kind = OperandKind::vector;
    for (u32 i = 0; i < width && i < 4; ++i) {
        const std::string_view element = intern(std::string(name) + "." + "xyzw"[i]);
        declare_register(element, type, 1);
        const s32 index = scopes_.back().registers[element];
        scopes_.back().registers[intern(std::string(name) + "." + "rgba"[i])] = index;
        vector.elements.emplace_back();
        vector.elements.back().kind = OperandKind::reg;
        vector.elements.back().name = element;
        vector.elements.back().index = index;
    }
    scopes_.back().registers[name] = FIRST_VECTOR - s32(vectors_.size());
    vectors_.push_back(std::move(vector));
}

s32 Parser::add_register(Scope& scope, std::string_view name, std::string_view type) {
    const s32 index = s32(function_->registers.size());
    scope.registers[name] = index;
    function_->registers.push_back({name, type});
    return index;
}

// Code that was compiled without optimisation has thousands in a range, of which a change of it may use a few.
s32 Parser::find_register(std::string_view name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
        const auto found = scope->registers.find(name);
        if (found != scope->registers.end()) return found->second;
        for (auto range = scope->ranges.rbegin(); range != scope->ranges.rend(); ++range)
            if (is_one_of(name, range->prefix, range->count)) return add_register(*scope, name, range->type);
    }
    return -1;
}

void Parser::find_variable(Operand& symbol) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
        const auto variable = scope->variables.find(symbol.name);
        const auto global = scope->globals.find(symbol.name);
        if (variable != scope->variables.end())
            symbol.index = variable->second;
        else if (global != scope->globals.end())
            symbol.name = global->second;
        else
            continue;
        return;
    }
}

}  // namespace sim::ptx
