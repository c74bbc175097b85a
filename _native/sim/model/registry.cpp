// SPDX-License-Identifier: Apache-2.0
#include "model/registry.h"

#include <unordered_map>

#include "model/model_error.h"

namespace aclsim {
namespace {

// Never destroyed: device threads may still execute models while the process exits.
struct Registry {
    std::mutex mutex;
    std::unordered_map<uint32_t, std::shared_ptr<LoadedModel>> models;
    uint32_t last_id = 0;
};

Registry &registry() {
    static Registry *instance = new Registry;
    return *instance;
}

// With the registry's lock held.
aclError find_usable(Registry &all, uint32_t id, uint64_t context, std::shared_ptr<LoadedModel> *out) {
    auto found = all.models.find(id);
    if (found == all.models.end()) {
        return fail(ACL_ERROR_GE_EXEC_MODEL_ID_INVALID,
                    "model id %u is not loaded; use the id that a load returned", id);
    }
    if (found->second->context() != context) {
        return fail(
            ACL_ERROR_RT_MODEL_CONTEXT,
            "model id %u (%s) was loaded in another context; load, execute and unload it in the same one", id,
            found->second->signature().name.c_str());
    }
    *out = found->second;
    return 0;
}

aclError current_context_id(uint64_t *out) {
    Context *context = nullptr;
    if (aclError code = current_context(&context)) {
        return code;
    }
    *out = context_id(*context);
    return 0;
}

}  // namespace

LoadedModel::LoadedModel(std::shared_ptr<Program> program, uint64_t context, int32_t device)
    : program_(std::move(program)),
      executable_(program_->make_executable()),
      context_(context),
      device_(device) {
    if (signature().has_gears()) {
        gear_ = &signature().gears[signature().largest_gear];
    }
    count_live("models", 1);
}

LoadedModel::~LoadedModel() { count_live("models", -1); }

void LoadedModel::release_memory() {
    for (void *block : memory_) {
        if (is_device_address(block, 1, nullptr)) {  // a reset of the device may have taken it already
            release_device(block, false);  // it stands for weights and workspace that nothing uses
        }
    }
    memory_.clear();
}

aclError LoadedModel::take_memory(bool weights, bool workspace) {
    for (size_t bytes : {weights ? signature().weight_bytes : 0, workspace ? signature().work_bytes : 0}) {
        if (bytes == 0) {
            continue;
        }
        void *block = nullptr;
        if (aclError code = allocate_device(device_, bytes, &block)) {
            release_memory();
            return code;
        }
        memory_.push_back(block);
    }
    return 0;
}

Lease::Lease(std::shared_ptr<LoadedModel> model) : model_(std::move(model)) { ++model_->in_flight_; }

Lease::~Lease() {
    if (executing_) {
        model_->executing_ = false;
    }
    --model_->in_flight_;
}

bool Lease::begin() {
    executing_ = !model_->executing_.exchange(true);
    return executing_;
}

uint32_t register_model(std::shared_ptr<LoadedModel> model) {
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.models[++all.last_id] = std::move(model);
    return all.last_id;
}

std::shared_ptr<LoadedModel> find_model(uint32_t id) {
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    auto found = all.models.find(id);
    return found == all.models.end() ? nullptr : found->second;
}

aclError use_model(uint32_t id, std::shared_ptr<LoadedModel> *out) {
    uint64_t context = 0;
    if (aclError code = current_context_id(&context)) {
        return code;
    }
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    return find_usable(all, id, context, out);
}

aclError lease_model(uint32_t id, std::unique_ptr<Lease> *out) {
    uint64_t context = 0;
    if (aclError code = current_context_id(&context)) {
        return code;
    }
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    std::shared_ptr<LoadedModel> model;
    if (aclError code = find_usable(all, id, context, &model)) {
        return code;
    }
    *out = std::make_unique<Lease>(std::move(model));
    return 0;
}

aclError unload_model(uint32_t id) {
    uint64_t context = 0;
    if (aclError code = current_context_id(&context)) {
        return code;
    }
    std::shared_ptr<LoadedModel> model;
    {
        Registry &all = registry();
        std::lock_guard<std::mutex> lock(all.mutex);
        if (aclError code = find_usable(all, id, context, &model)) {
            return code;
        }
        if (uint32_t running = model->in_flight()) {
            return fail(
                ACL_ERROR_GE_UNLOAD_MODEL,
                "model id %u (%s) has %u executions in flight and stays loaded; synchronize their streams first",
                id, model->signature().name.c_str(), running);
        }
        all.models.erase(id);
    }
    model->release_memory();
    return 0;
}

void unload_models_of(uint64_t context) {
    std::vector<std::shared_ptr<LoadedModel>> gone;
    {
        Registry &all = registry();
        std::lock_guard<std::mutex> lock(all.mutex);
        for (auto it = all.models.begin(); it != all.models.end();) {
            bool belongs = it->second->context() == context;
            if (belongs) {
                gone.push_back(it->second);
            }
            it = belongs ? all.models.erase(it) : std::next(it);
        }
    }
    for (const std::shared_ptr<LoadedModel> &model : gone) {
        model->release_memory();
    }
}

}  // namespace aclsim
