// SPDX-License-Identifier: Apache-2.0
// Gears: models built for a list of batch sizes, image sizes or shapes. A gear is set per execution and
// travels in the buffer of an extra input.
#include <cstring>

#include "core/errors.h"
#include "core/task.h"
#include "export.h"
#include "model/dataset.h"
#include "model/model_desc.h"
#include "model/model_error.h"
#include "model/registry.h"

namespace aclsim {
namespace {

constexpr size_t all_inputs = static_cast<size_t>(-1);

const char *setter_of(GearKind kind) {
    switch (kind) {
        case GearKind::Batch: return "aclmdlSetDynamicBatchSize";
        case GearKind::Hw: return "aclmdlSetDynamicHWSize";
        case GearKind::Dims: return "aclmdlSetInputDynamicDims";
        default: return "none";
    }
}

std::string gear_list(const Signature &signature) {
    std::string out;
    for (const GearShapes &gear : signature.gears) {
        out += (out.empty() ? "" : ", ") + to_text(gear.values);
    }
    return out;
}

aclError check_kind(const Signature &signature, GearKind kind) {
    if (signature.gear_kind == kind) {
        return ACL_SUCCESS;
    }
    if (signature.has_gears()) {
        return fail(ACL_ERROR_MODEL_NOT_DYNAMIC, "model %s has gears of another kind; set them with %s",
                    signature.name.c_str(), setter_of(signature.gear_kind));
    }
    return fail(ACL_ERROR_MODEL_NOT_DYNAMIC, "model %s has no gears to set with %s%s", signature.name.c_str(),
                setter_of(kind),
                signature.is_dynamic() ? "; its shapes are set with aclmdlSetDatasetTensorDesc" : "");
}

// Puts the gear into the buffer of the extra input, as device memory that the execution will read.
aclError write_gear(const Signature &signature, const aclmdlDataset *dataset, size_t index,
                    const GearShapes &gear) {
    if (!datasets().contains(dataset)) {
        return fail(ACL_ERROR_INVALID_PARAM, "dataset %p was not created or is destroyed",
                    static_cast<const void *>(dataset));
    }
    if (index != signature.engine_inputs() || index >= dataset->items.size()) {
        return fail(ACL_ERROR_GE_DYNAMIC_INPUT_ADDR_INVALID,
                    "index %zu is not that of input %s (%zu, with %zu buffers in the dataset); ask "
                    "aclmdlGetInputIndexByName",
                    index, gear_input_name, signature.engine_inputs(), dataset->items.size());
    }
    aclDataBuffer buffer{};
    data_buffers().with(dataset->items[index].buffer, [&](const aclDataBuffer &live) { buffer = live; });
    const size_t bytes = gear.values.size() * sizeof(int64_t);
    if (!is_device_address(buffer.data, buffer.size, nullptr)) {
        return fail(ACL_ERROR_GE_DYNAMIC_INPUT_ADDR_INVALID,
                    "the buffer of input %s (%p) is not device memory; allocate it with aclrtMalloc",
                    gear_input_name, buffer.data);
    }
    if (buffer.size < bytes) {
        return fail(ACL_ERROR_GE_DYNAMIC_INPUT_LENGTH_INVALID,
                    "the buffer of input %s has %zu bytes, but %zu are needed", gear_input_name, buffer.size,
                    bytes);
    }
    std::memcpy(buffer.data, gear.values.data(), bytes);
    return ACL_SUCCESS;
}

aclError set_gear(uint32_t model_id, const aclmdlDataset *dataset, size_t index, GearKind kind,
                  const std::vector<int64_t> &values) {
    std::shared_ptr<LoadedModel> model;
    if (aclError code = use_model(model_id, &model)) {
        return code;
    }
    const Signature &signature = model->signature();
    if (aclError code = check_kind(signature, kind)) {
        return code;
    }
    const GearShapes *gear = signature.find_gear(values);
    if (!gear) {
        return fail(ACL_ERROR_GE_DYNAMIC_BATCH_SIZE_INVALID, "%s is no gear of model %s; its gears: %s",
                    to_text(values).c_str(), signature.name.c_str(), gear_list(signature).c_str());
    }
    if (aclError code = write_gear(signature, dataset, index, *gear)) {
        return code;
    }
    model->set_current_gear(gear);
    return ACL_SUCCESS;
}

// The dimensions of all inputs one after the other, as aclmdlSetInputDynamicDims takes them.
Shape joined(const std::vector<Shape> &shapes) {
    Shape out;
    for (const Shape &shape : shapes) {
        out.insert(out.end(), shape.begin(), shape.end());
    }
    return out;
}

const GearShapes *find_gear_by_dims(const Signature &signature, const Shape &dims) {
    for (const GearShapes &gear : signature.gears) {
        if (joined(gear.inputs) == dims) {
            return &gear;
        }
    }
    return nullptr;
}

aclError require_all_inputs(size_t index) {
    if (index == all_inputs) {
        return ACL_SUCCESS;
    }
    return fail(ACL_ERROR_INVALID_PARAM,
                "index %zu; gears of dimensions belong to all inputs, give (size_t)-1", index);
}

}  // namespace
}  // namespace aclsim

using namespace aclsim;

