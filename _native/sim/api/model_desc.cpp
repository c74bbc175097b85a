// SPDX-License-Identifier: Apache-2.0
// Model descriptions: what goes in and comes out.
#include <algorithm>
#include <cstring>

#include "core/errors.h"
#include "export.h"
#include "model/loader.h"
#include "model/model_desc.h"
#include "model/model_error.h"
#include "model/registry.h"

namespace aclsim {

LiveHandles<aclmdlDesc> &model_descs() {
    static auto *live = new LiveHandles<aclmdlDesc>("model_descs");
    return *live;
}

const Signature *signature_of(const aclmdlDesc *desc) {
    if (!model_descs().contains(desc)) {
        fail(ACL_ERROR_INVALID_PARAM,
             "model description %p was not created by aclmdlCreateDesc or is destroyed",
             static_cast<const void *>(desc));
        return nullptr;
    }
    if (!desc->signature) {
        fail(ACL_ERROR_INVALID_PARAM, "the model description is empty; fill it with aclmdlGetDesc first");
    }
    return desc->signature.get();
}

void write_dims(const std::string &name, const Shape &shape, aclmdlIODims *out) {
    std::memset(out, 0, sizeof(*out));
    std::strncpy(out->name, name.c_str(), sizeof(out->name) - 1);
    out->dimCount = shape.size();
    std::copy(shape.begin(), shape.end(), out->dims);
}

namespace {

enum class Side { Input, Output };

const char *name_of(Side side) { return side == Side::Input ? "input" : "output"; }

// Null, with the error recorded, when the description or the index is wrong.
const Tensor *find_tensor(const aclmdlDesc *desc, Side side, size_t index) {
    const Signature *signature = signature_of(desc);
    if (!signature) {
        return nullptr;
    }
    const std::vector<Tensor> &tensors = side == Side::Input ? signature->inputs : signature->outputs;
    if (index < tensors.size()) {
        return &tensors[index];
    }
    fail(ACL_ERROR_INVALID_PARAM, "%s index %zu of model %s, which has %zu %ss", name_of(side), index,
         signature->name.c_str(), tensors.size(), name_of(side));
    return nullptr;
}

aclError write_tensor_dims(const Tensor *tensor, const Shape Tensor::*shape, aclmdlIODims *dims) {
    if (!tensor) {
        return ACL_ERROR_INVALID_PARAM;
    }
    if (!dims) {
        return fail(ACL_ERROR_INVALID_PARAM, "dims is NULL");
    }
    write_dims(tensor->name, tensor->*shape, dims);
    return ACL_SUCCESS;
}

aclError find_index(const aclmdlDesc *desc, Side side, const char *name, size_t *index) {
    if (!name || !index) {
        return fail(ACL_ERROR_INVALID_PARAM, "name or index is NULL");
    }
    const Signature *signature = signature_of(desc);
    if (!signature) {
        return ACL_ERROR_INVALID_PARAM;
    }
    const std::vector<Tensor> &tensors = side == Side::Input ? signature->inputs : signature->outputs;
    std::string known;
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i].name == name) {
            *index = i;
            return ACL_SUCCESS;
        }
        known += (known.empty() ? "" : ", ") + tensors[i].name;
    }
    return fail(ACL_ERROR_INVALID_PARAM, "model %s has no %s '%s'; it has: %s", signature->name.c_str(),
                name_of(side), name, known.c_str());
}

aclError fill(aclmdlDesc *desc, std::shared_ptr<const Signature> signature, uint32_t model_id) {
    desc->signature = std::move(signature);
    desc->model_id = model_id;
    return ACL_SUCCESS;
}

aclError not_a_desc(const aclmdlDesc *desc) {
    return fail(ACL_ERROR_INVALID_PARAM,
                "model description %p was not created by aclmdlCreateDesc or is destroyed",
                static_cast<const void *>(desc));
}

}  // namespace
}  // namespace aclsim

using namespace aclsim;

