// SPDX-License-Identifier: Apache-2.0
// The four kinds of string and their escapes.
#include "toml.h"

namespace aclsim::config {

std::string TomlReader::basic_string() {
    std::string out;
    for (;;) {
        if (at_end() || peek() == '\n') {
            fail("the string is not closed with '\"'");
        }
        if (accept("\"")) {
            return out;
        }
        if (accept("\\")) {
            escape(out);
        } else {
            out += text_[position_++];
        }
    }
}

std::string TomlReader::literal_string() {
    size_t end = text_.find_first_of("'\n", position_);
    if (end == std::string_view::npos || text_[end] == '\n') {
        fail("the string is not closed with \"'\"");
    }
    std::string out(text_.substr(position_, end - position_));
    position_ = end + 1;
    return out;
}

std::string TomlReader::multiline_string(char quote) {
    const std::string closing(3, quote);
    std::string out;
    if (accept("\n") || accept("\r\n")) {
        ++line_;
    }
    for (;;) {
        if (at_end()) {
            fail("the string is not closed with " + closing);
        }
        if (accept(closing)) {
            // Up to two quotes may stand directly before the closing three.
            for (int extra = 0; extra < 2 && peek() == quote; ++extra, ++position_) {
                out += quote;
            }
            return out;
        }
        if (quote == '"' && accept("\\")) {
            size_t before = position_;
            skip_blanks();
            if (peek() != '\n' && peek() != '\r') {
                position_ = before;
                escape(out);
                continue;
            }
            // A backslash that ends the line swallows all white space up to the next visible character.
            while (peek() == ' ' || peek() == '\t' || peek() == '\r' || peek() == '\n') {
                line_ += text_[position_++] == '\n';
            }
            continue;
        }
        line_ += peek() == '\n';
        out += text_[position_++];
    }
}

uint32_t TomlReader::code_point(int digits) {
    std::string hex(text_.substr(position_, digits));
    if (hex.size() != static_cast<size_t>(digits) ||
        hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
        fail("\\u needs 4 and \\U needs 8 hexadecimal digits");
    }
    position_ += digits;
    uint32_t code = static_cast<uint32_t>(std::stoul(hex, nullptr, 16));
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
        fail("U+" + hex + " is not a Unicode character");
    }
    return code;
}

void TomlReader::escape(std::string &out) {
    static const std::string_view names = "btnfr\"\\", bytes = "\b\t\n\f\r\"\\";
    char c = peek();
    size_t simple = at_end() ? std::string_view::npos : names.find(c);
    if (simple == std::string_view::npos && c != 'u' && c != 'U') {
        fail("unknown escape of " + next_character() + " in a string; write '\\\\' for a backslash");
    }
    ++position_;
    if (simple != std::string_view::npos) {
        out += bytes[simple];
        return;
    }
    uint32_t code = code_point(c == 'u' ? 4 : 8);
    if (code < 0x80) {
        out += static_cast<char>(code);
        return;
    }
    int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static constexpr unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    out += static_cast<char>(lead[tail] | code >> 6 * tail);
    while (tail-- > 0) {
        out += static_cast<char>(0x80 | (code >> 6 * tail & 0x3F));
    }
}

}  // namespace aclsim::config
