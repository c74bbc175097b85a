// SPDX-License-Identifier: Apache-2.0
// Loading by a config handle.
#include <cstring>

#include "core/errors.h"
#include "export.h"
#include "model/handles.h"
#include "model/load.h"
#include "model/model_error.h"

struct aclmdlConfigHandle {
    size_t load_type = 0;
    std::string path;
    const void *content = nullptr;
    size_t content_size = 0;
    aclsim::UserMemory weights, workspace;
};

namespace aclsim {
namespace {

LiveHandles<aclmdlConfigHandle> &configs() {
    static auto *live = new LiveHandles<aclmdlConfigHandle>;
    return *live;
}

aclError not_a_config(const aclmdlConfigHandle *handle) {
    return fail(ACL_ERROR_INVALID_PARAM,
                "load config %p was not created by aclmdlCreateConfigHandle or is destroyed",
                static_cast<const void *>(handle));
}

// Reads an option's value; false when its size is wrong.
template <class T>
bool take(const void *value, size_t size, T *out) {
    if (size != sizeof(T)) {
        return false;
    }
    std::memcpy(out, value, sizeof(T));
    return true;
}

bool set_option(aclmdlConfigHandle &config, aclmdlConfigAttr attr, const void *value, size_t size) {
    const char *path = nullptr;
    int32_t number = 0;
    size_t count = 0;
    switch (attr) {
        case ACL_MDL_PRIORITY_INT32: return take(value, size, &number);
        case ACL_MDL_WORKSPACE_MEM_OPTIMIZE: return take(value, size, &count);
        case ACL_MDL_LOAD_TYPE_SIZET: return take(value, size, &config.load_type);
        case ACL_MDL_MEM_ADDR_PTR: return take(value, size, &config.content);
        case ACL_MDL_MEM_SIZET: return take(value, size, &config.content_size);
        case ACL_MDL_WEIGHT_ADDR_PTR: return take(value, size, &config.weights.data);
        case ACL_MDL_WEIGHT_SIZET: return take(value, size, &config.weights.size);
        case ACL_MDL_WORKSPACE_ADDR_PTR: return take(value, size, &config.workspace.data);
        case ACL_MDL_WORKSPACE_SIZET: return take(value, size, &config.workspace.size);
        case ACL_MDL_PATH_PTR:
            if (!take(value, size, &path)) {
                return false;
            }
            config.path = path ? path : "";
            return true;
        default: return false;
    }
}

bool is_known(aclmdlConfigAttr attr) {
    return (attr >= ACL_MDL_PRIORITY_INT32 && attr <= ACL_MDL_WORKSPACE_SIZET) ||
           attr == ACL_MDL_WORKSPACE_MEM_OPTIMIZE;
}

ModelSource source_of(const aclmdlConfigHandle &config) {
    switch (config.load_type) {
        case ACL_MDL_LOAD_FROM_FILE:
        case ACL_MDL_LOAD_FROM_FILE_WITH_MEM:
            if (config.path.empty()) {
                throw ModelError(ACL_ERROR_INVALID_PARAM,
                                 "the load config has no path; set ACL_MDL_PATH_PTR");
            }
            return source_from_file(config.path);
        case ACL_MDL_LOAD_FROM_MEM:
        case ACL_MDL_LOAD_FROM_MEM_WITH_MEM:
            if (!config.content || config.content_size == 0) {
                throw ModelError(
                    ACL_ERROR_INVALID_PARAM,
                    "the load config has no model; set ACL_MDL_MEM_ADDR_PTR and ACL_MDL_MEM_SIZET");
            }
            return source_from_memory({static_cast<const char *>(config.content), config.content_size});
        case ACL_MDL_LOAD_FROM_FILE_WITH_Q:
        case ACL_MDL_LOAD_FROM_MEM_WITH_Q:
            throw ModelError(ACL_ERROR_API_NOT_SUPPORT, "the simulator has no queues; use another load type");
        default:
            throw ModelError(ACL_ERROR_INVALID_PARAM,
                             "load type " + std::to_string(config.load_type) +
                                 "; set ACL_MDL_LOAD_TYPE_SIZET to one of ACL_MDL_LOAD_FROM_*");
    }
}

}  // namespace
}  // namespace aclsim

using namespace aclsim;

extern "C" {

ACL_EXPORT aclmdlConfigHandle *aclmdlCreateConfigHandle() {
    ACL_ENTER_OR(aclmdlCreateConfigHandle, nullptr);
    return configs().add(std::make_unique<aclmdlConfigHandle>());
}

ACL_EXPORT aclError aclmdlDestroyConfigHandle(aclmdlConfigHandle *handle) {
    ACL_ENTER(aclmdlDestroyConfigHandle);
    return configs().remove(handle) ? ACL_SUCCESS : not_a_config(handle);
}

ACL_EXPORT aclError aclmdlSetConfigOpt(aclmdlConfigHandle *handle, aclmdlConfigAttr attr,
                                       const void *attrValue, size_t valueSize) {
    ACL_ENTER(aclmdlSetConfigOpt);
    if (!configs().contains(handle)) {
        return not_a_config(handle);
    }
    if (!is_known(attr)) {
        return fail(ACL_ERROR_FEATURE_UNSUPPORTED, "load option %d is not supported by the simulator",
                    static_cast<int>(attr));
    }
    if (!attrValue || !set_option(*handle, attr, attrValue, valueSize)) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "load option %d: a value of %zu bytes at %p does not fit its type",
                    static_cast<int>(attr), valueSize, attrValue);
    }
    return ACL_SUCCESS;
}

ACL_EXPORT aclError aclmdlLoadWithConfig(const aclmdlConfigHandle *handle, uint32_t *modelId) {
    ACL_ENTER(aclmdlLoadWithConfig);
    if (!configs().contains(handle)) {
        return not_a_config(handle);
    }
    if (!modelId) {
        return fail(ACL_ERROR_INVALID_PARAM, "modelId is NULL");
    }
    return guarded([&] {
        bool own_memory = handle->load_type == ACL_MDL_LOAD_FROM_FILE_WITH_MEM ||
                          handle->load_type == ACL_MDL_LOAD_FROM_MEM_WITH_MEM;
        return load_model(source_of(*handle), own_memory ? handle->workspace : UserMemory{},
                          own_memory ? handle->weights : UserMemory{}, modelId);
    });
}

}  // extern "C"