extern "C" {

ACL_EXPORT aclError aclmdlGetDynamicBatch(const aclmdlDesc *modelDesc, aclmdlBatch *batch) {
    ACL_ENTER(aclmdlGetDynamicBatch);
    const Signature *signature = signature_of(modelDesc);
    if (!signature) {
        return ACL_ERROR_INVALID_PARAM;
    }
    if (!batch) {
        return fail(ACL_ERROR_INVALID_PARAM, "batch is NULL");
    }
    std::memset(batch, 0, sizeof(*batch));
    if (signature->gear_kind == GearKind::Batch) {
        for (const GearShapes &gear : signature->gears) {
            batch->batch[batch->batchCount++] = static_cast<uint64_t>(gear.values[0]);
        }
    }
    return ACL_SUCCESS;
}

// The index is reserved: only one input can have such gears.
ACL_EXPORT aclError aclmdlGetDynamicHW(const aclmdlDesc *modelDesc, size_t index, aclmdlHW *hw) {
    ACL_ENTER(aclmdlGetDynamicHW);
    (void)index;
    const Signature *signature = signature_of(modelDesc);
    if (!signature) {
        return ACL_ERROR_INVALID_PARAM;
    }
    if (!hw) {
        return fail(ACL_ERROR_INVALID_PARAM, "hw is NULL");
    }
    std::memset(hw, 0, sizeof(*hw));
    if (signature->gear_kind != GearKind::Hw) {
        return ACL_SUCCESS;
    }
    for (const GearShapes &gear : signature->gears) {
        hw->hw[hw->hwCount][0] = static_cast<uint64_t>(gear.values[0]);
        hw->hw[hw->hwCount++][1] = static_cast<uint64_t>(gear.values[1]);
    }
    return ACL_SUCCESS;
}

ACL_EXPORT aclError aclmdlGetInputDynamicGearCount(const aclmdlDesc *modelDesc, size_t index,
                                                   size_t *gearCount) {
    ACL_ENTER(aclmdlGetInputDynamicGearCount);
    const Signature *signature = signature_of(modelDesc);
    if (!signature) {
        return ACL_ERROR_INVALID_PARAM;
    }
    if (!gearCount) {
        return fail(ACL_ERROR_INVALID_PARAM, "gearCount is NULL");
    }
    if (aclError code = require_all_inputs(index)) {
        return code;
    }
    *gearCount = signature->gear_kind == GearKind::Dims ? signature->gears.size() : 0;
    return ACL_SUCCESS;
}

ACL_EXPORT aclError aclmdlGetInputDynamicDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims,
                                              size_t gearCount) {
    ACL_ENTER(aclmdlGetInputDynamicDims);
    const Signature *signature = signature_of(modelDesc);
    if (!signature) {
        return ACL_ERROR_INVALID_PARAM;
    }
    if (!dims) {
        return fail(ACL_ERROR_INVALID_PARAM, "dims is NULL");
    }
    if (aclError code = require_all_inputs(index)) {
        return code;
    }
    size_t gears = signature->gear_kind == GearKind::Dims ? signature->gears.size() : 0;
    if (gearCount < gears) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "room for %zu gears, but model %s has %zu; ask aclmdlGetInputDynamicGearCount", gearCount,
                    signature->name.c_str(), gears);
    }
    for (size_t i = 0; i < gears; ++i) {
        write_dims("", joined(signature->gears[i].inputs), &dims[i]);
    }
    return ACL_SUCCESS;
}

ACL_EXPORT aclError aclmdlSetDynamicBatchSize(uint32_t modelId, aclmdlDataset *dataset, size_t index,
                                              uint64_t batchSize) {
    ACL_ENTER(aclmdlSetDynamicBatchSize);
    return set_gear(modelId, dataset, index, GearKind::Batch, {static_cast<int64_t>(batchSize)});
}

ACL_EXPORT aclError aclmdlSetDynamicHWSize(uint32_t modelId, aclmdlDataset *dataset, size_t index,
                                           uint64_t height, uint64_t width) {
    ACL_ENTER(aclmdlSetDynamicHWSize);
    return set_gear(modelId, dataset, index, GearKind::Hw,
                    {static_cast<int64_t>(height), static_cast<int64_t>(width)});
}

ACL_EXPORT aclError aclmdlSetInputDynamicDims(uint32_t modelId, aclmdlDataset *dataset, size_t index,
                                              const aclmdlIODims *dims) {
    ACL_ENTER(aclmdlSetInputDynamicDims);
    if (!dims || dims->dimCount > sizeof(dims->dims) / sizeof(dims->dims[0])) {
        return fail(ACL_ERROR_INVALID_PARAM, "dims is NULL or lists more than 128 dimensions");
    }
    std::shared_ptr<LoadedModel> model;
    if (aclError code = use_model(modelId, &model)) {
        return code;
    }
    const Signature &signature = model->signature();
    if (aclError code = check_kind(signature, GearKind::Dims)) {
        return code;
    }
    Shape given(dims->dims, dims->dims + dims->dimCount);
    const GearShapes *gear = find_gear_by_dims(signature, given);
    if (!gear) {
        std::string known;
        for (const GearShapes &each : signature.gears) {
            known += (known.empty() ? "" : ", ") + to_text(joined(each.inputs));
        }
        return fail(ACL_ERROR_GE_DYNAMIC_BATCH_SIZE_INVALID,
                    "%s are no gear of model %s; give the dimensions of all inputs one after the other: %s",
                    to_text(given).c_str(), signature.name.c_str(), known.c_str());
    }
    return set_gear(modelId, dataset, index, GearKind::Dims, gear->values);
}

}  // extern "C"
