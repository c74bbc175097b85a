// SPDX-License-Identifier: Apache-2.0
#include "toml.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "toml_text.h"

namespace aclsim::config {
namespace {

bool bare_key_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Joined with a character that keys do not hold, so that 'a.b' and a.b stay different tables.
std::string child_path(const std::string &path, const std::string &part) { return path + '\0' + part; }

}  // namespace

TomlReader::TomlReader(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {}

void TomlReader::fail(const std::string &problem) const {
    throw Error(source_ + ":" + std::to_string(line_) + ": " + problem);
}

std::string TomlReader::next_character() const {
    if (peek() == '\n' || peek() == '\r') {
        return "the end of the line";
    }
    return quoted(std::string(text_.substr(position_, character_length(text_.substr(position_)))));
}

void TomlReader::require_utf8() {
    while (!at_end()) {
        size_t length = character_length(text_.substr(position_));
        if (length == 0) {
            fail("the file is not UTF-8 text");
        }
        line_ += peek() == '\n';
        position_ += length;
    }
    position_ = 0;
    line_ = 1;
}

Value TomlReader::read() {
    require_utf8();
    accept("\xEF\xBB\xBF");
    for (skip_lines(); !at_end(); skip_lines()) {
        if (peek() == '[') {
            header();
        } else {
            key_value(current_);
        }
        end_of_line();
    }
    return std::move(root_);
}

bool TomlReader::accept(std::string_view token) {
    if (text_.substr(position_, token.size()) != token) {
        return false;
    }
    position_ += token.size();
    return true;
}

void TomlReader::expect(char c, const char *context) {
    if (!accept(std::string_view(&c, 1))) {
        fail(std::string("expected '") + c + "' " + context + (at_end() ? " but the file ends" : ""));
    }
}

void TomlReader::skip_blanks() {
    while (peek() == ' ' || peek() == '\t') {
        ++position_;
    }
}

void TomlReader::skip_comment() {
    if (peek() == '#') {
        position_ = std::min(text_.find('\n', position_), text_.size());
    }
}

void TomlReader::skip_lines() {
    for (;;) {
        skip_blanks();
        skip_comment();
        if (accept("\n") || accept("\r\n")) {
            ++line_;
        } else {
            return;
        }
    }
}

void TomlReader::end_of_line() {
    skip_blanks();
    skip_comment();
    if (at_end()) {
        return;
    }
    if (!accept("\n") && !accept("\r\n")) {
        fail("unexpected " + next_character() + " after the end of the entry");
    }
    ++line_;
}

std::vector<std::string> TomlReader::key() {
    std::vector<std::string> parts;
    do {
        skip_blanks();
        parts.push_back(key_part());
        skip_blanks();
    } while (accept("."));
    return parts;
}

std::string TomlReader::key_part() {
    if (peek() == '"' || peek() == '\'') {
        std::string part = accept("\"") ? basic_string() : (accept("'"), literal_string());
        if (part.find('\0') != std::string::npos) {
            fail("a key holds a NUL character");
        }
        return part;
    }
    size_t start = position_;
    while (bare_key_char(peek())) {
        ++position_;
    }
    if (position_ == start) {
        fail(at_end() ? "expected a key but the file ends" : "expected a key, found " + next_character());
    }
    return std::string(text_.substr(start, position_ - start));
}

void TomlReader::require_depth(int depth) const {
    if (depth > max_depth) {
        fail("tables and values are nested deeper than " + std::to_string(max_depth));
    }
}

void TomlReader::require_room(const Value &table) const {
    if (table.size() == max_keys) {
        fail("a table has more than " + std::to_string(max_keys) + " keys");
    }
}

// A table that is not there yet.
TomlReader::Place TomlReader::enter(const Place &from, const std::string &part, const std::string &path,
                                    Origin origin) {
    require_depth(from.depth + 1);
    require_room(*from.table);
    origins_[path] = origin;
    return {&((*from.table)[part] = Value::object()), path, from.depth + 1};
}

// A table named by a header: created on the way, or the last element of an array of tables.
TomlReader::Place TomlReader::enter_header(const Place &from, const std::string &part) {
    std::string path = child_path(from.path, part);
    auto found = from.table->find(part);
    if (found == from.table->end()) {
        return enter(from, part, path, Origin::Implicit);
    }
    auto origin = origins_.find(path);
    if (origin == origins_.end() || origin->second == Origin::Closed) {
        fail("key " + quoted(part) + " already has a value and cannot be extended as a table");
    }
    if (origin->second == Origin::TableArray) {
        return {&found->back(), child_path(path, std::to_string(found->size())), from.depth + 1};
    }
    return {&*found, path, from.depth + 1};
}

void TomlReader::header() {
    bool array = accept("[[");
    if (!array) {
        accept("[");
    }
    std::vector<std::string> parts = key();
    expect(']', "at the end of a table header");
    if (array) {
        expect(']', "at the end of a table header");
    }

    Place place{&root_, "", 0};
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
        place = enter_header(place, parts[i]);
    }

    const std::string &last = parts.back();
    std::string path = child_path(place.path, last);
    bool exists = place.table->contains(last);
    auto origin = origins_.find(path);
    if (array) {
        if (exists && (origin == origins_.end() || origin->second != Origin::TableArray)) {
            fail("key " + quoted(last) + " is not an array of tables");
        }
        if (!exists) {
            require_room(*place.table);
        }
        require_depth(place.depth + 1);
        Value &list = (*place.table)[last];
        list.push_back(Value::object());
        origins_[path] = Origin::TableArray;
        current_ = {&list.back(), child_path(path, std::to_string(list.size())), place.depth + 1};
        return;
    }
    if (exists && (origin == origins_.end() || origin->second != Origin::Implicit)) {
        fail("table " + quoted(last) + " is defined twice");
    }
    current_ = enter_header(place, last);
    origins_[path] = Origin::Header;
}

TomlReader::Place TomlReader::enter_dotted(const Place &from, const std::string &part) {
    std::string path = child_path(from.path, part);
    auto found = from.table->find(part);
    if (found == from.table->end()) {
        return enter(from, part, path, Origin::Dotted);
    }
    auto origin = origins_.find(path);
    if (origin == origins_.end() || origin->second != Origin::Dotted) {
        fail("key " + quoted(part) + " is already defined");
    }
    return {&*found, path, from.depth + 1};
}

void TomlReader::key_value(const Place &into) {
    std::vector<std::string> parts = key();
    expect('=', "after a key");
    Place place = into;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
        place = enter_dotted(place, parts[i]);
    }
    const std::string &last = parts.back();
    if (place.table->contains(last)) {
        fail("key " + quoted(last) + " is defined twice");
    }
    skip_blanks();
    std::string path = child_path(place.path, last);
    require_room(*place.table);
    Value parsed = value(path, place.depth);
    if (parsed.is_object() || parsed.is_array()) {
        origins_[path] = Origin::Closed;
    }
    (*place.table)[last] = std::move(parsed);
}

