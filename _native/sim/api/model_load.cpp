// SPDX-License-Identifier: Apache-2.0
// Loading and unloading models.
#include "core/errors.h"
#include "core/task.h"
#include "export.h"
#include "model/load.h"
#include "model/model_error.h"
#include "model/registry.h"

namespace aclsim {
namespace {

void check_user_memory(const char *role, UserMemory memory, size_t needed, const Signature &signature) {
    if (!memory.data) {
        return;
    }
    const std::string what = signature.label + ": the " + role + " memory ";
    if (memory.size < needed) {
        throw ModelError(ACL_ERROR_MODEL_SIZE_INVALID, what + "has " + std::to_string(memory.size) +
                                                           " bytes, but " + std::to_string(needed) +
                                                           " are needed; ask aclmdlQuerySize");
    }
    if (!is_device_address(memory.data, memory.size, nullptr)) {
        throw ModelError(ACL_ERROR_GE_EXEC_MODEL_ADDR_INVALID,
                         what + "is not device memory; allocate it with aclrtMalloc");
    }
}

std::string_view bytes_of(const void *model, size_t size) { return {static_cast<const char *>(model), size}; }

aclError query_size(const ModelSource &source, size_t *work_size, size_t *weight_size) {
    const Signature signature = *obtain_program(source)->signature();
    if (signature.is_dynamic()) {
        return fail(ACL_ERROR_GE_PARAM_INVALID,
                    "%s has open shapes, so its memory cannot be told in advance; load it without own memory",
                    signature.label.c_str());
    }
    *work_size = signature.work_bytes;
    *weight_size = signature.weight_bytes;
    return ACL_SUCCESS;
}

aclError null_argument(const char *function, const char *what) {
    return fail(ACL_ERROR_INVALID_PARAM, "%s: %s is NULL or empty", function, what);
}

}  // namespace

aclError load_model(const ModelSource &source, UserMemory workspace, UserMemory weights, uint32_t *model_id) {
    Context *context = nullptr;
    if (aclError code = current_context(&context)) {
        return code;
    }
    const uint64_t id = context_id(*context);
    std::shared_ptr<Program> program = obtain_program(source);
    check_user_memory("workspace", workspace, program->signature()->work_bytes, *program->signature());
    check_user_memory("weight", weights, program->signature()->weight_bytes, *program->signature());
    auto model = std::make_shared<LoadedModel>(std::move(program), id, context_device(*context));
    if (aclError code = model->take_memory(!weights.data, !workspace.data)) {
        return code;
    }
    *model_id = register_model(std::move(model));
    return ACL_SUCCESS;
}

}  // namespace aclsim

using namespace aclsim;

extern "C" {

ACL_EXPORT aclError aclmdlLoadFromFile(const char *modelPath, uint32_t *modelId) {
    ACL_ENTER(aclmdlLoadFromFile);
    if (!modelPath || !modelId) {
        return null_argument("aclmdlLoadFromFile", "modelPath or modelId");
    }
    return guarded([&] { return load_model(source_from_file(modelPath), {}, {}, modelId); });
}

ACL_EXPORT aclError aclmdlLoadFromMem(const void *model, size_t modelSize, uint32_t *modelId) {
    ACL_ENTER(aclmdlLoadFromMem);
    if (!model || modelSize == 0 || !modelId) {
        return null_argument("aclmdlLoadFromMem", "model, modelSize or modelId");
    }
    return guarded(
        [&] { return load_model(source_from_memory(bytes_of(model, modelSize)), {}, {}, modelId); });
}

ACL_EXPORT aclError aclmdlLoadFromFileWithMem(const char *modelPath, uint32_t *modelId, void *workPtr,
                                              size_t workSize, void *weightPtr, size_t weightSize) {
    ACL_ENTER(aclmdlLoadFromFileWithMem);
    if (!modelPath || !modelId) {
        return null_argument("aclmdlLoadFromFileWithMem", "modelPath or modelId");
    }
    return guarded([&] {
        return load_model(source_from_file(modelPath), {workPtr, workSize}, {weightPtr, weightSize}, modelId);
    });
}

ACL_EXPORT aclError aclmdlLoadFromMemWithMem(const void *model, size_t modelSize, uint32_t *modelId,
                                             void *workPtr, size_t workSize, void *weightPtr,
                                             size_t weightSize) {
    ACL_ENTER(aclmdlLoadFromMemWithMem);
    if (!model || modelSize == 0 || !modelId) {
        return null_argument("aclmdlLoadFromMemWithMem", "model, modelSize or modelId");
    }
    return guarded([&] {
        return load_model(source_from_memory(bytes_of(model, modelSize)), {workPtr, workSize},
                          {weightPtr, weightSize}, modelId);
    });
}

ACL_EXPORT aclError aclmdlQuerySize(const char *fileName, size_t *workSize, size_t *weightSize) {
    ACL_ENTER(aclmdlQuerySize);
    if (!fileName || !workSize || !weightSize) {
        return null_argument("aclmdlQuerySize", "fileName, workSize or weightSize");
    }
    return guarded([&] { return query_size(source_from_file(fileName), workSize, weightSize); });
}

ACL_EXPORT aclError aclmdlQuerySizeFromMem(const void *model, size_t modelSize, size_t *workSize,
                                           size_t *weightSize) {
    ACL_ENTER(aclmdlQuerySizeFromMem);
    if (!model || modelSize == 0 || !workSize || !weightSize) {
        return null_argument("aclmdlQuerySizeFromMem", "model, modelSize, workSize or weightSize");
    }
    return guarded(
        [&] { return query_size(source_from_memory(bytes_of(model, modelSize)), workSize, weightSize); });
}

ACL_EXPORT aclError aclmdlUnload(uint32_t modelId) {
    ACL_ENTER(aclmdlUnload);
    return unload_model(modelId);
}

}  // extern "C"
