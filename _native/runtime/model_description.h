// SPDX-License-Identifier: Apache-2.0
// What a loaded model says of itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "execution.h"

namespace aioascend {

struct TensorDescription {
    std::string name;
    std::vector<int64_t> shape;  // -1 where the model leaves an extent open
    aclDataType dtype = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_ND;
    size_t bytes = 0;  // of the largest gear; 0 when the library cannot tell
};

struct ModelDescription {
    std::vector<TensorDescription> inputs, outputs;
    DynamicKind gear_kind = DynamicKind::Static;
    std::vector<std::vector<uint64_t>> gears;
};

// Reads it from model.desc. Upon an error `where` names the call.
aclError describe_model(const LoadedModel &model, const Capabilities &can, ModelDescription &out, std::string &where);

}  // namespace aioascend
