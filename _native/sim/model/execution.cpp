// SPDX-License-Identifier: Apache-2.0
#include "model/execution.h"

#include <cstring>

#include "core/process.h"
#include "model/model_error.h"

namespace aclsim {
namespace {

std::string count_problem(const char *role, size_t expected, size_t given) {
    return std::string("the model has ") + std::to_string(expected) + " " + role + "s, the dataset holds " +
           std::to_string(given) + " buffers; add one per " + role + " in the order of the model description";
}

}  // namespace

aclError Execution::prepare(uint32_t model_id, const aclmdlDataset *input, aclmdlDataset *output,
                            bool system_outputs, std::shared_ptr<Execution> *out) {
    for (const aclmdlDataset *dataset : {input, static_cast<const aclmdlDataset *>(output)}) {
        if (!datasets().contains(dataset)) {
            return fail(ACL_ERROR_INVALID_PARAM, "%s dataset %p was not created or is destroyed",
                        dataset == input ? "input" : "output", static_cast<const void *>(dataset));
        }
    }
    guard_exit_of_this_thread();
    auto execution = std::make_shared<Execution>();
    execution->model_id_ = model_id;
    if (aclError code = lease_model(model_id, &execution->lease_)) {
        return code;
    }
    if (aclError code = execution->check_inputs(*input)) {
        return code;
    }
    if (aclError code = execution->check_outputs(*output, system_outputs)) {
        return code;
    }
    execution->output_dataset_ = output;
    execution->output_serial_ = output->serial;
    *out = std::move(execution);
    return 0;
}

aclError Execution::bind(const char *role, const Tensor &tensor, const aclmdlDataset::Item &item,
                         Binding *out) const {
    bool live = false;
    data_buffers().with(item.buffer, [&](const aclDataBuffer &buffer) {
        live = true;
        *out = {item.buffer, buffer.data, buffer.size, {}};
    });
    if (live) {
        return 0;
    }
    return fail(ACL_ERROR_INVALID_PARAM,
                "model %s: the data buffer of %s %s is destroyed; destroy it after the dataset",
                lease_->model().signature().name.c_str(), role, tensor.name.c_str());
}

aclError Execution::check_inputs(const aclmdlDataset &dataset) {
    const LoadedModel &model = lease_->model();
    const Signature &signature = model.signature();
    if (dataset.items.size() != signature.inputs.size()) {
        return fail(ACL_ERROR_MODEL_INPUT_NOT_MATCH, "model %s: %s", signature.name.c_str(),
                    count_problem("input", signature.inputs.size(), dataset.items.size()).c_str());
    }
    const GearShapes *gear = model.current_gear();
    for (size_t i = 0; i < dataset.items.size(); ++i) {
        const aclmdlDataset::Item &item = dataset.items[i];
        const Tensor &tensor = signature.inputs[i];
        Binding binding;
        if (aclError code = bind("input", tensor, item, &binding)) {
            return code;
        }
        size_t needed = tensor.bytes;
        if (gear && i < gear->inputs.size()) {
            needed = byte_size(gear->inputs[i], tensor.type).value_or(0);
        }
        if (!gear && !is_static(tensor.shape)) {
            if (aclError code = check_dynamic_shape(tensor, item.desc.get(), &binding)) {
                return code;
            }
            needed = byte_size(binding.shape, tensor.type).value_or(SIZE_MAX);
        }
        if (aclError code = check_memory("input", tensor, binding, ACL_ERROR_MODEL_INPUT_NOT_MATCH, needed)) {
            return code;
        }
        inputs_.push_back(std::move(binding));
    }
    return 0;
}

aclError Execution::check_outputs(const aclmdlDataset &dataset, bool system_outputs) {
    const Signature &signature = lease_->model().signature();
    if (dataset.items.size() != signature.outputs.size()) {
        return fail(ACL_ERROR_MODEL_OUTPUT_NOT_MATCH, "model %s: %s", signature.name.c_str(),
                    count_problem("output", signature.outputs.size(), dataset.items.size()).c_str());
    }
    const GearShapes *gear = lease_->model().current_gear();
    for (size_t i = 0; i < dataset.items.size(); ++i) {
        const Tensor &tensor = signature.outputs[i];
        Binding binding;
        if (aclError code = bind("output", tensor, dataset.items[i], &binding)) {
            return code;
        }
        if (!binding.data && binding.size == 0 && !system_outputs) {
            return fail(
                ACL_ERROR_MODEL_OUTPUT_NOT_MATCH,
                "model %s: output %s has no buffer; only aclmdlExecute and aclmdlExecuteV2 allocate outputs",
                signature.name.c_str(), tensor.name.c_str());
        }
        // Without a gear, a size of 0 means that only the execution will tell.
        size_t needed = gear ? byte_size(gear->outputs[i], tensor.type).value_or(0) : tensor.bytes;
        if (binding.data || binding.size != 0) {
            if (aclError code =
                    check_memory("output", tensor, binding, ACL_ERROR_MODEL_OUTPUT_NOT_MATCH, needed)) {
                return code;
            }
        }
        outputs_.push_back(std::move(binding));
    }
    return 0;
}

aclError Execution::check_memory(const char *role, const Tensor &tensor, const Binding &binding,
                                 aclError size_code, size_t needed) const {
    const LoadedModel &model = lease_->model();
    const char *name = model.signature().name.c_str();
    if (binding.size < needed) {
        return fail(size_code, "model %s: the buffer of %s %s has %zu bytes, but %zu are needed", name, role,
                    tensor.name.c_str(), binding.size, needed);
    }
    int32_t device = -1;
    if (!is_device_address(binding.data, binding.size, &device)) {
        return fail(
            ACL_ERROR_GE_EXEC_MODEL_ADDR_INVALID,
            "model %s: the buffer of %s %s (%p, %zu bytes) is not device memory; allocate it with aclrtMalloc",
            name, role, tensor.name.c_str(), binding.data, binding.size);
    }
    if (device != model.device()) {
        return fail(ACL_ERROR_GE_EXEC_MODEL_ADDR_INVALID,
                    "model %s: the buffer of %s %s lies on device %d, the model on device %d", name, role,
                    tensor.name.c_str(), device, model.device());
    }
    return 0;
}

aclError Execution::check_dynamic_shape(const Tensor &tensor, const aclTensorDesc *desc,
                                        Binding *binding) const {
    const char *name = lease_->model().signature().name.c_str();
    if (!desc) {
        return fail(
            ACL_ERROR_GE_SHAPE_INVALID,
            "model %s: input %s has the open shape %s; give the actual one by aclmdlSetDatasetTensorDesc",
            name, tensor.name.c_str(), to_text(tensor.shape).c_str());
    }
    if (desc->type != tensor.type) {
        return fail(ACL_ERROR_GE_DATATYPE_INVALID, "model %s: input %s is %s, its tensor description says %s",
                    name, tensor.name.c_str(), type_name(tensor.type), type_name(desc->type));
    }
    if (!matches(tensor.shape, desc->shape)) {
        return fail(ACL_ERROR_GE_SHAPE_INVALID,
                    "model %s: input %s has shape %s, its tensor description says %s", name,
                    tensor.name.c_str(), to_text(tensor.shape).c_str(), to_text(desc->shape).c_str());
    }
    binding->shape = desc->shape;
    return 0;
}

Task Execution::task() {
    const LoadedModel &model = lease_->model();
    const Signature &signature = model.signature();
    Shape first;  // of the first input, if there is any
    if (const GearShapes *gear = model.current_gear()) {
        first = gear->inputs[0];
    } else if (!inputs_.empty()) {
        first = inputs_[0].shape.empty() ? signature.inputs[0].shape : inputs_[0].shape;
    }
    double items = first.empty() ? 1 : static_cast<double>(first[0]);
    constexpr double longest_us = 1e12;  // eleven days: more would leave no room on the clock

    Task out;
    out.kind = "execute";
    out.unit = Unit::AiCore;
    out.name = signature.name;
    out.duration_ns =
        static_cast<uint64_t>(
            std::min(signature.latency_us + items * signature.latency_us_per_item, longest_us) * 1000);
    out.work = [self = shared_from_this()] { return self->run(); };
    out.light = is_light();
    return out;
}

bool Execution::is_light() const {
    constexpr size_t limit = 8 << 10;
    if (lease_->model().signature().computes) {
        return false;
    }
    size_t bytes = 0;
    for (const std::vector<Binding> *side : {&inputs_, &outputs_}) {
        for (const Binding &binding : *side) {
            bytes += binding.data ? binding.size : limit + 1;
        }
    }
    return bytes <= limit;
}

aclError Execution::run() {
    return guarded([this]() -> aclError {
        if (!lease_->begin()) {
            return fail(ACL_ERROR_RT_MODEL_EXECUTE,
                        "model id %u (%s) is already executing on another stream; load it once per stream",
                        model_id_, lease_->model().signature().name.c_str());
        }
        compute();
        return ACL_SUCCESS;
    });
}

void Execution::compute() {
    LoadedModel &model = lease_->model();
    const Signature &signature = model.signature();
    const GearShapes *gear = signature.has_gears() ? gear_in_memory() : nullptr;

    std::vector<engine::Input> inputs;
    for (size_t i = 0; i < signature.engine_inputs(); ++i) {
        const Binding &binding = inputs_[i];
        const Tensor &tensor = signature.inputs[i];
        Shape shape = gear ? gear->inputs[i] : binding.shape.empty() ? tensor.shape : binding.shape;
        require_memory("input", tensor, binding, byte_size(shape, tensor.type).value_or(SIZE_MAX));
        inputs.push_back({binding.data, std::move(shape)});
    }
    std::vector<engine::Output> outputs;
    for (size_t i = 0; i < outputs_.size(); ++i) {
        const Binding &binding = outputs_[i];
        if (binding.data) {
            require_memory("output", signature.outputs[i], binding, 0);
        }
        engine::Output output;
        output.data = binding.data;
        output.capacity = binding.size;
        if (gear) {
            output.shape = gear->outputs[i];
        }
        outputs.push_back(std::move(output));
    }
    model.request().run(inputs, outputs);
    write_back(outputs);
    for (engine::Output &output : outputs) {
        owned_.push_back(std::move(output.owned));
    }
}

// The device reads the gear when it gets there, not when it was set: what the buffer holds now counts.
const GearShapes *Execution::gear_in_memory() const {
    const Signature &signature = lease_->model().signature();
    const Binding &binding = inputs_.back();
    std::vector<int64_t> values(signature.gear_length());
    require_memory("input", signature.inputs.back(), binding, values.size() * sizeof(int64_t));
    std::memcpy(values.data(), binding.data, values.size() * sizeof(int64_t));
    if (const GearShapes *gear = signature.find_gear(values)) {
        return gear;
    }
    throw ModelError(ACL_ERROR_RT_MODEL_EXECUTE,
                     "model " + signature.name + ": the buffer of input " + gear_input_name + " holds " +
                         to_text(values) +
                         ", which is no gear of the model; set one for every execution, with "
                         "aclmdlSetDynamicBatchSize, aclmdlSetDynamicHWSize or aclmdlSetInputDynamicDims");
}

// Between the call and now the memory may have been freed, and the gear may have become a larger one.
void Execution::require_memory(const char *role, const Tensor &tensor, const Binding &binding,
                               size_t needed) const {
    const std::string what =
        "model " + lease_->model().signature().name + ": the buffer of " + role + " " + tensor.name;
    if (!is_device_address(binding.data, binding.size, nullptr)) {
        throw ModelError(
            ACL_ERROR_RT_AICORE_EXCEPTION,
            what + " was freed while the execution was queued; keep it until the stream has passed it");
    }
    if (binding.size < needed) {
        throw ModelError(ACL_ERROR_RT_MODEL_EXECUTE, what + " has " + std::to_string(binding.size) +
                                                         " bytes, but " + std::to_string(needed) +
                                                         " are needed");
    }
}

// The actual shapes of the outputs, for aclmdlGetDatasetTensorDesc, unless the dataset is gone.
void Execution::write_back(const std::vector<engine::Output> &outputs) {
    const Signature &signature = lease_->model().signature();
    datasets().with(output_dataset_, [&](aclmdlDataset &dataset) {
        if (dataset.serial != output_serial_ || dataset.items.size() != outputs.size()) {
            return;
        }
        for (size_t i = 0; i < outputs.size(); ++i) {
            std::unique_ptr<aclTensorDesc> &desc = dataset.items[i].desc;
            if (!desc) {
                desc = std::make_unique<aclTensorDesc>();
            }
            *desc = {signature.outputs[i].type, signature.outputs[i].format, outputs[i].shape};
        }
    });
}

aclError Execution::deliver_system_outputs() {
    if (owned_.size() != outputs_.size()) {
        return fail(ACL_ERROR_RT_MODEL_EXECUTE,
                    "model %s did not run; its error went to another synchronize of the stream",
                    lease_->model().signature().name.c_str());
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
        if (outputs_[i].data || owned_[i].empty()) {
            continue;
        }
        void *memory = nullptr;
        if (aclError code = allocate_device(lease_->model().device(), owned_[i].size(), &memory)) {
            return code;
        }
        std::memcpy(memory, owned_[i].data(), owned_[i].size());
        data_buffers().with(outputs_[i].buffer, [&](aclDataBuffer &buffer) {
            buffer.data = memory;
            buffer.size = owned_[i].size();
        });
    }
    return 0;
}

}  // namespace aclsim
