// SPDX-License-Identifier: Apache-2.0
// Loaded models by id.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/task.h"
#include "model/program.h"

namespace aclsim {

// One loaded model id.
class LoadedModel {
public:
    LoadedModel(std::shared_ptr<Program> program, uint64_t context, int32_t device);
    ~LoadedModel();
    LoadedModel(const LoadedModel &) = delete;
    LoadedModel &operator=(const LoadedModel &) = delete;

    const Signature &signature() const { return *program_->signature(); }
    const std::shared_ptr<const Signature> &shared_signature() const { return program_->signature(); }
    uint64_t context() const { return context_; }
    int32_t device() const { return device_; }

    // Takes device memory for weights and workspace as far as the caller brought none; 207001: there is none.
    aclError take_memory(bool weights, bool workspace);
    // Not left to the destructor: the last holder may be a task that is destroyed under a device's lock.
    void release_memory();

    engine::Request &request() { return *executable_.request; }

    uint32_t in_flight() const { return in_flight_; }

    // The gear that aclmdlGetCurOutputDims and the nominal time refer to: the one set last.
    const GearShapes *current_gear() const { return gear_.load(); }
    void set_current_gear(const GearShapes *gear) { gear_.store(gear); }

private:
    friend class Lease;

    std::shared_ptr<Program> program_;
    Program::Executable executable_;
    uint64_t context_;
    int32_t device_;
    std::vector<void *> memory_;
    std::atomic<const GearShapes *> gear_{nullptr};
    std::atomic<uint32_t> in_flight_{0};  // executions submitted and not yet through
    std::atomic<bool> executing_{false};
};

// An execution's hold on its model, from submission until its task is through or discarded. Lives in the
// task, so that "at the same time" means at the same simulated time.
class Lease {
public:
    explicit Lease(std::shared_ptr<LoadedModel> model);
    ~Lease();
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    LoadedModel &model() const { return *model_; }
    // False when another execution of the model is under way.
    bool begin();

private:
    std::shared_ptr<LoadedModel> model_;
    bool executing_ = false;
};

uint32_t register_model(std::shared_ptr<LoadedModel> model);
// Any thread, any context; null when the id is not loaded.
std::shared_ptr<LoadedModel> find_model(uint32_t id);
// For use in the current context. Recorded when non-zero: 107002, 145003 (dead id), 107004 (other context).
aclError use_model(uint32_t id, std::shared_ptr<LoadedModel> *out);
// The same with a lease, taken so that no unload can come between.
aclError lease_model(uint32_t id, std::unique_ptr<Lease> *out);
// 545009 while executions are in flight.
aclError unload_model(uint32_t id);
// A context that goes takes its models along.
void unload_models_of(uint64_t context);

}  // namespace aclsim
