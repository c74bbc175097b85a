// SPDX-License-Identifier: Apache-2.0
#include "value.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "toml.h"
#include "toml_text.h"

namespace aclsim::config {
namespace {

// Of protobuf, in which ONNX models are written.
constexpr uint64_t kLargestFile = uint64_t(1) << 31;

struct Descriptor {
    explicit Descriptor(int opened) : number(opened) {}
    ~Descriptor() {
        if (number >= 0) {
            ::close(number);
        }
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    const int number;
};

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
    // Not blocking: a pipe that nobody writes into would be waited for in open itself.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info{};
    if (file.number < 0 || ::fstat(file.number, &info) != 0) {
        throw Error(path + ": " + std::strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        throw Error(path + (S_ISDIR(info.st_mode) ? ": is a directory, not a file" : ": is not a regular file"));
    }
    if (static_cast<uint64_t>(info.st_size) > kLargestFile) {
        throw Error(path + ": has " + std::to_string(info.st_size) +
                    " bytes; no model or profile is larger than 2 GiB in one file");
    }
    std::string content(std::max<size_t>(info.st_size + 1, 4096), '\0');  // one more to see the end; /proc says 0
    size_t size = 0;
    while (true) {
        const ssize_t count = ::read(file.number, &content[size], content.size() - size);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            throw Error(path + ": " + std::strerror(errno));
        }
        if (count == 0) {
            break;
        }
        size += static_cast<size_t>(count);
        if (size == content.size()) {
            if (size > kLargestFile) {
                throw Error(path + ": does not end; no model or profile is larger than 2 GiB in one file");
            }
            content.resize(size + std::max<size_t>(size / 2, 4096));
        }
    }
    content.resize(size);
    return content;
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
