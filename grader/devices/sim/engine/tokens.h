// tokens: what the parser reads next, and what it must be
//
// Whatever is expected and not there throws SyntaxError.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "lexer.h"
#include "ptx.h"

namespace sim::ptx {

class Tokens {
 public:
    explicit Tokens(std::string_view text) : tokens_(tokenize(text)) {}

    const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
    const Token& last() const { return tokens_[at_ - 1]; }
    const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
    bool is(std::string_view text) const { return peek().text == text && peek().kind != TokenKind::text; }
    bool accept(std::string_view text) { return is(text) ? (take(), true) : false; }
    void expect(std::string_view text);
    std::string_view word(const char* what);
    u64 number(OperandKind* kind);  // bits, and what they are
    u64 integer();                  // with its sign

 private:
    std::vector<Token> tokens_;
    size_t at_ = 0;
};

}  // namespace sim::ptx
