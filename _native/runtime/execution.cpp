// SPDX-License-Identifier: Apache-2.0
#include "execution.h"

#include <cstring>

#include "process.h"

namespace aioascend {
namespace {

int worst_state(const std::vector<Execution::Tensor> &tensors, int state) {
    for (const auto &tensor : tensors) {
        const int s = tensor.place.state();
        if (s == Memory::Failed || (s == Memory::Pending && state == Memory::Ready)) {
            state = s;
        }
    }
    return state;
}

}  // namespace

LoadedModel::~LoadedModel() {
    if (forked()) {
        return;
    }
    for (Execution *execution : idle) {
        delete execution;
    }
    if (desc != nullptr) {
        api.aclmdlDestroyDesc(desc);
    }
}

Execution *Execution::take(LoadedModel &model, size_t inputs, size_t outputs) {
    {
        std::lock_guard<std::mutex> lock(model.idle_mutex);
        if (!model.idle.empty()) {
            Execution *execution = model.idle.back();
            model.idle.pop_back();
            return execution;
        }
    }
    auto *execution = new Execution(model);
    if (!execution->build(inputs, outputs)) {
        delete execution;
        return nullptr;
    }
    return execution;
}

bool Execution::build(size_t inputs_count, size_t outputs_count) {
    const AclApi &api = model_.api;
    inputs.resize(inputs_count);
    outputs.resize(outputs_count);
    input_set_ = api.aclmdlCreateDataset();
    output_set_ = api.aclmdlCreateDataset();
    if (input_set_ == nullptr || output_set_ == nullptr) {
        return false;
    }
    auto fill = [&](aclmdlDataset *set, size_t count, std::vector<aclDataBuffer *> &buffers) {
        for (size_t i = 0; i < count; ++i) {
            aclDataBuffer *buffer = api.aclCreateDataBuffer(nullptr, 0);
            if (buffer == nullptr) {
                return false;
            }
            buffers.push_back(buffer);
            if (api.aclmdlAddDatasetBuffer(set, buffer) != 0) {
                return false;
            }
        }
        return true;
    };
    return fill(input_set_, inputs_count, input_buffers_) && fill(output_set_, outputs_count, output_buffers_);
}

Execution::~Execution() {
    const AclApi &api = model_.api;
    for (aclTensorDesc *desc : descs_) {
        api.aclDestroyTensorDesc(desc);
    }
    if (input_set_ != nullptr) {
        api.aclmdlDestroyDataset(input_set_);
    }
    if (output_set_ != nullptr) {
        api.aclmdlDestroyDataset(output_set_);
    }
    for (auto *buffers : {&input_buffers_, &output_buffers_}) {
        for (aclDataBuffer *buffer : *buffers) {
            api.aclDestroyDataBuffer(buffer);
        }
    }
}

void Execution::give_back() {
    if (forked()) {
        return;
    }
    std::lock_guard<std::mutex> lock(model_.idle_mutex);
    model_.idle.push_back(this);
}

bool Execution::on_hold() const {
    return held != 0 && held == model_.hold.load(std::memory_order_acquire);
}

int Execution::state() const {
    if (on_hold()) {
        return Memory::Pending;
    }
    return worst_state(outputs, worst_state(inputs, Memory::Ready));
}

aclError Execution::memory_code() const {
    for (const auto *tensors : {&inputs, &outputs}) {
        for (const auto &tensor : *tensors) {
            if (tensor.place.memory && tensor.place.memory->code != 0) {
                return tensor.place.memory->code;
            }
        }
    }
    return 0;
}

aclError Execution::bind() {
    const AclApi &api = model_.api;
    auto update = [&](std::vector<Tensor> &tensors, std::vector<aclDataBuffer *> &buffers) {
        for (size_t i = 0; i < tensors.size(); ++i) {
            // A tensor of size 0 is left to the library to allocate.
            void *address = tensors[i].size ? tensors[i].place.address() : nullptr;
            if (const aclError code = api.aclUpdateDataBuffer(buffers[i], address, tensors[i].size)) {
                return code;
            }
        }
        return 0;
    };
    const aclError code = update(inputs, input_buffers_);
    return code != 0 ? code : update(outputs, output_buffers_);
}

aclError Execution::apply_dynamic() {
    const AclApi &api = model_.api;
    switch (dynamic) {
        case DynamicKind::Static:
            return 0;
        case DynamicKind::Batch:
            return api.aclmdlSetDynamicBatchSize(model_.id, input_set_, dynamic_index, dynamic_values[0]);
        case DynamicKind::Size:
            return api.aclmdlSetDynamicHWSize(model_.id, input_set_, dynamic_index, dynamic_values[0],
                                              dynamic_values[1]);
        case DynamicKind::Dims: {
            aclmdlIODims dims;
            std::memset(&dims, 0, sizeof dims);
            dims.dimCount = dynamic_values.size();
            for (size_t i = 0; i < dynamic_values.size(); ++i) {
                dims.dims[i] = static_cast<int64_t>(dynamic_values[i]);
            }
            return api.aclmdlSetInputDynamicDims(model_.id, input_set_, dynamic_index, &dims);
        }
        case DynamicKind::Shape:
            break;
    }
    for (aclTensorDesc *desc : descs_) {
        api.aclDestroyTensorDesc(desc);
    }
    descs_.clear();
    for (size_t i = 0; i < inputs.size(); ++i) {
        const Tensor &input = inputs[i];
        aclTensorDesc *desc = api.aclCreateTensorDesc(input.dtype, static_cast<int>(input.shape.size()),
                                                      input.shape.data(), input.format);
        if (desc == nullptr) {
            return ACL_ERROR_BAD_ALLOC;
        }
        descs_.push_back(desc);
        if (const aclError code = api.aclmdlSetDatasetTensorDesc(input_set_, desc, i)) {
            return code;
        }
    }
    return 0;
}

aclError Execution::issue(aclrtStream stream) {
    // The setting is state of the model id until the run is launched.
    std::lock_guard<std::mutex> lock(model_.execute_mutex);
    if (model_.unloaded) {
        return ACL_ERROR_INVALID_MODEL_ID;
    }
    aclError code = bind();
    if (code == 0) {
        code = apply_dynamic();
    }
    if (code == 0) {
        code = read_gear_shapes();
    }
    if (code != 0) {
        return code;
    }
    const AclApi &api = model_.api;
    return stream != nullptr ? api.aclmdlExecuteAsync(model_.id, input_set_, output_set_, stream)
                             : api.aclmdlExecute(model_.id, input_set_, output_set_);
}

// The gear is state of the model id, so what it makes of the outputs has to be read while it is in force.
aclError Execution::read_gear_shapes() {
    gear_shapes_.clear();
    if (dynamic == DynamicKind::Static || dynamic == DynamicKind::Shape) {
        return 0;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
        aclmdlIODims dims;
        if (const aclError code = model_.api.aclmdlGetCurOutputDims(model_.desc, i, &dims)) {
            return code;
        }
        gear_shapes_.emplace_back(dims.dims, dims.dims + dims.dimCount);
    }
    return 0;
}

bool Execution::output_shape(size_t index, std::vector<int64_t> &shape) const {
    if (!gear_shapes_.empty()) {
        shape = gear_shapes_[index];
        return true;
    }
    const AclApi &api = model_.api;
    aclTensorDesc *desc = api.aclmdlGetDatasetTensorDesc(output_set_, index);
    if (desc == nullptr) {
        return false;
    }
    const size_t count = api.aclGetTensorDescNumDims(desc);
    shape.resize(count);
    for (size_t i = 0; i < count; ++i) {
        if (api.aclGetTensorDescDimV2(desc, i, &shape[i]) != 0) {
            return false;
        }
    }
    return true;
}

void *Execution::system_output(size_t index, size_t &size) const {
    const AclApi &api = model_.api;
    size = api.aclGetDataBufferSizeV2(output_buffers_[index]);
    return api.aclGetDataBufferAddr(output_buffers_[index]);
}

}  // namespace aioascend
