// lexer: PTX text -> tokens
//
// A token is a view into the text; an opcode with its modifiers
// ("ld.global.L1::no_allocate.v4.f32") is one token.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "scalar.h"

namespace sim {

enum class TokenKind : u8 { word, number, text, symbol, end };

struct Token {
    TokenKind kind;
    std::string_view text;   // without quotes for TokenKind::text
    u32 line;                // of the PTX, from 1
    bool is_inline = false;  // from an asm statement: nvcc's remarks say where one begins and ends
};

// The PTX cannot be read; the message names its line and token.
struct SyntaxError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] void reject(const Token& token, const std::string& expected);

// Ends with one TokenKind::end token. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view text);

}  // namespace sim
