#include "tokens.h"

#include <cstdlib>

namespace sim::ptx {

namespace {

u64 decimal_bits(const Token& token, OperandKind* kind) {
    *kind = OperandKind::real;
    return bit_cast<u64>(std::strtod(std::string(token.text).c_str(), nullptr));
}

}  // namespace

void Tokens::expect(std::string_view text) {
    if (!accept(text)) reject(peek(), "'" + std::string(text) + "'");
}

std::string_view Tokens::word(const char* what) {
    if (peek().kind != TokenKind::word) reject(peek(), what);
    return take().text;
}

u64 Tokens::number(OperandKind* kind) {
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

u64 Tokens::integer() {
    OperandKind kind;
    const bool minus = accept("-");
    const u64 value = number(&kind);
    return minus ? 0 - value : value;
}

}  // namespace sim::ptx
