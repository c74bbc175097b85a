// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/handles.h"
#include "model/program.h"

struct aclmdlDesc {
    std::shared_ptr<const aclsim::Signature> signature;  // null until filled
    uint32_t model_id = 0;                               // 0: described without being loaded
};

namespace aclsim {

LiveHandles<aclmdlDesc> &model_descs();

// The signature behind a description; null, with the error recorded, when it is destroyed or still empty.
const Signature *signature_of(const aclmdlDesc *desc);

// Writes name and dimensions.
void write_dims(const std::string &name, const Shape &shape, aclmdlIODims *out);

}  // namespace aclsim
