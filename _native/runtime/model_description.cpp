// SPDX-License-Identifier: Apache-2.0
#include "model_description.h"

#include <cstring>

namespace aioascend {
namespace {

constexpr size_t kAllInputs = SIZE_MAX;

TensorDescription tensor_of(const char *name, const aclmdlIODims &dims) {
    TensorDescription tensor;
    tensor.name = name != nullptr ? name : "";
    tensor.shape.assign(dims.dims, dims.dims + dims.dimCount);
    return tensor;
}

aclError read_inputs(const LoadedModel &model, std::vector<TensorDescription> &out, std::string &where) {
    const AclApi &api = model.api;
    const size_t count = api.aclmdlGetNumInputs(model.desc);
    for (size_t i = 0; i < count; ++i) {
        aclmdlIODims dims;
        if (const aclError code = api.aclmdlGetInputDims(model.desc, i, &dims)) {
            where = "aclmdlGetInputDims";
            return code;
        }
        TensorDescription tensor = tensor_of(api.aclmdlGetInputNameByIndex(model.desc, i), dims);
        tensor.dtype = api.aclmdlGetInputDataType(model.desc, i);
        tensor.format = api.aclmdlGetInputFormat(model.desc, i);
        tensor.bytes = api.aclmdlGetInputSizeByIndex(model.desc, i);
        out.push_back(std::move(tensor));
    }
    return 0;
}

aclError read_outputs(const LoadedModel &model, std::vector<TensorDescription> &out, std::string &where) {
    const AclApi &api = model.api;
    const size_t count = api.aclmdlGetNumOutputs(model.desc);
    for (size_t i = 0; i < count; ++i) {
        aclmdlIODims dims;
        if (const aclError code = api.aclmdlGetOutputDims(model.desc, i, &dims)) {
            where = "aclmdlGetOutputDims";
            return code;
        }
        TensorDescription tensor = tensor_of(api.aclmdlGetOutputNameByIndex(model.desc, i), dims);
        tensor.dtype = api.aclmdlGetOutputDataType(model.desc, i);
        tensor.bytes = api.aclmdlGetOutputSizeByIndex(model.desc, i);
        out.push_back(std::move(tensor));
    }
    return 0;
}

// The kinds exclude each other; a model without gears answers none of the three.
void read_gears(const LoadedModel &model, const Capabilities &can, ModelDescription &out) {
    const AclApi &api = model.api;
    aclmdlBatch batches;
    std::memset(&batches, 0, sizeof batches);
    if (api.aclmdlGetDynamicBatch(model.desc, &batches) == 0 && batches.batchCount != 0) {
        out.gear_kind = DynamicKind::Batch;
        for (size_t i = 0; i < batches.batchCount; ++i) {
            out.gears.push_back({batches.batch[i]});
        }
        return;
    }
    aclmdlHW sizes;
    std::memset(&sizes, 0, sizeof sizes);
    if (api.aclmdlGetDynamicHW(model.desc, kAllInputs, &sizes) == 0 && sizes.hwCount != 0) {
        out.gear_kind = DynamicKind::Size;
        for (size_t i = 0; i < sizes.hwCount; ++i) {
            out.gears.push_back({sizes.hw[i][0], sizes.hw[i][1]});
        }
        return;
    }
    size_t count = 0;
    if (!can.dynamic_dims || api.aclmdlGetInputDynamicGearCount(model.desc, kAllInputs, &count) != 0 || count == 0) {
        return;
    }
    std::vector<aclmdlIODims> dims(count);
    if (api.aclmdlGetInputDynamicDims(model.desc, kAllInputs, dims.data(), count) != 0) {
        return;
    }
    out.gear_kind = DynamicKind::Dims;
    for (const aclmdlIODims &gear : dims) {
        out.gears.emplace_back(gear.dims, gear.dims + gear.dimCount);
    }
}

}  // namespace

aclError describe_model(const LoadedModel &model, const Capabilities &can, ModelDescription &out, std::string &where) {
    aclError code = read_inputs(model, out.inputs, where);
    if (code == 0) {
        code = read_outputs(model, out.outputs, where);
    }
    if (code == 0) {
        read_gears(model, can, out);
    }
    return code;
}

}  // namespace aioascend