Value TomlReader::value(const std::string &path, int depth) {
    require_depth(depth);
    if (accept("\"\"\"")) {
        return multiline_string('"');
    }
    if (accept("'''")) {
        return multiline_string('\'');
    }
    if (accept("\"")) {
        return basic_string();
    }
    if (accept("'")) {
        return literal_string();
    }
    if (accept("[")) {
        return array(path, depth);
    }
    if (accept("{")) {
        return inline_table(path, depth);
    }
    return bare_value();
}

Value TomlReader::array(const std::string &path, int depth) {
    Value list = Value::array();
    for (;;) {
        skip_lines();
        if (accept("]")) {
            return list;
        }
        list.push_back(value(child_path(path, std::to_string(list.size())), depth + 1));
        skip_lines();
        if (!accept(",") && peek() != ']') {
            fail(at_end() ? "the array is not closed with ']'" : "expected ',' or ']' in the array");
        }
    }
}

Value TomlReader::inline_table(const std::string &path, int depth) {
    Value table = Value::object();
    skip_blanks();
    if (accept("}")) {
        return table;
    }
    for (;;) {
        key_value({&table, path, depth + 1});
        skip_blanks();
        if (accept("}")) {
            return table;
        }
        expect(',', "or '}' in the inline table");
    }
}

