// SPDX-License-Identifier: Apache-2.0
// Configuration files of the simulator: device profiles and model descriptions, written in TOML or JSON.
// Both formats are read into the same value type, so that what a file means does not depend on how it is
// spelled.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace aclsim::config {

// More than any configuration needs; beyond, reading one could take memory and time without end.
constexpr size_t max_bytes = 1 << 20;
constexpr size_t max_keys = 4096;  // of one table
constexpr int max_depth = 64;      // of tables and lists in each other

// Keeps keys in file order, so that messages and inputs come out in the order the author wrote them.
using Value = nlohmann::ordered_json;

// what() is one line, "<source>:<line>: <problem>" for syntax and "<source>: <key>: <problem>" for content.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Reads a file; `.json` is JSON, anything else TOML. Throws Error (unreadable file, syntax error).
Value load_config(const std::string &path);

// The same from text; `source` names it in messages.
Value parse_toml(std::string_view text, const std::string &source);
Value parse_json(std::string_view text, const std::string &source);

// Whole file as bytes. Throws Error naming the path and the reason.
std::string read_file(const std::string &path);

// Typed access to one table. Every getter returns nothing when the key is absent and throws Error, naming
// source and key, when the value has another type. `finish` rejects keys that nobody asked for, which is what
// catches misspelled ones.
class Table {
public:
    Table(const Value &value, std::string source, std::string key = {});

    const std::string &source() const { return source_; }
    std::string path_of(std::string_view key) const;  // "models.rec.latency_us"
    bool has(std::string_view key) const;

    std::optional<std::string> text(std::string_view key) const;
    std::optional<bool> boolean(std::string_view key) const;
    std::optional<int64_t> integer(std::string_view key) const;
    std::optional<double> number(std::string_view key) const;  // integers are numbers too
    std::optional<std::vector<int64_t>> integers(std::string_view key) const;
    std::optional<std::vector<std::vector<int64_t>>> integer_lists(std::string_view key) const;
    std::optional<Table> table(std::string_view key) const;
    std::vector<Table> tables(std::string_view key) const;  // array of tables; empty when absent
    std::vector<std::string> keys() const;                  // marks them all as asked for

    void finish() const;
    [[noreturn]] void reject(std::string_view key, const std::string &problem) const;

private:
    const Value *find(std::string_view key) const;

    const Value *value_;
    std::string source_;
    std::string key_;
    mutable std::vector<std::string> seen_;
};

}  // namespace aclsim::config
