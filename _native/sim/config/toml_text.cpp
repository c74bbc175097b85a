// SPDX-License-Identifier: Apache-2.0
#include "toml_text.h"

#include <cstdio>

namespace aclsim::config {

std::string quoted(const std::string &text) {
    std::string out = "'";
    for (char c : text) {
        char escaped[8];
        bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
        std::snprintf(escaped, sizeof(escaped), control ? "\\x%02x" : "%c", c);
        out += escaped;
    }
    return out + "'";
}

size_t character_length(std::string_view text) {
    auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const unsigned first = byte(0);
    if (first < 0x80) {
        return text.empty() ? 0 : 1;
    }
    size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) {
            return 0;
        }
    }
    // Longer than needed, half of a surrogate pair, or beyond the last character.
    if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0) ||
        (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90)) {
        return 0;
    }
    return length;
}

}  // namespace aclsim::config
