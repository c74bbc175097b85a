// SPDX-License-Identifier: Apache-2.0
// One run of a model: its datasets, where inputs and outputs lie, and the dynamic setting that goes with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "command.h"

namespace aioascend {

// A loaded model id. Setting a dynamic size and executing must be one step per model id, hence the lock.
struct LoadedModel {
    LoadedModel(const AclApi &a, uint32_t model_id) : api(a), id(model_id) {}
    ~LoadedModel();  // nothing may be in flight

    const AclApi &api;
    const uint32_t id;
    aclmdlDesc *desc = nullptr;
    std::mutex execute_mutex;        // held for the whole of a run that waits
    // Not 0: such a run is coming. Runs submitted since then carry this number and wait in their host-side queue.
    std::atomic<uint64_t> hold{0};
    uint64_t holds = 0;              // so far; one at a time
    bool unloaded = false;           // guarded by execute_mutex: ids are used again
    std::mutex idle_mutex;
    std::vector<Execution *> idle;   // their datasets are reused
};

enum class DynamicKind : uint8_t { Static, Batch, Size, Dims, Shape };

class Execution {
public:
    static Execution *take(LoadedModel &model, size_t inputs, size_t outputs);  // nullptr: out of memory
    void give_back();

    struct Tensor {
        Place place;
        size_t size = 0;
        std::vector<int64_t> shape;  // DynamicKind::Shape: the actual input shape
        aclDataType dtype = ACL_DT_UNDEFINED;
        aclFormat format = ACL_FORMAT_ND;
    };
    std::vector<Tensor> inputs, outputs;
    uint64_t held = 0;  // model.hold when it was submitted
    DynamicKind dynamic = DynamicKind::Static;
    size_t dynamic_index = 0;
    std::vector<uint64_t> dynamic_values;

    bool on_hold() const;  // until a run that waits is over
    int state() const;
    aclError memory_code() const;
    aclError issue(aclrtStream stream);  // stream == nullptr: run now and wait (aclmdlExecute)
    bool output_shape(size_t index, std::vector<int64_t> &shape) const;  // after the run, dynamic shapes only
    // What aclmdlExecute allocated for an output of unknown size: the caller frees it with aclrtFree.
    void *system_output(size_t index, size_t &size) const;

    ~Execution();

private:
    explicit Execution(LoadedModel &model) : model_(model) {}
    bool build(size_t inputs, size_t outputs);
    aclError bind();
    aclError apply_dynamic();
    aclError read_gear_shapes();

    LoadedModel &model_;
    aclmdlDataset *input_set_ = nullptr;
    aclmdlDataset *output_set_ = nullptr;
    std::vector<aclDataBuffer *> input_buffers_, output_buffers_;
    std::vector<aclTensorDesc *> descs_;
    std::vector<std::vector<int64_t>> gear_shapes_;  // of the outputs, for the gear that was set
};

}  // namespace aioascend
