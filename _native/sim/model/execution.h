// SPDX-License-Identifier: Apache-2.0
// One execution of a model, from the checks at the call to the computation on a device thread.
#pragma once

#include <memory>
#include <vector>

#include "core/task.h"
#include "model/dataset.h"
#include "model/registry.h"

namespace aclsim {

// A snapshot of what the call was given: addresses, sizes and tensor descriptions. The datasets and buffer
// objects may be destroyed right after the call, the memory may not.
class Execution : public std::enable_shared_from_this<Execution> {
public:
    // Checks everything that can be known before running. Non-zero: recorded. `system_outputs`: (nullptr, 0)
    // output buffers are allowed and get memory from the simulator.
    static aclError prepare(uint32_t model_id, const aclmdlDataset *input, aclmdlDataset *output,
                            bool system_outputs, std::shared_ptr<Execution> *out);

    // What to submit. The task holds the execution.
    Task task();

    // After the task of a synchronous call: device memory for outputs that had none.
    aclError deliver_system_outputs();

private:
    struct Binding {
        aclDataBuffer *buffer = nullptr;
        void *data = nullptr;
        size_t size = 0;
        Shape shape;  // inputs of dynamic models: from the tensor description
    };

    aclError bind(const char *role, const Tensor &tensor, const aclmdlDataset::Item &item,
                  Binding *out) const;
    aclError check_inputs(const aclmdlDataset &dataset);
    aclError check_outputs(const aclmdlDataset &dataset, bool system_outputs);
    aclError check_memory(const char *role, const Tensor &tensor, const Binding &binding, aclError size_code,
                          size_t needed) const;
    aclError check_dynamic_shape(const Tensor &tensor, const aclTensorDesc *desc, Binding *binding) const;

    bool is_light() const;
    aclError run();
    void compute();
    const GearShapes *gear_in_memory() const;
    void require_memory(const char *role, const Tensor &tensor, const Binding &binding, size_t needed) const;
    void write_back(const std::vector<engine::Output> &outputs);

    std::unique_ptr<Lease> lease_;
    uint32_t model_id_ = 0;
    std::vector<Binding> inputs_, outputs_;
    aclmdlDataset *output_dataset_ = nullptr;
    uint64_t output_serial_ = 0;
    std::vector<std::vector<unsigned char>> owned_;  // results of outputs without memory, by index
};

}  // namespace aclsim
