// SPDX-License-Identifier: Apache-2.0
// The objects behind aclDataBuffer, aclTensorDesc and aclmdlDataset.
#pragma once

#include <memory>
#include <vector>

#include "model/handles.h"
#include "model/tensor_type.h"

struct aclDataBuffer {
    void *data;
    size_t size;
};

struct aclTensorDesc {
    aclDataType type;
    aclFormat format;
    aclsim::Shape shape;
};

struct aclmdlDataset {
    struct Item {
        aclDataBuffer *buffer;
        std::unique_ptr<aclTensorDesc> desc;  // null until set, or until an execution wrote it
    };
    std::vector<Item> items;
    uint64_t serial;  // tells a dataset from a later one at the same address
};

namespace aclsim {

LiveHandles<aclDataBuffer> &data_buffers();
LiveHandles<aclTensorDesc> &tensor_descs();
LiveHandles<aclmdlDataset> &datasets();

}  // namespace aclsim