extern "C" {

ACL_EXPORT aclmdlDesc *aclmdlCreateDesc() {
    ACL_ENTER_OR(aclmdlCreateDesc, nullptr);
    return model_descs().add(std::make_unique<aclmdlDesc>());
}

ACL_EXPORT aclError aclmdlDestroyDesc(aclmdlDesc *modelDesc) {
    ACL_ENTER(aclmdlDestroyDesc);
    return model_descs().remove(modelDesc) ? ACL_SUCCESS : not_a_desc(modelDesc);
}

ACL_EXPORT aclError aclmdlGetDesc(aclmdlDesc *modelDesc, uint32_t modelId) {
    ACL_ENTER(aclmdlGetDesc);
    if (!model_descs().contains(modelDesc)) {
        return not_a_desc(modelDesc);
    }
    std::shared_ptr<LoadedModel> model = find_model(modelId);
    if (!model) {
        return fail(ACL_ERROR_GE_EXEC_MODEL_ID_INVALID,
                    "model id %u is not loaded; use the id that a load returned", modelId);
    }
    return fill(modelDesc, model->shared_signature(), modelId);
}

ACL_EXPORT aclError aclmdlGetDescFromFile(aclmdlDesc *modelDesc, const char *modelPath) {
    ACL_ENTER(aclmdlGetDescFromFile);
    if (!model_descs().contains(modelDesc)) {
        return not_a_desc(modelDesc);
    }
    if (!modelPath) {
        return fail(ACL_ERROR_INVALID_PARAM, "modelPath is NULL");
    }
    return guarded(
        [&] { return fill(modelDesc, obtain_program(source_from_file(modelPath))->signature(), 0); });
}

ACL_EXPORT aclError aclmdlGetDescFromMem(aclmdlDesc *modelDesc, const void *model, size_t modelSize) {
    ACL_ENTER(aclmdlGetDescFromMem);
    if (!model_descs().contains(modelDesc)) {
        return not_a_desc(modelDesc);
    }
    if (!model || modelSize == 0) {
        return fail(ACL_ERROR_INVALID_PARAM, "model is NULL or modelSize is 0");
    }
    return guarded([&] {
        ModelSource source = source_from_memory({static_cast<const char *>(model), modelSize});
        return fill(modelDesc, obtain_program(source)->signature(), 0);
    });
}

ACL_EXPORT size_t aclmdlGetNumInputs(aclmdlDesc *modelDesc) {
    ACL_ENTER_OR(aclmdlGetNumInputs, 0);
    const Signature *signature = signature_of(modelDesc);
    return signature ? signature->inputs.size() : 0;
}

ACL_EXPORT size_t aclmdlGetNumOutputs(aclmdlDesc *modelDesc) {
    ACL_ENTER_OR(aclmdlGetNumOutputs, 0);
    const Signature *signature = signature_of(modelDesc);
    return signature ? signature->outputs.size() : 0;
}

ACL_EXPORT size_t aclmdlGetInputSizeByIndex(aclmdlDesc *modelDesc, size_t index) {
    ACL_ENTER_OR(aclmdlGetInputSizeByIndex, 0);
    const Tensor *tensor = find_tensor(modelDesc, Side::Input, index);
    return tensor ? tensor->bytes : 0;
}

ACL_EXPORT size_t aclmdlGetOutputSizeByIndex(aclmdlDesc *modelDesc, size_t index) {
    ACL_ENTER_OR(aclmdlGetOutputSizeByIndex, 0);
    const Tensor *tensor = find_tensor(modelDesc, Side::Output, index);
    return tensor ? tensor->bytes : 0;
}

ACL_EXPORT aclError aclmdlGetInputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims) {
    ACL_ENTER(aclmdlGetInputDims);
    return write_tensor_dims(find_tensor(modelDesc, Side::Input, index), &Tensor::shape, dims);
}

// Differs from the first version only for models with built-in image preprocessing, which none has here.
ACL_EXPORT aclError aclmdlGetInputDimsV2(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims) {
    ACL_ENTER(aclmdlGetInputDimsV2);
    return write_tensor_dims(find_tensor(modelDesc, Side::Input, index), &Tensor::shape, dims);
}

ACL_EXPORT aclError aclmdlGetInputDimsRange(const aclmdlDesc *modelDesc, size_t index,
                                            aclmdlIODimsRange *dimsRange) {
    ACL_ENTER(aclmdlGetInputDimsRange);
    const Tensor *tensor = find_tensor(modelDesc, Side::Input, index);
    if (!tensor) {
        return ACL_ERROR_INVALID_PARAM;
    }
    if (!dimsRange) {
        return fail(ACL_ERROR_INVALID_PARAM, "dimsRange is NULL");
    }
    const Signature &signature = *modelDesc->signature;
    std::memset(dimsRange, 0, sizeof(*dimsRange));
    dimsRange->rangeCount = tensor->shape.size();
    for (size_t d = 0; d < tensor->shape.size(); ++d) {
        int64_t fixed = tensor->shape[d], low = fixed < 0 ? 1 : fixed, high = fixed;
        for (const GearShapes &gear : signature.gears) {
            if (fixed >= 0 || index >= gear.inputs.size()) {
                continue;
            }
            int64_t value = gear.inputs[index][d];
            low = high < 0 ? value : std::min(low, value);
            high = std::max(high, value);
        }
        dimsRange->range[d][0] = low;
        dimsRange->range[d][1] = high;  // -1: no upper limit
    }
    return ACL_SUCCESS;
}

