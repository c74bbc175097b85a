// SPDX-License-Identifier: Apache-2.0
// From a path or from bytes to a program, with the rules of which file stands for which model.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "model/program.h"

namespace aclsim {

// `*.onnx`; a description (`*.toml`, `*.json`); `name.om`, which stands for `name.toml`, `name.json` or
// `name.onnx` beside it; any other name by its content. Throws ModelError: 145002 no such file, 145006 empty
// or cut off, 100003 not a model, 100014 a model that the engine cannot read, 500002 no engine.
ModelSource source_from_file(const std::string &path);

// The bytes of an ONNX model or the text of a description.
ModelSource source_from_memory(std::string_view content);

// The program of the source; loads of equal sources share one as long as any of them lives.
std::shared_ptr<Program> obtain_program(const ModelSource &source);

}  // namespace aclsim
