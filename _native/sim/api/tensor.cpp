// SPDX-License-Identifier: Apache-2.0
// Data types, data buffers and tensor descriptions.
#include "core/errors.h"
#include "export.h"
#include "model/dataset.h"
#include "model/model_error.h"

namespace aclsim {

LiveHandles<aclDataBuffer> &data_buffers() {
    static auto *live = new LiveHandles<aclDataBuffer>("data_buffers");
    return *live;
}

LiveHandles<aclTensorDesc> &tensor_descs() {
    static auto *live = new LiveHandles<aclTensorDesc>("tensor_descs");
    return *live;
}

namespace {

aclError not_a_buffer(const aclDataBuffer *buffer) {
    return fail(ACL_ERROR_INVALID_PARAM,
                "data buffer %p was not created by aclCreateDataBuffer or is destroyed",
                static_cast<const void *>(buffer));
}

// Tensor descriptions that a dataset owns are as good as created ones, so only null is told.
bool is_given(const aclTensorDesc *desc) {
    if (!desc) {
        fail(ACL_ERROR_INVALID_PARAM, "the tensor description is NULL");
    }
    return desc != nullptr;
}

}  // namespace
}  // namespace aclsim

using namespace aclsim;

extern "C" {

ACL_EXPORT size_t aclDataTypeSize(aclDataType dataType) {
    ACL_ENTER_OR(aclDataTypeSize, 0);
    return element_size(dataType);
}

ACL_EXPORT float aclFloat16ToFloat(aclFloat16 value) {
    ACL_ENTER_OR(aclFloat16ToFloat, 0);
    return half_to_float(value);
}

ACL_EXPORT aclFloat16 aclFloatToFloat16(float value) {
    ACL_ENTER_OR(aclFloatToFloat16, 0);
    return float_to_half(value);
}

ACL_EXPORT aclDataBuffer *aclCreateDataBuffer(void *data, size_t size) {
    ACL_ENTER_OR(aclCreateDataBuffer, nullptr);
    return data_buffers().add(std::make_unique<aclDataBuffer>(aclDataBuffer{data, size}));
}

ACL_EXPORT aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer) {
    ACL_ENTER(aclDestroyDataBuffer);
    return data_buffers().remove(dataBuffer) ? ACL_SUCCESS : not_a_buffer(dataBuffer);
}

ACL_EXPORT aclError aclUpdateDataBuffer(aclDataBuffer *dataBuffer, void *data, size_t size) {
    ACL_ENTER(aclUpdateDataBuffer);
    bool live = false;
    data_buffers().with(dataBuffer, [&](aclDataBuffer &buffer) {
        live = true;
        buffer = {data, size};
    });
    return live ? ACL_SUCCESS : not_a_buffer(dataBuffer);
}

ACL_EXPORT void *aclGetDataBufferAddr(const aclDataBuffer *dataBuffer) {
    ACL_ENTER_OR(aclGetDataBufferAddr, nullptr);
    if (data_buffers().contains(dataBuffer)) {
        return dataBuffer->data;
    }
    not_a_buffer(dataBuffer);
    return nullptr;
}

ACL_EXPORT size_t aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer) {
    ACL_ENTER_OR(aclGetDataBufferSizeV2, 0);
    if (data_buffers().contains(dataBuffer)) {
        return dataBuffer->size;
    }
    not_a_buffer(dataBuffer);
    return 0;
}

ACL_EXPORT aclTensorDesc *aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims,
                                              aclFormat format) {
    ACL_ENTER_OR(aclCreateTensorDesc, nullptr);
    if (numDims < 0 || numDims > 128 || (numDims > 0 && !dims)) {
        fail(ACL_ERROR_INVALID_PARAM, "a tensor description of %d dimensions at %p cannot be made", numDims,
             static_cast<const void *>(dims));
        return nullptr;
    }
    Shape shape(dims, dims + numDims);
    return tensor_descs().add(
        std::make_unique<aclTensorDesc>(aclTensorDesc{dataType, format, std::move(shape)}));
}

ACL_EXPORT void aclDestroyTensorDesc(const aclTensorDesc *desc) {
    ACL_ENTER_OR(aclDestroyTensorDesc, );
    if (!tensor_descs().remove(desc)) {
        fail(
            ACL_ERROR_INVALID_PARAM,
            "tensor description %p was not created by aclCreateTensorDesc, is destroyed, or belongs to a dataset",
            static_cast<const void *>(desc));
    }
}

ACL_EXPORT aclDataType aclGetTensorDescType(const aclTensorDesc *desc) {
    ACL_ENTER_OR(aclGetTensorDescType, ACL_DT_UNDEFINED);
    return is_given(desc) ? desc->type : ACL_DT_UNDEFINED;
}

ACL_EXPORT aclFormat aclGetTensorDescFormat(const aclTensorDesc *desc) {
    ACL_ENTER_OR(aclGetTensorDescFormat, ACL_FORMAT_UNDEFINED);
    return is_given(desc) ? desc->format : ACL_FORMAT_UNDEFINED;
}

ACL_EXPORT size_t aclGetTensorDescSize(const aclTensorDesc *desc) {
    ACL_ENTER_OR(aclGetTensorDescSize, 0);
    return is_given(desc) ? byte_size(desc->shape, desc->type).value_or(0) : 0;
}

ACL_EXPORT size_t aclGetTensorDescElementCount(const aclTensorDesc *desc) {
    ACL_ENTER_OR(aclGetTensorDescElementCount, 0);
    return is_given(desc) ? element_count(desc->shape).value_or(0) : 0;
}

ACL_EXPORT size_t aclGetTensorDescNumDims(const aclTensorDesc *desc) {
    ACL_ENTER_OR(aclGetTensorDescNumDims, 0);
    return is_given(desc) ? desc->shape.size() : 0;
}

ACL_EXPORT aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize) {
    ACL_ENTER(aclGetTensorDescDimV2);
    if (!is_given(desc) || !dimSize) {
        return fail(ACL_ERROR_INVALID_PARAM, "tensor description %p or dimSize %p is NULL",
                    static_cast<const void *>(desc), static_cast<const void *>(dimSize));
    }
    if (index >= desc->shape.size()) {
        return fail(ACL_ERROR_INVALID_PARAM, "dimension %zu of a tensor description that has %zu", index,
                    desc->shape.size());
    }
    *dimSize = desc->shape[index];
    return ACL_SUCCESS;
}

}  // extern "C"
