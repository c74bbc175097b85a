// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_type.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace aclsim {
namespace {

struct TypeInfo {
    aclDataType type;
    size_t size;
    const char *name;
    bool numeric;  // read_element and write_element know it
};

constexpr TypeInfo types[] = {
    {ACL_FLOAT, 4, "float32", true},
    {ACL_FLOAT16, 2, "float16", true},
    {ACL_BF16, 2, "bfloat16", true},
    {ACL_DOUBLE, 8, "float64", true},
    {ACL_INT8, 1, "int8", true},
    {ACL_INT16, 2, "int16", true},
    {ACL_INT32, 4, "int32", true},
    {ACL_INT64, 8, "int64", true},
    {ACL_UINT8, 1, "uint8", true},
    {ACL_UINT16, 2, "uint16", true},
    {ACL_UINT32, 4, "uint32", true},
    {ACL_UINT64, 8, "uint64", true},
    {ACL_BOOL, 1, "bool", true},
    {ACL_COMPLEX32, 4, "complex32", false},
    {ACL_COMPLEX64, 8, "complex64", false},
    {ACL_COMPLEX128, 16, "complex128", false},
    {ACL_HIFLOAT8, 1, "hifloat8", false},
    {ACL_FLOAT8_E5M2, 1, "float8_e5m2", false},
    {ACL_FLOAT8_E4M3FN, 1, "float8_e4m3fn", false},
    {ACL_FLOAT8_E8M0, 1, "float8_e8m0", false},
};

const TypeInfo *find(aclDataType type) {
    auto found =
        std::find_if(std::begin(types), std::end(types), [=](const TypeInfo &t) { return t.type == type; });
    return found == std::end(types) ? nullptr : found;
}

template <class T>
T load(const void *data, size_t index) {
    T value;
    std::memcpy(&value, static_cast<const char *>(data) + index * sizeof(T), sizeof(T));
    return value;
}

template <class T>
void store(void *data, size_t index, T value) {
    std::memcpy(static_cast<char *>(data) + index * sizeof(T), &value, sizeof(T));
}

// Out-of-range conversions to an integer are undefined in C++; here they saturate and NaN becomes 0.
template <class T>
T to_integer(double value) {
    if (std::isnan(value)) {
        return 0;
    }
    if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
        return std::numeric_limits<T>::min();
    }
    if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
        return std::numeric_limits<T>::max();
    }
    return static_cast<T>(value);
}

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

uint16_t float_to_bfloat(float value) {
    uint32_t bits = bits_of(value);
    if (std::isnan(value)) {
        return static_cast<uint16_t>(bits >> 16 | 0x40);
    }
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace

size_t element_size(aclDataType type) {
    const TypeInfo *info = find(type);
    return info ? info->size : 0;
}

const char *type_name(aclDataType type) {
    const TypeInfo *info = find(type);
    return info ? info->name : "unsupported type";
}

std::optional<aclDataType> type_from_name(std::string_view name) {
    for (const TypeInfo &info : types) {
        if (info.numeric && name == info.name) {
            return info.type;
        }
    }
    return std::nullopt;
}

std::string type_names() {
    std::string out;
    for (const TypeInfo &info : types) {
        if (info.numeric) {
            out += (out.empty() ? "" : ", ") + std::string(info.name);
        }
    }
    return out;
}

float half_to_float(uint16_t half) {
    uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1F, mantissa = half & 0x3FF;
    if (exponent == 0x1F) {
        return float_of(sign | 0x7F800000 | mantissa << 13);
    }
    if (exponent != 0) {
        return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    }
    float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
}

uint16_t float_to_half(float value) {
    uint32_t bits = bits_of(value);
    auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) {
        return sign | 0x7E00;
    }
    if (magnitude >= 0x477FF000) {  // rounds to 65536 or more
        return sign | 0x7C00;
    }
    if (magnitude < 0x38800000) {  // below the smallest normal number: a multiple of 2^-24
        return static_cast<uint16_t>(sign | std::lrint(std::ldexp(std::fabs(value), 24)));
    }
    uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

double read_element(aclDataType type, const void *data, size_t index) {
    switch (type) {
        case ACL_FLOAT: return load<float>(data, index);
        case ACL_FLOAT16: return half_to_float(load<uint16_t>(data, index));
        case ACL_BF16: return float_of(static_cast<uint32_t>(load<uint16_t>(data, index)) << 16);
        case ACL_DOUBLE: return load<double>(data, index);
        case ACL_INT8: return load<int8_t>(data, index);
        case ACL_INT16: return load<int16_t>(data, index);
        case ACL_INT32: return load<int32_t>(data, index);
        case ACL_INT64: return static_cast<double>(load<int64_t>(data, index));
        case ACL_UINT8: return load<uint8_t>(data, index);
        case ACL_UINT16: return load<uint16_t>(data, index);
        case ACL_UINT32: return load<uint32_t>(data, index);
        case ACL_UINT64: return static_cast<double>(load<uint64_t>(data, index));
        case ACL_BOOL: return load<uint8_t>(data, index) != 0;
        default: return 0;
    }
}

void write_element(aclDataType type, void *data, size_t index, double value) {
    switch (type) {
        case ACL_FLOAT: store(data, index, static_cast<float>(value)); break;
        case ACL_FLOAT16: store(data, index, float_to_half(static_cast<float>(value))); break;
        case ACL_BF16: store(data, index, float_to_bfloat(static_cast<float>(value))); break;
        case ACL_DOUBLE: store(data, index, value); break;
        case ACL_INT8: store(data, index, to_integer<int8_t>(value)); break;
        case ACL_INT16: store(data, index, to_integer<int16_t>(value)); break;
        case ACL_INT32: store(data, index, to_integer<int32_t>(value)); break;
        case ACL_INT64: store(data, index, to_integer<int64_t>(value)); break;
        case ACL_UINT8: store(data, index, to_integer<uint8_t>(value)); break;
        case ACL_UINT16: store(data, index, to_integer<uint16_t>(value)); break;
        case ACL_UINT32: store(data, index, to_integer<uint32_t>(value)); break;
        case ACL_UINT64: store(data, index, to_integer<uint64_t>(value)); break;
        case ACL_BOOL: store(data, index, static_cast<uint8_t>(value != 0)); break;
        default: break;
    }
}

bool is_static(const Shape &shape) {
    return std::all_of(shape.begin(), shape.end(), [](int64_t dim) { return dim >= 0; });
}

std::string to_text(const Shape &shape) {
    std::string out = "[";
    for (int64_t dim : shape) {
        out += (out.size() > 1 ? "," : "") + std::to_string(dim);
    }
    return out + "]";
}

std::optional<size_t> element_count(const Shape &shape) {
    size_t count = 1;
    for (int64_t dim : shape) {
        if (dim < 0 || __builtin_mul_overflow(count, static_cast<size_t>(dim), &count)) {
            return std::nullopt;
        }
    }
    return count;
}

std::optional<size_t> byte_size(const Shape &shape, aclDataType type) {
    std::optional<size_t> count = element_count(shape);
    size_t bytes = 0;
    constexpr size_t addressable = size_t{1} << 47;
    if (!count || __builtin_mul_overflow(*count, element_size(type), &bytes) || bytes > addressable) {
        return std::nullopt;
    }
    return bytes;
}

bool matches(const Shape &pattern, const Shape &actual) {
    if (pattern.size() != actual.size() || !is_static(actual)) {
        return false;
    }
    for (size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] >= 0 && pattern[i] != actual[i]) {
            return false;
        }
    }
    return true;
}

}  // namespace aclsim
