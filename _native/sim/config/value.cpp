// SPDX-License-Identifier: Apache-2.0
#include "value.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sys/stat.h>

#include "toml.h"
#include "toml_text.h"

namespace aclsim::config {
namespace {

// Text in a file may be any bytes; a message about it must not fail on them.
std::string shown(const Value &value) { return value.dump(-1, ' ', false, Value::error_handler_t::replace); }

void require_size(std::string_view text, const std::string &source) {
    if (text.size() > max_bytes) {
        throw Error(source + ": has " + std::to_string(text.size()) + " bytes; a configuration has at most " +
                    std::to_string(max_bytes));
    }
}

// What the parser is told meanwhile: as strict as TOML is about keys.
class JsonRules {
public:
    explicit JsonRules(const std::string &source) : source_(source) {}

    bool operator()(int depth, Value::parse_event_t event, const Value &parsed) {
        if (depth > max_depth) {
            throw Error(source_ + ": tables and values are nested deeper than " + std::to_string(max_depth));
        }
        if (event == Value::parse_event_t::object_start) {
            keys_.emplace_back();
        } else if (event == Value::parse_event_t::object_end) {
            keys_.pop_back();
        } else if (event == Value::parse_event_t::key) {
            if (!keys_.back().insert(parsed.get<std::string>()).second) {
                throw Error(source_ + ": key " + quoted(parsed.get<std::string>()) + " is defined twice");
            }
            if (keys_.back().size() > max_keys) {
                throw Error(source_ + ": a table has more than " + std::to_string(max_keys) + " keys");
            }
        }
        return true;
    }

private:
    const std::string &source_;
    std::vector<std::set<std::string>> keys_;  // of the tables that are open
};

bool fits(const Value &number) {
    return number.is_number_integer() && !(number.is_number_unsigned() && number.get<uint64_t>() > INT64_MAX);
}

}  // namespace

std::string read_file(const std::string &path) {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) {
        throw Error(path + ": " + std::strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        throw Error(path + ": is a directory, not a file");
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw Error(path + ": " + std::strerror(errno));
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Value parse_toml(std::string_view text, const std::string &source) {
    require_size(text, source);
    return TomlReader(text, source).read();
}

Value parse_json(std::string_view text, const std::string &source) {
    require_size(text, source);
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
        throw Error(source + ":1: the file is empty");
    }
    try {
        JsonRules rules(source);
        return Value::parse(text.begin(), text.end(), std::ref(rules));
    } catch (const Value::parse_error &error) {
        size_t offset = std::min<size_t>(error.byte, text.size());
        auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
        std::string detail = error.what();
        size_t start = detail.find("syntax error");
        throw Error(source + ":" + std::to_string(line) + ": " +
                    (start == std::string::npos ? detail : detail.substr(start)));
    } catch (const Value::exception &error) {
        throw Error(source + ": " + error.what());
    }
}

Value load_config(const std::string &path) {
    std::string text = read_file(path);
    size_t dot = path.rfind('.');
    bool json = dot != std::string::npos && path.substr(dot) == ".json";
    return json ? parse_json(text, path) : parse_toml(text, path);
}

Table::Table(const Value &value, std::string source, std::string key)
    : value_(&value), source_(std::move(source)), key_(std::move(key)) {
    if (!value.is_object()) {
        throw Error(source_ + ": " + (key_.empty() ? "the file" : key_) + ": expected a table, found " +
                    value.type_name());
    }
}

std::string Table::path_of(std::string_view key) const {
    return key_.empty() ? std::string(key) : key_ + "." + std::string(key);
}

void Table::reject(std::string_view key, const std::string &problem) const {
    throw Error(source_ + ": " + path_of(key) + ": " + problem);
}

const Value *Table::find(std::string_view key) const {
    seen_.emplace_back(key);
    auto found = value_->find(std::string(key));
    return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool Table::has(std::string_view key) const { return find(key) != nullptr; }

std::optional<std::string> Table::text(std::string_view key) const {
    const Value *value = find(key);
    if (!value) {
        return std::nullopt;
    }
    if (!value->is_string()) {
        reject(key, "expected a string, found " + shown(*value));
    }
    if (value->get_ref<const std::string &>().find('\0') != std::string::npos) {
        reject(key, "holds a NUL character: " + shown(*value));
    }
    return value->get<std::string>();
}

std::optional<bool> Table::boolean(std::string_view key) const {
    const Value *value = find(key);
    if (!value) {
        return std::nullopt;
    }
    if (!value->is_boolean()) {
        reject(key, "expected true or false, found " + shown(*value));
    }
    return value->get<bool>();
}

std::optional<int64_t> Table::integer(std::string_view key) const {
    const Value *value = find(key);
    if (!value) {
        return std::nullopt;
    }
    if (!fits(*value)) {
        reject(key, "expected an integer, found " + shown(*value));
    }
    return value->get<int64_t>();
}

std::optional<double> Table::number(std::string_view key) const {
    const Value *value = find(key);
    if (!value) {
        return std::nullopt;
    }
    if (!value->is_number()) {
        reject(key, "expected a number, found " + shown(*value));
    }
    return value->get<double>();
}

std::optional<std::vector<int64_t>> Table::integers(std::string_view key) const {
    const Value *value = find(key);
    if (!value) {
        return std::nullopt;
    }
    if (!value->is_array() || !std::all_of(value->begin(), value->end(), fits)) {
        reject(key, "expected a list of integers, found " + shown(*value));
    }
    return value->get<std::vector<int64_t>>();
}

std::optional<std::vector<std::vector<int64_t>>> Table::integer_lists(std::string_view key) const {
    const Value *value = find(key);
    if (!value) {
        return std::nullopt;
    }
    const auto is_list = [](const Value &list) {
        return list.is_array() && std::all_of(list.begin(), list.end(), fits);
    };
    if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_list)) {
        reject(key, "expected a list of lists of integers, found " + shown(*value));
    }
    return value->get<std::vector<std::vector<int64_t>>>();
}

std::optional<Table> Table::table(std::string_view key) const {
    const Value *value = find(key);
    if (!value) {
        return std::nullopt;
    }
    return Table(*value, source_, path_of(key));
}

std::vector<Table> Table::tables(std::string_view key) const {
    std::vector<Table> out;
    const Value *value = find(key);
    if (!value) {
        return out;
    }
    if (!value->is_array()) {
        reject(key, "expected an array of tables, found " + shown(*value));
    }
    for (const Value &item : *value) {
        out.emplace_back(item, source_, path_of(key) + "[" + std::to_string(out.size()) + "]");
    }
    return out;
}

std::vector<std::string> Table::keys() const {
    std::vector<std::string> out;
    for (const auto &item : value_->items()) {
        out.push_back(item.key());
    }
    seen_.insert(seen_.end(), out.begin(), out.end());
    return out;
}

void Table::finish() const {
    for (const auto &item : value_->items()) {
        if (std::find(seen_.begin(), seen_.end(), item.key()) != seen_.end()) {
            continue;
        }
        std::string known;
        for (const std::string &key : seen_) {
            if (known.find("'" + key + "'") == std::string::npos) {
                known += (known.empty() ? "'" : ", '") + key + "'";
            }
        }
        reject(item.key(), "unknown key; known here: " + known);
    }
}

}  // namespace aclsim::config