Value TomlReader::bare_value() {
    size_t start = position_;
    while (!at_end() && std::string_view(" \t\r\n,]}#").find(peek()) == std::string_view::npos) {
        ++position_;
    }
    std::string token(text_.substr(start, position_ - start));
    if (token.empty()) {
        fail("expected a value");
    }
    if (token == "true") {
        return true;
    }
    if (token == "false") {
        return false;
    }
    return number(token);
}

Value TomlReader::number(std::string token) {
    const std::string original = token;
    auto bad = [&]() {
        bool date = original.size() >= 8 && (original[4] == '-' || original[2] == ':');
        fail(date ? "dates and times are not supported; write " + quoted(original) + " as a string"
                  : quoted(original) + " is not a value; strings need quotes");
    };
    for (size_t i = 0; i < token.size(); ++i) {
        if (token[i] == '_' &&
            (i == 0 || i + 1 == token.size() || !std::isalnum(static_cast<unsigned char>(token[i - 1])) ||
             !std::isalnum(static_cast<unsigned char>(token[i + 1])))) {
            bad();
        }
    }
    token.erase(std::remove(token.begin(), token.end(), '_'), token.end());

    bool negative = token[0] == '-';
    std::string body = token.substr(negative || token[0] == '+' ? 1 : 0);
    if (body == "inf" || body == "nan") {
        double special = body == "inf" ? std::numeric_limits<double>::infinity() : std::nan("");
        return negative ? -special : special;
    }
    if (body.empty() || body.find_first_not_of("0123456789abcdefABCDEFxo.+-") != std::string::npos) {
        bad();
    }

    int base = 10;
    if (body.size() > 2 && body[0] == '0' && body.size() == token.size()) {
        base = body[1] == 'x' ? 16 : body[1] == 'o' ? 8 : body[1] == 'b' ? 2 : 10;
    }
    size_t used = 0;
    try {
        if (base != 10) {
            body = body.substr(2);
            int64_t parsed = std::stoll(body, &used, base);
            if (used != body.size() || !std::isxdigit(static_cast<unsigned char>(body[0]))) {
                bad();
            }
            return parsed;
        }
        if (!std::isdigit(static_cast<unsigned char>(body[0])) ||
            !std::isdigit(static_cast<unsigned char>(body.back()))) {
            bad();
        }
        if (body.size() > 1 && body[0] == '0' && std::isdigit(static_cast<unsigned char>(body[1]))) {
            fail(quoted(original) + " has a leading zero");
        }
        if (body.find_first_of(".eE") == std::string::npos) {
            int64_t parsed = std::stoll(token, &used);
            if (used != token.size()) {
                bad();
            }
            return parsed;
        }
        size_t dot = body.find('.');
        if (dot != std::string::npos && !std::isdigit(static_cast<unsigned char>(body[dot + 1]))) {
            bad();
        }
        double parsed = 0;  // not std::stod, which goes by the locale
        const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), parsed);
        if (error == std::errc::result_out_of_range) {
            throw std::out_of_range(body);
        }
        if (error != std::errc() || end != body.data() + body.size()) {
            bad();
        }
        return negative ? -parsed : parsed;
    } catch (const std::invalid_argument &) {
        bad();
    } catch (const std::out_of_range &) {
        fail(quoted(original) + " does not fit in 64 bits");
    }
    return nullptr;
}

}  // namespace aclsim::config
