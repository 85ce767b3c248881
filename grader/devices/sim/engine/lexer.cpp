#include "lexer.h"

#include <algorithm>

namespace sim {

namespace {

bool starts_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' || c == '.';
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool continues_word(char c) {
    return starts_word(c) || is_digit(c);
}

struct Cursor {
    std::string_view text;
    size_t at = 0;
    u32 line = 1;
    bool is_inline = false;

    char peek(size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }

    void skip_blanks() {
        for (;; ++at) {
            if (peek() == '\n') {
                ++line;
            } else if (peek() == '/' && peek(1) == '/') {
                skip_remark();
            } else if (peek() == '/' && peek(1) == '*') {
                skip_comment();
            } else if (peek() != ' ' && peek() != '\t' && peek() != '\r') {
                return;
            }
        }
    }

    void skip_remark() {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view remark = text.substr(at, end - at);
        if (remark == "// begin inline asm") is_inline = true;
        if (remark == "// end inline asm") is_inline = false;
        at = end - 1;
    }

    void skip_comment() {
        const size_t end = text.find("*/", at + 2);
        if (end == std::string_view::npos) reject({TokenKind::symbol, "/*", line}, "an end to this comment");
        for (; at < end + 1; ++at) line += text[at] == '\n';
    }

    // A directive or type ends where the next one begins: ".reg.b16" is two.
    Token word() {
        const size_t start = at;
        const bool directive = peek() == '.';
        if (directive) ++at;
        while ((continues_word(peek()) && !(directive && peek() == '.')) || (peek() == ':' && peek(1) == ':'))
            at += peek() == ':' ? 2 : 1;
        return {TokenKind::word, text.substr(start, at - start), line, is_inline};
    }

    // Decimal, octal, hexadecimal, binary, 0f and 0d bit patterns, decimal
    // fractions; the parser gives them a value.
    Token number() {
        const size_t start = at;
        const bool prefixed = peek() == '0' && (peek(1) | 32) >= 'a' && (peek(1) | 32) <= 'z';
        while (continues_word(peek()) && peek() != '%' && peek() != '$') {
            const bool exponent = !prefixed && (peek() | 32) == 'e' && (peek(1) == '+' || peek(1) == '-');
            at += exponent ? 2 : 1;
        }
        return {TokenKind::number, text.substr(start, at - start), line};
    }

    Token quoted() {
        const size_t start = ++at;
        while (peek() != '"' && peek() != '\n' && at < text.size()) at += peek() == '\\' ? 2 : 1;
        if (peek() != '"') reject({TokenKind::text, text.substr(start, 20), line}, "a closing quote");
        return {TokenKind::text, text.substr(start, at++ - start), line};
    }

    Token next() {
        skip_blanks();
        if (at >= text.size()) return {TokenKind::end, "end of file", line};
        if (is_digit(peek())) return number();
        if (starts_word(peek())) return word();
        if (peek() == '"') return quoted();
        return {TokenKind::symbol, text.substr(at++, 1), line};
    }
};

}  // namespace

void reject(const Token& token, const std::string& expected) {
    throw SyntaxError(
        "PTX line " + std::to_string(token.line) + ": expected " + expected + ", found '" +
        std::string(token.text.substr(0, 60)) + "'");
}

std::vector<Token> tokenize(std::string_view text) {
    std::vector<Token> tokens;
    tokens.reserve(text.size() / 5 + 16);
    Cursor cursor{text};
    do tokens.push_back(cursor.next());
    while (tokens.back().kind != TokenKind::end);
    return tokens;
}

}  // namespace sim
