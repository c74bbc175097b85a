// SPDX-License-Identifier: Apache-2.0
#include "model/onnx_file.h"

#include <cstdint>

namespace aclsim {
namespace {

constexpr uint32_t varint = 0, length_delimited = 2;
constexpr uint32_t graph_field = 7;

// Wire type of a field of ModelProto.
bool is_model_field(uint64_t field, uint32_t wire_type) {
    switch (field) {
        case 1:
        case 5:  // ir_version, model_version
            return wire_type == varint;
        case 2:
        case 3:
        case 4:
        case 6:  // producer, its version, domain, documentation
        case graph_field:
        case 8:  // operator sets
        case 14:
        case 20:
        case 25:
        case 26:  // metadata, training, functions, configuration
            return wire_type == length_delimited;
        default: return false;
    }
}

bool read_varint(std::string_view content, size_t *position, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && *position < content.size(); shift += 7) {
        auto byte = static_cast<unsigned char>(content[(*position)++]);
        *out |= static_cast<uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return true;
        }
    }
    return false;
}

}  // namespace

OnnxState inspect_onnx(std::string_view content) {
    bool graph = false;
    size_t position = 0;
    for (int fields = 0; position < content.size(); ++fields) {
        // What breaks in its first field is something else; later it is a model that lost its end.
        OnnxState broken = fields >= 1 ? OnnxState::Truncated : OnnxState::NotOnnx;
        uint64_t tag = 0, value = 0;
        if (!read_varint(content, &position, &tag)) {
            return broken;
        }
        auto wire_type = static_cast<uint32_t>(tag & 7);
        if (!is_model_field(tag >> 3, wire_type)) {
            return OnnxState::NotOnnx;
        }
        if (!read_varint(content, &position, &value)) {
            return broken;
        }
        if (wire_type == varint) {
            continue;
        }
        if (value > content.size() - position) {
            return broken;
        }
        position += value;
        graph = graph || (tag >> 3 == graph_field && value > 0);
    }
    return graph ? OnnxState::Complete : OnnxState::NotOnnx;
}

bool is_compiled_for_device(std::string_view content) { return content.substr(0, 4) == "IMOD"; }

bool is_text(std::string_view content) {
    for (char c : content.substr(0, 4096)) {
        auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7F) {
            return false;
        }
    }
    return !content.empty();
}

}  // namespace aclsim
