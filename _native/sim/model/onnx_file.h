// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace aclsim {

enum class OnnxState { Complete, Truncated, NotOnnx };

// Looks at the outermost structure of an ONNX file only. It tells a cut-off file from one of another kind,
// and keeps other kinds away from the engine, whose readers for every format it knows would write to stderr.
OnnxState inspect_onnx(std::string_view content);

// A model compiled for a device starts like this.
bool is_compiled_for_device(std::string_view content);

// Text without control characters, as TOML and JSON are.
bool is_text(std::string_view content);

}  // namespace aclsim
