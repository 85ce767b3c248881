#include "parser.h"

#include <algorithm>

namespace sim::ptx {

namespace {

constexpr std::string_view LINKAGE[] = {".visible", ".extern", ".weak", ".common"};

bool is_linkage(std::string_view word) {
    for (auto name : LINKAGE)
        if (name == word) return true;
    return false;
}

}  // namespace

void Parser::run() {
    while (tokens_.peek().kind != TokenKind::end) module_item();
}

void Parser::module_item() {
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
    while (is_linkage(tokens_.peek().text)) external_ = tokens_.take().text == ".extern";
    for (auto& item : ITEMS) {
        if (!tokens_.is(item.word)) continue;
        tokens_.take();
        (this->*item.parse)();
        external_ = false;
        return;
    }
    if (space_of(tokens_.peek().text) == Space::none) reject(tokens_.peek(), "a directive or a declaration");
    declare_module_variables();
    external_ = false;
}

void Parser::skip_line_value() {
    tokens_.take();
}

void Parser::statement_skip() {
    while (!tokens_.is(";") && tokens_.peek().kind != TokenKind::end) tokens_.take();
    tokens_.expect(";");
}

void Parser::target() {
    module_.target = std::string(tokens_.word("a target such as sm_90a"));
    while (tokens_.accept(",")) tokens_.take();
}

void Parser::file() {
    OperandKind kind;
    const u64 index = tokens_.number(&kind);
    if (tokens_.peek().kind != TokenKind::text) reject(tokens_.peek(), "a file name in quotes");
    module_.files[u32(index)] = std::string(tokens_.take().text);
    while (tokens_.accept(",")) tokens_.number(&kind);
}

void Parser::section() {
    while (!tokens_.is("{") && tokens_.peek().kind != TokenKind::end) tokens_.take();
    tokens_.expect("{");
    while (!tokens_.is("}") && tokens_.peek().kind != TokenKind::end) tokens_.take();
    tokens_.expect("}");
}

// .loc file line column [, function_name label] [, inlined_at file line
// column]
void Parser::location() {
    Location here;
    std::array<u64, 3> at = place();
    here = {u32(at[0]), u32(at[1]), u32(at[2]), -1};
    while (tokens_.accept(",")) {
        const std::string_view attribute = tokens_.word("function_name or inlined_at");
        if (attribute == "function_name") {
            tokens_.take();
            if (tokens_.accept("+")) tokens_.take();
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

std::array<u64, 3> Parser::place() {
    OperandKind kind;
    const u64 file = tokens_.number(&kind), line = tokens_.number(&kind), column = tokens_.number(&kind);
    return {file, line, column};
}

// ---- functions

void Parser::entry() {
    begin_function(true);
}

void Parser::function() {
    begin_function(false);
}

void Parser::begin_function(bool entry) {
    Function f;
    f.entry = entry;
    f.location = location_;
    if (!entry && tokens_.is("(")) f.returns = parameters();
    f.name = tokens_.word("a function's name");
    if (tokens_.is("(")) f.parameters = parameters();
    while (!tokens_.is("{") && !tokens_.is(";")) directive(f);
    function_ = &f;
    scopes_.clear();
    vectors_.clear();
    if (!tokens_.accept(";")) {
        f.defined = true;
        block();
    }
    function_ = nullptr;
    store(std::move(f));
}

void Parser::store(Function f) {
    const auto found = module_.function_index.find(f.name);
    if (found == module_.function_index.end()) {
        module_.function_index[f.name] = u32(module_.functions.size());
        module_.functions.push_back(std::move(f));
    } else if (f.defined) {
        module_.functions[found->second] = std::move(f);
    }
}

std::vector<Variable> Parser::parameters() {
    std::vector<Variable> list;
    tokens_.expect("(");
    while (!tokens_.is(")")) {
        const Declaration d = declaration();
        Variable v = variable(d);
        if (d.space == Space::reg) {
            v.space = Space::param;
            v.passed_as = d.type;
            v.width = d.width;
            v.bytes = std::max<u64>(v.bytes, sizeof(u32));  // of a predicate, which has no bytes
        }
        list.push_back(std::move(v));
        if (!tokens_.accept(",")) break;
    }
    tokens_.expect(")");
    return list;
}

void Parser::directive(Function& f) {
    if (tokens_.peek().text.empty() || tokens_.peek().text[0] != '.') reject(tokens_.peek(), "a directive, '{' or ';'");
    const std::string_view name = tokens_.take().text;
    if (name == ".pragma") return statement_skip();
    std::vector<u32> values;
    while (tokens_.peek().kind == TokenKind::number || (!values.empty() && tokens_.is(","))) {
        if (tokens_.accept(",")) continue;
        values.push_back(u32(tokens_.integer()));
    }
    f.directives[name] = values;
}

Parser::Nested::Nested(Parser& p) : parser(p) {
    constexpr u32 DEEPEST = 200;
    if (++p.depth_ > DEEPEST) reject(p.tokens_.peek(), "fewer brackets inside each other");
}

void Parser::block() {
    const Nested nested(*this);
    tokens_.expect("{");
    scopes_.emplace_back();
    scopes_.back().first = function_->body.size();
    if (scopes_.size() == 1) take_parameters();
    while (!tokens_.is("}")) {
        if (tokens_.peek().kind == TokenKind::end) reject(tokens_.peek(), "'}' at the end of a function");
        statement();
    }
    tokens_.expect("}");
    if (scopes_.size() == 1) give_results(Instruction{});
    place_labels();
    scopes_.pop_back();
}

// The labels of a function's scopes become its own. A nested scope's get names that no other has, since several scopes
// may use one name; what is named in it and not found there belongs to the scope around it.
void Parser::place_labels() {
    Scope& scope = scopes_.back();
    Scope* outer = scopes_.size() > 1 ? &scopes_[scopes_.size() - 2] : nullptr;
    const auto own = [&](std::string_view name) {
        return outer ? intern(std::string(name) + "@" + std::to_string(interned.size())) : name;
    };
    Texts unique;
    for (const auto& [name, index] : scope.labels) {
        unique[name] = own(name);
        function_->labels[unique[name]] = index;
    }
    for (auto& [name, labels] : scope.tables) {
        unique[name] = own(name);
        for (std::string_view& label : labels) rename(label, unique);
        (outer ? outer->tables : function_->tables)[unique[name]] = labels;
    }
    if (!outer || unique.empty()) return;
    for (size_t i = scope.first; i < function_->body.size(); ++i) {
        if (function_->body[i].opcode.substr(0, 2) != "br") continue;
        for (Operand& operand : function_->body[i].operands) rename(operand.name, unique);
    }
}

void Parser::rename(std::string_view& name, const Texts& names) {
    const auto found = names.find(name);
    if (found != names.end()) name = found->second;
}

std::string_view Parser::intern(std::string text) {
    interned.push_back(std::make_unique<std::string>(std::move(text)));
    return *interned.back();
}

void Parser::statement() {
    if (tokens_.is("{")) return block();
    if (tokens_.accept(".loc")) return location();
    if (tokens_.accept(".pragma")) return statement_skip();
    if (tokens_.accept(";")) return;
    if (space_of(tokens_.peek().text) != Space::none) return declare_local();
    if (tokens_.peek(1).text == ":") return label();
    instruction();
}

void Parser::label() {
    const std::string_view name = tokens_.word("a label");
    tokens_.expect(":");
    if (tokens_.is(".branchtargets") || tokens_.is(".calltargets")) {
        tokens_.take();
        auto& table = scopes_.back().tables[name];
        do table.push_back(tokens_.word("a label"));
        while (tokens_.accept(","));
        tokens_.expect(";");
    } else if (tokens_.is(".callprototype")) {
        statement_skip();
    } else {
        scopes_.back().labels[name] = u32(function_->body.size());
    }
}

std::unique_ptr<Module> parse(std::string text) {
    auto module = std::make_unique<Module>();
    module->text = std::move(text);
    Parser parser(*module);
    parser.run();
    module->interned = std::move(parser.interned);
    return module;
}

}  // namespace sim::ptx
