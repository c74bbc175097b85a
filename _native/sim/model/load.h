// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/loader.h"

namespace aclsim {

// Device memory that the caller provides for a model; null: the simulator takes its own.
struct UserMemory {
    void *data = nullptr;
    size_t size = 0;
};

// Loads into the current context. Throws ModelError; returns codes that are recorded already.
aclError load_model(const ModelSource &source, UserMemory workspace, UserMemory weights, uint32_t *model_id);

}  // namespace aclsim
