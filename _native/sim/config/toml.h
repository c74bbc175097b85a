// SPDX-License-Identifier: Apache-2.0
// How far the TOML reader goes: tables, arrays of tables, dotted and quoted keys, all four kinds of string,
// integers (decimal, hexadecimal, octal, binary), floats, booleans, arrays, inline tables and comments. Dates
// are rejected.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "value.h"

namespace aclsim::config {

class TomlReader {
public:
    TomlReader(std::string_view text, std::string source);

    Value read();

private:
    // How a table or array came to be decides who may add to it.
    enum class Origin { Implicit, Header, Dotted, Closed, TableArray };

    // A place in the document: the table itself and its path, the key of origins_.
    struct Place {
        Value *table;
        std::string path;
        int depth;  // from the root
    };

    [[noreturn]] void fail(const std::string &problem) const;

    bool at_end() const { return position_ >= text_.size(); }
    char peek() const { return at_end() ? '\0' : text_[position_]; }
    std::string next_character() const;  // quoted, for messages
    void require_utf8();
    bool accept(std::string_view token);
    void expect(char c, const char *context);
    void skip_blanks();
    void skip_comment();
    void skip_lines();  // blanks, newlines and comments
    void end_of_line();

    std::vector<std::string> key();
    std::string key_part();
    void header();
    void key_value(const Place &into);
    Place enter_header(const Place &from, const std::string &part);
    Place enter_dotted(const Place &from, const std::string &part);
    Place enter(const Place &from, const std::string &part, const std::string &path, Origin origin);
    void require_room(const Value &table) const;
    void require_depth(int depth) const;

    Value value(const std::string &path, int depth);
    Value array(const std::string &path, int depth);
    Value inline_table(const std::string &path, int depth);
    Value bare_value();
    Value number(std::string token);
    std::string basic_string();
    std::string literal_string();
    std::string multiline_string(char quote);
    void escape(std::string &out);
    uint32_t code_point(int digits);

    std::string_view text_;
    std::string source_;
    size_t position_ = 0;
    int line_ = 1;
    Value root_ = Value::object();
    Place current_{&root_, "", 0};
    std::map<std::string, Origin> origins_;
};

}  // namespace aclsim::config
