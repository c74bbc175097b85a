// SPDX-License-Identifier: Apache-2.0
// Element types, shapes and the arithmetic on them that models need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "acl/acl.h"

namespace aclsim {

using Shape = std::vector<int64_t>;  // -1: the dimension is not fixed

// Bytes of one element; 0 for types without a whole number of bytes (int4, string, undefined).
size_t element_size(aclDataType type);
const char *type_name(aclDataType type);  // numpy's names: "float32", "int64", ...
std::optional<aclDataType> type_from_name(std::string_view name);
std::string type_names();  // all of them, for messages

float half_to_float(uint16_t half);
uint16_t float_to_half(float value);  // to nearest, ties to even; too large becomes infinity

// One element of a tensor as a number, for the types that type_from_name knows.
double read_element(aclDataType type, const void *data, size_t index);
void write_element(aclDataType type, void *data, size_t index, double value);

bool is_static(const Shape &shape);
std::string to_text(const Shape &shape);  // "[1,3,-1,-1]"
// Elements or bytes of a static shape; nothing when a dimension is open or no memory is that large.
std::optional<size_t> element_count(const Shape &shape);
std::optional<size_t> byte_size(const Shape &shape, aclDataType type);
// `actual` is static, of the same rank, and equals `pattern` wherever that is fixed.
bool matches(const Shape &pattern, const Shape &actual);

}  // namespace aclsim