ACL_EXPORT aclError aclmdlGetOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims) {
    ACL_ENTER(aclmdlGetOutputDims);
    return write_tensor_dims(find_tensor(modelDesc, Side::Output, index), &Tensor::largest, dims);
}

ACL_EXPORT aclError aclmdlGetCurOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims) {
    ACL_ENTER(aclmdlGetCurOutputDims);
    const Tensor *tensor = find_tensor(modelDesc, Side::Output, index);
    std::shared_ptr<LoadedModel> model = tensor ? find_model(modelDesc->model_id) : nullptr;
    const GearShapes *gear = model ? model->current_gear() : nullptr;
    if (!gear || !dims) {
        return write_tensor_dims(tensor, &Tensor::largest, dims);
    }
    write_dims(tensor->name, gear->outputs[index], dims);
    return ACL_SUCCESS;
}

ACL_EXPORT const char *aclmdlGetInputNameByIndex(const aclmdlDesc *modelDesc, size_t index) {
    ACL_ENTER_OR(aclmdlGetInputNameByIndex, "");
    const Tensor *tensor = find_tensor(modelDesc, Side::Input, index);
    return tensor ? tensor->name.c_str() : "";
}

ACL_EXPORT const char *aclmdlGetOutputNameByIndex(const aclmdlDesc *modelDesc, size_t index) {
    ACL_ENTER_OR(aclmdlGetOutputNameByIndex, "");
    const Tensor *tensor = find_tensor(modelDesc, Side::Output, index);
    return tensor ? tensor->name.c_str() : "";
}

ACL_EXPORT aclError aclmdlGetInputIndexByName(const aclmdlDesc *modelDesc, const char *name, size_t *index) {
    ACL_ENTER(aclmdlGetInputIndexByName);
    return find_index(modelDesc, Side::Input, name, index);
}

ACL_EXPORT aclError aclmdlGetOutputIndexByName(const aclmdlDesc *modelDesc, const char *name, size_t *index) {
    ACL_ENTER(aclmdlGetOutputIndexByName);
    return find_index(modelDesc, Side::Output, name, index);
}

ACL_EXPORT aclFormat aclmdlGetInputFormat(const aclmdlDesc *modelDesc, size_t index) {
    ACL_ENTER_OR(aclmdlGetInputFormat, ACL_FORMAT_UNDEFINED);
    const Tensor *tensor = find_tensor(modelDesc, Side::Input, index);
    return tensor ? tensor->format : ACL_FORMAT_UNDEFINED;
}

ACL_EXPORT aclFormat aclmdlGetOutputFormat(const aclmdlDesc *modelDesc, size_t index) {
    ACL_ENTER_OR(aclmdlGetOutputFormat, ACL_FORMAT_UNDEFINED);
    const Tensor *tensor = find_tensor(modelDesc, Side::Output, index);
    return tensor ? tensor->format : ACL_FORMAT_UNDEFINED;
}

ACL_EXPORT aclDataType aclmdlGetInputDataType(const aclmdlDesc *modelDesc, size_t index) {
    ACL_ENTER_OR(aclmdlGetInputDataType, ACL_DT_UNDEFINED);
    const Tensor *tensor = find_tensor(modelDesc, Side::Input, index);
    return tensor ? tensor->type : ACL_DT_UNDEFINED;
}

ACL_EXPORT aclDataType aclmdlGetOutputDataType(const aclmdlDesc *modelDesc, size_t index) {
    ACL_ENTER_OR(aclmdlGetOutputDataType, ACL_DT_UNDEFINED);
    const Tensor *tensor = find_tensor(modelDesc, Side::Output, index);
    return tensor ? tensor->type : ACL_DT_UNDEFINED;
}

}  // extern "C"
